//! A card that follows a script.

use super::script::{Action, BlockFault, Invalid, Keep, OnFailure, Rule, Script, When};
use crate::card::{Answer, Bits, Card, Sent, Shared, Token, crc7};
use crate::scenario::Random;
use crate::storage::Storage;
use mmc_proto::bus::{Signal, Timing};
use mmc_time::{Duration, Instant};
use std::collections::HashMap;

const COM_CRC_ERROR: u32 = 1 << 23;
const READY_FOR_DATA: u32 = 1 << 8;

/// A card whose contents can be got at, and which can lose what is not durable.
///
/// The defaults let the [`Storage`] keep account; a card with a cache of its own does it itself.
pub trait Medium: Card {
    /// Lends the contents (of an eMMC card: of the user area) to `f`.
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage));
    /// A loss of power is to come (or none any more): remember what it would undo.
    fn expect_loss(&mut self, on: bool) {
        self.with_storage(&mut |s| s.remember_writes(on));
    }
    /// The card is not busy: all but the last `keep` blocks written are durable.
    fn settle(&mut self, keep: usize) {
        self.with_storage(&mut |s| s.settle(keep));
    }
    /// Blocks of 512 bytes written that are not durable.
    fn volatile(&mut self) -> usize {
        let mut n = 0;
        self.with_storage(&mut |s| n = s.volatile());
        n
    }
    /// Whether a response with the index of this command carries the card status. Of an SD card R6 and R7 (CMD3, CMD8) and,
    /// in SPI mode, CMD58 do not.
    fn tells_status(&self, app: bool, index: u8) -> bool {
        app || !matches!(index, 3 | 8 | 58)
    }
    /// Undoes the blocks that are not durable, but for the `survivors` (0: the oldest), which were programmed in this
    /// order. Comes before the supply goes off.
    fn lose(&mut self, survivors: &[usize]) {
        self.with_storage(&mut |s| s.lose(survivors));
    }
}

impl<C: Medium> Medium for Shared<C> {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        self.lock().with_storage(f);
    }
    fn expect_loss(&mut self, on: bool) {
        self.lock().expect_loss(on);
    }
    fn settle(&mut self, keep: usize) {
        self.lock().settle(keep);
    }
    fn volatile(&mut self) -> usize {
        self.lock().volatile()
    }
    fn tells_status(&self, app: bool, index: u8) -> bool {
        self.lock().tells_status(app, index)
    }
    fn lose(&mut self, survivors: &[usize]) {
        self.lock().lose(survivors);
    }
}

impl<C: Medium> Medium for Faulty<C> {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        self.card.with_storage(f);
    }
    fn expect_loss(&mut self, on: bool) {
        self.card.expect_loss(on);
    }
    fn settle(&mut self, keep: usize) {
        self.card.settle(keep);
    }
    fn volatile(&mut self) -> usize {
        self.card.volatile()
    }
    fn tells_status(&self, app: bool, index: u8) -> bool {
        self.card.tells_status(app, index)
    }
    fn lose(&mut self, survivors: &[usize]) {
        self.card.lose(survivors);
    }
}

/// How DAT0 is held by a `busy` action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Not.
    Free,
    /// From the end of the data phase on, for so long.
    Then(Duration),
    /// Until then.
    Until(Instant),
}

/// A card that follows a [`Script`]: it stands between the host and any other card.
///
/// Rules with an instant come into force at the first call that moves the card on at or after it. Where nothing
/// strikes, it is the card itself. The script is printed if a test that owns this panics.
///
/// ```
/// use mmc_mock::card::{Card, SdCard, SdConfig};
/// use mmc_mock::fault::Faulty;
/// use mmc_mock::timing::Profile;
/// use mmc_time::Instant;
///
/// let card = SdCard::new(SdConfig::new(Profile::ideal(), 1))?;
/// let mut card = Faulty::new(card, "at CMD8: no-answer".parse()?)?;
/// card.power(true, Instant::ZERO);
/// card.bus(400_000, 1, Instant::ZERO);
/// card.idle_clocks(80);
/// card.command(0, 0, Instant::ZERO);
/// assert!(card.command(8, 0x1aa, Instant::ZERO).response.is_none());
/// assert!(card.command(8, 0x1aa, Instant::ZERO).response.is_some(), "once only");
/// assert!(card.waiting().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Faulty<C> {
    card: C,
    others: Vec<C>,
    script: Script,
    /// Rules that have struck.
    struck: Vec<bool>,
    frames: u64,
    seen: HashMap<(bool, u8), u32>,
    /// CMD55 came just before.
    app: bool,
    random: Random,
    /// Those of the running command.
    now: Vec<Action>,
    /// Bits for the next status.
    bits: u32,
    hold: Hold,
    late: Duration,
    /// Of the running data phase: block length, blocks left until it ends by itself, the next block's number.
    phase: Option<(u16, Option<u32>, u32)>,
    /// No more block of it comes or goes.
    dead: bool,
    inserted: bool,
    powered: bool,
    /// How often the card lost its supply.
    resets: u32,
    bus: (u32, u8),
    signal: (Signal, Timing),
    /// Responses are those of SPI mode.
    spi: bool,
    _tell: OnFailure,
}

impl<C: Medium> Faulty<C> {
    /// A card that follows `script`.
    ///
    /// # Errors
    /// [`Invalid`] for a rule that cannot be, also of this card: a sector it does not have.
    pub fn new(card: C, script: Script) -> Result<Self, Invalid> {
        Self::with_others(card, Vec::new(), script)
    }
    /// The same, with cards that `swap N` can put into the slot instead.
    ///
    /// # Errors
    /// [`Invalid`], also for a number without a card.
    pub fn with_others(card: C, others: Vec<C>, script: Script) -> Result<Self, Invalid> {
        script.check()?;
        let mut faulty = Self {
            card,
            others,
            struck: vec![false; script.rules.len()],
            frames: 0,
            seen: HashMap::new(),
            app: false,
            random: Random::new(script.seed),
            now: Vec::new(),
            bits: 0,
            hold: Hold::Free,
            late: Duration::ZERO,
            phase: None,
            dead: false,
            inserted: true,
            powered: false,
            resets: 0,
            bus: (0, 1),
            signal: (Signal::V3_3, Timing::Default),
            spi: false,
            _tell: script.on_failure(),
            script,
        };
        faulty.prepare()?;
        Ok(faulty)
    }
    /// Checks the script against the cards, and tells them to remember writes if power will be lost.
    fn prepare(&mut self) -> Result<(), Invalid> {
        let losses = self.script.rules.iter().any(|r| matches!(r.what, Action::PowerLoss(_)));
        for card in std::iter::once(&mut self.card).chain(&mut self.others) {
            card.expect_loss(losses);
        }
        let script = std::mem::take(&mut self.script);
        let checked = self.check(&script.rules);
        self.script = script;
        checked
    }
    /// Whether these rules can be on these cards.
    fn check(&mut self, rules: &[Rule]) -> Result<(), Invalid> {
        let mut least = u64::MAX;
        for card in std::iter::once(&mut self.card).chain(&mut self.others) {
            card.with_storage(&mut |s| least = least.min(s.sectors()));
        }
        let there = self.others.len();
        for (i, rule) in rules.iter().enumerate() {
            let problem = match rule.what {
                Action::Swap(n) if n >= there => {
                    format!("there is no other card {n}, only {there} were given")
                }
                Action::Rot { sector, .. } if sector >= least => {
                    format!("there is no sector {sector}, the smallest card here stores {least}")
                }
                _ => continue,
            };
            return Err(Invalid { rule: i + 1, field: "action", problem });
        }
        Ok(())
    }
    /// The same card in SPI mode, where a wrong CRC of a command is answered at once.
    pub(crate) fn in_spi_mode(mut self) -> Self {
        self.spi = true;
        self
    }
    /// How often the card lost its supply.
    pub(crate) fn resets(&self) -> u32 {
        self.resets
    }
    /// One more rule, while the card runs; those that have struck once and for all are forgotten, so that a long run costs
    /// no more than the faults that wait. Power is lost only where the first script had a `power-loss`, too: else nothing
    /// is remembered that could be lost.
    ///
    /// # Errors
    /// [`Invalid`] (rule 1 is this one); the script is as it was.
    pub fn add(&mut self, rule: Rule) -> Result<(), Invalid> {
        let one = Script { rules: vec![rule], ..Script::default() };
        one.check()?;
        self.check(&one.rules)?;
        let mut over = std::mem::take(&mut self.struck).into_iter();
        self.script.rules.retain(|r| {
            let struck = over.next().unwrap_or(false);
            !struck || matches!(r.when, When::Every { .. })
        });
        self.script.rules.extend(one.rules);
        self.struck = vec![false; self.script.rules.len()];
        Ok(())
    }
    /// Does at once what needs no command: a card that leaves, comes or is changed, a loss of power, rot. Everything else is
    /// ignored.
    pub fn act(&mut self, what: &Action, now: Instant) {
        let there = !matches!(what, Action::Swap(n) if *n >= self.others.len());
        if there && by_itself(what) {
            self.happen(what, now);
        }
    }
    /// How many of this command have come: with [`When::Command`] as `nth`, the next one.
    #[must_use]
    pub fn seen(&self, app: bool, index: u8) -> u32 {
        self.seen.get(&(app, index)).copied().unwrap_or(0)
    }
    /// The card in the slot.
    #[must_use]
    pub fn card(&self) -> &C {
        &self.card
    }
    /// The card in the slot, for a test's back door.
    pub fn card_mut(&mut self) -> &mut C {
        &mut self.card
    }
    /// The script.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }
    /// Command frames so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }
    /// Rules that have not struck yet, those of the host apart: a test can assert that its script came true.
    #[must_use]
    pub fn waiting(&self) -> Vec<&Rule> {
        let rules = self.script.rules.iter().zip(&self.struck);
        rules.filter(|(r, struck)| !**struck && !matches!(r.what, Action::Host(_))).map(|(r, _)| r).collect()
    }

    /// The actions due: at instants up to `now`, and at the command if there is one.
    fn due(&mut self, now: Instant, command: Option<(u64, bool, u8, u32)>) -> Vec<Action> {
        let mut due = Vec::new();
        for (rule, struck) in self.script.rules.iter().zip(&mut self.struck) {
            let hit = match (rule.when, command) {
                (When::Every { app, index }, Some((_, a, i, _))) => (app, index) == (a, i),
                _ if *struck => false,
                (When::Instant(at), _) => at <= now && (command.is_some() || by_itself(&rule.what)),
                (When::Frame(n), Some((frame, ..))) => n == frame,
                (When::Command { app, index, nth }, Some((_, a, i, n))) => (app, index, nth) == (a, i, n),
                _ => false,
            };
            if hit && !matches!(rule.what, Action::Host(_)) {
                *struck = true;
                due.push(rule.what.clone());
            }
        }
        due
    }
    /// Lets what is due at instants happen; between commands.
    fn pass(&mut self, now: Instant) {
        for what in self.due(now, None) {
            self.happen(&what, now);
        }
        if self.phase.is_none() && self.card.busy_until(now) <= now {
            self.card.settle(self.script.cache as usize);
        }
    }
    /// What happens to the card as a whole.
    fn happen(&mut self, what: &Action, now: Instant) {
        match what {
            Action::Remove => {
                self.card.power(false, now);
                self.forget();
                self.inserted = false;
            }
            Action::Insert => {
                self.inserted = true;
                self.restore(now);
            }
            Action::Swap(n) => {
                self.card.power(false, now);
                self.forget();
                if let Some(other) = self.others.get_mut(*n) {
                    std::mem::swap(&mut self.card, other);
                }
                self.restore(now);
            }
            Action::PowerLoss(keep) => {
                let n = self.card.volatile();
                let survivors = self.survivors(keep, n);
                self.card.lose(&survivors);
                self.card.power(false, now);
                self.forget();
                self.restore(now);
                if self.powered {
                    self.card.idle_clocks(80);
                }
            }
            Action::Rot { sector, byte, bit } => {
                let at = sector * 512 + u64::from(*byte);
                self.card.with_storage(&mut |s| {
                    let mut cell = [0];
                    // Inside, by `prepare`; rot is durable.
                    if s.read(at, &mut cell).is_ok() {
                        s.rot(at, cell[0] ^ 1 << bit);
                    }
                });
            }
            _ => {}
        }
    }
    /// The blocks that a loss of power leaves, of `n`.
    fn survivors(&mut self, keep: &Keep, n: usize) -> Vec<usize> {
        match keep {
            Keep::All => (0..n).collect(),
            Keep::None => Vec::new(),
            Keep::List(list) => list.iter().map(|&i| i as usize).collect(),
            Keep::Random => {
                let mut all: Vec<usize> = (0..n).filter(|_| self.random.draw() & 1 == 1).collect();
                for i in (1..all.len()).rev() {
                    all.swap(i, self.random.between(0, i as u64) as usize);
                }
                all
            }
        }
    }
    /// What the card forgets when it loses its supply.
    fn forget(&mut self) {
        self.resets += 1;
        self.now.clear();
        (self.bits, self.hold, self.late, self.phase) = (0, Hold::Free, Duration::ZERO, None);
        (self.dead, self.app) = (false, false);
    }
    /// Gives the card in the slot the supply and the clock that the host drives.
    fn restore(&mut self, now: Instant) {
        if self.inserted && self.powered {
            self.card.power(true, now);
        }
        self.card.bus(self.bus.0, self.bus.1, now);
        self.card.signal(self.signal.0, self.signal.1, now);
    }
    /// The data phase is over.
    fn end_phase(&mut self, now: Instant) {
        self.phase = None;
        if let Hold::Then(d) = self.hold {
            self.hold = Hold::Until(now + d);
        }
    }
    /// `n` blocks have moved.
    fn moved(&mut self, n: u32, now: Instant) {
        let Some((_, left, k)) = &mut self.phase else { return };
        *k += n;
        if let Some(left) = left {
            *left = left.saturating_sub(n);
            if *left == 0 {
                self.end_phase(now);
            }
        }
    }
    /// The number of the next block, and what is wrong with it.
    fn block(&mut self) -> (bool, bool, Option<(u16, u8)>) {
        let k = self.phase.map_or(u32::MAX, |(_, _, k)| k);
        let has = |f: BlockFault| self.now.contains(&Action::Block(k, f));
        let (crc, missing) = (has(BlockFault::Crc), has(BlockFault::Missing));
        let flip = self.now.iter().find_map(|a| match *a {
            Action::Block(n, BlockFault::Flip { byte, bit }) if n == k => Some((byte, bit)),
            _ => None,
        });
        self.dead |= missing;
        (crc, self.dead, flip)
    }
    /// Whether a block of the running phase is still to go wrong.
    fn by_the_block(&self) -> bool {
        let k = self.phase.map_or(0, |(_, _, k)| k);
        self.dead || self.now.iter().any(|a| matches!(a, Action::Block(n, _) if *n >= k))
    }
    fn held_until(&self, now: Instant) -> Instant {
        match self.hold {
            Hold::Until(at) if at > now => at,
            _ => Instant::ZERO,
        }
    }
    /// Adds the bits that wait, and what a hold makes of the state.
    fn patch(&mut self, index: u8, app: bool, now: Instant, answer: &mut Answer) {
        let Some(Bits::Short(frame)) = &mut answer.response else { return };
        // R3 has no status, and another index.
        if frame[0] != index || !self.card.tells_status(app, index) {
            return;
        }
        let mut status = u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]);
        let held = matches!(self.hold, Hold::Until(at) if at > now);
        if held && status >> 9 & 15 == 4 {
            status = status & !(0xf << 9 | READY_FOR_DATA) | 7 << 9;
        }
        status |= std::mem::take(&mut self.bits);
        *frame = framed(index, status);
    }
}

/// A response of 48 bits with its CRC7.
fn framed(index: u8, value: u32) -> [u8; 6] {
    let [a, b, c, d] = value.to_be_bytes();
    [index, a, b, c, d, crc7(&[index, a, b, c, d]) << 1 | 1]
}

/// Damages a response.
fn damage(response: &mut Option<Bits>, index: u8, what: &Action) {
    match (what, response) {
        (Action::ResponseCrc, Some(Bits::Short(b))) => b[5] ^= if b[5] == 0xff { 1 } else { 2 },
        (Action::ResponseCrc, Some(Bits::Long(b))) => b[16] ^= 2,
        (Action::ResponseIndex, Some(Bits::Short(b))) => {
            *b = framed(index ^ 1, u32::from_be_bytes([b[1], b[2], b[3], b[4]]));
        }
        (Action::ResponseIndex, Some(Bits::Long(b))) => b[0] ^= 1,
        (Action::ResponseEnd, Some(Bits::Short(b))) => b[5] &= !1,
        (Action::ResponseEnd, Some(Bits::Long(b))) => b[16] &= !1,
        _ => {}
    }
}

/// Needs no command to strike.
fn by_itself(what: &Action) -> bool {
    matches!(
        what,
        Action::Remove | Action::Insert | Action::Swap(_) | Action::PowerLoss(_) | Action::Rot { .. }
    )
}

impl<C: Medium> Card for Faulty<C> {
    fn power(&mut self, on: bool, now: Instant) {
        self.pass(now);
        if on != self.powered {
            self.forget();
            // Whoever switches the supply off in the middle loses what was not durable: all of it.
            self.card.lose(&[]);
        }
        self.powered = on;
        if self.inserted {
            self.card.power(on, now);
        }
    }
    fn bus(&mut self, hz: u32, lines: u8, now: Instant) {
        self.pass(now);
        self.bus = (hz, lines);
        self.card.bus(hz, lines, now);
    }
    fn signal(&mut self, signal: Signal, timing: Timing, now: Instant) {
        self.pass(now);
        self.signal = (signal, timing);
        self.card.signal(signal, timing, now);
    }
    fn lines_low(&self, now: Instant) -> bool {
        self.inserted && self.card.lines_low(now)
    }
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        self.card.samples_right(phase, now)
    }
    fn interrupt(&self, now: Instant) -> bool {
        self.inserted && self.card.interrupt(now)
    }
    fn idle_clocks(&mut self, n: u32) {
        self.card.idle_clocks(n);
    }

    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        let index = index & 63;
        self.pass(now);
        if index == 12 || index == 0 {
            self.end_phase(now);
        }
        let app = std::mem::replace(&mut self.app, index == 55);
        let nth = self.seen.entry((app, index)).or_default();
        let (number, frame) = (*nth, self.frames);
        *nth = nth.saturating_add(1);
        self.frames += 1;
        let due = self.due(now, Some((frame, app, index, number)));
        for what in &due {
            self.happen(what, now);
        }
        if !self.inserted {
            return Answer::default();
        }
        if due.contains(&Action::Lost) {
            return Answer::default();
        }
        if due.contains(&Action::CommandCrc) {
            if self.spi {
                let response = Some(Bits::Short(framed(index, COM_CRC_ERROR)));
                return Answer { response, data: None };
            }
            self.bits |= COM_CRC_ERROR;
            return Answer::default();
        }
        let mut answer = self.card.command(index, arg, now);
        (self.late, self.dead) = (Duration::ZERO, false);
        let phase = answer.data.map(|p| (p.block_len, p.blocks, 0));
        if phase.is_some() {
            self.phase = phase;
        }
        for what in &due {
            match *what {
                Action::Status(bits) => self.bits |= bits,
                Action::Late(by) => self.late += by,
                Action::Busy(d) if phase.is_some() => self.hold = Hold::Then(d),
                Action::Busy(d) => self.hold = Hold::Until(now + d),
                _ => {}
            }
        }
        self.patch(index, app, now, &mut answer);
        for what in &due {
            damage(&mut answer.response, index, what);
        }
        if due.contains(&Action::NoAnswer) {
            answer = Answer::default();
        }
        self.now = due;
        answer
    }

    fn ready(&self, k: u32) -> Instant {
        self.card.ready(k) + self.late
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        self.pass(now);
        let (crc, missing, flip) = self.block();
        if missing || !self.inserted {
            return Sent::Nothing;
        }
        let sent = self.card.send(block, now);
        if let Some((byte, bit)) = flip
            && let Some(b) = block.get_mut(usize::from(byte))
        {
            *b ^= 1 << bit;
        }
        self.moved(1, now);
        if crc && sent == Sent::Good { Sent::BadCrc } else { sent }
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        self.pass(now);
        if self.by_the_block() || !self.inserted {
            return 0;
        }
        let bytes = self.card.send_many(blocks, now);
        self.count(bytes, now);
        bytes
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        self.pass(now);
        let (crc, missing, flip) = self.block();
        if !self.inserted {
            return Token::Nothing;
        }
        let mut block = block.to_vec();
        if let Some((byte, bit)) = flip
            && let Some(b) = block.get_mut(usize::from(byte))
        {
            *b ^= 1 << bit;
        }
        // A block without a token is one the card did not get whole.
        let token = self.card.take(&block, crc_ok && !crc && !missing, now);
        self.moved(1, now);
        if missing { Token::Nothing } else { token }
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        self.pass(now);
        if self.by_the_block() || !self.inserted {
            return 0;
        }
        let bytes = self.card.take_many(blocks, now);
        self.count(bytes, now);
        bytes
    }
    fn busy_until(&self, now: Instant) -> Instant {
        if !self.inserted {
            return Instant::ZERO;
        }
        self.card.busy_until(now).max(self.held_until(now))
    }
    fn present(&self) -> bool {
        self.inserted && self.card.present()
    }
    fn violations(&self) -> Vec<String> {
        self.card.violations()
    }
}

impl<C: Medium> Faulty<C> {
    /// Blocks moved at once.
    fn count(&mut self, bytes: usize, now: Instant) {
        if let Some((len, ..)) = self.phase
            && bytes > 0
        {
            self.moved((bytes / usize::from(len.max(1))) as u32, now);
        }
    }
}

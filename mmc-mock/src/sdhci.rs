//! The standard SD host controller (version 3), register for register, with a [`Card`] at the end of its lines: what a driver
//! can tell of it, by DMA (ADMA2 with 32-bit and 64-bit addresses) and by hand, at the pace of the [`Wire`].
//!
//! A command, a block and a descriptor are the smallest things that happen; with DMA all blocks of a phase move at the
//! instant it ends. It has the tuning circuit that QEMU's model lacks: [`Config::taps`] blocks are sampled one after
//! another over the clock period, and the middle of the longest good run is taken.
//!
//! Not modelled: SDMA, the programmable clock, preset values, the block gap, SDIO interrupts.

mod data;

use self::data::Data;
use crate::card::{Answer, Bits, Card};
use crate::clock::{Clock, Wakes};
use crate::host::check;
use crate::memory::Memory;
use crate::wire::Wire;
use mmc_hal::Mmio;
use mmc_proto::bus::{Signal, Timing};
use mmc_proto::command::Response;
use mmc_proto::host::Cause;
use mmc_time::Instant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

// Registers as 32-bit words.
const ARGUMENT_2: u32 = 0x00;
const BLOCK: u32 = 0x04;
const ARGUMENT: u32 = 0x08;
const COMMAND: u32 = 0x0c;
const BUFFER: u32 = 0x20;
const PRESENT: u32 = 0x24;
const HOST: u32 = 0x28;
const CLOCK: u32 = 0x2c;
const STATUS: u32 = 0x30;
const HOST2: u32 = 0x3c;
const ADMA: u32 = 0x58;

/// Bits of the interrupt status.
mod int {
    pub(super) const COMMAND: u32 = 1;
    pub(super) const TRANSFER: u32 = 1 << 1;
    pub(super) const WRITE_READY: u32 = 1 << 4;
    pub(super) const READ_READY: u32 = 1 << 5;
    pub(super) const INSERTION: u32 = 1 << 6;
    pub(super) const REMOVAL: u32 = 1 << 7;
    pub(super) const RETUNE: u32 = 1 << 12;
    pub(super) const CMD_TIMEOUT: u32 = 1 << 16;
    pub(super) const CMD_CRC: u32 = 1 << 17;
    pub(super) const CMD_END: u32 = 1 << 18;
    pub(super) const DATA_TIMEOUT: u32 = 1 << 20;
    pub(super) const DATA_CRC: u32 = 1 << 21;
    pub(super) const DATA_END: u32 = 1 << 22;
    pub(super) const AUTO: u32 = 1 << 24;
    pub(super) const ADMA: u32 = 1 << 25;
    pub(super) const TUNING: u32 = 1 << 26;
    pub(super) const ERRORS: u32 = 0xffff_0000;
}

const SIGNAL_1_8: u32 = 1 << 19;
const EXECUTE: u32 = 1 << 22;
const SAMPLING: u32 = 1 << 23;
const RESETS: u32 = 7 << 24;

/// One controller, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// What it says of itself: the two words of the capabilities.
    pub caps: [u32; 2],
    /// Blocks its tuning looks at. More than 40, and no driver gets to the end.
    pub taps: u8,
    /// Its tuning never finds a point, whatever the card sends.
    pub never_locks: bool,
    /// Resets (bits 26:24 of the clock register) that never end.
    pub stuck_resets: u32,
}

impl Config {
    /// 200 MHz, eight lines, 3.3 V and 1.8 V, ADMA2 of 64 bits; all of UHS-I, SDR50 tuned as well; 16 blocks to tune; re-tuning
    /// mode 1 without a timer.
    pub const FAST: Self =
        Self { caps: [0x157e_c8b2, 0x2007], taps: 16, never_locks: false, stuck_resets: 0 };

    /// The same with a re-tuning mode (1, 2 or 3) and a timer of 2^(`timer` - 1) seconds (0: none).
    #[must_use]
    pub const fn retuned(mode: u32, timer: u32) -> Self {
        let high = Self::FAST.caps[1] | (mode.saturating_sub(1) & 3) << 14 | (timer & 15) << 8;
        Self { caps: [Self::FAST.caps[0], high], ..Self::FAST }
    }
}

/// A handle on one controller; clones are handles on the same one.
#[derive(Debug)]
pub struct Sdhci<C>(Arc<Mutex<Core<C>>>);

impl<C> Clone for Sdhci<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Card> Sdhci<C> {
    /// A controller after its reset, with `card` in the slot, not powered.
    #[must_use]
    pub fn new(card: C, clock: Clock, memory: Memory, config: Config) -> Self {
        let present = card.present();
        Self(Arc::new(Mutex::new(Core {
            config,
            card,
            clock,
            memory,
            words: [0; 64],
            t: Instant::ZERO,
            command: None,
            data: None,
            busy: false,
            buffer: Vec::new(),
            at: 0,
            present,
            told: None,
            clock_since: None,
            asks: false,
            tuning: None,
            phase: 180,
            tunings: 0,
            violations: Vec::new(),
        })))
    }
    fn lock(&self) -> MutexGuard<'_, Core<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The interrupt line at this moment.
    #[must_use]
    pub fn irq(&self) -> bool {
        let mut core = self.lock();
        core.run();
        core.words[0x30 / 4] & core.words[0x38 / 4] != 0
    }
    /// It asks for another sample point, as re-tuning modes 2 and 3 do.
    pub fn ask_to_retune(&self) {
        let mut core = self.lock();
        core.run();
        core.asks = true;
        core.raise(int::RETUNE);
    }
    /// Its tuning circuit fails.
    pub fn fail_tuning(&self) {
        let mut core = self.lock();
        core.run();
        core.raise(int::TUNING);
    }
    /// Changes what it is like, from now on.
    pub fn configure(&self, f: impl FnOnce(&mut Config)) {
        f(&mut self.lock().config);
    }
    /// How often a tuning has been started.
    #[must_use]
    pub fn tunings(&self) -> u64 {
        self.lock().tunings
    }
    /// Where it samples, in degrees of the clock period.
    #[must_use]
    pub fn phase(&self) -> u16 {
        self.lock().sampled_at()
    }
    /// What the driver did wrong so far, the card's own list after it; for tests to assert empty.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let core = self.lock();
        let card = core.card.violations().into_iter().map(|v| format!("card: {v}"));
        core.violations.iter().cloned().chain(card).collect()
    }
}

impl<C: Card> Mmio for Sdhci<C> {
    fn read32(&self, offset: u32) -> u32 {
        let mut core = self.lock();
        core.run();
        core.read(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        let mut core = self.lock();
        core.run();
        core.write(offset, value);
        core.run();
    }
}

impl<C: Card> Wakes for Sdhci<C> {
    fn next_event(&self) -> Instant {
        let mut core = self.lock();
        core.run();
        core.next()
    }
}

/// A command on the wire.
#[derive(Debug)]
struct Sent {
    word: u32,
    arg: u32,
    /// When the frame ends (no answer yet) or the response does.
    at: Instant,
    /// The frame on the wire is the controller's own CMD23.
    counting: bool,
    answer: Option<Answer>,
}

/// What a tuning has found so far: whether the block of each tap was right.
#[derive(Debug, Default)]
struct Taps(Vec<bool>);

#[derive(Debug)]
struct Core<C> {
    config: Config,
    card: C,
    clock: Clock,
    memory: Memory,
    words: [u32; 64],
    /// Everything up to here has happened.
    t: Instant,
    command: Option<Sent>,
    data: Option<Data>,
    /// A command with a busy, or a written phase, ends when DAT0 is high.
    busy: bool,
    /// The buffer port's block, and how far it has been moved.
    buffer: Vec<u8>,
    at: usize,
    present: bool,
    told: Option<(u32, u8, Signal, Timing)>,
    /// Since when the card's clock runs and no command has been sent.
    clock_since: Option<Instant>,
    /// Re-tuning request.
    asks: bool,
    tuning: Option<Taps>,
    /// The tuned sample point.
    phase: u16,
    tunings: u64,
    violations: Vec<String>,
}

impl<C: Card> Core<C> {
    fn word(&self, offset: u32) -> u32 {
        self.words.get(offset as usize / 4).copied().unwrap_or(0)
    }
    fn set(&mut self, offset: u32, value: u32) {
        if let Some(word) = self.words.get_mut(offset as usize / 4) {
            *word = value;
        }
    }
    fn violation(&mut self, text: impl Into<String>) {
        if self.violations.len() < 1000 {
            self.violations.push(format!("{} ns: {}", self.t.as_nanos(), text.into()));
        }
    }
    fn raise(&mut self, bits: u32) {
        self.words[STATUS as usize / 4] |= bits & self.word(0x34);
    }
    fn powered(&self) -> bool {
        self.present && self.word(HOST) & 1 << 8 != 0
    }
    fn wire(&self) -> Wire {
        let host = self.word(HOST);
        let lines = if host & 1 << 5 != 0 { 8 } else { 1 + 3 * (host >> 1 & 1) as u8 };
        Wire { hz: self.hz(), lines }.with_ddr(self.word(HOST2) >> 16 & 7 == 4)
    }
    /// The card clock in Hz; 0: off.
    fn hz(&self) -> u32 {
        let clock = self.word(CLOCK);
        let n = clock >> 8 & 0xff | (clock >> 6 & 3) << 8;
        let base = (self.config.caps[0] >> 8 & 0xff) * 1_000_000;
        if clock & 5 == 5 { base / if n == 0 { 1 } else { 2 * n } } else { 0 }
    }
    fn sampled_at(&self) -> u16 {
        if self.word(HOST2) & SAMPLING != 0 { self.phase } else { 180 }
    }
    fn samples_right(&self, phase: u16) -> bool {
        self.card.samples_right(phase, self.t)
    }
    /// DAT0 is low until then.
    fn dat0_until(&self) -> Instant {
        if self.powered() { self.card.busy_until(self.t) } else { Instant::ZERO }
    }

    // --- what happens by itself ---

    fn next(&self) -> Instant {
        let command = self.command.as_ref().map_or(Instant::NEVER, |c| c.at);
        let data = self.data.as_ref().map_or(Instant::NEVER, Data::next);
        let busy = if self.busy { self.dat0_until().max(self.t) } else { Instant::NEVER };
        command.min(data).min(busy)
    }

    fn run(&mut self) {
        let now = self.clock.now();
        if self.card.present() != self.present {
            self.present = !self.present;
            if self.present {
                let on = self.powered();
                self.card.power(on, now);
            }
            self.told = None;
            self.bus_changed();
            self.raise(if self.present { int::INSERTION } else { int::REMOVAL });
        }
        loop {
            let next = self.next();
            if next > now || next.is_never() {
                break;
            }
            self.t = self.t.max(next);
            if self.command.as_ref().is_some_and(|c| c.at <= self.t) {
                self.command_step();
            } else if self.data.as_ref().is_some_and(|d| d.next() <= self.t) {
                self.data_step();
            } else {
                self.busy = false;
                self.raise(int::TRANSFER);
            }
        }
        self.t = self.t.max(now);
    }

    /// The end of the frame, or of the response, of the command on the wire.
    fn command_step(&mut self) {
        let Some(mut sent) = self.command.take() else { return };
        let index = (sent.word >> 24 & 63) as u8;
        let kind = kind(sent.word);
        if sent.counting {
            let argument = self.word(ARGUMENT_2);
            let answer =
                if self.powered() { self.card.command(23, argument, self.t) } else { Answer::default() };
            let right = self.samples_right(self.sampled_at());
            let result = answer.response.filter(|_| right).map(|bits| check(Response::Short, 23, &bits));
            if !matches!(result, Some(Ok(_))) {
                self.auto_failed(answer.response.is_some());
                return;
            }
            let clocks = Wire::response_clocks(Response::Short, true) + Wire::command_clocks(false);
            (sent.counting, sent.at) = (false, self.t + self.wire().clocks(clocks));
            self.command = Some(sent);
            return;
        }
        let Some(answer) = sent.answer.take() else {
            let mut answer = Answer::default();
            if self.powered() {
                if let Some(since) = self.clock_since.take() {
                    let ns = u128::from(self.t.since(since).as_nanos());
                    let clocks = ns * u128::from(self.hz()) / 1_000_000_000;
                    self.card.idle_clocks(u32::try_from(clocks).unwrap_or(u32::MAX).saturating_sub(48));
                }
                answer = self.card.command(index, sent.arg, self.t);
                // What ends a data phase ends it at the card now, and its blocks come no more.
                if sent.word >> 22 & 3 == 3 {
                    self.data = None;
                }
            }
            sent.at = self.t + self.wire().clocks(Wire::response_clocks(kind, answer.response.is_some()));
            sent.answer = Some(answer);
            self.command = Some(sent);
            return;
        };
        let point = self.tap().unwrap_or(self.sampled_at());
        let result = match answer.response {
            _ if kind == Response::None => Ok([0; 4]),
            None => Err(Cause::Timeout),
            Some(_) if !self.samples_right(point) => Err(Cause::Crc),
            Some(bits) => receive(kind, index, &bits),
        };
        if self.tuning.is_some() && sent.word & 1 << 21 != 0 {
            self.data = Some(Data::tuning(self, answer.data, result.is_ok()));
            return;
        }
        let events = match result {
            Ok(words) => {
                match kind {
                    Response::None => {}
                    Response::Long => self.words[4..8].copy_from_slice(&words),
                    _ => self.words[4] = words[0],
                }
                int::COMMAND
            }
            Err(Cause::Timeout) => int::CMD_TIMEOUT,
            Err(Cause::Crc) => int::COMMAND | int::CMD_CRC,
            Err(_) => int::COMMAND | int::CMD_END,
        };
        self.raise(events);
        if events & int::ERRORS != 0 {
            return;
        }
        if sent.word & 1 << 21 != 0 {
            self.data = Some(Data::new(self, sent.word, answer.data));
            self.open();
        } else {
            self.busy = sent.word >> 16 & 3 == 3;
        }
    }

    /// An automatic command came to nothing: its answer was damaged, or never came.
    fn auto_failed(&mut self, answered: bool) {
        let word = self.word(HOST2) & !0xffff;
        self.set(HOST2, word | if answered { 1 << 2 } else { 1 << 1 });
        self.raise(int::AUTO);
    }

    // --- tuning ---

    /// Where the running tuning samples.
    fn tap(&self) -> Option<u16> {
        let taps = self.tuning.as_ref()?.0.len();
        Some((taps * 360 / usize::from(self.config.taps.max(1)) % 360) as u16)
    }

    /// A block of the tuning has passed, right or not.
    fn tapped(&mut self, right: bool) {
        let Some(taps) = &mut self.tuning else { return };
        taps.0.push(right);
        let n = usize::from(self.config.taps);
        if taps.0.len() >= n {
            let found = if self.config.never_locks { None } else { middle(&taps.0) };
            let mut word = self.word(HOST2) & !(EXECUTE | SAMPLING);
            if let Some(tap) = found {
                word |= SAMPLING;
                self.phase = (tap * 360 / n) as u16;
                self.asks = false;
            }
            self.tuning = None;
            self.set(HOST2, word);
        }
        self.raise(int::READ_READY);
    }

    // --- registers ---

    fn read(&mut self, offset: u32) -> u32 {
        match offset {
            BUFFER => self.port_read(),
            PRESENT => self.present_state(),
            CLOCK => self.word(CLOCK) & !(RESETS & !self.config.stuck_resets) | self.word(CLOCK) << 1 & 2,
            0x40 => self.config.caps[0],
            0x44 => self.config.caps[1],
            0xfc => 2 << 16,
            _ => self.word(offset),
        }
    }

    fn present_state(&self) -> u32 {
        let low = self.powered() && self.card.lines_low(self.t);
        let data = self.data.as_ref();
        let levels = if low {
            0
        } else if self.dat0_until() > self.t || data.is_some_and(|d| !d.read) {
            0x0e
        } else {
            0x0f
        };
        u32::from(self.command.is_some())
            | u32::from(data.is_some() || self.busy) << 1
            | u32::from(self.asks) << 3
            | u32::from(data.is_some_and(|d| !d.read && d.port())) << 10
            | u32::from(data.is_some_and(|d| d.read && d.port())) << 11
            | u32::from(self.present) << 16
            | 3 << 17
            | 1 << 19
            | levels << 20
    }

    fn write(&mut self, offset: u32, value: u32) {
        match offset {
            STATUS => self.set(STATUS, self.word(STATUS) & !value),
            BUFFER => self.port_write(value),
            CLOCK => {
                self.set(CLOCK, value);
                self.reset(value);
                self.bus_changed();
            }
            HOST => {
                let was = self.powered();
                self.set(HOST, value);
                if self.present && was != self.powered() {
                    self.card.power(!was, self.t);
                    self.told = None;
                }
                self.bus_changed();
            }
            HOST2 => {
                let old = self.word(HOST2);
                // The sample point is the tuning's to select; a driver can only give it up.
                self.set(HOST2, value & !SAMPLING | value & old & SAMPLING);
                if value & EXECUTE == 0 {
                    self.tuning = None;
                } else if self.tuning.is_none() {
                    self.tuning = Some(Taps::default());
                    self.tunings += 1;
                }
                if (old ^ value) & SIGNAL_1_8 != 0 && self.hz() != 0 {
                    self.violation("the signal level changed while the card clock was running");
                }
                self.bus_changed();
            }
            COMMAND => self.send(value),
            0x10..=0x1c | PRESENT | 0x40..=0x54 | 0xfc => {}
            _ => self.set(offset, value),
        }
    }

    fn send(&mut self, word: u32) {
        self.set(COMMAND, word);
        let data = word & 1 << 21 != 0;
        if self.command.is_some() || data && self.tuning.is_none() && (self.data.is_some() || self.busy) {
            self.violation(format!("CMD{} sent while the controller was at another", word >> 24 & 63));
            return;
        }
        if self.hz() == 0 {
            self.violation(format!("CMD{} sent with the card clock off", word >> 24 & 63));
            return;
        }
        let at = self.t + self.wire().clocks(Wire::command_clocks(false));
        let counting = data && word >> 2 & 3 == 2;
        self.command = Some(Sent { word, arg: self.word(ARGUMENT), at, counting, answer: None });
    }

    fn reset(&mut self, value: u32) {
        let resets = value & RESETS & !self.config.stuck_resets;
        if resets & 1 << 24 != 0 {
            let was = self.powered();
            self.words = [0; 64];
            (self.tuning, self.asks) = (None, false);
            if was {
                self.card.power(false, self.t);
                self.told = None;
            }
        }
        if resets & 5 << 24 != 0 {
            (self.data, self.busy) = (None, false);
            self.buffer.clear();
        }
        if resets & 3 << 24 != 0 {
            self.command = None;
        }
        self.set(CLOCK, self.word(CLOCK) & !resets);
    }

    /// Tells the card when clock, width, level or timing have changed.
    fn bus_changed(&mut self) {
        let wire = self.wire();
        let mode = self.word(HOST2) >> 16 & 7;
        let signal = if self.word(HOST2) & SIGNAL_1_8 != 0 { Signal::V1_8 } else { Signal::V3_3 };
        let timing = match (signal, mode) {
            (Signal::V3_3, _) if self.word(HOST) & 4 != 0 => Timing::High,
            (Signal::V3_3, _) => Timing::Default,
            (_, 0) => Timing::Sdr12,
            (_, 1) => Timing::Sdr25,
            (_, 2) => Timing::Sdr50,
            (_, 3) => Timing::Sdr104,
            _ => Timing::Ddr50,
        };
        let lines = if timing.ddr() { wire.lines / 2 } else { wire.lines };
        let now = (wire.hz, lines, signal, timing);
        let was = self.told;
        if !self.powered() || was == Some(now) {
            return;
        }
        let stood = was.is_none_or(|was| was.0 == 0);
        if was.is_none() {
            self.clock_since = Some(self.t);
        }
        self.told = Some(now);
        // The level is the card's business once its clock runs again.
        if wire.hz != 0 && was.is_none_or(|was| (was.2, was.3) != (signal, timing) || stood) {
            self.card.signal(signal, timing, self.t);
        }
        self.card.bus(wire.hz, lines, self.t);
    }
}

/// What answer a command word expects.
const fn kind(word: u32) -> Response {
    match (word >> 16 & 3, word >> 19 & 1) {
        (0, _) => Response::None,
        (1, _) => Response::Long,
        (_, 0) => Response::ShortNoCrc,
        _ => Response::Short,
    }
}

/// A response as the registers hold it: without the last byte, bits 39:8 of a long one first.
fn receive(kind: Response, index: u8, bits: &Bits) -> Result<[u32; 4], Cause> {
    let words = check(kind, index, bits)?;
    let [a, b, c, d] = words;
    Ok(match kind {
        Response::Long => [c << 24 | d >> 8, b << 24 | c >> 8, a << 24 | b >> 8, a >> 8],
        _ => words,
    })
}

/// The middle of the longest run of good taps; the last is a neighbour of the first. A window that is nowhere shut tells
/// nothing, and any point will do.
fn middle(good: &[bool]) -> Option<usize> {
    let n = good.len();
    let run = |first: usize| (0..n).take_while(|i| good[(first + i) % n]).count();
    let first = (0..n).max_by_key(|&first| (run(first), std::cmp::Reverse(first)))?;
    (run(first) > 0).then(|| (first + run(first) / 2) % n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_longest_run_is_taken_past_the_end_too() {
        let taps = |text: &str| middle(&text.chars().map(|c| c == '1').collect::<Vec<_>>());
        assert_eq!(taps("0000"), None);
        assert_eq!(taps("0110"), Some(2));
        assert_eq!(taps("1001"), Some(0), "from the last to the first");
        assert_eq!(taps("11000111"), Some(7));
        assert_eq!(taps("0100111"), Some(5));
    }

    #[test]
    fn the_capabilities_say_what_the_names_promise() {
        let [low, high] = Config::retuned(3, 4).caps;
        assert_eq!(low >> 8 & 0xff, 200, "MHz");
        assert_eq!((high & 7, high >> 8 & 15, high >> 13 & 1, high >> 14 & 3), (7, 4, 1, 2));
    }
}

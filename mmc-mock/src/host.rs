//! A host without a controller: it speaks with any [`Card`] straight over the [`Wire`].
//!
//! Every step ends at the instant at which the bits would have passed, so that a register model of a real
//! controller, without delays of its own, ends the same commands at the same instants.
//!
//! What is simpler than on hardware: data move all at once at the instant their phase ends, so an operation that is
//! aborted before has moved none, and an error in block `k` is told when the whole phase would have ended. A new
//! clock, width or timing holds at once; the supply takes 1 ms, another signal level 6 ms.
//!
//! Sample point `p` of `n` is at 180° + `p` × 360° / `n` of the clock period. A card that is sampled outside of its eye
//! answers with a wrong CRC; what it sends then is received to the end and thrown away. With
//! [`Capabilities::self_tuning`] it finds the middle of the eye by itself, from one block, which it keeps.

use crate::card::{Bits, Card, Sent, Token, crc7};
use crate::{Wakes, Wire};
use mmc_hal::{Dir, Payload};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing};
use mmc_proto::command::{Command, DataShape, Gate, Response, Stop};
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Lease, Phase, Reply, Slot, Supervised, Why};
use mmc_time::{Duration, Instant};
use std::marker::PhantomData;

/// How long a change of the supply takes.
pub const POWER_TIME: Duration = Duration::from_millis(1);
/// How long the host waits for a block that does not come, from the instant at which the phase would have ended
/// (100 ms is the read limit of SDHC cards).
pub const DATA_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the clock stands while the signal level changes.
pub const LEVEL_TIME: Duration = Duration::from_millis(5);
/// When DAT3:0 must be high again after that.
pub const RELEASE_TIME: Duration = Duration::from_millis(1);
/// Places in a clock period where a host looks that tunes by itself.
const TAPS: u16 = 16;

/// The engine of the mock host; [`MockHost::new`] gives the host itself.
#[derive(Debug)]
pub struct MockHost<P, C> {
    card: C,
    caps: Capabilities,
    wire: Wire,
    bus: BusConfig,
    step: Step,
    /// It looks for the sample point by itself.
    tunes: bool,
    /// The place in the clock period it has found.
    found: Option<u16>,
    /// What the slot shows, the SDIO interrupt apart.
    present: bool,
    changes: u32,
    /// The SDIO interrupt: armed, and seen since.
    armed: bool,
    attention: bool,
    payload: PhantomData<fn(P) -> P>,
}

/// What ended, and how.
type Ended = Result<Reply, Failure>;

/// Where the running operation is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Idle,
    /// The command waits for DAT0 since `since`.
    Held {
        cmd: Command,
        since: Instant,
    },
    /// The command has been answered, or not; the host knows at `at`.
    Answered {
        cmd: Command,
        at: Instant,
        words: Result<[u32; 4], Cause>,
        /// The direction of the data phase the card has opened.
        phase: Option<Dir>,
    },
    /// The response could not be read, but the one block that follows comes all the same, until `at`.
    Drain {
        shape: DataShape,
        cause: Cause,
        at: Instant,
    },
    /// All data have passed at `at`, and the host sends CMD12 by itself.
    Stop {
        reply: Reply,
        at: Instant,
    },
    /// CMD12 has been answered, or not; the host knows at `at`.
    Stopped {
        reply: Reply,
        at: Instant,
        words: Result<[u32; 4], Cause>,
    },
    /// The clock stands until `at`, when the new level and `bus` hold.
    Level {
        bus: BusConfig,
        at: Instant,
    },
    /// The card has until `at` to let its lines go.
    Release {
        at: Instant,
    },
    /// All blocks have passed at `at`.
    Data {
        shape: DataShape,
        busy: bool,
        words: [u32; 4],
        at: Instant,
    },
    /// The card holds DAT0 since `since`.
    Busy {
        reply: Reply,
        since: Instant,
    },
    /// It is over at `at`.
    Over {
        at: Instant,
        result: Ended,
    },
}

impl<P: Payload, C: Card> MockHost<P, C> {
    /// A host with `card` in its slot. Keep a clone of a [`Shared`](crate::card::Shared) card as a back door.
    ///
    /// It stops whatever it does at once, so an operation never outlasts the caller's limit.
    #[must_use]
    pub fn new(card: C, caps: Capabilities) -> Supervised<Self> {
        let engine = Self {
            present: card.present(),
            card,
            caps,
            wire: Wire { hz: 0, lines: 1 },
            bus: BusConfig::default(),
            step: Step::Idle,
            tunes: false,
            found: None,
            changes: 0,
            armed: false,
            attention: false,
            payload: PhantomData,
        };
        Supervised::new(engine, Duration::ZERO)
    }
    /// The card.
    pub fn card(&self) -> &C {
        &self.card
    }
    /// Clock and lines in use; twice the lines where data go on both edges.
    #[must_use]
    pub fn wire(&self) -> Wire {
        self.wire
    }
    /// The bus as it was last set.
    #[must_use]
    pub fn bus_config(&self) -> BusConfig {
        self.bus
    }

    /// Where in the clock period it samples, in degrees.
    fn phase(&self) -> u16 {
        let points = u32::from(self.caps.sample_points.max(1));
        self.found.unwrap_or(((180 + u32::from(self.bus.sample) * 360 / points) % 360) as u16)
    }
    /// Whether what the card sends at `now` arrives right; while it tunes, nobody looks at the response.
    fn reads_right(&self, now: Instant) -> bool {
        self.tunes || self.card.samples_right(self.phase(), now)
    }
    /// The tuning block has passed at `at`: the middle of the longest run of places where it was right.
    fn tune(&mut self, len: u16, at: Instant) -> Result<(), (Cause, Instant)> {
        let sent = self.card.send(&mut vec![0; len.into()], at);
        let right = |tap: u16| self.card.samples_right(tap % TAPS * (360 / TAPS), at);
        let run = |first: u16| (first..first + TAPS).take_while(|tap| right(*tap)).count() as u16;
        let (length, first) = (0..TAPS).map(|first| (run(first), first)).max().unwrap_or_default();
        if sent != Sent::Good || length == 0 {
            return Err((Cause::Crc, at));
        }
        self.found = Some((first + length / 2) % TAPS * (360 / TAPS));
        Ok(())
    }
    /// Gives the card the clock, lines, level and timing of `bus`.
    fn drive(&mut self, bus: &BusConfig, now: Instant) {
        let hz = bus.hz.min(self.caps.max_hz);
        self.bus = BusConfig { hz, ..*bus };
        self.wire = Wire { hz, lines: bus.width.lines() }.with_ddr(bus.timing.ddr());
        self.card.bus(hz, bus.width.lines(), now);
        self.card.signal(bus.signal, bus.timing, now);
    }
    /// Looks at the card detect switch.
    fn look(&mut self) {
        if self.card.present() != self.present {
            self.present = !self.present;
            self.changes = self.changes.wrapping_add(1);
        }
    }

    /// When the present step moves on by itself.
    fn next(&self) -> Instant {
        match self.step {
            Step::Idle => Instant::NEVER,
            Step::Answered { at, .. }
            | Step::Drain { at, .. }
            | Step::Data { at, .. }
            | Step::Stop { at, .. }
            | Step::Stopped { at, .. }
            | Step::Level { at, .. }
            | Step::Release { at }
            | Step::Over { at, .. } => at,
            Step::Held { since, .. } | Step::Busy { since, .. } => self.card.busy_until(since).max(since),
        }
    }

    /// Sends the command at `start`.
    fn send(&mut self, cmd: Command, start: Instant) -> Step {
        if cmd.init_clocks {
            self.card.idle_clocks(80);
        }
        let arrived = start + self.wire.clocks(Wire::command_clocks(cmd.init_clocks));
        let (words, answered, phase) = self.ask(&cmd, arrived);
        let at = arrived + self.wire.clocks(Wire::response_clocks(cmd.response, answered));
        if let (Err(cause), Some(shape), Some(Dir::Read)) = (words, cmd.data, phase)
            && shape.blocks == 1
            && !self.reads_right(arrived)
        {
            let at = self.wire.read_end(at, 1, shape.block_len, self.card.ready(0));
            return Step::Drain { shape, cause, at };
        }
        Step::Answered { cmd, at, words, phase }
    }
    /// The card's answer as it is received, whether there was one, and the data phase it has opened.
    fn ask(&mut self, cmd: &Command, arrived: Instant) -> (Result<[u32; 4], Cause>, bool, Option<Dir>) {
        let answer = self.card.command(cmd.index, cmd.arg, arrived);
        let words = match (cmd.response, answer.response) {
            (Response::None, _) => Ok([0; 4]),
            (_, None) if !self.card.present() => Err(Cause::NoCard),
            (_, None) => Err(Cause::Timeout),
            (_, Some(_)) if !self.reads_right(arrived) => Err(Cause::Crc),
            (kind, Some(bits)) => check(kind, cmd.index, &bits),
        };
        let phase = answer.data.map(|p| if p.read { Dir::Read } else { Dir::Write });
        (words, answer.response.is_some(), phase)
    }
    /// Sends CMD12 by itself at `start`.
    fn stop(&mut self, reply: Reply, start: Instant) -> Step {
        let arrived = start + self.wire.clocks(Wire::command_clocks(false));
        let (words, answered, _) = self.ask(&Command::stop_transmission(), arrived);
        let at = arrived + self.wire.clocks(Wire::response_clocks(Response::Short, answered));
        Step::Stopped { reply, at, words }
    }

    /// The response is in: what follows.
    fn answered(&self, cmd: Command, at: Instant, words: [u32; 4], phase: Option<Dir>) -> Step {
        let Some(shape) = cmd.data else {
            let reply = Reply { words, bytes: 0 };
            return if cmd.busy {
                Step::Busy { reply, since: at }
            } else {
                Step::Over { at, result: Ok(reply) }
            };
        };
        let (n, len) = (shape.blocks, shape.block_len);
        let opened = phase == Some(shape.dir);
        let end = match shape.dir {
            _ if !opened => Instant::NEVER,
            Dir::Read => self.wire.read_end(at, n, len, self.card.ready(n - 1)),
            Dir::Write => self.wire.write_end(at, n, len, self.card.ready(n - 1)),
        };
        if !end.is_never() {
            return Step::Data { shape, busy: cmd.busy, words, at: end };
        }
        // The card does not take part: no block comes, or nobody acknowledges the first one.
        let (at, cause) = match shape.dir {
            Dir::Read => (at + DATA_TIMEOUT, Cause::Timeout),
            Dir::Write => (self.wire.write_end(at, 1, len, at), Cause::NoCrcStatus),
        };
        let r1 = (cmd.response == Response::Short).then_some(words[0]);
        Step::Over { at, result: Err(Failure { cause, phase: Phase::Data, r1 }) }
    }

    /// Moves all blocks of the phase, which ended at `at`.
    fn transfer(
        &mut self,
        shape: DataShape,
        lease: &mut Lease<'_, P>,
        at: Instant,
    ) -> Result<(), (Cause, Instant)> {
        let mut cursor = Cursor { segment: 0, offset: 0 };
        let (len, mut left) = (usize::from(shape.block_len), lease.bytes());
        let mut bounce = vec![0; len];
        let mut first = Ok(());
        let right = shape.dir == Dir::Write || self.reads_right(at);
        while left > 0 {
            let payload = lease.get();
            // As many whole blocks as lie in one piece of memory, at once; a block across a border by itself.
            let here = payload.segment(cursor.segment).map_or(0, <[u8]>::len) - cursor.offset;
            let whole = here.min(usize::try_from(left).unwrap_or(usize::MAX)) / len * len;
            let room = cursor.offset..cursor.offset + whole;
            let mut moved = match shape.dir {
                Dir::Read => match payload.segment_mut(cursor.segment).and_then(|s| s.get_mut(room)) {
                    Some(blocks) if whole > 0 && right => self.card.send_many(blocks, at),
                    _ => 0,
                },
                Dir::Write => match payload.segment(cursor.segment).and_then(|s| s.get(room)) {
                    Some(blocks) if whole > 0 => self.card.take_many(blocks, at),
                    _ => 0,
                },
            };
            if moved == 0 {
                let result = match shape.dir {
                    Dir::Read => {
                        let mut sent = self.card.send(&mut bounce, at);
                        if sent == Sent::Good && !right {
                            sent = Sent::BadCrc;
                            bounce.iter_mut().for_each(|b| *b = b.rotate_left(1));
                        }
                        if sent != Sent::Nothing {
                            cursor.copy(payload, &mut bounce, Dir::Read);
                        }
                        match sent {
                            Sent::Good => Ok(()),
                            // The rest comes all the same; the first error is the one that counts.
                            Sent::BadCrc => {
                                first = first.and(Err((Cause::Crc, at)));
                                Ok(())
                            }
                            Sent::Nothing => Err((Cause::Timeout, at + DATA_TIMEOUT)),
                        }
                    }
                    Dir::Write => {
                        cursor.copy(payload, &mut bounce, Dir::Write);
                        match self.card.take(&bounce, true, at) {
                            Token::Accepted => Ok(()),
                            Token::CrcError => Err((Cause::Crc, at)),
                            Token::Nothing => Err((Cause::NoCrcStatus, at)),
                        }
                    }
                };
                first.and(result)?;
                moved = len;
            }
            cursor.skip(payload, moved);
            left = left.saturating_sub(moved as u64);
        }
        first
    }
}

/// A place in a payload.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    segment: usize,
    offset: usize,
}

impl Cursor {
    /// Moves on by `n` bytes, and past segments that are used up.
    fn skip(&mut self, payload: &impl Payload, n: usize) {
        self.offset += n;
        while let Some(len) = payload.segment(self.segment).map(<[u8]>::len) {
            if self.offset < len {
                return;
            }
            self.offset -= len;
            self.segment += 1;
        }
        self.offset = 0;
    }
    /// Copies one block between the payload from here on and `block`; the cursor stays.
    fn copy(mut self, payload: &mut impl Payload, block: &mut [u8], dir: Dir) {
        let mut rest = block;
        self.skip(payload, 0);
        while !rest.is_empty() {
            let Some(segment) = payload.segment_mut(self.segment) else { return };
            let here = &mut segment[self.offset..];
            let n = here.len().min(rest.len());
            let (head, tail) = rest.split_at_mut(n);
            match dir {
                Dir::Read => here[..n].copy_from_slice(head),
                Dir::Write => head.copy_from_slice(&here[..n]),
            }
            rest = tail;
            self.skip(payload, n);
        }
    }
}

/// Checks a response as a receiver does: framing, index, CRC7, as far as its kind has them.
pub(crate) fn check(kind: Response, index: u8, bits: &Bits) -> Result<[u32; 4], Cause> {
    let word = |b: &[u8]| b.iter().fold(0, |w, &b| w << 8 | u32::from(b));
    match (kind, bits) {
        (Response::Long, Bits::Long(b)) => {
            if b[0] & 0xc0 != 0 || b[16] & 1 == 0 {
                Err(Cause::Framing)
            } else if crc7(&b[1..16]) != b[16] >> 1 {
                Err(Cause::Crc)
            } else {
                Ok([word(&b[1..5]), word(&b[5..9]), word(&b[9..13]), word(&b[13..17])])
            }
        }
        (Response::Short | Response::ShortNoCrc, Bits::Short(b)) => {
            let checked = kind == Response::Short;
            if b[0] & 0xc0 != 0 || b[5] & 1 == 0 {
                Err(Cause::Framing)
            } else if checked && crc7(&b[..5]) != b[5] >> 1 {
                Err(Cause::Crc)
            } else if checked && b[0] != index & 63 {
                Err(Cause::Framing)
            } else {
                Ok([word(&b[1..5]), 0, 0, 0])
            }
        }
        _ => Err(Cause::Framing),
    }
}

impl<P: Payload, C: Card> Engine for MockHost<P, C> {
    type Payload = P;

    fn capabilities(&self) -> Capabilities {
        self.caps
    }
    fn start(&mut self, cmd: &Command, _: Option<Lease<'_, P>>, now: Instant) -> Result<(), Cause> {
        if self.wire.hz == 0 {
            return Err(Cause::Unsupported("a command while the card clock is stopped"));
        }
        if !self.caps.auto_stop && cmd.data.is_some_and(|d| d.stop == Stop::Auto) {
            return Err(Cause::Unsupported("sending CMD12 by itself"));
        }
        // In DDR50, and slower, there is nothing to find: the block is read like any other.
        let finds = matches!(self.bus.timing, Timing::Sdr50 | Timing::Sdr104 | Timing::Hs200);
        self.tunes = cmd.tuning && self.caps.self_tuning && finds;
        if self.tunes {
            self.found = None;
        }
        let held = cmd.gate == Gate::Idle && self.card.busy_until(now) > now;
        self.step = if held { Step::Held { cmd: *cmd, since: now } } else { self.send(*cmd, now) };
        Ok(())
    }
    fn set_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        if bus.hz != 0 && bus.hz < self.caps.min_hz {
            return Err(Cause::Unsupported("a clock below min_hz"));
        }
        if bus.width > self.caps.width {
            return Err(Cause::Unsupported("more data lines than are wired"));
        }
        if bus.signal != Signal::V3_3 && !self.caps.v1_8 {
            return Err(Cause::Unsupported("signal levels other than 3.3 V"));
        }
        if !self.caps.timings.has(bus.timing) {
            return Err(Cause::Unsupported("a timing it cannot drive"));
        }
        if bus.sample != 0 && bus.sample >= self.caps.sample_points {
            return Err(Cause::Unsupported("a sample point it does not have"));
        }
        self.step = if bus.signal == self.bus.signal {
            self.drive(bus, now);
            Step::Over { at: now, result: Ok(Reply::default()) }
        } else {
            self.wire.hz = 0;
            self.card.bus(0, self.bus.width.lines(), now);
            Step::Level { bus: *bus, at: now + LEVEL_TIME }
        };
        Ok(())
    }
    fn set_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        self.card.power(power == Power::On, now);
        self.tunes = false;
        if power == Power::Off {
            self.found = None;
            self.drive(&BusConfig::default(), now);
        }
        self.step = Step::Over { at: now + POWER_TIME, result: Ok(Reply::default()) };
        Ok(())
    }
    fn advance(&mut self, mut data: Option<Lease<'_, P>>, now: Instant) -> Option<Ended> {
        // Held, answered, data, busy, over: each step is taken at its own instant, however late the call.
        self.look();
        loop {
            let due = self.next();
            if due > now {
                return None;
            }
            self.step = match self.step {
                Step::Idle => return None,
                Step::Held { cmd, .. } => self.send(cmd, due),
                Step::Answered { cmd, at, words, phase } => match words {
                    Ok(words) => self.answered(cmd, at, words, phase),
                    Err(cause) => Step::Over { at, result: Err((cause, Phase::Command).into()) },
                },
                Step::Data { shape, busy, words, at } => {
                    let moved = match &mut data {
                        _ if self.tunes => self.tune(shape.block_len, at),
                        Some(lease) => self.transfer(shape, lease, at),
                        None => Err((Cause::Unsupported("data without a payload"), at)),
                    };
                    let reply = Reply { words, bytes: shape.bytes() };
                    match moved {
                        Ok(()) if shape.stop == Stop::Auto => Step::Stop { reply, at },
                        Ok(()) if busy => Step::Busy { reply, since: at },
                        Ok(()) => Step::Over { at, result: Ok(reply) },
                        Err((cause, at)) => {
                            let r1 = Some(reply.words[0]);
                            Step::Over { at, result: Err(Failure { cause, phase: Phase::Data, r1 }) }
                        }
                    }
                }
                Step::Drain { shape, cause, at } => {
                    // The data are the host's to throw away.
                    let _ = self.card.send(&mut vec![0; shape.block_len.into()], at);
                    Step::Over { at, result: Err((cause, Phase::Command).into()) }
                }
                Step::Stop { reply, at } => self.stop(reply, at),
                Step::Stopped { mut reply, at, words } => match words {
                    Ok([r1, ..]) => {
                        reply.words[1] = r1;
                        Step::Busy { reply, since: at }
                    }
                    Err(cause) => {
                        let r1 = Some(reply.words[0]);
                        Step::Over { at, result: Err(Failure { cause, phase: Phase::Data, r1 }) }
                    }
                },
                Step::Level { bus, at } => {
                    self.drive(&bus, at);
                    Step::Release { at: at + RELEASE_TIME }
                }
                Step::Release { at } if self.card.lines_low(at) => {
                    Step::Over { at, result: Err((Cause::VoltageSwitch, Phase::Bus).into()) }
                }
                Step::Release { at } => Step::Over { at, result: Ok(Reply::default()) },
                Step::Busy { reply, .. } => Step::Over { at: due, result: Ok(reply) },
                Step::Over { result, .. } => {
                    self.step = Step::Idle;
                    return Some(result);
                }
            };
        }
    }
    fn waits(&self, _: Instant) -> (Why, Instant) {
        (Why::Interrupt, self.next())
    }
    fn halt(&mut self, _: Instant) {
        self.step = Step::Idle;
    }
    fn halted(&mut self, _: Instant) -> bool {
        true
    }
    fn slot(&mut self, now: Instant) -> Slot {
        self.look();
        self.attention |= self.armed && self.card.interrupt(now);
        let (present, changes) = (Some(self.present), self.changes);
        Slot { present, write_protected: None, changes, sdio: self.attention, ..Slot::default() }
    }
    fn sdio_interrupt(&mut self, enable: bool) {
        (self.armed, self.attention) = (enable, false);
    }
}

impl<P: Payload, C: Card> Wakes for Supervised<MockHost<P, C>> {
    fn next_event(&self) -> Instant {
        self.engine().next()
    }
}

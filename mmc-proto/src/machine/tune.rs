//! Search for the sample point at which a card's answers arrive whole: CMD19 of SD, CMD21 of eMMC
//! (`spec/card.md` §13).
//!
//! ```text
//!  for up to 40 points, spread evenly     set the point · read the block · compare
//!  the middle of the longest good run     set the point
//! ```
//!
//! The points are spread over one period of the clock, so the last is a neighbour of the first. A block that does not
//! arrive, or not whole, makes a bad point and nothing else: the card ends the block by itself, and after a pause the
//! next point is tried.
//!
//! A host that tunes by itself ([`Capabilities::self_tuning`]) has one point: the command is given to it once, and it sends
//! and compares as many blocks as it needs, and keeps them. A block that comes all the same was read like any other, in a
//! mode where that host has nothing to find (DDR50), and is compared here.

use super::{Action, Machine, Step};
use crate::bus::{BusConfig, Width};
use crate::command::Command;
use crate::host::{Capabilities, Cause, HostError, Reply};
use core::fmt;
use mmc_time::{Duration, Instant};

/// The tuning block on four lines.
pub const TUNING_BLOCK_4: [u8; 64] = [
    0xff, 0x0f, 0xff, 0x00, 0xff, 0xcc, 0xc3, 0xcc, 0xc3, 0x3c, 0xcc, 0xff, 0xfe, 0xff, 0xfe, 0xef, 0xff,
    0xdf, 0xff, 0xdd, 0xff, 0xfb, 0xff, 0xfb, 0xbf, 0xff, 0x7f, 0xff, 0x77, 0xf7, 0xbd, 0xef, 0xff, 0xf0,
    0xff, 0xf0, 0x0f, 0xfc, 0xcc, 0x3c, 0xcc, 0x33, 0xcc, 0xcf, 0xff, 0xef, 0xff, 0xee, 0xff, 0xfd, 0xff,
    0xfd, 0xdf, 0xff, 0xbf, 0xff, 0xbb, 0xff, 0xf7, 0xff, 0xf7, 0x7f, 0x7b, 0xde,
];
/// The tuning block on eight lines.
pub const TUNING_BLOCK_8: [u8; 128] = [
    0xff, 0xff, 0x00, 0xff, 0xff, 0xff, 0x00, 0x00, 0xff, 0xff, 0xcc, 0xcc, 0xcc, 0x33, 0xcc, 0xcc, 0xcc,
    0x33, 0x33, 0xcc, 0xcc, 0xcc, 0xff, 0xff, 0xff, 0xee, 0xff, 0xff, 0xff, 0xee, 0xee, 0xff, 0xff, 0xff,
    0xdd, 0xff, 0xff, 0xff, 0xdd, 0xdd, 0xff, 0xff, 0xff, 0xbb, 0xff, 0xff, 0xff, 0xbb, 0xbb, 0xff, 0xff,
    0xff, 0x77, 0xff, 0xff, 0xff, 0x77, 0x77, 0xff, 0x77, 0xbb, 0xdd, 0xee, 0xff, 0xff, 0xff, 0xff, 0x00,
    0xff, 0xff, 0xff, 0x00, 0x00, 0xff, 0xff, 0xcc, 0xcc, 0xcc, 0x33, 0xcc, 0xcc, 0xcc, 0x33, 0x33, 0xcc,
    0xcc, 0xcc, 0xff, 0xff, 0xff, 0xee, 0xff, 0xff, 0xff, 0xee, 0xee, 0xff, 0xff, 0xff, 0xdd, 0xff, 0xff,
    0xff, 0xdd, 0xdd, 0xff, 0xff, 0xff, 0xbb, 0xff, 0xff, 0xff, 0xbb, 0xbb, 0xff, 0xff, 0xff, 0x77, 0xff,
    0xff, 0xff, 0x77, 0x77, 0xff, 0x77, 0xbb, 0xdd, 0xee,
];

/// Most blocks one tuning may read, by both standards.
const MOST: u16 = 40;
/// All 40 blocks may take the card this long; so may one.
const BLOCK_LIMIT: Duration = Duration::from_millis(150);
/// After a block that did not arrive: the time one block may take.
const PAUSE: Duration = Duration::from_millis(4);

/// A sample point that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// The bus with the point set.
    pub bus: BusConfig,
    /// Points that were tried.
    pub tried: u8,
    /// The first good one of the longest run, counted among those tried.
    pub first: u8,
    /// How many good ones follow each other from there, past the last to the first if need be.
    pub run: u8,
}

/// Where in a tuning something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TunePhase {
    /// Before the first step.
    Start,
    /// Setting a sample point.
    Point,
    /// CMD19 or CMD21.
    Block,
    /// Nothing is sent: a block that did not arrive passes.
    Pause,
    /// Setting the point that was found.
    Set,
    /// The conversation is over.
    Over,
}

impl fmt::Display for TunePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start => "start",
            Self::Point => "setting a sample point",
            Self::Block => "reading the tuning block",
            Self::Pause => "waiting",
            Self::Set => "setting the point found",
            Self::Over => "end",
        })
    }
}

/// Why no sample point was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TuneCause {
    /// The host, or the card is gone.
    #[error(transparent)]
    Host(HostError),
    /// The host has no sample points to choose from.
    #[error("the host has no sample points to choose from")]
    NoPoints,
    /// The block arrived at none of the points.
    #[error("the tuning block arrived whole at none of {0} sample points: use a slower mode")]
    NoWindow(u8),
    /// The scratch payload is missing or shorter than the block.
    #[error("tuning needs a scratch payload of at least 128 bytes in its first segment")]
    Scratch,
    /// All of it took longer than [`Tune::LIMIT`].
    #[error("the tuning took too long")]
    Limit,
    /// The machine was driven wrongly: asked again after its end, or without the result of its last step.
    #[error("the tuning is over, or the result of its last step is missing")]
    OutOfTurn,
}

/// The error that ended a tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} ({phase})")]
pub struct TuneError {
    /// What went wrong.
    pub cause: TuneCause,
    /// Where.
    pub phase: TunePhase,
}

impl TuneError {
    /// There is no card in the slot.
    #[must_use]
    pub const fn media_gone(&self) -> bool {
        match self.cause {
            TuneCause::Host(e) => e.media_gone(),
            _ => false,
        }
    }
}

/// Finds the sample point of a card that is in the transfer state, with its timing mode and the bus already switched.
///
/// Ends within [`Tune::LIMIT`] plus the last step's own limit. After an error the bus is left at the point tried last.
/// Needs a scratch payload of 128 bytes (see [`Machine::scratch`]).
#[derive(Clone, Copy, Debug)]
pub struct Tune {
    command: Command,
    pattern: &'static [u8],
    bus: BusConfig,
    points: u16,
    /// The host sends and compares the blocks by itself.
    by_host: bool,
    probes: u8,
    probe: u8,
    good: u64,
    phase: TunePhase,
    found: (u8, u8),
    started: Option<Instant>,
}

type Out = Result<Tuned, TuneError>;

impl Tune {
    /// The longest the whole takes; a step that runs then is still waited for.
    pub const LIMIT: Duration = Duration::from_secs(2);

    /// For an SD card in SDR104, SDR50 or DDR50 on the bus as it is (four lines).
    #[must_use]
    pub fn sd(caps: &Capabilities, bus: BusConfig) -> Self {
        Self::new(caps, bus, Command::send_tuning_block(), &TUNING_BLOCK_4)
    }
    /// For an eMMC in HS200 on the bus as it is (four lines or eight).
    #[must_use]
    pub fn mmc(caps: &Capabilities, bus: BusConfig) -> Self {
        let pattern: &'static [u8] =
            if bus.width == Width::Eight { &TUNING_BLOCK_8 } else { &TUNING_BLOCK_4 };
        Self::new(caps, bus, Command::send_tuning_block_mmc(bus.width), pattern)
    }
    fn new(caps: &Capabilities, bus: BusConfig, command: Command, pattern: &'static [u8]) -> Self {
        let points = caps.sample_points;
        Self {
            command,
            pattern,
            bus,
            points,
            by_host: caps.self_tuning,
            probes: u8::try_from(points.min(MOST)).unwrap_or(0),
            probe: 0,
            good: 0,
            phase: TunePhase::Start,
            found: (0, 0),
            started: None,
        }
    }
    /// Where it is.
    #[must_use]
    pub const fn phase(&self) -> TunePhase {
        self.phase
    }

    fn end(&mut self, cause: TuneCause) -> Step<Out> {
        let phase = self.phase;
        self.phase = TunePhase::Over;
        Step::Done(Err(TuneError { cause, phase }))
    }
    /// The sample point of probe `n`.
    fn point(&self, n: u8) -> u16 {
        let point = u32::from(n).saturating_mul(self.points.into()).checked_div(self.probes.into());
        point.and_then(|point| u16::try_from(point).ok()).unwrap_or(0)
    }
    fn try_point(&mut self) -> Step<Out> {
        if self.probe >= self.probes {
            let Some((first, run)) = window(self.good, self.probes) else {
                return self.end(TuneCause::NoWindow(self.probes));
            };
            self.found = (first, run);
            let middle = u16::from(first).saturating_add(u16::from(run / 2)).checked_rem(self.probes.into());
            self.bus.sample = self.point(middle.and_then(|m| u8::try_from(m).ok()).unwrap_or(0));
            self.phase = TunePhase::Set;
        } else {
            self.bus.sample = self.point(self.probe);
            self.phase = TunePhase::Point;
        }
        Step::Bus(self.bus)
    }
    fn next_point(&mut self) -> Step<Out> {
        self.probe = self.probe.saturating_add(1);
        self.try_point()
    }
}

/// Where the longest run of ones among the low `n` bits of `good` begins and how long it is; the last bit is a
/// neighbour of the first.
fn window(good: u64, n: u8) -> Option<(u8, u8)> {
    let is_good = |i: u16| {
        let bit = i.checked_rem(n.into()).unwrap_or(0);
        good.checked_shr(bit.into()).unwrap_or(0) & 1 == 1
    };
    let mut best = None;
    for first in 0..n {
        let run = (0..n).take_while(|i| is_good(u16::from(first).saturating_add(u16::from(*i)))).count();
        let run = u8::try_from(run).unwrap_or(n);
        if run > best.map_or(0, |(_, longest)| longest) {
            best = Some((first, run));
        }
    }
    best
}

impl Machine for Tune {
    type Output = Out;

    fn scratch(&self) -> bool {
        true
    }

    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Out> {
        let started = *self.started.get_or_insert(now);
        if self.phase != TunePhase::Over && now > started + Self::LIMIT {
            return self.end(TuneCause::Limit);
        }
        match (self.phase, last) {
            (TunePhase::Start, _) => {
                if scratch.len() < TUNING_BLOCK_8.len() {
                    return self.end(TuneCause::Scratch);
                }
                if self.probes == 0 {
                    return self.end(TuneCause::NoPoints);
                }
                self.try_point()
            }
            (TunePhase::Pause, _) => self.next_point(),
            (TunePhase::Over, _) | (_, None) => self.end(TuneCause::OutOfTurn),
            (TunePhase::Point, Some(Ok(_))) => {
                // What an earlier block left must not count as this one.
                scratch.fill(0);
                self.phase = TunePhase::Block;
                Step::Do(Action { command: self.command, limit: BLOCK_LIMIT })
            }
            (TunePhase::Block, Some(Ok(reply))) => {
                let whole = reply.bytes == self.pattern.len() as u64
                    && scratch.get(..self.pattern.len()) == Some(self.pattern);
                let kept = self.by_host && scratch.iter().all(|byte| *byte == 0);
                if kept || whole {
                    self.good |= 1_u64.checked_shl(self.probe.into()).unwrap_or(0);
                }
                self.next_point()
            }
            (TunePhase::Block, Some(Err(e))) if !matches!(e.cause, Cause::NoCard | Cause::Aborted) => {
                self.phase = TunePhase::Pause;
                Step::Sleep(PAUSE)
            }
            (TunePhase::Set, Some(Ok(_))) => {
                self.phase = TunePhase::Over;
                let (first, run) = self.found;
                Step::Done(Ok(Tuned { bus: self.bus, tried: self.probes, first, run }))
            }
            (_, Some(Err(e))) => self.end(TuneCause::Host(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_are_the_standards() {
        // CRC16 of each line by spec/card.md §1.4.
        assert_eq!(crate::crc::crc16_lines4(&TUNING_BLOCK_4), [0xe946, 0x8d06, 0xa2e5, 0xc59f]);
        // Each line of the wide block carries what a line of the narrow one does: lines 7:4 as 3:0.
        for (i, wide) in TUNING_BLOCK_8.iter().enumerate() {
            let narrow = TUNING_BLOCK_4[i / 2];
            let nibble = if i % 2 == 0 { narrow >> 4 } else { narrow & 0xf };
            assert_eq!(*wide, nibble << 4 | nibble, "byte {i}");
        }
    }

    #[test]
    fn a_host_that_tunes_by_itself_is_told_once_and_believed() {
        let mut caps = Capabilities::new();
        (caps.sample_points, caps.self_tuning) = (1, true);
        let bus = BusConfig { hz: 200_000_000, width: Width::Eight, ..BusConfig::default() };
        for found in [true, false] {
            let (mut tune, mut scratch) = (Tune::mmc(&caps, bus), [0; 128]);
            let mut next = |last| tune.next(last, &mut scratch, Instant::ZERO);
            assert_eq!(next(None), Step::Bus(bus));
            let Step::Do(action) = next(Some(Ok(Reply::default()))) else { panic!("the command comes") };
            assert!(action.command.tuning && action.command.index == 21);
            if found {
                // The blocks stayed in the controller: the payload is as it was.
                let reply = Reply { bytes: 128, ..Reply::default() };
                assert_eq!(next(Some(Ok(reply))), Step::Bus(bus));
                let tuned = Tuned { bus, tried: 1, first: 0, run: 1 };
                assert_eq!(next(Some(Ok(Reply::default()))), Step::Done(Ok(tuned)));
            } else {
                let error = HostError::new(Cause::Crc, crate::host::Phase::Data, 21);
                assert_eq!(next(Some(Err(error))), Step::Sleep(PAUSE));
                let error = TuneError { cause: TuneCause::NoWindow(1), phase: TunePhase::Pause };
                assert_eq!(next(None), Step::Done(Err(error)));
            }
        }
    }

    /// In DDR50 the command is a check of the lines: such a host has no point to find there.
    #[test]
    fn a_block_that_such_a_host_hands_over_is_compared() {
        let mut caps = Capabilities::new();
        (caps.sample_points, caps.self_tuning) = (1, true);
        let bus = BusConfig { hz: 50_000_000, width: Width::Four, ..BusConfig::default() };
        for (wrong, bytes) in [(false, 64), (true, 64), (false, 63)] {
            let (mut tune, mut scratch) = (Tune::sd(&caps, bus), [0; 512]);
            assert_eq!(tune.next(None, &mut scratch, Instant::ZERO), Step::Bus(bus));
            tune.next(Some(Ok(Reply::default())), &mut scratch, Instant::ZERO);
            scratch[..64].copy_from_slice(&TUNING_BLOCK_4);
            scratch[17] ^= u8::from(wrong);
            let end = tune.next(Some(Ok(Reply { bytes, ..Reply::default() })), &mut scratch, Instant::ZERO);
            if wrong || bytes != 64 {
                let error = TuneError { cause: TuneCause::NoWindow(1), phase: TunePhase::Block };
                assert_eq!(end, Step::Done(Err(error)));
            } else {
                assert_eq!(end, Step::Bus(bus), "the one point there is");
            }
        }
    }

    #[test]
    fn the_longest_run_wins_and_may_pass_the_end() {
        assert_eq!(window(0, 8), None);
        assert_eq!(window(0b0001_0000, 8), Some((4, 1)));
        assert_eq!(window(0b1100_0111, 8), Some((6, 5)), "from the last two to the first three");
        assert_eq!(window(0b0111_0011, 8), Some((4, 3)));
        assert_eq!(window(0b1111, 4), Some((0, 4)));
        assert_eq!(window(u64::MAX, 40), Some((0, 40)));
        assert_eq!(window(1, 1), Some((0, 1)));
    }
}

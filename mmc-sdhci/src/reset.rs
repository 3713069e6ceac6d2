//! The way back from an error: the command circuit, the data circuit, and everything if one of them sticks (§3.10).

use crate::reg::{CLOCK, ClockControl};
use mmc_hal::Mmio;
use mmc_time::{Duration, Instant};

/// How long one reset may take.
pub(crate) const RESET_LIMIT: Duration = Duration::from_millis(100);
/// Looks at a register in one call; hardware clears a reset within a few clocks.
const LOOKS: u8 = 8;
const SHORTEST: Duration = Duration::from_micros(2);
const LONGEST: Duration = Duration::from_millis(1);

/// When to look again at something waited for since `since`: a quarter of the time waited, from 2 µs to 1 ms.
pub(crate) fn look_again(since: Instant, now: Instant) -> Instant {
    let quarter = now.since(since).as_nanos() >> 2;
    now + Duration::from_nanos(quarter).clamp(SHORTEST, LONGEST)
}

/// How a reset ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The lines are free; clock, supply and settings are as they were.
    Lines,
    /// Everything had to be reset, or was to be: the supply is off, the settings are gone.
    All,
    /// Not even that helped.
    Stuck,
}

/// One reset after the other. They are written one by one: some controllers do not know two at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reset {
    what: ClockControl,
    pub(crate) since: Instant,
}

impl Reset {
    /// Frees the lines.
    pub(crate) fn lines<M: Mmio>(regs: &M, now: Instant) -> Self {
        Self::begin(regs, ClockControl::RESET_CMD, now)
    }
    /// Everything.
    pub(crate) fn all<M: Mmio>(regs: &M, now: Instant) -> Self {
        Self::begin(regs, ClockControl::RESET_ALL, now)
    }

    fn begin<M: Mmio>(regs: &M, what: ClockControl, now: Instant) -> Self {
        let rest = regs.read32(CLOCK) & !ClockControl::RESETS.bits();
        regs.write32(CLOCK, rest | what.bits());
        Self { what, since: now }
    }

    /// Goes on; `Some` when it is over.
    pub(crate) fn advance<M: Mmio>(&mut self, regs: &M, now: Instant) -> Option<End> {
        for _ in 0..LOOKS {
            if regs.read32(CLOCK) & self.what.bits() != 0 {
                continue;
            }
            if self.what == ClockControl::RESET_CMD {
                *self = Self::begin(regs, ClockControl::RESET_DAT, now);
                continue;
            }
            return Some(if self.what == ClockControl::RESET_DAT { End::Lines } else { End::All });
        }
        if now.since(self.since) < RESET_LIMIT {
            return None;
        }
        if self.what == ClockControl::RESET_ALL {
            return Some(End::Stuck);
        }
        *self = Self::all(regs, now);
        None
    }
}

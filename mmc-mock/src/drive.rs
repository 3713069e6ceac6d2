//! Liveness as an assertion: an operation is done within so much virtual time and so many steps, or the test fails.

use crate::clock::Clock;
use mmc_time::{Duration, Instant};

/// How long an operation may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Virtual time from the first step on.
    pub time: Duration,
    /// Calls of the step; of a byte bus, bytes.
    pub steps: u64,
}

/// What one step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive<T> {
    /// Not done; step again at this instant at the latest. An instant that has passed: at once.
    Wait(Instant),
    /// Done.
    Done(T),
}

/// What an operation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Virtual time.
    pub time: Duration,
    /// Steps.
    pub steps: u64,
}

/// An operation that did not end as it had to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Overrun {
    /// It waits for something later than it may take.
    #[error("not done within {bound}: after {} and {} steps it waits for another {more}", spent.time, spent.steps)]
    Time {
        /// What it may take.
        bound: Duration,
        /// What it took before that wait.
        spent: Spent,
        /// How much longer it wants to wait.
        more: Duration,
    },
    /// It goes round without an end.
    #[error("not done within {bound} steps, which took {}: it runs in a circle", spent.time)]
    Steps {
        /// What it may take.
        bound: u64,
        /// What it took.
        spent: Spent,
    },
    /// It waits for something that cannot come.
    #[error("after {} and {} steps it waits for something that has no instant: nothing would wake it", spent.time, spent.steps)]
    Never {
        /// What it took.
        spent: Spent,
    },
}

/// Steps an operation until it is done, moving `clock` to the instants it names; the clock never passes the bound.
///
/// # Errors
/// [`Overrun`]: the operation would take longer than `bound`, goes round without an end, or waits for
/// [`Instant::NEVER`].
///
/// ```
/// use mmc_mock::Clock;
/// use mmc_mock::drive::{Bound, Drive, drive_bounded};
/// use mmc_time::{Duration, Instant};
///
/// let clock = Clock::new();
/// let bound = Bound { time: Duration::from_millis(5), steps: 10 };
/// let ready = Instant::from_millis(3);
/// let (done, spent) = drive_bounded(&clock, bound, |now| {
///     if now < ready { Drive::Wait(ready) } else { Drive::Done("ready") }
/// })?;
/// assert_eq!((done, spent.time, spent.steps), ("ready", Duration::from_millis(3), 2));
///
/// // Three milliseconds more would be too late.
/// let late = drive_bounded::<()>(&clock, bound, |_| Drive::Wait(Instant::from_secs(1)));
/// assert!(late.unwrap_err().to_string().starts_with("not done within 5"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn drive_bounded<T>(
    clock: &Clock,
    bound: Bound,
    mut step: impl FnMut(Instant) -> Drive<T>,
) -> Result<(T, Spent), Overrun> {
    let mut watch = Watch::new(bound, clock.now());
    loop {
        watch.step(clock.now())?;
        match step(clock.now()) {
            Drive::Done(t) => return Ok((t, watch.spent(clock.now()))),
            Drive::Wait(until) => {
                watch.wait(clock.now(), until)?;
                clock.advance_to(until);
            }
        }
    }
}

/// Counts what an operation takes; for buses whose user is not driven but drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    bound: Bound,
    start: Instant,
    steps: u64,
}

impl Watch {
    pub(crate) fn new(bound: Bound, start: Instant) -> Self {
        Self { bound, start, steps: 0 }
    }
    pub(crate) fn spent(&self, now: Instant) -> Spent {
        Spent { time: now.since(self.start), steps: self.steps }
    }
    /// One more step at `now`.
    pub(crate) fn step(&mut self, now: Instant) -> Result<(), Overrun> {
        if self.steps >= self.bound.steps {
            return Err(Overrun::Steps { bound: self.bound.steps, spent: self.spent(now) });
        }
        self.steps += 1;
        Ok(())
    }
    /// A wait until `until`.
    pub(crate) fn wait(&self, now: Instant, until: Instant) -> Result<(), Overrun> {
        let spent = self.spent(now);
        if until.is_never() {
            Err(Overrun::Never { spent })
        } else if until.since(self.start) > self.bound.time {
            Err(Overrun::Time { bound: self.bound.time, spent, more: until.since(now) })
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { time: Duration::from_millis(10), steps: 5 };

    #[test]
    fn an_operation_that_spins_is_found_out_by_its_steps() {
        let clock = Clock::new();
        let mut calls = 0;
        let spins = drive_bounded::<()>(&clock, BOUND, |now| {
            calls += 1;
            Drive::Wait(now)
        });
        let spent = Spent { time: Duration::ZERO, steps: 5 };
        assert_eq!((spins, calls), (Err(Overrun::Steps { bound: 5, spent }), 5));
    }

    #[test]
    fn an_operation_that_waits_too_long_or_for_ever_stops_the_clock_at_its_bound() {
        let clock = Clock::new();
        clock.advance(Duration::from_secs(7));
        let exact = Instant::from_secs(7) + BOUND.time;
        let ok =
            drive_bounded(&clock, BOUND, |now| if now < exact { Drive::Wait(exact) } else { Drive::Done(1) });
        assert_eq!(ok, Ok((1, Spent { time: BOUND.time, steps: 2 })));

        let start = clock.now();
        let late = drive_bounded::<()>(&clock, BOUND, |now| Drive::Wait(now + Duration::from_millis(4)));
        let Err(Overrun::Time { spent, more, .. }) = late else { panic!("{late:?}") };
        assert_eq!((spent.time, spent.steps, more), (Duration::from_millis(8), 3, Duration::from_millis(4)));
        assert_eq!(clock.now(), start + Duration::from_millis(8), "never beyond the bound");
        let never = drive_bounded::<()>(&clock, BOUND, |_| Drive::Wait(Instant::NEVER));
        assert!(matches!(never, Err(Overrun::Never { .. })));
        assert!(never.unwrap_err().to_string().contains("nothing would wake it"));
    }
}

//! How long a request may wait, as functions: in dispatches after it is due, and in time.
//!
//! These are not estimates: no run may exceed them while their conditions hold, and property tests try. Where
//! there is no bound, they say why.
//!
//! **`mq-deadline`** (both rule sets). Let B = `fifo_batch` (at least 1), s = `writes_starved` (at least 1), and p the
//! requests ahead of X in the list of its direction at the instant X is due.
//!
//! *A read.* What runs of the present batch is at most B − 1 more dispatches. After it each decision for reads takes
//! the head of their list, since that one is due: p of them take a request ahead of X, the next one X. A decision goes to
//! writes only after s decisions for reads since the last one for writes, or, for the first, at once; so at most
//! 1 + ⌊p / s⌋ batches of writes come between. Together B·(p + 2 + ⌊p / s⌋) − 1.
//!
//! *A write.* Before each of the p + 1 decisions for writes that X needs, at most s decisions go to reads:
//! B − 1 + (p + 1)·s·B + p·B = B·(p + 1)·(s + 1) − 1.
//!
//! The conditions: the request is in the scheduler (not waiting for a tag), one class is in use, nothing is inserted at
//! the head, tunables do not change.

//!
//! **`deadline`.** In the highest class in use the same batches and decisions are made, with one aged request of a
//! lower class (or of the same, when that is not real time) after at most each B: N + ⌊N / B⌋ + 1 with the N of above. In a
//! lower class, counted from the instant X is aged, with q older requests in both lower classes: each aged request
//! goes after at most B others, the oldest first, so (q + 1)·(B + 1) − 1. No condition on the number of classes.

use mmc_time::Duration;

/// The longest wait of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At most so many other dispatches between the instant the request is due and its own.
    Dispatches(u64),
    /// None.
    Unbounded(Why),
}

/// Why there is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// `writes_starved` is 0.
    #[error("writes_starved=0: a read is never served while a write waits")]
    WritesFirst,
    /// `writes_starved` is negative, which counts as huge.
    #[error("writes_starved<0: a write is never served while a read waits")]
    ReadsFirst,
    /// `fifo_batch` is larger than [`ENDLESS_BATCH`].
    #[error("fifo_batch is so large that a sequential stream never ends its batch")]
    EndlessBatch,
    /// Two or more classes have requests queued or at the device.
    #[error(
        "more than one class is in use: each look into another class ends batches, and lower classes wait"
    )]
    Classes,
    /// Requests are put at the head again and again.
    #[error("requests inserted at the head go first, the last one before the others")]
    AtHead,
}

/// A batch above this size counts as endless: hours on any card.
pub const ENDLESS_BATCH: u32 = 1_000_000;

/// What the bound of `mq-deadline` depends on beside its tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The request is a read.
    pub read: bool,
    /// Requests ahead of it in the list of its direction when it becomes due: at most the queue's depth − 1.
    pub ahead: u32,
    /// More than one class has requests queued or at the device (`mq-deadline`, rules 7.3); a higher class is in
    /// use (`deadline`).
    pub classes: bool,
    /// Requests keep being inserted at the head.
    pub at_head: bool,
}

impl Waiting {
    /// One class, nothing at the head.
    #[must_use]
    pub const fn new(read: bool, ahead: u32) -> Self {
        Self { read, ahead, classes: false, at_head: false }
    }
}

/// The bound of `mq-deadline`, in dispatches after the deadline.
///
/// ```
/// use mmc_sched::bound::{mq_deadline, Bound, Waiting};
/// use mmc_sched::MqDeadline;
/// let tunables = *MqDeadline::new().tunables();
/// assert_eq!(mq_deadline(&tunables, Waiting::new(true, 0)), Bound::Dispatches(31));
/// assert_eq!(mq_deadline(&tunables, Waiting::new(false, 127)), Bound::Dispatches(6143));
/// ```
#[cfg(feature = "mq-deadline")]
#[must_use]
pub fn mq_deadline(tunables: &crate::mq_deadline::Tunables, x: Waiting) -> Bound {
    if x.classes {
        return Bound::Unbounded(Why::Classes);
    }
    if x.at_head {
        return Bound::Unbounded(Why::AtHead);
    }
    if tunables.fifo_batch > ENDLESS_BATCH {
        return Bound::Unbounded(Why::EndlessBatch);
    }
    match (x.read, u64::try_from(tunables.writes_starved)) {
        (true, Ok(0)) => Bound::Unbounded(Why::WritesFirst),
        (false, Err(_)) => Bound::Unbounded(Why::ReadsFirst),
        (_, starved) => Bound::Dispatches(batches(tunables.fifo_batch.max(1), starved.ok(), x)),
    }
}

/// The N of the two formulas; `starved` is `None` for "reads always first".
#[cfg(any(feature = "mq-deadline", feature = "deadline"))]
fn batches(batch: u32, starved: Option<u64>, x: Waiting) -> u64 {
    let p = u64::from(x.ahead);
    let batches = if x.read {
        let of_writes = starved.and_then(|s| p.checked_div(s)).unwrap_or(0);
        p.saturating_add(2).saturating_add(of_writes)
    } else {
        p.saturating_add(1).saturating_mul(starved.unwrap_or(u64::MAX).saturating_add(1))
    };
    u64::from(batch).saturating_mul(batches).saturating_sub(1)
}

/// The bound of `deadline`, in dispatches: after the deadline, or with `classes` after the request is aged, where
/// `ahead` counts the older requests in the classes below real time.
#[cfg(feature = "deadline")]
#[must_use]
pub fn deadline(tunables: &crate::deadline::Tunables, x: Waiting) -> Bound {
    if x.at_head {
        return Bound::Unbounded(Why::AtHead);
    }
    let batch = u64::from(tunables.fifo_batch);
    if x.classes {
        let turns = u64::from(x.ahead).saturating_add(1);
        return Bound::Dispatches(turns.saturating_mul(batch.saturating_add(1)).saturating_sub(1));
    }
    let n = batches(tunables.fifo_batch, Some(u64::from(tunables.writes_starved)), x);
    Bound::Dispatches(n.saturating_add(n.checked_div(batch).unwrap_or(n)).saturating_add(1))
}

/// The bound of `none`: a queued request among `queued` in all starts after at most so many others, unless requests
/// keep being requeued.
#[must_use]
pub const fn none(queued: u32) -> Bound {
    Bound::Dispatches(queued.saturating_sub(1) as u64)
}

/// A bound as time: from due to the end of the request's own service, when each service takes at most `slowest`,
/// the device holds at most `in_device` requests, and the scheduler is asked at each completion.
#[must_use]
pub const fn time(dispatches: u64, slowest: Duration, in_device: u32) -> Duration {
    slowest.saturating_mul(dispatches.saturating_add(1).saturating_add(in_device as u64))
}

#[cfg(all(test, feature = "mq-deadline"))]
mod tests {
    use super::*;
    use crate::{MqDeadline, Policy};

    #[test]
    fn the_defaults_on_a_card_with_128_tags() {
        let t = *MqDeadline::new().tunables();
        let n = |read, ahead| mq_deadline(&t, Waiting::new(read, ahead));
        assert_eq!(n(true, 0), Bound::Dispatches(31));
        assert_eq!(n(false, 0), Bound::Dispatches(47));
        assert_eq!(n(true, 127), Bound::Dispatches(3071));
        assert_eq!(n(false, 127), Bound::Dispatches(6143));
        // 50 requests a second: beyond the 120 s of the hung-task detector with all rules kept.
        assert!(time(6143, Duration::from_millis(20), 1) > Duration::from_secs(120));
    }

    #[test]
    fn where_there_is_none_it_says_why() {
        let with = |name, value, read| {
            let mut p = MqDeadline::new();
            p.tune(name, value).unwrap();
            mq_deadline(p.tunables(), Waiting::new(read, 3))
        };
        assert_eq!(with("writes_starved", "0", true), Bound::Unbounded(Why::WritesFirst));
        assert_eq!(with("writes_starved", "0", false), Bound::Dispatches(63));
        assert_eq!(with("writes_starved", "-1", false), Bound::Unbounded(Why::ReadsFirst));
        assert_eq!(with("writes_starved", "-1", true), Bound::Dispatches(79));
        assert_eq!(with("fifo_batch", "2147483647", true), Bound::Unbounded(Why::EndlessBatch));
        let t = *MqDeadline::new().tunables();
        let x = Waiting { classes: true, ..Waiting::new(true, 0) };
        assert_eq!(mq_deadline(&t, x), Bound::Unbounded(Why::Classes));
        assert_eq!(
            mq_deadline(&t, Waiting { at_head: true, classes: false, ..x }),
            Bound::Unbounded(Why::AtHead)
        );
    }
}

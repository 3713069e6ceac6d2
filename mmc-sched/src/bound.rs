//! How long a request may wait, as functions: in dispatches after it is due or in sectors, and in time.
//!
//! These are not estimates: no run may exceed them while their conditions hold, and property tests try. Where
//! there is no bound, they say why.
//!
//! The proofs, and what is not covered, are in `docs/bounds.md`; in short:
//!
//! | policy | bound | counted |
//! |---|---|---|
//! | [`none`] | the requests in front of it | dispatches after arrival |
//! | [`mq_deadline`] | read B·(p + 2 + ⌊p/s⌋) − 1, write B·(p + 1)·(s + 1) − 1 | dispatches after it is due |
//! | [`deadline`] | that N, and N + ⌊N/B⌋ + 1; a lower class (q + 1)·(B + 1) − 1 | dispatches after it is due, or aged |
//! | [`bfq`] | (Q + ℓ + B)·Φ/w + B | sectors charged after arrival |
//! | [`kyber`] | m + (⌊m/b⌋ + 1)·(26 − b) | dispatches after arrival |
//! | [`cfq`] | none | |
//! | `ftb` | F3 and F4, in `ftb::bound` | time, see `docs/ftb.md` |
//!
//! `mq-deadline` and `deadline`: B is `fifo_batch` (at least 1), s is `writes_starved` (at least 1), p the requests
//! ahead in the list of its direction when it is due, q the older ones in the classes below real time. `bfq`: B is
//! the largest budget, ℓ and Q the sectors of the request and before it in its stream, Φ/w the inverse of its share.
//! `kyber`: m requests ahead in its list, which sends b in a row.

use mmc_time::Duration;

/// The longest wait of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// At most so many other dispatches between the instant the request is due (`none`, `kyber`: between its arrival)
    /// and its own.
    Dispatches(u64),
    /// At most so many sectors charged in its class from its arrival on, its own included, when it goes out. What
    /// is charged is at least what is given out.
    Sectors(u64),
    /// None, or none that is proved.
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
    /// The list of the request has as many at the device as it may (`kyber`).
    #[error("the list is at its limit at the device: a completion of its own comes first")]
    ListAtLimit,
    /// A higher class is in use (`cfq`).
    #[error("a higher class with work leaves nothing to the classes below it")]
    HigherBacklog,
    /// The request is async (`cfq`).
    #[error("each sync arrival takes the device from the async requests")]
    SyncArrivals,
    /// Anything else (`cfq`).
    #[error(
        "a request that arrives while the queue that has the device is empty goes before all that wait, each time anew"
    )]
    Newcomers,
    /// A higher class is in use (`bfq`).
    #[error("a higher class takes all sectors but one request each 200 ms")]
    HigherClass,
    /// `low_latency` is 1.
    #[error("low_latency=1: streams whose weight is raised count 30 to 3000 times")]
    Raising,
    /// `slice_idle` is not 0.
    #[error("slice_idle is not 0: a stream that returns in time goes on with its old budget, each time anew")]
    Idling,
    /// `max_budget` is 0.
    #[error("max_budget=0: the largest budget follows the measured rate; set it to have a bound")]
    MeasuredBudget,
    /// `charge_time` is 1.
    #[error("charge_time=1: what is charged is time, known only when it is over")]
    DeviceTime,
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

/// What the bound of `bfq` depends on beside its tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Weight of the request's stream, 1 to 1000.
    pub weight: u32,
    /// The weights of all streams of its class that have work or owe service, its own included.
    pub all: u64,
    /// Sectors of the request.
    pub blocks: u32,
    /// Sectors that its stream gives out before it.
    pub ahead: u64,
    /// Its stream had work, or had more than its share, a moment ago.
    pub owes: bool,
    /// Other streams of its class whose requests are so slow that they are charged for the time of their slot. Of a
    /// stream that is so slow itself, take `ahead` as what its slots are charged: a whole budget each.
    pub slow: u32,
    /// A higher class has work.
    pub higher: bool,
    /// Requests keep being inserted at the head.
    pub at_head: bool,
}

impl Share {
    /// The only request of a stream of `weight` out of `all` that owes nothing, among streams that are not slow.
    #[must_use]
    pub const fn new(weight: u32, all: u64, blocks: u32) -> Self {
        Self { weight, all, blocks, ahead: 0, owes: false, slow: 0, higher: false, at_head: false }
    }
}

/// The bound of `bfq`, in sectors charged in the request's class since it arrived (T4 of `docs/bfq.md`).
///
/// ```
/// use mmc_sched::bound::{bfq, Bound, Share, Why};
/// use mmc_sched::{Bfq, Policy};
/// let mut policy: Bfq = Bfq::new();
/// // A journal write of 8 blocks, 40 of 80: what it gets by default depends on guesses.
/// let commit = Share::new(40, 80, 8);
/// assert_eq!(bfq(&policy, commit), Bound::Unbounded(Why::Idling));
/// policy.tune("slice_idle", "0").unwrap();
/// policy.tune("max_budget", "2048").unwrap();
/// assert_eq!(bfq(&policy, commit), Bound::Sectors(2 * (8 + 2048) + 2048 + 1));
/// ```
#[cfg(feature = "bfq")]
#[must_use]
pub fn bfq<const N: usize>(policy: &crate::Bfq<N>, x: Share) -> Bound {
    if x.at_head {
        return Bound::Unbounded(Why::AtHead);
    }
    if x.higher {
        return Bound::Unbounded(Why::HigherClass);
    }
    let budget = match policy.pure_budget() {
        Ok(budget) => u128::from(budget),
        Err(why) => return Bound::Unbounded(why),
    };
    let debt = if x.owes { budget } else { 0 };
    let own = u128::from(x.ahead).saturating_add(x.blocks.into()).saturating_add(budget).saturating_add(debt);
    let weight = u128::from(x.weight.max(1));
    let others = budget.saturating_mul(u128::from(x.slow).saturating_add(1));
    // One sector for what virtual time rounds off.
    let sectors = own.saturating_mul(x.all.into()).div_ceil(weight).saturating_add(others).saturating_add(1);
    Bound::Sectors(u64::try_from(sectors).unwrap_or(u64::MAX))
}

/// The bound of `none`: a queued request among `queued` in all starts after at most so many others, unless requests
/// keep being requeued.
#[must_use]
pub const fn none(queued: u32) -> Bound {
    Bound::Dispatches(queued.saturating_sub(1) as u64)
}

/// The bound of `kyber`, in dispatches after arrival, for a request of this operation with `ahead` requests before
/// it in its list, of which `limited` says that it may send no more to the device now. Requeued runs go before all lists:
/// one is one dispatch more.
///
/// ```
/// use mmc_sched::{Op, bound::{Bound, kyber}};
/// assert_eq!(kyber(Op::Read, 0, false), Bound::Dispatches(10));
/// assert_eq!(kyber(Op::Write, 127, false), Bound::Dispatches(127 + 16 * 18));
/// ```
#[cfg(feature = "kyber")]
#[must_use]
pub fn kyber(op: crate::Op, ahead: u32, limited: bool) -> Bound {
    use crate::kyber::Domain;
    if limited {
        return Bound::Unbounded(Why::ListAtLimit);
    }
    let (own, mut all) = (u64::from(Domain::of(op).batch()), 0_u64);
    for domain in Domain::ALL {
        all = all.saturating_add(u64::from(domain.batch()));
    }
    let m = u64::from(ahead);
    let rounds = m.checked_div(own).unwrap_or(m).saturating_add(1);
    Bound::Dispatches(m.saturating_add(rounds.saturating_mul(all.saturating_sub(own))))
}

/// Why `cfq` has no bound for a request that is `sync` or not, with a `higher` class in use or not: it promises none to
/// anybody, and is here to be compared with.
#[cfg(feature = "cfq")]
#[must_use]
pub const fn cfq(sync: bool, higher: bool) -> Bound {
    Bound::Unbounded(match (sync, higher) {
        (_, true) => Why::HigherBacklog,
        (false, false) => Why::SyncArrivals,
        (true, false) => Why::Newcomers,
    })
}

/// A bound in sectors as time, from arrival to the end of the request's own service: with what the device holds
/// (`in_device` requests of at most `largest` sectors each), at `rate` sectors a second or more.
#[must_use]
pub fn time_of_sectors(sectors: u64, largest: u32, in_device: u32, rate: u64) -> Duration {
    let device = u128::from(largest).saturating_mul(u128::from(in_device).saturating_add(1));
    let ns = u128::from(sectors).saturating_add(device).saturating_mul(1_000_000_000);
    Duration::from_nanos(u64::try_from(ns.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX))
}

/// A bound in dispatches as time: from due to the end of the request's own service, when each service takes at most `slowest`,
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

#[cfg(all(test, feature = "bfq"))]
mod tests_of_bfq {
    use super::*;
    use crate::{Bfq, Policy};

    fn with(set: &[(&str, &str)], x: Share) -> Bound {
        let mut p = Bfq::<4>::new();
        for (name, value) in [("slice_idle", "0"), ("max_budget", "2048")].iter().chain(set) {
            p.tune(name, value).unwrap();
        }
        bfq(&p, x)
    }

    #[test]
    fn each_condition_that_fails_is_named() {
        let x = Share::new(10, 100, 8);
        assert_eq!(with(&[], x), Bound::Sectors(10 * 2056 + 2048 + 1));
        for (name, value, why) in [
            ("slice_idle", "8", Why::Idling),
            ("strict_guarantees", "1", Why::Idling),
            ("low_latency", "1", Why::Raising),
            ("max_budget", "0", Why::MeasuredBudget),
            ("charge_time", "1", Why::DeviceTime),
        ] {
            assert_eq!(with(&[(name, value)], x), Bound::Unbounded(why), "{name}={value}");
        }
        assert_eq!(with(&[], Share { higher: true, ..x }), Bound::Unbounded(Why::HigherClass));
        assert_eq!(with(&[], Share { at_head: true, ..x }), Bound::Unbounded(Why::AtHead));
    }

    #[test]
    fn what_is_owed_and_what_the_others_waste_come_on_top() {
        let x = Share { ahead: 100, ..Share::new(10, 100, 8) };
        assert_eq!(with(&[], x), Bound::Sectors(10 * 2156 + 2048 + 1));
        assert_eq!(with(&[], Share { owes: true, ..x }), Bound::Sectors(10 * (2156 + 2048) + 2048 + 1));
        assert_eq!(with(&[], Share { slow: 3, ..x }), Bound::Sectors(10 * 2156 + 4 * 2048 + 1));
        // Nothing wraps.
        let most = Share { ahead: u64::MAX, all: u64::MAX, ..Share::new(0, 1, 1) };
        assert_eq!(with(&[], most), Bound::Sectors(u64::MAX));
    }

    #[test]
    fn a_journal_write_on_a_slow_card_waits_two_seconds_at_most() {
        // 6 MB/s; equal weights; requests of 512 KiB, two at the device.
        let Bound::Sectors(sectors) = with(&[], Share::new(40, 80, 8)) else { panic!("bounded") };
        let t = time_of_sectors(sectors, 1024, 2, 12_000);
        assert!(t < Duration::from_secs(2) && t > Duration::from_millis(500), "{t}");
        assert_eq!(time_of_sectors(u64::MAX, 1, 0, 0), Duration::MAX);
    }
}

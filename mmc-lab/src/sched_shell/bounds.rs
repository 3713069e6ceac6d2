//! How long a request may wait under the settings of a shell's policy, as lines for people.
//!
//! It computes nothing itself: the figures are `mmc_sched::bound`'s, the proofs are in `docs/bounds.md`.

use super::Shell;
use mmc_sched::bound::{self, Bound, Share, Waiting};
use mmc_sched::ftb::bound::{Turn, dispatches, service, time};
use mmc_sched::mq_deadline::Rules;
use mmc_sched::{AnyPolicy, Ftb, MqDeadline, Op, Policy as _};
use mmc_time::Duration;

/// Requests queued, as many as a card's block layer has tags.
const DEPTH: u32 = 128;
/// Requests at the device: one that runs and one that is prepared.
const IN_DEVICE: u32 = 2;
/// Sectors of the largest request.
const LARGEST: u32 = 1024;

/// No command takes less: for `ftb`, whose bounds are of time, in dispatches.
const SHORTEST: Duration = Duration::from_millis(1);

/// Which request, and its bound.
type Line = (&'static str, Bound);

/// One line for each kind of request; the device needs `slowest` for one request at most.
#[must_use]
pub fn table(shell: &Shell, slowest: Duration) -> Vec<String> {
    match shell {
        Shell::Kernel(s) => counted(DEADLINE, mq_deadline(s.policy()), slowest),
        Shell::Streams(s) => streams(s.policy(), slowest),
    }
}

/// From when bounds count.
const ARRIVAL: &str = "after the arrival";
const DEADLINE: &str = "after the deadline";

/// Bounds in dispatches or sectors, with their time.
fn counted(after: &str, lines: Vec<Line>, slowest: Duration) -> Vec<String> {
    let head = format!(
        "longest waits {after}; {DEPTH} requests of up to {LARGEST} sectors queued, {IN_DEVICE} at the device, {slowest} each at most"
    );
    let line = |(what, bound): Line| match bound {
        Bound::Dispatches(n) => {
            format!("{what}: {n} dispatches, {}", bound::time(n, slowest, IN_DEVICE))
        }
        Bound::Sectors(n) => {
            let rate = u128::from(LARGEST) * 1_000_000_000 / u128::from(slowest.as_nanos().max(1));
            let rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
            let time = bound::time_of_sectors(n, LARGEST, IN_DEVICE, rate);
            format!("{what}: {n} sectors of its class, {time} at {rate} sectors/s")
        }
        Bound::Unbounded(why) => format!("{what}: no bound: {why}"),
    };
    std::iter::once(head).chain(lines.into_iter().map(line)).collect()
}

fn mq_deadline(policy: &MqDeadline) -> Vec<Line> {
    let of = |x| bound::mq_deadline(policy.tunables(), x);
    let mut lines = vec![
        ("a read, the oldest", of(Waiting::new(true, 0))),
        ("a read behind all others", of(Waiting::new(true, DEPTH - 1))),
        ("a write, the oldest", of(Waiting::new(false, 0))),
        ("a write behind all others", of(Waiting::new(false, DEPTH - 1))),
    ];
    if policy.rules() == Rules::V7_3 {
        lines.push((
            "any, while two classes have requests",
            of(Waiting { classes: true, ..Waiting::new(true, 0) }),
        ));
    }
    lines.push((
        "any, while requests come at the head",
        of(Waiting { at_head: true, ..Waiting::new(true, 0) }),
    ));
    lines
}

/// F3 and F4 of `docs/ftb.md`, which count time.
fn ftb(policy: &Ftb, slowest: Duration) -> Vec<String> {
    let equal = |streams: u32| Turn::new(100, 100 * u64::from(streams), streams, slowest);
    let shortest = slowest.min(SHORTEST);
    let head = format!(
        "longest waits after the arrival, beside what the card stands still; equal weights, a command takes \
         {shortest} to {slowest}"
    );
    let line = |(what, x): (&str, Turn)| match (
        service(policy, x),
        time(policy, x),
        dispatches(policy, x, shortest),
    ) {
        (Ok(charged), Ok(time), Bound::Dispatches(n)) => {
            format!(
                "{what}: {time} until it is done, {charged} charged to all before it goes, {n} dispatches"
            )
        }
        (Err(why), ..) | (_, Err(why), _) | (.., Bound::Unbounded(why)) => format!("{what}: no bound: {why}"),
        (.., Bound::Sectors(n)) => format!("{what}: {n} sectors"),
    };
    let turns = [
        ("a sync request, one of two streams, alone in its stream", equal(2)),
        ("a sync request, one of sixteen streams", equal(16)),
        (
            "the last of sixteen sync requests of a stream, one of two",
            Turn { own: slowest.saturating_mul(16), ..equal(2) },
        ),
        ("a flusher's, one of two beside a sync stream", Turn { flushers: true, ..equal(3) }),
        ("any, while requests come at the head", Turn { at_head: true, ..equal(2) }),
    ];
    std::iter::once(head).chain(turns.into_iter().map(line)).collect()
}

fn streams(policy: &AnyPolicy, slowest: Duration) -> Vec<String> {
    let (after, lines) = match policy {
        AnyPolicy::Ftb(p) => return ftb(p, slowest),
        AnyPolicy::None(_) => (ARRIVAL, vec![("any", bound::none(DEPTH))]),
        AnyPolicy::Deadline(p) => {
            let of = |x| bound::deadline(p.tunables(), x);
            let lower = Waiting { classes: true, ..Waiting::new(true, DEPTH - 1) };
            let lines = vec![
                ("a read, the oldest", of(Waiting::new(true, 0))),
                ("a read behind all others", of(Waiting::new(true, DEPTH - 1))),
                ("a write, the oldest", of(Waiting::new(false, 0))),
                ("a write behind all others", of(Waiting::new(false, DEPTH - 1))),
                ("any of a lower class, when aged", of(lower)),
                (
                    "any, while requests come at the head",
                    of(Waiting { at_head: true, ..Waiting::new(true, 0) }),
                ),
            ];
            (DEADLINE, lines)
        }
        AnyPolicy::Bfq(p) => {
            let equal = Share::new(40, 80, LARGEST);
            let lines = vec![
                ("one of two equal streams, alone in its stream", bound::bfq(p, equal)),
                ("one of sixteen equal streams", bound::bfq(p, Share { all: 16 * 40, ..equal })),
                (
                    "one of sixteen, which had more than its share",
                    bound::bfq(p, Share { all: 16 * 40, owes: true, ..equal }),
                ),
                ("any, while a higher class has work", bound::bfq(p, Share { higher: true, ..equal })),
            ];
            (ARRIVAL, lines)
        }
        AnyPolicy::Cfq(_) => {
            let lines = vec![
                ("a sync request", bound::cfq(true, false)),
                ("an async request", bound::cfq(false, false)),
                ("any, while a higher class has work", bound::cfq(true, true)),
            ];
            (ARRIVAL, lines)
        }
        AnyPolicy::Kyber(_) => {
            let lines = vec![
                ("a read, the first", bound::kyber(Op::Read, 0, false)),
                ("a read behind all others", bound::kyber(Op::Read, DEPTH - 1, false)),
                ("a write, the first", bound::kyber(Op::Write, 0, false)),
                ("a write behind all others", bound::kyber(Op::Write, DEPTH - 1, false)),
                ("a discard, the first", bound::kyber(Op::Discard, 0, false)),
                ("any, its list at its limit", bound::kyber(Op::Read, 0, true)),
            ];
            (ARRIVAL, lines)
        }
        other => return vec![format!("longest waits: no bound is known for {}", other.name())],
    };
    counted(after, lines, slowest)
}

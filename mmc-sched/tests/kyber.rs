//! Kyber: the round over the four lists, their limits at the device, and how latencies move them.
#![cfg(feature = "kyber")]

mod support;

use mmc_sched::bound::{Bound, Why, kyber};
use mmc_sched::kyber::Domain;
use mmc_sched::{
    Dispatch, Flags, Inserted, Kind, Kyber, Limits, Merges, Op, Outcome, Queue, Request, RequestId,
    Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::VecDeque;

const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes];
const T: Instant = Instant::ZERO;

fn queue() -> Queue<Vec<Slot>, Kyber> {
    let limits = Limits { merges: Merges::None, ..Limits::default() };
    Queue::with_limits(vec![Slot::FREE; 1024], Kyber::new(), limits)
}

fn put(q: &mut impl Scheduler, op: Op, n: u64, now: Instant) -> RequestId {
    q.insert(Request::new(op, n * 8, 8, StreamId(0)), now).unwrap().0
}

fn get(q: &mut impl Scheduler, now: Instant) -> Option<RequestId> {
    match q.dispatch(now) {
        Dispatch::Run(run) => Some(run.head),
        _ => None,
    }
}

fn done(q: &mut impl Scheduler, id: RequestId, now: Instant) {
    q.complete(id, Outcome { blocks: 8, failed: false }, now).unwrap();
}

#[test]
fn lists_take_turns_of_16_8_1_and_1() {
    let mut q = queue();
    for n in 0..64 {
        for op in OPS {
            put(&mut q, op, n, T);
        }
    }
    let mut turns: Vec<(Op, u32)> = Vec::new();
    for _ in 0..52 {
        let id = get(&mut q, T).unwrap();
        let op = q.request(id).unwrap().op;
        match turns.last_mut().filter(|t| t.0 == op) {
            Some(turn) => turn.1 += 1,
            None => turns.push((op, 1)),
        }
        done(&mut q, id, T);
    }
    let round = [(Op::Read, 16), (Op::Write, 8), (Op::Discard, 1), (Op::WriteZeroes, 1)];
    assert_eq!(turns, [round, round].concat());
}

#[test]
fn a_list_alone_is_first_come_first_served() {
    let mut q = queue();
    let ids: Vec<RequestId> = (0..50).map(|n| put(&mut q, Op::Write, n * 37 % 50, T)).collect();
    let order: Vec<RequestId> = core::iter::from_fn(|| get(&mut q, T)).collect();
    assert_eq!(order, ids);
}

#[test]
fn a_list_at_its_limit_waits_for_a_completion_of_its_own() {
    let mut q = queue();
    let ids: Vec<RequestId> = (0..20).map(|n| put(&mut q, Op::WriteZeroes, n, T)).collect();
    for id in &ids[..16] {
        assert_eq!(get(&mut q, T), Some(*id));
    }
    assert_eq!(q.dispatch(T), Dispatch::Wait { at: None, completion: true });
    assert_eq!(kyber(Op::WriteZeroes, 0, true), Bound::Unbounded(Why::ListAtLimit));
    let read = put(&mut q, Op::Read, 100, T);
    assert_eq!(get(&mut q, T), Some(read), "others are not held back");
    done(&mut q, read, T);
    // From here the histograms are looked at in 100 ms.
    let look = Instant::from_millis(100);
    assert_eq!(q.dispatch(T), Dispatch::Wait { at: Some(look), completion: true });
    assert_eq!(q.wake_at(), Some(look));
    assert_eq!(get(&mut q, look), None);
    done(&mut q, ids[3], look);
    assert_eq!(get(&mut q, look), Some(ids[16]));
    assert_eq!(get(&mut q, look), None);
}

#[test]
fn a_requeued_run_gives_its_place_back_and_goes_first() {
    let mut q = queue();
    for n in 0..17 {
        put(&mut q, Op::WriteZeroes, n, T);
    }
    let Dispatch::Run(run) = q.dispatch(T) else { panic!("a run") };
    assert_eq!(core::iter::from_fn(|| get(&mut q, T)).count(), 15);
    put(&mut q, Op::Read, 100, T);
    q.requeue(&run, T);
    assert_eq!(get(&mut q, T), Some(run.head));
    assert!(get(&mut q, T).is_some_and(|id| q.request(id).unwrap().op == Op::Read));
    assert_eq!(get(&mut q, T), None, "16 are out");
    done(&mut q, run.head, T);
    assert!(get(&mut q, T).is_some());
}

#[test]
fn async_requests_may_hold_three_quarters_of_the_tags() {
    let q = queue();
    assert_eq!([Kind::Read, Kind::SyncWrite, Kind::Async].map(|k| q.admits(k, 128)), [128, 128, 96]);
    assert_eq!([1, 2, 3].map(|tags| q.admits(Kind::Async, tags)), [1, 1, 2]);
}

#[test]
fn targets_are_nanoseconds() {
    let mut q = queue();
    q.tune("read_lat_nsec", "500000\n").unwrap();
    q.tune("write_lat_nsec", "18446744073709551615").unwrap();
    let all: Vec<(&str, i64)> = (0..3).map_while(|i| q.tunable(i)).map(|t| (t.name, t.value)).collect();
    assert_eq!(all, [("read_lat_nsec", 500_000), ("write_lat_nsec", i64::MAX)]);
    assert_eq!(q.tune("read_lat_nsec", "fast"), Err(TuneError::Invalid));
    assert_eq!(q.tune("read_lat_nsec", "-1"), Err(TuneError::Invalid));
    assert_eq!(q.tune("read_lat_nsec", "18446744073709551616"), Err(TuneError::Range));
    assert_eq!(q.tune("discard_lat_nsec", "1"), Err(TuneError::Unknown));
    assert_eq!(q.tunable(0).unwrap().value, 500_000);
}

/// The limits of reads and writes, on a device that takes all it is given, in that order, and needs `read` or `write`
/// for one; 4 reads and 130 writes are always under way.
fn limits_after(read: Duration, write: Duration, time: Duration) -> (u32, u32) {
    let mut q = queue();
    let (mut now, mut out) = (T, VecDeque::new());
    let (mut reads, mut writes, mut n) = (0u32, 0u32, 0);
    while now < T + time {
        while reads < 4 || writes < 130 {
            let op = if reads < 4 { Op::Read } else { Op::Write };
            put(&mut q, op, n, now);
            n += 1;
            if op == Op::Read { reads += 1 } else { writes += 1 }
        }
        while let Some(id) = get(&mut q, now) {
            out.push_back(id);
        }
        let id = out.pop_front().unwrap();
        let is_read = q.request(id).unwrap().op == Op::Read;
        if is_read {
            reads -= 1
        } else {
            writes -= 1
        }
        now += if is_read { read } else { write };
        done(&mut q, id, now);
    }
    (q.policy().depth(Domain::Read), q.policy().depth(Domain::Write))
}

/// At first reads wait at the device behind 128 writes, 5 ms: too long for them, and good for writes. So the limit of
/// writes falls until reads take 2 ms.
#[test]
fn writes_are_throttled_when_reads_suffer() {
    let us = Duration::from_micros;
    let (reads, writes) = limits_after(us(20), us(40), Duration::from_secs(20));
    assert_eq!(reads, 256);
    assert!((20..=50).contains(&writes), "{writes}");
    assert_eq!(limits_after(us(5), us(10), Duration::from_secs(5)), (256, 128), "nothing suffers here");
}

/// On a card both targets are out of reach: all lists are bad and stay at their largest limit.
#[test]
fn on_a_card_the_limits_do_not_move() {
    let ms = Duration::from_millis;
    assert_eq!(limits_after(ms(3), ms(20), Duration::from_secs(30)), (256, 128));
}

/// With the newest eight of its list a request merges, with an older one it does not.
#[test]
fn merging_looks_at_the_newest_eight() {
    let request = |lba| Request::new(Op::Write, lba, 8, StreamId(0));
    let build = |behind: u64| {
        let mut q = Queue::new(vec![Slot::FREE; 64], Kyber::new());
        let (id, _) = q.insert(request(1000), T).unwrap();
        for n in 0..behind {
            q.insert(request(5000 + n * 100), T).unwrap();
            q.insert(Request::new(Op::Read, n * 16, 8, StreamId(0)), T).unwrap();
        }
        (q, id)
    };
    for lba in [992, 1008] {
        let (mut q, id) = build(7);
        assert_eq!(q.merge(&request(lba), T).unwrap().1, Inserted::Merged { into: id });
        let (mut q, _) = build(8);
        assert_eq!(q.merge(&request(lba), T), None);
    }
    let (mut q, id) = build(0);
    let sync = Request { flags: Flags::SYNC, ..request(1008) };
    assert_eq!(q.merge(&sync, T).unwrap().1, Inserted::Merged { into: id }, "one list for both kinds");
}

/// The lists before the victim's are full again and again, and their batches just begin: the bound is met.
#[test]
fn the_adversary_reaches_the_bound_of_the_head_of_each_list() {
    for (op, ahead) in
        [(Op::Read, 0), (Op::Write, 0), (Op::Discard, 0), (Op::WriteZeroes, 0), (Op::Write, 20)]
    {
        let mut q = queue();
        for n in 0..200 {
            for other in OPS.into_iter().filter(|o| *o != op) {
                put(&mut q, other, n, T);
            }
        }
        // Until the round has just passed the victim's list.
        let after = OPS[(OPS.iter().position(|o| *o == op).unwrap() + 1) % 4];
        loop {
            let id = get(&mut q, T).unwrap();
            let first = q.request(id).unwrap().op == after;
            done(&mut q, id, T);
            if first {
                break;
            }
        }
        // One of the next list's batch is gone; its victim comes a moment later.
        let victim = (0..=ahead).map(|n| put(&mut q, op, 1000 + n, T)).last().unwrap();
        let mut waited = 1;
        while let Some(id) = get(&mut q, T).filter(|id| *id != victim) {
            done(&mut q, id, T);
            waited += 1;
        }
        let Bound::Dispatches(bound) = kyber(op, ahead as u32, false) else { panic!("a bound") };
        assert_eq!(waited, bound, "{op:?} behind {ahead}");
    }
}

#[test]
#[cfg(target_pointer_width = "64")]
fn memory() {
    println!("{}", size_of::<Kyber>());
    assert!(size_of::<Kyber>() <= 512, "{}", size_of::<Kyber>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(64), ..ProptestConfig::default() })]

    /// While the device takes what it is given, the m-th request of a list waits for the m before it and at most
    /// (⌊m/b⌋ + 1)·(26 − b) of other lists, whatever arrives.
    #[test]
    fn no_request_waits_longer_than_the_bound(arrivals in prop::collection::vec((0usize..4, 1u64..40), 1..150)) {
        let mut q = queue();
        let mut waiting: Vec<(RequestId, u64, u64)> = Vec::new();
        let (mut n, mut dispatched) = (0, 0u64);
        for (what, burst) in arrivals {
            let op = OPS[what];
            for _ in 0..burst {
                if q.len() >= 1000 {
                    break;
                }
                let m = waiting.iter().filter(|w| q.request(w.0).unwrap().op == op).count() as u64;
                let Bound::Dispatches(bound) = kyber(op, m as u32, false) else { panic!("a bound") };
                n += 1;
                let id = put(&mut q, op, n, T);
                waiting.push((id, dispatched, bound));
            }
            for _ in 0..burst / 2 + 1 {
                let Some(id) = get(&mut q, T) else { break };
                let i = waiting.iter().position(|w| w.0 == id).unwrap();
                let (_, since, bound) = waiting.remove(i);
                prop_assert!(dispatched - since <= bound, "{} > {}", dispatched - since, bound);
                dispatched += 1;
                done(&mut q, id, T);
            }
        }
    }
}

//! What must be true inside the policy after every call, under random use with too few places for the streams; and where
//! what it learns of the device and of a stream turns over, to the sample and the nanosecond.

extern crate std;
use super::raise::{Raise, Wake};
use super::wf2q::{Engine, Place, bits};
use super::*;
use crate::{Class, Dispatch, Flags, Limits, Op, Outcome, Priority, Queue, RequestId, Scheduler, Slot};
use mmc_time::Duration;
use proptest::prelude::*;
use std::vec::Vec;

const N: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Insert(Request, bool),
    Dispatch,
    Complete(usize),
    Requeue(usize),
    Cancel(usize),
    Tune(usize, u32),
    Weight(u32, Option<u32>),
    Time(u64),
}

fn request() -> impl Strategy<Value = Request> {
    let class = prop::sample::select(std::vec![
        Class::None,
        Class::None,
        Class::BestEffort,
        Class::RealTime,
        Class::Idle
    ]);
    (any::<bool>(), 0u64..200, 1u32..20, 0u32..8, 0u8..4, class, 0u8..8).prop_map(
        |(read, lba, blocks, stream, flags, class, level)| Request {
            priority: Priority { class, level },
            flags: Flags::from_bits_truncate(flags),
            ..Request::new(if read { Op::Read } else { Op::Write }, lba * 8, blocks * 8, StreamId(stream))
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (request(), prop::bool::weighted(0.05)).prop_map(|(r, head)| Step::Insert(r, head)),
        8 => Just(Step::Dispatch),
        8 => any::<usize>().prop_map(Step::Complete),
        1 => any::<usize>().prop_map(Step::Requeue),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0usize..10, 0u32..300).prop_map(|(i, v)| Step::Tune(i, v)),
        1 => (0u32..8, prop::option::of(1u32..=1000)).prop_map(|(s, w)| Step::Weight(s, w)),
        4 => prop_oneof![0u64..20, 0u64..4000].prop_map(Step::Time),
    ]
}

/// Masks, places, weights and counts agree.
fn check(bfq: &Bfq<N>) {
    for (class, tree) in bfq.engine.trees.iter().enumerate() {
        let mut weights = 0;
        for i in 0..N {
            let e = bfq.engine.get(i);
            let here = e.class() == class;
            let is = |place: Place| here && e.place() == place;
            assert_eq!(bits(tree.active).any(|b| b == i), is(Place::Active), "{i} waits");
            assert_eq!(bits(tree.idle).any(|b| b == i), is(Place::Idle), "{i} is remembered");
            if here && e.place() != Place::Off {
                weights += u64::from(e.weight());
            }
        }
        assert_eq!(tree.wsum, weights, "weights of class {class}");
    }
    let mut queued = 0;
    for i in 0..N {
        let (s, e) = (bfq.stream(i), bfq.engine.get(i));
        queued += u32::from(s.requests.len());
        assert_eq!(s.requests.len() > 0, s.requests.next().is_some());
        assert!(s.requests.len() == 0 || bfq.is_busy(i), "{i} has work and waits");
        assert_eq!(bfq.engine.serving() == Some(i), e.place() == Place::Serving);
    }
    assert!(queued <= bfq.queued, "the others are ahead of all streams");
    assert!(bfq.ahead.is_empty() == (queued == bfq.queued));
    assert!(bfq.idle_until.is_none() || bfq.engine.serving().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(128),
        ..ProptestConfig::default()
    })]

    #[test]
    fn its_books_balance_whatever_is_done(steps in prop::collection::vec(step(), 1..200)) {
        let mut queue = Queue::with_limits(std::vec![Slot::FREE; 40], Bfq::<N>::new(), Limits::default());
        let mut now = Instant::ZERO;
        let mut ids: Vec<RequestId> = Vec::new();
        let mut runs: Vec<crate::Run> = Vec::new();
        let (mut accepted, mut done) = (0, 0);
        let complete = |queue: &mut Queue<Vec<Slot>, Bfq<N>>, run: crate::Run, now| {
            let mut next = Some(run.head);
            let mut n = 0;
            while let Some(id) = next {
                next = queue.next_member(id);
                let blocks = queue.request(id).map_or(0, |r| r.blocks);
                n += i32::from(queue.complete(id, Outcome { blocks, failed: false }, now).is_some());
            }
            n
        };
        for step in steps {
            match step {
                Step::Insert(r, head) => {
                    let merged = if head { None } else { queue.merge(&r, now) };
                    let answer = match merged {
                        Some(answer) => Ok(answer),
                        None if head => queue.insert_at_head(r, now),
                        None => queue.insert(r, now),
                    };
                    if let Ok((id, _)) = answer {
                        accepted += 1;
                        ids.push(id);
                    }
                }
                Step::Dispatch => match queue.dispatch(now) {
                    Dispatch::Run(run) => runs.push(run),
                    Dispatch::Wait { at, completion } => {
                        prop_assert!(at.is_none_or(|t| t > now) && (at.is_some() || completion));
                        prop_assert!(!completion || !runs.is_empty());
                    }
                    Dispatch::Empty => prop_assert_eq!(queue.policy().queued, 0),
                },
                Step::Complete(i) if !runs.is_empty() => {
                    let run = runs.swap_remove(i % runs.len());
                    done += complete(&mut queue, run, now);
                }
                Step::Requeue(i) if !runs.is_empty() => {
                    let run = runs.swap_remove(i % runs.len());
                    queue.requeue(&run, now);
                }
                Step::Cancel(i) if !ids.is_empty() => {
                    let id = ids.swap_remove(i % ids.len());
                    done += i32::from(queue.cancel(id).is_some());
                }
                Step::Complete(_) | Step::Requeue(_) | Step::Cancel(_) => {}
                Step::Tune(i, value) => {
                    let name = queue.tunable(i).unwrap().name;
                    let set = queue.tune(name, &std::format!("{value}"));
                    prop_assert_eq!(set, Ok(()));
                }
                Step::Weight(stream, weight) => {
                    let _ = queue.policy_mut().set_weight(StreamId(stream), weight);
                }
                Step::Time(ms) => now += Duration::from_millis(ms),
            }
            check(queue.policy());
            prop_assert_eq!(queue.policy().in_flight as usize, runs.len());
        }
        // All that is left comes out, within as many waits as there are requests.
        for _ in 0..1000 {
            match queue.dispatch(now) {
                Dispatch::Run(run) => done += complete(&mut queue, run, now),
                Dispatch::Wait { at: Some(at), .. } => now = at,
                Dispatch::Wait { at: None, .. } => {
                    let run = runs.pop().unwrap();
                    done += complete(&mut queue, run, now);
                }
                Dispatch::Empty => break,
            }
            check(queue.policy());
        }
        for run in runs {
            done += complete(&mut queue, run, now);
        }
        prop_assert_eq!(done, accepted);
        prop_assert_eq!((queue.policy().queued, queue.policy().in_flight), (0, 0));
    }
}

const MS: fn(u64) -> Duration = Duration::from_millis;
const AT: fn(u64) -> Instant = Instant::from_millis;

/// After `loaded` completions, one of which finds `most` at the device: whether it takes one at a time.
fn told(rate: &mut Rate, loaded: u32, most: u32) -> bool {
    for n in 0..loaded {
        rate.depth(if n == 5 { most } else { 1 }, true);
        rate.depth(2, false);
    }
    rate.one_at_a_time()
}

#[test]
fn thirty_three_loaded_completions_tell_how_much_the_device_takes() {
    assert!(!told(&mut Rate::new(), 32, 3), "not known yet");
    assert!(told(&mut Rate::new(), 33, 3));
    assert!(!told(&mut Rate::new(), 33, 4), "it queues");
    // Each verdict is of its own completions; that it queues is final.
    let mut rate = Rate::new();
    assert!(told(&mut rate, 33, 3) && told(&mut rate, 32, 4) && !told(&mut rate, 1, 1));
    assert!(!told(&mut rate, 66, 1));
}

/// `runs` of `sectors`, each `took` long, and an idle second before each; `near` of them begin where the last one ended.
fn measure(rate: &mut Rate, runs: u32, sectors: u32, took: Duration, near: u32) -> u64 {
    let mut now = AT(10_000);
    for n in 0..runs {
        now += MS(1000);
        rate.dispatched(n < near, 0, now);
        // Half of it is one member of the run, and another one is prepared meanwhile.
        rate.dispatched(false, 1, now);
        let half = Duration::from_nanos(took.as_nanos() / 2);
        assert_eq!(rate.completed(sectors / 2, false, now + half), half);
        now += took;
        assert_eq!(rate.completed(sectors / 2, true, now), half);
    }
    rate.get()
}

#[test]
fn thirty_two_runs_and_three_hundred_busy_milliseconds_measure_the_rate() {
    let us = Duration::from_micros;
    assert_eq!(measure(&mut Rate::new(), 31, 100, MS(10), 0), 0, "too few");
    assert_eq!(measure(&mut Rate::new(), 32, 100, us(9374), 0), 0, "too short");
    assert_eq!(measure(&mut Rate::new(), 32, 100, us(9375), 0), 3200 * 10 / 3);
    // The first one counts in full; a slower one only if three quarters were near, then a part by how many were.
    for (near, sectors, rate) in [
        (32, 50, 7500),
        (24, 50, 8750),
        (23, 50, 10_000),
        (0, 50, 10_000),
        (0, 200, 11_000),
        (16, 200, 10_000 - 1666 + 3333),
        (24, 200, 10_000 - 2500 + 5000),
        (32, 200, 15_000),
    ] {
        let mut known = Rate::new();
        assert_eq!(measure(&mut known, 32, 100, MS(10), 0), 10_000);
        assert_eq!(
            measure(&mut known, 31, sectors, MS(10), near),
            10_000,
            "{near} {sectors}: from nothing again"
        );
        assert_eq!(
            measure(&mut known, 1, sectors, MS(10), near.saturating_sub(31)),
            rate,
            "{near} {sectors}"
        );
    }
}

#[test]
fn a_budget_fills_a_slot_at_the_measured_rate() {
    let mut rate = Rate::new();
    assert_eq!(rate.budget(MS(125)), 16_384, "not known");
    for (known, budget) in [(8000, 1000), (2048, 256), (2040, 256), (1, 256), (u64::MAX, i32::MAX as u64)] {
        rate.set(known);
        assert_eq!(rate.budget(MS(125)), budget, "{known}");
    }
}

const SLICE: Duration = Duration::from_millis(8);

/// One request arrives `think` after the last one ended, which takes a millisecond.
fn arrives(s: &mut Stream, at: (u64, u32), think: Duration) {
    let now = s.last_end + think;
    s.arrived(at, (true, false), SLICE, now);
    s.last_end = now + MS(1);
}

#[test]
fn far_is_more_than_800_sectors_and_small_less_than_64() {
    for (step, blocks, seeky) in [(801, 63, true), (800, 63, false), (801, 64, false)] {
        for back in [false, true] {
            let mut s = Stream::new(true, 0, AT(0));
            let mut place = 1 << 20;
            for n in 0..31 {
                assert!(!s.is_totally_seeky(), "{n}");
                place = if back { place - step } else { place + step };
                arrives(&mut s, (place, blocks), MS(1));
                place += u64::from(blocks);
            }
            assert_eq!((s.is_seeky(), s.is_totally_seeky()), (seeky, seeky), "{step} {blocks} {back}");
        }
    }
    // Twenty of the last 32.
    let mut s = Stream::new(true, 0, AT(0));
    for n in 0..18 {
        arrives(&mut s, (n << 20, 8), MS(1));
    }
    // A new one begins with one far request, and the first of these was near the beginning.
    let near = ((17 << 20) + 8, 8);
    assert!(!s.is_seeky());
    arrives(&mut s, (1 << 30, 8), MS(1));
    arrives(&mut s, near, MS(1));
    assert!(s.is_seeky());
}

#[test]
fn three_pauses_tell_how_a_stream_thinks_and_none_counts_more_than_two_slices() {
    let mut s = Stream::new(true, 0, AT(0));
    for shortly in [true, true, false] {
        arrives(&mut s, (0, 8), MS(3_600_000));
        assert_eq!(s.thinks_shortly(SLICE), shortly);
    }
    let shortly = [true, false].map(|more| {
        let mut s = s;
        for _ in 0..if more { 7 } else { 5 } {
            arrives(&mut s, (0, 8), MS(0));
        }
        s.thinks_shortly(SLICE)
    });
    assert_eq!(shortly, [true, false], "an hour is forgotten like 16 ms");
    // Pauses are not counted while something is on the way or waits, nor without slices to fill.
    for (in_flight, busy, slice) in [(1, false, SLICE), (0, true, SLICE), (0, false, MS(0))] {
        let mut s = Stream::new(true, 0, AT(0));
        s.in_flight = in_flight;
        for n in 1..9 {
            s.arrived((0, 8), (false, busy), slice, AT(n * 1000));
        }
        assert!(s.thinks_shortly(SLICE), "{in_flight} {busy} {slice}");
    }
}

#[test]
fn io_bound_is_idle_for_a_fifth_at_most_of_some_200_ms() {
    // Idle before each of these instants for so long (µs), and whether it is io bound then.
    let told = |steps: &[(u64, Option<u64>)]| {
        let mut s = Stream::new(true, 0, AT(0));
        for &(at, idle) in steps {
            let now = Instant::ZERO + Duration::from_micros(at);
            s.last_end = Instant::ZERO + Duration::from_micros(at - idle.unwrap_or(at));
            s.arrived((0, 8), (idle.is_some(), false), SLICE, now);
        }
        s.is_io_bound()
    };
    assert!(told(&[(100_000, Some(20_000))]));
    assert!(!told(&[(100_000, Some(20_001))]));
    assert!(told(&[(100_000, None)]), "something of it was on the way");
    assert!(told(&[(100_000, Some(50_000)), (400_000, None)]), "that counts as well");
    // More than 200 ms count half from then on.
    assert!(told(&[(200_000, Some(20_000)), (300_000, Some(35_000))]));
    assert!(!told(&[(200_001, Some(20_000)), (300_000, Some(35_000))]));
    assert!(told(&[(400_000, Some(20_000)), (500_000, Some(50_000))]));
    assert!(!told(&[(400_000, Some(20_000)), (500_000, Some(50_001))]));
}

#[test]
fn raising_ends_and_begins_to_the_sector_and_the_millisecond() {
    let wake = Wake { eligible: true, long_idle: true, quiet: true, totally_seeky: false };
    let soft = Wake { long_idle: false, ..wake };
    let woken = |w: Wake, at: u64| {
        let mut r = Raise::new(AT(100));
        r.woken(w, AT(at));
        r.coefficient()
    };
    // Which of what is known raises, and how.
    assert_eq!([woken(wake, 100), woken(soft, 101), woken(soft, 100)], [30, 3000, 1]);
    for w in [
        Wake { eligible: false, ..wake },
        Wake { quiet: false, ..soft },
        Wake { totally_seeky: true, ..soft },
    ] {
        assert_eq!(woken(w, 101), 1, "{w:?}");
    }
    let raised = |w: Wake| {
        let mut r = Raise::new(AT(0));
        r.woken(w, AT(1000));
        r
    };
    // Interactive: 3.75 s, 120000 sectors.
    for (sectors, at, coefficient) in
        [(119_999, 4750, 30), (120_000, 4750, 30), (120_001, 4750, 1), (8, 4750, 30), (8, 4751, 1)]
    {
        let mut r = raised(wake);
        r.served(sectors, AT(at));
        assert_eq!(r.coefficient(), coefficient, "{sectors} {at}");
    }
    // Soft real time: 300 ms, without those it waited for the device.
    for (waited, at, coefficient) in [(0, 1300, 3000), (0, 1301, 1), (50, 1350, 3000), (50, 1351, 1)] {
        let mut r = raised(soft);
        r.slot_began(MS(waited));
        r.served(8, AT(at));
        assert_eq!(r.coefficient(), coefficient, "{waited} {at}");
    }
    let mut r = raised(wake);
    r.slot_began(MS(50));
    r.served(8, AT(4751));
    assert_eq!(r.coefficient(), 1, "an interactive one's time runs on");
    // Async: more than half a second since it was served or woke.
    for (is_async, at, coefficient) in [(true, 1500, 1), (true, 1501, 30), (false, 1501, 1)] {
        let mut r = Raise::new(AT(0));
        r.slot_ended(AT(1000));
        r.more(is_async, AT(at));
        assert_eq!(r.coefficient(), coefficient, "{is_async} {at}");
    }
    let mut r = Raise::new(AT(0));
    r.more(true, AT(300));
    r.more(true, AT(700));
    assert_eq!(r.coefficient(), 1, "each one begins anew");
    // Soft real time comes back to what it replaced; interactive takes its place.
    let mut r = raised(soft);
    r.woken(wake, AT(1100));
    assert_eq!(r.coefficient(), 30);
    r.woken(soft, AT(1200));
    r.served(8, AT(1501));
    assert_eq!(r.coefficient(), 30, "from 1100 on");
    r.served(8, AT(4850));
    assert_eq!(r.coefficient(), 30);
    r.served(8, AT(4851));
    assert_eq!(r.coefficient(), 1);
    r.woken(wake, AT(5000));
    r.stop(AT(5001));
    assert_eq!((r.coefficient(), r.time_factor()), (1, 1));
}

type Q = Queue<Vec<Slot>, Bfq<N>>;

fn ask(q: &mut Q, stream: u32, lba: u64, now: Instant) {
    q.insert(Request::new(Op::Read, lba, 8, StreamId(stream)), now).unwrap();
}
/// The stream whose request goes out and is done at once, or until when the device is kept idle.
fn serve(q: &mut Q, now: Instant) -> Result<u32, Option<Instant>> {
    takes(q, now, MS(0))
}
fn takes(q: &mut Q, now: Instant, took: Duration) -> Result<u32, Option<Instant>> {
    match q.dispatch(now) {
        Dispatch::Run(run) => {
            let whose = q.request(run.head).unwrap().stream.0;
            q.complete(run.head, Outcome { blocks: 8, failed: false }, now + took).unwrap();
            Ok(whose)
        }
        Dispatch::Wait { at, .. } => Err(at),
        Dispatch::Empty => panic!("nothing is queued"),
    }
}

#[test]
fn a_device_is_judged_by_completions_that_leave_it_enough_to_do() {
    // What the stream that has the device and another one have on the way, and whether that is enough to judge by.
    for (own, other, judged) in [(3, 0, false), (4, 0, true), (3, 1, true), (2, 2, false), (2, 5, false)] {
        let mut q = Queue::with_limits(std::vec![Slot::FREE; 40], Bfq::<N>::new(), Limits::default());
        let mut now = AT(1000);
        let mut lba = 0;
        for (stream, n) in [(1, own), (2, other)] {
            for _ in 0..n {
                lba += 1000;
                ask(&mut q, stream, lba, now);
            }
        }
        for n in 0..34 {
            assert!(!q.policy().rate.one_at_a_time() || n == 33, "{own} {other}: {n}");
            assert_eq!(serve(&mut q, now), Ok(1), "{own} {other}: {n}");
            now += Duration::from_micros(10);
            lba += 1000;
            ask(&mut q, 1, lba, now);
        }
        assert_eq!(q.policy().rate.one_at_a_time(), judged, "{own} {other}");
    }
}

#[test]
fn a_device_that_takes_one_at_a_time_waits_for_a_reader_that_comes_back_soon() {
    // The verdict (most requests at the device), raising, whether the reader seeks: who is next when another comes.
    for (most, low_latency, seeks, waits) in [
        (None, "0", false, false),
        (Some(4), "0", false, false),
        (Some(1), "0", false, true),
        (Some(1), "0", true, false),
        (Some(1), "1", false, false),
    ] {
        let mut q = Queue::with_limits(std::vec![Slot::FREE; 40], Bfq::<N>::new(), Limits::default());
        q.tune("low_latency", low_latency).unwrap();
        if let Some(most) = most {
            told(&mut q.policy_mut().rate, 33, most);
        }
        let mut now = AT(1000);
        let mut lba = 0;
        for _ in 0..if seeks { 24 } else { 2 } {
            lba += if seeks { 10_000 } else { 8 };
            ask(&mut q, 1, lba, now);
            assert_eq!(takes(&mut q, now, MS(9)), Ok(1));
            now += MS(10);
        }
        ask(&mut q, 1, lba + 8, now);
        ask(&mut q, 2, 1 << 20, now);
        // One that is not worth waiting for gives way to whoever comes.
        let first = serve(&mut q, now);
        assert_eq!(first, Ok(if waits { 1 } else { 2 }), "{most:?} {low_latency} {seeks}");
        if waits {
            let next = Err(Some(now + MS(8)));
            assert_eq!(serve(&mut q, now), next);
            // To the nanosecond; then it was in vain.
            let early = Instant::from_nanos((now + MS(8)).as_nanos() - 1);
            assert_eq!(serve(&mut q, early), next);
            assert_eq!(serve(&mut q, now + MS(8)), Ok(2));
            assert_eq!(q.policy().expired(Expiry::TooIdle), 1);
        }
    }
}

#[test]
fn who_takes_the_place_of_a_stream_does_not_take_its_debts() {
    let engine = |forget: bool| {
        let mut e = Engine::<4>::new();
        for i in [0, 1] {
            e.set_weight(i, 10, 1);
            e.set_budget(i, 1000);
            e.activate(i, false, 1, AT(1));
        }
        // All of a slot at once, and gone: it owes for that.
        assert_eq!(e.select(AT(1)), Some(0));
        e.serve(1000);
        e.deactivate(0);
        assert_eq!((e.get(0).place(), e.trees[1].wsum), (Place::Idle, 20));
        if forget {
            e.forget(0);
            assert_eq!(
                (e.get(0).place(), e.get(0).left(), e.trees[1].wsum, e.trees[1].idle),
                (Place::Off, 0, 10, 0)
            );
            // Who has work is not forgotten.
            e.forget(1);
            assert_eq!(e.get(1).place(), Place::Active);
        }
        // A new one with little to do comes just before one that has as little.
        for i in [0, 2] {
            e.set_weight(i, 10, 1);
            e.set_budget(i, 100);
            e.activate(i, false, 1, AT(2));
        }
        e.select(AT(2))
    };
    assert_eq!([true, false].map(engine), [Some(0), Some(2)]);
}

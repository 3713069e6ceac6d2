//! Neighbours leave as one run: behind a run, before it, and where a request closes the gap between two.

use mmc_sched::{
    AnyPolicy, Class, Dispatch, Flags, Inserted, Op, Priority, Queue, Request, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};

type Q = Queue<[Slot; 16], AnyPolicy>;

fn queue(name: &str) -> Q {
    Queue::new([const { Slot::FREE }; 16], AnyPolicy::by_name(name).expect("built in"))
}

fn put(q: &mut Q, lba: u64, stream: u32) {
    let request = Request { flags: Flags::SYNC, ..Request::new(Op::Write, lba, 8, StreamId(stream)) };
    if q.merge(&request, Instant::ZERO).is_none() {
        q.insert(request, Instant::ZERO).expect("there is room");
    }
}

/// What leaves, as (first sector, sectors, requests); the device is always done at once.
fn runs(q: &mut Q) -> Vec<(u64, u32, u16)> {
    let (mut out, mut now) = (Vec::new(), Instant::ZERO);
    while !q.is_empty() {
        match q.dispatch(now) {
            Dispatch::Run(run) => {
                out.push((run.lba, run.blocks, run.count));
                let mut next = Some(run.head);
                while let Some(id) = next {
                    next = q.next_member(id);
                    let blocks = q.request(id).expect("a member").blocks;
                    q.complete(id, mmc_sched::Outcome { blocks, failed: false }, now).expect("at the device");
                }
            }
            Dispatch::Wait { at, .. } => now = now.max(at.unwrap_or(now)) + Duration::from_millis(1),
            Dispatch::Empty => panic!("{} forgot {}", q.name(), q.len()),
        }
    }
    assert_eq!((q.dispatch(now), q.queued()), (Dispatch::Empty, 0), "{} remembers what is gone", q.name());
    out
}

fn left(name: &str, set: &[(&str, &str)], lbas: &[u64]) -> Vec<(u64, u32, u16)> {
    // Beyond 2 TB as below.
    let [low, high] = [0, 1 << 33].map(|base| {
        let mut q = queue(name);
        for (tunable, value) in set {
            q.tune(tunable, value).expect("a tunable of this policy");
        }
        for lba in lbas {
            put(&mut q, base + lba, 1);
        }
        runs(&mut q).into_iter().map(|(lba, blocks, count)| (lba - base, blocks, count)).collect::<Vec<_>>()
    });
    assert_eq!(low, high, "{name}");
    low
}

fn names() -> impl Iterator<Item = &'static str> {
    AnyPolicy::NAMES.iter().copied().filter(|n| *n != "none")
}

#[test]
fn a_request_behind_another_joins_it() {
    for name in AnyPolicy::NAMES {
        assert_eq!(left(name, &[], &[80, 88, 96]), [(80, 24, 3)], "{name}");
    }
}

#[test]
fn a_request_before_another_joins_it() {
    for name in names() {
        assert_eq!(left(name, &[], &[80, 72, 64]), [(64, 24, 3)], "{name}");
    }
}

#[test]
fn a_request_between_two_makes_them_one() {
    for name in names().filter(|n| *n != "kyber") {
        assert_eq!(left(name, &[], &[80, 96, 88]), [(80, 24, 3)], "{name}, behind the first");
        assert_eq!(left(name, &[], &[96, 80, 88, 104, 72]), [(72, 40, 5)], "{name}");
    }
}

#[test]
fn without_front_merges_only_requests_behind_join() {
    for name in ["mq-deadline", "deadline"].into_iter().filter(|n| AnyPolicy::NAMES.contains(n)) {
        // The kernel still looks at one run: the last that something joined, at first the first one.
        let mut out = left(name, &[("front_merges", "0")], &[1000, 80, 72, 64, 88]);
        out.retain(|run| run.0 < 1000);
        out.sort_unstable();
        assert_eq!(out, [(64, 8, 1), (72, 8, 1), (80, 16, 2)], "{name}");
        assert_eq!(left(name, &[("front_merges", "0")], &[80, 72]), [(72, 16, 2)], "{name}, the first one");
    }
}

#[test]
fn streams_that_are_served_apart_do_not_join() {
    for name in ["bfq", "cfq", "ftb"].into_iter().filter(|n| AnyPolicy::NAMES.contains(n)) {
        for lbas in [[80, 88], [88, 80]] {
            let mut q = queue(name);
            put(&mut q, lbas[0], 1);
            put(&mut q, lbas[1], 2);
            let mut out = runs(&mut q);
            out.sort_unstable();
            assert_eq!(out, [(80, 8, 1), (88, 8, 1)], "{name}");
        }
    }
}

#[test]
fn where_requests_left_others_join_what_is_still_there() {
    for name in names() {
        let mut q = queue(name);
        put(&mut q, 80, 1);
        put(&mut q, 200, 1);
        let first = match q.dispatch(Instant::ZERO) {
            Dispatch::Run(run) => run,
            other => panic!("{name}: {other:?}"),
        };
        // At the device: a neighbour of it is a run of its own, one of the other joins that.
        let other = if first.lba == 80 { 200 } else { 80 };
        put(&mut q, first.lba + 8, 1);
        put(&mut q, other + 8, 1);
        q.complete(first.head, mmc_sched::Outcome { blocks: 8, failed: false }, Instant::ZERO)
            .expect("at the device");
        let mut out = runs(&mut q);
        out.sort_unstable();
        let mut expected = [(first.lba + 8, 8, 1), (other, 16, 2)];
        expected.sort_unstable();
        assert_eq!(out, expected, "{name}");
    }
}

/// `merge` finds nothing for one request, and what is inserted then is another one, which does find something: that
/// nothing was found before must not count for it, in whatever they differ.
#[test]
fn a_request_is_not_taken_for_the_one_that_was_looked_up_before() {
    let it = Request { flags: Flags::SYNC, ..Request::new(Op::Write, 88, 8, StreamId(1)) };
    let best = |level| Priority { class: Class::BestEffort, level };
    for other in [
        Request { lba: 96, ..it },
        Request { stream: StreamId(2), ..it },
        Request { op: Op::Read, ..it },
        Request { op: Op::Discard, ..it },
        Request { flags: Flags::empty(), ..it },
        Request { priority: best(0), ..it },
        Request { priority: Priority { class: Class::Idle, level: 0 }, ..it },
        Request { priority: Priority { class: Class::None, level: 1 }, ..it },
    ] {
        for (asked, inserted) in [(other, it), (it, other)] {
            let mut q = queue("bfq");
            // Each finds its own kind before it.
            let before = Request { lba: inserted.lba - 8, ..inserted };
            q.insert(before, Instant::ZERO).expect("there is room");
            assert_eq!(q.merge(&asked, Instant::ZERO), None, "{asked:?} behind {before:?}");
            let answer = q.insert(inserted, Instant::ZERO).expect("there is room").1;
            assert!(matches!(answer, Inserted::Merged { .. }), "{inserted:?} after {asked:?}: {answer:?}");
        }
    }
}

#[test]
fn a_run_is_as_old_as_its_oldest_request() {
    for name in names().filter(|n| *n != "kyber") {
        // The left one is older, or the right one, when a third closes the gap between them.
        for [first, second] in [[100_000, 100_016], [100_016, 100_000]] {
            let mut q = queue(name);
            let set: &[_] = match name {
                "mq-deadline" | "deadline" => &[("write_expire", "200"), ("fifo_batch", "1")],
                _ => &[("fifo_expire_sync", "200")],
            };
            for (tunable, value) in set {
                q.tune(tunable, value).expect("a tunable of this policy");
            }
            let at = Instant::from_millis;
            // One that is nearer waits since between the two.
            for (ms, lba) in [(0, first), (50, 80), (60, 0), (100, second), (101, 100_008)] {
                let request = Request { flags: Flags::SYNC, ..Request::new(Op::Write, lba, 8, StreamId(1)) };
                if q.merge(&request, at(ms)).is_none() {
                    q.insert(request, at(ms)).expect("there is room");
                }
            }
            // Only the oldest is due. (bfq and mq-deadline look for that after a first one.)
            let mut order = Vec::new();
            while let Dispatch::Run(run) = q.dispatch(at(210)) {
                order.push(run.lba);
                let mut next = Some(run.head);
                while let Some(id) = next {
                    next = q.next_member(id);
                    q.complete(id, mmc_sched::Outcome { blocks: 8, failed: false }, at(210)).expect("there");
                }
            }
            let place =
                |lba| order.iter().position(|&l| l == lba).unwrap_or_else(|| panic!("{name}: {order:?}"));
            assert!(place(100_000) < place(80), "{name}, {first} first: {order:?}");
            assert_eq!(order.len(), 3, "{name}");
        }
    }
}

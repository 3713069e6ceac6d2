//! What makes no sense has a defined result under every policy, changes nothing, and never panics.

mod support;

use mmc_sched::{
    AnyPolicy, Class, Dispatch, Flags, Kind, Limits, Merges, NoPolicy, Op, Outcome, Priority, Queue,
    Rejected, Request, RequestId, Run, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

const OK: Outcome = Outcome { blocks: 8, failed: false };

type Any = Queue<Vec<Slot>, AnyPolicy>;

fn names() -> impl Iterator<Item = &'static str> {
    AnyPolicy::NAMES.iter().copied().chain(cfg!(feature = "mq-deadline").then_some("mq-deadline/5.10"))
}

fn queue(name: &str, slots: usize) -> Any {
    Queue::new(vec![Slot::FREE; slots], AnyPolicy::by_name(name).expect("built in"))
}

fn request(lba: u64) -> Request {
    Request::new(Op::Write, lba, 8, StreamId(1))
}

fn members(q: &Any, run: &Run) -> Vec<RequestId> {
    std::iter::successors(Some(run.head), |id| q.next_member(*id)).collect()
}

/// Sends and completes all that is queued; how many requests ended.
fn drain(q: &mut Any, now: &mut Instant) -> usize {
    let mut over = 0;
    for _ in 0..200_000 {
        match q.dispatch(*now) {
            Dispatch::Run(run) => {
                for id in members(q, &run) {
                    let whole = q.request(id).expect("a member").blocks;
                    let blocks = if run.count == 1 { run.blocks } else { whole };
                    let done =
                        q.complete(id, Outcome { blocks, failed: false }, *now).expect("at the device");
                    over += usize::from(done.last);
                }
            }
            Dispatch::Wait { at: Some(at), .. } => *now = at,
            Dispatch::Wait { at: None, .. } => panic!("{}: nothing is at the device", q.name()),
            Dispatch::Empty => return over,
        }
    }
    panic!("{}: {} requests never went out", q.name(), q.queued());
}

#[test]
fn the_list_of_names_is_what_by_name_takes() {
    for name in AnyPolicy::NAMES {
        assert_eq!(queue(name, 1).name(), *name);
        let error = NoPolicy::Unknown.to_string();
        assert!(error.contains(name), "{error} does not name {name}");
    }
    for name in ["", "noop", "BFQ", "bfq ", "mq-deadline/", "mq-deadline/4.0", "none/7.3"] {
        assert_eq!(AnyPolicy::by_name(name).err(), Some(NoPolicy::Unknown), "{name:?}");
    }
}

#[test]
fn empty_and_wrapping_ranges_come_back() {
    for name in names() {
        let mut q = queue(name, 4);
        for (lba, blocks) in
            [(5, 0), (u64::MAX, 1), (u64::MAX - 6, 8), (1 << 63 | 1 << 62, 0), (u64::MAX, u32::MAX)]
        {
            let r = Request { blocks, ..request(lba) };
            assert_eq!(q.merge(&r, Instant::ZERO), None, "{name}");
            assert_eq!(q.insert(r, Instant::ZERO), Err((r, Rejected::BadRange)), "{name}");
            assert_eq!(q.insert_at_head(r, Instant::ZERO), Err((r, Rejected::BadRange)), "{name}");
        }
        assert!(q.is_empty() && q.dispatch(Instant::ZERO) == Dispatch::Empty, "{name}");
        // The last sectors there are, in one piece and in many.
        for r in
            [request(u64::MAX - 8), Request { blocks: u32::MAX, ..request(u64::MAX - u64::from(u32::MAX)) }]
        {
            q.insert(r, Instant::ZERO).expect("a range");
        }
        assert_eq!(drain(&mut q, &mut Instant::ZERO.clone()), 2, "{name}");
    }
}

#[test]
fn ids_of_others_of_the_past_and_of_the_queue_are_refused() {
    for name in names() {
        let (mut q, mut other) = (queue(name, 2), queue(name, 8));
        let mut now = Instant::ZERO;
        for n in 0..4 {
            other.insert(request(n * 100), now).expect("room");
        }
        let (foreign, _) = other.insert(request(900), now).expect("room");
        let (stale, _) = q.insert(request(0), now).expect("room");
        assert_eq!(q.complete(stale, OK, now), None, "{name}: not dispatched yet");
        assert_eq!(q.cancel(stale), Some(request(0)), "{name}");
        for id in [foreign, stale] {
            assert_eq!(q.complete(id, OK, now), None, "{name}");
            assert_eq!((q.request(id), q.next_member(id)), (None, None), "{name}");
            assert_eq!(q.cancel(id), None, "{name}");
            let run = Run {
                head: id,
                count: 1,
                op: Op::Write,
                flags: Flags::empty(),
                lba: 0,
                blocks: 8,
                offset: 0,
            };
            q.requeue(&run, now);
            assert!(q.is_empty() && q.dispatch(now) == Dispatch::Empty, "{name}");
        }
        // The slot is used again; the old name of it is still refused.
        let (id, _) = q.insert(request(0), now).expect("room");
        assert_eq!(
            (id.slot(), q.complete(stale, OK, now), q.cancel(stale)),
            (stale.slot(), None, None),
            "{name}"
        );
        assert_eq!(drain(&mut q, &mut now), 1, "{name}");
    }
}

/// Storage may serve one queue after another; a name is of one of them only.
#[test]
fn names_of_an_earlier_queue_in_the_same_storage_are_refused() {
    for name in names() {
        let mut slots = [Slot::FREE; 4];
        let policy = || AnyPolicy::by_name(name).expect("built in");
        let now = Instant::ZERO;
        let mut earlier = Queue::new(&mut slots[..], policy());
        let (old, _) = earlier.insert(request(0), now).expect("room");
        assert_eq!(earlier.cancel(old), Some(request(0)), "{name}");
        let mut later = Queue::new(&mut slots[..], policy());
        let (new, _) = later.insert(request(0), now).expect("room");
        assert!(new.slot() == old.slot() && new != old, "{name}");
        assert_eq!(later.request(old), None, "{name}");
        assert_eq!(later.cancel(old), None, "{name}");
        assert_eq!(later.cancel(new), Some(request(0)), "{name}");
    }
}

#[test]
fn a_request_completes_once_and_is_not_requeued_or_cancelled_afterwards() {
    for name in names() {
        let mut q = queue(name, 4);
        let mut now = Instant::ZERO;
        let (id, _) = q.insert(request(0), now).expect("room");
        let run = loop {
            match q.dispatch(now) {
                Dispatch::Run(run) => break run,
                Dispatch::Wait { at: Some(at), .. } => now = at,
                other => panic!("{name}: {other:?}"),
            }
        };
        assert_eq!(q.cancel(id), None, "{name}: it is at the device");
        assert!(q.complete(id, OK, now).expect("at the device").last, "{name}");
        assert_eq!(q.complete(id, OK, now), None, "{name}");
        q.requeue(&run, now);
        assert_eq!((q.cancel(id), q.len(), q.dispatch(now)), (None, 0, Dispatch::Empty), "{name}");
        // Requeued twice, it is queued once.
        q.insert(request(8), now).expect("room");
        let Dispatch::Run(run) = q.dispatch(now) else { panic!("{name}: a run") };
        q.requeue(&run, now);
        q.requeue(&run, now);
        assert_eq!((q.len(), q.queued(), drain(&mut q, &mut now)), (1, 1, 1), "{name}");
    }
}

#[test]
fn outcomes_of_impossible_sizes_end_the_request_all_the_same() {
    for name in names() {
        for blocks in [0, 1, u32::MAX] {
            for failed in [false, true] {
                let mut q = queue(name, 4);
                q.insert(request(0), Instant::ZERO).expect("room");
                let Dispatch::Run(run) = q.dispatch(Instant::ZERO) else { panic!("{name}: a run") };
                let done = q.complete(run.head, Outcome { blocks, failed }, Instant::ZERO);
                assert!(done.expect("at the device").last && q.is_empty(), "{name} {blocks}");
            }
        }
    }
}

#[test]
fn a_full_pool_gives_the_request_back_and_goes_on_after_a_completion() {
    for name in names() {
        for slots in [0, 1, 3] {
            let (mut q, mut now) = (queue(name, slots), Instant::ZERO);
            assert_eq!(q.capacity(), slots, "{name}");
            for n in 0..slots as u64 {
                q.insert(request(n * 100), now).expect("room");
            }
            for r in [request(8), request(5000)] {
                assert_eq!(q.merge(&r, now), None, "{name}: a merged request needs a slot too");
                assert_eq!(q.insert(r, now), Err((r, Rejected::Full)), "{name}");
                assert_eq!(q.insert_at_head(r, now), Err((r, Rejected::Full)), "{name}");
            }
            assert_eq!(drain(&mut q, &mut now), slots, "{name}");
            assert_eq!(q.insert(request(0), now).is_ok(), slots > 0, "{name}");
        }
        // Slots beyond the 65,535 that have numbers are not used.
        let mut q = queue(name, 65_600);
        assert_eq!(q.capacity(), 65_535, "{name}");
        q.set_limits(Limits { merges: Merges::None, ..Limits::default() });
        let mut left = 65_535;
        for n in 0..65_535 {
            left -= usize::from(q.insert(request(n * 16), Instant::ZERO).is_ok());
        }
        assert_eq!(left, 0, "{name}");
        assert!(matches!(q.insert(request(0), Instant::ZERO), Err((_, Rejected::Full))), "{name}");
    }
}

/// A policy that tells streams apart has room for a stated number of them; more are served all the same, or refused
/// by name.
#[test]
fn more_streams_than_there_is_room_for() {
    for name in names() {
        let (mut q, mut now, mut accepted) = (queue(name, 1024), Instant::ZERO, 0);
        for n in 0..1000u32 {
            let r = Request { stream: StreamId(n.wrapping_mul(0x9e37_79b9)), ..request(u64::from(n) * 100) };
            match q.insert(r, now) {
                Ok(_) => accepted += 1,
                Err((back, why)) => assert_eq!((back, why), (r, Rejected::Streams), "{name}"),
            }
        }
        assert!(accepted >= 32, "{name}: {accepted}");
        assert_eq!(drain(&mut q, &mut now), accepted, "{name}");
    }
}

#[test]
fn requests_with_every_field_at_its_end() {
    for name in names() {
        let (mut q, mut now) = (queue(name, 256), Instant::from_nanos(u64::MAX - 1_000));
        let mut accepted = 0;
        for op in [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes] {
            for class in [Class::None, Class::RealTime, Class::BestEffort, Class::Idle] {
                for (level, flags) in [(0, 0), (7, 0xff), (8, 1), (255, 0xff)] {
                    let r = Request {
                        op,
                        priority: Priority { class, level },
                        flags: Flags::from_bits_retain(flags),
                        stream: StreamId(u32::MAX - u32::from(level)),
                        ..request(u64::from(flags) * 1000 + 16)
                    };
                    let merged = q.merge(&r, now).is_some();
                    accepted += usize::from(merged || q.insert(r, now).is_ok());
                }
            }
        }
        assert_eq!(accepted, q.len(), "{name}");
        let mut over = 0;
        // At the end of time a wait may have no end that is later: what is then not sent stays queued.
        for _ in 0..10_000 {
            match q.dispatch(now) {
                Dispatch::Run(run) => {
                    for id in members(&q, &run) {
                        let outcome = Outcome { blocks: run.blocks, failed: false };
                        over += usize::from(q.complete(id, outcome, now).expect("at the device").last);
                    }
                }
                Dispatch::Wait { at, .. } => now = now.max(at.unwrap_or(now)) + Duration::from_nanos(1),
                Dispatch::Empty => break,
            }
        }
        assert_eq!(over + q.len(), accepted, "{name}");
        assert!(q.is_empty(), "{name}: {} left", q.len());
    }
}

#[test]
fn text_that_is_no_value_changes_nothing_and_values_are_kept_in_their_range() {
    let texts = [
        "",
        " ",
        "x",
        "-",
        "+",
        "0x",
        "5ms",
        "1e3",
        "1.5",
        "5 ",
        " 5",
        "--1",
        "\0",
        "\u{1f980}",
        "-1",
        "0",
        "1",
        "7",
        "2147483647",
        "2147483648",
        "-2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
    ];
    for name in names() {
        let mut q = queue(name, 64);
        let mut now = Instant::ZERO;
        for unknown in ["", "no_such", "fifo_batch ", "FIFO_BATCH", "\0"] {
            assert_eq!(q.tune(unknown, "1"), Err(TuneError::Unknown), "{name} {unknown:?}");
        }
        for i in 0.. {
            let Some(t) = q.tunable(i) else { break };
            assert!(!t.unit.is_empty(), "{name} {t:?}");
            for text in texts {
                let before: Vec<_> = (0..).map_while(|i| q.tunable(i)).map(|t| t.value).collect();
                let answer = q.tune(t.name, text);
                let all: Vec<_> = (0..).map_while(|i| q.tunable(i)).collect();
                // slice_idle_us shows what was set as slice_idle, which reaches farther.
                for t in all.iter().filter(|t| t.name != "slice_idle_us") {
                    assert!(t.min <= t.value && t.value <= t.max, "{name} {text:?}: {t:?}");
                }
                if let Err(e) = answer {
                    assert!(
                        matches!(e, TuneError::Invalid | TuneError::Range),
                        "{name} {} {text:?}: {e}",
                        t.name
                    );
                    let after: Vec<_> = all.iter().map(|t| t.value).collect();
                    assert_eq!(after, before, "{name} {} {text:?}", t.name);
                }
                // It still works: everything goes out.
                for n in 0..6u32 {
                    let op = if n % 2 == 0 { Op::Read } else { Op::Write };
                    let r = Request { op, stream: StreamId(n), ..request(u64::from(n) * 800) };
                    q.insert(r, now).expect("room");
                }
                let kinds = [Kind::Read, Kind::SyncWrite, Kind::Async];
                assert!(
                    kinds.iter().all(|k| (1..=16).contains(&q.admits(*k, 16))),
                    "{name} {} {text:?}",
                    t.name
                );
                assert!(kinds.iter().all(|k| q.admits(*k, 0) == 1), "{name}: at least 1, of none even");
                assert_eq!(drain(&mut q, &mut now), 6, "{name} {} {text:?}", t.name);
            }
        }
        assert_eq!(q.tunable(usize::MAX), None, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(48), ..ProptestConfig::default() })]

    /// A call at an earlier instant is a call at the latest instant seen: the same answers, to the last one.
    #[test]
    fn time_that_runs_backwards_counts_as_standing_still(
        steps in prop::collection::vec((0u8..6, 0u64..500, 0u64..40, 0u32..4), 1..80),
    ) {
        for name in names() {
            let (mut back, mut still) = (queue(name, 16), queue(name, 16));
            let mut latest = Instant::ZERO;
            let mut out: Vec<(RequestId, u32)> = Vec::new();
            for (what, ms, lba, stream) in &steps {
                let now = Instant::from_millis(*ms);
                if *what == 5 && out.is_empty() {
                    continue;
                }
                latest = latest.max(now);
                match what {
                    0..=2 => {
                        let r = Request { stream: StreamId(*stream), ..request(lba * 8) };
                        prop_assert_eq!(back.insert(r, now), still.insert(r, latest), "{}", name);
                    }
                    3 | 4 => {
                        let (a, b) = (back.dispatch(now), still.dispatch(latest));
                        prop_assert_eq!(a, b, "{}", name);
                        if let Dispatch::Run(run) = a {
                            for id in members(&back, &run) {
                                let whole = back.request(id).expect("a member").blocks;
                                out.push((id, if run.count == 1 { run.blocks } else { whole }));
                            }
                        }
                    }
                    _ => {
                        let (id, blocks) = out.remove(*ms as usize % out.len());
                        let outcome = Outcome { blocks, failed: false };
                        prop_assert_eq!(back.complete(id, outcome, now), still.complete(id, outcome, latest), "{}", name);
                    }
                }
                prop_assert_eq!((back.wake_at(), back.len()), (still.wake_at(), still.len()), "{}", name);
            }
        }
    }
}

//! Guarantee G1 for traces: no input makes `explain` panic or take for ever, and whatever the stamps say no time is negative.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use flate2::read::GzDecoder;
use mmc_lab::analysis::{Analysis, Options, Report};
use mmc_lab::trace::ftrace;
use mmc_lab::trace::model::{Event, Kind, Line};
use proptest::prelude::*;

static TRACE: LazyLock<Vec<u8>> = LazyLock::new(|| text_of("mv510-mq"));

/// Two kernels; many merges, at both ends; requests given back by the driver.
static EXACT: LazyLock<[Vec<Event>; 2]> =
    LazyLock::new(|| ["bv510-mq", "b612-mq"].map(|name| read(&text_of(name)).0));

fn text_of(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.ftrace.txt.gz"));
    let mut text = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut text).unwrap();
    text
}

/// Every request a victim, so that every one can be looked at.
const ALL: Options = Options { busy: 0, top: usize::MAX, threshold: None, hung: 1_000_000_000 };

fn read(text: &[u8]) -> (Vec<Event>, u64) {
    let (mut events, mut odd) = (Vec::new(), 0);
    let mut input = mmc_lab::trace::plain(Cursor::new(text.to_vec())).unwrap();
    let _ = ftrace::read(&mut *input, |line| match line {
        Line::Event(event) => events.push(event),
        Line::Odd => odd += 1,
        _ => {}
    });
    (events, odd)
}

fn analyse(events: &[Event], options: Options) -> Report {
    let mut analysis = Analysis::new(options);
    events.iter().for_each(|event| analysis.push(event));
    analysis.finish()
}

fn check(report: &Report) {
    for v in &report.victims {
        assert_eq!(v.wait, v.tag_wait + v.sched_wait + v.service, "{v:?}");
        assert_eq!(v.ahead.requests, v.ahead.older + v.ahead.younger, "{v:?}");
    }
    serde_json::to_string(report).unwrap();
    assert!(!mmc_lab::blame::verdict(report, ALL.hung, None).is_empty());
}

fn any_event() -> impl Strategy<Value = Event> {
    use Kind::{BackMerge, BioQueue, Complete, FrontMerge, GetRq, Insert, Issue, Requeue, RqMerge};
    let kind = prop::sample::select(vec![
        BioQueue, GetRq, BackMerge, FrontMerge, RqMerge, Insert, Issue, Requeue, Complete,
    ]);
    let at = prop_oneof![8 => 0..20_u64, 1 => any::<u64>()];
    let sector = prop_oneof![8 => 0..8_u64, 1 => any::<u64>()];
    let sectors = prop_oneof![8 => 0..4_u32, 1 => any::<u32>()];
    let rwbs = prop::sample::select(vec!["R", "W", "WS", "FF", "FWS", "D"]);
    let task = prop::sample::select(vec!["jbd2/x-8", "a", "b"]);
    (at, kind, sector, sectors, rwbs, task).prop_map(|(at, kind, sector, sectors, rwbs, task)| Event {
        at,
        kind,
        dev: (8, 0),
        task: Arc::from(task),
        pid: 7,
        rwbs: Arc::from(rwbs),
        sector,
        sectors,
    })
}

proptest! {
    // A quarter of the usual number, which the variable PROPTEST_CASES scales.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..2_000), gzip in any::<bool>()) {
        let text = if gzip { [&[0x1f, 0x8b], &bytes[..]].concat() } else { bytes };
        check(&analyse(&read(&text).0, ALL));
    }

    #[test]
    fn any_events_have_a_report(events in prop::collection::vec(any_event(), 0..300)) {
        check(&analyse(&events, ALL));
    }

    #[test]
    fn any_cut_of_a_trace_is_read_as_far_as_it_goes(cut in 0..TRACE.len()) {
        let (events, odd) = read(&TRACE[..cut]);
        let whole = read(&TRACE).0;
        prop_assert!(odd <= 1);
        prop_assert_eq!(&events[..], &whole[..events.len()]);
        let lines = TRACE[..cut].split(|&b| b == b'\n').filter(|l| l.windows(7).any(|w| w == b": block")).count();
        prop_assert!(events.len() + 1 >= lines);
        check(&analyse(&events, ALL));
    }

    #[test]
    fn flipped_bytes_cost_only_their_lines(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut text = TRACE.clone();
        for (place, byte) in &flips {
            let place = place.index(text.len());
            text[place] = *byte;
        }
        let events = read(&text).0;
        // A byte may also join two lines or split one.
        prop_assert!(events.len() + 2 * flips.len() >= read(&TRACE).0.len());
        check(&analyse(&events, ALL));
    }

}

proptest! {
    // These are long: a sixteenth.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 16, ..ProptestConfig::default() })]

    #[test]
    fn a_clock_of_ten_milliseconds_finds_the_same_victim(seed in any::<u64>(), which in 0..2_usize) {
        const TICK: u64 = 10_000_000;
        let longest = Options { top: 1, ..ALL };
        let exact = analyse(&EXACT[which], longest);
        let mut random = seed;
        let mut coarse: Vec<_> = EXACT[which]
            .iter()
            .map(|event| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33, Event { at: event.at / TICK * TICK, ..event.clone() })
            })
            .collect();
        coarse.sort_by_key(|(random, event)| (event.at, *random));
        let coarse: Vec<_> = coarse.into_iter().map(|(_, event)| event).collect();
        let found = analyse(&coarse, longest);
        check(&found);
        prop_assert!(!found.clock.ordered);
        prop_assert_eq!(found.clock.granularity, Some(TICK));
        prop_assert_eq!((found.requests, found.unfinished, found.unmatched), (exact.requests, 0, 0));
        let (found, exact) = (&found.victims[0], &exact.victims[0]);
        prop_assert!(found.wait.abs_diff(exact.wait) <= 2 * TICK, "{:?} {:?}", found, exact);
        prop_assert_eq!((&found.task, found.sector), (&exact.task, exact.sector));
    }
}

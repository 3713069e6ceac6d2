//! Guarantee G1 for traces: no input makes `explain` panic or take for ever, and whatever the stamps say no time is negative.

use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use flate2::read::GzDecoder;
use mmc_lab::analysis::{Analysis, Class, Options, Report};
use mmc_lab::trace::ftrace;
use mmc_lab::trace::model::{Event, Kind, Line};
use mmc_lab::trace::order::Ordered;
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
    fn whatever_the_stamps_every_event_comes_out_of_the_window_once(events in prop::collection::vec(any_event(), 0..600), end in 0..600_usize) {
        let (mut order, mut out) = (Ordered::default(), Vec::new());
        let mut taken = |order: &mut Ordered| {
            while let Some(event) = order.due() {
                out.push(event.clone());
                order.pop();
            }
        };
        for (i, event) in events.iter().enumerate() {
            order.put(event.clone());
            if i == end {
                order.end();
            }
            taken(&mut order);
        }
        order.end();
        taken(&mut order);
        let steps_back = out.windows(2).filter(|w| w[1].at < w[0].at).count() as u64;
        prop_assert!(steps_back <= order.too_late(), "{steps_back} {}", order.too_late());
        let key = |e: &Event| (e.at, e.sector, e.sectors, e.kind as u8, e.rwbs.to_string(), e.task.to_string());
        let sorted = |events: &[Event]| {
            let mut all: Vec<_> = events.iter().map(key).collect();
            all.sort();
            all
        };
        prop_assert_eq!(sorted(&out), sorted(&events));
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

/// What `explain` says of a text.
fn explained(text: &[u8]) -> mmc_lab::cli::explain::Explanation {
    mmc_lab::cli::explain::explain_input(&mut &text[..], "the trace", ALL, false).unwrap()
}

fn lines() -> Vec<&'static [u8]> {
    TRACE.split_inclusive(|&b| b == b'\n').collect()
}

/// Requests, waits by class, the longest wait.
fn essence(r: &Report) -> (u64, String, String) {
    (r.requests, format!("{:?}", r.classes), format!("{:?}", r.victims.first()))
}

#[test]
fn lines_of_others_between_change_nothing_and_what_is_no_line_is_counted() {
    let whole = explained(&TRACE);
    let (mut text, mut odd) = (Vec::new(), 0);
    for (i, line) in lines().into_iter().enumerate() {
        text.extend_from_slice(line);
        match i % 7 {
            // Another disk, a kernel log, another tool's line, a mark that quotes a line, and what no tool writes.
            0 => text.extend_from_slice(b"   x-1 [001] .... 1.0: block_rq_issue: 8,0 R 4096 () 64 + 8 [x]\n"),
            1 => text.extend_from_slice(b"   x-1 [001] .... 1.0: sched_switch: prev_comm=x ==> next_comm=block_rq_issue\n"),
            2 => text.extend_from_slice(b"   x-1 [001] .... 1.0: tracing_mark_write: y-1 [0] .... 1.0: block_getrq: 179,0 R 1 + 2 [x]\n"),
            3 => {
                text.extend_from_slice(b"[ 1094.1] INFO: task jbd2 blocked\n");
                odd += 1;
            }
            4 => {
                text.extend_from_slice(b"\x00\xff\xfeELF\x7f block_rq_issue: \x00\x00]\n");
                odd += 1;
            }
            5 => text.extend_from_slice(b"\r\n\n"),
            _ => {}
        }
    }
    let found = explained(&text);
    assert_eq!(essence(&found.report), essence(&whole.report));
    assert_eq!(found.events, whole.events);
    let notes = found.notes.join("\n");
    assert!(notes.contains(&format!("{odd} of ")) && notes.contains("8,0 with"), "{notes}");
}

#[test]
fn every_line_twice_makes_no_wait_longer_and_none_negative() {
    let twice: Vec<u8> = lines().into_iter().flat_map(|line| [line, line]).flatten().copied().collect();
    let (once, found) = (explained(&TRACE).report, explained(&twice).report);
    check(&found);
    assert!(found.victims[0].wait <= once.victims[0].wait, "{:?}", found.victims[0]);
    assert!(found.victims[0].wait >= once.victims[0].wait / 2, "{:?}", found.victims[0]);
    // The whole trace twice, one behind the other: the clock goes back, and that is said.
    let again = explained(&[&TRACE[..], &TRACE].concat());
    check(&again.report);
    assert_eq!(again.report.clock.backwards, 1);
    assert!(again.notes.iter().any(|n| n.contains("earlier than the event before")), "{:?}", again.notes);
    assert_eq!(again.report.victims[0].wait, once.victims[0].wait);
}

/// `all` with each run of so many put in an order of chance.
fn shuffled<T: Clone>(all: &[T], window: usize) -> Vec<T> {
    let mut random = window as u64;
    let mut out = all.to_vec();
    for part in out.chunks_mut(window) {
        for i in (1..part.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            part.swap(i, (random >> 33) as usize % (i + 1));
        }
    }
    out
}

#[test]
fn lines_out_of_order_are_put_back_whatever_tool_wrote_them() {
    // Records of blktrace: 48 bytes and a payload.
    let records = |bytes: &[u8]| {
        let (mut rest, mut all) = (bytes, Vec::new());
        while let Some(length) = rest.get(46..48) {
            let (one, after) = rest.split_at(48 + usize::from(u16::from_le_bytes([length[0], length[1]])));
            (rest, _) = (after, all.push(one.to_vec()));
        }
        all
    };
    for name in [
        "mv510-mq.ftrace.txt.gz",
        "m612-mq.ftrace.txt.gz",
        "loop618-mq.perf.txt.gz",
        "mv510-mq.blkparse.txt.gz",
        "mv510-mq.blktrace.0.gz",
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        let mut bytes = Vec::new();
        GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
        let all = match name.contains("blktrace") {
            true => records(&bytes),
            false => bytes.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect(),
        };
        // The begin of a text tells which tool wrote it, and the end of one of blkparse is a summary.
        let (begin, end) = (all.len().min(40), all.len() - 40.min(all.len()));
        let whole = explained(&bytes);
        for window in [2, 10, 100] {
            // A record of blktrace that names a task (its action has the bit of notes) comes before the task's first event.
            let is_name = |one: &Vec<u8>| name.contains("blktrace") && one[31] & 4 != 0;
            let (mut middle, others): (Vec<_>, Vec<_>) = all[begin..end].iter().cloned().partition(is_name);
            middle.extend(shuffled(&others, window));
            let parts = [&all[..begin], &middle, &all[end..]];
            let found = explained(&parts.concat().concat());
            check(&found.report);
            assert_eq!(essence(&found.report), essence(&whole.report), "{name} by {window}");
            assert_eq!(found.events, whole.events, "{name} by {window}");
            let done = |r: &Report| (r.requests, r.unfinished, r.unmatched, r.clock.early, r.queue_depth_max);
            assert_eq!(done(&found.report), done(&whole.report), "{name} by {window}");
            let clock = &found.report.clock;
            assert!(
                clock.backwards > 20 && !clock.ordered && clock.late == 0,
                "{name} by {window}: {clock:?}"
            );
            let told = "they were put in the order of their stamps; record again";
            assert!(found.notes.iter().any(|n| n.contains(told)), "{:?}", found.notes);
        }
    }
}

#[test]
fn lines_too_far_out_of_order_are_used_as_they_come_and_counted() {
    let whole = explained(&TRACE);
    let found = explained(&shuffled(&lines(), 2000).concat());
    check(&found.report);
    assert_eq!(found.events, whole.events);
    let late = found.report.clock.late;
    assert!(late > 1000, "{late}");
    assert!(found.notes.iter().any(|n| n.contains(&format!("but for {late} that came more than 128"))));
}

#[test]
fn a_completion_with_a_stamp_before_its_issue_ends_its_request_all_the_same() {
    // The clock of the CPU that hears the card is behind: by less than the card takes for anything, and by more.
    let whole = analyse(&EXACT[0], ALL);
    for behind in [1_000_000, 9_000_000] {
        let skewed = EXACT[0].iter().map(|e| match e.kind {
            Kind::Complete => Event { at: e.at.saturating_sub(behind), ..e.clone() },
            _ => e.clone(),
        });
        let mut skewed: Vec<Event> = skewed.collect();
        skewed.sort_by_key(|e| e.at);
        let found = analyse(&skewed, ALL);
        check(&found);
        // Until something shows that the clocks disagree, a second completion before its request looks like the true end of
        // the first request, whose own completion looks like one from before the trace: one request (of two bios) is missed so.
        let missed = u64::from(behind > 5_000_000);
        assert_eq!(found.requests, whole.requests, "{behind}");
        assert_eq!(found.unfinished, whole.unfinished + missed, "{behind}");
        assert_eq!(found.unmatched, whole.unmatched + missed, "{behind}");
        let n = |r: &Report| Class::ALL.iter().map(|&class| r.classes.get(class).n).sum::<u64>();
        assert!(n(&whole) - n(&found) <= 2 * missed, "{behind}: {} of {}", n(&found), n(&whole));
        let ended = |v: &&mmc_lab::analysis::Victim| v.completed.is_some();
        let longest = |r: &Report| r.victims.iter().filter(ended).map(|v| v.wait).max().unwrap();
        assert!(longest(&found).abs_diff(longest(&whole)) <= behind, "{behind}");
        assert_eq!(found.clock.early > 0, behind > 5_000_000, "{behind}: {:?}", found.clock);
        let told = found.clock.advice().is_some_and(|a| a.contains("before the issue of their request"));
        assert_eq!(told, found.clock.early > 0, "{:?}", found.clock);
    }
}

#[test]
fn a_file_of_something_else_is_refused_and_named() {
    let image: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for foreign in [
        &image[..],
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"{\"jobs\": []}",
        b"<html>\n<body>block_rq_issue</body>\n",
    ] {
        let e = mmc_lab::cli::explain::explain_input(&mut &foreign[..], "it", ALL, false).unwrap_err();
        let text = e.to_string();
        assert!(e.status() == 1 && text.contains("holds no block event") && !text.contains('\n'), "{text}");
    }
}

/// Five times the trace, and hardly more memory: of what is done nothing is kept but its time.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_trace() {
    let most = |size: &str| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
            .args(["bench", "explain", "--size", size])
            .output()
            .unwrap();
        let object: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        object["most_memory_bytes"].as_u64().unwrap()
    };
    let (small, large) = (most("8M"), most("40M"));
    assert!(large < small + (6 << 20), "{small} for 8 MiB, {large} for 40 MiB");
}

/// A request of one task for eight sectors: queued, and what follows a microsecond after each other, done at `done`.
fn request(sector: u64, at: u64, done: u64) -> Vec<Event> {
    let kinds = [Kind::BioQueue, Kind::GetRq, Kind::Insert, Kind::Issue, Kind::Complete];
    let stamps = [at, at + 1000, at + 2000, at + 3000, done];
    let (task, rwbs): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("WS"));
    let event = |(kind, at)| Event {
        at,
        kind,
        dev: (8, 0),
        task: task.clone(),
        pid: 7,
        rwbs: rwbs.clone(),
        sector,
        sectors: 8,
    };
    kinds.into_iter().zip(stamps).map(event).collect()
}

#[test]
fn a_stray_completion_does_not_end_the_writes_of_the_same_sectors_that_follow() {
    // The trace begins while a write is on its way; the same sectors are written again and again, as the end of a log is.
    let mut events: Vec<Event> =
        (0..200).flat_map(|k| request(64, 1_000_000 * k, 1_000_000 * k + 700_000)).collect();
    events.drain(..4);
    let report = analyse(&events, ALL);
    check(&report);
    let done: Vec<u64> = report.victims.iter().filter(|v| v.completed.is_some()).map(|v| v.service).collect();
    let right = done.iter().filter(|&&s| s == 697_000).count();
    assert!(right >= 198, "{right} of {}", done.len());
}

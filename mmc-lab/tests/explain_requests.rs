//! How lines become requests: splits, merges, partial completions, requests given back, flushes, tag waits.

use mmc_lab::analysis::{Analysis, Options, Report, Victim};
use mmc_lab::blame::Blame;
use mmc_lab::trace::ftrace::Parser;
use mmc_lab::trace::model::Line;

/// Analyses lines of the form `stamp event fields`, where stamps are seconds and every request is a victim.
fn analyse(lines: &str) -> Report {
    let mut analysis = Analysis::new(Options { top: 1000, threshold: None, ..Options::default() });
    let mut parser = Parser::default();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (stamp, rest) = line.split_once(' ').unwrap();
        let (event, fields) = rest.split_once(' ').unwrap();
        let whole = format!("x-1 [000] .... {stamp}: block_{event}: 8,0 {fields}");
        match parser.line(whole.as_bytes()) {
            Line::Event(event) => analysis.push(&event),
            other => panic!("{line}: {other:?}"),
        }
    }
    analysis.finish()
}

fn at(report: &Report, sector: u64) -> &Victim {
    report.victims.iter().find(|v| v.sector == sector).unwrap()
}

const S: u64 = 1_000_000_000;

#[test]
fn threads_of_one_name_sleep_each_for_itself() {
    let mut analysis = Analysis::new(Options::default());
    let mut parser = Parser::default();
    let mut line = |pid: u32, stamp: u32, event: &str, fields: &str| {
        let whole = format!("x-{pid} [000] .... {stamp}.000000: block_{event}: 8,0 {fields}");
        match parser.line(whole.as_bytes()) {
            Line::Event(event) => analysis.push(&event),
            other => panic!("{whole}: {other:?}"),
        }
    };
    line(1, 10, "bio_queue", "R 0 + 8 [x]");
    line(1, 10, "rq_insert", "R 4096 () 0 + 8 [x]");
    for stamp in [15, 20, 25, 30, 35] {
        // Another thread of the same name is served again and again.
        line(2, stamp, "bio_queue", "R 80 + 8 [x]");
        line(2, stamp, "rq_insert", "R 4096 () 80 + 8 [x]");
        line(9, stamp, "rq_issue", "R 4096 () 80 + 8 [k]");
        line(9, stamp + 1, "rq_complete", "R () 80 + 8 [0]");
    }
    line(9, 39, "rq_issue", "R 4096 () 0 + 8 [k]");
    line(9, 40, "rq_complete", "R () 0 + 8 [0]");
    let report = analysis.finish();
    assert_eq!(report.tasks, 2);
    let hung: Vec<_> = report.hung.iter().map(|h| (h.task.as_str(), h.slept)).collect();
    assert_eq!(hung, [("x", 30 * S)]);
}

#[test]
fn the_pieces_of_a_split_bio_wait_from_its_queueing() {
    let report = analyse(
        "1.0 bio_queue W 0 + 32 [w]
         1.0 getrq W 0 + 16 [w]
         1.0 rq_insert W 8192 () 0 + 16 [w]
         2.0 rq_issue W 8192 () 0 + 16 [k]
         3.0 rq_complete W () 0 + 16 [0]
         6.0 getrq W 16 + 16 [w]
         6.0 rq_insert W 8192 () 16 + 16 [w]
         7.0 rq_issue W 8192 () 16 + 16 [k]
         8.0 rq_complete W () 16 + 16 [0]",
    );
    let second = at(&report, 16);
    assert_eq!((second.tag_wait, second.sched_wait, second.service), (5 * S, S, S));
    assert_eq!((second.queued, second.blame), (Some(S), Blame::Tags));
    // The bio itself is answered by its first piece.
    let stats = report.classes.async_writes;
    assert_eq!((report.per_bio, stats.n, stats.max), (true, 1, Some(2 * S)));
}

#[test]
fn a_task_that_waits_for_a_tag_sleeps() {
    let report = analyse(
        "1.0 bio_queue W 0 + 8 [w]
         1.0 getrq W 0 + 8 [w]
         1.0 rq_insert W 4096 () 0 + 8 [w]
         1.1 bio_queue W 64 + 8 [w]
         13.0 rq_issue W 4096 () 0 + 8 [k]
         13.5 rq_complete W () 0 + 8 [0]
         13.5 getrq W 64 + 8 [w]",
    );
    let [hung] = &report.hung[..] else { panic!("{:?}", report.hung) };
    assert_eq!((hung.task.as_str(), hung.waits_for.as_str()), ("w", "free tag"));
    assert_eq!((hung.slept, hung.ahead.requests, hung.ahead.older), (12_400_000_000, 1, 1));
}

#[test]
fn merged_bios_ride_in_one_request() {
    let report = analyse(
        "1.0 bio_queue W 16 + 8 [w]
         1.0 getrq W 16 + 8 [w]
         1.0 rq_insert W 4096 () 16 + 8 [w]
         2.0 bio_queue W 24 + 8 [w]
         2.0 bio_backmerge W 24 + 8 [w]
         3.0 bio_queue W 8 + 8 [w]
         3.0 bio_frontmerge W 8 + 8 [w]
         4.0 rq_issue W 12288 () 8 + 24 [k]
         5.0 rq_complete W () 8 + 24 [0]",
    );
    let [one] = &report.victims[..] else { panic!("{:?}", report.victims) };
    assert_eq!((one.sector, one.sectors, one.wait), (8, 24, 4 * S));
    assert_eq!((report.requests, report.unfinished), (1, 0));
    let bios = report.classes.async_writes;
    assert_eq!((bios.n, bios.p50, bios.max), (3, Some(3 * S), Some(4 * S)));
}

#[test]
fn a_request_merged_into_another_keeps_the_longer_history() {
    let report = analyse(
        "1.0 getrq W 8 + 8 [old]
         1.0 rq_insert W 4096 () 8 + 8 [old]
         2.0 getrq W 0 + 8 [new]
         2.0 rq_insert W 4096 () 0 + 8 [new]
         2.0 rq_merge W 4096 () 8 + 8 [new]
         3.0 rq_issue W 8192 () 0 + 16 [k]
         4.0 rq_complete W () 0 + 16 [0]",
    );
    let [one] = &report.victims[..] else { panic!("{:?}", report.victims) };
    assert_eq!((one.task.as_str(), one.sector, one.sectors, one.wait), ("old", 0, 16, 3 * S));
    assert_eq!((report.requests, report.queue_depth_max, report.unfinished), (1, 2, 0));
}

#[test]
fn a_request_may_complete_in_parts() {
    let report = analyse(
        "1.0 rq_insert R 16384 () 0 + 32 [r]
         2.0 rq_issue R 16384 () 0 + 32 [k]
         3.0 rq_complete R () 0 + 8 [0]
         4.0 rq_complete R () 8 + 24 [0]",
    );
    let [one] = &report.victims[..] else { panic!("{:?}", report.victims) };
    assert_eq!((one.sector, one.sectors, one.wait, one.service), (0, 32, 3 * S, 2 * S));
    assert!(!report.per_bio && report.classes.reads.n == 1);
}

#[test]
fn what_the_driver_gave_back_counts_once() {
    let report = analyse(
        "1.0 rq_insert W 4096 () 0 + 8 [w]
         1.1 rq_insert W 4096 () 64 + 8 [w]
         1.2 rq_requeue W () 0 + 8 [0]
         2.0 rq_issue W 4096 () 0 + 8 [k]
         2.1 rq_requeue W () 0 + 8 [0]
         2.2 rq_insert W 4096 () 0 + 8 [k]
         3.0 rq_issue W 4096 () 0 + 8 [k]
         4.0 rq_complete W () 0 + 8 [0]
         4.0 rq_issue W 4096 () 64 + 8 [k]
         5.0 rq_complete W () 64 + 8 [0]",
    );
    assert_eq!((report.requests, report.queue_depth_max, report.unfinished), (2, 2, 0));
    let first = at(&report, 0);
    assert_eq!((first.inserted, first.issued, first.sched_wait), (Some(S), Some(3 * S), 2 * S));
    assert_eq!((at(&report, 64).ahead.requests, at(&report, 64).ahead.older), (1, 1));
}

#[test]
fn who_goes_first_is_older_or_younger() {
    let report = analyse(
        "1.0 rq_insert W 524288 () 0 + 1024 [w]
         1.1 rq_insert WS 4096 () 9000 + 8 [jbd2/x-8]
         1.2 rq_insert R 4096 () 5000 + 8 [r]
         2.0 rq_issue W 524288 () 0 + 1024 [k]
         2.1 rq_issue R 4096 () 5000 + 8 [k]
         2.2 rq_issue FF 0 () 0 + 0 [k]
         2.3 rq_issue WS 4096 () 9000 + 8 [k]",
    );
    let victim = at(&report, 9000);
    assert_eq!((victim.ahead.requests, victim.ahead.older, victim.ahead.younger), (3, 1, 2));
    assert_eq!((victim.ahead.bytes, victim.ahead.by_class), (1032 * 512, [0, 1, 0, 2]));
    assert_eq!((report.unfinished, victim.completed), (4, None));
}

#[test]
fn a_read_and_a_write_of_one_sector_are_two_requests() {
    let report = analyse(
        "1.0 rq_insert W 4096 () 0 + 8 [w]
         2.0 rq_insert R 4096 () 0 + 8 [r]
         3.0 rq_issue R 4096 () 0 + 8 [k]
         4.0 rq_complete R () 0 + 8 [0]
         5.0 rq_issue W 4096 () 0 + 8 [k]
         9.0 rq_complete W () 0 + 8 [0]",
    );
    let waits: Vec<_> = report.victims.iter().map(|v| (v.rwbs.as_str(), v.wait / S)).collect();
    assert_eq!(waits, [("W", 8), ("R", 2)]);
}

#[test]
fn a_write_with_flushes_around_it_is_one_request() {
    // The block layer sends a flush of its own, then the data, and completes the request a second time, without sectors.
    let report = analyse(
        "1.0 bio_queue FWFSM 64 + 8 [jbd2/x-8]
         1.0 getrq FWFSM 64 + 8 [jbd2/x-8]
         1.1 rq_issue FF 0 () 0 + 0 [k]
         2.0 rq_complete FF () 18446744073709551615 + 0 [0]
         2.1 rq_issue WSM 4096 () 64 + 8 [k]
         3.0 rq_complete WSM () 64 + 8 [0]
         3.1 rq_issue FF 0 () 0 + 0 [k]
         4.0 rq_complete FF () 18446744073709551615 + 0 [0]
         4.0 rq_complete WSM () 72 + 0 [0]",
    );
    assert_eq!((report.requests, report.unfinished, report.unmatched), (3, 0, 0));
    let data = at(&report, 64);
    assert_eq!((data.task.as_str(), data.wait, data.service), ("jbd2/x-8", 2 * S, 900_000_000));
    assert_eq!((report.classes.journal.n, report.classes.journal.max), (1, Some(2 * S)));
    assert_eq!(report.queue_depth_max, 1, "flushes are not counted");
}

#[test]
fn what_began_before_the_trace_is_counted_apart() {
    let report = analyse(
        "1.0 rq_complete W () 0 + 8 [0]
         2.0 rq_issue R 4096 () 64 + 8 [k]
         3.0 rq_complete R () 64 + 8 [0]",
    );
    assert_eq!((report.requests, report.unmatched, report.victims.len()), (1, 1, 1));
    assert_eq!((at(&report, 64).inserted, at(&report, 64).blame), (None, Blame::Card));
}

//! Whatever tool recorded it, a trace says the same.

use std::fs;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use mmc_lab::analysis::{Analysis, Options, Report};
use mmc_lab::trace::model::{Event, Kind, Line};
use mmc_lab::trace::{plain, read, read_file};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(data(name)).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Events of the card, and lines that were no good.
fn events(bytes: &[u8]) -> (Vec<Event>, u64) {
    let (mut events, mut odd) = (Vec::new(), 0);
    read(&mut Cursor::new(bytes), |line| match line {
        Line::Event(event) => events.push(event),
        Line::Odd => odd += 1,
        _ => {}
    })
    .unwrap();
    (events, odd)
}

fn report(events: &[Event]) -> Report {
    let mut analysis =
        Analysis::new(Options { busy: 16, top: 0, threshold: Some(5_000_000_000), hung: 10_000_000_000 });
    events.iter().for_each(|e| analysis.push(e));
    analysis.finish()
}

/// What must not depend on the recorder.
fn essence(r: &Report) -> (u64, usize, u64, [u64; 3], Vec<(String, String)>) {
    let hung = r.hung.iter().map(|h| (h.task.clone(), h.waits_for.clone())).collect();
    (r.requests, r.victims.len(), r.queue_depth_max, [r.read_bytes, r.written_bytes, r.unmatched], hung)
}

#[test]
fn ftrace_blkparse_and_blktrace_of_one_run_agree() {
    for run in ["bv510-mq", "mv510-mq", "m612-mq"] {
        let forms = ["ftrace.txt", "blkparse.txt", "blktrace.0"].map(|form| {
            let (events, odd) = events(&unpacked(&format!("{run}.{form}.gz")));
            assert_eq!(odd, 0, "{run}.{form}");
            events
        });
        let reports = forms.each_ref().map(|events| report(events));
        for (form, other) in reports.iter().enumerate().skip(1) {
            assert_eq!(essence(&reports[0]), essence(other), "{run}, form {form}");
            for (a, b) in reports[0].victims.iter().zip(&other.victims) {
                assert_eq!(
                    (&a.task, &a.rwbs, a.sectors),
                    (&b.task, &b.rwbs, b.sectors),
                    "{run}, form {form}"
                );
                // ftrace has microseconds, blktrace nanoseconds, taken a little later.
                assert!(a.wait.abs_diff(b.wait) < 50_000, "{run}: {} and {}", a.wait, b.wait);
                assert_eq!(a.ahead.requests, b.ahead.requests, "{run}");
            }
        }
        // Event by event: the same requests in the same order.
        let of = |events: &[Event], kind| -> Vec<(u64, u32, String)> {
            let all = events.iter().filter(|e| e.kind == kind);
            all.map(|e| (e.sector, e.sectors, e.rwbs.to_string())).collect()
        };
        for kind in
            [Kind::Insert, Kind::Issue, Kind::Complete, Kind::RqMerge, Kind::FrontMerge, Kind::Requeue]
        {
            for other in &forms[1..] {
                assert_eq!(of(&forms[0], kind), of(other, kind), "{run} {kind:?}");
            }
        }
    }
}

#[test]
fn perf_script_is_read_and_so_are_events_of_others_in_it() {
    let bytes = unpacked("loop618-mq.perf.txt.gz");
    let (all, odd) = events(&bytes);
    assert_eq!((all.len(), odd), (335, 0));
    let first = &all[0];
    assert_eq!((&*first.task, first.pid, first.kind, first.sector), ("dd", 29315, Kind::BioQueue, 8742));
    assert_eq!(
        all.iter().find(|e| e.kind == Kind::Complete).map(|e| (&*e.task, e.pid)),
        Some(("ksoftirqd/0", 14))
    );
    // With other events between them, and as older versions print process and thread.
    let mixed: String = String::from_utf8(bytes)
        .unwrap()
        .lines()
        .flat_map(|line| {
            let other = "swapper     0 [000]  5395.956788: irq:irq_handler_entry: irq=30 name=mmc0";
            let switch =
                "dd 29315 [001]  5395.956800: sched:sched_switch: dd:29315 [120] D ==> swapper/1:0 [120]";
            [line.replacen(" 29315 ", " 29315/29315 ", 1), other.to_owned(), switch.to_owned()]
        })
        .collect::<Vec<_>>()
        .join("\n");
    assert_eq!(events(mixed.as_bytes()), (all, 0));
}

#[test]
fn trace_cmd_report_is_read() {
    let text = String::from_utf8(unpacked("mv510-mq.ftrace.txt.gz")).unwrap();
    let (expected, _) = events(text.as_bytes());
    let report: String = std::iter::once("cpus=1".to_owned())
        .chain(text.lines().filter(|l| !l.starts_with('#')).map(|line| {
            // No flags, and the fields in a column of their own.
            let line = line.replacen(" .... ", " ", 1).replacen(" ..s. ", " ", 1);
            match line.split_once(": block_") {
                Some((head, body)) => format!("{head}: block_{}", body.replacen(": ", ":        ", 1)),
                None => line,
            }
        }))
        .collect::<Vec<_>>()
        .join("\n");
    let (found, odd) = events(report.as_bytes());
    assert_eq!((found, odd), (expected, 0));
}

#[test]
fn the_files_of_all_cpus_are_put_together_by_their_stamps() {
    let whole = unpacked("m612-mq.blktrace.0.gz");
    let (expected, _) = events(&whole);
    // Records of one CPU, dealt to two; the names of processes go to both.
    let mut cpus = [Vec::new(), Vec::new()];
    let (mut at, mut turn) = (0, 0);
    while at < whole.len() {
        let said = u16::from_le_bytes([whole[at + 46], whole[at + 47]]) as usize;
        let record = &whole[at..at + 48 + said];
        let action = u32::from_le_bytes(record[28..32].try_into().unwrap());
        if action & 1 << 26 != 0 {
            cpus.iter_mut().for_each(|cpu| cpu.extend_from_slice(record));
        } else {
            // A queued bio and what becomes of it stay together.
            turn = if action & 0xffff == 1 { turn ^ 1 } else { turn };
            cpus[turn].extend_from_slice(record);
        }
        at += 48 + said;
    }
    let dir = std::env::temp_dir().join(format!("mmc-lab-readers-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    for (n, cpu) in cpus.iter().enumerate() {
        fs::write(dir.join(format!("card.blktrace.{n}")), cpu).unwrap();
    }
    let mut found = Vec::new();
    let files = read_file(&dir.join("card.blktrace.1"), |line| match line {
        Line::Event(event) => found.push(event),
        Line::Odd => panic!("an odd record"),
        _ => {}
    })
    .unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(files, 2);
    assert_eq!(found.len(), expected.len());
    assert!(found.is_sorted_by_key(|e| e.at));
    assert_eq!(essence(&report(&found)), essence(&report(&expected)));
}

#[test]
fn a_packed_trace_is_the_same_trace() {
    let text = unpacked("mv510-mq.ftrace.txt.gz");
    let (expected, _) = events(&text);
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    assert!(zstd.len() < text.len());
    for packed in [zstd, fs::read(data("mv510-mq.ftrace.txt.gz")).unwrap(), text] {
        let mut input = plain(Cursor::new(packed)).unwrap();
        let mut found = Vec::new();
        read(&mut *input, |line| {
            if let Line::Event(event) = line {
                found.push(event);
            }
        })
        .unwrap();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_broken_pack_gives_what_comes_before_and_an_error() {
    // Long enough for more than what a decoder keeps back to look back at.
    let text = unpacked("mv510-mq.ftrace.txt.gz").repeat(8);
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    let mut input = plain(Cursor::new(zstd[..zstd.len() / 2].to_vec())).unwrap();
    let mut lines = 0;
    let end = read(&mut *input, |_| lines += 1);
    assert!(end.is_err() && lines > 100, "{end:?} after {lines} lines");
}

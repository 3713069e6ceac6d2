//! The readers of traces and tables of `mmc-lab`, and what works on what they read.

use flate2::Compression;
use flate2::write::GzEncoder;
use mmc_lab::analysis::{Analysis, Options};
use mmc_lab::replay::order::{Settings, verify};
use mmc_lab::replay::plan::{After, plan};
use mmc_lab::trace::model::{Event, Line};
use mmc_lab::trace::order::Ordered;
use mmc_lab::{blame, csv, dmesg, fit, trace};
use std::io::{self, BufRead, Cursor, Write};

/// Every request a victim.
const ALL: Options = Options { busy: 0, top: usize::MAX, threshold: None, hung: 1_000_000_000 };

/// Commands that a profile is fitted to: the search for an allocation unit takes a while.
const FITTED: usize = 24;

fn lines(input: &mut dyn BufRead) -> (Vec<Line>, io::Result<()>) {
    let mut lines = Vec::new();
    let end = trace::read(input, |line| lines.push(line));
    (lines, end)
}

/// Whatever was read is put in order, explained, planned and ordered.
fn used(lines: Vec<Line>) {
    let mut analysis = Analysis::recording(ALL);
    let (mut order, mut put) = (Ordered::default(), 0);
    let mut events: Vec<Event> = Vec::new();
    let mut take = |order: &mut Ordered, analysis: &mut Analysis| {
        while let Some(event) = order.due().cloned() {
            order.pop();
            analysis.push(&event);
            events.push(event);
        }
    };
    for line in lines {
        match line {
            Line::Event(event) => {
                put += 1;
                order.put(event);
                take(&mut order, &mut analysis);
            }
            Line::Lost(_) => {
                order.end();
                take(&mut order, &mut analysis);
                analysis.lose_track();
            }
            Line::Clock(_) | Line::Command(_) | Line::Other | Line::Odd => {}
        }
    }
    order.end();
    take(&mut order, &mut analysis);
    assert_eq!(events.len(), put, "each comes out once");
    let report = analysis.finish();
    for v in &report.victims {
        assert_eq!(v.wait, v.tag_wait + v.sched_wait + v.service, "{v:?}");
        assert_eq!(v.ahead.requests, v.ahead.older + v.ahead.younger, "{v:?}");
    }
    assert!(!blame::verdict(&report, ALL.hung, None).is_empty());
    events.sort_by_key(|e| e.at);
    if let Ok(verified) = verify(&events, Settings { rules: Default::default(), drain: 4, hz: 250 }) {
        assert!(verified.same <= verified.issued);
    }
    if let Ok(plan) = plan(&events) {
        for step in plan.jobs.iter().flat_map(|job| &job.steps) {
            if let After::Done(other) = step.after {
                assert!(other < step.bio, "waits for what comes later");
            }
        }
    }
}

/// Text of ftrace, trace-cmd, perf and blkparse: read to its end, with one line told for each there is.
///
/// # Panics
/// When a promise is broken.
pub fn trace_text(data: &[u8]) {
    let (found, end) = lines(&mut &data[..]);
    assert!(end.is_ok(), "bytes in memory are read to their end");
    // Binary records are no lines.
    let is_binary = data.get(1..4) == Some(b"tae") || data.starts_with(b"eat");
    if !is_binary && data.len() < 1 << 16 {
        let there =
            data.split(|&b| b == b'\n').count() - usize::from(data.last().is_none_or(|&b| b == b'\n'));
        assert_eq!(found.len(), there, "a line each");
    }
    used(found);
}

/// Binary files of blktrace, and packed traces: what was packed reads as what was not.
///
/// # Panics
/// When a promise is broken.
pub fn trace_binary(data: &[u8]) {
    let Ok(mut input) = trace::plain(Cursor::new(data.to_vec())) else { return };
    let (found, _) = lines(&mut *input);
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    let packed = packer.write_all(data).and_then(|()| packer.finish());
    if let Ok(mut input) = packed.and_then(|packed| trace::plain(Cursor::new(packed))) {
        let (packed, end) = lines(&mut *input);
        assert!(end.is_ok());
        assert_eq!(packed, lines(&mut &data[..]).0, "packed and plain");
    }
    used(found);
}

/// Rows of bonnie++, kernel logs, device logs and fio's JSON.
///
/// # Panics
/// When a promise is broken.
pub fn tables(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for line in text.lines() {
        if let Ok(row) = csv::Row::parse(line) {
            assert_eq!(row.print(), line, "a row is printed as it was");
        }
        if let Some((Err(error), _)) = csv::find(line) {
            assert!(!error.to_string().is_empty());
        }
    }
    let mut blocked = dmesg::blocked(&text);
    dmesg::explain(&mut blocked, &Analysis::new(ALL).finish());
    match fit::fio::fit(data) {
        Ok(fitted) => {
            for value in [fitted.rd_bps, fitted.wr_bps, fitted.stall_p].into_iter().flatten() {
                assert!(!value.value.is_nan() && !value.low.is_nan() && !value.high.is_nan(), "{fitted:?}");
            }
        }
        Err(error) => assert!(!error.is_empty() && !error.contains('\n'), "{error}"),
    }
    if let Ok(ops) = fit::read(&mut &data[..]) {
        let fitted = fit::fit_profile(ops.get(..FITTED).unwrap_or(&ops));
        assert!(fitted.reads + fitted.writes <= FITTED);
    }
}

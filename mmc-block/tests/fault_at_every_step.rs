//! A fault at every command of a mixed workload, of every kind, over every host: it ends in bounded time, each request
//! completes once, what was reported written reads back, and the disk goes on.
//!
//! By default one case of many runs; `MMC_BLOCK_FAULTS=all` runs all of them. Either prints how many there were.

mod stack;

use mmc_block::Ticket;
use mmc_mock::fault::Medium;
use mmc_proto::status::{CardState, CardStatus};
use mmc_sched::{Flags, Op, Request};
use mmc_time::Duration;
use stack::{Backend, Bench, flush, req, sd_card, spi_card};
use std::collections::HashMap;

/// No fault keeps the disk busy for longer: the card's limits, the repetitions and the resets of the policy.
const BOUND: Duration = Duration::from_secs(120);

/// What strikes. With the first 17 and the last three the policy makes every request succeed all the same.
const KINDS: [&str; 24] = [
    "lost",
    "no-answer",
    "command-crc",
    "response-crc",
    "response-index",
    "response-end",
    "status 0x00080000",
    "status 0x00100000",
    "late 50us",
    "busy 300ms",
    "busy 5s",
    "busy forever",
    "block 0 crc",
    "block 0 missing",
    "block 3 crc",
    "block 3 missing",
    "block 7 crc",
    // The card says no, and will say it again.
    "status 0x80000000",
    "status 0x00200000",
    "status 0x04000000",
    "remove",
    // What was written is durable, and what was under way is sent again.
    "power-loss all",
    "power-loss none",
    "power-loss random",
];

/// Reads, writes, FUA, flushes, a discard, of three streams; batches of eight go in together. Over SPI, where the model
/// moves each byte on its own, no request is longer than 8 sectors.
fn workload(backend: Backend) -> Vec<(Request, u8)> {
    let longest = if backend == Backend::Spi { 8 } else { 64 };
    (0..40_u32)
        .map(|i| {
            let lba = 4096 + u64::from(i * 37 % 23) * 64;
            let blocks = [1, 8, 3, 64, 16][i as usize % 5].min(longest);
            let flags = [Flags::empty(), Flags::SYNC, Flags::FUA][i as usize % 3];
            let r = match i % 8 {
                0 | 3 | 5 => req(Op::Read, lba, blocks, Flags::empty(), 1),
                6 if i > 30 => flush(),
                7 if i > 30 => req(Op::Discard, lba, blocks, Flags::empty(), 3),
                _ => req(Op::Write, lba, blocks, flags, 2),
            };
            (r, i as u8 + 1)
        })
        .collect()
}

/// What may be in each sector now.
type Model = HashMap<u64, Vec<u8>>;

fn allow(model: &mut Model, r: &Request, byte: u8, certain: bool) {
    for lba in r.lba..r.end() {
        let may = model.entry(lba).or_insert_with(|| vec![0]);
        if certain {
            may.clear();
        }
        may.push(byte);
    }
}

/// Runs the workload with `script`; the number of frames the card saw, and the longest a batch took.
fn case(backend: Backend, script: &str, curable: bool) -> (u64, u64, Duration) {
    match backend {
        Backend::Mock | Backend::Dw | Backend::Sdhci => {
            let bench = Bench::new(backend, sd_card(script), false, "mq-deadline");
            run(bench, backend, script, curable)
        }
        Backend::Spi => run(Bench::spi(spi_card(script), false, "mq-deadline"), backend, script, curable),
    }
}

fn run<C: Medium + 'static>(
    bench: Option<Bench<C>>,
    backend: Backend,
    script: &str,
    curable: bool,
) -> (u64, u64, Duration) {
    let Some(mut b) = bench else {
        // Struck while it was identified, and nothing came of it: it is told, and that is all.
        return (0, 0, Duration::ZERO);
    };
    let ready = b.card.with(|c| c.frames());
    let mut model = Model::new();
    let mut slowest = Duration::ZERO;
    for batch in workload(backend).chunks(8) {
        let since = b.clock.now();
        let mut waiting: Vec<(Ticket, Request, u8)> = vec![];
        for (r, byte) in batch {
            // A disk that has stopped says so at once; nothing was done.
            if let Some(ticket) = b.submit(*r, *byte) {
                waiting.push((ticket, *r, *byte));
            }
        }
        b.run();
        slowest = slowest.max(b.clock.now().since(since));
        assert!(slowest < BOUND, "{backend:?}, {script}: {slowest:?}");
        assert_eq!(b.disk.core().outstanding(), 0, "{backend:?}, {script}: a request is lost");
        // In the order of submission: those of the same sectors were carried out in it.
        for (ticket, r, byte) in waiting {
            let done = b.disk.take(ticket).unwrap_or_else(|| panic!("{backend:?}, {script}: {r:?} is lost"));
            let cured = done.result.is_ok() || !curable;
            assert!(cured, "{backend:?}, {script}: {r:?} failed: {:?}", done.result);
            match (r.op, done.result) {
                (Op::Read, Ok(())) => {
                    let data = done.buffer.unwrap().0;
                    for (lba, sector) in (r.lba..).zip(data.chunks(512)) {
                        let may = model.get(&lba).cloned().unwrap_or_else(|| vec![0]);
                        let right = may.contains(&sector[0]) && sector.iter().all(|x| *x == sector[0]);
                        assert!(right, "{backend:?}, {script}: {lba} holds {}, not {may:?}", sector[0]);
                    }
                }
                (Op::Write, result) if r.blocks > 0 => allow(&mut model, &r, byte, result.is_ok()),
                (Op::Discard, result) => {
                    allow(&mut model, &r, 0, result.is_ok());
                    // A discarded sector may keep what it held.
                    allow(&mut model, &r, 0xff, false);
                }
                _ => {}
            }
        }
        assert!(b.disk.take_done().is_none(), "{backend:?}, {script}: one too many");
        b.revive();
    }
    // Whatever happened, the disk serves: all that was written reads back, and something new can be.
    let mut last = workload(backend);
    last.retain(|(r, _)| r.op == Op::Write && r.blocks > 0);
    for (r, _) in last {
        let read = req(Op::Read, r.lba, r.blocks, Flags::empty(), 1);
        let mut done = b.one(read, 0);
        // The fault may strike here, too; once.
        if done.result.is_err() {
            b.revive();
            done = b.one(read, 0);
        }
        assert_eq!(done.result, Ok(()), "{backend:?}, {script}");
        for (lba, sector) in (r.lba..).zip(done.buffer.unwrap().0.chunks(512)) {
            assert!(model[&lba].contains(&sector[0]), "{backend:?}, {script}: {lba} holds {}", sector[0]);
        }
    }
    let write = req(Op::Write, 1, 8, Flags::FUA, 1);
    if b.one(write, 0x77).result.is_err() {
        b.revive();
        assert_eq!(b.one(write, 0x77).result, Ok(()), "{backend:?}, {script}");
    }
    assert_eq!(b.stored(8), 0x77);
    (ready, b.card.with(|c| c.frames()), slowest)
}

/// Write, read, read of one sector: what the card said to each.
fn said(backend: Backend, script: &str) -> Vec<(Option<CardStatus>, u16)> {
    fn three<C: Medium + 'static>(b: Option<Bench<C>>, script: &str) -> Vec<(Option<CardStatus>, u16)> {
        let mut b = b.unwrap();
        let requests = [(Op::Write, 8), (Op::Read, 8), (Op::Read, 1)];
        let one = |(op, blocks)| {
            let done = b.one(req(op, 64, blocks, Flags::empty(), 1), 7);
            assert_eq!(done.result, Ok(()), "{script}");
            (done.status, done.attempts)
        };
        requests.map(one).to_vec()
    }
    match backend {
        Backend::Spi => three(Bench::spi(spi_card(script), false, "none"), script),
        _ => three(Bench::new(backend, sd_card(script), false, "none"), script),
    }
}

#[test]
fn what_the_card_said_is_told_of_what_went_well_too() {
    for backend in [Backend::Mock, Backend::Dw, Backend::Sdhci, Backend::Spi] {
        for (k, (status, attempts)) in said(backend, "").into_iter().enumerate() {
            let status = status.expect("each command is answered");
            // After a write the last answer is that to CMD13; a read may be stopped in the middle of sending.
            let state =
                matches!(status.state(), CardState::Tran) || k == 1 && status.state() == CardState::Data;
            assert!(state && attempts == 1, "{backend:?}: {k}: {status}");
            assert!(!status.intersects(CardStatus::DATA_ERRORS), "{backend:?}: {status}");
        }
        // The card did not understand a command: it was sent again, ended well, and still shows COM_CRC_ERROR.
        let script = "at CMD25: command-crc\nat CMD17: command-crc";
        let [write, read, single] = said(backend, script)[..] else { panic!("three") };
        for (status, attempts) in [write, single] {
            let status = status.unwrap();
            let error = status.contains(CardStatus::COM_CRC_ERROR);
            assert!(error && attempts == 2, "{backend:?}: {status}, {attempts}");
        }
        assert!(!read.0.unwrap().contains(CardStatus::COM_CRC_ERROR), "{backend:?}: each has its own");
        // ERASE_RESET is no error of a read: it went well at once, and shows it. In SPI mode whatever is set in R1 is an error.
        let [_, read, single] = said(backend, "at CMD18: status 0x00002000")[..] else { panic!("three") };
        let reset = |s: Option<CardStatus>| s.unwrap().contains(CardStatus::ERASE_RESET);
        let attempts = if backend == Backend::Spi { 2 } else { 1 };
        assert_eq!((reset(read.0), read.1, reset(single.0)), (true, attempts, false), "{backend:?}");
    }
}

#[test]
fn whatever_fails_wherever_it_fails_nothing_is_lost() {
    let all = std::env::var("MMC_BLOCK_FAULTS").is_ok_and(|v| v == "all");
    let mut total = 0;
    for backend in [Backend::Mock, Backend::Dw, Backend::Sdhci, Backend::Spi] {
        let (mut cases, mut slowest, mut where_) = (0, Duration::ZERO, String::new());
        let began = std::time::Instant::now();
        let (ready, end, _) = case(backend, "", true);
        let mut turn = 0;
        for frame in 0..end {
            for (k, kind) in KINDS.into_iter().enumerate() {
                let curable = !(17..21).contains(&k);
                turn += 1;
                // While it is identified every fourth frame will do.
                let skip = if all { frame < ready && frame % 4 != 0 } else { turn % 37 != 0 };
                if skip {
                    continue;
                }
                let back = if kind == "remove" { "\nat 30s: insert" } else { "" };
                let script = format!("at frame {frame}: {kind}{back}");
                let (.., took) = case(backend, &script, curable);
                cases += 1;
                if took > slowest {
                    (slowest, where_) = (took, script);
                }
            }
        }
        println!(
            "{backend:?}: {cases} faults at {end} commands; the slowest batch took {slowest} of virtual time ({where_}); {:.1} s",
            began.elapsed().as_secs_f64()
        );
        total += cases;
    }
    println!("{total} cases");
    assert!(total >= if all { 9000 } else { 150 }, "{total}");
}

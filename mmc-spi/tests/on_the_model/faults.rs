//! A fault at each command of a workload: it ends in time, with the right data or an error, and what comes after works.

use crate::bench::{Bench, pattern, sd_bus};
use crate::disk::OverSpi;
use mmc_block::Media;
use mmc_mock::card::{Card, SdConfig};
use mmc_mock::fault::Medium;
use mmc_mock::spi::{Spi, SpiConfig, SpiSd};
use mmc_mock::timing::Profile;
use mmc_sched::Op;
use mmc_spi::Wires;
use mmc_time::Duration;

const KINDS: [&str; 14] = [
    "lost",
    "no-answer",
    "command-crc",
    "response-end",
    "status 0x00080000",
    "status 0x80000000",
    "late 30ms",
    "busy 30ms",
    "busy forever",
    "block 0 crc",
    "block 1 missing",
    "block 1 crc",
    "power-loss all",
    "remove",
];

/// Reads and writes of one block and several, some of which touch.
const WORKLOAD: [(Op, u64, usize); 10] = [
    (Op::Write, 100, 1),
    (Op::Write, 200, 4),
    (Op::Read, 100, 1),
    (Op::Read, 200, 4),
    (Op::Write, 201, 2),
    (Op::Read, 198, 8),
    (Op::Write, 300, 3),
    (Op::Read, 300, 1),
    (Op::Write, 100, 1),
    (Op::Read, 100, 2),
];

/// What the disk must hold, where that is certain.
struct Model([Option<u8>; 512]);

impl Model {
    fn check(&self, lba: u64, data: &[u8], what: &str) {
        for (i, block) in data.chunks(512).enumerate() {
            if let Some(seed) = self.0[lba as usize + i] {
                assert!(block == pattern(512, seed.into()), "{what}: block {} is wrong", lba as usize + i);
            }
        }
    }
}

fn fill(seed: u8, blocks: usize) -> Vec<u8> {
    (0..blocks).flat_map(|_| pattern(512, seed.into())).collect()
}

/// Errors that were reported, and how long the slowest step took.
fn case<W: Wires>(bench: Bench<SpiSd, W>, what: &str) -> (u32, Duration) {
    let mut model = Model([None; 512]);
    let mut errors = 0;
    let mut slowest = Duration::ZERO;
    let Some(mut d) = OverSpi::new(bench) else { return (1, slowest) };
    for (i, (op, lba, blocks)) in WORKLOAD.into_iter().enumerate() {
        let seed = i as u8 + 1;
        let data = if op == Op::Write { fill(seed, blocks) } else { vec![0; blocks * 512] };
        let done = d.one(op, lba, data);
        slowest = slowest.max(d.spi.clock().now().since(d.began));
        let range = lba as usize..lba as usize + blocks;
        match done {
            Some(done) if done.result.is_ok() => {
                let back = done.buffer.expect("SPI keeps no buffer").0;
                if op == Op::Write {
                    model.0[range].fill(Some(seed));
                    let mut stored = vec![0; blocks * 512];
                    d.spi.with(|c| {
                        c.card_mut().with_storage(&mut |s| s.read(lba * 512, &mut stored).unwrap())
                    });
                    assert!(stored == back, "{what}: step {i} is not stored");
                } else {
                    model.check(lba, &back, &format!("{what}, step {i}"));
                }
            }
            _ => {
                errors += 1;
                if op == Op::Write {
                    model.0[range].fill(None);
                }
            }
        }
        if d.disk.media() == Media::Gone {
            // It is put in again.
            let now = d.spi.clock().now();
            d.spi.with(|c| {
                c.power(false, now);
                c.card_mut().sd_mut().set_present(true);
                c.power(true, now);
            });
            d.run();
        }
        if d.disk.media() == Media::New {
            assert!(d.disk.accept_media(), "{what}");
            d.run();
        }
    }
    // Afterwards all is well.
    if d.disk.media() == Media::Same {
        let data = pattern(4 * 512, 77);
        let written = d.one(Op::Write, 400, data.clone()).unwrap();
        assert_eq!(written.result, Ok(()), "{what}: the next write");
        let read = d.one(Op::Read, 400, vec![0; data.len()]).unwrap();
        assert_eq!(read.result, Ok(()), "{what}: the next read");
        assert!(read.buffer.unwrap().0 == data, "{what}");
        for (lba, seed) in model.0.into_iter().enumerate() {
            if seed.is_some() {
                let read = d.one(Op::Read, lba as u64, vec![0; 512]).unwrap();
                assert_eq!(read.result, Ok(()), "{what}: block {lba} afterwards");
                model.check(lba as u64, &read.buffer.unwrap().0, what);
            }
        }
    }
    (errors, slowest)
}

fn card(script: &str) -> Spi {
    sd_bus(SdConfig::new(Profile::ideal(), 1), script, SpiConfig::default())
}

/// Strikes everywhere; cases, those that were reported, and the slowest step.
fn everywhere<W: Wires>(bench: impl Fn(Spi) -> Bench<SpiSd, W>) -> (u32, u32, Duration, String) {
    let (errors, _) = case(bench(card("")), "nothing");
    assert_eq!(errors, 0);
    let mut d = OverSpi::new(bench(card(""))).unwrap();
    let first = d.spi.with(|c| c.frames());
    for (op, lba, blocks) in WORKLOAD {
        assert_eq!(d.one(op, lba, fill(1, blocks)).unwrap().result, Ok(()));
    }
    let total = d.spi.with(|c| c.frames());
    let (mut cases, mut errors, mut slowest) = (0, 0, (Duration::ZERO, String::new()));
    for frame in 0..total {
        for kind in KINDS {
            // Inside identification a few kinds are enough: the whole is tried again there.
            let few = ["lost", "no-answer", "command-crc", "power-loss all", "busy 30ms"];
            if frame < first && !few.contains(&kind) {
                continue;
            }
            let script = format!("at frame {frame}: {kind}");
            let (e, took) = case(bench(card(&script)), &script);
            cases += 1;
            errors += u32::from(e > 0);
            if took > slowest.0 {
                slowest = (took, script);
            }
        }
    }
    println!(
        "{cases} faults at {total} commands, {errors} reported; slowest step {} ({})",
        slowest.0, slowest.1
    );
    (cases, errors, slowest.0, slowest.1)
}

#[test]
fn a_fault_at_every_command_of_a_workload() {
    for (cases, errors, slowest, where_) in [everywhere(Bench::alone), everywhere(Bench::shared)] {
        assert!(cases > 300 && errors > 0, "{cases} {errors}");
        assert!(slowest < Duration::from_secs(30), "{slowest} {where_}");
    }
}

//! Bytes of data as a share of what the clock of the bus could carry; the other driver is `embedded-sdmmc` on the same model
//! in the same run.

use crate::bench::{batch, bytes, pattern, sd, sd_bus};
use embedded_sdmmc::{Block, BlockDevice, BlockIdx, SdCard as Driver};
use mmc_hal::Dir;
use mmc_mock::card::{Card, SdConfig};
use mmc_mock::spi::SpiConfig;
use mmc_mock::timing::Profile;
use mmc_proto::machine::{Transfer, TransferOptions};
use mmc_time::Duration;

const HZ: u32 = 25_000_000;
const BLOCKS: usize = 256;

fn share(took: Duration) -> f64 {
    let ideal = (BLOCKS * 512 * 8) as f64 / f64::from(HZ);
    100.0 * ideal / (took.as_nanos() as f64 * 1e-9)
}

/// Reads or writes `BLOCKS` blocks, `each` of them per command.
fn ours(profile: Profile, dir: Dir, each: usize) -> f64 {
    let mut b = sd(SdConfig::new(profile, 1), "");
    let card = b.identify().traits;
    let data = pattern(BLOCKS * 512, 1);
    b.store(8192, &data);
    let began = b.spi.clock().now();
    for (i, part) in data.chunks(each * 512).enumerate() {
        let lba = 8192 + (i * each) as u64;
        let transfer = Transfer::new(&card, dir, lba, each as u32, TransferOptions::default());
        let payload = if dir == Dir::Write { part.to_vec() } else { vec![0; part.len()] };
        let ((result, back), _) = b.drive(transfer, Some(batch(&[payload])));
        assert_eq!(result, Ok(each as u32));
        assert!(bytes(back.unwrap()) == part);
    }
    let took = b.spi.clock().now().since(began);
    assert!(b.stored(8192, BLOCKS) == data);
    share(took)
}

fn theirs(profile: Profile, dir: Dir, each: usize) -> f64 {
    let spi = sd_bus(SdConfig::new(profile, 1), "", SpiConfig::default());
    spi.start_up().unwrap();
    spi.select(true);
    let driver = Driver::new(spi.held_device(), spi.delay());
    driver.num_bytes().unwrap();
    spi.set_hz(HZ);
    let data = pattern(BLOCKS * 512, 1);
    spi.with(|c| c.card_mut().sd_mut().storage_mut().write(8192 * 512, &data).unwrap());
    let began = spi.clock().now();
    for (i, part) in data.chunks(each * 512).enumerate() {
        let at = BlockIdx(8192 + (i * each) as u32);
        let mut blocks: Vec<Block> = part
            .chunks(512)
            .map(|c| {
                let mut block = Block::new();
                block.contents.copy_from_slice(c);
                block
            })
            .collect();
        match dir {
            Dir::Write => driver.write(&blocks, at).unwrap(),
            Dir::Read => {
                blocks.iter_mut().for_each(|b| b.contents.fill(0));
                driver.read(&mut blocks, at).unwrap();
                assert!(blocks.iter().flat_map(|b| b.contents).eq(part.iter().copied()));
            }
        }
    }
    // Ours has seen by CMD13 that the card has stored it all; so must the other have waited for it.
    let now = spi.clock().now();
    spi.clock().advance_to(spi.with(|c| c.busy_until(now)));
    share(spi.clock().now().since(began))
}

#[test]
fn at_least_as_fast_as_another_driver_on_the_same_model() {
    let docs = include_str!("../../../docs/spi.md");
    let mut wrong = Vec::new();
    for (name, profile) in
        [("ideal", Profile::ideal()), ("a1", Profile::a1()), ("slow2018", Profile::slow2018())]
    {
        for dir in [Dir::Read, Dir::Write] {
            for each in [1, 8, 64] {
                let (ours, theirs) = (ours(profile.clone(), dir, each), theirs(profile.clone(), dir, each));
                let what = if dir == Dir::Read { "read" } else { "write" };
                let row = format!("| {name} | {what} | {each} | {ours:.1} % | {theirs:.1} % |");
                println!("{row}");
                assert!(ours >= theirs, "{row}");
                if !docs.contains(&row) {
                    wrong.push(row);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "docs/spi.md must say:\n{}", wrong.join("\n"));
}

//! A bus with other devices: each exchange is one transaction.

use crate::bench::{Among, Bench, StartUp, pattern, sd_bus};
use embedded_hal::spi::{ErrorType, Operation, SpiDevice};
use mmc_hal::Dir;
use mmc_mock::card::SdConfig;
use mmc_mock::spi::{BusError, Device, Spi, SpiConfig, SpiSd};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_proto::machine::TransferOptions;
use mmc_spi::{BusFault, Shared};
use mmc_time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Another device has a word on the bus between any two transactions of ours.
struct Crowded {
    ours: Device<SpiSd>,
    spi: Spi,
    theirs: Arc<AtomicU32>,
}

impl ErrorType for Crowded {
    type Error = BusError;
}

impl SpiDevice for Crowded {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), BusError> {
        let n = self.theirs.fetch_add(1, Ordering::Relaxed);
        for byte in [0x40, n as u8, 0xfe, 0xff, 0x00] {
            assert_eq!(self.spi.exchange(byte)?, 0xff, "our card leaves DO alone");
        }
        self.ours.transaction(operations)
    }
}

fn crowded(
    config: SdConfig,
    script: &str,
    wires: SpiConfig,
) -> (Bench<SpiSd, Shared<Crowded, StartUp>>, Arc<AtomicU32>) {
    let spi = sd_bus(config, script, wires);
    let theirs = Arc::new(AtomicU32::new(0));
    let device = Crowded { ours: spi.device(), spi: spi.clone(), theirs: theirs.clone() };
    let clocks = spi.clone();
    let start_up: StartUp = Box::new(move || clocks.start_up().map_err(|_| BusFault));
    (Bench::with(spi, Shared::new(device, start_up), true), theirs)
}

#[test]
fn others_talk_between_our_transactions_and_nothing_breaks() {
    for profile in [Profile::ideal(), Profile::a1(), Profile::slow2018()] {
        let strict = SpiConfig { strict_select: true, ..SpiConfig::default() };
        let (mut b, theirs) = crowded(SdConfig::new(profile, 1), "", strict);
        let card = b.identify().traits;
        for (lba, blocks) in [(8, 1_usize), (100, 2), (9000, 16)] {
            for open_ended in [false, true] {
                let options = TransferOptions { open_ended };
                let data = pattern(blocks * 512, lba);
                let (r, _) = b.transfer(&card, Dir::Write, lba, std::slice::from_ref(&data), options);
                assert_eq!(r, Ok(blocks as u32));
                assert!(b.stored(lba, blocks) == data);
                let (r, back) = b.transfer(&card, Dir::Read, lba, &[vec![0; blocks * 512]], options);
                assert_eq!(r, Ok(blocks as u32));
                assert!(back == data);
            }
        }
        assert!(theirs.load(Ordering::Relaxed) > 100);
    }
}

#[test]
fn every_byte_addressed_and_every_quick_card_works_in_transactions_too() {
    for preset in zoo::list() {
        let config = zoo::card(preset.name, Profile::ideal(), 1).unwrap();
        let mut b: Bench<SpiSd, Among<SpiSd>> = Bench::shared(sd_bus(config, "", SpiConfig::default()));
        let Ok(card) = b.try_identify() else { continue };
        let data = pattern(2048, 2);
        assert_eq!(b.write(&card.traits, 33, &data), Ok(4), "{}", preset.name);
        let stored = b.stored(33, 4);
        assert_eq!(stored == data, preset.name != "immutable", "{}", preset.name);
        // One by one: a card that takes 300 ms for each command has time for one of them within the limit.
        for (block, lba) in stored.chunks(512).zip(33..) {
            let back = b.read(&card.traits, lba, 1).unwrap_or_else(|e| panic!("{}: {e}", preset.name));
            assert!(back == block, "{}", preset.name);
        }
        // A transaction that ends before the data of a slow card is cut short by chip select: it cannot be helped.
        let cut = |v: &String| preset.name == "late-read" && v.starts_with("chip select rose");
        let violations: Vec<_> = b.violations().into_iter().filter(|v| !cut(v)).collect();
        assert_eq!(violations, Vec::<String>::new(), "{}", preset.name);
    }
}

#[test]
fn a_block_that_comes_late_is_asked_for_again_with_more_time() {
    let (mut b, _) = crowded(SdConfig::new(Profile::ideal(), 1), "at CMD17: late 70ms", SpiConfig::default());
    let card = b.identify().traits;
    let data = pattern(512, 6);
    b.store(77, &data);
    let began = b.spi.clock().now();
    assert_eq!(b.read(&card, 77, 1), Ok(data));
    let took = b.spi.clock().now().since(began);
    assert!(took < Duration::from_millis(300), "{took}");
}

#[test]
fn an_error_in_a_transaction_is_found_and_put_right() {
    for script in [
        "at CMD17#1: block 0 crc",
        "at CMD25: block 1 crc",
        "at CMD25: lost",
        "at CMD24: no-answer",
        "at CMD24: block 0 missing",
        "at CMD17: no-answer",
    ] {
        let (mut b, _) = crowded(SdConfig::new(Profile::ideal(), 1), script, SpiConfig::default());
        let card = b.identify().traits;
        let data = pattern(2048, 3);
        let mut errors = 0;
        for lba in [8, 9, 100, 101] {
            for _ in 0..2 {
                let blocks = if lba < 100 { 1 } else { 4 };
                let part = &data[..blocks * 512];
                match b.write(&card, lba, part) {
                    Ok(_) => assert!(b.stored(lba, blocks) == part, "{script}"),
                    Err(_) => errors += 1,
                }
                b.store(lba, part);
                match b.read(&card, lba, blocks) {
                    Ok(back) => assert!(back == part, "{script}"),
                    Err(_) => errors += 1,
                }
            }
        }
        assert_eq!(errors, 1, "{script}");
    }
}

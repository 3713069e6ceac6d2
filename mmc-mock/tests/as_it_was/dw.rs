//! The DesignWare controller: random lives of `dw_property.rs`, on controllers of every kind, and all registers, the memory and
//! the card's log after each. They are drawn by proptest: a version that draws otherwise asks for the record to be written anew.

use super::Digest;
use crate::dw_common::{Bench, Tiny};
use crate::ops::{apply, config, op};
use mmc_mock::card::{Card, SdCard, SdConfig, Uhs};
use mmc_mock::dw::Config;
use mmc_mock::timing::Profile;
use mmc_mock::{Wakes, zoo};
use mmc_time::Duration;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Drawing, RngAlgorithm, TestRng, TestRunner};

const LIVES: u8 = 192;
/// A card that signals with 1.8 V.
const FAST: &str = "samsung-128gb";

/// A controller with `card` in its slot, which is identified (or not) and then driven; `log`: what the card tells.
fn live<C: Card>(life: u8, card: C, log: impl FnOnce(&mut C) -> String) -> String {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[life; 32]);
    let mut runner = TestRunner::new_with_rng(Drawing::default(), rng);
    let config = config().new_tree(&mut runner).expect("it is no filter").current();
    // Two of three as they are where a driver runs.
    let config = match life % 3 {
        0 => Config::hsdk(),
        1 => Config { verid: 0x5342_290a, power_active_low: false, fifo_depth: 16, ..config },
        _ => config,
    };
    let ops = proptest::collection::vec(op(), 100).new_tree(&mut runner).expect("it is no filter").current();
    let b = Bench::with(card, config.clone());
    let (list, buf) = (b.memory.alloc(1024), b.memory.alloc(4096));
    if config.verid & 0xffff >= 0x240a && !config.power_active_low && config.fifo_depth >= 16 {
        identify(&b, life);
    }
    let mut digest = Digest::new();
    for op in &ops {
        apply(&b, list, buf, op);
        digest.say(format_args!("{} {:?} {:?}", b.dw.irq(), b.dw.next_event(), b.clock.now()));
        for offset in (0..0x114).step_by(4).filter(|o| ![0x100, 0x104].contains(o)) {
            digest.say(format_args!("{:x} ", b.r(offset)));
        }
    }
    digest.say(format_args!("{:?} {:?}", b.bytes(list, 1024), b.bytes(buf, 4096)));
    digest.say(format_args!("{:?} {}", b.dw.counters(), b.dw.card(log)));
    let violations = b.dw.violations();
    digest.say(format_args!("{violations:?}"));
    format!("{life}: {} {:016x}, {} broken rules", digest.1, digest.0, violations.len())
}

/// Four lines; with 1.8 V if the card has that, and one of its timings and sample points.
fn identify<C: Card>(b: &Bench<C>, life: u8) {
    b.power_up();
    b.cmd(0, 0xa000_a000);
    b.cmd(0x1aa, 0xa000_2148);
    for _ in 0..16 {
        b.cmd(0, 0xa000_2177);
        b.cmd(0x5130_0000, 0xa000_2069);
        let ocr = b.r(0x30);
        b.clock.advance(Duration::from_millis(100));
        if ocr >> 31 != 0 {
            if ocr & 1 << 24 != 0 {
                low_voltage(b);
            }
            break;
        }
    }
    b.cmd(0, 0xa000_21c2);
    b.cmd(0, 0xa000_2143);
    let rca = b.r(0x30) & 0xffff_0000;
    b.cmd(rca, 0xa000_2147);
    b.cmd(rca, 0xa000_2177);
    b.cmd(2, 0xa000_2146);
    b.w(0x18, 1);
    b.w(0x74, b.r(0x74) & 1 | u32::from(life & 4) << 14);
    b.w(0x108, u32::from(life) << 16 | u32::from(life & 7) << 23);
    b.w(0x28, 0);
    b.w(0x44, 0xffff_ffff);
    b.w(0x24, 0xffff);
    b.w(0x14, 0x0002_00ff);
}

/// CMD11, as the controller wants it.
fn low_voltage<C: Card>(b: &Bench<C>) {
    b.w(0x28, 0);
    b.w(0x2c, 0xb000_014b);
    b.drain();
    b.w(0x44, 0xffff_ffff);
    b.w(0x10, 0);
    b.w(0x2c, 0xb020_2000);
    b.w(0x74, 1);
    b.clock.advance(Duration::from_millis(6));
    b.w(0x10, 1);
    b.w(0x2c, 0xb020_2000);
    b.clock.advance(Duration::from_millis(2));
    b.drain();
    b.w(0x44, 0xffff_ffff);
}

pub(super) fn lives() -> Vec<String> {
    let tiny = (0..LIVES).map(|life| live(life, Tiny::new(), |c| format!("{:?}", c.log)));
    let fast = (0..LIVES / 2).map(|life| {
        let config = zoo::card(FAST, Profile::cheap(), 5).expect("it is listed");
        let card =
            SdCard::new(SdConfig { uhs: Some(Uhs::new(5)), ..config }).expect("every preset is a card");
        format!("{FAST} {}", live(life, card, |c| format!("{:?} {:?}", c.log(), c.violations())))
    });
    tiny.chain(fast).collect()
}

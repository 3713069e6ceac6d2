//! The DesignWare controller: random lives of `dw_property.rs`, on controllers of every kind, and all registers, the memory and
//! the card's log after each. They are drawn by proptest: a version that draws otherwise asks for the record to be written anew.

use super::Digest;
use crate::dw_common::Bench;
use crate::ops::{apply, config, op};
use mmc_mock::Wakes;
use mmc_mock::dw::Config;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config as Drawing, RngAlgorithm, TestRng, TestRunner};

const LIVES: u8 = 192;

fn live(life: u8) -> String {
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
    let b = Bench::new(config.clone());
    let (list, buf) = (b.memory.alloc(1024), b.memory.alloc(4096));
    if config.verid & 0xffff >= 0x240a && !config.power_active_low && config.fifo_depth >= 16 {
        b.ready();
        b.w(0x24, 0xffff);
        b.w(0x14, 0x0002_00ff);
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
    digest.say(format_args!("{:?} {:?}", b.dw.counters(), b.dw.card(|c| c.log.clone())));
    let violations = b.dw.violations();
    digest.say(format_args!("{violations:?}"));
    format!("{life}: {} {:016x}, {} broken rules", digest.1, digest.0, violations.len())
}

pub(super) fn lives() -> Vec<String> {
    (0..LIVES).map(live).collect()
}

//! Whatever is written to the registers, whenever: no panic, no endless loop, no byte outside of what is mapped.

mod dw_common;
#[path = "dw_common/ops.rs"]
mod ops;

use dw_common::{BASE, Bench};
use mmc_mock::Wakes;
use mmc_mock::dw::{Config, Fault};
use mmc_time::Duration;
use ops::{Op, apply, config, op};
use proptest::prelude::*;

/// Modest by default; PROPTEST_CASES scales it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// A canary before, between and behind what the device may touch.
const CANARY: [u8; 64] = [0xc5; 64];

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn nothing_breaks_it(config in config(), ready: bool, ops in prop::collection::vec(op(), 1..120)) {
        let b = Bench::new(config.clone());
        let list = b.memory.alloc(1024);
        prop_assert_eq!(list, BASE);
        let buf = b.memory.alloc(4096);
        if ready && config.verid & 0xffff >= 0x240a && !config.power_active_low && config.fifo_depth >= 16 {
            b.ready();
        }
        for op in &ops {
            apply(&b, list, buf, op);
            let _ = b.dw.irq();
        }
        prop_assert_eq!(b.memory.regions(), 2);
    }

    /// State is a function of the clock: looking in between changes nothing, and nothing changes before the event
    /// that was announced.
    #[test]
    fn looking_often_or_seldom_is_the_same(
        config in config(),
        ops in prop::collection::vec(op(), 1..60),
        cuts in prop::collection::vec(0_u64..1_000_000, 1..6),
    ) {
        let config = Config {
            posted: 0, late_own: 0, access_ns: 0, verid: 0x5342_290a, power_active_low: false, fifo_depth: 16, ..config
        };
        let (seldom, often) = (Bench::new(config.clone()), Bench::new(config));
        let mut at = [0; 2];
        for b in [&seldom, &often] {
            at = [b.memory.alloc(1024), b.memory.alloc(4096)];
            b.ready();
            b.w(0x24, 0xffff);
            b.w(0x14, 0x0002_00ff);
        }
        for op in ops {
            if matches!(op, Op::Inject(_, Fault::Defer { .. } | Fault::LateData(_) | Fault::LateOwner(_))) {
                continue;
            }
            if let Op::Advance(ns) = op {
                let to = often.clock.now() + Duration::from_nanos(ns);
                for cut in &cuts {
                    let status = || (often.rint(), often.r(0x8c) & 0x1fff, often.dw.irq());
                    let (before, next) = (status(), often.dw.next_event());
                    let at = (often.clock.now() + Duration::from_nanos(*cut)).min(to);
                    if at < next {
                        often.clock.advance_to(at);
                        prop_assert_eq!(status(), before, "changed before {:?} without a word", next);
                    } else {
                        often.clock.advance_to(next.min(to));
                    }
                    often.dw.advance();
                }
                often.clock.advance_to(to);
                seldom.clock.advance_to(to);
            } else {
                apply(&seldom, at[0], at[1], &op);
                if !matches!(op, Op::Next) {
                    apply(&often, at[0], at[1], &op);
                }
            }
            often.clock.advance_to(seldom.clock.now());
            for o in (0..0x114).step_by(4) {
                prop_assert_eq!(seldom.r(o), often.r(o), "register {:#x} after {:?}", o, op);
            }
        }
        prop_assert!(seldom.bytes(at[0], 1024) == often.bytes(at[0], 1024));
        prop_assert!(seldom.bytes(at[1], 4096) == often.bytes(at[1], 4096));
        prop_assert_eq!(seldom.dw.violations(), often.dw.violations());
        let bytes = |b: &Bench| b.dw.counters().dma_bytes;
        prop_assert_eq!(bytes(&seldom), bytes(&often));
        prop_assert!(seldom.dw.card(|c| c.log == often.dw.card(|c| c.log.clone())));
    }

    #[test]
    fn only_the_buffer_of_the_descriptor_is_written(
        parts in prop::collection::vec((0_u32..700, 0_u32..40), 1..12),
        blocks in 1_u32..8,
        config in config(),
    ) {
        let config = Config { addr64: false, verid: 0x5342_290a, power_active_low: false, fifo_depth: 16, strict_fifoth: false, ..config };
        let b = Bench::new(config);
        b.ready();
        let arena = b.memory.alloc(16384);
        let mut at = arena;
        let mut expected_end = Vec::new();
        let parts: Vec<_> = parts.into_iter().map(|(len, gap)| {
            b.memory.with(at, |m| m[..64].copy_from_slice(&CANARY)).unwrap();
            let part = (at + 64, len & !7);
            at = (at + 64 + u64::from(len & !7) + u64::from(gap)).next_multiple_of(8);
            expected_end.push(at);
            part
        }).collect();
        b.memory.with(at, |m| m[..64].copy_from_slice(&CANARY)).unwrap();
        b.dma_on(b.chain(&parts));
        b.sizes(512, blocks * 512);
        b.w(0x2c, 0xa000_2352);
        b.drain();
        for _ in 0..8 { b.rint(); }
        let mut card = b.card_bytes(0, blocks as usize * 512);
        for ((at, len), next) in parts.iter().zip(expected_end) {
            prop_assert_eq!(b.bytes(at - 64, 64), CANARY);
            prop_assert_eq!(b.bytes(next, 64), CANARY);
            let n = card.len().min(*len as usize);
            let rest = card.split_off(n);
            prop_assert!(b.bytes(*at, n) == card);
            prop_assert!(b.bytes(*at + n as u64, *len as usize - n).iter().all(|x| *x == 0));
            card = rest;
        }
    }
}

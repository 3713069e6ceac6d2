//! Whatever is written to the registers, whenever: no panic, no endless loop, no byte outside of what is mapped.

mod dw_common;

use dw_common::{BASE, Bench};
use mmc_mock::Wakes;
use mmc_mock::dw::{Config, DataWidth, ErrorOrder, Fault};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Op {
    Read(u32),
    Write(u32, u32),
    /// A sensible data command: list over the buffer (none: PIO), blocks, block length, CMD.
    Transfer(Vec<(u32, u32)>, u32, u32, u32),
    /// What a driver does when things went wrong.
    Recover,
    Words(u32, [u32; 4]),
    Advance(u64),
    Next,
    Inject(u32, Fault),
}

fn offset() -> impl Strategy<Value = u32> {
    prop_oneof![8 => (0_u32..0x48).prop_map(|o| o * 4), 1 => Just(0x200), 1 => Just(0x204), 1 => any::<u32>()]
}

fn value() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        0_u32..16,
        Just(0xffff_ffff),
        (0_u32..1024).prop_map(|a| BASE as u32 + a * 4),
        prop::sample::select(vec![
            0x8020_2000,
            0xa000_2351,
            0xa000_3352,
            0xa000_2759,
            0xa000_414c,
            0xa000_0352,
            0xb000_014b,
            0x9020_2000,
            0x0200_0030,
            0x0200_0037,
            0x82,
            0x2007_0008,
            0x0010_0008,
            512,
            0x4100_0000,
        ]),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let k = 0_u32..5;
    prop_oneof![
        prop::sample::select(vec![
            Fault::CommandLost,
            Fault::NoResponse,
            Fault::ResponseCrc,
            Fault::ResponseIndex,
            Fault::ResponseEndBit,
            Fault::ResponseDelay(50),
            Fault::Busy(Duration::MAX),
            Fault::Busy(Duration::from_micros(5)),
            Fault::SwallowCommandDone,
            Fault::SwallowDataOver,
            Fault::LateData(9),
            Fault::LateOwner(9),
            Fault::StuckStart,
            Fault::LoseCommand,
            Fault::StuckReset,
            Fault::StuckVoltSwitch,
            Fault::Spurious(u32::MAX),
            Fault::Remove,
            Fault::Insert,
            Fault::Pin(false),
            Fault::Pin(true),
            Fault::PowerFail,
            Fault::SdioInterrupt(true),
            Fault::Defer { bits: 0xffff, accesses: 7 },
        ]),
        k.clone().prop_map(Fault::ReadCrc),
        k.clone().prop_map(Fault::ReadNothing),
        k.clone().prop_map(Fault::ReadStartBit),
        k.clone().prop_map(Fault::ReadEndBit),
        k.clone().prop_map(Fault::WriteCrc),
        k.prop_map(Fault::WriteNothing),
    ]
}

fn transfer() -> impl Strategy<Value = Op> {
    let part = (
        prop::sample::select(vec![0_u32, 2, 2, 8]),
        prop_oneof![Just(512_u32), Just(1024), (0_u32..128).prop_map(|n| n * 8)],
    );
    let len = prop_oneof![8 => Just(512_u32), 1 => 0_u32..64, 1 => Just(1024)];
    let cmd = prop::sample::select(vec![
        0xa000_2351_u32,
        0xa000_2352,
        0xa000_3352,
        0xa000_0352,
        0xa000_2758,
        0xa000_2759,
        0xa000_3759,
        0xa000_2373,
    ]);
    (prop::collection::vec(part, 0..4), 0_u32..6, len, cmd).prop_map(|(p, n, l, c)| Op::Transfer(p, n, l, c))
}

fn op() -> impl Strategy<Value = Op> {
    let des0 = prop_oneof![any::<u32>(), (0_u32..64).prop_map(|f| 0x8000_0000 | f)];
    let size = prop_oneof![any::<u32>(), 0_u32..2048];
    prop_oneof![
        2 => offset().prop_map(Op::Read),
        6 => (offset(), value()).prop_map(|(o, v)| Op::Write(o, v)),
        4 => transfer(),
        2 => Just(Op::Recover),
        2 => (0_u32..16, (des0, size, value(), value())).prop_map(|(i, (a, b, c, d))| Op::Words(i, [a, b, c, d])),
        2 => prop_oneof![0_u64..100_000, 0_u64..10_000_000_000, any::<u64>()].prop_map(Op::Advance),
        2 => Just(Op::Next),
        1 => (0_u32..3, fault()).prop_map(|(n, f)| Op::Inject(n, f)),
    ]
}

fn config() -> impl Strategy<Value = Config> {
    let flags = any::<u16>();
    let width = prop::sample::select(vec![DataWidth::W16, DataWidth::W32, DataWidth::W64]);
    let order = prop::sample::select(vec![ErrorOrder::Same, ErrorOrder::Before, ErrorOrder::After]);
    (flags, width, order, prop::sample::select(vec![0_u16, 16, 128, 1024])).prop_map(
        |(f, data_width, error_order, depth)| {
            let bit = |n: u32| f >> n & 1 != 0;
            Config {
                update_raises_done: bit(0),
                timeout_then_over: bit(1),
                start_error_then_over: bit(2),
                error_order,
                auto_stop_after_error: bit(3),
                reset_forgets_clock: bit(4),
                fifo_depth: depth,
                addr64: bit(5),
                verid: if bit(6) { 0x5342_230a } else { 0x5342_290a },
                busy_clear: bit(7),
                ais_includes_ces: bit(8),
                data_width,
                held_waits_for_busy: bit(9),
                power_active_low: bit(10),
                data_after_response_error: bit(11),
                posted: if bit(12) { 5 } else { 0 },
                late_own: if bit(13) { 3 } else { 0 },
                strict_fifoth: bit(14),
                access_ns: u64::from(bit(15)) * 30,
                ..Config::hsdk()
            }
        },
    )
}

/// Modest by default; PROPTEST_CASES scales it.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// Carries one operation out; whether it was a move of the clock is the caller's business.
fn apply(b: &Bench, list: u64, buf: u64, op: &Op) {
    match *op {
        Op::Read(o) => {
            b.r(o);
        }
        Op::Write(o, v) => b.w(o, v),
        Op::Transfer(ref parts, blocks, len, cmd) => {
            let mut at = buf as u32;
            for (i, (flags, size)) in parts.iter().enumerate() {
                let here = list + i as u64 * 16;
                let last = if i + 1 == parts.len() { 4 } else { 0 };
                b.words(here, &[0x8000_0010 | flags | last, *size, at, here as u32 + 16]);
                at += size;
            }
            b.w(0x00, if parts.is_empty() { 0x10 } else { 0x0200_0030 });
            b.w(0x80, 0x82);
            b.w(0x88, list as u32);
            b.w(if parts.len() % 2 == 0 { 0x90 } else { 0x84 }, 0x337);
            b.sizes(len, len.wrapping_mul(blocks));
            b.w(0x28, blocks);
            b.w(0x2c, cmd);
        }
        Op::Recover => {
            b.w(0x00, 0x17);
            b.w(0x44, 0xffff_ffff);
            b.w(0x10, 1);
            b.w(0x2c, 0x8020_0000);
            b.w(0x2c, 0xa000_414c);
            b.clock.advance(Duration::from_micros(50));
        }
        Op::Words(i, mut w) => {
            if w[2] % 3 == 0 {
                w[2] = buf as u32 + w[2] % 64 * 4;
            }
            b.words(list + u64::from(i) * 16, &w);
        }
        Op::Advance(ns) => b.clock.advance(Duration::from_nanos(ns)),
        Op::Next => {
            let at = b.dw.next_event();
            assert!(at > b.clock.now() || b.clock.now().is_never(), "an event in the past");
            if at < Instant::from_secs(3600) {
                b.clock.advance_to(at);
            }
        }
        Op::Inject(n, f) => b.dw.inject_after(n, f),
    }
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

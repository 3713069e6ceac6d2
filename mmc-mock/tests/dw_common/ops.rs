//! What is done to a controller at random, and on which.

use crate::dw_common::{BASE, Bench};
use mmc_mock::Wakes;
use mmc_mock::card::Card;
use mmc_mock::dw::{Config, DataWidth, ErrorOrder, Fault};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

/// What a driver, or nobody, does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
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

pub(crate) fn op() -> impl Strategy<Value = Op> {
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

pub(crate) fn config() -> impl Strategy<Value = Config> {
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

/// Carries one operation out; whether it was a move of the clock is the caller's business.
pub(crate) fn apply<C: Card>(b: &Bench<C>, list: u64, buf: u64, op: &Op) {
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

//! G1 and G2 for a controller that answers anything: no panic, no endless loop, and each operation ends by its
//! limit plus the stated grace, with its payload back or kept.

use mmc_hal::{Dir, Mmio};
use mmc_mock::{Buf, Memory, MemoryDma};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::command::{Command, Gate, Response, Stop};
use mmc_proto::host::{Host, IrqHandler, Operation, Progress, Returned};
use mmc_sdhci::{GRACE, Mailbox, Platform, SdhciEngine, Table};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// Registers that read as noise, more or less often as zero or all ones; writes are lost. Capabilities and version stay as
/// they are in silicon.
#[derive(Clone)]
struct Noise(Arc<Mutex<(u64, u32)>>);

impl Mmio for Noise {
    fn read32(&self, offset: u32) -> u32 {
        match offset {
            0x40 => return 0x1578_34b4,
            0x44 => return 7,
            0xfc => return 2 << 16,
            _ => {}
        }
        let mut state = self.0.lock().unwrap();
        let (x, kind) = &mut *state;
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        let word = (*x >> 32) as u32;
        match *kind {
            0 => word,
            1 => word & (*x as u32) & (*x >> 16) as u32,
            2 if *x & 7 != 0 => 0,
            3 if *x & 7 != 0 => u32::MAX,
            4 => 0,
            5 => u32::MAX,
            // No reset pending, the clock stable, a card in the slot, the lines free: well enough to be switched on.
            7 => match offset {
                0x24 => 0x01f9_0000,
                0x2c => 0x0000_0007,
                _ => 0,
            },
            _ => word,
        }
    }
    fn write32(&self, _: u32, _: u32) {}
}

fn operation() -> impl Strategy<Value = Operation<Buf>> {
    let command = (0_u8..64, any::<u32>(), 0_usize..4, any::<(bool, bool, bool, bool)>()).prop_map(
        |(index, arg, response, (busy, now, init_clocks, tuning))| Command {
            busy,
            gate: if now { Gate::Now } else { Gate::Idle },
            init_clocks,
            tuning,
            ..Command::plain(
                index,
                arg,
                [Response::None, Response::Short, Response::ShortNoCrc, Response::Long][response],
            )
        },
    );
    let stop = prop::sample::select(vec![Stop::None, Stop::Manual, Stop::Auto, Stop::Count(8)]);
    let data = (0_u8..64, any::<bool>(), 1_u16..=2048, 1_u32..=64, 0_usize..70_000, stop).prop_map(
        |(index, read, block_len, blocks, len, stop)| {
            let dir = if read { Dir::Read } else { Dir::Write };
            let c = Command::data(index, 0, dir, block_len, blocks, stop);
            Operation::Transfer(c, Buf(vec![0; len]))
        },
    );
    let width = prop::sample::select(vec![Width::One, Width::Four, Width::Eight]);
    prop_oneof![
        command.prop_map(Operation::Command),
        data,
        Just(Operation::Command(Command { voltage_switch: true, ..Command::voltage_switch() })),
        (any::<u32>(), width, any::<bool>(), 0_u16..33, any::<bool>()).prop_map(
            |(hz, width, low, sample, fast)| {
                let signal = if low { Signal::V1_8 } else { Signal::V3_3 };
                let timing = if fast { Timing::Sdr104 } else { Timing::Default };
                Operation::Bus(BusConfig { hz, width, signal, sample, timing })
            }
        ),
        (0_u16..200)
            .prop_map(|len| Operation::Transfer(Command::send_tuning_block(), Buf(vec![0; len.into()]))),
        prop::sample::select(vec![Power::On, Power::Off]).prop_map(Operation::Power),
    ]
}

/// So many cases, unless the environment says how many.
fn cases(n: u32) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = n;
    }
    // Failures are to be copied into a test of their own.
    config.failure_persistence = None;
    config
}

proptest! {
    #![proptest_config(cases(96))]
    #[test]
    fn every_operation_ends_in_time(
        operations in prop::collection::vec(operation(), 1..12),
        kinds in prop::collection::vec(0_u32..8, 12),
        seed in 1_u64..,
        interrupts: bool,
        by_dma: bool,
        abort_at in prop::option::of(0_u64..400),
    ) {
        let memory = Memory::new(0x8000_0000, 0xc000_0000);
        let regs = Noise(Arc::new(Mutex::new((seed, 0))));
        let at = memory.alloc(4096);
        let table = Table::new(memory.window(at, 4096), at, 4096).unwrap();
        let dma = MemoryDma::new(memory.clone(), u32::MAX.into());
        let platform = Platform { v1_8: true, dma: by_dma, ..Platform::STANDARD };
        let (mut host, mut irq) = if interrupts {
            let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
            let (host, irq) = SdhciEngine::split(regs.clone(), regs.clone(), mailbox, table, dma, platform);
            (host, Some(irq))
        } else {
            (SdhciEngine::new(regs.clone(), table, dma, platform), None)
        };
        let mut now = Instant::ZERO;
        let limit = Duration::from_millis(300);
        let bus = BusConfig { hz: 50_000_000, width: Width::Four, ..BusConfig::default() };
        let mut rounds = vec![(Operation::Power(Power::On), 7), (Operation::Bus(bus), 7)];
        rounds.extend(operations.into_iter().zip(kinds));
        // Half of the time in a mode that tunes.
        if seed & 1 == 0 {
            let fast = BusConfig { timing: Timing::Sdr104, signal: Signal::V1_8, ..bus };
            rounds.insert(2, (Operation::Bus(fast), 7));
        }
        for (round, (op, kind)) in rounds.into_iter().enumerate() {
            regs.0.lock().unwrap().1 = kind;
            let by = now + limit + GRACE;
            let had = matches!(op, Operation::Transfer(..));
            let mut running = host.submit(op, now + limit, now).is_ok();
            prop_assert!(running || round >= 2, "the board comes up");
            let mut polls = 0_u32;
            while running {
                match host.poll(now) {
                    Progress::Done(done) => {
                        prop_assert!(!had || !matches!(done.payload, Returned::None));
                        prop_assert!(done.result.is_ok() || round >= 2, "the board comes up");
                        running = false;
                    }
                    Progress::Waiting { until, .. } => {
                        if round >= 2 && abort_at.is_some_and(|n| u64::from(polls) == n) {
                            host.abort(now);
                        }
                        prop_assert!(now < by, "running past its limit");
                        host.slot(now);
                        host.sdio_interrupt(polls % 2 == 0);
                        now = until.max(now + Duration::from_nanos(1)).min(by);
                        if let Some(irq) = &mut irq {
                            irq.handle();
                        }
                    }
                    Progress::Idle => prop_assert!(false, "idle without a completion"),
                }
                polls += 1;
                prop_assert!(polls < 200_000, "polled for ever");
            }
            host.reclaim(now);
        }
    }
}

//! The same suite on every build of the controller: each switch of the model (`spec/dw-mshc-model.md` part D) and
//! each FIFO depth alone, and any two of them together.

mod bench;

use bench::{Bench, MODES, Mode, filled, pattern};
use mmc_dw_hsdk::Platform;
use mmc_dw_hsdk::platform::{ALL, HSDK};
use mmc_hal::{Dir, Payload};
use mmc_mock::card::SdConfig;
use mmc_mock::dw::{Config, ErrorOrder, Fault};
use mmc_mock::timing::Profile;
use mmc_mock::{Memory, MemoryDma, Neglect};
use mmc_proto::machine::TransferOptions;
use mmc_time::Duration;

/// What a build differs in, and what the platform must say about it.
type Set = fn(&mut Config, &mut Platform);

/// Name, group (no two of a group go together), what to set.
const SWITCHES: [(&str, u8, Set); 25] = [
    ("D1 an update raises command done", 1, |c, _| c.update_raises_done = true),
    ("D2 no data over after a timeout", 2, |c, _| c.timeout_then_over = false),
    ("D3 no data over after a start bit error", 3, |c, _| c.start_error_then_over = false),
    ("D4 response errors come before", 4, |c, _| c.error_order = ErrorOrder::Before),
    ("D4 response errors come after", 4, |c, p| {
        c.error_order = ErrorOrder::After;
        p.late_response_errors = 16;
    }),
    ("D5 no automatic stop after an error", 5, |c, _| c.auto_stop_after_error = false),
    ("D6 a reset keeps the clock", 6, |c, _| c.reset_forgets_clock = false),
    ("D7 depth 32", 7, |c, p| (c.fifo_depth, p.fifo_depth) = (32, 32)),
    ("D7 depth 64", 7, |c, p| (c.fifo_depth, p.fifo_depth) = (64, 64)),
    ("D7 depth 128", 7, |c, p| (c.fifo_depth, p.fifo_depth) = (128, 128)),
    ("D7 depth 256", 7, |c, p| (c.fifo_depth, p.fifo_depth) = (256, 256)),
    ("D7 depth 1024", 7, |c, p| (c.fifo_depth, p.fifo_depth) = (1024, 1024)),
    ("D7 depth 256, taken for 16", 7, |c, _| c.fifo_depth = 256),
    ("D8 64-bit addresses", 8, |c, _| c.addr64 = true),
    ("D12 AIS without CES", 12, |c, _| c.ais_includes_ces = false),
    ("D14 a held command ignores busy", 14, |c, _| c.held_waits_for_busy = false),
    ("D15 FIFOTH of a boot loader", 15, |c, _| c.fifoth = Some(0x4020_0080)),
    ("D16 supply on with a zero", 16, |c, p| (c.power_active_low, p.power_inverted) = (true, true)),
    ("D17 no data after a response error", 17, |c, _| c.data_after_response_error = false),
    ("D18 late data", 18, |c, _| c.posted = 4),
    ("Q34 late owner", 34, |c, _| c.late_own = 4),
    ("Q35 strict bursts", 35, |c, _| c.strict_fifoth = true),
    ("slow resets", 36, |c, _| (c.reset_reads, c.swr_reads) = (20, 10)),
    ("slow registers", 37, |c, _| c.access_ns = 100),
    ("TCBCNT reads 0", 38, |c, _| c.hcon |= 1 << 26),
];

const FAULTS: [(Dir, Fault); 9] = [
    (Dir::Read, Fault::ReadCrc(3)),
    (Dir::Read, Fault::ReadNothing(3)),
    (Dir::Read, Fault::ReadStartBit(3)),
    (Dir::Read, Fault::ReadEndBit(3)),
    (Dir::Write, Fault::WriteCrc(3)),
    (Dir::Write, Fault::WriteNothing(3)),
    (Dir::Write, Fault::ResponseCrc),
    (Dir::Read, Fault::ResponseCrc),
    (Dir::Read, Fault::CommandLost),
];

/// Identification, data by DMA and by hand, and each of `faults` followed by a good write and read.
fn suite(what: &str, config: &Config, platform: Platform, mode: Mode, faults: &[(Dir, Fault)]) {
    let slow = SdConfig::new(Profile::slow2018(), 1);
    run(what, Bench::with(mode, config.clone(), platform, slow), mode, faults);
}

fn run(what: &str, mut b: Bench, mode: Mode, faults: &[(Dir, Fault)]) {
    let card = b.identify().traits;
    let data = pattern(8192, 5);
    assert_eq!(b.write(&card, 8, &data), Ok(16), "{mode:?} {what}");
    assert!(b.read(&card, 8, &[4096; 2]).unwrap() == data, "{mode:?} {what}");
    assert!(b.read(&card, 8, &[4095, 4097]).unwrap() == data, "{mode:?} by hand, {what}");
    for &(dir, fault) in faults {
        b.dw.inject_after(1, fault);
        let began = b.clock.now();
        let (r, p) = b.transfer(&card, dir, 8, filled(&data, &[8192]), TransferOptions::default());
        assert!(r.is_err(), "{mode:?} {fault:?} {what}");
        assert_eq!(p.map(|p| p.bytes()), Some(8192), "{mode:?} {fault:?} {what}");
        let took = b.clock.now().since(began);
        assert!(took <= Duration::from_secs(1), "{mode:?} {fault:?} {what} took {took}");
        assert_eq!(b.write(&card, 8, &data), Ok(16), "{mode:?} {fault:?} {what}");
        assert!(b.read(&card, 8, &[8192]).unwrap() == data, "{mode:?} {fault:?} {what}");
    }
    assert_eq!(b.memory.regions(), 1, "{what}");
    assert_eq!(b.memory.violations(), Vec::<String>::new(), "{what}");
    b.assert_clean();
}

/// Memory behind a cache and a write buffer (Q7, Q45): the suite is clean on it; a `Dma` that neglects one of its duties
/// is found out, which is the control.
#[test]
fn memory_that_is_not_coherent() {
    let bench = |mode, neglect: Option<Neglect>| {
        let memory = Memory::non_coherent(0x8000_0000, 0xc000_0000);
        let dma = MemoryDma::new(memory.clone(), u32::MAX.into());
        let dma = neglect.map_or(dma.clone(), |duty| dma.neglecting(duty));
        let slow = SdConfig::new(Profile::slow2018(), 1);
        Bench::build(mode, Config::hsdk(), HSDK, slow, memory, dma, bench::RING_BYTES)
    };
    for mode in MODES {
        run("not coherent", bench(mode, None), mode, &FAULTS);
    }
    let data = pattern(8192, 5);
    for duty in [Neglect::Clean, Neglect::Invalidate, Neglect::Publish] {
        let mut b = bench(Mode::Polled, Some(duty));
        let Ok(card) = b.try_identify() else { continue }; // it reads registers by DMA
        let _ = b.write(&card.traits, 8, &data);
        let read = b.read(&card.traits, 8, &[8192]);
        let wrong = b.stored(8, 16) != data || read.is_ok_and(|r| r != data);
        // Descriptors that are not there fail the DMA until the processor takes over, which needs none of these duties.
        let failed = b.host.engine().transfers().dma_errors;
        assert!(wrong || failed == 3, "{duty:?} makes no difference");
        assert_eq!(
            b.memory.violations().is_empty(),
            duty == Neglect::Invalidate,
            "only stale reads are silent"
        );
    }
}

#[test]
fn each_switch_alone() {
    let mut cases = 0;
    let default: (&str, u8, Set) = ("as by default", 0, |_, _| {});
    for (what, _, set) in SWITCHES.iter().chain([&default]) {
        for mode in MODES {
            let (mut config, mut platform) = (Config::hsdk(), HSDK);
            set(&mut config, &mut platform);
            suite(what, &config, platform, mode, &FAULTS);
            cases += FAULTS.len();
        }
    }
    println!("{cases} faults, each followed by a good write and read");
}

#[test]
fn any_two_switches_together() {
    let mut pairs = 0;
    for (i, (what, group, set)) in SWITCHES.iter().enumerate() {
        for (other, _, also) in SWITCHES.iter().skip(i + 1).filter(|s| s.1 != *group) {
            let (mut config, mut platform) = (Config::hsdk(), HSDK);
            set(&mut config, &mut platform);
            also(&mut config, &mut platform);
            // Both ways of learning of events take turns, and so do the faults.
            let mode = MODES[pairs % 2];
            let faults = [FAULTS[pairs % FAULTS.len()], FAULTS[(pairs + 4) % FAULTS.len()]];
            suite(&format!("{what}, {other}"), &config, platform, mode, &faults);
            pairs += 1;
        }
    }
    println!("{pairs} pairs of switches");
    assert!(pairs > 250);
}

/// The numbers of each board against a controller built as its sources say.
#[test]
fn every_platform_runs() {
    let verid = |name: &str| match name {
        "Cyclone V" => 0x5342_240a,
        "Stratix 10 / Agilex" => 0x5342_280a,
        "StarFive JH7110" => 0x5342_290a,
        "LPC SDIF" => 0x5342_230a,
        _ => 0x5342_270a,
    };
    for platform in ALL {
        for mode in MODES {
            let generic = Config { ciu_hz: platform.ciu_hz, max_hz: platform.max_hz, ..Config::generic() };
            let board = if platform.name == HSDK.name { Config::hsdk() } else { generic };
            let config = Config {
                fifo_depth: platform.fifo_depth,
                biu_hz: platform.biu_hz,
                verid: verid(platform.name),
                ..board
            };
            suite(platform.name, &config, platform, mode, &FAULTS);
        }
    }
}

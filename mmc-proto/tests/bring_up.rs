//! From an empty slot to the fastest bus: each family of cards, each mode of the bus with the way down from it, and
//! that whatever card and host answer, every conversation ends in time (G1, G2).

#[path = "bring_up/edges.rs"]
mod edges;
mod support;
#[path = "support/toy.rs"]
mod toy;

use mmc_proto::bus::{BusConfig, Signal, Timing, Timings, Width};
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{
    Fallback, Identified, Identify, IdentifyCause, IdentifyError, Machine, Mode, Reason, Registers, Speed,
    SpeedOptions, Step, Subject, Tune, TuneCause, Tuned,
};
use mmc_proto::register::{Csd, MmcCsd, Scr, ext_csd as e, sdio::Cccr};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::BTreeSet;
use toy::{Bad, Toy, full, run, walk};

fn identify(toy: &mut Toy, caps: &Capabilities) -> Identified {
    run(Identify::new(caps), toy).unwrap_or_else(|e| panic!("{e}: {:#?}", toy.log))
}
fn refused(toy: &mut Toy, caps: &Capabilities) -> IdentifyError {
    run(Identify::new(caps), toy).unwrap_err()
}
fn left(id: &Identified) -> Vec<(Mode, Reason)> {
    id.fallbacks.iter().map(|Fallback { mode, reason }| (mode, reason)).collect()
}
fn modest() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz) = (Width::Eight, 52_000_000);
    caps
}
/// The host that can do everything, but for this.
fn but(change: impl FnOnce(&mut Capabilities)) -> Capabilities {
    let mut caps = full();
    change(&mut caps);
    caps
}
fn cycles(toy: &Toy) -> usize {
    toy.log.iter().filter(|line| *line == "Off").count()
}

// SD at 1.8 V.

#[test]
fn a_uhs_card_goes_to_sdr104_and_samples_in_the_middle() {
    let mut toy = Toy::uhs();
    let id = identify(&mut toy, &full());
    assert_eq!(
        id.bus,
        BusConfig {
            hz: 208_000_000,
            width: Width::Four,
            timing: Timing::Sdr104,
            signal: Signal::V1_8,
            sample: 6
        }
    );
    assert!(left(&id).is_empty() && id.sd().unwrap().ssr.is_some());
    let at = |line: &str| {
        toy.log.iter().position(|l| l == line).unwrap_or_else(|| panic!("{line}: {:#?}", toy.log))
    };
    assert!(at("Off") < at("On"), "a card may have been left at 1.8 V");
    assert!(at("ACMD41:49300000") < at("CMD11:0"));
    assert!(at("CMD11:0") < at("V1_8 Default 400000 Hz x1 @0"));
    assert!(at("V1_8 Default 400000 Hz x1 @0") < at("CMD2:0"));
    assert!(at("V1_8 Sdr12 25000000 Hz x4 @0") < at("CMD6:80fffff3"));
    assert!(at("CMD6:80fffff3") < at("V1_8 Sdr104 208000000 Hz x4 @0"));
    assert_eq!(toy.log.iter().filter(|l| *l == "CMD19:0").count(), 16);
}

#[test]
fn the_fastest_mode_is_the_one_the_hosts_clock_makes_most_of() {
    for (hz, points, timing) in [
        (208_000_000, 16, Timing::Sdr104),
        (208_000_000, 0, Timing::Sdr50),
        (100_000_000, 16, Timing::Sdr50),
        (50_000_000, 16, Timing::Ddr50),
        (25_000_000, 16, Timing::Ddr50),
    ] {
        let caps = but(|c| (c.max_hz, c.sample_points) = (hz, points));
        let id = identify(&mut Toy::uhs(), &caps);
        assert_eq!((id.bus.timing, id.bus.hz), (timing, timing.max_hz().min(hz)), "{hz} Hz, {points} points");
    }
    let slow = but(|c| c.timings = Timings::new());
    let id = identify(&mut Toy::uhs(), &slow);
    assert_eq!((id.bus.timing, id.bus.signal), (Timing::High, Signal::V3_3), "no reason for 1.8 V");
    let one = but(|c| c.width = Width::One);
    assert_eq!(identify(&mut Toy::uhs(), &one).bus.signal, Signal::V3_3);
}

#[test]
fn a_uhs_card_falls_by_cmd6_alone_where_tuning_fails_or_it_says_no() {
    let mut toy = Toy { untunable: vec![Timing::Sdr104], ..Toy::uhs() };
    let id = identify(&mut toy, &full());
    assert_eq!(id.bus.timing, Timing::Sdr50);
    assert_eq!(left(&id), [(Mode::Timing(Timing::Sdr104), Reason::Tuning)]);
    assert_eq!(cycles(&toy), 1, "the one before the start");
    let at = |line: &str| toy.log.iter().position(|l| l == line).unwrap();
    assert!(at("CMD6:80fffff3") < at("CMD6:80fffff2"));

    let mut toy = Toy { refuses: vec![Timing::Sdr104, Timing::Sdr50, Timing::Ddr50], ..Toy::uhs() };
    let id = identify(&mut toy, &full());
    assert_eq!((id.bus.timing, id.bus.hz, cycles(&toy)), (Timing::Sdr25, 50_000_000, 1));
    assert_eq!(left(&id).len(), 3);
}

#[test]
fn a_uhs_card_lost_in_a_mode_is_identified_again_without_it() {
    let mut toy = Toy { garbled: vec![Timing::Ddr50], deaf: vec![Timing::Sdr104], ..Toy::uhs() };
    let caps = but(|c| c.timings = c.timings.without(Timing::Sdr50));
    let id = identify(&mut toy, &caps);
    assert_eq!(id.bus.timing, Timing::Sdr25);
    let deaf = (Mode::Timing(Timing::Sdr104), Reason::Tuning);
    assert_eq!(left(&id), [deaf, (Mode::Timing(Timing::Ddr50), Reason::Data)]);
}

#[test]
fn without_the_switch_to_1_8_v_it_goes_on_at_3_3_v() {
    for toy in [Toy { deaf_cmd11: true, ..Toy::uhs() }, Toy { stuck_low: true, ..Toy::uhs() }] {
        let mut toy = toy;
        let id = identify(&mut toy, &full());
        assert_eq!((id.bus.timing, id.bus.signal, cycles(&toy)), (Timing::High, Signal::V3_3, 2));
        assert_eq!(left(&id), [(Mode::Signal, Reason::NoAnswer)]);
        assert_eq!(toy.log.iter().filter(|l| *l == "CMD11:0").count(), 1);
    }
    // A combo card's I/O is not asked.
    let mut combo = Toy { ocr: 0xc1ff_8000, ..Toy::combo() };
    assert_eq!(identify(&mut combo, &full()).bus.signal, Signal::V3_3);
}

#[test]
fn a_card_at_1_8_v_stays_there_where_the_supply_is_fixed() {
    let mut toy = Toy { fixed_supply: true, garbled: vec![Timing::Sdr104], ..Toy::uhs() };
    let id = identify(&mut toy, &full());
    assert_eq!((id.bus.timing, id.bus.signal), (Timing::Sdr50, Signal::V1_8));
    assert_eq!(toy.log.iter().filter(|l| *l == "CMD11:0").count(), 1);
    assert!(toy.log.contains(&"V1_8 Default 400000 Hz x1 @0".to_string()));
}

#[test]
fn driver_strength_and_current_are_asked_for_where_the_card_has_them() {
    let options = SpeedOptions { driver: 1, max_current_ma: 600, ..SpeedOptions::new(&full()) };
    let mut toy = Toy::uhs();
    run(Identify::with(&full(), options), &mut toy).unwrap();
    assert!(toy.log.contains(&"CMD6:80ff21f3".to_string()), "{:#?}", toy.log);
    let mut toy = Toy { functions: [0x1f, 1, 3], ..Toy::uhs() };
    run(Identify::with(&full(), options), &mut toy).unwrap();
    assert!(toy.log.contains(&"CMD6:80ff1ff3".to_string()), "driver B alone, 400 mA: {:#?}", toy.log);
    let options = SpeedOptions { timings: Timings::default_only(), width: Width::One, ..options };
    let id = run(Identify::with(&full(), options), &mut Toy::uhs()).unwrap();
    assert_eq!((id.bus.timing, id.bus.width, id.bus.signal), (Timing::Default, Width::One, Signal::V3_3));
}

// MMC.

#[test]
fn an_emmc_goes_to_the_fastest_of_what_it_and_its_host_have() {
    let wide = |width| but(|c| c.width = width);
    let unsampled = but(|c| c.sample_points = 0);
    let three = but(|c| c.v1_8 = false);
    for (device_type, caps, timing, hz) in [
        (0x157, full(), Timing::Hs400Es, 200_000_000),
        (0x57, full(), Timing::Hs400, 200_000_000),
        (0x17, full(), Timing::Hs200, 200_000_000),
        (0x07, full(), Timing::Ddr52, 52_000_000),
        (0x03, full(), Timing::High, 52_000_000),
        (0x01, full(), Timing::Default, 26_000_000),
        (0x157, wide(Width::Four), Timing::Hs200, 200_000_000),
        (0x157, wide(Width::One), Timing::High, 52_000_000),
        (0x157, unsampled, Timing::Hs400Es, 200_000_000),
        (0x57, unsampled, Timing::Ddr52, 52_000_000),
        (0x157, three, Timing::Ddr52, 52_000_000),
        (0x157, modest(), Timing::High, 52_000_000),
        (0x157, Capabilities::new(), Timing::Default, 25_000_000),
    ] {
        let mut toy = Toy::emmc(device_type);
        let id = identify(&mut toy, &caps);
        assert_eq!((id.bus.timing, id.bus.hz), (timing, hz), "{device_type:x}: {:#?}", toy.log);
        assert_eq!(id.bus.width, caps.width, "{device_type:x}");
        assert!(left(&id).is_empty(), "{:?}", left(&id));
        assert_eq!((id.traits.blocks, id.traits.byte_addressed, id.traits.rca), (16_777_216, false, 1));
        assert!(id.traits.cmd23 && matches!(id.registers, Registers::Mmc(_)));
        let fast = matches!(timing, Timing::Hs200 | Timing::Hs400 | Timing::Hs400Es);
        assert_eq!(id.bus.signal == Signal::V1_8, fast);
    }
}

#[test]
fn hs400_comes_by_way_of_a_tuned_hs200() {
    let mut toy = Toy::emmc(0x57);
    identify(&mut toy, &full());
    let from = toy.log.iter().position(|l| l == "CMD6:3b90201").unwrap();
    let way: Vec<_> =
        toy.log[from..].iter().filter(|l| !l.starts_with("CMD21") && !l.contains("Hs200 2000")).collect();
    assert_eq!(
        way,
        [
            "CMD6:3b90201",
            "V1_8 Hs200 26000000 Hz x8 @0",
            "CMD13:10000",
            "CMD6:3b90101",
            "V1_8 High 52000000 Hz x8 @0",
            "CMD13:10000",
            "CMD6:3b70601",
            "CMD6:3b90301",
            "V1_8 Hs400 200000000 Hz x8 @6",
            "CMD13:10000",
            "CMD8:0",
        ]
    );
}

#[test]
fn an_emmc_falls_from_every_mode() {
    let all = [Timing::Hs400Es, Timing::Hs400, Timing::Hs200, Timing::Ddr52, Timing::High];
    for n in 0..=all.len() {
        let bad = all[..n].to_vec();
        let best = all.get(n).copied().unwrap_or(Timing::Default);
        // Refused: DDR52's switch is the one into HS400, too.
        let refused: Vec<_> = bad.iter().copied().filter(|t| *t != Timing::Ddr52).collect();
        for (kind, toy) in [
            ("refused", Toy { refuses: refused, ..Toy::emmc(0x157) }),
            ("deaf", Toy { deaf: bad.clone(), ..Toy::emmc(0x157) }),
            ("garbled", Toy { garbled: bad.clone(), ..Toy::emmc(0x157) }),
            ("untunable", Toy { untunable: bad.clone(), deaf: bad.clone(), ..Toy::emmc(0x157) }),
        ] {
            if kind == "refused" && bad.contains(&Timing::Ddr52) {
                continue;
            }
            let mut toy = toy;
            let id = identify(&mut toy, &full());
            assert_eq!(id.bus.timing, best, "{kind} {bad:?}: {:?}", left(&id));
            let named: Vec<_> = id.fallbacks.iter().map(|f| f.mode).collect();
            let mut expected: Vec<_> = bad.iter().map(|t| Mode::Timing(*t)).collect();
            if kind == "deaf" && bad.contains(&Timing::Hs400Es) && !bad.contains(&Timing::Hs400) {
                expected.truncate(1);
            }
            assert_eq!(named, expected, "{kind}");
        }
    }
}

#[test]
fn a_host_that_cannot_go_down_to_400_khz_begins_at_its_slowest_clock() {
    // linux-mmc 02e5725dc: some controllers divide by too little.
    for (min_hz, max_hz, first) in
        [(0, 52_000_000, 400_000), (1_560_000, 52_000_000, 1_560_000), (0, 300_000, 300_000)]
    {
        for mut toy in [Toy::uhs(), Toy::emmc(0x157)] {
            let mut caps = modest();
            (caps.min_hz, caps.max_hz) = (min_hz, max_hz);
            let id = identify(&mut toy, &caps);
            let clocks: Vec<u32> = toy
                .log
                .iter()
                .filter_map(|l| l.split_once(" Hz")?.0.rsplit(' ').next()?.parse().ok())
                .collect();
            assert_eq!(clocks.first(), Some(&first), "{:?}", toy.log);
            assert!(
                clocks.iter().all(|hz| (min_hz..=max_hz).contains(hz)) && id.bus.hz <= max_hz,
                "{clocks:?}"
            );
        }
    }
}

#[test]
fn lines_that_do_not_work_are_left() {
    let mut toy = Toy { garbled_width: vec![Width::Eight], ..Toy::emmc(0x07) };
    let id = identify(&mut toy, &full());
    assert_eq!((id.bus.width, id.bus.timing), (Width::Four, Timing::Ddr52));
    assert_eq!(left(&id), [(Mode::Width(Width::Eight), Reason::Data)]);
    let mut toy =
        Toy { refuses_width: vec![Width::Eight], garbled_width: vec![Width::Four], ..Toy::emmc(0x07) };
    let id = identify(&mut toy, &full());
    assert_eq!((id.bus.width, id.bus.timing), (Width::One, Timing::High));
    assert_eq!(left(&id).len(), 2);
    // An SD card is told by a power cycle.
    let mut toy = Toy { garbled_width: vec![Width::Four], ..Toy::sdhc() };
    let id = identify(&mut toy, &modest());
    assert_eq!((id.bus.width, id.bus.timing, cycles(&toy)), (Width::One, Timing::High, 1));
    assert_eq!(left(&id), [(Mode::Width(Width::Four), Reason::Data)]);
}

#[test]
fn mmc_before_4_0_have_neither_ext_csd_nor_cmd6() {
    let mut toy = Toy::mmc3();
    let id = identify(&mut toy, &full());
    assert_eq!((id.bus.hz, id.bus.width, id.bus.timing), (20_000_000, Width::One, Timing::Default));
    assert_eq!((id.traits.blocks, id.traits.byte_addressed), (62_720, true));
    assert!(id.mmc().unwrap().ext_csd.is_none());
    assert!(toy.log.contains(&"CMD16:200".to_string()));
    assert!(!toy.log.iter().any(|l| l.starts_with("CMD6:") || l == "CMD8:0"), "{:#?}", toy.log);
}

#[test]
fn the_size_of_an_emmc_must_be_known_and_its_addresses_must_fit() {
    let error = refused(&mut Toy { ext_csd: None, ..Toy::emmc(7) }, &full());
    assert!(matches!(error.cause, IdentifyCause::Register(_)), "{error}");
    let error = refused(&mut Toy { mmc_ocr: 0x80ff_8080, ..Toy::emmc(7) }, &full());
    assert_eq!(error.cause, IdentifyCause::Addressing, "8 GB by bytes");
    let error = refused(&mut Toy { mmc_ocr: 0xc000_8080, ..Toy::emmc(7) }, &full());
    assert!(matches!(error.cause, IdentifyCause::Voltage { .. }), "{error}");
    let error = refused(&mut Toy { busy: u32::MAX, ..Toy::emmc(7) }, &full());
    assert!(matches!(error.cause, IdentifyCause::PowerUp(_)), "{error}");
    // Native sectors of 4 KiB, and partitions that count in large groups.
    let mut ext = Toy::emmc(7).ext_csd.unwrap();
    ext.set(e::DATA_SECTOR_SIZE, 1);
    ext.set(e::PARTITION_SETTING_COMPLETED, 1);
    let mut toy = Toy { ext_csd: Some(ext), ..Toy::emmc(7) };
    let id = identify(&mut toy, &full());
    assert_eq!(id.traits.unit, 8);
    assert_eq!(id.mmc().unwrap().ext_csd.unwrap().get(e::ERASE_GROUP_DEF), 1);
    assert!(toy.log.contains(&"CMD6:3af0101".to_string()), "{:#?}", toy.log);
}

// SDIO.

#[test]
fn sdio_cards_are_found_first_and_combo_cards_are_both() {
    let mut toy = Toy::sdio();
    let id = identify(&mut toy, &full());
    assert_eq!((id.registers, id.traits.blocks, id.io.unwrap().functions), (Registers::None, 0, 2));
    assert_eq!((id.bus.hz, id.bus.width, id.bus.timing), (50_000_000, Width::Four, Timing::High));
    let all = toy.log.join(" ");
    assert!(all.contains("CMD52:80000c08 CMD0:0 CMD8:1aa CMD8:1aa CMD5:0 CMD5:300000"), "{all}");
    assert!(!toy.log.iter().any(|l| l.starts_with("CMD9") || l.starts_with("CMD13")), "no memory, no CMD13");

    let mut toy = Toy::combo();
    let id = identify(&mut toy, &full());
    assert!(id.sd().is_some() && id.io.is_some() && id.traits.blocks == 16_777_216);
    assert_eq!((id.bus.width, id.bus.timing), (Width::Four, Timing::High));
    let all = toy.log.join(" ");
    assert!(all.contains("ACMD6:2 CMD52:80000e82"), "both parts: {all}");
    assert!(all.contains("CMD6:80fffff1 CMD52:80002602"), "both parts: {all}");
}

#[test]
fn either_part_of_a_combo_card_is_good_without_the_other() {
    let no_cccr = Toy { cccr: [0xff; 23], ..Toy::combo() };
    let id = identify(&mut no_cccr.clone(), &modest());
    assert!(id.io.is_none() && id.sd().is_some() && id.bus.timing == Timing::High);
    let no_memory = Toy { sd: false, ..Toy::combo() };
    let id = identify(&mut no_memory.clone(), &modest());
    assert!(id.io.is_some() && id.registers == Registers::None);
    let error = refused(&mut Toy { cccr: [0; 23], ..Toy::sdio() }, &modest());
    assert!(matches!(error.cause, IdentifyCause::Register(_)), "{error}");
    let error = refused(&mut Toy { busy: u32::MAX, ..Toy::sdio() }, &modest());
    assert!(matches!(error.cause, IdentifyCause::PowerUp(_)), "{error}");
}

#[test]
fn sdio_cards_without_high_speed_or_with_low_speed_stay_slow() {
    let mut toy = Toy { refuses: vec![Timing::High], ..Toy::sdio() };
    let id = identify(&mut toy, &modest());
    assert_eq!((id.bus.timing, id.bus.hz), (Timing::Default, 25_000_000));
    assert_eq!(left(&id), [(Mode::Timing(Timing::High), Reason::Refused)]);
    let mut toy = Toy::sdio();
    toy.cccr[8] = 0x40;
    let id = identify(&mut toy, &modest());
    assert_eq!((id.bus.width, id.bus.hz), (Width::One, 400_000), "a low-speed card");
}

// Tuning alone.

fn hs200() -> BusConfig {
    let (hz, width, timing, signal) = (200_000_000, Width::Eight, Timing::Hs200, Signal::V1_8);
    BusConfig { hz, width, timing, signal, sample: 0 }
}

#[test]
fn tuning_finds_the_middle_of_the_longest_window() {
    for (points, window, sample) in
        [(16, 4..9, 6), (16, 0..16, 8), (16, 3..4, 3), (360, 90..180, 135), (7, 0..2, 1)]
    {
        let caps = but(|c| c.sample_points = points);
        let mut toy = Toy { window: window.clone(), bus: hs200(), ..Toy::emmc(0x17) };
        let Tuned { bus, tried, .. } = run(Tune::mmc(&caps, hs200()), &mut toy).unwrap();
        assert_eq!((bus.sample, tried), (sample, points.min(40) as u8), "{points} points, {window:?}");
        assert_eq!(toy.bus, bus);
        assert!(toy.log.iter().filter(|l| *l == "CMD21:0").count() <= 40);
    }
    let sd = BusConfig { width: Width::Four, timing: Timing::Sdr104, ..hs200() };
    let mut toy = Toy { bus: sd, ..Toy::uhs() };
    assert_eq!(run(Tune::sd(&full(), sd), &mut toy).unwrap().bus.sample, 6);
}

#[test]
fn tuning_says_why_it_found_nothing() {
    let tune = |caps: &Capabilities, toy: &mut Toy| run(Tune::mmc(caps, hs200()), toy).unwrap_err().cause;
    let mut toy = Toy { window: 0..0, bus: hs200(), ..Toy::emmc(0x17) };
    assert_eq!(tune(&full(), &mut toy), TuneCause::NoWindow(16));
    assert_eq!(tune(&modest(), &mut toy), TuneCause::NoPoints);
    // A host that moves nothing and says all is well.
    let empty = |_, _: &Step<_>, good: Result<Reply, HostError>, scratch: &mut [u8]| {
        scratch.fill(0);
        (good, Duration::ZERO)
    };
    let mut toy = Toy { bus: hs200(), ..Toy::emmc(0x17) };
    let out = walk(Tune::mmc(&full(), hs200()), &mut toy, |_| String::new(), empty).out;
    assert_eq!(out.unwrap_err().cause, TuneCause::NoWindow(16));
    let gone = |n, _: &Step<_>, good, _: &mut [u8]| {
        let gone = Err(HostError::new(Cause::NoCard, Phase::Submit, 21));
        (if n == 9 { gone } else { good }, Duration::ZERO)
    };
    let out = walk(Tune::mmc(&full(), hs200()), &mut toy, |_| String::new(), gone).out;
    assert!(out.unwrap_err().media_gone());
    let slow = |_, step: &Step<_>, good, _: &mut [u8]| match step {
        Step::Do(a) => (good, a.limit),
        _ => (good, Duration::ZERO),
    };
    let walked = walk(Tune::mmc(&full(), hs200()), &mut toy, |_| String::new(), slow);
    assert_eq!(walked.out.unwrap_err().cause, TuneCause::Limit);
    assert!(walked.took <= Tune::LIMIT + Duration::from_millis(150));
}

#[test]
fn an_application_command_that_never_arrives_leaves_no_card_that_waits_for_one() {
    for lost in [vec![41], vec![51], vec![42], vec![6], vec![13], vec![41, 51, 42, 6, 13]] {
        let mut toy = Toy { lost: lost.clone(), ..Toy::uhs() };
        let id = identify(&mut toy, &full());
        assert!(toy.lost.is_empty(), "the control: {lost:?} strikes, {:?} did not", toy.lost);
        assert!(!toy.sending && !toy.app, "{lost:?}: {:#?}", toy.log);
        assert_eq!((id.bus.timing, id.bus.width, cycles(&toy)), (Timing::Sdr104, Width::Four, 1), "{lost:?}");
        assert!(left(&id).is_empty(), "{lost:?}: {:?}", left(&id));
    }
    // The CMD13 behind the last one is taken for it, and the status it brings is stopped.
    let mut toy = Toy { lost: vec![13], ..Toy::uhs() };
    identify(&mut toy, &full());
    let end: Vec<_> = toy.log.iter().rev().take(4).rev().collect();
    assert_eq!(end, ["CMD55:aaaa0000", "ACMD13:aaaa0000", "CMD12:0", "CMD13:aaaa0000"]);
}

// Everything that can come.

/// An eMMC of 1.5 GiB, addressed by bytes.
fn small(partitioned: bool) -> Toy {
    let mut ext = Toy::emmc(0x03).ext_csd.unwrap();
    ext.set(e::SEC_COUNT, 3_145_728);
    ext.set(e::PARTITION_SETTING_COMPLETED, partitioned.into());
    Toy { ext_csd: Some(ext), mmc_ocr: 0x80ff_8080, ..Toy::emmc(0x03) }
}

fn toys() -> Vec<Toy> {
    let mut partitioned = Toy::emmc(0x57);
    if let Some(ext) = &mut partitioned.ext_csd {
        ext.set(e::PARTITION_SETTING_COMPLETED, 1);
    }
    vec![
        Toy::sdhc(),
        Toy::sdsc(),
        Toy::uhs(),
        Toy::emmc(0x157),
        partitioned,
        Toy::emmc(0x07),
        Toy::mmc3(),
        Toy::sdio(),
        Toy::combo(),
        Toy { untunable: vec![Timing::Sdr104, Timing::Sdr50], refuses: vec![Timing::Ddr50], ..Toy::uhs() },
        Toy { refuses: vec![Timing::Hs400Es, Timing::Hs400, Timing::Hs200], ..Toy::emmc(0x157) },
        Toy { garbled_width: vec![Width::Eight], refuses_width: vec![Width::Four], ..Toy::emmc(0x07) },
        Toy { garbled_width: vec![Width::Four], ..Toy::uhs() },
        Toy { sd: false, ..Toy::sdhc() },
        Toy {
            untunable: vec![Timing::Sdr104, Timing::Sdr50],
            refuses: vec![Timing::Ddr50, Timing::Sdr25],
            ..Toy::uhs()
        },
        small(false),
        small(true),
        Toy { refuses: vec![Timing::High], ..Toy::sdio() },
        // Contradicts itself, in a way that can be lived with.
        Toy { mmc_ocr: 0xc0ff_8000, ..Toy::mmc3() },
    ]
}

/// A choice of speed alone, with the toy on the bus it begins with.
fn speeds() -> Vec<(Toy, Speed)> {
    let sd = |toy: Toy, signal: Signal, io: bool| {
        let cccr = Cccr::parse(&toy.cccr).unwrap().info();
        let subject = Subject::sd(&Csd::new(toy.csd), Some(&Scr::new(toy.scr)), io.then_some(&cccr));
        (subject, signal, 0xaaaa, toy)
    };
    let mmc = |toy: Toy| (Subject::mmc(&MmcCsd::new(toy.csd), toy.ext_csd.as_ref()), Signal::V3_3, 1, toy);
    let io = |toy: Toy| (Subject::io(&Cccr::parse(&toy.cccr).unwrap().info()), Signal::V3_3, 0xaaaa, toy);
    let mut all = Vec::new();
    for toy in toys() {
        let of = match (toy.mmc, toy.sd, toy.io.is_some()) {
            (true, ..) => mmc(toy),
            (_, true, combo) => {
                let signal = if toy.ocr & 1 << 24 != 0 { Signal::V1_8 } else { Signal::V3_3 };
                sd(toy, signal, combo)
            }
            (_, _, true) => io(toy),
            _ => continue,
        };
        let (subject, signal, rca, mut toy) = of;
        let timing = subject.base(signal);
        // How fast an I/O card may go is known only now.
        let hz = if toy.mmc || toy.sd { subject.hz(timing) } else { 400_000 };
        let bus = BusConfig { hz, timing, signal, ..BusConfig::default() };
        toy.bus = bus;
        for width in [Width::Eight, Width::One] {
            let caps = but(|c| c.width = width);
            all.push((toy.clone(), Speed::new(&caps, SpeedOptions::new(&caps), subject, rca, bus)));
        }
    }
    all
}

const GRACE: Duration = Duration::from_secs(3);

/// How late, in 1/255 of the limit; a change of the bus or of the supply may take a second.
fn late<T>(step: &Step<T>, part: u8) -> Duration {
    let limit = match step {
        Step::Do(action) => action.limit,
        _ => Duration::from_secs(1),
    };
    Duration::from_nanos(limit.as_nanos() / 255 * u64::from(part))
}
fn index<T>(step: &Step<T>) -> u8 {
    match step {
        Step::Do(action) => action.command.index,
        _ => 255,
    }
}

fn bad() -> impl Strategy<Value = Option<Bad>> {
    prop_oneof![
        12 => Just(None),
        3 => any::<u8>().prop_map(|n| Some(Bad::Host(n))),
        1 => any::<u32>().prop_map(|w| Some(Bad::Words(w))),
        1 => Just(Some(Bad::Zeros)),
        2 => any::<u8>().prop_map(|n| Some(Bad::Flip(n))),
    ]
}

/// Any sequence of answers: right, wrong, late, absent.
fn fates() -> impl Strategy<Value = Vec<(Option<Bad>, u8)>> {
    let part = prop_oneof![4 => Just(0_u8), 1 => any::<u8>()];
    proptest::collection::vec((bad(), part), 1..80)
}

fn fated<M: Machine>(
    machine: M,
    toy: &mut Toy,
    phase: impl Fn(&M) -> String,
    fates: &[(Option<Bad>, u8)],
    turn: usize,
) -> toy::Walk<M::Output> {
    walk(machine, toy, phase, |n, step, good, scratch| {
        let (bad, part) = fates[(n as usize + turn) % fates.len()];
        let result = bad.map_or(good, |bad| bad.make(index(step), good, scratch));
        (result, late(step, part))
    })
}

proptest! {
    #[test]
    fn identification_ends_in_time_whatever_comes(
        fates in fates(),
        turn in 0_usize..80,
        which in 0..toys().len(),
        caps in prop_oneof![Just(full()), Just(modest()), Just(Capabilities::new())],
    ) {
        let mut toy = toys().swap_remove(which);
        let walked = fated(Identify::new(&caps), &mut toy, |m: &Identify| format!("{:?}", m.phase()), &fates, turn);
        prop_assert!(walked.took <= Identify::LIMIT + GRACE, "took {}", walked.took);
        prop_assert!(walked.steps < 6_000, "{} steps", walked.steps);
        on_the_map("Identify", &walked.phases);
        match walked.out {
            Ok(id) => {
                prop_assert!(id.traits.rca != 0 && id.bus.hz <= caps.max_hz && id.bus.width <= caps.width);
                prop_assert!(caps.timings.has(id.bus.timing) || id.bus.timing == Timing::Sdr12);
                prop_assert!(id.traits.blocks > 0 || id.io.is_some());
                prop_assert!(id.bus.signal == Signal::V3_3 || caps.v1_8);
            }
            Err(e) => prop_assert!(!e.to_string().is_empty() && e.cause != IdentifyCause::OutOfTurn),
        }
    }

    #[test]
    fn the_choice_of_a_speed_ends_in_time_whatever_comes(
        fates in fates(),
        turn in 0_usize..80,
        which in 0..speeds().len(),
    ) {
        let (mut toy, speed) = speeds().swap_remove(which);
        let walked = fated(speed, &mut toy, |m: &Speed| format!("{:?}", m.phase()), &fates, turn);
        prop_assert!(walked.took <= Speed::LIMIT + GRACE, "took {}", walked.took);
        prop_assert!(walked.steps < 3_000, "{} steps", walked.steps);
        on_the_map("Speed", &walked.phases);
        match walked.out {
            Ok(raised) => prop_assert_eq!(raised.bus, toy.bus, "what it says is what the host was told last"),
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }

    #[test]
    fn tuning_ends_in_time_whatever_comes(fates in fates(), turn in 0_usize..80, points in 0_u16..500, at in 0_u16..500, len in 0_u16..300) {
        let caps = but(|c| c.sample_points = points);
        let mut toy = Toy { window: at..at.saturating_add(len), bus: hs200(), ..Toy::emmc(0x17) };
        let walked = fated(Tune::mmc(&caps, hs200()), &mut toy, |m: &Tune| format!("{:?}", m.phase()), &fates, turn);
        prop_assert!(walked.took <= Tune::LIMIT + Duration::from_secs(1), "took {}", walked.took);
        prop_assert!(walked.steps < 130, "{} steps", walked.steps);
        on_the_map("Tune", &walked.phases);
        match walked.out {
            Ok(tuned) => prop_assert!(tuned.bus.sample < points && tuned.run > 0 && tuned.run <= tuned.tried),
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }

    #[test]
    fn driven_out_of_turn_they_end_with_an_error(
        calls in proptest::collection::vec((any::<bool>(), any::<u8>(), any::<[u32; 4]>(), 0_u32..4_000, 0_usize..600), 0..200),
        which in 0..speeds().len(),
    ) {
        let mut identify = Identify::new(&full());
        let mut speed = speeds().swap_remove(which).1;
        let mut tune = Tune::sd(&full(), hs200());
        let mut scratch = [0x5a_u8; 600];
        let mut now = Instant::ZERO;
        for (some, n, words, ms, len) in calls {
            let last = some.then(|| if n & 1 == 0 { Err(support::host_error(n, n)) } else { Ok(Reply { words, bytes: n.into() }) });
            now += Duration::from_millis(ms.into());
            let _ = identify.next(last, &mut scratch[..len], now);
            let _ = speed.next(last, &mut scratch[..len], now);
            let _ = tune.next(last, &mut scratch[..len], now);
        }
    }
}

// The pictures.

type Edges = BTreeSet<(String, String)>;

/// What goes wrong from some step on: each kind of bad answer once, three times and for ever; and data that come to
/// grief while the card goes on sending and does not hear CMD12, up to three times.
fn troubles() -> Vec<Vec<Option<Bad>>> {
    // No answer, a line that is held, a broken answer, a host that cannot, no card; errors in R1; nothing; a card that
    // still sends.
    let host = [0, 1, 2, 7, 10].map(Bad::Host);
    let bads = host.into_iter().chain([Bad::Words(0x0008_0000), Bad::Zeros]);
    let words = [Bad::Words(0x0b00), Bad::Words(0x0980), Bad::Words(0x0200_0900)];
    let mut all = Vec::new();
    for bad in bads.chain(words) {
        all.extend([1, 3, 500].map(|times| vec![Some(bad); times]));
    }
    let stuck = [Some(Bad::Host(2)), Some(Bad::Words(0x0b00)), Some(Bad::Host(0))];
    // An application command has a CMD55 before it that goes well.
    let app = [stuck[0], stuck[1], stuck[2], None];
    for times in 1..=3 {
        all.extend([stuck.repeat(times), app.repeat(times)]);
    }
    // The card leaves the slot while it is stopped.
    all.push(vec![stuck[0], stuck[1], Some(Bad::Host(10))]);
    all
}

/// Every walk with each trouble from each step on.
fn edges<M: Machine + Clone>(start: &[(Toy, M)], phase: impl Fn(&M) -> String + Copy) -> Edges {
    let mut all = Edges::new();
    for (toy, machine) in start {
        for trouble in troubles() {
            let mut at = 0;
            loop {
                let walked = walk(machine.clone(), &mut toy.clone(), phase, |n, step, good, scratch| {
                    let bad = n.checked_sub(at).and_then(|n| trouble.get(n as usize)).copied().flatten();
                    let result = bad.map_or(good, |bad| bad.make(index(step), good, scratch));
                    (result, Duration::from_micros(300))
                });
                let moves = walked.phases.windows(2).filter(|p| p[0] != p[1]);
                all.extend(moves.map(|p| (p[0].clone(), p[1].clone())));
                at += 1;
                if at >= 200 || at > walked.steps {
                    break;
                }
            }
        }
    }
    all
}

/// The edges of the state diagram under this heading of docs/protocol-bring-up.md.
fn drawn(title: &str) -> Edges {
    let doc = include_str!("../../docs/protocol-bring-up.md");
    let heading = doc.lines().position(|l| l.trim_start_matches('#').trim() == title && l.starts_with('#'));
    let heading = heading.unwrap_or_else(|| panic!("docs/protocol-bring-up.md has no heading `{title}`"));
    let section = doc.lines().skip(heading + 1).take_while(|l| !l.starts_with('#'));
    let edges =
        section.filter_map(|l| l.split_once("-->")).map(|(a, b)| (a.trim().to_owned(), b.trim().to_owned()));
    edges.filter(|(a, b)| a != "[*]" && b != "[*]").collect()
}

/// No walk leaves the ways that are drawn.
fn on_the_map(title: &str, phases: &[String]) {
    let drawn = drawn(title);
    for p in phases.windows(2).filter(|p| p[0] != p[1]) {
        let edge = (p[0].clone(), p[1].clone());
        if std::env::var("MMC_DRAW").is_ok() {
            if !drawn.contains(&edge) {
                println!("NEW {title}: {} --> {}", edge.0, edge.1);
            }
        } else {
            assert!(drawn.contains(&edge), "{title}: {edge:?} is not drawn");
        }
    }
}

fn compare(title: &str, walked: &Edges) {
    let text = |edges: Vec<&(String, String)>| {
        edges.into_iter().map(|(a, b)| format!("    {a} --> {b}\n")).collect::<String>()
    };
    if std::env::var("MMC_DRAW").is_ok() {
        println!("## {title}\n{}", text(walked.iter().collect()));
        return;
    }
    let drawn = drawn(title);
    let (missing, wrong) = (walked.difference(&drawn).collect(), drawn.difference(walked).collect());
    let (missing, wrong) = (text(missing), text(wrong));
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "{title}: not drawn:\n{missing}drawn, but never walked:\n{wrong}"
    );
}

#[test]
fn the_diagrams_show_the_ways_that_are_walked() {
    let mut start: Vec<_> = toys().into_iter().map(|toy| (toy, Identify::new(&full()))).collect();
    start.push((Toy::sdhc(), Identify::new(&Capabilities::new())));
    compare("Identify", &edges(&start, |m| format!("{:?}", m.phase())));
    compare("Speed", &edges(&speeds(), |m| format!("{:?}", m.phase())));
    let mut tunes = Vec::new();
    for window in [4..9, 0..0] {
        let toy = Toy { window, bus: hs200(), ..Toy::emmc(0x17) };
        tunes.push((toy.clone(), Tune::mmc(&full(), hs200())));
        tunes.push((toy, Tune::mmc(&modest(), hs200())));
    }
    compare("Tune", &edges(&tunes, |m| format!("{:?}", m.phase())));
}

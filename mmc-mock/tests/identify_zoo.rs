//! Every preset of the zoo, SD and MMC, and an SDIO and a combo card, through the real identification over `MockHost`: on a modest host on one
//! that can do everything, and on one that tunes by itself. Each card is found with its size, on the best bus that its registers and its faults of
//! character leave, without a broken rule; and its first and last sectors hold what is written.

use mmc_hal::Dir;
use mmc_mock::card::{Card, MmcCard, SdCard, SdConfig, SdioCard, SdioConfig, Shared};
use mmc_mock::drive::{Bound, Drive, drive_bounded};
use mmc_mock::fault::Faulty;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, Clock, MockHost, zoo};
use mmc_proto::bus::{Signal, Timing, Timings, Width};
use mmc_proto::host::{Capabilities, Supervised};
use mmc_proto::machine::{
    Conductor, Identified, Identify, Machine, Mode, Reason, Transfer, TransferOptions, Tune, Turn,
};
use mmc_proto::quirk::Avoid;
use mmc_proto::register::{Csd, ExtCsd, ext_csd};
use mmc_time::Duration;

/// Four lines, 50 MHz, 3.3 V.
fn modest() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz) = (Width::Four, 50_000_000);
    caps
}

/// As [`full`], and it finds the sample point by itself.
fn by_itself() -> Capabilities {
    let mut caps = full();
    (caps.sample_points, caps.self_tuning) = (1, true);
    caps
}

/// All there is.
fn full() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz, caps.v1_8, caps.sample_points) = (Width::Eight, 208_000_000, true, 32);
    caps.timings = [
        Timing::Sdr12,
        Timing::Sdr25,
        Timing::Sdr50,
        Timing::Ddr50,
        Timing::Sdr104,
        Timing::Ddr52,
        Timing::Hs200,
        Timing::Hs400,
        Timing::Hs400Es,
    ]
    .into_iter()
    .fold(Timings::new(), Timings::with);
    caps
}

struct Bench<C: Card> {
    host: Supervised<MockHost<Buf, Shared<C>>>,
    card: Shared<C>,
    clock: Clock,
}

impl<C: Card> Bench<C> {
    fn new(card: C, caps: Capabilities) -> Self {
        let card = Shared::new(card);
        Self { host: MockHost::new(card.clone(), caps), card, clock: Clock::new() }
    }
    /// Within `time`.
    fn drive<M: Machine>(&mut self, machine: M, time: Duration, payload: Vec<u8>) -> (M::Output, Vec<u8>) {
        let mut conductor = Conductor::new(machine, Some(Buf(payload)));
        let (host, bound) = (&mut self.host, Bound { time, steps: 20_000 });
        let done = drive_bounded(&self.clock, bound, |now| match conductor.poll(host, now) {
            Turn::Done(output, payload) => Drive::Done((output, payload.unwrap().0)),
            Turn::Wait { until, .. } => Drive::Wait(until),
        });
        done.unwrap_or_else(|e| panic!("{e}")).0
    }
    /// The card, which saw no rule broken where it is to be `clean`.
    fn identify(&mut self, name: &str, caps: &Capabilities, clean: bool) -> Identified {
        let (id, _) = self.drive(Identify::new(caps), Identify::LIMIT, vec![0; 512]);
        let id = id.unwrap_or_else(|e| panic!("{name}: {e}"));
        // Who asks an unknown card what it is says some words it does not know.
        let probe = |line: &String| {
            ["CMD5 ", "CMD8 ", "CMD52 ", "CMD55 "].iter().any(|p| line.starts_with(p))
                && line.ends_with("in state Idle")
        };
        let broken: Vec<_> = self.card.violations().into_iter().filter(|line| !probe(line)).collect();
        assert!(broken.is_empty() || !clean, "{name}: {broken:?}");
        id
    }
    /// The first and the last sectors hold what is written.
    fn round_trip(&mut self, name: &str, id: &Identified) {
        let unit = id.traits.unit;
        for lba in [0, id.traits.blocks - u64::from(unit)] {
            let data: Vec<u8> = (0..unit * 512).map(|i| (i / 5).wrapping_add(lba as u32) as u8).collect();
            let options = TransferOptions { open_ended: true };
            let time = |dir| id.traits.data_limit(dir, unit) + id.traits.write_limit;
            let write = Transfer::new(&id.traits, Dir::Write, lba, unit, options);
            assert_eq!(
                self.drive(write, time(Dir::Write), data.clone()).0,
                Ok(unit),
                "{name} at {lba} on {:?}",
                id.bus
            );
            let read = Transfer::new(&id.traits, Dir::Read, lba, unit, options);
            let (result, got) = self.drive(read, time(Dir::Read), vec![0; data.len()]);
            assert_eq!(result, Ok(unit), "{name} at {lba} on {:?}", id.bus);
            assert!(got == data, "{name} at {lba}: other data");
        }
    }
}

#[test]
fn every_sd_preset_ends_on_its_best_bus() {
    for preset in zoo::list() {
        let name = preset.name;
        for caps in [modest(), full(), by_itself()] {
            let config = zoo::card(name, Profile::ideal(), 1).unwrap();
            // A host for 3.3 V alone finds out late that a card was left at 1.8 V.
            let clean = caps.v1_8 || !config.quirks.left_at_1_8;
            let mut b = Bench::new(SdCard::new(config.clone()).unwrap(), caps);
            let id = b.identify(name, &caps, clean);
            if config.quirks.forgets_after.is_none() && config.quirks.dies_after.is_none() {
                b.round_trip(name, &id);
            }
            let sd = id.sd().unwrap();
            assert_eq!(id.traits.blocks, Csd::new(config.csd(0)).blocks(), "{name}");
            let four = sd.scr.is_some_and(|scr| scr.four_lines());
            assert_eq!(id.bus.width, if four { Width::Four } else { Width::One }, "{name}");

            let left: Vec<_> = id.fallbacks.iter().collect();
            let uhs = config.uhs.filter(|_| caps.v1_8 && four);
            let stuck = uhs.is_some() && config.quirks.switch_hangs;
            assert_eq!(left.iter().any(|f| f.mode == Mode::Signal), stuck, "{name}: {left:?}");
            let best = match uhs.filter(|_| !stuck) {
                Some(uhs) if uhs.sdr104 => Timing::Sdr104,
                Some(uhs) if uhs.sdr50 => Timing::Sdr50,
                Some(uhs) if uhs.ddr50 => Timing::Ddr50,
                Some(_) => Timing::Sdr25,
                None if sd.switch.is_some_and(|switch| switch.can(1, 1)) => Timing::High,
                None => Timing::Default,
            };
            assert_eq!(id.bus.timing, best, "{name}: {left:?}");
            assert_eq!(id.bus.hz, best.max_hz().min(caps.max_hz), "{name}");
            assert_eq!(id.bus.signal == Signal::V1_8, uhs.is_some() && !stuck, "{name}");
        }
    }
}

#[test]
fn every_mmc_preset_ends_on_its_best_bus() {
    for preset in zoo::mmc_list() {
        let name = preset.name;
        for caps in [modest(), full(), by_itself()] {
            let config = zoo::mmc(name, Profile::ideal(), 1).unwrap();
            let mut b = Bench::new(MmcCard::new(config.clone()).unwrap(), caps);
            let id = b.identify(name, &caps, true);
            b.round_trip(name, &id);
            let mmc = id.mmc().unwrap();
            assert_eq!(id.traits.blocks, config.sectors(), "{name}");
            assert_eq!(id.traits.byte_addressed, !config.sector_addressed(), "{name}");

            // The table of quirks knows those that stand for a row of it.
            let known = match name {
                "hynix-hpi" => Avoid::INTERRUPT,
                "kingston-trim" => Avoid::TRIM,
                _ => Avoid::empty(),
            };
            assert!(id.avoid.contains(known), "{name}: {:?}", id.avoid);

            let ext =
                config.ext_csd.as_deref().map(|bytes| ExtCsd::new(*bytes)).filter(|e| e.check().is_ok());
            assert_eq!(mmc.ext_csd.is_some(), ext.is_some(), "{name}");
            let get = |field| ext.map_or(0, |e| e.get(field));
            let kind = get(ext_csd::DEVICE_TYPE);
            let best = if caps.v1_8 && kind & 0x40 != 0 && get(ext_csd::STROBE_SUPPORT) == 1 {
                Timing::Hs400Es
            } else if caps.v1_8 && kind & 0x40 != 0 {
                Timing::Hs400
            } else if caps.v1_8 && kind & 0x10 != 0 {
                Timing::Hs200
            } else if caps.timings.has(Timing::Ddr52) && kind & 4 != 0 {
                Timing::Ddr52
            } else if kind & 3 != 0 {
                Timing::High
            } else {
                Timing::Default
            };
            assert_eq!(id.bus.timing, best, "{name}: {:?}", id.fallbacks);
            assert_eq!(id.bus.width, if ext.is_some() { caps.width } else { Width::One }, "{name}");
            assert!(id.fallbacks.iter().all(|f| f.reason != Reason::Host), "{name}: {:?}", id.fallbacks);
        }
    }
}

/// Blocks that are damaged, or nowhere right: the fastest mode that needs no tuning, and its one block is a read.
#[test]
fn a_host_that_tunes_by_itself_and_finds_nothing_leaves_the_mode() {
    for closed in [false, true] {
        let mut config = zoo::card("uhs-64gb", Profile::ideal(), 1).unwrap();
        if closed {
            config.uhs.as_mut().unwrap().eye.blur_ps = 20_000;
        }
        let script = if closed { "" } else { "every CMD19: block 0 crc" };
        let card = Faulty::new(SdCard::new(config).unwrap(), script.parse().unwrap()).unwrap();
        let mut b = Bench::new(card, by_itself());
        let id = b.identify("uhs-64gb", &by_itself(), true);
        let left: Vec<_> = id.fallbacks.iter().map(|f| (f.mode, f.reason)).collect();
        let tuning = |timing| (Mode::Timing(timing), Reason::Tuning);
        assert_eq!(left, [tuning(Timing::Sdr104), tuning(Timing::Sdr50)], "{closed}");
        assert_eq!(id.bus.timing, Timing::Ddr50, "{closed}");
        b.round_trip("uhs-64gb", &id);
        let (tuned, _) = b.drive(Tune::sd(&by_itself(), id.bus), Tune::LIMIT, vec![0; 512]);
        assert_eq!(tuned.is_ok(), closed, "the lines are checked by a block that is compared: {tuned:?}");
    }
}

#[test]
fn sdio_and_combo_cards_end_on_four_lines_at_high_speed() {
    for caps in [modest(), full()] {
        let mut b = Bench::new(SdioCard::new(SdioConfig::new()).unwrap(), caps);
        let id = b.identify("sdio", &caps, true);
        let io = id.io.unwrap();
        assert!(id.sd().is_none() && id.mmc().is_none() && id.traits.blocks == 0);
        assert_eq!(usize::from(io.functions), b.card.lock().config().functions.len());
        assert!(io.cccr.check().is_ok());
        assert_eq!((id.bus.width, id.bus.timing, id.bus.hz), (Width::Four, Timing::High, 50_000_000));

        let memory = SdConfig::new(Profile::ideal(), 1);
        let sectors = memory.sectors;
        let mut b = Bench::new(
            SdioCard::new(SdioConfig { memory: Some(memory), ..SdioConfig::new() }).unwrap(),
            caps,
        );
        let id = b.identify("combo", &caps, true);
        assert!(id.io.is_some() && id.sd().is_some() && id.traits.blocks == sectors);
        assert_eq!((id.bus.width, id.bus.timing, id.bus.hz), (Width::Four, Timing::High, 50_000_000));
        assert_eq!(id.bus.signal, Signal::V3_3, "the I/O part is not asked whether it takes 1.8 V");
        b.round_trip("combo", &id);
    }
}

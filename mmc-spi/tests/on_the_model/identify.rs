//! Every card of the zoo through the same conversation as on the SD bus.

use crate::bench::{Bench, mmc_bus, pattern, sd, sd_bus};
use mmc_mock::card::{Capacity, SdConfig};
use mmc_mock::spi::SpiConfig;
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_proto::bus::{BusConfig, Timing, Width};
use mmc_proto::host::{Cause, Host, Operation};
use mmc_proto::machine::{IdentifyCause, Registers};
use mmc_spi::Exclusive;
use mmc_time::Duration;

#[test]
fn every_sd_card_of_the_zoo_is_identified_or_refused_for_its_own_reason() {
    let mut refused = Vec::new();
    for preset in zoo::list() {
        let config = zoo::card(preset.name, Profile::a1(), 1).unwrap();
        let (sectors, uhs_only) = (config.sectors, config.capacity() == Capacity::Ultra);
        let mut b = sd(config, "");
        match b.try_identify() {
            Ok(card) => {
                assert_eq!(card.traits.blocks, sectors, "{}", preset.name);
                assert_eq!(card.bus.width, Width::One);
                let data = pattern(1024, 7);
                assert_eq!(b.write(&card.traits, 10_000, &data), Ok(2), "{}", preset.name);
                let stored = b.stored(10_000, 2);
                assert_eq!(stored == data, preset.name != "immutable", "{}", preset.name);
                assert!(b.read(&card.traits, 10_000, 2) == Ok(stored), "{}", preset.name);
                assert!(b.read(&card.traits, sectors - 2, 2).is_ok(), "{}", preset.name);
                assert_eq!(b.violations(), Vec::<String>::new(), "{}", preset.name);
                assert!(!uhs_only, "SDUC has no SPI mode");
            }
            Err(e) => {
                assert_eq!(e.cause, IdentifyCause::NoAnswer, "{}", preset.name);
                refused.push(preset.name);
            }
        }
    }
    // Neither has SPI mode: no SDUC card, and none whose signals an earlier boot left at 1.8 V.
    assert_eq!(refused, ["sduc-4tb", "left-at-1v8"]);
}

#[test]
fn mmc_cards_that_have_spi_mode_are_identified() {
    let mut seen = 0;
    for preset in zoo::mmc_list() {
        let config = zoo::mmc(preset.name, Profile::a1(), 1).unwrap();
        let sectors = config.sectors();
        let mut b = Bench::alone(mmc_bus(config, ""));
        let card = b.try_identify().unwrap_or_else(|e| panic!("{}: {e}", preset.name));
        assert!(matches!(card.registers, Registers::Mmc(_)), "{}", preset.name);
        assert_eq!(card.traits.blocks, sectors, "{}", preset.name);
        assert!(b.spi.hz() <= 20_000_000);
        let data = pattern(4096, 3);
        assert_eq!(b.write(&card.traits, 64, &data), Ok(8), "{}", preset.name);
        assert_eq!(b.read(&card.traits, 64, 8), Ok(data), "{}", preset.name);
        assert_eq!(b.violations(), Vec::<String>::new(), "{}", preset.name);
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn crc_is_on_from_the_beginning_and_cards_without_it_work_without_it() {
    let odd = |f: fn(&mut SpiConfig)| {
        let mut c = SpiConfig::default();
        f(&mut c);
        c
    };
    for (name, wires, crc) in [
        ("standard", SpiConfig::default(), true),
        ("response-delay", odd(|c| c.response_delay = 8), true),
        ("stuff", odd(|c| c.stuff = 0x7f), true),
        ("strict-select", odd(|c| c.strict_select = true), true),
        ("no-crc-command", odd(|c| c.no_crc_command = true), false),
        ("always-crc", odd(|c| c.always_crc = true), true),
        ("low-until-cmd0", odd(|c| c.low_until_cmd0 = true), true),
        ("busy-after-app", odd(|c| c.busy_after_app = 16), true),
    ] {
        let mut b = Bench::alone(sd_bus(SdConfig::new(Profile::slow2018(), 1), "", wires));
        let card = b.try_identify().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(b.host.engine().checks_crc(), crc, "{name}");
        let data = pattern(16 * 512, 1);
        assert_eq!(b.write(&card.traits, 100, &data), Ok(16), "{name}");
        assert_eq!(b.read(&card.traits, 100, 16), Ok(data), "{name}");
        assert_eq!(b.violations(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn an_empty_slot_is_told_with_and_without_a_card_detect_pin() {
    let mut b = sd(SdConfig::new(Profile::ideal(), 1), "");
    b.spi.with(|c| c.card_mut().sd_mut().set_present(false));
    let e = b.try_identify().unwrap_err();
    assert!(matches!(e.cause, IdentifyCause::Host(h) if h.cause == Cause::NoCard), "{e}");
    assert_eq!(b.host.slot(b.spi.clock().now()).present, Some(false));

    struct NoPin;
    impl mmc_spi::Board for NoPin {
        fn set_clock(&mut self, _: u32) {}
    }
    let wires = Exclusive::new(b.spi.bus(), b.spi.chip_select());
    let mut host = mmc_spi::SpiEngine::<_, _, [u8; 512]>::host(wires, NoPin, 25_000_000);
    let machine = mmc_proto::machine::Identify::new(&host.capabilities());
    let mut talk = mmc_proto::machine::Conductor::new(machine, Some([0; 512]));
    let e = loop {
        match talk.poll(&mut host, b.spi.clock().now()) {
            mmc_proto::machine::Turn::Wait { until, .. } => b.spi.clock().advance_to(until),
            mmc_proto::machine::Turn::Done(r, _) => break r.unwrap_err(),
        }
    };
    assert_eq!(e.cause, IdentifyCause::NoAnswer);
    assert_eq!(host.slot(b.spi.clock().now()).present, None);
}

#[test]
fn a_card_that_was_left_in_the_middle_of_something_is_found_without_a_power_switch() {
    // The host was reset, the card was not.
    for left in [18, 25] {
        let mut b = sd(SdConfig::new(Profile::a1(), 1), "");
        let card = b.identify();
        b.spi.select(true);
        let frame = mmc_proto::frame::CommandFrame { index: left, arg: 8 }.emit();
        for byte in [0xff].into_iter().chain(frame).chain([0xff; 40]) {
            b.spi.exchange(byte).unwrap();
        }
        let spi = b.spi.clone();
        let mut b = Bench::with(spi.clone(), Exclusive::new(spi.bus(), spi.chip_select()), false);
        spi.set_hz(400_000);
        assert_eq!(b.identify().traits, card.traits, "CMD{left}");
        assert!(b.read(&card.traits, 0, 4).is_ok());
    }
}

#[test]
fn a_bus_has_one_line_and_default_speed() {
    let mut b = sd(SdConfig::new(Profile::ideal(), 1), "");
    let now = b.spi.clock().now();
    for bus in [
        BusConfig { width: Width::Four, ..BusConfig::default() },
        BusConfig { timing: Timing::High, ..BusConfig::default() },
    ] {
        let e = b.host.submit(Operation::Bus(bus), now + Duration::from_secs(1), now).unwrap_err();
        assert!(matches!(e.error.cause, Cause::Unsupported(_)));
    }
}

//! Identification against cards as they are: each oddity of `Card` once.

mod support;

use mmc_proto::bus::{Power, Timing, Width};
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{Identified, Identify, IdentifyCause, IdentifyError, IdentifyStep, Step};
use mmc_time::Duration;
use support::{Card, Run, drive};

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    caps.max_hz = 50_000_000;
    caps.width = Width::Four;
    caps
}

type Out = Result<Identified, IdentifyError>;

fn identify(card: &mut Card, caps: &Capabilities) -> Run<Out> {
    drive(Identify::new(caps), |step, scratch| match step {
        Step::Do(action) => (card.answer(&action.command, scratch), Duration::from_micros(500)),
        other => {
            card.log.push(match other {
                Step::Bus(bus) => format!("{} Hz x{}", bus.hz, bus.width.lines()),
                other => format!("{other:?}"),
            });
            (Ok(Reply::default()), Duration::from_millis(1))
        }
    })
}

#[test]
fn a_high_capacity_card_ends_on_four_lines_at_50_mhz() {
    let mut card = Card::sdhc();
    let run = identify(&mut card, &caps());
    let id = run.out.unwrap();
    assert_eq!((id.traits.blocks, id.traits.byte_addressed, id.traits.rca), (16_777_216, false, 0xaaaa));
    assert!(id.traits.cmd23 && id.v2 && id.ocr.ccs());
    assert_eq!((id.bus.hz, id.bus.width, id.bus.timing), (50_000_000, Width::Four, Timing::High));
    assert_eq!(id.sd().unwrap().cid.pnm_text().to_string(), "SC16G");
    assert!(id.sd().unwrap().ssr.is_some() && id.mmc().is_none() && id.io.is_none());
    assert_eq!(id.fallbacks.iter().count(), 0);
    let poll = ["CMD55:0", "ACMD41:48300000"];
    let mut expected = vec!["Power(On)", "400000 Hz x1", "CMD52:80000c08", "CMD0:0", "CMD8:1aa", "CMD5:0"];
    (0..4).for_each(|_| expected.extend(poll));
    expected.extend(["CMD2:0", "CMD3:0", "CMD9:aaaa0000", "25000000 Hz x1", "CMD7:aaaa0000"]);
    expected.extend([
        "CMD55:aaaa0000",
        "ACMD51:0",
        "CMD55:aaaa0000",
        "ACMD42:0",
        "CMD55:aaaa0000",
        "ACMD6:2",
    ]);
    expected.extend(["25000000 Hz x4", "CMD6:fffff1", "CMD6:80fffff1"]);
    expected.extend(["50000000 Hz x4", "CMD13:aaaa0000", "CMD55:aaaa0000", "ACMD13:0"]);
    assert_eq!(card.log, expected);
}

#[test]
fn a_version_1_card_gets_no_hcs_a_block_length_and_no_cmd6() {
    let mut card = Card::sdsc_v1();
    let id = identify(&mut card, &caps()).out.unwrap();
    assert_eq!((id.traits.blocks, id.traits.byte_addressed), (4_194_304, true), "2 GB, READ_BL_LEN 10");
    assert!(!id.v2 && !id.traits.cmd23);
    assert_eq!((id.bus.hz, id.bus.timing), (25_000_000, Timing::Default));
    assert!(card.log.contains(&"ACMD41:300000".into()));
    assert!(card.log.contains(&"CMD16:200".into()));
    assert!(!card.log.iter().any(|line| line.starts_with("CMD6:")));
}

#[test]
fn a_version_2_card_of_standard_capacity_is_known_by_its_csd() {
    let mut card = Card { ocr: 0x80ff_8000, csd: support::csd_v1(), ..Card::sdhc() };
    let id = identify(&mut card, &caps()).out.unwrap();
    assert!(id.v2 && id.traits.byte_addressed);
    assert_eq!(id.traits.blocks, 4_194_304);
}

#[test]
fn a_modest_host_stays_on_one_line_at_25_mhz() {
    let mut card = Card::sdhc();
    let id = identify(&mut card, &Capabilities::new()).out.unwrap();
    assert_eq!((id.bus.hz, id.bus.width, id.bus.timing), (25_000_000, Width::One, Timing::Default));
    assert!(!card.log.iter().any(|l| l.starts_with("ACMD6") || l.starts_with("CMD6")));
}

#[test]
fn a_card_that_needs_almost_two_seconds_gets_them() {
    for polls in [50, 90] {
        let mut card = Card { busy: polls, ..Card::sdhc() };
        let run = identify(&mut card, &caps());
        assert!(run.out.is_ok(), "{polls} polls: {:?}", run.out);
    }
    let mut card = Card { busy: u32::MAX, ..Card::sdhc() };
    let run = identify(&mut card, &caps());
    let error = run.out.unwrap_err();
    assert!(matches!(error.cause, IdentifyCause::PowerUp(_)), "{error}");
    assert!(run.took < Duration::from_millis(2_100), "{}", run.took);
}

#[test]
fn a_card_survives_without_what_it_does_not_need() {
    let card = Card { scr: None, ssr: None, switch: None, rca_zero: 2, ..Card::sdhc() };
    let id = identify(&mut card.clone(), &caps()).out.unwrap();
    let sd = id.sd().unwrap();
    assert_eq!((sd.scr, sd.ssr, sd.switch), (None, None, None));
    assert_eq!(id.bus.width, Width::One, "no SCR, no four lines");
    // Registers of a stuck line are as good as none.
    let stuck = Card { scr: Some([0xff; 8]), ssr: Some([0; 64]), switch: Some([0xff; 64]), ..Card::sdhc() };
    let id = identify(&mut stuck.clone(), &caps()).out.unwrap();
    let sd = id.sd().unwrap();
    assert_eq!((sd.scr, sd.ssr, sd.switch, id.bus.hz), (None, None, None, 25_000_000));
    // CMD23 only counts with SD_SPEC3.
    let old = Card { scr: Some([0x02, 0x05, 0, 2, 0, 0, 0, 0]), ..Card::sdhc() };
    assert!(!identify(&mut old.clone(), &caps()).out.unwrap().traits.cmd23);
    // A wrong TRAN_SPEED does not slow it down.
    let mut csd = mmc_proto::register::Csd::new(support::csd_v2(8 << 20)).info();
    csd.tran_speed = 0;
    let odd = Card { csd: csd.emit().emit(), ..Card::sdhc() };
    assert_eq!(identify(&mut odd.clone(), &caps()).out.unwrap().bus.hz, 50_000_000);
    // Neither does a voltage nibble of 0 in the answer to CMD8.
    assert!(identify(&mut Card { if_cond: Some(0xaa), ..Card::sdhc() }, &caps()).out.is_ok());
}

#[test]
fn what_cannot_be_used_is_refused_with_a_reason() {
    let refuse = |card: Card| identify(&mut card.clone(), &caps()).out.unwrap_err();
    let echo = refuse(Card { if_cond: Some(0x155), ..Card::sdhc() });
    assert_eq!((echo.cause, echo.step), (IdentifyCause::Echo(0x155), IdentifyStep::IfCond));
    let voltage = refuse(Card { ocr: 0xc000_8000, ..Card::sdhc() });
    assert_eq!(voltage.cause, IdentifyCause::Voltage { card: 0x8000, host: 0x30_0000 });
    assert_eq!(refuse(Card { rca_zero: 9, ..Card::sdhc() }).cause, IdentifyCause::NoAddress);
    let contradiction = refuse(Card { csd: support::csd_v1(), ..Card::sdhc() });
    assert_eq!(contradiction.cause, IdentifyCause::Addressing);
    for csd in [[0; 16], [0xff; 16], *b"\0\x40\x0e\0\x32\x5b\x59\0\0\xee\x7f\x7f\x80\x0a\x40\x40"] {
        let error = refuse(Card { csd, ..Card::sdhc() });
        assert!(matches!(error.cause, IdentifyCause::Register(_)), "{csd:x?}: {error}");
    }
    let zero = refuse(Card { ocr: 0, ..Card::sdhc() });
    assert!(matches!(zero.cause, IdentifyCause::Register(_)), "a card that works at no voltage: {zero}");
}

#[test]
fn an_empty_slot_says_so_soon() {
    let run = drive(Identify::new(&caps()), |step, _| match step {
        Step::Do(a) if a.command.index != 0 => {
            let (cause, phase, index) = (Cause::Timeout, Phase::Command, a.command.index);
            (Err(HostError { cause, phase, index, r1: None }), Duration::from_micros(300))
        }
        _ => (Ok(Reply::default()), Duration::from_millis(1)),
    });
    let error = run.out.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no card answers, neither CMD5 nor CMD55 nor CMD1: check that one is inserted and has supply (ACMD41)",
        "{error:?}"
    );
    assert!(run.took < Duration::from_millis(300), "{}", run.took);
}

#[test]
fn a_cold_card_that_misses_its_first_commands_is_found() {
    // Answers CMD8, then nothing for 990 ms.
    let mut card = Card { busy: 0, ..Card::sdhc() };
    let mut silent = 60;
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Do(a) if matches!(a.command.index, 55 | 41) && silent > 0 => {
            silent -= 1;
            let (cause, phase, index) = (Cause::Timeout, Phase::Command, a.command.index);
            (Err(HostError { cause, phase, index, r1: None }), Duration::from_micros(300))
        }
        Step::Do(a) => (card.answer(&a.command, scratch), Duration::from_micros(300)),
        _ => (Ok(Reply::default()), Duration::from_millis(1)),
    });
    assert!(run.out.is_ok(), "{:?}", run.out);
}

#[test]
fn a_card_that_is_lost_at_high_speed_is_taken_at_default_speed() {
    let mut card = Card::sdhc();
    let mut hz = 0;
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Do(a) if hz > 25_000_000 => {
            let (cause, phase, index) = (Cause::Crc, Phase::Command, a.command.index);
            (Err(HostError { cause, phase, index, r1: None }), Duration::from_micros(300))
        }
        Step::Do(a) => (card.answer(&a.command, scratch), Duration::from_micros(300)),
        Step::Bus(bus) => {
            hz = bus.hz;
            (Ok(Reply::default()), Duration::from_millis(1))
        }
        _ => (Ok(Reply::default()), Duration::from_millis(1)),
    });
    let id = run.out.unwrap();
    assert_eq!((id.bus.hz, id.bus.width, id.bus.timing), (25_000_000, Width::Four, Timing::Default));
}

#[test]
fn a_removed_card_ends_it_at_once() {
    let mut n = 0;
    let run = drive(Identify::new(&caps()), |step, scratch| {
        n += 1;
        match step {
            Step::Do(a) if n > 9 => {
                let (cause, phase, index) = (Cause::NoCard, Phase::Submit, a.command.index);
                (Err(HostError { cause, phase, index, r1: None }), Duration::ZERO)
            }
            Step::Do(a) => (Card::sdhc().answer(&a.command, scratch), Duration::ZERO),
            _ => (Ok(Reply::default()), Duration::ZERO),
        }
    });
    assert!(run.out.unwrap_err().media_gone());
}

#[test]
fn a_card_known_to_lock_up_with_cmd23_does_not_get_it() {
    let mut card = Card::sdhc();
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        // MID 27, OEM "PH", "APUSD".
        Step::Do(a) if a.command.index == 2 => {
            let words = [0x2750_4841, 0x5055_5344, 0x1000_0000, 0x0100_f100];
            (Ok(Reply { words, bytes: 0 }), Duration::ZERO)
        }
        Step::Do(a) => (card.answer(&a.command, scratch), Duration::ZERO),
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    let id = run.out.unwrap();
    assert!(id.sd().unwrap().scr.unwrap().has_cmd23() && !id.traits.cmd23);
    assert_eq!(id.avoid, mmc_proto::quirk::Avoid::CMD23);
}

#[test]
fn a_board_that_cannot_switch_the_supply_is_good_enough() {
    let mut card = Card::sdhc();
    let mut broken = 1;
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Power(_) => {
            let (cause, phase) = (Cause::Unsupported("the supply is fixed"), Phase::Submit);
            (Err(HostError { cause, phase, index: 255, r1: None }), Duration::ZERO)
        }
        // Something goes wrong once that would ask for a power cycle.
        Step::Do(a) if a.command.index == 2 && broken > 0 => {
            broken -= 1;
            let (cause, phase) = (Cause::Crc, Phase::Command);
            (Err(HostError { cause, phase, index: 2, r1: None }), Duration::ZERO)
        }
        Step::Do(a) => (card.answer(&a.command, scratch), Duration::ZERO),
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    assert!(run.out.is_ok(), "{:?}", run.out);
}

fn error(cause: Cause, phase: Phase, index: u8) -> Result<Reply, HostError> {
    Err(HostError { cause, phase, index, r1: None })
}

#[test]
fn each_round_has_its_own_two_seconds() {
    let mut card = Card { busy: 80, ..Card::sdhc() };
    let mut broken = 1;
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Power(power) => {
            if *power == Power::Off {
                card.busy = 80;
            }
            (Ok(Reply::default()), Duration::ZERO)
        }
        Step::Do(a) if a.command.index == 2 && broken > 0 => {
            broken -= 1;
            (error(Cause::Crc, Phase::Command, 2), Duration::ZERO)
        }
        Step::Do(a) => (card.answer(&a.command, scratch), Duration::ZERO),
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    assert!(run.out.is_ok(), "{:?}", run.out);
    assert!(run.took > Duration::from_secs(3), "twice 80 polls: {}", run.took);
}

#[test]
fn a_host_that_takes_all_the_time_it_is_given_cannot_stretch_it() {
    let mut card = Card { busy: 40, ..Card::sdhc() };
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Power(_) | Step::Bus(_) => {
            card.busy = 40;
            (Ok(Reply::default()), Duration::from_secs(1))
        }
        // Never ready at the end: all of it again, as often as it is tried.
        Step::Do(a) if a.command.index == 13 && a.command.data.is_none() => {
            (Ok(Reply { words: [support::PRG, 0, 0, 0], bytes: 0 }), a.limit)
        }
        Step::Do(a) => (card.answer(&a.command, scratch), a.limit),
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    assert_eq!(run.out.unwrap_err().cause, IdentifyCause::Limit);
    assert!(run.took <= Identify::LIMIT + Duration::from_secs(1), "{}", run.took);
}

#[test]
fn a_card_that_never_stops_sending_is_not_asked_for_ever() {
    let mut card = Card { scr: None, ..Card::sdhc() };
    let mut stops = 0;
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Do(a) if a.command.index == 13 && a.command.data.is_none() => {
            (Ok(Reply { words: [0x0b00, 0, 0, 0], bytes: 0 }), Duration::ZERO)
        }
        Step::Do(a) => {
            stops += u32::from(a.command.index == 12);
            (card.answer(&a.command, scratch), Duration::ZERO)
        }
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    assert!(run.out.is_err());
    assert!(stops > 0 && stops < 60, "{stops} times CMD12");
}

#[test]
fn scratch_the_host_did_not_fill_is_no_register() {
    let mut card = Card::sdhc();
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Do(a) => {
            let scr = a.command.index == 51;
            let mut answer = card.answer(&a.command, scratch);
            if let (true, Ok(reply)) = (scr, &mut answer) {
                reply.bytes = 0;
            }
            (answer, Duration::ZERO)
        }
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    assert_eq!(run.out.unwrap().sd().unwrap().scr, None);
}

#[test]
fn a_card_that_falls_silent_after_a_bad_register_is_given_up() {
    let mut card = Card { scr: None, ..Card::sdhc() };
    let run = drive(Identify::new(&caps()), |step, scratch| match step {
        Step::Do(a) if a.command.index == 13 && a.command.data.is_none() => {
            (error(Cause::Timeout, Phase::Command, 13), Duration::ZERO)
        }
        Step::Do(a) => (card.answer(&a.command, scratch), Duration::ZERO),
        _ => (Ok(Reply::default()), Duration::ZERO),
    });
    let silent = HostError { cause: Cause::Timeout, phase: Phase::Command, index: 13, r1: None };
    assert_eq!(run.out.unwrap_err().cause, IdentifyCause::Host(silent));
    assert!(run.steps < 200, "{} steps", run.steps);
}

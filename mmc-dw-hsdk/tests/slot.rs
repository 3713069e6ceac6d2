//! What the slot shows, whatever the controller is doing: card detect, write protect, the SDIO interrupt.

mod bench;

use bench::{Bench, MODES, Mode, buffers};
use mmc_dw_hsdk::platform::{CardDetect, HSDK, Platform};
use mmc_mock::card::SdConfig;
use mmc_mock::dw::{Config, Fault};
use mmc_mock::timing::Profile;
use mmc_proto::bus::Power;
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{Cause, Host, Operation, Phase, Progress, Slot};
use mmc_time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn with(mode: Mode, platform: Platform, config: Config) -> Bench {
    Bench::with(mode, config, platform, SdConfig::new(Profile::ideal(), 1))
}

fn look(b: &mut Bench) -> Slot {
    b.host.slot(b.clock.now())
}

fn pass(b: &mut Bench, ms: u64) {
    let until = b.clock.now() + Duration::from_millis(ms);
    b.pass_all(until);
}

#[test]
fn cards_that_come_and_go_are_counted_also_in_the_middle_of_an_operation() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        assert_eq!(look(&mut b), Slot { present: Some(true), ..Slot::default() });
        // A bounce is nothing.
        b.dw.inject(Fault::Pin(false));
        pass(&mut b, 5);
        b.dw.inject(Fault::Pin(true));
        pass(&mut b, 100);
        assert_eq!(look(&mut b).changes, 0, "{mode:?}");
        // Out, and seen; in, and seen.
        b.dw.inject(Fault::Remove);
        pass(&mut b, 100);
        assert_eq!(look(&mut b), Slot { present: Some(false), changes: 1, ..Slot::default() }, "{mode:?}");
        b.dw.inject(Fault::Insert);
        pass(&mut b, 100);
        assert_eq!(look(&mut b).changes, 2, "{mode:?}");
        // Another card between two looks: it is there, but not the one that was.
        b.identify();
        b.dw.inject(Fault::Remove);
        pass(&mut b, 60);
        b.dw.inject(Fault::Insert);
        pass(&mut b, 60);
        let slot = look(&mut b);
        assert!(slot.present == Some(true) && slot.changes > 2, "{mode:?} {slot:?}");
        // In the middle of a read: the read ends, and the change is counted once.
        let before = slot.changes;
        b.identify();
        b.dw.inject_at(b.clock.now() + Duration::from_millis(1), Fault::Remove);
        let _ = card;
        assert!(b.read(&card, 0, &[1 << 20]).is_err());
        pass(&mut b, 100);
        assert_eq!(look(&mut b).changes, before + 1, "{mode:?}");
    }
}

#[test]
fn with_the_supply_off_the_pin_is_still_looked_at() {
    for mode in MODES {
        let mut b = with(mode, HSDK, Config::hsdk());
        assert_eq!(look(&mut b).present, Some(true), "before anything was switched on");
        b.operate(Operation::Power(Power::On), SECOND).result.unwrap();
        b.operate(Operation::Power(Power::Off), SECOND).result.unwrap();
        let interrupts = b.interrupts;
        b.dw.inject(Fault::Remove);
        for _ in 0..20 {
            look(&mut b);
            pass(&mut b, 5);
        }
        assert_eq!(look(&mut b), Slot { present: Some(false), changes: 1, ..Slot::default() }, "{mode:?}");
        assert_eq!(b.interrupts - interrupts, u64::from(mode == Mode::Interrupts), "an interrupt says so");
        b.dw.inject(Fault::Insert);
        pass(&mut b, 100);
        look(&mut b);
        pass(&mut b, 100);
        assert_eq!(look(&mut b).present, Some(true), "{mode:?}");
        b.identify();
    }
}

#[test]
fn without_wires_nothing_is_said() {
    let platform = Platform { card_detect: CardDetect::Unknown, ..HSDK };
    let mut b = with(Mode::Polled, platform, Config::hsdk());
    assert_eq!(look(&mut b), Slot::default());
    let mut b = with(Mode::Polled, Platform { write_protect: true, ..HSDK }, Config::hsdk());
    assert_eq!(look(&mut b).write_protected, Some(false));
    b.dw.inject(Fault::WriteProtect(true));
    assert_eq!(look(&mut b).write_protected, Some(true));
}

#[test]
fn an_sdio_interrupt_is_shown_once_for_each_time_it_is_armed() {
    for (mode, sdio_bit) in MODES.into_iter().flat_map(|m| [(m, 16), (m, 24)]) {
        let what = format!("{mode:?} bit {sdio_bit}");
        let platform = Platform { sdio_bit, ..HSDK };
        let mut b = with(mode, platform, Config { sdio_bit, ..Config::hsdk() });
        b.identify();
        b.dw.inject(Fault::SdioInterrupt(true));
        let interrupts = b.interrupts;
        pass(&mut b, 10);
        assert!(!look(&mut b).sdio && b.interrupts == interrupts, "{what}: not armed");
        // Armed in the middle of a read, which it does not disturb.
        let read = Command::read_multiple_block(0, 256, Stop::Auto);
        let now = b.clock.now();
        b.host.submit(Operation::Transfer(read, buffers(&[1 << 17])), now + SECOND, now).unwrap();
        b.host.sdio_interrupt(true);
        let result = loop {
            match b.host.poll(b.clock.now()) {
                Progress::Done(done) => break done.result,
                Progress::Waiting { until, .. } => b.pass(until),
                Progress::Idle => panic!("idle"),
            }
        };
        assert!(result.is_ok(), "{what}");
        pass(&mut b, 10);
        assert!(look(&mut b).sdio && look(&mut b).sdio, "{what}: it stays");
        let interrupts = b.interrupts;
        pass(&mut b, 10);
        assert_eq!(b.interrupts, interrupts, "{what}: the card still holds its line, and nothing storms");
        b.host.sdio_interrupt(true);
        pass(&mut b, 1);
        assert!(look(&mut b).sdio, "{what}: it asks again");
        // Served: the card lets go.
        b.dw.inject(Fault::SdioInterrupt(false));
        b.host.sdio_interrupt(true);
        pass(&mut b, 10);
        assert!(!look(&mut b).sdio, "{what}");
        b.dw.inject(Fault::SdioInterrupt(true));
        pass(&mut b, 10);
        assert!(look(&mut b).sdio, "{what}");
        b.host.sdio_interrupt(false);
        pass(&mut b, 10);
        assert!(!look(&mut b).sdio, "{what}: disarmed");
        b.assert_clean();
    }
}

/// A command with a busy phase, and DAT0 low although the slot says that the card has left; or its pin has moved and is
/// back.
#[test]
fn lines_that_stay_low_without_a_card_are_no_busy_card() {
    let busy = Duration::from_millis(400);
    for mode in MODES {
        for leaves in [true, false] {
            let (mut b, card) = Bench::identified(mode);
            b.dw.inject(Fault::Busy(busy));
            let since = b.clock.now();
            let moves = if leaves { Fault::Pin(false) } else { Fault::Spurious(1) };
            b.dw.inject_at(since + Duration::from_millis(100), moves);
            let waits = Command { busy: true, ..Command::send_status(card.rca) };
            let done = b.operate(Operation::Command(waits), SECOND).result;
            let took = b.clock.now().since(since);
            if leaves {
                let e = done.unwrap_err();
                assert_eq!((e.cause, e.phase), (Cause::NoCard, Phase::Busy), "{mode:?}");
                assert!(took < busy, "{mode:?}: {took}");
            } else {
                assert!(done.is_ok() && took >= busy, "{mode:?}: {done:?} after {took}");
            }
        }
    }
}

//! The smaller conversations: what each says when all goes well, what becomes of what a card refuses, and that
//! whatever a card answers each ends in time.

#[path = "support/conversations.rs"]
mod conversations;
#[path = "support/device.rs"]
mod device;
mod support;

use conversations::{Conversation, SDUC, all, extensions, mmc_csd};
use device::{CARD, Device, KEY, ext_csd, hmac, silent};
use mmc_hal::Dir;
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{Cause, HostError, Phase, Reply};
use mmc_proto::machine::{
    After, CardTraits, Erase, Extensions, Fetch, FindExtensions, Health, Lock, LockOp, Machine, Order,
    Partition, Recover, Rpmb, Say, Script, SdRegister, Step, Talk, TalkError, TransferCause, Wear,
};
use mmc_proto::register::{ext_csd as e, extension::SetAddress};
use mmc_proto::rpmb::{Failure, Frame, FrameError, Request, seal};
use mmc_proto::status::CardStatus;
use mmc_proto::timing::{EraseKind, MmcEraseKind};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use support::{Run, TRAN, drive, host_error};

/// Drives `machine` over `device`; `fault` may answer instead.
fn run_with<M: Machine>(
    machine: M,
    device: &mut Device,
    mut fault: impl FnMut(u8, usize) -> Option<Result<Reply, HostError>>,
) -> Run<M::Output> {
    let mut n = 0;
    drive(machine, |step, scratch| {
        let Step::Do(a) = step else { panic!("only commands") };
        let good = device.answer(&a.command, scratch);
        n += 1;
        (fault(a.command.index, n).unwrap_or(good), Duration::from_micros(100).min(a.limit))
    })
}

fn run<M: Machine>(machine: M, device: &mut Device) -> M::Output {
    run_with(machine, device, |_, _| None).out
}

fn word(status: CardStatus) -> Option<Result<Reply, HostError>> {
    Some(Ok(Reply { words: [TRAN | status.bits(), 0, 0, 0], bytes: 0 }))
}

#[test]
fn each_order_says_one_thing_and_waits_for_it() {
    let x = ext_csd();
    let mut by_stop = x;
    by_stop.set(e::HPI_FEATURES, 3);
    for (order, expected) in [
        (Order::cache(&CARD, &x, true), "CMD6:3210101 CMD13:12340000"),
        (Order::flush(&CARD, &x), "CMD6:3200101 CMD13:12340000"),
        (Order::barrier(&CARD, &x), "CMD6:3200201 CMD13:12340000"),
        (Order::background(&CARD, &x), "CMD6:3a40101 CMD13:12340000"),
        (Order::auto_background(&CARD, &x, false), "CMD6:2a30201 CMD13:12340000"),
        (Order::sanitize(&CARD, &x), "CMD6:3a50101 CMD13:12340000"),
        (Order::interrupt(&CARD, &x), "CMD13:12340001 CMD13:12340000"),
        (Order::interrupt(&CARD, &by_stop), "CMD12:12340001 CMD13:12340000"),
        // The boot configuration (0x48) stays.
        (Order::partition(&CARD, &x, Partition::Rpmb), "CMD6:3b34b01 CMD13:12340000"),
        (Order::partition(&CARD, &x, Partition::General(2)), "CMD6:3b34d01 CMD13:12340000"),
        (Order::sleep(&CARD, &x, true), "CMD6:3220401 CMD13:12340000 CMD7:0 CMD5:12348000"),
        (Order::sleep(&CARD, &x, false), "CMD7:0 CMD5:12348000"),
        (Order::awake(&CARD, &x), "CMD5:12340000 CMD7:12340000 CMD13:12340000"),
        (Order::protect(&CARD, 64), "CMD28:40 CMD13:12340000"),
        (Order::unprotect(&CARD, 64), "CMD29:40 CMD13:12340000"),
        (Order::speed_class(&CARD, 4), "CMD20:40000000 CMD13:12340000"),
        (Order::status(&CARD), "CMD13:12340000"),
    ] {
        let mut device = Device::new();
        let status = run(order, &mut device).unwrap();
        assert_eq!(device.log.join(" "), expected);
        assert_eq!(status.bits(), TRAN);
    }
}

#[test]
fn what_a_card_does_not_offer_is_refused_before_anything_is_said() {
    let none = mmc_proto::register::ExtCsd::new([0; 512]);
    for order in [
        Order::cache(&CARD, &none, true),
        Order::flush(&CARD, &none),
        Order::barrier(&CARD, &none),
        Order::background(&CARD, &none),
        Order::auto_background(&CARD, &none, true),
        Order::interrupt(&CARD, &none),
        Order::interrupts(&CARD, &none, true),
        Order::sanitize(&CARD, &none),
        Order::sleep(&CARD, &none, false),
        Order::partition(&CARD, &none, Partition::Boot1),
        Order::partition(&CARD, &ext_csd(), Partition::General(1)),
        Order::set(&CARD, &none, mmc_proto::command::SwitchAccess::WriteByte, e::SEC_COUNT, 1),
    ] {
        let mut device = Device::new();
        let error = run(order, &mut device).unwrap_err();
        assert!(matches!(error.cause, TransferCause::Unsupported(_)), "{error}");
        assert_eq!((device.log.len(), error.after, error.phase), (0, After::Untouched, None));
    }
    let error = run(Order::protect(&CARD, 1 << 40), &mut Device::new()).unwrap_err();
    assert!(matches!(error.cause, TransferCause::OutOfRange { .. }), "{error}");
}

#[test]
fn a_refused_switch_shows_in_the_status_after_the_busy() {
    let mut device = Device { programming: 3, ..Device::new() };
    let mut asked = 0;
    let r = run_with(Order::cache(&CARD, &ext_csd(), true), &mut device, |index, _| {
        asked += u32::from(index == 13);
        (index == 13 && asked == 4).then(|| word(CardStatus::SWITCH_ERROR)).flatten()
    });
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.phase, error.after), (TransferCause::Card, Some("Ready"), After::Ready));
    assert!(!error.is_retryable(), "the same value would be refused again");
    assert_eq!(
        error.to_string(),
        "the card reported an error (phase: Ready): 0x00000980 tran READY_FOR_DATA SWITCH_ERROR"
    );
}

#[test]
fn a_flush_that_never_ends_ends_at_its_limit() {
    let mut device = Device { programming: u32::MAX, ..Device::new() };
    let flush = Order::flush(&CARD, &ext_csd());
    let r = run_with(flush, &mut device, |_, _| None);
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.after), (TransferCause::NotReady, After::NotReady));
    assert!(error.needs_reset() && r.took > Duration::from_secs(30) && r.took <= flush.limit(), "{}", r.took);
}

#[test]
fn registers_are_read_and_taken_apart() {
    let mut device = Device::new();
    let x = run(Fetch::ext_csd(&CARD), &mut device).unwrap();
    assert_eq!(Health::of(&x).wear_a, Wear::Percent(20));
    assert_eq!(run(Fetch::sd_status(&CARD), &mut device).unwrap().au_size_kib(), 4096);
    assert!(run(Fetch::scr(&CARD), &mut device).unwrap().four_lines());
    assert_eq!(run(Fetch::stored_blocks(&CARD), &mut device), Ok(17));
}

#[test]
fn more_registers_and_a_card_without_application_commands() {
    let mut device = Device::new();
    assert_eq!(run(Fetch::stored_blocks(&SDUC), &mut device), Ok(17), "eight bytes");
    assert_eq!(run(Fetch::protected_groups(&CARD, 64), &mut device), Ok(0x81));
    assert_eq!(run(Fetch::protection_types(&CARD, 64), &mut device), Ok(0x81));
    assert_eq!(run(Fetch::vendor(&CARD, 0x10), &mut device).unwrap()[511], 0x5a);
    assert_eq!(device.log.join(" "), "CMD55:12340000 ACMD22:0 CMD30:40 CMD31:40 CMD56:11");
    // An eMMC takes CMD55 for nothing, if it answers at all.
    let mut device = Device::new();
    let r = run_with(Fetch::sd_status(&CARD), &mut device, |index, _| {
        (index == 55).then(|| word(CardStatus::empty())).flatten()
    });
    let error = r.out.unwrap_err();
    assert!(matches!(error.cause, TransferCause::Unsupported(_)) && error.after == After::Ready, "{error}");
    assert_eq!(device.log.join(" "), "CMD55:12340000 ACMD12:0 CMD13:12340000", "a CMD13 might be an ACMD13");
    // All bits zero are no register.
    let r = drive(Fetch::ext_csd(&CARD), |step, scratch| {
        let Step::Do(a) = step else { panic!("only commands") };
        scratch.fill(0);
        (Ok(Reply { words: [TRAN, 0, 0, 0], bytes: a.command.data.map_or(0, |d| d.bytes()) }), Duration::ZERO)
    });
    assert!(matches!(r.out.unwrap_err().cause, TransferCause::Register(_)));
}

#[test]
fn a_conversation_without_scratch_says_so() {
    let mut fetch = Fetch::ext_csd(&CARD);
    let Step::Done(Err(error)) = fetch.next(None, &mut [0; 511], Instant::ZERO) else { panic!("a refusal") };
    assert_eq!((error.cause, error.after), (TransferCause::Scratch, After::Untouched));
}

#[test]
fn a_password_is_set_used_and_removed() {
    let mut device = Device::new();
    let lock = |op| Lock::lock(&CARD, op);
    let locked = |status: Result<CardStatus, TalkError>| status.unwrap().contains(CardStatus::CARD_IS_LOCKED);
    assert!(locked(run(lock(LockOp::Set { new: b"sesame", lock: true }), &mut device)));
    assert_eq!(device.log.join(" "), "CMD16:8 CMD42:0 CMD13:12340000 CMD16:200");
    assert!(!locked(run(lock(LockOp::Unlock(b"sesame")), &mut device)));
    assert!(!locked(run(lock(LockOp::Change { old: b"sesame", new: b"open" }), &mut device)));
    assert!(locked(run(lock(LockOp::Lock(b"open")), &mut device)));
    // A wrong one is told, and the block length is put back all the same.
    device.log.clear();
    let error = run(lock(LockOp::Unlock(b"sesame")), &mut device).unwrap_err();
    assert_eq!((error.cause, error.after), (TransferCause::Password, After::Ready));
    assert_eq!(device.block_len, 512);
    assert!(!locked(run(lock(LockOp::ForceErase), &mut device)));
    assert!(device.password.is_empty());
    assert_eq!(format!("{:?}", LockOp::Unlock(b"sesame")), "Unlock", "no password in a log");
    for bad in [LockOp::Unlock(b""), LockOp::Set { new: &[1; 17], lock: false }] {
        let mut device = Device::new();
        assert!(matches!(run(lock(bad), &mut device).unwrap_err().cause, TransferCause::Unsupported(_)));
        assert!(device.log.is_empty());
    }
}

#[test]
fn no_password_stays_in_the_payload_whatever_happens() {
    for failing in [false, true] {
        let mut seen = false;
        drive(Lock::lock(&CARD, LockOp::Unlock(b"sesame")), |step, scratch| {
            let Step::Do(a) = step else { panic!("only commands") };
            let here = scratch.windows(6).any(|w| w == b"sesame");
            assert_eq!(here, a.command.index == 42, "{a:?}");
            seen |= here;
            let reply = Ok(Reply { words: [TRAN, 0, 0, 0], bytes: a.command.data.map_or(0, |d| d.bytes()) });
            (if failing && here { Err(silent(42)) } else { reply }, Duration::ZERO)
        });
        assert!(seen);
    }
}

#[test]
fn a_protected_memory_is_written_and_read_back() {
    let mut device = Device::new();
    let counter = run(Rpmb::read_counter(&CARD, 77, hmac), &mut device).unwrap().write_counter();
    assert_eq!(counter, 7);
    assert_eq!(device.log.join(" "), "CMD23:1 CMD25:0 CMD13:12340000 CMD23:1 CMD18:0");
    device.log.clear();
    let answer = run(Rpmb::write(&CARD, 5, &[9; 256], counter, hmac), &mut device).unwrap();
    assert_eq!((answer.write_counter(), answer.address()), (8, 5));
    assert_eq!(
        device.log.join(" "),
        "CMD23:80000001 CMD25:0 CMD13:12340000 CMD23:1 CMD25:0 CMD13:12340000 CMD23:1 CMD18:0"
    );
    let read = run(Rpmb::read(&CARD, 5, 78, hmac), &mut device).unwrap();
    assert!(read.data().iter().all(|b| *b == 9));
}

/// What comes of an answer that is changed on its way.
fn changed(change: impl Fn(Frame) -> Frame, write: bool) -> TransferCause {
    let mut device = Device::new();
    let answer = |step: &Step<_>, scratch: &mut [u8]| {
        let Step::Do(a) = step else { panic!("only commands") };
        let good = device.answer(&a.command, scratch);
        if a.command.index == 18 {
            let frame = change(Frame::parse(scratch).unwrap());
            scratch.copy_from_slice(&frame.emit());
        }
        (good, Duration::ZERO)
    };
    if write {
        drive(Rpmb::write(&CARD, 5, &[9; 256], 7, hmac), answer).out.unwrap_err().cause
    } else {
        drive(Rpmb::read(&CARD, 5, 78, hmac), answer).out.unwrap_err().cause
    }
}

#[test]
fn forged_stale_and_failed_answers_of_the_protected_memory_are_told_apart() {
    let sealed = |frame: Frame| {
        let mut frames = [frame];
        seal(&mut frames, hmac);
        frames[0]
    };
    let error = |e| TransferCause::Rpmb(e);
    assert_eq!(changed(|f| f.with_address(6), false), error(FrameError::Mac));
    assert_eq!(changed(|f| sealed(f.with_nonce(1)), false), error(FrameError::Nonce));
    let failed = changed(|f| f.with_result(3), true);
    assert_eq!(failed, error(FrameError::Failed(Failure::Counter)));
    assert_eq!(changed(|f| sealed(f.with_write_counter(7)), true), error(FrameError::Nonce), "not counted");
    assert_eq!(changed(|f| sealed(f.with_address(9)), true), error(FrameError::Nonce), "another write's");
    let other = changed(|f| sealed(f.with_kind(Request::ReadCounter.answer())), false);
    assert_eq!(other, error(FrameError::Type { expected: 0x400, got: 0x200 }));
}

#[test]
fn a_key_is_programmed_and_not_left_in_the_payload() {
    let mut device = Device::new();
    let r = drive(Rpmb::program_key(&CARD, &KEY, hmac), |step, scratch| {
        let Step::Do(a) = step else { panic!("only commands") };
        let good = device.answer(&a.command, scratch);
        assert_eq!(scratch.windows(32).any(|w| w == KEY), device.log.len() == 2, "{:?}", device.log);
        (good, Duration::ZERO)
    });
    assert_eq!(r.out.unwrap().kind(), Request::ProgramKey.answer());
}

#[test]
fn an_sd_cards_cache_and_its_farewell() {
    let mut device = Device::new();
    let has = run(FindExtensions::new(&CARD), &mut device).unwrap();
    assert_eq!(device.log.join(" "), "CMD48:1ff CMD48:80001ff CMD48:100001ff");
    assert!(has.power.is_some_and(|(_, set)| set.off_notification));
    assert!(has.performance.is_some_and(|(_, set)| set.cache));
    device.log.clear();
    run(SdRegister::cache(&CARD, &has, true), &mut device).unwrap();
    assert_eq!(device.log.join(" "), "CMD49:10020800 CMD13:12340000 CMD48:10020800");
    assert_eq!(device.pages[2][260], 1);
    (device.running, device.log) = (2, Vec::new());
    run(SdRegister::flush(&CARD, &has), &mut device).unwrap();
    assert_eq!(
        device.log.join(" "),
        "CMD49:10020a00 CMD13:12340000 CMD48:10020a00 CMD48:10020a00 CMD48:10020a00"
    );
    (device.running, device.log) = (1, Vec::new());
    run(SdRegister::power_off(&CARD, &has), &mut device).unwrap();
    assert_eq!(device.log.join(" "), "CMD49:8000400 CMD13:12340000 CMD48:8000200 CMD48:8000200");
    // Two makers' cards never finish (spec/card-quirks.md): one second, no more.
    let mut device = Device { running: u32::MAX, ..Device::new() };
    let flush = SdRegister::flush(&CARD, &extensions());
    let r = run_with(flush, &mut device, |_, _| None);
    assert_eq!(r.out.unwrap_err().cause, TransferCause::NotReady);
    assert!(r.took >= Duration::from_secs(1) && r.took <= Duration::from_millis(1_100), "{}", r.took);
    let none = run(SdRegister::flush(&CARD, &Extensions::default()), &mut device).unwrap_err();
    assert_eq!(none.cause, TransferCause::Unsupported("a cache"));
}

#[test]
fn an_mmc_erases_whole_groups_and_trims_blocks() {
    let x = ext_csd();
    let mmc = |kind, lba, blocks| Erase::mmc(&CARD, &mmc_csd(), Some(&x), kind, lba, blocks);
    for (erase, expected) in [
        (mmc(MmcEraseKind::Erase, 1024, 2048), "CMD35:400 CMD36:bff CMD38:0 CMD13:12340000"),
        (mmc(MmcEraseKind::Trim, 9, 3), "CMD35:9 CMD36:b CMD38:1 CMD13:12340000"),
        (mmc(MmcEraseKind::Discard, 9, 3), "CMD35:9 CMD36:b CMD38:3 CMD13:12340000"),
        (
            mmc(MmcEraseKind::SecureTrim, 9, 3),
            "CMD35:9 CMD36:b CMD38:80000001 CMD13:12340000 CMD35:9 CMD36:b CMD38:80008000 CMD13:12340000",
        ),
    ] {
        let mut device = Device::new();
        assert!(run(erase, &mut device).is_ok());
        assert_eq!(device.log.join(" "), expected);
    }
    for (kind, lba, blocks) in
        [(MmcEraseKind::Erase, 1, 1024), (MmcEraseKind::SecureErase, 1024, 1), (MmcEraseKind::Erase, 0, 1)]
    {
        let error = run(mmc(kind, lba, blocks), &mut Device::new()).unwrap_err();
        assert_eq!(error.cause, TransferCause::Unaligned { lba, blocks, unit: 1024 });
    }
    let cut = CardTraits { blocks: 1_030, ..CARD };
    let last = Erase::mmc(&cut, &mmc_csd(), Some(&x), MmcEraseKind::Erase, 1024, 6);
    assert_eq!(run(last, &mut Device::new()), Ok(6), "the last group is cut short by the card's end");
    let old = Erase::mmc(&CARD, &mmc_csd(), None, MmcEraseKind::Trim, 0, 8);
    assert!(matches!(run(old, &mut Device::new()).unwrap_err().cause, TransferCause::Unsupported(_)));
}

#[test]
fn an_erase_in_pieces_says_how_far_it_is() {
    let mut device = Device::new();
    let erase = Erase::new(&SDUC, None, EraseKind::Erase, 100, 8).in_pieces(3);
    assert_eq!(run(erase, &mut device), Ok(8));
    let commands: Vec<_> =
        device.log.iter().filter(|c| !c.starts_with("CMD22")).map(String::as_str).collect();
    assert_eq!(
        commands.join(" "),
        "CMD32:64 CMD33:66 CMD38:0 CMD13:12340000 CMD32:67 CMD33:69 CMD38:0 CMD13:12340000 \
         CMD32:6a CMD33:6b CMD38:0 CMD13:12340000"
    );
    assert_eq!(device.log.len(), commands.len() + 6, "CMD22 before each CMD32 and CMD33 of SDUC");
    // Step by step, until the second piece fails.
    let mut erase = Erase::new(&CARD, None, EraseKind::Erase, 100, 8).in_pieces(3);
    let (mut device, mut last, mut seen) = (Device::new(), None, Vec::new());
    let error = loop {
        match erase.next(last.take(), &mut [], Instant::ZERO) {
            Step::Do(a) => {
                let fails = a.command.index == 38 && seen.contains(&3);
                let answer = device.answer(&a.command, &mut []);
                last = Some(if fails { Err(silent(38)) } else { answer });
            }
            Step::Done(out) => break out.unwrap_err(),
            step => panic!("{step:?}"),
        }
        seen.push(erase.progress().0);
    };
    assert_eq!((error.phase, erase.progress()), (Some("Erase"), (3, 8)));
}

#[test]
fn what_the_maker_is_asked_for_is_always_a_read() {
    for arg in [2, 3] {
        let mut device = Device::new();
        run(Fetch::vendor(&CARD, arg), &mut device).unwrap();
        assert_eq!(device.log, ["CMD56:3"]);
    }
}

#[test]
fn a_register_set_may_lie_anywhere_in_the_space_of_its_function() {
    let (_, set) = extensions().performance.unwrap();
    for (address, args) in
        [(SetAddress(2 << 18), "CMD49:10020800"), (SetAddress(2 << 18 | 3 << 9 | 40), "CMD49:100e5800")]
    {
        let mut device = Device::new();
        let has = Extensions { performance: Some((address, set)), power: None };
        // What becomes of it there is nobody's business: the place is.
        let _ = run(SdRegister::cache(&CARD, &has, true), &mut device);
        assert_eq!(device.log[0], args);
    }
}

#[test]
fn a_register_set_is_used_where_all_of_it_lies_within_its_page() {
    for (offset, inside) in [(0_u32, true), (1, true), (249, true), (250, false), (511, false)] {
        let mut device = Device::new();
        // The address of the performance set, wherever in the page it stands.
        let was = (2_u32 << 18).to_le_bytes();
        let at = device.pages[0].windows(4).position(|bytes| bytes == was).unwrap();
        device.pages[0][at..at + 4].copy_from_slice(&(2 << 18 | offset).to_le_bytes());
        let found = run(FindExtensions::new(&CARD), &mut device).unwrap();
        assert_eq!(found.performance.is_some(), inside, "at byte {offset}");
    }
}

/// One command that reads so many blocks, and nothing else.
struct ReadOnce(u32, bool);

impl Script for ReadOnce {
    type Output = u64;
    fn limit(&self) -> Duration {
        Duration::from_millis(10)
    }
    fn patience(&self) -> Duration {
        Duration::from_millis(100)
    }
    fn next(&mut self, heard: Option<Reply>, _: &mut [u8], _: Instant) -> Result<Say<u64>, TransferCause> {
        if let Some(reply) = heard {
            return Ok(Say::Done(reply.bytes));
        }
        let command = match self.0 {
            0 => Command::set_blocklen(512),
            _ if self.1 => Command::app_cmd(1),
            blocks => Command::data(18, 0, Dir::Read, 512, blocks, Stop::None),
        };
        Ok(Say::Do("Read", command, Duration::from_millis(10)))
    }
}

#[test]
fn an_error_is_cleaned_up_by_cmd12_where_more_than_one_block_was_to_come() {
    for (script, first) in [
        (ReadOnce(0, false), 13),
        (ReadOnce(1, false), 13),
        (ReadOnce(2, false), 12),
        (ReadOnce(1, true), 12),
    ] {
        let mut log = Vec::new();
        let run = drive(Talk::follow(1, script), |step, _| {
            let Step::Do(a) = step else { panic!("only commands") };
            log.push(a.command.index);
            let good = Ok(Reply { words: [TRAN, 0, 0, 0], bytes: 0 });
            let bad = Err(HostError::new(Cause::Crc, Phase::Data, a.command.index));
            (if log.len() == 1 { bad } else { good }, Duration::ZERO)
        });
        assert_eq!((run.out.unwrap_err().after, log[1]), (After::Ready, first), "{log:?}");
    }
}

#[test]
fn bytes_count_for_a_command_with_data_alone() {
    for (blocks, bytes, out) in [
        (2, 1024, Ok(1024)),
        (2, 1023, Err(TransferCause::Short(1023))),
        (2, 0, Err(TransferCause::Short(0))),
        (0, 7, Ok(7)),
    ] {
        let run = drive(Talk::follow(1, ReadOnce(blocks, false)), |step, _| {
            let Step::Do(a) = step else { panic!("only commands") };
            let bytes = if matches!(a.command.index, 16 | 18) { bytes } else { 0 };
            (Ok(Reply { words: [TRAN, 0, 0, 0], bytes }), Duration::ZERO)
        });
        assert_eq!(run.out.map_err(|e| e.cause), out, "{blocks} blocks");
    }
}

#[test]
fn recovery_alone_stops_and_waits() {
    let mut device = Device { programming: 2, ..Device::new() };
    let found = run(Recover::new(CARD.rca, true, CARD.write_limit), &mut device);
    assert_eq!(
        (found.after, device.log.join(" ").as_str()),
        (After::Ready, "CMD12:0 CMD13:12340000 CMD13:12340000 CMD13:12340000")
    );
}

/// Answers by a generated fate, never later than a host's limit.
fn answered(
    conversation: &mut dyn Conversation,
    device: &mut Device,
    fates: &[(u8, u8, u32, u8)],
) -> (Result<String, String>, Duration, usize, bool) {
    let (mut now, mut last, mut failed) = (Instant::from_millis(5), None, false);
    let start = now;
    let mut scratch = [0; 512];
    for n in 0..20_000 {
        let len = if conversation.scratch() { 512 } else { 0 };
        match conversation.next(last.take(), &mut scratch[..len], now) {
            Step::Done(out) => {
                assert!(conversation.phase().is_none());
                assert!(
                    matches!(conversation.next(None, &mut scratch, now), Step::Done(Err(_))),
                    "stays finished"
                );
                return (out, now.since(start), n, failed);
            }
            Step::Sleep(time) => now += time,
            Step::Do(a) => {
                let good = device.answer(&a.command, &mut scratch);
                let (fate, error, noise, late) = fates.get(n).copied().unwrap_or((0, 0, 0, 0));
                let result = match fate {
                    0..=4 => good,
                    5 => Err(host_error(error, a.command.index)),
                    6 => Err(HostError { r1: Some(noise), ..host_error(error, a.command.index) }),
                    7 => good.map(|r| Reply { words: [r.words[0] ^ 1 << (noise % 32), 0, 0, 0], ..r }),
                    8 => {
                        scratch.fill(error);
                        good
                    }
                    _ => Ok(Reply { words: [noise; 4], bytes: error.into() }),
                };
                failed |= result.is_err();
                now += Duration::from_nanos(a.limit.as_nanos() / 255 * u64::from(late));
                last = Some(result);
            }
            step => panic!("{step:?}"),
        }
    }
    panic!("does not end");
}

proptest! {
    #[test]
    fn every_conversation_ends_in_time_whatever_is_answered(
        fates in proptest::collection::vec((0_u8..10, any::<u8>(), any::<u32>(), prop_oneof![3 => Just(0_u8), 1 => any::<u8>()]), 0..24),
        programming in 0_u32..12,
        running in 0_u32..12,
    ) {
        for way in all() {
            let mut device = Device { programming, running, ..Device::new() };
            let mut conversation = (way.make)();
            let limit = conversation.limit();
            let (out, took, steps, failed) = answered(&mut *conversation, &mut device, &fates);
            prop_assert!(took <= limit, "{}: {took} of {limit}", way.title);
            prop_assert!(steps < 500, "{}: {steps} steps", way.title);
            match out {
                // A recovery begins after an error, and forgives some.
                Ok(_) => prop_assert!(!failed || way.title == "Recovery", "{}: an error was swallowed", way.title),
                Err(text) => prop_assert!(!text.is_empty() && !text.contains("over, or the result"), "{}: {text}", way.title),
            }
        }
    }

    #[test]
    fn conversations_driven_out_of_turn_do_not_panic(
        calls in proptest::collection::vec((any::<bool>(), any::<u8>(), any::<[u32; 4]>(), any::<u32>(), 0_usize..600), 0..40),
    ) {
        for way in all() {
            let mut conversation = (way.make)();
            let mut scratch = [0x5a_u8; 600];
            let mut now = Instant::ZERO;
            for (some, n, words, ms, len) in &calls {
                let last = some.then(|| {
                    if n & 1 == 0 { Err(host_error(*n, *n)) } else { Ok(Reply { words: *words, bytes: u64::from(*n) * 2 }) }
                });
                now += Duration::from_millis((*ms).into());
                let _ = conversation.next(last, &mut scratch[..*len], now);
            }
        }
    }
}

#[test]
fn a_removed_card_ends_every_conversation_at_once() {
    for way in all() {
        let mut conversation = (way.make)();
        let mut scratch = [0; 512];
        let first = conversation.next(None, &mut scratch, Instant::ZERO);
        if let Step::Do(a) = first {
            let gone =
                HostError { cause: Cause::NoCard, phase: Phase::Command, index: a.command.index, r1: None };
            let end = conversation.next(Some(Err(gone)), &mut scratch, Instant::ZERO);
            assert!(matches!(end, Step::Done(Err(_))), "{}: {end:?}", way.title);
        }
    }
}

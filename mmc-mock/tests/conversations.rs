//! The conversations of `mmc-proto` with cards that have a state machine of their own: each does what it is for, and
//! no rule of the standard is broken on the way.

use mmc_hal::Dir;
use mmc_mock::card::{Card, MmcCard, MmcConfig, SdCard, SdConfig, Shared};
use mmc_mock::fault::Faulty;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, Clock, MockHost, zoo};
use mmc_proto::bus::Width;
use mmc_proto::host::{Capabilities, Host, Supervised};
use mmc_proto::machine::{
    After, BootFrom, CardTraits, Conductor, Erase, Fetch, FindExtensions, Health, Identified, Identify, Lock,
    LockOp, Machine, Order, Partition, PowerNotice, Protection, Reread, Rpmb, SdRegister, TalkError,
    Transfer, TransferCause, TransferError, TransferOptions, Trouble, Turn, Wear,
};
use mmc_proto::register::ExtCsd;
use mmc_proto::register::ext_csd as e;
use mmc_proto::rpmb::{Failure, FrameError, SoftwareHmac};
use mmc_proto::status::CardStatus;
use mmc_proto::timing::{EraseKind, MmcEraseKind};

const KEY: [u8; 32] = [0x6b; 32];

fn hmac(parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
    SoftwareHmac::new(&KEY).mac(parts)
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz, caps.auto_stop) = (Width::Four, 50_000_000, true);
    caps
}

struct Bench<C: Card> {
    host: Supervised<MockHost<Buf, Shared<C>>>,
    card: Shared<C>,
    clock: Clock,
    id: Identified,
    /// What the identification broke: a card that was asked what it is.
    asked: usize,
}

impl<C: Card> Bench<C> {
    fn new(card: C) -> Self {
        let card = Shared::new(card);
        let mut host = MockHost::new(card.clone(), caps());
        let mut clock = Clock::new();
        let (id, _) = drive(&mut host, &mut clock, Identify::new(&caps()), vec![0; 512]);
        let asked = card.violations().len();
        Self { host, card, clock, id: id.unwrap(), asked }
    }
    fn traits(&self) -> CardTraits {
        self.id.traits
    }
    fn run<M: Machine>(&mut self, machine: M) -> M::Output {
        drive(&mut self.host, &mut self.clock, machine, vec![0; 512]).0
    }
    fn write(&mut self, card: &CardTraits, lba: u64, fill: u8, blocks: u32) -> Result<u32, TransferError> {
        let t = Transfer::new(card, Dir::Write, lba, blocks, TransferOptions::default());
        drive(&mut self.host, &mut self.clock, t, vec![fill; blocks as usize * 512]).0
    }
    fn read(&mut self, card: &CardTraits, lba: u64) -> Result<u8, TransferError> {
        let t = Transfer::new(card, Dir::Read, lba, 1, TransferOptions::default());
        let (result, data) = drive(&mut self.host, &mut self.clock, t, vec![0x77; 512]);
        assert!(data.iter().all(|b| *b == data[0]));
        result.map(|_| data[0])
    }
    /// No rule was broken since the card is known.
    fn clean(&self) {
        let all = self.card.violations();
        assert!(all.len() == self.asked, "{:?}", &all[self.asked..]);
    }
}

fn drive<C: Card, M: Machine>(
    host: &mut Supervised<MockHost<Buf, Shared<C>>>,
    clock: &mut Clock,
    machine: M,
    payload: Vec<u8>,
) -> (M::Output, Vec<u8>) {
    let mut conductor = Conductor::new(machine, Some(Buf(payload)));
    for _ in 0..200_000 {
        match conductor.poll(host, clock.now()) {
            Turn::Done(output, payload) => return (output, payload.unwrap().0),
            Turn::Wait { until, .. } => clock.advance_to(until),
        }
    }
    panic!("the conversation does not end");
}

/// An eMMC of 5.1 with everything, on which background operations by hand were enabled.
fn emmc(profile: Profile) -> Bench<MmcCard> {
    let mut config = MmcConfig::emmc(8, 1 << 22, profile, 3);
    config.ext_csd.as_mut().unwrap()[usize::from(e::BKOPS_EN.offset)] = 1;
    Bench::new(MmcCard::new(config).unwrap())
}

fn sd(name: &str) -> Bench<SdCard> {
    Bench::new(SdCard::new(zoo::card(name, Profile::ideal(), 1).unwrap()).unwrap())
}

#[test]
fn a_card_that_holds_its_line_from_the_start_is_switched_off_and_on() {
    let card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap();
    let b = Bench::new(Faulty::new(card, "at CMD0: busy forever".parse().unwrap()).unwrap());
    assert!(b.traits().blocks > 0 && b.card.lock().waiting().is_empty());
}

impl Bench<MmcCard> {
    fn ext_csd(&mut self) -> ExtCsd {
        let fetch = Fetch::ext_csd(&self.traits());
        self.run(fetch).unwrap()
    }
    fn select(&mut self, partition: Partition) -> CardTraits {
        let (card, x) = (self.traits(), self.ext_csd());
        self.run(Order::partition(&card, &x, partition)).unwrap();
        partition.traits(&card, &x)
    }
}

#[test]
fn an_emmc_keeps_house() {
    let mut b = emmc(Profile::ideal());
    let (card, x) = (b.traits(), b.ext_csd());
    assert_eq!((x.get(e::EXT_CSD_REV), Health::of(&x).wear_a), (8, Wear::NotStated));
    for order in [
        Order::cache(&card, &x, true),
        Order::barriers(&card, &x, true),
        Order::high_capacity_groups(&card, &x),
        Order::interrupts(&card, &x, true),
        Order::auto_background(&card, &x, true),
        Order::power_notice(&card, &x, PowerNotice::On),
        Order::boot(&card, &x, BootFrom::Boot2, true, Some(2)),
    ] {
        b.run(order).unwrap();
    }
    let now = b.ext_csd();
    let set = [
        e::CACHE_CTRL,
        e::BARRIER_CTRL,
        e::ERASE_GROUP_DEF,
        e::HPI_MGMT,
        e::BKOPS_EN,
        e::POWER_OFF_NOTIFICATION,
        e::PARTITION_CONFIG,
        e::BOOT_BUS_CONDITIONS,
    ];
    assert_eq!(set.map(|field| now.get(field)), [1, 1, 1, 1, 3, 1, 0x50, 2]);
    b.write(&card, 8, 0x31, 8).unwrap();
    for order in [Order::barrier(&card, &now), Order::flush(&card, &now), Order::background(&card, &now)] {
        b.run(order).unwrap();
    }
    b.run(Order::cache(&card, &now, false)).unwrap();
    assert_eq!(b.read(&card, 9), Ok(0x31));
    b.run(Order::status(&card)).unwrap();
    b.run(Order::power_notice(&card, &now, PowerNotice::OffShort)).unwrap();
    b.clean();
}

#[test]
fn partitions_are_places_of_their_own() {
    let mut b = emmc(Profile::ideal());
    let user = b.traits();
    b.write(&user, 3, 0x11, 1).unwrap();
    let boot = b.select(Partition::Boot1);
    assert_eq!(boot.blocks, 2048);
    b.write(&boot, 3, 0x22, 1).unwrap();
    assert!(matches!(b.read(&boot, 2048).unwrap_err().cause, TransferCause::OutOfRange { .. }));
    b.select(Partition::Boot2);
    assert_ne!(b.read(&boot, 3), Ok(0x22));
    b.select(Partition::Boot1);
    assert_eq!(b.read(&boot, 3), Ok(0x22));
    let x = b.ext_csd();
    b.run(Order::protect_boot(&user, &x, false)).unwrap();
    let error = b.write(&boot, 3, 0x33, 1).unwrap_err();
    assert!(error.status.unwrap().contains(CardStatus::WP_VIOLATION), "{error}");
    assert_eq!(Trouble::from(&error), Trouble::Denied);
    b.select(Partition::User);
    assert_eq!(b.read(&user, 3), Ok(0x11));
    let x = b.ext_csd();
    let none = b.run(Order::partition(&user, &x, Partition::General(1))).unwrap_err();
    assert_eq!((none.cause, none.after), (TransferCause::Unsupported("this partition"), After::Untouched));
    b.clean();
}

#[test]
fn the_replay_protected_memory_takes_what_is_signed() {
    let mut b = emmc(Profile::ideal());
    let card = b.traits();
    b.select(Partition::Rpmb);
    let error = b.run(Rpmb::read_counter(&card, 1, hmac)).unwrap_err();
    assert_eq!(error.cause, TransferCause::Rpmb(FrameError::Failed(Failure::NoKey)), "{error}");
    b.run(Rpmb::program_key(&card, &KEY, hmac)).unwrap();
    for n in 0..3_u32 {
        let counter =
            b.run(Rpmb::read_counter(&card, u128::from(n) << 70 | 5, hmac)).unwrap().write_counter();
        assert_eq!(counter, n);
        b.run(Rpmb::write(&card, 7, &[n as u8 + 1; 256], counter, hmac)).unwrap();
    }
    assert_eq!(b.run(Rpmb::read(&card, 7, 99, hmac)).unwrap().data(), [3; 256]);
    let replayed = b.run(Rpmb::write(&card, 7, &[9; 256], 1, hmac)).unwrap_err();
    assert_eq!(replayed.cause, TransferCause::Rpmb(FrameError::Failed(Failure::Counter)));
    let forged = b.run(Rpmb::write(&card, 7, &[9; 256], 3, |_: &mut dyn Iterator<Item = &[u8]>| [1; 32]));
    assert!(matches!(forged.unwrap_err().cause, TransferCause::Rpmb(_)));
    assert_eq!(b.run(Rpmb::read(&card, 7, 100, hmac)).unwrap().data(), [3; 256], "nothing of it was stored");
    b.select(Partition::User);
    b.clean();
}

#[test]
fn an_emmc_forgets_what_it_is_told_to() {
    let mut b = emmc(Profile::ideal());
    let (card, x) = (b.traits(), b.ext_csd());
    let csd = b.id.mmc().unwrap().csd;
    let erase = |kind, lba, blocks| Erase::mmc(&card, &csd, Some(&x), kind, lba, blocks);
    let group = 1024;
    for (kind, lba, blocks) in [
        (MmcEraseKind::Erase, group, group),
        (MmcEraseKind::SecureErase, 2 * group, group),
        (MmcEraseKind::Trim, 5, 3),
        (MmcEraseKind::SecureTrim, 13, 3),
    ] {
        b.write(&card, lba, 0x66, 1).unwrap();
        b.write(&card, lba + blocks, 0x67, 1).unwrap();
        assert_eq!(b.run(erase(kind, lba, blocks)), Ok(blocks), "{kind:?}");
        assert_eq!(b.read(&card, lba), Ok(0), "{kind:?}");
        assert_eq!(b.read(&card, lba + blocks), Ok(0x67), "{kind:?}: the block behind");
    }
    assert_eq!(b.run(erase(MmcEraseKind::Discard, 40, 2).in_pieces(1)), Ok(2));
    b.run(Order::sanitize(&card, &x)).unwrap();
    b.clean();
}

#[test]
fn a_sanitize_is_interrupted() {
    let mut b = emmc(Profile::ideal());
    let (card, x) = (b.traits(), b.ext_csd());
    b.run(Order::interrupts(&card, &x, true)).unwrap();
    let mut conductor = Conductor::new(Order::sanitize(&card, &x), Some(Buf(vec![0; 512])));
    let begun = b.clock.now();
    while conductor.machine().phase() != Some("Ready") {
        match conductor.poll(&mut b.host, b.clock.now()) {
            Turn::Wait { until, .. } if conductor.machine().phase() != Some("Ready") => {
                b.clock.advance_to(until)
            }
            Turn::Wait { .. } => {}
            Turn::Done(out, _) => panic!("too early: {out:?}"),
        }
    }
    b.host.abort(b.clock.now());
    let error: TalkError = loop {
        match conductor.poll(&mut b.host, b.clock.now()) {
            Turn::Done(out, _) => break out.unwrap_err(),
            Turn::Wait { until, .. } => b.clock.advance_to(until),
        }
    };
    assert_eq!((error.phase, error.after), (Some("Ready"), After::NotReady), "{error}");
    b.run(Order::interrupt(&card, &x)).unwrap();
    let took = b.clock.now().since(begun);
    assert!(took < mmc_time::Duration::from_millis(500), "{took}");
    b.write(&card, 8, 1, 1).unwrap();
    b.clean();
}

#[test]
fn an_emmc_sleeps_and_wakes() {
    let mut b = emmc(Profile::ideal());
    let (card, x) = (b.traits(), b.ext_csd());
    b.write(&card, 8, 0x42, 1).unwrap();
    b.run(Order::power_notice(&card, &x, PowerNotice::On)).unwrap();
    for notice in [true, false] {
        b.run(Order::sleep(&card, &x, notice)).unwrap();
        b.run(Order::awake(&card, &x)).unwrap();
        assert_eq!(b.read(&card, 8), Ok(0x42));
    }
    b.clean();
}

#[test]
fn groups_are_protected_and_said_to_be() {
    let mut b = emmc(Profile::ideal());
    let (card, x) = (b.traits(), b.ext_csd());
    b.run(Order::protect(&card, 64)).unwrap();
    assert_eq!(b.run(Fetch::protected_groups(&card, 64)), Ok(1));
    assert_eq!(b.run(Fetch::protection_types(&card, 64)), Ok(1), "until it is lifted");
    let error = b.write(&card, 64, 1, 1).unwrap_err();
    assert_eq!((Trouble::from(&error), error.after), (Trouble::Denied, After::Ready));
    b.run(Order::unprotect(&card, 64)).unwrap();
    b.write(&card, 64, 1, 1).unwrap();
    b.run(Order::protection(&card, &x, Protection::PowerOn)).unwrap();
    b.run(Order::protect(&card, 64)).unwrap();
    assert_eq!(b.run(Fetch::protection_types(&card, 64)), Ok(2), "until power goes");
    b.clean();
}

#[test]
fn a_password_locks_both_kinds_of_card() {
    fn story<C: Card>(mut b: Bench<C>) {
        let card = b.traits();
        let lock = |op| Lock::lock(&card, op);
        let locked = |s: Result<CardStatus, TalkError>| s.unwrap().contains(CardStatus::CARD_IS_LOCKED);
        b.write(&card, 8, 0x42, 1).unwrap();
        assert!(!locked(b.run(lock(LockOp::Set { new: b"sesame", lock: false }))));
        assert!(locked(b.run(lock(LockOp::Lock(b"sesame")))));
        b.read(&card, 8).unwrap_err();
        let wrong = b.run(lock(LockOp::Unlock(b"seasme"))).unwrap_err();
        assert_eq!((wrong.cause, wrong.after), (TransferCause::Password, After::Ready));
        assert!(!locked(b.run(lock(LockOp::Unlock(b"sesame")))));
        assert_eq!(b.read(&card, 8), Ok(0x42), "the block length is right again");
        b.run(lock(LockOp::Change { old: b"sesame", new: b"open" })).unwrap();
        b.run(lock(LockOp::Lock(b"open"))).unwrap();
        assert!(!locked(b.run(lock(LockOp::ForceErase))));
        assert_ne!(b.read(&card, 8), Ok(0x42), "all is gone, the password too");
    }
    story(sd("atp-2gb"));
    story(sd("samsung-128gb"));
    story(emmc(Profile::ideal()));
}

#[test]
fn an_sd_card_has_a_cache_and_a_farewell() {
    let mut b = sd("samsung-512gb");
    let card = b.traits();
    let has = b.run(FindExtensions::new(&card)).unwrap();
    b.run(SdRegister::cache(&card, &has, true)).unwrap();
    let now = b.run(FindExtensions::new(&card)).unwrap();
    assert!(now.performance.unwrap().1.cache_enabled);
    b.write(&card, 8, 0x42, 8).unwrap();
    b.run(SdRegister::flush(&card, &has)).unwrap();
    b.run(SdRegister::cache(&card, &has, false)).unwrap();
    assert!(!b.run(FindExtensions::new(&card)).unwrap().performance.unwrap().1.cache_enabled);
    b.run(SdRegister::power_off(&card, &has)).unwrap();
    b.clean();
    // A card whose flush never ends.
    let mut b = sd("kingston-flush");
    let card = b.traits();
    let has = b.run(FindExtensions::new(&card)).unwrap();
    b.run(SdRegister::cache(&card, &has, true)).unwrap();
    b.write(&card, 8, 0x42, 8).unwrap();
    assert_eq!(b.run(SdRegister::flush(&card, &has)).unwrap_err().cause, TransferCause::NotReady);
}

#[test]
fn beyond_two_tebibytes() {
    let mut b = sd("sduc-4tb");
    let card = b.traits();
    assert!(card.blocks > 1 << 32);
    let far = (1 << 32) + 5;
    b.write(&card, far, 0x42, 8).unwrap();
    b.write(&card, 5, 0x43, 8).unwrap();
    assert_eq!((b.read(&card, far), b.read(&card, 5)), (Ok(0x42), Ok(0x43)));
    assert_eq!(b.run(Fetch::stored_blocks(&card)), Ok(8));
    assert_eq!(b.run(Erase::new(&card, None, EraseKind::Erase, far, 4)), Ok(4));
    assert_ne!(b.read(&card, far), Ok(0x42));
    assert_eq!(
        (b.read(&card, far + 4), b.read(&card, 5)),
        (Ok(0x42), Ok(0x43)),
        "the others are as they were"
    );
    b.clean();
}

#[test]
fn a_host_that_stops_by_itself_moves_the_same() {
    let mut b = sd("samsung-128gb");
    let card = b.traits();
    let open = TransferOptions { open_ended: true };
    let write = Transfer::new(&card, Dir::Write, 64, 16, open).auto_stop(&caps());
    assert_eq!(drive(&mut b.host, &mut b.clock, write, vec![0x42; 16 * 512]).0, Ok(16));
    let read = Transfer::new(&card, Dir::Read, 64, 16, open).auto_stop(&caps());
    let (result, data) = drive(&mut b.host, &mut b.clock, read, vec![0; 16 * 512]);
    assert_eq!((result, data), (Ok(16), vec![0x42; 16 * 512]));
    b.clean();
}

#[test]
fn an_sd_card_says_how_it_is_and_is_write_protected() {
    let mut b = sd("atp-2gb");
    let card = b.traits();
    assert!(b.run(Fetch::scr(&card)).is_ok());
    b.write(&card, 8, 0x42, 4).unwrap();
    assert_eq!(b.run(Fetch::stored_blocks(&card)), Ok(4));
    let csd = b.run(Reread::csd(&card)).unwrap().csd();
    assert_eq!((b.id.sd().unwrap().csd.tran_speed(), csd.tran_speed()), (0x32, 0x5a), "high speed since");
    assert_eq!(b.run(Reread::cid(&card)).unwrap().cid().mid(), 9);
    b.run(Lock::write_protect(&card, &csd, true)).unwrap();
    let error = b.write(&card, 8, 0x43, 1).unwrap_err();
    assert!(error.status.unwrap().contains(CardStatus::WP_VIOLATION), "{error}");
    b.run(Lock::write_protect(&card, &csd, false)).unwrap();
    b.write(&card, 8, 0x43, 1).unwrap();
    b.clean();
}

//! All conversations of the crate, each in every way it can go, behind one face.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use crate::device::{CARD, KEY, ext_csd, hmac};
use mmc_hal::Dir;
use mmc_proto::host::{Capabilities, HostError, Reply};
use mmc_proto::machine::{
    BootFrom, CardTraits, Erase, Extensions, Fetch, FindExtensions, Lock, LockOp, Machine, Order, Partition,
    PowerNotice, Protection, Recover, Reread, Rpmb, Script, SdRegister, Step, Talk, Transfer,
    TransferOptions,
};
use mmc_proto::register::extension::{PerformanceSet, PowerSet, SetAddress};
use mmc_proto::register::{Csd, MmcCsd, MmcCsdInfo, ext_csd as e};
use mmc_proto::timing::{EraseKind, MmcEraseKind};
use mmc_time::{Duration, Instant};
use std::fmt::Debug;

/// A conversation whose result is text: `Ok` or `Err` with what it would print.
pub trait Conversation {
    fn scratch(&self) -> bool;
    fn limit(&self) -> Duration;
    /// The name of the phase; `None` before the start and after the end.
    fn phase(&self) -> Option<String>;
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Result<String, String>>;
}

struct Wrapped<M, P, O> {
    machine: M,
    limit: Duration,
    phase: P,
    output: O,
}

impl<M, P, O> Conversation for Wrapped<M, P, O>
where
    M: Machine,
    P: Fn(&M) -> Option<String>,
    O: Fn(M::Output) -> Result<String, String>,
{
    fn scratch(&self) -> bool {
        self.machine.scratch()
    }
    fn limit(&self) -> Duration {
        self.limit
    }
    fn phase(&self) -> Option<String> {
        (self.phase)(&self.machine)
    }
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Result<String, String>> {
        match self.machine.next(last, scratch, now) {
            Step::Do(action) => Step::Do(action),
            Step::Bus(bus) => Step::Bus(bus),
            Step::Power(power) => Step::Power(power),
            Step::Sleep(time) => Step::Sleep(time),
            Step::Done(output) => Step::Done((self.output)(output)),
        }
    }
}

/// A conversation in one of its ways.
pub struct Way {
    /// The heading of its diagram in docs/protocol.md.
    pub title: &'static str,
    /// Makes it anew.
    pub make: Box<dyn Fn() -> Box<dyn Conversation>>,
}

pub fn way<M, T, E>(
    title: &'static str,
    limit: impl Fn(&M) -> Duration + 'static,
    phase: impl Fn(&M) -> Option<String> + Copy + 'static,
    make: impl Fn() -> M + 'static,
) -> Way
where
    M: Machine<Output = Result<T, E>> + 'static,
    T: Debug,
    E: std::fmt::Display,
{
    let output = |output: Result<T, E>| match output {
        Ok(value) => Ok(format!("{value:?}")),
        Err(error) => Err(error.to_string()),
    };
    let make = Box::new(move || {
        let machine = make();
        let limit = limit(&machine);
        Box::new(Wrapped { machine, limit, phase, output }) as Box<dyn Conversation>
    });
    Way { title, make }
}

fn talk<S>(title: &'static str, make: impl Fn() -> Talk<S> + 'static) -> Way
where
    S: Script + 'static,
    S::Output: Debug,
{
    way(title, Talk::limit, |t: &Talk<S>| t.phase().map(String::from), make)
}

fn transfer(make: impl Fn() -> Transfer + 'static) -> Way {
    way("Transfer", Transfer::limit, |t: &Transfer| t.phase().map(|p| format!("{p:?}")), make)
}

pub const SDUC: CardTraits = CardTraits { blocks: 1 << 34, ..CARD };

pub fn extensions() -> Extensions {
    let mut performance = [0; 263];
    performance[4] = 1;
    Extensions {
        power: Some((SetAddress(1 << 18), PowerSet::parse(&[0, 0x10]))),
        performance: Some((SetAddress(2 << 18), PerformanceSet::parse(&performance))),
    }
}

pub fn mmc_csd() -> MmcCsd {
    let size = MmcCsdInfo { erase_grp_size: 31, erase_grp_mult: 31, ..MmcCsdInfo::default() };
    MmcCsdInfo { taac: 0x26, r2w_factor: 2, write_bl_len: 9, spec_vers: 4, ..size }.emit()
}

/// All but those that bring a card up.
pub fn all() -> Vec<Way> {
    let auto = TransferOptions::default();
    let open = TransferOptions { open_ended: true };
    let mut ways = Vec::new();
    for (card, dir, blocks, options) in [
        (CARD, Dir::Read, 1, auto),
        (CARD, Dir::Write, 1, auto),
        (CARD, Dir::Read, 8, auto),
        (CARD, Dir::Write, 8, auto),
        (CARD, Dir::Read, 8, open),
        (CARD, Dir::Write, 8, open),
        (SDUC, Dir::Read, 1, auto),
        (SDUC, Dir::Write, 8, auto),
        (SDUC, Dir::Write, 8, open),
    ] {
        ways.push(transfer(move || Transfer::new(&card, dir, 64, blocks, options)));
    }
    ways.push(transfer(move || {
        let mut host = Capabilities::new();
        host.auto_stop = true;
        Transfer::new(&CARD, Dir::Write, 64, 8, open).auto_stop(&host)
    }));
    ways.push(transfer(move || Transfer::new(&CARD, Dir::Write, 64, 1, auto).reliable()));
    ways.push(transfer(move || Transfer::new(&CARD, Dir::Read, 64, 0, auto)));
    for stop in [false, true] {
        ways.push(recover(stop));
    }
    ways.extend([
        talk("Erase", || Erase::new(&CARD, None, EraseKind::Erase, 64, 8)),
        talk("Erase", || Erase::new(&SDUC, None, EraseKind::Discard, 64, 8)),
        talk("Erase", || Erase::new(&CARD, None, EraseKind::Erase, 64, 8).in_pieces(3)),
        talk("Erase", || Erase::mmc(&CARD, &mmc_csd(), Some(&ext_csd()), MmcEraseKind::SecureTrim, 64, 8)),
        talk("Erase", || Erase::mmc(&CARD, &mmc_csd(), None, MmcEraseKind::Trim, 64, 8)),
    ]);
    ways.extend(orders());
    ways.extend([
        talk("Registers", || Fetch::ext_csd(&CARD)),
        talk("Registers", || Fetch::sd_status(&CARD)),
        talk("Registers", || Fetch::scr(&CARD)),
        talk("Registers", || Fetch::stored_blocks(&CARD)),
        talk("Registers", || Fetch::stored_blocks(&SDUC)),
        talk("Registers", || Fetch::protected_groups(&CARD, 64)),
        talk("Registers", || Fetch::protection_types(&CARD, 64)),
        talk("Registers", || Fetch::vendor(&CARD, 0x10)),
        talk("Registers", || Fetch::protected_groups(&CARD, u64::MAX)),
        talk("Reading CSD or CID again", || Reread::csd(&CARD)),
        talk("Reading CSD or CID again", || Reread::cid(&CARD)),
        talk("Passwords", || Lock::lock(&CARD, LockOp::Set { new: b"sesame", lock: true })),
        talk("Passwords", || Lock::lock(&CARD, LockOp::Unlock(b"sesame"))),
        talk("Passwords", || Lock::lock(&CARD, LockOp::ForceErase)),
        talk("Passwords", || Lock::lock(&CARD, LockOp::Clear(b""))),
        talk("Programming the CSD", || Lock::write_protect(&CARD, &Csd::new([0x40; 16]), true)),
        talk("Programming the CSD", || Lock::write_protect_mmc(&CARD, &mmc_csd(), false)),
        talk("RPMB: reading", || Rpmb::read_counter(&CARD, 0x1234_5678, hmac)),
        talk("RPMB: reading", || Rpmb::read(&CARD, 5, 0x1234_5678, hmac)),
        talk("RPMB: writing", || Rpmb::write(&CARD, 5, &[9; 256], 7, hmac)),
        talk("RPMB: writing", || Rpmb::program_key(&CARD, &KEY, hmac)),
        talk("SD registers: finding them", || FindExtensions::new(&CARD)),
        talk("SD registers: changing one", || SdRegister::cache(&CARD, &extensions(), true)),
        talk("SD registers: changing one", || SdRegister::flush(&CARD, &extensions())),
        talk("SD registers: changing one", || SdRegister::power_off(&CARD, &extensions())),
        talk("SD registers: changing one", || SdRegister::flush(&CARD, &Extensions::default())),
    ]);
    ways
}

fn recover(stop: bool) -> Way {
    struct Told(Recover);
    impl Machine for Told {
        type Output = Result<String, String>;
        fn next(
            &mut self,
            last: Option<Result<Reply, HostError>>,
            scratch: &mut [u8],
            now: Instant,
        ) -> Step<Self::Output> {
            match self.0.next(last, scratch, now) {
                Step::Do(action) => Step::Do(action),
                Step::Bus(bus) => Step::Bus(bus),
                Step::Power(power) => Step::Power(power),
                Step::Sleep(time) => Step::Sleep(time),
                Step::Done(found) => match found.after {
                    mmc_proto::machine::After::Ready => Step::Done(Ok(format!("{found:?}"))),
                    after => Step::Done(Err(format!("{after:?}"))),
                },
            }
        }
    }
    let make = move || Told(Recover::new(CARD.rca, stop, Duration::from_millis(250)));
    way("Recovery", |r: &Told| r.0.limit(), |r: &Told| r.0.phase().map(|p| format!("{p:?}")), make)
}

fn orders() -> Vec<Way> {
    let one = |title, make: fn() -> Order| talk(title, make);
    let mut ways = Vec::new();
    let switches: [fn() -> Order; 18] = [
        || Order::cache(&CARD, &ext_csd(), true),
        || Order::cache(&CARD, &ext_csd(), false),
        || Order::flush(&CARD, &ext_csd()),
        || Order::barrier(&CARD, &ext_csd()),
        || Order::barriers(&CARD, &ext_csd(), true),
        || Order::background(&CARD, &ext_csd()),
        || Order::auto_background(&CARD, &ext_csd(), true),
        || Order::interrupts(&CARD, &ext_csd(), true),
        || Order::sanitize(&CARD, &ext_csd()),
        || Order::high_capacity_groups(&CARD, &ext_csd()),
        || Order::power_notice(&CARD, &ext_csd(), PowerNotice::OffLong),
        || Order::partition(&CARD, &ext_csd(), Partition::Rpmb),
        || Order::partition(&CARD, &ext_csd(), Partition::General(4)),
        || Order::boot(&CARD, &ext_csd(), BootFrom::Boot1, true, None),
        || Order::boot(&CARD, &ext_csd(), BootFrom::User, true, Some(2)),
        || Order::protection(&CARD, &ext_csd(), Protection::PowerOn),
        || Order::protect_boot(&CARD, &ext_csd(), false),
        || {
            let write = mmc_proto::command::SwitchAccess::WriteByte;
            Order::set(&CARD, &ext_csd(), write, e::PERIODIC_WAKEUP, 1)
        },
    ];
    ways.extend(switches.map(|make| one("Changing the EXT_CSD", make)));
    ways.extend([
        one("Status", || Order::status(&CARD)),
        one("Status", || Order::wait(&CARD, Duration::from_millis(100))),
        one("High priority interrupt", || Order::interrupt(&CARD, &ext_csd())),
        one("High priority interrupt", || {
            let mut by_stop = ext_csd();
            by_stop.set(e::HPI_FEATURES, 3);
            Order::interrupt(&CARD, &by_stop)
        }),
        one("High priority interrupt", || {
            let mut none = ext_csd();
            none.set(e::HPI_FEATURES, 0);
            Order::interrupt(&CARD, &none)
        }),
        one("Sleep", || Order::sleep(&CARD, &ext_csd(), true)),
        one("Sleep", || Order::sleep(&CARD, &ext_csd(), false)),
        one("Sleep", || {
            let mut old = ext_csd();
            old.set(e::EXT_CSD_REV, 2);
            Order::sleep(&CARD, &old, false)
        }),
        one("Waking", || Order::awake(&CARD, &ext_csd())),
        one("Write protection of a group", || Order::protect(&CARD, 64)),
        one("Write protection of a group", || Order::unprotect(&CARD, 64)),
        one("Write protection of a group", || Order::unprotect(&CARD, u64::MAX)),
        one("Speed class", || Order::speed_class(&CARD, 0)),
    ]);
    ways
}

//! Looking after the card: what a disk does beside reading and writing, each as one conversation between two commands.
//!
//! ```text
//!  Reset    identify anew (supply off and on): after an error that asks for it, after a swap, on resume
//!  Find     SD: which extension registers the card has
//!  CacheOn  switch the volatile cache on
//!  Barriers switch its barriers on
//!  Tune     find the sample point again
//!  Flush    store what is in the cache
//!  Notice   say that the supply will go
//!  Off      switch the supply off
//! ```

use crate::core::{Features, Wipe};
use crate::error::BlockError;
use crate::exchange::{Talk, map};
use mmc_hal::Dir;
use mmc_proto::bus::{Power, Timing};
use mmc_proto::host::{Capabilities, Cause, HostError, Reply};
use mmc_proto::machine::{
    Cure, Erase, Extensions, FindExtensions, Identified, Identify, IdentifyError, Machine, Means, Order,
    POLICY, PowerNotice, Registers, Rule, SdRegister, SlotWatch, SpeedOptions, Step, TalkError,
    TransferCause, TransferError, Trouble, Tune, plan,
};
use mmc_proto::quirk::Avoid;
use mmc_proto::register::ExtCsd;
use mmc_proto::register::ext_csd::{
    BARRIER_SUPPORT, CACHE_SIZE, ERASED_MEM_CONT, EXT_CSD_REV, SEC_ERASE_MULT, SEC_FEATURE_SUPPORT,
    SEC_TRIM_MULT,
};
use mmc_proto::timing::{EraseKind, FLUSH_LIMIT, MmcEraseKind, SD_REGISTER_LIMIT, mmc_erase_group_bytes};
use mmc_sched::{Op, Run};
use mmc_time::{Duration, Instant};

/// Most sectors of one discard: 64 MiB, so that other requests do not wait longer than its time limit for it.
const MAX_DISCARD: u32 = 1 << 17;

/// A secure erase of a card whose registers lie about its time ([`Avoid::SECURE_ERASE_TIME`]): 2 s, and some.
const SECURE_TIME_MS: u64 = 3000;

/// Supply off before it is switched on again (`spec/card.md` §13: the supply must have fallen; 1 ms is the least).
const OFF_TIME: Duration = Duration::from_millis(10);

/// How a disk looks after its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Care {
    /// What is done about which error; the attempts are those of the request.
    pub policy: &'static [Rule],
    /// No faster than this after the card was identified anew; what an error makes slower stays slower.
    pub speed: SpeedOptions,
    /// Switch the card's volatile cache on, if it has one: writes are over sooner, and durable only when a flush (or
    /// FUA) says so.
    pub cache: bool,
}

impl Care {
    /// The policy of `spec/card.md` §18, all speed the host has, no cache.
    #[must_use]
    pub const fn new(caps: &Capabilities) -> Self {
        Self { policy: POLICY, speed: SpeedOptions::new(caps), cache: false }
    }
}

/// What became of the card in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Media {
    /// The card the disk serves.
    Same,
    /// There is none, or it cannot be identified.
    Gone,
    /// Another one (or the same after it was out): it is identified and served only after
    /// [`Disk::accept_media`](crate::Disk::accept_media).
    New,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    Reset,
    Find,
    CacheOn,
    Barriers,
    Tune,
    Flush,
    Notice,
    Off,
}

impl Task {
    const ALL: [Self; 8] = [
        Self::Reset,
        Self::Find,
        Self::CacheOn,
        Self::Barriers,
        Self::Tune,
        Self::Flush,
        Self::Notice,
        Self::Off,
    ];
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agenda(u8);

impl Agenda {
    pub(crate) fn add(&mut self, task: Task) {
        self.0 |= task.bit();
    }
    pub(crate) fn remove(&mut self, task: Task) {
        self.0 &= !task.bit();
    }
    pub(crate) const fn has(self, task: Task) -> bool {
        self.0 & task.bit() != 0
    }
    pub(crate) fn clear(&mut self) {
        self.0 = 0;
    }
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Something that a command had better not go before.
    pub(crate) const fn is_cure(self) -> bool {
        self.0 & (Task::Reset.bit() | Task::Tune.bit()) != 0
    }
    pub(crate) fn take(&mut self) -> Option<Task> {
        let task = Task::ALL.into_iter().find(|t| self.0 & t.bit() != 0)?;
        self.0 &= !task.bit();
        Some(task)
    }
}

/// What to do with the requests of a job that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// They failed.
    Fail,
    /// Send them again, each on its own.
    Again,
    /// Send them again, each on its own and in pieces of so many blocks, so that what can be read is.
    Single(u32),
}

/// The conversation of one chore.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and there is one of it")]
pub(crate) enum Chore {
    /// Supply off first: a card that hangs, or signals with 1.8 V, is reset by nothing else.
    Reset(Off, Identify),
    Find(FindExtensions),
    Order(Order),
    Register(SdRegister),
    Tune(Tune),
    Off,
}

/// Switching the supply off before an identification.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Off {
    Due,
    Sent,
    Done,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and there is one of it")]
pub(crate) enum Ended {
    Reset(Result<Identified, IdentifyError>),
    Found(Result<Extensions, TalkError>),
    Done(Result<(), TalkError>),
    Tuned(bool),
    Off,
}

impl Machine for Chore {
    type Output = Ended;

    fn scratch(&self) -> bool {
        match self {
            Self::Reset(_, m) => m.scratch(),
            Self::Find(m) => m.scratch(),
            Self::Order(m) => m.scratch(),
            Self::Register(m) => m.scratch(),
            Self::Tune(m) => m.scratch(),
            Self::Off => false,
        }
    }
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Ended> {
        match self {
            Self::Reset(off, m) => match off {
                Off::Due => {
                    *off = Off::Sent;
                    Step::Power(Power::Off)
                }
                // A supply that cannot be switched stays on, and the identification does what it can.
                Off::Sent => {
                    *off = Off::Done;
                    Step::Sleep(OFF_TIME)
                }
                Off::Done => map(m.next(last, scratch, now), Ended::Reset),
            },
            Self::Find(m) => map(m.next(last, scratch, now), Ended::Found),
            Self::Order(m) => map(m.next(last, scratch, now), |r| Ended::Done(r.map(drop))),
            Self::Register(m) => map(m.next(last, scratch, now), Ended::Done),
            Self::Tune(m) => map(m.next(last, scratch, now), |r| Ended::Tuned(r.is_ok())),
            Self::Off => match last {
                None => Step::Power(Power::Off),
                Some(_) => Step::Done(Ended::Off),
            },
        }
    }
}

/// The card a disk looks after, and how.
pub(crate) struct Keeper<B> {
    pub(crate) care: Care,
    pub(crate) card: Identified,
    pub(crate) extensions: Extensions,
    /// 512 bytes in one segment, for the registers of the card; out while a chore runs.
    pub(crate) scratch: Option<B>,
    pub(crate) agenda: Agenda,
    pub(crate) watch: SlotWatch,
    pub(crate) cache_on: bool,
    /// To switch it on has failed, and nothing has worked since.
    pub(crate) cache_failed: bool,
    /// It is on, or to be switched on before the next request.
    pub(crate) caching: bool,
    pub(crate) barriers_on: bool,
}

impl<B> Keeper<B> {
    fn ext_csd(&self) -> Option<&ExtCsd> {
        self.card.mmc().and_then(|m| m.ext_csd.as_ref())
    }

    /// What the card's registers offer beside reading and writing.
    pub(crate) fn features(&self) -> Features {
        let never = |what| self.card.avoid.intersects(what);
        let (discard, zeroes) = match &self.card.registers {
            // A card whose CSD has no class 5 cannot erase. That erased blocks read as the SCR says is not believed: QEMU's
            // card, for one, says zeros and gives ones (docs/qemu-findings.md).
            Registers::Sd(sd) => (sd.csd.ccc() & 1 << 5 != 0 && !never(Avoid::ERASE), false),
            Registers::Mmc(mmc) => {
                let e = mmc.ext_csd.as_ref();
                let trim = MmcEraseKind::Trim.offered(e) && !never(Avoid::TRIM | Avoid::ERASE);
                let zero = e.is_some_and(|e| e.get(ERASED_MEM_CONT) == 0);
                (trim || self.mmc_discards(e), trim && zero)
            }
            Registers::None => (false, false),
        };
        let max = |can: bool| can.then_some(MAX_DISCARD);
        let unit = self.unit();
        let e = self.ext_csd();
        let secure = |kind: MmcEraseKind, broken| {
            e.is_some() && kind.offered(e) && !never(Avoid::ERASE | Avoid::SECURE_ERASE | broken)
        };
        let erase = secure(MmcEraseKind::SecureErase, Avoid::empty());
        let units = MAX_DISCARD.checked_div(unit).unwrap_or(0).max(1).saturating_mul(unit);
        Features {
            cache: self.cache_on,
            barrier: self.barriers_on,
            unit,
            discard: max(discard),
            write_zeroes: max(zeroes),
            secure_erase: erase.then_some(units),
            secure_trim: max(secure(MmcEraseKind::SecureTrim, Avoid::TRIM)),
            sanitize: e.is_some_and(|e| e.get(SEC_FEATURE_SUPPORT) & 1 << 6 != 0)
                && !never(Avoid::ERASE | Avoid::SECURE_ERASE),
        }
    }

    /// The allocation unit of an SD card, the erase group of an eMMC, in sectors; 0: not known.
    fn unit(&self) -> u32 {
        match &self.card.registers {
            Registers::Sd(sd) => sd.ssr.map_or(0, |ssr| ssr.au_size_kib().saturating_mul(2)),
            Registers::Mmc(mmc) => {
                u32::try_from(mmc_erase_group_bytes(&mmc.csd, mmc.ext_csd.as_ref()) / 512).unwrap_or(0)
            }
            Registers::None => 0,
        }
    }

    fn mmc_discards(&self, ext_csd: Option<&ExtCsd>) -> bool {
        MmcEraseKind::Discard.offered(ext_csd) && !self.card.avoid.intersects(Avoid::DISCARD | Avoid::ERASE)
    }

    /// What comes after the card was identified.
    pub(crate) fn settle(&mut self) {
        (self.cache_on, self.barriers_on) = (false, false);
        self.extensions = Extensions::default();
        self.care.cache &= !self.card.avoid.contains(Avoid::CACHE);
        if self.card.sd().and_then(|sd| sd.scr).is_some_and(|scr| scr.cmd_support() & 1 << 2 != 0) {
            self.agenda.add(Task::Find);
            // Whether it has one is in the registers that are to be found.
            self.caching = self.care.cache;
        } else {
            self.caching = self.care.cache && self.ext_csd().is_some_and(|e| e.get(CACHE_SIZE) > 0);
            if self.caching {
                self.agenda.add(Task::CacheOn);
            }
        }
    }

    /// The extension registers were looked for.
    pub(crate) fn found(&mut self) {
        self.caching = self.care.cache && self.extensions.performance.is_some_and(|(_, set)| set.cache);
        if self.caching {
            self.agenda.add(Task::CacheOn);
        }
    }

    /// The card was told to switch its cache on. If that failed it may have done so all the same: an identification, which
    /// switches it off, comes before the next request. Where it fails again the card's cache is left alone.
    pub(crate) fn switched_cache(&mut self, well: bool) {
        self.cache_on = well;
        if well {
            self.agenda.add(Task::Barriers);
        } else {
            self.care.cache &= !self.cache_failed;
            self.caching = self.care.cache;
            self.agenda.add(Task::Reset);
        }
        self.cache_failed = !well;
    }

    /// The conversation of `task`; `None`: the card has no such thing, or must not be asked. `dirty`: something was
    /// written since the last flush; `barrier`: a flush need be no more than one.
    pub(crate) fn chore(&self, task: Task, caps: &Capabilities, dirty: bool, barrier: bool) -> Option<Chore> {
        let never = |what| self.card.avoid.contains(what);
        let traits = &self.card.traits;
        let sd = self.card.sd().is_some();
        Some(match task {
            Task::Reset => Chore::Reset(Off::Due, Identify::with(caps, self.care.speed)),
            Task::Find => Chore::Find(FindExtensions::new(traits)),
            Task::CacheOn if sd => Chore::Register(SdRegister::cache(traits, &self.extensions, true)),
            Task::CacheOn => Chore::Order(Order::cache(traits, self.ext_csd()?, true)),
            Task::Barriers => {
                let ext_csd = self.ext_csd().filter(|e| e.get(BARRIER_SUPPORT) & 1 == 1)?;
                Chore::Order(Order::barriers(traits, ext_csd, true))
            }
            Task::Tune if sd => Chore::Tune(Tune::sd(caps, self.card.bus)),
            Task::Tune => Chore::Tune(Tune::mmc(caps, self.card.bus)),
            Task::Flush if !self.cache_on || !dirty && never(Avoid::CLEAN_FLUSH) => return None,
            Task::Notice if never(Avoid::POWER_OFF_NOTIFICATION) => return None,
            Task::Flush if sd => Chore::Register(SdRegister::flush(traits, &self.extensions)),
            Task::Flush if barrier => Chore::Order(Order::barrier(traits, self.ext_csd()?)),
            Task::Flush => Chore::Order(Order::flush(traits, self.ext_csd()?)),
            Task::Notice if sd => {
                self.extensions.power.filter(|(_, set)| set.off_notification)?;
                Chore::Register(SdRegister::power_off(traits, &self.extensions))
            }
            Task::Notice => {
                let ext_csd = self.ext_csd().filter(|e| e.get(EXT_CSD_REV) >= 6)?;
                Chore::Order(Order::power_notice(traits, ext_csd, PowerNotice::OffShort))
            }
            Task::Off => Chore::Off,
        })
    }

    /// How long flush and notice may take.
    pub(crate) fn farewell(&self) -> Duration {
        let flush = if self.card.sd().is_some() { SD_REGISTER_LIMIT.saturating_mul(3) } else { FLUSH_LIMIT };
        flush + SD_REGISTER_LIMIT
    }

    /// The conversation that empties the sectors of `run`.
    pub(crate) fn wipe(&self, run: &Run, how: Option<Wipe>) -> Talk {
        let traits = &self.card.traits;
        let (Some(how), Registers::Mmc(mmc), Some(e)) = (how, &self.card.registers, self.ext_csd()) else {
            return Talk::Erase(self.erase(run));
        };
        let kind = match how {
            Wipe::SecureErase => MmcEraseKind::SecureErase,
            Wipe::SecureTrim => MmcEraseKind::SecureTrim,
            Wipe::Sanitize => return Talk::Sanitize(Order::sanitize(traits, e), run.blocks),
        };
        let mut e = *e;
        if self.card.avoid.contains(Avoid::SECURE_ERASE_TIME) {
            // What the registers say is too short for such a card: no group is given less.
            let one = u64::from(e.erase_timeout_ms()).max(1);
            for field in [SEC_ERASE_MULT, SEC_TRIM_MULT] {
                e.set(field, e.get(field).max(SECURE_TIME_MS.div_ceil(one)).min(255));
            }
        }
        Talk::Erase(Erase::mmc(traits, &mmc.csd, Some(&e), kind, run.lba, run.blocks.into()))
    }

    /// The conversation of a discard or write-zeroes.
    fn erase(&self, run: &Run) -> Erase {
        let traits = &self.card.traits;
        let blocks = run.blocks.into();
        match &self.card.registers {
            Registers::Mmc(mmc) => {
                let e = mmc.ext_csd.as_ref();
                let discard = run.op == Op::Discard && self.mmc_discards(e);
                let kind = if discard { MmcEraseKind::Discard } else { MmcEraseKind::Trim };
                Erase::mmc(traits, &mmc.csd, e, kind, run.lba, blocks)
            }
            Registers::Sd(_) | Registers::None => {
                let ssr = self.card.sd().and_then(|sd| sd.ssr.as_ref());
                let discard = run.op == Op::Discard
                    && ssr.is_some_and(|s| s.discard_support() != 0)
                    && !self.card.avoid.contains(Avoid::DISCARD);
                let kind = if discard { EraseKind::Discard } else { EraseKind::Erase };
                Erase::new(traits, ssr, kind, run.lba, blocks)
            }
        }
    }

    /// What is done about an error of a job with so many failures before; what is to be done beside goes to the agenda.
    pub(crate) fn judge(
        &mut self,
        error: &BlockError,
        run: &Run,
        attempt: u8,
        caps: &Capabilities,
    ) -> Verdict {
        // Its own conversations end in nothing else.
        let (mut trouble, dir) = match error {
            BlockError::Transfer(e) => {
                (Trouble::from(e), Some(if run.op.is_read() { Dir::Read } else { Dir::Write }))
            }
            BlockError::Erase(e) => (Trouble::from(e), None),
            _ => return Verdict::Fail,
        };
        let timing = self.card.bus.timing;
        let tuned =
            matches!(timing, Timing::Sdr50 | Timing::Sdr104 | Timing::Hs200) && caps.sample_points > 0;
        // Whose sample point is lost sees damaged answers alone, to the question how the card is as well.
        let damaged = matches!(error, BlockError::Transfer(TransferError { cause: TransferCause::Host(e), .. })
            | BlockError::Erase(TalkError { cause: TransferCause::Host(e), .. }) if e.cause == Cause::Crc);
        if tuned && damaged && trouble == Trouble::Stuck {
            trouble = Trouble::DataCrc;
        }
        let mut means = Means::POWER;
        means.set(Means::TUNED, tuned);
        means.set(Means::SLOWER, timing != Timing::Default);
        for cure in plan(self.care.policy, trouble, dir, attempt, means) {
            match cure {
                Cure::Again => return Verdict::Again,
                Cure::SingleBlocks => return Verdict::Single(self.card.traits.unit.max(1)),
                Cure::Retune => self.agenda.add(Task::Tune),
                Cure::Slower => {
                    self.slower();
                    self.agenda.add(Task::Reset);
                }
                Cure::Reset | Cure::PowerCycle => self.agenda.add(Task::Reset),
                // Without the count the request goes again from its start; the reset ends what an interrupt would.
                Cure::CountStored | Cure::Interrupt => {}
                Cure::GiveUp => return Verdict::Fail,
            }
        }
        Verdict::Fail
    }

    /// From now on without the present timing.
    pub(crate) fn slower(&mut self) {
        self.care.speed.timings = self.care.speed.timings.without(self.card.bus.timing);
    }

    /// Whether `other` is the card it looks after, as far as registers can tell.
    pub(crate) fn is_same(&self, other: &Identified) -> bool {
        let id = match (&self.card.registers, &other.registers) {
            (Registers::Sd(a), Registers::Sd(b)) => a.cid == b.cid && a.csd == b.csd,
            (Registers::Mmc(a), Registers::Mmc(b)) => a.cid == b.cid,
            // One without memory has nothing that could be the same.
            _ => false,
        };
        id && self.card.traits.blocks == other.traits.blocks
    }
}

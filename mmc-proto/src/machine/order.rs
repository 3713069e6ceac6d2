//! Conversations of one to three commands, each with the wait until the card is ready: what an eMMC does by CMD6
//! (cache, background operations, sanitize, notifications, partitions), high priority interrupts, sleep, write
//! protection.
//!
//! What a card does not offer by its EXT_CSD is refused by the first step, before anything is sent. Settings that can
//! be made only once in a card's life (manual background operations, partitioning) have no conversation here.

use super::talk::{PLAIN, Say, Script, Talk, ready_limit};
use super::transfer::{CardTraits, TransferCause, status_of};
use crate::command::{Command, Gate, SwitchAccess};
use crate::host::Reply;
use crate::register::ExtCsd;
use crate::register::ext_csd::{
    BARRIER_CTRL, BARRIER_SUPPORT, BKOPS_EN, BKOPS_START, BKOPS_SUPPORT, BOOT_BUS_CONDITIONS, BOOT_SIZE_MULT,
    BOOT_WP, CACHE_CTRL, CACHE_SIZE, ERASE_GROUP_DEF, EXT_CSD_REV, FLUSH_CACHE, Field, HPI_FEATURES,
    HPI_MGMT, PARTITION_CONFIG, POWER_OFF_NOTIFICATION, RPMB_SIZE_MULT, SANITIZE_START, SEC_FEATURE_SUPPORT,
    USER_WP,
};
use crate::status::CardStatus;
use crate::timing::{
    BKOPS_LIMIT, FLUSH_LIMIT, SANITIZE_LIMIT, cache_limit, interrupt_limit, partition_limit, power_off_limit,
    sleep_limit, sleep_notification_limit, speed_class_limit, switch_limit,
};
use mmc_time::{Duration, Instant};

/// A command, and how long the card may be busy after it; `None`: it is not, or cannot be asked.
#[derive(Clone, Copy, Debug)]
struct Move {
    phase: &'static str,
    command: Command,
    limit: Duration,
    busy: Option<Duration>,
}

impl Move {
    /// With the wait by CMD13 that ends the busy phase.
    fn busy(phase: &'static str, command: Command, busy: Duration) -> Self {
        // The end of busy is the arrival of the CMD13 that waits for it, as after a write.
        Self { phase, command: Command { busy: false, ..command }, limit: PLAIN, busy: Some(busy) }
    }
    /// Alone.
    const fn plain(phase: &'static str, command: Command, limit: Duration) -> Self {
        Self { phase, command, limit, busy: None }
    }
}

/// The course of an [`Order`].
#[derive(Clone, Copy, Debug)]
pub struct OrderScript {
    refused: Option<TransferCause>,
    moves: [Option<Move>; 3],
    at: usize,
    waiting: bool,
}

impl OrderScript {
    fn all(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter().flatten()
    }
}

impl Script for OrderScript {
    type Output = CardStatus;

    fn limit(&self) -> Duration {
        let one = |m: &Move| m.limit + m.busy.map_or(Duration::ZERO, ready_limit);
        self.all().fold(Duration::ZERO, |sum, m| sum + one(m))
    }
    fn patience(&self) -> Duration {
        self.all().filter_map(|m| m.busy).max().unwrap_or(PLAIN)
    }
    fn next(
        &mut self,
        heard: Option<Reply>,
        _: &mut [u8],
        _: Instant,
    ) -> Result<Say<CardStatus>, TransferCause> {
        if let Some(cause) = self.refused {
            return Err(cause);
        }
        if let Some(busy) = self.before().and_then(|m| m.busy) {
            if !self.waiting {
                self.waiting = true;
                return Ok(Say::Ready(busy));
            }
        }
        self.waiting = false;
        let next = self.moves.iter().enumerate().skip(self.at).find_map(|(at, m)| Some((at, (*m)?)));
        match next {
            Some((at, m)) => {
                self.at = at.saturating_add(1);
                Ok(Say::Do(m.phase, m.command, m.limit))
            }
            None => Ok(Say::Done(status_of(&heard.unwrap_or_default()))),
        }
    }
}

impl OrderScript {
    /// The move whose command was sent last.
    fn before(&self) -> Option<Move> {
        self.at.checked_sub(1).and_then(|at| self.moves.get(at).copied().flatten())
    }
}

/// What is told to an eMMC about its power (`POWER_OFF_NOTIFICATION`). Any command but CMD13 after an announcement of
/// power-off takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PowerNotice {
    /// 1: the host will announce power-off; once after identification.
    On,
    /// 2: power goes soon; the card does only what it must.
    OffShort,
    /// 3: power goes, the card may take its time.
    OffLong,
    /// 4: sleep follows (5.0).
    Sleep,
}

/// The partitions of an eMMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Partition {
    /// The user area.
    User,
    /// The first boot partition.
    Boot1,
    /// The second boot partition.
    Boot2,
    /// Replay protected memory; only the sequences of [`Rpmb`](super::Rpmb) are legal there.
    Rpmb,
    /// General purpose partition 1..=4.
    General(u8),
}

impl Partition {
    /// Its code in `PARTITION_CONFIG`, bits 2:0.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::User => 0,
            Self::Boot1 => 1,
            Self::Boot2 => 2,
            Self::Rpmb => 3,
            Self::General(n) => n.saturating_add(3) & 7,
        }
    }
    /// Its bytes; 0: the card has none such. Of the user area 0 if the CSD has the size.
    #[must_use]
    pub fn bytes(self, ext_csd: &ExtCsd) -> u64 {
        match self {
            Self::User => ext_csd.capacity_bytes(),
            Self::Boot1 | Self::Boot2 => ext_csd.boot_partition_bytes(),
            Self::Rpmb => ext_csd.rpmb_bytes(),
            Self::General(n) => ext_csd.gp_partition_bytes(n),
        }
    }
    /// The card's traits while this partition is selected: its size instead of the user area's.
    #[must_use]
    pub fn traits(self, user: &CardTraits, ext_csd: &ExtCsd) -> CardTraits {
        match self {
            Self::User => *user,
            _ => CardTraits { blocks: self.bytes(ext_csd) / 512, ..*user },
        }
    }
}

/// Where an eMMC boots from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BootFrom {
    /// 0: not at all.
    Nothing,
    /// 1.
    Boot1,
    /// 2.
    Boot2,
    /// 7.
    User,
}

/// How long a write protection lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Until CMD29.
    Temporary,
    /// Until the next power cycle or reset.
    PowerOn,
    /// For ever.
    Permanent,
}

/// A conversation of one to three commands. `Ok` is the last card status.
///
/// A busy card is waited for by a CMD13 the host holds back until DAT0 is released. To interrupt a long one (sanitize,
/// background operations) abort the host's operation and run [`interrupt`](Self::interrupt).
pub type Order = Talk<OrderScript>;

impl Order {
    fn of(card: &CardTraits, moves: [Option<Move>; 3]) -> Self {
        Self::follow(card.rca, OrderScript { refused: None, moves, at: 0, waiting: false })
    }
    fn one(card: &CardTraits, m: Move) -> Self {
        Self::of(card, [Some(m), None, None])
    }
    /// Refused unless `can`.
    fn only_if(self, can: bool, what: &'static str) -> Self {
        let refused = if can { None } else { Some(TransferCause::Unsupported(what)) };
        Self::follow(self.rca(), OrderScript { refused, ..*self.script() })
    }
    fn switch(card: &CardTraits, access: SwitchAccess, field: Field, value: u8, limit: Duration) -> Self {
        Self::one(card, switch(access, field, value, limit))
    }

    /// CMD13: how the card is, without waiting. A status with error bits is an error.
    #[must_use]
    pub fn status(card: &CardTraits) -> Self {
        let command = Command { gate: Gate::Now, ..Command::send_status(card.rca) };
        Self::one(card, Move::plain("Status", command, PLAIN))
    }
    /// Waits until the card is ready, `limit` at most.
    #[must_use]
    pub fn wait(card: &CardTraits, limit: Duration) -> Self {
        Self::one(card, Move::busy("Status", Command::send_status(card.rca), limit))
    }
    /// Changes bytes of the EXT_CSD that have no conversation of their own.
    #[must_use]
    pub fn set(card: &CardTraits, ext_csd: &ExtCsd, access: SwitchAccess, field: Field, value: u8) -> Self {
        let writable = field.access.contains('W') && field.len == 1;
        Self::switch(card, access, field, value, switch_limit(ext_csd))
            .only_if(writable, "the EXT_CSD field cannot be written")
    }

    /// Switches the cache on, or off (which flushes it).
    #[must_use]
    pub fn cache(card: &CardTraits, ext_csd: &ExtCsd, on: bool) -> Self {
        let limit = if on { cache_limit(ext_csd) } else { FLUSH_LIMIT };
        Self::switch(card, SwitchAccess::WriteByte, CACHE_CTRL, on.into(), limit)
            .only_if(ext_csd.get(CACHE_SIZE) > 0, "a cache")
    }
    /// Stores what is in the cache.
    #[must_use]
    pub fn flush(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, FLUSH_CACHE, 1, FLUSH_LIMIT)
            .only_if(ext_csd.get(CACHE_SIZE) > 0, "a cache")
    }
    /// Stores what is in the cache now before what will be; [`barriers`](Self::barriers) must be on.
    #[must_use]
    pub fn barrier(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, FLUSH_CACHE, 2, FLUSH_LIMIT)
            .only_if(ext_csd.get(BARRIER_SUPPORT) & 1 == 1, "cache barriers")
    }
    /// Switches cache barriers on or off.
    #[must_use]
    pub fn barriers(card: &CardTraits, ext_csd: &ExtCsd, on: bool) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, BARRIER_CTRL, on.into(), switch_limit(ext_csd))
            .only_if(ext_csd.get(BARRIER_SUPPORT) & 1 == 1, "cache barriers")
    }

    /// Starts background operations by hand and waits for their end. They must have been enabled in the card's life
    /// (`BKOPS_EN` bit 0).
    #[must_use]
    pub fn background(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, BKOPS_START, 1, BKOPS_LIMIT).only_if(
            ext_csd.get(BKOPS_SUPPORT) & 1 == 1 && ext_csd.get(BKOPS_EN) & 1 == 1,
            "background operations by hand",
        )
    }
    /// Lets the card start background operations by itself, or not (5.1).
    #[must_use]
    pub fn auto_background(card: &CardTraits, ext_csd: &ExtCsd, on: bool) -> Self {
        let access = if on { SwitchAccess::SetBits } else { SwitchAccess::ClearBits };
        Self::switch(card, access, BKOPS_EN, 2, switch_limit(ext_csd)).only_if(
            ext_csd.get(BKOPS_SUPPORT) & 1 == 1 && ext_csd.get(EXT_CSD_REV) >= 8,
            "automatic background operations",
        )
    }
    /// Allows high priority interrupts, or forbids them.
    #[must_use]
    pub fn interrupts(card: &CardTraits, ext_csd: &ExtCsd, on: bool) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, HPI_MGMT, on.into(), switch_limit(ext_csd))
            .only_if(ext_csd.get(HPI_FEATURES) & 1 == 1, "high priority interrupts")
    }
    /// Interrupts what the card programs: by CMD12 or CMD13, as it wants it, and waits until it is ready.
    /// [`interrupts`](Self::interrupts) must have allowed it, and the card must be programming.
    #[must_use]
    pub fn interrupt(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        let command = if ext_csd.get(HPI_FEATURES) & 2 == 0 {
            Command::send_status_hpi(card.rca)
        } else {
            Command::stop_transmission_hpi(card.rca)
        };
        Self::one(card, Move::busy("Interrupt", command, interrupt_limit(ext_csd)))
            .only_if(ext_csd.get(HPI_FEATURES) & 1 == 1, "high priority interrupts")
    }
    /// Removes physically what was erased or trimmed before; minutes.
    #[must_use]
    pub fn sanitize(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, SANITIZE_START, 1, SANITIZE_LIMIT)
            .only_if(ext_csd.get(SEC_FEATURE_SUPPORT) & 0x40 != 0, "sanitize")
    }
    /// Counts erase and write-protect groups in high-capacity units; lost at every reset.
    #[must_use]
    pub fn high_capacity_groups(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        Self::switch(card, SwitchAccess::WriteByte, ERASE_GROUP_DEF, 1, switch_limit(ext_csd))
            .only_if(ext_csd.get(EXT_CSD_REV) >= 3, "high-capacity erase groups")
    }

    /// Says what happens to the power. The cache should have been flushed before power goes.
    #[must_use]
    pub fn power_notice(card: &CardTraits, ext_csd: &ExtCsd, notice: PowerNotice) -> Self {
        let (value, limit, rev) = match notice {
            PowerNotice::On => (1, switch_limit(ext_csd), 6),
            PowerNotice::OffShort => (2, power_off_limit(ext_csd, false), 6),
            PowerNotice::OffLong => (3, power_off_limit(ext_csd, true), 6),
            PowerNotice::Sleep => (4, sleep_notification_limit(ext_csd), 7),
        };
        Self::switch(card, SwitchAccess::WriteByte, POWER_OFF_NOTIFICATION, value, limit)
            .only_if(ext_csd.get(EXT_CSD_REV) >= rev, "power-off notification")
    }
    /// Deselects the card and sends it to sleep; then only [`awake`](Self::awake) is legal. `notice`: with a
    /// notification before, for a card that was told [`PowerNotice::On`] (5.0). The cache must have been flushed.
    #[must_use]
    pub fn sleep(card: &CardTraits, ext_csd: &ExtCsd, notice: bool) -> Self {
        let limit = sleep_notification_limit(ext_csd);
        let told = switch(SwitchAccess::WriteByte, POWER_OFF_NOTIFICATION, 4, limit);
        let told = notice.then_some(Move { phase: "Notify", ..told });
        let deselect = Move::plain("Deselect", Command::deselect_cards(), PLAIN);
        // A sleeping card answers no CMD13: the host waits for the end of busy.
        let sleep = Command::sleep_awake(card.rca, true);
        let sleep = Move::plain("Sleep", sleep, sleep_limit(ext_csd) + PLAIN);
        let rev = ext_csd.get(EXT_CSD_REV);
        Self::of(card, [told, Some(deselect), Some(sleep)])
            .only_if(rev >= if notice { 7 } else { 3 }, "sleep")
    }
    /// Wakes the card and selects it again.
    #[must_use]
    pub fn awake(card: &CardTraits, ext_csd: &ExtCsd) -> Self {
        let awake = Command::sleep_awake(card.rca, false);
        let awake = Move::plain("Awake", awake, sleep_limit(ext_csd) + PLAIN);
        let select = Move::busy("Select", Command::select_card(card.rca), switch_limit(ext_csd));
        Self::of(card, [Some(awake), Some(select), None])
    }

    /// Selects a partition; `ext_csd` as it is now (its boot configuration is kept).
    #[must_use]
    pub fn partition(card: &CardTraits, ext_csd: &ExtCsd, partition: Partition) -> Self {
        let there = match partition {
            Partition::User => true,
            Partition::Boot1 | Partition::Boot2 => ext_csd.get(BOOT_SIZE_MULT) > 0,
            Partition::Rpmb => ext_csd.get(RPMB_SIZE_MULT) > 0,
            Partition::General(n) => ext_csd.gp_partition_bytes(n) > 0,
        };
        let value = byte(ext_csd, PARTITION_CONFIG) & !7 | partition.code();
        Self::switch(card, SwitchAccess::WriteByte, PARTITION_CONFIG, value, partition_limit(ext_csd))
            .only_if(there, "this partition")
    }
    /// Where the card boots from, whether it acknowledges, and on which bus (`BOOT_BUS_CONDITIONS`) if that is to
    /// change; `ext_csd` as it is now (the selected partition is kept).
    #[must_use]
    pub fn boot(
        card: &CardTraits,
        ext_csd: &ExtCsd,
        from: BootFrom,
        acknowledge: bool,
        bus: Option<u8>,
    ) -> Self {
        let from = match from {
            BootFrom::Nothing => 0,
            BootFrom::Boot1 => 1,
            BootFrom::Boot2 => 2,
            BootFrom::User => 7,
        };
        let access = byte(ext_csd, PARTITION_CONFIG) & 7;
        let value = u8::from(acknowledge) << 6 | from << 3 | access;
        let config = switch(SwitchAccess::WriteByte, PARTITION_CONFIG, value, partition_limit(ext_csd));
        let bus =
            bus.map(|bus| switch(SwitchAccess::WriteByte, BOOT_BUS_CONDITIONS, bus, switch_limit(ext_csd)));
        Self::of(card, [Some(config), bus, None]).only_if(ext_csd.get(BOOT_SIZE_MULT) > 0, "boot partitions")
    }

    /// What [`protect`](Self::protect) will mean in the user area from now on (`USER_WP`).
    #[must_use]
    pub fn protection(card: &CardTraits, ext_csd: &ExtCsd, protection: Protection) -> Self {
        let kept = byte(ext_csd, USER_WP) & !5;
        let value = match protection {
            Protection::Temporary => kept,
            Protection::PowerOn => kept | 1,
            Protection::Permanent => kept | 4,
        };
        Self::switch(card, SwitchAccess::WriteByte, USER_WP, value, switch_limit(ext_csd))
            .only_if(ext_csd.get(EXT_CSD_REV) >= 4, "ways of write protection")
    }
    /// Protects both boot partitions against writes, until power-off or for ever.
    #[must_use]
    pub fn protect_boot(card: &CardTraits, ext_csd: &ExtCsd, permanent: bool) -> Self {
        let value = if permanent { 4 } else { 1 };
        Self::switch(card, SwitchAccess::SetBits, BOOT_WP, value, switch_limit(ext_csd)).only_if(
            ext_csd.get(EXT_CSD_REV) >= 4 && ext_csd.get(BOOT_SIZE_MULT) > 0,
            "write protection of boot partitions",
        )
    }
    /// CMD28: protects the group block `lba` is in (SDSC with class 6, MMC).
    #[must_use]
    pub fn protect(card: &CardTraits, lba: u64) -> Self {
        Self::group(card, lba, Command::set_write_prot)
    }
    /// CMD29: lifts the protection of the group block `lba` is in.
    #[must_use]
    pub fn unprotect(card: &CardTraits, lba: u64) -> Self {
        Self::group(card, lba, Command::clr_write_prot)
    }
    fn group(card: &CardTraits, lba: u64, command: fn(u32) -> Command) -> Self {
        let range = card.range(lba, card.unit.max(1).into());
        let (arg, refused) = match range {
            Ok((first, _)) => (first.arg, None),
            Err(cause) => (0, Some(cause)),
        };
        let m = Move::busy("Protect", command(arg), card.write_limit);
        let script = OrderScript { refused, moves: [Some(m), None, None], at: 0, waiting: false };
        Self::follow(card.rca, script)
    }
    /// CMD20 of SD: speed class control; `function` 0..=15.
    #[must_use]
    pub fn speed_class(card: &CardTraits, function: u8) -> Self {
        let command = Command::speed_class_control(function);
        Self::one(card, Move::busy("SpeedClass", command, speed_class_limit(function)))
    }
}

fn byte(ext_csd: &ExtCsd, field: Field) -> u8 {
    ext_csd.bytes(field).first().copied().unwrap_or(0)
}

fn switch(access: SwitchAccess, field: Field, value: u8, limit: Duration) -> Move {
    // All fields that can be written lie below 192; a field above is refused by the card.
    let index = u8::try_from(field.offset).unwrap_or(u8::MAX);
    Move::busy("Switch", Command::mmc_switch(access, index, value), limit)
}

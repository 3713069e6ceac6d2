//! What an SD card does not let be written: CMD27 (the writable bits of its CSD), CMD28 to CMD30 (write protect groups),
//! CMD42 (the password), and the two ways in which worn-out cards stop storing (`spec/card.md` §2.2, §2.3, §2.5).

use super::lock::{Lock, Verdict};
use super::registers::{SdConfig, get, put, seal};
use super::sd::{SdCard, State};
use super::status::{CSD_OVERWRITE, LOCK_UNLOCK_FAILED, OUT_OF_RANGE, WP_VIOLATION};
use mmc_time::Instant;
use std::collections::BTreeSet;

/// FILE_FORMAT_GRP, COPY, PERM_WRITE_PROTECT, TMP_WRITE_PROTECT and FILE_FORMAT.
const WRITABLE: u16 = 0xfc00;
/// COPY and PERM_WRITE_PROTECT: never taken back.
const ONCE: u16 = 0x6000;
const PERMANENT: u16 = 0x2000;
const TEMPORARY: u16 = 0x1000;

/// What protects a card, and outlives a loss of power.
#[derive(Debug)]
pub(super) struct Protection {
    pub(super) lock: Lock,
    /// The last two bytes of the CSD, as far as they are writable.
    bits: u16,
    /// Numbers of the protected groups.
    pub(super) groups: BTreeSet<u64>,
    /// Blocks stored so far.
    stored: u64,
    /// It takes blocks and forgets them.
    forgets: bool,
}

impl Protection {
    pub(super) fn new(config: &SdConfig) -> Self {
        Self {
            lock: Lock::default(),
            bits: get(&config.csd(0), 15, 0) as u16 & WRITABLE,
            groups: BTreeSet::new(),
            stored: 0,
            forgets: false,
        }
    }
}

impl SdCard {
    /// The CSD as it is now.
    #[must_use]
    pub fn csd(&self) -> [u8; 16] {
        let mut csd = self.config.csd(self.v.functions.access);
        put(&mut csd, 15, 10, (self.protection.bits >> 10).into());
        seal(csd)
    }
    /// Whether a password locks it now.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.protection.lock.locked()
    }
    /// The block of CMD27 came. Its CRC7 is not looked at: the card sets its own.
    pub(super) fn program_csd(&mut self, block: &[u8], now: Instant) {
        let mut given = [0; 16];
        given.copy_from_slice(&block[..16]);
        let (new, old) = (get(&given, 15, 0) as u16 & WRITABLE, self.protection.bits);
        let own = self.csd();
        // Everything else must be as it is, and what is set once stays.
        if given[..14] != own[..14] || (given[14] ^ own[14]) & 3 != 0 || old & ONCE & !new != 0 {
            self.v.status.raise(CSD_OVERWRITE);
        } else {
            self.protection.bits = new;
        }
        self.work(now);
    }
    /// The block of CMD42 came.
    pub(super) fn apply_lock(&mut self, block: &[u8], now: Instant) {
        let p = &mut self.protection;
        match p.lock.apply(block, true, p.bits & PERMANENT == 0) {
            Verdict::Done => {}
            Verdict::Failed => self.v.status.raise(LOCK_UNLOCK_FAILED),
            Verdict::Erase => {
                p.groups.clear();
                p.bits &= !TEMPORARY;
                let bytes = self.storage.bytes();
                // The whole of it.
                let _ = self.storage.erase(0, bytes);
                self.undo.clear();
            }
        }
        self.work(now);
    }
    /// Busy for as long as a small command takes.
    pub(super) fn work(&mut self, now: Instant) {
        self.v.state = State::Prg;
        self.v.busy = now + self.config.profile.cmd;
    }
    /// The group of the address of CMD28 to CMD30; the error is raised.
    fn group(&mut self, address: u64) -> Option<u64> {
        let sector = address / 512;
        if sector >= self.config.sectors {
            self.v.status.raise(OUT_OF_RANGE);
            return None;
        }
        Some(sector / self.config.group_sectors())
    }
    /// CMD28 (`on`) and CMD29.
    pub(super) fn protect_group(&mut self, address: u64, on: bool, now: Instant) {
        let Some(group) = self.group(address) else { return };
        if on {
            self.protection.groups.insert(group);
        } else {
            self.protection.groups.remove(&group);
        }
        self.work(now);
    }
    /// What CMD30 sends: 32 groups from the one of this address on, the first in the last bit; `None`: out of range.
    pub(super) fn protected_groups(&mut self, address: u64) -> Option<[u8; 4]> {
        let first = self.group(address)?;
        let bits = self.protection.groups.range(first..first + 32);
        Some(bits.fold(0_u32, |bits, group| bits | 1 << (group - first)).to_be_bytes())
    }
    /// Why nothing may be written at byte `at`.
    pub(super) fn protected(&self, at: u64) -> Option<u32> {
        let p = &self.protection;
        let worn = self.config.quirks.dies_after.is_some_and(|n| p.stored >= n) && !p.forgets;
        let group = || p.groups.contains(&(at / 512 / self.config.group_sectors()));
        let all = p.bits & (PERMANENT | TEMPORARY) != 0 || worn;
        (all || !p.groups.is_empty() && group()).then_some(WP_VIOLATION)
    }
    /// Whether each block has to be looked at by itself.
    pub(super) fn by_the_block(&self) -> bool {
        let q = &self.config.quirks;
        !self.protection.groups.is_empty() || q.dies_after.is_some() || q.forgets_after.is_some()
    }
    /// A block is to be stored; false: it is forgotten.
    pub(super) fn stores(&mut self) -> bool {
        let stores = self.erases();
        self.protection.stored += u64::from(stores);
        stores
    }
    /// Whether an erase erases.
    pub(super) fn erases(&self) -> bool {
        let p = &self.protection;
        !p.forgets && self.config.quirks.forgets_after.is_none_or(|n| p.stored < n)
    }
    /// Power went.
    pub(super) fn protection_without_power(&mut self) {
        let p = &mut self.protection;
        p.lock.power_up();
        p.forgets |= self.config.quirks.dies_after.is_some_and(|n| p.stored >= n);
    }
}

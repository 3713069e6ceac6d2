//! Write protection of an MMC card: the CSD, groups (CMD28 to CMD31) and the boot partitions.

use super::super::registers::get;
use super::config::at;
use super::{MmcCard, OUT_OF_RANGE, Outcome, WP_VIOLATION};
use mmc_time::Instant;

/// How a group is protected; the numbers are those of CMD31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Guard {
    /// Until CMD29.
    Temporary = 1,
    /// Until power goes.
    PowerOn = 2,
    /// For ever.
    Permanent = 3,
}

/// What is protected, but for the bits of CSD and EXT_CSD.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    /// Area, first sector, sectors.
    groups: Vec<(usize, u64, u64, Guard)>,
    boot: [Option<Guard>; 2],
}

impl Protection {
    /// Of a card whose BOOT_WP was this.
    pub(super) fn new(boot_wp: u8) -> Self {
        let mut new = Self::default();
        new.boot(boot_wp);
        new
    }
    pub(super) fn power_up(&mut self) {
        self.groups.retain(|g| g.3 != Guard::PowerOn);
        for boot in &mut self.boot {
            *boot = boot.filter(|g| *g == Guard::Permanent);
        }
    }
    fn of(&self, area: usize, sector: u64) -> Option<Guard> {
        let here = |g: &&(usize, u64, u64, Guard)| g.0 == area && (g.1..g.1 + g.2).contains(&sector);
        self.groups.iter().filter(here).map(|g| g.3).max()
    }
    /// Nothing in the user area is there to stay: a forced erase may go on.
    pub(super) fn may_erase(&self) -> bool {
        !self.groups.iter().any(|g| g.0 == 0 && g.3 != Guard::Temporary)
    }
    /// BOOT_WP was written: `new`, with SEC_SEL for one of them.
    pub(super) fn boot(&mut self, new: u8) {
        for (bit, which, guard) in [(0x04, 0x08, Guard::Permanent), (0x01, 0x02, Guard::PowerOn)] {
            for (i, boot) in self.boot.iter_mut().enumerate() {
                let meant = new & 0x80 == 0 || usize::from(new & which != 0) == i;
                if new & bit != 0 && meant {
                    *boot = (*boot).max(Some(guard));
                }
            }
        }
    }
    /// BOOT_WP_STATUS: two bits for each boot partition.
    pub(super) fn boot_status(&self) -> u8 {
        let bits = |b: Option<Guard>| b.map_or(0, |g| g as u8 - 1);
        bits(self.boot[0]) | bits(self.boot[1]) << 2
    }
}

impl MmcCard {
    /// The whole area is protected: a boot partition, or all by the CSD.
    pub(super) fn protected(&self, area: usize) -> bool {
        match area {
            1 | 2 => self.protection.boot[area - 1].is_some(),
            3 => false,
            _ => self.csd[14] & 0x30 != 0,
        }
    }
    pub(super) fn sector_protected(&self, area: usize, sector: u64) -> bool {
        self.protected(area) || self.protection.of(area, sector).is_some()
    }
    /// The pieces of `first..=last` that may be erased.
    pub(super) fn unprotected(&self, area: usize, first: u64, last: u64) -> Vec<(u64, u64)> {
        let inside = |&c: &u64| c > first && c <= last;
        let groups = self.protection.groups.iter().filter(|g| g.0 == area);
        let mut cuts: Vec<u64> = groups.flat_map(|g| [g.1, g.1 + g.2]).filter(inside).collect();
        cuts.extend([first, last + 1]);
        cuts.sort_unstable();
        cuts.dedup();
        let pieces = cuts.windows(2).map(|w| (w[0], w[1] - 1));
        pieces.filter(|p| self.protection.of(area, p.0).is_none()).collect()
    }
    /// Sectors of a write protect group.
    fn group_sectors(&self) -> u64 {
        let groups = if self.ext[at::ERASE_GROUP_DEF] & 1 == 1 {
            u64::from(self.ext[at::HC_WP_GRP_SIZE]).max(1)
        } else {
            get(&self.csd, 36, 32) + 1
        };
        groups * self.erase_group()
    }
    /// CMD28 and CMD29.
    pub(super) fn protect(&mut self, set: bool, arg: u32, now: Instant) -> Outcome {
        let (area, size) = (self.area(), self.group_sectors());
        let sector = u64::from(arg) * self.unit() / 512;
        if sector >= self.areas[area].sectors() {
            self.errors |= OUT_OF_RANGE;
            return Outcome::R1;
        }
        let first = sector / size * size;
        if set {
            let guard = match self.ext[at::USER_WP] {
                w if w & 0x04 != 0 => Guard::Permanent,
                w if w & 0x01 != 0 => Guard::PowerOn,
                _ => Guard::Temporary,
            };
            self.protection.groups.retain(|g| (g.0, g.1, g.2) != (area, first, size) || g.3 > guard);
            self.protection.groups.push((area, first, size, guard));
        } else {
            let here = |g: &(usize, u64, u64, Guard)| g.0 == area && (g.1..g.1 + g.2).contains(&sector);
            self.protection.groups.retain(|g| !here(g) || g.3 != Guard::Temporary);
            if self.protection.of(area, sector).is_some() {
                self.errors |= WP_VIOLATION;
            }
        }
        self.rest(now)
    }
    /// What CMD30 (one bit for each of 32 groups, the addressed one last) or CMD31 (two bits) sends.
    pub(super) fn protection_bits(&mut self, index: u8, arg: u32) -> Vec<u8> {
        let (area, size) = (self.area(), self.group_sectors());
        let first = u64::from(arg) * self.unit() / 512 / size * size;
        if first >= self.areas[area].sectors() {
            self.errors |= OUT_OF_RANGE;
        }
        let guard = |i: u64| self.protection.of(area, first.saturating_add(i * size));
        if index == 30 {
            let bits = (0..32).fold(0_u32, |bits, i| bits | u32::from(guard(i).is_some()) << i);
            bits.to_be_bytes().to_vec()
        } else {
            let bits = (0..32).fold(0_u64, |bits, i| bits | guard(i).map_or(0, |g| g as u64) << (2 * i));
            bits.to_be_bytes().to_vec()
        }
    }
}

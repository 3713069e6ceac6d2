//! CMD6 of an eMMC card: which bytes of the EXT_CSD may be written, and what that does.

use super::config::at;
use super::work::Kind;
use super::{MmcCard, SWITCH_ERROR};
use crate::storage::Storage;
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// Puts the settings back that do not outlive CMD0 and, where `power` was gone, those that do not outlive that.
///
/// What is writable once in a power cycle (`/C_P`) stays over CMD0: JESD84-B51, 7.4. (The letters of `spec/card.md` §12 say it
/// goes with CMD0, too; a protection that a reset by command undoes would be none.)
pub(super) fn power_up(e: &mut [u8; 512], power: bool) {
    e[at::CONTEXT_CONF..at::CONTEXT_CONF + 15].fill(0);
    for offset in [
        at::CMDQ_MODE_EN,
        at::MODE_CONFIG,
        at::FLUSH_CACHE,
        at::CACHE_CTRL,
        at::POWER_OFF_NOTIFICATION,
        at::EXCEPTION_EVENTS_CTRL,
        at::EXCEPTION_EVENTS_CTRL + 1,
        at::CLASS_6_CTRL,
        at::HPI_MGMT,
        at::BKOPS_START,
        at::SANITIZE_START,
        at::ERASE_GROUP_DEF,
        at::BUS_WIDTH,
        at::HS_TIMING,
        at::POWER_CLASS,
        at::CMD_SET,
    ] {
        e[offset] = 0;
    }
    e[at::PARTITION_CONFIG] &= 0x78;
    e[at::USER_WP] &= !0x05;
    if power {
        e[at::BOOT_WP] &= !0xc3;
        e[at::BOOT_CONFIG_PROT] &= !0x01;
        e[at::USER_WP] &= !0x08;
        // Sectors of 4 KiB without emulation, from the next power-up on.
        if e[at::USE_NATIVE_SECTOR] & e[at::NATIVE_SECTOR_SIZE] & 1 == 1 {
            e[at::DATA_SECTOR_SIZE] = 1;
        }
    }
}

/// Bytes a host may write that this card keeps and does nothing about.
fn is_kept(offset: usize) -> bool {
    matches!(offset, 37..=51 | 56 | 57 | 131 | 133 | 177 | 187 | 191)
}

/// Settings of partitions: until PARTITION_SETTING_COMPLETED.
fn is_partition_setting(offset: usize) -> bool {
    matches!(offset, 52 | 53 | 134 | 136..=154 | 156)
}

/// Sectors of a high-capacity write protect group, which sizes of partitions count.
fn partition_unit(e: &[u8; 512]) -> u64 {
    u64::from(e[at::HC_WP_GRP_SIZE]) * u64::from(e[at::HC_ERASE_GRP_SIZE]) * 1024
}
/// Three bytes from `at` on.
fn three(e: &[u8; 512], at: usize) -> u64 {
    u32::from_le_bytes([e[at], e[at + 1], e[at + 2], 0]).into()
}
/// Sectors of each partition for general purpose that is set.
pub(super) fn general_purpose(e: &[u8; 512]) -> [u64; 4] {
    std::array::from_fn(|i| three(e, at::GP_SIZE_MULT + 3 * i) * partition_unit(e))
}

impl MmcCard {
    /// CMD6 with `arg`: changes a byte or raises SWITCH_ERROR; busy either way.
    pub(super) fn switch(&mut self, arg: u32, now: Instant) {
        let (access, offset, value) = (arg >> 24 & 3, (arg >> 16 & 0xff) as usize, (arg >> 8) as u8);
        let old = self.ext[offset];
        let new = match access {
            0 => old,
            1 => old | value,
            2 => old & !value,
            _ => value,
        };
        self.work(Kind::Fixed, now, Duration::ZERO, VecDeque::new());
        let took = match access {
            // Another command set: there is none but the standard one.
            0 if arg & 7 <= 1 => Some(Duration::ZERO),
            0 => None,
            _ => self.write_ext(offset, new, now),
        };
        if took.is_none() {
            self.errors |= SWITCH_ERROR;
        }
        self.busy = self.busy + self.config.profile.cmd + took.unwrap_or_default();
    }

    /// Sets a byte; how long that takes, or `None` where it cannot be.
    fn write_ext(&mut self, offset: usize, new: u8, now: Instant) -> Option<Duration> {
        let old = self.ext[offset];
        let has = |offset: usize, mask: u8| self.ext[offset] & mask != 0;
        // Bits that can be set, but not cleared.
        let once = |mask: u8| old & !new & mask == 0;
        let rev = self.ext[at::REV];
        let mut took = Duration::ZERO;
        let legal = match offset {
            at::BUS_WIDTH => {
                let ddr = has(at::DEVICE_TYPE, 0x0c) && self.ext[at::HS_TIMING] & 15 == 1;
                let strobe = has(at::STROBE_SUPPORT, 1);
                new <= 2 || (matches!(new, 5 | 6) && ddr) || (new == 0x86 && ddr && strobe)
            }
            at::HS_TIMING => {
                let width = self.ext[at::BUS_WIDTH];
                let driver = new >> 4 == 0 || self.ext[at::DRIVER_STRENGTH] >> (new >> 4).min(7) & 1 == 1;
                driver
                    && match new & 15 {
                        0 => true,
                        1 => has(at::DEVICE_TYPE, 0x03),
                        2 => has(at::DEVICE_TYPE, 0x30) && matches!(width, 1 | 2),
                        3 => has(at::DEVICE_TYPE, 0xc0) && width & 0x7f == 6 && old & 15 == 1,
                        _ => false,
                    }
            }
            at::PARTITION_CONFIG => {
                let area = usize::from(new & 7);
                if new & 7 != old & 7 {
                    took = Duration::from_millis(10 * u64::from(self.ext[at::PARTITION_SWITCH_TIME]));
                }
                let there = self.areas[area].sectors() > 0 && (area != 3 || self.queue.is_empty());
                let boot = has(at::BOOT_CONFIG_PROT, 0x11) && (old ^ new) & 0x78 != 0;
                there && !boot && new & 0x80 == 0
            }
            at::CACHE_CTRL => {
                let legal = new <= 1 && self.cache_bytes() > 0;
                if legal && new == 0 && old == 1 {
                    took = self.flush_work(now);
                }
                legal
            }
            at::FLUSH_CACHE => {
                if !has(at::CACHE_CTRL, 1) {
                    return None;
                }
                let q = self.config.quirks;
                if new & 1 == 1 {
                    // The bit clears itself.
                    let never = q.flush_never_ends || (q.empty_flush_hangs && self.undo.is_empty());
                    let took = self.flush_work(now);
                    return Some(if never { Duration::MAX } else { took });
                }
                let barrier = new == 2 && has(at::BARRIER_SUPPORT, 1) && has(at::BARRIER_CTRL, 1);
                self.epoch += u32::from(barrier);
                return barrier.then_some(took);
            }
            at::BARRIER_CTRL => has(at::BARRIER_SUPPORT, 1) && new <= 1,
            at::HPI_MGMT => has(at::HPI_FEATURES, 1) && new <= 1,
            at::BKOPS_EN => has(at::BKOPS_SUPPORT, 1) && once(1) && new <= if rev >= 8 { 3 } else { 1 },
            at::BKOPS_START => {
                if has(at::BKOPS_SUPPORT, 1) {
                    self.start_bkops(now);
                    return Some(took);
                }
                false
            }
            at::SANITIZE_START => {
                if has(at::SEC_FEATURES, 0x40) {
                    self.work(Kind::Erase, now, Duration::from_millis(500), VecDeque::new());
                    return Some(took);
                }
                false
            }
            at::ERASE_GROUP_DEF => new <= 1,
            at::CLASS_6_CTRL => new == 0,
            at::CMDQ_MODE_EN => has(at::CMDQ_SUPPORT, 1) && new <= 1 && self.queue.is_empty(),
            at::POWER_OFF_NOTIFICATION => {
                let legal = rev >= 6 && new <= if rev >= 7 { 4 } else { 3 };
                if legal && new >= 2 {
                    took = self.flush_work(now);
                }
                legal
            }
            at::BOOT_WP => {
                let both = |en: u8, dis: u8| new & en != 0 && new & dis != 0;
                // Those of the power cycle stay set in it, the permanent ones for ever.
                let legal = once(0x55) && !both(0x01, 0x40) && !both(0x04, 0x10);
                if legal {
                    self.protection.boot(new);
                }
                legal
            }
            at::USER_WP => {
                let both = |en: u8, dis: u8| new & en != 0 && new & dis != 0;
                once(0xd8) && new & 0x22 == 0 && !both(0x01, 0x08) && !both(0x04, 0x10)
            }
            at::BOOT_CONFIG_PROT => once(0x11) && new & !0x11 == 0,
            at::RST_N_FUNCTION => new == old || (old == 0 && new <= 2),
            at::FW_CONFIG => once(1) && new <= 1,
            at::WR_REL_SET => has(at::WR_REL_PARAM, 1) && !has(at::SETTING_COMPLETED, 1) && new & 0xe0 == 0,
            at::USE_NATIVE_SECTOR => has(at::NATIVE_SECTOR_SIZE, 1) && new == 1,
            at::SETTING_COMPLETED => new == 1 && (old == 1 || self.partitions_fit()),
            at::VENDOR_ERASE => self.config.quirks.erase_by_byte_113,
            _ if is_partition_setting(offset) => {
                has(at::PARTITIONING_SUPPORT, 1)
                    && has(at::ERASE_GROUP_DEF, 1)
                    && !has(at::SETTING_COMPLETED, 1)
            }
            _ => is_kept(offset),
        };
        if !legal {
            return None;
        }
        self.ext[offset] = new;
        Some(took)
    }
    fn flush_work(&mut self, now: Instant) -> Duration {
        let (dirty, took) = self.flush();
        self.work(Kind::Flush, now, Duration::ZERO, dirty);
        took
    }

    /// Whether the partitions that are set leave something of the user area, and as much enhanced as there can be.
    fn partitions_fit(&self) -> bool {
        let (e, attributes) = (&self.ext, self.ext[at::PARTITIONS_ATTRIBUTE]);
        let (sizes, unit) = (general_purpose(e), partition_unit(e));
        let enhanced = (0..4).filter(|i| attributes >> (i + 1) & 1 == 1).map(|i| sizes[i]).sum::<u64>()
            + three(e, at::ENH_SIZE_MULT) * u64::from(attributes & 1) * unit;
        self.ext[at::PARTITIONING_SUPPORT] & 1 == 1
            && self.ext[at::ERASE_GROUP_DEF] & 1 == 1
            && sizes.iter().sum::<u64>() < self.areas[0].sectors()
            && enhanced <= three(e, at::MAX_ENH_SIZE_MULT) * unit
    }
    /// Power comes: settings of partitions that were completed take effect, once. They take all contents along.
    pub(super) fn partition(&mut self) {
        if self.ext[at::SETTING_COMPLETED] & 1 == 0 || self.partitioned {
            return;
        }
        self.partitioned = true;
        let sizes = general_purpose(&self.ext);
        let user = self.areas[0].sectors().saturating_sub(sizes.iter().sum());
        self.areas[0] = Storage::new(user);
        for (area, sectors) in self.areas[4..].iter_mut().zip(sizes) {
            *area = Storage::new(sectors);
        }
        // Below 4 Gi sectors, as the whole was.
        self.ext[at::SEC_COUNT..at::SEC_COUNT + 4].copy_from_slice(&(user as u32).to_le_bytes());
        self.slow_start = Duration::from_millis(100 * u64::from(self.ext[at::INI_TIMEOUT_AP]));
    }
}

//! CMD6 of an eMMC card: which bytes of the EXT_CSD may be written, and what that does.

use super::config::at;
use super::{MmcCard, MmcState, SWITCH_ERROR};
use mmc_time::{Duration, Instant};

/// Puts the settings that do not outlive power or CMD0 back.
pub(super) fn power_up(e: &mut [u8; 512]) {
    for offset in [
        at::FLUSH_CACHE,
        at::CACHE_CTRL,
        at::POWER_OFF_NOTIFICATION,
        15,
        30,
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
    e[at::BOOT_WP] &= !1;
}

/// Bytes a host may write that this card keeps and does nothing about.
fn is_kept(offset: usize) -> bool {
    matches!(offset, 37..=51 | 56 | 57 | 59 | 131 | 133 | 171 | 177 | 178 | 187 | 191)
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
        let busy = match access {
            // Another command set: there is none but the standard one.
            0 if arg & 7 <= 1 => Some(Duration::ZERO),
            0 => None,
            _ => self.write_ext(offset, new),
        };
        if busy.is_none() {
            self.errors |= SWITCH_ERROR;
        }
        self.state = MmcState::Prg;
        self.busy = now + self.config.profile.cmd + busy.unwrap_or_default();
    }

    /// Sets a byte; how long that takes, or `None` where it cannot be.
    fn write_ext(&mut self, offset: usize, new: u8) -> Option<Duration> {
        let has = |this: &Self, offset: usize, mask: u8| this.ext[offset] & mask != 0;
        let mut took = Duration::ZERO;
        match offset {
            at::BUS_WIDTH => {
                let ddr = has(self, at::DEVICE_TYPE, 0x0c) && self.ext[at::HS_TIMING] & 15 == 1;
                let strobe = has(self, at::STROBE_SUPPORT, 1);
                if !(new <= 2 || (matches!(new, 5 | 6) && ddr) || (new == 0x86 && ddr && strobe)) {
                    return None;
                }
            }
            at::HS_TIMING => {
                let width = self.ext[at::BUS_WIDTH];
                let legal = match new & 15 {
                    0 => true,
                    1 => has(self, at::DEVICE_TYPE, 0x03),
                    2 => has(self, at::DEVICE_TYPE, 0x30) && matches!(width, 1 | 2),
                    3 => has(self, at::DEVICE_TYPE, 0xc0) && width & 0x7f == 6 && self.ext[offset] & 15 == 1,
                    _ => false,
                };
                if !legal {
                    return None;
                }
            }
            at::PARTITION_CONFIG => {
                let area = new & 7;
                if area > 2 || (area > 0 && self.config.boot_sectors() == 0) {
                    return None;
                }
                if area != self.ext[offset] & 7 {
                    took = Duration::from_millis(10 * u64::from(self.ext[at::PARTITION_SWITCH_TIME]));
                }
            }
            at::CACHE_CTRL => {
                if new > 1 || self.cache_bytes() == 0 {
                    return None;
                }
                if new == 0 && self.ext[offset] == 1 {
                    took = self.flush();
                }
            }
            at::FLUSH_CACHE => {
                if self.ext[at::CACHE_CTRL] == 0 || new & 1 == 0 {
                    return None;
                }
                // The bit clears itself.
                let never = self.config.quirks.flush_never_ends;
                return Some(if never { Duration::MAX } else { self.flush() });
            }
            at::HPI_MGMT if has(self, at::HPI_FEATURES, 1) && new <= 1 => {}
            at::BKOPS_EN if has(self, at::BKOPS_SUPPORT, 1) && new & 1 >= self.ext[offset] & 1 => {}
            at::BKOPS_START if has(self, at::BKOPS_SUPPORT, 1) => {
                took = Duration::from_millis(100 * u64::from(self.bkops()));
                self.unkempt = 0;
                return Some(took);
            }
            at::SANITIZE_START if has(self, at::SEC_FEATURES, 0x40) => {
                return Some(Duration::from_millis(500));
            }
            at::ERASE_GROUP_DEF if new <= 1 => {}
            at::POWER_OFF_NOTIFICATION if new <= 4 && self.ext[at::REV] >= 6 => {
                if new >= 2 {
                    took = self.flush();
                }
            }
            // Permanent protection is one way.
            at::BOOT_WP if new & 0x54 >= self.ext[offset] & 0x54 => {}
            at::SETTING_COMPLETED => return None,
            _ if is_kept(offset) => {}
            _ => return None,
        }
        self.ext[offset] = new;
        Some(took)
    }

    /// Bytes of the cache: CACHE_SIZE is in kilobits (JEDEC; mmc-utils).
    pub(super) fn cache_bytes(&self) -> u64 {
        let b = &self.ext[at::CACHE_SIZE..];
        u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])) * 128
    }
    /// How badly it wants background operations, 0 to 3: a step for each 64 MiB written.
    pub(super) fn bkops(&self) -> u8 {
        let has = self.ext[at::BKOPS_SUPPORT] & 1 == 1;
        if has { (self.unkempt >> 26).min(3) as u8 } else { 0 }
    }
    /// Makes what is in the cache safe.
    fn flush(&mut self) -> Duration {
        let dirty = self.undo.len() as u64 * 512;
        self.undo.clear();
        self.timing.flush();
        match dirty * 1_000_000_000 {
            0 => Duration::ZERO,
            ns => Duration::from_nanos(ns.checked_div(self.config.profile.wr_bps).unwrap_or(0)),
        }
    }
}

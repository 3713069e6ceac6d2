//! CMD38 of an MMC card: erase, trim, discard, their secure forms, and what sanitizing does.

use super::super::registers::get;
use super::config::at;
use super::work::Kind;
use super::{ERASE_PARAM, MmcCard, MmcState, OUT_OF_RANGE, WP_ERASE_SKIP, WP_VIOLATION};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

const SECURE_ERASE: u32 = 0x8000_0000;
const TRIM: u32 = 1;
const DISCARD: u32 = 3;
/// Marks a range.
const SECURE_TRIM_1: u32 = 0x8000_0001;
/// Erases what was marked.
const SECURE_TRIM_2: u32 = 0x8000_8000;

impl MmcCard {
    /// Sectors of an erase group.
    pub(super) fn erase_group(&self) -> u64 {
        if self.ext[at::ERASE_GROUP_DEF] & 1 == 1 {
            return u64::from(self.ext[at::HC_ERASE_GRP_SIZE]).max(1) * 1024;
        }
        let csd = |high, low| get(&self.csd, high, low);
        (csd(46, 42) + 1) * (csd(41, 37) + 1)
    }
    /// CMD38. Erase works on whole groups, trim and discard on sectors; protected groups are left out.
    pub(super) fn erase(&mut self, from: u32, to: u32, arg: u32, now: Instant) {
        let arg = if self.config.quirks.erase_by_byte_113 { self.vendor_argument() } else { arg };
        let unit = self.unit();
        let sector = |a: u32| u64::from(a) * unit / 512;
        let features = self.ext[at::SEC_FEATURES];
        let secure_trim = features & 0x11 == 0x11;
        let (legal, whole) = match arg {
            0 => (true, true),
            SECURE_ERASE => (features & 1 == 1, true),
            TRIM => (features & 0x10 != 0, false),
            DISCARD => (self.ext[at::REV] >= 6, false),
            SECURE_TRIM_1 | SECURE_TRIM_2 => (secure_trim, false),
            _ => (false, false),
        };
        let area = self.area();
        let (mut first, mut last) = (sector(from), sector(to));
        let group = if whole { self.erase_group() } else { self.native() };
        if group > 1 && last >= first {
            first = first / group * group;
            last = ((last / group + 1) * group - 1).min(self.areas[area].sectors().saturating_sub(1));
            last = last.max(sector(to));
        }
        if !legal || last < first {
            self.errors |= ERASE_PARAM;
            return;
        }
        if last >= self.areas[area].sectors() {
            self.errors |= OUT_OF_RANGE;
            return;
        }
        if self.protected(area) {
            self.errors |= WP_VIOLATION;
            return;
        }
        let mut time = self.timing.erase(first, last - first + 1);
        let pieces = self.unprotected(area, first, last);
        if pieces.iter().map(|p| p.1 - p.0 + 1).sum::<u64>() <= last - first {
            self.errors |= WP_ERASE_SKIP;
        }
        match arg {
            SECURE_TRIM_1 => self.marked.extend(pieces.into_iter().map(|(a, b)| (area, a, b))),
            SECURE_TRIM_2 => {
                time = self.times(time, at::SEC_TRIM_MULT);
                for (area, first, last) in std::mem::take(&mut self.marked) {
                    self.wipe(area, first, last);
                }
            }
            TRIM if self.config.quirks.trim_does_nothing => {}
            _ => {
                for (first, last) in pieces {
                    self.wipe(area, first, last);
                }
                if arg == TRIM && self.config.quirks.trim_corrupts {
                    // The sectors behind the range lose their contents, too.
                    let end = (last + 8).min(self.areas[area].sectors() - 1);
                    self.wipe(area, last, end);
                }
            }
        }
        if arg == SECURE_ERASE {
            time = self.times(time, at::SEC_ERASE_MULT);
        }
        if arg >> 31 == 1 {
            if self.config.quirks.secure_time != Duration::ZERO {
                time = self.config.quirks.secure_time;
            }
            if self.config.quirks.secure_kills {
                // The wear levelling is lost; nothing brings it back.
                self.broken = true;
                self.state = MmcState::Ina;
                return;
            }
        }
        self.work(Kind::Erase, now, time, VecDeque::new());
    }
    fn times(&self, time: Duration, mult: usize) -> Duration {
        time.saturating_mul(u64::from(self.ext[mult]).max(1))
    }
    fn vendor_argument(&self) -> u32 {
        match self.ext[at::VENDOR_ERASE] {
            0x80 => SECURE_ERASE,
            0x81 => SECURE_TRIM_1,
            0x88 => SECURE_TRIM_2,
            plain => plain.into(),
        }
    }
    /// Zeros, for good.
    pub(super) fn wipe(&mut self, area: usize, first: u64, last: u64) {
        // Inside, as its callers checked.
        let _ = self.areas[area].erase(first * 512, (last - first + 1) * 512);
        self.forget_sectors(area, first, last);
    }
}

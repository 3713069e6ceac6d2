//! Extension registers of an SD card (CMD48, CMD49; `spec/card.md` §2.8): the general information, power management
//! with its notification of power-off, and performance enhancement with its volatile cache.
//!
//! The data port, masked writes, the commands for several blocks (CMD58, CMD59), maintenance and the command queue are
//! not there; the registers say so.

use super::sd::{SdCard, State};
use super::status::{ADDRESS_ERROR, ERROR};
use mmc_time::{Duration, Instant};

/// Bytes of the cache where the profile has none.
const CACHE: u64 = 512 * 1024;
/// Number of the function with the power management set.
const POWER: u32 = 1;
/// Number of the function with the performance enhancement set.
const PERFORMANCE: u32 = 2;

/// What the registers hold; CMD0 and a loss of power forget it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extension {
    /// Byte 260 of the performance set, bit 0.
    pub(super) cache_on: bool,
    /// When the flush that byte 261 asked for ends; the bit is set until then.
    flush: Option<Instant>,
    /// Power-off notification was asked for.
    power_off: Option<Instant>,
}

/// What the argument of CMD48 and CMD49 says.
struct Place {
    function: u32,
    address: usize,
    len: usize,
}

/// `None`: not in memory space, not a function of this card, masked, or over the end of a page.
fn place(arg: u32) -> Option<Place> {
    let function = arg >> 27 & 15;
    let (address, len) = ((arg >> 9 & 0x1_ffff) as usize, (arg & 0x1ff) as usize + 1);
    let inside = address + len <= 512;
    (arg >> 31 == 0 && arg & 1 << 26 == 0 && function <= PERFORMANCE && inside).then_some(Place {
        function,
        address,
        len,
    })
}

impl SdCard {
    /// The block that CMD48 sends for `arg`, or the error bit.
    pub(super) fn read_extension(&self, arg: u32, now: Instant) -> Result<Vec<u8>, u32> {
        let Place { function, address, len } = place(arg).ok_or(ADDRESS_ERROR)?;
        let e = &self.v.extension;
        let mut page = [0_u8; 512];
        let running = |until: Option<Instant>| until.is_some_and(|t| now < t);
        match function {
            POWER => {
                // Power-off notification is there; it is ready when the cache is safe.
                page[1] = 0x10 | u8::from(e.power_off.is_some_and(|t| now >= t));
                page[2] = u8::from(e.power_off.is_some());
            }
            PERFORMANCE => {
                page[4] = 1;
                page[260] = u8::from(e.cache_on);
                page[261] = u8::from(running(e.flush));
            }
            _ => {
                page[2..4].copy_from_slice(&512_u16.to_le_bytes());
                page[4] = 2;
                for (i, (sfc, name)) in [(1_u16, b"Power"), (2, b"Cache")].into_iter().enumerate() {
                    let entry = &mut page[16 + 48 * i..][..48];
                    entry[..2].copy_from_slice(&sfc.to_le_bytes());
                    entry[24..29].copy_from_slice(name);
                    let next = if i == 0 { 64_u16 } else { 0 };
                    entry[40..42].copy_from_slice(&next.to_le_bytes());
                    entry[42] = 1;
                    let set = (i as u32 + 1) << 18;
                    entry[44..48].copy_from_slice(&set.to_le_bytes());
                }
            }
        }
        let mut block = vec![0; 512];
        block[..len].copy_from_slice(&page[address..address + len]);
        Ok(block)
    }
    /// Whether CMD49 with `arg` can be, or the error bit.
    pub(super) fn check_extension(arg: u32) -> Result<(), u32> {
        place(arg).map(|_| ()).ok_or(ADDRESS_ERROR)
    }
    /// The block of CMD49 came.
    pub(super) fn write_extension(&mut self, arg: u32, block: &[u8], now: Instant) {
        let Some(Place { function, address, len }) = place(arg) else { return };
        let mut refused = function == 0;
        for (i, byte) in block.iter().take(len).enumerate() {
            match (function, address + i, byte) {
                (PERFORMANCE, 260, 0 | 1) => {
                    if self.v.extension.cache_on && *byte == 0 {
                        self.flush(now);
                    }
                    self.v.extension.cache_on = *byte == 1;
                }
                (PERFORMANCE, 261, 0) | (POWER, 2, 0) => {}
                (PERFORMANCE, 261, 1) if self.v.extension.cache_on => {
                    self.v.extension.flush = Some(self.flush(now));
                }
                (POWER, 2, 1) => self.v.extension.power_off = Some(self.flush(now)),
                _ => refused = true,
            }
        }
        if refused {
            self.v.status.raise(ERROR);
        }
        self.v.state = State::Prg;
        self.v.busy = now + self.config.profile.cmd;
    }
    /// Makes what is in the cache safe; when that is done.
    fn flush(&mut self, now: Instant) -> Instant {
        if self.config.quirks.flush_never_ends {
            return Instant::NEVER;
        }
        let bytes = self.undo.len() as u64 * 512;
        self.undo.clear();
        self.timing.flush();
        let ns = (bytes * 1_000_000_000).checked_div(self.config.profile.wr_bps).unwrap_or(0);
        now + Duration::from_nanos(ns)
    }
    /// A sector is about to be written at byte `at` of the storage: remembers what a loss of power brings back.
    pub(super) fn remember(&mut self, at: u64) {
        if !self.v.extension.cache_on {
            // Past the cache: nothing younger than this may be brought back.
            self.undo.retain(|u| u.0 != at);
            return;
        }
        let mut old = [0; 512];
        if self.storage.read(at, &mut old).is_ok() {
            self.undo.push_back((at, old));
        }
        // The oldest makes room: it is programmed. A younger entry of its sector brings back just that.
        if self.undo.len() as u64 * 512 > self.config.profile.cache.max(CACHE) {
            self.undo.pop_front();
        }
    }
    /// Power is gone, and with it what was only in the cache, the youngest first.
    pub(super) fn lose_cache(&mut self) {
        while let Some((at, old)) = self.undo.pop_back() {
            // Where it was read from.
            let _ = self.storage.write(at, &old);
        }
    }
    /// Sectors that a loss of power would undo.
    #[must_use]
    pub fn dirty_sectors(&self) -> usize {
        self.undo.len()
    }
}

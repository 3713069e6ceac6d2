//! What an eMMC card does while it is busy: the cache and its barriers, background operations, and what an interrupt
//! (HPI) or a loss of power breaks off.

use super::config::at;
use super::{MmcCard, MmcState};
use crate::fault::Medium;
use crate::storage::Storage;
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// What was in a sector before a write that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    area: usize,
    sector: u64,
    old: [u8; 512],
    /// Between which barriers it was written.
    epoch: u32,
}

/// What the card is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something that an interrupt does not end.
    #[default]
    Fixed,
    /// Programming blocks.
    Write,
    /// Making the cache safe.
    Flush,
    /// Background operations.
    Bkops,
    /// Erasing or sanitizing: what is gone is gone, the rest of the time is saved.
    Erase,
}

/// The operation under way until [`MmcCard::busy`].
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    kind: Kind,
    started: Instant,
    /// Blocks the write had.
    blocks: u32,
    /// Sectors being programmed, oldest first.
    undo: VecDeque<Undo>,
    /// Bytes that waited for background operations.
    unkempt: u64,
}

/// Bytes written for each step of BKOPS_STATUS.
const STEP: u64 = 64 << 20;

impl MmcCard {
    /// Busy with `kind` for `took`; a write or a flush takes `undo` along.
    pub(super) fn work(&mut self, kind: Kind, now: Instant, took: Duration, undo: VecDeque<Undo>) {
        self.work = Work { kind, started: now, blocks: 0, undo, unkempt: self.unkempt };
        self.state = MmcState::Prg;
        self.busy = now + took;
    }
    /// Busy with the blocks of a write that came.
    pub(super) fn program(&mut self, blocks: u32, now: Instant, took: Duration) {
        let fresh = std::mem::take(&mut self.fresh);
        self.work(Kind::Write, now, took, fresh);
        self.work.blocks = blocks;
        self.ext[at::CORRECTLY_PRG..at::CORRECTLY_PRG + 4].copy_from_slice(&blocks.to_le_bytes());
    }
    /// Whatever it was busy with is done.
    pub(super) fn finish(&mut self) {
        self.work = Work::default();
    }
    /// What it is busy with ends at `now`, before its time.
    fn break_off(&mut self, now: Instant) {
        let Work { kind, started, blocks, mut undo, unkempt } = std::mem::take(&mut self.work);
        let (total, gone) = (self.busy.since(started).as_nanos(), now.since(started).as_nanos());
        let share = |n: u64| match u128::from(total) {
            _ if self.busy.is_never() => 0,
            0 => n,
            total => (u128::from(n) * u128::from(gone.min(total as u64)) / total) as u64,
        };
        match kind {
            Kind::Fixed | Kind::Erase => {}
            Kind::Bkops => self.unkempt = unkempt - share(unkempt),
            Kind::Write if undo.is_empty() => {}
            Kind::Write => {
                let done = share(blocks.into()) as u32;
                while undo.len() > done as usize {
                    let Some(u) = undo.pop_back() else { break };
                    let _ = self.areas[u.area].write(u.sector * 512, &u.old);
                }
                self.ext[at::CORRECTLY_PRG..at::CORRECTLY_PRG + 4].copy_from_slice(&done.to_le_bytes());
            }
            Kind::Flush => {
                undo.drain(..share(undo.len() as u64) as usize);
                undo.append(&mut self.undo);
                self.undo = undo;
            }
        }
    }
    /// CMD12 or CMD13 as a high priority interrupt has been allowed: what can be interrupted ends.
    pub(super) fn cut_short(&mut self, now: Instant) {
        let out = Duration::from_millis(10 * u64::from(self.ext[at::OUT_OF_INTERRUPT_TIME]));
        if self.work.kind != Kind::Fixed && self.busy > now + out {
            self.break_off(now);
            self.busy = now + out;
        }
    }
    /// The supply is gone: what was being programmed is half done, what was only in the cache is lost.
    pub(super) fn lose_volatile(&mut self, now: Instant) {
        if now < self.busy {
            self.break_off(now);
        }
        self.finish();
        self.lose(&[]);
    }

    /// Stores a sector; past the cache, or in it, remembering what a loss of power brings back.
    pub(super) fn store(&mut self, area: usize, sector: u64, block: &[u8], through: bool) {
        let mut old = [0; 512];
        // Inside, as its caller checked.
        let _ = self.areas[area].read(sector * 512, &mut old);
        let entry = Undo { area, sector, old, epoch: self.epoch };
        if through {
            self.undo.retain(|u| (u.area, u.sector) != (area, sector));
            self.fresh.push_back(entry);
        } else {
            self.undo.push_back(entry);
            // The oldest makes room: it is programmed. A younger entry of its sector brings back just that.
            if self.undo.len() as u64 * 512 > self.cache_bytes() {
                self.undo.pop_front();
            }
        }
        let _ = self.areas[area].write(sector * 512, block);
    }
    /// Bytes of the cache: CACHE_SIZE is in kilobits (JEDEC; mmc-utils).
    pub(super) fn cache_bytes(&self) -> u64 {
        let b = &self.ext[at::CACHE_SIZE..];
        u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]])) * 128
    }
    /// Makes what is in the cache safe: what it takes along, and how long that takes.
    pub(super) fn flush(&mut self) -> (VecDeque<Undo>, Duration) {
        let dirty = std::mem::take(&mut self.undo);
        self.timing.flush();
        let ns = (dirty.len() as u64 * 512 * 1_000_000_000).checked_div(self.config.profile.wr_bps);
        (dirty, Duration::from_nanos(ns.unwrap_or(0)))
    }
    /// What was erased for good needs no undoing.
    pub(super) fn forget_sectors(&mut self, area: usize, first: u64, last: u64) {
        self.undo.retain(|u| u.area != area || !(first..=last).contains(&u.sector));
    }
    /// Sectors that a loss of power could undo: those in the cache, and those being programmed.
    #[must_use]
    pub fn dirty_sectors(&self) -> usize {
        self.undo.len() + self.work.undo.len() + self.fresh.len()
    }

    /// How badly it wants background operations, 0 to 3: a step for each 64 MiB written.
    pub(super) fn bkops(&self) -> u8 {
        let has = self.ext[at::BKOPS_SUPPORT] & 1 == 1;
        if has { (self.unkempt / STEP).min(3) as u8 } else { 0 }
    }
    /// How long background operations for one step take.
    fn step_time(&self) -> Duration {
        match self.config.quirks.bkops_time {
            Duration::ZERO => Duration::from_millis(100),
            slow => slow,
        }
    }
    /// BKOPS_START.
    pub(super) fn start_bkops(&mut self, now: Instant) {
        let took = self.step_time().saturating_mul(self.bkops().into());
        self.work(Kind::Bkops, now, took, VecDeque::new());
        self.unkempt = 0;
    }
    /// Background operations that it does by itself while nobody asks for anything (BKOPS_EN, bit 1).
    pub(super) fn idle_bkops(&mut self, now: Instant) {
        let idle = now.since(self.last.max(self.busy).min(now)).as_nanos();
        if self.ext[at::BKOPS_EN] & 2 != 0 {
            let done = u128::from(idle) * u128::from(STEP) / u128::from(self.step_time().as_nanos());
            self.unkempt = self.unkempt.saturating_sub(u64::try_from(done).unwrap_or(u64::MAX));
        }
        self.last = now;
    }
}

/// An eMMC card that follows a script: what a loss of power takes is its cache and what it was programming.
impl Medium for MmcCard {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        f(&mut self.areas[0]);
    }
    /// It always remembers.
    fn expect_loss(&mut self, _: bool) {}
    /// What is in the cache stays there until it is told to flush; what was programmed is durable.
    fn settle(&mut self, _: usize) {
        self.finish();
    }
    fn volatile(&mut self) -> usize {
        self.dirty_sectors()
    }
    /// CMD3 and CMD8, too; not the status of the queue.
    fn tells_status(&self, _: bool, index: u8) -> bool {
        index != 13 || !self.queueing()
    }
    /// A barrier is kept: of what was written behind it nothing survives unless all before it does.
    fn lose(&mut self, survivors: &[usize]) {
        // A flush carries the oldest along, a write the youngest.
        let (mut all, mut young) = (std::mem::take(&mut self.undo), std::mem::take(&mut self.work.undo));
        if self.work.kind == Kind::Flush {
            std::mem::swap(&mut all, &mut young);
        }
        all.append(&mut young);
        all.append(&mut self.fresh);
        let lost = all.iter().enumerate().filter(|(i, _)| !survivors.contains(i));
        let barrier = lost.map(|(_, u)| u.epoch).min().unwrap_or(u32::MAX);
        // Youngest first: what an entry brought is what is there once the younger ones are undone.
        let mut brought = Vec::new();
        while let Some(u) = all.pop_back() {
            let mut new = [0; 512];
            // Inside, as the write was.
            let _ = self.areas[u.area].read(u.sector * 512, &mut new);
            let _ = self.areas[u.area].write(u.sector * 512, &u.old);
            brought.push((u, new));
        }
        brought.reverse();
        for &i in survivors {
            if let Some((u, new)) = brought.get(i).filter(|(u, _)| u.epoch <= barrier) {
                let _ = self.areas[u.area].write(u.sector * 512, new);
            }
        }
    }
}

//! Flushes of the card's volatile cache: who waits for one, when it begins, what it promises when it has ended.

use crate::core::{Core, Work};
use crate::error::BlockError;
use crate::observer::Observer;
use crate::tag::{Cache, State, Tag, Which};
use mmc_hal::Payload;
use mmc_sched::{Flags, Request, Scheduler};
use mmc_time::Instant;

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// What is accepted now may find a cache in use when its turn comes, or asks for one that was lost.
    const fn cached(&self) -> bool {
        self.features.cache || self.caching || self.cache_lost
    }

    /// What `given` wants of the cache, and what the scheduler is told of it: a write that somebody waits for.
    pub(crate) fn wants(&self, given: &Request) -> (Request, Cache) {
        let mut told = *given;
        if given.blocks == 0 && !given.flags.contains(Flags::PREFLUSH) {
            return (told, Cache::Barrier);
        }
        if !given.flags.intersects(Flags::FUA | Flags::PREFLUSH) {
            return (told, Cache::Nothing);
        }
        told.flags.remove(Flags::FUA | Flags::PREFLUSH);
        told.flags.insert(Flags::SYNC);
        let fua = given.flags.contains(Flags::FUA);
        let cache = match (given.blocks, given.flags.contains(Flags::PREFLUSH)) {
            (0, _) => Cache::Only,
            _ if !self.cached() => Cache::Nothing,
            (_, true) => Cache::Before { fua },
            (_, false) => Cache::After,
        };
        (told, cache)
    }

    /// A request without data was accepted: it waits for a flush, if there is anything to flush.
    pub(crate) fn accept_flush(&mut self, i: u32, now: Instant) {
        if self.cached() {
            self.wait_for_flush(i);
        } else {
            self.over(i, Ok(()), now);
        }
    }

    pub(crate) fn wait_for_flush(&mut self, i: u32) {
        self.set_state(i, State::Flush);
        self.table.push(Which::Flush, i);
    }

    pub(crate) fn begin_flush(&mut self) -> Work {
        self.table.begin_flush();
        self.barrier = self.features.barrier && self.table.only_barriers();
        self.flushing = true;
        Work::Flush
    }

    /// A flush that has not gone out yet is to store everything, whoever waits for it: the supply goes.
    pub(crate) const fn store_all(&mut self) {
        self.barrier = false;
    }

    /// The card lost its supply, and with it what was in its cache: the next flush says so.
    pub fn lose_cache(&mut self) {
        self.cache_lost |= core::mem::take(&mut self.dirty);
    }

    /// The flush that [`Work::Flush`] asked for has ended. A write that wanted it before its data goes on; flushes,
    /// and writes that wanted it after, are over. It is repeated, as often as
    /// [`Settings::retries`](crate::Settings::retries) says, after an error that may go away; else all that waited for it
    /// fail.
    pub fn finish_flush(&mut self, result: Result<(), BlockError>, now: Instant) {
        if !core::mem::take(&mut self.flushing) {
            // Nobody here waited for it.
            self.dirty &= result.is_err();
            return;
        }
        self.since_flush = 0;
        self.statistics.flushes = self.statistics.flushes.saturating_add(1);
        let again = result.is_err_and(|e| {
            self.stopped.is_none() && e.is_retryable() && self.flush_tries < self.settings.retries
        });
        if again {
            self.flush_tries = self.flush_tries.saturating_add(1);
            self.since_flush = 1;
            self.table.flush_again();
            return;
        }
        self.flush_tries = 0;
        let result = match result {
            // A barrier stores nothing, and promises nothing of what was lost: the next flush does.
            Ok(()) if !self.barrier && core::mem::take(&mut self.cache_lost) => Err(BlockError::CacheLost),
            other => other,
        };
        self.dirty &= result.is_err() || self.barrier;
        for _ in 0..self.table.len() {
            let Some(i) = self.table.pop(Which::Flushing) else { break };
            let Some(e) = self.table.get_mut(i) else { continue };
            match (result, e.cache) {
                (Ok(()), Cache::Before { fua }) => {
                    e.cache = if fua { Cache::After } else { Cache::Nothing };
                    self.launch(i, now);
                }
                _ => self.over(i, result, now),
            }
        }
        self.admit(now);
        self.note_waits(now);
    }
}

//! Which queue has the device, for how long, and whether another request of it may go (§4 to §7, §10, §11).

use super::Cfq;
use super::lines::Line;
use super::ns;
use super::queue::{Load, Rank};
use crate::pool::Pool;
use mmc_time::Instant;

impl<const N: usize> Cfq<N> {
    /// The queue that has the device.
    pub(super) fn active(&self) -> Option<usize> {
        self.active.map(usize::from)
    }

    /// The request to go now, of the queue whose turn it is. `None`: it may not send another one.
    pub(super) fn choose(&mut self, pool: &mut Pool<'_>, now: Instant) -> Option<u16> {
        let t = ns(now);
        let i = self.select(t)?;
        let q = self.queue(i);
        // Once per slice the oldest goes first if it is due, whatever keeps others back.
        let overdue = if q.age_checked { None } else { q.requests.overdue(pool, now) };
        let slot = overdue.or_else(|| q.requests.next().filter(|_| self.may_send(i, t)));
        self.edit(i, |q| q.age_checked = true);
        let slot = slot?;
        let seek = self.settings.seek();
        self.edit(i, |q| {
            q.requests.take(pool, slot, seek);
            q.sent = q.sent.saturating_add(1);
            q.out = q.out.saturating_add(1);
        });
        self.queued = self.queued.saturating_sub(1);
        self.position = pool.end(slot);
        self.sync_out = self.sync_out.saturating_add(u32::from(self.queue(i).sync));
        let q = self.queue(i);
        let quota = !q.sync && u64::from(q.sent) >= self.settings.async_quota(q.level);
        if (quota || q.rank == Rank::Idle) && self.busy() > 1 {
            self.expire(t, false);
        }
        Some(slot)
    }

    /// The queue that has the device now (§6): the one that had it, while it has requests and its slice lasts.
    fn select(&mut self, now: i64) -> Option<usize> {
        if let Some(i) = self.active() {
            let q = self.queue(i);
            if q.requests.len() > 0 && !q.slice_used(now) {
                return Some(i);
            }
            self.expire(now, false);
        }
        self.choose_line(now);
        let i = self.first(self.serving)?;
        self.edit(i, |q| (q.slice_new, q.slice_end, q.age_checked, q.sent) = (true, 0, false, 0));
        self.active = u16::try_from(i).ok();
        Some(i)
    }

    /// Class and type to be served (§4).
    fn choose_line(&mut self, now: i64) {
        let before = match self.saved {
            Some((line, rest)) => {
                self.serving_end = now.saturating_add(rest);
                line
            }
            None => {
                self.serving_end = now.saturating_sub(1);
                self.serving
            }
        };
        let busy = |rank: &Rank| self.busy_in(*rank) > 0;
        let rank = [Rank::RealTime, Rank::BestEffort].into_iter().find(busy).unwrap_or(Rank::Idle);
        if rank == Rank::Idle {
            self.serving = Line { rank, ..before };
            self.serving_end = now.saturating_add(self.settings.tick);
            return;
        }
        if rank == before.rank && self.count(before) > 0 && now <= self.serving_end {
            self.serving = before;
            return;
        }
        let key = |load: &Load| self.first(Line { rank, load: *load }).map(|i| self.queue(i).key);
        let ready = Load::ALL.into_iter().filter(|load| key(load).is_some());
        let load = ready.min_by_key(key).unwrap_or(Load::NoIdle);
        self.serving = Line { rank, load };
        self.serving_end = now.saturating_add(self.workload());
    }

    /// How long the line that is served now is served.
    pub(super) fn workload(&self) -> i64 {
        let share = |part: u32, of: u32| {
            let part = self.settings.target_latency.saturating_mul(part.into());
            part.checked_div(of.into()).unwrap_or(part)
        };
        let Line { rank, load } = self.serving;
        let busy = self.busy_in(rank);
        let mut time = share(self.count(self.serving), self.average(rank).max(busy));
        if load == Load::Async {
            let asyncs = [Rank::RealTime, Rank::BestEffort].map(|rank| self.count(Line { rank, load }));
            time = time.min(share(asyncs[0].saturating_add(asyncs[1]), self.busy()));
            let [slow, fast] = [self.settings.slice_async, self.settings.slice_sync];
            time = time.saturating_mul(slow).checked_div(fast).unwrap_or(time);
        }
        time.max(self.settings.tick.saturating_mul(2))
    }

    /// Busy queues of a class, averaged.
    fn average(&self, rank: Rank) -> u32 {
        if rank == Rank::RealTime { self.average[0] } else { self.average[1] }
    }

    /// Length of the slice of queue `i` (§5). With `low_latency` the slices of all busy queues fit into the target;
    /// how many are busy is averaged here, as often as it is asked.
    pub(super) fn slice(&mut self, i: usize) -> i64 {
        let q = self.queue(i);
        let full = self.settings.length(q.sync, q.level);
        if !self.settings.low_latency {
            return full;
        }
        let rank = if q.rank == Rank::RealTime { Rank::RealTime } else { Rank::BestEffort };
        let (busy, old) = (self.busy_in(rank), self.average(rank));
        let sum = old.max(busy).saturating_mul(3).saturating_add(old.min(busy)).saturating_add(2);
        let new = sum >> 2;
        match rank {
            Rank::RealTime => self.average[0] = new,
            _ => self.average[1] = new,
        }
        let expected = self.settings.slice_sync.saturating_mul(new.into());
        if expected <= self.settings.target_latency {
            return full;
        }
        full.saturating_mul(self.settings.target_latency).checked_div(expected).unwrap_or(full)
    }

    /// Takes the device from the queue that has it. `keep`: the time it did not use counts for its next place.
    fn expire(&mut self, now: i64, keep: bool) {
        let Some(i) = self.active() else { return };
        if keep {
            let q = self.queue(i);
            let rest = if q.slice_new { self.slice(i) } else { q.slice_end.saturating_sub(now) };
            self.edit(i, |q| q.rest = rest);
        }
        let left = self.serving_end.saturating_sub(now);
        self.saved = (left > 0).then_some((self.serving, left));
        if self.queue(i).requests.len() == 0 {
            self.depart(i);
        } else {
            self.place(i, false, now);
        }
        self.active = None;
    }

    /// Whether another request of the queue that has the device may go (§7 c).
    fn may_send(&self, i: usize, now: i64) -> bool {
        let (q, quantum) = (self.queue(i), self.settings.quantum);
        if !q.sync && self.sync_out > 0 {
            return false;
        }
        let idle = q.rank == Rank::Idle;
        let mut limit = if idle { 1 } else { (quantum >> 1).max(1) };
        if q.out >= limit {
            let alone = self.busy() == 1 || q.sync && self.busy_sync == 1;
            if idle || !alone && (q.slice_new || now > q.slice_end) {
                return false;
            }
            limit = if alone { u32::MAX } else { quantum };
        }
        if !q.sync && self.settings.low_latency {
            // Async requests come back slowly after a sync one had to wait.
            let since = now.saturating_sub(self.delayed_sync).checked_div(self.settings.slice_sync);
            let depth = since.and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX);
            limit = limit.min(if q.out == 0 { depth.max(1) } else { depth });
        }
        q.out < limit
    }

    /// Whether a request that just arrived in queue `n` takes the device from the queue that has it (§11).
    pub(super) fn preempts(&self, n: usize, meta: bool, now: i64) -> bool {
        let Some(a) = self.active().filter(|&a| a != n) else { return false };
        let (n, a) = (self.queue(n), self.queue(a));
        match (n.rank, a.rank) {
            (Rank::Idle, _) => false,
            (_, Rank::Idle) => true,
            (Rank::BestEffort, Rank::RealTime) => false,
            (Rank::RealTime, Rank::BestEffort) => true,
            _ => {
                n.sync && !a.sync
                    || a.slice_used(now)
                    || meta && !a.requests.has_meta()
                    || a.requests.len() == 0
            }
        }
    }

    /// Queue `n` takes the device: it is first in its line when the next request is asked for.
    pub(super) fn preempt(&mut self, n: usize, now: i64) {
        let Some(a) = self.active() else { return };
        let other_type = self.queue(a).load() != self.queue(n).load();
        self.expire(now, true);
        if other_type {
            self.saved = None;
        }
        self.place(n, true, now);
    }

    /// A run of queue `i` ended (§10): the clock of its slice starts, or its slice is over.
    pub(super) fn served(&mut self, i: usize, now: i64) {
        if self.active() != Some(i) {
            return;
        }
        if self.queue(i).slice_new {
            let end = now.saturating_add(self.slice(i));
            self.edit(i, |q| (q.slice_new, q.slice_end) = (false, end));
        }
        if self.queue(i).slice_used(now) || self.queue(i).rank == Rank::Idle {
            self.expire(now, true);
        }
    }
}

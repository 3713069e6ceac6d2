//! The decision of Linux 7.3.

use super::{Dir, Level, MqDeadline};
use crate::policy::Pick;
use crate::pool::Pool;
use mmc_time::{Duration, Instant};

/// Nanoseconds, signed: ages reach back before the start of the clock.
fn ns(t: Instant) -> i64 {
    i64::try_from(t.as_nanos()).unwrap_or(i64::MAX)
}

impl MqDeadline {
    pub(super) fn pick_7_3(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        let in_use = Level::ALL.iter().filter(|&&c| self.class(c).queued != 0).count();
        if in_use >= 2 {
            let aged = ns(now).saturating_sub(self.ageing());
            for level in [Level::BestEffort, Level::Idle] {
                if let Some(slot) = self.pick_class(pool, level, now, aged) {
                    return Pick::Run(slot);
                }
            }
        }
        for level in Level::ALL {
            if let Some(slot) = self.pick_class(pool, level, now, ns(now)) {
                return Pick::Run(slot);
            }
            if self.class(level).queued != 0 {
                break;
            }
        }
        self.wait(pool, now)
    }

    fn ageing(&self) -> i64 {
        i64::try_from(self.tunables.prio_aging_expire.as_nanos()).unwrap_or(i64::MAX)
    }

    /// When a run counts as begun: its deadline less the expire time of *now*.
    fn began(&self, pool: &Pool<'_>, slot: u16) -> i64 {
        let expire = self.tunables.expire(Dir::of(pool.request(slot)));
        ns(pool.deadline(slot)).saturating_sub(i64::try_from(expire.as_nanos()).unwrap_or(i64::MAX))
    }

    fn next_in_sweep(&self, pool: &Pool<'_>, level: Level, d: Dir) -> Option<u16> {
        let c = self.class(level);
        c.sort.get(d).at_or_after(pool, *c.latest.get(d))
    }

    /// The run of this class that goes out, if it began at `latest_start` or before; whatever was decided on the
    /// way stays decided.
    fn pick_class(
        &mut self,
        pool: &mut Pool<'_>,
        level: Level,
        now: Instant,
        latest_start: i64,
    ) -> Option<u16> {
        let slot = match self.next_in_sweep(pool, level, self.last_dir) {
            Some(next) if self.batching < self.tunables.fifo_batch => next,
            _ => {
                let fifo = &self.class(level).fifo;
                let (reads, writes) = (fifo.read.front(), fifo.write.front());
                let (d, oldest) = match (reads, writes) {
                    (None, None) => return None,
                    (_, Some(w)) if self.writes_turn(reads.is_some()) => {
                        self.starved = 0;
                        (Dir::Write, w)
                    }
                    (Some(r), _) => (Dir::Read, r),
                    (None, Some(w)) => (Dir::Write, w),
                };
                let next = self.next_in_sweep(pool, level, d);
                self.last_dir = d;
                self.batching = 0;
                match next {
                    Some(next) if now < pool.deadline(oldest) => next,
                    _ => oldest,
                }
            }
        };
        if self.began(pool, slot) > latest_start {
            return None;
        }
        self.batching = self.batching.wrapping_add(1);
        self.unlink(pool, slot);
        self.start(pool, slot);
        Some(slot)
    }

    /// Nothing may go out now: what ends that. The instants at which one of the runs a decision could fall on
    /// becomes old enough, is due, or is aged; completions when a class waits for its betters at the device. The
    /// original asks again after 3 ms; so does this if nothing else is known.
    fn wait(&mut self, pool: &Pool<'_>, now: Instant) -> Pick {
        let mut waiting = false;
        let mut at: Option<i64> = None;
        let mut consider = |t: i64| {
            if t > ns(now) {
                at = Some(at.map_or(t, |a| a.min(t)));
            }
        };
        for level in Level::ALL {
            for d in Dir::BOTH {
                let Some(oldest) = self.class(level).fifo.get(d).front() else { continue };
                waiting = true;
                consider(ns(pool.deadline(oldest)));
                let next = self.next_in_sweep(pool, level, d).unwrap_or(oldest);
                for slot in [oldest, next] {
                    let began = self.began(pool, slot);
                    consider(began);
                    if level != Level::RealTime {
                        consider(began.saturating_add(self.ageing()));
                    }
                }
            }
        }
        if !waiting {
            return Pick::Empty;
        }
        let at = at.and_then(|t| u64::try_from(t).ok()).map(Instant::from_nanos);
        let completion = self.in_device != 0;
        self.wake = at;
        if at.is_none() && !completion {
            self.wake = Some(now + Duration::from_millis(3));
        }
        Pick::Wait { at: self.wake, completion }
    }
}

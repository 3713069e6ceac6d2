//! The decision of Linux 7.3.

use super::MqDeadline;
use crate::lane::{Dir, Level};
use crate::policy::Pick;
use crate::pool::Pool;
use mmc_time::{Duration, Instant};

/// The original asks again so long after a "none".
const ASK_AGAIN: Duration = Duration::from_millis(3);
/// How many times asking again is tried in advance.
const LOOK_AHEAD: usize = 64;

/// Nanoseconds, signed: ages reach back before the start of the clock.
fn ns(t: Instant) -> i64 {
    i64::try_from(t.as_nanos()).unwrap_or(i64::MAX)
}

impl MqDeadline {
    pub(super) fn pick_7_3(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        let Some((slot, (level, d))) = self.decide(pool, now) else { return self.wait(pool, now) };
        self.batching = self.batching.wrapping_add(1);
        self.lane((level, d)).serve(pool, slot);
        self.start(level);
        Pick::Run(slot)
    }

    /// Which run goes out, and of which lane. Moves the state of the batch only; on a "none", too.
    #[inline(always)]
    fn decide(&mut self, pool: &Pool<'_>, now: Instant) -> Option<(u16, (Level, Dir))> {
        // A class with nothing queued or at the device decides nothing.
        let (served, several) = self.in_use();
        if several {
            if let Some(aged) = self.decide_aged(pool, now) {
                return Some(aged);
            }
        }
        self.decide_in(pool, served?, now, ns(now))
    }

    /// Which aged run of the lower classes goes out.
    #[inline(never)]
    fn decide_aged(&mut self, pool: &Pool<'_>, now: Instant) -> Option<(u16, (Level, Dir))> {
        let aged = ns(now).saturating_sub(self.ageing());
        [Level::BestEffort, Level::Idle].into_iter().find_map(|level| self.decide_in(pool, level, now, aged))
    }

    /// The highest class in use, and whether there are others.
    #[inline]
    fn in_use(&self) -> (Option<Level>, bool) {
        let [rt, be, idle] = Level::ALL.map(|c| self.class(c).queued);
        if rt | idle == 0 {
            return ((be != 0).then_some(Level::BestEffort), false);
        }
        let used = Level::ALL.into_iter().filter(|&c| self.class(c).queued != 0);
        (used.clone().next(), used.count() > 1)
    }

    fn ageing(&self) -> i64 {
        i64::try_from(self.tunables.prio_aging_expire.as_nanos()).unwrap_or(i64::MAX)
    }

    /// When a run counts as begun: its deadline less the expire time of *now*.
    fn began(&self, pool: &Pool<'_>, slot: u16, d: Dir) -> i64 {
        let expire = self.tunables.expire(d);
        ns(pool.deadline(slot)).saturating_sub(i64::try_from(expire.as_nanos()).unwrap_or(i64::MAX))
    }

    fn next_in_sweep(&self, level: Level, d: Dir) -> Option<u16> {
        self.class(level).lanes.get(d).sweep()
    }

    /// The run of this class that goes out, if it began at `latest_start` or before; whatever was decided on the
    /// way stays decided.
    #[inline(always)]
    fn decide_in(
        &mut self,
        pool: &Pool<'_>,
        level: Level,
        now: Instant,
        latest_start: i64,
    ) -> Option<(u16, (Level, Dir))> {
        let (slot, d) = match self.next_in_sweep(level, self.last_dir) {
            Some(next) if self.batching < self.tunables.fifo_batch => (next, self.last_dir),
            _ => {
                let lanes = &self.class(level).lanes;
                let (reads, writes) = (lanes.read.fifo.front(), lanes.write.fifo.front());
                let (d, oldest) = match (reads, writes) {
                    (None, None) => return None,
                    (_, Some(w)) if self.writes_turn(reads.is_some()) => {
                        self.starved = 0;
                        (Dir::Write, w)
                    }
                    (Some(r), _) => (Dir::Read, r),
                    (None, Some(w)) => (Dir::Write, w),
                };
                let next = self.next_in_sweep(level, d);
                self.last_dir = d;
                self.batching = 0;
                match next {
                    Some(next) if now < pool.deadline(oldest) => (next, d),
                    _ => (oldest, d),
                }
            }
        };
        (self.began(pool, slot, d) <= latest_start).then_some((slot, (level, d)))
    }

    /// Nothing goes out now: what ends that. The instants at which one of the runs a decision could fall on becomes
    /// old enough, is due, or is aged; completions when a class waits for its betters at the device.
    ///
    /// A failed decision moves the state, so that asking again can help though nothing else happened. Where it
    /// does, within 64 times, the answer is the original's: ask again after 3 ms.
    fn wait(&mut self, pool: &Pool<'_>, now: Instant) -> Pick {
        let (served, several) = self.in_use();
        let mut waiting = false;
        let mut at = i64::MAX;
        for level in Level::ALL {
            for d in [Dir::Read, Dir::Write] {
                let Some(oldest) = self.class(level).lanes.get(d).fifo.front() else { continue };
                waiting = true;
                let mut consider = |t: i64, counts: bool| {
                    if counts && t > ns(now) {
                        at = at.min(t);
                    }
                };
                consider(ns(pool.deadline(oldest)), true);
                for slot in [oldest, self.next_in_sweep(level, d).unwrap_or(oldest)] {
                    let began = self.began(pool, slot, d);
                    consider(began, served == Some(level));
                    consider(began.saturating_add(self.ageing()), several && level != Level::RealTime);
                }
            }
        }
        if !waiting {
            return Pick::Empty;
        }
        let completion = self.in_device != 0;
        if self.asking_helps(pool, now) || (at == i64::MAX && !completion) {
            at = at.min(ns(now + ASK_AGAIN));
        }
        self.wake = u64::try_from(at).ok().filter(|_| at != i64::MAX).map(Instant::from_nanos);
        Pick::Wait { at: self.wake, completion }
    }

    /// Whether one of the next decisions at this very instant would give a run.
    fn asking_helps(&mut self, pool: &Pool<'_>, now: Instant) -> bool {
        let state = |m: &Self| (m.last_dir, m.batching, m.starved);
        let before = state(self);
        let mut helps = false;
        for _ in 0..LOOK_AHEAD {
            let last = state(self);
            helps = self.decide(pool, now).is_some();
            if helps || state(self) == last {
                break;
            }
        }
        (self.last_dir, self.batching, self.starved) = before;
        helps
    }
}

//! One stream: what it has queued, what it is owed, and how it behaves.

use crate::fifo::Fifo;
use crate::pool::Pool;
use crate::request::{Flags, Op, StreamId};
use crate::tree::Tree;
use mmc_time::{Duration, Instant};

/// A stream's own time, "ns of the device · 1024 / weight". It wraps; only differences mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Virtual(u64);

impl Virtual {
    pub(super) const START: Self = Self(0);
    /// Signed distance; the two are never half the range apart.
    pub(super) const fn since(self, other: Self) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
    pub(super) const fn plus(self, d: i64) -> Self {
        Self(self.0.wrapping_add_signed(d))
    }
    pub(super) fn later(self, other: Self) -> Self {
        if self.since(other) >= 0 { self } else { other }
    }
}

/// `v · by / of`, without room for more than 64 bits (which would take a division that not every target has).
pub(super) fn times(v: i64, by: i64, of: i64) -> i64 {
    let whole = v.checked_div(of).unwrap_or(0).saturating_mul(by);
    let rest = v.checked_rem(of).unwrap_or(0).saturating_mul(by);
    whole.saturating_add(rest.checked_div(of).unwrap_or(0))
}

/// `ns` of the device for a stream of this weight.
pub(super) fn scaled(ns: u64, weight: u32) -> i64 {
    let v = ns.saturating_mul(1024).checked_div(u64::from(weight.max(1))).unwrap_or(0);
    i64::try_from(v).unwrap_or(i64::MAX)
}

/// Sorts apart what the device must not reorder.
pub(super) const FENCE: Flags = Flags::BARRIER.union(Flags::PREFLUSH);

/// A pause longer than this counts as this.
const LONGEST_THINK: Duration = Duration::from_millis(64);
/// How late a request may come after its time and still be waited for.
const JITTER: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) sync: bool,
    pub(super) weight: u32,
    /// Start tag, and all it was charged in ns.
    pub(super) start: Virtual,
    pub(super) charged: i64,
    tree: Tree,
    pub(super) fifo: Fifo,
    /// Queued runs, those among them that are no reads, and those that nothing may pass.
    pub(super) len: u16,
    pub(super) writes: u16,
    pub(super) fences: u16,
    /// Runs that go out before all streams and are charged to this one.
    pub(super) ahead: u16,
    /// Commands at the device.
    pub(super) out: u16,
    /// First sector behind the last command.
    pub(super) position: u64,
    /// The last command was chosen for its age.
    was_overdue: bool,
    /// Serial number of the last command, to break ties: who had its turn longest ago goes first.
    pub(super) turn: u64,
    /// Time of the last completion, and of the last sign of life.
    pub(super) done: Option<Instant>,
    pub(super) seen: Instant,
    /// Pause between a completion and the next request, on average; 0 until one was seen.
    think: u64,
    /// What changing to this stream costs, in ns; and whether the last sample was far above.
    pub(super) switch: u64,
    switch_up: bool,
    /// Requests up to this number are waited for by that stream.
    pub(super) cover: Option<(StreamId, u64)>,
}

impl Stream {
    pub(super) const FREE: Self = Self::new(StreamId(0), false, 100, Virtual::START, Instant::ZERO);

    pub(super) const fn new(id: StreamId, sync: bool, weight: u32, start: Virtual, now: Instant) -> Self {
        Self {
            id,
            sync,
            weight,
            start,
            charged: 0,
            tree: Tree::new(),
            fifo: Fifo::new(),
            len: 0,
            writes: 0,
            fences: 0,
            ahead: 0,
            out: 0,
            position: 0,
            was_overdue: false,
            turn: 0,
            done: None,
            seen: now,
            think: 0,
            switch: 0,
            switch_up: false,
            cover: None,
        }
    }

    pub(super) const fn idle(&self) -> bool {
        self.held() == 0
    }
    /// Queued and at the device: the tags it holds.
    pub(super) const fn held(&self) -> usize {
        self.len.saturating_add(self.ahead).saturating_add(self.out) as usize
    }

    /// Moves the start tag by `ns` of the device, which may be less than nothing.
    pub(super) fn charge(&mut self, ns: i64) {
        let v = scaled(ns.unsigned_abs(), self.weight);
        self.start = self.start.plus(if ns < 0 { v.saturating_neg() } else { v });
        self.charged = self.charged.saturating_add(ns);
    }
    /// What it owes stays the same in ns.
    pub(super) fn set_weight(&mut self, weight: u32, now: Virtual) {
        if weight != self.weight {
            let debt = self.start.since(now);
            self.start = now.plus(times(debt, self.weight.into(), i64::from(weight.max(1))));
            self.weight = weight;
        }
    }

    /// A request comes and nothing is queued; `virtual_now` is the least start tag of those that wait.
    pub(super) fn wakes(&mut self, virtual_now: Virtual, now: Instant) {
        if self.out == 0 {
            if let Some(done) = self.done {
                let pause = now.since(done).min(LONGEST_THINK).as_nanos();
                // The first one counts no more than the others: it may be the pause of one that was away.
                self.think = toward(self.think, pause, 8);
            }
        }
        self.start = self.start.later(virtual_now);
    }
    /// Twice its pause, in ns: a hold is worth it if what it saves is longer.
    pub(super) fn patience(&self) -> u64 {
        self.think.saturating_mul(2)
    }
    /// Until when its next request is expected; never before one is done. Of one whose pause was not seen yet that is
    /// the time by which anybody may be late.
    pub(super) fn window(&self) -> Instant {
        self.done.map_or(Instant::ZERO, |done| done + Duration::from_nanos(self.patience()) + JITTER)
    }
    /// A first command took so much more than expected. It must be so twice in a row before the cost grows: a
    /// stall, or a unit that is opened, happens to a stream that does not change place, too.
    pub(super) fn learn_switch(&mut self, extra: u64, est: u64) {
        let up = extra > self.switch.saturating_add(est / 4);
        if !up {
            self.switch = toward(self.switch, extra, 4);
        } else if self.switch_up {
            self.switch = toward(self.switch, extra, 2);
        }
        self.switch_up = up;
    }

    /// Queues a run. Its `deadline` in the pool is when its oldest member arrived.
    pub(super) fn add(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let (lba, arrival) = (pool.lba(slot), pool.arrival(slot));
        pool.set_deadline(slot, arrival);
        self.tree.insert(pool, slot, lba);
        self.fifo.push_back(pool, slot);
        self.len = self.len.saturating_add(1);
        self.writes = self.writes.saturating_add(u16::from(!pool.request(slot).op.is_read()));
        self.fences = self.fences.saturating_add(u16::from(pool.flags(slot).intersects(FENCE)));
    }
    pub(super) fn take(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.tree.remove(pool, slot);
        self.fifo.remove(pool, slot);
        self.len = self.len.saturating_sub(1);
        self.writes = self.writes.saturating_sub(u16::from(!pool.request(slot).op.is_read()));
        self.fences = self.fences.saturating_sub(u16::from(pool.flags(slot).intersects(FENCE)));
    }
    /// The run begins elsewhere now.
    pub(super) fn moved(&mut self, pool: &mut Pool<'_>, slot: u16, lba: u64) {
        self.tree.remove(pool, slot);
        self.tree.insert(pool, slot, lba);
    }
    /// `from` becomes part of `into`; the earlier age counts.
    pub(super) fn absorb(&mut self, pool: &mut Pool<'_>, into: u16, from: u16) {
        let age = pool.deadline(from);
        if age < pool.deadline(into) {
            pool.set_deadline(into, age);
            self.fifo.remove(pool, into);
            self.fifo.insert_before(pool, from, into);
        }
        self.take(pool, from);
    }
    /// The run that begins at `lba`.
    pub(super) fn at(&self, pool: &Pool<'_>, lba: u64) -> Option<u16> {
        self.tree.at_or_after(pool, lba).filter(|&s| pool.lba(s) == lba)
    }
    /// The run that holds `lba`.
    pub(super) fn around(&self, pool: &Pool<'_>, lba: u64) -> Option<u16> {
        self.tree.before(pool, lba.saturating_add(1)).filter(|&s| pool.end(s) > lba)
    }

    /// Which run goes next, and whether for its age: the next in sector order from where the last ended, or the
    /// oldest, if it waits longer than `expire`, but not twice in a row (`again`: nobody else went in between).
    pub(super) fn next(
        &self,
        pool: &Pool<'_>,
        expire: Duration,
        again: bool,
        now: Instant,
    ) -> Option<(u16, bool)> {
        let oldest = self.fifo.front()?;
        if !(again && self.was_overdue) && now >= pool.deadline(oldest) + expire {
            return Some((oldest, true));
        }
        let ahead = self.tree.at_or_after(pool, self.position).or_else(|| self.tree.first(pool));
        Some((ahead.unwrap_or(oldest), false))
    }
    /// A command for it goes out.
    pub(super) fn sent(&mut self, overdue: bool, end: u64, serial: u64) {
        (self.was_overdue, self.turn) = (overdue, serial);
        self.position = end;
        self.out = self.out.saturating_add(1);
    }

    /// Whether something queued is still waited for by the coverer.
    pub(super) fn covered_by(&self, pool: &Pool<'_>) -> Option<StreamId> {
        let (by, up_to) = self.cover?;
        self.fifo.front().filter(|&s| pool.at(s).seq <= up_to).map(|_| by)
    }
}

/// `old` moved by 1/`gain` of its distance to `new`.
fn toward(old: u64, new: u64, gain: u64) -> u64 {
    if new >= old {
        old.saturating_add(new.saturating_sub(old).checked_div(gain).unwrap_or(0))
    } else {
        old.saturating_sub(old.saturating_sub(new).checked_div(gain).unwrap_or(0))
    }
}

/// Ops whose time is known beforehand.
pub(super) fn predictable(op: Op, flags: Flags) -> bool {
    matches!(op, Op::Read | Op::Write) && !flags.contains(Flags::PREFLUSH)
}

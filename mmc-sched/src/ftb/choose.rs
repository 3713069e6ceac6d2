//! The choice: who is next, and the five rules that make it wait.

use super::stream::scaled;
use super::{AHEAD, Command, FENCE, Ftb, predictable, signed, stream_in, tag_of};
use crate::policy::Pick;
use crate::pool::Pool;
use crate::request::{Flags, Op, StreamId};
use mmc_time::{Duration, Instant};

/// The device is kept free for a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// For the one that has the write slot.
    slot: bool,
    stream: usize,
    since: Instant,
    /// How long it lasted before that; not counted here if it is for the slot.
    before: Duration,
}

/// What would go out.
#[derive(Clone, Copy, Debug)]
struct Next {
    stream: usize,
    slot: u16,
    overdue: bool,
    op: Op,
    flags: Flags,
}

const WAIT: Pick = Pick::Wait { at: None, completion: true };
/// Start tags of idle streams may fall so far behind.
const LIFT: i64 = 1 << 40;

impl<const N: usize, const D: usize> Ftb<N, D> {
    /// Counts what may be spent on idling up to now, and what the hold cost, if there was one. What is kept for the
    /// one that has the write slot costs nothing if it writes next, as that saves a change; reads may come between.
    pub(super) fn settle(&mut self, now: Instant) -> Option<Hold> {
        let share = i64::from(self.settings.idle_share);
        let cap = signed(self.settings.idle_cap.as_nanos()).saturating_mul(share);
        let passed = signed((now - self.banked).as_nanos());
        self.banked = now;
        self.bank = self.bank.saturating_add(passed).min(cap);
        let mut hold = self.hold.take();
        let length = hold.map_or(Duration::ZERO, |h| now - h.since);
        if hold.is_some_and(|h| h.slot) {
            self.kept += length;
        }
        if self.writer.is_some_and(|w| self.stream(w).len > 0) {
            self.kept = Duration::ZERO;
        }
        hold = hold.filter(|h| !h.slot);
        if let Some(h) = &mut hold {
            h.before += length;
            let all = h.before;
            self.pay(length, all);
        }
        hold
    }
    /// Idling that is not free, and how long all of that hold was.
    fn pay(&mut self, length: Duration, all: Duration) {
        self.stats.idle += length;
        self.stats.longest_hold = self.stats.longest_hold.max(all);
        let cost = signed(length.as_nanos()).saturating_mul(self.settings.idle_share.into());
        self.bank = self.bank.saturating_sub(cost);
    }
    /// A hold that goes on is one hold.
    pub(super) fn carry(&mut self, held: Option<Hold>) {
        if let (Some(old), Some(new)) = (held, &mut self.hold) {
            if (old.slot, old.stream) == (new.slot, new.stream) {
                new.before = old.before;
            }
        }
    }
    fn hold(&mut self, slot: bool, stream: usize, until: Instant, now: Instant) -> Pick {
        self.hold = Some(Hold { slot, stream, since: now, before: Duration::ZERO });
        Pick::Wait { at: Some(until), completion: self.out > 0 }
    }
    /// When the oldest of stream `i` comes of age, after which the stream would send another one.
    fn of_age(&self, pool: &Pool<'_>, i: usize, now: Instant) -> Instant {
        let s = self.stream(i);
        let expire = if s.sync { self.settings.expire_sync } else { self.settings.expire_async };
        let age = s.fifo.front().map(|f| pool.deadline(f) + expire);
        age.filter(|&t| t > now).unwrap_or(Instant::NEVER)
    }

    fn deep(&self) -> bool {
        self.settings.device_slots > 2
    }

    /// A size that is never divided.
    pub(super) fn small(&self, blocks: u32) -> bool {
        super::model::part(blocks, self.chunk()) == blocks
    }

    /// Something of this id is queued that nothing may pass.
    pub(super) fn fenced(&self, id: StreamId) -> bool {
        self.fences > 0
            && [true, false].into_iter().filter_map(|k| self.find(id, k)).any(|i| self.stream(i).fences > 0)
    }

    /// What stream `i` would send. While a barrier or flush is queued for its id, that is the oldest of it.
    fn next_of(&self, pool: &Pool<'_>, i: usize, now: Instant) -> Option<Next> {
        let s = self.stream(i);
        let expire = if s.sync { self.settings.expire_sync } else { self.settings.expire_async };
        let in_order = self.fenced(s.id) || s.covered_by(pool).is_some();
        let again = self.served_last == Some(i);
        let (slot, overdue) =
            if in_order { (s.fifo.front()?, false) } else { s.next(pool, expire, again, now)? };
        let (op, flags) = (pool.request(slot).op, pool.flags(slot));
        Some(Next { stream: i, slot, overdue, op, flags })
    }

    /// Nothing that must be done before keeps stream `i` from sending.
    fn ready(&self, pool: &Pool<'_>, i: usize) -> bool {
        if self.fences == 0 && self.barriers_out == 0 {
            return true;
        }
        let s = self.stream(i);
        let Some(front) = s.fifo.front() else { return false };
        if self.barriers_out > 0 && self.live().any(|(_, c)| c.barrier && self.stream(c.stream).id == s.id) {
            return false;
        }
        if !self.fenced(s.id) {
            return true;
        }
        let seq = pool.at(front).seq;
        let other = self.find(s.id, !s.sync);
        let older = other.and_then(|o| self.stream(o).fifo.front()).is_some_and(|o| pool.at(o).seq < seq);
        let flags = pool.flags(front);
        let fence = flags.intersects(FENCE);
        let busy = s.out > 0 || other.is_some_and(|o| self.stream(o).out > 0);
        let covered = flags.contains(Flags::PREFLUSH) && self.covers > 0 && self.waits_for_cover(pool, s.id);
        !(older || covered || fence && busy)
    }
    fn waits_for_cover(&self, pool: &Pool<'_>, id: StreamId) -> bool {
        self.all().any(|(i, c)| {
            let up_to = c.cover.filter(|(by, _)| *by == id).map(|(_, up_to)| up_to);
            up_to.is_some_and(|n| self.covered_left(pool, i, n))
        })
    }
    /// Something of stream `i` up to this number is not done.
    fn covered_left(&self, pool: &Pool<'_>, i: usize, up_to: u64) -> bool {
        self.stream(i).fifo.front().is_some_and(|f| pool.at(f).seq <= up_to)
            || self.live().any(|(_, c)| c.stream == i && c.seq <= up_to)
    }
    fn end_covers(&mut self, pool: &Pool<'_>) {
        if self.covers == 0 {
            return;
        }
        for i in 0..N {
            let over = self.stream(i).cover.is_some_and(|(_, n)| !self.covered_left(pool, i, n));
            if over {
                self.edit(i, |s| s.cover = None);
                self.covers = self.covers.saturating_sub(1);
            }
        }
    }

    /// How far stream `i` is ahead of virtual time; the least goes first. What somebody waits for has a head start
    /// of one command nobody waits for (`quantum`, 0 until it is known), which it could not have got in its way anyhow.
    fn key(&self, pool: &Pool<'_>, i: usize, quantum: u64) -> i64 {
        let s = self.stream(i);
        let head = if s.sync { scaled(quantum, s.weight) } else { 0 };
        let own = s.start.later(self.virtual_now).since(self.virtual_now).saturating_sub(head);
        let Some(by) = s.covered_by(pool) else { return own };
        let waits = self.find(by, true).map_or(scaled(quantum, 100).saturating_neg(), |by| {
            let b = self.stream(by);
            let start = b.start.later(self.virtual_now).since(self.virtual_now);
            start.saturating_sub(scaled(quantum, b.weight))
        });
        own.min(waits)
    }

    pub(super) fn choose(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        if self.queued == 0 {
            return Pick::Empty;
        }
        let slots = self.settings.device_slots.min(u32::try_from(D).unwrap_or(u32::MAX));
        if self.out >= slots {
            return WAIT;
        }
        if let Some(slot) = self.ahead.front() {
            let (op, flags) = (pool.request(slot).op, pool.flags(slot));
            let next = Next { stream: stream_in(pool.tag(slot)), slot, overdue: false, op, flags };
            return self.send(pool, next, pool.blocks(slot), now);
        }
        self.end_covers(pool);
        self.pass_time();
        let flushing = self.all().any(|(_, s)| !s.sync && (s.writes > 0 || s.out > 0));
        let head_start = flushing && self.model.wrote();
        let quantum = if head_start { self.model.est(Op::Write, self.chunk()) } else { 0 };
        let waiting = self.all().filter(|(i, s)| s.len > 0 && self.ready(pool, *i));
        let least = waiting.map(|(i, s)| (self.key(pool, i, quantum), !s.sync, s.turn, i)).min();
        let Some((key, _, _, i)) = least else {
            if self.out > 0 {
                return WAIT;
            }
            // Covers and barriers in a circle: arrival decides.
            let oldest = self.all().filter_map(|(_, s)| s.fifo.front()).min_by_key(|&f| pool.at(f).seq);
            let Some(slot) = oldest else { return Pick::Empty };
            let (op, flags) = (pool.request(slot).op, pool.flags(slot));
            let next = Next { stream: stream_in(pool.tag(slot)), slot, overdue: false, op, flags };
            return self.send(pool, next, pool.blocks(slot), now);
        };
        let Some(mut next) = self.next_of(pool, i, now) else { return WAIT };
        let mut key = key;
        if let Some(w) = self.writer.filter(|&w| w != i && !self.deep() && !next.op.is_read()) {
            match self.write_slot(pool, w, self.of_age(pool, i, now), now) {
                Slot::Over => {}
                Slot::Goes => {
                    if let Some(n) = self.next_of(pool, w, now) {
                        (next, key) = (n, self.key(pool, w, quantum));
                    }
                }
                Slot::Waits(pick) => return pick,
            }
        }
        self.rules(pool, next, key, quantum, now)
    }

    /// Virtual time is the least start tag of those that wait; idle streams are taken along now and then, so that
    /// the numbers may wrap.
    pub(super) fn pass_time(&mut self) {
        let waiting = self.all().filter(|(_, s)| s.len > 0);
        let least = waiting.map(|(_, s)| s.start.since(self.virtual_now)).min();
        self.virtual_now = self.virtual_now.plus(least.unwrap_or(0).max(0));
        if self.virtual_now.since(self.lifted) > LIFT {
            let now = self.virtual_now;
            self.lifted = now;
            for s in &mut self.streams {
                if s.len == 0 {
                    s.start = s.start.later(now);
                }
            }
        }
    }

    /// Rule 1: stream `w` wrote last; another one would write now, or something else from `other` on. Changing costs
    /// `w.switch`.
    fn write_slot(&mut self, pool: &Pool<'_>, w: usize, other: Instant, now: Instant) -> Slot {
        let s = self.stream(w);
        let pressed = s.sync || self.all().any(|(i, o)| i != w && o.sync && o.writes > 0);
        let (factor, cap) = if pressed {
            (self.settings.slot_factor, self.settings.slot_cap)
        } else {
            (self.settings.overhead_share.saturating_sub(1), self.settings.slot_cap_async)
        };
        let limit = s.switch.saturating_mul(factor.into()).min(cap.as_nanos());
        // To learn what a write costs it takes two in a row.
        let probe = self.model.blind() && self.count < 2;
        if self.used >= signed(limit) && !probe {
            return Slot::Over;
        }
        if s.len > 0 {
            return if self.ready(pool, w) { Slot::Goes } else { Slot::Over };
        }
        if s.sync && s.patience() <= s.switch && self.bank >= 0 {
            if s.out > 0 {
                return Slot::Waits(WAIT);
            }
            let until = s.window();
            if now < until {
                return Slot::Waits(self.hold(true, w, until.min(other), now));
            }
        }
        Slot::Over
    }

    /// Rules 2, 3, 5 and the division into parts, for what would go out.
    fn rules(&mut self, pool: &mut Pool<'_>, next: Next, key: i64, quantum: u64, now: Instant) -> Pick {
        let Next { stream: i, slot, op, flags, .. } = next;
        let rest = pool.blocks(slot);
        let mut blocks = rest;
        let sync = self.stream(i).sync;
        if !sync {
            let busy = self.all().any(|(_, s)| s.sync && !s.idle());
            let whole = Duration::from_nanos(self.model.est(op, rest.saturating_add(pool.at(slot).sent)));
            let slots = u64::from(self.settings.device_slots);
            let span = whole.saturating_mul(u64::from(self.settings.overhead_share)).saturating_mul(slots);
            let calm = self.last_sync.map(|t| t + span).filter(|&t| busy || now < t);
            let contended = calm.is_some();
            if contended && op == Op::Write && pool.members(slot) == 1 && !flags.contains(Flags::PREFLUSH) {
                blocks = super::model::part(rest, self.chunk());
            }
            // Rule 2: a reader will be back sooner than this is done.
            let est = self.model.est(op, blocks);
            if self.out == 0 && self.bank > 0 {
                let soon = self.all().filter(|(h, s)| {
                    s.sync
                        && s.idle()
                        && s.patience() <= est
                        && now < s.window()
                        && self.key(pool, *h, quantum) <= key
                });
                if let Some((h, until)) = soon.map(|(h, s)| (h, s.window())).min_by_key(|(_, t)| *t) {
                    let bank = self.bank.checked_div(self.settings.idle_share.into()).unwrap_or(0);
                    let bank = Duration::from_nanos(bank.unsigned_abs().max(1));
                    let until = until.min(now + bank).min(self.of_age(pool, i, now));
                    return self.hold(false, h, until, now);
                }
            }
            // Rule 3: it goes into a device that has nothing in front of it.
            let full = if self.deep() {
                self.live().any(|(_, c)| !self.stream(c.stream).sync)
            } else {
                self.out > 0
            };
            if contended && full {
                let at = calm.filter(|_| !busy).map(|t| t.min(self.of_age(pool, i, now)));
                return Pick::Wait { at, completion: true };
            }
        }
        if flags.contains(Flags::PREFLUSH) && self.out > 0 {
            return WAIT;
        }
        // Rule 5.
        if self.deep() && self.out >= 2 {
            let est = self.model.est(op, blocks);
            let sum = self.live().fold(est, |sum, (_, c)| sum.saturating_add(c.est));
            let heads = self.all().filter(|(_, s)| s.sync).filter_map(|(_, s)| s.fifo.front());
            let heads = heads.map(|f| self.model.est(pool.request(f).op, pool.blocks(f)));
            let largest = heads.fold(est, u64::max);
            if sum > largest.saturating_mul(2).max(self.settings.window.as_nanos()) {
                return WAIT;
            }
        }
        self.send(pool, next, blocks, now)
    }

    /// Out it goes, `blocks` sectors of it.
    fn send(&mut self, pool: &mut Pool<'_>, next: Next, blocks: u32, now: Instant) -> Pick {
        let Next { stream: i, slot, overdue, op, flags } = next;
        let (lba, part) = (pool.lba(slot), blocks < pool.blocks(slot));
        let known = predictable(op, flags);
        let s = self.stream(i);
        let elsewhere = if op.is_read() { self.served_last } else { self.wrote_last } != Some(i);
        let first = elsewhere || s.position != lba;
        let est = self.model.est(op, blocks);
        let extra = if first && known { s.switch } else { 0 };
        if !op.is_read() {
            self.wrote_last = Some(i);
            if self.writer != Some(i) {
                // What was kept free for the last one was in vain.
                let kept = core::mem::take(&mut self.kept);
                self.pay(kept, kept);
                (self.writer, self.used, self.count) = (Some(i), 0, 0);
                self.stats.slots = self.stats.slots.saturating_add(1);
            }
        }
        self.served_last = Some(i);
        if self.writer == Some(i) {
            self.count = self.count.saturating_add(1);
        }
        self.charge(i, signed(est.saturating_add(extra)));
        let end = lba.saturating_add(u64::from(blocks));
        let serial = self.serial;
        self.edit(i, |s| s.sent(overdue, end, serial));
        let at = &pool.at(slot);
        let ahead = pool.tag(slot) & AHEAD != 0;
        let command = Command {
            at: now,
            est,
            extra,
            stream: i,
            slot,
            op,
            known,
            first,
            barrier: flags.contains(Flags::BARRIER),
            part,
            blocks,
            sent: at.sent.saturating_add(blocks),
            seq: if ahead { 0 } else { at.seq },
            serial,
        };
        self.serial = serial.wrapping_add(1);
        self.out = self.out.saturating_add(1);
        self.barriers_out = self.barriers_out.saturating_add(u32::from(command.barrier));
        let place = self.commands.iter().position(Option::is_none);
        if let Some(free) = place.and_then(|c| self.commands.get_mut(c)) {
            *free = Some(command);
        }
        if part {
            self.stats.parts = self.stats.parts.saturating_add(1);
            self.edit(i, |s| s.moved(pool, slot, end));
            return Pick::Part { slot, blocks };
        }
        self.unlink(pool, slot);
        pool.set_tag(slot, tag_of(i, place));
        Pick::Run(slot)
    }

    /// Takes a queued run out of wherever it is.
    pub(super) fn unlink(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let tag = pool.tag(slot);
        self.queued = self.queued.saturating_sub(1);
        if tag & AHEAD != 0 {
            self.ahead.remove(pool, slot);
            self.edit(stream_in(tag), |s| s.ahead = s.ahead.saturating_sub(1));
            return;
        }
        let fence = pool.flags(slot).intersects(FENCE);
        self.fences = self.fences.saturating_sub(u32::from(fence));
        self.edit(stream_in(tag), |s| s.take(pool, slot));
    }

    /// A command is over: the stream pays what it took instead of what was expected, unless the card stood still,
    /// which tells nothing of commands either. The first write of all says nothing of changes: what it took longer than
    /// a guess is the guess's fault.
    pub(super) fn ended(&mut self, c: &Command, failed: bool, now: Instant) {
        let took = (now - c.at.max(self.last_done)).as_nanos();
        self.last_done = now;
        let expected = c.est.saturating_add(c.extra);
        let stall = c.known && took.saturating_sub(expected) > self.model.stall(c.blocks, c.est);
        if stall {
            self.stats.stalls = self.stats.stalls.saturating_add(1);
        } else {
            self.charge(c.stream, signed(took).saturating_sub(signed(expected)));
        }
        let known = c.known && !failed;
        let guessed = c.op == Op::Write && !self.model.tried();
        self.edit(c.stream, |s| {
            (s.done, s.seen) = (Some(now), now);
            if known && c.first && !stall && !guessed {
                s.learn_switch(took.saturating_sub(c.est), c.est);
            }
        });
        if known {
            self.model.learn(c.op, c.blocks, took, c.est, c.first, stall);
        }
    }
}

/// What rule 1 says.
enum Slot {
    /// The slot is over.
    Over,
    /// Its owner goes on.
    Goes,
    /// Nothing goes.
    Waits(Pick),
}

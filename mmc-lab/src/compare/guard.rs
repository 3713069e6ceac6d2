//! Looks over the shoulder of `ftb` in every run: are its promises (`docs/ftb.md`, F1 to F7 and F10) kept?
//!
//! It is not the test of the policy: that sits beside the policy and sees its tags. Here is only what shows from
//! outside, with the debt a stream may have (which F3 and F4 add) replaced by the most it can be: one write slot and the
//! commands behind it. Service is counted as the policy counts it: from a command's dispatch, or the completion before, to
//! its end, without stalls long enough to be told from service.

use super::load::Wanted;
use mmc_mock::scenario::Card;
use std::collections::{BTreeMap, VecDeque};

/// Streams of default weight.
const WEIGHT: u64 = 100;
const MS: u64 = 1_000_000;
/// A stream seen so recently counts for F7.
const RECENT: u64 = 10_000 * MS;

/// One promise: how often it was looked at, how often it was broken, and how close it came (largest measured/bound).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Claim {
    /// Times it was looked at.
    pub checks: u64,
    /// Times it was not kept.
    pub broken: u64,
    /// Largest measured value over its bound.
    pub worst: f64,
}

impl Claim {
    fn check(&mut self, measured: u64, bound: u64) {
        self.checks += 1;
        self.broken += u64::from(measured > bound);
        self.worst = self.worst.max(measured as f64 / bound.max(1) as f64);
    }
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            checks: self.checks + other.checks,
            broken: self.broken + other.broken,
            worst: self.worst.max(other.worst),
        }
    }
}

/// The promises that are looked at, in the order of [`Guard::claims`].
pub const NAMES: [&str; 8] = ["F1", "F2", "F3", "F4", "F5", "F6", "F7", "F10"];

#[derive(Clone, Debug)]
struct Stream {
    sync: bool,
    weight: u64,
    least_weight: u64,
    /// Requests in the scheduler that wait, and all it has a tag for.
    queued: u64,
    held: u64,
    seen: u64,
    /// Since when it holds no tag, while it holds none.
    empty: u64,
    /// Service so far, and its longest command.
    service: u64,
    longest: u64,
    /// Service per 1/1024 weight, while the weight stays.
    scaled: i64,
}

/// Two streams that are both backlogged: range of the difference of their scaled service.
#[derive(Clone, Copy, Debug)]
struct Pair {
    from: i64,
    to: i64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    pid: u32,
    sync: bool,
    at: u64,
    /// Service of all when it came.
    service: u64,
    /// Commands of its stream before it, itself included.
    ahead: u64,
}

/// An async stream that is backlogged: service of all and of it when it became so.
#[derive(Clone, Copy, Debug)]
struct Floor {
    all: u64,
    own: u64,
}

/// The observer. For other policies it does nothing.
#[derive(Clone, Debug)]
pub struct Guard {
    on: bool,
    slots: u64,
    /// Stalls longer than this are not charged.
    stall: u64,
    claims: [Claim; 8],
    streams: BTreeMap<u32, Stream>,
    pairs: BTreeMap<(u32, u32), Pair>,
    /// F10: by a backlogged stream and any other, the least the other's scaled service was ahead since.
    behind: BTreeMap<(u32, u32), i64>,
    floors: BTreeMap<u32, Floor>,
    open: Vec<Option<Open>>,
    sync_open: u64,
    /// Commands at the host or the card: all, async.
    out: (u64, u64),
    /// When they went out, oldest first, and when the last one ended.
    sent: VecDeque<u64>,
    ended: u64,
    service: u64,
    longest: u64,
    idle: u64,
    longest_hold: u64,
    hold: u64,
    /// Idling that may have been for the owner of the write slot.
    kept: u64,
    last_write: Option<u32>,
}

impl Guard {
    /// An observer of a run with this policy on this card.
    #[must_use]
    pub fn new(policy: &str, card: &Card, tags: usize) -> Self {
        Self {
            on: policy == "ftb",
            slots: card.slots as u64,
            stall: (64 * card.write_setup).clamp(4 * MS, 128 * MS),
            claims: [Claim::default(); 8],
            streams: BTreeMap::new(),
            pairs: BTreeMap::new(),
            behind: BTreeMap::new(),
            floors: BTreeMap::new(),
            open: vec![None; tags],
            sync_open: 0,
            out: (0, 0),
            sent: VecDeque::new(),
            ended: 0,
            service: 0,
            longest: 0,
            idle: 0,
            longest_hold: 0,
            hold: 0,
            kept: 0,
            last_write: None,
        }
    }

    /// What it saw, by [`NAMES`].
    #[must_use]
    pub fn claims(&self) -> [Claim; 8] {
        self.claims
    }

    /// The longest write slot that can be in force.
    fn slot(&self, only_async: bool) -> u64 {
        match (self.slots > 2, only_async) {
            (true, _) => 0,
            (false, true) => 1000 * MS,
            (false, false) => 400 * MS,
        }
    }

    /// The device is idle for so long although something is queued.
    pub fn idled(&mut self, ns: u64) {
        if self.on {
            self.hold += ns;
        }
    }

    /// A stream's weight changed: shares are counted afresh.
    pub fn weight(&mut self, pid: u32, weight: u32) {
        self.pairs.retain(|&(a, b), _| a != pid && b != pid);
        self.behind.retain(|&(a, b), _| a != pid && b != pid);
        self.floors.clear();
        if let Some(s) = self.streams.get_mut(&pid) {
            s.weight = u64::from(weight);
            s.least_weight = s.least_weight.min(s.weight);
            s.scaled = 0;
        }
    }

    /// A request got a tag after so long a wait, and is queued.
    pub fn admitted(&mut self, slot: usize, w: &Wanted, waited: u64, now: u64) {
        if !self.on {
            return;
        }
        let resting = self.streams.values().filter(|s| s.held == 0 && now - s.seen < RECENT).count();
        let s = self.streams.entry(w.pid).or_insert_with(|| Stream {
            sync: w.sync,
            weight: WEIGHT,
            least_weight: WEIGHT,
            queued: 0,
            held: 0,
            seen: now,
            empty: 0,
            service: 0,
            longest: 0,
            scaled: 0,
        });
        // F7: who holds no tag does not wait for one.
        if s.held == 0 && resting <= 16 {
            self.claims[6].check(waited.min(now - s.empty), 0);
        }
        s.held += 1;
        s.queued += 1;
        s.seen = now;
        self.open[slot] =
            Some(Open { pid: w.pid, sync: w.sync, at: now, service: self.service, ahead: s.held });
        self.sync_open += u64::from(w.sync);
        if s.queued == 1 {
            if !w.sync {
                self.floors.insert(w.pid, Floor { all: self.service, own: s.service });
            }
            self.backlogged(w.pid);
        }
    }

    /// The stream has work queued from now on: compare it with all others that have.
    fn backlogged(&mut self, pid: u32) {
        let Some(own) = self.streams.get(&pid).map(|s| s.scaled) else { return };
        for (&other, s) in &self.streams {
            if other != pid && s.queued > 0 {
                let (key, d) = ordered(pid, own, other, s.scaled);
                self.pairs.insert(key, Pair { from: d, to: d });
            }
        }
    }

    /// A command went out; `last`: with it, all of its request; `expected`: what it is charged until it ends, as far
    /// as that is known.
    pub fn dispatched(&mut self, slot: usize, last: bool, read: bool, expected: u64, now: u64) {
        let Some(open) = self.open.get(slot).copied().flatten().filter(|_| self.on) else { return };
        // F1: idling for the owner of a write slot saved a switch and is free if the next write is its own; reads may
        // come between.
        let owner = self.last_write.filter(|pid| self.streams.get(pid).is_some_and(|s| s.sync));
        let kept = self.kept + std::mem::take(&mut self.hold);
        if read && owner.is_some() {
            self.kept = kept;
        } else {
            self.kept = 0;
            if owner != Some(open.pid) {
                self.idle += kept;
                self.longest_hold = self.longest_hold.max(kept);
            }
        }
        if !read {
            self.last_write = Some(open.pid);
        }
        // F6: beside sync requests an async command goes into an empty device (a deep one: one without async commands).
        if !open.sync && self.sync_open > 0 {
            self.claims[5].check(if self.slots <= 2 { self.out.0 } else { self.out.1 }, 0);
        }
        self.sent.push_back(now);
        self.longest = self.longest.max(expected);
        self.out.0 += 1;
        self.out.1 += u64::from(!open.sync);
        if last {
            // F3: service of all others and its own between arrival and now.
            let bound = self.delay(&open);
            self.claims[2].check(self.service - open.service, bound);
            if let Some(s) = self.streams.get_mut(&open.pid) {
                s.queued -= 1;
                if s.queued == 0 {
                    self.pairs.retain(|&(a, b), _| a != open.pid && b != open.pid);
                    self.behind.retain(|&(steady, _), _| steady != open.pid);
                    self.floors.remove(&open.pid);
                }
            }
        }
    }

    /// F3's bound, the most a stream may owe included.
    fn delay(&self, open: &Open) -> u64 {
        let Some(s) = self.streams.get(&open.pid) else { return u64::MAX };
        let all: u64 = self.streams.values().map(|s| s.weight).sum();
        let c = self.longest;
        let slot = self.slot(false);
        let share = |ns: u64| ns * all / s.least_weight;
        let n = self.streams.len() as u64;
        share(open.ahead * s.longest.max(c))
            + share(slot + (self.slots + 1) * c)
            + n * (3 * c + slot)
            + (self.slots + 2) * c
    }

    /// The oldest command ended; the card stalled for so long of it.
    pub fn completed(&mut self, slot: usize, stall: u64, now: u64) {
        let Some(open) = self.open.get(slot).copied().flatten().filter(|_| self.on) else { return };
        self.out.0 -= 1;
        self.out.1 -= u64::from(!open.sync);
        let began = self.sent.pop_front().unwrap_or(now).max(self.ended);
        self.ended = now;
        let charge = now - began - if stall > self.stall { stall.min(now - began) } else { 0 };
        self.service += charge;
        self.longest = self.longest.max(charge);
        self.claims[0].check(self.idle, now / 64 + 8 * MS + self.longest_hold);
        let Some(s) = self.streams.get_mut(&open.pid) else { return };
        s.service += charge;
        s.longest = s.longest.max(charge);
        s.scaled += i64::try_from(charge * 1024 / s.weight).unwrap_or(i64::MAX);
        s.seen = now;
        let own = s.scaled;
        self.shares(open.pid, own);
        self.pauses(open.pid, own);
        self.floor();
    }

    /// F2: the scaled service of two backlogged streams stays together.
    fn shares(&mut self, pid: u32, own: i64) {
        let only_async = self.sync_open == 0;
        let (slot, c) = (self.slot(only_async), self.longest);
        let pairs: Vec<_> = self.pairs.keys().filter(|&&(a, b)| a == pid || b == pid).copied().collect();
        for key in pairs {
            let other = if key.0 == pid { key.1 } else { key.0 };
            let (Some(s), Some(o)) = (self.streams.get(&pid), self.streams.get(&other)) else { continue };
            let (_, d) = ordered(pid, own, other, o.scaled);
            let Some(p) = self.pairs.get_mut(&key) else { continue };
            (p.from, p.to) = (p.from.min(d), p.to.max(d));
            self.claims[1].check(p.to.abs_diff(p.from), apart(slot, c, s.weight, o.weight));
        }
    }

    /// F10: whoever pauses falls behind one that always has work, and does not catch up when it returns: from the
    /// furthest it was behind on, its scaled service leads by no more than that of one that never pauses may.
    fn pauses(&mut self, pid: u32, own: i64) {
        let (slot, c) = (self.slot(self.sync_open == 0), self.longest);
        let Some((weight, steady)) = self.streams.get(&pid).map(|s| (s.weight, s.queued > 0)) else { return };
        for (&other, o) in self.streams.iter().filter(|(other, _)| **other != pid) {
            if steady {
                let d = o.scaled - own;
                self.behind.entry((pid, other)).and_modify(|low| *low = d.min(*low)).or_insert(d);
            }
            if o.queued > 0 {
                let d = own - o.scaled;
                let low = self.behind.entry((other, pid)).or_insert(d);
                *low = d.min(*low);
                self.claims[7].check(d.abs_diff(*low), apart(slot, c, weight, o.weight));
            }
        }
    }

    /// F5: backlogged async streams get their share, less a constant.
    fn floor(&mut self) {
        let all: u64 = self.streams.values().map(|s| s.weight).sum();
        let n = self.streams.values().filter(|s| s.sync).count() as u64;
        let lag = (n + 1) * (4 * self.longest + 2 * self.slot(n == 0));
        for (pid, f) in &self.floors {
            let Some(s) = self.streams.get(pid) else { continue };
            let due = (self.service - f.all) * s.weight / all;
            self.claims[4].check(due, s.service - f.own + lag);
        }
    }

    /// A request is done, so long after it was queued, the card's stalls taken off.
    pub fn done(&mut self, slot: usize, took: u64, now: u64) {
        let Some(open) = self.open.get_mut(slot).and_then(Option::take).filter(|_| self.on) else { return };
        self.sync_open -= u64::from(open.sync);
        // F4: F3 in time.
        if open.sync {
            let bound =
                self.delay(&open) * 11 / 10 + (now - open.at) / 64 + 18 * MS + self.slots * self.longest;
            self.claims[3].check(took, bound);
        }
        if let Some(s) = self.streams.get_mut(&open.pid) {
            s.held -= 1;
            (s.seen, s.empty) = (now, now);
        }
    }
}

/// How far apart the scaled service of two streams may come: F2.
fn apart(slot: u64, c: u64, a: u64, b: u64) -> u64 {
    let one = |w: u64| (slot + 3 * c) * 1024 / w;
    2 * (one(a) + one(b) + c * 1024 / a.min(b))
}

/// The pair's key, and the first's service less the second's.
fn ordered(a: u32, of_a: i64, b: u32, of_b: i64) -> ((u32, u32), i64) {
    if a < b { ((a, b), of_a - of_b) } else { ((b, a), of_b - of_a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        crate::compare::file::parse(include_str!("../../tests/data/scenarios-small.json")).unwrap().cards[0]
            .1
            .clone()
    }
    fn wanted(pid: u32, sync: bool) -> Wanted {
        Wanted { pid, read: false, sync, lba: 0, blocks: 8, continues: false, what: 0 }
    }
    fn broken(g: &Guard) -> Vec<&'static str> {
        NAMES.iter().zip(g.claims()).filter(|(_, c)| c.broken > 0).map(|(n, _)| *n).collect()
    }

    #[test]
    fn an_async_command_beside_a_sync_one_breaks_the_gate() {
        let mut g = Guard::new("ftb", &card(), 8);
        g.admitted(0, &wanted(1, true), 0, 0);
        g.admitted(1, &wanted(2, false), 0, 0);
        g.dispatched(0, true, false, 0, 0);
        assert!(broken(&g).is_empty());
        g.dispatched(1, true, false, 0, 0);
        assert_eq!(broken(&g), ["F6"]);
    }

    #[test]
    fn idling_without_end_and_waiting_for_a_first_tag_are_seen() {
        let mut g = Guard::new("ftb", &card(), 8);
        g.admitted(0, &wanted(1, false), 1, 1);
        assert_eq!(broken(&g), ["F7"]);
        g.idled(5 * MS);
        g.dispatched(0, true, false, 0, 9 * MS);
        g.completed(0, 0, 10 * MS);
        assert_eq!(broken(&g), ["F7"], "8 ms and one hold are free");
        g.done(0, MS, 10 * MS);
        g.admitted(0, &wanted(1, false), 0, 10 * MS);
        g.idled(9 * MS);
        g.dispatched(0, true, false, 0, 0);
        g.idled(9 * MS);
        g.admitted(1, &wanted(3, true), 0, 30 * MS);
        g.dispatched(1, true, true, 0, 29 * MS);
        g.completed(0, 0, 30 * MS);
        assert_eq!(broken(&g), ["F1", "F7"]);
    }

    #[test]
    fn idling_for_the_owner_of_a_slot_is_free_only_if_it_writes_next() {
        for (next, free) in [(1, true), (2, false)] {
            let mut g = Guard::new("ftb", &card(), 8);
            let serve = |g: &mut Guard, pid: u32, read: bool, now: u64| {
                g.admitted(0, &wanted(pid, true), 0, now);
                g.dispatched(0, true, read, 0, now);
                g.completed(0, 0, now + 1);
                g.done(0, 1, now + 1);
            };
            serve(&mut g, 1, false, 0);
            for i in 0..3 {
                g.idled(9 * MS);
                serve(&mut g, 3, true, 10 * MS * (i + 1));
            }
            serve(&mut g, next, false, 40 * MS);
            // All of it may have been one hold, so only the second time it is too much.
            g.idled(9 * MS);
            serve(&mut g, 3, true, 50 * MS);
            serve(&mut g, 4, false, 60 * MS);
            assert_eq!(broken(&g).contains(&"F1"), !free, "{next}");
        }
    }

    #[test]
    fn a_stream_that_gets_nothing_for_long_is_seen() {
        let mut g = Guard::new("ftb", &card(), 8);
        g.admitted(0, &wanted(1, false), 0, 0);
        g.admitted(1, &wanted(2, true), 0, 0);
        for i in 0..60 {
            g.admitted(2, &wanted(2, true), 0, i * 100 * MS);
            g.dispatched(2, true, true, 0, i * 100 * MS);
            g.completed(2, 0, (i + 1) * 100 * MS);
            g.done(2, 100 * MS, (i + 1) * 100 * MS);
        }
        assert_eq!(broken(&g), ["F2", "F5", "F10"]);
    }

    #[test]
    fn a_stream_that_catches_up_after_a_pause_is_seen() {
        let mut g = Guard::new("ftb", &card(), 8);
        let mut now = 0;
        let mut serve = |g: &mut Guard, pid: u32, times: u64| {
            for _ in 0..times {
                g.admitted(pid as usize, &wanted(pid, true), 0, now);
                g.dispatched(pid as usize, true, true, 0, now);
                now += 100 * MS;
                g.completed(pid as usize, 0, now);
                g.done(pid as usize, 100 * MS, now);
            }
        };
        // Stream 1 always has more; stream 2 comes when it likes, for its share or less.
        g.admitted(0, &wanted(1, true), 0, 0);
        for _ in 0..60 {
            serve(&mut g, 1, 2);
            serve(&mut g, 2, 1);
        }
        assert!(broken(&g).is_empty(), "{:?}", broken(&g));
        serve(&mut g, 2, 60);
        assert_eq!(broken(&g), ["F10"], "what it left it does not get back");
    }

    #[test]
    fn other_policies_promise_nothing() {
        let mut g = Guard::new("bfq", &card(), 8);
        g.admitted(0, &wanted(1, true), 99, 0);
        g.dispatched(0, true, false, 0, 0);
        assert_eq!(g.claims(), [Claim::default(); 8]);
    }
}

//! A card in small with writers, readers and a journal in front of it, and a witness that holds the numbered
//! guarantees of `ftb` against every step of a run.
#![allow(dead_code, reason = "not every test uses all of it")]

use mmc_sched::ftb::bound::{self, Turn};
use mmc_sched::{
    AnyPolicy, Dispatch, Flags, Ftb, Kind, Limits, Merges, Op, Outcome, Queue, Request, RequestId, Run,
    Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use std::collections::{BTreeMap, VecDeque};

pub(crate) const TAGS: usize = 128;
const MS: u64 = 1_000_000;

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % below.max(1)
    }
}

/// Times in ns. A write to an allocation unit that is not among the last `open` pays `switch`; each `gc_every` sectors
/// written the card stands still for `gc` ms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    pub(crate) read: (u64, u64),
    pub(crate) seek: u64,
    pub(crate) write: (u64, u64),
    pub(crate) switch: u64,
    pub(crate) open: usize,
    pub(crate) gc_every: u64,
    pub(crate) gc: (u64, u64),
    /// Each command takes up to so many percent longer.
    pub(crate) noise: u64,
    pub(crate) slots: usize,
}

impl Card {
    /// As the study's `base`: 15 MB/s for writing, 40 for reading.
    pub(crate) const BASE: Self = Self {
        read: (200_000, 12_500),
        seek: 300_000,
        write: (900_000, 32_500),
        switch: 12 * MS,
        open: 3,
        gc_every: 16 * 2048,
        gc: (150, 450),
        noise: 0,
        slots: 2,
    };
    /// As the study's `class4`: one open unit, 40 ms to change it.
    pub(crate) const CLASS4: Self = Self {
        read: (300_000, 25_000),
        seek: 500_000,
        write: (2_000_000, 60_000),
        switch: 40 * MS,
        open: 1,
        gc_every: 8 * 2048,
        gc: (100, 250),
        noise: 0,
        slots: 2,
    };
    /// A fast one.
    pub(crate) const A2: Self = Self {
        read: (80_000, 5_500),
        seek: 70_000,
        write: (250_000, 8_350),
        switch: 3 * MS,
        open: 8,
        gc_every: 64 * 2048,
        gc: (30, 100),
        noise: 0,
        slots: 2,
    };
    pub(crate) fn calm(self) -> Self {
        Self { gc_every: u64::MAX, switch: 0, ..self }
    }
}

/// A closed loop of `depth` requests (each comes `think` after the one before it is done), or with `period` an open
/// one; in a `group` all come together when all are done.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) stream: u32,
    pub(crate) op: Op,
    pub(crate) sync: bool,
    pub(crate) blocks: u32,
    pub(crate) depth: usize,
    pub(crate) think: Duration,
    pub(crate) period: Option<Duration>,
    pub(crate) group: bool,
    pub(crate) random: bool,
    pub(crate) weight: u32,
    pub(crate) start: Instant,
    /// Pauses of so long after each so many requests.
    pub(crate) pause: Option<(u64, Duration)>,
    at: u64,
    /// When the next requests are due.
    due: Vec<Instant>,
    parked: usize,
    held: usize,
    pub(crate) done: u64,
    pub(crate) sectors: u64,
    pub(crate) waits: Vec<Duration>,
}

impl Actor {
    pub(crate) fn new(stream: u32, op: Op, sync: bool, blocks: u32, depth: usize) -> Self {
        Self {
            stream,
            op,
            sync,
            blocks,
            depth,
            think: Duration::ZERO,
            period: None,
            group: false,
            random: false,
            weight: 100,
            start: Instant::ZERO,
            pause: None,
            at: u64::from(stream) << 24,
            due: Vec::new(),
            parked: 0,
            held: 0,
            done: 0,
            sectors: 0,
            waits: Vec::new(),
        }
    }
    /// Writeback: sequential writes nobody waits for.
    pub(crate) fn flusher(stream: u32, blocks: u32, depth: usize) -> Self {
        Self::new(stream, Op::Write, false, blocks, depth)
    }
    pub(crate) fn reader(stream: u32, blocks: u32, depth: usize, think_us: u64) -> Self {
        Self { think: Duration::from_micros(think_us), ..Self::new(stream, Op::Read, true, blocks, depth) }
    }
    pub(crate) fn writer(stream: u32, blocks: u32, depth: usize, think_us: u64) -> Self {
        Self { think: Duration::from_micros(think_us), ..Self::new(stream, Op::Write, true, blocks, depth) }
    }
    pub(crate) fn named(self, stream: u32) -> Self {
        Self { stream, at: u64::from(stream) << 24, ..self }
    }
    pub(crate) fn random(self) -> Self {
        Self { random: true, ..self }
    }
    pub(crate) fn every(self, ms: u64) -> Self {
        Self { period: Some(Duration::from_millis(ms)), ..self }
    }
    pub(crate) fn grouped(self) -> Self {
        Self { group: true, ..self }
    }
    pub(crate) fn weighing(self, weight: u32) -> Self {
        Self { weight, ..self }
    }
    fn request(&mut self, dice: &mut Dice) -> Request {
        let base = u64::from(self.stream) << 24;
        if self.random {
            self.at = base + dice.roll(1 << 18) * 8;
        }
        let mut r = Request::new(self.op, self.at, self.blocks, StreamId(self.stream));
        if self.sync && !self.op.is_read() {
            r.flags = Flags::SYNC;
        }
        r
    }
    pub(crate) fn wait(&self, percent: usize) -> Duration {
        let mut sorted = self.waits.clone();
        sorted.sort();
        sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    run: Run,
    at: Instant,
    sync: bool,
    took: Duration,
    stall: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    actor: usize,
    at: Instant,
    all: Duration,
    own: Duration,
    owed: Duration,
    stalled: Duration,
}

/// What the witness has seen; limits are computed from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The longest charged command, the longest write slot allowed.
    pub(crate) longest: Duration,
    pub(crate) slot: Duration,
    pub(crate) checks: u64,
    /// Largest observed part of a bound, in thousandths: F2, F3, F4.
    pub(crate) worst: [u64; 3],
    pub(crate) idle_with_work: Duration,
    pub(crate) tag_waits: u64,
    /// Spread of W_i/w_i − W_j/w_j, by pair, in ns·1000/weight, and the largest head start meanwhile.
    spread: BTreeMap<(usize, usize), (i128, i128, Duration)>,
}

pub(crate) struct Sim {
    pub(crate) queue: Queue<Vec<Slot>, AnyPolicy>,
    pub(crate) card: Card,
    pub(crate) actors: Vec<Actor>,
    pub(crate) now: Instant,
    pub(crate) seen: Seen,
    pub(crate) dice: Dice,
    /// Weights change: the bounds take the least and the most.
    pub(crate) weights: BTreeMap<u32, (u32, u32)>,
    sent: VecDeque<Sent>,
    busy_until: Instant,
    last_done: Instant,
    asked: BTreeMap<RequestId, Asked>,
    open: Vec<u64>,
    heads: BTreeMap<u8, u64>,
    until_gc: u64,
    stalled: Duration,
    last_sync: Option<Instant>,
    window: (Instant, Vec<Duration>),
    /// Who had nothing queued at some time of the window.
    dry: Vec<bool>,
    pub(crate) check: bool,
}

impl Sim {
    pub(crate) fn new(policy: &str, card: Card, actors: Vec<Actor>, seed: u64) -> Self {
        let limits = Limits { merges: Merges::None, max_sectors: 2048, ..Limits::default() };
        let policy = AnyPolicy::by_name(policy).unwrap();
        let mut queue = Queue::with_limits(vec![Slot::FREE; 512], policy, limits);
        let mut weights = BTreeMap::new();
        for a in &actors {
            if let AnyPolicy::Ftb(f) = queue.policy_mut() {
                f.set_weight(StreamId(a.stream), Some(a.weight)).unwrap();
            }
            weights.insert(a.stream, (a.weight, a.weight));
        }
        if queue.name() == "ftb" {
            queue.tune("device_slots", &card.slots.to_string()).unwrap();
        }
        let count = actors.len();
        // The longest write slot: a second between two writers nobody waits for, 400 ms otherwise.
        let slot = if actors.iter().filter(|a| !a.sync).count() > 1 { 1000 } else { 400 };
        let mut sim = Self {
            check: queue.name() == "ftb",
            queue,
            card,
            actors,
            now: Instant::ZERO,
            seen: Seen { slot: Duration::from_millis(slot), ..Seen::default() },
            dice: Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            weights,
            sent: VecDeque::new(),
            busy_until: Instant::ZERO,
            last_done: Instant::ZERO,
            asked: BTreeMap::new(),
            open: Vec::new(),
            heads: BTreeMap::new(),
            until_gc: card.gc_every,
            stalled: Duration::ZERO,
            last_sync: None,
            window: (Instant::ZERO, vec![Duration::ZERO; count]),
            dry: vec![true; count],
        };
        for a in &mut sim.actors {
            a.due = (0..a.depth).map(|_| a.start).collect();
        }
        sim
    }
    pub(crate) fn tune(mut self, name: &str, value: &str) -> Self {
        self.queue.tune(name, value).unwrap();
        self
    }
    /// Write slots of no length, so that the bounds are tight.
    pub(crate) fn without_slots(mut self) -> Self {
        self.seen.slot = Duration::ZERO;
        self.tune("slot_factor", "0").tune("slot_cap_async", "0")
    }
    pub(crate) fn ftb(&self) -> &Ftb {
        match self.queue.policy() {
            AnyPolicy::Ftb(f) => f,
            other => panic!("{other:?}"),
        }
    }
    pub(crate) fn set_weight(&mut self, stream: u32, weight: u32) {
        if let AnyPolicy::Ftb(f) = self.queue.policy_mut() {
            f.set_weight(StreamId(stream), Some(weight)).unwrap();
        }
        let w = self.weights.get_mut(&stream).unwrap();
        *w = (w.0.min(weight), w.1.max(weight));
    }
    pub(crate) fn charged(&self, a: usize) -> Duration {
        let a = &self.actors[a];
        self.ftb().account(StreamId(a.stream), a.sync).map_or(Duration::ZERO, |a| a.charged)
    }
    fn all_charged(&self) -> Duration {
        (0..self.actors.len()).fold(Duration::ZERO, |sum, a| sum + self.charged(a))
    }
    pub(crate) fn megabytes(&self) -> f64 {
        let sectors: u64 = self.actors.iter().map(|a| a.sectors).sum();
        (sectors * 512) as f64 / (self.now.as_nanos() as f64 / 1000.0)
    }

    /// The time of a command that begins now, and how much of it is a stall.
    fn service(&mut self, run: &Run) -> (Duration, Duration) {
        let c = self.card;
        let stream = self.queue.request(run.head).unwrap().stream.0 as u8;
        let follows = self.heads.insert(stream, run.lba + u64::from(run.blocks)) == Some(run.lba);
        let n = u64::from(run.blocks);
        let mut stall = 0;
        let mut t = if run.op.is_read() {
            c.read.0 + c.read.1 * n + if follows { 0 } else { c.seek }
        } else {
            let unit = run.lba / 8192;
            let known = self.open.iter().position(|u| *u == unit);
            if let Some(i) = known {
                self.open.remove(i);
            }
            self.open.push(unit);
            if self.open.len() > c.open {
                self.open.remove(0);
            }
            self.until_gc = self.until_gc.saturating_sub(n);
            if self.until_gc == 0 {
                self.until_gc = c.gc_every;
                stall = (c.gc.0 + self.dice.roll(c.gc.1 - c.gc.0 + 1)) * MS;
            }
            c.write.0 + c.write.1 * n + if known.is_some() { 0 } else { c.switch }
        };
        t += t * self.dice.roll(c.noise + 1) / 100;
        (Duration::from_nanos(t + stall), Duration::from_nanos(stall))
    }

    /// Who is due asks for a tag, and gets one or is parked.
    fn arrivals(&mut self) {
        for i in 0..self.actors.len() {
            while let Some(n) = self.actors[i].due.iter().position(|t| *t <= self.now) {
                let a = &mut self.actors[i];
                a.due.swap_remove(n);
                a.parked += 1;
                if let Some(p) = a.period {
                    let next = p.as_nanos() * (90 + self.dice.roll(21)) / 100;
                    a.due.push(self.now + Duration::from_nanos(next));
                }
            }
            while self.actors[i].parked > 0 {
                let r = self.actors[i].request(&mut self.dice);
                let held: usize = self.actors.iter().map(|a| a.held).sum();
                if held >= TAGS || !self.room(i) || !self.queue.admits_request(&r, TAGS) {
                    self.seen.tag_waits += u64::from(self.actors[i].held == 0);
                    break;
                }
                self.accepted(i, r);
            }
        }
    }

    /// The limit by kind; `ftb` decides by stream.
    fn room(&self, i: usize) -> bool {
        let kind = kind_of(&self.actors[i]);
        let same = self.actors.iter().filter(|a| kind_of(a) == kind).map(|a| a.held).sum::<usize>();
        self.check || same < self.queue.admits(kind, TAGS)
    }

    fn accepted(&mut self, i: usize, r: Request) {
        let (id, _) = self.queue.insert(r, self.now).unwrap();
        let (mut all, mut own, mut owed) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        if self.check {
            (all, own) = (self.all_charged(), self.charged(i));
            owed = self.ftb().account(r.stream, r.is_sync()).unwrap().owes;
        }
        self.asked.insert(id, Asked { actor: i, at: self.now, all, own, owed, stalled: self.stalled });
        let a = &mut self.actors[i];
        a.parked -= 1;
        a.held += 1;
        if !a.random {
            a.at += u64::from(a.blocks);
        }
        if r.is_sync() {
            self.last_sync = Some(self.now);
        }
    }

    fn begin(&mut self) {
        if let Some(first) = self.sent.front().map(|s| s.run) {
            let (took, stall) = self.service(&first);
            self.sent[0].took = took;
            self.sent[0].stall = stall;
            self.busy_until = self.now + took;
        }
    }

    fn ends(&mut self) {
        let Sent { run, at, took, stall, .. } = self.sent.pop_front().unwrap();
        self.stalled += stall;
        let stalls = if self.check { self.ftb().stats().stalls } else { 0 };
        let done =
            self.queue.complete(run.head, Outcome { blocks: run.blocks, failed: false }, self.now).unwrap();
        if self.check && self.ftb().stats().stalls == stalls {
            let measured = self.now - at.max(self.last_done);
            self.seen.longest = self.seen.longest.max(measured).max(took - stall);
        }
        self.last_done = self.now;
        if !self.sent.is_empty() {
            self.begin();
        }
        if !done.last {
            return;
        }
        let asked = self.asked.remove(&run.head).unwrap();
        let i = asked.actor;
        if self.check {
            self.f4(&asked);
        }
        let now = self.now;
        let a = &mut self.actors[i];
        a.held -= 1;
        a.done += 1;
        a.sectors += u64::from(a.blocks);
        a.waits.push(now - asked.at);
        if a.period.is_some() {
            return;
        }
        let pause = a.pause.filter(|(n, _)| a.done % n == 0).map_or(Duration::ZERO, |(_, d)| d);
        if a.group {
            if a.held == 0 && a.parked == 0 {
                a.due.extend((0..a.depth).map(|_| now + a.think + pause));
            }
        } else {
            a.due.push(now + a.think + pause);
        }
    }

    pub(crate) fn run_until(&mut self, end: Instant) {
        while self.now < end {
            self.arrivals();
            let mut wake = Instant::NEVER;
            let mut waits = false;
            while self.sent.len() < self.card.slots {
                let before = if self.check { self.all_charged() } else { Duration::ZERO };
                match self.queue.dispatch(self.now) {
                    Dispatch::Run(run) => {
                        let r = *self.queue.request(run.head).unwrap();
                        if self.check {
                            self.seen.longest = self.seen.longest.max(self.all_charged() - before);
                            self.f6(&run, &r);
                            self.f3(&run, &r);
                        }
                        let none = Duration::ZERO;
                        self.sent.push_back(Sent {
                            run,
                            at: self.now,
                            sync: r.is_sync(),
                            took: none,
                            stall: none,
                        });
                        if self.sent.len() == 1 {
                            self.begin();
                        }
                    }
                    Dispatch::Wait { at, completion } => {
                        assert!(at.is_some() || completion);
                        assert!(!completion || !self.sent.is_empty(), "no completion will come");
                        assert!(at.is_none_or(|t| t > self.now));
                        assert_eq!(self.queue.wake_at(), at);
                        wake = at.unwrap_or(Instant::NEVER);
                        waits = true;
                        break;
                    }
                    Dispatch::Empty => break,
                }
            }
            if self.check {
                self.f1();
                self.f2();
                self.f5();
            }
            let due = self.actors.iter().filter_map(|a| a.due.iter().min()).min().copied();
            let mut next = wake.min(due.unwrap_or(Instant::NEVER));
            let completes = !self.sent.is_empty() && self.busy_until <= next;
            if completes {
                next = self.busy_until;
            }
            if next > end {
                self.now = end;
                return;
            }
            if self.sent.is_empty() && waits {
                self.seen.idle_with_work += next - self.now;
            }
            self.now = self.now.max(next);
            if completes {
                self.ends();
            }
        }
    }

    // The guarantees.

    fn total_weight(&self) -> u64 {
        self.weights.values().map(|w| u64::from(w.1)).sum()
    }
    /// Head start of what somebody waits for: one command nobody waits for.
    fn quantum(&self) -> Duration {
        if self.actors.iter().any(|a| !a.sync) {
            self.ftb().expected_write(self.ftb().chunk())
        } else {
            Duration::ZERO
        }
    }

    /// The longest write slot; one command more than was asked for while the model is blind.
    fn slot(&self) -> Duration {
        if self.card.slots > 2 { Duration::ZERO } else { self.seen.slot.max(self.seen.longest) }
    }

    fn f1(&mut self) {
        let stats = self.ftb().stats();
        let limit =
            Duration::from_nanos(self.now.as_nanos() / 64) + Duration::from_millis(8) + stats.longest_hold;
        assert!(stats.idle <= limit, "F1: idle {} of {limit} at {}", stats.idle, self.now - Instant::ZERO);
        self.seen.checks += 1;
    }

    /// |W_i/w_i − W_j/w_j| for all pairs since both have something queued.
    fn f2(&mut self) {
        let mut queued: Vec<usize> = self.actors.iter().map(|a| a.held).collect();
        for sent in &self.sent {
            // The last part of a request leaves the queue.
            let r = self.queue.request(sent.run.head).unwrap();
            if sent.run.offset + sent.run.blocks == r.blocks {
                queued[self.asked[&sent.run.head].actor] -= 1;
            }
        }
        for (dry, queued) in self.dry.iter_mut().zip(&queued) {
            *dry |= *queued == 0;
        }
        self.seen.spread.retain(|(i, j), _| queued[*i] > 0 && queued[*j] > 0);
        let steady = |i: &usize| {
            let w = self.weights[&self.actors[*i].stream];
            queued[*i] > 0 && w.0 == w.1
        };
        let all: Vec<usize> = (0..self.actors.len()).filter(steady).collect();
        let weights: Vec<i128> = self.actors.iter().map(|a| a.weight.into()).collect();
        let share = |i: usize, d: Duration| i128::from(d.as_nanos()) * 1000 / weights[i];
        let charged: Vec<Duration> = (0..self.actors.len()).map(|i| self.charged(i)).collect();
        let (c, slot, q) = (self.seen.longest, self.slot(), self.quantum());
        let one = slot + c.saturating_mul(3);
        for &i in &all {
            for &j in all.iter().filter(|j| **j > i) {
                let d = share(i, charged[i]) - share(j, charged[j]);
                let s = self.seen.spread.entry((i, j)).or_insert((d, d, q));
                // What somebody waits for keeps the head start it was given when a part was expected to take longer.
                *s = (s.0.min(d), s.1.max(d), s.2.max(q));
                let limit = 2 * (share(i, one) + share(j, one) + share(i, s.2).max(share(j, s.2)));
                assert!(s.1 - s.0 <= limit, "F2: {i} and {j}: {} of {limit}", s.1 - s.0);
                let part = (s.1 - s.0) * 1000 / limit.max(1);
                self.seen.worst[0] = self.seen.worst[0].max(part as u64);
                self.seen.checks += 1;
            }
        }
    }

    fn turn(&self, asked: &Asked) -> Turn {
        let a = &self.actors[asked.actor];
        let own = self.charged(asked.actor).saturating_sub(asked.own);
        let weight = self.weights[&a.stream].0;
        Turn {
            own,
            owes: asked.owed,
            head_start: self.quantum(),
            flushers: self.actors.iter().filter(|a| !a.sync).count() > 1,
            ..Turn::new(weight, self.total_weight(), self.actors.len() as u32, self.seen.longest)
        }
    }

    fn f3(&mut self, run: &Run, r: &Request) {
        if run.offset + run.blocks != r.blocks {
            return;
        }
        let asked = self.asked[&run.head];
        let limit = bound::service(self.ftb(), self.turn(&asked)).unwrap();
        let was = self.all_charged().saturating_sub(asked.all);
        assert!(was <= limit, "F3: {was} of {limit} for {:?}", self.actors[asked.actor]);
        self.seen.worst[1] = self.seen.worst[1].max(was.as_nanos() * 1000 / limit.as_nanos());
        self.seen.checks += 1;
    }

    /// The same in time, for every request, whatever its class.
    fn f4(&mut self, asked: &Asked) {
        let took = self.now - asked.at;
        let limit = bound::time(self.ftb(), self.turn(asked)).unwrap();
        let was = took.saturating_sub(self.stalled - asked.stalled);
        assert!(was <= limit, "F4: {was} of {limit} for {:?}", self.actors[asked.actor]);
        self.seen.worst[2] = self.seen.worst[2].max(was.as_nanos() * 1000 / limit.as_nanos());
        self.seen.checks += 1;
    }

    /// In each second a writer nobody waits for that always has work gets its share.
    fn f5(&mut self) {
        if self.now - self.window.0 < Duration::from_secs(1) {
            return;
        }
        let before = std::mem::take(&mut self.window.1);
        let dry = std::mem::replace(&mut self.dry, vec![false; before.len()]);
        let after: Vec<Duration> = (0..self.actors.len()).map(|i| self.charged(i)).collect();
        let all = (0..after.len()).fold(Duration::ZERO, |sum, i| sum + after[i].saturating_sub(before[i]));
        for (i, a) in self.actors.iter().enumerate() {
            if !a.sync && !dry[i] {
                let got = after[i].saturating_sub(before[i]);
                let least = u64::from(self.weights[&a.stream].0);
                let share = Duration::from_nanos(all.as_nanos() * least / self.total_weight());
                let lag =
                    self.quantum().saturating_mul(2) + (self.slot() + self.seen.longest).saturating_mul(2);
                let lag = lag.saturating_mul(self.actors.len() as u64);
                assert!(got + lag >= share, "F5: {got} of {share}");
                self.seen.checks += 1;
            }
        }
        self.window = (self.now, after);
    }

    /// What nobody waits for goes alone and small into the device while somebody may come.
    fn f6(&mut self, run: &Run, r: &Request) {
        if r.is_sync() || self.card.slots > 2 {
            return;
        }
        let waiting = self.actors.iter().any(|a| a.sync && a.held > 0);
        let left = r.blocks - run.offset;
        let span = self.ftb().expected_write(left).saturating_mul(32 * self.card.slots as u64);
        let recent = self.last_sync.is_some_and(|t| self.now < t + span);
        if waiting || recent {
            assert!(self.sent.is_empty(), "F6: {} commands in front", self.sent.len());
            assert!(run.blocks <= self.ftb().chunk() * 3 / 2 + 16, "F6: {} sectors", run.blocks);
            self.seen.checks += 1;
        }
    }
}

fn kind_of(a: &Actor) -> Kind {
    match (a.op.is_read(), a.sync) {
        (true, _) => Kind::Read,
        (false, true) => Kind::SyncWrite,
        (false, false) => Kind::Async,
    }
}

//! `mq-deadline`, decided exactly as Linux decides.
//!
//! It is not a better deadline scheduler: what surprises in the original surprises here (see the list below). A
//! request has a deadline by its direction; requests go out in sector order in batches of one direction; a batch
//! begins with the oldest request of its direction if that one's deadline is past.
//!
//! Two rule sets: [`Rules::V7_3`] (Linux 7.3; 6.12 decides the same), checked line by line against what that
//! kernel's own code answered, and [`Rules::V5_10`] (what kernels from 4.16 to 5.13 did), checked against the
//! recorded order of a 5.10 kernel.
//!
//! Surprises kept on purpose in the rules 7.3:
//! * a look into another class that ends in "too young" still ends the batch and turns the direction of the class
//!   that is served, so one waiting request of another class keeps deadlines from being looked at;
//! * requests of a higher class that are *at the device* stop lower classes though the device has room;
//! * aged requests of lower classes go before all of the real-time class;
//! * lowering an expire time makes queued requests look as if they began in the future: an idle device may wait;
//! * `writes_starved` takes any number: 0 starves reads, a negative one starves writes;
//! * a fresh scheduler serves writes first, and what is put at the head goes out last in, first out.
//!
//! Work per call: O(log n) in queued runs, whatever the depth. A `pick` that gives nothing although something waits
//! looks up to 64 decisions ahead, to say when to ask again.

mod rules_5_10;
mod rules_7_3;
mod tunables;

use crate::fifo::Fifo;
use crate::lane::{ByDir, ByLevel, Dir, Lane, Level};
use crate::policy::{Done, Pick, Policy};
use crate::pool::Pool;
use crate::request::{Kind, Request};
use crate::scheduler::{TunableInfo, TuneError};
use crate::tree::Tree;
use core::fmt;
use mmc_time::Instant;
pub use tunables::Tunables;

/// Whose decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Linux 7.3 and 6.12: three classes, ageing, a sweep position in sectors.
    #[default]
    V7_3,
    /// Linux 4.16 to 5.13: one class, a sweep position fixed at the last dispatch.
    V5_10,
}

#[derive(Clone, Copy, Debug, Default)]
struct PerClass {
    lanes: ByDir<Lane>,
    /// Runs inserted and not completed, those at the device included.
    queued: u32,
    /// Given out and not completed; a requeued run counts twice, as in the original.
    owned: u32,
}

/// The policy `mq-deadline`.
#[derive(Clone, Copy, Debug)]
pub struct MqDeadline {
    rules: Rules,
    tunables: Tunables,
    classes: ByLevel<PerClass>,
    /// What was inserted at the head.
    head: Fifo,
    /// The sweep of the rules 5.10: the run fixed as next at the last dispatch.
    next_run: ByDir<Option<u16>>,
    last_dir: Dir,
    batching: u32,
    starved: u32,
    /// Runs at the device; `owned` is not that number, it keeps the original's drift.
    in_device: u32,
    wake: Option<Instant>,
}

/// What the original shows of itself in debugfs. Prints as `last_dir batching starved qRT qBE qIDLE oRT oBE oIDLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The last batch was one of writes.
    pub writes: bool,
    /// Runs given out in the batch.
    pub batching: u32,
    /// Decisions for reads since a write waits.
    pub starved: u32,
    /// Runs inserted and not completed: real time, best effort, idle.
    pub queued: [u32; 3],
    /// Runs given out (again) and not completed.
    pub owned: [u32; 3],
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", if self.writes { 'w' } else { 'r' }, self.batching, self.starved)?;
        self.queued.iter().chain(&self.owned).try_for_each(|n| write!(f, " {n}"))
    }
}

impl Default for MqDeadline {
    fn default() -> Self {
        Self::new()
    }
}

impl MqDeadline {
    /// Linux 7.3 with default tunables.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_rules(Rules::V7_3)
    }
    /// Default tunables.
    #[must_use]
    pub const fn with_rules(rules: Rules) -> Self {
        const LANES: ByDir<Lane> = ByDir { read: Lane::NEW, write: Lane::NEW };
        const NEW: PerClass = PerClass { lanes: LANES, queued: 0, owned: 0 };
        Self {
            rules,
            tunables: Tunables::new(),
            classes: ByLevel { real_time: NEW, best_effort: NEW, idle: NEW },
            head: Fifo::new(),
            next_run: ByDir { read: None, write: None },
            last_dir: Dir::Write,
            batching: 0,
            starved: 0,
            in_device: 0,
            wake: None,
        }
    }
    /// The rule set.
    #[must_use]
    pub fn rules(&self) -> Rules {
        self.rules
    }
    /// The tunables in force.
    #[must_use]
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }
    /// Tells it how many tags the block layer has (Linux' `nr_requests`); `async_depth` keeps its share of them.
    pub fn set_nr_requests(&mut self, tags: u32) {
        self.tunables.set_nr_requests(tags);
    }
    /// The state the decisions hang on.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            writes: self.last_dir == Dir::Write,
            batching: self.batching,
            starved: self.starved,
            queued: Level::ALL.map(|c| self.class(c).queued),
            owned: Level::ALL.map(|c| self.class(c).owned),
        }
    }

    fn class(&self, level: Level) -> &PerClass {
        self.classes.get(level)
    }
    fn class_mut(&mut self, level: Level) -> &mut PerClass {
        self.classes.get_mut(level)
    }
    fn level(&self, r: &Request) -> Level {
        if self.rules == Rules::V7_3 { Level::of(r) } else { Level::BestEffort }
    }
    fn place(&self, r: &Request) -> (Level, Dir) {
        (self.level(r), Dir::of(r))
    }
    fn lane(&mut self, (level, d): (Level, Dir)) -> &mut Lane {
        self.class_mut(level).lanes.get_mut(d)
    }
    /// Takes a run out of what is queued.
    fn unlink(&mut self, pool: &mut Pool<'_>, place: (Level, Dir), slot: u16) {
        let next = self.next_run.get_mut(place.1);
        if *next == Some(slot) {
            *next = Tree::next(pool, slot);
        }
        self.lane(place).remove(pool, slot);
    }
    /// A run of this class goes out.
    fn start(&mut self, level: Level) {
        let c = self.class_mut(level);
        c.owned = c.owned.wrapping_add(1);
        self.in_device = self.in_device.wrapping_add(1);
    }
    /// Whether a decision goes to the writes, of which some wait; counts the decisions for reads.
    fn writes_turn(&mut self, reads_wait: bool) -> bool {
        if !reads_wait {
            return true;
        }
        let starved = self.starved;
        self.starved = starved.wrapping_add(1);
        // The original compares a signed tunable as unsigned: a negative one is huge.
        starved >= u32::from_ne_bytes(self.tunables.writes_starved.to_ne_bytes())
    }
}

/// Tag of a run that was inserted at the head.
const AT_HEAD: u32 = 1;

impl Policy for MqDeadline {
    fn name(&self) -> &'static str {
        "mq-deadline"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        *self = Self { tunables: self.tunables, ..Self::with_rules(self.rules) };
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        let (level, d) = self.place(pool.request(slot));
        pool.set_deadline(slot, now + self.tunables.expire(d));
        let c = self.class_mut(level);
        c.queued = c.queued.wrapping_add(1);
        c.lanes.get_mut(d).insert(pool, slot);
        self.wake = None;
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, now: Instant) {
        pool.set_deadline(slot, now);
        pool.set_tag(slot, AT_HEAD);
        let level = self.level(pool.request(slot));
        let c = self.class_mut(level);
        c.queued = c.queued.wrapping_add(u32::from(fresh));
        self.in_device = self.in_device.saturating_sub(u32::from(!fresh));
        self.head.push_front(pool, slot);
        self.wake = None;
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        if pool.tag(slot) == AT_HEAD {
            self.head.remove(pool, slot);
        } else {
            self.unlink(pool, self.place(pool.request(slot)), slot);
        }
        let level = self.level(pool.request(slot));
        let c = self.class_mut(level);
        c.queued = c.queued.wrapping_sub(1);
    }
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        if !self.tunables.front_merges {
            return None;
        }
        self.class(self.level(request)).lanes.get(Dir::of(request)).sort.behind(pool, request)
    }
    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Tree::prev(pool, slot)
    }
    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Tree::next(pool, slot)
    }
    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        if front {
            self.lane(self.place(pool.request(slot))).moved(pool, slot);
        }
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        if !queued {
            return;
        }
        let (level, d) = self.place(pool.request(into));
        let earlier = pool.deadline(from);
        if earlier < pool.deadline(into) {
            let fifo = &mut self.lane((level, d)).fifo;
            fifo.remove(pool, into);
            fifo.insert_before(pool, from, into);
            pool.set_deadline(into, earlier);
        }
        self.unlink(pool, (level, d), from);
        let c = self.class_mut(level);
        c.queued = c.queued.wrapping_sub(1);
    }
    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        self.wake = None;
        if let Some(slot) = self.head.pop_front(pool) {
            let ((level, d), lba) = (self.place(pool.request(slot)), pool.lba(slot));
            self.lane((level, d)).sweep_from(pool, lba);
            self.start(level);
            return Pick::Run(slot);
        }
        match self.rules {
            Rules::V7_3 => self.pick_7_3(pool, now),
            Rules::V5_10 => self.pick_5_10(pool, now),
        }
    }
    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, _: Instant) {
        if done.run {
            let level = self.level(pool.request(slot));
            let c = self.class_mut(level);
            c.queued = c.queued.wrapping_sub(1);
            c.owned = c.owned.wrapping_sub(1);
            self.in_device = self.in_device.saturating_sub(1);
            self.wake = None;
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        self.wake
    }
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        if self.rules == Rules::V5_10 || kind == Kind::Read {
            return tags;
        }
        tags.min(usize::try_from(self.tunables.async_depth()).unwrap_or(tags))
    }
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        self.tunables.info(self.rules, i)
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        self.wake = None;
        self.tunables.set(self.rules, name, text)
    }
}

//! `deadline`: the idea of `mq-deadline` with its promises kept.
//!
//! It is not what any Linux does; [`mq_deadline`](crate::mq_deadline) is. Each mend has a test that shows both.
//!
//! | `mq-deadline` | `deadline` |
//! |---|---|
//! | a look into another class disturbs the batch and hides deadlines (7.1) | each class has a batch of its own; a look changes nothing |
//! | a request at the device keeps lower classes waiting (7.2) | a class is served when no higher one is *queued*; "nothing now" is never answered while something waits |
//! | all aged requests go before real time (7.3), and a young one hides an aged one | the oldest aged request goes itself, one after each `fifo_batch` others |
//! | lowering an expire time stalls an idle device (7.5) | the deadline is the arrival plus the expire time of now |
//! | `writes_starved` 0 or negative starves for ever (7.6), a huge `fifo_batch` too | 1..=64 and 1..=1024; out of range is an error |
//! | a run of another kind with the same end hides a merge (7.7) | the newest 16 of an end are tried |
//! | what is put at the head goes last in, first out (7.9) | first in, first out |
//! | a fresh scheduler serves writes first (7.10) | reads first |
//!
//! Order: what was put at the head; then an aged request if its turn has come; then real time before best effort
//! before idle. Within a class as in the original: batches in ascending sectors, a decision between reads and writes at
//! the end of each, the oldest request first if it is due.
//!
//! Bounds: [`bound::deadline`](crate::bound::deadline). Work per call: O(log n) in queued runs.

use crate::fifo::Fifo;
use crate::lane::{ByDir, ByLevel, Dir, Lane, Level};
use crate::policy::{Done, Pick, Policy};
use crate::pool::Pool;
use crate::request::Request;
use crate::scheduler::{TunableInfo, TuneError};
use crate::tree::Tree;
use crate::tunable;
use mmc_time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct Class {
    lanes: ByDir<Lane>,
    last_dir: Dir,
    batching: u32,
    starved: u32,
}

impl Default for Class {
    fn default() -> Self {
        Self::NEW
    }
}

impl Class {
    const NEW: Self = Self {
        lanes: ByDir { read: Lane::NEW, write: Lane::NEW },
        last_dir: Dir::Read,
        batching: 0,
        starved: 0,
    };
}

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// From arrival to deadline of a read; default 500 ms.
    pub read_expire: Duration,
    /// From arrival to deadline of a write; default 5 s.
    pub write_expire: Duration,
    /// Decisions for reads while a write waits, 1..=64; default 2.
    pub writes_starved: u32,
    /// Whether a front merge is looked for in sector order; default yes.
    pub front_merges: bool,
    /// Runs in a batch, 1..=1024; default 16.
    pub fifo_batch: u32,
    /// Age at which a request of a lower class gets its turn; default 10 s.
    pub prio_aging_expire: Duration,
}

impl Tunables {
    const NEW: Self = Self {
        read_expire: Duration::from_millis(500),
        write_expire: Duration::from_secs(5),
        writes_starved: 2,
        front_merges: true,
        fifo_batch: 16,
        prio_aging_expire: Duration::from_secs(10),
    };
}

/// The policy `deadline`.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    tunables: Tunables,
    classes: ByLevel<Class>,
    head: Fifo,
    /// Runs given out since an aged one was.
    since_aged: u32,
}

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

/// Tag of a run that was inserted at the head.
const AT_HEAD: u32 = 1;
const INT_MAX: i64 = i32::MAX as i64;

impl Deadline {
    /// Default tunables.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tunables: Tunables::NEW,
            classes: ByLevel { real_time: Class::NEW, best_effort: Class::NEW, idle: Class::NEW },
            head: Fifo::new(),
            since_aged: 0,
        }
    }
    /// The tunables in force.
    #[must_use]
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    fn expire(&self, d: Dir) -> Duration {
        match d {
            Dir::Read => self.tunables.read_expire,
            Dir::Write => self.tunables.write_expire,
        }
    }
    fn lane_of(&mut self, pool: &Pool<'_>, slot: u16) -> &mut Lane {
        let r = pool.request(slot);
        self.classes.get_mut(Level::of(r)).lanes.get_mut(Dir::of(r))
    }
    fn unlink(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.lane_of(pool, slot).remove(pool, slot);
    }

    /// The oldest request of the two lower classes that is aged. A slot's deadline is when its oldest member arrived.
    fn aged(&self, pool: &Pool<'_>, now: Instant) -> Option<u16> {
        let lower = [&self.classes.best_effort, &self.classes.idle];
        let oldest =
            lower.into_iter().flat_map(|c| [c.lanes.read.fifo.front(), c.lanes.write.fifo.front()]).flatten();
        let oldest = oldest.min_by_key(|&s| (pool.deadline(s), pool.at(s).seq))?;
        (pool.deadline(oldest) + self.tunables.prio_aging_expire <= now).then_some(oldest)
    }

    /// The run of this class that goes out; `None` only when nothing of it waits.
    fn decide(&mut self, pool: &Pool<'_>, level: Level, now: Instant) -> Option<u16> {
        let Tunables { fifo_batch, writes_starved, .. } = self.tunables;
        let c = self.classes.get_mut(level);
        if let Some(next) = c.lanes.get(c.last_dir).sweep().filter(|_| c.batching < fifo_batch) {
            c.batching = c.batching.saturating_add(1);
            return Some(next);
        }
        let (d, oldest) = match (c.lanes.read.fifo.front(), c.lanes.write.fifo.front()) {
            (None, None) => return None,
            (Some(_), Some(w)) if c.starved >= writes_starved => (Dir::Write, w),
            (Some(r), write) => {
                c.starved = c.starved.saturating_add(u32::from(write.is_some()));
                (Dir::Read, r)
            }
            (None, Some(w)) => (Dir::Write, w),
        };
        if d == Dir::Write {
            c.starved = 0;
        }
        (c.last_dir, c.batching) = (d, 1);
        let next = c.lanes.get(d).sweep();
        let due = pool.deadline(oldest) + self.expire(d) <= now;
        Some(next.filter(|_| !due).unwrap_or(oldest))
    }
}

impl Policy for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {
        *self = Self { tunables: self.tunables, ..Self::new() };
    }
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, _: Instant) {
        pool.set_deadline(slot, pool.arrival(slot));
        self.lane_of(pool, slot).insert(pool, slot);
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, _: bool, _: Instant) {
        pool.set_tag(slot, AT_HEAD);
        self.head.push_back(pool, slot);
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        if pool.tag(slot) == AT_HEAD {
            self.head.remove(pool, slot);
        } else {
            self.unlink(pool, slot);
        }
    }
    fn merge_tries(&self) -> u8 {
        16
    }
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        if !self.tunables.front_merges {
            return None;
        }
        self.classes.get(Level::of(request)).lanes.get(Dir::of(request)).sort.behind(pool, request)
    }
    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Tree::prev(pool, slot)
    }
    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        Tree::next(pool, slot)
    }
    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        if front {
            self.lane_of(pool, slot).moved(pool, slot);
        }
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        if !queued {
            return;
        }
        let older = pool.deadline(from);
        if older < pool.deadline(into) {
            let fifo = &mut self.lane_of(pool, into).fifo;
            fifo.remove(pool, into);
            fifo.insert_before(pool, from, into);
            pool.set_deadline(into, older);
        }
        self.unlink(pool, from);
    }
    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        if let Some(slot) = self.head.pop_front(pool) {
            pool.set_tag(slot, 0);
            return Pick::Run(slot);
        }
        self.since_aged = self.since_aged.saturating_add(1);
        if self.since_aged > self.tunables.fifo_batch {
            if let Some(slot) = self.aged(pool, now) {
                self.since_aged = 0;
                self.unlink(pool, slot);
                // The sweep of its class stays where it is.
                return Pick::Run(slot);
            }
        }
        for level in Level::ALL {
            if let Some(slot) = self.decide(pool, level, now) {
                self.lane_of(pool, slot).serve(pool, slot);
                return Pick::Run(slot);
            }
        }
        Pick::Empty
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, _: Done, _: Instant) {}
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        let t = &self.tunables;
        let ms = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(INT_MAX);
        let (name, unit, min, max, value) = match i {
            0 => ("read_expire", "ms", 0, INT_MAX, ms(t.read_expire)),
            1 => ("write_expire", "ms", 0, INT_MAX, ms(t.write_expire)),
            2 => ("writes_starved", "decisions", 1, 64, i64::from(t.writes_starved)),
            3 => ("front_merges", "bool", 0, 1, i64::from(t.front_merges)),
            4 => ("fifo_batch", "requests", 1, 1024, i64::from(t.fifo_batch)),
            5 => ("prio_aging_expire", "ms", 0, INT_MAX, ms(t.prio_aging_expire)),
            _ => return None,
        };
        Some(TunableInfo { name, unit, min, max, value })
    }
    /// Out of range is an error here; nothing is clamped.
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        let known =
            (0..).map_while(|i| self.tunable(i)).find(|t| t.name == name).ok_or(TuneError::Unknown)?;
        let value = i64::from(tunable::int(text)?);
        if value < known.min || value > known.max {
            return Err(TuneError::Range);
        }
        let value = u32::try_from(value).map_err(|_| TuneError::Range)?;
        let ms = Duration::from_millis(u64::from(value));
        match name {
            "read_expire" => self.tunables.read_expire = ms,
            "write_expire" => self.tunables.write_expire = ms,
            "writes_starved" => self.tunables.writes_starved = value,
            "front_merges" => self.tunables.front_merges = value != 0,
            "fifo_batch" => self.tunables.fifo_batch = value,
            _ => self.tunables.prio_aging_expire = ms,
        }
        Ok(())
    }
}

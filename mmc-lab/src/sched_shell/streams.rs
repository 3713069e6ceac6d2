//! The protocol of all policies but `mq-deadline`, as the recorded scenarios of BFQ and CFQ use it.
//!
//! It is not for comparing merges: nothing merges until `set nomerges 0` (or 1) is given.
//!
//! | command | reply |
//! |---|---|
//! | `t NS`: the clock, absolute, in nanoseconds | `ok` |
//! | `p PID CLASS LEVEL`: class 1 real time, 2 best effort, 3 idle and level 0–7 of a stream's requests to come | `ok` |
//! | `i ID r\|w SYNC PID SECTOR NSECT [FLAGS]`: a request; flags: 1 metadata, 2 more follows (no policy asks for it) | `ok` or `merged INTO` |
//! | `d`: what goes out | `-`; the id; of merged ones all ids in sector order; of a part `ID @OFFSET+SECTORS` |
//! | `c ID`: it completes, or the oldest part of it | `ok` |
//! | `n`: when `d` may answer differently by itself | nanoseconds or `-` |
//! | `set NAME VALUE`: a tunable, or `nr_requests`, `nomerges`, `rotational` (no policy asks for it) | `ok` |
//! | `q`: the scheduler | free text |
//! | `w PID [SYNC]`: a stream, or its sync (1) or async (0) requests | free text |

use super::{Fields, SLOTS, apply, refused, tunables};
use mmc_sched::{
    AnyPolicy, Class, Dispatch, Flags, Inserted, Kind, Limits, Merges, Op, Outcome, Priority, Queue, Request,
    RequestId, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::Instant;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What the shell counts of a stream's sync or async requests.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    arrived: u64,
    completed: u64,
    sectors: u64,
}

/// A request that was accepted and is not over.
#[derive(Debug)]
struct Known {
    id: RequestId,
    /// Sectors of its parts at the device, the oldest first; of an undivided request there is one part.
    out: VecDeque<u32>,
}

/// One policy.
#[derive(Debug)]
pub struct Shell {
    queue: Queue<Box<[Slot]>, AnyPolicy>,
    tags: usize,
    now: Instant,
    known: HashMap<u64, Known>,
    names: HashMap<RequestId, u64>,
    priorities: BTreeMap<u32, Priority>,
    counts: BTreeMap<(u32, bool), Count>,
}

impl Shell {
    /// The policy as it is set now.
    #[must_use]
    pub fn policy(&self) -> &AnyPolicy {
        self.queue.policy()
    }
    /// `policy` with these tunables.
    ///
    /// # Errors
    /// One line naming the tunable.
    pub fn new(mut policy: AnyPolicy, sets: &[(String, String)]) -> Result<Self, String> {
        apply(&mut policy, sets)?;
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        Ok(Self {
            queue: Queue::with_limits(vec![Slot::FREE; SLOTS].into_boxed_slice(), policy, limits),
            tags: 128,
            now: Instant::ZERO,
            known: HashMap::new(),
            names: HashMap::new(),
            priorities: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    pub(super) fn command(&mut self, word: &str, rest: &str) -> Result<String, String> {
        let mut f = Fields::new(word, rest);
        match word {
            "t" => {
                let ns = f.number("ns", 0, u64::MAX - 1)?;
                f.end()?;
                if ns < self.now.as_nanos() {
                    return Err(format!("t: {ns} is before {}: time never goes back", self.now.as_nanos()));
                }
                self.now = Instant::from_nanos(ns);
            }
            "p" => {
                let pid = f.number("the pid", 0, u32::MAX)?;
                let class = match f.number("the class", 1, 3)? {
                    1 => Class::RealTime,
                    2 => Class::BestEffort,
                    _ => Class::Idle,
                };
                let level = f.number("the level", 0, 7)?;
                f.end()?;
                self.priorities.insert(pid, Priority { class, level });
            }
            "i" => return self.insert(&mut f),
            "d" => {
                f.end()?;
                return Ok(self.dispatch());
            }
            "c" => {
                let id = f.number("the id", 0, u64::MAX)?;
                f.end()?;
                self.complete(id)?;
            }
            "n" => {
                f.end()?;
                return Ok(self.queue.wake_at().map_or("-".to_owned(), |t| t.as_nanos().to_string()));
            }
            "set" => self.set(rest)?,
            "q" => {
                f.end()?;
                return Ok(self.describe());
            }
            "w" => {
                let pid = f.number("the pid", 0, u32::MAX)?;
                let sync = match f.maybe() {
                    None => None,
                    Some("0") => Some(false),
                    Some("1") => Some(true),
                    Some(other) => return Err(format!("w: SYNC {other:?} is not 0 or 1")),
                };
                f.end()?;
                return self.stream(pid, sync);
            }
            other => return Err(format!("{other:?} is no command: t, p, i, d, c, n, set, q, w, x")),
        }
        Ok("ok".to_owned())
    }

    fn insert(&mut self, f: &mut Fields<'_>) -> Result<String, String> {
        let name: u64 = f.number("the id", 0, u64::MAX)?;
        let op = match f.text("the direction")? {
            "r" => Op::Read,
            "w" => Op::Write,
            other => return Err(format!("i: {other:?} is no direction: r, w")),
        };
        let sync = f.number("SYNC", 0, 1)? == 1;
        let pid = f.number("the pid", 0, u32::MAX)?;
        let lba = f.number("the sector", 0, u64::MAX)?;
        let blocks = f.number("the number of sectors", 0, u32::MAX)?;
        let more = if f.more() { f.number("FLAGS", 0, 3)? } else { 0 };
        f.end()?;
        if self.known.contains_key(&name) {
            return Err(format!("i: {name} is in use"));
        }
        let mut r = Request::new(op, lba, blocks, StreamId(pid));
        r.flags.set(Flags::SYNC, sync);
        r.flags.set(Flags::META, more & 1 != 0);
        r.priority = self.priorities.get(&pid).copied().unwrap_or_default();
        let (id, how) = match self.queue.merge(&r, self.now) {
            Some(merged) => merged,
            None => self.queue.insert(r, self.now).map_err(|(_, e)| format!("i: {e}"))?,
        };
        self.known.insert(name, Known { id, out: VecDeque::new() });
        self.names.insert(id, name);
        self.counts.entry((pid, r.is_sync())).or_default().arrived += 1;
        Ok(match how {
            Inserted::Queued => "ok".to_owned(),
            Inserted::Merged { into } => format!("merged {}", self.name(into)),
        })
    }

    fn name(&self, id: RequestId) -> u64 {
        self.names.get(&id).copied().unwrap_or_default()
    }

    fn dispatch(&mut self) -> String {
        let Dispatch::Run(run) = self.queue.dispatch(self.now) else { return "-".to_owned() };
        let mut reply = Vec::new();
        let mut at = Some(run.head);
        while let Some(id) = at {
            let whole = self.queue.request(id).map_or(run.blocks, |r| r.blocks);
            let name = self.name(id);
            let blocks = if run.count == 1 { run.blocks } else { whole };
            if let Some(known) = self.known.get_mut(&name) {
                known.out.push_back(blocks);
            }
            reply.push(if blocks == whole {
                name.to_string()
            } else {
                format!("{name} @{}+{blocks}", run.offset)
            });
            at = self.queue.next_member(id);
        }
        reply.join(" ")
    }

    fn complete(&mut self, name: u64) -> Result<(), String> {
        let known = self.known.get_mut(&name);
        let known = known.ok_or_else(|| format!("c: {name} is not known, or completed already"))?;
        let blocks = known.out.pop_front().ok_or_else(|| format!("c: {name} is not at the device"))?;
        let id = known.id;
        let done = self.queue.complete(id, Outcome { blocks, failed: false }, self.now);
        let done = done.ok_or_else(|| format!("c: {name} is not at the device"))?;
        let count = self.counts.entry((done.request.stream.0, done.request.is_sync())).or_default();
        count.sectors += u64::from(blocks);
        if done.last {
            count.completed += 1;
            self.known.remove(&name);
            self.names.remove(&id);
        }
        Ok(())
    }

    fn set(&mut self, rest: &str) -> Result<(), String> {
        let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let number = |min: usize, max: usize| {
            let mut f = Fields::new("set", text);
            f.number(name, min, max).and_then(|v| f.end().map(|()| v))
        };
        match (self.queue.tune(name, text), name) {
            (Ok(()), _) => {}
            (_, "") => return Err("set: the tunable is missing".to_owned()),
            (Err(TuneError::Unknown), "nr_requests") => self.tags = number(1, 1 << 20)?,
            (Err(TuneError::Unknown), "rotational") => drop(number(0, 1)?),
            (Err(TuneError::Unknown), "nomerges") => {
                let merges = [Merges::All, Merges::LastOnly, Merges::None][number(0, 2)?];
                self.queue.set_limits(Limits { merges, ..self.queue.limits() });
            }
            (Err(e), _) => {
                let mut known = tunables(&self.queue);
                known.extend(["nr_requests", "nomerges", "rotational"]);
                return Err(refused("set", self.queue.name(), name, text, e, &known));
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let (len, queued) = (self.queue.len(), self.queue.queued());
        let out: usize = self.known.values().map(|k| k.out.len()).sum();
        let admits = |kind| self.queue.admits(kind, self.tags);
        let mut text = format!(
            "policy={} now={} requests={len} runs_queued={queued} at_device={out} admits={}/{}/{} of {}",
            self.queue.name(),
            self.now.as_nanos(),
            admits(Kind::Read),
            admits(Kind::SyncWrite),
            admits(Kind::Async),
            self.tags
        );
        for t in (0..).map_while(|i| self.queue.tunable(i)) {
            text.push_str(&format!(" {}={}", t.name, t.value));
        }
        text
    }

    fn stream(&self, pid: u32, sync: Option<bool>) -> Result<String, String> {
        let mut sum = Count::default();
        let mut seen = self.priorities.contains_key(&pid);
        for (_, c) in self.counts.iter().filter(|((p, s), _)| *p == pid && sync.is_none_or(|w| w == *s)) {
            seen = true;
            sum.arrived += c.arrived;
            sum.completed += c.completed;
            sum.sectors += c.sectors;
        }
        if !seen {
            return Err(format!("w: nothing is known of stream {pid}"));
        }
        let requests = |k: &&Known| {
            let r = self.queue.request(k.id);
            r.is_some_and(|r| r.stream.0 == pid && sync.is_none_or(|w| w == r.is_sync()))
        };
        let at_device = self.known.values().filter(requests).filter(|k| !k.out.is_empty()).count();
        let p = self.priorities.get(&pid).copied().unwrap_or_default();
        let class = match p.class {
            Class::None => "none",
            Class::RealTime => "1",
            Class::BestEffort => "2",
            Class::Idle => "3",
        };
        Ok(format!(
            "pid={pid} class={class} level={} arrived={} at_device={at_device} completed={} sectors={}",
            p.level, sum.arrived, sum.completed, sum.sectors
        ))
    }
}

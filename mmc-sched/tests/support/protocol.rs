//! The line protocol of the golden traces: one command a line, one reply line each.
//!
//! `reset [nr]` · `q nomerges|max_sectors|max_segments|max_discard_segments V` · `t ms` ·
//! `i|b id r|w|d|z prio sector n [flags hnsf]` · `d` · `c id` · `rq id` · `set name text` · `get name` · `a dir [s]` ·
//! `w` · `s`. Misuse is answered with one `E …` line and changes nothing.

use mmc_sched::{
    Class, Dispatch, Flags, Inserted, Joined, Kind, Limits, Merges, MqDeadline, Op, Outcome, Priority, Queue,
    Request, RequestId, Run, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::Instant;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Drives one `mq-deadline` over text.
pub(crate) struct Driver {
    queue: Queue<Vec<Slot>, MqDeadline>,
    tags: u32,
    now: Instant,
    ids: HashMap<u64, RequestId>,
    names: HashMap<RequestId, u64>,
    /// What Linux calls a request: not bios and not what was absorbed.
    requests: BTreeSet<u64>,
    /// Runs at the device, by that request.
    out: BTreeMap<u64, (Run, Vec<RequestId>)>,
}

const SLOTS: usize = 4096;

impl Driver {
    pub(crate) fn new(tags: u32) -> Self {
        let mut policy = MqDeadline::new();
        policy.set_nr_requests(tags);
        Self {
            queue: Queue::new(vec![Slot::FREE; SLOTS], policy),
            tags,
            now: Instant::ZERO,
            ids: HashMap::new(),
            names: HashMap::new(),
            requests: BTreeSet::new(),
            out: BTreeMap::new(),
        }
    }

    pub(crate) fn line(&mut self, line: &str) -> String {
        self.command(line).unwrap_or_else(|fault| format!("E {fault}"))
    }

    fn command(&mut self, line: &str) -> Result<String, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |i: usize| fields.get(i).copied().ok_or(format!("{word}: too few fields"));
        let number = |i: usize| -> Result<u64, String> {
            let text = field(i)?;
            text.parse().map_err(|_| format!("{word}: {text} is not a number"))
        };
        match word {
            "reset" => {
                let tags = if fields.is_empty() { 128 } else { number(0)? };
                *self = Self::new(u32::try_from(tags).map_err(|_| "reset: too many requests")?);
                Ok("R".into())
            }
            "q" => {
                let mut limits = self.queue.limits();
                let v = number(1)?;
                match field(0)? {
                    "nomerges" => {
                        limits.merges = match v {
                            0 => Merges::All,
                            1 => Merges::LastOnly,
                            _ => Merges::None,
                        }
                    }
                    "max_sectors" => limits.max_sectors = u32::try_from(v).unwrap_or(u32::MAX),
                    "max_segments" => limits.max_segments = u16::try_from(v).unwrap_or(u16::MAX),
                    "max_discard_segments" => {
                        limits.max_discard_segments = u16::try_from(v).unwrap_or(u16::MAX)
                    }
                    other => return Err(format!("q: no limit {other}")),
                }
                self.queue.set_limits(Limits { ..limits });
                Ok("K".into())
            }
            "t" => {
                self.now = Instant::from_millis(number(0)?);
                Ok("T".into())
            }
            "i" | "b" => {
                let flags = fields.get(5).copied().unwrap_or("");
                let r = request(field(1)?, field(2)?, number(3)?, number(4)?, flags)?;
                self.insert(number(0)?, r, word == "b", flags.contains('h'))
            }
            "d" => Ok(self.dispatch()),
            "c" => {
                let id = number(0)?;
                let (_, members) = self.out.remove(&id).ok_or(format!("c: {id} is not at the device"))?;
                for m in members {
                    let blocks = self.queue.request(m).expect("in flight").blocks;
                    let done = self.queue.complete(m, Outcome { blocks, failed: false }, self.now);
                    assert!(done.expect("in flight").last);
                    assert!(self.queue.complete(m, Outcome { blocks, failed: false }, self.now).is_none());
                    let name = self.names.remove(&m).expect("named");
                    self.ids.remove(&name);
                    self.requests.remove(&name);
                }
                Ok("C".into())
            }
            "rq" => {
                let id = number(0)?;
                let (run, _) = self.out.remove(&id).ok_or(format!("rq: {id} is not at the device"))?;
                self.queue.requeue(&run, self.now);
                Ok("Q".into())
            }
            "set" => {
                let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let rc = match self.queue.tune(name, text) {
                    Ok(()) => 0,
                    Err(TuneError::Invalid) => -22,
                    Err(TuneError::Range) => -34,
                    Err(_) => return Err(format!("set: no tunable {name}")),
                };
                self.value(name, rc)
            }
            "get" => self.value(field(0)?, 0),
            "a" => {
                let write = field(0)? != "r";
                let sync = fields.get(1).is_some_and(|f| f.contains('s') || f.contains('f'));
                let kind = match (write, sync) {
                    (false, _) => Kind::Read,
                    (true, true) => Kind::SyncWrite,
                    (true, false) => Kind::Async,
                };
                let depth = self.queue.admits(kind, self.tags as usize);
                // The original answers "no limit" for synchronous reads.
                Ok(format!("A {}", if kind == Kind::Read { 0 } else { depth }))
            }
            "w" => Ok(format!("W {}", u8::from(self.queue.queued() != 0))),
            "s" => Ok(format!("S {}", self.queue.policy().state())),
            other => Err(format!("no command {other}")),
        }
    }

    fn value(&self, name: &str, rc: i32) -> Result<String, String> {
        let info = (0..).map_while(|i| self.queue.tunable(i)).find(|t| t.name == name);
        let info = info.ok_or(format!("get: no tunable {name}"))?;
        Ok(format!("V {name} {rc} {}", info.value))
    }

    fn insert(&mut self, name: u64, r: Request, bio: bool, at_head: bool) -> Result<String, String> {
        if self.ids.contains_key(&name) {
            return Err(format!("i: {name} is in use"));
        }
        let merged = if bio { self.queue.merge(&r, self.now) } else { None };
        let (id, what) = match merged {
            Some(m) => m,
            None if at_head => self.queue.insert_at_head(r, self.now).map_err(|(_, e)| format!("i: {e}"))?,
            None => self.queue.insert(r, self.now).map_err(|(_, e)| format!("i: {e}"))?,
        };
        self.ids.insert(name, id);
        self.names.insert(id, name);
        let into = match what {
            Inserted::Queued => {
                self.requests.insert(name);
                return Ok(format!("I {name} queued"));
            }
            Inserted::Merged { into } => into,
        };
        // The requests that were absorbed stand behind `into` in its run: the rightmost went first.
        let mut chain = vec![self.names[&into]];
        let mut at = into;
        while let Some(next) = self.queue.next_member(at) {
            let n = self.names[&next];
            if self.requests.remove(&n) {
                chain.push(n);
            }
            at = next;
        }
        let how = match self.queue.joined().expect("merged") {
            Joined::Back => "back",
            Joined::Front => "front",
            Joined::Request => {
                chain.push(name);
                "req"
            }
        };
        let mut reply = format!("I {name} merged {} {how}", chain[0]);
        for pair in chain.windows(2).rev() {
            reply += &format!(" {}>{}", pair[1], pair[0]);
        }
        Ok(reply)
    }

    fn dispatch(&mut self) -> String {
        let run = match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => run,
            Dispatch::Wait { at, completion } => {
                assert!(completion || at.is_some(), "a wait says what ends it");
                assert!(at.is_none_or(|t| t > self.now), "{at:?}");
                assert_ne!(self.queue.queued(), 0);
                return "D -".into();
            }
            Dispatch::Empty => {
                assert_eq!(self.queue.queued(), 0);
                return "D -".into();
            }
        };
        let mut members = vec![run.head];
        while let Some(next) = self.queue.next_member(members[members.len() - 1]) {
            members.push(next);
        }
        assert_eq!(members.len(), usize::from(run.count));
        let names: Vec<u64> = members.iter().map(|m| self.names[m]).collect();
        let request = *names.iter().find(|n| self.requests.contains(n)).expect("a run holds one request");
        let mut reply = format!("D {request} {} {}", run.lba, run.blocks);
        for n in &names {
            reply += &format!(" {n}");
        }
        self.out.insert(request, (run, members));
        reply
    }
}

fn request(dir: &str, prio: &str, lba: u64, blocks: u64, flags: &str) -> Result<Request, String> {
    let op = match dir {
        "r" => Op::Read,
        "w" => Op::Write,
        "d" => Op::Discard,
        "z" => Op::WriteZeroes,
        other => return Err(format!("i: no direction {other}")),
    };
    let (class, level) = prio.split_at(prio.len() - prio.chars().filter(char::is_ascii_digit).count());
    let class = match class {
        "none" => Class::None,
        "rt" => Class::RealTime,
        "be" => Class::BestEffort,
        "idle" => Class::Idle,
        other => return Err(format!("i: no class {other}")),
    };
    let mut r = Request::new(op, lba, u32::try_from(blocks).map_err(|_| "i: too many sectors")?, StreamId(0));
    r.priority = Priority { class, level: level.parse().unwrap_or(0) };
    for c in flags.chars() {
        r.flags |= match c {
            'n' => Flags::NOMERGE,
            's' => Flags::SYNC,
            'f' => Flags::FUA | Flags::SYNC,
            'h' => Flags::empty(),
            other => return Err(format!("i: no flag {other}")),
        };
    }
    Ok(r)
}

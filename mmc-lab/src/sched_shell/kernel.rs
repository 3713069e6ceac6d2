//! The protocol of `mq-deadline`, as its recorded scenarios use it.
//!
//! It is not how a block layer calls a scheduler: like the kernel's own code it tells requests from bios.
//!
//! | command | reply |
//! |---|---|
//! | `reset [nr]`: a fresh scheduler, empty, with so many tags | `R` |
//! | `q nomerges\|max_sectors\|max_segments\|max_discard_segments V` | `K` |
//! | `t ms`: the clock, absolute | `T` |
//! | `i id r\|w\|d\|z prio sector n [flags]`: a request; `b …`: a bio | `I id queued` or `I id merged INTO req\|back\|front [a>b …]` |
//! | `d`: what goes out | `D id sector n members…` or `D -` |
//! | `c id`, `rq id`: it completes, it is requeued | `C`, `Q` |
//! | `set name text`, `get name` | `V name rc value` |
//! | `a dir [s]`: tags such a request may hold, 0 for no limit | `A depth` |
//! | `w`: is there work | `W 0\|1` |
//! | `s` | `S last_dir batching starved qRT qBE qIDLE oRT oBE oIDLE` |
//!
//! `prio` is `none`, `rt`, `be` or `idle` and a level 0–7; flags are `n` (does not merge), `s` (sync), `f` (FUA), `h`
//! (at the head).

use super::{Fields, SLOTS, apply, refused, tunables};
use mmc_sched::{
    Class, Dispatch, Flags, Inserted, Joined, Kind, Merges, MqDeadline, Op, Outcome, Priority, Queue,
    Request, RequestId, Run, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::Instant;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Tags, unless `reset` says otherwise.
const TAGS: u32 = 128;

/// One `mq-deadline`.
#[derive(Debug)]
pub struct Shell {
    /// With the tunables set that were asked for, and never used: what `reset` starts from.
    fresh: MqDeadline,
    queue: Queue<Box<[Slot]>, MqDeadline>,
    tags: u32,
    now: Instant,
    ids: HashMap<u64, RequestId>,
    names: HashMap<RequestId, u64>,
    /// What Linux calls a request: not bios, and not what was absorbed.
    requests: BTreeSet<u64>,
    /// At the device, by that request: the run and its members.
    out: BTreeMap<u64, (Run, Vec<RequestId>)>,
}

impl Shell {
    /// The policy as it is set now.
    #[must_use]
    pub fn policy(&self) -> &MqDeadline {
        self.queue.policy()
    }
    /// `policy` with these tunables.
    ///
    /// # Errors
    /// One line naming the tunable.
    pub fn new(mut policy: MqDeadline, sets: &[(String, String)]) -> Result<Self, String> {
        apply(&mut policy, sets)?;
        Ok(Self::fresh(policy, TAGS))
    }

    fn fresh(policy: MqDeadline, tags: u32) -> Self {
        let mut tagged = policy;
        tagged.set_nr_requests(tags);
        Self {
            fresh: policy,
            queue: Queue::new(vec![Slot::FREE; SLOTS].into_boxed_slice(), tagged),
            tags,
            now: Instant::ZERO,
            ids: HashMap::new(),
            names: HashMap::new(),
            requests: BTreeSet::new(),
            out: BTreeMap::new(),
        }
    }

    pub(super) fn command(&mut self, word: &str, rest: &str) -> Result<String, String> {
        let mut f = Fields::new(word, rest);
        if word == "set" {
            let (name, text) = rest.split_once(' ').unwrap_or((rest, ""));
            return self.set(name, text);
        }
        let reply = match word {
            "reset" => {
                let tags = if f.more() { f.number("nr", 1, 1 << 20)? } else { TAGS };
                f.end()?;
                *self = Self::fresh(self.fresh, tags);
                "R".to_owned()
            }
            "q" => {
                let (name, v) = (f.text("the limit")?, f.number("the value", 0, u32::MAX)?);
                f.end()?;
                self.limit(name, v)?;
                "K".to_owned()
            }
            "t" => {
                let ms = f.number("ms", 0, u64::MAX / 1_000_000)?;
                f.end()?;
                let to = Instant::from_millis(ms);
                if to < self.now {
                    let now = self.now.as_nanos() / 1_000_000;
                    return Err(format!("t: {ms} is before {now}: time never goes back"));
                }
                self.now = to;
                "T".to_owned()
            }
            "i" | "b" => {
                let name = f.number("the id", 0, u64::MAX)?;
                let (r, at_head) = request(&mut f)?;
                f.end()?;
                return self.insert(word, name, r, at_head);
            }
            "d" => {
                f.end()?;
                self.dispatch()
            }
            "c" => {
                let (_, members) = self.take(word, &mut f)?;
                for m in members {
                    let blocks = self.queue.request(m).map_or(0, |r| r.blocks);
                    self.queue.complete(m, Outcome { blocks, failed: false }, self.now);
                    if let Some(name) = self.names.remove(&m) {
                        self.ids.remove(&name);
                        self.requests.remove(&name);
                    }
                }
                "C".to_owned()
            }
            "rq" => {
                let (run, _) = self.take(word, &mut f)?;
                self.queue.requeue(&run, self.now);
                "Q".to_owned()
            }
            "get" => {
                let name = f.text("the tunable")?;
                f.end()?;
                self.value(word, name, 0)?
            }
            "a" => self.depth(&mut f)?,
            "w" => {
                f.end()?;
                format!("W {}", u8::from(self.queue.queued() != 0))
            }
            "s" => {
                f.end()?;
                format!("S {}", self.queue.policy().state())
            }
            other => {
                return Err(format!(
                    "{other:?} is no command: reset, q, t, i, b, d, c, rq, set, get, a, w, s, x"
                ));
            }
        };
        Ok(reply)
    }

    fn limit(&mut self, name: &str, v: u32) -> Result<(), String> {
        let mut limits = self.queue.limits();
        let few = || u16::try_from(v).map_err(|_| format!("q: {name} {v} is above {}", u16::MAX));
        match (name, v) {
            ("nomerges", 0) => limits.merges = Merges::All,
            ("nomerges", 1) => limits.merges = Merges::LastOnly,
            ("nomerges", 2) => limits.merges = Merges::None,
            ("nomerges", _) => return Err(format!("q: nomerges {v} is not 0, 1 or 2")),
            ("max_sectors", _) => limits.max_sectors = v,
            ("max_segments", _) => limits.max_segments = few()?,
            ("max_discard_segments", _) => limits.max_discard_segments = few()?,
            _ => {
                let all = "nomerges, max_sectors, max_segments, max_discard_segments";
                return Err(format!("q: {name:?} is no limit: {all}"));
            }
        }
        self.queue.set_limits(limits);
        Ok(())
    }

    fn set(&mut self, name: &str, text: &str) -> Result<String, String> {
        if name.is_empty() {
            return Err("set: the tunable is missing".to_owned());
        }
        let rc = match self.queue.tune(name, text) {
            Ok(()) => 0,
            Err(TuneError::Invalid) => -22,
            Err(TuneError::Range) => -34,
            Err(e) => return Err(refused("set", self.queue.name(), name, text, e, &tunables(&self.queue))),
        };
        self.value("set", name, rc)
    }

    fn value(&self, word: &str, name: &str, rc: i32) -> Result<String, String> {
        let info = (0..).map_while(|i| self.queue.tunable(i)).find(|t| t.name == name);
        let unknown =
            || refused(word, self.queue.name(), name, "", TuneError::Unknown, &tunables(&self.queue));
        Ok(format!("V {name} {rc} {}", info.ok_or_else(unknown)?.value))
    }

    fn depth(&self, f: &mut Fields<'_>) -> Result<String, String> {
        let op = op(f)?;
        let flags = f.maybe().unwrap_or_default();
        f.end()?;
        let (flags, _) = parse_flags(f.word, flags)?;
        let kind = Request { flags, ..Request::new(op, 0, 1, StreamId(0)) }.kind();
        // The original limits nothing but says so for reads only.
        let depth = match kind {
            Kind::Read => 0,
            _ => self.queue.admits(kind, self.tags as usize),
        };
        Ok(format!("A {depth}"))
    }

    fn take(&mut self, word: &str, f: &mut Fields<'_>) -> Result<(Run, Vec<RequestId>), String> {
        let id: u64 = f.number("the id", 0, u64::MAX)?;
        f.end()?;
        if let Some(out) = self.out.remove(&id) {
            return Ok(out);
        }
        Err(match self.ids.get(&id) {
            None => format!("{word}: {id} is not known, or completed already"),
            Some(_) if self.requests.contains(&id) => format!("{word}: {id} is still queued"),
            Some(_) => format!("{word}: {id} was merged: name the request that `d` names"),
        })
    }

    fn insert(&mut self, word: &str, name: u64, r: Request, at_head: bool) -> Result<String, String> {
        if self.ids.contains_key(&name) {
            return Err(format!("{word}: {name} is in use"));
        }
        let merged = if word == "b" { self.queue.merge(&r, self.now) } else { None };
        let refused = |(_, e)| format!("{word}: {e}");
        let (id, what) = match merged {
            Some(m) => m,
            None if at_head => self.queue.insert_at_head(r, self.now).map_err(refused)?,
            None => self.queue.insert(r, self.now).map_err(refused)?,
        };
        self.ids.insert(name, id);
        self.names.insert(id, name);
        let Inserted::Merged { into } = what else {
            self.requests.insert(name);
            return Ok(format!("I {name} queued"));
        };
        // The requests that were absorbed stand behind `into` in its run: the rightmost went first.
        let mut chain = vec![self.name(into)];
        let mut at = into;
        while let Some(next) = self.queue.next_member(at) {
            let n = self.name(next);
            if self.requests.remove(&n) {
                chain.push(n);
            }
            at = next;
        }
        let how = match self.queue.joined() {
            Some(Joined::Back) => "back",
            Some(Joined::Front) => "front",
            _ => {
                chain.push(name);
                "req"
            }
        };
        let mut reply = format!("I {name} merged {} {how}", chain[0]);
        for pair in chain.windows(2).rev() {
            reply.push_str(&format!(" {}>{}", pair[1], pair[0]));
        }
        Ok(reply)
    }

    fn name(&self, id: RequestId) -> u64 {
        self.names.get(&id).copied().unwrap_or_default()
    }

    fn dispatch(&mut self) -> String {
        let Dispatch::Run(run) = self.queue.dispatch(self.now) else { return "D -".to_owned() };
        let members: Vec<RequestId> =
            std::iter::successors(Some(run.head), |m| self.queue.next_member(*m)).collect();
        let names: Vec<u64> = members.iter().map(|m| self.name(*m)).collect();
        // One of them is what Linux calls the request; the others are its bios.
        let request = names.iter().copied().find(|n| self.requests.contains(n)).unwrap_or(names[0]);
        self.out.insert(request, (run, members));
        let names: String = names.iter().map(|n| format!(" {n}")).collect();
        format!("D {request} {} {}{names}", run.lba, run.blocks)
    }
}

fn op(f: &mut Fields<'_>) -> Result<Op, String> {
    match f.text("the direction")? {
        "r" => Ok(Op::Read),
        "w" => Ok(Op::Write),
        "d" => Ok(Op::Discard),
        "z" => Ok(Op::WriteZeroes),
        other => Err(format!("{}: {other:?} is no direction: r, w, d, z", f.word)),
    }
}

fn priority(f: &mut Fields<'_>) -> Result<Priority, String> {
    let text = f.text("the priority")?;
    let digit = text.chars().next_back().and_then(|c| c.to_digit(10));
    let class = digit.map_or(text, |_| &text[..text.len() - 1]);
    let class = match class {
        "none" => Class::None,
        "rt" => Class::RealTime,
        "be" => Class::BestEffort,
        "idle" => Class::Idle,
        _ => return Err(format!("{}: {text:?} is no priority: none, rt, be, idle and a level", f.word)),
    };
    match u8::try_from(digit.unwrap_or(0)) {
        Ok(level @ 0..=7) => Ok(Priority { class, level }),
        _ => Err(format!("{}: the level of {text:?} is not 0 to 7", f.word)),
    }
}

/// The flags, and whether the request goes to the head.
fn parse_flags(word: &str, text: &str) -> Result<(Flags, bool), String> {
    let (mut flags, mut at_head) = (Flags::empty(), false);
    for c in text.chars() {
        match c {
            'n' => flags |= Flags::NOMERGE,
            's' => flags |= Flags::SYNC,
            'f' => flags |= Flags::FUA | Flags::SYNC,
            'h' => at_head = true,
            other => return Err(format!("{word}: {other:?} is no flag: h, n, s, f")),
        }
    }
    Ok((flags, at_head))
}

fn request(f: &mut Fields<'_>) -> Result<(Request, bool), String> {
    let (op, priority) = (op(f)?, priority(f)?);
    let (lba, blocks) =
        (f.number("the sector", 0, u64::MAX)?, f.number("the number of sectors", 0, u32::MAX)?);
    let (flags, at_head) = parse_flags(f.word, f.maybe().unwrap_or_default())?;
    Ok((Request { flags, priority, ..Request::new(op, lba, blocks, StreamId(0)) }, at_head))
}

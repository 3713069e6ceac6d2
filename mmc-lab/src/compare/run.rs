//! One run: a policy, a card, a workload, a seed.
//!
//! Nothing merges; a request holds a tag from admission to completion, and who finds none waits in the order of
//! arrival, but does not hold up another kind that may go on.

use super::file::{Kind, Scenario};
use super::guard::Guard;
use super::load::{Answer, Source, Wanted};
use mmc_mock::scenario::{Card, Command, Device};
use mmc_sched::{
    AnyPolicy, Dispatch, Flags, Limits, Merges, Op, Outcome as End, Queue, Request, Run, Scheduler, Slot,
    StreamId,
};
use mmc_time::Instant;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// When all loads have begun and a fairness index means something.
const SETTLED: u64 = 7_000_000_000;
const WORST_STALL: u64 = 400_000_000;
const WORST_EVERY: u64 = 1_500_000_000;

/// A policy with its settings, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Name, as Linux spells it.
    pub name: String,
    /// Tunables that were set, in the order given.
    pub settings: Vec<(String, String)>,
}

/// The schedulers that are compared.
pub type Sched = Queue<Vec<Slot>, AnyPolicy>;

impl Spec {
    /// How it is shown: `bfq:slice_idle=0`.
    #[must_use]
    pub fn label(&self) -> String {
        let settings: String = self.settings.iter().map(|(k, v)| format!(":{k}={v}")).collect();
        format!("{}{settings}", self.name)
    }
    /// The scheduler, tuned, without merging.
    ///
    /// # Errors
    /// One line naming the value and what is accepted.
    pub fn build(&self, tags: usize) -> Result<Sched, String> {
        let policy = AnyPolicy::by_name(&self.name).map_err(|e| format!("scheduler '{}': {e}", self.name))?;
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let mut sched = Queue::with_limits(vec![Slot::FREE; tags], policy, limits);
        for (key, value) in &self.settings {
            let known: Vec<_> = crate::experiment::tunables(&sched).collect();
            let Some(t) = known.iter().find(|t| t.name == key) else {
                let names: Vec<_> = known.iter().map(|t| t.name).collect();
                return Err(format!(
                    "{} has no tunable '{key}': accepted are {}",
                    self.name,
                    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                ));
            };
            let (min, max) = (t.min, t.max);
            if !value.parse::<i64>().is_ok_and(|v| (min..=max).contains(&v)) {
                return Err(format!("{key}={value} is out of range: {} accepts {min} to {max}", self.name));
            }
            sched.tune(key, value).map_err(|e| format!("{key}={value}: {e}"))?;
        }
        Ok(sched)
    }
}

/// Latencies in ns: 50th and 99th percentile and the longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Half are not longer.
    pub p50: u64,
    /// 99 of 100 are not longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// Of what was measured; `None` of nothing.
    fn of(mut all: Vec<u64>) -> Option<Self> {
        all.sort_unstable();
        let at = |i: usize| all.get(i.min(all.len().saturating_sub(1))).copied();
        let n = all.len();
        Some(Self { p50: at(n / 2)?, p99: at(n * 99 / 100)?, max: at(n)? })
    }
}

/// What became of one load.
#[derive(Clone, Debug)]
pub struct StreamResult {
    /// Its name.
    pub name: String,
    /// Somebody waits for its requests.
    pub sync: bool,
    /// Requests done.
    pub done: u64,
    /// Bytes done.
    pub bytes: u64,
    /// From submission to completion, waiting for tags included; `None` if nothing was done.
    pub latency: Option<Latency>,
    /// The same without the time the card stalled.
    pub stall_free: Option<Latency>,
    /// Time the card spent on it, stalls not counted, in ns.
    pub service: u64,
    /// Longest wait for a tag, in ns.
    pub tag_wait: u64,
}

/// Where the time of the card went, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Setup and transfer.
    pub productive: u64,
    /// Opening allocation units.
    pub au_switch: u64,
    /// Setup of later parts.
    pub split: u64,
    /// Seeks in streams that did not ask for them.
    pub seek: u64,
    /// Waiting for the host to send what it could have sent before.
    pub gap: u64,
    /// Idle while a request was queued.
    pub idle: u64,
    /// Garbage collection; not part of the efficiency.
    pub stall: u64,
}

impl Account {
    /// The share of the time that was useful, garbage collection apart.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        let lost = self.au_switch + self.split + self.seek + self.gap + self.idle;
        if self.productive == 0 {
            return 0.0;
        }
        self.productive as f64 / (self.productive + lost) as f64
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where the time went.
    pub account: Account,
    /// All loads that submit requests.
    pub streams: Vec<StreamResult>,
    /// Smallest over largest time the card gave to loads that do the same, from the 7th second on; `None` if no
    /// two do.
    pub fairness: Option<f64>,
    /// Commands sent.
    pub commands: u64,
    /// Length of the run in ns.
    pub length: u64,
    /// What `ftb` promises: how often it was looked at, and what was not kept.
    pub guard: Guard,
}

impl Outcome {
    /// MiB a second, all loads together.
    #[must_use]
    pub fn mib_s(&self) -> f64 {
        let bytes: u64 = self.streams.iter().map(|s| s.bytes).sum();
        per_second(bytes as f64 / f64::from(1 << 20), self.length)
    }
}

/// A rate.
#[must_use]
pub fn per_second(n: f64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { n / (ns as f64 / 1e9) }
}

/// All that decides a run.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The policy.
    pub spec: &'a Spec,
    /// The card.
    pub card: &'a Card,
    /// The workload.
    pub scenario: &'a Scenario,
    /// Tags of the pool.
    pub tags: usize,
    /// Seed of the loads and of the card.
    pub seed: u64,
    /// Processor time of a command in ns; the processor does one thing at a time.
    pub cpu_cost: u64,
}

#[derive(Debug, Default)]
struct Tally {
    latency: Vec<u64>,
    stall_free: Vec<u64>,
    bytes: u64,
    service: u64,
    settled_service: u64,
    tag_wait: u64,
}

/// A request that waits for a tag.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    load: usize,
    wanted: Wanted,
    since: u64,
    /// For a tag.
    waited: u64,
}

/// What happens at an instant beside completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin(usize),
    Wake(usize, u64),
    Send(u64),
}

struct Sim<'a> {
    job: &'a Job<'a>,
    now: u64,
    sched: Sched,
    device: Device,
    sources: Vec<Source>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    wake: Option<u64>,
    waiting: VecDeque<Waiting>,
    /// By slot of the pool.
    admitted: Vec<Option<Waiting>>,
    tags_used: usize,
    held: [usize; 3],
    /// Commands by token; those at the host or the card.
    runs: Vec<Option<Run>>,
    /// Of each, what goes to the card after the processor is done with it.
    commands: u64,
    sent: usize,
    host_free: u64,
    worst: Option<u64>,
    account: Account,
    tallies: Vec<Tally>,
    guard: Guard,
}

impl Job<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// One line: a setting that is wrong, or a policy that breaks the contract of a scheduler.
    pub fn run(&self) -> Result<Outcome, String> {
        let mut sched = self.spec.build(self.tags)?;
        if !self.spec.settings.iter().any(|(k, _)| k == "device_slots") {
            set_slots(&mut sched, self.card.slots);
        }
        let loads = &self.scenario.loads;
        let mut sim = Sim {
            job: self,
            now: 0,
            sched,
            device: Device::new(self.card.clone(), self.seed),
            sources: loads.iter().map(|l| Source::new(l, self.seed)).collect(),
            events: BinaryHeap::new(),
            order: 0,
            wake: None,
            waiting: VecDeque::new(),
            admitted: vec![None; self.tags],
            tags_used: 0,
            held: [0; 3],
            runs: Vec::new(),
            commands: 0,
            sent: 0,
            host_free: 0,
            worst: None,
            account: Account::default(),
            tallies: loads.iter().map(|_| Tally::default()).collect(),
            guard: Guard::new(&self.spec.name, self.card, self.tags),
        };
        for (i, l) in loads.iter().enumerate() {
            sim.at(l.start, Event::Begin(i));
        }
        sim.run().map_err(|e| format!("{}: {e}", self.spec.label()))?;
        Ok(sim.outcome())
    }
}

/// Tells a policy that wants to know how many commands the card takes.
fn set_slots(sched: &mut Sched, slots: usize) {
    let known: Vec<_> = crate::experiment::tunables(sched).collect();
    if let Some(t) = known.iter().find(|t| t.name == "device_slots") {
        let n = i64::try_from(slots).unwrap_or(t.max).clamp(t.min, t.max);
        // In range, so it is accepted.
        let _ = sched.tune(t.name, &n.to_string());
    }
}

/// Gives a stream a weight, where the policy has weights.
fn set_weight(sched: &mut Sched, pid: u32, weight: u32) {
    let (stream, weight) = (StreamId(pid), Some(weight));
    // Both are 1..=1000, and only one stream has a weight of its own: always accepted.
    match sched.policy_mut() {
        AnyPolicy::Bfq(bfq) => drop(bfq.set_weight(stream, weight)),
        AnyPolicy::Ftb(ftb) => drop(ftb.set_weight(stream, weight)),
        _ => {}
    }
}

/// The most the policy charges for a write before it knows better: its own expectation of this one, or of a part of
/// writeback, which is the head start of all that is waited for.
fn expected(sched: &Sched, run: &Run) -> u64 {
    match sched.policy() {
        AnyPolicy::Ftb(ftb) => {
            let blocks = if run.op.is_read() { 0 } else { run.blocks };
            ftb.expected_write(blocks.max(ftb.chunk())).as_nanos()
        }
        _ => 0,
    }
}

fn instant(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

impl Sim<'_> {
    fn at(&mut self, when: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((when, self.order, event)));
    }

    fn run(&mut self) -> Result<(), String> {
        let end = self.job.scenario.length;
        loop {
            let event = self.events.peek().map(|Reverse((t, _, _))| *t);
            let ended = self.device.next_end();
            let next = [event, ended, self.wake].into_iter().flatten().min();
            let until = next.map_or(end, |t| t.min(end));
            if self.device.is_idle() && (self.sent > 0 || !self.sched.is_empty()) {
                self.account.idle += until - self.now;
                self.guard.idled(until - self.now);
            }
            self.now = until;
            let Some(next) = next.filter(|t| *t < end) else { return Ok(()) };
            if ended == Some(next) {
                self.complete();
            } else if event == Some(next) {
                self.event();
            } else {
                self.wake = None;
            }
            self.kick()?;
        }
    }

    fn event(&mut self) {
        let Some(Reverse((_, _, event))) = self.events.pop() else { return };
        let mut answer = Answer::default();
        match event {
            Event::Begin(i) => {
                if self.job.scenario.loads[i].kind == Kind::WorstStalls {
                    self.worst = Some(self.now);
                }
                self.sources[i].begin(self.now, &mut answer);
                self.heed(i, answer);
            }
            Event::Wake(i, what) => {
                self.sources[i].wake(what, self.now, &mut answer);
                self.heed(i, answer);
            }
            Event::Send(token) => self.send(token),
        }
        self.admit();
    }

    /// Does what a source wants.
    fn heed(&mut self, load: usize, answer: Answer) {
        for (when, what) in answer.wake {
            self.at(when, Event::Wake(load, what));
        }
        if let Some((pid, weight)) = answer.weight {
            set_weight(&mut self.sched, pid, weight);
            self.guard.weight(pid, weight);
        }
        for wanted in answer.wanted {
            if wanted.sync
                && self.worst.is_some_and(|from| from <= self.now)
                && self.device.stall_running_write(WORST_STALL)
            {
                self.worst = Some(self.now + WORST_EVERY);
            }
            self.waiting.push_back(Waiting { load, wanted, since: self.now, waited: 0 });
        }
    }

    /// Gives tags to those who wait.
    fn admit(&mut self) {
        let mut i = 0;
        while self.tags_used < self.job.tags {
            let Some(&w) = self.waiting.get(i) else { return };
            let r = request(&w.wanted);
            let kind = r.kind();
            let admits = self.sched.admits(kind, self.job.tags);
            if self.held[kind as usize] >= admits || !self.sched.admits_request(&r, self.job.tags) {
                i += 1;
                continue;
            }
            match self.sched.insert(r, instant(self.now)) {
                Ok((id, _)) => {
                    self.waiting.remove(i);
                    self.tags_used += 1;
                    self.held[kind as usize] += 1;
                    let waited = self.now - w.since;
                    self.admitted[id.slot()] = Some(Waiting { waited, ..w });
                    let tally = &mut self.tallies[w.load];
                    tally.tag_wait = tally.tag_wait.max(waited);
                    self.guard.admitted(id.slot(), &w.wanted, waited, self.now);
                    let mut answer = Answer::default();
                    self.sources[w.load].admitted(self.now, &mut answer);
                    self.heed(w.load, answer);
                }
                // The policy itself has no room for this stream now.
                Err(_) => i += 1,
            }
        }
    }

    fn kick(&mut self) -> Result<(), String> {
        while self.sent < self.job.card.slots {
            let run = match self.sched.dispatch(instant(self.now)) {
                Dispatch::Run(run) => run,
                Dispatch::Wait { at, completion } => {
                    self.wake = at.map(Instant::as_nanos);
                    if self.wake.is_some_and(|t| t <= self.now) {
                        return Err(format!(
                            "asks at {} ns to be asked again at an instant that is not later",
                            self.now
                        ));
                    }
                    if at.is_none() && !(completion && self.sent > 0) {
                        return Err(format!("waits at {} ns for nothing that can come", self.now));
                    }
                    return Ok(());
                }
                Dispatch::Empty => break,
            };
            self.wake = None;
            let token = self.runs.iter().position(Option::is_none).unwrap_or(self.runs.len());
            if token == self.runs.len() {
                self.runs.push(None);
            }
            self.runs[token] = Some(run);
            self.commands += 1;
            self.sent += 1;
            let whole = self.admitted[run.head.slot()].map_or(0, |w| w.wanted.blocks);
            let (last, read) = (run.offset + run.blocks == whole, run.op.is_read());
            let expected = expected(&self.sched, &run);
            self.guard.dispatched(run.head.slot(), last, read, expected, self.now);
            if self.job.cpu_cost == 0 {
                self.send(token as u64);
            } else {
                self.host_free = self.host_free.max(self.now) + self.job.cpu_cost;
                self.at(self.host_free, Event::Send(token as u64));
            }
        }
        self.wake = None;
        Ok(())
    }

    fn send(&mut self, token: u64) {
        let Some(run) = self.runs[token as usize] else { return };
        let whole = self.admitted[run.head.slot()].is_some_and(|w| w.wanted.continues);
        self.device.send(
            Command {
                token,
                read: run.op.is_read(),
                lba: run.lba,
                blocks: run.blocks,
                later_part: run.offset > 0,
                continues: run.offset > 0 || whole,
            },
            self.now,
        );
    }

    fn complete(&mut self) {
        let Some(ended) = self.device.finish(self.now) else { return };
        let Some(run) = self.runs[ended.command.token as usize].take() else { return };
        self.sent -= 1;
        let (cost, slot) = (ended.cost, run.head.slot());
        let a = &mut self.account;
        a.productive += cost.productive;
        a.au_switch += cost.au_switch;
        a.split += cost.split;
        a.seek += cost.seek;
        a.gap += cost.gap;
        a.stall += cost.stall;
        let end = End { blocks: run.blocks, failed: false };
        let done = self.sched.complete(run.head, end, instant(self.now));
        let Some(w) = self.admitted[slot] else { return };
        let tally = &mut self.tallies[w.load];
        tally.service += cost.service();
        if self.now > SETTLED {
            tally.settled_service += cost.service();
        }
        self.guard.completed(slot, cost.stall, self.now);
        if !done.is_some_and(|d| d.last) {
            return;
        }
        let latency = self.now - w.since;
        let stall_free = latency - self.device.stalled(w.since, self.now).min(latency);
        tally.latency.push(latency);
        tally.stall_free.push(stall_free);
        self.guard.done(slot, stall_free.saturating_sub(w.waited), self.now);
        tally.bytes += u64::from(w.wanted.blocks) * 512;
        self.admitted[slot] = None;
        self.tags_used -= 1;
        self.held[request(&w.wanted).kind() as usize] -= 1;
        let mut answer = Answer::default();
        self.sources[w.load].done(w.wanted.what, self.now, &mut answer);
        self.heed(w.load, answer);
        self.admit();
    }

    fn outcome(self) -> Outcome {
        let loads = &self.job.scenario.loads;
        let fairness = fairness(loads.iter().map(|l| &l.kind).zip(&self.tallies));
        let streams = loads
            .iter()
            .zip(self.tallies)
            .filter(|(l, _)| !matches!(l.kind, Kind::Flip { .. } | Kind::WorstStalls))
            .map(|(l, t)| StreamResult {
                name: l.name.clone(),
                sync: !matches!(l.kind, Kind::Writeback { .. }),
                done: t.latency.len() as u64,
                bytes: t.bytes,
                latency: Latency::of(t.latency),
                stall_free: Latency::of(t.stall_free),
                service: t.service,
                tag_wait: t.tag_wait,
            })
            .collect();
        Outcome {
            account: self.account,
            streams,
            fairness,
            commands: self.commands,
            length: self.job.scenario.length,
            guard: self.guard,
        }
    }
}

fn request(w: &Wanted) -> Request {
    let op = if w.read { Op::Read } else { Op::Write };
    let mut r = Request::new(op, w.lba, w.blocks, StreamId(w.pid));
    r.flags.set(Flags::SYNC, w.sync);
    r
}

/// Loads that differ in nothing but who and where.
fn alike(a: &Kind, b: &Kind) -> bool {
    let plain = |k: &Kind| {
        let mut k = k.clone();
        match &mut k {
            Kind::Writeback { pid, base, .. }
            | Kind::Closed { pid, base, .. }
            | Kind::Periodic { pid, base, .. }
            | Kind::Journal { pid, base, .. }
            | Kind::Churn { pid, base, .. } => (*pid, *base) = (0, 0),
            Kind::FileOps { reader, journal, base, .. } => (*reader, *journal, *base) = (0, 0, 0),
            Kind::Flip { .. } | Kind::WorstStalls => {}
        }
        k
    };
    plain(a) == plain(b)
}

/// Of the first group of loads that are alike.
fn fairness<'a>(all: impl Iterator<Item = (&'a Kind, &'a Tally)>) -> Option<f64> {
    let all: Vec<_> = all.collect();
    let group = |k: &Kind| all.iter().filter(|(o, _)| alike(k, o)).map(|(_, t)| t.settled_service).collect();
    let times: Vec<u64> = all.iter().map(|(k, _)| group(k)).find(|g: &Vec<u64>| g.len() > 1)?;
    let (min, max) = (times.iter().min()?, times.iter().max()?);
    (*max > 0).then(|| *min as f64 / *max as f64)
}

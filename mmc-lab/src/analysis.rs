//! What happened to every request of one device: fed with block-layer events one by one, it answers with a [`Report`].
//!
//! It is independent of where events come from (a reader of `trace`, or the simulator) and streams: what it keeps
//! grows with the requests in flight. Beside them: up to 2 MiB of latencies a class and a task (percentiles are exact up to 262,144
//! bios, then within one part in 2048), the last million issues (16 MiB, to say which went ahead of which), and the longest waits.

mod class;
mod clock;
pub mod commands;
mod depth;
mod log;
mod places;
mod quantiles;
mod record;
mod request;
mod sleep;
mod spread;

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use crate::blame::{Ahead, Blame};
use crate::trace::model::{Event, Kind};

pub use class::{Class, ClassStats, Classes};
pub use clock::Clock;
pub use depth::Depth;
pub use record::{Command, LEAST, ROWS, ROWS_PER_DECADE, Record, row_from};
pub use spread::{Octaves, TaskStats};

use class::{Samples, optional_seconds, seconds};
use clock::Meter;
use request::{Request, Step, Tracker};
use sleep::Sleepers;
use spread::Tasks;

/// Events of one stamp that wait for each other are looked at this often before they are taken as they are: a chain of
/// bios, each merged in front of the one before, needs a round for each.
const SETTLE_ROUNDS: usize = 8;

/// A completion that came before its issue waits for that so long, in nanoseconds and in events: clocks of CPUs that disagree by
/// more than that are no clocks.
const EARLY: u64 = 10_000_000;
/// See [`EARLY`].
const EARLY_EVENTS: u64 = 1024;
/// Issues remembered that took the completion before them.
const CAUGHT: usize = 64;

/// Longest waits kept, however many reach the threshold.
const VICTIMS: usize = 1 << 16;

/// What to look for. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Classes count only bios queued while at least this many requests were outstanding.
    pub busy: u32,
    /// This many of the longest waits become victims.
    pub top: usize,
    /// And so does every wait of at least this.
    pub threshold: Option<u64>,
    /// A task that sleeps this long without a break is hung.
    pub hung: u64,
}

impl Default for Options {
    /// Every bio counts; the ten longest waits and all of at least 10 s; hung after 10 s.
    fn default() -> Self {
        Self { busy: 0, top: 10, threshold: Some(10_000_000_000), hung: 10_000_000_000 }
    }
}

/// One request that waited long. Stamps and times are nanoseconds here, seconds in the JSON; a stamp the trace does
/// not have is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Victim {
    /// Who submitted it.
    pub task: String,
    /// RWBS letters.
    pub rwbs: String,
    /// First sector (512 bytes), after merges.
    pub sector: u64,
    /// Sectors, after merges.
    pub sectors: u64,
    /// Its bio was queued.
    #[serde(rename = "queued_s", serialize_with = "optional_seconds")]
    pub queued: Option<u64>,
    /// It entered the scheduler.
    #[serde(rename = "inserted_s", serialize_with = "optional_seconds")]
    pub inserted: Option<u64>,
    /// It left for the driver (for the last time).
    #[serde(rename = "issued_s", serialize_with = "optional_seconds")]
    pub issued: Option<u64>,
    /// The device was done; `None` if the trace ended before that, then the times are what had passed by its end.
    #[serde(rename = "completed_s", serialize_with = "optional_seconds")]
    pub completed: Option<u64>,
    /// From its first event to its completion; the sum of the three parts.
    #[serde(rename = "wait_s", serialize_with = "seconds")]
    pub wait: u64,
    /// From its first event to its insertion (to its tag or its issue if it was never inserted).
    #[serde(rename = "tag_wait_s", serialize_with = "seconds")]
    pub tag_wait: u64,
    /// From there to its issue.
    #[serde(rename = "sched_wait_s", serialize_with = "seconds")]
    pub sched_wait: u64,
    /// From there to its completion.
    #[serde(rename = "service_s", serialize_with = "seconds")]
    pub service: u64,
    /// What was sent between its insertion and its issue.
    pub ahead: Ahead,
    /// The largest of the three parts.
    pub blame: Blame,
    /// Its class. Not in the JSON.
    #[serde(skip)]
    pub class: Class,
}

/// One task that slept too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hung {
    /// Who slept.
    pub task: String,
    /// For how long, nanoseconds (seconds in the JSON).
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub slept: u64,
    /// What ended the sleep, in words: a request (`journal write at sector …`), or a `free tag`.
    pub waits_for: String,
    /// What was sent before the thing it waited for.
    pub ahead: Ahead,
    /// Stamp of the end of the sleep, nanoseconds. Not in the JSON.
    #[serde(skip)]
    pub until: u64,
    /// The request it waited for; `None` if for a tag. Not in the JSON.
    #[serde(skip)]
    pub request: Option<Victim>,
}

/// The answer. The fields that `mmc-lab explain --json` prints come first, in its order; the others are for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Requests seen, flushes too, without those that were merged into others.
    pub requests: u64,
    /// Tasks that submitted them.
    pub tasks: u64,
    /// How good the stamps are.
    pub clock: Clock,
    /// Most requests that were in the scheduler or at the device at once (flushes not counted).
    pub queue_depth_max: u64,
    /// Latencies by class, per bio (see [`Report::per_bio`]): from the bio's queueing to the first completion that
    /// covers its first sector.
    pub classes: Classes,
    /// The longest waits, longest first.
    pub victims: Vec<Victim>,
    /// The tasks that slept too long, in the order of time.
    pub hung: Vec<Hung>,
    /// Waits that reached the threshold but are not among the victims, since there were too many.
    #[serde(skip)]
    pub forgotten: u64,
    /// Whether classes count bios; `false` if the trace has none: then they count requests.
    #[serde(skip)]
    pub per_bio: bool,
    /// The longest wait of each class, indexed by [`Class::index`].
    #[serde(skip)]
    pub worst: [Option<Victim>; 4],
    /// Requests still waiting when the trace ended (they may be among the victims).
    #[serde(skip)]
    pub unfinished: u64,
    /// Completions of requests that began before the trace or whose other events are lost.
    #[serde(skip)]
    pub unmatched: u64,
    /// Requests that never completed but were in flight when the trace lost events: their end may be lost too.
    #[serde(skip)]
    pub lost_track: u64,
    /// Stamp of the first event, nanoseconds.
    #[serde(skip)]
    pub first: u64,
    /// Stamp of the last event, nanoseconds.
    #[serde(skip)]
    pub last: u64,
    /// Bytes read by requests that completed.
    #[serde(skip)]
    pub read_bytes: u64,
    /// Bytes written by requests that completed.
    #[serde(skip)]
    pub written_bytes: u64,
    /// Requests in the scheduler or at the device over time.
    #[serde(skip)]
    pub depth: Depth,
    /// Latencies by task, as [`classes`](Self::classes) counts them; who waited most comes first.
    #[serde(skip)]
    pub by_task: Vec<TaskStats>,
    /// How long the card took: reads, and all else. From the issue, or the completion before it if that is later, to
    /// the completion.
    #[serde(skip)]
    pub service: [Octaves; 2],
    /// What pictures are drawn from, if [`Analysis::recording`] asked for it.
    #[serde(skip)]
    pub record: Option<Record>,
}

/// The analysis of one device: [`push`](Self::push) its events in the order of the trace, then [`finish`](Self::finish).
#[derive(Debug)]
pub struct Analysis {
    options: Options,
    tracker: Tracker,
    sleepers: Sleepers,
    meter: Meter,
    depth: Depth,
    /// Bios whose first sector has not completed: when queued, class, whether they count, whose.
    unanswered: BTreeMap<(u64, u64), (u64, Class, bool, usize)>,
    bios: u64,
    bio_samples: Samples,
    request_samples: Samples,
    by_task: Tasks,
    service: [Octaves; 2],
    last_complete: u64,
    /// Insert lines minus complete lines.
    outstanding: i64,
    /// Events of the latest stamp that must wait for others of the same stamp.
    deferred: Vec<Event>,
    /// Completions whose issue may still come, each with its number among all events.
    early: VecDeque<(u64, Event)>,
    /// How many of them had theirs come.
    early_matched: u64,
    /// One of them was of a request queued before it, so clocks do disagree.
    disagree: bool,
    /// While nothing shows that: the latest issues that took a completion from before their request.
    caught: VecDeque<Event>,
    pushed: u64,
    longest: BTreeMap<(u64, Reverse<u64>), Victim>,
    forgotten: u64,
    worst: [Option<Victim>; 4],
    finished: u64,
    unmatched: u64,
    lost_before: Option<u64>,
    first: Option<u64>,
    last: u64,
    read_bytes: u64,
    written_bytes: u64,
    record: Option<Record>,
}

impl Analysis {
    /// Of a device of which nothing is known yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            tracker: Tracker::default(),
            sleepers: Sleepers::new(options.hung),
            meter: Meter::default(),
            depth: Depth::default(),
            unanswered: BTreeMap::new(),
            bios: 0,
            bio_samples: Samples::default(),
            request_samples: Samples::default(),
            by_task: Tasks::default(),
            service: <[Octaves; 2]>::default(),
            last_complete: 0,
            outstanding: 0,
            deferred: Vec::new(),
            early: VecDeque::new(),
            early_matched: 0,
            disagree: false,
            caught: VecDeque::new(),
            pushed: 0,
            longest: BTreeMap::new(),
            forgotten: 0,
            worst: [None, None, None, None],
            finished: 0,
            unmatched: 0,
            lost_before: None,
            first: None,
            last: 0,
            read_bytes: 0,
            written_bytes: 0,
            record: None,
        }
    }

    /// The same, keeping what pictures are drawn from ([`Report::record`]).
    #[must_use]
    pub fn recording(options: Options) -> Self {
        Self { record: Some(Record::default()), ..Self::new(options) }
    }

    /// Takes in the next event.
    ///
    /// Events with the same stamp may come in any order: one that needs another first (a completion its issue, an issue
    /// its insertion) waits until all of that stamp are here. A completion waits for its issue up to 10 ms, since clocks of
    /// CPUs differ.
    pub fn push(&mut self, event: &Event) {
        if event.at != self.last || self.first.is_none() {
            self.settle();
        }
        self.pushed += 1;
        while let Some((number, early)) = self.early.front()
            && (self.pushed - number > EARLY_EVENTS || event.at > early.at.saturating_add(EARLY))
        {
            self.give_up();
        }
        self.first = Some(self.first.map_or(event.at, |first| first.min(event.at)));
        self.last = event.at;
        self.meter.push(event.at);
        if self.tracker.is_ready(event) {
            self.apply(event);
        } else {
            self.deferred.push(event.clone());
        }
    }

    /// The recorder lost events here: what was in flight may have ended unseen.
    pub fn lose_track(&mut self) {
        self.settle();
        while !self.early.is_empty() {
            self.give_up();
        }
        self.lost_before = Some(self.tracker.last_id());
    }

    /// What was sent so far between the insertion of the request in flight that holds `sector` and its issue (or now);
    /// `None` if no request in flight holds it.
    #[must_use]
    pub fn ahead(&self, sector: u64) -> Option<Ahead> {
        self.tracker.holding(sector).map(|request| self.tracker.ahead(request))
    }

    /// The answer.
    #[must_use]
    pub fn finish(mut self) -> Report {
        self.settle();
        while !self.early.is_empty() {
            self.give_up();
        }
        let (mut unfinished, mut lost_track) = (0, 0);
        let left: Vec<_> = self.tracker.unfinished().into_iter().map(|(id, r)| (id, r.clone())).collect();
        for (id, request) in left {
            if self.lost_before.is_some_and(|last| id <= last) {
                lost_track += 1;
            } else {
                unfinished += 1;
                self.judge(&request, self.last, true);
                self.sleepers.ends(&request, self.last, true, &self.tracker);
            }
        }
        let per_bio = self.bios > 0;
        let samples = if per_bio { self.bio_samples } else { self.request_samples };
        Report {
            requests: self.tracker.count(),
            tasks: self.sleepers.tasks(),
            clock: Clock { early: self.early_matched, ..self.meter.judge() },
            queue_depth_max: u64::from(self.depth.max()),
            classes: samples.into_stats(),
            victims: self.longest.into_values().rev().collect(),
            hung: self.sleepers.into_hung(),
            forgotten: self.forgotten,
            per_bio,
            worst: self.worst,
            unfinished,
            unmatched: self.unmatched,
            lost_track,
            first: self.first.unwrap_or(0),
            last: self.last,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            depth: self.depth,
            by_task: self.by_task.into_stats(),
            service: self.service,
            record: self.record,
        }
    }

    /// All events of one stamp are here: those that waited go in their natural order, each when what it needs is there.
    fn settle(&mut self) {
        let mut waiting = std::mem::take(&mut self.deferred);
        waiting.sort_by_key(|event| (rank(event.kind), event.sector));
        for _ in 0..SETTLE_ROUNDS {
            let before = waiting.len();
            waiting.retain(|event| {
                let ready = self.tracker.is_ready(event);
                if ready {
                    self.apply(event);
                }
                !ready
            });
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
        for event in waiting {
            if event.kind == Kind::Complete && event.sectors > 0 && !self.tracker.is_ready(&event) {
                self.outstanding -= 1;
                if self.is_stray(&event) {
                    continue;
                }
                self.answer(&event, event.at);
                self.early.push_back((self.pushed, event));
            } else {
                self.apply(&event);
            }
        }
    }

    /// Whether the request of this completion was ended by an earlier one. Then that was a stray one (of a request from
    /// before the trace, say), and this one must not end the next request of the same sectors in its turn.
    fn is_stray(&mut self, event: &Event) -> bool {
        let same = |e: &Event| (e.sector, e.sectors) == (event.sector, event.sectors) && e.rwbs == event.rwbs;
        let place = if self.disagree { None } else { self.caught.iter().position(same) };
        let stray = place.and_then(|place| self.caught.remove(place)).is_some();
        if stray {
            self.early_matched -= 1;
            self.unmatched += 1;
        }
        stray
    }

    /// The issue of the oldest early completion does not come.
    fn give_up(&mut self) {
        if let Some((_, event)) = self.early.pop_front() {
            self.track(&event, event.at, 0, 0);
        }
    }

    /// `issue` is here: a completion of its request that came before it ends it.
    fn catch_up(&mut self, issue: &Event) {
        let end = issue.sector.saturating_add(issue.sectors.into());
        let same = |e: &Event| {
            e.sector == issue.sector
                && e.sector.saturating_add(e.sectors.into()) <= end
                && e.rwbs == issue.rwbs
        };
        let place = self.early.iter().position(|(_, event)| same(event));
        if let Some((_, event)) = place.and_then(|place| self.early.remove(place)) {
            self.early_matched += 1;
            self.disagree |= self.tracker.began(issue).is_some_and(|at| at <= event.at);
            if self.caught.len() == CAUGHT {
                self.caught.pop_front();
            }
            self.caught.push_back(issue.clone());
            let at = event.at.max(issue.at);
            self.answer(&event, at);
            self.track(&event, at, 0, 0);
        }
    }

    fn apply(&mut self, event: &Event) {
        let busy = u64::try_from(self.outstanding).unwrap_or(0);
        let sectors = event.sectors;
        let owner = match event.kind {
            // These make no request and wake nobody.
            Kind::RqMerge | Kind::Requeue | Kind::Complete => 0,
            _ => self.by_task.place(&event.task, event.pid),
        };
        match event.kind {
            Kind::BioQueue => {
                if sectors > 0 {
                    let class = Class::of(&event.rwbs, &event.task);
                    let counts = busy >= u64::from(self.options.busy);
                    self.unanswered.insert((event.sector, self.bios), (event.at, class, counts, owner));
                    self.bios += 1;
                }
                self.sleepers.submits(owner, event.at, &self.tracker);
            }
            Kind::GetRq => self.sleepers.gets_tag(owner, event.at, &self.by_task, &self.tracker),
            Kind::BackMerge | Kind::FrontMerge => self.sleepers.submits(owner, event.at, &self.tracker),
            Kind::Insert => {
                self.outstanding += i64::from(sectors > 0);
                self.sleepers.submits(owner, event.at, &self.tracker);
            }
            Kind::Complete if sectors > 0 => {
                self.outstanding -= 1;
                self.answer(event, event.at);
            }
            Kind::RqMerge | Kind::Issue | Kind::Requeue | Kind::Complete => {}
        }
        self.track(event, event.at, owner, busy);
        if event.kind == Kind::Issue && !self.early.is_empty() {
            self.catch_up(event);
        }
    }

    /// What an event at `at` of the task with place `owner` does to the requests in flight; `busy` were outstanding before it.
    fn track(&mut self, event: &Event, at: u64, owner: usize, busy: u64) {
        match self.tracker.apply(event, owner, busy) {
            Step::Nothing => {}
            Step::Done(slot) => {
                if let Some(request) = self.tracker.take(slot) {
                    self.done(&request, at);
                }
            }
            Step::Unmatched => self.unmatched += 1,
        }
        self.depth.push(at.max(self.last), self.tracker.depth());
    }

    /// The bios whose first sector this completion, at `at`, covers are answered.
    fn answer(&mut self, event: &Event, at: u64) {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let answered = self.unanswered.extract_if((event.sector, 0)..(end, 0), |_, _| true);
        for (_, (queued, class, counts, task)) in answered {
            if counts {
                let took = at.saturating_sub(queued);
                self.bio_samples.push(class, took);
                self.by_task.push(task, took);
                if let Some(record) = &mut self.record {
                    record.waited(at, class, took);
                }
            }
        }
    }

    fn done(&mut self, request: &Request, at: u64) {
        let bytes = request.sectors.saturating_mul(512);
        if request.class == Class::Reads {
            self.read_bytes = self.read_bytes.saturating_add(bytes);
        } else if request.rwbs.bytes().any(|b| b == b'W') {
            self.written_bytes = self.written_bytes.saturating_add(bytes);
        }
        if self.bios == 0 && request.sectors > 0 && request.busy >= u64::from(self.options.busy) {
            let took = at.saturating_sub(request.first);
            self.request_samples.push(request.class, took);
            self.by_task.push(request.owner, took);
            if let Some(record) = &mut self.record {
                record.waited(at, request.class, took);
            }
        }
        if let Some(issued) = request.issued.filter(|_| request.sectors > 0) {
            let [reads, others] = &mut self.service;
            let service = if request.class == Class::Reads { reads } else { others };
            let from = issued.max(self.last_complete);
            service.push(at.saturating_sub(from));
            if let Some(record) = &mut self.record {
                let Request { inserted, sectors, class, .. } = *request;
                record.served(Command { from: from.min(at), to: at, inserted, sectors, class });
            }
            self.last_complete = at;
        }
        self.judge(request, at, false);
        self.sleepers.ends(request, at, false, &self.tracker);
    }

    /// Is it a victim?
    fn judge(&mut self, request: &Request, end: u64, unfinished: bool) {
        self.finished += 1;
        let wait = end.saturating_sub(request.first);
        let threshold = self.options.threshold.unwrap_or(u64::MAX);
        let is_long = wait >= threshold
            || self.longest.len() < self.options.top
            || (self.options.top > 0 && self.longest.keys().next().is_some_and(|&(least, _)| wait > least));
        let worst = self.worst.get(request.class.index()).and_then(Option::as_ref);
        let is_worst = worst.is_none_or(|worst| wait > worst.wait);
        if !is_long && !is_worst {
            return;
        }
        let victim = victim_of(request, end, unfinished, self.tracker.ahead(request));
        if let Some(record) = &mut self.record {
            record.judged(&victim);
        }
        if is_worst && let Some(worst) = self.worst.get_mut(request.class.index()) {
            *worst = Some(victim.clone());
        }
        if is_long {
            self.longest.insert((wait, Reverse(self.finished)), victim);
            let kept = self.longest.len();
            if kept > self.options.top
                && let Some(least) = self.longest.first_entry()
                && (least.key().0 < threshold || kept > self.options.top.max(VICTIMS))
            {
                self.forgotten += u64::from(least.key().0 >= threshold);
                least.remove();
            }
        }
    }
}

/// The natural order of the events of one request.
fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::BioQueue => 0,
        Kind::GetRq => 1,
        Kind::BackMerge | Kind::FrontMerge => 2,
        Kind::Insert => 3,
        Kind::RqMerge => 4,
        Kind::Issue => 5,
        Kind::Requeue => 6,
        Kind::Complete => 7,
    }
}

/// The parts of a wait that ends at `end`; whatever the stamps say, no part is negative and the parts sum to the wait.
fn victim_of(request: &Request, end: u64, unfinished: bool, ahead: Ahead) -> Victim {
    let start = request.first;
    let end = end.max(start);
    let entered = request.inserted.or(request.got_tag).or(request.issued);
    let entered = entered.unwrap_or(end).clamp(start, end);
    // A request that is done without an issue line was issued at some time unknown: all of it counts as service.
    let issued = request.issued.unwrap_or(if unfinished { end } else { entered }).clamp(entered, end);
    let (tag_wait, sched_wait, service) = (entered - start, issued - entered, end - issued);
    Victim {
        task: request.task.to_string(),
        rwbs: request.rwbs.to_string(),
        sector: request.sector,
        sectors: request.sectors,
        queued: request.queued,
        inserted: request.inserted,
        issued: request.issued,
        completed: (!unfinished).then_some(end),
        wait: end - start,
        tag_wait,
        sched_wait,
        service,
        ahead,
        blame: Blame::of(tag_wait, sched_wait, service),
        class: request.class,
    }
}

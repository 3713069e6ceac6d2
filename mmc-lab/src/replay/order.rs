//! Does our `mq-deadline` issue what the kernel issued, in the same order?
//!
//! It is not a simulation: the recorded insertions and merges go in at their stamps, one request is asked for at each
//! recorded issue, and the answer is compared with the recorded one. Nothing is corrected on the way: after a
//! difference both go on with what they have.

use std::collections::HashMap;

use mmc_sched::mq_deadline::Rules;
use mmc_sched::{
    Dispatch, Inserted, Joined, Limits, MqDeadline, Op, Outcome, Queue, Request, RequestId, Scheduler, Slot,
    StreamId,
};
use mmc_time::Instant;

use super::drain::Drained;
use crate::trace::model::{Event, Kind};
use crate::units::format_time;

/// Requests that can be known at once: more than any kernel has tags and merged requests.
const SLOTS: usize = 16_384;

/// How the kernel that made the trace works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whose decisions.
    pub rules: Rules,
    /// Requests that may leave the scheduler in one go; 1 for kernels before 5.9.
    pub drain: usize,
    /// Ticks per second of its clock: deadlines are counted in ticks. At least 1.
    pub hz: u32,
}

/// What a request is known by in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// `R` or `W` (or `D` for a discard).
    pub letter: char,
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub sectors: u32,
}

impl Extent {
    fn of(event: &Event) -> Self {
        Self { letter: letter(event), sector: event.sector, sectors: event.sectors }
    }
}

impl std::fmt::Display for Extent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} + {}", self.letter, self.sector, self.sectors)
    }
}

/// The first place where the orders part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which issue, from 1.
    pub number: usize,
    /// Its stamp in nanoseconds.
    pub at: u64,
    /// What the kernel issued.
    pub kernel: Extent,
    /// What ours gave; `None`: nothing.
    pub ours: Option<Extent>,
    /// Why, as far as the trace tells.
    pub why: String,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Recorded issues (a request that the driver gave back and that is issued again counts once).
    pub issued: usize,
    /// Of these, how many ours gave at the same place.
    pub same: usize,
    /// Recorded insertions.
    pub inserted: usize,
    /// Recorded merges into queued requests.
    pub merged: usize,
    /// Insertions and merges that ours took otherwise: merged what the kernel did not, or the reverse.
    pub taken_otherwise: usize,
    /// Recorded `block_rq_requeue` lines.
    pub requeued: usize,
    /// Where they first differ.
    pub first: Option<Difference>,
}

/// The first letter that is not the mark of a flush before the data.
fn letter(event: &Event) -> char {
    event.rwbs.chars().find(|&c| c != 'F').unwrap_or('F')
}

/// What goes into the scheduler, in the order of the trace: requests, and bios that merge with queued ones. A merge
/// into a request that is still on its task's plug is left out, since the insertion shows the grown request.
#[derive(Debug, Default)]
struct Plugs(HashMap<u32, Vec<(u64, u64)>>);

impl Plugs {
    /// Whether this merge went into a request on the plug of its task.
    fn absorbs(&mut self, event: &Event) -> bool {
        let (start, end) = (event.sector, event.sector.saturating_add(event.sectors.into()));
        let plug = self.0.entry(event.pid).or_default();
        let found = match event.kind {
            Kind::BackMerge => plug.iter_mut().find(|r| r.1 == start).map(|r| r.1 = end),
            _ => plug.iter_mut().find(|r| r.0 == end).map(|r| r.0 = start),
        };
        found.is_some()
    }
    fn get(&mut self, event: &Event) {
        let end = event.sector.saturating_add(event.sectors.into());
        self.0.entry(event.pid).or_default().push((event.sector, end));
    }
    /// The request leaves the plug.
    fn leave(&mut self, event: &Event) {
        let end = event.sector.saturating_add(event.sectors.into());
        if let Some(plug) = self.0.get_mut(&event.pid)
            && let Some(i) = plug.iter().position(|&r| r == (event.sector, end))
        {
            plug.remove(i);
        }
    }
}

/// Feeds `events` (of one device, in the order of their stamps) to `mq-deadline` and compares the order of issues.
///
/// # Errors
/// One line, when the trace holds no insertion or no issue, or has more requests in flight than can be kept.
pub fn verify(events: &[Event], settings: Settings) -> Result<Verified, String> {
    let has = |kind| events.iter().any(|e| e.kind == kind && e.sectors > 0);
    if !has(Kind::Insert) || !has(Kind::Issue) {
        return Err("the trace has no block_rq_insert or no block_rq_issue lines, so there is no order to \
                    verify: record all events of the block layer, under mq-deadline"
            .to_owned());
    }
    // No request of the kernel was larger than its limit; which one that was, the issues tell.
    let largest = events.iter().filter(|e| e.kind == Kind::Issue).map(|e| e.sectors).max().unwrap_or(0);
    let limits = Limits { max_sectors: largest.max(Limits::default().max_sectors), ..Limits::default() };
    let policy = MqDeadline::with_rules(settings.rules);
    let queue = Queue::with_limits(vec![Slot::FREE; SLOTS], policy, limits);
    let mut run = Run {
        sched: Drained::new(queue, settings.drain),
        tick: 1_000_000_000 / u64::from(settings.hz.clamp(1, 1_000_000)),
        plugs: Plugs::default(),
        at_device: Vec::new(),
        kernel: Vec::new(),
        ours: Vec::new(),
        at_driver: HashMap::new(),
        left: HashMap::new(),
        came: HashMap::new(),
        out: Verified {
            issued: 0,
            same: 0,
            inserted: 0,
            merged: 0,
            taken_otherwise: 0,
            requeued: 0,
            first: None,
        },
        drain: settings.drain.max(1),
    };
    for event in events.iter().filter(|e| e.sectors > 0) {
        run.event(event)?;
    }
    Ok(run.conclude())
}

struct Run {
    sched: Drained<Queue<Vec<Slot>, MqDeadline>>,
    tick: u64,
    plugs: Plugs,
    at_device: Vec<RequestId>,
    kernel: Vec<(u64, Extent)>,
    ours: Vec<Option<Extent>>,
    /// Issued and not completed; `true`: the driver gave it back since.
    at_driver: HashMap<Extent, bool>,
    /// First requeue line of a request that had not been issued.
    left: HashMap<Extent, u64>,
    /// Insertion.
    came: HashMap<Extent, u64>,
    out: Verified,
    drain: usize,
}

impl Run {
    fn now(&self, event: &Event) -> Instant {
        Instant::from_nanos(event.at / self.tick * self.tick)
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        match event.kind {
            Kind::GetRq => self.plugs.get(event),
            Kind::Insert => {
                self.plugs.leave(event);
                let extent = Extent::of(event);
                if self.at_driver.get(&extent).is_some_and(|&back| back) {
                    return Ok(());
                }
                self.out.inserted += 1;
                self.came.insert(extent, event.at);
                self.insert(event, true)?;
            }
            Kind::RqMerge => {
                self.plugs.leave(event);
                self.out.merged += 1;
                self.insert(event, false)?;
            }
            Kind::BackMerge | Kind::FrontMerge if !self.plugs.absorbs(event) => {
                self.out.merged += 1;
                let how = if event.kind == Kind::BackMerge { Joined::Back } else { Joined::Front };
                let (request, now) = (request(event), self.now(event));
                if self.sched.merge(&request, now).is_none() {
                    self.insert(event, false)?;
                } else if self.sched.inner().joined() != Some(how) {
                    self.out.taken_otherwise += 1;
                }
            }
            Kind::Issue => self.issue(event),
            Kind::Requeue => self.requeue(event),
            Kind::Complete => {
                self.at_driver.remove(&Extent::of(event));
            }
            Kind::BackMerge | Kind::FrontMerge | Kind::BioQueue => {}
        }
        Ok(())
    }

    fn insert(&mut self, event: &Event, alone: bool) -> Result<(), String> {
        let now = self.now(event);
        let (_, how) = self
            .sched
            .insert(request(event), now)
            .map_err(|(_, why)| format!("at {}: {}: {why}", format_time(event.at), Extent::of(event)))?;
        self.out.taken_otherwise += usize::from((how == Inserted::Queued) != alone);
        Ok(())
    }

    fn issue(&mut self, event: &Event) {
        let extent = Extent::of(event);
        if let Some(back) = self.at_driver.get_mut(&extent)
            && *back
        {
            *back = false;
            return;
        }
        self.at_driver.insert(extent, false);
        let now = self.now(event);
        for id in self.at_device.drain(..) {
            let blocks = self.sched.request(id).map_or(0, |r| r.blocks);
            let _ = self.sched.complete(id, Outcome { blocks, failed: false }, now);
        }
        let ours = match self.sched.dispatch(now) {
            Dispatch::Run(run) => {
                let mut member = Some(run.head);
                while let Some(id) = member {
                    self.at_device.push(id);
                    member = self.sched.next_member(id);
                }
                let letter = match run.op {
                    Op::Read => 'R',
                    Op::Discard => 'D',
                    _ => 'W',
                };
                Some(Extent { letter, sector: run.lba, sectors: run.blocks })
            }
            Dispatch::Wait { .. } | Dispatch::Empty => None,
        };
        self.kernel.push((event.at, extent));
        self.ours.push(ours);
    }

    /// The driver gave it back, or it left the scheduler and the driver would not take it: either way it has left.
    fn requeue(&mut self, event: &Event) {
        self.out.requeued += 1;
        let extent = Extent::of(event);
        if let Some(back) = self.at_driver.get_mut(&extent) {
            *back = true;
            return;
        }
        self.left.entry(extent).or_insert(event.at);
        if !self.sched.has_left() {
            let now = self.now(event);
            self.sched.fill(self.drain, now);
        }
    }

    fn conclude(mut self) -> Verified {
        self.out.issued = self.kernel.len();
        let pairs = self.kernel.iter().zip(&self.ours);
        self.out.same = pairs.clone().filter(|(k, o)| **o == Some(k.1)).count();
        let first = pairs.enumerate().find(|(_, (k, o))| **o != Some(k.1));
        self.out.first = first.map(|(i, (&(at, kernel), &ours))| Difference {
            number: i + 1,
            at,
            kernel,
            ours,
            why: self.why(i, at, kernel, ours),
        });
        self.out
    }

    /// What the trace says about the first difference.
    fn why(&self, i: usize, at: u64, kernel: Extent, ours: Option<Extent>) -> String {
        let before = |ns: u64| format_time(at.saturating_sub(ns));
        let Some(ours) = ours else {
            return "ours has nothing to give: the request was not inserted before, or waits as part of another"
                .to_owned();
        };
        let mut why = match self.came.get(&ours) {
            Some(&came) => format!("what ours gives was inserted {} before", before(came)),
            None => "what ours gives has grown by merges".to_owned(),
        };
        match self.kernel.iter().skip(i).position(|k| k.1 == ours) {
            Some(later) => why.push_str(&format!(", and the kernel issued it {later} issues later")),
            None => why.push_str(", and the kernel issued no such request later"),
        }
        match self.ours.iter().position(|o| *o == Some(kernel)) {
            Some(j) if j < i => why.push_str(&format!("; ours gave the kernel's {} issues earlier", i - j)),
            Some(j) => why.push_str(&format!("; ours gives the kernel's {} issues later", j - i)),
            None => why.push_str("; ours never gives the kernel's"),
        }
        if let Some(&left) = self.left.get(&kernel) {
            why.push_str(&format!(
                ". A block_rq_requeue line shows that the kernel's had left the scheduler {} before",
                before(left)
            ));
        } else if let Some(&left) = self.left.get(&ours) {
            why.push_str(&format!(
                ". A block_rq_requeue line shows that ours had left the kernel's scheduler, too, {} before: behind others \
                 that left earlier in one go, of which no line tells how many they were",
                before(left)
            ));
        } else if self.drain == 1 && self.came.get(&ours).is_some_and(|&c| at.saturating_sub(c) < self.tick) {
            why.push_str(". It came in at the last moment, when the kernel had chosen");
        }
        why
    }
}

fn request(event: &Event) -> Request {
    let op = match letter(event) {
        'R' => Op::Read,
        'D' => Op::Discard,
        _ => Op::Write,
    };
    Request::new(op, event.sector, event.sectors, StreamId(event.pid))
}

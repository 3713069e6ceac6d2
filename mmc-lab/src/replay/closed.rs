//! A recorded workload through our whole stack in virtual time: scheduler, driver, card.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mmc_mock::Clock;
use mmc_mock::card::SdConfig;
use mmc_mock::timing::Profile;
use mmc_sched::Op;
use mmc_time::{Duration, Instant};

use super::drain::Drained;
use super::plan::{After, Plan};
use crate::analysis::{Analysis, Options, Report};
use crate::experiment::{HostKind, PolicySpec};
use crate::sim::{Signal, Sim};
use crate::stack::{self, CARD_SECTORS};
use crate::trace::model::Event;
use crate::watchdog::Watchdog;
use crate::workload::block::{Bio, Block, Plug, Task};

/// A card's capacity is a multiple of this many sectors (4 MiB).
const CARD_UNIT: u64 = 8192;

/// All that decides a run but workload and policy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The card's times.
    pub card: Profile,
    /// Of the card's pauses.
    pub seed: u64,
    /// Tags.
    pub nr_requests: u16,
    /// Longest request in sectors.
    pub max_sectors: u32,
    /// Requests that may leave the scheduler in one go.
    pub drain: usize,
    /// Bios arrive when they did in the trace, whatever happens to the others.
    pub open: bool,
    /// See [`Options::busy`].
    pub busy: u32,
}

/// Both views of a run: over all bios, and over those queued under load.
#[derive(Clone, Debug)]
pub struct Views {
    /// All.
    pub all: Report,
    /// Queued while at least `busy` requests were outstanding.
    pub busy: Report,
}

impl Views {
    /// Of these events.
    #[must_use]
    pub fn of(events: &[Event], busy: u32) -> Self {
        let options = Options { top: 1, ..Options::default() };
        let report = |options| {
            let mut analysis = Analysis::recording(options);
            events.iter().for_each(|e| analysis.push(e));
            analysis.finish()
        };
        Self { all: report(options), busy: report(Options { busy, ..options }) }
    }

    /// Bytes moved per second, from the first event to the last.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let ns = self.all.last.saturating_sub(self.all.first).max(1);
        self.all.read_bytes.saturating_add(self.all.written_bytes) as f64 / (ns as f64 / 1e9)
    }

    /// Bytes moved per second of the time in which a request was in the scheduler or at the card: what a scheduler can
    /// lose, whenever the tasks submit.
    #[must_use]
    pub fn busy_rate(&self) -> f64 {
        let ns = self.all.depth.busy().max(1);
        self.all.read_bytes.saturating_add(self.all.written_bytes) as f64 / (ns as f64 / 1e9)
    }

    /// From the first event to the last, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.all.last.saturating_sub(self.all.first) as f64 / 1e9
    }
}

/// How far the workload has come in the order of the trace.
struct Progress {
    /// By bio; reads count from the begin, since nobody's commit waits for them.
    submitted: RefCell<Vec<bool>>,
    /// All before this one are.
    all_before: Cell<usize>,
    signal: Signal,
}

impl Progress {
    fn new(sim: &Sim, plan: &Plan) -> Self {
        let submitted = plan.bios.iter().map(|bio| bio.op == Op::Read).collect();
        Self { submitted: RefCell::new(submitted), all_before: Cell::new(0), signal: Signal::new(sim) }
    }

    fn submits(&self, bio: usize) {
        let mut submitted = self.submitted.borrow_mut();
        if let Some(one) = submitted.get_mut(bio) {
            *one = true;
        }
        let mut next = self.all_before.get();
        while submitted.get(next) == Some(&true) {
            next += 1;
        }
        if next > self.all_before.replace(next) {
            self.signal.notify();
        }
    }

    /// Until all that come before `bio` are submitted.
    async fn reaches(&self, bio: usize) {
        while self.all_before.get() < bio {
            self.signal.wait().await;
        }
    }
}

/// Runs `plan` under `policy`; the events are those a kernel's tracepoints would give.
///
/// # Errors
/// One line: the set-up is impossible, or the simulation could not go on.
pub fn run(plan: &Rc<Plan>, config: &Config, policy: &PolicySpec) -> Result<Vec<Event>, String> {
    let clock = Clock::new();
    let sched = policy.scheduler(config.max_sectors, Duration::ZERO)?;
    let sectors = plan.end.max(CARD_SECTORS).next_multiple_of(CARD_UNIT);
    let card = SdConfig { sectors, ..SdConfig::new(config.card.clone(), config.seed) };
    let sched = Drained::new(sched, config.drain);
    let (disk, door) = stack::build_on(HostKind::Mock, card, &clock, sched, config.nr_requests)?;
    clock.advance_to(Instant::from_secs(3));
    let sim = Sim::new(clock);
    let watch = Rc::new(Watchdog::new(&sim, Duration::from_secs(10)));
    let block = Rc::new(Block::new(&sim, watch, disk, config.max_sectors));
    block.behave_as_linux(config.nr_requests);
    let progress = Rc::new(Progress::new(&sim, plan));
    // How much each crew has submitted.
    let crews: Rc<Vec<Cell<usize>>> = Rc::new(plan.crews.iter().map(|_| Cell::new(0)).collect());
    let bios: Rc<Vec<Rc<Bio>>> = Rc::new(plan.bios.iter().map(|b| block.bio(b.sectors, None)).collect());
    let began = sim.now();
    for job in 0..plan.jobs.len() {
        let (plan, sim, block, bios, open) =
            (plan.clone(), sim.clone(), block.clone(), bios.clone(), config.open);
        let (progress, crews) = (progress.clone(), crews.clone());
        sim.clone().spawn(async move {
            let Some(job) = plan.jobs.get(job) else { return };
            let task = Task::new(&job.name, job.pid);
            let mut plug = Plug::default();
            for step in &job.steps {
                let Some(what) = plan.bios.get(step.bio) else { continue };
                if open {
                    sim.sleep((began + what.at).since(sim.now())).await;
                } else {
                    if let After::Done(other) = step.after
                        && let Some(other) = bios.get(other)
                    {
                        other.wait().await;
                    }
                    sim.sleep(step.think).await;
                    if step.commits {
                        progress.reaches(step.bio).await;
                    }
                }
                let next = step.crew.filter(|_| !open).and_then(|crew| {
                    let done = crews.get(crew)?;
                    plan.crews.get(crew)?.get(done.replace(done.get() + 1)).copied()
                });
                let index = next.unwrap_or(step.bio);
                let (Some(bio), Some(what)) = (bios.get(index), plan.bios.get(index)) else { continue };
                progress.submits(index);
                block.submit(&task, bio, what.op, what.flags, what.sector, &mut plug, |_, _| ()).await;
                if !step.plugged {
                    block.unplug(&task, &mut plug).await;
                }
            }
            block.unplug(&task, &mut plug).await;
            for step in &job.steps {
                if let Some(bio) = bios.get(step.bio) {
                    bio.wait().await;
                }
            }
        });
    }
    sim.run(&*block, |_| ()).map_err(|e| e.to_string())?;
    if let Some(e) = block.failed() {
        return Err(format!("the simulated disk misbehaved: {e}"));
    }
    match door.violations().first() {
        Some(v) => Err(format!("the simulated disk misbehaved: {v}")),
        None => Ok(block.take_events()),
    }
}

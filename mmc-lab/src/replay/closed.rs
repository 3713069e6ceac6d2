//! A recorded workload through our whole stack in virtual time: scheduler, driver, card.

use std::rc::Rc;

use mmc_mock::Clock;
use mmc_mock::card::SdConfig;
use mmc_mock::timing::Profile;
use mmc_time::{Duration, Instant};

use super::drain::Drained;
use super::plan::{After, Plan};
use crate::analysis::{Analysis, Options, Report};
use crate::experiment::{HostKind, PolicySpec};
use crate::sim::Sim;
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
    let bios: Rc<Vec<Rc<Bio>>> = Rc::new(plan.bios.iter().map(|b| block.bio(b.sectors, None)).collect());
    let began = sim.now();
    for job in 0..plan.jobs.len() {
        let (plan, sim, block, bios, open) =
            (plan.clone(), sim.clone(), block.clone(), bios.clone(), config.open);
        sim.clone().spawn(async move {
            let Some(job) = plan.jobs.get(job) else { return };
            let task = Task::new(&job.name, job.pid);
            let mut plug = Plug::default();
            for step in &job.steps {
                let (Some(bio), Some(what)) = (bios.get(step.bio), plan.bios.get(step.bio)) else { continue };
                if open {
                    sim.sleep((began + what.at).since(sim.now())).await;
                } else {
                    if let After::Done(other) = step.after
                        && let Some(other) = bios.get(other)
                    {
                        other.wait().await;
                    }
                    sim.sleep(step.think).await;
                }
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

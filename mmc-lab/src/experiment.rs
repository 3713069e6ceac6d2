//! One run of the main job: bonnie++ on a board, under one policy, and what came of it.

use crate::analysis::{Analysis, Class, ClassStats, Options, Report};
use crate::blame::Ahead;
use crate::board::Board;
use crate::sim::{Sim, Stuck};
use crate::stack;
use crate::trace::model::{Event, Kind};
use crate::watchdog::Watchdog;
use crate::workload::beside::{Beside, Load, Met};
use crate::workload::block::{Block, Disk, PAGE, Task, Totals};
use crate::workload::bonnie::{Bench, PHASES, Phase, Random};
use crate::workload::cache::{Cache, is_stamped};
use crate::workload::journal::Journal;
use mmc_mock::Clock;
use mmc_sched::{AnyPolicy, Scheduler};
use mmc_time::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A policy with its settings, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// Name, as Linux spells it.
    pub name: String,
    /// Tunables that were set, in the order given.
    pub settings: Vec<(String, i64)>,
}

impl PolicySpec {
    /// The policy, tuned. A plain `mq-deadline` has the rules of the board's kernel (`spec/mq-deadline.md` §8).
    ///
    /// # Errors
    /// One line naming the value and what is accepted.
    pub fn scheduler(&self, max_sectors: u32, cpu_cost: Duration) -> Result<stack::Sched, String> {
        let name = if self.name == "mq-deadline" { "mq-deadline/5.10" } else { &self.name };
        let policy =
            AnyPolicy::by_name(name).map_err(|e| format!("unknown scheduler '{}': {e}", self.name))?;
        let mut sched = stack::scheduler(policy, max_sectors, cpu_cost);
        for (key, value) in &self.settings {
            set(&mut sched, &self.name, key, *value)?;
        }
        Ok(sched)
    }
    /// How it is shown: `mq-deadline:write_expire=1000:fifo_batch=1`.
    #[must_use]
    pub fn label(&self) -> String {
        let settings: String = self.settings.iter().map(|(k, v)| format!(":{k}={v}")).collect();
        format!("{}{settings}", self.name)
    }
}

/// Tunables of a scheduler.
pub fn tunables(sched: &impl Scheduler) -> impl Iterator<Item = mmc_sched::TunableInfo> + '_ {
    (0..).map_while(|i| sched.tunable(i))
}

fn set(sched: &mut stack::Sched, policy: &str, key: &str, value: i64) -> Result<(), String> {
    let Some(t) = tunables(sched).find(|t| t.name == key) else {
        let names: Vec<_> = tunables(sched).map(|t| t.name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("{policy} has no tunable '{key}': accepted are {names}"));
    };
    if value < t.min || value > t.max {
        return Err(format!(
            "{key}={value} is out of range: {policy} accepts {}..={} {}",
            t.min, t.max, t.unit
        ));
    }
    sched.tune(key, &value.to_string()).map_err(|e| format!("{key}={value}: {e}"))
}

/// Which host is under the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// No controller.
    Mock,
    /// The DesignWare driver on its register model.
    Dw,
}

impl HostKind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Dw => "dw",
        }
    }
}

/// All that decides a run but the policy.
#[derive(Clone, Debug)]
pub struct Config {
    /// The board, with size, RAM and alarm as wanted.
    pub board: Board,
    /// Card preset.
    pub card: String,
    /// Host.
    pub host: HostKind,
    /// Seed of the workload and the card.
    pub seed: u64,
    /// Processor cost of a command.
    pub cpu_cost: Duration,
    /// What runs beside the benchmark.
    pub beside: Vec<Load>,
}

/// One report of the watchdog.
#[derive(Clone, Debug)]
pub struct HungReport {
    /// Who.
    pub task: String,
    /// From when.
    pub from: Instant,
    /// How long.
    pub slept: Duration,
    /// On what, in words.
    pub waits_for: String,
    /// What went to the card before the request that would have ended the sleep.
    pub ahead: Ahead,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The policy.
    pub policy: PolicySpec,
    /// All else that decided it.
    pub config: Config,
    /// Waits, over all bios.
    pub all: Report,
    /// Waits, over bios queued while at least 16 requests were outstanding.
    pub busy: Report,
    /// Whole commits.
    pub commits: ClassStats,
    /// The phases.
    pub phases: [Option<Phase>; 12],
    /// The watchdog's reports.
    pub hung: Vec<HungReport>,
    /// Who slept 200 ms and more: task, from, to.
    pub sleeps: Vec<(String, Instant, Instant)>,
    /// Bytes and depth.
    pub totals: Totals,
    /// Most bytes that waited in memory to be written, and how long the card would write them at the pace it wrote at.
    pub backlog: (u64, Duration),
    /// What the loads beside the benchmark met.
    pub beside: Vec<Met>,
    /// Virtual time from the start of the workload to the end of the last sync.
    pub elapsed: Duration,
    /// Commands the card saw and a hash over their indices and arguments.
    pub commands: (u64, u64),
    /// Pages compared with what was written.
    pub verified: u64,
    /// Every block event.
    pub events: Vec<Event>,
}

/// Where a run stands, for a progress display.
#[derive(Debug, Default)]
pub struct Progress(AtomicU64);

impl Progress {
    /// Phases done, 0..=12.
    #[must_use]
    pub fn phases(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The set-up is impossible: the message names the value.
    #[error("{0}")]
    Setup(String),
    /// The simulation could not go on.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The disk failed a request, or data did not read back: a defect of the stack, never of the input.
    #[error("the simulated disk misbehaved: {0}")]
    Disk(String),
}

/// What the run may look at in the card after the workload, whatever host is in front of it.
pub trait BackDoor {
    /// Commands and the hash over them.
    fn commands(&self) -> (u64, u64);
    /// The bytes at a sector.
    fn read(&self, sector: u64, to: &mut [u8]);
    /// Rules of the standard or of the controller that were broken.
    fn violations(&self) -> Vec<String>;
}

/// Runs bonnie++ under one policy.
///
/// # Errors
/// [`RunError`].
pub fn run(config: &Config, policy: &PolicySpec, progress: &Progress) -> Result<Outcome, RunError> {
    let clock = Clock::new();
    let sched = policy.scheduler(config.board.max_sectors, config.cpu_cost).map_err(RunError::Setup)?;
    let (disk, door) =
        stack::build(config.host, &config.card, config.seed, &clock, sched, config.board.nr_requests)
            .map_err(RunError::Setup)?;
    // The same start for every host, however long identification took.
    clock.advance_to(Instant::from_secs(3));
    simulate(config, policy, progress, &clock, disk, &*door)
}

fn simulate(
    config: &Config,
    policy: &PolicySpec,
    progress: &Progress,
    clock: &Clock,
    disk: Box<dyn Disk>,
    door: &dyn BackDoor,
) -> Result<Outcome, RunError> {
    let board = config.board;
    let sim = Sim::new(clock.clone());
    let began = sim.now();
    let watch = Rc::new(Watchdog::new(&sim, board.hung));
    let block = Rc::new(Block::new(&sim, watch.clone(), disk, board.max_sectors));
    let journal = Rc::new(Journal::new(&sim, board.ordered));
    let cache = Cache::new(&sim, board, watch.clone(), journal.clone(), block.clone());
    let flusher = Task::new("kworker/u2:1", 3);
    let journal_task = Task::new("jbd2/mmcblk0-8", 2);
    sim.daemon(journal.clone().thread(journal_task, watch.clone(), block.clone(), cache.clone()));
    sim.daemon(cache.clone().flusher(flusher.clone()));
    sim.daemon(cache.clone().converter(Task::new("kworker/u2:2", 4)));
    let bench = Rc::new(Bench {
        sim: sim.clone(),
        board,
        cache: cache.clone(),
        journal: journal.clone(),
        watch: watch.clone(),
        flusher,
        random: Random::new(config.seed),
        phases: RefCell::default(),
        now: Cell::new(0),
    });
    sim.spawn(bench.clone().run(Task::new("bonnie++", 10)));
    let start = |load: &Load| Beside::start(*load, &sim, &block, &watch, config.seed);
    let beside: Vec<Rc<Beside>> = config.beside.iter().map(start).collect();
    let options = Options { hung: board.hung.as_nanos(), ..Options::default() };
    let mut all = Analysis::recording(options);
    let mut busy = Analysis::new(Options { busy: 16, ..options });
    sim.run(&*block, |_| progress.0.store(bench.now.get() as u64, Ordering::Relaxed))?;
    let events = block.take_events();
    for e in &events {
        all.push(e);
        busy.push(e);
    }
    if let Some(e) = block.failed().or_else(|| cache.corrupt()) {
        return Err(RunError::Disk(e));
    }
    let mut page = [0; PAGE];
    let expected = cache.expected();
    for (sector, version) in &expected {
        door.read(*sector, &mut page);
        if !is_stamped(&page, *sector, *version) {
            let text = format!("the page at sector {sector} of the card is not what was written last");
            return Err(RunError::Disk(text));
        }
    }
    if let Some(v) = door.violations().first() {
        return Err(RunError::Disk(v.clone()));
    }
    let hung = watch.hung().into_iter().map(|h| HungReport {
        task: h.task.name.to_string(),
        from: h.from,
        slept: h.to.since(h.from),
        waits_for: h.what.text(),
        ahead: h.what.request().map(|r| block.ahead(&r)).unwrap_or_default(),
    });
    let mut commits: Vec<u64> = journal.commits().iter().map(|c| c.to.since(c.from).as_nanos()).collect();
    let phases = *bench.phases.borrow();
    Ok(Outcome {
        policy: policy.clone(),
        config: config.clone(),
        all: all.finish(),
        busy: busy.finish(),
        commits: ClassStats::of(&mut commits),
        phases,
        hung: hung.collect(),
        sleeps: watch.long().into_iter().map(|l| (l.task.name.to_string(), l.from, l.to)).collect(),
        totals: block.totals(),
        backlog: (cache.backlog(), time_to_write(cache.backlog(), &served(&events))),
        beside: beside.iter().map(|b| b.met()).collect(),
        elapsed: sim.now().since(began),
        commands: door.commands(),
        verified: cache.verified() + expected.len() as u64,
        events,
    })
}

impl Outcome {
    /// KiB/s (or seeks, or files per second) of a phase.
    #[must_use]
    pub fn rate(&self, phase: &str) -> Option<f64> {
        let i = PHASES.iter().position(|p| *p == phase)?;
        self.phases[i].as_ref().map(Phase::rate)
    }
    /// The closed form of `spec/stall-measured.md` §4: tags times the card's time for one request of the longest
    /// kind, as measured in this run (median service of the full-size background writes).
    #[must_use]
    pub fn closed_form(&self) -> (u16, Duration) {
        let full = |c: &Served| c.sectors == self.config.board.max_sectors && c.class != Class::Reads;
        let mut services: Vec<u64> =
            served(&self.events).iter().filter(|c| full(c)).map(|c| c.to - c.from).collect();
        services.sort_unstable();
        let one = services.get(services.len() / 2).copied().unwrap_or(0);
        (self.config.board.nr_requests, Duration::from_nanos(one))
    }
}

/// One command at the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When the card began it, nanoseconds: when it was issued, or when the card was done with the one before.
    pub from: u64,
    /// When it completed, nanoseconds.
    pub to: u64,
    /// Sectors.
    pub sectors: u32,
    /// Class of the request that was inserted for it.
    pub class: Class,
}

/// How long the card takes for `bytes` at the pace of the writes among `served`.
fn time_to_write(bytes: u64, served: &[Served]) -> Duration {
    let writes = || served.iter().filter(|c| c.class != Class::Reads);
    let time: u128 = writes().map(|c| u128::from(c.to - c.from)).sum();
    let sectors: u128 = writes().map(|c| u128::from(c.sectors)).sum();
    let took = (u128::from(bytes) * time).checked_div(sectors * 512).unwrap_or(0);
    Duration::from_nanos(u64::try_from(took).unwrap_or(u64::MAX))
}

/// The commands of a run, in the order of their completion. The card does one at a time.
#[must_use]
pub fn served(events: &[Event]) -> Vec<Served> {
    let (mut out, mut free) = (Vec::new(), 0);
    let mut issued: HashMap<u64, (u64, Class)> = HashMap::new();
    let mut owners: HashMap<u64, Class> = HashMap::new();
    for e in events {
        match e.kind {
            Kind::Insert => {
                owners.insert(e.sector, Class::of(&e.rwbs, &e.task));
            }
            Kind::Issue => {
                let class = owners.remove(&e.sector).unwrap_or_else(|| Class::of(&e.rwbs, &e.task));
                issued.insert(e.sector, (e.at, class));
            }
            Kind::Complete => {
                if let Some((at, class)) = issued.remove(&e.sector) {
                    out.push(Served { from: at.max(free), to: e.at, sectors: e.sectors, class });
                    free = e.at;
                }
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_told_in_time_of_the_card() {
        let command = |from, to, sectors, class| Served { from, to, sectors, class };
        // 1 MiB in 100 ms and 1 MiB in 300 ms; reads do not count.
        let all = [
            command(0, 100_000_000, 2048, Class::AsyncWrites),
            command(100_000_000, 900_000_000, 8, Class::Reads),
            command(900_000_000, 1_200_000_000, 2048, Class::SyncWrites),
        ];
        assert_eq!(time_to_write(10 << 20, &all), Duration::from_secs(2));
        assert_eq!(time_to_write(10 << 20, &all[1..2]), Duration::ZERO);
    }
}

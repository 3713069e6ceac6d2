//! Which scheduler and which tunables would serve a workload best: each candidate is a replay of a trace, or a run of a
//! simulated bonnie++.
//!
//! It is not a proof: a workload is one workload, and the card is a model.
//!
//! The search has two rounds. First all policies with the queue as it is; then, for those no other beats in both
//! stall and throughput, fewer tags, smaller requests and, where the workload has a page cache, lower dirty limits. (A
//! trace does not show when pages became dirty.)

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

use crate::analysis::{Class, Report, Victim};
use crate::experiment::{self, PolicySpec, Progress};
use crate::replay::closed::{self, Config, Views};
use crate::replay::plan::Plan;

/// The tags tried in the second round, and the longest requests in sectors.
const TAGS: [u16; 3] = [16, 32, 64];
/// See [`TAGS`].
const SECTORS: [u32; 3] = [128, 256, 512];
/// `vm.dirty_background_bytes` and `vm.dirty_bytes` tried in the second round.
const DIRTY: [[u64; 2]; 3] = [[4 << 20, 8 << 20], [8 << 20, 16 << 20], [16 << 20, 32 << 20]];
/// Policies that go on to the second round.
const BEST: usize = 4;

/// What can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Scheduler and its tunables.
    pub policy: PolicySpec,
    /// Tags.
    pub nr_requests: u16,
    /// Longest request in sectors.
    pub max_sectors: u32,
    /// `vm.dirty_background_bytes` and `vm.dirty_bytes`; `None`: as they are.
    pub dirty: Option<[u64; 2]>,
}

impl Setting {
    /// How it is shown; the queue's own settings only where they differ from `now`.
    #[must_use]
    pub fn label(&self, now: &Self) -> String {
        let mut label = self.policy.label();
        if self.nr_requests != now.nr_requests {
            label.push_str(&format!(" nr_requests={}", self.nr_requests));
        }
        if self.max_sectors != now.max_sectors {
            label.push_str(&format!(" max_sectors_kb={}", self.max_sectors / 2));
        }
        if let Some([_, limit]) = self.dirty.filter(|_| self.dirty != now.dirty) {
            label.push_str(&format!(" dirty_bytes={}M", limit >> 20));
        }
        label
    }
}

/// A setting and what it would have done.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What is set.
    pub setting: Setting,
    /// p99 over all bios by class, in nanoseconds, indexed by [`Class::index`]; `None`: no such bio.
    pub p99: [Option<u64>; 4],
    /// What is to be short: the p99 of the class asked for, in nanoseconds.
    pub stall: u64,
    /// See [`Views::busy_rate`]; of a simulated workload all bytes over the whole run.
    pub rate: f64,
    /// The longest wait of the class asked for.
    pub worst: Option<Victim>,
    /// Nothing else is better in one and as good in the other.
    pub front: bool,
}

/// What is to be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The waits of one class.
    Of(Class),
    /// The worst of all classes that a task may sleep for.
    Awaited,
}

impl Goal {
    fn classes(self) -> impl Iterator<Item = Class> {
        Class::ALL.into_iter().filter(move |&class| match self {
            Self::Of(one) => one == class,
            Self::Awaited => class.is_awaited(),
        })
    }
    /// Its name in a sentence.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Of(class) => class.noun(),
            Self::Awaited => "wait that a task may sleep for",
        }
    }
}

/// Runs a workload under a setting.
type Runner<'a> = Box<dyn Fn(&Setting) -> Result<Candidate, String> + 'a>;

/// What is tuned for.
#[derive(Debug)]
pub enum Workload<'a> {
    /// A recorded one.
    Recorded(&'a Plan, &'a Config),
    /// bonnie++ on a simulated board.
    Bonnie(&'a experiment::Config),
}

impl Workload<'_> {
    /// The setting of now, under `policy`.
    fn setting(&self, policy: &PolicySpec) -> Setting {
        let (nr_requests, max_sectors) = match self {
            Self::Recorded(_, config) => (config.nr_requests, config.max_sectors),
            Self::Bonnie(config) => (config.board.nr_requests, config.board.max_sectors),
        };
        Setting { policy: policy.clone(), nr_requests, max_sectors, dirty: None }
    }

    /// What runs it; of a thread's own.
    fn runner(&self, goal: Goal) -> Runner<'_> {
        match *self {
            Self::Recorded(plan, config) => {
                let plan = Rc::new(plan.clone());
                Box::new(move |setting| one(&plan, config, setting, goal))
            }
            Self::Bonnie(config) => Box::new(move |setting| bonnie(config, setting, goal)),
        }
    }
}

/// All candidates in the order they were tried, the present setting first.
///
/// # Errors
/// One line: a policy does not exist, or a simulation could not go on.
pub fn search(
    workload: &Workload<'_>,
    policies: &[PolicySpec],
    goal: Goal,
    each: impl Fn() + Sync,
) -> Result<Vec<Candidate>, String> {
    let first: Vec<Setting> = policies.iter().map(|policy| workload.setting(policy)).collect();
    let Some(now) = first.first().cloned() else { return Ok(Vec::new()) };
    let mut all = try_all(workload, &first, goal, &each)?;
    mark_front(&mut all);
    let mut best: Vec<&Candidate> = all.iter().filter(|c| c.front).collect();
    best.sort_by_key(|c| c.stall);
    best.truncate(BEST);
    let limits = match workload {
        Workload::Recorded(..) => &[][..],
        Workload::Bonnie(_) => &DIRTY,
    };
    let mut second = Vec::new();
    for Candidate { setting, .. } in best {
        let tags = TAGS.into_iter().filter(|&n| n < now.nr_requests);
        let sectors = SECTORS.into_iter().filter(|&n| n < now.max_sectors);
        second.extend(tags.clone().map(|nr_requests| Setting { nr_requests, ..setting.clone() }));
        second.extend(sectors.clone().map(|max_sectors| Setting { max_sectors, ..setting.clone() }));
        second.extend(limits.iter().map(|&dirty| Setting { dirty: Some(dirty), ..setting.clone() }));
        if let (Some(nr_requests), Some(max_sectors)) = (tags.max(), sectors.max()) {
            second.push(Setting { nr_requests, max_sectors, ..setting.clone() });
        }
    }
    all.extend(try_all(workload, &second, goal, &each)?);
    mark_front(&mut all);
    Ok(all)
}

/// Runs all, on as many threads as there are processors; the results are in the order of the settings.
fn try_all(
    workload: &Workload<'_>,
    settings: &[Setting],
    goal: Goal,
    each: &(impl Fn() + Sync),
) -> Result<Vec<Candidate>, String> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Result<Candidate, String>>> =
        settings.iter().map(|_| Mutex::new(Err("a run ended without a result".to_owned()))).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(settings.len());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let run = workload.runner(goal);
                loop {
                    let i = next.fetch_add(1, Atomic::Relaxed);
                    let (Some(setting), Some(result)) = (settings.get(i), results.get(i)) else { return };
                    let found = run(setting);
                    if let Ok(mut result) = result.lock() {
                        *result = found;
                    }
                    each();
                }
            });
        }
    });
    let ended = |m: Mutex<_>| m.into_inner().unwrap_or_else(|_| Err("a run broke off".to_owned()));
    results.into_iter().map(ended).collect()
}

fn one(plan: &Rc<Plan>, config: &Config, setting: &Setting, goal: Goal) -> Result<Candidate, String> {
    let config =
        Config { nr_requests: setting.nr_requests, max_sectors: setting.max_sectors, ..config.clone() };
    let events = closed::run(plan, &config, &setting.policy)?;
    let views = Views::of(&events, 0);
    Ok(candidate(setting, &views.all, views.busy_rate(), goal))
}

fn bonnie(config: &experiment::Config, setting: &Setting, goal: Goal) -> Result<Candidate, String> {
    let mut config = config.clone();
    config.board.nr_requests = setting.nr_requests;
    config.board.max_sectors = setting.max_sectors;
    config.board.dirty_bytes = setting.dirty.or(config.board.dirty_bytes);
    let outcome =
        experiment::run(&config, &setting.policy, &Progress::default()).map_err(|e| e.to_string())?;
    let bytes = outcome.totals.written.saturating_add(outcome.totals.read) as f64;
    let rate = bytes / (outcome.elapsed.as_nanos() as f64 / 1e9).max(1e-9);
    Ok(candidate(setting, &outcome.all, rate, goal))
}

fn candidate(setting: &Setting, report: &Report, rate: f64, goal: Goal) -> Candidate {
    let p99 = Class::ALL.map(|class| report.classes.get(class).p99);
    let of = |class: Class| p99.get(class.index()).copied().flatten();
    let worst = goal.classes().filter_map(|c| report.worst.get(c.index())?.clone()).max_by_key(|v| v.wait);
    let stall = goal.classes().filter_map(of).max().unwrap_or(0);
    Candidate { setting: setting.clone(), p99, stall, rate, worst, front: false }
}

fn mark_front(all: &mut [Candidate]) {
    let points: Vec<(u64, f64)> = all.iter().map(|c| (c.stall, c.rate)).collect();
    for c in all {
        let beaten = |&(stall, rate): &(u64, f64)| {
            stall <= c.stall && rate >= c.rate && (stall < c.stall || rate > c.rate)
        };
        c.front = !points.iter().any(beaten);
    }
}

/// The candidate with the shortest stall among those that keep `percent` of the best rate; of equal stalls the fastest.
#[must_use]
pub fn recommended(all: &[Candidate], percent: f64) -> Option<&Candidate> {
    let best = all.iter().map(|c| c.rate).fold(0.0, f64::max);
    all.iter()
        .filter(|c| c.rate >= best * percent / 100.0)
        .min_by(|a, b| a.stall.cmp(&b.stall).then(b.rate.partial_cmp(&a.rate).unwrap_or(Ordering::Equal)))
}

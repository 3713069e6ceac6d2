//! A recorder that must not wait for its card: how often a block is late, and how large a ring buffer hides it.
//!
//! It is not the whole stack: one writer with nothing beside it, on the timing model of the card alone. Blocks are made at a
//! steady rate and written one at a time, in order; what the file system adds are small writes elsewhere every so often.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mmc_mock::timing::{Profile, Timing};
use mmc_time::Duration;

/// Where the blocks go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// One behind the other, from the begin again at the end of the file.
    Sequential,
    /// Anywhere in the file.
    Random,
}

/// What is recorded. Sizes in bytes, times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes made a second, at least 1.
    pub rate: u64,
    /// Bytes of a block, a multiple of 512, at least that.
    pub block: u64,
    /// Time between two rounds of the file system's own writes; 0: none.
    pub sync: u64,
    /// Writes of 4 KiB in such a round.
    pub metadata: u32,
    /// Bytes of the file, at least a block.
    pub file: u64,
    /// Where the blocks go in it.
    pub place: Place,
}

impl Load {
    /// The loads that have a name.
    pub const NAMES: [&'static str; 3] = ["logger", "camera", "database"];

    /// A load by name: `logger` 256 KiB/s in blocks of 16 KiB, `camera` 2 MiB/s in blocks of 128 KiB, `database` 40 random
    /// writes of 4 KiB a second in 256 MiB; each with a round of two metadata writes a second (`database`: a journal write
    /// five times a second).
    ///
    /// # Errors
    /// One line that names what is accepted.
    pub fn named(name: &str) -> Result<Self, String> {
        let second = 1_000_000_000;
        let sequential = |rate, block| Self {
            rate,
            block,
            sync: second,
            metadata: 2,
            file: 1 << 30,
            place: Place::Sequential,
        };
        match name {
            "logger" => Ok(sequential(256 << 10, 16 << 10)),
            "camera" => Ok(sequential(2 << 20, 128 << 10)),
            "database" => Ok(Self {
                rate: 160 << 10,
                block: 4 << 10,
                sync: second / 5,
                metadata: 1,
                file: 256 << 20,
                place: Place::Random,
            }),
            other => Err(format!("`{other}` is no workload: accepted are {}", Self::NAMES.join(", "))),
        }
    }

    /// Nanoseconds from one block to the next.
    #[must_use]
    pub fn period(&self) -> u64 {
        (u128::from(self.block) * 1_000_000_000 / u128::from(self.rate.max(1))) as u64
    }
}

/// How long and on what.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The card.
    pub card: Profile,
    /// Bytes a second on the wire, which come on top of the card's own time; at least 1.
    pub bus: u64,
    /// A block is late when it is not on the card so many nanoseconds after it was made.
    pub deadline: u64,
    /// Independent runs, with a seed each; at least 2.
    pub runs: u32,
    /// Blocks a run, at least 1.
    pub blocks: u64,
    /// Seed of the first run.
    pub seed: u64,
}

/// A share with the interval that holds the true one in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Share {
    /// Of all blocks.
    pub value: f64,
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Blocks in all.
    pub blocks: u64,
    /// Late ones.
    pub late: u64,
    /// Chance that a block is late: Student's interval over the runs, since late blocks come together; with none late the
    /// upper end is three in so many blocks as were looked at.
    pub miss: Share,
    /// Time from making a block until it is on the card, nanoseconds: median, 99 % and 99.9 % of them (rounded up within
    /// 1/64), and the longest.
    pub latency: [u64; 4],
    /// Bytes made and not yet on the card that are exceeded with a chance of 10⁻³ a block.
    pub ring_3: u64,
    /// And 10⁻⁶; `None`: too few blocks to tell (fewer than ten would exceed it).
    pub ring_6: Option<u64>,
    /// Most bytes that ever were.
    pub ring_max: u64,
    /// Share of the time that the card works; 1 and more: it cannot keep up.
    pub busy: f64,
    /// The distribution: nanoseconds (rounded up, as [`latency`](Self::latency)), blocks that were on the card by then.
    pub steps: Vec<(u64, u64)>,
    /// Bytes, blocks that found more than that made and not yet on the card; from one block up to [`ring_max`](Self::ring_max).
    pub rings: Vec<(u64, u64)>,
}

/// One run.
#[derive(Clone, Debug, Default)]
struct Run {
    late: u64,
    latency: HashMap<u64, u64>,
    longest: u64,
    backlog: Vec<u64>,
    busy: u64,
    took: u64,
}

/// Does all runs, on as many threads as there are processors; the same every time. `done` hears of each that is over.
///
/// # Errors
/// One line: the setup is out of its bounds.
pub fn simulate(load: &Load, setup: &Setup, done: &(dyn Fn() + Sync)) -> Result<Outcome, String> {
    if load.block == 0 || !load.block.is_multiple_of(512) || load.file < load.block {
        return Err("a block is a multiple of 512 bytes, and the file holds at least one".to_owned());
    }
    if setup.runs < 2 || setup.blocks == 0 {
        return Err("at least two runs of a block each are needed".to_owned());
    }
    let next = AtomicUsize::new(0);
    let runs: Vec<Mutex<Run>> = (0..setup.runs).map(|_| Mutex::default()).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(runs.len());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(run) = runs.get(i) else { return };
                    let outcome = one(load, setup, setup.seed.wrapping_add(i as u64));
                    if let Ok(mut run) = run.lock() {
                        *run = outcome;
                    }
                    done();
                }
            });
        }
    });
    let runs: Vec<Run> = runs.into_iter().filter_map(|run| run.into_inner().ok()).collect();
    Ok(summary(load, setup, &runs))
}

fn one(load: &Load, setup: &Setup, seed: u64) -> Run {
    let mut card = Timing::new(setup.card.clone(), seed);
    let mut random = seed ^ 0x5851_f42d_4c95_7f2d;
    let (sectors, places) = (load.block / 512, load.file / load.block);
    let wire = |bytes: u64| (u128::from(bytes) * 1_000_000_000 / u128::from(setup.bus.max(1))) as u64;
    let (period, block_wire, small_wire) = (load.period(), wire(load.block), wire(4096));
    // The file system's own places: in units of their own in front of the file.
    let front = setup.card.au.max(8).saturating_mul(4);
    let mut run = Run::default();
    let mut free = 0_u64;
    let mut next_sync = load.sync;
    let mut waiting: VecDeque<u64> = VecDeque::new();
    for i in 0..setup.blocks {
        let made = i.saturating_mul(period);
        let began = free;
        if load.sync > 0 && made >= next_sync {
            next_sync = next_sync.saturating_add(load.sync);
            free = free.max(made);
            for n in 0..u64::from(load.metadata) {
                let service =
                    card.write(n * setup.card.au + i / 64 % 64 * 8, 8).total.as_nanos() + small_wire;
                (free, run.busy) = (free.saturating_add(service), run.busy.saturating_add(service));
            }
        }
        let place = match load.place {
            Place::Sequential => i % places,
            Place::Random => {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % places
            }
        };
        let service = card.write(front + place * sectors, sectors).total.as_nanos() + block_wire;
        free = free.max(made).saturating_add(service);
        run.busy = run.busy.saturating_add(service);
        let latency = free - made.min(free);
        run.late += u64::from(latency > setup.deadline);
        run.longest = run.longest.max(latency);
        *run.latency.entry(coarse(latency)).or_default() += 1;
        while waiting.front().is_some_and(|&done| done <= made) {
            waiting.pop_front();
        }
        waiting.push_back(free);
        // With nothing late a queue of thousands of blocks is an overload, told by `busy`; the count stays exact.
        let depth = waiting.len();
        if run.backlog.len() <= depth {
            run.backlog.resize(depth + 1, 0);
        }
        run.backlog[depth] += 1;
        run.took = run.took.max(free).max(began);
    }
    run.took = run.took.max(setup.blocks.saturating_mul(period)).max(1);
    run
}

/// `ns` rounded up to 7 significant bits.
fn coarse(ns: u64) -> u64 {
    let shift = (64 - ns.leading_zeros()).saturating_sub(7);
    ns.div_ceil(1 << shift) << shift
}

fn summary(load: &Load, setup: &Setup, runs: &[Run]) -> Outcome {
    let n = runs.len() as f64;
    let blocks = setup.blocks * runs.len() as u64;
    let late: u64 = runs.iter().map(|run| run.late).sum();
    let shares: Vec<f64> = runs.iter().map(|run| run.late as f64 / setup.blocks as f64).collect();
    let mean = shares.iter().sum::<f64>() / n;
    let spread = (shares.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0) / n).sqrt();
    let half = student(runs.len() - 1) * spread;
    let high = if late == 0 { 3.0 / blocks as f64 } else { (mean + half).min(1.0) };
    let mut times: HashMap<u64, u64> = HashMap::new();
    let mut backlog: Vec<u64> = Vec::new();
    for run in runs {
        run.latency.iter().for_each(|(ns, n)| *times.entry(*ns).or_default() += n);
        if backlog.len() < run.backlog.len() {
            backlog.resize(run.backlog.len(), 0);
        }
        backlog.iter_mut().zip(&run.backlog).for_each(|(all, n)| *all += n);
    }
    let mut times: Vec<(u64, u64)> = times.into_iter().collect();
    times.sort_unstable();
    let longest = runs.iter().map(|run| run.longest).max().unwrap_or(0);
    let at = |share: f64| {
        let mut left = (blocks as f64 * share) as u64;
        let found = times.iter().find(|(_, n)| {
            let here = left < *n;
            left = left.saturating_sub(*n);
            here
        });
        found.map_or(longest, |t| t.0.min(longest))
    };
    // The smallest ring such that no more than this share of blocks finds more in it.
    let ring = |share: f64| {
        let mut above = blocks;
        let depth = backlog.iter().position(|n| {
            above -= n;
            above as f64 <= blocks as f64 * share
        });
        depth.unwrap_or(0) as u64 * load.block
    };
    let mut by_then = 0;
    let steps = times.iter().map(|&(ns, n)| {
        by_then += n;
        (ns, by_then)
    });
    let steps = steps.collect();
    let mut above = blocks;
    let rings = backlog.iter().enumerate().map(|(depth, n)| {
        above -= n;
        (depth as u64 * load.block, above)
    });
    let rings = rings.skip(1).collect();
    let busy: f64 = runs.iter().map(|run| run.busy as f64 / run.took as f64).sum::<f64>() / n;
    let made = (load.period() * setup.blocks) as f64;
    let asked: f64 = runs.iter().map(|run| run.busy as f64 / made.max(1.0)).sum::<f64>() / n;
    Outcome {
        blocks,
        late,
        miss: Share { value: mean, low: (mean - half).max(0.0), high },
        latency: [at(0.5), at(0.99), at(0.999), longest],
        ring_3: ring(1e-3),
        ring_6: (blocks as f64 * 1e-6 >= 10.0).then(|| ring(1e-6)),
        ring_max: backlog.len().saturating_sub(1) as u64 * load.block,
        busy: busy.max(asked),
        steps,
        rings,
    }
}

/// Student's factor of a two-sided interval of 95 % with this many degrees of freedom.
fn student(degrees: usize) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    T.get(degrees.saturating_sub(1)).copied().unwrap_or(1.96)
}

/// The median, the least and the most of some values, and Student's interval of 95 % of their mean (for one value: itself).
#[must_use]
pub fn spread(values: &[f64]) -> Option<[f64; 5]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (&least, &most) = (sorted.first()?, sorted.last()?);
    let n = sorted.len();
    let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
    let mean = sorted.iter().sum::<f64>() / n as f64;
    let half = if n < 2 {
        0.0
    } else {
        let variance = sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0);
        student(n - 1) * (variance / n as f64).sqrt()
    };
    Some([median, least, most, mean - half, mean + half])
}

/// The mean time of a block on a card without pauses, in nanoseconds: what `sequential` costs at least.
#[must_use]
pub fn least_service(load: &Load, setup: &Setup) -> u64 {
    let calm = Profile { stall_p: 0.0, ..setup.card.clone() };
    let mut card = Timing::new(calm, 0);
    let service: Duration = card.write(0, load.block / 512).total;
    service.as_nanos() + (u128::from(load.block) * 1_000_000_000 / u128::from(setup.bus.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(card: Profile) -> Setup {
        Setup { card, bus: 25_000_000, deadline: 10_000_000, runs: 4, blocks: 20_000, seed: 1 }
    }

    #[test]
    fn an_ideal_card_needs_one_block_and_is_never_late() {
        let load = Load::named("logger").unwrap();
        let out = simulate(&load, &setup(Profile::ideal()), &|| ()).unwrap();
        assert_eq!((out.late, out.ring_3, out.ring_max), (0, load.block, load.block));
        assert_eq!(
            out.latency[3],
            load.block * 1000 / 25 + 2 * (4096 * 1000 / 25),
            "behind two metadata writes"
        );
        assert!(out.miss.value == 0.0 && out.miss.high > 0.0 && out.miss.high < 1e-4);
        assert_eq!(out.ring_6, None, "80,000 blocks say nothing about one in a million");
    }

    #[test]
    fn a_ring_of_the_size_named_overflows_as_often_as_named() {
        // Pauses only, with a known chance: at one block a pause, the share of late blocks is that of the pauses and of
        // those that come while one lasts.
        let pause = Duration::from_millis(500);
        let card = Profile { stall_p: 0.0005, stall_min: pause, stall_max: pause, ..Profile::ideal() };
        let load = Load { sync: 0, ..Load::named("logger").unwrap() };
        let out = simulate(&load, &Setup { runs: 8, blocks: 50_000, ..setup(card) }, &|| ()).unwrap();
        // A block every 62.5 ms: a pause of 500 ms makes 8 blocks late.
        let expected = 0.0005 * 8.0;
        assert!(out.miss.low <= expected && expected <= out.miss.high, "{:?}", out.miss);
        assert!(out.miss.high < 2.0 * expected, "{:?}", out.miss);
        // In such a pause the backlog grows to 8 blocks or, with another one in it, more.
        assert!(out.ring_3 >= 7 * load.block && out.ring_3 <= 9 * load.block, "{}", out.ring_3 / load.block);
        // The curves behind the figures say the same.
        assert_eq!(out.steps.last().map(|s| s.1), Some(out.blocks));
        assert_eq!(out.rings.last(), Some(&(out.ring_max, 0)));
        let first = out.rings.iter().find(|r| r.1 as f64 <= out.blocks as f64 * 1e-3);
        assert_eq!(first.map(|r| r.0), Some(out.ring_3));
    }

    #[test]
    fn a_card_that_is_too_slow_is_told_by_its_load() {
        let load = Load { rate: 20_000_000, ..Load::named("camera").unwrap() };
        let out = simulate(&load, &Setup { blocks: 2_000, ..setup(Profile::slow2018()) }, &|| ()).unwrap();
        assert!(out.busy > 1.0 && out.miss.value > 0.9, "{out:?}");
        assert!(least_service(&load, &setup(Profile::slow2018())) > load.period());
    }

    #[test]
    fn the_same_seed_gives_the_same_answer_and_another_another() {
        let load = Load::named("database").unwrap();
        let with = |seed| {
            simulate(&load, &Setup { seed, blocks: 5_000, ..setup(Profile::cheap()) }, &|| ()).unwrap()
        };
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(100));
    }

    #[test]
    fn spreads_are_medians_ends_and_an_interval() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0]), Some([3.0; 5]));
        let [median, least, most, low, high] = spread(&[1.0, 2.0, 3.0, 6.0]).unwrap();
        assert_eq!((median, least, most), (2.5, 1.0, 6.0));
        // Mean 3, standard deviation 2.16, three degrees of freedom.
        assert!((low + 0.437).abs() < 0.01 && (high - 6.437).abs() < 0.01, "{low} {high}");
    }
}

//! What a policy costs the processor: one request inserted, dispatched and completed at a constant depth.
//!
//! It is not a simulation of a device: each command ends at once, and virtual time moves on by what a card of
//! 40 MB/s would have taken, so that deadlines and slots pass as they would.

use mmc_sched::{
    AnyPolicy, Dispatch, Flags, Inserted, Limits, Merges, Op, Outcome, Queue, Request, Scheduler, Slot,
    StreamId,
};
use mmc_time::{Duration, Instant};

/// What arrives, in requests of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Anywhere in 32 GiB, half reads and half sync writes.
    Random,
    /// The same, and nothing is tried to be merged.
    RandomNoMerge,
    /// Each stream writes upwards, leaving every other 4 KiB out: nothing merges, though all is tried.
    Sequential,
    /// Each stream writes upwards without a hole.
    SequentialMerge,
}

/// All workloads.
pub const WORKLOADS: [Workload; 4] =
    [Workload::Random, Workload::RandomNoMerge, Workload::Sequential, Workload::SequentialMerge];

/// The policies that tell streams apart.
pub const FAIR: [&str; 3] = ["bfq", "cfq", "ftb"];

impl Workload {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RandomNoMerge => "random-nomerge",
            Self::Sequential => "sequential",
            Self::SequentialMerge => "sequential-merge",
        }
    }
}

/// Sectors of a request.
const BLOCKS: u32 = 8;
/// Sectors of the device: 32 GiB.
const DEVICE: u64 = 32 << 21;
/// Of one request at the device.
const SERVICE: Duration = Duration::from_micros(100);
/// Answers without a command, one after another, before a policy counts as stuck.
const PATIENCE: u32 = 1000;

/// A scheduler that is kept at one depth.
#[derive(Debug)]
pub struct Bench {
    queue: Queue<Box<[Slot]>, AnyPolicy>,
    workload: Workload,
    streams: u32,
    random: u64,
    /// Requests made.
    made: u64,
    /// Of them merged on arrival.
    merged: u64,
    now: Instant,
}

impl Bench {
    /// `policy` with `depth` requests (1..=65,000) of `streams` streams (at least 1) queued.
    ///
    /// # Errors
    /// The policy refused one.
    pub fn new(policy: AnyPolicy, workload: Workload, depth: usize, streams: u32) -> Result<Self, String> {
        let merges = if workload == Workload::RandomNoMerge { Merges::None } else { Merges::All };
        let limits = Limits { merges, ..Limits::default() };
        let slots = vec![Slot::FREE; depth].into_boxed_slice();
        let queue = Queue::with_limits(slots, policy, limits);
        let (random, now) = (0x2545_f491_4f6c_dd1d, Instant::ZERO);
        let mut this = Self { queue, workload, streams: streams.max(1), random, made: 0, merged: 0, now };
        for _ in 0..depth {
            this.insert()?;
        }
        Ok(this)
    }

    /// Share of the requests that merged on arrival.
    #[must_use]
    pub fn merged(&self) -> f64 {
        self.merged as f64 / self.made.max(1) as f64
    }
    /// Requests in the scheduler.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.len()
    }

    fn insert(&mut self) -> Result<(), String> {
        let r = self.request();
        let (_, how) = match self.queue.merge(&r, self.now) {
            Some(merged) => merged,
            None => self.queue.insert(r, self.now).map_err(|(_, e)| format!("{}: {e}", self.queue.name()))?,
        };
        self.merged += u64::from(how != Inserted::Queued);
        Ok(())
    }

    fn request(&mut self) -> Request {
        let stream = (self.made % u64::from(self.streams)) as u32;
        let turn = self.made / u64::from(self.streams);
        self.made += 1;
        let (op, at) = match self.workload {
            Workload::Random | Workload::RandomNoMerge => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let op = if self.random >> 63 == 0 { Op::Read } else { Op::Write };
                (op, self.random % (DEVICE / u64::from(BLOCKS)) * u64::from(BLOCKS))
            }
            Workload::Sequential | Workload::SequentialMerge => {
                let area = DEVICE / u64::from(self.streams) / 16 * 16;
                let stride = if self.workload == Workload::Sequential { 16 } else { 8 };
                (Op::Write, u64::from(stream) * area + turn * stride % area)
            }
        };
        Request { flags: Flags::SYNC, ..Request::new(op, at, BLOCKS, StreamId(stream)) }
    }

    /// One command: dispatched, all of its requests completed, and as many inserted. How many it were.
    ///
    /// # Errors
    /// The policy hands out nothing any more.
    pub fn step(&mut self) -> Result<usize, String> {
        let mut asked = 0;
        let run = loop {
            match self.queue.dispatch(self.now) {
                Dispatch::Run(run) => break run,
                Dispatch::Wait { at: Some(at), .. } if asked < PATIENCE => self.now = self.now.max(at),
                other => return Err(format!("{}: {other:?} with nothing at the device", self.queue.name())),
            }
            asked += 1;
        };
        self.now += SERVICE.saturating_mul(u64::from(run.blocks.div_ceil(BLOCKS)));
        let (mut at, mut over) = (Some(run.head), 0);
        while let Some(id) = at {
            at = self.queue.next_member(id);
            let blocks = if run.count == 1 { run.blocks } else { BLOCKS };
            let done = self.queue.complete(id, Outcome { blocks, failed: false }, self.now);
            over += usize::from(done.is_some_and(|d| d.last));
        }
        for _ in 0..over {
            self.insert()?;
        }
        Ok(over)
    }

    /// Steps until at least `requests` were completed; how many it were.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn steps(&mut self, requests: usize) -> Result<usize, String> {
        let mut done = 0;
        while done < requests {
            done += self.step()?;
        }
        Ok(done)
    }

    /// Nanoseconds of real time per request: the median of `runs` runs (at least 1) of `requests` each, after as
    /// many requests as are queued.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn measure(&mut self, runs: usize, requests: usize) -> Result<f64, String> {
        self.steps(requests.max(self.depth()))?;
        let mut times = Vec::with_capacity(runs);
        for _ in 0..runs.max(1) {
            let began = std::time::Instant::now();
            let done = self.steps(requests)?;
            times.push(began.elapsed().as_nanos() as f64 / done.max(1) as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok((times[(times.len() - 1) / 2] + times[times.len() / 2]) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_stays_at_its_depth_and_merges_only_where_it_should() {
        for name in AnyPolicy::NAMES {
            for workload in WORKLOADS {
                for streams in [1, 8] {
                    let policy = AnyPolicy::by_name(name).unwrap();
                    let mut b = Bench::new(policy, workload, 64, streams).unwrap();
                    assert!(b.steps(2000).unwrap() >= 2000);
                    assert_eq!(b.depth(), 64, "{name} {workload:?}");
                    let (what, merged) = (format!("{name} {workload:?} {streams}"), b.merged());
                    match workload {
                        Workload::SequentialMerge => assert!(merged > 0.5, "{what}: {merged}"),
                        Workload::Random => assert!(merged < 0.01, "{what}: {merged}"),
                        _ => assert!(merged == 0.0, "{what}: {merged}"),
                    }
                }
            }
        }
    }
}

//! What a trace says of its workload: which task submits what, and what it waits for before.
//!
//! It is not the program that ran: a task that counts its work by the clock (fio with a run time) does here what it did
//! in the trace, no more. Flushes and discards are left out, as a card without a cache does not see them.
//!
//! A bio comes after one of these, with a think time that the trace shows:
//! * the completion of a bio its own task may sleep for (reads, sync and journal writes), if one completed since the
//!   task was last seen awake;
//! * for a task that wrote with sync before: the completion of a journal write in that time (an fsync waits for its
//!   commit);
//! * the completion of anybody's such bio less than half a millisecond before (a commit begins when an fsync's data is
//!   written), for what somebody sleeps for;
//! * after half a second without a submission or such a completion of its own, the latest completion of all (a flusher that slept for a buffer of the
//!   commit; and what only the clock woke stays in step with the card);
//! * else the task's previous submission, waits for tags included.
//!
//! A commit of the journal (its first bio, not those that follow at once) does not come before the writes that others submitted
//! it: they made what it commits.
//!
//! Several tasks of one name whose sync writes go through the same place at the same time write one file (each fsync writes
//! all dirty pages it comes upon): they are a crew, and whoever is awake takes the next of what they write together.

use std::collections::HashMap;
use std::sync::Arc;

use mmc_sched::{Flags, Op};
use mmc_time::Duration;

use crate::analysis::Class;
use crate::trace::model::{Event, Kind};

/// A completion so short before a submission caused it, whoever waited for it.
const NEAR: u64 = 500_000;
/// A task that submitted nothing for so long slept for something.
const SLEPT: u64 = 500_000_000;
/// A crew has something to write at least this often, and
const CREW_PAUSE: u64 = 1_000_000_000;
/// within so many sectors of the last (128 MiB: the dirty pages may be few and far between).
const CREW_REACH: u64 = 1 << 18;
/// Submissions of one task with less between them stay on its plug.
const PLUGGED: u64 = 50_000;

/// One bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bio {
    /// What.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// First sector.
    pub sector: u64,
    /// Sectors, at least 1.
    pub sectors: u32,
    /// When it was submitted, from the first one on.
    pub at: Duration,
}

/// What a submission comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The task's previous submission (or the begin of all).
    Submitted,
    /// The completion of this bio, always an earlier one of the trace.
    Done(usize),
}

/// One submission of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of its bio.
    pub bio: usize,
    /// What it comes after.
    pub after: After,
    /// And how long after.
    pub think: Duration,
    /// The next one follows at once, so the plug stays.
    pub plugged: bool,
    /// Every write that comes before this one in the trace is submitted first.
    pub commits: bool,
    /// Its bio is the next of this one of [`Plan::crews`], whichever that is by then.
    pub crew: Option<usize>,
}

/// A task's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: Arc<str>,
    /// Its process number.
    pub pid: u32,
    /// What it does, one after the other.
    pub steps: Vec<Step>,
}

/// A workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// All bios, in the order of the trace.
    pub bios: Vec<Bio>,
    /// All tasks, in the order of their first bio.
    pub jobs: Vec<Job>,
    /// What each crew writes, in the order of the trace.
    pub crews: Vec<Vec<usize>>,
    /// Sectors of the largest request that was issued.
    pub max_sectors: u32,
    /// The sector behind the last one that is touched.
    pub end: u64,
    /// Flushes and discards left out.
    pub left_out: usize,
}

/// A task while the trace is read.
struct Seen {
    job: usize,
    /// Last event of its own.
    awake: u64,
    wrote_sync: bool,
    /// The latest completion of what it may sleep for.
    done: Option<(u64, usize)>,
}

/// A bio of which not all sectors have completed.
struct Open {
    bio: usize,
    pid: u32,
    class: Class,
    start: u64,
    end: u64,
    left: u64,
}

#[derive(Default)]
struct Reader {
    plan: Plan,
    seen: HashMap<u32, Seen>,
    open: Vec<Open>,
    any_done: Option<(u64, usize)>,
    last_done: Option<(u64, usize)>,
    journal_done: Option<(u64, usize)>,
    begin: Option<u64>,
    /// By name of the task: the latest crew, when it wrote last and where.
    crews: HashMap<Arc<str>, (usize, u64, u64)>,
}

/// The workload of `events` (one device, in the order of their stamps). Without `block_bio_queue` lines the insertions are
/// taken for bios.
///
/// # Errors
/// One line, when there is neither.
pub fn plan(events: &[Event]) -> Result<Plan, String> {
    let has = |kind| events.iter().any(|e| e.kind == kind && e.sectors > 0);
    let source = match (has(Kind::BioQueue), has(Kind::Insert)) {
        (true, _) => Kind::BioQueue,
        (false, true) => Kind::Insert,
        (false, false) => {
            return Err("the trace has neither block_bio_queue nor block_rq_insert lines, so it tells no \
                        workload: record all events of the block layer"
                .to_owned());
        }
    };
    let mut reader = Reader::default();
    for event in events {
        if event.kind == source {
            reader.submitted(event);
        }
        match event.kind {
            Kind::GetRq | Kind::BackMerge | Kind::FrontMerge | Kind::Insert => {
                if let Some(seen) = reader.seen.get_mut(&event.pid) {
                    seen.awake = event.at;
                }
            }
            Kind::Complete => reader.completed(event),
            Kind::Issue => reader.plan.max_sectors = reader.plan.max_sectors.max(event.sectors),
            Kind::BioQueue | Kind::RqMerge | Kind::Requeue => {}
        }
    }
    if reader.plan.max_sectors == 0 {
        reader.plan.max_sectors = reader.plan.bios.iter().map(|b| b.sectors).max().unwrap_or(1);
    }
    Ok(reader.plan)
}

impl Reader {
    fn submitted(&mut self, event: &Event) {
        let Some((op, flags)) = parse(&event.rwbs).filter(|_| event.sectors > 0) else {
            self.plan.left_out += 1;
            return;
        };
        let begin = *self.begin.get_or_insert(event.at);
        let class = Class::of(&event.rwbs, &event.task);
        let bio = self.plan.bios.len();
        let end = event.sector.saturating_add(event.sectors.into());
        self.plan.end = self.plan.end.max(end);
        self.plan.bios.push(Bio {
            op,
            flags,
            sector: event.sector,
            sectors: event.sectors,
            at: Duration::from_nanos(event.at - begin.min(event.at)),
        });
        let left = event.sectors.into();
        self.open.push(Open { bio, pid: event.pid, class, start: event.sector, end, left });
        let crew = (class == Class::SyncWrites).then(|| self.crew(event, bio));
        let jobs = &mut self.plan.jobs;
        let seen = self.seen.entry(event.pid).or_insert_with(|| {
            jobs.push(Job { name: event.task.clone(), pid: event.pid, steps: Vec::new() });
            Seen { job: jobs.len() - 1, awake: begin, wrote_sync: false, done: None }
        });
        let own = seen.done.map_or(seen.awake, |d| d.0.max(seen.awake));
        let slept = event.at.saturating_sub(own) >= SLEPT;
        let near = |d: &(u64, usize)| class.is_awaited() && event.at.saturating_sub(d.0) <= NEAR;
        let near = self.last_done.filter(near).or(self.any_done.filter(|_| slept));
        let journal = self.journal_done.filter(|_| seen.wrote_sync);
        let causes = [seen.done, journal, near].into_iter().flatten();
        let cause = causes.filter(|d| d.0 >= seen.awake).max_by_key(|d| d.0);
        let since = cause.map_or(seen.awake, |d| d.0);
        let think = event.at.saturating_sub(since);
        let after = cause.map_or(After::Submitted, |d| After::Done(d.1));
        if let Some(job) = self.plan.jobs.get_mut(seen.job) {
            if let Some(last) = job.steps.last_mut() {
                last.plugged = after == After::Submitted && think <= PLUGGED;
            }
            let commits = class == Class::Journal && !(after == After::Submitted && think <= PLUGGED);
            let think = Duration::from_nanos(think);
            job.steps.push(Step { bio, after, think, plugged: false, commits, crew });
        }
        seen.awake = event.at;
        seen.wrote_sync = class == Class::SyncWrites;
    }

    /// The crew that this sync write belongs to, a new one if there is none.
    fn crew(&mut self, event: &Event, bio: usize) -> usize {
        let crews = &mut self.plan.crews;
        let latest = self.crews.get(&event.task).copied().filter(|&(_, at, sector)| {
            event.at.saturating_sub(at) <= CREW_PAUSE && event.sector.abs_diff(sector) <= CREW_REACH
        });
        let crew = latest.map_or_else(
            || {
                crews.push(Vec::new());
                crews.len() - 1
            },
            |(crew, ..)| crew,
        );
        if let Some(bios) = crews.get_mut(crew) {
            bios.push(bio);
        }
        self.crews.insert(event.task.clone(), (crew, event.at, event.sector));
        crew
    }

    fn completed(&mut self, event: &Event) {
        let (start, end) = (event.sector, event.sector.saturating_add(event.sectors.into()));
        let read = event.rwbs.contains('R');
        let (seen, any_done) = (&mut self.seen, &mut self.any_done);
        let (last_done, journal_done) = (&mut self.last_done, &mut self.journal_done);
        self.open.retain_mut(|open| {
            if (open.class == Class::Reads) != read || open.end <= start || end <= open.start {
                return true;
            }
            open.left = open.left.saturating_sub(open.end.min(end) - open.start.max(start));
            if open.left > 0 {
                return true;
            }
            let done = Some((event.at, open.bio));
            *any_done = done;
            if open.class.is_awaited() {
                *last_done = done;
                if open.class == Class::Journal {
                    *journal_done = done;
                }
                if let Some(seen) = seen.get_mut(&open.pid) {
                    seen.done = done;
                }
            }
            false
        });
    }
}

/// Operation and flags of RWBS letters; `None`: no data is read or written.
fn parse(rwbs: &str) -> Option<(Op, Flags)> {
    let letters = rwbs.trim_start_matches('F');
    let op = match letters.chars().next()? {
        'R' => Op::Read,
        'W' => Op::Write,
        _ => return None,
    };
    let mut flags = Flags::empty();
    for letter in letters.chars().skip(1) {
        flags |= match letter {
            'S' => Flags::SYNC,
            'M' => Flags::META,
            'A' => Flags::RAHEAD,
            _ => Flags::empty(),
        };
    }
    Some((op, flags))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ftrace::read;
    use crate::trace::model::Line;

    fn planned(text: &str) -> Plan {
        let mut events = Vec::new();
        read(&mut text.as_bytes(), |line| {
            if let Line::Event(event) = line {
                events.push(event);
            }
        })
        .unwrap();
        plan(&events).unwrap()
    }

    #[test]
    fn a_reader_waits_for_its_read_and_an_fsync_for_its_commit() {
        let plan = planned(
            "fio-7 [0] .. 1.000000: block_bio_queue: 8,0 R 64 + 8 [fio]
             x-1 [0] .. 1.010000: block_rq_complete: 8,0 R () 64 + 8 [0]
             fio-7 [0] .. 1.030000: block_bio_queue: 8,0 R 640 + 8 [fio]
             db-9 [0] .. 2.000000: block_bio_queue: 8,0 WS 80 + 8 [db]
             x-1 [0] .. 2.100000: block_rq_complete: 8,0 WS () 80 + 8 [0]
             jbd2/a-8-5 [0] .. 2.100100: block_bio_queue: 8,0 WS 900 + 16 [jbd2/a-8]
             x-1 [0] .. 2.200000: block_rq_complete: 8,0 WS () 900 + 8 [0]
             x-1 [0] .. 2.300000: block_rq_complete: 8,0 WS () 908 + 8 [0]
             db-9 [0] .. 2.500000: block_bio_queue: 8,0 WS 88 + 8 [db]",
        );
        let steps = |pid| &plan.jobs.iter().find(|j| j.pid == pid).unwrap().steps;
        let step = |pid, i: usize| (steps(pid)[i].after, steps(pid)[i].think.as_micros());
        assert_eq!(step(7, 1), (After::Done(0), 20_000));
        assert_eq!(step(9, 0), (After::Done(0), 990_000), "in step with the card");
        assert_eq!(step(5, 0), (After::Done(2), 100), "the commit follows the data");
        assert_eq!(step(9, 1), (After::Done(3), 200_000), "the whole commit, both its requests");
        assert!(steps(5)[0].commits && !steps(9)[1].commits);
    }

    #[test]
    fn tasks_that_write_one_file_are_a_crew_and_others_are_none() {
        let plan = planned(
            "db-7 [0] .. 1.000000: block_bio_queue: 8,0 WS 80 + 8 [db]
             db-8 [0] .. 1.010000: block_bio_queue: 8,0 WS 88 + 8 [db]
             db-7 [0] .. 1.020000: block_bio_queue: 8,0 WS 96 + 8 [db]
             fio-9 [0] .. 1.030000: block_bio_queue: 8,0 WS 104 + 8 [fio]
             db-8 [0] .. 1.040000: block_bio_queue: 8,0 WS 900000 + 8 [db]
             db-7 [0] .. 3.000000: block_bio_queue: 8,0 WS 900008 + 8 [db]
             db-7 [0] .. 3.000000: block_bio_queue: 8,0 W 900016 + 8 [db]",
        );
        assert_eq!(plan.crews, [vec![0, 1, 2], vec![3], vec![4], vec![5]]);
        assert_eq!(
            plan.jobs[0].steps.iter().map(|s| s.crew).collect::<Vec<_>>(),
            [Some(0), Some(0), Some(3), None]
        );
    }

    #[test]
    fn a_flusher_that_slept_waited_for_the_commit() {
        let plan = planned(
            "kw-3 [0] .. 1.000000: block_bio_queue: 8,0 W 0 + 8 [kw]
             jbd2/a-8-5 [0] .. 1.000100: block_bio_queue: 8,0 WS 900 + 8 [jbd2/a-8]
             x-1 [0] .. 9.000000: block_rq_complete: 8,0 WS () 900 + 8 [0]
             kw-3 [0] .. 9.003000: block_bio_queue: 8,0 W 8 + 8 [kw]
             kw-3 [0] .. 9.004000: block_bio_queue: 8,0 W 16 + 8 [kw]",
        );
        let steps: Vec<_> = plan.jobs[0].steps.iter().map(|s| (s.after, s.think.as_micros())).collect();
        assert_eq!(steps[1..], [(After::Done(1), 3000), (After::Submitted, 1000)]);
    }

    #[test]
    fn a_flusher_waits_for_nobody_and_keeps_its_plug() {
        let plan = planned(
            "kw-3 [0] .. 1.000000: block_bio_queue: 8,0 W 0 + 8 [kw]
             kw-3 [0] .. 1.000010: block_getrq: 8,0 W 0 + 8 [kw]
             kw-3 [0] .. 1.000030: block_bio_queue: 8,0 W 8 + 8 [kw]
             x-1 [0] .. 1.200000: block_rq_complete: 8,0 W () 0 + 16 [0]
             kw-3 [0] .. 1.200010: block_bio_queue: 8,0 W 16 + 8 [kw]
             kw-3 [0] .. 1.300000: block_bio_queue: 8,0 FF 0 + 0 [kw]",
        );
        let steps: Vec<_> =
            plan.jobs[0].steps.iter().map(|s| (s.after, s.think.as_micros(), s.plugged)).collect();
        let submitted = After::Submitted;
        assert_eq!(steps, [(submitted, 0, true), (submitted, 20, false), (submitted, 199_980, false)]);
        assert_eq!((plan.left_out, plan.end), (1, 24));
    }
}

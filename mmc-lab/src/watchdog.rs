//! The hung-task watchdog of the simulated kernel: who slept too long, on what, and which requests went first.

use crate::sim::Sim;
use crate::workload::block::{Bio, Rq, Task};
use mmc_time::{Duration, Instant};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// What a task waits for, uninterruptibly: one buffer, page, lock or tag.
#[derive(Clone, Debug)]
pub enum WaitsFor {
    /// Write access to a metadata buffer that the committing transaction is writing (`do_get_write_access`).
    Buffer {
        /// Which metadata.
        what: &'static str,
        /// The journal write it is part of.
        io: Option<Rc<Bio>>,
    },
    /// A page under writeback (`wait_on_page_writeback`) or being read.
    Page(Rc<Bio>),
    /// A block of the journal that the journal thread itself wrote.
    JournalWrite(Rc<Bio>),
    /// The end of a commit (`jbd2_log_wait_commit`).
    Commit(Option<Rc<Bio>>),
    /// The running transaction is locked.
    Transaction,
    /// A scheduler tag.
    Tag,
}

impl WaitsFor {
    /// In plain words.
    #[must_use]
    pub fn text(&self) -> String {
        let of = |b: &Option<Rc<Bio>>| {
            b.as_ref()
                .and_then(|b| b.last.borrow().clone())
                .map_or_else(String::new, |r| format!(", written by {} at sector {}", r.task.name, r.sector))
        };
        match self {
            Self::Buffer { what, io } => format!("the {what} in a commit{}", of(io)),
            Self::Page(b) => format!("a page under I/O{}", of(&Some(b.clone()))),
            Self::JournalWrite(b) => format!("its journal write{}", of(&Some(b.clone()))),
            Self::Commit(b) => format!("the end of a commit{}", of(b)),
            Self::Transaction => "a locked transaction".into(),
            Self::Tag => "a scheduler tag".into(),
        }
    }
    /// The request that must complete first.
    #[must_use]
    pub fn request(&self) -> Option<Rc<Rq>> {
        match self {
            Self::Buffer { io, .. } | Self::Commit(io) => io.as_ref().and_then(|b| b.last.borrow().clone()),
            Self::Page(b) | Self::JournalWrite(b) => b.last.borrow().clone(),
            Self::Transaction | Self::Tag => None,
        }
    }
}

/// Sleeps shorter than this are not kept, not even for the picture.
const NOTED: Duration = Duration::from_millis(200);

/// One long sleep.
#[derive(Clone, Debug)]
pub struct Long {
    /// Who.
    pub task: Task,
    /// From when.
    pub from: Instant,
    /// Until when.
    pub to: Instant,
    /// On what.
    pub what: WaitsFor,
}

/// The watchdog.
#[derive(Debug)]
pub struct Watchdog {
    sim: Sim,
    limit: Duration,
    long: RefCell<Vec<Long>>,
}

impl Watchdog {
    /// A watchdog with that limit.
    #[must_use]
    pub fn new(sim: &Sim, limit: Duration) -> Self {
        Self { sim: sim.clone(), limit, long: RefCell::default() }
    }
    /// `f` is one uninterruptible sleep of `task` on `what`.
    pub async fn sleep<T>(&self, task: &Task, what: WaitsFor, f: impl Future<Output = T>) -> T {
        let from = self.sim.now();
        let out = f.await;
        let to = self.sim.now();
        if to.since(from) >= self.limit.min(NOTED) {
            self.long.borrow_mut().push(Long { task: task.clone(), from, to, what });
        }
        out
    }
    /// All sleeps of 200 ms (or of the limit, if that is shorter) and more, in the order they ended.
    #[must_use]
    pub fn long(&self) -> Vec<Long> {
        self.long.borrow().clone()
    }
    /// Those that reached the limit.
    #[must_use]
    pub fn hung(&self) -> Vec<Long> {
        self.long.borrow().iter().filter(|l| l.to.since(l.from) >= self.limit).cloned().collect()
    }
}

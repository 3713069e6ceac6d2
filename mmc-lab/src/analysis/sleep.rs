//! Which task slept too long, as far as block events tell.
//!
//! A task is surely awake when it submits something and when something it may sleep for completes. Between two such
//! moments with a request of its own in flight it may have slept without a break, and that is what the kernel's
//! hung-task watchdog measures: a task whose fsync waits page by page for a minute is not hung. Sleeps on locks and
//! buffers that other tasks hold leave no block event, so the kernel may report more tasks than found here.

use super::request::{Mark, Request, Tracker};
use super::spread::Tasks;
use super::{Hung, victim_of};

/// When a task was last awake for sure.
#[derive(Clone, Copy, Debug)]
struct Awake {
    at: u64,
    mark: Mark,
}

/// All tasks that submitted anything.
#[derive(Debug)]
pub(crate) struct Sleepers {
    limit: u64,
    /// By the task's place among [`Tasks`]; `None` for one that submitted nothing.
    tasks: Vec<Option<Awake>>,
    hung: Vec<Hung>,
}

impl Sleepers {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, tasks: Vec::new(), hung: Vec::new() }
    }

    /// How many tasks submitted anything.
    pub(crate) fn tasks(&self) -> u64 {
        self.tasks.iter().flatten().count() as u64
    }

    /// The task submits something.
    pub(crate) fn submits(&mut self, task: usize, at: u64, tracker: &Tracker) {
        if self.tasks.len() <= task {
            self.tasks.resize(task + 1, None);
        }
        self.tasks[task] = Some(Awake { at, mark: tracker.mark() });
    }

    /// The task gets a tag for a bio it has queued; it did nothing but wait for it.
    pub(crate) fn gets_tag(&mut self, place: usize, at: u64, tasks: &Tasks, tracker: &Tracker) {
        if let Some(Some(was)) = self.tasks.get(place) {
            let slept = at.saturating_sub(was.at);
            if slept >= self.limit {
                let ahead = tracker.sent_since(was.mark);
                let task = tasks.name(place).to_owned();
                self.hung.push(Hung {
                    task,
                    slept,
                    waits_for: "free tag".into(),
                    ahead,
                    until: at,
                    request: None,
                });
            }
        }
        self.submits(place, at, tracker);
    }

    /// `request` is done, or the trace ends (`unfinished`) and it is not.
    pub(crate) fn ends(&mut self, request: &Request, at: u64, unfinished: bool, tracker: &Tracker) {
        if !request.class.is_awaited() {
            return;
        }
        let Some(Some(was)) = self.tasks.get_mut(request.owner) else { return };
        let slept = at.saturating_sub(was.at);
        *was = Awake { at, mark: tracker.mark() };
        if slept >= self.limit {
            let ahead = tracker.ahead(request);
            let still = if unfinished { ", not done when the trace ends" } else { "" };
            self.hung.push(Hung {
                task: request.task.to_string(),
                slept,
                waits_for: format!(
                    "{} at sector {} ({}, {} sectors{still})",
                    request.class.noun(),
                    request.sector,
                    request.rwbs,
                    request.sectors
                ),
                ahead,
                until: at,
                request: Some(victim_of(request, at, unfinished, ahead)),
            });
        }
    }

    pub(crate) fn into_hung(self) -> Vec<Hung> {
        self.hung
    }
}

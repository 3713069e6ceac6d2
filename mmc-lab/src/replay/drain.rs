//! Kernels from 5.9 on take many requests out of the scheduler at once (`spec/stall-measured.md` §3): what has left is
//! issued in that order, whatever comes later.

use mmc_sched::{Completed, Dispatch, Outcome, RequestId, Run, Scheduler};
use mmc_time::Instant;
use std::collections::VecDeque;

/// A scheduler of which up to `most` requests leave in one go, into a list that is issued first in, first out; the next
/// go is when the list is empty.
#[derive(Debug)]
pub struct Drained<S> {
    inner: S,
    most: usize,
    list: VecDeque<Run>,
}

impl<S: Scheduler> Drained<S> {
    /// `most` is at least 1; 1 takes each request as late as possible, as if there were no list.
    pub fn new(inner: S, most: usize) -> Self {
        Self { inner, most: most.max(1), list: VecDeque::new() }
    }

    /// The scheduler inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Lets requests leave now, until so many that left wait to be issued.
    pub fn fill(&mut self, most: usize, now: Instant) {
        while self.list.len() < most {
            match self.inner.dispatch(now) {
                Dispatch::Run(run) => self.list.push_back(run),
                Dispatch::Wait { .. } | Dispatch::Empty => break,
            }
        }
    }

    /// Whether a request that left waits to be issued.
    #[must_use]
    pub fn has_left(&self) -> bool {
        !self.list.is_empty()
    }
}

impl<S: Scheduler> Scheduler for Drained<S> {
    mmc_sched::hand_on!(inner);
    fn dispatch(&mut self, now: Instant) -> Dispatch {
        if let Some(run) = self.list.pop_front() {
            return Dispatch::Run(run);
        }
        let first = self.inner.dispatch(now);
        if matches!(first, Dispatch::Run(_)) {
            self.fill(self.most - 1, now);
        }
        first
    }
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
        self.inner.complete(id, outcome, now)
    }
}

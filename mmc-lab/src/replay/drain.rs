//! Kernels from 5.9 on take many requests out of the scheduler at once (`spec/stall-measured.md` §3): what has left is
//! issued in that order, whatever comes later.

use mmc_sched::{
    Completed, Dispatch, Inserted, Kind, Outcome, Rejected, Request, RequestId, Run, Scheduler, TunableInfo,
    TuneError,
};
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
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn capacity(&self) -> usize {
        self.inner.capacity()
    }
    fn len(&self) -> usize {
        self.inner.len()
    }
    fn merge(&mut self, r: &Request, now: Instant) -> Option<(RequestId, Inserted)> {
        self.inner.merge(r, now)
    }
    fn insert(&mut self, r: Request, now: Instant) -> Result<(RequestId, Inserted), (Request, Rejected)> {
        self.inner.insert(r, now)
    }
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
    fn next_member(&self, id: RequestId) -> Option<RequestId> {
        self.inner.next_member(id)
    }
    fn request(&self, id: RequestId) -> Option<&Request> {
        self.inner.request(id)
    }
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
        self.inner.complete(id, outcome, now)
    }
    fn requeue(&mut self, run: &Run, now: Instant) {
        self.inner.requeue(run, now);
    }
    fn cancel(&mut self, id: RequestId) -> Option<Request> {
        self.inner.cancel(id)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        self.inner.admits(kind, tags)
    }
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        self.inner.admits_request(request, tags)
    }
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        self.inner.tunable(i)
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        self.inner.tune(name, text)
    }
}

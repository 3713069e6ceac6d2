//! Who may enter the scheduler: `nr_requests` tags, and queues of those that wait for one.
//!
//! As in Linux a tag belongs to a run, from its insertion until its head completes; what merges into a run
//! takes none. Kinds (reads, synchronous writes, the rest) have a limit each, stated by the scheduler, and a
//! queue each; of several that could enter, the one that was submitted first does. Nobody in a queue has a
//! deadline: that wait is counted and timed, and no scheduler can bound it.

use crate::core::Core;
use crate::error::BlockError;
use crate::observer::{Observer, Place};
use crate::tag::{State, Tag, Which, nth};
use mmc_hal::Payload;
use mmc_sched::{Inserted, Kind, Rejected, Request, RequestId, Scheduler};
use mmc_time::Instant;

const KINDS: [Kind; 3] = [Kind::Read, Kind::SyncWrite, Kind::Async];

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// Tags in use.
    pub fn tags_in_use(&self) -> usize {
        self.held.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Changes the number of tags, at least 1. Those in use above it stay until they complete.
    pub fn set_nr_requests(&mut self, tags: usize, now: Instant) {
        self.settings.nr_requests = tags.max(1);
        self.admit(now);
    }

    fn room(&self, kind: Kind) -> bool {
        let tags = self.settings.nr_requests;
        let held = self.held.get(nth(kind)).copied().unwrap_or(usize::MAX);
        self.tags_in_use() < tags && held < self.scheduler.admits(kind, tags).max(1)
    }

    /// A request that nothing holds back: it merges, or waits for a tag; whoever calls lets in who can
    /// ([`admit`](Self::admit)).
    pub(crate) fn enqueue(&mut self, i: u32, request: Request, now: Instant) {
        match self.scheduler.merge(&request, now) {
            Some((id, Inserted::Merged { into })) => {
                self.bind(i, id, now);
                let place = self.place(id, into);
                let head = self.table.by_id(into).unwrap_or(i);
                let (ticket, head) = (self.table.ticket(i), self.table.ticket(head));
                self.statistics.merged = self.statistics.merged.saturating_add(1);
                self.observer.merged(ticket, &request, head, place, now);
                self.settle(id, into, now);
            }
            Some((id, Inserted::Queued)) => {
                self.bind(i, id, now);
                self.hold(i, request.kind());
            }
            None => {
                if let Some(e) = self.table.get_mut(i) {
                    e.state = State::Waiting;
                }
                self.table.push(Which::Waiting(request.kind()), i);
            }
        }
    }

    /// Still no tag after [`admit`](Self::admit): said once.
    pub(crate) fn note_wait(&mut self, i: u32, now: Instant) {
        let ticket = self.table.ticket(i);
        if let Some(e) = self.table.get_mut(i).filter(|e| e.state == State::Waiting && !e.noted) {
            e.noted = true;
            self.statistics.tag_waits = self.statistics.tag_waits.saturating_add(1);
            self.observer.waits(ticket, &e.request, now);
        }
    }

    /// The same for all that were let go, of whatever held them back.
    pub(crate) fn note_waits(&mut self, now: Instant) {
        for kind in KINDS {
            let mut next = self.table.first_waiting(kind);
            for _ in 0..self.table.len() {
                let Some(i) = next else { break };
                next = self.table.waiting_after(kind, i);
                self.note_wait(i, now);
            }
        }
    }

    /// The first of a queue that may take a tag: a policy that looks after streams leaves tags to those that hold
    /// none, so that one stream's requests do not bar the way for another's.
    fn admissible(&self, kind: Kind) -> Option<(u64, Kind, u32)> {
        if !self.room(kind) {
            return None;
        }
        let mut next = self.table.first_waiting(kind);
        for _ in 0..self.table.len() {
            let i = next?;
            let e = self.table.get(i)?;
            if self.scheduler.admits_request(&e.request, self.settings.nr_requests) {
                return Some((e.order, kind, i));
            }
            next = self.table.waiting_after(kind, i);
        }
        None
    }

    /// Lets in whoever can enter now, oldest first, and lets go of those that waited for a request that is over.
    pub(crate) fn admit(&mut self, now: Instant) {
        let mut let_go = false;
        // Each turn takes one out of a queue.
        for _ in 0..self.table.len() {
            let_go |= self.release_held(now);
            let oldest = KINDS.iter().filter_map(|k| self.admissible(*k)).min_by_key(|(order, ..)| *order);
            let Some((_, kind, i)) = oldest else { break };
            if self.scheduler.len() >= self.scheduler.capacity() {
                break;
            }
            self.table.remove(Which::Waiting(kind), i);
            if !self.enter(i, now) {
                self.table.push_front(Which::Waiting(kind), i);
                break;
            }
            if let Some(e) = self.table.get(i) {
                let waited = now.since(e.stamps.queued);
                self.statistics.tag_wait_total += waited;
                self.statistics.tag_wait_max = self.statistics.tag_wait_max.max(waited);
            }
        }
        if let_go {
            self.note_waits(now);
        }
    }

    /// Takes a tag and inserts. False: the scheduler's pool is full, the request must wait.
    pub(crate) fn enter(&mut self, i: u32, now: Instant) -> bool {
        let Some(e) = self.table.get(i) else { return true };
        let (request, ticket) = (e.request, self.table.ticket(i));
        match self.scheduler.insert(request, now) {
            Ok((id, inserted)) => {
                self.bind(i, id, now);
                self.hold(i, request.kind());
                self.observer.got_tag(ticket, &request, now);
                match inserted {
                    Inserted::Queued => self.observer.inserted(ticket, &request, now),
                    Inserted::Merged { into } => self.settle(into, into, now),
                }
                true
            }
            Err((_, Rejected::Full)) => false,
            Err((_, why)) => {
                self.over(i, Err(BlockError::Rejected(why)), now);
                true
            }
        }
    }

    fn bind(&mut self, i: u32, id: RequestId, now: Instant) {
        self.table.bind(i, id);
        if let Some(e) = self.table.get_mut(i) {
            e.state = State::Queued;
            e.stamps.inserted = Some(now);
        }
    }

    fn hold(&mut self, i: u32, kind: Kind) {
        if let Some(e) = self.table.get_mut(i) {
            e.holds = Some(kind);
        }
        if let Some(n) = self.held.get_mut(nth(kind)) {
            *n = n.saturating_add(1);
        }
    }

    pub(crate) fn release(&mut self, holds: Option<Kind>) {
        if let Some(n) = holds.and_then(|kind| self.held.get_mut(nth(kind))) {
            *n = n.saturating_sub(1);
        }
    }

    /// Something merged into the run of `into`: one tag stays with the run, at `into`; those of runs that were joined
    /// to it on the way are free. They are behind `from`: a request that merged and closed a gap, or a run to which a
    /// run was appended that a new request had been appended to.
    fn settle(&mut self, from: RequestId, into: RequestId, now: Instant) {
        let Some(first) = self.table.by_id(into) else { return };
        let mut next = Some(from);
        for _ in 0..self.scheduler.capacity() {
            let Some(member) = next else { return };
            next = self.scheduler.next_member(member);
            let Some(i) = self.table.by_id(member).filter(|i| *i != first) else { continue };
            let Some(e) = self.table.get_mut(i) else { continue };
            let Some(surplus) = e.holds.take() else { continue };
            let request = e.request;
            self.release(Some(surplus));
            self.statistics.merged = self.statistics.merged.saturating_add(1);
            self.observer.absorbed(self.table.ticket(i), &request, self.table.ticket(first), now);
        }
    }

    /// Whether `into` is `id` or behind it in its run: then `id` went to the front.
    fn place(&self, id: RequestId, into: RequestId) -> Place {
        let mut next = Some(id);
        for _ in 0..self.scheduler.capacity() {
            match next {
                Some(member) if member == into => return Place::Front,
                Some(member) => next = self.scheduler.next_member(member),
                None => break,
            }
        }
        Place::Back
    }
}

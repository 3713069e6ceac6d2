//! A request that waits becomes more (or less) urgent: somebody else waits for it now.

use crate::core::Core;
use crate::observer::Observer;
use crate::tag::{State, Tag, Ticket, Which};
use mmc_hal::Payload;
use mmc_sched::{Priority, Scheduler};
use mmc_time::Instant;

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// Gives a request another class and level. One that the scheduler has is taken out and inserted again with its tag, so
    /// that the bound of its new class holds from `now` on, and no other request loses by it more than by one submitted
    /// now; one that is not there yet (it waits for a tag, a flush, or an earlier request of its sectors) enters with
    /// the new priority: raise the one that it waits for, too.
    ///
    /// False, and nothing changed: it is in a command or was in one, merged with others, over, or unknown.
    pub fn raise(&mut self, ticket: Ticket, priority: Priority, now: Instant) -> bool {
        let Some(i) = self.table.find(ticket) else { return false };
        let Some(e) = self.table.get(i) else { return false };
        match (e.state, e.id) {
            (State::Held | State::Waiting | State::Flush, None) => {}
            (State::Queued, Some(id)) if e.attempts == 0 && self.scheduler.cancel(id).is_some() => {}
            _ => return false,
        }
        let Some(e) = self.table.get_mut(i) else { return false };
        e.request.priority = priority;
        if e.id.take().is_some() {
            e.state = State::Waiting;
            let (kind, holds) = (e.request.kind(), e.holds.take());
            self.release(holds);
            if !self.enter(i, now) {
                // A scheduler that does not take back what it gave: first in line.
                self.table.push_front(Which::Waiting(kind), i);
            }
        }
        self.admit(now);
        true
    }
}

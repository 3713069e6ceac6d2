//! How long requests wait in the scheduler, counted beside the bounds of [`mmc_sched::bound`].

use mmc_block::{Observer, Place, Ticket};
use mmc_sched::bound::{self, Bound, Waiting};
use mmc_sched::{AnyPolicy, Op, Policy as _, Request, Run, deadline, mq_deadline};
use mmc_time::{Duration, Instant};

/// What the policy promises.
#[derive(Clone, Debug)]
enum Promise {
    MqDeadline(mq_deadline::Tunables),
    Deadline(deadline::Tunables),
    None,
    /// Nothing that can be counted here, and why.
    Nothing(String),
}

/// A request in the scheduler.
#[derive(Clone, Copy, Debug)]
struct Queued {
    /// Who has the run's tag.
    ticket: usize,
    /// Its first request, under whose name it is issued, and where that begins.
    first: usize,
    lba: u64,
    read: bool,
    /// Its place in the order of insertion.
    nth: u64,
    due: Instant,
    /// Once it is due: the requests ahead of it then, and the dispatches since.
    late: Option<(u32, u64)>,
}

/// Worst of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worst {
    /// Dispatches while one was due, and the bound for as many ahead as it had: the pair that came closest.
    pub(super) passed: u64,
    pub(super) bound: u64,
    /// Most ahead of one when it was due; where there is no deadline, when it arrived.
    pub(super) ahead: u32,
}

/// Watches a disk's scheduler: reads and the rest.
#[derive(Debug)]
pub(super) struct Waits {
    promise: Promise,
    queued: Vec<Queued>,
    inserted: u64,
    pub(super) worst: [Worst; 2],
    /// The longest time from one command to the next while there was something to do, troubles included.
    pub(super) slowest: Duration,
    started: Option<Instant>,
    /// A bound that was broken.
    pub(super) broken: Option<String>,
    pub(super) merges: u64,
}

impl Waits {
    /// For the policy that the disk begins with.
    pub(super) fn new(policy: &AnyPolicy) -> Self {
        let name = policy.name();
        let promise = match policy {
            AnyPolicy::MqDeadline(p) => Promise::MqDeadline(*p.tunables()),
            AnyPolicy::Deadline(p) => Promise::Deadline(*p.tunables()),
            AnyPolicy::None(_) => Promise::None,
            AnyPolicy::Ftb(_) => {
                Promise::Nothing("its bounds count device time: `compare` checks them".into())
            }
            AnyPolicy::Bfq(p) => Promise::Nothing(why(bound::bfq(p, bound::Share::new(100, 200, 8)))),
            AnyPolicy::Kyber(_) => Promise::Nothing(why(bound::kyber(Op::Read, 0, true))),
            AnyPolicy::Cfq(_) => Promise::Nothing(why(bound::cfq(true, false))),
            _ => Promise::Nothing(format!("no bound is known for {name}")),
        };
        Self {
            promise,
            queued: Vec::new(),
            inserted: 0,
            worst: [Worst::default(); 2],
            slowest: Duration::ZERO,
            started: None,
            broken: None,
            merges: 0,
        }
    }
    /// Why nothing is counted, if so.
    pub(super) fn nothing(&self) -> Option<&str> {
        match &self.promise {
            Promise::Nothing(why) => Some(why),
            _ => None,
        }
    }
    /// From insertion to the instant from which the bound counts.
    pub(super) fn expire(&self, read: bool) -> Duration {
        match &self.promise {
            Promise::MqDeadline(t) if read => t.read_expire,
            Promise::MqDeadline(t) => t.write_expire,
            Promise::Deadline(t) if read => t.read_expire,
            Promise::Deadline(t) => t.write_expire,
            Promise::None | Promise::Nothing(_) => Duration::ZERO,
        }
    }
    /// The bound in dispatches for one with so many ahead; `None`: there is none.
    pub(super) fn bound(&self, read: bool, ahead: u32) -> Option<u64> {
        let bound = match &self.promise {
            Promise::MqDeadline(t) => bound::mq_deadline(t, Waiting::new(read, ahead)),
            Promise::Deadline(t) => bound::deadline(t, Waiting::new(read, ahead)),
            Promise::None => bound::none(ahead.saturating_add(1)),
            Promise::Nothing(_) => return None,
        };
        match bound {
            Bound::Dispatches(n) => Some(n),
            Bound::Sectors(_) | Bound::Unbounded(_) => None,
        }
    }
    /// It was withdrawn before it went out.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.queued.retain(|q| q.ticket != ticket.index());
    }
    /// The disk is at rest: what comes next is no wait.
    pub(super) fn rest(&mut self) {
        self.started = None;
    }
    /// Requests it believes to be in the scheduler.
    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }
    /// Of `queued`, those that are ahead of `q`: of its direction, or for `none` all.
    fn ahead(&self, q: &Queued) -> u32 {
        let all = matches!(self.promise, Promise::None);
        self.queued.iter().filter(|o| o.nth < q.nth && (all || o.read == q.read)).count() as u32
    }
}

fn why(bound: Bound) -> String {
    match bound {
        Bound::Unbounded(why) => why.to_string(),
        Bound::Dispatches(n) | Bound::Sectors(n) => format!("{n}, but not counted here"),
    }
}

impl Observer for Waits {
    fn inserted(&mut self, ticket: Ticket, r: &Request, now: Instant) {
        let read = r.op.is_read();
        let due = now + self.expire(read);
        let (ticket, lba) = (ticket.index(), r.lba);
        self.queued.push(Queued { ticket, first: ticket, lba, read, nth: self.inserted, due, late: None });
        self.inserted += 1;
    }
    fn merged(&mut self, ticket: Ticket, r: &Request, head: Ticket, place: Place, _: Instant) {
        self.merges += 1;
        if let Some(run) = self.queued.iter_mut().find(|q| q.ticket == head.index())
            && place == Place::Front
        {
            (run.first, run.lba) = (ticket.index(), r.lba);
        }
    }
    fn absorbed(&mut self, ticket: Ticket, _: &Request, head: Ticket, _: Instant) {
        self.merges += 1;
        let Some(at) = self.queued.iter().position(|q| q.ticket == ticket.index()) else { return };
        let gone = self.queued.swap_remove(at);
        let Some(head) = self.queued.iter_mut().find(|q| q.ticket == head.index()) else { return };
        // The two go on with the earlier deadline, and its place.
        if gone.due < head.due {
            (head.due, head.nth) = (gone.due, gone.nth);
        }
        if gone.lba < head.lba {
            (head.first, head.lba) = (gone.first, gone.lba);
        }
    }
    fn issued(&mut self, head: Ticket, run: &Run, now: Instant) {
        // One that is sent again does not come from the scheduler.
        let Some(at) = self.queued.iter().position(|q| q.first == head.index()) else { return };
        for i in 0..self.queued.len() {
            let q = self.queued[i];
            if q.due > now {
                continue;
            }
            let (ahead, passed) = q.late.unwrap_or_else(|| (self.ahead(&q), 0));
            let worst = &mut self.worst[usize::from(!q.read)];
            worst.ahead = worst.ahead.max(ahead);
            // Its own does not count.
            self.queued[i].late = Some((ahead, passed + u64::from(i != at)));
        }
        let q = self.queued.swap_remove(at);
        let Some((ahead, passed)) = q.late else { return };
        let Some(bound) = self.bound(q.read, ahead) else { return };
        let worst = &mut self.worst[usize::from(!q.read)];
        if worst.bound == 0 || passed * worst.bound > worst.passed * bound.max(1) {
            (worst.passed, worst.bound) = (passed, bound.max(1));
        }
        if passed > bound {
            self.broken.get_or_insert_with(|| {
                format!("{passed} dispatches passed a due request with {ahead} ahead of it, the bound is {bound}: {run:?}")
            });
        }
    }
    fn started(&mut self, _: Ticket, _: &Run, now: Instant) {
        if let Some(before) = self.started.replace(now) {
            self.slowest = self.slowest.max(now.since(before));
        }
    }
    fn completed(&mut self, ticket: Ticket, _: &Request, _: bool, _: Instant) {
        self.forget(ticket);
    }
}

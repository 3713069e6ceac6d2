//! What a block layer calls.

use crate::request::{Flags, Kind, Op, Request, RequestId};
use mmc_time::Instant;

/// What became of an inserted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It waits on its own.
    Queued,
    /// It became part of the request (or run) that this one heads; it keeps its own id.
    Merged {
        /// The request that stands for the run it belongs to now; after a front merge not the first in sector order.
        into: RequestId,
    },
}

/// Why a request was not accepted; it comes back with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected {
    /// All slots are taken.
    #[error("the pool is full: complete a request first")]
    Full,
    /// No sectors, or the range wraps past the last sector number.
    #[error("the sector range is empty or wraps")]
    BadRange,
    /// No more streams can be told apart.
    #[error("no room for another stream")]
    Streams,
}

/// Requests that go out as one command: contiguous, ascending, of one direction. Each member keeps its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first member; [`Scheduler::next_member`] walks the others in sector order.
    pub head: RequestId,
    /// Members, at least 1.
    pub count: u16,
    /// What all of them do.
    pub op: Op,
    /// Flags of all of them or-ed.
    pub flags: Flags,
    /// First sector.
    pub lba: u64,
    /// Sectors.
    pub blocks: u32,
    /// Where in the head request the run begins, in sectors: not 0 only for a later part of a request that a
    /// policy hands out in parts (then `count` is 1).
    pub offset: u32,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Send this.
    Run(Run),
    /// Nothing now although requests are queued; at least one of the two is set.
    Wait {
        /// Ask again at this instant.
        at: Option<Instant>,
        /// Ask again after a completion.
        completion: bool,
    },
    /// Nothing is queued.
    Empty,
}

/// How one request, or one part of it, ended at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Sectors of the part that ended (the whole request for an undivided one).
    pub blocks: u32,
    /// It failed; the request is over whatever parts are left.
    pub failed: bool,
}

/// A request, or a part of one, that was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The request as it was inserted.
    pub request: Request,
    /// Its last part: the id is free again.
    pub last: bool,
}

/// Why a tunable was not changed; nothing was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// No tunable of that name.
    #[error("no such tunable")]
    Unknown,
    /// Not a number (the kernel's EINVAL).
    #[error("not a number")]
    Invalid,
    /// Outside the range of the type (the kernel's ERANGE).
    #[error("out of range")]
    Range,
}

/// A tunable as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunableInfo {
    /// Its name, as Linux spells it.
    pub name: &'static str,
    /// Unit for people: `ms`, `requests`, `sectors`, `us`, …
    pub unit: &'static str,
    /// Smallest value that is not clamped.
    pub min: i64,
    /// Largest value that is not clamped.
    pub max: i64,
    /// The value in force.
    pub value: i64,
}

/// A scheduler as a block layer uses it. Object safe; fixed capacity; bounded work per call.
///
/// `now` never goes back between calls; if it does, the call is treated as if made at the latest instant seen.
pub trait Scheduler: Send {
    /// Name of the policy, as Linux spells it.
    fn name(&self) -> &'static str;
    /// Slots in the pool: queued, merged and dispatched requests together.
    fn capacity(&self) -> usize;
    /// Requests in the pool, merged and dispatched ones included.
    fn len(&self) -> usize;
    /// Whether the pool is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Tries to merge `r` into a queued request, as Linux merges a bio. `None`: nothing fits (or the pool is
    /// full); insert it. A block layer that counts tags takes none for a merged request.
    fn merge(&mut self, r: &Request, now: Instant) -> Option<(RequestId, Inserted)>;
    /// Accepts `r`, which may still merge as a whole request.
    ///
    /// # Errors
    /// The request and the reason.
    fn insert(&mut self, r: Request, now: Instant) -> Result<(RequestId, Inserted), (Request, Rejected)>;
    /// Which run goes out next. Call once for each command wanted, as late as possible.
    fn dispatch(&mut self, now: Instant) -> Dispatch;
    /// The member behind `id` in its run, in sector order.
    fn next_member(&self, id: RequestId) -> Option<RequestId>;
    /// The request as it was inserted.
    fn request(&self, id: RequestId) -> Option<&Request>;
    /// One member of a dispatched run ended. `None`: not in flight.
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed>;
    /// Puts a dispatched run back in front: it goes out again before others, as one run, less the members that
    /// were completed meanwhile (one gone from the middle divides it). `run.head` may be any member still in flight.
    /// Of a request handed out in parts only the newest part can come back.
    fn requeue(&mut self, run: &Run, now: Instant);
    /// Takes a queued request out again. `None`: it is merged (into another, or another into it), in flight, or gone.
    fn cancel(&mut self, id: RequestId) -> Option<Request>;
    /// The next instant at which `dispatch` may answer differently without any other call.
    fn wake_at(&self) -> Option<Instant>;
    /// How many tags (slots that head a run) requests of this kind may hold, of `tags` in all; at least 1.
    fn admits(&self, kind: Kind, tags: usize) -> usize;
    /// Whether this request may take a tag now, beside [`admits`](Self::admits): a policy that looks after streams
    /// leaves tags to those that hold none. `false` only while requests are in the pool whose completion changes it.
    fn admits_request(&self, request: &Request, tags: usize) -> bool;
    /// The tunables, one by one; `None` past the last.
    fn tunable(&self, i: usize) -> Option<TunableInfo>;
    /// Sets a tunable from text, with the parsing and clamping rules of the policy's original.
    ///
    /// # Errors
    /// [`TuneError`]; nothing changed.
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError>;
}

/// Inside of an `impl Scheduler`, for a wrapper: hands every call on to the [`Scheduler`] in the named field, except
/// `dispatch` and `complete`, for the sake of which there are wrappers.
///
/// A default in the trait would be a trap: a wrapper that forgets a call answers for the scheduler inside of it.
///
/// ```
/// use mmc_sched::{Completed, Dispatch, NoSched, Outcome, Queue, RequestId, Scheduler, Slot};
/// use mmc_time::Instant;
///
/// struct Counted<S> {
///     inner: S,
///     runs: u64,
/// }
///
/// impl<S: Scheduler> Scheduler for Counted<S> {
///     mmc_sched::hand_on!(inner);
///     fn dispatch(&mut self, now: Instant) -> Dispatch {
///         let answer = self.inner.dispatch(now);
///         self.runs += u64::from(matches!(answer, Dispatch::Run(_)));
///         answer
///     }
///     fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
///         self.inner.complete(id, outcome, now)
///     }
/// }
///
/// let counted = Counted { inner: Queue::new([Slot::FREE; 4], NoSched::new()), runs: 0 };
/// assert_eq!((counted.name(), counted.capacity()), ("none", 4));
/// ```
#[macro_export]
macro_rules! hand_on {
    ($inner:ident) => {
        fn name(&self) -> &'static str {
            self.$inner.name()
        }
        fn capacity(&self) -> usize {
            self.$inner.capacity()
        }
        fn len(&self) -> usize {
            self.$inner.len()
        }
        fn merge(
            &mut self,
            r: &$crate::Request,
            now: $crate::Instant,
        ) -> Option<($crate::RequestId, $crate::Inserted)> {
            self.$inner.merge(r, now)
        }
        fn insert(
            &mut self,
            r: $crate::Request,
            now: $crate::Instant,
        ) -> Result<($crate::RequestId, $crate::Inserted), ($crate::Request, $crate::Rejected)> {
            self.$inner.insert(r, now)
        }
        fn next_member(&self, id: $crate::RequestId) -> Option<$crate::RequestId> {
            self.$inner.next_member(id)
        }
        fn request(&self, id: $crate::RequestId) -> Option<&$crate::Request> {
            self.$inner.request(id)
        }
        fn requeue(&mut self, run: &$crate::Run, now: $crate::Instant) {
            self.$inner.requeue(run, now);
        }
        fn cancel(&mut self, id: $crate::RequestId) -> Option<$crate::Request> {
            self.$inner.cancel(id)
        }
        fn wake_at(&self) -> Option<$crate::Instant> {
            self.$inner.wake_at()
        }
        fn admits(&self, kind: $crate::Kind, tags: usize) -> usize {
            self.$inner.admits(kind, tags)
        }
        fn admits_request(&self, request: &$crate::Request, tags: usize) -> bool {
            self.$inner.admits_request(request, tags)
        }
        fn tunable(&self, i: usize) -> Option<$crate::TunableInfo> {
            self.$inner.tunable(i)
        }
        fn tune(&mut self, name: &str, text: &str) -> Result<(), $crate::TuneError> {
            self.$inner.tune(name, text)
        }
    };
}

//! Tags, scheduler and card, without a host: what a disk decides, and nothing of how it is sent.
//!
//! [`Disk`](crate::Disk) joins it with a host. A foreign bus, or a simulator, can drive it directly:
//! [`Core::next`] fills a batch, [`Core::start`] gives the conversation to hold, [`Core::finish`] takes its
//! result.

use crate::care::Verdict;
use crate::error::{BlockError, Refusal, Refused, SetupError, Stopped};
use crate::exchange::{Answer, Exchange, Talk, both};
use crate::observer::{Observer, Statistics};
use crate::tag::{Cache, Done, Entry, Stamps, State, Table, Tag, Ticket, Which};
use mmc_hal::{Batch, Dir, Payload};
use mmc_proto::host::Capabilities;
use mmc_proto::machine::{CardTraits, Transfer, TransferOptions};
use mmc_sched::{
    Completed, Dispatch, Flags, Op, Outcome, Policy, Queue, Request, Run, Scheduler, Slot, TuneError,
};
use mmc_time::Instant;

/// Bytes of a sector.
pub const SECTOR: usize = 512;

/// A command that takes longer is counted: no card may be busy after a write for longer (SD 4.6.2.2 gives SDXC 500 ms,
/// all others 250 ms).
const SLOW: mmc_time::Duration = mmc_time::Duration::from_millis(500);

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Tags: how many runs may be in the scheduler and at the card together; at least 1. Linux: 128 for a card
    /// without command queueing.
    pub nr_requests: usize,
    /// How often a request is sent again after an error that may go away.
    pub retries: u16,
}

impl Default for Settings {
    /// 128 tags, 2 repetitions.
    fn default() -> Self {
        Self { nr_requests: 128, retries: 2 }
    }
}

/// The longest command a host can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sectors.
    pub max_blocks: u32,
    /// Segments of the buffers of all requests in it.
    pub max_segments: usize,
}

impl From<Capabilities> for Limits {
    fn from(c: Capabilities) -> Self {
        Self { max_blocks: c.max_blocks, max_segments: c.max_segments.into() }
    }
}

/// What a card can do beside reading and writing; the default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// It has a volatile cache that is on: FUA, PREFLUSH and flushes are commands of their own. Without one they ask
    /// for nothing.
    pub cache: bool,
    /// The card's allocation unit in sectors (or 0): a request that is longer than one command is cut at its multiples.
    pub unit: u32,
    /// The cache has barriers, and they are on: a barrier is a command of its own, and a short one. Otherwise it is a flush.
    pub barrier: bool,
    /// Most sectors of one discard; `None`: discards are refused.
    pub discard: Option<u32>,
    /// Most sectors of one command that makes them read as zero; `None`: refused (write zeroes instead).
    pub write_zeroes: Option<u32>,
    /// Most sectors of one secure erase, whole [`unit`](Self::unit)s; `None`: refused.
    pub secure_erase: Option<u32>,
    /// Most sectors of one secure trim; `None`: refused.
    pub secure_trim: Option<u32>,
    /// It can sanitize.
    pub sanitize: bool,
}

/// How sectors are emptied so that nobody can bring back what they held: [`Core::submit_wipe`]. Only eMMC can, and not
/// each; the time is seconds to minutes, in which nobody else is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wipe {
    /// Whole units ([`Features::unit`]: the card's erase groups) and every copy of them.
    SecureErase,
    /// Any sectors and every copy of them.
    SecureTrim,
    /// Whatever was erased, trimmed or discarded before, of the whole card.
    Sanitize,
}

/// One command to send: its requests are marked as running and their buffers are in the batch. Give it back
/// to [`Core::finish`], once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the requests of a job complete only through Core::finish"]
pub struct Job {
    pub(crate) run: Run,
}

impl Job {
    /// What it covers.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Work {
    /// Send this; the batch holds its buffers (none for a discard or write-zeroes).
    Run(Job),
    /// Flush the card's cache and say how it went ([`Core::finish_flush`]); nothing else is sent meanwhile.
    Flush,
    /// Nothing now, although requests are queued: ask again at `at`, or after a job was finished.
    Wait {
        /// When to ask again; `None`: only a completion ends the wait.
        at: Option<Instant>,
    },
    /// Nothing is queued.
    Idle,
}

/// What became of an abandoned request.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and it is taken apart at once")]
pub enum Abandoned<B> {
    /// It was not in a command yet, and never will be: here is its buffer.
    Withdrawn(B),
    /// It was over already.
    Done(Done<B>),
    /// It is part of a command, or merged with others: it is carried out and its buffer dropped afterwards.
    Orphaned,
    /// No such request (any more).
    Unknown,
}

/// Admission, scheduler, card: requests in, jobs out, results back. Holds no host.
///
/// `S` is the scheduler, `T` the table of [`Tag`]s (an array, `&mut [Tag<B>]`, a `Vec`), `B` one request's
/// buffer, `O` an [`Observer`].
///
/// Promises: an accepted request completes exactly once, with its own result (G3); nothing is reported done
/// that did not move all of its blocks (G6). Work per call: O(members of one run) and what the scheduler
/// states.
pub struct Core<S, T, B, O = ()> {
    pub(crate) scheduler: S,
    pub(crate) card: CardTraits,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    pub(crate) features: Features,
    pub(crate) table: Table<T, B>,
    /// Commands since the last flush: a stream of flushes shall not keep all else from the card.
    pub(crate) since_flush: u32,
    /// Something was written since the last good flush; it was lost with the card's supply.
    pub(crate) dirty: bool,
    pub(crate) cache_lost: bool,
    /// The card has a cache that is to be switched on, though it may be off at the moment.
    pub(crate) caching: bool,
    /// Nothing more is accepted, but what is here goes on.
    pub(crate) closing: bool,
    pub(crate) generation: u32,
    /// A flush runs, and how often the one before it failed in a row.
    pub(crate) flushing: bool,
    /// It need be no more than a barrier.
    pub(crate) barrier: bool,
    pub(crate) flush_tries: u16,
    /// Tags in use, by kind.
    pub(crate) held: [usize; 3],
    /// A run whose buffer is still out with an earlier part of the same request.
    pub(crate) pending: Option<Run>,
    pub(crate) order: u64,
    pub(crate) outstanding: usize,
    pub(crate) statistics: Statistics,
    pub(crate) stopped: Option<Stopped>,
    pub(crate) observer: O,
}

impl<S: Scheduler, T, B, O> core::fmt::Debug for Core<S, T, B, O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Core")
            .field("scheduler", &self.scheduler.name())
            .field("card", &self.card)
            .field("limits", &self.limits)
            .field("outstanding", &self.outstanding)
            .field("tags", &self.held)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// A core for one identified card. The table has a place for each accepted request, waiting ones
    /// included: at least as many as the scheduler has slots; what it held is dropped. The scheduler's own
    /// limits on runs should be `limits`: a run that is longer goes out in several commands, cut between requests.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(
        scheduler: S,
        card: CardTraits,
        limits: Limits,
        tags: T,
        settings: Settings,
        observer: O,
    ) -> Result<Self, SetupError> {
        if !scheduler.is_empty() {
            return Err(SetupError::SchedulerNotEmpty(scheduler.len()));
        }
        if scheduler.capacity() == 0 {
            return Err(SetupError::NoSlots);
        }
        let table = Table::new(tags);
        if table.len() < scheduler.capacity() {
            return Err(SetupError::TooFewTags { tags: table.len(), capacity: scheduler.capacity() });
        }
        if settings.nr_requests == 0 {
            return Err(SetupError::NoRequests);
        }
        Ok(Self {
            scheduler,
            card,
            limits,
            settings,
            features: Features::default(),
            table,
            since_flush: 1,
            dirty: false,
            cache_lost: false,
            caching: false,
            closing: false,
            generation: 0,
            flushing: false,
            barrier: false,
            flush_tries: 0,
            held: [0; 3],
            pending: None,
            order: 0,
            outstanding: 0,
            statistics: Statistics::default(),
            stopped: None,
            observer,
        })
    }

    /// The scheduler, to look at.
    pub const fn scheduler(&self) -> &S {
        &self.scheduler
    }
    /// The card.
    pub const fn card(&self) -> &CardTraits {
        &self.card
    }
    /// The observer.
    pub const fn observer(&mut self) -> &mut O {
        &mut self.observer
    }
    /// Counts since the start.
    pub const fn statistics(&self) -> &Statistics {
        &self.statistics
    }
    /// Requests accepted and not over.
    pub const fn outstanding(&self) -> usize {
        self.outstanding
    }
    /// When the oldest request that is not over was submitted; `None`: there is none. A look at every place of the table: for
    /// a watchdog, not for each request.
    pub fn oldest(&self) -> Option<Instant> {
        let open = self.table.tags().iter().filter_map(Tag::entry).filter(|e| e.state != State::Done);
        open.map(|e| e.stamps.queued).min()
    }
    /// Why it has stopped, if it has.
    pub const fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }
    /// Sets a tunable of the scheduler.
    ///
    /// # Errors
    /// [`TuneError`]; nothing changed.
    pub fn tune(&mut self, name: &str, text: &str, now: Instant) -> Result<(), TuneError> {
        self.scheduler.tune(name, text)?;
        // Limits of admission may have become wider.
        self.admit(now);
        Ok(())
    }

    /// Says what the card can do beside reading and writing. Before the first request.
    pub fn set_features(&mut self, features: Features) {
        self.features = features;
    }
    /// What the card can do beside reading and writing.
    pub const fn features(&self) -> &Features {
        &self.features
    }

    fn serves(&self) -> Result<(), Refusal> {
        let why = self.stopped.or(self.closing.then_some(Stopped::PowerOff));
        why.map_or(Ok(()), |why| Err(Refusal::Stopped(why)))
    }

    fn check(&self, r: &Request, buffer: Option<&B>) -> Result<(), Refusal> {
        self.serves()?;
        let max = match r.op {
            Op::Read | Op::Write => Some(self.limits.max_blocks),
            Op::Discard => self.features.discard,
            Op::WriteZeroes => self.features.write_zeroes,
            _ => None,
        };
        if max.is_none() {
            return Err(Refusal::Unsupported(r.op));
        }
        let data = matches!(r.op, Op::Read | Op::Write);
        if r.blocks == 0 {
            let wants = Flags::PREFLUSH | Flags::BARRIER;
            let flush = r.op == Op::Write && r.flags.intersects(wants) && buffer.is_none();
            return if flush { Ok(()) } else { Err(Refusal::Empty) };
        }
        self.on_card(r)?;
        self.whole(r, self.card.unit)?;
        let bytes = buffer.map_or(0, Payload::bytes);
        let needed = if data { u64::from(r.blocks).saturating_mul(SECTOR as u64) } else { 0 };
        if u64::try_from(bytes) != Ok(needed) || data != buffer.is_some() {
            return Err(Refusal::BufferLength { bytes, needed });
        }
        buffer.map_or(Ok(()), |buffer| self.scattered(r, buffer))
    }

    fn on_card(&self, r: &Request) -> Result<(), Refusal> {
        let end = r.lba.checked_add(r.blocks.into());
        if end.is_none_or(|end| end > self.card.blocks) {
            return Err(Refusal::OutOfRange { lba: r.lba, blocks: r.blocks, capacity: self.card.blocks });
        }
        Ok(())
    }

    /// What `how` is told to the scheduler as: something that never merges and goes with the writes.
    fn wipe(&self, mut r: Request, how: Wipe) -> Result<Request, Refusal> {
        self.serves()?;
        if r.op != Op::Discard {
            return Err(Refusal::Unsupported(r.op));
        }
        let offered = match how {
            Wipe::SecureErase => self.features.secure_erase.is_some(),
            Wipe::SecureTrim => self.features.secure_trim.is_some(),
            Wipe::Sanitize => self.features.sanitize,
        };
        if !offered {
            return Err(Refusal::NotOffered(how));
        }
        r.op = Op::WriteZeroes;
        if how == Wipe::Sanitize {
            // Behind all that came before, and before all that comes behind.
            (r.lba, r.blocks) = (0, u32::try_from(self.card.blocks).unwrap_or(u32::MAX));
            return Ok(r);
        }
        if r.blocks == 0 {
            return Err(Refusal::Empty);
        }
        self.on_card(&r)?;
        self.whole(&r, if how == Wipe::SecureErase { self.features.unit } else { self.card.unit })?;
        Ok(r)
    }

    /// It begins and ends between units; the last one of a card may be cut short.
    fn whole(&self, r: &Request, unit: u32) -> Result<(), Refusal> {
        let odd = |at: u64| at.checked_rem(unit.max(1).into()) != Some(0);
        if odd(r.lba) || odd(r.end()) && r.end() != self.card.blocks {
            return Err(Refusal::Unaligned { lba: r.lba, blocks: r.blocks, unit });
        }
        Ok(())
    }

    /// Accepts a read or a write of any length (one that is longer than a command goes out in pieces): it merges into a
    /// queued one, takes a tag, or waits for one, or for an earlier request that it overlaps (two reads never wait for each
    /// other).
    ///
    /// On a card with a volatile cache ([`Features::cache`]) PREFLUSH has the cache flushed before the data are
    /// written, and FUA after. On one without they ask for nothing. The scheduler never sees either: the write itself
    /// is an ordinary, mergeable one that somebody waits for.
    ///
    /// # Errors
    /// [`Refused`]: request and buffer come back and nothing was queued.
    pub fn submit(&mut self, request: Request, buffer: B, now: Instant) -> Result<Ticket, Refused<B>> {
        if let Err(error) = self.check(&request, Some(&buffer)) {
            return Err(Refused { error, request, buffer });
        }
        let Some(i) = self.table.reserve() else {
            return Err(Refused { error: Refusal::TableFull, request, buffer });
        };
        Ok(self.accept(i, request, None, Some(buffer), now))
    }

    /// Accepts a request without data: a discard, a write-zeroes, a flush (a write of no blocks with
    /// [`Flags::PREFLUSH`], as in Linux), or a barrier (a write of no blocks with [`Flags::BARRIER`]). A flush covers every
    /// write that completed before it was submitted. A barrier orders: once it is over, nothing that is submitted then is
    /// stored before what completed before the barrier was submitted; where the card has none it is a flush.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    pub fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal> {
        self.check(&request, None)?;
        let i = self.table.reserve().ok_or(Refusal::TableFull)?;
        Ok(self.accept(i, request, None, None, now))
    }

    /// Accepts a discard ([`Op::Discard`]) that is to be carried out as `how`; of a sanitize the sectors are all of the card,
    /// whatever the request says. It keeps its place among requests of the same sectors, as any write does, so that a
    /// sanitize covers every discard that was submitted before. After an error any of its sectors may be gone, or their
    /// copies still there: repeat it.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    pub fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        let told = self.wipe(request, how)?;
        let i = self.table.reserve().ok_or(Refusal::TableFull)?;
        Ok(self.accept(i, request, Some((told, how)), None, now))
    }

    /// `wipe`: what the scheduler is told instead of `given`, and why.
    fn accept(
        &mut self,
        i: u32,
        given: Request,
        wipe: Option<(Request, Wipe)>,
        buffer: Option<B>,
        now: Instant,
    ) -> Ticket {
        let ticket = self.table.ticket(i);
        let (request, cache) = match wipe {
            Some((told, _)) => (told, Cache::Nothing),
            None => self.wants(&given),
        };
        let entry = Entry {
            given,
            request,
            buffer,
            state: State::Waiting,
            id: None,
            holds: None,
            order: self.order,
            stamps: Stamps { queued: now, ..Stamps::default() },
            attempts: 0,
            sent: now,
            tries: 0,
            part: (0, request.blocks),
            cache,
            wipe: wipe.map(|(_, how)| how),
            single: None,
            moved: 0,
            status: None,
            generation: self.generation,
            orphan: false,
            noted: false,
            result: Ok(()),
        };
        self.table.fill(i, entry);
        self.order = self.order.saturating_add(1);
        self.outstanding = self.outstanding.saturating_add(1);
        self.statistics.accepted = self.statistics.accepted.saturating_add(1);
        self.statistics.depth_max = self.statistics.depth_max.max(self.outstanding);
        self.observer.queued(ticket, &request, now);
        if matches!(cache, Cache::Only | Cache::Barrier) {
            self.accept_flush(i, now);
            return ticket;
        }
        self.table.enlist(i);
        if self.table.must_wait(i) {
            self.statistics.held = self.statistics.held.saturating_add(1);
            self.set_state(i, State::Held);
            self.table.push(Which::Held, i);
        } else {
            self.launch(i, now);
            self.admit(now);
            self.note_wait(i, now);
        }
        ticket
    }

    pub(crate) fn set_state(&mut self, i: u32, state: State) {
        if let Some(e) = self.table.get_mut(i) {
            e.state = state;
        }
    }

    /// Nothing that it overlaps is before it any more.
    pub(crate) fn launch(&mut self, i: u32, now: Instant) {
        let Some(e) = self.table.get(i) else { return };
        match e.cache {
            Cache::Before { .. } => self.wait_for_flush(i),
            _ => self.enqueue(i, e.request, now),
        }
    }

    /// Lets go of those that waited for a request that is over; whether there was one.
    pub(crate) fn release_held(&mut self, now: Instant) -> bool {
        let (mut next, mut let_go) = (self.table.first_held(), false);
        // One turn for each that is held; those that are let go do not come back.
        for _ in 0..self.table.len() {
            let Some(i) = next else { break };
            next = self.table.held_after(i);
            if !self.table.must_wait(i) {
                self.table.remove(Which::Held, i);
                self.launch(i, now);
                let_go = true;
            }
        }
        let_go
    }

    /// The next command, into an empty `batch`. Asks the scheduler now, so call it when the command can be
    /// sent (or prepared), not before.
    pub fn next<P: Batch<Buffer = B>>(&mut self, batch: &mut P, now: Instant) -> Work {
        if self.stopped.is_some() {
            return self.drain(now);
        }
        if self.flushing {
            return Work::Wait { at: None };
        }
        if self.table.wants_flush() && self.since_flush > 0 {
            return self.begin_flush();
        }
        // Each turn but the last takes a run apart or drops it; a scheduler has no more runs than slots.
        for _ in 0..self.table.len() {
            let run = match self.take_run(now) {
                Ok(run) => run,
                Err(_) if self.table.wants_flush() => return self.begin_flush(),
                Err(nothing) => return nothing,
            };
            if let Some(work) = self.assemble(&run, batch, now) {
                return work;
            }
        }
        Work::Wait { at: Some(now) }
    }

    /// Which card is served: counts up with each change of the media.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// What goes out next: requests that are sent again, then a part that had to wait for its buffer, then
    /// whatever the scheduler says.
    fn take_run(&mut self, now: Instant) -> Result<Run, Work> {
        if let Some(run) = self.table.pop(Which::Again).and_then(|i| self.alone(i)) {
            return Ok(run);
        }
        if let Some(run) = self.pending.take() {
            return Ok(run);
        }
        match self.scheduler.dispatch(now) {
            Dispatch::Run(run) => Ok(run),
            Dispatch::Wait { at, .. } => Err(Work::Wait { at }),
            Dispatch::Empty => Err(Work::Idle),
        }
    }

    /// Stops: nothing is accepted or sent any more; call [`drain`](Self::drain). A shutdown is for good.
    pub fn stop(&mut self, why: Stopped) {
        if self.stopped != Some(Stopped::Shutdown) {
            self.stopped = Some(why);
        }
    }
    /// Goes on, if it was stopped for this reason.
    pub fn resume(&mut self, why: Stopped) {
        if self.stopped == Some(why) && why != Stopped::Shutdown {
            self.stopped = None;
        }
    }
    /// The card in the slot is another one, or gone: stops for that reason, and counts the change.
    pub(crate) fn change_media(&mut self, why: Stopped) {
        self.generation = self.generation.wrapping_add(1);
        (self.dirty, self.cache_lost) = (false, false);
        self.stop(why);
    }
    /// Failures so far of what the job sends.
    pub(crate) fn failures(&self, job: &Job) -> u8 {
        let tries = self.table.by_id(job.run.head).and_then(|i| self.table.get(i)).map_or(0, |e| e.tries);
        u8::try_from(tries.saturating_sub(1)).unwrap_or(u8::MAX)
    }

    /// Of a stopped core: completes whatever is queued or waits with [`BlockError::Stopped`].
    pub fn drain(&mut self, now: Instant) -> Work {
        let why = self.stopped.unwrap_or(Stopped::Shutdown);
        // Each turn ends a request or a run, which may let others go that want a flush, or are runs, in their turn.
        for _ in 0..self.table.len() {
            if let Some(i) = self.table.pop(Which::Flush) {
                self.over(i, Err(BlockError::Stopped(why)), now);
                self.admit(now);
                continue;
            }
            let run = match self.take_run(now) {
                Ok(run) => run,
                Err(nothing) => return nothing,
            };
            let head = self.table.by_id(run.head).and_then(|i| self.table.get(i));
            if head.is_some_and(|e| e.state == State::Running) {
                // A further part of a request whose earlier part has not come back yet.
                self.pending = Some(run);
                return Work::Wait { at: None };
            }
            self.fail_members(&run, BlockError::Stopped(why), now);
        }
        Work::Wait { at: Some(now) }
    }

    /// The job goes to the host now: the conversation to hold, with the batch as its payload.
    pub fn start(&mut self, job: &Job, now: Instant) -> Exchange {
        self.started(job, now);
        Talk::Transfer(self.transfer(job)).into()
    }

    pub(crate) fn started(&mut self, job: &Job, now: Instant) {
        self.since_flush = self.since_flush.saturating_add(1);
        self.statistics.commands = self.statistics.commands.saturating_add(1);
        let length = (job.run.blocks.max(1).ilog2() as usize).min(11);
        if let Some(n) = self.statistics.lengths.get_mut(length) {
            *n = n.saturating_add(1);
        }
        self.for_members(&job.run, |core, i| {
            if let Some(e) = core.table.get_mut(i) {
                e.stamps.started.get_or_insert(now);
                e.sent = now;
                e.attempts = e.attempts.saturating_add(1);
                e.tries = e.tries.saturating_add(1);
            }
        });
        if let Some(head) = self.table.by_id(job.run.head) {
            self.observer.started(self.table.ticket(head), &job.run, now);
        }
    }

    pub(crate) fn transfer(&self, job: &Job) -> Transfer {
        let dir = if job.run.op.is_read() { Dir::Read } else { Dir::Write };
        Transfer::new(&self.card, dir, job.run.lba, job.run.blocks, TransferOptions::default())
    }

    /// How the run empties its sectors, if it does so for good.
    pub(crate) fn wipe_of(&self, run: &Run) -> Option<Wipe> {
        self.table.by_id(run.head).and_then(|i| self.table.get(i))?.wipe
    }

    /// The job ended. `batch` holds its buffers, and is empty afterwards; `None`: the host had to keep it, and
    /// the core stops ([`Stopped::Quarantine`]).
    ///
    /// An error of a command that carried several requests says nothing about each of them: they are sent
    /// again one by one. A request alone is sent again [`Settings::retries`] times if that may help. A card
    /// that is gone, or silent even to CMD13, ends them all at once.
    pub fn finish<P: Batch<Buffer = B>>(
        &mut self,
        job: Job,
        answer: impl Into<Answer>,
        batch: Option<&mut P>,
        now: Instant,
    ) {
        let again = |core: &Self, run: &Run, e: &BlockError| {
            if core.worth_again(run, e) { Verdict::Again } else { Verdict::Fail }
        };
        self.finish_with(job, answer.into(), batch, now, again);
    }

    /// As [`finish`](Self::finish), with the caller's own judgement of an error. Requests that failed together are sent
    /// again each on its own in any case, unless the card is gone or hangs: nobody knows which of them it was.
    pub(crate) fn finish_with<P: Batch<Buffer = B>>(
        &mut self,
        job: Job,
        Answer { result, status }: Answer,
        batch: Option<&mut P>,
        now: Instant,
        judge: impl FnOnce(&Self, &Run, &BlockError) -> Verdict,
    ) {
        let run = job.run;
        let mut result = match result {
            Ok(moved) if moved == run.blocks => Ok(()),
            Ok(moved) => Err(BlockError::Short { expected: run.blocks, moved }),
            Err(e) => Err(e),
        };
        match batch {
            Some(batch) => self.unload(&run, batch),
            None if !matches!(run.op, Op::Read | Op::Write) => {}
            None => {
                self.stop(Stopped::Quarantine);
                result = match result {
                    Err(BlockError::Transfer(e)) => Err(BlockError::Quarantined(e)),
                    other => other,
                };
            }
        }
        if let Some(head) = self.table.by_id(run.head) {
            let took = self.table.get(head).map_or(mmc_time::Duration::ZERO, |e| now.since(e.sent));
            self.statistics.command_max = self.statistics.command_max.max(took);
            if took > SLOW {
                self.statistics.slow_commands = self.statistics.slow_commands.saturating_add(1);
            }
            self.observer.ended(self.table.ticket(head), &run, result.is_ok(), now);
        }
        self.for_members(&run, |core, i| {
            if let Some(e) = core.table.get_mut(i) {
                e.status = both(e.status, status);
            }
        });
        match result {
            Ok(()) => self.for_members(&run, |core, i| core.part_done(i, now)),
            Err(error) => {
                let verdict = match judge(self, &run, &error) {
                    _ if self.stopped.is_some() => Verdict::Fail,
                    Verdict::Fail if run.count > 1 && !error.media_gone() && !error.needs_reset() => {
                        Verdict::Again
                    }
                    verdict => verdict,
                };
                if verdict == Verdict::Fail {
                    if let (1, BlockError::Transfer(e)) = (run.count, &error) {
                        if let Some(entry) = self.table.by_id(run.head).and_then(|i| self.table.get_mut(i)) {
                            entry.has_moved(run.offset, e.done);
                        }
                    }
                    self.fail_members(&run, error, now);
                } else {
                    self.send_again(&run, verdict);
                }
            }
        }
        self.admit(now);
    }

    fn send_again(&mut self, run: &Run, verdict: Verdict) {
        let whole = run.count > 1;
        self.for_members(run, |core, i| {
            core.statistics.retries = core.statistics.retries.saturating_add(1);
            if let Some(e) = core.table.get_mut(i) {
                e.state = State::Again;
                if let Verdict::Single(piece) = verdict {
                    let piece = piece.max(1);
                    e.single = Some((e.single.map_or(e.part, |(part, _)| part), piece));
                    e.part.1 = e.part.1.min(piece);
                }
            }
            if whole {
                core.table.push(Which::Again, i);
            } else {
                core.table.push_front(Which::Again, i);
            }
        });
    }

    fn worth_again(&self, run: &Run, error: &BlockError) -> bool {
        let tries = self.table.by_id(run.head).and_then(|i| self.table.get(i)).map_or(u16::MAX, |e| e.tries);
        let hopeless = match error {
            BlockError::Transfer(_) | BlockError::Erase(_) => error.media_gone() || error.needs_reset(),
            BlockError::Short { .. } => false,
            _ => true,
        };
        let again = run.count > 1 || (error.is_retryable() && tries <= self.settings.retries);
        !hopeless && again
    }

    /// Gives up a job that was never sent, because the core has stopped.
    pub fn give_up<P: Batch<Buffer = B>>(&mut self, job: Job, batch: &mut P, now: Instant) {
        self.unload(&job.run, batch);
        let why = self.stopped.unwrap_or(Stopped::Shutdown);
        if let Some(head) = self.table.by_id(job.run.head) {
            self.observer.ended(self.table.ticket(head), &job.run, false, now);
        }
        self.fail_members(&job.run, BlockError::Stopped(why), now);
        self.admit(now);
    }

    /// Calls `f` with the place of each member of `run`. `f` may complete the member.
    pub(crate) fn for_members(&mut self, run: &Run, mut f: impl FnMut(&mut Self, u32)) {
        let mut id = Some(run.head);
        for _ in 0..run.count {
            let Some(member) = id else { return };
            // Before `f`: a completed member is no link any more.
            id = self.scheduler.next_member(member);
            if let Some(i) = self.table.by_id(member) {
                f(self, i);
            }
        }
    }

    /// The part of a request that was sent is stored or read; so is the request, if it was the last.
    fn part_done(&mut self, i: u32, now: Instant) {
        let Some(e) = self.table.get_mut(i) else { return };
        self.dirty |= !e.request.op.is_read() && self.features.cache;
        let end = e.part.0.saturating_add(e.part.1);
        e.has_moved(e.part.0, e.part.1);
        if let Some((part, piece)) = e.single {
            let left = part.0.saturating_add(part.1).saturating_sub(end);
            if left > 0 {
                let next = self.next_piece(i, (end, left), piece);
                if let Some(e) = self.table.get_mut(i) {
                    (e.part, e.state) = ((end, next), State::Again);
                }
                self.table.push_front(Which::Again, i);
                return;
            }
            (e.part, e.single) = (part, None);
        }
        let (Some(id), (_, blocks)) = (e.id, e.part) else { return };
        match self.scheduler.complete(id, Outcome { blocks, failed: false }, now) {
            Some(Completed { last: false, .. }) => e.state = State::Queued,
            // `None` would be a scheduler that has forgotten it: the data are moved all the same.
            _ if e.cache == Cache::After => {
                e.id = None;
                let holds = e.holds.take();
                self.release(holds);
                self.wait_for_flush(i);
            }
            _ => self.over(i, Ok(()), now),
        }
    }

    /// All members of a run have failed, each for the same reason.
    pub(crate) fn fail_members(&mut self, run: &Run, error: BlockError, now: Instant) {
        self.for_members(run, |core, i| {
            let Some(e) = core.table.get_mut(i) else { return };
            if let Some((part, _)) = e.single.take() {
                e.part = part;
            }
            if let Some(id) = e.id {
                core.scheduler.complete(id, Outcome { blocks: e.part.1, failed: true }, now);
                if let Some(part) = core.pending.take_if(|part| part.head == id) {
                    core.scheduler.complete(id, Outcome { blocks: part.blocks, failed: true }, now);
                }
            }
            core.over(i, Err(error), now);
        });
        self.admit(now);
    }

    /// A request is over: its tag is free, its result can be taken.
    pub(crate) fn over(&mut self, i: u32, result: Result<(), BlockError>, now: Instant) {
        let ticket = self.table.ticket(i);
        let Some(e) = self.table.get_mut(i) else { return };
        e.result = result;
        e.state = State::Done;
        e.id = None;
        e.stamps.completed = Some(now);
        let (request, orphan, holds) = (e.request, e.orphan, e.holds.take());
        let took = now.since(e.stamps.queued);
        if let Some(waits) = self.statistics.waits.get_mut(crate::tag::nth(request.kind())) {
            waits.count = waits.count.saturating_add(1);
            waits.total += took;
            waits.max = waits.max.max(took);
        }
        let listed = !matches!(e.cache, Cache::Only | Cache::Barrier);
        if listed {
            self.table.delist(i);
        }
        self.release(holds);
        self.outstanding = self.outstanding.saturating_sub(1);
        let count = if result.is_ok() { &mut self.statistics.completed } else { &mut self.statistics.failed };
        *count = count.saturating_add(1);
        self.observer.completed(ticket, &request, result.is_ok(), now);
        if orphan {
            self.table.vacate(i);
        } else {
            self.table.push(Which::Done, i);
        }
    }

    fn take_at(&mut self, i: u32) -> Option<Done<B>> {
        let ticket = self.table.ticket(i);
        let e = self.table.vacate(i)?;
        let Entry { given: request, buffer, result, stamps, attempts, moved, status, generation, .. } = e;
        let moved = if result.is_ok() { request.blocks } else { moved };
        Some(Done { ticket, request, buffer, result, stamps, attempts, moved, status, generation })
    }
    /// The next finished request, in the order in which they finished.
    pub fn take_done(&mut self) -> Option<Done<B>> {
        let i = self.table.pop(Which::Done)?;
        self.take_at(i)
    }
    /// The result of this request, once; `None` while it is not over.
    pub fn take(&mut self, ticket: Ticket) -> Option<Done<B>> {
        let i = self.table.find(ticket)?;
        if self.table.get(i)?.state != State::Done {
            return None;
        }
        self.table.remove(Which::Done, i);
        self.take_at(i)
    }
    /// Whether a finished request can be taken.
    pub fn has_done(&self) -> bool {
        self.table.has_done()
    }

    /// Nobody wants the result any more. A command is never stopped for it: other requests may be in it.
    pub fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<B> {
        let Some(i) = self.table.find(ticket) else { return Abandoned::Unknown };
        let Some(e) = self.table.get_mut(i) else { return Abandoned::Unknown };
        match (e.state, e.id) {
            (State::Done, _) => match self.take(ticket) {
                Some(done) => return Abandoned::Done(done),
                None => return Abandoned::Unknown,
            },
            (State::Waiting, _) => {
                let kind = e.request.kind();
                self.table.remove(Which::Waiting(kind), i);
            }
            (State::Held, _) => self.table.remove(Which::Held, i),
            (State::Queued, Some(id)) if e.attempts == 0 && self.scheduler.cancel(id).is_some() => {}
            _ => {
                e.orphan = true;
                return Abandoned::Orphaned;
            }
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        self.table.delist(i);
        let entry = self.table.vacate(i);
        self.release(entry.as_ref().and_then(|e| e.holds));
        self.admit(now);
        entry.and_then(|e| e.buffer).map_or(Abandoned::Unknown, Abandoned::Withdrawn)
    }
}

impl<St, P, T, B, O> Core<Queue<St, P>, T, B, O>
where
    St: AsRef<[Slot]> + AsMut<[Slot]> + Send,
    P: Policy,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// Puts another policy in charge: see [`Disk::replace_policy`](crate::Disk::replace_policy).
    pub fn replace_policy(&mut self, policy: P, now: Instant) -> P {
        let old = self.scheduler.replace(policy, now);
        // The new one may let more in.
        self.admit(now);
        old
    }
}

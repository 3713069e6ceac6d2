//! A core over a host: the polled front.

use crate::core::{Abandoned, Core, Job, Settings, Work};
use crate::error::{BlockError, Refused, SetupError, Stopped};
use crate::observer::{Observer, Statistics};
use crate::tag::{Done, Tag, Ticket};
use mmc_hal::Batch;
use mmc_proto::host::{Host, Why};
use mmc_proto::machine::{CardTraits, Conductor, Transfer, Turn};
use mmc_sched::{Request, Scheduler, TuneError};
use mmc_time::{Duration, Instant};

/// Commands begun in one [`Disk::poll`]; after that many it asks to be called again at once.
const COMMANDS: u32 = 16;
/// A scheduler that wants to be asked again at an instant that has passed is asked this much later, so that
/// time always moves.
const PATIENCE: Duration = Duration::from_micros(1);

/// What the disk waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call `poll` again at `until` at the latest, and before if `why` is an interrupt and it came.
    Wait {
        /// What will end the wait.
        why: Why,
        /// When to look again at the latest.
        until: Instant,
    },
    /// Nothing is queued and nothing runs: submit something.
    Idle,
    /// The host is lent ([`Disk::lent`]): nothing goes on until [`Disk::give_back`].
    Lent,
}

/// Whether somebody else wants the host, or has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loan {
    No,
    Wanted,
    Given,
}

type Buffer<H> = <<H as Host>::Payload as Batch>::Buffer;

struct Running<P> {
    job: Job,
    conductor: Conductor<Transfer, P>,
}

/// One card behind one host, as a block device that is polled.
///
/// One command is on the bus and at most one prepared. Without preparation (the default) the scheduler is
/// asked when the bus is free, so that whatever was submitted until then can still be next. With it
/// ([`prepare_with`](Self::prepare_with), what Linux' mmc driver does) the next command is taken from the
/// scheduler while one runs: less time between commands, and one more command that a new request cannot pass.
///
/// Call [`poll`](Self::poll) after submitting, at the instants it names, and after each interrupt; then take
/// what is done. Nothing blocks. Forgetting to take results is harmless but keeps their places in the table.
pub struct Disk<H, S, T, O = ()>
where
    H: Host,
    H::Payload: Batch,
{
    host: H,
    core: Core<S, T, Buffer<H>, O>,
    running: Option<Running<H::Payload>>,
    prepared: Option<(Job, H::Payload)>,
    /// Batches that carry nothing.
    spare: [Option<H::Payload>; 2],
    loan: Loan,
}

impl<H, S: Scheduler, T, O> core::fmt::Debug for Disk<H, S, T, O>
where
    H: Host,
    H::Payload: Batch,
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Disk")
            .field("core", &self.core)
            .field("running", &self.running.as_ref().map(|r| r.job.run()))
            .field("prepared", &self.prepared.as_ref().map(|p| p.0.run()))
            .finish_non_exhaustive()
    }
}

impl<H, S, T, O> Disk<H, S, T, O>
where
    H: Host,
    H::Payload: Batch,
    S: Scheduler,
    T: AsRef<[Tag<Buffer<H>>]> + AsMut<[Tag<Buffer<H>>]>,
    O: Observer,
{
    /// A disk. `host` is idle and has identified the card as `card`; `scheduler` and `batch` are empty, the
    /// scheduler's limits on runs are at most the host's and the batch's capacity (a longer run goes out one
    /// request at a time); `tags` has at least as many places as the scheduler has slots, the surplus is for
    /// requests that wait for a tag.
    ///
    /// # Errors
    /// [`SetupError`]; all arguments are dropped.
    pub fn new(
        host: H,
        scheduler: S,
        card: CardTraits,
        batch: H::Payload,
        tags: T,
        settings: Settings,
        observer: O,
    ) -> Result<Self, SetupError> {
        if batch.capacity() == 0 || !batch.is_empty() {
            return Err(SetupError::NoBatch);
        }
        let limits = host.capabilities().into();
        let core = Core::new(scheduler, card, limits, tags, settings, observer)?;
        Ok(Self { host, core, running: None, prepared: None, spare: [Some(batch), None], loan: Loan::No })
    }

    /// From now on one command is prepared while another runs, with a second, empty batch as large as the
    /// first.
    ///
    /// # Errors
    /// [`SetupError::NoBatch`]: the batch holds something, or has room for nothing.
    pub fn prepare_with(&mut self, batch: H::Payload) -> Result<(), SetupError> {
        if batch.capacity() == 0 || !batch.is_empty() {
            return Err(SetupError::NoBatch);
        }
        self.put(batch);
        Ok(())
    }

    /// Accepts a request of whole sectors with a buffer of exactly that length; call [`poll`](Self::poll)
    /// afterwards.
    ///
    /// # Errors
    /// [`Refused`]: request and buffer come back and nothing was queued.
    pub fn submit(
        &mut self,
        request: Request,
        buffer: Buffer<H>,
        now: Instant,
    ) -> Result<Ticket, Refused<Buffer<H>>> {
        self.core.submit(request, buffer, now)
    }

    /// Goes on as far as possible without waiting.
    pub fn poll(&mut self, now: Instant) -> Next {
        if self.loan == Loan::Given {
            return Next::Lent;
        }
        for _ in 0..COMMANDS {
            if let Some(running) = &mut self.running {
                match running.conductor.poll(&mut self.host, now) {
                    Turn::Wait { why, until } => {
                        return match self.prepare(now) {
                            Some(at) if at < until => Next::Wait { why: Why::Timer, until: at },
                            _ => Next::Wait { why, until },
                        };
                    }
                    Turn::Done(result, batch) => self.finish(result.map_err(BlockError::from), batch, now),
                }
            }
            if let Some(next) = self.begin(now) {
                return next;
            }
        }
        Next::Wait { why: Why::Timer, until: now }
    }

    fn finish(&mut self, result: Result<u32, BlockError>, batch: Option<H::Payload>, now: Instant) {
        let Some(Running { job, .. }) = self.running.take() else { return };
        match batch {
            Some(mut batch) => {
                self.core.finish(job, result, Some(&mut batch), now);
                self.put(batch);
            }
            None => self.core.finish::<H::Payload>(job, result, None, now),
        }
    }

    /// The bus is free: starts the next command. `Some`: there is none.
    fn begin(&mut self, now: Instant) -> Option<Next> {
        if self.core.stopped().is_some() {
            if let Some((job, mut batch)) = self.prepared.take() {
                self.core.give_up(job, &mut batch, now);
                self.put(batch);
            }
            let work = self.core.drain(now);
            if self.loan == Loan::Wanted {
                self.loan = Loan::Given;
                return Some(Next::Lent);
            }
            return Some(wait(&work, now));
        }
        let (job, batch) = match self.prepared.take() {
            Some(ready) => ready,
            None if self.loan == Loan::Wanted => {
                self.loan = Loan::Given;
                return Some(Next::Lent);
            }
            None => {
                // Without a batch the host keeps it, and the core has stopped: seen above.
                let Some(mut batch) = self.spare() else { return Some(Next::Idle) };
                match self.core.next(&mut batch, now) {
                    Work::Run(job) => (job, batch),
                    Work::Flush => {
                        self.put(batch);
                        self.core.finish_flush(Ok(()), now);
                        return None;
                    }
                    nothing => {
                        self.put(batch);
                        return Some(wait(&nothing, now));
                    }
                }
            }
        };
        let transfer = self.core.start(&job, now);
        self.running = Some(Running { job, conductor: Conductor::new(transfer, Some(batch)) });
        None
    }

    /// While a command runs: takes the next one from the scheduler, if there is a second batch. `Some`: when to
    /// try again.
    fn prepare(&mut self, now: Instant) -> Option<Instant> {
        if self.prepared.is_some() || self.core.stopped().is_some() || self.loan != Loan::No {
            return None;
        }
        let mut batch = self.spare()?;
        match self.core.next(&mut batch, now) {
            Work::Run(job) => {
                self.prepared = Some((job, batch));
                None
            }
            Work::Wait { at } => {
                self.put(batch);
                at.map(|at| at.max(now + PATIENCE))
            }
            Work::Idle | Work::Flush => {
                self.put(batch);
                None
            }
        }
    }

    fn spare(&mut self) -> Option<H::Payload> {
        self.spare.iter_mut().find_map(Option::take)
    }
    fn put(&mut self, batch: H::Payload) {
        if let Some(place) = self.spare.iter_mut().find(|s| s.is_none()) {
            *place = Some(batch);
        }
    }

    /// Asks for the host, for a conversation of the caller's own (a status, a health report, another partition, RPMB,
    /// raw commands). [`poll`](Self::poll) says [`Next::Lent`] when it is free: at most the running command and a
    /// prepared one are carried out before, however many requests are queued, and all that are submitted meanwhile wait.
    ///
    /// The card must come back as it was: in the transfer state, its user area selected, the bus as it was set.
    pub fn ask_for_host(&mut self) {
        if self.loan == Loan::No {
            self.loan = Loan::Wanted;
        }
    }
    /// The host, while it is lent; drive it with a [`Conductor`] and no longer than needed.
    pub fn lent(&mut self) -> Option<&mut H> {
        (self.loan == Loan::Given).then_some(&mut self.host)
    }
    /// The host comes back (or is not wanted any more): call [`poll`](Self::poll).
    pub fn give_back(&mut self) {
        self.loan = Loan::No;
    }

    /// The next finished request, in the order in which they finished.
    pub fn take_done(&mut self) -> Option<Done<Buffer<H>>> {
        self.core.take_done()
    }
    /// The result of this request, once; `None` while it is not over.
    pub fn take(&mut self, ticket: Ticket) -> Option<Done<Buffer<H>>> {
        self.core.take(ticket)
    }
    /// Nobody wants the result any more; a running command is never stopped for it.
    pub fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<Buffer<H>> {
        self.core.abandon(ticket, now)
    }
    /// Accepts nothing more, ends the running command early and completes everything that is queued with an
    /// error. Goes on with [`poll`](Self::poll) until that says [`Next::Idle`]; the card is left ready where
    /// it obeys.
    pub fn shutdown(&mut self, now: Instant) {
        if self.core.stopped().is_none() && self.running.is_some() {
            self.host.abort(now);
        }
        self.core.stop(Stopped::Shutdown);
    }

    /// After [`Stopped::Quarantine`]: asks the host for the batch it keeps (`get`, for `Supervised` its
    /// `reclaim`), hands out the buffers in it (`give`, in the order of their sectors), and goes on, unless
    /// it was shut down. False: the host keeps it still, or nothing.
    ///
    /// What is in those buffers is undefined, and so is what the card has stored: their requests were
    /// reported as failed.
    pub fn reclaim(
        &mut self,
        get: impl FnOnce(&mut H) -> Option<H::Payload>,
        mut give: impl FnMut(Buffer<H>),
    ) -> bool {
        let Some(mut batch) = get(&mut self.host) else { return false };
        while let Some(buffer) = batch.pop() {
            give(buffer);
        }
        self.put(batch);
        self.core.resume();
        true
    }

    /// The part that decides: scheduler, counts, stop reason.
    pub const fn core(&self) -> &Core<S, T, Buffer<H>, O> {
        &self.core
    }
    /// Counts since the start.
    pub const fn statistics(&self) -> &Statistics {
        self.core.statistics()
    }
    /// The observer.
    pub const fn observer(&mut self) -> &mut O {
        self.core.observer()
    }
    /// The host, to look at.
    pub const fn host(&self) -> &H {
        &self.host
    }
    /// Sets a tunable of the scheduler.
    ///
    /// # Errors
    /// [`TuneError`]; nothing changed.
    pub fn tune(&mut self, name: &str, text: &str, now: Instant) -> Result<(), TuneError> {
        self.core.tune(name, text, now)
    }
    /// Changes the number of tags, at least 1.
    pub fn set_nr_requests(&mut self, tags: usize, now: Instant) {
        self.core.set_nr_requests(tags, now);
    }
}

/// Nothing runs: only the scheduler's own instant ends the wait.
fn wait(work: &Work, now: Instant) -> Next {
    match work {
        Work::Wait { at } => {
            let until = at.map_or(Instant::NEVER, |at| at.max(now + PATIENCE));
            Next::Wait { why: Why::Timer, until }
        }
        Work::Run(_) | Work::Flush | Work::Idle => Next::Idle,
    }
}

//! A core over a host: the polled front.

use crate::care::{Care, Chore, Ended, Keeper, Media, Task};
use crate::core::{Abandoned, Core, Job, Settings, Wipe, Work};
use crate::error::{BlockError, Refusal, Refused, SetupError, Stopped};
use crate::exchange::{Answer, Exchange};
use crate::minder::Minder;
use crate::observer::{Observer, Statistics};
use crate::tag::{Done, Tag, Ticket};
use mmc_hal::Batch;
use mmc_proto::host::{Completion, Host, Progress, Returned, Why};
use mmc_proto::machine::{CardTraits, Conductor, Identified, Turn};
use mmc_sched::{Op, Policy, Priority, Queue, Request, Scheduler, Slot, TuneError};
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

/// Whether the disk serves, or is going to sleep or to be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Awake,
    /// Nothing new is begun; then flush and switch off.
    Suspending,
    /// The supply is off.
    Suspended,
    /// Requests that are here go on until the first instant; flush and notice must be over at the second.
    Leaving(Instant, Instant),
    /// Flush and notice are out.
    Farewell(Instant),
    /// The supply may go; whether flush and notice went well and in time.
    Left(bool),
}

/// Whether somebody else wants the host, or has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loan {
    No,
    Wanted,
    Given,
    /// What the borrower left on it has to end first; whether somebody wants it then.
    Evicting {
        wanted: bool,
    },
}

type Buffer<H> = <<H as Host>::Payload as Batch>::Buffer;

struct Running<P> {
    job: Job,
    conductor: Conductor<Exchange, P>,
    /// The host is still to be told of it: when it was prepared the one before had not sent its data command yet.
    untold: bool,
}

/// One card behind one host, as a block device that is polled.
///
/// One command is on the bus and at most one prepared. Without preparation (the default) the scheduler is
/// asked when the bus is free, so that whatever was submitted until then can still be next. With it
/// ([`prepare_with`](Self::prepare_with), what Linux' mmc driver does) the next command is taken from the
/// scheduler while one runs, and a host that can ([`Host::prepare`]) maps its memory and writes its descriptors
/// meanwhile: less time between commands, and one more command that a new request cannot pass. What cures the card goes
/// before it all the same.
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
    prepared: Option<Running<H::Payload>>,
    /// Batches that carry nothing.
    spare: [Option<H::Payload>; 2],
    loan: Loan,
    minder: Minder<Buffer<H>>,
    chore: Option<(Task, Conductor<Chore, H::Payload>)>,
    stage: Stage,
    /// Until when an interrupt is waited for.
    awaited: Instant,
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
            .field("prepared", &self.prepared.as_ref().map(|p| p.job.run()))
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
    /// scheduler's limits on runs are at most the host's and the batch's capacity (a longer run goes out in several
    /// commands); `tags` has at least as many places as the scheduler has slots, the surplus is for
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
        let caps = host.capabilities();
        let limits = caps.into();
        let core = Core::new(scheduler, card, limits, tags, settings, observer)?;
        Ok(Self {
            host,
            core,
            running: None,
            prepared: None,
            spare: [Some(batch), None],
            loan: Loan::No,
            minder: Minder::new(caps),
            chore: None,
            stage: Stage::Awake,
            awaited: Instant::ZERO,
        })
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

    /// From now on the disk looks after its card: errors are cured as `care` says, up to identifying the card anew; its
    /// cache is flushed; discards go to it; a card that is taken out or changed is noticed; it can be put to sleep.
    /// Without this the disk only reads, writes, and sends again.
    ///
    /// `card` is what [`Init`](crate::Init) found, and serves the user area; `scratch` is one segment of at least 512
    /// bytes. `host`'s [`Slot`](mmc_proto::host::Slot) is looked at between two commands: [`poll`](Self::poll) after a
    /// card-detect interrupt, too.
    ///
    /// # Errors
    /// The scratch buffer comes back when it is too small.
    pub fn look_after(
        &mut self,
        card: Identified,
        scratch: Buffer<H>,
        care: Care,
        now: Instant,
    ) -> Result<(), Buffer<H>> {
        let slot = self.host.slot(now);
        self.core.look_after(&mut self.minder, card, scratch, care, &slot)
    }

    /// What became of the card in the slot.
    pub const fn media(&self) -> Media {
        self.minder.media
    }
    /// The card in the slot as it was identified last, if the disk [looks after](Self::look_after) it.
    pub fn card(&self) -> Option<&Identified> {
        self.minder.card()
    }
    /// Serves the card that [`Media::New`] speaks of; requests are accepted again. False: there is none.
    pub fn accept_media(&mut self) -> bool {
        self.core.accept_media(&mut self.minder)
    }
    /// Tries to identify what is in the slot, where no switch tells that a card has come.
    pub fn look_again(&mut self) {
        self.minder.look_again();
    }

    /// Ends what runs, stores what is in the card's cache and switches the supply off; over when
    /// [`poll`](Self::poll) says [`Next::Idle`] and [`is_suspended`](Self::is_suspended). Requests are still accepted, and
    /// wait. A disk that does not [look after](Self::look_after) its card only stops sending.
    pub fn suspend(&mut self) {
        if self.stage == Stage::Awake {
            self.stage = Stage::Suspending;
        }
    }
    /// The supply is off and nothing runs.
    pub fn is_suspended(&self) -> bool {
        self.stage == Stage::Suspended && self.chore.is_none() && self.minder.idle()
    }
    /// Wakes up: identifies the card anew. If it is another one ([`Media::New`]), all that waited has failed.
    pub fn resume(&mut self) {
        if matches!(self.stage, Stage::Suspending | Stage::Suspended) {
            if let Some(agenda) = self.minder.agenda().filter(|_| self.stage == Stage::Suspended) {
                // Going to sleep is not on the agenda any more.
                agenda.remove(Task::Off);
                agenda.add(Task::Reset);
            }
            self.stage = Stage::Awake;
        }
    }

    /// The supply goes at `deadline`: accepts nothing more, carries out what is here as long as there is time, and stores
    /// and notifies in what is left (at most half of the time, and no more than the card may need). What was not carried
    /// out fails with [`Stopped::PowerOff`]. Go on with [`poll`](Self::poll) until [`power_may_go`](Self::power_may_go).
    pub fn prepare_power_off(&mut self, deadline: Instant, now: Instant) {
        let half = Duration::from_nanos(deadline.since(now).as_nanos() / 2);
        let farewell = self.minder.keeper().map_or(Duration::ZERO, Keeper::farewell);
        let last = now + deadline.since(now).saturating_sub(farewell.min(half));
        self.stage = Stage::Leaving(last, deadline);
        self.core.closing = true;
    }
    /// Of [`prepare_power_off`](Self::prepare_power_off): `Some` when it is over; false when the cache was not stored, or
    /// the card not told, in time, or when the card is gone or has lost its cache on the way.
    pub fn power_may_go(&self) -> Option<bool> {
        match self.stage {
            Stage::Left(well) => Some(well),
            _ => None,
        }
    }

    /// Accepts a discard, a write-zeroes or a flush: see [`Core::submit_bare`].
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    pub fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal> {
        self.core.submit_bare(request, now)
    }

    /// Accepts a discard that is carried out as `how`: see [`Core::submit_wipe`]. The disk must
    /// [look after](Self::look_after) its card.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    pub fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        self.core.submit_wipe(request, how, now)
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
        if now < core::mem::replace(&mut self.awaited, Instant::ZERO) {
            self.core.statistics.interrupts = self.core.statistics.interrupts.saturating_add(1);
        }
        let next = self.go_on(now);
        if let Next::Wait { why: Why::Interrupt, until } = next {
            self.awaited = until;
        }
        next
    }

    fn go_on(&mut self, now: Instant) -> Next {
        match self.loan {
            Loan::Given => return Next::Lent,
            Loan::Evicting { .. } => {
                if let Some(next) = self.clear_out(now) {
                    return next;
                }
            }
            Loan::No | Loan::Wanted => {}
        }
        for _ in 0..COMMANDS {
            if let Some((_, conductor)) = &mut self.chore {
                if matches!(self.stage, Stage::Farewell(deadline) if now >= deadline) {
                    self.host.abort(now);
                }
                match conductor.poll(&mut self.host, now) {
                    Turn::Wait { why, until } => {
                        let until = match self.stage {
                            Stage::Farewell(deadline) if now < deadline => until.min(deadline),
                            _ => until,
                        };
                        return Next::Wait { why, until };
                    }
                    Turn::Done(ended, batch) => self.finish_chore(&ended, batch, now),
                }
            } else if let Some(running) = &mut self.running {
                match running.conductor.poll(&mut self.host, now) {
                    Turn::Wait { why, until } => {
                        self.tell();
                        return match self.prepare(now) {
                            Some(at) if at < until => Next::Wait { why: Why::Timer, until: at },
                            _ => Next::Wait { why, until },
                        };
                    }
                    Turn::Done(answer, batch) => self.finish(answer, batch, now),
                }
            }
            if let Some(next) = self.begin(now) {
                return next;
            }
        }
        Next::Wait { why: Why::Timer, until: now }
    }

    fn finish(&mut self, answer: Answer, batch: Option<H::Payload>, now: Instant) {
        let Some(Running { job, .. }) = self.running.take() else { return };
        let (mut batch, mut bare) = (batch, None);
        if !matches!(job.run().op, Op::Read | Op::Write) {
            // It had no data: its batch is empty, and none the worse for it.
            bare = batch.take();
        }
        self.core.finish_minded(&mut self.minder, job, answer, batch.as_mut(), now);
        if let Some(batch) = batch.or(bare) {
            self.put(batch);
        }
    }

    /// The bus is free: starts the next command. `Some`: there is none.
    fn begin(&mut self, now: Instant) -> Option<Next> {
        let mut retune = false;
        if self.minder.cares() && self.stage != Stage::Suspended {
            let slot = self.host.slot(now);
            self.core.look_at_slot(&mut self.minder, &slot, now);
            retune = slot.retune;
        }
        if let Stage::Leaving(last, deadline) = self.stage {
            if self.core.outstanding() == 0 || now >= last || self.core.stopped().is_some() {
                self.core.stop(Stopped::PowerOff);
                self.stage = Stage::Farewell(deadline);
                let same = self.minder.media == Media::Same;
                if let Some(agenda) = self.minder.agenda().filter(|_| same) {
                    self.core.store_all();
                    agenda.add(Task::Flush);
                    agenda.add(Task::Notice);
                }
            }
        }
        if self.core.stopped().is_some() {
            if let Some(Running { job, mut conductor, .. }) = self.prepared.take() {
                conductor.unprepare(&mut self.host);
                match conductor.into_payload() {
                    Some(mut batch) => {
                        self.core.give_up(job, &mut batch, now);
                        self.put(batch);
                    }
                    // A host that has lost it.
                    None => self.core.finish::<H::Payload>(job, Err(BlockError::BadRun), None, now),
                }
            }
            let work = self.core.drain(now);
            if work != Work::Idle {
                return Some(wait(&work, now));
            }
        }
        if self.stage == Stage::Suspending && self.prepared.is_none() {
            if let Some(agenda) = self.minder.agenda() {
                self.core.store_all();
                agenda.add(Task::Flush);
                agenda.add(Task::Off);
            }
            self.stage = Stage::Suspended;
        }
        if retune {
            self.core.tune_first(&mut self.minder, self.loan == Loan::Wanted);
        }
        let cure = self.minder.keeper().is_some_and(|k| k.agenda.is_cure());
        if self.prepared.is_some() && cure && self.begin_chore(now) {
            return None;
        }
        if let Some(next) = self.prepared.take() {
            self.core.started(&next.job, now);
            self.running = Some(next);
            return None;
        }
        if self.begin_chore(now) {
            return None;
        }
        if self.loan == Loan::Wanted {
            self.loan = Loan::Given;
            return Some(Next::Lent);
        }
        if let Stage::Farewell(_) = self.stage {
            // A card that is gone has stored nothing more, nor one that lost its supply what was in its cache.
            let kept = self.minder.media == Media::Same && !self.core.cache_lost;
            self.stage = Stage::Left(kept && self.minder.idle());
        }
        if self.core.stopped().is_some() || self.stage == Stage::Suspended {
            return Some(Next::Idle);
        }
        // Without a batch the host keeps it, and the core has stopped: seen above.
        let Some(mut batch) = self.spare() else { return Some(Next::Idle) };
        match self.core.next(&mut batch, now) {
            Work::Run(job) => {
                self.core.started(&job, now);
                self.running = Some(self.conversation(job, batch));
            }
            Work::Flush => {
                self.put(batch);
                self.core.flush_next(&mut self.minder, now);
            }
            nothing => {
                self.put(batch);
                return Some(self.until_the_supply_goes(wait(&nothing, now)));
            }
        }
        None
    }

    /// A wait that ends when there is time for nothing but the flush.
    fn until_the_supply_goes(&self, next: Next) -> Next {
        match (self.stage, next) {
            (Stage::Leaving(last, _), Next::Wait { why, until }) => {
                Next::Wait { why, until: until.min(last) }
            }
            (_, next) => next,
        }
    }

    fn conversation(&self, job: Job, batch: H::Payload) -> Running<H::Payload> {
        let exchange = self.core.exchange(&self.minder, &job);
        Running { job, conductor: Conductor::new(exchange, Some(batch)), untold: false }
    }

    /// Hands what is prepared to the host, once: it gets one at a time ready.
    fn tell(&mut self) {
        if self.running.as_ref().is_some_and(|r| r.conductor.is_prepared()) {
            return;
        }
        if let Some(next) = self.prepared.as_mut().filter(|next| next.untold) {
            next.untold = false;
            next.conductor.prepare(&mut self.host);
        }
    }

    /// The card may have another address, other limits, than what is prepared was made for.
    fn prepare_anew(&mut self, now: Instant) {
        let Some(Running { job, mut conductor, .. }) = self.prepared.take() else { return };
        conductor.unprepare(&mut self.host);
        let Some(batch) = conductor.into_payload() else {
            self.core.finish::<H::Payload>(job, Err(BlockError::BadRun), None, now);
            return;
        };
        self.prepared = Some(self.conversation(job, batch));
    }

    /// Starts the first chore that is due. False: there is none.
    fn begin_chore(&mut self, now: Instant) -> bool {
        // A batch that the host keeps comes back by `reclaim`.
        if !self.spare.iter().any(Option::is_some) {
            return false;
        }
        let Some((task, chore)) = self.core.next_chore(&mut self.minder, now) else { return false };
        let Some(mut batch) = self.spare() else { return false };
        self.minder.lend_scratch(&mut batch);
        self.chore = Some((task, Conductor::new(chore, Some(batch))));
        true
    }

    fn finish_chore(&mut self, ended: &Ended, batch: Option<H::Payload>, now: Instant) {
        let Some((task, _)) = self.chore.take() else { return };
        match batch {
            Some(mut batch) => {
                self.minder.take_scratch(&mut batch);
                self.put(batch);
            }
            None => self.core.stop(Stopped::Quarantine),
        }
        let host = &mut self.host;
        if self.core.finish_chore(&mut self.minder, task, ended, || host.slot(now), now) {
            self.prepare_anew(now);
        }
        let failed = matches!(ended, Ended::Done(Err(_)));
        if failed && matches!(self.stage, Stage::Farewell(_)) {
            if let Some(agenda) = self.minder.agenda() {
                agenda.clear();
            }
            self.stage = Stage::Left(false);
        }
    }

    /// While a command runs: takes the next one from the scheduler, if there is a second batch. `Some`: when to
    /// try again.
    fn prepare(&mut self, now: Instant) -> Option<Instant> {
        let busy = !self.minder.idle() || self.stage != Stage::Awake;
        if busy || self.prepared.is_some() || self.core.stopped().is_some() || self.loan != Loan::No {
            return None;
        }
        let mut batch = self.spare()?;
        match self.core.next(&mut batch, now) {
            Work::Run(job) => {
                let next = self.conversation(job, batch);
                self.prepared = Some(Running { untold: true, ..next });
                self.tell();
                None
            }
            Work::Wait { at } => {
                self.put(batch);
                at.map(|at| at.max(now + PATIENCE))
            }
            Work::Flush => {
                self.put(batch);
                self.core.flush_next(&mut self.minder, now);
                None
            }
            Work::Idle => {
                self.put(batch);
                None
            }
        }
    }

    /// What runs, and who has or wants the host: the first lines of a [`DiskDump`](crate::DiskDump).
    pub(crate) fn parts(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        writeln!(f, "disk: {:?}, media {:?}, host lent: {:?}", self.stage, self.minder.media, self.loan)?;
        if let Some(keeper) = self.minder.keeper() {
            write!(f, "due:")?;
            let mut due = keeper.agenda;
            while let Some(task) = due.take() {
                write!(f, " {task:?}")?;
            }
            writeln!(f)?;
        }
        if let Some((task, conductor)) = &self.chore {
            writeln!(f, "chore: {task:?}, {:?}", conductor.machine())?;
        }
        for (what, one) in [("running", &self.running), ("prepared", &self.prepared)] {
            if let Some(Running { job, conductor, .. }) = one {
                let run = job.run();
                let (op, requests) = (run.op, run.count);
                write!(f, "{what}: {op:?} {}+{} of {requests} requests, ", run.lba, run.blocks)?;
                writeln!(f, "{:?}", conductor.machine())?;
            }
        }
        Ok(())
    }

    pub(crate) fn spare(&mut self) -> Option<H::Payload> {
        self.spare.iter_mut().find_map(Option::take)
    }
    pub(crate) fn put(&mut self, batch: H::Payload) {
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
        match &mut self.loan {
            Loan::No => self.loan = Loan::Wanted,
            Loan::Evicting { wanted } => *wanted = true,
            Loan::Wanted | Loan::Given => {}
        }
    }
    /// The host, while it is lent; drive it with a [`Conductor`] and no longer than needed.
    pub fn lent(&mut self) -> Option<&mut H> {
        (self.loan == Loan::Given).then_some(&mut self.host)
    }
    /// The host comes back (or is not wanted any more): call [`poll`](Self::poll).
    pub fn give_back(&mut self) {
        match &mut self.loan {
            Loan::Evicting { wanted } => *wanted = false,
            loan => *loan = Loan::No,
        }
    }
    /// Takes the host back from a borrower who left it in the middle of a conversation, or with a card that is not as it
    /// was: ends what runs on it, drops its payload, and identifies the card anew before anything else is sent. A disk that
    /// does not [look after](Self::look_after) its card stops ([`Stopped::Deserted`]). Call [`poll`](Self::poll).
    pub fn evict(&mut self, now: Instant) {
        if self.loan == Loan::Given {
            self.host.abort(now);
            self.loan = Loan::Evicting { wanted: false };
        } else {
            self.give_back();
        }
    }

    /// `Some`: the borrower's operation still runs.
    fn clear_out(&mut self, now: Instant) -> Option<Next> {
        match self.host.poll(now) {
            Progress::Waiting { why, until } => return Some(Next::Wait { why, until }),
            Progress::Done(Completion { payload: Returned::Quarantined, .. }) => {
                self.core.stop(Stopped::Quarantine);
            }
            Progress::Done(_) | Progress::Idle => {}
        }
        drop(self.host.unprepare());
        let wanted = self.loan == Loan::Evicting { wanted: true };
        self.loan = if wanted { Loan::Wanted } else { Loan::No };
        match self.minder.agenda() {
            Some(agenda) => agenda.add(Task::Reset),
            None => self.core.stop(Stopped::Deserted),
        }
        None
    }

    /// The next finished request, in the order in which they finished.
    pub fn take_done(&mut self) -> Option<Done<Buffer<H>>> {
        self.core.take_done()
    }
    /// The result of this request, once; `None` while it is not over.
    pub fn take(&mut self, ticket: Ticket) -> Option<Done<Buffer<H>>> {
        self.core.take(ticket)
    }
    /// Gives a request that waits another class and level: see [`Core::raise`].
    pub fn raise(&mut self, ticket: Ticket, priority: Priority, now: Instant) -> bool {
        self.core.raise(ticket, priority, now)
    }
    /// Nobody wants the result any more; a running command is never stopped for it.
    pub fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<Buffer<H>> {
        self.core.abandon(ticket, now)
    }
    /// Accepts nothing more, ends the running command early and completes everything that is queued with an
    /// error. Goes on with [`poll`](Self::poll) until that says [`Next::Idle`]; the card is left ready where
    /// it obeys.
    pub fn shutdown(&mut self, now: Instant) {
        if self.core.stopped().is_none() && (self.running.is_some() || self.chore.is_some()) {
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
            if let Some(buffer) = self.minder.keep(buffer) {
                give(buffer);
            }
        }
        self.put(batch);
        self.core.resume(Stopped::Quarantine);
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

impl<H, St, P, T, O> Disk<H, Queue<St, P>, T, O>
where
    H: Host,
    H::Payload: Batch,
    St: AsRef<[Slot]> + AsMut<[Slot]> + Send,
    P: Policy,
    T: AsRef<[Tag<Buffer<H>>]> + AsMut<[Tag<Buffer<H>>]>,
    O: Observer,
{
    /// Puts another policy in charge while requests are queued, as `echo bfq > …/scheduler` does, and gives the old one
    /// back. None of them is lost, doubled or reordered beyond what the new policy does.
    pub fn replace_policy(&mut self, policy: P, now: Instant) -> P {
        self.core.replace_policy(policy, now)
    }
}

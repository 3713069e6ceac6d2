//! Many tasks on one disk: one future drives it, and each request is a future.

use crate::core::{Abandoned, Limits, SECTOR, Wipe};
use crate::disk::{Disk, Next};
use crate::error::{Refusal, Refused, Stopped};
use crate::front::blocking::{Failed, Failure};
use crate::front::converse::Guest;
use crate::observer::Observer;
use crate::tag::{Done, Tag, Ticket};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use mmc_hal::{Batch, Payload};
use mmc_proto::host::Host;
use mmc_sched::{Flags, Op, Request, Scheduler, StreamId};
use mmc_time::Instant;

/// How the system tells time and wakes the one task that drives the disk.
pub trait Env {
    /// The present instant; never goes back.
    fn now(&self) -> Instant;
    /// From now on, and instead of what was armed before: wake `waker` at each interrupt of the host, and at `until`
    /// ([`Instant::NEVER`]: not by time); at once if `until` has passed. Waking more often does no harm.
    fn arm(&self, waker: &Waker, until: Instant);
}

/// Exclusive access to the disk, from any task: a critical section, a spin lock, a mutex. Held for as long as one
/// [`Disk::poll`] takes, never while something is awaited or a waker is called.
pub trait Lock {
    /// The disk inside.
    type Disk: AnyDisk;
    /// The storage of its wakers.
    type Watches: AsMut<[Watch]>;
    /// Calls `f` with what is inside, alone.
    fn with<R>(&self, f: impl FnOnce(&mut Async<Self::Disk, Self::Watches>) -> R) -> R;
}

/// A [`Disk`] of any host, scheduler, table and observer, as fronts and adapters use it.
pub trait AnyDisk {
    /// One request's buffer.
    type Buffer: Payload;
    /// [`Disk::submit`].
    ///
    /// # Errors
    /// [`Refused`]: all of it comes back.
    fn submit(
        &mut self,
        request: Request,
        buffer: Self::Buffer,
        now: Instant,
    ) -> Result<Ticket, Refused<Self::Buffer>>;
    /// [`Disk::submit_bare`].
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal>;
    /// [`Disk::submit_wipe`].
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal>;
    /// [`Disk::poll`].
    fn poll(&mut self, now: Instant) -> Next;
    /// [`Disk::take`].
    fn take(&mut self, ticket: Ticket) -> Option<Done<Self::Buffer>>;
    /// [`Disk::take_done`].
    fn take_done(&mut self) -> Option<Done<Self::Buffer>>;
    /// [`Disk::abandon`].
    fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<Self::Buffer>;
    /// [`Disk::shutdown`].
    fn shutdown(&mut self, now: Instant);
    /// Whether the request is finished, or unknown (taken, abandoned, reaped).
    fn is_over(&self, ticket: Ticket) -> bool;
    /// A request that finished before `before` and was not taken.
    fn forgotten(&self, before: Instant) -> Option<Ticket>;
    /// Places of the table of accepted requests.
    fn places(&self) -> usize;
    /// Why it has stopped, if it has.
    fn stopped(&self) -> Option<Stopped>;
    /// Sectors of the card.
    fn blocks(&self) -> u64;
    /// The longest request.
    fn limits(&self) -> Limits;
}

/// A disk with a host of its own, which it lends.
pub trait Lends: AnyDisk {
    /// What it sends its commands with.
    type Host: Host<Payload: Batch<Buffer = Self::Buffer>>;
    /// [`Disk::ask_for_host`].
    fn ask_for_host(&mut self);
    /// [`Disk::lent`].
    fn lent(&mut self) -> Option<&mut Self::Host>;
    /// [`Disk::give_back`].
    fn give_back(&mut self);
    /// [`Disk::evict`].
    fn evict(&mut self, now: Instant);
}

impl<H, S, T, O, B> Lends for Disk<H, S, T, O>
where
    H: Host,
    H::Payload: Batch<Buffer = B>,
    B: Payload,
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    O: Observer,
{
    type Host = H;
    fn ask_for_host(&mut self) {
        Disk::ask_for_host(self);
    }
    fn lent(&mut self) -> Option<&mut H> {
        Disk::lent(self)
    }
    fn give_back(&mut self) {
        Disk::give_back(self);
    }
    fn evict(&mut self, now: Instant) {
        Disk::evict(self, now);
    }
}

impl<H, S, T, O, B> AnyDisk for Disk<H, S, T, O>
where
    H: Host,
    H::Payload: Batch<Buffer = B>,
    B: Payload,
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    O: Observer,
{
    type Buffer = B;
    fn submit(&mut self, request: Request, buffer: B, now: Instant) -> Result<Ticket, Refused<B>> {
        Disk::submit(self, request, buffer, now)
    }
    fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal> {
        Disk::submit_bare(self, request, now)
    }
    fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        Disk::submit_wipe(self, request, how, now)
    }
    fn poll(&mut self, now: Instant) -> Next {
        Disk::poll(self, now)
    }
    fn take(&mut self, ticket: Ticket) -> Option<Done<B>> {
        Disk::take(self, ticket)
    }
    fn take_done(&mut self) -> Option<Done<B>> {
        Disk::take_done(self)
    }
    fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<B> {
        Disk::abandon(self, ticket, now)
    }
    fn shutdown(&mut self, now: Instant) {
        Disk::shutdown(self, now);
    }
    fn is_over(&self, ticket: Ticket) -> bool {
        self.core().table.is_over(ticket)
    }
    fn forgotten(&self, before: Instant) -> Option<Ticket> {
        self.core().table.forgotten(before)
    }
    fn places(&self) -> usize {
        self.core().table.len()
    }
    fn stopped(&self) -> Option<Stopped> {
        self.core().stopped()
    }
    fn blocks(&self) -> u64 {
        self.core().card().blocks
    }
    fn limits(&self) -> Limits {
        self.core().limits
    }
}

/// Storage for the waker of one accepted request: make as many as the disk has [`Tag`]s, with
/// `[const { Watch::new() }; N]` or a `Vec` of [`Watch::new`].
#[derive(Debug, Default)]
pub struct Watch(Option<(Ticket, Waker)>);

impl Watch {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }
}

/// Fewer places for wakers than for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{watches} places for wakers on a disk of {tags} tags: give it at least {tags}")]
pub struct TooFewWatches {
    /// Places for wakers.
    pub watches: usize,
    /// Places for requests.
    pub tags: usize,
}

/// A disk and those who wait for it: what is inside of the [`Lock`].
///
/// It is no executor and needs none in particular: only `core::task`. One task awaits the [`Runner`]; any number of
/// others submit with a [`Handle`] and await what comes of it ([`InFlight`]). The system gives two things: what time it is
/// and how to be woken ([`Env`]), and exclusive access ([`Lock`]).
///
/// **Cancelling** is dropping: an [`InFlight`] that is dropped withdraws its request if that is still queued on its own, and
/// leaves it to be carried out otherwise; its buffer is dropped either way, and nobody else's request is touched.
/// `mem::forget` of one is sound, too: the request is carried out, and its place in the table is kept until
/// [`Handle::reap`]. The [`Runner`] may be dropped at any time; nothing is served until another one is awaited.
pub struct Async<D, W> {
    pub(super) disk: D,
    watches: W,
    pub(super) runner: Option<Waker>,
    /// Who holds a conversation of its own with the card, or waits to.
    pub(super) guest: Option<Guest>,
    pub(super) guests: u32,
}

impl<D, W> core::fmt::Debug for Async<D, W>
where
    D: core::fmt::Debug,
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Async").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl<D: AnyDisk, W: AsMut<[Watch]>> Async<D, W> {
    /// A disk for many tasks; `watches` has at least as many places as the disk has tags. A full table refuses
    /// ([`Refusal::TableFull`]): give the disk as many tags as there may be requests at once.
    ///
    /// # Errors
    /// [`TooFewWatches`]; both are dropped.
    pub fn new(disk: D, mut watches: W) -> Result<Self, TooFewWatches> {
        let (places, tags) = (watches.as_mut().len(), disk.places());
        if places < tags {
            return Err(TooFewWatches { watches: places, tags });
        }
        Ok(Self { disk, watches, runner: None, guest: None, guests: 0 })
    }
    /// The disk, when no task needs it any more.
    pub fn into_disk(self) -> D {
        self.disk
    }

    fn watch(&mut self, ticket: Ticket, waker: Waker) -> Option<(Ticket, Waker)> {
        self.watches.as_mut().get_mut(ticket.index())?.0.replace((ticket, waker))
    }
    /// Its place may be another request's by now.
    fn unwatch(&mut self, ticket: Ticket) -> Option<(Ticket, Waker)> {
        self.watches.as_mut().get_mut(ticket.index())?.0.take_if(|(t, _)| *t == ticket)
    }
    /// Takes the wakers of those whose request is over, from place `from` on; `Some`: there may be more from there on.
    fn collect(&mut self, from: usize, ready: &mut [Option<Waker>]) -> Option<usize> {
        let mut free = ready.iter_mut();
        for (i, watch) in self.watches.as_mut().iter_mut().enumerate().skip(from) {
            if watch.0.as_ref().is_some_and(|(ticket, _)| self.disk.is_over(*ticket)) {
                let Some(place) = free.next() else { return Some(i) };
                *place = watch.0.take().map(|(_, waker)| waker);
            }
        }
        None
    }
}

/// A way to the disk for one task; copy it freely.
pub struct Handle<'d, L, E> {
    pub(super) lock: &'d L,
    pub(super) env: &'d E,
}

impl<L, E> Clone for Handle<'_, L, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<L, E> Copy for Handle<'_, L, E> {}

impl<L, E> core::fmt::Debug for Handle<'_, L, E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

pub(super) type BufferOf<L> = <<L as Lock>::Disk as AnyDisk>::Buffer;

impl<'d, L: Lock, E: Env> Handle<'d, L, E> {
    /// A way to the disk in `lock`.
    pub const fn new(lock: &'d L, env: &'d E) -> Self {
        Self { lock, env }
    }
    /// The future that drives the disk: await it in a task of its own. Of several the one that was polled last is woken.
    pub const fn runner(&self) -> Runner<'d, L, E> {
        Runner { handle: *self }
    }
    /// Calls `f` with the disk, alone, and lets the [`Runner`] look at what came of it.
    pub fn with<R>(&self, f: impl FnOnce(&mut L::Disk, Instant) -> R) -> R {
        let now = self.env.now();
        let (result, runner) = self.lock.with(|a| (f(&mut a.disk, now), a.runner.take()));
        if let Some(runner) = runner {
            runner.wake();
        }
        result
    }
    /// Accepts a read or a write; it goes on whether or not the future is polled.
    ///
    /// # Errors
    /// [`Refused`]: request and buffer come back and nothing was queued.
    pub fn submit(
        &self,
        request: Request,
        buffer: BufferOf<L>,
    ) -> Result<InFlight<'d, L, E>, Refused<BufferOf<L>>> {
        let ticket = self.with(|disk, now| disk.submit(request, buffer, now))?;
        Ok(InFlight { handle: *self, ticket: Some(ticket) })
    }
    /// Accepts a flush, a discard or a write-zeroes.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    pub fn submit_bare(&self, request: Request) -> Result<InFlight<'d, L, E>, Refusal> {
        let ticket = self.with(|disk, now| disk.submit_bare(request, now))?;
        Ok(InFlight { handle: *self, ticket: Some(ticket) })
    }

    /// Accepts a discard that is carried out as `how`: see [`Disk::submit_wipe`].
    ///
    /// # Errors
    /// [`Refusal`]; nothing was queued.
    pub fn submit_wipe(&self, request: Request, how: Wipe) -> Result<InFlight<'d, L, E>, Refusal> {
        let ticket = self.with(|disk, now| disk.submit_wipe(request, how, now))?;
        Ok(InFlight { handle: *self, ticket: Some(ticket) })
    }

    /// Reads whole sectors from `lba` on into `buffer`, as many as it is long.
    ///
    /// # Errors
    /// [`Failed`].
    pub async fn read(&self, lba: u64, buffer: BufferOf<L>) -> Result<BufferOf<L>, Failed<BufferOf<L>>> {
        self.run(Op::Read, Flags::empty(), lba, buffer).await
    }
    /// Writes whole sectors from `lba` on, as many as `buffer` is long.
    ///
    /// # Errors
    /// [`Failed`].
    pub async fn write(&self, lba: u64, buffer: BufferOf<L>) -> Result<BufferOf<L>, Failed<BufferOf<L>>> {
        self.run(Op::Write, Flags::SYNC, lba, buffer).await
    }
    /// Every write that completed before is stored for good when it returns.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn flush(&self) -> Result<(), Failure> {
        let mut request = Request::new(Op::Write, 0, 0, StreamId::default());
        request.flags = Flags::PREFLUSH;
        self.run_bare(request, None).await
    }
    /// Nothing that is written after it returns is stored before what was written before: cheaper than a
    /// [`flush`](Self::flush), where the card has barriers.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn barrier(&self) -> Result<(), Failure> {
        let mut request = Request::new(Op::Write, 0, 0, StreamId::default());
        request.flags = Flags::BARRIER;
        self.run_bare(request, None).await
    }
    /// Tells the card that `blocks` sectors from `lba` on are not needed any more; what they hold then is anybody's guess.
    ///
    /// # Errors
    /// [`Failure`]; [`Refusal::Unsupported`] where the card cannot.
    pub async fn discard(&self, lba: u64, blocks: u32) -> Result<(), Failure> {
        self.run_bare(Request::new(Op::Discard, lba, blocks, StreamId::default()), None).await
    }
    /// Makes `blocks` sectors from `lba` on read as zero without sending zeroes.
    ///
    /// # Errors
    /// [`Failure`]; [`Refusal::Unsupported`] where the card cannot: write zeroes then.
    pub async fn write_zeroes(&self, lba: u64, blocks: u32) -> Result<(), Failure> {
        self.run_bare(Request::new(Op::WriteZeroes, lba, blocks, StreamId::default()), None).await
    }
    /// Empties `blocks` sectors from `lba` on for good (of a [`Wipe::Sanitize`]: what was erased before, of the whole card):
    /// see [`Disk::submit_wipe`].
    ///
    /// # Errors
    /// [`Failure`]; [`Refusal::NotOffered`] where the card cannot.
    pub async fn wipe(&self, how: Wipe, lba: u64, blocks: u32) -> Result<(), Failure> {
        self.run_bare(Request::new(Op::Discard, lba, blocks, StreamId::default()), Some(how)).await
    }

    async fn run_bare(&self, request: Request, how: Option<Wipe>) -> Result<(), Failure> {
        let submitted = match how {
            Some(how) => self.submit_wipe(request, how),
            None => self.submit_bare(request),
        };
        let done = submitted.map_err(Failure::Refused)?.await;
        done.map_err(|Gone| Failure::Lost)?.result.map_err(Failure::Failed)
    }

    async fn run(
        &self,
        op: Op,
        flags: Flags,
        lba: u64,
        buffer: BufferOf<L>,
    ) -> Result<BufferOf<L>, Failed<BufferOf<L>>> {
        let blocks = u32::try_from(buffer.bytes().div_ceil(SECTOR)).unwrap_or(u32::MAX);
        let mut request = Request::new(op, lba, blocks, StreamId::default());
        request.flags = flags;
        let flight = match self.submit(request, buffer) {
            Ok(flight) => flight,
            Err(r) => return Err(Failed { error: Failure::Refused(r.error), buffer: Some(r.buffer) }),
        };
        match flight.await {
            Ok(Done { result: Ok(()), buffer: Some(buffer), .. }) => Ok(buffer),
            Ok(Done { result: Err(e), buffer, .. }) => Err(Failed { error: Failure::Failed(e), buffer }),
            Ok(Done { buffer: None, .. }) | Err(Gone) => Err(Failed { error: Failure::Lost, buffer: None }),
        }
    }

    /// Gives back the places of requests that were over before `before` and whose result nobody has taken: those whose
    /// future was forgotten (`mem::forget`), or whose task has not run since. Their buffers are dropped, and a future that
    /// does come for such a result gets [`Gone`]. How many they were.
    pub fn reap(&self, before: Instant) -> usize {
        let places = self.lock.with(|a| a.disk.places());
        // What is abandoned is dropped outside of the lock.
        let one = |_: &usize| {
            self.with(|disk, now| disk.forgotten(before).map(|ticket| disk.abandon(ticket, now))).is_some()
        };
        let reaped = (0..places).take_while(one).count();
        self.notify();
        reaped
    }

    /// Wakes those whose request is over, outside of the lock.
    pub(super) fn notify(&self) {
        let mut from = Some(0);
        while let Some(at) = from {
            let mut ready = [const { None }; 8];
            from = self.lock.with(|a| a.collect(at, &mut ready));
            ready.into_iter().flatten().for_each(Waker::wake);
        }
    }
}

/// Drives the disk as long as it is awaited: sends commands, takes results, wakes who waits for them. Over when the disk
/// was shut down ([`AnyDisk::shutdown`], [`Disk::prepare_power_off`]) and nothing runs any more.
///
/// While the host is lent ([`Next::Lent`]) it wakes whom it is lent to ([`Handle::converse`]), and takes it back when that
/// takes too long; a host that was lent otherwise it leaves alone until [`Handle::with`] gives it back.
#[must_use = "nothing is served unless the runner is awaited"]
pub struct Runner<'d, L, E> {
    handle: Handle<'d, L, E>,
}

impl<L, E> core::fmt::Debug for Runner<'_, L, E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

impl<L: Lock<Disk: Lends>, E: Env> Future for Runner<'_, L, E> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Handle { lock, env } = self.handle;
        // Armed before it looks: an interrupt between looking and arming would be lost.
        env.arm(cx.waker(), Instant::NEVER);
        let (now, waker) = (env.now(), cx.waker().clone());
        let (next, guest, stopped, old) = lock.with(|a| {
            let old = a.runner.replace(waker);
            let (next, guest) = a.host_guest(now);
            (next, guest, a.disk.stopped(), old)
        });
        drop(old);
        self.handle.notify();
        if let Next::Wait { until, .. } = next {
            env.arm(cx.waker(), until);
        }
        // It arms what it waits for itself: after us.
        if let Some(guest) = guest {
            guest.wake();
        }
        let over = next == Next::Idle && matches!(stopped, Some(Stopped::Shutdown | Stopped::PowerOff));
        if over { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The result was given back to the table before somebody came for it ([`Handle::reap`]), or was taken already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result was taken or reaped")]
pub struct Gone;

/// An accepted request, and what comes of it. Dropping it cancels (see the module); polling it with another waker moves
/// it to that task.
#[must_use = "a request whose future is dropped may be withdrawn"]
pub struct InFlight<'d, L: Lock, E: Env> {
    handle: Handle<'d, L, E>,
    /// `None`: its result was taken.
    ticket: Option<Ticket>,
}

impl<L: Lock, E: Env> InFlight<'_, L, E> {
    /// The request's name, while its result was not taken.
    pub const fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

impl<L: Lock, E: Env> core::fmt::Debug for InFlight<'_, L, E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InFlight").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl<L: Lock, E: Env> Future for InFlight<'_, L, E> {
    type Output = Result<Done<BufferOf<L>>, Gone>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ticket) = self.ticket else { return Poll::Ready(Err(Gone)) };
        let waker = cx.waker().clone();
        // Looked and registered in one breath; the old waker is dropped outside of the lock.
        let (result, _old) = self.handle.lock.with(|a| {
            if !a.disk.is_over(ticket) {
                return (Poll::Pending, a.watch(ticket, waker));
            }
            let done = a.disk.take(ticket).ok_or(Gone);
            (Poll::Ready(done), a.unwatch(ticket))
        });
        if result.is_ready() {
            self.ticket = None;
        }
        result
    }
}

impl<L: Lock, E: Env> Drop for InFlight<'_, L, E> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let now = self.handle.env.now();
        let (_left, _old, runner) =
            self.handle.lock.with(|a| (a.disk.abandon(ticket, now), a.unwatch(ticket), a.runner.take()));
        // Who waited for its tag or for its sectors may go on.
        if let Some(runner) = runner {
            runner.wake();
        }
    }
}

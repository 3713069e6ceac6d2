//! A disk whose bus is awaited, not polled: an async SPI bus, a foreign card bus.
//!
//! A [`Host`](mmc_proto::host::Host) is polled, and the future of such a bus cannot be kept in one. So the one future that
//! serves the disk ([`serve`]) holds the conversations itself; for all the others nothing is different: they have the same
//! [`Handle`], and await the same [`InFlight`](crate::InFlight).

use crate::care::{Care, Chore, Ended, Media, Task};
use crate::core::{Abandoned, Core, Job, Limits, Wipe, Work};
use crate::disk::Next;
use crate::error::{BlockError, Refusal, Refused, Stopped};
use crate::exchange::{Answer, Exchange, map};
use crate::front::async_front::{AnyDisk, Env, Handle, Lock};
use crate::minder::Minder;
use crate::observer::Observer;
use crate::tag::{Done, Tag, Ticket};
use core::future::poll_fn;
use core::task::Poll;
use mmc_hal::{Batch, Payload};
use mmc_proto::host::{Capabilities, HostError, Reply, Slot};
use mmc_proto::machine::{Identified, Machine, Step};
use mmc_sched::{Request, Scheduler};
use mmc_time::Instant;

/// A [`Core`] for [`Async`](crate::Async), without a host of its own: [`serve`] it.
///
/// By itself it reads, writes, and sends again ([`Settings::retries`](crate::Settings::retries)). With
/// [`look_after`](Self::look_after) it looks after its card as a [`Disk`](crate::Disk) does, but for sleep and power-off, and
/// for what it cannot see: whoever sees the slot tells it ([`tell_slot`](Self::tell_slot)). Reach it through
/// [`Handle::with`].
pub struct Served<S: Scheduler, T, B, O = ()> {
    core: Core<S, T, B, O>,
    minder: Minder<B>,
    /// As it was told last.
    slot: Slot,
}

impl<S: Scheduler, T, B, O> core::fmt::Debug for Served<S, T, B, O> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Served").field("core", &self.core).field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl<S: Scheduler, T, B: Payload, O> Served<S, T, B, O> {
    /// Of a core for an identified card.
    pub fn new(core: Core<S, T, B, O>) -> Self {
        Self { core, minder: Minder::new(Capabilities::new()), slot: Slot::default() }
    }
    /// The core, to look at.
    pub const fn core(&self) -> &Core<S, T, B, O> {
        &self.core
    }
    /// What became of the card in the slot.
    pub const fn media(&self) -> Media {
        self.minder.media
    }
    /// The card in the slot as it was identified last, if the disk [looks after](Self::look_after) it.
    pub fn card(&self) -> Option<&Identified> {
        self.minder.card()
    }
    /// Tries to identify what is in the slot, where nobody tells that a card has come.
    pub fn look_again(&mut self) {
        self.minder.look_again();
    }
}

impl<S, T, B, O> Served<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// From now on the disk looks after its card: see [`Disk::look_after`](crate::Disk::look_after). `caps` is what the bus can
    /// do, `slot` what the slot shows.
    ///
    /// # Errors
    /// The scratch buffer comes back when it is too small.
    pub fn look_after(
        &mut self,
        card: Identified,
        scratch: B,
        care: Care,
        caps: &Capabilities,
        slot: Slot,
    ) -> Result<(), B> {
        (self.minder.caps, self.slot) = (*caps, slot);
        self.core.look_after(&mut self.minder, card, scratch, care, &slot)
    }
    /// What the slot shows now, from whoever sees it (a card-detect interrupt): at once when a card has left, so that requests
    /// do not wait for it.
    pub fn tell_slot(&mut self, slot: Slot, now: Instant) {
        self.slot = slot;
        self.core.look_at_slot(&mut self.minder, &slot, now);
    }
    /// Serves the card that [`Media::New`] speaks of; requests are accepted again. False: there is none.
    pub fn accept_media(&mut self) -> bool {
        self.core.accept_media(&mut self.minder)
    }
}

impl<S, T, B, O> AnyDisk for Served<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    type Buffer = B;
    fn submit(&mut self, request: Request, buffer: B, now: Instant) -> Result<Ticket, Refused<B>> {
        self.core.submit(request, buffer, now)
    }
    fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal> {
        self.core.submit_bare(request, now)
    }
    fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        self.core.submit_wipe(request, how, now)
    }
    /// Nothing: [`serve`] drives it.
    fn poll(&mut self, _: Instant) -> Next {
        Next::Idle
    }
    fn take(&mut self, ticket: Ticket) -> Option<Done<B>> {
        self.core.take(ticket)
    }
    fn take_done(&mut self) -> Option<Done<B>> {
        self.core.take_done()
    }
    fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<B> {
        self.core.abandon(ticket, now)
    }
    /// The command that runs goes on to its end.
    fn shutdown(&mut self, _: Instant) {
        self.core.stop(Stopped::Shutdown);
    }
    fn is_over(&self, ticket: Ticket) -> bool {
        self.core.table.is_over(ticket)
    }
    fn forgotten(&self, before: Instant) -> Option<Ticket> {
        self.core.table.forgotten(before)
    }
    fn places(&self) -> usize {
        self.core.table.len()
    }
    fn stopped(&self) -> Option<Stopped> {
        self.core.stopped()
    }
    fn blocks(&self) -> u64 {
        self.core.card().blocks
    }
    fn limits(&self) -> Limits {
        self.core.limits
    }
}

/// One conversation with the card, as [`serve`] has it held: a command of the disk, or what looking after the card takes.
#[derive(Clone, Copy, Debug)]
pub struct Conversation(Talk);

#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and there is one of it")]
enum Talk {
    Exchange(Exchange),
    Chore(Chore),
}

/// How a [`Conversation`] ended.
#[derive(Debug)]
pub struct Outcome(Heard);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and there is one of it")]
enum Heard {
    Answer(Answer),
    Ended(Ended),
}

impl Machine for Conversation {
    type Output = Outcome;

    fn scratch(&self) -> bool {
        match &self.0 {
            Talk::Exchange(m) => m.scratch(),
            Talk::Chore(m) => m.scratch(),
        }
    }
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Outcome> {
        match &mut self.0 {
            Talk::Exchange(m) => map(m.next(last, scratch, now), |answer| Outcome(Heard::Answer(answer))),
            Talk::Chore(m) => map(m.next(last, scratch, now), |ended| Outcome(Heard::Ended(ended))),
        }
    }
}

/// Serves `disk` as long as it is awaited: in place of its [`Runner`](crate::Runner). `batch` is empty; `hold` holds one
/// conversation over the bus, with the batch's data: `mmc_spi::drive`, or an adapter's. Over when the disk was shut down and
/// nothing runs any more; a disk that does not look after its card also when it has stopped for another reason.
///
/// Dropped halfway, the request of its command fails ([`Stopped::Deserted`]); if there were several in one command, each is
/// sent again on its own, as after any error, by whoever serves next. And what the card was doing the next
/// conversation has to stop, as `mmc_spi::drive` does; then it can be called again. It must not be forgotten
/// (`mem::forget`) halfway: the requests of that command would never end.
pub async fn serve<L, E, S, T, O, P>(
    disk: Handle<'_, L, E>,
    batch: &mut P,
    mut hold: impl AsyncFnMut(&mut Conversation, &mut P) -> Outcome,
) where
    L: Lock<Disk = Served<S, T, P::Buffer, O>>,
    E: Env,
    S: Scheduler,
    T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
    P: Batch,
    O: Observer,
{
    while let Some((what, talk)) = next(&disk, batch).await {
        let mut running = Running { disk: &disk, what: Some(what), batch };
        let Outcome(heard) = hold(&mut Conversation(talk), running.batch).await;
        running.end(Some(heard));
    }
}

/// What a conversation is for.
enum What {
    Job(Job),
    Chore(Task),
}

/// What is next.
#[allow(clippy::large_enum_variant, reason = "no allocator, and it is taken apart at once")]
enum Found {
    Talk(What, Talk),
    /// Nothing before this instant, unless something comes in.
    Wait(Instant),
    Over,
}

impl<S, T, B, O> Served<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    fn next<P: Batch<Buffer = B>>(&mut self, batch: &mut P, now: Instant) -> Found {
        let wait = |at: Option<Instant>| Found::Wait(at.unwrap_or(Instant::NEVER));
        // Each turn but the last begins a flush, or ends one that asks for nothing.
        loop {
            if self.core.stopped().is_some() {
                if let Work::Wait { at } = self.core.drain(now) {
                    return wait(at);
                }
            }
            if self.slot.retune && self.core.tune_first(&mut self.minder, false) {
                self.slot.retune = false;
            }
            if let Some((task, chore)) = self.core.next_chore(&mut self.minder, now) {
                self.minder.lend_scratch(batch);
                return Found::Talk(What::Chore(task), Talk::Chore(chore));
            }
            match self.core.stopped() {
                // A card may come.
                Some(why) if self.minder.cares() && why != Stopped::Shutdown => return wait(None),
                Some(_) => return Found::Over,
                None => {}
            }
            match self.core.next(batch, now) {
                Work::Run(job) => {
                    self.core.started(&job, now);
                    let exchange = self.core.exchange(&self.minder, &job);
                    return Found::Talk(What::Job(job), Talk::Exchange(exchange));
                }
                Work::Flush => self.core.flush_next(&mut self.minder, now),
                Work::Wait { at } => return wait(at),
                Work::Idle => return wait(None),
            }
        }
    }

    /// `None`: it was left halfway.
    fn end<P: Batch<Buffer = B>>(&mut self, what: What, heard: Option<Heard>, batch: &mut P, now: Instant) {
        let deserted = BlockError::Stopped(Stopped::Deserted);
        match (what, heard) {
            (What::Job(job), heard) => {
                let answer = match heard {
                    Some(Heard::Answer(answer)) => answer,
                    _ => Err(deserted).into(),
                };
                self.core.finish_minded(&mut self.minder, job, answer, Some(batch), now);
            }
            (What::Chore(task), Some(Heard::Ended(ended))) => {
                self.minder.take_scratch(batch);
                self.core.finish_chore(&mut self.minder, task, &ended, || self.slot, now);
            }
            (What::Chore(task), _) => {
                self.minder.take_scratch(batch);
                if task == Task::Flush {
                    self.core.finish_flush(Err(deserted), now);
                }
                if let Some(agenda) = self.minder.agenda() {
                    agenda.add(Task::Reset);
                }
            }
        }
    }
}

/// The next conversation; `None`: there will be none.
async fn next<L, E, S, T, O, P>(disk: &Handle<'_, L, E>, batch: &mut P) -> Option<(What, Talk)>
where
    L: Lock<Disk = Served<S, T, P::Buffer, O>>,
    E: Env,
    S: Scheduler,
    T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
    P: Batch,
    O: Observer,
{
    poll_fn(|cx| {
        // Armed before it looks.
        disk.env.arm(cx.waker(), Instant::NEVER);
        let (now, waker) = (disk.env.now(), cx.waker().clone());
        let (found, _old) = disk.lock.with(|a| {
            let old = a.runner.replace(waker);
            let found = a.disk.next(batch, now);
            if let Found::Wait(at) = &found {
                disk.env.arm(cx.waker(), *at);
            }
            (found, old)
        });
        disk.notify();
        match found {
            Found::Talk(what, talk) => Poll::Ready(Some((what, talk))),
            Found::Wait(_) => Poll::Pending,
            Found::Over => Poll::Ready(None),
        }
    })
    .await
}

/// A conversation on its way; dropped with its future, the requests of its command fail or are sent again.
struct Running<'a, 'd, L, E, P, S, T, O>
where
    L: Lock<Disk = Served<S, T, P::Buffer, O>>,
    E: Env,
    S: Scheduler,
    T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
    P: Batch,
    O: Observer,
{
    disk: &'a Handle<'d, L, E>,
    what: Option<What>,
    batch: &'a mut P,
}

impl<L, E, P, S, T, O> Running<'_, '_, L, E, P, S, T, O>
where
    L: Lock<Disk = Served<S, T, P::Buffer, O>>,
    E: Env,
    S: Scheduler,
    T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
    P: Batch,
    O: Observer,
{
    fn end(&mut self, heard: Option<Heard>) {
        let Some(what) = self.what.take() else { return };
        let now = self.disk.env.now();
        let batch = &mut *self.batch;
        self.disk.lock.with(|a| a.disk.end(what, heard, batch, now));
        self.disk.notify();
    }
}

impl<L, E, P, S, T, O> Drop for Running<'_, '_, L, E, P, S, T, O>
where
    L: Lock<Disk = Served<S, T, P::Buffer, O>>,
    E: Env,
    S: Scheduler,
    T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
    P: Batch,
    O: Observer,
{
    fn drop(&mut self) {
        self.end(None);
    }
}

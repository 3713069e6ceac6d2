//! A disk whose bus is awaited, not polled: an async SPI bus, a foreign card bus.
//!
//! A [`Host`](mmc_proto::host::Host) is polled, and the future of such a bus cannot be kept in one. So the one future that
//! serves the disk ([`serve`]) holds the conversations itself; for all the others nothing is different: they have the same
//! [`Handle`], and await the same [`InFlight`](crate::InFlight).

use crate::core::{Abandoned, Core, Job, Limits, Wipe, Work};
use crate::disk::Next;
use crate::error::{BlockError, Refusal, Refused, Stopped};
use crate::exchange::{Answer, Exchange};
use crate::front::async_front::{AnyDisk, Env, Handle, Lock};
use crate::observer::Observer;
use crate::tag::{Done, Tag, Ticket};
use core::future::poll_fn;
use core::task::Poll;
use mmc_hal::{Batch, Payload};
use mmc_sched::{Request, Scheduler};
use mmc_time::Instant;

/// A [`Core`] for [`Async`](crate::Async), without a host of its own: [`serve`] it.
///
/// It reads, writes, and sends again ([`Settings::retries`](crate::Settings::retries)); it does not look after its card.
#[derive(Debug)]
pub struct Served<S: Scheduler, T, B, O = ()>(Core<S, T, B, O>);

impl<S: Scheduler, T, B, O> Served<S, T, B, O> {
    /// Of a core for an identified card.
    pub const fn new(core: Core<S, T, B, O>) -> Self {
        Self(core)
    }
    /// The core, to look at.
    pub const fn core(&self) -> &Core<S, T, B, O> {
        &self.0
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
        self.0.submit(request, buffer, now)
    }
    fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal> {
        self.0.submit_bare(request, now)
    }
    fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        self.0.submit_wipe(request, how, now)
    }
    /// Nothing: [`serve`] drives it.
    fn poll(&mut self, _: Instant) -> Next {
        Next::Idle
    }
    fn take(&mut self, ticket: Ticket) -> Option<Done<B>> {
        self.0.take(ticket)
    }
    fn take_done(&mut self) -> Option<Done<B>> {
        self.0.take_done()
    }
    fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<B> {
        self.0.abandon(ticket, now)
    }
    /// The command that runs goes on to its end.
    fn shutdown(&mut self, _: Instant) {
        self.0.stop(Stopped::Shutdown);
    }
    fn is_over(&self, ticket: Ticket) -> bool {
        self.0.table.is_over(ticket)
    }
    fn forgotten(&self, before: Instant) -> Option<Ticket> {
        self.0.table.forgotten(before)
    }
    fn places(&self) -> usize {
        self.0.table.len()
    }
    fn stopped(&self) -> Option<Stopped> {
        self.0.stopped()
    }
    fn blocks(&self) -> u64 {
        self.0.card().blocks
    }
    fn limits(&self) -> Limits {
        self.0.limits
    }
}

/// Serves `disk` as long as it is awaited: in place of its [`Runner`](crate::Runner). `batch` is empty; `hold` holds one
/// conversation over the bus, with the batch's data: `mmc_spi::drive`, or an adapter's. Over when the disk was shut down and
/// nothing runs any more.
///
/// Dropped halfway, the request of its command fails ([`Stopped::Deserted`]); if there were several in one command, each is
/// sent again on its own, as after any error, by whoever serves next. And what the card was doing the next
/// conversation has to stop, as `mmc_spi::drive` does; then it can be called again. It must not be forgotten
/// (`mem::forget`) halfway: the requests of that command would never end.
pub async fn serve<L, E, S, T, O, P>(
    disk: Handle<'_, L, E>,
    batch: &mut P,
    mut hold: impl AsyncFnMut(&mut Exchange, &mut P) -> Answer,
) where
    L: Lock<Disk = Served<S, T, P::Buffer, O>>,
    E: Env,
    S: Scheduler,
    T: AsRef<[Tag<P::Buffer>]> + AsMut<[Tag<P::Buffer>]>,
    P: Batch,
    O: Observer,
{
    while let Some((job, mut exchange)) = next(&disk, batch).await {
        let mut running = Running { disk: &disk, job: Some(job), batch };
        let answer = hold(&mut exchange, running.batch).await;
        running.end(answer);
    }
}

/// The next command; `None`: there will be none.
async fn next<L, E, S, T, O, P>(disk: &Handle<'_, L, E>, batch: &mut P) -> Option<(Job, Exchange)>
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
            let core = &mut a.disk.0;
            loop {
                let found = match core.next(batch, now) {
                    Work::Run(job) => {
                        let exchange = core.start(&job, now);
                        Poll::Ready(Some((job, exchange)))
                    }
                    Work::Flush => {
                        // Nobody has switched a cache on.
                        core.finish_flush(Ok(()), now);
                        continue;
                    }
                    Work::Wait { at } => {
                        disk.env.arm(cx.waker(), at.unwrap_or(Instant::NEVER));
                        Poll::Pending
                    }
                    Work::Idle if core.stopped().is_some() => Poll::Ready(None),
                    Work::Idle => Poll::Pending,
                };
                return (found, old);
            }
        });
        disk.notify();
        found
    })
    .await
}

/// A command on its way; dropped with its future, its requests fail or are sent again.
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
    job: Option<Job>,
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
    fn end(&mut self, answer: impl Into<Answer>) {
        let Some(job) = self.job.take() else { return };
        let now = self.disk.env.now();
        let batch = &mut *self.batch;
        self.disk.lock.with(|a| a.disk.0.finish(job, answer, Some(batch), now));
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
        self.end(Err(BlockError::Stopped(Stopped::Deserted)));
    }
}

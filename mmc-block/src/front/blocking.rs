//! One request at a time: submit, wait, take.

use crate::bring_up::{Init, Up};
use crate::core::Wipe;
use crate::disk::{Disk, Next};
use crate::error::{BlockError, Refusal};
use crate::front::async_front::AnyDisk;
use crate::observer::Observer;
use crate::partition::InPartition;
use crate::tag::{Done, Tag, Ticket};
use mmc_hal::{Batch, Dir, Payload};
use mmc_proto::host::Host;
use mmc_proto::machine::{Conductor, Identified, IdentifyError, Machine, Partition, Turn};
use mmc_sched::{Flags, Op, Request, Scheduler, StreamId};
use mmc_time::Instant;

/// How the caller's system tells time and waits.
pub trait Idle {
    /// The present instant; never goes back.
    fn now(&mut self) -> Instant;
    /// Returns at `until` at the latest, or earlier: after an interrupt of the host, or whenever. Without an
    /// interrupt to end it, do not wait for the whole time: look again every few microseconds.
    fn wait(&mut self, until: Instant);
}

impl<I: Idle + ?Sized> Idle for &mut I {
    fn now(&mut self) -> Instant {
        (**self).now()
    }
    fn wait(&mut self, until: Instant) {
        (**self).wait(until);
    }
}

/// Waits with `idle` until `init` is over: the card, and the batch and the scratch buffer unless the host had
/// to keep them.
pub fn identify<H>(
    host: &mut H,
    init: &mut Init<H::Payload>,
    idle: &mut impl Idle,
) -> (Result<Identified, IdentifyError>, Option<Parts<H>>)
where
    H: Host + ?Sized,
    H::Payload: Batch,
{
    loop {
        match init.poll(host, idle.now()) {
            Up::Wait { until, .. } => idle.wait(until),
            Up::Done { card, parts } => return (card, parts),
        }
    }
}

/// The empty batch and the scratch buffer.
type Parts<H> = (<H as Host>::Payload, <<H as Host>::Payload as Batch>::Buffer);

/// Why a blocking call failed, with the buffer unless the host had to keep it.
pub struct Failed<B> {
    /// Refused at the door, or failed on the way.
    pub error: Failure,
    /// The caller's buffer.
    pub buffer: Option<B>,
}

/// Where a blocking call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing was queued.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// It was accepted, and failed.
    #[error(transparent)]
    Failed(BlockError),
    /// The disk has nothing to do and yet no result: a fault of its scheduler.
    #[error("the scheduler lost the request")]
    Lost,
}

impl<B> core::fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Failed").field("error", &self.error).finish_non_exhaustive()
    }
}

/// A disk that is waited for. Other requests may be in it; they go on meanwhile.
#[derive(Debug)]
pub struct Blocking<D, I> {
    disk: D,
    idle: I,
}

impl<D, I> Blocking<D, I> {
    /// Waits for `disk` with `idle`.
    pub const fn new(disk: D, idle: I) -> Self {
        Self { disk, idle }
    }
    /// The disk, to submit and poll directly.
    pub const fn disk(&mut self) -> &mut D {
        &mut self.disk
    }
    /// Both parts.
    pub fn into_parts(self) -> (D, I) {
        (self.disk, self.idle)
    }
}

impl<D: AnyDisk, I: Idle> Blocking<D, I> {
    /// Reads whole sectors from `lba` on into `buffer`, as many as it is long.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn read(&mut self, lba: u64, buffer: D::Buffer) -> Result<D::Buffer, Failed<D::Buffer>> {
        self.run(Op::Read, Flags::empty(), lba, buffer)
    }
    /// Writes whole sectors from `lba` on, as many as `buffer` is long; they are stored when it returns.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn write(&mut self, lba: u64, buffer: D::Buffer) -> Result<D::Buffer, Failed<D::Buffer>> {
        self.run(Op::Write, Flags::SYNC, lba, buffer)
    }

    /// Returns when all that was written before is durable: at once where the card has no volatile cache.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        let mut request = Request::new(Op::Write, 0, 0, StreamId::default());
        request.flags = Flags::PREFLUSH;
        self.run_bare(request)
    }
    /// Nothing that is written after it returns is stored before what was written before: cheaper than a
    /// [`flush`](Self::flush), where the card has barriers.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn barrier(&mut self) -> Result<(), Failure> {
        let mut request = Request::new(Op::Write, 0, 0, StreamId::default());
        request.flags = Flags::BARRIER;
        self.run_bare(request)
    }
    /// Tells the card that `blocks` sectors from `lba` on are not needed any more; what they hold then is anybody's
    /// guess.
    ///
    /// # Errors
    /// [`Failure`]; [`Refusal::Unsupported`] where the card cannot.
    pub fn discard(&mut self, lba: u64, blocks: u32) -> Result<(), Failure> {
        self.run_bare(Request::new(Op::Discard, lba, blocks, StreamId::default()))
    }
    /// Makes `blocks` sectors from `lba` on read as zero without sending zeroes.
    ///
    /// # Errors
    /// [`Failure`]; [`Refusal::Unsupported`] where the card cannot: write zeroes then.
    pub fn write_zeroes(&mut self, lba: u64, blocks: u32) -> Result<(), Failure> {
        self.run_bare(Request::new(Op::WriteZeroes, lba, blocks, StreamId::default()))
    }
    /// Empties `blocks` sectors from `lba` on for good (of a [`Wipe::Sanitize`]: what was erased before, of the whole card):
    /// see [`Disk::submit_wipe`]. Seconds to minutes.
    ///
    /// # Errors
    /// [`Failure`]; [`Refusal::NotOffered`] where the card cannot.
    pub fn wipe(&mut self, how: Wipe, lba: u64, blocks: u32) -> Result<(), Failure> {
        let request = Request::new(Op::Discard, lba, blocks, StreamId::default());
        let ticket = self.disk.submit_wipe(request, how, self.idle.now()).map_err(Failure::Refused)?;
        self.finish_bare(ticket)
    }

    fn run(
        &mut self,
        op: Op,
        flags: Flags,
        lba: u64,
        buffer: D::Buffer,
    ) -> Result<D::Buffer, Failed<D::Buffer>> {
        let blocks = u32::try_from(buffer.bytes().div_ceil(crate::SECTOR)).unwrap_or(u32::MAX);
        let mut request = Request::new(op, lba, blocks, StreamId::default());
        request.flags = flags;
        let ticket = match self.disk.submit(request, buffer, self.idle.now()) {
            Ok(ticket) => ticket,
            Err(r) => return Err(Failed { error: Failure::Refused(r.error), buffer: Some(r.buffer) }),
        };
        match self.wait_for(ticket).map(|done| (done.result, done.buffer)) {
            Some((Ok(()), Some(buffer))) => Ok(buffer),
            Some((Err(e), buffer)) => Err(Failed { error: Failure::Failed(e), buffer }),
            Some((Ok(()), None)) | None => Err(Failed { error: Failure::Lost, buffer: None }),
        }
    }

    fn run_bare(&mut self, request: Request) -> Result<(), Failure> {
        let ticket = self.disk.submit_bare(request, self.idle.now()).map_err(Failure::Refused)?;
        self.finish_bare(ticket)
    }

    fn finish_bare(&mut self, ticket: Ticket) -> Result<(), Failure> {
        self.wait_for(ticket).ok_or(Failure::Lost)?.result.map_err(Failure::Failed)
    }

    /// Until this request is over; `None`: the disk has nothing to do, and yet it is not.
    fn wait_for(&mut self, ticket: Ticket) -> Option<Done<D::Buffer>> {
        loop {
            let next = self.disk.poll(self.idle.now());
            if let Some(done) = self.disk.take(ticket) {
                return Some(done);
            }
            match next {
                Next::Wait { until, .. } => self.idle.wait(until),
                Next::Idle | Next::Lent => return None,
            }
        }
    }
}

impl<H, S, T, O, I, B> Blocking<Disk<H, S, T, O>, I>
where
    H: Host,
    H::Payload: Batch<Buffer = B>,
    B: Payload,
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    O: Observer,
    I: Idle,
{
    /// Holds a conversation of the caller's own with the card, between two commands of other requests (see
    /// [`Disk::ask_for_host`]); `payload` as [`Conductor::new`] wants it.
    pub fn converse<M: Machine>(
        &mut self,
        machine: M,
        payload: Option<H::Payload>,
    ) -> (M::Output, Option<H::Payload>) {
        let (output, payload) = self.hold(Conductor::new(machine, payload));
        self.disk.give_back();
        (output, payload)
    }

    /// As [`converse`](Self::converse); the host stays lent.
    fn hold<M: Machine>(
        &mut self,
        mut conductor: Conductor<M, H::Payload>,
    ) -> (M::Output, Option<H::Payload>) {
        self.disk.ask_for_host();
        loop {
            let now = self.idle.now();
            let until = match (self.disk.poll(now), self.disk.lent()) {
                (_, Some(host)) => match conductor.poll(host, now) {
                    Turn::Wait { until, .. } => until,
                    Turn::Done(output, payload) => return (output, payload),
                },
                (Next::Wait { until, .. }, None) => until,
                (Next::Idle | Next::Lent, None) => now,
            };
            self.idle.wait(until);
        }
    }

    /// As [`converse`](Self::converse) in another partition; where nobody knows afterwards which is selected, the card is
    /// identified anew.
    pub fn converse_in<M: Machine>(
        &mut self,
        machine: InPartition<M>,
        payload: Option<H::Payload>,
    ) -> (Result<M::Output, BlockError>, Option<H::Payload>) {
        let (result, payload) = self.hold(Conductor::new(machine, payload));
        match result {
            Err(BlockError::Partition(_)) => self.disk.evict(self.idle.now()),
            _ => self.disk.give_back(),
        }
        (result, payload)
    }

    /// Reads sectors of another partition of an eMMC from `lba` on into `buffer`, between two commands of other requests.
    /// The disk must [look after](Disk::look_after) its card; `batch` is empty, with room for one buffer, and comes back
    /// unless the host had to keep it.
    ///
    /// # Errors
    /// [`Failed`]: refused with the reasons of [`InPartition::transfer`], or as the card says.
    pub fn read_partition(
        &mut self,
        partition: Partition,
        lba: u64,
        buffer: B,
        batch: &mut Option<H::Payload>,
    ) -> Result<B, Failed<B>> {
        self.in_partition(partition, Dir::Read, lba, buffer, batch)
    }
    /// Writes sectors of another partition of an eMMC: as [`read_partition`](Self::read_partition). They are stored when it
    /// returns, but for the card's cache, if that is on.
    ///
    /// # Errors
    /// [`Failed`].
    pub fn write_partition(
        &mut self,
        partition: Partition,
        lba: u64,
        buffer: B,
        batch: &mut Option<H::Payload>,
    ) -> Result<B, Failed<B>> {
        self.in_partition(partition, Dir::Write, lba, buffer, batch)
    }

    fn in_partition(
        &mut self,
        partition: Partition,
        dir: Dir,
        lba: u64,
        buffer: B,
        batch: &mut Option<H::Payload>,
    ) -> Result<B, Failed<B>> {
        let bytes = buffer.bytes();
        let refused = |error, buffer| Err(Failed { error: Failure::Refused(error), buffer: Some(buffer) });
        let blocks = u32::try_from(bytes / crate::SECTOR).unwrap_or(u32::MAX);
        let needed = u64::from(blocks).saturating_mul(crate::SECTOR as u64);
        if u64::try_from(bytes) != Ok(needed) {
            return refused(Refusal::BufferLength { bytes, needed }, buffer);
        }
        let Some(card) = self.disk.card() else { return refused(Refusal::NoPartition(partition), buffer) };
        let machine = match InPartition::transfer(card, partition, dir, lba, blocks) {
            Ok(machine) => machine,
            Err(error) => return refused(error, buffer),
        };
        let Some(mut payload) = batch.take() else { return refused(Refusal::NoBatch, buffer) };
        let pushed = payload.push(buffer, 0, bytes);
        if let Err(buffer) = pushed {
            *batch = Some(payload);
            return refused(Refusal::NoBatch, buffer);
        }
        let (result, payload) = self.converse_in(machine, Some(payload));
        let result = result.and_then(|moved| moved.map_err(BlockError::Transfer));
        let buffer = payload.and_then(|mut payload| {
            let buffer = payload.pop();
            *batch = Some(payload);
            buffer
        });
        match (result, buffer) {
            (Ok(_), Some(buffer)) => Ok(buffer),
            (Ok(_), None) => Err(Failed { error: Failure::Lost, buffer: None }),
            (Err(e), buffer) => Err(Failed { error: Failure::Failed(e), buffer }),
        }
    }
}

/// An [`Idle`] of nothing but a delay: polls every `step`, and counts the time it has waited.
///
/// Time spent outside the delays is not seen, so that time limits are reached late, never early.
#[cfg(feature = "embedded-hal")]
#[derive(Debug)]
pub struct DelayIdle<D> {
    delay: D,
    step: mmc_time::Duration,
    now: Instant,
}

#[cfg(feature = "embedded-hal")]
impl<D: embedded_hal::delay::DelayNs> DelayIdle<D> {
    /// Looks again every `step` (at least a nanosecond, at most 4 s; 20 µs is a good start).
    pub fn new(delay: D, step: mmc_time::Duration) -> Self {
        Self { delay, step, now: Instant::ZERO }
    }
}

#[cfg(feature = "embedded-hal")]
impl<D: embedded_hal::delay::DelayNs> Idle for DelayIdle<D> {
    fn now(&mut self) -> Instant {
        self.now
    }
    fn wait(&mut self, until: Instant) {
        let ns = until.since(self.now).min(self.step).as_nanos();
        let ns = u32::try_from(ns).unwrap_or(4_000_000_000).clamp(1, 4_000_000_000);
        self.delay.delay_ns(ns);
        self.now += mmc_time::Duration::from_nanos(ns.into());
    }
}

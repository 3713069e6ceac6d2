//! `rdif-block` 0.13 (the block drivers of rcore-os) over a polled disk: one controller with one queue.
//!
//! That crate's requests own memory that a device may be given ([`PreparedDma`](rdif_block::dma_api::PreparedDma)). To give
//! it to one is `unsafe` there, and its address is of no use to a host whose memory comes from elsewhere. So it is never
//! given away: the processor copies between it and the caller's own buffers (a [`Bounce`]), as in the other adapters. To that
//! crate this queue is a device that sees the processor's caches ([`DmaCoherency::Coherent`]) and any address.

use crate::bounce::{Bounce, Loan, load, unload};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use mmc_block::{AnyDisk, BlockError, Done, Next, Refusal, SECTOR, Ticket};
use mmc_proto::host::{Cause, Irq, IrqHandler};
use mmc_proto::machine::TransferCause;
use mmc_sched::{Flags, Op, Request, StreamId};
use mmc_time::Instant;
use rdif_block::dma_api::{CpuDmaBuffer, DmaCoherency, DmaConstraints, DmaDeviceInfo, DmaDomainId};
use rdif_block::{
    BatchSubmitDisposition, BatchSubmitResult, BlkError, BlockController, CompletedRequest, CompletionSink,
    ControlEvent, ControllerEvent, ControllerState, ControllerUpdate, DeviceInfo, DriverGeneric,
    HardIrqHandler, HardwareQueue, IrqAck, IrqEndpoint, IrqQueueMask, OwnedRequest, OwnedRequestBatch,
    QueueInfo, QueueLimits, RequestFlags, RequestId, RequestOp, SubmissionSink, validate_owned_request,
};

/// The one queue, and the one source of interrupts.
const ID: usize = 0;

/// A part of a request that is in the disk.
struct Part {
    ticket: Ticket,
    /// Where its buffer comes home to; `None`: a flush.
    place: Option<usize>,
    /// Its first byte inside the request.
    at: usize,
}

/// A request on its way.
struct Flight {
    op: RequestOp,
    flags: RequestFlags,
    lba: u64,
    /// The caller's memory.
    memory: Option<CpuDmaBuffer>,
    /// Of a read: what has come, until all of it can be put there.
    data: Vec<u8>,
    /// Bytes of it all, and of those that are or were in the disk.
    bytes: usize,
    sent: usize,
    parts: Vec<Part>,
    /// The first error wins.
    result: Result<(), BlkError>,
}

impl Flight {
    fn new(request: OwnedRequest) -> Self {
        let memory = request.data.map(|data| data.into_cpu_buffer());
        let bytes = memory.as_ref().map_or(0, |m| m.len().get());
        let data = if request.op == RequestOp::Read { vec![0; bytes] } else { Vec::new() };
        let (op, flags, lba) = (request.op, request.flags, request.lba);
        Self { op, flags, lba, memory, data, bytes, sent: 0, parts: Vec::new(), result: Ok(()) }
    }
    /// All of it is in the disk, or nothing more goes there.
    fn is_sent(&self) -> bool {
        let flush = self.op == RequestOp::Flush && self.sent == 0;
        self.result.is_err() || (self.sent >= self.bytes && !flush)
    }
    fn is_over(&self) -> bool {
        self.parts.is_empty() && self.is_sent()
    }
    fn fail(&mut self, error: BlkError) {
        self.result = self.result.and(Err(error));
    }
    fn end(mut self, id: usize) -> CompletedRequest {
        if let (Some(memory), Ok(()), RequestOp::Read) = (&mut self.memory, self.result, self.op) {
            memory.copy_from_slice_cpu(&self.data);
        }
        let data = self.memory.map(|m| m.prepare_for_device().complete_without_device());
        CompletedRequest::new(RequestId::new(id), self.result, data)
    }
}

/// The queue: requests in, parts of them into the disk, results back.
///
/// A request of any length that the disk takes goes in parts of the buffers there are, in the order of submission; parts that
/// touch merge in the scheduler. It allocates: that crate does.
///
/// **Who polls.** The runtime drains it after an interrupt. [`HardwareQueue::register_retry_after`] says how long the disk
/// waits at most: for a host without interrupts, for the card's limits, for the scheduler's own waits; then it wants
/// [`HardwareQueue::advance_register_retry`].
pub struct RdifQueue<D: AnyDisk, S, F> {
    disk: D,
    bounce: Bounce<S, D::Buffer>,
    now: F,
    flights: Vec<Option<Flight>>,
    /// Requests that are not in the disk with all their parts, oldest first.
    order: VecDeque<usize>,
    /// The last look, and when it wants another.
    seen: Instant,
    until: Option<Instant>,
}

impl<D: AnyDisk, S, F> core::fmt::Debug for RdifQueue<D, S, F> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RdifQueue").field("flights", &self.flights.len()).finish_non_exhaustive()
    }
}

impl<D, S, F> RdifQueue<D, S, F>
where
    D: AnyDisk,
    S: AsMut<[Option<D::Buffer>]>,
    F: FnMut() -> Instant,
{
    /// A queue of `depth` requests (at least one) over a disk that nobody else uses; `now` is the clock of its driver.
    pub fn new(disk: D, bounce: Bounce<S, D::Buffer>, depth: usize, now: F) -> Self {
        let flights = (0..depth.max(1)).map(|_| None).collect();
        let seen = Instant::ZERO;
        Self { disk, bounce, now, flights, order: VecDeque::new(), seen, until: None }
    }

    fn look(&self) -> QueueInfo {
        let device = DeviceInfo::new(self.disk.blocks(), SECTOR);
        let depth = self.flights.len();
        QueueInfo { id: ID, device, limits: limits(self.disk.limits().max_blocks, depth) }
    }

    /// Puts into the disk what fits, in the order of submission: a later request never gets there before all of an earlier
    /// one, so that the disk keeps their order where they overlap.
    fn pump(&mut self, now: Instant) {
        while let Some(id) = self.order.front().copied() {
            let busy = self.flights.iter().flatten().any(|f| !f.parts.is_empty());
            let Some(Some(flight)) = self.flights.get_mut(id) else {
                self.order.pop_front();
                continue;
            };
            while !flight.is_sent() {
                if !put(&mut self.disk, &mut self.bounce, flight, busy, now) {
                    return;
                }
            }
            self.order.pop_front();
        }
    }

    /// Looks at the disk: when it wants to be looked at again.
    fn poll(&mut self, now: Instant) {
        self.seen = now;
        self.until = match self.disk.poll(now) {
            Next::Wait { until, .. } => Some(until),
            Next::Idle | Next::Lent => None,
        };
    }

    /// As far as possible without waiting.
    fn go_on(&mut self, sink: &mut dyn CompletionSink) {
        let now = (self.now)();
        // Each turn but the last takes results away; as many as there are places can be over at once.
        for _ in 0..self.disk.places().saturating_add(1) {
            self.pump(now);
            self.poll(now);
            let mut any = false;
            while let Some(done) = self.disk.take_done() {
                self.take(done);
                any = true;
            }
            if !any {
                break;
            }
        }
        for (id, place) in self.flights.iter_mut().enumerate() {
            if let Some(flight) = place.take_if(|f| f.is_over()) {
                self.order.retain(|waiting| *waiting != id);
                sink.complete(flight.end(id));
            }
        }
    }

    fn take(&mut self, done: Done<D::Buffer>) {
        let of = |f: &Flight| f.parts.iter().position(|p| p.ticket == done.ticket);
        let found = self.flights.iter_mut().flatten().find_map(|f| of(f).map(|i| (i, f)));
        let Some((i, flight)) = found else { return };
        let part = flight.parts.swap_remove(i);
        if let Err(e) = &done.result {
            flight.fail(translate(e));
        }
        let Some(place) = part.place else { return };
        if let (Some(buffer), RequestOp::Read, Ok(())) = (&done.buffer, flight.op, &done.result) {
            let len = usize::try_from(done.request.blocks).unwrap_or(usize::MAX).saturating_mul(SECTOR);
            if let Some(to) = flight.data.get_mut(part.at..part.at.saturating_add(len)) {
                unload(buffer, 0, to);
            }
        }
        self.bounce.put(place, done.buffer);
    }
}

/// The next part of `flight` into `disk`, in which something is already if `busy`. False: nothing fits now, and something
/// that is there will end.
fn put<D: AnyDisk, S: AsMut<[Option<D::Buffer>]>>(
    disk: &mut D,
    bounce: &mut Bounce<S, D::Buffer>,
    flight: &mut Flight,
    busy: bool,
    now: Instant,
) -> bool {
    let first = flight.sent == 0;
    let mut flags = Flags::empty();
    flags.set(Flags::FUA, flight.flags.contains(RequestFlags::FUA) && flight.op == RequestOp::Write);
    let before = flight.flags.contains(RequestFlags::PREFLUSH) && flight.op == RequestOp::Write;
    flags.set(Flags::PREFLUSH, first && (before || flight.op == RequestOp::Flush));
    let (submitted, place, bytes) = match flight.op {
        RequestOp::Flush => {
            let request = Request { flags, ..Request::new(Op::Write, 0, 0, StreamId::default()) };
            (disk.submit_bare(request, now), None, 1)
        }
        RequestOp::Read | RequestOp::Write => {
            let left = flight.bytes.saturating_sub(flight.sent) / SECTOR;
            let most = u64::from(disk.limits().max_blocks).min(left as u64);
            let Some(Loan { place, sectors, mut buffer }) = bounce.take(most) else {
                // They are in the disk, or with the host for good.
                if !busy && flight.parts.is_empty() {
                    flight.fail(BlkError::NoMemory);
                }
                return flight.result.is_err();
            };
            let bytes = sectors.saturating_mul(SECTOR);
            let end = flight.sent.saturating_add(bytes);
            let op = if flight.op == RequestOp::Read { Op::Read } else { Op::Write };
            if let (Op::Write, Some(memory)) = (op, &flight.memory) {
                if let Some(from) = memory.as_slice_cpu().get(flight.sent..end) {
                    load(&mut buffer, 0, from);
                }
                flags.insert(Flags::SYNC);
            }
            let lba = flight.lba.saturating_add((flight.sent / SECTOR) as u64);
            let blocks = u32::try_from(sectors).unwrap_or(u32::MAX);
            let request = Request { flags, ..Request::new(op, lba, blocks, StreamId::default()) };
            let submitted = disk.submit(request, buffer, now).map_err(|refused| {
                bounce.put(place, Some(refused.buffer));
                refused.error
            });
            (submitted, Some(place), bytes)
        }
    };
    match submitted {
        Ok(ticket) => {
            flight.parts.push(Part { ticket, place, at: flight.sent });
            flight.sent = flight.sent.saturating_add(bytes);
            true
        }
        Err(Refusal::TableFull) => false,
        Err(why) => {
            flight.fail(refused(&why));
            true
        }
    }
}

fn limits(max_blocks: u32, depth: usize) -> QueueLimits {
    let dma = DmaDeviceInfo::new(DmaDomainId::Direct, DmaCoherency::Coherent, DmaConstraints::new(u64::MAX));
    QueueLimits {
        dma,
        dma_length_alignment: SECTOR,
        max_inflight: depth,
        max_submit_batch: depth,
        max_blocks_per_request: max_blocks,
        max_segments: 1,
        supported_flags: RequestFlags::FUA | RequestFlags::PREFLUSH,
        supports_flush: true,
    }
}

fn translate(e: &BlockError) -> BlkError {
    match e {
        BlockError::Transfer(t) | BlockError::Quarantined(t) => match t.cause {
            TransferCause::Host(h) if matches!(h.cause, Cause::Timeout | Cause::Limit) => BlkError::TimedOut,
            TransferCause::NotReady => BlkError::TimedOut,
            _ => BlkError::Io,
        },
        BlockError::Stopped(_) => BlkError::Other("the disk has stopped"),
        _ => BlkError::Io,
    }
}

fn refused(why: &Refusal) -> BlkError {
    match why {
        Refusal::OutOfRange { lba, .. } => BlkError::InvalidBlockIndex(*lba),
        Refusal::Unsupported(_) => BlkError::NotSupported,
        Refusal::Stopped(_) => BlkError::Other("the disk has stopped"),
        _ => BlkError::InvalidRequest,
    }
}

impl<D, S, F> HardwareQueue for RdifQueue<D, S, F>
where
    D: AnyDisk + Send + 'static,
    D::Buffer: Send,
    S: AsMut<[Option<D::Buffer>]> + Send + 'static,
    F: FnMut() -> Instant + Send + 'static,
{
    fn id(&self) -> usize {
        ID
    }
    fn info(&self) -> QueueInfo {
        self.look()
    }
    /// A request that makes no sense is accepted, and completed with its error by the next drain.
    fn submit_batch_owned(
        &mut self,
        requests: &mut OwnedRequestBatch,
        sink: &mut dyn SubmissionSink,
    ) -> BatchSubmitResult {
        let info = self.look();
        let mut accepted = 0_usize;
        while !requests.is_empty() {
            let Some(id) = self.flights.iter().position(Option::is_none) else {
                return BatchSubmitResult::new(accepted, BatchSubmitDisposition::QueueFull);
            };
            let Some(request) = requests.pop_front() else { break };
            let valid = validate_owned_request(info, &request);
            let mut flight = Flight::new(request);
            flight.result = valid;
            if let Some(place) = self.flights.get_mut(id) {
                *place = Some(flight);
                self.order.push_back(id);
                sink.accepted(RequestId::new(id));
                accepted = accepted.saturating_add(1);
            }
        }
        BatchSubmitResult::new(accepted, BatchSubmitDisposition::Continue)
    }
    fn commit_submissions(&mut self) -> Result<(), BlkError> {
        let now = (self.now)();
        self.pump(now);
        self.poll(now);
        // What is over already is told as soon as may be.
        if self.until.is_none() || self.flights.iter().flatten().any(Flight::is_over) {
            self.until = self.flights.iter().any(Option::is_some).then_some(now);
        }
        Ok(())
    }
    fn drain_completions(&mut self, sink: &mut dyn CompletionSink) -> Result<(), BlkError> {
        self.go_on(sink);
        Ok(())
    }
    fn register_retry_after(&self) -> Option<core::time::Duration> {
        // The instant is that of the last look: later than it when this is asked, so that the wait is never too short.
        let until = self.until.filter(|until| !until.is_never())?;
        Some(core::time::Duration::from_nanos(until.since(self.seen).as_nanos()))
    }
    fn advance_register_retry(&mut self, sink: &mut dyn CompletionSink) -> Result<(), BlkError> {
        self.go_on(sink);
        Ok(())
    }
    /// Ends all requests at once with an error: no device ever had their memory. An error says that the host is still at
    /// work with the disk's own buffers: keep the queue and call again after [`HardwareQueue::register_retry_after`].
    fn shutdown(&mut self, sink: &mut dyn CompletionSink) -> Result<(), BlkError> {
        let now = (self.now)();
        self.disk.shutdown(now);
        self.go_on(sink);
        for (id, place) in self.flights.iter_mut().enumerate() {
            if let Some(mut flight) = place.take() {
                flight.fail(BlkError::Other("the disk was shut down"));
                sink.complete(flight.end(id));
            }
        }
        self.order.clear();
        if self.until.is_some() { Err(BlkError::Retry) } else { Ok(()) }
    }
}

/// The interrupt half of a host as that crate's.
struct Hard<I>(I);

impl<I: IrqHandler + 'static> HardIrqHandler for Hard<I> {
    fn ack(&mut self) -> IrqAck {
        let event = ControlEvent::new(ID, 0);
        match self.0.handle() {
            Irq::NotMine => IrqAck::spurious(ID),
            Irq::Handled => IrqAck::cleared(IrqQueueMask::none(), event),
            Irq::Wake => IrqAck::cleared(IrqQueueMask::from_queue(ID), event),
        }
    }
}

/// A controller that is up already, with its queue to give away.
pub struct RdifController {
    name: &'static str,
    device: DeviceInfo,
    queue: Option<Box<dyn HardwareQueue>>,
    irq: Option<Box<dyn HardIrqHandler>>,
}

impl core::fmt::Debug for RdifController {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RdifController").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RdifController {
    /// The controller `name` with `queue`. `irq` is the interrupt half of the disk's host, if it has one: without it the
    /// queue lives by its retries alone.
    pub fn new<D, S, F, I>(name: &'static str, queue: RdifQueue<D, S, F>, irq: Option<I>) -> Self
    where
        D: AnyDisk + Send + 'static,
        D::Buffer: Send,
        S: AsMut<[Option<D::Buffer>]> + Send + 'static,
        F: FnMut() -> Instant + Send + 'static,
        I: IrqHandler + 'static,
    {
        let device = queue.look().device;
        let irq = irq.map(|irq| Box::new(Hard(irq)) as Box<dyn HardIrqHandler>);
        Self { name, device, queue: Some(Box::new(queue)), irq }
    }
}

impl DriverGeneric for RdifController {
    fn name(&self) -> &str {
        self.name
    }
}

impl BlockController for RdifController {
    fn device_info(&self) -> DeviceInfo {
        self.device
    }
    fn max_io_queues(&self) -> usize {
        1
    }
    fn advance(&mut self, event: ControllerEvent) -> Result<ControllerUpdate, BlkError> {
        match event {
            ControllerEvent::Start { target_queues: 0 } => Err(BlkError::InvalidRequest),
            ControllerEvent::Start { .. } => {
                let queue = self.queue.take().ok_or(BlkError::Other("started already"))?;
                let mask = IrqQueueMask::from_queue(ID);
                let irq = self.irq.take().map(|handler| IrqEndpoint::new(ID, mask, handler));
                let (queues, irqs) = (vec![queue], irq.into_iter().collect());
                let update = ControllerUpdate::with_resources(ControllerState::Ready, queues, irqs);
                Ok(update.with_device_info(self.device))
            }
            ControllerEvent::Shutdown => Ok(ControllerUpdate::state(ControllerState::Shutdown)),
            // The queue has all the state there is; its watchdog is in the disk.
            ControllerEvent::RegisterRetry
            | ControllerEvent::Irq(_)
            | ControllerEvent::OnlineSmp { .. }
            | ControllerEvent::Rearm { .. }
            | ControllerEvent::QuiesceIrqs
            | ControllerEvent::Watchdog { .. } => Ok(ControllerUpdate::state(ControllerState::Ready)),
        }
    }
}

//! `rdif-block` over a polled disk.

use crate::{Card, Virtual, buffers, disk, new_card, pattern, stored};
use mmc_adapters::{Bounce, RdifController, RdifQueue};
use mmc_block::{Abandoned, AnyDisk, BlockError, Done, Next, Refusal, Refused, Stopped, Ticket, Wipe};
use mmc_mock::Buf;
use mmc_mock::card::Card as _;
use mmc_proto::host::{Cause, HostError, Irq, IrqHandler, Phase};
use mmc_proto::machine::{After, TransferCause, TransferError, TransferPhase};
use mmc_sched::{Flags, Op, Request};
use mmc_time::Instant;
use proptest::prelude::*;
use rdif_block::dma_api::{
    CpuDmaBuffer, DeviceDma, DmaAddr, DmaAllocHandle, DmaConstraints, DmaDirection, DmaError, DmaMapHandle,
    DmaOp,
};
use rdif_block::{
    BatchSubmitDisposition, BlkError, BlockController, CompletedRequest, CompletionSink, ControllerEvent,
    ControllerState, DriverGeneric, HardwareQueue, IrqDisposition, OwnedRequest, OwnedRequestBatch,
    RequestFlags, RequestId, RequestOp, SubmissionSink,
};
use std::alloc::Layout;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// That system's memory for devices: the heap.
struct Heap;

// SAFETY (of each): the heap's own promises; nothing is ever mapped.
impl DmaOp for Heap {
    fn page_size(&self) -> usize {
        4096
    }
    unsafe fn alloc_contiguous(&self, _: DmaConstraints, layout: Layout) -> Option<DmaAllocHandle> {
        let at = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        let bus = DmaAddr::from(at.as_ptr() as u64);
        Some(unsafe { DmaAllocHandle::new(at, at, bus, layout) })
    }
    unsafe fn dealloc_contiguous(&self, handle: DmaAllocHandle) {
        unsafe { std::alloc::dealloc(handle.as_ptr().as_ptr(), handle.layout()) };
    }
    unsafe fn alloc_coherent(&self, _: DmaConstraints, _: Layout) -> Option<DmaAllocHandle> {
        None
    }
    unsafe fn dealloc_coherent(&self, _: DmaAllocHandle) -> Result<(), DmaError> {
        Ok(())
    }
    unsafe fn map_streaming(
        &self,
        _: DmaConstraints,
        _: NonNull<u8>,
        _: NonZeroUsize,
        _: DmaDirection,
    ) -> Result<DmaMapHandle, DmaError> {
        Err(DmaError::NoMemory)
    }
    unsafe fn unmap_streaming(&self, _: DmaMapHandle) {}
}

type Queue = Box<dyn HardwareQueue>;

/// Which request, how it ended, and what its memory holds.
type Completed = (usize, Result<(), BlkError>, Option<Vec<u8>>);

/// What came back, and what was let in.
#[derive(Default)]
struct Seen {
    accepted: Vec<usize>,
    completed: Vec<Completed>,
}

impl SubmissionSink for Seen {
    fn accepted(&mut self, id: RequestId) {
        self.accepted.push(id.into());
    }
}

impl CompletionSink for Seen {
    fn complete(&mut self, done: CompletedRequest) {
        let data = done.data.map(|d| {
            let mut bytes = vec![0; d.len().get()];
            d.copy_to_slice_cpu(&mut bytes);
            bytes
        });
        self.completed.push((done.id.into(), done.result, data));
    }
}

/// A disk whose words are known: what it was given, and with what it refuses or ends all that come.
struct Told {
    disk: crate::MockDisk,
    says: Says,
}

#[derive(Clone, Default)]
struct Says(Arc<Mutex<Words>>);

#[derive(Default)]
struct Words {
    refuses: Option<Refusal>,
    fails: Option<BlockError>,
    given: Vec<Request>,
}

impl AnyDisk for Told {
    type Buffer = Buf;
    fn submit(&mut self, request: Request, buffer: Buf, now: Instant) -> Result<Ticket, Refused<Buf>> {
        let mut says = self.says.0.lock().unwrap();
        says.given.push(request);
        match says.refuses {
            Some(error) => Err(Refused { error, request, buffer }),
            None => AnyDisk::submit(&mut self.disk, request, buffer, now),
        }
    }
    fn submit_bare(&mut self, request: Request, now: Instant) -> Result<Ticket, Refusal> {
        self.says.0.lock().unwrap().given.push(request);
        AnyDisk::submit_bare(&mut self.disk, request, now)
    }
    fn submit_wipe(&mut self, request: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        AnyDisk::submit_wipe(&mut self.disk, request, how, now)
    }
    fn poll(&mut self, now: Instant) -> Next {
        AnyDisk::poll(&mut self.disk, now)
    }
    fn take(&mut self, ticket: Ticket) -> Option<Done<Buf>> {
        AnyDisk::take(&mut self.disk, ticket)
    }
    fn take_done(&mut self) -> Option<Done<Buf>> {
        let mut done = AnyDisk::take_done(&mut self.disk)?;
        done.result = self.says.0.lock().unwrap().fails.map_or(done.result, Err);
        Some(done)
    }
    fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<Buf> {
        AnyDisk::abandon(&mut self.disk, ticket, now)
    }
    fn shutdown(&mut self, now: Instant) {
        AnyDisk::shutdown(&mut self.disk, now);
    }
    fn is_over(&self, ticket: Ticket) -> bool {
        AnyDisk::is_over(&self.disk, ticket)
    }
    fn forgotten(&self, before: Instant) -> Option<Ticket> {
        AnyDisk::forgotten(&self.disk, before)
    }
    fn places(&self) -> usize {
        AnyDisk::places(&self.disk)
    }
    fn stopped(&self) -> Option<Stopped> {
        AnyDisk::stopped(&self.disk)
    }
    fn blocks(&self) -> u64 {
        AnyDisk::blocks(&self.disk)
    }
    fn limits(&self) -> mmc_block::Limits {
        AnyDisk::limits(&self.disk)
    }
}

/// A queue of 4 over one.
fn told(says: &Says, lengths: &[usize]) -> (Queue, Virtual) {
    let env = Virtual::default();
    let (clock, disk) = (env.clock.clone(), disk(&new_card(), &env));
    let disk = Told { disk, says: says.clone() };
    let queue = RdifQueue::new(disk, Bounce::new(buffers(lengths)).unwrap(), 4, move || clock.now());
    let mut update = RdifController::new("sd", queue, None::<Line>)
        .advance(ControllerEvent::Start { target_queues: 1 })
        .unwrap();
    (update.take_queues().pop().unwrap(), env)
}

fn request(queue: &Queue, op: RequestOp, lba: u64, data: &[u8]) -> OwnedRequest {
    let device = DeviceDma::new(queue.info().limits.dma, &Heap);
    let direction = if op == RequestOp::Read { DmaDirection::FromDevice } else { DmaDirection::ToDevice };
    let memory = NonZeroUsize::new(data.len()).map(|len| {
        let mut memory = CpuDmaBuffer::new_zero(&device, len, 512, direction).unwrap();
        memory.copy_from_slice_cpu(data);
        memory.prepare_for_device()
    });
    let block_count = (data.len() / 512) as u32;
    OwnedRequest { op, lba, block_count, data: memory, flags: RequestFlags::NONE }
}

fn flush(queue: &Queue) -> OwnedRequest {
    request(queue, RequestOp::Flush, 0, &[])
}

/// A started queue of 4 requests over a disk on `card`, with buffers of these lengths.
fn started(card: &Card, lengths: &[usize]) -> (Queue, Virtual) {
    let env = Virtual::default();
    let clock = env.clock.clone();
    let bounce = Bounce::new(buffers(lengths)).unwrap();
    let queue = RdifQueue::new(disk(card, &env), bounce, 4, move || clock.now());
    let mut controller = RdifController::new("sd", queue, None::<Line>);
    assert_eq!((controller.name(), controller.max_io_queues()), ("sd", 1));
    assert_eq!(controller.device_info().num_blocks, 16_777_216);
    let mut update = controller.advance(ControllerEvent::Start { target_queues: 1 }).unwrap();
    assert_eq!(update.controller_state(), ControllerState::Ready);
    assert!(update.take_irq_endpoints().is_empty());
    let again = controller.advance(ControllerEvent::Start { target_queues: 1 });
    assert!(again.is_err(), "there is one queue");
    let down = controller.advance(ControllerEvent::Shutdown).unwrap();
    assert_eq!(down.controller_state(), ControllerState::Shutdown);
    (update.take_queues().pop().unwrap(), env)
}

/// Submits all, in as many batches as it takes, and waits as a runtime without interrupts does.
fn run(queue: &mut Queue, env: &Virtual, requests: Vec<OwnedRequest>) -> Seen {
    let (mut seen, total) = (Seen::default(), requests.len());
    let mut batch: OwnedRequestBatch = requests.into_iter().collect();
    for _ in 0..100_000 {
        if !batch.is_empty() {
            let before = batch.len();
            let result = queue.submit_batch_owned(&mut batch, &mut seen);
            assert_eq!(result.accepted(), before - batch.len());
            let full = result.disposition() == BatchSubmitDisposition::QueueFull;
            assert_eq!(full, !batch.is_empty());
            if result.accepted() > 0 {
                queue.commit_submissions().unwrap();
            }
        }
        if seen.completed.len() == total {
            return seen;
        }
        let wait = queue.register_retry_after().expect("something is on its way");
        env.clock.advance(mmc_time::Duration::from_nanos(wait.as_nanos() as u64));
        // Either call looks.
        if total > 1 {
            queue.drain_completions(&mut seen).unwrap();
        } else {
            queue.advance_register_retry(&mut seen).unwrap();
        }
    }
    panic!("never over");
}

fn one(queue: &mut Queue, env: &Virtual, request: OwnedRequest) -> (Result<(), BlkError>, Option<Vec<u8>>) {
    let (_, result, data) = run(queue, env, vec![request]).completed.pop().unwrap();
    (result, data)
}

#[test]
fn what_is_written_is_on_the_card_and_comes_back_in_parts_of_any_buffers() {
    for lengths in [&[1][..], &[32, 4, 1], &[8, 8, 1, 1]] {
        let card = new_card();
        let (mut queue, env) = started(&card, lengths);
        let info = queue.info();
        assert_eq!((info.device.logical_block_size, info.limits.max_inflight), (512, 4));
        let data = pattern(70 * 512, 3);
        let write = request(&queue, RequestOp::Write, 1000, &data);
        assert_eq!(one(&mut queue, &env, write).0, Ok(()), "{lengths:?}");
        assert_eq!(stored(&card, 512_000, data.len()), data);
        let read = request(&queue, RequestOp::Read, 1000, &vec![0; data.len()]);
        assert_eq!(one(&mut queue, &env, read), (Ok(()), Some(data)), "{lengths:?}");
        assert!(card.violations().is_empty());
    }
}

#[test]
fn requests_in_flight_keep_their_order_and_a_full_queue_leaves_the_rest() {
    let card = new_card();
    let (mut queue, env) = started(&card, &[4, 1, 1]);
    let (a, b) = (pattern(9 * 512, 1), pattern(3 * 512, 2));
    let requests = vec![
        request(&queue, RequestOp::Write, 50, &a),
        request(&queue, RequestOp::Write, 53, &b),
        request(&queue, RequestOp::Read, 50, &[0; 9 * 512]),
        flush(&queue),
        request(&queue, RequestOp::Write, 50, &b),
        request(&queue, RequestOp::Read, 50, &[0; 512]),
    ];
    let seen = run(&mut queue, &env, requests);
    assert_eq!(seen.accepted.len(), 6);
    assert!(seen.completed.iter().all(|(_, result, _)| *result == Ok(())), "{:?}", seen.completed.len());
    let mut expected = a.clone();
    expected[3 * 512..6 * 512].copy_from_slice(&b);
    let reads: Vec<_> = seen.completed.into_iter().filter_map(|(.., d)| d).collect();
    assert!(reads.contains(&expected), "A with B in it");
    assert!(reads.iter().any(|d| d[..] == b[..512]), "B");
}

#[test]
fn flags_go_to_the_disk_and_what_makes_no_sense_comes_back_with_its_memory() {
    let card = new_card();
    let (mut queue, env) = started(&card, &[8, 1]);
    let with = |mut r: OwnedRequest, flags| {
        r.flags = flags;
        r
    };
    let both = RequestFlags::FUA | RequestFlags::PREFLUSH;
    let write = with(request(&queue, RequestOp::Write, 5, &[7; 1024]), both);
    assert_eq!(one(&mut queue, &env, write), (Ok(()), Some(vec![7; 1024])));
    let r = flush(&queue);
    assert_eq!(one(&mut queue, &env, r), (Ok(()), None));

    let last = 16_777_215;
    let short = OwnedRequest { block_count: 3, ..request(&queue, RequestOp::Read, 0, &[0; 1024]) };
    let none = OwnedRequest { block_count: 1, ..request(&queue, RequestOp::Read, 0, &[]) };
    let odd_flush = OwnedRequest { block_count: 1, ..flush(&queue) };
    for (what, r, error, memory) in [
        (
            "beyond the end",
            request(&queue, RequestOp::Read, last, &[0; 1024]),
            BlkError::InvalidBlockIndex(last),
            1024,
        ),
        (
            "far beyond",
            request(&queue, RequestOp::Write, u64::MAX, &[0; 512]),
            BlkError::InvalidBlockIndex(u64::MAX),
            512,
        ),
        ("nothing", request(&queue, RequestOp::Read, 9, &[]), BlkError::InvalidBlockIndex(9), 0),
        ("too little memory", short, BlkError::InvalidRequest, 1024),
        ("no memory", none, BlkError::InvalidRequest, 0),
        ("a flush of blocks", odd_flush, BlkError::InvalidRequest, 0),
    ] {
        let (result, data) = one(&mut queue, &env, r);
        assert_eq!((result, data.map_or(0, |d| d.len())), (Err(error), memory), "{what}");
    }
    // And the queue goes on.
    let read = request(&queue, RequestOp::Read, 5, &[0; 1024]);
    assert_eq!(one(&mut queue, &env, read), (Ok(()), Some(vec![7; 1024])));
}

#[test]
fn a_card_that_is_gone_is_an_error_each_time_and_a_shutdown_gives_all_memory_back() {
    let card = new_card();
    let (mut queue, env) = started(&card, &[8, 1]);
    card.lock().set_present(false);
    for _ in 0..3 {
        let read = request(&queue, RequestOp::Read, 5, &[0; 4096]);
        let (result, data) = one(&mut queue, &env, read);
        assert!(result.is_err() && data.is_some(), "{result:?}");
    }
    card.lock().set_present(true);

    let card = new_card();
    let (mut queue, env) = started(&card, &[8, 1]);
    let (mut seen, mut batch) = (Seen::default(), OwnedRequestBatch::with_capacity(3));
    for i in 0..3 {
        batch.push_back(request(&queue, RequestOp::Write, 100 * i, &[7; 4096]));
    }
    queue.submit_batch_owned(&mut batch, &mut seen);
    queue.commit_submissions().unwrap();
    let mut calls = 1;
    while queue.shutdown(&mut seen).is_err() {
        let wait = queue.register_retry_after().expect("the host is at work");
        env.clock.advance(mmc_time::Duration::from_nanos(wait.as_nanos() as u64));
        calls += 1;
        assert!(calls < 1000);
    }
    assert_eq!(seen.completed.len(), 3);
    for (_, result, data) in &seen.completed {
        assert!(result.is_err() && data.as_ref().is_some_and(|d| d.len() == 4096));
    }
    let late = request(&queue, RequestOp::Read, 5, &[0; 512]);
    assert!(one(&mut queue, &env, late).0.is_err(), "it is down");
}

#[test]
fn each_part_has_the_flags_that_it_needs() {
    let with = |flags, mut r: OwnedRequest| {
        r.flags = flags;
        r
    };
    let (none, fua, before) = (RequestFlags::NONE, RequestFlags::FUA, RequestFlags::PREFLUSH);
    let sync = Flags::SYNC;
    for (op, flags, parts) in [
        (RequestOp::Read, none, vec![(Op::Read, 5, 4, Flags::empty()), (Op::Read, 9, 1, Flags::empty())]),
        (RequestOp::Write, none, vec![(Op::Write, 5, 4, sync), (Op::Write, 9, 1, sync)]),
        (
            RequestOp::Write,
            fua,
            vec![(Op::Write, 5, 4, sync | Flags::FUA), (Op::Write, 9, 1, sync | Flags::FUA)],
        ),
        // What was written before is stored once, before the first part.
        (RequestOp::Write, before, vec![(Op::Write, 5, 4, sync | Flags::PREFLUSH), (Op::Write, 9, 1, sync)]),
        // Both flags are of writes.
        (
            RequestOp::Read,
            fua | before,
            vec![(Op::Read, 5, 4, Flags::empty()), (Op::Read, 9, 1, Flags::empty())],
        ),
        (RequestOp::Flush, none, vec![(Op::Write, 0, 0, Flags::PREFLUSH)]),
    ] {
        let says = Says::default();
        let (mut queue, env) = told(&says, &[4, 1]);
        let data = if op == RequestOp::Flush { vec![] } else { vec![7; 5 * 512] };
        let lba = if op == RequestOp::Flush { 0 } else { 5 };
        let asked = with(flags, request(&queue, op, lba, &data));
        let (end, back) = one(&mut queue, &env, asked);
        assert_eq!(end, Ok(()));
        assert_eq!(back.map_or(0, |b| b.len()), data.len());
        let seen: Vec<_> =
            says.0.lock().unwrap().given.iter().map(|r| (r.op, r.lba, r.blocks, r.flags)).collect();
        assert_eq!(seen, parts, "{op:?}, {flags:?}");
    }
}

#[test]
fn every_refusal_and_error_of_the_disk_is_one_of_theirs() {
    let gone = BlkError::Other("the disk has stopped");
    for (refusal, expected) in [
        (Refusal::OutOfRange { lba: 9, blocks: 1, capacity: 5 }, BlkError::InvalidBlockIndex(9)),
        (Refusal::Unsupported(Op::Write), BlkError::NotSupported),
        (Refusal::Stopped(Stopped::NoMedia), gone),
        (Refusal::Empty, BlkError::InvalidRequest),
        (Refusal::Unaligned { lba: 1, blocks: 1, unit: 8 }, BlkError::InvalidRequest),
    ] {
        let says = Says::default();
        says.0.lock().unwrap().refuses = Some(refusal);
        let (mut queue, env) = told(&says, &[1]);
        let write = request(&queue, RequestOp::Write, 5, &[7; 1024]);
        assert_eq!(one(&mut queue, &env, write), (Err(expected), Some(vec![7; 1024])), "{refusal}");
        // The buffer is there again.
        says.0.lock().unwrap().refuses = None;
        let write = request(&queue, RequestOp::Write, 5, &[7; 1024]);
        assert_eq!(one(&mut queue, &env, write).0, Ok(()), "{refusal}");
    }
    let transfer = |cause| {
        let (phase, after) = (TransferPhase::Data, After::Ready);
        TransferError { cause, phase, status: None, done: 0, after }
    };
    let host = |cause| transfer(TransferCause::Host(HostError::new(cause, Phase::Data, 17)));
    for (error, expected) in [
        (BlockError::Transfer(host(Cause::Timeout)), BlkError::TimedOut),
        (BlockError::Transfer(host(Cause::Limit)), BlkError::TimedOut),
        (BlockError::Quarantined(host(Cause::Limit)), BlkError::TimedOut),
        (BlockError::Transfer(transfer(TransferCause::NotReady)), BlkError::TimedOut),
        (BlockError::Transfer(host(Cause::Crc)), BlkError::Io),
        (BlockError::Transfer(transfer(TransferCause::Card)), BlkError::Io),
        (BlockError::Quarantined(host(Cause::Dma)), BlkError::Io),
        (BlockError::Stopped(Stopped::MediaChanged), gone),
        (BlockError::CacheLost, BlkError::Io),
    ] {
        let says = Says::default();
        says.0.lock().unwrap().fails = Some(error);
        let (mut queue, env) = told(&says, &[1]);
        let read = request(&queue, RequestOp::Read, 5, &[1; 512]);
        let (end, memory) = one(&mut queue, &env, read);
        assert_eq!((end, memory.map(|m| m.len())), (Err(expected), Some(512)), "{error}");
    }
}

/// An interrupt line that answers in turn.
struct Line(Vec<Irq>);

impl IrqHandler for Line {
    fn handle(&mut self) -> Irq {
        self.0.pop().unwrap()
    }
}

#[test]
fn the_interrupt_half_becomes_an_endpoint_that_names_the_queue() {
    let card = new_card();
    let env = Virtual::default();
    let clock = env.clock.clone();
    let queue =
        RdifQueue::new(disk(&card, &env), Bounce::new(buffers(&[1])).unwrap(), 0, move || clock.now());
    let line = Line(vec![Irq::NotMine, Irq::Handled, Irq::Wake]);
    let mut controller = RdifController::new("sd", queue, Some(line));
    assert!(controller.advance(ControllerEvent::Start { target_queues: 0 }).is_err());
    let mut update = controller.advance(ControllerEvent::Start { target_queues: 4 }).unwrap();
    let queue = update.take_queues().pop().unwrap();
    assert_eq!(queue.info().limits.max_inflight, 1, "at least one");
    let endpoint = update.take_irq_endpoints().pop().unwrap();
    assert!(endpoint.queue_mask().contains(queue.id()));
    let mut handler = endpoint.into_handler();
    let acks = [handler.ack(), handler.ack(), handler.ack()];
    let told = acks.map(|a| (a.disposition(), a.queues().contains(queue.id())));
    let (cleared, spurious) = (IrqDisposition::Cleared, IrqDisposition::Spurious);
    assert_eq!(told, [(cleared, true), (cleared, false), (spurious, false)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any requests, many at a time: an array of bytes.
    #[test]
    fn a_queue_is_a_byte_array(
        requests in prop::collection::vec((0_u64..60, 1_usize..20, any::<bool>(), any::<u8>()), 1..24),
        long in 1_usize..12,
    ) {
        let card = new_card();
        let (mut queue, env) = started(&card, &[long, 1, 1]);
        let mut model = vec![0_u8; 80 * 512];
        for batch in requests.chunks(4) {
            let made = batch.iter().map(|(lba, n, write, byte)| {
                let data = vec![*byte; n * 512];
                request(&queue, if *write { RequestOp::Write } else { RequestOp::Read }, *lba, &data)
            });
            let made: Vec<_> = made.collect();
            let mut expected = Vec::new();
            for (lba, n, write, byte) in batch {
                let range = *lba as usize * 512..(*lba as usize + n) * 512;
                if *write {
                    model[range.clone()].fill(*byte);
                }
                expected.push(model[range].to_vec());
            }
            let seen = run(&mut queue, &env, made);
            // Ids are places: the k-th that was accepted is the k-th request.
            for (id, result, data) in seen.completed {
                prop_assert_eq!(result, Ok(()));
                let k = seen.accepted.iter().position(|a| *a == id).unwrap();
                prop_assert!(data.unwrap() == expected[k], "request {k} of {batch:?}");
            }
        }
        prop_assert_eq!(stored(&card, 0, model.len()), model);
    }
}

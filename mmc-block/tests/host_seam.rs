//! What a disk asks of a host: expectations at the seam.

mod common;

use common::*;
use mmc_block::{Disk, Next};
use mmc_mock::{Buf, BufBatch};
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned,
    SubmitError, Why,
};
use mmc_sched::{NoSched, Queue, Slot};
use mmc_time::{Duration, Instant};
use mockall::{Sequence, mock};
use std::sync::{Arc, Mutex};

mock! {
    Slot {}
    impl Host for Slot {
        type Payload = BufBatch;
        fn capabilities(&self) -> Capabilities;
        fn submit(
            &mut self,
            op: Operation<BufBatch>,
            until: Instant,
            now: Instant,
        ) -> Result<(), SubmitError<BufBatch>>;
        fn poll(&mut self, now: Instant) -> Progress<BufBatch>;
        fn abort(&mut self, now: Instant);
    }
}

const T0: Instant = Instant::ZERO;
/// When the running command ends by itself.
const END: Instant = Instant::from_millis(10);
const OK: Result<Reply, HostError> = Ok(Reply { words: [0x900, 0, 0, 0], bytes: 0 });

/// What the mock holds for the disk while a command runs.
type Held = Arc<Mutex<Option<BufBatch>>>;

fn capable() -> MockSlot {
    let mut host = MockSlot::new();
    host.expect_capabilities().times(1).returning(|| {
        let mut caps = Capabilities::new();
        caps.max_segments = 8;
        caps
    });
    host
}

fn disk(host: MockSlot) -> Disk<MockSlot, Queue<Vec<Slot>, NoSched>, Tags> {
    let queue = Queue::new(vec![Slot::FREE; 8], NoSched::new());
    Disk::new(host, queue, card(), BufBatch::new(8), tags(8), settings(8), ()).unwrap()
}

/// Expects one command of this index, now.
fn expect_submit(host: &mut MockSlot, order: &mut Sequence, index: u8, held: &Held) {
    let held = held.clone();
    host.expect_submit()
        .withf(move |op, until, now| {
            let c = match op {
                Operation::Command(c) | Operation::Transfer(c, _) => c,
                _ => return false,
            };
            c.index == index && until > now
        })
        .times(1)
        .in_sequence(order)
        .returning(move |op, _, _| {
            if let Operation::Transfer(_, p) = op {
                assert!(held.lock().unwrap().replace(p).is_none());
            }
            Ok(())
        });
}

fn expect_done(host: &mut MockSlot, order: &mut Sequence, result: Result<Reply, HostError>, held: &Held) {
    let held = held.clone();
    host.expect_poll().times(1).in_sequence(order).returning(move |_| {
        let payload = held.lock().unwrap().take().map_or(Returned::None, Returned::Back);
        Progress::Done(Completion { result, payload })
    });
}

fn expect_waiting(host: &mut MockSlot, order: &mut Sequence, times: usize) {
    host.expect_poll()
        .times(times)
        .in_sequence(order)
        .returning(|_| Progress::Waiting { why: Why::Interrupt, until: END });
}

#[test]
fn nothing_is_submitted_while_a_command_runs() {
    let (mut host, mut order, held) = (capable(), Sequence::new(), Held::default());
    // Two reads of one sector. The second CMD17 only after the first has ended.
    let sector = Ok(Reply { bytes: 512, ..Reply { words: [0x900, 0, 0, 0], bytes: 0 } });
    expect_submit(&mut host, &mut order, 17, &held);
    expect_waiting(&mut host, &mut order, 4);
    expect_done(&mut host, &mut order, sector, &held);
    expect_submit(&mut host, &mut order, 17, &held);
    expect_done(&mut host, &mut order, sector, &held);
    host.expect_abort().never();

    let mut disk = disk(host);
    disk.submit(read(0, 1), Buf(vec![0; 512]), T0).unwrap();
    for ms in 0..4 {
        let now = Instant::from_millis(ms);
        if ms == 1 {
            disk.submit(read(100, 1), Buf(vec![0; 512]), now).unwrap();
        }
        assert_eq!(disk.poll(now), Next::Wait { why: Why::Interrupt, until: END });
    }
    assert_eq!(disk.poll(END), Next::Idle);
    assert_eq!(disk.poll(END), Next::Idle);
    assert_eq!(disk.statistics().completed, 2);
}

#[test]
fn shutdown_aborts_once_and_lets_the_conversation_clean_up() {
    let (mut host, mut order, held) = (capable(), Sequence::new(), Held::default());
    let aborted = Err(HostError { cause: Cause::Aborted, phase: Phase::Data, index: 25, r1: None });
    expect_submit(&mut host, &mut order, 23, &held);
    expect_done(&mut host, &mut order, OK, &held);
    expect_submit(&mut host, &mut order, 25, &held);
    expect_waiting(&mut host, &mut order, 1);
    host.expect_abort().times(1).in_sequence(&mut order).return_const(());
    expect_done(&mut host, &mut order, aborted, &held);
    // The data phase may be open: stop it, and see that the card is ready.
    expect_submit(&mut host, &mut order, 12, &held);
    expect_done(&mut host, &mut order, OK, &held);
    expect_submit(&mut host, &mut order, 13, &held);
    expect_done(&mut host, &mut order, OK, &held);

    let mut disk = disk(host);
    for lba in [0, 100] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    assert!(matches!(disk.poll(T0), Next::Wait { .. }));
    let now = T0 + Duration::from_millis(1);
    disk.shutdown(now);
    disk.shutdown(now);
    assert_eq!(disk.poll(now), Next::Idle);
    disk.shutdown(now);
    let done: Vec<_> = std::iter::from_fn(|| disk.take_done()).collect();
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|d| d.result.is_err() && d.buffer.is_some()));
}

#[test]
fn a_refusing_host_gives_the_buffers_back() {
    let mut host = capable();
    host.expect_submit().times(1).returning(|operation, _, _| {
        let error = HostError { cause: Cause::Unsupported("odd"), phase: Phase::Submit, index: 17, r1: None };
        Err(SubmitError { error, operation })
    });
    let mut disk = disk(host);
    let t = disk.submit(read(0, 1), Buf(vec![7; 512]), T0).unwrap();
    assert_eq!(disk.poll(T0), Next::Idle);
    let done = disk.take(t).unwrap();
    assert_eq!(done.buffer, Some(Buf(vec![7; 512])));
    assert!(done.result.unwrap_err().to_string().contains("odd"), "the cause is named");
}

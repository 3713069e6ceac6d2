//! The thin shells: bringing a card up, waiting for each request, and a delay as the only clock.

mod common;

use common::*;
use mmc_block::{AnyDisk, Blocking, Disk, Failure, Idle, Init, Refusal, Settings, SetupError, identify};
use mmc_hal::{Batch as _, Gather};
use mmc_mock::card::{SdCard, SdConfig};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, MockHost};
use mmc_proto::host::{Capabilities, Cause, Supervised};
use mmc_proto::machine::{CardTraits, IdentifyCause, IdentifyError};
use mmc_sched::{NoSched, Queue, Slot};
use mmc_time::Instant;

/// Virtual time: a wait is over at once.
struct Virtual(Clock);

impl Idle for Virtual {
    fn now(&mut self) -> Instant {
        self.0.now()
    }
    fn wait(&mut self, until: Instant) {
        assert!(!until.is_never());
        self.0.advance_to(until);
    }
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    caps.max_segments = 8;
    caps
}

#[test]
fn a_driver_in_ten_lines_reads_back_what_it_wrote() {
    let mut idle = Virtual(Clock::new());
    let mut host = MockHost::new(SdCard::new(SdConfig::new(Profile::a1(), 1)).unwrap(), caps());
    let mut init = Init::new(&caps(), Gather::<Buf, 4>::new(), Buf(vec![0; 512])).unwrap();
    let (card, parts) = identify(&mut host, &mut init, &mut idle);
    let (card, (batch, _)) = (card.unwrap(), parts.unwrap());
    let queue = Queue::new([Slot::FREE; 4], NoSched::new());
    let tags = [const { mmc_block::Tag::new() }; 4];
    let disk = Disk::new(host, queue, card.traits, batch, tags, Settings::default(), ()).unwrap();
    let mut disk = Blocking::new(disk, idle);

    let pattern: Vec<u8> = (0..4096_u32).map(|i| (i % 251) as u8).collect();
    disk.write(1000, Buf(pattern.clone())).unwrap();
    assert_eq!(disk.read(1000, Buf(vec![0; 4096])).unwrap().0, pattern);
    assert_eq!(disk.read(1008, Buf(vec![9; 512])).unwrap().0, [0; 512]);

    let failed = disk.read(card.traits.blocks, Buf(vec![9; 512])).unwrap_err();
    assert!(matches!(failed.error, Failure::Refused(Refusal::OutOfRange { .. })));
    assert_eq!(failed.buffer, Some(Buf(vec![9; 512])));
    let failed = disk.read(0, Buf(vec![9; 100])).unwrap_err();
    assert_eq!(failed.error, Failure::Refused(Refusal::BufferLength { bytes: 100, needed: 512 }));
    assert_eq!(disk.disk().statistics().completed, 3);
}

#[test]
fn an_empty_slot_is_told_with_the_parts_back() {
    let mut idle = Virtual(Clock::new());
    let mut card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap();
    card.set_present(false);
    let mut host = MockHost::new(card, caps());
    let mut init = Init::new(&caps(), BufBatch::new(1), Buf(vec![0; 512])).unwrap();
    let (card, parts) = identify(&mut host, &mut init, &mut idle);
    let error = card.unwrap_err();
    assert!(error.media_gone(), "{error}");
    assert!(matches!(error, IdentifyError { cause: IdentifyCause::Host(e), .. } if e.cause == Cause::NoCard));
    let (batch, scratch) = parts.unwrap();
    assert_eq!((mmc_hal::Batch::len(&batch), scratch.0.len()), (0, 512));
    // Scratch that is too small is refused at once.
    assert!(Init::new(&caps(), batch, Buf(vec![0; 511])).is_err());
}

#[test]
fn a_failed_request_gives_its_buffer_back() {
    let fake = FakeHost::new(1024, 8);
    fake.lock().bad.insert(3, Fault::Silent);
    let disk = disk(&fake, NoSched::new(), 8, settings(8));
    let mut idle = Virtual(Clock::new());
    let mut disk = Blocking::new(disk, &mut idle);
    let failed = disk.write(0, Buf(vec![1; 4096])).unwrap_err();
    assert!(matches!(failed.error, Failure::Failed(e) if e.is_retryable()));
    assert_eq!(failed.buffer, Some(Buf(vec![1; 4096])));
    disk.write(4, Buf(vec![1; 4096])).unwrap();
    // Three attempts, and the other.
    assert_eq!(idle.now(), Instant::ZERO + SERVICE.saturating_mul(4));
}

#[test]
fn a_batch_for_preparing_must_be_empty_and_have_room() {
    let fake = FakeHost::new(1024, 8);
    let mut disk = disk(&fake, NoSched::new(), 8, settings(8));
    let mut full = BufBatch::new(2);
    full.push(Buf(vec![0; 512]), 0, 512).unwrap();
    for odd in [full, BufBatch::new(0)] {
        assert_eq!(disk.prepare_with(odd), Err(SetupError::NoBatch));
    }
    assert_eq!(disk.prepare_with(BufBatch::new(2)), Ok(()));
}

#[test]
fn any_disk_says_what_the_disk_says() {
    fn seen(disk: &mut impl AnyDisk<Buffer = Buf>) -> (u64, usize, Option<u64>, Option<u64>) {
        let mut next = || disk.take_done().map(|done| done.request.lba);
        let done = [next(), next()];
        (disk.blocks(), disk.places(), done[0], done[1])
    }
    let fake = FakeHost::new(1024, 8);
    let mut disk = disk(&fake, NoSched::new(), 8, settings(8));
    assert_eq!(seen(&mut disk), (SECTORS, 16, None, None));
    let r = write(70, 8);
    disk.submit(r, buf(&r, 1), Instant::ZERO).unwrap();
    run(&mut disk, Instant::ZERO);
    assert_eq!(seen(&mut disk), (SECTORS, 16, Some(70), None));
}

#[test]
fn all_parts_can_be_borrowed() {
    // A host that copies by hand runs on plain borrowed slices; the table and the queue are lent as well.
    fn takes<'d>(
        host: &mut Supervised<MockHost<Gather<&'d mut [u8], 2>, SdCard>>,
        slots: &mut [Slot],
        tags: &mut [mmc_block::Tag<&'d mut [u8]>],
        card: CardTraits,
        data: &'d mut [u8],
        idle: Virtual,
    ) {
        let queue = Queue::new(slots, NoSched::new());
        let disk = Disk::new(host, queue, card, Gather::new(), tags, Settings::default(), ()).unwrap();
        let mut disk = Blocking::new(disk, idle);
        let data = disk.write(5, data).unwrap();
        data.fill(0);
        let data = disk.read(5, data).unwrap();
        assert!(data.iter().all(|b| *b == 0x42));
    }
    let mut data = vec![0x42; 1024];
    let mut scratch = vec![0; 512];
    let mut idle = Virtual(Clock::new());
    let card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap();
    let mut host = MockHost::new(card, caps());
    let mut init = Init::new(&caps(), Gather::new(), scratch.as_mut_slice()).unwrap();
    let (card, _) = identify(&mut host, &mut init, &mut idle);
    let mut slots = [Slot::FREE; 2];
    let mut tags = [const { mmc_block::Tag::new() }; 2];
    takes(&mut host, &mut slots, &mut tags, card.unwrap().traits, &mut data, idle);
}

#[cfg(feature = "embedded-hal")]
#[test]
fn a_delay_is_clock_enough() {
    use mmc_time::Duration;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Counts what it was asked to wait for.
    struct Delay(Rc<RefCell<u64>>);
    impl embedded_hal::delay::DelayNs for Delay {
        fn delay_ns(&mut self, ns: u32) {
            *self.0.borrow_mut() += u64::from(ns);
        }
    }
    let waited = Rc::new(RefCell::new(0));
    let fake = FakeHost::new(1024, 8);
    let disk = disk(&fake, NoSched::new(), 8, settings(8));
    let idle = mmc_block::DelayIdle::new(Delay(waited.clone()), Duration::from_micros(300));
    let mut disk = Blocking::new(disk, idle);
    disk.write(0, Buf(vec![1; 512])).unwrap();
    disk.read(0, Buf(vec![1; 512])).unwrap();
    assert_eq!(*waited.borrow(), SERVICE.as_nanos() * 2, "in steps of 300 us, the last one shorter");
}

//! Each adapter on a simulated card: what goes in by the foreign trait is on the card, and comes back.

mod async_device;
mod blocking;
mod rdif;
mod sdio;
mod sdio_words;

use mmc_block::{AnyDisk, Async, Disk, Env, Idle, Init, Lock, Observer, Settings, Tag, Ticket, Up, Watch};
use mmc_mock::card::{SdCard, SdConfig, Shared};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, MockHost};
use mmc_proto::bus::Width;
use mmc_proto::host::{Capabilities, Supervised};
use mmc_proto::machine::CardTraits;
use mmc_sched::{MqDeadline, Queue, Request, Slot};
use mmc_time::Instant;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

type Card = Shared<SdCard>;
type MockDisk = Disk<Supervised<MockHost<BufBatch, Card>>, Queue<Vec<Slot>, MqDeadline>, Vec<Tag<Buf>>, Log>;

/// All requests that a disk was given.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Request>>>);

impl Observer for Log {
    fn queued(&mut self, _: Ticket, request: &Request, _: Instant) {
        self.0.lock().unwrap().push(*request);
    }
}

/// Virtual time, for those who wait and for those who await.
#[derive(Clone, Default)]
struct Virtual {
    clock: Clock,
    armed: Arc<Mutex<Option<(Waker, Instant)>>>,
    log: Log,
}

impl Idle for Virtual {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn wait(&mut self, until: Instant) {
        assert!(!until.is_never());
        self.clock.advance_to(until);
    }
}

impl Env for Virtual {
    fn now(&self) -> Instant {
        self.clock.now()
    }
    fn arm(&self, waker: &Waker, until: Instant) {
        *self.armed.lock().unwrap() = Some((waker.clone(), until));
    }
}

struct Guarded(Mutex<Async<MockDisk, Vec<Watch>>>);

impl Lock for Guarded {
    type Disk = MockDisk;
    type Watches = Vec<Watch>;
    fn with<R>(&self, f: impl FnOnce(&mut Async<MockDisk, Vec<Watch>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls whoever was woken and moves time when nobody was, until `main` is over; `beside` runs with it.
fn block_on<T>(
    env: &Virtual,
    main: impl Future<Output = T>,
    beside: Option<Pin<&mut dyn Future<Output = ()>>>,
) -> T {
    let flags = [(); 2].map(|()| Arc::new(Flag(AtomicBool::new(true))));
    let wakers = flags.clone().map(Waker::from);
    let (mut main, mut beside) = (std::pin::pin!(main), beside);
    for _ in 0..1_000_000 {
        let mut ran = false;
        if flags[0].0.swap(false, Ordering::SeqCst) {
            ran = true;
            if let Poll::Ready(t) = main.as_mut().poll(&mut Context::from_waker(&wakers[0])) {
                return t;
            }
        }
        if let Some(beside) = beside.as_mut().filter(|_| flags[1].0.swap(false, Ordering::SeqCst)) {
            ran = true;
            let _ = beside.as_mut().poll(&mut Context::from_waker(&wakers[1]));
        }
        if !ran {
            let (waker, until) = env.armed.lock().unwrap().clone().expect("nothing would wake anybody");
            assert!(!until.is_never(), "nothing would wake anybody");
            env.clock.advance_to(until);
            waker.wake();
        }
    }
    panic!("never over");
}

fn new_card() -> Card {
    Shared::new(SdCard::new(SdConfig::new(Profile::a1(), 1)).unwrap())
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.max_segments, caps.width, caps.max_hz) = (16, Width::Four, 50_000_000);
    caps
}

/// A host with `card` in its slot, identified.
fn host(card: &Card, env: &Virtual) -> (Supervised<MockHost<BufBatch, Card>>, CardTraits) {
    let mut host = MockHost::new(card.clone(), caps());
    let mut init = Init::new(&caps(), BufBatch::new(1), Buf(vec![0; 512])).unwrap();
    loop {
        match init.poll(&mut host, env.clock.now()) {
            Up::Wait { until, .. } => env.clock.advance_to(until),
            Up::Done { card, .. } => return (host, card.unwrap().traits),
        }
    }
}

fn disk(card: &Card, env: &Virtual) -> MockDisk {
    let (host, traits) = host(card, env);
    let queue = Queue::new(vec![Slot::FREE; 16], MqDeadline::new());
    let tags = (0..16).map(|_| Tag::new()).collect();
    Disk::new(host, queue, traits, BufBatch::new(16), tags, Settings::default(), env.log.clone()).unwrap()
}

/// Buffers of so many sectors.
fn buffers(sectors: &[usize]) -> Vec<Option<Buf>> {
    sectors.iter().map(|n| Some(Buf(vec![0; n * 512]))).collect()
}

/// Bytes that say where they belong.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 512 * 7 + i % 251 + seed) as u8).collect()
}

/// What is on the card, not by any driver's word.
fn stored(card: &Card, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    card.lock().storage_mut().read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_disks_limits_and_size_are_seen_through_the_trait() {
    let (card, env) = (new_card(), Virtual::default());
    let disk = disk(&card, &env);
    assert_eq!((disk.blocks(), disk.places()), (16_777_216, 16));
    assert_eq!(disk.limits().max_blocks, 65_535);
}

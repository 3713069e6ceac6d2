//! The same conversations over an async bus.

use crate::bench::{Slot, pattern, sd_bus};
use embedded_hal_async::{delay::DelayNs, spi::SpiBus};
use mmc_block::{
    Async, BlockError, Care, Conversation, Core, Env, Failure, Handle, Lock, Media, Refusal, Served,
    Settings, Stopped, Tag, Watch, serve,
};
use mmc_hal::Dir;
use mmc_mock::card::SdConfig;
use mmc_mock::fault::{Action, Medium};
use mmc_mock::spi::{BusError, Select, Spi, SpiConfig, SpiSd, Wires};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch};
use mmc_proto::host::{Capabilities, Slot as InSlot};
use mmc_proto::machine::{CardTraits, Identified, Identify, Transfer, TransferOptions};
use mmc_sched::{MqDeadline, Op, Queue, Request, StreamId};
use mmc_spi::{AsyncCard, drive};
use mmc_time::{Duration, Instant};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

/// The model's bus; each call gives way once before it does something, as one with DMA would.
struct Slow(Wires<SpiSd>);

async fn give_way() {
    let mut first = true;
    poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

impl embedded_hal::spi::ErrorType for Slow {
    type Error = BusError;
}

impl SpiBus for Slow {
    async fn read(&mut self, words: &mut [u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::read(&mut self.0, words)
    }
    async fn write(&mut self, words: &[u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::write(&mut self.0, words)
    }
    async fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::transfer(&mut self.0, read, write)
    }
    async fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::transfer_in_place(&mut self.0, words)
    }
    async fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

struct Timer(Spi);

impl DelayNs for Timer {
    async fn delay_ns(&mut self, ns: u32) {
        self.0.wait(Duration::from_nanos(ns.into()));
        give_way().await;
    }
}

type Card = AsyncCard<Slow, Select<SpiSd>, Slot<SpiSd>>;

/// Polls at most `polls` times.
fn run<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(t) => Some(t),
        Poll::Pending => None,
    })
}

fn card(spi: &Spi) -> (Card, CardTraits) {
    let (card, id) = identified(spi);
    (card, id.traits)
}

fn identified(spi: &Spi) -> (Card, Identified) {
    let slot = Slot { spi: spi.clone(), switch: true };
    let mut card = AsyncCard::new(Slow(spi.bus()), spi.chip_select(), slot, 25_000_000);
    let mut identify = Identify::new(&card.capabilities());
    let mut scratch = [0; 512];
    let now = || spi.clock().now();
    let id = run(drive(&mut identify, &mut card, &mut scratch, &mut Timer(spi.clone()), now), 100_000);
    (card, id.expect("it ends").unwrap())
}

fn transfer(
    spi: &Spi,
    card: &mut Card,
    traits: &CardTraits,
    dir: Dir,
    lba: u64,
    data: &mut [u8],
    polls: usize,
) -> Option<Result<u32, mmc_proto::machine::TransferError>> {
    let mut machine = Transfer::new(traits, dir, lba, (data.len() / 512) as u32, TransferOptions::default());
    let mut payload = data;
    let now = || spi.clock().now();
    run(drive(&mut machine, card, &mut payload, &mut Timer(spi.clone()), now), polls)
}

#[test]
fn a_conversation_can_be_awaited_and_dropped_at_every_await() {
    let spi = sd_bus(SdConfig::new(Profile::slow2018(), 1), "", SpiConfig::default());
    let (mut card, traits) = card(&spi);
    let data = pattern(8 * 512, 3);
    let mut dropped = 0;
    for polls in 1.. {
        for dir in [Dir::Write, Dir::Read] {
            let mut some = pattern(4 * 512, 5);
            if transfer(&spi, &mut card, &traits, dir, 5000, &mut some, polls).is_none() {
                dropped += 1;
            }
            // Whatever was dropped: the next one works, and what it writes is stored.
            let written = transfer(&spi, &mut card, &traits, Dir::Write, 64, &mut data.clone(), 100_000);
            assert_eq!(written.unwrap(), Ok(8), "{dir:?} dropped after {polls}");
            let mut back = vec![0; data.len()];
            let read = transfer(&spi, &mut card, &traits, Dir::Read, 64, &mut back, 100_000);
            assert_eq!((read.unwrap(), back == data), (Ok(8), true), "{dir:?} dropped after {polls}");
        }
        if dropped < 2 * polls - 1 || polls > 60 {
            break;
        }
    }
    let mut stored = vec![0; data.len()];
    spi.with(|c| c.card_mut().with_storage(&mut |s| s.read(64 * 512, &mut stored).unwrap()));
    assert!(stored == data);
    assert_eq!(spi.violations(), Vec::<String>::new());
    assert!(dropped > 30, "{dropped}");
}

#[test]
fn limits_hold_and_errors_are_told_there_too() {
    let spi = sd_bus(SdConfig::new(Profile::a1(), 1), "at CMD24: busy forever", SpiConfig::default());
    let (mut card, traits) = card(&spi);
    let began = spi.clock().now();
    let e = transfer(&spi, &mut card, &traits, Dir::Write, 9, &mut pattern(512, 1), 1_000_000).unwrap();
    assert!(e.unwrap_err().needs_reset());
    assert!(spi.clock().now().since(began) < Duration::from_secs(8));
}

/// Time is the bus's.
struct Sys(Spi);

impl Env for Sys {
    fn now(&self) -> Instant {
        self.0.clock().now()
    }
    // Everybody is polled all the time here.
    fn arm(&self, _: &Waker, _: Instant) {}
}

type SpiDisk = Served<Queue<Vec<mmc_sched::Slot>, MqDeadline>, Vec<Tag<Buf>>, Buf>;
struct Guarded(Mutex<Async<SpiDisk, Vec<Watch>>>);

impl Lock for Guarded {
    type Disk = SpiDisk;
    type Watches = Vec<Watch>;
    fn with<R>(&self, f: impl FnOnce(&mut Async<SpiDisk, Vec<Watch>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

fn async_disk(traits: &CardTraits, caps: Capabilities) -> Guarded {
    let queue = Queue::new(vec![mmc_sched::Slot::FREE; 16], MqDeadline::new());
    let tags = (0..32).map(|_| Tag::new()).collect();
    let core = Core::new(queue, *traits, caps.into(), tags, Settings::default(), ()).unwrap();
    let watches = (0..32).map(|_| Watch::new()).collect();
    Guarded(Mutex::new(Async::new(Served::new(core), watches).unwrap()))
}

/// Polls all in turn, up to `rounds` times, until all but the first are over; whether they are.
fn together(tasks: &mut Vec<Pin<Box<dyn Future<Output = ()> + '_>>>, rounds: usize) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    let mut over = vec![false; tasks.len()];
    for _ in 0..rounds {
        for (task, over) in tasks.iter_mut().zip(&mut over) {
            *over = *over || task.as_mut().poll(&mut context).is_ready();
        }
        if over[1..].iter().all(|o| *o) {
            return true;
        }
    }
    false
}

async fn client(disk: Handle<'_, Guarded, Sys>, n: usize) {
    for round in 0..2 {
        let (lba, data) = (3000 + 100 * n as u64 + 8 * round, pattern(8 * 512, n as u64 + round));
        disk.write(lba, Buf(data.clone())).await.unwrap();
        let back = disk.read(lba, Buf(vec![0; data.len()])).await.unwrap();
        assert!(back.0 == data, "task {n}");
    }
    disk.flush().await.unwrap();
}

#[test]
fn many_tasks_share_an_async_disk_over_spi() {
    let spi = sd_bus(SdConfig::new(Profile::a1(), 1), "", SpiConfig::default());
    let (mut card, traits) = card(&spi);
    let (lock, env) = (async_disk(&traits, card.capabilities()), Sys(spi.clone()));
    let disk = Handle::new(&lock, &env);
    let mut batch = BufBatch::new(16);
    let hold = async |talk: &mut Conversation, batch: &mut BufBatch| {
        let now = || spi.clock().now();
        drive(talk, &mut card, batch, &mut Timer(spi.clone()), now).await
    };
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
        vec![Box::pin(serve(disk, &mut batch, hold))];
    tasks.extend((0..12).map(|n| Box::pin(client(disk, n)) as Pin<Box<dyn Future<Output = ()> + '_>>));
    assert!(together(&mut tasks, 1_000_000));
    // A request that is refused says so, and a shutdown ends the service.
    let mut end: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> = vec![tasks.remove(0)];
    end.push(Box::pin(async {
        let beyond = disk.read(traits.blocks, Buf(vec![0; 512])).await.unwrap_err();
        assert!(matches!(beyond.error, Failure::Refused(Refusal::OutOfRange { .. })));
        assert!(disk.discard(0, 8).await.is_err(), "nobody looks after the card");
        disk.with(mmc_block::AnyDisk::shutdown);
        assert!(disk.read(0, Buf(vec![0; 512])).await.is_err());
    }));
    assert!(together(&mut end, 10_000));
    drop(tasks);
    assert!(run(end.remove(0), 10).is_some(), "the service is over");
    drop(end);
    let stats = *lock.0.into_inner().unwrap().into_disk().core().statistics();
    println!("{} requests in {} commands", stats.accepted, stats.commands);
    assert!(stats.merged == 0 || stats.commands < stats.accepted);
    assert_eq!(spi.violations(), Vec::<String>::new());
}

#[test]
fn the_service_can_be_dropped_at_any_await_and_begun_again() {
    let mut cut = 0;
    for polls in 1..40 {
        let spi = sd_bus(SdConfig::new(Profile::ideal(), 1), "", SpiConfig::default());
        let (mut card, traits) = card(&spi);
        let (lock, env) = (async_disk(&traits, card.capabilities()), Sys(spi.clone()));
        let disk = Handle::new(&lock, &env);
        let mut batch = BufBatch::new(16);
        let mut flight =
            disk.submit(Request::new(Op::Write, 64, 4, StreamId(1)), Buf(pattern(2048, 9))).unwrap();
        let mut hold = async |talk: &mut Conversation, batch: &mut BufBatch| {
            let now = || spi.clock().now();
            drive(talk, &mut card, batch, &mut Timer(spi.clone()), now).await
        };
        assert!(run(serve(disk, &mut batch, &mut hold), polls).is_none(), "nobody has shut it down");
        let done = run(&mut flight, 1);
        cut += usize::from(matches!(&done, Some(Ok(done)) if done.result.is_err()));
        if let Some(done) = done {
            assert!(done.unwrap().buffer.is_some(), "after {polls} polls");
        }
        let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
            vec![Box::pin(serve(disk, &mut batch, &mut hold)), Box::pin(client(disk, 0))];
        assert!(together(&mut tasks, 100_000), "after {polls} polls");
        drop(tasks);
        assert_eq!(spi.violations(), Vec::<String>::new(), "after {polls} polls");
    }
    println!("{cut} commands cut");
    assert!(cut > 5, "{cut}");
}

/// An async disk that looks after its card.
fn minded(spi: &Spi) -> (Guarded, Card) {
    let (card, id) = identified(spi);
    let caps = card.capabilities();
    let lock = async_disk(&id.traits, caps);
    let slot = InSlot { present: Some(true), ..InSlot::default() };
    let disk = Handle::new(&lock, &Sys(spi.clone()))
        .with(|d, _| d.look_after(id, Buf(vec![0; 512]), Care::new(&caps), &caps, slot));
    disk.unwrap();
    (lock, card)
}

/// Serves until `client` is over.
fn while_served(
    lock: &Guarded,
    card: &mut Card,
    spi: &Spi,
    client: impl AsyncFnOnce(Handle<'_, Guarded, Sys>),
) {
    let env = Sys(spi.clone());
    let disk = Handle::new(lock, &env);
    let mut batch = BufBatch::new(16);
    let hold = async |talk: &mut Conversation, batch: &mut BufBatch| {
        drive(talk, card, batch, &mut Timer(spi.clone()), || spi.clock().now()).await
    };
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
        vec![Box::pin(serve(disk, &mut batch, hold)), Box::pin(client(disk))];
    assert!(together(&mut tasks, 5_000_000));
}

#[test]
fn an_async_disk_identifies_its_card_anew_after_a_reset() {
    for script in
        ["at CMD25: busy forever", "at CMD18: power-loss all", "at CMD13#3: power-loss all", "at CMD25: lost"]
    {
        let spi = sd_bus(SdConfig::new(Profile::ideal(), 1), script, SpiConfig::default());
        let (lock, mut card) = minded(&spi);
        while_served(&lock, &mut card, &spi, async |disk| client(disk, 0).await);
        let served = lock.0.into_inner().unwrap().into_disk();
        let (s, resets) = (served.core().statistics(), u64::from(!script.ends_with("lost")));
        assert_eq!((s.resets, s.failed, served.core().generation()), (resets, 0, 0), "{script}");
        assert!(s.retries > 0 && served.media() == Media::Same, "{script}");
    }
}

/// This bus has no sample point to find; that is found out once, and not while nothing is to be sent.
#[test]
fn an_async_disk_that_is_told_to_tune_does_so_before_its_next_command() {
    let spi = sd_bus(SdConfig::new(Profile::ideal(), 1), "", SpiConfig::default());
    let (lock, mut card) = minded(&spi);
    while_served(&lock, &mut card, &spi, async |disk| {
        let tunings = || disk.with(|d, _| d.core().statistics().retunes);
        let slot = InSlot { present: Some(true), retune: true, ..InSlot::default() };
        disk.with(|d, now| d.tell_slot(slot, now));
        for _ in 0..10_000 {
            give_way().await;
        }
        assert_eq!(tunings(), 0, "nobody wants anything");
        client(disk, 0).await;
        assert_eq!(tunings(), 1);
    });
    assert_eq!(lock.0.into_inner().unwrap().into_disk().core().statistics().failed, 0);
}

#[test]
fn an_async_disk_notices_that_its_card_leaves_and_serves_another_when_it_is_accepted() {
    for told in [false, true] {
        let spi = sd_bus(SdConfig::new(Profile::ideal(), 1), "", SpiConfig::default());
        let (lock, mut card) = minded(&spi);
        let there = |present| {
            let what = if present { Action::Insert } else { Action::Remove };
            let now = spi.clock().now();
            spi.with(|c| c.act(&what, now));
        };
        while_served(&lock, &mut card, &spi, async |disk| {
            client(disk, 0).await;
            there(false);
            if told {
                // By a card-detect interrupt: nothing has to fail first.
                let slot = InSlot { present: Some(false), changes: 1, ..InSlot::default() };
                disk.with(|d, now| d.tell_slot(slot, now));
            } else {
                let failed = disk.read(64, Buf(vec![0; 512])).await.unwrap_err();
                assert!(matches!(failed.error, Failure::Failed(e) if e.media_gone()), "{:?}", failed.error);
                assert_eq!(failed.buffer, Some(Buf(vec![0; 512])));
            }
            assert_eq!(disk.with(|d, _| d.media()), Media::Gone);
            let refused = disk.read(64, Buf(vec![0; 512])).await.unwrap_err();
            assert_eq!(refused.error, Failure::Refused(Refusal::Stopped(Stopped::NoMedia)));
            there(true);
            if told {
                let slot = InSlot { present: Some(true), changes: 2, ..InSlot::default() };
                disk.with(|d, now| d.tell_slot(slot, now));
            } else {
                disk.with(|d, _| d.look_again());
            }
            for _ in 0..100_000 {
                give_way().await;
                if disk.with(|d, _| d.media()) == Media::New {
                    break;
                }
            }
            let refused = disk.read(64, Buf(vec![0; 512])).await.unwrap_err();
            assert_eq!(refused.error, Failure::Refused(Refusal::Stopped(Stopped::MediaChanged)));
            assert!(disk.with(|d, _| d.accept_media()));
            client(disk, 1).await;
        });
        let served = lock.0.into_inner().unwrap().into_disk();
        assert_eq!((served.media(), served.core().generation()), (Media::Same, 1), "told: {told}");
        assert_eq!(served.core().statistics().resets, 1);
        assert!(served.card().is_some());
    }
}

#[test]
fn an_identification_that_is_left_halfway_is_begun_again() {
    let (mut cut, mut resets) = (0, 0);
    for polls in (1..600).step_by(13) {
        let spi =
            sd_bus(SdConfig::new(Profile::ideal(), 1), "at CMD24: power-loss all", SpiConfig::default());
        let (lock, mut card) = minded(&spi);
        let env = Sys(spi.clone());
        let disk = Handle::new(&lock, &env);
        let mut flight =
            disk.submit(Request::new(Op::Write, 64, 1, StreamId(1)), Buf(pattern(512, 9))).unwrap();
        {
            let mut batch = BufBatch::new(16);
            let hold = async |talk: &mut Conversation, batch: &mut BufBatch| {
                drive(talk, &mut card, batch, &mut Timer(spi.clone()), || spi.clock().now()).await
            };
            assert!(run(serve(disk, &mut batch, hold), polls).is_none());
        }
        while_served(&lock, &mut card, &spi, async |disk| client(disk, 0).await);
        let done = run(&mut flight, 1).expect("over").unwrap();
        assert!(done.buffer.is_some(), "after {polls} polls");
        match done.result {
            Ok(()) => {}
            Err(BlockError::Stopped(Stopped::Deserted)) => cut += 1,
            Err(e) => panic!("after {polls} polls: {e}"),
        }
        drop(flight);
        let served = lock.0.into_inner().unwrap().into_disk();
        assert_eq!((served.media(), served.core().outstanding()), (Media::Same, 0), "after {polls} polls");
        // The command was left before it struck, or the card was identified anew, whether or not that was left.
        resets += served.core().statistics().resets;
    }
    println!("{cut} commands cut, {resets} identifications");
    assert!(cut > 0 && resets > 20, "{cut}, {resets}");
}

//! `sdio::MmcBus` on both sides: that crate's card layer on our host, our layers on a bus of that crate, and both at once.

use crate::{Card, Virtual, block_on, caps, new_card, pattern, stored};
use ::sdio::sd::Card as Sd;
use ::sdio::{DefaultBlockDevice, MmcError};
use aligned::{A4, Aligned};
use block_device_driver::BlockDevice as _;
use mmc_adapters::{BusDriver, HostBus};
use mmc_block::{Core, Settings, Tag};
use mmc_mock::card::{Card as _, SdCard, SdConfig, Shared};
use mmc_mock::fault::Faulty;
use mmc_mock::sdio::{SdioBus, SdioDelay};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, MockHost};
use mmc_proto::host::Supervised;
use mmc_proto::machine::Identify;
use mmc_sched::{Flags, MqDeadline, Op, Queue, Request, Slot, StreamId};
use mmc_time::Duration;
use std::task::{Context, Waker};

type Sector = Aligned<A4, [u8; 512]>;

fn sectors(bytes: &[u8]) -> Vec<Sector> {
    bytes.chunks(512).map(|c| Aligned(c.try_into().unwrap())).collect()
}

/// Our host as their bus.
fn bus<'e, C: mmc_mock::card::Card>(
    card: C,
    env: &'e Virtual,
) -> HostBus<'e, Supervised<MockHost<Buf, C>>, Virtual> {
    HostBus::new(MockHost::new(card, caps()), env, Buf(vec![0; 16 * 512]), Duration::from_secs(3))
}

#[test]
fn their_card_layer_runs_on_our_host() {
    let (card, env) = (new_card(), Virtual::default());
    let delay = SdioDelay(env.clock.clone());
    let driver = DefaultBlockDevice::<Sd, _, _>::new_sd_card(bus(card.clone(), &env), 50_000_000, delay);
    let mut driver = block_on(&env, driver, None).unwrap();
    // `sdio` 0.5.3 takes the answer of CMD6 from the wrong byte on a big-endian processor, and stays slow.
    let hz = if cfg!(target_endian = "big") { 25_000_000 } else { 50_000_000 };
    assert_eq!(driver.freq(), hz);
    assert_eq!(block_on(&env, driver.size(), None).unwrap(), 8 << 30);
    for (at, n) in [(100, 1), (200, 16)] {
        let data = pattern(n * 512, n);
        block_on(&env, driver.write(at, &sectors(&data)), None).unwrap();
        assert_eq!(stored(&card, u64::from(at) * 512, data.len()), data);
        let mut back = sectors(&vec![0; data.len()]);
        block_on(&env, driver.read(at, &mut back), None).unwrap();
        assert!(back.iter().zip(sectors(&data)).all(|(a, b)| a[..] == b[..]));
    }
    let long = block_on(&env, driver.read(0, &mut sectors(&[0; 17 * 512])), None).unwrap_err();
    assert!(matches!(long, MmcError::Unsupported), "{long}: longer than the payload");
    assert!(card.violations().is_empty(), "{:?}", card.violations());
}

#[test]
fn faults_of_the_card_are_their_errors() {
    for (script, expected) in [
        ("at CMD17: block 0 crc", "CRC error"),
        ("at CMD17: response-crc", "CRC error"),
        ("at CMD17: no-answer", "timeout"),
        ("at CMD17: block 0 missing", "timeout"),
        ("at CMD17: status 0x80000", "card error"),
    ] {
        let env = Virtual::default();
        let inner = SdCard::new(SdConfig::new(Profile::a1(), 1));
        let card = Shared::new(Faulty::new(inner.unwrap(), script.parse().unwrap()).unwrap());
        let delay = SdioDelay(env.clock.clone());
        let driver = DefaultBlockDevice::<Sd, _, _>::new_sd_card(bus(card, &env), 25_000_000, delay);
        let mut driver = block_on(&env, driver, None).unwrap();
        let e = block_on(&env, driver.read(5, &mut sectors(&[0; 512])), None).unwrap_err();
        assert_eq!(e.to_string(), expected);
    }
}

#[test]
fn a_call_of_theirs_that_is_dropped_is_ended_by_the_next() {
    let (card, env) = (new_card(), Virtual::default());
    let mut bus = bus(card.clone(), &env);
    let data = pattern(512, 9);
    for polls in 1..6 {
        // Their layer takes no second call after a dropped one (it sends a CMD12 that nobody answers, for ever): a new one
        // is made on the same bus.
        let delay = SdioDelay(env.clock.clone());
        let driver = DefaultBlockDevice::<Sd, _, _>::new_sd_card(&mut bus, 25_000_000, delay);
        let mut driver = block_on(&env, driver, None).unwrap();
        block_on(&env, driver.write(7, &sectors(&data)), None).unwrap();
        let mut back = sectors(&[0; 512]);
        block_on(&env, driver.read(7, &mut back), None).unwrap();
        assert_eq!(back[0][..], data[..], "after {polls} polls");
        let mut call = std::pin::pin!(driver.read(7, &mut back));
        for _ in 0..polls {
            let over = call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let (_, until) = env.armed.lock().unwrap().clone().unwrap();
            if over || until.is_never() {
                break;
            }
            env.clock.advance_to(until);
        }
    }
}

/// Our identification, scheduler and transfers on a bus of theirs: `bus` is any.
async fn ours<B: ::sdio::MmcBus>(bus: B, card: &Card, env: &Virtual) {
    let mut work: Box<Aligned<A4, [u8; 8192]>> = Box::new(Aligned([0; 8192]));
    let clock = env.clock.clone();
    let mut driver = BusDriver::new(bus, SdioDelay(clock.clone()), move || clock.now(), &mut *work);
    let caps = driver.capabilities();
    assert_eq!((caps.max_blocks, caps.max_hz), (16, 50_000_000));
    let mut scratch = Buf(vec![0; 512]);
    let found = driver.drive(&mut Identify::new(&caps), &mut scratch).await.unwrap();
    assert_eq!(found.traits.blocks, 16_777_216);

    let mut queue = Queue::new(vec![Slot::FREE; 16], MqDeadline::new());
    queue.set_limits(mmc_sched::Limits { max_sectors: 16, ..mmc_sched::Limits::default() });
    let tags: Vec<Tag<Buf>> = (0..16).map(|_| Tag::new()).collect();
    let mut core = Core::new(queue, found.traits, caps.into(), tags, Settings::default(), ()).unwrap();
    let mut batch = BufBatch::new(16);
    let now = || env.clock.now();
    for i in 0..4_u64 {
        let write = Request::new(Op::Write, 1000 + i * 4, 4, StreamId(1));
        core.submit(write, Buf(pattern(2048, i as usize)), now()).unwrap();
    }
    let mut flush = Request::new(Op::Write, 0, 0, StreamId(1));
    flush.flags = Flags::PREFLUSH;
    core.submit_bare(flush, now()).unwrap();
    driver.serve(&mut core, &mut batch).await;
    while let Some(done) = core.take_done() {
        done.result.unwrap();
    }
    // Four neighbours became one command.
    assert_eq!(core.statistics().commands, 1);
    for i in 0..4_u64 {
        assert_eq!(stored(card, (1000 + i * 4) * 512, 2048), pattern(2048, i as usize));
    }
    let read = Request::new(Op::Read, 1003, 2, StreamId(2));
    let ticket = core.submit(read, Buf(vec![0; 1024]), now()).unwrap();
    driver.serve(&mut core, &mut batch).await;
    let done = core.take(ticket).unwrap();
    assert_eq!(done.result, Ok(()));
    assert_eq!(done.buffer.unwrap().0, stored(card, 1003 * 512, 1024));
    assert!(card.violations().is_empty(), "{:?}", card.violations());
}

#[test]
fn our_layers_run_on_their_bus() {
    let (card, env) = (new_card(), Virtual::default());
    let bus = SdioBus::new(card.clone(), env.clock.clone());
    block_on(&env, ours(bus, &card, &env), None);
}

#[test]
fn our_layers_run_on_our_host_through_their_bus() {
    let (card, env) = (new_card(), Virtual::default());
    let bus = bus(card.clone(), &env);
    block_on(&env, ours(bus, &card, &env), None);
}

#[test]
fn a_slot_without_a_card_is_told() {
    let (card, env) = (new_card(), Virtual::default());
    card.lock().set_present(false);
    let mut work: Box<Aligned<A4, [u8; 512]>> = Box::new(Aligned([0; 512]));
    let clock = env.clock.clone();
    let bus = SdioBus::new(card, env.clock.clone());
    let mut driver = BusDriver::new(bus, SdioDelay(clock.clone()), move || clock.now(), &mut *work);
    let mut identify = Identify::new(&driver.capabilities());
    assert!(block_on(&env, driver.drive(&mut identify, &mut Buf(vec![0; 512])), None).is_err());
}

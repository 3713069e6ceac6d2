//! `mmc-block`: the disk and its blocking front, over an engine that may do anything.
#![no_std]
#![no_main]
use core::marker::PhantomData;
use mmc_block::{Blocking, Care, Disk, Idle, Init, Settings, Tag, Wipe, identify};
use mmc_hal::{Gather, Scatter};
use mmc_proto::host::{Capabilities, Supervised};
use mmc_proto::machine::{CardTraits, Partition};
use mmc_sched::{AnyPolicy, Op, Policy, Queue, Request, Slot, StreamId};
use mmc_time::{Duration, Instant};
use no_panic::{AnyEngine, sink};

type Buffer = [u8; 512];
type Batch = Gather<Buffer, 4>;

type List = Scatter<[u8; 512], [[u8; 512]; 2]>;

/// A disk of scatter lists.
fn scattered(policy: AnyPolicy, card: CardTraits) {
    let host = Supervised::new(AnyEngine::<Gather<List, 4>>(PhantomData), Duration::from_millis(1));
    let tags = [const { Tag::new() }; 8];
    let queue = Queue::new([Slot::FREE; 8], policy);
    let Ok(mut disk) = Disk::new(host, queue, card, Gather::new(), tags, Settings::default(), ()) else {
        return;
    };
    let mut now = Instant::ZERO;
    while sink(true) {
        let Ok(list) = Scatter::first([[0; 512]; 2], sink(2)) else { return };
        let r = Request::new(sink(Op::Read), sink(1), sink(2), StreamId(1));
        sink(disk.submit(r, list, now).is_ok());
        sink(disk.poll(now));
        sink(disk.take_done().map(|done| (done.result.is_ok(), done.status)));
        now += Duration::from_millis(sink(1));
    }
}

static mut SLOTS: [Slot; 64] = [Slot::FREE; 64];
static mut TAGS: [Tag<Buffer>; 80] = [const { Tag::new() }; 80];

fn main() {
    // SAFETY: linked and looked at, never run.
    let (slots, tags): (&'static mut [Slot], &'static mut [Tag<Buffer>]) =
        unsafe { (&mut *(&raw mut SLOTS), &mut *(&raw mut TAGS)) };
    let Ok(policy) = AnyPolicy::by_name(sink("mq-deadline")) else { return };
    let host = Supervised::new(AnyEngine::<Batch>(PhantomData), Duration::from_millis(1));
    let card = CardTraits {
        rca: sink(1),
        blocks: sink(1 << 20),
        byte_addressed: sink(false),
        cmd23: sink(true),
        read_limit: Duration::from_millis(sink(100)),
        write_limit: Duration::from_millis(sink(500)),
        block_time: Duration::from_micros(sink(40)),
        unit: 1,
    };
    if let Ok(policy) = AnyPolicy::by_name(sink("ftb")) {
        scattered(policy, card);
    }
    let disk = Disk::new(host, Queue::new(slots, policy), card, Gather::new(), tags, Settings::default(), ());
    let Ok(mut disk) = disk else { return };
    sink(disk.prepare_with(Gather::new()).is_ok());
    let mut slot = Supervised::new(AnyEngine::<Batch>(PhantomData), Duration::from_millis(1));
    if let Ok(mut init) = Init::new(&Capabilities::new(), Gather::new(), [0; 512]) {
        if let Ok(found) = identify(&mut slot, &mut init, &mut Timer).0 {
            let care = Care { cache: sink(true), ..Care::new(&Capabilities::new()) };
            sink(disk.look_after(found, [0; 512], care, Instant::ZERO).is_ok());
        }
    }
    for i in 0..sink(1000_u64) {
        let now = Instant::from_nanos(i);
        let r = Request::new(sink(Op::Read), sink(i), sink(1), StreamId(sink(1)));
        if let Ok(t) = disk.submit(r, [0; 512], now) {
            if sink(false) {
                sink(disk.take(t).is_some());
                sink(disk.abandon(t, now));
            }
        }
        sink(disk.submit_bare(Request::new(sink(Op::Discard), sink(i), sink(1), StreamId(1)), now).is_ok());
        sink(disk.poll(now));
        sink(disk.take_done().is_some());
        sink(disk.media());
        match sink(0) {
            0 => disk.suspend(),
            1 => disk.resume(),
            2 => disk.prepare_power_off(now, now),
            3 => disk.look_again(),
            4 => {
                sink(disk.accept_media());
            }
            5 => disk.ask_for_host(),
            6 => disk.give_back(),
            7 => disk.evict(now),
            8 => {
                let r = Request::new(sink(Op::Discard), sink(i), sink(8), StreamId(1));
                sink(disk.submit_wipe(r, sink(Wipe::SecureErase), now).is_ok());
            }
            _ => {
                if let Ok(policy) = AnyPolicy::by_name(sink("bfq")) {
                    sink(disk.replace_policy(policy, now).name());
                }
            }
        }
        sink(*disk.statistics());
    }
    sink(disk.tune(sink("fifo_batch"), sink("1"), Instant::ZERO).is_ok());
    disk.set_nr_requests(sink(4), Instant::ZERO);
    sink(disk.reclaim(
        |h| h.reclaim(Instant::ZERO),
        |b| {
            sink(b);
        },
    ));
    let mut blocking = Blocking::new(disk, Timer);
    sink(blocking.read(sink(7), [0; 512]).is_ok());
    sink(blocking.write(sink(7), [0; 512]).is_ok());
    sink(blocking.flush().is_ok());
    sink(blocking.write_zeroes(sink(7), 1).is_ok());
    sink(blocking.barrier().is_ok());
    sink(blocking.wipe(sink(Wipe::Sanitize), sink(7), sink(8)).is_ok());
    let mut batch = Some(Gather::new());
    sink(blocking.read_partition(sink(Partition::Boot1), sink(7), [0; 512], &mut batch).is_ok());
    blocking.disk().shutdown(Instant::ZERO);
    let mut host = Supervised::new(AnyEngine::<Batch>(PhantomData), Duration::from_millis(1));
    if let Ok(mut init) = Init::new(&Capabilities::new(), Gather::new(), [0; 512]) {
        sink(identify(&mut host, &mut init, &mut Timer).0.is_ok());
    }
}

struct Timer;
impl Idle for Timer {
    fn now(&mut self) -> Instant {
        sink(Instant::ZERO)
    }
    fn wait(&mut self, until: Instant) {
        sink(until);
    }
}
no_panic::program!(main);

//! `mmc-block`'s async front: its two futures, polled by hand, over an engine that may do anything. (`Handle::read` and the
//! like are `async fn`: the compiler itself puts a panic into those, for callers that poll them once more when they are over.)
#![no_std]
#![no_main]
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, RawWaker, RawWakerVTable, Waker};
use mmc_block::{Async, Disk, Env, Handle, Lock, Settings, Tag, Watch};
use mmc_hal::Gather;
use mmc_proto::host::Supervised;
use mmc_proto::machine::CardTraits;
use mmc_sched::{AnyPolicy, Op, Queue, Request, Slot, StreamId};
use mmc_time::{Duration, Instant};
use no_panic::{AnyEngine, sink};

type Buffer = [u8; 512];
type Batch = Gather<Buffer, 4>;
type D = Disk<Supervised<AnyEngine<Batch>>, Queue<&'static mut [Slot], AnyPolicy>, &'static mut [Tag<Buffer>]>;

static mut SLOTS: [Slot; 64] = [Slot::FREE; 64];
static mut TAGS: [Tag<Buffer>; 80] = [const { Tag::new() }; 80];
static mut WATCHES: [Watch; 80] = [const { Watch::new() }; 80];

/// A lock that is always free.
struct Free(core::cell::UnsafeCell<Async<D, &'static mut [Watch]>>);
impl Lock for Free {
    type Disk = D;
    type Watches = &'static mut [Watch];
    fn with<R>(&self, f: impl FnOnce(&mut Async<D, &'static mut [Watch]>) -> R) -> R {
        // SAFETY: linked and looked at, never run.
        f(unsafe { &mut *self.0.get() })
    }
}

struct Timer;
impl Env for Timer {
    fn now(&self) -> Instant {
        sink(Instant::ZERO)
    }
    fn arm(&self, waker: &Waker, until: Instant) {
        sink((waker, until));
    }
}

static TABLE: RawWakerVTable = RawWakerVTable::new(|p| RawWaker::new(p, &TABLE), drop_it, drop_it, drop_it);
fn drop_it(p: *const ()) {
    sink(p);
}

fn main() {
    // SAFETY: linked and looked at, never run.
    let (slots, tags, watches): (&'static mut [Slot], &'static mut [Tag<Buffer>], &'static mut [Watch]) =
        unsafe { (&mut *(&raw mut SLOTS), &mut *(&raw mut TAGS), &mut *(&raw mut WATCHES)) };
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
    let disk = Disk::new(host, Queue::new(slots, policy), card, Gather::new(), tags, Settings::default(), ());
    let Ok(disk) = disk else { return };
    let Ok(inner) = Async::new(disk, watches) else { return };
    let (lock, env) = (Free(core::cell::UnsafeCell::new(inner)), Timer);
    let handle = Handle::new(&lock, &env);
    // SAFETY: linked and looked at, never run.
    let waker = unsafe { Waker::from_raw(RawWaker::new(core::ptr::null(), &TABLE)) };
    let cx = &mut Context::from_waker(&waker);
    let mut runner = handle.runner();
    for i in 0..sink(1000_u64) {
        sink(Pin::new(&mut runner).poll(cx).is_ready());
        let r = Request::new(sink(Op::Read), sink(i), sink(1), StreamId(sink(1)));
        if let Ok(mut flight) = handle.submit(r, [0; 512]) {
            sink(Pin::new(&mut flight).poll(cx).is_ready());
        }
        if let Ok(mut flight) = handle.submit_bare(r) {
            sink(Pin::new(&mut flight).poll(cx).is_ready());
        }
        sink(handle.reap(sink(Instant::ZERO)));
    }
}
no_panic::program!(main);

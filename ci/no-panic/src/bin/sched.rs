//! `mmc-sched`: every policy through every call of `Scheduler`, and the bounds.
#![no_std]
#![no_main]
use mmc_sched::{AnyPolicy, Bfq, Dispatch, Flags, Kind, MqDeadline, Op, Outcome, Queue, Request, Scheduler, Slot, StreamId, bound};
use mmc_time::Instant;
use no_panic::sink;

static mut SLOTS: [Slot; 64] = [Slot::FREE; 64];

fn main() {
    // SAFETY: linked and looked at, never run.
    let slots: &'static mut [Slot] = unsafe { &mut *(&raw mut SLOTS) };
    let Ok(policy) = AnyPolicy::by_name(sink("bfq")) else { return };
    let mut q = Queue::new(slots, policy);
    for i in 0..sink(1000_u64) {
        let now = Instant::from_nanos(i);
        let mut r = Request::new(sink(Op::Write), sink(i), sink(8), StreamId(sink(1)));
        r.flags = sink(Flags::SYNC);
        sink(q.merge(&r, now));
        let id = q.insert(r, now);
        if let Dispatch::Run(run) = q.dispatch(now) {
            sink((q.next_member(run.head), q.request(run.head)));
            if sink(false) {
                q.requeue(&run, now);
            }
            sink(q.complete(run.head, Outcome { blocks: run.blocks, failed: sink(false) }, now));
        }
        if let Ok((id, _)) = id {
            sink(q.cancel(id));
        }
        sink((q.wake_at(), q.admits(sink(Kind::Async), sink(128)), q.name(), q.len(), q.capacity()));
        sink((q.tunable(sink(0)), q.tune(sink("fifo_batch"), sink("16")).is_ok()));
    }
    let (mq, bfq): (MqDeadline, Bfq) = (sink(MqDeadline::new()), sink(Bfq::new()));
    sink(bound::mq_deadline(mq.tunables(), sink(bound::Waiting::new(true, 1))));
    sink(bound::bfq(&bfq, sink(bound::Share::new(1, 2, 3))));
    sink(bound::time_of_sectors(sink(1), sink(2), sink(3), sink(4)));
    if let Ok(other) = AnyPolicy::by_name(sink("none")) {
        q.replace(other, Instant::ZERO);
    }
}
no_panic::program!(main);

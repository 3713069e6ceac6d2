//! The scheduler crate in front of a disk that is not ours: an old spinning one that likes requests in order.
//!
//! It is not about cards: nothing of this workspace but `mmc-sched` and `mmc-time` is used.
//!
//! `cargo run -p mmc-examples --example any_block_device` prints how long the same requests take under each policy.

use mmc_sched::{
    AnyPolicy, Dispatch, Flags, Inserted, Op, Outcome, Queue, Rejected, Request, Run, Scheduler, Slot,
    StreamId,
};
use mmc_time::{Duration, Instant};

const SECTOR: usize = 512;

/// The disk: one command at a time, and the farther the head has to go the longer it takes.
struct Spindle {
    data: Vec<u8>,
    head: u64,
}

impl Spindle {
    fn seek(&mut self, run: &Run) -> Duration {
        let way = self.head.abs_diff(run.lba);
        self.head = run.lba + u64::from(run.blocks);
        let seek = if way == 0 { 0 } else { 2_000 + way / 16 };
        Duration::from_micros(seek + u64::from(run.blocks) * 4)
    }
    fn transfer(&mut self, op: Op, lba: u64, buffer: &mut [u8]) {
        let at = lba as usize * SECTOR;
        let place = &mut self.data[at..at + buffer.len()];
        if op.is_read() { buffer.copy_from_slice(place) } else { place.copy_from_slice(buffer) }
    }
}

/// A block device: the disk behind a scheduler. The scheduler names requests by slots, so a table of as many
/// buffers is all the bookkeeping there is.
struct Device {
    queue: Queue<Box<[Slot]>, AnyPolicy>,
    buffers: Vec<Option<Vec<u8>>>,
    disk: Spindle,
    now: Instant,
    commands: u32,
    done: Vec<(Request, Vec<u8>, Instant)>,
}

impl Device {
    fn new(policy: AnyPolicy, sectors: usize, slots: usize) -> Self {
        Self {
            queue: Queue::new(vec![Slot::FREE; slots].into_boxed_slice(), policy),
            buffers: vec![None; slots],
            disk: Spindle { data: vec![0; sectors * SECTOR], head: 0 },
            now: Instant::ZERO,
            commands: 0,
            done: Vec::new(),
        }
    }

    /// Accepts a request with its buffer of `blocks` sectors; it may become part of a queued one.
    fn submit(&mut self, request: Request, buffer: Vec<u8>) -> Result<Inserted, Rejected> {
        let (id, how) = match self.queue.merge(&request, self.now) {
            Some(merged) => merged,
            None => self.queue.insert(request, self.now).map_err(|(_, why)| why)?,
        };
        self.buffers[id.slot()] = Some(buffer);
        Ok(how)
    }

    /// Works until nothing is queued.
    fn run(&mut self) {
        loop {
            match self.queue.dispatch(self.now) {
                Dispatch::Run(run) => self.command(&run),
                // Some policies keep the disk idle for a moment: somebody may go on where he was.
                Dispatch::Wait { at: Some(at), .. } => self.now = at,
                // Nothing is at the disk here, so no completion can be waited for.
                Dispatch::Wait { .. } | Dispatch::Empty => return,
            }
        }
    }

    /// One command: every request of the run, or a part of one request.
    fn command(&mut self, run: &Run) {
        self.commands += 1;
        self.now += self.disk.seek(run);
        let mut member = Some(run.head);
        while let Some(id) = member {
            member = self.queue.next_member(id);
            let whole = *self.queue.request(id).expect("a member of the run");
            let (from, blocks) = if run.count == 1 { (run.offset, run.blocks) } else { (0, whole.blocks) };
            let buffer = self.buffers[id.slot()].as_mut().expect("submitted with a buffer");
            let part = from as usize * SECTOR..(from + blocks) as usize * SECTOR;
            self.disk.transfer(whole.op, whole.lba + u64::from(from), &mut buffer[part]);
            let over = self.queue.complete(id, Outcome { blocks, failed: false }, self.now);
            if over.is_some_and(|o| o.last) {
                self.done.push((whole, self.buffers[id.slot()].take().expect("still there"), self.now));
            }
        }
    }
}

/// 40 reads here and there and a file written in 40 pieces, all at once: how long, and in how many commands.
fn job(policy: &str) -> (Duration, u32) {
    let mut device = Device::new(AnyPolicy::by_name(policy).expect("built in"), 1 << 15, 128);
    for n in 0..40_u64 {
        let mut write = Request::new(Op::Write, 20_000 + n * 8, 8, StreamId(1));
        write.flags = Flags::SYNC;
        device.submit(write, vec![n as u8 + 1; 8 * SECTOR]).expect("room");
        let read = Request::new(Op::Read, n * 7919 % 1500 * 8, 8, StreamId(2));
        device.submit(read, vec![0xff; 8 * SECTOR]).expect("room");
    }
    device.run();
    assert_eq!(device.done.len(), 80);
    // What was written is on the disk, and nothing else was touched.
    for n in 0..40_usize {
        let at = (20_000 + n * 8) * SECTOR;
        assert!(device.disk.data[at..at + 8 * SECTOR].iter().all(|b| *b == n as u8 + 1));
    }
    assert!(device.done.iter().all(|(r, data, _)| !r.op.is_read() || data.iter().all(|b| *b == 0)));
    (device.now.since(Instant::ZERO), device.commands)
}

fn main() {
    for policy in AnyPolicy::NAMES {
        let (time, commands) = job(policy);
        println!("{policy:<12} {:>5} ms in {commands} commands", time.as_millis());
    }
}

#[test]
fn every_policy_does_the_work_and_order_pays() {
    let all: Vec<_> = AnyPolicy::NAMES.iter().map(|p| (*p, job(p))).collect();
    let time = |name: &str| all.iter().find(|(p, _)| *p == name).expect("built in").1.0;
    assert!(time("mq-deadline") < time("none"), "{all:?}");
}

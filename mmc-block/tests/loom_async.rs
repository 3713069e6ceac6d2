//! Every interleaving, by loom, of what tasks, the interrupt and the runner of the async front share: the lock with the disk and
//! its wakers, and who is armed for the interrupt. The disk inside the lock is the real core with a device that does one
//! command at a time and then raises its line; what goes on under the lock is one step.
//!
//! A wake-up that is lost ends as a deadlock, which loom reports.

mod common;

use common::{card, read, write};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use mmc_block::{
    Abandoned, AnyDisk, Async, Core, Done, Env, Handle, Job, Lends, Limits, Lock, Next, Refusal, Refused,
    Settings, Stopped, Tag, Ticket, Watch, Wipe, Work,
};
use mmc_mock::card::SdCard;
use mmc_mock::{Buf, BufBatch, MockHost};
use mmc_proto::host::{Supervised, Why};
use mmc_sched::{NoSched, Queue, Request, Slot};
use mmc_time::Instant;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

/// A bell that stays rung until somebody has heard it.
struct Bell(Mutex<bool>, Condvar);

impl Bell {
    fn new() -> Self {
        Self(Mutex::new(false), Condvar::new())
    }
    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }
    fn hear(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// The wire between disk and device. Its registers are behind locks: loom lets a swap that came first see a later store.
struct Line {
    doorbell: Bell,
    /// A command was sent; it has ended.
    going: Mutex<bool>,
    ended: Mutex<bool>,
}

fn clear(flag: &Mutex<bool>) -> bool {
    std::mem::take(&mut *flag.lock().unwrap())
}

/// The core and a device.
struct Wired {
    core: Core<Queue<Vec<Slot>, NoSched>, Vec<Tag<Buf>>, Buf>,
    batch: BufBatch,
    job: Option<Job>,
    /// Accepted, and not taken or abandoned; of them, those that are over.
    live: Vec<Ticket>,
    done: Vec<Done<Buf>>,
    line: Arc<Line>,
}

impl Wired {
    fn forget(&mut self, ticket: Ticket) -> Option<Done<Buf>> {
        self.live.retain(|t| *t != ticket);
        let at = self.done.iter().position(|d| d.ticket == ticket)?;
        Some(self.done.swap_remove(at))
    }
}

impl AnyDisk for Wired {
    type Buffer = Buf;
    fn submit(&mut self, r: Request, buffer: Buf, now: Instant) -> Result<Ticket, Refused<Buf>> {
        let ticket = self.core.submit(r, buffer, now)?;
        self.live.push(ticket);
        Ok(ticket)
    }
    fn submit_bare(&mut self, r: Request, now: Instant) -> Result<Ticket, Refusal> {
        let ticket = self.core.submit_bare(r, now)?;
        self.live.push(ticket);
        Ok(ticket)
    }
    fn submit_wipe(&mut self, r: Request, how: Wipe, now: Instant) -> Result<Ticket, Refusal> {
        let ticket = self.core.submit_wipe(r, how, now)?;
        self.live.push(ticket);
        Ok(ticket)
    }
    fn poll(&mut self, now: Instant) -> Next {
        const WAIT: Next = Next::Wait { why: Why::Interrupt, until: Instant::NEVER };
        loop {
            if let Some(job) = self.job.take() {
                if !clear(&self.line.ended) {
                    self.job = Some(job);
                    return WAIT;
                }
                let blocks = job.run().blocks;
                self.core.finish(job, Ok(blocks), Some(&mut self.batch), now);
            }
            while let Some(done) = self.core.take_done() {
                self.done.push(done);
            }
            match self.core.next(&mut self.batch, now) {
                Work::Run(job) => {
                    let _ = self.core.start(&job, now);
                    self.job = Some(job);
                    *self.line.going.lock().unwrap() = true;
                    self.line.doorbell.ring();
                }
                Work::Idle => return Next::Idle,
                Work::Flush | Work::Wait { .. } => return WAIT,
            }
        }
    }
    fn take(&mut self, ticket: Ticket) -> Option<Done<Buf>> {
        self.forget(ticket)
    }
    fn take_done(&mut self) -> Option<Done<Buf>> {
        let ticket = self.done.first()?.ticket;
        self.forget(ticket)
    }
    fn abandon(&mut self, ticket: Ticket, now: Instant) -> Abandoned<Buf> {
        match self.forget(ticket) {
            Some(done) => Abandoned::Done(done),
            None => self.core.abandon(ticket, now),
        }
    }
    fn shutdown(&mut self, _: Instant) {
        self.core.stop(Stopped::Shutdown);
    }
    fn is_over(&self, ticket: Ticket) -> bool {
        !self.live.contains(&ticket) || self.done.iter().any(|d| d.ticket == ticket)
    }
    fn forgotten(&self, _: Instant) -> Option<Ticket> {
        None
    }
    fn places(&self) -> usize {
        PLACES
    }
    fn stopped(&self) -> Option<Stopped> {
        self.core.stopped()
    }
    fn blocks(&self) -> u64 {
        self.core.card().blocks
    }
    fn limits(&self) -> Limits {
        LIMITS
    }
}

/// It has no host to lend.
impl Lends for Wired {
    type Host = Supervised<MockHost<BufBatch, SdCard>>;
    fn ask_for_host(&mut self) {}
    fn lent(&mut self) -> Option<&mut Self::Host> {
        None
    }
    fn give_back(&mut self) {}
    fn evict(&mut self, _: Instant) {}
}

const PLACES: usize = 2;
const LIMITS: Limits = Limits { max_blocks: 8, max_segments: 2 };

/// The system: its lock, its clock that stands still, and who is woken by the interrupt.
struct World {
    disk: Mutex<Async<Wired, Vec<Watch>>>,
    armed: Mutex<Option<Waker>>,
    line: Arc<Line>,
}

impl Lock for World {
    type Disk = Wired;
    type Watches = Vec<Watch>;
    fn with<R>(&self, f: impl FnOnce(&mut Async<Wired, Vec<Watch>>) -> R) -> R {
        f(&mut self.disk.lock().unwrap())
    }
}

impl Env for World {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
    fn arm(&self, waker: &Waker, _: Instant) {
        *self.armed.lock().unwrap() = Some(waker.clone());
    }
}

/// A thread that sleeps until it is woken.
struct Sleeper(Bell);

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.ring();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let sleeper = std::sync::Arc::new(Sleeper(Bell::new()));
    let waker = Waker::from(sleeper.clone());
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => sleeper.0.hear(),
        }
    }
}

/// Runs `tasks` beside a runner and a device, in every order with at most so many preemptions; then nothing is left over.
fn model(preemptions: usize, tasks: &'static [fn(Handle<'_, World, World>)]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let (going, ended) = (Mutex::new(false), Mutex::new(false));
        let line = Arc::new(Line { doorbell: Bell::new(), going, ended });
        let queue = Queue::new(vec![Slot::FREE; PLACES], NoSched::new());
        let tags = (0..PLACES).map(|_| Tag::new()).collect();
        let core = Core::new(queue, card(), LIMITS, tags, Settings::default(), ()).unwrap();
        let batch = BufBatch::new(2);
        let disk = Wired { core, batch, job: None, live: vec![], done: vec![], line: line.clone() };
        let watches = (0..PLACES).map(|_| Watch::new()).collect();
        let disk = Mutex::new(Async::new(disk, watches).unwrap());
        let world = Arc::new(World { disk, armed: Mutex::new(None), line });
        let on = |f: fn(&World)| {
            let world = world.clone();
            thread::spawn(move || f(&world))
        };
        let runner = on(|world| block_on(Handle::new(world, world).runner()));
        // Rung without a command: nothing more will come.
        let device = on(|world| {
            let heard = |line: &Line| {
                line.doorbell.hear();
                clear(&line.going)
            };
            while heard(&world.line) {
                *world.line.ended.lock().unwrap() = true;
                let armed = world.armed.lock().unwrap().clone();
                if let Some(waker) = armed {
                    waker.wake();
                }
            }
        });
        let others: Vec<_> = tasks[1..]
            .iter()
            .map(|task| {
                let (world, task) = (world.clone(), *task);
                thread::spawn(move || task(Handle::new(&*world, &*world)))
            })
            .collect();
        let handle = Handle::new(&*world, &*world);
        tasks[0](handle);
        others.into_iter().for_each(|task| task.join().unwrap());
        handle.with(|disk, now| disk.shutdown(now));
        runner.join().unwrap();
        world.line.doorbell.ring();
        device.join().unwrap();
        handle.with(|disk, _| {
            assert_eq!((disk.core.outstanding(), disk.core.tags_in_use()), (0, 0));
            assert!(disk.job.is_none() && disk.live.is_empty() && disk.done.is_empty());
        });
    });
}

fn ask(handle: Handle<'_, World, World>, r: Request) -> Done<Buf> {
    let flight = handle.submit(r, Buf(vec![0; 512])).unwrap();
    block_on(flight).unwrap()
}

#[test]
fn a_request_ends_and_its_task_hears_of_it_in_every_order() {
    model(
        3,
        &[|handle| {
            let done = ask(handle, write(8, 1));
            assert_eq!((done.result, done.attempts), (Ok(()), 1));
        }],
    );
}

#[test]
fn a_request_that_is_dropped_at_any_moment_keeps_nobody_waiting() {
    model(
        2,
        &[|handle| {
            let first = handle.submit(write(8, 1), Buf(vec![0; 512])).unwrap();
            // The same sector: it waits for the first, for as long as that is there.
            let second = handle.submit(read(8, 1), Buf(vec![0; 512])).unwrap();
            drop(first);
            assert_eq!(block_on(second).unwrap().result, Ok(()));
        }],
    );
}

#[test]
fn two_tasks_hear_of_their_own_requests_in_every_order() {
    model(
        1,
        &[
            |handle| drop(ask(handle, write(8, 1))),
            |handle| {
                assert_eq!(ask(handle, write(16, 1)).request.lba, 16);
            },
        ],
    );
}

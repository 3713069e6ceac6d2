//! Many tasks on one disk: each gets its own result, whoever is cancelled hurts nobody, and no wake-up is lost.

mod common;
mod stack;

use common::*;
use mmc_block::{
    Abandoned, AnyDisk, Async, BlockError, Care, Conversation, Core, Disk, Env, Failure, Gone, Handle,
    InPartition, Init, Lends, Lock, Media, Next, Outcome, Refusal, Served, Settings, Stopped, TooFewWatches,
    Unheard, Up, Watch, Wipe, serve,
};
use mmc_hal::{Batch, Dir};
use mmc_mock::card::{MmcCard, SdCard, Shared};
use mmc_mock::fault::{Faulty, Medium};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, MockHost};
use mmc_proto::host::{
    Capabilities, Host, HostError, Operation, Progress, Reply, SubmitError, Supervised, Why,
};
use mmc_proto::machine::{
    CardTraits, Conductor, Machine, Order, Partition, Step, Transfer, TransferOptions, Turn,
};
use mmc_sched::{AnyPolicy, Queue, Slot};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// Virtual time: an alarm, and an interrupt that hits whoever is armed at that moment.
#[derive(Clone, Default)]
struct Virtual {
    clock: Clock,
    armed: Arc<Mutex<Option<(Waker, Instant)>>>,
}

impl Virtual {
    fn interrupt(&self) {
        if let Some((waker, _)) = &*self.armed.lock().unwrap() {
            waker.wake_by_ref();
        }
    }
    /// Time moves on to the alarm. False: none is set.
    fn tick(&self) -> bool {
        let armed = self.armed.lock().unwrap().clone();
        let Some((waker, until)) = armed.filter(|a| !a.1.is_never()) else { return false };
        self.clock.advance_to(until);
        waker.wake();
        true
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

/// The system's lock. It notices when a waker is called under it.
struct Guarded<D>(Mutex<Async<D, Vec<Watch>>>);

impl<D: AnyDisk> Lock for Guarded<D> {
    type Disk = D;
    type Watches = Vec<Watch>;
    fn with<R>(&self, f: impl FnOnce(&mut Async<D, Vec<Watch>>) -> R) -> R {
        INSIDE.with(|inside| assert!(!inside.replace(true), "taken twice"));
        let result = f(&mut self.0.lock().unwrap());
        INSIDE.with(|inside| inside.set(false));
        result
    }
}

thread_local! {
    static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        assert!(!INSIDE.with(std::cell::Cell::get), "woken under the lock");
        self.0.store(true, Ordering::SeqCst);
    }
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
type Local<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What is done to a task after so many polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Drop,
    Forget,
}

/// Polls whoever was woken, and moves time when nobody was, until all but the first (the runner) are over. `cut` ends a
/// task early. Returns how often each was polled.
fn execute(tasks: Vec<Task<'_>>, env: &Virtual, cut: Option<(usize, usize, Cut)>) -> Vec<usize> {
    execute_here(tasks, env, cut)
}

/// The same for tasks that stay on their thread.
fn execute_here<F: Future<Output = ()> + ?Sized>(
    tasks: Vec<Pin<Box<F>>>,
    env: &Virtual,
    cut: Option<(usize, usize, Cut)>,
) -> Vec<usize> {
    let mut tasks: Vec<_> =
        tasks.into_iter().map(|t| (Some(t), Arc::new(Flag(AtomicBool::new(true))))).collect();
    let mut polls = vec![0; tasks.len()];
    for _ in 0..1_000_000 {
        let mut ran = false;
        for (i, (task, flag)) in tasks.iter_mut().enumerate() {
            let Some(future) = task.as_mut().filter(|_| flag.0.swap(false, Ordering::SeqCst)) else {
                continue;
            };
            ran = true;
            polls[i] += 1;
            let over = future.as_mut().poll(&mut Context::from_waker(&Waker::from(flag.clone()))).is_ready();
            if over {
                *task = None;
            } else if let Some((_, _, how)) = cut.filter(|c| (c.0, c.1) == (i, polls[i])) {
                match how {
                    Cut::Drop => drop(task.take()),
                    Cut::Forget => std::mem::forget(task.take()),
                }
            }
        }
        if tasks[1..].iter().all(|t| t.0.is_none()) {
            return polls;
        }
        assert!(ran || env.tick(), "nothing would wake anybody");
    }
    panic!("never over");
}

type FakeDisk = Disk<Plain, Queue<Vec<Slot>, AnyPolicy>, Tags, Log>;

/// A disk with so many places for requests; half as many fit into the scheduler.
fn fake(policy: &str, places: usize) -> (FakeHost, Guarded<FakeDisk>) {
    let fake = FakeHost::new(1024, 64);
    let disk = disk(&fake, AnyPolicy::by_name(policy).unwrap(), places / 2, settings(16));
    let watches = (0..places).map(|_| Watch::new()).collect();
    (fake, Guarded(Mutex::new(Async::new(disk, watches).unwrap())))
}

/// Writes, reads back, does it again elsewhere, flushes. Each pair of tasks has neighbouring sectors, so that requests merge.
async fn work<L: Lock<Disk: AnyDisk<Buffer = Buf>>>(
    disk: Handle<'_, L, Virtual>,
    n: usize,
    done: &AtomicUsize,
) {
    for round in 0..2 {
        let lba = (round * 1000 + n * 4) as u64;
        let data: Vec<u8> = (0..2048).map(|i| (i % 251 + n) as u8).collect();
        disk.write(lba, Buf(data.clone())).await.unwrap();
        assert_eq!(disk.read(lba, Buf(vec![0; 2048])).await.unwrap().0, data, "task {n}");
    }
    disk.flush().await.unwrap();
    done.fetch_add(1, Ordering::SeqCst);
}

/// The runner and `n` tasks at work.
fn crowd<'a, L>(disk: Handle<'a, L, Virtual>, n: usize, done: &'a AtomicUsize) -> Vec<Task<'a>>
where
    L: Lock<Disk: Lends<Buffer = Buf>> + Sync,
{
    let mut tasks: Vec<Task<'a>> = vec![Box::pin(disk.runner())];
    tasks.extend((0..n).map(|i| Box::pin(work(disk, i, done)) as Task<'a>));
    tasks
}

#[test]
fn sixty_four_tasks_each_get_their_own_data() {
    for policy in ["none", "mq-deadline", "bfq", "ftb"] {
        let ((host, lock), env, done) = (fake(policy, 64), Virtual::default(), AtomicUsize::new(0));
        let polls = execute(crowd(Handle::new(&lock, &env), 64, &done), &env, None);
        assert_eq!(done.load(Ordering::SeqCst), 64, "{policy}");
        // Five requests each: woken once for each at most, and once to begin.
        assert!(polls[1..].iter().all(|p| *p <= 6), "{policy}: {polls:?}");
        let commands = host.lock().seen.len();
        assert!(commands <= 64 * 4 && (policy != "mq-deadline" || commands < 64), "{policy}: {commands}");
        assert_eq!(host.lock().overlaps, 0);
    }
}

#[test]
fn on_the_simulated_card_time_is_the_cards() {
    let MockBench { card, host, identified, now } = MockBench::new(Profile::a1());
    type H = Supervised<MockHost<BufBatch, Shared<SdCard>>>;
    let queue = Queue::new(vec![Slot::FREE; 64], AnyPolicy::by_name("bfq").unwrap());
    let settings = Settings::default();
    let disk: Disk<H, _, Tags> =
        Disk::new(host, queue, identified.traits, BufBatch::new(64), tags(64), settings, ()).unwrap();
    let lock = Guarded(Mutex::new(Async::new(disk, (0..64).map(|_| Watch::new()).collect()).unwrap()));
    let (env, done) = (Virtual::default(), AtomicUsize::new(0));
    env.clock.advance_to(now);
    execute(crowd(Handle::new(&lock, &env), 64, &done), &env, None);
    assert_eq!(done.load(Ordering::SeqCst), 64);
    assert!(mmc_mock::card::Card::violations(&card).is_empty());
}

/// One task of eight is cut after `at` polls; the seven others must get all they wanted, soon, and afterwards every
/// place of the table is free again.
fn cut(policy: &str, victim: usize, at: usize, how: Cut) {
    let ((host, lock), env, done) = (fake(policy, 8), Virtual::default(), AtomicUsize::new(0));
    let disk = Handle::new(&lock, &env);
    execute(crowd(disk, 8, &done), &env, Some((victim, at, how)));
    let name = format!("{policy}, task {victim} {how:?} after {at} polls");
    assert!(done.load(Ordering::SeqCst) >= 7, "{name}");
    // A withdrawn request may take a merged run apart, but each of 8 x 4 takes one command at most.
    assert!(env.clock.now() <= Instant::ZERO + SERVICE.saturating_mul(32), "{name}: {:?}", env.clock.now());

    // What the cut left in the disk ends; at most one place is kept, until it is reaped.
    execute(vec![Box::pin(disk.runner()), Box::pin(async { disk.flush().await.unwrap() })], &env, None);
    while let Next::Wait { until, .. } = disk.with(|d, now| d.poll(now)) {
        env.clock.advance_to(until);
    }
    env.clock.advance(SERVICE);
    let reaped = disk.reap(env.clock.now());
    assert!(reaped <= usize::from(how == Cut::Forget), "{name}: {reaped} reaped");
    let flights: Vec<_> = (0..8).map(|i| disk.submit(read(i * 8, 1), Buf(vec![0; 512])).unwrap()).collect();
    let full = disk.submit(read(0, 1), Buf(vec![7; 512])).unwrap_err();
    assert_eq!((full.error, full.buffer), (Refusal::TableFull, Buf(vec![7; 512])), "{name}");
    drop(flights);
    assert_eq!(host.lock().overlaps, 0);
}

#[test]
fn a_cut_at_any_await_point_costs_nobody_else_anything() {
    let (mut cuts, mut polls) = (0, Vec::new());
    for policy in ["none", "mq-deadline", "bfq"] {
        let ((_, lock), env, done) = (fake(policy, 8), Virtual::default(), AtomicUsize::new(0));
        polls = execute(crowd(Handle::new(&lock, &env), 8, &done), &env, None);
        for (victim, polls) in polls.iter().enumerate().skip(1) {
            for at in 1..*polls {
                for how in [Cut::Drop, Cut::Forget] {
                    cut(policy, victim, at, how);
                    cuts += 1;
                }
            }
        }
    }
    assert!(cuts >= 3 * 8 * 4 * 2, "{cuts} cuts, {polls:?}");
}

#[test]
fn without_a_runner_nothing_is_lost_and_the_next_one_goes_on() {
    let ((_, lock), env, done) = (fake("none", 8), Virtual::default(), AtomicUsize::new(0));
    let disk = Handle::new(&lock, &env);
    let mut first = Box::pin(disk.runner());
    let mut task = Box::pin(work(disk, 0, &done));
    let idle = &mut Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(idle).is_pending());
    assert!(first.as_mut().poll(idle).is_pending(), "a command runs");
    drop(first);
    assert!(task.as_mut().poll(idle).is_pending());
    execute(vec![Box::pin(disk.runner()), task], &env, None);
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[test]
fn a_shutdown_ends_the_runner_and_every_request() {
    let ((_, lock), env) = (fake("mq-deadline", 16), Virtual::default());
    let disk = Handle::new(&lock, &env);
    let mut flights: Vec<_> =
        (0..8).map(|i| disk.submit(write(i * 16, 8), Buf(vec![1; 4096])).unwrap()).collect();
    let mut runner = Box::pin(disk.runner());
    let idle = &mut Context::from_waker(Waker::noop());
    assert!(runner.as_mut().poll(idle).is_pending());
    disk.with(AnyDisk::shutdown);
    while runner.as_mut().poll(idle).is_pending() {
        assert!(env.tick());
    }
    for flight in &mut flights {
        let Poll::Ready(Ok(done)) = Pin::new(&mut *flight).poll(idle) else { panic!("not over") };
        assert!(done.result.is_err() && done.buffer.is_some());
        assert!(flight.ticket().is_none());
        assert!(matches!(Pin::new(flight).poll(idle), Poll::Ready(Err(Gone))), "once");
    }
    assert!(disk.submit(read(0, 1), Buf(vec![0; 512])).is_err());
}

#[test]
fn who_drops_a_request_is_not_woken_for_it() {
    let ((_, lock), env) = (fake("none", 4), Virtual::default());
    let disk = Handle::new(&lock, &env);
    let flags = [(); 2].map(|()| Arc::new(Flag(AtomicBool::new(false))));
    let mut flights = [0, 100].map(|lba| disk.submit(read(lba, 1), Buf(vec![0; 512])).unwrap());
    for (flight, flag) in flights.iter_mut().zip(&flags) {
        let waker = Waker::from(flag.clone());
        assert!(Pin::new(flight).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let held = || flags.each_ref().map(Arc::strong_count);
    assert_eq!(held(), [2, 2]);
    let [gone, stays] = flights;
    drop(gone);
    assert_eq!(held(), [1, 2], "one waker is kept: whose request goes on to be wanted");
    let mut runner = Box::pin(disk.runner());
    for _ in 0..20 {
        assert!(runner.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        env.tick();
    }
    assert_eq!(flags.each_ref().map(|flag| flag.0.load(Ordering::SeqCst)), [false, true]);
    drop(stays);
}

#[test]
fn what_was_reaped_is_told_to_who_comes_late() {
    let ((_, lock), env) = (fake("none", 4), Virtual::default());
    let disk = Handle::new(&lock, &env);
    let mut late = disk.submit(read(0, 1), Buf(vec![0; 512])).unwrap();
    while let Next::Wait { until, .. } = disk.with(|d, now| d.poll(now)) {
        env.clock.advance_to(until);
    }
    assert_eq!(disk.reap(env.clock.now()), 0, "it is only just over");
    env.clock.advance(SERVICE);
    assert_eq!(disk.reap(env.clock.now()), 1);
    let idle = &mut Context::from_waker(Waker::noop());
    assert!(matches!(Pin::new(&mut late).poll(idle), Poll::Ready(Err(Gone))));
    drop(late);

    let few = Async::new(lock.0.into_inner().unwrap().into_disk(), [const { Watch::new() }; 3]);
    assert_eq!(few.unwrap_err(), TooFewWatches { watches: 3, tags: 4 });
}

/// A host whose interrupt comes as soon as a command is submitted, before anybody could arm for it.
struct Early {
    inner: Plain,
    env: Virtual,
}

impl Host for Early {
    type Payload = BufBatch;
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn submit(
        &mut self,
        op: Operation<BufBatch>,
        until: Instant,
        now: Instant,
    ) -> Result<(), SubmitError<BufBatch>> {
        self.inner.submit(op, until, now)?;
        ARRIVED.with(|a| a.set(false));
        Ok(())
    }
    fn poll(&mut self, now: Instant) -> Progress<BufBatch> {
        // The first look finds nothing; the interrupt comes right behind it.
        if ARRIVED.with(|a| a.replace(true)) {
            return self.inner.poll(now + SERVICE);
        }
        INTERRUPT.with(|i| *i.borrow_mut() = Some(self.env.clone()));
        Progress::Waiting { why: Why::Interrupt, until: now + Duration::from_secs(10) }
    }
    fn abort(&mut self, now: Instant) {
        self.inner.abort(now);
    }
}

thread_local! {
    static ARRIVED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static INTERRUPT: std::cell::RefCell<Option<Virtual>> = const { std::cell::RefCell::new(None) };
}

/// The interrupt that the host raised goes off when the lock is let go: between the runner's look and its alarm.
struct Interrupted<D>(Guarded<D>);

impl<D: AnyDisk> Lock for Interrupted<D> {
    type Disk = D;
    type Watches = Vec<Watch>;
    fn with<R>(&self, f: impl FnOnce(&mut Async<D, Vec<Watch>>) -> R) -> R {
        let result = self.0.with(f);
        if let Some(env) = INTERRUPT.with(|i| i.borrow_mut().take()) {
            env.interrupt();
        }
        result
    }
}

#[test]
fn an_interrupt_between_looking_and_arming_is_not_lost() {
    let (fake, env, done) = (FakeHost::new(64, 64), Virtual::default(), AtomicUsize::new(0));
    let queue = Queue::new(vec![Slot::FREE; 4], AnyPolicy::by_name("none").unwrap());
    let host = Early { inner: fake.host(), env: env.clone() };
    let disk = Disk::new(host, queue, card(), BufBatch::new(4), tags(4), settings(4), ()).unwrap();
    let watches = (0..4).map(|_| Watch::new()).collect();
    let lock = Interrupted(Guarded(Mutex::new(Async::new(disk, watches).unwrap())));
    execute(crowd(Handle::new(&lock, &env), 2, &done), &env, None);
    assert_eq!(done.load(Ordering::SeqCst), 2);
    assert!(env.clock.now() < Instant::ZERO + Duration::from_secs(10), "{:?}", env.clock.now());
}

/// A disk on the simulated card that looks after it, for converse.
type CardDisk = Disk<Supervised<MockHost<BufBatch, Shared<SdCard>>>, Queue<Vec<Slot>, AnyPolicy>, Tags>;

fn looked_after(policy: &str) -> (Shared<SdCard>, Guarded<CardDisk>, Virtual, CardTraits) {
    let MockBench { card, host, identified, now } = MockBench::new(Profile::a1());
    let queue = Queue::new(vec![Slot::FREE; 16], AnyPolicy::by_name(policy).unwrap());
    let care = Care::new(&host.capabilities());
    let mut disk =
        Disk::new(host, queue, identified.traits, BufBatch::new(16), tags(16), settings(16), ()).unwrap();
    disk.look_after(identified, Buf(vec![0; 512]), care, now).unwrap();
    let env = Virtual::default();
    env.clock.advance_to(now);
    let watches = (0..16).map(|_| Watch::new()).collect();
    (card, Guarded(Mutex::new(Async::new(disk, watches).unwrap())), env, identified.traits)
}

/// Reads sectors 7 and 8 with a conversation of its own, asks for the status with another.
async fn talk<L>(disk: Handle<'_, L, Virtual>, traits: &CardTraits, expected: u8, done: &AtomicUsize)
where
    L: Lock<Disk: Lends<Buffer = Buf, Host: Host<Payload = BufBatch>>>,
{
    let mut batch = BufBatch::new(1);
    batch.push(Buf(vec![0; 1024]), 0, 1024).unwrap();
    let transfer = Transfer::new(traits, Dir::Read, 7, 2, TransferOptions::default());
    let limit = Duration::from_secs(5);
    let (read, batch) = disk.converse(transfer, Some(batch), limit).await.unwrap();
    assert_eq!(read, Ok(2));
    assert_eq!(batch.unwrap().pop().unwrap(), Buf(vec![expected; 1024]));
    let (status, none) = disk.converse(Order::status(traits), None, limit).await.unwrap();
    assert!(status.is_ok() && none.is_none(), "{status:?}");
    done.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_task_holds_conversations_of_its_own_between_the_requests_of_others() {
    for policy in ["none", "mq-deadline", "bfq"] {
        let ((_, lock, env, traits), done) = (looked_after(policy), AtomicUsize::new(0));
        let disk = Handle::new(&lock, &env);
        let first = async { drop(disk.write(7, Buf(vec![0x5a; 1024])).await.unwrap()) };
        execute(vec![Box::pin(disk.runner()), Box::pin(first)], &env, None);
        // The crowd's first sectors lie elsewhere.
        let mut tasks = vec![Box::pin(disk.runner()) as Task<'_>];
        tasks.extend((10..16).map(|i| Box::pin(work(disk, i, &done)) as Task<'_>));
        tasks.push(Box::pin(talk(disk, &traits, 0x5a, &done)));
        let polls = execute(tasks, &env, None);
        assert_eq!(done.load(Ordering::SeqCst), 7, "{policy}");
        println!("{policy}: {polls:?} polls");
        assert_eq!(disk.with(|d, _| d.statistics().resets), 0);
    }
}

#[test]
fn a_conversation_that_is_dropped_or_forgotten_at_any_await_costs_the_others_its_time_and_no_more() {
    let crowd = |at: usize, how: Cut| {
        let ((_, lock, env, traits), done) = (looked_after("mq-deadline"), AtomicUsize::new(0));
        let (disk, begin) = (Handle::new(&lock, &env), env.clock.now());
        let mut tasks = vec![Box::pin(disk.runner()) as Task<'_>, Box::pin(talk(disk, &traits, 0, &done))];
        tasks.extend((10..14).map(|i| Box::pin(work(disk, i, &done)) as Task<'_>));
        let polls = execute(tasks, &env, Some((1, at, how)));
        (
            done.load(Ordering::SeqCst),
            polls[1],
            env.clock.now().since(begin),
            disk.with(|d, _| (d.core().stopped(), d.core().outstanding(), d.lent().is_some())),
        )
    };
    let (done, all, _, _) = crowd(usize::MAX, Cut::Drop);
    assert_eq!(done, 5);
    assert!(all > 5, "{all} polls");
    let mut cut = 0;
    for at in 1..all {
        for how in [Cut::Drop, Cut::Forget] {
            let (done, _, took, left) = crowd(at, how);
            assert_eq!((done, left), (4, (None, 0, false)), "{how:?} after {at} polls");
            // An identification; and of one that is forgotten its own limit.
            let bound = Duration::from_secs(if how == Cut::Drop { 2 } else { 7 });
            assert!(took < bound, "{how:?} after {at} polls: {took}");
            cut += 1;
        }
    }
    println!("{cut} cuts");
}

/// Says nothing and never ends.
struct Endless;

impl Machine for Endless {
    type Output = ();
    fn next(&mut self, _: Option<Result<Reply, HostError>>, _: &mut [u8], _: Instant) -> Step<()> {
        Step::Sleep(Duration::from_millis(300))
    }
}

#[test]
fn one_conversation_at_a_time_and_none_for_ever() {
    let ((_, lock, env, traits), done) = (looked_after("none"), AtomicUsize::new(0));
    let (disk, limit) = (Handle::new(&lock, &env), Duration::from_secs(2));
    let (begin, said) = (env.clock.now(), Mutex::new(Vec::new()));
    let endless = async {
        let e = disk.converse(Endless, None, limit).await.unwrap_err();
        said.lock().unwrap().push((e.error, env.clock.now().since(begin)));
    };
    let second = async {
        let batch = BufBatch::new(1);
        let e = disk.converse(Order::status(&traits), Some(batch), limit).await.unwrap_err();
        assert!(e.payload.is_some(), "it comes back");
        said.lock().unwrap().push((e.error, env.clock.now().since(begin)));
    };
    let tasks: Vec<Task<'_>> =
        vec![Box::pin(disk.runner()), Box::pin(endless), Box::pin(second), Box::pin(work(disk, 10, &done))];
    execute(tasks, &env, None);
    assert_eq!(*said.lock().unwrap(), [(Unheard::Taken, Duration::ZERO), (Unheard::Cut, limit)]);
    assert_eq!(done.load(Ordering::SeqCst), 1);
    assert_eq!(disk.with(|d, _| d.statistics().resets), 1, "nobody knew what it had done to the card");
    // The next one is served; one whose time is up before the host is free has said nothing.
    let late = async {
        let write = disk.write(2000, Buf(vec![1; 64 * 512]));
        let early = disk.converse(Order::status(&traits), None, Duration::ZERO);
        let mut write = std::pin::pin!(write);
        let begun = write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
        assert!(begun);
        assert_eq!(early.await.unwrap_err().error, Unheard::NotBegun);
        let (status, _) = disk.converse(Order::status(&traits), None, limit).await.unwrap();
        assert!(status.is_ok());
    };
    execute(vec![Box::pin(disk.runner()), Box::pin(late)], &env, None);
    assert_eq!(disk.with(|d, _| d.statistics().resets), 1);
}

#[test]
fn a_task_reads_and_writes_another_partition_while_others_use_the_disk() {
    let b = stack::Bench::new(stack::Backend::Mock, stack::emmc_card(""), false, "bfq").unwrap();
    let (env, done) = (Virtual { clock: b.clock.clone(), ..Virtual::default() }, AtomicUsize::new(0));
    let id = *b.disk.card().unwrap();
    let watches = (0..64).map(|_| Watch::new()).collect();
    let lock = Guarded(Mutex::new(Async::new(b.disk, watches).unwrap()));
    let disk = Handle::new(&lock, &env);
    let other = async {
        for (dir, byte) in [(Dir::Write, 9), (Dir::Read, 0)] {
            let mut batch = BufBatch::new(1);
            batch.push(Buf(vec![byte; 1024]), 0, 1024).unwrap();
            let machine = InPartition::transfer(&id, Partition::Boot2, dir, 5, 2).unwrap();
            let limit = Duration::from_secs(5);
            let (moved, batch) = disk.in_partition(machine, Some(batch), limit).await.unwrap();
            assert_eq!(moved, Ok(Ok(2)), "{dir:?}");
            assert_eq!(batch.unwrap().pop().unwrap(), Buf(vec![9; 1024]));
        }
        done.fetch_add(1, Ordering::SeqCst);
    };
    let mut tasks = vec![Box::pin(disk.runner()) as Task<'_>, Box::pin(other)];
    tasks.extend((0..6).map(|i| Box::pin(work(disk, i, &done)) as Task<'_>));
    execute(tasks, &env, None);
    assert_eq!(done.load(Ordering::SeqCst), 7);
    b.card.with(|c| {
        c.card_mut().with_storage(&mut |s| {
            let mut sector = [1; 512];
            s.read(5 * 512, &mut sector).unwrap();
            assert!(sector != [9; 512], "the user area has nothing of it");
        })
    });
}

#[test]
fn a_disk_that_does_not_look_after_its_card_stops_when_a_conversation_was_left_halfway() {
    let ((_, lock), env) = (fake("none", 4), Virtual::default());
    let disk = Handle::new(&lock, &env);
    let held = Box::pin(async {
        let _ = disk.converse(Endless, None, Duration::from_secs(2)).await;
    });
    let wanted = Box::pin(async {
        let failed = disk.read(0, Buf(vec![0; 512])).await.unwrap_err();
        assert!(failed.buffer.is_some());
        assert!(matches!(
            failed.error,
            Failure::Failed(BlockError::Stopped(Stopped::Deserted))
                | Failure::Refused(Refusal::Stopped(Stopped::Deserted))
        ));
    });
    // The second poll of the conversation has the host.
    execute(vec![Box::pin(disk.runner()), held, wanted], &env, Some((1, 2, Cut::Drop)));
    assert_eq!(disk.with(|d, _| d.core().stopped()), Some(Stopped::Deserted));
}

#[test]
fn the_async_front_flushes_discards_zeroes_and_wipes() {
    let ((_, lock, env, _), done) = (looked_after("ftb"), AtomicUsize::new(0));
    let disk = Handle::new(&lock, &env);
    let task = async {
        disk.write(64, Buf(vec![3; 1024])).await.unwrap();
        disk.flush().await.unwrap();
        disk.discard(64, 2).await.unwrap();
        let unsupported = disk.write_zeroes(64, 2).await.unwrap_err();
        assert_eq!(unsupported, Failure::Refused(Refusal::Unsupported(mmc_sched::Op::WriteZeroes)));
        let refused = disk.wipe(Wipe::SecureTrim, 64, 2).await.unwrap_err();
        assert_eq!(refused, Failure::Refused(Refusal::NotOffered(Wipe::SecureTrim)));
        done.fetch_add(1, Ordering::SeqCst);
    };
    execute(vec![Box::pin(disk.runner()), Box::pin(task)], &env, None);
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

/// Everything can go to another thread.
fn movable<T: Send>(t: T) -> T {
    t
}

#[test]
fn handles_runners_and_requests_are_send() {
    let ((_, lock), env) = (fake("none", 4), Virtual::default());
    let disk = movable(Handle::new(&lock, &env));
    drop(movable(disk.runner()));
    drop(movable(disk.submit(read(0, 1), Buf(vec![0; 512])).unwrap()));
}

type EmmcHost = Supervised<MockHost<BufBatch, Shared<Faulty<MmcCard>>>>;
type ServedDisk = Served<Queue<Vec<Slot>, AnyPolicy>, Tags, Buf>;

/// A disk without a host of its own, on an eMMC whose cache is on, and the host that somebody else holds.
fn served(cares: bool) -> (Shared<Faulty<MmcCard>>, EmmcHost, Guarded<ServedDisk>, Virtual) {
    let mut caps = Capabilities::new();
    (caps.max_segments, caps.max_hz) = (64, 50_000_000);
    let card = Shared::new(stack::emmc_card(""));
    let mut host = MockHost::new(card.clone(), caps);
    let mut init = Init::new(&caps, BufBatch::new(1), Buf(vec![0; 512])).unwrap();
    let env = Virtual::default();
    let id = loop {
        match init.poll(&mut host, env.now()) {
            Up::Wait { until, .. } => env.clock.advance_to(until),
            Up::Done { card, .. } => break card.unwrap(),
        }
    };
    card.with(|c| c.card_mut().expect_loss(true));
    let queue = Queue::new(vec![Slot::FREE; 32], AnyPolicy::by_name("mq-deadline").unwrap());
    let core = Core::new(queue, id.traits, caps.into(), tags(32), settings(16), ()).unwrap();
    let mut disk = Served::new(core);
    assert!(disk.card().is_none());
    let care = Care { cache: true, ..Care::new(&caps) };
    if cares {
        disk.look_after(id, Buf(vec![0; 512]), care, &caps, Default::default()).unwrap();
    }
    let watches = (0..32).map(|_| Watch::new()).collect();
    (card, host, Guarded(Mutex::new(Async::new(disk, watches).unwrap())), env)
}

/// Holds a conversation as an awaited bus would.
async fn hold(host: &mut EmmcHost, env: &Virtual, talk: &Conversation, batch: &mut BufBatch) -> Outcome {
    let payload = std::mem::replace(batch, BufBatch::new(16));
    let mut conductor = Conductor::new(*talk, Some(payload));
    let (outcome, payload) = std::future::poll_fn(|cx| match conductor.poll(host, env.now()) {
        Turn::Done(outcome, payload) => Poll::Ready((outcome, payload)),
        Turn::Wait { until, .. } => {
            env.arm(cx.waker(), until);
            Poll::Pending
        }
    })
    .await;
    *batch = payload.expect("it comes back");
    outcome
}

#[test]
fn a_disk_whose_bus_is_awaited_serves_many_tasks_and_its_cards_cache() {
    let ((card, mut host, lock, env), done) = (served(true), AtomicUsize::new(0));
    let (disk, mut batch) = (Handle::new(&lock, &env), BufBatch::new(16));
    let service = serve(disk, &mut batch, async |talk, batch| hold(&mut host, &env, talk, batch).await);
    let mut tasks: Vec<Local<'_>> = vec![Box::pin(service)];
    tasks.extend((0..8).map(|i| Box::pin(work(disk, i, &done)) as Local<'_>));
    let polls = execute_here(tasks, &env, None);
    assert_eq!(done.load(Ordering::SeqCst), 8);
    assert!(polls[1..].iter().all(|p| *p <= 6), "each is woken once for each request: {polls:?}");
    assert_eq!(card.with(|c| c.card_mut().volatile()), 0, "all of them have flushed");
    // Whoever serves next goes on; a shutdown ends the service, too.
    let end = async {
        let count = || (disk.with(|d, _| d.core().statistics().flushes), card.with(|c| c.seen(false, 38)));
        let (flushes, erases) = count();
        disk.discard(64, 2).await.unwrap();
        disk.write_zeroes(64, 2).await.unwrap();
        assert_eq!(count(), (flushes, erases + 2));
        disk.barrier().await.unwrap();
        disk.flush().await.unwrap();
        assert_eq!(count(), (flushes + 2, erases + 2));
        disk.with(AnyDisk::shutdown);
    };
    let service = serve(disk, &mut batch, async |talk, batch| hold(&mut host, &env, talk, batch).await);
    let tasks: Vec<Local<'_>> = vec![Box::pin(async {}), Box::pin(service), Box::pin(end)];
    execute_here(tasks, &env, None);
    let s = disk.with(|d, _| *d.core().statistics());
    assert!(s.flushes > 0 && s.failed == 0, "{s:?}");
}

#[test]
fn a_flush_that_is_left_halfway_is_told_so_and_never_a_success() {
    let (mut told, mut well) = (0, false);
    for polls in 1..200 {
        let (card, mut host, lock, env) = served(true);
        let disk = Handle::new(&lock, &env);
        let mut batch = BufBatch::new(16);
        let idle = &mut Context::from_waker(Waker::noop());
        let mut data = disk.submit(write(64, 8), Buf(vec![5; 4096])).unwrap();
        let mut flush = None;
        let mut service =
            Box::pin(serve(disk, &mut batch, async |talk, batch| hold(&mut host, &env, talk, batch).await));
        for _ in 0..polls {
            assert!(service.as_mut().poll(idle).is_pending(), "nobody has shut it down");
            env.tick();
            if flush.is_none() && Pin::new(&mut data).poll(idle).is_ready() {
                let request = mmc_sched::Request { flags: mmc_sched::Flags::PREFLUSH, ..write(0, 0) };
                flush = Some(disk.submit_bare(request).unwrap());
            }
        }
        drop(service);
        let Some(mut flush) = flush else { continue };
        let Poll::Ready(done) = Pin::new(&mut flush).poll(idle) else { continue };
        match done.unwrap().result {
            Ok(()) => well = card.with(|c| c.card_mut().volatile()) == 0,
            Err(e) => assert_eq!(e, BlockError::Stopped(Stopped::Deserted), "after {polls} polls"),
        }
        told += usize::from(!well);
        if well {
            break;
        }
    }
    assert!(told > 0 && well, "{told}");
}

#[test]
fn a_disk_that_nobody_serves_takes_requests_and_tells_what_it_knows() {
    let (_, _, lock, _) = served(false);
    let mut d = lock.0.into_inner().unwrap().into_disk();
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    assert_eq!((d.places(), d.blocks() > 100_000, d.limits().max_segments), (32, true, 64));
    assert_eq!((d.stopped(), d.media(), d.poll(at(0))), (None, Media::Same, Next::Idle));
    let [a, b] = [0, 100].map(|lba| d.submit(write(lba, 8), Buf(vec![1; 4096]), at(0)).unwrap());
    assert!(!d.is_over(a) && d.take(a).is_none() && d.take_done().is_none());
    assert!(matches!(d.abandon(a, at(1)), Abandoned::Withdrawn(Buf(data)) if data == [1; 4096]));
    assert!(d.is_over(a), "nobody knows it any more");
    let discard = mmc_sched::Request { op: mmc_sched::Op::Discard, ..write(200, 8) };
    assert_eq!(
        d.submit_bare(discard, at(1)),
        Err(Refusal::Unsupported(mmc_sched::Op::Discard)),
        "nobody cares"
    );
    let not_offered = Err(Refusal::NotOffered(Wipe::SecureTrim));
    assert_eq!(d.submit_wipe(discard, Wipe::SecureTrim, at(1)), not_offered);
    let c = d.submit(write(200, 8), Buf(vec![1; 4096]), at(1)).unwrap();
    d.shutdown(at(2));
    assert_eq!(d.stopped(), Some(Stopped::Shutdown));
    assert!(d.submit_bare(discard, at(2)).is_err());
    assert_eq!(d.forgotten(at(100)), None, "nothing is over before somebody serves it");
    let lock = Guarded(Mutex::new(Async::new(d, (0..32).map(|_| Watch::new()).collect::<Vec<_>>()).unwrap()));
    let env = Virtual::default();
    env.clock.advance_to(at(2));
    let disk = Handle::new(&lock, &env);
    let mut batch = BufBatch::new(16);
    let mut service = Box::pin(serve(disk, &mut batch, async |_, _| panic!("nothing is sent any more")));
    assert!(service.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let (first, forgotten) =
        disk.with(|d, _| (d.take_done().unwrap(), [d.forgotten(at(2)), d.forgotten(at(3))]));
    assert_eq!(first.result, Err(BlockError::Stopped(Stopped::Shutdown)));
    assert!([b, c].contains(&first.ticket));
    assert!(forgotten[0].is_none() && [b, c].map(Some).contains(&forgotten[1]));
    assert_eq!(disk.reap(at(3)), 1);
}

#[test]
fn whatever_is_printed_for_debugging_says_what_it_is_and_shows_nobodys_data() {
    let shows = |thing: &dyn std::fmt::Debug, name: &str, more: &str| {
        let text = format!("{thing:?}");
        assert!(text.starts_with(name) && text.contains(more), "{text}");
        assert!(!text.contains("221, 221"), "{name} prints data: {text}");
    };
    let secret = || Buf(vec![221; 512]);
    let ((_, lock), env) = (fake("bfq", 4), Virtual::default());
    let disk = Handle::new(&lock, &env);
    let flight = disk.submit(write(7, 1), secret()).unwrap();
    shows(&disk, "Handle", "");
    shows(&disk.runner(), "Runner", "");
    shows(&flight, "InFlight", "ticket: Some(");
    shows(&*lock.0.lock().unwrap(), "Async { disk: Disk { core: Core { scheduler: \"bfq\"", "outstanding: 1");
    let refused = disk.with(|d, now| d.submit(write(SECTORS, 1), secret(), now)).unwrap_err();
    shows(&refused, "Refused", "OutOfRange");
    let done = disk.with(|d, mut now| {
        while let Next::Wait { until, .. } = d.poll(now) {
            shows(d, "Disk", "running: Some(Run");
            now = until;
        }
        d.take(flight.ticket().unwrap()).unwrap()
    });
    shows(&done, "Done", "attempts: 1");
    shows(&mmc_block::Tag::<Buf>::new(), "Tag", "state: None");
    shows(&mmc_block::Failed { error: Failure::Lost, buffer: Some(secret()) }, "Failed", "Lost");
    shows(&mmc_block::Unserved { error: Unheard::Cut, payload: Some(secret()) }, "Unserved", "Cut");
    let id = *stack::Bench::new(stack::Backend::Mock, stack::emmc_card(""), false, "none")
        .unwrap()
        .disk
        .card()
        .unwrap();
    shows(&InPartition::transfer(&id, Partition::Boot1, Dir::Read, 0, 1).unwrap(), "InPartition", "Select");
    let queue = Queue::new(vec![Slot::FREE; 2], AnyPolicy::by_name("ftb").unwrap());
    let core: Core<_, _, Buf> = Core::new(
        queue,
        card(),
        mmc_block::Limits { max_blocks: 8, max_segments: 1 },
        tags(2),
        settings(2),
        (),
    )
    .unwrap();
    shows(&Served::new(core), "Served { core: Core { scheduler: \"ftb\"", "slot");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Any number of tasks, cut anywhere: whoever is left gets what it asked for.
    #[test]
    fn any_task_can_go_at_any_time(
        tasks in 2_usize..24,
        victim in 1_usize..24,
        at in 1_usize..6,
        forget in any::<bool>(),
        policy in prop::sample::select(vec!["none", "mq-deadline", "bfq", "kyber", "ftb", "cfq"]),
    ) {
        let ((_, lock), env, done) = (fake(policy, 48), Virtual::default(), AtomicUsize::new(0));
        let how = if forget { Cut::Forget } else { Cut::Drop };
        let cut = Some((victim.min(tasks), at, how));
        let disk = Handle::new(&lock, &env);
        execute(crowd(disk, tasks, &done), &env, cut);
        prop_assert!(done.load(Ordering::SeqCst) >= tasks - 1);
    }
}

//! Many tasks on one disk: each gets its own result, whoever is cancelled hurts nobody, and no wake-up is lost.

mod common;

use common::*;
use mmc_block::{Async, Disk, Env, Gone, Handle, Lock, Next, Refusal, Settings, TooFewWatches, Watch};
use mmc_mock::card::{SdCard, Shared};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, MockHost};
use mmc_proto::host::{Capabilities, Host, Operation, Progress, SubmitError, Supervised, Why};
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

impl<D: mmc_block::AnyDisk> Lock for Guarded<D> {
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

/// What is done to a task after so many polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Drop,
    Forget,
}

/// Polls whoever was woken, and moves time when nobody was, until all but the first (the runner) are over. `cut` ends a
/// task early. Returns how often each was polled.
fn execute(tasks: Vec<Task<'_>>, env: &Virtual, cut: Option<(usize, usize, Cut)>) -> Vec<usize> {
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
async fn work<L: Lock<Disk: mmc_block::AnyDisk<Buffer = Buf>>>(
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
    L: Lock<Disk: mmc_block::AnyDisk<Buffer = Buf>> + Sync,
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
    disk.with(mmc_block::AnyDisk::shutdown);
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

impl<D: mmc_block::AnyDisk> Lock for Interrupted<D> {
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

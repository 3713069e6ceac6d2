//! A simulator in virtual time: tasks are futures, time jumps from event to event, and whatever is not a task (the
//! disk) is driven through [`Machine`].
//!
//! Single threaded and deterministic: the same tasks give the same run. No wakers: a future registers the task
//! that polls it with a [`Signal`] or a timer.

use mmc_mock::Clock;
use mmc_time::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// What the simulator drives besides its tasks.
pub trait Machine {
    /// Does all there is to do at `now` and says when to be called again at the latest.
    fn run(&self, now: Instant) -> Instant;
}

struct Inner {
    clock: Clock,
    tasks: RefCell<Vec<Option<Task>>>,
    ready: RefCell<VecDeque<usize>>,
    timers: RefCell<BinaryHeap<Reverse<(Instant, u64, usize)>>>,
    seq: Cell<u64>,
    current: Cell<usize>,
    live: Cell<usize>,
}

/// A handle on the simulator; clones are the same one.
#[derive(Clone)]
pub struct Sim(Rc<Inner>);

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sim at {:?}", self.now())
    }
}

impl Sim {
    /// A simulator on `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self(Rc::new(Inner {
            clock,
            tasks: RefCell::default(),
            ready: RefCell::default(),
            timers: RefCell::default(),
            seq: Cell::new(0),
            current: Cell::new(0),
            live: Cell::new(0),
        }))
    }
    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }
    /// Adds a task that the run waits for; it starts at once.
    pub fn spawn(&self, f: impl Future<Output = ()> + 'static) {
        let sim = self.clone();
        self.0.live.set(self.0.live.get() + 1);
        self.daemon(async move {
            f.await;
            sim.0.live.set(sim.0.live.get() - 1);
        });
    }
    /// Adds a task that the run does not wait for (a flusher, a journal thread).
    pub fn daemon(&self, f: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.tasks.borrow_mut();
        self.0.ready.borrow_mut().push_back(tasks.len());
        tasks.push(Some(Box::pin(f)));
    }
    /// Lets `d` pass for the calling task.
    pub fn sleep(&self, d: Duration) -> Sleep {
        Sleep { sim: self.clone(), until: self.now() + d, armed: false }
    }
    fn timer(&self, at: Instant) {
        self.0.seq.set(self.0.seq.get() + 1);
        self.0.timers.borrow_mut().push(Reverse((at, self.0.seq.get(), self.0.current.get())));
    }
    fn poll_ready(&self) {
        loop {
            let next = self.0.ready.borrow_mut().pop_front();
            let Some(id) = next else { return };
            let task = self.0.tasks.borrow_mut()[id].take();
            let Some(mut task) = task else { continue };
            self.0.current.set(id);
            if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                self.0.tasks.borrow_mut()[id] = Some(task);
            }
        }
    }
    /// Runs until all spawned tasks have ended. Calls `each_step` with every new instant.
    ///
    /// # Errors
    /// When nothing can ever happen again although a task has not ended.
    pub fn run(&self, machine: &impl Machine, mut each_step: impl FnMut(Instant)) -> Result<(), Stuck> {
        loop {
            self.poll_ready();
            if self.0.live.get() == 0 {
                return Ok(());
            }
            let now = self.now();
            let device = machine.run(now);
            if !self.0.ready.borrow().is_empty() {
                continue;
            }
            let timer = self.0.timers.borrow().peek().map_or(Instant::NEVER, |t| t.0.0);
            let next = timer.min(device);
            if next.is_never() {
                return Err(Stuck { at: now });
            }
            if next > now {
                self.0.clock.advance_to(next);
                each_step(next);
            }
            let now = self.now();
            let mut timers = self.0.timers.borrow_mut();
            while timers.peek().is_some_and(|t| t.0.0 <= now) {
                if let Some(Reverse((_, _, id))) = timers.pop() {
                    self.0.ready.borrow_mut().push_back(id);
                }
            }
        }
    }
}

/// Nothing can happen any more although a task still waits.
#[derive(Debug, thiserror::Error)]
#[error("the simulation is stuck at {at:?}: every task waits and no event is due")]
pub struct Stuck {
    /// When.
    pub at: Instant,
}

/// See [`Sim::sleep`].
#[derive(Debug)]
pub struct Sleep {
    sim: Sim,
    until: Instant,
    armed: bool,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.sim.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.armed {
            self.armed = true;
            self.sim.timer(self.until);
        }
        Poll::Pending
    }
}

/// Something tasks can wait for: a wait ends with the next [`notify`](Signal::notify).
#[derive(Clone, Debug)]
pub struct Signal {
    sim: Sim,
    inner: Rc<(Cell<u64>, RefCell<Vec<usize>>)>,
}

impl Signal {
    /// A signal nobody waits for.
    #[must_use]
    pub fn new(sim: &Sim) -> Self {
        Self { sim: sim.clone(), inner: Rc::default() }
    }
    /// Wakes all who wait, in the order they came.
    pub fn notify(&self) {
        self.inner.0.set(self.inner.0.get() + 1);
        self.sim.0.ready.borrow_mut().extend(self.inner.1.borrow_mut().drain(..));
    }
    /// Waits for the next notification.
    pub fn wait(&self) -> Wait {
        Wait { signal: self.clone(), since: self.inner.0.get(), until: Instant::NEVER, armed: false }
    }
    /// Waits for the next notification, or until `until`.
    pub fn wait_until(&self, until: Instant) -> Wait {
        Wait { until, ..self.wait() }
    }
}

/// See [`Signal::wait`].
#[derive(Debug)]
pub struct Wait {
    signal: Signal,
    since: u64,
    until: Instant,
    armed: bool,
}

impl Future for Wait {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let sim = self.signal.sim.clone();
        if self.signal.inner.0.get() != self.since || sim.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.armed {
            self.armed = true;
            self.signal.inner.1.borrow_mut().push(sim.0.current.get());
            if !self.until.is_never() {
                sim.timer(self.until);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Machine for Nothing {
        fn run(&self, _: Instant) -> Instant {
            Instant::NEVER
        }
    }

    #[test]
    fn time_jumps_from_event_to_event_and_signals_wake_in_order() {
        let sim = Sim::new(Clock::new());
        let (log, signal) = (Rc::new(RefCell::new(Vec::new())), Signal::new(&sim));
        for name in ["a", "b"] {
            let (s, log, signal) = (sim.clone(), log.clone(), signal.clone());
            sim.spawn(async move {
                signal.wait().await;
                log.borrow_mut().push((s.now().as_nanos(), name));
            });
        }
        let s = sim.clone();
        sim.spawn(async move {
            s.sleep(Duration::from_nanos(5)).await;
            signal.notify();
        });
        sim.run(&Nothing, |_| ()).unwrap();
        assert_eq!(*log.borrow(), [(5, "a"), (5, "b")]);
    }

    #[test]
    fn a_run_that_can_never_end_says_so() {
        let sim = Sim::new(Clock::new());
        let signal = Signal::new(&sim);
        sim.spawn(async move { signal.wait().await });
        assert!(sim.run(&Nothing, |_| ()).is_err());
    }

    #[test]
    fn a_wait_with_a_limit_ends_at_the_limit() {
        let sim = Sim::new(Clock::new());
        let (s, signal) = (sim.clone(), Signal::new(&sim));
        sim.spawn(async move {
            signal.wait_until(Instant::from_nanos(7)).await;
            assert_eq!(s.now(), Instant::from_nanos(7));
        });
        sim.run(&Nothing, |_| ()).unwrap();
    }
}

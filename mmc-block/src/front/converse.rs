//! A conversation of one task's own with the card, between two commands of everybody's requests.

use crate::disk::Next;
use crate::error::BlockError;
use crate::front::async_front::{Async, Env, Handle, Lends, Lock, Watch};
use crate::partition::InPartition;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use mmc_proto::host::{Host, Why};
use mmc_proto::machine::{Conductor, Machine, Turn};
use mmc_time::{Duration, Instant};

/// Who wants the host for a while.
pub(super) struct Guest {
    nth: u32,
    waker: Waker,
    deadline: Instant,
    /// It has had the host.
    started: bool,
}

/// Why a conversation was not held to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unheard {
    /// Another task holds one, or waits to: one at a time.
    #[error("another conversation with the card is held, or waited for")]
    Taken,
    /// Its time was up before the host was free; nothing was said.
    #[error("the time for the conversation was up before it began")]
    NotBegun,
    /// Its time was up: the host was taken back in the middle of it, and the card identified anew.
    #[error("the time for the conversation was up; the card is identified anew")]
    Cut,
}

/// A conversation that was not held to its end.
#[derive(Clone, PartialEq, Eq)]
pub struct Unserved<P> {
    /// Why.
    pub error: Unheard,
    /// The payload; `None` if there was none, or it was in a command that was cut off (the disk drops it).
    pub payload: Option<P>,
}

impl<P> core::fmt::Debug for Unserved<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Unserved").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<D: Lends, W: AsMut<[Watch]>> Async<D, W> {
    /// Polls the disk; `Some`: whom to wake, because the host is lent to it or was taken from it.
    pub(super) fn host_guest(&mut self, now: Instant) -> (Next, Option<Waker>) {
        let next = self.disk.poll(now);
        let (Next::Lent, Some(guest)) = (next, &self.guest) else { return (next, None) };
        if now < guest.deadline {
            let until = Next::Wait { why: Why::Interrupt, until: guest.deadline };
            return (until, Some(guest.waker.clone()));
        }
        let Some(Guest { waker, started, .. }) = self.guest.take() else { return (next, None) };
        if started {
            self.disk.evict(now)
        } else {
            self.disk.give_back()
        }
        // Woken, it learns that its time was up.
        (self.disk.poll(now), Some(waker))
    }
    fn is_guest(&self, nth: u32) -> bool {
        self.guest.as_ref().is_some_and(|g| g.nth == nth)
    }
}

type HostOf<L> = <<L as Lock>::Disk as Lends>::Host;
type PayloadOf<L> = <HostOf<L> as Host>::Payload;
/// How a conversation ended, and its payload.
type Held<M, L> = (<M as Machine>::Output, Option<PayloadOf<L>>);

/// What a task knows of its place as the guest.
struct Visit<'d, L: Lock<Disk: Lends>, E: Env> {
    handle: Handle<'d, L, E>,
    /// `None`: it has not asked yet, or is over.
    nth: Option<u32>,
    started: bool,
}

/// How far a guest has come.
enum Seen<T> {
    Evicted,
    Waits,
    Armed(Instant, Option<Waker>),
    Done(T),
}

impl<L: Lock<Disk: Lends>, E: Env> Visit<'_, L, E> {
    /// Asks for the host.
    fn knock(&mut self, waker: Waker, limit: Duration) -> Result<(), Unheard> {
        let deadline = self.handle.env.now() + limit;
        let (nth, runner) = self.handle.lock.with(|a| {
            if a.guest.is_some() || a.disk.lent().is_some() {
                return (None, None);
            }
            a.guests = a.guests.wrapping_add(1);
            a.guest = Some(Guest { nth: a.guests, waker, deadline, started: false });
            a.disk.ask_for_host();
            (Some(a.guests), a.runner.take())
        });
        wake(runner);
        self.nth = nth;
        nth.map(|_| ()).ok_or(Unheard::Taken)
    }

    /// Goes on with the conversation as far as it goes now.
    fn go_on<M: Machine>(
        &mut self,
        conductor: &mut Conductor<M, PayloadOf<L>>,
        odd: &impl Fn(&M::Output) -> bool,
        cx: &Context<'_>,
    ) -> Poll<Result<Held<M, L>, Unheard>> {
        let Some(nth) = self.nth else { return Poll::Ready(Err(Unheard::Taken)) };
        let (now, waker) = (self.handle.env.now(), cx.waker().clone());
        let (seen, runner, _old) = self.handle.lock.with(|a| {
            if !a.is_guest(nth) {
                return (Seen::Evicted, None, None);
            }
            let Some(guest) = &mut a.guest else { return (Seen::Evicted, None, None) };
            let old = core::mem::replace(&mut guest.waker, waker);
            let deadline = guest.deadline;
            let Some(host) = a.disk.lent() else { return (Seen::Waits, None, Some(old)) };
            guest.started = true;
            match conductor.poll(host, now) {
                Turn::Wait { until, .. } => {
                    (Seen::Armed(until.min(deadline), a.runner.clone()), None, Some(old))
                }
                Turn::Done(output, payload) => {
                    if odd(&output) {
                        a.disk.evict(now)
                    } else {
                        a.disk.give_back()
                    }
                    let guest = a.guest.take().map(|g| g.waker);
                    (Seen::Done((output, payload)), a.runner.take(), guest)
                }
            }
        });
        self.started |= matches!(seen, Seen::Armed(..));
        wake(runner);
        match seen {
            Seen::Waits => Poll::Pending,
            Seen::Armed(until, runner) => {
                // The runner is woken by interrupts all the time the host is lent; only when is new. Without a waker
                // it is awake, and wakes us.
                if let Some(runner) = runner {
                    self.handle.env.arm(&runner, until);
                }
                Poll::Pending
            }
            Seen::Evicted => {
                self.nth = None;
                Poll::Ready(Err(if self.started { Unheard::Cut } else { Unheard::NotBegun }))
            }
            Seen::Done(done) => {
                self.nth = None;
                Poll::Ready(Ok(done))
            }
        }
    }
}

impl<L: Lock<Disk: Lends>, E: Env> Drop for Visit<'_, L, E> {
    fn drop(&mut self) {
        let Some(nth) = self.nth else { return };
        let now = self.handle.env.now();
        let (_guest, runner) = self.handle.lock.with(|a| {
            if !a.is_guest(nth) {
                return (None, None);
            }
            let guest = a.guest.take();
            if guest.as_ref().is_some_and(|g| g.started) {
                a.disk.evict(now)
            } else {
                a.disk.give_back()
            }
            (guest, a.runner.take())
        });
        wake(runner);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<L: Lock<Disk: Lends>, E: Env> Handle<'_, L, E> {
    /// Holds a conversation of the caller's own with the card, between two commands of other requests (see
    /// [`Disk::ask_for_host`](crate::Disk::ask_for_host)); `payload` as [`Conductor::new`] wants it. One at a time.
    ///
    /// It must be over within `limit` from now: nobody else is served meanwhile. When it is not, or when its future is
    /// dropped halfway, the host is taken back and the card identified anew ([`Disk::evict`](crate::Disk::evict)); one that
    /// is forgotten (`mem::forget`) costs the others that much time and no more.
    ///
    /// # Errors
    /// [`Unserved`].
    pub async fn converse<M: Machine>(
        &self,
        machine: M,
        payload: Option<PayloadOf<L>>,
        limit: Duration,
    ) -> Result<Held<M, L>, Unserved<PayloadOf<L>>> {
        self.visit(machine, payload, limit, |_| false).await
    }

    /// As [`converse`](Self::converse) in another partition; where nobody knows afterwards which is selected, the card is
    /// identified anew.
    ///
    /// # Errors
    /// [`Unserved`].
    pub async fn in_partition<M: Machine>(
        &self,
        machine: InPartition<M>,
        payload: Option<PayloadOf<L>>,
        limit: Duration,
    ) -> Result<Held<InPartition<M>, L>, Unserved<PayloadOf<L>>> {
        let odd = |r: &Result<M::Output, BlockError>| matches!(r, Err(BlockError::Partition(_)));
        self.visit(machine, payload, limit, odd).await
    }

    async fn visit<M: Machine>(
        &self,
        machine: M,
        payload: Option<PayloadOf<L>>,
        limit: Duration,
        odd: impl Fn(&M::Output) -> bool,
    ) -> Result<Held<M, L>, Unserved<PayloadOf<L>>> {
        let mut conductor = Conductor::new(machine, payload);
        let mut visit = Visit { handle: *self, nth: None, started: false };
        let result = poll_fn(|cx| {
            if visit.nth.is_none() {
                if let Err(error) = visit.knock(cx.waker().clone(), limit) {
                    return Poll::Ready(Err(error));
                }
            }
            visit.go_on(&mut conductor, &odd, cx)
        })
        .await;
        // What is still there of the payload was not in a command.
        result.map_err(|error| Unserved { error, payload: conductor.into_payload() })
    }
}

//! One engine, supervised: limits, abort, quarantine, payload keeping.

use super::{
    Capabilities, Cause, Completion, Engine, Failure, Host, HostError, Lease, Operation, Phase, Progress,
    Reply, Returned, Slot, SubmitError, Why,
};
use crate::command::Command;
use mmc_hal::Payload;
use mmc_time::{Duration, Instant};

/// Least pause between two looks at a device that is stopping.
const STOP_POLL: Duration = Duration::from_micros(1);

/// Makes a [`Host`] of an [`Engine`].
///
/// Promises: one operation at a time; exactly one completion each, not later than the caller's limit plus
/// `grace`; the first error is the one reported; a payload is handed back only when the engine says the
/// device has stopped, else it is quarantined until [`reclaim`](Self::reclaim) finds the device stopped. A
/// success whose device does not stop by itself within `grace` is told to, and becomes [`Cause::Controller`]:
/// nobody may use data that are still being written.
///
/// An operation that ends by its limit or by [`abort`](Host::abort) is reported in the last phase it has:
/// data, busy, else command.
#[derive(Debug)]
pub struct Supervised<E: Engine> {
    engine: E,
    grace: Duration,
    state: State,
    payload: Option<E::Payload>,
    /// A transfer that was handed over early, and the bytes of its data phase.
    prepared: Option<(Command, E::Payload, u64)>,
    /// A payload whose device would not stop, and the bytes of its data phase.
    quarantine: Option<(E::Payload, u64)>,
    /// The last instant somebody told us.
    seen: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    index: u8,
    bytes: u64,
    until: Instant,
    phase: Phase,
    data: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Running(Running),
    Stopping { run: Running, result: Result<Reply, HostError>, until: Instant },
}

impl<E: Engine> Supervised<E> {
    /// `grace`: how long the device may take to stop after an error or a limit (stated to callers).
    pub const fn new(engine: E, grace: Duration) -> Self {
        Self {
            engine,
            grace,
            state: State::Idle,
            payload: None,
            prepared: None,
            quarantine: None,
            seen: Instant::ZERO,
        }
    }
    /// The engine, to look at only.
    pub const fn engine(&self) -> &E {
        &self.engine
    }
    /// The payload of an operation whose device would not stop, once it has. `None`: none is kept, or the
    /// device still runs.
    pub fn reclaim(&mut self, now: Instant) -> Option<E::Payload> {
        self.seen = self.seen.max(now);
        if self.quarantine.is_some() && self.engine.halted(now) {
            let (mut p, bytes) = self.quarantine.take()?;
            self.engine.finish(Lease(&mut p, bytes));
            return Some(p);
        }
        None
    }

    fn begin(&mut self, run: Running) {
        self.state = State::Running(run);
    }

    fn check(&self, cmd: &Command, payload: Option<&E::Payload>) -> Result<u64, Cause> {
        let Some(shape) = cmd.data else {
            return if payload.is_some() {
                Err(Cause::Unsupported("data for a command without data"))
            } else {
                Ok(0)
            };
        };
        let Some(p) = payload else { return Err(Cause::Unsupported("a data command without a payload")) };
        let caps = self.engine.capabilities();
        let bytes = shape.bytes();
        if bytes == 0 {
            return Err(Cause::Unsupported("an empty data phase"));
        }
        if bytes > u64::from(caps.max_blocks).saturating_mul(512) {
            return Err(Cause::Unsupported("a data phase longer than max_blocks"));
        }
        if (p.bytes() as u64) < bytes {
            return Err(Cause::Unsupported("a payload shorter than the data phase"));
        }
        if p.segments() > usize::from(caps.max_segments) {
            return Err(Cause::Unsupported("more segments than max_segments"));
        }
        Ok(bytes)
    }

    /// The engine is done, or must stop: wait for the device, then deliver `result`.
    fn stop(&mut self, run: Running, result: Result<Reply, HostError>, now: Instant) {
        if result.is_err() {
            self.engine.halt(now);
        }
        self.state = State::Stopping { run, result, until: now + self.grace };
    }

    fn deliver(
        &mut self,
        run: Running,
        result: Result<Reply, HostError>,
        stopped: bool,
    ) -> Completion<E::Payload> {
        self.state = State::Idle;
        let payload = match self.payload.take() {
            None => Returned::None,
            Some(mut p) if stopped => {
                self.engine.finish(Lease(&mut p, run.bytes));
                Returned::Back(p)
            }
            Some(p) => {
                self.quarantine = Some((p, run.bytes));
                Returned::Quarantined
            }
        };
        Completion { result, payload }
    }
}

impl<E: Engine> Host for Supervised<E> {
    type Payload = E::Payload;

    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn submit(
        &mut self,
        op: Operation<E::Payload>,
        until: Instant,
        now: Instant,
    ) -> Result<(), SubmitError<E::Payload>> {
        let index = match &op {
            Operation::Command(c) | Operation::Transfer(c, _) => c.index,
            Operation::Bus(_) | Operation::Power(_) => 255,
        };
        let refuse = |cause, operation| {
            Err(SubmitError { error: HostError { cause, phase: Phase::Submit, index, r1: None }, operation })
        };
        self.seen = self.seen.max(now);
        if !matches!(self.state, State::Idle) || self.quarantine.is_some() {
            return refuse(Cause::Busy, op);
        }
        match op {
            Operation::Command(c) => {
                if let Err(cause) = self.check(&c, None).and_then(|_| self.engine.start(&c, None, now)) {
                    return refuse(cause, Operation::Command(c));
                }
                let phase = if c.busy { Phase::Busy } else { Phase::Command };
                self.begin(Running { index, bytes: 0, until, phase, data: false });
            }
            Operation::Transfer(c, mut p) => {
                let started = match self.check(&c, Some(&p)) {
                    Ok(bytes) => self.engine.start(&c, Some(Lease(&mut p, bytes)), now).map(|()| bytes),
                    Err(cause) => Err(cause),
                };
                match started {
                    Ok(bytes) => {
                        self.payload = Some(p);
                        self.begin(Running { index, bytes, until, phase: Phase::Data, data: true });
                    }
                    Err(cause) => return refuse(cause, Operation::Transfer(c, p)),
                }
            }
            Operation::Bus(b) => {
                if let Err(cause) = self.engine.set_bus(&b, now) {
                    return refuse(cause, Operation::Bus(b));
                }
                self.begin(Running { index, bytes: 0, until, phase: Phase::Bus, data: false });
            }
            Operation::Power(p) => {
                if let Err(cause) = self.engine.set_power(p, now) {
                    return refuse(cause, Operation::Power(p));
                }
                self.begin(Running { index, bytes: 0, until, phase: Phase::Bus, data: false });
            }
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant) -> Progress<E::Payload> {
        self.seen = self.seen.max(now);
        if let State::Running(run) = self.state {
            let lease = match (&mut self.payload, run.data) {
                (Some(p), true) => Some(Lease(p, run.bytes)),
                _ => None,
            };
            match self.engine.advance(lease, now) {
                Some(Ok(reply)) => {
                    // G6: never more bytes reported than the data phase had.
                    let result = if reply.bytes == run.bytes {
                        Ok(reply)
                    } else {
                        Err(HostError {
                            cause: Cause::Controller,
                            phase: Phase::Data,
                            index: run.index,
                            r1: None,
                        })
                    };
                    self.stop(run, result, now);
                }
                Some(Err(Failure { cause, phase, r1 })) => {
                    self.stop(run, Err(HostError { cause, phase, index: run.index, r1 }), now);
                }
                None if now >= run.until => {
                    let error =
                        HostError { cause: Cause::Limit, phase: run.phase, index: run.index, r1: None };
                    self.stop(run, Err(error), now);
                }
                None => {
                    let (why, until) = self.engine.waits(now);
                    return Progress::Waiting { why, until: until.min(run.until) };
                }
            }
        }
        match self.state {
            State::Stopping { run, result, until } => {
                if self.engine.halted(now) {
                    return Progress::Done(self.deliver(run, result, true));
                }
                if now >= until {
                    let result = result.and_then(|_| {
                        self.engine.halt(now);
                        Err(HostError {
                            cause: Cause::Controller,
                            phase: run.phase,
                            index: run.index,
                            r1: None,
                        })
                    });
                    let stopped = self.engine.halted(now);
                    return Progress::Done(self.deliver(run, result, stopped));
                }
                // An engine that names an instant that has passed shall not make the caller spin until the
                // grace ends.
                let (_, at) = self.engine.waits(now);
                Progress::Waiting { why: Why::Timer, until: at.max(now + STOP_POLL).min(until) }
            }
            _ => Progress::Idle,
        }
    }

    fn abort(&mut self, now: Instant) {
        self.seen = self.seen.max(now);
        if let State::Running(run) = self.state {
            self.stop(run, Err(HostError::new(Cause::Aborted, run.phase, run.index)), now);
        }
    }

    fn prepare(&mut self, cmd: Command, mut payload: E::Payload) -> Result<(), SubmitError<E::Payload>> {
        let result = if self.prepared.is_some() {
            Err(Cause::Busy)
        } else {
            self.check(&cmd, Some(&payload))
                .and_then(|bytes| self.engine.prepare(&cmd, Lease(&mut payload, bytes)).map(|()| bytes))
        };
        match result {
            Ok(bytes) => {
                self.prepared = Some((cmd, payload, bytes));
                Ok(())
            }
            Err(cause) => Err(SubmitError {
                error: HostError::new(cause, Phase::Submit, cmd.index),
                operation: Operation::Transfer(cmd, payload),
            }),
        }
    }

    fn submit_prepared(&mut self, until: Instant, now: Instant) -> Result<(), HostError> {
        self.seen = self.seen.max(now);
        let Some((cmd, mut payload, bytes)) = self.prepared.take() else {
            return Err(HostError::new(Cause::Unsupported("nothing is prepared"), Phase::Submit, 255));
        };
        let busy = !matches!(self.state, State::Idle) || self.quarantine.is_some();
        let started = if busy {
            Err(Cause::Busy)
        } else {
            self.engine.start_prepared(&cmd, Lease(&mut payload, bytes), now)
        };
        let index = cmd.index;
        if let Err(cause) = started {
            self.prepared = Some((cmd, payload, bytes));
            return Err(HostError::new(cause, Phase::Submit, index));
        }
        self.payload = Some(payload);
        self.begin(Running { index, bytes, until, phase: Phase::Data, data: true });
        Ok(())
    }

    fn unprepare(&mut self) -> Option<(Command, E::Payload)> {
        let (cmd, mut payload, bytes) = self.prepared.take()?;
        self.engine.unprepare(Lease(&mut payload, bytes));
        Some((cmd, payload))
    }

    fn slot(&mut self, now: Instant) -> Slot {
        self.engine.slot(now)
    }

    fn sdio_interrupt(&mut self, enable: bool) {
        self.engine.sdio_interrupt(enable);
    }
}

impl<E: Engine> Drop for Supervised<E> {
    /// Tells a running device to stop. A payload it may still touch then is leaked, never freed; one it has
    /// let go is given back to its owner's `Drop` in order.
    fn drop(&mut self) {
        drop(self.unprepare());
        if matches!(self.state, State::Idle) && self.quarantine.is_none() {
            return;
        }
        // Not `NEVER`: an engine that trusts elapsed time would believe that every wait of its own is over.
        let now = self.seen;
        self.engine.halt(now);
        let stopped = self.engine.halted(now);
        let running = match self.state {
            State::Idle => 0,
            State::Running(run) | State::Stopping { run, .. } => run.bytes,
        };
        let kept = self.payload.take().map(|p| (p, running));
        for (mut payload, bytes) in [kept, self.quarantine.take()].into_iter().flatten() {
            if stopped {
                self.engine.finish(Lease(&mut payload, bytes));
            } else {
                core::mem::forget(payload);
            }
        }
    }
}

#[cfg(test)]
mod tests;

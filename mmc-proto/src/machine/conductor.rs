//! One machine over one host.

use super::{Action, Machine, Step};
use crate::command::Command;
use crate::host::{Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned, Why};
use mmc_hal::Payload;
use mmc_time::{Duration, Instant};

/// One record; nothing without the feature `log`.
macro_rules! record {
    ($level:ident, $($text:tt)+) => {{
        #[cfg(feature = "log")]
        log::$level!(target: "mmc_proto", $($text)+);
        #[cfg(not(feature = "log"))]
        let _ = format_args!($($text)+);
    }};
}

/// Steps of one [`Conductor::poll`]; after that many it asks to be called again at once, so that one call
/// does a bounded amount of work whatever machine and host do.
const STEPS: u32 = 16;

/// Runs one [`Machine`] over a [`Host`] without ever blocking.
///
/// The payload moves to the host for each command with a data phase and comes back with its completion; a
/// machine with [`scratch`](Machine::scratch) sees the first segment between two steps. The host must be idle
/// when the first step is submitted and must not be used by anybody else until [`Turn::Done`].
#[derive(Debug)]
pub struct Conductor<M, P> {
    machine: M,
    payload: Option<P>,
    /// The host has the payload already, for this command.
    prepared: Option<Command>,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The machine is to be asked; what came of its last step.
    Ask(Option<Result<Reply, HostError>>),
    /// The host works.
    Running,
    /// Nothing is on the bus until then.
    Sleeping(Instant),
}

/// What one [`Conductor::poll`] came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn<T, P> {
    /// Call again at `until` at the latest, and before if `why` is an interrupt and it came.
    Wait {
        /// What will end the wait.
        why: Why,
        /// When to look again at the latest.
        until: Instant,
    },
    /// The conversation is over. The payload is `None` if none was given, or if the host had to keep it
    /// because its device would not stop (`Supervised::reclaim`).
    Done(T, Option<P>),
}

impl<M: Machine, P: Payload> Conductor<M, P> {
    /// The longest a change of the bus or of the supply may take. [`Step`] states no limit for these: the
    /// host and its platform know how long they need, and this is only the bound for a host that hangs.
    pub const BUS_LIMIT: Duration = Duration::from_secs(1);

    /// Runs `machine` with `payload`: the caller's data, or scratch of at least 512 bytes in one segment for
    /// a machine that wants it. A machine that moves data without a payload gets a clean error for that step.
    pub const fn new(machine: M, payload: Option<P>) -> Self {
        Self { machine, payload, prepared: None, state: State::Ask(None) }
    }
    /// The machine, to look at only.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Before the first [`poll`](Self::poll), while another conversation runs on `host`: hands the payload over, so that the
    /// host gets ready for it meanwhile ([`Host::prepare`]). False: it stays here and goes when its time comes.
    ///
    /// The conversation is then held with this host, or [`unprepare`](Self::unprepare)d.
    pub fn prepare<H: Host<Payload = P> + ?Sized>(&mut self, host: &mut H) -> bool {
        let Some(command) = self.machine.first_data() else { return false };
        let Some(payload) = self.payload.take() else { return false };
        match host.prepare(command, payload) {
            Ok(()) => self.prepared = Some(command),
            Err(refused) => self.take_in(refused.operation),
        }
        self.prepared.is_some()
    }
    /// The payload is with the host, and its command was not sent yet.
    pub const fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }
    /// Takes the payload back from the host.
    pub fn unprepare<H: Host<Payload = P> + ?Sized>(&mut self, host: &mut H) {
        if self.prepared.take().is_some() {
            self.payload = host.unprepare().map(|(_, payload)| payload);
        }
    }
    /// The payload of a conversation that is not begun.
    pub fn into_payload(self) -> Option<P> {
        self.payload
    }

    /// Goes on as far as possible. Call at once after [`new`](Self::new), then as [`Turn::Wait`] says. After
    /// [`Turn::Done`] a further call asks the finished machine again, which answers with an error.
    pub fn poll<H: Host<Payload = P> + ?Sized>(&mut self, host: &mut H, now: Instant) -> Turn<M::Output, P> {
        for _ in 0..STEPS {
            match self.state {
                State::Ask(last) => {
                    let step = self.ask(last, now);
                    match step {
                        Step::Do(action) => self.send(host, &action, now),
                        Step::Bus(bus) => {
                            record!(trace, "{bus:?}");
                            self.submit(host, Operation::Bus(bus), now + Self::BUS_LIMIT, now);
                        }
                        Step::Power(power) => {
                            record!(trace, "{power:?}");
                            self.submit(host, Operation::Power(power), now + Self::BUS_LIMIT, now);
                        }
                        Step::Sleep(time) => self.state = State::Sleeping(now + time),
                        Step::Done(output) => {
                            self.unprepare(host);
                            self.state = State::Ask(None);
                            return Turn::Done(output, self.payload.take());
                        }
                    }
                }
                State::Running => match host.poll(now) {
                    Progress::Waiting { why, until } => return Turn::Wait { why, until },
                    Progress::Done(Completion { result, payload }) => {
                        if let Returned::Back(p) = payload {
                            self.payload = Some(p);
                        }
                        self.state = State::Ask(Some(result));
                    }
                    // Somebody else took our completion away: with it went the payload.
                    Progress::Idle => {
                        self.state = State::Ask(Some(Err(HostError {
                            cause: Cause::Controller,
                            phase: Phase::Submit,
                            index: 255,
                            r1: None,
                        })));
                    }
                },
                State::Sleeping(until) if now >= until => self.state = State::Ask(None),
                State::Sleeping(until) => return Turn::Wait { why: Why::Timer, until },
            }
        }
        Turn::Wait { why: Why::Timer, until: now }
    }

    fn ask(&mut self, last: Option<Result<Reply, HostError>>, now: Instant) -> Step<M::Output> {
        match &last {
            Some(Ok(reply)) => record!(trace, "answer {:08x?}, {} bytes", reply.words, reply.bytes),
            Some(Err(error)) => record!(debug, "{error}"),
            None => {}
        }
        let mut empty: [u8; 0] = [];
        let scratch = if self.machine.scratch() {
            self.payload.as_mut().and_then(|p| p.segment_mut(0)).unwrap_or(&mut empty)
        } else {
            &mut empty
        };
        self.machine.next(last, scratch, now)
    }

    fn send<H: Host<Payload = P> + ?Sized>(&mut self, host: &mut H, action: &Action, now: Instant) {
        let (command, until) = (action.command, now + action.limit);
        record!(trace, "CMD{} arg={:#010x} {}", command.index, command.arg, action.limit);
        if command.data.is_none() {
            return self.submit(host, Operation::Command(command), until, now);
        }
        if self.prepared == Some(command) {
            match host.submit_prepared(until, now) {
                Ok(()) => (self.prepared, self.state) = (None, State::Running),
                Err(error) => {
                    self.unprepare(host);
                    self.state = State::Ask(Some(Err(error)));
                }
            }
            return;
        }
        self.unprepare(host);
        match self.payload.take() {
            Some(payload) => self.submit(host, Operation::Transfer(command, payload), until, now),
            None => {
                self.state = State::Ask(Some(Err(HostError {
                    cause: Cause::Unsupported("a data command without a payload"),
                    phase: Phase::Submit,
                    index: command.index,
                    r1: None,
                })));
            }
        }
    }

    fn submit<H: Host<Payload = P> + ?Sized>(
        &mut self,
        host: &mut H,
        op: Operation<P>,
        until: Instant,
        now: Instant,
    ) {
        self.state = match host.submit(op, until, now) {
            Ok(()) => State::Running,
            Err(refused) => {
                self.take_in(refused.operation);
                State::Ask(Some(Err(refused.error)))
            }
        };
    }

    fn take_in(&mut self, refused: Operation<P>) {
        if let Operation::Transfer(_, payload) = refused {
            self.payload = Some(payload);
        }
    }
}

//! What the smaller conversations have in common: a command, its R1, the wait until the card is ready, and what is
//! to be done after an error. A [`Script`] says what comes next; [`Talk`] does the rest.

use super::recover::{After, Recover, Wait};
use super::transfer::{COMMAND_LIMIT, TransferCause, status_of};
use super::{Action, Machine, Step};
use crate::command::{Command, Response};
use crate::host::{Cause, HostError, Phase, Reply};
use crate::status::CardStatus;
use core::fmt;
use mmc_time::{Duration, Instant};

/// Bits of R1 that end a conversation: all errors but those of the command before (CRC, illegal), which came without
/// an answer and were dealt with there, and those of bits that are reserved on newer cards.
const ERRORS: CardStatus = CardStatus::from_bits_retain(
    CardStatus::DATA_ERRORS.bits()
        | CardStatus::ERASE_SEQ_ERROR.bits()
        | CardStatus::ERASE_PARAM.bits()
        | CardStatus::LOCK_UNLOCK_FAILED.bits()
        | CardStatus::CSD_OVERWRITE.bits()
        | CardStatus::WP_ERASE_SKIP.bits()
        | CardStatus::ERASE_RESET.bits()
        | CardStatus::SWITCH_ERROR.bits(),
);

/// What a [`Script`] says next. Phases are named for errors and for `docs/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say<T> {
    /// Send a command that is answered by R1, or by nothing; the limit is the whole command's.
    Do(&'static str, Command, Duration),
    /// Wait by CMD13 until the card is ready, so long at most.
    Ready(Duration),
    /// Nothing on the bus for so long.
    Sleep(&'static str, Duration),
    /// The end.
    Done(T),
}

/// The course of a conversation when all goes well.
pub trait Script {
    /// What it brings.
    type Output;
    /// Whether it needs scratch (512 bytes), for data it sends or reads.
    fn scratch(&self) -> bool {
        false
    }
    /// The sum of the limits of all that it says, each [`Say::Ready`] counted with [`ready_limit`].
    fn limit(&self) -> Duration;
    /// How long the card may stay busy after an error.
    fn patience(&self) -> Duration;
    /// R1 bits the script deals with itself.
    fn tolerates(&self) -> CardStatus {
        CardStatus::empty()
    }
    /// Its command has ended, however: the place to clear secrets from `scratch`.
    fn sent(&mut self, scratch: &mut [u8]) {
        let _ = scratch;
    }
    /// The next move. `heard` is the reply to the last command, or to the CMD13 that found the card ready; `None` at
    /// the start and after a sleep.
    ///
    /// # Errors
    /// What ends the conversation: it cannot be, or the answer is not the right one.
    fn next(
        &mut self,
        heard: Option<Reply>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Result<Say<Self::Output>, TransferCause>;
}

/// The longest a [`Say::Ready`] of this limit takes.
#[must_use]
pub fn ready_limit(limit: Duration) -> Duration {
    limit + Wait::slack()
}

/// The first error of a conversation. Nothing that happened later, cleaning up, replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TalkError {
    /// What went wrong.
    pub cause: TransferCause,
    /// In which phase; `None`: before anything was sent.
    pub phase: Option<&'static str>,
    /// R1 verbatim: the one that showed the error, else the first one that came after it.
    pub status: Option<CardStatus>,
    /// What the card was found to be afterwards.
    pub after: After,
}

impl fmt::Display for TalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.phase.unwrap_or("before the first command");
        write!(f, "{} (phase: {phase})", self.cause)?;
        match self.status {
            Some(status) if matches!(self.cause, TransferCause::Card) => write!(f, ": {status}"),
            _ => Ok(()),
        }
    }
}

impl core::error::Error for TalkError {}

impl TalkError {
    /// Worth trying again as it is, once the card is ready.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self.cause {
            TransferCause::Host(e) => e.is_retryable(),
            TransferCause::Short(_) => true,
            TransferCause::Card => match self.status {
                Some(s) => {
                    let again = CardStatus::TRANSIENT.bits()
                        | CardStatus::ERASE_RESET.bits()
                        | CardStatus::ERASE_SEQ_ERROR.bits();
                    s.bits() & ERRORS.bits() & !again == 0
                }
                None => false,
            },
            _ => false,
        }
    }
    /// The card must be identified anew before it is used again.
    #[must_use]
    pub const fn needs_reset(&self) -> bool {
        matches!(self.after, After::NotReady)
    }
    /// The card has left the slot.
    #[must_use]
    pub const fn media_gone(&self) -> bool {
        matches!(self.after, After::Gone)
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Ask,
    Sent,
    Ready,
    ReadyPause,
    Recover,
    Over,
}

/// A conversation that follows a [`Script`].
#[derive(Clone, Copy, Debug)]
pub struct Talk<S> {
    script: S,
    rca: u16,
    state: State,
    phase: Option<&'static str>,
    /// What is out, as far as its answer needs it: whether it is R1, the bytes it moves, and whether CMD12 must come
    /// first if it fails.
    r1: bool,
    bytes: u64,
    stop: bool,
    wait: Wait,
    recover: Recover,
    error: Option<TalkError>,
}

type Out<S> = Result<<S as Script>::Output, TalkError>;

impl<S: Script> Talk<S> {
    /// Follows `script` with the card at `rca`.
    #[must_use]
    pub const fn follow(rca: u16, script: S) -> Self {
        Self {
            script,
            rca,
            state: State::Ask,
            phase: None,
            r1: false,
            bytes: 0,
            stop: false,
            wait: Wait::NONE,
            recover: Recover::new(rca, false, Duration::ZERO),
            error: None,
        }
    }
    pub(crate) const fn rca(&self) -> u16 {
        self.rca
    }
    /// The script, to look at only.
    pub const fn script(&self) -> &S {
        &self.script
    }
    /// Where the conversation is: a phase the script names, `Ready`, or `Recover`; `None` before the first step and
    /// after the last.
    #[must_use]
    pub const fn phase(&self) -> Option<&'static str> {
        self.phase
    }
    /// The longest the whole conversation takes, the recovery after an error included, when it is driven at the
    /// instants it names; a host adds its own stopping time once per operation.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.script.limit() + Recover::new(self.rca, true, self.script.patience()).limit()
    }

    fn end(&mut self, result: Out<S>) -> Step<Out<S>> {
        self.state = State::Over;
        self.phase = None;
        Step::Done(result)
    }

    fn ask(&mut self, heard: Option<Reply>, scratch: &mut [u8], now: Instant) -> Step<Out<S>> {
        match self.script.next(heard, scratch, now) {
            Ok(Say::Do(phase, command, limit)) => {
                self.state = State::Sent;
                self.phase = Some(phase);
                self.r1 = matches!(command.response, Response::Short);
                self.bytes = command.data.map_or(0, |data| data.bytes());
                // A data phase may be open; and after a CMD55 whose answer was lost a CMD13 would be an ACMD13, with
                // data: a CMD12 takes its place.
                self.stop = command.index == 55 || command.data.is_some_and(|data| data.blocks > 1);
                Step::Do(Action { command, limit })
            }
            Ok(Say::Ready(limit)) => {
                self.wait = Wait::new(limit, now);
                self.ask_ready(now)
            }
            Ok(Say::Sleep(phase, time)) => {
                self.state = State::Ask;
                self.phase = Some(phase);
                Step::Sleep(time)
            }
            Ok(Say::Done(output)) => self.end(Ok(output)),
            Err(cause) => self.fail(cause, None, now),
        }
    }

    fn ask_ready(&mut self, now: Instant) -> Step<Out<S>> {
        self.state = State::Ready;
        self.phase = Some("Ready");
        self.r1 = true;
        (self.bytes, self.stop) = (0, false);
        self.wait.ask(self.rca, now)
    }

    /// Keeps the first error and begins to clean up.
    fn fail(&mut self, cause: TransferCause, status: Option<CardStatus>, now: Instant) -> Step<Out<S>> {
        let mut error = TalkError { cause, phase: self.phase, status, after: After::NotReady };
        let waiting = matches!(self.state, State::Ready);
        let known = match cause {
            _ if self.phase.is_none() => Some(After::Untouched),
            TransferCause::Host(e) if e.media_gone() => Some(After::Gone),
            // Refused before it left the host: the card still waits for a command, unless it is busy.
            TransferCause::Host(e) if matches!(e.phase, Phase::Submit) => {
                Some(if waiting { After::NotReady } else { After::Ready })
            }
            _ => None,
        };
        if let Some(after) = known {
            error.after = after;
            return self.end(Err(error));
        }
        self.error = Some(error);
        // Who aborts a conversation has something else in mind (a high priority interrupt) than to wait for its end.
        let aborted = matches!(cause, TransferCause::Host(e) if matches!(e.cause, Cause::Aborted));
        let patience = if aborted { PLAIN } else { self.script.patience() };
        self.recover = Recover::new(self.rca, self.stop, patience);
        self.recovering(None, now)
    }

    fn recovering(&mut self, last: Option<Result<Reply, HostError>>, now: Instant) -> Step<Out<S>> {
        self.state = State::Recover;
        self.phase = Some("Recover");
        match self.recover.next(last, &mut [], now) {
            Step::Do(action) => Step::Do(action),
            Step::Sleep(time) => Step::Sleep(time),
            Step::Bus(bus) => Step::Bus(bus),
            Step::Power(power) => Step::Power(power),
            Step::Done(found) => {
                let mut error = self.error.unwrap_or(OVER);
                error.after = found.after;
                error.status = error.status.or(found.status);
                self.end(Err(error))
            }
        }
    }
}

/// Asked again after the end.
const OVER: TalkError =
    TalkError { cause: TransferCause::OutOfTurn, phase: None, status: None, after: After::Untouched };

impl<S: Script> Machine for Talk<S> {
    type Output = Out<S>;

    fn scratch(&self) -> bool {
        self.script.scratch()
    }

    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Out<S>> {
        let waiting = match self.state {
            State::Ask if self.script.scratch() && scratch.len() < 512 => {
                return self.fail(TransferCause::Scratch, None, now);
            }
            State::Ask => return self.ask(None, scratch, now),
            State::ReadyPause => return self.ask_ready(now),
            State::Recover => return self.recovering(last, now),
            State::Over => return Step::Done(Err(OVER)),
            State::Sent => {
                self.script.sent(scratch);
                false
            }
            State::Ready => true,
        };
        let errors = ERRORS.difference(self.script.tolerates());
        let reply = match last {
            Some(Ok(reply)) => reply,
            Some(Err(e)) => {
                // A card that refuses a data command answers and then sends nothing: its answer came first.
                let said = e.r1.map(CardStatus::from_bits_retain).filter(|_| self.r1);
                let refused = !e.media_gone() && said.is_some_and(|s| s.intersects(errors));
                let cause = if refused { TransferCause::Card } else { TransferCause::Host(e) };
                return self.fail(cause, said, now);
            }
            None => return self.fail(TransferCause::OutOfTurn, None, now),
        };
        let status = status_of(&reply);
        if self.r1 && status.intersects(errors) {
            return self.fail(TransferCause::Card, Some(status), now);
        }
        if reply.bytes != self.bytes && self.bytes > 0 {
            return self.fail(TransferCause::Short(reply.bytes), None, now);
        }
        if waiting && !status.is_ready() {
            if now >= self.wait.until {
                return self.fail(TransferCause::NotReady, Some(status), now);
            }
            self.state = State::ReadyPause;
            return Step::Sleep(self.wait.pause());
        }
        self.ask(Some(reply), scratch, now)
    }
}

/// The limit of a command whose busy phase is waited for by [`Say::Ready`].
pub(crate) const PLAIN: Duration = COMMAND_LIMIT;

//! After an error: stopping what may still run and finding out how the card is, for every conversation the same.
//!
//! ```text
//!  a data phase may be open   CMD12; no answer is none, when the phase has ended by itself
//!  always                     CMD13, again until the card is ready or the limit has passed
//!  it still sends or waits    CMD12 and CMD13 again, three times; so where it took the CMD13 for ACMD13
//! ```

use super::transfer::{COMMAND_LIMIT, status_of};
use super::{Action, Machine, Step};
use crate::command::{Command, Gate};
use crate::host::{HostError, Phase, Reply};
use crate::status::{CardState, CardStatus};
use mmc_time::{Duration, Instant};

/// First pause between two CMD13 that found the card not ready; each further one is twice as long …
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// … up to this, where the whole wait is short …
const SHORT_PAUSE: Duration = Duration::from_millis(16);
/// … or up to this.
const LONG_PAUSE: Duration = Duration::from_millis(128);
/// Waits up to this are short.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// How often in a row an unanswered CMD13, or a CMD12 that changes nothing, is repeated.
const TRIES: u8 = 3;

/// Waiting for a card by CMD13: until when, and how long between two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) until: Instant,
    pause: Duration,
    longest: Duration,
}

impl Wait {
    /// Not begun.
    pub(crate) const NONE: Self = Self { until: Instant::ZERO, pause: FIRST_PAUSE, longest: SHORT_PAUSE };

    pub(crate) fn new(limit: Duration, now: Instant) -> Self {
        let longest = if limit <= SHORT_WAIT { SHORT_PAUSE } else { LONG_PAUSE };
        Self { until: now + limit, pause: FIRST_PAUSE, longest }
    }
    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(self.longest);
        pause
    }
    /// The CMD13 that the host holds back until DAT0 is released.
    pub(crate) fn ask<T>(&self, rca: u16, now: Instant) -> Step<T> {
        let limit = self.until.since(now) + COMMAND_LIMIT;
        Step::Do(Action { command: Command::send_status(rca), limit })
    }
    /// How much longer than `limit` such a wait may take: the last pause, and the CMD13 after it.
    pub(crate) fn slack() -> Duration {
        LONG_PAUSE + COMMAND_LIMIT.saturating_mul(2)
    }
}

/// What the card was found to be after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum After {
    /// Nothing that could have changed it was sent.
    Untouched,
    /// In the transfer state and ready: the next command may follow.
    Ready,
    /// Not ready within the limit, or silent: it needs a reset.
    NotReady,
    /// Not in the slot.
    Gone,
}

/// How a [`Recover`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// What the card is now; never [`After::Untouched`].
    pub after: After,
    /// The first R1 that came: it may say why the command before failed, and a card says it only once.
    pub status: Option<CardStatus>,
}

/// Where in the recovery something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoverPhase {
    /// CMD12.
    Stop,
    /// CMD13, and the pauses between.
    Status,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    Stop,
    Status,
    Pause,
    Over,
}

/// Stops the card and waits until it is ready. The conversations of this crate do it by themselves after an error;
/// alone it serves after the end of one that was aborted.
#[derive(Clone, Copy, Debug)]
pub struct Recover {
    rca: u16,
    stop: bool,
    limit: Duration,
    state: State,
    wait: Wait,
    tries: u8,
    status: Option<CardStatus>,
}

impl Recover {
    /// For the card at `rca`, which may stay busy for `limit`. `stop`: a data phase may be open; CMD12 first.
    #[must_use]
    pub const fn new(rca: u16, stop: bool, limit: Duration) -> Self {
        Self { rca, stop, limit, state: State::Start, wait: Wait::NONE, tries: 0, status: None }
    }
    /// The longest it takes when it is driven at the instants it names.
    #[must_use]
    pub fn limit(&self) -> Duration {
        // Before the limit passes CMD12 and CMD13 count in it; one of each may begin at its very end.
        self.limit + COMMAND_LIMIT.saturating_mul(2) + Wait::slack()
    }
    /// Where it is; `None` before the first step and after the last.
    #[must_use]
    pub const fn phase(&self) -> Option<RecoverPhase> {
        match self.state {
            State::Start | State::Over => None,
            State::Stop => Some(RecoverPhase::Stop),
            State::Status | State::Pause => Some(RecoverPhase::Status),
        }
    }

    fn end(&mut self, after: After) -> Step<Recovered> {
        self.state = State::Over;
        Step::Done(Recovered { after, status: self.status })
    }
    fn ask_stop(&mut self) -> Step<Recovered> {
        self.state = State::Stop;
        Step::Do(Action { command: stop_now(), limit: COMMAND_LIMIT })
    }
    fn ask_status(&mut self) -> Step<Recovered> {
        self.state = State::Status;
        let command = Command { gate: Gate::Now, ..Command::send_status(self.rca) };
        Step::Do(Action { command, limit: COMMAND_LIMIT })
    }
}

/// CMD12 without a busy phase of its own: the CMD13 that follows waits for the card.
pub(crate) fn stop_now() -> Command {
    Command { busy: false, ..Command::stop_transmission() }
}

/// The card answered CMD13, and CMD12 must follow: it sends or waits for data; or it heard a CMD55 and never the command
/// behind it, took this CMD13 for ACMD13, and sends its SD status.
pub(crate) fn moves_data(status: CardStatus) -> bool {
    status.contains(CardStatus::APP_CMD) || matches!(status.state(), CardState::Data | CardState::Rcv)
}

impl Machine for Recover {
    type Output = Recovered;

    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        _: &mut [u8],
        now: Instant,
    ) -> Step<Recovered> {
        let stop = match self.state {
            State::Start => {
                self.wait = Wait::new(self.limit, now);
                return if self.stop { self.ask_stop() } else { self.ask_status() };
            }
            State::Pause => return self.ask_status(),
            State::Over => return self.end(After::NotReady),
            State::Stop => true,
            State::Status => false,
        };
        let status = match last {
            None => return self.end(After::NotReady),
            Some(Err(e)) if e.media_gone() => return self.end(After::Gone),
            // The host takes no more operations (it keeps a payload whose device would not stop).
            Some(Err(e)) if matches!(e.phase, Phase::Submit) => return self.end(After::NotReady),
            Some(Err(_)) => None,
            Some(Ok(reply)) => Some(status_of(&reply)),
        };
        self.status = self.status.or(status);
        if stop {
            return self.ask_status();
        }
        let again = match status {
            Some(s) if s.is_ready() && (!moves_data(s) || self.tries >= TRIES) => {
                return self.end(After::Ready);
            }
            Some(s) => moves_data(s),
            None => true,
        };
        if again {
            self.tries = self.tries.saturating_add(1);
        }
        if self.tries > TRIES || now >= self.wait.until {
            return self.end(After::NotReady);
        }
        if again && status.is_some() {
            return self.ask_stop();
        }
        self.state = State::Pause;
        Step::Sleep(self.wait.pause())
    }
}

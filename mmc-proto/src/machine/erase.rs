//! Erasing and discarding blocks of an SD card: CMD32, CMD33, CMD38, CMD13 until ready.
//!
//! Nothing but CMD13 may come between the three, so that an error begins nothing: the next command forgets
//! the range.

use super::transfer::{After, COMMAND_LIMIT, CardTraits, TransferCause};
use super::{Action, Machine, Step};
use crate::command::{Command, Gate};
use crate::host::{HostError, Phase, Reply};
use crate::register::Ssr;
use crate::status::CardStatus;
use crate::timing::{EraseKind, erase_limit};
use core::fmt;
use mmc_time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LAST_PAUSE: Duration = Duration::from_millis(128);
const TRIES: u8 = 3;

/// Bits that say that not all of the range was erased.
const ERRORS: CardStatus = CardStatus::from_bits_retain(
    CardStatus::DATA_ERRORS.bits()
        | CardStatus::ERASE_SEQ_ERROR.bits()
        | CardStatus::ERASE_PARAM.bits()
        | CardStatus::WP_ERASE_SKIP.bits()
        | CardStatus::ERASE_RESET.bits(),
);

/// Where in an erase something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErasePhase {
    /// Before anything was sent.
    Check,
    /// CMD32 or CMD33.
    Range,
    /// CMD38.
    Erase,
    /// Waiting for the card to be ready.
    Ready,
}

impl fmt::Display for ErasePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "before the first command",
            Self::Range => "naming the range",
            Self::Erase => "starting the erase",
            Self::Ready => "waiting for the card to be ready",
        })
    }
}

/// The first error of an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} ({phase})")]
pub struct EraseError {
    /// What went wrong.
    pub cause: TransferCause,
    /// Where. From [`ErasePhase::Erase`] on any of the blocks may be gone.
    pub phase: ErasePhase,
    /// R1 verbatim: the one that showed the error, else the first one that came after it.
    pub status: Option<CardStatus>,
    /// What the card was found to be afterwards.
    pub after: After,
}

impl EraseError {
    /// Worth trying again as it is, once the card is ready.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self.cause {
            TransferCause::Host(e) => e.is_retryable(),
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
    Start,
    First,
    Last,
    Erase,
    Ready,
    ReadyPause,
    /// After an error: a CMD13 is out.
    Clean,
    CleanPause,
    Over,
}

/// Erases or discards whole blocks.
///
/// `Ok` is the number of blocks, all of them.
#[derive(Clone, Copy, Debug)]
pub struct Erase {
    card: CardTraits,
    kind: EraseKind,
    lba: u64,
    blocks: u64,
    busy: Duration,
    state: State,
    pause: Duration,
    deadline: Instant,
    tries: u8,
    error: Option<EraseError>,
}

type Out = Result<u64, EraseError>;

impl Erase {
    /// `blocks` blocks from `lba` on. The time allowed is [`erase_limit`]'s, which depends on `ssr`: a caller
    /// that wants to look after other requests in between erases piece by piece.
    #[must_use]
    pub fn new(card: &CardTraits, ssr: Option<&Ssr>, kind: EraseKind, lba: u64, blocks: u64) -> Self {
        Self {
            card: *card,
            kind,
            lba,
            blocks,
            busy: erase_limit(ssr, kind, lba, blocks),
            state: State::Start,
            pause: FIRST_PAUSE,
            deadline: Instant::ZERO,
            tries: 0,
            error: None,
        }
    }

    /// The longest the whole conversation takes, the wait after an error included, when it is driven at the
    /// instants it names; a host adds its own stopping time once per operation.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let commands = COMMAND_LIMIT.saturating_mul(10).saturating_add(LAST_PAUSE.saturating_mul(4));
        self.busy.saturating_mul(2).saturating_add(commands)
    }

    fn start(&mut self) -> Step<Out> {
        if self.blocks == 0 {
            return self.refuse(TransferCause::NoBlocks);
        }
        let end = self.lba.checked_add(self.blocks);
        if end.is_none_or(|end| end > self.card.blocks) {
            let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
            let (lba, capacity) = (self.lba, self.card.blocks);
            return self.refuse(TransferCause::OutOfRange { lba, blocks, capacity });
        }
        match (self.address(self.lba), self.address(self.last())) {
            (Some(first), Some(_)) => {
                self.state = State::First;
                run(Command::erase_wr_blk_start(first), COMMAND_LIMIT)
            }
            _ => self.refuse(TransferCause::Address(self.last())),
        }
    }

    fn last(&self) -> u64 {
        self.lba.saturating_add(self.blocks).saturating_sub(1)
    }

    fn address(&self, lba: u64) -> Option<u32> {
        self.card.addressing().arg(lba)
    }

    fn refuse(&mut self, cause: TransferCause) -> Step<Out> {
        self.state = State::Over;
        let (phase, after) = (ErasePhase::Check, After::Untouched);
        Step::Done(Err(EraseError { cause, phase, status: None, after }))
    }

    fn end(&mut self, after: After) -> Step<Out> {
        self.state = State::Over;
        let fallback =
            EraseError { cause: TransferCause::OutOfTurn, phase: ErasePhase::Check, status: None, after };
        Step::Done(Err(EraseError { after, ..self.error.unwrap_or(fallback) }))
    }

    fn ask_ready(&mut self, now: Instant) -> Step<Out> {
        self.state = State::Ready;
        run(Command::send_status(self.card.rca), self.deadline.since(now) + COMMAND_LIMIT)
    }

    fn clean(&mut self) -> Step<Out> {
        self.state = State::Clean;
        run(Command { gate: Gate::Now, ..Command::send_status(self.card.rca) }, COMMAND_LIMIT)
    }

    fn pause(&mut self, state: State) -> Step<Out> {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LAST_PAUSE);
        self.state = state;
        Step::Sleep(pause)
    }

    fn fail(
        &mut self,
        cause: TransferCause,
        phase: ErasePhase,
        status: Option<CardStatus>,
        now: Instant,
    ) -> Step<Out> {
        self.error = Some(EraseError { cause, phase, status, after: After::NotReady });
        self.deadline = now + self.busy;
        self.pause = FIRST_PAUSE;
        if let TransferCause::Host(e) = cause {
            if e.media_gone() {
                return self.end(After::Gone);
            }
            if matches!(e.phase, Phase::Submit) {
                // Refused before it left the host; a range that was named is forgotten with the next command.
                return self.end(match phase {
                    ErasePhase::Range | ErasePhase::Erase => After::Ready,
                    _ => After::NotReady,
                });
            }
        }
        self.clean()
    }

    fn cleaned(&mut self, last: Option<Result<Reply, HostError>>, now: Instant) -> Step<Out> {
        let status = match last {
            Some(Ok(reply)) => status_of(&reply),
            Some(Err(e)) if e.media_gone() => return self.end(After::Gone),
            Some(Err(e)) if !matches!(e.phase, Phase::Submit) && self.tries < TRIES => {
                self.tries = self.tries.saturating_add(1);
                return self.pause(State::CleanPause);
            }
            _ => return self.end(After::NotReady),
        };
        if let Some(error) = self.error.as_mut() {
            error.status.get_or_insert(status);
        }
        if status.is_ready() {
            self.end(After::Ready)
        } else if now >= self.deadline {
            self.end(After::NotReady)
        } else {
            self.pause(State::CleanPause)
        }
    }
}

fn run(command: Command, limit: Duration) -> Step<Out> {
    Step::Do(Action { command, limit })
}

fn status_of(reply: &Reply) -> CardStatus {
    let [word, ..] = reply.words;
    CardStatus::from_bits_retain(word)
}

impl Machine for Erase {
    type Output = Out;

    fn next(&mut self, last: Option<Result<Reply, HostError>>, _: &mut [u8], now: Instant) -> Step<Out> {
        let phase = match self.state {
            State::Start => return self.start(),
            State::ReadyPause => return self.ask_ready(now),
            State::CleanPause => return self.clean(),
            State::Clean => return self.cleaned(last, now),
            State::Over => {
                self.error = None;
                return self.end(After::Untouched);
            }
            State::First | State::Last => ErasePhase::Range,
            State::Erase => ErasePhase::Erase,
            State::Ready => ErasePhase::Ready,
        };
        let reply = match last {
            Some(Ok(reply)) => reply,
            Some(Err(e)) => return self.fail(TransferCause::Host(e), phase, None, now),
            None => return self.fail(TransferCause::OutOfTurn, phase, None, now),
        };
        let status = status_of(&reply);
        if status.intersects(ERRORS) {
            return self.fail(TransferCause::Card, phase, Some(status), now);
        }
        match self.state {
            State::First => match self.address(self.last()) {
                Some(last) => {
                    self.state = State::Last;
                    run(Command::erase_wr_blk_end(last), COMMAND_LIMIT)
                }
                None => self.refuse(TransferCause::Address(self.last())),
            },
            State::Last => {
                self.state = State::Erase;
                // The end of busy is the arrival of the CMD13 that waits for it, as after a write.
                run(Command { busy: false, ..Command::erase(self.kind.arg()) }, COMMAND_LIMIT)
            }
            State::Erase => {
                self.deadline = now + self.busy;
                self.ask_ready(now)
            }
            _ if status.is_ready() => {
                self.state = State::Over;
                Step::Done(Ok(self.blocks))
            }
            _ if now >= self.deadline => self.fail(TransferCause::NotReady, phase, Some(status), now),
            _ => self.pause(State::ReadyPause),
        }
    }
}

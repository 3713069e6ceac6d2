//! Reading and writing sectors: one conversation per request.
//!
//! ```text
//!  one block        CMD17 / CMD24
//!  count known      CMD23, CMD18 / CMD25                (the card has CMD23)
//!  open-ended       CMD18 / CMD25, CMD12                (it has not, or the caller asks for it)
//!  after a write    CMD13, held back by the host until DAT0 is released, again until the card is ready
//!  after an error   CMD12 if a data phase may be open, CMD13 until ready or the limit; then the first error
//! ```
//!
//! After a write the end of busy is the arrival of the CMD13 that waits for it ([`Gate::Idle`]), so CMD12 is
//! sent without a busy phase of its own: a host that can hold a command in hardware gets one interrupt and no
//! poll.

use super::{Action, Machine, Step};
use crate::command::{Addressing, Command, Gate, Stop};
use crate::host::{HostError, Phase, Reply};
use crate::status::{CardState, CardStatus};
use core::fmt;
use mmc_hal::Dir;
use mmc_time::{Duration, Instant};

/// Longest a command without data may take, response included. At 400 kHz frame, response and the 64 clocks
/// between them are below 1 ms; the rest is for slow hosts.
pub const COMMAND_LIMIT: Duration = Duration::from_millis(10);

/// Blocks for which one access time is allowed in a data phase (128 KiB).
const BLOCKS_PER_ACCESS: u32 = 256;
/// First pause between two CMD13 that found the card not ready; each further one is twice as long …
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// … up to this.
const LAST_PAUSE: Duration = Duration::from_millis(16);
/// How often in a row an unanswered CMD13, or a CMD12 that changes nothing, is repeated after an error.
const TRIES: u8 = 3;

/// What a transfer has to know of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardTraits {
    /// Relative address.
    pub rca: u16,
    /// Capacity in blocks of 512 bytes.
    pub blocks: u64,
    /// Addresses on the bus are bytes (SDSC, MMC up to 2 GiB) instead of sectors.
    pub byte_addressed: bool,
    /// The card has CMD23 (SCR bit 33; always on eMMC).
    pub cmd23: bool,
    /// Longest the card may take from a read command, or from one block, to the next block (100 ms for SD).
    pub read_limit: Duration,
    /// Longest the card may stay busy after written data (250 ms SDHC, 500 ms SDXC by the standard).
    pub write_limit: Duration,
    /// Longest the bus takes to move one block of 512 bytes.
    pub block_time: Duration,
    /// Addresses and counts must be multiples of this many blocks: 1, or 8 for an eMMC with native sectors of 4 KiB
    /// (EXT_CSD `DATA_SECTOR_SIZE`).
    pub unit: u32,
}

impl CardTraits {
    /// The limit of the data command alone: [`COMMAND_LIMIT`], the bus time of all blocks, and one
    /// `read_limit` or `write_limit` for every begun 256 blocks (the standards allow one for *every* block,
    /// which for 1 MiB would be minutes).
    #[must_use]
    pub fn data_limit(&self, dir: Dir, blocks: u32) -> Duration {
        let access = match dir {
            Dir::Read => self.read_limit,
            Dir::Write => self.write_limit,
        };
        let accesses = u64::from(blocks.div_ceil(BLOCKS_PER_ACCESS)).max(1);
        COMMAND_LIMIT + self.block_time.saturating_mul(blocks.into()) + access.saturating_mul(accesses)
    }
    /// How addresses are written on the bus.
    #[must_use]
    pub const fn addressing(&self) -> Addressing {
        if self.byte_addressed { Addressing::Byte } else { Addressing::Sector }
    }
    fn recovery_limit(&self) -> Duration {
        self.read_limit.max(self.write_limit)
    }
}

/// Choices of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferOptions {
    /// End multi-block transfers by CMD12 even if the card has CMD23.
    pub open_ended: bool,
}

/// Where in a transfer something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferPhase {
    /// Before anything was sent.
    Check,
    /// CMD23.
    SetCount,
    /// CMD17, 18, 24 or 25 and their data.
    Data,
    /// CMD12.
    Stop,
    /// Waiting for the card to have stored what was written.
    Ready,
}

impl fmt::Display for TransferPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "before the first command",
            Self::SetCount => "setting the block count",
            Self::Data => "moving data",
            Self::Stop => "stopping the data",
            Self::Ready => "waiting for the card to be ready",
        })
    }
}

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransferCause {
    /// A transfer of no blocks.
    #[error("no blocks to transfer")]
    NoBlocks,
    /// Not all of it is on the card.
    #[error("{blocks} blocks at {lba} are beyond the card's {capacity}")]
    OutOfRange {
        /// First block asked for.
        lba: u64,
        /// Blocks asked for.
        blocks: u32,
        /// Blocks on the card.
        capacity: u64,
    },
    /// The address does not fit the 32 bits of an argument (a byte address at or above 4 GiB, a sector at or
    /// above 2 TiB).
    #[error("block {0} cannot be addressed with 32 bits on this card")]
    Address(u64),
    /// The host, or the bus.
    #[error(transparent)]
    Host(HostError),
    /// The card reported error bits: see [`TransferError::status`].
    #[error("the card reported an error")]
    Card,
    /// The host says all is well, but moved this many bytes.
    #[error("only {0} bytes were moved")]
    Short(u64),
    /// The card was not ready again within its write limit.
    #[error("the card is not ready after its write limit")]
    NotReady,
    /// The machine was driven wrongly: asked again after its end, or without the result of its last step.
    #[error("the transfer is over, or the result of its last step is missing")]
    OutOfTurn,
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

/// The first error of a transfer. Nothing that happened later, cleaning up, replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} ({phase})")]
pub struct TransferError {
    /// What went wrong.
    pub cause: TransferCause,
    /// Where.
    pub phase: TransferPhase,
    /// R1 verbatim: the one that showed the error, else the first one that came after it.
    pub status: Option<CardStatus>,
    /// Blocks from the start known to be moved right; 0 whenever nobody can tell (after a failed write the
    /// card's ACMD22 could, but its answer would need the caller's buffer).
    pub done: u32,
    /// What the card was found to be afterwards.
    pub after: After,
}

impl TransferError {
    /// Worth trying again as it is, once the card is ready.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self.cause {
            TransferCause::Host(e) => e.is_retryable(),
            TransferCause::Short(_) => true,
            TransferCause::Card => match self.status {
                Some(s) => {
                    let errors = s.bits() & CardStatus::DATA_ERRORS.bits();
                    errors & !CardStatus::TRANSIENT.bits() == 0
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
    SetCount,
    Data,
    Stop,
    /// A CMD13 is out.
    Ready,
    /// The pause before the next CMD13.
    ReadyPause,
    /// After an error: a CMD12 is out.
    CleanStop,
    /// After an error: a CMD13 is out.
    CleanStatus,
    /// After an error: the pause before the next CMD13.
    CleanPause,
    Over,
}

/// One read or write of whole blocks, with everything around it.
///
/// `Ok` is the number of blocks, all of them; nothing less is ever a success.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    card: CardTraits,
    dir: Dir,
    lba: u64,
    blocks: u32,
    open_ended: bool,
    state: State,
    pause: Duration,
    deadline: Instant,
    tries: u8,
    error: Option<TransferError>,
}

type Out = Result<u32, TransferError>;

impl Transfer {
    /// `blocks` blocks from `lba` on; arguments are checked by the first step, before anything is sent.
    #[must_use]
    pub const fn new(card: &CardTraits, dir: Dir, lba: u64, blocks: u32, options: TransferOptions) -> Self {
        Self {
            card: *card,
            dir,
            lba,
            blocks,
            open_ended: blocks > 1 && (options.open_ended || !card.cmd23),
            state: State::Start,
            pause: FIRST_PAUSE,
            deadline: Instant::ZERO,
            tries: 0,
            error: None,
        }
    }

    /// The longest the whole conversation takes, recovery included, when it is driven at the instants it
    /// names; a host adds its own stopping time once per operation.
    #[must_use]
    pub fn limit(&self) -> Duration {
        // CMD23, CMD12 and the last CMD13 on the good way; as many again cleaning up, and the last pauses.
        let commands = COMMAND_LIMIT.saturating_mul(12).saturating_add(LAST_PAUSE.saturating_mul(2));
        let ready = match self.dir {
            Dir::Read => Duration::ZERO,
            Dir::Write => self.card.write_limit,
        };
        self.card.data_limit(self.dir, self.blocks) + ready + self.card.recovery_limit() + commands
    }

    fn start(&mut self) -> Step<Out> {
        if self.blocks == 0 {
            return self.refuse(TransferCause::NoBlocks);
        }
        let end = self.lba.checked_add(self.blocks.into());
        if end.is_none_or(|end| end > self.card.blocks) {
            let (lba, blocks, capacity) = (self.lba, self.blocks, self.card.blocks);
            return self.refuse(TransferCause::OutOfRange { lba, blocks, capacity });
        }
        // The card counts on from the first address: the last one must be one it can name, too.
        let last = self.lba.saturating_add(u64::from(self.blocks).saturating_sub(1));
        if self.card.addressing().arg(last).is_none() {
            return self.refuse(TransferCause::Address(last));
        }
        if self.blocks > 1 && !self.open_ended {
            self.state = State::SetCount;
            return run(Command::set_block_count(self.blocks), COMMAND_LIMIT);
        }
        self.data()
    }

    fn data(&mut self) -> Step<Out> {
        let Some(address) = self.card.addressing().arg(self.lba) else {
            return self.refuse(TransferCause::Address(self.lba));
        };
        let stop = if self.open_ended { Stop::Manual } else { Stop::None };
        let command = match (self.dir, self.blocks) {
            (Dir::Read, 1) => Command::read_single_block(address),
            (Dir::Read, n) => Command::read_multiple_block(address, n, stop),
            (Dir::Write, 1) => Command::write_block(address),
            (Dir::Write, n) => Command::write_multiple_block(address, n, stop),
        };
        self.state = State::Data;
        run(command, self.card.data_limit(self.dir, self.blocks))
    }

    fn stop(&mut self) -> Step<Out> {
        self.state = State::Stop;
        run(stop_now(), COMMAND_LIMIT)
    }

    /// All data are over: a read is done, a write must have been stored.
    fn moved(&mut self, now: Instant) -> Step<Out> {
        match self.dir {
            Dir::Read => self.success(),
            Dir::Write => {
                self.deadline = now + self.card.write_limit;
                self.ask_ready(now)
            }
        }
    }

    fn ask_ready(&mut self, now: Instant) -> Step<Out> {
        self.state = State::Ready;
        run(Command::send_status(self.card.rca), self.deadline.since(now) + COMMAND_LIMIT)
    }

    fn success(&mut self) -> Step<Out> {
        self.state = State::Over;
        Step::Done(Ok(self.blocks))
    }

    fn refuse(&mut self, cause: TransferCause) -> Step<Out> {
        self.state = State::Over;
        let (phase, after) = (TransferPhase::Check, After::Untouched);
        Step::Done(Err(TransferError { cause, phase, status: None, done: 0, after }))
    }

    /// Ends with the first error.
    fn end(&mut self, after: After) -> Step<Out> {
        self.state = State::Over;
        let fallback = TransferError {
            cause: TransferCause::OutOfTurn,
            phase: TransferPhase::Check,
            status: None,
            done: 0,
            after,
        };
        Step::Done(Err(TransferError { after, ..self.error.unwrap_or(fallback) }))
    }

    /// Keeps the first error and begins to clean up.
    fn fail(
        &mut self,
        cause: TransferCause,
        phase: TransferPhase,
        status: Option<CardStatus>,
        now: Instant,
    ) -> Step<Out> {
        let done = match (cause, self.dir) {
            (TransferCause::Short(bytes), Dir::Read) => {
                u32::try_from(bytes / 512).unwrap_or(u32::MAX).min(self.blocks)
            }
            _ => 0,
        };
        self.error = Some(TransferError { cause, phase, status, done, after: After::NotReady });
        self.deadline = now + self.card.recovery_limit();
        self.pause = FIRST_PAUSE;
        self.tries = 0;
        if let TransferCause::Host(e) = cause {
            if e.media_gone() {
                return self.end(After::Gone);
            }
            if matches!(e.phase, Phase::Submit) {
                return self.end(match phase {
                    TransferPhase::SetCount => After::Untouched,
                    // The command was refused before it left: the card still waits for one.
                    TransferPhase::Data => After::Ready,
                    _ => After::NotReady,
                });
            }
        }
        // A count that ran out has closed the phase; an open one, or one that was cut short, may still run.
        let open = match phase {
            TransferPhase::Data => self.blocks > 1,
            TransferPhase::Stop => status.is_none(),
            _ => false,
        };
        if open { self.clean_stop() } else { self.clean_status() }
    }

    fn clean_stop(&mut self) -> Step<Out> {
        self.state = State::CleanStop;
        run(stop_now(), COMMAND_LIMIT)
    }

    fn clean_status(&mut self) -> Step<Out> {
        self.state = State::CleanStatus;
        run(Command { gate: Gate::Now, ..Command::send_status(self.card.rca) }, COMMAND_LIMIT)
    }

    /// One answer of the cleaning up.
    fn clean(&mut self, stop: bool, last: Option<Result<Reply, HostError>>, now: Instant) -> Step<Out> {
        let status = match last {
            None => return self.end(After::NotReady),
            Some(Err(e)) if e.media_gone() => return self.end(After::Gone),
            // The host takes no more operations (it keeps a payload whose device would not stop).
            Some(Err(e)) if matches!(e.phase, Phase::Submit) => return self.end(After::NotReady),
            // CMD12 gets no answer when the phase has ended by itself.
            Some(Err(_)) if stop => return self.clean_status(),
            Some(Err(_)) => None,
            Some(Ok(reply)) => Some(status_of(&reply)),
        };
        if let (Some(status), Some(error)) = (status, self.error.as_mut()) {
            error.status.get_or_insert(status);
        }
        if stop {
            return self.clean_status();
        }
        let again = match status {
            Some(s) if s.is_ready() => return self.end(After::Ready),
            Some(s) if matches!(s.state(), CardState::Data | CardState::Rcv) => true,
            None => true,
            Some(_) => false,
        };
        if again {
            self.tries = self.tries.saturating_add(1);
            if self.tries > TRIES {
                return self.end(After::NotReady);
            }
        }
        if now >= self.deadline {
            return self.end(After::NotReady);
        }
        if again && status.is_some() {
            return self.clean_stop();
        }
        self.pause(State::CleanPause)
    }

    fn pause(&mut self, state: State) -> Step<Out> {
        let pause = self.pause;
        self.pause = pause.saturating_mul(2).min(LAST_PAUSE);
        self.state = state;
        Step::Sleep(pause)
    }
}

/// CMD12 without a busy phase of its own: the CMD13 that follows waits for the card.
fn stop_now() -> Command {
    Command { busy: false, ..Command::stop_transmission() }
}

fn run(command: Command, limit: Duration) -> Step<Out> {
    Step::Do(Action { command, limit })
}

fn status_of(reply: &Reply) -> CardStatus {
    let [word, ..] = reply.words;
    CardStatus::from_bits_retain(word)
}

impl Machine for Transfer {
    type Output = Out;

    fn next(&mut self, last: Option<Result<Reply, HostError>>, _: &mut [u8], now: Instant) -> Step<Out> {
        let phase = match self.state {
            State::Start => return self.start(),
            State::ReadyPause => return self.ask_ready(now),
            State::CleanPause => return self.clean_status(),
            State::CleanStop => return self.clean(true, last, now),
            State::CleanStatus => return self.clean(false, last, now),
            State::Over => {
                self.error = None;
                return self.end(After::Untouched);
            }
            State::SetCount => TransferPhase::SetCount,
            State::Data => TransferPhase::Data,
            State::Stop => TransferPhase::Stop,
            State::Ready => TransferPhase::Ready,
        };
        let reply = match last {
            Some(Ok(reply)) => reply,
            Some(Err(e)) => return self.fail(TransferCause::Host(e), phase, None, now),
            None => return self.fail(TransferCause::OutOfTurn, phase, None, now),
        };
        let status = status_of(&reply);
        let mut errors = CardStatus::DATA_ERRORS;
        if matches!(phase, TransferPhase::Stop) && matches!(self.dir, Dir::Read) {
            // The card read ahead of an open-ended read, over its end: normal (spec/card.md §4). Our own
            // range was checked.
            errors.remove(CardStatus::OUT_OF_RANGE);
        }
        if status.intersects(errors) {
            return self.fail(TransferCause::Card, phase, Some(status), now);
        }
        match phase {
            TransferPhase::SetCount => self.data(),
            TransferPhase::Data => {
                if reply.bytes != u64::from(self.blocks).saturating_mul(512) {
                    return self.fail(TransferCause::Short(reply.bytes), phase, None, now);
                }
                if self.open_ended { self.stop() } else { self.moved(now) }
            }
            TransferPhase::Stop => self.moved(now),
            // A CMD13 whose answer got lost fails the write: the card clears its error bits once they are
            // read, so that a second answer would not show them.
            TransferPhase::Ready | TransferPhase::Check => {
                if status.is_ready() {
                    self.success()
                } else if now >= self.deadline {
                    self.fail(TransferCause::NotReady, phase, Some(status), now)
                } else {
                    self.pause(State::ReadyPause)
                }
            }
        }
    }
}

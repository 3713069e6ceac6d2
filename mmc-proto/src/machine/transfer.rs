//! Reading and writing sectors: one conversation per request.
//!
//! ```text
//!  one block        CMD17 / CMD24
//!  count known      CMD23, CMD18 / CMD25                (the card has CMD23)
//!  open-ended       CMD18 / CMD25, CMD12                (it has not, or the caller asks for it, or the count is
//!                                                        above the 65,535 that eMMC can be told)
//!  SDUC             CMD22 before each of CMD17, 18, 24, 25
//!  reliable         CMD23 with its flag, CMD25, also for one block (eMMC)
//!  after a write    CMD13, held back by the host until DAT0 is released, again until the card is ready
//!  after an error   CMD12 if a data phase may be open, CMD13 until ready or the limit; then the first error
//! ```
//!
//! CMD12 is sent by the host itself where it can and the caller lets it ([`Transfer::auto_stop`]).
//!
//! After a write the end of busy is the arrival of the CMD13 that waits for it ([`Gate::Idle`]), so CMD12 is
//! sent without a busy phase of its own: a host that can hold a command in hardware gets one interrupt and no
//! poll.

use super::recover::{After, Recover, Wait, stop_now};
use super::{Action, Machine, Step};
use crate::command::{Address, Addressing, Command, CountFlags, Stop};
use crate::host::{Capabilities, HostError, Phase, Reply};
use crate::register::RegisterError;
use crate::rpmb::FrameError;
use crate::status::CardStatus;
use core::fmt;
use mmc_hal::Dir;
use mmc_time::{Duration, Instant};

/// Longest a command without data may take, response included. At 400 kHz frame, response and the 64 clocks
/// between them are below 1 ms; the rest is for slow hosts.
pub const COMMAND_LIMIT: Duration = Duration::from_millis(10);

/// Blocks for which one access time is allowed in a data phase (128 KiB).
const BLOCKS_PER_ACCESS: u32 = 256;
/// The most blocks CMD23 of eMMC can be told of; more bits would be flags.
const MOST_COUNTED: u32 = 0xffff;

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
    /// How addresses are written on the bus. Only SDUC has more sectors than 32 bits can name.
    #[must_use]
    pub const fn addressing(&self) -> Addressing {
        match (self.byte_addressed, self.blocks > 1 << 32) {
            (true, _) => Addressing::Byte,
            (false, false) => Addressing::Sector,
            (false, true) => Addressing::Extended,
        }
    }
    /// The addresses of the first and the last of `blocks` blocks from `lba` on.
    ///
    /// # Errors
    /// There are none, or they are not all on the card, or not whole units, or cannot be named.
    pub fn range(&self, lba: u64, blocks: u64) -> Result<(Address, Address), TransferCause> {
        if blocks == 0 {
            return Err(TransferCause::NoBlocks);
        }
        let end = lba.checked_add(blocks).filter(|end| *end <= self.blocks);
        let Some(end) = end else {
            let capacity = self.blocks;
            let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
            return Err(TransferCause::OutOfRange { lba, blocks, capacity });
        };
        let unit = u64::from(self.unit.max(1));
        if lba.checked_rem(unit) != Some(0) || blocks.checked_rem(unit) != Some(0) {
            return Err(TransferCause::Unaligned { lba, blocks, unit });
        }
        // The card counts on from the first address: the last one must be one it can name, too.
        let last = end.saturating_sub(1);
        let named = |lba| self.addressing().address(lba).ok_or(TransferCause::Address(lba));
        Ok((named(lba)?, named(last)?))
    }
    pub(crate) fn recovery_limit(&self) -> Duration {
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
    /// CMD22 (SDUC).
    Address,
    /// CMD17, 18, 24 or 25 and their data.
    Data,
    /// CMD12.
    Stop,
    /// Waiting for the card to have stored what was written.
    Ready,
    /// After an error: CMD12 and CMD13. No error is of this phase.
    Recover,
}

impl fmt::Display for TransferPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check => "before the first command",
            Self::SetCount => "setting the block count",
            Self::Address => "naming the upper address bits",
            Self::Data => "moving data",
            Self::Stop => "stopping the data",
            Self::Ready => "waiting for the card to be ready",
            Self::Recover => "recovering from an error",
        })
    }
}

/// Why a transfer or another conversation failed.
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
    /// The first block or the number of blocks is not a multiple of the unit the card is addressed in: 4 KiB native
    /// sectors, or the erase groups of a plain erase.
    #[error("{blocks} blocks at {lba} are not whole units of {unit} blocks")]
    Unaligned {
        /// First block asked for.
        lba: u64,
        /// Blocks asked for.
        blocks: u64,
        /// Blocks of a unit.
        unit: u64,
    },
    /// The address does not fit the bits of an argument (a byte address at or above 4 GiB, a sector at or above
    /// 2 TiB, of SDUC at or above 128 TiB).
    #[error("block {0} cannot be addressed on this card")]
    Address(u64),
    /// The card does not offer it, or it cannot be asked for in this way.
    #[error("not possible with this card: {0}")]
    Unsupported(&'static str),
    /// A register makes no sense.
    #[error("the register cannot be right: {0}")]
    Register(RegisterError),
    /// The card did not take the password, or had none where one was to be used.
    #[error("the card did not accept the password")]
    Password,
    /// The answer of the replay protected memory is not the right one, or says that it failed.
    #[error("RPMB: {0}")]
    Rpmb(FrameError),
    /// The scratch payload is missing or shorter than 512 bytes.
    #[error("the conversation needs a scratch payload of at least 512 bytes in its first segment")]
    Scratch,
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
    #[error("the conversation is over, or the result of its last step is missing")]
    OutOfTurn,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    SetCount,
    Address,
    Data,
    Stop,
    /// A CMD13 is out.
    Ready,
    /// The pause before the next CMD13.
    ReadyPause,
    Recover,
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
    auto_stop: bool,
    auto_count: bool,
    reliable: bool,
    state: State,
    wait: Wait,
    recover: Recover,
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
            open_ended: blocks > 1 && (options.open_ended || !card.cmd23 || blocks > MOST_COUNTED),
            auto_stop: false,
            auto_count: false,
            reliable: false,
            state: State::Start,
            wait: Wait::NONE,
            recover: Recover::new(card.rca, false, Duration::ZERO),
            error: None,
        }
    }
    /// Lets a host that can send CMD12 or CMD23 by itself do so, where one is needed.
    #[must_use]
    pub const fn auto_stop(self, host: &Capabilities) -> Self {
        Self { auto_stop: host.auto_stop, auto_count: host.auto_count, ..self }
    }
    /// A reliable write (eMMC): each block is old or new after a loss of power, nothing else. Refused by the first
    /// step for a read, for a card without CMD23, and for more than 65,535 blocks.
    #[must_use]
    pub const fn reliable(self) -> Self {
        Self { reliable: true, open_ended: false, ..self }
    }

    /// Where the transfer is; `None` before the first step and after the last.
    #[must_use]
    pub const fn phase(&self) -> Option<TransferPhase> {
        Some(match self.state {
            State::Start | State::Over => return None,
            State::SetCount => TransferPhase::SetCount,
            State::Address => TransferPhase::Address,
            State::Data => TransferPhase::Data,
            State::Stop => TransferPhase::Stop,
            State::Ready | State::ReadyPause => TransferPhase::Ready,
            State::Recover => TransferPhase::Recover,
        })
    }

    /// The longest the whole conversation takes, recovery included, when it is driven at the instants it
    /// names; a host adds its own stopping time once per operation.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let ready = match self.dir {
            Dir::Read => Duration::ZERO,
            Dir::Write => self.card.write_limit + Wait::slack(),
        };
        // CMD23, CMD22, CMD12.
        let commands = COMMAND_LIMIT.saturating_mul(3);
        self.card.data_limit(self.dir, self.blocks)
            + ready
            + commands
            + Recover::new(self.card.rca, true, self.card.recovery_limit()).limit()
    }

    const fn multi(&self) -> bool {
        self.blocks > 1 || self.reliable
    }

    fn start(&mut self) -> Step<Out> {
        if self.reliable && (matches!(self.dir, Dir::Read) || !self.card.cmd23) {
            return self.refuse(TransferCause::Unsupported("a reliable transfer is a write with CMD23"));
        }
        if self.reliable && self.blocks > MOST_COUNTED {
            return self.refuse(TransferCause::Unsupported("a reliable write of more than 65,535 blocks"));
        }
        if let Err(cause) = self.card.range(self.lba, self.blocks.into()) {
            return self.refuse(cause);
        }
        if !self.multi() || self.open_ended {
            return self.data();
        }
        if self.auto_count {
            return self.data();
        }
        self.state = State::SetCount;
        run(self.count(), COMMAND_LIMIT)
    }

    /// CMD23.
    const fn count(&self) -> Command {
        if self.reliable {
            // At most MOST_COUNTED, as was checked.
            Command::set_block_count_mmc(self.blocks as u16, CountFlags::RELIABLE, 0)
        } else {
            Command::set_block_count(self.blocks)
        }
    }

    /// CMD22 where one is needed, else the data command.
    fn data(&mut self) -> Step<Out> {
        let Some(address) = self.card.addressing().address(self.lba) else {
            return self.refuse(TransferCause::Address(self.lba));
        };
        if let (Some(extension), State::Start | State::SetCount) = (address.extension(), self.state) {
            self.state = State::Address;
            return run(extension, COMMAND_LIMIT);
        }
        self.state = State::Data;
        run(self.command(address), self.card.data_limit(self.dir, self.blocks))
    }

    /// CMD17, 18, 24 or 25.
    const fn command(&self, address: Address) -> Command {
        let stop = match self.open_ended {
            false if self.auto_count => Stop::Count(self.count().arg),
            false => Stop::None,
            true if self.auto_stop => Stop::Auto,
            true => Stop::Manual,
        };
        let (arg, blocks) = (address.arg, self.blocks);
        match (self.dir, self.multi()) {
            (Dir::Read, false) => Command::read_single_block(arg),
            (Dir::Read, true) => Command::read_multiple_block(arg, blocks, stop),
            (Dir::Write, false) => Command::write_block(arg),
            (Dir::Write, true) => Command::write_multiple_block(arg, blocks, stop),
        }
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
                self.wait = Wait::new(self.card.write_limit, now);
                self.ask_ready(now)
            }
        }
    }

    fn ask_ready(&mut self, now: Instant) -> Step<Out> {
        self.state = State::Ready;
        self.wait.ask(self.card.rca, now)
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
        if let TransferCause::Host(e) = cause {
            if e.media_gone() {
                return self.end(After::Gone);
            }
            if matches!(e.phase, Phase::Submit) {
                return self.end(match phase {
                    TransferPhase::SetCount => After::Untouched,
                    // The command was refused before it left: the card still waits for one.
                    TransferPhase::Address | TransferPhase::Data => After::Ready,
                    _ => After::NotReady,
                });
            }
        }
        // A count that ran out has closed the phase; an open one, or one that was cut short, may still run. SDUC keeps
        // a count and the upper address bits until a command uses them or CMD12 drops them.
        let open = match phase {
            TransferPhase::Data => self.multi(),
            TransferPhase::Stop => status.is_none(),
            TransferPhase::SetCount | TransferPhase::Address => {
                matches!(self.card.addressing(), Addressing::Extended)
            }
            _ => false,
        };
        self.recover = Recover::new(self.card.rca, open, self.card.recovery_limit());
        self.recovering(None, now)
    }

    fn recovering(&mut self, last: Option<Result<Reply, HostError>>, now: Instant) -> Step<Out> {
        self.state = State::Recover;
        match self.recover.next(last, &mut [], now) {
            Step::Do(action) => Step::Do(action),
            Step::Sleep(time) => Step::Sleep(time),
            Step::Bus(bus) => Step::Bus(bus),
            Step::Power(power) => Step::Power(power),
            Step::Done(found) => {
                if let Some(error) = self.error.as_mut() {
                    error.status = error.status.or(found.status);
                }
                self.end(found.after)
            }
        }
    }
}

fn run(command: Command, limit: Duration) -> Step<Out> {
    Step::Do(Action { command, limit })
}

pub(crate) fn status_of(reply: &Reply) -> CardStatus {
    let [word, ..] = reply.words;
    CardStatus::from_bits_retain(word)
}

impl Machine for Transfer {
    type Output = Out;

    fn first_data(&self) -> Option<Command> {
        let address = self.card.addressing().address(self.lba).filter(|_| self.state == State::Start)?;
        Some(self.command(address))
    }
    fn next(&mut self, last: Option<Result<Reply, HostError>>, _: &mut [u8], now: Instant) -> Step<Out> {
        let phase = match self.state {
            State::Start => return self.start(),
            State::ReadyPause => return self.ask_ready(now),
            State::Recover => return self.recovering(last, now),
            State::Over => {
                self.error = None;
                return self.end(After::Untouched);
            }
            State::SetCount => TransferPhase::SetCount,
            State::Address => TransferPhase::Address,
            State::Data => TransferPhase::Data,
            State::Stop => TransferPhase::Stop,
            State::Ready => TransferPhase::Ready,
        };
        let reply = match last {
            Some(Ok(reply)) => reply,
            Some(Err(e)) => {
                // A card that refuses a data command answers and then sends nothing: its answer came first.
                let said = e.r1.map(CardStatus::from_bits_retain);
                let refused = !e.media_gone() && said.is_some_and(|s| s.intersects(CardStatus::DATA_ERRORS));
                let cause = if refused { TransferCause::Card } else { TransferCause::Host(e) };
                return self.fail(cause, phase, said, now);
            }
            None => return self.fail(TransferCause::OutOfTurn, phase, None, now),
        };
        let status = status_of(&reply);
        let mut after_read = CardStatus::DATA_ERRORS;
        if matches!(self.dir, Dir::Read) {
            // The card read ahead of an open-ended read, over its end: normal (spec/card.md §4). Our own
            // range was checked.
            after_read.remove(CardStatus::OUT_OF_RANGE);
        }
        let errors = match phase {
            TransferPhase::Stop => after_read,
            _ => CardStatus::DATA_ERRORS,
        };
        if status.intersects(errors) {
            return self.fail(TransferCause::Card, phase, Some(status), now);
        }
        match phase {
            TransferPhase::SetCount | TransferPhase::Address => self.data(),
            TransferPhase::Data => {
                if reply.bytes != u64::from(self.blocks).saturating_mul(512) {
                    return self.fail(TransferCause::Short(reply.bytes), phase, None, now);
                }
                if self.open_ended && !self.auto_stop {
                    return self.stop();
                }
                let [_, stopped, ..] = reply.words;
                let stopped = CardStatus::from_bits_retain(stopped);
                if self.open_ended && stopped.intersects(after_read) {
                    return self.fail(TransferCause::Card, TransferPhase::Stop, Some(stopped), now);
                }
                self.moved(now)
            }
            TransferPhase::Stop => self.moved(now),
            // A CMD13 whose answer got lost fails the write: the card clears its error bits once they are
            // read, so that a second answer would not show them.
            TransferPhase::Ready | TransferPhase::Check | TransferPhase::Recover => {
                if status.is_ready() {
                    self.success()
                } else if now >= self.wait.until {
                    self.fail(TransferCause::NotReady, phase, Some(status), now)
                } else {
                    self.state = State::ReadyPause;
                    Step::Sleep(self.wait.pause())
                }
            }
        }
    }
}

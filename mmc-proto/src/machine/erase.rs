//! Erasing, discarding and trimming blocks: the range, CMD38, CMD13 until ready.
//!
//! ```text
//!  SD      CMD32, CMD33, CMD38                  (SDUC: CMD22 before each of the first two)
//!  MMC     CMD35, CMD36, CMD38; a secure trim all of it twice: first it marks, then it erases
//! ```
//!
//! Nothing but CMD13 (and CMD22) may come between the three, so that an error begins nothing: the next command forgets
//! the range.

use super::talk::{PLAIN, Say, Script, Talk, TalkError, ready_limit};
use super::transfer::{CardTraits, TransferCause};
use crate::command::{Address, Command};
use crate::host::Reply;
use crate::register::{ExtCsd, MmcCsd, Ssr};
use crate::timing::{EraseKind, MmcEraseKind, erase_limit, mmc_erase_group_bytes, mmc_erase_limit};
use mmc_time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sd(Option<Ssr>, EraseKind),
    Mmc(MmcEraseKind, Times),
}

/// What the time of an MMC's erase depends on: the EXT_CSD itself would make the machine half a kilobyte larger.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// Blocks of an erase group.
    group: u64,
    /// Limit for one group alone.
    per_group: Duration,
    /// The card offers the kind.
    offered: bool,
}

/// What is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    FirstUpper,
    First,
    LastUpper,
    Last,
    Erase,
    Ready,
}

/// The course of an erase: see [`Erase`].
#[derive(Clone, Copy, Debug)]
pub struct EraseScript {
    card: CardTraits,
    kind: Kind,
    lba: u64,
    blocks: u64,
    /// Blocks of a piece: the card is asked for no more at a time.
    piece: u64,
    done: u64,
    /// The second round of a secure trim.
    second: bool,
    at: At,
}

/// Erases, discards or trims whole blocks. `Ok` is the number of blocks, all of them; after an error in the phase
/// `Erase` or later any of them may be gone, and those of [`progress`](Self::progress) are.
pub type Erase = Talk<EraseScript>;

/// The first error of an erase.
pub type EraseError = TalkError;

impl Erase {
    /// On an SD card: `blocks` blocks from `lba` on. The time allowed is [`erase_limit`]'s, which depends on `ssr`.
    #[must_use]
    pub fn new(card: &CardTraits, ssr: Option<&Ssr>, kind: EraseKind, lba: u64, blocks: u64) -> Self {
        Self::of(card, Kind::Sd(ssr.copied(), kind), lba, blocks)
    }
    /// On an MMC or eMMC. The time allowed is [`mmc_erase_limit`]'s. An erase or secure erase must be of whole groups,
    /// because the card would erase whole groups whatever was asked for; what the card does not offer is refused.
    #[must_use]
    pub fn mmc(
        card: &CardTraits,
        csd: &MmcCsd,
        ext_csd: Option<&ExtCsd>,
        kind: MmcEraseKind,
        lba: u64,
        blocks: u64,
    ) -> Self {
        let times = Times {
            group: (mmc_erase_group_bytes(csd, ext_csd) / 512).max(1),
            per_group: mmc_erase_limit(csd, ext_csd, kind, 0, 1),
            offered: kind.offered(ext_csd),
        };
        Self::of(card, Kind::Mmc(kind, times), lba, blocks)
    }
    /// Piece by piece: the card is asked for at most `blocks` blocks at a time (rounded up to whole erase groups of an
    /// MMC), so that [`progress`](Self::progress) says something and a caller that stops loses one piece only. The
    /// whole takes longer.
    #[must_use]
    pub fn in_pieces(self, blocks: u64) -> Self {
        let group = match &self.script().kind {
            Kind::Sd(..) => u64::from(self.script().card.unit.max(1)),
            Kind::Mmc(_, times) => times.group,
        };
        let piece = blocks.max(1).div_ceil(group).saturating_mul(group);
        Self::follow(self.rca(), EraseScript { piece, ..*self.script() })
    }
    /// Blocks that are erased for certain, of how many.
    #[must_use]
    pub const fn progress(&self) -> (u64, u64) {
        (self.script().done, self.script().blocks)
    }
    fn of(card: &CardTraits, kind: Kind, lba: u64, blocks: u64) -> Self {
        let (piece, done, second, at) = (blocks, 0, false, At::Start);
        Self::follow(card.rca, EraseScript { card: *card, kind, lba, blocks, piece, done, second, at })
    }
}

impl EraseScript {
    /// First block and length of the piece that is erased now.
    fn now(&self) -> (u64, u64) {
        let left = self.blocks.saturating_sub(self.done);
        (self.lba.saturating_add(self.done), left.min(self.piece))
    }
    fn rounds(&self) -> u64 {
        if matches!(self.kind, Kind::Mmc(MmcEraseKind::SecureTrim, _)) { 2 } else { 1 }
    }
    /// Longest busy of CMD38 over these blocks.
    fn busy(&self, lba: u64, blocks: u64) -> Duration {
        match &self.kind {
            Kind::Sd(ssr, kind) => erase_limit(ssr.as_ref(), *kind, lba, blocks),
            Kind::Mmc(_, times) => {
                let first = lba.checked_div(times.group).unwrap_or(0);
                let end = lba.saturating_add(blocks).div_ceil(times.group.max(1));
                times.per_group.saturating_mul(end.saturating_sub(first).max(1))
            }
        }
    }
    /// The longest any piece may take: one that begins and ends in the middle of a unit.
    fn worst(&self) -> Duration {
        let piece = self.piece.min(self.blocks);
        if piece == self.blocks { self.busy(self.lba, piece) } else { self.busy(1, piece) }
    }
    fn check(&self) -> Result<(Address, Address), TransferCause> {
        let (lba, blocks) = (self.lba, self.blocks);
        let whole = self.card.range(lba, blocks)?;
        if let Kind::Mmc(kind, times) = &self.kind {
            if !times.offered {
                return Err(TransferCause::Unsupported("this way to erase"));
            }
            let unit = times.group;
            let odd = |at: u64| at.checked_rem(unit) != Some(0);
            let end = lba.saturating_add(blocks);
            // The last group of a card may be cut short.
            if kind.whole_groups() && (odd(lba) || (odd(end) && end != self.card.blocks)) {
                return Err(TransferCause::Unaligned { lba, blocks, unit });
            }
        }
        let (lba, blocks) = self.now();
        if (lba, blocks) == (self.lba, self.blocks) { Ok(whole) } else { self.card.range(lba, blocks) }
    }
    fn arg(&self) -> u32 {
        match &self.kind {
            Kind::Sd(_, kind) => kind.arg(),
            Kind::Mmc(MmcEraseKind::SecureTrim, _) if self.second => 0x8000_8000,
            Kind::Mmc(kind, _) => kind.arg(),
        }
    }
}

impl Script for EraseScript {
    type Output = u64;

    fn limit(&self) -> Duration {
        let one = ready_limit(self.worst()) + PLAIN.saturating_mul(5);
        let pieces = self.blocks.div_ceil(self.piece.max(1)).max(1);
        one.saturating_mul(pieces).saturating_mul(self.rounds())
    }
    fn patience(&self) -> Duration {
        self.worst()
    }
    fn next(&mut self, _: Option<Reply>, _: &mut [u8], _: Instant) -> Result<Say<u64>, TransferCause> {
        if self.at == At::Ready {
            if self.rounds() == 2 && !self.second {
                self.second = true;
            } else {
                self.second = false;
                self.done = self.done.saturating_add(self.now().1);
            }
            if self.done >= self.blocks {
                return Ok(Say::Done(self.blocks));
            }
            self.at = At::Start;
        }
        let (first, last) = self.check()?;
        let mmc = matches!(self.kind, Kind::Mmc(..));
        let (at, command) = match (self.at, first.extension(), last.extension()) {
            (At::Start, Some(upper), _) => (At::FirstUpper, upper),
            (At::Start | At::FirstUpper, ..) if mmc => (At::First, Command::erase_group_start(first.arg)),
            (At::Start | At::FirstUpper, ..) => (At::First, Command::erase_wr_blk_start(first.arg)),
            (At::First, _, Some(upper)) => (At::LastUpper, upper),
            (At::First | At::LastUpper, ..) if mmc => (At::Last, Command::erase_group_end(last.arg)),
            (At::First | At::LastUpper, ..) => (At::Last, Command::erase_wr_blk_end(last.arg)),
            // The end of busy is the arrival of the CMD13 that waits for it, as after a write.
            (At::Last, ..) => (At::Erase, Command { busy: false, ..Command::erase(self.arg()) }),
            (At::Erase | At::Ready, ..) => {
                self.at = At::Ready;
                let (lba, blocks) = self.now();
                return Ok(Say::Ready(self.busy(lba, blocks)));
            }
        };
        self.at = at;
        Ok(Say::Do(if at == At::Erase { "Erase" } else { "Range" }, command, PLAIN))
    }
}

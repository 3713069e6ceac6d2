//! What is refused at the door, and what a request can end with.

use crate::core::Wipe;
use mmc_proto::machine::{Partition, TalkError, TransferError};
use mmc_sched::{Op, Rejected, Request};

/// Why a request was refused; nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No sectors.
    #[error("the request covers no sector")]
    Empty,
    /// It ends behind the card, or the sector numbers wrap.
    #[error("sectors {lba}+{blocks} reach beyond the card's {capacity} sectors")]
    OutOfRange {
        /// First sector asked for.
        lba: u64,
        /// Sectors asked for.
        blocks: u32,
        /// Sectors of the card.
        capacity: u64,
    },
    /// The buffer is not exactly as long as the request.
    #[error("the buffer has {bytes} bytes, the request needs exactly {needed}")]
    BufferLength {
        /// Bytes of the buffer.
        bytes: usize,
        /// 512 times the request's blocks.
        needed: u64,
    },
    /// A segment of the buffer without a byte.
    #[error("segment {0} of the buffer is empty: leave it out")]
    EmptySegment(usize),
    /// A sector (or native unit of the card) that lies in more segments than one command can have; between sectors a request
    /// is divided.
    #[error(
        "the data at sector {lba} lie in {segments} pieces of memory, and a command on this host has at most {max}: use longer segments"
    )]
    Segments {
        /// First sector of the unit.
        lba: u64,
        /// Segments it lies in, or at least so many.
        segments: usize,
        /// Most segments of one command.
        max: usize,
    },
    /// An operation this disk cannot do.
    #[error("{0:?} is not supported by this disk")]
    Unsupported(Op),
    /// Emptying sectors for good in a way that the card does not offer, or must not be asked for.
    #[error("the card offers no {0:?} that can be relied on")]
    NotOffered(Wipe),
    /// There is no such partition, or none for sectors: the user area is what requests are for, RPMB has conversations of
    /// its own.
    #[error("the card has no {0:?} to read and write beside the user area")]
    NoPartition(Partition),
    /// The batch that was lent for the conversation is missing, not empty, or has no room.
    #[error("a conversation with the caller's data needs an empty batch with room for one buffer")]
    NoBatch,
    /// It does not begin and end between units: the native sectors of 4 KiB of some eMMC, or the erase groups of a secure
    /// erase.
    #[error("sectors {lba}+{blocks} are not whole units of {unit} sectors: align them")]
    Unaligned {
        /// First sector asked for.
        lba: u64,
        /// Sectors asked for.
        blocks: u32,
        /// Sectors of a unit.
        unit: u32,
    },
    /// The table of accepted requests is full.
    #[error("the table of accepted requests is full: take finished ones, or give the disk more tags")]
    TableFull,
    /// The disk has stopped.
    #[error("the disk has stopped: {0}")]
    Stopped(Stopped),
}

/// Why a disk has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// The host could not stop its device and keeps the buffers of a command.
    #[error("the host keeps buffers its device may still use (reclaim them)")]
    Quarantine,
    /// The card has left the slot, or cannot be identified any more.
    #[error("no card, or none that can be identified")]
    NoMedia,
    /// Another card is in the slot (or the same again): nothing of the old one is valid.
    #[error("the card was changed (accept it to go on)")]
    MediaChanged,
    /// The supply is about to go.
    #[error("power-off is being prepared")]
    PowerOff,
    /// A conversation with the card was left halfway ([`Disk::evict`](crate::Disk::evict)), and the disk does not look after
    /// its card: nobody knows in which state that is.
    #[error("a conversation with the card was left halfway")]
    Deserted,
    /// The caller shut it down.
    #[error("shut down")]
    Shutdown,
}

/// A refused request: all of it comes back.
pub struct Refused<B> {
    /// Why.
    pub error: Refusal,
    /// As submitted.
    pub request: Request,
    /// Its buffer.
    pub buffer: B,
}

impl<B> core::fmt::Debug for Refused<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// How an accepted request failed. The first error wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The command failed, after all repetitions it was worth.
    #[error("{0}")]
    Transfer(TransferError),
    /// The erase (of a discard, a write-zeroes or a wipe) failed, after all repetitions it was worth: any of its sectors may be
    /// gone.
    #[error("{0}")]
    Erase(TalkError),
    /// The flush of the card's cache failed, after all repetitions it was worth: what was written since the last good one
    /// may be lost.
    #[error("flush: {0}")]
    Flush(TalkError),
    /// The card lost its supply with writes in its cache that no flush had stored. Told once, to the next flush.
    #[error("the card was reset with unflushed writes in its cache: they may be lost")]
    CacheLost,
    /// A partition could not be selected, and the user area was again.
    #[error("selecting the partition: {0}")]
    Select(TalkError),
    /// The user area could not be selected again after another partition was: the card has to be identified anew.
    #[error("back to the user area: {0}")]
    Partition(TalkError),
    /// The command ended without an error but moved fewer (or more) blocks than it should.
    #[error("{moved} of {expected} blocks were moved")]
    Short {
        /// Blocks of the command.
        expected: u32,
        /// Blocks the conversation reported.
        moved: u32,
    },
    /// The command failed and the host could not stop its device: it keeps the buffer.
    #[error("{0}; the host keeps the buffer until its device has stopped")]
    Quarantined(TransferError),
    /// The disk stopped before the request was sent.
    #[error("not sent: {0}")]
    Stopped(Stopped),
    /// The scheduler would not take it.
    #[error("not queued: {0}")]
    Rejected(Rejected),
    /// The scheduler gave out something that is not (a part of) this request: a fault of the policy.
    #[error("the scheduler gave out a run that does not fit its requests")]
    BadRun,
}

impl From<TransferError> for BlockError {
    fn from(e: TransferError) -> Self {
        Self::Transfer(e)
    }
}

impl BlockError {
    /// The card has left the slot.
    #[must_use]
    pub const fn media_gone(&self) -> bool {
        match self {
            Self::Transfer(e) | Self::Quarantined(e) => e.media_gone(),
            Self::Erase(e) | Self::Flush(e) | Self::Select(e) | Self::Partition(e) => e.media_gone(),
            _ => false,
        }
    }
    /// The card must be identified anew before it is used again.
    #[must_use]
    pub const fn needs_reset(&self) -> bool {
        match self {
            Self::Transfer(e) | Self::Quarantined(e) => e.needs_reset(),
            Self::Erase(e) | Self::Flush(e) | Self::Select(e) | Self::Partition(e) => e.needs_reset(),
            _ => false,
        }
    }
    /// Sending the same command again may help.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Transfer(e) => e.is_retryable(),
            Self::Erase(e) | Self::Flush(e) | Self::Select(e) | Self::Partition(e) => e.is_retryable(),
            Self::Short { .. } => true,
            _ => false,
        }
    }
}

/// Why a disk could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Requests are in the scheduler already: this disk has no buffers for them.
    #[error("the scheduler holds {0} requests: give the disk an empty one")]
    SchedulerNotEmpty(usize),
    /// The scheduler's pool has no slot at all.
    #[error("the scheduler has no slot for a request")]
    NoSlots,
    /// Fewer tags than the scheduler has slots.
    #[error("{tags} tags for a scheduler of {capacity} slots: give the disk at least {capacity}")]
    TooFewTags {
        /// Length of the table.
        tags: usize,
        /// Slots of the scheduler.
        capacity: usize,
    },
    /// `nr_requests` is 0.
    #[error("nr_requests is 0: at least one request must be let in")]
    NoRequests,
    /// The batch has room for no buffer, or holds some already.
    #[error("the batch must be empty and have room for at least one buffer")]
    NoBatch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_proto::host::{Cause, HostError, Phase};
    use mmc_proto::machine::{After, TransferCause, TransferPhase};

    #[test]
    fn what_is_in_an_error_says_what_can_be_done_about_it() {
        let host = |cause| TransferCause::Host(HostError::new(cause, Phase::Command, 18));
        for (cause, after, gone, reset, again) in [
            (host(Cause::Crc), After::Ready, false, false, true),
            (host(Cause::Crc), After::NotReady, false, true, true),
            (host(Cause::NoCard), After::Gone, true, false, false),
            (TransferCause::Password, After::Ready, false, false, false),
        ] {
            let transfer = TransferError { cause, phase: TransferPhase::Data, status: None, done: 0, after };
            let talk = TalkError { cause, phase: None, status: None, after };
            for e in [
                BlockError::Transfer(transfer),
                BlockError::Erase(talk),
                BlockError::Flush(talk),
                BlockError::Select(talk),
                BlockError::Partition(talk),
            ] {
                assert_eq!(
                    (e.media_gone(), e.needs_reset(), e.is_retryable()),
                    (gone, reset, again),
                    "{e:?}"
                );
            }
            // Its buffer is not there to be sent again.
            let e = BlockError::Quarantined(transfer);
            assert_eq!((e.media_gone(), e.needs_reset(), e.is_retryable()), (gone, reset, false), "{e:?}");
        }
        let short = BlockError::Short { expected: 8, moved: 7 };
        for (e, again) in [(short, true), (BlockError::CacheLost, false), (BlockError::BadRun, false)] {
            assert_eq!((e.media_gone(), e.needs_reset(), e.is_retryable()), (false, false, again), "{e:?}");
        }
    }
}

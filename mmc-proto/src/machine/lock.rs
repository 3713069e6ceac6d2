//! Passwords (CMD42) and the writable bits of the CSD (CMD27): data of a few bytes that the card stores or obeys.
//!
//! ```text
//!  CMD16 length, CMD42 with the structure, CMD13 until ready, CMD16 back to 512
//! ```

use super::talk::{PLAIN, Say, Script, Talk, ready_limit};
use super::transfer::{CardTraits, TransferCause, status_of};
use crate::command::Command;
use crate::host::Reply;
use crate::register::{Csd, MmcCsd, seal};
use crate::status::CardStatus;
use crate::timing::FORCE_ERASE_LIMIT;
use core::fmt;
use mmc_time::{Duration, Instant};

/// Longest password.
const MOST: usize = 16;

/// Mode, length, and two passwords.
const ROOM: usize = 2 + 2 * MOST;

/// What CMD42 is asked for. Passwords have 1 to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum LockOp<'a> {
    /// Sets a password where there is none; with `lock` the card is locked at once.
    Set {
        /// The password.
        new: &'a [u8],
        /// Lock it at once.
        lock: bool,
    },
    /// Replaces the password.
    Change {
        /// What it is.
        old: &'a [u8],
        /// What it shall be.
        new: &'a [u8],
    },
    /// Removes the password; the card is unlocked.
    Clear(&'a [u8]),
    /// Locks.
    Lock(&'a [u8]),
    /// Unlocks until power goes.
    Unlock(&'a [u8]),
    /// Erases all of the card, and the password with it. Only a locked card obeys.
    ForceErase,
}

impl fmt::Debug for LockOp<'_> {
    /// Without the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Set { .. } => "Set",
            Self::Change { .. } => "Change",
            Self::Clear(_) => "Clear",
            Self::Lock(_) => "Lock",
            Self::Unlock(_) => "Unlock",
            Self::ForceErase => "ForceErase",
        })
    }
}

/// The data block of a command, filled from the front.
#[derive(Clone, Copy)]
struct Block {
    bytes: [u8; ROOM],
    len: u8,
}

impl fmt::Debug for Block {
    /// Without the content: it may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl Block {
    const fn new() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let from = usize::from(self.len);
        let to = from.checked_add(bytes.len())?;
        self.bytes.get_mut(from..to)?.copy_from_slice(bytes);
        self.len = u8::try_from(to).ok()?;
        Some(())
    }
}

/// The structure of CMD42 (`spec/card.md` §2.5); `None` if a password is empty or too long.
fn structure(op: LockOp<'_>) -> Option<Block> {
    let mut block = Block::new();
    let (mode, first, second): (u8, &[u8], &[u8]) = match op {
        LockOp::Set { new, lock } => (1 | if lock { 4 } else { 0 }, new, &[]),
        LockOp::Change { old, new } => (1, old, new),
        LockOp::Clear(password) => (2, password, &[]),
        LockOp::Lock(password) => (4, password, &[]),
        LockOp::Unlock(password) => (0, password, &[]),
        LockOp::ForceErase => {
            block.push(&[8])?;
            return Some(block);
        }
    };
    let one = |password: &[u8]| (1..=MOST).contains(&password.len());
    if !one(first) || (matches!(op, LockOp::Change { .. }) && !one(second)) {
        return None;
    }
    let both = u8::try_from(first.len().saturating_add(second.len())).ok()?;
    block.push(&[mode, both])?;
    block.push(first)?;
    block.push(second)?;
    Some(block)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    Length,
    Sent,
    Ready,
    Restored,
}

/// The course of a [`Lock`].
#[derive(Clone, Copy, Debug)]
pub struct StoreScript {
    refused: Option<TransferCause>,
    block: Block,
    command: Command,
    /// CMD16 before with the length of the block, and after with 512.
    sized: bool,
    limit: Duration,
    busy: Duration,
    at: At,
    found: CardStatus,
}

impl StoreScript {
    fn done(&self) -> Result<Say<CardStatus>, TransferCause> {
        if self.found.contains(CardStatus::LOCK_UNLOCK_FAILED) {
            return Err(TransferCause::Password);
        }
        Ok(Say::Done(self.found))
    }
}

impl Script for StoreScript {
    type Output = CardStatus;

    fn scratch(&self) -> bool {
        true
    }
    fn limit(&self) -> Duration {
        PLAIN.saturating_mul(2) + self.limit + ready_limit(self.busy)
    }
    fn patience(&self) -> Duration {
        self.busy
    }
    fn tolerates(&self) -> CardStatus {
        // The block length must be put back before the refusal is told.
        CardStatus::LOCK_UNLOCK_FAILED
    }
    fn sent(&mut self, scratch: &mut [u8]) {
        scratch.iter_mut().take(ROOM).for_each(|byte| *byte = 0);
    }
    fn next(
        &mut self,
        heard: Option<Reply>,
        scratch: &mut [u8],
        _: Instant,
    ) -> Result<Say<CardStatus>, TransferCause> {
        if let Some(cause) = self.refused {
            return Err(cause);
        }
        match self.at {
            At::Start if self.sized => {
                self.at = At::Length;
                Ok(Say::Do("Length", Command::set_blocklen(self.block.len.into()), PLAIN))
            }
            At::Start | At::Length => {
                self.at = At::Sent;
                let (to, _) = scratch.split_at_mut_checked(ROOM).ok_or(TransferCause::Scratch)?;
                to.copy_from_slice(&self.block.bytes);
                Ok(Say::Do("Send", self.command, self.limit))
            }
            At::Sent => {
                self.at = At::Ready;
                Ok(Say::Ready(self.busy))
            }
            At::Ready => {
                self.found = status_of(&heard.unwrap_or_default());
                self.at = At::Restored;
                if self.sized {
                    return Ok(Say::Do("Restore", Command::set_blocklen(512), PLAIN));
                }
                self.done()
            }
            At::Restored => self.done(),
        }
    }
}

/// Sets, changes or clears a card's password, locks, unlocks, or erases by force. `Ok` is the card's status afterwards:
/// [`CardStatus::CARD_IS_LOCKED`] says whether it is locked. A wrong password is [`TransferCause::Password`].
///
/// The machine wants a scratch payload of 512 bytes and clears what it wrote there. After any other error the block
/// length of a byte-addressed card may be that of the structure: it must be identified anew.
pub type Lock = Talk<StoreScript>;

impl Lock {
    /// What is asked for by `op`. A password that is empty or longer than 16 bytes is refused by the first step.
    #[must_use]
    pub fn lock(card: &CardTraits, op: LockOp<'_>) -> Self {
        let block = structure(op);
        let refused = match block {
            Some(_) => None,
            None => Some(TransferCause::Unsupported("a password of no or more than 16 bytes")),
        };
        let block = block.unwrap_or(Block::new());
        let busy = match op {
            LockOp::ForceErase => FORCE_ERASE_LIMIT,
            _ => card.write_limit,
        };
        let (command, limit) = (Command::lock_unlock(block.len.into()), card.write_limit + PLAIN);
        let found = CardStatus::empty();
        let at = At::Start;
        Self::follow(card.rca, StoreScript { refused, block, command, sized: true, limit, busy, at, found })
    }
    /// CMD27: sets or lifts the temporary write protection of the whole card, in the CSD as the card sends it *now*
    /// ([`Reread::csd`](super::Reread): TRAN_SPEED differs in high speed).
    #[must_use]
    pub fn write_protect(card: &CardTraits, csd: &Csd, on: bool) -> Self {
        Self::program_csd(card, csd.emit(), on)
    }
    /// CMD27: the same of an MMC.
    #[must_use]
    pub fn write_protect_mmc(card: &CardTraits, csd: &MmcCsd, on: bool) -> Self {
        Self::program_csd(card, csd.emit(), on)
    }
    /// All but the bit stays as it was read: a card reports CSD_OVERWRITE for any other difference.
    fn program_csd(card: &CardTraits, csd: [u8; 16], on: bool) -> Self {
        let mut csd = csd;
        let [.., protection, _] = &mut csd;
        // TMP_WRITE_PROTECT is bit 12.
        *protection = (*protection & !0x10) | (u8::from(on) << 4);
        Self::register(card, Command::program_csd(), &seal(csd))
    }
    fn register(card: &CardTraits, command: Command, register: &[u8; 16]) -> Self {
        let mut block = Block::new();
        // Sixteen bytes fit.
        let _ = block.push(register);
        let (limit, busy) = (card.write_limit + PLAIN, card.write_limit);
        let (refused, sized, at, found) = (None, false, At::Start, CardStatus::empty());
        Self::follow(card.rca, StoreScript { refused, block, command, sized, limit, busy, at, found })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_password_is_not_printed_its_length_is() {
        let block = structure(LockOp::Unlock(b"sesame")).unwrap();
        assert_eq!(std::format!("{block:?}"), "8 bytes");
    }

    #[test]
    fn structures_are_the_ones_of_the_standard() {
        let bytes = |op| structure(op).map(|b| (b.len, b.bytes));
        let with = |bytes: &[u8]| {
            let mut all = [0; ROOM];
            all[..bytes.len()].copy_from_slice(bytes);
            Some((bytes.len() as u8, all))
        };
        assert_eq!(bytes(LockOp::Set { new: b"ab", lock: true }), with(&[5, 2, b'a', b'b']));
        assert_eq!(bytes(LockOp::Change { old: b"a", new: b"bc" }), with(&[1, 3, b'a', b'b', b'c']));
        assert_eq!(bytes(LockOp::Clear(b"x")), with(&[2, 1, b'x']));
        assert_eq!(bytes(LockOp::Lock(b"x")), with(&[4, 1, b'x']));
        assert_eq!(bytes(LockOp::Unlock(b"x")), with(&[0, 1, b'x']));
        assert_eq!(bytes(LockOp::ForceErase), with(&[8]));
        let long = [7; 17];
        for op in [LockOp::Unlock(b""), LockOp::Unlock(&long), LockOp::Change { old: b"a", new: b"" }] {
            assert_eq!(bytes(op), None);
        }
        assert_eq!(bytes(LockOp::Change { old: &long[1..], new: &long[1..] }).map(|b| b.0), Some(34));
    }
}

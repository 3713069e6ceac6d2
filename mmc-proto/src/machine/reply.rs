//! What the conversations that bring a card up make of a reply.

use crate::host::Reply;
use crate::status::CardStatus;
use mmc_time::Duration;

/// Longest from a command that reads a register to the end of its data: 100 ms by the standard, and room.
pub(super) const REGISTER_LIMIT: Duration = Duration::from_millis(200);
/// The same for the EXT_CSD: parts are known that need 600 ms for their first data.
pub(super) const EXT_CSD_LIMIT: Duration = Duration::from_millis(700);

/// Errors of the command at hand; what the command before did wrong (CMD8 on an old card) shows in the same
/// R1.
pub(super) const HARD_ERRORS: CardStatus = CardStatus::from_bits_retain(
    CardStatus::ERRORS.bits() & !(CardStatus::ILLEGAL_COMMAND.bits() | CardStatus::COM_CRC_ERROR.bits()),
);

/// The first `N` bytes of `scratch`, if the host moved that many.
pub(super) fn register<const N: usize>(reply: &Reply, scratch: &[u8]) -> Option<[u8; N]> {
    if reply.bytes != N as u64 {
        return None;
    }
    scratch.first_chunk::<N>().copied()
}

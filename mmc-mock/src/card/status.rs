//! The card status of an SD card: which bits there are, and when they go (`spec/card.md` §4).

use super::sd::State;

pub(super) const OUT_OF_RANGE: u32 = 1 << 31;
pub(super) const ADDRESS_ERROR: u32 = 1 << 30;
pub(super) const BLOCK_LEN_ERROR: u32 = 1 << 29;
pub(super) const ERASE_SEQ_ERROR: u32 = 1 << 28;
pub(super) const ERASE_PARAM: u32 = 1 << 27;
pub(super) const WP_VIOLATION: u32 = 1 << 26;
pub(super) const CARD_IS_LOCKED: u32 = 1 << 25;
pub(super) const LOCK_UNLOCK_FAILED: u32 = 1 << 24;
pub(super) const COM_CRC_ERROR: u32 = 1 << 23;
pub(super) const ILLEGAL_COMMAND: u32 = 1 << 22;
pub(super) const ERROR: u32 = 1 << 19;
pub(super) const CSD_OVERWRITE: u32 = 1 << 16;
pub(super) const WP_ERASE_SKIP: u32 = 1 << 15;
pub(super) const ERASE_RESET: u32 = 1 << 13;
const READY_FOR_DATA: u32 = 1 << 8;
const APP_CMD: u32 = 1 << 5;

/// Bits that an R1 carries.
pub(super) const R1: u32 = u32::MAX;
/// Bits that an R6 carries.
pub(super) const R6: u32 = COM_CRC_ERROR | ILLEGAL_COMMAND | ERROR | 0x1fff;

/// Errors about the frame before: they show once and go with the next valid command (clear condition B).
const PREVIOUS: u32 = COM_CRC_ERROR | ILLEGAL_COMMAND;

/// Error bits that wait to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Status(u32);

impl Status {
    pub(super) fn raise(&mut self, bits: u32) {
        self.0 |= bits;
    }
    /// The error bits that wait.
    pub(super) fn pending(self) -> u32 {
        self.0
    }
    /// The bits of `mask` as a response tells them; the errors among them are told with that (clear condition C).
    pub(super) fn read(&mut self, state: State, ready: bool, app: bool, mask: u32) -> u32 {
        let told = self.0 & mask;
        self.0 &= !mask | PREVIOUS;
        let ready = if ready { READY_FOR_DATA } else { 0 };
        let app = if app { APP_CMD } else { 0 };
        (told | ready | app | (state as u32 & 15) << 9) & mask
    }
    /// A valid command came.
    pub(super) fn accepted(&mut self) {
        self.0 &= !PREVIOUS;
    }
}

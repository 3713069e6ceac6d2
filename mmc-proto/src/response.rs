//! Responses as typed views of the 32 bits (R1, R3 … R7) or 128 bits (R2) a host delivers.

use crate::host::Reply;
use crate::register::{Cid, Csd, MmcCid, MmcCsd, Ocr};
use crate::status::{CardState, CardStatus};

/// R1 and R1b: the card status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R1(pub CardStatus);

impl From<&Reply> for R1 {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(CardStatus::from_bits_retain(word))
    }
}

/// R2: a CID or a CSD; the command tells which, and the card's kind how to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R2(pub [u32; 4]);

impl R2 {
    /// As the CID of an SD card.
    #[must_use]
    pub fn cid(&self) -> Cid {
        Cid::from_words(self.0)
    }
    /// As the CSD of an SD card.
    #[must_use]
    pub fn csd(&self) -> Csd {
        Csd::from_words(self.0)
    }
    /// As the CID of an MMC.
    #[must_use]
    pub fn mmc_cid(&self) -> MmcCid {
        MmcCid::from_words(self.0)
    }
    /// As the CSD of an MMC.
    #[must_use]
    pub fn mmc_csd(&self) -> MmcCsd {
        MmcCsd::from_words(self.0)
    }
}

impl From<&Reply> for R2 {
    fn from(reply: &Reply) -> Self {
        Self(reply.words)
    }
}

/// R3: the OCR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R3(pub Ocr);

impl From<&Reply> for R3 {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(Ocr(word))
    }
}

/// R6 of SD: the new relative address and 16 bits of the card status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R6(pub u32);

impl R6 {
    /// The relative address the card gave itself; 0 is none.
    #[must_use]
    pub const fn rca(&self) -> u16 {
        (self.0 >> 16) as u16
    }
    /// The card status as far as R6 carries it: bits 23, 22, 19 and 12:0, each in its own place again.
    #[must_use]
    pub const fn status(&self) -> CardStatus {
        let low = self.0 & 0x1fff;
        let high = ((self.0 >> 14) & 3) << 22;
        let error = ((self.0 >> 13) & 1) << 19;
        CardStatus::from_bits_retain(low | high | error)
    }
}

impl From<&Reply> for R6 {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// R7 of SD: what the card makes of CMD8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R7(pub u32);

impl R7 {
    /// The check pattern, echoed.
    #[must_use]
    pub const fn pattern(&self) -> u8 {
        self.0 as u8
    }
    /// The supply code accepted: 1 for 2.7–3.6 V, 0 for none.
    #[must_use]
    pub const fn voltage(&self) -> u8 {
        ((self.0 >> 8) & 0xf) as u8
    }
    /// The card can be used over PCIe.
    #[must_use]
    pub const fn pcie(&self) -> bool {
        (self.0 >> 12) & 1 == 1
    }
    /// The card takes 1.2 V over PCIe.
    #[must_use]
    pub const fn pcie_1v2(&self) -> bool {
        (self.0 >> 13) & 1 == 1
    }
}

impl From<&Reply> for R7 {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// R4 of SDIO: what CMD5 brings, without CRC (`spec/card.md` §15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R4(pub u32);

impl R4 {
    /// The I/O part has powered up.
    #[must_use]
    pub const fn ready(&self) -> bool {
        self.0 >> 31 == 1
    }
    /// How many I/O functions there are beside function 0, 0..=7.
    #[must_use]
    pub const fn functions(&self) -> u8 {
        ((self.0 >> 28) & 7) as u8
    }
    /// There is a memory card, too (a combo card).
    #[must_use]
    pub const fn memory(&self) -> bool {
        (self.0 >> 27) & 1 == 1
    }
    /// The card takes the switch to 1.8 V (S18A).
    #[must_use]
    pub const fn accepts_v1_8(&self) -> bool {
        (self.0 >> 24) & 1 == 1
    }
    /// The supply window, bits 23:8 of an OCR.
    #[must_use]
    pub const fn ocr(&self) -> Ocr {
        Ocr(self.0 & 0x00ff_ffff)
    }
}

impl From<&Reply> for R4 {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// R5 of SDIO: flags and the byte of CMD52 or CMD53 (`spec/card.md` §15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct R5(pub u32);

impl R5 {
    /// Bits 15:8 that say that something went wrong: CRC, illegal command, general error, function number, out of
    /// range.
    pub const ERRORS: u32 = 0xcb00;

    /// The byte read (of a CMD52 with RAW the one read back), bits 7:0.
    #[must_use]
    pub const fn data(&self) -> u8 {
        self.0 as u8
    }
    /// The error flags that are set, in their places: a part of [`ERRORS`](Self::ERRORS).
    #[must_use]
    pub const fn errors(&self) -> u32 {
        self.0 & Self::ERRORS
    }
    /// The state of the I/O part: 0 disabled, 1 command, 2 transfer.
    #[must_use]
    pub const fn io_state(&self) -> u8 {
        ((self.0 >> 12) & 3) as u8
    }
}

impl From<&Reply> for R5 {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// R4 of MMC: what FAST_IO (CMD39) brings, an 8-bit register of the card's application (`spec/card.md` §1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FastIo(pub u32);

impl FastIo {
    /// The address of the card that answered.
    #[must_use]
    pub const fn rca(&self) -> u16 {
        (self.0 >> 16) as u16
    }
    /// The access succeeded.
    #[must_use]
    pub const fn done(&self) -> bool {
        (self.0 >> 15) & 1 == 1
    }
    /// Register, 0..=127.
    #[must_use]
    pub const fn register(&self) -> u8 {
        ((self.0 >> 8) & 0x7f) as u8
    }
    /// Its content.
    #[must_use]
    pub const fn data(&self) -> u8 {
        self.0 as u8
    }
}

impl From<&Reply> for FastIo {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// R5 of MMC: the card that raised the interrupt after GO_IRQ_STATE (CMD40).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Irq(pub u32);

impl Irq {
    /// The address of the card that won the bus.
    #[must_use]
    pub const fn rca(&self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl From<&Reply> for Irq {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// The queue status register of an eMMC: the answer to CMD13 with its queue bit (`spec/card.md` §3, §19).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QueueStatus(pub u32);

impl QueueStatus {
    /// Task `task` is ready to be executed; `false` for tasks above 31.
    #[must_use]
    pub const fn ready(&self, task: u8) -> bool {
        task < 32 && (self.0 >> (task & 31)) & 1 == 1
    }
    /// The ready task with the lowest number.
    #[must_use]
    pub const fn first(&self) -> Option<u8> {
        match self.0.trailing_zeros() {
            32 => None,
            n => Some(n as u8),
        }
    }
}

impl From<&Reply> for QueueStatus {
    fn from(reply: &Reply) -> Self {
        let [word, ..] = reply.words;
        Self(word)
    }
}

/// `CURRENT_STATE` of an SD card whose command queue is on, where the codes mean something else (`spec/card.md` §2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueState {
    /// 4: takes commands.
    Tran,
    /// 5: sends the data of a task.
    ReadTask,
    /// 6: receives the data of a task.
    WriteTask,
    /// 7: busy.
    Busy,
    /// Any other code.
    Reserved(u8),
}

impl R1 {
    /// The state of a card whose command queue is on.
    #[must_use]
    pub const fn queue_state(&self) -> QueueState {
        match self.0.state().code() {
            4 => QueueState::Tran,
            5 => QueueState::ReadTask,
            6 => QueueState::WriteTask,
            7 => QueueState::Busy,
            other => QueueState::Reserved(other),
        }
    }
    /// The state the card was in when it received the command.
    #[must_use]
    pub const fn state(&self) -> CardState {
        self.0.state()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_puts_the_status_bits_back_in_place() {
        let r6 = R6(0xaaaa_0520);
        assert_eq!(r6.rca(), 0xaaaa);
        assert_eq!(r6.status().bits(), 0x0520);
        assert_eq!(R6(0x8000).status(), CardStatus::COM_CRC_ERROR);
        assert_eq!(R6(0x4000).status(), CardStatus::ILLEGAL_COMMAND);
        assert_eq!(R6(0x2000).status(), CardStatus::ERROR);
    }

    #[test]
    fn r4_and_r5_of_sdio_are_taken_apart() {
        let r4 = R4(0xb9ff_8000);
        assert_eq!((r4.ready(), r4.functions(), r4.memory(), r4.accepts_v1_8()), (true, 3, true, true));
        assert_eq!(r4.ocr(), Ocr(0x00ff_8000));
        assert!(!R4(0x1000_0000).ready() && !R4(0x1000_0000).memory());
        let r5 = R5(0x2a43);
        assert_eq!((r5.data(), r5.io_state(), r5.errors()), (0x43, 2, 0x0a00));
        assert_eq!(R5(0x1000).errors(), 0, "the state is no error");
    }

    #[test]
    fn r4_and_r5_of_mmc_are_taken_apart() {
        let io = FastIo(0x0007_95a5);
        assert_eq!((io.rca(), io.done(), io.register(), io.data()), (7, true, 0x15, 0xa5));
        assert_eq!(Irq(0x0007_ffff).rca(), 7);
    }

    #[test]
    fn a_queue_says_which_tasks_are_ready() {
        let qsr = QueueStatus(0x8000_0100);
        assert!(qsr.ready(8) && qsr.ready(31) && !qsr.ready(0) && !qsr.ready(40));
        assert_eq!((qsr.first(), QueueStatus(0).first()), (Some(8), None));
        let state = |word| R1(CardStatus::from_bits_retain(word)).queue_state();
        assert_eq!((state(0x0a00), state(0x1200)), (QueueState::ReadTask, QueueState::Reserved(9)));
    }

    #[test]
    fn r7_has_a_pattern_and_a_voltage() {
        let r7 = R7(0x31aa);
        assert_eq!((r7.pattern(), r7.voltage(), r7.pcie(), r7.pcie_1v2()), (0xaa, 1, true, true));
    }
}

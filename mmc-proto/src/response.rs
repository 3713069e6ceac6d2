//! Responses as typed views of the 32 bits (R1, R3, R6, R7) or 128 bits (R2) a host delivers.

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

impl R1 {
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
    fn r7_has_a_pattern_and_a_voltage() {
        let r7 = R7(0x31aa);
        assert_eq!((r7.pattern(), r7.voltage(), r7.pcie(), r7.pcie_1v2()), (0xaa, 1, true, true));
    }
}

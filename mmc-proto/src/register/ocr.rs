//! OCR: supply window and capacity class (`spec/card.md` §5).

use super::RegisterError;
use core::fmt;

/// The operating conditions register, as R3 carries it. The 32 bits are the value: there is nothing to decode
/// into another form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Ocr(pub u32);

impl Ocr {
    /// Bits 23:15, the supply window from 2.7 to 3.6 V in steps of 0.1 V.
    pub const WINDOW: u32 = 0x00ff_8000;

    /// From four bytes, most significant first.
    ///
    /// # Errors
    /// [`RegisterError::Length`] if there are not four.
    pub fn parse(bytes: &[u8]) -> Result<Self, RegisterError> {
        match <[u8; 4]>::try_from(bytes) {
            Ok(bytes) => Ok(Self(u32::from_be_bytes(bytes))),
            Err(_) => Err(RegisterError::Length { expected: 4, got: bytes.len() }),
        }
    }
    /// The four bytes, most significant first.
    #[must_use]
    pub const fn emit(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
    const fn bit(self, n: u32) -> bool {
        (self.0 >> n) & 1 == 1
    }
    /// Bit 31: power-up is over; 0 while the card is busy with it.
    #[must_use]
    pub const fn power_up(self) -> bool {
        self.bit(31)
    }
    /// SD bit 30: addresses are sectors (SDHC and later); means something only with
    /// [`power_up`](Self::power_up).
    #[must_use]
    pub const fn ccs(self) -> bool {
        self.bit(30)
    }
    /// SD bit 29: a UHS-II card.
    #[must_use]
    pub const fn uhs2(self) -> bool {
        self.bit(29)
    }
    /// SD bit 27: more than 2 TB (SDUC).
    #[must_use]
    pub const fn co2t(self) -> bool {
        self.bit(27)
    }
    /// SD bit 24: ready to switch to 1.8 V signalling.
    #[must_use]
    pub const fn s18a(self) -> bool {
        self.bit(24)
    }
    /// Bit 7: SD low-voltage range (some cards set it wrongly); MMC 1.70–1.95 V.
    #[must_use]
    pub const fn low_voltage(self) -> bool {
        self.bit(7)
    }
    /// MMC bits 30:29: 0 byte addresses, 2 sectors.
    #[must_use]
    pub const fn access_mode(self) -> u8 {
        ((self.0 >> 29) & 3) as u8
    }
    /// The supply window, bits 23:15 in place.
    #[must_use]
    pub const fn window(self) -> u32 {
        self.0 & Self::WINDOW
    }
    /// Lowest and highest supply in mV; `None` if the window is empty.
    #[must_use]
    pub const fn millivolts(self) -> Option<(u32, u32)> {
        let w = self.window() >> 15;
        if w == 0 {
            return None;
        }
        // At most 8 each: w has nine bits.
        let low = w.trailing_zeros();
        let high = 31_u32.saturating_sub(w.leading_zeros());
        Some((low.saturating_mul(100).saturating_add(2700), high.saturating_mul(100).saturating_add(2800)))
    }
    /// Whether this can be an OCR.
    ///
    /// # Errors
    /// An empty supply window (all zeros), or all bits one.
    pub const fn check(self) -> Result<(), RegisterError> {
        let (field, value) = ("OCR", self.0 as u64);
        if self.window() == 0 {
            return Err(RegisterError::Field { field, value, why: "the card works at no voltage" });
        }
        if self.0 == u32::MAX {
            return Err(RegisterError::Field {
                field,
                value,
                why: "all bits are one: nothing drove the line",
            });
        }
        Ok(())
    }
}

impl fmt::Display for Ocr {
    /// `0xc0ff8000 ready CCS 2.7-3.6 V`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} {}", self.0, if self.power_up() { "ready" } else { "busy" })?;
        for (set, name) in [
            (self.ccs(), "CCS"),
            (self.uhs2(), "UHS-II"),
            (self.co2t(), "CO2T"),
            (self.s18a(), "S18A"),
            (self.low_voltage(), "low-voltage"),
        ] {
            if set {
                write!(f, " {name}")?;
            }
        }
        match self.millivolts() {
            None => f.write_str(" no voltage"),
            Some((low, high)) => {
                write!(f, " {}.{}-{}.{} V", low / 1000, low / 100 % 10, high / 1000, high / 100 % 10)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn an_ocr_prints_what_it_says() {
        assert_eq!(Ocr(0xc0ff_8000).to_string(), "0xc0ff8000 ready CCS 2.7-3.6 V");
        assert_eq!(Ocr(0x0030_0000).to_string(), "0x00300000 busy 3.2-3.4 V");
        assert_eq!(Ocr(0).to_string(), "0x00000000 busy no voltage");
        assert!(Ocr(0).check().is_err() && Ocr(u32::MAX).check().is_err());
    }
}

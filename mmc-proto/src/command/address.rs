//! Where a sector is, as the commands of a card name it.

use super::Command;

/// How a card's addresses are written in a command's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// In bytes: SDSC, and MMC up to 2 GiB.
    Byte,
    /// In sectors of 512 bytes: SDHC, SDXC, and eMMC above 2 GiB.
    Sector,
    /// In sectors, the upper six of 38 bits by a CMD22 before: SDUC.
    Extended,
}

/// The address of one sector on one kind of card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The argument of the command.
    pub arg: u32,
    /// Bits 37:32, which CMD22 must bring before the command: on SDUC only, there always.
    pub upper: Option<u8>,
}

impl Address {
    /// The CMD22 that must precede the command, if one must.
    #[must_use]
    pub const fn extension(&self) -> Option<Command> {
        match self.upper {
            Some(upper) => Some(Command::address_extension(upper)),
            None => None,
        }
    }
}

impl Addressing {
    /// The address of sector `lba`; `None` if this kind of card cannot name it (bytes at or above 4 GiB, sectors at
    /// or above 2³², of SDUC at or above 2³⁸).
    #[must_use]
    pub fn address(self, lba: u64) -> Option<Address> {
        let (arg, upper) = match self {
            Self::Byte => (u32::try_from(lba.checked_mul(512)?).ok()?, None),
            Self::Sector => (u32::try_from(lba).ok()?, None),
            Self::Extended => {
                let upper = u8::try_from(lba >> 32).ok().filter(|upper| *upper < 0x40)?;
                (u32::try_from(lba & 0xffff_ffff).ok()?, Some(upper))
            }
        };
        Some(Address { arg, upper })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_not_truncated() {
        let arg = |kind: Addressing, lba| kind.address(lba).map(|a| (a.arg, a.upper));
        assert_eq!(arg(Addressing::Byte, 0x7f_ffff), Some((0xffff_fe00, None)));
        assert_eq!(arg(Addressing::Byte, 0x80_0000), None);
        assert_eq!(arg(Addressing::Byte, u64::MAX), None);
        assert_eq!(arg(Addressing::Sector, 0xffff_ffff), Some((0xffff_ffff, None)));
        assert_eq!(arg(Addressing::Sector, 0x1_0000_0000), None);
        assert_eq!(arg(Addressing::Extended, 5), Some((5, Some(0))));
        assert_eq!(arg(Addressing::Extended, 0x3f_1234_5678), Some((0x1234_5678, Some(0x3f))));
        assert_eq!(arg(Addressing::Extended, 1 << 38), None);
        assert_eq!(arg(Addressing::Extended, u64::MAX), None);
    }

    #[test]
    fn only_sduc_needs_the_upper_bits_first() {
        let before = |kind: Addressing| kind.address(7).and_then(|a| a.extension());
        assert_eq!(before(Addressing::Byte), None);
        assert_eq!(before(Addressing::Sector), None);
        assert_eq!(before(Addressing::Extended), Some(Command::address_extension(0)));
    }
}

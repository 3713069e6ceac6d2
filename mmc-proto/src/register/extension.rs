//! SD extension registers: the general information page and the register sets for power management and
//! performance (`spec/card.md` §2.8). They are read by CMD48, 512 bytes a page; unlike other SD registers
//! they are little-endian.

use super::RegisterError;
use core::fmt;

/// Standard function codes of an extension.
pub mod sfc {
    /// Power management.
    pub const POWER: u16 = 1;
    /// Performance enhancement: cache, queue, maintenance.
    pub const PERFORMANCE: u16 = 2;
    /// Security and boot.
    pub const SECURITY: u16 = 3;
}

/// The general information page: function 0, address 0, 512 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GeneralInfo([u8; 512]);

impl fmt::Debug for GeneralInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeneralInfo")
            .field("revision", &self.revision())
            .field("length", &self.length())
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// Where a register set lies: the argument fields of CMD48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAddress(pub u32);

impl SetAddress {
    /// Function number, 0..=15.
    #[must_use]
    pub const fn function(self) -> u8 {
        ((self.0 >> 18) & 0xf) as u8
    }
    /// Page of 512 bytes, 0..=255.
    #[must_use]
    pub const fn page(self) -> u8 {
        ((self.0 >> 9) & 0xff) as u8
    }
    /// Byte in the page, 0..=511.
    #[must_use]
    pub const fn offset(self) -> u16 {
        (self.0 & 0x1ff) as u16
    }
    /// The argument of the CMD48 that reads the whole page.
    #[must_use]
    pub const fn read_arg(self) -> u32 {
        ((self.function() as u32) << 27) | ((self.page() as u32) << 18) | 0x1ff
    }
}

/// One extension of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Standard function code: see [`sfc`]; 0 for a function of the maker's own.
    pub sfc: u16,
    /// Function capability code.
    pub fcc: u16,
    /// Maker of the function.
    pub fmc: u16,
    /// Particular function code.
    pub pfc: u16,
    /// Name of the function, 16 bytes of ASCII, padded with zeros.
    pub name: &'a [u8],
    /// How many register sets it has.
    pub sets: u8,
    /// Where the first one lies; `None` if it has none.
    pub address: Option<SetAddress>,
}

impl GeneralInfo {
    /// Takes the 512 bytes of the page.
    ///
    /// # Errors
    /// [`RegisterError::Length`] if there are not 512.
    pub fn parse(bytes: &[u8]) -> Result<Self, RegisterError> {
        match <[u8; 512]>::try_from(bytes) {
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => Err(RegisterError::Length { expected: 512, got: bytes.len() }),
        }
    }
    /// The bytes again.
    #[must_use]
    pub const fn emit(&self) -> [u8; 512] {
        self.0
    }
    fn word(&self, at: usize) -> u16 {
        let byte = |at: usize| self.0.get(at).copied().unwrap_or(0);
        u16::from_le_bytes([byte(at), byte(at.saturating_add(1))])
    }
    /// Revision of the structure.
    #[must_use]
    pub fn revision(&self) -> u16 {
        self.word(0)
    }
    /// Bytes used of the page.
    #[must_use]
    pub fn length(&self) -> u16 {
        self.word(2)
    }
    /// Number of extensions it says it has.
    #[must_use]
    pub fn count(&self) -> u8 {
        self.0.get(4).copied().unwrap_or(0)
    }
    /// The extensions, in order: at most [`count`](Self::count), and never more than the page can hold. Ends
    /// where the chain leaves the page or goes backwards.
    pub fn extensions(&self) -> impl Iterator<Item = Extension<'_>> {
        let mut at = 16_usize;
        let mut left = self.count();
        core::iter::from_fn(move || {
            // An entry has 48 bytes with its first register set.
            if left == 0 || at < 16 || at.saturating_add(48) > self.0.len() {
                return None;
            }
            left = left.saturating_sub(1);
            let base = at;
            let field = |offset: usize| self.word(base.saturating_add(offset));
            let sets = u8::try_from(field(42) & 0xff).unwrap_or(0);
            let address = u32::from(field(44)) | (u32::from(field(46)) << 16);
            let name = base.saturating_add(24);
            // Only forwards: a chain that goes back would have no end.
            let next = usize::from(field(40));
            at = if next > base { next } else { 0 };
            Some(Extension {
                sfc: field(0),
                fcc: field(2),
                fmc: field(4),
                pfc: field(22),
                name: self.0.get(name..name.saturating_add(16)).unwrap_or(&[]),
                sets,
                address: (sets > 0).then_some(SetAddress(address)),
            })
        })
    }
    /// Whether this can be the page.
    ///
    /// # Errors
    /// No extension (all zeros), or more than the page can hold (all ones).
    pub fn check(&self) -> Result<(), RegisterError> {
        let bad = |why| {
            Err(RegisterError::Field { field: "number of extensions", value: self.count().into(), why })
        };
        match self.count() {
            0 => bad("the card offers CMD48 but no extension; all bits may be zero"),
            1..=10 => Ok(()),
            _ => bad("more than a page of 512 bytes can hold; all bits may be one"),
        }
    }
}

/// The power management register set: its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PowerSet {
    /// Revision.
    pub revision: u8,
    /// Ready for power-off after a notification.
    pub ready: bool,
    /// Supports power-off notification.
    pub off_notification: bool,
    /// Supports power sustenance.
    pub sustenance: bool,
    /// Supports power-down mode.
    pub down_mode: bool,
}

impl PowerSet {
    /// Reads the set from its page, from the set's own offset on; missing bytes count as 0.
    #[must_use]
    pub fn parse(set: &[u8]) -> Self {
        let status = set.get(1).copied().unwrap_or(0);
        Self {
            revision: set.first().copied().unwrap_or(0) & 0xf,
            ready: status & 1 != 0,
            off_notification: status & 0x10 != 0,
            sustenance: status & 0x20 != 0,
            down_mode: status & 0x40 != 0,
        }
    }
}

/// The performance enhancement register set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct PerformanceSet {
    /// Revision.
    pub revision: u8,
    /// Supports FX_EVENT.
    pub fx_event: bool,
    /// Maintains itself.
    pub card_maintenance: bool,
    /// Can be told to.
    pub host_maintenance: bool,
    /// Has a cache.
    pub cache: bool,
    /// Commands it can queue; 0 none.
    pub queue_depth: u8,
    /// The cache is on.
    pub cache_enabled: bool,
    /// A flush runs.
    pub flushing: bool,
}

impl PerformanceSet {
    /// Reads the set from its page, from the set's own offset on; missing bytes count as 0.
    #[must_use]
    pub fn parse(set: &[u8]) -> Self {
        let at = |i: usize| set.get(i).copied().unwrap_or(0);
        Self {
            revision: at(0) & 0xf,
            fx_event: at(1) & 1 != 0,
            card_maintenance: at(2) & 1 != 0,
            host_maintenance: at(2) & 2 != 0,
            cache: at(4) & 1 != 0,
            queue_depth: match at(6) & 0x1f {
                0 => 0,
                n => n.saturating_add(1),
            },
            cache_enabled: at(260) & 1 != 0,
            flushing: at(261) & 1 != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn page() -> [u8; 512] {
        let mut page = [0; 512];
        page[2] = 112;
        page[4] = 2;
        page[16] = 1;
        page[16 + 24..16 + 29].copy_from_slice(b"Power");
        page[16 + 40] = 64;
        page[16 + 42] = 1;
        page[16 + 46] = 4; // 0x00040000: function 1, page 0.
        page[64] = 2;
        page[64 + 42] = 1;
        page[64 + 45] = 2; // 0x00080200: function 2, page 1.
        page[64 + 46] = 8;
        page
    }

    #[test]
    fn the_extensions_of_a_page_say_where_their_registers_are() {
        let info = GeneralInfo::parse(&page()).unwrap();
        info.check().unwrap();
        let found: Vec<_> = info.extensions().collect();
        assert_eq!(found.iter().map(|e| e.sfc).collect::<Vec<_>>(), [sfc::POWER, sfc::PERFORMANCE]);
        assert!(found[0].name.starts_with(b"Power\0"));
        let first = found[0].address.unwrap();
        assert_eq!((first.function(), first.page(), first.offset()), (1, 0, 0));
        assert_eq!(first.read_arg(), 0x0800_01ff);
        let second = found[1].address.unwrap();
        assert_eq!((second.function(), second.page()), (2, 1));
        assert_eq!(second.read_arg(), 0x1004_01ff);
    }

    #[test]
    fn a_chain_that_goes_back_or_out_of_the_page_ends() {
        for next in [16_u16, 0, 15, 500, 0xffff] {
            let mut page = page();
            page[16 + 40..16 + 42].copy_from_slice(&next.to_le_bytes());
            assert_eq!(GeneralInfo::parse(&page).unwrap().extensions().count(), 1, "next {next}");
        }
        assert!(GeneralInfo::parse(&[0; 512]).unwrap().check().is_err());
        let ones = GeneralInfo::parse(&[0xff; 512]).unwrap();
        assert!(ones.check().is_err() && ones.extensions().count() <= 10);
    }

    #[test]
    fn the_sets_are_read_whatever_their_length() {
        assert!(PowerSet::parse(&[0, 0x31]).sustenance);
        assert_eq!(PowerSet::parse(&[]), PowerSet::parse(&[0; 8]));
        let mut set = [0; 512];
        (set[2], set[4], set[6], set[260]) = (3, 1, 31, 1);
        let p = PerformanceSet::parse(&set);
        assert!(p.cache && p.cache_enabled && !p.flushing && p.card_maintenance && p.host_maintenance);
        assert_eq!((p.queue_depth, PerformanceSet::parse(&set[..5]).queue_depth), (32, 0));
    }
}

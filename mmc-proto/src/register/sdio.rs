//! SDIO's registers: CCCR, FBR and the tuples of a CIS (`spec/card.md` §15).

use super::RegisterError;
use core::fmt;

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], RegisterError> {
    <[u8; N]>::try_from(bytes).map_err(|_| RegisterError::Length { expected: N, got: bytes.len() })
}

/// The common card control registers: bytes 0x00..=0x16 of function 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cccr([u8; 23]);

impl fmt::Debug for Cccr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cccr({:02x?})", self.0)
    }
}

/// The CCCR as plain values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct CccrInfo {
    /// Format of the CCCR, coded.
    pub cccr_rev: u8,
    /// SDIO specification, coded.
    pub sdio_rev: u8,
    /// SD specification, coded.
    pub sd_rev: u8,
    /// Functions enabled and functions ready, bit n for function n.
    pub enabled: u8,
    /// Functions that are ready.
    pub ready: u8,
    /// Data lines in use: 1, 4, 8, or 0 for a reserved code.
    pub lines: u8,
    /// The card can move blocks of several functions (SMB), wait (SRW) and be suspended (SBS).
    pub capabilities: u8,
    /// Where the card's common CIS begins.
    pub cis: u32,
    /// Block size of function 0.
    pub block_size: u16,
    /// The card supports high speed.
    pub high_speed: bool,
    /// Bits 0 SDR50, 1 SDR104, 2 DDR50.
    pub uhs: u8,
}

impl Cccr {
    /// Bytes of the register.
    pub const LEN: usize = 23;

    /// Takes the bytes from address 0 on.
    ///
    /// # Errors
    /// [`RegisterError::Length`] if there are not [`Cccr::LEN`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RegisterError> {
        array(bytes).map(Self)
    }
    /// The bytes again.
    #[must_use]
    pub const fn emit(&self) -> [u8; 23] {
        self.0
    }
    /// The byte at `address`; 0 outside.
    #[must_use]
    pub fn at(&self, address: u8) -> u8 {
        self.0.get(usize::from(address)).copied().unwrap_or(0)
    }
    /// Plain values.
    #[must_use]
    pub fn info(&self) -> CccrInfo {
        CccrInfo {
            cccr_rev: self.at(0) & 0xf,
            sdio_rev: self.at(0) >> 4,
            sd_rev: self.at(1) & 0xf,
            enabled: self.at(2),
            ready: self.at(3),
            lines: match self.at(7) & 3 {
                0 => 1,
                2 => 4,
                3 => 8,
                _ => 0,
            },
            capabilities: self.at(8),
            cis: u32::from_le_bytes([self.at(9), self.at(0xa), self.at(0xb), 0]),
            block_size: u16::from_le_bytes([self.at(0x10), self.at(0x11)]),
            high_speed: self.at(0x13) & 1 == 1,
            uhs: self.at(0x14) & 7,
        }
    }
    /// Whether this can be a CCCR.
    ///
    /// # Errors
    /// A CIS that does not lie in 0x1000..=0x17FFF, as all zeros or all ones would have it.
    pub fn check(&self) -> Result<(), RegisterError> {
        let cis = self.info().cis;
        if (0x1000..=0x1_7fff).contains(&cis) {
            return Ok(());
        }
        let why = "not in 0x1000..=0x17fff; all bits may be the same";
        Err(RegisterError::Field { field: "CIS pointer", value: cis.into(), why })
    }
}

/// The basic registers of function n: bytes 0x100·n and the 17 after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fbr([u8; 18]);

impl fmt::Debug for Fbr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fbr({:02x?})", self.0)
    }
}

impl Fbr {
    /// Bytes of the register.
    pub const LEN: usize = 18;

    /// Takes the bytes from the function's base on.
    ///
    /// # Errors
    /// [`RegisterError::Length`] if there are not [`Fbr::LEN`].
    pub fn parse(bytes: &[u8]) -> Result<Self, RegisterError> {
        array(bytes).map(Self)
    }
    /// The bytes again.
    #[must_use]
    pub const fn emit(&self) -> [u8; 18] {
        self.0
    }
    /// The byte at `offset`; 0 outside.
    #[must_use]
    pub fn at(&self, offset: u8) -> u8 {
        self.0.get(usize::from(offset)).copied().unwrap_or(0)
    }
    /// The standard interface: 0 none, 1 UART, 2 and 3 Bluetooth, 4 GPS, 5 camera, 6 PHS, 7 WLAN, 8 ATA; of
    /// code 15 the extended code, plus 256.
    #[must_use]
    pub fn interface(&self) -> u16 {
        match self.at(0) & 0xf {
            0xf => u16::from(self.at(1)) | 0x100,
            code => code.into(),
        }
    }
    /// Where the function's CIS begins.
    #[must_use]
    pub fn cis(&self) -> u32 {
        u32::from_le_bytes([self.at(9), self.at(0xa), self.at(0xb), 0])
    }
    /// The block size in use.
    #[must_use]
    pub fn block_size(&self) -> u16 {
        u16::from_le_bytes([self.at(0x10), self.at(0x11)])
    }
}

/// One tuple of a CIS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple<'a> {
    /// What it is: 0x15 VERS_1, 0x20 MANFID, 0x21 FUNCID, 0x22 FUNCE, …
    pub code: u8,
    /// What it says.
    pub body: &'a [u8],
}

impl<'a> Tuple<'a> {
    fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes([*self.body.get(at)?, *self.body.get(at.checked_add(1)?)?]))
    }
    /// Vendor and device of a MANFID.
    #[must_use]
    pub fn manfid(&self) -> Option<(u16, u16)> {
        if self.code == 0x20 { Some((self.word(0)?, self.word(2)?)) } else { None }
    }
    /// The function code of a FUNCID (0x0C: SDIO).
    #[must_use]
    pub fn funcid(&self) -> Option<u8> {
        if self.code == 0x21 { self.body.first().copied() } else { None }
    }
    /// Longest block of a function (FUNCE of type 1) or of function 0 (type 0).
    #[must_use]
    pub fn max_block_size(&self) -> Option<u16> {
        match (self.code, self.body.first()?) {
            (0x22, 0) => self.word(1),
            (0x22, 1) => self.word(0xc),
            _ => None,
        }
    }
    /// The texts of a VERS_1, each without its end.
    pub fn texts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let texts = if self.code == 0x15 { self.body.get(2..).unwrap_or(&[]) } else { &[] };
        texts.split(|b| matches!(b, 0 | 0xff)).filter(|text| !text.is_empty())
    }
}

/// Why a CIS cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tuple {code:#04x} at byte {at} says {len} bytes and only {left} are left")]
pub struct CisError {
    /// Code of the tuple.
    pub code: u8,
    /// Where it begins.
    pub at: usize,
    /// How long it says it is.
    pub len: usize,
    /// How many bytes there are.
    pub left: usize,
}

/// The tuples of a CIS, in order, up to the end tuple 0xFF or the end of the bytes. Null tuples (0x00) are
/// left out; after an error there are no more.
#[derive(Clone, Debug)]
pub struct Tuples<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Tuples<'a> {
    /// The tuples in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Tuples<'a> {
    type Item = Result<Tuple<'a>, CisError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let rest = self.bytes.get(at..)?;
            let (&code, rest) = rest.split_first()?;
            if code == 0 {
                self.at = at.saturating_add(1);
                continue;
            }
            // Everything that follows is either taken or nothing is.
            self.at = self.bytes.len();
            if code == 0xff {
                return None;
            }
            let Some((&len, rest)) = rest.split_first() else {
                return Some(Err(CisError { code, at, len: 0, left: 0 }));
            };
            let len = usize::from(len);
            return Some(match rest.get(..len) {
                Some(body) => {
                    self.at = at.saturating_add(2).saturating_add(len);
                    Ok(Tuple { code, body })
                }
                None => Err(CisError { code, at, len, left: rest.len() }),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    const CIS: &[u8] = &[
        0x21, 2, 0x0c, 0,    // FUNCID
        0x00, // null
        0x22, 4, 0x00, 0x00, 0x02, 0x32, // FUNCE of function 0: 512 bytes
        0x20, 4, 0xdf, 0x02, 0x29, 0x91, // MANFID
        0x15, 8, 1, 0, b'M', b'r', 0, b'W', 0, 0xff, // VERS_1
        0xff, 9, 9, 9,
    ];

    #[test]
    fn a_cis_is_read_to_its_end_tuple() {
        let tuples: Vec<_> = Tuples::new(CIS).map(Result::unwrap).collect();
        assert_eq!(tuples.iter().map(|t| t.code).collect::<Vec<_>>(), [0x21, 0x22, 0x20, 0x15]);
        assert_eq!(tuples[0].funcid(), Some(0x0c));
        assert_eq!(tuples[1].max_block_size(), Some(512));
        assert_eq!(tuples[2].manfid(), Some((0x02df, 0x9129)));
        assert_eq!(tuples[3].texts().collect::<Vec<_>>(), [b"Mr".as_slice(), b"W"]);
        assert_eq!(tuples[0].manfid(), None);
    }

    #[test]
    fn a_tuple_longer_than_the_rest_is_an_error_and_the_last() {
        let mut cut = Tuples::new(&CIS[..13]);
        assert!(cut.next().unwrap().is_ok() && cut.next().unwrap().is_ok());
        let error = cut.next().unwrap().unwrap_err();
        assert_eq!(error, CisError { code: 0x20, at: 11, len: 4, left: 0 });
        assert!(cut.next().is_none() && cut.next().is_none());
        assert!(Tuples::new(&[0x20]).next().unwrap().is_err());
        assert!(Tuples::new(&[0, 0, 0]).next().is_none());
    }

    #[test]
    fn a_cccr_is_read_by_address_and_stuck_lines_are_refused() {
        let mut bytes = [0; Cccr::LEN];
        bytes[0] = 0x43;
        bytes[7] = 2;
        bytes[9..12].copy_from_slice(&[0x00, 0x10, 0x00]);
        bytes[0x10] = 0x40;
        bytes[0x13] = 1;
        bytes[0x14] = 0x3;
        let cccr = Cccr::parse(&bytes).unwrap();
        let info = cccr.info();
        assert_eq!((info.cccr_rev, info.sdio_rev, info.lines, info.cis), (3, 4, 4, 0x1000));
        assert_eq!((info.block_size, info.high_speed, info.uhs), (64, true, 3));
        assert!(cccr.check().is_ok());
        assert!(Cccr::parse(&[0; 23]).unwrap().check().is_err());
        assert!(Cccr::parse(&[0xff; 23]).unwrap().check().is_err());
        assert!(Cccr::parse(&[0; 22]).is_err());
        assert_eq!(cccr.at(200), 0);
    }

    #[test]
    fn an_fbr_names_its_interface() {
        let mut bytes = [0; Fbr::LEN];
        bytes[0] = 7;
        bytes[0x11] = 2;
        assert_eq!(Fbr::parse(&bytes).unwrap().interface(), 7);
        assert_eq!(Fbr::parse(&bytes).unwrap().block_size(), 512);
        (bytes[0], bytes[1]) = (0xf, 3);
        assert_eq!(Fbr::parse(&bytes).unwrap().interface(), 0x103);
    }

    #[test]
    fn the_longest_block_stands_elsewhere_for_function_0_and_for_the_others() {
        let mut body = [0; 16];
        (body[1], body[2], body[0xc], body[0xd]) = (0x00, 0x02, 0x40, 0x01);
        for (code, kind, size) in
            [(0x22, 0, Some(512)), (0x22, 1, Some(320)), (0x22, 2, None), (0x21, 0, None)]
        {
            body[0] = kind;
            assert_eq!(Tuple { code, body: &body }.max_block_size(), size, "{code:x} {kind}");
        }
    }
}

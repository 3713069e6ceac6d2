//! HMAC-SHA256 by the processor.

use crate::machine;
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA256 under a key that the program itself holds, computed by the `hmac` and `sha2` crates (feature `hmac`).
///
/// For [`Rpmb`](machine::Rpmb) as it is; for [`seal`](super::seal) and [`verify`](super::verify) as
/// `|parts| key.mac(parts)`. Whoever has a security processor implements [`machine::Hmac`] with it instead, or passes a
/// closure, and the key need not be in memory. It is not wiped when this is dropped.
///
/// ```
/// use mmc_proto::rpmb::{Frame, Request, SoftwareHmac, seal, verify};
///
/// let key = SoftwareHmac::new(&[7; 32]);
/// let kind = Request::ReadCounter.answer();
/// let mut answer = [Frame::new(Request::ReadCounter).with_kind(kind).with_nonce(5)];
/// seal(&mut answer, |parts| key.mac(parts));
/// assert!(verify(&answer, Request::ReadCounter, Some(5), |parts| key.mac(parts)).is_ok());
/// let other = SoftwareHmac::new(&[8; 32]);
/// assert!(verify(&answer, Request::ReadCounter, Some(5), |parts| other.mac(parts)).is_err());
/// ```
#[derive(Clone)]
pub struct SoftwareHmac(Hmac<Sha256>);

impl fmt::Debug for SoftwareHmac {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SoftwareHmac").finish_non_exhaustive()
    }
}

impl SoftwareHmac {
    /// Under the card's key of 32 bytes.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        // A key that is shorter than SHA-256's block of 64 bytes is filled up with zeros (RFC 2104, section 2).
        let mut block = [0; 64];
        if let Some(start) = block.first_chunk_mut::<32>() {
            *start = *key;
        }
        Self(Hmac::new(&block.into()))
    }
    /// The MAC over the parts in order.
    #[must_use]
    pub fn mac(&self, parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
        let mut mac = self.0.clone();
        parts.for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }
}

impl machine::Hmac for SoftwareHmac {
    fn hmac(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
        self.mac(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_2_of_rfc_4231_in_one_part_and_in_several() {
        // Its key is "Jefe", which zeros fill up to 32 bytes as they do to 64.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let key = SoftwareHmac::new(&key);
        let want = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
            0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43,
        ];
        let text: &[u8] = b"what do ya want for nothing?";
        assert_eq!(key.mac(&mut [text].into_iter()), want);
        assert_eq!(key.mac(&mut [&text[..9], &[], &text[9..]].into_iter()), want);
        assert_eq!(machine::Hmac::hmac(&mut key.clone(), &mut [text].into_iter()), want);
    }
}

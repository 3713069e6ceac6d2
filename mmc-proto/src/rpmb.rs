//! Frames of the replay protected memory block of eMMC (`spec/card.md` §17).
//!
//! It holds no key and no cipher: a caller hands in HMAC-SHA256 as a function: `SoftwareHmac` of the feature `hmac` (the
//! `hmac` and `sha2` crates), or a security processor that never shows the key.

#[cfg(feature = "hmac")]
mod software;

#[cfg(feature = "hmac")]
pub use software::SoftwareHmac;

use core::fmt;

/// Bytes of a frame.
pub const LEN: usize = 512;
/// Bytes of data in a frame; an address counts such units.
pub const DATA_LEN: usize = 256;

/// What a frame asks for; the answer has the same code shifted left by eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Request {
    /// 1: program the key, once for ever.
    ProgramKey,
    /// 2: read the write counter.
    ReadCounter,
    /// 3: write data, authenticated.
    WriteData,
    /// 4: read data, authenticated.
    ReadData,
    /// 5: read the result of a key or data write.
    ReadResult,
    /// 6: write the device configuration (5.1).
    WriteConfig,
    /// 7: read the device configuration (5.1).
    ReadConfig,
}

impl Request {
    /// The request of a code, `None` if there is none.
    #[must_use]
    pub const fn from_code(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::ProgramKey,
            2 => Self::ReadCounter,
            3 => Self::WriteData,
            4 => Self::ReadData,
            5 => Self::ReadResult,
            6 => Self::WriteConfig,
            7 => Self::ReadConfig,
            _ => return None,
        })
    }
    /// The code in a request.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::ProgramKey => 1,
            Self::ReadCounter => 2,
            Self::WriteData => 3,
            Self::ReadData => 4,
            Self::ReadResult => 5,
            Self::WriteConfig => 6,
            Self::ReadConfig => 7,
        }
    }
    /// The code in the answer.
    #[must_use]
    pub const fn answer(self) -> u16 {
        self.code() << 8
    }
}

/// What came of a request: the low seven bits of the result; bit 7 says besides that the write counter has
/// expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// 1.
    #[error("general failure")]
    General,
    /// 2.
    #[error("the device did not accept the MAC")]
    Authentication,
    /// 3.
    #[error("the write counter is not the device's")]
    Counter,
    /// 4.
    #[error("the address is not in the partition, or not aligned")]
    Address,
    /// 5.
    #[error("the write failed")]
    Write,
    /// 6.
    #[error("the read failed")]
    Read,
    /// 7.
    #[error("no key has been programmed")]
    NoKey,
    /// Any other code.
    #[error("unknown result {0:#06x}")]
    Unknown(u16),
}

/// Why a frame is not the answer that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Too many or too few bytes.
    #[error("{0} bytes where an RPMB frame has 512")]
    Length(usize),
    /// It answers another request.
    #[error("the frame is of type {got:#06x} where {expected:#06x} is the answer")]
    Type {
        /// The answer's code.
        expected: u16,
        /// The frame's.
        got: u16,
    },
    /// The device says it failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The nonce is not the one that was sent: the frame is old.
    #[error("the nonce is not the one that was sent: the answer may be replayed")]
    Nonce,
    /// The MAC is not right: somebody else made the frame, or changed it.
    #[error("the MAC is wrong")]
    Mac,
}

/// One frame, as it is in the data block. Multi-byte fields are big-endian.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame([u8; LEN]);

impl fmt::Debug for Frame {
    /// Without the data, the key and the MAC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("kind", &self.kind())
            .field("result", &self.result())
            .field("block_count", &self.block_count())
            .field("address", &self.address())
            .field("write_counter", &self.write_counter())
            .finish_non_exhaustive()
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $get:ident $set:ident: $ty:ty [$at:literal; $n:literal];)*) => { $(
        $(#[$doc])*
        #[must_use]
        pub fn $get(&self) -> $ty {
            let bytes = self.0.get($at..).and_then(|rest| rest.first_chunk::<$n>());
            <$ty>::from_be_bytes(bytes.copied().unwrap_or_default())
        }
        $(#[$doc])*
        #[must_use]
        pub fn $set(mut self, value: $ty) -> Self {
            if let Some(bytes) = self.0.get_mut($at..).and_then(|rest| rest.first_chunk_mut::<$n>()) {
                *bytes = value.to_be_bytes();
            }
            self
        }
    )* };
}

impl Frame {
    /// An empty frame for `request`.
    #[must_use]
    pub fn new(request: Request) -> Self {
        Self([0; LEN]).with_kind(request.code())
    }
    /// Takes the bytes of one data block.
    ///
    /// # Errors
    /// [`FrameError::Length`] if there are not 512.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        <[u8; LEN]>::try_from(bytes).map(Self).map_err(|_| FrameError::Length(bytes.len()))
    }
    /// The bytes again.
    #[must_use]
    pub const fn emit(&self) -> [u8; LEN] {
        self.0
    }

    fields! {
        /// Counts authenticated writes; 0xFFFF_FFFF: no more are possible.
        write_counter with_write_counter: u32 [500; 4];
        /// First unit of 256 bytes.
        address with_address: u16 [504; 2];
        /// How many units of 256 bytes.
        block_count with_block_count: u16 [506; 2];
        /// The result, in an answer.
        result with_result: u16 [508; 2];
        /// The code of the request or of the answer.
        kind with_kind: u16 [510; 2];
        /// A random number of the host's that a reading answer repeats.
        nonce with_nonce: u128 [484; 16];
    }

    fn range(&self, from: usize, len: usize) -> &[u8] {
        self.0.get(from..from.saturating_add(len)).unwrap_or(&[])
    }
    fn put(mut self, from: usize, bytes: &[u8]) -> Self {
        if let Some(room) = self.0.get_mut(from..from.saturating_add(bytes.len())) {
            room.copy_from_slice(bytes);
        }
        self
    }
    /// The 256 bytes of data.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.range(228, DATA_LEN)
    }
    /// With these 256 bytes of data.
    #[must_use]
    pub fn with_data(self, data: &[u8; DATA_LEN]) -> Self {
        self.put(228, data)
    }
    /// The 32 bytes of the MAC; of a [`Request::ProgramKey`] the key.
    #[must_use]
    pub fn mac(&self) -> &[u8] {
        self.range(196, 32)
    }
    /// With this MAC (or key).
    #[must_use]
    pub fn with_mac(self, mac: &[u8; 32]) -> Self {
        self.put(196, mac)
    }
    /// What the MAC is computed over: bytes 228..=511. Of several frames, all of theirs in order; the MAC
    /// stands in the last one alone.
    #[must_use]
    pub fn authenticated(&self) -> &[u8] {
        self.range(228, LEN - 228)
    }
    /// The write counter has run out (bit 7 of the result).
    #[must_use]
    pub fn counter_expired(&self) -> bool {
        self.result() & 0x80 != 0
    }
    /// What the device says came of the request.
    ///
    /// # Errors
    /// The failure its result names.
    pub fn outcome(&self) -> Result<(), Failure> {
        Err(match self.result() & !0x80 {
            0 => return Ok(()),
            1 => Failure::General,
            2 => Failure::Authentication,
            3 => Failure::Counter,
            4 => Failure::Address,
            5 => Failure::Write,
            6 => Failure::Read,
            7 => Failure::NoKey,
            _ => Failure::Unknown(self.result()),
        })
    }
}

/// Puts the MAC of all `frames` into the last one. `hmac` is given the authenticated parts in order and
/// returns their HMAC-SHA256 under the key.
pub fn seal(frames: &mut [Frame], hmac: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> [u8; 32]) {
    let mac = hmac(&mut frames.iter().map(Frame::authenticated));
    if let Some(last) = frames.last_mut() {
        *last = last.with_mac(&mac);
    }
}

/// Checks the answer to `request`: its type, its result, the nonce where one was sent, and the MAC.
///
/// # Errors
/// The first of these that is wrong. No frame at all is [`FrameError::Length`].
pub fn verify(
    frames: &[Frame],
    request: Request,
    nonce: Option<u128>,
    hmac: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> [u8; 32],
) -> Result<(), FrameError> {
    let last = frames.last().ok_or(FrameError::Length(0))?;
    for frame in frames {
        if frame.kind() != request.answer() {
            return Err(FrameError::Type { expected: request.answer(), got: frame.kind() });
        }
        frame.outcome()?;
        if nonce.is_some_and(|nonce| nonce != frame.nonce()) {
            return Err(FrameError::Nonce);
        }
    }
    let mac = hmac(&mut frames.iter().map(Frame::authenticated));
    // All bytes are compared whatever the first ones are: the time taken says nothing about them.
    let difference = mac.iter().zip(last.mac()).fold(0, |sum, (a, b)| sum | (a ^ b));
    if difference == 0 { Ok(()) } else { Err(FrameError::Mac) }
}

//! Talking to the replay protected memory of an eMMC (`spec/card.md` §17); the frames are those of
//! [`rpmb`](crate::rpmb).
//!
//! ```text
//!  read      CMD23 1, CMD25 request · CMD23 1, CMD18 answer
//!  write     CMD23 1 reliable, CMD25 request · CMD23 1, CMD25 result request · CMD23 1, CMD18 answer
//! ```
//!
//! The partition must have been selected ([`Order::partition`](super::Order)), the command queue be off, and no tuning
//! may come between.

use super::talk::{PLAIN, Say, Script, Talk, ready_limit};
use super::transfer::{CardTraits, TransferCause};
use crate::command::{Command, CountFlags, Stop};
use crate::host::Reply;
use crate::rpmb::{Frame, FrameError, LEN, Request, seal, verify};
use mmc_time::{Duration, Instant};

/// Computes HMAC-SHA256 under the card's key over the parts in order: `rpmb::SoftwareHmac` of the feature `hmac`, a
/// closure, or a security processor that never shows the key.
pub trait Hmac {
    /// The MAC.
    fn hmac(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32];
}

impl<F: FnMut(&mut dyn Iterator<Item = &[u8]>) -> [u8; 32]> Hmac for F {
    fn hmac(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
        self(parts)
    }
}

/// What is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    Count,
    Request,
    RequestReady,
    ResultCount,
    Result,
    ResultReady,
    AnswerCount,
    Answer,
}

/// The course of an [`Rpmb`].
#[derive(Debug)]
pub struct RpmbScript<H> {
    card: CardTraits,
    request: Request,
    frame: Frame,
    hmac: H,
    at: At,
}

/// One request to the replay protected memory, of one frame (256 bytes of data). `Ok` is the answer: checked by its
/// type, result, nonce and MAC, and of a write by its counter and address.
///
/// The machine wants a scratch payload of 512 bytes. An error after the request of a write leaves open whether it was
/// stored: read the counter, which has then gone up by one.
pub type Rpmb<H> = Talk<RpmbScript<H>>;

impl<H: Hmac> Rpmb<H> {
    fn of(card: &CardTraits, request: Request, frame: Frame, hmac: H) -> Self {
        Self::follow(card.rca, RpmbScript { card: *card, request, frame, hmac, at: At::Start })
    }
    /// Programs the key, once in the card's life. `hmac` is not used: the answer has no MAC.
    #[must_use]
    pub fn program_key(card: &CardTraits, key: &[u8; 32], hmac: H) -> Self {
        Self::of(card, Request::ProgramKey, Frame::new(Request::ProgramKey).with_mac(key), hmac)
    }
    /// Reads the write counter ([`Frame::write_counter`]); `nonce` must be a fresh random number.
    #[must_use]
    pub fn read_counter(card: &CardTraits, nonce: u128, hmac: H) -> Self {
        Self::of(card, Request::ReadCounter, Frame::new(Request::ReadCounter).with_nonce(nonce), hmac)
    }
    /// Reads the 256 bytes at `address` (in units of 256 bytes); `nonce` must be a fresh random number.
    #[must_use]
    pub fn read(card: &CardTraits, address: u16, nonce: u128, hmac: H) -> Self {
        let frame = Frame::new(Request::ReadData).with_nonce(nonce).with_address(address);
        Self::of(card, Request::ReadData, frame, hmac)
    }
    /// Writes 256 bytes at `address` (in units of 256 bytes); `counter` is the card's write counter as it is.
    #[must_use]
    pub fn write(card: &CardTraits, address: u16, data: &[u8; 256], counter: u32, mut hmac: H) -> Self {
        let frame = Frame::new(Request::WriteData)
            .with_address(address)
            .with_block_count(1)
            .with_write_counter(counter)
            .with_data(data);
        let mut frames = [frame];
        seal(&mut frames, |parts| hmac.hmac(parts));
        let [frame] = frames;
        Self::of(card, Request::WriteData, frame, hmac)
    }
}

impl<H: Hmac> RpmbScript<H> {
    /// A write, which asks for its result separately.
    fn writes(&self) -> bool {
        matches!(self.request, Request::ProgramKey | Request::WriteData)
    }
    fn send(
        &mut self,
        scratch: &mut [u8],
        frame: &Frame,
        phase: &'static str,
    ) -> Result<Say<Frame>, TransferCause> {
        let (to, _) = scratch.split_at_mut_checked(LEN).ok_or(TransferCause::Scratch)?;
        to.copy_from_slice(&frame.emit());
        let limit = self.card.data_limit(mmc_hal::Dir::Write, 1);
        Ok(Say::Do(phase, Command::write_multiple_block(0, 1, Stop::None), limit))
    }
    fn answer(&mut self, scratch: &[u8]) -> Result<Frame, FrameError> {
        let frame = Frame::parse(scratch.get(..LEN).unwrap_or(&[]))?;
        let nonce = (!self.writes()).then(|| self.frame.nonce());
        if matches!(self.request, Request::ProgramKey) {
            // No key, no MAC yet.
            if frame.kind() != self.request.answer() {
                return Err(FrameError::Type { expected: self.request.answer(), got: frame.kind() });
            }
            frame.outcome()?;
            return Ok(frame);
        }
        verify(&[frame], self.request, nonce, |parts| self.hmac.hmac(parts))?;
        let stale = frame.write_counter() != self.frame.write_counter().wrapping_add(1);
        if self.writes() && (stale || frame.address() != self.frame.address()) {
            return Err(FrameError::Nonce);
        }
        Ok(frame)
    }
}

fn count(phase: &'static str, flags: CountFlags) -> Say<Frame> {
    Say::Do(phase, Command::set_block_count_mmc(1, flags, 0), PLAIN)
}

impl<H: Hmac> Script for RpmbScript<H> {
    type Output = Frame;

    fn scratch(&self) -> bool {
        true
    }
    fn limit(&self) -> Duration {
        let write = self.card.data_limit(mmc_hal::Dir::Write, 1);
        let read = self.card.data_limit(mmc_hal::Dir::Read, 1);
        let sent = write + ready_limit(self.card.write_limit) + PLAIN;
        sent.saturating_mul(2) + read + PLAIN
    }
    fn patience(&self) -> Duration {
        self.card.recovery_limit()
    }
    fn sent(&mut self, scratch: &mut [u8]) {
        if matches!((self.at, self.request), (At::Request, Request::ProgramKey)) {
            scratch.fill(0);
        }
    }
    fn next(
        &mut self,
        _: Option<Reply>,
        scratch: &mut [u8],
        _: Instant,
    ) -> Result<Say<Frame>, TransferCause> {
        let (at, say) = match self.at {
            At::Start => {
                let flags = if self.writes() { CountFlags::RELIABLE } else { CountFlags::empty() };
                (At::Count, count("Count", flags))
            }
            At::Count => {
                let frame = self.frame;
                (At::Request, self.send(scratch, &frame, "Request")?)
            }
            At::Request => (At::RequestReady, Say::Ready(self.card.write_limit)),
            At::RequestReady if self.writes() => (At::ResultCount, count("ResultCount", CountFlags::empty())),
            At::ResultCount => (At::Result, self.send(scratch, &Frame::new(Request::ReadResult), "Result")?),
            At::Result => (At::ResultReady, Say::Ready(self.card.write_limit)),
            At::RequestReady | At::ResultReady => {
                (At::AnswerCount, count("AnswerCount", CountFlags::empty()))
            }
            At::AnswerCount => {
                let limit = self.card.data_limit(mmc_hal::Dir::Read, 1);
                let command = Command::read_multiple_block(0, 1, Stop::None);
                (At::Answer, Say::Do("Answer", command, limit))
            }
            At::Answer => {
                return self.answer(scratch).map(Say::Done).map_err(TransferCause::Rpmb);
            }
        };
        self.at = at;
        Ok(say)
    }
}

//! The replay protected memory block (`spec/card.md` §17): a key that is programmed once, a counter, and data that only the
//! holder of the key can write.
//!
//! The device configuration (requests 6 and 7) is kept and read back; of it, only the bit that enables secure write
//! protection shows (SECURE_WP_INFO), none of its effects.

use crate::storage::Storage;
use hmac::{Hmac, KeyInit, Mac};
use mmc_proto::rpmb::{Failure, Frame, LEN, Request, seal};
use sha2::Sha256;

/// Result bit 7: the write counter has run out.
const EXPIRED: u16 = 0x80;

/// Key, counter and what was asked last.
#[derive(Clone, Debug)]
pub(super) struct Rpmb {
    pub(super) key: Option<[u8; 32]>,
    pub(super) counter: u32,
    /// The device configuration.
    pub(super) settings: [u8; 256],
    /// Most frames of a data write: 2, or 32.
    most: usize,
    /// What the next read answers.
    asked: Option<Frame>,
    /// What came of the last write: the frame of its result.
    result: Option<Frame>,
}

fn code(failure: Failure) -> u16 {
    match failure {
        Failure::Authentication => 2,
        Failure::Counter => 3,
        Failure::Address => 4,
        Failure::Write => 5,
        Failure::Read => 6,
        Failure::NoKey => 7,
        _ => 1,
    }
}

fn hmac(key: &[u8; 32], parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
    // A key of 32 bytes is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    parts.for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

impl Rpmb {
    pub(super) fn new(most: usize) -> Self {
        Self { key: None, counter: 0, settings: [0; 256], most, asked: None, result: None }
    }
    /// Requests do not outlive power or CMD0.
    pub(super) fn reset(&mut self) {
        (self.asked, self.result) = (None, None);
    }
    /// The frames of a CMD25 came; `reliable`: CMD23 said reliable write. Whether something was written.
    pub(super) fn take(&mut self, bytes: &[u8], reliable: bool, data: &mut Storage) -> bool {
        let frames: Vec<Frame> = bytes.chunks_exact(LEN).filter_map(|b| Frame::parse(b).ok()).collect();
        let Some(&first) = frames.first() else { return false };
        let request = Request::from_code(first.kind());
        match request {
            Some(Request::ReadCounter | Request::ReadData | Request::ReadConfig | Request::ReadResult)
                if frames.len() == 1 && !reliable =>
            {
                self.asked = Some(first);
                false
            }
            Some(request @ (Request::ProgramKey | Request::WriteData | Request::WriteConfig)) => {
                let done = if reliable { self.write(request, &frames, data) } else { Err(Failure::General) };
                let counter = if request == Request::ProgramKey { 0 } else { self.counter };
                let result = Frame::new(request)
                    .with_kind(request.answer())
                    .with_address(first.address())
                    .with_write_counter(counter)
                    .with_result(done.err().map_or(0, code) | self.expired());
                self.asked = None;
                self.result = Some(result);
                done.is_ok()
            }
            // No request, or one that cannot be of several frames: the next read says so.
            _ => {
                self.asked = Some(first.with_result(code(Failure::General)));
                false
            }
        }
    }
    fn expired(&self) -> u16 {
        if self.counter == u32::MAX { EXPIRED } else { 0 }
    }
    fn write(&mut self, request: Request, frames: &[Frame], data: &mut Storage) -> Result<(), Failure> {
        let (first, n) = (frames[0], frames.len());
        if request == Request::ProgramKey {
            return match (self.key, first.mac().try_into()) {
                (None, Ok(key)) if n == 1 => {
                    self.key = Some(key);
                    Ok(())
                }
                (None, _) => Err(Failure::General),
                // Once for ever.
                (Some(_), _) => Err(Failure::Write),
            };
        }
        let key = self.key.ok_or(Failure::NoKey)?;
        let allowed =
            if request == Request::WriteData { matches!(n, 1 | 2) || n == self.most } else { n == 1 };
        let same = frames.iter().all(|f| f.kind() == first.kind() && usize::from(f.block_count()) == n);
        if !allowed || !same {
            return Err(Failure::General);
        }
        if self.counter == u32::MAX {
            return Err(Failure::Write);
        }
        let at = u64::from(first.address()) * 256;
        if request == Request::WriteData && at + 256 * n as u64 > data.bytes() {
            return Err(Failure::Address);
        }
        if hmac(&key, &mut frames.iter().map(Frame::authenticated)) != frames[n - 1].mac() {
            return Err(Failure::Authentication);
        }
        if frames.iter().any(|f| f.write_counter() != self.counter) {
            return Err(Failure::Counter);
        }
        for (i, frame) in frames.iter().enumerate() {
            if request == Request::WriteConfig {
                self.settings.copy_from_slice(frame.data());
            } else {
                // Inside, by the check above.
                let _ = data.write(at + 256 * i as u64, frame.data());
            }
        }
        self.counter += 1;
        Ok(())
    }
    /// What a CMD18 of `n` blocks reads.
    pub(super) fn answer(&mut self, n: usize, data: &mut Storage) -> Vec<u8> {
        let asked = self.asked.take();
        let kind = asked.map_or(0, |f| f.kind());
        let failed = asked.is_some_and(|f| f.result() != 0);
        let request = Request::from_code(kind).filter(|_| !failed);
        let mut frames = match request {
            Some(Request::ReadResult) => vec![
                // Nothing was written since power-up: a general failure.
                self.result.unwrap_or(Frame::new(Request::ReadResult).with_kind(0x0500).with_result(1)),
            ],
            Some(request) => self.read(request, asked.unwrap_or(Frame::new(request)), n, data),
            None => vec![Frame::new(Request::ReadResult).with_kind(kind << 8).with_result(1)],
        };
        // As many as were asked for, whatever they say.
        let last = frames[frames.len() - 1];
        frames.resize(n, last);
        if let Some(key) = self.key {
            seal(&mut frames, |parts| hmac(&key, parts));
        }
        frames.iter().flat_map(Frame::emit).collect()
    }
    fn read(&self, request: Request, asked: Frame, n: usize, data: &mut Storage) -> Vec<Frame> {
        let base = Frame::new(request).with_kind(request.answer()).with_nonce(asked.nonce());
        let failed = |f: Failure| vec![base.with_result(code(f) | self.expired())];
        let base = base.with_result(self.expired());
        if self.key.is_none() {
            return failed(Failure::NoKey);
        }
        match request {
            Request::ReadCounter if n == 1 => vec![base.with_write_counter(self.counter)],
            Request::ReadConfig if n == 1 => vec![base.with_data(&self.settings).with_block_count(1)],
            Request::ReadData => {
                let at = u64::from(asked.address()) * 256;
                if at + 256 * n as u64 > data.bytes() {
                    return failed(Failure::Address);
                }
                let frame = |i: u64| {
                    let mut bytes = [0; 256];
                    // Inside, by the check above.
                    let _ = data.read(at + 256 * i, &mut bytes);
                    base.with_data(&bytes).with_address(asked.address()).with_block_count(n as u16)
                };
                (0..n as u64).map(frame).collect()
            }
            _ => failed(Failure::General),
        }
    }
}

//! Cards, as a controller model sees them at the end of the wire.

mod extension;
mod io;
mod lock;
mod log;
mod medium;
mod mmc;
mod protect;
mod registers;
mod sd;
mod sdio;
mod shared;
mod status;
mod transfer;
mod uhs;

pub use io::IoFunction;
pub use log::{CommandLog, Entry};
pub use mmc::{MmcCard, MmcConfig, MmcConfigError, MmcQuirks, MmcState};
pub(crate) use registers::crc7;
pub use registers::{
    Capacity, ConfigError, Eye, Functions, Identity, Quirks, Registers, SdConfig, Uhs, Version,
};
pub use sd::{SdCard, State};
pub use sdio::{IoState, SdioCard, SdioConfig};
pub use shared::Shared;

use mmc_proto::bus::{Signal, Timing};
use mmc_time::Instant;

/// The bits of a response as they are on the CMD line, CRC7 and end bit included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// 48 bits.
    Short([u8; 6]),
    /// 136 bits.
    Long([u8; 17]),
}

/// What a card does with a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The response; `None`: silence.
    pub response: Option<Bits>,
    /// The data phase this command opens.
    pub data: Option<Phase>,
}

/// A data phase a card has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The card sends.
    pub read: bool,
    /// Bytes of a block.
    pub block_len: u16,
    /// Blocks until it ends by itself; `None`: until CMD12.
    pub blocks: Option<u32>,
}

/// What happened to one block the card was to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Sent with a right CRC16.
    Good,
    /// Sent with a wrong CRC16.
    BadCrc,
    /// No start bit came: the card sends nothing (any more).
    Nothing,
}

/// The CRC status token after a written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// `010`: accepted.
    Accepted,
    /// `101`: CRC error; the block was not stored.
    CrcError,
    /// No token.
    Nothing,
}

/// A card at the end of the wire. One conversation at a time; every call is total.
///
/// Time: `now` of [`command`](Card::command) is the instant the end bit of the command frame left the host. A
/// card's own pace is told by [`ready`](Card::ready) and [`busy_until`](Card::busy_until); the pace of the
/// wire is the controller model's business (`Wire`). A transfer ends when both have done.
pub trait Card: Send {
    /// The supply was switched; off forgets all volatile state (and an unflushed cache).
    fn power(&mut self, on: bool, now: Instant);
    /// The clock now runs at `hz` (0: stopped) on `lines` data lines of the host.
    fn bus(&mut self, hz: u32, lines: u8, now: Instant);
    /// The host's signal level and timing mode changed; comes with the [`bus`](Card::bus) that starts the clock again.
    fn signal(&mut self, signal: Signal, timing: Timing, now: Instant) {
        let _ = (signal, timing, now);
    }
    /// The card holds CMD and DAT3:0 low: it has answered CMD11 and waits for the new level.
    fn lines_low(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
    /// Whether a host that samples at `phase` (degrees of the clock period, 0..360) reads this card's responses and data
    /// right with the present clock and timing; outside of the window they arrive with wrong CRCs.
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        let _ = (phase, now);
        true
    }
    /// An SDIO card asks for attention (DAT1 low outside data phases).
    fn interrupt(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
    /// `n` clocks passed with CMD high before the next command (the 74 of power-up).
    fn idle_clocks(&mut self, n: u32);
    /// A command frame arrived, with a right CRC7.
    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer;
    /// The instant at which block `k` (from 0) of the running read phase can be complete at the earliest, or at
    /// which the card could have taken block `k` of a running write phase, were the wire infinitely fast;
    /// [`Instant::NEVER`] for a block that is not to come. A phase that has ended by itself still answers, until the
    /// next command.
    fn ready(&self, k: u32) -> Instant;
    /// Sends the next block of the running read phase into `block` (`block_len` bytes).
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent;
    /// Sends `blocks.len() / block_len` blocks at once where that makes no difference (no fault is due);
    /// returns how many bytes were sent with a right CRC, the caller goes on with [`send`](Card::send).
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize;
    /// Takes the next block of the running write phase; `crc_ok`: its CRC16 arrived right.
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token;
    /// Takes several blocks at once where that makes no difference; returns how many bytes were accepted.
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize;
    /// The card holds DAT0 low until then ([`Instant::ZERO`]: it does not); [`Instant::NEVER`]: for ever.
    fn busy_until(&self, now: Instant) -> Instant;
    /// Whether a card is in the slot at all: what a card-detect switch shows.
    fn present(&self) -> bool {
        true
    }
    /// Rules of the standard that the host broke so far (clock too fast, missing clocks, …), for tests to assert
    /// empty.
    fn violations(&self) -> Vec<String>;
}

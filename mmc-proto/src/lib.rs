//! What is said on an SD or eMMC bus: commands, responses, registers, and the conversations a host must hold
//! with a card, as machines without input or output of their own.
//!
//! It is not a driver: it touches no register, sleeps never and knows no operating system. Controllers
//! implement [`host::Host`]; `mmc-block` makes a disk of the two.
//!
//! | room | what |
//! |---|---|
//! | [`command`], [`response`], [`status`] | commands with their shape; R1 … R7; the card status bit by bit |
//! | [`frame`], [`spi`], [`crc`] | 48- and 136-bit frames ⇄ bytes; tokens of SPI mode; CRC7, CRC16, CRC16 per data line |
//! | [`register`], [`quirk`] | CID, CSD, SCR, SD status, OCR, switch status, EXT_CSD, SD extensions, SDIO's CCCR, FBR and CIS; cards to be careful with |
//! | [`rpmb`] | frames of the replay protected memory block |
//! | [`timing`] | time limits that follow from registers |
//! | [`bus`], [`host`] | width, clock, timing, supply; the boundary to controllers |
//! | [`machine`] | conversations: identify a card, raise its speed, tune, read, write, erase, recover; cache, power, partitions, RPMB, passwords, protection, health (`docs/protocol.md` draws them); and the conductor that runs one over a host |
//!
//! A conversation never waits by itself: it is told the time and says what it wants next. The same value runs
//! over a controller, over somebody else's bus, or over a table in a test.
//!
//! ```
//! use mmc_hal::Dir;
//! use mmc_proto::host::Reply;
//! use mmc_proto::machine::{CardTraits, Machine, Step, Transfer, TransferOptions};
//! use mmc_time::{Duration, Instant};
//!
//! let card = CardTraits {
//!     rca: 0x1234,
//!     blocks: 15_126_528,
//!     byte_addressed: false,
//!     cmd23: true,
//!     read_limit: Duration::from_millis(100),
//!     write_limit: Duration::from_millis(250),
//!     block_time: Duration::from_micros(90),
//!     unit: 1,
//! };
//! let mut read = Transfer::new(&card, Dir::Read, 4096, 8, TransferOptions::default());
//! let (mut now, mut last, mut sent) = (Instant::ZERO, None, [0; 2]);
//! for index in &mut sent {
//!     let Step::Do(action) = read.next(last.take(), &mut [], now) else { panic!("a command first") };
//!     *index = action.command.index;
//!     // A host would send it now, within `action.limit`; this one pretends, and took a millisecond.
//!     let bytes = action.command.data.map_or(0, |data| data.bytes());
//!     last = Some(Ok(Reply { words: [0x900, 0, 0, 0], bytes }));
//!     now += Duration::from_millis(1);
//! }
//! assert_eq!(sent, [23, 18]);
//! assert_eq!(read.next(last, &mut [], now), Step::Done(Ok(8)));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

pub mod bus;
pub mod command;
pub mod crc;
#[cfg(feature = "defmt")]
mod defmt_format;
pub mod frame;
pub mod host;
pub mod machine;
pub mod quirk;
pub mod register;
pub mod response;
pub mod rpmb;
#[cfg(feature = "serde")]
mod serde_bits;
pub mod spi;
pub mod status;
pub mod timing;

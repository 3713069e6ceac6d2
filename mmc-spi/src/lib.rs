//! SD and MMC cards on an SPI bus (`embedded-hal` 1.0): a [`Host`](mmc_proto::host::Host) like any other.
//!
//! It is not a driver of any SPI controller, and not for SDIO cards. Validated on: model (`mmc-mock::spi`); never on
//! silicon.
//!
//! The conversations of `mmc-proto` speak as on the SD bus. [`SpiEngine`] says the same in SPI mode and answers as a card
//! on the SD bus would, so that identification, transfers, erase and the disk run over it unchanged. This translation is
//! the one exception to the rule that a host never looks at a command's index: in SPI mode the index decides what follows a
//! command on the wire (`spec/card.md` §16).
//!
//! | said | on the wire | answered |
//! |---|---|---|
//! | CMD0 | CMD0 until R1 is "idle", CMD59 | nothing |
//! | CMD2, CMD9, CMD10 | CMD10, CMD9 and their block | R2 |
//! | CMD3 | nothing | address 1 |
//! | CMD7 | CMD13 | R1 |
//! | CMD8, CMD16, CMD55, erase … | the same | R1 of its bits, R7 |
//! | ACMD41, CMD1 | the same, CMD58 once it is ready | R3 |
//! | CMD13 | CMD13 once the card is not busy; asked to answer at once: state `prg` while it is | R1 of R2 |
//! | CMD17, CMD18, ACMD51 … | the same; tokens, CRC16 | R1 |
//! | CMD24, CMD25 … | the same; tokens, CRC16, data responses, busy between blocks | R1 |
//! | CMD12 | CMD12, or the stop token after CMD25 | R1 |
//! | CMD23 | nothing: the engine stops by itself after the last block | R1 |
//! | what SPI mode has not got, SDIO | nothing | nothing: as a card that does not know the command |
//!
//! # The bus
//! [`Exclusive`] has an `SpiBus` and the chip select to itself: chip select stays low through a whole command and its
//! data. [`Shared`] works on an `SpiDevice`: one command with its first block is *one* transaction of fixed length, and other
//! devices get the bus only where a card lets go of it: between commands and while it is busy. With the feature `async`
//! `drive` holds a conversation over the `SpiBus` of `embedded-hal-async`.
//!
//! # Use
//! ```
//! use mmc_mock::{Clock, card::{SdCard, SdConfig}, spi::{Spi, SpiConfig}, timing::Profile};
//! use mmc_proto::host::Host;
//! use mmc_proto::machine::{Conductor, Identify, Turn};
//! use mmc_spi::{Board, Exclusive, SpiEngine};
//!
//! struct MyBoard(Spi);
//! impl Board for MyBoard {
//!     fn set_clock(&mut self, hz: u32) {
//!         self.0.set_hz(hz);
//!     }
//! }
//!
//! let spi = Spi::new(SdCard::new(SdConfig::new(Profile::a1(), 1))?, "".parse()?, SpiConfig::default(), Clock::new())?;
//! let wires = Exclusive::new(spi.bus(), spi.chip_select());
//! let mut host = SpiEngine::host(wires, MyBoard(spi.clone()), 25_000_000);
//! let mut identify = Conductor::new(Identify::new(&host.capabilities()), Some([0_u8; 512]));
//! let card = loop {
//!     match identify.poll(&mut host, spi.clock().now()) {
//!         Turn::Wait { until, .. } => spi.clock().advance_to(until),
//!         Turn::Done(card, _) => break card?,
//!     }
//! };
//! assert!(card.traits.blocks > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Limits in time
//! A `poll` moves at most one block or [`POLL_BYTES`] bytes more than a command; on a shared bus a transaction may
//! hold the bus for [`MAX_PAUSE`] besides, while a slow card looks for its data. An operation ends at its caller's
//! limit; the engine stops at once.
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

#[cfg(feature = "async")]
mod awaited;
mod board;
mod engine;
mod line;
mod status;
mod task;
mod wires;

#[cfg(feature = "async")]
pub use awaited::{AsyncCard, drive};
pub use board::Board;
pub use engine::{GRACE, POLL_BYTES, SpiEngine};
pub use line::MAX_PAUSE;
pub use wires::{BusFault, Exclusive, Shared, Wires};

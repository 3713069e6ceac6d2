//! SD cards and host controllers that behave, misbehave and keep virtual time.
//!
//! It is not for production: tests and `mmc-lab` use it, a driver crate only as a dev-dependency.
//!
//! | to have | take |
//! |---|---|
//! | a card | [`card::SdCard`] from a [`card::SdConfig`], an [`card::MmcCard`] from a [`card::MmcConfig`], an [`card::SdioCard`] from a [`card::SdioConfig`], or one of the [`zoo`]; [`card::Shared`] keeps a back door |
//! | its pace | a [`timing::Profile`]: `slow2018`, `cheap`, `a1`, `a2`, `ideal` |
//! | its contents | [`storage::Storage`], sparse, up to 128 TiB |
//! | something to go wrong | a [`fault::Script`] and a [`fault::Faulty`] card; what a host did wrong is in [`card::Card::violations`] |
//! | a host without a controller | [`MockHost`], at the pace of the [`Wire`] |
//! | a controller, register for register | [`dw::Dw`] (DesignWare), [`sdhci::Sdhci`] (the standard one) |
//! | a card on an SPI bus | [`spi::Spi`]; with the feature `embedded-hal` for drivers of others |
//! | a card on the bus of embassy's `sdio` | `sdio::SdioBus`, with the feature `sdio` |
//! | time | a [`Clock`] that moves only when told to, and [`Wakes`] to know how far |
//! | liveness as an assertion | [`drive::drive_bounded`] |
//! | only what a card costs a scheduler | a [`scenario::Device`], apart from all the above |
//! | memory of a bus master | [`Memory`], [`MemoryDma`], [`Buf`], [`BufBatch`] |
//!
//! ```
//! use mmc_mock::card::{Card, SdCard, SdConfig, Shared};
//! use mmc_mock::{Buf, Clock, MockHost, timing::Profile};
//! use mmc_proto::{host::Capabilities, machine::{Conductor, Identify, Turn}};
//!
//! // A card of 2018, and a handle that stays with the test.
//! let card = Shared::new(SdCard::new(SdConfig::new(Profile::slow2018(), 1))?);
//! let caps = Capabilities::new();
//! let mut host = MockHost::new(card.clone(), caps);
//!
//! // Identify it in virtual time.
//! let clock = Clock::new();
//! let mut talk = Conductor::new(Identify::new(&caps), Some(Buf(vec![0; 512])));
//! let card_found = loop {
//!     match talk.poll(&mut host, clock.now()) {
//!         Turn::Wait { until, .. } => clock.advance_to(until),
//!         Turn::Done(found, _) => break found?,
//!     }
//! };
//! assert_eq!(card_found.traits.blocks, 16_777_216);
//! assert!(card.violations().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod card;
mod clock;
pub mod drive;
pub mod dw;
pub mod fault;
pub mod host;
mod memory;
pub mod mersenne;
pub mod scenario;
pub mod sdhci;
#[cfg(feature = "sdio")]
pub mod sdio;
pub mod spi;
pub mod storage;
pub mod timing;
mod wire;
mod wired;
pub mod zoo;

pub use clock::{Clock, Wakes};
pub use host::MockHost;
pub use memory::{Buf, BufBatch, HeapBatch, Memory, MemoryDma, Movable, Neglect, Window};
pub use wire::Wire;
pub use wired::Wired;

/// The example of the page is compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../docs/test-your-driver.md")]
struct TestYourDriver;

//! Our disk behind the traits of other projects, and our card layer on their buses: one file and one feature each.
//!
//! It is not a file system and holds no protocol of its own: each file only translates.
//!
//! | feature | whose trait | what it is here |
//! |---|---|---|
//! | `embedded-sdmmc` | `embedded-sdmmc`'s `BlockDevice` | `FatDevice` over a blocking disk |
//! | `embedded-storage` | `embedded-storage`'s `Storage` | `ByteStorage` over a blocking disk |
//! | `block-device-driver` | `block-device-driver`'s `BlockDevice<512>` | `AsyncDevice` over an async disk |
//! | `rdif-block` | `rdif-block`'s `BlockController`, `HardwareQueue` and `HardIrqHandler` | `RdifController` and `RdifQueue` over a polled disk |
//! | `sdio` | `sdio`'s `MmcBus` | `HostBus`: its card layer over our host; `BusDriver`: our conversations, and our scheduler, over its bus |
//!
//! Our requests own their buffers, theirs lend a slice: in between is a [`Bounce`], a few buffers of the caller's own (with
//! DMA: where the DMA can reach them), and one copy.
//!
//! `no_std`; no allocation but in `rdif-block`, whose traits ask for it. A feature that needs a newer compiler than the workspace's 1.85 says so in `Cargo.toml`.

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

#[cfg(feature = "rdif-block")]
extern crate alloc;

mod bounce;
mod sectors;

#[cfg(feature = "block-device-driver")]
mod block_device_driver;
#[cfg(feature = "embedded-sdmmc")]
mod embedded_sdmmc;
#[cfg(feature = "embedded-storage")]
mod embedded_storage;
#[cfg(feature = "rdif-block")]
mod rdif_block;
#[cfg(feature = "sdio")]
mod sdio_bus;
#[cfg(feature = "sdio")]
mod sdio_host;

#[cfg(feature = "block-device-driver")]
pub use block_device_driver::AsyncDevice;
pub use bounce::{Bounce, NoSector};
#[cfg(feature = "embedded-sdmmc")]
pub use embedded_sdmmc::FatDevice;
#[cfg(feature = "embedded-storage")]
pub use embedded_storage::ByteStorage;
#[cfg(feature = "rdif-block")]
pub use rdif_block::{RdifController, RdifQueue};
#[cfg(feature = "sdio")]
pub use sdio_bus::BusDriver;
#[cfg(feature = "sdio")]
pub use sdio_host::HostBus;
pub use sectors::{Error, Sectors};

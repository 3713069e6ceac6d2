//! Driver for the Synopsys DesignWare mobile storage host (DW_mshc), on the ARC HSDK and its relatives.
//!
//! It is not for DWC_mshc (an SDHCI variant of the same vendor). Validated on: model (`mmc-mock::dw`); never on silicon.
//!
//! [`DwEngine::new`] (polled) and [`DwEngine::split`] (with an interrupt half) give a
//! [`Supervised`](mmc_proto::host::Supervised) host. Nothing here blocks: each wait is a state with a named
//! limit, and `poll` is called again.
//!
//! # Map
//! [`reg`] offsets and bits · [`platform`] what differs between boards, as data · [`clock`] dividers and clock
//! changes · [`timeout`] what TMOUT means in time · [`reset`] power-up and recovery · [`command`] the CMD word,
//! responses, which error comes first · [`descriptor`] and `idmac` the internal DMA · [`irq`] the interrupt half ·
//! `engine` puts them together.
//!
//! # What is not here yet
//! PIO, 64-bit descriptors, CMD11 (1.8 V), tuning, DDR, SDIO interrupts, auto-stop: such an operation is refused
//! with [`Cause::Unsupported`](mmc_proto::host::Cause), it is never done halfway.
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

#[cfg(test)]
extern crate std;

#[cfg(not(target_has_atomic = "32"))]
compile_error!("mmc-dw-hsdk needs 32-bit atomics (fetch_or, swap) for the mailbox between its two halves");

pub mod clock;
pub mod command;
pub mod descriptor;
mod engine;
mod idmac;
pub mod irq;
pub mod platform;
pub mod reg;
pub mod reset;
pub mod timeout;
mod wait;

pub use engine::{DwEngine, GRACE};
pub use idmac::{MAX_SEGMENTS, Ring};
pub use irq::{IrqHalf, Mailbox};
pub use platform::Platform;

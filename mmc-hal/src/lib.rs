//! Registers, DMA memory and buffers as traits and types, for drivers of SD and eMMC hosts.
//!
//! It is not a hardware abstraction of pins, clocks or buses (`embedded-hal` is), and the one crate of
//! this workspace that holds `unsafe`: everything above it is `forbid(unsafe_code)`.
//!
//! Three rooms: [`Mmio`] (a window of registers, real or faked), [`Dma`] (what a bus master may touch, and
//! when) and [`Payload`]/[`Batch`] (buffers that move into a transfer and come back out of it; a [`Scatter`] is one of
//! several pieces).
#![no_std]
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

mod buffer;
mod dma;
mod mmio;
mod scatter;

pub use buffer::{Batch, Dir, Gather, Lent, LentEntry, Payload};
pub use dma::{Dma, DmaBuf, DmaError, DmaPayload, Linear, Segment};
pub use mmio::{Mmio, Volatile};
pub use scatter::{Scatter, ScatterError};

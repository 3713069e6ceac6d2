//! Driver for the standard SD host controller (SDHCI), versions 2 to 4, in its version 3 programming model.
//!
//! It is not for the DesignWare mobile storage host (`mmc-dw-hsdk` is). Validated on: QEMU's `sdhci-pci` (`qemu-bench`);
//! **never on silicon**.
//!
//! [`SdhciEngine::new`] (polled) and [`SdhciEngine::split`] (with an interrupt half) give a
//! [`Supervised`](mmc_proto::host::Supervised) host. Nothing here blocks: each wait is a state with a named limit, and
//! `poll` is called again. Facts are from the SD Host Controller Simplified Specification; sections are named where they
//! are used.
//!
//! # Map
//! [`reg`] offsets and bits · [`platform`] what the capability registers do not tell, as data · [`clock`] the two ways of
//! dividing · `command` the command word, responses, which error comes first · `adma` descriptors and their memory ·
//! `pio` the buffer port by hand, for what DMA cannot have · [`irq`] the interrupt half and its mailbox · `reset` the way
//! back from an error · `engine` puts them together.
//!
//! # Use
//! ```no_run
//! use core::ptr::NonNull;
//! use mmc_hal::{DmaBuf, Lent, Linear, Volatile};
//! use mmc_sdhci::{Mailbox, Platform, SdhciEngine, Table};
//!
//! static MAILBOX: Mailbox = Mailbox::new();
//! # fn map(_bus: u64) -> NonNull<u8> { NonNull::dangling() } // the board's own mapping
//! let table_bus = 0x8100_0000; // 4 KiB of uncached memory below 4 GiB
//! // SAFETY: both windows are mapped uncached for ever, and nobody else uses them.
//! let (regs, descriptors) =
//!     unsafe { (Volatile::new(map(0xfe30_0000), 0x100), Volatile::new(map(table_bus), 4096)) };
//! // SAFETY: the interrupt half touches the interrupt status register only.
//! let irq_regs = unsafe { regs.share() };
//! let table = Table::new(descriptors, table_bus, 4096)?;
//! let dma = Linear { offset: 0, mask: u32::MAX as u64, align: 4 };
//! let (host, irq) =
//!     SdhciEngine::<_, _, _, Lent<DmaBuf>>::split(regs, irq_regs, &MAILBOX, table, dma, Platform::STANDARD);
//! // `irq.handle()` in the interrupt handler (the line is a level); `host` goes to a conversation or a disk.
//! # let _ = (host, irq);
//! # Ok::<(), mmc_proto::host::Cause>(())
//! ```
//!
//! # Registers by 32 bits
//! Many registers of this controller are 8 or 16 bits wide; all are reached by whole 32-bit words here, which every
//! controller must allow (§1.3 of the specification lets the host use any width). Words that share a side effect are
//! written once: transfer mode and command together, for instance.
//!
//! # Tuning
//! In SDR104 and HS200, and in SDR50 where the capabilities say so, the controller finds its sample point itself: a
//! command with [`tuning`](mmc_proto::command::Command::tuning) sets "execute tuning" and is sent up to 40 times until the
//! controller clears that; "sampling clock select" tells whether it has found one (§3.7.1). The point is kept as long as clock,
//! lines and level are what they were. When its time is over (the timer of the capabilities), or when the controller asks
//! (a request, or an error of its tuning circuit), [`Slot::retune`](mmc_proto::host::Slot::retune) is set, until the next tuning.
//!
//! # Limits in time
//! An operation ends at its caller's limit plus [`GRACE`] at the latest. Below that: a command that the controller says
//! nothing about [`COMMAND_LIMIT`], a clock that is not stable [`clock::STABLE_LIMIT`], a reset `RESET_LIMIT` (100 ms).
//! A read that brings nothing ends by the controller's data timeout, half a second to a second; writes and busy cards by
//! the caller's limit alone.
//!
//! # What it does not do
//! SDMA and the command queue (CQHCI); DDR52 and HS400, which the specification does not have; SDIO interrupts; preset values; the version 4 mode with 128-bit descriptors (a controller of version 4
//! is driven as one of version 3). What cannot be done is refused with
//! [`Cause::Unsupported`](mmc_proto::host::Cause), never done halfway.
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
compile_error!("mmc-sdhci needs 32-bit atomics (fetch_or, swap) for the mailbox between its two halves");

mod adma;
pub mod clock;
mod command;
mod engine;
pub mod irq;
mod pio;
pub mod platform;
pub mod reg;
mod reset;

pub use adma::{MAX_SEGMENTS, Table};
pub use engine::{COMMAND_LIMIT, GRACE, SdhciEngine, Transfers};
pub use irq::{IrqHalf, Mailbox};
pub use platform::Platform;

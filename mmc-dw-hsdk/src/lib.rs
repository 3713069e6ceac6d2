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
//! responses, which error comes first · [`descriptor`] and `idmac` the internal DMA ·
//! `pio` the FIFO by hand, for what DMA cannot have · [`irq`] the interrupt half ·
//! `mailbox` what it shares with the task half · `engine` puts them together.
//!
//! # Use
//! ```no_run
//! use core::ptr::NonNull;
//! use mmc_dw_hsdk::{DwEngine, Mailbox, Ring, platform::HSDK};
//! use mmc_hal::{DmaBuf, Lent, Linear, Volatile};
//!
//! static MAILBOX: Mailbox = Mailbox::new();
//! # fn map(_bus: u64) -> NonNull<u8> { NonNull::dangling() } // the board's own mapping
//! let ring_bus = 0x8100_0000; // 8 KiB of uncached memory below 4 GiB
//! // SAFETY: both windows are mapped uncached for ever, and nobody else uses them.
//! let (regs, descriptors) =
//!     unsafe { (Volatile::new(map(HSDK.base), 0x400), Volatile::new(map(ring_bus), 8192)) };
//! // SAFETY: the interrupt half touches RINTSTS and IDSTS only.
//! let irq_regs = unsafe { regs.share() };
//! let ring = Ring::new(descriptors, ring_bus, 8192)?;
//! let dma = Linear { offset: 0, mask: 0xbfff_ffff, align: 4 };
//! let (host, irq) = DwEngine::<_, _, _, Lent<DmaBuf>>::split(regs, irq_regs, &MAILBOX, ring, dma, HSDK);
//! // `irq.handle()` in the interrupt handler (the line is a level); `host` goes to a conversation or a disk.
//! # let _ = (host, irq);
//! # Ok::<(), mmc_proto::host::Cause>(())
//! ```
//!
//! # Limits in time
//! An operation ends at its caller's limit plus [`GRACE`] at the latest. Below that: a reset sequence
//! [`reset::RESET_LIMIT`], a clock update [`clock::UPDATE_LIMIT`], a command that the controller has taken and says
//! nothing about twice [`timeout::command_limit`], a read that makes no progress three times
//! [`timeout::data_limit`], the end of the DMA after the end of the data 100 ms.
//!
//! # What it does not do
//! Several blocks of a length that is not a multiple of the FIFO's word, low-power clock gating, boot modes: such an
//! operation is refused with [`Cause::Unsupported`](mmc_proto::host::Cause), it is never done halfway.
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
mod mailbox;
mod pio;
pub mod platform;
pub mod reg;
pub mod reset;
mod sync;
pub mod timeout;
mod wait;

pub use engine::{DwEngine, GRACE, Transfers};
pub use idmac::{MAX_SEGMENTS, Ring};
pub use irq::IrqHalf;
pub use mailbox::Mailbox;
pub use platform::Platform;

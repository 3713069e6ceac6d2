//! One SD or eMMC card as a block device: owns a card, a scheduler and a host; admission, ordering, completion.
//!
//! It is not a file system, a cache or a partition table, and holds no clock: `now` is an argument.
//!
//! ```text
//!  Request + buffer ──► admission ──► Scheduler ──► assemble ──► Transfer over a Host ──► Done + buffer
//!                       (tags)                      (one command)
//!                     └──────────────── Core ───────────────┘
//!                     └───────────────────────── Disk ─────────────────┘
//! ```
//!
//! [`Disk`] is the polled front: `submit`, `poll`, `take_done`. [`Blocking`] waits for each request; with [`Async`]
//! many tasks await theirs. [`Init`]
//! identifies the card. A driver is: a host, [`Init`] over it, and a [`Disk`] of what it found.
//!
//! **Scatter lists.** A request's buffer may have any number of segments of any lengths (an
//! [`mmc_hal::Scatter`]): one that has more than the host takes in one command goes in several, divided between
//! sectors, and requests that merged go in one command only as far as their segments fit.
//!
//! **Order.** A request never passes an earlier one of the same sectors, unless both read. All others may be carried out
//! in any order: whoever needs an order waits for the first before submitting the second, or flushes.

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

mod admission;
mod assemble;
mod bring_up;
mod care;
mod core;
mod disk;
mod dump;
mod error;
mod exchange;
mod flush;
mod front;
mod minder;
mod observer;
mod overlap;
mod partition;
mod raise;
mod tag;

pub use crate::core::{Abandoned, Core, Features, Job, Limits, SECTOR, Settings, Wipe, Work};
pub use bring_up::{Init, StepTimes, Up};
pub use care::{Care, Media, Verdict};
pub use disk::{Disk, Next};
pub use dump::{CoreDump, DiskDump};
pub use error::{BlockError, Refusal, Refused, SetupError, Stopped};
pub use exchange::{Answer, Exchange};
#[cfg(feature = "embedded-hal")]
pub use front::DelayIdle;
pub use front::{
    AnyDisk, Async, Conversation, Env, Gone, Handle, InFlight, Lends, Lock, Outcome, Runner, Served,
    TooFewWatches, Unheard, Unserved, Watch, serve,
};
pub use front::{Blocking, Failed, Failure, Idle, identify};
pub use observer::{Observer, Place, Statistics, Waits};
pub use partition::InPartition;
pub use tag::{Done, Stamps, Tag, Ticket};

//! In which order requests go to a block device: I/O schedulers with stated starvation bounds.
//!
//! It is not a queue of buffers and knows nothing of cards, buses or operating systems: a request is a range
//! of sectors with a stream and a priority, and time is an argument.
//!
//! A block layer calls [`Scheduler`]. An algorithm is a [`Policy`]; [`Queue`] joins a policy with storage for
//! requests: an array, a lent slice, with `std` a box or a vector; 192 bytes a request. [`AnyPolicy`] is chosen by name at run
//! time, and [`Queue::replace`] changes the policy with requests queued.
//!
//! | policy | what | longest wait |
//! |---|---|---|
//! | `none` ([`NoSched`]) | first come, first served | [`bound::none`] |
//! | `mq-deadline` ([`mq_deadline`]) | Linux', decision by decision: rules 7.3 and 5.10 | [`bound::mq_deadline`] |
//! | `deadline` ([`mod@deadline`]) | ours: the same idea with its promises kept | [`bound::deadline`] |
//! | `bfq` ([`bfq`]) | fair shares of service by weight | [`bound::bfq`] |
//! | `cfq` ([`cfq`]) | Linux' of before blk-mq: slices of time by level | none: [`bound::cfq`] |
//! | `kyber` ([`kyber`]) | Linux' for fast devices: first come, first served in four lists | [`bound::kyber`] |
//! | `ftb` ([`ftb`]) | ours: fair shares of device time, one command at most in front of what is waited for | `docs/ftb.md` |
//!
//! The proofs of the bounds are in `docs/bounds.md`.
//!
//! Memory on a 64-bit machine: 192 bytes a request ([`Slot`]), 104 a scheduler, and the policy: 260 a stream for `bfq`, 156
//! for `ftb`, 88 for `cfq`, a few hundred in all for the others (`tests/sizes.rs`).
//!
//! Each policy but `none` is a cargo feature of its name, all on by default.
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

mod any;
#[cfg(feature = "bfq")]
pub mod bfq;
pub mod bound;
#[cfg(feature = "cfq")]
pub mod cfq;
#[cfg(feature = "deadline")]
pub mod deadline;
mod fifo;
#[cfg(feature = "ftb")]
pub mod ftb;
#[cfg(feature = "kyber")]
pub mod kyber;
#[cfg(any(feature = "mq-deadline", feature = "deadline"))]
mod lane;
mod merge;
#[cfg(feature = "mq-deadline")]
pub mod mq_deadline;
mod none;
mod policy;
mod pool;
mod queue;
mod request;
mod scheduler;
#[cfg(any(feature = "bfq", feature = "cfq"))]
mod seek;
mod tree;
#[cfg(any(
    feature = "mq-deadline",
    feature = "deadline",
    feature = "bfq",
    feature = "cfq",
    feature = "kyber",
    feature = "ftb"
))]
mod tunable;

pub use any::{AnyPolicy, NoPolicy};
#[cfg(feature = "bfq")]
pub use bfq::Bfq;
#[cfg(feature = "cfq")]
pub use cfq::Cfq;
#[cfg(feature = "deadline")]
pub use deadline::Deadline;
pub use fifo::Fifo;
#[cfg(feature = "ftb")]
pub use ftb::Ftb;
#[cfg(feature = "kyber")]
pub use kyber::Kyber;
pub use merge::{Joined, Limits, Merges};
/// For [`hand_on`]: whoever wraps a scheduler may know time by another name.
#[doc(hidden)]
pub use mmc_time::Instant;
#[cfg(feature = "mq-deadline")]
pub use mq_deadline::MqDeadline;
pub use none::NoSched;
pub use policy::{Done, MergeScope, Pick, Policy};
pub use pool::{Pool, Slot};
pub use queue::Queue;
pub use request::{Class, Flags, Kind, Op, Priority, Request, RequestId, StreamId};
pub use scheduler::{
    Completed, Dispatch, Inserted, Outcome, Rejected, Run, Scheduler, TunableInfo, TuneError,
};
pub use tree::Tree;

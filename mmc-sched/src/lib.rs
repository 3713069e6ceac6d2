//! In which order requests go to a block device: I/O schedulers with stated starvation bounds.
//!
//! It is not a queue of buffers and knows nothing of cards, buses or operating systems: a request is a range
//! of sectors with a stream and a priority, and time is an argument.
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

mod request;
mod scheduler;

pub use request::{Class, Flags, Kind, Op, Priority, Request, RequestId, StreamId};
pub use scheduler::{
    Completed, Dispatch, Inserted, Outcome, Rejected, Run, Scheduler, TunableInfo, TuneError,
};

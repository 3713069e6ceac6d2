//! Thin shells over a disk for callers that do not want to poll it.

mod async_front;
mod blocking;

pub use async_front::{AnyDisk, Async, Env, Gone, Handle, InFlight, Lock, Runner, TooFewWatches, Watch};
#[cfg(feature = "embedded-hal")]
pub use blocking::DelayIdle;
pub use blocking::{Blocking, Failed, Failure, Idle, identify};

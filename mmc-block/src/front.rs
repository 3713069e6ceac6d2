//! Thin shells over a disk for callers that do not want to poll it.

mod blocking;

#[cfg(feature = "embedded-hal")]
pub use blocking::DelayIdle;
pub use blocking::{Blocking, Failed, Failure, Idle, identify};

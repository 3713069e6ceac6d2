//! Thin shells over a disk for callers that do not want to poll it.

mod async_front;
mod blocking;
mod converse;
mod served;

pub use async_front::{
    AnyDisk, Async, Env, Gone, Handle, InFlight, Lends, Lock, Runner, TooFewWatches, Watch,
};
#[cfg(feature = "embedded-hal")]
pub use blocking::DelayIdle;
pub use blocking::{Blocking, Failed, Failure, Idle, identify};
pub use converse::{Unheard, Unserved};
pub use served::{Conversation, Outcome, Served, serve};

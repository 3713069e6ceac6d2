//! SD cards and host controllers that behave, misbehave and keep virtual time.
//!
//! It is not for production: tests and `mmc-lab` use it, a driver crate only as a dev-dependency.
#![forbid(unsafe_code)]

pub mod card;
mod clock;
pub mod dw;
pub mod fault;
pub mod host;
mod memory;
pub mod storage;
pub mod timing;
mod wire;

pub use clock::{Clock, Wakes};
pub use host::MockHost;
pub use memory::{Buf, BufBatch, Memory, MemoryDma, Movable, Window};
pub use wire::Wire;

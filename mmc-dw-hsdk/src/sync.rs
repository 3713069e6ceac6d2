//! The atomics of the mailbox, in a place of their own: `tests/loom_mailbox.rs` compiles `mailbox.rs` against loom's.

pub(crate) use core::sync::atomic::{AtomicU32, Ordering, fence};

//! Virtual time, shared by everything in one simulation.

use mmc_time::{Duration, Instant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that moves only when told to. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
    /// Moves on to `to`; does nothing if that is not later.
    pub fn advance_to(&self, to: Instant) {
        self.0.fetch_max(to.as_nanos(), Ordering::Relaxed);
    }
    /// Moves on by `by`.
    pub fn advance(&self, by: Duration) {
        self.advance_to(self.now() + by);
    }
}

/// A model that will do something by itself at a later instant.
pub trait Wakes {
    /// When its outputs (interrupt line, completion) can next change without being touched;
    /// [`Instant::NEVER`] if they cannot.
    fn next_event(&self) -> Instant;
}

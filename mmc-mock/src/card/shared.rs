//! One card, two ways in: a controller model owns a handle, a test keeps another as a back door.

use super::{Answer, Card, Sent, Token};
use mmc_proto::bus::{Signal, Timing};
use mmc_time::Instant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A card behind a lock; clones are the same card.
#[derive(Debug, Default)]
pub struct Shared<C>(Arc<Mutex<C>>);

impl<C> Clone for Shared<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> Shared<C> {
    /// Puts a card behind a lock.
    pub fn new(card: C) -> Self {
        Self(Arc::new(Mutex::new(card)))
    }
    /// The card itself; hold it shortly, a controller model waits meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, C> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Lends the card to `f`.
    pub fn with<R>(&self, f: impl FnOnce(&mut C) -> R) -> R {
        f(&mut self.lock())
    }
}

impl<C: Card> Card for Shared<C> {
    fn power(&mut self, on: bool, now: Instant) {
        self.lock().power(on, now);
    }
    fn bus(&mut self, hz: u32, lines: u8, now: Instant) {
        self.lock().bus(hz, lines, now);
    }
    fn signal(&mut self, signal: Signal, timing: Timing, now: Instant) {
        self.lock().signal(signal, timing, now);
    }
    fn lines_low(&self, now: Instant) -> bool {
        self.lock().lines_low(now)
    }
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        self.lock().samples_right(phase, now)
    }
    fn interrupt(&self, now: Instant) -> bool {
        self.lock().interrupt(now)
    }
    fn idle_clocks(&mut self, n: u32) {
        self.lock().idle_clocks(n);
    }
    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        self.lock().command(index, arg, now)
    }
    fn ready(&self, k: u32) -> Instant {
        self.lock().ready(k)
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        self.lock().send(block, now)
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        self.lock().send_many(blocks, now)
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        self.lock().take(block, crc_ok, now)
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        self.lock().take_many(blocks, now)
    }
    fn busy_until(&self, now: Instant) -> Instant {
        self.lock().busy_until(now)
    }
    fn present(&self) -> bool {
        self.lock().present()
    }
    fn violations(&self) -> Vec<String> {
        self.lock().violations()
    }
}

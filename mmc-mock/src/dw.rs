//! The DesignWare mobile storage host, register for register, with a [`Card`] at the end of its lines.
//!
//! It is not a model of the silicon's bits on the wire: a command, a block and a descriptor are the smallest
//! things that happen, each at the instant `Wire` gives it; between them state is a function of the clock.
//!
//! The facts are those of `spec/dw-mshc.md` and `spec/dw-mshc-model.md`; where sources or silicon disagree there
//! is a switch in [`Config`]. A foreign driver needs no more than [`Mmio`] (`read32`, `write32`), the interrupt
//! line [`Dw::irq`], the [`Clock`] to move on, and [`Memory`] to put descriptors and buffers in.
//!
//! ```
//! use mmc_hal::Mmio;
//! use mmc_mock::card::{SdCard, SdConfig};
//! use mmc_mock::dw::{Config, Dw};
//! use mmc_mock::timing::Profile;
//! use mmc_mock::{Clock, Memory, Wakes};
//!
//! let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
//! let card = SdCard::new(SdConfig::new(Profile::slow2018(), 1)).unwrap();
//! let dw = Dw::new(card, clock.clone(), memory, Config::hsdk());
//! for (offset, value) in [
//!     (0x004, 1),           // PWREN
//!     (0x108, 0x8000_0000), // the board's divider: 50 MHz
//!     (0x008, 63),          // CLKDIV: 397 kHz
//!     (0x010, 1),           // CLKENA
//!     (0x02c, 0x8020_2000), // CMD: take the clock over
//!     (0x024, 4),           // INTMASK: command done
//!     (0x000, 0x10),        // CTRL: let the line go
//!     (0x02c, 0xa000_8000), // CMD0 after 80 clocks
//! ] {
//!     dw.write32(offset, value);
//! }
//! clock.advance_to(dw.next_event());
//! assert!(dw.irq());
//! assert_eq!((dw.read32(0x44), clock.now().as_nanos()), (4, 322_561)); // 128 clocks
//! assert!(dw.violations().is_empty());
//! ```
//!
//! Not modelled: what the boot, CE-ATA and stream bits ask for (using them is recorded as a violation), drive phases,
//! the card's voltage outputs, the write threshold, more than one card.

mod access;
mod command;
mod config;
mod core;
mod data;
mod fault;
mod fifo;
mod idmac;
mod reg;

pub use config::{Config, DataWidth, ErrorOrder, Field};
pub use fault::Fault;

use self::core::Core;
use self::fault::When;
use crate::card::Card;
use crate::clock::{Clock, Wakes};
use crate::memory::Memory;
use mmc_hal::Mmio;
use mmc_time::Instant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a model has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Register reads.
    pub reads: u64,
    /// Register writes.
    pub writes: u64,
    /// How often the interrupt line went up.
    pub irq_edges: u64,
    /// Commands sent to the card, automatic CMD12 included, clock updates not.
    pub commands: u64,
    /// Descriptors the IDMAC has taken.
    pub descriptors: u64,
    /// Bytes the IDMAC has moved.
    pub dma_bytes: u64,
    /// Words that went through the FIFO by hand.
    pub fifo_words: u64,
}

/// A handle on one controller; clones are handles on the same one (for the interrupt half, for a test).
#[derive(Debug)]
pub struct Dw<C>(Arc<Mutex<Core<C>>>);

impl<C> Clone for Dw<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Card> Dw<C> {
    /// A controller just out of its block reset, with `card` in the slot, not powered.
    #[must_use]
    pub fn new(card: C, clock: Clock, memory: Memory, config: Config) -> Self {
        Self(Arc::new(Mutex::new(Core::new(card, clock, memory, config))))
    }
    fn lock(&self) -> MutexGuard<'_, Core<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The interrupt line at this moment.
    #[must_use]
    pub fn irq(&self) -> bool {
        let mut core = self.lock();
        core.run();
        core.irq()
    }
    /// Lets everything happen that is due by now; each register access does it, too. Needed only before a look
    /// at memory alone.
    pub fn advance(&self) {
        self.lock().run();
    }
    /// Makes something go wrong: now, or at the next command it can strike at.
    pub fn inject(&self, fault: Fault) {
        let mut core = self.lock();
        core.run();
        core.strike(fault);
        core.settle();
    }
    /// The same after `commands` more commands (for faults that strike at commands; others strike now).
    pub fn inject_after(&self, commands: u32, fault: Fault) {
        if fault.of_command() {
            self.lock().faults.armed.push((commands, fault));
        } else {
            self.inject(fault);
        }
    }
    /// The same at the instant `at`.
    pub fn inject_at(&self, at: Instant, fault: Fault) {
        let mut core = self.lock();
        core.faults.timeline.push((When::At(at), fault));
        core.settle();
    }
    /// The same just before the `accesses`-th register access from now (1: the next one).
    pub fn inject_at_access(&self, accesses: u64, fault: Fault) {
        let mut core = self.lock();
        let at = core.counters.reads + core.counters.writes + accesses;
        core.faults.timeline.push((When::Access(at), fault));
        core.settle();
    }
    /// Takes all faults back that have not struck yet, and those that last (stuck START, stuck reset).
    pub fn heal(&self) {
        let mut core = self.lock();
        core.heal();
        core.settle();
    }
    /// The board supplies the signal lines with 1.8 V, or with 3.3 V; the other way is bit 0 of UHS_REG.
    pub fn supply_lines(&self, v1_8: bool) {
        let mut core = self.lock();
        core.run();
        core.board_1_8 = v1_8;
        core.bus_changed();
        core.settle();
    }
    /// The board samples at `phase` degrees of the clock period; counts where [`Config::sample`] is `None`.
    pub fn sample_at(&self, phase: u16) {
        let mut core = self.lock();
        core.run();
        core.board_phase = phase % 360;
        core.settle();
    }
    /// What the driver did wrong so far, the card's own list after it; for tests to assert empty.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations()
    }
    /// The back door to the card. `f` must not touch this controller.
    pub fn card<R>(&self, f: impl FnOnce(&mut C) -> R) -> R {
        let mut core = self.lock();
        core.run();
        let r = f(&mut core.card);
        core.settle();
        r
    }
    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }
}

impl<C: Card> Mmio for Dw<C> {
    fn read32(&self, offset: u32) -> u32 {
        let mut core = self.lock();
        core.access(false);
        if !offset.is_multiple_of(4) {
            return 0;
        }
        let value = core.read(offset);
        core.settle_after_read(offset);
        value
    }
    fn write32(&self, offset: u32, value: u32) {
        let mut core = self.lock();
        core.access(true);
        if offset.is_multiple_of(4) {
            core.write(offset, value);
            core.settle();
        }
    }
}

impl<C: Card> Wakes for Dw<C> {
    fn next_event(&self) -> Instant {
        let mut core = self.lock();
        core.run();
        core.next_event()
    }
}

//! SD and MMC cards on an SPI bus, byte by byte (`spec/card.md` §16), over the same state machine as on the SD bus.
//!
//! It is not a model of bits or of edges: mode 0 and whole bytes are taken for granted.
//!
//! * [`SpiSd`] and [`SpiMmc`] are the card on the command level, for those who speak in commands;
//! * [`Link`] is the same card behind its four wires: one byte in, one byte out;
//! * [`Spi`] puts it on a bus with a clock: every byte takes its time. With the feature `embedded-hal` it hands out
//!   what a foreign driver asks for: `Spi::device`, `Spi::bus`, `Spi::chip_select`, `Spi::delay`.
//!
//! ```
//! use mmc_mock::Clock;
//! use mmc_mock::card::{SdCard, SdConfig};
//! use mmc_mock::spi::{Spi, SpiConfig};
//! use mmc_mock::timing::Profile;
//!
//! let card = SdCard::new(SdConfig::new(Profile::slow2018(), 1))?;
//! let spi = Spi::new(card, "".parse()?, SpiConfig::default(), Clock::new())?;
//! for _ in 0..10 {
//!     spi.exchange(0xff)?; // 80 clocks, chip select high
//! }
//! spi.select(true);
//! for byte in [0x40, 0, 0, 0, 0, 0x95] {
//!     spi.exchange(byte)?;
//! }
//! assert_eq!([spi.exchange(0xff)?, spi.exchange(0xff)?], [0xff, 0x01]); // idle
//! assert!(spi.violations().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "embedded-hal")]
mod hal;
mod link;
mod mmc;
mod mode;

#[cfg(feature = "embedded-hal")]
pub use hal::{BusError, Delay, Device, Select, Wires};
pub use link::Link;
pub use mmc::SpiMmc;
pub use mode::{SpiMode, SpiSd};

use crate::card::{MmcCard, SdCard};
use crate::clock::Clock;
use crate::drive::{Bound, Overrun, Spent, Watch};
use crate::fault::{Faulty, Invalid, Script};
use mmc_time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a card behaves on an SPI bus. The default is a card as the standard has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpiConfig {
    /// Bytes of FF between a command and its R1, 1..=8 (N_CR); others are cut to that.
    pub response_delay: u8,
    /// The byte after CMD12 that means nothing (`spec/card-field-reports.md` 9, 10: cards send 7F, which a host that
    /// does not drop it takes for an R1).
    pub stuff: u8,
    /// Raising chip select in the middle of a command or of its data ends it. Off: the card goes on where it was when
    /// it is selected again. Either way it is a violation.
    pub strict_select: bool,
    /// CMD59 is illegal (report 42).
    pub no_crc_command: bool,
    /// CRCs are checked whatever CMD59 says (report 44), and from power-up on: as a card whose host was
    /// reset with CRCs on (reports 5 and 41).
    pub always_crc: bool,
    /// DO is low from power-up until CMD0 (report 4).
    pub low_until_cmd0: bool,
    /// Bytes of busy after the R1 of CMD55, in which the card hears nothing (report 3).
    pub busy_after_app: u8,
    /// The last sector of the card comes with a wrong CRC from CMD18, and right from CMD17 (`spec/card.md` §16).
    pub last_by_single_only: bool,
    /// CMD18 is answered, and no block comes (`spec/card-quirks.md`, 9F `SPCC` of 2025).
    pub no_multi_read: bool,
    /// The R1 after an illegal command says "illegal command" once more although its own is carried out: ILLEGAL_COMMAND as
    /// on the SD bus, and as QEMU's card does (`docs/qemu-findings.md`).
    pub illegal_again: bool,
    /// The byte right behind a response is not heard: a host that leaves no eight clocks before its next command (N_RC) says
    /// something else then. QEMU's card takes such a CMD12 for a CMD0.
    pub deaf_after_response: bool,
}

impl Default for SpiConfig {
    fn default() -> Self {
        Self {
            response_delay: 1,
            stuff: 0xff,
            strict_select: false,
            no_crc_command: false,
            always_crc: false,
            low_until_cmd0: false,
            busy_after_app: 0,
            last_by_single_only: false,
            no_multi_read: false,
            illegal_again: false,
            deaf_after_response: false,
        }
    }
}

/// A card on a bus with a clock of its own; clones are handles on the same bus. The card has its supply from the
/// start, and the bus begins at 400 kHz.
#[derive(Debug)]
pub struct Spi<C = SpiSd>(Arc<Mutex<Inner<C>>>);

impl<C> Clone for Spi<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<C> {
    link: Link<C>,
    clock: Clock,
    hz: u32,
    selected: bool,
    watch: Option<Watch>,
    bytes: u64,
}

impl Spi {
    /// Puts `card`, which follows `script`, on a bus.
    ///
    /// # Errors
    /// [`Invalid`] for a script that this card cannot follow.
    pub fn new(card: SdCard, script: Script, config: SpiConfig, clock: Clock) -> Result<Self, Invalid> {
        Self::with_card(SpiSd::new(card), script, config, clock)
    }
}

impl Spi<SpiMmc> {
    /// Puts an MMC card, which follows `script`, on a bus.
    ///
    /// # Errors
    /// [`Invalid`] for a script that this card cannot follow.
    pub fn mmc(card: MmcCard, script: Script, config: SpiConfig, clock: Clock) -> Result<Self, Invalid> {
        Self::with_card(SpiMmc::new(card), script, config, clock)
    }
}

impl<C: SpiMode> Spi<C> {
    fn with_card(card: C, script: Script, config: SpiConfig, clock: Clock) -> Result<Self, Invalid> {
        let mut link = Link::new(Faulty::new(card, script)?, config, clock.now());
        link.bus(400_000, clock.now());
        let inner = Inner { link, clock, hz: 400_000, selected: false, watch: None, bytes: 0 };
        Ok(Self(Arc::new(Mutex::new(inner))))
    }
    fn lock(&self) -> MutexGuard<'_, Inner<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Sends one byte and takes one; eight clocks pass.
    ///
    /// # Errors
    /// [`Overrun`] once the bound of [`bounded`](Self::bounded) is passed, at every byte from then on: that is how a driver that waits without
    /// an end comes to one. Its clock stands then.
    pub fn exchange(&self, out: u8) -> Result<u8, Overrun> {
        self.lock().exchange(out)
    }
    /// Lets time pass without clocks on the bus.
    pub fn wait(&self, time: Duration) {
        let inner = self.lock();
        if inner.allows(time).is_ok() {
            inner.clock.advance(time);
        }
    }
    /// Drives chip select: true is low.
    pub fn select(&self, on: bool) {
        let mut inner = self.lock();
        let now = inner.clock.now();
        if std::mem::replace(&mut inner.selected, on) != on {
            inner.link.select(on, now);
        }
    }
    /// Sets the clock of the bus, at least 1 Hz.
    pub fn set_hz(&self, hz: u32) {
        let mut inner = self.lock();
        inner.hz = hz.max(1);
        let (hz, now) = (inner.hz, inner.clock.now());
        inner.link.bus(hz, now);
    }
    /// The clock of the bus in Hz.
    #[must_use]
    pub fn hz(&self) -> u32 {
        self.lock().hz
    }
    /// From now on the user of this bus has `bound.time` and `bound.steps` bytes.
    pub fn bounded(&self, bound: Bound) {
        let mut inner = self.lock();
        inner.watch = Some(Watch::new(bound, inner.clock.now()));
    }
    /// What was used since [`bounded`](Self::bounded); nothing without it.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let inner = self.lock();
        inner.watch.map(|w| w.spent(inner.clock.now())).unwrap_or_default()
    }
    /// Bytes exchanged so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }
    /// The clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.lock().clock.clone()
    }
    /// Lends the card at the end of the wires to `f`.
    pub fn with<R>(&self, f: impl FnOnce(&mut Faulty<C>) -> R) -> R {
        f(self.lock().link.card_mut())
    }
    /// What the host did wrong so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lock().link.violations()
    }
    /// 80 clocks with chip select high and DI high: what must come before the first command.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn start_up(&self) -> Result<(), Overrun> {
        self.select(false);
        (0..10).try_for_each(|_| self.exchange(0xff).map(|_| ()))
    }
}

impl<C: SpiMode> Inner<C> {
    fn allows(&self, time: Duration) -> Result<(), Overrun> {
        let now = self.clock.now();
        self.watch.map_or(Ok(()), |w| w.wait(now, now + time))
    }
    fn exchange(&mut self, out: u8) -> Result<u8, Overrun> {
        let time = Duration::from_nanos(8_000_000_000_u64.div_ceil(self.hz.into()));
        self.allows(time)?;
        if let Some(watch) = &mut self.watch {
            watch.step(self.clock.now())?;
        }
        self.clock.advance(time);
        self.bytes += 1;
        Ok(self.link.exchange(out, self.clock.now()))
    }
}

//! The traits of `embedded-hal` 1.0, for drivers of others.

use super::{Spi, SpiMode, SpiSd};
use crate::drive::Overrun;
use embedded_hal::delay::DelayNs;
use embedded_hal::digital::{self, OutputPin};
use embedded_hal::spi::{self, Operation, SpiBus, SpiDevice};
use mmc_time::Duration;

/// The user of the bus has passed its bound ([`Spi::bounded`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct BusError(#[from] pub Overrun);

impl spi::Error for BusError {
    fn kind(&self) -> spi::ErrorKind {
        spi::ErrorKind::Other
    }
}

/// An [`SpiDevice`]: the bus and the chip select of one card.
#[derive(Debug)]
pub struct Device<C = SpiSd> {
    spi: Spi<C>,
    held: bool,
}

/// An [`SpiBus`], without the chip select.
#[derive(Debug)]
pub struct Wires<C = SpiSd>(Spi<C>);

/// The chip select as a pin; low selects.
#[derive(Debug)]
pub struct Select<C = SpiSd>(Spi<C>);

/// Moves the virtual clock.
#[derive(Debug)]
pub struct Delay<C = SpiSd>(Spi<C>);

impl<C> Clone for Device<C> {
    fn clone(&self) -> Self {
        Self { spi: self.spi.clone(), held: self.held }
    }
}
impl<C> Clone for Wires<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
impl<C> Clone for Select<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
impl<C> Clone for Delay<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: SpiMode> Spi<C> {
    /// An `SpiDevice` that, as the trait demands, raises chip select after each transaction.
    #[must_use]
    pub fn device(&self) -> Device<C> {
        Device { spi: self.clone(), held: false }
    }
    /// An `SpiDevice` that leaves chip select to [`Spi::select`] or [`Spi::chip_select`], for drivers that cut one
    /// command into many transactions.
    #[must_use]
    pub fn held_device(&self) -> Device<C> {
        Device { spi: self.clone(), held: true }
    }
    /// The bus alone.
    #[must_use]
    pub fn bus(&self) -> Wires<C> {
        Wires(self.clone())
    }
    /// The chip select alone.
    #[must_use]
    pub fn chip_select(&self) -> Select<C> {
        Select(self.clone())
    }
    /// A delay in virtual time.
    #[must_use]
    pub fn delay(&self) -> Delay<C> {
        Delay(self.clone())
    }
}

impl<C: SpiMode> spi::ErrorType for Wires<C> {
    type Error = BusError;
}

impl<C: SpiMode> SpiBus for Wires<C> {
    fn read(&mut self, words: &mut [u8]) -> Result<(), BusError> {
        for w in words {
            *w = self.0.exchange(0xff)?;
        }
        Ok(())
    }
    fn write(&mut self, words: &[u8]) -> Result<(), BusError> {
        for &w in words {
            self.0.exchange(w)?;
        }
        Ok(())
    }
    fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), BusError> {
        for i in 0..read.len().max(write.len()) {
            let got = self.0.exchange(write.get(i).copied().unwrap_or(0xff))?;
            if let Some(r) = read.get_mut(i) {
                *r = got;
            }
        }
        Ok(())
    }
    fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), BusError> {
        for w in words {
            *w = self.0.exchange(*w)?;
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

impl<C: SpiMode> spi::ErrorType for Device<C> {
    type Error = BusError;
}

impl<C: SpiMode> SpiDevice for Device<C> {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), BusError> {
        if !self.held {
            self.spi.select(true);
        }
        let mut wires = Wires(self.spi.clone());
        let result = operations.iter_mut().try_for_each(|op| match op {
            Operation::Read(words) => wires.read(words),
            Operation::Write(words) => wires.write(words),
            Operation::Transfer(read, write) => wires.transfer(read, write),
            Operation::TransferInPlace(words) => wires.transfer_in_place(words),
            Operation::DelayNs(ns) => {
                self.spi.wait(Duration::from_nanos((*ns).into()));
                Ok(())
            }
        });
        if !self.held {
            self.spi.select(false);
        }
        result
    }
}

impl<C: SpiMode> digital::ErrorType for Select<C> {
    type Error = std::convert::Infallible;
}

impl<C: SpiMode> OutputPin for Select<C> {
    fn set_low(&mut self) -> Result<(), Self::Error> {
        self.0.select(true);
        Ok(())
    }
    fn set_high(&mut self) -> Result<(), Self::Error> {
        self.0.select(false);
        Ok(())
    }
}

impl<C: SpiMode> DelayNs for Delay<C> {
    fn delay_ns(&mut self, ns: u32) {
        self.0.wait(Duration::from_nanos(ns.into()));
    }
}

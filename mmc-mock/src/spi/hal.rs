//! The traits of `embedded-hal` 1.0, for drivers of others.

use super::Spi;
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
#[derive(Clone, Debug)]
pub struct Device {
    spi: Spi,
    held: bool,
}

/// An [`SpiBus`], without the chip select.
#[derive(Clone, Debug)]
pub struct Wires(Spi);

/// The chip select as a pin; low selects.
#[derive(Clone, Debug)]
pub struct Select(Spi);

/// Moves the virtual clock.
#[derive(Clone, Debug)]
pub struct Delay(Spi);

impl Spi {
    /// An `SpiDevice` that, as the trait demands, raises chip select after each transaction.
    #[must_use]
    pub fn device(&self) -> Device {
        Device { spi: self.clone(), held: false }
    }
    /// An `SpiDevice` that leaves chip select to [`Spi::select`] or [`Spi::chip_select`], for drivers that cut one
    /// command into many transactions.
    #[must_use]
    pub fn held_device(&self) -> Device {
        Device { spi: self.clone(), held: true }
    }
    /// The bus alone.
    #[must_use]
    pub fn bus(&self) -> Wires {
        Wires(self.clone())
    }
    /// The chip select alone.
    #[must_use]
    pub fn chip_select(&self) -> Select {
        Select(self.clone())
    }
    /// A delay in virtual time.
    #[must_use]
    pub fn delay(&self) -> Delay {
        Delay(self.clone())
    }
}

impl spi::ErrorType for Wires {
    type Error = BusError;
}

impl SpiBus for Wires {
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

impl spi::ErrorType for Device {
    type Error = BusError;
}

impl SpiDevice for Device {
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

impl digital::ErrorType for Select {
    type Error = std::convert::Infallible;
}

impl OutputPin for Select {
    fn set_low(&mut self) -> Result<(), Self::Error> {
        self.0.select(true);
        Ok(())
    }
    fn set_high(&mut self) -> Result<(), Self::Error> {
        self.0.select(false);
        Ok(())
    }
}

impl DelayNs for Delay {
    fn delay_ns(&mut self, ns: u32) {
        self.0.wait(Duration::from_nanos(ns.into()));
    }
}

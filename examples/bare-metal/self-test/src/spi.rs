//! A bus of `embedded-hal` over the one thing every SPI controller has: two FIFOs of bytes.

use core::convert::Infallible;
use embedded_hal::spi::{ErrorType, SpiBus};

/// The data registers of a controller.
pub trait Fifo {
    /// Bytes that may be sent before one is received.
    const DEPTH: usize;
    /// Sends a byte.
    fn send(&mut self, byte: u8);
    /// Waits for the byte that came for the oldest one sent.
    fn receive(&mut self) -> u8;
}

/// The bus.
pub struct Bus<F>(pub F);

impl<F: Fifo> ErrorType for Bus<F> {
    type Error = Infallible;
}

impl<F: Fifo> SpiBus for Bus<F> {
    fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), Infallible> {
        for some in words.chunks_mut(F::DEPTH) {
            some.iter().for_each(|byte| self.0.send(*byte));
            some.iter_mut().for_each(|byte| *byte = self.0.receive());
        }
        Ok(())
    }
    fn read(&mut self, words: &mut [u8]) -> Result<(), Infallible> {
        words.fill(0xff);
        self.transfer_in_place(words)
    }
    fn write(&mut self, words: &[u8]) -> Result<(), Infallible> {
        for byte in words {
            self.0.send(*byte);
            self.0.receive();
        }
        Ok(())
    }
    fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), Infallible> {
        for i in 0..read.len().max(write.len()) {
            self.0.send(write.get(i).copied().unwrap_or(0xff));
            let byte = self.0.receive();
            if let Some(place) = read.get_mut(i) {
                *place = byte;
            }
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Infallible> {
        // Each byte sent was received: nothing is under way.
        Ok(())
    }
}

//! A Cortex-M3 board (`lm3s6965evb`) whose SSI (a PL022) has an SD card of QEMU's in SPI mode.

use crate::pc::Clock;
use crate::qtest::Qtest;
use crate::{IMAGE, empty};
use embedded_hal::digital::OutputPin;
use embedded_hal::spi::SpiBus;
use mmc_mock::BufBatch;
use mmc_proto::host::Supervised;
use mmc_spi::{Board, Exclusive, SpiEngine};
use std::convert::Infallible;
use std::path::Path;

/// SSI0: control 0 and 1 at +0 and +4, data at +8.
const SSI: u32 = 0x4000_8000;
/// Port D; bit 0 is the card's chip select. Its data at +4 (the address masks all other bits), its directions at +0x400.
const PORT: u32 = 0x4000_7000;

/// The bus.
#[derive(Clone, Debug)]
pub struct Ssi(Qtest);

impl Ssi {
    /// Sends bytes and gives back what came for them.
    fn exchange(&self, bytes: impl Iterator<Item = u8>) -> Vec<u8> {
        let at = SSI + 8;
        let commands: Vec<String> =
            bytes.flat_map(|b| [format!("writel {at:#x} {b:#x}"), format!("readl {at:#x}")]).collect();
        let answers = self.0.ask_all(&commands);
        let number = |a: &String| u64::from_str_radix(a.trim_start_matches("0x"), 16).unwrap_or(u64::MAX);
        answers.iter().skip(1).step_by(2).map(|a| (number(a) & 0xff) as u8).collect()
    }
}

impl embedded_hal::spi::ErrorType for Ssi {
    type Error = Infallible;
}

impl SpiBus for Ssi {
    fn read(&mut self, words: &mut [u8]) -> Result<(), Infallible> {
        words.fill(0xff);
        self.transfer_in_place(words)
    }
    fn write(&mut self, words: &[u8]) -> Result<(), Infallible> {
        self.exchange(words.iter().copied());
        Ok(())
    }
    fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), Infallible> {
        let len = read.len().max(write.len());
        let sent = write.iter().copied().chain(std::iter::repeat(0xff)).take(len);
        for (to, from) in read.iter_mut().zip(self.exchange(sent)) {
            *to = from;
        }
        Ok(())
    }
    fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), Infallible> {
        let back = self.exchange(words.iter().copied());
        words.copy_from_slice(&back);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Chip select.
#[derive(Clone, Debug)]
pub struct Select(Qtest);

impl embedded_hal::digital::ErrorType for Select {
    type Error = Infallible;
}

impl OutputPin for Select {
    fn set_low(&mut self) -> Result<(), Infallible> {
        self.0.ask(&format!("writel {:#x} 0", PORT + 4));
        Ok(())
    }
    fn set_high(&mut self) -> Result<(), Infallible> {
        self.0.ask(&format!("writel {:#x} 1", PORT + 4));
        Ok(())
    }
}

/// The model has no clock to set and no switch for the supply.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Board for Plain {
    fn set_clock(&mut self, _: u32) {}
}

/// The machine.
#[derive(Debug)]
pub struct Stellaris {
    /// The way to QEMU.
    pub qtest: Qtest,
    /// The driver.
    pub host: Supervised<SpiEngine<Exclusive<Ssi, Select>, Plain, BufBatch>>,
    /// Time.
    pub clock: Clock,
}

impl Stellaris {
    /// Starts one with an empty card of `card_bytes` bytes. Its processor is parked: it has no program.
    #[must_use]
    pub fn start(qemu: &Path, card_bytes: u64) -> Self {
        let arguments = ["-M", "lm3s6965evb", "-S", "-drive", "if=sd,format=raw,file={dir}/card.img"];
        let qtest = Qtest::start(qemu, &arguments, |dir| empty(&dir.join(IMAGE), card_bytes));
        // Eight bits, enabled; chip select is an output.
        for (at, value) in [(SSI, 7), (SSI + 4, 2), (PORT + 0x400, 1)] {
            qtest.ask(&format!("writel {at:#x} {value:#x}"));
        }
        let wires = Exclusive::new(Ssi(qtest.clone()), Select(qtest.clone()));
        let host = SpiEngine::host(wires, Plain, 25_000_000);
        Self { host, clock: Clock::polled(qtest.clone()), qtest }
    }
}

//! The bytes of a bus: exclusive or shared.

use embedded_hal::digital::OutputPin;
use embedded_hal::spi::{Operation, SpiBus, SpiDevice};
use mmc_proto::spi::IDLE;

/// The bus, or the pin of chip select, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusFault;

/// An SPI bus as [`SpiEngine`](crate::SpiEngine) uses it: mode 0, most significant bit first, DO pulled up.
pub trait Wires: Send {
    /// Chip select stays low from one exchange to the next until [`release`](Self::release), and nobody else gets the bus
    /// meanwhile.
    const HOLDS: bool;
    /// With chip select low: sends `head` and puts what comes back in its place, leaves the clock still for `pause` ns,
    /// and does the same with `body` (both may be empty).
    ///
    /// # Errors
    /// [`BusFault`].
    fn exchange(&mut self, head: &mut [u8], pause: u32, body: &mut [u8]) -> Result<(), BusFault>;
    /// Chip select high, and eight clocks for the card to let DO go.
    ///
    /// # Errors
    /// [`BusFault`].
    fn release(&mut self) -> Result<(), BusFault>;
    /// At least 74 clocks with chip select and DI high, after power-up.
    ///
    /// # Errors
    /// [`BusFault`].
    fn start_up(&mut self) -> Result<(), BusFault>;
}

/// A bus with the card alone on it, or lent for as long as the card is used.
#[derive(Debug)]
pub struct Exclusive<B, C> {
    bus: B,
    select: C,
    low: bool,
}

impl<B: SpiBus + Send, C: OutputPin + Send> Exclusive<B, C> {
    /// `select` is chip select, low when active; the clocks of power-up drive it high first.
    pub const fn new(bus: B, select: C) -> Self {
        Self { bus, select, low: false }
    }
}

impl<B: SpiBus + Send, C: OutputPin + Send> Wires for Exclusive<B, C> {
    const HOLDS: bool = true;

    fn exchange(&mut self, head: &mut [u8], _: u32, body: &mut [u8]) -> Result<(), BusFault> {
        if !self.low {
            self.select.set_low().map_err(|_| BusFault)?;
            self.low = true;
        }
        for bytes in [head, body] {
            if !bytes.is_empty() {
                self.bus.transfer_in_place(bytes).map_err(|_| BusFault)?;
            }
        }
        // Chip select and the caller's clock must not overtake a bus that still works.
        self.bus.flush().map_err(|_| BusFault)
    }
    fn release(&mut self) -> Result<(), BusFault> {
        if self.low {
            self.select.set_high().map_err(|_| BusFault)?;
            self.low = false;
            self.bus.write(&[IDLE]).map_err(|_| BusFault)?;
        }
        self.bus.flush().map_err(|_| BusFault)
    }
    fn start_up(&mut self) -> Result<(), BusFault> {
        self.select.set_high().map_err(|_| BusFault)?;
        self.low = false;
        self.bus.write(&[IDLE; 10]).map_err(|_| BusFault)?;
        self.bus.flush().map_err(|_| BusFault)
    }
}

/// A card on a bus with other devices: each exchange is one transaction.
///
/// What an `SpiDevice` cannot do, clocks with chip select high, is left to `start_up`, or, after a command, to the
/// traffic of others: a card that gets no clock after chip select went high keeps driving DO.
#[derive(Debug)]
pub struct Shared<D, S> {
    device: D,
    start_up: S,
}

impl<D: SpiDevice + Send, S: FnMut() -> Result<(), BusFault> + Send> Shared<D, S> {
    /// `start_up` gives the bus at least 74 clocks at 400 kHz or less with all chip selects and DI high.
    pub const fn new(device: D, start_up: S) -> Self {
        Self { device, start_up }
    }
}

impl<D: SpiDevice + Send, S: FnMut() -> Result<(), BusFault> + Send> Wires for Shared<D, S> {
    const HOLDS: bool = false;

    fn exchange(&mut self, head: &mut [u8], pause: u32, body: &mut [u8]) -> Result<(), BusFault> {
        // The simplest list that says it: not every implementation likes an empty operation.
        let done = if body.is_empty() {
            self.device.transaction(&mut [Operation::TransferInPlace(head)])
        } else {
            self.device.transaction(&mut [
                Operation::TransferInPlace(head),
                Operation::DelayNs(pause),
                Operation::TransferInPlace(body),
            ])
        };
        done.map_err(|_| BusFault)
    }
    fn release(&mut self) -> Result<(), BusFault> {
        Ok(())
    }
    fn start_up(&mut self) -> Result<(), BusFault> {
        (self.start_up)()
    }
}

//! What a board does outside of the controller's registers, as a trait its glue implements.

use mmc_proto::bus::Signal;
use mmc_proto::host::Cause;

/// The wires around the controller. `()` has none: what would need one is not offered.
///
/// Both are called with the card clock stopped and must be done when they return; the driver waits
/// [`Platform::signal_settle`](super::Platform) afterwards where a level has changed.
pub trait Board: Send {
    /// Whether [`signal`](Self::signal) and [`sample`](Self::sample) do anything.
    const WIRED: bool = true;

    /// Supplies the card's signal lines with `signal` (a regulator, a pin).
    ///
    /// # Errors
    /// The level could not be set; the operation ends with this cause.
    fn signal(&mut self, signal: Signal) -> Result<(), Cause>;

    /// Sets the sample point, `point` of `points` over one clock period, where [`SamplePlace::Outside`] says.
    ///
    /// # Errors
    /// It could not be set; the operation ends with this cause.
    fn sample(&mut self, point: u16, points: u16) -> Result<(), Cause>;
}

impl Board for () {
    const WIRED: bool = false;

    fn signal(&mut self, _: Signal) -> Result<(), Cause> {
        Err(Cause::Unsupported("another signal level: this board's glue has no `Board`"))
    }
    fn sample(&mut self, _: u16, _: u16) -> Result<(), Cause> {
        Err(Cause::Unsupported("another sample point: this board's glue has no `Board`"))
    }
}

/// Who changes the level of the card's signal lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalSwitch {
    /// Nobody: 3.3 V always.
    Fixed,
    /// Bit 0 of UHS_REG does all of it.
    Register,
    /// [`Board::signal`]; bit 0 of UHS_REG is set as well, since some builds need it (`spec/dw-mshc.md` §9, 14).
    Board,
}

/// Where the sample phase is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplePlace {
    /// In the controller's own registers at `offset`, from bit `shift` on, as wide as the points need.
    Controller {
        /// Register.
        offset: u32,
        /// Lowest bit of the field.
        shift: u8,
    },
    /// In another unit, by [`Board::sample`]; the text says where, for whoever writes it.
    Outside(&'static str),
}

/// How finely the host can choose when it samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where.
    pub place: SamplePlace,
    /// Points over one clock period, 2..=1024. Point 0 is the reset value.
    pub points: u16,
}

impl Sample {
    /// The field's bits, not shifted.
    pub(crate) const fn mask(&self) -> u32 {
        (self.points as u32).next_power_of_two().wrapping_sub(1)
    }
}

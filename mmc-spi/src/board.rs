//! What differs between boards.

use mmc_proto::host::Cause;

/// What a board can do besides moving bytes. Only the clock is needed.
pub trait Board: Send {
    /// Sets the clock of the bus, at most `hz`: 400 kHz or less until the card is ready, then up to 25 MHz. Bytes of other
    /// devices on a shared bus may go at any speed.
    fn set_clock(&mut self, hz: u32);
    /// Switches the card's supply. As it is: the supply is always on.
    ///
    /// # Errors
    /// [`Cause::Unsupported`] where it cannot be switched.
    fn power(&mut self, on: bool) -> Result<(), Cause> {
        let _ = on;
        Err(Cause::Unsupported("the supply of the card cannot be switched"))
    }
    /// Whether a card is in the slot, debounced; `None`: nothing tells.
    fn present(&mut self) -> Option<bool> {
        None
    }
    /// Whether the mechanical write-protect switch is on; `None`: nothing tells.
    fn write_protected(&mut self) -> Option<bool> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_with_a_clock_alone_switches_nothing_and_tells_nothing() {
        struct Clock;
        impl Board for Clock {
            fn set_clock(&mut self, _: u32) {}
        }
        for on in [true, false] {
            assert!(matches!(Clock.power(on), Err(Cause::Unsupported(_))));
        }
        assert_eq!((Clock.present(), Clock.write_protected()), (None, None));
    }
}

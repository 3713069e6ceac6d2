//! What a bus operation carries: width, clock, timing, voltage.

/// How many data lines are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// DAT0 alone.
    #[default]
    One,
    /// DAT3:0.
    Four,
    /// DAT7:0 (eMMC).
    Eight,
}

impl Width {
    /// The number of lines: 1, 4 or 8.
    #[must_use]
    pub const fn lines(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }
}

/// The bus timing mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Timing {
    /// SD default speed (25 MHz) or MMC backward compatible (26 MHz).
    #[default]
    Default,
    /// SD high speed (50 MHz) or MMC high speed (52 MHz).
    High,
}

/// Signal level of CMD and DAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Signal {
    /// 3.3 V.
    #[default]
    V3_3,
    /// 1.8 V (UHS-I, eMMC).
    V1_8,
}

/// One complete setting of the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BusConfig {
    /// The card clock wanted, in Hz; a host takes the highest it can make that is not above. 0 stops the
    /// clock.
    pub hz: u32,
    /// Data lines in use.
    pub width: Width,
    /// Timing mode.
    pub timing: Timing,
    /// Signal level.
    pub signal: Signal,
}

/// Card supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Power {
    /// Off; the card forgets everything.
    Off,
    /// On; done when the supply has been stable for the time the platform states.
    On,
}

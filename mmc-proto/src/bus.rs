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
    /// UHS-I SDR12: 25 MHz at 1.8 V.
    Sdr12,
    /// UHS-I SDR25: 50 MHz at 1.8 V.
    Sdr25,
    /// UHS-I SDR50: 100 MHz at 1.8 V.
    Sdr50,
    /// UHS-I DDR50: 50 MHz at 1.8 V, both edges.
    Ddr50,
    /// UHS-I SDR104: 208 MHz at 1.8 V, tuned.
    Sdr104,
    /// eMMC DDR52: 52 MHz, both edges.
    Ddr52,
    /// eMMC HS200: 200 MHz at 1.8 V or less, tuned.
    Hs200,
    /// eMMC HS400: 200 MHz, both edges, data strobe, tuned as HS200.
    Hs400,
    /// eMMC HS400 with enhanced strobe: the strobe also carries responses, no tuning.
    Hs400Es,
}

impl Timing {
    /// All of them, each once, in the order of their declaration.
    pub const ALL: &'static [Self] = &[
        Self::Default,
        Self::High,
        Self::Sdr12,
        Self::Sdr25,
        Self::Sdr50,
        Self::Ddr50,
        Self::Sdr104,
        Self::Ddr52,
        Self::Hs200,
        Self::Hs400,
        Self::Hs400Es,
    ];

    /// The fastest clock of the mode in Hz as the standard names it; for `Default` and `High` the SD values (an
    /// MMC runs 26 and 52 MHz).
    #[must_use]
    pub const fn max_hz(self) -> u32 {
        match self {
            Self::Default | Self::Sdr12 => 25_000_000,
            Self::High | Self::Sdr25 | Self::Ddr50 => 50_000_000,
            Self::Ddr52 => 52_000_000,
            Self::Sdr50 => 100_000_000,
            Self::Sdr104 => 208_000_000,
            Self::Hs200 | Self::Hs400 | Self::Hs400Es => 200_000_000,
        }
    }
    /// Data go on both edges of the clock.
    #[must_use]
    pub const fn ddr(self) -> bool {
        matches!(self, Self::Ddr50 | Self::Ddr52 | Self::Hs400 | Self::Hs400Es)
    }
    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of timings; [`Timing::Default`] is always in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timings(u16);

impl Timings {
    /// Default and high speed: what needs nothing special.
    #[must_use]
    pub const fn new() -> Self {
        Self(Timing::Default.bit() | Timing::High.bit())
    }
    /// Default speed alone.
    #[must_use]
    pub const fn default_only() -> Self {
        Self(Timing::Default.bit())
    }
    /// With `timing` added.
    #[must_use]
    pub const fn with(self, timing: Timing) -> Self {
        Self(self.0 | timing.bit())
    }
    /// Without `timing`; `Default` stays.
    #[must_use]
    pub const fn without(self, timing: Timing) -> Self {
        Self(self.0 & !timing.bit() | Timing::Default.bit())
    }
    /// Whether `timing` is in it.
    #[must_use]
    pub const fn has(self, timing: Timing) -> bool {
        self.0 & timing.bit() != 0
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self::new()
    }
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
///
/// A change of `signal` is the whole switch, done by the host: clock off, level changed, at least 5 ms, clock on,
/// and within 1 ms DAT3:0 high, else [`Cause::VoltageSwitch`](crate::host::Cause) (`spec/card.md` §13.2). An SD card
/// has been told by CMD11 before ([`Command::voltage_switch`](crate::command::Command)); an eMMC needs no command.
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
    /// Where in the clock period the host samples CMD and DAT: a point below
    /// [`Capabilities::sample_points`](crate::host::Capabilities), 0 the host's own default.
    pub sample: u16,
}

/// Card supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Power {
    /// Off; the card forgets everything.
    Off,
    /// On; done when the supply has been stable for the time the platform states.
    On,
}

//! Which modes a card and a host have in common, in which order they are tried, and what is said to get into each
//! (`spec/card.md` §10, §13.2, §13.3).

use super::{Mode, SpeedOptions};
use crate::bus::{Signal, Timing, Width};
use crate::crc;
use crate::host::Capabilities;
use crate::register::ext_csd::{self, ExtCsd};
use crate::register::sdio::CccrInfo;
use crate::register::{Csd, MmcCsd, Scr, SwitchStatus};
use crate::timing;
use mmc_time::Duration;

/// EXT_CSD bytes this conversation writes.
pub(super) const BUS_WIDTH: u8 = 183;
const HS_TIMING: u8 = 185;
/// The least time CMD6 of MMC is given, whatever the card states.
const SWITCH_LIMIT: Duration = Duration::from_millis(500);

/// A card as the choice of width and speed sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    pub(super) kind: Kind,
    /// The I/O part of an SDIO or combo card.
    pub(super) io: Option<Io>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SD memory: four lines; CMD6.
    Sd { four: bool, switch: bool },
    /// SDIO without memory.
    Io,
    /// MMC.
    Mmc(Mmc),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mmc {
    /// Wider than one line, and CMD6 (4.0 and later, with an EXT_CSD that could be read).
    pub(super) modern: bool,
    device_type: u8,
    strobe: bool,
    /// The clock of its legacy mode in Hz.
    legacy_hz: u32,
    /// Over the bytes of the EXT_CSD that no command changes.
    pub(super) digest: u16,
    pub(super) switch_limit: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Io {
    four: bool,
    high: bool,
    /// A low-speed card: 400 kHz.
    slow: bool,
}

/// Over the bytes of an EXT_CSD that stay what they are: properties, not settings or counters.
pub(super) fn digest(ext_csd: &[u8]) -> u16 {
    crc::crc16(ext_csd.get(192..242).unwrap_or(&[]))
}

impl Subject {
    /// An SD memory card; `io` are the registers of a combo card's I/O part.
    #[must_use]
    pub fn sd(csd: &Csd, scr: Option<&Scr>, io: Option<&CccrInfo>) -> Self {
        let four = scr.is_some_and(Scr::four_lines);
        let switch = csd.has_class(10) && scr.is_some_and(|scr| scr.sd_spec() >= 1);
        Self { kind: Kind::Sd { four, switch }, io: io.map(Io::new) }
    }
    /// An SDIO card without memory.
    #[must_use]
    pub fn io(cccr: &CccrInfo) -> Self {
        Self { kind: Kind::Io, io: Some(Io::new(cccr)) }
    }
    /// An MMC or eMMC. A `TRAN_SPEED` above 26 MHz, or none, counts as 20 MHz: emulators and some cards lie there.
    #[must_use]
    pub fn mmc(csd: &MmcCsd, ext_csd: Option<&ExtCsd>) -> Self {
        let get = |field| ext_csd.map_or(0, |e| e.get(field));
        let stated = ext_csd.map_or(SWITCH_LIMIT, timing::switch_limit);
        let mmc = Mmc {
            modern: csd.spec_vers() >= 4 && ext_csd.is_some(),
            device_type: u8::try_from(get(ext_csd::DEVICE_TYPE)).unwrap_or(0),
            strobe: get(ext_csd::STROBE_SUPPORT) & 1 == 1,
            legacy_hz: match csd.tran_speed_hz() {
                hz @ 1..=26_000_000 => hz,
                _ => 20_000_000,
            },
            digest: ext_csd.map_or(0, |e| digest(&e.emit())),
            switch_limit: stated.max(SWITCH_LIMIT),
        };
        Self { kind: Kind::Mmc(mmc), io: None }
    }
    /// The fastest clock of `timing` with this card in Hz.
    #[must_use]
    pub fn hz(&self, timing: Timing) -> u32 {
        match (self.kind, timing) {
            (Kind::Mmc(mmc), Timing::Default) => mmc.legacy_hz,
            (Kind::Mmc(mmc), Timing::High) if mmc.device_type & 2 != 0 => 52_000_000,
            (Kind::Mmc(_), Timing::High) => 26_000_000,
            _ if timing == Timing::Default && self.io.is_some_and(|io| io.slow) => 400_000,
            _ => timing.max_hz(),
        }
    }
    /// The timing the card is in without any switch.
    #[must_use]
    pub const fn base(&self, signal: Signal) -> Timing {
        match (self.kind, signal) {
            (Kind::Sd { .. }, Signal::V1_8) => Timing::Sdr12,
            _ => Timing::Default,
        }
    }
    /// The widest bus of the card.
    pub(super) const fn width(&self) -> Width {
        let io = match self.io {
            Some(io) => io.four,
            None => true,
        };
        match self.kind {
            Kind::Mmc(Mmc { modern: true, .. }) => Width::Eight,
            Kind::Sd { four: true, .. } | Kind::Io if io => Width::Four,
            _ => Width::One,
        }
    }
    /// The card can do `timing` on these lines, by its registers.
    fn offers(&self, timing: Timing, lines: Width, list: Option<&SwitchStatus>) -> bool {
        match self.kind {
            Kind::Mmc(mmc) => {
                let bit = match timing {
                    Timing::High => 0x03,
                    Timing::Ddr52 if lines >= Width::Four => 0x04,
                    Timing::Hs200 if lines >= Width::Four => 0x10,
                    Timing::Hs400 if lines == Width::Eight => 0x40,
                    Timing::Hs400Es if lines == Width::Eight && mmc.strobe => 0x40,
                    _ => 0,
                };
                mmc.modern && mmc.device_type & bit != 0
            }
            Kind::Sd { .. } => {
                let enough = lines >= Width::Four || matches!(timing, Timing::High | Timing::Sdr25);
                let io = timing != Timing::High || self.io.is_none_or(|io| io.high);
                enough && io && function(timing).is_some_and(|f| list.is_some_and(|list| list.can(1, f)))
            }
            Kind::Io => timing == Timing::High && self.io.is_some_and(|io| io.high),
        }
    }
    /// The ways up from the base, slowest first; of two as fast, the one that needs less comes first.
    const fn rungs(&self, signal: Signal) -> &'static [Timing] {
        match (self.kind, signal) {
            (Kind::Sd { .. }, Signal::V1_8) => &[Timing::Sdr25, Timing::Sdr50, Timing::Ddr50, Timing::Sdr104],
            (Kind::Sd { .. } | Kind::Io, _) => &[Timing::High],
            (Kind::Mmc(_), _) => {
                &[Timing::High, Timing::Ddr52, Timing::Hs200, Timing::Hs400Es, Timing::Hs400]
            }
        }
    }
    /// What the host's clock makes of `timing`: transfers a second on each line.
    fn rate(&self, timing: Timing, caps: &Capabilities) -> u32 {
        let hz = self.hz(timing).min(caps.max_hz);
        if timing.ddr() { hz.saturating_mul(2) } else { hz }
    }
    /// The fastest mode of card and host that `options` leave.
    pub(super) fn best(
        &self,
        caps: &Capabilities,
        options: &SpeedOptions,
        lines: Width,
        signal: Signal,
        list: Option<&SwitchStatus>,
    ) -> Timing {
        let mut best = self.base(signal);
        for &timing in self.rungs(signal) {
            let host = caps.timings.has(timing)
                && match timing {
                    Timing::Sdr104 | Timing::Hs200 => caps.sample_points > 0,
                    Timing::Hs400 => caps.sample_points > 0 && caps.timings.has(Timing::Hs200),
                    _ => true,
                };
            let level = !matches!(timing, Timing::Hs200 | Timing::Hs400 | Timing::Hs400Es) || caps.v1_8;
            if host
                && level
                && options.timings.has(timing)
                && self.rate(timing, caps) > self.rate(best, caps)
                && self.offers(timing, lines, list)
            {
                best = timing;
            }
        }
        best
    }
    /// Whether any mode above the base may be reached, before the card has listed what it can.
    pub(super) fn may_climb(&self, caps: &Capabilities, options: &SpeedOptions, signal: Signal) -> bool {
        let base = self.base(signal);
        self.rungs(signal).iter().any(|timing| {
            caps.timings.has(*timing)
                && options.timings.has(*timing)
                && self.rate(*timing, caps) > self.rate(base, caps)
        })
    }
    /// The way into `timing`.
    pub(super) const fn program(&self, timing: Timing) -> &'static [Op] {
        use Op::{Bus, Double, Function, Gentle, Io, Signal, Slow, Status, Tune, Verify, Write};
        use Timing::{Ddr50, Ddr52, High, Hs200, Hs400, Hs400Es, Sdr25, Sdr50, Sdr104};
        match self.kind {
            Kind::Mmc(_) => match timing {
                High => &[Slow, Write(HS_TIMING, 1), Bus(High), Status, Verify],
                Ddr52 => {
                    &[Slow, Write(HS_TIMING, 1), Bus(High), Status, Double(0), Bus(Ddr52), Status, Verify]
                }
                Hs200 => {
                    &[Slow, Signal, Write(HS_TIMING, 2), Gentle(Hs200), Status, Bus(Hs200), Tune, Verify]
                }
                Hs400 => &[
                    Slow,
                    Signal,
                    Write(HS_TIMING, 2),
                    Gentle(Hs200),
                    Status,
                    Bus(Hs200),
                    Tune,
                    Write(HS_TIMING, 1),
                    Bus(High),
                    Status,
                    Double(0),
                    Write(HS_TIMING, 3),
                    Bus(Hs400),
                    Status,
                    Verify,
                ],
                Hs400Es => &[
                    Slow,
                    Signal,
                    Write(HS_TIMING, 1),
                    Bus(High),
                    Status,
                    Double(0x80),
                    Write(HS_TIMING, 3),
                    Bus(Hs400Es),
                    Status,
                    Verify,
                ],
                _ => &[Slow, Status],
            },
            Kind::Sd { .. } => match timing {
                High => &[Slow, Function(1), Io(1), Bus(High), Status, Verify],
                Sdr25 => &[Slow, Function(1), Bus(Sdr25), Status, Verify],
                Sdr50 => &[Slow, Function(2), Bus(Sdr50), Tune, Status, Verify],
                Sdr104 => &[Slow, Function(3), Bus(Sdr104), Tune, Status, Verify],
                Ddr50 => &[Slow, Function(4), Bus(Ddr50), Status, Verify],
                _ => &[Slow, Function(0), Io(0), Status, Verify],
            },
            Kind::Io => match timing {
                High => &[Slow, Io(1), Bus(High), Verify],
                _ => &[Slow, Io(0), Verify],
            },
        }
    }
}

impl Io {
    const fn new(cccr: &CccrInfo) -> Self {
        let (low_speed, four_anyway) = (cccr.capabilities & 0x40 != 0, cccr.capabilities & 0x80 != 0);
        Self { four: !low_speed || four_anyway, high: cccr.high_speed && !low_speed, slow: low_speed }
    }
}

/// One step of a way into a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// The bus back to the base timing, if it is not there.
    Slow,
    /// 1.8 V signalling, if it is not there.
    Signal,
    /// MMC: CMD6 writes this byte.
    Write(u8, u8),
    /// MMC: CMD6 sets `BUS_WIDTH` to double rate on the lines in use; more bits of it.
    Double(u8),
    /// SD: CMD6 chooses this access mode, if it is not in force.
    Function(u8),
    /// SDIO: CMD52 chooses this bus speed, if it is not in force.
    Io(u8),
    /// The host's timing at the clock of the base, where any sample point is good: to hear what became of a switch.
    Gentle(Timing),
    /// The host's timing and clock; the sample point that was found, in a mode that needs one.
    Bus(Timing),
    /// The sample point, where the host has one to choose.
    Tune,
    /// CMD13.
    Status,
    /// Data at the new speed.
    Verify,
}

/// SD's function of group 1, of what is above the base.
const fn function(timing: Timing) -> Option<u8> {
    Some(match timing {
        Timing::High | Timing::Sdr25 => 1,
        Timing::Sdr50 => 2,
        Timing::Sdr104 => 3,
        Timing::Ddr50 => 4,
        _ => return None,
    })
}

/// SD's function of group 4 for at most this much current in mA, of those the card has; 15 keeps what is.
pub(super) fn power_limit(list: Option<&SwitchStatus>, max_current_ma: u16) -> u8 {
    [(800, 3), (600, 2), (400, 1)]
        .into_iter()
        .find(|(ma, f)| *ma <= max_current_ma && list.is_some_and(|list| list.can(4, *f)))
        .map_or(15, |(_, f)| f)
}

/// The next narrower bus.
pub(super) const fn narrower(width: Width) -> Option<Width> {
    match width {
        Width::Eight => Some(Width::Four),
        Width::Four => Some(Width::One),
        Width::One => None,
    }
}

impl SpeedOptions {
    /// Leaves `mode` out from now on; `false` if there is nothing below it.
    pub(crate) fn leave_out(&mut self, mode: Mode, base: Timing) -> bool {
        match mode {
            Mode::Width(width) => match narrower(width) {
                Some(narrow) => self.width = narrow,
                None => return false,
            },
            Mode::Timing(timing) if timing == base => return false,
            Mode::Timing(timing) => self.timings = self.timings.without(timing),
            Mode::Signal => {}
        }
        true
    }
}

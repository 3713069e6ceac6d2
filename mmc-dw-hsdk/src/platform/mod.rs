//! What differs between boards: numbers, each with its source. What a board must *do* is the trait [`Board`].

mod board;
mod boards;
mod hsdk;

pub use board::{Board, Sample, SamplePlace, SignalSwitch};
pub use boards::{
    ALL, AXS10X, CYCLONE_V, EXYNOS5, HI3660, JH7110, LPC_SDIF, RK356X, RK3288, RK3399, STRATIX_10,
};
pub use hsdk::HSDK;

use mmc_proto::bus::{Timing, Timings, Width};
use mmc_time::Duration;

/// How a card in the slot is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardDetect {
    /// Bit 0 of CDETECT, debounced by the controller.
    Native,
    /// The driver cannot know; a card is taken to be there.
    Unknown,
}

/// One controller on one board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The board, for messages.
    pub name: &'static str,
    /// Physical address of the registers; for whoever maps them, the driver does not use it.
    pub base: u64,
    /// Bus interface clock in Hz; counts the card-detect debounce.
    pub biu_hz: u32,
    /// Card interface clock in Hz, **behind** the external divider if there is one: the card clock is this
    /// divided by 1, 2, 4, … 510.
    pub ciu_hz: u32,
    /// Written to UHS_REG_EXT before any divider is computed, and again after each reset; `None`: not touched.
    pub uhs_reg_ext: Option<u32>,
    /// FIFO depth in words of the FIFO (32 bits on most builds). Too large a value hangs or overruns; too small only costs bursts.
    pub fifo_depth: u16,
    /// Fastest card clock in Hz.
    pub max_hz: u32,
    /// Data lines wired.
    pub width: Width,
    /// Supply window as OCR bits 23:15.
    pub ocr: u32,
    /// Card clocks after command done within which an error of the response may still be reported; 0: they come
    /// together, as the manuals say. (ESP-IDF's driver reports parts where they do not.) Costs each command so long.
    pub late_response_errors: u8,
    /// PWREN switches the supply *off* with a one.
    pub power_inverted: bool,
    /// From PWREN to a stable supply.
    pub power_up: Duration,
    /// How a card is noticed.
    pub card_detect: CardDetect,
    /// How long a pin must rest before it counts (register DEBNCE).
    pub debounce: Duration,
    /// How long to wait after a card was noticed before it is spoken to; for whoever handles insertion.
    pub card_detect_delay: Duration,
    /// Bit 0 of WRTPRT is wired to the slot's switch.
    pub write_protect: bool,
    /// Bit of RINTSTS and INTMASK at which the SDIO interrupt is: 16, on Rockchip 24.
    pub sdio_bit: u8,
    /// Bus timings the wires are good for. Those that need tuning or 1.8 V are offered only where both can be done.
    pub timings: Timings,
    /// Who changes the signal level.
    pub signal: SignalSwitch,
    /// From the change of the level to the clock: at least the 5 ms of the standard.
    pub signal_settle: Duration,
    /// How long the card is left alone after its clock has changed, 500 ms at most; 0: not at all. Some cards need it
    /// (`spec/dw-mshc-quirks.md` Q42), and none that is known on the boards of this crate.
    pub clock_settle: Duration,
    /// Where the sample phase is set; `None`: nowhere.
    pub sample: Option<Sample>,
    /// The drive clock is shifted, so the hold register stays in the path in every timing. Without it, it is bypassed
    /// above 50 MHz and at double data rate (`spec/dw-mshc.md` §1.2).
    pub drive_phase: bool,
}

impl Platform {
    /// Whether the numbers make sense together.
    ///
    /// # Errors
    /// Names the first number that does not.
    pub const fn check(&self) -> Result<(), &'static str> {
        if self.ciu_hz == 0 {
            return Err("the platform's ciu_hz is 0: give the card interface clock in Hz");
        }
        if self.max_hz == 0 {
            return Err("the platform's max_hz is 0: give the fastest card clock in Hz");
        }
        if self.fifo_depth < 4 || self.fifo_depth > 4096 {
            return Err("the platform's fifo_depth is not 4..=4096 words");
        }
        if self.sdio_bit < 16 || self.sdio_bit > 31 {
            return Err("the platform's sdio_bit is not 16..=31");
        }
        if self.signal_settle.as_micros() < 5000 {
            return Err("the platform's signal_settle is below the 5 ms of the standard");
        }
        if self.clock_settle.as_millis() > 500 {
            return Err("the platform's clock_settle is above 500 ms: a change of the bus has one second");
        }
        if let Some(Sample { points, .. }) = self.sample {
            if points < 2 || points > 1024 {
                return Err("the platform's sample points are not 2..=1024");
            }
        }
        Ok(())
    }

    /// Whether UHS_REG, EMMC_DDR_REG, the sample phase or the read threshold are ever to be written. Older builds have
    /// the FIFO where two of these are.
    pub(crate) const fn is_plain(&self) -> bool {
        let fixed = matches!(self.signal, SignalSwitch::Fixed);
        fixed && self.sample.is_none() && !self.has_ddr() && !self.has_fast()
    }

    const fn has_ddr(&self) -> bool {
        let t = self.timings;
        t.has(Timing::Ddr50) || t.has(Timing::Ddr52) || t.has(Timing::Hs400) || t.has(Timing::Hs400Es)
    }

    pub(crate) const fn has_fast(&self) -> bool {
        let t = self.timings;
        t.has(Timing::Sdr104) || t.has(Timing::Hs200) || t.has(Timing::Hs400) || t.has(Timing::Hs400Es)
    }

    /// The debounce time in biu clocks, as DEBNCE takes it (24 bits).
    #[must_use]
    pub const fn debounce_clocks(&self) -> u32 {
        let clocks = (self.biu_hz as u64).saturating_mul(self.debounce.as_micros()) / 1_000_000;
        if clocks > 0x00ff_ffff { 0x00ff_ffff } else { clocks as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hsdk_is_as_its_sources_say() {
        assert_eq!(HSDK.check(), Ok(()));
        assert_eq!(HSDK.base, 0xf000_a000);
        assert_eq!(HSDK.uhs_reg_ext, Some(2 << 30));
        assert_eq!(HSDK.ciu_hz, 50_000_000);
        assert_eq!(HSDK.debounce_clocks(), 10_000_000);
    }

    /// Registers that older builds have not got are left alone unless a timing needs them.
    #[test]
    fn each_timing_alone_says_which_registers_it_needs() {
        use Timing::{Ddr50, Ddr52, Hs200, Hs400, Hs400Es, Sdr104};
        let ddr = [Ddr50, Ddr52, Hs400, Hs400Es];
        let fast = [Sdr104, Hs200, Hs400, Hs400Es];
        for &timing in Timing::ALL {
            let timings = Timings::default_only().with(timing);
            let board = Platform { timings, signal: SignalSwitch::Fixed, sample: None, ..HSDK };
            assert_eq!(board.has_ddr(), ddr.contains(&timing), "{timing:?}");
            assert_eq!(board.has_fast(), fast.contains(&timing), "{timing:?}");
            assert_eq!(board.is_plain(), !ddr.contains(&timing) && !fast.contains(&timing), "{timing:?}");
        }
    }

    #[test]
    fn a_board_without_wires_refuses_both_and_says_why() {
        let said = [().signal(mmc_proto::bus::Signal::V1_8), ().sample(1, 2)];
        let why = said.map(|said| match said {
            Err(mmc_proto::host::Cause::Unsupported(why)) => why,
            other => panic!("{other:?}"),
        });
        assert!(why[0].contains("signal level") && why[1].contains("sample point"), "{why:?}");
    }

    #[test]
    fn numbers_that_cannot_be_are_named() {
        assert!(Platform { ciu_hz: 0, ..HSDK }.check().unwrap_err().contains("ciu_hz"));
        assert!(Platform { fifo_depth: 0, ..HSDK }.check().unwrap_err().contains("fifo_depth"));
        assert!(Platform { sdio_bit: 8, ..HSDK }.check().unwrap_err().contains("sdio_bit"));
        let hasty = Platform { signal_settle: Duration::from_millis(4), ..HSDK };
        assert!(hasty.check().unwrap_err().contains("signal_settle"));
        let sleepy = Platform { clock_settle: Duration::from_millis(501), ..HSDK };
        assert!(sleepy.check().unwrap_err().contains("clock_settle"));
        let coarse = Sample { place: SamplePlace::Outside("a pin"), points: 1 };
        assert!(Platform { sample: Some(coarse), ..HSDK }.check().unwrap_err().contains("points"));
        assert!(Platform { max_hz: 0, ..HSDK }.check().unwrap_err().contains("max_hz"));
        assert_eq!(
            Platform { biu_hz: u32::MAX, ..HSDK }.debounce_clocks(),
            0x00ff_ffff,
            "as long as it goes"
        );
    }
}

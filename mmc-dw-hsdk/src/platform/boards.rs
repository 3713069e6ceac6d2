//! Relatives of the HSDK: the same controller on other chips. Numbers from `spec/dw-mshc.md` §6 and §9, which name public
//! device trees, drivers and manuals; none was tried on a board here.
//!
//! What every one of them leaves to the board's start-up code: clocks at `ciu_hz` and `biu_hz`, pins, reset line.
//! What needs more than the controller's own registers (a regulator, another unit's sample phase) is a
//! [`Board`](super::Board) of the glue's; with `()` in its place a platform offers what remains: 3.3 V, up to 50 MHz.
//! `ciu_hz` and `max_hz` are what the sources state; where the clock unit can feed more, say so in a platform of your
//! own: `Platform { ciu_hz: 200_000_000, max_hz: 200_000_000, ..RK3399 }`.
//! Where the sources give no bus interface clock, `biu_hz` is a guess that only scales the debounce time of a
//! card-detect pin; it says so.

use super::{CardDetect, HSDK, Platform, Sample, SamplePlace, SignalSwitch};
use mmc_proto::bus::{Timing, Timings, Width};
use mmc_time::Duration;

/// All UHS-I timings.
const UHS: Timings = Timings::new()
    .with(Timing::Sdr12)
    .with(Timing::Sdr25)
    .with(Timing::Sdr50)
    .with(Timing::Ddr50)
    .with(Timing::Sdr104);

/// The ARC AXS101/AXS103 boards. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §5, §6: mainboard base 0xe000_0000 + 0x15000, FIFO 16, interrupt 7, 25 MHz of ciu.
/// The divider behind UHS_REG_EXT is the board's, and its default there is ÷16, not ÷8 as on the HSDK: the
/// register is left as it is (`spec/dw-mshc-quirks.md` Q62).
pub const AXS10X: Platform = Platform {
    name: "ARC AXS10x",
    base: 0xe001_5000,
    biu_hz: 50_000_000, // a guess
    ciu_hz: 25_000_000,
    uhs_reg_ext: None,
    max_hz: 25_000_000,
    ..HSDK
};

/// The StarFive JH7110 (VisionFive 2), its SD slot; the eMMC one is at 0x1601_0000. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §6: FIFO 32, version 2.90a, FIFO window at 0x200 although its device tree says
/// `data-addr = <0>` (Q53), card detect by GPIO. The sample delay (0..=31) is in the system controller: 0x9c bits
/// 5:1 for the SD slot, 0x14 bits 30:26 for eMMC.
pub const JH7110: Platform = Platform {
    name: "StarFive JH7110",
    base: 0x1602_0000,
    biu_hz: 100_000_000, // a guess
    ciu_hz: 50_000_000,
    uhs_reg_ext: None,
    fifo_depth: 32,
    card_detect: CardDetect::Unknown,
    sample: Some(Sample { place: SamplePlace::Outside("system controller 0x9c, bits 5:1"), points: 32 }),
    ..HSDK
};

/// The Rockchip RK3288, its SD slot. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §6: base 0xff0c_0000, FIFO 256, version 2.70a. The clock unit gives twice the bus clock
/// and an always-on ÷2 follows: `ciu_hz` is behind it. Command done, its timeout and the end of the data are
/// sometimes missing (Q9, Q10): the driver's software timers are what ends these operations. Drive and sample phase
/// are in the clock unit (tuned in steps of 1°, drive phase 90° or 180°). The SDIO interrupt is bit 24.
pub const RK3288: Platform = Platform {
    name: "Rockchip RK3288",
    base: 0xff0c_0000,
    biu_hz: 100_000_000, // a guess
    ciu_hz: 50_000_000,
    uhs_reg_ext: None,
    fifo_depth: 256,
    sdio_bit: 24,
    timings: UHS,
    signal: SignalSwitch::Board,
    sample: Some(Sample { place: SamplePlace::Outside("clock unit, sample phase in degrees"), points: 360 }),
    drive_phase: true,
    ..HSDK
};

/// The Rockchip RK3399, its SD slot: as the [`RK3288`]. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §6 lists it with the RK3288's numbers. Its base is known from the public device tree.
pub const RK3399: Platform = Platform { name: "Rockchip RK3399", base: 0xfe32_0000, ..RK3288 };

/// The Rockchip RK3566/RK3568, first SD slot: as the [`RK3288`]. Validated on: model. Its eMMC is another controller.
///
/// Source: `spec/dw-mshc.md` §6.
pub const RK356X: Platform = Platform { name: "Rockchip RK356x", base: 0xfe2b_0000, ..RK3288 };

/// Altera/Intel Cyclone V. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §1, §6: base 0xff70_4000, version 2.40a, FIFO 1024, no pins for 1.8 V; a fixed ÷4
/// follows the clock manager, `ciu_hz` is behind it (200 MHz in). Drive and sample phase, in steps of 45°, are in
/// the system manager (0x108), to be changed with the clock gated.
pub const CYCLONE_V: Platform = Platform {
    name: "Cyclone V",
    base: 0xff70_4000,
    biu_hz: 200_000_000, // a guess
    ciu_hz: 50_000_000,
    uhs_reg_ext: None,
    fifo_depth: 1024,
    sample: Some(Sample {
        place: SamplePlace::Outside("system manager 0x108, steps of 45 degrees"),
        points: 8,
    }),
    ..HSDK
};

/// Intel Stratix 10 and Agilex 7. Validated on: model. Agilex 5 has another controller.
///
/// Source: `spec/dw-mshc.md` §6: base 0xff80_8000, version 2.80a, FIFO 1024, phases in the system manager (0x28), SMMU
/// stream 5 (the board's `Dma` maps through it). The rest as [`CYCLONE_V`].
pub const STRATIX_10: Platform = Platform {
    name: "Stratix 10 / Agilex",
    base: 0xff80_8000,
    sample: Some(Sample {
        place: SamplePlace::Outside("system manager 0x28, steps of 45 degrees"),
        points: 8,
    }),
    ..CYCLONE_V
};

/// Samsung Exynos 5 (the first of several, 0x1220_0000). Validated on: model.
///
/// Source: `spec/dw-mshc.md` §6: FIFO 64 or 128 (the smaller is safe), CLKSEL at 0x09c (0x0a8 with 64-bit addresses)
/// with its own divider in bits 26:24 and the sample phase in 2:0; `ciu_hz` is behind that. Fewer than 50 MHz in front of it do not work. The
/// security unit's window (0x1200…) must be open. Exynos 7870 raises command done for a clock update and has a
/// 64-bit FIFO read as two halves: the driver copes with both.
pub const EXYNOS5: Platform = Platform {
    name: "Exynos 5",
    base: 0x1220_0000,
    biu_hz: 200_000_000, // a guess
    ciu_hz: 50_000_000,
    uhs_reg_ext: None,
    fifo_depth: 64,
    card_detect: CardDetect::Unknown,
    timings: UHS,
    signal: SignalSwitch::Board,
    sample: Some(Sample { place: SamplePlace::Controller { offset: 0x09c, shift: 0 }, points: 8 }),
    ..HSDK
};

/// HiSilicon Hi3660 (Kirin 960), its SD slot. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §6: base 0xff37_f000; the source is divided by 8 through the GPIO register (GENCLK_DIV
/// 7), `ciu_hz` is behind it. UHS_REG_EXT holds sample (bits 20:16), drive and delay phases in a layout of
/// its own. No source gives the FIFO depth: 16 is safe on any.
pub const HI3660: Platform = Platform {
    name: "HiSilicon Hi3660",
    base: 0xff37_f000,
    biu_hz: 200_000_000, // a guess
    ciu_hz: 50_000_000,
    uhs_reg_ext: None,
    card_detect: CardDetect::Unknown,
    timings: UHS,
    signal: SignalSwitch::Board,
    sample: Some(Sample { place: SamplePlace::Controller { offset: 0x108, shift: 16 }, points: 32 }),
    ..HSDK
};

/// NXP LPC54S and LPC55S, unit SDIF. Validated on: model.
///
/// Source: `spec/dw-mshc.md` §6: FIFO 32. `base` is the LPC18xx/43xx's 0x4000_4000; the newer chips' differ, see their
/// manual. Before version 2.40a (LPC43xx) the FIFO window is at 0x100: the driver goes by VERID.
pub const LPC_SDIF: Platform = Platform {
    name: "LPC SDIF",
    base: 0x4000_4000,
    biu_hz: 100_000_000, // a guess
    ciu_hz: 50_000_000,
    uhs_reg_ext: None,
    fifo_depth: 32,
    width: Width::Four,
    power_up: Duration::from_millis(10),
    ..HSDK
};

/// All of them, the HSDK first.
pub const ALL: [Platform; 11] =
    [HSDK, AXS10X, JH7110, RK3288, RK3399, RK356X, CYCLONE_V, STRATIX_10, EXYNOS5, HI3660, LPC_SDIF];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_makes_sense_and_only_the_hsdk_writes_its_dividers_value() {
        for p in ALL {
            assert_eq!(p.check(), Ok(()), "{}", p.name);
            assert_eq!(
                p.uhs_reg_ext.is_some(),
                p.name == HSDK.name,
                "{}: the encoding is the board's",
                p.name
            );
            assert!(p.max_hz <= p.ciu_hz, "{}", p.name);
        }
        for (i, p) in ALL.iter().enumerate() {
            assert!(ALL.iter().skip(i + 1).all(|q| q.name != p.name && q.base != p.base), "{} twice", p.name);
        }
    }
}

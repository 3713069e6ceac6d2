//! The ARC HS Development Kit.

use super::{CardDetect, Platform, SignalSwitch};
use mmc_proto::bus::{Timings, Width};
use mmc_time::Duration;

/// The ARC HS Development Kit (HSDK). Validated on: model; never on a board.
///
/// Numbers: `spec/dw-mshc.md` §5, from the device tree and platform code of public sources.
/// * **ciu**: the 100 MHz of the clock generator pass a divider outside the IP that powers up as ÷8 (12.5 MHz,
///   reported unstable). Bits 31:30 = 2 of UHS_REG_EXT make it ÷2: 50 MHz. The encoding is the board's own; do
///   not use the value elsewhere.
/// * **FIFO**: 16 words; one boot loader says 256. The smaller is safe on either.
/// * **No UHS**: the supply of card and lines is fixed at 3.3 V.
/// * **Card detect** is the controller's own pin, no GPIO. No source names a write-protect switch.
///
/// # Duties of the board's start-up code, not of this driver
/// * Clocks: CGU IDIV_SDIO = 2 (biu 400 MHz), sdio-ref IDIV = 8 (100 MHz).
/// * The AXI apertures of master 7 (CREG 0xf000_10e0: slaves 7777_7777/7799_9999, offsets fedc_ba98/76dc_ba98,
///   then update): without them DMA reads and writes the wrong memory.
/// * CREG_PAE (0xf000_1180) = 0 and its update (0xf000_1194 = 1), even if memory above 4 GiB is not used: else
///   DMA corrupts or hangs.
/// * Buffers and descriptors between 0x8000_0000 and 0xbfff_ffff; cache maintenance for both unless the IO
///   coherency port is on (it is off after reset).
/// * Interrupt: input 12 of the interrupt distribution unit, level.
pub const HSDK: Platform = Platform {
    name: "ARC HSDK",
    base: 0xf000_a000,
    biu_hz: 400_000_000,
    ciu_hz: 50_000_000,
    uhs_reg_ext: Some(0x8000_0000),
    fifo_depth: 16,
    max_hz: 50_000_000,
    width: Width::Four,
    ocr: 0x0030_0000,
    late_response_errors: 0,
    power_inverted: false,
    power_up: Duration::from_millis(1),
    card_detect: CardDetect::Native,
    debounce: Duration::from_millis(25),
    card_detect_delay: Duration::from_millis(200),
    write_protect: false,
    sdio_bit: 16,
    timings: Timings::new(),
    signal: SignalSwitch::Fixed,
    signal_settle: Duration::from_millis(10),
    clock_settle: Duration::ZERO,
    sample: None,
    drive_phase: false,
};

//! What a board knows and the capability registers do not tell.

use mmc_proto::bus::Width;
use mmc_time::Duration;

/// One slot, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// For messages.
    pub name: &'static str,
    /// The base clock in Hz where the capabilities say 0, or to say it better than in whole MHz; 0: as they say.
    pub base_hz: u32,
    /// The fastest card clock the wires are made for, in Hz.
    pub max_hz: u32,
    /// Data lines wired to the card.
    pub width: Width,
    /// The board can signal with 1.8 V (used where the capabilities agree).
    pub v1_8: bool,
    /// The card-detect pin is wired; without it the slot is never said to be empty.
    pub card_detect: bool,
    /// The write-protect pin is wired.
    pub write_protect: bool,
    /// From the supply's switch to a stable supply.
    pub power_up: Duration,
    /// Let the controller send CMD23 by itself, where it is of version 3.
    pub auto_cmd23: bool,
    /// Use ADMA2 where the controller has it; else all data go through the buffer port.
    pub dma: bool,
}

impl Platform {
    /// A full-size card slot that keeps to the specification: four lines, 50 MHz, 3.3 V signals, both pins wired.
    pub const STANDARD: Self = Self {
        name: "standard slot",
        base_hz: 0,
        max_hz: 50_000_000,
        width: Width::Four,
        v1_8: false,
        card_detect: true,
        write_protect: true,
        power_up: Duration::from_millis(35),
        auto_cmd23: true,
        dma: true,
    };
    /// QEMU's `sdhci-pci`: nothing has to rise.
    pub const QEMU: Self =
        Self { name: "QEMU sdhci-pci", power_up: Duration::from_millis(1), ..Self::STANDARD };
}

//! Boards of QEMU's with other ways to a card: the SPI bus of a Cortex-M3, and a host of Allwinner's.

#[path = "boards/orangepi.rs"]
mod orangepi;
#[path = "boards/spi.rs"]
mod spi;

//! The card layer of embedded-sdmmc over SPI: acquire an SD card, read and write blocks.
#![no_std]
#![no_main]
use code_size::{Device, Timer, sink};
use embedded_sdmmc::{Block, BlockDevice, BlockIdx, SdCard};

fn main() {
    let card = SdCard::new(Device, Timer);
    sink(card.num_blocks().is_ok());
    let mut blocks = [Block::new()];
    sink(card.read(&mut blocks, BlockIdx(sink(0))).is_ok());
    sink(&blocks);
    sink(card.write(&blocks, BlockIdx(sink(0))).is_ok());
}
code_size::program!(main);

//! Our card layer over SPI: identify any card, read blocks.
#![no_std]
#![no_main]
use code_size::{Device, converse, sink};
use mmc_hal::Dir;
use mmc_proto::host::Host;
use mmc_proto::machine::{Identify, Transfer, TransferOptions};
use mmc_spi::{Board, Shared, SpiEngine};

struct Plain;
impl Board for Plain {
    fn set_clock(&mut self, hz: u32) {
        sink(hz);
    }
}

fn main() {
    let mut host = SpiEngine::host(Shared::new(Device, || Ok(())), Plain, 25_000_000);
    let identify = Identify::new(&host.capabilities());
    let (Ok(card), payload) = converse(&mut host, identify, Some([0_u8; 512])) else { return };
    sink(card.traits.blocks);
    let read = Transfer::new(&card.traits, Dir::Read, sink(0), 1, TransferOptions::default());
    let (result, payload) = converse(&mut host, read, payload);
    sink((result.is_ok(), payload));
}
code_size::program!(main);

//! Our card layer over SPI: identify any card, read, write and erase blocks.
#![no_std]
#![no_main]
use code_size::{Device, converse, sink};
use mmc_hal::Dir;
use mmc_proto::host::Host;
use mmc_proto::machine::{Erase, Identify, Transfer, TransferOptions};
use mmc_proto::timing::EraseKind;
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
    let (Ok(card), mut payload) = converse(&mut host, identify, Some([0_u8; 512])) else { return };
    sink(card.traits.blocks);
    for dir in [Dir::Read, Dir::Write] {
        let machine = Transfer::new(&card.traits, sink(dir), sink(0), sink(1), TransferOptions::default());
        let (result, back) = converse(&mut host, machine, payload);
        sink(result.is_ok());
        payload = sink(back);
    }
    let erase = Erase::new(&card.traits, None, EraseKind::Erase, sink(0), sink(1));
    sink(converse(&mut host, erase, None).0.is_ok());
}
code_size::program!(main);

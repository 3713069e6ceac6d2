//! A driver on the DesignWare host: bring the card up, write, and read back, waiting for each.
//!
//! It is not tied to hardware: on a board the registers are a `Volatile`, the memory a `Linear` and the clock the
//! board's own; here all three are the model's, and nothing else differs.

use mmc_block::{Blocking, Disk, Idle, Init, Settings, Tag, identify};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Ring};
use mmc_mock::card::{SdCard, SdConfig};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes};
use mmc_proto::host::Host;
use mmc_sched::{Queue, Slot};
use mmc_time::Instant;
use std::error::Error;

/// From a host to data on the card.
fn driver(
    mut host: impl Host<Payload = BufBatch>,
    mut idle: impl Idle,
    data: &[u8],
) -> Result<Vec<u8>, Box<dyn Error>> {
    // Whatever card is in the slot, at the fastest both can do.
    let mut init = Init::new(&host.capabilities(), BufBatch::new(16), Buf(vec![0; 512]))
        .map_err(|_| "the scratch buffer is too small")?;
    let (card, parts) = identify(&mut host, &mut init, &mut idle);
    let (card, (batch, _)) = (card?, parts.ok_or("the host kept the buffers")?);
    println!("{} blocks", card.traits.blocks);

    // A disk: any policy in front of the card, room for 64 requests, nothing allocated behind this line.
    let queue = Queue::new([Slot::FREE; 64], mmc_sched::Deadline::new());
    let tags = [const { Tag::new() }; 64];
    let disk = Disk::new(host, queue, card.traits, batch, tags, Settings::default(), ())?;
    let mut disk = Blocking::new(disk, idle);

    disk.write(2048, Buf(data.to_vec())).map_err(|failed| failed.error)?;
    let back = disk.read(2048, Buf(vec![0; data.len()])).map_err(|failed| failed.error)?;
    Ok(back.0)
}

/// Virtual time: a wait ends at once, at the controller's next event.
struct Virtual<M> {
    clock: Clock,
    model: M,
}

impl<M: Wakes> Idle for Virtual<M> {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn wait(&mut self, until: Instant) {
        self.clock.advance_to(self.model.next_event().min(until));
    }
}

/// The board: a card of 2018 behind an HSDK's controller.
fn run(data: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
    let card = SdCard::new(SdConfig::new(Profile::slow2018(), 1))?;
    let model = Dw::new(card, clock.clone(), memory.clone(), Config::hsdk());
    let at = memory.alloc(8192);
    let ring = Ring::new(memory.window(at, 8192), at, 8192)?;
    let host = DwEngine::new(model.clone(), ring, MemoryDma::new(memory, u32::MAX.into()), HSDK);
    let back = driver(host, Virtual { clock: clock.clone(), model: model.clone() }, data)?;
    println!("{} bytes there and back after {} us", back.len(), clock.now().as_nanos() / 1000);
    match model.violations().first() {
        None => Ok(back),
        Some(violation) => Err(violation.as_str().into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    run(&[0x5a; 4096]).map(drop)
}

#[test]
fn what_was_written_is_read_back() {
    let data: Vec<u8> = (0..65_536_u32).map(|n| (n % 253) as u8).collect();
    assert_eq!(run(&data).expect("a card"), data);
}

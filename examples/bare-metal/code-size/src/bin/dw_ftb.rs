//! A disk: the DesignWare driver, identification, the scheduler `ftb`, and the care for the card.
#![no_std]
#![no_main]
use code_size::{Timer, sink};
use core::ptr::NonNull;
use mmc_block::{Blocking, Care, Disk, Idle, Init, Settings, Tag, identify};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Ring};
use mmc_hal::{DmaBuf, Gather, Linear, Volatile};
use mmc_proto::host::Host;
use mmc_sched::{Ftb, Queue, Slot};
use self_test::lend;

fn main() {
    let (Some(registers), Some(ring)) =
        (NonNull::new(sink(0xf000_a000 as *mut u8)), NonNull::new(sink(0x2000_f000 as *mut u8)))
    else {
        return;
    };
    // SAFETY: never run.
    let (registers, ring, scratch, work, slots, tags) = unsafe {
        (
            Volatile::new(registers, 0x400),
            Volatile::new(ring, 1024),
            DmaBuf::from(&mut lend!([u8; 512] = [0; 512])[..]),
            DmaBuf::from(&mut lend!([u8; 4096] = [0; 4096])[..]),
            lend!([Slot; 16] = [Slot::FREE; 16]),
            lend!([Tag<DmaBuf>; 16] = [const { Tag::new() }; 16]),
        )
    };
    let Ok(ring) = Ring::new(ring, 0x2000_f000, 1024) else { return };
    let dma = Linear { offset: 0, mask: u32::MAX.into(), align: 4 };
    let mut host = DwEngine::new(registers, ring, dma, HSDK);
    let caps = host.capabilities();
    let Ok(mut init) = Init::new(&caps, Gather::<_, 4>::new(), scratch) else { return };
    let (Ok(card), Some((batch, scratch))) = identify(&mut host, &mut init, &mut Timer) else { return };
    let queue = Queue::new(slots, Ftb::<16, 2>::new());
    let Ok(mut disk) = Disk::new(host, queue, card.traits, batch, tags, Settings::default(), ()) else {
        return;
    };
    sink(disk.look_after(card, scratch, Care::new(&caps), Timer.now()).is_ok());
    let mut disk = Blocking::new(disk, Timer);
    let Ok(work) = disk.read(sink(0), work) else { return };
    sink(disk.write(sink(0), work).is_ok());
    sink(disk.flush().is_ok());
}
code_size::program!(main);

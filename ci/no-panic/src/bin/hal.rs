//! `mmc-hal`: registers, linear DMA, batches.
#![no_std]
#![no_main]
use mmc_hal::{Batch, Dir, Dma, DmaBuf, Gather, Lent, LentEntry, Linear, Mmio, Payload, Scatter, Volatile};
use no_panic::sink;

static mut MEMORY: [u8; 4096] = [0; 4096];
static mut SLOTS: [Option<LentEntry<DmaBuf>>; 4] = [const { None }; 4];

fn fill<B: Batch<Buffer = DmaBuf>>(b: &mut B, buf: DmaBuf) {
    sink(b.push(buf, sink(0), sink(512)).is_ok());
    sink((b.len(), b.capacity(), b.is_empty(), b.bytes(), b.segments()));
    for i in 0..sink(3_usize) {
        sink(b.segment(i).map(<[u8]>::len));
        sink(b.segment_mut(i).map(|s| s.len()));
    }
    sink(b.pop().is_some());
}

fn main() {
    // SAFETY: linked and looked at, never run.
    let (memory, slots): (&'static mut [u8], &'static mut [_]) =
        unsafe { (&mut *(&raw mut MEMORY), &mut *(&raw mut SLOTS)) };
    let base = core::ptr::NonNull::from(&mut *memory).cast();
    // SAFETY: as above.
    let regs = unsafe { Volatile::new(base, 4096) };
    regs.write32(sink(8), regs.read32(sink(4)));
    let mut buf = DmaBuf::from(memory);
    let mut dma = Linear { offset: sink(0), mask: sink(u64::MAX), align: sink(4) };
    if let Ok(bus) = dma.map(&mut buf, sink(0), sink(512), Dir::Read) {
        Dma::<DmaBuf>::publish(&dma);
        dma.unmap(&mut buf, 0, 512, bus, Dir::Read);
    }
    let mut g: Gather<DmaBuf, 4> = Gather::new();
    sink(dma.map(&mut g, sink(0), sink(512), Dir::Write).is_ok());
    fill(&mut g, buf);
    if let Some(buf) = g.pop() {
        let mut l = Lent::new(slots);
        sink(dma.map(&mut l, sink(0), sink(512), Dir::Write).is_ok());
        fill(&mut l, buf);
        if let Some(Ok(mut list)) = l.pop().map(|buf| Scatter::first([buf], sink(1))) {
            sink(dma.map(&mut list, sink(0), sink(512), Dir::Write).is_ok());
            let mut g: Gather<_, 2> = Gather::new();
            sink(g.push(list, sink(0), sink(512)).is_ok());
            sink((g.segments(), g.bytes(), dma.map(&mut g, sink(0), sink(512), Dir::Read).is_ok()));
        }
    }
}
no_panic::program!(main);

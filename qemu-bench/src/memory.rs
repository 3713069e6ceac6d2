//! The machine's memory as registers, as descriptors, and as a bus master sees it.

use crate::qtest::Qtest;
use mmc_hal::{Dir, Dma, DmaError, Mmio, Payload};

/// A window of registers, or of memory read as registers, at a bus address.
#[derive(Clone, Debug)]
pub struct Window {
    qtest: Qtest,
    base: u64,
}

impl Window {
    /// The window at `base`.
    #[must_use]
    pub const fn new(qtest: Qtest, base: u64) -> Self {
        Self { qtest, base }
    }
}

impl Mmio for Window {
    fn read32(&self, offset: u32) -> u32 {
        self.qtest.number(&format!("readl {:#x}", self.base + u64::from(offset)))
    }
    fn write32(&self, offset: u32, value: u32) {
        self.qtest.ask(&format!("writel {:#x} {value:#x}", self.base + u64::from(offset)));
    }
}

/// DMA by copies: a mapped segment gets a place in the machine's memory; what the device read or wrote is there.
#[derive(Debug)]
pub struct Copies {
    qtest: Qtest,
    from: u64,
    to: u64,
    next: u64,
    mapped: usize,
}

impl Copies {
    /// Places from `from` to `to`.
    #[must_use]
    pub const fn new(qtest: Qtest, from: u64, to: u64) -> Self {
        Self { qtest, from, to, next: from, mapped: 0 }
    }
}

impl<P: Payload> Dma<P> for Copies {
    fn mask(&self) -> u64 {
        self.to - 1
    }
    fn map(&mut self, payload: &mut P, i: usize, len: usize, dir: Dir) -> Result<u64, DmaError> {
        let bytes = payload.segment(i).and_then(|s| s.get(..len)).ok_or(DmaError::NoSegment(i))?;
        let (bus, end) = (self.next, self.next + len.next_multiple_of(8) as u64);
        if end > self.to {
            return Err(DmaError::Full);
        }
        if dir == Dir::Write {
            self.qtest.write(bus, bytes);
        }
        (self.next, self.mapped) = (end, self.mapped + 1);
        Ok(bus)
    }
    fn unmap(&mut self, payload: &mut P, i: usize, len: usize, bus: u64, dir: Dir) {
        if let (Dir::Read, Some(to)) = (dir, payload.segment_mut(i).and_then(|s| s.get_mut(..len))) {
            to.copy_from_slice(&self.qtest.read(bus, len));
        }
        self.mapped -= 1;
        if self.mapped == 0 {
            self.next = self.from;
        }
    }
    fn publish(&self) {}
}

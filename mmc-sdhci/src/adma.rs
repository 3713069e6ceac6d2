//! ADMA2: descriptors, the memory they are in, and the mappings behind them (§1.13).

use mmc_hal::{Dir, Dma, DmaError, Mmio, Payload};
use mmc_proto::host::Cause;

/// Most segments of one payload.
pub const MAX_SEGMENTS: usize = 256;
/// Bytes of one descriptor: half of what the length field holds, so that nothing depends on 0 meaning 65,536.
const CHUNK: u32 = 32_768;
/// Most blocks the count register can say.
const MAX_BLOCKS: u32 = 65_535;
/// Attributes: valid, and the action "transfer".
const TRANSFER: u32 = 0x21;
/// Attribute: the last descriptor.
const END: u32 = 2;

/// Memory for descriptors, lent to the driver for ever: as the processor sees it (a window), and its bus address.
///
/// It must be coherent: uncached, or kept so by hardware.
#[derive(Debug)]
pub struct Table<R> {
    window: R,
    bus: u64,
    /// Descriptors.
    len: u32,
    /// With 64-bit addresses: 12 bytes each instead of 8.
    wide: bool,
}

impl<R: Mmio> Table<R> {
    /// `bytes` bytes at bus address `bus`, seen through `window`, for descriptors with 32-bit addresses. 4 KiB carry any
    /// request of up to 8 MiB in up to 256 segments; at least 16 bytes.
    ///
    /// # Errors
    /// [`Cause::Unsupported`]: too small, not on a multiple of 8, or not below 4 GiB.
    pub fn new(window: R, bus: u64, bytes: u32) -> Result<Self, Cause> {
        if bus.saturating_add(bytes.into()) > 1 << 32 {
            return Err(Cause::Unsupported("a descriptor table above 4 GiB: use Table::wide"));
        }
        Self::build(window, bus, bytes >> 3, false)
    }

    /// The same for a controller with 64-bit addresses (bit 28 of its capabilities), whose descriptors are 12 bytes long.
    ///
    /// # Errors
    /// [`Cause::Unsupported`]: too small, or not on a multiple of 8.
    pub fn wide(window: R, bus: u64, bytes: u32) -> Result<Self, Cause> {
        Self::build(window, bus, bytes.checked_div(12).unwrap_or(0), true)
    }

    fn build(window: R, bus: u64, len: u32, wide: bool) -> Result<Self, Cause> {
        if len < 2 {
            return Err(Cause::Unsupported("a descriptor table for less than two descriptors: lend 4 KiB"));
        }
        if bus & 7 != 0 {
            return Err(Cause::Unsupported("a descriptor table not on a multiple of 8"));
        }
        Ok(Self { window, bus, len, wide })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Mapped {
    bus: u64,
    len: u32,
}

/// The list of the running transfer.
#[derive(Debug)]
pub(crate) struct Adma<R> {
    table: Table<R>,
    mapped: [Mapped; MAX_SEGMENTS],
    segments: usize,
    dir: Dir,
    used: u32,
}

impl<R: Mmio> Adma<R> {
    pub(crate) const fn new(table: Table<R>) -> Self {
        Self {
            table,
            mapped: [Mapped { bus: 0, len: 0 }; MAX_SEGMENTS],
            segments: 0,
            dir: Dir::Read,
            used: 0,
        }
    }

    pub(crate) const fn is_wide(&self) -> bool {
        self.table.wide
    }

    pub(crate) const fn base(&self) -> u64 {
        self.table.bus
    }

    /// Longest transfer in blocks of 512 bytes and most segments, such that no cut between segments can make the table
    /// overflow: a segment costs one descriptor more than its whole chunks at most.
    pub(crate) fn limits(&self) -> (u32, u16) {
        let segments = (self.table.len >> 1).min(MAX_SEGMENTS as u32);
        let chunks = self.table.len.saturating_sub(segments);
        let blocks = chunks.saturating_mul(CHUNK >> 9).min(MAX_BLOCKS);
        (blocks, u16::try_from(segments).unwrap_or(u16::MAX))
    }

    /// What addresses and lengths must be multiples of.
    pub(crate) const fn align(&self) -> u32 {
        if self.table.wide { 8 } else { 4 }
    }

    /// Maps the first `bytes` bytes of `payload` and writes their descriptors.
    ///
    /// # Errors
    /// Nothing stays mapped.
    pub(crate) fn load<P: Payload, D: Dma<P>>(
        &mut self,
        payload: &mut P,
        bytes: u64,
        dir: Dir,
        dma: &mut D,
    ) -> Result<(), Cause> {
        (self.dir, self.used, self.segments) = (dir, 0, 0);
        let result = self.map_all(payload, bytes, dma);
        if result.is_err() {
            self.unmap_all(payload, dma);
        }
        result
    }

    fn map_all<P: Payload, D: Dma<P>>(
        &mut self,
        payload: &mut P,
        bytes: u64,
        dma: &mut D,
    ) -> Result<(), Cause> {
        let (mut left, mask) = (bytes, self.align().saturating_sub(1));
        let top = if self.table.wide { u64::MAX } else { u32::MAX.into() };
        for i in 0..payload.segments() {
            if left == 0 {
                break;
            }
            let whole = payload.segment(i).map_or(0, <[u8]>::len) as u64;
            let len = u32::try_from(whole.min(left)).unwrap_or(u32::MAX);
            if len & mask != 0 {
                return Err(Cause::Unsupported("a segment whose length the DMA cannot have"));
            }
            let Some(slot) = self.mapped.get_mut(i) else {
                return Err(Cause::Unsupported("more segments than the driver can map"));
            };
            *slot = Mapped::default();
            self.segments = i.saturating_add(1);
            if len == 0 {
                continue;
            }
            let bus = dma.map(payload, i, len as usize, self.dir).map_err(refused)?;
            *slot = Mapped { bus, len };
            if bus.saturating_add(u64::from(len).saturating_sub(1)) > top {
                return Err(Cause::Unsupported("a segment above 4 GiB: this DMA has 32-bit addresses"));
            }
            if bus & u64::from(mask) != 0 {
                return Err(Cause::Unsupported("a segment that starts where the DMA cannot"));
            }
            left = left.saturating_sub(len.into());
            self.describe(bus, len, left == 0)?;
        }
        if left == 0 { Ok(()) } else { Err(Cause::Unsupported("a payload shorter than the data phase")) }
    }

    /// Writes the descriptors of one segment.
    fn describe(&mut self, bus: u64, len: u32, last_segment: bool) -> Result<(), Cause> {
        let (mut at, mut left) = (bus, len);
        while left > 0 {
            let chunk = left.min(CHUNK);
            left = left.saturating_sub(chunk);
            if self.used >= self.table.len {
                return Err(Cause::Unsupported("more descriptors than the table holds"));
            }
            let end = if last_segment && left == 0 { END } else { 0 };
            let words = [chunk << 16 | TRANSFER | end, at as u32, (at >> 32) as u32];
            let size = if self.table.wide { 12 } else { 8 };
            let place = self.used.saturating_mul(size);
            for (word, offset) in words.into_iter().zip((place..place.saturating_add(size)).step_by(4)) {
                self.table.window.write32(offset, word);
            }
            self.used = self.used.saturating_add(1);
            at = at.saturating_add(chunk.into());
        }
        Ok(())
    }

    /// Gives everything back to the payload.
    pub(crate) fn unmap_all<P: Payload, D: Dma<P>>(&mut self, payload: &mut P, dma: &mut D) {
        for (i, m) in self.mapped.iter().enumerate().take(self.segments) {
            if m.len > 0 {
                dma.unmap(payload, i, m.len as usize, m.bus, self.dir);
            }
        }
        self.segments = 0;
    }
}

fn refused(e: DmaError) -> Cause {
    match e {
        DmaError::Address { .. } => Cause::Unsupported("a segment beyond the DMA address mask"),
        DmaError::Alignment { .. } => Cause::Unsupported("a segment that is not aligned as the DMA needs it"),
        DmaError::NoSegment(_) => Cause::Unsupported("a payload that lacks one of its segments"),
        _ => Cause::Dma,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_hal::Batch;
    use mmc_mock::{Buf, BufBatch, Memory, MemoryDma};
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    /// (end, address, length) of each descriptor in `bytes` of memory.
    fn parse<M: Mmio>(window: &M, wide: bool) -> Vec<(bool, u64, u32)> {
        let (size, mut all, mut at) = (if wide { 12 } else { 8 }, Vec::new(), 0);
        loop {
            let word = window.read32(at);
            assert_eq!(word & 0x3d, 0x21, "valid, transfer, no interrupt");
            let high = if wide { u64::from(window.read32(at + 8)) << 32 } else { 0 };
            all.push((word & 2 != 0, high | u64::from(window.read32(at + 4)), word >> 16));
            if word & 2 != 0 {
                return all;
            }
            at += size;
        }
    }

    #[test]
    fn a_table_where_it_cannot_be_is_refused() {
        let memory = Memory::new(0x8000_0000, 0xc000_0000);
        let window = || memory.window(0x8000_0000, 4096);
        assert!(Table::new(window(), 0x8000_0004, 4096).is_err());
        assert!(Table::new(window(), 0x8000_0000, 15).is_err());
        assert!(Table::new(window(), 0xffff_f000, 4096).is_ok());
        assert!(Table::new(window(), 0xffff_f008, 4096).is_err());
        assert!(Table::wide(window(), 0xffff_f008, 4096).is_ok());
        assert!(Table::wide(window(), 0x8000_0000, 23).is_err());
    }

    proptest! {
        #[test]
        fn descriptors_cover_every_byte_in_order_and_never_overflow(
            lens in prop::collection::vec((0_usize..20_000).prop_map(|n| n * 8), 1..8), wide: bool, bytes in 24_u32..400,
        ) {
            let memory = Memory::new(0x8000_0000, 0xc000_0000);
            let at = memory.alloc(400);
            let window = memory.window(at, 400);
            let table = if wide { Table::wide(window, at, bytes) } else { Table::new(window, at, bytes) };
            let mut adma = Adma::new(table.unwrap());
            let mut dma = MemoryDma::new(memory.clone(), u32::MAX.into());
            let mut batch = BufBatch::new(8);
            for &len in &lens {
                batch.push(Buf(vec![1; len]), 0, len).unwrap();
            }
            let total = lens.iter().sum::<usize>() as u64;
            let (blocks, segments) = adma.limits();
            let loaded = adma.load(&mut batch, total, Dir::Write, &mut dma);
            if total > 0 && total <= u64::from(blocks) * 512 && batch.segments() <= segments.into() {
                prop_assert_eq!(loaded, Ok(()));
                let all = parse(&memory.window(at, 400), wide);
                prop_assert!(all.len() <= adma.table.len as usize);
                prop_assert_eq!(all.iter().map(|d| u64::from(d.2)).sum::<u64>(), total);
                let mut k = 0;
                for m in adma.mapped.iter().take(adma.segments).filter(|m| m.len > 0) {
                    let mut next = m.bus;
                    while next < m.bus + u64::from(m.len) {
                        prop_assert_eq!(all[k].1, next);
                        next += u64::from(all[k].2);
                        k += 1;
                    }
                }
                adma.unmap_all(&mut batch, &mut dma);
            }
            prop_assert_eq!(batch.bytes() as u64, total, "all memory is back");
        }
    }
}

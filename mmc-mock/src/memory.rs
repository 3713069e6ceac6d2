//! Memory of a bus master, without `unsafe`: mapping a segment *moves* its bytes out of the payload to a bus
//! address, unmapping moves them back, so that whoever touches a buffer the device owns sees an empty one.

use mmc_hal::{Batch, Dir, Dma, DmaError, Mmio, Payload};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A buffer on the heap for models and simulations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buf(pub Vec<u8>);

impl Payload for Buf {
    fn segments(&self) -> usize {
        1
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        (i == 0).then_some(&self.0[..])
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        (i == 0).then_some(&mut self.0[..])
    }
}

/// A batch of [`Buf`]s of any length; each is lent whole or by a range.
#[derive(Debug)]
pub struct BufBatch {
    bufs: VecDeque<(Buf, usize, usize)>,
    capacity: usize,
}

impl BufBatch {
    /// An empty batch for up to `capacity` buffers.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { bufs: VecDeque::with_capacity(capacity), capacity }
    }
}

impl Payload for BufBatch {
    fn segments(&self) -> usize {
        self.bufs.len()
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        let (b, from, len) = self.bufs.get(i)?;
        b.0.get(*from..from + len)
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        let (b, from, len) = self.bufs.get_mut(i)?;
        b.0.get_mut(*from..*from + *len)
    }
    fn bytes(&self) -> usize {
        self.bufs.iter().map(|e| e.2).sum()
    }
}

impl Batch for BufBatch {
    type Buffer = Buf;
    fn capacity(&self) -> usize {
        self.capacity
    }
    fn len(&self) -> usize {
        self.bufs.len()
    }
    fn push(&mut self, b: Buf, from: usize, len: usize) -> Result<(), Buf> {
        let inside = from.checked_add(len).is_some_and(|end| end <= b.0.len());
        if !inside || self.bufs.len() == self.capacity {
            return Err(b);
        }
        self.bufs.push_back((b, from, len));
        Ok(())
    }
    fn pop(&mut self) -> Option<Buf> {
        self.bufs.pop_front().map(|e| e.0)
    }
}

/// A payload whose segments' bytes can be moved out and back, which is how this crate's device comes to own them.
pub trait Movable: Payload {
    /// Takes the whole vector behind segment `i` and the range of it that is lent.
    fn take(&mut self, i: usize) -> Option<(Vec<u8>, usize)>;
    /// Puts it back.
    fn put(&mut self, i: usize, bytes: Vec<u8>);
}

impl Movable for Buf {
    fn take(&mut self, i: usize) -> Option<(Vec<u8>, usize)> {
        (i == 0).then(|| (std::mem::take(&mut self.0), 0))
    }
    fn put(&mut self, i: usize, bytes: Vec<u8>) {
        if i == 0 {
            self.0 = bytes;
        }
    }
}

impl Movable for BufBatch {
    fn take(&mut self, i: usize) -> Option<(Vec<u8>, usize)> {
        let (b, from, _) = self.bufs.get_mut(i)?;
        Some((std::mem::take(&mut b.0), *from))
    }
    fn put(&mut self, i: usize, bytes: Vec<u8>) {
        if let Some((b, _, _)) = self.bufs.get_mut(i) {
            b.0 = bytes;
        }
    }
}

/// One mapped or allocated region.
#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

/// Memory as the bus sees it. Shared by a model (which is the bus master) and a [`MemoryDma`] (which maps).
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    regions: BTreeMap<u64, Region>,
    next: u64,
    base: u64,
    top: u64,
}

impl Memory {
    /// An empty address space that hands out addresses from `base` up to, not including, `top`.
    #[must_use]
    pub fn new(base: u64, top: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner { regions: BTreeMap::new(), next: base, base, top })))
    }
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A zeroed region that stays, for descriptors; its bus address.
    ///
    /// # Panics
    /// When the address space is full (a mistake of the test).
    #[must_use]
    pub fn alloc(&self, len: usize) -> u64 {
        self.lock().place(Region { bytes: vec![0; len], from: 0, len }).expect("room in the model's memory")
    }
    /// A window of registers onto `len` bytes at bus address `at`: how a driver writes its descriptors.
    #[must_use]
    pub fn window(&self, at: u64, len: u32) -> Window {
        Window { memory: self.clone(), at, len }
    }
    /// Lends the bytes from bus address `at` to the end of their region to `f`; `None` when nothing is mapped
    /// there (a bus error). The device's way in.
    pub fn with<R>(&self, at: u64, f: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut inner = self.lock();
        let (start, r) = inner.regions.range_mut(..=at).next_back()?;
        let skip = usize::try_from(at - start).ok()?;
        if skip >= r.len {
            return None;
        }
        let (from, to) = (r.from + skip, r.from + r.len);
        Some(f(&mut r.bytes[from..to]))
    }
    /// How many regions are mapped or allocated, to find leaks.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.lock().regions.len()
    }
}

impl Inner {
    /// First fit above the last placed one, wrapping once; regions start on 64 bytes and never touch.
    fn place(&mut self, r: Region) -> Option<u64> {
        let size = (r.len as u64).max(1).next_multiple_of(64) + 64;
        for start in [self.next, self.base] {
            let mut at = start.next_multiple_of(64);
            while at.checked_add(size)? <= self.top {
                let below = self.regions.range(..at + size).next_back();
                match below {
                    Some((&s, b)) if s + b.len as u64 > at => {
                        at = (s + b.len as u64).next_multiple_of(64) + 64
                    }
                    Some((&s, _)) if s >= at => at = (s + 1).next_multiple_of(64),
                    _ => {
                        self.next = at + size;
                        self.regions.insert(at, r);
                        return Some(at);
                    }
                }
            }
        }
        None
    }
}

/// Maps payloads into a [`Memory`].
#[derive(Clone, Debug)]
pub struct MemoryDma {
    memory: Memory,
    mask: u64,
}

impl MemoryDma {
    /// For a device that reaches addresses up to `mask`.
    #[must_use]
    pub fn new(memory: Memory, mask: u64) -> Self {
        Self { memory, mask }
    }
}

impl<P: Movable> Dma<P> for MemoryDma {
    fn mask(&self) -> u64 {
        self.mask
    }
    fn map(&mut self, payload: &mut P, i: usize, len: usize, _: Dir) -> Result<u64, DmaError> {
        let (bytes, from) = payload.take(i).ok_or(DmaError::NoSegment(i))?;
        let mut inner = self.memory.lock();
        let len = len.min(bytes.len().saturating_sub(from));
        match inner.place(Region { bytes, from, len }) {
            Some(bus) if bus + (len as u64).saturating_sub(1) <= self.mask => Ok(bus),
            Some(bus) => {
                if let Some(r) = inner.regions.remove(&bus) {
                    payload.put(i, r.bytes);
                }
                Err(DmaError::Address { bus, mask: self.mask })
            }
            None => Err(DmaError::Full),
        }
    }
    fn unmap(&mut self, payload: &mut P, i: usize, _: usize, bus: u64, _: Dir) {
        if let Some(r) = self.memory.lock().regions.remove(&bus) {
            payload.put(i, r.bytes);
        }
    }
    fn publish(&self) {}
}

/// A piece of [`Memory`] as registers.
#[derive(Clone, Debug)]
pub struct Window {
    memory: Memory,
    at: u64,
    len: u32,
}

impl Window {
    /// The bus address of its first byte.
    #[must_use]
    pub fn bus(&self) -> u64 {
        self.at
    }
}

impl Mmio for Window {
    fn read32(&self, offset: u32) -> u32 {
        if offset >= self.len {
            return 0;
        }
        let word = |b: &mut [u8]| b.first_chunk::<4>().map_or(0, |w| u32::from_le_bytes(*w));
        self.memory.with(self.at + u64::from(offset), word).unwrap_or(0)
    }
    fn write32(&self, offset: u32, value: u32) {
        if offset < self.len {
            self.memory.with(self.at + u64::from(offset), |b| {
                if let Some(w) = b.first_chunk_mut::<4>() {
                    *w = value.to_le_bytes();
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_buffer_is_the_devices_until_it_is_unmapped() {
        let memory = Memory::new(0x8000_0000, 0xc000_0000);
        let mut dma = MemoryDma::new(memory.clone(), 0xffff_ffff);
        let mut b = Buf(vec![7; 1024]);
        let bus = dma.map(&mut b, 0, 1024, Dir::Read).unwrap();
        assert!(b.0.is_empty());
        memory.with(bus + 1000, |s| s[0] = 9).unwrap();
        assert_eq!(memory.with(bus + 1024, |_| ()), None, "behind the end is a bus error");
        dma.unmap(&mut b, 0, 1024, bus, Dir::Read);
        assert_eq!((b.0[999], b.0[1000]), (7, 9));
        assert_eq!(memory.regions(), 0);
    }

    #[test]
    fn regions_never_overlap_and_addresses_are_reused() {
        let memory = Memory::new(0x1000, 0x3000);
        let mut dma = MemoryDma::new(memory.clone(), u64::MAX);
        let ring = memory.alloc(256);
        for _ in 0..50 {
            let (mut a, mut b) = (Buf(vec![1; 512]), Buf(vec![2; 512]));
            let x = dma.map(&mut a, 0, 512, Dir::Write).unwrap();
            let y = dma.map(&mut b, 0, 512, Dir::Write).unwrap();
            assert!(x.abs_diff(y) >= 512 && x.abs_diff(ring) >= 256 && y.abs_diff(ring) >= 256);
            dma.unmap(&mut a, 0, 512, x, Dir::Write);
            dma.unmap(&mut b, 0, 512, y, Dir::Write);
        }
    }

    #[test]
    fn memory_beyond_the_mask_is_refused_and_the_buffer_stays() {
        let memory = Memory::new(0x1_0000_0000, 0x1_0001_0000);
        let mut dma = MemoryDma::new(memory.clone(), 0xffff_ffff);
        let mut b = Buf(vec![1; 512]);
        assert!(matches!(dma.map(&mut b, 0, 512, Dir::Read), Err(DmaError::Address { .. })));
        assert_eq!((b.0.len(), memory.regions()), (512, 0));
    }
}

//! Memory of a bus master, without `unsafe`: mapping a segment *moves* its bytes out of the payload to a bus
//! address, unmapping moves them back, so that whoever touches a buffer the device owns sees an empty one.
//!
//! [`Memory::new`] is coherent. [`Memory::non_coherent`] has the processor's cache and write buffer in front of it: what
//! is not cleaned the device does not see, what is not invalidated the processor does not see.

mod cache;

use self::cache::Cache;
use mmc_hal::{Batch, Dir, Dma, DmaError, Mmio, Payload, Scatter};
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

/// Where a segment of a batch is: in which buffer (counted since the batch was made), which of its segments, from, to.
#[derive(Clone, Copy, Debug)]
struct Place {
    buffer: usize,
    segment: usize,
    from: usize,
    to: usize,
}

/// A batch on the heap for up to so many buffers; each is lent whole or by a range.
#[derive(Debug)]
pub struct HeapBatch<B>(Box<Held<B>>);

#[derive(Debug)]
struct Held<B> {
    bufs: VecDeque<B>,
    places: VecDeque<Place>,
    /// Buffers that were taken out again.
    gone: usize,
    capacity: usize,
}

/// A batch of [`Buf`]s.
pub type BufBatch = HeapBatch<Buf>;

impl<B> HeapBatch<B> {
    /// An empty batch for up to `capacity` buffers.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let bufs = VecDeque::with_capacity(capacity);
        Self(Box::new(Held { bufs, places: VecDeque::with_capacity(capacity), gone: 0, capacity }))
    }
    fn place(&mut self, i: usize) -> Option<(&mut B, Place)> {
        let held = &mut *self.0;
        let place = *held.places.get(i)?;
        Some((held.bufs.get_mut(place.buffer - held.gone)?, place))
    }
}

impl<B: Payload> Payload for HeapBatch<B> {
    fn segments(&self) -> usize {
        self.0.places.len()
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        let Place { buffer, segment, from, to } = *self.0.places.get(i)?;
        self.0.bufs.get(buffer - self.0.gone)?.segment(segment)?.get(from..to)
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        let (buffer, Place { segment, from, to, .. }) = self.place(i)?;
        buffer.segment_mut(segment)?.get_mut(from..to)
    }
    fn bytes(&self) -> usize {
        self.0.places.iter().map(|p| p.to - p.from).sum()
    }
}

impl<B: Payload> Batch for HeapBatch<B> {
    type Buffer = B;
    fn capacity(&self) -> usize {
        self.0.capacity
    }
    fn len(&self) -> usize {
        self.0.bufs.len()
    }
    fn push(&mut self, b: B, from: usize, len: usize) -> Result<(), B> {
        let inside = from.checked_add(len).is_some_and(|end| end <= b.bytes());
        if !inside || self.0.bufs.len() == self.0.capacity {
            return Err(b);
        }
        let (mut skip, mut left, buffer) = (from, len, self.0.gone + self.0.bufs.len());
        for segment in 0..b.segments() {
            let all = b.segment(segment).map_or(0, <[u8]>::len);
            let take = all.saturating_sub(skip).min(left);
            if take > 0 {
                self.0.places.push_back(Place { buffer, segment, from: skip, to: skip + take });
            }
            (skip, left) = (skip.saturating_sub(all), left - take);
        }
        self.0.bufs.push_back(b);
        Ok(())
    }
    fn pop(&mut self) -> Option<B> {
        let first = self.0.bufs.pop_front()?;
        while self.0.places.front().is_some_and(|p| p.buffer == self.0.gone) {
            self.0.places.pop_front();
        }
        self.0.gone += 1;
        Some(first)
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

impl<B: Movable, S: AsRef<[B]> + AsMut<[B]> + Send> Movable for Scatter<B, S> {
    fn take(&mut self, i: usize) -> Option<(Vec<u8>, usize)> {
        self.buffers_mut().get_mut(i)?.take(0)
    }
    fn put(&mut self, i: usize, bytes: Vec<u8>) {
        if let Some(b) = self.buffers_mut().get_mut(i) {
            b.put(0, bytes);
        }
    }
}

impl<B: Movable> Movable for HeapBatch<B> {
    fn take(&mut self, i: usize) -> Option<(Vec<u8>, usize)> {
        let (buffer, place) = self.place(i)?;
        let (bytes, from) = buffer.take(place.segment)?;
        Some((bytes, from + place.from))
    }
    fn put(&mut self, i: usize, bytes: Vec<u8>) {
        if let Some((buffer, place)) = self.place(i) {
            buffer.put(place.segment, bytes);
        }
    }
}

/// One mapped or allocated region.
#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
    /// Mapped for this; `None`: allocated.
    dir: Option<Dir>,
}

impl Region {
    fn lent(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
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
    /// `None`: coherent.
    cache: Option<Cache>,
}

impl Memory {
    /// An empty address space that hands out addresses from `base` up to, not including, `top`.
    #[must_use]
    pub fn new(base: u64, top: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner { regions: BTreeMap::new(), next: base, base, top, cache: None })))
    }
    /// The same behind a cache with lines of 64 bytes and a write buffer: a buffer's bytes are in dirty lines until
    /// [`clean`](Self::clean), old bytes stay in lines until [`invalidate`](Self::invalidate), and what is written
    /// through a [`Window`] (which is not cached) waits for [`Dma::publish`]. A [`MemoryDma`] does all of this.
    #[must_use]
    pub fn non_coherent(base: u64, top: u64) -> Self {
        let memory = Self::new(base, top);
        memory.lock().cache = Some(Cache::default());
        memory
    }
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A zeroed region that stays, for descriptors; its bus address. `None`: there is no gap of `len` bytes and the 64 to
    /// the next region below `top`.
    #[must_use]
    pub fn try_alloc(&self, len: usize) -> Option<u64> {
        let region = Region { bytes: vec![0; len], from: 0, len, dir: None };
        self.lock().place(region, 0)
    }
    /// [`try_alloc`](Self::try_alloc) for tests, which know how much they use.
    ///
    /// # Panics
    /// Where `try_alloc` gives `None`; the message says how much was asked for and how large the memory is.
    #[must_use]
    #[track_caller]
    pub fn alloc(&self, len: usize) -> u64 {
        self.try_alloc(len).unwrap_or_else(|| {
            let (base, top) = {
                let inner = self.lock();
                (inner.base, inner.top)
            };
            panic!("no room for {len} bytes in the model's memory from {base:#x} to {top:#x}: make it larger")
        })
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
        if let Some((len, cache)) = inner.left(at).zip(inner.cache.as_mut()) {
            cache.device_looks(at, len);
        }
        inner.ram(at).map(f)
    }
    /// Writes every dirty line of these bytes to memory.
    pub fn clean(&self, at: u64, len: usize) {
        self.lock().clean(at, len);
    }
    /// Forgets the lines of these bytes; what was dirty in them is lost.
    pub fn invalidate(&self, at: u64, len: usize) {
        if let Some(cache) = &mut self.lock().cache {
            cache.invalidate(at, len);
        }
    }
    /// Lets everything that was written through a [`Window`] arrive.
    pub fn publish(&self) {
        self.lock().publish();
    }
    /// Writes as the processor does; into its cache, if there is one.
    pub fn cpu_write(&self, at: u64, bytes: &[u8]) {
        self.lock().cpu_write(at, bytes);
    }
    /// Reads as the processor does: from its cache what is in there.
    pub fn cpu_read(&self, at: u64, bytes: &mut [u8]) {
        self.lock().cpu_read(at, bytes);
    }
    /// Where the device met bytes that were still in the cache or the write buffer, or a mapping was used against its
    /// direction; for tests to assert empty.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.lock().cache.as_ref().map_or_else(Vec::new, |c| c.violations.clone())
    }
    /// How many regions are mapped or allocated, to find leaks.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.lock().regions.len()
    }
}

impl Inner {
    /// First fit above the last placed one, wrapping once; regions start `skew` bytes after a multiple of 64 and never
    /// touch.
    fn place(&mut self, r: Region, skew: u64) -> Option<u64> {
        let size = (r.len as u64 + skew).max(1).next_multiple_of(64) + 64;
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
                        self.regions.insert(at + skew, r);
                        return Some(at + skew);
                    }
                }
            }
        }
        None
    }

    /// Bytes from `at` to the end of its region.
    fn left(&self, at: u64) -> Option<usize> {
        let (start, r) = self.regions.range(..=at).next_back()?;
        r.len.checked_sub(usize::try_from(at - start).ok()?).filter(|n| *n > 0)
    }

    /// The bytes in memory from `at` to the end of their region.
    fn ram(&mut self, at: u64) -> Option<&mut [u8]> {
        let (start, r) = self.regions.range_mut(..=at).next_back()?;
        let skip = usize::try_from(at - start).ok()?;
        r.lent().get_mut(skip..).filter(|b| !b.is_empty())
    }

    fn clean(&mut self, at: u64, len: usize) {
        let dirty = self.cache.as_mut().map_or_else(Vec::new, |c| c.clean(at, len));
        for (at, byte) in dirty {
            if let Some(b) = self.ram(at) {
                b[0] = byte;
            }
        }
    }

    fn publish(&mut self) {
        let written = self.cache.as_mut().map_or_else(Vec::new, |c| std::mem::take(&mut c.buffered));
        for (at, word) in written {
            if let Some(b) = self.ram(at).and_then(|b| b.first_chunk_mut::<4>()) {
                *b = word.to_le_bytes();
            }
        }
    }

    fn cpu_write(&mut self, at: u64, bytes: &[u8]) {
        match &mut self.cache {
            Some(cache) => cache.write(at, bytes),
            None => {
                if let Some(b) = self.ram(at) {
                    b.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                }
            }
        }
    }

    fn cpu_read(&mut self, at: u64, bytes: &mut [u8]) {
        if let Some(b) = self.ram(at) {
            bytes.iter_mut().zip(b.iter()).for_each(|(to, from)| *to = *from);
        }
        if let Some(cache) = &self.cache {
            cache.read(at, bytes);
        }
    }
}

/// A duty of a [`Dma`] on memory that is not coherent, for one that neglects it: the control of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neglect {
    /// Nothing is cleaned by `map`.
    Clean,
    /// Nothing is invalidated by `unmap`.
    Invalidate,
    /// `publish` does nothing.
    Publish,
}

/// Maps payloads into a [`Memory`].
#[derive(Clone, Debug)]
pub struct MemoryDma {
    memory: Memory,
    mask: u64,
    skew: u64,
    neglect: Option<Neglect>,
}

impl MemoryDma {
    /// For a device that reaches addresses up to `mask`.
    #[must_use]
    pub fn new(memory: Memory, mask: u64) -> Self {
        Self { memory, mask, skew: 0, neglect: None }
    }
    /// The same, but segments are `bytes` after a multiple of 64.
    #[must_use]
    pub fn skewed(self, bytes: u64) -> Self {
        Self { skew: bytes, ..self }
    }
    /// The same, but it neglects a duty.
    #[must_use]
    pub fn neglecting(self, duty: Neglect) -> Self {
        Self { neglect: Some(duty), ..self }
    }
}

impl<P: Movable> Dma<P> for MemoryDma {
    fn mask(&self) -> u64 {
        self.mask
    }
    fn map(&mut self, payload: &mut P, i: usize, len: usize, dir: Dir) -> Result<u64, DmaError> {
        let (bytes, from) = payload.take(i).ok_or(DmaError::NoSegment(i))?;
        let mut inner = self.memory.lock();
        let len = len.min(bytes.len().saturating_sub(from));
        let bus = match inner.place(Region { bytes, from, len, dir: Some(dir) }, self.skew) {
            Some(bus) if bus + (len as u64).saturating_sub(1) <= self.mask => bus,
            Some(bus) => {
                if let Some(r) = inner.regions.remove(&bus) {
                    payload.put(i, r.bytes);
                }
                return Err(DmaError::Address { bus, mask: self.mask });
            }
            None => return Err(DmaError::Full),
        };
        let Inner { regions, cache: Some(cache), .. } = &mut *inner else { return Ok(bus) };
        if let Some(r) = regions.get_mut(&bus) {
            // The processor has just written it: its bytes are in the cache, and in memory is what was there before.
            cache.write(bus, r.lent());
            r.lent().fill(0xa5);
        }
        if self.neglect != Some(Neglect::Clean) {
            inner.clean(bus, len);
        }
        Ok(bus)
    }
    fn unmap(&mut self, payload: &mut P, i: usize, _: usize, bus: u64, dir: Dir) {
        let mut inner = self.memory.lock();
        let Some(mut r) = inner.regions.remove(&bus) else { return };
        if let Some(cache) = &mut inner.cache {
            let len = r.len;
            if r.dir != Some(dir) {
                cache.violation(format!("{bus:#x} was mapped for {:?} and is unmapped for {dir:?}", r.dir));
            }
            match dir {
                Dir::Read if self.neglect != Some(Neglect::Invalidate) => cache.invalidate(bus, len),
                Dir::Read => {}
                Dir::Write => cache.written_by_the_device(bus, r.lent()),
            }
            cache.read(bus, r.lent());
            cache.invalidate(bus, len);
        }
        payload.put(i, r.bytes);
    }
    fn publish(&self) {
        if self.neglect != Some(Neglect::Publish) {
            self.memory.publish();
        }
    }
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
        let mut inner = self.memory.lock();
        // Not cached: what this processor has written before arrives before the read.
        inner.publish();
        let word = inner.ram(self.at + u64::from(offset)).and_then(|b| b.first_chunk::<4>().copied());
        word.map_or(0, u32::from_le_bytes)
    }
    fn write32(&self, offset: u32, value: u32) {
        if offset < self.len {
            let (mut inner, at) = (self.memory.lock(), self.at + u64::from(offset));
            match &mut inner.cache {
                Some(cache) => cache.buffered.push((at, value)),
                None => {
                    if let Some(w) = inner.ram(at).and_then(|b| b.first_chunk_mut::<4>()) {
                        *w = value.to_le_bytes();
                    }
                }
            }
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
    fn a_full_memory_says_so() {
        let memory = Memory::new(0x1000, 0x2000);
        let at = memory.try_alloc(0x800).unwrap();
        assert_eq!((memory.try_alloc(0x800), memory.regions()), (None, 1));
        let told = std::panic::catch_unwind(|| memory.alloc(0x800)).unwrap_err();
        let told = told.downcast_ref::<String>().unwrap();
        assert!(told.contains("no room for 2048 bytes") && told.contains("0x1000 to 0x2000"), "{told}");
        assert!(at >= 0x1000 && memory.try_alloc(0x400).is_some(), "a failure leaves it as it was");
    }

    #[test]
    fn memory_beyond_the_mask_is_refused_and_the_buffer_stays() {
        let memory = Memory::new(0x1_0000_0000, 0x1_0001_0000);
        let mut dma = MemoryDma::new(memory.clone(), 0xffff_ffff);
        let mut b = Buf(vec![1; 512]);
        assert!(matches!(dma.map(&mut b, 0, 512, Dir::Read), Err(DmaError::Address { .. })));
        assert_eq!((b.0.len(), memory.regions()), (512, 0));
    }

    const AT: u64 = 0x8000_0000;

    #[test]
    fn behind_a_cache_each_side_sees_what_the_duties_let_it_see() {
        let memory = Memory::non_coherent(AT, AT + 0x1_0000);
        let at = memory.alloc(256);
        memory.cpu_write(at + 60, &[1; 8]); // two lines
        assert_eq!(memory.with(at + 128, |b| b[0]), Some(0), "elsewhere nothing is dirty");
        assert_eq!(memory.violations(), Vec::<String>::new());
        assert_eq!(memory.with(at + 60, |b| b[0]), Some(0), "the device sees what was there before");
        assert_eq!(memory.violations().len(), 1);
        memory.clean(at, 64);
        assert_eq!(memory.with(at + 60, |b| (b[3], b[4])), Some((1, 0)), "one line of the two");
        memory.clean(at, 128);
        memory.with(at + 60, |b| b[4] = 9);
        let mut got = [0; 8];
        memory.cpu_read(at + 60, &mut got);
        assert_eq!(got, [1; 8], "a line that is still in the cache hides it");
        memory.invalidate(at + 64, 1);
        memory.cpu_read(at + 60, &mut got);
        assert_eq!(got, [1, 1, 1, 1, 9, 1, 1, 1]);
        memory.cpu_write(at, &[7; 64]);
        memory.invalidate(at, 64);
        memory.cpu_read(at + 60, &mut got);
        assert_eq!(got[0], 1, "what was dirty is lost");
    }

    #[test]
    fn a_window_is_seen_by_the_device_once_it_is_published() {
        let memory = Memory::non_coherent(AT, AT + 0x1_0000);
        let at = memory.alloc(64);
        let ring = memory.window(at, 64);
        ring.write32(4, 5);
        assert_eq!(memory.with(at + 4, |b| b[0]), Some(0));
        assert!(memory.violations()[0].contains("write buffer"));
        memory.publish();
        assert_eq!((memory.with(at + 4, |b| b[0]), memory.violations().len()), (Some(5), 1));
        ring.write32(8, 6);
        assert_eq!(
            (ring.read32(8), memory.with(at + 8, |b| b[0])),
            (6, Some(6)),
            "a read waits for the write"
        );
    }

    #[test]
    fn mapping_does_the_duties_and_one_that_neglects_them_is_found_out() {
        for (neglect, read_ok, write_ok) in [
            (None, true, true),
            (Some(Neglect::Clean), true, false),
            (Some(Neglect::Invalidate), false, true),
        ] {
            let memory = Memory::non_coherent(AT, AT + 0x1_0000);
            let mut dma = MemoryDma::new(memory.clone(), u64::MAX).skewed(4);
            if let Some(duty) = neglect {
                dma = dma.neglecting(duty);
            }
            let mut b = Buf(vec![7; 1000]);
            let bus = dma.map(&mut b, 0, 1000, Dir::Write).unwrap();
            assert_eq!(bus & 63, 4);
            assert_eq!(memory.with(bus, |s| s[999] == 7).unwrap(), write_ok, "{neglect:?}");
            dma.unmap(&mut b, 0, 1000, bus, Dir::Write);
            assert_eq!(b.0, [7; 1000], "a device that reads changes nothing");
            let bus = dma.map(&mut b, 0, 1000, Dir::Read).unwrap();
            memory.with(bus, |s| s.fill(8)).unwrap();
            dma.unmap(&mut b, 0, 1000, bus, Dir::Read);
            assert_eq!(
                b.0 == [8; 1000],
                read_ok && neglect.is_none() || neglect == Some(Neglect::Clean),
                "{neglect:?}"
            );
            assert_eq!(memory.violations().is_empty(), neglect != Some(Neglect::Clean), "{neglect:?}");
        }
        // A buffer mapped for the device to read, which it writes to.
        let memory = Memory::non_coherent(AT, AT + 0x1_0000);
        let mut dma = MemoryDma::new(memory.clone(), u64::MAX);
        let mut b = Buf(vec![7; 512]);
        let bus = dma.map(&mut b, 0, 512, Dir::Write).unwrap();
        memory.with(bus, |s| s[3] = 1).unwrap();
        dma.unmap(&mut b, 0, 512, bus, Dir::Write);
        assert!(memory.violations()[0].contains("for the device to read"));
    }
}

//! The descriptor ring of one controller, and the mappings behind it.

use crate::descriptor::{CHUNK, Control, Descriptor, SIZE};
use crate::reg::DmaMap;
use mmc_hal::{Dir, Dma, DmaError, Mmio, Payload};
use mmc_proto::host::Cause;

/// Most segments of one payload.
pub const MAX_SEGMENTS: usize = 256;
/// Descriptors that are of use: 256 for 1 MiB of whole pages, and one more for each cut between segments.
const MAX_DESCRIPTORS: u32 = 512;

/// Memory for descriptors, lent to the driver for ever: as the processor sees it (a window), and its bus address.
///
/// It must be coherent: uncached, or kept so by hardware.
#[derive(Debug)]
pub struct Ring<R> {
    window: R,
    bus: u64,
    /// Descriptors of one transfer.
    len: u32,
    /// There is room for those of another one.
    double: bool,
    /// Descriptors with 64-bit addresses.
    wide: bool,
}

impl<R: Mmio> Ring<R> {
    /// `bytes` bytes at bus address `bus`, seen through `window`. 8 KiB (512 descriptors) carry any request of up
    /// to 1 MiB in up to 256 segments; half of it carries half of that; at least 32 bytes. From 16 KiB on there is
    /// room for the next transfer's beside those of the running one ([`Host::prepare`](mmc_proto::host::Host::prepare)).
    ///
    /// # Errors
    /// [`Cause::Unsupported`]: too small, not on a multiple of 16, or not below 4 GiB.
    pub fn new(window: R, bus: u64, bytes: u32) -> Result<Self, Cause> {
        let (len, double) = Self::divide(bytes >> 4);
        if len < 2 {
            return Err(Cause::Unsupported("a descriptor ring of less than 32 bytes: lend 8 KiB"));
        }
        let last = bus.saturating_add(u64::from(bytes)).saturating_sub(1);
        match u32::try_from(bus) {
            Ok(_) if last <= u64::from(u32::MAX) && bus & 15 == 0 => {
                Ok(Self { window, bus, len, double, wide: false })
            }
            Ok(_) if bus & 15 != 0 => Err(Cause::Unsupported("a descriptor ring not on a multiple of 16")),
            _ => Err(Cause::Unsupported("a descriptor ring above 4 GiB: this DMA has 32-bit addresses")),
        }
    }

    /// The same for a controller with 64-bit addresses (HCON bit 27), whose descriptors are twice as long: 16 KiB
    /// carry what 8 KiB do in [`Ring::new`], 32 KiB have room for the next transfer's as well; at least 64 bytes.
    ///
    /// # Errors
    /// [`Cause::Unsupported`]: too small, not on a multiple of 32, or beyond the end of the address space.
    pub fn wide(window: R, bus: u64, bytes: u32) -> Result<Self, Cause> {
        let (len, double) = Self::divide(bytes >> 5);
        if len < 2 {
            return Err(Cause::Unsupported("a descriptor ring of less than 64 bytes: lend 16 KiB"));
        }
        if bus & 31 != 0 || bus.checked_add(bytes.into()).is_none() {
            return Err(Cause::Unsupported("a descriptor ring not on a multiple of 32 inside 64 bits"));
        }
        Ok(Self { window, bus, len, double, wide: true })
    }

    /// Of `n` descriptors: how many a transfer gets, and whether another one gets as many.
    fn divide(n: u32) -> (u32, bool) {
        (n.min(MAX_DESCRIPTORS), n >> 1 >= MAX_DESCRIPTORS)
    }

    const fn size(&self) -> u32 {
        if self.wide { SIZE.saturating_mul(2) } else { SIZE }
    }

    /// Highest bus address its descriptors can hold.
    const fn top(&self) -> u64 {
        if self.wide { u64::MAX } else { u32::MAX as u64 }
    }
}

/// One segment the device has.
#[derive(Clone, Copy, Debug, Default)]
struct Mapped {
    bus: u64,
    len: u32,
}

/// One transfer's mappings and descriptors.
#[derive(Clone, Copy, Debug)]
struct Set {
    mapped: [Mapped; MAX_SEGMENTS],
    segments: usize,
    dir: Dir,
    /// Descriptors written.
    used: u32,
    /// Which descriptor of the memory is its first.
    first: u32,
}

impl Set {
    const fn at(first: u32) -> Self {
        let mapped = [Mapped { bus: 0, len: 0 }; MAX_SEGMENTS];
        Self { mapped, segments: 0, dir: Dir::Read, used: 0, first }
    }
}

/// The list of the running transfer and that of the next one, which may be written meanwhile.
#[derive(Debug)]
pub(crate) struct Idmac<R> {
    ring: Ring<R>,
    sets: [Set; 2],
    /// The second set is the running transfer's.
    flipped: bool,
}

impl<R: Mmio> Idmac<R> {
    pub(crate) const fn new(ring: Ring<R>) -> Self {
        let second = ring.len;
        Self { ring, sets: [Set::at(0), Set::at(second)], flipped: false }
    }

    const fn set(&self, next: bool) -> &Set {
        let [first, second] = &self.sets;
        if self.flipped != next { second } else { first }
    }

    fn set_mut(&mut self, next: bool) -> &mut Set {
        let [first, second] = &mut self.sets;
        if self.flipped != next { second } else { first }
    }

    /// The next transfer becomes the running one.
    pub(crate) fn flip(&mut self) {
        self.flipped = !self.flipped;
    }

    /// Bus address of descriptor `k` of a set that begins at `first`.
    fn address(&self, first: u32, k: u32) -> u64 {
        self.ring.bus.saturating_add(first.saturating_add(k).saturating_mul(self.ring.size()).into())
    }

    /// Bus address of the running transfer's first descriptor.
    pub(crate) fn base(&self) -> u64 {
        self.address(self.set(false).first, 0)
    }

    /// Whether descriptors have 64-bit addresses.
    pub(crate) const fn is_wide(&self) -> bool {
        self.ring.wide
    }

    /// Where its registers are.
    pub(crate) const fn map(&self) -> DmaMap {
        if self.ring.wide { DmaMap::WIDE } else { DmaMap::NARROW }
    }

    /// Longest transfer in blocks of 512 bytes, and most segments, such that no cut between segments can make the
    /// ring overflow: half of the ring for whole pages, half for the cuts.
    pub(crate) fn limits(&self) -> (u32, u16) {
        let half = self.ring.len >> 1;
        let segments = self.ring.len.saturating_sub(half).min(MAX_SEGMENTS as u32);
        (half.saturating_mul(CHUNK >> 9), u16::try_from(segments).unwrap_or(u16::MAX))
    }

    /// Where descriptor `k` of a set that begins at `first` is in the window.
    fn offset(&self, first: u32, k: u32) -> u32 {
        first.saturating_add(k).saturating_mul(self.ring.size())
    }

    fn write(&self, first: u32, k: u32, d: &Descriptor) {
        let at = self.offset(first, k);
        let put = |words: &[u32]| {
            for (word, at) in words.iter().zip((at..).step_by(4)) {
                self.ring.window.write32(at, *word);
            }
        };
        if self.ring.wide { put(&d.wide_words()) } else { put(&d.words()) }
    }

    /// Maps the first `bytes` bytes of `payload` and writes their descriptors, for the next transfer or for the one that
    /// starts now. Segments start and end on multiples of `word` bytes (2, 4 or 8), a word of the FIFO.
    ///
    /// # Errors
    /// Nothing stays mapped.
    pub(crate) fn load<P: Payload, D: Dma<P>>(
        &mut self,
        next: bool,
        payload: &mut P,
        bytes: u64,
        word: u32,
        dir: Dir,
        dma: &mut D,
    ) -> Result<(), Cause> {
        if next && !self.ring.double {
            return Err(Cause::Unsupported("a ring without room for the next transfer: lend twice as much"));
        }
        let set = self.set_mut(next);
        (set.dir, set.used, set.segments) = (dir, 0, 0);
        let result = self.map_all(next, payload, bytes, word.saturating_sub(1), dma);
        if result.is_err() {
            self.unmap_all(next, payload, dma);
        }
        result
    }

    fn map_all<P: Payload, D: Dma<P>>(
        &mut self,
        next: bool,
        payload: &mut P,
        bytes: u64,
        mask: u32,
        dma: &mut D,
    ) -> Result<(), Cause> {
        let (mut left, top, dir) = (bytes, self.ring.top(), self.set(next).dir);
        for i in 0..payload.segments() {
            if left == 0 {
                break;
            }
            let whole = payload.segment(i).map_or(0, <[u8]>::len);
            let len = u32::try_from((whole as u64).min(left)).unwrap_or(u32::MAX);
            if len & mask != 0 {
                return Err(Cause::Unsupported(
                    "a segment whose length is not a multiple of the FIFO's word",
                ));
            }
            let set = self.set_mut(next);
            let Some(slot) = set.mapped.get_mut(i) else {
                return Err(Cause::Unsupported("more segments than the driver can map"));
            };
            *slot = Mapped::default();
            set.segments = i.saturating_add(1);
            if len == 0 {
                continue;
            }
            let bus = dma.map(payload, i, len as usize, dir).map_err(refused)?;
            let last = bus.saturating_add(u64::from(len).saturating_sub(1));
            *slot = Mapped { bus, len };
            if last > top {
                return Err(Cause::Unsupported("a segment above 4 GiB: this DMA has 32-bit addresses"));
            }
            if bus & u64::from(mask) != 0 {
                return Err(Cause::Unsupported(
                    "a segment that does not start on a multiple of the FIFO's word",
                ));
            }
            left = left.saturating_sub(u64::from(len));
            self.describe(next, bus, len, left == 0)?;
        }
        if left == 0 { Ok(()) } else { Err(Cause::Unsupported("a payload shorter than the data phase")) }
    }

    /// Writes the descriptors of one segment.
    fn describe(&mut self, next: bool, bus: u64, len: u32, last_segment: bool) -> Result<(), Cause> {
        let (mut at, mut left, first) = (bus, len, self.set(next).first);
        while left > 0 {
            let chunk = left.min(CHUNK);
            left = left.saturating_sub(chunk);
            let k = self.set(next).used;
            if k >= self.ring.len {
                return Err(Cause::Unsupported("more descriptors than the ring holds"));
            }
            let used = k.saturating_add(1);
            self.set_mut(next).used = used;
            let after = self.address(first, used);
            self.write(first, k, &Descriptor::chained(k, chunk, at, after, last_segment && left == 0));
            at = at.saturating_add(chunk.into());
        }
        Ok(())
    }

    /// Whether the controller has closed the last descriptor (its write may reach memory late).
    pub(crate) fn closed(&self) -> bool {
        let set = self.set(false);
        let at = self.offset(set.first, set.used.saturating_sub(1));
        self.ring.window.read32(at) & Control::OWN.bits() == 0
    }

    /// After a reset: no descriptor of the running transfer belongs to the controller any more. The next one's are not
    /// in its hands yet.
    pub(crate) fn disown(&mut self) {
        let set = self.set(false);
        for k in 0..set.used {
            self.ring.window.write32(self.offset(set.first, k), 0);
        }
    }

    /// Gives everything back to the payload.
    pub(crate) fn unmap_all<P: Payload, D: Dma<P>>(&mut self, next: bool, payload: &mut P, dma: &mut D) {
        let set = self.set_mut(next);
        for (i, m) in set.mapped.iter().enumerate().take(set.segments) {
            if m.len > 0 {
                dma.unmap(payload, i, m.len as usize, m.bus, set.dir);
            }
        }
        set.segments = 0;
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

/// FIFOTH for blocks of `block_words` words: watermarks and bursts that divide the block, half the FIFO and each
/// other, so that no request is left over at the end (`spec/dw-mshc.md` §1.5; `dw-mshc-quirks.md` Q35, Q61).
#[must_use]
pub(crate) fn fifoth(depth: u16, block_words: u32) -> u32 {
    let depth = u32::from(depth.max(4));
    let tx = depth >> 1;
    let (mut code, mut burst) = (0_u32, 1_u32);
    for (c, size) in [(1, 4_u32), (2, 8), (3, 16), (4, 32), (5, 64), (6, 128), (7, 256)] {
        let divides = |n: u32| n.checked_rem(size) == Some(0);
        if size <= tx && divides(block_words) && divides(depth.saturating_sub(tx)) {
            (code, burst) = (c, size);
        }
    }
    code << 28 | burst.saturating_sub(1) << 16 | tx
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_hal::Batch;
    use mmc_mock::{Buf, BufBatch, Memory, MemoryDma, Window};
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const LOW: u64 = 0x8000_0000;

    fn idmac(memory: &Memory, descriptors: u32) -> Idmac<Window> {
        let at = memory.alloc((descriptors * SIZE) as usize);
        Idmac::new(Ring::new(memory.window(at, descriptors * SIZE), at, descriptors * SIZE).unwrap())
    }

    #[test]
    fn the_hsdk_value_and_the_short_blocks() {
        assert_eq!(fifoth(16, 128), 0x2007_0008, "as the other drivers have it for 512 bytes");
        assert_eq!(fifoth(16, 16), 0x2007_0008, "64 bytes");
        assert_eq!(fifoth(16, 2), 0x0000_0008, "8 bytes: single words, a request for each");
        assert_eq!(fifoth(256, 128), 0x607f_0080);
    }

    proptest! {
        #[test]
        fn bursts_divide_everything(depth in prop::sample::select(vec![4_u16, 16, 32, 64, 128, 256, 1024]),
                                    words in 1_u32..=512) {
            let f = fifoth(depth, words);
            let (tx, rx, code) = (f & 0xfff, (f >> 16) & 0xfff, f >> 28);
            let burst = if code == 0 { 1 } else { 2 << code };
            prop_assert_eq!(words % burst, 0);
            prop_assert_eq!((rx + 1) % burst, 0);
            prop_assert_eq!((u32::from(depth) - tx) % burst, 0);
            prop_assert!(tx >= 1 && rx <= u32::from(depth) - 2);
        }

        /// Every byte in exactly one descriptor, in order; none longer than a page; first, last and chain right.
        #[test]
        fn descriptors_cover_the_data_phase_exactly(lens in prop::collection::vec(1_usize..=4000, 1..40),
                                                    cut in 0_u64..=64) {
            let memory = Memory::new(LOW, LOW + 0x100_0000);
            let mut idmac = idmac(&memory, 512);
            let mut dma = MemoryDma::new(memory.clone(), u32::MAX.into());
            let mut batch = BufBatch::new(64);
            for l in &lens {
                let fits = batch.push(Buf(vec![0; l * 4]), 0, l * 4).is_ok();
                prop_assert!(fits);
            }
            let total: u64 = lens.iter().map(|l| *l as u64 * 4).sum();
            let bytes = total.saturating_sub(cut * 4).max(4);
            prop_assert_eq!(idmac.load(false, &mut batch, bytes, 4, Dir::Read, &mut dma), Ok(()));
            let read = |k: u32, w: u32| idmac.ring.window.read32(k * SIZE + w * 4);
            let mut seen = 0_u64;
            for k in 0..idmac.set(false).used {
                let (des0, len) = (read(k, 0), read(k, 1));
                prop_assert!(len > 0 && len <= CHUNK);
                prop_assert_eq!(des0 & 8 != 0, k == 0);
                prop_assert_eq!(des0 & 4 != 0, k + 1 == idmac.set(false).used);
                prop_assert_eq!(des0 & 2 != 0, k + 1 != idmac.set(false).used, "an interrupt for the last only");
                prop_assert_eq!(u64::from(read(k, 3)), idmac.base() + u64::from((k + 1) * SIZE));
                let mapped = memory.with(read(k, 2).into(), |b| b.len() as u64).unwrap_or(0);
                prop_assert!(mapped >= u64::from(len), "the chunk lies inside one mapped segment");
                seen += u64::from(len);
            }
            prop_assert_eq!(seen, bytes);
            idmac.unmap_all(false, &mut batch, &mut dma);
            prop_assert_eq!(memory.regions(), 1, "only the ring is left");
            prop_assert_eq!(batch.bytes() as u64, total);
        }

        /// What `limits` allows is never refused for want of descriptors, however it is cut.
        #[test]
        fn the_stated_limits_always_fit(n in 2_u32..=512, seed: u64) {
            let memory = Memory::new(LOW, LOW + 0x400_0000);
            let mut idmac = idmac(&memory, n);
            let (blocks, segments) = idmac.limits();
            let words = blocks * 128;
            let mut cuts: Vec<u32> = (1..u32::from(segments).min(words)).map(|i| {
                (seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 33) as u32 % words
            }).collect();
            cuts.extend([0, words]);
            cuts.sort_unstable();
            let mut batch = BufBatch::new(600);
            for w in cuts.windows(2) {
                let len = (w[1] - w[0]) as usize * 4;
                let fits = batch.push(Buf(vec![0; len]), 0, len).is_ok();
                prop_assert!(fits);
            }
            let mut dma = MemoryDma::new(memory.clone(), u32::MAX.into());
            prop_assert_eq!(idmac.load(false, &mut batch, u64::from(words) * 4, 4, Dir::Write, &mut dma), Ok(()));
            idmac.unmap_all(false, &mut batch, &mut dma);
        }
    }

    #[test]
    fn memory_above_4_gib_is_refused_and_nothing_stays_mapped() {
        let low = Memory::new(LOW, LOW + 0x1_0000);
        let mut idmac = idmac(&low, 16);
        let high = Memory::new(0xffff_fe00, 0x1_0001_0000);
        let mut dma = MemoryDma::new(high.clone(), u64::MAX);
        let mut long = Buf(vec![9; 1024]);
        let over = idmac.load(false, &mut long, 1024, 4, Dir::Read, &mut dma);
        assert_eq!(over, Err(Cause::Unsupported("a segment above 4 GiB: this DMA has 32-bit addresses")));
        assert_eq!((long.0.len(), high.regions()), (1024, 0));
        // The first of two segments fits, the second does not: both come back.
        let high = Memory::new(0xffff_fe00, 0x1_0001_0000);
        let mut dma = MemoryDma::new(high.clone(), u64::MAX);
        let mut two = BufBatch::new(2);
        two.push(Buf(vec![5; 256]), 0, 256).unwrap();
        two.push(Buf(vec![6; 256]), 0, 256).unwrap();
        assert_eq!(idmac.load(false, &mut two, 512, 4, Dir::Read, &mut dma), over);
        assert_eq!((two.bytes(), two.segment(1).map(<[u8]>::len), high.regions()), (512, Some(256), 0));
    }

    #[test]
    fn what_the_memory_does_not_let_the_dma_have_is_told_apart() {
        let says = |e, text: &str| {
            assert!(matches!(refused(e), Cause::Unsupported(why) if why.contains(text)), "{e:?}")
        };
        says(DmaError::Address { bus: 1 << 32, mask: 0xffff_ffff }, "address mask");
        says(DmaError::Alignment { bus: 2, len: 3, align: 4 }, "aligned");
        says(DmaError::NoSegment(4), "lacks one of its segments");
        assert_eq!(refused(DmaError::Full), Cause::Dma);
    }

    /// A payload that has empty segments, too.
    struct Pieces(Vec<Vec<u8>>);

    impl Payload for Pieces {
        fn segments(&self) -> usize {
            self.0.len()
        }
        fn segment(&self, i: usize) -> Option<&[u8]> {
            self.0.get(i).map(Vec::as_slice)
        }
        fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
            self.0.get_mut(i).map(Vec::as_mut_slice)
        }
    }

    /// A mapping that keeps account of which segments are the device's.
    #[derive(Default)]
    struct Account(Vec<(usize, usize)>);

    impl Dma<Pieces> for Account {
        fn mask(&self) -> u64 {
            u32::MAX.into()
        }
        fn map(&mut self, _: &mut Pieces, i: usize, len: usize, _: Dir) -> Result<u64, DmaError> {
            self.0.push((i, len));
            Ok(LOW + 4096 * i as u64)
        }
        fn unmap(&mut self, _: &mut Pieces, i: usize, len: usize, bus: u64, _: Dir) {
            assert_eq!(bus, LOW + 4096 * i as u64);
            let at = self.0.iter().position(|mapped| *mapped == (i, len));
            self.0.remove(at.unwrap_or_else(|| panic!("segment {i} is not mapped: {:?}", self.0)));
        }
        fn publish(&self) {}
    }

    #[test]
    fn what_was_mapped_is_unmapped_once_and_an_empty_segment_never() {
        let memory = Memory::new(LOW, LOW + 0x1_0000);
        let (mut idmac, mut account) = (idmac(&memory, 16), Account::default());
        let mut pieces = Pieces([512, 0, 256, 256, 8].map(|len| vec![0; len]).to_vec());
        assert_eq!(idmac.load(false, &mut pieces, 1024, 4, Dir::Read, &mut account), Ok(()));
        assert_eq!(account.0, [(0, 512), (2, 256), (3, 256)]);
        idmac.unmap_all(false, &mut pieces, &mut account);
        assert_eq!(account.0, []);
        idmac.unmap_all(false, &mut pieces, &mut account);
    }

    #[test]
    fn a_segment_may_end_on_the_last_address_there_is() {
        let low = Memory::new(LOW, LOW + 0x1_0000);
        let mut idmac = idmac(&low, 16);
        for (len, mask, fits) in [
            (512, u64::MAX, true),
            (512, 0xffff_ffff, true),
            (512, 0xffff_fffe, false),
            (516, u64::MAX, false),
        ] {
            let high = Memory::new(0xffff_fe00, 0x1_0001_0000);
            let mut dma = MemoryDma::new(high.clone(), mask);
            let mut buf = Buf(vec![1; len]);
            assert_eq!(
                idmac.load(false, &mut buf, len as u64, 4, Dir::Write, &mut dma).is_ok(),
                fits,
                "{len} {mask:x}"
            );
            idmac.unmap_all(false, &mut buf, &mut dma);
            assert_eq!((buf.0.len(), high.regions()), (len, 0));
        }
    }

    #[test]
    fn odd_lengths_and_rings_that_cannot_be_are_refused_by_name() {
        let memory = Memory::new(LOW, LOW + 0x1_0000);
        let mut idmac = idmac(&memory, 2);
        let mut dma = MemoryDma::new(memory.clone(), u32::MAX.into());
        let mut odd = Buf(vec![0; 510]);
        assert!(matches!(
            idmac.load(false, &mut odd, 510, 4, Dir::Read, &mut dma),
            Err(Cause::Unsupported(_))
        ));
        let mut long = Buf(vec![0; 3 * 4096]);
        let too_many = idmac.load(false, &mut long, 3 * 4096, 4, Dir::Read, &mut dma);
        assert_eq!(too_many, Err(Cause::Unsupported("more descriptors than the ring holds")));
        assert_eq!((long.0.len(), memory.regions()), (3 * 4096, 1));
        assert!(Ring::new(memory.window(LOW, 64), LOW + 4, 64).is_err());
        assert!(Ring::new(memory.window(LOW, 64), 1 << 32, 64).is_err());
        assert!(Ring::new(memory.window(LOW, 64), LOW, 16).is_err());
    }
}

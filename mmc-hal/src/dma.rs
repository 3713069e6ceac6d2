//! Memory that a bus master touches.

use crate::buffer::{Dir, Payload};
use core::ptr::NonNull;

/// Why a segment cannot be given to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmaError {
    /// The payload has no such segment.
    #[error("the payload has no segment {0}")]
    NoSegment(usize),
    /// The bus address (or its end) is beyond what the device can address.
    #[error("bus address {bus:#x} is beyond the device's address mask {mask:#x}: use memory below it")]
    Address {
        /// The address that does not fit.
        bus: u64,
        /// The highest address the device can reach.
        mask: u64,
    },
    /// Start or length is not a multiple of what the device needs.
    #[error("a segment of {len} bytes at {bus:#x} is not aligned to {align}")]
    Alignment {
        /// Bus address of the segment.
        bus: u64,
        /// Its length in bytes.
        len: usize,
        /// What both must be multiples of.
        align: u32,
    },
    /// No room in the mapping unit.
    #[error("no more DMA mappings are free")]
    Full,
}

/// Address translation, cache maintenance and ownership for the payloads `P` of one bus master.
///
/// A segment that is mapped belongs to the device: the caller neither reads nor writes it until `unmap`.
/// An implementation may enforce that (the mock moves the bytes out of the payload); real memory relies on
/// `Supervised` in `mmc-proto`, which keeps the payload until the device has stopped.
///
/// The trait is safe to implement because a wrong address alone harms nobody: it is the register write that
/// starts the device, and whoever made the [`Volatile`](crate::Volatile) window has promised that for the
/// driver and its `Dma` together.
pub trait Dma<P: Payload>: Send {
    /// The highest bus address the device may be given.
    fn mask(&self) -> u64;
    /// Gives segment `i` of `payload`, its first `len` bytes, to the device; returns its bus address. Caches are
    /// cleaned for [`Dir::Write`], cleaned and invalidated for [`Dir::Read`].
    ///
    /// # Errors
    /// [`DmaError`]; nothing is mapped then.
    fn map(&mut self, payload: &mut P, i: usize, len: usize, dir: Dir) -> Result<u64, DmaError>;
    /// Takes segment `i` back, after the device has stopped. Caches are invalidated for [`Dir::Read`].
    fn unmap(&mut self, payload: &mut P, i: usize, len: usize, bus: u64, dir: Dir);
    /// Orders all writes to mapped memory before the next register write.
    fn publish(&self);
}

/// One piece of memory as the processor and, where an operating system has mapped it, the bus see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where the processor sees it.
    pub cpu: NonNull<u8>,
    /// Bytes.
    pub len: usize,
    /// Its bus address, if somebody has mapped it already.
    pub bus: Option<u64>,
}

/// A payload whose memory a device may use.
///
/// # Safety
/// The memory of every segment stays valid and in place, and is touched by nobody else, from the moment
/// `dma_segment` was called until the payload is next used through a `&mut` to it or dropped, even while the
/// payload itself is moved.
pub unsafe trait DmaPayload: Payload + 'static {
    /// Segment `i`, `None` past the end.
    fn dma_segment(&mut self, i: usize) -> Option<Segment>;
}

/// A buffer in memory that lives for ever, kept as a raw pointer so that moving the value leaves the address
/// given to the device valid.
#[derive(Debug)]
pub struct DmaBuf {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: DmaBuf owns its memory exclusively, as the `&'static mut [u8]` it was made of.
unsafe impl Send for DmaBuf {}

impl From<&'static mut [u8]> for DmaBuf {
    fn from(s: &'static mut [u8]) -> Self {
        let len = s.len();
        Self { ptr: NonNull::from(s).cast(), len }
    }
}

impl DmaBuf {
    /// The memory back.
    #[must_use]
    pub fn into_inner(self) -> &'static mut [u8] {
        // SAFETY: made from a `&'static mut [u8]` of this length, owned exclusively.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Payload for DmaBuf {
    fn segments(&self) -> usize {
        1
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        // SAFETY: as in `into_inner`, borrowed for as long as `self` is.
        (i == 0).then(|| unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) })
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        // SAFETY: as in `into_inner`, borrowed for as long as `self` is.
        (i == 0).then(|| unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) })
    }
}

// SAFETY: the memory is 'static and owned by the value.
unsafe impl DmaPayload for DmaBuf {
    fn dma_segment(&mut self, i: usize) -> Option<Segment> {
        (i == 0).then_some(Segment { cpu: self.ptr, len: self.len, bus: None })
    }
}

// SAFETY: a batch's segments are ranges of its buffers' segments, which hold the promise.
unsafe impl<B: DmaPayload, const K: usize> DmaPayload for crate::Gather<B, K> {
    fn dma_segment(&mut self, i: usize) -> Option<Segment> {
        let s = self.segment_mut(i)?;
        Some(Segment { len: s.len(), cpu: NonNull::from(s).cast(), bus: None })
    }
}

// SAFETY: as for `Gather`.
unsafe impl<B: DmaPayload> DmaPayload for crate::Lent<B> {
    fn dma_segment(&mut self, i: usize) -> Option<Segment> {
        let s = self.segment_mut(i)?;
        Some(Segment { len: s.len(), cpu: NonNull::from(s).cast(), bus: None })
    }
}

/// Cache-coherent memory at a fixed distance between processor and bus addresses (a bare-metal board with
/// coherent DMA or uncached buffers).
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// Bus address minus processor address, wrapping.
    pub offset: u64,
    /// Highest bus address the device can reach.
    pub mask: u64,
    /// Start and length of a segment are multiples of this; 4 for a 32-bit IDMAC.
    pub align: u32,
}

impl<P: DmaPayload> Dma<P> for Linear {
    fn mask(&self) -> u64 {
        self.mask
    }
    fn map(&mut self, payload: &mut P, i: usize, len: usize, _: Dir) -> Result<u64, DmaError> {
        let s = payload.dma_segment(i).ok_or(DmaError::NoSegment(i))?;
        let len = len.min(s.len);
        let bus = match s.bus {
            Some(bus) => bus,
            None => (s.cpu.as_ptr().addr() as u64).wrapping_add(self.offset),
        };
        let last = bus.saturating_add((len as u64).saturating_sub(1));
        if last > self.mask {
            return Err(DmaError::Address { bus, mask: self.mask });
        }
        let align = u64::from(self.align.max(1));
        if bus.checked_rem(align) != Some(0) || (len as u64).checked_rem(align) != Some(0) {
            return Err(DmaError::Alignment { bus, len, align: self.align });
        }
        Ok(bus)
    }
    fn unmap(&mut self, _: &mut P, _: usize, _: usize, _: u64, _: Dir) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
    }
    fn publish(&self) {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::Batch;
    use std::boxed::Box;

    fn buf(n: usize) -> DmaBuf {
        DmaBuf::from(Box::leak(std::vec![0_u32; n / 4].into_boxed_slice()).as_flattened_bytes())
    }
    trait Flat {
        fn as_flattened_bytes(&'static mut self) -> &'static mut [u8];
    }
    impl Flat for [u32] {
        fn as_flattened_bytes(&'static mut self) -> &'static mut [u8] {
            // SAFETY: u8 has no alignment and every bit pattern is valid.
            unsafe { core::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len() * 4) }
        }
    }

    #[test]
    fn an_address_beyond_the_mask_is_refused_never_truncated() {
        let mut b = buf(512);
        let mut dma = Linear { offset: 0, mask: 0xff, align: 4 };
        assert!(matches!(dma.map(&mut b, 0, 512, Dir::Read), Err(DmaError::Address { .. })));
        let base = b.dma_segment(0).unwrap().cpu.as_ptr().addr() as u64;
        let mut dma = Linear { offset: 0_u64.wrapping_sub(base), mask: 511, align: 4 };
        assert_eq!(dma.map(&mut b, 0, 512, Dir::Read), Ok(0), "the last byte is exactly at the mask");
        dma.mask = 510;
        assert!(dma.map(&mut b, 0, 512, Dir::Read).is_err());
        assert_eq!(dma.map(&mut b, 1, 512, Dir::Read), Err(DmaError::NoSegment(1)));
        assert!(matches!(dma.map(&mut b, 0, 511, Dir::Read), Err(DmaError::Alignment { .. })));
    }

    #[test]
    fn the_device_is_given_the_very_bytes_the_processor_lends() {
        let mut b = buf(16);
        for (i, byte) in b.segment_mut(0).unwrap().iter_mut().enumerate() {
            *byte = i as u8;
        }
        assert_eq!((b.segments(), b.segment(1)), (1, None));
        assert_eq!(b.segment_mut(1), None);
        let at = b.segment(0).unwrap().as_ptr().addr();
        let whole = b.dma_segment(0).unwrap();
        assert_eq!((whole.cpu.as_ptr().addr(), whole.len, whole.bus), (at, 16, None));
        assert_eq!(b.dma_segment(1), None);

        let mut batch: crate::Gather<DmaBuf, 2> = crate::Gather::new();
        batch.push(b, 4, 8).unwrap();
        batch.push(buf(8), 0, 8).unwrap();
        let part = batch.dma_segment(0).unwrap();
        assert_eq!((part.cpu.as_ptr().addr(), part.len, part.bus), (at + 4, 8, None));
        assert_eq!((batch.dma_segment(1).unwrap().len, batch.dma_segment(2)), (8, None));

        let b = batch.pop().unwrap();
        let mut lent = crate::Lent::new(Box::leak(Box::new([const { None }; 1])));
        lent.push(b, 8, 4).unwrap();
        let part = lent.dma_segment(0).unwrap();
        assert_eq!((part.cpu.as_ptr().addr(), part.len, part.bus), (at + 8, 4, None));
        assert_eq!(lent.dma_segment(1), None);
        assert_eq!(lent.pop().unwrap().into_inner()[8..12], [8, 9, 10, 11]);

        let linear = Linear { offset: 0, mask: 0xffff_ffff, align: 4 };
        assert_eq!(Dma::<DmaBuf>::mask(&linear), 0xffff_ffff);
    }
}

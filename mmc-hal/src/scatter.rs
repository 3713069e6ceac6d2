//! One request's data in several places of memory.

use crate::buffer::Payload;
use crate::dma::{DmaPayload, Segment};
use core::marker::PhantomData;

/// Why some buffers make no scatter list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ScatterError {
    /// Fewer buffers than were to be used.
    #[error("a list of the first {used} buffers, of storage that holds {len}")]
    Short {
        /// How many were to be used.
        used: usize,
        /// How many there are.
        len: usize,
    },
    /// A buffer that is a list itself: its further segments would be lost.
    #[error("buffer {index} has {segments} segments: a scatter list is made of buffers of one")]
    Nested {
        /// Which.
        index: usize,
        /// How many segments it has.
        segments: usize,
    },
    /// A buffer without a byte.
    #[error("buffer {0} is empty: leave it out")]
    Empty(usize),
}

/// A request's buffer made of several: its segments are the first segments of the buffers in `S`, in order, of any lengths.
///
/// `S` is an array, a `&'static mut [B]`, or whatever else holds buffers; nothing is copied and nothing allocated. What hosts
/// make of it: all of this workspace take segments of any length, and blocks that lie across several; a DesignWare or SDHC
/// controller moves a command by DMA only if each segment begins and ends on a word (4 bytes, or 8), and by the processor
/// otherwise. More segments than a host takes in one command are for the layer above to divide (`mmc-block` does, between
/// blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter<B, S> {
    storage: S,
    used: usize,
    buffers: PhantomData<fn() -> B>,
}

impl<B: Payload, S: AsRef<[B]> + AsMut<[B]>> Scatter<B, S> {
    /// All buffers in `storage`.
    ///
    /// # Errors
    /// The storage comes back, and why.
    pub fn new(storage: S) -> Result<Self, (S, ScatterError)> {
        let len = storage.as_ref().len();
        Self::first(storage, len)
    }
    /// The first `used` buffers in `storage`; the others stay where they are.
    ///
    /// # Errors
    /// The storage comes back, and why.
    pub fn first(storage: S, used: usize) -> Result<Self, (S, ScatterError)> {
        match flaw(storage.as_ref(), used) {
            None => Ok(Self { storage, used, buffers: PhantomData }),
            Some(error) => Err((storage, error)),
        }
    }
    /// The storage back.
    pub fn into_storage(self) -> S {
        self.storage
    }
    /// The buffers, in order.
    pub fn buffers(&self) -> &[B] {
        self.storage.as_ref().get(..self.used).unwrap_or(&[])
    }
    /// The buffers, in order.
    pub fn buffers_mut(&mut self) -> &mut [B] {
        self.storage.as_mut().get_mut(..self.used).unwrap_or(&mut [])
    }
}

fn flaw<B: Payload>(buffers: &[B], used: usize) -> Option<ScatterError> {
    let Some(buffers) = buffers.get(..used) else {
        return Some(ScatterError::Short { used, len: buffers.len() });
    };
    buffers.iter().enumerate().find_map(|(index, b)| match b.segments() {
        1 if b.bytes() == 0 => Some(ScatterError::Empty(index)),
        1 => None,
        segments => Some(ScatterError::Nested { index, segments }),
    })
}

impl<B: Payload, S: AsRef<[B]> + AsMut<[B]> + Send> Payload for Scatter<B, S> {
    fn segments(&self) -> usize {
        self.used
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        self.buffers().get(i)?.segment(0)
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        self.buffers_mut().get_mut(i)?.segment_mut(0)
    }
}

// SAFETY: the buffers are in the array, and hold the promise each for its own memory. Only for storage that is known to give
// the same buffers each time: a foreign `AsMut` might not.
unsafe impl<B: DmaPayload, const N: usize> DmaPayload for Scatter<B, [B; N]> {
    fn dma_segment(&mut self, i: usize) -> Option<Segment> {
        self.buffers_mut().get_mut(i)?.dma_segment(0)
    }
}

// SAFETY: as for an array; the storage lives for ever.
unsafe impl<B: DmaPayload> DmaPayload for Scatter<B, &'static mut [B]> {
    fn dma_segment(&mut self, i: usize) -> Option<Segment> {
        self.buffers_mut().get_mut(i)?.dma_segment(0)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::{Batch, Dir, Dma, DmaBuf, Gather, Linear};
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn a_list_lends_its_buffers_as_segments_and_gives_them_back() {
        let (mut a, mut b, mut c) = ([1, 2, 3], [4], [5, 6]);
        let mut list = Scatter::new([&mut a[..], &mut b, &mut c]).unwrap();
        assert_eq!((list.segments(), list.bytes()), (3, 6));
        assert_eq!((list.segment(1), list.segment(3)), (Some(&[4][..]), None));
        list.segment_mut(2).unwrap()[1] = 60;
        let [_, _, last] = list.into_storage();
        assert_eq!(last, [5, 60]);
    }

    #[test]
    fn in_a_batch_a_range_of_it_is_lent_across_its_segments() {
        let list = |byte: u8| Scatter::new([[byte; 3], [byte + 1; 3], [byte + 2; 3]]).unwrap();
        let mut batch: Gather<_, 2> = Gather::new();
        batch.push(list(10), 2, 5).unwrap();
        batch.push(list(20), 0, 9).unwrap();
        let all: Vec<Vec<u8>> = (0..batch.segments()).map(|i| batch.segment(i).unwrap().to_vec()).collect();
        assert_eq!(all, [vec![10], vec![11; 3], vec![12], vec![20; 3], vec![21; 3], vec![22; 3]]);
        assert_eq!(batch.push(list(30), 0, 9).unwrap_err().bytes(), 9, "full");
        assert_eq!(batch.pop(), Some(list(10)));
    }

    #[test]
    fn what_makes_no_list_comes_back_with_the_reason() {
        let (storage, e) = Scatter::first([[1; 4], [2; 4]], 3).unwrap_err();
        assert_eq!((storage, e), ([[1; 4], [2; 4]], ScatterError::Short { used: 3, len: 2 }));
        let (_, e) = Scatter::<[u8; 0], _>::new([[], []]).unwrap_err();
        assert_eq!(e, ScatterError::Empty(0));
        let pair = Scatter::new([[1; 2], [2; 2]]).unwrap();
        let (storage, e) = Scatter::new([pair]).unwrap_err();
        assert_eq!(e, ScatterError::Nested { index: 0, segments: 2 });
        assert_eq!(storage[0], pair);
        let none = Scatter::<[u8; 4], _>::new([]).unwrap();
        assert_eq!((none.segments(), none.bytes()), (0, 0), "a list of nothing is for a disk to refuse");
    }

    #[test]
    fn each_segment_is_mapped_where_its_buffer_is() {
        let memory: &'static mut [u8] = Box::leak(vec![0; 64].into_boxed_slice());
        let base = memory.as_ptr().addr() as u64;
        let (a, b) = memory.split_at_mut(16);
        let (b, c) = b.split_at_mut(20);
        let storage: &'static mut [DmaBuf] =
            Box::leak(Box::new([DmaBuf::from(c), DmaBuf::from(a), DmaBuf::from(b)]));
        let mut list = Scatter::new(storage).unwrap();
        let mut dma = Linear { offset: 0_u64.wrapping_sub(base), mask: 63, align: 1 };
        let at: Vec<u64> = (0..3).map(|i| dma.map(&mut list, i, 64, Dir::Read).unwrap()).collect();
        assert_eq!(at, [36, 0, 16]);
        assert!(dma.map(&mut list, 3, 64, Dir::Read).is_err());
        let mut array = Scatter::new([DmaBuf::from(Box::leak(vec![0; 8].into_boxed_slice()))]).unwrap();
        assert!(array.dma_segment(0).is_some_and(|s| s.len == 8) && array.dma_segment(1).is_none());
    }
}

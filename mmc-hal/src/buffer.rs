//! Buffers that move: into a transfer, and back out of it.

/// Which way the data goes, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dir {
    /// From the card to memory.
    Read,
    /// From memory to the card.
    Write,
}

/// What one transfer reads into or writes from: a list of byte segments, in order.
pub trait Payload: Send {
    /// How many segments.
    fn segments(&self) -> usize;
    /// Segment `i`, `None` past the end.
    fn segment(&self, i: usize) -> Option<&[u8]>;
    /// Segment `i`, `None` past the end.
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]>;
    /// The sum of all segments' lengths.
    fn bytes(&self) -> usize {
        let mut sum = 0_usize;
        for i in 0..self.segments() {
            sum = sum.saturating_add(self.segment(i).map_or(0, <[u8]>::len));
        }
        sum
    }
}

impl Payload for &mut [u8] {
    fn segments(&self) -> usize {
        1
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        (i == 0).then_some(&**self)
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        (i == 0).then_some(&mut **self)
    }
}

impl<const N: usize> Payload for [u8; N] {
    fn segments(&self) -> usize {
        1
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        (i == 0).then_some(&self[..])
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        (i == 0).then_some(&mut self[..])
    }
}

/// A payload that gathers the buffers of several requests into one transfer.
///
/// A disk owns one (a second when it prepares the next command): it is filled, moved to the host, comes
/// back, and is drained in the order it was filled.
pub trait Batch: Payload {
    /// One request's buffer.
    type Buffer: Payload;
    /// How many buffers it can hold.
    fn capacity(&self) -> usize;
    /// How many it holds.
    fn len(&self) -> usize;
    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends `b`, lending only the bytes `from..from + len` of it to the transfer (a part of a request).
    ///
    /// # Errors
    /// Gives `b` back when the batch is full or the range is not inside `b`.
    fn push(&mut self, b: Self::Buffer, from: usize, len: usize) -> Result<(), Self::Buffer>;
    /// Takes the first buffer out; the others move up.
    fn pop(&mut self) -> Option<Self::Buffer>;
}

#[derive(Debug)]
struct Entry<B> {
    buffer: B,
    from: usize,
    len: usize,
}

/// A [`Batch`] by value: right for up to about eight buffers (each enum on the way grows with it).
#[derive(Debug)]
pub struct Gather<B, const K: usize> {
    slots: [Option<Entry<B>>; K],
    len: usize,
}

impl<B, const K: usize> Gather<B, K> {
    /// An empty batch for up to `K` buffers.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: [const { None }; K], len: 0 }
    }
}

impl<B, const K: usize> Default for Gather<B, K> {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`Batch`] in storage lent for ever: three words, any length; what DMA drivers should use.
///
/// The storage is `'static` on purpose: with a shorter loan, forgetting the host would end the loan, and
/// safe code could take the buffers while the device still writes to them.
pub struct Lent<B: 'static> {
    slots: &'static mut [Option<LentEntry<B>>],
    len: usize,
}

/// One place in the storage of a [`Lent`]; make the array with `[const { None }; N]`.
#[derive(Debug)]
pub struct LentEntry<B>(Entry<B>);

impl<B> core::fmt::Debug for Lent<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Lent").field("len", &self.len).field("capacity", &self.slots.len()).finish()
    }
}

impl<B> Lent<B> {
    /// An empty batch in `slots`; what the slots hold is dropped.
    pub fn new(slots: &'static mut [Option<LentEntry<B>>]) -> Self {
        slots.fill_with(|| None);
        Self { slots, len: 0 }
    }
}

fn range_ok<B: Payload>(b: &B, from: usize, len: usize) -> bool {
    from.checked_add(len).is_some_and(|end| end <= b.bytes())
}

/// Walks to segment `i` of the lent range of one entry: (segment of the buffer, from, to).
fn within<B: Payload>(e: &Entry<B>, i: &mut usize) -> Option<(usize, usize, usize)> {
    let (mut skip, mut left) = (e.from, e.len);
    for s in 0..e.buffer.segments() {
        let n = e.buffer.segment(s).map_or(0, <[u8]>::len);
        if skip >= n {
            skip = skip.saturating_sub(n);
            continue;
        }
        if left == 0 {
            return None;
        }
        let take = n.saturating_sub(skip).min(left);
        if *i == 0 {
            return Some((s, skip, skip.saturating_add(take)));
        }
        *i = i.saturating_sub(1);
        left = left.saturating_sub(take);
        skip = 0;
    }
    None
}

/// How many segments of the buffer the lent range has a part in.
fn count<B: Payload>(e: &Entry<B>) -> usize {
    let (mut skip, mut left, mut n) = (e.from, e.len, 0_usize);
    for s in 0..e.buffer.segments() {
        let len = e.buffer.segment(s).map_or(0, <[u8]>::len);
        if left == 0 {
            break;
        }
        if skip >= len {
            skip = skip.saturating_sub(len);
            continue;
        }
        left = left.saturating_sub(len.saturating_sub(skip));
        skip = 0;
        n = n.saturating_add(1);
    }
    n
}

macro_rules! batch {
    ([$($gen:tt)*] $ty:ty, $wrap:expr, $get:expr, $get_mut:expr, $take:expr) => {
        impl<$($gen)*> Payload for $ty {
            fn segments(&self) -> usize {
                self.slots.iter().flatten().map($get).map(count).fold(0, usize::saturating_add)
            }
            fn segment(&self, i: usize) -> Option<&[u8]> {
                let mut i = i;
                for e in self.slots.iter().flatten().map($get) {
                    if let Some((s, from, to)) = within(e, &mut i) {
                        return e.buffer.segment(s)?.get(from..to);
                    }
                }
                None
            }
            fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
                let mut i = i;
                for e in self.slots.iter_mut().flatten().map($get_mut) {
                    if let Some((s, from, to)) = within(e, &mut i) {
                        return e.buffer.segment_mut(s)?.get_mut(from..to);
                    }
                }
                None
            }
            fn bytes(&self) -> usize {
                self.slots.iter().flatten().map($get).map(|e| e.len).fold(0, usize::saturating_add)
            }
        }
        impl<$($gen)*> Batch for $ty {
            type Buffer = B;
            fn capacity(&self) -> usize {
                self.slots.len()
            }
            fn len(&self) -> usize {
                self.len
            }
            fn push(&mut self, b: B, from: usize, len: usize) -> Result<(), B> {
                if !range_ok(&b, from, len) {
                    return Err(b);
                }
                match self.slots.get_mut(self.len) {
                    Some(slot) => {
                        *slot = Some($wrap(Entry { buffer: b, from, len }));
                        self.len = self.len.saturating_add(1);
                        Ok(())
                    }
                    None => Err(b),
                }
            }
            fn pop(&mut self) -> Option<B> {
                let first = self.slots.first_mut()?.take()?;
                self.slots.rotate_left(1);
                self.len = self.len.saturating_sub(1);
                Some($take(first).buffer)
            }
        }
    };
}
batch!([B: Payload, const K: usize] Gather<B, K>, |e| e, |e| e, |e| e, |e: Entry<B>| e);
batch!([B: Payload + 'static] Lent<B>, LentEntry, |e| &e.0, |e| &mut e.0, |e: LentEntry<B>| e.0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_lends_ranges_and_gives_the_buffers_back_in_order() {
        let mut g: Gather<[u8; 4], 2> = Gather::new();
        g.push([1, 2, 3, 4], 1, 2).unwrap();
        g.push([5, 6, 7, 8], 0, 4).unwrap();
        assert_eq!(g.push([0; 4], 0, 4), Err([0; 4]), "full");
        assert_eq!((g.segments(), g.bytes(), g.len(), g.is_empty()), (2, 6, 2, false));
        assert_eq!(g.segment(0), Some(&[2, 3][..]));
        g.segment_mut(1).unwrap()[0] = 50;
        assert_eq!(g.segment(2), None);
        assert_eq!(g.pop(), Some([1, 2, 3, 4]));
        assert_eq!(g.pop(), Some([50, 6, 7, 8]));
        assert_eq!(g.pop(), None);
    }

    #[test]
    fn a_range_outside_the_buffer_is_refused() {
        let mut g: Gather<[u8; 4], 2> = Gather::new();
        assert_eq!(g.push([0; 4], 3, 2), Err([0; 4]));
        assert_eq!(g.push([0; 4], usize::MAX, 2), Err([0; 4]));
        assert!(g.is_empty());
    }
}

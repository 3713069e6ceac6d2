//! The FIFO: a queue of bytes, counted in words.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Fifo {
    bytes: VecDeque<u8>,
    depth: usize,
    width: usize,
}

impl Fifo {
    pub(super) fn new(depth: u32, width: u32) -> Self {
        let (depth, width) = (depth as usize, width as usize);
        Self { bytes: VecDeque::with_capacity(depth * width), depth, width }
    }
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
    /// Bytes in it.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
    /// Words in it; an incomplete one counts unless more bytes of it are to come.
    pub(super) fn words(&self, more_to_come: bool) -> usize {
        if more_to_come { self.bytes.len() / self.width } else { self.bytes.len().div_ceil(self.width) }
    }
    /// Bytes that still fit.
    pub(super) fn space(&self) -> usize {
        (self.depth * self.width).saturating_sub(self.bytes.len())
    }
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }
    /// Moves the first bytes out into `to`; as many as there are.
    pub(super) fn pop_into(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(self.bytes.len());
        for (to, from) in to.iter_mut().zip(self.bytes.drain(..n)) {
            *to = from;
        }
        n
    }
    /// Drops what is left of a word when a write ends in the middle of it.
    pub(super) fn drop_padding(&mut self, sent: u64) {
        let over = usize::try_from(sent % self.width as u64).unwrap_or(0);
        if over != 0 {
            let n = (self.width - over).min(self.bytes.len());
            self.bytes.drain(..n);
        }
    }
}

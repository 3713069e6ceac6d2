//! Data through the FIFO by the processor: what DMA cannot take, any length at any place.
//!
//! The FIFO's own requests (RXDR, TXDR) stay masked: they are levels, and one that is acknowledged while words
//! are left comes back at once. The FIFO is looked after by time instead. The card clock stands still while it is full
//! (a read) or empty (a write), so a late look costs time and never a byte (`spec/dw-mshc.md` §3.5, §3.6).

use crate::reg::STATUS;
use mmc_hal::{Dir, Mmio, Payload};
use mmc_time::Instant;

/// Where the FIFO is and what a word of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Offset of DATA.
    pub(crate) at: u32,
    /// Bytes of a FIFO word: 4; 2, of which an access moves two; or 8, which is moved as two halves at +0 and +4
    /// (`spec/dw-mshc-quirks.md` Q46).
    pub(crate) width: u32,
    /// Depth in FIFO words.
    pub(crate) depth: u32,
}

/// A data phase that is moved by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pio {
    window: Window,
    dir: Dir,
    /// Bytes still to be moved.
    left: u64,
    segment: usize,
    at: usize,
    /// When a word was last moved.
    pub(crate) moved: Instant,
}

impl Pio {
    /// The first `bytes` bytes of a payload.
    pub(crate) const fn new(window: Window, dir: Dir, bytes: u64, now: Instant) -> Self {
        Self { window, dir, left: bytes, segment: 0, at: 0, moved: now }
    }

    /// Whether every byte has been moved.
    pub(crate) const fn done(&self) -> bool {
        self.left == 0
    }

    /// Moves what the FIFO has, or has room for; no more than one FIFO of words.
    pub(crate) fn pump<M: Mmio, P: Payload>(&mut self, regs: &M, payload: &mut P, now: Instant) {
        if self.done() {
            return;
        }
        let count = regs.read32(STATUS) >> 17 & 0x1fff;
        let words = match self.dir {
            Dir::Read => count.min(self.window.depth),
            Dir::Write => self.window.depth.saturating_sub(count),
        };
        // Rounds of one access or, with words of 8 bytes, two.
        let rounds = if self.window.width == 2 { words >> 1 } else { words };
        for _ in 0..rounds {
            if self.done() {
                break;
            }
            self.moved = now;
            let mut half = 0;
            while half < self.window.width {
                let offset = self.window.at.saturating_add(half);
                match self.dir {
                    Dir::Read => self.put(regs.read32(offset), payload),
                    Dir::Write => regs.write32(offset, self.get(payload)),
                }
                half = half.saturating_add(4);
            }
        }
    }

    /// The next byte's place; `None` once all are moved.
    fn next<'p, P: Payload>(&mut self, payload: &'p mut P) -> Option<&'p mut u8> {
        self.left = self.left.checked_sub(1)?;
        while payload.segment(self.segment).is_some_and(|s| s.len() <= self.at) {
            self.segment = self.segment.saturating_add(1);
            self.at = 0;
        }
        let at = self.at;
        self.at = at.saturating_add(1);
        payload.segment_mut(self.segment)?.get_mut(at)
    }

    /// The first byte of the card's stream is bits 7:0; what is left of the last word is padding.
    fn put<P: Payload>(&mut self, word: u32, payload: &mut P) {
        for byte in word.to_le_bytes() {
            if let Some(to) = self.next(payload) {
                *to = byte;
            }
        }
    }

    fn get<P: Payload>(&mut self, payload: &mut P) -> u32 {
        u32::from_le_bytes([0; 4].map(|padding: u8| self.next(payload).map_or(padding, |from| *from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::RefCell;
    use mmc_hal::Batch;
    use mmc_mock::{Buf, BufBatch};
    use std::vec;
    use std::vec::Vec;

    /// STATUS says how many words there are; DATA is a queue of words, by offset.
    struct Fake(u32, RefCell<Vec<(u32, u32)>>);
    impl Mmio for Fake {
        fn read32(&self, offset: u32) -> u32 {
            if offset == STATUS {
                return self.0 << 17 | 0x106;
            }
            let (at, word) = self.1.borrow_mut().remove(0);
            assert_eq!(at, offset);
            word
        }
        fn write32(&self, offset: u32, value: u32) {
            self.1.borrow_mut().push((offset, value));
        }
    }

    fn cut(data: &[u8], lens: &[usize]) -> BufBatch {
        let (mut batch, mut at) = (BufBatch::new(8), 0);
        for &len in lens {
            batch.push(Buf(data[at..at + len].to_vec()), 0, len).unwrap();
            at += len;
        }
        batch
    }

    #[test]
    fn words_are_spread_over_segments_of_any_length_and_the_padding_is_dropped() {
        let window = Window { at: 0x200, width: 4, depth: 16 };
        let mut payload = cut(&[0xee; 9], &[1, 0, 2, 6]);
        let mut pio = Pio::new(window, Dir::Read, 7, Instant::ZERO);
        let regs = Fake(2, RefCell::new(vec![(0x200, 0x0403_0201), (0x200, 0xff07_0605)]));
        pio.pump(&regs, &mut payload, Instant::from_secs(1));
        assert!(pio.done());
        assert_eq!(pio.moved, Instant::from_secs(1));
        let all: Vec<u8> =
            (0..payload.segments()).flat_map(|i| payload.segment(i).unwrap().to_vec()).collect();
        assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 0xee, 0xee]);
        pio.pump(&Fake(9, RefCell::default()), &mut payload, Instant::ZERO); // touches nothing
    }

    #[test]
    fn an_access_of_a_16_bit_fifo_moves_two_of_its_words() {
        let window = Window { at: 0x200, width: 2, depth: 16 };
        let mut payload = cut(&[0; 8], &[8]);
        let mut pio = Pio::new(window, Dir::Read, 8, Instant::ZERO);
        pio.pump(&Fake(3, RefCell::new(vec![(0x200, 0x0403_0201)])), &mut payload, Instant::ZERO);
        pio.pump(&Fake(2, RefCell::new(vec![(0x200, 0x0807_0605)])), &mut payload, Instant::ZERO);
        assert!(pio.done());
        assert_eq!(payload.segment(0).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
        let mut pio = Pio::new(window, Dir::Write, 8, Instant::ZERO);
        let almost_full = Fake(13, RefCell::default());
        pio.pump(&almost_full, &mut payload, Instant::ZERO);
        assert_eq!(*almost_full.1.borrow(), [(0x200, 0x0403_0201)], "room for three words takes one access");
    }

    #[test]
    fn a_write_fills_the_room_there_is_and_pads_its_last_word() {
        let window = Window { at: 0x100, width: 8, depth: 16 };
        let mut payload = cut(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[3, 6]);
        let mut pio = Pio::new(window, Dir::Write, 9, Instant::ZERO);
        let full = Fake(16, RefCell::default());
        pio.pump(&full, &mut payload, Instant::ZERO);
        assert_eq!(*full.1.borrow(), []);
        let one = Fake(15, RefCell::default());
        pio.pump(&one, &mut payload, Instant::ZERO);
        assert_eq!(*one.1.borrow(), [(0x100, 0x0403_0201), (0x104, 0x0807_0605)]);
        let empty = Fake(0, RefCell::default());
        pio.pump(&empty, &mut payload, Instant::ZERO);
        assert_eq!(*empty.1.borrow(), [(0x100, 9), (0x104, 0)], "a whole word of eight bytes");
        assert!(pio.done());
    }
}

//! Data through the buffer port by the processor: a block at a time, any length at any place.

use crate::reg::{BUFFER, PRESENT, Present};
use mmc_hal::{Dir, Mmio, Payload};

/// A data phase that is moved by hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pio {
    dir: Dir,
    block_len: u16,
    /// Blocks still to be moved.
    pub(crate) blocks: u32,
    segment: usize,
    at: usize,
}

impl Pio {
    pub(crate) const fn new(dir: Dir, block_len: u16, blocks: u32) -> Self {
        Self { dir, block_len, blocks, segment: 0, at: 0 }
    }

    /// Whether every block has been moved.
    pub(crate) const fn done(&self) -> bool {
        self.blocks == 0
    }

    /// Moves the blocks the buffer has, or has room for; sixteen at most, so that one call stays short. Whether it
    /// stopped at that.
    pub(crate) fn pump<M: Mmio, P: Payload>(&mut self, regs: &M, payload: &mut P) -> bool {
        let ready = match self.dir {
            Dir::Read => Present::READ_READY,
            Dir::Write => Present::WRITE_READY,
        };
        for _ in 0..16 {
            if self.done() || regs.read32(PRESENT) & ready.bits() == 0 {
                return false;
            }
            self.block(regs, payload);
        }
        !self.done()
    }

    /// One block; what is left of its last word is padding.
    fn block<M: Mmio, P: Payload>(&mut self, regs: &M, payload: &mut P) {
        self.blocks = self.blocks.saturating_sub(1);
        let mut left = self.block_len;
        while left > 0 {
            let take = left.min(4);
            left = left.saturating_sub(take);
            let mut word = match self.dir {
                Dir::Read => regs.read32(BUFFER),
                Dir::Write => 0,
            }
            .to_le_bytes();
            for byte in word.iter_mut().take(take.into()) {
                if let Some(place) = self.next(payload) {
                    match self.dir {
                        Dir::Read => *place = *byte,
                        Dir::Write => *byte = *place,
                    }
                }
            }
            if self.dir == Dir::Write {
                regs.write32(BUFFER, u32::from_le_bytes(word));
            }
        }
    }

    /// The next byte's place; `None` past the end of the payload.
    fn next<'p, P: Payload>(&mut self, payload: &'p mut P) -> Option<&'p mut u8> {
        while payload.segment(self.segment)?.len() <= self.at {
            self.segment = self.segment.saturating_add(1);
            self.at = 0;
        }
        let at = self.at;
        self.at = at.saturating_add(1);
        payload.segment_mut(self.segment)?.get_mut(at)
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

    /// How many blocks are ready, and the words of the port.
    struct Fake(RefCell<u32>, RefCell<Vec<u32>>);
    impl Mmio for Fake {
        fn read32(&self, offset: u32) -> u32 {
            if offset == PRESENT {
                let mut ready = self.0.borrow_mut();
                *ready = ready.saturating_sub(1);
                return if *ready > 0 { 0xc00 } else { 0 };
            }
            self.1.borrow_mut().remove(0)
        }
        fn write32(&self, offset: u32, value: u32) {
            assert_eq!(offset, BUFFER);
            self.1.borrow_mut().push(value);
        }
    }

    fn cut(lens: &[usize]) -> BufBatch {
        let (mut batch, mut n) = (BufBatch::new(8), 0);
        for &len in lens {
            batch.push(Buf((n..n + len as u8).collect()), 0, len).unwrap();
            n += len as u8;
        }
        batch
    }

    #[test]
    fn blocks_are_spread_over_segments_of_any_length_and_the_padding_is_dropped() {
        let mut payload = cut(&[1, 0, 5, 6]);
        let mut pio = Pio::new(Dir::Read, 5, 2);
        let words = vec![0x1312_1110, 0xffff_ff14, 0x2322_2120, 0xffff_ff24];
        let fake = Fake(RefCell::new(2), RefCell::new(words));
        assert!(!pio.pump(&fake, &mut payload) && !pio.done(), "one block is there");
        *fake.0.borrow_mut() = 3;
        assert!(!pio.pump(&fake, &mut payload) && pio.done());
        let all: Vec<u8> =
            (0..payload.segments()).flat_map(|i| payload.segment(i).unwrap().to_vec()).collect();
        assert_eq!(all, [0x10, 0x11, 0x12, 0x13, 0x14, 0x20, 0x21, 0x22, 0x23, 0x24, 10, 11]);
    }

    #[test]
    fn a_long_write_pauses_after_sixteen_blocks() {
        let mut payload = cut(&[3, 133]);
        let mut pio = Pio::new(Dir::Write, 8, 17);
        let fake = Fake(RefCell::new(100), RefCell::default());
        assert!(pio.pump(&fake, &mut payload), "more at once");
        assert!(!pio.pump(&fake, &mut payload) && pio.done());
        let bytes: Vec<u8> = fake.1.borrow().iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(bytes, (0..136).collect::<Vec<u8>>());
    }
}

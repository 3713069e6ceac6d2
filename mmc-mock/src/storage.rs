//! What a card remembers: sectors of 512 bytes, sparse, in chunks of 256 KiB.

use std::collections::{HashMap, VecDeque};

/// Bytes of one chunk.
const CHUNK: usize = 256 * 1024;

/// The range touches a byte behind the end; nothing was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at byte {at} do not lie inside {bytes} bytes of storage")]
pub struct OutOfRange {
    /// First byte asked for.
    pub at: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Bytes there are.
    pub bytes: u64,
}

/// Sparse storage; what was never written reads as zero.
///
/// Addresses are bytes, so that a byte-addressed SDSC card and a sector-addressed SDXC card share it. Moving a
/// long range costs one look-up and one copy per 256 KiB; memory is spent only on chunks that hold a byte other
/// than zero or once did.
#[derive(Clone, Debug, Default)]
pub struct Storage {
    sectors: u64,
    chunks: HashMap<u64, Box<[u8]>>,
    bytes_read: u64,
    bytes_written: u64,
    /// Writes that a loss of power may undo, oldest first; `None`: none is remembered.
    undo: Option<VecDeque<Undo>>,
}

/// A piece of a write that is not durable yet.
#[derive(Clone, Debug)]
struct Undo {
    at: u64,
    old: Box<[u8]>,
    new: Box<[u8]>,
}

impl Storage {
    /// The most sectors of an SD card (SDUC, 128 TiB).
    pub const MAX_SECTORS: u64 = 1 << 38;

    /// Empty storage of `sectors` × 512 bytes, at most [`Self::MAX_SECTORS`] (more is cut down to that).
    #[must_use]
    pub fn new(sectors: u64) -> Self {
        Self { sectors: sectors.min(Self::MAX_SECTORS), ..Self::default() }
    }
    /// Size in sectors of 512 bytes.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.sectors
    }
    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sectors * 512
    }
    /// Bytes read so far, back doors included.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
    /// Bytes written so far, back doors included, erases not.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }
    /// Bytes of memory in use for contents.
    #[must_use]
    pub fn resident(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    fn check(&self, at: u64, len: u64) -> Result<(), OutOfRange> {
        match at.checked_add(len) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(OutOfRange { at, len, bytes: self.bytes() }),
        }
    }
    /// Reads from byte `at` on.
    ///
    /// # Errors
    /// [`OutOfRange`]; `to` is unchanged then.
    pub fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), OutOfRange> {
        self.check(at, to.len() as u64)?;
        self.bytes_read += to.len() as u64;
        self.get(at, to);
        Ok(())
    }
    /// Writes from byte `at` on.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing is written then.
    pub fn write(&mut self, at: u64, from: &[u8]) -> Result<(), OutOfRange> {
        self.check(at, from.len() as u64)?;
        self.bytes_written += from.len() as u64;
        self.remember(at, from);
        self.put(at, from);
        Ok(())
    }
    fn put(&mut self, at: u64, from: &[u8]) {
        let (mut at, mut rest) = (at, from);
        while !rest.is_empty() {
            let (chunk, skip, n) = piece(at, rest.len());
            let (head, tail) = rest.split_at(n);
            if let Some(c) = self.chunks.get_mut(&chunk) {
                c[skip..skip + n].copy_from_slice(head);
            } else if !is_zero(head) {
                let mut c = vec![0; CHUNK].into_boxed_slice();
                c[skip..skip + n].copy_from_slice(head);
                self.chunks.insert(chunk, c);
            }
            (at, rest) = (at + n as u64, tail);
        }
    }
    fn get(&self, at: u64, to: &mut [u8]) {
        let (mut at, mut rest) = (at, to);
        while !rest.is_empty() {
            let (chunk, skip, n) = piece(at, rest.len());
            let (head, tail) = rest.split_at_mut(n);
            match self.chunks.get(&chunk) {
                Some(c) => head.copy_from_slice(&c[skip..skip + n]),
                None => head.fill(0),
            }
            (at, rest) = (at + n as u64, tail);
        }
    }
    /// Makes `len` bytes from `at` on zero and frees what lies in whole chunks. Costs no more than the number of
    /// chunks in memory, however long the range.
    ///
    /// # Errors
    /// [`OutOfRange`]; nothing is erased then.
    pub fn erase(&mut self, at: u64, len: u64) -> Result<(), OutOfRange> {
        self.check(at, len)?;
        self.settle(0);
        let end = at + len;
        self.chunks.retain(|&i, c| {
            let start = i * CHUNK as u64;
            let (from, to) = (at.max(start), end.min(start + CHUNK as u64));
            if from >= to {
                return true;
            }
            let (from, to) = ((from - start) as usize, (to - start) as usize);
            c[from..to].fill(0);
            to - from != CHUNK
        });
        Ok(())
    }

    /// From now on (or no more) remembers writes, by the block of 512 bytes, so that [`lose`](Self::lose) can undo
    /// them. An erase makes all that came before it durable.
    pub fn remember_writes(&mut self, on: bool) {
        self.undo = on.then(VecDeque::new);
    }
    /// Blocks written that are not durable.
    #[must_use]
    pub fn volatile(&self) -> usize {
        self.undo.as_ref().map_or(0, VecDeque::len)
    }
    /// Makes all but the last `keep` blocks written durable.
    pub fn settle(&mut self, keep: usize) {
        if let Some(undo) = &mut self.undo {
            undo.drain(..undo.len().saturating_sub(keep));
        }
    }
    /// Power fails: of the blocks that are not durable those in `survivors` (0: the oldest) had been programmed, in that order;
    /// the others never were. Numbers that are not there, or there twice, are ignored.
    pub fn lose(&mut self, survivors: &[usize]) {
        let Some(undo) = &mut self.undo else { return };
        let mut lost: Vec<Option<Undo>> = undo.drain(..).map(Some).collect();
        for u in lost.iter().rev().flatten() {
            // Inside, as the write was.
            self.put(u.at, &u.old);
        }
        for &i in survivors {
            if let Some(u) = lost.get_mut(i).and_then(Option::take) {
                self.put(u.at, &u.new);
            }
        }
    }
    /// Byte `at` decays into `value`: durable at once, and not a write.
    pub(crate) fn rot(&mut self, at: u64, value: u8) {
        if self.check(at, 1).is_ok() {
            self.put(at, &[value]);
        }
    }
    fn remember(&mut self, at: u64, new: &[u8]) {
        let Some(mut undo) = self.undo.take() else { return };
        for (at, new) in (at..).step_by(512).zip(new.chunks(512)) {
            let mut old = vec![0; new.len()];
            self.get(at, &mut old);
            undo.push_back(Undo { at, old: old.into(), new: new.into() });
        }
        self.undo = Some(undo);
    }
}

/// The chunk that holds byte `at`, where in it, and how many of `len` bytes lie in it.
fn piece(at: u64, len: usize) -> (u64, usize, usize) {
    let skip = (at % CHUNK as u64) as usize;
    (at / CHUNK as u64, skip, len.min(CHUNK - skip))
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|w| u128::from_ne_bytes(*w) == 0) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_card_of_128_tib_costs_nothing_until_it_is_written() {
        let mut s = Storage::new(1 << 38);
        let last = s.bytes() - 512;
        s.write(last, &[7; 512]).unwrap();
        let mut b = [1; 1024];
        s.read(last - 512, &mut b).unwrap();
        assert_eq!((b[511], b[512], b[1023]), (0, 7, 7));
        assert_eq!(s.resident(), CHUNK as u64);
        assert_eq!((s.bytes_written(), s.bytes_read()), (512, 1024));
        s.write(0, &[0; 1 << 20]).unwrap();
        assert_eq!(s.resident(), CHUNK as u64, "zeros over nothing stay nothing");
        s.erase(0, s.bytes()).unwrap();
        assert_eq!(s.resident(), 0);
    }

    #[test]
    fn a_range_that_leaves_the_card_moves_nothing() {
        let mut s = Storage::new(2);
        let mut b = [9; 512];
        assert_eq!(s.read(513, &mut b), Err(OutOfRange { at: 513, len: 512, bytes: 1024 }));
        assert_eq!(b, [9; 512]);
        assert!(
            s.write(u64::MAX, &[1]).is_err() && s.write(1024, &[1]).is_err() && s.erase(1, 1024).is_err()
        );
        assert_eq!((s.resident(), s.bytes_written()), (0, 0));
    }

    #[test]
    fn a_loss_of_power_leaves_any_subset_in_any_order() {
        let mut s = Storage::new(4);
        s.write(0, &[1; 512]).unwrap();
        s.remember_writes(true);
        let block = |s: &mut Storage, n: u64| {
            let mut b = [0; 512];
            s.read(n * 512, &mut b).unwrap();
            b[0]
        };
        for (at, byte) in [(0, 2), (512, 3), (0, 4)] {
            s.write(at, &[byte; 512]).unwrap();
        }
        assert_eq!((s.volatile(), block(&mut s, 0)), (3, 4));
        let mut t = s.clone();
        t.lose(&[]);
        assert_eq!((block(&mut t, 0), block(&mut t, 1), t.volatile()), (1, 0, 0));
        let mut t = s.clone();
        t.lose(&[2, 0, 2, 9]);
        assert_eq!((block(&mut t, 0), block(&mut t, 1)), (2, 0), "the older write was programmed last");
        s.settle(1);
        s.lose(&[]);
        assert_eq!((block(&mut s, 0), block(&mut s, 1)), (2, 3), "what was durable stays");
        s.write(0, &[9; 1024]).unwrap();
        s.erase(1024, 512).unwrap();
        s.lose(&[]);
        assert_eq!((block(&mut s, 0), block(&mut s, 1)), (9, 9));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]
        /// Against a plain vector: reads give what was written last, across chunk borders, erases included.
        #[test]
        fn it_is_a_vector(ops in prop::collection::vec((0..3_u8, 0..900_000_u64, 0..300_000_usize, any::<u8>()), 1..12)) {
            let mut s = Storage::new(2048);
            let mut v = vec![0_u8; 2048 * 512];
            for (what, at, len, byte) in ops {
                let len = len.min(v.len() - at as usize);
                let range = at as usize..at as usize + len;
                match what {
                    0 => {
                        let data: Vec<u8> = (0..len).map(|i| byte.wrapping_add((i / 700) as u8)).collect();
                        s.write(at, &data).unwrap();
                        v[range].copy_from_slice(&data);
                    }
                    1 => {
                        s.erase(at, len as u64).unwrap();
                        v[range].fill(0);
                    }
                    _ => {
                        let mut got = vec![byte; len];
                        s.read(at, &mut got).unwrap();
                        prop_assert!(got == v[range]);
                    }
                }
            }
            let mut all = vec![1; v.len()];
            s.read(0, &mut all).unwrap();
            prop_assert!(all == v);
        }
    }
}

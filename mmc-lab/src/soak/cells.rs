//! What each sector of a card may hold: a stamp of 64 bits for each write that could be there.
//!
//! Normally that is one. Between a write and the flush that covers it a loss of power may bring back what was there
//! before; after a write that failed nobody knows. What a read then shows settles it.

/// A sector's bytes.
pub(super) const SECTOR: usize = 512;

/// What one sector may hold.
#[derive(Clone, Debug)]
struct Cell {
    /// Stamp, and the number of the completion it came with: the oldest is covered by a flush, the last is what a read shows.
    versions: Vec<(u64, u64)>,
    /// Any of them may be there.
    open: bool,
    /// It is in the list of those that no flush covers.
    listed: bool,
}

/// The sectors of one card that are used, from sector 0 on.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    cells: Vec<Cell>,
    /// Those with more than one version.
    uncovered: Vec<u32>,
}

/// The stamp of a sector that holds zeros.
pub(super) const ZEROS: u64 = 0;

/// A sector filled with a stamp: eight bytes that depend on the place, again and again.
pub(super) fn fill(sector: &mut [u8], lba: u64, stamp: u64) {
    let word = word(lba, stamp).to_le_bytes();
    for part in sector.chunks_exact_mut(8) {
        part.copy_from_slice(&word);
    }
}

fn word(lba: u64, stamp: u64) -> u64 {
    if stamp == ZEROS { 0 } else { stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ lba.rotate_left(40) }
}

impl Cells {
    /// `sectors` sectors that hold this stamp.
    pub(super) fn new(sectors: u32, stamp: u64) -> Self {
        let cell = |_| {
            // So much that a long run needs no more.
            let mut versions = Vec::with_capacity(6);
            versions.push((stamp, 0));
            Cell { versions, open: false, listed: false }
        };
        Self { cells: (0..sectors).map(cell).collect(), uncovered: Vec::with_capacity(sectors as usize) }
    }
    pub(super) fn len(&self) -> u64 {
        self.cells.len() as u64
    }

    fn change(&mut self, lba: u64, blocks: u32, mut f: impl FnMut(&mut Cell)) {
        for lba in lba..lba + u64::from(blocks) {
            let Some(cell) = self.cells.get_mut(lba as usize) else { continue };
            f(cell);
            if cell.versions.len() > 1 && !cell.listed {
                cell.listed = true;
                self.uncovered.push(lba as u32);
            }
        }
    }
    /// A write completed, as the `n`-th of all completions; `durable`: it is covered at once.
    pub(super) fn wrote(&mut self, lba: u64, blocks: u32, stamp: u64, n: u64, durable: bool) {
        self.change(lba, blocks, |cell| {
            if durable {
                cell.versions.clear();
            }
            cell.versions.push((stamp, n));
            cell.open = false;
        });
    }
    /// A write or an erase of which nobody knows what it left.
    pub(super) fn may(&mut self, lba: u64, blocks: u32, stamp: u64, n: u64) {
        self.change(lba, blocks, |cell| {
            cell.versions.push((stamp, n));
            cell.open = true;
        });
    }
    /// A flush covers all that had completed before completion `n`.
    pub(super) fn covered(&mut self, n: u64) {
        let cells = &mut self.cells;
        self.uncovered.retain(|&lba| {
            let Some(cell) = cells.get_mut(lba as usize) else { return false };
            if !cell.open
                && let Some(last) = cell.versions.iter().rposition(|v| v.1 <= n)
            {
                cell.versions.drain(..last);
            }
            cell.listed = cell.versions.len() > 1;
            cell.listed
        });
    }
    /// The card lost its supply: what no flush covered may be gone.
    pub(super) fn cut(&mut self) {
        for &lba in &self.uncovered {
            if let Some(cell) = self.cells.get_mut(lba as usize) {
                cell.open = true;
            }
        }
    }
    /// A read, or a look at the card itself, showed these bytes, at completion `n`.
    ///
    /// # Errors
    /// One line: which sector cannot hold that.
    pub(super) fn shows(&mut self, lba: u64, bytes: &[u8], n: u64) -> Result<(), String> {
        for (lba, sector) in (lba..).zip(bytes.chunks(SECTOR)) {
            let Some(cell) = self.cells.get_mut(lba as usize) else { continue };
            let (first, rest) = sector.split_at(8.min(sector.len()));
            let got = u64::from_le_bytes(first.try_into().unwrap_or_default());
            let last = if cell.open { 0 } else { cell.versions.len() - 1 };
            let found = cell.versions.iter().rposition(|v| word(lba, v.0) == got).filter(|i| *i >= last);
            let Some(found) = found.filter(|_| sector.len() == SECTOR && rest == &sector[..SECTOR - 8])
            else {
                let may: Vec<_> =
                    cell.versions[last..].iter().map(|v| format!("{:016x}", word(lba, v.0))).collect();
                return Err(format!("sector {lba} holds {}, not {}", spelled(sector), may.join(" or ")));
            };
            if cell.open {
                // What is shown may be in the cache only.
                let shown = cell.versions.remove(found);
                cell.versions.push((shown.0, n));
                cell.open = false;
            }
        }
        Ok(())
    }
}

/// A sector for people: its first word, or that it is not one word again and again.
fn spelled(sector: &[u8]) -> String {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or_default());
    let words: Vec<u64> = sector.chunks_exact(8).map(word).collect();
    match words.first() {
        Some(first) if words.iter().all(|w| w == first) => format!("{first:016x}"),
        Some(first) => {
            let other = words.iter().position(|w| w != first).unwrap_or(0);
            format!("{first:016x} and from byte {} on {:016x}", other * 8, words[other])
        }
        None => "nothing".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(lba: u64, stamp: u64) -> [u8; SECTOR] {
        let mut s = [0; SECTOR];
        fill(&mut s, lba, stamp);
        s
    }

    #[test]
    fn a_read_shows_the_last_write_and_nothing_else() {
        let mut c = Cells::new(8, ZEROS);
        assert!(c.shows(0, &[0; 8 * SECTOR], 1).is_ok());
        c.wrote(2, 2, 7, 1, false);
        assert!(c.shows(3, &sector(3, 7), 2).is_ok());
        let e = c.shows(3, &sector(2, 7), 2).unwrap_err();
        assert!(e.starts_with("sector 3 holds"), "the bytes of another place: {e}");
        assert!(c.shows(2, &[0; SECTOR], 2).is_err(), "what was there before");
        let mut torn = sector(2, 7);
        torn[256..].fill(0);
        assert!(c.shows(2, &torn, 2).unwrap_err().contains("from byte 256 on"));
        assert!(c.shows(2, &torn[..100], 2).is_err());
    }

    #[test]
    fn a_loss_of_power_brings_back_what_no_flush_covered() {
        let mut c = Cells::new(2, ZEROS);
        for (n, stamp) in [(1, 5), (2, 6), (4, 7)] {
            c.wrote(0, 1, stamp, n, false);
        }
        c.covered(2);
        c.cut();
        assert!(c.clone().shows(0, &sector(0, 5), 5).is_err(), "6 was covered when the flush began");
        assert!(c.clone().shows(0, &[0; SECTOR], 5).is_err());
        assert!(c.clone().shows(0, &sector(0, 7), 5).is_ok());
        assert!(c.shows(0, &sector(0, 6), 5).is_ok());
        assert!(c.shows(0, &sector(0, 7), 6).is_err(), "it was seen to be gone");
        c.wrote(0, 1, 8, 7, true);
        c.cut();
        assert!(c.shows(0, &sector(0, 8), 8).is_ok(), "durable from the start");
    }

    #[test]
    fn a_write_that_failed_leaves_either() {
        let mut c = Cells::new(2, ZEROS);
        c.wrote(0, 1, 5, 1, true);
        c.may(0, 1, 6, 2);
        // A flush does not know either.
        c.covered(3);
        assert!(c.clone().shows(0, &sector(0, 5), 4).is_ok());
        assert!(c.shows(0, &sector(0, 6), 4).is_ok());
        c.cut();
        assert!(c.shows(0, &sector(0, 5), 5).is_ok(), "6 was in the cache at most");
        assert_eq!(c.uncovered, [0]);
        c.covered(9);
        assert!(c.uncovered.is_empty());
    }
}

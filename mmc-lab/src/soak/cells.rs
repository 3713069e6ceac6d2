//! What each sector of a card may hold: a stamp of 64 bits for each write that could be there.
//!
//! Normally that is one. Between a write and the flush that covers it a loss of power may bring back what was there
//! before; a flush that succeeds afterwards says that it did not, one that fails with the news leaves it open. After a write
//! that failed nobody knows. What a read then shows settles it.

/// A sector's bytes.
pub(super) const SECTOR: usize = 512;

/// What is known of a sector that holds one of several versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It is the last.
    Last,
    /// The supply was gone, and nobody has been told of a loss: a flush that succeeds says that it is the last it covers.
    Untold,
    /// Nothing: a write failed, or the loss was told.
    Nothing,
}

/// What one write left.
#[derive(Clone, Copy, Debug)]
struct Version {
    stamp: u64,
    /// The number of the completion it came with, or of the read that showed it.
    n: u64,
    /// Of the completions, those that a barrier keeps in front of it.
    behind: u64,
}

/// What one sector may hold.
#[derive(Clone, Debug)]
struct Cell {
    /// The oldest is covered by a flush, the last is what a read shows.
    versions: Vec<Version>,
    known: Known,
    /// It is in the list of those that no flush covers.
    listed: bool,
}

/// The sectors of one card that are used, from sector 0 on.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    cells: Vec<Cell>,
    /// Those with more than one version.
    uncovered: Vec<u32>,
    /// What was seen to be lost before anybody was told: a sector, and the completion of its write.
    lost: Option<(u64, u64)>,
    /// The completions before the last barrier that has ended.
    ordered: u64,
    /// The completions before the last look after a loss of power, or news of one: no barrier has to keep them any more.
    looked: u64,
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
            versions.push(Version { stamp, n: 0, behind: 0 });
            Cell { versions, known: Known::Last, listed: false }
        };
        Self {
            cells: (0..sectors).map(cell).collect(),
            uncovered: Vec::with_capacity(sectors as usize),
            lost: None,
            ordered: 0,
            looked: 0,
        }
    }
    /// The completions that a write which is submitted now may not pass.
    pub(super) fn ordered(&self) -> u64 {
        self.ordered
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
    /// A write completed, as the `n`-th of all completions; when it was submitted, barriers had put so many before it.
    pub(super) fn wrote(&mut self, lba: u64, blocks: u32, stamp: u64, n: u64, behind: u64) {
        self.change(lba, blocks, |cell| {
            cell.versions.push(Version { stamp, n, behind });
            cell.known = Known::Last;
        });
    }
    /// A write or a wipe completed that no loss of power takes back.
    pub(super) fn stored(&mut self, lba: u64, blocks: u32, stamp: u64, n: u64) {
        self.change(lba, blocks, |cell| {
            cell.versions.clear();
            cell.versions.push(Version { stamp, n, behind: 0 });
            cell.known = Known::Last;
        });
    }
    /// A write or an erase of which nobody knows what it left.
    pub(super) fn may(&mut self, lba: u64, blocks: u32, stamp: u64) {
        self.change(lba, blocks, |cell| {
            // It has not completed: no flush and no barrier covers it.
            cell.versions.push(Version { stamp, n: u64::MAX, behind: 0 });
            cell.known = Known::Nothing;
        });
    }
    /// A flush that covers all that had completed before completion `n` succeeded.
    ///
    /// # Errors
    /// One line: a sector that had lost what it covers, and nobody was told.
    pub(super) fn covered(&mut self, n: u64) -> Result<(), String> {
        if let Some((lba, write)) = self.lost.filter(|lost| lost.1 <= n) {
            return Err(format!(
                "sector {lba} lost what completion {write} had written, and a flush succeeded"
            ));
        }
        let cells = &mut self.cells;
        self.uncovered.retain(|&lba| {
            let Some(cell) = cells.get_mut(lba as usize) else { return false };
            if cell.known != Known::Nothing
                && let Some(last) = cell.versions.iter().rposition(|v| v.n <= n)
            {
                cell.versions.drain(..last);
            }
            cell.listed = cell.versions.len() > 1;
            if !cell.listed {
                cell.known = Known::Last;
            }
            cell.listed
        });
        Ok(())
    }
    /// A barrier is over, and all before completion `n` is to be stored before what is submitted from now on.
    pub(super) fn barrier(&mut self, n: u64) {
        self.ordered = self.ordered.max(n);
    }
    /// The card lost its supply: what no flush covered may be gone.
    pub(super) fn cut(&mut self) {
        for &lba in &self.uncovered {
            if let Some(cell) = self.cells.get_mut(lba as usize)
                && cell.known == Known::Last
            {
                cell.known = Known::Untold;
            }
        }
    }
    /// Somebody was told, after `n` completions: a flush failed for it, or the card is another.
    pub(super) fn told(&mut self, n: u64) {
        (self.lost, self.looked) = (None, n);
        for &lba in &self.uncovered {
            if let Some(cell) = self.cells.get_mut(lba as usize)
                && cell.known == Known::Untold
            {
                cell.known = Known::Nothing;
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
            let found = cell.holds(lba, sector)?;
            if cell.known != Known::Last {
                if let Some(last) = cell.versions.last()
                    && cell.known == Known::Untold
                    && found + 1 < cell.versions.len()
                {
                    self.lost.get_or_insert((lba, last.n));
                }
                // What is shown may be in the cache only.
                let shown = cell.versions.remove(found);
                cell.versions.push(Version { n, ..shown });
                cell.known = Known::Last;
            }
        }
        Ok(())
    }
    /// A look at the card itself, which holds these bytes from sector 0 on, after `n` completions; nothing is settled by
    /// it. `moving`: what is being written there.
    ///
    /// # Errors
    /// One line: a sector that cannot hold that, or one that lost what a barrier had kept in front of another's.
    pub(super) fn looked_at(&mut self, bytes: &[u8], n: u64, moving: &[(u64, u32)]) -> Result<(), String> {
        let moves = |lba: u64| moving.iter().any(|&(at, blocks)| (at..at + u64::from(blocks)).contains(&lba));
        // What is there although barriers put the most before it.
        let mut behind = (0, 0);
        for (lba, (cell, sector)) in (0..).zip(self.cells.iter().zip(bytes.chunks(SECTOR))) {
            if moves(lba) {
                continue;
            }
            let found = cell.holds(lba, sector)?;
            if cell.known == Known::Untold {
                behind = behind.max((cell.versions[found].behind, lba));
            }
        }
        for &lba in &self.uncovered {
            let (at, cell) = (lba as usize * SECTOR, &self.cells[lba as usize]);
            if cell.known != Known::Untold || moves(lba.into()) {
                continue;
            }
            let found = cell.holds(lba.into(), &bytes[at..at + SECTOR])?;
            let before = |v: &Version| v.n > self.looked && v.n <= behind.0;
            if let Some(v) = cell.versions[found + 1..].iter().find(|v| before(v)) {
                return Err(format!(
                    "sector {lba} lost what completion {} had written, and sector {} kept what came behind a barrier",
                    v.n, behind.1
                ));
            }
        }
        self.looked = n;
        Ok(())
    }
}

impl Cell {
    /// The version that these bytes are.
    fn holds(&self, lba: u64, sector: &[u8]) -> Result<usize, String> {
        let (first, rest) = sector.split_at(8.min(sector.len()));
        let got = u64::from_le_bytes(first.try_into().unwrap_or_default());
        let least = if self.known == Known::Last { self.versions.len() - 1 } else { 0 };
        let found = self.versions.iter().rposition(|v| word(lba, v.stamp) == got).filter(|i| *i >= least);
        found.filter(|_| sector.len() == SECTOR && rest == &sector[..SECTOR - 8]).ok_or_else(|| {
            let may: Vec<_> =
                self.versions[least..].iter().map(|v| format!("{:016x}", word(lba, v.stamp))).collect();
            format!("sector {lba} holds {}, not {}", spelled(sector), may.join(" or "))
        })
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
        c.wrote(2, 2, 7, 1, 0);
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
            c.wrote(0, 1, stamp, n, 0);
        }
        c.covered(2).unwrap();
        c.cut();
        assert!(c.clone().shows(0, &sector(0, 5), 5).is_err(), "6 was covered when the flush began");
        assert!(c.clone().shows(0, &[0; SECTOR], 5).is_err());
        assert!(c.clone().shows(0, &sector(0, 7), 5).is_ok());
        assert!(c.shows(0, &sector(0, 6), 5).is_ok());
        assert!(c.shows(0, &sector(0, 7), 6).is_err(), "it was seen to be gone");
        c.stored(0, 1, 8, 7);
        c.cut();
        assert!(c.shows(0, &sector(0, 8), 8).is_ok(), "durable from the start");
    }

    #[test]
    fn a_write_that_failed_leaves_either() {
        let mut c = Cells::new(2, ZEROS);
        c.stored(0, 1, 5, 1);
        c.may(0, 1, 6);
        // A flush does not know either.
        c.covered(3).unwrap();
        assert!(c.clone().shows(0, &sector(0, 5), 4).is_ok());
        assert!(c.shows(0, &sector(0, 6), 4).is_ok());
        c.cut();
        assert!(c.shows(0, &sector(0, 5), 5).is_ok(), "6 was in the cache at most");
        assert_eq!(c.uncovered, [0]);
        c.told(5);
        // A write behind it, which no flush covers yet: without it either may still be there.
        c.wrote(0, 1, 7, 7, 0);
        c.may(0, 1, 8);
        c.wrote(0, 1, 9, 10, 0);
        c.covered(8).unwrap();
        c.cut();
        for (stamp, may) in [(5, false), (6, false), (7, true), (8, true), (9, true)] {
            assert_eq!(c.clone().shows(0, &sector(0, stamp), 11).is_ok(), may, "{stamp}");
        }
        c.covered(10).unwrap();
        assert!(c.uncovered.is_empty());
    }

    #[test]
    fn a_flush_that_succeeds_after_a_loss_says_that_nothing_is_gone() {
        let mut c = Cells::new(2, ZEROS);
        c.wrote(0, 1, 5, 1, 0);
        c.wrote(0, 1, 6, 2, 0);
        c.cut();
        // It has not told, so the last it covers is there; told, anything may be.
        for (told, covers, may) in [(false, 2, [0, 0, 1]), (false, 1, [0, 1, 1]), (true, 2, [1, 1, 1])] {
            let mut c = c.clone();
            if told {
                c.told(2);
            }
            c.covered(covers).unwrap();
            let shown = [ZEROS, 5, 6].map(|stamp| u8::from(c.clone().shows(0, &sector(0, stamp), 3).is_ok()));
            assert_eq!(shown, may, "told {told}, covers {covers}");
        }
        // Seen to be gone before it: then it has to tell, if it covers that.
        c.shows(0, &sector(0, 5), 3).unwrap();
        assert!(c.clone().covered(1).is_ok());
        let e = c.covered(2).unwrap_err();
        assert_eq!(e, "sector 0 lost what completion 2 had written, and a flush succeeded");
        c.told(3);
        assert!(c.covered(3).is_ok());
    }

    #[test]
    fn what_is_stored_behind_a_barrier_shows_that_all_before_it_is() {
        let card = |a, b| [sector(0, a), sector(1, b)].concat();
        let mut c = Cells::new(2, ZEROS);
        c.wrote(0, 1, 5, 1, c.ordered());
        c.barrier(1);
        c.wrote(1, 1, 6, 2, c.ordered());
        c.cut();
        for (a, b) in [(ZEROS, ZEROS), (5, ZEROS), (5, 6)] {
            assert_eq!(c.clone().looked_at(&card(a, b), 2, &[]), Ok(()));
        }
        let e = c.clone().looked_at(&card(ZEROS, 6), 2, &[]).unwrap_err();
        assert!(e.starts_with("sector 0 lost what completion 1 had written, and sector 1 kept"), "{e}");
        // Of what is being written nothing is known, and what was lost before the last look has no order any more.
        assert!(c.clone().looked_at(&card(ZEROS, 6), 2, &[(0, 1)]).is_ok());
        c.looked_at(&card(ZEROS, ZEROS), 2, &[]).unwrap();
        c.wrote(1, 1, 7, 3, c.ordered());
        c.cut();
        assert!(c.looked_at(&card(ZEROS, 7), 3, &[]).is_ok());
        // One that is covered has to be there.
        c.stored(0, 1, 8, 4);
        assert!(c.looked_at(&card(5, 7), 4, &[]).unwrap_err().starts_with("sector 0 holds"));
    }
}

//! Does a disk hold what was written to it, all of it, where it was written? As `f3write` and `f3read` find out: every
//! sector is filled with its own number and with words that follow from it, and read back.
//!
//! A sector that holds the number of another tells where the data of that one really went: a card that claims more than
//! it has.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes of a sector.
pub const SECTOR: usize = 512;
/// Bytes moved at one time.
const CHUNK: usize = 1 << 20;
/// Bytes moved at one time around an error.
const PIECE: usize = 4096;
/// With no more wrong words than this (of 64) a sector was changed; with more it is corrupted. As f3 has it.
pub const TOLERANCE: usize = 2;
/// Ranges that are remembered; what is beyond is only counted.
pub const RANGES: usize = 1000;

/// What is tried.
pub trait Target {
    /// Bytes.
    fn size(&self) -> u64;
    /// Reads.
    ///
    /// # Errors
    /// See [`carries_on`].
    fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()>;
    /// Writes.
    ///
    /// # Errors
    /// See [`carries_on`].
    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()>;
    /// Stores what was written.
    ///
    /// # Errors
    /// It cannot.
    fn flush(&mut self) -> io::Result<()>;
}

/// A file or a device.
impl Target for File {
    fn size(&self) -> u64 {
        // A device has no length of its own.
        (&mut &*self).seek(SeekFrom::End(0)).unwrap_or(0)
    }
    fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(to, at)
    }
    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()> {
        self.write_all_at(from, at)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A served disk.
impl Target for crate::serve::client::Client {
    fn size(&self) -> u64 {
        self.size
    }
    fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()> {
        Self::read(self, at, to)
    }
    fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()> {
        Self::write(self, at, from, false)
    }
    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self)
    }
}

/// Whether an error is one of these sectors (EIO, no medium there, no data, a timeout): the others can still be tried.
#[must_use]
pub fn carries_on(e: &io::Error) -> bool {
    // Linux: EIO, ENODATA, EILSEQ, ETIMEDOUT, EREMOTEIO.
    matches!(e.raw_os_error(), Some(5 | 61 | 84 | 110 | 121))
}

/// The words of sector `number`: itself, the seed, and what follows from both.
fn words(number: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03;
    let follow = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    });
    [number, seed].into_iter().chain(follow).take(SECTOR / 8)
}

/// Fills whole sectors, the first with number `first`.
pub fn fill(first: u64, seed: u64, to: &mut [u8]) {
    for (number, sector) in (first..).zip(to.chunks_exact_mut(SECTOR)) {
        for (word, bytes) in words(number, seed).zip(sector.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

fn wrong_words(number: u64, seed: u64, sector: &[u8]) -> usize {
    words(number, seed)
        .zip(sector.chunks_exact(8))
        .filter(|(word, held)| word.to_le_bytes() != **held)
        .count()
}

/// What became of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It holds what was written to it.
    Good,
    /// It holds what was written to the sector so much further on (or back): both go to the same place.
    Overwritten(i64),
    /// One or two words of it are wrong.
    Changed,
    /// It holds something else.
    Corrupted,
    /// It cannot be read.
    Unreadable,
}

impl Fate {
    /// For people and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Overwritten(_) => "overwritten",
            Self::Changed => "changed",
            Self::Corrupted => "corrupted",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What sector `number` of a disk of `sectors` has become.
#[must_use]
pub fn judge(number: u64, sectors: u64, seed: u64, held: &[u8]) -> Fate {
    match wrong_words(number, seed, held) {
        0 => return Fate::Good,
        1..=TOLERANCE => return Fate::Changed,
        _ => {}
    }
    let said = held.first_chunk::<8>().map_or(u64::MAX, |b| u64::from_le_bytes(*b));
    if said < sectors && wrong_words(said, seed, held) <= TOLERANCE {
        return Fate::Overwritten(said as i64 - number as i64);
    }
    Fate::Corrupted
}

/// Neighbours that have become the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First sector.
    pub first: u64,
    /// Sectors.
    pub sectors: u64,
    /// What they are.
    pub fate: Fate,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sectors of the disk.
    pub sectors: u64,
    /// Sectors that hold what was written: the usable size.
    pub good: u64,
    /// Sectors that hold what was written elsewhere.
    pub overwritten: u64,
    /// Sectors with a few wrong words.
    pub changed: u64,
    /// Sectors that hold something else.
    pub corrupted: u64,
    /// Sectors that cannot be read.
    pub unreadable: u64,
    /// Sectors that could not be written, each counted once more by what it holds.
    pub unwritten: u64,
    /// The first [`RANGES`] ranges, in order.
    pub ranges: Vec<Range>,
    /// Ranges beyond them.
    pub more: u64,
    /// Of overwritten sectors: what divides all distances. Addresses that far apart are one place.
    pub wraps: Option<u64>,
    open: Option<Range>,
}

impl Report {
    /// Nothing is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.good == self.sectors && self.unwritten == 0
    }
    fn add(&mut self, number: u64, fate: Fate) {
        match fate {
            Fate::Good => self.good += 1,
            Fate::Overwritten(distance) => {
                self.overwritten += 1;
                self.wraps = Some(gcd(self.wraps.unwrap_or(0), distance.unsigned_abs()));
            }
            Fate::Changed => self.changed += 1,
            Fate::Corrupted => self.corrupted += 1,
            Fate::Unreadable => self.unreadable += 1,
        }
        match &mut self.open {
            Some(r) if r.fate == fate && r.first + r.sectors == number => r.sectors += 1,
            _ => {
                self.close();
                self.open = Some(Range { first: number, sectors: 1, fate });
            }
        }
    }
    fn close(&mut self) {
        if let Some(range) = self.open.take() {
            if self.ranges.len() < RANGES {
                self.ranges.push(range);
            } else {
                self.more += 1;
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Fills the whole target; `progress` hears of bytes done. Sectors that could not be written.
///
/// # Errors
/// One that is not of single sectors: see [`carries_on`].
pub fn write(target: &mut impl Target, seed: u64, progress: &mut dyn FnMut(u64)) -> io::Result<u64> {
    let size = target.size() / SECTOR as u64 * SECTOR as u64;
    let mut buf = vec![0; CHUNK];
    let (mut at, mut unwritten) = (0, 0);
    while at < size {
        let n = (size - at).min(CHUNK as u64) as usize;
        fill(at / SECTOR as u64, seed, &mut buf[..n]);
        if let Err(e) = target.write(at, &buf[..n]) {
            if !carries_on(&e) {
                return Err(e);
            }
            for (at, piece) in (at..).step_by(PIECE).zip(buf[..n].chunks(PIECE)) {
                match target.write(at, piece) {
                    Ok(()) => {}
                    Err(e) if carries_on(&e) => unwritten += (piece.len() / SECTOR) as u64,
                    Err(e) => return Err(e),
                }
            }
        }
        at += n as u64;
        progress(n as u64);
    }
    target.flush()?;
    Ok(unwritten)
}

/// The seed of the first sector that [`write()`] has written, wherever it was meant to go; the others must agree with it.
/// `None`: there is no such sector, which takes as long to find out as reading all of it.
///
/// # Errors
/// One that is not of single sectors: see [`carries_on`].
pub fn find_seed(target: &mut impl Target) -> io::Result<Option<u64>> {
    let mut found = None;
    each(target, &mut |_| (), &mut |number, held| {
        let word =
            |i| held.and_then(|h: &[u8]| h.chunks_exact(8).nth(i)?.try_into().ok()).map(u64::from_le_bytes);
        if let (Some(held), Some(said), Some(seed)) = (held, word(0), word(1)) {
            let fits = |number| wrong_words(number, seed, held) <= TOLERANCE;
            found = (fits(said) || fits(number)).then_some(seed);
        }
        found.is_none()
    })?;
    Ok(found)
}

/// Reads the whole target and says what became of what [`write()`] wrote.
///
/// # Errors
/// One that is not of single sectors: see [`carries_on`].
pub fn read(target: &mut impl Target, seed: u64, progress: &mut dyn FnMut(u64)) -> io::Result<Report> {
    let sectors = target.size() / SECTOR as u64;
    let mut report = Report { sectors, ..Report::default() };
    each(target, progress, &mut |number, held| {
        report.add(number, held.map_or(Fate::Unreadable, |held| judge(number, sectors, seed, held)));
        true
    })?;
    report.close();
    Ok(report)
}

/// Shows `see` all sectors, those that cannot be read as `None`, as long as it wants more.
fn each(
    target: &mut impl Target,
    progress: &mut dyn FnMut(u64),
    see: &mut dyn FnMut(u64, Option<&[u8]>) -> bool,
) -> io::Result<()> {
    let sectors = target.size() / SECTOR as u64;
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < sectors * SECTOR as u64 {
        let n = (sectors * SECTOR as u64 - at).min(CHUNK as u64) as usize;
        let whole = target.read(at, &mut buf[..n]);
        for (at, piece) in (at..).step_by(PIECE).zip(buf[..n].chunks_mut(PIECE)) {
            let read = match &whole {
                Ok(()) => Ok(()),
                Err(e) if carries_on(e) => target.read(at, piece),
                Err(e) => Err(io::Error::new(e.kind(), e.to_string())),
            };
            let readable = match read {
                Ok(()) => true,
                Err(e) if carries_on(&e) => false,
                Err(e) => return Err(e),
            };
            for (number, sector) in (at / SECTOR as u64..).zip(piece.chunks_exact(SECTOR)) {
                if !see(number, readable.then_some(sector)) {
                    return Ok(());
                }
            }
        }
        at += n as u64;
        progress(n as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A disk that lies.
    struct Liar {
        bytes: Vec<u8>,
        claims: u64,
        /// What is beyond the end goes to the start; else nowhere.
        wraps: bool,
        dead: std::ops::Range<u64>,
    }

    impl Liar {
        fn new(has: usize, claims: usize, wraps: bool) -> Self {
            Self { bytes: vec![0; has * SECTOR], claims: (claims * SECTOR) as u64, wraps, dead: 0..0 }
        }
        fn place(&self, at: u64) -> Option<usize> {
            let at = if self.wraps { at % self.bytes.len() as u64 } else { at };
            (at < self.bytes.len() as u64).then_some(at as usize)
        }
        fn dead(&self, at: u64, len: usize) -> io::Result<()> {
            let dead = at < self.dead.end && at + len as u64 > self.dead.start;
            if dead { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
        }
    }

    impl Target for Liar {
        fn size(&self) -> u64 {
            self.claims
        }
        fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()> {
            self.dead(at, to.len())?;
            for (at, sector) in (at..).step_by(SECTOR).zip(to.chunks_mut(SECTOR)) {
                match self.place(at) {
                    Some(from) => sector.copy_from_slice(&self.bytes[from..from + SECTOR]),
                    None => sector.fill(0),
                }
            }
            Ok(())
        }
        fn write(&mut self, at: u64, from: &[u8]) -> io::Result<()> {
            self.dead(at, from.len())?;
            for (at, sector) in (at..).step_by(SECTOR).zip(from.chunks(SECTOR)) {
                if let Some(to) = self.place(at) {
                    self.bytes[to..to + SECTOR].copy_from_slice(sector);
                }
            }
            Ok(())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn tried(target: &mut Liar) -> Report {
        let unwritten = write(target, 7, &mut |_| ()).unwrap();
        Report { unwritten, ..read(target, 7, &mut |_| ()).unwrap() }
    }

    #[test]
    fn a_card_that_wraps_around_is_found_out_and_measured() {
        let r = tried(&mut Liar::new(3000, 24_000, true));
        assert_eq!((r.good, r.overwritten, r.wraps), (3000, 21_000, Some(3000)));
        // The last round is what is left; the first sector holds the number of the last round's first.
        assert_eq!(r.ranges[0], Range { first: 0, sectors: 3000, fate: Fate::Overwritten(21_000) });
        assert_eq!(r.ranges.last(), Some(&Range { first: 21_000, sectors: 3000, fate: Fate::Good }));
        assert!(!r.is_good());
    }

    #[test]
    fn a_card_that_drops_what_is_beyond_its_end_is_good_up_to_there() {
        let r = tried(&mut Liar::new(5000, 8000, false));
        let good = Range { first: 0, sectors: 5000, fate: Fate::Good };
        let none = Range { first: 5000, sectors: 3000, fate: Fate::Corrupted };
        assert_eq!((r.good, r.corrupted, r.ranges), (5000, 3000, vec![good, none]));
    }

    #[test]
    fn a_flipped_bit_a_torn_sector_and_a_dead_one_are_three_things() {
        let mut disk = Liar::new(4096, 4096, true);
        disk.dead = 800 * 512..801 * 512;
        assert_eq!(write(&mut disk, 7, &mut |_| ()).unwrap(), 8, "the 4 KiB around it");
        disk.bytes[100 * SECTOR] ^= 1;
        disk.bytes[200 * SECTOR + 300..200 * SECTOR + 500].fill(0);
        let r = read(&mut disk, 7, &mut |_| ()).unwrap();
        let is = |first, sectors, fate| r.ranges.contains(&Range { first, sectors, fate });
        assert!(is(100, 1, Fate::Changed) && is(200, 1, Fate::Corrupted) && is(800, 8, Fate::Unreadable));
        assert_eq!((r.good, r.changed, r.corrupted, r.unreadable), (4086, 1, 1, 8));
        // Of another run: nothing of it is this one's.
        let other = read(&mut disk, 8, &mut |_| ()).unwrap();
        assert_eq!((other.good, other.overwritten), (0, 0));
    }

    #[test]
    fn a_target_that_is_gone_ends_the_test() {
        struct Gone;
        impl Target for Gone {
            fn size(&self) -> u64 {
                1 << 40
            }
            fn read(&mut self, _: u64, _: &mut [u8]) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
                Err(io::Error::from_raw_os_error(1))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert_eq!(read(&mut Gone, 1, &mut |_| ()).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(write(&mut Gone, 1, &mut |_| ()).unwrap_err().raw_os_error(), Some(1));
    }

    #[test]
    fn the_seed_stands_in_what_is_whole() {
        let mut disk = Liar::new(3000, 24_000, true);
        assert_eq!(find_seed(&mut disk).unwrap(), None);
        write(&mut disk, 77, &mut |_| ()).unwrap();
        disk.dead = 0..8 * 512;
        // Half a sector, and one whose own seed is wrong.
        disk.bytes[8 * SECTOR + 200..9 * SECTOR].fill(0);
        disk.bytes[9 * SECTOR + 8] ^= 1;
        assert_eq!(find_seed(&mut disk).unwrap(), Some(77), "of the last round");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut disk = Liar::new(8192, 8192, true);
        write(&mut disk, 7, &mut |_| ()).unwrap();
        for i in (0..8192).step_by(2) {
            disk.bytes[i * SECTOR..(i + 1) * SECTOR].fill(1);
        }
        let r = read(&mut disk, 7, &mut |_| ()).unwrap();
        assert_eq!((r.ranges.len(), r.more, r.corrupted), (RANGES, 8192 - RANGES as u64, 4096));
    }

    proptest! {
        /// A card that has any part of what it claims: the usable size is what it has.
        #[test]
        fn the_usable_size_is_what_the_card_has(has in 1..4000_usize, more in 0..9000_usize, wraps in any::<bool>()) {
            let r = tried(&mut Liar::new(has, has + more, wraps));
            prop_assert_eq!(r.good, has as u64);
            prop_assert_eq!(r.is_good(), more == 0);
            if wraps && more > 0 {
                // Distances are whole rounds.
                prop_assert_eq!(r.wraps.unwrap() % has as u64, 0);
            }
            let told: u64 = r.ranges.iter().map(|x| x.sectors).sum();
            prop_assert!(told == (has + more) as u64 || r.more > 0 && r.ranges.len() == RANGES);
        }
    }
}

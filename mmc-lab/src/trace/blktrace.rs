//! The binary files of `blktrace`: records of 48 bytes and what is said to each, in the byte order of the machine that
//! recorded them.
//!
//! ```text
//!  0  magic 0x65617400 + version   4  number    8  time, ns    16  first sector   24  bytes
//! 28  action (low 16: what, high 16: categories)   32  process   36  device   40  CPU   44  error   46  bytes that follow
//! ```

use std::collections::HashMap;
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use super::blkparse::Merges;
use super::model::{Event, Kind, Line, Names};

/// Bytes of a record.
const RECORD: usize = 48;
/// Upper three bytes of the magic.
const MAGIC: u32 = 0x6561_7400;
/// The version this reads: the only one since 2006.
const VERSION: u32 = 7;
/// Processes whose names are kept.
const TASKS: usize = 1 << 16;

/// Categories, as bits of the high half of the action.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const SYNC: u32 = 1 << 19;
const NOTIFY: u32 = 1 << 26;
const AHEAD: u32 = 1 << 27;
const META: u32 = 1 << 28;
const DISCARD: u32 = 1 << 29;
const FUA: u32 = 1 << 31;

/// Whether a file that begins with these bytes is one, and in which byte order.
pub(super) fn order(first: &[u8]) -> Option<Order> {
    let four = first.first_chunk()?;
    if u32::from_le_bytes(*four) & !0xff == MAGIC {
        Some(Order::Little)
    } else if u32::from_be_bytes(*four) & !0xff == MAGIC {
        Some(Order::Big)
    } else {
        None
    }
}

/// Byte order of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// Reads one file; names of processes are kept.
#[derive(Debug)]
pub(super) struct Reader {
    order: Order,
    merges: Merges,
    tasks: HashMap<u32, Arc<str>>,
    names: Names,
    /// A record that was looked at, and how many of its bytes there are.
    ahead: Option<([u8; RECORD], usize)>,
}

impl Reader {
    pub(super) fn new(order: Order) -> Self {
        let (merges, tasks, names) = (Merges::default(), HashMap::new(), Names::default());
        Self { order, merges, tasks, names, ahead: None }
    }

    /// The next record; `None` at the end. After one that cannot be, the place of the next one is not known: that is
    /// told, and the end follows.
    ///
    /// # Errors
    /// What the input says.
    pub(super) fn next(&mut self, input: &mut dyn BufRead) -> io::Result<Option<Line>> {
        let (bytes, have) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => fill(input)?,
        };
        match have {
            0 => return Ok(None),
            RECORD => {}
            _ => return Ok(Some(Line::Odd)),
        }
        let record = Record { bytes, order: self.order };
        if record.u32(0) != MAGIC | VERSION {
            // Whatever follows is not looked at: without a magic nobody knows where records begin.
            io::copy(input, &mut io::sink())?;
            return Ok(Some(Line::Odd));
        }
        let mut said = Vec::new();
        let length = u64::from(record.u16(46));
        input.take(length).read_to_end(&mut said)?;
        if said.len() as u64 != length {
            return Ok(Some(Line::Odd));
        }
        Ok(Some(self.record(&record, &said)))
    }

    fn record(&mut self, record: &Record, said: &[u8]) -> Line {
        let action = record.u32(28);
        let pid = record.u32(32);
        if action & NOTIFY != 0 {
            // What 0 says is the name of a process.
            if action & 0xffff == 0 && self.tasks.len() < TASKS {
                let end = said.iter().position(|&b| b == 0).unwrap_or(said.len());
                let name = self.names.get(said.get(..end).unwrap_or_default());
                self.tasks.insert(pid, name);
            }
            return Line::Other;
        }
        // Twelve bits of major, twenty of minor.
        let dev = (record.u32(36) >> 20, record.u32(36) & 0xf_ffff);
        let (sector, bytes) = (record.u64(16), record.u32(24));
        let kind = match action & 0xffff {
            1 => Kind::BioQueue,
            2 => Kind::BackMerge,
            3 => Kind::FrontMerge,
            4 => Kind::GetRq,
            6 => Kind::Requeue,
            7 => Kind::Issue,
            8 => Kind::Complete,
            12 => Kind::Insert,
            13 => {
                // What is said is where the rest begins, always with the high byte first.
                if let Some(rest) = said.first_chunk() {
                    self.merges.split(dev, u64::from_be_bytes(*rest));
                }
                return Line::Other;
            }
            _ => return Line::Other,
        };
        let kind = self.merges.judge(kind, dev, sector);
        let task = match self.tasks.get(&pid) {
            Some(task) => task.clone(),
            None => self.names.get(b"?"),
        };
        let (rwbs, len) = rwbs(action, bytes);
        let rwbs = self.names.get(rwbs.get(..len).unwrap_or_default());
        Line::Event(Event { at: record.u64(8), kind, dev, task, pid, rwbs, sector, sectors: bytes / 512 })
    }

    /// What the stamp of the next record is, for putting several files in order; `None` at the end.
    ///
    /// # Errors
    /// What the input says.
    pub(super) fn peek(&mut self, input: &mut dyn BufRead) -> io::Result<Option<u64>> {
        let (bytes, have) = match self.ahead {
            Some(ahead) => ahead,
            None => *self.ahead.insert(fill(input)?),
        };
        Ok((have > 0).then(|| Record { bytes, order: self.order }.u64(8)))
    }
}

/// The letters of RWBS that the categories stand for, as the kernel writes them in its text.
fn rwbs(action: u32, bytes: u32) -> ([u8; 8], usize) {
    let (mut text, mut len) = ([0; 8], 0);
    let mut put = |letter| {
        if let Some(place) = text.get_mut(len) {
            *place = letter;
            len += 1;
        }
    };
    let has = |bit| action & bit != 0;
    if has(FLUSH) {
        put(b'F');
    }
    put(match () {
        () if has(DISCARD) => b'D',
        () if has(WRITE) && (bytes > 0 || has(FLUSH)) => b'W',
        () if has(READ) && bytes > 0 => b'R',
        () if has(FLUSH) => b'F',
        () => b'N',
    });
    for (bit, letter) in [(FUA, b'F'), (AHEAD, b'A'), (SYNC, b'S'), (META, b'M')] {
        if has(bit) {
            put(letter);
        }
    }
    (text, len)
}

/// Reads one record, or what there is of it, and says how many bytes that is.
fn fill(input: &mut dyn BufRead) -> io::Result<([u8; RECORD], usize)> {
    let (mut bytes, mut have) = ([0; RECORD], 0);
    while have < RECORD {
        match input.read(bytes.get_mut(have..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok((bytes, have))
}

struct Record {
    bytes: [u8; RECORD],
    order: Order,
}

impl Record {
    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = self.bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N]);
        if self.order == Order::Big {
            bytes.reverse();
        }
        bytes
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.get(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.get(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.get(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record in either byte order.
    fn record(order: Order, at: u64, sector: u64, bytes: u32, action: u32, said: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |le: &[u8]| match order {
            Order::Little => out.extend_from_slice(le),
            Order::Big => out.extend(le.iter().rev()),
        };
        put(&(MAGIC | VERSION).to_le_bytes());
        put(&1_u32.to_le_bytes());
        put(&at.to_le_bytes());
        put(&sector.to_le_bytes());
        for word in [bytes, action, 83, 179 << 20, 0] {
            put(&word.to_le_bytes());
        }
        put(&0_u16.to_le_bytes());
        put(&u16::try_from(said.len()).unwrap().to_le_bytes());
        out.extend_from_slice(said);
        out
    }

    fn all(bytes: &[u8]) -> Vec<Line> {
        let mut reader = Reader::new(order(bytes).unwrap());
        let mut input = io::Cursor::new(bytes);
        std::iter::from_fn(|| reader.next(&mut input).unwrap()).collect()
    }

    #[test]
    fn both_byte_orders_hold_the_same() {
        for order in [Order::Little, Order::Big] {
            let mut file = record(order, 5, 0, 0, NOTIFY, b"jbd2\0\0\0\0");
            file.extend(record(order, 7, 3_932_160, 4096, 1 | WRITE | SYNC, b""));
            let [Line::Other, Line::Event(e)] = &all(&file)[..] else { panic!("{order:?}") };
            assert_eq!((e.at, e.kind, e.dev, e.pid, e.sectors), (7, Kind::BioQueue, (179, 0), 83, 8));
            assert_eq!((&*e.task, &*e.rwbs, e.sector), ("jbd2", "WS", 3_932_160));
        }
    }

    #[test]
    fn a_cut_file_and_one_that_loses_its_way_say_so_once() {
        let one = record(Order::Little, 7, 8, 4096, 1 | READ, b"");
        for cut in 1..one.len() {
            let mut file = one.clone();
            file.extend_from_slice(&one[..cut]);
            assert!(matches!(&all(&file)[..], [Line::Event(_), Line::Odd]), "{cut}");
        }
        let mut lost = one.clone();
        lost.extend_from_slice(&[0x55; 200]);
        assert!(matches!(&all(&lost)[..], [Line::Event(_), Line::Odd]));
        assert!(order(b"ftra").is_none() && order(b"").is_none());
    }

    #[test]
    fn letters_are_those_of_the_kernel() {
        for (action, bytes, expected) in [
            (READ, 512, "R"),
            (READ | AHEAD | META, 512, "RAM"),
            (WRITE | SYNC | META, 512, "WSM"),
            (WRITE | FLUSH | FUA | SYNC, 512, "FWFS"),
            (WRITE | FLUSH | SYNC, 0, "FWS"),
            (READ | FLUSH, 0, "FF"),
            (DISCARD | WRITE, 512, "D"),
        ] {
            let (text, len) = rwbs(action, bytes);
            assert_eq!(std::str::from_utf8(&text[..len]).unwrap(), expected);
        }
    }
}

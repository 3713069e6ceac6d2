//! The default text of `blkparse`: one event a line, a summary at the end.
//!
//! ```text
//! 179,0    0       11     0.002703291    83  Q  WS 3932160 + 8 [jbd2/mmcblk0-8]
//! 179,0    0        5     0.001255989     7  C  RM 69896 + 8 [0]
//! ```
//!
//! (device, CPU, number, seconds, process, action, RWBS, first sector + sectors, and the task or the error). `blkparse`
//! writes `M` for a bio that goes to the end of a request and for a request that goes to the end of another: a bio's comes
//! after its `Q` (see [`Merges`]).

use std::collections::HashMap;
use std::sync::Arc;

use super::ftrace::{number, split, stamp};
use super::model::{Event, Kind, Line, Names};

/// Tells the two kinds of back merges apart.
#[derive(Debug, Default)]
pub(super) struct Merges {
    /// Bios that were queued and have neither a request nor been merged, by device and first sector.
    queued: HashMap<((u32, u32), u64), u32>,
}

/// More bios than any queue has between a `Q` and what follows it: with a broken trace the memory stays bounded.
const MOST: usize = 1 << 16;

impl Merges {
    /// `kind` as it is: a back merge of something that is no queued bio is one of requests.
    pub(super) fn judge(&mut self, kind: Kind, dev: (u32, u32), sector: u64) -> Kind {
        let key = (dev, sector);
        match kind {
            Kind::BioQueue => {
                if self.queued.len() >= MOST {
                    self.queued.clear();
                }
                *self.queued.entry(key).or_default() += 1;
            }
            Kind::GetRq | Kind::FrontMerge | Kind::BackMerge => match self.queued.get_mut(&key) {
                Some(1) => drop(self.queued.remove(&key)),
                Some(bios) => *bios -= 1,
                None if kind == Kind::BackMerge => return Kind::RqMerge,
                None => {}
            },
            _ => {}
        }
        kind
    }

    /// The bio at `from` was split: what is left of it begins at `rest`.
    pub(super) fn split(&mut self, dev: (u32, u32), rest: u64) {
        if self.queued.len() < MOST {
            *self.queued.entry((dev, rest)).or_default() += 1;
        }
    }
}

/// Reads lines that begin with a device.
#[derive(Debug, Default)]
pub(super) struct Parser {
    merges: Merges,
    /// Names of processes, for the lines that have none.
    tasks: HashMap<u32, Arc<str>>,
    seen: bool,
}

impl Parser {
    /// Whether any line was one of `blkparse`'s: then others may be its summary.
    pub(super) fn has_begun(&self) -> bool {
        self.seen
    }

    /// What `line` holds; `None`: it is none of `blkparse`'s. A line that is begins with a digit, or belongs to the summary.
    pub(super) fn line(&mut self, line: &[u8], names: &mut Names) -> Option<Line> {
        let mut words = Words(line);
        let Some(dev) = words.next().and_then(device) else {
            return (self.seen && summary(line)).then_some(Line::Other);
        };
        // `179,0` alone could begin a sentence; with a number behind it, it is a device and a CPU.
        words.next().and_then(number)?;
        let line = self.event(dev, &mut words, names);
        self.seen |= line.is_some();
        Some(line.unwrap_or(Line::Odd))
    }

    fn event(&mut self, dev: (u32, u32), words: &mut Words<'_>, names: &mut Names) -> Option<Line> {
        number(words.next()?)?;
        let at = stamp(words.next()?)?;
        let pid = number(words.next()?)?.try_into().ok()?;
        let kind = match words.next()? {
            b"Q" => Kind::BioQueue,
            b"G" => Kind::GetRq,
            b"M" => Kind::BackMerge,
            b"F" => Kind::FrontMerge,
            b"I" => Kind::Insert,
            b"D" => Kind::Issue,
            b"R" => Kind::Requeue,
            b"C" => Kind::Complete,
            b"X" => {
                let rest = words.rest();
                let rest = number(split(split(rest, b"/ ")?.1, b" ")?.0)?;
                self.merges.split(dev, rest);
                return Some(Line::Other);
            }
            // Plugging, sleeping for a tag, remapping, messages, …
            action if !action.is_empty() && action.len() <= 2 => return Some(Line::Other),
            _ => return None,
        };
        let rwbs = words.next()?;
        if !rwbs.iter().all(u8::is_ascii_alphabetic) {
            return None;
        }
        let (body, last) = split(words.rest(), b"[")?;
        let last = last.strip_suffix(b"]").or_else(|| split(last, b"]").map(|(name, _)| name))?;
        let (sector, sectors) = match split(body, b" + ") {
            Some((sector, sectors)) => (number(sector)?, number(sectors.trim_ascii())?.try_into().ok()?),
            // A flush has no place.
            None if body.trim_ascii().is_empty() => (u64::MAX, 0),
            None => return None,
        };
        let task = if matches!(kind, Kind::Complete | Kind::Requeue) {
            self.tasks.get(&pid).cloned().unwrap_or_else(|| names.get(b"?"))
        } else {
            let name = names.get(last);
            if self.tasks.get(&pid) != Some(&name) && self.tasks.len() < MOST {
                self.tasks.insert(pid, name.clone());
            }
            name
        };
        let kind = self.merges.judge(kind, dev, sector);
        Some(Line::Event(Event { at, kind, dev, task, pid, rwbs: names.get(rwbs), sector, sectors }))
    }
}

/// `179,0`.
fn device(word: &[u8]) -> Option<(u32, u32)> {
    let (major, minor) = split(word, b",")?;
    Some((number(major)?.try_into().ok()?, number(minor)?.try_into().ok()?))
}

/// A line of the summary that follows the events.
fn summary(line: &[u8]) -> bool {
    const BEGINS: [&[u8]; 15] = [
        b"CPU",
        b"Total (",
        b"Reads ",
        b"Read ",
        b"Writes ",
        b"Write ",
        b"IO unplugs",
        b"Throughput",
        b"Events (",
        b"Skips:",
        b"Input file",
        b"Discards ",
        b"Discard ",
        b"PC ",
        b"Merges",
    ];
    BEGINS.iter().any(|begin| line.starts_with(begin))
}

/// Words between blanks, and what follows them.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_start();
        let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
        let (word, rest) = text.split_at_checked(end)?;
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
    fn rest(&self) -> &'a [u8] {
        self.0.trim_ascii_start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        let (mut parser, mut names) = (Parser::default(), Names::default());
        text.lines().map(|l| parser.line(l.trim().as_bytes(), &mut names).unwrap_or(Line::Odd)).collect()
    }

    fn kinds(text: &str) -> Vec<Option<Kind>> {
        let kind = |line| match line {
            Line::Event(e) => Some(e.kind),
            _ => None,
        };
        lines(text).into_iter().map(kind).collect()
    }

    #[test]
    fn a_line_holds_an_event() {
        let line = "179,0    0       11     0.002703291    83  Q  WS 3932160 + 8 [jbd2/mmcblk0-8]";
        let [Line::Event(e)] = &lines(line)[..] else { panic!() };
        assert_eq!((e.at, e.kind, e.dev, e.pid), (2_703_291, Kind::BioQueue, (179, 0), 83));
        assert_eq!((&*e.task, &*e.rwbs, e.sector, e.sectors), ("jbd2/mmcblk0-8", "WS", 3_932_160, 8));
    }

    #[test]
    fn a_merge_of_requests_is_told_from_one_of_a_bio() {
        let text = "8,0 0 1 0.1 9 Q W 100 + 8 [a]
            8,0 0 2 0.1 9 G W 100 + 8 [a]
            8,0 0 3 0.1 9 Q W 116 + 8 [a]
            8,0 0 4 0.1 9 G W 116 + 8 [a]
            8,0 0 5 0.1 9 Q W 108 + 8 [a]
            8,0 0 6 0.1 9 M W 108 + 8 [a]
            8,0 0 7 0.1 9 M W 116 + 8 [a]";
        use Kind::{BackMerge, BioQueue, GetRq, RqMerge};
        let expected = [BioQueue, GetRq, BioQueue, GetRq, BioQueue, BackMerge, RqMerge];
        assert_eq!(kinds(text), expected.map(Some));
    }

    #[test]
    fn the_rest_of_a_split_bio_is_no_request() {
        let text = "8,0 0 1 0.1 9 Q W 0 + 16 [a]
            8,0 0 2 0.1 9 X W 0 / 8 [a]
            8,0 0 3 0.1 9 G W 0 + 8 [a]
            8,0 0 4 0.1 9 M W 8 + 8 [a]";
        assert_eq!(kinds(text)[3], Some(Kind::BackMerge));
    }

    #[test]
    fn what_is_no_event_and_what_is_cut() {
        let (mut parser, mut names) = (Parser::default(), Names::default());
        let mut read = |line: &str| parser.line(line.as_bytes(), &mut names);
        assert_eq!(read("Reads Queued:           6,       24KiB"), None, "no line of blkparse before it");
        assert_eq!(read("179,0    0    6     0.000009178    12  P   N [kworker/u4:0]"), Some(Line::Other));
        assert_eq!(read("179,0    0    7     0.0000142    12  U   N [kworker/u4:0] 1"), Some(Line::Other));
        assert_eq!(read("179,0    0    7     0.0000142    12  D   W 29"), Some(Line::Odd));
        assert_eq!(read("179,0    0    7     0.0000142    12  D   W 29 + 8"), Some(Line::Odd));
        assert_eq!(read("179,0    0    7     x    12  D   W 29 + 8 [a]"), Some(Line::Odd));
        assert_eq!(read("179,0 apples"), None);
        assert_eq!(read("Reads Queued:           6,       24KiB"), Some(Line::Other));
        let Some(Line::Event(flush)) = read("8,0 0 7 0.0142 12 D FN [kworker/0:1H]") else { panic!() };
        assert_eq!((flush.sector, flush.sectors), (u64::MAX, 0));
    }
}

//! What the loads of a scenario submit, and when.
//!
//! A source knows nothing of tags, schedulers or cards: it is told that its requests were admitted or done and that time
//! came, and answers with requests and with when to wake it.

use super::file::{Kind, Load};
use mmc_mock::mersenne::Mersenne;

/// 4 KiB.
const PAGE: u64 = 8;
/// Random requests without a `span` of their own lie in 1 GiB.
const SPAN: u64 = 262_144;
/// A journal wraps around after this many sectors.
const JOURNAL: u64 = 16_384;

/// A request a source wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose.
    pub pid: u32,
    /// A read, else a write.
    pub read: bool,
    /// Somebody waits for it.
    pub sync: bool,
    /// First sector.
    pub lba: u64,
    /// Sectors.
    pub blocks: u32,
    /// It begins where the source's last one ended.
    pub continues: bool,
    /// For the source itself, when it is done.
    pub what: u64,
}

/// What a source answers.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Requests to submit now, in this order.
    pub wanted: Vec<Wanted>,
    /// When to wake it, and with which word.
    pub wake: Vec<(u64, u64)>,
    /// The new weight of a stream.
    pub weight: Option<(u32, u32)>,
}

/// One load at work. Times in ns.
#[derive(Clone, Debug)]
pub struct Source {
    kind: Kind,
    random: Mersenne,
    /// End of the last sequential request, relative to the base.
    pos: u64,
    /// Requests outstanding.
    open: u64,
    /// Times it did what it does.
    count: u64,
}

/// Words of [`Kind::FileOps`].
const FIRST: u64 = 0;
const READ: u64 = 1;
const WRITE: u64 = 2;

impl Source {
    /// The source of a load.
    #[must_use]
    pub fn new(load: &Load, seed: u64) -> Self {
        // The factors are those of the recorded runs, found by trying: with them the kernel's mq-deadline has the
        // recorded numbers of `hsdk` to the microsecond on every card.
        let factor = if matches!(load.kind, Kind::Periodic { .. }) { 7 } else { 1000 };
        let pid = match load.kind {
            Kind::Writeback { pid, .. }
            | Kind::Closed { pid, .. }
            | Kind::Periodic { pid, .. }
            | Kind::Journal { pid, .. }
            | Kind::Churn { pid, .. }
            | Kind::Flip { pid, .. } => pid,
            Kind::FileOps { reader, .. } => reader,
            Kind::WorstStalls => 0,
        };
        let random = Mersenne::new((u64::from(pid) * factor).wrapping_add(seed));
        Self { kind: load.kind.clone(), random, pos: 0, open: 0, count: 0 }
    }

    /// The load begins.
    pub fn begin(&mut self, now: u64, answer: &mut Answer) {
        match self.kind {
            Kind::Writeback { .. } => self.submit_writeback(answer),
            Kind::Closed { depth, .. } => {
                for _ in 0..depth {
                    self.submit_closed(answer);
                }
            }
            Kind::FileOps { .. } => {
                self.file_op(FIRST, answer);
                answer.wake.push((now + 3_000_000_000, READ));
            }
            Kind::Journal { .. } | Kind::Periodic { .. } | Kind::Churn { .. } | Kind::Flip { .. } => {
                self.wake(0, now, answer);
            }
            Kind::WorstStalls => {}
        }
    }

    /// The instant came that it asked for with this word.
    pub fn wake(&mut self, what: u64, now: u64, answer: &mut Answer) {
        match self.kind {
            Kind::WorstStalls => {}
            Kind::Writeback { .. } => self.submit_writeback(answer),
            Kind::Closed { .. } => self.submit_closed(answer),
            Kind::Periodic { pid, base, sectors, period, write } => {
                let lba = if write { base + self.advance(sectors) } else { base + self.anywhere(SPAN) };
                answer.wanted.push(sync(pid, !write, lba, sectors, write, 0));
                answer.wake.push((now + (period as f64 * self.random.uniform(0.9, 1.1)) as u64, 0));
            }
            Kind::Journal { pid, base, sectors, group, .. } => {
                for _ in 0..group {
                    let lba = base + self.advance(sectors) % JOURNAL;
                    answer.wanted.push(sync(pid, false, lba, sectors, true, 0));
                }
                self.open = group;
            }
            Kind::FileOps { .. } => self.file_op(what, answer),
            // A word above 0: the stream's number, and how many reads are left.
            Kind::Churn { gap, .. } => {
                if what == 0 {
                    self.count += 1;
                    answer.wake.push((now + gap, 0));
                    self.churn(self.count * 4 + 2, answer);
                } else {
                    self.churn(what, answer);
                }
            }
            Kind::Flip { pid, gap } => {
                self.count += 1;
                answer.weight = Some((pid, if self.count % 2 == 1 { 1000 } else { 10 }));
                answer.wake.push((now + gap, 0));
            }
        }
    }

    /// One of its requests got a tag: a blocked thread goes on, after others that can run now.
    pub fn admitted(&mut self, now: u64, answer: &mut Answer) {
        if let Kind::Writeback { window, .. } = self.kind
            && self.open < window
        {
            answer.wake.push((now, 0));
        }
    }

    /// One of its requests is done.
    pub fn done(&mut self, what: u64, now: u64, answer: &mut Answer) {
        match self.kind {
            Kind::Writeback { window, .. } => {
                let blocked_by_window = self.open >= window;
                self.open -= 1;
                if blocked_by_window {
                    self.submit_writeback(answer);
                }
            }
            Kind::Closed { think, .. } => answer.wake.push((now + think, 0)),
            Kind::Journal { think, .. } => {
                self.open -= 1;
                if self.open == 0 {
                    answer.wake.push((now + think, 0));
                }
            }
            Kind::FileOps { think, .. } => match what {
                READ => answer.wake.push((now + think, WRITE)),
                WRITE => answer.wake.push((now + think, READ)),
                _ => {}
            },
            Kind::Churn { .. } if !what.is_multiple_of(4) => answer.wake.push((now + 200_000, what - 1)),
            Kind::Churn { .. } | Kind::Periodic { .. } | Kind::Flip { .. } | Kind::WorstStalls => {}
        }
    }

    fn submit_writeback(&mut self, answer: &mut Answer) {
        if let Kind::Writeback { pid, base, sectors, .. } = self.kind {
            self.open += 1;
            let lba = base + self.advance(sectors);
            answer.wanted.push(Wanted { sync: false, ..sync(pid, false, lba, sectors, true, 0) });
        }
    }

    fn submit_closed(&mut self, answer: &mut Answer) {
        if let Kind::Closed { pid, base, sectors, random, write, span, .. } = self.kind {
            let continues = !random && self.pos > 0;
            let lba = base + if random { self.anywhere(span) } else { self.advance(sectors) };
            answer.wanted.push(sync(pid, !write, lba, sectors, continues, 0));
        }
    }

    fn file_op(&mut self, what: u64, answer: &mut Answer) {
        if let Kind::FileOps { reader, journal, base, .. } = self.kind {
            answer.wanted.push(if what == READ {
                sync(reader, true, base + self.anywhere(SPAN), PAGE as u32, false, what)
            } else {
                // The journal lies behind the files and wraps within 4 MiB: in the recorded results no later
                // write than the first opens an allocation unit beside a reader.
                let lba = base + SPAN * PAGE + self.advance(16) % 8192;
                sync(journal, false, lba, 16, true, what)
            });
        }
    }

    fn churn(&mut self, what: u64, answer: &mut Answer) {
        if let Kind::Churn { pid, base, .. } = self.kind {
            let stream = pid.wrapping_add((what / 4 - 1) as u32);
            let lba = base + self.anywhere(SPAN);
            answer.wanted.push(sync(stream, true, lba, PAGE as u32, false, what));
        }
    }

    /// Where the next sequential request begins.
    fn advance(&mut self, sectors: u32) -> u64 {
        let at = self.pos;
        self.pos += u64::from(sectors);
        at
    }

    fn anywhere(&mut self, span: u64) -> u64 {
        PAGE * self.random.below(span)
    }
}

fn sync(pid: u32, read: bool, lba: u64, blocks: u32, continues: bool, what: u64) -> Wanted {
    Wanted { pid, read, sync: true, lba, blocks, continues, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(kind: Kind) -> Source {
        Source::new(&Load { name: "x".into(), start: 0, kind }, 1)
    }
    fn answer(f: impl FnOnce(&mut Answer)) -> Answer {
        let mut a = Answer::default();
        f(&mut a);
        a
    }

    #[test]
    fn a_writeback_thread_blocks_for_a_tag_and_for_its_window() {
        let mut s = source(Kind::Writeback { pid: 2, base: 8192, sectors: 1024, window: 2 });
        let first = answer(|a| s.begin(0, a));
        assert_eq!((first.wanted.len(), first.wanted[0].lba, first.wanted[0].sync), (1, 8192, false));
        assert_eq!(answer(|a| s.admitted(3, a)).wake, [(3, 0)]);
        assert_eq!(answer(|a| s.wake(0, 3, a)).wanted[0].lba, 9216);
        assert!(answer(|a| s.admitted(3, a)).wake.is_empty(), "the window is full");
        assert_eq!(answer(|a| s.done(0, 5, a)).wanted[0].lba, 10_240);
    }

    #[test]
    fn a_journal_waits_for_its_group_and_wraps() {
        let mut s = source(Kind::Journal { pid: 1, base: 64, sectors: 8192, group: 3, think: 10 });
        let lbas: Vec<_> = answer(|a| s.begin(0, a)).wanted.iter().map(|w| w.lba).collect();
        assert_eq!(lbas, [64, 8256, 64]);
        assert!(answer(|a| s.done(0, 1, a)).wake.is_empty());
        assert!(answer(|a| s.done(0, 2, a)).wake.is_empty());
        assert_eq!(answer(|a| s.done(0, 3, a)).wake, [(13, 0)]);
    }

    #[test]
    fn a_file_operation_is_a_read_then_a_journal_write() {
        let mut s = source(Kind::FileOps { reader: 20, journal: 21, base: 0, think: 100 });
        let a = answer(|a| s.begin(0, a));
        assert_eq!((a.wanted[0].pid, a.wanted[0].read, a.wake[0]), (21, false, (3_000_000_000, READ)));
        assert!(answer(|a| s.done(FIRST, 9, a)).wake.is_empty());
        assert!(answer(|a| s.wake(READ, 9, a)).wanted[0].read);
        assert_eq!(answer(|a| s.done(READ, 9, a)).wake, [(109, WRITE)]);
        assert_eq!(answer(|a| s.wake(WRITE, 109, a)).wanted[0].pid, 21);
        assert_eq!(answer(|a| s.done(WRITE, 200, a)).wake, [(300, READ)]);
    }

    #[test]
    fn each_churning_stream_reads_three_times() {
        let mut s = source(Kind::Churn { pid: 1000, base: 0, gap: 60 });
        let mut word = answer(|a| s.begin(0, a)).wanted[0].what;
        for left in [2, 1, 0] {
            assert_eq!(word % 4, left);
            let a = answer(|a| s.done(word, 7, a));
            match a.wake.first() {
                Some(&(at, next)) => {
                    assert_eq!(at, 200_007);
                    word = answer(|a| s.wake(next, at, a)).wanted[0].what;
                }
                None => assert_eq!(left, 0),
            }
        }
        assert_eq!(answer(|a| s.wake(0, 60, a)).wanted[0].pid, 1001);
    }

    #[test]
    fn random_requests_stay_in_their_range_and_depend_on_the_seed() {
        let kind = Kind::Closed {
            pid: 10,
            base: 1 << 20,
            sectors: 8,
            think: 0,
            random: true,
            depth: 1,
            write: false,
            span: 100,
        };
        let draw = |seed| {
            let mut s = Source::new(&Load { name: "x".into(), start: 0, kind: kind.clone() }, seed);
            (0..200).map(|_| answer(|a| s.wake(0, 0, a)).wanted[0].lba).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(1).iter().all(|l| ((1 << 20)..(1 << 20) + 800).contains(l) && l % 8 == 0));
    }
}

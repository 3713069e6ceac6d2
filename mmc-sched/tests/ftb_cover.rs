//! What `cover` makes of a flush: it waits for what it was told to wait for, for all of it, and for nothing else.
#![cfg(feature = "ftb")]

use mmc_sched::ftb::Ftb;
use mmc_sched::{
    Dispatch, Flags, Limits, Merges, Op, Outcome, Queue, Request, RequestId, Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};

const FLUSHER: StreamId = StreamId(1);
const OTHER_FLUSHER: StreamId = StreamId(2);
const JOURNAL: StreamId = StreamId(3);
const OTHER_JOURNAL: StreamId = StreamId(4);

struct Bench {
    queue: Queue<Vec<Slot>, Ftb<8>>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let limits = Limits { merges: Merges::None, ..Limits::default() };
        let queue = Queue::with_limits(vec![Slot::FREE; 64], Ftb::new(), limits);
        Self { queue, now: Instant::from_secs(1) }
    }
    fn put(&mut self, r: Request) -> RequestId {
        self.queue.insert(r, self.now).expect("room").0
    }
    fn pages(&mut self, whose: StreamId, n: u64) {
        for i in 0..n {
            self.put(Request::new(Op::Write, (u64::from(whose.0) << 20) + i * 1000, 8, whose));
        }
    }
    fn flush(&mut self, whose: StreamId) -> RequestId {
        let flags = Flags::SYNC | Flags::PREFLUSH;
        self.put(Request { flags, ..Request::new(Op::Write, u64::from(whose.0) << 24, 8, whose) })
    }
    fn cover(&mut self, by: StreamId, covered: StreamId) -> bool {
        self.queue.policy_mut().cover(by, covered)
    }
    fn send(&mut self) -> Option<Run> {
        loop {
            match self.queue.dispatch(self.now) {
                Dispatch::Run(run) => return Some(run),
                Dispatch::Wait { at: Some(at), .. } => self.now = at,
                Dispatch::Wait { at: None, .. } | Dispatch::Empty => return None,
            }
        }
    }
    fn end(&mut self, run: Run) {
        self.now += Duration::from_millis(2);
        let outcome = Outcome { blocks: run.blocks, failed: false };
        self.queue.complete(run.head, outcome, self.now).expect("at the device");
    }
    /// How many commands end before this one goes out.
    fn before(&mut self, id: RequestId) -> usize {
        for n in 0.. {
            let run = self.send().expect("something is left");
            if run.head == id {
                self.end(run);
                return n;
            }
            self.end(run);
        }
        unreachable!()
    }
    /// All that is left goes out.
    fn drain(&mut self) -> usize {
        let mut n = 0;
        while let Some(run) = self.send() {
            self.end(run);
            n += 1;
        }
        assert!(self.queue.is_empty());
        n
    }
}

#[test]
fn without_a_cover_a_flush_waits_for_nobody_elses_pages() {
    let mut b = Bench::new();
    b.pages(FLUSHER, 6);
    let flush = b.flush(JOURNAL);
    assert_eq!((b.before(flush), b.drain()), (0, 6));
}

#[test]
fn a_flush_waits_for_all_it_covers_and_for_nothing_that_came_later() {
    for (covered, later) in [(1, 0), (1, 5), (4, 5), (6, 1)] {
        let mut b = Bench::new();
        b.pages(FLUSHER, covered);
        assert!(b.cover(JOURNAL, FLUSHER));
        b.pages(FLUSHER, later);
        let flush = b.flush(JOURNAL);
        let (before, all) = (b.before(flush) as u64, covered + later);
        assert!(
            (covered..=covered + 1).contains(&before),
            "{before} before it: {covered} covered, {later} later"
        );
        assert_eq!(before + b.drain() as u64, all);
    }
}

#[test]
fn only_who_asked_waits_and_only_with_a_flush() {
    let mut b = Bench::new();
    b.pages(FLUSHER, 6);
    assert!(b.cover(JOURNAL, FLUSHER));
    let other = b.flush(OTHER_JOURNAL);
    let read = b.put(Request::new(Op::Read, 1 << 28, 8, JOURNAL));
    assert!(b.before(other) <= 1, "not for another one's");
    assert!(b.before(read) <= 1, "no more does what is no flush");
    let flush = b.flush(JOURNAL);
    let last = b.before(flush);
    assert_eq!(b.drain(), 0, "after all six, {last} of them since");
}

#[test]
fn two_covers_are_waited_for_and_a_later_one_takes_the_place_of_an_earlier() {
    let mut b = Bench::new();
    b.pages(FLUSHER, 3);
    b.pages(OTHER_FLUSHER, 2);
    assert!(b.cover(JOURNAL, FLUSHER) && b.cover(JOURNAL, OTHER_FLUSHER));
    let flush = b.flush(JOURNAL);
    assert_eq!((b.before(flush), b.drain()), (5, 0));
    let mut b = Bench::new();
    b.pages(FLUSHER, 3);
    assert!(b.cover(JOURNAL, FLUSHER));
    b.pages(FLUSHER, 2);
    assert!(b.cover(JOURNAL, FLUSHER), "more is covered now");
    let flush = b.flush(JOURNAL);
    assert_eq!((b.before(flush), b.drain()), (5, 0));
    let mut b = Bench::new();
    b.pages(FLUSHER, 3);
    assert!(b.cover(JOURNAL, FLUSHER) && b.cover(OTHER_JOURNAL, FLUSHER));
    let flush = b.flush(JOURNAL);
    assert!(b.before(flush) <= 1, "it is another one's now");
}

#[test]
fn only_what_nobody_waits_for_and_is_queued_can_be_covered() {
    let mut b = Bench::new();
    assert!(!b.cover(JOURNAL, FLUSHER), "not known");
    b.put(Request::new(Op::Read, 0, 8, FLUSHER));
    assert!(!b.cover(JOURNAL, FLUSHER), "somebody waits for that");
    assert_eq!(b.drain(), 1);
    b.pages(FLUSHER, 1);
    let run = b.send().expect("the page");
    assert!(!b.cover(JOURNAL, FLUSHER), "at the device already");
    b.end(run);
    // And it is over when the pages are: later ones are nobody's.
    b.pages(FLUSHER, 2);
    assert!(b.cover(JOURNAL, FLUSHER));
    assert_eq!(b.drain(), 2);
    b.pages(FLUSHER, 4);
    let flush = b.flush(JOURNAL);
    assert!(b.before(flush) <= 1);
}

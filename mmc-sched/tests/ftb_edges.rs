//! What `cover` makes of a flush: it waits for what it was told to wait for, for all of it, and for nothing else. And
//! where some rules of `ftb` begin and end, to the tag, the sector and the nanosecond.
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

#[test]
fn what_nobody_waits_for_gets_half_of_the_tags_to_the_last_one() {
    for tags in [8, 9, 24] {
        let mut b = Bench::new();
        let page = |n: u64| Request::new(Op::Write, n * 1000, 8, FLUSHER);
        let mut got = 0;
        while b.queue.admits_request(&page(got), tags) {
            b.put(page(got));
            got += 1;
        }
        assert_eq!(got, tags as u64 / 2, "{tags}");
        // Others get one each, and a reader what is left but for newcomers: half of an eighth.
        assert!(b.queue.admits_request(&Request::new(Op::Write, 0, 8, OTHER_FLUSHER), tags));
        let read = |n: u64| Request::new(Op::Read, 1 << 24 | n << 12, 8, JOURNAL);
        let mut reads = 0;
        while b.queue.admits_request(&read(reads), tags) {
            b.put(read(reads));
            reads += 1;
        }
        assert_eq!((got + reads) as usize, tags - tags / 8 / 2, "{tags}");
    }
}

#[test]
fn a_change_of_place_costs_what_it_was_seen_to_cost() {
    // A write takes what was expected and this much more, in parts of what was expected: what the next change of place is
    // expected to cost. Up to a quarter more is taken for that, a quarter of it at a time; more must be seen twice. The first
    // write of all says nothing of it: what was expected of that is a guess.
    let charged = |b: &Bench| b.queue.policy().account(JOURNAL, true).map_or(Duration::ZERO, |a| a.charged);
    let expected = |b: &Bench| b.queue.policy().expected_write(128).as_nanos();
    let costs = |more: &dyn Fn(u64) -> u64, times: u32| {
        let mut b = Bench::new();
        let mut est = expected(&b);
        for n in 0..=times + 1 {
            // The journal writes at another place each time.
            let flags = Flags::SYNC;
            let request = Request { flags, ..Request::new(Op::Write, 1 << (20 + n), 128, JOURNAL) };
            b.put(request);
            let before = charged(&b);
            let run = b.send().expect("nothing else is there");
            let extra = (charged(&b) - before).as_nanos() - est;
            if n == times + 1 {
                return (extra, est);
            }
            b.now += Duration::from_nanos(est + if n == 0 { 3 * est } else { more(est) });
            b.queue.complete(run.head, Outcome { blocks: 128, failed: false }, b.now).expect("there");
            est = expected(&b);
        }
        unreachable!()
    };
    let (extra, est) = costs(&|est| est / 4, 1);
    assert_eq!(extra, est / 4 / 4, "a quarter more, once");
    assert_eq!(costs(&|est| est / 4 + 1, 1).0, 0, "more than that, once");
    let (extra, est) = costs(&|est| est / 4 + 4, 2);
    assert_eq!(extra, (est / 4 + 4) / 2, "more than that, twice");
}

#[test]
fn a_part_that_comes_back_stands_where_it_stood() {
    let mut b = Bench::new();
    // Somebody waits for something, so large writes nobody waits for go out in parts.
    let read = b.put(Request::new(Op::Read, 1 << 28, 8, JOURNAL));
    let run = b.send().expect("the read");
    assert_eq!(run.head, read);
    b.end(run);
    let large = b.put(Request::new(Op::Write, 0, 8192, FLUSHER));
    let part = b.send().expect("a part of it");
    assert!(part.head == large && part.blocks < 8192, "{part:?}");
    let small = b.put(Request::new(Op::Write, 100_000, 8, FLUSHER));
    b.queue.requeue(&part, b.now);
    // From where the part would have ended on the small one comes first, then the large one from its beginning.
    let next = b.send().expect("another");
    assert_eq!(next.head, small);
    b.end(next);
    let again = b.send().expect("the part");
    assert_eq!((again.head, again.lba), (large, 0));
    b.end(again);
    b.drain();
}

#[test]
fn a_weight_set_before_it_is_put_in_charge_counts() {
    let mut policy = Ftb::<8>::new();
    policy.set_weight(JOURNAL, Some(7)).expect("room");
    let mut b = Bench::new();
    b.queue.replace(policy, b.now);
    b.put(Request::new(Op::Read, 0, 8, JOURNAL));
    b.put(Request::new(Op::Read, 8, 8, FLUSHER));
    let weight = |id| b.queue.policy().account(id, true).expect("known").weight;
    assert_eq!([JOURNAL, FLUSHER].map(weight), [7, 100]);
}

//! The rules of `ftb` one by one, on a queue driven by hand.
#![cfg(feature = "ftb")]

use mmc_sched::ftb::{Ftb, WeightError};
use mmc_sched::{
    Class, Dispatch, Flags, Inserted, Kind, Limits, Merges, Op, Outcome, Priority, Queue, Request, RequestId,
    Run, Scheduler, Slot, StreamId, TuneError,
};
use mmc_time::{Duration, Instant};

const MS: fn(u64) -> Duration = Duration::from_millis;
const US: fn(u64) -> Duration = Duration::from_micros;

struct Bench<const N: usize> {
    queue: Queue<Vec<Slot>, Ftb<N>>,
    now: Instant,
}

/// A queue that does not merge, with these tunables.
fn bench<const N: usize>(set: &[(&str, &str)]) -> Bench<N> {
    let limits = Limits { merges: Merges::None, ..Limits::default() };
    let mut queue = Queue::with_limits(vec![Slot::FREE; 256], Ftb::new(), limits);
    for (name, value) in set {
        queue.tune(name, value).unwrap();
    }
    Bench { queue, now: Instant::from_secs(10) }
}

fn read(stream: u32, lba: u64, blocks: u32) -> Request {
    Request::new(Op::Read, lba, blocks, StreamId(stream))
}
fn write(stream: u32, lba: u64, blocks: u32) -> Request {
    Request::new(Op::Write, lba, blocks, StreamId(stream))
}
fn sync_write(stream: u32, lba: u64, blocks: u32) -> Request {
    Request { flags: Flags::SYNC, ..write(stream, lba, blocks) }
}

impl<const N: usize> Bench<N> {
    fn add(&mut self, r: Request) -> RequestId {
        self.queue.insert(r, self.now).unwrap().0
    }
    fn run(&mut self) -> Run {
        match self.queue.dispatch(self.now) {
            Dispatch::Run(run) => run,
            other => panic!("{other:?} at {:?}", self.now),
        }
    }
    fn done(&mut self, run: Run, d: Duration) {
        self.now += d;
        self.queue.complete(run.head, Outcome { blocks: run.blocks, failed: false }, self.now).unwrap();
    }
    /// Whose command goes next; it takes `d`.
    fn serve(&mut self, d: Duration) -> u32 {
        let run = self.run();
        let stream = self.queue.request(run.head).unwrap().stream.0;
        self.done(run, d);
        stream
    }
    fn waits(&mut self) -> (Option<Instant>, bool) {
        match self.queue.dispatch(self.now) {
            Dispatch::Wait { at, completion } => (at, completion),
            other => panic!("{other:?}"),
        }
    }
    /// The device is kept free until then, give or take what dividing rounds off.
    fn held_for(&mut self, d: Duration) -> Instant {
        let (at, completion) = self.waits();
        let held = at.unwrap() - self.now;
        assert!(!completion && held <= d && held + Duration::from_nanos(100) >= d, "{held} instead of {d}");
        at.unwrap()
    }
    /// A card of 1 ms and 15 MB/s is known from now on.
    fn known_card(&mut self) {
        for i in 0..24 {
            self.add(write(9, i * 1024, 1024));
            assert_eq!(self.serve(MS(34)), 9);
        }
        for i in 0..24 {
            self.add(write(9, (24 << 10) + i * 8, 8));
            assert_eq!(self.serve(US(1250)), 9);
        }
    }
    /// A reader that comes back after `think`, for so long that this is known.
    fn reader(&mut self, stream: u32, think: Duration) {
        for i in 0..90 {
            self.add(read(stream, i * 8, 8));
            assert_eq!(self.serve(MS(1)), stream);
            self.now += think;
        }
    }
}

/// Rule 2.
#[test]
fn the_device_is_kept_free_for_a_reader_that_will_be_back_before_a_write_is_done() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    b.reader(1, US(500));
    b.add(read(1, 800, 8));
    b.add(write(2, 1 << 20, 1024));
    assert_eq!(b.serve(MS(1)), 1);
    // Twice its pause and what a late one may take.
    let until = b.held_for(US(1200));
    assert_eq!(b.queue.wake_at(), Some(until));
    b.now += US(600);
    b.add(read(1, 808, 8));
    assert_eq!(b.serve(MS(1)), 1, "it was worth it");
    assert_eq!(b.queue.policy().stats().idle, US(600), "but it cost idle time");
    // Its pause is taken for an eighth longer of what it was longer.
    let until = b.held_for(US(1225));
    let held = US(600) + (until - b.now);
    b.now = until;
    assert_eq!(b.serve(MS(34)), 2, "it did not come");
    assert_eq!(b.queue.policy().stats().idle, held);
}

/// A stream that was away for long before its second request is not taken for one that pauses so long: each pause
/// counts for an eighth. Of one of which none is known yet no more is waited for than what a late one may take.
#[test]
fn one_long_pause_does_not_make_a_slow_reader() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    b.add(read(1, 800, 8));
    b.add(write(2, 1 << 20, 1024));
    assert_eq!(b.serve(MS(1)), 1);
    b.now = b.held_for(US(200));
    assert_eq!(b.serve(MS(34)), 2, "a newcomer may never come back");
    b.now += MS(3000);
    b.add(read(1, 808, 8));
    b.add(write(2, (1 << 20) + 1024, 1024));
    assert_eq!(b.serve(MS(1)), 1);
    // A pause above 64 ms counts as that: 16.2 ms would be waited, if the bank had more than 8.
    b.held_for(MS(8));
}

#[test]
fn it_is_not_kept_free_for_one_that_takes_its_time_nor_without_means() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    b.reader(1, MS(40));
    b.add(read(1, 800, 8));
    b.add(write(2, 1 << 20, 1024));
    assert_eq!([b.serve(MS(1)), b.serve(MS(34))], [1, 2]);
    let mut b = bench::<8>(&[("idle_cap", "0")]);
    b.known_card();
    b.reader(1, US(500));
    b.add(read(1, 800, 8));
    b.add(write(2, 1 << 20, 1024));
    assert_eq!([b.serve(MS(1)), b.serve(MS(34))], [1, 2]);
}

/// Rule 3, with two slots: what nobody waits for goes alone, whatever somebody waits for goes behind it.
#[test]
fn writeback_waits_for_an_empty_device_while_somebody_may_come() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    for i in 0..4 {
        b.add(write(2, (1 << 20) + i * 1024, 1024));
    }
    let (one, two) = (b.run(), b.run());
    b.done(one, MS(34));
    b.done(two, MS(34));
    b.add(read(1, 0, 8));
    let sync = b.run();
    let (at, completion) = b.waits();
    assert_eq!((at, completion), (None, true), "behind a read nothing is prepared");
    b.done(sync, MS(1));
    b.now = b.held_for(US(200));
    let alone = b.run();
    let calm = b.waits().0.expect("the last read is not long ago");
    assert!(calm - b.now > MS(1000) && calm - b.now < MS(3000), "32 commands of 34 ms, twice");
    let second = b.add(read(1, 808, 8));
    assert_eq!(b.run().head, second, "a read is prepared at once");
    b.done(alone, MS(34));
}

/// Of streams that have had the same, the one goes first whose turn is longest ago, not the one that came first.
#[test]
fn who_ties_goes_in_turn() {
    let mut b = bench::<8>(&[]);
    for round in 0..3 {
        for s in [1, 2, 3] {
            b.add(read(s, (u64::from(s) << 20) + round * 8, 8));
        }
    }
    let order: Vec<u32> = (0..9).map(|_| b.serve(MS(2))).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
    // Both owe the same; stream 1 was served before stream 3.
    b.add(read(3, 9 << 20, 8));
    b.add(read(1, 8 << 20, 8));
    assert_eq!([b.serve(MS(2)), b.serve(MS(2))], [1, 3]);
}

/// Who comes while the device is full begins where the least of those that wait is now, not where that was before
/// the commands in the device were charged.
#[test]
fn a_newcomer_is_owed_nothing_of_what_is_on_the_way() {
    let mut b = bench::<8>(&[]);
    for s in [1, 2] {
        for i in 0..3 {
            b.add(read(s, (u64::from(s) << 20) + i * 512, 512));
        }
    }
    let (one, two) = (b.run(), b.run());
    for i in 0..6 {
        b.add(read(3, (3 << 20) + i * 8, 8));
    }
    b.done(one, US(7600));
    b.done(two, US(7600));
    assert_eq!([b.serve(US(500)), b.serve(US(7600)), b.serve(US(7600))], [3, 1, 2], "once, not twelve times");
}

/// The head start of what is waited for is one command nobody waits for, as it was measured: a guess of 41 ms let a
/// reader run so far ahead that writeback went alone for as long afterwards.
#[test]
fn there_is_no_head_start_on_a_guess() {
    let mut b = bench::<8>(&[]);
    let (mut order, mut at) = (vec![], 0);
    while order.len() < 500 {
        for s in [1, 2] {
            if b.queue.policy().account(StreamId(s), s == 1).is_none_or(|a| a.held == 0) {
                at += 1024;
                b.add(if s == 1 { read(1, at << 8, 64) } else { write(2, (1 << 20) + at, 1024) });
            }
        }
        let run = b.run();
        let s = b.queue.request(run.head).unwrap().stream.0;
        // A card so fast that a write takes 6.3 ms instead of the 42 that are expected.
        b.done(run, US(if s == 1 { 130 } else { 6300 }));
        order.push(s);
    }
    assert_eq!(order[..2], [1, 2]);
    let writes = order.chunk_by(|a, b| a == b).filter(|row| row[0] == 2).map(<[u32]>::len);
    assert_eq!(writes.max(), Some(1), "{order:?}");
}

/// A card ten times slower than the guess: the first write of all says what writes cost, not what a change does, so no
/// slot comes of it; and one that stands still now and then teaches nothing, unless it does so twice in a row.
#[test]
fn what_stands_still_and_what_was_guessed_teach_nothing() {
    let mut b = bench::<8>(&[]);
    let expected = |b: &Bench<8>| b.queue.policy().expected_write(1024);
    b.add(write(9, 0, 1024));
    b.serve(MS(420));
    assert_eq!(expected(&b), MS(42) + Duration::from_nanos(280_000), "a command elsewhere is no sample");
    b.add(write(9, 1024, 1024));
    b.serve(MS(420));
    let slow = expected(&b);
    assert!(slow > MS(419) && slow <= MS(420), "as it is, though it passes for a stall: {slow}");
    let mut b = bench::<8>(&[]);
    b.known_card();
    let usual = expected(&b);
    for (i, learns) in [false, true, true].into_iter().enumerate() {
        let before = expected(&b);
        b.add(write(9, (25 << 10) + 1024 * i as u64, 1024));
        b.serve(MS(450));
        // The first one continues nothing.
        assert_eq!(expected(&b) > before, learns && i > 0, "{i}");
    }
    assert!(expected(&b) > usual);
}

/// Opening a unit comes now and then to every writer: only what comes twice in a row is taken for the price of
/// changing, which makes slots.
#[test]
fn one_slow_command_is_chance() {
    for (slow, learnt) in [(1, false), (2, true)] {
        let mut b = bench::<8>(&[]);
        b.known_card();
        let mut at = [1u64 << 20, 2 << 20];
        for (i, at) in at.iter_mut().enumerate() {
            for _ in 0..2 {
                b.add(sync_write(i as u32 + 1, *at, 64));
                *at += 64;
            }
        }
        let (mut last, mut firsts, mut longest, mut row) = (0, 0, 0, 0);
        for _ in 0..60 {
            let run = b.run();
            let s = b.queue.request(run.head).unwrap().stream.0;
            row = if s == last { row + 1 } else { 1 };
            longest = if s == 1 { longest.max(row) } else { longest };
            // Stream 1 opens a unit in its first commands behind the other's.
            let first = s == 1 && s != last;
            firsts += usize::from(first);
            last = s;
            b.done(run, if first && firsts <= slow { MS(23) } else { MS(3) });
            b.add(sync_write(s, at[s as usize - 1], 64));
            at[s as usize - 1] += 64;
        }
        assert_eq!(longest > 4, learnt, "{slow} slow ones: {longest} in a row");
    }
}

/// What is left of a divided request is judged by the whole of it: the second half of a megabyte does not go out as
/// if nobody had been there for half as long.
#[test]
fn a_rest_counts_as_its_whole() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    b.add(read(1, 0, 8));
    assert_eq!(b.serve(MS(1)), 1);
    let chunk = b.queue.policy().chunk();
    b.add(write(2, 1 << 20, 2 * chunk));
    b.add(write(2, 2 << 20, 2 * chunk));
    let half = b.queue.policy().expected_write(chunk);
    // Past 32 times a half for each slot of the device, not yet past 32 times the whole.
    b.now += half.saturating_mul(80);
    let first = b.run();
    assert!(first.blocks < 2 * chunk, "divided");
    b.done(first, half);
    let second = b.run();
    assert_eq!((second.head, second.offset), (first.head, first.blocks));
    assert!(matches!(b.queue.dispatch(b.now), Dispatch::Wait { completion: true, .. }), "alone");
}

/// Rule 1: a stream whose place is dear to leave keeps it for ten times of what changing costs.
#[test]
fn two_writers_on_a_card_that_hates_changes_take_turns_of_many_commands() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    let (mut last, mut changes, mut commands) = (0, 0, 0);
    let mut at = [1u64 << 20, 2 << 20];
    for (i, at) in at.iter_mut().enumerate() {
        for _ in 0..4 {
            b.add(sync_write(i as u32 + 1, *at, 64));
            *at += 64;
        }
    }
    let start = b.now;
    while b.now - start < MS(4000) {
        let run = b.run();
        let s = b.queue.request(run.head).unwrap().stream.0;
        let switch = if s == last { 0 } else { 20 };
        changes += u64::from(s != last);
        commands += 1;
        last = s;
        b.done(run, MS(3 + switch));
        b.add(sync_write(s, at[s as usize - 1], 64));
        at[s as usize - 1] += 64;
    }
    assert!(commands / changes > 30, "{commands} commands, {changes} changes");
    // A tenth of the time at most, and what it took to learn it.
    assert!(changes * 20 < 4000 / 10 + 200, "{changes}");
    let owes = |s| b.queue.policy().account(StreamId(s), true).unwrap().charged;
    assert!(owes(1).max(owes(2)) - owes(1).min(owes(2)) < MS(600), "{} {}", owes(1), owes(2));
}

/// Rule 1: the device stands free for the owner of a slot; reads may use it meanwhile. If the owner writes next, all of
/// that cost nothing, as it saved a change; if another one does, it is paid for in one sum.
#[test]
fn reads_between_do_not_spend_what_a_slot_is_worth() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    let (think, mut due, mut last) = (MS(1), Some(b.now), 0);
    let mut at = [1u64 << 20, 2 << 20];
    b.add(write(2, at[1], 256));
    // A journal that pauses for 1 ms and writeback take turns; a change costs 20 ms. That must be learned.
    let start = b.now;
    while b.now - start < MS(4000) || last != 1 {
        if due.is_some_and(|t| t <= b.now) {
            due = None;
            b.add(sync_write(1, at[0], 64));
            at[0] += 64;
        }
        match b.queue.dispatch(b.now) {
            Dispatch::Run(run) => {
                let s = b.queue.request(run.head).unwrap().stream.0;
                let change = if s == last { 0 } else { 20 };
                last = s;
                b.done(run, MS(if s == 1 { 3 } else { 10 } + change));
                if s == 1 {
                    due = Some(b.now + think);
                } else {
                    at[1] += 256;
                    b.add(write(2, at[1], 256));
                }
            }
            Dispatch::Wait { at, .. } => b.now = at.into_iter().chain(due).min().unwrap(),
            Dispatch::Empty => unreachable!(),
        }
    }
    // The last one was of the journal, in its slot.
    let before = b.queue.policy().stats();
    for i in 0..3 {
        let (until, _) = b.waits();
        assert!(until.unwrap() > b.now + US(200), "kept free");
        b.now += US(200);
        b.add(read(3, i * 8, 8));
        assert_eq!(b.serve(US(100)), 3);
    }
    b.waits();
    b.add(sync_write(1, at[0], 64));
    assert_eq!(b.serve(MS(3)), 1);
    assert_eq!(b.queue.policy().stats().idle, before.idle, "600 us for 20 ms");
    assert_eq!(b.queue.policy().stats().slots, before.slots);
    // Now it does not come.
    b.waits();
    b.now += US(400);
    b.add(read(3, 80, 8));
    assert_eq!(b.serve(US(100)), 3);
    let (until, _) = b.waits();
    let kept = US(400) + (until.unwrap() - b.now);
    b.now = until.unwrap();
    assert_eq!(b.serve(MS(30)), 2);
    let after = b.queue.policy().stats();
    assert_eq!((after.idle - before.idle, after.slots - before.slots), (kept, 1));
    assert!(after.longest_hold >= kept);
}

#[test]
fn a_stall_is_nobodys_fault() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    let charged = |b: &Bench<8>| b.queue.policy().account(StreamId(9), false).unwrap().charged;
    let before = charged(&b);
    b.add(write(9, 25 << 10, 1024));
    b.serve(MS(450));
    assert_eq!(b.queue.policy().stats().stalls, 1);
    assert!(charged(&b) - before < MS(60), "{}", charged(&b) - before);
}

#[test]
fn weights_come_from_the_class_or_are_set() {
    let mut b = bench::<4>(&[]);
    let weight = |b: &Bench<4>, s| b.queue.policy().account(StreamId(s), true).map(|a| a.weight);
    for (s, class) in [(0, Class::RealTime), (1, Class::None), (2, Class::Idle)] {
        b.add(Request { priority: Priority { class, level: 4 }, ..read(s, 0, 8) });
    }
    assert_eq!([0, 1, 2, 3].map(|s| weight(&b, s)), [Some(1000), Some(100), Some(10), None]);
    let policy = b.queue.policy_mut();
    assert_eq!(policy.set_weight(StreamId(1), Some(0)), Err(WeightError::Range));
    assert_eq!(policy.set_weight(StreamId(1), Some(1001)), Err(WeightError::Range));
    for s in 1..5 {
        policy.set_weight(StreamId(s), Some(7)).unwrap();
    }
    assert_eq!(policy.set_weight(StreamId(5), Some(7)), Err(WeightError::Full));
    policy.set_weight(StreamId(4), None).unwrap();
    policy.set_weight(StreamId(5), Some(7)).unwrap();
    assert_eq!(weight(&b, 1), Some(7), "at once");
}

#[test]
fn out_of_range_changes_nothing() {
    let mut q = Queue::new([Slot::FREE; 2], Ftb::<4, 2>::new());
    for (name, text, error) in [
        ("device_slots", "0", TuneError::Range),
        ("device_slots", "3", TuneError::Range),
        ("idle_share", "3", TuneError::Range),
        ("slot_cap", "-1", TuneError::Range),
        ("min_chunk", "99999999999", TuneError::Range),
        ("window", "4ms", TuneError::Invalid),
        ("chunk", "256", TuneError::Unknown),
    ] {
        let before: Vec<_> = (0..).map_while(|i| q.tunable(i)).collect();
        assert_eq!(q.tune(name, text), Err(error), "{name} {text}");
        assert_eq!((0..).map_while(|i| q.tunable(i)).collect::<Vec<_>>(), before);
    }
    assert_eq!(q.tune("device_slots", "1"), Ok(()));
    assert_eq!([Kind::Read, Kind::SyncWrite, Kind::Async].map(|k| q.admits(k, 128)), [128, 128, 64]);
}

/// Nobody is refused: streams that come and go leave no debt behind on an idle device, and when all places are busy a
/// new one shares.
#[test]
fn there_is_always_room_for_one_more_stream() {
    let mut b = bench::<4>(&[]);
    for s in 0..100 {
        b.add(read(s, 0, 8));
        assert_eq!(b.serve(MS(2)), s);
        let a = b.queue.policy().account(StreamId(s), true).expect("a place of its own");
        assert!(a.charged == MS(2));
    }
    for s in 200..210 {
        b.add(read(s, u64::from(s) * 100, 8));
    }
    assert_eq!((200..210).filter(|s| b.queue.policy().account(StreamId(*s), true).is_some()).count(), 4);
    let mut seen: Vec<u32> = (0..10).map(|_| b.serve(MS(2))).collect();
    seen.sort_unstable();
    assert_eq!(seen, (200..210).collect::<Vec<_>>());
}

/// Small writes that follow each other become one command, but none so large that it would have to be divided.
#[test]
fn writeback_merges_up_to_a_part() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    b.queue.set_limits(Limits { max_sectors: 65_535, max_segments: 4096, ..Limits::default() });
    let chunk = b.queue.policy().chunk();
    for i in 0..240 {
        let r = write(2, (1 << 20) + i * 8, 8);
        let merged = b.queue.merge(&r, b.now);
        assert!(merged.is_none_or(|m| matches!(m.1, Inserted::Merged { .. })));
        if merged.is_none() {
            b.add(r);
        }
    }
    b.add(read(1, 0, 8));
    assert_eq!(b.serve(MS(1)), 1);
    b.now = b.held_for(US(200));
    let mut left = 240 * 8;
    while left > 0 {
        let run = b.run();
        assert!(
            run.blocks <= chunk * 3 / 2 && (run.blocks >= chunk || run.blocks == left),
            "{run:?} {chunk}"
        );
        left -= run.blocks;
        let ids: Vec<RequestId> =
            std::iter::successors(Some(run.head), |id| b.queue.next_member(*id)).collect();
        b.now += MS(30);
        for id in ids {
            b.queue.complete(id, Outcome { blocks: 8, failed: false }, b.now).unwrap();
        }
    }
}

/// A command that is put back costs its stream nothing.
#[test]
fn what_comes_back_is_not_charged() {
    let mut b = bench::<8>(&[]);
    b.known_card();
    let charged = |b: &Bench<8>| b.queue.policy().account(StreamId(2), false).unwrap().charged;
    b.add(write(2, 1 << 20, 1024));
    let run = b.run();
    assert!(charged(&b) > MS(20));
    b.queue.requeue(&run, b.now);
    assert_eq!(charged(&b), Duration::ZERO);
    assert_eq!(b.run().head, run.head);
    b.done(run, MS(34));
    assert_eq!(charged(&b), MS(34));
}

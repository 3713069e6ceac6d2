//! Requests of the same sectors keep their order, flushes cover what they must, and nothing else waits for either.

mod common;

use common::{buf, card, read, settings, sync_write, tags, write};
use mmc_block::{BlockError, Core, Features, Job, Limits, Refusal, Settings, Stopped, Ticket, Work};
use mmc_mock::{Buf, BufBatch};
use mmc_sched::{AnyPolicy, Flags, NoSched, Op, Policy, Queue, Request, Slot, StreamId};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::{HashMap, VecDeque};

const T0: Instant = Instant::ZERO;
const SLOTS: usize = 16;

type Sched<P> = Queue<Vec<Slot>, P>;
type Bench<P> = Core<Sched<P>, common::Tags, Buf>;

fn bench<P: Policy>(policy: P, settings: Settings) -> Bench<P> {
    let limits = Limits { max_blocks: 64, max_segments: 8 };
    let queue = Queue::new(vec![Slot::FREE; SLOTS], policy);
    let mut core = Core::new(queue, card(), limits, tags(64), settings, ()).unwrap();
    core.set_features(Features {
        cache: true,
        unit: 16,
        discard: Some(64),
        write_zeroes: Some(64),
        ..Features::default()
    });
    core
}

fn flush() -> Request {
    Request { flags: Flags::PREFLUSH, ..write(0, 0) }
}

fn with(flags: Flags, r: Request) -> Request {
    Request { flags, ..r }
}

fn put<P: Policy>(core: &mut Bench<P>, r: Request) -> Ticket {
    core.submit(r, buf(&r, 1), T0).unwrap()
}

/// The next command, which must be one.
fn job<P: Policy>(core: &mut Bench<P>, batch: &mut BufBatch) -> Job {
    match core.next(batch, T0) {
        Work::Run(job) => job,
        other => panic!("{other:?} instead of a command"),
    }
}

fn end<P: Policy>(core: &mut Bench<P>, job: Job, batch: &mut BufBatch) {
    let blocks = job.run().blocks;
    let _ = core.start(&job, T0);
    core.finish(job, Ok(blocks), Some(batch), T0);
}

#[test]
fn a_request_waits_for_an_earlier_one_it_overlaps_and_for_no_other() {
    let mut core = bench(NoSched::new(), settings(16));
    let mut batch = BufBatch::new(8);
    let first = put(&mut core, write(100, 8));
    let behind = put(&mut core, read(107, 1));
    let beside = put(&mut core, read(120, 8));
    assert_eq!(core.statistics().held, 1);
    let one = job(&mut core, &mut batch);
    assert_eq!(one.run().lba, 100);
    end(&mut core, one, &mut batch);
    assert!(core.take(first).unwrap().result.is_ok());
    // What was free to go goes before what had to wait.
    for (ticket, lba) in [(beside, 120), (behind, 107)] {
        let next = job(&mut core, &mut batch);
        assert_eq!(next.run().lba, lba);
        end(&mut core, next, &mut batch);
        assert!(core.take(ticket).unwrap().result.is_ok());
    }
}

#[test]
fn two_reads_of_the_same_sectors_never_wait_for_each_other() {
    let mut core = bench(NoSched::new(), settings(16));
    put(&mut core, read(100, 8));
    put(&mut core, read(100, 8));
    assert_eq!(core.statistics().held, 0);
}

#[test]
fn overlaps_are_seen_across_stretches_and_after_the_longest_request_is_over() {
    let mut core = bench(NoSched::new(), settings(16));
    let mut batch = BufBatch::new(8);
    // Begins in one stretch of 2048 sectors, ends in the next.
    put(&mut core, write(2040, 64));
    put(&mut core, write(2100, 2));
    assert_eq!(core.statistics().held, 1);
    for _ in 0..2 {
        let next = job(&mut core, &mut batch);
        end(&mut core, next, &mut batch);
    }
    put(&mut core, write(2048 * 64 - 1 - 2048 * 60, 2));
    put(&mut core, write(2048 * 4, 1));
    assert_eq!(core.statistics().held, 2, "one sector in the next stretch");
}

#[test]
fn a_request_that_was_held_can_be_withdrawn() {
    let mut core = bench(NoSched::new(), settings(16));
    put(&mut core, write(100, 8));
    let held = put(&mut core, write(100, 8));
    let third = put(&mut core, write(104, 1));
    assert!(matches!(core.abandon(held, T0), mmc_block::Abandoned::Withdrawn(_)));
    let mut batch = BufBatch::new(8);
    let next = job(&mut core, &mut batch);
    end(&mut core, next, &mut batch);
    let next = job(&mut core, &mut batch);
    assert_eq!(next.run().lba, 104, "nothing waits for one that never was");
    end(&mut core, next, &mut batch);
    assert!(core.take(third).is_some());
}

#[test]
fn whoever_is_withdrawn_from_a_queue_leaves_the_others_in_it() {
    // Two wait for the only tag, four for the sectors of the first; in each queue one from the middle or the end goes.
    let mut core = bench(NoSched::new(), settings(1));
    let mut batch = BufBatch::new(8);
    put(&mut core, write(100, 8));
    let waiting = [300, 400].map(|lba| put(&mut core, write(lba, 8)));
    let held = [100, 101, 102, 103].map(|lba| put(&mut core, write(lba, 1)));
    assert_eq!((core.statistics().held, core.statistics().tag_waits), (4, 2));
    for ticket in [held[1], held[3], waiting[0]] {
        assert!(matches!(core.abandon(ticket, T0), mmc_block::Abandoned::Withdrawn(_)));
    }
    let mut lbas = vec![];
    while let Work::Run(job) = core.next(&mut batch, T0) {
        lbas.push(job.run().lba);
        end(&mut core, job, &mut batch);
    }
    assert_eq!(lbas, [100, 400, 100, 102]);
    assert_eq!((core.outstanding(), core.tags_in_use()), (0, 0));
}

#[test]
fn a_flush_that_nobody_waits_for_any_more_is_carried_out_and_told_to_nobody() {
    let mut core = bench(NoSched::new(), settings(16));
    let mut batch = BufBatch::new(8);
    let ticket = core.submit_bare(flush(), T0).unwrap();
    assert!(matches!(core.abandon(ticket, T0), mmc_block::Abandoned::Orphaned));
    assert_eq!(core.next(&mut batch, T0), Work::Flush);
    core.finish_flush(Ok(()), T0);
    assert!(!core.has_done() && core.take(ticket).is_none());
    assert_eq!((core.outstanding(), core.next(&mut batch, T0)), (0, Work::Idle));
}

#[test]
fn a_flush_without_a_cache_is_over_at_once_and_asks_for_nothing() {
    let mut core = bench(NoSched::new(), settings(16));
    core.set_features(Features::default());
    let ticket = core.submit_bare(flush(), T0).unwrap();
    assert_eq!(core.take(ticket).unwrap().result, Ok(()));
    let fua = put(&mut core, with(Flags::FUA | Flags::PREFLUSH, write(0, 8)));
    let mut batch = BufBatch::new(8);
    let next = job(&mut core, &mut batch);
    end(&mut core, next, &mut batch);
    assert!(core.take(fua).unwrap().result.is_ok());
    assert_eq!(core.statistics().flushes, 0);
}

#[test]
fn preflush_comes_before_the_data_and_fua_is_over_only_after_a_flush_behind_them() {
    let mut core = bench(NoSched::new(), settings(16));
    let mut batch = BufBatch::new(8);
    let both = put(&mut core, with(Flags::FUA | Flags::PREFLUSH, write(8, 8)));
    assert_eq!(core.next(&mut batch, T0), Work::Flush);
    assert_eq!(core.next(&mut batch, T0), Work::Wait { at: None }, "nothing beside a flush");
    core.finish_flush(Ok(()), T0);
    let data = job(&mut core, &mut batch);
    assert_eq!(data.run().lba, 8);
    end(&mut core, data, &mut batch);
    assert!(!core.has_done());
    assert_eq!(core.next(&mut batch, T0), Work::Flush);
    core.finish_flush(Ok(()), T0);
    assert!(core.take(both).unwrap().result.is_ok());
    assert_eq!((core.statistics().flushes, core.tags_in_use()), (2, 0));
    assert_eq!(core.statistics().tag_waits, 0, "to wait for a flush is not to wait for a tag");
}

#[test]
fn who_waited_for_sectors_or_for_a_flush_has_waited_for_a_tag_only_if_none_was_left_then() {
    // (tags, who waited for one: when all were submitted, when the first is over and the flush has ended, at last)
    for (tags, expected) in [(16, [0, 0, 0]), (1, [1, 3, 3])] {
        let mut core = bench(NoSched::new(), settings(tags));
        let mut batch = BufBatch::new(8);
        let mut seen = vec![];
        put(&mut core, write(100, 8));
        put(&mut core, write(100, 8));
        put(&mut core, with(Flags::PREFLUSH, write(300, 8)));
        put(&mut core, write(200, 8));
        seen.push(core.statistics().tag_waits);
        assert_eq!(core.next(&mut batch, T0), Work::Flush);
        core.finish_flush(Ok(()), T0);
        let first = job(&mut core, &mut batch);
        end(&mut core, first, &mut batch);
        seen.push(core.statistics().tag_waits);
        while let Work::Run(next) = core.next(&mut batch, T0) {
            end(&mut core, next, &mut batch);
        }
        seen.push(core.statistics().tag_waits);
        assert_eq!(seen, expected, "{tags} tags");
        assert_eq!((core.statistics().completed, core.tags_in_use()), (4, 0));
    }
}

#[test]
fn a_stream_of_flushes_lets_a_command_through_after_each() {
    let mut core = bench(NoSched::new(), settings(16));
    let mut batch = BufBatch::new(8);
    for lba in [0, 100, 200] {
        put(&mut core, write(lba, 8));
    }
    let mut lbas = vec![];
    for _ in 0..3 {
        core.submit_bare(flush(), T0).unwrap();
        assert_eq!(core.next(&mut batch, T0), Work::Flush);
        core.submit_bare(flush(), T0).unwrap();
        core.finish_flush(Ok(()), T0);
        let next = job(&mut core, &mut batch);
        lbas.push(next.run().lba);
        end(&mut core, next, &mut batch);
    }
    assert_eq!(lbas, [0, 100, 200]);
    // Two that waited together need one flush.
    assert_eq!(core.statistics().flushes, 3);
}

#[test]
fn a_flush_that_fails_fails_for_all_that_waited_for_it_after_its_repetitions() {
    let error = BlockError::Short { expected: 1, moved: 0 };
    let mut core = bench(NoSched::new(), Settings { retries: 2, ..settings(16) });
    let mut batch = BufBatch::new(8);
    let waiting =
        [core.submit_bare(flush(), T0).unwrap(), put(&mut core, with(Flags::PREFLUSH, write(0, 8)))];
    for _ in 0..3 {
        assert!(!core.has_done());
        assert_eq!(core.next(&mut batch, T0), Work::Flush);
        core.finish_flush(Err(error), T0);
    }
    for ticket in waiting {
        assert_eq!(core.take(ticket).unwrap().result, Err(error));
    }
    assert_eq!(core.next(&mut batch, T0), Work::Idle, "data behind a flush that failed are not written");
    assert_eq!(core.outstanding(), 0);
}

#[test]
fn what_waits_for_a_flush_or_for_another_is_told_that_the_disk_has_stopped() {
    let mut core = bench(NoSched::new(), settings(16));
    put(&mut core, write(0, 8));
    let held = put(&mut core, write(0, 8));
    let flushed = core.submit_bare(flush(), T0).unwrap();
    core.stop(Stopped::Shutdown);
    while core.outstanding() > 0 {
        assert!(matches!(core.drain(T0), Work::Idle | Work::Wait { at: Some(T0) }));
    }
    for ticket in [held, flushed] {
        assert_eq!(core.take(ticket).unwrap().result, Err(BlockError::Stopped(Stopped::Shutdown)));
    }
}

#[test]
fn what_a_card_cannot_do_is_refused_and_so_is_data_where_none_belong() {
    let mut core = bench(NoSched::new(), settings(16));
    let discard = Request { op: Op::Discard, ..write(0, 8) };
    assert_eq!(core.submit_bare(read(0, 8), T0), Err(Refusal::BufferLength { bytes: 0, needed: 4096 }));
    assert_eq!(core.submit_bare(write(0, 0), T0), Err(Refusal::Empty));
    let refused = core.submit(discard, buf(&discard, 0), T0).unwrap_err();
    assert_eq!(refused.error, Refusal::BufferLength { bytes: 4096, needed: 0 });
    core.set_features(Features::default());
    assert_eq!(core.submit_bare(discard, T0), Err(Refusal::Unsupported(Op::Discard)));
}

/// A disk with a volatile cache, as plain bytes: one per sector.
struct Plain {
    cached: Vec<u8>,
    durable: Vec<u8>,
}

const AREA: u64 = 320;

fn request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![4 => Just(Op::Write), 4 => Just(Op::Read), 1 => Just(Op::Discard), 1 => Just(Op::WriteZeroes)];
    let flags = prop_oneof![
        4 => Just(Flags::empty()),
        2 => Just(Flags::SYNC),
        1 => Just(Flags::FUA),
        1 => Just(Flags::PREFLUSH),
        1 => Just(Flags::FUA | Flags::PREFLUSH)
    ];
    (op, 0..AREA - 160, prop_oneof![4 => 1..8_u32, 1 => 60..160_u32], flags, 0..3_u32).prop_map(
        |(op, lba, blocks, flags, stream)| {
            let flags = if op == Op::Write { flags } else { Flags::empty() };
            Request { flags, ..Request::new(op, lba, blocks, StreamId(stream)) }
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Submit(Request),
    Flush,
    /// Takes the next command from the disk, if none is with the card, or ends the one that is.
    Step,
    Fail,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => request().prop_map(Act::Submit),
        1 => Just(Act::Flush),
        5 => Just(Act::Step),
        1 => Just(Act::Fail),
    ]
}

enum Out {
    Job(Job),
    Flush,
}

fn policy(name: &str) -> AnyPolicy {
    AnyPolicy::by_name(name).unwrap()
}

proptest! {
    /// Each read returns what the writes before it (and no later one) left, and all that was written when a flush was
    /// submitted is durable when it ends; whatever the policy, and with commands that fail and are sent again.
    #[test]
    fn a_disk_is_an_array_of_bytes(
        acts in prop::collection::vec(act(), 1..120),
        name in prop::sample::select(AnyPolicy::NAMES),
        tags in 1..12_usize,
    ) {
        let mut core = bench(policy(name), Settings { retries: 1000, ..settings(tags) });
        let mut batch = BufBatch::new(8);
        let mut real = Plain { cached: vec![0; AREA as usize], durable: vec![0; AREA as usize] };
        // What each sector is after all requests accepted so far; what each read has to bring.
        let mut model = vec![0_u8; AREA as usize];
        let mut expected: HashMap<Ticket, Vec<u8>> = HashMap::new();
        // Writes that had completed: so far, when each flush was submitted, when the last one of the card began.
        let (mut completed, mut began, mut flushed) = (0, 0, 0);
        let mut covers: HashMap<Ticket, usize> = HashMap::new();
        let mut now = T0;
        let mut byte = 1_u8;
        let mut out: Option<Out> = None;
        let mut todo: VecDeque<Act> = acts.into();
        let mut idle = 0;
        while idle < 400 {
            now += Duration::from_millis(1);
            let act = todo.pop_front().unwrap_or(Act::Step);
            idle = if todo.is_empty() { idle + 1 } else { 0 };
            match act {
                Act::Submit(r) => {
                    let range = r.lba as usize..r.end() as usize;
                    byte = byte.checked_add(1).unwrap_or(1);
                    let ticket = match r.op {
                        Op::Read | Op::Write => core.submit(r, buf(&r, byte), now).ok().map(|t| (t, byte)),
                        _ => core.submit_bare(r, now).ok().map(|t| (t, 0)),
                    };
                    let Some((ticket, byte)) = ticket else { continue };
                    if r.op == Op::Read {
                        expected.insert(ticket, model[range].to_vec());
                    } else {
                        model[range].fill(byte);
                    }
                }
                Act::Flush => {
                    if let Ok(ticket) = core.submit_bare(flush(), now) {
                        covers.insert(ticket, completed);
                    }
                }
                Act::Step | Act::Fail => match out.take() {
                    None => match core.next(&mut batch, now) {
                        Work::Run(job) => {
                            let _ = core.start(&job, now);
                            out = Some(Out::Job(job));
                        }
                        Work::Flush => {
                            began = completed;
                            out = Some(Out::Flush);
                        }
                        Work::Wait { .. } | Work::Idle => {}
                    },
                    Some(Out::Flush) if matches!(act, Act::Fail) => {
                        core.finish_flush(Err(BlockError::Short { expected: 1, moved: 0 }), now);
                    }
                    Some(Out::Flush) => {
                        real.durable.clone_from(&real.cached);
                        flushed = began;
                        core.finish_flush(Ok(()), now);
                    }
                    Some(Out::Job(job)) => {
                        let run = *job.run();
                        if matches!(act, Act::Fail) {
                            // Half of it is carried out, and it will be sent again.
                            let half = run.blocks / 2;
                            carry_out(&mut real, &mut batch, run.op, run.lba, half);
                            core.finish(job, Err(BlockError::Short { expected: run.blocks, moved: half }), Some(&mut batch), now);
                        } else {
                            carry_out(&mut real, &mut batch, run.op, run.lba, run.blocks);
                            core.finish(job, Ok(run.blocks), Some(&mut batch), now);
                        }
                    }
                },
            }
            while let Some(done) = core.take_done() {
                prop_assert_eq!(done.result, Ok(()));
                let range = done.request.lba as usize..done.request.end() as usize;
                match done.request.op {
                    Op::Read => {
                        let got: Vec<u8> = done.buffer.unwrap().0.iter().step_by(512).copied().collect();
                        prop_assert_eq!(Some(got), expected.remove(&done.ticket));
                    }
                    Op::Write if done.request.blocks == 0 => {
                        let submitted = covers.remove(&done.ticket).unwrap();
                        prop_assert!(flushed >= submitted, "a flush began {} writes too early", submitted - flushed);
                    }
                    Op::Write => {
                        let byte = done.buffer.unwrap().0[0];
                        if done.request.flags.contains(Flags::FUA) {
                            prop_assert!(real.durable[range].iter().all(|b| *b == byte), "FUA");
                        }
                        completed += 1;
                    }
                    _ => completed += 1,
                }
            }
        }
        prop_assert_eq!(core.outstanding(), 0);
        prop_assert_eq!(core.tags_in_use(), 0);
        prop_assert!(expected.is_empty() && covers.is_empty());
        prop_assert_eq!(&real.cached, &model);
    }
}

/// Moves `blocks` sectors between the batch and the bytes; the first byte of a sector stands for all.
fn carry_out(real: &mut Plain, batch: &mut BufBatch, op: Op, lba: u64, blocks: u32) {
    use mmc_hal::Payload;
    let mut k = 0;
    let at = |k: usize| lba as usize + k;
    if !matches!(op, Op::Read | Op::Write) {
        real.cached[at(0)..at(blocks as usize)].fill(0);
        return;
    }
    for i in 0..batch.segments() {
        for sector in batch.segment_mut(i).unwrap().chunks_mut(512) {
            if k == blocks as usize {
                return;
            }
            match op {
                Op::Read => sector.fill(real.cached[at(k)]),
                _ => real.cached[at(k)] = sector[0],
            }
            k += 1;
        }
    }
}

#[test]
fn a_write_somebody_waits_for_stays_one_when_its_flags_are_taken_off() {
    let mut core = bench(NoSched::new(), settings(16));
    let ticket = put(&mut core, with(Flags::FUA, write(0, 8)));
    let mut batch = BufBatch::new(8);
    let one = job(&mut core, &mut batch);
    assert_eq!(one.run().flags, sync_write(0, 8).flags);
    end(&mut core, one, &mut batch);
    assert_eq!(core.next(&mut batch, T0), Work::Flush);
    core.finish_flush(Ok(()), T0);
    assert_eq!(core.take(ticket).unwrap().request.flags, Flags::FUA);
}

#[test]
fn what_is_too_long_for_one_command_goes_in_pieces_that_end_at_units() {
    let mut core = bench(NoSched::new(), settings(16));
    let mut batch = BufBatch::new(8);
    let long = put(&mut core, write(5, 150));
    let discard = core.submit_bare(Request { op: Op::Discard, ..write(1000, 100) }, T0).unwrap();
    let mut pieces = vec![];
    while let Work::Run(job) = core.next(&mut batch, T0) {
        pieces.push((job.run().lba, job.run().blocks));
        end(&mut core, job, &mut batch);
    }
    assert_eq!(pieces, [(5, 59), (64, 64), (128, 27), (1000, 56), (1056, 44)]);
    let done = core.take(long).unwrap();
    assert_eq!((done.result, done.moved, done.attempts), (Ok(()), 150, 3));
    assert_eq!(core.take(discard).unwrap().result, Ok(()));
    let s = core.statistics();
    assert_eq!((s.lengths[4], s.lengths[5], s.lengths[6]), (1, 3, 1));
    assert_eq!((s.waits[2].count, core.tags_in_use()), (2, 0));
}

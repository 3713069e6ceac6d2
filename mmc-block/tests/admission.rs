//! Who gets a tag, who waits for one, and who is refused at the door.

mod common;

use common::*;
use mmc_block::{Abandoned, Disk, Place, Refusal, Settings, SetupError};
use mmc_mock::{Buf, BufBatch};
use mmc_sched::{Class, Flags, MqDeadline, NoSched, Op, Priority, Queue, Request, Scheduler, Slot, StreamId};
use mmc_time::{Duration, Instant};

const T0: Instant = Instant::ZERO;

#[test]
fn waiters_get_tags_in_the_order_they_came() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, NoSched::new(), 16, settings(2));
    for lba in [0, 100, 200, 300] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    assert_eq!(disk.core().tags_in_use(), 2);
    run(&mut disk, T0);
    let got = disk.observer().only(|e| matches!(e, Ev::GotTag(_) | Ev::Waits(_)));
    assert_eq!(
        got,
        [
            (0, Ev::GotTag(0)),
            (0, Ev::GotTag(100)),
            (0, Ev::Waits(200)),
            (0, Ev::Waits(300)),
            (10, Ev::GotTag(200)),
            (20, Ev::GotTag(300)),
        ]
    );
    let s = *disk.statistics();
    assert_eq!(
        (s.tag_waits, s.tag_wait_total, s.tag_wait_max),
        (2, SERVICE.saturating_mul(3), SERVICE + SERVICE)
    );
    assert_eq!((s.accepted, s.completed, s.commands, s.depth_max), (4, 4, 4, 4));
    let done: Vec<_> = std::iter::from_fn(|| disk.take_done()).collect();
    let stamps = done[2].stamps;
    assert_eq!((stamps.queued, stamps.inserted), (T0, Some(T0 + SERVICE)));
    assert_eq!(stamps.issued, Some(T0 + SERVICE + SERVICE), "the scheduler is asked when the bus is free");
    assert_eq!(stamps.completed, Some(T0 + SERVICE.saturating_mul(3)));
}

#[test]
fn of_several_kinds_the_one_that_came_first_gets_the_tag() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, NoSched::new(), 16, settings(1));
    for r in [write(0, 8), sync_write(100, 8), read(200, 8), write(300, 8), sync_write(400, 8), read(500, 8)]
    {
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    run(&mut disk, T0);
    assert_eq!(
        disk.observer().only(|e| matches!(e, Ev::GotTag(_))),
        [0, 100, 200, 300, 400, 500].map(|lba| (lba / 10, Ev::GotTag(lba)))
    );
}

#[test]
fn a_merged_request_takes_no_tag() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(1));
    for i in 0..8 {
        let r = write(i * 8, 8);
        disk.submit(r, buf(&r, i as u8), T0).unwrap();
    }
    assert_eq!((disk.core().tags_in_use(), disk.statistics().tag_waits), (1, 0));
    let r = write(1000, 8);
    disk.submit(r, buf(&r, 9), T0).unwrap();
    assert_eq!(disk.statistics().tag_waits, 1);
    run(&mut disk, T0);
    assert_eq!(
        disk.observer().only(|e| matches!(e, Ev::Issued(..) | Ev::Merged(..))),
        (1..8)
            .map(|i| (0, Ev::Merged(i * 8, Place::Back)))
            .chain([(0, Ev::Issued(0, 64, 8)), (10, Ev::Issued(1000, 8, 1))])
            .collect::<Vec<_>>()
    );
    let store = &fake.lock().store;
    for i in 0..8 {
        assert!(store[i * 8 * 512..(i + 1) * 8 * 512].iter().all(|b| *b == i as u8), "buffers stay in order");
    }
}

#[test]
fn a_request_that_joins_two_runs_frees_a_tag_for_a_waiter() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(2));
    for lba in [0, 16, 500] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    let r = write(8, 8);
    disk.submit(r, buf(&r, 1), T0).unwrap();
    assert_eq!(
        disk.observer().0[6..],
        [
            (0, Ev::Queued(500)),
            (0, Ev::Waits(500)),
            (0, Ev::Queued(8)),
            (0, Ev::Merged(8, Place::Back)),
            (0, Ev::Absorbed(16)),
            (0, Ev::GotTag(500)),
            (0, Ev::Inserted(500)),
        ]
    );
    assert_eq!(disk.core().tags_in_use(), 2);
    run(&mut disk, T0);
    assert_eq!(disk.core().tags_in_use(), 0);
    assert_eq!(
        disk.observer().only(|e| matches!(e, Ev::Issued(..))),
        [(0, Ev::Issued(0, 24, 3)), (10, Ev::Issued(500, 8, 1))]
    );
}

#[test]
fn a_front_merge_keeps_the_tag_with_its_run() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(4));
    for lba in [16, 8, 0] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, lba as u8), T0).unwrap();
    }
    assert_eq!(disk.core().tags_in_use(), 1);
    run(&mut disk, T0);
    assert_eq!(disk.core().tags_in_use(), 0);
    assert_eq!(
        disk.observer().only(|e| matches!(e, Ev::Issued(..) | Ev::Merged(..))),
        [(0, Ev::Merged(8, Place::Front)), (0, Ev::Merged(0, Place::Front)), (0, Ev::Issued(0, 24, 3))]
    );
    assert_eq!(fake.lock().store[8 * 512], 8);
}

#[test]
fn one_kind_does_not_wait_behind_another_that_is_at_its_limit() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(4));
    disk.tune("async_depth", "1", T0).unwrap();
    for r in [write(0, 8), write(100, 8), write(200, 8), read(300, 8), read(400, 8)] {
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    assert_eq!(
        disk.observer().only(|e| matches!(e, Ev::GotTag(_) | Ev::Waits(_))),
        [
            (0, Ev::GotTag(0)),
            (0, Ev::Waits(100)),
            (0, Ev::Waits(200)),
            (0, Ev::GotTag(300)),
            (0, Ev::GotTag(400)),
        ],
        "one tag for writes, the others for reads"
    );
    // A wider limit lets the waiters in at once, as far as there are tags.
    disk.tune("async_depth", "4", T0).unwrap();
    assert_eq!(disk.core().tags_in_use(), 4);
    assert_eq!(disk.observer().0.last(), Some(&(0, Ev::Inserted(100))));
    disk.set_nr_requests(5, T0);
    assert_eq!(disk.observer().0.last(), Some(&(0, Ev::Inserted(200))));
    run(&mut disk, T0);
    assert_eq!(disk.statistics().completed, 5);
}

#[test]
fn a_full_pool_makes_requests_wait_and_a_full_table_refuses_them() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, NoSched::new(), 4, settings(100));
    for i in 0..8 {
        let r = write(i * 100, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    assert_eq!((disk.core().tags_in_use(), disk.statistics().tag_waits), (4, 4));
    let r = write(900, 8);
    let refused = disk.submit(r, buf(&r, 7), T0).unwrap_err();
    assert_eq!((refused.error, refused.request, refused.buffer), (Refusal::TableFull, r, buf(&r, 7)));
    run(&mut disk, T0);
    assert_eq!(disk.statistics().completed, 8);
    // Finished requests keep their places until they are taken.
    assert_eq!(disk.submit(r, buf(&r, 7), T0).unwrap_err().error, Refusal::TableFull);
    let old = disk.take_done().unwrap().ticket;
    let new = disk.submit(r, buf(&r, 7), T0).unwrap();
    assert_eq!(new.index(), old.index(), "the only free place");
    assert!(matches!(disk.abandon(old, T0), Abandoned::Unknown), "the old ticket is stale");
    run(&mut disk, T0);
    assert!(disk.take(old).is_none());
    assert!(disk.take(new).is_some());
}

#[test]
fn fua_and_preflush_ask_nothing_of_a_card_without_a_cache() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(4));
    let mut tickets = vec![];
    for (lba, flags) in [(0, Flags::SYNC), (8, Flags::FUA), (16, Flags::FUA | Flags::PREFLUSH | Flags::SYNC)]
    {
        let r = Request { flags, ..write(lba, 8) };
        tickets.push(disk.submit(r, buf(&r, 1), T0).unwrap());
    }
    run(&mut disk, T0);
    assert_eq!(disk.observer().only(|e| matches!(e, Ev::Issued(..))), [(0, Ev::Issued(0, 24, 3))]);
    assert_eq!(disk.take(tickets[1]).unwrap().request.flags, Flags::FUA, "it comes back as it was given");
}

#[test]
fn bad_requests_come_back_with_the_reason_and_the_buffer() {
    let fake = FakeHost::new(64, 2);
    let mut disk = disk(&fake, NoSched::new(), 4, settings(4));
    let r = |op, lba, blocks| Request::new(op, lba, blocks, StreamId(0));
    let out = |lba, blocks| Refusal::OutOfRange { lba, blocks, capacity: SECTORS };
    for (request, len, error) in [
        (r(Op::Read, 0, 0), 0, Refusal::Empty),
        (r(Op::Read, SECTORS, 1), 512, out(SECTORS, 1)),
        (r(Op::Write, SECTORS - 1, 2), 1024, out(SECTORS - 1, 2)),
        (r(Op::Write, u64::MAX, 2), 1024, out(u64::MAX, 2)),
        (r(Op::Read, 0, 2), 1023, Refusal::BufferLength { bytes: 1023, needed: 1024 }),
        (r(Op::Read, 0, 2), 1536, Refusal::BufferLength { bytes: 1536, needed: 1024 }),
        (r(Op::Discard, 0, 2), 1024, Refusal::Unsupported(Op::Discard)),
    ] {
        let refused = disk.submit(request, Buf(vec![5; len]), T0).unwrap_err();
        assert_eq!((refused.error, refused.request), (error, request));
        assert_eq!(refused.buffer, Buf(vec![5; len]));
    }
    assert_eq!((disk.statistics().accepted, disk.core().scheduler().len()), (0, 0));
    let last = r(Op::Read, SECTORS - 1, 1);
    disk.submit(last, buf(&last, 0), T0).unwrap();
}

#[test]
fn a_disk_is_not_made_of_parts_that_do_not_fit() {
    let fake = FakeHost::new(64, 2);
    let make = |slots: usize, places, nr_requests, batch, insert: bool| {
        let mut queue = Queue::new(vec![Slot::FREE; slots], NoSched::new());
        if insert {
            queue.insert(read(0, 1), T0).unwrap();
        }
        let settings = Settings { nr_requests, retries: 0 };
        mmc_block::Disk::new(fake.host(), queue, card(), BufBatch::new(batch), tags(places), settings, ())
            .err()
    };
    assert_eq!(make(4, 4, 4, 1, false), None);
    assert_eq!(make(0, 4, 4, 1, false), Some(SetupError::NoSlots));
    assert_eq!(make(5, 4, 4, 1, false), Some(SetupError::TooFewTags { tags: 4, capacity: 5 }));
    assert_eq!(make(4, 4, 0, 1, false), Some(SetupError::NoRequests));
    assert_eq!(make(4, 4, 4, 0, false), Some(SetupError::NoBatch));
    assert_eq!(make(4, 4, 4, 1, true), Some(SetupError::SchedulerNotEmpty(1)));
}

#[test]
fn an_abandoned_request_is_withdrawn_while_it_can_be_and_orphaned_afterwards() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(2));
    let submit = |disk: &mut mmc_block::Disk<_, _, _, _>, r: Request| disk.submit(r, buf(&r, 3), T0).unwrap();
    let running = submit(&mut disk, write(0, 8));
    disk.poll(T0);
    let queued = submit(&mut disk, write(100, 8));
    let waiting = submit(&mut disk, write(200, 8));
    let waiting_too = submit(&mut disk, write(300, 8));
    assert!(matches!(disk.abandon(running, T0), Abandoned::Orphaned));
    assert!(matches!(disk.abandon(waiting, T0), Abandoned::Withdrawn(b) if b == buf(&write(200, 8), 3)));
    assert!(matches!(disk.abandon(waiting, T0), Abandoned::Unknown), "a stale ticket");
    assert!(matches!(disk.abandon(queued, T0), Abandoned::Withdrawn(_)));
    assert_eq!(disk.core().tags_in_use(), 2, "its tag went to the one that waited");
    run(&mut disk, T0);
    assert_eq!(fake.lock().seen.len(), 2);
    assert!(disk.take(waiting).is_none() && disk.take(running).is_none());
    assert!(matches!(disk.abandon(waiting_too, T0), Abandoned::Done(d) if d.result.is_ok()));
    assert!(disk.take_done().is_none(), "nobody is told of an orphan");
    assert_eq!((disk.core().outstanding(), disk.core().tags_in_use()), (0, 0));
}

#[test]
fn the_statistics_say_how_much_how_long_and_how_often() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, NoSched::new(), 16, settings(8));
    // One after the other, 10 ms each.
    for r in [read(0, 8), sync_write(100, 16), write(200, 300), read(1000, 1), read(2000, 9)] {
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    // Looking at the end of a wait is no interrupt; before it, whoever looks has had one.
    for (ms, interrupts) in [(0, 0), (4, 1), (6, 2), (10, 2), (11, 3)] {
        disk.poll(T0 + Duration::from_millis(ms));
        assert_eq!(disk.statistics().interrupts, interrupts, "at {ms} ms");
    }
    run(&mut disk, T0 + SERVICE + SERVICE);
    let s = *disk.statistics();
    assert_eq!(s.interrupts, 3);
    assert_eq!((s.accepted, s.completed, s.failed, s.commands, s.depth_max), (5, 5, 0, 5, 5));
    assert_eq!((s.merged, s.retries, s.held, s.flushes, s.resets, s.retunes), (0, 0, 0, 0, 0, 0));
    let mut lengths = [0; 12];
    (lengths[0], lengths[3], lengths[4], lengths[8]) = (1, 2, 1, 1);
    assert_eq!(s.lengths, lengths);
    let waits = s.waits.map(|w| (w.count, w.total, w.max));
    let ms = Duration::from_millis;
    assert_eq!(waits, [(3, ms(10 + 40 + 50), ms(50)), (1, ms(20), ms(20)), (1, ms(30), ms(30))]);
}

/// Priority inheritance: an idle request that a real-time task has come to wait for goes as one of its class.
#[test]
fn a_request_that_is_raised_waits_no_longer_than_one_of_its_new_class() {
    let class = |class, r: Request| Request { priority: Priority { class, level: 4 }, ..r };
    let real_time = Priority { class: Class::RealTime, level: 4 };
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 32, settings(16));
    let mut put = |r: Request| (r, disk.submit(r, buf(&r, 1), T0).unwrap());
    // The first is on the bus, 10 of best effort wait, the last of them with a younger one merged.
    let others: Vec<_> = (0..11).map(|k| put(read(k * 100, 8))).collect();
    let merged = put(read(1008, 8));
    let idle = put(class(Class::Idle, read(5000, 8)));
    let behind = put(class(Class::Idle, sync_write(5004, 1)));
    disk.poll(T0);
    let raise = |disk: &mut Disk<_, _, _, Log>, t| disk.raise(t, real_time, T0);
    assert!(!raise(&mut disk, others[0].1), "it is in a command");
    assert!(!raise(&mut disk, others[10].1) && !raise(&mut disk, merged.1), "they are one run");
    let tags = disk.core().tags_in_use();
    assert!(raise(&mut disk, idle.1) && raise(&mut disk, behind.1));
    assert_eq!(disk.core().tags_in_use(), tags, "with its tag");
    run(&mut disk, T0);
    let order: Vec<u64> = fake.lock().seen.iter().map(|s| s.lba).collect();
    assert_eq!(order[..3], [0, 5000, 5004], "then the others: {order:?}");
    assert!(!raise(&mut disk, idle.1), "it is over");
    let mut over = 0;
    while let Some(done) = disk.take_done() {
        assert!(done.result.is_ok() && done.attempts == 1);
        if done.ticket == idle.1 {
            assert_eq!(done.request, idle.0, "as it was submitted");
        }
        over += 1;
    }
    assert_eq!(over, 14);
    assert!(!raise(&mut disk, idle.1), "and forgotten");
}

#[test]
fn a_request_that_waits_for_a_tag_can_be_raised_and_enters_with_its_new_class() {
    let fake = FakeHost::new(1024, 128);
    let mut disk = disk(&fake, MqDeadline::new(), 16, settings(2));
    let put = |disk: &mut Disk<_, _, _, Log>, r: Request| disk.submit(r, buf(&r, 1), T0).unwrap();
    for lba in [0, 100, 200, 300, 400] {
        put(&mut disk, read(lba, 8));
    }
    let last = put(&mut disk, read(500, 8));
    assert!(disk.raise(last, Priority { class: Class::Idle, level: 0 }, T0));
    let waits = disk.core().dump(T0).to_string();
    assert!(waits.contains("Read 500+8 of stream 1, Idle, waits for a tag"), "{waits}");
    run(&mut disk, T0);
    assert_eq!((disk.statistics().completed, disk.core().tags_in_use()), (6, 0));
}

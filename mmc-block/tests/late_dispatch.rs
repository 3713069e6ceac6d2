//! The scheduler is asked as late as possible: one command on the bus, and at most one prepared.

mod common;

use common::*;
use mmc_block::{Disk, Next};
use mmc_mock::BufBatch;
use mmc_proto::host::Why;
use mmc_sched::{Dispatch, MqDeadline, NoSched, Queue, Scheduler, Slot};
use mmc_time::{Duration, Instant};
use std::sync::{Arc, Mutex};

/// What a spy saw.
#[derive(Debug, Default)]
struct Report {
    /// When each run was given out.
    given: Vec<Instant>,
    out: usize,
    most_out: usize,
    asked: usize,
    /// Nothing is given out before.
    not_before: Instant,
}

const T0: Instant = Instant::ZERO;
const MS: Duration = Duration::from_millis(1);

type Spied<P> = Disk<Plain, Wrap<Queue<Vec<Slot>, P>>, Tags, Log>;

/// A `dispatch` that reports.
fn spy<S: Scheduler>(report: Arc<Mutex<Report>>) -> impl FnMut(&mut S, Instant) -> Dispatch {
    move |inner, now| {
        let mut report = report.lock().unwrap();
        report.asked += 1;
        if now < report.not_before {
            return Dispatch::Wait { at: Some(report.not_before), completion: false };
        }
        let d = inner.dispatch(now);
        if let Dispatch::Run(_) = d {
            report.given.push(now);
            report.out += 1;
            report.most_out = report.most_out.max(report.out);
        }
        d
    }
}

fn spied<P: mmc_sched::Policy + 'static>(
    fake: &FakeHost,
    policy: P,
    prepare: bool,
) -> (Spied<P>, Arc<Mutex<Report>>) {
    let report = Arc::new(Mutex::new(Report::default()));
    let spy = Wrap::new(Queue::new(vec![Slot::FREE; 32], policy), spy(report.clone()), {
        let report = report.clone();
        move || report.lock().unwrap().out -= 1
    });
    let mut disk =
        Disk::new(fake.host(), spy, card(), BufBatch::new(64), tags(64), settings(32), Log::default())
            .unwrap();
    if prepare {
        disk.prepare_with(BufBatch::new(64)).unwrap();
    }
    (disk, report)
}

/// Four writes are queued and one of them runs when a read comes; the order on the bus.
fn read_during_a_write(prepare: bool) -> (Vec<u64>, Vec<Instant>, usize) {
    let fake = FakeHost::new(1024, 64);
    let (mut disk, report) = spied(&fake, MqDeadline::new(), prepare);
    disk.tune("fifo_batch", "1", T0).unwrap();
    for lba in [0, 100, 200, 300] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    disk.poll(T0);
    let r = read(1000, 8);
    disk.submit(r, buf(&r, 0), T0 + MS).unwrap();
    disk.poll(T0 + MS);
    run(&mut disk, T0 + MS);
    let order = fake.lock().seen.iter().map(|s| s.lba).collect();
    let report = report.lock().unwrap();
    (order, report.given.clone(), report.most_out)
}

#[test]
fn without_preparation_a_read_that_comes_while_a_write_runs_is_next() {
    let (order, given, most_out) = read_during_a_write(false);
    assert_eq!(order, [0, 1000, 100, 200, 300]);
    let when: Vec<_> = (0..5).map(|i| T0 + SERVICE.saturating_mul(i)).collect();
    assert_eq!(given, when, "each run was taken when the bus was free");
    assert_eq!(most_out, 1);
}

#[test]
fn with_preparation_it_is_next_but_one() {
    let (order, given, most_out) = read_during_a_write(true);
    assert_eq!(order, [0, 100, 1000, 200, 300]);
    // The second at once, each later one when the one before it started.
    let when: Vec<_> = [0, 0, 1, 2, 3].map(|i| T0 + SERVICE.saturating_mul(i)).to_vec();
    assert_eq!(given, when);
    assert_eq!(most_out, 2);
}

#[test]
fn a_request_that_comes_while_nothing_is_prepared_is_prepared_at_once() {
    let fake = FakeHost::new(1024, 64);
    let (mut disk, report) = spied(&fake, NoSched::new(), true);
    let r = write(0, 8);
    disk.submit(r, buf(&r, 1), T0).unwrap();
    disk.poll(T0);
    let r = write(100, 8);
    let second = disk.submit(r, buf(&r, 1), T0 + MS).unwrap();
    disk.poll(T0 + MS);
    assert_eq!(report.lock().unwrap().given, [T0, T0 + MS]);
    run(&mut disk, T0 + MS);
    let stamps = disk.take(second).unwrap().stamps;
    assert_eq!((stamps.issued, stamps.started), (Some(T0 + MS), Some(T0 + SERVICE)));
}

#[test]
fn a_running_command_is_not_a_reason_to_ask() {
    let fake = FakeHost::new(1024, 64);
    let (mut disk, report) = spied(&fake, NoSched::new(), false);
    for lba in [0, 100] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    for i in 0..9 {
        let next = disk.poll(T0 + MS.saturating_mul(i));
        assert_eq!(next, Next::Wait { why: Why::Interrupt, until: T0 + SERVICE });
    }
    assert_eq!(report.lock().unwrap().asked, 1);
}

#[test]
fn when_the_scheduler_wants_to_wait_the_disk_waits_that_long() {
    let fake = FakeHost::new(1024, 64);
    let (mut disk, report) = spied(&fake, NoSched::new(), false);
    report.lock().unwrap().not_before = T0 + MS.saturating_mul(30);
    let r = read(0, 8);
    disk.submit(r, buf(&r, 1), T0).unwrap();
    let until = T0 + MS.saturating_mul(30);
    assert_eq!(disk.poll(T0), Next::Wait { why: Why::Timer, until });
    assert_eq!(disk.poll(T0 + MS), Next::Wait { why: Why::Timer, until });
    disk.poll(until);
    assert_eq!(report.lock().unwrap().given, [until]);
    assert_eq!(run(&mut disk, until), until + SERVICE);
}

#[test]
fn a_wait_of_the_scheduler_ends_preparation_not_the_running_command() {
    let fake = FakeHost::new(1024, 64);
    let (mut disk, report) = spied(&fake, NoSched::new(), true);
    for lba in [0, 100] {
        let r = write(lba, 8);
        disk.submit(r, buf(&r, 1), T0).unwrap();
    }
    // The first is on the bus before the scheduler becomes coy.
    disk.poll(T0);
    report.lock().unwrap().not_before = T0 + MS.saturating_mul(14);
    let r = write(200, 8);
    disk.submit(r, buf(&r, 1), T0).unwrap();
    assert_eq!(disk.poll(T0 + SERVICE), Next::Wait { why: Why::Timer, until: T0 + MS.saturating_mul(14) });
    disk.poll(T0 + MS.saturating_mul(14));
    assert_eq!(report.lock().unwrap().given, [T0, T0, T0 + MS.saturating_mul(14)]);
}

#[test]
fn a_wait_of_the_scheduler_that_is_longer_than_the_command_does_not_hide_its_end() {
    // Until the same instant, and beyond it.
    for coy in [20, 50] {
        let fake = FakeHost::new(1024, 64);
        let (mut disk, report) = spied(&fake, NoSched::new(), true);
        for lba in [0, 100, 200] {
            let r = write(lba, 8);
            disk.submit(r, buf(&r, 1), T0).unwrap();
        }
        disk.poll(T0);
        report.lock().unwrap().not_before = T0 + MS.saturating_mul(coy);
        let end = T0 + SERVICE + SERVICE;
        assert_eq!(disk.poll(T0 + SERVICE), Next::Wait { why: Why::Interrupt, until: end });
        disk.poll(end);
        assert_eq!(disk.statistics().completed, 2);
    }
}

//! A scheduler may hand out a request in parts: the buffer stays whole, each part is lent by range, and the
//! request completes with its last part.

mod common;

use common::*;
use mmc_block::{BlockError, Settings};
use mmc_mock::BufBatch;
use mmc_sched::{Done, Pick, Policy, Pool, Scheduler};
use mmc_time::Instant;
use std::collections::VecDeque;

/// First in, first out, at most four sectors at a time.
#[derive(Debug, Default)]
struct Chunks {
    fifo: VecDeque<u16>,
}

impl Policy for Chunks {
    fn name(&self) -> &'static str {
        "chunks"
    }
    fn reset(&mut self, _: &mut Pool<'_>, _: Instant) {}
    fn insert(&mut self, _: &mut Pool<'_>, slot: u16, _: Instant) {
        self.fifo.push_back(slot);
    }
    fn insert_head(&mut self, _: &mut Pool<'_>, slot: u16, _: bool, _: Instant) {
        self.fifo.push_front(slot);
    }
    fn remove(&mut self, _: &mut Pool<'_>, slot: u16) {
        self.fifo.retain(|s| *s != slot);
    }
    fn may_merge(&self, _: &Pool<'_>, _: u16, _: &mmc_sched::Request) -> bool {
        false
    }
    fn absorbed(&mut self, _: &mut Pool<'_>, _: u16, _: u16, _: bool) {}
    fn pick(&mut self, pool: &mut Pool<'_>, _: Instant) -> Pick {
        let Some(&slot) = self.fifo.front() else { return Pick::Empty };
        if pool.blocks(slot) > 4 {
            return Pick::Part { slot, blocks: 4 };
        }
        self.fifo.pop_front();
        Pick::Run(slot)
    }
    fn completed(&mut self, _: &mut Pool<'_>, _: u16, _: Done, _: Instant) {}
}

const T0: Instant = Instant::ZERO;

fn bytes(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * 512).map(|i| ((i / 512) as u8).wrapping_mul(3) ^ seed).collect()
}

type Commands = Vec<(u64, u32)>;

/// Writes of 10 and 5 sectors in parts; returns the first sectors and lengths of the commands, and the results.
fn play(prepare: bool, fault: Option<(usize, Fault)>) -> (Commands, Vec<Result<(), BlockError>>) {
    let fake = FakeHost::new(1024, 8);
    fake.lock().faults.extend(fault);
    let mut disk = disk(&fake, Chunks::default(), 8, Settings { nr_requests: 8, retries: 1 });
    if prepare {
        disk.prepare_with(BufBatch::new(8)).unwrap();
    }
    let requests = [write(0, 10), write(100, 5)];
    let tickets =
        requests.map(|r| disk.submit(r, mmc_mock::Buf(bytes(r.blocks as usize, r.lba as u8)), T0).unwrap());
    run(&mut disk, T0);
    let results = requests.iter().zip(tickets).map(|(r, t)| {
        let done = disk.take(t).unwrap();
        assert_eq!(
            done.buffer.unwrap().0,
            bytes(r.blocks as usize, r.lba as u8),
            "the buffer comes back whole"
        );
        if done.result.is_ok() {
            let at = r.lba as usize * 512;
            let stored = &fake.lock().store[at..at + r.blocks as usize * 512];
            assert_eq!(stored, bytes(r.blocks as usize, r.lba as u8));
        }
        done.result
    });
    let results = results.collect();
    assert!(disk.take_done().is_none());
    assert_eq!(
        (disk.core().outstanding(), disk.core().tags_in_use(), disk.core().scheduler().len()),
        (0, 0, 0)
    );
    let seen = fake.lock().seen.iter().map(|s| (s.lba, s.blocks)).collect();
    (seen, results)
}

#[test]
fn a_request_completes_with_its_last_part() {
    for prepare in [false, true] {
        let (seen, results) = play(prepare, None);
        assert_eq!(seen, [(0, 4), (4, 4), (8, 2), (100, 4), (104, 1)]);
        assert_eq!(results, [Ok(()), Ok(())]);
    }
}

#[test]
fn a_part_that_fails_once_is_sent_again_before_the_next_part() {
    for prepare in [false, true] {
        let (seen, results) = play(prepare, Some((1, Fault::Crc)));
        assert_eq!(seen, [(0, 4), (4, 4), (4, 4), (8, 2), (100, 4), (104, 1)]);
        assert_eq!(results, [Ok(()), Ok(())]);
    }
}

#[test]
fn a_part_that_keeps_failing_ends_the_request() {
    for prepare in [false, true] {
        let (seen, results) = play(prepare, Some((1, Fault::Gone)));
        assert_eq!(seen[..2], [(0, 4), (4, 4)]);
        assert!(seen[2..].iter().all(|s| s.0 >= 100), "no further part of it goes out: {seen:?}");
        assert!(results[0].is_err_and(|e| e.media_gone()));
    }
}

#[test]
fn a_part_that_was_given_out_too_early_dies_with_its_request() {
    let fake = FakeHost::new(1024, 8);
    fake.lock().faults.insert(0, Fault::Silent);
    let mut disk = disk(&fake, Chunks::default(), 1, Settings { nr_requests: 1, retries: 0 });
    disk.prepare_with(BufBatch::new(8)).unwrap();
    // The second request waits for the only slot and gets it when the first one fails, its second part still with
    // the disk, which could not send it.
    let [failed, next] = [write(0, 10), write(100, 4)].map(|r| disk.submit(r, buf(&r, 1), T0).unwrap());
    run(&mut disk, T0);
    assert!(disk.take(failed).unwrap().result.is_err());
    assert_eq!(disk.take(next).unwrap().result, Ok(()));
    let seen: Vec<_> = fake.lock().seen.iter().map(|s| (s.lba, s.blocks)).collect();
    assert_eq!(seen, [(0, 4), (100, 4)]);
    assert!(disk.core().scheduler().is_empty());
}

#[test]
fn a_shutdown_ends_requests_that_are_out_in_parts() {
    for prepare in [false, true] {
        let fake = FakeHost::new(1024, 8);
        let mut disk = disk(&fake, Chunks::default(), 8, Settings { nr_requests: 8, retries: 1 });
        if prepare {
            disk.prepare_with(BufBatch::new(8)).unwrap();
        }
        let tickets = [write(0, 10), write(100, 5)].map(|r| disk.submit(r, buf(&r, 1), T0).unwrap());
        disk.poll(T0);
        disk.shutdown(T0);
        run(&mut disk, T0);
        for t in tickets {
            let done = disk.take(t).unwrap();
            assert!(done.result.is_err() && done.buffer.is_some());
        }
        assert!(disk.core().scheduler().is_empty() && disk.take_done().is_none());
    }
}

//! What happens to requests when a command fails, when the host cannot let go, and at the end.

mod common;
mod stack;

use common::*;
use mmc_block::{BlockError, Media, Next, Refusal, Settings, Stopped};
use mmc_mock::Clock;
use mmc_mock::card::{MmcCard, MmcConfig, SdCard, SdConfig, Shared};
use mmc_mock::fault::{Action, Faulty, Medium};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_sched::{Flags, MqDeadline, NoSched, Op, Policy};
use mmc_time::Instant;
use stack::{AnyHost, Backend, Bench, Door, req, script};

const T0: Instant = Instant::ZERO;

type TestDisk<P> = mmc_block::Disk<Plain, mmc_sched::Queue<Vec<mmc_sched::Slot>, P>, Tags, Log>;

fn submit<P: Policy>(disk: &mut TestDisk<P>, r: mmc_sched::Request) -> mmc_block::Ticket {
    disk.submit(r, buf(&r, r.lba as u8 + 1), T0).unwrap()
}

#[test]
fn a_command_that_fails_once_is_sent_again() {
    for fault in [Fault::Silent, Fault::Crc] {
        let fake = FakeHost::new(1024, 64);
        fake.lock().faults.insert(0, fault);
        let mut disk = disk(&fake, NoSched::new(), 8, settings(8));
        let t = submit(&mut disk, write(3, 8));
        run(&mut disk, T0);
        let done = disk.take(t).unwrap();
        assert_eq!((done.result, done.attempts), (Ok(()), 2), "{fault:?}");
        assert_eq!((disk.statistics().commands, disk.statistics().retries), (2, 1));
        assert_eq!(done.buffer, Some(buf(&write(3, 8), 4)));
        assert_eq!(fake.lock().store[3 * 512..11 * 512], done.buffer.unwrap().0);
    }
}

#[test]
fn a_command_that_keeps_failing_is_reported_after_three_attempts() {
    let fake = FakeHost::new(1024, 64);
    fake.lock().bad.insert(5, Fault::Silent);
    let mut disk = disk(&fake, NoSched::new(), 8, settings(8));
    let t = submit(&mut disk, write(3, 8));
    let other = submit(&mut disk, write(100, 8));
    run(&mut disk, T0);
    let done = disk.take(t).unwrap();
    assert!(matches!(done.result, Err(BlockError::Transfer(e)) if e.is_retryable()), "{done:?}");
    assert_eq!((done.attempts, done.buffer), (3, Some(buf(&write(3, 8), 4))));
    assert_eq!(disk.take(other).unwrap().result, Ok(()));
    assert_eq!((disk.statistics().completed, disk.statistics().failed), (1, 1));
}

#[test]
fn in_a_merged_run_each_request_gets_its_own_result() {
    for (fault, retries) in [(Fault::Silent, 2), (Fault::CardError, 2), (Fault::Silent, 0)] {
        let fake = FakeHost::new(1024, 64);
        fake.lock().bad.insert(5 * 8 + 3, fault);
        let mut disk = disk(&fake, MqDeadline::new(), 8, Settings { nr_requests: 8, retries });
        let tickets: Vec<_> = (0..8).map(|i| submit(&mut disk, write(i * 8, 8))).collect();
        run(&mut disk, T0);
        for (i, t) in tickets.into_iter().enumerate() {
            let done = disk.take(t).unwrap();
            assert_eq!(done.result.is_err(), i == 5, "{fault:?}: request {i}: {:?}", done.result);
            assert_eq!(done.buffer, Some(buf(&write(0, 8), i as u8 * 8 + 1)));
            let stored = fake.lock().store[i * 8 * 512];
            assert!(i == 5 || stored == i as u8 * 8 + 1);
        }
        // As one command first, then one by one, the bad one as often as it may before the next.
        let tries = usize::from(retries).max(1);
        let alone = (0..8).flat_map(|i| vec![(i * 8, 8); if i == 5 { tries } else { 1 }]);
        let seen = fake.lock().seen.iter().map(|s| (s.lba, s.blocks)).collect::<Vec<_>>();
        assert_eq!(seen, [(0, 64)].into_iter().chain(alone).collect::<Vec<_>>(), "{fault:?}");
        assert_eq!(disk.core().tags_in_use(), 0);
    }
}

#[test]
fn a_run_longer_than_the_host_can_do_goes_out_in_as_few_commands_as_it_can() {
    let fake = FakeHost::new(16, 64);
    let mut disk = disk(&fake, MqDeadline::new(), 8, settings(8));
    for i in 0..5 {
        submit(&mut disk, write(i * 8, 8));
    }
    run(&mut disk, T0);
    let seen: Vec<_> = fake.lock().seen.iter().map(|s| (s.lba, s.blocks)).collect();
    assert_eq!(seen, [(0, 16), (16, 16), (32, 8)]);
    assert_eq!((disk.statistics().completed, disk.statistics().retries), (5, 0));
    assert_eq!(disk.core().tags_in_use(), 0);
}

#[test]
fn a_card_that_is_gone_is_reported_at_once() {
    let fake = FakeHost::new(1024, 64);
    fake.lock().faults.insert(1, Fault::Gone);
    let mut disk = disk(&fake, MqDeadline::new(), 8, settings(8));
    for lba in [0, 100, 108, 200] {
        submit(&mut disk, write(lba, 8));
    }
    run(&mut disk, T0);
    let done: Vec<_> = std::iter::from_fn(|| disk.take_done()).collect();
    assert_eq!(done[0].result, Ok(()));
    for d in &done[1..] {
        assert!(d.result.is_err_and(|e| e.media_gone() && !e.is_retryable()), "{d:?}");
        assert_eq!(d.attempts, 1);
        assert!(d.buffer.is_some());
    }
    assert_eq!(done.len(), 4);
}

#[test]
fn a_quarantine_stops_the_disk_until_it_is_reclaimed() {
    for prepare in [false, true] {
        let fake = FakeHost::new(1024, 64);
        fake.lock().faults.insert(0, Fault::Quarantine);
        let mut disk = disk(&fake, MqDeadline::new(), 8, settings(2));
        if prepare {
            disk.prepare_with(mmc_mock::BufBatch::new(64)).unwrap();
        }
        // One command of two requests, one queued, one waiting for a tag.
        let tickets: Vec<_> = [0, 8, 100, 200].map(|lba| submit(&mut disk, write(lba, 8))).to_vec();
        run(&mut disk, T0);
        let results: Vec<_> = tickets.iter().map(|t| disk.take(*t).unwrap()).collect();
        for d in &results[..2] {
            assert!(matches!(d.result, Err(BlockError::Quarantined(_))), "{d:?}");
            assert!(d.buffer.is_none());
        }
        for d in &results[2..] {
            assert_eq!(d.result, Err(BlockError::Stopped(Stopped::Quarantine)));
            assert_eq!((d.attempts, d.buffer.is_some()), (0, true));
        }
        let r = write(0, 8);
        let refused = disk.submit(r, buf(&r, 9), T0).unwrap_err();
        assert_eq!(refused.error, Refusal::Stopped(Stopped::Quarantine));
        assert_eq!(disk.poll(T0), Next::Idle);

        let mut back = vec![];
        assert!(!disk.reclaim(|_| None, |b| back.push(b)), "the host keeps it still");
        assert!(disk.reclaim(Plain::reclaim, |b| back.push(b)));
        assert_eq!(back, [buf(&r, 1), buf(&r, 9)], "in the order of their sectors");
        let t = submit(&mut disk, r);
        run(&mut disk, T0);
        assert_eq!(disk.take(t).unwrap().result, Ok(()));
        assert!(!disk.reclaim(Plain::reclaim, |b| back.push(b)));
    }
}

#[test]
fn shutdown_ends_the_running_command_and_gives_everything_back() {
    for prepare in [false, true] {
        let fake = FakeHost::new(1024, 64);
        let mut disk = disk(&fake, MqDeadline::new(), 8, settings(2));
        if prepare {
            disk.prepare_with(mmc_mock::BufBatch::new(64)).unwrap();
        }
        for lba in [0, 100, 200, 300] {
            submit(&mut disk, write(lba, 8));
        }
        disk.poll(T0);
        disk.shutdown(T0);
        disk.shutdown(T0);
        assert!(run(&mut disk, T0) < T0 + SERVICE);
        assert_eq!(fake.lock().aborts, 1);
        let done: Vec<_> = std::iter::from_fn(|| disk.take_done()).collect();
        assert_eq!(done.len(), 4);
        assert!(done.iter().all(|d| d.result.is_err() && d.buffer.is_some()));
        assert_eq!(fake.lock().seen.len(), 1);
        let r = write(0, 8);
        assert_eq!(disk.submit(r, buf(&r, 9), T0).unwrap_err().error, Refusal::Stopped(Stopped::Shutdown));
    }
}

#[test]
fn a_shutdown_stays_one_whatever_happens_with_the_buffers() {
    let fake = FakeHost::new(1024, 64);
    fake.lock().faults.insert(0, Fault::Quarantine);
    let mut disk = disk(&fake, NoSched::new(), 8, settings(2));
    submit(&mut disk, write(0, 8));
    run(&mut disk, T0);
    disk.shutdown(T0);
    let mut back = 0;
    assert!(disk.reclaim(Plain::reclaim, |_| back += 1));
    assert_eq!((back, disk.core().stopped()), (1, Some(Stopped::Shutdown)));
    assert_eq!(disk.poll(T0), Next::Idle);
}

/// What a disk says of the card it finds when it wakes up, in a slot without a switch: it was put to sleep with the first of
/// them, and the second was put in meanwhile.
fn after_a_sleep<C: Medium + 'static>(before: C, after: C) -> Media {
    let faulty = Faulty::with_others(before, vec![after], script("")).unwrap();
    let (card, clock) = (Shared::new(faulty), Clock::new());
    let mut host = AnyHost::new(Backend::Mock, card.clone(), &clock);
    host.blind = true;
    let door = Door::new(move |f| card.with(f));
    let mut b = Bench::over(host, door, clock, false, "none", mmc_mock::Buf(vec![0; 512]), |_| ()).unwrap();
    let w = req(Op::Write, 5, 1, Flags::empty(), 1);
    assert_eq!(b.one(w, 7).result, Ok(()));
    b.disk.suspend();
    b.run();
    let now = b.clock.now();
    b.card.with(|c| c.act(&Action::Swap(0), now));
    // Submitted while it sleeps: it is for the card from before.
    let asleep = b.submit(w, 8).unwrap();
    b.disk.resume();
    b.run();
    let (media, same) = (b.disk.media(), b.disk.media() == Media::Same);
    let done = b.disk.take(asleep).unwrap();
    let told = if same { Ok(()) } else { Err(BlockError::Stopped(Stopped::MediaChanged)) };
    assert_eq!((done.result, b.stored(5)), (told, if same { 8 } else { 0 }));
    assert_eq!(b.disk.core().generation(), u32::from(!same));
    media
}

#[test]
fn a_card_is_the_same_if_every_register_that_names_it_says_so() {
    let sd = |change: fn(&mut SdConfig)| {
        let mut config = SdConfig::new(Profile::ideal(), 1);
        change(&mut config);
        SdCard::new(config).unwrap()
    };
    assert_eq!(after_a_sleep(sd(|_| ()), sd(|_| ())), Media::Same);
    assert_eq!(after_a_sleep(sd(|_| ()), sd(|c| c.identity.serial += 1)), Media::New);
    // A counterfeit is as large as its CSD says, and has the same CID as all of its kind.
    assert_eq!(after_a_sleep(sd(|_| ()), sd(|c| c.sectors /= 2)), Media::New);
    let mmc = |change: fn(&mut MmcConfig)| {
        let mut config: MmcConfig = zoo::mmc("aaru-emmc51-62gb", Profile::ideal(), 1).unwrap();
        change(&mut config);
        MmcCard::new(config).unwrap()
    };
    // SEC_COUNT, bytes 212 to 215: its size is not in the CSD.
    let smaller = |c: &mut MmcConfig| c.ext_csd.as_mut().unwrap()[214] -= 1;
    assert_eq!(after_a_sleep(mmc(|_| ()), mmc(|_| ())), Media::Same);
    assert_eq!(after_a_sleep(mmc(|_| ()), mmc(|c| c.cid[13] ^= 1)), Media::New);
    assert_eq!(after_a_sleep(mmc(|_| ()), mmc(smaller)), Media::New);
}

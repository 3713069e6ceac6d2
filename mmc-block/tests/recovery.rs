//! What happens to requests when a command fails, when the host cannot let go, and at the end; and to what a disk does with
//! its card meanwhile.

mod common;
mod stack;

use common::*;
use mmc_block::{BlockError, Media, Next, Refusal, Settings, Stopped};
use mmc_mock::Clock;
use mmc_mock::card::{MmcCard, MmcConfig, SdCard, SdConfig, Shared};
use mmc_mock::fault::{Action, Faulty, Medium};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_proto::machine::{Identified, MmcPart, Registers};
use mmc_proto::quirk::Avoid;
use mmc_proto::register::ext_csd::{BARRIER_SUPPORT, CACHE_SIZE, EXT_CSD_REV, Field};
use mmc_sched::{Flags, MqDeadline, NoSched, Op, Policy};
use mmc_time::{Duration, Instant};
use stack::{AnyHost, Backend, Bench, Door, emmc_card, flush, req, script, sd_card, sd_card_with_a_cache};

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

/// A write of 8 sectors.
fn w(lba: u64) -> mmc_sched::Request {
    req(Op::Write, lba, 8, Flags::empty(), 1)
}

fn poll<C: Medium + 'static>(b: &mut Bench<C>) -> Next {
    let now = b.clock.now();
    b.disk.poll(now)
}

/// Goes on until something has come true.
fn until<C: Medium + 'static>(b: &mut Bench<C>, what: impl Fn(&Bench<C>) -> bool) {
    for _ in 0..100_000 {
        let next = poll(b);
        if what(b) {
            return;
        }
        let Next::Wait { until, .. } = next else { break };
        b.clock.advance_to(until);
    }
    panic!("it never came true");
}

fn emmc(text: &str) -> Bench<MmcCard> {
    Bench::new(Backend::Mock, emmc_card(text), true, "none").unwrap()
}

#[test]
fn a_disk_that_is_to_sleep_begins_nothing_new() {
    let mut b = Bench::new(Backend::Mock, sd_card(""), false, "none").unwrap();
    let runs = b.submit(w(0), 1).unwrap();
    poll(&mut b);
    b.disk.suspend();
    assert!(!b.disk.is_suspended());
    let waits = b.submit(w(100), 2).unwrap();
    b.run();
    assert!(b.disk.is_suspended());
    assert_eq!(b.disk.take(runs).unwrap().result, Ok(()));
    assert!(b.disk.take(waits).is_none(), "it waits until the disk wakes up");
    b.disk.resume();
    b.run();
    assert_eq!(b.disk.take(waits).unwrap().result, Ok(()));
}

#[test]
fn whoever_wakes_a_disk_before_it_sleeps_has_its_supply_switched_off_no_more() {
    // Not begun; and with the flush under way.
    for (begun, resets) in [(false, 0), (true, 1)] {
        let mut b = emmc("");
        assert_eq!(b.one(w(0), 1).result, Ok(()));
        b.disk.suspend();
        if begun {
            poll(&mut b);
        }
        assert!(!b.disk.is_suspended());
        b.disk.resume();
        b.run();
        assert_eq!(b.disk.statistics().resets, resets, "begun: {begun}");
        let done = b.one(w(100), 2);
        assert_eq!((done.result, done.attempts, b.disk.statistics().resets), (Ok(()), 1, resets));
        assert_eq!(b.one(flush(), 0).result, Ok(()));
    }
}

#[test]
fn a_flush_is_not_passed_by_what_comes_behind_it() {
    let mut b = emmc("");
    b.submit(w(0), 1).unwrap();
    poll(&mut b);
    let flush = b.submit(flush(), 0).unwrap();
    poll(&mut b);
    let behind = b.submit(w(100), 2).unwrap();
    b.run();
    let (flush, behind) = (b.disk.take(flush).unwrap(), b.disk.take(behind).unwrap());
    assert_eq!((flush.result, behind.result), (Ok(()), Ok(())));
    assert!(behind.stamps.started >= flush.stamps.completed, "{:?} {:?}", behind.stamps, flush.stamps);
}

#[test]
fn a_card_that_hangs_is_cured_before_the_command_that_was_ready_goes_to_it() {
    let mut b = Bench::new(Backend::Mock, sd_card("at CMD25: busy forever"), false, "none").unwrap();
    let [hangs, ready] = [0, 100].map(|lba| b.submit(w(lba), 1).unwrap());
    b.run();
    let [hangs, ready] = [hangs, ready].map(|t| b.disk.take(t).unwrap());
    assert_eq!((hangs.result, hangs.attempts), (Ok(()), 2));
    assert_eq!((ready.result, ready.attempts), (Ok(()), 1));
    assert_eq!(b.disk.statistics().resets, 1);
}

#[test]
fn a_card_is_told_that_its_supply_will_go_where_it_can_be_told() {
    const SHORT: u8 = 2;
    let mmc = |tweak: &dyn Fn(&mut Identified)| {
        let mut b = Bench::odd(Backend::Mock, emmc_card(""), false, "none", tweak).unwrap();
        let now = b.clock.now();
        b.disk.prepare_power_off(now + Duration::from_secs(10), now);
        b.run();
        assert_eq!(b.disk.power_may_go(), Some(true));
        b.card.with(|c| c.card().ext_csd(34)) == SHORT
    };
    assert!(mmc(&|_| ()));
    assert!(!mmc(&|id| id.avoid = Avoid::POWER_OFF_NOTIFICATION));
    for (rev, told) in [(5, false), (6, true)] {
        let revision = |id: &mut Identified| {
            let Registers::Mmc(MmcPart { ext_csd: Some(e), .. }) = &mut id.registers else {
                panic!("{id:?}")
            };
            e.set(EXT_CSD_REV, rev);
        };
        assert_eq!(mmc(&revision), told, "revision {rev}");
    }
    // CMD49 writes an extension register.
    let sd = |card: Faulty<SdCard>, avoid| {
        let mut b = Bench::odd(Backend::Mock, card, false, "none", |id| id.avoid = avoid).unwrap();
        let (now, before) = (b.clock.now(), b.card.with(|c| c.seen(false, 49)));
        b.disk.prepare_power_off(now + Duration::from_secs(10), now);
        b.run();
        assert_eq!(b.disk.power_may_go(), Some(true));
        b.card.with(|c| c.seen(false, 49)) - before
    };
    assert_eq!(sd(sd_card_with_a_cache(""), Avoid::empty()), 1);
    assert_eq!(sd(sd_card_with_a_cache(""), Avoid::POWER_OFF_NOTIFICATION), 0);
    assert_eq!(sd(sd_card(""), Avoid::empty()), 0);
}

#[test]
fn half_of_the_time_until_the_supply_goes_is_kept_for_the_flush() {
    let mut b = Bench::new(Backend::Mock, emmc_card("every CMD25: busy 100ms"), true, "none").unwrap();
    let tickets: Vec<_> = (0..16).map(|i| b.submit(w(i * 100), 1).unwrap()).collect();
    let begin = b.clock.now();
    b.disk.prepare_power_off(begin + Duration::from_secs(1), begin);
    b.run();
    assert_eq!(b.disk.power_may_go(), Some(true));
    assert!(b.clock.now().since(begin) < Duration::from_secs(1));
    let half = begin + Duration::from_millis(500);
    let mut well = 0;
    for ticket in tickets {
        let done = b.disk.take(ticket).unwrap();
        match done.result {
            Ok(()) => {
                assert!(done.stamps.started < Some(half));
                well += 1;
            }
            other => assert_eq!(other, Err(BlockError::Stopped(Stopped::PowerOff))),
        }
    }
    assert!((4..=6).contains(&well), "{well} of 16 in half a second");
}

#[test]
fn a_card_that_stays_away_is_one_change_however_often_it_is_looked_for() {
    // It hangs, and is silent to the first CMD2 of many identifications.
    let silent: String = (1..200).map(|n| format!("at CMD2#{n}: no-answer\n")).collect();
    let card = sd_card(&format!("at CMD25: busy forever\n{silent}"));
    let mut b = Bench::new(Backend::Mock, card, false, "none").unwrap();
    let lost = b.submit(w(0), 1).unwrap();
    b.run();
    assert_eq!(b.disk.take(lost).unwrap().result, Err(BlockError::Stopped(Stopped::NoMedia)));
    let mut looked = 0;
    while b.disk.media() == Media::Gone {
        assert_eq!(b.disk.core().generation(), 1, "looked for {looked} times");
        assert_eq!(b.disk.core().stopped(), Some(Stopped::NoMedia));
        b.run();
        assert_eq!(b.disk.media(), Media::Gone, "nobody looks by himself");
        b.disk.look_again();
        b.run();
        looked += 1;
    }
    assert!(looked > 2, "{looked}");
    assert_eq!((b.disk.media(), b.disk.core().generation()), (Media::New, 1));
    assert!(b.disk.accept_media());
    // It is looked for only when it is away.
    b.disk.look_again();
    b.run();
    assert_eq!(b.one(w(0), 1).generation, 1);
    assert_eq!(b.disk.statistics().resets, 1);
}

#[test]
fn an_sd_card_has_its_cache_in_its_extension_registers() {
    for (card, cache) in
        [(sd_card_with_a_cache(""), true), (sd_card_with_a_cache(""), false), (sd_card(""), true)]
    {
        let has = card.card().config().extension;
        let mut b = Bench::new(Backend::Mock, card, cache, "none").unwrap();
        assert_eq!(
            b.card.with(|c| c.seen(false, 48)) > 0,
            has,
            "only a card with such registers is asked for them"
        );
        assert_eq!(b.disk.core().features().cache, has && cache);
        assert!(!b.disk.core().features().barrier);
        assert_eq!(b.one(w(64), 5).result, Ok(()));
        let volatile = |b: &mut Bench<SdCard>| b.card.with(|c| c.card_mut().dirty_sectors());
        if has && cache {
            assert_eq!(volatile(&mut b), 8, "in the cache");
        }
        assert_eq!(b.one(flush(), 0).result, Ok(()));
        assert_eq!(volatile(&mut b), 0);
        let fua = req(Op::Write, 72, 8, Flags::FUA, 1);
        assert_eq!((b.one(fua, 6).result, volatile(&mut b)), (Ok(()), 0));
        assert_eq!(b.disk.statistics().flushes, if has && cache { 2 } else { 0 });
    }
}

#[test]
fn a_host_that_keeps_the_scratch_buffer_gives_it_back_to_the_disk_and_nobody_else() {
    // What is kept: the data of a request, or the registers of an identification.
    for identification in [false, true] {
        let text = if identification { "at CMD25: busy forever" } else { "" };
        let mut b = Bench::new(Backend::Mock, sd_card(text), false, "none").unwrap();
        let keep = |b: &mut Bench<SdCard>| {
            let got = b.disk.reclaim(
                |host| {
                    host.keep = true;
                    None
                },
                |_| panic!("nothing is kept yet"),
            );
            assert!(!got);
        };
        let ticket = b.submit(w(0), 1).unwrap();
        if identification {
            // The command has its data back before the identification begins.
            until(&mut b, |b| b.disk.statistics().retries == 1);
        } else {
            poll(&mut b);
        }
        keep(&mut b);
        b.run();
        let done = b.disk.take(ticket).unwrap();
        assert_eq!(done.buffer.is_some(), identification, "{done:?}");
        assert!(done.result.is_err());
        assert!(b.submit(w(0), 1).is_none(), "it has stopped");
        let mut back = vec![];
        assert!(b.disk.reclaim(AnyHost::reclaim, |buffer| back.push(buffer.0.len())));
        assert_eq!(back, if identification { vec![] } else { vec![8 * 512] });
        b.disk.look_again();
        b.revive();
        assert_eq!(b.one(w(8), 3).result, Ok(()));
        assert_eq!(b.stored(8), 3);
    }
}

#[test]
fn a_supply_may_not_go_well_while_the_host_keeps_what_the_flush_needs() {
    let mut b = emmc("");
    let kept = b.submit(w(0), 1).unwrap();
    poll(&mut b);
    assert!(!b.disk.reclaim(
        |host| {
            host.keep = true;
            None
        },
        |_| ()
    ));
    let now = b.clock.now();
    b.disk.prepare_power_off(now + Duration::from_secs(5), now);
    b.run();
    assert!(matches!(b.disk.take(kept).unwrap().result, Err(BlockError::Quarantined(_))));
    assert_eq!(b.disk.power_may_go(), Some(false));
}

#[test]
fn one_request_that_the_card_refuses_costs_its_neighbours_in_the_command_nothing() {
    // The card says no to the command of all three, and to the second of them alone: WP_VIOLATION.
    let script = "at CMD25: status 0x04000000\nat CMD25#2: status 0x04000000";
    let mut b = Bench::new(Backend::Mock, sd_card(script), false, "mq-deadline").unwrap();
    let tickets = [0, 8, 16].map(|lba| b.submit(w(lba), 5).unwrap());
    b.run();
    let done = tickets.map(|t| b.disk.take(t).unwrap());
    assert_eq!(done.each_ref().map(|d| (d.result.is_ok(), d.attempts)), [(true, 2), (false, 2), (true, 2)]);
    assert_eq!([0, 16].map(|lba| b.stored(lba)), [5, 5]);
}

#[test]
fn what_was_ready_goes_to_the_card_by_its_new_address() {
    // The same card to all its registers, in a slot without a switch; but it gives itself another relative address.
    let of = |rca| SdCard::new(SdConfig { rca, ..SdConfig::new(Profile::ideal(), 1) }).unwrap();
    let faulty = Faulty::with_others(of(5), vec![of(9)], script("at CMD25: swap 0")).unwrap();
    let (card, clock) = (Shared::new(faulty), Clock::new());
    let mut host = AnyHost::new(Backend::Mock, card.clone(), &clock);
    host.blind = true;
    let door = Door::new(move |f| card.with(f));
    let mut b = Bench::over(host, door, clock, false, "none", mmc_mock::Buf(vec![0; 512]), |_| ()).unwrap();
    let before = b.disk.core().card().rca;
    let tickets = [0, 100].map(|lba| b.submit(w(lba), 5).unwrap());
    b.run();
    let [hit, ready] = tickets.map(|t| b.disk.take(t).unwrap());
    assert_ne!(b.disk.core().card().rca, before);
    assert_eq!((b.disk.media(), b.disk.statistics().resets), (Media::Same, 1));
    assert_eq!((hit.result, ready.result, ready.attempts), (Ok(()), Ok(()), 1));
    assert_eq!([0, 100].map(|lba| b.stored(lba)), [5, 5]);
}

#[test]
fn a_cache_is_used_where_there_is_one_that_can_be_trusted() {
    let of = |tweak: &dyn Fn(&mut Identified)| {
        let b = Bench::odd(Backend::Mock, emmc_card(""), true, "none", tweak).unwrap();
        assert_eq!(b.disk.statistics().resets, 0);
        let f = b.disk.core().features();
        (f.cache, f.barrier)
    };
    let set = |field: Field, value: u64| {
        move |id: &mut Identified| {
            let Registers::Mmc(MmcPart { ext_csd: Some(e), .. }) = &mut id.registers else {
                panic!("{id:?}")
            };
            e.set(field, value);
        }
    };
    let barriers = of(&|_| ()).1;
    assert_eq!(of(&|id| id.avoid = Avoid::empty()), (true, barriers));
    assert_eq!(of(&|id| id.avoid = Avoid::CACHE), (false, false));
    assert_eq!(of(&|id| id.avoid = Avoid::all() - Avoid::CACHE), (true, barriers));
    assert_eq!(of(&set(CACHE_SIZE, 0)), (false, false));
    assert_eq!(of(&set(CACHE_SIZE, 1)), (true, barriers));
    assert_eq!(of(&set(BARRIER_SUPPORT, 0)), (true, false));
    assert_eq!(of(&set(BARRIER_SUPPORT, 2)), (true, false));
    let avoid = |id: &mut Identified| id.avoid = Avoid::CACHE;
    let sd = Bench::odd(Backend::Mock, sd_card_with_a_cache(""), true, "none", avoid).unwrap();
    assert!(!sd.disk.core().features().cache);
}

#[test]
fn a_flush_is_sent_where_there_is_a_cache_and_of_a_card_that_cannot_bear_it_only_where_there_is_need() {
    // CMD6s for: a flush with nothing behind it, one behind a write, one behind that, and the sleep.
    for (cache, avoid, expected) in [
        (true, Avoid::empty(), [1, 1, 1, 1]),
        (true, Avoid::CLEAN_FLUSH, [0, 1, 0, 0]),
        (false, Avoid::empty(), [0, 0, 0, 0]),
    ] {
        let mut b = Bench::odd(Backend::Mock, emmc_card(""), cache, "none", |id| id.avoid = avoid).unwrap();
        let mut seen = b.card.with(|c| c.seen(false, 6));
        let mut sent = |b: &Bench<MmcCard>| {
            let now = b.card.with(|c| c.seen(false, 6));
            now - std::mem::replace(&mut seen, now)
        };
        let mut counts = vec![];
        for write in [false, true, false] {
            if write {
                assert_eq!(b.one(w(0), 1).result, Ok(()));
            }
            assert_eq!(b.one(flush(), 0).result, Ok(()));
            counts.push(sent(&b));
        }
        b.disk.suspend();
        b.run();
        counts.push(sent(&b));
        assert_eq!(counts, expected, "cache: {cache}, {avoid:?}");
        assert_eq!(b.disk.power_may_go(), None, "nobody has asked");
    }
}

#[test]
fn a_reset_loses_what_was_written_since_the_last_flush_and_nothing_where_that_is_nothing() {
    let barrier = req(Op::Write, 0, 0, Flags::BARRIER, 1);
    let r = req(Op::Read, 0, 8, Flags::empty(), 1);
    let (lost, kept) = (Err(BlockError::CacheLost), Ok(()));
    for (before, hangs, told) in [
        (vec![], "at CMD25: busy forever", kept),
        (vec![r], "at CMD25: busy forever", kept),
        (vec![w(100), flush()], "at CMD25#1: busy forever", kept),
        (vec![w(100)], "at CMD25#1: busy forever", lost),
        (vec![w(100), r], "at CMD25#1: busy forever", lost),
        // A barrier stores nothing.
        (vec![w(100), barrier], "at CMD25#1: busy forever", lost),
        (vec![w(100), flush(), barrier], "at CMD25#1: busy forever", kept),
    ] {
        let config: MmcConfig = zoo::mmc("sandisk-2026", Profile::ideal(), 1).unwrap();
        let card = Faulty::new(MmcCard::new(config).unwrap(), script(hangs)).unwrap();
        let mut b = Bench::new(Backend::Mock, card, true, "none").unwrap();
        assert!(b.disk.core().features().barrier);
        for r in &before {
            assert_eq!(b.one(*r, 3).result, Ok(()));
        }
        assert_eq!((b.one(w(200), 4).result, b.disk.statistics().resets), (Ok(()), 1));
        // To a barrier nothing is told: it promises nothing of what was lost.
        assert_eq!(b.one(barrier, 0).result, Ok(()));
        assert_eq!(b.one(flush(), 0).result, told, "{before:?}");
        assert_eq!(b.one(flush(), 0).result, Ok(()), "once");
    }
}

#[test]
fn a_flush_and_a_barrier_that_wait_together_are_one_flush() {
    let config: MmcConfig = zoo::mmc("sandisk-2026", Profile::ideal(), 1).unwrap();
    let card = Faulty::new(MmcCard::new(config).unwrap(), script("")).unwrap();
    let mut b = Bench::new(Backend::Mock, card, true, "none").unwrap();
    b.card.with(|c| c.card_mut().expect_loss(true));
    let barrier = req(Op::Write, 0, 0, Flags::BARRIER, 1);
    for both in [[flush(), barrier], [barrier, flush()]] {
        assert_eq!(b.one(w(100), 3).result, Ok(()));
        let before = b.disk.statistics().flushes;
        let tickets = both.map(|r| b.submit(r, 0).unwrap());
        b.run();
        assert_eq!(tickets.map(|t| b.disk.take(t).unwrap().result), [Ok(()), Ok(())]);
        assert_eq!((b.disk.statistics().flushes, b.card.with(|c| c.card_mut().volatile())), (before + 1, 0));
    }
}

#[test]
fn no_more_time_is_kept_for_the_flush_than_the_card_may_need() {
    // An SD card may take a second for each of four things.
    let mut b = Bench::new(Backend::Mock, sd_card("every CMD25: busy 200ms"), false, "none").unwrap();
    let tickets: Vec<_> = (0..60).map(|i| b.submit(w(i * 100), 1).unwrap()).collect();
    let begin = b.clock.now();
    b.disk.prepare_power_off(begin + Duration::from_secs(10), begin);
    b.run();
    assert_eq!(b.disk.power_may_go(), Some(true));
    let begun = tickets.iter().filter_map(|t| b.disk.take(*t).unwrap().stamps.started).max().unwrap();
    let after = begun.since(begin);
    assert!(after < Duration::from_secs(6) && after > Duration::from_millis(5500), "{after}");
}

#[test]
fn scratch_that_is_too_small_comes_back() {
    let fake = FakeHost::new(64, 8);
    let mut disk = disk(&fake, NoSched::new(), 4, settings(4));
    let b = Bench::new(Backend::Mock, sd_card(""), false, "none").unwrap();
    let (id, care) = (*b.disk.card().unwrap(), mmc_block::Care::new(&mmc_proto::host::Capabilities::new()));
    let small = disk.look_after(id, mmc_mock::Buf(vec![7; 511]), care, T0).unwrap_err();
    assert_eq!((small, disk.card().is_some()), (mmc_mock::Buf(vec![7; 511]), false));
    disk.look_after(id, mmc_mock::Buf(vec![0; 513]), care, T0).unwrap();
    assert_eq!(disk.card(), Some(&id));
}

//! A disk that looks after its card: cures errors, flushes, discards, notices changes, sleeps and says goodbye.

mod common;

use common::{buf, read, tags, write};
use mmc_block::{BlockError, Care, Disk, Init, Media, Next, Refusal, Settings, Stopped, Up};
use mmc_mock::card::{MmcCard, MmcConfig, SdCard, SdConfig, Shared};
use mmc_mock::fault::{Action, BlockFault, Faulty, Medium, Rule, Script, When};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, MockHost, zoo};
use mmc_proto::bus::{Timing, Width};
use mmc_proto::host::{Capabilities, Supervised};
use mmc_sched::{Flags, MqDeadline, Op, Queue, Request, Slot};
use mmc_time::{Duration, Instant};

type Card<C> = Shared<Faulty<C>>;
type Host<C> = Supervised<MockHost<BufBatch, Card<C>>>;
type Store = Queue<Vec<Slot>, MqDeadline>;

struct Bench<C: Medium> {
    card: Card<C>,
    disk: Disk<Host<C>, Store, common::Tags>,
    now: Instant,
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz, caps.max_segments) = (Width::Four, 50_000_000, 64);
    caps
}

fn script(text: &str) -> Script {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

impl<C: Medium> Bench<C> {
    /// Identified, looked after, and at rest.
    fn new(card: Faulty<C>, cache: bool) -> Self {
        let mut bench = Self::just_begun(card, cache);
        bench.run();
        bench
    }
    /// Identified and looked after; what the disk wants of the card first is still to come.
    fn just_begun(card: Faulty<C>, cache: bool) -> Self {
        Self::on(caps(), card, cache)
    }
    fn on(caps: Capabilities, card: Faulty<C>, cache: bool) -> Self {
        let card = Shared::new(card);
        let mut host = MockHost::new(card.clone(), caps);
        let mut init = Init::new(&caps, BufBatch::new(1), Buf(vec![0; 512])).unwrap();
        let mut now = Instant::ZERO;
        let (id, scratch) = loop {
            match init.poll(&mut host, now) {
                Up::Wait { until, .. } => now = now.max(until),
                Up::Done { card, parts } => break (card.unwrap(), parts.unwrap().1),
            }
        };
        let queue = Queue::new(vec![Slot::FREE; 16], MqDeadline::new());
        let settings = Settings { nr_requests: 16, retries: 2 };
        let mut disk = Disk::new(host, queue, id.traits, BufBatch::new(8), tags(32), settings, ()).unwrap();
        disk.look_after(id, scratch, Care { cache, ..Care::new(&caps) }, now).unwrap();
        Self { card, disk, now }
    }
    /// Until nothing is left to do.
    fn run(&mut self) {
        for _ in 0..1_000_000 {
            match self.disk.poll(self.now) {
                Next::Idle | Next::Lent => return,
                Next::Wait { until, .. } => {
                    assert!(!until.is_never(), "a wait that nothing ends");
                    self.now = self.now.max(until);
                }
            }
        }
        panic!("never idle");
    }
    fn one(&mut self, r: Request, byte: u8) -> mmc_block::Done<Buf> {
        let ticket = match r.op {
            Op::Read | Op::Write if r.blocks > 0 => self.disk.submit(r, buf(&r, byte), self.now).unwrap(),
            _ => self.disk.submit_bare(r, self.now).unwrap(),
        };
        self.run();
        self.disk.take(ticket).expect("it is over")
    }
}

fn sd(text: &str) -> Bench<SdCard> {
    let card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap();
    Bench::new(Faulty::new(card, script(text)).unwrap(), false)
}

fn emmc_card(text: &str) -> Faulty<MmcCard> {
    let config: MmcConfig = zoo::mmc("aaru-emmc51-62gb", Profile::ideal(), 1).unwrap();
    Faulty::new(MmcCard::new(config).unwrap(), script(text)).unwrap()
}

fn emmc(text: &str, cache: bool) -> Bench<MmcCard> {
    Bench::new(emmc_card(text), cache)
}

fn emmc_just_begun(text: &str) -> Bench<MmcCard> {
    let b = Bench::just_begun(emmc_card(text), true);
    b.card.with(|c| c.card_mut().expect_loss(true));
    b
}

fn fua(lba: u64, blocks: u32) -> Request {
    Request { flags: Flags::FUA, ..write(lba, blocks) }
}

fn flush() -> Request {
    Request { flags: Flags::PREFLUSH, ..write(0, 0) }
}

fn stored<C: Medium>(b: &Bench<C>, lba: u64) -> u8 {
    let mut sector = [0; 512];
    b.card.with(|c| c.card_mut().with_storage(&mut |s| s.read(lba * 512, &mut sector).unwrap()));
    sector[0]
}

#[test]
fn a_read_whose_blocks_stay_bad_is_read_block_by_block_as_far_as_it_goes() {
    // Block 5 of every multi-block read, and the single read of sector 105, have a wrong CRC.
    let mut b = sd("every CMD18: block 5 crc");
    let done = b.one(write(100, 8), 7);
    assert_eq!(done.result, Ok(()));
    let done = b.one(read(100, 8), 0);
    assert_eq!(done.result, Ok(()), "single blocks all arrive");
    assert!(done.buffer.unwrap().0.iter().all(|&x| x == 7));
    assert!(
        done.attempts > 8 && b.disk.statistics().resets == 1,
        "{} {:?}",
        done.attempts,
        b.disk.statistics()
    );
    assert_eq!(b.disk.card().unwrap().bus.timing, Timing::Default, "and the bus is slower from now on");

    let mut b = sd(
        "every CMD18: block 5 crc\nat CMD17#3: block 0 crc\nat CMD17#4: block 0 crc\nat CMD17#5: block 0 crc",
    );
    b.one(write(100, 8), 7);
    let done = b.one(read(100, 8), 0);
    assert!(matches!(done.result, Err(BlockError::Transfer(_))), "{:?}", done.result);
    assert_eq!(done.moved, 3, "the blocks before the bad one are told");
    assert_eq!(done.buffer.unwrap().0[..3 * 512], [7; 3 * 512][..]);
}

/// An eMMC at HS200, on a host that has to find the sample point.
fn hs200() -> Bench<MmcCard> {
    let mut caps = caps();
    (caps.width, caps.max_hz, caps.v1_8, caps.sample_points) = (Width::Eight, 200_000_000, true, 32);
    caps.timings = caps.timings.with(Timing::Hs200);
    let mut b = Bench::on(caps, emmc_card(""), false);
    b.run();
    assert_eq!(b.disk.card().unwrap().bus.timing, Timing::Hs200);
    assert_eq!(b.one(write(100, 8), 7).result, Ok(()));
    assert_eq!(b.disk.statistics().retunes, 0);
    b
}

fn block_0_is_bad<C: Medium>(b: &Bench<C>, when: When) {
    let rule = Rule { when, what: Action::Block(0, BlockFault::Crc) };
    b.card.with(|c| c.add(rule).unwrap());
}

#[test]
fn a_bus_that_damages_data_is_tuned_anew_and_counted() {
    let mut b = hs200();
    let nth = b.card.with(|c| c.seen(false, 18));
    block_0_is_bad(&b, When::Command { app: false, index: 18, nth });
    let done = b.one(read(100, 8), 0);
    assert_eq!((done.result, done.attempts), (Ok(()), 2));
    let s = b.disk.statistics();
    assert_eq!((s.retunes, s.resets, s.retries), (1, 0, 1));
    assert_eq!(b.disk.card().unwrap().bus.timing, Timing::Hs200);
    // No sample point is good any more: slower, and identified anew.
    let nth = b.card.with(|c| c.seen(false, 18));
    block_0_is_bad(&b, When::Command { app: false, index: 18, nth });
    block_0_is_bad(&b, When::Every { app: false, index: 21 });
    let done = b.one(read(100, 8), 0);
    assert_eq!((done.result, done.attempts, done.buffer.map(|b| b.0[0])), (Ok(()), 2, Some(7)));
    let s = b.disk.statistics();
    assert_eq!((s.retunes, s.resets, s.retries), (2, 1, 2));
    assert_ne!(b.disk.card().unwrap().bus.timing, Timing::Hs200);
}

#[test]
fn a_card_of_which_only_damage_is_heard_is_tuned_before_it_is_given_up() {
    // A read, and all that is asked of the card after it, comes back damaged: of a tuned bus that is no reason for a reset.
    for tuned in [true, false] {
        let mut b = if tuned { hs200() } else { emmc("", false) };
        for (index, times) in [(18, 1), (12, 1), (13, 4)] {
            let seen = b.card.with(|c| c.seen(false, index));
            for nth in seen..seen + times {
                let when = When::Command { app: false, index, nth };
                b.card.with(|c| c.add(Rule { when, what: Action::ResponseCrc }).unwrap());
            }
        }
        assert_eq!(b.one(read(100, 8), 0).result, Ok(()));
        let s = b.disk.statistics();
        assert_eq!((s.retunes, s.resets), if tuned { (1, 0) } else { (0, 1) }, "tuned: {tuned}");
    }
}

#[test]
fn a_bus_that_needs_no_sample_point_is_not_tuned() {
    // The host has points to choose from, but the bus is too slow to need one.
    let mut caps = caps();
    caps.sample_points = 32;
    let mut b = Bench::on(caps, emmc_card("at CMD18: block 0 crc"), false);
    b.run();
    let done = b.one(read(100, 8), 0);
    assert_eq!((done.result, done.attempts, b.disk.statistics().retunes), (Ok(()), 2, 0));
}

#[test]
fn a_bus_that_has_no_sample_point_is_not_tuned() {
    // SDR50 works without, on a host that has none to choose.
    let mut caps = caps();
    (caps.max_hz, caps.v1_8) = (100_000_000, true);
    caps.timings = caps.timings.with(Timing::Sdr12).with(Timing::Sdr50);
    let config: SdConfig = zoo::card("uhs-64gb", Profile::ideal(), 1).unwrap();
    let card = Faulty::new(SdCard::new(config).unwrap(), script("at CMD18: block 0 crc")).unwrap();
    let mut b = Bench::on(caps, card, false);
    b.run();
    assert_eq!(b.disk.card().unwrap().bus.timing, Timing::Sdr50);
    let done = b.one(read(100, 8), 0);
    assert_eq!((done.result, done.attempts), (Ok(()), 2));
    let s = b.disk.statistics();
    assert_eq!((s.retunes, s.resets, s.retries), (0, 0, 1));
}

#[test]
fn the_age_of_the_oldest_request_rises_while_the_card_stands_still() {
    let mut b = sd("at CMD24: busy 200ms");
    assert_eq!(b.disk.core().oldest(), None);
    let begin = b.now;
    let hung = b.disk.submit(write(9, 1), buf(&write(9, 1), 3), b.now).unwrap();
    let mut ages = vec![];
    let mut later = None;
    while let Next::Wait { until, .. } = b.disk.poll(b.now) {
        b.now = b.now.max(until.min(b.now + Duration::from_millis(20)));
        later.get_or_insert_with(|| b.disk.submit(read(90, 1), buf(&read(90, 1), 0), b.now).unwrap());
        if b.disk.core().oldest() == Some(begin) {
            ages.push(b.now.since(begin));
        }
    }
    assert!(
        ages.len() > 8 && ages.is_sorted() && ages[ages.len() - 1] >= Duration::from_millis(180),
        "{ages:?}"
    );
    assert_eq!(b.disk.core().oldest(), None, "over, though nobody has taken them");
    assert!(b.disk.take(hung).is_some() && b.disk.take(later.unwrap()).is_some());
}

#[test]
fn a_card_that_is_busy_for_longer_than_the_standard_allows_is_counted() {
    for (busy, slow) in [("490ms", 0), ("510ms", 1), ("2s", 1)] {
        let mut b = sd(&format!("at CMD24#1: busy {busy}"));
        for lba in [9, 90, 900] {
            assert_eq!(b.one(write(lba, 1), 3).result, Ok(()), "{busy}");
        }
        let s = b.disk.statistics();
        assert_eq!(s.slow_commands, slow, "{busy}: {s:?}");
        let all = Duration::from_millis(if busy == "2s" { 2000 } else { 490 });
        assert!(s.command_max >= all && s.command_max < all + Duration::from_millis(100), "{busy}: {s:?}");
    }
}

/// For the moment when something stands still: each thing the disk has or does is a line.
#[test]
fn a_disk_that_stands_still_says_what_it_waits_for() {
    let mut b = emmc("at CMD24: busy 2s", true);
    let mut put = |r: Request| b.disk.submit(r, buf(&r, 3), b.now).unwrap();
    put(write(9, 1));
    put(read(9, 1));
    put(read(90, 8));
    put(fua(70, 1));
    let from = b.now;
    while b.now.since(from) < Duration::from_millis(1500) {
        let Next::Wait { until, .. } = b.disk.poll(b.now) else { panic!("it is busy") };
        b.now = b.now.max(until.min(b.now + Duration::from_millis(100)));
    }
    let text = b.disk.dump(b.now).to_string();
    let has = |what: &str| assert!(text.lines().any(|l| l.contains(what)), "{what} in\n{text}");
    has("disk: Awake, media Same, host lent: No");
    has("running: Write 9+1 of 1 requests, ");
    has("scheduler: mq-deadline");
    has("tags: 3 of 16 (1 reads, 1 synchronous writes, 1 others)");
    has("cache on");
    has("requests: 4 not over");
    has(": Write 9+1 of stream 2, None, in a command, 1.5");
    has(": Read 9+1 of stream 1, None, behind an earlier one of its sectors, 1.5");
    has(": Read 90+8 of stream 1, None, in the scheduler, 1.5");
    assert!(text.len() < 2000, "{} bytes", text.len());
    b.run();
    let text = b.disk.dump(b.now).to_string();
    assert!(text.contains("requests: 0 not over") && text.matches("over, not taken").count() == 4, "{text}");
    // Out of the slot.
    b.disk.submit(write(9, 1), buf(&write(9, 1), 3), b.now).unwrap();
    b.card.with(|c| c.act(&Action::Remove, b.now));
    b.run();
    let text = b.disk.dump(b.now).to_string();
    assert!(text.contains("media Gone") && text.contains("stopped: NoMedia"), "{text}");
    assert!(text.contains("over, not taken, 0"), "{text}");
}

#[test]
fn a_card_that_hangs_is_identified_anew_and_the_request_repeated() {
    let mut b = sd("at CMD24: busy forever");
    let done = b.one(write(9, 1), 3);
    assert_eq!((done.result, done.attempts, done.generation), (Ok(()), 2, 0));
    assert_eq!((b.disk.statistics().resets, b.disk.media(), stored(&b, 9)), (1, Media::Same, 3));
}

#[test]
fn a_card_that_never_comes_back_ends_all_requests_and_the_disk() {
    // Silent to CMD2 but for the first one.
    let silent: String = (1..60).map(|n| format!("at CMD2#{n}: no-answer\n")).collect();
    let mut b = sd(&format!("every CMD24: busy forever\n{silent}"));
    assert_eq!(b.disk.media(), Media::Same);
    let tickets = [9, 90].map(|lba| b.disk.submit(write(lba, 1), buf(&write(lba, 1), 3), b.now).unwrap());
    b.run();
    assert_eq!(b.disk.media(), Media::Gone);
    for ticket in tickets {
        let done = b.disk.take(ticket).unwrap();
        assert!(matches!(done.result, Err(BlockError::Stopped(Stopped::NoMedia))), "{:?}", done.result);
    }
    let refused = b.disk.submit(read(0, 1), buf(&read(0, 1), 0), b.now).unwrap_err();
    assert_eq!(refused.error, Refusal::Stopped(Stopped::NoMedia));
}

#[test]
fn a_cache_is_switched_on_flushed_when_asked_and_lost_only_before() {
    let mut b = emmc("", true);
    assert!(b.disk.core().features().cache);
    b.card.with(|c| c.card_mut().expect_loss(true));
    let volatile = |b: &Bench<MmcCard>| b.card.with(|c| c.card_mut().volatile());
    b.one(write(64, 8), 5);
    assert_eq!(volatile(&b), 8, "in the cache");
    assert_eq!(b.one(flush(), 0).result, Ok(()));
    assert_eq!((stored(&b, 64), volatile(&b)), (5, 0));
    let done = b.one(Request { flags: Flags::FUA, ..write(72, 8) }, 6);
    assert_eq!((done.result, volatile(&b)), (Ok(()), 0), "FUA is durable when it is over");
    // One flush each; a flush with nothing behind it is still asked of the card.
    assert_eq!(b.disk.statistics().flushes, 2);
}

#[test]
fn a_reset_that_loses_the_cache_is_told_to_the_next_flush_once() {
    let mut b = emmc("at CMD24#1: busy forever", true);
    b.one(write(64, 1), 5);
    let hung = b.one(write(80, 1), 6);
    assert_eq!(hung.result, Ok(()), "sent again after the reset");
    assert_eq!(b.disk.statistics().resets, 1);
    assert!(b.disk.core().features().cache, "switched on again");
    assert_eq!(b.one(flush(), 0).result, Err(BlockError::CacheLost));
    assert_eq!(b.one(flush(), 0).result, Ok(()));
}

#[test]
fn a_flush_that_fails_is_told_and_repeated_as_often_as_it_is_worth() {
    // Each CMD6, and the CMD13 after it that finds the card ready.
    let mut b = emmc("", true);
    b.one(write(64, 8), 5);
    let first = b.card.with(|c| c.frames());
    let silent: String = (0..3).map(|n| format!("at frame {}: no-answer\n", first + 2 * n)).collect();
    let mut b = emmc(&silent, true);
    b.one(write(64, 8), 5);
    let done = b.one(flush(), 0);
    assert!(matches!(done.result, Err(BlockError::Flush(_))), "{:?}", done.result);
    assert_eq!(b.disk.statistics().flushes, 3);
    assert_eq!((b.one(flush(), 0).result, stored(&b, 64)), (Ok(()), 5));
}

#[test]
fn discards_and_write_zeroes_go_to_the_card_in_one_command() {
    let mut b = emmc("", false);
    b.one(write(0, 64), 9);
    let zeroes = Request { op: Op::WriteZeroes, ..write(8, 16) };
    assert_eq!(b.one(zeroes, 0).result, Ok(()));
    assert_eq!([7, 8, 23, 24].map(|lba| stored(&b, lba)), [9, 0, 0, 9]);
    let discard = Request { op: Op::Discard, ..write(32, 32) };
    assert_eq!(b.one(discard, 0).result, Ok(()));
    let mut b = sd("");
    b.one(write(0, 64), 9);
    assert_eq!(b.one(discard, 0).result, Ok(()));
    assert_eq!(stored(&b, 31), 9);
}

#[test]
fn a_card_that_is_taken_out_fails_all_and_a_new_one_waits_to_be_accepted() {
    let mut b = sd("");
    b.one(write(5, 1), 1);
    b.card.with(|c| c.card_mut().set_present(false));
    let ticket = b.disk.submit(write(6, 1), buf(&write(6, 1), 2), b.now).unwrap();
    b.run();
    assert_eq!(b.disk.media(), Media::Gone);
    assert_eq!(b.disk.take(ticket).unwrap().result, Err(BlockError::Stopped(Stopped::NoMedia)));
    b.card.with(|c| c.card_mut().set_present(true));
    b.run();
    assert_eq!(b.disk.media(), Media::New, "it may have been written elsewhere");
    let refused = b.disk.submit(read(5, 1), buf(&read(5, 1), 0), b.now).unwrap_err();
    assert_eq!(refused.error, Refusal::Stopped(Stopped::MediaChanged));
    assert!(b.disk.accept_media() && !b.disk.accept_media());
    let done = b.one(read(5, 1), 0);
    assert_eq!((done.result, done.generation, done.buffer.unwrap().0[0]), (Ok(()), 1, 1));
}

#[test]
fn a_card_that_is_taken_out_ends_those_behind_one_that_waits_for_a_flush() {
    // Found by `mmc-lab soak`: each of these is held by the one before it, and wants a flush when it is let go.
    for flags in [Flags::PREFLUSH | Flags::FUA, Flags::PREFLUSH] {
        let mut b = emmc("", true);
        b.one(write(64, 8), 5);
        let rs = [
            write(64, 8),
            Request { flags, ..write(70, 8) },
            Request { flags, ..write(72, 8) },
            Request { flags, ..write(68, 8) },
            read(64, 8),
        ];
        let tickets = rs.map(|r| b.disk.submit(r, buf(&r, 6), b.now).unwrap());
        b.card.with(|c| c.act(&Action::Remove, b.now));
        b.run();
        assert_eq!(b.disk.media(), Media::Gone);
        for ticket in tickets {
            let done = b.disk.take(ticket).unwrap_or_else(|| panic!("{flags:?}: {ticket:?} is not over"));
            assert!(done.result.is_err());
        }
        assert_eq!(b.disk.core().outstanding(), 0);
    }
}

#[test]
fn a_flush_that_is_due_when_the_card_is_changed_fails() {
    // Found by `mmc-lab soak`: nobody stores any more what was in the cache of the card before.
    let of = |serial: u8| {
        let mut config: MmcConfig = zoo::mmc("aaru-emmc51-62gb", Profile::ideal(), 1).unwrap();
        config.cid[13] ^= serial;
        MmcCard::new(config).unwrap()
    };
    let others = vec![of(1)];
    let mut b = Bench::new(Faulty::with_others(of(0), others, script("at CMD24#1: swap 0")).unwrap(), true);
    b.disk.prepare_with(BufBatch::new(8)).unwrap();
    assert_eq!(b.one(write(64, 1), 5).result, Ok(()));
    // The flush is next when this one fails.
    let hit = write(80, 1);
    let hit = b.disk.submit(hit, buf(&hit, 6), b.now).unwrap();
    b.disk.poll(b.now);
    let flush = b.disk.submit_bare(flush(), b.now).unwrap();
    b.run();
    assert_eq!((b.disk.media(), b.card.with(|c| c.waiting().len())), (Media::New, 0));
    for ticket in [hit, flush] {
        let done = b.disk.take(ticket).unwrap();
        assert_eq!(done.result, Err(BlockError::Stopped(Stopped::MediaChanged)), "{:?}", done.request);
    }
    // And the new one is what the old one was: with its cache on.
    assert!(b.disk.accept_media() && b.disk.core().features().cache);
    assert_eq!(b.one(write(64, 1), 7).result, Ok(()));
    assert_eq!(b.one(self::flush(), 0).result, Ok(()));
    assert_eq!(stored(&b, 64), 7);
}

#[test]
fn a_cache_of_which_nobody_knows_whether_it_is_on_is_reset() {
    // Found by `mmc-lab soak`: the card switches its cache on, and its answer is lost.
    let b = emmc("", true);
    let switches = b.card.with(|c| c.seen(false, 6));
    assert_eq!(b.disk.statistics().resets, 0);
    let lost = |times: u32| {
        let nth = (1..=times).map(|k| format!("at CMD6#{}: no-answer\n", k * switches - 1));
        emmc(&nth.collect::<String>(), true)
    };
    let b = lost(1);
    assert_eq!((b.disk.statistics().resets, b.disk.core().features().cache), (1, true), "once more");
    let mut b = lost(2);
    assert_eq!((b.disk.statistics().resets, b.disk.core().features().cache), (2, false), "twice is enough");
    b.card.with(|c| c.card_mut().expect_loss(true));
    b.one(write(64, 8), 5);
    assert_eq!(b.card.with(|c| c.card_mut().volatile()), 0, "nothing flushes this cache, so it is off");
}

#[test]
fn a_suspended_disk_keeps_its_requests_and_goes_on_with_the_same_card() {
    let mut b = emmc("", true);
    b.one(write(64, 8), 5);
    b.disk.suspend();
    b.run();
    assert!(b.disk.is_suspended());
    assert_eq!(stored(&b, 64), 5, "flushed before the supply went");
    let ticket = b.disk.submit(read(64, 8), buf(&read(64, 8), 0), b.now).unwrap();
    b.run();
    assert!(b.disk.take(ticket).is_none(), "nothing is sent to a card without supply");
    b.now += Duration::from_secs(3600);
    b.disk.resume();
    b.run();
    assert_eq!(b.disk.take(ticket).unwrap().buffer.unwrap().0[0], 5);
    assert_eq!((b.disk.media(), b.disk.is_suspended()), (Media::Same, false));
    assert_eq!(b.one(flush(), 0).result, Ok(()), "nothing was lost");
}

#[test]
fn a_prepared_power_off_stores_what_it_can_in_time_and_says_so() {
    let mut b = emmc("", true);
    let tickets: Vec<_> = (0..8)
        .map(|i| b.disk.submit(write(i * 100, 8), buf(&write(i * 100, 8), 4), b.now).unwrap())
        .collect();
    let begin = b.now;
    b.disk.prepare_power_off(begin + Duration::from_secs(1), begin);
    assert_eq!(
        b.disk.submit(read(0, 1), buf(&read(0, 1), 0), b.now).unwrap_err().error,
        Refusal::Stopped(Stopped::PowerOff)
    );
    assert_eq!(b.disk.power_may_go(), None);
    b.run();
    assert_eq!(b.disk.power_may_go(), Some(true));
    assert!(b.now.since(begin) < Duration::from_secs(1));
    for (i, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(b.disk.take(ticket).unwrap().result, Ok(()));
        assert_eq!(stored(&b, i as u64 * 100), 4);
    }

    // A card that does not store in time.
    let before = emmc("", true).card.with(|c| c.frames());
    let mut b = emmc(&format!("at frame {before}: busy forever"), true);
    let begin = b.now;
    b.disk.prepare_power_off(begin + Duration::from_millis(50), begin);
    b.run();
    assert_eq!(b.disk.power_may_go(), Some(false));
    assert!(b.now.since(begin) < Duration::from_millis(200), "{:?}", b.now.since(begin));
}

#[test]
fn a_power_off_does_not_say_well_of_a_cache_that_was_lost_on_the_way() {
    // Something is in the cache; then a write hangs, or the card falls silent or is taken out, before the supply goes or while
    // it is told.
    let frames = |writes: u64| {
        let mut b = emmc("", true);
        (0..writes).for_each(|i| drop(b.one(write(64 + i * 100, 8), 5)));
        b.card.with(|c| c.frames())
    };
    let (hangs, flushes) = (frames(1), frames(2));
    for (frame, fault, ms) in [
        // The write, or the flush, hangs: identified anew, in time and not.
        (hangs, "busy forever", 5000),
        (hangs + 1, "busy forever", 5000),
        (hangs + 1, "busy forever", 400),
        (hangs + 1, "busy forever", 100),
        (flushes, "busy forever", 5000),
        (flushes, "busy forever", 100),
        (hangs, "remove", 5000),
        (hangs + 1, "remove", 5000),
        (flushes, "remove", 5000),
        (hangs + 1, "power-loss none", 5000),
    ] {
        let mut b = emmc(&format!("at frame {frame}: {fault}"), true);
        b.card.with(|c| c.card_mut().expect_loss(true));
        assert_eq!(b.one(write(64, 8), 5).result, Ok(()));
        let late = b.disk.submit(write(164, 8), buf(&write(164, 8), 5), b.now).unwrap();
        let begin = b.now;
        b.disk.prepare_power_off(begin + Duration::from_millis(ms), begin);
        b.run();
        let (well, done) = (b.disk.power_may_go(), b.disk.take(late).unwrap());
        let kept = stored(&b, 64) == 5 && (done.result.is_err() || stored(&b, 164) == 5);
        assert!(well.is_some(), "{fault} at {frame}, {ms} ms");
        assert!(kept || well == Some(false), "{fault} at {frame}, {ms} ms: {well:?}, {:?}", done.result);
    }
}

#[test]
fn the_steps_of_an_identification_are_timed() {
    let card = Shared::new(SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap());
    let mut host = MockHost::new(card, caps());
    let mut init = Init::new(&caps(), BufBatch::new(1), Buf(vec![0; 512])).unwrap();
    let mut now = Instant::ZERO;
    while let Up::Wait { until, .. } = init.poll(&mut host, now) {
        now = now.max(until);
    }
    let sum = init.times().iter().fold(Duration::ZERO, |sum, (_, took)| sum + took);
    assert_eq!(sum, now.since(Instant::ZERO));
    assert!(init.times().iter().count() > 8 && init.times().iter().all(|(_, took)| took > Duration::ZERO));
}

#[test]
fn what_the_card_said_comes_with_the_error() {
    // WP_VIOLATION.
    let mut b = sd("at CMD24: status 0x04000000");
    let done = b.one(write(9, 1), 3);
    let Err(BlockError::Transfer(e)) = done.result else { panic!("{:?}", done.result) };
    assert_eq!(e.status.map(|s| s.bits() & 0x0400_0000), Some(0x0400_0000));
    assert_eq!((done.attempts, done.generation, done.moved), (1, 0, 0));
    assert_eq!(done.buffer, Some(buf(&write(9, 1), 3)));
}

#[test]
fn sectors_of_4_kib_are_moved_whole_or_not_at_all() {
    let config: MmcConfig = zoo::mmc("emmc-native-4k", Profile::ideal(), 1).unwrap();
    let mut b = Bench::new(Faulty::new(MmcCard::new(config).unwrap(), script("")).unwrap(), false);
    for (lba, blocks) in [(4, 8), (8, 4), (0, 1), (1, 15)] {
        let r = write(lba, blocks);
        let refused = b.disk.submit(r, buf(&r, 1), b.now).unwrap_err();
        assert_eq!(refused.error, Refusal::Unaligned { lba, blocks, unit: 8 });
        assert_eq!(refused.buffer, buf(&r, 1));
    }
    assert_eq!(b.one(write(8, 24), 6).result, Ok(()));
    assert_eq!((stored(&b, 7), stored(&b, 8), stored(&b, 31), stored(&b, 32)), (0, 6, 6, 0));
}

/// Nobody can know without writing it full: what was written early is gone when the whole is read back, and nothing else
/// goes wrong.
#[test]
fn a_card_that_is_smaller_than_it_says_is_found_by_reading_back() {
    let config: SdConfig = zoo::card("fake-64gb", Profile::ideal(), 1).unwrap();
    let mut b = Bench::new(Faulty::new(SdCard::new(config).unwrap(), script("")).unwrap(), false);
    let blocks = b.disk.core().card().blocks;
    assert!(blocks > 100_000_000);
    // One sector in each GiB, each with its own byte.
    let places: Vec<u64> = (0..blocks / 2_097_152).map(|gib| gib * 2_097_152 + 5).collect();
    for (i, lba) in places.iter().enumerate() {
        assert_eq!(b.one(write(*lba, 1), i as u8 + 1).result, Ok(()));
    }
    let mut right = 0;
    for (i, lba) in places.iter().enumerate() {
        let done = b.one(read(*lba, 1), 0);
        assert_eq!(done.result, Ok(()));
        right += usize::from(done.buffer.unwrap().0[0] == i as u8 + 1);
    }
    assert_eq!(right, 8, "of {} GiB", places.len());
}

#[test]
fn a_write_that_must_be_stored_is_so_even_if_the_cache_comes_on_behind_its_back() {
    // Accepted before the disk has switched the cache on.
    let mut b = emmc_just_begun("");
    let done = b.one(fua(64, 8), 7);
    assert_eq!((done.result, b.disk.core().features().cache), (Ok(()), true));
    assert_eq!(b.card.with(|c| c.card_mut().volatile()), 0);
    // The same with a flush before it and none behind.
    let mut b = emmc_just_begun("");
    let first = b.disk.submit(write(0, 8), buf(&write(0, 8), 1), b.now).unwrap();
    let then = Request { flags: Flags::PREFLUSH | Flags::FUA, ..write(64, 8) };
    let done = b.one(then, 7);
    assert_eq!((b.disk.take(first).unwrap().result, done.result), (Ok(()), Ok(())));
    let sectors = [stored(&b, 64), b.card.with(|c| c.card_mut().volatile()) as u8];
    assert_eq!(sectors, [7, 0]);
}

#[test]
fn what_is_accepted_while_a_card_comes_back_hears_of_a_lost_cache_and_is_stored() {
    for kind in [flush(), Request { flags: Flags::PREFLUSH, ..write(200, 8) }, fua(200, 8)] {
        let mut b = emmc("at CMD24#1: busy forever", true);
        b.card.with(|c| c.card_mut().expect_loss(true));
        assert_eq!(b.one(write(64, 1), 5).result, Ok(()));
        let hangs = b.disk.submit(write(80, 1), buf(&write(80, 1), 6), b.now).unwrap();
        let asked = loop {
            let Next::Wait { until, .. } = b.disk.poll(b.now) else {
                panic!("the card was not identified anew")
            };
            if b.disk.statistics().resets == 1 {
                assert!(!b.disk.core().features().cache, "the window this is about");
                break match kind.blocks {
                    0 => b.disk.submit_bare(kind, b.now).unwrap(),
                    _ => b.disk.submit(kind, buf(&kind, 9), b.now).unwrap(),
                };
            }
            b.now = b.now.max(until);
        };
        b.run();
        assert_eq!(b.disk.take(asked).unwrap().result, Err(BlockError::CacheLost), "{kind:?}");
        assert_eq!(b.disk.take(hangs).unwrap().result, Ok(()));
        assert_eq!(b.one(flush(), 0).result, Ok(()), "told once");
        assert_eq!(b.card.with(|c| c.card_mut().volatile()), 0);
    }
}

#[test]
fn the_supply_does_not_go_before_everything_is_stored_though_only_a_barrier_is_due() {
    for leave in [false, true] {
        let config: MmcConfig = zoo::mmc("sandisk-2026", Profile::named("a1").unwrap(), 1).unwrap();
        let mut b = Bench::new(Faulty::new(MmcCard::new(config).unwrap(), script("")).unwrap(), true);
        b.card.with(|c| c.card_mut().expect_loss(true));
        b.disk.prepare_with(BufBatch::new(8)).unwrap();
        assert!(b.disk.core().features().barrier);
        assert_eq!(b.one(write(64, 8), 5).result, Ok(()));
        let runs = b.disk.submit(write(4096, 512), buf(&write(4096, 512), 6), b.now).unwrap();
        b.disk.poll(b.now);
        let barrier = Request { flags: Flags::BARRIER, ..write(0, 0) };
        let barrier = b.disk.submit_bare(barrier, b.now).unwrap();
        b.disk.poll(b.now);
        if leave {
            // So late that there is time for the flush alone.
            b.disk.prepare_power_off(b.now + Duration::from_millis(1), b.now);
        } else {
            b.disk.suspend();
        }
        b.run();
        assert_eq!(b.disk.take(runs).unwrap().result, Ok(()));
        assert!(b.disk.take(barrier).is_some());
        assert!(leave || b.disk.is_suspended());
        if !leave || b.disk.power_may_go() == Some(true) {
            assert_eq!(stored(&b, 64), 5, "leave: {leave}");
        }
    }
}

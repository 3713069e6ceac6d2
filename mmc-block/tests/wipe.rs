//! Emptying sectors for good: secure erase, secure trim, sanitize. Offered where the card can, in order with everybody
//! else's requests, whole or told, whatever fails and whenever the supply goes.
//!
//! By default a few of the faults; `MMC_BLOCK_FAULTS=all` runs one of every kind at every command.

mod stack;

use mmc_block::{BlockError, Blocking, Done, Idle, Refusal, Stopped, Ticket, Wipe};
use mmc_mock::card::{MmcCard, MmcConfig};
use mmc_mock::fault::{Faulty, Medium};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, Clock, zoo};
use mmc_proto::machine::{Identified, MmcPart, Registers, SdPart};
use mmc_proto::quirk::Avoid;
use mmc_proto::register::SsrInfo;
use mmc_proto::register::ext_csd::{
    BARRIER_SUPPORT, ERASED_MEM_CONT, EXT_CSD_REV, Field, SEC_FEATURE_SUPPORT,
};
use mmc_sched::{Flags, Op, Request};
use mmc_time::{Duration, Instant};
use stack::{BACKENDS, Backend, Bench, emmc_card, req, script, sd_card};

/// Sectors of an erase group of the card used most here.
const GROUP: u32 = 1024;

type Emmc = Bench<MmcCard>;

fn emmc(backend: Backend, text: &str) -> Emmc {
    Bench::new(backend, emmc_card(text), false, "mq-deadline").expect("identified")
}

fn of_the_zoo(name: &str) -> Faulty<MmcCard> {
    let config: MmcConfig = zoo::mmc(name, Profile::ideal(), 1).unwrap();
    Faulty::new(MmcCard::new(config).unwrap(), script("")).unwrap()
}

fn range(lba: u64, blocks: u32) -> Request {
    req(Op::Discard, lba, blocks, Flags::empty(), 3)
}

trait Wipes {
    fn ask(&mut self, how: Wipe, lba: u64, blocks: u32) -> Result<Ticket, Refusal>;
    fn wipe(&mut self, how: Wipe, lba: u64, blocks: u32) -> Done<Buf>;
}

impl Wipes for Emmc {
    fn ask(&mut self, how: Wipe, lba: u64, blocks: u32) -> Result<Ticket, Refusal> {
        let now = self.clock.now();
        self.disk.submit_wipe(range(lba, blocks), how, now)
    }
    fn wipe(&mut self, how: Wipe, lba: u64, blocks: u32) -> Done<Buf> {
        let ticket = self.ask(how, lba, blocks).expect("accepted");
        self.run();
        self.disk.take(ticket).expect("over")
    }
}

fn write(b: &mut Emmc, lba: u64, blocks: u32, byte: u8) {
    assert_eq!(b.one(req(Op::Write, lba, blocks, Flags::empty(), 1), byte).result, Ok(()));
}

fn held(b: &Emmc, lba: u64, expected: &[u8]) {
    let held: Vec<u8> = (lba..).take(expected.len()).map(|lba| b.stored(lba)).collect();
    assert_eq!(held, expected, "from {lba} on");
}

#[test]
fn each_way_empties_its_sectors_and_no_others() {
    for backend in BACKENDS {
        let mut b = emmc(backend, "");
        let g = u64::from(GROUP);
        assert_eq!(b.disk.core().features().unit, GROUP);
        write(&mut b, g - 2, 4, 7);
        write(&mut b, 3 * g - 2, 4, 7);
        let done = b.wipe(Wipe::SecureErase, g, 2 * GROUP);
        assert_eq!((done.result, done.request, done.moved), (Ok(()), range(g, 2 * GROUP), 2 * GROUP));
        held(&b, g - 2, &[7, 7, 0, 0]);
        held(&b, 3 * g - 2, &[0, 0, 7, 7]);
        write(&mut b, 100, 8, 5);
        assert_eq!(b.wipe(Wipe::SecureTrim, 102, 3).result, Ok(()));
        held(&b, 100, &[5, 5, 0, 0, 0, 5, 5, 5]);
        assert_eq!(b.wipe(Wipe::Sanitize, 0, 0).result, Ok(()));
        held(&b, 100, &[5, 5, 0, 0, 0, 5, 5, 5]);
        assert_eq!(b.disk.core().outstanding(), 0);
    }
}

#[test]
fn what_a_card_lacks_or_a_range_that_does_not_fit_is_refused() {
    let mut b = emmc(Backend::Mock, "");
    let blocks = b.disk.core().card().blocks;
    assert_eq!(b.ask(Wipe::SecureTrim, 4, 0), Err(Refusal::Empty));
    let beyond = Err(Refusal::OutOfRange { lba: blocks - 1, blocks: 2, capacity: blocks });
    assert_eq!(b.ask(Wipe::SecureTrim, blocks - 1, 2), beyond);
    assert!(matches!(b.ask(Wipe::SecureTrim, u64::MAX, 2), Err(Refusal::OutOfRange { .. })));
    for (lba, n) in [(1, GROUP), (0, 1), (0, GROUP + 1), (u64::from(GROUP) / 2, GROUP)] {
        let odd = Err(Refusal::Unaligned { lba, blocks: n, unit: GROUP });
        assert_eq!(b.ask(Wipe::SecureErase, lba, n), odd);
    }
    // The card's last group may be cut short.
    let last = blocks / u64::from(GROUP) * u64::from(GROUP);
    if last < blocks {
        assert_eq!(b.wipe(Wipe::SecureErase, last, (blocks - last) as u32).result, Ok(()));
    }
    let now = b.clock.now();
    let read = req(Op::Read, 0, 8, Flags::empty(), 1);
    assert_eq!(b.disk.submit_wipe(read, Wipe::SecureTrim, now), Err(Refusal::Unsupported(Op::Read)));
    b.disk.shutdown(now);
    assert_eq!(b.ask(Wipe::Sanitize, 0, 0), Err(Refusal::Stopped(Stopped::Shutdown)));
    let all = [Wipe::SecureErase, Wipe::SecureTrim, Wipe::Sanitize];
    // No SD card can, and one that nobody looks after is not asked.
    let mut sd = Bench::new(Backend::Mock, sd_card(""), false, "none").unwrap();
    for how in all {
        let now = sd.clock.now();
        assert_eq!(sd.disk.submit_wipe(range(0, 8), how, now), Err(Refusal::NotOffered(how)));
    }
    // One that dies of it is never asked; nor is one asked for a secure trim whose trim is wrong.
    let mut b = Bench::new(Backend::Mock, of_the_zoo("samsung-movinand"), false, "none").unwrap();
    for how in all {
        assert_eq!(b.ask(how, 0, 8), Err(Refusal::NotOffered(how)));
    }
    let mut b = Bench::new(Backend::Mock, of_the_zoo("kingston-v10008"), false, "none").unwrap();
    assert_eq!(b.ask(Wipe::SecureTrim, 0, 8), Err(Refusal::NotOffered(Wipe::SecureTrim)));
    assert_eq!(b.wipe(Wipe::SecureErase, 0, b.disk.core().features().unit).result, Ok(()));
}

/// What a disk offers of an eMMC that can all, after `tweak`: discard, zeroes, secure erase, secure trim, sanitize.
fn offered(tweak: impl FnOnce(&mut Identified)) -> String {
    let b = Bench::odd(Backend::Mock, emmc_card(""), false, "none", tweak).unwrap();
    let f = *b.disk.core().features();
    let all = [
        (f.discard.is_some(), 'd'),
        (f.write_zeroes.is_some(), 'z'),
        (f.secure_erase.is_some(), 'e'),
        (f.secure_trim.is_some(), 't'),
        (f.sanitize, 's'),
    ];
    all.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect()
}

fn with_register(id: &mut Identified, fields: &[(Field, u64)]) {
    let Registers::Mmc(MmcPart { ext_csd: Some(e), .. }) = &mut id.registers else { panic!("{id:?}") };
    fields.iter().for_each(|(field, value)| e.set(*field, *value));
}

#[test]
fn each_quirk_takes_away_what_it_is_about_and_nothing_else() {
    for (avoid, left) in [
        (Avoid::empty(), "dzets"),
        (Avoid::ERASE, ""),
        // There are two ways to discard.
        (Avoid::TRIM, "des"),
        (Avoid::DISCARD, "dzets"),
        (Avoid::TRIM | Avoid::DISCARD, "es"),
        (Avoid::SECURE_ERASE, "dz"),
        (Avoid::SECURE_ERASE | Avoid::TRIM, "d"),
        (Avoid::all() - Avoid::ERASE - Avoid::TRIM - Avoid::DISCARD - Avoid::SECURE_ERASE, "dzets"),
    ] {
        assert_eq!(offered(|id| id.avoid = avoid), left, "{avoid:?}");
    }
    let sd = |avoid, class_5: bool| {
        let tweak = |id: &mut Identified| {
            id.avoid = avoid;
            let Registers::Sd(sd) = &mut id.registers else { panic!("{id:?}") };
            let mut info = sd.csd.info();
            assert_ne!(info.ccc & 1 << 5, 0);
            // All other classes, or this one alone.
            info.ccc = if class_5 { 1 << 5 } else { 0xfff & !(1 << 5) };
            sd.csd = info.emit();
        };
        let b = Bench::odd(Backend::Mock, sd_card(""), false, "none", tweak).unwrap();
        let f = *b.disk.core().features();
        assert_eq!((f.write_zeroes, f.secure_erase, f.secure_trim, f.sanitize), (None, None, None, false));
        f.discard.is_some()
    };
    assert!(sd(Avoid::empty(), true) && sd(Avoid::all() - Avoid::ERASE, true));
    assert!(!sd(Avoid::ERASE, true) && !sd(Avoid::empty(), false));
}

#[test]
fn what_is_offered_is_what_the_registers_say() {
    const ALL: u64 = 0x55;
    for (sec, rev, erased, left) in [
        (ALL, 8, 0, "dzets"),
        (0, 8, 0, "d"),
        (0, 5, 0, ""),
        (0x01, 8, 0, "de"),
        (0x10, 8, 0, "dz"),
        (0x11, 8, 0, "dzet"),
        (0x40, 8, 0, "ds"),
        // All bits but the one of sanitize.
        (0xbf, 8, 0, "dzet"),
        // What reads as ones when it was erased.
        (ALL, 8, 1, "dets"),
        // Before revision 6 a trim is all there is.
        (ALL, 5, 0, "dzets"),
        (ALL & !0x10, 5, 0, "es"),
    ] {
        let fields = [(SEC_FEATURE_SUPPORT, sec), (EXT_CSD_REV, rev), (ERASED_MEM_CONT, erased)];
        assert_eq!(offered(|id| with_register(id, &fields)), left, "{sec:#x}, revision {rev}, {erased}");
    }
    // A card older than these registers.
    let forget = |id: &mut Identified| {
        let Registers::Mmc(mmc) = &mut id.registers else { panic!("{id:?}") };
        mmc.ext_csd = None;
    };
    assert_eq!(offered(forget), "");
}

/// The argument of CMD38 that a discard, or something else, of this card comes to.
fn erase<C: Medium + 'static>(card: Faulty<C>, op: Op, tweak: impl FnOnce(&mut Identified)) -> Vec<u32> {
    let mut b = Bench::odd(Backend::Mock, card, false, "none", tweak).unwrap();
    assert_eq!(b.one(req(op, 64, 64, Flags::empty(), 1), 0).result, Ok(()));
    b.disk.host().erases.clone()
}

#[test]
fn a_discard_is_the_kindest_erase_that_the_card_has() {
    let avoid = |avoid| move |id: &mut Identified| id.avoid = avoid;
    let mmc = |op, tweak: &dyn Fn(&mut Identified)| erase(emmc_card(""), op, tweak);
    assert_eq!(mmc(Op::Discard, &avoid(Avoid::empty())), [3]);
    assert_eq!(mmc(Op::Discard, &avoid(Avoid::TRIM)), [3]);
    assert_eq!(mmc(Op::Discard, &avoid(Avoid::DISCARD)), [1], "by a trim");
    assert_eq!(mmc(Op::Discard, &|id| with_register(id, &[(EXT_CSD_REV, 5)])), [1]);
    assert_eq!(mmc(Op::WriteZeroes, &avoid(Avoid::empty())), [1], "a discard promises no zeroes");
    let sd = |discards: u8, avoid| {
        erase(sd_card(""), Op::Discard, |id| {
            id.avoid = avoid;
            let Registers::Sd(SdPart { ssr: Some(ssr), .. }) = &mut id.registers else { panic!("{id:?}") };
            *ssr = SsrInfo { discard_support: discards, ..ssr.info() }.emit();
        })
    };
    assert_eq!(sd(1, Avoid::empty()), [1]);
    assert_eq!(sd(1, Avoid::all() - Avoid::ERASE - Avoid::DISCARD), [1]);
    assert_eq!(sd(1, Avoid::DISCARD), [0], "by an erase");
    assert_eq!(sd(0, Avoid::empty()), [0]);
}

#[test]
fn without_the_table_a_card_dies_or_is_given_up_too_early() {
    let forget = |id: &mut mmc_proto::machine::Identified| id.avoid = Avoid::empty();
    let card = of_the_zoo("samsung-movinand");
    let mut b = Bench::odd(Backend::Mock, card, false, "none", forget).unwrap();
    write(&mut b, 100, 1, 7);
    assert!(b.wipe(Wipe::SecureTrim, 0, 8).result.is_err(), "it is silent");
    assert_eq!(b.disk.core().stopped(), Some(Stopped::NoMedia), "for ever");
    // Its registers promise 0.9 s and it takes two.
    for (table, well) in [(true, true), (false, false)] {
        let card = of_the_zoo("kingston-secure-2s");
        let tweak = |id: &mut mmc_proto::machine::Identified| {
            if !table {
                id.avoid = Avoid::empty();
            }
        };
        let mut b = Bench::odd(Backend::Mock, card, false, "none", tweak).unwrap();
        let unit = b.disk.core().features().unit;
        let (lba, began) = (u64::from(unit), b.clock.now());
        write(&mut b, lba, 1, 7);
        let done = b.wipe(Wipe::SecureErase, lba, unit);
        let straight = done.result.is_ok() && b.disk.statistics().resets == 0;
        assert_eq!(straight, well, "{done:?} {}", b.clock.now().since(began));
    }
}

#[test]
fn a_wipe_keeps_its_place_and_a_sanitize_comes_behind_every_discard() {
    for backend in BACKENDS {
        let mut b = emmc(backend, "");
        write(&mut b, 100, 4, 5);
        // All at once: before, wipe, behind; and a read of other sectors that nothing holds back.
        let before = b.submit(req(Op::Write, 100, 4, Flags::empty(), 1), 6).unwrap();
        let wipe = b.ask(Wipe::SecureTrim, 101, 2).unwrap();
        let behind = b.submit(req(Op::Write, 102, 1, Flags::empty(), 1), 9).unwrap();
        let read = b.submit(req(Op::Read, 100, 4, Flags::empty(), 2), 0).unwrap();
        b.run();
        for ticket in [before, wipe, behind] {
            assert_eq!(b.disk.take(ticket).unwrap().result, Ok(()));
        }
        let seen: Vec<u8> = b.disk.take(read).unwrap().buffer.unwrap().0.chunks(512).map(|s| s[0]).collect();
        assert_eq!(seen, [6, 0, 9, 6]);
        held(&b, 100, &[6, 0, 9, 6]);

        let discard = b.submit(range(5000, 64), 0).unwrap();
        let far = b.submit(req(Op::Write, 900_000, 8, Flags::empty(), 1), 3).unwrap();
        let sanitize = b.ask(Wipe::Sanitize, 0, 0).unwrap();
        let later = b.submit(req(Op::Read, 900_000, 8, Flags::empty(), 1), 0).unwrap();
        b.run();
        let [discard, far, sanitize, later] =
            [discard, far, sanitize, later].map(|t| b.disk.take(t).unwrap());
        let (begun, over) = (sanitize.stamps.started.unwrap(), sanitize.stamps.completed.unwrap());
        for done in [&discard, &far] {
            assert!(done.stamps.completed.unwrap() <= begun, "{done:?}");
        }
        assert!(later.stamps.started.unwrap() >= over);
        assert!(over.since(begun) >= Duration::from_millis(500), "the card took its time");
        assert_eq!(later.buffer.unwrap().0[0], 3);
    }
}

#[test]
fn a_long_wipe_goes_in_commands_of_whole_units_and_others_come_between() {
    let mut b = emmc(Backend::Mock, "");
    let most = b.disk.core().features().secure_erase.unwrap();
    assert_eq!((most % GROUP, most > GROUP), (0, true));
    // Three commands, the last of one group.
    let blocks = 2 * most + GROUP;
    write(&mut b, u64::from(blocks) - 1, 2, 7);
    let wipe = b.ask(Wipe::SecureErase, 0, blocks).unwrap();
    let done = {
        b.run();
        b.disk.take(wipe).unwrap()
    };
    assert_eq!((done.result, done.attempts, done.moved), (Ok(()), 3, blocks));
    held(&b, u64::from(blocks) - 1, &[0, 7]);
    // A request can be withdrawn as long as it was not begun.
    let first = b.ask(Wipe::SecureErase, 0, GROUP).unwrap();
    let second = b.ask(Wipe::SecureErase, 0, GROUP).unwrap();
    let now = b.clock.now();
    b.disk.abandon(second, now);
    b.run();
    assert_eq!(b.disk.take(first).unwrap().result, Ok(()));
    assert!(b.disk.take(second).is_none());
}

struct Virtual(Clock);
impl Idle for Virtual {
    fn now(&mut self) -> Instant {
        self.0.now()
    }
    fn wait(&mut self, until: Instant) {
        self.0.advance_to(until);
    }
}

#[test]
fn the_blocking_front_wipes_too() {
    let b = emmc(Backend::Dw, "");
    let mut d = Blocking::new(b.disk, Virtual(b.clock));
    d.write(10, Buf(vec![7; 1024])).unwrap();
    d.wipe(Wipe::SecureTrim, 11, 1).unwrap();
    let back = d.read(10, Buf(vec![9; 1024])).unwrap().0;
    assert_eq!((back[0], back[512]), (7, 0));
    d.wipe(Wipe::Sanitize, 0, 0).unwrap();
    d.write_zeroes(10, 1).unwrap();
    assert_eq!(d.read(10, Buf(vec![9; 512])).unwrap().0[0], 0);
    let before = d.disk().host().erases.len();
    d.discard(10, 1).unwrap();
    assert_eq!(d.disk().host().erases[before..], [3]);
    let refused = d.wipe(Wipe::SecureErase, 11, 1).unwrap_err();
    assert!(matches!(refused, mmc_block::Failure::Refused(Refusal::Unaligned { .. })), "{refused}");
}

#[test]
fn the_blocking_front_flushes_and_a_barrier_is_a_flush_where_there_are_none() {
    // What stores all: a flush, and the barrier of a card that has only flushes.
    for (card, flush, stored) in [
        (of_the_zoo("sandisk-2026"), true, true),
        (of_the_zoo("sandisk-2026"), false, false),
        (of_the_zoo("aaru-emmc51-62gb"), false, true),
    ] {
        let without = |id: &mut Identified| {
            if stored {
                with_register(id, &[(BARRIER_SUPPORT, 0)]);
            }
        };
        let b = Bench::odd(Backend::Mock, card, true, "none", without).unwrap();
        assert_eq!((b.disk.core().features().cache, b.disk.core().features().barrier), (true, !stored));
        let mut d = Blocking::new(b.disk, Virtual(b.clock));
        d.write(64, Buf(vec![5; 1024])).unwrap();
        if flush { d.flush() } else { d.barrier() }.unwrap();
        assert_eq!(d.disk().statistics().flushes, 1);
        assert_eq!(b.card.with(|c| c.card_mut().volatile()), if stored { 0 } else { 2 });
    }
}

const KINDS: [&str; 11] = [
    "lost",
    "no-answer",
    "command-crc",
    "response-crc",
    "busy 300ms",
    "busy forever",
    // An error of the erase sequence; the card's controller failed; it says no.
    "status 0x10002000",
    "status 0x00100000",
    "status 0x04000000",
    "power-loss none",
    "power-loss random",
];

/// A wipe of each kind between writes, and one again until it goes well; commands seen, and whether one had failed.
fn case(backend: Backend, text: &str) -> (u64, u64, bool) {
    let Some(mut b) = Bench::new(backend, emmc_card(text), false, "mq-deadline") else {
        return (0, 0, true);
    };
    let ready = b.card.with(|c| c.frames());
    let g = u64::from(GROUP);
    let mut failed = false;
    for (how, lba, blocks) in
        [(Wipe::SecureErase, g, GROUP), (Wipe::SecureTrim, 100, 8), (Wipe::Sanitize, 0, 0)]
    {
        // What is before and behind it.
        let edges = [lba.saturating_sub(1), lba + u64::from(blocks)];
        let mut again = 0;
        for edge in edges {
            while b.one(req(Op::Write, edge, 1, Flags::empty(), 1), 7).result.is_err() {
                (again, failed) = (again + 1, true);
                b.revive();
                assert!(again < 3, "{backend:?}, {text}");
            }
        }
        loop {
            let began = b.clock.now();
            let Ok(ticket) = b.ask(how, lba, blocks) else {
                b.revive();
                continue;
            };
            b.run();
            assert!(b.clock.now().since(began) < Duration::from_secs(600), "{backend:?}, {text}");
            let done = b.disk.take(ticket).expect("over");
            assert!(b.disk.take_done().is_none(), "{backend:?}, {text}: one too many");
            if done.result.is_ok() {
                break;
            }
            assert!(matches!(done.result, Err(BlockError::Erase(_) | BlockError::Stopped(_))), "{done:?}");
            (again, failed) = (again + 1, true);
            assert!(again < 3, "{backend:?}, {text}: {how:?} never succeeds");
            b.revive();
        }
        if how != Wipe::Sanitize {
            held(&b, lba, &[0, 0, 0]);
            held(&b, lba + u64::from(blocks) - 1, &[0]);
        }
        for edge in edges {
            assert_eq!(b.stored(edge), 7, "{backend:?}, {text}: {edge}");
        }
    }
    (ready, b.card.with(|c| c.frames()), failed)
}

#[test]
fn a_wipe_that_reports_success_has_emptied_all_whatever_fails_and_whenever_the_supply_goes() {
    let all = std::env::var("MMC_BLOCK_FAULTS").is_ok_and(|v| v == "all");
    let (mut cases, mut reported, mut turn) = (0, 0, 0);
    for backend in BACKENDS {
        let (ready, end, failed) = case(backend, "");
        assert!(!failed && end > ready + 10);
        for frame in ready..end {
            for kind in KINDS {
                turn += 1;
                if all || turn % 5 == 0 {
                    let (.., failed) = case(backend, &format!("at frame {frame}: {kind}"));
                    cases += 1;
                    reported += u32::from(failed);
                }
            }
        }
    }
    println!("{cases} faults at commands of wipes and around them, {reported} of them reported as errors");
    assert!(cases >= if all { 500 } else { 100 }, "{cases}");
}

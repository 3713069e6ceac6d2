//! The supply is lost at every command, and inside the programming of blocks, of a workload with flushes on a card with a
//! volatile cache: what a completed flush (or FUA) covered is there afterwards, no sector is torn, and the disk comes back.
//!
//! By default one cut of a few runs; `MMC_BLOCK_CUTS=all` runs all of them. Either prints how many there were.

mod stack;

use mmc_block::BlockError;
use mmc_mock::Clock;
use mmc_mock::card::{Card, MmcCard, MmcConfig};
use mmc_mock::fault::{Faulty, Medium};
use mmc_mock::spi::{Spi, SpiConfig};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_sched::{Flags, Op};
use mmc_time::{Duration, Instant};
use stack::{Backend, Bench, flush, req, script};
use std::collections::HashMap;

fn card(name: &str, profile: Profile) -> MmcCard {
    let config: MmcConfig = zoo::mmc(name, profile, 1).unwrap();
    MmcCard::new(config).unwrap()
}

/// What each sector may hold: what it held when it was covered last, and whatever was written since.
#[derive(Default)]
struct Model {
    may: HashMap<u64, Vec<u8>>,
    /// Written since the last flush: sector and byte, in order.
    since: Vec<(u64, u8)>,
}

impl Model {
    fn wrote(&mut self, lba: u64, blocks: u32, byte: u8) {
        for lba in lba..lba + u64::from(blocks) {
            self.may.entry(lba).or_insert_with(|| vec![0]).push(byte);
        }
    }
    fn completed(&mut self, lba: u64, blocks: u32, byte: u8) {
        self.since.extend((lba..lba + u64::from(blocks)).map(|lba| (lba, byte)));
    }
    fn covered(&mut self) {
        for (lba, byte) in self.since.drain(..) {
            self.may.insert(lba, vec![byte]);
        }
    }
    /// The cache was lost: nobody knows what is left of what was written since.
    fn lost(&mut self) {
        self.since.clear();
    }
}

/// Runs the workload and loses the supply as `text` says; how many frames the card saw, when it was ready, and how long it
/// took.
fn case(backend: Backend, profile: Profile, text: &str) -> (u64, u64, Instant, Duration) {
    let card = card("aaru-emmc51-62gb", profile);
    if backend == Backend::Spi {
        let spi = Spi::mmc(card, script(text), SpiConfig::default(), Clock::new()).unwrap();
        return run(Bench::spi(spi, true, "mq-deadline"), backend, text);
    }
    run(Bench::new(backend, Faulty::new(card, script(text)).unwrap(), true, "mq-deadline"), backend, text)
}

fn run<C: Medium + 'static>(
    bench: Option<Bench<C>>,
    backend: Backend,
    text: &str,
) -> (u64, u64, Instant, Duration) {
    let Some(mut b) = bench else { panic!("{backend:?}, {text}: not identified") };
    assert!(b.disk.core().features().cache, "{backend:?}");
    let (ready, begin) = (b.card.with(|c| c.frames()), b.clock.now());
    let mut model = Model::default();
    for round in 0..6_u8 {
        let mut waiting = vec![];
        for i in 0..6_u8 {
            let byte = round * 8 + i + 1;
            let lba = 1000 + u64::from(byte) * 29 % 60 * 16;
            let blocks = [1, 8, 16, 4, 12, 2][usize::from(i)];
            let flags = if i == 5 { Flags::FUA } else { Flags::empty() };
            let ticket = b.submit(req(Op::Write, lba, blocks, flags, 1), byte).expect("accepted");
            model.wrote(lba, blocks, byte);
            waiting.push((ticket, lba, blocks, byte, i == 5));
        }
        b.run();
        for (ticket, lba, blocks, byte, fua) in waiting {
            let done = b.disk.take(ticket).expect("over");
            match done.result {
                Ok(()) if fua => {
                    for lba in lba..lba + u64::from(blocks) {
                        model.may.insert(lba, vec![byte]);
                    }
                }
                Ok(()) => model.completed(lba, blocks, byte),
                // The flush of a FUA write is the first to learn that the cache was lost.
                Err(BlockError::CacheLost) if fua => model.lost(),
                Err(e) => panic!("{backend:?}, {text}: {e}"),
            }
        }
        let ticket = b.submit(flush(), 0).expect("accepted");
        b.run();
        match b.disk.take(ticket).expect("over").result {
            Ok(()) => model.covered(),
            Err(BlockError::CacheLost) => model.lost(),
            Err(e) => panic!("{backend:?}, {text}: {e}"),
        }
    }
    let (frames, took) = (b.card.with(|c| c.frames()), b.clock.now().since(begin));
    // One more cut, after the last flush: nothing may go.
    let now = b.clock.now();
    b.card.with(|c| {
        c.power(false, now);
        c.power(true, now);
    });
    for (lba, may) in &model.may {
        let held = b.stored(*lba);
        assert!(may.contains(&held), "{backend:?}, {text}: {lba} holds {held}, not one of {may:?}");
    }
    // The disk comes back.
    let write = b.one(req(Op::Write, 5, 4, Flags::FUA, 1), 0x99);
    assert!(matches!(write.result, Ok(()) | Err(BlockError::CacheLost)), "{:?}", write.result);
    let read = b.one(req(Op::Read, 5, 4, Flags::empty(), 1), 0);
    assert_eq!(read.result, Ok(()), "{backend:?}, {text}");
    assert!(read.buffer.unwrap().0.iter().all(|x| *x == 0x99));
    (ready, frames, begin, took)
}

#[test]
fn what_a_flush_covered_survives_every_loss_of_power() {
    let all = std::env::var("MMC_BLOCK_CUTS").is_ok_and(|v| v == "all");
    let (mut total, mut turn) = (0, 0);
    let mut take = |n: u32| {
        turn += 1;
        all || turn % n == 0
    };
    for backend in [Backend::Mock, Backend::Dw, Backend::Sdhci, Backend::Spi] {
        let (mut cuts, began) = (0, std::time::Instant::now());
        let (ready, frames, ..) = case(backend, Profile::ideal(), "");
        for frame in ready..frames {
            for (k, keep) in ["all", "none", "random", "random", "keep 0 2 1"].into_iter().enumerate() {
                if take(13) {
                    case(
                        backend,
                        Profile::ideal(),
                        &format!("seed {k}\nat frame {frame}: power-loss {keep}"),
                    );
                    cuts += 1;
                }
            }
        }
        // Inside the programming: at instants all over the run, on a card that takes its time.
        let (_, _, start, took) = case(backend, Profile::slow2018(), "");
        for k in 0..200 {
            let at = start.since(Instant::ZERO) + Duration::from_nanos(took.as_nanos() / 200 * k);
            if take(7) {
                let text = format!("seed {k}\nat {}us: power-loss random", at.as_nanos() / 1000);
                case(backend, Profile::slow2018(), &text);
                cuts += 1;
            }
        }
        println!("{backend:?}: {cuts} cuts; {:.1} s", began.elapsed().as_secs_f64());
        total += cuts;
    }
    println!("{total} cuts");
    assert!(total >= if all { 2000 } else { 150 }, "{total}");
}

/// A barrier stores nothing, but of what is written behind it nothing survives unless all before it does.
#[test]
fn a_barrier_keeps_the_order_of_what_survives() {
    let (mut both, mut first, mut none, mut took) = (0, 0, 0, Duration::ZERO);
    for seed in 0..60 {
        for backend in stack::BACKENDS {
            let faulty = Faulty::new(card("sandisk-2026", Profile::ideal()), script("")).unwrap();
            let mut b = Bench::new(backend, faulty, true, "mq-deadline").unwrap();
            assert!(b.disk.core().features().barrier);
            let at = |k: u64| 1000 + (k * 37 + seed) % 64 * 8;
            for k in 0..4 {
                assert_eq!(b.one(req(Op::Write, at(k), 4, Flags::empty(), 1), 1).result, Ok(()));
            }
            let began = b.clock.now();
            assert_eq!(b.one(req(Op::Write, 0, 0, Flags::BARRIER, 1), 0).result, Ok(()));
            took = took.max(b.clock.now().since(began));
            for k in 4..8 {
                assert_eq!(b.one(req(Op::Write, at(k), 4, Flags::empty(), 1), 1).result, Ok(()));
            }
            assert_eq!(b.disk.statistics().flushes, 1, "no flush but the barrier");
            let now = b.clock.now();
            b.card.with(|c| {
                // Any of what is in the cache may be stored by now.
                let stored = |i: &usize| {
                    *i < seed as usize % 33 || seed % 4 != 0 && (seed as usize * 31 + i * 17) % 3 == 0
                };
                c.card_mut().lose(&(0..32).filter(stored).collect::<Vec<_>>());
                c.power(false, now);
                c.power(true, now);
            });
            let survived = |range: std::ops::Range<u64>| {
                range.flat_map(|k| at(k)..at(k) + 4).map(|lba| b.stored(lba) == 1).collect::<Vec<_>>()
            };
            let (before, behind) = (survived(0..4), survived(4..8));
            let all = before.iter().all(|s| *s);
            if behind.iter().any(|s| *s) {
                assert!(all, "{backend:?}, {seed}: {before:?} {behind:?}");
                both += 1;
            } else if all {
                first += 1;
            } else {
                none += 1;
            }
        }
    }
    assert!(both > 10 && first > 0 && none > 10, "{both} {first} {none}");
    println!(
        "{both} with something from behind, {first} up to the barrier, {none} less; a barrier took {took}"
    );
}

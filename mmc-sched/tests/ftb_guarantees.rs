//! F1 to F8 and F10 of `ftb` (`docs/ftb.md`), held against every step of simulated runs.
#![cfg(feature = "ftb")]

mod ftb_support;
mod support;

use ftb_support::{Actor, Card, Sim};
use mmc_sched::{Ftb, Policy, Scheduler};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn report(what: &str, s: &Sim) {
    let (seen, stats) = (&s.seen, s.ftb().stats());
    println!(
        "{what}: {} checks, F2 F3 F4 at most {:?}/1000, {:.2} MB/s",
        seen.checks,
        seen.worst,
        s.megabytes()
    );
    println!("  {stats:?}");
    for a in s.actors.iter().filter(|a| !a.waits.is_empty()) {
        let (p50, p99, max) = (a.wait(50), a.wait(99), a.wait(100));
        println!("  {} {:?}: {} done, p50 {p50} p99 {p99} max {max}", a.stream, a.op, a.done);
    }
}

fn mixed() -> Vec<Actor> {
    vec![
        Actor::flusher(1, 1024, 60),
        Actor::reader(2, 8, 1, 200).random(),
        Actor::reader(3, 256, 1, 1000),
        Actor::writer(4, 32, 4, 5000).grouped(),
    ]
}

#[test]
fn a_mixed_load_keeps_f1_to_f7_on_three_cards() {
    for (name, card) in [("base", Card::BASE), ("class4", Card::CLASS4), ("a2", Card::A2)] {
        for slots in [1, 2] {
            let mut s = Sim::new("ftb", Card { slots, ..card }, mixed(), 7);
            s.run_until(Instant::from_secs(12));
            report(name, &s);
            assert!(s.seen.checks > 5000 && s.seen.tag_waits == 0);
        }
    }
}

fn actor() -> impl Strategy<Value = Actor> {
    let sizes = prop::sample::select(vec![8u32, 16, 64, 256, 1024, 2048]);
    let thinks = prop::sample::select(vec![0u64, 100, 1000, 5000, 30_000]);
    (0u8..9, sizes, 1usize..12, thinks, 1u32..1001, any::<bool>()).prop_map(
        |(kind, blocks, depth, think, weight, plain)| {
            let a = match kind {
                0..=2 => Actor::flusher(0, blocks, 10 + depth * 4),
                3 => Actor::reader(0, blocks, depth, think),
                4 => Actor::reader(0, blocks, depth, think).random(),
                5 => Actor::writer(0, blocks, depth, think),
                6 => Actor::writer(0, blocks, depth, think).grouped(),
                7 => Actor::reader(0, 8, 1, 0).random().every(20 + think / 100),
                _ => Actor::writer(0, blocks, 8 + depth, 0),
            };
            if plain { a } else { a.weighing(weight) }
        },
    )
}

fn card() -> impl Strategy<Value = Card> {
    let cards = prop::sample::select(vec![Card::BASE, Card::CLASS4, Card::A2]);
    let slots = prop::sample::select(vec![1usize, 2, 2, 2, 8, 32]);
    (cards, slots, 0u64..40, any::<bool>()).prop_map(|(card, slots, noise, calm)| {
        let card = if calm { card.calm() } else { card };
        Card { slots, noise, ..card }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: support::cases(32), ..ProptestConfig::default() })]

    /// Any streams, any weights, any of the cards with up to 40 % noise.
    #[test]
    fn any_load_keeps_f1_to_f7(mut actors in prop::collection::vec(actor(), 1..8), card in card(), seed in 1u64.., slots: bool) {
        for (i, a) in actors.iter_mut().enumerate() {
            *a = a.clone().named(i as u32 + 1);
        }
        let mut s = Sim::new("ftb", card, actors, seed);
        if !slots {
            s = s.without_slots();
        }
        s.run_until(Instant::from_secs(5));
        prop_assert_eq!(s.seen.tag_waits, 0);
    }

    /// F10: whatever its pauses, a stream gets no more for its weight than one that never pauses.
    #[test]
    fn pausing_gains_nothing(after in 1u64..40, pause in 1u64..400, seed in 1u64.., sync: bool, card in card()) {
        let sleeper = |stream| if sync { Actor::reader(stream, 64, 8, 0).random() } else { Actor::flusher(stream, 1024, 24) };
        let mut actors = vec![sleeper(1), sleeper(2)];
        actors[0].pause = Some((after, MS(pause)));
        let mut s = Sim::new("ftb", Card { slots: card.slots.min(2), ..card }, actors, seed).without_slots();
        s.run_until(Instant::from_secs(5));
        let (got, steady) = (s.charged(0), s.charged(1));
        // F2 without a slot: it may lead by what is on the way, once, not once a pause.
        let limit = s.seen.longest.saturating_mul(12);
        prop_assert!(got <= steady + limit, "{} against {}, {}", got, steady, limit);
    }

    /// A stream whose weight jumps between 1000 and 10 cannot harm others beyond what its larger weight allows, and
    /// is not punished for what it got when it weighed more.
    #[test]
    fn flipping_weights_keeps_f3_and_f4(period in 5u64..400, seed in 1u64.., card in card()) {
        let mut s = Sim::new("ftb", card, mixed(), seed).without_slots();
        for n in 0..(8000 / period) {
            s.run_until(Instant::from_millis(n * period));
            s.set_weight(2, [1000, 10][(n % 2) as usize]);
            s.set_weight(4, [10, 1000][(n % 2) as usize]);
        }
    }

    /// Tunables change at any moment: what does not depend on them stays.
    #[test]
    fn turning_the_knobs_breaks_nothing(turns in prop::collection::vec((0usize..11, 0u64..2000), 1..40), seed in 1u64..) {
        let mut s = Sim::new("ftb", Card::BASE, mixed(), seed);
        s.check = false;
        let mut now = Instant::ZERO;
        for (which, value) in turns {
            let t = s.queue.tunable(which).unwrap();
            let value = t.min + (value as i64) % (t.max.min(t.min + 2000) - t.min + 1);
            s.queue.tune(t.name, &value.to_string()).unwrap();
            now += MS(40);
            s.run_until(now);
        }
        let fresh: Ftb = Ftb::new();
        for t in (0..).map_while(|i| fresh.tunable(i)) {
            s.queue.tune(t.name, &t.value.to_string()).unwrap();
        }
        let done: Vec<u64> = s.actors.iter().map(|a| a.done).collect();
        s.run_until(now + Duration::from_secs(6));
        for (a, before) in s.actors.iter().zip(done) {
            prop_assert!(a.done > before, "{} stands still", a.stream);
        }
    }
}

/// F7: many streams that read one block at a time, beside one that keeps 1024 reads waiting and a writer that floods.
#[test]
fn who_holds_no_tag_gets_one() {
    let mut actors = vec![Actor::flusher(1, 1024, 400), Actor::reader(2, 8, 1024, 0).random()];
    actors.extend((3..19).map(|i| Actor::reader(i, 8, 1, 3000).random()));
    // Eight tags are kept for newcomers, so half of them come later.
    for a in &mut actors[10..] {
        a.start = Instant::from_secs(1);
    }
    let mut s = Sim::new("ftb", Card::BASE, actors, 3);
    s.run_until(Instant::from_secs(10));
    report("flood", &s);
    assert_eq!(s.seen.tag_waits, 0);
    assert!(s.actors[1].done > 300 && s.actors[0].done > 10);
}

/// F1, seen from outside: with nothing to save by it (no changes of place), the device stands free with work waiting
/// for a 64th of the time, 8 ms and one hold at most.
#[test]
fn idling_is_paid_from_the_bank() {
    let mut s = Sim::new("ftb", Card::BASE.calm(), mixed(), 5);
    s.run_until(Instant::from_secs(20));
    report("calm", &s);
    let limit = MS(20_000 / 64 + 8) + s.ftb().stats().longest_hold;
    assert!(s.seen.idle_with_work > MS(50) && s.seen.idle_with_work <= limit, "{}", s.seen.idle_with_work);
    let mut none = Sim::new("ftb", Card::BASE.calm(), mixed(), 5).tune("idle_cap", "0");
    none.run_until(Instant::from_secs(20));
    assert_eq!(none.seen.idle_with_work, Duration::ZERO);
}

/// F8.
#[test]
#[cfg(target_pointer_width = "64")]
fn memory_is_fixed() {
    let size = |n: usize, d: usize| n * 176 + d * 96 + 512;
    assert!(size_of::<Ftb<64, 32>>() <= size(64, 32), "{}", size_of::<Ftb<64, 32>>());
    assert!(size_of::<Ftb<8, 2>>() <= size(8, 2), "{}", size_of::<Ftb<8, 2>>());
    let stream = (size_of::<Ftb<64, 2>>() - size_of::<Ftb<32, 2>>()) / 32;
    let command = (size_of::<Ftb<8, 32>>() - size_of::<Ftb<8, 16>>()) / 16;
    println!("{stream} bytes a stream, {command} a command");
    assert!(stream <= 176 && command <= 96, "{stream} {command}");
}

/// Shares of the device's time are as the weights, whatever the sizes.
#[test]
fn time_is_shared_by_weight() {
    let actors = vec![
        Actor::reader(1, 8, 8, 0).random().weighing(100),
        Actor::reader(2, 256, 8, 0).weighing(200),
        Actor::flusher(3, 1024, 20).weighing(300),
        Actor::writer(4, 64, 8, 0).weighing(400),
    ];
    let mut s = Sim::new("ftb", Card::BASE.calm(), actors, 11);
    s.run_until(Instant::from_secs(30));
    report("shares", &s);
    for i in 0..4 {
        let share = s.charged(i).as_nanos() as f64 / s.now.as_nanos() as f64;
        let fair = (i + 1) as f64 / 10.0;
        assert!((share / fair - 1.0).abs() < 0.03, "{i}: {share} of {fair}");
    }
}

/// The ablation that fails most: three readers that come back at once would leave writeback nothing.
#[test]
fn readers_that_never_think_leave_writeback_its_quarter() {
    let mut actors = vec![Actor::flusher(1, 1024, 60)];
    actors.extend((2..5).map(|i| Actor::reader(i, 8, 1, 0).random()));
    let mut s = Sim::new("ftb", Card::BASE, actors, 1);
    s.run_until(Instant::from_secs(12));
    report("a_zero", &s);
    let share = s.charged(0).as_nanos() as f64 / s.now.as_nanos() as f64;
    assert!(share > 0.2, "{share}");
}

/// Six streams of ever overdue reads and a flooding writer on a fast device with 32 slots.
#[test]
fn a_deep_queue_of_overdue_reads_keeps_them_too() {
    let card = Card {
        read: (90_000, 2_000),
        seek: 50_000,
        write: (150_000, 6_000),
        switch: 1_000_000,
        open: 16,
        gc_every: 64 * 2048,
        gc: (20, 80),
        noise: 0,
        slots: 32,
    };
    let mut actors = vec![Actor::flusher(1, 1024, 400)];
    for i in 0..6 {
        let start = Instant::from_millis(u64::from(i) * 750);
        let mut a = Actor::reader(i + 2, 64 * (i + 1), 16, 0).random();
        a.start = start;
        actors.push(a);
    }
    let mut s = Sim::new("ftb", card, actors, 3);
    s.run_until(Instant::from_secs(12));
    report("a_expired", &s);
    assert!(s.actors[0].done > 250 && s.seen.tag_waits == 0);
}

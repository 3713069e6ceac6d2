//! The stall of 2018 on the study's slowest card: writeback that is never empty, a small read now and then, a small
//! journal write now and then. `ftb` against `mq-deadline` and `bfq` in one run.
#![cfg(all(feature = "ftb", feature = "bfq", feature = "mq-deadline"))]

mod ftb_support;

use ftb_support::{Actor, Card, Sim};
use mmc_time::{Duration, Instant};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn run(policy: &str, card: Card, actors: &[Actor]) -> Sim {
    let mut s = Sim::new(policy, card, actors.to_vec(), 3);
    s.run_until(Instant::from_secs(60));
    let read = &s.actors[1];
    let sync = &s.actors[2];
    println!(
        "{policy:12} reads {} p50 {} p99 {} max {}; sync writes {} p50 {} max {}; {:.2} MB/s",
        read.done,
        read.wait(50),
        read.wait(99),
        read.wait(100),
        sync.done,
        sync.wait(50),
        sync.wait(100),
        s.megabytes()
    );
    s
}

#[test]
fn the_case_of_2018_waits_less_than_under_both_at_the_same_throughput() {
    let actors = [
        Actor::flusher(1, 2048, 60),
        Actor::reader(2, 8, 1, 0).random().every(200),
        Actor::writer(3, 16, 1, 0).every(5000),
    ];
    for (name, card) in [("class4", Card::CLASS4), ("base", Card::BASE)] {
        println!("{name}");
        let mq = run("mq-deadline", card, &actors);
        let bfq = run("bfq", card, &actors);
        let ftb = run("ftb", card, &actors);
        for other in [&mq, &bfq] {
            for a in 1..3 {
                assert!(ftb.actors[a].wait(100) < other.actors[a].wait(100), "{name}");
                assert!(ftb.actors[a].wait(50) < other.actors[a].wait(50), "{name}");
            }
            assert!(ftb.megabytes() >= 0.96 * other.megabytes(), "{name}");
        }
        assert!(ftb.actors[1].wait(50) < MS(60), "{name}: half a megabyte in front");
        assert!(ftb.ftb().stats().parts > 100 || name == "base");
    }
}

/// Nobody but the flusher: nothing is divided, nothing waits, the throughput is that of a plain queue.
#[test]
fn writeback_alone_is_not_slowed_down() {
    let actors = [Actor::flusher(1, 1024, 60), Actor::flusher(2, 1024, 60), Actor::flusher(3, 64, 20)];
    for card in [Card::BASE, Card::CLASS4, Card::A2] {
        let go = |policy: &str| {
            let mut s = Sim::new(policy, card, actors.to_vec(), 3);
            s.run_until(Instant::from_secs(20));
            s.megabytes()
        };
        let (mq, ftb) = (go("mq-deadline"), go("ftb"));
        println!("mq-deadline {mq:.2} ftb {ftb:.2} MB/s");
        assert!(ftb > 0.9 * mq);
    }
}

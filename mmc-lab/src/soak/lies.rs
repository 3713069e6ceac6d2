//! Cards and disks that are not to be believed: each check says so.

use super::bench::{hsdk, mmc_cards};
use super::{Plan, Report, Soak};
use mmc_block::{BlockError, Done};
use mmc_mock::Buf;
use mmc_mock::card::{Answer, Card, MmcCard, Sent, Token};
use mmc_mock::fault::Medium;
use mmc_mock::storage::Storage;
use mmc_proto::bus::{Signal, Timing};
use mmc_time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    No,
    /// A flush succeeds and stores nothing.
    Flush,
    /// A barrier succeeds and orders nothing.
    Barrier,
    /// A wipe reaches the first sector only.
    Wipe,
    /// The RPMB counts a write when it gets its supply.
    Count,
}

struct Liar {
    card: MmcCard,
    lie: Lie,
    /// Where the last erase begins.
    from: u32,
}

impl Card for Liar {
    fn power(&mut self, on: bool, now: Instant) {
        *self.card.rpmb_counter_mut() += u32::from(on && self.lie == Lie::Count);
        self.card.power(on, now);
    }
    fn bus(&mut self, hz: u32, lines: u8, now: Instant) {
        self.card.bus(hz, lines, now);
    }
    fn signal(&mut self, signal: Signal, timing: Timing, now: Instant) {
        self.card.signal(signal, timing, now);
    }
    fn samples_right(&self, phase: u16, now: Instant) -> bool {
        self.card.samples_right(phase, now)
    }
    fn idle_clocks(&mut self, n: u32) {
        self.card.idle_clocks(n);
    }
    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        // SWITCH writes a byte of the EXT_CSD: FLUSH_CACHE is 32, BARRIER_EN is 31 and on already.
        let arg = match (self.lie, index, arg & 0xffff_ff00) {
            (Lie::Flush, 6, 0x0320_0100) | (Lie::Barrier, 6, 0x0320_0200) => 0x031f_0100,
            (Lie::Wipe, 36, _) => self.from,
            _ => arg,
        };
        if index == 35 {
            self.from = arg;
        }
        self.card.command(index, arg, now)
    }
    fn ready(&self, k: u32) -> Instant {
        self.card.ready(k)
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        self.card.send(block, now)
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        self.card.send_many(blocks, now)
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        self.card.take(block, crc_ok, now)
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        self.card.take_many(blocks, now)
    }
    fn busy_until(&self, now: Instant) -> Instant {
        self.card.busy_until(now)
    }
    fn violations(&self) -> Vec<String> {
        self.card.violations()
    }
}

impl Medium for Liar {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        self.card.with_storage(f);
    }
    fn expect_loss(&mut self, on: bool) {
        self.card.expect_loss(on);
    }
    fn settle(&mut self, keep: usize) {
        self.card.settle(keep);
    }
    fn volatile(&mut self) -> usize {
        self.card.volatile()
    }
    fn tells_status(&self, app: bool, index: u8) -> bool {
        self.card.tells_status(app, index)
    }
    fn lose(&mut self, survivors: &[usize]) {
        self.card.lose(survivors);
    }
}

/// A run over cards that lie, with a disk that may lie as well.
fn soak(lie: Lie, disk: fn(&mut Done<Buf>)) -> Result<Report, String> {
    let plan = Plan {
        requests: 6_000,
        faults: 0,
        cuts: 200,
        swaps: 2,
        days: 3,
        seed: 1,
        sched: "mq-deadline".into(),
        card: "soak-emmc".into(),
    };
    let cards = mmc_cards(&plan.card, plan.seed).unwrap();
    let cards = cards.into_iter().map(|card| Liar { card, lie, from: 0 }).collect();
    let mut soak = Soak::new(&plan, hsdk(), cards).unwrap();
    soak.lie = disk;
    soak.run(&mut |_| {}).map_err(|failed| failed.what)
}

fn honest(_: &mut Done<Buf>) {}

fn hides_the_loss(done: &mut Done<Buf>) {
    if done.result == Err(BlockError::CacheLost) {
        done.result = Ok(());
    }
}

#[test]
fn an_honest_card_and_disk_pass() {
    let report = soak(Lie::No, honest).unwrap();
    assert!(report.flushes.1 > 0 && report.looks > 200, "{report:?}");
    assert!(report.barriers > 5 && report.wipes > 0 && report.conversations > 0, "{report:?}");
}

#[test]
fn each_lie_ends_the_run() {
    for (lie, disk, told) in [
        (Lie::Flush, honest as fn(&mut Done<Buf>), "holds"),
        (Lie::No, hides_the_loss, "sector "),
        (Lie::Barrier, honest, "kept what came behind a barrier"),
        (Lie::Wipe, honest, "not 0000000000000000"),
        (Lie::Count, honest, "the RPMB counts"),
    ] {
        let what = soak(lie, disk).map(|report| format!("{report:?}")).expect_err("it passed");
        assert!(what.contains(told), "{lie:?}: {what}");
    }
}

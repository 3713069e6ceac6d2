//! A second, smaller timing model: what a card costs a scheduler, and nothing else.
//!
//! It is not a card: there are no commands, no registers and no data, only ranges of sectors that take time. A
//! comparison of schedulers needs its efficiency accounted to the nanosecond: useful time apart from allocation
//! unit switches, seeks, the price of divided requests and host gaps. [`crate::timing`] is the model under a real
//! card; this one does what the `_about` line of a scenario file says (`spec/scenarios.json`).
//!
//! *Time of a command:* host gap, if a unit was free when it came, so that nothing hid it; then on its unit an
//! allocation unit switch (writes, for each unit touched that is not among the last `open_aus`) and the setup; then
//! on the one bus the transfer, what a write does not find room for in the cache, and a garbage collection stall at
//! the end of the write that crosses each `gc_every` sectors. Commands start and end in the order they came. With
//! one unit (all SD cards) that is one command after another. A gap beside a command that runs is no loss of the
//! card's and not accounted for (both follow from the recorded results for `cqe`).
//!
//! *Cache:* what is dirty drains while the card is idle, switches allocation units or collects garbage. A write
//! that does not fit pays the drain of the rest. (That times of plain commands drain nothing follows from the
//! recorded results for `emmc`, which this reproduces to the microsecond.)

use crate::mersenne::Mersenne;
use std::collections::VecDeque;

/// A card in numbers. Times in nanoseconds, sizes in sectors of 512 bytes; see [`Card::check`] for the ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Before a read that begins where the last command ended, which was a read.
    pub read_setup_seq: u64,
    /// Before any other read.
    pub read_setup_rand: u64,
    /// Of a read, per KiB.
    pub read_per_kib: u64,
    /// Before a write.
    pub write_setup: u64,
    /// Of a write, per KiB.
    pub write_per_kib: u64,
    /// Opening an allocation unit.
    pub au_switch: u64,
    /// How many stay open, least recently written closed first.
    pub open_aus: usize,
    /// Size of one.
    pub au_sectors: u64,
    /// Written sectors between two garbage collections.
    pub gc_every: u64,
    /// Shortest and longest stall of one, uniform between.
    pub gc_stall: (u64, u64),
    /// Commands the card takes, the running ones included.
    pub slots: usize,
    /// Before a command that was not there yet when a unit became free.
    pub host_gap: u64,
    /// Commands that run at the same time; their transfers take turns.
    pub units: usize,
    /// Write cache, 0 without.
    pub cache_sectors: u64,
    /// Emptying it, per KiB.
    pub cache_drain_per_kib: u64,
}

impl Card {
    /// Whether a device can be made of it, in terms of the field that is wrong: every command takes at least a
    /// microsecond, counts are 1 to 1024, sizes at least 1, no time is above 100 s.
    ///
    /// # Errors
    /// The field's name and what is accepted.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        const LONG: u64 = 100_000_000_000;
        let setup = 1_000..=LONG;
        let short = "1000 to 100000000000 ns";
        let any = "0 to 100000000000 ns";
        for (field, ok, accepted) in [
            ("read_setup_seq_ns", setup.contains(&self.read_setup_seq), short),
            ("read_setup_rand_ns", setup.contains(&self.read_setup_rand), short),
            ("write_setup_ns", setup.contains(&self.write_setup), short),
            ("read_ns_per_kib", self.read_per_kib <= LONG, any),
            ("write_ns_per_kib", self.write_per_kib <= LONG, any),
            ("au_switch_ns", self.au_switch <= LONG, any),
            ("host_gap_ns_if_not_prepared", self.host_gap <= LONG, any),
            ("cache_drain_ns_per_kib", self.cache_drain_per_kib <= LONG, any),
            ("cache_sectors", self.cache_sectors <= 1 << 32, "0 to 4294967296 sectors"),
            ("open_aus_lru", (1..=1024).contains(&self.open_aus), "1 to 1024"),
            ("au_sectors", (1..=1 << 32).contains(&self.au_sectors), "1 to 4294967296 sectors"),
            ("gc_every_mib_written", (1..=1 << 40).contains(&self.gc_every), "1 to 536870912 MiB"),
            (
                "gc_stall_ms_uniform",
                self.gc_stall.0 <= self.gc_stall.1 && self.gc_stall.1 <= LONG,
                "two numbers of ms, the smaller first, up to 100000",
            ),
            ("device_slots", (1..=1024).contains(&self.slots), "1 to 1024"),
            ("parallel_units", (1..=1024).contains(&self.units), "1 to 1024"),
        ] {
            if !ok {
                return Err((field, accepted));
            }
        }
        Ok(())
    }
}

/// A range to read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The caller's name for it.
    pub token: u64,
    /// A read, else a write.
    pub read: bool,
    /// First sector.
    pub lba: u64,
    /// Sectors.
    pub blocks: u32,
    /// The second or a later part of a divided request: its setup would not have been needed.
    pub later_part: bool,
    /// It begins where its stream's last request ended: as a read it would not have needed to seek.
    pub continues: bool,
}

/// Where the time of a command went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Setup and transfer.
    pub productive: u64,
    /// Opening allocation units.
    pub au_switch: u64,
    /// Setup of a later part.
    pub split: u64,
    /// Seeking in a read that continues its stream.
    pub seek: u64,
    /// Waiting for the host while nothing ran.
    pub gap: u64,
    /// Garbage collection.
    pub stall: u64,
}

impl Cost {
    /// What it kept the card, stalls not counted.
    #[must_use]
    pub fn service(&self) -> u64 {
        self.productive + self.au_switch + self.split + self.seek
    }
}

/// A command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As it came.
    pub command: Command,
    /// What it cost.
    pub cost: Cost,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    command: Command,
    cost: Cost,
    end: u64,
}

/// The card at work. Time is an argument in nanoseconds and does not go back.
///
/// ```
/// use mmc_mock::scenario::{Card, Command, Device};
/// # let card = Card { read_setup_seq: 200_000, read_setup_rand: 500_000, read_per_kib: 25_000, write_setup: 900_000,
/// #   write_per_kib: 65_000, au_switch: 12_000_000, open_aus: 3, au_sectors: 8192, gc_every: 32_768,
/// #   gc_stall: (0, 0), slots: 2, host_gap: 100_000, units: 1, cache_sectors: 0, cache_drain_per_kib: 0 };
/// let mut device = Device::new(card, 1);
/// let read = Command { token: 7, read: true, lba: 64, blocks: 8, later_part: false, continues: false };
/// device.send(read, 0);
/// assert_eq!(device.next_end(), Some(700_000)); // gap, seek, 4 KiB
/// assert_eq!(device.finish(700_000).unwrap().command.token, 7);
/// assert!(device.is_idle());
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    card: Card,
    /// With the host gap of each, and how much of that nothing ran.
    waiting: VecDeque<(Command, u64, u64)>,
    running: VecDeque<Running>,
    bus_free: u64,
    /// Where a read need not seek: the end of the last command, if that was a read.
    read_pos: Option<u64>,
    open: Vec<u64>,
    written: u64,
    /// Nanoseconds it would take to drain the cache, and the instant up to which it was drained.
    dirty: u64,
    drained_to: u64,
    stalls: Vec<Stall>,
    random: Mersenne,
}

/// A stall and the sum of all before it.
#[derive(Clone, Copy, Debug)]
struct Stall {
    from: u64,
    to: u64,
    before: u64,
}

impl Device {
    /// A card that has nothing open and nothing dirty; the seed is that of the garbage collection, drawn as Python's
    /// `random.Random(seed)` does.
    #[must_use]
    pub fn new(card: Card, seed: u64) -> Self {
        Self {
            card,
            waiting: VecDeque::new(),
            running: VecDeque::new(),
            bus_free: 0,
            read_pos: None,
            open: Vec::new(),
            written: 0,
            dirty: 0,
            drained_to: 0,
            stalls: Vec::new(),
            random: Mersenne::new(seed),
        }
    }

    /// The card.
    #[must_use]
    pub fn card(&self) -> &Card {
        &self.card
    }
    /// Whether no command is in it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
    /// Commands in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len() + self.waiting.len()
    }
    /// As [`is_idle`](Self::is_idle).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_idle()
    }

    /// Takes a command. How many are in it is the caller's business.
    pub fn send(&mut self, command: Command, now: u64) {
        let gap = if self.running.len() < self.card.units { self.card.host_gap } else { 0 };
        self.waiting.push_back((command, gap, if self.is_idle() { gap } else { 0 }));
        self.start(now);
    }

    /// When the next command ends.
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.running.front().map(|r| r.end)
    }

    /// Takes out the oldest command if it has ended by `now`; the next one starts at `now`.
    pub fn finish(&mut self, now: u64) -> Option<Ended> {
        if self.next_end()? > now {
            return None;
        }
        let r = self.running.pop_front()?;
        self.start(now);
        Some(Ended { command: r.command, cost: r.cost })
    }

    /// Makes the write that runs now stall for `ns` more at its end. Only on a card with one unit; false if there
    /// is no such write.
    pub fn stall_running_write(&mut self, ns: u64) -> bool {
        let Some(r) = self.running.front_mut().filter(|r| !r.command.read && self.card.units == 1) else {
            return false;
        };
        let from = r.end;
        r.end += ns;
        r.cost.stall += ns;
        self.bus_free = r.end;
        self.note_stall(from, ns);
        true
    }

    /// How long the card stalled between two instants up to now.
    #[must_use]
    pub fn stalled(&self, from: u64, to: u64) -> u64 {
        self.stalled_until(to).saturating_sub(self.stalled_until(from))
    }

    fn stalled_until(&self, t: u64) -> u64 {
        match self.stalls.partition_point(|s| s.from < t).checked_sub(1).and_then(|i| self.stalls.get(i)) {
            Some(s) => s.before + t.min(s.to) - s.from,
            None => 0,
        }
    }

    fn note_stall(&mut self, from: u64, ns: u64) {
        let before = self.stalls.last().map_or(0, |s| s.before + s.to - s.from);
        self.stalls.push(Stall { from, to: from + ns, before });
    }

    fn start(&mut self, now: u64) {
        while self.running.len() < self.card.units {
            let Some((command, gap, lost)) = self.waiting.pop_front() else { return };
            let mut cost = Cost { gap: lost, ..Cost::default() };
            let begin = now + gap;
            self.dirty = self.dirty.saturating_sub(begin.saturating_sub(self.drained_to));
            let (setup, transfer) =
                if command.read { self.read(&command, &mut cost) } else { self.write(&command, &mut cost) };
            let on_bus = (begin + cost.au_switch + setup).max(self.bus_free);
            let end = on_bus + transfer + cost.stall;
            if cost.stall > 0 {
                self.note_stall(on_bus + transfer, cost.stall);
            }
            self.bus_free = end;
            self.drained_to = end.saturating_sub(cost.au_switch + cost.stall);
            self.running.push_back(Running { command, cost, end });
        }
    }

    /// Setup and transfer of a read.
    fn read(&mut self, c: &Command, cost: &mut Cost) -> (u64, u64) {
        let contiguous = self.read_pos == Some(c.lba);
        self.read_pos = Some(c.lba + u64::from(c.blocks));
        let (seq, rand) = (self.card.read_setup_seq, self.card.read_setup_rand);
        let setup = if contiguous { seq } else { rand };
        let transfer = u64::from(c.blocks) * self.card.read_per_kib / 2;
        cost.seek = if c.continues { setup.saturating_sub(seq) } else { 0 };
        cost.productive = setup - cost.seek + transfer;
        (setup, transfer)
    }

    /// Setup and transfer of a write.
    fn write(&mut self, c: &Command, cost: &mut Cost) -> (u64, u64) {
        self.read_pos = None;
        let blocks = u64::from(c.blocks);
        let (first, last) =
            (c.lba / self.card.au_sectors, (c.lba + blocks.max(1) - 1) / self.card.au_sectors);
        for au in first..=last {
            match self.open.iter().position(|&a| a == au) {
                Some(i) => drop(self.open.remove(i)),
                None => cost.au_switch += self.card.au_switch,
            }
            self.open.insert(0, au);
            self.open.truncate(self.card.open_aus);
        }
        let setup = self.card.write_setup;
        let mut transfer = blocks * self.card.write_per_kib / 2;
        if self.card.cache_sectors > 0 {
            let drain = self.card.cache_drain_per_kib;
            let full = self.card.cache_sectors * drain / 2;
            let dirty = self.dirty + blocks * drain / 2;
            transfer += dirty.saturating_sub(full);
            self.dirty = dirty.min(full);
        }
        let collected = self.written / self.card.gc_every;
        self.written += blocks;
        if self.written / self.card.gc_every > collected {
            let (short, long) = self.card.gc_stall;
            cost.stall = self.random.uniform(short as f64, long as f64) as u64;
        }
        let useful = if c.later_part { 0 } else { setup };
        cost.split = setup - useful;
        cost.productive = useful + transfer;
        (setup, transfer)
    }
}

/// SplitMix64: small, and the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// One of `from..=to`, `from` if the range is empty.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        let n = u128::from(to.saturating_sub(from)) + 1;
        from + ((u128::from(self.draw()) * n) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Card {
        Card {
            read_setup_seq: 200_000,
            read_setup_rand: 500_000,
            read_per_kib: 25_000,
            write_setup: 900_000,
            write_per_kib: 65_000,
            au_switch: 12_000_000,
            open_aus: 3,
            au_sectors: 8192,
            gc_every: 32_768,
            gc_stall: (150_000_000, 450_000_000),
            slots: 2,
            host_gap: 100_000,
            units: 1,
            cache_sectors: 0,
            cache_drain_per_kib: 0,
        }
    }
    fn write(lba: u64, blocks: u32) -> Command {
        Command { token: lba, read: false, lba, blocks, later_part: false, continues: false }
    }
    fn read(lba: u64, blocks: u32) -> Command {
        Command { read: true, ..write(lba, blocks) }
    }
    fn alone(d: &mut Device, c: Command, now: u64) -> (u64, Cost) {
        d.send(c, now);
        let end = d.next_end().unwrap();
        (end - now, d.finish(end).unwrap().cost)
    }

    #[test]
    fn a_command_that_was_prepared_pays_no_gap() {
        let mut d = Device::new(base(), 1);
        d.send(read(0, 8), 0);
        d.send(read(1000, 8), 1);
        assert_eq!(d.next_end(), Some(700_000));
        assert!(d.finish(699_999).is_none());
        assert_eq!(d.finish(700_000).unwrap().cost.gap, 100_000);
        assert_eq!(d.next_end(), Some(1_300_000));
        assert_eq!(d.finish(1_300_000).unwrap().cost.gap, 0);
    }

    #[test]
    fn only_a_read_that_could_have_continued_counts_as_a_seek() {
        let mut d = Device::new(base(), 1);
        let (_, first) = alone(&mut d, read(0, 256), 0);
        let (_, random) = alone(&mut d, read(9000, 8), 10_000_000);
        let back = Command { continues: true, ..read(256, 256) };
        let (t, torn) = alone(&mut d, back, 20_000_000);
        let (u, seq) = alone(&mut d, Command { lba: 512, ..back }, 30_000_000);
        assert_eq!((first.seek, random.seek, torn.seek, seq.seek), (0, 0, 300_000, 0));
        assert_eq!((t, u), (3_800_000, 3_500_000));
        alone(&mut d, write(0, 8), 40_000_000);
        let (_, behind) = alone(&mut d, Command { lba: 768, ..back }, 60_000_000);
        assert_eq!(behind.seek, 300_000, "a write in between");
    }

    #[test]
    fn every_allocation_unit_is_paid_for_when_it_is_opened_again() {
        let mut d = Device::new(base(), 1);
        let switches = |d: &mut Device, lba| alone(d, write(lba, 16), 1 << 40).1.au_switch / 12_000_000;
        assert_eq!([0, 16, 8192, 16_384, 24_576].map(|l| switches(&mut d, l)), [1, 0, 1, 1, 1]);
        assert_eq!(switches(&mut d, 8192), 0);
        assert_eq!(switches(&mut d, 0), 1, "the one written longest ago was closed");
        assert_eq!(switches(&mut d, 8192 * 9 - 8), 2, "across a boundary");
    }

    #[test]
    fn a_stall_comes_at_the_end_of_the_write_that_crosses_the_limit() {
        let mut d = Device::new(Card { gc_every: 1024, gc_stall: (5_000_000, 5_000_000), ..base() }, 1);
        assert_eq!(alone(&mut d, write(0, 1000), 0).1.stall, 0);
        let (t, cost) = alone(&mut d, write(1000, 32), 1_000_000_000);
        assert_eq!((t, cost.stall), (100_000 + 900_000 + 1_040_000 + 5_000_000, 5_000_000));
        let end = 1_000_000_000 + t;
        assert_eq!(d.stalled(0, end), 5_000_000);
        assert_eq!(d.stalled(end - 2_000_000, end), 2_000_000);
        assert_eq!(d.stalled(0, end - 5_000_000), 0);
    }

    #[test]
    fn the_later_parts_of_a_write_pay_their_setup_for_nothing() {
        let mut d = Device::new(base(), 1);
        let cost = alone(&mut d, Command { later_part: true, ..write(0, 8) }, 0).1;
        assert_eq!((cost.split, cost.productive), (900_000, 260_000));
    }

    #[test]
    fn a_cache_takes_what_fits_and_drains_while_nothing_runs() {
        let mut d =
            Device::new(Card { cache_sectors: 2048, cache_drain_per_kib: 25_000, au_switch: 0, ..base() }, 1);
        let plain = 1_000_000 + 512 * 65_000;
        let mut now = 0;
        let mut next = |pause| {
            now += pause;
            let (t, _) = alone(&mut d, write(now, 1024), now);
            now += t;
            t - plain
        };
        // The gap before each drains 4 KiB.
        assert_eq!([next(0), next(0), next(0)], [0, 0, 512 * 25_000 - 200_000]);
        assert_eq!(next(5_000_000), 512 * 25_000 - 5_100_000);
        assert_eq!(next(1_000_000_000), 0);
    }

    #[test]
    fn setups_overlap_on_units_and_transfers_take_turns() {
        let mut d = Device::new(Card { units: 2, slots: 4, ..base() }, 1);
        for lba in [0, 1000, 2000] {
            d.send(read(lba, 8), 0);
        }
        let mut ends = vec![];
        while let Some(t) = d.next_end() {
            ends.push(t);
            d.finish(t);
        }
        assert_eq!(ends, [700_000, 800_000, 1_300_000]);
    }

    #[test]
    fn a_gap_beside_a_command_that_runs_delays_but_is_no_loss() {
        let mut d = Device::new(Card { units: 2, slots: 4, ..base() }, 1);
        d.send(read(0, 8), 0);
        d.send(read(1000, 8), 550_000);
        assert_eq!(d.finish(700_000).unwrap().cost.gap, 100_000);
        assert_eq!(d.next_end(), Some(550_000 + 700_000));
        assert_eq!(d.finish(1_250_000).unwrap().cost.gap, 0);
    }

    #[test]
    fn a_running_write_can_be_made_to_stall() {
        let mut d = Device::new(base(), 1);
        d.send(read(0, 8), 0);
        assert!(!d.stall_running_write(1), "a read does not");
        let t = d.next_end().unwrap();
        d.finish(t);
        d.send(write(0, 8), t);
        let end = d.next_end().unwrap();
        assert!(d.stall_running_write(400));
        assert_eq!(d.next_end(), Some(end + 400));
        assert_eq!(d.stalled(0, end + 400), 400);
    }

    #[test]
    fn a_card_that_is_none_is_named() {
        assert_eq!(base().check(), Ok(()));
        assert_eq!(Card { units: 0, ..base() }.check().unwrap_err().0, "parallel_units");
        assert_eq!(Card { gc_stall: (2, 1), ..base() }.check().unwrap_err().0, "gc_stall_ms_uniform");
        assert_eq!(Card { read_setup_seq: 0, ..base() }.check().unwrap_err().0, "read_setup_seq_ns");
    }
}

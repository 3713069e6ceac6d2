//! Extension registers of an SD card: a host finds the cache, uses it, and loses what it did not flush (`spec/card.md`
//! §2.8); and the presets that lie about theirs.

use mmc_mock::card::{Bits, Card, SdCard, SdConfig, Sent, State, Token};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_time::{Duration, Instant};

const PERFORMANCE: u32 = 2 << 27;
const POWER: u32 = 1 << 27;
/// Error bits of the card status.
const ERRORS: u32 = 0xfff9_a000;

struct Host {
    card: SdCard,
    now: Instant,
    rca: u32,
}

impl Host {
    fn new(config: SdConfig) -> Self {
        let card = SdCard::new(SdConfig { power_up: Duration::ZERO, ..config }).unwrap();
        let mut h = Self { card, now: Instant::ZERO, rca: 0 };
        h.power_cycle();
        h
    }
    /// Off, on, identified, selected.
    fn power_cycle(&mut self) {
        self.card.power(false, self.now);
        self.card.power(true, self.now);
        self.card.bus(400_000, 1, self.now);
        self.card.idle_clocks(74);
        for (index, arg) in [(0, 0), (8, 0x1aa), (55, 0), (41, 0x40ff_8000), (2, 0)] {
            self.card.command(index, arg, self.now);
        }
        self.rca = self.short(3, 0) >> 16 << 16;
        self.short(7, self.rca);
    }
    fn short(&mut self, index: u8, arg: u32) -> u32 {
        match self.card.command(index, arg, self.now).response {
            Some(Bits::Short(b)) => u32::from_be_bytes([b[1], b[2], b[3], b[4]]),
            other => panic!("CMD{index}: {other:?}"),
        }
    }
    fn wait(&mut self) {
        self.now = self.now.max(self.card.busy_until(self.now));
    }
    fn read_extension(&mut self, function: u32, at: u32, len: u32) -> Vec<u8> {
        assert_eq!(self.short(48, function | at << 9 | (len - 1)) & ERRORS, 0);
        let mut block = vec![0; 512];
        assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        block.truncate(len as usize);
        block
    }
    /// Writes one byte; the error bits that came of it.
    fn write_extension(&mut self, function: u32, at: u32, byte: u8) -> u32 {
        self.short(49, function | at << 9);
        let mut block = [0; 512];
        block[0] = byte;
        assert_eq!(self.card.take(&block, true, self.now), Token::Accepted);
        assert_eq!(self.card.state(self.now), State::Prg);
        self.wait();
        self.short(13, self.rca) & ERRORS
    }
    fn write(&mut self, sector: u32, fill: u8) {
        self.short(24, sector);
        assert_eq!(self.card.take(&[fill; 512], true, self.now), Token::Accepted);
        self.wait();
    }
    fn read(&mut self, sector: u32) -> u8 {
        self.short(17, sector);
        let mut block = [0; 512];
        assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        block[0]
    }
    /// Flushes as the standard says: for a second at most. Whether it ended.
    fn flush(&mut self) -> bool {
        assert_eq!(self.write_extension(PERFORMANCE, 261, 1), 0);
        let end = self.now + Duration::from_secs(1);
        while self.now < end {
            if self.read_extension(PERFORMANCE, 261, 1)[0] & 1 == 0 {
                return true;
            }
            self.now += Duration::from_millis(5);
        }
        false
    }
}

fn config() -> SdConfig {
    SdConfig { extension: true, ..SdConfig::new(Profile::a2(), 1) }
}

#[test]
fn the_general_information_leads_to_the_cache() {
    let mut h = Host::new(config());
    assert_eq!(h.card.config().scr()[3] & 4, 4, "SCR says CMD48 and CMD49 are there");
    let page = h.read_extension(0, 0, 512);
    let word = |at: usize| u16::from_le_bytes([page[at], page[at + 1]]);
    assert_eq!((word(2), page[4]), (512, 2));
    let (mut at, mut found) = (16, Vec::new());
    while at != 0 {
        let set = u32::from_le_bytes(page[at + 44..at + 48].try_into().unwrap());
        found.push((word(at), page[at + 42], set >> 18, set & 0x3_ffff));
        at = word(at + 40).into();
    }
    assert_eq!(found, [(1, 1, 1, 0), (2, 1, 2, 0)], "power management, performance; a set each at address 0");
    assert_eq!(h.read_extension(PERFORMANCE, 4, 1), [1], "a cache");
    assert_eq!(h.read_extension(PERFORMANCE, 6, 1), [0], "no command queue");
    assert_eq!(h.card.violations(), Vec::<String>::new());
}

#[test]
fn a_loss_of_power_takes_what_was_not_flushed() {
    let mut h = Host::new(config());
    h.write(1, 1);
    assert_eq!(h.card.dirty_sectors(), 0, "the cache is off");
    assert_eq!(h.write_extension(PERFORMANCE, 260, 1), 0);
    h.write(1, 2);
    assert!(h.flush());
    h.write(1, 3);
    h.write(1, 4);
    h.write(9, 4);
    assert_eq!((h.read(1), h.card.dirty_sectors()), (4, 3));
    h.power_cycle();
    assert_eq!((h.read(1), h.read(9), h.read_extension(PERFORMANCE, 260, 1)[0]), (2, 0, 0));
    // Told that power will go, it makes all safe.
    h.write_extension(PERFORMANCE, 260, 1);
    h.write(1, 5);
    assert_eq!(h.write_extension(POWER, 2, 1), 0);
    h.now += Duration::from_millis(5);
    assert_eq!(h.read_extension(POWER, 1, 1)[0] & 1, 1, "ready");
    h.power_cycle();
    assert_eq!(h.read(1), 5);
}

#[test]
fn several_blocks_at_once_go_through_the_cache_too() {
    let mut h = Host::new(config());
    h.write_extension(PERFORMANCE, 260, 1);
    h.short(23, 4);
    h.short(25, 100);
    assert_eq!(h.card.take_many(&[7; 2048], h.now), 0, "block by block, each remembers");
    for _ in 0..4 {
        assert_eq!(h.card.take(&[7; 512], true, h.now), Token::Accepted);
    }
    h.wait();
    assert_eq!(h.card.dirty_sectors(), 4);
    h.power_cycle();
    assert_eq!(h.read(100), 0);
    assert_eq!(h.card.stats().write_bytes, 2048);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut h = Host::new(config());
    for arg in [3 << 27, 1 << 31, 1 << 26, PERFORMANCE | 1 << 9 | 511, 512 << 9] {
        assert_eq!(h.short(48, arg) & ERRORS, 1 << 30, "{arg:x}");
        assert_eq!(h.card.state(h.now), State::Tran);
    }
    assert_eq!(h.write_extension(PERFORMANCE, 261, 1), 1 << 19, "a flush without a cache");
    assert_eq!(h.write_extension(PERFORMANCE, 262, 1), 1 << 19, "a command queue");
    assert_eq!(h.write_extension(0, 0, 1), 1 << 19, "general information");
    let mut plain = Host::new(SdConfig::new(Profile::ideal(), 1));
    assert!(plain.card.command(48, 0, plain.now).response.is_none());
}

#[test]
fn some_flushes_never_end_and_a_good_host_knows_whose() {
    for name in ["kingston-flush", "gigastone-flush"] {
        let mut h = Host::new(zoo::card(name, Profile::a2(), 1).unwrap());
        h.write_extension(PERFORMANCE, 260, 1);
        h.write(1, 1);
        assert!(!h.flush(), "{name}: a naive host waits in vain");
        assert_eq!(h.write_extension(POWER, 2, 1), 0);
        h.now += Duration::from_secs(1);
        assert_eq!(h.read_extension(POWER, 1, 1)[0] & 1, 0, "{name}: never ready for power-off");
        h.power_cycle();
        assert_eq!(h.read(1), 0, "{name}: and what it wrote is gone");
        // A good one leaves the cache off.
        h.write(1, 2);
        h.power_cycle();
        assert_eq!(h.read(1), 2);
    }
}

#[test]
fn a_host_that_believes_tran_speed_breaks_the_rules() {
    let mut h = Host::new(zoo::card("tran-speed-5a", Profile::ideal(), 1).unwrap());
    assert_eq!(h.card.config().csd(0)[3], 0x5a);
    h.card.bus(50_000_000, 1, h.now);
    h.short(13, h.rca);
    assert!(h.card.violations()[0].contains("default speed allows at most 25000000"));
}

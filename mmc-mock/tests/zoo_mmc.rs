//! Each MMC card of the zoo: a good host gets along with it, and where it has a fault of character, a naive host fails
//! the way the source describes.

use mmc_mock::card::{Bits, Card, MmcCard, MmcState, Sent, Token};
use mmc_mock::drive::{Bound, Drive, drive_bounded};
use mmc_mock::timing::Profile;
use mmc_mock::{Clock, zoo};
use mmc_time::{Duration, Instant};

const RCA: u32 = 1 << 16;
/// How long a card may hold DAT0 after data or a switch.
const BUSY: Duration = Duration::from_secs(3);
/// How long, with DAT0 high, it may say that it is not ready.
const READY: Duration = Duration::from_secs(1);

struct Host {
    card: MmcCard,
    now: Instant,
    /// Bytes an address counts.
    unit: u32,
    ext: Option<Vec<u8>>,
    sectors: u64,
}

impl Host {
    fn short(&mut self, index: u8, arg: u32) -> Option<u32> {
        match self.card.command(index, arg, self.now).response {
            Some(Bits::Short(b)) => Some(u32::from_be_bytes([b[1], b[2], b[3], b[4]])),
            _ => None,
        }
    }
    fn long(&mut self, index: u8, arg: u32) -> u128 {
        let Some(Bits::Long(b)) = self.card.command(index, arg, self.now).response else {
            panic!("CMD{index}")
        };
        u128::from_be_bytes(b[1..].try_into().unwrap())
    }
    /// In its slot, power and clock on.
    fn dark(name: &str) -> Self {
        Self::paced(name, Profile::ideal())
    }
    fn paced(name: &str, profile: Profile) -> Self {
        let card = MmcCard::new(zoo::mmc(name, profile, 1).unwrap()).unwrap();
        let mut h = Self { card, now: Instant::ZERO, unit: 512, ext: None, sectors: 0 };
        h.card.power(true, h.now);
        h.card.bus(400_000, 1, h.now);
        h.card.idle_clocks(74);
        h
    }
    /// Identified the way `spec/card.md` §13.3 says; `None`: the card does not answer.
    fn identify(&mut self) -> Option<()> {
        self.short(0, 0);
        let mut ocr = self.short(1, 0)?;
        // The second of the standard.
        ocr = self.within(Duration::from_secs(1), |h| {
            if ocr >> 31 == 1 {
                return Drive::Done(Some(ocr));
            }
            let Some(said) = h.short(1, ocr & 0xff_ff80 | 0x4000_0000) else { return Drive::Done(None) };
            ocr = said;
            Drive::Wait(h.now + Duration::from_millis(10))
        })?;
        self.unit = if ocr >> 30 & 1 == 1 { 1 } else { 512 };
        self.long(2, 0);
        self.short(3, RCA)?;
        let csd = self.long(9, RCA);
        self.short(7, RCA)?;
        self.card.bus(20_000_000, 1, self.now);
        let field = |high: u32, low: u32| (csd >> low) as u64 & ((1 << (high - low + 1)) - 1);
        self.sectors = ((field(73, 62) + 1) << (field(49, 47) + 2 + field(83, 80))) / 512;
        if field(125, 122) >= 4 {
            let mut ext = vec![0; 512];
            for tries in 0.. {
                self.short(8, 0)?;
                if self.card.send(&mut ext, self.now) == Sent::Good {
                    break;
                }
                assert!(tries < 5, "no EXT_CSD");
            }
            match u32::from_le_bytes(ext[212..216].try_into().unwrap()) {
                0 => {}
                count => self.sectors = count.into(),
            }
            self.ext = Some(ext);
        }
        Some(())
    }
    fn good(name: &str) -> Self {
        let mut h = Self::dark(name);
        h.identify().unwrap_or_else(|| panic!("{name} is silent"));
        h
    }
    /// Sectors that go together.
    fn native(&self) -> u64 {
        if self.ext.as_ref().is_some_and(|e| e[61] == 1) { 8 } else { 1 }
    }
    /// Until DAT0 is high.
    fn free(&mut self) {
        let free = self.card.busy_until(self.now);
        assert!(free <= self.now + BUSY, "DAT0 is low until {free:?}");
        self.now = self.now.max(free);
    }
    /// Until DAT0 is high and CMD13 says so, too.
    fn wait(&mut self) {
        self.free();
        self.within(READY, |h| {
            let status = h.short(13, RCA).unwrap();
            match (status >> 8 & 1, status >> 9 & 15) {
                (1, 4) => Drive::Done(()),
                _ => Drive::Wait(h.now + Duration::from_millis(1)),
            }
        });
    }
    /// Steps until it is done, at the instants it names; a failure after `time`.
    fn within<T>(&mut self, time: Duration, mut step: impl FnMut(&mut Self) -> Drive<T>) -> T {
        let clock = Clock::new();
        clock.advance_to(self.now);
        let done = drive_bounded(&clock, Bound { time, steps: 10_000 }, |now| {
            self.now = now;
            step(self)
        });
        done.unwrap_or_else(|e| panic!("{e}")).0
    }
    fn write(&mut self, sector: u64, fill: u8) {
        let n = self.native();
        let (count, index) = if n == 1 { (None, 24) } else { (self.short(23, n as u32), 25) };
        assert!(n == 1 || count.is_some());
        self.short(index, (sector / n * n) as u32 * self.unit).unwrap();
        for _ in 0..n {
            assert_eq!(self.card.take(&[fill; 512], true, self.now), Token::Accepted);
        }
        self.wait();
    }
    /// The first byte of a sector, and when it was there after the command.
    fn read(&mut self, sector: u64) -> (u8, Duration) {
        let n = self.native();
        if n > 1 {
            self.short(23, n as u32).unwrap();
        }
        self.short(if n == 1 { 17 } else { 18 }, (sector / n * n) as u32 * self.unit).unwrap();
        let late = self.card.ready(0).since(self.now);
        let mut block = [0; 512];
        for _ in 0..n {
            assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        }
        (block[0], late)
    }
    /// CMD35, CMD36 and CMD38; how long the card is busy.
    fn erase(&mut self, from: u32, to: u32, arg: u32) -> Duration {
        for (index, arg) in [(35, from), (36, to), (38, arg)] {
            self.short(index, arg).unwrap();
        }
        self.card.busy_until(self.now).since(self.now)
    }
    fn revision(&self) -> u8 {
        self.ext.as_ref().map_or(0, |e| e[192])
    }
    fn switch(&mut self, offset: u32, value: u32) -> bool {
        self.short(6, 3 << 24 | offset << 16 | value << 8 | 1).unwrap();
        self.free();
        self.short(13, RCA).unwrap() & 0x80 == 0
    }
}

#[test]
fn every_card_serves_a_good_host_without_a_broken_rule() {
    for preset in zoo::mmc_list() {
        let mut h = Host::good(preset.name);
        for sector in [0, h.sectors - 1] {
            let fill = (sector as u8).wrapping_add(0x11);
            h.write(sector, fill);
            assert_eq!(h.read(sector).0, fill, "{}", preset.name);
        }
        if h.ext.as_ref().is_some_and(|e| e[196] & 2 != 0) {
            assert!(h.switch(185, 1) && h.switch(183, 2), "{}", preset.name);
        }
        assert_eq!(h.card.violations(), Vec::<String>::new(), "{}", preset.name);
        assert!(!preset.what.is_empty() && !preset.host.is_empty() && !preset.source.is_empty());
    }
}

#[test]
fn sizes_and_revisions_are_those_of_the_dumps() {
    for (name, sectors, unit, revision) in [
        ("mmc-6600-32mb", 62_720, 512, None),
        ("takems-256mb", 501_760, 512, Some(0)),
        ("samsung-bjnb4r", 61_071_360, 1, Some(8)),
        ("aaru-emmc51-62gb", 120_832_000, 1, Some(8)),
        ("am62x-emmc51-4gb", 7_634_944, 1, Some(8)),
        ("emmc-2gb-bytes", 3_145_728, 512, Some(5)),
        ("emmc-rev9", 16_777_216, 1, Some(9)),
        ("emmc-rev255", 16_777_216, 1, Some(255)),
        ("samsung-m8g1gc", 15_269_888, 1, Some(6)),
        ("samsung-4ymd3r", 7_634_944, 1, Some(7)),
    ] {
        let h = Host::good(name);
        let found = (h.sectors, h.unit, h.ext.as_ref().map(|e| e[192]));
        assert_eq!(found, (sectors, unit, revision), "{name}");
    }
    // What the dump was made with (HS400, cache on, command queue on) is gone after power-up.
    for name in ["aaru-emmc51-62gb", "am62x-emmc51-4gb"] {
        let ext = Host::good(name).ext.unwrap();
        assert_eq!([15, 33, 161, 175, 183, 185].map(|i: usize| ext[i]), [0; 6], "{name}");
        assert_eq!((ext[226], ext[168], ext[308]), (32, 32, 1));
    }
    assert_eq!(Host::good("am62x-emmc51-4gb").ext.unwrap()[230], 255);
}

#[test]
fn a_size_from_the_csd_is_1_gib_for_every_large_card() {
    let mut h = Host::good("samsung-bjnb4r");
    h.short(7, 0);
    let csd = h.long(9, RCA);
    assert_eq!(csd >> 62 & 0xfff, 0xfff);
}

#[test]
fn cmd0_after_a_query_loses_a_card() {
    let mut h = Host::dark("emmc-early-cmd0");
    h.short(1, 0);
    assert!(h.identify().is_none(), "a host that resets after its query");
    let mut h = Host::dark("emmc-slow-cmd1");
    for _ in 0..100 {
        h.now += Duration::from_millis(1);
        assert_eq!(h.short(1, 0x40ff_8080).unwrap() >> 31, 0, "a hundred polls are no second");
    }
}

#[test]
fn an_interrupt_breaks_cards_that_offer_it() {
    for name in ["hynix-hpi", "numonyx-hpi"] {
        let mut h = Host::good(name);
        assert_eq!(h.ext.as_ref().unwrap()[503] & 1, 1, "it says so");
        assert!(h.switch(161, 1));
        h.short(6, 3 << 24 | 179 << 16 | 1 << 8).unwrap();
        assert_eq!(h.card.state(h.now), MmcState::Prg);
        h.short(12, RCA | 1);
        h.now += Duration::from_secs(1);
        assert!(h.short(13, RCA).is_none(), "{name}");
    }
}

#[test]
fn the_year_of_manufacture_has_three_meanings() {
    let code =
        |name| (zoo::mmc(name, Profile::ideal(), 0).unwrap().cid[14] & 15, Host::good(name).revision());
    // The rule of spec/card.md 6.2, without and with the exception for MID 45.
    let year = |(code, revision): (u8, u8), sandisk: bool| match (code, revision) {
        (13.., 8) if sandisk => 2013 + u16::from(code),
        (0..=12, 5..=8) => 2013 + u16::from(code),
        _ => 1997 + u16::from(code),
    };
    let (old, new) = (code("samsung-m8g1gc"), code("sandisk-2026"));
    assert_eq!((year(old, false), year(new, true)), (2013, 2026));
    assert_eq!(
        (1997 + u16::from(old.0), year(new, false)),
        (1997, 2010),
        "who does not look at the revision or the maker"
    );
}

#[test]
fn what_cmd38_does_may_be_in_another_byte() {
    let mut h = Host::good("sandisk-inand");
    let contents = |h: &mut Host| [0, 1, 2].map(|s| h.read(s).0);
    let fill = |h: &mut Host| (0..3).for_each(|s| h.write(s, 7));
    fill(&mut h);
    h.erase(1, 1, 1);
    h.wait();
    assert_eq!(contents(&mut h), [0, 0, 0], "a host that says trim in the argument erases the group");
    fill(&mut h);
    assert!(h.switch(113, 1));
    h.erase(1, 1, 1);
    h.wait();
    assert_eq!(contents(&mut h), [7, 0, 7]);
}

#[test]
fn a_count_may_cost_more_than_a_stop() {
    let run = |counted: bool| {
        let mut h = Host::good("toshiba-cmd23");
        let start = h.now;
        for i in 0..10 {
            if counted {
                h.short(23, 8);
            }
            h.short(25, i * 8);
            assert_eq!(h.card.take_many(&[1; 4096], h.now), 4096);
            if !counted {
                h.short(12, 0);
            }
            h.wait();
        }
        h.now.since(start)
    };
    assert_eq!(run(true), run(false) + Duration::from_millis(200));
}

#[test]
fn a_secure_erase_may_be_the_last_one() {
    let mut h = Host::good("samsung-movinand");
    h.write(5, 9);
    h.erase(5, 5, 1);
    h.wait();
    assert_eq!(h.read(5).0, 0, "trim is no harm");
    h.erase(5, 5, 0x8000_0000);
    assert!(h.short(13, RCA).is_none());
    h.card.power(false, h.now);
    h.card.power(true, h.now);
    assert!(h.identify().is_none(), "for ever");
    // Two seconds, where the registers promise 0.9: ERASE_TIMEOUT_MULT × 300 ms × SEC_ERASE_MULT.
    let mut h = Host::good("kingston-secure-2s");
    let ext = h.ext.clone().unwrap();
    let promised = Duration::from_millis(u64::from(ext[223]) * 300 * u64::from(ext[230]));
    let took = h.erase(5, 5, 0x8000_0000);
    assert!(took > promised && took == Duration::from_secs(2), "{took:?} {promised:?}");
}

#[test]
fn a_trim_may_take_neighbours_along() {
    let mut h = Host::good("kingston-v10008");
    for s in 0..12 {
        h.write(s, 7);
    }
    h.erase(0, 1, 1);
    h.wait();
    assert_eq!((h.read(2).0, h.read(9).0, h.read(10).0), (0, 0, 7), "a host that trims loses sector 2");
    h.write(11, 0);
    assert_eq!((h.read(10).0, h.read(11).0), (7, 0), "one that writes zeros loses nothing");
}

#[test]
fn a_flush_with_nothing_to_flush_may_hang() {
    let mut h = Host::good("micron-q2j54a");
    assert!(h.switch(33, 1));
    h.write(0, 1);
    assert!(h.switch(32, 1), "behind a write it works");
    h.short(6, 0x0320_0100).unwrap();
    assert!(h.card.busy_until(h.now).is_never(), "a host that flushes to be sure");
    let mut h = Host::good("emmc-endless-flush");
    assert!(h.switch(161, 1) && h.switch(33, 1));
    h.write(0, 1);
    h.short(6, 0x0320_0100).unwrap();
    assert!(h.card.busy_until(h.now).is_never());
    h.now += Duration::from_secs(30);
    h.short(12, RCA | 1);
    h.wait();
    assert_eq!((h.read(0).0, h.card.dirty_sectors()), (1, 1), "it goes on, without what the flush was for");
}

#[test]
fn a_cache_may_store_wrong_bits() {
    let run = |cache: u32| {
        let mut h = Host::good("micron-cache");
        assert!(h.switch(33, cache));
        (0..64).for_each(|s| h.write(s, s as u8 * 2));
        (0..64).filter(|&s| h.read(s).0 != s as u8 * 2).count()
    };
    assert_eq!((run(0), run(1)), (0, 4));
}

#[test]
fn a_busy_line_may_lie() {
    let mut h = Host::paced("samsung-m8g1wa", Profile::slow2018());
    h.identify().unwrap();
    h.short(24, 0).unwrap();
    assert_eq!(h.card.take(&[1; 512], true, h.now), Token::Accepted);
    assert!(h.card.busy_until(h.now) <= h.now, "DAT0 is high");
    assert!(h.short(24, 1).is_none(), "a host that believes it comes too early");
    h.wait();
    h.write(1, 2);
    assert_eq!((h.read(0).0, h.read(1).0), (1, 2));
}

#[test]
fn an_ext_csd_may_need_a_second_look() {
    let mut h = Host::good("samsung-4ymd3r");
    assert_eq!(h.sectors, 7_634_944);
    h.short(7, 0);
    assert_eq!(h.long(9, RCA) >> 62 & 0xfff, 0xfff, "who takes the CSD instead has 1 GiB");
}

#[test]
fn background_operations_may_take_a_minute() {
    let mut h = Host::good("emmc-slow-bkops");
    for i in 0..17 {
        h.short(25, i * 16384);
        assert_eq!(h.card.take_many(&vec![1; 8 << 20], h.now), 8 << 20);
        h.short(12, 0);
        h.wait();
    }
    assert!(h.switch(161, 1));
    h.short(6, 0x03a4_0100).unwrap();
    let busy = h.card.busy_until(h.now).since(h.now);
    assert_eq!(busy, Duration::from_secs(60), "a limit of ten seconds gives up, one of 120 does not");
    h.now += Duration::from_secs(1);
    h.short(12, RCA | 1);
    let start = h.now;
    h.wait();
    assert!(h.now.since(start) <= Duration::from_millis(50), "OUT_OF_INTERRUPT_TIME");
}

#[test]
fn a_partition_may_have_more_than_32_bits_of_bytes() {
    let mut h = Host::good("emmc-gp-6gb");
    let ext = h.ext.clone().unwrap();
    let mult = u32::from_le_bytes([ext[143], ext[144], ext[145], 0]);
    let unit = u32::from(ext[221]) * u32::from(ext[224]) * 512 * 1024;
    assert_eq!((u64::from(mult) * u64::from(unit), mult.wrapping_mul(unit)), (6 << 30, 2 << 30));
    assert!(h.switch(179, 4));
    h.write(12_582_911, 5);
    assert_eq!(h.read(12_582_911).0, 5, "its last sector");
    assert_eq!(h.short(24, 12_582_912).unwrap() >> 31, 1);
}

#[test]
fn sectors_may_have_4_kib() {
    let mut h = Host::good("emmc-native-4k");
    assert_eq!(h.short(24, 8).unwrap() >> 29 & 1, 1, "a single block is no sector: BLOCK_LEN_ERROR");
    h.short(23, 8);
    assert_eq!(h.short(25, 4).unwrap() >> 30 & 1, 1, "half a sector: ADDRESS_ERROR");
}

#[test]
fn a_card_may_want_to_be_left_alone() {
    let mut h = Host::dark("emmc-restless");
    for _ in 0..1000 {
        assert_eq!(h.short(1, 0x40ff_8080).unwrap() >> 31, 0, "polled every millisecond for a second");
        h.now += Duration::from_millis(1);
    }
    let mut h = Host::good("emmc-restless");
    h.write(0, 3);
    assert_eq!(h.read(0).0, 3);
}

#[test]
fn what_was_tuned_once_does_not_stay_right() {
    let good = |name: &str, again: bool| {
        let mut h = Host::good(name);
        assert!(h.switch(183, 2) && h.switch(185, 2));
        h.card.bus(200_000_000, 8, h.now);
        let tune = |h: &Host| {
            let right: Vec<u16> =
                (0..72).map(|i| i * 5).filter(|&p| h.card.samples_right(p, h.now)).collect();
            // The middle of the window, which may lie across 0.
            let first = *right.iter().find(|&&p| !right.contains(&((p + 355) % 360))).unwrap();
            (first + right.len() as u16 * 5 / 2) % 360
        };
        let mut phase = tune(&h);
        let mut wrong = 0;
        for _ in 0..400 {
            h.now += Duration::from_millis(100);
            if !h.card.samples_right(phase, h.now) {
                wrong += 1;
                phase = if again { tune(&h) } else { phase };
            }
        }
        wrong
    };
    assert_eq!(good("emmc-rev9", false), 0);
    let (once, again) = (good("emmc-drift", false), good("emmc-drift", true));
    assert!(once > 100 && again < 20, "{once} and {again} of 400");
}

#[test]
fn what_was_trimmed_may_still_be_there() {
    let mut h = Host::good("kingston-trim");
    h.write(100, 7);
    for (index, arg) in [(35, 100), (36, 100), (38, 1)] {
        h.short(index, arg).unwrap();
    }
    assert_eq!(h.read(100).0, 7, "a host that writes zeros by trim");
    h.write(100, 0);
    assert_eq!(h.read(100).0, 0, "a host that writes them");
}

#[test]
fn a_read_may_come_later_than_the_csd_promises() {
    let mut h = Host::good("micron-late-read");
    let (_, late) = h.read(0);
    assert!(late > Duration::from_millis(150) && late < Duration::from_millis(600), "{late:?}");
}

#[test]
fn a_host_that_counts_sectors_on_a_card_that_counts_bytes_is_refused() {
    let mut h = Host::good("emmc-2gb-bytes");
    assert_eq!(h.short(24, 1).unwrap() >> 30 & 1, 1, "ADDRESS_ERROR");
}

#[test]
fn an_unknown_name_is_refused_with_the_list() {
    let error = zoo::mmc("bjnb4", Profile::ideal(), 0).unwrap_err().to_string();
    assert!(error.contains("`bjnb4`"));
    for preset in zoo::mmc_list() {
        assert!(error.contains(preset.name));
    }
}

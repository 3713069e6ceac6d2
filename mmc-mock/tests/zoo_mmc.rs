//! Each MMC card of the zoo: a good host gets along with it, and where it has a fault of character, a naive host fails
//! the way the source describes.

use mmc_mock::card::{Bits, Card, MmcCard, MmcState, Sent, Token};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_time::{Duration, Instant};

const RCA: u32 = 1 << 16;

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
        let card = MmcCard::new(zoo::mmc(name, Profile::ideal(), 1).unwrap()).unwrap();
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
        let end = self.now + Duration::from_secs(1);
        while ocr >> 31 == 0 {
            self.now += Duration::from_millis(10);
            assert!(self.now < end, "not ready in time");
            ocr = self.short(1, ocr & 0xff_ff80 | 0x4000_0000)?;
        }
        self.unit = if ocr >> 30 & 1 == 1 { 1 } else { 512 };
        self.long(2, 0);
        self.short(3, RCA)?;
        let csd = self.long(9, RCA);
        self.short(7, RCA)?;
        self.card.bus(20_000_000, 1, self.now);
        let field = |high: u32, low: u32| (csd >> low) as u64 & ((1 << (high - low + 1)) - 1);
        self.sectors = ((field(73, 62) + 1) << (field(49, 47) + 2 + field(83, 80))) / 512;
        if field(125, 122) >= 4 {
            self.short(8, 0)?;
            let mut ext = vec![0; 512];
            assert_eq!(self.card.send(&mut ext, self.now), Sent::Good);
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
    fn write(&mut self, sector: u64, fill: u8) {
        self.short(24, sector as u32 * self.unit).unwrap();
        assert_eq!(self.card.take(&[fill; 512], true, self.now), Token::Accepted);
        self.now = self.now.max(self.card.busy_until(self.now));
    }
    /// The first byte of a sector, and when it was there after the command.
    fn read(&mut self, sector: u64) -> (u8, Duration) {
        self.short(17, sector as u32 * self.unit).unwrap();
        let late = self.card.ready(0).since(self.now);
        let mut block = [0; 512];
        assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        (block[0], late)
    }
    fn switch(&mut self, offset: u32, value: u32) -> bool {
        self.short(6, 3 << 24 | offset << 16 | value << 8 | 1).unwrap();
        self.now = self.now.max(self.card.busy_until(self.now));
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
fn an_interrupt_breaks_a_card_that_offers_it() {
    let mut h = Host::good("hynix-hpi");
    assert_eq!(h.ext.as_ref().unwrap()[503] & 1, 1, "it says so");
    assert!(h.switch(161, 1));
    h.short(6, 3 << 24 | 179 << 16 | 1 << 8).unwrap();
    assert_eq!(h.card.state(h.now), MmcState::Prg);
    h.short(12, RCA | 1);
    h.now += Duration::from_secs(1);
    assert!(h.short(13, RCA).is_none());
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

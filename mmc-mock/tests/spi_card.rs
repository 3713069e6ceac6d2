//! An SD card on an SPI bus, byte by byte as a host of the standard would see it (`spec/card.md` §16).

use mmc_mock::card::{MmcCard, SdCard, SdConfig, Version};
use mmc_mock::drive::{Bound, Overrun};
use mmc_mock::spi::{Spi, SpiConfig, SpiMmc, SpiMode, SpiSd};
use mmc_mock::timing::Profile;
use mmc_mock::{Clock, zoo};
use mmc_time::Duration;
use proptest::prelude::*;

fn crc7(bytes: &[u8]) -> u8 {
    let mut crc = 0_u8;
    for bit in bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)) {
        let top = crc >> 6 & 1;
        crc = crc << 1 & 0x7f;
        if top != bit {
            crc ^= 9;
        }
    }
    crc
}

fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for bit in bytes.iter().flat_map(|b| (0..8).rev().map(move |i| b >> i & 1)) {
        let top = crc >> 15;
        crc <<= 1;
        if top != u16::from(bit) {
            crc ^= 0x1021;
        }
    }
    crc
}

/// A host that knows the standard and waits for at most a second.
struct Host<C = SpiSd>(Spi<C>);

impl Host {
    fn new(config: SdConfig, script: &str, wires: SpiConfig) -> Self {
        let spi =
            Spi::new(SdCard::new(config).unwrap(), script.parse().unwrap(), wires, Clock::new()).unwrap();
        spi.bounded(Bound { time: Duration::from_secs(20), steps: 4_000_000 });
        spi.start_up().unwrap();
        spi.select(true);
        Self(spi)
    }
    fn ready(config: SdConfig, script: &str, wires: SpiConfig) -> Self {
        let host = Self::new(config, script, wires);
        host.initialise().unwrap();
        host.0.set_hz(25_000_000);
        host
    }
}

impl<C: SpiMode> Host<C> {
    fn byte(&self) -> u8 {
        self.0.exchange(0xff).unwrap()
    }
    fn bytes(&self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.byte()).collect()
    }
    fn frame(&self, index: u8, arg: u32) {
        let [a, b, c, d] = arg.to_be_bytes();
        let f = [0x40 | index, a, b, c, d];
        for byte in f.into_iter().chain([crc7(&f) << 1 | 1]) {
            self.0.exchange(byte).unwrap();
        }
    }
    /// The R1; `None` when there is none within eight bytes.
    fn command(&self, index: u8, arg: u32) -> Option<u8> {
        self.frame(index, arg);
        if index == 12 {
            self.byte();
        }
        (0..9).map(|_| self.byte()).find(|b| b & 0x80 == 0)
    }
    fn app(&self, index: u8, arg: u32) -> Option<u8> {
        self.command(55, 0)?;
        self.command(index, arg)
    }
    /// Bytes of busy.
    fn busy(&self) -> u64 {
        let mut n = 0;
        while self.byte() != 0xff {
            n += 1;
            assert!(n < 1_000_000, "busy for ever");
        }
        n
    }
    /// The token and the block; its CRC must be right.
    fn read(&self, len: usize) -> Result<Vec<u8>, u8> {
        let token = (0..200_000).map(|_| self.byte()).find(|&b| b != 0xff).unwrap_or(0xff);
        if token != 0xfe {
            return Err(token);
        }
        let (block, crc) = (self.bytes(len), self.bytes(2));
        if crc == crc16(&block).to_be_bytes() { Ok(block) } else { Err(0xfe) }
    }
    fn write(&self, token: u8, block: &[u8]) -> u8 {
        self.byte();
        let crc = crc16(block).to_be_bytes();
        for &b in [token].iter().chain(block).chain(&crc) {
            self.0.exchange(b).unwrap();
        }
        self.byte() & 0x1f
    }
    fn initialise(&self) -> Result<bool, String> {
        if self.command(0, 0) != Some(1) {
            return Err("CMD0".into());
        }
        let v2 = match self.command(8, 0x1aa) {
            Some(1) => {
                assert_eq!(self.bytes(4)[3], 0xaa, "the pattern; one card of the zoo gives no voltage");
                true
            }
            Some(5) => false,
            other => return Err(format!("CMD8: {other:?}")),
        };
        for _ in 0..200 {
            match self.app(41, u32::from(v2) << 30) {
                Some(0) => {
                    assert_eq!(self.command(58, 0), Some(0));
                    return Ok(self.bytes(4)[0] & 0x40 != 0);
                }
                Some(1) => self.0.wait(Duration::from_millis(10)),
                other => return Err(format!("ACMD41: {other:?}")),
            }
        }
        Err("never ready".into())
    }
    fn violations(&self) -> Vec<String> {
        self.0.violations()
    }
}

fn ideal() -> SdConfig {
    SdConfig::new(Profile::ideal(), 1)
}

#[test]
fn every_card_of_the_zoo_comes_up_and_shows_its_registers() {
    for preset in zoo::list() {
        let config = zoo::card(preset.name, Profile::ideal(), 1).unwrap();
        let (cid, csd, scr) = (config.cid(), config.csd(0), config.scr());
        let high = config.capacity() != mmc_mock::card::Capacity::Standard;
        let h = Host::new(config, "", SpiConfig::default());
        if matches!(preset.name, "sduc-4tb" | "left-at-1v8") {
            assert_eq!(h.initialise(), Err("CMD0".into()), "{} has no SPI mode", preset.name);
            continue;
        }
        assert_eq!(h.initialise(), Ok(high), "{}", preset.name);
        for (index, register) in [(9, csd), (10, cid)] {
            assert_eq!(h.command(index, 0), Some(0));
            assert_eq!(h.read(16).as_deref(), Ok(&register[..]), "{}", preset.name);
        }
        assert_eq!(h.app(51, 0), Some(0));
        assert_eq!(h.read(8).as_deref(), Ok(&scr[..]), "{}", preset.name);
        assert_eq!(h.violations(), Vec::<String>::new(), "{}", preset.name);
    }
}

#[test]
fn blocks_go_out_and_come_back() {
    let h = Host::ready(SdConfig::new(Profile::slow2018(), 1), "", SpiConfig::default());
    let block = |n: u8| -> Vec<u8> { (0..512).map(|i| (i as u8) ^ n).collect() };
    assert_eq!(h.command(24, 7), Some(0));
    assert_eq!(h.write(0xfe, &block(1)), 5);
    assert!(h.busy() > 50, "the profile's time for a write");
    assert_eq!((h.command(13, 0), h.byte()), (Some(0), 0));
    // Several, ended by the stop token.
    assert_eq!(h.app(23, 3), Some(0));
    assert_eq!(h.command(25, 8), Some(0));
    for n in 2..5 {
        assert_eq!(h.write(0xfc, &block(n)), 5);
        h.busy();
    }
    h.0.exchange(0xfd).unwrap();
    h.byte();
    assert!(h.busy() > 50);
    assert_eq!(h.app(22, 0), Some(0));
    assert_eq!(h.read(4).as_deref(), Ok(&[0, 0, 0, 3][..]), "well written");
    // And back: one, then several, ended by CMD12.
    assert_eq!(h.command(17, 7), Some(0));
    assert_eq!(h.read(512), Ok(block(1)));
    assert_eq!(h.command(18, 8), Some(0));
    for n in 2..5 {
        assert_eq!(h.read(512), Ok(block(n)));
    }
    assert_eq!(h.command(12, 0), Some(0));
    h.busy();
    // An erase is a busy command, too.
    for (index, arg) in [(32, 8), (33, 9), (38, 0)] {
        assert_eq!(h.command(index, arg), Some(0));
    }
    h.busy();
    assert_eq!(h.command(17, 8), Some(0));
    assert_eq!(h.read(512), Ok(vec![0; 512]));
    assert_eq!(h.violations(), Vec::<String>::new());
}

#[test]
fn what_is_wrong_is_said_in_the_right_place() {
    let h = Host::ready(ideal(), "", SpiConfig::default());
    assert_eq!(h.command(17, 16_777_216), Some(0x40), "parameter error: out of range");
    assert_eq!(h.command(2, 0), Some(4), "no CMD2 in SPI mode");
    assert_eq!(h.command(13, 0), Some(0));
    assert_eq!(h.byte(), 0, "and told once");
    // Reading over the end: the block before is good, then a token says out of range.
    assert_eq!(h.command(18, 16_777_215), Some(0));
    assert!(h.read(512).is_ok());
    assert_eq!(h.read(512), Err(8));
    assert_eq!(h.command(12, 0).map(|r| r & 0xf), Some(0));
    h.busy();
    // With CRCs on a damaged block is refused, one command with a wrong CRC7, too.
    assert_eq!(h.command(59, 1), Some(0));
    assert_eq!(h.command(24, 3), Some(0));
    h.byte();
    for b in [0xfe].into_iter().chain([9; 512]).chain([0, 0]) {
        h.0.exchange(b).unwrap();
    }
    assert_eq!(h.byte() & 0x1f, 0x0b);
    h.busy();
    for b in [0x51, 0, 0, 0, 3, 0xff] {
        h.0.exchange(b).unwrap();
    }
    assert_eq!(h.bytes(2)[1], 8);
    assert_eq!(h.command(17, 3), Some(0));
    assert_eq!(h.read(512), Ok(vec![0; 512]), "nothing was stored");
    // Byte addresses of an SDSC card must be those of blocks when it writes.
    let small = SdConfig { version: Version::V2, sectors: 1 << 20, cmd23: false, ..ideal() };
    let h = Host::ready(small, "", SpiConfig::default());
    assert_eq!(h.command(24, 100), Some(0x20));
}

#[test]
fn a_host_that_breaks_the_rules_is_written_down() {
    let spi =
        Spi::new(SdCard::new(ideal()).unwrap(), "".parse().unwrap(), SpiConfig::default(), Clock::new())
            .unwrap();
    let h = Host(spi);
    h.0.select(true);
    assert_eq!(h.command(8, 0x1aa), None, "it is still a card of the SD bus");
    assert_eq!(h.command(0, 0), Some(1));
    h.0.set_hz(25_000_000);
    assert_eq!(h.command(55, 0), Some(1));
    let said = h.violations();
    for part in ["CMD8 before CMD0", "0 clocks since power-up"] {
        assert!(said.iter().any(|v| v.contains(part)), "{part}: {said:?}");
    }
    let h = Host::ready(SdConfig::new(Profile::slow2018(), 1), "", SpiConfig::default());
    assert_eq!(h.command(24, 0), Some(0));
    assert_eq!(h.write(0xfe, &[1; 512]), 5);
    h.frame(17, 0);
    assert_eq!(h.byte(), 0, "busy: nobody listens");
    assert!(h.violations().contains(&"CMD17 while the card is busy".into()));
    h.busy();
    assert_eq!(h.command(25, 0), Some(0));
    assert_eq!(h.0.exchange(0xfe).map(|_| h.violations().len()), Ok(2), "FE is the token of CMD24");
}

#[test]
fn faults_strike_on_these_wires_too() {
    let h = Host::ready(
        ideal(),
        "at CMD17: no-answer\nat CMD17#1: block 0 crc\nat CMD17#2: block 0 missing\nat CMD17#3: command-crc\n\
         at CMD24: block 0 missing\nat CMD24#1: busy 30ms\nat 10s: power-loss none\nat 11s: remove",
        SpiConfig::default(),
    );
    let stop = || {
        assert_eq!(h.command(12, 0), Some(0));
        h.busy();
    };
    assert_eq!(h.command(17, 0), None);
    stop();
    assert_eq!((h.command(17, 0), h.read(512)), (Some(0), Err(0xfe)));
    assert_eq!((h.command(17, 0), h.read(512)), (Some(0), Err(0xff)));
    stop();
    assert_eq!(h.command(17, 0), Some(8));
    assert_eq!((h.command(24, 0), h.write(0xfe, &[1; 512])), (Some(0), 0x1f));
    assert_eq!((h.command(24, 0), h.write(0xfe, &[1; 512])), (Some(0), 5));
    let busy = h.busy();
    assert!((90_000..94_000).contains(&busy), "30 ms at 25 MHz: {busy}");
    h.0.wait(Duration::from_secs(10).saturating_sub(h.0.spent().time));
    assert_eq!(h.command(17, 0), None, "it is not even in SPI mode");
    h.0.set_hz(400_000);
    assert_eq!(h.initialise(), Ok(true));
    h.0.wait(Duration::from_secs(11).saturating_sub(h.0.spent().time));
    assert_eq!(h.command(13, 0), None);
    assert_eq!(h.bytes(4), [0xff; 4]);
    assert!(h.0.with(|c| c.waiting().is_empty()));
}

#[test]
fn odd_wires() {
    let h = Host::ready(ideal(), "", SpiConfig { response_delay: 8, ..SpiConfig::default() });
    assert_eq!(h.command(13, 0), Some(0));
    h.byte();
    h.frame(12, 0);
    assert_eq!(h.byte(), 0xff, "the stuff byte");
    let h = Host::ready(ideal(), "", SpiConfig { stuff: 0x7f, no_crc_command: true, ..SpiConfig::default() });
    assert_eq!(h.command(59, 1), Some(4));
    assert_eq!(h.command(18, 0), Some(0));
    h.frame(12, 0);
    assert_eq!(h.byte(), 0x7f);
    let h =
        Host::new(ideal(), "", SpiConfig { low_until_cmd0: true, always_crc: true, ..SpiConfig::default() });
    assert_eq!(h.byte(), 0);
    assert_eq!(h.initialise(), Ok(true));
    for b in [0x4d, 0, 0, 0, 0, 0xff] {
        h.0.exchange(b).unwrap();
    }
    assert_eq!(h.bytes(2)[1], 8, "a command without a CRC");
}

#[test]
fn a_host_that_waits_without_an_end_is_stopped() {
    let h = Host::ready(ideal(), "every CMD17: block 0 missing", SpiConfig::default());
    h.0.bounded(Bound { time: Duration::from_millis(100), steps: 1_000_000 });
    h.command(17, 0);
    let e = loop {
        if let Err(e) = h.0.exchange(0xff) {
            break e;
        }
    };
    assert!(matches!(e, Overrun::Time { .. }), "{e}");
    assert!(h.0.spent().time <= Duration::from_millis(100));
    assert!(h.0.exchange(0xff).is_err(), "and stays so");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]

    /// Any bytes, with chip select up and down: no panic, bounded lists, and only what was written is changed.
    #[test]
    fn any_bytes_leave_a_card_that_starts_again(
        bytes in prop::collection::vec(prop_oneof![
            4 => Just(0xff_u8),
            2 => any::<u8>(),
            1 => prop::sample::select(vec![0xfe_u8, 0xfc, 0xfd, 0x40, 0x51, 0x52, 0x58, 0x59, 0x4c, 0x77, 0x69, 0x95])
        ], 0..800),
        frames in prop::collection::vec((0..64_u8, 0..9000_u32, any::<bool>()), 0..30),
        strict in any::<bool>(),
    ) {
        let h = Host::ready(ideal(), "", SpiConfig { strict_select: strict, ..SpiConfig::default() });
        prop_assert!(survives(&h, &bytes, &frames));
        prop_assert_eq!(h.initialise(), Ok(true));
        let h = mmc("takems-256mb", "");
        wake(&h);
        prop_assert!(survives(&h, &bytes, &frames));
        wake(&h);
    }
}

/// Whether the card hears CMD0 after all this.
fn survives<C: SpiMode>(h: &Host<C>, bytes: &[u8], frames: &[(u8, u32, bool)]) -> bool {
    let mut rest = bytes.iter();
    for &(index, arg, toggle) in frames {
        h.frame(index, arg);
        for b in rest.by_ref().take(30) {
            h.0.exchange(*b).unwrap();
        }
        if toggle {
            h.0.select(false);
            h.0.select(true);
        }
    }
    for b in rest {
        h.0.exchange(*b).unwrap();
    }
    assert!(h.violations().len() <= 600);
    // Whatever it thinks it is doing, a block's worth of clocks and CMD0 end it.
    h.bytes(520);
    (0..4).any(|_| h.command(0, 0) == Some(1))
}

#[test]
fn a_card_that_is_busy_after_cmd55_is_waited_for() {
    let wires = SpiConfig { busy_after_app: 16, ..SpiConfig::default() };
    let h = Host::new(ideal(), "", wires);
    assert_eq!(
        h.initialise(),
        Ok(false),
        "a host that takes busy for an answer, and so the card for a small one"
    );
    assert!(h.violations().iter().any(|v| v == "CMD41 while the card is busy"), "{:?}", h.violations());

    let h = Host::new(ideal(), "", wires);
    assert_eq!((h.command(0, 0), h.command(8, 0x1aa)), (Some(1), Some(1)));
    h.bytes(4);
    for _ in 0..100 {
        assert_eq!(h.command(55, 0), Some(1));
        assert_eq!(h.busy(), 16);
        if h.command(41, 1 << 30) == Some(0) {
            assert_eq!(h.violations(), Vec::<String>::new());
            return;
        }
        h.0.wait(Duration::from_millis(10));
    }
    panic!("never ready");
}

#[test]
fn the_last_sector_is_read_by_itself_and_some_cards_know_no_cmd18() {
    let last = ideal().sectors as u32 - 1;
    let wires = SpiConfig { last_by_single_only: true, ..SpiConfig::default() };
    let h = Host::ready(ideal(), "", wires);
    assert_eq!(h.command(18, last - 1), Some(0));
    assert!(h.read(512).is_ok());
    assert_eq!(h.read(512), Err(0xfe), "a wrong CRC");
    h.command(12, 0);
    h.busy();
    assert_eq!(h.command(17, last), Some(0));
    assert!(h.read(512).is_ok());

    let h = Host::ready(ideal(), "", SpiConfig { no_multi_read: true, ..SpiConfig::default() });
    assert_eq!(h.command(18, 0), Some(0));
    assert_eq!(h.read(512), Err(0xff), "no token");
    h.command(12, 0);
    h.busy();
    assert_eq!(h.command(17, 0), Some(0));
    assert!(h.read(512).is_ok());
}

/// An MMC card after the 80 clocks, selected.
fn mmc(name: &str, script: &str) -> Host<SpiMmc> {
    let card = MmcCard::new(zoo::mmc(name, Profile::ideal(), 1).unwrap()).unwrap();
    let spi = Spi::mmc(card, script.parse().unwrap(), SpiConfig::default(), Clock::new()).unwrap();
    spi.bounded(Bound { time: Duration::from_secs(20), steps: 4_000_000 });
    spi.start_up().unwrap();
    spi.select(true);
    Host(spi)
}

/// CMD1 until the card is ready; whether it counts sectors.
fn wake(h: &Host<SpiMmc>) -> bool {
    assert_eq!(h.command(0, 0), Some(1));
    assert_eq!(h.command(8, 0x1aa), Some(5), "no SD card of version 2");
    assert_eq!(h.command(55, 0), Some(5), "no SD card at all");
    for _ in 0..100 {
        match h.command(1, 1 << 30) {
            Some(0) => {
                assert_eq!(h.command(58, 0), Some(0));
                return h.bytes(4)[0] & 0x40 != 0;
            }
            Some(1) => h.0.wait(Duration::from_millis(10)),
            other => panic!("CMD1: {other:?}"),
        }
    }
    panic!("never ready");
}

#[test]
fn an_mmc_card_is_told_from_an_sd_card_and_serves() {
    for (name, ext_csd) in [("mmc-6600-32mb", false), ("takems-256mb", true)] {
        let h = mmc(name, "");
        let config = zoo::mmc(name, Profile::ideal(), 1).unwrap();
        assert_eq!(wake(&h), config.sector_addressed(), "{name}");
        h.0.set_hz(20_000_000);
        for (index, register) in [(9, config.csd), (10, config.cid)] {
            assert_eq!(h.command(index, 0), Some(0));
            assert_eq!(h.read(16).unwrap()[..15], register[..15], "{name}");
        }
        assert_eq!(h.command(8, 0), Some(if ext_csd { 0 } else { 4 }), "{name}: EXT_CSD");
        if ext_csd {
            assert_eq!(h.read(512).unwrap()[..], config.ext_csd.as_ref().unwrap()[..], "{name}");
        }
        let block: Vec<u8> = (0..512).map(|i| (i / 3) as u8).collect();
        assert_eq!(h.command(24, 7 * 512), Some(0));
        assert_eq!(h.write(0xfe, &block), 5);
        h.busy();
        assert_eq!((h.command(13, 0), h.byte()), (Some(0), 0));
        assert_eq!(h.command(18, 6 * 512), Some(0));
        assert_eq!(h.read(512), Ok(vec![0; 512]));
        assert_eq!(h.read(512), Ok(block), "{name}");
        h.command(12, 0);
        h.busy();
        assert_eq!(h.command(2, 0), Some(4), "there is no CMD2 in SPI mode");
        assert_eq!(h.violations(), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn an_mmc_card_tells_why_it_refuses_a_block() {
    let h = mmc("takems-256mb", "at CMD17: block 0 crc");
    wake(&h);
    let last = (zoo::mmc("takems-256mb", Profile::ideal(), 1).unwrap().sectors() - 1) as u32 * 512;
    assert_eq!(h.command(25, last), Some(0));
    assert_eq!(h.write(0xfc, &[1; 512]), 5);
    h.busy();
    assert_eq!(h.write(0xfc, &[1; 512]), 0x0d, "write error: behind the end");
    h.busy();
    h.command(12, 0);
    h.busy();
    assert_eq!((h.command(17, 0), h.read(512)), (Some(0), Err(0xfe)), "the script strikes");
    assert_eq!((h.command(17, 0), h.read(512)), (Some(0), Ok(vec![0; 512])));
}

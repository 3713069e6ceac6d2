//! The standard controller, with a driver that knows its way and sometimes loses it: transfers of every kind on a card that is
//! damaged, late or taken out, descriptors good and bad, tuning, resets, and registers written at random.

use super::{Digest, Random};
use mmc_hal::Mmio;
use mmc_mock::card::{SdCard, SdConfig, Shared, Uhs};
use mmc_mock::fault::What;
use mmc_mock::sdhci::{Config, Sdhci};
use mmc_mock::timing::Profile;
use mmc_mock::{Clock, Memory, Wakes};
use mmc_time::{Duration, Instant};

const LIVES: u32 = 96;
const STEPS: u32 = 60;
const BASE: u64 = 0x1_0000;

struct Driver {
    host: Sdhci<Shared<SdCard>>,
    card: Shared<SdCard>,
    clock: Clock,
    memory: Memory,
    table: u64,
    buffer: u64,
    random: Random,
    digest: Digest,
    rca: u32,
}

impl Driver {
    fn r(&mut self, offset: u32) -> u32 {
        let value = self.host.read32(offset);
        self.digest.say(format_args!("{offset:x}={value:x} "));
        value
    }
    fn w(&mut self, offset: u32, value: u32) {
        self.host.write32(offset, value);
    }
    /// To the next event, if there is one soon.
    fn step(&mut self) -> bool {
        let at = self.host.next_event();
        self.digest.say(format_args!("{at:?} {}", self.host.irq()));
        let soon = at < self.clock.now() + Duration::from_secs(20);
        if soon {
            self.clock.advance_to(at);
        }
        soon
    }
    /// Until one of these interrupts is there; what is there, acknowledged.
    fn wait(&mut self, bits: u32) -> u32 {
        for _ in 0..64 {
            let status = self.host.read32(0x30);
            if status & bits != 0 {
                break;
            }
            if !self.step() {
                break;
            }
        }
        let status = self.r(0x30);
        self.w(0x30, status);
        status
    }
    /// A command without data.
    fn command(&mut self, index: u32, arg: u32) -> u32 {
        let kind = match index {
            0 | 4 | 15 => 0,
            2 | 9 | 10 => 0x09,
            7 | 12 | 28 | 38 => 0x1b,
            41 => 0x02,
            _ => 0x1a,
        };
        let kind = if index == 12 { kind | 0xc0 } else { kind };
        self.w(0x08, arg);
        self.w(0x0c, index << 24 | kind << 16);
        let status = self.wait(0xffff_0001);
        if kind & 3 == 3 && status & 0xffff_0000 == 0 {
            self.wait(0xffff_0002);
        }
        for word in 0..4 {
            self.r(0x10 + 4 * word);
        }
        self.host.read32(0x10)
    }
    fn clock_on(&mut self, divisor: u32) {
        self.w(0x2c, 0);
        self.w(0x2c, divisor << 8 | 1);
        self.r(0x2c);
        self.w(0x2c, divisor << 8 | 5);
        self.clock.advance(Duration::from_millis(1));
    }
    fn identify(&mut self) {
        self.w(0x2c, 1 << 24);
        self.r(0x2c);
        self.w(0x34, 0xffff_ffff);
        let enabled = if self.random.one_in(4) { self.random.word() } else { 0xffff_ffff };
        self.w(0x38, enabled);
        self.w(0x28, 0xf << 8);
        self.clock_on(0xfa);
        self.command(0, 0);
        self.command(8, 0x1aa);
        let low = self.random.one_in(2);
        for _ in 0..8 {
            self.command(55, 0);
            let ocr = self.command(41, if low { 0x5130_0000 } else { 0x5030_0000 });
            if ocr & 1 << 31 != 0 {
                break;
            }
            self.clock.advance(Duration::from_millis(100));
        }
        if low {
            self.command(11, 0);
            self.w(0x2c, 0);
            self.r(0x24);
            self.clock.advance(Duration::from_millis(5));
            self.w(0x3c, 1 << 19);
            self.clock_on(0xfa);
            self.r(0x24);
        }
        self.command(2, 0);
        self.rca = self.command(3, 0) & 0xffff_0000;
        self.command(9, self.rca);
        self.command(7, self.rca);
        let divisor = self.random.of(&[4, 4, 1, 0]);
        self.clock_on(divisor);
        if self.random.one_in(2) {
            self.command(55, self.rca);
            self.command(6, 2);
            let fast = self.random.below(2) as u32;
            self.w(0x28, 0xf << 8 | 2 | fast << 2);
        }
        if low {
            let mode = self.random.below(5) as u32;
            self.w(0x3c, 1 << 19 | mode << 16);
        }
    }
    /// A table of descriptors over the buffer, sometimes a bad one.
    fn describe(&mut self, bytes: u32, wide: bool) {
        let (mut at, mut left, mut words) = (self.buffer as u32, bytes, Vec::new());
        while left > 0 || words.is_empty() {
            let n = if self.random.one_in(2) { left } else { (1 + self.random.below(700) as u32).min(left) };
            left -= n;
            let end = if left == 0 { 2 } else { 0 };
            let attributes =
                if self.random.one_in(40) { self.random.of(&[0, 0x11, 0x31, 0x01]) } else { 0x21 };
            words.extend([n << 16 | attributes | end, if self.random.one_in(60) { 0x9000_0000 } else { at }]);
            if wide {
                words.push(u32::from(self.random.one_in(60)));
            }
            at += n;
        }
        if self.random.one_in(20) {
            words.truncate(words.len() / 2);
        }
        let filled = self.memory.with(self.table, |ram| {
            ram.fill(0);
            for (place, word) in ram.chunks_exact_mut(4).zip(&words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        });
        assert!(filled.is_some(), "the table is there");
    }
    fn transfer(&mut self) {
        let read = self.random.one_in(2);
        let blocks = self.random.of(&[1, 1, 2, 3, 5]);
        let multi = blocks > 1 || self.random.one_in(4);
        let len = if self.random.one_in(12) { self.random.of(&[8, 64, 510]) } else { 512 };
        let auto = if multi { self.random.below(3) as u32 } else { 0 };
        let dma = self.random.one_in(2);
        let wide = self.random.one_in(2);
        let index = match (read, multi) {
            (true, false) => 17,
            (true, true) => 18,
            (false, false) => 24,
            (false, true) => 25,
        };
        if dma {
            let host = self.host.read32(0x28) & !0x18;
            self.w(0x28, host | if wide { 0x18 } else { 0x10 });
            self.describe(blocks * len, wide);
            self.w(0x58, self.table as u32);
            self.w(0x5c, (self.table >> 32) as u32);
        }
        self.w(0x00, blocks);
        self.w(0x04, blocks << 16 | len);
        let sector = if self.random.one_in(16) { u32::MAX } else { self.random.below(30) as u32 };
        self.w(0x08, sector);
        let mode =
            u32::from(dma) | u32::from(multi) << 1 | auto << 2 | u32::from(read) << 4 | u32::from(multi) << 5;
        let wrong = if self.random.one_in(16) { 1 << 4 } else { 0 };
        self.w(0x0c, index << 24 | 0x3a << 16 | mode ^ wrong);
        let mut status = self.wait(0xffff_0001);
        for _ in 0..8 {
            if status & 0xffff_0002 != 0 || self.random.one_in(40) {
                break;
            }
            status = self.wait(0xffff_0032);
            let words = if self.random.one_in(40) { 5 } else { len.div_ceil(4) };
            for i in 0..words {
                if status & 0x20 != 0 {
                    self.r(0x20);
                } else if status & 0x10 != 0 {
                    self.w(0x20, i.wrapping_mul(0x0101_0107));
                }
            }
            self.r(0x24);
        }
        self.r(0x1c);
        self.r(0x3c);
        if multi && auto != 1 && !self.random.one_in(8) || status & 0xffff_0000 != 0 {
            self.command(12, 0);
        }
        if status & 0xffff_0000 != 0 && !self.random.one_in(8) {
            self.w(0x2c, self.host.read32(0x2c) | 6 << 24);
            self.r(0x2c);
        }
    }
    fn tune(&mut self) {
        let host2 = self.host.read32(0x3c);
        self.w(0x3c, host2 | 1 << 22);
        for _ in 0..self.random.of(&[3, 42]) {
            self.w(0x04, 64);
            self.w(0x08, 0);
            self.w(0x0c, 19 << 24 | 0x3a << 16 | 1 << 4);
            self.wait(0xffff_0020);
            if self.r(0x3c) & 1 << 22 == 0 {
                break;
            }
        }
        self.digest.say(format_args!("{} {}", self.host.phase(), self.host.tunings()));
        if self.random.one_in(3) {
            let host2 = self.host.read32(0x3c);
            self.w(0x3c, host2 & !(1 << 22 | 1 << 23));
        }
    }
    fn act(&mut self) {
        match self.random.below(24) {
            0..=11 => self.transfer(),
            12 => self.tune(),
            13 => {
                let (index, arg) = (self.random.of(&[13, 13, 7, 12, 55, 38, 32, 33]), self.rca);
                self.command(index, arg);
            }
            14 => {
                let offset = self.random.below(64) as u32 * 4;
                let value = self.random.word();
                self.w(offset, value);
                self.step();
            }
            15 => {
                self.host.ask_to_retune();
                self.r(0x24);
            }
            16 => self.host.fail_tuning(),
            17 => {
                let first = self.card.lock().log().count();
                let (at, what) = (self.random.below(4), self.random.below(4) as u32);
                let what = self.random.of(&[
                    What::NoAnswer,
                    What::CommandCrc,
                    What::ResponseCrc,
                    What::BlockCrc(what),
                    What::BlockMissing(what),
                    What::Status(1 << 19),
                    What::Stuck,
                ]);
                self.card.lock().faults_mut().push(first + at, what);
            }
            18 if self.random.one_in(3) => {
                self.card.lock().set_present(false);
                self.r(0x24);
                self.transfer();
                self.card.lock().set_present(true);
                self.r(0x30);
                self.identify();
            }
            19 => self.w(0x30, 0xffff_ffff),
            20 if self.random.one_in(4) => {
                let stuck = self.random.of(&[0, 1 << 24, 2 << 24, 4 << 24]);
                self.host.configure(|c| c.stuck_resets = stuck);
                self.w(0x2c, self.host.read32(0x2c) | 7 << 24);
                self.r(0x2c);
                self.host.configure(|c| c.stuck_resets = 0);
                self.identify();
            }
            21 => self.clock.advance(Duration::from_millis(700)),
            22 if self.random.one_in(3) => self.identify(),
            _ => {
                self.step();
            }
        }
        for offset in [0x0c, 0x10, 0x24, 0x28, 0x2c, 0x30, 0x3c] {
            self.r(offset);
        }
    }
}

fn live(life: u32) -> String {
    let mut random = Random::new("SDHCI", life);
    let uhs = Some(Uhs::new(5)).filter(|_| !life.is_multiple_of(4));
    let power_up = Duration::from_millis(u64::from(life % 3) * 90);
    let config = SdConfig { power_up, uhs, ..SdConfig::new(Profile::cheap(), 3) };
    let card = Shared::new(SdCard::new(config).expect("it is a card"));
    let (clock, memory) = (Clock::new(), Memory::new(BASE, 1 << 20));
    let mut config = Config::retuned(random.below(4) as u32, random.below(4) as u32);
    config.taps = random.of(&[16, 16, 40, 5, 41]);
    config.never_locks = random.one_in(8);
    let (table, buffer) = (memory.alloc(1024), memory.alloc(4096));
    let host = Sdhci::new(card.clone(), clock.clone(), memory.clone(), config);
    let mut driver =
        Driver { host, card, clock, memory, table, buffer, random, digest: Digest::new(), rca: 0 };
    driver.identify();
    for _ in 0..STEPS {
        driver.act();
    }
    for offset in (0..0x100).step_by(4) {
        driver.r(offset);
    }
    let (ram, violations) = (driver.memory.with(buffer, |ram| ram.to_vec()), driver.host.violations());
    let log = format!("{:?}", driver.card.lock().log());
    driver.digest.say(format_args!("{ram:?} {violations:?} {log}"));
    let now = driver.clock.now().since(Instant::ZERO);
    let (said, digest) = (driver.digest.1, driver.digest.0);
    format!("{life}: {said} {digest:016x}, {} broken rules, {} ns", violations.len(), now.as_nanos())
}

pub(super) fn lives() -> Vec<String> {
    (0..LIVES).map(live).collect()
}

//! Cards on an SPI bus, byte by byte: commands with right and wrong CRCs, blocks both ways, a host that deselects in the middle
//! or sends anything, and cards of every character that follow a script.

use super::cards::script;
use super::{Digest, Random};
use mmc_mock::card::{MmcCard, SdCard};
use mmc_mock::spi::{Spi, SpiConfig, SpiMode};
use mmc_mock::timing::Profile;
use mmc_mock::{Clock, zoo};
use mmc_proto::crc::{crc7_byte, crc16};
use mmc_time::Duration;

const STEPS: u32 = 120;

struct Bus<C> {
    spi: Spi<C>,
    random: Random,
    digest: Digest,
}

impl<C: SpiMode> Bus<C> {
    fn byte(&mut self, out: u8) -> u8 {
        let answer = self.spi.exchange(out).expect("no bound is set");
        self.digest.say(format_args!("{answer:x} "));
        answer
    }
    /// Until a byte that is not `idle`, at most so many.
    fn until_other(&mut self, idle: u8, most: u32) -> u8 {
        for _ in 0..most {
            let byte = self.byte(0xff);
            if byte != idle {
                return byte;
            }
        }
        idle
    }
    fn command(&mut self, index: u8, arg: u32) -> u8 {
        let a = arg.to_be_bytes();
        let mut frame = [0x40 | index, a[0], a[1], a[2], a[3], 0];
        frame[5] = crc7_byte(&frame[..5]) ^ if self.random.one_in(24) { 2 } else { 0 };
        for byte in frame {
            self.byte(byte);
        }
        if index == 12 {
            self.byte(0xff);
        }
        let r1 = self.until_other(0xff, 10);
        for _ in 0..match index {
            8 | 58 => 4,
            13 => 1,
            _ => 0,
        } {
            self.byte(0xff);
        }
        r1
    }
    fn wait_ready(&mut self) {
        for _ in 0..6 {
            if self.until_other(0, 4) == 0xff {
                return;
            }
            self.spi.wait(Duration::from_millis(40));
        }
    }
    fn start(&mut self, mmc: bool) {
        self.spi.start_up().expect("no bound is set");
        self.spi.select(true);
        self.command(0, 0);
        if !mmc {
            self.command(8, 0x1aa);
        }
        for _ in 0..12 {
            let r1 = if mmc {
                self.command(1, 1 << 30)
            } else {
                self.command(55, 0);
                self.command(41, 1 << 30)
            };
            if r1 == 0 {
                break;
            }
            self.spi.wait(Duration::from_millis(60));
        }
        self.command(58, 0);
        if self.random.one_in(2) {
            self.command(59, 1);
        }
        self.spi.set_hz(20_000_000);
    }
    fn read_block(&mut self, len: usize) -> bool {
        let mut token = 0xff;
        for _ in 0..4 {
            token = self.until_other(0xff, 8);
            if token != 0xff {
                break;
            }
            self.spi.wait(Duration::from_millis(30));
        }
        if token == 0xfe {
            for _ in 0..len + 2 {
                self.byte(0xff);
            }
        }
        token == 0xfe
    }
    fn write_block(&mut self, token: u8, len: usize) -> bool {
        self.byte(0xff);
        self.byte(token);
        let kind = self.random.next() as u8;
        let block: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(kind)).collect();
        let crc = crc16(&block).to_be_bytes();
        let bad = u8::from(self.random.one_in(16));
        for byte in block.iter().copied().chain([crc[0], crc[1] ^ bad]) {
            self.byte(byte);
        }
        let response = self.until_other(0xff, 4);
        self.wait_ready();
        response & 0x1f == 5
    }
    fn step(&mut self, mmc: bool) {
        let sector = self.random.below(20) as u32 * self.random.of(&[1, 1, 512]);
        match self.random.below(24) {
            0..=4 => {
                self.command(17, sector);
                self.read_block(512);
            }
            5..=7 => {
                let from = if self.random.one_in(4) { u32::MAX } else { sector };
                self.command(18, from);
                let n = self.random.below(4);
                let mut good = true;
                for _ in 0..n {
                    good = good && self.read_block(512);
                }
                self.command(12, 0);
                self.wait_ready();
            }
            8..=11 => {
                if self.command(24, sector) == 0 || self.random.one_in(8) {
                    self.write_block(0xfe, 512);
                }
                self.command(13, 0);
            }
            12..=14 => {
                if self.command(25, sector) == 0 {
                    for _ in 0..self.random.below(4) {
                        if !self.write_block(0xfc, 512) {
                            break;
                        }
                    }
                    if self.random.one_in(8) {
                        self.command(12, 0);
                    } else {
                        self.byte(0xfd);
                        self.byte(0xff);
                    }
                    self.wait_ready();
                }
            }
            15 => {
                self.command(self.random_register(), 0);
                self.read_block(16);
            }
            16 => {
                let index = self.random.of(&[13, 22, 23, 41, 42, 51]);
                self.command(55, 0);
                if self.command(index, self.random_small()) == 0 {
                    self.read_block(if index == 13 { 64 } else { 8 });
                }
            }
            17 => {
                let (index, arg) = if mmc { (6, 0x03b3_0000) } else { (6, 0x00ff_fff1) };
                self.command(index, arg);
                self.read_block(64);
                self.wait_ready();
            }
            18 => {
                let end = sector + self.random.below(8) as u32;
                for (index, arg) in
                    if mmc { [(35, sector), (36, end), (38, 0)] } else { [(32, sector), (33, end), (38, 0)] }
                {
                    self.command(index, arg);
                }
                self.wait_ready();
            }
            19 => {
                let (index, arg) = (self.random.below(64) as u8, self.random.word());
                self.command(index, arg);
                for _ in 0..20 {
                    self.byte(0xff);
                }
            }
            20 => {
                for _ in 0..self.random.below(12) {
                    let byte = self.random.next() as u8;
                    self.byte(byte);
                }
                self.spi.select(false);
                self.byte(0xff);
                self.spi.select(true);
                self.byte(0xff);
            }
            21 => self.spi.wait(Duration::from_millis(250)),
            22 if self.random.one_in(3) => self.start(mmc),
            22 => {
                let len = self.random.of(&[512, 512, 16, 1]);
                self.command(16, len);
            }
            _ => {
                self.command(13, 0);
            }
        }
    }
    fn random_register(&self) -> u8 {
        9 + (self.digest.1 & 1) as u8
    }
    fn random_small(&self) -> u32 {
        self.digest.1 & 3
    }
    fn live(mut self, name: &str, mmc: bool) -> String {
        self.start(mmc);
        for _ in 0..STEPS {
            self.step(mmc);
        }
        let violations = self.spi.violations();
        self.digest.say(format_args!("{violations:?}"));
        let (said, digest, now) = (self.digest.1, self.digest.0, self.spi.clock().now().as_nanos());
        format!("{name}: {said} {digest:016x}, {} broken rules, {now} ns", violations.len())
    }
}

fn config(random: &mut Random) -> SpiConfig {
    let mut rare = || random.one_in(6);
    let flags = [rare(), rare(), rare(), rare(), rare(), rare(), rare(), rare()];
    let [
        strict_select,
        no_crc_command,
        always_crc,
        low_until_cmd0,
        last_by_single_only,
        no_multi_read,
        illegal_again,
        deaf,
    ] = flags;
    SpiConfig {
        response_delay: random.of(&[1, 1, 2, 8]),
        stuff: random.of(&[0xff, 0x7f, 0x00]),
        strict_select,
        no_crc_command,
        always_crc,
        low_until_cmd0,
        busy_after_app: random.of(&[0, 0, 3]),
        last_by_single_only,
        no_multi_read,
        illegal_again,
        deaf_after_response: deaf,
    }
}

pub(super) fn lives() -> Vec<String> {
    let mut lines = Vec::new();
    for life in 0..4 {
        for preset in zoo::list() {
            let mut random = Random::new(preset.name, 1000 + life);
            let card = zoo::card(preset.name, Profile::cheap(), 5).expect("it is listed");
            let card = SdCard::new(card).expect("every preset is a card");
            let (script, config) = (script(&mut random, life < 2, 40), config(&mut random));
            let spi = Spi::new(card, script, config, Clock::new()).expect("a card follows such a script");
            lines.push(
                Bus { spi, random, digest: Digest::new() }.live(&format!("{} {life}", preset.name), false),
            );
        }
        for preset in zoo::mmc_list().iter().step_by(3) {
            let mut random = Random::new(preset.name, 1000 + life);
            let card = zoo::mmc(preset.name, Profile::cheap(), 5).expect("it is listed");
            let card = MmcCard::new(card).expect("every preset is a card");
            let (script, config) = (script(&mut random, life < 2, 40), config(&mut random));
            let spi = Spi::mmc(card, script, config, Clock::new()).expect("a card follows such a script");
            lines.push(
                Bus { spi, random, digest: Digest::new() }.live(&format!("{} {life}", preset.name), true),
            );
        }
    }
    lines
}

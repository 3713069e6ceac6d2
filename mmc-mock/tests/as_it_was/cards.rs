//! Every card of the zoo, identified as its kind wants it and then driven by commands and data that are more often sensible
//! than not.

use super::{Digest, Random};
use mmc_mock::card::{Bits, Card, MmcCard, Phase, SdCard, SdioCard, Sent, Token};
use mmc_mock::fault::{Faulty, Medium, Script};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_proto::bus::{Signal, Timing};
use mmc_proto::rpmb::{Frame, Request, SoftwareHmac, seal};
use mmc_time::{Duration, Instant};

const LIVES: u32 = 5;
/// Faults that are one word.
const PLAIN: [&str; 8] = [
    "lost",
    "no-answer",
    "command-crc",
    "response-crc",
    "response-index",
    "response-end",
    "remove",
    "insert",
];
const STEPS: u32 = 300;
const KEY: [u8; 32] = [7; 32];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sd,
    Mmc,
    Io,
}

/// A host without manners.
struct Host<'a> {
    card: &'a mut dyn Card,
    kind: Kind,
    random: Random,
    digest: Digest,
    now: Instant,
    rca: u32,
    /// The running data phase, which command opened it, and how many blocks of it have passed.
    phase: Option<(Phase, u8, u32)>,
    /// The write counter that the next frame for the RPMB says: right one time in three.
    written: u32,
}

/// Arguments at random are sectors, bytes and what nobody means.
fn any(random: &mut Random) -> u32 {
    match random.below(8) {
        0 => random.word(),
        1 => random.of(&[u32::MAX, 0x8000_0000, 0x7fff_ffff, 0x1aa, 0x40ff_8000]),
        2 | 3 => random.below(64) as u32 * 512,
        _ => random.below(64) as u32,
    }
}

impl Host<'_> {
    fn command(&mut self, index: u8, arg: u32) -> Option<Bits> {
        let answer = self.card.command(index, arg, self.now);
        self.digest.say(format_args!("{index} {arg:x}: {answer:?}"));
        if let (3, Some(Bits::Short(b)), true) = (index, answer.response, self.kind != Kind::Mmc) {
            self.rca = u32::from_be_bytes([b[1], b[2], 0, 0]);
        }
        if let Some(phase) = answer.data {
            self.phase = Some((phase, index, 0));
        } else if matches!(index, 0 | 12) {
            self.phase = None;
        }
        answer.response
    }
    fn app(&mut self, index: u8, arg: u32) -> Option<Bits> {
        self.command(55, self.rca);
        self.command(index, arg)
    }
    fn wait(&mut self, time: Duration) {
        self.now += time;
    }
    fn wait_ready(&mut self) {
        let busy = self.card.busy_until(self.now);
        if !busy.is_never() {
            self.now = self.now.max(busy);
        }
    }

    fn identify(&mut self) {
        self.card.power(true, self.now);
        self.wait(Duration::from_millis(2));
        self.card.bus(400_000, 1, self.now);
        self.card.idle_clocks(80);
        self.command(0, 0);
        let low = !self.random.one_in(3);
        for _ in 0..30 {
            let (bits, ready) = match self.kind {
                Kind::Sd => {
                    self.command(8, 0x1aa);
                    (self.app(41, if low { 0x5130_0000 } else { 0x5030_0000 }), 0x80)
                }
                Kind::Mmc => (self.command(1, 0x40ff_8080), 0x80),
                Kind::Io => (self.command(5, if low { 0x0130_0000 } else { 0x0030_0000 }), 0x80),
            };
            self.wait(Duration::from_millis(100));
            let Some(Bits::Short(b)) = bits else { continue };
            if b[1] & ready != 0 {
                if b[1] & 1 != 0 && low && self.kind != Kind::Mmc {
                    self.low_voltage();
                }
                break;
            }
        }
        if self.kind != Kind::Io {
            self.command(2, 0);
        }
        self.rca = if self.kind == Kind::Mmc { 1 << 16 } else { 0 };
        self.command(3, self.rca);
        if !self.random.one_in(8) {
            self.command(9, self.rca);
            self.command(7, self.rca);
            self.wait_ready();
            self.card.bus(self.random.of(&[400_000, 25_000_000]), self.random.of(&[1, 4]), self.now);
            if self.kind == Kind::Sd && self.random.one_in(2) {
                self.app(6, 2);
            }
        }
    }
    fn low_voltage(&mut self) {
        self.command(11, 0);
        self.card.bus(0, 1, self.now);
        self.wait(Duration::from_millis(6));
        self.digest.say(format_args!("{}", self.card.lines_low(self.now)));
        self.card.signal(Signal::V1_8, Timing::Default, self.now);
        self.card.bus(400_000, 1, self.now);
        self.wait(Duration::from_millis(2));
        self.digest.say(format_args!("{}", self.card.lines_low(self.now)));
    }

    /// A command that such a card may be sent.
    fn any_command(&mut self) {
        let r = &mut self.random;
        let near = r.below(40) as u32 * r.of(&[1, 1, 1, 8, 512]);
        match self.kind {
            _ if r.one_in(20) => {
                let (index, arg) = (r.below(64) as u8, any(r));
                self.command(index, arg);
            }
            Kind::Sd if r.one_in(3) => {
                let index = r.of(&[6, 13, 13, 22, 23, 41, 42, 51, 51]);
                let arg = if r.one_in(4) { any(r) } else { r.below(4) as u32 };
                self.app(index, arg);
            }
            Kind::Sd => {
                let index = r.of(&[
                    6, 7, 9, 10, 12, 13, 13, 15, 16, 17, 18, 18, 19, 20, 22, 23, 24, 25, 25, 27, 28, 29, 30,
                    32, 33, 38, 42, 48, 49, 56, 58, 59,
                ]);
                let arg = match index {
                    // A card is seldom made inactive.
                    15 if !r.one_in(8) => 0,
                    7 if r.one_in(3) => 0,
                    7 | 9 | 10 | 13 | 15 => {
                        self.rca | u32::from(r.one_in(6)) << 15 | u32::from(r.one_in(6)) << 16
                    }
                    6 => {
                        r.of(&[0x00ff_ffff, 0x80ff_ffff]) & !(15 << (4 * r.below(6)))
                            | (r.below(6) as u32) << (4 * r.below(4))
                    }
                    16 => r.of(&[512, 512, 512, 1, 8, 600]),
                    23 => r.below(6) as u32,
                    38 => r.below(4) as u32,
                    48 | 49 | 58 | 59 => {
                        r.of(&[0, 1 << 31])
                            | (r.below(3) as u32) << 27
                            | (r.below(3) as u32) << (9 * r.below(2))
                            | r.of(&[0, 511, 3])
                    }
                    12 | 42 | 27 => 0,
                    _ if r.one_in(8) => any(r),
                    _ => near,
                };
                self.command(index, arg);
            }
            Kind::Mmc => {
                let index = r.of(&[
                    5, 6, 6, 6, 6, 7, 8, 9, 10, 12, 13, 13, 14, 15, 16, 17, 18, 19, 21, 23, 23, 23, 24, 25,
                    25, 26, 27, 28, 29, 30, 31, 35, 36, 38, 42, 44, 45, 46, 47, 48, 49, 53, 54,
                ]);
                let arg = match index {
                    15 if !r.one_in(8) => 0,
                    7 if r.one_in(3) => 0,
                    5 => self.rca | u32::from(r.one_in(2)) << 15,
                    7 | 9 | 10 | 13 | 15 => self.rca | u32::from(r.one_in(6)) << 15 | u32::from(r.one_in(6)),
                    6 => {
                        let field = r.of(&[
                            15, 16, 29, 30, 31, 32, 33, 34, 127, 134, 137, 143, 149, 155, 156, 160, 161, 162,
                            163, 164, 165, 166, 167, 169, 171, 173, 174, 175, 177, 178, 179, 179, 179, 183,
                            185, 187, 191, 192,
                        ]);
                        let field = if r.one_in(8) { r.below(256) as u32 } else { field };
                        let value = if r.one_in(3) { r.below(256) as u32 } else { r.below(5) as u32 };
                        r.of(&[1, 2, 3, 3, 3, 3, 0]) << 24 | field << 16 | value << 8 | u32::from(r.one_in(8))
                    }
                    16 => r.of(&[512, 512, 512, 1, 8]),
                    23 => r.below(5) as u32 | r.of(&[0, 0, 0, 1 << 31, 1 << 30, 1 << 29, 1 << 24]),
                    38 => r.of(&[0, 1, 3, 0x8000_0000, 0x8000_8000, 0x8000_0001, 0x8000_ffff]),
                    44 => r.below(4) as u32 | (r.below(3) as u32) << 16 | r.of(&[0, 1 << 30, 1 << 23]),
                    46 | 47 => (r.below(4) as u32) << 16,
                    48 => (r.below(4) as u32) << 16 | r.of(&[1, 2, 0]),
                    12 | 14 | 19 | 21 | 26 | 27 | 42 | 8 => u32::from(r.one_in(10)),
                    _ if r.one_in(8) => any(r),
                    _ => near,
                };
                self.command(index, arg);
            }
            Kind::Io => {
                let function = r.below(4) as u32;
                let register = match r.below(4) {
                    0 => r.word() & 0x1_ffff,
                    1 => 0x1000 + r.below(0x600) as u32,
                    2 => function << 8 | r.below(18) as u32,
                    _ => r.below(0x14) as u32,
                };
                let write = u32::from(r.one_in(2)) << 31;
                let function = if r.one_in(2) { 0 } else { function };
                let (index, arg) = match r.below(10) {
                    0..=5 => (
                        52,
                        write
                            | function << 28
                            | u32::from(r.one_in(3)) << 27
                            | register << 9
                            | r.below(256) as u32 & r.of(&[0xff, 3]),
                    ),
                    6..=8 => {
                        let mode = (r.below(4) as u32) << 26;
                        (53, write | function << 28 | mode | register << 9 | r.of(&[1, 4, 0, 8, 511]))
                    }
                    _ => {
                        let arg = if r.one_in(2) { self.rca } else { near };
                        (r.of(&[3, 5, 7, 7, 13, 17, 24, 18, 12, 0]), arg)
                    }
                };
                self.command(index, arg);
            }
        }
    }

    /// What a write phase may carry.
    fn payload(&mut self, len: usize, opened: u8) -> Vec<u8> {
        let r = &mut self.random;
        let mut block: Vec<u8> = match r.below(3) {
            0 => vec![r.below(256) as u8; len],
            1 => (0..len).map(|i| i as u8).collect(),
            _ => (0..len).map(|_| r.next() as u8).collect(),
        };
        let password: &[u8] = r.of(&[b"secret", b"other", b"secret", b""]);
        if opened == 42 && len > 2 + password.len() {
            block[0] = r.of(&[1, 5, 2, 4, 0, 8, 3]);
            block[1] = if r.one_in(8) { 17 } else { password.len() as u8 };
            block[2..2 + password.len()].copy_from_slice(password);
        }
        if opened == 25 && len == 512 && self.kind == Kind::Mmc && r.one_in(2) {
            let request = r.of(&[
                Request::ProgramKey,
                Request::ReadCounter,
                Request::WriteData,
                Request::WriteData,
                Request::ReadData,
                Request::ReadResult,
                Request::WriteConfig,
                Request::ReadConfig,
            ]);
            let mut frames = [Frame::new(request)
                .with_address(r.below(5) as u16)
                .with_block_count(r.of(&[1, 1, 1, 2]))
                .with_write_counter(self.written)
                .with_nonce(r.below(3) as u128)];
            if request == Request::ProgramKey {
                frames[0] = frames[0].with_mac(&KEY);
            } else if !r.one_in(5) {
                seal(&mut frames, |parts| SoftwareHmac::new(&KEY).mac(parts));
            }
            block.copy_from_slice(&frames[0].emit());
            self.written = (self.written + u32::from(request == Request::WriteData)) % 3;
        }
        block
    }

    /// Goes on with the data phase; some hosts do not know when to stop.
    fn data(&mut self) {
        let Some((phase, index, k)) = self.phase else {
            let sent = self.card.send(&mut [0; 64], self.now);
            let token = self.card.take(&[1; 64], true, self.now);
            self.digest.say(format_args!("{sent:?} {token:?}"));
            return;
        };
        let len = if self.random.one_in(24) { 8 } else { usize::from(phase.block_len) };
        let many = self.random.below(4) as usize + 1;
        self.digest.say(format_args!("{:?} {:?}", self.card.ready(k), self.card.ready(k + 2)));
        let ready = self.card.ready(k);
        if !ready.is_never() && !self.random.one_in(5) {
            self.now = self.now.max(ready);
        }
        let mut moved = 1;
        match (phase.read, self.random.one_in(3)) {
            (true, true) => {
                let mut blocks = vec![0x5a; len * many];
                let sent = self.card.send_many(&mut blocks, self.now);
                self.digest.say(format_args!("{sent} {blocks:?}"));
                moved = (sent / len.max(1)) as u32;
            }
            (true, false) => {
                let mut block = vec![0x5a; len];
                let sent = self.card.send(&mut block, self.now);
                self.digest.say(format_args!("{sent:?} {block:?}"));
                moved = u32::from(sent != Sent::Nothing);
            }
            (false, true) => {
                let blocks: Vec<u8> = (0..many).flat_map(|_| self.payload(len, index)).collect();
                let taken = self.card.take_many(&blocks, self.now);
                self.digest.say(format_args!("{taken}"));
                moved = (taken / len.max(1)) as u32;
            }
            (false, false) => {
                let block = self.payload(len, index);
                let right = !self.random.one_in(12);
                let token = self.card.take(&block, right, self.now);
                self.digest.say(format_args!("{token:?}"));
                moved = moved.min(u32::from(token == Token::Accepted));
            }
        }
        let k = k + moved;
        self.phase = Some((phase, index, k)).filter(|_| phase.blocks.is_none_or(|n| k < n) && moved > 0);
        if phase.blocks.is_none() && self.random.one_in(4) {
            self.command(12, 0);
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0..=13 => self.any_command(),
            14..=25 => self.data(),
            26..=31 => self.wait_ready(),
            32 | 33 => self.now += Duration::from_micros(self.random.below(3_000)),
            34 => self.now += Duration::from_millis(self.random.below(1_500)),
            35 => {
                let hz = self.random.of(&[
                    0,
                    400_000,
                    25_000_000,
                    50_000_000,
                    52_000_000,
                    200_000_000,
                    208_000_000,
                ]);
                let lines = self.random.of(&[1, 4, 8]);
                self.card.bus(hz, lines, self.now);
            }
            36 => {
                let signal = self.random.of(&[Signal::V3_3, Signal::V1_8]);
                let timing = self.random.of(Timing::ALL);
                self.card.signal(signal, timing, self.now);
            }
            37 => {
                let clocks = self.random.below(100) as u32;
                self.card.idle_clocks(clocks);
                let phase = self.random.of(&[0, 90, 180, 270]);
                self.digest.say(format_args!("{}", self.card.samples_right(phase, self.now)));
            }
            38 if self.random.one_in(6) => {
                self.card.power(false, self.now);
                if !self.random.one_in(4) {
                    self.now += Duration::from_millis(self.random.below(10));
                    self.identify();
                }
            }
            // To where things happen again.
            _ if self.random.one_in(4) => {
                self.command(12, 0);
                self.wait_ready();
                self.command(7, self.rca);
                self.wait_ready();
            }
            _ => {
                self.command(13, self.rca);
            }
        }
        let (busy, low, irq) =
            (self.card.busy_until(self.now), self.card.lines_low(self.now), self.card.interrupt(self.now));
        self.digest.say(format_args!("{busy:?} {low} {irq}"));
    }
}

fn live(name: &str, kind: Kind, card: &mut dyn Card, life: u32) -> String {
    let mut host = Host {
        card,
        kind,
        random: Random::new(name, life),
        digest: Digest::new(),
        now: Instant::ZERO,
        rca: 0,
        phase: None,
        written: 0,
    };
    host.identify();
    for _ in 0..STEPS {
        host.step();
    }
    let violations = host.card.violations();
    host.digest.say(format_args!("{violations:?} {}", host.card.present()));
    format!(
        "{name} {life}: {} {:016x}, {} broken rules, {} ns",
        host.digest.1,
        host.digest.0,
        violations.len(),
        host.now.as_nanos()
    )
}

/// What goes wrong in a life of a card of so many sectors (the first are enough); nothing if it is `calm`.
pub(super) fn script(random: &mut Random, calm: bool, sectors: u64) -> Script {
    let mut text = format!("seed {}\n", random.below(9));
    for _ in 0..if calm { 0 } else { 12 } {
        let command = random
            .of(&["CMD17", "CMD18", "CMD24", "CMD25", "CMD13", "CMD55", "ACMD41", "CMD52", "CMD53", "CMD6"]);
        let (n, k) = (random.below(4), random.below(3));
        let when = match random.below(6) {
            0 => format!("at frame {}", random.below(200)),
            1 => format!("at {}ms", random.below(3_000)),
            2 if random.one_in(6) => format!("every {command}"),
            _ => format!("at {command}#{n}"),
        };
        let what = match random.below(14) {
            0 => format!("status {:#x}", 1_u32 << random.below(32)),
            1 => format!("late {}us", random.below(900)),
            2 => format!("busy {}ms", random.below(900)),
            3 | 4 => format!("block {k} crc"),
            5 => format!("block {k} missing"),
            6 => format!("block {k} flip {}.{}", random.below(512), random.below(8)),
            7 => "power-loss random".to_owned(),
            8 => format!("power-loss {}", random.of(&["all", "none", "keep 0 2"])),
            9 if sectors > 0 => {
                format!("rot {} {}.{}", random.below(sectors), random.below(512), random.below(8))
            }
            _ => random.of(&PLAIN).to_owned(),
        };
        text += &format!("{when}: {what}\n");
    }
    text.parse().unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Puts a card that follows a script in the place of one that does not.
fn scripted<C: Card + Medium>(card: C, name: &str, kind: Kind, life: u32, sectors: u64) -> String {
    let script = script(&mut Random::new(name, 100 + life), life < 3, sectors);
    let mut card = Faulty::new(card, script).expect("a card follows such a script");
    live(name, kind, &mut card, life)
}

pub(super) fn lives() -> Vec<String> {
    let mut lines = Vec::new();
    for life in 0..LIVES {
        let profile = if life == 2 { Profile::slow2018() } else { Profile::cheap() };
        for preset in zoo::list() {
            let config = zoo::card(preset.name, profile.clone(), 5).expect("it is listed");
            let card = SdCard::new(config).expect("every preset is a card");
            lines.push(scripted(card, preset.name, Kind::Sd, life, 40));
        }
        for preset in zoo::mmc_list() {
            let config = zoo::mmc(preset.name, profile.clone(), 5).expect("it is listed");
            let card = MmcCard::new(config).expect("every preset is a card");
            lines.push(scripted(card, preset.name, Kind::Mmc, life, 40));
        }
        for preset in zoo::io_list() {
            for kind in [Kind::Io, Kind::Sd] {
                let config = zoo::io(preset.name, &profile, 5).expect("it is listed");
                let card = SdioCard::new(config).expect("every preset is a card");
                lines.push(scripted(card, &format!("{} as {kind:?}", preset.name), kind, life, 0));
            }
        }
    }
    lines
}

//! A bench for the register model: a small scripted card, and a driver's hands.
#![allow(dead_code, unreachable_pub, missing_docs)]

use mmc_hal::Mmio;
use mmc_mock::card::{Answer, Bits, Card, Phase, Sent, Token};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::{Clock, Memory, Wakes};
use mmc_proto::crc::crc7_byte;
use mmc_time::{Duration, Instant};

pub const RINTSTS: u32 = 0x44;
pub const STATUS: u32 = 0x48;
pub const IDSTS: u32 = 0x8c;
pub const DATA: u32 = 0x200;
pub const BASE: u64 = 0x8000_1000;

/// An SDHC card without timing of its own, but for what a test sets.
#[derive(Debug, Default)]
pub struct Tiny {
    pub powered: bool,
    pub state: u32,
    pub app: bool,
    pub asked: u32,
    pub bytes: Vec<u8>,
    pub log: Vec<(u8, u32, Instant)>,
    pub bus: Vec<(u32, u8)>,
    pub idle: u32,
    phase: Option<Phase>,
    register: Option<Vec<u8>>,
    at: usize,
    /// Time before block `k` is ready: `first + k * each`.
    pub first: Duration,
    pub each: Duration,
    from: Instant,
    /// Busy after a write.
    pub program: Duration,
    pub busy: Instant,
    pub silent: bool,
    pub never_ready: bool,
}

impl Tiny {
    pub fn new() -> Self {
        let bytes = (0..2 << 20).map(|i: usize| (i / 512 * 31 + i * 7) as u8).collect();
        Self { bytes, ..Self::default() }
    }
    fn short(index: u8, word: u32) -> Option<Bits> {
        let w = word.to_be_bytes();
        let mut b = [index, w[0], w[1], w[2], w[3], 0];
        b[5] = crc7_byte(&b[..5]);
        Some(Bits::Short(b))
    }
    fn long() -> Option<Bits> {
        let mut b = [0x3f; 17];
        for (i, b) in b[1..16].iter_mut().enumerate() {
            *b = 0x10 + i as u8;
        }
        b[16] = crc7_byte(&b[1..16]);
        Some(Bits::Long(b))
    }
    fn r1(&mut self, index: u8) -> Option<Bits> {
        Self::short(index, self.state << 9 | 0x100 | u32::from(self.app) << 5)
    }
    fn open(&mut self, read: bool, blocks: Option<u32>, arg: u32, now: Instant) -> Option<Phase> {
        self.phase = Some(Phase { read, block_len: 512, blocks });
        self.at = arg as usize * 512;
        self.from = now;
        self.register = None;
        self.phase
    }
}

impl Card for Tiny {
    fn power(&mut self, on: bool, _: Instant) {
        *self = Self {
            powered: on,
            bytes: std::mem::take(&mut self.bytes),
            log: std::mem::take(&mut self.log),
            bus: std::mem::take(&mut self.bus),
            first: self.first,
            each: self.each,
            program: self.program,
            ..Self::default()
        };
    }
    fn bus(&mut self, hz: u32, lines: u8, _: Instant) {
        self.bus.push((hz, lines));
    }
    fn idle_clocks(&mut self, n: u32) {
        self.idle = self.idle.saturating_add(n);
    }
    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        self.log.push((index, arg, now));
        if self.silent || !self.powered {
            return Answer::default();
        }
        let app = std::mem::take(&mut self.app);
        let mut data = None;
        let response = match (index, self.state) {
            (0, _) => {
                self.state = 0;
                self.phase = None;
                None
            }
            (8, 0) => Self::short(8, arg),
            (55, _) => {
                self.app = true;
                self.r1(55)
            }
            (41, 0) if app => {
                self.asked += 1;
                let ocr = if self.asked < 2 {
                    0x00ff_8000
                } else {
                    self.state = 1;
                    0xc0ff_8000 | arg & 1 << 24
                };
                let w = u32::to_be_bytes(ocr);
                Some(Bits::Short([0x3f, w[0], w[1], w[2], w[3], 0xff]))
            }
            (11, 1) => self.r1(11),
            (2, 1) => {
                self.state = 2;
                Self::long()
            }
            (3, 2) => {
                let r = Self::short(3, 0xaaaa << 16 | 0x500);
                self.state = 3;
                r
            }
            (9, 3) => Self::long(),
            (7, 3) => {
                let r = self.r1(7);
                self.state = 4;
                r
            }
            (51, 4) if app => {
                let r = self.r1(51);
                data = Some(Phase { read: true, block_len: 8, blocks: Some(1) });
                self.phase = data;
                self.from = now;
                self.register = Some(vec![2, 0x35, 0x80, 0, 0, 0, 0, 1]);
                r
            }
            (6, 4) if app => self.r1(6),
            (13, _) => self.r1(13),
            (17, 4) => {
                let r = self.r1(17);
                data = self.open(true, Some(1), arg, now);
                r
            }
            (18, 4) => {
                let r = self.r1(18);
                data = self.open(true, None, arg, now);
                self.state = 5;
                r
            }
            (24 | 25, 4) => {
                let r = self.r1(index);
                data = self.open(false, (index == 24).then_some(1), arg, now);
                self.state = 6;
                r
            }
            (12, 5) => {
                let r = self.r1(12);
                (self.state, self.phase) = (4, None);
                r
            }
            (12, 6) => {
                let r = self.r1(12);
                (self.state, self.phase) = (4, None);
                self.busy = now + self.program;
                r
            }
            _ => None,
        };
        Answer { response, data }
    }
    fn ready(&self, k: u32) -> Instant {
        if self.never_ready {
            return Instant::NEVER;
        }
        self.from + self.first + self.each.saturating_mul(k.into())
    }
    fn send(&mut self, block: &mut [u8], _: Instant) -> Sent {
        if self.phase.is_none_or(|p| !p.read) {
            return Sent::Nothing;
        }
        let from = match &self.register {
            Some(r) => r.clone(),
            None => match self.bytes.get(self.at..self.at + block.len()) {
                Some(b) => b.to_vec(),
                None => return Sent::Nothing,
            },
        };
        block.copy_from_slice(&from[..block.len()]);
        self.at += block.len();
        if self.phase.is_some_and(|p| p.blocks.is_some()) {
            self.phase = None;
        }
        Sent::Good
    }
    fn send_many(&mut self, blocks: &mut [u8], _: Instant) -> usize {
        if self.phase.is_none_or(|p| !p.read || p.blocks.is_some()) {
            return 0;
        }
        let Some(b) = self.bytes.get(self.at..self.at + blocks.len()) else { return 0 };
        blocks.copy_from_slice(b);
        self.at += blocks.len();
        blocks.len()
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        let Some(p) = self.phase.filter(|p| !p.read) else { return Token::Nothing };
        if !crc_ok {
            return Token::CrcError;
        }
        let Some(to) = self.bytes.get_mut(self.at..self.at + block.len()) else { return Token::Nothing };
        to.copy_from_slice(block);
        self.at += block.len();
        if p.blocks.is_some() {
            (self.state, self.phase) = (4, None);
            self.busy = now + self.program;
        }
        Token::Accepted
    }
    fn take_many(&mut self, blocks: &[u8], _: Instant) -> usize {
        if self.phase.is_none_or(|p| p.read || p.blocks.is_some()) {
            return 0;
        }
        let Some(to) = self.bytes.get_mut(self.at..self.at + blocks.len()) else { return 0 };
        to.copy_from_slice(blocks);
        self.at += blocks.len();
        blocks.len()
    }
    fn busy_until(&self, now: Instant) -> Instant {
        if self.busy > now { self.busy } else { Instant::ZERO }
    }
    fn violations(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The controller with its card, and a driver's hands.
pub struct Bench<C = Tiny> {
    pub dw: Dw<C>,
    pub clock: Clock,
    pub memory: Memory,
}

impl Bench {
    pub fn new(config: Config) -> Self {
        Self::with(Tiny::new(), config)
    }
    pub fn card_bytes(&self, lba: usize, len: usize) -> Vec<u8> {
        self.dw.card(|c| c.bytes[lba * 512..lba * 512 + len].to_vec())
    }
    /// The memory at `at` is what the card has from block `lba` on.
    #[track_caller]
    pub fn same(&self, at: u64, lba: usize, len: usize) {
        let (got, card) = (self.bytes(at, len), self.card_bytes(lba, len));
        let first = got.iter().zip(&card).position(|(a, b)| a != b);
        assert_eq!(first, None, "first difference, of {len} bytes");
    }
}

impl<C: Card> Bench<C> {
    pub fn with(card: C, config: Config) -> Self {
        let (clock, memory) = (Clock::new(), Memory::new(BASE, 0xc000_0000));
        let dw = Dw::new(card, clock.clone(), memory.clone(), config);
        Self { dw, clock, memory }
    }
    pub fn w(&self, offset: u32, value: u32) {
        self.dw.write32(offset, value);
    }
    pub fn r(&self, offset: u32) -> u32 {
        self.dw.read32(offset)
    }
    pub fn rint(&self) -> u32 {
        self.r(RINTSTS)
    }
    /// Moves on to the next event; false: there is none.
    pub fn step(&self) -> bool {
        let at = self.dw.next_event();
        if at.is_never() {
            return false;
        }
        self.clock.advance_to(at);
        self.dw.advance();
        true
    }
    /// Moves on until all these bits of RINTSTS are set; panics when they never are.
    pub fn wait(&self, bits: u32) -> u32 {
        for _ in 0..100_000 {
            let now = self.rint();
            if now & bits == bits {
                return now;
            }
            assert!(self.step(), "nothing more happens; RINTSTS {now:#x}, wanted {bits:#x}");
        }
        panic!("RINTSTS {bits:#x} never came");
    }
    /// Runs until nothing more happens.
    pub fn drain(&self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it never ends");
    }
    /// Reset, power, 50 MHz (or what the source gives), everything as a driver sets it.
    pub fn power_up(&self) {
        self.w(0x04, 1);
        self.w(0x00, 7);
        assert_eq!(self.r(0x00), 0);
        self.clock_on(0);
        self.w(0x14, 0xffff_ffff);
        let d = self.fifo_depth();
        self.w(0x4c, (2 << 28) | ((d / 2 - 1) << 16) | (d / 2));
    }
    fn fifo_depth(&self) -> u32 {
        (self.r(0x4c) >> 16 & 0xfff) + 1
    }
    pub fn clock_on(&self, div: u32) {
        self.w(0x10, 0);
        self.w(0x2c, 0x8020_2000);
        assert_eq!(self.r(0x2c), 0x0020_2000);
        self.w(0x08, div);
        self.w(0x10, 1);
        self.w(0x2c, 0x8020_2000);
        self.w(RINTSTS, 4);
    }
    /// Sends a command and waits for command done; RINTSTS, cleared.
    pub fn cmd(&self, arg: u32, cmd: u32) -> u32 {
        self.w(0x28, arg);
        self.w(0x2c, cmd);
        let got = self.wait(4);
        self.w(RINTSTS, got);
        got
    }
    /// Brings the card to the transfer state, four lines.
    pub fn ready(&self) {
        self.power_up();
        self.cmd(0, 0xa000_a000);
        self.cmd(0x1aa, 0xa000_2148);
        for _ in 0..2 {
            self.cmd(0, 0xa000_2177);
            self.cmd(0x4030_0000, 0xa000_2069);
        }
        self.cmd(0, 0xa000_21c2);
        self.cmd(0, 0xa000_2143);
        self.cmd(0xaaaa_0000, 0xa000_2147);
        self.cmd(0xaaaa_0000, 0xa000_2177);
        assert_eq!(self.cmd(2, 0xa000_2146), 4);
        self.w(0x18, 1);
        self.w(0x28, 0);
        self.w(RINTSTS, 0xffff_ffff);
        assert_eq!(self.dw.violations(), Vec::<String>::new());
    }
    /// A chain of descriptors over the (address, length) pairs; its address. DIC on all but the last.
    pub fn chain(&self, parts: &[(u64, u32)]) -> u64 {
        let ring = self.memory.alloc(parts.len() * 16);
        for (i, (at, len)) in parts.iter().enumerate() {
            let last = i + 1 == parts.len();
            let next = ring + (i as u64 + 1) * 16;
            let first = if i == 0 { 8 } else { 0 };
            let des0 = 0x8000_0010 | first | if last { 4 } else { 2 };
            self.words(ring + i as u64 * 16, &[des0, *len, *at as u32, if last { 0 } else { next as u32 }]);
        }
        ring
    }
    pub fn words(&self, at: u64, words: &[u32]) {
        self.memory
            .with(at, |b| {
                for (i, w) in words.iter().enumerate() {
                    b[i * 4..i * 4 + 4].copy_from_slice(&w.to_le_bytes());
                }
            })
            .unwrap();
    }
    pub fn word(&self, at: u64) -> u32 {
        self.memory.with(at, |b| u32::from_le_bytes(*b.first_chunk().unwrap())).unwrap()
    }
    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        self.memory.with(at, |b| b[..len].to_vec()).unwrap()
    }
    /// IDMAC on, list at `ring`.
    pub fn dma_on(&self, ring: u64) {
        self.w(0x00, 0x0200_0006);
        self.w(0x80, 1);
        self.w(IDSTS, 0x337);
        self.w(0x90, 0x103);
        self.w(0x88, ring as u32);
        self.w(0x00, 0x0200_0030);
        self.w(0x80, 0x82);
        self.w(0x84, 1);
    }
    pub fn dma_off(&self) {
        self.w(0x00, 0x0000_0012);
        self.w(0x80, 0);
    }
    pub fn sizes(&self, block: u32, bytes: u32) {
        self.w(0x1c, block);
        self.w(0x20, bytes);
    }
    pub fn no_violations(&self) {
        assert_eq!(self.dw.violations(), Vec::<String>::new());
    }
}

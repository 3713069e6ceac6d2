//! Every byte on the wire, every wait and every result of the engine are what they were when `data/as_it_was.txt` was
//! written: digests of what it does with a small card that is sometimes late, silent, wrong or busy for ever, on a bus that
//! it has for itself and on a shared one. The card here is no model (that is `mmc_mock::spi`): it answers so that every path
//! is taken; of `mmc-proto` it uses the checksums and what a response looks like, which have records of their own.
//!
//! A change that is meant shows here as lines that differ; what the engine then does is to be looked at in the other tests.
//! `MMC_SPI_WRITE_RUNS=1 cargo test -p mmc-spi as_it_was` writes the file anew.

use mmc_hal::{Batch, Dir};
use mmc_mock::{Buf, BufBatch};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::command::{Command, Gate, Response, Stop};
use mmc_proto::host::{Cause, Host, Operation, Progress, Returned, Supervised};
use mmc_proto::spi::{self, Tail};
use mmc_spi::{Board, BusFault, SpiEngine, Wires};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

/// FNV-1a of all that is written to it.
struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

/// The same numbers for ever (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// How the card is today: so many of 16 …
#[derive(Clone, Copy, Default)]
struct Mood {
    /// … answers say an error.
    errors: u64,
    /// … commands or data are not answered.
    silent: u64,
    /// … blocks come damaged, are refused or not there.
    damaged: u64,
    /// … busy phases never end.
    stuck: u64,
    /// … exchanges fail, or looks find no card.
    gone: u64,
}

/// What the card takes the next byte for.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Frames,
    /// Blocks of this length; so many bytes of one have come.
    Blocks(usize, Option<usize>),
}

struct Card {
    random: Random,
    mood: Mood,
    idle: bool,
    frame: Vec<u8>,
    takes: Takes,
    /// What it says next; nothing: DO is high, or low while it is busy.
    says: VecDeque<u8>,
    busy: u64,
    /// It goes on reading blocks of this length.
    reads: Option<usize>,
    /// Length of the blocks that are asked for.
    len: usize,
    log: Digest,
}

impl Card {
    fn hit(&mut self, sixteenths: u64) -> bool {
        self.random.below(16) < sixteenths
    }
    fn gets_busy(&mut self) {
        self.busy =
            if self.hit(self.mood.stuck) { 1 << 40 } else { self.random.of(&[0, 1, 3, 4, 9, 700, 9_000]) };
    }
    fn waits(&mut self, bytes: &[u64]) {
        let n = self.random.of(bytes);
        self.says.extend((0..n).map(|_| 0xff));
    }
    /// A byte for a byte.
    fn byte(&mut self, out: u8) -> u8 {
        let answer = match self.says.pop_front() {
            Some(byte) => byte,
            None if self.busy > 0 => {
                self.busy -= 1;
                0
            }
            None => 0xff,
        };
        if let (true, Some(len)) = (self.says.is_empty(), self.reads) {
            self.block(len);
        }
        match self.takes {
            Takes::Blocks(_, None) if out == 0xfd => {
                self.takes = Takes::Frames;
                self.says.extend([0xff]);
                self.gets_busy();
            }
            Takes::Blocks(len, None) if matches!(out, 0xfe | 0xfc) => {
                self.takes = Takes::Blocks(len, Some(0))
            }
            Takes::Blocks(len, Some(n)) if n + 1 == len + 2 => {
                self.takes = Takes::Blocks(len, None);
                if self.hit(self.mood.silent) {
                    return answer;
                }
                let response = if self.hit(self.mood.damaged) {
                    self.random.of(&[0xeb, 0x0d, 0xff, 0x1f, 0x07])
                } else {
                    self.random.of(&[0xe5, 0x05])
                };
                self.says.clear();
                self.waits(&[0, 0, 1]);
                self.says.push_back(response);
                self.gets_busy();
            }
            Takes::Blocks(len, Some(n)) => self.takes = Takes::Blocks(len, Some(n + 1)),
            Takes::Frames | Takes::Blocks(..) if !self.frame.is_empty() || out & 0xc0 == 0x40 => {
                self.frame.push(out);
                if self.frame.len() == 6 {
                    let index = self.frame[0] & 63;
                    self.frame.clear();
                    self.command(index);
                }
            }
            Takes::Frames | Takes::Blocks(..) => {}
        }
        answer
    }
    fn command(&mut self, index: u8) {
        self.says.clear();
        (self.reads, self.takes) = (None, Takes::Frames);
        if index == 0 {
            (self.idle, self.busy) = (true, 0);
        }
        if self.hit(self.mood.silent) {
            return;
        }
        if spi::has_stuff_byte(index) {
            let stuff = self.random.next() as u8;
            self.says.push_back(stuff);
        }
        self.waits(&[0, 1, 1, 2, 8]);
        if matches!(index, 1 | 41) && self.random.below(3) > 0 {
            self.idle = false;
        }
        let mut r1 = u8::from(self.idle);
        if self.hit(self.mood.errors) {
            r1 |= self.random.of(&[0x04, 0x08, 0x20, 0x40, 0x02, 0x10, 0x0c, 0x01]);
        }
        self.says.push_back(r1);
        let app = self.random.below(2) == 0;
        match spi::tail(index, app) {
            Tail::None => {}
            Tail::Status => {
                let r2 = if self.hit(self.mood.errors) { self.random.next() as u8 } else { 0 };
                self.says.push_back(r2);
            }
            Tail::Word => {
                let word = self.random.of(&[0x8000_0000, 0xc0ff_8000, 0x00ff_8000, 0x0000_01aa_u32]);
                self.says.extend(word.to_be_bytes());
            }
            Tail::Busy => self.gets_busy(),
        }
        if r1 & !1 != 0 {
            return;
        }
        match index {
            17 | 9 | 10 | 51 | 6 | 8 | 13 | 22 | 30 if self.len > 0 => self.block(self.len),
            18 => {
                self.reads = Some(self.len);
                self.block(self.len);
            }
            24 | 25 | 27 | 42 => self.takes = Takes::Blocks(self.len, None),
            _ => {}
        }
    }
    /// A block, or what comes instead.
    fn block(&mut self, len: usize) {
        if self.hit(self.mood.silent) {
            self.reads = None;
            return;
        }
        self.waits(&[0, 0, 1, 7, 8, 60, 80, 5_000]);
        if self.hit(self.mood.damaged) {
            let token = self.random.of(&[0x01, 0x02, 0x04, 0x08, 0x0f, 0x3c, 0x00, 0xfc, 0xfd]);
            self.says.push_back(token);
            self.reads = None;
            return;
        }
        self.says.push_back(0xfe);
        let block: Vec<u8> = (0..len).map(|_| self.random.next() as u8).collect();
        let mut crc = spi::block_crc(&block);
        if self.hit(self.mood.damaged) {
            crc[1] ^= 1 << self.random.below(8);
        }
        self.says.extend(block.into_iter().chain(crc));
    }
}

#[derive(Clone)]
struct Slot<const HOLDS: bool>(Arc<Mutex<Card>>);

impl<const HOLDS: bool> Wires for Slot<HOLDS> {
    const HOLDS: bool = HOLDS;
    fn exchange(&mut self, head: &mut [u8], pause: u32, body: &mut [u8]) -> Result<(), BusFault> {
        let mut card = self.0.lock().unwrap();
        let (out, faults) = (format!("{head:x?} {pause} {body:x?}"), card.mood.gone);
        writeln!(card.log, "x {out}").unwrap();
        if pause > 0 {
            // The card has got so far by itself.
            let bytes = (pause as usize / 2_000).min(card.says.len());
            let silent = card.says.iter().take(bytes).take_while(|b| **b == 0xff).count();
            card.says.drain(..silent);
            card.busy = card.busy.saturating_sub(u64::from(pause) / 2_000);
        }
        for byte in head.iter_mut().chain(body.iter_mut()) {
            *byte = card.byte(*byte);
        }
        if card.hit(faults) && card.random.below(4) == 0 { Err(BusFault) } else { Ok(()) }
    }
    fn release(&mut self) -> Result<(), BusFault> {
        writeln!(self.0.lock().unwrap().log, "release").unwrap();
        Ok(())
    }
    fn start_up(&mut self) -> Result<(), BusFault> {
        let mut card = self.0.lock().unwrap();
        writeln!(card.log, "start").unwrap();
        let faults = card.mood.gone;
        if card.hit(faults) { Err(BusFault) } else { Ok(()) }
    }
}

/// A board without anything, or with all there may be.
struct Pins<const HOLDS: bool>(Slot<HOLDS>, bool);

impl<const HOLDS: bool> Board for Pins<HOLDS> {
    fn set_clock(&mut self, hz: u32) {
        writeln!(self.0.0.lock().unwrap().log, "{hz} Hz").unwrap();
    }
    fn power(&mut self, on: bool) -> Result<(), Cause> {
        let mut card = self.0.0.lock().unwrap();
        writeln!(card.log, "power {on}").unwrap();
        (card.idle, card.busy, card.reads, card.takes) = (true, 0, None, Takes::Frames);
        if self.1 { Ok(()) } else { Err(Cause::Unsupported("by the test")) }
    }
    fn present(&mut self) -> Option<bool> {
        let mut card = self.0.0.lock().unwrap();
        let gone = card.mood.gone;
        self.1.then(|| !(card.hit(gone) && card.random.below(20) == 0))
    }
    fn write_protected(&mut self) -> Option<bool> {
        self.1.then(|| self.0.0.lock().unwrap().random.below(2) == 0)
    }
}

fn batch(random: &mut Random, len: usize) -> BufBatch {
    let mut batch = BufBatch::new(3);
    let (a, b) = (random.below(len as u64 + 1) as usize, random.below(len as u64 + 1) as usize);
    for n in [a.min(b), a.abs_diff(b), len - a.max(b)] {
        if n > 0 {
            let byte = random.next() as u8;
            batch.push(Buf(vec![byte; n]), 0, n).unwrap();
        }
    }
    batch
}

fn command(random: &mut Random) -> Command {
    let all =
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16, 20, 23, 28, 32, 35, 38, 41, 42, 52, 55, 58, 59];
    let index = if random.below(6) == 0 { random.below(64) as u8 } else { random.of(&all) };
    let response =
        random.of(&[Response::None, Response::Short, Response::Short, Response::ShortNoCrc, Response::Long]);
    let gate = random.of(&[Gate::Idle, Gate::Idle, Gate::Now]);
    let (busy, init_clocks) = (random.below(3) == 0, random.below(8) == 0);
    let arg = random.of(&[0, 1, 0x1aa, 0x40ff_8000, 0x0001_0000, 77]);
    Command { busy, gate, init_clocks, ..Command::plain(index, arg, response) }
}

/// A transfer, the length of its blocks and whether it is to follow CMD55.
fn transfer(random: &mut Random) -> (Operation<BufBatch>, usize, bool) {
    let (index, app, len) = random.of(&[
        (17, false, 512),
        (18, false, 512),
        (18, false, 512),
        (24, false, 512),
        (25, false, 512),
        (25, false, 512),
        (6, false, 64),
        (51, true, 8),
        (13, true, 64),
        (22, true, 4),
        (17, false, 16),
        (42, false, 17),
        (8, false, 512),
    ]);
    let dir = if matches!(index, 24 | 25 | 42) { Dir::Write } else { Dir::Read };
    let blocks = if matches!(index, 18 | 25) { random.of(&[1, 2, 3, 9, 40]) } else { 1 };
    let stop = if matches!(index, 18 | 25) {
        random.of(&[Stop::Auto, Stop::Auto, Stop::Manual, Stop::None])
    } else {
        Stop::None
    };
    let c = Command::data(index, random.of(&[0, 1, 512, 0x1234_5600]), dir, len, blocks, stop);
    let len = usize::from(len);
    let payload = batch(random, len * blocks as usize);
    (Operation::Transfer(c, payload), len, app)
}

fn bus(random: &mut Random) -> Operation<BufBatch> {
    let hz = random.of(&[0, 1, 400_000, 19_999_999, 20_000_000, 25_000_000, 25_000_001, 50_000_000]);
    let width = random.of(&[Width::One, Width::One, Width::One, Width::Four]);
    let signal = random.of(&[Signal::V3_3, Signal::V3_3, Signal::V3_3, Signal::V1_8]);
    let timing = random.of(&[Timing::Default, Timing::Default, Timing::Default, Timing::High]);
    Operation::Bus(BusConfig { hz, width, signal, timing, ..BusConfig::default() })
}

type OnBus<const HOLDS: bool> = Supervised<SpiEngine<Slot<HOLDS>, Pins<HOLDS>, BufBatch>>;

struct Life<const HOLDS: bool> {
    host: OnBus<HOLDS>,
    slot: Slot<HOLDS>,
    random: Random,
    now: Instant,
}

impl<const HOLDS: bool> Life<HOLDS> {
    fn note(&self, what: &str) {
        writeln!(self.slot.0.lock().unwrap().log, "{what}").unwrap();
    }
    /// From its start to its end; what time it takes is the waits'.
    fn does(&mut self, operation: Operation<BufBatch>, limit: Duration) {
        self.note(&format!("within {limit}"));
        if let Err(e) = self.host.submit(operation, self.now + limit, self.now) {
            return self.note(&format!("{:?}", e.error));
        }
        let abort_at = self.random.below(400);
        for polls in 0..1_000_000 {
            match self.host.poll(self.now) {
                Progress::Done(done) => {
                    let back = match done.payload {
                        Returned::Back(mut batch) => {
                            let bytes = std::iter::from_fn(|| batch.pop()).flat_map(|b| b.0);
                            bytes.fold(7_u64, |sum, b| sum.wrapping_mul(31) + u64::from(b))
                        }
                        Returned::None => 0,
                        Returned::Quarantined => panic!("SPI keeps nothing"),
                    };
                    return self.note(&format!("{:?} {back:x}", done.result));
                }
                Progress::Waiting { why, until } => {
                    self.note(&format!("{why:?} {until:?}"));
                    if polls == abort_at {
                        self.host.abort(self.now);
                    }
                    let later = [0, 0, 0, 1, 900, 100_000];
                    self.now = until.max(self.now) + Duration::from_nanos(300 + self.random.of(&later));
                }
                Progress::Idle => panic!("idle without a completion"),
            }
        }
        panic!("polled for ever");
    }
    fn expects(&mut self, len: usize) {
        self.slot.0.lock().unwrap().len = len;
    }
}

/// One life of a host: its card is started as SD or MMC, then whatever comes.
fn life<const HOLDS: bool>(seed: u64, log: &mut Digest) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.next();
    let card = Card {
        random: Random(seed | 1 << 40),
        mood: Mood::default(),
        idle: true,
        frame: Vec::new(),
        takes: Takes::Frames,
        says: VecDeque::new(),
        busy: 0,
        reads: None,
        len: 0,
        log: Digest(0xcbf2_9ce4_8422_2325),
    };
    let slot = Slot::<HOLDS>(Arc::new(Mutex::new(card)));
    let board = Pins(slot.clone(), random.below(2) == 0);
    let max_hz = random.of(&[12_000_000, 24_999_999, 25_000_000, 25_000_001, 100_000_000]);
    let host = SpiEngine::host(slot.clone(), board, max_hz);
    let mut life = Life { host, slot: slot.clone(), random, now: Instant::ZERO };
    let c = life.host.capabilities();
    life.note(&format!("{} {} {}..{} {:?}", c.max_blocks, c.max_segments, c.min_hz, c.max_hz, c.width));
    life.note(&format!("{:?} {} {} {}", c.timings, c.v1_8, c.sample_points, c.auto_stop));
    let long = Duration::from_secs(1);
    life.does(Operation::Power(Power::On), long);
    life.does(Operation::Bus(BusConfig { hz: 400_000, ..BusConfig::default() }), long);
    life.does(Operation::Command(Command { init_clocks: true, ..Command::go_idle_state() }), long);
    let mmc = life.random.below(3) == 0;
    for _ in 0..6 {
        for (index, arg) in if mmc { [(8, 0x1aa), (1, 0x40ff_8000)] } else { [(55, 0), (41, 0x40ff_8000)] } {
            let response = if index == 55 || index == 8 { Response::Short } else { Response::ShortNoCrc };
            life.does(Operation::Command(Command::plain(index, arg, response)), long);
        }
    }
    for round in 0..30 {
        // Well at first, then as it comes.
        let rates = [0, 0, 0, 1, 2, 4];
        let mut rate = |of: &[u64]| if round < 6 { 0 } else { life.random.of(of) };
        let mood = Mood {
            errors: rate(&rates),
            silent: rate(&[0, 0, 0, 0, 1, 4]),
            damaged: rate(&rates),
            stuck: rate(&[0, 0, 0, 0, 1]),
            gone: rate(&[0, 0, 0, 0, 0, 0, 0, 1]),
        };
        life.slot.0.lock().unwrap().mood = mood;
        let limits = [0, 500_000, 2_000_000, 2_000_001, 50_000_000, 400_000_000, 900_000_000];
        let limit = if round < 6 { long } else { Duration::from_nanos(life.random.of(&limits)) };
        match life.random.below(16) {
            0 if round > 8 => {
                let power = life.random.of(&[Power::On, Power::Off]);
                life.does(Operation::Power(power), limit);
            }
            1 => {
                let bus = bus(&mut life.random);
                life.does(bus, limit);
            }
            2..7 => {
                let command = command(&mut life.random);
                life.expects(16);
                life.does(Operation::Command(command), limit);
            }
            _ => {
                let (transfer, len, app) = transfer(&mut life.random);
                life.expects(len);
                if app {
                    life.does(Operation::Command(Command::plain(55, 0, Response::Short)), limit);
                }
                life.does(transfer, limit);
            }
        }
        let shown = life.host.slot(life.now);
        let checks = life.host.engine().checks_crc();
        life.note(&format!("{:?} {:?} {} {checks}", shown.present, shown.write_protected, shown.changes));
    }
    writeln!(log, "{:x}", slot.0.lock().unwrap().log.0).unwrap();
}

#[test]
fn the_engine_does_what_it_did() {
    let mut text = String::new();
    for group in 0..20_u64 {
        for holds in [true, false] {
            let mut log = Digest(0xcbf2_9ce4_8422_2325);
            for seed in 0..10 {
                let seed = 1 + seed + 100 * group;
                if holds { life::<true>(seed, &mut log) } else { life::<false>(seed, &mut log) }
            }
            writeln!(text, "{group}, {}: {:016x}", if holds { "alone" } else { "shared" }, log.0).unwrap();
        }
    }
    let path = format!("{}/tests/data/as_it_was.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("MMC_SPI_WRITE_RUNS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let was = std::fs::read_to_string(&path).unwrap();
    for (was, is) in was.lines().zip(text.lines()) {
        assert_eq!(was, is, "not as it was");
    }
    assert_eq!(was.len(), text.len());
}

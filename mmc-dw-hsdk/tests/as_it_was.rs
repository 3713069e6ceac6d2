//! Every register access, every wait and every result of the driver are what they were when `data/as_it_was.txt` was
//! written: digests of what it does with a small controller that is sometimes late, silent, wrong or stuck, on every
//! platform, polled and by interrupts, with descriptors of both widths and by hand. The controller here is no model (that
//! is `mmc_mock::dw`): it answers so that every path is taken, and changes with nothing but this file.
//!
//! A change that is meant shows here as lines that differ; what the driver then does is to be looked at in the other
//! tests. `MMC_DW_WRITE_RUNS=1 cargo test -p mmc-dw-hsdk --test as_it_was` writes the file anew.

use mmc_dw_hsdk::platform::{self, Board, HSDK, Platform, Sample, SamplePlace, SignalSwitch};
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::{Dir, Mmio};
use mmc_mock::{Buf, Memory, MemoryDma};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Timings, Width};
use mmc_proto::command::{Command, Gate, Response, Stop};
use mmc_proto::host::{Cause, Host, IrqHandler, Operation, Progress, Returned, Slot};
use mmc_time::{Duration, Instant};
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

/// A small generator of numbers, always the same.
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

/// How the controller is today.
#[derive(Clone, Copy, Default)]
struct Mood {
    /// Errors among the events, in 1/16.
    errors: u64,
    /// Commands that never end.
    silent: u64,
    /// Data that never come to their end.
    stalls: u64,
    /// START or a reset that never clears.
    stuck: u64,
    /// DAT0 is low, DAT3 too, when somebody looks.
    busy: u64,
    /// The slot is empty, when somebody looks.
    gone: u64,
}

struct Controller {
    regs: [u32; 0x300 / 4],
    random: Random,
    mood: Mood,
    now: u64,
    /// When which events come, of the controller and of its DMA.
    due: Vec<(u64, u32, u32)>,
    /// How many looks START and the resets still stand.
    start: u64,
    resets: u64,
    memory: Memory,
    ring: u64,
    wide: bool,
    log: Digest,
}

const CTRL: u32 = 0x00;
const CMD: u32 = 0x2c;
const RINTSTS: u32 = 0x44;
const BMOD: u32 = 0x80;
const START: u32 = 1 << 31;
const FOR_EVER: u64 = 1 << 40;

impl Controller {
    fn at_rest(memory: Memory) -> Self {
        Self {
            regs: [0; 0x300 / 4],
            random: Random(1),
            mood: Mood::default(),
            now: 0,
            due: Vec::new(),
            start: 0,
            resets: 0,
            memory,
            ring: 0,
            wide: false,
            log: Digest(0xcbf2_9ce4_8422_2325),
        }
    }
    fn idsts(&self) -> u32 {
        if self.wide { 0x90 } else { 0x8c }
    }
    fn at(&mut self, offset: u32) -> &mut u32 {
        &mut self.regs[offset as usize / 4]
    }
    fn hit(&mut self, sixteenths: u64) -> bool {
        self.random.below(16) < sixteenths
    }
    /// What has become due by now.
    fn tick(&mut self) {
        let (now, idsts) = (self.now, self.idsts());
        for (at, events, dma) in std::mem::take(&mut self.due) {
            if at > now {
                self.due.push((at, events, dma));
                continue;
            }
            *self.at(RINTSTS) |= events;
            *self.at(idsts) |= dma;
            if dma & 3 != 0 && !self.hit(self.mood.silent) {
                self.close();
            }
        }
    }
    /// The descriptors go back to their owner.
    fn close(&mut self) {
        let window = self.memory.window(self.ring, RING);
        for at in (0..RING).step_by(16) {
            window.write32(at, window.read32(at) & 0x7fff_ffff);
        }
    }
    fn count_down(looks: &mut u64) -> bool {
        *looks = looks.saturating_sub(1);
        *looks == 0
    }
    fn read(&mut self, offset: u32) -> u32 {
        self.tick();
        match offset {
            CMD if self.regs[CMD as usize / 4] & START != 0 && Self::count_down(&mut self.start) => {
                *self.at(CMD) &= !START;
            }
            CTRL if Self::count_down(&mut self.resets) => *self.at(CTRL) &= !7,
            BMOD if Self::count_down(&mut self.resets) => *self.at(BMOD) &= !1,
            // DAT3, DAT0, the level of the FIFO.
            0x48 => {
                let busy = self.hit(self.mood.busy);
                let level = self.random.below(20) as u32;
                let dma = if self.hit(1) { START } else { 0 };
                *self.at(0x48) = level << 17 | dma | if busy { 0x200 } else { 0x100 };
            }
            0x50 => *self.at(0x50) = u32::from(self.hit(self.mood.gone)),
            0x54 => *self.at(0x54) = u32::from(self.hit(8)),
            // TCBCNT goes on, or does not.
            0x5c => *self.at(0x5c) += self.random.below(2) as u32 * 512,
            0x100 | 0x200 => *self.at(offset) = self.random.next() as u32,
            _ => {}
        }
        let value = *self.at(offset);
        writeln!(self.log, "r {offset:x} {value:x}").unwrap();
        value
    }
    fn write(&mut self, offset: u32, value: u32) {
        self.tick();
        writeln!(self.log, "w {offset:x} {value:x}").unwrap();
        let clears = offset == RINTSTS || offset == self.idsts();
        if clears {
            *self.at(offset) &= !value;
            return;
        }
        *self.at(offset) = value;
        let stuck = self.hit(self.mood.stuck);
        let looks = if stuck { FOR_EVER } else { self.random.of(&[1, 1, 2, 9, 30]) };
        match offset {
            CTRL | BMOD => self.resets = looks,
            CMD if value & START != 0 => {
                self.start = looks;
                self.command(value);
            }
            _ => {}
        }
    }
    /// What comes of a command, and when.
    fn command(&mut self, word: u32) {
        self.due.clear();
        let mut at = self.now;
        let mut later = |random: &mut Random| {
            at += random.of(&[0, 0, 700, 3_000, 90_000, 2_000_000, 40_000_000]);
            at
        };
        if word & 1 << 21 != 0 {
            if self.hit(1) {
                let at = later(&mut self.random);
                self.due.push((at, 1 << 12, 0));
            }
            return;
        }
        if self.hit(self.mood.silent) {
            return;
        }
        for response in 0..4 {
            *self.at(0x30 + 4 * response) = self.random.next() as u32;
        }
        let wrong = |this: &mut Self, kinds: &[u32]| {
            if this.hit(this.mood.errors) { this.random.of(kinds) } else { 0 }
        };
        let of_command = wrong(self, &[1 << 1, 1 << 6, 1 << 8, 1 << 12, 1, 1 << 16 | 1 << 24]);
        let switch = if word & 1 << 28 != 0 { 1 << 10 } else { 0 };
        let when = later(&mut self.random);
        self.due.push((when, 1 << 2 | of_command | switch, 0));
        if word & 1 << 9 != 0 {
            let of_data = wrong(self, &[1 << 7, 1 << 9, 1 << 10, 1 << 11, 1 << 13, 1 << 15, 1]);
            let of_dma = wrong(self, &[1 << 2 | 1 << 9, 1 << 4 | 1 << 9, 1 << 5]);
            let closed = if word & 1 << 10 != 0 { 0x101 } else { 0x102 };
            let mut parts = [(1 << 3 | of_data, 0), (0, closed | of_dma), (0, 0)];
            if word & 1 << 12 != 0 {
                parts[2] = (1 << 14 | wrong(self, &[1 << 8]), 0);
            }
            let first = self.random.below(3) as usize;
            for n in 0..3 {
                let (events, dma) = parts[(first + n) % 3];
                if !self.hit(self.mood.silent) && !self.hit(self.mood.stalls) {
                    let when = later(&mut self.random);
                    self.due.push((when, events, dma));
                }
            }
        }
    }
}

#[derive(Clone)]
struct Regs(Arc<Mutex<Controller>>);

impl Mmio for Regs {
    fn read32(&self, offset: u32) -> u32 {
        self.0.lock().unwrap().read(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.0.lock().unwrap().write(offset, value);
    }
}

/// A board that notes what it is asked for, and fails now and then.
struct Wires(Regs);

impl Wires {
    fn note(&self, what: String) -> Result<(), Cause> {
        let mut controller = self.0.0.lock().unwrap();
        writeln!(controller.log, "{what}").unwrap();
        let errors = controller.mood.errors;
        if controller.hit(errors / 2) { Err(Cause::Unsupported("by the test")) } else { Ok(()) }
    }
}

impl Board for Wires {
    fn signal(&mut self, signal: Signal) -> Result<(), Cause> {
        self.note(format!("{signal:?}"))
    }
    fn sample(&mut self, point: u16, points: u16) -> Result<(), Cause> {
        self.note(format!("point {point} of {points}"))
    }
}

const RING: u32 = 32768;

fn command(random: &mut Random) -> Command {
    let index = random.below(64) as u8;
    let response = random.of(&[Response::None, Response::Short, Response::ShortNoCrc, Response::Long]);
    let gate = random.of(&[Gate::Idle, Gate::Idle, Gate::Now]);
    let (busy, init_clocks) = (random.below(3) == 0, random.below(8) == 0);
    Command { busy, gate, init_clocks, ..Command::plain(index, random.next() as u32, response) }
}

fn transfer(random: &mut Random) -> Operation<Buf> {
    let dir = random.of(&[Dir::Read, Dir::Write]);
    let block_len = random.of(&[512, 512, 512, 64, 8, 4, 6, 1, 510, 1024, 2048]);
    let blocks = random.of(&[1, 1, 2, 8, 9, 64, 300]);
    let stop = random.of(&[Stop::None, Stop::Manual, Stop::Auto]);
    let arg = random.next() as u32;
    let c = Command::data(random.below(64) as u8, arg, dir, block_len, blocks, stop);
    let len = u64::from(block_len) * u64::from(blocks);
    let len = random.of(&[len, len, len, len, len + 4, len - 1]);
    Operation::Transfer(c, Buf(vec![0xa5; len as usize]))
}

fn bus(random: &mut Random) -> Operation<Buf> {
    let hz = random.of(&[
        0,
        1,
        98_039,
        98_040,
        400_000,
        25_000_000,
        26_000_000,
        50_000_000,
        52_000_000,
        208_000_000,
    ]);
    let width = random.of(&[Width::One, Width::Four, Width::Eight]);
    let signal = random.of(&[Signal::V3_3, Signal::V3_3, Signal::V1_8]);
    let timing = random.of(&[
        Timing::Default,
        Timing::High,
        Timing::Sdr50,
        Timing::Ddr50,
        Timing::Sdr104,
        Timing::Ddr52,
        Timing::Hs200,
        Timing::Hs400,
        Timing::Hs400Es,
    ]);
    let sample = random.of(&[0, 0, 1, 7, 31]);
    Operation::Bus(BusConfig { hz, width, timing, signal, sample })
}

/// One life of a host: switched on, then whatever comes.
fn life(platform: Platform, seed: u64, wired: bool, log: &mut Digest) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.next();
    let wide = random.below(4) == 0;
    // Where only wide descriptors get.
    let base = if wide { 0x12_8000_0000 } else { 0x8000_0000 };
    let memory = Memory::new(base, base + 0x4000_0000);
    let ring = memory.alloc(RING as usize);
    let small = random.below(3) == 0;
    let bytes = if small { 1024 } else { RING };
    let window = memory.window(ring, bytes);
    let descriptors = if wide { Ring::wide(window, ring, bytes) } else { Ring::new(window, ring, bytes) };
    let mask = if wide { u64::MAX } else { u32::MAX.into() };
    let dma = MemoryDma::new(memory.clone(), mask);
    let random_of_its_own = Random(seed | 1 << 40);
    let controller = Controller { random: random_of_its_own, ring, wide, ..Controller::at_rest(memory) };
    let regs = Regs(Arc::new(Mutex::new(controller)));
    {
        let mut c = regs.0.lock().unwrap();
        // HCON and VERID: the width of addresses and of the FIFO, whether there is DMA at all, whether TCBCNT counts.
        let odd = random.below(12) == 0;
        let hcon = u32::from(wide != odd) << 27
            | random.of(&[0, 0, 0, 1 << 26])
            | random.of(&[0, 0, 0, 0, 0, 3 << 16])
            | random.of(&[1, 1, 1, 0, 2]) << 7;
        *c.at(0x70) = hcon;
        *c.at(0x6c) = random.of(&[0x5342_290a, 0x5342_240a, 0x5342_2409, 0x5342_210a]);
        *c.at(0x4c) = random.of(&[15, 31, 127, 1023, 0]) << 16;
    }
    let interrupts = random.below(2) == 0;
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
    if wired {
        let board = Wires(regs.clone());
        if interrupts {
            let parts = (regs.clone(), regs.clone());
            let (host, irq) =
                DwEngine::split_on(parts.0, parts.1, mailbox, descriptors.unwrap(), dma, platform, board);
            live(host, Some(irq), &regs, &mut random);
        } else {
            live(
                DwEngine::new_on(regs.clone(), descriptors.unwrap(), dma, platform, board),
                NOBODY,
                &regs,
                &mut random,
            );
        }
    } else if interrupts {
        let (host, irq) =
            DwEngine::split(regs.clone(), regs.clone(), mailbox, descriptors.unwrap(), dma, platform);
        live(host, Some(irq), &regs, &mut random);
    } else {
        live(DwEngine::new(regs.clone(), descriptors.unwrap(), dma, platform), NOBODY, &regs, &mut random);
    }
    writeln!(log, "{:x}", regs.0.lock().unwrap().log.0).unwrap();
}

/// No interrupt half.
const NOBODY: Option<Polled> = None;

struct Polled;

impl IrqHandler for Polled {
    fn handle(&mut self) -> mmc_proto::host::Irq {
        mmc_proto::host::Irq::NotMine
    }
}

fn show(slot: Slot) -> String {
    format!("{:?} {:?} {} {}", slot.present, slot.write_protected, slot.changes, slot.sdio)
}

fn live(
    mut host: impl Host<Payload = Buf>,
    mut irq: Option<impl IrqHandler>,
    regs: &Regs,
    random: &mut Random,
) {
    let note = |what: String| writeln!(regs.0.lock().unwrap().log, "{what}").unwrap();
    let mut now = Instant::ZERO;
    // By name: what other hosts can do is no business of this file's.
    let c = host.capabilities();
    note(format!("{} {} {}..{} {:?} {}", c.max_blocks, c.max_segments, c.min_hz, c.max_hz, c.width, c.align));
    note(format!("{:x} {:?} {} {} {}", c.ocr, c.timings, c.v1_8, c.sample_points, c.auto_stop));
    let hz = random.of(&[400_000, 50_000_000, 50_000_000]);
    let start = BusConfig { hz, width: Width::One, ..BusConfig::default() };
    let mut ready = false;
    for round in 0..24 {
        // Well at first, then as it comes.
        let rates = [0, 0, 0, 1, 2, 5];
        regs.0.lock().unwrap().mood = match round {
            0..4 => Mood::default(),
            _ => Mood {
                errors: random.of(&rates),
                silent: random.of(&[0, 0, 0, 0, 1, 3]),
                stalls: random.of(&[0, 0, 0, 12]),
                stuck: random.of(&[0, 0, 0, 0, 0, 1]),
                busy: random.of(&[0, 1, 8, 15]),
                gone: random.of(&[0, 0, 0, 1]),
            },
        };
        let operation = match (round, random.below(16)) {
            (0, _) => Operation::Power(Power::On),
            (1, _) => Operation::Bus(start),
            (_, 0) => Operation::Power(random.of(&[Power::On, Power::Off])),
            (_, 1..3) => bus(random),
            (_, 3) => Operation::Command(Command::voltage_switch()),
            (_, 4..8) => Operation::Command(command(random)),
            _ => transfer(random),
        };
        let limit = Duration::from_nanos(random.of(&[
            0,
            5_000,
            3_000_000,
            200_000_000,
            2_000_000_000,
            9_000_000_000,
        ]));
        let prepare = random.below(4) == 0;
        let had = matches!(operation, Operation::Transfer(..));
        let submitted = match operation {
            Operation::Transfer(c, payload) if prepare && ready => {
                note(format!("prepares CMD{}", c.index));
                match host.prepare(c, payload) {
                    Err(e) => {
                        note(format!("{:?}", e.error));
                        false
                    }
                    Ok(()) => {
                        let result = host.submit_prepared(now + limit, now);
                        note(format!("{result:?}"));
                        result.is_ok()
                    }
                }
            }
            operation => {
                note(format!("submits for {limit}"));
                match host.submit(operation, now + limit, now) {
                    Ok(()) => true,
                    Err(e) => {
                        note(format!("{:?}", e.error));
                        false
                    }
                }
            }
        };
        let abort_at = random.below(60);
        let mut polls = 0;
        if !submitted {
            continue;
        }
        loop {
            match host.poll(now) {
                Progress::Done(done) => {
                    let back = match &done.payload {
                        Returned::Back(buf) => format!(
                            "{:?}",
                            buf.0.iter().fold(buf.0.len() as u64, |s, b| s.wrapping_mul(31) + u64::from(*b))
                        ),
                        Returned::None => "nothing".into(),
                        Returned::Quarantined => "kept".into(),
                    };
                    assert!(had || matches!(done.payload, Returned::None));
                    note(format!("{:?} {back}", done.result));
                    ready |= round == 1 && done.result.is_ok();
                    break;
                }
                Progress::Waiting { why, until } => {
                    note(format!("{why:?} {until:?}"));
                    if round > 3 && polls == abort_at {
                        host.abort(now);
                        note("abort".into());
                    }
                    if random.below(8) == 0 {
                        note(show(host.slot(now)));
                        host.sdio_interrupt(random.below(2) == 0);
                    }
                    let until = until.max(now + Duration::from_nanos(1));
                    let early =
                        Instant::ZERO + Duration::from_nanos(until.since(Instant::ZERO).as_nanos() - 1);
                    // At the instant it names, just before, long after; by interrupts usually when something happens.
                    now = match (random.below(12), &irq) {
                        (0, _) => early.max(now),
                        (1, _) => until + Duration::from_micros(300),
                        (2..9, Some(_)) => (now + Duration::from_nanos(1_500)).min(until),
                        _ => until,
                    };
                    regs.0.lock().unwrap().now = now.since(Instant::ZERO).as_nanos();
                    regs.0.lock().unwrap().tick();
                    if let Some(irq) = &mut irq {
                        let shows = {
                            let c = regs.0.lock().unwrap();
                            c.regs[0x44 / 4] & c.regs[0x24 / 4] != 0
                                || c.regs[c.idsts() as usize / 4] & 0x214 != 0
                        };
                        if shows || random.below(20) == 0 {
                            note(format!("{:?}", irq.handle()));
                        }
                    }
                    polls += 1;
                    assert!(polls < 100_000, "polled for ever");
                }
                Progress::Idle => panic!("idle without a completion"),
            }
        }
    }
    note(show(host.slot(now)));
}

#[test]
fn the_driver_does_what_it_did() {
    let everything = Timing::ALL.iter().copied().fold(Timings::new(), Timings::with);
    let inside = Some(Sample { place: SamplePlace::Controller { offset: 0x108, shift: 16 }, points: 32 });
    let elsewhere = Some(Sample { place: SamplePlace::Controller { offset: 0x110, shift: 4 }, points: 8 });
    let outside = Some(Sample { place: SamplePlace::Outside("a test"), points: 8 });
    let fast = Platform {
        ciu_hz: 200_000_000,
        max_hz: 200_000_000,
        timings: everything,
        width: Width::Eight,
        ..HSDK
    };
    let mut platforms = vec![
        ("HSDK", HSDK),
        ("generic", Platform { uhs_reg_ext: None, ..HSDK }),
        (
            "late response errors, clock rests",
            Platform {
                late_response_errors: 8,
                clock_settle: Duration::from_millis(20),
                power_inverted: true,
                sdio_bit: 24,
                ..HSDK
            },
        ),
        ("everything", Platform { signal: SignalSwitch::Register, sample: inside, ..fast }),
        (
            "everything by the board",
            Platform { signal: SignalSwitch::Board, sample: outside, drive_phase: true, ..fast },
        ),
        (
            "a register of its own",
            Platform { signal: SignalSwitch::Register, sample: elsewhere, uhs_reg_ext: None, ..fast },
        ),
        ("no 1.8 V", Platform { signal: SignalSwitch::Fixed, sample: inside, ..fast }),
        (
            "no detection",
            Platform {
                card_detect: platform::CardDetect::Unknown,
                write_protect: true,
                fifo_depth: 4,
                ..HSDK
            },
        ),
        ("clock of 0", Platform { ciu_hz: 0, ..HSDK }),
    ];
    // One timing each: what it alone makes the driver write.
    let each: Vec<_> = Timing::ALL
        .iter()
        .copied()
        .filter(|timing| *timing != Timing::Default)
        .enumerate()
        .map(|(n, timing)| {
            let signal = if n % 2 == 0 { SignalSwitch::Register } else { SignalSwitch::Fixed };
            (format!("{timing:?} alone"), Platform { timings: Timings::new().with(timing), signal, ..fast })
        })
        .collect();
    platforms.extend(each.iter().map(|(name, platform)| (name.as_str(), *platform)));
    platforms.extend(platform::ALL.iter().map(|p| (p.name, *p)));
    let mut lines = Vec::new();
    for (n, (name, platform)) in platforms.into_iter().enumerate() {
        for wired in [false, true] {
            let mut log = Digest(0xcbf2_9ce4_8422_2325);
            for seed in 0..if n < 9 { 40 } else { 6 } {
                life(platform, 1 + seed + 1000 * n as u64, wired, &mut log);
            }
            lines.push(format!("{name}, wired {wired}: {:016x}", log.0));
        }
    }
    // Numbers at the ends of what a platform may have.
    let sample = |points| Some(Sample { place: SamplePlace::Outside("a test"), points });
    let (us, ms) = (Duration::from_micros, Duration::from_millis);
    for p in [
        Platform { ciu_hz: 1, ..HSDK },
        Platform { max_hz: 1, ..HSDK },
        Platform { fifo_depth: 3, ..HSDK },
        Platform { fifo_depth: 4, ..HSDK },
        Platform { fifo_depth: 4096, ..HSDK },
        Platform { fifo_depth: 4097, ..HSDK },
        Platform { sdio_bit: 15, ..HSDK },
        Platform { sdio_bit: 16, ..HSDK },
        Platform { sdio_bit: 31, ..HSDK },
        Platform { sdio_bit: 32, ..HSDK },
        Platform { signal_settle: us(4_999), ..HSDK },
        Platform { signal_settle: us(5_000), ..HSDK },
        Platform { clock_settle: ms(500), ..HSDK },
        Platform { clock_settle: ms(501), ..HSDK },
        Platform { sample: sample(1), ..HSDK },
        Platform { sample: sample(2), ..HSDK },
        Platform { sample: sample(1024), ..HSDK },
        Platform { sample: sample(1025), ..HSDK },
        Platform { biu_hz: 1_000_000, debounce: us(0xff_ffff), ..HSDK },
        Platform { biu_hz: 1_000_000, debounce: us(0x100_0000), ..HSDK },
    ] {
        lines.push(format!("{:?} {}", p.check(), p.debounce_clocks()));
    }
    // Rings of every size, and what a host with one can do.
    let memory = Memory::new(0x8000_0000, 0xc000_0000);
    for bytes in [0, 16, 31, 32, 63, 64, 1024, 8191, 8192, 16_383, 16_384, 32_767, 32_768] {
        for bus in [0x8000_0000, 0x8000_0010, 0x8000_0008, 0xffff_ffe0, 0xffff_fff0, 1 << 32, u64::MAX - 31] {
            let shown = |ring: Result<Ring<_>, Cause>| match ring {
                Ok(ring) => {
                    let dma = MemoryDma::new(memory.clone(), u32::MAX.into());
                    let nothing = Regs(Arc::new(Mutex::new(Controller::at_rest(memory.clone()))));
                    let host = DwEngine::<_, _, _, Buf>::new(nothing, ring, dma, HSDK);
                    let caps = Host::capabilities(&host);
                    format!(
                        "{} blocks, {} segments, {} Hz",
                        caps.max_blocks,
                        caps.max_segments,
                        host.engine().card_hz()
                    )
                }
                Err(why) => why.to_string(),
            };
            let window = || memory.window(0x8000_0000, bytes);
            let both = [shown(Ring::new(window(), bus, bytes)), shown(Ring::wide(window(), bus, bytes))];
            lines.push(format!("{bytes} bytes at {bus:x}: {both:?}"));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/as_it_was.txt");
    let text = lines.join("\n") + "\n";
    if std::env::var_os("MMC_DW_WRITE_RUNS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap();
    for (is, was) in text.lines().zip(there.lines()) {
        assert_eq!(is, was, "{path}");
    }
    assert_eq!(text.lines().count(), there.lines().count(), "{path}");
}

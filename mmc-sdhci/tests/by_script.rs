//! What QEMU's controller cannot show: 1.8 V, silence, resets that stick. Registers that behave as a test says.

use mmc_hal::{Dir, Mmio};
use mmc_mock::{Buf, Memory, MemoryDma, Window};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{
    Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned, Supervised,
};
use mmc_sdhci::reg::{
    CAPS, CAPS_HIGH, CLOCK, COMMAND, HOST, HOST2, PRESENT, RESPONSE0, SIGNAL_1_8, STATUS, STATUS_ENABLE,
    VERSION,
};
use mmc_sdhci::{GRACE, Platform, SdhciEngine, Table};
use mmc_time::{Duration, Instant};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A controller of version 3 with a card, as far as a driver sees it.
#[derive(Default)]
struct Script {
    words: HashMap<u32, u32>,
    writes: Vec<(u32, u32)>,
    /// What a command latches, of what is enabled.
    events: u32,
    /// Resets that never end.
    stuck: u32,
    /// The level of the signals goes back to 3.3 V.
    refuses_low: bool,
    /// DAT3:0 stay low at 1.8 V.
    holds_lines: bool,
}

#[derive(Clone, Default)]
struct Regs(Arc<Mutex<Script>>);

impl Mmio for Regs {
    fn read32(&self, offset: u32) -> u32 {
        let s = self.0.lock().unwrap();
        let word = s.words.get(&offset).copied().unwrap_or(0);
        match offset {
            CAPS => 0x0578_34b4,
            CAPS_HIGH => 4, // DDR50
            VERSION => 2 << 16,
            PRESENT if s.holds_lines && s.words.get(&HOST2).is_some_and(|w| w & SIGNAL_1_8 != 0) => {
                0x0009_0000
            }
            PRESENT => 0x01f9_0000,
            // The internal clock is stable at once, resets end at once.
            CLOCK => word & !(7 << 24 & !s.stuck) | word << 1 & 2,
            HOST2 if s.refuses_low => word & !SIGNAL_1_8,
            _ => word,
        }
    }
    fn write32(&self, offset: u32, value: u32) {
        let mut s = self.0.lock().unwrap();
        s.writes.push((offset, value));
        if offset == STATUS {
            *s.words.entry(STATUS).or_default() &= !value;
            return;
        }
        s.words.insert(offset, value);
        if offset == COMMAND {
            let latched = s.events & s.words.get(&STATUS_ENABLE).copied().unwrap_or(0);
            *s.words.entry(STATUS).or_default() |= latched;
        }
    }
}

struct Bench {
    regs: Regs,
    host: Supervised<SdhciEngine<Regs, Window, MemoryDma, Buf>>,
    now: Instant,
}

const LIMIT: Duration = Duration::from_secs(3);
const BUS: BusConfig = BusConfig {
    hz: 25_000_000,
    width: Width::Four,
    timing: Timing::Default,
    signal: Signal::V3_3,
    sample: 0,
};

impl Bench {
    /// Powered, with a clock.
    fn new() -> Self {
        let (regs, memory) = (Regs::default(), Memory::new(0x8000_0000, 0xc000_0000));
        let at = memory.alloc(4096);
        let table = Table::new(memory.window(at, 4096), at, 4096).unwrap();
        let dma = MemoryDma::new(memory, u32::MAX.into());
        let platform = Platform { v1_8: true, max_hz: 100_000_000, ..Platform::STANDARD };
        let host = SdhciEngine::new(regs.clone(), table, dma, platform);
        let mut bench = Self { regs, host, now: Instant::ZERO };
        bench.run(Operation::Power(Power::On)).result.unwrap();
        bench.run(Operation::Bus(BUS)).result.unwrap();
        bench.script(|s| s.writes.clear());
        bench
    }
    fn script<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        f(&mut self.regs.0.lock().unwrap())
    }
    fn run(&mut self, op: Operation<Buf>) -> Completion<Buf> {
        self.host.submit(op, self.now + LIMIT, self.now).unwrap();
        let by = self.now + LIMIT + GRACE;
        loop {
            match self.host.poll(self.now) {
                Progress::Done(done) => return done,
                Progress::Waiting { until, .. } => self.now = until.max(self.now + Duration::from_nanos(1)),
                Progress::Idle => panic!("idle without a completion"),
            }
            assert!(self.now <= by, "past its limit");
        }
    }
    fn command(&mut self, c: Command) -> Result<Reply, HostError> {
        self.run(Operation::Command(c)).result
    }
    fn read(&mut self) -> Completion<Buf> {
        self.run(Operation::Transfer(Command::read_multiple_block(0, 8, Stop::Manual), Buf(vec![0; 4096])))
    }
}

const ANSWER: u32 = 1;
const TRANSFER: u32 = 2;

#[test]
fn the_switch_to_low_signals_stops_the_clock_waits_and_looks_at_the_lines() {
    let low = BusConfig { signal: Signal::V1_8, timing: Timing::Ddr50, hz: 50_000_000, ..BUS };
    let mut b = Bench::new();
    b.script(|s| s.events = ANSWER);
    b.command(Command::voltage_switch()).unwrap();
    b.script(|s| s.writes.clear());
    let begun = b.now;
    b.run(Operation::Bus(low)).result.unwrap();
    assert!(b.now.since(begun) >= Duration::from_millis(5));
    let writes = b.script(|s| std::mem::take(&mut s.writes));
    let of = |at: u32| -> Vec<u32> { writes.iter().filter(|w| w.0 == at).map(|w| w.1).collect() };
    assert_eq!(of(HOST2), [SIGNAL_1_8 | 4 << 16], "1.8 V, DDR50");
    assert_eq!(of(HOST), [0x0f16], "3.3 V supply, on, ADMA2, high speed, four lines");
    let cards: Vec<u32> = of(CLOCK).iter().map(|w| w & 7).collect();
    assert_eq!(cards.first().map(|w| w & 4), Some(0), "off first");
    assert_eq!(cards[1..], [1, 5], "the internal clock, then the card's");
    assert_eq!(b.host.engine().card_hz(), 26_000_000, "52 MHz is too fast");
}

#[test]
fn a_switch_that_one_side_does_not_follow_is_an_error() {
    type Set = fn(&mut Script);
    for set in [(|s| s.refuses_low = true) as Set, |s| s.holds_lines = true] {
        let mut b = Bench::new();
        b.script(set);
        let low = BusConfig { signal: Signal::V1_8, timing: Timing::Sdr25, ..BUS };
        let error = b.run(Operation::Bus(low)).result.unwrap_err();
        assert_eq!((error.cause, error.phase), (Cause::VoltageSwitch, Phase::Bus));
        // Only the supply helps.
        b.script(|s| (s.refuses_low, s.holds_lines) = (false, false));
        b.run(Operation::Power(Power::Off)).result.unwrap();
        b.run(Operation::Power(Power::On)).result.unwrap();
        b.run(Operation::Bus(BUS)).result.unwrap();
        assert_eq!(b.script(|s| s.words[&HOST2]), 0);
    }
}

#[test]
fn timings_the_capabilities_do_not_name_are_refused() {
    let mut b = Bench::new();
    let caps = b.host.capabilities();
    assert!(caps.v1_8 && caps.timings.has(Timing::Ddr50) && !caps.timings.has(Timing::Sdr104));
    assert!(!caps.self_tuning && caps.sample_points == 0);
    let fast = BusConfig { signal: Signal::V1_8, timing: Timing::Sdr50, ..BUS };
    let refused = b.host.submit(Operation::Bus(fast), b.now + LIMIT, b.now);
    assert!(matches!(refused.unwrap_err().error.cause, Cause::Unsupported(_)));
}

#[test]
fn a_command_the_controller_says_nothing_about_ends_before_its_caller_gives_up() {
    let mut b = Bench::new();
    let begun = b.now;
    let error = b.command(Command::send_status(1)).unwrap_err();
    assert_eq!((error.cause, error.phase), (Cause::Timeout, Phase::Command));
    assert!(b.now.since(begun) < Duration::from_secs(1));
}

#[test]
fn data_that_do_not_come_are_a_timeout_with_the_answer_that_says_why() {
    let mut b = Bench::new();
    b.script(|s| {
        s.events = ANSWER | 1 << 20;
        s.words.insert(RESPONSE0, 0x8000_0900);
    });
    let done = b.read();
    let error = done.result.unwrap_err();
    assert_eq!((error.cause, error.phase, error.r1), (Cause::Timeout, Phase::Data, Some(0x8000_0900)));
    assert!(matches!(done.payload, Returned::Back(_)));
    let resets: Vec<u32> =
        b.script(|s| s.writes.iter().filter(|w| w.0 == CLOCK).map(|w| w.1 >> 24).collect());
    assert_eq!(resets, [2, 4], "the command circuit, then the data circuit");
    // And a write's busy is not cut short: the same event is not even latched.
    b.script(|s| s.events = ANSWER | TRANSFER | 1 << 20);
    let write = Command::write_multiple_block(0, 8, Stop::Manual);
    let done = b.run(Operation::Transfer(write, Buf(vec![0; 4096])));
    assert_eq!(done.result.unwrap().bytes, 4096);
    assert_eq!(write.data.unwrap().dir, Dir::Write);
}

#[test]
fn a_data_circuit_that_cannot_be_reset_is_reset_with_everything() {
    let mut b = Bench::new();
    b.script(|s| (s.events, s.stuck) = (ANSWER | 1 << 21, 4 << 24));
    let done = b.read();
    assert_eq!(done.result.unwrap_err().cause, Cause::Crc);
    assert!(matches!(done.payload, Returned::Back(_)));
    // Its settings are gone: nothing goes on before the supply has been off.
    let refused = b.host.submit(Operation::Command(Command::send_status(1)), b.now + LIMIT, b.now);
    assert_eq!(refused.unwrap_err().error.cause, Cause::Controller);
    b.script(|s| (s.events, s.stuck) = (ANSWER, 0));
    b.run(Operation::Power(Power::On)).result.unwrap();
    b.run(Operation::Bus(BUS)).result.unwrap();
    b.command(Command::send_status(1)).unwrap();
}

#[test]
fn a_controller_that_cannot_be_stopped_keeps_the_buffers_until_it_has() {
    let mut b = Bench::new();
    b.script(|s| (s.events, s.stuck) = (ANSWER | 1 << 25, 7 << 24));
    let done = b.read();
    assert_eq!(done.result.unwrap_err().cause, Cause::Dma);
    assert_eq!(done.payload, Returned::Quarantined);
    assert!(b.host.reclaim(b.now).is_none(), "it may still write");
    b.script(|s| s.stuck = 0);
    let mut back = None;
    for _ in 0..10 {
        b.now += Duration::from_millis(200);
        back = back.or(b.host.reclaim(b.now));
    }
    assert_eq!(back.map(|p| p.0.len()), Some(4096));
}

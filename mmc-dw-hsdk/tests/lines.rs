//! The lines between host and card: the switch to 1.8 V, the sample point, double data rate, the card read threshold, and
//! a controller whose power domain was off meanwhile. By commands, without a conversation above them.

mod bench;

use bench::{Bench, MODES, Mode, buffers, bytes, pattern};
use mmc_dw_hsdk::platform::{Board, HSDK, Platform, Sample, SamplePlace, SignalSwitch};
use mmc_dw_hsdk::{DwEngine, Ring};
use mmc_mock::card::{MmcCard, SdCard, SdConfig, Shared, Uhs};
use mmc_mock::dw::{Config, Dw, Fault};
use mmc_mock::timing::Profile;
use mmc_mock::{BufBatch, Clock, Memory, MemoryDma, Wakes, zoo};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Timings, Width};
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{Cause, Host, HostError, Operation, Phase, Progress, Reply, Returned};
use mmc_proto::machine::{Conductor, Identify, Turn};
use mmc_time::Duration;
use std::sync::{Arc, Mutex};

const UHS: Timings = Timings::new()
    .with(Timing::Sdr12)
    .with(Timing::Sdr25)
    .with(Timing::Sdr50)
    .with(Timing::Ddr50)
    .with(Timing::Sdr104);

/// A board for UHS-I: 200 MHz, 1.8 V by the controller's own bit, 32 sample points in UHS_REG_EXT.
const FAST: Platform = Platform {
    name: "a UHS-I board",
    ciu_hz: 200_000_000,
    max_hz: 200_000_000,
    uhs_reg_ext: None,
    fifo_depth: 256,
    timings: UHS,
    signal: SignalSwitch::Register,
    sample: Some(Sample { place: SamplePlace::Controller { offset: 0x108, shift: 16 }, points: 32 }),
    ..HSDK
};

fn config() -> Config {
    let max = 200_000_000;
    Config { ciu_hz: max, max_hz: max, ext_div: [1; 4], fifo_depth: 256, ..Config::hsdk() }
}

fn card() -> SdConfig {
    SdConfig { uhs: Some(Uhs::new(3)), ..SdConfig::new(Profile::ideal(), 1) }
}

const SECOND: Duration = Duration::from_secs(1);
const SLOW: BusConfig =
    BusConfig { hz: 400_000, width: Width::One, timing: Timing::Default, signal: Signal::V3_3, sample: 0 };
const LOW: BusConfig = BusConfig { signal: Signal::V1_8, timing: Timing::Sdr12, ..SLOW };

fn cmd11() -> Command {
    Command { voltage_switch: true, ..Command::voltage_switch() }
}

/// Whatever runs operations.
trait Runs {
    fn go(&mut self, op: Operation<BufBatch>) -> (Result<Reply, HostError>, Option<BufBatch>);
    fn send(&mut self, c: Command) -> Result<Reply, HostError> {
        self.go(Operation::Command(c)).0
    }
    fn bus(&mut self, bus: BusConfig) -> Result<(), HostError> {
        self.go(Operation::Bus(bus)).0.map(drop)
    }
    fn get(&mut self, c: Command) -> Result<Vec<u8>, HostError> {
        let len = c.data.unwrap().bytes() as usize;
        let (result, payload) = self.go(Operation::Transfer(c, buffers(&[len.next_multiple_of(512)])));
        result.map(|_| bytes(payload.unwrap())[..len].to_vec())
    }

    /// From no supply to a card in the ready state that has agreed to 1.8 V.
    fn to_ready(&mut self) {
        self.go(Operation::Power(Power::Off)).0.unwrap();
        self.go(Operation::Power(Power::On)).0.unwrap();
        self.bus(SLOW).unwrap();
        self.send(Command { init_clocks: true, ..Command::go_idle_state() }).unwrap();
        self.send(Command::send_if_cond(0xaa)).unwrap();
        for _ in 0..1000 {
            self.send(Command::app_cmd(0)).unwrap();
            let ask = Command::plain(41, 0x4130_0000, Response::ShortNoCrc);
            let ocr = self.send(ask).unwrap().words[0];
            if ocr >> 31 != 0 {
                assert_eq!(ocr >> 24 & 1, 1, "it has agreed to 1.8 V");
                return;
            }
        }
        panic!("the card is never ready");
    }
    fn to_low(&mut self) {
        self.to_ready();
        self.send(cmd11()).unwrap();
        self.bus(LOW).unwrap();
    }
    /// From 1.8 V in the ready state to four lines in the transfer state.
    fn to_transfer(&mut self) -> u16 {
        self.send(Command::all_send_cid()).unwrap();
        let rca = (self.send(Command::send_relative_addr()).unwrap().words[0] >> 16) as u16;
        self.bus(BusConfig { hz: 25_000_000, ..LOW }).unwrap();
        self.send(Command::select_card(rca)).unwrap();
        self.send(Command::app_cmd(rca)).unwrap();
        self.send(Command::acmd_set_bus_width(Width::Four)).unwrap();
        self.bus(BusConfig { hz: 25_000_000, width: Width::Four, ..LOW }).unwrap();
        rca
    }
    /// CMD6 to access mode `function`, and the bus with it.
    fn to_mode(&mut self, function: u32, hz: u32, timing: Timing) -> BusConfig {
        let status = self
            .get(Command::data(6, 0x80ff_fff0 | function, mmc_hal::Dir::Read, 64, 1, Stop::None))
            .unwrap();
        assert_eq!(u32::from(status[16] & 15), function, "the card takes the mode");
        let bus = BusConfig { hz, width: Width::Four, timing, ..LOW };
        self.bus(bus).unwrap();
        bus
    }
    /// Which sample points get the tuning block whole.
    fn window(&mut self, bus: BusConfig, points: u16) -> Vec<bool> {
        let block = |host: &mut Self, sample| {
            host.bus(BusConfig { sample, ..bus }).unwrap();
            host.get(Command::send_tuning_block())
        };
        (0..points).map(|p| block(self, p).is_ok_and(|b| b[..4] == [0xff, 0x0f, 0xff, 0x00])).collect()
    }
}

impl Runs for Bench {
    fn go(&mut self, op: Operation<BufBatch>) -> (Result<Reply, HostError>, Option<BufBatch>) {
        let done = self.operate(op, SECOND);
        let payload = if let Returned::Back(p) = done.payload { Some(p) } else { None };
        (done.result, payload)
    }
}

fn fast(mode: Mode) -> Bench {
    Bench::with(mode, config(), FAST, card())
}

/// The middle of the longest run of good points; they lie in a circle.
fn middle(good: &[bool]) -> u16 {
    let n = good.len();
    let run = |from: usize| (0..n).take_while(|i| good[(from + i) % n]).count();
    let best = (0..n).max_by_key(|from| run(*from)).unwrap();
    ((best + run(best) / 2) % n) as u16
}

#[test]
fn the_fastest_bus_needs_1_8_v_and_a_sample_point() {
    for mode in MODES {
        let mut b = fast(mode);
        b.to_low();
        assert!(b.card.lock().is_1_8_v());
        b.to_transfer();
        let bus = b.to_mode(3, 200_000_000, Timing::Sdr104);
        assert_eq!(b.host.engine().card_hz(), 200_000_000);
        let good = b.window(bus, 32);
        let n = good.iter().filter(|g| **g).count();
        assert!((8..=28).contains(&n), "{mode:?}: {n} of 32 points are good: {good:?}");
        b.bus(BusConfig { sample: middle(&good), ..bus }).unwrap();
        let data = pattern(65_536, 1);
        b.store(100, &data);
        assert!(b.get(Command::read_multiple_block(100, 128, Stop::Auto)).unwrap() == data);
        // In the middle of the bad points nothing arrives right, and an error is what it is.
        let bad = middle(&good.iter().map(|g| !g).collect::<Vec<_>>());
        b.bus(BusConfig { sample: bad, ..bus }).unwrap();
        let e = b.get(Command::read_single_block(100)).unwrap_err();
        assert_eq!(e.cause, Cause::Crc);
        b.bus(BusConfig { sample: middle(&good), ..bus }).unwrap();
        b.send(Command { busy: false, ..Command::stop_transmission() }).ok();
        assert!(b.get(Command::read_single_block(100)).unwrap() == data[..512]);
        b.assert_clean();
    }
}

#[test]
fn double_data_rate_moves_twice_as_much_in_a_clock() {
    let mut b = fast(Mode::Interrupts);
    b.to_low();
    b.to_transfer();
    let took = |b: &mut Bench| {
        let data = pattern(1 << 18, 9);
        b.store(64, &data);
        let began = b.clock.now();
        assert!(b.get(Command::read_multiple_block(64, 512, Stop::Auto)).unwrap() == data);
        b.clock.now().since(began).as_nanos()
    };
    b.to_mode(1, 50_000_000, Timing::Sdr25);
    let single = took(&mut b);
    b.to_mode(4, 50_000_000, Timing::Ddr50);
    let double = took(&mut b);
    // 1024 clocks of data of 1042 become 512 of 530.
    assert!((19..=20).contains(&(single * 10 / double)), "{single} ns, {double} ns");
    b.assert_clean();
}

#[test]
fn a_card_that_does_not_follow_is_an_error_and_a_power_cycle_helps() {
    for (mode, by_card) in MODES.into_iter().flat_map(|m| [(m, true), (m, false)]) {
        let mut c = card();
        c.quirks.switch_hangs = by_card;
        let mut b = Bench::with(mode, config(), FAST, c);
        b.to_ready();
        if !by_card {
            b.dw.inject(Fault::StuckVoltSwitch);
        }
        b.send(cmd11()).unwrap();
        let began = b.clock.now();
        let e = b.bus(LOW).unwrap_err();
        assert_eq!((e.cause, e.phase), (Cause::VoltageSwitch, Phase::Bus), "{mode:?}");
        let took = b.clock.now().since(began);
        assert!(took >= FAST.signal_settle && took <= Duration::from_millis(15), "{took}");
        // At 3.3 V after a power cycle.
        b.go(Operation::Power(Power::Off)).0.unwrap();
        let traits = b.identify().traits;
        let data = pattern(4096, 3);
        assert_eq!(b.write(&traits, 8, &data), Ok(8), "{mode:?}");
        assert_eq!(b.dw.violations().iter().filter(|v| !v.contains("card:")).count(), 0);
    }
}

#[test]
fn cmd11_is_over_when_the_lines_are_low_however_late_and_never_hangs() {
    for (low_ms, want) in [(1, true), (130, true), (400, true), (600, false)] {
        for mode in MODES {
            let slow = Config { volt_low_ns: low_ms * 1_000_000, ..config() };
            let mut b = Bench::with(mode, slow, FAST, card());
            b.to_ready();
            let began = b.clock.now();
            let result = b.send(cmd11());
            let took = b.clock.now().since(began);
            match result {
                Ok(reply) => assert!(want && reply.words[0] & 0xff00_0000 == 0, "{mode:?} {low_ms}"),
                Err(e) => assert!(!want && e.cause == Cause::Timeout, "{mode:?} {low_ms}: {e}"),
            }
            assert!(took <= Duration::from_millis(501), "{mode:?} {low_ms}: {took}");
        }
    }
    // A card that refuses answers nothing.
    let mut b = fast(Mode::Interrupts);
    b.to_ready();
    b.dw.inject(Fault::NoResponse);
    assert_eq!(b.send(cmd11()).unwrap_err().cause, Cause::Timeout);
}

#[test]
fn what_the_board_cannot_do_is_not_offered_and_refused() {
    let mut b = Bench::new(Mode::Polled);
    let caps = b.host.capabilities();
    assert!(!caps.v1_8 && caps.sample_points == 0 && caps.auto_stop);
    b.go(Operation::Power(Power::On)).0.unwrap();
    b.bus(SLOW).unwrap();
    for bus in [LOW, BusConfig { sample: 1, ..SLOW }, BusConfig { timing: Timing::Ddr50, ..SLOW }] {
        assert!(matches!(b.bus(bus).unwrap_err().cause, Cause::Unsupported(_)), "{bus:?}");
    }
    assert!(matches!(b.send(cmd11()).unwrap_err().cause, Cause::Unsupported("1.8 V signalling")));
    // Wires that only a `Board` can reach, and none was given.
    let outside = Platform {
        signal: SignalSwitch::Board,
        sample: Some(Sample { place: SamplePlace::Outside("a register of the board"), points: 8 }),
        ..FAST
    };
    let caps = Bench::with(Mode::Polled, config(), outside, card()).host.capabilities();
    assert!(!caps.v1_8 && caps.sample_points == 0 && !caps.timings.has(Timing::Sdr12));
    let caps = fast(Mode::Polled).host.capabilities();
    assert!(caps.v1_8 && caps.sample_points == 32 && caps.timings == UHS);
}

/// A board that does it outside of the controller, and keeps a list.
struct Outside(Dw<Shared<SdCard>>, Arc<Mutex<Vec<String>>>);

impl Board for Outside {
    fn signal(&mut self, signal: Signal) -> Result<(), Cause> {
        self.1.lock().unwrap().push(format!("{signal:?}"));
        self.0.supply_lines(signal == Signal::V1_8);
        Ok(())
    }
    fn sample(&mut self, point: u16, points: u16) -> Result<(), Cause> {
        self.1.lock().unwrap().push(format!("{point} of {points}"));
        self.0.sample_at((180 + point * 360 / points) % 360);
        Ok(())
    }
}

#[test]
fn a_board_switches_level_and_sample_point_by_its_hooks() {
    type Wired = DwEngine<Dw<Shared<SdCard>>, mmc_mock::Window, MemoryDma, BufBatch, Outside>;
    struct Rig(mmc_proto::host::Supervised<Wired>, Clock, Dw<Shared<SdCard>>);
    impl Runs for Rig {
        fn go(&mut self, op: Operation<BufBatch>) -> (Result<Reply, HostError>, Option<BufBatch>) {
            let now = self.1.now();
            if let Err(e) = self.0.submit(op, now + SECOND, now) {
                return (Err(e.error), None);
            }
            loop {
                match self.0.poll(self.1.now()) {
                    Progress::Done(done) => {
                        let p = if let Returned::Back(p) = done.payload { Some(p) } else { None };
                        return (done.result, p);
                    }
                    Progress::Waiting { until, .. } => self.1.advance_to(until.min(self.2.next_event())),
                    Progress::Idle => panic!("idle"),
                }
            }
        }
    }
    let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
    let shared = Shared::new(SdCard::new(card()).unwrap());
    let dw = Dw::new(shared, clock.clone(), memory.clone(), Config { sample: None, ..config() });
    let at = memory.alloc(8192);
    let ring = Ring::new(memory.window(at, 8192), at, 8192).unwrap();
    let platform = Platform {
        signal: SignalSwitch::Board,
        sample: Some(Sample { place: SamplePlace::Outside("the test"), points: 8 }),
        ..FAST
    };
    let list = Arc::new(Mutex::new(Vec::new()));
    let board = Outside(dw.clone(), Arc::clone(&list));
    let dma = MemoryDma::new(memory, u32::MAX.into());
    let host = DwEngine::new_on(dw.clone(), ring, dma, platform, board);
    let mut b = Rig(host, clock, dw.clone());
    b.to_low();
    assert_eq!(*list.lock().unwrap(), ["V3_3", "0 of 8", "V1_8"], "before the supply comes, and when told");
    b.to_transfer();
    let bus = b.to_mode(2, 100_000_000, Timing::Sdr50);
    let good = b.window(bus, 8);
    assert!(good.contains(&true) && good.contains(&false), "{good:?}");
    assert_eq!(list.lock().unwrap().len(), 3 + 7, "point 0 was set already");
    assert_eq!(dw.violations(), Vec::<String>::new());
}

#[test]
fn the_read_threshold_is_on_for_fast_reads_that_fit_and_off_else() {
    use mmc_hal::Mmio;
    const CARDTHRCTL: u32 = 0x100;
    for (depth, on) in [(256, true), (64, false)] {
        let platform = Platform { fifo_depth: depth, ..FAST };
        let mut b = Bench::with(Mode::Polled, Config { fifo_depth: depth, ..config() }, platform, card());
        b.to_low();
        b.to_transfer();
        assert_eq!(b.dw.read32(CARDTHRCTL), 0);
        let bus = b.to_mode(3, 200_000_000, Timing::Sdr104);
        let good = b.window(bus, 32);
        b.bus(BusConfig { sample: middle(&good), ..bus }).unwrap();
        assert_eq!(b.dw.read32(CARDTHRCTL), 64 << 16 | 1, "a tuning block fits either");
        b.get(Command::read_single_block(5)).unwrap();
        assert_eq!(b.dw.read32(CARDTHRCTL), if on { 512 << 16 | 1 } else { 0 }, "depth {depth}");
        let write = Operation::Transfer(Command::write_block(5), buffers(&[512]));
        b.go(write).0.unwrap();
        assert_eq!(b.dw.read32(CARDTHRCTL), 0, "a write has none");
        b.assert_clean();
    }
}

/// Suspend: the clock off, then the controller's domain. Resume: `Power::On` under a card that kept its supply, and the
/// bus as it was.
#[test]
fn a_controller_that_lost_its_registers_goes_on_with_the_card_as_it_was() {
    for (mode, low) in MODES.into_iter().flat_map(|m| [(m, true), (m, false)]) {
        let mut b = if low { fast(mode) } else { Bench::new(mode) };
        let bus = if low {
            b.to_low();
            b.to_transfer();
            b.to_mode(4, 50_000_000, Timing::Ddr50)
        } else {
            b.identify();
            BusConfig { hz: 50_000_000, width: Width::Four, timing: Timing::High, ..SLOW }
        };
        let data = pattern(8192, 8);
        b.store(16, &data);
        b.bus(BusConfig { hz: 0, ..bus }).unwrap();
        b.dw.inject(Fault::DomainLost);
        let later = b.clock.now() + Duration::from_millis(40);
        b.pass_all(later);
        let commands = b.seen().len();
        b.go(Operation::Power(Power::On)).0.unwrap();
        b.bus(bus).unwrap();
        let read = Command::read_multiple_block(16, 16, Stop::Auto);
        assert!(b.get(read).unwrap() == data, "{mode:?}");
        assert_eq!(b.seen().len(), commands + 2, "nothing but the read and its stop: no identification");
        b.assert_clean();
    }
}

#[test]
fn an_emmc_is_driven_at_hs400_by_two_registers() {
    use mmc_hal::Mmio;
    let timings = UHS.with(Timing::Hs200).with(Timing::Hs400).with(Timing::Ddr52);
    let platform = Platform { width: Width::Eight, timings, ..FAST };
    let mut b = Bench::with(Mode::Polled, config(), platform, card());
    b.go(Operation::Power(Power::On)).0.unwrap();
    let eight = BusConfig { hz: 200_000_000, width: Width::Eight, ..LOW };
    for (timing, hz, uhs, ddr) in [
        (Timing::Hs200, 200_000_000, 1, 0),
        (Timing::Hs400, 200_000_000, 0x1_0001, 0x8000_0001),
        (Timing::Ddr52, 50_000_000, 0x1_0001, 1),
        (Timing::High, 50_000_000, 1, 0),
    ] {
        let wanted = if timing == Timing::High { 52_000_000 } else { timing.max_hz() };
        b.bus(BusConfig { timing, hz: wanted, ..eight }).unwrap();
        assert_eq!((b.dw.read32(0x74), b.dw.read32(0x10c)), (uhs, ddr), "{timing:?}");
        assert_eq!((b.dw.read32(0x18), b.host.engine().card_hz()), (1 << 16, hz), "{timing:?}");
    }
    // At exactly the source's clock DDR52 on eight lines is halved (Q43).
    let source = Platform { ciu_hz: 52_000_000, ..platform };
    let mut b = Bench::with(Mode::Polled, config(), source, card());
    b.go(Operation::Power(Power::On)).0.unwrap();
    b.bus(BusConfig { timing: Timing::Ddr52, hz: 52_000_000, ..eight }).unwrap();
    assert_eq!(b.host.engine().card_hz(), 26_000_000);
}

#[test]
fn a_uhs_card_is_identified_up_to_its_fastest_mode() {
    for mode in MODES {
        let card = zoo::card("uhs-64gb", Profile::ideal(), 1).unwrap();
        let mut b = Bench::with(mode, config(), FAST, card);
        let id = b.identify();
        let found = (id.bus.timing, id.bus.hz, id.bus.width, id.bus.signal);
        assert_eq!(found, (Timing::Sdr104, 200_000_000, Width::Four, Signal::V1_8), "{:?}", id.fallbacks);
        assert_eq!(id.fallbacks.iter().count(), 0, "{:?}", id.fallbacks);
        let data = pattern(65_536, 5);
        assert_eq!(b.write(&id.traits, 4096, &data), Ok(128));
        assert!(b.read(&id.traits, 4096, &[65_536]).unwrap() == data);
        b.assert_clean();
    }
}

#[test]
fn an_emmc_is_identified_up_to_hs200_and_hs400() {
    let timings = UHS.with(Timing::Ddr52).with(Timing::Hs200);
    for (timings, best) in [(timings, Timing::Hs200), (timings.with(Timing::Hs400), Timing::Hs400)] {
        let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
        let config_of_card = zoo::mmc("samsung-bjnb4r", Profile::ideal(), 1).unwrap();
        let card = Shared::new(MmcCard::new(config_of_card).unwrap());
        let dw = Dw::new(card.clone(), clock.clone(), memory.clone(), config());
        let at = memory.alloc(8192);
        let ring = Ring::new(memory.window(at, 8192), at, 8192).unwrap();
        let dma = MemoryDma::new(memory, u32::MAX.into());
        let platform = Platform { width: Width::Eight, timings, ..FAST };
        let mut host = DwEngine::new(dw.clone(), ring, dma, platform);
        let mut conductor = Conductor::new(Identify::new(&host.capabilities()), Some(buffers(&[512])));
        let id = loop {
            match conductor.poll(&mut host, clock.now()) {
                Turn::Done(out, _) => break out.unwrap(),
                Turn::Wait { until, .. } => clock.advance_to(until.min(dw.next_event())),
            }
        };
        let found = (id.bus.timing, id.bus.hz, id.bus.width, id.bus.signal);
        assert_eq!(found, (best, 200_000_000, Width::Eight, Signal::V1_8), "{:?}", id.fallbacks);
        assert_eq!(id.fallbacks.iter().count(), 0, "{:?}", id.fallbacks);
        // It was asked what it is before anybody knew.
        let mut violations = dw.violations();
        violations.retain(|v| !v.ends_with("is not legal in state Idle"));
        assert_eq!(violations, Vec::<String>::new());
    }
}

#[test]
fn a_card_is_left_alone_after_a_change_of_its_clock_for_as_long_as_the_board_asks() {
    let rest = Duration::from_millis(20);
    for (base, model) in [(HSDK, Config::hsdk()), (FAST, config())] {
        for (mode, clock_settle) in MODES.into_iter().flat_map(|m| [(m, Duration::ZERO), (m, rest)]) {
            let mut b = Bench::with(mode, model.clone(), Platform { clock_settle, ..base }, card());
            b.go(Operation::Power(Power::On)).0.unwrap();
            let mut took = |bus| {
                let began = b.clock.now();
                b.bus(bus).unwrap();
                b.clock.now().since(began)
            };
            let quick = Duration::from_millis(1);
            for bus in [SLOW, BusConfig { hz: 25_000_000, ..SLOW }] {
                let change = took(bus);
                assert!(change >= clock_settle && change <= clock_settle + quick, "{change}");
                // The lines alone, or nothing at all.
                assert!(took(BusConfig { width: Width::Four, ..bus }) <= quick);
                assert!(took(bus) <= quick);
            }
            assert!(took(BusConfig { hz: 0, ..SLOW }) <= quick, "a stopped clock disturbs nobody");
            assert!(took(SLOW) >= clock_settle);
            b.assert_clean();
        }
    }
}

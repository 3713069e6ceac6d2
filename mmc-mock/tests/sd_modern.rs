//! What came after high speed, by a scripted host on the mock host: 1.8 V, UHS-I modes and tuning, SDUC; and what a card
//! does not let be written. Each odd card of the zoo that is about these serves a good host and fails a naive one.

use mmc_hal::Dir;
use mmc_mock::card::{Capacity, Card, SdCard, SdConfig, Shared, State, Version};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, Clock, MockHost, Wakes, zoo};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Timings, Width};
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned, Supervised,
};
use mmc_proto::quirk::{self, Avoid};
use mmc_proto::register::Cid;
use mmc_time::{Duration, Instant};

const POINTS: u16 = 32;

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    caps.width = Width::Four;
    caps.max_hz = 208_000_000;
    caps.v1_8 = true;
    caps.sample_points = POINTS;
    caps.auto_stop = true;
    for timing in [Timing::Sdr12, Timing::Sdr25, Timing::Sdr50, Timing::Sdr104, Timing::Ddr50] {
        caps.timings = caps.timings.with(timing);
    }
    caps
}

/// A host that sends what it is told to.
struct Script {
    host: Supervised<MockHost<Buf, Shared<SdCard>>>,
    card: Shared<SdCard>,
    clock: Clock,
    bus: BusConfig,
    rca: u16,
}

type Done<T> = Result<T, HostError>;

impl Script {
    fn new(config: SdConfig) -> Self {
        let card = Shared::new(SdCard::new(config).unwrap());
        let host = MockHost::new(card.clone(), caps());
        Self { host, card, clock: Clock::new(), bus: BusConfig::default(), rca: 0 }
    }
    fn zoo(name: &str) -> Self {
        Self::new(zoo::card(name, Profile::ideal(), 1).unwrap())
    }
    fn run(&mut self, op: Operation<Buf>) -> Done<(Reply, Vec<u8>)> {
        let until = self.clock.now() + Duration::from_secs(2);
        self.host.submit(op, until, self.clock.now()).map_err(|e| e.error)?;
        for _ in 0..10_000 {
            match self.host.poll(self.clock.now()) {
                Progress::Done(Completion { result, payload }) => {
                    let bytes = if let Returned::Back(Buf(bytes)) = payload { bytes } else { Vec::new() };
                    return result.map(|reply| (reply, bytes));
                }
                Progress::Waiting { .. } => self.clock.advance_to(self.host.next_event().min(until)),
                Progress::Idle => panic!("lost"),
            }
        }
        panic!("the operation does not end");
    }
    fn command(&mut self, command: Command) -> Done<u32> {
        Ok(self.run(Operation::Command(command))?.0.words[0])
    }
    fn read(&mut self, command: Command) -> Done<Vec<u8>> {
        let n = command.data.unwrap().bytes() as usize;
        Ok(self.run(Operation::Transfer(command, Buf(vec![0; n])))?.1)
    }
    fn write(&mut self, command: Command, bytes: &[u8]) -> Done<u32> {
        Ok(self.run(Operation::Transfer(command, Buf(bytes.to_vec())))?.0.words[0])
    }
    fn set(&mut self, change: impl FnOnce(&mut BusConfig)) -> Done<()> {
        change(&mut self.bus);
        self.run(Operation::Bus(self.bus)).map(|_| ())
    }
    fn app(&mut self) {
        self.command(Command::app_cmd(self.rca)).unwrap();
    }
    /// CMD13, once the card is not busy.
    fn status(&mut self) -> u32 {
        self.command(Command::send_status(self.rca)).unwrap()
    }
    fn power(&mut self, on: bool) {
        self.run(Operation::Power(if on { Power::On } else { Power::Off })).unwrap();
        if !on {
            (self.bus, self.rca) = (BusConfig::default(), 0);
        }
        self.clock.advance(Duration::from_millis(10));
    }
    /// From power-on to the answer of ACMD41 that says "ready".
    fn op_cond(&mut self, arg: u32) -> u32 {
        self.power(true);
        self.set(|b| b.hz = 400_000).unwrap();
        self.command(Command { init_clocks: true, ..Command::go_idle_state() }).unwrap();
        let echo = self.command(Command::send_if_cond(0xaa)).unwrap();
        assert_eq!(echo & 0xff, 0xaa);
        for _ in 0..100 {
            self.app();
            if let Ok(ocr) = self.command(Command::acmd_sd_send_op_cond(arg))
                && ocr >> 31 == 1
            {
                return ocr;
            }
            self.clock.advance(Duration::from_millis(10));
        }
        panic!("not ready within a second");
    }
    /// CMD11 and the host's part of the switch.
    fn switch_level(&mut self) -> Done<()> {
        self.command(Command { voltage_switch: true, ..Command::voltage_switch() })?;
        self.set(|b| b.signal = Signal::V1_8)
    }
    /// From "ready" to the transfer state, on four lines.
    fn select(&mut self) {
        self.command(Command::all_send_cid()).unwrap();
        self.rca = (self.command(Command::send_relative_addr()).unwrap() >> 16) as u16;
        self.set(|b| b.hz = 25_000_000).unwrap();
        self.command(Command::select_card(self.rca)).unwrap();
        if self.card.lock().is_locked() {
            return;
        }
        self.app();
        self.command(Command::acmd_set_bus_width(Width::Four)).unwrap();
        self.set(|b| b.width = Width::Four).unwrap();
    }
    /// Identified at 3.3 V.
    fn plain(name: &str) -> Self {
        let mut s = Self::zoo(name);
        s.op_cond(0x40ff_8000);
        s.select();
        s
    }
    /// Identified at 1.8 V.
    fn uhs(name: &str) -> Self {
        let mut s = Self::zoo(name);
        assert_eq!(s.op_cond(0x51ff_8000) >> 24 & 1, 1, "S18A");
        s.switch_level().unwrap();
        s.select();
        s
    }
    /// CMD6 in group 1, and the host after it.
    fn mode(&mut self, function: u8, timing: Timing) -> Done<()> {
        let status = self.read(Command::switch_function(true, 1, function))?;
        assert_eq!(status[16] & 15, function);
        self.set(|b| (b.timing, b.hz) = (timing, timing.max_hz()))
    }
    /// CMD19 at each sample point; sets and returns the middle of the longest run of good ones.
    fn tune(&mut self) -> Option<u16> {
        let good: Vec<bool> = (0..POINTS)
            .map(|p| {
                self.set(|b| b.sample = p).unwrap();
                self.read(Command::send_tuning_block()).is_ok_and(|block| block[..4] == [0xff, 0x0f, 0xff, 0])
            })
            .collect();
        let n = usize::from(POINTS);
        let run = |from: usize| (0..n).take_while(|i| good[(from + i) % n]).count();
        let (length, from) = (0..n).map(|from| (run(from), from)).max()?;
        if length == 0 {
            return None;
        }
        let middle = ((from + length / 2) % n) as u16;
        self.set(|b| b.sample = middle).unwrap();
        Some(middle)
    }
    /// Writes six blocks and reads them back.
    fn round_trip(&mut self, lba: u32) -> Done<bool> {
        let data: Vec<u8> = (0..6 * 512).map(|i| (i / 7 + lba as usize) as u8).collect();
        self.write(Command::write_multiple_block(lba, 6, Stop::Auto), &data)?;
        Ok(self.read(Command::read_multiple_block(lba, 6, Stop::Auto))? == data)
    }
    fn violations(&self) -> Vec<String> {
        self.card.violations()
    }
}

#[test]
fn a_uhs_card_works_in_every_mode() {
    let modes = [
        (0, Timing::Sdr12, 25_000_000),
        (1, Timing::Sdr25, 50_000_000),
        (2, Timing::Sdr50, 100_000_000),
        (4, Timing::Ddr50, 50_000_000),
        (3, Timing::Sdr104, 208_000_000),
    ];
    let mut took = Vec::new();
    for (function, timing, hz) in modes {
        let mut s = Script::uhs("uhs-64gb");
        s.mode(function, timing).unwrap();
        assert_eq!((s.bus.hz, s.card.lock().functions().access), (hz, function));
        if timing == Timing::Sdr104 {
            s.tune().unwrap();
        }
        let begun = s.clock.now();
        assert_eq!(s.round_trip(4096), Ok(true), "{timing:?}");
        took.push((s.clock.now().since(begun), timing));
        assert_eq!(s.violations(), Vec::<String>::new(), "{timing:?}");
    }
    took.sort_by_key(|t| t.0);
    let order: Vec<Timing> = took.into_iter().map(|t| t.1).collect();
    // SDR50 and DDR50 move data alike; commands are faster in the first.
    assert_eq!(order, [Timing::Sdr104, Timing::Sdr50, Timing::Ddr50, Timing::Sdr25, Timing::Sdr12]);
}

#[test]
fn without_tuning_nobody_reads_at_208_mhz() {
    let mut s = Script::uhs("uhs-64gb");
    s.mode(3, Timing::Sdr104).unwrap();
    let error = s.read(Command::read_single_block(0)).unwrap_err();
    assert_eq!((error.cause, error.phase), (Cause::Crc, Phase::Command), "not even the response");
    // The block went by; the card is where it was.
    assert_eq!(s.card.lock().state(s.clock.now()), State::Tran);
    s.tune().unwrap();
    assert_eq!(s.round_trip(0), Ok(true));
    assert_eq!(s.violations(), Vec::<String>::new());
}

#[test]
fn an_eye_that_drifts_away_brings_crc_errors_until_the_host_tunes_again() {
    let mut s = Script::uhs("uhs-drift");
    s.mode(3, Timing::Sdr104).unwrap();
    let first = s.tune().unwrap();
    assert_eq!(s.round_trip(0), Ok(true));
    s.clock.advance_to(Instant::from_secs(10));
    let error = s.read(Command::read_single_block(0)).unwrap_err();
    assert_eq!(error.cause, Cause::Crc);
    let second = s.tune().unwrap();
    assert_ne!(first, second);
    assert_eq!(s.round_trip(0), Ok(true));
    // And the card of the same seed that drifts a little never needs it.
    let mut s = Script::uhs("uhs-64gb");
    s.mode(3, Timing::Sdr104).unwrap();
    s.tune().unwrap();
    for at in 1..60 {
        s.clock.advance_to(Instant::from_secs(at));
        assert_eq!(s.round_trip(0), Ok(true), "at {at} s");
    }
}

#[test]
fn a_clock_too_fast_for_the_mode_is_noted() {
    for (function, timing, name) in
        [(0, Timing::Sdr12, "SDR12"), (2, Timing::Sdr50, "SDR50"), (4, Timing::Ddr50, "DDR50")]
    {
        let mut s = Script::uhs("uhs-64gb");
        s.mode(function, timing).unwrap();
        let limit = timing.max_hz();
        s.set(|b| b.hz = limit + 1_000_000).unwrap();
        s.status();
        let want = format!("CMD13: {} Hz, {name} allows at most {limit}", limit + 1_000_000);
        assert_eq!(s.violations(), [want]);
    }
    // Edges that do not fit.
    let mut s = Script::uhs("uhs-64gb");
    s.mode(4, Timing::Sdr25).unwrap();
    assert_eq!(s.read(Command::read_single_block(0)).unwrap_err().cause, Cause::Crc);
    assert!(s.violations()[0].contains("both edges"), "{:?}", s.violations());
}

#[test]
fn the_switch_takes_five_milliseconds_without_a_clock() {
    let mut s = Script::zoo("uhs-64gb");
    s.op_cond(0x51ff_8000);
    s.command(Command { voltage_switch: true, ..Command::voltage_switch() }).unwrap();
    assert!(s.card.lines_low(s.clock.now()));
    let begun = s.clock.now();
    s.set(|b| b.signal = Signal::V1_8).unwrap();
    assert_eq!(s.clock.now().since(begun), Duration::from_millis(6));
    assert!(!s.card.lines_low(s.clock.now()) && s.card.lock().is_1_8_v());

    // A controller that is in a hurry.
    let mut s = Script::zoo("uhs-64gb");
    s.op_cond(0x51ff_8000);
    s.command(Command { voltage_switch: true, ..Command::voltage_switch() }).unwrap();
    let now = s.clock.now();
    let mut card = s.card.clone();
    card.bus(0, 1, now);
    let now = now + Duration::from_millis(4);
    card.bus(400_000, 1, now);
    card.signal(Signal::V1_8, Timing::Default, now);
    assert!(card.lines_low(now + Duration::from_secs(10)));
    assert!(card.busy_until(now).is_never());
    assert!(card.violations()[0].contains("5 ms are needed"), "{:?}", card.violations());
    assert!(card.command(2, 0, now + Duration::from_secs(1)).response.is_none());
}

#[test]
fn cmd11_is_legal_only_after_an_agreement_and_cmd0_does_not_undo_it() {
    let mut s = Script::zoo("uhs-64gb");
    assert_eq!(s.op_cond(0x50ff_8000) >> 24 & 1, 0, "nobody asked");
    assert_eq!(s.switch_level().unwrap_err().cause, Cause::Timeout);

    let mut s = Script::uhs("uhs-64gb");
    s.mode(1, Timing::Sdr25).unwrap();
    // A warm reset: mode and width go, the level stays.
    s.command(Command::go_idle_state()).unwrap();
    {
        let card = s.card.lock();
        assert_eq!((card.functions().access, card.width(), card.is_1_8_v()), (0, 1, true));
    }
    s.rca = 0;
    s.set(|b| *b = BusConfig { hz: 400_000, signal: Signal::V1_8, ..BusConfig::default() }).unwrap();
    assert_eq!(s.op_cond(0x51ff_8000) >> 24 & 1, 0, "it has switched already");
    s.select();
    assert_eq!(s.round_trip(0), Ok(true));
    s.power(false);
    assert!(!s.card.lock().is_1_8_v());
}

#[test]
fn a_card_left_at_1_8_v_needs_its_supply_cut() {
    // A host that does not: no S18A, and CRC errors above the clock of identification.
    let mut s = Script::zoo("left-at-1v8");
    assert_eq!(s.op_cond(0x51ff_8000) >> 24 & 1, 0);
    s.command(Command::all_send_cid()).unwrap();
    s.command(Command::send_relative_addr()).unwrap();
    s.set(|b| b.hz = 25_000_000).unwrap();
    let rca = s.card.lock().rca();
    assert_eq!(s.command(Command::select_card(rca)).unwrap_err().cause, Cause::Crc);
    assert!(s.violations()[0].contains("3.3 V on the lines"), "{:?}", s.violations());
    // One that stays slow can tell by CMD6: modes are offered that do not exist at 3.3 V.
    let mut s = Script::zoo("left-at-1v8");
    s.op_cond(0x51ff_8000);
    s.command(Command::all_send_cid()).unwrap();
    s.rca = (s.command(Command::send_relative_addr()).unwrap() >> 16) as u16;
    s.command(Command::select_card(s.rca)).unwrap();
    assert_eq!(s.read(Command::switch_function(false, 1, 0)).unwrap()[13] & 0x1c, 0x1c);
    // A good host cuts the supply first.
    let mut s = Script::zoo("left-at-1v8");
    s.power(false);
    assert_eq!(s.op_cond(0x51ff_8000) >> 24 & 1, 1);
    s.switch_level().unwrap();
    s.select();
    s.mode(3, Timing::Sdr104).unwrap();
    s.tune().unwrap();
    assert_eq!(s.round_trip(0), Ok(true));
    assert_eq!(s.violations(), Vec::<String>::new());
}

#[test]
fn a_card_that_lies_about_1_8_v_works_without() {
    let mut s = Script::zoo("false-1v8");
    assert_eq!(s.op_cond(0x51ff_8000) >> 24 & 1, 1, "it says so");
    let error = s.switch_level().unwrap_err();
    assert_eq!((error.cause, error.phase), (Cause::VoltageSwitch, Phase::Bus));
    // Going on is no use.
    assert!(s.command(Command::all_send_cid()).is_err());
    s.power(false);
    s.op_cond(0x50ff_8000);
    s.select();
    s.mode(1, Timing::High).unwrap();
    assert_eq!(s.round_trip(0), Ok(true));
}

#[test]
fn a_card_that_hangs_in_ddr50_tuning_works_in_ddr50_without() {
    let mut s = Script::uhs("ddr50-tuning-hang");
    s.mode(4, Timing::Ddr50).unwrap();
    assert_eq!(s.read(Command::send_tuning_block()).unwrap_err().cause, Cause::Timeout);
    assert!(s.command(Command::send_status(s.rca)).is_err(), "lost until power is cycled");

    let mut s = Script::uhs("ddr50-tuning-hang");
    s.mode(4, Timing::Ddr50).unwrap();
    assert_eq!(s.round_trip(0), Ok(true));
    assert_eq!(s.violations(), Vec::<String>::new());
}

#[test]
fn the_mock_host_refuses_what_it_cannot_do() {
    type Change = fn(&mut Capabilities);
    let refusals: [(Change, BusConfig, &str); 3] = [
        (|c| c.v1_8 = false, BusConfig { signal: Signal::V1_8, ..BusConfig::default() }, "3.3 V"),
        (
            |c| c.timings = Timings::new(),
            BusConfig { timing: Timing::Sdr50, ..BusConfig::default() },
            "timing",
        ),
        (|_| {}, BusConfig { sample: POINTS, ..BusConfig::default() }, "sample point"),
    ];
    for (change, bus, why) in refusals {
        let mut s = Script::zoo("uhs-64gb");
        let mut caps = caps();
        change(&mut caps);
        s.host = MockHost::new(s.card.clone(), caps);
        let error = s.run(Operation::Bus(bus)).unwrap_err();
        assert!(matches!(error.cause, Cause::Unsupported(text) if text.contains(why)), "{error}");
    }
    let mut s = Script::zoo("uhs-64gb");
    s.host = MockHost::new(s.card.clone(), Capabilities::new());
    s.op_cond(0x40ff_8000);
    let error = s.read(Command::read_multiple_block(0, 2, Stop::Auto)).unwrap_err();
    assert!(matches!(error.cause, Cause::Unsupported(text) if text.contains("CMD12")), "{error}");
}

#[test]
fn the_host_stops_by_itself_and_tells_what_the_card_said() {
    let mut s = Script::plain("uhs-64gb");
    let op = Operation::Transfer(Command::write_multiple_block(8, 2, Stop::Auto), Buf(vec![7; 1024]));
    let (reply, _) = s.run(op).unwrap();
    assert_eq!((reply.words[1] >> 9 & 15, reply.bytes), (State::Rcv as u32, 1024), "R1 of CMD12");
    assert_eq!(s.card.lock().state(s.clock.now()), State::Tran, "busy was waited out");
    let op = Operation::Transfer(Command::read_multiple_block(8, 2, Stop::Auto), Buf(vec![0; 1024]));
    let (reply, bytes) = s.run(op).unwrap();
    assert_eq!((reply.words[1] >> 9 & 15, bytes), (State::Data as u32, vec![7; 1024]));
    // After an error it does not.
    let last = s.card.lock().config().sectors as u32 - 1;
    let error = s.read(Command::read_multiple_block(last, 2, Stop::Auto)).unwrap_err();
    assert_eq!(error.phase, Phase::Data);
    assert_eq!(s.card.lock().state(s.clock.now()), State::Data);
}

#[test]
fn the_slot_shows_the_card_and_how_often_it_changed() {
    let mut s = Script::zoo("uhs-64gb");
    let slot = s.host.slot(s.clock.now());
    assert_eq!((slot.present, slot.changes, slot.sdio), (Some(true), 0, false));
    s.card.lock().set_present(false);
    assert_eq!(s.host.slot(s.clock.now()).present, Some(false));
    s.card.lock().set_present(true);
    let slot = s.host.slot(s.clock.now());
    assert_eq!((slot.present, slot.changes), (Some(true), 2));
}

#[test]
fn an_sduc_card_is_reached_by_38_bits() {
    let far = (1_u64 << 33) - 6;
    let write = |s: &mut Script, lba: u64, byte: u8| {
        s.command(Command::set_block_count(2)).unwrap();
        s.status(); // does not cancel the count, on this kind of card
        s.command(Command::address_extension((lba >> 32) as u8)).unwrap();
        s.write(Command::write_multiple_block(lba as u32, 2, Stop::None), &[byte; 1024]).unwrap();
    };
    let mut s = Script::zoo("sduc-4tb");
    assert_eq!(s.op_cond(0x48ff_8000) >> 27 & 1, 1, "CO2T");
    s.select();
    assert_eq!(s.card.lock().config().capacity(), Capacity::Ultra);
    write(&mut s, far, 5);
    write(&mut s, far & 0xffff_ffff, 6);
    // How many blocks were stored, in eight bytes.
    s.app();
    let count = Command::data(22, 0, Dir::Read, 8, 1, Stop::None);
    assert_eq!(s.read(count).unwrap(), 2_u64.to_be_bytes());
    for (upper, want) in [(1, 5), (0, 6)] {
        s.command(Command::address_extension(upper)).unwrap();
        assert_eq!(s.read(Command::read_single_block(far as u32)).unwrap(), [want; 512]);
    }
    // A CMD22 is good for one address; the naive host reads somewhere else.
    assert_eq!(s.read(Command::read_single_block(far as u32)).unwrap(), [6; 512]);
    // Erase: each address has its own.
    for command in [Command::erase_wr_blk_start(far as u32), Command::erase_wr_blk_end(far as u32)] {
        s.command(Command::address_extension(1)).unwrap();
        s.command(command).unwrap();
    }
    s.command(Command::erase(0)).unwrap();
    s.command(Command::address_extension(1)).unwrap();
    assert_eq!(s.read(Command::read_single_block(far as u32)).unwrap(), [0; 512]);
    // An address outside shows only at CMD38, as ADDRESS_ERROR, and no erase runs.
    s.command(Command::address_extension(2)).unwrap();
    s.command(Command::erase_wr_blk_start(0)).unwrap();
    s.command(Command::address_extension(3)).unwrap();
    s.command(Command::erase_wr_blk_end(0)).unwrap();
    assert_eq!(s.status() >> 30, 0);
    assert_eq!(s.command(Command::erase(0)).unwrap() >> 30, 1);
    // CMD12 takes back a sequence that is half sent.
    s.command(Command::set_block_count(4)).unwrap();
    s.command(Command::stop_transmission()).unwrap();
    assert_eq!(s.violations(), Vec::<String>::new());
}

#[test]
fn a_host_that_does_not_know_sduc_waits_for_ever() {
    let mut s = Script::zoo("sduc-4tb");
    s.power(true);
    s.set(|b| b.hz = 400_000).unwrap();
    s.command(Command { init_clocks: true, ..Command::go_idle_state() }).unwrap();
    s.command(Command::send_if_cond(0xaa)).unwrap();
    for _ in 0..200 {
        s.app();
        assert_eq!(s.command(Command::acmd_sd_send_op_cond(0x40ff_8000)).unwrap() >> 31, 0);
        s.clock.advance(Duration::from_millis(10));
    }
}

#[test]
fn the_writable_bits_of_the_csd_are_programmed_and_two_of_them_for_ever() {
    let mut s = Script::plain("uhs-64gb");
    let csd = s.card.lock().csd();
    let with = |bits: u8| {
        let mut csd = csd;
        csd[14] = csd[14] & 3 | bits;
        csd
    };
    const TEMPORARY: u8 = 0x10;
    const COPY: u8 = 0x40;
    s.write(Command::program_csd(), &with(TEMPORARY | COPY)).unwrap();
    assert_eq!(s.status() & 0xffff_0000, 0);
    assert_eq!(s.card.lock().csd()[14], TEMPORARY | COPY);
    // Protected: no write, no erase.
    let error = s.write(Command::write_block(0), &[1; 512]).unwrap_err();
    assert_eq!(error.r1.unwrap() >> 26 & 1, 1, "WP_VIOLATION");
    s.command(Command::erase_wr_blk_start(0)).unwrap();
    s.command(Command::erase_wr_blk_end(0)).unwrap();
    assert_eq!(s.command(Command::erase(0)).unwrap() >> 26 & 1, 1);
    // COPY stays, and nothing else may differ.
    let mut other = with(COPY);
    other[5] ^= 1;
    for wrong in [with(0), other] {
        s.write(Command::program_csd(), &wrong).unwrap();
        assert_eq!(s.status() >> 16 & 1, 1, "CSD_OVERWRITE");
    }
    s.write(Command::program_csd(), &with(COPY)).unwrap();
    assert_eq!(s.round_trip(0), Ok(true));
    // All of it outlives the supply.
    s.power(false);
    assert_eq!(s.card.lock().csd()[14], COPY);
}

#[test]
fn write_protect_groups_protect_their_own_sectors() {
    let config = SdConfig {
        sectors: 2_097_152,
        version: Version::V2,
        cmd23: false,
        protect_groups: true,
        ..SdConfig::new(Profile::ideal(), 0)
    };
    let mut s = Script::new(config);
    s.op_cond(0x40ff_8000);
    s.select();
    s.write(Command::write_block(0), &[9; 512]).unwrap();
    s.write(Command::write_block(128 * 512), &[9; 512]).unwrap();
    // Groups of 64 KiB: the second one.
    let busy = |index, arg| Command { busy: true, ..Command::plain(index, arg, Response::Short) };
    s.command(busy(28, 128 * 512)).unwrap();
    let map = Command::data(30, 0, Dir::Read, 4, 1, Stop::None);
    assert_eq!(s.read(map).unwrap(), [0, 0, 0, 2]);
    let error = s.write(Command::write_block(128 * 512), &[1; 512]).unwrap_err();
    assert_eq!(error.r1.unwrap() >> 26 & 1, 1);
    // A write that runs into it stops there.
    let error = s.write(Command::write_multiple_block(126 * 512, 4, Stop::Manual), &[1; 2048]).unwrap_err();
    assert_eq!(error.cause, Cause::NoCrcStatus);
    assert_eq!(s.command(Command::stop_transmission()).unwrap() >> 26 & 1, 1);
    // An erase leaves it out and says so.
    s.command(Command::erase_wr_blk_start(0)).unwrap();
    s.command(Command::erase_wr_blk_end(300 * 512)).unwrap();
    assert_eq!(s.command(Command::erase(0)).unwrap() >> 15 & 1, 1, "WP_ERASE_SKIP");
    let first = |s: &mut Script, sector: u32| s.read(Command::read_single_block(sector * 512)).unwrap()[0];
    assert_eq!((first(&mut s, 0), first(&mut s, 127), first(&mut s, 128)), (0, 0, 9));
    s.command(busy(29, 128 * 512)).unwrap();
    assert_eq!(s.write(Command::write_block(128 * 512), &[1; 512]).map(|_| ()), Ok(()));
    assert_eq!(s.command(busy(28, u32::MAX)).unwrap() >> 31, 1, "OUT_OF_RANGE");
    assert_eq!(s.violations(), Vec::<String>::new());
}

/// CMD16 and CMD42.
fn lock(s: &mut Script, block: &[u8]) -> u32 {
    s.command(Command::set_blocklen(block.len() as u32)).unwrap();
    let len = block.len() as u16;
    s.write(Command::data(42, 0, Dir::Write, len, 1, Stop::None), block).unwrap();
    s.status()
}

#[test]
fn a_password_locks_the_card_until_it_is_told_or_all_is_erased() {
    let mut s = Script::plain("uhs-64gb");
    assert_eq!(s.round_trip(0), Ok(true));
    assert_eq!(lock(&mut s, b"\x05\x03abc") >> 24 & 3, 2, "set and locked");
    // Reads and writes are illegal now; CMD13 goes on.
    assert_eq!(s.read(Command::read_single_block(0)).unwrap_err().cause, Cause::Timeout);
    assert_eq!(s.status() >> 22 & 1, 1);
    assert_eq!(lock(&mut s, b"\x00\x03abd") >> 24 & 3, 3, "LOCK_UNLOCK_FAILED");
    assert_eq!(lock(&mut s, b"\x00\x03abc") >> 24 & 3, 0);
    assert_eq!(s.round_trip(64), Ok(true));
    // The supply brings the lock back; without the password only the contents' end opens it.
    s.power(false);
    s.op_cond(0x40ff_8000);
    s.select();
    assert_eq!(s.status() >> 25 & 1, 1);
    assert_eq!(lock(&mut s, &[8]) >> 24 & 3, 0);
    assert_eq!(s.read(Command::read_single_block(64)).unwrap(), [0; 512]);
}

#[test]
fn cmd56_moves_a_block_of_the_makers_and_cmd20_is_busy() {
    let mut s = Script::plain("uhs-64gb");
    s.write(Command::gen_cmd(0), &[0x42; 512]).unwrap();
    assert_eq!(s.read(Command::gen_cmd(1)).unwrap(), [0x42; 512]);
    let begun = s.clock.now();
    s.command(Command::speed_class_control(0)).unwrap();
    let took = s.clock.now().since(begun);
    assert!(took > Duration::from_millis(50) && took < Duration::from_secs(1), "{took:?}");
    let r1 = s.command(Command::speed_class_control(9)).unwrap();
    assert_eq!(r1 >> 19 & 1, 1, "ERROR: no such function");
    assert_eq!(s.violations(), Vec::<String>::new());
}

#[test]
fn a_card_that_dies_says_so_once_and_then_forgets() {
    let mut s = Script::plain("dies-read-only");
    for i in 0..64 {
        s.write(Command::write_block(i), &[1; 512]).unwrap();
    }
    let error = s.write(Command::write_block(0), &[2; 512]).unwrap_err();
    assert_eq!(error.r1.unwrap() >> 26 & 1, 1);
    assert_eq!(s.read(Command::read_single_block(0)).unwrap(), [1; 512], "it can still be read");
    // After a power cycle all seems well to a naive host.
    s.power(false);
    s.op_cond(0x40ff_8000);
    s.select();
    assert_eq!(s.round_trip(0), Ok(false), "only who compares knows");
    assert_eq!(s.status() & 0xffff_e000, 0);

    let mut s = Script::plain("immutable");
    assert_eq!(s.round_trip(0), Ok(false));
}

#[test]
fn a_discard_that_fails_is_an_erase_to_a_good_host() {
    let mut s = Script::plain("sandisk-discard");
    s.app();
    let ssr = s.read(Command::acmd_sd_status()).unwrap();
    assert_eq!(ssr[24] >> 1 & 1, 1, "bit 313 offers it");
    s.write(Command::write_block(3), &[1; 512]).unwrap();
    for (arg, error, left) in [(1, 1, 1), (0, 0, 0)] {
        s.command(Command::erase_wr_blk_start(3)).unwrap();
        s.command(Command::erase_wr_blk_end(3)).unwrap();
        assert_eq!(s.command(Command::erase(arg)).unwrap() >> 19 & 1, error, "argument {arg}");
        assert_eq!(s.read(Command::read_single_block(3)).unwrap(), [left; 512], "argument {arg}");
    }
    assert_eq!(s.violations(), Vec::<String>::new());
}

#[test]
fn an_erase_that_takes_more_than_its_own() {
    let mut s = Script::plain("kingston-erase");
    assert_eq!(s.round_trip(0), Ok(true));
    s.command(Command::erase_wr_blk_start(1)).unwrap();
    s.command(Command::erase_wr_blk_end(2)).unwrap();
    s.command(Command::erase(0)).unwrap();
    let left = |s: &mut Script, lba| s.read(Command::read_single_block(lba)).unwrap() != [0; 512];
    assert_eq!([0, 1, 2, 3, 4].map(|lba| left(&mut s, lba)), [true, false, false, false, true]);
}

#[test]
fn a_good_host_knows_by_the_cid_what_to_avoid() {
    for (name, avoid) in [
        ("cmd23-hang", Avoid::CMD23),
        ("ddr50-tuning-hang", Avoid::DDR50_TUNING),
        ("sandisk-discard", Avoid::DISCARD),
        ("kingston-erase", Avoid::ERASE | Avoid::DISCARD),
        ("kingston-flush", Avoid::CACHE),
        ("gigastone-flush", Avoid::CACHE | Avoid::POWER_OFF_NOTIFICATION),
        ("uhs-64gb", Avoid::empty()),
    ] {
        let config = zoo::card(name, Profile::ideal(), 1).unwrap();
        assert_eq!(quirk::avoid(&Cid::new(config.cid()), quirk::SD), avoid, "{name}");
    }
}

#[test]
fn odd_answers_at_the_start_do_not_stop_a_patient_host() {
    for name in ["answers-late", "echo-only"] {
        let mut s = Script::plain(name);
        assert_eq!(s.round_trip(0), Ok(true), "{name}");
    }
    // A host that leaves its loop at the first silence.
    let mut s = Script::zoo("answers-late");
    s.power(true);
    s.set(|b| b.hz = 400_000).unwrap();
    s.command(Command { init_clocks: true, ..Command::go_idle_state() }).unwrap();
    s.command(Command::send_if_cond(0xaa)).unwrap();
    s.app();
    assert_eq!(s.command(Command::acmd_sd_send_op_cond(0x40ff_8000)).unwrap_err().cause, Cause::Timeout);
    // A host that compares all twelve bits.
    let mut s = Script::zoo("echo-only");
    s.power(true);
    s.set(|b| b.hz = 400_000).unwrap();
    s.command(Command { init_clocks: true, ..Command::go_idle_state() }).unwrap();
    assert_ne!(s.command(Command::send_if_cond(0xaa)).unwrap() & 0xfff, 0x1aa);
}

//! What the two sides of `sdio::MmcBus` say in each other's words: commands, lengths, bus settings, waits and errors.

use crate::{Virtual, block_on, caps};
use ::sdio::common::BlockSize;
use ::sdio::{
    BlockCommand, BlockReadCommand, BlockWriteCommand, BusWidth, ByteReadCommand, ByteWriteCommand,
    Command as _, ControlCommand, MmcBus, MmcError, Response, ResponseLen,
};
use aligned::{A4, Aligned};
use embedded_hal_async::delay::DelayNs;
use mmc_adapters::{BusDriver, HostBus};
use mmc_hal::Dir;
use mmc_mock::Buf;
use mmc_proto::bus::{BusConfig, Signal, Timing, Width};
use mmc_proto::command::{Command, Response as Kind, Stop};
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned,
    SubmitError,
};
use mmc_proto::machine::{Action, Machine, Step};
use mmc_time::{Duration, Instant};
use std::cell::Cell;

/// A bus that does nothing: what it was asked, and what it says.
struct Bus {
    lines: BusWidth,
    fails: Option<MmcError>,
    lengths: Vec<(BlockSize, u32)>,
    set: Vec<(usize, u32)>,
}

const fn lines(width: BusWidth) -> usize {
    match width {
        BusWidth::W1 => 1,
        BusWidth::W4 => 4,
        BusWidth::W8 => 8,
    }
}

impl Bus {
    const fn new(lines: BusWidth) -> Self {
        Self { lines, fails: None, lengths: Vec::new(), set: Vec::new() }
    }
    fn answer<R: Response>(&self) -> Result<R, MmcError> {
        self.fails.map_or(Ok(R::from_words(&[0x900, 0, 0, 0])), Err)
    }
}

impl MmcBus for Bus {
    async fn send_command<'a, C: ControlCommand + 'a>(&mut self, _: C) -> Result<C::Resp<'a>, MmcError> {
        self.answer()
    }
    async fn read_blocks<'a, C: BlockReadCommand + 'a>(
        &mut self,
        cmd: C,
        _: bool,
    ) -> Result<C::Resp<'a>, MmcError> {
        self.lengths.push((cmd.block_size(), cmd.block_count()));
        self.answer()
    }
    async fn write_blocks<'a, C: BlockWriteCommand + 'a>(
        &mut self,
        cmd: C,
        _: bool,
    ) -> Result<C::Resp<'a>, MmcError> {
        self.lengths.push((cmd.block_size(), cmd.block_count()));
        self.answer()
    }
    async fn read_bytes<'a, C: ByteReadCommand + 'a>(&mut self, _: C) -> Result<C::Resp<'a>, MmcError> {
        unreachable!("no conversation of ours asks for bytes")
    }
    async fn write_bytes<'a, C: ByteWriteCommand + 'a>(&mut self, _: C) -> Result<C::Resp<'a>, MmcError> {
        unreachable!("no conversation of ours asks for bytes")
    }
    async fn init_idle(&mut self, _: u32) -> Result<(), MmcError> {
        self.answer::<Words>().map(|_| ())
    }
    fn set_bus(&mut self, width: BusWidth, hz: u32) -> Result<(), MmcError> {
        self.set.push((lines(width), hz));
        self.answer::<Words>().map(|_| ())
    }
    fn supports_bus_width(&self) -> BusWidth {
        self.lines
    }
    fn supports_frequency(&self) -> u32 {
        40_000_000
    }
}

/// A delay that only adds up.
struct Slept<'a>(&'a Cell<u64>);

impl DelayNs for Slept<'_> {
    async fn delay_ns(&mut self, ns: u32) {
        self.0.set(self.0.get() + u64::from(ns));
    }
}

/// A conversation of one step, and what came of it.
struct Asks(Option<Step<Option<Result<Reply, HostError>>>>);

impl Machine for Asks {
    type Output = Option<Result<Reply, HostError>>;
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        _: &mut [u8],
        _: Instant,
    ) -> Step<Self::Output> {
        self.0.take().unwrap_or(Step::Done(last))
    }
}

/// Our driver on `bus`, one step: what came of it, and how long it slept. The payload has 2048 bytes, the driver's memory 4096.
fn step(
    bus: &mut Bus,
    step: Step<Option<Result<Reply, HostError>>>,
) -> (Option<Result<Reply, HostError>>, u64) {
    let (mut work, slept, env) = (Aligned::<A4, _>([0; 4096]), Cell::new(0), Virtual::default());
    let mut driver = BusDriver::new(bus, Slept(&slept), || Instant::ZERO, &mut work);
    let mut payload = Buf(vec![0; 2048]);
    let end = block_on(&env, driver.drive(&mut Asks(Some(step)), &mut payload), None);
    (end, slept.get())
}

const fn send(command: Command) -> Step<Option<Result<Reply, HostError>>> {
    Step::Do(Action { command, limit: Duration::from_secs(1) })
}

#[test]
fn every_error_of_their_bus_is_one_of_ours() {
    let lost = |cause, phase| (cause, phase);
    for (theirs, (cause, phase)) in [
        (MmcError::Timeout, lost(Cause::Timeout, Phase::Command)),
        (MmcError::Crc, lost(Cause::Crc, Phase::Command)),
        (MmcError::Busy, lost(Cause::Limit, Phase::Busy)),
        (MmcError::Signaling, lost(Cause::VoltageSwitch, Phase::Bus)),
        (MmcError::Voltage, lost(Cause::VoltageSwitch, Phase::Bus)),
        (MmcError::BlockSize, lost(Cause::Unsupported("a block of this size"), Phase::Submit)),
        (MmcError::BusWidth, lost(Cause::Unsupported("so many data lines"), Phase::Bus)),
        (MmcError::Unsupported, lost(Cause::Unsupported("on this bus"), Phase::Submit)),
        (MmcError::Io, lost(Cause::Controller, Phase::Command)),
        (MmcError::Other, lost(Cause::Controller, Phase::Command)),
    ] {
        let bus = &mut Bus { fails: Some(theirs), ..Bus::new(BusWidth::W4) };
        let (end, _) = step(bus, send(Command::send_status(1)));
        assert_eq!(end, Some(Err(HostError::new(cause, phase, 13))), "{theirs}");
    }
}

#[test]
fn blocks_have_their_name_for_each_length_and_the_others_are_refused() {
    for len in 1..=2048_u16 {
        for (index, dir) in [(17, Dir::Read), (24, Dir::Write)] {
            let mut bus = Bus::new(BusWidth::W4);
            let (end, _) = step(&mut bus, send(Command::data(index, 0, dir, len, 1, Stop::None)));
            if len.is_power_of_two() {
                assert_eq!(end.unwrap().unwrap().bytes, len.into());
                assert_eq!(
                    bus.lengths.iter().map(|(b, n)| (b.len(), *n)).collect::<Vec<_>>(),
                    [(len.into(), 1)]
                );
            } else {
                let cause = Cause::Unsupported("a block of this size");
                assert_eq!(end, Some(Err(HostError::new(cause, Phase::Submit, index))), "{len}");
                assert!(bus.lengths.is_empty());
            }
        }
    }
}

#[test]
fn more_than_the_drivers_memory_or_the_payload_holds_is_refused() {
    let (mut work, slept, env) = (Aligned::<A4, _>([0; 1024]), Cell::new(0), Virtual::default());
    for (blocks, payload, fits) in
        [(2, 1024, true), (2, 2048, true), (3, 2048, false), (2, 1023, false), (4, 1024, false)]
    {
        let mut bus = Bus::new(BusWidth::W4);
        let mut driver = BusDriver::new(&mut bus, Slept(&slept), || Instant::ZERO, &mut work);
        let command = Command::read_multiple_block(0, blocks, Stop::None);
        let mut payload = Buf(vec![0; payload]);
        let end = block_on(&env, driver.drive(&mut Asks(Some(send(command))), &mut payload), None);
        assert_eq!(end.unwrap().is_ok(), fits, "{blocks} blocks");
        assert_eq!(bus.lengths.len(), usize::from(fits));
    }
}

#[test]
fn only_settings_that_their_bus_can_have_go_there() {
    let plain = BusConfig { hz: 25_000_000, width: Width::Four, ..BusConfig::default() };
    for (asked, told) in [
        (plain, Some((4, 25_000_000))),
        (BusConfig { width: Width::One, hz: 400_000, ..plain }, Some((1, 400_000))),
        (
            BusConfig { width: Width::Eight, timing: Timing::High, hz: 50_000_000, ..plain },
            Some((8, 40_000_000)),
        ),
        (BusConfig { signal: Signal::V1_8, ..plain }, None),
        (BusConfig { timing: Timing::Ddr50, ..plain }, None),
        (BusConfig { sample: 1, ..plain }, None),
    ] {
        let mut bus = Bus::new(BusWidth::W8);
        let (end, _) = step(&mut bus, Step::Bus(asked));
        assert_eq!(bus.set, Vec::from_iter(told), "{asked:?}");
        let no = HostError::new(Cause::Unsupported("on this bus"), Phase::Submit, 255);
        assert_eq!(end, Some(told.map(|_| Reply::default()).ok_or(no)));
    }
    for (theirs, ours) in
        [(BusWidth::W1, Width::One), (BusWidth::W4, Width::Four), (BusWidth::W8, Width::Eight)]
    {
        let (mut work, slept) = (Aligned::<A4, _>([0; 4096]), Cell::new(0));
        let caps =
            BusDriver::new(Bus::new(theirs), Slept(&slept), || Instant::ZERO, &mut work).capabilities();
        assert_eq!((caps.width, caps.max_hz, caps.max_blocks), (ours, 40_000_000, 8));
    }
}

#[test]
fn a_pause_of_any_length_is_slept_to_its_end() {
    for ns in [0, 1, 1_000_000, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 60_000_000_000] {
        let (end, slept) = step(&mut Bus::new(BusWidth::W4), Step::Sleep(Duration::from_nanos(ns)));
        assert_eq!((end, slept), (None, ns));
    }
}

/// A host that does nothing: what it was asked, and how all of it ends.
struct Told {
    width: Width,
    fails: Option<(Cause, Phase)>,
    asked: Vec<Operation<()>>,
    end: Option<Completion<Buf>>,
}

impl Told {
    const fn new(width: Width) -> Self {
        Self { width, fails: None, asked: Vec::new(), end: None }
    }
}

impl Host for Told {
    type Payload = Buf;
    fn capabilities(&self) -> Capabilities {
        let mut caps = caps();
        caps.width = self.width;
        caps
    }
    fn submit(&mut self, op: Operation<Buf>, _: Instant, _: Instant) -> Result<(), SubmitError<Buf>> {
        let (asked, payload) = match op {
            Operation::Transfer(command, payload) => {
                (Operation::Transfer(command, ()), Returned::Back(payload))
            }
            Operation::Command(command) => (Operation::Command(command), Returned::None),
            Operation::Bus(bus) => (Operation::Bus(bus), Returned::None),
            Operation::Power(power) => (Operation::Power(power), Returned::None),
        };
        self.asked.push(asked);
        let result = self.fails.map_or(Ok(Reply::default()), |(c, p)| Err(HostError::new(c, p, 0)));
        self.end = Some(Completion { result, payload });
        Ok(())
    }
    fn poll(&mut self, _: Instant) -> Progress<Buf> {
        self.end.take().map_or(Progress::Idle, Progress::Done)
    }
    fn abort(&mut self, _: Instant) {}
}

/// An R1.
#[derive(Debug)]
struct Words;

impl Response for Words {
    const CRC: bool = true;
    const BUSY: bool = false;
    const LEN: ResponseLen = ResponseLen::R48;
    fn from_words(_: &[u32; 4]) -> Self {
        Self
    }
}

/// A command of theirs, with one sector if there are data.
struct Theirs<const INDEX: u8>(Aligned<A4, [u8; 512]>);

const fn theirs<const INDEX: u8>() -> Theirs<INDEX> {
    Theirs(Aligned([7; 512]))
}

impl<const INDEX: u8> ::sdio::Command for Theirs<INDEX> {
    const INDEX: u8 = INDEX;
    type Resp<'a> = Words;
    fn arg(&self) -> u32 {
        5
    }
}
impl<const INDEX: u8> ControlCommand for Theirs<INDEX> {}
impl<const INDEX: u8> BlockCommand for Theirs<INDEX> {
    fn block_size(&self) -> BlockSize {
        BlockSize::B512
    }
    fn block_count(&self) -> u32 {
        1
    }
}
impl<const INDEX: u8> BlockReadCommand for Theirs<INDEX> {
    fn buf(&mut self) -> &mut Aligned<A4, [u8]> {
        &mut self.0
    }
}
impl<const INDEX: u8> BlockWriteCommand for Theirs<INDEX> {
    fn buf(&self) -> &Aligned<A4, [u8]> {
        &self.0
    }
}

/// What `calls` made of the bus asks the host for.
fn asked(width: Width, calls: impl AsyncFnOnce(&mut HostBus<'_, Told, Virtual>)) -> Vec<Operation<()>> {
    let env = Virtual::default();
    let mut bus = HostBus::new(Told::new(width), &env, Buf(vec![0; 1024]), Duration::from_secs(3));
    block_on(&env, calls(&mut bus), None);
    bus.into_parts().0.asked
}

#[test]
fn every_error_of_our_host_is_one_of_theirs() {
    let everywhere = [Phase::Submit, Phase::Command, Phase::Data, Phase::Busy, Phase::Bus];
    for cause in [
        Cause::Timeout,
        Cause::Limit,
        Cause::Crc,
        Cause::Framing,
        Cause::NoCrcStatus,
        Cause::Dma,
        Cause::Controller,
        Cause::Unsupported("x"),
        Cause::Busy,
        Cause::Aborted,
        Cause::NoCard,
        Cause::VoltageSwitch,
    ] {
        for phase in everywhere {
            let expected = match (cause, phase) {
                (Cause::Timeout | Cause::Limit, Phase::Busy) | (Cause::Busy, _) => "busy",
                (Cause::Timeout | Cause::Limit | Cause::NoCard, _) => "timeout",
                (Cause::Crc, _) => "CRC error",
                (Cause::VoltageSwitch, _) => "signaling switch failed",
                (Cause::Unsupported(_), _) => "bus feature is not supported",
                _ => "hardware I/O error",
            };
            let env = Virtual::default();
            let host = Told { fails: Some((cause, phase)), ..Told::new(Width::Four) };
            let mut bus = HostBus::new(host, &env, Buf(vec![0; 512]), Duration::from_secs(3));
            let end = block_on(&env, bus.send_command(theirs::<13>()), None);
            assert_eq!(end.unwrap_err().to_string(), expected, "{cause:?}, {phase:?}");
        }
    }
}

#[test]
fn a_transfer_is_stopped_unless_it_was_counted_right_before() {
    let stops = |asked: Vec<Operation<()>>| -> Vec<(u8, Option<Stop>)> {
        let of = |op: &Operation<()>| match op {
            Operation::Command(c) | Operation::Transfer(c, ()) => Some((c.index, c.data.map(|d| d.stop))),
            _ => None,
        };
        asked.iter().filter_map(of).collect()
    };
    let seen = stops(asked(Width::Four, async |bus| {
        bus.send_command(theirs::<23>()).await.unwrap();
        bus.read_blocks(theirs::<18>(), false).await.unwrap();
        // The count was used up.
        bus.read_blocks(theirs::<18>(), true).await.unwrap();
        bus.send_command(theirs::<23>()).await.unwrap();
        bus.send_command(theirs::<13>()).await.unwrap();
        bus.write_blocks(theirs::<25>(), true).await.unwrap();
        bus.send_command(theirs::<23>()).await.unwrap();
        bus.write_blocks(theirs::<25>(), false).await.unwrap();
        bus.read_blocks(theirs::<17>(), false).await.unwrap();
        bus.write_blocks(theirs::<24>(), false).await.unwrap();
    }));
    let (counted, open) = (Some(Stop::None), Some(Stop::Manual));
    assert_eq!(
        seen,
        [
            (23, None),
            (18, counted),
            (18, open),
            (12, None),
            (23, None),
            (13, None),
            (25, open),
            (12, None),
            (23, None),
            (25, counted),
            (17, counted),
            (24, counted)
        ]
    );
}

#[test]
fn their_bus_settings_reach_the_host_once_before_the_next_command() {
    for (hz, timing) in [
        (400_000, Timing::Default),
        (25_000_000, Timing::Default),
        (25_000_001, Timing::High),
        (50_000_000, Timing::High),
    ] {
        let seen = asked(Width::Four, async |bus| {
            bus.set_bus(BusWidth::W4, hz).unwrap();
            bus.send_command(theirs::<13>()).await.unwrap();
            bus.send_command(theirs::<13>()).await.unwrap();
        });
        let set = BusConfig { hz, width: Width::Four, timing, ..BusConfig::default() };
        let command = Operation::Command(Command::plain(13, 5, Kind::Short));
        assert_eq!(seen, [Operation::Bus(set), command, command], "{hz}");
    }
    for (has, width) in [(Width::One, 1), (Width::Four, 4), (Width::Eight, 8)] {
        let env = Virtual::default();
        let mut bus = HostBus::new(Told::new(has), &env, Buf(vec![0; 512]), Duration::from_secs(3));
        assert_eq!(lines(bus.supports_bus_width()), width);
        for asked in [BusWidth::W1, BusWidth::W4, BusWidth::W8] {
            assert_eq!(bus.set_bus(asked, 400_000).is_ok(), lines(asked) <= width);
        }
    }
    assert_eq!(theirs::<13>().index(), 13);
}

//! G1 and G2: whatever comes back on the wire, each operation ends in time, with an error or as many bytes as were asked for.

use mmc_mock::Clock;
use mmc_mock::drive::{Bound, Drive, drive_bounded};
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{Host, Operation, Progress, Supervised};
use mmc_spi::{Board, BusFault, GRACE, SpiEngine, Wires};
use mmc_time::Duration;
use proptest::prelude::*;

/// DO carries these bytes, again and again; the bus fails once in a while.
struct Noise<const HOLDS: bool> {
    bytes: Vec<u8>,
    at: usize,
    fails_at: usize,
    clock: Clock,
}

impl<const HOLDS: bool> Wires for Noise<HOLDS> {
    const HOLDS: bool = HOLDS;
    fn exchange(&mut self, head: &mut [u8], pause: u32, body: &mut [u8]) -> Result<(), BusFault> {
        self.clock.advance(Duration::from_nanos(pause.into()));
        for byte in head.iter_mut().chain(body) {
            *byte = self.bytes[self.at % self.bytes.len()];
            self.at += 1;
            self.clock.advance(Duration::from_nanos(320));
        }
        if self.at > self.fails_at { Err(BusFault) } else { Ok(()) }
    }
    fn release(&mut self) -> Result<(), BusFault> {
        Ok(())
    }
    fn start_up(&mut self) -> Result<(), BusFault> {
        Ok(())
    }
}

struct Bare;
impl Board for Bare {
    fn set_clock(&mut self, _: u32) {}
}

/// Bytes that mean something, more often than not.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        6 => prop::sample::select(vec![0xff_u8, 0x00, 0x01, 0xfe, 0xe5, 0xeb, 0xed, 0x08, 0x04, 0x05, 0x40]),
        1 => any::<u8>(),
    ]
}

fn commands() -> Vec<Command> {
    let mut all = vec![
        Command { init_clocks: true, ..Command::go_idle_state() },
        Command::send_if_cond(0xaa),
        Command::app_cmd(0),
        Command::acmd_sd_send_op_cond(0x40ff_8000),
        Command::send_op_cond(0x40ff_8000),
        Command::all_send_cid(),
        Command::send_relative_addr(),
        Command::send_csd(1),
        Command::select_card(1),
        Command::send_status(1),
        Command::stop_transmission(),
        Command::read_single_block(7),
        Command::write_block(7),
        Command::erase(0),
        Command::send_ext_csd(),
    ];
    for stop in [Stop::None, Stop::Manual, Stop::Auto] {
        all.push(Command::read_multiple_block(7, 3, stop));
        all.push(Command::write_multiple_block(7, 3, stop));
    }
    all
}

fn try_all<const HOLDS: bool>(bytes: Vec<u8>, order: &[prop::sample::Index], fails_at: usize) {
    let clock = Clock::new();
    let wires = Noise::<HOLDS> { bytes, at: 0, fails_at, clock: clock.clone() };
    let mut host: Supervised<SpiEngine<_, _, [u8; 2048]>> = SpiEngine::host(wires, Bare, 25_000_000);
    let commands = commands();
    let limit = Duration::from_millis(50);
    // One exchange and its pause may begin at the very end.
    let bound = Bound { time: limit + GRACE + mmc_spi::MAX_PAUSE + Duration::from_millis(10), steps: 40_000 };
    // CMD0, CMD8 and ACMD41 first: what comes after them is more when there is a card.
    for i in [0, 1, 2, 3].into_iter().chain(order.iter().map(|i| i.index(commands.len()))) {
        let command = commands[i];
        let op = match command.data {
            Some(_) => Operation::Transfer(command, [7; 2048]),
            None => Operation::Command(command),
        };
        host.submit(op, clock.now() + limit, clock.now()).unwrap();
        let (done, _) = drive_bounded(&clock, bound, |now| match host.poll(now) {
            Progress::Waiting { until, .. } => Drive::Wait(until),
            Progress::Done(done) => Drive::Done(done),
            Progress::Idle => panic!("lost"),
        })
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        if let Ok(reply) = done.result {
            assert_eq!(reply.bytes, command.data.map_or(0, |d| d.bytes()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_on_the_wire(
        bytes in prop::collection::vec(byte(), 1..80),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        fails_at in prop_oneof![3 => Just(usize::MAX), 1 => 0..5000_usize],
    ) {
        try_all::<true>(bytes.clone(), &order, fails_at);
        try_all::<false>(bytes, &order, fails_at);
    }
}

//! What `Supervised` asks of an engine and tells its caller, and what a `Conductor` makes of both, with an engine that
//! fails, is late, refuses, stops late or never.

use super::{CARD, Digest, Lines, Random, ext_csd};
use mmc_hal::{Dir, Payload};
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{
    Capabilities, Cause, Engine, Failure, Host, Lease, Operation, Phase, Progress, Reply, Returned, Slot,
    Supervised, Why,
};
use mmc_proto::machine::{Conductor, Fetch, Machine, Order, Transfer, TransferOptions, Turn};
use mmc_time::{Duration, Instant};
use std::fmt::{Debug, Write};

type Buf = [u8; 1536];

struct Moody {
    random: Random,
    log: Digest,
    /// Failures in 1/16.
    bad: u64,
    prepares: bool,
    due: Instant,
    stops: Instant,
    bytes: u64,
}

impl Moody {
    fn hit(&mut self) -> bool {
        self.random.below(16) < self.bad
    }
    fn begin(&mut self, what: std::fmt::Arguments<'_>, now: Instant) -> Result<(), Cause> {
        writeln!(self.log, "{what} at {now:?}").unwrap();
        if self.hit() {
            return Err(Cause::Unsupported("by the test"));
        }
        self.due = now + Duration::from_micros([0, 1, 50, 900, 20_000][self.random.below(5) as usize]);
        Ok(())
    }
}

impl Engine for Moody {
    type Payload = Buf;
    fn capabilities(&self) -> Capabilities {
        let mut caps = Capabilities::new();
        caps.max_blocks = 2;
        caps
    }
    fn start(&mut self, cmd: &Command, data: Option<Lease<'_, Buf>>, now: Instant) -> Result<(), Cause> {
        self.bytes = data.as_ref().map_or(0, Lease::bytes);
        let (bytes, sum) = (self.bytes, data.map(|mut d| d.get()[0]));
        self.begin(format_args!("start CMD{} {bytes} {sum:?}", cmd.index), now)
    }
    fn prepare(&mut self, cmd: &Command, data: Lease<'_, Buf>) -> Result<(), Cause> {
        let bytes = data.bytes();
        writeln!(self.log, "prepare CMD{} {bytes}", cmd.index).unwrap();
        if self.prepares { Ok(()) } else { Err(Cause::Busy) }
    }
    fn start_prepared(&mut self, cmd: &Command, data: Lease<'_, Buf>, now: Instant) -> Result<(), Cause> {
        self.bytes = data.bytes();
        self.begin(format_args!("start prepared CMD{} {}", cmd.index, data.bytes()), now)
    }
    fn unprepare(&mut self, data: Lease<'_, Buf>) {
        writeln!(self.log, "unprepare {}", data.bytes()).unwrap();
    }
    fn set_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        self.bytes = 0;
        self.begin(format_args!("bus {}", bus.hz), now)
    }
    fn set_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        self.bytes = 0;
        self.begin(format_args!("{power:?}"), now)
    }
    fn advance(&mut self, data: Option<Lease<'_, Buf>>, now: Instant) -> Option<Result<Reply, Failure>> {
        writeln!(self.log, "advance {} at {now:?}", data.is_some()).unwrap();
        if now < self.due {
            return None;
        }
        if self.hit() {
            let causes = [Cause::Timeout, Cause::Crc, Cause::NoCard, Cause::Dma];
            let late = [0, 0, 1, 30, 700, 90_000][self.random.below(6) as usize];
            self.stops = now + Duration::from_micros(late);
            let r1 = self.hit().then_some(0x900);
            let cause = causes[self.random.below(4) as usize];
            return Some(Err(Failure { cause, phase: Phase::Data, r1 }));
        }
        Some(Ok(Reply { words: [0x900, 0, 0, 0], bytes: self.bytes }))
    }
    fn waits(&self, now: Instant) -> (Why, Instant) {
        if self.due > now { (Why::Interrupt, self.due) } else { (Why::Timer, now + Duration::from_micros(7)) }
    }
    fn halt(&mut self, now: Instant) {
        writeln!(self.log, "halt at {now:?}").unwrap();
    }
    fn halted(&mut self, now: Instant) -> bool {
        now >= self.stops
    }
    fn slot(&mut self, now: Instant) -> Slot {
        writeln!(self.log, "slot at {now:?}").unwrap();
        Slot { present: Some(true), changes: 3, ..Slot::default() }
    }
    fn sdio_interrupt(&mut self, enable: bool) {
        writeln!(self.log, "interrupt {enable}").unwrap();
    }
    fn finish(&mut self, data: Lease<'_, Buf>) {
        writeln!(self.log, "finish {}", data.bytes()).unwrap();
    }
}

fn host(seed: u64, bad: u64) -> Supervised<Moody> {
    let (due, stops) = (Instant::ZERO, Instant::ZERO);
    let (random, log) = (Random::new(seed, bad), Digest::new());
    let engine = Moody { random, log, bad, prepares: seed % 3 != 0, due, stops, bytes: 0 };
    Supervised::new(engine, Duration::from_micros(800))
}

fn back(returned: &Returned<Buf>) -> String {
    match returned {
        Returned::Back(buf) => format!("back {}", buf[0]),
        Returned::None => "none".into(),
        Returned::Quarantined => "kept".into(),
    }
}

fn most<H: Host>(host: &H) -> u32 {
    host.capabilities().max_blocks
}

/// Operations one after the other through `host`, which is the supervised engine or a reference to it.
fn operate<H: Host<Payload = Buf>>(
    host: &mut H,
    random: &mut Random,
    out: &mut dyn Write,
    now: &mut Instant,
) {
    let shape = |random: &mut Random| {
        let blocks = [0, 1, 2, 3][random.below(4) as usize];
        let len = [512, 512, 1, 0][random.below(4) as usize];
        Command::data(random.below(64) as u8, 0, Dir::Read, len, blocks, Stop::None)
    };
    let payload = [random.below(200) as u8; 1536];
    let limit = Duration::from_micros([0, 1, 49, 50, 51, 2_000, 20_000][random.below(7) as usize]);
    let plain = Command::send_status(random.below(9) as u16);
    let prepared = random.below(3) == 0;
    let submitted = match random.below(8) {
        0 => host.submit(Operation::Power(Power::On), *now + limit, *now),
        1 => host.submit(Operation::Bus(BusConfig::default()), *now + limit, *now),
        2 => host.submit(Operation::Command(plain), *now + limit, *now),
        3 => host.submit(Operation::Transfer(plain, payload), *now + limit, *now),
        4 => host.submit(Operation::Command(shape(random)), *now + limit, *now),
        _ if prepared => {
            let c = shape(random);
            let taken = host.prepare(c, payload);
            writeln!(out, "prepares {:?}", taken.map_err(|e| e.error)).unwrap();
            let again = host.prepare(c, payload);
            writeln!(out, "prepares {:?}", again.map_err(|e| e.error)).unwrap();
            if random.below(3) == 0 {
                writeln!(out, "{:?}", host.unprepare().map(|(c, p)| (c.index, p[0]))).unwrap();
            }
            match host.submit_prepared(*now + limit, *now) {
                Ok(()) => Ok(()),
                Err(e) => {
                    let left = host.unprepare().map(|(c, p)| (c.index, p[0]));
                    writeln!(out, "{e:?} {left:?}").unwrap();
                    return;
                }
            }
        }
        _ => host.submit(Operation::Transfer(shape(random), payload), *now + limit, *now),
    };
    if let Err(refused) = submitted {
        let payload = match refused.operation {
            Operation::Transfer(_, p) => Some(p[0]),
            _ => None,
        };
        writeln!(out, "{:?} {payload:?}", refused.error).unwrap();
        return;
    }
    let second = host.submit(Operation::Command(plain), *now + limit, *now);
    writeln!(out, "{:?}", second.map_err(|e| e.error)).unwrap();
    for _ in 0..200 {
        match host.poll(*now) {
            Progress::Waiting { why, until } => {
                writeln!(out, "{why:?} {until:?}").unwrap();
                match random.below(12) {
                    0 => host.abort(*now),
                    1 => {
                        let slot = host.slot(*now);
                        writeln!(out, "{:?} {}", slot.present, slot.changes).unwrap();
                    }
                    2 => host.sdio_interrupt(random.below(2) == 0),
                    _ => {}
                }
                let until = until.max(*now + Duration::from_nanos(1));
                *now = if random.below(5) == 0 { *now + Duration::from_micros(3) } else { until };
            }
            Progress::Done(done) => {
                writeln!(out, "{:?} {}", done.result, back(&done.payload)).unwrap();
                assert!(matches!(host.poll(*now), Progress::Idle));
                return;
            }
            Progress::Idle => panic!("idle without a completion"),
        }
    }
    panic!("polled for ever");
}

fn converse<M: Machine>(
    machine: M,
    host: &mut Supervised<Moody>,
    random: &mut Random,
    out: &mut dyn Write,
    now: &mut Instant,
) where
    M::Output: Debug,
{
    let payload = (random.below(8) > 0).then_some([7; 1536]);
    let mut conductor = Conductor::new(machine, payload);
    if random.below(2) == 0 {
        writeln!(out, "{} {}", conductor.prepare(host), conductor.is_prepared()).unwrap();
        if random.below(4) == 0 {
            conductor.unprepare(host);
            writeln!(out, "{}", conductor.is_prepared()).unwrap();
        }
    }
    for _ in 0..300 {
        match conductor.poll(host, *now) {
            Turn::Wait { why, until } => {
                writeln!(out, "{why:?} {until:?}").unwrap();
                let until = until.max(*now + Duration::from_nanos(1));
                *now = match random.below(6) {
                    0 => *now + Duration::from_micros(2),
                    _ => until,
                };
            }
            Turn::Done(output, payload) => {
                writeln!(out, "{output:?} {:?}", payload.map(|p| p.bytes())).unwrap();
                return;
            }
        }
    }
    writeln!(out, "goes on").unwrap();
}

#[test]
fn engines_and_their_supervision() {
    let mut lines = Lines(Vec::new());
    for bad in [0, 1, 4, 9] {
        lines.digest(format!("operations, {bad} of 16 fail"), |out| {
            for seed in 0..60 {
                let (mut host, mut random, mut now) =
                    (host(seed, bad), Random::new(seed, 7), Instant::from_millis(1));
                writeln!(out, "{} {}", most(&host), most(&&mut host)).unwrap();
                for _ in 0..12 {
                    if random.below(2) == 0 {
                        operate(&mut &mut host, &mut random, out, &mut now);
                    } else {
                        operate(&mut host, &mut random, out, &mut now);
                    }
                    if random.below(2) == 0 {
                        writeln!(out, "{:?}", host.reclaim(now).map(|p| p[0])).unwrap();
                        now += Duration::from_millis(random.below(200));
                    }
                }
                writeln!(out, "{:x}", host.engine().log.0).unwrap();
            }
        });
        lines.digest(format!("conversations, {bad} of 16 fail"), |out| {
            for seed in 0..60 {
                let (mut host, mut random, mut now) =
                    (host(seed, bad), Random::new(seed, 8), Instant::from_millis(1));
                for blocks in [1, 2, 3] {
                    for dir in [Dir::Read, Dir::Write] {
                        let transfer = Transfer::new(&CARD, dir, 8, blocks, TransferOptions::default());
                        converse(transfer, &mut host, &mut random, out, &mut now);
                    }
                    converse(Fetch::ext_csd(&CARD), &mut host, &mut random, out, &mut now);
                    converse(Order::sleep(&CARD, &ext_csd(), true), &mut host, &mut random, out, &mut now);
                    writeln!(out, "{:?}", host.reclaim(now + Duration::from_secs(1)).map(|p| p[0])).unwrap();
                }
                writeln!(out, "{:x}", host.engine().log.0).unwrap();
            }
        });
    }
    lines.compare("hosts");
}

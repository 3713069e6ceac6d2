//! The protocol's own conversations over the mock host: a card is identified, sectors go out and come back, every
//! fault ends within the conversation's limit, and each operation ends at the instant the wire says.

use mmc_hal::{Dir, Payload};
use mmc_mock::card::{
    Answer, Bits, Card, Phase as Opened, SdCard, SdConfig, Sent, Shared, State, Token, Version,
};
use mmc_mock::fault::What;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, MockHost, Wakes, Wire};
use mmc_proto::bus::{BusConfig, Power, Width};
use mmc_proto::command::{Command, Gate};
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned, Supervised,
};
use mmc_proto::machine::{
    Conductor, Identified, Identify, IdentifyError, Machine, Transfer, TransferError, TransferOptions, Turn,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

type Slot<P> = Supervised<MockHost<P, Shared<SdCard>>>;

/// A card, its host, and the time.
struct Bench<P: Payload> {
    host: Slot<P>,
    card: Shared<SdCard>,
    clock: Clock,
}

fn caps() -> Capabilities {
    let mut caps = Capabilities::new();
    caps.width = Width::Four;
    caps.max_hz = 50_000_000;
    caps.max_segments = 64;
    caps
}

impl<P: Payload> Bench<P> {
    fn new(config: SdConfig) -> Self {
        let card = Shared::new(SdCard::new(config).unwrap());
        Self { host: MockHost::new(card.clone(), caps()), card, clock: Clock::new() }
    }
    /// Runs one conversation to its end; virtual time moves only to the instants it names, and there are few.
    fn drive<M: Machine>(&mut self, machine: M, payload: Option<P>) -> (M::Output, Option<P>) {
        let mut conductor = Conductor::new(machine, payload);
        for _ in 0..20_000 {
            match conductor.poll(&mut self.host, self.clock.now()) {
                Turn::Done(output, payload) => return (output, payload),
                Turn::Wait { until, .. } => {
                    assert!(!until.is_never(), "a wait without an end");
                    self.clock.advance_to(until);
                }
            }
        }
        panic!("the conversation does not end");
    }
    /// One operation to its end, by `next_event` alone: the host's own instant is when it is over.
    fn operate(&mut self, op: Operation<P>, limit: Duration) -> (Result<Reply, HostError>, Option<P>) {
        let until = self.clock.now() + limit;
        self.host.submit(op, until, self.clock.now()).unwrap();
        loop {
            match self.host.poll(self.clock.now()) {
                Progress::Done(Completion { result, payload }) => {
                    let payload = match payload {
                        Returned::Back(p) => Some(p),
                        Returned::None => None,
                        Returned::Quarantined => panic!("a mock host always stops"),
                    };
                    return (result, payload);
                }
                Progress::Waiting { .. } => self.clock.advance_to(self.host.next_event().min(until)),
                Progress::Idle => panic!("lost"),
            }
        }
    }
    fn command(&mut self, c: Command) -> Result<Reply, HostError> {
        self.operate(Operation::Command(c), Duration::from_secs(1)).0
    }
}

impl Bench<Buf> {
    fn identify(&mut self) -> Result<Identified, IdentifyError> {
        self.drive(Identify::new(&caps()), Some(Buf(vec![0; 512]))).0
    }
    fn identified(config: SdConfig) -> (Self, Identified) {
        let mut b = Self::new(config);
        let id = b.identify().unwrap();
        (b, id)
    }
    fn transfer(
        &mut self,
        id: &Identified,
        dir: Dir,
        lba: u64,
        data: Vec<u8>,
    ) -> (Result<u32, TransferError>, Vec<u8>) {
        let n = (data.len() / 512) as u32;
        let t = Transfer::new(&id.traits, dir, lba, n, TransferOptions::default());
        let (result, payload) = self.drive(t, Some(Buf(data)));
        (result, payload.unwrap().0)
    }
}

fn ideal() -> SdConfig {
    SdConfig::new(Profile::ideal(), 1)
}
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8) ^ ((i >> 9) as u8).wrapping_mul(31) ^ seed).collect()
}

#[test]
fn every_kind_of_card_is_identified_and_its_size_understood() {
    let sd = |version, sectors| SdConfig {
        version,
        sectors,
        cmd23: version == Version::V3,
        high_speed: version >= Version::V1_1,
        ..ideal()
    };
    for config in [
        sd(Version::V1_0, 31_360),
        sd(Version::V1_1, 2_097_152),
        sd(Version::V2, 4_194_304),
        sd(Version::V2, 16_777_216),
        sd(Version::V3, 16_777_216),
        sd(Version::V3, 4_294_705_152),
    ] {
        let (b, id) = Bench::identified(config.clone());
        assert_eq!(id.traits.blocks, config.sectors);
        assert_eq!(id.traits.byte_addressed, config.sectors <= 4_194_304);
        assert_eq!(id.traits.cmd23, config.cmd23);
        assert_eq!(id.v2, config.version >= Version::V2);
        assert_eq!(id.bus.width, Width::Four);
        assert_eq!(id.bus.hz, if config.high_speed { 50_000_000 } else { 25_000_000 });
        let card = b.card.lock();
        assert_eq!(card.violations(), Vec::<String>::new());
        assert_eq!((card.state(b.clock.now()), card.width()), (State::Tran, 4));
        assert_eq!(card.is_high_speed(), config.high_speed);
        assert_eq!(card.rca(), id.traits.rca);
    }
}

#[test]
fn a_card_that_needs_a_second_to_power_up_is_waited_for() {
    let (b, _) = Bench::identified(SdConfig { power_up: Duration::from_millis(1000), ..ideal() });
    let t = b.clock.now();
    assert!(t > Instant::from_millis(1000) && t < Instant::from_millis(1100), "{}", t.since(Instant::ZERO));
}

#[test]
fn what_is_written_is_read_and_is_in_the_storage() {
    for (sectors, version) in [(16_777_216, Version::V3), (2_097_152, Version::V2), (31_360, Version::V1_1)] {
        let cmd23 = version == Version::V3;
        let (mut b, id) = Bench::identified(SdConfig { sectors, version, cmd23, ..ideal() });
        for (lba, blocks) in [(0, 1), (7, 3), (1000, 2048), (sectors - 5, 5)] {
            let data = pattern(blocks * 512, lba as u8);
            let (result, sent) = b.transfer(&id, Dir::Write, lba, data.clone());
            assert_eq!(result, Ok(blocks as u32));
            assert!(sent == data);
            let mut stored = vec![0; data.len()];
            b.card.lock().storage_mut().read(lba * 512, &mut stored).unwrap();
            assert!(stored == data);
            let (result, got) = b.transfer(&id, Dir::Read, lba, vec![0xee; data.len()]);
            assert_eq!(result, Ok(blocks as u32));
            assert!(got == data);
        }
        assert_eq!(b.card.violations(), Vec::<String>::new());
        assert_eq!(b.card.lock().stats().write_bytes, (1 + 3 + 2048 + 5) * 512);
    }
}

#[test]
fn a_transfer_costs_the_card_or_the_wire_whichever_is_slower() {
    let profile = Profile { stall_p: 0.0, ..Profile::slow2018() };
    let (mut b, id) = Bench::identified(SdConfig::new(profile, 0));
    let wire = Wire { hz: 50_000_000, lines: 4 };

    // 512 KiB written: CMD23 (2.08 us) and the frame of CMD25 before the card's 81.91 ms, then the CMD13 that waits for
    // the end of busy.
    let start = b.clock.now();
    b.transfer(&id, Dir::Write, 8192, pattern(524_288, 1)).0.unwrap();
    let frame = wire.clocks(48);
    let command = wire.clocks(48 + 8 + 48);
    let service = Duration::from_nanos(1_250_000 + 80_659_692);
    assert_eq!(b.clock.now().since(start), command + frame + service + command);

    // Read: the last block leaves the card when its service is over, then takes its time on the wire.
    let start = b.clock.now();
    b.transfer(&id, Dir::Read, 8192, vec![0; 524_288]).0.unwrap();
    let service = Duration::from_nanos(1_000_000 + 29_127_111);
    assert_eq!(b.clock.now().since(start), command + frame + service + wire.clocks(1042));

    // On a card without delays the wire is all there is.
    let (mut b, id) = Bench::identified(ideal());
    let start = b.clock.now();
    b.transfer(&id, Dir::Read, 0, vec![0; 524_288]).0.unwrap();
    assert_eq!(b.clock.now().since(start), command + command + wire.clocks(1024 * 1042));
    let start = b.clock.now();
    b.transfer(&id, Dir::Write, 0, vec![0; 524_288]).0.unwrap();
    assert_eq!(b.clock.now().since(start), command + command + wire.clocks(1024 * 1052) + command);
}

#[test]
fn single_operations_end_at_the_instant_of_the_wire() {
    let mut b = Bench::<Buf>::new(ideal());
    let refused = b.host.submit(Operation::Command(Command::go_idle_state()), Instant::NEVER, Instant::ZERO);
    assert!(matches!(refused.unwrap_err().error.cause, Cause::Unsupported(_)), "no clock");
    b.operate(Operation::Power(Power::On), Duration::from_secs(1)).0.unwrap();
    assert_eq!(b.clock.now(), Instant::from_millis(1));
    b.operate(Operation::Bus(BusConfig { hz: 400_000, ..BusConfig::default() }), Duration::from_secs(1))
        .0
        .unwrap();
    assert_eq!(b.clock.now(), Instant::from_millis(1), "a new clock holds at once");

    let mut step = |c: Command, clocks: u64| {
        let start = b.clock.now();
        let r = b.command(c);
        assert_eq!(b.clock.now().since(start), Duration::from_nanos(2500 * clocks), "CMD{}", c.index);
        r
    };
    step(Command { init_clocks: true, ..Command::go_idle_state() }, 80 + 48).unwrap();
    let r = step(Command::send_if_cond(0xaa), 48 + 8 + 48).unwrap();
    assert_eq!(r.words[0], 0x1aa);
    // No such command: the host waits 64 clocks for an answer.
    let e = step(Command::app_cmd(0x1234), 48 + 64).unwrap_err();
    assert_eq!((e.cause, e.phase, e.index), (Cause::Timeout, Phase::Command, 55));
    for _ in 0..200 {
        step(Command::app_cmd(0), 48 + 8 + 48).unwrap();
        let r = step(Command::acmd_sd_send_op_cond(0x40ff_8000), 48 + 8 + 48).unwrap();
        if r.words[0] >> 31 == 1 {
            let r = step(Command::all_send_cid(), 48 + 8 + 136).unwrap();
            assert_eq!(r.words[0], 0x7d4d_4b4d, "MID, OID, first letter");
            return;
        }
    }
    panic!("not ready after 200 ACMD41");
}

#[test]
fn a_gated_command_waits_for_dat0_and_an_ungated_one_does_not() {
    let profile = Profile { stall_p: 0.0, ..Profile::slow2018() };
    let (mut b, id) = Bench::identified(SdConfig::new(profile, 0));
    let write = Operation::Transfer(Command::write_block(0), Buf(pattern(512, 1)));
    let start = b.clock.now();
    b.operate(write, Duration::from_secs(1)).0.unwrap();
    let data_end = b.clock.now();
    assert!(data_end.since(start) < Duration::from_micros(50), "the transfer ends with its data");

    let poll = Command { gate: Gate::Now, ..Command::send_status(id.traits.rca) };
    let r = b.command(poll).unwrap();
    assert_eq!((r.words[0] >> 9 & 15, r.words[0] >> 8 & 1), (7, 0), "programming, not ready");
    assert_eq!(b.clock.now().since(data_end), Duration::from_nanos(2080));

    let r = b.command(Command { gate: Gate::Idle, ..poll }).unwrap();
    assert_eq!((r.words[0] >> 9 & 15, r.words[0] >> 8 & 1), (4, 1));
    let service = Duration::from_nanos(250_000 + 1_000_000 + 78_769);
    assert_eq!(b.clock.now().since(start), Duration::from_nanos(960) + service + Duration::from_nanos(2080));
}

#[test]
fn a_payload_may_be_cut_anywhere() {
    let (_, id) = Bench::identified(ideal());
    let mut b = Bench::<BufBatch>::new(ideal());
    let mut scratch = BufBatch::new(1);
    mmc_hal::Batch::push(&mut scratch, Buf(vec![0; 512]), 0, 512).unwrap();
    let _ = b.drive(Identify::new(&caps()), Some(scratch)).0.unwrap();
    let data = pattern(16 * 512, 3);
    let pieces = [1, 511, 512, 700, 4, 0, 3000, 1416, 2048];
    let gather = |fill: bool| {
        let (mut batch, mut at) = (BufBatch::new(16), 0);
        for n in pieces {
            let mut bytes = vec![0xcc; n + 10];
            if fill {
                bytes[5..5 + n].copy_from_slice(&data[at..at + n]);
            }
            mmc_hal::Batch::push(&mut batch, Buf(bytes), 5, n).unwrap();
            at += n;
        }
        assert_eq!(at, data.len());
        batch
    };
    let options = TransferOptions::default();
    let out = Transfer::new(&id.traits, Dir::Write, 40, 16, options);
    assert_eq!(b.drive(out, Some(gather(true))).0, Ok(16));
    let mut stored = vec![0; data.len()];
    b.card.lock().storage_mut().read(40 * 512, &mut stored).unwrap();
    assert!(stored == data);
    let back = Transfer::new(&id.traits, Dir::Read, 40, 16, options);
    let (result, batch) = b.drive(back, Some(gather(false)));
    assert_eq!(result, Ok(16));
    let batch = batch.unwrap();
    let got: Vec<u8> = (0..batch.segments()).flat_map(|i| batch.segment(i).unwrap().to_vec()).collect();
    assert!(got == data);
}

/// Faults at the data command of a transfer, and what the host must say of each.
#[test]
fn each_fault_ends_within_the_limit_and_is_called_by_its_name() {
    use Cause::{Crc, NoCard, NoCrcStatus, Timeout};
    let cases = [
        (What::NoAnswer, Dir::Read, Timeout, Phase::Command),
        (What::CommandCrc, Dir::Read, Timeout, Phase::Command),
        (What::ResponseCrc, Dir::Write, Crc, Phase::Command),
        (What::BlockCrc(0), Dir::Read, Crc, Phase::Data),
        (What::BlockCrc(5), Dir::Read, Crc, Phase::Data),
        (What::BlockCrc(5), Dir::Write, Crc, Phase::Data),
        (What::BlockMissing(7), Dir::Read, Timeout, Phase::Data),
        (What::BlockMissing(7), Dir::Write, NoCrcStatus, Phase::Data),
        (What::Removed, Dir::Read, NoCard, Phase::Command),
    ];
    for (what, dir, cause, phase) in cases {
        let (mut b, id) = Bench::identified(ideal());
        {
            let mut card = b.card.lock();
            let next = card.log().count();
            card.faults_mut().push(next + 1, what); // CMD23 first
        }
        let t = Transfer::new(&id.traits, dir, 100, 8, TransferOptions::default());
        let (start, limit) = (b.clock.now(), t.limit());
        let (result, _) = b.drive(t, Some(Buf(pattern(8 * 512, 9))));
        let error = result.unwrap_err();
        let mmc_proto::machine::TransferCause::Host(e) = error.cause else { panic!("{what:?}: {error}") };
        assert_eq!((e.cause, e.phase), (cause, phase), "{what:?}");
        assert!(b.clock.now().since(start) <= limit, "{what:?} took {}", b.clock.now().since(start));

        let mut stored = vec![0; 8 * 512];
        b.card.lock().storage_mut().read(100 * 512, &mut stored).unwrap();
        let good = match what {
            What::BlockCrc(k) | What::BlockMissing(k) if dir == Dir::Write => k as usize * 512,
            _ => 0,
        };
        assert!(stored[..good] == pattern(8 * 512, 9)[..good] && stored[good..].iter().all(|&b| b == 0));
        // Whatever it was, the card is usable again, but for the one that has left.
        if what != What::Removed {
            assert_eq!(b.transfer(&id, dir, 100, pattern(8 * 512, 9)).0, Ok(8), "after {what:?}");
        }
    }
}

#[test]
fn status_bits_and_a_card_that_stays_busy_reach_the_caller() {
    let (mut b, id) = Bench::identified(ideal());
    let fault = |b: &Bench<Buf>, after, what| {
        let mut card = b.card.lock();
        let next = card.log().count();
        card.faults_mut().push(next + after, what);
    };
    fault(&b, 1, What::Status(1 << 21)); // CARD_ECC_FAILED in the R1 of CMD18
    let (result, _) = b.transfer(&id, Dir::Read, 0, vec![0; 4096]);
    assert_eq!(result.unwrap_err().status.unwrap().bits() >> 21 & 1, 1);

    fault(&b, 1, What::Stuck);
    let t = Transfer::new(&id.traits, Dir::Write, 0, 8, TransferOptions::default());
    let (start, limit) = (b.clock.now(), t.limit());
    let (result, payload) = b.drive(t, Some(Buf(pattern(4096, 1))));
    assert!(result.unwrap_err().needs_reset());
    assert_eq!(payload.unwrap().0.len(), 4096);
    assert!(b.clock.now().since(start) <= limit);
    let cmd0 = Operation::Command(Command::go_idle_state());
    b.operate(cmd0, Duration::from_secs(1)).0.unwrap();
    let status = Operation::Command(Command::send_status(id.traits.rca));
    assert!(b.operate(status, Duration::from_secs(1)).0.is_err(), "CMD0 alone does not help");
    assert!(b.identify().is_ok(), "it switches the supply");
}

#[test]
fn no_card_is_no_card() {
    let mut b = Bench::<Buf>::new(ideal());
    b.card.lock().set_present(false);
    assert!(b.identify().unwrap_err().media_gone());
    b.card.lock().set_present(true);
    assert!(b.identify().is_ok());
}

#[test]
fn an_operation_ends_at_the_callers_limit_if_the_card_does_not_let_go() {
    let (mut b, id) = Bench::identified(ideal());
    let next = b.card.lock().log().count();
    b.card.lock().faults_mut().push(next, What::Stuck);
    b.command(Command { gate: Gate::Now, ..Command::send_status(id.traits.rca) }).unwrap();
    let start = b.clock.now();
    b.host
        .submit(
            Operation::Command(Command::send_status(id.traits.rca)),
            start + Duration::from_millis(3),
            start,
        )
        .unwrap();
    assert!(
        matches!(b.host.poll(start), Progress::Waiting { until, .. } if until == start + Duration::from_millis(3))
    );
    assert_eq!(b.host.next_event(), Instant::NEVER);
    b.clock.advance(Duration::from_millis(3));
    let Progress::Done(c) = b.host.poll(b.clock.now()) else { panic!("still running") };
    assert_eq!(c.result.unwrap_err().cause, Cause::Limit);
    assert_eq!(b.card.lock().log().count(), next + 1, "the held command was never sent");
}

#[test]
fn a_plain_borrow_is_payload_enough() {
    let (_, id) = Bench::identified(ideal());
    let (mut bytes, mut scratch) = (pattern(1024, 5), vec![0; 512]);
    let mut b = Bench::<&mut [u8]>::new(ideal());
    b.drive(Identify::new(&caps()), Some(&mut scratch[..])).0.unwrap();
    let t = Transfer::new(&id.traits, Dir::Write, 3, 2, TransferOptions { open_ended: true });
    assert_eq!(b.drive(t, Some(&mut bytes[..])).0, Ok(2));
    assert_eq!(b.card.lock().storage().bytes_written(), 1024);
}

/// A card that says anything at any time, drawn from a list.
struct Liar(Vec<u64>, usize);

impl Liar {
    fn draw(&mut self) -> u64 {
        self.1 += 1;
        self.0[self.1 % self.0.len()]
    }
}

impl Card for Liar {
    fn power(&mut self, _: bool, _: Instant) {}
    fn bus(&mut self, _: u32, _: u8, _: Instant) {}
    fn idle_clocks(&mut self, _: u32) {}
    fn command(&mut self, index: u8, _: u32, _: Instant) -> Answer {
        let d = self.draw();
        let mut short = [index, 0, 0, 0, 0, 0x95];
        short[..4].copy_from_slice(&(d as u32).to_be_bytes());
        let response = match d % 4 {
            0 => None,
            1 => Some(Bits::Long([d as u8; 17])),
            2 => Some(Bits::Short(short)),
            _ => Some(Bits::Short([0x3f, 0, 0xff, 0x80, 0, 0xff])),
        };
        let phase =
            Opened { read: d & 16 == 0, block_len: d as u16, blocks: (d & 32 == 0).then_some(d as u32) };
        Answer { response, data: (d & 64 == 0).then_some(phase) }
    }
    fn ready(&self, k: u32) -> Instant {
        Instant::from_nanos(self.0[k as usize % self.0.len()])
    }
    fn send(&mut self, _: &mut [u8], _: Instant) -> Sent {
        [Sent::Good, Sent::BadCrc, Sent::Nothing, Sent::Good][self.draw() as usize % 4]
    }
    fn send_many(&mut self, blocks: &mut [u8], _: Instant) -> usize {
        self.draw() as usize % (blocks.len() + 1)
    }
    fn take(&mut self, _: &[u8], _: bool, _: Instant) -> Token {
        [Token::Accepted, Token::CrcError, Token::Nothing, Token::Accepted][self.draw() as usize % 4]
    }
    fn take_many(&mut self, blocks: &[u8], _: Instant) -> usize {
        self.draw() as usize % (blocks.len() + 1)
    }
    fn busy_until(&self, now: Instant) -> Instant {
        let t = Instant::from_nanos(self.0[now.as_nanos() as usize % self.0.len()]);
        if t > now { t } else { Instant::ZERO }
    }
    fn violations(&self) -> Vec<String> {
        Vec::new()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases))]
    /// G1, G2: whatever a card says, each operation ends at its limit at the latest, and a success moved all bytes.
    #[test]
    fn a_card_that_lies_cannot_hold_the_host(
        lies in prop::collection::vec(prop_oneof![0..3_000_000_u64, any::<u64>(), Just(u64::MAX)], 1..20),
        ops in prop::collection::vec((0..6_u8, 1..30_u32, 1..600_u16), 1..20),
    ) {
        let mut host: Supervised<MockHost<BufBatch, Liar>> = MockHost::new(Liar(lies, 0), caps());
        let clock = Clock::new();
        let mut bus = BusConfig { hz: 25_000_000, width: Width::Four, ..BusConfig::default() };
        for (what, blocks, block_len) in [(5, 1, 1)].into_iter().chain(ops) {
            let bytes = blocks as usize * usize::from(block_len);
            let mut payload = BufBatch::new(2);
            for part in [bytes / 3, bytes - bytes / 3] {
                mmc_hal::Batch::push(&mut payload, Buf(vec![0; part]), 0, part).unwrap();
            }
            let dir = if what == 0 { Dir::Read } else { Dir::Write };
            let data = Command::data(what, 7, dir, block_len, blocks, mmc_proto::command::Stop::None);
            let op = match what {
                0 | 1 => Operation::Transfer(Command { busy: blocks % 2 == 0, ..data }, payload),
                2 => Operation::Command(Command::send_status(1)),
                3 => Operation::Command(Command { gate: Gate::Now, ..Command::select_card(1) }),
                4 => Operation::Command(Command::all_send_cid()),
                _ => {
                    bus.hz = 25_400_000 - bus.hz; // 25 MHz and 400 kHz in turn
                    Operation::Bus(bus)
                }
            };
            let wanted = if what < 2 { bytes as u64 } else { 0 };
            let until = clock.now() + Duration::from_millis(2);
            host.submit(op, until, clock.now()).unwrap();
            let mut polls = 0;
            let result = loop {
                match host.poll(clock.now()) {
                    Progress::Done(c) => break c.result,
                    Progress::Waiting { until: at, .. } => {
                        prop_assert!(at <= until && at > clock.now());
                        clock.advance_to(at);
                    }
                    Progress::Idle => panic!("lost"),
                }
                polls += 1;
                prop_assert!(polls < 40, "an operation has few steps");
            };
            prop_assert!(clock.now() <= until);
            prop_assert!(result.is_err() || result.unwrap().bytes == wanted);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 8))]
    /// G6 on the mock host: whatever goes wrong wherever, a transfer that says it is done is done, one that fails has
    /// stored nothing outside its range, and each ends within its limit.
    #[test]
    fn a_success_is_a_success(
        transfers in prop::collection::vec((any::<bool>(), 0..200_u64, 1..20_usize, any::<bool>()), 1..12),
        faults in prop::collection::vec((0..60_u64, 0..7_u8, 0..20_u32), 0..4),
    ) {
        let (mut b, id) = Bench::identified(ideal());
        {
            let mut card = b.card.lock();
            let first = card.log().count();
            for (at, what, k) in faults {
                let what = match what {
                    0 => What::NoAnswer,
                    1 => What::CommandCrc,
                    2 => What::ResponseCrc,
                    3 => What::Status(1 << 19),
                    4 => What::BlockCrc(k),
                    5 => What::BlockMissing(k),
                    _ => What::Removed,
                };
                card.faults_mut().push(first + at, what);
            }
        }
        let mut model = vec![0_u8; 256 * 512];
        for (i, (write, lba, n, open_ended)) in transfers.into_iter().enumerate() {
            let dir = if write { Dir::Write } else { Dir::Read };
            let t = Transfer::new(&id.traits, dir, lba, n as u32, TransferOptions { open_ended });
            let (start, limit) = (b.clock.now(), t.limit());
            let data = pattern(n * 512, i as u8);
            let (result, payload) = b.drive(t, Some(Buf(data.clone())));
            prop_assert!(b.clock.now().since(start) <= limit);
            let range = lba as usize * 512..(lba as usize + n) * 512;
            let mut stored = vec![0; model.len()];
            b.card.lock().storage_mut().read(0, &mut stored).unwrap();
            match (dir, result) {
                (Dir::Write, Ok(_)) => model[range].copy_from_slice(&data),
                (Dir::Write, Err(_)) => model[range.clone()].copy_from_slice(&stored[range]),
                (Dir::Read, Ok(_)) => prop_assert!(payload.unwrap().0 == model[range]),
                (Dir::Read, Err(_)) => {}
            }
            prop_assert!(stored == model);
        }
    }
}

//! One machine over one host: payloads go and come back, nothing blocks, one call does bounded work.

mod support;

use mmc_hal::{Dir, Payload};
use mmc_proto::bus::{BusConfig, Power, Width};
use mmc_proto::command::Command;
use mmc_proto::host::{
    Capabilities, Cause, Engine, Failure, Host, HostError, Lease, Operation, Phase, Progress, Reply,
    SubmitError, Supervised, Why,
};
use mmc_proto::machine::{
    Action, After, Conductor, Identify, Machine, Step, Transfer, TransferCause, TransferOptions, Turn,
};
use mmc_time::{Duration, Instant};
use support::Card;

type Buf = [u8; 1024];

/// A controller without DMA around the test's card; each operation takes `pace`.
#[derive(Debug)]
struct Table {
    card: Card,
    pace: Duration,
    due: Instant,
    reply: Option<Result<Reply, Failure>>,
    /// The command with this index fails so, and the device stops at that instant.
    fail: Option<(u8, Cause, Instant)>,
    stops: Instant,
}

impl Table {
    fn host(card: Card, pace: Duration, fail: Option<(u8, Cause, Instant)>) -> Supervised<Self> {
        let table = Self { card, pace, due: Instant::ZERO, reply: None, fail, stops: Instant::ZERO };
        Supervised::new(table, Duration::from_millis(1))
    }
}

impl Engine for Table {
    type Payload = Buf;
    fn capabilities(&self) -> Capabilities {
        let mut caps = Capabilities::new();
        caps.max_hz = 50_000_000;
        caps.width = Width::Four;
        caps
    }
    fn start(&mut self, cmd: &Command, data: Option<Lease<'_, Buf>>, now: Instant) -> Result<(), Cause> {
        self.due = now + self.pace;
        let mut none = [0; 64];
        let mut lease = data;
        let scratch = match &mut lease {
            Some(lease) => lease.get().segment_mut(0).unwrap(),
            None => &mut none[..],
        };
        let answer = self.card.answer(cmd, scratch);
        self.reply = Some(answer.map_err(|e| (e.cause, e.phase).into()));
        if let Some((index, cause, stops)) = self.fail {
            if index == cmd.index {
                self.reply = Some(Err((cause, Phase::Data).into()));
                self.stops = stops;
            }
        }
        Ok(())
    }
    fn set_bus(&mut self, _: &BusConfig, now: Instant) -> Result<(), Cause> {
        (self.due, self.reply) = (now + self.pace, Some(Ok(Reply::default())));
        Ok(())
    }
    fn set_power(&mut self, _: Power, now: Instant) -> Result<(), Cause> {
        (self.due, self.reply) = (now + self.pace, Some(Ok(Reply::default())));
        Ok(())
    }
    fn advance(&mut self, _: Option<Lease<'_, Buf>>, now: Instant) -> Option<Result<Reply, Failure>> {
        if now >= self.due { self.reply.take() } else { None }
    }
    fn waits(&self, _: Instant) -> (Why, Instant) {
        (Why::Interrupt, self.due)
    }
    fn halt(&mut self, _: Instant) {}
    fn halted(&mut self, now: Instant) -> bool {
        now >= self.stops
    }
}

/// Polls at the instants named until done; the output, the payload, the time and how many calls it took.
fn run<M: Machine>(
    machine: M,
    payload: Option<Buf>,
    host: &mut Supervised<Table>,
) -> (M::Output, Option<Buf>, Instant, u32) {
    let mut conductor = Conductor::new(machine, payload);
    let mut now = Instant::ZERO;
    for calls in 1..100_000 {
        match conductor.poll(host, now) {
            Turn::Wait { until, .. } => {
                assert!(until >= now, "an instant that has passed");
                now = until;
            }
            Turn::Done(out, payload) => return (out, payload, now, calls),
        }
    }
    panic!("no end");
}

fn traits() -> mmc_proto::machine::CardTraits {
    mmc_proto::machine::CardTraits {
        rca: 1,
        blocks: 1000,
        byte_addressed: false,
        cmd23: true,
        read_limit: Duration::from_millis(100),
        write_limit: Duration::from_millis(250),
        block_time: Duration::from_micros(50),
        unit: 1,
    }
}

fn read() -> Transfer {
    Transfer::new(&traits(), Dir::Read, 0, 2, TransferOptions::default())
}

#[test]
fn a_card_is_identified_and_read_over_a_host() {
    let mut host = Table::host(Card::sdhc(), Duration::from_micros(400), None);
    let caps = host.capabilities();
    let (out, payload, _, _) = run(Identify::new(&caps), Some([0; 1024]), &mut host);
    let id = out.unwrap();
    assert_eq!(id.traits.blocks, 16_777_216);
    assert!(payload.is_some(), "the scratch comes back");
    let (out, payload, at, _) = run(read(), Some([7; 1024]), &mut host);
    assert_eq!((out, payload), (Ok(2), Some([7; 1024])));
    assert_eq!(at, Instant::from_micros(800), "two commands, nothing between them");
}

#[test]
fn a_machine_that_wants_data_and_has_no_payload_gets_an_error() {
    let mut host = Table::host(Card::sdhc(), Duration::ZERO, None);
    let (out, payload, _, _) = run(read(), None, &mut host);
    let error = out.unwrap_err();
    assert!(
        matches!(error.cause, TransferCause::Host(HostError { cause: Cause::Unsupported(_), .. })),
        "{error}"
    );
    assert_eq!(payload, None);
    assert!(run(Identify::new(&host.capabilities()), None, &mut host).0.is_err());
}

#[test]
fn a_short_payload_is_refused_and_comes_back() {
    let mut host = Table::host(Card::sdhc(), Duration::ZERO, None);
    let long = Transfer::new(&traits(), Dir::Read, 0, 3, TransferOptions::default());
    let (out, payload, _, _) = run(long, Some([9; 1024]), &mut host);
    let error = out.unwrap_err();
    assert!(matches!(error.cause, TransferCause::Host(HostError { phase: Phase::Submit, .. })), "{error}");
    assert_eq!(payload, Some([9; 1024]));
}

#[test]
fn a_payload_the_device_may_still_write_does_not_come_back() {
    // CMD18 fails, and the device goes on until then.
    let stops = Instant::from_secs(9);
    let mut host = Table::host(Card::sdhc(), Duration::from_micros(100), Some((18, Cause::Dma, stops)));
    let (out, payload, at, _) = run(read(), Some([9; 1024]), &mut host);
    let error = out.unwrap_err();
    assert!(matches!(error.cause, TransferCause::Host(HostError { cause: Cause::Dma, .. })), "{error}");
    assert_eq!(error.after, After::NotReady, "the host takes no command now");
    assert_eq!(payload, None);
    assert!(at < stops);
    assert!(host.reclaim(at).is_none());
    assert!(host.reclaim(stops).is_some());
}

/// Sends CMD0 for ever.
struct Endless(u32);

impl Machine for Endless {
    type Output = ();
    fn next(&mut self, _: Option<Result<Reply, HostError>>, _: &mut [u8], _: Instant) -> Step<()> {
        self.0 += 1;
        Step::Do(Action { command: Command::go_idle_state(), limit: Duration::from_millis(1) })
    }
}

#[test]
fn one_call_does_bounded_work() {
    let mut host = Table::host(Card::sdhc(), Duration::ZERO, None);
    let mut conductor = Conductor::new(Endless(0), None::<Buf>);
    let now = Instant::from_millis(3);
    for _ in 0..10 {
        assert_eq!(conductor.poll(&mut host, now), Turn::Wait { why: Why::Timer, until: now });
    }
    assert!(conductor.machine().0 <= 160);
}

/// Another user of the host took the completion.
struct Thief(Supervised<Table>);

impl Host for Thief {
    type Payload = Buf;
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn submit(
        &mut self,
        op: Operation<Buf>,
        until: Instant,
        now: Instant,
    ) -> Result<(), mmc_proto::host::SubmitError<Buf>> {
        self.0.submit(op, until, now)
    }
    fn poll(&mut self, now: Instant) -> Progress<Buf> {
        let _ = self.0.poll(now);
        Progress::Idle
    }
    fn abort(&mut self, now: Instant) {
        self.0.abort(now);
    }
}

#[test]
fn a_completion_that_got_lost_is_an_error_not_a_hang() {
    let mut host = Thief(Table::host(Card::sdhc(), Duration::ZERO, None));
    let mut conductor = Conductor::new(read(), Some([0; 1024]));
    let mut now = Instant::ZERO;
    for _ in 0..1000 {
        match conductor.poll(&mut host, now) {
            Turn::Wait { until, .. } => now = until.max(now + Duration::from_micros(1)),
            Turn::Done(out, _) => {
                let error = out.unwrap_err();
                assert!(matches!(
                    error.cause,
                    TransferCause::Host(HostError { cause: Cause::Controller, .. })
                ));
                return;
            }
        }
    }
    panic!("no end");
}

#[test]
fn a_finished_conversation_answers_with_an_error() {
    let mut host = Table::host(Card::sdhc(), Duration::ZERO, None);
    let mut conductor = Conductor::new(read(), Some([0; 1024]));
    assert!(matches!(conductor.poll(&mut host, Instant::ZERO), Turn::Done(Ok(2), Some(_))));
    let Turn::Done(Err(error), None) = conductor.poll(&mut host, Instant::ZERO) else {
        panic!("a second end")
    };
    assert_eq!(error.cause, TransferCause::OutOfTurn);
}

/// A host that has nothing but what every host must have.
struct Bare;

impl Host for Bare {
    type Payload = Buf;
    fn capabilities(&self) -> Capabilities {
        Capabilities::new()
    }
    fn submit(&mut self, op: Operation<Buf>, _: Instant, _: Instant) -> Result<(), SubmitError<Buf>> {
        let error = HostError::new(Cause::Unsupported("a bare host"), Phase::Submit, 255);
        Err(SubmitError { error, operation: op })
    }
    fn poll(&mut self, _: Instant) -> Progress<Buf> {
        Progress::Idle
    }
    fn abort(&mut self, _: Instant) {}
}

#[test]
fn a_host_that_prepares_nothing_gives_it_back_and_says_so() {
    fn nothing(host: &mut impl Host<Payload = Buf>) {
        let cmd = Command::read_single_block(3);
        let refused = host.prepare(cmd, [7; 1024]).unwrap_err();
        assert_eq!((refused.error.phase, refused.error.index), (Phase::Submit, 17));
        assert!(matches!(refused.error.cause, Cause::Unsupported(_)), "{:?}", refused.error);
        let Operation::Transfer(back, payload) = refused.operation else { panic!("it was a transfer") };
        assert_eq!((back, payload), (cmd, [7; 1024]));
        let never = host.submit_prepared(Instant::from_millis(9), Instant::ZERO).unwrap_err();
        assert!(matches!(never.cause, Cause::Unsupported(_)), "{never:?}");
        assert_eq!(host.unprepare().map(|(c, _)| c.index), None);
        let slot = host.slot(Instant::ZERO);
        assert_eq!((slot.present, slot.changes, slot.retune), (None, 0, false));
        host.sdio_interrupt(true);
    }
    nothing(&mut Bare);
    nothing(&mut &mut Bare);
    // An engine without these of its own, under supervision.
    nothing(&mut Table::host(Card::sdhc(), Duration::ZERO, None));
}

#[test]
fn a_conversation_that_is_given_up_gives_its_payload_back() {
    assert_eq!(Conductor::new(read(), Some([5; 1024])).into_payload(), Some([5; 1024]));
    assert_eq!(Conductor::<_, Buf>::new(read(), None).into_payload(), None);
}

//! The promises of `Supervised`, on an engine that does what a script says.

extern crate std;

use super::*;
use crate::bus::{BusConfig, Power};
use crate::command::Stop;
use crate::host::Lease;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

/// A buffer that tells when it is dropped.
#[derive(Debug)]
struct Buf(Vec<u8>, Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    dropped: u32,
    finished: Vec<u64>,
    halts: Vec<Instant>,
    prepared: Vec<u8>,
    unprepared: u32,
}

impl PartialEq for Buf {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.1.lock().unwrap().dropped += 1;
    }
}

/// Bytes of a segment.
const SEGMENT: usize = 8192;

impl Payload for Buf {
    fn segments(&self) -> usize {
        self.0.len().div_ceil(SEGMENT)
    }
    fn segment(&self, i: usize) -> Option<&[u8]> {
        self.0.chunks(SEGMENT).nth(i)
    }
    fn segment_mut(&mut self, i: usize) -> Option<&mut [u8]> {
        self.0.chunks_mut(SEGMENT).nth(i)
    }
}

/// Ends each operation at `done_at` with `end`; stops at `halts_at` (or when told, if `obeys`).
#[derive(Debug)]
struct Script {
    refuse: Option<Cause>,
    end: Result<u64, (Cause, Phase)>,
    done_at: Instant,
    halts_at: Instant,
    obeys: bool,
    waits_at: Instant,
    log: Arc<Mutex<Log>>,
}

impl Engine for Script {
    type Payload = Buf;
    fn capabilities(&self) -> Capabilities {
        Capabilities { max_blocks: 8, ..Capabilities::new() }
    }
    fn start(&mut self, _: &Command, _: Option<Lease<'_, Buf>>, _: Instant) -> Result<(), Cause> {
        self.refuse.map_or(Ok(()), Err)
    }
    fn set_bus(&mut self, _: &BusConfig, _: Instant) -> Result<(), Cause> {
        self.refuse.map_or(Ok(()), Err)
    }
    fn set_power(&mut self, _: Power, _: Instant) -> Result<(), Cause> {
        self.refuse.map_or(Ok(()), Err)
    }
    fn advance(&mut self, data: Option<Lease<'_, Buf>>, now: Instant) -> Option<Result<Reply, Failure>> {
        if now < self.done_at {
            return None;
        }
        if let (Some(mut lease), Ok(_)) = (data, self.end) {
            lease.get().0[0] = 0xaa;
        }
        Some(self.end.map(|bytes| Reply { words: [0x900, 0, 0, 0], bytes }).map_err(Failure::from))
    }
    fn waits(&self, _: Instant) -> (Why, Instant) {
        (Why::Interrupt, self.waits_at)
    }
    fn halt(&mut self, now: Instant) {
        self.log.lock().unwrap().halts.push(now);
        if self.obeys {
            self.halts_at = now;
        }
    }
    fn halted(&mut self, now: Instant) -> bool {
        now >= self.halts_at
    }
    fn prepare(&mut self, cmd: &Command, _: Lease<'_, Buf>) -> Result<(), Cause> {
        self.log.lock().unwrap().prepared.push(cmd.index);
        self.refuse.map_or(Ok(()), Err)
    }
    fn start_prepared(&mut self, _: &Command, _: Lease<'_, Buf>, _: Instant) -> Result<(), Cause> {
        self.refuse.map_or(Ok(()), Err)
    }
    fn unprepare(&mut self, _: Lease<'_, Buf>) {
        self.log.lock().unwrap().unprepared += 1;
    }
    fn finish(&mut self, data: Lease<'_, Buf>) {
        self.log.lock().unwrap().finished.push(data.bytes());
    }
}

const GRACE: Duration = Duration::from_millis(5);
const LIMIT: Instant = Instant::from_millis(100);

fn ms(n: u64) -> Instant {
    Instant::from_millis(n)
}

fn host(end: Result<u64, (Cause, Phase)>) -> (Supervised<Script>, Arc<Mutex<Log>>) {
    let log = Arc::new(Mutex::new(Log::default()));
    let script = Script {
        refuse: None,
        end,
        done_at: ms(10),
        halts_at: Instant::ZERO,
        obeys: true,
        waits_at: Instant::NEVER,
        log: log.clone(),
    };
    (Supervised::new(script, GRACE), log)
}

fn read(blocks: u32) -> Command {
    Command::read_multiple_block(0, blocks, Stop::None)
}

fn buf(log: &Arc<Mutex<Log>>, bytes: usize) -> Buf {
    Buf(std::vec![0; bytes], log.clone())
}

/// Follows the instants the host names; returns the completion and when it came.
fn finish(host: &mut Supervised<Script>, mut now: Instant) -> (Completion<Buf>, Instant) {
    for _ in 0..100 {
        match host.poll(now) {
            Progress::Idle => panic!("the completion is missing"),
            // The interrupt comes when the script says so.
            Progress::Waiting { until, .. } if now < host.engine.done_at => {
                now = until.min(host.engine.done_at);
            }
            Progress::Waiting { until, .. } => now = until,
            Progress::Done(c) => return (c, now),
        }
    }
    panic!("no end: {now:?}");
}

#[test]
fn a_transfer_has_exactly_one_completion_with_its_payload() {
    let (mut h, log) = host(Ok(512));
    assert_eq!(h.poll(ms(0)), Progress::Idle);
    h.submit(Operation::Transfer(read(1), buf(&log, 1024)), LIMIT, ms(0)).unwrap();
    let refused = h.submit(Operation::Command(Command::go_idle_state()), LIMIT, ms(1)).unwrap_err();
    assert_eq!((refused.error.cause, refused.error.phase), (Cause::Busy, Phase::Submit));
    let (done, at) = finish(&mut h, ms(1));
    assert_eq!(at, ms(10));
    assert_eq!(done.result.unwrap().bytes, 512);
    let Returned::Back(b) = done.payload else { panic!("no payload") };
    assert_eq!(b.0[0], 0xaa);
    assert_eq!(log.lock().unwrap().finished, [512], "unmapped once, with the bytes of the data phase");
    assert!(log.lock().unwrap().halts.is_empty());
    assert_eq!(h.poll(ms(11)), Progress::Idle);
}

#[test]
fn no_more_segments_than_the_engine_has_room_for() {
    for (bytes, taken) in [(512, true), (SEGMENT, true), (SEGMENT + 1, false), (3 * SEGMENT, false)] {
        let (mut h, log) = host(Ok(512));
        let result = h.submit(Operation::Transfer(read(1), buf(&log, bytes)), LIMIT, ms(0));
        assert_eq!(result.is_ok(), taken, "{bytes} bytes");
        if let Err(refused) = result {
            assert_eq!(refused.error.cause, Cause::Unsupported("more segments than max_segments"));
        }
    }
}

#[test]
fn what_cannot_be_started_comes_back_whole() {
    let (mut h, log) = host(Ok(0));
    let back = |h: &mut Supervised<Script>, op| h.submit(op, LIMIT, ms(0)).unwrap_err();
    for (command, bytes) in
        [(Command::go_idle_state(), 512), (read(2), 1023), (read(9), 9 * 512), (read(0), 512)]
    {
        let e = back(&mut h, Operation::Transfer(command, buf(&log, bytes)));
        assert!(matches!(e.error.cause, Cause::Unsupported(_)), "{:?}", e.error);
        assert!(matches!(e.operation, Operation::Transfer(c, b) if c == command && b.0.len() == bytes));
    }
    assert!(matches!(back(&mut h, Operation::Command(read(1))).error.cause, Cause::Unsupported(_)));
    h.engine.refuse = Some(Cause::NoCard);
    for op in [
        Operation::Transfer(read(1), buf(&log, 512)),
        Operation::Command(Command::go_idle_state()),
        Operation::Bus(BusConfig::default()),
        Operation::Power(Power::On),
    ] {
        let e = back(&mut h, op);
        assert_eq!((e.error.cause, e.error.phase), (Cause::NoCard, Phase::Submit));
    }
    assert_eq!(h.poll(ms(1)), Progress::Idle);
    assert!(log.lock().unwrap().finished.is_empty());
}

#[test]
fn a_limit_ends_what_the_engine_does_not() {
    let busy = Command::select_card(1);
    for (op, phase, index) in [
        (Operation::Command(Command::go_idle_state()), Phase::Command, 0),
        (Operation::Command(busy), Phase::Busy, 7),
        (Operation::Bus(BusConfig::default()), Phase::Bus, 255),
        (Operation::Power(Power::Off), Phase::Bus, 255),
    ] {
        let (mut h, log) = host(Ok(0));
        h.engine.done_at = Instant::NEVER;
        h.submit(op, LIMIT, ms(0)).unwrap();
        assert_eq!(h.poll(ms(0)), Progress::Waiting { why: Why::Interrupt, until: LIMIT });
        let (done, at) = finish(&mut h, ms(0));
        assert_eq!(at, LIMIT);
        assert_eq!(done.result, Err(HostError { cause: Cause::Limit, phase, index, r1: None }));
        assert_eq!(log.lock().unwrap().halts, [LIMIT]);
    }
}

#[test]
fn a_device_that_will_not_stop_keeps_its_payload_until_it_has() {
    let (mut h, log) = host(Err((Cause::Dma, Phase::Data)));
    h.engine.obeys = false;
    h.engine.halts_at = ms(50);
    h.submit(Operation::Transfer(read(2), buf(&log, 1024)), LIMIT, ms(0)).unwrap();
    let (done, at) = finish(&mut h, ms(0));
    assert_eq!(at, ms(10) + GRACE, "the limit of the caller, plus the grace");
    assert_eq!(done.result.unwrap_err().cause, Cause::Dma, "the first error stays");
    assert_eq!(done.payload, Returned::Quarantined);
    assert_eq!(h.reclaim(ms(49)).map(|_| ()), None);
    let refused = h.submit(Operation::Command(Command::go_idle_state()), LIMIT, ms(49)).unwrap_err();
    assert_eq!(refused.error.cause, Cause::Busy);
    assert_eq!(log.lock().unwrap().dropped, 0);
    let b = h.reclaim(ms(50)).unwrap();
    assert_eq!((b.0.len(), log.lock().unwrap().finished.clone()), (1024, std::vec![1024]));
    assert!(h.reclaim(ms(50)).is_none());
    h.submit(Operation::Command(Command::go_idle_state()), LIMIT, ms(50)).unwrap();
}

#[test]
fn a_success_with_a_device_that_still_runs_is_none() {
    // It stops within the grace: a success, later.
    let (mut h, log) = host(Ok(512));
    h.engine.halts_at = ms(12);
    h.engine.waits_at = ms(12);
    h.submit(Operation::Transfer(read(1), buf(&log, 512)), LIMIT, ms(0)).unwrap();
    let (done, at) = finish(&mut h, ms(10));
    assert_eq!((done.result.is_ok(), at), (true, ms(12)));
    assert!(log.lock().unwrap().halts.is_empty());
    // It does not: it is told to, and what it moved is not to be trusted.
    for obeys in [true, false] {
        let (mut h, log) = host(Ok(512));
        h.engine.halts_at = Instant::NEVER;
        h.engine.obeys = obeys;
        h.submit(Operation::Transfer(read(1), buf(&log, 512)), LIMIT, ms(0)).unwrap();
        let (done, at) = finish(&mut h, ms(10));
        assert_eq!(at, ms(10) + GRACE);
        assert_eq!(done.result.unwrap_err().cause, Cause::Controller);
        assert_eq!(matches!(done.payload, Returned::Back(_)), obeys);
        assert_eq!(log.lock().unwrap().halts, [ms(15)]);
    }
}

#[test]
fn bytes_that_do_not_match_the_data_phase_are_an_error() {
    for moved in [0, 511, 513, 1024] {
        let (mut h, log) = host(Ok(moved));
        h.submit(Operation::Transfer(read(1), buf(&log, 1024)), LIMIT, ms(0)).unwrap();
        let (done, _) = finish(&mut h, ms(0));
        assert_eq!(done.result.unwrap_err().cause, Cause::Controller);
        assert!(matches!(done.payload, Returned::Back(_)));
    }
}

#[test]
fn an_abort_gives_one_completion_and_a_late_answer_none() {
    let (mut h, log) = host(Ok(512));
    h.submit(Operation::Transfer(read(1), buf(&log, 512)), LIMIT, ms(0)).unwrap();
    h.abort(ms(3));
    h.abort(ms(4));
    let (done, at) = finish(&mut h, ms(20));
    assert_eq!(at, ms(20));
    assert_eq!(done.result.unwrap_err().cause, Cause::Aborted);
    assert_eq!(log.lock().unwrap().halts, [ms(3)]);
    h.abort(ms(21));
    assert_eq!(h.poll(ms(21)), Progress::Idle);
}

#[test]
fn an_engine_that_names_a_past_instant_while_it_stops_makes_nobody_spin() {
    let (mut h, log) = host(Err((Cause::Crc, Phase::Data)));
    h.engine.obeys = false;
    h.engine.halts_at = Instant::NEVER;
    h.engine.waits_at = Instant::ZERO;
    h.submit(Operation::Transfer(read(1), buf(&log, 512)), LIMIT, ms(0)).unwrap();
    let Progress::Waiting { why: Why::Timer, until } = h.poll(ms(10)) else { panic!("it has not stopped") };
    assert!(until > ms(10) && until <= ms(10) + GRACE);
}

#[test]
fn a_drop_frees_what_the_device_let_go_and_leaks_what_it_may_still_write() {
    for (obeys, dropped) in [(true, 1), (false, 0)] {
        let (mut h, log) = host(Ok(512));
        h.engine.halts_at = Instant::NEVER;
        h.engine.obeys = obeys;
        h.submit(Operation::Transfer(read(1), buf(&log, 512)), LIMIT, ms(7)).unwrap();
        drop(h);
        let log = log.lock().unwrap();
        assert_eq!(
            (log.dropped, &log.halts[..]),
            (dropped, &[ms(7)][..]),
            "told to stop at the last known instant"
        );
        assert_eq!(log.finished.len(), usize::from(obeys), "unmapped before it is freed");
    }
    // The same for a payload in quarantine.
    let (mut h, log) = host(Err((Cause::Dma, Phase::Data)));
    h.engine.obeys = false;
    h.engine.halts_at = Instant::NEVER;
    h.submit(Operation::Transfer(read(1), buf(&log, 512)), LIMIT, ms(0)).unwrap();
    let (done, _) = finish(&mut h, ms(0));
    assert_eq!(done.payload, Returned::Quarantined);
    drop(h);
    assert_eq!(log.lock().unwrap().dropped, 0);
    // An idle host disturbs nobody.
    let (h, log) = host(Ok(0));
    drop(h);
    assert!(log.lock().unwrap().halts.is_empty());
}

#[test]
fn a_transfer_handed_over_early_starts_when_told_or_comes_back() {
    let (mut h, log) = host(Ok(512));
    let buf = || Buf(std::vec![0; 512], log.clone());
    assert_eq!(h.submit_prepared(LIMIT, ms(0)).unwrap_err().phase, Phase::Submit, "nothing there");
    h.submit(Operation::Transfer(read(1), buf()), LIMIT, ms(0)).unwrap();
    h.prepare(read(1), buf()).unwrap();
    let second = h.prepare(read(1), buf()).unwrap_err();
    assert_eq!(second.error.cause, Cause::Busy, "one at a time");
    assert!(matches!(second.operation, Operation::Transfer(_, b) if b.0.len() == 512));
    assert_eq!(h.submit_prepared(LIMIT, ms(1)).unwrap_err().cause, Cause::Busy, "one is running");
    assert!(matches!(h.poll(ms(10)), Progress::Done(Completion { payload: Returned::Back(_), .. })));
    h.submit_prepared(LIMIT, ms(10)).unwrap();
    assert!(h.unprepare().is_none());
    match h.poll(ms(20)) {
        Progress::Done(Completion { result: Ok(r), payload: Returned::Back(b) }) => {
            assert_eq!((r.bytes, b.0[0]), (512, 0xaa));
        }
        other => panic!("{other:?}"),
    }
    // Never started: it comes back, or goes with the host, and the engine gives it up either way.
    h.prepare(read(1), buf()).unwrap();
    let (cmd, b) = h.unprepare().unwrap();
    assert_eq!((cmd, b.0.len(), log.lock().unwrap().unprepared), (read(1), 512, 1));
    h.prepare(read(1), buf()).unwrap();
    drop(h);
    assert_eq!(log.lock().unwrap().unprepared, 2);
    assert_eq!(log.lock().unwrap().finished, [512, 512]);
}

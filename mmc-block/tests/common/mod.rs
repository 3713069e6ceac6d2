//! A host with a card of plain memory and a fixed time for each command, shared by the tests of this crate.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use mmc_block::{Disk, Init, Next, Up};
use mmc_hal::{Batch, Dir, Payload};
use mmc_mock::card::{SdCard, SdConfig, Shared};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, MockHost};
use mmc_proto::bus::Width;
use mmc_proto::command::Command;
use mmc_proto::host::{
    Capabilities, Cause, Completion, Host, HostError, Operation, Phase, Progress, Reply, Returned,
    SubmitError, Supervised, Why,
};
use mmc_proto::machine::{CardTraits, Identified};
use mmc_sched::{Completed, Dispatch, Flags, Op, Outcome, Request, RequestId, Run, Scheduler, StreamId};
use mmc_time::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Sectors of the fake card.
pub const SECTORS: u64 = 1 << 16;
/// How long each data command takes.
pub const SERVICE: Duration = Duration::from_millis(10);

pub fn card() -> CardTraits {
    CardTraits {
        rca: 1,
        blocks: SECTORS,
        byte_addressed: false,
        cmd23: true,
        read_limit: Duration::from_millis(100),
        write_limit: Duration::from_millis(250),
        block_time: Duration::from_micros(25),
        unit: 1,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No response.
    Silent,
    /// CRC error in the data, half of which are moved.
    Crc,
    /// R1 says CC_ERROR and nothing was stored.
    CardError,
    /// No card any more.
    Gone,
    /// The command fails and the host keeps the payload.
    Quarantine,
}

/// A data command as the card saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub at: Instant,
    pub dir: Dir,
    pub lba: u64,
    pub blocks: u32,
}

pub struct Inside {
    pub store: Vec<u8>,
    pub seen: Vec<Seen>,
    /// What happens to the n-th data command.
    pub faults: BTreeMap<usize, Fault>,
    /// What happens to each command that touches this sector.
    pub bad: BTreeMap<u64, Fault>,
    pub aborts: usize,
    pub overlaps: usize,
    pub quarantine: Option<BufBatch>,
    gone: bool,
}

#[derive(Clone)]
pub struct FakeHost {
    pub shared: Arc<Mutex<Inside>>,
    caps: Capabilities,
}

struct Going {
    command: Command,
    payload: Option<BufBatch>,
    ends: Instant,
    fault: Option<Fault>,
}

/// The host itself; `FakeHost` is the test's handle.
pub struct Plain {
    shared: Arc<Mutex<Inside>>,
    caps: Capabilities,
    going: Option<Going>,
}

impl FakeHost {
    pub fn new(max_blocks: u32, max_segments: u16) -> Self {
        let mut caps = Capabilities::new();
        (caps.max_blocks, caps.max_segments) = (max_blocks, max_segments);
        let store = vec![0; SECTORS as usize * 512];
        let shared = Inside {
            store,
            seen: vec![],
            faults: BTreeMap::new(),
            bad: BTreeMap::new(),
            aborts: 0,
            overlaps: 0,
            quarantine: None,
            gone: false,
        };
        Self { shared: Arc::new(Mutex::new(shared)), caps }
    }
    pub fn host(&self) -> Plain {
        Plain { shared: self.shared.clone(), caps: self.caps, going: None }
    }
    pub fn lock(&self) -> MutexGuard<'_, Inside> {
        self.shared.lock().unwrap()
    }
}

impl Plain {
    pub fn reclaim(&mut self) -> Option<BufBatch> {
        self.shared.lock().unwrap().quarantine.take()
    }
}

impl Host for Plain {
    type Payload = BufBatch;
    fn capabilities(&self) -> Capabilities {
        self.caps
    }
    fn submit(
        &mut self,
        op: Operation<BufBatch>,
        until: Instant,
        now: Instant,
    ) -> Result<(), SubmitError<BufBatch>> {
        let mut s = self.shared.lock().unwrap();
        if self.going.is_some() || s.quarantine.is_some() {
            s.overlaps += usize::from(self.going.is_some());
            let error = HostError { cause: Cause::Busy, phase: Phase::Submit, index: 255, r1: None };
            return Err(SubmitError { error, operation: op });
        }
        let (command, payload) = match op {
            Operation::Command(c) => (c, None),
            Operation::Transfer(c, p) => (c, Some(p)),
            other => panic!("{other:?}"),
        };
        let (mut time, mut fault) = (Duration::ZERO, None);
        if let Some(shape) = command.data {
            let lba = u64::from(command.arg);
            fault = s.faults.get(&s.seen.len()).copied();
            fault = fault.or(s.bad.range(lba..lba + u64::from(shape.blocks)).next().map(|b| *b.1));
            s.seen.push(Seen { at: now, dir: shape.dir, lba, blocks: shape.blocks });
            time = SERVICE;
        }
        s.gone |= fault == Some(Fault::Gone);
        self.going = Some(Going { command, payload, ends: (now + time).min(until), fault });
        Ok(())
    }
    fn poll(&mut self, now: Instant) -> Progress<BufBatch> {
        let Some(Going { ends, .. }) = self.going else { return Progress::Idle };
        if now < ends {
            return Progress::Waiting { why: Why::Interrupt, until: ends };
        }
        let Going { command, mut payload, fault, .. } = self.going.take().unwrap();
        let mut s = self.shared.lock().unwrap();
        let error = |cause, phase| Err(HostError { cause, phase, index: command.index, r1: None });
        let mut reply = Reply { words: [0x900, 0, 0, 0], bytes: 0 };
        let result = match (fault, command.data) {
            _ if s.gone => error(Cause::NoCard, Phase::Command),
            (Some(Fault::Silent | Fault::Quarantine), _) => error(Cause::Timeout, Phase::Command),
            (Some(Fault::CardError), _) => {
                reply.words[0] |= 1 << 20;
                Ok(reply)
            }
            (fault, Some(shape)) => {
                let half = if fault == Some(Fault::Crc) { 2 } else { 1 };
                let (at, len) = (command.arg as usize * 512, shape.blocks as usize / half * 512);
                s.copy(payload.as_mut().unwrap(), at, len, shape.dir);
                reply.bytes = len as u64;
                if half == 2 { error(Cause::Crc, Phase::Data) } else { Ok(reply) }
            }
            _ => Ok(reply),
        };
        let payload = match payload {
            Some(p) if fault == Some(Fault::Quarantine) => {
                s.quarantine = Some(p);
                Returned::Quarantined
            }
            Some(p) => Returned::Back(p),
            None => Returned::None,
        };
        Progress::Done(Completion { result, payload })
    }
    fn abort(&mut self, now: Instant) {
        self.shared.lock().unwrap().aborts += 1;
        if let Some(g) = &mut self.going {
            (g.ends, g.fault) = (now, Some(Fault::Silent));
        }
    }
}

impl Inside {
    fn copy(&mut self, p: &mut BufBatch, mut at: usize, mut left: usize, dir: Dir) {
        for i in 0..p.segments() {
            let s = p.segment_mut(i).unwrap();
            let n = s.len().min(left);
            match dir {
                Dir::Read => s[..n].copy_from_slice(&self.store[at..at + n]),
                Dir::Write => self.store[at..at + n].copy_from_slice(&s[..n]),
            }
            (at, left) = (at + n, left - n);
        }
    }
}

pub fn read(lba: u64, blocks: u32) -> Request {
    Request::new(Op::Read, lba, blocks, StreamId(1))
}
/// A write nobody waits for.
pub fn write(lba: u64, blocks: u32) -> Request {
    Request::new(Op::Write, lba, blocks, StreamId(2))
}
pub fn sync_write(lba: u64, blocks: u32) -> Request {
    Request { flags: Flags::SYNC, ..write(lba, blocks) }
}
/// A buffer for `r`, filled with `byte`.
pub fn buf(r: &Request, byte: u8) -> Buf {
    Buf(vec![byte; r.blocks as usize * 512])
}

pub type Tags = Vec<mmc_block::Tag<Buf>>;
pub fn tags(n: usize) -> Tags {
    (0..n).map(|_| mmc_block::Tag::new()).collect()
}

/// Polls until the disk is idle; returns when that was. Each wait must end, and time must move.
pub fn run<H, S, O>(disk: &mut Disk<H, S, Tags, O>, mut now: Instant) -> Instant
where
    H: Host,
    H::Payload: Batch<Buffer = Buf>,
    S: Scheduler,
    O: mmc_block::Observer,
{
    let mut same = 0;
    for _ in 0..1_000_000 {
        match disk.poll(now) {
            Next::Idle | Next::Lent => return now,
            Next::Wait { until, .. } => {
                assert!(!until.is_never(), "a wait that nothing ends");
                same = if until > now { 0 } else { same + 1 };
                assert!(same < 1000, "time stands still");
                now = now.max(until);
            }
        }
    }
    panic!("never idle");
}

/// One event of an [`Log`]; requests are named by their first sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ev {
    Queued(u64),
    Waits(u64),
    GotTag(u64),
    Inserted(u64),
    Merged(u64, mmc_block::Place),
    Absorbed(u64),
    /// First sector, sectors, requests of a run.
    Issued(u64, u32, u16),
    Started(u64),
    Ended(u64, bool),
    Completed(u64, bool),
}

/// Remembers what it sees, and when (in ms).
#[derive(Debug, Default)]
pub struct Log(pub Vec<(u64, Ev)>);

impl Log {
    fn add(&mut self, now: Instant, ev: Ev) {
        self.0.push((now.as_nanos() / 1_000_000, ev));
    }
    /// The events of these kinds.
    pub fn only(&self, keep: impl Fn(&Ev) -> bool) -> Vec<(u64, Ev)> {
        self.0.iter().filter(|e| keep(&e.1)).copied().collect()
    }
}

impl mmc_block::Observer for Log {
    fn queued(&mut self, _: mmc_block::Ticket, r: &Request, now: Instant) {
        self.add(now, Ev::Queued(r.lba));
    }
    fn waits(&mut self, _: mmc_block::Ticket, r: &Request, now: Instant) {
        self.add(now, Ev::Waits(r.lba));
    }
    fn got_tag(&mut self, _: mmc_block::Ticket, r: &Request, now: Instant) {
        self.add(now, Ev::GotTag(r.lba));
    }
    fn inserted(&mut self, _: mmc_block::Ticket, r: &Request, now: Instant) {
        self.add(now, Ev::Inserted(r.lba));
    }
    fn merged(
        &mut self,
        _: mmc_block::Ticket,
        r: &Request,
        _: mmc_block::Ticket,
        place: mmc_block::Place,
        now: Instant,
    ) {
        self.add(now, Ev::Merged(r.lba, place));
    }
    fn absorbed(&mut self, _: mmc_block::Ticket, r: &Request, _: mmc_block::Ticket, now: Instant) {
        self.add(now, Ev::Absorbed(r.lba));
    }
    fn issued(&mut self, _: mmc_block::Ticket, run: &Run, now: Instant) {
        self.add(now, Ev::Issued(run.lba, run.blocks, run.count));
    }
    fn started(&mut self, _: mmc_block::Ticket, run: &Run, now: Instant) {
        self.add(now, Ev::Started(run.lba));
    }
    fn ended(&mut self, _: mmc_block::Ticket, run: &Run, ok: bool, now: Instant) {
        self.add(now, Ev::Ended(run.lba, ok));
    }
    fn completed(&mut self, _: mmc_block::Ticket, r: &Request, ok: bool, now: Instant) {
        self.add(now, Ev::Completed(r.lba, ok));
    }
}

/// A disk over a fake host with `slots` slots, and twice as many places for requests.
pub fn disk<P: mmc_sched::Policy>(
    fake: &FakeHost,
    policy: P,
    slots: usize,
    settings: mmc_block::Settings,
) -> Disk<Plain, mmc_sched::Queue<Vec<mmc_sched::Slot>, P>, Tags, Log> {
    let queue = mmc_sched::Queue::new(vec![mmc_sched::Slot::FREE; slots], policy);
    Disk::new(fake.host(), queue, card(), BufBatch::new(128), tags(2 * slots), settings, Log::default())
        .unwrap()
}

pub fn settings(nr_requests: usize) -> mmc_block::Settings {
    mmc_block::Settings { nr_requests, ..mmc_block::Settings::default() }
}

/// A simulated card in the slot of a host without a controller, identified.
pub struct MockBench {
    pub card: Shared<SdCard>,
    pub host: Supervised<MockHost<BufBatch, Shared<SdCard>>>,
    pub identified: Identified,
    pub now: Instant,
}

impl MockBench {
    pub fn new(profile: Profile) -> Self {
        let card = Shared::new(SdCard::new(SdConfig::new(profile, 7)).unwrap());
        let mut caps = Capabilities::new();
        (caps.max_segments, caps.width, caps.max_hz) = (64, Width::Four, 50_000_000);
        let mut host = MockHost::new(card.clone(), caps);
        let mut init = Init::new(&caps, BufBatch::new(1), Buf(vec![0; 512])).unwrap();
        let mut now = Instant::ZERO;
        loop {
            match init.poll(&mut host, now) {
                Up::Wait { until, .. } => now = now.max(until),
                Up::Done { card: identified, parts } => {
                    assert_eq!(parts.unwrap().1.0.len(), 512);
                    return Self { card, host, identified: identified.unwrap(), now };
                }
            }
        }
    }
}

type OnDispatch<S> = Box<dyn FnMut(&mut S, Instant) -> Dispatch + Send>;

/// A scheduler with another `dispatch`.
pub struct Wrap<S> {
    inner: S,
    dispatch: OnDispatch<S>,
    completed: Box<dyn FnMut() + Send>,
}

impl<S> Wrap<S> {
    pub fn new(
        inner: S,
        dispatch: impl FnMut(&mut S, Instant) -> Dispatch + Send + 'static,
        completed: impl FnMut() + Send + 'static,
    ) -> Self {
        Self { inner, dispatch: Box::new(dispatch), completed: Box::new(completed) }
    }
}

impl<S: Scheduler> Scheduler for Wrap<S> {
    mmc_sched::hand_on!(inner);
    fn dispatch(&mut self, now: Instant) -> Dispatch {
        (self.dispatch)(&mut self.inner, now)
    }
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
        (self.completed)();
        self.inner.complete(id, outcome, now)
    }
}

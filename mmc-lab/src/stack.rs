//! The whole stack below a simulated kernel: scheduler, card protocol, a host (the DesignWare driver on its register
//! model, or the mock without a controller), and the card model.

use crate::experiment::{BackDoor, HostKind};
use crate::workload::block::{Disk, Finished, Key, Note};
use mmc_block::{Observer, Place, Settings, Tag, Ticket};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, IrqHalf, Mailbox, Ring};
use mmc_hal::Batch;
use mmc_mock::card::{Card, SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, MockHost, Wakes};
use mmc_proto::host::{Host, Irq, IrqHandler};
use mmc_proto::machine::{Conductor, Identified, Identify, Turn};
use mmc_sched::{
    AnyPolicy, Completed, Dispatch, Limits, Outcome, Queue, Request, RequestId, Run, Scheduler, Slot,
};
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// A scheduler on a processor that is not infinitely fast: each command costs `cost` between the moment it could be
/// chosen and the moment it is.
#[derive(Debug)]
pub struct Costly<S> {
    inner: S,
    cost: Duration,
    ready: Option<Instant>,
}

impl<S: Scheduler> Costly<S> {
    /// `inner`, with `cost` per command.
    pub fn new(inner: S, cost: Duration) -> Self {
        Self { inner, cost, ready: None }
    }
    /// The scheduler inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Scheduler> Scheduler for Costly<S> {
    mmc_sched::hand_on!(inner);
    fn dispatch(&mut self, now: Instant) -> Dispatch {
        if self.cost == Duration::ZERO || self.inner.is_empty() {
            return self.inner.dispatch(now);
        }
        let ready = *self.ready.get_or_insert(now + self.cost);
        if now < ready {
            return Dispatch::Wait { at: Some(ready), completion: false };
        }
        let chosen = self.inner.dispatch(now);
        if !matches!(chosen, Dispatch::Wait { .. }) {
            self.ready = None;
        }
        chosen
    }
    fn complete(&mut self, id: RequestId, outcome: Outcome, now: Instant) -> Option<Completed> {
        self.inner.complete(id, outcome, now)
    }
}

/// The scheduler of a simulation.
pub type Sched = Costly<Queue<Box<[Slot]>, AnyPolicy>>;

/// A queue for `policy` with room for requests that merge, and requests of at most `max_sectors`.
#[must_use]
pub fn scheduler(policy: AnyPolicy, max_sectors: u32, cost: Duration) -> Sched {
    let limits = Limits { max_sectors, ..Limits::default() };
    let slots = vec![Slot::FREE; 2048].into_boxed_slice();
    Costly::new(Queue::with_limits(slots, policy, limits), cost)
}

/// Collects what happens to requests.
#[derive(Debug, Default)]
struct Notes(VecDeque<(Instant, Note)>);

fn key(t: Ticket) -> Key {
    t.index() as Key
}

impl Observer for Notes {
    fn inserted(&mut self, ticket: Ticket, _: &Request, now: Instant) {
        self.0.push_back((now, Note::Inserted(key(ticket))));
    }
    fn merged(&mut self, ticket: Ticket, _: &Request, head: Ticket, place: Place, now: Instant) {
        let back = place == Place::Back;
        self.0.push_back((now, Note::Merged { key: key(ticket), head: key(head), back, request: false }));
    }
    fn absorbed(&mut self, ticket: Ticket, _: &Request, head: Ticket, now: Instant) {
        self.0
            .push_back((now, Note::Merged { key: key(ticket), head: key(head), back: true, request: true }));
    }
    fn issued(&mut self, head: Ticket, run: &Run, now: Instant) {
        self.0.push_back((now, Note::Issued { key: key(head), lba: run.lba, blocks: run.blocks }));
    }
    fn ended(&mut self, head: Ticket, run: &Run, _: bool, now: Instant) {
        self.0.push_back((now, Note::Completed { key: key(head), lba: run.lba, blocks: run.blocks }));
    }
}

/// What is below a host, as an interrupt sees it.
trait Line {
    /// Handles an interrupt if one is pending.
    fn service(&mut self) -> bool;
    /// When the next one can come.
    fn next_event(&self) -> Instant;
}

/// No controller, no interrupt line: the mock host names its instants itself.
struct NoLine;
impl Line for NoLine {
    fn service(&mut self) -> bool {
        false
    }
    fn next_event(&self) -> Instant {
        Instant::NEVER
    }
}

/// The DesignWare model's line and the driver's interrupt half.
struct DwLine {
    model: Dw<CardHandle>,
    half: IrqHalf<Dw<CardHandle>>,
}
impl Line for DwLine {
    fn service(&mut self) -> bool {
        self.model.irq() && self.half.handle() == Irq::Wake
    }
    fn next_event(&self) -> Instant {
        self.model.next_event()
    }
}

/// A disk over any host.
struct Stack<H: Host<Payload = BufBatch>, S, L> {
    disk: mmc_block::Disk<H, S, Box<[Tag<Buf>]>, Notes>,
    line: L,
}

impl<H: Host<Payload = BufBatch>, S: Scheduler, L: Line> Disk for Stack<H, S, L> {
    fn submit(&mut self, r: Request, buf: Buf, now: Instant) -> Result<Key, String> {
        self.disk.submit(r, buf, now).map(key).map_err(|e| format!("the disk refused a request: {e:?}"))
    }
    fn poll(&mut self, now: Instant) -> Instant {
        self.line.service();
        loop {
            let next = self.disk.poll(now);
            // What the driver did may have raised the line again at this instant.
            if !self.line.service() {
                return match next {
                    mmc_block::Next::Idle | mmc_block::Next::Lent => Instant::NEVER,
                    mmc_block::Next::Wait { until, .. } => until.min(self.line.next_event()),
                };
            }
        }
    }
    fn note(&mut self) -> Option<(Instant, Note)> {
        self.disk.observer().0.pop_front()
    }
    fn finished(&mut self) -> Option<Finished> {
        let done = self.disk.take_done()?;
        Some(Finished {
            key: key(done.ticket),
            buf: done.buffer.unwrap_or_default(),
            error: done.result.err().map(|e| format!("a request failed: {e}")),
        })
    }
}

/// Identifies the card behind `host` and makes a disk of all.
///
/// # Errors
/// What identification or set-up said.
fn assemble<H, S, L>(
    mut host: H,
    mut line: L,
    clock: &Clock,
    sched: S,
    nr_requests: u16,
) -> Result<Box<dyn Disk>, String>
where
    H: Host<Payload = BufBatch> + 'static,
    S: Scheduler + 'static,
    L: Line + 'static,
{
    let identified = identify(&mut host, &mut line, clock)?;
    let slots = sched.capacity();
    let tags: Box<[Tag<Buf>]> = std::iter::repeat_with(Tag::default).take(slots + 512).collect();
    let settings = Settings { nr_requests: nr_requests.into(), ..Settings::default() };
    let batch = || BufBatch::new(Limits::default().max_segments.into());
    let mut disk =
        mmc_block::Disk::new(host, sched, identified.traits, batch(), tags, settings, Notes::default())
            .map_err(|e| format!("cannot set up the disk: {e}"))?;
    // As Linux' mmc driver: one command on the bus, one prepared.
    disk.prepare_with(batch()).map_err(|e| format!("cannot set up the disk: {e}"))?;
    Ok(Box::new(Stack { disk, line }))
}

fn identify(
    host: &mut impl Host<Payload = BufBatch>,
    line: &mut impl Line,
    clock: &Clock,
) -> Result<Identified, String> {
    let mut scratch = BufBatch::new(1);
    let _ = scratch.push(Buf(vec![0; 512]), 0, 512);
    let mut conductor = Conductor::new(Identify::new(&host.capabilities()), Some(scratch));
    loop {
        line.service();
        match conductor.poll(host, clock.now()) {
            Turn::Done(result, _) => return result.map_err(|e| format!("the card was not identified: {e}")),
            Turn::Wait { until, .. } => {
                let next = until.min(line.next_event());
                if next.is_never() {
                    return Err("the card was not identified: nothing happens any more".into());
                }
                clock.advance_to(next.max(clock.now()));
            }
        }
    }
}

/// The card of the measured runs: SDHC, 4 GiB (`spec/stall-measured.md`).
pub const CARD_SECTORS: u64 = 8_388_608;

type CardHandle = Shared<SdCard>;

struct Door {
    card: CardHandle,
    controller: Option<Dw<CardHandle>>,
}

impl BackDoor for Door {
    fn commands(&self) -> (u64, u64) {
        self.card.with(|c| (c.log().count(), c.log().hash()))
    }
    fn read(&self, sector: u64, to: &mut [u8]) {
        // Beyond the end nothing is stored, which the caller notices.
        let _ = self.card.with(|c| c.storage_mut().read(sector * 512, to));
    }
    fn violations(&self) -> Vec<String> {
        let mut v = self.card.with(|c| c.violations().to_vec());
        v.extend(self.controller.iter().flat_map(Dw::violations));
        v
    }
}

/// A disk, and the back door to its card.
pub type Built = (Box<dyn Disk>, Box<dyn BackDoor>);

/// The whole stack over a fresh card of preset `card`, and a back door to that card.
///
/// # Errors
/// One line naming what is wrong.
pub fn build(
    host: HostKind,
    card: &str,
    seed: u64,
    clock: &Clock,
    sched: Sched,
    nr_requests: u16,
) -> Result<Built, String> {
    let profile = Profile::named(card).map_err(|e| e.to_string())?;
    build_on(
        host,
        SdConfig { sectors: CARD_SECTORS, ..SdConfig::new(profile, seed) },
        clock,
        sched,
        nr_requests,
    )
}

/// [`build`] with any card and any scheduler.
///
/// # Errors
/// One line naming what is wrong.
pub fn build_on<S: Scheduler + 'static>(
    host: HostKind,
    config: SdConfig,
    clock: &Clock,
    sched: S,
    nr_requests: u16,
) -> Result<Built, String> {
    let card = Shared::new(SdCard::new(config).map_err(|e| e.to_string())?);
    // The HSDK's memory as the bus sees it; the DesignWare IDMAC reaches the lower 4 GiB.
    let memory = Memory::new(0x8000_0000, 0xc000_0000);
    let controller = Dw::new(card.clone(), clock.clone(), memory.clone(), Config::hsdk());
    let at = memory.alloc(RING);
    let ring = Ring::new(memory.window(at, RING as u32), at, RING as u32).map_err(|e| e.to_string())?;
    let dma = MemoryDma::new(memory, u64::from(u32::MAX));
    // A mailbox lives for ever; a run leaks one of a few words.
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
    let (dw, half) = DwEngine::split(controller.clone(), controller.clone(), mailbox, ring, dma, HSDK);
    match host {
        HostKind::Dw => {
            let line = DwLine { model: controller.clone(), half };
            let disk = assemble(dw, line, clock, sched, nr_requests)?;
            Ok((disk, Box::new(Door { card, controller: Some(controller) })))
        }
        HostKind::Mock => {
            // The same numbers as the DesignWare host has: only the controller is left out.
            let mock = MockHost::new(card.clone(), dw.capabilities());
            let disk = assemble(mock, NoLine, clock, sched, nr_requests)?;
            Ok((disk, Box::new(Door { card, controller: None })))
        }
    }
}

/// Bytes of the descriptor ring: for 1 MiB in up to 256 segments, once for what runs and once for what is prepared.
const RING: usize = 16 << 10;

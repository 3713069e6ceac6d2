//! All that a disk knows of its state, as text: for the moment when something stands still.

use crate::core::Core;
use crate::disk::Disk;
use crate::observer::Observer;
use crate::tag::{Entry, State, Tag};
use core::fmt;
use mmc_hal::{Batch, Payload};
use mmc_proto::host::Host;
use mmc_sched::Scheduler;
use mmc_time::Instant;

/// A [`Core`] as lines: scheduler, tags, what holds it up, and one line for each request, in the order of submission. Of
/// [`Core::dump`].
pub struct CoreDump<'a, S, T, B, O> {
    core: &'a Core<S, T, B, O>,
    now: Instant,
}

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// What is queued, waits and runs, as text; `now` for the ages. Printing it takes requests² looks at the table.
    pub const fn dump(&self, now: Instant) -> CoreDump<'_, S, T, B, O> {
        CoreDump { core: self, now }
    }
}

impl<S, T, B, O> fmt::Display for CoreDump<'_, S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (core, now) = (self.core, self.now);
        let s = &core.scheduler;
        write!(f, "scheduler: {}, {} of {} places", s.name(), s.len(), s.capacity())?;
        match s.wake_at() {
            Some(at) => writeln!(f, ", to be asked again in {}", at.since(now))?,
            None => writeln!(f)?,
        }
        let [reads, syncs, asyncs] = core.held;
        writeln!(
            f,
            "tags: {} of {} ({reads} reads, {syncs} synchronous writes, {asyncs} others)",
            core.tags_in_use(),
            core.settings.nr_requests
        )?;
        writeln!(
            f,
            "card: {} sectors, generation {}, cache {}{}",
            core.card.blocks,
            core.generation,
            if core.features.cache { "on" } else { "off" },
            if core.flushing { ", being flushed" } else { "" }
        )?;
        if let Some(why) = core.stopped {
            writeln!(f, "stopped: {why:?}")?;
        }
        // No list holds all requests in order, and there is no memory to sort in.
        let open = || core.table.tags().iter().zip(0_u32..).filter_map(|(t, i)| Some((t.entry()?, i)));
        writeln!(f, "requests: {} not over", core.outstanding)?;
        let mut from = 0;
        for _ in 0..core.table.len() {
            let next = open().filter(|(e, _)| e.order >= from).min_by_key(|(e, _)| e.order);
            let Some((e, i)) = next else { break };
            line(f, i, e, now)?;
            from = e.order.saturating_add(1);
        }
        Ok(())
    }
}

fn line<B>(f: &mut fmt::Formatter<'_>, i: u32, e: &Entry<B>, now: Instant) -> fmt::Result {
    let r = &e.request;
    let until = e.stamps.completed.unwrap_or(now);
    write!(
        f,
        "  {i}: {:?} {}+{} of stream {}, {:?}, {}, {}",
        r.op,
        r.lba,
        r.blocks,
        r.stream.0,
        r.priority.class,
        match e.state {
            State::Held => "behind an earlier one of its sectors",
            State::Flush => "waits for a flush",
            State::Waiting => "waits for a tag",
            State::Queued => "in the scheduler",
            State::Again => "to be sent again",
            State::Running => "in a command",
            State::Done => "over, not taken",
        },
        until.since(e.stamps.queued)
    )?;
    if e.attempts > 0 {
        write!(f, ", sent {} times", e.attempts)?;
    }
    match (e.state, e.result) {
        (State::Done, Err(why)) => writeln!(f, ": {why}"),
        _ => writeln!(f),
    }
}

impl<S, T, B, O> fmt::Debug for CoreDump<'_, S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A [`Disk`] as lines: what runs and in which step, what the card's care wants, then [`CoreDump`]. Of [`Disk::dump`].
pub struct DiskDump<'a, H, S, T, O>
where
    H: Host,
    H::Payload: Batch,
{
    disk: &'a Disk<H, S, T, O>,
    now: Instant,
}

type Buffer<H> = <<H as Host>::Payload as Batch>::Buffer;

impl<H, S, T, O> Disk<H, S, T, O>
where
    H: Host,
    H::Payload: Batch,
    S: Scheduler,
    T: AsRef<[Tag<Buffer<H>>]> + AsMut<[Tag<Buffer<H>>]>,
    O: Observer,
{
    /// All that is known of what is queued, waits and runs, as text of one line a thing: to be printed when
    /// [`Core::oldest`] says that something takes too long. The host adds its part with its own `Debug`
    /// (of a [`Supervised`](mmc_proto::host::Supervised) the engine's).
    pub const fn dump(&self, now: Instant) -> DiskDump<'_, H, S, T, O> {
        DiskDump { disk: self, now }
    }
}

impl<H, S, T, O> fmt::Display for DiskDump<'_, H, S, T, O>
where
    H: Host,
    H::Payload: Batch,
    S: Scheduler,
    T: AsRef<[Tag<Buffer<H>>]> + AsMut<[Tag<Buffer<H>>]>,
    O: Observer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.parts(f)?;
        fmt::Display::fmt(&self.disk.core().dump(self.now), f)
    }
}

impl<H, S, T, O> fmt::Debug for DiskDump<'_, H, S, T, O>
where
    H: Host,
    H::Payload: Batch,
    S: Scheduler,
    T: AsRef<[Tag<Buffer<H>>]> + AsMut<[Tag<Buffer<H>>]>,
    O: Observer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

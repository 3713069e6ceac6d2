//! Who wants to see what happens to requests.

use crate::tag::Ticket;
use mmc_sched::{Request, Run};
use mmc_time::Instant;

/// On which side of the run a merged request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Before it.
    Front,
    /// Behind it.
    Back,
}

/// Sees each step of each request, at the instant it happens; every method does nothing by default. A request
/// is shown as the scheduler knows it (FUA and PREFLUSH stripped for a card without a volatile cache). The
/// names in brackets are the kernel's tracepoints for the same step.
#[allow(unused_variables, reason = "nothing is done by default")]
pub trait Observer {
    /// Accepted (`block_bio_queue`).
    fn queued(&mut self, ticket: Ticket, request: &Request, now: Instant) {}
    /// It found no tag and waits for one.
    fn waits(&mut self, ticket: Ticket, request: &Request, now: Instant) {}
    /// It got a tag (`block_getrq`).
    fn got_tag(&mut self, ticket: Ticket, request: &Request, now: Instant) {}
    /// It entered the scheduler on its own (`block_rq_insert`).
    fn inserted(&mut self, ticket: Ticket, request: &Request, now: Instant) {}
    /// It was merged without taking a tag, into the run that has the tag of `head`
    /// (`block_bio_backmerge`, `block_bio_frontmerge`).
    fn merged(&mut self, ticket: Ticket, request: &Request, head: Ticket, place: Place, now: Instant) {}
    /// The run that had the tag of `ticket` was joined to the one that has the tag of `head`; the tag of
    /// `ticket` is free (`block_rq_merge`).
    fn absorbed(&mut self, ticket: Ticket, request: &Request, head: Ticket, now: Instant) {}
    /// The scheduler gave out a run, or it is about to be sent again (`block_rq_issue`). `head` is its first request here and
    /// below: after a merge in front not the one that has its tag.
    fn issued(&mut self, head: Ticket, run: &Run, now: Instant) {}
    /// Its command went to the host.
    fn started(&mut self, head: Ticket, run: &Run, now: Instant) {}
    /// Its command ended (`block_rq_complete`); the requests in it follow as [`completed`](Self::completed),
    /// but for those that are sent again.
    fn ended(&mut self, head: Ticket, run: &Run, ok: bool, now: Instant) {}
    /// A request is over.
    fn completed(&mut self, ticket: Ticket, request: &Request, ok: bool, now: Instant) {}
}

/// Nobody looks.
impl Observer for () {}

/// Counts since the disk was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Requests accepted.
    pub accepted: u64,
    /// Requests that ended well.
    pub completed: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Requests and whole runs merged into another: without errors, each accepted request is merged or heads a
    /// command (or both, where a run was too long for one command, or had too many segments).
    pub merged: u64,
    /// Commands (whole transfer conversations) sent, repetitions included.
    pub commands: u64,
    /// Of them, how many took more than 500 ms from their first frame to the end of the card's busy phase: one of a usual
    /// length does so only with a card that is busy for longer than the standard allows.
    pub slow_commands: u64,
    /// How long the longest took.
    pub command_max: mmc_time::Duration,
    /// Of them, by length: the k-th of at least 2^k sectors and less than twice that (the last: or more).
    pub lengths: [u64; 12],
    /// Polls that came before the end of a wait for an interrupt: interrupts, or callers who look often.
    pub interrupts: u64,
    /// From submission to the end, by kind: reads, writes somebody waits for, the rest.
    pub waits: [Waits; 3],
    /// Requests sent again, each time counted.
    pub retries: u64,
    /// Requests that had to wait for an earlier one they overlap.
    pub held: u64,
    /// Flushes of the card's cache, repetitions included.
    pub flushes: u64,
    /// Identifications of the card after the first.
    pub resets: u64,
    /// Sample points searched anew.
    pub retunes: u64,
    /// Requests that had to wait for a tag.
    pub tag_waits: u64,
    /// How long, all together, those that have got one.
    pub tag_wait_total: mmc_time::Duration,
    /// How long, at worst.
    pub tag_wait_max: mmc_time::Duration,
    /// Most requests accepted and not over at one time.
    pub depth_max: usize,
}

/// How long requests of a kind took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// All together.
    pub total: mmc_time::Duration,
    /// The longest.
    pub max: mmc_time::Duration,
}

//! One block-layer event, whatever tool recorded it; the simulator makes the same events, so that a real trace
//! and a simulated run go through the same analysis.

use std::sync::Arc;

/// What happened. Names are those of the kernel's tracepoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `block_bio_queue`: a bio was submitted.
    BioQueue,
    /// `block_getrq`: a request (and its tag) was allocated for a bio.
    GetRq,
    /// `block_bio_backmerge`: a bio went to the end of a request.
    BackMerge,
    /// `block_bio_frontmerge`: a bio went to the front of a request.
    FrontMerge,
    /// `block_rq_merge`: a whole request was absorbed by another.
    RqMerge,
    /// `block_rq_insert`: a request entered the scheduler.
    Insert,
    /// `block_rq_issue`: a request left for the driver.
    Issue,
    /// `block_rq_requeue`: the driver gave it back.
    Requeue,
    /// `block_rq_complete`: the device is done with it.
    Complete,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Stamp in nanoseconds, in the trace's own clock.
    pub at: u64,
    /// What.
    pub kind: Kind,
    /// Device, major and minor.
    pub dev: (u32, u32),
    /// Name of the task as the event prints it (the submitter; for issue and complete, whoever ran).
    pub task: Arc<str>,
    /// Its process number, which tells tasks of one name apart; 0 where nobody knows it.
    pub pid: u32,
    /// RWBS letters, as Linux prints them: `R`, `W`, `WS`, `WSM`, `FF`, `RA`, …
    pub rwbs: Arc<str>,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Sectors; 0 for a flush.
    pub sectors: u32,
}

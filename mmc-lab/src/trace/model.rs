//! One block-layer event, whatever tool recorded it; the simulator makes the same events, so that a real trace
//! and a simulated run go through the same analysis.

use std::collections::HashSet;
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

/// The begin or the end of a command at the host: `mmc_request_start`, `mmc_request_done`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Stamp in nanoseconds, in the trace's own clock.
    pub at: u64,
    /// The host, as `mmc0`.
    pub host: Arc<str>,
    /// Which of those that run at one time: the address that the kernel prints, or 0.
    pub request: u64,
    /// It is the end.
    pub end: bool,
    /// Index of the command.
    pub opcode: u8,
    /// Of a start: its argument.
    pub argument: u32,
    /// Of an end: bytes moved.
    pub bytes: u64,
    /// Of an end: the command, its data, CMD23 before it or CMD12 behind it ended with an error.
    pub failed: bool,
}

/// What a line (or a binary record) of a trace holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A block event.
    Event(Event),
    /// An `mmc:` event.
    Command(Command),
    /// The recorder could not keep up and lost this many events.
    Lost(u64),
    /// The name of the clock, from a comment.
    Clock(String),
    /// Another event, a mark, a comment, an empty line.
    Other,
    /// Not a line of a trace, or a block event that is cut or garbled.
    Odd,
}

/// Names kept once, so that an event costs no allocation.
#[derive(Debug)]
pub(super) struct Names {
    all: HashSet<Arc<str>>,
    /// The latest name of each [`place`], so that most lines need no search.
    recent: [Option<Arc<str>>; PLACES],
}

/// A power of two.
const PLACES: usize = 64;

impl Default for Names {
    fn default() -> Self {
        Self { all: HashSet::new(), recent: [const { None }; PLACES] }
    }
}

/// Where a name is remembered: a rough hash of it.
fn place(bytes: &[u8]) -> usize {
    let at = |i: usize| bytes.get(i).map_or(0, |&b| usize::from(b));
    let n = bytes.len();
    (n + at(0) * 3 + at(n / 2) * 5 + at(n.wrapping_sub(1)) * 7) % PLACES
}

/// Whether two names are the same: those of tasks have at most 16 bytes, too few for a call.
fn same(a: &[u8], b: &[u8]) -> bool {
    let ends = |name: &[u8]| Some((*name.first_chunk::<8>()?, *name.last_chunk::<8>()?));
    match (a.len() == b.len(), a.len()) {
        (false, _) => false,
        (true, 8..=16) => ends(a) == ends(b),
        (true, 0..8) => a.iter().eq(b),
        (true, _) => a == b,
    }
}

impl Names {
    pub(super) fn get(&mut self, bytes: &[u8]) -> Arc<str> {
        let place = place(bytes);
        if let Some(Some(name)) = self.recent.get(place)
            && same(name.as_bytes(), bytes)
        {
            return name.clone();
        }
        let text = String::from_utf8_lossy(bytes);
        let name = match self.all.get(text.as_ref()) {
            Some(name) => name.clone(),
            None => {
                let name: Arc<str> = Arc::from(text.as_ref());
                self.all.insert(name.clone());
                name
            }
        };
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = Some(name.clone());
        }
        name
    }
}

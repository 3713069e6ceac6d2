//! A recorded trace, done again: in the order our schedulers would have issued it (`order`), or as a workload in virtual
//! time under another scheduler, tunable or card (`closed`).
//!
//! It is not an analysis: what comes out is events again, which `analysis` explains. A trace is held in memory whole.

pub mod closed;
pub mod drain;
pub mod order;
pub mod plan;

use std::collections::BTreeMap;
use std::path::Path;

use crate::trace::model::{Event, Line};
use crate::trace::read_file;

/// The events of one device.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Major and minor.
    pub dev: (u32, u32),
    /// In the order of their stamps; those of one stamp in the order of the file.
    pub events: Vec<Event>,
    /// What the reader of a result should know: events lost, lines skipped, other devices.
    pub notes: Vec<String>,
}

/// Reads the trace at `path` (any format that `explain` reads) and keeps the events of the busiest device.
///
/// # Errors
/// One line: the file cannot be read, or holds no block event.
pub fn load(path: &Path) -> Result<Recording, String> {
    let name = path.display();
    let mut devices: BTreeMap<(u32, u32), Vec<Event>> = BTreeMap::new();
    let (mut lost, mut odd) = (0_u64, 0_u64);
    std::fs::File::open(path).map_err(|e| format!("cannot read {name}: {e}"))?;
    let end = read_file(path, |line| match line {
        Line::Event(event) => devices.entry(event.dev).or_default().push(event),
        Line::Lost(n) => lost = lost.saturating_add(n),
        Line::Odd => odd += 1,
        Line::Clock(_) | Line::Command(_) | Line::Other => {}
    });
    let mut notes = Vec::new();
    if let Err(e) = end {
        notes.push(format!("the file cannot be read to its end ({e}); this is what comes before"));
    }
    if odd > 0 {
        notes.push(format!("{odd} lines are cut or not of a trace and were skipped"));
    }
    if lost > 0 {
        notes.push(format!("the recorder lost {lost} events: a replay of such a trace is only a likeness"));
    }
    let others = devices.len().saturating_sub(1);
    let busiest = devices.into_iter().max_by_key(|(_, events)| events.len());
    let Some((dev, mut events)) = busiest else {
        return Err(format!("{name} holds no block event; `mmc-lab explain --help` says how to record one"));
    };
    if others > 0 {
        notes.push(format!("device {},{} is replayed; {others} others are left out", dev.0, dev.1));
    }
    events.sort_by_key(|e| e.at);
    Ok(Recording { dev, events, notes })
}

//! Commands as the kernel's `mmc:` events show them: from `mmc_request_start` to `mmc_request_done`, by index.
//!
//! What a request of the block layer waits for at the driver is one of these, or several; what the driver sends by itself
//! (status, switches, flushes) is here and nowhere else.

use super::class::{ClassStats, optional_seconds, seconds};
use super::quantiles::Quantiles;
use crate::trace::model::Command;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Commands that run at one time: a host has one, or a queue of 32. More are in no machine, but may be in a broken file.
const MOST: usize = 1024;

/// The commands of one index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandStats {
    /// Its index, as `25` of CMD25 (an application command has the same number).
    pub index: u8,
    /// From the start to the end.
    #[serde(flatten)]
    pub stats: ClassStats,
    /// Of them, how many ended with an error.
    pub failed: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Of the longest: when it began.
    #[serde(rename = "longest_at_s", serialize_with = "seconds")]
    pub longest_at: u64,
    /// Of the longest: its argument.
    pub longest_argument: u32,
    /// All of them together; saturates.
    #[serde(rename = "total_s", serialize_with = "seconds")]
    pub total: u64,
}

/// What the commands of a trace say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandReport {
    /// The host they are of, as `mmc0`; the busiest if the trace has several.
    pub host: String,
    /// By index, what took most time in all first.
    pub commands: Vec<CommandStats>,
    /// Ends without a beginning and beginnings without an end.
    pub unmatched: u64,
    /// When the longest of all began, and how long it took; `None`: none has ended.
    #[serde(rename = "longest_s", serialize_with = "optional_seconds")]
    pub longest: Option<u64>,
}

#[derive(Debug, Default)]
struct Index {
    times: Quantiles,
    failed: u64,
    bytes: u64,
    longest: (u64, u64, u32),
}

#[derive(Debug, Default)]
struct HostCommands {
    running: HashMap<u64, Command>,
    by_index: BTreeMap<u8, Index>,
    ended: u64,
    unmatched: u64,
}

/// Collects them.
#[derive(Debug, Default)]
pub struct Commands(BTreeMap<Arc<str>, HostCommands>);

/// Hosts told apart.
const HOSTS: usize = 64;

impl Commands {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One more event, in the order of the file.
    pub fn push(&mut self, event: Command) {
        if self.0.len() >= HOSTS && !self.0.contains_key(&event.host) {
            return;
        }
        let host = self.0.entry(event.host.clone()).or_default();
        if !event.end {
            let full = host.running.len() >= MOST;
            if full || host.running.insert(event.request, event).is_some() {
                host.unmatched += 1;
            }
            return;
        }
        let Some(start) = host.running.remove(&event.request).filter(|s| s.opcode == event.opcode) else {
            host.unmatched += 1;
            return;
        };
        host.ended += 1;
        let took = event.at.saturating_sub(start.at);
        let index = host.by_index.entry(event.opcode).or_default();
        index.times.push(took);
        index.failed += u64::from(event.failed);
        index.bytes = index.bytes.saturating_add(event.bytes);
        if took >= index.longest.0 {
            index.longest = (took, start.at, start.argument);
        }
    }

    /// The recorder lost events: what runs now has no end.
    pub fn lose_track(&mut self) {
        for host in self.0.values_mut() {
            host.unmatched += host.running.len() as u64;
            host.running.clear();
        }
    }

    /// What they come to; `None`: there were none.
    #[must_use]
    pub fn finish(self) -> Option<CommandReport> {
        let (name, host) = self.0.into_iter().max_by_key(|(_, host)| host.ended)?;
        let mut commands: Vec<CommandStats> = Vec::new();
        for (index, one) in host.by_index {
            let Index { times, failed, bytes, longest: (_, longest_at, longest_argument) } = one;
            let (total, stats) = (times.sum(), times.into_stats());
            commands.push(CommandStats { index, stats, failed, bytes, longest_at, longest_argument, total });
        }
        commands.sort_by_key(|c| std::cmp::Reverse(c.total));
        let longest = commands.iter().filter_map(|c| c.stats.max).max();
        let unmatched = host.unmatched + host.running.len() as u64;
        Some(CommandReport { host: name.to_string(), commands, unmatched, longest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, end: bool, request: u64, opcode: u8) -> Command {
        let host = Arc::from("mmc0");
        Command { at, host, request, end, opcode, argument: 7, bytes: 4096 * u64::from(end), failed: false }
    }

    #[test]
    fn each_start_meets_its_end_and_what_meets_none_is_counted() {
        let mut c = Commands::default();
        assert!(c.is_empty());
        c.push(event(5, true, 1, 18)); // from before the trace
        c.push(event(10, false, 1, 25));
        c.push(event(20, false, 2, 13)); // beside it, as with a queue
        c.push(event(25, true, 2, 13));
        c.push(Command { failed: true, ..event(40, true, 1, 25) });
        c.push(event(50, false, 1, 25));
        c.push(event(51, true, 1, 25));
        c.push(event(60, false, 1, 25)); // not over
        c.push(Command { host: Arc::from("mmc1"), ..event(60, false, 9, 17) });
        let report = c.finish().unwrap();
        assert_eq!((report.host.as_str(), report.unmatched, report.longest), ("mmc0", 2, Some(30)));
        let all: Vec<_> = report
            .commands
            .iter()
            .map(|c| (c.index, c.stats.n, c.failed, c.bytes, c.longest_at, c.total))
            .collect();
        assert_eq!(all, [(25, 2, 1, 8192, 10, 31), (13, 1, 0, 4096, 20, 5)]);
        assert_eq!(Commands::default().finish(), None);
    }

    #[test]
    fn a_broken_file_takes_no_memory() {
        let mut c = Commands::default();
        for n in 0..100_000 {
            c.push(event(n, false, n, 25));
            c.push(Command { host: format!("mmc1{n}").into(), ..event(n, false, n, 25) });
        }
        assert!(c.0.len() <= HOSTS && c.0.values().all(|h| h.running.len() <= MOST));
        c.push(event(100_000, true, 5, 25));
        assert_eq!(c.finish().unwrap().unmatched, 99_999);
    }
}

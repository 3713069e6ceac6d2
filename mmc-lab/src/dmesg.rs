//! The kernel's hung-task lines, and what the block layer was waiting for at those moments.
//!
//! It is not a reader of kernel logs: of all lines it knows one, `INFO: task NAME:PID blocked for more than N seconds.`

use serde::Serialize;

use crate::analysis::Report;

/// The watchdog reports who has not run since it last looked: a task woken so shortly before may be among them.
const LATE: u64 = 100_000_000;

/// One report of the kernel's watchdog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blocked {
    /// Stamp in nanoseconds of the kernel's clock.
    #[serde(rename = "at_ns")]
    pub at: u64,
    /// Task.
    pub task: String,
    /// Its process number.
    pub pid: u32,
    /// For more than so many seconds.
    pub seconds: u64,
    /// What was in flight then, in words; `None`: nothing in the trace waited at that moment.
    pub while_waiting: Option<String>,
}

/// The reports in the text of `dmesg`, with or without `[ stamps]`; lines without a stamp are left out, since nothing says
/// when they were.
#[must_use]
pub fn blocked(text: &str) -> Vec<Blocked> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Blocked> {
    let (stamp, rest) = line.split_once(']')?;
    let (_, stamp) = stamp.split_once('[')?;
    let at = crate::trace::stamp(stamp.trim())?;
    let (_, rest) = rest.split_once("INFO: task ")?;
    let (who, rest) = rest.split_once(" blocked for more than ")?;
    let (task, pid) = who.rsplit_once(':')?;
    let seconds = rest.split(' ').next()?.parse().ok()?;
    Some(Blocked { at, task: task.to_owned(), pid: pid.parse().ok()?, seconds, while_waiting: None })
}

/// Says of each report what in the trace waited at that moment: a sleep of the same task if there is one, else the
/// wait that had lasted longest by then.
pub fn explain(all: &mut [Blocked], report: &Report) {
    for one in all {
        let own = report.hung.iter().find(|h| {
            h.task == one.task
                && (h.until.saturating_sub(h.slept)..=h.until.saturating_add(LATE)).contains(&one.at)
        });
        if let Some(own) = own {
            one.while_waiting = Some(format!("its own sleep, for a {}", own.waits_for));
            continue;
        }
        let begin = |v: &crate::analysis::Victim| v.queued.or(v.inserted).or(v.issued);
        let waited = |v: &&crate::analysis::Victim| {
            begin(v).is_some_and(|b| b <= one.at && one.at <= b.saturating_add(v.wait).saturating_add(LATE))
        };
        let awaited = report.victims.iter().filter(|v| v.class.is_awaited()).filter(waited);
        let longest = awaited.min_by_key(|v| begin(v)).or(report
            .victims
            .iter()
            .filter(waited)
            .min_by_key(|v| begin(v)));
        one.while_waiting = longest.map(|v| {
            format!(
                "{} by {} at sector {}, in flight for {} by then, {} in all",
                v.class.noun(),
                v.task,
                v.sector,
                crate::units::format_time(one.at.saturating_sub(begin(v).unwrap_or(one.at))),
                crate::units::format_time(v.wait)
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_hold_colons_and_other_lines_are_passed_over() {
        let text = "[  164.1] Not tainted\n[ 1063.192455] INFO: task kworker/u2:1:12 blocked for more than 10 seconds.\n\
                    INFO: task x:1 blocked for more than 10 seconds.\n[   x] INFO: task y:1 blocked for more than 9 s\n";
        let found = blocked(text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].task.as_str(), found[0].pid, found[0].seconds), ("kworker/u2:1", 12, 10));
        assert_eq!(found[0].at, 1_063_192_455_000);
    }
}

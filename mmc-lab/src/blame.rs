//! Who is to blame for a wait: the three places a request can lose time in, and what went ahead of it.

use serde::Serialize;

use crate::analysis::{Class, Report, Victim};
use crate::units::{format_size, format_time};

/// The part of a wait that was the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// No free tag: the request could not even enter the scheduler.
    Tags,
    /// It stood in the scheduler while others were sent.
    Queue,
    /// It was at the driver and the card.
    Card,
}

impl Blame {
    /// The largest of three parts, in nanoseconds; of equal ones the later stage.
    #[must_use]
    pub fn of(tag_wait: u64, sched_wait: u64, service: u64) -> Self {
        if service >= tag_wait && service >= sched_wait {
            Self::Card
        } else if sched_wait >= tag_wait {
            Self::Queue
        } else {
            Self::Tags
        }
    }

    /// The word used in the JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Queue => "queue",
            Self::Card => "card",
        }
    }
}

/// The requests that were sent to the card between the insertion of a victim and its own issue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ahead {
    /// How many; `older + younger`.
    pub requests: u64,
    /// Those that entered the scheduler before the victim.
    pub older: u64,
    /// Those that entered after it (or went to the driver without entering the scheduler) and still passed it.
    pub younger: u64,
    /// Bytes moved by all of them.
    pub bytes: u64,
    /// How many of them are of each class, indexed by [`Class::index`]. Not in the JSON.
    #[serde(skip)]
    pub by_class: [u64; 4],
}

impl Ahead {
    /// Counts one request of `sectors` sectors.
    pub fn count(&mut self, older: bool, sectors: u64, class: Class) {
        self.requests = self.requests.saturating_add(1);
        if older {
            self.older = self.older.saturating_add(1);
        } else {
            self.younger = self.younger.saturating_add(1);
        }
        self.bytes = self.bytes.saturating_add(sectors.saturating_mul(512));
        if let Some(n) = self.by_class.get_mut(class.index()) {
            *n = n.saturating_add(1);
        }
    }

    /// Background writes among them: nobody sleeps for those.
    #[must_use]
    pub fn background_writes(&self) -> u64 {
        self.by_class.get(Class::AsyncWrites.index()).copied().unwrap_or(0)
    }
}

/// Waits below this are no stall, whoever waits.
const STALL: u64 = 500_000_000;

/// What stalled, for how long, why, and what to try, in one paragraph of plain words.
///
/// `hung` is the limit of an uninterrupted sleep in nanoseconds; `dev` names the device for the commands to try.
#[must_use]
pub fn verdict(report: &Report, hung: u64, dev: Option<(u32, u32)>) -> String {
    let limit = format_time(hung);
    let queue = dev.map_or_else(
        || "/sys/block/<device>/queue".to_owned(),
        |(major, minor)| format!("/sys/dev/block/{major}:{minor}/queue"),
    );
    if let Some(longest) = report.hung.iter().max_by_key(|h| h.slept) {
        let times = match report.hung.len() {
            1 => "Once".to_owned(),
            n => format!("{n} times"),
        };
        let start = format!(
            "{times} a task slept {limit} or more without a break. The longest: {} slept {} for a {}.",
            longest.task,
            format_time(longest.slept),
            longest.waits_for
        );
        return match &longest.request {
            Some(request) => format!("{start} {} {}", why(request, report), what_to_try(request, &queue)),
            None => format!(
                "{start} No more than {} requests were let in at once, so the tags are to blame. {}",
                report.queue_depth_max,
                tags_advice(&queue)
            ),
        };
    }
    let awaited = Class::ALL.iter().filter(|class| class.is_awaited());
    let longest =
        awaited.filter_map(|class| report.worst.get(class.index())?.as_ref()).max_by_key(|v| v.wait);
    match longest.or(report.worst.iter().flatten().max_by_key(|v| v.wait)) {
        None => {
            "The trace holds no request from its beginning to its end, so nothing can be said.".to_owned()
        }
        Some(v) if v.wait < STALL => format!(
            "Nothing stalls here: the longest wait that a task may sleep for was {}, of a {} by {}.",
            format_time(v.wait),
            v.class.noun(),
            v.task
        ),
        Some(v) => {
            let who =
                if v.class.is_awaited() { "that a task may sleep for" } else { "(nobody sleeps for it)" };
            format!(
                "No task slept {limit} without a break. The longest wait {who} took {}: a {} by {} at sector {} \
                 ({}, {}). {} {}",
                format_time(v.wait),
                v.class.noun(),
                v.task,
                v.sector,
                v.rwbs,
                format_size(v.sectors.saturating_mul(512)),
                why(v, report),
                what_to_try(v, &queue)
            )
        }
    }
}

/// Where the time of `victim` went.
fn why(victim: &Victim, report: &Report) -> String {
    let ahead = &victim.ahead;
    match victim.blame {
        Blame::Tags => format!(
            "It waited {} for a free tag, because no more than {} requests were let in at once; then {} in the scheduler and \
             {} at the card. The tags are to blame.",
            format_time(victim.tag_wait),
            report.queue_depth_max,
            format_time(victim.sched_wait),
            format_time(victim.service)
        ),
        Blame::Queue => format!(
            "It stood in the scheduler for {} while {} other requests ({}, one every {}) were sent to the card: {} had been queued \
             before it, {} came after it, {} are background writes that nobody waits for. The card itself took {}. \
             The queue is to blame.",
            format_time(victim.sched_wait),
            ahead.requests,
            format_size(ahead.bytes),
            format_time(victim.sched_wait.checked_div(ahead.requests).unwrap_or(0)),
            ahead.older,
            ahead.younger,
            ahead.background_writes(),
            format_time(victim.service)
        ),
        Blame::Card => format!(
            "It was at the driver and the card for {} of that, after {} without a tag and {} in the scheduler. The \
             card is to blame.",
            format_time(victim.service),
            format_time(victim.tag_wait),
            format_time(victim.sched_wait)
        ),
    }
}

fn what_to_try(victim: &Victim, queue: &str) -> String {
    let ahead = &victim.ahead;
    match victim.blame {
        Blame::Tags => tags_advice(queue),
        Blame::Card => {
            "No scheduler can help against that: try smaller requests (max_sectors_kb), discard what is \
             free (fstrim), or another card."
                .to_owned()
        }
        Blame::Queue if ahead.younger > ahead.older => format!(
            "Most of them came later and were preferred: under bfq try `echo 0 > {queue}/iosched/low_latency`, under \
             others bfq."
        ),
        Blame::Queue if ahead.background_writes().saturating_mul(2) < ahead.requests => {
            "Most of them are awaited by \
             somebody too: less dirty data before the fsync (vm.dirty_bytes) shortens the queue."
                .to_owned()
        }
        Blame::Queue => {
            let tunables = match victim.class {
                Class::Reads => {
                    "a lower fifo_batch helps reads only if the kernel takes requests one at a time"
                }
                _ => {
                    "write_expire and fifo_batch cannot help, since those requests are older or in its way anyhow"
                }
            };
            format!(
                "Try a scheduler that serves each task in its turn (`echo bfq > {queue}/scheduler`) or a shorter \
                 queue ({queue}/nr_requests): such a wait is the queued bytes divided by the rate of the card; \
                 {tunables}."
            )
        }
    }
}

fn tags_advice(queue: &str) -> String {
    format!(
        "Try less dirty data (vm.dirty_bytes), or bfq if it does not run already (`echo bfq > {queue}/scheduler`): it \
         keeps tags free for those who wait; more tags only make the queue longer."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_is_to_blame() {
        assert_eq!(Blame::of(3, 2, 1), Blame::Tags);
        assert_eq!(Blame::of(1, 3, 2), Blame::Queue);
        assert_eq!(Blame::of(1, 2, 3), Blame::Card);
        assert_eq!(Blame::of(0, 0, 0), Blame::Card);
        assert_eq!(Blame::of(5, 5, 1), Blame::Queue);
    }

    #[test]
    fn what_went_ahead_is_counted() {
        let mut ahead = Ahead::default();
        ahead.count(true, 1024, Class::AsyncWrites);
        ahead.count(false, 8, Class::Reads);
        assert_eq!((ahead.requests, ahead.older, ahead.younger, ahead.bytes), (2, 1, 1, 1032 * 512));
        assert_eq!(ahead.background_writes(), 1);
    }
}

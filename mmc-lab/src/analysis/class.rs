//! The four classes of I/O and their latency percentiles.

use serde::{Serialize, Serializer};

use super::quantiles::Quantiles;

/// What kind of wait a bio or request is, by who may sleep for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Submitted by the journal thread (`jbd2…`).
    Journal,
    /// Any read, readahead too.
    Reads,
    /// Writes marked sync, but for those of the journal thread.
    SyncWrites,
    /// The rest: background writes, discards, flushes without the sync mark.
    AsyncWrites,
}

impl Class {
    /// All, in the order of the JSON.
    pub const ALL: [Self; 4] = [Self::Journal, Self::Reads, Self::SyncWrites, Self::AsyncWrites];

    /// The class of what `task` submitted with the letters `rwbs`; the first match of: reads (`R`), journal (the name
    /// begins with `jbd2`), sync writes (`S`), the rest.
    #[must_use]
    pub fn of(rwbs: &str, task: &str) -> Self {
        let has = |letter| rwbs.bytes().any(|b| b == letter);
        if has(b'R') {
            Self::Reads
        } else if task.starts_with("jbd2") {
            Self::Journal
        } else if has(b'S') {
            Self::SyncWrites
        } else {
            Self::AsyncWrites
        }
    }

    /// Place in [`Class::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Journal => 0,
            Self::Reads => 1,
            Self::SyncWrites => 2,
            Self::AsyncWrites => 3,
        }
    }

    /// Its name in a sentence, for one request.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Journal => "journal write",
            Self::Reads => "read",
            Self::SyncWrites => "sync write",
            Self::AsyncWrites => "background write",
        }
    }

    /// Its key in the JSON.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Reads => "reads",
            Self::SyncWrites => "sync_writes",
            Self::AsyncWrites => "async_writes",
        }
    }

    /// Whether a task is likely to sleep until it is done.
    #[must_use]
    pub fn is_awaited(self) -> bool {
        self != Self::AsyncWrites
    }
}

/// Latencies of one class. Times are nanoseconds here and seconds in the JSON; `None` (null) when `n` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassStats {
    /// Samples.
    pub n: u64,
    /// Median: the sorted sample number `n / 2`.
    #[serde(rename = "p50_s", serialize_with = "optional_seconds")]
    pub p50: Option<u64>,
    /// The sorted sample number `n × 99 / 100`.
    #[serde(rename = "p99_s", serialize_with = "optional_seconds")]
    pub p99: Option<u64>,
    /// The longest.
    #[serde(rename = "max_s", serialize_with = "optional_seconds")]
    pub max: Option<u64>,
    /// The sorted sample number `n × 999 / 1000`. Not in the JSON.
    #[serde(skip)]
    pub p999: Option<u64>,
    /// The sorted sample number `n × 9999 / 10000`. Not in the JSON.
    #[serde(skip)]
    pub p9999: Option<u64>,
}

impl ClassStats {
    /// Statistics of `samples` (nanoseconds), which get sorted. Percentile q of n samples is number
    /// `min(n − 1, floor(q × n))` of the sorted ones.
    #[must_use]
    pub fn of(samples: &mut [u64]) -> Self {
        samples.sort_unstable();
        let n = samples.len();
        let at = |share: usize| {
            let place = n.saturating_mul(share) / 10_000;
            samples.get(place.min(n.saturating_sub(1))).copied()
        };
        Self {
            n: n as u64,
            p50: at(5000),
            p99: at(9900),
            max: samples.last().copied(),
            p999: at(9990),
            p9999: at(9999),
        }
    }
}

/// The statistics of all four classes, in the order of the JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Classes {
    /// See [`Class::Journal`].
    pub journal: ClassStats,
    /// See [`Class::Reads`].
    pub reads: ClassStats,
    /// See [`Class::SyncWrites`].
    pub sync_writes: ClassStats,
    /// See [`Class::AsyncWrites`].
    pub async_writes: ClassStats,
}

impl Classes {
    /// The statistics of one class.
    #[must_use]
    pub fn get(&self, class: Class) -> &ClassStats {
        match class {
            Class::Journal => &self.journal,
            Class::Reads => &self.reads,
            Class::SyncWrites => &self.sync_writes,
            Class::AsyncWrites => &self.async_writes,
        }
    }
}

/// Samples being collected, indexed by [`Class::index`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples([Quantiles; 4]);

impl Samples {
    pub(crate) fn push(&mut self, class: Class, ns: u64) {
        self.0[class.index()].push(ns);
    }

    pub(crate) fn into_stats(self) -> Classes {
        let [journal, reads, sync_writes, async_writes] = self.0.map(Quantiles::into_stats);
        Classes { journal, reads, sync_writes, async_writes }
    }
}

/// Nanoseconds as a JSON number of seconds.
pub(crate) fn seconds<S: Serializer>(ns: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(*ns as f64 / 1e9)
}

/// Nanoseconds as a JSON number of seconds, or null.
pub(crate) fn optional_seconds<S: Serializer>(ns: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match ns {
        Some(ns) => seconds(ns, to),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_decides_the_class() {
        assert_eq!(Class::of("RS", "jbd2/mmcblk0-8"), Class::Reads);
        assert_eq!(Class::of("WSM", "jbd2/mmcblk0-8"), Class::Journal);
        assert_eq!(Class::of("W", "jbd2/mmcblk0-8"), Class::Journal);
        assert_eq!(Class::of("WS", "bonnie++"), Class::SyncWrites);
        assert_eq!(Class::of("WM", "kworker/u2:1"), Class::AsyncWrites);
    }

    #[test]
    fn percentiles_follow_the_definition() {
        let stats = ClassStats::of(&mut [5, 1, 3]);
        assert_eq!((stats.n, stats.p50, stats.p99, stats.max), (3, Some(3), Some(5), Some(5)));
        let mut two_hundred: Vec<u64> = (0..200).collect();
        let stats = ClassStats::of(&mut two_hundred);
        assert_eq!((stats.p50, stats.p99, stats.max), (Some(100), Some(198), Some(199)));
        let mut many: Vec<u64> = (0..20_000).collect();
        let stats = ClassStats::of(&mut many);
        assert_eq!((stats.p999, stats.p9999), (Some(19_980), Some(19_998)));
        assert_eq!(ClassStats::of(&mut []), ClassStats::default());
    }
}

//! The tunables of `mq-deadline`: names, units, ranges, and how text is read.

use super::Rules;
use crate::lane::Dir;
use crate::scheduler::{TunableInfo, TuneError};
use crate::tunable;
use mmc_time::Duration;

/// The values in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// From insertion to deadline of a read; default 500 ms.
    pub read_expire: Duration,
    /// From insertion to deadline of a write; default 5 s.
    pub write_expire: Duration,
    /// Decisions for reads while a write waits; default 2, negative counts as huge.
    pub writes_starved: i32,
    /// Whether a front merge is looked for in sector order; default yes.
    pub front_merges: bool,
    /// Runs in a batch; default 16, 0 counts as 1.
    pub fifo_batch: u32,
    /// Age at which lower classes go first; default 10 s. Rules 7.3 only.
    pub prio_aging_expire: Duration,
    async_depth: u32,
    nr_requests: u32,
}

const INT_MAX: i64 = i32::MAX as i64;
const NAMES: [&str; 7] = [
    "read_expire",
    "write_expire",
    "writes_starved",
    "front_merges",
    "fifo_batch",
    "prio_aging_expire",
    "async_depth",
];

impl Tunables {
    pub(super) const fn new() -> Self {
        Self {
            read_expire: Duration::from_millis(500),
            write_expire: Duration::from_millis(5000),
            writes_starved: 2,
            front_merges: true,
            fifo_batch: 16,
            prio_aging_expire: Duration::from_millis(10_000),
            async_depth: 128,
            nr_requests: 128,
        }
    }
    pub(super) fn expire(&self, d: Dir) -> Duration {
        match d {
            Dir::Read => self.read_expire,
            Dir::Write => self.write_expire,
        }
    }
    /// Tags that all but reads may hold together; default all.
    #[must_use]
    pub fn async_depth(&self) -> u32 {
        self.async_depth
    }
    pub(super) fn set_nr_requests(&mut self, tags: u32) {
        let tags = tags.max(1);
        let scaled = u64::from(self.async_depth).saturating_mul(u64::from(tags));
        let scaled = scaled.checked_div(u64::from(self.nr_requests)).unwrap_or(1);
        self.async_depth = u32::try_from(scaled).unwrap_or(tags).clamp(1, tags);
        self.nr_requests = tags;
    }
    pub(super) fn info(&self, rules: Rules, i: usize) -> Option<TunableInfo> {
        let name = *NAMES.get(i)?;
        if rules == Rules::V5_10 && i > 4 {
            return None;
        }
        let ms = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(INT_MAX);
        let (unit, min, max, value) = match name {
            "read_expire" => ("ms", 0, INT_MAX, ms(self.read_expire)),
            "write_expire" => ("ms", 0, INT_MAX, ms(self.write_expire)),
            "writes_starved" => ("decisions", i64::from(i32::MIN), INT_MAX, i64::from(self.writes_starved)),
            "front_merges" => ("bool", 0, 1, i64::from(self.front_merges)),
            "fifo_batch" => ("requests", 0, INT_MAX, i64::from(self.fifo_batch)),
            "prio_aging_expire" => ("ms", 0, INT_MAX, ms(self.prio_aging_expire)),
            _ => ("tags", 1, i64::from(self.nr_requests), i64::from(self.async_depth)),
        };
        Some(TunableInfo { name, unit, min, max, value })
    }
    pub(super) fn set(&mut self, rules: Rules, name: &str, text: &str) -> Result<(), TuneError> {
        let known = NAMES.iter().position(|n| *n == name).ok_or(TuneError::Unknown)?;
        if rules == Rules::V5_10 && known > 4 {
            return Err(TuneError::Unknown);
        }
        if name == "async_depth" {
            let depth = tunable::unsigned(text)?;
            if depth == 0 {
                return Err(TuneError::Invalid);
            }
            self.async_depth = depth.min(self.nr_requests);
            return Ok(());
        }
        let value = match rules {
            Rules::V7_3 => tunable::int(text)?,
            Rules::V5_10 => tunable::lenient(text),
        };
        // Out of range is silently clamped, as there.
        let positive = u32::try_from(value).unwrap_or(0);
        let ms = Duration::from_millis(u64::from(positive));
        match name {
            "read_expire" => self.read_expire = ms,
            "write_expire" => self.write_expire = ms,
            "writes_starved" => self.writes_starved = value,
            "front_merges" => self.front_merges = positive != 0,
            "fifo_batch" => self.fifo_batch = positive,
            _ => self.prio_aging_expire = ms,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::mq_deadline::Rules;
    use crate::{Kind, MqDeadline, Policy, TuneError};

    fn value(p: &MqDeadline, name: &str) -> i64 {
        (0..).map_while(|i| p.tunable(i)).find(|t| t.name == name).unwrap().value
    }

    #[test]
    fn out_of_range_is_clamped_and_junk_changes_nothing() {
        let mut p = MqDeadline::new();
        for (name, text, after) in [
            ("write_expire", "-100", 0),
            ("read_expire", "0x10", 16),
            ("front_merges", "7", 1),
            ("front_merges", "-1", 0),
            ("fifo_batch", "010", 8),
            ("writes_starved", "-2147483648", -2_147_483_648),
            ("prio_aging_expire", "2147483647", 2_147_483_647),
        ] {
            assert_eq!(p.tune(name, text), Ok(()), "{name}={text}");
            assert_eq!(value(&p, name), after, "{name}={text}");
        }
        for (name, text, why) in [
            ("fifo_batch", "99999999999", TuneError::Range),
            ("fifo_batch", "7 ", TuneError::Invalid),
            ("async_depth", "-1", TuneError::Invalid),
            ("async_depth", "0", TuneError::Invalid),
            ("slice_idle", "8", TuneError::Unknown),
        ] {
            assert_eq!(p.tune(name, text), Err(why), "{name}={text}");
        }
        assert_eq!((value(&p, "fifo_batch"), value(&p, "async_depth")), (8, 128));
    }

    #[test]
    fn async_depth_limits_all_but_reads_and_keeps_its_share_of_the_tags() {
        let mut p = MqDeadline::new();
        p.set_nr_requests(64);
        let all = [Kind::Read, Kind::SyncWrite, Kind::Async].map(|k| p.admits(k, 64));
        assert_eq!(all, [64, 64, 64], "nothing is reserved by default");
        p.tune("async_depth", "16").unwrap();
        let limited = [Kind::Read, Kind::SyncWrite, Kind::Async].map(|k| p.admits(k, 64));
        assert_eq!(limited, [64, 16, 16]);
        p.set_nr_requests(128);
        assert_eq!(p.admits(Kind::Async, 128), 32);
        p.tune("async_depth", "1000").unwrap();
        assert_eq!(value(&p, "async_depth"), 128);
    }

    #[test]
    fn the_kernels_of_2018_had_five_and_no_limit_on_tags() {
        let mut p = MqDeadline::with_rules(Rules::V5_10);
        assert_eq!((0..).map_while(|i| p.tunable(i)).count(), 5);
        assert_eq!(p.tune("prio_aging_expire", "1"), Err(TuneError::Unknown));
        p.tune("write_expire", "abc").unwrap();
        assert_eq!(value(&p, "write_expire"), 0);
        assert_eq!(p.admits(Kind::Async, 128), 128);
    }
}

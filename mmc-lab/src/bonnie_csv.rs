//! bonnie++'s CSV rows: 27 fields as 1.03 prints them, 50 as 2.00a does (format version 1.98).
//!
//! The rules are in `spec/bonnie.md` §1: a phase that was not run or took no time is empty, one that took less than
//! 0.5 s is `+++++`, and 2.00a leaves the chunk sizes out.

use crate::workload::bonnie::Phase;
use mmc_time::Duration;

/// What a row says beside the phases.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Machine name.
    pub machine: &'a str,
    /// File size in bytes.
    pub size: u64,
    /// Seed.
    pub seed: u64,
    /// Seek processes.
    pub seekers: u32,
    /// Files in units of 1024; 0: the file phases were not run.
    pub files_k: u32,
    /// The twelve phases, in the order of `workload::bonnie::PHASES`.
    pub phases: &'a [Option<Phase>; 12],
}

/// bonnie++ rather shows no result than a wrong one: the shortest time it trusts.
const MIN_TIME: Duration = Duration::from_millis(500);

/// Value and processor share of a phase.
fn pair(p: Option<&Phase>, number: impl Fn(f64) -> String) -> String {
    match p {
        None => ",".into(),
        Some(p) if p.elapsed == Duration::ZERO => ",".into(),
        Some(p) if p.elapsed < MIN_TIME => "+++++,+++".into(),
        Some(p) => {
            let cpu = p.cpu.as_nanos().saturating_mul(100) / p.elapsed.as_nanos();
            format!("{},{cpu}", number(p.rate()))
        }
    }
}

fn whole(v: f64) -> String {
    format!("{}", v.floor())
}

fn size(bytes: u64) -> String {
    let mib = bytes >> 20;
    if mib.is_multiple_of(1024) { format!("{}G", mib / 1024) } else { format!("{mib}M") }
}

impl Row<'_> {
    fn list(&self, phases: std::ops::Range<usize>, seeks: impl Fn(f64) -> String) -> String {
        let field = |i: usize| {
            let p = self.phases[i].as_ref();
            if i == 5 { pair(p, &seeks) } else { pair(p, whole) }
        };
        phases.map(field).collect::<Vec<_>>().join(",")
    }

    /// The row of 1.03: 27 fields.
    #[must_use]
    pub fn v1_03(&self) -> String {
        let io = self.list(0..6, |v| format!("{v:.1}"));
        let files = if self.files_k == 0 {
            ",".repeat(12)
        } else {
            format!("{},{}", self.files_k, self.list(6..12, whole))
        };
        format!("{},{},{io},{files}", self.machine, size(self.size))
    }

    /// The row of 2.00a: 50 fields.
    #[must_use]
    pub fn v2(&self) -> String {
        let io = self.list(0..6, |v| if v >= 1000.0 { format!("{v:.0}") } else { format!("{v:.1}") });
        let files = if self.files_k == 0 {
            ",".repeat(16)
        } else {
            format!("{},,,,,{}", self.files_k, self.list(6..12, whole))
        };
        let latency = |p: &Option<Phase>| p.map_or_else(String::new, |p| latency(p.latency));
        let latencies: Vec<String> = self.phases.iter().map(latency).collect();
        format!(
            "1.98,2.00a,{},1,{},{},,8192,{},{io},{files},{}",
            self.machine,
            self.seed,
            size(self.size),
            self.seekers,
            latencies.join(",")
        )
    }
}

/// A latency as 2.00a prints it: seconds above 99.999999 s, milliseconds above 0.099999 s, else microseconds.
fn latency(d: Duration) -> String {
    match d.as_micros() {
        0 => String::new(),
        us if us > 99_999_999 => format!("{}s", us / 1_000_000),
        us if us > 99_999 => format!("{}ms", us / 1000),
        us => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(work: u64, ms: u64) -> Option<Phase> {
        let elapsed = Duration::from_millis(ms);
        Some(Phase {
            work,
            elapsed,
            cpu: Duration::from_millis(ms / 20),
            latency: Duration::from_micros(ms * 100),
        })
    }

    fn row(phases: &[Option<Phase>; 12], files_k: u32) -> Row<'_> {
        Row { machine: "HSDK", size: 512 << 20, seed: 7, seekers: 3, files_k, phases }
    }

    #[test]
    fn rows_have_27_and_50_fields_whatever_was_run() {
        let (none, all) = ([None; 12], [phase(524_288, 80_000); 12]);
        for (phases, files) in [(none, 0), (none, 16), (all, 16), (all, 0)] {
            let r = row(&phases, files);
            assert_eq!(r.v1_03().split(',').count(), 27, "{}", r.v1_03());
            assert_eq!(r.v2().split(',').count(), 50, "{}", r.v2());
        }
    }

    #[test]
    fn a_measured_row_is_laid_out_as_bonnie_prints_it() {
        // Run bv510-mq of traces/: write 5979, rewrite 5996, seeks 305.9.
        let mut p = [None; 12];
        p[1] = Some(Phase {
            work: 5979 * 10,
            elapsed: Duration::from_secs(10),
            cpu: Duration::from_millis(300),
            latency: Duration::from_millis(13_101),
        });
        p[5] = Some(Phase {
            work: 3059,
            elapsed: Duration::from_secs(10),
            cpu: Duration::from_millis(400),
            latency: Duration::from_micros(32_030),
        });
        p[7] = phase(4096, 40);
        let mut r = row(&p, 4);
        (r.machine, r.seekers) = ("QemuSD", 5);
        assert_eq!(
            r.v2(),
            "1.98,2.00a,QemuSD,1,7,512M,,8192,5,,,5979,3,,,,,,,305.9,4,4,,,,,,,+++++,+++,,,,,,,,,,13101ms,,,,32030us,,4000us,,,,"
        );
        assert_eq!(r.v1_03(), "QemuSD,512M,,,5979,3,,,,,,,305.9,4,4,,,+++++,+++,,,,,,,,");
    }

    #[test]
    fn short_phases_show_no_number_and_sizes_are_in_gibibytes_where_even() {
        let p = [phase(100, 499); 12];
        assert!(row(&p, 16).v1_03().contains("+++++,+++"));
        assert_eq!(size(1 << 30), "1G");
        assert_eq!(size(1536 << 20), "1536M");
    }
}

//! Fits the numbers of a timing profile to the service times of a card, from a log or a trace of real commands.
//!
//! It is not a benchmark: it can tell only what the commands of the log asked of the card, and says what they did not.
//!
//! The model is that of `mmc-mock::timing`. For each size of an allocation unit and each number of open units the
//! commands are replayed through the set of open units, which says what each write did: pieces that continued, pieces
//! that did not, bytes, merges, bytes copied. The times are linear in these, so least absolute residuals give the rest;
//! the pair that leaves least is the answer. Pauses are what is left over.

pub mod fio;
mod linear;
mod read;

pub use read::{BadLog, read};

use linear::{Fit, fit};
use mmc_mock::timing::Profile;
use mmc_time::Duration;
use std::collections::{HashSet, VecDeque};

/// One data command.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Op {
    /// The card sent.
    pub read: bool,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Sectors, at least 1.
    pub sectors: u32,
    /// From its arrival until the card was ready for the next one, in microseconds.
    pub service_us: f64,
}

/// An estimate with the interval that holds the true value unless the model is wrong (about 95 %).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Value {
    /// Best guess.
    pub value: f64,
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

impl Value {
    /// Whether the interval holds `x`.
    #[must_use]
    pub fn holds(&self, x: f64) -> bool {
        (self.low..=self.high).contains(&x)
    }
}

/// What a log tells of a card; `None` is what it does not tell.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Fitted {
    /// Reads in the log.
    pub reads: usize,
    /// Writes in the log.
    pub writes: usize,
    /// cmd + rd_access, in microseconds.
    pub cmd_rd_access_us: Option<Value>,
    /// cmd + rd_seq, in microseconds.
    pub cmd_rd_seq_us: Option<Value>,
    /// Bytes per second.
    pub rd_bps: Option<Value>,
    /// cmd + wr_seq, in microseconds.
    pub cmd_wr_seq_us: Option<Value>,
    /// cmd + wr_rand, in microseconds.
    pub cmd_wr_rand_us: Option<Value>,
    /// Bytes per second.
    pub wr_bps: Option<Value>,
    /// Sectors of an allocation unit.
    pub au_sectors: Option<u64>,
    /// Open units: the least and the most that explain the log equally well.
    pub open: Option<(usize, usize)>,
    /// Evicted units in the log.
    pub merges: u64,
    /// Bytes per second.
    pub copy_bps: Option<Value>,
    /// Microseconds.
    pub erase_us: Option<Value>,
    /// Pauses in the log.
    pub stalls: usize,
    /// Chance of a pause per piece of a write.
    pub stall_p: Option<Value>,
    /// Shortest pause, in microseconds.
    pub stall_min_us: Option<Value>,
    /// Longest pause, in microseconds.
    pub stall_max_us: Option<Value>,
    /// Share of the writes' time that the model does not explain, pauses not counted: above 0.1 it does not fit.
    pub unexplained: f64,
    /// What the log cannot tell, and why.
    pub notes: Vec<String>,
}

/// Writes that the search for the allocation unit looks at.
const SEARCHED: usize = 8_000;
/// Open units tried.
const OPEN: usize = 64;
/// Sizes of an allocation unit in sectors: 16 KiB doubling up to 64 MiB, and 12 and 24 MiB.
const UNITS: [u64; 15] =
    [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 24576, 32768, 49152, 65536, 131_072];

/// Fits a profile to `ops`, in the order the card served them.
#[must_use]
pub fn fit_profile(ops: &[Op]) -> Fitted {
    let mut out = Fitted::default();
    out.reads = ops.iter().filter(|op| op.read).count();
    out.writes = ops.len() - out.reads;
    out.fit_reads(ops);
    let writes: Vec<Op> = ops.iter().filter(|op| !op.read).copied().collect();
    out.fit_writes(&writes);
    out.notes.push(
        "cmd cannot be told from what is added to it: only the four sums are facts; no log without flushes of a \
         cache tells its size"
            .to_owned(),
    );
    out
}

impl Fitted {
    fn fit_reads(&mut self, ops: &[Op]) {
        let (mut rows, mut times, mut end) = (Vec::new(), Vec::new(), None);
        for op in ops {
            if op.read {
                // What came before the first read is not known.
                if let Some(end) = end {
                    let seq = end == Some(op.sector);
                    rows.push([
                        f64::from(u8::from(!seq)),
                        f64::from(u8::from(seq)),
                        bytes(op.sectors.into()),
                    ]);
                    times.push(op.service_us);
                }
                end = Some(Some(op.sector + u64::from(op.sectors)));
            } else {
                end = Some(None);
            }
        }
        let Some(found) = fit(&rows, &times, 25).map(|f| f.refine(&rows, &times)) else {
            self.notes.push("no reads but perhaps one: nothing is known of them".to_owned());
            return;
        };
        [self.cmd_rd_access_us, self.cmd_rd_seq_us] = [found.value(0), found.value(1)];
        self.rd_bps = found.value(2).and_then(rate);
        let missing = [
            (
                self.cmd_rd_access_us,
                "cmd + rd_access",
                "no reads that do not continue another, or all of one size",
            ),
            (self.cmd_rd_seq_us, "cmd + rd_seq", "no reads that continue another, or all of one size"),
            (self.rd_bps, "rd_bps", "all reads have one size"),
        ];
        self.note_missing(&missing);
    }

    fn fit_writes(&mut self, writes: &[Op]) {
        let searched = writes.get(..SEARCHED).unwrap_or(writes);
        let times: Vec<f64> = searched.iter().map(|op| op.service_us).collect();
        let mut tried: Vec<(f64, u64, usize)> = Vec::new();
        for au in UNITS {
            let units: HashSet<u64> = searched.iter().map(|op| op.sector / au).collect();
            // With more open units than are written nothing is ever evicted.
            for open in 1..=units.len().min(OPEN) {
                let rows = shapes(searched, au, open);
                if let Some(f) = fit(&rows, &times, 4) {
                    tried.push((f.cost, au, open));
                }
            }
        }
        let Some(&(least, au, open)) = tried.iter().min_by(|a, b| a.0.total_cmp(&b.0)) else {
            self.notes.push("no writes, or too few: nothing is known of them".to_owned());
            return;
        };
        // As good as the best: within a hundredth, or half a microsecond a command.
        let limit = least * 1.01 + 0.5 * searched.len() as f64;
        let equal: Vec<_> = tried.iter().filter(|t| t.0 <= limit).collect();
        let rows = shapes(writes, au, open);
        let times: Vec<f64> = writes.iter().map(|op| op.service_us).collect();
        let Some(found) = fit(&rows, &times, 40).map(|f| f.refine(&rows, &times)) else { return };
        self.merges = rows.iter().map(|r| r[3] as u64).sum();
        if self.merges > 0 && equal.iter().all(|t| t.1 == au) {
            self.au_sectors = Some(au);
            let opens = || equal.iter().map(|t| t.2);
            self.open = opens().min().zip(opens().max());
            if let Some((low, high)) = self.open.filter(|(low, high)| low != high) {
                self.notes.push(format!("{low} to {high} open units explain the log equally well"));
            }
        } else {
            let why = if self.merges == 0 { "nothing was evicted" } else { "several sizes explain the log" };
            self.notes.push(format!("au and open are not known: {why}"));
        }
        [self.cmd_wr_seq_us, self.cmd_wr_rand_us] = [found.value(0), found.value(1)];
        self.wr_bps = found.value(2).and_then(rate);
        if self.au_sectors.is_some() {
            self.erase_us = found.value(3);
            self.copy_bps = found.value(4).and_then(rate);
        }
        let missing = [
            (self.cmd_wr_seq_us, "cmd + wr_seq", "no writes that continue another, or all of one size"),
            (
                self.cmd_wr_rand_us,
                "cmd + wr_rand",
                "no writes inside an open unit that jump, or all of one size",
            ),
            (self.wr_bps, "wr_bps", "all writes have one size"),
            (self.erase_us, "erase", "no merge, or always the same rest was copied"),
            (self.copy_bps, "copy_bps", "no merge, or always the same rest was copied"),
        ];
        self.note_missing(&missing);
        self.fit_stalls(&rows, &times, &found);
    }

    fn fit_stalls(&mut self, rows: &[[f64; 5]], times: &[f64], found: &Fit<5>) {
        let left: Vec<f64> = rows.iter().zip(times).map(|(r, t)| t - found.predict(r)).collect();
        let mut stalls: Vec<f64> = left.iter().copied().filter(|l| *l > found.limit).collect();
        stalls.sort_by(f64::total_cmp);
        let pieces: f64 = rows.iter().map(|r| r[0] + r[1]).sum();
        self.stalls = stalls.len();
        self.stall_p = Some(wilson(stalls.len() as f64, pieces));
        let calm: f64 = times.iter().sum::<f64>() - stalls.iter().sum::<f64>();
        let odd: f64 = left.iter().filter(|l| **l <= found.limit).map(|l| l.abs()).sum();
        self.unexplained = odd / calm.max(1.0);
        if self.unexplained > 0.1 {
            let percent = 100.0 * self.unexplained;
            self.notes.push(format!("the model leaves {percent:.0} % of the writes' time unexplained"));
        }
        if let (Some(&min), Some(&max)) = (stalls.first(), stalls.last())
            && stalls.len() >= 3
        {
            // Of n values uniform (here: their logarithms) with range R, each end lies more than R·t beyond the
            // outermost value with probability (1 + t)^(1 - n).
            let t = 0.025_f64.powf(-1.0 / (stalls.len() as f64 - 1.0)) - 1.0;
            let reach = (max / min).powf(t);
            self.stall_min_us = Some(Value { value: min, low: min / reach, high: min });
            self.stall_max_us = Some(Value { value: max, low: max, high: max * reach });
        } else {
            self.notes.push(format!("{} pauses: too few to tell their range", stalls.len()));
        }
    }

    fn note_missing(&mut self, values: &[(Option<Value>, &str, &str)]) {
        for (_, name, why) in values.iter().filter(|v| v.0.is_none()) {
            self.notes.push(format!("{name} is not known: {why}"));
        }
    }

    /// A profile with these numbers, if all were told. The sums are split by taking half of the least for `cmd`, which
    /// changes no service time; there is no cache.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let sums = [self.cmd_rd_access_us?, self.cmd_rd_seq_us?, self.cmd_wr_seq_us?, self.cmd_wr_rand_us?];
        let cmd = sums.iter().map(|s| s.value).fold(f64::MAX, f64::min).max(0.0) / 2.0;
        let us = |us: f64| Duration::from_nanos((us * 1000.0).round().max(0.0) as u64);
        let [rd_access, rd_seq, wr_seq, wr_rand] = sums.map(|s| us(s.value - cmd));
        let stall = |v: Option<Value>| v.map_or(Duration::ZERO, |v| us(v.value));
        let stalls = self.stall_min_us.is_some();
        Some(Profile {
            cmd: us(cmd),
            rd_access,
            rd_seq,
            rd_bps: self.rd_bps?.value as u64,
            wr_bps: self.wr_bps?.value as u64,
            wr_seq,
            wr_rand,
            au: self.au_sectors?,
            open: self.open?.0,
            copy_bps: self.copy_bps?.value as u64,
            erase: us(self.erase_us?.value),
            stall_p: self.stall_p.filter(|_| stalls).map_or(0.0, |p| p.value),
            stall_min: stall(self.stall_min_us),
            stall_max: stall(self.stall_max_us),
            cache: 0,
        })
    }
}

/// 10⁶ bytes, so that coefficients have about the size of the others.
fn bytes(sectors: u64) -> f64 {
    sectors as f64 * 512.0 / 1e6
}

/// Microseconds per 10⁶ bytes to bytes per second.
fn rate(v: Value) -> Option<Value> {
    let bps = |us: f64| 1e12 / us;
    (v.value > 0.0).then(|| Value {
        value: bps(v.value),
        low: bps(v.high),
        high: if v.low > 0.0 { bps(v.low) } else { f64::MAX },
    })
}

/// What each write did to a card with `open` units of `au` sectors: pieces that continued, pieces that did not, bytes,
/// merges, bytes copied.
fn shapes(writes: &[Op], au: u64, open: usize) -> Vec<[f64; 5]> {
    // Unit, the sector that continues it, sectors written; least recently written first.
    let mut set: VecDeque<(u64, u64, u64)> = VecDeque::with_capacity(open + 1);
    let shape = |op: &Op| {
        let mut row = [0.0; 5];
        let (mut at, end) = (op.sector, op.sector.saturating_add(op.sectors.into()));
        while at < end {
            let unit = at / au;
            let stop = end.min(unit.saturating_add(1).saturating_mul(au));
            if stop <= at {
                break;
            }
            let place = set.iter().rposition(|s| s.0 == unit).and_then(|i| set.remove(i));
            let (_, next, written) = place.unwrap_or_else(|| {
                if set.len() >= open
                    && let Some((_, _, written)) = set.pop_front()
                {
                    row[3] += 1.0;
                    row[4] += bytes(au.saturating_sub(written));
                }
                (unit, unit * au, 0)
            });
            row[usize::from(at != next)] += 1.0;
            row[2] += bytes(stop - at);
            set.push_back((unit, stop, written + (stop - at)));
            at = stop;
        }
        row
    };
    writes.iter().map(shape).collect()
}

/// Wilson's interval of 95 % for a share of `hits` in `n`.
fn wilson(hits: f64, n: f64) -> Value {
    let (z, n) = (1.96_f64, n.max(1.0));
    let p = hits / n;
    let middle = (p + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    Value { value: p, low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_mock::timing::Timing;
    use proptest::prelude::*;

    /// A workload that shows a card from every side: streams, jumps inside open units, evictions, both kinds of reads.
    fn log(profile: &Profile, seed: u64) -> Vec<Op> {
        let mut card = Timing::new(profile.clone(), seed);
        let (mut x, mut ops) = (seed | 1, Vec::new());
        let mut random = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % n
        };
        let units = profile.open as u64 * 2;
        for i in 0..4000_u64 {
            let (sector, sectors) = match i % 4 {
                0 => (random(units) * profile.au + random(profile.au - 64), 8 << random(3)),
                1 | 2 => (i / 2 * 256, 256),
                _ => (i / 16 * 64 + i % 16 * 16, 8 << random(2)),
            };
            let read = i % 4 == 3;
            let s = if read { card.read(sector, sectors) } else { card.write(sector, sectors) };
            ops.push(Op {
                read,
                sector,
                sectors: sectors as u32,
                service_us: (s.total.as_nanos() as f64 / 1e3).round(),
            });
            if i % 16 == 3 {
                let s = card.read(sector + sectors, 16).total;
                ops.push(Op {
                    read: true,
                    sector: sector + sectors,
                    sectors: 16,
                    service_us: s.as_nanos() as f64 / 1e3,
                });
            }
        }
        ops
    }

    #[test]
    fn each_preset_is_found_again_from_its_own_log() {
        for name in ["slow2018", "cheap", "a1"] {
            let p = Profile::named(name).unwrap();
            let f = fit_profile(&log(&p, 7));
            let us = |d: Duration| d.as_nanos() as f64 / 1e3;
            let near = |got: Option<Value>, want: f64, what: &str| {
                let got = got.unwrap_or_else(|| panic!("{name}: {what} is not told: {:?}", f.notes));
                assert!((got.value / want - 1.0).abs() < 0.02, "{name}: {what}: {got:?}, not {want}");
            };
            near(f.cmd_rd_access_us, us(p.cmd + p.rd_access), "rd_access");
            near(f.cmd_rd_seq_us, us(p.cmd + p.rd_seq), "rd_seq");
            near(f.cmd_wr_seq_us, us(p.cmd + p.wr_seq), "wr_seq");
            near(f.cmd_wr_rand_us, us(p.cmd + p.wr_rand), "wr_rand");
            near(f.rd_bps, p.rd_bps as f64, "rd_bps");
            near(f.wr_bps, p.wr_bps as f64, "wr_bps");
            near(f.copy_bps, p.copy_bps as f64, "copy_bps");
            near(f.erase_us, us(p.erase), "erase");
            assert_eq!((f.au_sectors, f.open), (Some(p.au), Some((p.open, p.open))), "{name}");
            assert!(f.stall_p.unwrap().holds(p.stall_p), "{name}: {:?}", f.stall_p);
        }
    }

    #[test]
    fn what_a_log_does_not_tell_is_said() {
        // One stream of one size: nothing but the time of a command is known.
        let ops: Vec<Op> =
            (0..50).map(|i| Op { read: false, sector: i * 8, sectors: 8, service_us: 1880.0 }).collect();
        let f = fit_profile(&ops);
        assert!(f.wr_bps.is_none() && f.au_sectors.is_none() && f.cmd_rd_seq_us.is_none());
        assert!(f.profile().is_none());
        let notes = f.notes.join("\n");
        for part in ["wr_bps is not known", "au and open are not known", "too few to tell their range"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        assert_eq!(fit_profile(&[]).writes, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]
        #[test]
        fn any_log_gives_an_answer(ops in prop::collection::vec((any::<bool>(), any::<u64>(), 1..2000_u32, 0.0..1e9_f64), 0..40)) {
            let ops: Vec<Op> = ops.into_iter()
                .map(|(read, sector, sectors, service_us)| Op { read, sector: sector >> 1, sectors, service_us })
                .collect();
            let f = fit_profile(&ops);
            prop_assert_eq!(f.reads + f.writes, ops.len());
        }
    }
}

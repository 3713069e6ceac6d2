//! What the JSON of `fio` 3 (`--output-format=json` or `json+`) tells of a card: sizes and latency percentiles of its jobs.
//!
//! It knows no place of any request, so it can tell access times and rates, but neither allocation units nor open ones.

use std::io::{self, BufRead};

use serde_json::{Map, Value as Json};

use super::linear::fit as fit_lines;
use super::{Fitted, Value, bytes, rate};
use crate::units::parse_size;

/// Bytes of a file that are read: a real one has some hundred thousand.
pub const LONGEST: u64 = 64 << 20;
/// A latency of so many medians, and at least [`PAUSE`], is a pause of the card.
const MEDIANS: f64 = 4.0;
/// Microseconds.
const PAUSE: f64 = 2_000.0;

/// Whether what follows is an object of JSON (fio may print a warning before it).
///
/// # Errors
/// What `input` says.
pub fn is_json(input: &mut dyn BufRead) -> io::Result<bool> {
    let begin = input.fill_buf()?.trim_ascii_start();
    Ok(begin.starts_with(b"{") || begin.starts_with(b"fio: "))
}

/// How a job goes through its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Sequential,
    Random,
}

/// One direction of one job.
#[derive(Clone, Debug)]
struct Sample {
    read: bool,
    way: Way,
    bytes: u64,
    ios: u64,
    /// Microseconds: the percentiles 40, 50 and 60.
    middle: [f64; 3],
    /// All percentiles, share and microseconds, rising; the longest last.
    tail: Vec<(f64, f64)>,
}

/// Fits what the jobs tell.
///
/// # Errors
/// One line: this is not fio's JSON, or holds no job that reads or writes.
pub fn fit(text: &[u8]) -> Result<Fitted, String> {
    let begin = text.iter().position(|&b| b == b'{').unwrap_or(0);
    let root: Json = serde_json::from_slice(text.get(begin..).unwrap_or_default())
        .map_err(|e| format!("this is no whole JSON: {e}"))?;
    let Some(jobs) = root.get("jobs").and_then(Json::as_array) else {
        return Err("this JSON has no `jobs`: write it with `fio --output-format=json`".to_owned());
    };
    let global = root.get("global options").and_then(Json::as_object);
    let mut out = Fitted::default();
    let mut samples = Vec::new();
    for job in jobs {
        let name = job.get("jobname").and_then(Json::as_str).unwrap_or("?");
        let own = job.get("job options").and_then(Json::as_object);
        match of_job(job, &Options { own, global }) {
            Ok(found) if found.is_empty() => {
                out.notes.push(format!("job `{name}` neither read nor wrote anything"));
            }
            Ok(found) => samples.extend(found),
            Err(why) => out.notes.push(format!("job `{name}` is left out: {why}")),
        }
    }
    if samples.is_empty() {
        let why = out.notes.first().cloned().unwrap_or_else(|| "it has no jobs".to_owned());
        return Err(format!("no job of it tells anything of a card ({why})"));
    }
    let count = |read: bool| samples.iter().filter(|s| s.read == read).map(|s| s.ios).sum::<u64>() as usize;
    (out.reads, out.writes) = (count(true), count(false));
    let reads: Vec<&Sample> = samples.iter().filter(|s| s.read).collect();
    let writes: Vec<&Sample> = samples.iter().filter(|s| !s.read).collect();
    [out.cmd_rd_access_us, out.cmd_rd_seq_us, out.rd_bps] = lines(&reads);
    [out.cmd_wr_rand_us, out.cmd_wr_seq_us, out.wr_bps] = lines(&writes);
    let why = "no such job, or all of one block size (a rate needs two, as bs=4k and bs=1m)";
    out.note_missing(&[
        (out.cmd_rd_access_us, "cmd + rd_access", why),
        (out.cmd_rd_seq_us, "cmd + rd_seq", why),
        (out.rd_bps, "rd_bps", why),
        (out.cmd_wr_seq_us, "cmd + wr_seq", why),
        (out.cmd_wr_rand_us, "cmd + wr_rand", why),
        (out.wr_bps, "wr_bps", why),
    ]);
    if out.cmd_wr_rand_us.is_some() {
        out.notes.push(
            "merges of evicted units are in cmd + wr_rand, unless the random writes stayed within the units that the card \
             keeps open (try size=4m)"
                .to_owned(),
        );
    }
    out.notes.push(
        "au, open, erase and copy_bps are not known: fio tells no place of a request; `card fit` of a trace of the block layer does"
            .to_owned(),
    );
    pauses(&mut out, &writes);
    out.notes.push("the time of the wire, the driver and the system call is in all of these".to_owned());
    Ok(out)
}

/// The options of a job and those of all.
struct Options<'a> {
    own: Option<&'a Map<String, Json>>,
    global: Option<&'a Map<String, Json>>,
}

impl<'a> Options<'a> {
    fn get(&self, names: &[&str]) -> Option<&'a str> {
        let of = |map: Option<&'a Map<String, Json>>| names.iter().find_map(|n| map?.get(*n)?.as_str());
        of(self.own).or_else(|| of(self.global))
    }

    fn number(&self, names: &[&str], otherwise: u64) -> u64 {
        self.get(names).map_or(otherwise, |text| text.trim().parse().unwrap_or(0))
    }
}

/// The directions of a job; why it tells nothing of a card otherwise.
fn of_job(job: &Json, options: &Options<'_>) -> Result<Vec<Sample>, String> {
    if let Some(error) = job.get("error").and_then(Json::as_i64).filter(|&e| e != 0) {
        return Err(format!("it ended with error {error}"));
    }
    let mode = options.get(&["rw", "readwrite"]).unwrap_or("read");
    let mode = mode.split(':').next().unwrap_or(mode);
    let way = match mode {
        "read" | "write" => Way::Sequential,
        "randread" | "randwrite" | "randrw" => Way::Random,
        "rw" | "readwrite" => {
            return Err("its reads and writes, each in sequence, interrupt each other".to_owned());
        }
        other => return Err(format!("rw={other} is not understood")),
    };
    if options.number(&["direct"], 0) != 1 && options.number(&["buffered"], 1) != 0 {
        return Err("it went through the page cache: direct=1 asks the card".to_owned());
    }
    let depth = options.number(&["iodepth"], 1).max(1).saturating_mul(options.number(&["numjobs"], 1).max(1));
    if depth != 1 {
        return Err(format!(
            "its latencies are those of {depth} requests at a time: iodepth=1, numjobs=1 asks the card alone"
        ));
    }
    if options.get(&["bssplit", "bsrange", "blocksize_range"]).is_some() {
        return Err("its requests have several sizes".to_owned());
    }
    let sizes = options.get(&["bs", "blocksize"]).unwrap_or("4k");
    let mut samples = Vec::new();
    for (key, read) in [("read", true), ("write", false)] {
        let Some(side) = job.get(key).filter(|side| count(side) > 0) else { continue };
        // bs=4k,64k: reads, writes; a missing one is that before it.
        let size = sizes.split(',').take(if read { 1 } else { 2 }).filter(|s| !s.is_empty()).last();
        let size = size.unwrap_or("4k");
        let bytes = parse_size(size).map_err(|e| format!("bs={sizes}: {e}"))?;
        let tail = tail(side)?;
        let at = |share: f64| {
            let above = tail.iter().find(|p| p.0 >= share - 1e-9);
            above.or(tail.last()).map_or(0.0, |p| p.1)
        };
        let middle = [at(0.4), at(0.5), at(0.6)];
        samples.push(Sample { read, way, bytes, ios: count(side), middle, tail });
    }
    Ok(samples)
}

fn count(side: &Json) -> u64 {
    side.get("total_ios").and_then(Json::as_u64).unwrap_or(0)
}

/// The percentiles of a direction's completion latencies (of its whole ones if it has no others): shares of 1 and
/// microseconds, neither ever falling.
fn tail(side: &Json) -> Result<Vec<(f64, f64)>, String> {
    let found = ["clat_ns", "lat_ns"]
        .iter()
        .map(|key| (side.get(*key), 1e-3))
        .chain([(side.get("clat"), 1.0), (side.get("lat"), 1.0)])
        .find_map(|(lat, unit)| Some((lat?, lat?.get("percentile")?.as_object()?, unit)));
    let Some((lat, percentiles, unit)) = found.filter(|(_, percentiles, _)| !percentiles.is_empty()) else {
        return Err("it has no latency percentiles (clat_percentiles=0)".to_owned());
    };
    let time = |ns: &Json| ns.as_f64().filter(|ns| (0.0..1e15).contains(ns)).map(|ns| ns * unit);
    let mut tail = Vec::new();
    for (name, ns) in percentiles {
        let share = name.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
        let share = share.ok_or_else(|| format!("its percentile {name:?} is not between 0 and 100"))?;
        let us = time(ns).ok_or_else(|| format!("its percentile {name:?} is no time: {ns}"))?;
        tail.push((share / 100.0, us));
    }
    tail.sort_by(|a, b| a.0.total_cmp(&b.0));
    if tail.windows(2).any(|pair| pair[1].1 < pair[0].1) {
        return Err("its latencies fall where its percentiles rise".to_owned());
    }
    if let Some(max) = lat.get("max") {
        let max = time(max).ok_or_else(|| format!("its longest latency is no time: {max}"))?;
        // A percentile is that of a bucket, which may end above the longest.
        let last = tail.last().map_or(0.0, |p| p.1);
        tail.push((1.0, max.max(last)));
    }
    Ok(tail)
}

/// Access time of what jumps, of what continues, and the rate: lines through the medians, their interval those through the
/// 40th and the 60th percentile.
fn lines(samples: &[&Sample]) -> [Option<Value>; 3] {
    let rows: Vec<[f64; 3]> = samples
        .iter()
        .map(|s| {
            let random = f64::from(u8::from(s.way == Way::Random));
            [random, 1.0 - random, bytes(s.bytes / 512)]
        })
        .collect();
    let of = |which: usize| {
        let times: Vec<f64> = samples.iter().map(|s| s.middle[which]).collect();
        let found = fit_lines(&rows, &times, 25).map(|f| f.refine(&rows, &times));
        [0, 1, 2].map(|i| found.as_ref().and_then(|f| f.value(i)).map(|v| v.value))
    };
    let (low, middle, high) = (of(0), of(1), of(2));
    let value = |i: usize| {
        let all = [low[i]?, middle[i]?, high[i]?];
        let ends = |f: fn(f64, f64) -> f64| all.into_iter().fold(all[1], f);
        Some(Value { value: all[1], low: ends(f64::min), high: ends(f64::max) })
    };
    [value(0), value(1), value(2).and_then(rate)]
}

/// The writes far above the median.
fn pauses(out: &mut Fitted, writes: &[&Sample]) {
    let ios: f64 = writes.iter().map(|s| s.ios as f64).sum();
    let (mut least, mut most, mut low, mut high) = (f64::MAX, 0.0_f64, 0.0, 0.0);
    for s in writes {
        let limit = (s.middle[1] * MEDIANS).max(s.middle[1] + PAUSE);
        // The share of pauses lies between two percentiles: the last below the limit and the first above it.
        let above = s.tail.iter().find(|p| p.1 > limit);
        let below = s.tail.iter().rev().find(|p| p.1 <= limit).map_or(0.0, |p| p.0);
        if let Some(&(share, us)) = above {
            low += (1.0 - share).max(1.0 / s.ios as f64) * s.ios as f64;
            high += (1.0 - below) * s.ios as f64;
            least = least.min(us - s.middle[1]);
            most = most.max(s.tail.last().map_or(us, |p| p.1) - s.middle[1]);
        }
    }
    if ios == 0.0 {
        return;
    }
    if high == 0.0 {
        out.notes.push("no write took much longer than the others: no pauses".to_owned());
        return;
    }
    out.stalls = low.round() as usize;
    out.stall_p = Some(Value { value: (low * high).sqrt() / ios, low: low / ios, high: high / ios });
    out.stall_min_us = Some(Value { value: least, low: 0.0, high: least });
    out.stall_max_us = Some(Value { value: most, low: most, high: f64::MAX });
}

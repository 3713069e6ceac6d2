//! Measured against what the scenario file expects.

use super::cell::{Cell, PARTS};
use super::run::Spec;
use serde_json::{Map, Value};

/// The name under which the file knows this policy and its settings. The file's `bfq` is the kernel's default, which raises
/// weights; ours does not unless told.
#[must_use]
pub fn key(spec: &Spec) -> Option<&'static str> {
    let settings: Vec<_> = spec.settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    match (spec.name.as_str(), settings.as_slice()) {
        ("ftb", []) => Some("ftb"),
        ("mq-deadline", []) => Some("dl"),
        ("bfq", [("low_latency", "1")]) => Some("bfq"),
        ("bfq", []) => Some("bfq-ll0"),
        ("bfq", [("slice_idle", "0")]) => Some("bfq-si0"),
        _ => None,
    }
}

/// One number beside what was expected of it, the worst over the seeds of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// `eff`, or load and which number.
    pub what: String,
    /// A number of the card's own making is left out: efficiency, `s99`, `smax`.
    pub stall_free: bool,
    /// Larger is better.
    pub more: bool,
    /// Ours.
    pub measured: f64,
    /// The file's.
    pub expected: f64,
}

impl Compared {
    /// Measured over expected; 1 if both are none (infinite).
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.measured == self.expected { 1.0 } else { self.measured / self.expected }
    }
    /// At most 20 % worse.
    #[must_use]
    pub fn met(&self) -> bool {
        if self.more { self.ratio() >= 0.8 } else { self.ratio() <= 1.2 }
    }
    /// At most 20 % apart.
    #[must_use]
    pub fn near(&self) -> bool {
        (0.8..=1.2).contains(&self.ratio())
    }
}

/// All numbers of a cell that the file expects something of.
#[must_use]
pub fn compare(cell: &Cell, spec: &Spec, expected: &Map<String, Value>) -> Vec<Compared> {
    let mut out = Vec::new();
    let Some(all) = key(spec).and_then(|k| expected.get(&format!("{}/{}", cell.card, cell.scenario))?.get(k))
    else {
        return out;
    };
    let mut add = |what: String, stall_free: bool, more: bool, measured: f64, range: Option<&Value>| {
        // Smallest and largest over the seeds; a latency of 10⁹ ms stands for none.
        let number = |i: usize| range?.get(i)?.as_f64();
        if let Some(expected) = number(usize::from(!more)) {
            let expected = if expected >= 1e9 { f64::INFINITY } else { expected };
            out.push(Compared { what, stall_free, more, measured, expected });
        }
    };
    add("eff".into(), true, true, cell.least_efficiency(), all.get("eff"));
    add("MB/s".into(), false, true, cell.mib_s(|_| true), all.get("total_mbs"));
    for s in cell.sync_streams() {
        let of = |name: &str| all.get("streams").and_then(|v| v.get(s)?.get(name));
        for (name, part) in PARTS {
            add(format!("{s} {name}"), false, false, cell.worst(s, false, part), of(name));
        }
        for ((_, part), short) in PARTS.into_iter().skip(1).zip(["s99", "smax"]) {
            add(format!("{s} {short}"), true, false, cell.worst(s, true, part), of(short));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_is_met_but_may_not_be_near() {
        let c = |more, measured, expected| Compared {
            what: "x".into(),
            stall_free: true,
            more,
            measured,
            expected,
        };
        assert!(c(false, 50.0, 100.0).met() && !c(false, 50.0, 100.0).near());
        assert!(!c(false, 121.0, 100.0).met() && c(false, 119.0, 100.0).near());
        assert!(!c(true, 0.7, 0.9).met() && c(true, 0.9, 0.9).near());
        let none = c(false, f64::INFINITY, f64::INFINITY);
        assert!(none.met() && none.near());
        assert!(!c(false, f64::INFINITY, 5.0).met() && c(false, 5.0, f64::INFINITY).met());
    }

    #[test]
    fn the_files_bfq_is_the_one_that_raises() {
        let spec = |name: &str, s: &[(&str, &str)]| Spec {
            name: name.into(),
            settings: s.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        };
        assert_eq!(key(&spec("bfq", &[("low_latency", "1")])), Some("bfq"));
        assert_eq!(key(&spec("bfq", &[])), Some("bfq-ll0"));
        assert_eq!(key(&spec("mq-deadline", &[("fifo_batch", "1")])), None);
    }
}

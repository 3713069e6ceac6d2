//! A scenario file: cards, loads and what a prototype measured, as JSON.
//!
//! Everything read is checked, so that no run can overflow or stand still; an error names the field.

use mmc_mock::scenario::Card;
use serde_json::{Map, Value};

/// A file, in its own order.
#[derive(Clone, Debug)]
pub struct Scenarios {
    /// Cards by name.
    pub cards: Vec<(String, Card)>,
    /// Workloads by name.
    pub scenarios: Vec<(String, Scenario)>,
    /// What is expected: `card/scenario` to policy to numbers, as [`crate::compare::expect`] reads it.
    pub expected: Map<String, Value>,
    /// Tags of the pool.
    pub tags: usize,
}

/// One workload.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Length of a run in ns.
    pub length: u64,
    /// Who does what.
    pub loads: Vec<Load>,
}

/// A stream of requests, or what disturbs the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Under which its results are shown.
    pub name: String,
    /// When it begins, in ns.
    pub start: u64,
    /// What it does.
    pub kind: Kind,
}

/// What a load does. Times in ns, sizes in sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writeback: sequential async writes from one thread that blocks for a tag.
    Writeback {
        /// Stream number.
        pid: u32,
        /// First sector.
        base: u64,
        /// Of a request.
        sectors: u32,
        /// Requests kept outstanding.
        window: u64,
    },
    /// Closed loops of sync requests, each followed by a pause.
    Closed {
        /// Stream number.
        pid: u32,
        /// First sector.
        base: u64,
        /// Of a request.
        sectors: u32,
        /// Pause.
        think: u64,
        /// Anywhere in 8·`span` sectors, else sequential.
        random: bool,
        /// Loops.
        depth: u64,
        /// Writes instead of reads.
        write: bool,
        /// Range of random requests in units of 8 sectors.
        span: u64,
    },
    /// One sync request each period, give or take a tenth.
    Periodic {
        /// Stream number.
        pid: u32,
        /// First sector.
        base: u64,
        /// Of a request.
        sectors: u32,
        /// Time between two.
        period: u64,
        /// Writes (sequential) instead of reads (random).
        write: bool,
    },
    /// Groups of sync writes submitted together, waited for, and a pause; sequential, over and over the first 16384 sectors.
    Journal {
        /// Stream number.
        pid: u32,
        /// First sector.
        base: u64,
        /// Of a request.
        sectors: u32,
        /// Requests of a group.
        group: u64,
        /// Pause.
        think: u64,
    },
    /// File operations: a read of 4 KiB by one stream, a pause, a journal write of 8 KiB by another, a pause.
    FileOps {
        /// Stream of the reads.
        reader: u32,
        /// Stream of the writes.
        journal: u32,
        /// First sector.
        base: u64,
        /// Pause.
        think: u64,
    },
    /// Again and again a new stream that reads 4 KiB three times.
    Churn {
        /// First stream number.
        pid: u32,
        /// First sector.
        base: u64,
        /// Time between two new streams.
        gap: u64,
    },
    /// Changes the weight of a stream between 1000 and 10.
    Flip {
        /// Whose.
        pid: u32,
        /// Time between two changes.
        gap: u64,
    },
    /// Makes the write that runs when a sync request arrives stall for 400 ms, at most every 1.5 s.
    WorstStalls,
}

/// A JSON object and the way to it, for errors.
struct At<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> At<'a> {
    fn new(path: String, value: &'a Value) -> Result<Self, String> {
        match value.as_object() {
            Some(map) => Ok(Self { path, map }),
            None => Err(format!("`{path}` is not an object")),
        }
    }
    fn value(&self, key: &str) -> Result<&'a Value, String> {
        self.map.get(key).ok_or_else(|| format!("`{}{key}` is missing", self.path))
    }
    fn object(&self, key: &str) -> Result<At<'a>, String> {
        let value = self.value(key)?;
        match At::new(format!("{}{key}", self.path), value) {
            Ok(at) => Ok(At { path: format!("{}.", at.path), ..at }),
            Err(e) => Err(e),
        }
    }
    fn text(&self, key: &str) -> Result<&'a str, String> {
        self.value(key)?.as_str().ok_or_else(|| format!("`{}{key}` is not a text", self.path))
    }
    /// A whole number of `from..=to`.
    fn number(&self, key: &str, from: u64, to: u64) -> Result<u64, String> {
        self.value(key)?
            .as_u64()
            .filter(|n| (from..=to).contains(n))
            .ok_or_else(|| format!("`{}{key}` is not a whole number from {from} to {to}", self.path))
    }
    fn or(&self, key: &str, from: u64, to: u64, default: u64) -> Result<u64, String> {
        if self.map.contains_key(key) { self.number(key, from, to) } else { Ok(default) }
    }
    fn flag(&self, key: &str) -> Result<bool, String> {
        match self.value(key)? {
            Value::Bool(b) => Ok(*b),
            Value::Number(n) if n.as_u64().is_some_and(|n| n < 2) => Ok(n.as_u64() == Some(1)),
            _ => Err(format!("`{}{key}` is not true or false (1 or 0)", self.path)),
        }
    }
}

/// Reads a file's text.
///
/// # Errors
/// One line that names the field and what is accepted.
pub fn parse(text: &str) -> Result<Scenarios, String> {
    let root: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let root = match root.as_object() {
        Some(map) => At { path: String::new(), map },
        None => return Err("not a JSON object with `cards` and `scenarios`".into()),
    };
    let cards = root.object("cards")?;
    let cards = cards
        .map
        .keys()
        .map(|name| Ok((name.clone(), card(&cards.object(name)?)?)))
        .collect::<Result<Vec<_>, String>>()?;
    let all = root.object("scenarios")?;
    let mut scenarios = Vec::new();
    for name in all.map.keys() {
        scenarios.push((name.clone(), scenario(&all.object(name)?)?));
    }
    let expected = match root.map.get("expected") {
        Some(v) => v.as_object().cloned().ok_or("`expected` is not an object")?,
        None => Map::new(),
    };
    let tags = match root.map.contains_key("ftb_params") {
        true => root.object("ftb_params")?.or("pool", 1, 65_535, 128)?,
        false => 128,
    };
    if cards.is_empty() {
        return Err("`cards` is empty: name at least one".into());
    }
    if scenarios.is_empty() {
        return Err("`scenarios` is empty: name at least one".into());
    }
    Ok(Scenarios { cards, scenarios, expected, tags: tags as usize })
}

fn card(at: &At<'_>) -> Result<Card, String> {
    let n = |key| at.number(key, 0, u64::MAX);
    let stall = at.value("gc_stall_ms_uniform")?.as_array().map(Vec::as_slice).unwrap_or_default();
    let gc_stall = match stall {
        [a, b] => a.as_u64().zip(b.as_u64()),
        _ => None,
    }
    .filter(|(a, b)| a.max(b) <= &100_000)
    .ok_or_else(|| format!("`{}gc_stall_ms_uniform` is not two whole numbers of ms", at.path))?;
    let card = Card {
        read_setup_seq: n("read_setup_seq_ns")?,
        read_setup_rand: n("read_setup_rand_ns")?,
        read_per_kib: n("read_ns_per_kib")?,
        write_setup: n("write_setup_ns")?,
        write_per_kib: n("write_ns_per_kib")?,
        au_switch: n("au_switch_ns")?,
        open_aus: at.number("open_aus_lru", 1, 1024)? as usize,
        au_sectors: n("au_sectors")?,
        gc_every: at.number("gc_every_mib_written", 1, 1 << 29)? * 2048,
        gc_stall: (gc_stall.0 * 1_000_000, gc_stall.1 * 1_000_000),
        slots: at.number("device_slots", 1, 1024)? as usize,
        host_gap: n("host_gap_ns_if_not_prepared")?,
        units: at.number("parallel_units", 1, 1024)? as usize,
        cache_sectors: n("cache_sectors")?,
        cache_drain_per_kib: n("cache_drain_ns_per_kib")?,
    };
    card.check().map_err(|(field, accepted)| {
        format!("`{}{field}` is out of range: accepted are {accepted}", at.path)
    })?;
    Ok(card)
}

const HOUR: u64 = 3_600_000_000_000;
/// Loads that act by the clock, so that no run has more than some millions of events.
const MS: u64 = 1_000_000;

fn scenario(at: &At<'_>) -> Result<Scenario, String> {
    let length = at.number("seconds", 1, 3600)? * 1_000_000_000;
    let streams = at.value("streams")?;
    let streams = streams.as_array().ok_or_else(|| format!("`{}streams` is not a list", at.path))?;
    let mut loads = Vec::new();
    for (i, s) in streams.iter().enumerate() {
        let path = format!("{}streams[{i}]", at.path);
        let s = At { path: format!("{path}."), ..At::new(path, s)? };
        loads.push(load(&s)?);
    }
    Ok(Scenario { length, loads })
}

fn load(at: &At<'_>) -> Result<Load, String> {
    let pid = |key| at.number(key, 0, 1 << 31).map(|n| n as u32);
    let base = || at.number("base", 0, 1 << 40);
    let sectors = || at.number("sectors", 1, 65_535).map(|n| n as u32);
    let think = || at.number("think_ns", 0, HOUR);
    let gap = || at.number("gap_ns", MS, HOUR);
    let kind = match at.text("kind")? {
        "Wb" => Kind::Writeback {
            pid: pid("pid")?,
            base: base()?,
            sectors: sectors()?,
            window: at.number("win", 1, 65_535)?,
        },
        "Rd" => Kind::Closed {
            pid: pid("pid")?,
            base: base()?,
            sectors: sectors()?,
            think: think()?,
            random: at.flag("random")?,
            depth: at.number("qd", 1, 1024)?,
            write: at.flag("w")?,
            span: at.number("span", 1, 1 << 36)?,
        },
        "Per" => Kind::Periodic {
            pid: pid("pid")?,
            base: base()?,
            sectors: sectors()?,
            period: at.number("period_ns", MS, HOUR)?,
            write: at.flag("w")?,
        },
        "Jr" => Kind::Journal {
            pid: pid("pid")?,
            base: base()?,
            sectors: sectors()?,
            group: at.number("k", 1, 1024)?,
            think: think()?,
        },
        "Ping2" => Kind::FileOps { reader: pid("a")?, journal: pid("b")?, base: base()?, think: think()? },
        "Churn" => Kind::Churn { pid: pid("pid")?, base: base()?, gap: gap()? },
        "Flip" => Kind::Flip { pid: pid("pid")?, gap: gap()? },
        "Worst" => Kind::WorstStalls,
        other => {
            return Err(format!(
                "`{}kind` is '{other}': accepted are Wb, Rd, Per, Jr, Ping2, Churn, Flip, Worst",
                at.path
            ));
        }
    };
    Ok(Load { name: at.text("name")?.to_owned(), start: at.number("start_ns", 0, HOUR)?, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_that_is_wrong_is_named_with_the_way_to_it() {
        let good = include_str!("../../tests/data/scenarios-small.json");
        assert_eq!(parse(good).unwrap().cards.len(), 3);
        for (from, to, named) in [
            ("\"qd\": 1", "\"qd\": 0", "`scenarios.mixed.streams[1].qd`"),
            ("\"kind\": \"Jr\"", "\"kind\": \"Jx\"", "`scenarios.mixed.streams[2].kind` is 'Jx'"),
            ("\"seconds\": 4", "\"seconds\": \"4\"", "`scenarios.mixed.seconds`"),
            ("\"device_slots\": 2", "\"device_slots\": 0", "`cards.base.device_slots`"),
            ("\"au_switch_ns\"", "\"au_switch\"", "`cards.base.au_switch_ns` is missing"),
            ("\"read_setup_seq_ns\": 200000", "\"read_setup_seq_ns\": 2", "`cards.base.read_setup_seq_ns`"),
            ("\"scenarios\"", "\"scenario\"", "`scenarios` is missing"),
            ("{", "[", "not JSON"),
        ] {
            let e = parse(&good.replacen(from, to, 1)).unwrap_err();
            assert!(e.contains(named) && !e.contains('\n'), "{to}: {e}");
        }
    }

    /// A file with one card and one load of each kind.
    fn each_kind() -> Value {
        json!({
            "cards": { "c": {
                "read_setup_seq_ns": 1_000, "read_setup_rand_ns": 2_000, "read_ns_per_kib": 3, "write_setup_ns": 4_000,
                "write_ns_per_kib": 5, "au_switch_ns": 6, "open_aus_lru": 7, "au_sectors": 8, "gc_every_mib_written": 9,
                "gc_stall_ms_uniform": [10, 11], "device_slots": 12, "host_gap_ns_if_not_prepared": 13,
                "parallel_units": 14, "cache_sectors": 15, "cache_drain_ns_per_kib": 16,
            } },
            "scenarios": { "s": { "seconds": 20, "streams": [
                { "kind": "Wb", "name": "a", "start_ns": 1, "pid": 2, "base": 3, "sectors": 4, "win": 5 },
                { "kind": "Rd", "name": "b", "start_ns": 2, "pid": 3, "base": 4, "sectors": 5, "think_ns": 6, "random": true,
                  "qd": 7, "w": 0, "span": 8 },
                { "kind": "Per", "name": "c", "start_ns": 3, "pid": 4, "base": 5, "sectors": 6, "period_ns": MS, "w": true },
                { "kind": "Jr", "name": "d", "start_ns": 4, "pid": 5, "base": 6, "sectors": 7, "k": 8, "think_ns": 9 },
                { "kind": "Ping2", "name": "e", "start_ns": 5, "a": 6, "b": 7, "base": 8, "think_ns": 9 },
                { "kind": "Churn", "name": "f", "start_ns": 6, "pid": 7, "base": 8, "gap_ns": MS },
                { "kind": "Flip", "name": "g", "start_ns": 7, "pid": 8, "gap_ns": MS + 1 },
                { "kind": "Worst", "name": "h", "start_ns": 8 },
            ] } },
            "ftb_params": { "pool": 99 },
            "expected": { "c/s": {} },
        })
    }

    #[test]
    fn every_field_is_where_it_belongs_and_in_its_unit() {
        let read = parse(&each_kind().to_string()).unwrap();
        let (name, card) = &read.cards[0];
        let expected = Card {
            read_setup_seq: 1_000,
            read_setup_rand: 2_000,
            read_per_kib: 3,
            write_setup: 4_000,
            write_per_kib: 5,
            au_switch: 6,
            open_aus: 7,
            au_sectors: 8,
            gc_every: 9 * 2_048,
            gc_stall: (10_000_000, 11_000_000),
            slots: 12,
            host_gap: 13,
            units: 14,
            cache_sectors: 15,
            cache_drain_per_kib: 16,
        };
        assert_eq!((name.as_str(), format!("{card:?}")), ("c", format!("{expected:?}")));
        let (name, scenario) = &read.scenarios[0];
        assert_eq!((name.as_str(), scenario.length), ("s", 20_000_000_000));
        let kinds = [
            Kind::Writeback { pid: 2, base: 3, sectors: 4, window: 5 },
            Kind::Closed {
                pid: 3,
                base: 4,
                sectors: 5,
                think: 6,
                random: true,
                depth: 7,
                write: false,
                span: 8,
            },
            Kind::Periodic { pid: 4, base: 5, sectors: 6, period: MS, write: true },
            Kind::Journal { pid: 5, base: 6, sectors: 7, group: 8, think: 9 },
            Kind::FileOps { reader: 6, journal: 7, base: 8, think: 9 },
            Kind::Churn { pid: 7, base: 8, gap: MS },
            Kind::Flip { pid: 8, gap: MS + 1 },
            Kind::WorstStalls,
        ];
        let loads = kinds.into_iter().zip(1..).zip(["a", "b", "c", "d", "e", "f", "g", "h"]);
        let loads: Vec<_> =
            loads.map(|((kind, start), name)| Load { name: name.into(), start, kind }).collect();
        assert_eq!(scenario.loads, loads);
        assert_eq!((read.tags, read.expected.len()), (99, 1));
    }

    #[test]
    fn every_field_has_its_ends_and_must_be_there() {
        const ALL: u64 = 100_000_000_000;
        // The field, the least and the greatest that is accepted.
        let mut fields =
            vec![("scenarios.s.seconds".to_owned(), 1, 3_600), ("ftb_params.pool".to_owned(), 1, 65_535)];
        for (name, from, to) in [
            ("read_setup_seq_ns", 1_000, ALL),
            ("read_setup_rand_ns", 1_000, ALL),
            ("write_setup_ns", 1_000, ALL),
            ("read_ns_per_kib", 0, ALL),
            ("write_ns_per_kib", 0, ALL),
            ("au_switch_ns", 0, ALL),
            ("host_gap_ns_if_not_prepared", 0, ALL),
            ("cache_drain_ns_per_kib", 0, ALL),
            ("cache_sectors", 0, 1 << 32),
            ("open_aus_lru", 1, 1_024),
            ("au_sectors", 1, 1 << 32),
            ("gc_every_mib_written", 1, 1 << 29),
            ("device_slots", 1, 1_024),
            ("parallel_units", 1, 1_024),
        ] {
            fields.push((format!("cards.c.{name}"), from, to));
        }
        for (i, names) in [
            "pid base sectors win",
            "pid base sectors think_ns qd span",
            "pid base sectors period_ns",
            "pid base sectors k think_ns",
            "a b base think_ns",
            "pid base gap_ns",
            "pid gap_ns",
            "",
        ]
        .into_iter()
        .enumerate()
        {
            for name in names.split_whitespace().chain(["start_ns"]) {
                let (from, to) = match name {
                    "pid" | "a" | "b" => (0, 1 << 31),
                    "base" => (0, 1 << 40),
                    "sectors" | "win" => (1, 65_535),
                    "qd" | "k" => (1, 1_024),
                    "span" => (1, 1 << 36),
                    "period_ns" | "gap_ns" => (MS, HOUR),
                    _ => (0, HOUR),
                };
                fields.push((format!("scenarios.s.streams[{i}].{name}"), from, to));
            }
        }
        for (path, from, to) in fields {
            let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let with = |value: Value| {
                let mut file = each_kind();
                file.pointer_mut(parent).unwrap()[name] = value;
                parse(&file.to_string())
            };
            for good in [from, to] {
                with(good.into()).unwrap_or_else(|e| panic!("{path} {good}: {e}"));
            }
            for bad in [
                json!(to + 1),
                json!("7"),
                json!(-1),
                json!(0.5),
                if from > 0 { json!(from - 1) } else { Value::Null },
            ] {
                let e = with(bad.clone()).expect_err(&format!("{path} {bad}"));
                assert!(e.starts_with(&format!("`{path}` is ")), "{bad}: {e}");
            }
            let mut file = each_kind();
            file.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
            match parse(&file.to_string()) {
                Ok(read) => assert_eq!((path.as_str(), read.tags), ("ftb_params.pool", 128)),
                Err(e) => assert_eq!(e, format!("`{path}` is missing")),
            }
        }
    }

    #[test]
    fn what_is_not_of_its_kind_is_told_by_its_place() {
        for (pointer, value, error) in [
            ("/cards", json!([]), "`cards` is not an object"),
            ("/cards/c", json!(1), "`cards.c` is not an object"),
            ("/cards", json!({}), "`cards` is empty: name at least one"),
            (
                "/cards/c/gc_stall_ms_uniform",
                json!([1]),
                "`cards.c.gc_stall_ms_uniform` is not two whole numbers of ms",
            ),
            (
                "/cards/c/gc_stall_ms_uniform",
                json!([1, 2, 3]),
                "`cards.c.gc_stall_ms_uniform` is not two whole numbers of ms",
            ),
            (
                "/cards/c/gc_stall_ms_uniform",
                json!([1, 100_001]),
                "`cards.c.gc_stall_ms_uniform` is not two whole numbers of ms",
            ),
            (
                "/cards/c/gc_stall_ms_uniform",
                json!([2, 1]),
                "`cards.c.gc_stall_ms_uniform` is out of range: accepted are two numbers of ms, the smaller first, up to 100000",
            ),
            ("/scenarios", json!({}), "`scenarios` is empty: name at least one"),
            ("/scenarios/s/streams", json!({}), "`scenarios.s.streams` is not a list"),
            ("/scenarios/s/streams/0", json!([]), "`scenarios.s.streams[0]` is not an object"),
            ("/scenarios/s/streams/0/name", json!(1), "`scenarios.s.streams[0].name` is not a text"),
            (
                "/scenarios/s/streams/1/w",
                json!(2),
                "`scenarios.s.streams[1].w` is not true or false (1 or 0)",
            ),
            (
                "/scenarios/s/streams/1/random",
                json!("no"),
                "`scenarios.s.streams[1].random` is not true or false (1 or 0)",
            ),
            ("/expected", json!([]), "`expected` is not an object"),
            ("/ftb_params", json!(128), "`ftb_params` is not an object"),
            ("", json!([]), "not a JSON object with `cards` and `scenarios`"),
        ] {
            let mut file = each_kind();
            *file.pointer_mut(pointer).unwrap() = value;
            assert_eq!(parse(&file.to_string()).unwrap_err(), error);
        }
        for (value, w) in [(json!(0), false), (json!(1), true), (json!(false), false), (json!(true), true)] {
            let mut file = each_kind();
            *file.pointer_mut("/scenarios/s/streams/1/w").unwrap() = value;
            let read = parse(&file.to_string()).unwrap();
            assert!(matches!(read.scenarios[0].1.loads[1].kind, Kind::Closed { write, .. } if write == w));
        }
        let mut file = each_kind();
        *file.pointer_mut("/cards/c/gc_stall_ms_uniform").unwrap() = json!([100_000, 100_000]);
        assert_eq!(parse(&file.to_string()).unwrap().cards[0].1.gc_stall, (100_000_000_000, 100_000_000_000));
        for (without, tags) in [("ftb_params", 128), ("expected", 99)] {
            let mut file = each_kind();
            file.as_object_mut().unwrap().remove(without);
            assert_eq!(parse(&file.to_string()).unwrap().tags, tags);
        }
    }
}

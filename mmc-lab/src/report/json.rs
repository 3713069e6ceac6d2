//! One line of JSON per policy; the keys are stable.

use crate::blame::Ahead;
use crate::bonnie_csv::Row;
use crate::experiment::Outcome;
use crate::workload::bonnie::{PHASES, seekers};
use serde_json::{Map, Value, json};

/// The CSV row of an outcome.
#[must_use]
pub fn row(o: &Outcome) -> Row<'_> {
    let b = &o.config.board;
    let (seed, size) = (o.config.seed, b.size);
    Row {
        machine: b.machine,
        size,
        seed,
        seekers: seekers(b.bonnie).0,
        files_k: b.files_k,
        phases: &o.phases,
    }
}

fn ahead(a: &Ahead) -> Value {
    json!({"requests": a.requests, "older": a.older, "younger": a.younger, "bytes": a.bytes})
}

/// The object of one policy. `real_s` is the only thing in it that differs between two runs.
///
/// # Panics
/// Never: all values are numbers and strings.
#[must_use]
pub fn object(o: &Outcome, real_s: f64) -> Value {
    let classes = serde_json::to_value(o.busy.classes).unwrap_or_default();
    let settings: Map<String, Value> = o.policy.settings.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
    let unit = |i: usize| match i {
        0..=4 => "kib_s",
        _ => "per_s",
    };
    let phases: Map<String, Value> = PHASES
        .iter()
        .enumerate()
        .map(|(i, name)| (format!("{name}_{}", unit(i)), json!(o.phases[i].as_ref().map(|p| p.rate()))))
        .collect();
    let hung: Vec<Value> = o
        .hung
        .iter()
        .map(|h| {
            json!({
                "task": h.task,
                "seconds": h.slept.as_nanos() as f64 / 1e9,
                "waits_for": h.waits_for,
                "ahead": ahead(&h.ahead),
            })
        })
        .collect();
    let beside: Vec<Value> = o
        .beside
        .iter()
        .map(|met| {
            let mut object = serde_json::to_value(met.waits).unwrap_or_default();
            object["task"] = met.load.name().into();
            object["frames"] = met.frames.0.into();
            object["lost"] = met.frames.1.into();
            object
        })
        .collect();
    let seconds = o.elapsed.as_nanos() as f64 / 1e9;
    let written = o.totals.written as f64 / 1e6;
    json!({
        "scheduler": o.policy.name,
        "settings": settings,
        "board": o.config.board.name,
        "card": o.config.card,
        "host": o.config.host.name(),
        "seed": o.config.seed,
        "journal": classes["journal"],
        "commits": serde_json::to_value(o.commits).unwrap_or_default(),
        "reads": classes["reads"],
        "sync_writes": classes["sync_writes"],
        "async_writes": classes["async_writes"],
        "write_mb_s": written / seconds,
        "phases": phases,
        "hung": hung,
        "csv_1_03": row(o).v1_03(),
        "csv_2": row(o).v2(),
        "virtual_s": seconds,
        "real_s": real_s,
        "written_mb": written,
        "commands": o.commands.0,
        "commands_hash": format!("{:016x}", o.commands.1),
        "pages_verified": o.verified,
        "backlog_bytes": o.backlog.0,
        "backlog_card_s": o.backlog.1.as_nanos() as f64 / 1e9,
        "beside": beside,
    })
}

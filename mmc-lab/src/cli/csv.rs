//! `mmc-lab csv`: rows of bonnie++, real and ours, side by side.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::csv::{Rate, Row, find};
use crate::output;
use crate::report::pages::{self, csv::Line};
use crate::workload::bonnie::PHASES;

/// Longest text read: more is no collection of rows.
const LONGEST: u64 = 64 << 20;

/// Reads the CSV rows of bonnie++ 1.03 and 2.x out of any text and compares them.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab csv run1.txt run2.txt             the runs side by side, changes against the first
  bonnie++ -q ... | mmc-lab csv - --json    one object a row, the same keys for every version
  mmc-lab csv old.csv --print               only the rows, byte for byte as they were
  mmc-lab bonnie --json > ours.json; mmc-lab csv real.txt ours.json

Rows are found among other lines: bonnie++'s own text table, our report, our JSON.

Exit status: 0 done, 1 a file cannot be read, holds no row, or a row is broken, 2 wrong usage.")]
pub struct Args {
    /// Files with rows; - for the standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Print the rows as they were
    #[arg(long, conflicts_with = "json")]
    pub print: bool,
    /// Print one JSON object a row
    #[arg(long)]
    pub json: bool,
    /// Also write the comparison as one HTML page
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(text) => output::print("csv", &text, ExitCode::SUCCESS),
        Err(e) => output::fail("csv", e, 1),
    }
}

/// The answer.
///
/// # Errors
/// One line naming the file and what is wrong with it.
pub fn answer(args: &Args) -> Result<String, String> {
    output::may_write(args.out.as_deref())?;
    let mut rows = Vec::new();
    for file in &args.files {
        let text = text(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
        let before = rows.len();
        for (number, line) in text.lines().enumerate() {
            let Some((row, name)) = find(line) else { continue };
            let row = row.map_err(|e| format!("{}, line {}: {e}", file.display(), number + 1))?;
            let stem = file.file_stem().map_or_else(|| "-".into(), |s| s.to_string_lossy().into_owned());
            rows.push((name.unwrap_or(stem), row));
        }
        if rows.len() == before {
            return Err(format!("{} holds no CSV row of bonnie++ (27, 48 or 50 fields)", file.display()));
        }
    }
    let page = || pages::csv::render(&names(&rows), &facts(&rows), &rates(&rows), &latencies(&rows));
    output::write(args.out.as_deref(), page)?;
    Ok(if args.print {
        rows.iter().map(|(_, row)| format!("{}\n", row.print())).collect()
    } else if args.json {
        rows.iter().map(|(name, row)| object(name, row)).collect()
    } else {
        table(&rows)
    })
}

fn text(file: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        std::io::stdin().lock().take(LONGEST).read_to_end(&mut bytes)?;
    } else {
        crate::trace::open(file)?.take(LONGEST).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What the runs are called.
fn names(rows: &[(String, Row)]) -> Vec<String> {
    rows.iter().map(|(name, row)| format!("{name} {}", row.version())).collect()
}

/// What ran where.
fn facts(rows: &[(String, Row)]) -> Vec<(String, Vec<String>)> {
    let fact = |name: &str, of: fn(&Row) -> &str| {
        (name.to_owned(), rows.iter().map(|(_, row)| of(row).to_owned()).collect())
    };
    vec![fact("machine", Row::machine), fact("file size", Row::size)]
}

/// The rates of each phase that somebody ran; the change against the first run in percent.
fn rates(rows: &[(String, Row)]) -> Vec<Line> {
    let line = |(phase, name): (usize, &&str)| {
        let first = rows.first().map(|(_, r)| r.phase(phase));
        let cell = |(i, (_, row)): (usize, &(String, Row))| match (row.phase(phase), first) {
            (Rate::Absent, _) => "-".to_owned(),
            (Rate::TooShort, _) => "too short".to_owned(),
            (Rate::Value(v), Some(Rate::Value(f))) if i > 0 && f > 0.0 => {
                format!("{v} ({:+.1} %)", (v / f - 1.0) * 100.0)
            }
            (Rate::Value(v), _) => format!("{v}"),
        };
        let value = |(_, row): &(String, Row)| match row.phase(phase) {
            Rate::Value(v) => Some(v),
            _ => None,
        };
        Line {
            name: format!("{name} {}", if phase < 5 { "KiB/s" } else { "/s" }),
            cells: rows.iter().enumerate().map(cell).collect(),
            values: rows.iter().map(value).collect(),
        }
    };
    PHASES.iter().enumerate().map(line).filter(|l| l.cells.iter().any(|c| c != "-")).collect()
}

/// The longest times of each phase that has one.
fn latencies(rows: &[(String, Row)]) -> Vec<Line> {
    let line = |(phase, name): (usize, &&str)| {
        let us = |row: &Row| row.latency_us(phase);
        let time = |us: u64| crate::units::format_time(us.saturating_mul(1000));
        Line {
            name: format!("{name} longest"),
            cells: rows.iter().map(|(_, row)| us(row).map_or_else(|| "-".to_owned(), time)).collect(),
            values: rows.iter().map(|(_, row)| us(row).map(|us| us as f64)).collect(),
        }
    };
    PHASES.iter().enumerate().map(line).filter(|l| l.cells.iter().any(|c| c != "-")).collect()
}

/// Runs in columns, phases in lines.
fn table(rows: &[(String, Row)]) -> String {
    let line = |what: &str, cells: &[String]| {
        let mut out = format!("{what:<22}");
        for cell in cells {
            let _ = write!(out, " {cell:>22}");
        }
        out.push('\n');
        out
    };
    let names: Vec<String> = names(rows).iter().map(|name| name.chars().take(22).collect()).collect();
    let mut out = line("", &names);
    facts(rows).iter().for_each(|(what, cells)| out.push_str(&line(what, cells)));
    rates(rows).iter().chain(&latencies(rows)).for_each(|l| out.push_str(&line(&l.name, &l.cells)));
    out
}

/// The same keys for every version; what is not there is null, what was too short is `"+++++"`.
fn object(name: &str, row: &Row) -> String {
    let value = |rate: Rate| match rate {
        Rate::Absent => serde_json::Value::Null,
        Rate::TooShort => json!("+++++"),
        Rate::Value(v) => json!(v),
    };
    let phases: serde_json::Map<String, serde_json::Value> = PHASES
        .iter()
        .enumerate()
        .map(|(i, phase)| {
            let key = if i < 5 { "kib_per_s" } else { "per_s" };
            let all = json!({key: value(row.phase(i)), "cpu_percent": value(row.cpu(i)), "latency_us": row.latency_us(i)});
            ((*phase).to_owned(), all)
        })
        .collect();
    let object = json!({
        "name": name, "format": row.format().name(), "version": row.version(), "machine": row.machine(),
        "size": row.size(), "files": row.files(), "directories": row.directories(), "phases": phases,
    });
    output::json(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(names: &[&str], print: bool, json: bool) -> Result<String, String> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        answer(&Args { files: names.iter().map(|n| data.join(n)).collect(), print, json, out: None })
    }

    #[test]
    fn two_real_runs_stand_side_by_side() {
        let text = answered(&["bv510-mq.bonnie.out", "bv510-bfq.bonnie.out"], false, false).unwrap();
        let line = |start: &str| text.lines().find(|l| l.starts_with(start)).unwrap().to_owned();
        assert!(line("put_block KiB/s").ends_with("5736 (-4.1 %)"), "{text}");
        assert!(line("put_block longest").ends_with("962 ms"), "{text}");
        assert!(line("seq_stat").contains("too short"));
        assert!(!text.contains("putc"), "a phase nobody ran is left out");
    }

    #[test]
    fn real_rows_are_printed_as_they_were() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bv510-mq.bonnie.out");
        let row = std::fs::read_to_string(data).unwrap().lines().last().unwrap().to_owned();
        assert_eq!(answered(&["bv510-mq.bonnie.out"], true, false).unwrap(), format!("{row}\n"));
        let object = answered(&["bv510-mq.bonnie.out"], false, true).unwrap();
        let object: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert_eq!(object["phases"]["rewrite"]["latency_us"], 10_742_000);
        assert_eq!(object["phases"]["seq_stat"]["per_s"], "+++++");
    }

    #[test]
    fn a_file_without_rows_is_named() {
        let e = answered(&["scenarios-small.json"], false, false).unwrap_err();
        assert!(e.contains("scenarios-small.json") && e.contains("27, 48 or 50"), "{e}");
    }
}

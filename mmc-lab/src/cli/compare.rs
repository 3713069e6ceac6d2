//! `mmc-lab compare`: policies against each other on the cards and workloads of a scenario file.

use crate::compare::cell::Cell;
use crate::compare::file::{self, Scenarios};
use crate::compare::run::{Job, Outcome, Spec};
use crate::compare::table::Results;
use crate::output;
use crate::report::pages;
use crate::units::parse_time;
use mmc_sched::{AnyPolicy, NoPolicy};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Policies alone (no protocol, no disk) over a simple card that accounts for its time: latencies, efficiency, fairness.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab compare --scenarios scenarios.json                        all cards and workloads of the file
  mmc-lab compare --scenarios scenarios.json --cards class4 --only hsdk
  mmc-lab compare --scenarios scenarios.json --sched bfq,bfq:low_latency=1 --only fileops+seq --cpu-cost 20us
  mmc-lab compare --scenarios scenarios.json --json > runs.jsonl    a line for each run

A policy is compared with the file's `expected` under these names: ftb, mq-deadline (dl), bfq:low_latency=1 (bfq, the
kernel's default), bfq (bfq-ll0), bfq:slice_idle=0 (bfq-si0).

Exit status: 0 done, 1 the file is bad, a run failed or ftb broke a promise, 2 wrong usage.")]
pub struct Args {
    /// The scenario file
    #[arg(long, value_name = "FILE")]
    scenarios: PathBuf,
    /// Cards of the file [default: all that `expected` names with the workload, or all]
    #[arg(long, value_name = "LIST")]
    cards: Option<String>,
    /// Workloads of the file [default: all]
    #[arg(long, value_name = "LIST")]
    only: Option<String>,
    /// Policies, a comma list of NAME[:tunable=value...]; ftb, or else the first, is compared with the others
    #[arg(
        long,
        value_name = "LIST",
        default_value = "ftb,mq-deadline,bfq:low_latency=1,bfq,bfq:slice_idle=0"
    )]
    sched: String,
    /// A number N: seeds 1 to N; a list with commas: these
    #[arg(long, value_name = "N|LIST", default_value = "5")]
    seeds: String,
    /// Processor time of each command, as 20us
    #[arg(long, value_name = "TIME", default_value = "0s")]
    cpu_cost: String,
    /// Print one JSON object per run and line
    #[arg(long)]
    json: bool,
    /// Also write the plot (FILE ends in .html) or the tables (.md)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Reads a comma list of policies. The second list holds the names this build does not have.
///
/// # Errors
/// One line naming the value and what is accepted.
pub fn parse_policies(list: &str) -> Result<(Vec<Spec>, Vec<&'static str>), String> {
    let (mut specs, mut missing) = (Vec::new(), Vec::new());
    for item in list.split(',') {
        let mut parts = item.split(':');
        let name = parts.next().unwrap_or_default().trim().to_owned();
        if name.is_empty() {
            return Err(format!(
                "'{list}' names no scheduler between its commas: write NAME[:tunable=value...],..."
            ));
        }
        let mut settings = Vec::new();
        for text in parts {
            let (key, value) = text
                .split_once('=')
                .ok_or_else(|| format!("'{text}' is not a setting: write tunable=value"))?;
            settings.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        if let Err(NoPolicy::NotBuilt(name)) = AnyPolicy::by_name(&name) {
            missing.push(name);
            continue;
        }
        let spec = Spec { name, settings };
        spec.build(1)?;
        if specs.contains(&spec) {
            return Err(format!("'{}' is twice in '{list}'", spec.label()));
        }
        specs.push(spec);
    }
    Ok((specs, missing))
}

fn parse_seeds(text: &str) -> Result<Vec<u64>, String> {
    let bad =
        || format!("--seeds {text}: write a number of seeds from 1 to 1000, or a list of seeds with commas");
    if text.contains(',') {
        let mut seeds = Vec::new();
        for word in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let seed = word.parse().map_err(|_| bad())?;
            if seeds.contains(&seed) {
                return Err(format!("--seeds {text}: {seed} is twice in it"));
            }
            seeds.push(seed);
        }
        return if seeds.is_empty() { Err(bad()) } else { Ok(seeds) };
    }
    match text.trim().parse() {
        Ok(n @ 1..=1000) => Ok((1..=n).collect()),
        _ => Err(bad()),
    }
}

/// The names of a list, in its order, each of which must be among `known`.
fn choose<'a>(
    what: &str,
    list: &str,
    known: impl Iterator<Item = &'a String> + Clone,
) -> Result<Vec<&'a str>, String> {
    let mut out: Vec<&str> = Vec::new();
    for name in list.split(',').map(str::trim) {
        let Some(found) = known.clone().find(|k| *k == name) else {
            let names: Vec<_> = known.map(String::as_str).collect();
            return Err(format!("unknown {what} '{name}': the file has {}", names.join(", ")));
        };
        if !out.contains(&found.as_str()) {
            out.push(found);
        }
    }
    Ok(out)
}

/// What to run: card and workload, by name.
fn plan<'a>(args: &Args, file: &'a Scenarios) -> Result<Vec<(&'a str, &'a str)>, String> {
    let names = file.cards.iter().map(|(n, _)| n);
    let cards = match &args.cards {
        Some(list) => choose("card", list, names)?,
        None => names.map(String::as_str).collect(),
    };
    let names = file.scenarios.iter().map(|(n, _)| n);
    let scenarios = match &args.only {
        Some(list) => choose("scenario", list, names)?,
        None => names.map(String::as_str).collect(),
    };
    let all = args.cards.is_some() || args.only.is_some() || file.expected.is_empty();
    let wanted = |c: &str, s: &str| all || file.expected.contains_key(&format!("{c}/{s}"));
    Ok(cards
        .iter()
        .flat_map(|c| scenarios.iter().map(move |s| (*c, *s)))
        .filter(|(c, s)| wanted(c, s))
        .collect())
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let usage = |e: String| output::fail("compare", e, 2);
    let bad = |e: String| output::fail("compare", e, 1);
    let (specs, missing) = match parse_policies(&args.sched) {
        Ok(v) => v,
        Err(e) => return usage(e),
    };
    for name in &missing {
        eprintln!("mmc-lab compare: this build has no {name}: left out");
    }
    if specs.is_empty() {
        return usage(format!("this build has none of '{}'", args.sched));
    }
    let seeds = match parse_seeds(&args.seeds) {
        Ok(v) => v,
        Err(e) => return usage(e),
    };
    let cpu_cost = match parse_time(&args.cpu_cost) {
        Ok(ns @ 0..=1_000_000_000) => ns,
        Ok(_) => {
            return usage(format!(
                "--cpu-cost {} is out of range: accepted are 0s to 1s a command",
                args.cpu_cost
            ));
        }
        Err(e) => return usage(format!("--cpu-cost: {e}")),
    };
    let render: Option<fn(&Results) -> String> =
        match args.out.as_ref().map(|p| p.extension().and_then(|e| e.to_str())) {
            None => None,
            Some(Some("html")) => Some(pages::compare::render),
            Some(Some("md")) => Some(Results::markdown),
            Some(_) => {
                return usage("--out: the name must end in .html (the plot) or .md (the tables)".into());
            }
        };
    let shown = args.scenarios.display();
    let text = match std::fs::read_to_string(&args.scenarios) {
        Ok(t) => t,
        Err(e) => return bad(format!("cannot read {shown}: {e}")),
    };
    let file = match file::parse(&text) {
        Ok(f) => f,
        Err(e) => return bad(format!("{shown}: {e}")),
    };
    let plan = match plan(args, &file) {
        Ok(p) => p,
        Err(e) => return usage(e),
    };
    let cells = match run_all(&file, &plan, &specs, &seeds, cpu_cost) {
        Ok(c) => c,
        Err(e) => return bad(e),
    };
    let results = Results { specs, cells, seeds, cpu_cost, expected: file.expected };
    if let (Some(path), Some(render)) = (&args.out, render)
        && let Err(e) = std::fs::write(path, render(&results))
    {
        return bad(format!("cannot write {}: {e}", path.display()));
    }
    let out = if args.json { results.json_lines() } else { results.markdown() };
    let code = match results.broken() {
        0 => ExitCode::SUCCESS,
        broken => bad(format!("ftb broke its promises {broken} times: see the last table")),
    };
    output::print("compare", &out, code)
}

/// Runs everything on as many threads as there are processors; the order of the results does not depend on it.
fn run_all(
    file: &Scenarios,
    plan: &[(&str, &str)],
    specs: &[Spec],
    seeds: &[u64],
    cpu_cost: u64,
) -> Result<Vec<Cell>, String> {
    let mut jobs = Vec::new();
    for (c, s) in plan {
        let card = file.cards.iter().find(|(n, _)| n == c).map(|(_, card)| card);
        let scenario = file.scenarios.iter().find(|(n, _)| n == s).map(|(_, s)| s);
        let (Some(card), Some(scenario)) = (card, scenario) else { continue };
        for spec in specs {
            for &seed in seeds {
                jobs.push(Job { spec, card, scenario, tags: file.tags, seed, cpu_cost });
            }
        }
    }
    let results: Vec<Mutex<Option<Result<Outcome, String>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let bar = std::io::stderr().is_terminal().then(|| indicatif::ProgressBar::new(jobs.len() as u64));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((job, slot)) = {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(i).zip(results.get(i))
                } {
                    let outcome = job.run();
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(outcome);
                    }
                    if let Some(bar) = &bar {
                        bar.inc(1);
                    }
                }
            });
        }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let mut results = results.into_iter().map(|m| match m.into_inner() {
        Ok(Some(r)) => r,
        _ => Err("a run ended without a result".to_owned()),
    });
    let mut cells = Vec::new();
    for (card, scenario) in plan {
        for policy in 0..specs.len() {
            let runs = results
                .by_ref()
                .take(seeds.len())
                .collect::<Result<_, String>>()
                .map_err(|e| format!("{card} {scenario}: {e}"))?;
            cells.push(Cell { card: (*card).into(), scenario: (*scenario).into(), policy, runs });
        }
    }
    Ok(cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::expect;

    #[test]
    fn the_default_list_has_all_that_the_file_expects() {
        let (specs, missing) = parse_policies("mq-deadline,bfq:low_latency=1,bfq,bfq:slice_idle=0").unwrap();
        assert!(missing.is_empty());
        let keys: Vec<_> = specs.iter().filter_map(expect::key).collect();
        assert_eq!(keys, ["dl", "bfq", "bfq-ll0", "bfq-si0"]);
    }

    #[test]
    fn every_wrong_value_is_named() {
        for (list, named) in [
            ("deadlin", "deadlin"),
            ("bfq:slice_idel=1", "slice_idel"),
            ("bfq:slice_idle", "'slice_idle'"),
            ("bfq:low_latency=7", "low_latency=7"),
            ("bfq,,none", "bfq,,none"),
            ("bfq,bfq", "twice"),
        ] {
            let e = parse_policies(list).unwrap_err();
            assert!(e.contains(named) && !e.contains('\n'), "{list}: {e}");
        }
        assert_eq!(parse_seeds("3"), Ok(vec![1, 2, 3]));
        assert_eq!(parse_seeds("7,"), Ok(vec![7]));
        assert!(parse_seeds("3,1,3").unwrap_err().contains("3 is twice") && parse_seeds(",").is_err());
        assert!(parse_seeds("0").is_err() && parse_seeds("x").is_err() && parse_seeds("1,x").is_err());
    }
}

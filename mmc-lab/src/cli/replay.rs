//! `mmc-lab replay`: a real trace again, in whose order or under another scheduler.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use mmc_mock::timing::Profile;
use mmc_sched::mq_deadline::Rules;
use serde_json::json;

use super::bonnie::parse_policies;
use crate::analysis::{Class, ClassStats};
use crate::fit;
use crate::output;
use crate::replay::closed::{self, Config, Views};
use crate::replay::order::{self, Settings, Verified};
use crate::replay::plan::{Plan, plan};
use crate::replay::{Recording, load};
use crate::report::pages;
use crate::units::format_time;

/// Counts of requests per go that `--drain best` tries.
const DRAINS: [usize; 10] = [1, 2, 3, 4, 8, 16, 32, 64, 96, 128];

/// Does a real trace again: verifies the order of its issues, or runs its workload under other schedulers.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab replay trace.txt.gz --verify-order --rules 5.10            does our mq-deadline issue what the kernel issued?
  mmc-lab replay trace.txt.gz --verify-order --drain best            the same, for a kernel that takes many at once
  mmc-lab replay trace.txt.gz                                        its workload under mq-deadline and two bfqs
  mmc-lab replay trace.txt.gz --sched mq-deadline:fifo_batch=1,ftb --card a1
  mmc-lab replay trace.txt.gz --card fit --open                      arrivals as recorded, a card fitted to the trace
  mmc-lab replay trace.txt.gz --out replay.html                      with pictures, as one page

A plain bfq does not raise weights; bfq:low_latency=1 does, as Linux does unless told otherwise.
Without --verify-order each task submits what it submitted in the trace, after what it waited for there and with its
think times; see docs/measured.md for how near that comes.

Exit status: 0 done (with --verify-order: the same order), 1 the trace is of no use, the order differs or the simulation
failed, 2 wrong usage.")]
pub struct Args {
    /// A trace, in any format that `explain` reads, recorded in the order of its stamps
    #[arg(value_name = "TRACE")]
    pub file: PathBuf,
    /// Feed the recorded insertions and merges to our mq-deadline and compare the order of issues, request by request
    #[arg(long, conflicts_with_all = ["sched", "sets", "card", "open", "seed"])]
    pub verify_order: bool,
    /// Whose mq-deadline: 5.10 (Linux 4.16 to 5.13) or 7.3 (6.12 and later)
    #[arg(long, default_value = "5.10", requires = "verify_order")]
    pub rules: String,
    /// Requests that leave the scheduler in one go: 1 (kernels before 5.9), up to nr_requests (later ones), or best
    /// (only with --verify-order)
    #[arg(long, value_name = "N", default_value = "1")]
    pub drain: String,
    /// Ticks per second of the kernel that made the trace
    #[arg(long, default_value = "250", requires = "verify_order")]
    pub hz: String,
    /// Policies, a comma list of NAME[:tunable=value...]
    #[arg(long, value_name = "LIST", default_value = "mq-deadline,bfq:low_latency=1,bfq")]
    pub sched: String,
    /// Sets a tunable of every listed policy that has it
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub sets: Vec<String>,
    /// Card preset (slow2018, cheap, a1, a2, ideal), or fit: a profile fitted to the trace
    #[arg(long, default_value = "slow2018")]
    pub card: String,
    /// Submit every bio when it was submitted in the trace, whatever becomes of the others
    #[arg(long)]
    pub open: bool,
    /// Tags
    #[arg(long, value_name = "N", default_value = "128")]
    pub nr_requests: String,
    /// Longest request in KiB [default: the longest in the trace]
    #[arg(long, value_name = "KIB")]
    pub max_sectors_kb: Option<String>,
    /// Latencies only of bios queued while at least N requests were outstanding
    #[arg(long, value_name = "N", default_value = "16")]
    pub busy: String,
    /// Seed of the card's pauses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Also write the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON: an object, or an object a line and policy
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    if let Err(e) = output::may_write(args.out.as_deref()) {
        return output::fail("replay", e, 1);
    }
    let answer = if args.verify_order { verify(args) } else { again(args).map(|text| (text, true)) };
    match answer {
        Ok((text, same)) => output::print("replay", &text, if same { ExitCode::SUCCESS } else { 1.into() }),
        Err((status, e)) => output::fail("replay", e, status),
    }
}

/// Why there is no answer: the exit status and one line.
pub type Failure = (u8, String);

/// A whole number in a range.
pub(crate) fn number(option: &str, text: &str, from: u64, to: u64) -> Result<u64, Failure> {
    let found = text.trim().parse().ok().filter(|n| (from..=to).contains(n));
    found.ok_or_else(|| {
        (2, format!("{option}: `{text}` is not accepted: write a whole number from {from} to {to}"))
    })
}

/// The answer of `--verify-order`, and whether the orders are the same.
///
/// # Errors
/// [`Failure`].
pub fn verify(args: &Args) -> Result<(String, bool), Failure> {
    let rules = match args.rules.as_str() {
        "5.10" => Rules::V5_10,
        "7.3" => Rules::V7_3,
        other => return Err((2, format!("--rules: `{other}` is not known: accepted are 5.10 and 7.3"))),
    };
    let hz = number("--hz", &args.hz, 1, 1_000_000)? as u32;
    let drains = match args.drain.as_str() {
        "best" => DRAINS.to_vec(),
        text => vec![number("--drain", text, 1, 10_000)? as usize],
    };
    let trace = load(&args.file).map_err(|e| (1, e))?;
    let mut best: Option<(usize, Verified)> = None;
    for drain in drains {
        let found = order::verify(&trace.events, Settings { rules, drain, hz }).map_err(|e| (1, e))?;
        if best.as_ref().is_none_or(|(_, b)| found.same > b.same) {
            best = Some((drain, found));
        }
    }
    let Some((drain, found)) = best else { return Err((2, "--drain: nothing to try".to_owned())) };
    let same = found.same == found.issued;
    let words = told(&found, &trace, &args.rules, drain);
    output::write(args.out.as_deref(), || pages::replay::order(&output::short(&args.file), &words, &found))
        .map_err(|e| (1, e))?;
    let text = if args.json {
        let first = found.first.as_ref().map(|d| {
            json!({"number": d.number, "at_s": d.at as f64 / 1e9, "kernel": d.kernel.to_string(),
                   "ours": d.ours.map(|o| o.to_string()), "why": d.why})
        });
        let object = json!({
            "rules": args.rules, "drain": drain, "issued": found.issued, "same": found.same,
            "inserted": found.inserted, "merged": found.merged, "taken_otherwise": found.taken_otherwise,
            "requeued": found.requeued, "first_difference": first,
        });
        output::json(object)
    } else {
        words
    };
    Ok((text, same))
}

/// The verification for people.
fn told(v: &Verified, trace: &Recording, rules: &str, drain: usize) -> String {
    let share = 100.0 * v.same as f64 / v.issued.max(1) as f64;
    let goes = if drain == 1 { "one at a time".to_owned() } else { format!("up to {drain} in one go") };
    let mut out = format!(
        "{} of {} issues at the same place ({share:.2} %): mq-deadline with the rules of {rules}, {goes}.\n",
        v.same, v.issued
    );
    let _ = writeln!(
        out,
        "Fed with {} insertions and {} merges; {} of them ours took otherwise. {} requeue lines.",
        v.inserted, v.merged, v.taken_otherwise, v.requeued
    );
    if let Some(d) = &v.first {
        let ours = d.ours.map_or_else(|| "nothing".to_owned(), |o| o.to_string());
        let _ = writeln!(
            out,
            "First difference: issue {} at {}.{:06} s: the kernel {}, ours {ours}.\n  Why: {}.",
            d.number,
            d.at / 1_000_000_000,
            d.at % 1_000_000_000 / 1000,
            d.kernel,
            d.why
        );
    }
    for note in &trace.notes {
        let _ = writeln!(out, "Note: {note}.");
    }
    out
}

/// The profile that `--card` names; `fit` is fitted to the trace.
///
/// # Errors
/// [`Failure`]: no such preset, or the trace tells too little of its card.
pub fn profile(card: &str, file: &Path) -> Result<Profile, Failure> {
    if card != "fit" {
        return Profile::named(card).map_err(|e| (2, format!("{e}, fit")));
    }
    let name = file.display();
    let mut input = crate::trace::open(file).map_err(|e| (1, format!("cannot read {name}: {e}")))?;
    let ops = fit::read(&mut *input).map_err(|e| (1, format!("{name}: {e}")))?;
    fit::fit_profile(&ops).profile().ok_or_else(|| {
        (1, format!("{name} tells too little of its card (see `mmc-lab card fit {name}`): name a preset with --card"))
    })
}

/// The options of a run that `replay` and `tune` share, as given.
#[derive(Clone, Debug)]
pub(crate) struct Given<'a> {
    pub(crate) drain: &'a str,
    pub(crate) nr_requests: &'a str,
    pub(crate) max_sectors_kb: Option<&'a str>,
    pub(crate) busy: &'a str,
    pub(crate) card: &'a str,
    pub(crate) seed: u64,
    pub(crate) open: bool,
}

/// Everything that a run needs from the command line and the trace.
pub(crate) fn prepare(file: &Path, given: &Given<'_>) -> Result<(Recording, Plan, Config), Failure> {
    let drain = number("--drain", given.drain, 1, 10_000)? as usize;
    let nr_requests = number("--nr-requests", given.nr_requests, 1, 1024)? as u16;
    let longest = given.max_sectors_kb.map(|t| number("--max-sectors-kb", t, 4, 1024)).transpose()?;
    let busy = number("--busy", given.busy, 0, u64::from(u32::MAX))? as u32;
    if given.card != "fit" {
        profile(given.card, file)?;
    }
    let trace = load(file).map_err(|e| (1, e))?;
    let plan = plan(&trace.events).map_err(|e| (1, e))?;
    let max_sectors = longest.map_or(plan.max_sectors.clamp(8, 2048), |kib| kib as u32 * 2);
    let card = profile(given.card, file)?;
    let config = Config { card, seed: given.seed, nr_requests, max_sectors, drain, open: given.open, busy };
    Ok((trace, plan, config))
}

/// The answer without `--verify-order`.
///
/// # Errors
/// [`Failure`].
pub fn again(args: &Args) -> Result<String, Failure> {
    let policies = parse_policies(&args.sched, &args.sets).map_err(|e| (2, e))?;
    let given = Given {
        drain: &args.drain,
        nr_requests: &args.nr_requests,
        max_sectors_kb: args.max_sectors_kb.as_deref(),
        busy: &args.busy,
        card: &args.card,
        seed: args.seed,
        open: args.open,
    };
    let (trace, plan, config) = prepare(&args.file, &given)?;
    let plan = Rc::new(plan);
    let mut rows = vec![("recorded".to_owned(), Views::of(&trace.events, config.busy))];
    let bar = std::io::stderr().is_terminal().then(|| indicatif::ProgressBar::new(policies.len() as u64));
    for policy in &policies {
        let events = closed::run(&plan, &config, policy).map_err(|e| (1, e))?;
        rows.push((policy.label(), Views::of(&events, config.busy)));
        bar.iter().for_each(|bar| bar.inc(1));
    }
    bar.iter().for_each(indicatif::ProgressBar::finish_and_clear);
    let mut notes = trace.notes.clone();
    if plan.left_out > 0 {
        notes.insert(0, format!("{} flushes and discards are left out", plan.left_out));
    }
    let about = format!(
        "{} bios of {} tasks, {}; card {}, {} tags, requests up to {} KiB, {} in one go",
        plan.bios.len(),
        plan.jobs.len(),
        if config.open { "arriving as recorded" } else { "each after what it waited for" },
        args.card,
        config.nr_requests,
        config.max_sectors / 2,
        config.drain,
    );
    let name = output::short(&args.file);
    output::write(args.out.as_deref(), || pages::replay::render(&name, &about, &rows, config.busy, &notes))
        .map_err(|e| (1, e))?;
    if args.json {
        return Ok(rows.iter().map(|(name, views)| object(name, views)).collect());
    }
    let mut out = format!("{about}\n");
    out.push_str(&table(&rows, config.busy));
    for note in &notes {
        let _ = writeln!(out, "Note: {note}.");
    }
    Ok(out)
}

/// The rows side by side.
fn table(rows: &[(String, Views)], busy: u32) -> String {
    let wide = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0).max(9);
    let mut out = String::new();
    for class in Class::ALL {
        if rows.iter().all(|(_, v)| v.busy.classes.get(class).n == 0) {
            continue;
        }
        let load = if busy > 0 { format!(", queued behind {busy} or more") } else { String::new() };
        let _ = writeln!(
            out,
            "\n{}s{load}\n  {:<wide$} {:>6} {:>9} {:>9} {:>9}",
            class.noun(),
            "scheduler",
            "n",
            "p50",
            "p99",
            "max"
        );
        for (name, views) in rows {
            let ClassStats { n, p50, p99, max, .. } = *views.busy.classes.get(class);
            let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_time);
            let _ =
                writeln!(out, "  {name:<wide$} {n:>6} {:>9} {:>9} {:>9}", time(p50), time(p99), time(max));
        }
    }
    let _ = writeln!(
        out,
        "\nall\n  {:<wide$} {:>9} {:>9} {:>9} {:>6} {:>9}  worst wait that a task may sleep for",
        "scheduler", "MB/s", "busy MB/s", "time", "depth", "hung >10s"
    );
    for (name, views) in rows {
        let all = &views.all;
        let awaited =
            Class::ALL.iter().filter(|c| c.is_awaited()).filter_map(|c| all.worst[c.index()].as_ref());
        let worst = awaited.max_by_key(|v| v.wait).map_or_else(
            || "-".to_owned(),
            |v| {
                format!(
                    "{}: {} by {}, {} went first",
                    format_time(v.wait),
                    v.class.noun(),
                    v.task,
                    v.ahead.requests
                )
            },
        );
        let _ = writeln!(
            out,
            "  {name:<wide$} {:>9.2} {:>9.2} {:>8.1}s {:>6} {:>9}  {worst}",
            views.rate() / 1e6,
            views.busy_rate() / 1e6,
            views.seconds(),
            all.queue_depth_max,
            all.hung.len(),
        );
    }
    out
}

/// One row as a JSON object and a line.
fn object(name: &str, views: &Views) -> String {
    let value = json!({
        "scheduler": name, "bytes_per_s": views.rate().round(), "busy_bytes_per_s": views.busy_rate().round(), "seconds": views.seconds(),
        "queue_depth_max": views.all.queue_depth_max, "hung": views.all.hung.len(),
        "classes": views.busy.classes, "classes_all": views.all.classes,
    });
    output::json(value)
}

//! `mmc-lab soak`.

use crate::output;
use crate::report::pages::soak::{CLASSES, render};
use crate::soak::{Class, Plan, Report, run as soak};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

/// Millions of requests on the whole stack in weeks of virtual time, with faults, power cuts and card swaps
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab soak                                           two million requests in 60 virtual days
  mmc-lab soak --requests 20000 --faults 40 --days 3     a few seconds of it
  mmc-lab soak --card soak-emmc --sched deadline         an eMMC with cache, barriers, wipes and RPMB, another policy

The disk runs over the DesignWare driver and its register model. Checked all the time: no request is lost or
done twice; a read shows what was written last; what a flush covered survives every loss of power, and what is
lost without one is told by the next; barriers order, wipes empty; nothing of an old card shows after a swap; no
bound of the scheduler is broken; nothing leaks. The same flags give the same run.

Exit status: 0 done, 1 something is wrong (seed and step are told) or the output cannot be written, 2 wrong usage.")]
pub struct Args {
    /// Requests
    #[arg(long, default_value_t = 2_000_000)]
    requests: u64,
    /// Faults of card and controller
    #[arg(long, default_value_t = 1_000)]
    faults: u64,
    /// Losses of power
    #[arg(long, default_value_t = 100)]
    cuts: u64,
    /// Swaps of the card for another
    #[arg(long, default_value_t = 20)]
    swaps: u64,
    /// Days of virtual time they are spread over, 1 to 3650
    #[arg(long, default_value_t = 60)]
    days: u64,
    /// Decides all that is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Policy: none, mq-deadline, deadline, bfq, cfq, kyber or ftb
    #[arg(long, default_value = "mq-deadline")]
    sched: String,
    /// Card: soak (UHS-I with a volatile cache), soak-emmc (5.1), or an SD or MMC preset of `mmc-lab card list`
    #[arg(long, default_value = "soak")]
    card: String,
    /// Print the counters as one JSON object
    #[arg(long)]
    json: bool,
    /// Also write the counters as one HTML page
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    for (what, value, most) in [("--requests", args.requests, 1 << 40), ("--days", args.days, 3650)] {
        if value == 0 || value > most {
            return output::fail(
                "soak",
                format_args!("{what} {value} is out of range: accepted are 1 to {most}"),
                2,
            );
        }
    }
    if let Err(e) = mmc_sched::AnyPolicy::by_name(&args.sched) {
        return output::fail("soak", format_args!("--sched {}: {e}", args.sched), 2);
    }
    let plan = Plan {
        requests: args.requests,
        faults: args.faults,
        cuts: args.cuts,
        swaps: args.swaps,
        days: args.days,
        seed: args.seed,
        sched: args.sched.clone(),
        card: args.card.clone(),
    };
    if let Err(e) = output::may_write(args.out.as_deref()) {
        return output::fail("soak", e, 1);
    }
    let bar = std::io::stderr().is_terminal().then(|| indicatif::ProgressBar::new(plan.requests));
    let began = std::time::Instant::now();
    let result = soak(&plan, &mut |sent| {
        if let Some(bar) = &bar {
            bar.set_position(sent);
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let real = began.elapsed().as_secs_f64();
    let report = match result {
        Ok(report) => report,
        Err(e) => return output::fail("soak", e, 1),
    };
    if let Err(e) = output::write(args.out.as_deref(), || render(&plan, &report, real)) {
        return output::fail("soak", e, 1);
    }
    let text =
        if args.json { output::json(object(&plan, &report, real)) } else { text(&plan, &report, real) };
    output::print("soak", &text, ExitCode::SUCCESS)
}

fn object(plan: &Plan, r: &Report, real: f64) -> Value {
    let classes: Vec<Value> = CLASSES
        .iter()
        .zip(&r.classes)
        .enumerate()
        .map(|(k, (name, c))| {
            let mut line = json!({
                "class": name, "requests": c.requests, "worst_ns": c.worst.as_nanos(),
                "worst_in_scheduler_ns": c.scheduler.as_nanos(),
            });
            if let Some(b) = r.beside.as_ref().filter(|_| k < 3).map(|b| b[k.min(1)]) {
                line["bound_in_scheduler_ns"] = b.time.as_nanos().into();
                line["ahead"] = b.ahead.into();
                line["dispatches"] = b.dispatches.0.into();
                line["bound_dispatches"] = b.dispatches.1.into();
            }
            line
        })
        .collect();
    json!({
        "seed": plan.seed, "sched": plan.sched, "card": plan.card,
        "requests": r.requests, "bytes": r.bytes, "merges": r.merges, "withdrawn": r.withdrawn,
        "retries": r.retries, "retunes": r.retunes, "resets": r.resets,
        "flushes": r.flushes.0, "flushes_that_told_a_loss": r.flushes.1,
        "faults": r.faults, "cuts": r.cuts, "swaps": r.swaps, "generations": r.generations,
        "nights_without_supply": r.nights, "barriers": r.barriers, "wipes": r.wipes,
        "conversations": r.conversations, "looks_at_the_card": r.looks, "failed": r.failed, "classes": classes,
        "unbounded": r.unbounded, "slowest_command_ns": r.slowest.as_nanos(),
        "bus_violations_under_faults": r.violations,
        "virtual_s": r.time.as_nanos() as f64 / 1e9, "resident_kib": [r.resident.0, r.resident.1], "real_s": real,
    })
}

fn text(plan: &Plan, r: &Report, real: f64) -> String {
    let mut out = String::new();
    let days = r.time.as_nanos() as f64 / 86_400e9;
    let gb = r.bytes as f64 / 1e9;
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!(
        "{} on card {}, seed {}: nothing wrong in {days:.1} virtual days, {real:.1} s",
        plan.sched, plan.card, plan.seed
    ));
    line(format!(
        "{} requests, {gb:.2} GB; {} merges, {} withdrawn, {} failed",
        r.requests,
        r.merges,
        r.withdrawn,
        r.failed.values().sum::<u64>()
    ));
    line(format!(
        "{} faults, {} power cuts, {} swaps, {} media generations, {} nights without supply",
        r.faults, r.cuts, r.swaps, r.generations, r.nights
    ));
    line(format!(
        "{} sent again, {} re-tunes, {} re-initialisations; {} flushes, {} told that the cache was lost",
        r.retries, r.retunes, r.resets, r.flushes.0, r.flushes.1
    ));
    line(format!(
        "{} barriers, {} wipes, {} conversations; {} looks at the card itself",
        r.barriers, r.wipes, r.conversations, r.looks
    ));
    for (what, n) in &r.failed {
        line(format!("  failed: {n} x {what}"));
    }
    line(format!(
        "{:<13} {:>9} {:>11} {:>13} {:>13}  {}",
        "class", "requests", "worst wait", "in scheduler", "its bound", "dispatches past a due one, bound"
    ));
    for (k, (name, c)) in CLASSES.iter().zip(&r.classes).enumerate() {
        let Class { requests, worst, scheduler } = c;
        let (bound, dispatches) = match r.beside.as_ref().filter(|_| k < 3).map(|b| b[k.min(1)]) {
            Some(b) => (
                format!("{}", b.time),
                format!("{} of {}, at most {} ahead", b.dispatches.0, b.dispatches.1, b.ahead),
            ),
            None => ("-".into(), "-".into()),
        };
        line(format!(
            "{name:<13} {requests:>9} {:>11} {:>13} {bound:>13}  {dispatches}",
            format!("{worst}"),
            format!("{scheduler}")
        ));
    }
    if let Some(why) = &r.unbounded {
        line(format!("no bound is counted: {why}"));
    }
    line(format!(
        "slowest command {}, {} rules of the bus broken under faults; {} to {} KiB resident",
        r.slowest,
        r.violations.values().sum::<u64>(),
        r.resident.0,
        r.resident.1
    ));
    out
}

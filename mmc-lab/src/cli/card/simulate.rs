//! `mmc-lab card simulate`: does a card keep up with a recorder, and with how much memory in front of it?

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use mmc_mock::timing::Profile;
use serde_json::json;

use crate::output;
use crate::report::pages;
use crate::simulate::{Load, Outcome, Place, Setup, least_service, simulate};
use crate::units::{format_size, format_time, parse_size, parse_time};

/// Runs and blocks in them that are looked at.
const RUNS: u32 = 20;

/// A recorder on a card of a timing profile.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab card simulate --workload logger --deadline 10ms
  mmc-lab card simulate --workload camera --rate 4M --block 512K --card a1 --deadline 100ms
  mmc-lab card simulate --workload logger --sync 0s --blocks 100000 --json

The card is a timing model with nothing else on it; the ring buffer is what must be held in memory so that a block finds
room with the chance named. Late blocks come together, so the interval is that over 20 runs, not over blocks.")]
pub struct Args {
    /// logger (256 KiB/s in 16 KiB), camera (2 MiB/s in 128 KiB) or database (40 random 4 KiB a second in 256 MiB)
    #[arg(long, default_value = "logger")]
    pub workload: String,
    /// Timing profile: slow2018, cheap, a1, a2, ideal
    #[arg(long, default_value = "slow2018")]
    pub card: String,
    /// A block is late if it is not on the card by then
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    pub deadline: String,
    /// Bytes made a second [default: the workload's]
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<String>,
    /// Bytes of a block [default: the workload's]
    #[arg(long, value_name = "SIZE")]
    pub block: Option<String>,
    /// Time between rounds of metadata writes; 0 for none [default: the workload's]
    #[arg(long, value_name = "TIME")]
    pub sync: Option<String>,
    /// Bytes of the file [default: the workload's]
    #[arg(long, value_name = "SIZE")]
    pub file: Option<String>,
    /// Bytes a second on the wire (4 bits at 50 MHz are 25000000)
    #[arg(long, value_name = "SIZE", default_value = "25000000")]
    pub bus: String,
    /// Blocks in all, divided among 20 runs
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    pub blocks: u64,
    /// Seed of the first run
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Also write the answer as one HTML page
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The answer.
///
/// # Errors
/// The exit status and one line: an option and what is accepted, or the page cannot be written.
pub fn run(args: &Args) -> Result<String, (u8, String)> {
    let (load, setup) = asked(args).map_err(|e| (2, e))?;
    output::may_write(args.out.as_deref()).map_err(|e| (1, e))?;
    let bar = std::io::stderr().is_terminal().then(|| indicatif::ProgressBar::new(u64::from(RUNS)));
    let done = || bar.iter().for_each(|bar| bar.inc(1));
    let out = simulate(&load, &setup, &done).map_err(|e| (2, e))?;
    bar.iter().for_each(indicatif::ProgressBar::finish_and_clear);
    let lines = lines(args, &load, &setup, &out);
    output::write(args.out.as_deref(), || {
        pages::simulate::render(&format!("{} on {}", args.workload, args.card), &lines, &load, &setup, &out)
    })
    .map_err(|e| (1, e))?;
    if args.json {
        let place = if load.place == Place::Random { "random" } else { "sequential" };
        let object = json!({
            "workload": args.workload, "card": args.card, "rate": load.rate, "block": load.block, "place": place,
            "deadline_s": setup.deadline as f64 / 1e9, "blocks": out.blocks, "late": out.late,
            "miss": out.miss, "latency_s": out.latency.map(|ns| ns as f64 / 1e9),
            "ring_1e3": out.ring_3, "ring_1e6": out.ring_6, "ring_max": out.ring_max, "busy": out.busy,
        });
        return Ok(output::json(object));
    }
    Ok(lines.concat())
}

/// What the options ask for.
fn asked(args: &Args) -> Result<(Load, Setup), String> {
    let mut load = Load::named(&args.workload).map_err(|e| format!("--workload: {e}"))?;
    let size = |option: &str, text: &str, from: u64, to: u64| {
        let bytes = parse_size(text).map_err(|e| format!("{option}: {e}"))?;
        (from..=to)
            .contains(&bytes)
            .then_some(bytes)
            .ok_or_else(|| format!("{option} {text} is out of range: accepted are {from} to {to} bytes"))
    };
    let time = |option: &str, text: &str| parse_time(text).map_err(|e| format!("{option}: {e}"));
    if let Some(text) = &args.rate {
        load.rate = size("--rate", text, 1, 1 << 40)?;
    }
    if let Some(text) = &args.block {
        load.block = size("--block", text, 512, 64 << 20)?;
        if !load.block.is_multiple_of(512) {
            return Err(format!("--block {text} is not a multiple of 512 bytes, a card's sector"));
        }
    }
    if let Some(text) = &args.sync {
        load.sync = time("--sync", text)?;
    }
    if let Some(text) = &args.file {
        load.file = size("--file", text, load.block, 1 << 40)?;
    }
    if load.file < load.block {
        return Err(format!(
            "--block: a block of {} does not fit into the file of {}",
            load.block, load.file
        ));
    }
    if !(40..=2_000_000_000).contains(&args.blocks) {
        return Err(format!("--blocks {} is out of range: accepted are 40 to 2000000000", args.blocks));
    }
    let setup = Setup {
        card: Profile::named(&args.card).map_err(|e| format!("--card: {e}"))?,
        bus: size("--bus", &args.bus, 1, 1 << 40)?,
        deadline: time("--deadline", &args.deadline)?,
        runs: RUNS,
        blocks: args.blocks / u64::from(RUNS),
        seed: args.seed,
    };
    Ok((load, setup))
}

/// The answer in lines: the finding, what was looked at, the figures.
fn lines(args: &Args, load: &Load, setup: &Setup, out: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    let mut text = String::new();
    let (deadline, card) = (format_time(setup.deadline), &args.card);
    if out.busy >= 1.0 {
        let _ = writeln!(
            text,
            "The card cannot keep up: {} a second are made, and it is busy {:.0} % of the time. A block takes it {}, one comes every {}.",
            format_size(load.rate),
            out.busy * 100.0,
            format_time(least_service(load, setup)),
            format_time(load.period())
        );
    } else if out.late == 0 {
        let _ = writeln!(
            text,
            "No block of {} was later than {deadline}: the chance is below {:.1e} (95 %).",
            out.blocks, out.miss.high
        );
    } else {
        let _ = writeln!(
            text,
            "A block is later than {deadline} with a chance of {:.2e} ({:.2e} to {:.2e}, 95 %): {} of {}.",
            out.miss.value, out.miss.low, out.miss.high, out.late, out.blocks
        );
    }
    lines.push(std::mem::take(&mut text));
    let [p50, p99, p999, longest] = out.latency.map(format_time);
    let _ = writeln!(
        text,
        "{} on {card}: {} a second in blocks of {}, one every {}; the card is busy {:.1} % of the time.",
        args.workload,
        format_size(load.rate),
        format_size(load.block),
        format_time(load.period()),
        out.busy * 100.0
    );
    lines.push(std::mem::take(&mut text));
    let _ = writeln!(
        text,
        "  until a block is on the card: p50 {p50}, p99 {p99}, p99.9 {p999}, longest {longest}"
    );
    if out.busy < 1.0 {
        let six = out
            .ring_6
            .map_or_else(|| "not told by so few blocks (--blocks 10000000 or more)".to_owned(), format_size);
        let _ = writeln!(
            text,
            "  ring buffer so that a block finds no room with a chance of 1e-3: {}; of 1e-6: {six}; the most ever: {}",
            format_size(out.ring_3),
            format_size(out.ring_max)
        );
    }
    lines.push(text);
    lines
}

//! `mmc-lab bonnie`, the main job.

pub mod spread;

use crate::board;
use crate::experiment::{self, Config, HostKind, Outcome, PolicySpec, Progress, RunError};
use crate::output;
use crate::report::{json, pages, picture, text};
use crate::units::{parse_size, parse_time};
use crate::workload::beside::Load;
use crate::workload::bonnie::PHASES;
use mmc_time::Duration;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Runs bonnie++ on a simulated board in virtual time, policies side by side, and says who waited for whom.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab bonnie                                  the stall of 2018 under three policies, and report.html
  mmc-lab bonnie --board qemu-sdhci               the machine that was measured
  mmc-lab bonnie --sched mq-deadline:fifo_batch=1,bfq --json
  mmc-lab bonnie --sched mq-deadline --set write_expire=1000 --card a1
  mmc-lab bonnie --seeds 5 --cards slow2018,a1    median, least and most of five runs, cards side by side
  mmc-lab bonnie --beside typing,camera           who types, and a camera that must not lose a frame
  mmc-lab bonnie --json > ours.json; mmc-lab csv real.txt ours.json   beside a real bonnie++

Exit status: 0 done, 1 the simulation failed or a file cannot be written, 2 wrong usage.")]
pub struct Args {
    /// Board: hsdk (the report of 2018) or qemu-sdhci (the measured machine)
    #[arg(long, default_value = "hsdk")]
    board: String,
    /// Policies, a comma list of NAME[:tunable=value...]
    #[arg(
        long,
        value_name = "LIST",
        default_value = "mq-deadline,mq-deadline:write_expire=1000:fifo_batch=1,bfq"
    )]
    sched: String,
    /// Sets a tunable of every listed policy that has it
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// Card preset: slow2018, cheap, a1, a2, ideal
    #[arg(long, default_value = "slow2018")]
    card: String,
    /// Several card presets side by side, a comma list
    #[arg(long, value_name = "LIST", conflicts_with = "card")]
    cards: Option<String>,
    /// Runs of each policy on each card, with as many seeds from --seed on; the report is that of the first card and seed
    #[arg(long, value_name = "N", default_value = "1")]
    seeds: String,
    /// File size (bonnie++ -s), 16M to 1G [default: the board's]
    #[arg(long)]
    size: Option<String>,
    /// RAM, 64M to 64G [default: the board's]
    #[arg(long)]
    ram: Option<String>,
    /// Limit of the hung-task watchdog, as 10s [default: the board's]
    #[arg(long)]
    hung: Option<String>,
    /// Seed of the workload and the card
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Host under the disk: dw (the driver on its register model) or mock (no controller)
    #[arg(long, default_value = "dw")]
    host: String,
    /// Processor time of each command, as 20us
    #[arg(long, value_name = "TIME", default_value = "0s")]
    cpu_cost: String,
    /// Tasks beside the benchmark, a comma list: typing (a page of a program is read every 100 ms), camera (1 MB/s into a
    /// ring of one second)
    #[arg(long, value_name = "LIST")]
    beside: Option<String>,
    /// Print one JSON object per policy and line
    #[arg(long)]
    json: bool,
    /// Where the HTML report goes [default: report.html; with --json none]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also write the timeline of the stall as an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Reads a comma list of `NAME[:tunable=value…]` and applies each of `sets` to every policy that has it.
///
/// # Errors
/// One line naming the value and what is accepted.
pub fn parse_policies(list: &str, sets: &[String]) -> Result<Vec<PolicySpec>, String> {
    let mut policies = Vec::new();
    for item in list.split(',') {
        let mut parts = item.split(':');
        let name = parts.next().unwrap_or_default().trim();
        if name.is_empty() {
            return Err(format!(
                "'{list}' names no scheduler between its commas: write NAME[:tunable=value...],..."
            ));
        }
        let settings = parts.map(parse_setting).collect::<Result<Vec<_>, _>>()?;
        let spec = PolicySpec { name: name.to_owned(), settings };
        spec.scheduler(1024, Duration::ZERO)?;
        if policies.contains(&spec) {
            return Err(format!("'{}' is twice in '{list}'", spec.label()));
        }
        policies.push(spec);
    }
    for text in sets {
        let (key, value) = parse_setting(text)?;
        let mut known = false;
        for p in &mut policies {
            let plain = PolicySpec { settings: Vec::new(), ..p.clone() }.scheduler(1024, Duration::ZERO)?;
            if experiment::tunables(&plain).any(|t| t.name == key) {
                known = true;
                p.settings.push((key.clone(), value));
                p.scheduler(1024, Duration::ZERO)?;
            }
        }
        if !known {
            return Err(format!("--set {text}: none of the policies in '{list}' has a tunable '{key}'"));
        }
    }
    Ok(policies)
}

fn parse_setting(text: &str) -> Result<(String, i64), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("'{text}' is not a setting: write tunable=value"))?;
    let number = value.trim().parse().map_err(|_| {
        format!("'{value}' is no value for {}: write a whole number in the tunable's unit", key.trim())
    })?;
    Ok((key.trim().to_owned(), number))
}

fn between(what: &str, text: &str, from: u64, to: u64) -> Result<u64, String> {
    let v = parse_size(text).map_err(|e| format!("{what}: {e}"))?;
    if v < from || v > to {
        return Err(format!("{what} {text} is out of range: accepted are {}M to {}M", from >> 20, to >> 20));
    }
    Ok(v)
}

impl Args {
    /// All cards and seeds; the first is that of the report.
    fn configs(&self) -> Result<Vec<Config>, String> {
        let one = self.config()?;
        let seeds = self.seeds.trim().parse().ok().filter(|n| (1..=1000).contains(n));
        let seeds: u64 = seeds.ok_or_else(|| {
            format!("--seeds {} is not accepted: write a whole number from 1 to 1000", self.seeds)
        })?;
        let mut cards: Vec<String> = Vec::new();
        for card in self.cards.as_deref().unwrap_or(&self.card).split(',').map(str::trim) {
            mmc_mock::timing::Profile::named(card).map_err(|e| format!("--cards: {e}"))?;
            if cards.iter().any(|c| c == card) {
                return Err(format!("--cards: '{card}' is there twice"));
            }
            cards.push(card.to_owned());
        }
        let of = |card: String| {
            let one = one.clone();
            (0..seeds).map(move |i| Config {
                card: card.clone(),
                seed: one.seed.wrapping_add(i),
                ..one.clone()
            })
        };
        Ok(cards.into_iter().flat_map(of).collect())
    }

    fn config(&self) -> Result<Config, String> {
        let mut board = board::by_name(&self.board)?;
        if let Some(s) = &self.size {
            let bytes = between("--size", s, 16 << 20, 1 << 30)?;
            if bytes % 8192 != 0 {
                return Err(format!("--size {s} is not a multiple of 8K, the chunk of bonnie++"));
            }
            board.size = bytes;
        }
        if let Some(s) = &self.ram {
            board.ram = between("--ram", s, 64 << 20, 64 << 30)?;
        }
        let time =
            |what: &str, s: &str| parse_time(s).map(Duration::from_nanos).map_err(|e| format!("{what}: {e}"));
        if let Some(s) = &self.hung {
            board.hung = time("--hung", s)?;
            if board.hung == Duration::ZERO {
                return Err(format!("--hung {s} is out of range: accepted is any time above zero"));
            }
        }
        let cpu_cost = time("--cpu-cost", &self.cpu_cost)?;
        if cpu_cost > Duration::from_secs(1) {
            return Err(format!(
                "--cpu-cost {} is out of range: accepted are 0s to 1s a command",
                self.cpu_cost
            ));
        }
        let host = match self.host.as_str() {
            "dw" => HostKind::Dw,
            "mock" => HostKind::Mock,
            other => return Err(format!("unknown host '{other}': accepted are dw, mock")),
        };
        mmc_mock::timing::Profile::named(&self.card).map_err(|e| e.to_string())?;
        let beside = self.beside.as_deref().map(Load::list).transpose();
        let beside = beside.map_err(|e| format!("--beside: {e}"))?.unwrap_or_default();
        Ok(Config { board, card: self.card.clone(), host, seed: self.seed, cpu_cost, beside })
    }
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let (configs, policies) =
        match args.configs().and_then(|c| Ok((c, parse_policies(&args.sched, &args.sets)?))) {
            Ok(v) => v,
            Err(e) => return output::fail("bonnie", e, 2),
        };
    let report = match (&args.out, args.json) {
        (Some(path), _) => Some(path.clone()),
        (None, false) => Some(PathBuf::from("report.html")),
        (None, true) => None,
    };
    // Looked at without opening: nothing is written when the run fails.
    if let Err(e) = [&report, &args.svg].into_iter().try_for_each(|p| output::may_write(p.as_deref())) {
        return output::fail("bonnie", e, 1);
    }
    let cases: Vec<Case<'_>> = configs.iter().flat_map(|c| policies.iter().map(move |p| (c, p))).collect();
    let results = match run_all(&cases) {
        Ok(r) => r,
        Err(e) => {
            let status = if matches!(e, RunError::Setup(_)) { 2 } else { 1 };
            return output::fail("bonnie", e, status);
        }
    };
    let (mut outcomes, real): (Vec<Outcome>, Vec<f64>) = results.into_iter().unzip();
    let mut out = String::new();
    if args.json {
        for (o, real) in outcomes.iter().zip(&real) {
            out.push_str(&output::json(json::object(o, *real)));
        }
        if configs.len() > 1 {
            out.push_str(&spread::json(&outcomes));
        }
    } else if configs.len() > 1 {
        out = spread::text(&outcomes);
    } else {
        out = text::render(&outcomes);
    }
    // The files show the first card and seed.
    outcomes.truncate(policies.len());
    let mut status = ExitCode::SUCCESS;
    let files =
        [(&report, pages::bonnie::render as fn(&[Outcome]) -> String), (&args.svg, picture::standalone)];
    for (path, render) in files {
        let Some(path) = path else { continue };
        match std::fs::write(path, render(&outcomes)) {
            Ok(()) if !args.json => out.push_str(&format!("\nreport: {}\n", path.display())),
            Ok(()) => {}
            Err(e) => {
                status = output::fail("bonnie", format_args!("cannot write {}: {e}", path.display()), 1);
            }
        }
    }
    output::print("bonnie", &out, status)
}

/// One run.
pub type Case<'a> = (&'a Config, &'a PolicySpec);

/// What a run gave and how long it really took.
type Timed = Result<(Outcome, f64), RunError>;

/// Runs all cases, on as many threads as there are processors; the order of the results is that of the list, and each
/// comes with the seconds it took. Events are kept of the cases with the first one's card and seed only.
///
/// # Errors
/// Of the first case that fails.
pub fn run_all(cases: &[Case<'_>]) -> Result<Vec<(Outcome, f64)>, RunError> {
    let progress: Vec<Progress> = cases.iter().map(|_| Progress::default()).collect();
    let results: Vec<Mutex<Option<Timed>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(cases.len());
    std::thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(config, policy)) = cases.get(i) else { return };
                    let began = Instant::now();
                    let mut result = experiment::run(config, policy, &progress[i]);
                    let real = began.elapsed().as_secs_f64();
                    if let (Ok(outcome), Some((first, _))) = (&mut result, cases.first())
                        && (first.seed, &first.card) != (config.seed, &config.card)
                    {
                        outcome.events = Vec::new();
                    }
                    if let Ok(mut slot) = results[i].lock() {
                        *slot = Some(result.map(|o| (o, real)));
                    }
                    done.fetch_add(1, Ordering::Release);
                }
            });
        }
        if std::io::stderr().is_terminal() {
            let bar = indicatif::ProgressBar::new((cases.len() * PHASES.len()) as u64);
            while done.load(Ordering::Acquire) < cases.len() {
                bar.set_position(progress.iter().map(Progress::phases).sum());
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            bar.finish_and_clear();
        }
    });
    results
        .into_iter()
        .map(|m| match m.into_inner() {
            Ok(Some(r)) => r,
            _ => Err(RunError::Disk("a run ended without a result".into())),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_list_is_three_policies_with_their_settings() {
        let p = parse_policies("mq-deadline,mq-deadline:write_expire=1000:fifo_batch=1,bfq", &[]).unwrap();
        let labels: Vec<_> = p.iter().map(PolicySpec::label).collect();
        assert_eq!(labels, ["mq-deadline", "mq-deadline:write_expire=1000:fifo_batch=1", "bfq"]);
    }

    #[test]
    fn set_goes_to_every_policy_that_has_the_tunable() {
        let p = parse_policies("none,mq-deadline,bfq", &["fifo_batch=4".into()]).unwrap();
        assert_eq!(p[0].settings, []);
        assert_eq!(p[1].settings, [("fifo_batch".into(), 4)]);
        assert_eq!(p[2].settings, []);
    }

    #[test]
    fn every_wrong_value_is_named_with_what_is_accepted() {
        for (list, sets, named) in [
            ("deadlin", None, "deadlin"),
            ("mq-deadline:fifo_batsh=1", None, "fifo_batsh"),
            ("mq-deadline:fifo_batch=x", None, "'x'"),
            ("mq-deadline:fifo_batch=-1", None, "fifo_batch=-1"),
            ("mq-deadline:fifo_batch", None, "'fifo_batch'"),
            ("none", Some("slice_idle=8"), "slice_idle"),
            ("mq-deadline,,bfq", None, "mq-deadline,,bfq"),
            ("none,bfq:slice_idle=0,bfq:slice_idle=0", None, "'bfq:slice_idle=0' is twice"),
        ] {
            let sets: Vec<String> = sets.into_iter().map(str::to_owned).collect();
            let e = parse_policies(list, &sets).unwrap_err();
            assert!(e.contains(named) && !e.contains('\n'), "{list}: {e}");
        }
    }
}

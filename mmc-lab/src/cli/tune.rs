//! `mmc-lab tune`: which scheduler and tunables would have served a trace best, and the lines that set them.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use mmc_mock::timing::Profile;
use mmc_time::Duration;

use super::bonnie::parse_policies;
use super::replay::{self, Failure, Given};
use crate::analysis::{Class, Victim};
use crate::board;
use crate::experiment::{self, HostKind, PolicySpec};
use crate::output;
use crate::report::{front::front, pages};
use crate::tune::{Candidate, Goal, Setting, Workload, recommended, search};
use crate::units::{format_size, format_time, parse_size};

/// What a kernel of today has, with the tunables that people change.
const POLICIES: &str = "mq-deadline,mq-deadline:fifo_batch=1,mq-deadline:write_expire=1000:fifo_batch=1,none,kyber,\
                        bfq:low_latency=1,bfq,bfq:slice_idle=0";
/// Those of them that a kernel of today can be told to use.
const LINUX: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];
/// Bars of the text have this many cells.
const BAR: usize = 24;

/// Searches schedulers and tunables for a workload, and recommends a setting with the lines that make it.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab tune trace.txt.gz
  mmc-lab tune trace.txt.gz --keep 90 --class journal --svg front.svg
  mmc-lab tune trace.txt.gz --out tune.html             with the picture, as one page
  mmc-lab tune trace.txt.gz --sched mq-deadline,bfq,ftb --card fit
  mmc-lab tune --workload bonnie --board qemu-sdhci --class journal   dirty limits, too

Each candidate is a replay of the trace (`mmc-lab replay --help`) or a run of a simulated bonnie++ (`mmc-lab bonnie --help`): a
prediction for that workload and that card. A plain bfq does not raise weights, bfq:low_latency=1 does, as Linux unless told
otherwise; the lines that are printed set it. Dirty limits are searched for bonnie++ only: a trace does not show when pages
became dirty.

Exit status: 0 done, 1 the trace is of no use or a file cannot be written, 2 wrong usage.")]
pub struct Args {
    /// A trace, in any format that `explain` reads
    #[arg(value_name = "TRACE", required_unless_present = "workload")]
    pub file: Option<PathBuf>,
    /// Instead of a trace: bonnie, the load of `mmc-lab bonnie`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["file", "drain", "nr_requests"])]
    pub workload: Option<String>,
    /// The board of such a workload: hsdk or qemu-sdhci
    #[arg(long, default_value = "qemu-sdhci", requires = "workload")]
    pub board: String,
    /// The size of its file, 16M to 1G [default: the board's]
    #[arg(long, requires = "workload")]
    pub size: Option<String>,
    /// Its RAM, 64M to 64G [default: the board's]
    #[arg(long, requires = "workload")]
    pub ram: Option<String>,
    /// Policies to try, a comma list of NAME[:tunable=value...]; the first is what runs now
    #[arg(long, value_name = "LIST", default_value = POLICIES)]
    pub sched: String,
    /// What is to be short: the p99 of journal, reads, sync_writes, or awaited (the worst of the three)
    #[arg(long, value_name = "CLASS", default_value = "awaited")]
    pub class: String,
    /// Percent of the best bytes per second that must be kept
    #[arg(long, value_name = "PERCENT", default_value = "95")]
    pub keep: String,
    /// Card preset, or fit: a profile fitted to the trace
    #[arg(long, default_value = "slow2018")]
    pub card: String,
    /// Requests that leave the scheduler in one go (1 for kernels before 5.9)
    #[arg(long, value_name = "N", default_value = "1")]
    pub drain: String,
    /// Tags that the device has now
    #[arg(long, value_name = "N", default_value = "128")]
    pub nr_requests: String,
    /// Seed of the card's pauses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Also write the picture of stall against throughput as an SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Also write the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print JSON, an object a line and candidate
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    match tune(args) {
        Ok(text) => output::print("tune", &text, ExitCode::SUCCESS),
        Err((status, e)) => output::fail("tune", e, status),
    }
}

fn goal(name: &str) -> Result<Goal, Failure> {
    match name {
        "awaited" => Ok(Goal::Awaited),
        other => Class::ALL.into_iter().find(|c| c.key() == other).map(Goal::Of).ok_or_else(|| {
            let names = Class::ALL.map(Class::key).join(", ");
            (2, format!("--class: `{other}` is not known: accepted are awaited, {names}"))
        }),
    }
}

/// The answer.
///
/// # Errors
/// [`Failure`].
pub fn tune(args: &Args) -> Result<String, Failure> {
    let goal = goal(&args.class)?;
    [&args.svg, &args.out]
        .into_iter()
        .try_for_each(|p| output::may_write(p.as_deref()))
        .map_err(|e| (1, e))?;
    let keep = replay::number("--keep", &args.keep, 0, 100)? as f64;
    let policies = parse_policies(&args.sched, &[]).map_err(|e| (2, e))?;
    let bonnie = args.workload.as_deref().map(|name| bonnie(name, args)).transpose()?;
    let recorded = match &args.file {
        Some(file) => {
            let given = Given {
                drain: &args.drain,
                nr_requests: &args.nr_requests,
                max_sectors_kb: None,
                busy: "0",
                card: &args.card,
                seed: args.seed,
                open: false,
            };
            Some(replay::prepare(file, &given)?)
        }
        None => None,
    };
    let workload = match (&recorded, &bonnie) {
        (Some((_, plan, config)), _) => Workload::Recorded(plan, config),
        (None, Some(config)) => Workload::Bonnie(config),
        (None, None) => return Err((2, "name a trace, or a workload with --workload bonnie".to_owned())),
    };
    let bar = std::io::stderr().is_terminal().then(indicatif::ProgressBar::new_spinner);
    let all = search(&workload, &policies, goal, || {
        if let Some(bar) = &bar {
            bar.inc(1);
        }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let all = all.map_err(|e| (1, e))?;
    let Some(now) = all.first() else { return Err((2, "--sched: no policy to try".to_owned())) };
    let best = recommended(&all, keep).unwrap_or(now);
    let (words, sets) = advice(now, best, keep, goal, &all);
    let picture = || front(&all, best, goal.noun()).0.standalone();
    let name = args.file.as_deref().map_or_else(|| format!("bonnie++ on {}", args.board), output::short);
    let mut notes = Vec::new();
    if let Some((trace, ..)) = &recorded {
        notes.clone_from(&trace.notes);
        notes.push(
            "vm.dirty_bytes is not searched, since a trace does not show when pages became dirty".to_owned(),
        );
    }
    let page = || pages::tune::render(&name, &words, &sets, (&all, best), goal.noun(), &notes);
    output::write(args.svg.as_deref(), picture)
        .and_then(|()| output::write(args.out.as_deref(), page))
        .map_err(|e| (1, e))?;
    if args.json {
        return Ok(all.iter().map(|c| object(c, &now.setting, std::ptr::eq(c, best))).collect());
    }
    let mut out = words.join("\n") + "\n" + &sets;
    out.push_str(&table(&all, now));
    for note in &notes {
        let _ = writeln!(out, "Note: {note}.");
    }
    Ok(out)
}

/// The run that `--workload` names.
fn bonnie(name: &str, args: &Args) -> Result<experiment::Config, Failure> {
    if name != "bonnie" {
        return Err((2, format!("--workload: `{name}` is not known: accepted is bonnie")));
    }
    let mut board = board::by_name(&args.board).map_err(|e| (2, format!("--board: {e}")))?;
    if let Some(ram) = &args.ram {
        board.ram = parse_size(ram)
            .ok()
            .filter(|bytes| (64 << 20..=64 << 30).contains(bytes))
            .ok_or_else(|| (2, format!("--ram {ram} is not accepted: write 64M to 64G")))?;
    }
    if let Some(size) = &args.size {
        board.size = parse_size(size)
            .ok()
            .filter(|bytes| (16 << 20..=1 << 30).contains(bytes) && bytes.is_multiple_of(8192))
            .ok_or_else(|| {
                (2, format!("--size {size} is not accepted: write 16M to 1G, a multiple of 8K"))
            })?;
    }
    Profile::named(&args.card).map_err(|e| (2, format!("--card: {e}")))?;
    Ok(experiment::Config {
        board,
        card: args.card.clone(),
        host: HostKind::Mock,
        seed: args.seed,
        cpu_cost: Duration::ZERO,
        beside: Vec::new(),
    })
}

/// The recommendation in words, and the lines that set it.
fn advice(
    now: &Candidate,
    best: &Candidate,
    keep: f64,
    goal: Goal,
    all: &[Candidate],
) -> (Vec<String>, String) {
    let label = best.setting.label(&now.setting);
    let fastest = all.iter().map(|c| c.rate).fold(0.0, f64::max).max(1.0);
    if best.setting == now.setting {
        let words = format!(
            "Leave it as it is: nothing that was tried has a shorter p99 of the {} than {} and keeps {keep:.0} % of the \
             best bytes per second.",
            goal.noun(),
            now.setting.label(&now.setting),
        );
        return (vec![words], String::new());
    }
    let first = format!(
        "Recommended: {label}. Predicted p99 of the {}: {} (now {}), at {:.1} % of the best bytes per second (now {:.1} %).",
        goal.noun(),
        format_time(best.stall),
        format_time(now.stall),
        best.rate / fastest * 100.0,
        now.rate / fastest * 100.0,
    );
    let why = format!("Why: now {}; then {}.", story(now.worst.as_ref()), story(best.worst.as_ref()));
    (vec![first, why, reason(now, best)], lines(&best.setting, &now.setting))
}

/// The worst wait in a clause.
fn story(worst: Option<&Victim>) -> String {
    worst.map_or_else(
        || "nothing waits".to_owned(),
        |v| {
            format!(
                "the longest is a {} by {}: {}, behind {} requests, {} of them background writes",
                v.class.noun(),
                v.task,
                format_time(v.wait),
                v.ahead.requests,
                v.ahead.background_writes()
            )
        },
    )
}

/// What makes the difference, in words.
fn reason(now: &Candidate, best: &Candidate) -> String {
    let mut why = Vec::new();
    let (a, b) = (&now.setting, &best.setting);
    if a.policy.name != b.policy.name {
        why.push(match b.policy.name.as_str() {
            "bfq" | "cfq" | "ftb" => format!(
                "{} gives each task its own queue, so that what somebody waits for does not stand behind another task's \
                 background writes",
                b.policy.name
            ),
            "kyber" => "kyber keeps background writes short of tags when those who wait are late".to_owned(),
            "none" => "without a scheduler requests go in the order they come".to_owned(),
            other => format!("{other} serves what is overdue first"),
        });
    }
    if a.policy.name == b.policy.name && a.policy.settings != b.policy.settings {
        why.push("its batches and time limits decide how often it looks at who is overdue".to_owned());
    }
    if b.nr_requests < a.nr_requests {
        why.push(format!("{} tags instead of {} make the queue shorter", b.nr_requests, a.nr_requests));
    }
    if b.max_sectors < a.max_sectors {
        why.push(format!(
            "requests of {} KiB keep the card busy for less time each, so who comes next waits less",
            b.max_sectors / 2
        ));
    }
    if let Some([_, limit]) = b.dirty.filter(|_| a.dirty != b.dirty) {
        why.push(format!(
            "no more than {} may wait to be written, so what somebody waits for has less in front of it",
            format_size(limit)
        ));
    }
    let text = why.join("; ");
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| format!("{}{}.", c.to_uppercase(), chars.as_str()))
}

/// The lines that set it: now, and at every start.
fn lines(best: &Setting, now: &Setting) -> String {
    if !LINUX.contains(&best.policy.name.as_str()) {
        return format!(
            "No kernel of today has {}: it is in mmc-sched, for a driver built with it.\n",
            best.policy.name
        );
    }
    let mut sets = vec![("queue/scheduler".to_owned(), best.policy.name.clone())];
    let given = &best.policy.settings;
    if best.policy.name == "bfq" && given.iter().all(|(name, _)| name != "low_latency") {
        // Ours has it off, Linux on: what was tried is what is set.
        sets.push(("queue/iosched/low_latency".to_owned(), "0".to_owned()));
    }
    sets.extend(given.iter().map(|(k, v)| (format!("queue/iosched/{k}"), v.to_string())));
    if best.nr_requests != now.nr_requests {
        sets.push(("queue/nr_requests".to_owned(), best.nr_requests.to_string()));
    }
    if best.max_sectors != now.max_sectors {
        sets.push(("queue/max_sectors_kb".to_owned(), (best.max_sectors / 2).to_string()));
    }
    let mut out = String::from("\nTo set it now:\n");
    for (key, value) in &sets {
        let _ = writeln!(out, "  echo {value} > /sys/block/mmcblk0/{key}");
    }
    if let Some([background, limit]) = best.dirty {
        let _ = writeln!(out, "  sysctl -w vm.dirty_background_bytes={background} vm.dirty_bytes={limit}");
    }
    out.push_str("At every start, as /etc/udev/rules.d/60-mmc-scheduler.rules:\n");
    out.push_str("  ACTION==\"add|change\", KERNEL==\"mmcblk[0-9]\"");
    for (key, value) in &sets {
        let _ = write!(out, ", ATTR{{{key}}}=\"{value}\"");
    }
    out.push('\n');
    if let Some([background, limit]) = best.dirty {
        let _ = writeln!(
            out,
            "and as /etc/sysctl.d/60-mmc-dirty.conf (of all disks of the machine):\n  vm.dirty_background_bytes = \
             {background}\n  vm.dirty_bytes = {limit}"
        );
    }
    out
}

/// All candidates, the shortest stall first; the front is marked.
fn table(all: &[Candidate], now: &Candidate) -> String {
    let mut sorted: Vec<&Candidate> = all.iter().collect();
    sorted.sort_by(|a, b| a.stall.cmp(&b.stall).then(b.rate.total_cmp(&a.rate)));
    let wide = sorted.iter().map(|c| c.setting.label(&now.setting).chars().count()).max().unwrap_or(0).max(9);
    let fastest = all.iter().map(|c| c.rate).fold(0.0, f64::max).max(1.0);
    let mut out = format!(
        "\nPredicted p99, * = no other is better in both stall and bytes per second\n  {:<wide$} {:>9} {:>9} {:>9} {:>7}  of the \
         best rate\n",
        "setting", "journal", "reads", "sync", "MB/s"
    );
    for c in sorted {
        let time = |class: Class| {
            c.p99.get(class.index()).copied().flatten().map_or_else(|| "-".to_owned(), format_time)
        };
        let cells = (c.rate / fastest * BAR as f64).round() as usize;
        let _ = writeln!(
            out,
            "{} {:<wide$} {:>9} {:>9} {:>9} {:>7.2}  {:<BAR$} {:.1} %",
            if c.front { '*' } else { ' ' },
            c.setting.label(&now.setting),
            time(Class::Journal),
            time(Class::Reads),
            time(Class::SyncWrites),
            c.rate / 1e6,
            "█".repeat(cells.min(BAR)),
            c.rate / fastest * 100.0,
        );
    }
    out
}

fn object(c: &Candidate, now: &Setting, best: bool) -> String {
    let PolicySpec { name, settings } = &c.setting.policy;
    let seconds = |class: Class| c.p99.get(class.index()).copied().flatten().map(|ns| ns as f64 / 1e9);
    let value = json!({
        "label": c.setting.label(now), "scheduler": name,
        "settings": settings.iter().cloned().collect::<std::collections::BTreeMap<String, i64>>(),
        "nr_requests": c.setting.nr_requests, "max_sectors_kb": c.setting.max_sectors / 2,
        "dirty_bytes": c.setting.dirty.map(|d| d[1]), "dirty_background_bytes": c.setting.dirty.map(|d| d[0]),
        "stall_p99_s": c.stall as f64 / 1e9, "journal_p99_s": seconds(Class::Journal),
        "reads_p99_s": seconds(Class::Reads), "sync_writes_p99_s": seconds(Class::SyncWrites),
        "bytes_per_s": c.rate.round(), "front": c.front, "recommended": best,
    });
    output::json(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_limits_are_set_by_sysctl_and_the_rest_in_the_queue() {
        let policy = PolicySpec { name: "mq-deadline".into(), settings: vec![("fifo_batch".into(), 1)] };
        let now = Setting { policy, nr_requests: 128, max_sectors: 1024, dirty: None };
        let best =
            Setting { nr_requests: 32, max_sectors: 256, dirty: Some([4 << 20, 8 << 20]), ..now.clone() };
        assert_eq!(
            best.label(&now),
            "mq-deadline:fifo_batch=1 nr_requests=32 max_sectors_kb=128 dirty_bytes=8M"
        );
        let text = lines(&best, &now);
        for part in [
            "echo mq-deadline > /sys/block/mmcblk0/queue/scheduler",
            "echo 128 > /sys/block/mmcblk0/queue/max_sectors_kb",
            "sysctl -w vm.dirty_background_bytes=4194304 vm.dirty_bytes=8388608",
            "ATTR{queue/nr_requests}=\"32\"",
            "  vm.dirty_bytes = 8388608",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!lines(&now, &now).contains("sysctl"));
    }

    #[test]
    fn a_plain_bfq_is_set_as_it_was_tried() {
        let setting = |settings: &[(&str, i64)]| {
            let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            let policy = PolicySpec { name: "bfq".into(), settings };
            Setting { policy, nr_requests: 128, max_sectors: 1024, dirty: None }
        };
        let of = |settings| lines(&setting(settings), &setting(settings));
        assert!(of(&[("slice_idle", 0)]).contains("echo 0 > /sys/block/mmcblk0/queue/iosched/low_latency"));
        let raised = of(&[("low_latency", 1)]);
        assert!(raised.contains("echo 1 > /sys/block/mmcblk0/queue/iosched/low_latency"));
        assert!(!raised.contains("echo 0") && raised.contains("ATTR{queue/iosched/low_latency}=\"1\""));
    }
}

//! `mmc-lab explain`: who waited for whom in a real trace, for how long, and why.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::analysis::commands::{CommandReport, Commands};
use crate::analysis::{Analysis, Class, Options, Report, Victim};
use crate::blame::{Ahead, verdict};
use crate::dmesg::{self, Blocked};
use crate::report::pages;
use crate::trace::model::Line;
use crate::trace::order::Ordered;
use crate::units::{format_size, format_time, parse_time};
use mmc_proto::command::{Dialect, name as command_name};

/// Victims shown in the text unless `--top` asks for more.
const SHOWN: usize = 10;
/// Lines read between two looks at the progress.
const SHOWN_EACH: u64 = 200_000;
/// Devices told apart: more are in no machine, but may be in a broken file.
const DEVICES: usize = 256;
/// Other devices named in a note.
const NAMED: usize = 5;
/// Bytes of a kernel log that are read.
const LONGEST_LOG: u64 = 64 << 20;
/// Tasks shown.
const TASKS: usize = 12;
/// Width of the text.
const COLUMNS: usize = 100;
/// How to record a trace.
const RECORD: &str = "record one with `echo 1 > /sys/kernel/tracing/events/block/enable` and save \
    /sys/kernel/tracing/trace";

/// Reads a trace of the block layer and says who waited for whom, for how long, and why.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab explain trace.txt.gz               what stalled and why
  mmc-lab explain trace.txt --hung 2s        every wait of 2 s or more
  mmc-lab explain trace.txt --top 50 --json  the 50 longest waits, for a program
  mmc-lab explain trace.txt --busy 16        latencies under load only
  mmc-lab explain trace.txt --dmesg log.txt  the kernel's hung-task lines, too
  mmc-lab explain trace.txt --out why.html   with pictures, as one page

To record a trace:
  cd /sys/kernel/tracing; echo mono > trace_clock; echo 65536 > buffer_size_kb
  echo 1 > events/block/enable; ...; cat trace > /tmp/trace.txt
or
  perf record -a -e 'block:*' --clockid mono; perf script > /tmp/trace.txt
  blktrace -d /dev/mmcblk0                   (then explain mmcblk0.blktrace.0)
With events/mmc/enable as well (-e 'block:*,mmc:*') the time of each command at the card is shown, too.

Exit status: 0 done, 1 the trace cannot be read or holds no event of block: or mmc:, 2 wrong usage.")]
pub struct Args {
    /// Text of ftrace, trace-cmd, perf script or blkparse, or a binary file of blktrace; plain, gzip or zstd; - for the
    /// standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Report every wait of at least TIME, and tasks that slept so long without a break, as 10s or 500ms
    /// [default: 10s, and the 10 longest waits in any case]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub hung: Option<String>,
    /// Report the N longest waits, however short
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub top: Option<String>,
    /// Latencies by class: only of bios queued while at least N requests were outstanding
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    pub busy: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// The kernel's log of that time (dmesg): say of each of its hung-task lines what waited then
    #[arg(long, value_name = "LOG")]
    pub dmesg: Option<PathBuf>,
    /// Device, as 179,0 [default: the one with the most events]
    #[arg(long, value_name = "MAJ,MIN")]
    pub dev: Option<String>,
    /// Also write the report as one HTML page
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Why there is no answer: one line and the exit status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// An option has a value that is not accepted.
    #[error("{0}")]
    Usage(String),
    /// The trace is of no use.
    #[error("{0}")]
    Input(String),
}

impl Failure {
    /// 2 for wrong usage, 1 for a useless trace.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Input(_) => 1,
        }
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Device it is about, major and minor.
    pub dev: (u32, u32),
    /// What was looked for.
    pub options: Options,
    /// Block events of that device.
    pub events: u64,
    /// What happened.
    pub report: Report,
    /// The kernel's hung-task lines, if its log was given.
    pub blocked: Option<Vec<Blocked>>,
    /// The commands at the card, if the trace has `mmc:` events.
    pub commands: Option<CommandReport>,
    /// What the reader of the report should know about the trace: skipped lines, other devices, a coarse clock, …
    pub notes: Vec<String>,
}

/// Runs the command: the report to the standard output, or one line to the standard error.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let answer = crate::output::may_write(args.out.as_deref()).map_err(Failure::Input).and_then(|()| {
        let found = explain(args)?;
        let page = || pages::explain::render(&found, &args.file);
        crate::output::write(args.out.as_deref(), page).map_err(Failure::Input)?;
        if args.json { json(&found) } else { Ok(text(&found, &args.file)) }
    });
    match answer {
        Ok(text) => crate::output::print("explain", &text, ExitCode::SUCCESS),
        Err(failure) => crate::output::fail("explain", &failure, failure.status()),
    }
}

/// Reads the trace and finds out.
///
/// # Errors
/// [`Failure::Usage`] for an option's value, before the file is touched; [`Failure::Input`] for a trace that cannot be
/// read, is empty, or holds no event of a block device.
pub fn explain(args: &Args) -> Result<Explanation, Failure> {
    let options = options(args)?;
    let wanted = args.dev.as_deref().map(device).transpose()?;
    let name = crate::output::named(&args.file);
    let unreadable = |error: io::Error| Failure::Input(format!("cannot read {name}: {error}"));
    let mut found = Reading::new(options, args.out.is_some(), wanted);
    let bar = io::stderr().is_terminal().then(indicatif::ProgressBar::new_spinner);
    let mut each = |line| {
        found.line(line);
        if found.lines.is_multiple_of(SHOWN_EACH)
            && let Some(bar) = &bar
        {
            bar.set_message(format!("{} million lines", found.lines / 1_000_000));
            bar.tick();
        }
    };
    let end = if args.file == Path::new("-") {
        let mut input = crate::trace::plain(io::BufReader::new(io::stdin())).map_err(unreadable)?;
        crate::trace::read(&mut *input, &mut each).map(|()| 1)
    } else {
        // What cannot be opened is told at once; what cannot be read to its end, with what there is of it.
        std::fs::File::open(&args.file).map_err(unreadable)?;
        crate::trace::read_file(&args.file, &mut each)
    };
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let mut found = found.conclude(&name, end)?;
    if let Some(log) = &args.dmesg {
        let mut text = Vec::new();
        let read = crate::trace::open(log).and_then(|file| file.take(LONGEST_LOG).read_to_end(&mut text));
        read.map_err(|e| Failure::Input(format!("cannot read {}: {e}", log.display())))?;
        let mut blocked = dmesg::blocked(&String::from_utf8_lossy(&text));
        dmesg::explain(&mut blocked, &found.report);
        found.blocked = Some(blocked);
    }
    Ok(found)
}

/// Explains what `input` holds, of the busiest device; with `pictures` also what a page needs for them.
///
/// # Errors
/// [`Failure::Input`], as [`explain`].
pub fn explain_input(
    input: &mut dyn BufRead,
    name: &str,
    options: Options,
    pictures: bool,
) -> Result<Explanation, Failure> {
    let mut found = Reading::new(options, pictures, None);
    let end = crate::trace::read(input, |line| found.line(line)).map(|()| 1);
    found.conclude(name, end)
}

fn options(args: &Args) -> Result<Options, Failure> {
    let usage = |error| Failure::Usage(format!("--hung: {error}"));
    let given = args.hung.as_deref().map(parse_time).transpose().map_err(usage)?;
    let top = args.top.as_deref().map(|text| count("--top", text)).transpose()?;
    let default = Options::default();
    let (top, threshold) = match (top, given) {
        (Some(top), _) => (top as usize, None),
        (None, Some(limit)) => (0, Some(limit)),
        (None, None) => (default.top, default.threshold),
    };
    Ok(Options { busy: count("--busy", &args.busy)?, top, threshold, hung: given.unwrap_or(default.hung) })
}

fn count(option: &str, text: &str) -> Result<u32, Failure> {
    let usage = |_| {
        Failure::Usage(format!("{option}: `{text}` is no count: write a whole number from 0 to {}", u32::MAX))
    };
    text.trim().parse().map_err(usage)
}

fn device(text: &str) -> Result<(u32, u32), Failure> {
    text.split_once([',', ':'])
        .and_then(|(major, minor)| Some((major.trim().parse().ok()?, minor.trim().parse().ok()?)))
        .ok_or_else(|| Failure::Usage(format!("--dev: `{text}` is no device: write major,minor as in 179,0")))
}

/// A trace being read: one analysis a device.
struct Reading {
    options: Options,
    /// Keep what pictures are drawn from.
    pictures: bool,
    wanted: Option<(u32, u32)>,
    order: Ordered,
    commands: Commands,
    devices: BTreeMap<(u32, u32), (u64, Analysis)>,
    clock: Option<String>,
    lines: u64,
    odd: u64,
    first_odd: u64,
    lost: u64,
    /// Events of devices beyond [`DEVICES`].
    other_devices: u64,
}

impl Reading {
    fn new(options: Options, pictures: bool, wanted: Option<(u32, u32)>) -> Self {
        let devices = BTreeMap::new();
        Self {
            options,
            pictures,
            wanted,
            order: Ordered::default(),
            commands: Commands::default(),
            devices,
            clock: None,
            lines: 0,
            odd: 0,
            first_odd: 0,
            lost: 0,
            other_devices: 0,
        }
    }

    fn line(&mut self, line: Line) {
        self.lines += 1;
        match line {
            Line::Event(event) => {
                self.order.put(event);
                self.events();
            }
            Line::Lost(events) => {
                self.lost = self.lost.saturating_add(events);
                self.order.end();
                self.events();
                self.commands.lose_track();
                self.devices.values_mut().for_each(|(_, analysis)| analysis.lose_track());
            }
            Line::Clock(name) => self.clock = Some(name),
            Line::Command(command) => self.commands.push(command),
            Line::Other => {}
            Line::Odd => {
                if self.odd == 0 {
                    self.first_odd = self.lines;
                }
                self.odd += 1;
            }
        }
    }

    /// The events whose turn it is.
    fn events(&mut self) {
        while let Some(event) = self.order.due() {
            if self.devices.len() >= DEVICES
                && self.wanted != Some(event.dev)
                && !self.devices.contains_key(&event.dev)
            {
                self.other_devices += 1;
            } else {
                let analysis = if self.pictures { Analysis::recording } else { Analysis::new };
                let new = || (0, analysis(self.options));
                let (events, analysis) = self.devices.entry(event.dev).or_insert_with(new);
                *events += 1;
                if self.wanted.is_none_or(|wanted| wanted == event.dev) {
                    analysis.push(event);
                }
            }
            self.order.pop();
        }
    }

    /// All lines are here; `end` is how the input ended.
    fn conclude(mut self, name: &str, end: io::Result<usize>) -> Result<Explanation, Failure> {
        self.order.end();
        self.events();
        if self.devices.is_empty() && self.wanted.is_none() && !self.commands.is_empty() {
            // Nobody knows who waited, but how long the card took can be told.
            self.devices.insert((0, 0), (0, Analysis::new(self.options)));
        }
        let most = || self.devices.iter().max_by_key(|(_, (events, _))| *events).map(|(&dev, _)| dev);
        let Some(dev) = self.wanted.or_else(most) else {
            return Err(Failure::Input(match end {
                Err(error) => format!("cannot read {name}: {error}"),
                Ok(_) if self.lines == 0 => format!("{name} is empty; {RECORD}"),
                Ok(_) => format!(
                    "{name} holds no block event ({} lines, {} of them not of a trace); {RECORD}",
                    self.lines, self.odd
                ),
            }));
        };
        let Some((events, analysis)) = self.devices.remove(&dev) else {
            let (major, minor) = dev;
            return Err(Failure::Input(match self.devices.is_empty() {
                true => format!("{name} holds no block event; {RECORD}"),
                false => format!(
                    "{name} holds no event of device {major},{minor}; it has {}",
                    named(&self.devices)
                ),
            }));
        };
        let mut report = analysis.finish();
        report.clock.name = self.clock;
        (report.clock.backwards, report.clock.late) = (self.order.backwards(), self.order.too_late());
        report.clock.ordered &= report.clock.backwards == 0;
        let mut notes = Vec::new();
        if events == 0 {
            notes.push(format!("The trace holds no block event, so nobody knows who waited: {RECORD}."));
        }
        if !self.devices.is_empty() {
            let (major, minor) = dev;
            let others = named(&self.devices);
            notes.push(format!(
                "This is device {major},{minor} with {events} events; the trace also has {others} (choose with --dev)."
            ));
        }
        if self.other_devices > 0 {
            notes.push(format!(
                "{} events name devices beyond the first {DEVICES} and were left out.",
                self.other_devices
            ));
        }
        match end {
            Err(error) => notes
                .push(format!("The file cannot be read to its end ({error}); this is what comes before.")),
            Ok(files) if files > 1 => {
                notes.push(format!("Read with the files of the other CPUs beside it, {files} in all."));
            }
            Ok(_) => {}
        }
        if self.odd > 0 {
            notes.push(format!(
                "{} of {} lines are cut or not of a trace and were skipped; the first is line {}.",
                self.odd, self.lines, self.first_odd
            ));
        }
        if self.lost > 0 {
            notes.push(format!(
                "The recorder lost {} events; {} requests without an end are left out for that. A larger \
                 buffer_size_kb keeps them.",
                self.lost, report.lost_track
            ));
        }
        notes.extend(report.clock.advice());
        if !report.per_bio && events > 0 {
            notes.push(
                "The trace has no block_bio_queue lines: latencies by class are per request.".to_owned(),
            );
        }
        if report.unfinished > 0 {
            notes.push(format!(
                "{} requests were not done when the trace ended; their times are what had passed by then.",
                report.unfinished
            ));
        }
        if report.forgotten > 0 {
            notes.push(format!(
                "{} more waits were as long as the limit but shorter than those listed.",
                report.forgotten
            ));
        }
        if report.unmatched > 0 {
            notes.push(format!("{} completions belong to requests from before the trace.", report.unmatched));
        }
        let commands = self.commands.finish();
        Ok(Explanation { dev, options: self.options, events, report, blocked: None, commands, notes })
    }
}

/// The busiest devices with their events.
fn named(devices: &BTreeMap<(u32, u32), (u64, Analysis)>) -> String {
    let mut all: Vec<_> = devices.iter().map(|(dev, (events, _))| (dev, events)).collect();
    all.sort_by_key(|&(_, events)| std::cmp::Reverse(events));
    let names = all.iter().take(NAMED).map(|((a, b), events)| format!("{a},{b} with {events} events"));
    let mut text = names.collect::<Vec<_>>().join("; ");
    if all.len() > NAMED {
        let _ = write!(text, "; and {} more devices", all.len() - NAMED);
    }
    text
}

/// The JSON: with `--dmesg`, and where the trace has `mmc:` events, a key more at the end.
#[derive(serde::Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_hung: Option<&'a [Blocked]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_the_card: Option<&'a CommandReport>,
}

/// The object of `--json`, one line; notes go to the standard error.
fn json(found: &Explanation) -> Result<String, Failure> {
    let Explanation { report, blocked, commands, .. } = found;
    let whole = Whole { report, kernel_hung: blocked.as_deref(), at_the_card: commands.as_ref() };
    let value = serde_json::to_value(whole);
    let value = value.map_err(|error| Failure::Input(format!("cannot write the report as JSON: {error}")))?;
    for note in &found.notes {
        crate::output::note(note);
    }
    Ok(crate::output::json(value))
}

/// The report for people.
#[must_use]
pub fn text(found: &Explanation, file: &Path) -> String {
    let Explanation { dev: (major, minor), options, events, report, blocked, commands, notes } = found;
    let took = report.last.saturating_sub(report.first);
    let mut out = String::new();
    if *events == 0 {
        commands.iter().for_each(|c| at_the_card(&mut out, c));
        said(&mut out, notes);
        return out;
    }
    paragraph(&mut out, &verdict(report, options.hung, Some(found.dev)));
    let _ = writeln!(
        out,
        "\n{}: {events} block events of device {major},{minor} in {}: {} requests of {} tasks,\n{} read, {} written.",
        crate::output::named(file),
        format_time(took),
        report.requests,
        report.tasks,
        format_size(report.read_bytes),
        format_size(report.written_bytes),
    );
    let top = options.threshold.is_none().then_some(options.top);
    victims(&mut out, &report.victims, top);
    if !report.hung.is_empty() {
        let _ = writeln!(out, "\nTasks that slept {} or more without a break", format_time(options.hung));
        for one in &report.hung {
            let _ = writeln!(
                out,
                "  {:>8}  {}, until {}, for a {}\n            {}",
                format_time(one.slept),
                one.task,
                stamp(one.until),
                one.waits_for,
                went_first(&one.ahead)
            );
        }
    }
    if let Some(blocked) = blocked {
        kernel_said(&mut out, blocked);
    }
    classes(&mut out, report, options.busy);
    tasks(&mut out, report);
    service(&mut out, report);
    commands.iter().for_each(|c| at_the_card(&mut out, c));
    let _ = writeln!(out, "\nQueue depth over time (greatest {})", report.queue_depth_max);
    let _ = writeln!(out, "  {}", report.depth.sparkline(COLUMNS - 4));
    let _ = writeln!(out, "  {} to {} s", stamp(report.first), stamp(report.last));
    said(&mut out, notes);
    out
}

fn said(out: &mut String, notes: &[String]) {
    if !notes.is_empty() {
        let _ = writeln!(out, "\nNotes");
        for note in notes {
            paragraph(out, &format!("- {note}"));
        }
    }
}

/// The heads of the commands' table, and its rows: `CMD25 WRITE_MULTIPLE_BLOCK`, how many, median, p99, the longest and when
/// it began, how many failed, bytes moved.
pub const COMMAND_HEADS: [&str; 8] = ["command", "n", "p50", "p99", "max", "began", "failed", "moved"];

/// A row of [`COMMAND_HEADS`] for each command.
pub fn command_rows(report: &CommandReport) -> impl Iterator<Item = [String; 8]> + '_ {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_time);
    report.commands.iter().map(move |c| {
        // Which kind of card it is the events do not say.
        let name = match [Dialect::Sd, Dialect::Mmc].map(|d| command_name(c.index, d, false)) {
            [Some(sd), Some(mmc)] if sd != mmc => format!(" {sd} or {mmc}"),
            [name, other] => name.or(other).map_or_else(String::new, |name| format!(" {name}")),
        };
        [
            format!("CMD{}{name}", c.index),
            c.stats.n.to_string(),
            time(c.stats.p50),
            time(c.stats.p99),
            time(c.stats.max),
            stamp(c.longest_at),
            c.failed.to_string(),
            format_size(c.bytes),
        ]
    })
}

/// How long each command took from the driver's view, with its busy phase.
fn at_the_card(out: &mut String, report: &CommandReport) {
    let _ = writeln!(out, "\nCommands at {}, what took most time in all first", report.host);
    for [name, n, p50, p99, max, at, failed, moved] in
        std::iter::once(COMMAND_HEADS.map(str::to_owned)).chain(command_rows(report))
    {
        let _ =
            writeln!(out, "  {name:<28} {n:>7} {p50:>9} {p99:>9} {max:>9} {at:>15} {failed:>6} {moved:>9}");
    }
    if report.unmatched > 0 {
        let _ = writeln!(out, "  {} more without a beginning or an end", report.unmatched);
    }
}

/// The longest waits: `top` of them, or of each bio the longest.
#[must_use]
pub fn longest_waits(victims: &[Victim], top: Option<usize>) -> Vec<&Victim> {
    if let Some(top) = top {
        return victims.iter().take(top).collect();
    }
    let mut bios = HashSet::new();
    let mut longest = Vec::new();
    for v in victims {
        if longest.len() < SHOWN && (v.queued.is_none() || bios.insert((v.queued, &v.task))) {
            longest.push(v);
        }
    }
    longest
}

/// The longest waits with their parts: `top` of them, or of each bio the longest.
fn victims(out: &mut String, victims: &[Victim], top: Option<usize>) {
    if victims.is_empty() {
        out.push_str("\nNo wait is that long.\n");
        return;
    }
    let _ = writeln!(
        out,
        "\nLongest waits\n  {:>8}  {:<15} {:<5} {:>10} {:>8} {:>8} {:>8} {:>8}  {:<5}  went first (older + younger)",
        "wait", "task", "flags", "sector", "size", "tags", "queue", "card", "blame"
    );
    let shown = longest_waits(victims, top);
    for v in &shown {
        let _ = writeln!(
            out,
            "  {:>8}  {:<15} {:<5} {:>10} {:>8} {:>8} {:>8} {:>8}  {:<5}  {} ({} + {}), {}{}",
            format_time(v.wait),
            v.task,
            v.rwbs,
            v.sector,
            format_size(v.sectors.saturating_mul(512)),
            format_time(v.tag_wait),
            format_time(v.sched_wait),
            format_time(v.service),
            v.blame.word(),
            v.ahead.requests,
            v.ahead.older,
            v.ahead.younger,
            format_size(v.ahead.bytes),
            if v.completed.is_none() { ", not done" } else { "" },
        );
    }
    if victims.len() > shown.len() {
        let more = victims.len() - shown.len();
        let _ = writeln!(out, "  and {more} more, many of the same bios (--top N or --json shows them)");
    }
    let share = |part: fn(&Victim) -> u64| {
        let whole: u128 = victims.iter().map(|v| u128::from(v.wait)).sum();
        let part: u128 = victims.iter().map(|v| u128::from(part(v))).sum();
        (part * 100).checked_div(whole).unwrap_or(0)
    };
    let _ = writeln!(
        out,
        "  Of the time of all {}: {} % without a tag, {} % in the scheduler, {} % at the card.",
        victims.len(),
        share(|v| v.tag_wait),
        share(|v| v.sched_wait),
        share(|v| v.service)
    );
}

fn classes(out: &mut String, report: &Report, busy: u32) {
    let what = if report.per_bio { "bios" } else { "requests" };
    let when = match busy {
        0 => String::new(),
        busy => format!(" queued while {busy} or more requests were outstanding"),
    };
    let _ = writeln!(
        out,
        "\nLatency by class, of {what}{when}\n  {:<13} {:>6} {:>9} {:>9} {:>9}",
        "class", "n", "p50", "p99", "max"
    );
    for class in Class::ALL {
        let stats = report.classes.get(class);
        let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_time);
        let _ = writeln!(
            out,
            "  {:<13} {:>6} {:>9} {:>9} {:>9}",
            class.key(),
            stats.n,
            time(stats.p50),
            time(stats.p99),
            time(stats.max)
        );
    }
}

/// The kernel's hung-task lines.
fn kernel_said(out: &mut String, blocked: &[Blocked]) {
    let _ = writeln!(out, "\nHung-task lines of the kernel ({})", blocked.len());
    for one in blocked {
        let what = one.while_waiting.as_deref().unwrap_or("nothing in this trace waited then");
        let Blocked { at, task, pid, seconds, .. } = one;
        let _ = writeln!(out, "  {}  {task} ({pid}), more than {seconds} s: {what}", stamp(*at));
    }
}

/// Who waited most.
fn tasks(out: &mut String, report: &Report) {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), format_time);
    let _ = writeln!(
        out,
        "\nLatency by task, who waited most in all first\n  {:<22} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "task (process)", "n", "p50", "p99", "p99.9", "p99.99", "max"
    );
    for task in report.by_task.iter().take(TASKS) {
        let s = &task.stats;
        let name = format!("{} ({})", task.name, task.pid);
        let _ = writeln!(
            out,
            "  {name:<22} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}",
            s.n,
            time(s.p50),
            time(s.p99),
            time(s.p999),
            time(s.p9999),
            time(s.max)
        );
    }
    if report.by_task.len() > TASKS {
        let _ = writeln!(out, "  and {} more", report.by_task.len() - TASKS);
    }
}

/// How long the card took.
fn service(out: &mut String, report: &Report) {
    for (what, octaves) in ["reads", "writes and all else"].iter().zip(&report.service) {
        let all: u64 = octaves.rows().map(|r| r.2).sum();
        if all == 0 {
            continue;
        }
        let _ = writeln!(out, "\nService time at the card: {all} {what}");
        for (from, to, n) in octaves.rows() {
            let cells = (n.saturating_mul(40).div_ceil(all)) as usize;
            let _ = writeln!(
                out,
                "  {:>9} to {:>9} {n:>8}  {}",
                format_time(from),
                format_time(to),
                "█".repeat(cells)
            );
        }
    }
}

/// What went first, in a clause.
#[must_use]
pub fn went_first(ahead: &Ahead) -> String {
    format!(
        "{} requests went first: {} older, {} younger, {}; {} of them background writes",
        ahead.requests,
        ahead.older,
        ahead.younger,
        format_size(ahead.bytes),
        ahead.background_writes()
    )
}

/// A stamp as the trace prints it.
#[must_use]
pub fn stamp(ns: u64) -> String {
    format!("{}.{:06}", ns / 1_000_000_000, ns % 1_000_000_000 / 1_000)
}

/// Adds `text`, broken between words.
fn paragraph(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

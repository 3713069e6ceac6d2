//! `mmc-lab verify`: does a disk hold what was written to it, all of it?

use crate::output;
use crate::report::pages;
use crate::serve::client::Client;
use crate::serve::socket::Address;
use crate::units::format_size;
use crate::verify::{Fate, Report, SECTOR, Target, find_seed, read, write};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Fills a disk with numbered sectors, reads them back, and says where the data went, as f3write and f3read do
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab verify card.img --write                     fill an image and read it back: all it held is lost
  mmc-lab verify nbd://127.0.0.1:10809 --write        a served disk
  mmc-lab verify unix:/tmp/card.sock                  read back what an earlier --write has left
  mmc-lab verify card.img --out card.html             and a page with a map of the disk
  mmc-lab serve --card fake-64gb --size 512M          a card to find out: it has an eighth of what it says

Of a real card behind a device file read back what the card has, not what this machine remembers: write, take it out
and put it in again, then read without --write and with the --seed that writing has told: a card that stores nothing may
still hold an earlier run's.

  good         the sector holds what was written to it: together they are the usable size
  overwritten  it holds what was written to another: the card has less than it says
  changed      one or two words of it are wrong
  corrupted    it holds something else
  unreadable   reading it is an error

Exit status: 0 all is good, 1 something is not, or the disk cannot be used, 2 wrong usage.")]
pub struct Args {
    /// A file, a device, nbd://HOST:PORT or unix:SOCKET
    #[arg(value_name = "TARGET")]
    target: String,
    /// Fill it first: EVERYTHING ON IT IS LOST
    #[arg(long)]
    write: bool,
    /// Tells apart what several runs wrote [default: writing, the time; reading, what the first whole sector says]
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Also write what was found as one HTML page
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let served = match args.target.strip_prefix("nbd://") {
        Some(at) => Some(Address::parse(at.trim_end_matches('/'))),
        None if args.target.starts_with("unix:") => Some(Address::parse(&args.target)),
        None => None,
    };
    // Before anything is lost.
    if let Err(e) = output::may_write(args.out.as_deref()) {
        return output::fail("verify", e, 1);
    }
    let tried = match served {
        Some(Err(e)) => return output::fail("verify", e, 2),
        Some(Ok(address)) => Client::connect(&address).map_err(|e| e.to_string()).and_then(|mut client| {
            let tried = attempt(&mut client, args);
            client.disconnect();
            tried
        }),
        None => OpenOptions::new()
            .read(true)
            .write(args.write)
            .open(&args.target)
            .map_err(|e| e.to_string())
            .and_then(|mut file| attempt(&mut file, args)),
    };
    match tried {
        Ok((seed, report)) => {
            let status = if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            let name = output::short(Path::new(&args.target));
            if let Err(e) = output::write(args.out.as_deref(), || pages::verify::render(&name, seed, &report))
            {
                return output::fail("verify", e, 1);
            }
            let text = if args.json { output::json(object(seed, &report)) } else { text(seed, &report) };
            output::print("verify", &text, status)
        }
        Err(e) => output::fail("verify", format_args!("{}: {e}", args.target), 1),
    }
}

/// The seed, and what was found.
fn attempt(target: &mut impl Target, args: &Args) -> Result<(u64, Report), String> {
    let size = target.size();
    if size < SECTOR as u64 {
        return Err(format!("it has {size} bytes, not one sector of {SECTOR}"));
    }
    // Hidden where the standard error is no terminal.
    let bar = |what: &'static str| {
        let style =
            ProgressStyle::with_template("{prefix} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        ProgressBar::new(size)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_prefix(what)
    };
    let seed = match args.seed {
        Some(seed) => seed,
        None if args.write => now(),
        None => find_seed(target).map_err(|e| format!("reading: {e}"))?.ok_or(
            "no sector holds what verify writes: fill it with --write, or say with --seed what it should hold",
        )?,
    };
    let mut unwritten = 0;
    if args.write {
        let bar = bar("writing");
        unwritten = write(target, seed, &mut |n| bar.inc(n)).map_err(|e| format!("writing: {e}"))?;
        bar.finish_and_clear();
    }
    let bar = bar("reading");
    let mut report = read(target, seed, &mut |n| bar.inc(n)).map_err(|e| format!("reading: {e}"))?;
    bar.finish_and_clear();
    report.unwritten = unwritten;
    Ok((seed, report))
}

/// A seed that no run before had, so that what those have left is not taken for this one's: microseconds, which every
/// reader of JSON can hold.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_micros() as u64
}

const BYTES: u64 = SECTOR as u64;

fn object(seed: u64, r: &Report) -> serde_json::Value {
    let ranges: Vec<_> = r
        .ranges
        .iter()
        .map(|x| {
            let mut o = json!({"first": x.first, "sectors": x.sectors, "is": x.fate.name()});
            if let Fate::Overwritten(distance) = x.fate {
                o["holds_sector"] = (x.first as i64 + distance).into();
            }
            o
        })
        .collect();
    json!({
        "seed": seed,
        "sectors": r.sectors, "good": r.good, "overwritten": r.overwritten, "changed": r.changed,
        "corrupted": r.corrupted, "unreadable": r.unreadable, "unwritten": r.unwritten,
        "usable_bytes": r.good * BYTES, "wraps_at_bytes": r.wraps.map(|w| w * BYTES),
        "ranges": ranges, "more_ranges": r.more,
    })
}

/// Ranges that the text shows.
const SHOWN: usize = 20;

fn text(seed: u64, r: &Report) -> String {
    let mut out = format!("seed {seed}\n");
    for range in r.ranges.iter().take(SHOWN) {
        let (first, last) = (range.first, range.first + range.sectors - 1);
        let _ = write!(out, "sectors {first} to {last} ({}): ", format_size(range.sectors * BYTES));
        let _ = match range.fate {
            Fate::Overwritten(distance) => writeln!(
                out,
                "overwritten: sector {first} holds what was written to sector {}",
                first as i64 + distance
            ),
            fate => writeln!(out, "{}", fate.name()),
        };
    }
    let hidden = r.ranges.len().saturating_sub(SHOWN) as u64 + r.more;
    if hidden > 0 {
        let _ = writeln!(out, "and {hidden} more ranges (--json shows {})", crate::verify::RANGES);
    }
    let _ = writeln!(
        out,
        "good {}, overwritten {}, changed {}, corrupted {}, unreadable {} of {} sectors",
        r.good, r.overwritten, r.changed, r.corrupted, r.unreadable, r.sectors
    );
    if r.unwritten > 0 {
        let _ = writeln!(out, "{} sectors could not be written", r.unwritten);
    }
    if let Some(wraps) = r.wraps {
        let _ = writeln!(
            out,
            "addresses {} apart are one place: the disk has less than it says",
            format_size(wraps * BYTES)
        );
    }
    let _ = writeln!(out, "usable: {} of {}", format_size(r.good * BYTES), format_size(r.sectors * BYTES));
    out
}

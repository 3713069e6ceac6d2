//! `mmc-lab card`: the cards of the zoo, and what a trace says of a card.

mod quirks;
pub mod simulate;

use crate::fit::{Fitted, Value, fio, fit_profile, read};
use crate::output;
use crate::report::pages::{self, fit::Row};
use crate::units::format_size;
use mmc_mock::card::{Capacity, MmcQuirks, Quirks, Uhs, Version};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The cards of the zoo, and what a trace says of a card
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab card list                       every card, what is odd about it
  mmc-lab card show fake-64gb             one card: registers, source, what a good host does
  mmc-lab card show slow2018 --json       the numbers of a timing profile, for a program
  mmc-lab card fit trace.txt.gz           what a trace of the block layer says of the card below
  mmc-lab card fit device.log --json      the same from a log of the card itself
  mmc-lab card fit fio.json               what `fio --output-format=json` says of it
  mmc-lab card simulate --workload logger --deadline 10ms
                                          how often a recorder is late, and the ring buffer it needs

A log of a card has a line per data command: t_us R|W sector sectors service_us; # begins a comment.

Exit status: 0 done, 1 the file cannot be read or holds no data command, 2 wrong usage.")]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do with cards.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Every card and every timing profile, a line each
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// One card or timing profile
    Show {
        /// Its name, as `list` prints it
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// How often a recorder's block is late on a card, and how much memory hides it
    Simulate(simulate::Args),
    /// Fit a timing profile to the service times of a trace
    Fit {
        /// Text of ftrace, a log of the card or the JSON of fio (json or json+), plain or packed; - for the standard input
        #[arg(value_name = "TRACE")]
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Also write the fit as one HTML page
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// Runs the command: the answer to the standard output, or one line to the standard error.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let answer = match &args.action {
        Action::List { json } => Ok(list(*json)),
        Action::Show { name, json } => show(name, *json).map_err(|e| (2, e)),
        Action::Fit { file, json, out } => fit(file, *json, out.as_deref()).map_err(|e| (1, e)),
        Action::Simulate(args) => simulate::run(args),
    };
    match answer {
        Ok(text) => output::print("card", &text, ExitCode::SUCCESS),
        Err((status, error)) => output::fail("card", error, status),
    }
}

/// What `list` prints.
#[must_use]
pub fn list(json: bool) -> String {
    if json {
        let cards = zoo::list().iter().map(
            |p| json!({"name": p.name, "kind": "sd", "what": p.what, "host": p.host, "source": p.source}),
        );
        let mmc = zoo::mmc_list().iter().map(
            |p| json!({"name": p.name, "kind": "mmc", "what": p.what, "host": p.host, "source": p.source}),
        );
        let io = zoo::io_list().iter().map(
            |p| json!({"name": p.name, "kind": "sdio", "what": p.what, "host": p.host, "source": p.source}),
        );
        let all: Vec<_> = cards
            .chain(mmc)
            .chain(io)
            .chain(Profile::NAMES.map(|name| json!({"name": name, "kind": "profile"})))
            .collect();
        return output::json(json!(all));
    }
    let mut out = "SD cards:\n".to_owned();
    for p in zoo::list() {
        let _ = writeln!(out, "  {:<22} {}", p.name, p.what);
    }
    out.push_str("\nMMC and eMMC cards:\n");
    for p in zoo::mmc_list() {
        let _ = writeln!(out, "  {:<22} {}", p.name, p.what);
    }
    out.push_str("\nSDIO and combo cards:\n");
    for p in zoo::io_list() {
        let _ = writeln!(out, "  {:<22} {}", p.name, p.what);
    }
    out.push_str("\nTiming profiles (how fast a card is; any card can have any):\n");
    let _ = writeln!(out, "  {}", Profile::NAMES.join(", "));
    out
}

/// What `show` prints.
///
/// # Errors
/// The name is none of a card or a profile; the text lists the names.
pub fn show(name: &str, json: bool) -> Result<String, String> {
    if let Ok(p) = Profile::named(name) {
        return Ok(if json { output::json(profile_json(name, &p)) } else { profile_text(name, &p) });
    }
    if let Some(p) = zoo::mmc_list().iter().find(|p| p.name == name) {
        let config = zoo::mmc(name, Profile::ideal(), 0).map_err(|e| e.to_string())?;
        let size =
            [("sectors", config.sectors().to_string()), ("capacity", format_size(config.sectors() * 512))];
        let mut facts = size.to_vec();
        facts.push(("addressing", if config.sector_addressed() { "sectors" } else { "bytes" }.into()));
        facts.push(("boot", format!("2 partitions of {}", format_size(config.boot_sectors() * 512))));
        facts.push(("cid", hex(&config.cid)));
        facts.push(("csd", hex(&config.csd)));
        if let Some(ext) = &config.ext_csd {
            facts.push(("ext_csd", hex(&ext[..])));
        }
        if config.quirks != MmcQuirks::default() {
            facts.push(("quirks", quirks::mmc(&config.quirks)));
        }
        return Ok(describe([p.name, p.what, p.host, p.source], &facts, json));
    }
    if let Some(p) = zoo::io_list().iter().find(|p| p.name == name) {
        let config = zoo::io(name, &Profile::ideal(), 0).map_err(|e| e.to_string())?;
        let functions = config
            .functions
            .iter()
            .map(|f| format!("interface {} (blocks up to {})", f.interface, f.max_block));
        let mut facts = vec![
            ("manfid", format!("{:04x}:{:04x}", config.vendor, config.device)),
            ("functions", functions.collect::<Vec<_>>().join(", ")),
            ("high_speed", yes(config.high_speed)),
        ];
        let memory = config.memory.map(|m| format_size(m.sectors * 512));
        facts.push(("memory", memory.unwrap_or_else(|| "none".into())));
        return Ok(describe([p.name, p.what, p.host, p.source], &facts, json));
    }
    let unknown = |e: zoo::UnknownCard| format!("{e}; timing profiles are {}", Profile::NAMES.join(", "));
    let config = zoo::card(name, Profile::ideal(), 0).map_err(unknown)?;
    let mut facts = vec![
        ("sectors", config.sectors.to_string()),
        ("capacity", format_size(config.sectors * 512)),
        ("addressing", if config.capacity() == Capacity::Standard { "bytes" } else { "sectors" }.into()),
        ("version", version(config.version).into()),
        ("cmd23", yes(config.cmd23)),
        ("high_speed", yes(config.high_speed)),
        ("uhs", config.uhs.map_or("no".into(), uhs)),
        ("cid", hex(&config.cid())),
        ("csd", hex(&config.csd(0))),
        ("scr", hex(&config.scr())),
        ("ssr", hex(&config.ssr(4))),
    ];
    if config.quirks != Quirks::default() {
        facts.push(("quirks", quirks::sd(&config.quirks)));
    }
    let words = zoo::list().iter().find(|p| p.name == name).map(|p| [p.name, p.what, p.host, p.source]);
    Ok(describe(words.unwrap_or_default(), &facts, json))
}

/// A card in words.
fn describe(words: [&str; 4], facts: &[(&str, String)], json: bool) -> String {
    let keys = ["name", "what", "host", "source"].into_iter();
    let mut all: Vec<(&str, String)> = keys.zip(words.map(str::to_owned)).collect();
    all.extend_from_slice(facts);
    if json {
        let map: serde_json::Map<_, _> = all.into_iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
        return output::json(serde_json::Value::Object(map));
    }
    let mut out = String::new();
    for (key, text) in all {
        let key = if key == "host" { "a good host" } else { key };
        let _ = writeln!(out, "{key:<12} {text}");
    }
    out
}

/// The modes of a UHS-I card.
fn uhs(it: Uhs) -> String {
    let modes = [(it.sdr50, "SDR50"), (it.ddr50, "DDR50"), (it.sdr104, "SDR104")];
    let modes = modes.into_iter().filter(|m| m.0).map(|m| m.1);
    ["SDR12", "SDR25"].into_iter().chain(modes).collect::<Vec<_>>().join(", ")
}
/// The version of the physical layer.
const fn version(it: Version) -> &'static str {
    match it {
        Version::V1_0 => "1.0x",
        Version::V1_1 => "1.10",
        Version::V2 => "2.00",
        Version::V3 => "3.0x",
    }
}
fn yes(it: bool) -> String {
    if it { "yes" } else { "no" }.to_owned()
}
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// The numbers of a profile; times in microseconds, rates in bytes per second.
fn numbers(p: &Profile) -> [(&'static str, f64); 15] {
    let us = |d: mmc_time::Duration| d.as_nanos() as f64 / 1e3;
    [
        ("cmd_us", us(p.cmd)),
        ("rd_access_us", us(p.rd_access)),
        ("rd_seq_us", us(p.rd_seq)),
        ("rd_bps", p.rd_bps as f64),
        ("wr_bps", p.wr_bps as f64),
        ("wr_seq_us", us(p.wr_seq)),
        ("wr_rand_us", us(p.wr_rand)),
        ("au_sectors", p.au as f64),
        ("open", p.open as f64),
        ("copy_bps", p.copy_bps as f64),
        ("erase_us", us(p.erase)),
        ("stall_p", p.stall_p),
        ("stall_min_us", us(p.stall_min)),
        ("stall_max_us", us(p.stall_max)),
        ("cache_bytes", p.cache as f64),
    ]
}

fn profile_json(name: &str, p: &Profile) -> serde_json::Value {
    let mut map = serde_json::Map::new();
    map.insert("name".into(), json!(name));
    map.extend(numbers(p).map(|(key, x)| (key.to_owned(), json!(x))));
    serde_json::Value::Object(map)
}

fn profile_text(name: &str, p: &Profile) -> String {
    let mut out = format!("timing profile {name}\n");
    for (key, x) in numbers(p) {
        let _ = writeln!(out, "  {key:<14} {x}");
    }
    out
}

fn fit(file: &Path, json: bool, out: Option<&Path>) -> Result<String, String> {
    output::may_write(out)?;
    let name = output::named(file);
    let unreadable = |e: io::Error| format!("cannot read {name}: {e}");
    let mut input = if file == Path::new("-") {
        crate::trace::plain(io::BufReader::new(io::stdin())).map_err(unreadable)?
    } else {
        crate::trace::open(file).map_err(unreadable)?
    };
    let found = if fio::is_json(&mut *input).map_err(unreadable)? {
        let mut bytes = Vec::new();
        input.take(fio::LONGEST).read_to_end(&mut bytes).map_err(unreadable)?;
        fio::fit(&bytes).map_err(|e| format!("{name}: {e}"))?
    } else {
        fit_profile(&read(&mut *input).map_err(|e| format!("{name}: {e}"))?)
    };
    output::write(out, || {
        pages::fit::render(&output::short(file), &counted(&found), &told(&found), &found.notes)
    })?;
    if json {
        let mut value = serde_json::to_value(&found).map_err(|e| e.to_string())?;
        value["profile"] = found.profile().map_or(serde_json::Value::Null, |p| profile_json("fitted", &p));
        return Ok(output::json(value));
    }
    Ok(text(&found, &name))
}

/// What a fit tells, number by number: name, value, unit, interval; `None` where the trace does not tell.
fn told(f: &Fitted) -> Vec<Row> {
    let row = |what: &str, unit: &str, scale: f64, v: Option<Value>| match v {
        None => Row { name: what.into(), value: "not told".into(), interval: String::new(), around: None },
        Some(v) => {
            let [a, b, c] = [v.value, v.low, v.high].map(|x| x / scale);
            let digits = if a.abs() < 0.1 { 5 } else { 2 };
            Row {
                name: what.into(),
                value: format!("{a:.digits$}"),
                interval: format!("{b:.digits$} to {c:.digits$} {unit}"),
                around: (a > 0.0).then(|| (b / a, c / a)),
            }
        }
    };
    let mut rows = vec![
        row("cmd + rd_access", "us", 1.0, f.cmd_rd_access_us),
        row("cmd + rd_seq", "us", 1.0, f.cmd_rd_seq_us),
        row("rd_bps", "MB/s", 1e6, f.rd_bps),
        row("cmd + wr_seq", "us", 1.0, f.cmd_wr_seq_us),
        row("cmd + wr_rand", "us", 1.0, f.cmd_wr_rand_us),
        row("wr_bps", "MB/s", 1e6, f.wr_bps),
        row("copy_bps", "MB/s", 1e6, f.copy_bps),
        row("erase", "ms", 1e3, f.erase_us),
        row("stall_p", "per piece", 1.0, f.stall_p),
        row("stall_min", "ms", 1e3, f.stall_min_us),
        row("stall_max", "ms", 1e3, f.stall_max_us),
    ];
    let plain = |name: &str, told: Option<(String, String)>| {
        let (value, interval) = told.unwrap_or_else(|| ("not told".into(), String::new()));
        Row { name: name.into(), value, interval, around: None }
    };
    rows.push(plain("au", f.au_sectors.map(|au| ((au / 2).to_string(), "KiB".into()))));
    rows.push(plain("open", f.open.map(|(low, high)| (low.to_string(), format!("{low} to {high} units")))));
    rows
}

fn counted(f: &Fitted) -> String {
    format!("{} reads, {} writes, {} merges, {} pauses", f.reads, f.writes, f.merges, f.stalls)
}

/// A fit for people.
#[must_use]
pub fn text(f: &Fitted, name: &str) -> String {
    let mut out = format!("{name}: {}\n\n  {:<16} {:>12}   interval\n", counted(f), "", "value");
    for Row { name, value, interval, .. } in told(f) {
        let line = format!("  {name:<16} {value:>12}   {interval}");
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
    for note in &f.notes {
        let _ = writeln!(out, "note: {note}");
    }
    out
}

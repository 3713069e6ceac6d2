//! `mmc-lab serve`: the whole stack as a disk for others, over NBD.

use super::bonnie::parse_policies;
use crate::output;
use crate::report::pages;
use crate::serve::card::{self, Choice, Plan};
use crate::serve::connection::{Message, Told, accept};
use crate::serve::image::{self, Image, Made};
use crate::serve::socket::Address;
use crate::serve::wire::{Export, Operation};
use crate::serve::worker::{Pace, Report, Worker};
use crate::units::{format_size, format_time, parse_size};
use mmc_block::Waits;
use mmc_mock::fault::Script;
use mmc_mock::storage::Storage;
use mmc_time::Duration;
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;

/// A disk for others over NBD, whose requests go through scheduler, protocol, driver, register model and card model.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab serve --image card.img --size 512M
  mmc-lab serve --image card.img --listen unix:/tmp/card.sock --card emmc --sched ftb
  mmc-lab serve --card a1 --size 64M --pace real --sched mq-deadline --set fifo_batch=1
  mmc-lab serve --card a1 --size 64M --fault 'every CMD18: block 0 crc; at CMD25#3: no-answer'
  mmc-lab serve --card slow2018 --size 1G --out served.html   the statistics as a page, too

  qemu-img info nbd://127.0.0.1:10809
  qemu-img convert -n -f raw root.img nbd+unix:///?socket=/tmp/card.sock

It serves until Ctrl-C or SIGTERM, stores what is in the card's cache, and says what it served. Killing it (SIGKILL)
is a loss of power: what a flush or FUA has covered is in the image, what was only in the card's cache is not.
Contents that are touched stay in memory; without --image they are gone at the end.

Exit status: 0 done, 1 the card is not usable, a file or address cannot be used, or not all could be stored,
2 wrong usage.")]
pub struct Args {
    /// Holds what the card stores; made if it is not there [default: memory only]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Size of the card, as 512M [default: the image's, or the card's own]
    #[arg(long)]
    size: Option<String>,
    /// The card: a timing profile (slow2018, cheap, a1, a2, ideal), emmc, or a name of `mmc-lab card list`
    #[arg(long, value_name = "NAME", default_value = "a1")]
    card: String,
    /// Timing profile of a card that is no profile itself [default: a1]
    #[arg(long, value_name = "NAME")]
    timing: Option<String>,
    /// The policy, NAME[:tunable=value...]
    #[arg(long, value_name = "NAME", default_value = "ftb")]
    sched: String,
    /// Sets a tunable of the policy
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// What goes wrong: a file with a rule a line, or the rules themselves, with ; between
    #[arg(long, value_name = "SCRIPT")]
    fault: Option<String>,
    /// Virtual time: real (the card takes as long as a card) or fast (as fast as it can be computed)
    #[arg(long, default_value = "fast")]
    pace: String,
    /// Where: HOST:PORT on this machine (port 0: any), or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10809")]
    listen: String,
    /// The card's volatile cache: on or off
    #[arg(long, default_value = "on")]
    cache: String,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// End when the last client has gone
    #[arg(long)]
    once: bool,
    /// Seed of the card's pauses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the statistics as one JSON object
    #[arg(long)]
    json: bool,
    /// Also write the statistics as one HTML page, at the end
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What `--fault` says: a file's text, or its own.
fn script(text: &str) -> Result<Script, String> {
    let path = Path::new(text);
    if path.is_file() {
        let rules = std::fs::read_to_string(path).map_err(|e| format!("{text}: {e}"))?;
        return rules.parse().map_err(|e| format!("{text}: {e}"));
    }
    let rules = text.replace(';', "\n").parse();
    rules.map_err(|e| format!("--fault: there is no file '{text}', and as a script it is wrong: {e}"))
}

/// What was asked for, checked as far as it can be without touching anything.
struct Wanted {
    plan_of: Box<dyn Fn(Option<u64>) -> Result<Plan, String>>,
    size: Option<u64>,
    pace: Pace,
    address: Address,
}

impl Args {
    fn wanted(&self) -> Result<Wanted, String> {
        let mut policies = parse_policies(&self.sched, &self.sets)?;
        let policy = match (policies.pop(), policies.is_empty()) {
            (Some(policy), true) => policy,
            _ => return Err(format!("--sched {}: one policy serves a disk, not several", self.sched)),
        };
        let size = self.size.as_deref().map(parse_size).transpose().map_err(|e| format!("--size: {e}"))?;
        let switch = |what: &str, text: &str, [yes, no]: [&str; 2]| match text {
            t if t == yes => Ok(true),
            t if t == no => Ok(false),
            t => Err(format!("{what} {t}: accepted are {yes}, {no}")),
        };
        let pace = if switch("--pace", &self.pace, ["real", "fast"])? { Pace::Real } else { Pace::Fast };
        let cache = switch("--cache", &self.cache, ["on", "off"])?;
        let address = Address::parse(&self.listen).map_err(|e| format!("--listen: {e}"))?;
        let script = self.fault.as_deref().map(script).transpose()?.unwrap_or_default();
        let (name, timing, seed) = (self.card.clone(), self.timing.clone(), self.seed);
        let plan_of = move |size| {
            let card = Choice::new(&name, timing.as_deref(), size, seed)?;
            Ok(Plan { card, name: name.clone(), policy: policy.clone(), script: script.clone(), cache })
        };
        // A name or a size that cannot be is wrong usage; with an image that is there its length may decide yet.
        if self.image.as_ref().is_none_or(|path| !path.exists()) || size.is_some() {
            plan_of(size)?;
        }
        Ok(Wanted { plan_of: Box::new(plan_of), size, pace, address })
    }
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let wanted = match args.wanted() {
        Ok(wanted) => wanted,
        Err(e) => return output::fail("serve", e, 2),
    };
    match serve(args, wanted) {
        Ok((disk, report)) => {
            let status = if report.stored { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            if let Err(e) = output::write(args.out.as_deref(), || pages::serve::render(&disk, &report)) {
                return output::fail("serve", e, 1);
            }
            let text = if args.json { output::json(object(&report)) } else { text(&report) };
            output::print("serve", &text, status)
        }
        Err(e) => output::fail("serve", e, 1),
    }
}

/// What was served, as clients are told, and the statistics.
fn serve(args: &Args, wanted: Wanted) -> Result<(String, Report), String> {
    output::may_write(args.out.as_deref())?;
    // What was made for it goes if the server does not start.
    let mut made = Made::default();
    let file = match &args.image {
        Some(path) => {
            let (file, length, new) = image::open(path)?;
            made = new;
            Some((file, length))
        }
        None => None,
    };
    let length = file.as_ref().map_or(0, |f| f.1);
    let from_image = (length > 0 && Choice::any_size(&args.card)).then_some(length);
    if let (Some(size), Some(length)) = (wanted.size, from_image)
        && size != length
    {
        return Err(format!(
            "the image has {length} bytes and --size says {size}: leave --size out, or give another image"
        ));
    }
    let plan = (wanted.plan_of)(wanted.size.or(from_image))?;
    let mut image = None;
    let mut file = file.map(|f| f.0);
    let mut fill = |storage: &mut Storage, at_once: bool| {
        let Some(file) = file.take() else { return Ok(()) };
        let mut opened = Image::new(file, storage.sectors())?;
        if at_once {
            opened.fill(storage).map_err(|e| format!("the image cannot be read: {e}"))?;
        }
        image = Some(opened);
        Ok(())
    };
    let stack = card::build(&plan, &mut fill)?;
    let traits = stack.disk.core().card();
    let export =
        Export { size: traits.blocks * 512, min_block: traits.unit.max(1) * 512, read_only: args.read_only };
    let listener =
        wanted.address.listen().map_err(|e| format!("cannot listen on {}: {e}", wanted.address))?;
    let address = listener.address(&wanted.address);
    let (to_worker, messages) = channel();
    let stop = to_worker.clone();
    // The worker may have ended already.
    ctrlc::set_handler(move || drop(stop.send(Message::Stop)))
        .map_err(|e| format!("cannot wait for Ctrl-C: {e}"))?;
    image.as_ref().map_or(Ok(()), Image::lengthen)?;
    made.keep();
    eprintln!("mmc-lab serve: listening on {address}: {}", stack.description);
    let description = stack.description.clone();
    accept(listener, Told { export, description: description.clone() }, to_worker);
    let mut say = |what: &str| eprintln!("mmc-lab serve: {what}");
    let report = Worker::new(stack, image, wanted.pace, args.once).run(&messages, &mut say);
    if let Address::Unix(path) = &wanted.address {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(path);
    }
    Ok((description, report))
}

const KINDS: [&str; 3] = ["reads", "sync_writes", "other"];

fn mean(w: &Waits) -> Duration {
    Duration::from_nanos(w.total.as_nanos().checked_div(w.count).unwrap_or(0))
}

fn object(r: &Report) -> serde_json::Value {
    let served: serde_json::Map<_, _> = Operation::ALL
        .iter()
        .zip(r.served)
        .map(|(op, (n, bytes))| (op.name().to_owned(), json!({"requests": n, "bytes": bytes})))
        .collect();
    let waits: serde_json::Map<_, _> = KINDS
        .iter()
        .zip(&r.disk.waits)
        .map(|(kind, w)| {
            let ms = |d: Duration| d.as_nanos() as f64 / 1e6;
            ((*kind).to_owned(), json!({"requests": w.count, "mean_ms": ms(mean(w)), "max_ms": ms(w.max)}))
        })
        .collect();
    json!({
        "clients": r.clients, "broken_clients": r.broken,
        "served": served, "failed": r.failed, "refused": r.refused,
        "disk": {
            "accepted": r.disk.accepted, "commands": r.disk.commands, "merged": r.disk.merged,
            "flushes": r.disk.flushes, "retries": r.disk.retries, "resets": r.disk.resets,
            "retunes": r.disk.retunes, "held": r.disk.held, "tag_waits": r.disk.tag_waits,
            "depth_max": r.disk.depth_max, "slow_commands": r.disk.slow_commands,
            "command_max_ms": r.disk.command_max.as_nanos() as f64 / 1e6,
        },
        "waits": waits,
        "virtual_s": r.virtual_time.as_nanos() as f64 / 1e9,
        "faults_that_never_struck": r.unstruck, "violations": r.violations, "stored": r.stored,
    })
}

fn text(r: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "clients     {} ({} cut off), {} of virtual time",
        r.clients,
        r.broken,
        format_time(r.virtual_time.as_nanos())
    );
    let served: Vec<String> = Operation::ALL
        .iter()
        .zip(r.served)
        .filter(|(_, (n, _))| *n > 0)
        .map(|(op, (n, bytes))| match bytes {
            0 => format!("{} {n}", op.name()),
            _ => format!("{} {n} ({})", op.name(), format_size(bytes)),
        })
        .collect();
    let served = if served.is_empty() { "none".to_owned() } else { served.join(", ") };
    let _ = writeln!(out, "requests    {served}; {} failed, {} refused", r.failed, r.refused);
    let d = &r.disk;
    let _ = writeln!(
        out,
        "disk        {} requests, {} merged, {} commands, {} flushes; most at one time {}, {} waited for a tag",
        d.accepted, d.merged, d.commands, d.flushes, d.depth_max, d.tag_waits
    );
    for (kind, w) in KINDS.iter().zip(&d.waits).filter(|(_, w)| w.count > 0) {
        let (mean, max) = (format_time(mean(w).as_nanos()), format_time(w.max.as_nanos()));
        let _ = writeln!(out, "waits       {kind}: {} on average, {max} at worst, of {}", mean, w.count);
    }
    let _ = writeln!(
        out,
        "errors      {} sent again, {} identifications anew, {} tuned anew",
        d.retries, d.resets, d.retunes
    );
    let _ = writeln!(
        out,
        "card        longest command {}, {} longer than 500 ms",
        format_time(d.command_max.as_nanos()),
        d.slow_commands
    );
    for rule in &r.unstruck {
        let _ = writeln!(out, "never struck: {rule}");
    }
    for violation in &r.violations {
        let _ = writeln!(out, "violation: {violation}");
    }
    out
}

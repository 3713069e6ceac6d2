//! `mmc-lab bench`: what things cost the processor.

use super::bonnie::parse_policies;
use crate::experiment::PolicySpec;
use crate::output;
use crate::sched_bench::{Bench, FAIR, WORKLOADS, Workload};
use mmc_sched::{AnyPolicy, Policy};
use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

/// Measures what the code costs the processor
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What is measured
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Nanoseconds per request inserted, dispatched and completed, by policy, workload and depth
    Sched(Sched),
    /// Events a second that `explain` reads, of a trace that is made on the way
    Explain {
        /// Text to read, 1M to 64G
        #[arg(long, default_value = "256M")]
        size: String,
        /// Keep what pictures need, and make the page, too
        #[arg(long)]
        page: bool,
    },
    /// What the DesignWare driver costs: register accesses, interrupts, the share of bus time
    Dw(super::dw::bench::Args),
}

#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Workloads, all of 4 KiB: random (over 32 GiB, half reads), random-nomerge (the same without
merging), sequential (upwards, nothing touches), sequential-merge (upwards without holes).
Prints a JSON object a line: policy, workload, depth, streams, ns_median, runs.
Times of one run of the program can be compared with each other, not with those of another machine.

Examples:
  mmc-lab bench sched
  mmc-lab bench sched --sched mq-deadline,bfq --depths 128,16384 --workloads random --table
  mmc-lab bench sched --sched bfq:slice_idle=0 --streams 8

Exit status: 0 done, 1 a policy got stuck, 2 wrong usage."
)]
struct Sched {
    /// Policies, a comma list of NAME[:tunable=value...] [default: all]
    #[arg(long, value_name = "LIST")]
    sched: Option<String>,
    /// Requests queued
    #[arg(long, value_name = "LIST", default_value = "1,32,128,1024,16384")]
    depths: String,
    /// Streams, for the policies that tell them apart (bfq, cfq, ftb); the others are measured with 1
    #[arg(long, value_name = "LIST", default_value = "1,8,64")]
    streams: String,
    /// Workloads [default: all four]
    #[arg(long, value_name = "LIST")]
    workloads: Option<String>,
    /// Runs of which the median is taken: many short ones, so that most are not interrupted by other programs
    #[arg(long, default_value = "101")]
    runs: String,
    /// Requests in a run
    #[arg(long, default_value = "1000")]
    requests: String,
    /// JSON, an object a line: what is printed anyway
    #[arg(long)]
    json: bool,
    /// A table for people instead of JSON
    #[arg(long, conflicts_with = "json")]
    table: bool,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let args = match &args.what {
        What::Sched(args) => args,
        What::Dw(args) => return super::dw::bench::run(args),
        What::Explain { size, page } => return explain(size, *page),
    };
    let plan = match Plan::new(args) {
        Ok(plan) => plan,
        Err(e) => return output::fail("bench", e, 2),
    };
    plan.measure(args.table).err().unwrap_or(ExitCode::SUCCESS)
}

fn row(policy: &str, workload: &str, depth: impl Display, streams: impl Display, ns: impl Display) -> String {
    format!("{policy:<24} {workload:<16} {depth:>6} {streams:>7} {ns:>9}")
}

fn bench(spec: &PolicySpec, workload: Workload, depth: usize, streams: u32) -> Result<Bench, String> {
    let mut policy = AnyPolicy::by_name(&spec.name).map_err(|e| format!("'{}': {e}", spec.name))?;
    for (name, value) in &spec.settings {
        policy.tune(name, &value.to_string()).map_err(|e| format!("{name}={value}: {e}"))?;
    }
    Bench::new(policy, workload, depth, streams)
}

/// Prints how fast `explain` reads.
fn explain(size: &str, page: bool) -> ExitCode {
    let bytes = match crate::units::parse_size(size) {
        Ok(bytes) if (1 << 20..=64 << 30).contains(&bytes) => bytes,
        Ok(_) => {
            let why = format!("--size {size} is out of range: accepted are 1M to 64G");
            return output::fail("bench", why, 2);
        }
        Err(e) => return output::fail("bench", format_args!("--size: {e}"), 2),
    };
    match crate::explain_bench::measure(bytes, page) {
        Ok(m) => {
            let seconds = m.busy.as_secs_f64().max(1e-9);
            let value = serde_json::json!({
                "bytes": m.bytes, "events": m.events, "processor_s": seconds,
                "events_per_s": (m.events as f64 / seconds).round(), "most_memory_bytes": m.memory,
                "page_s": m.page.map(|p| p.0.as_secs_f64()), "page_bytes": m.page.map(|p| p.1),
            });
            output::print("bench", &output::json(value), ExitCode::SUCCESS)
        }
        Err(e) => output::fail("bench", e, 1),
    }
}

/// What is measured.
struct Plan {
    policies: Vec<PolicySpec>,
    workloads: Vec<Workload>,
    depths: Vec<usize>,
    streams: Vec<u32>,
    runs: usize,
    requests: usize,
}

impl Plan {
    fn new(args: &Sched) -> Result<Self, String> {
        let all = AnyPolicy::NAMES.join(",");
        let workload = |name: &str| {
            WORKLOADS.into_iter().find(|w| w.name() == name).ok_or_else(|| {
                format!(
                    "unknown workload '{name}': accepted are {}",
                    WORKLOADS.map(Workload::name).join(", ")
                )
            })
        };
        Ok(Self {
            policies: parse_policies(args.sched.as_ref().unwrap_or(&all), &[])?,
            workloads: match &args.workloads {
                None => WORKLOADS.to_vec(),
                Some(list) => list.split(',').map(|w| workload(w.trim())).collect::<Result<_, _>>()?,
            },
            depths: numbers("--depths", &args.depths, 1, 65_000)?,
            streams: numbers("--streams", &args.streams, 1, 65_536)?,
            runs: number("--runs", &args.runs, 1, 10_000)?,
            requests: number("--requests", &args.requests, 1, 1 << 30)?,
        })
    }

    fn cases(&self) -> impl Iterator<Item = (&PolicySpec, Workload, usize, u32)> {
        self.policies.iter().flat_map(move |p| {
            let streams = if FAIR.contains(&p.name.as_str()) { &self.streams[..] } else { &[1] };
            self.workloads.iter().flat_map(move |w| {
                let depths = self.depths.iter();
                depths.flat_map(move |d| streams.iter().map(move |s| (p, *w, *d, *s)))
            })
        })
    }

    /// Prints a line for each case.
    fn measure(&self, table: bool) -> Result<(), ExitCode> {
        if table {
            output::piece("bench", &(row("policy", "workload", "depth", "streams", "ns") + "\n"))?;
        }
        for (policy, workload, depth, streams) in self.cases() {
            let ns = bench(policy, workload, depth, streams)
                .and_then(|mut bench| bench.measure(self.runs, self.requests))
                .map_err(|e| output::fail("bench", e, 1))?;
            let ns = (ns * 10.0).round() / 10.0;
            let label = policy.label();
            let line = if table {
                row(&label, workload.name(), depth, streams, format!("{ns:.1}")) + "\n"
            } else {
                output::json(serde_json::json!({
                    "policy": label, "workload": workload.name(), "depth": depth, "streams": streams,
                    "ns_median": ns, "runs": self.runs,
                }))
            };
            output::piece("bench", &line)?;
        }
        Ok(())
    }
}

fn number<T: FromStr + PartialOrd + Display>(what: &str, text: &str, min: T, max: T) -> Result<T, String> {
    let v = text.trim().parse().ok().filter(|v| *v >= min && *v <= max);
    v.ok_or_else(|| format!("{what} '{text}' is not a whole number from {min} to {max}"))
}

fn numbers<T: FromStr + PartialOrd + Display + Copy>(
    what: &str,
    list: &str,
    min: T,
    max: T,
) -> Result<Vec<T>, String> {
    list.split(',').map(|text| number(what, text, min, max)).collect()
}

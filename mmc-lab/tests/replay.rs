//! Recorded traces done again: in the kernel's own order, and as workloads under other schedulers.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Parser;
use mmc_lab::analysis::Class;
use mmc_lab::cli::replay::{Args, again, verify};
use mmc_lab::cli::tune::tune;
use mmc_lab::experiment::PolicySpec;
use mmc_lab::replay::closed::{self, Config, Views};
use mmc_lab::replay::load;
use mmc_lab::replay::plan::{After, plan};
use mmc_mock::timing::Profile;
use proptest::prelude::*;
use serde_json::Value;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

#[derive(Parser)]
struct TuneCommand {
    #[command(flatten)]
    args: mmc_lab::cli::tune::Args,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.ftrace.txt.gz"))
}

fn args(file: &Path, options: &[&str]) -> Args {
    Command::parse_from(["replay", file.to_str().unwrap()].iter().chain(options)).args
}

/// Issues, issues at the same place, and the first difference.
fn order(name: &str, options: &[&str]) -> (u64, u64, Value) {
    let all = [&["--verify-order", "--json"], options].concat();
    let (text, same) = verify(&args(&data(name), &all)).unwrap();
    let v: Value = serde_json::from_str(&text).unwrap();
    let (issued, matching) = (v["issued"].as_u64().unwrap(), v["same"].as_u64().unwrap());
    assert_eq!(same, issued == matching);
    assert_eq!(v["first_difference"].is_null(), same);
    (issued, matching, v["first_difference"].clone())
}

#[test]
fn kernels_that_take_one_at_a_time_are_followed_to_the_end() {
    assert_eq!(order("mv510-mq", &["--rules", "5.10"]), (857, 857, Value::Null));
    assert_eq!(order("bv510-mq", &["--rules", "5.10"]), (2961, 2961, Value::Null));
}

#[test]
fn a_kernel_that_takes_128_in_one_go_is_followed_to_the_end() {
    assert_eq!(order("m510-mq", &["--rules", "5.10", "--drain", "128"]), (836, 836, Value::Null));
    let (_, same, _) = order("m510-mq", &["--rules", "5.10"]);
    assert!(same < 836, "one at a time is not what that kernel did");
}

#[test]
fn linux_6_12_is_followed_nearly_everywhere_undrained() {
    let (issued, same, first) = order("b612-mq", &["--rules", "7.3"]);
    assert_eq!(issued, 3015);
    assert!(same * 100 >= issued * 95, "{same}");
    assert!(first["why"].as_str().unwrap().contains("issues later"), "{first}");
}

#[test]
fn where_the_depth_of_the_go_changes_the_first_difference_says_why() {
    let (issued, same, first) = order("m612-mq", &["--rules", "7.3", "--drain", "best"]);
    assert!(issued == 849 && same > 400 && same < issued, "{same}");
    assert!(first["why"].as_str().unwrap().contains("block_rq_requeue"), "{first}");
}

#[test]
fn the_forms_of_one_run_give_one_order() {
    let of = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
        verify(&args(&file, &["--verify-order", "--json"])).unwrap()
    };
    let ftrace = of("mv510-mq.ftrace.txt.gz");
    assert_eq!(ftrace, of("mv510-mq.blkparse.txt.gz"));
    assert_eq!(ftrace, of("mv510-mq.blktrace.0.gz"));
}

fn config(drain: usize) -> Config {
    let card = Profile::slow2018();
    Config { card, seed: 1, nr_requests: 128, max_sectors: 1024, drain, open: false, busy: 16 }
}

fn mq() -> PolicySpec {
    PolicySpec { name: "mq-deadline".into(), settings: Vec::new() }
}

fn bfq(low_latency: i64) -> PolicySpec {
    PolicySpec { name: "bfq".into(), settings: vec![("low_latency".into(), low_latency)] }
}

/// What the recording says and what the replay of its workload says.
fn both(name: &str, drain: usize, policy: &PolicySpec) -> (Views, Views) {
    let events = load(&data(name)).unwrap().events;
    let plan = Rc::new(plan(&events).unwrap());
    let again = closed::run(&plan, &config(drain), policy).unwrap();
    (Views::of(&events, 16), Views::of(&again, 16))
}

/// The drained bfq row of docs/measured.md (a trace of `m510-bfq` is not there, its figures are): with the weights raised, as
/// that kernel did, reads and background writes wait as long as measured; without, everybody waits for 64 of them.
#[test]
fn a_drained_kernel_with_bfq_is_met_only_with_the_weights_raised() {
    let of = |low_latency| both("m510-mq", 128, &bfq(low_latency)).1.busy.classes;
    let near = |a: Option<u64>, b: f64| (a.unwrap() as f64 / 1e9 / b - 1.0).abs() <= 0.2;
    let (raised, plain) = (of(1), of(0));
    for (class, p50, max) in [(Class::Reads, 1.97, 5.52), (Class::AsyncWrites, 4.32, 6.06)] {
        let of = raised.get(class);
        assert!(near(of.p50, p50) && near(of.max, max), "{class:?}: {of:?}");
    }
    assert!(near(plain.get(Class::Reads).p50, 64.0 * 0.0846), "{:?}", plain.get(Class::Reads));
    let journal = raised.get(Class::Journal);
    assert!(journal.p50 < plain.get(Class::Journal).p50.map(|ns| ns / 2), "{journal:?}");
}

/// The mq-deadline rows of docs/measured.md: median, longest and rate within a fifth of what was measured.
#[test]
fn all_wait_as_long_as_they_did() {
    let near = |a: f64, b: f64, what: &str| assert!((a / b - 1.0).abs() <= 0.2, "{what}: {a} for {b}");
    for (name, drain) in [("bv510-mq", 1), ("mv510-mq", 1), ("m510-mq", 128)] {
        let (was, is) = both(name, drain, &mq());
        let seconds = |v: Option<u64>| v.unwrap() as f64 / 1e9;
        for class in Class::ALL {
            let (a, b) = (is.busy.classes.get(class), was.busy.classes.get(class));
            assert_eq!(a.n == 0, b.n == 0, "{name} {class:?}");
            if b.n > 0 {
                near(seconds(a.p50), seconds(b.p50), &format!("{name} {class:?} p50"));
                near(seconds(a.max), seconds(b.max), &format!("{name} {class:?} max"));
            }
        }
        near(is.rate(), was.rate(), &format!("{name} rate"));
        let bytes = |v: &Views| v.all.written_bytes + v.all.read_bytes;
        assert_eq!(bytes(&is), bytes(&was), "{name}: every byte once");
    }
}

/// Whatever a task waits for, and however few tags there are, the workload comes to its end.
#[test]
fn pieces_of_a_trace_are_replayed_to_the_end() {
    let events = load(&data("mv510-mq")).unwrap().events;
    for (from, tags) in [(0, 1), (700, 2), (1500, 9), (3000, 128)] {
        let plan = Rc::new(plan(&events[from..]).unwrap());
        let again = closed::run(&plan, &Config { nr_requests: tags, ..config(1) }, &mq()).unwrap();
        let views = Views::of(&again, 0);
        let planned: u64 = plan.bios.iter().map(|b| u64::from(b.sectors) * 512).sum();
        assert_eq!(views.all.written_bytes + views.all.read_bytes, planned, "from {from}");
        assert!(views.all.queue_depth_max <= u64::from(tags), "from {from}");
    }
}

#[test]
fn two_runs_are_equal_and_open_arrivals_keep_their_stamps() {
    let events = load(&data("mv510-mq")).unwrap().events;
    let plan = Rc::new(plan(&events).unwrap());
    let run = |config: &Config| closed::run(&plan, config, &mq()).unwrap();
    assert_eq!(run(&config(1)), run(&config(1)));
    let open = run(&Config { open: true, nr_requests: 1024, ..config(1) });
    let queued = |events: &[mmc_lab::trace::model::Event]| -> Vec<(u64, u64)> {
        let bios = || events.iter().filter(|e| e.kind == mmc_lab::trace::model::Kind::BioQueue);
        let first = bios().next().map_or(0, |e| e.at);
        let mut all: Vec<_> = bios().map(|e| (e.at - first, e.sector)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(queued(&open), queued(&events));
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let file = data("mv510-mq");
    for (file, options, status, part) in [
        (file.as_path(), &["--verify-order", "--rules", "6.1"][..], 2, "5.10 and 7.3"),
        (&file, &["--verify-order", "--drain", "0"], 2, "from 1"),
        (Path::new("/no/such"), &["--verify-order"], 1, "/no/such"),
    ] {
        let (found, text) = verify(&args(file, options)).unwrap_err();
        assert!(found == status && text.contains(part) && !text.contains('\n'), "{text}");
    }
    for (file, options, status, part) in [
        (file.as_path(), &["--card", "fast"][..], 2, "fit"),
        (&file, &["--sched", "bfg"], 2, "bfg"),
        (&file, &["--nr-requests", "0"], 2, "from 1"),
        (&file, &["--drain", "best"], 2, "best"),
        (Path::new("/no/such"), &[], 1, "/no/such"),
    ] {
        let (found, text) = again(&args(file, options)).unwrap_err();
        assert!(found == status && text.contains(part) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn tune_finds_what_cures_the_journal_and_says_why() {
    let file = data("mv510-mq");
    let args = |options: &[&str]| {
        let all = ["tune", file.to_str().unwrap()];
        TuneCommand::parse_from(all.iter().chain(options)).args
    };
    let rows = tune(&args(&["--json", "--sched", "mq-deadline,kyber,bfq"])).unwrap();
    let rows: Vec<Value> = rows.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let chosen: Vec<&Value> = rows.iter().filter(|r| r["recommended"] == true).collect();
    let [chosen] = chosen[..] else { panic!("{} recommended", chosen.len()) };
    let rate = |r: &Value| r["bytes_per_s"].as_f64().unwrap();
    let best = rows.iter().map(rate).fold(0.0, f64::max);
    assert!(chosen["journal_p99_s"].as_f64().unwrap() < 0.5, "{chosen}");
    assert!(rate(chosen) >= 0.95 * best && chosen["front"] == true, "{chosen}");
    assert_eq!(chosen["scheduler"], "bfq");
    assert!(rows[0]["journal_p99_s"].as_f64().unwrap() > 8.0, "what runs now stalls");
    for row in rows.iter().filter(|r| r["front"] == true) {
        let better =
            |o: &&Value| o["stall_p99_s"].as_f64() < row["stall_p99_s"].as_f64() && rate(o) > rate(row);
        assert!(rows.iter().find(better).is_none(), "{row} is not on the front");
    }
    let text = tune(&args(&["--sched", "mq-deadline,bfq"])).unwrap();
    for part in [
        "Recommended: bfq",
        "Why: now the longest is a",
        "background writes",
        "echo bfq > /sys/block/",
        "udev",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wrong = tune(&args(&["--class", "writes"])).unwrap_err();
    assert!(wrong.0 == 2 && wrong.1.contains("awaited, journal"), "{wrong:?}");
}

#[test]
fn tune_of_a_workload_with_a_page_cache_tries_dirty_limits() {
    let args = |options: &[&str]| TuneCommand::try_parse_from(["tune"].iter().chain(options)).map(|c| c.args);
    let bonnie = [
        "--workload",
        "bonnie",
        "--size",
        "64M",
        "--ram",
        "192M",
        "--sched",
        "mq-deadline",
        "--class",
        "journal",
    ];
    let rows = tune(&args(&[&bonnie[..], &["--json"]].concat()).unwrap()).unwrap();
    let rows: Vec<Value> = rows.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let journal = |r: &Value| r["journal_p99_s"].as_f64().unwrap();
    let least = rows.iter().find(|r| r["dirty_bytes"] == 8 << 20).expect("8 MiB is tried");
    assert!(rows[0]["dirty_bytes"].is_null() && journal(least) < journal(&rows[0]), "{least} {}", rows[0]);
    assert!(rows.iter().any(|r| r["nr_requests"] == 16) && rows.iter().any(|r| r["max_sectors_kb"] == 64));
    for (wrong, part) in
        [(["--workload", "fio"], "accepted is bonnie"), (["--workload", "bonnie"], "--size 1K")]
    {
        let options: &[&str] = if part.contains("size") { &["--size", "1K"] } else { &[] };
        let e = tune(&args(&[&wrong[..], options].concat()).unwrap()).unwrap_err();
        assert!(e.0 == 2 && e.1.contains(part), "{e:?}");
    }
    assert!(args(&[]).is_err() && args(&["x", "--workload", "bonnie"]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever lines a trace is made of, a plan waits only for what came before, and neither reader panics.
    #[test]
    fn any_pieces_of_a_trace_can_be_planned(keep in proptest::collection::vec(any::<bool>(), 400), from in 0_usize..3000) {
        let mut events = load(&data("mv510-mq")).unwrap().events;
        events.drain(..from.min(events.len()));
        let mut kept = keep.iter().cycle();
        events.retain(|_| kept.next() == Some(&true));
        let settings = mmc_lab::replay::order::Settings { rules: Default::default(), drain: 4, hz: 250 };
        if let Ok(v) = mmc_lab::replay::order::verify(&events, settings) {
            prop_assert!(v.same <= v.issued);
        }
        if let Ok(plan) = plan(&events) {
            for job in &plan.jobs {
                for step in &job.steps {
                    if let After::Done(other) = step.after {
                        prop_assert!(other < step.bio);
                    }
                }
            }
        }
    }
}

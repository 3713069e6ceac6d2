//! The main job on a small scale: the stall, its cure, the same twice, the same on both hosts, and wrong usage.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn lab(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .args(args)
        .current_dir(dir)
        .output()
        .expect("the program starts")
}

/// An empty directory of this test's own.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).expect("the directory").count()
}

/// A board small enough for a test, on which the file fits into memory.
const SMALL: [&str; 4] = ["--size", "96M", "--ram", "192M"];
/// One on which it does not.
const TIGHT: [&str; 4] = ["--size", "96M", "--ram", "64M"];

fn objects(dir: &Path, board: &[&str], more: &[&str]) -> Vec<serde_json::Value> {
    let out = lab(dir, &[&["bonnie", "--json"], board, more].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    text.lines().map(|l| serde_json::from_str(l).expect("a JSON object a line")).collect()
}

#[test]
fn a_journal_write_waits_for_the_whole_queue_and_bfq_cures_it() {
    let dir = scratch("stall");
    let runs = objects(&dir, &SMALL, &["--sched", "mq-deadline,bfq", "--hung", "1500ms"]);
    let (mq, bfq) = (&runs[0], &runs[1]);
    let max = |r: &serde_json::Value| r["journal"]["max_s"].as_f64().unwrap_or(0.0);
    assert!(max(mq) > 2.0 * max(bfq), "{} against {}", max(mq), max(bfq));
    let hung = mq["hung"].as_array().expect("a list");
    let worst = hung.iter().max_by_key(|h| h["ahead"]["bytes"].as_u64()).expect("hung-task reports");
    let ahead = &worst["ahead"];
    let n = |k: &str| ahead[k].as_u64().expect("a count");
    assert!(n("requests") >= 10, "{worst}");
    assert_eq!(n("requests"), n("older") + n("younger"));
    assert!(n("bytes") > n("requests") * 500_000, "mostly 1 MiB background writes: {worst}");
    assert!(worst["waits_for"].as_str().is_some_and(|w| w.contains("jbd2/mmcblk0-8")), "{worst}");
}

/// Tasks beside the benchmark that somebody watches: what the stall costs them, and that bfq takes it off them.
#[test]
fn who_types_and_a_camera_meet_the_same_stall() {
    let dir = scratch("beside");
    let runs = objects(&dir, &SMALL, &["--sched", "mq-deadline,bfq", "--beside", "typing,camera"]);
    let load = |run: &serde_json::Value, name: &str| {
        let all = run["beside"].as_array().expect("a list");
        all.iter().find(|b| b["task"] == name).expect("it ran").clone()
    };
    let number = |load: &serde_json::Value, key: &str| load[key].as_f64().expect("a number");
    for run in &runs {
        let (typing, camera) = (load(run, "typing"), load(run, "camera"));
        // 25 frames a second from the first instant to the last, lost ones counted, too.
        let seconds = run["virtual_s"].as_f64().expect("a time");
        assert!((number(&camera, "frames") - 25.0 * seconds).abs() <= 2.0, "{camera} in {seconds} s");
        assert!(number(&camera, "lost") <= number(&camera, "frames") && number(&camera, "n") > 10.0);
        assert!(number(&typing, "n") > 10.0 && number(&typing, "n") <= 10.0 * seconds + 1.0, "{typing}");
        assert!(number(&typing, "p50_s") <= number(&typing, "p99_s"), "{typing}");
        let backlog = number(run, "backlog_card_s");
        assert!(backlog > 0.5 && backlog < seconds, "{backlog}");
    }
    let [mq, bfq] = [0, 1].map(|k| (load(&runs[k], "typing"), load(&runs[k], "camera")));
    assert!(number(&mq.1, "lost") > 2.0 * number(&bfq.1, "lost"), "{} {}", mq.1, bfq.1);
    assert!(number(&mq.1, "max_s") > number(&bfq.1, "max_s"), "{} {}", mq.1, bfq.1);
    // Without them nothing of it is there.
    let plain = objects(&dir, &TIGHT, &["--sched", "none", "--host", "mock"]);
    assert_eq!(plain[0]["beside"], serde_json::json!([]));
}

#[test]
fn the_json_has_the_keys_it_promises() {
    let dir = scratch("keys");
    let runs = objects(&dir, &SMALL, &["--sched", "mq-deadline:fifo_batch=1"]);
    let keys: Vec<&str> = runs[0].as_object().expect("an object").keys().map(String::as_str).collect();
    let promised = [
        "scheduler",
        "settings",
        "board",
        "card",
        "host",
        "seed",
        "journal",
        "commits",
        "reads",
        "sync_writes",
        "async_writes",
        "write_mb_s",
        "phases",
        "hung",
        "csv_1_03",
        "csv_2",
        "virtual_s",
        "real_s",
    ];
    assert_eq!(keys[..promised.len()], promised);
    assert_eq!(runs[0]["settings"], serde_json::json!({"fifo_batch": 1}));
    for class in ["journal", "commits", "reads", "sync_writes", "async_writes"] {
        let keys: Vec<&String> = runs[0][class].as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["n", "p50_s", "p99_s", "max_s"], "{class}");
    }
    assert_eq!(runs[0]["csv_1_03"].as_str().map(|r| r.split(',').count()), Some(27));
    assert_eq!(runs[0]["csv_2"].as_str().map(|r| r.split(',').count()), Some(50));
    assert_eq!(files(&dir), 0, "with --json no report is written");
}

#[test]
fn two_runs_are_the_same_but_for_real_s_and_both_hosts_send_the_same_commands() {
    let dir = scratch("same");
    let list = ["--sched", "mq-deadline,bfq"];
    let strip = |mut runs: Vec<serde_json::Value>| {
        for r in &mut runs {
            r.as_object_mut().expect("an object").remove("real_s");
        }
        runs
    };
    let dw = strip(objects(&dir, &SMALL, &list));
    assert_eq!(dw, strip(objects(&dir, &SMALL, &list)));
    let mock = strip(objects(&dir, &SMALL, &[&list[..], &["--host", "mock"]].concat()));
    for (a, b) in dw.iter().zip(&mock) {
        assert_eq!(
            (&a["commands"], &a["commands_hash"]),
            (&b["commands"], &b["commands_hash"]),
            "{}",
            a["scheduler"]
        );
        assert_eq!(a["virtual_s"], b["virtual_s"], "{}", a["scheduler"]);
    }
    let other = strip(objects(&dir, &SMALL, &[&list[..], &["--seed", "2"]].concat()));
    assert_ne!(dw[0]["commands_hash"], other[0]["commands_hash"], "the seed decides something");
}

#[test]
fn reads_go_to_the_card_when_the_file_does_not_fit_in_memory_and_come_back_right() {
    let dir = scratch("reads");
    let runs = objects(&dir, &TIGHT, &["--sched", "bfq"]);
    let reads = &runs[0]["phases"]["get_block_kib_s"];
    assert!(
        reads.as_f64().is_some_and(|v| (5_000.0..20_000.0).contains(&v)),
        "the card reads 17 MB/s: {reads}"
    );
    assert!(runs[0]["pages_verified"].as_u64() > Some(2 * 96 * 256), "{}", runs[0]["pages_verified"]);
}

#[test]
fn a_processor_that_costs_time_lowers_the_rates() {
    let dir = scratch("cost");
    let rate = |more: &[&str]| {
        let run = objects(&dir, &TIGHT, &[&["--sched", "bfq"], more].concat());
        run[0]["phases"]["get_block_kib_s"].as_f64().expect("a rate")
    };
    assert!(rate(&["--cpu-cost", "2ms"]) < 0.9 * rate(&[]));
}

#[test]
fn the_report_is_one_page_that_needs_no_network() {
    let dir = scratch("report");
    let out =
        lab(&dir, &["bonnie", "--size", "32M", "--ram", "128M", "--sched", "bfq", "--svg", "stall.svg"]);
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).expect("text");
    assert!(text.contains("closed form 128 tags x"), "{text}");
    let page = std::fs::read_to_string(dir.join("report.html")).expect("the report");
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme:dark"));
    let foreign = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!foreign.contains("http://") && !foreign.contains("https://") && !page.contains("<script"));
    assert!(std::fs::read_to_string(dir.join("stall.svg")).expect("the picture").starts_with("<svg"));
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let dir = scratch("full");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let status = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .args(["bonnie", "--size", "16M", "--ram", "64M", "--sched", "none", "--json"])
        .current_dir(&dir)
        .stdout(full)
        .status()
        .expect("the program starts");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn wrong_usage_is_one_line_that_names_the_value_with_status_2_and_writes_nothing() {
    let dir = scratch("wrong");
    for (args, named) in [
        (&["bonnie", "--sched", "deadlin"][..], "deadlin"),
        (&["bonnie", "--sched", "mq-deadline:fifo_batsh=1"], "fifo_batsh"),
        (&["bonnie", "--set", "slice_idel=8"], "slice_idel"),
        (&["bonnie", "--card", "fast"], "fast"),
        (&["bonnie", "--board", "beagle"], "beagle"),
        (&["bonnie", "--host", "sdhci"], "sdhci"),
        (&["bonnie", "--size", "12"], "12"),
        (&["bonnie", "--size", "512Q"], "512Q"),
        (&["bonnie", "--ram", "1"], "--ram 1"),
        (&["bonnie", "--hung", "10"], "10"),
        (&["bonnie", "--hung", "0s"], "0s"),
        (&["bonnie", "--hung", "0"], "any time above zero"),
        (&["bonnie", "--cpu-cost", "-1s"], "'-1s' is negative"),
        (&["bonnie", "--cpu-cost=-1s"], "`-1s` is negative"),
        (&["bonnie", "--seed", "-1"], "'-1' is negative"),
        (&["bonnie", "--seed=-1"], "'-1' is negative"),
        (&["bonnie", "--sched", "none,none"], "'none' is twice"),
        (&["bonnie", "--cpu-cost", "1h"], "1h"),
        (&["bonnie", "--sched", "mq-deadline:fifo_batch=-1"], "fifo_batch=-1"),
        (&["bonnie", "--seed", "x7"], "x7"),
        (&["bonnie", "--nonsense"], "--nonsense"),
        (&["bonny"], "bonny"),
    ] {
        let out = lab(&dir, args);
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(named) && error.trim_end().lines().count() == 1, "{args:?}: {error}");
        let begin = if args[0] == "bonnie" { "mmc-lab bonnie: " } else { "mmc-lab: " };
        assert!(error.starts_with(begin), "{args:?}: {error}");
        assert!(out.stdout.is_empty() && files(&dir) == 0, "{args:?}");
    }
    let unwritable =
        lab(&dir, &["bonnie", "--sched", "none", "--size", "16M", "--out", "no/such/dir/r.html"]);
    assert_eq!(unwritable.status.code(), Some(1));
}

#[test]
fn seeds_and_cards_stand_side_by_side_with_their_spread_and_beside_a_real_run() {
    let dir = scratch("seeds");
    let board = ["--board", "qemu-sdhci", "--host", "mock", "--size", "16M", "--sched", "mq-deadline,bfq"];
    let many = ["--seeds", "3", "--cards", "a1,slow2018"];
    let rows = objects(&dir, &board, &many);
    let (runs, sums): (Vec<_>, Vec<_>) = rows.iter().partition(|r| r["summary"].is_null());
    assert_eq!((runs.len(), sums.len(), files(&dir)), (12, 4, 0));
    for sum in &sums {
        assert_eq!(sum["seeds"], serde_json::json!([1, 2, 3]));
        let of = |key: &str| &sum["figures"]["all_writes"][key];
        let mine = runs.iter().filter(|r| r["scheduler"] == sum["summary"] && r["card"] == sum["card"]);
        let mut rates: Vec<f64> = mine.map(|r| r["write_mb_s"].as_f64().unwrap()).collect();
        rates.sort_by(f64::total_cmp);
        assert_eq!(rates.len(), 3, "{sum}");
        for (key, at) in [("min", 0), ("median", 1), ("max", 2)] {
            assert!((of(key).as_f64().unwrap() / rates[at] - 1.0).abs() < 1e-3, "{key}: {sum}");
        }
        let [low, high] = [0, 1].map(|i| of("mean_95")[i].as_f64().unwrap());
        assert!(low <= rates[1] && rates[1] <= high, "{sum}");
    }
    assert_eq!((sums[0]["card"].as_str(), sums[3]["card"].as_str()), (Some("a1"), Some("slow2018")));
    let text = lab(&dir, &[&["bonnie", "--out", "many.html"], &board[..], &many].concat());
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "3 seeds from 1",
        "[4] bfq on slow2018",
        "median (least to most)",
        "interval of 95 %",
        "put_block",
        "ran_del",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(files(&dir), 1);
    // One run of ours and one of a real bonnie++ in one table.
    let ours = lab(&dir, &[&["bonnie", "--json"], &board[..]].concat());
    std::fs::write(dir.join("ours.json"), ours.stdout).unwrap();
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bv510-mq.bonnie.out");
    let table = lab(&dir, &["csv", real.to_str().unwrap(), "ours.json"]);
    let table = String::from_utf8(table.stdout).unwrap();
    let line = |start: &str| {
        table.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}: {table}"))
    };
    assert!(
        line("put_block KiB/s").contains("5979") && line("put_block KiB/s").matches('%').count() == 2,
        "{table}"
    );
    for wrong in [["--seeds", "0"], ["--cards", "a1,fast"], ["--cards", "a1,a1"]] {
        let out = lab(&dir, &[&["bonnie"], &wrong[..]].concat());
        assert_eq!(out.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&out.stderr).contains(wrong[0]), "{wrong:?}");
    }
}

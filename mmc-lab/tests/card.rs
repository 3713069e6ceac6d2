//! `mmc-lab card`: the zoo as a list, and a profile fitted to what a card did.

use clap::Parser;
use mmc_lab::cli::{Cli, Command, card};
use mmc_lab::fit::{Fitted, Value, fit_profile, read};
use mmc_mock::timing::{Profile, Timing};
use mmc_mock::zoo;
use mmc_time::Duration;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
fn us(d: Duration) -> f64 {
    d.as_nanos() as f64 / 1e3
}
fn fitted(name: &str) -> Fitted {
    fit_profile(&read(&mut *mmc_lab::trace::open(&data(name)).unwrap()).unwrap())
}
#[track_caller]
fn near(got: Option<Value>, want: f64, tolerance: f64) {
    let got = got.expect("told");
    assert!((got.value / want - 1.0).abs() <= tolerance, "{got:?} is not {want} ± {tolerance}");
}

/// The log of the emulated card whose numbers are known, from a real kernel's run of bonnie++.
#[test]
fn the_card_of_2018_is_found_again_from_its_log() {
    let (f, p) = (fitted("bv510-mq.device.log.gz"), Profile::slow2018());
    assert_eq!((f.reads, f.writes, f.merges, f.stalls), (12, 2960, 410, 8));
    near(f.cmd_rd_access_us, us(p.cmd + p.rd_access), 0.1);
    near(f.cmd_rd_seq_us, us(p.cmd + p.rd_seq), 0.1);
    near(f.cmd_wr_seq_us, us(p.cmd + p.wr_seq), 0.1);
    near(f.cmd_wr_rand_us, us(p.cmd + p.wr_rand), 0.1);
    near(f.rd_bps, p.rd_bps as f64, 0.1);
    near(f.wr_bps, p.wr_bps as f64, 0.1);
    near(f.copy_bps, p.copy_bps as f64, 0.1);
    assert_eq!((f.au_sectors, f.open), (Some(p.au), Some((p.open, p.open))));
    for (what, v, want) in [
        ("erase", f.erase_us, us(p.erase)),
        ("stall_p", f.stall_p, p.stall_p),
        ("stall_min", f.stall_min_us, us(p.stall_min)),
        ("stall_max", f.stall_max_us, us(p.stall_max)),
    ] {
        let v = v.expect(what);
        assert!(v.holds(want), "{what}: {want} is not in {v:?}");
        assert!(v.low > 0.0 && v.high < 6.0 * want, "{what}: {v:?} says nothing");
    }
    assert!(f.notes.iter().any(|n| n.contains("cmd cannot be told")), "{:?}", f.notes);
}

/// The fitted profile, put to work on the same commands, takes the same time.
#[test]
fn a_fitted_profile_reproduces_the_run_it_came_from() {
    let ops = read(&mut *mmc_lab::trace::open(&data("bv510-mq.device.log.gz")).unwrap()).unwrap();
    let profile = Profile { stall_p: 0.0, ..fit_profile(&ops).profile().expect("all is told") };
    let mut card = Timing::new(profile, 0);
    let mut off = 0;
    for op in &ops {
        let s = if op.read {
            card.read(op.sector, op.sectors.into())
        } else {
            card.write(op.sector, op.sectors.into())
        };
        off += usize::from((us(s.total) - op.service_us).abs() > 50.0);
    }
    // The eight pauses, the first read, before which nothing is known, and four writes across the border of a unit: the
    // emulated card charged the command once there, the model charges each piece.
    assert!(off <= 13, "{off} commands take another time");
}

/// A trace of the block layer has the host's and the wire's time in it, and still shows the card.
#[test]
fn a_trace_of_the_block_layer_shows_the_card_below() {
    let f = fitted("bv510-mq.ftrace.txt.gz");
    let p = Profile::slow2018();
    near(f.wr_bps, p.wr_bps as f64, 0.15);
    near(f.copy_bps, p.copy_bps as f64, 0.15);
    assert_eq!(f.au_sectors, Some(p.au));
    assert!(f.unexplained < 0.1, "{}", f.unexplained);
}

#[test]
fn a_log_that_cannot_be_is_refused_by_line_and_field() {
    let text = |s: &str| read(&mut s.as_bytes()).unwrap_err().to_string();
    assert!(text("# t\n1 R 0 8 700\n2 W x 8 700\n").contains("line 3, field sector: `x`"));
    assert!(text("1 W 0 8\n").contains("field service_us: ``"));
    assert!(text("1 W 0 8000000000 9\n").contains("field sectors"));
    assert!(text("1 W 0 65537 9\n").contains("field sectors"), "no command is so long");
    assert!(text("").contains("no data command") && text("hello\n").contains("no data command"));
}

#[test]
fn every_name_that_is_listed_can_be_shown() {
    let listed: Vec<serde_json::Value> = serde_json::from_str(&card::list(true)).unwrap();
    assert!(listed.len() >= zoo::list().len() + Profile::NAMES.len());
    let text = card::list(false);
    for entry in &listed {
        let name = entry["name"].as_str().unwrap();
        assert!(text.contains(name), "{name}");
        let shown: serde_json::Value = serde_json::from_str(&card::show(name, true).unwrap()).unwrap();
        assert_eq!(shown["name"], name);
        if entry["kind"] == "profile" {
            assert!(shown["wr_bps"].is_number());
        } else {
            let (register, len) = if entry["kind"] == "sdio" { ("manfid", 9) } else { ("cid", 32) };
            assert_eq!(shown[register].as_str().map(str::len), Some(len), "{name}");
            assert!(card::show(name, false).unwrap().contains("a good host"));
        }
    }
    let error = card::show("fake-65gb", false).unwrap_err();
    assert!(error.contains("`fake-65gb`") && error.contains("fake-64gb") && error.contains("slow2018"));
}

/// What a program would print of its own values is no answer for people.
#[test]
fn what_is_odd_about_a_card_is_said_in_words() {
    let text = card::show("fake-64gb", false).unwrap();
    let quirks = text.lines().find(|l| l.starts_with("quirks")).unwrap();
    assert!(
        quirks.contains("sectors (") && quirks.ends_with("in truth; addresses above wrap around"),
        "{quirks}"
    );
    let mut odd = 0;
    for name in zoo::list().iter().map(|p| p.name).chain(zoo::mmc_list().iter().map(|p| p.name)) {
        let text = card::show(name, false).unwrap();
        for line in text.lines().filter(|l| l.starts_with("quirks") || l.starts_with("version")) {
            odd += usize::from(line.starts_with("quirks"));
            let (_, words) = line.split_once(' ').unwrap();
            assert!(!words.trim().is_empty() && !words.contains(['{', '}']), "{name}: {line}");
            assert!(!["true", "false", "None", "Some"].iter().any(|w| words.contains(w)), "{name}: {line}");
        }
    }
    assert!(odd >= 15, "only {odd} cards have quirks");
}

fn fio(text: &str) -> Result<Fitted, String> {
    mmc_lab::fit::fio::fit(text.as_bytes())
}

/// What fio 3.33 wrote of a disk here: nothing is known of the disk, but what can be told is told and the rest is named.
#[test]
fn a_real_fio_file_tells_times_and_rates_and_what_it_cannot() {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut mmc_lab::trace::open(&data("fio-3.33.json.gz")).unwrap(), &mut text)
        .unwrap();
    let f = fio(&text).unwrap();
    assert_eq!((f.reads, f.writes), (689 + 3535 + 6944 + 1776, 767 + 4914 + 5786 + 1814));
    for (what, v) in
        [("rd_seq", f.cmd_rd_seq_us), ("rd_access", f.cmd_rd_access_us), ("wr_rand", f.cmd_wr_rand_us)]
    {
        let v = v.unwrap_or_else(|| panic!("{what}: {:?}", f.notes));
        assert!(v.low <= v.value && v.value <= v.high && v.value < 200.0, "{what}: {v:?}");
    }
    // 1 MiB in 1.14 ms, less what a small read takes.
    let rate = f.rd_bps.unwrap().value / 1e6;
    assert!((900.0..1100.0).contains(&rate), "{rate} MB/s");
    let notes = f.notes.join("\n");
    for part in [
        "job `cached` is left out: it went through the page cache",
        "job `deep` is left out",
        "8 requests at a time",
        "au, open",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    // By its percentiles 1.5 to 5.9 % of the writes took much longer than the median (another program's disk).
    let pauses = f.stall_p.unwrap();
    assert!((pauses.low - 0.0152).abs() < 0.0005 && (pauses.high - 0.0587).abs() < 0.0005, "{pauses:?}");
    assert!(f.stall_max_us.unwrap().value > 10_000.0);
    assert!(f.profile().is_none(), "no allocation units in it");
    let plus = fitted_fio("fio-3.33.json-plus.gz");
    assert!(plus.writes > 1000 && plus.cmd_wr_rand_us.is_none(), "one size tells no rate: {:?}", plus.notes);
}

fn fitted_fio(name: &str) -> Fitted {
    let mut text = String::new();
    std::io::Read::read_to_string(&mut mmc_lab::trace::open(&data(name)).unwrap(), &mut text).unwrap();
    fio(&text).unwrap()
}

/// fio's percentiles of a card whose times are known.
#[test]
fn a_card_is_found_again_from_the_percentiles_of_fio() {
    let p = Profile::slow2018();
    let job = |rw: &str, kib: u64, access: Duration, bps: u64| {
        let ns = (p.cmd + access).as_nanos() + kib * 1024 * 1_000_000_000 / bps;
        let side = format!(
            r#"{{"total_ios": 1000, "clat_ns": {{"max": {}, "percentile": {{"40.000000": {ns}, "50.000000": {ns}, "60.000000": {ns}, "99.500000": {ns}, "99.900000": {}}}}}}}"#,
            ns + 300_000_000,
            ns + 50_000_000
        );
        let key = if rw.ends_with("read") { "read" } else { "write" };
        format!(
            r#"{{"jobname": "{rw}{kib}", "job options": {{"rw": "{rw}", "bs": "{kib}k"}}, "{key}": {side}}}"#
        )
    };
    let jobs = [
        job("read", 512, p.rd_seq, p.rd_bps),
        job("read", 64, p.rd_seq, p.rd_bps),
        job("randread", 4, p.rd_access, p.rd_bps),
        job("write", 512, p.wr_seq, p.wr_bps),
        job("write", 64, p.wr_seq, p.wr_bps),
        job("randwrite", 4, p.wr_rand, p.wr_bps),
    ];
    let text = format!(
        r#"fio: a warning
{{"fio version": "fio-3.33", "global options": {{"direct": "1"}}, "jobs": [{}]}}"#,
        jobs.join(",")
    );
    let f = fio(&text).unwrap();
    near(f.cmd_rd_access_us, us(p.cmd + p.rd_access), 0.01);
    near(f.cmd_rd_seq_us, us(p.cmd + p.rd_seq), 0.01);
    near(f.rd_bps, p.rd_bps as f64, 0.01);
    near(f.cmd_wr_seq_us, us(p.cmd + p.wr_seq), 0.01);
    near(f.cmd_wr_rand_us, us(p.cmd + p.wr_rand), 0.01);
    near(f.wr_bps, p.wr_bps as f64, 0.01);
    let pauses = f.stall_p.unwrap();
    assert!(pauses.low >= 0.0009 && pauses.high <= 0.0051, "between 99.5 and 99.9 %: {pauses:?}");
    near(f.stall_max_us, 300_000.0, 0.01);
}

/// Found by fuzzing: a share of pauses that is no number, from a percentile of 50000.
#[test]
fn percentiles_that_cannot_be_leave_their_job_out() {
    let job = |name: &str, max: &str, percentiles: &str| {
        format!(
            r#"{{"jobname": "{name}", "job options": {{"rw": "write", "bs": "4k", "direct": "1"}},
            "write": {{"total_ios": 1000, "clat_ns": {{"max": {max}, "percentile": {{{percentiles}}}}}}}}}"#
        )
    };
    let jobs = [
        job("good", "9000000", r#""40.0": 50000, "50.0": 60000, "99.9": 8000000"#),
        job("beyond", "9000000", r#""40.0": 50000, "50000.0": 60000"#),
        job("below", "9000000", r#""-1": 50000"#),
        job("word", "9000000", r#""median": 50000"#),
        job("early", "9000000", r#""50.0": -5"#),
        job("text", "9000000", r#""50.0": "soon""#),
        job("falls", "9000000", r#""50.0": 60000, "99.0": 50000"#),
        job("endless", "1e300", r#""50.0": 60000"#),
        job("none", "9000000", ""),
    ];
    let f = fio(&format!(r#"{{"jobs": [{}]}}"#, jobs.join(","))).unwrap();
    assert_eq!(f.writes, 1000, "{:?}", f.notes);
    let notes = f.notes.join("\n");
    for (name, why) in [
        ("beyond", "percentile \"50000.0\" is not between 0 and 100"),
        ("below", "not between 0 and 100"),
        ("word", "not between 0 and 100"),
        ("early", "is no time: -5"),
        ("text", "is no time"),
        ("falls", "fall where its percentiles rise"),
        ("endless", "longest latency is no time"),
        ("none", "no latency percentiles"),
    ] {
        let line = f.notes.iter().find(|n| n.contains(&format!("`{name}` is left out")));
        assert!(line.is_some_and(|n| n.contains(why)), "{name}: {notes}");
    }
}

#[test]
fn what_is_no_fio_file_is_refused_in_one_line() {
    for (text, part) in [
        ("{", "no whole JSON"),
        ("{\"a\": 1}", "--output-format=json"),
        ("{\"jobs\": []}", "no jobs"),
        (
            r#"{"jobs": [{"jobname": "x", "job options": {"rw": "rw", "direct": "1"}, "read": {"total_ios": 5}}]}"#,
            "interrupt",
        ),
        (
            r#"{"jobs": [{"jobname": "x", "job options": {"direct": "1", "bs": "moo"}, "read": {"total_ios": 5}}]}"#,
            "moo",
        ),
        (r#"{"jobs": [{"jobname": "x", "error": 5}]}"#, "error 5"),
        (
            r#"{"jobs": [{"jobname": "x", "job options": {"direct": "1"}, "read": {"total_ios": 5}}]}"#,
            "clat_percentiles",
        ),
    ] {
        let e = fio(text).unwrap_err();
        assert!(e.contains(part) && !e.contains('\n'), "{text}: {e}");
    }
}

#[test]
fn a_recorder_gets_a_chance_and_a_ring() {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: card::simulate::Args,
    }
    let run = |options: &[&str]| card::simulate::run(&Line::parse_from(["x"].iter().chain(options)).args);
    let object = |options: &[&str]| -> serde_json::Value {
        serde_json::from_str(&run(&[options, &["--json", "--blocks", "200000"]].concat()).unwrap()).unwrap()
    };
    let slow = object(&["--workload", "logger", "--deadline", "10ms"]);
    let (miss, high) = (slow["miss"]["value"].as_f64().unwrap(), slow["miss"]["high"].as_f64().unwrap());
    assert!(miss > 0.001 && miss < 0.2 && high > miss, "{slow}");
    let patient = object(&["--workload", "logger", "--deadline", "500ms"]);
    assert!(patient["miss"]["value"].as_f64().unwrap() < miss / 10.0, "{patient}");
    assert!(slow["ring_1e3"].as_u64().unwrap() >= 2 * (16 << 10) && slow["ring_1e6"].is_null(), "{slow}");
    assert!(object(&["--workload", "database"])["latency_s"][0].as_f64().unwrap() > 0.004);
    let text = run(&["--workload", "camera", "--rate", "20M", "--blocks", "4000"]).unwrap();
    assert!(text.starts_with("The card cannot keep up"), "{text}");
    assert!(run(&["--blocks", "4000"]).unwrap().contains("not told by so few blocks"));
    for (options, part) in [
        (&["--workload", "movie"][..], "logger, camera, database"),
        (&["--card", "fast"], "slow2018"),
        (&["--block", "1000"], "multiple of 512"),
        (&["--deadline", "soon"], "--deadline"),
        (&["--blocks", "1"], "40 to"),
        (&["--file", "4K"], "--file"),
    ] {
        let (status, e) = run(options).unwrap_err();
        assert!(status == 2 && e.contains(part) && !e.contains('\n'), "{e}");
    }
}

#[test]
fn the_command_line_is_understood() {
    for line in ["card list --json", "card show a1", "card fit - --json", "card simulate --workload logger"] {
        let cli = Cli::try_parse_from(["mmc-lab"].into_iter().chain(line.split(' '))).unwrap();
        assert!(matches!(cli.command, Command::Card(_)));
    }
    assert!(Cli::try_parse_from(["mmc-lab", "card", "fit"]).is_err());
}

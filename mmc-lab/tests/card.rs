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

#[test]
fn the_command_line_is_understood() {
    for line in ["card list --json", "card show a1", "card fit - --json"] {
        let cli = Cli::try_parse_from(["mmc-lab"].into_iter().chain(line.split(' '))).unwrap();
        assert!(matches!(cli.command, Command::Card(_)));
    }
    assert!(Cli::try_parse_from(["mmc-lab", "card", "fit"]).is_err());
}

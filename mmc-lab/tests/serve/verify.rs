//! `mmc-lab verify` on images and on served cards.

use crate::lab::{Server, run, scratch};

#[test]
fn an_image_is_filled_and_what_happened_to_it_since_is_told() {
    let path = scratch("verify.img");
    std::fs::write(&path, vec![0; 3 << 20]).unwrap();
    let (code, out, err) = run(&["verify", &path]);
    assert!(code == 1 && out.is_empty() && err.contains("fill it with --write"), "{err}");
    let (code, out, _) = run(&["verify", &path, "--write", "--seed", "9"]);
    assert_eq!(code, 0, "{out}");
    assert!(
        out.contains("sectors 0 to 6143 (3 MiB): good") && out.contains("usable: 3 MiB of 3 MiB"),
        "{out}"
    );
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[512 * 17 + 100] ^= 4;
    bytes.copy_within(512 * 1000..512 * 1008, 512 * 3000);
    std::fs::write(&path, bytes).unwrap();
    let (code, out, _) = run(&["verify", &path]);
    assert_eq!(code, 1);
    assert!(out.starts_with("seed 9\n"), "it stands in the sectors: {out}");
    assert!(out.contains("sectors 17 to 17 (512 B): changed"), "{out}");
    assert!(out.contains("sector 3000 holds what was written to sector 1000"), "{out}");
    let (code, out, _) = run(&["verify", &path, "--seed", "2", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["good"], &report["corrupted"]), (1, &0.into(), &6144.into()));
    for (target, why) in [("/nowhere", "No such file"), ("unix:/nowhere", "No such file")] {
        let (code, out, err) = run(&["verify", target]);
        assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{err}");
        assert!(err.contains(why), "{err}");
    }
    assert_eq!(run(&["verify", "nbd://192.0.2.1:10809"]).0, 2);
}

#[test]
fn a_card_that_stores_nothing_is_not_good_because_it_was_filled_before() {
    let path = scratch("stale.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let told = |args: &[&str]| {
        let (code, out, err) = run(args);
        let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
        (code, report)
    };
    let (code, first) = told(&["verify", &path, "--write", "--json"]);
    assert_eq!(code, 0, "{first}");
    let stale = std::fs::read(&path).unwrap();
    let (code, second) = told(&["verify", &path, "--write", "--json"]);
    assert!(code == 0 && first["seed"] != second["seed"], "{second}");
    // The second run's writes are lost.
    std::fs::write(&path, stale).unwrap();
    let (code, report) = told(&["verify", &path, "--json"]);
    assert_eq!((code, &report["seed"]), (0, &first["seed"]), "it says whose data they are");
    let (code, report) = told(&["verify", &path, "--json", "--seed", &second["seed"].to_string()]);
    assert_eq!((code, &report["good"], &report["corrupted"]), (1, &0.into(), &2048.into()));
}

#[test]
fn a_card_with_less_than_it_says_is_found_out_through_the_whole_stack() {
    // 4 MiB that say 32, as the 8 GB that say 64.
    let server = Server::start(&["--card", "fake-64gb", "--size", "32M"]);
    let target = server.address.to_string();
    let (code, out, err) = run(&["verify", &target, "--write", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
    assert_eq!((code, &report["usable_bytes"]), (1, &(4 << 20).into()));
    assert_eq!((&report["wraps_at_bytes"], &report["overwritten"]), (&(4 << 20).into(), &(28 << 11).into()));
    assert_eq!(report["ranges"][0]["holds_sector"], 28 << 11, "sector 0 holds the start of the last round");
    // An honest one over TCP; a later run without --write reads the same.
    let server = Server::start(&["--card", "emmc", "--size", "16M", "--listen", "127.0.0.1:0"]);
    let target = format!("nbd://{}", server.address);
    let (code, out, _) = run(&["verify", &target, "--write"]);
    assert_eq!(code, 0, "{out}");
    assert_eq!(run(&["verify", &target]).0, 0);
    let server = Server::start(&["--size", "16M", "--read-only"]);
    let (code, _, err) = run(&["verify", &server.address.to_string(), "--write"]);
    assert!(code == 1 && err.contains("writing: Operation not permitted"), "{err}");
}

/// Sectors that are wrong with a CRC that is right, on their way to the card or on the card: nobody notices but who reads back.
#[test]
fn data_that_change_silently_are_found_by_reading_back_and_by_nobody_else() {
    let fault = "at CMD25#2: block 5 flip 17.3\nat CMD18#1: block 0 flip 0.0";
    let server = Server::start(&["--size", "16M", "--card", "ideal", "--fault", fault, "--json"]);
    let target = server.address.to_string();
    let (code, out, err) = run(&["verify", &target, "--write", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {err}"));
    assert_eq!((code, &report["good"]), (1, &((16 << 11) - 2).into()), "{report}");
    assert_eq!((&report["changed"], &report["unreadable"]), (&2.into(), &0.into()), "{report}");
    // What was wrong on the way back is right when it is read again; what was stored wrongly stays so.
    let (code, out, _) = run(&["verify", &target, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["changed"]), (1, &1.into()), "{report}");
    let report = server.stop();
    assert_eq!((&report["failed"], &report["disk"]["retries"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(report["faults_that_never_struck"], serde_json::json!([]), "{report}");
}

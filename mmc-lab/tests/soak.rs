//! The endurance run, small: every promise it checks is checked, and it says so when one is broken.

use mmc_lab::soak::{Plan, Report, run};
use std::process::Command;

fn plan(seed: u64) -> Plan {
    Plan {
        requests: 6_000,
        faults: 200,
        cuts: 30,
        swaps: 10,
        days: 60,
        seed,
        sched: "mq-deadline".into(),
        card: "soak".into(),
    }
}

fn good(plan: &Plan) -> Report {
    run(plan, &mut |_| {}).unwrap_or_else(|e| panic!("{plan:?}: {e}"))
}

#[test]
fn sixty_days_with_faults_cuts_and_swaps_lose_nothing() {
    let plan = plan(1);
    let report = good(&plan);
    // What is asked for beside the plan's: flushes of the evening, and the reads at the end.
    assert!(report.requests > plan.requests && report.bytes > plan.requests * 8192, "{report:?}");
    assert!(report.faults >= 200 && report.cuts >= 30 && report.swaps >= 10, "{report:?}");
    assert!(report.time.as_millis() > u64::from(u32::MAX), "past the wrap of milliseconds");
    assert!(report.generations > 10 && report.retries > 50 && report.resets > 30 && report.retunes > 0);
    assert!(report.merges > 500 && report.withdrawn > 10 && report.nights > 5);
    assert!(report.barriers > 5 && report.conversations > 0 && report.looks > 90, "{report:?}");
    assert!(report.flushes.1 > 0, "some flush was told that the cache was lost");
    let [reads, _] = report.beside.expect("mq-deadline has bounds");
    let (passed, bound) = reads.dispatches;
    assert!(bound > 0 && passed <= bound && report.classes[0].scheduler <= reads.time);
    assert_eq!(report, Report { resident: report.resident, ..good(&plan) }, "the same plan, the same run");
}

#[test]
fn without_troubles_nothing_fails_and_no_rule_is_broken() {
    let report = good(&Plan { requests: 2_000, faults: 0, cuts: 0, swaps: 0, days: 2, ..plan(3) });
    assert!(report.failed.is_empty() && report.violations.is_empty() && report.requests > 2_000);
}

#[test]
fn every_policy_and_kind_of_card_endures() {
    let mut rare = [0; 3];
    // One request in a thousand is a conversation: each run has draws of its own, so that some have one.
    for (seed, (sched, card)) in (2..).zip([
        ("none", "uhs-drift"),
        ("deadline", "aaru-emmc51-62gb"),
        ("bfq", "soak"),
        ("ftb", "soak"),
        ("kyber", "qemu-2gb"),
        ("cfq", "aaru-emmc51-62gb"),
        ("mq-deadline", "soak-emmc"),
    ]) {
        let small = Plan { requests: 1_500, faults: 50, cuts: 10, swaps: 3, days: 4, ..plan(seed) };
        let report = good(&Plan { sched: sched.into(), card: card.into(), ..small });
        let counted = matches!(sched, "none" | "deadline" | "mq-deadline");
        assert_eq!((report.beside.is_some(), report.unbounded.is_none()), (counted, counted), "{sched}");
        assert!(card.contains("emmc") || report.wipes == 0, "{card}");
        for (sum, n) in rare.iter_mut().zip([report.barriers, report.wipes, report.conversations]) {
            *sum += n;
        }
    }
    assert!(!rare.contains(&0), "{rare:?} barriers, wipes and conversations");
}

/// A run is issued under the name of its first request: after a merge in front not the one that was inserted. With many faults
/// that one is sent again under its own name, which is no dispatch.
#[test]
fn what_is_sent_again_after_a_merge_in_front_is_not_counted_as_waiting() {
    for sched in ["none", "deadline", "mq-deadline"] {
        for seed in [11, 14, 23] {
            let (sched, card) = (sched.into(), "aaru-emmc51-62gb".into());
            let many = Plan { requests: 20_000, faults: 2_000, cuts: 0, swaps: 0, days: 3, ..plan(seed) };
            assert!(good(&Plan { sched, card, ..many }).beside.is_some());
        }
    }
}

#[test]
fn what_cannot_be_run_is_told_and_nothing_is_printed() {
    for (args, status, told) in [
        (vec!["--card", "nonsuch"], 1, "no card is called `nonsuch`"),
        (vec!["--sched", "nonsuch"], 2, "--sched nonsuch: no such scheduler"),
        (vec!["--days", "0"], 2, "--days 0 is out of range: accepted are 1 to 3650"),
        (vec!["--requests", "0"], 2, "--requests 0 is out of range"),
        // Three requests are not enough for so much to happen.
        (vec!["--requests", "3", "--faults", "1000", "--days", "1"], 1, "seed 1, request "),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_mmc-lab")).arg("soak").args(&args).output().unwrap();
        let error = String::from_utf8(out.stderr).unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(status), 0), "{args:?}: {error}");
        assert!(error.starts_with("mmc-lab soak: ") && error.contains(told), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    }
}

#[test]
fn the_counters_are_printed_for_people_and_for_programs() {
    let run = |json: &[&str]| {
        let flags =
            ["soak", "--requests", "1000", "--faults", "20", "--cuts", "4", "--swaps", "2", "--days", "2"];
        let out = Command::new(env!("CARGO_BIN_EXE_mmc-lab")).args(flags).args(json).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let text = run(&[]);
    assert!(
        text.starts_with("mq-deadline on card soak, seed 1: nothing wrong in 2.0 virtual days"),
        "{text}"
    );
    for word in ["merges", "sent again", "re-tunes", "re-initialisations", "media generations", "its bound"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!((json["sched"].as_str(), json["swaps"].as_u64()), (Some("mq-deadline"), Some(2)));
    let classes = json["classes"].as_array().unwrap();
    assert_eq!(classes.len(), 4);
    assert!(classes[0]["worst_in_scheduler_ns"].as_u64() <= classes[0]["bound_in_scheduler_ns"].as_u64());
}

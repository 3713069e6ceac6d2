//! `mmc-lab bench sched`: one JSON object for each case, and what is answered to nonsense. A time is only compared with another
//! of the same run, where one of another order would be a fault.

use std::process::{Command, Output};

fn lab(args: &[&str]) -> Output {
    let args = [&["bench", "sched", "--runs", "3", "--requests", "200"], args].concat();
    Command::new(env!("CARGO_BIN_EXE_mmc-lab")).args(args).output().expect("the program starts")
}

#[test]
fn each_case_is_a_json_object_with_the_keys_it_promises() {
    let list = ["--sched", "none,mq-deadline:fifo_batch=1,bfq", "--depths", "1,8", "--streams", "1,4"];
    let out = lab(&list);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("a JSON object a line")).collect();
    // Workloads x depths, and two numbers of streams for the one policy that tells them apart.
    assert_eq!(rows.len(), 4 * 2 * (1 + 1 + 2));
    let mut seen = std::collections::BTreeSet::new();
    for r in &rows {
        let keys: Vec<&String> = r.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["policy", "workload", "depth", "streams", "ns_median", "runs", "schema"]);
        assert!(r["ns_median"].as_f64() > Some(0.0) && r["runs"] == 3, "{r}");
        assert!(r["policy"] == "bfq" || r["streams"] == 1, "{r}");
        let key = ["policy", "workload", "depth", "streams"].map(|k| r[k].to_string());
        assert!(seen.insert(key), "{r} twice");
    }
    assert!(rows.iter().any(|r| r["policy"] == "mq-deadline:fifo_batch=1"));
}

/// Whether anything is queued, in which class, and what is next, is a look at a counter or a tree: a policy that looked through
/// what is queued would take 128 times as long with 128 times as much of it. And fair queueing has a price that is known:
/// twice that of `mq-deadline` (240 and 124 ns on an idle machine), the kernel says 1.9 and 0.7 us.
#[test]
fn a_request_costs_as_much_in_a_long_queue_and_fairness_a_small_multiple() {
    let list = ["--sched", "mq-deadline,deadline,bfq,kyber,ftb", "--depths", "128,16384", "--streams", "8"];
    let out = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .args(["bench", "sched", "--runs", "21", "--requests", "500", "--workloads", "random"])
        .args(list)
        .output()
        .expect("the program starts");
    let text = String::from_utf8(out.stdout).expect("text");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|l| serde_json::from_str(l).expect("a JSON object a line")).collect();
    let ns = |policy: &str, depth: u64| {
        let row = rows.iter().find(|r| r["policy"] == policy && r["depth"] == depth);
        row.and_then(|r| r["ns_median"].as_f64()).unwrap_or_else(|| panic!("{policy} {depth}: {text}"))
    };
    for policy in ["mq-deadline", "deadline", "bfq", "kyber", "ftb"] {
        let (short, long) = (ns(policy, 128), ns(policy, 16_384));
        assert!(long < 16.0 * short, "{policy}: {short} ns with 128 queued, {long} with 16384");
    }
    let (fair, plain) = (ns("bfq", 128), ns("mq-deadline", 128));
    assert!(fair < 8.0 * plain, "bfq {fair} ns, mq-deadline {plain}");
}

#[test]
fn every_policy_that_is_built_in_is_measured_by_default() {
    let out = lab(&["--depths", "4", "--workloads", "sequential-merge", "--streams", "2", "--table"]);
    let text = String::from_utf8(out.stdout).expect("text");
    let names: Vec<&str> = text.lines().skip(1).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(names, mmc_sched::AnyPolicy::NAMES, "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn wrong_usage_is_one_line_that_names_the_value_with_status_2() {
    for (args, named) in [
        (&["--sched", "noop"][..], "noop"),
        (&["--sched", "bfq:slice_idel=0"], "slice_idel"),
        (&["--depths", "0"], "'0'"),
        (&["--depths", "1,,2"], "''"),
        (&["--depths", "65001"], "65001"),
        (&["--streams", "x"], "'x'"),
        (&["--workloads", "random,seq"], "'seq'"),
        (&["--requests", "0"], "'0'"),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
            .args([&["bench", "sched"], args].concat())
            .output()
            .expect("the program starts");
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(named) && error.trim_end().lines().count() == 1, "{args:?}: {error}");
        assert!(out.stdout.is_empty());
    }
}

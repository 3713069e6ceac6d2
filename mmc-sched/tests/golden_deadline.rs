//! What Linux 7.3.4's own mq-deadline answered to 39 scenarios, reply by reply, state included.
#![cfg(feature = "mq-deadline")]

mod support;

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use support::protocol::Driver;

/// Commands and the replies that are compared.
fn script(text: &str) -> Vec<(String, Option<String>)> {
    let mut out = Vec::new();
    for line in text.lines() {
        let e: Value = serde_json::from_str(line).expect("JSON");
        let s = |k: &str| e[k].as_str().unwrap_or_default().to_string();
        let n = |k: &str| e[k].as_i64().unwrap_or_else(|| panic!("{k} in {line}"));
        match s("op").as_str() {
            "scenario" => {
                let q = &e["queue"];
                out.push((format!("reset {}", q["nr_requests"]), None));
                for k in ["nomerges", "max_sectors", "max_segments", "max_discard_segments"] {
                    out.push((format!("q {k} {}", q[k]), None));
                }
            }
            op @ ("i" | "b") => {
                let cmd = format!(
                    "{op} {} {} {} {} {} {}",
                    n("id"),
                    s("dir"),
                    s("prio"),
                    n("sec"),
                    n("n"),
                    s("fl")
                );
                let mut want = format!("I {} {}", n("id"), s("res"));
                if e["res"] == "merged" {
                    let _ = write!(want, " {} {}", n("into"), s("how"));
                }
                for g in e["gone"].as_array().into_iter().flatten() {
                    let _ = write!(want, " {}>{}", g[0], g[1]);
                }
                out.push((cmd, Some(want)));
            }
            "d" => {
                let want = match e["res"].as_i64() {
                    None => "D -".to_string(),
                    Some(id) => {
                        let ids = e["ids"].as_array().cloned().unwrap_or_else(|| vec![id.into()]);
                        let ids: Vec<String> = ids.iter().map(Value::to_string).collect();
                        format!("D {id} {} {} {}", n("sec"), n("n"), ids.join(" "))
                    }
                };
                out.push(("d".into(), Some(want)));
                out.push(("s".into(), Some(state(&e["st"]))));
            }
            "end" => out.push(("s".into(), Some(state(&e["st"])))),
            "c" => out.push((format!("c {}", n("id")), Some("C".into()))),
            "rq" => out.push((format!("rq {}", n("id")), Some("Q".into()))),
            "t" => out.push((format!("t {}", n("ms")), Some("T".into()))),
            "set" => out.push((
                format!("set {} {}", s("name"), s("val")),
                Some(format!("V {} {} {}", s("name"), n("rc"), s("now"))),
            )),
            "a" => out.push((format!("a {} {}", s("dir"), s("fl")), Some(format!("A {}", n("depth"))))),
            "w" => out.push(("w".into(), Some(format!("W {}", n("res"))))),
            other => panic!("unknown op {other}"),
        }
    }
    out
}

fn state(st: &Value) -> String {
    let mut line = format!("S {} {} {}", st[0].as_str().expect("direction"), st[1], st[2]);
    for v in st[3].as_array().into_iter().chain(st[4].as_array()).flatten() {
        let _ = write!(line, " {v}");
    }
    line
}

fn replay(dir: &str) -> (usize, usize) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(dir);
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("golden data").map(|f| f.expect("entry").path()).collect();
    files.sort();
    let (mut replies, mut faults) = (0, Vec::new());
    for file in &files {
        let mut driver = Driver::new(128);
        for (k, (cmd, want)) in script(&std::fs::read_to_string(file).expect("readable")).iter().enumerate() {
            let got = driver.line(cmd);
            replies += usize::from(want.is_some());
            if want.as_ref().is_some_and(|w| *w != got) {
                faults.push(format!(
                    "{}: command {k}: {cmd}\n  kernel: {want:?}\n  ours:   {got}",
                    file.display()
                ));
                break;
            }
        }
    }
    assert!(faults.is_empty(), "{} of {} files differ\n{}", faults.len(), files.len(), faults.join("\n"));
    (files.len(), replies)
}

#[test]
fn the_recorded_scenarios_are_answered_as_the_kernel_did() {
    let (files, replies) = replay("deadline");
    assert_eq!(files, 20);
    assert!(replies > 38_000, "{replies}");
}

#[test]
fn each_rule_and_each_surprise_alone() {
    assert_eq!(replay("deadline-directed").0, 19);
}

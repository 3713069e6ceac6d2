//! The shell answers as Linux 7.3.4 did: all recorded scenarios of `mq-deadline`, reply by reply.

use mmc_lab::sched_shell::Shell;
use serde_json::Value;
use std::path::Path;

fn words(values: &Value) -> String {
    let text = |v: &Value| format!(" {}", v.as_str().map_or_else(|| v.to_string(), str::to_owned));
    values.as_array().into_iter().flatten().map(text).collect()
}

/// The commands of one recorded step, each with its reply.
fn commands(e: &Value) -> Vec<(String, String)> {
    let f = |k: &str| words(&serde_json::json!([e[k]])).trim_start().to_owned();
    let state = || {
        let s = e["st"].as_array().expect("a state");
        format!("S{}{}{}", words(&Value::from(s[..3].to_vec())), words(&s[3]), words(&s[4]))
    };
    let one = |command: String, reply: String| vec![(command, reply)];
    match f("op").as_str() {
        "scenario" => {
            let limits = ["nomerges", "max_sectors", "max_segments", "max_discard_segments"];
            let reset = (format!("reset {}", e["queue"]["nr_requests"]), "R".into());
            let q = limits.iter().map(|k| (format!("q {k} {}", e["queue"][k]), "K".into()));
            std::iter::once(reset).chain(q).collect()
        }
        op @ ("i" | "b") => {
            let fields = ["id", "dir", "prio", "sec", "n", "fl"].map(f).join(" ");
            let mut reply = format!("I {} {}", f("id"), f("res"));
            if e["res"] == "merged" {
                reply += &format!(" {} {}", f("into"), f("how"));
            }
            for pair in e["gone"].as_array().into_iter().flatten() {
                reply += &format!(" {}>{}", pair[0], pair[1]);
            }
            one(format!("{op} {fields}"), reply)
        }
        "d" if e["res"].is_null() => vec![("d".into(), "D -".into()), ("s".into(), state())],
        "d" => {
            let ids =
                if e["ids"].is_null() { words(&serde_json::json!([e["res"]])) } else { words(&e["ids"]) };
            let reply = format!("D {} {} {}{ids}", f("res"), f("sec"), f("n"));
            vec![("d".into(), reply), ("s".into(), state())]
        }
        "end" => one("s".into(), state()),
        "t" => one(format!("t {}", f("ms")), "T".into()),
        "c" => one(format!("c {}", f("id")), "C".into()),
        "rq" => one(format!("rq {}", f("id")), "Q".into()),
        "set" => one(
            format!("set {} {}", f("name"), e["val"].as_str().expect("text")),
            format!("V {} {} {}", f("name"), f("rc"), f("now")),
        ),
        "a" => one(format!("a {} {}", f("dir"), f("fl")), format!("A {}", f("depth"))),
        "w" => one("w".into(), format!("W {}", f("res"))),
        other => panic!("unknown op {other}"),
    }
}

#[test]
fn the_shell_answers_as_the_kernel_did() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mmc-sched/tests/data/golden");
    let (mut files, mut replies) = (0, 0);
    for dir in ["deadline", "deadline-directed"] {
        for file in std::fs::read_dir(data.join(dir)).expect("golden data") {
            let path = file.expect("an entry").path();
            let mut shell = Shell::new("mq-deadline", None, &[]).expect("built in");
            for line in std::fs::read_to_string(&path).expect("readable").lines() {
                for (command, reply) in commands(&serde_json::from_str(line).expect("JSON")) {
                    let got = shell.line(&command);
                    assert_eq!(got.as_deref(), Some(reply.as_str()), "{}: {command}", path.display());
                    replies += 1;
                }
            }
            files += 1;
        }
    }
    assert!(files == 39 && replies > 38_000, "{files} files, {replies} replies");
}

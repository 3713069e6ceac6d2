//! What commands give to people and programs beside their text: pages, the documented JSON, completions, man pages, colours.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn lab(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .args(args)
        .current_dir(dir)
        .output()
        .expect("the program starts")
}

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// An empty directory of this test's own.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report").join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

/// The page that `args` write, and their JSON.
fn page(dir: &Path, args: &[&str]) -> (String, Vec<Value>) {
    let out = lab(dir, &[args, &["--json", "--out", "page.html"]].concat());
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).expect("text");
    let lines = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    (std::fs::read_to_string(dir.join("page.html")).expect("the page"), lines)
}

/// What every page must be; that people can use it is looked at in a browser (`ci/browser`).
fn is_whole(what: &str, page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"), "{what}");
    let foreign = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{what} asks the network");
    assert!(!page.contains("<script") && !page.contains("javascript:"), "{what} has a script");
    assert!(page.contains("prefers-color-scheme:dark"), "{what}");
    for tag in ["html", "main", "section", "table", "figure", "details", "svg", "dl", "ul", "pre"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{what}: {tag}");
    }
    assert_eq!(page.matches("<table").count(), page.matches("<caption>").count(), "{what}");
    assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\"").count(), "{what}");
    assert!(!page.contains("NaN") && !page.contains("inf\""), "{what} has a number that is none");
}

#[test]
fn every_command_that_analyses_writes_a_page_with_the_numbers_of_its_json() {
    let dir = scratch("pages");
    let seconds = |v: &Value| mmc_lab::units::format_time((v.as_f64().expect("a time") * 1e9).round() as u64);

    let (html, runs) =
        page(&dir, &["explain", &data("bv510-mq.ftrace.txt.gz"), "--dmesg", &data("bv510-mq.dmesg.txt.gz")]);
    is_whole("explain", &html);
    for class in ["journal", "reads", "sync_writes", "async_writes"] {
        let stats = &runs[0]["classes"][class];
        let row = ["n", "p50_s", "p99_s", "max_s"].map(|k| match k {
            "n" => stats[k].to_string(),
            _ => seconds(&stats[k]),
        });
        assert!(row.iter().all(|cell| html.contains(&format!("<td>{cell}</td>"))), "{class}: {row:?}");
    }
    let kernel = runs[0]["kernel_hung"].as_array().expect("a list");
    assert!(kernel.len() > 3 && html.contains("Hung-task lines of the kernel"));

    let (html, runs) = page(&dir, &["replay", &data("mv510-mq.ftrace.txt.gz"), "--sched", "mq-deadline,bfq"]);
    is_whole("replay", &html);
    for run in &runs {
        let rate = format!("<td>{:.2}</td>", run["busy_bytes_per_s"].as_f64().expect("a rate") / 1e6);
        assert!(html.contains(&rate), "{} {rate}", run["scheduler"]);
    }

    let list = ["--sched", "mq-deadline,bfq", "--class", "journal"];
    let (html, runs) = page(&dir, &[&["tune", &data("mv510-mq.ftrace.txt.gz")], &list[..]].concat());
    is_whole("tune", &html);
    let best = runs.iter().find(|r| r["recommended"] == true).expect("one is recommended");
    assert!(
        html.contains(&format!("{}: p99 of the journal write", best["label"].as_str().expect("a label"))),
        "the heading"
    );
    assert_eq!(html.matches("<circle cx").count() / 2 - 2, runs.len(), "a point for each setting");

    let (html, _) = page(&dir, &["csv", &data("bv510-mq.bonnie.out"), &data("bv510-bfq.bonnie.out")]);
    is_whole("csv", &html);
    assert!(html.contains("<td>5736 (-4.1 %)</td>"));

    let (html, _) = page(&dir, &["card", "fit", &data("bv510-mq.device.log.gz")]);
    is_whole("card fit", &html);
    assert!(html.contains("<td>17.85 to 18.08 MB/s</td>"));

    let (html, _) = page(&dir, &["compare", "--scenarios", &data("scenarios-small.json"), "--seeds", "1"]);
    is_whole("compare", &html);

    let (html, runs) = page(&dir, &["card", "simulate", "--blocks", "40000"]);
    is_whole("card simulate", &html);
    let longest = seconds(&runs[0]["latency_s"][3]);
    let ring = mmc_lab::units::format_size(runs[0]["ring_1e3"].as_u64().expect("bytes"));
    assert!(html.contains(&format!("<td>{}</td></tr>\n</tbody>", runs[0]["late"])), "late ones");
    assert!(
        html.contains(&format!("<dd>{longest}<")) && html.contains(&format!("<dd>{ring}<")),
        "{longest} {ring}"
    );

    let little = ["--requests", "1000", "--faults", "40", "--cuts", "1", "--swaps", "1", "--days", "1"];
    let (html, runs) = page(&dir, &[&["soak"], &little[..]].concat());
    is_whole("soak", &html);
    for class in runs[0]["classes"].as_array().expect("a list") {
        let worst = mmc_lab::units::format_time(class["worst_ns"].as_u64().expect("a time"));
        let name = class["class"].as_str().expect("a name");
        assert!(
            html.contains(&format!("{name}</th><td>{}</td><td>{worst}</td>", class["requests"])),
            "{name} {worst}"
        );
    }

    let order = lab(
        &dir,
        &[
            "replay",
            &data("b612-mq.ftrace.txt.gz"),
            "--verify-order",
            "--rules",
            "7.3",
            "--out",
            "order.html",
        ],
    );
    assert_eq!(order.status.code(), Some(1), "it differs");
    let html = std::fs::read_to_string(dir.join("order.html")).expect("the page");
    is_whole("replay --verify-order", &html);
    assert!(html.contains("2968 of 3015"));

    let bonnie = lab(&dir, &["bonnie", "--size", "32M", "--ram", "128M", "--sched", "bfq,mq-deadline"]);
    assert!(bonnie.status.success());
    is_whole("bonnie", &std::fs::read_to_string(dir.join("report.html")).expect("the page"));
}

/// A trace of tasks with these names, each with a few writes that wait.
fn trace_of(names: &[&str]) -> String {
    let (mut text, mut us) = ("# tracer: nop\n".to_owned(), 100_000_000_u64);
    for (i, name) in names.iter().enumerate() {
        for k in 0..8 {
            let sector = 1000 * (20 * i + k);
            for event in [
                format!("block_bio_queue: 179,0 WS {sector} + 8 [{name}]"),
                format!("block_rq_insert: 179,0 WS 4096 () {sector} + 8 [{name}]"),
                format!("block_rq_issue: 179,0 WS 4096 () {sector} + 8 [{name}]"),
                format!("block_rq_complete: 179,0 WS () {sector} + 8 [0]"),
            ] {
                us += 3000;
                let stamp = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
                text.push_str(&format!("{name:>16}-{:<5} [000] .... {stamp}: {event}\n", 100 + i));
            }
        }
    }
    text
}

#[test]
fn names_out_of_a_trace_do_nothing_to_a_page_or_a_terminal() {
    let dir = scratch("hostile");
    let names = [
        "<script>x()</scr",
        "</style><b>",
        "'\"&amp;<img/>",
        "\u{202e}live",
        "x\u{1b}[31my\u{7}",
        "--><!--",
        "]]>",
        "é\u{1f4a9}",
        "</title></svg>",
        "{{7*7}}",
        "&#x3c;b>",
        "onload=x()",
    ];
    std::fs::write(dir.join("trace.txt"), trace_of(&names)).expect("the trace");
    let (html, runs) = page(&dir, &["explain", "trace.txt"]);
    is_whole("explain", &html);
    assert_eq!(runs[0]["tasks"], names.len());
    for tag in ["<b>", "<img", "<!--", "]]>", "\u{202e}", "\u{1b}", "\u{7}", "x()</scr"] {
        assert!(!html.contains(tag), "{tag:?}");
    }
    assert!(
        html.contains("&lt;script&gt;x()&lt;/scr")
            && html.contains("&amp;amp;")
            && html.contains("é\u{1f4a9}")
    );
    for color in ["always", "never"] {
        let out = lab(&dir, &["explain", "trace.txt", "--color", color]);
        let text = String::from_utf8(out.stdout).expect("text");
        assert!(text.contains("x\u{fffd}[31my\u{fffd}"), "{text}");
        assert!(!text.contains("\u{1b}[31m") && !text.contains('\u{7}'), "{text}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_told_before_the_work_begins() {
    let dir = scratch("unwritable");
    let trace = data("mv510-mq.ftrace.txt.gz");
    for args in [
        &["explain", &trace][..],
        &["replay", &trace],
        &["tune", &trace],
        &["csv", &data("bv510-mq.bonnie.out")],
        &["card", "fit", &data("bv510-mq.device.log.gz")],
        &["card", "simulate"],
        &["soak"],
        &["serve", "--size", "16M", "--listen", "unix:s"],
        &["verify", "--write", "s"],
    ] {
        let out = lab(&dir, &[args, &["--out", "no/such/dir/page.html"]].concat());
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains("no/such/dir") && error.trim_end().lines().count() == 1, "{args:?}: {error}");
        assert!(out.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(std::fs::read_dir(&dir).expect("the directory").count(), 0);
}

#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let dir = scratch("colour");
    let trace = data("bv510-mq.ftrace.txt.gz");
    let out = |more: &[&str]| {
        String::from_utf8(lab(&dir, &[&["explain", &trace], more].concat()).stdout).expect("text")
    };
    let (piped, always) = (out(&[]), out(&["--color", "always"]));
    assert!(!piped.contains('\u{1b}'), "a pipe is no terminal");
    assert!(always.contains("\u{1b}[1mLongest waits\u{1b}[0m"), "{always}");
    assert_eq!(out(&["--color", "never"]), piped);
    assert!(!out(&["--color", "always", "--json"]).contains('\u{1b}'), "JSON is for programs");
    let wrong = lab(&dir, &["explain", &trace, "--color", "sometimes"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("sometimes"));
}

#[test]
#[cfg(target_os = "linux")]
fn a_terminal_gets_colours_unless_no_color_is_set() {
    // `script` of util-linux gives its command a terminal.
    let on_terminal = |no_color: Option<&str>| {
        let command = format!("{} explain {}", env!("CARGO_BIN_EXE_mmc-lab"), data("bv510-mq.ftrace.txt.gz"));
        let mut script = Command::new("script");
        script
            .args(["-qec", &command, "/dev/null"])
            .stdin(Stdio::null())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        if let Some(value) = no_color {
            script.env("NO_COLOR", value);
        }
        script.output().ok().map(|out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let Some(coloured) = on_terminal(None) else { return };
    assert!(coloured.contains("\u{1b}[1mLongest waits"), "{coloured}");
    assert!(on_terminal(Some("")).is_some_and(|t| t.contains("\u{1b}[1m")), "empty is not set");
    assert!(on_terminal(Some("1")).is_some_and(|t| t.contains("Longest waits") && !t.contains("\u{1b}[1m")));
}

#[test]
fn shells_and_man_get_what_they_need_of_every_command() {
    let dir = scratch("shells");
    let help = String::from_utf8(lab(&dir, &["--help"]).stdout).expect("text");
    let list = help.split("Commands:").nth(1).and_then(|t| t.split("\n\n").next()).expect("commands");
    let commands: Vec<&str> =
        list.lines().filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").collect();
    assert!(commands.len() >= 13 && commands.contains(&"completions"), "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let out = lab(&dir, &["completions", shell]);
        let script = String::from_utf8(out.stdout).expect("text");
        assert!(out.status.success());
        for word in commands.iter().chain(&["verify-order", "max-sectors-kb"]) {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
    assert_eq!(lab(&dir, &["completions", "dos"]).status.code(), Some(2));
    assert!(lab(&dir, &["man", "."]).status.success());
    for command in &commands {
        let man = std::fs::read_to_string(dir.join(format!("mmc-lab-{command}.1"))).expect("a man page");
        assert!(man.contains(".SH NAME") && man.contains(".SH SYNOPSIS"), "{command}");
    }
    let gone = lab(&dir, &["man", "nowhere"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("nowhere is no directory"));
}

/// The fields of each section of `docs/json.md`.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let text = std::fs::read_to_string(path).expect("docs/json.md");
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            section = name.to_owned();
        } else if let Some(field) = line.strip_prefix("| `").and_then(|l| l.split('`').next()) {
            assert!(
                sections.entry(section.clone()).or_default().insert(field.to_owned()),
                "{section}: {field} twice"
            );
        }
    }
    sections
}

/// The paths of all values: of an object `a.b`, of an array `a[]`.
fn paths(at: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let key = key.replace('.', "·");
                paths(&if at.is_empty() { key } else { format!("{at}.{key}") }, value, found);
            }
        }
        Value::Array(all) if !all.is_empty() => {
            all.iter().for_each(|value| paths(&format!("{at}[]"), value, found))
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// Whether a documented field is that of a path; `*` stands for one name.
fn is(field: &str, path: &str) -> bool {
    let (a, b): (Vec<&str>, Vec<&str>) = (field.split('.').collect(), path.split('.').collect());
    let same = |(a, b): (&&str, &&str)| match a.strip_prefix('*') {
        Some(rest) => b.ends_with(rest) && (!rest.is_empty() || !b.ends_with("[]")),
        None => a == b,
    };
    a.len() == b.len() && a.iter().zip(&b).all(same)
}

/// The path of a list or a map with nothing in it.
fn empty(field: &str) -> &str {
    field.strip_suffix("[]").or_else(|| field.strip_suffix(".*")).unwrap_or(field)
}

/// What `serve` says at its end with these options more, after a client that wrote and read.
#[cfg(unix)]
fn served(dir: &Path, more: &[&str]) -> Value {
    let serve = ["serve", "--size", "16M", "--listen", "unix:s", "--once", "--json"];
    let server = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .args(serve)
        .args(more)
        .current_dir(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !dir.join("s").exists() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let client = lab(dir, &["verify", "--write", "unix:s"]);
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let out = server.wait_with_output().expect("it ends");
    let value: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(value["schema"], mmc_lab::output::SCHEMA);
    value
}

#[test]
#[cfg(unix)]
fn a_served_disk_and_one_read_back_get_a_page_too() {
    let dir = scratch("disks");
    let told = served(&dir, &["--out", "page.html", "--fault", "at CMD20#9: no-answer"]);
    let html = std::fs::read_to_string(dir.join("page.html")).expect("the page");
    is_whole("serve", &html);
    let writes = &told["served"]["write"];
    let bytes = mmc_lab::units::format_size(writes["bytes"].as_u64().expect("bytes"));
    assert!(html.contains(&format!("write</th><td>{}</td><td>{bytes}</td>", writes["requests"])), "{told}");
    assert!(html.contains("CMD20#9") && html.contains("all that was written is stored"));

    // The upper half holds the lower one's, and one word is wrong.
    std::fs::write(dir.join("disk.img"), [0; 65536]).expect("a disk");
    let (html, _) = page(&dir, &["verify", "--write", "disk.img"]);
    is_whole("verify", &html);
    assert!(html.contains("disk.img holds all that was written to it: 64 KiB"));
    let mut disk = std::fs::read(dir.join("disk.img")).expect("a disk");
    disk.copy_within(..32768, 32768);
    disk[1000] ^= 1;
    std::fs::write(dir.join("disk.img"), disk).expect("a disk");
    let out = lab(&dir, &["verify", "disk.img", "--json", "--out", "bad.html"]);
    assert_eq!(out.status.code(), Some(1), "it is not good, and the page is there");
    let found: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let html = std::fs::read_to_string(dir.join("bad.html")).expect("the page");
    is_whole("verify", &html);
    for fate in ["good", "overwritten", "changed", "corrupted", "unreadable"] {
        assert!(html.contains(&format!("{fate}</th><td>{}</td>", found[fate])), "{fate}: {found}");
    }
    assert!(html.contains("disk.img has less than it says: addresses 32 KiB apart are one place"), "{found}");
}

#[test]
fn the_json_of_every_command_is_what_its_page_says() {
    let dir = scratch("json");
    std::fs::write(dir.join("dump.txt"), "STATUS: 106\nRINTSTS: 8a4\n0x900: 1\n").expect("a dump");
    let [bv, mv, b6] = ["bv510-mq", "mv510-mq", "b612-mq"].map(|t| data(&format!("{t}.ftrace.txt.gz")));
    let (commands, log, rows, old, small) = (
        data("mmc-events.ftrace.txt"),
        data("bv510-mq.dmesg.txt.gz"),
        data("bv510-mq.bonnie.out"),
        data("bv510-mq.device.log.gz"),
        data("scenarios-small.json"),
    );
    let board = [
        "bonnie",
        "--size",
        "96M",
        "--ram",
        "192M",
        "--hung",
        "500ms",
        "--sched",
        "mq-deadline:fifo_batch=1",
        "--beside",
        "typing,camera",
    ];
    let runs: Vec<(&str, Vec<&str>)> = vec![
        ("bonnie", board.to_vec()),
        ("explain", vec!["explain", &bv, "--dmesg", &log]),
        ("explain", vec!["explain", &commands]),
        ("replay", vec!["replay", &mv]),
        ("replay --verify-order", vec!["replay", &b6, "--verify-order"]),
        ("tune", vec!["tune", &mv, "--sched", "mq-deadline:fifo_batch=1"]),
        ("csv", vec!["csv", &rows]),
        (
            "compare",
            vec!["compare", "--scenarios", &small, "--seeds", "1", "--sched", "ftb,bfq:low_latency=1"],
        ),
        ("card list", vec!["card", "list"]),
        ("card show", vec!["card", "show", "a1"]),
        ("card show", vec!["card", "show", "fake-64gb"]),
        ("card fit", vec!["card", "fit", &old]),
        ("card simulate", vec!["card", "simulate", "--blocks", "4000"]),
        ("decode", vec!["decode", "csd", "400e00325b590000edc87f800a404055"]),
        (
            "soak",
            vec![
                "soak",
                "--requests",
                "1000",
                "--faults",
                "40",
                "--cuts",
                "1",
                "--swaps",
                "1",
                "--days",
                "1",
            ],
        ),
        ("verify", vec!["verify", "disk.img"]),
        ("dw timeout", vec!["dw", "timeout", "--bus", "50000000"]),
        ("dw regs", vec!["dw", "regs"]),
        ("bench dw", vec!["bench", "dw"]),
        (
            "bench sched",
            vec![
                "bench",
                "sched",
                "--sched",
                "none",
                "--depths",
                "1",
                "--streams",
                "1",
                "--runs",
                "1",
                "--requests",
                "10",
            ],
        ),
        ("bench explain", vec!["bench", "explain", "--size", "1M"]),
    ];
    // A disk of 128 sectors: the upper half holds the lower one's, and one word is wrong.
    std::fs::write(dir.join("disk.img"), [0; 65536]).expect("a disk");
    assert!(lab(&dir, &["verify", "--write", "disk.img"]).status.success());
    let mut disk = std::fs::read(dir.join("disk.img")).expect("a disk");
    disk.copy_within(..32768, 32768);
    disk[1000] ^= 1;
    std::fs::write(dir.join("disk.img"), disk).expect("a disk");
    let mut emitted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    // An MMC and an SDIO card have fields of their own.
    let list: Value = serde_json::from_slice(&lab(&dir, &["card", "list", "--json"]).stdout).expect("JSON");
    let last = |kind: &str| {
        let mut cards = list.as_array().expect("an array").iter().filter(|card| card["kind"] == kind);
        cards.next_back().and_then(|card| card["name"].as_str()).expect("a card")
    };
    let also = ["mmc", "sdio"].map(|kind| ("card show", vec!["card", "show", last(kind)]));
    for (section, args) in runs.iter().chain(&also) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mmc-lab"));
        let json: &[&str] = if args[..2] == ["bench", "sched"] || args[..2] == ["bench", "explain"] {
            &[]
        } else {
            &["--json"]
        };
        command.args(args).args(json).current_dir(&dir);
        if args[..] == ["dw", "regs"] {
            command.stdin(std::fs::File::open(dir.join("dump.txt")).expect("the dump"));
        }
        let out = command.output().expect("the program starts");
        let text = String::from_utf8(out.stdout).expect("text");
        assert!(!text.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{args:?}: {e}: {line}"));
            let one = value.as_array().map_or(&value, |all| &all[0]);
            assert_eq!(one["schema"], mmc_lab::output::SCHEMA, "{args:?}");
            paths("", &value, emitted.entry(section).or_default());
        }
    }
    #[cfg(unix)]
    paths("", &served(&dir, &[]), emitted.entry("serve").or_default());
    let documented = documented();
    for (section, fields) in &documented {
        let emitted = emitted
            .get(section.as_str())
            .unwrap_or_else(|| panic!("docs/json.md: no command for '{section}'"));
        for path in emitted {
            let within =
                |f: &&String| f.starts_with(&format!("{path}.")) || f.starts_with(&format!("{path}[]"));
            let patterns = |f: &&String| {
                let head: Vec<&str> = f.split('.').take(path.split('.').count()).collect();
                is(&head.join("."), path) && f.split('.').count() > path.split('.').count()
            };
            let known = fields.iter().any(|f| is(f, path) || within(&f) || patterns(&f));
            assert!(known, "'{section}' prints {path}, which docs/json.md does not have");
        }
        for field in fields {
            assert!(
                emitted.iter().any(|path| is(field, path) || is(empty(field), path)),
                "'{section}' never prints {field} of docs/json.md"
            );
        }
    }
    for section in emitted.keys() {
        assert!(documented.contains_key(*section), "docs/json.md has no section '{section}'");
    }
}

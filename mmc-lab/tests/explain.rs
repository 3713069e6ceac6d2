//! `mmc-lab explain` on traces of real kernels: the measured rows, the known victim, the JSON, and what is said about
//! traces that are of little or no use.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clap::Parser;
use flate2::read::GzDecoder;
use mmc_lab::analysis::{ClassStats, Options};
use mmc_lab::blame::Blame;
use mmc_lab::cli::explain::{Args, Explanation, Failure, explain, explain_input, text};
use serde_json::Value;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn args(file: &Path, options: &[&str]) -> Args {
    let file = file.to_str().unwrap();
    Command::parse_from(["explain", file].iter().chain(options)).args
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.ftrace.txt.gz"))
}

fn explained(name: &str, options: &[&str]) -> Explanation {
    explain(&args(&data(name), options)).unwrap()
}

fn plain(name: &str) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(std::fs::File::open(data(name)).unwrap()).read_to_end(&mut text).unwrap();
    text
}

/// A file of this test alone, gone with it.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("mmc-lab-explain-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(content).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn refused(name: &str, content: &[u8], options: &[&str]) -> Failure {
    let file = Temporary::new(name, content);
    let failure = explain(&args(&file.0, options)).unwrap_err();
    assert!(!failure.to_string().contains('\n'), "{failure}");
    failure
}

/// As the table in the description of the measurement prints it.
fn row(stats: &ClassStats, with_p99: bool) -> String {
    let s = |ns: Option<u64>| format!("{:.2}", ns.unwrap() as f64 / 1e9);
    match (stats.n, with_p99) {
        (0, _) => "-".to_owned(),
        (n, true) => format!("{} / {} / {} (n={n})", s(stats.p50), s(stats.p99), s(stats.max)),
        (n, false) => format!("{} / {} (n={n})", s(stats.p50), s(stats.max)),
    }
}

#[test]
fn the_measured_rows_are_found_again() {
    let rows = [
        ("bv510-mq", ["10.71 / 10.88 / 10.88 (n=63)", "-", "4.24 / 10.99 (n=855)", "9.83 / 11.65 (n=197)"]),
        ("bv510-bfq", ["0.14 / 0.78 / 1.74 (n=141)", "-", "0.57 / 27.76 (n=900)", "5.47 / 12.60 (n=212)"]),
        ("b612-mq", ["10.75 / 11.47 / 11.47 (n=51)", "-", "3.94 / 11.64 (n=1200)", "9.75 / 11.17 (n=194)"]),
        (
            "mv510-mq",
            [
                "9.08 / 11.00 / 11.00 (n=26)",
                "1.30 / 2.96 / 2.96 (n=32)",
                "10.95 / 10.95 (n=1)",
                "7.76 / 12.15 (n=60)",
            ],
        ),
        (
            "mv510-bfq",
            [
                "0.00 / 0.42 / 0.50 (n=177)",
                "0.23 / 0.49 / 0.56 (n=202)",
                "0.08 / 0.67 (n=32)",
                "5.59 / 6.53 (n=104)",
            ],
        ),
        (
            "m510-mq",
            [
                "10.26 / 10.51 / 10.51 (n=26)",
                "10.47 / 10.56 / 10.56 (n=7)",
                "10.85 / 10.85 (n=2)",
                "6.97 / 10.97 (n=73)",
            ],
        ),
        ("m612-mq", ["7.45 / 10.99 / 10.99 (n=24)", "1.31 / 6.00 / 6.00 (n=20)", "-", "9.32 / 11.09 (n=73)"]),
    ];
    for (name, expected) in rows {
        let found = explained(name, &["--busy", "16"]);
        let classes = &found.report.classes;
        let got = [
            row(&classes.journal, true),
            row(&classes.reads, true),
            row(&classes.sync_writes, false),
            row(&classes.async_writes, false),
        ];
        assert_eq!(got, expected, "{name}");
        assert!(found.notes.is_empty(), "{name}: {:?}", found.notes);
        assert_eq!((found.report.unfinished, found.report.unmatched), (0, 0), "{name}");
    }
}

#[test]
fn the_journal_write_of_the_story_is_found() {
    for options in [&[] as &[&str], &["--hung", "10s"], &["--top", "2000"]] {
        let found = explained("bv510-mq", options);
        let victims: Vec<_> = found.report.victims.iter().filter(|v| v.sector == 3_932_552).collect();
        let [victim] = victims[..] else { panic!("{options:?}: {victims:?}") };
        assert_eq!(
            (victim.task.as_str(), victim.rwbs.as_str(), victim.sectors),
            ("jbd2/mmcblk0-8", "WS", 56)
        );
        assert_eq!(victim.wait / 10_000_000, 1074, "10.75 s, rounded");
        assert_eq!(victim.wait, victim.tag_wait + victim.sched_wait + victim.service);
        assert_eq!((victim.ahead.requests, victim.ahead.older, victim.ahead.younger), (126, 118, 8));
        assert_eq!((victim.ahead.bytes, victim.ahead.background_writes()), (63 << 20, 126));
        assert_eq!(victim.blame, Blame::Queue);
        assert_eq!((victim.queued, victim.completed), (Some(1_084_325_142_000), Some(1_095_072_447_000)));
    }
}

#[test]
fn sleeps_agree_with_the_kernels_own_watchdog() {
    // The kernel reported tasks behind the journal at these times (dmesg of the same run, seconds): each within the
    // second after one of our sleeps ended or while it lasted.
    let found = explained("bv510-mq", &[]);
    for reported in [1063.19, 1094.94, 1134.87, 1156.38, 1177.88, 1189.14] {
        let near = |h: &&mmc_lab::analysis::Hung| {
            let until = h.until as f64 / 1e9;
            (until - h.slept as f64 / 1e9..until + 1.0).contains(&reported)
        };
        assert!(found.report.hung.iter().any(|h| near(&h)), "{reported}");
    }
    assert!(found.report.hung.iter().all(|h| h.ahead.requests > 100 && h.slept >= 10_000_000_000));
    // Under bfq it reported nobody, though an fsync took half a minute: it sleeps page by page.
    for name in ["bv510-bfq", "mv510-bfq"] {
        assert_eq!(explained(name, &[]).report.hung, [], "{name}");
    }
    // A read that waits behind the drained elevator sleeps without a break, too.
    let drained = explained("m510-mq", &[]).report.hung;
    assert!(drained.iter().any(|h| h.task == "fio" && h.waits_for.starts_with("read at sector 283680")));
}

#[test]
fn a_second_blockless_kernel_is_read_per_request() {
    let found = explained("loop618-mq", &["--top", "1"]);
    assert_eq!(found.dev, (7, 7));
    assert_eq!((found.events, found.report.requests), (2853, 954));
    assert!(!found.report.per_bio && found.notes.len() == 1, "{:?}", found.notes);
    assert!(found.notes[0].contains("per request"));
    // A flush: it has neither a bio nor an insertion.
    let [victim] = &found.report.victims[..] else { panic!() };
    assert_eq!((victim.rwbs.as_str(), victim.sectors, victim.queued, victim.inserted), ("FF", 0, None, None));
    assert!(victim.wait < 100_000_000 && victim.blame == Blame::Card);
    let counted = &found.report.classes;
    let n = counted.journal.n + counted.reads.n + counted.sync_writes.n + counted.async_writes.n;
    assert_eq!(n, 931, "every request with data once");
}

#[test]
fn the_hung_task_lines_of_the_kernel_are_matched_to_what_waited_then() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bv510-mq.dmesg.txt.gz");
    let options = args(&data("bv510-mq"), &["--dmesg", log.to_str().unwrap()]);
    let found = explain(&options).unwrap();
    let blocked = found.blocked.as_ref().unwrap();
    let (boot, run): (Vec<_>, Vec<_>) = blocked.iter().partition(|b| b.at < found.report.first);
    assert!(boot.iter().all(|b| b.while_waiting.is_none()), "before the trace began: {boot:?}");
    assert!(run.len() >= 7 && run.iter().all(|b| b.while_waiting.is_some()), "{run:?}");
    let first = run.iter().find(|b| b.task == "bonnie++").unwrap();
    assert!(first.while_waiting.as_ref().unwrap().contains("journal write"), "{first:?}");
    let text = text(&found, &options.file);
    assert!(
        text.contains("Hung-task lines of the kernel") && text.contains("kworker/u2:1 (12), more than 10 s")
    );
    let missing = explain(&args(&data("bv510-mq"), &["--dmesg", "/no/such"])).unwrap_err();
    assert!(missing.to_string().contains("/no/such"));
}

#[test]
fn tasks_and_service_times_add_up() {
    let report = explained("mv510-mq", &[]).report;
    let n: u64 = report.by_task.iter().map(|t| t.stats.n).sum();
    let classes = report.classes;
    assert_eq!(n, classes.journal.n + classes.reads.n + classes.sync_writes.n + classes.async_writes.n);
    assert!(report.by_task.windows(2).all(|t| t[0].sum >= t[1].sum));
    let served: u64 = report.service.iter().flat_map(|o| o.rows().map(|r| r.2).collect::<Vec<_>>()).sum();
    assert_eq!(served, 857);
    // Most writes are of 512 KiB and take 82 ms.
    let (from, to, n) = report.service[1].rows().max_by_key(|r| r.2).unwrap();
    assert!((from..to).contains(&82_000_000) && n > 700, "{from} {to} {n}");
}

#[test]
fn the_options_choose_the_victims() {
    let top = explained("mv510-mq", &["--top", "3"]).report.victims;
    assert_eq!(top.len(), 3);
    assert!(top.windows(2).all(|pair| pair[0].wait >= pair[1].wait));
    let hung = explained("mv510-mq", &["--hung", "12s"]).report;
    assert!(!hung.victims.is_empty() && hung.victims.iter().all(|v| v.wait >= 12_000_000_000));
    assert_eq!(hung.hung, []);
    assert_eq!(explained("mv510-mq", &["--hung", "20s"]).report.victims, []);
    let default = explained("mv510-bfq", &[]).report.victims;
    assert_eq!(default.len(), 10, "nothing waited 10 s, so the ten longest");
    let all = explained("mv510-mq", &["--top", "100000"]).report;
    assert_eq!(all.victims.len() as u64, all.requests);
    for v in &all.victims {
        assert_eq!(v.wait, v.tag_wait + v.sched_wait + v.service);
        assert_eq!(v.ahead.requests, v.ahead.older + v.ahead.younger);
        assert!(v.queued <= v.inserted && v.inserted <= v.issued && v.issued <= v.completed, "{v:?}");
    }
}

#[test]
fn the_json_has_the_promised_keys_in_order() {
    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }
    let found = explained("bv510-mq", &[]);
    let json: Value = serde_json::from_str(&serde_json::to_string(&found.report).unwrap()).unwrap();
    assert_eq!(keys(&json), ["requests", "tasks", "clock", "queue_depth_max", "classes", "victims", "hung"]);
    assert_eq!(keys(&json["clock"]), ["name", "granularity_s", "ordered"]);
    assert_eq!(keys(&json["classes"]), ["journal", "reads", "sync_writes", "async_writes"]);
    assert_eq!(keys(&json["classes"]["journal"]), ["n", "p50_s", "p99_s", "max_s"]);
    let victim = json["victims"].as_array().unwrap().iter().find(|v| v["sector"] == 3_932_552).unwrap();
    assert_eq!(
        keys(victim),
        [
            "task",
            "rwbs",
            "sector",
            "sectors",
            "queued_s",
            "inserted_s",
            "issued_s",
            "completed_s",
            "wait_s",
            "tag_wait_s",
            "sched_wait_s",
            "service_s",
            "ahead",
            "blame"
        ]
    );
    assert_eq!(keys(&victim["ahead"]), ["requests", "older", "younger", "bytes"]);
    assert_eq!(keys(&json["hung"][0]), ["task", "seconds", "waits_for", "ahead"]);
    assert_eq!(json["requests"], 2961);
    // bonnie++ and its five seekers, the journal, two flush workers.
    assert_eq!(json["tasks"], 9);
    assert_eq!(json["queue_depth_max"], 128);
    assert_eq!(json["clock"], serde_json::json!({"name": null, "granularity_s": 1e-6, "ordered": true}));
    assert_eq!(victim["queued_s"], 1084.325142);
    assert_eq!(victim["wait_s"], 10.747305);
    assert_eq!(victim["blame"], "queue");

    let flush = &serde_json::to_value(explained("loop618-mq", &["--top", "1"]).report).unwrap();
    assert_eq!(flush["victims"][0]["queued_s"], Value::Null);
    let none = serde_json::json!({"n": 0, "p50_s": null, "p99_s": null, "max_s": null});
    let idle = serde_json::to_value(explained("m612-mq", &["--busy", "16"]).report).unwrap();
    assert_eq!(idle["classes"]["sync_writes"], none);
}

#[test]
fn the_verdict_comes_first_and_says_what_to_try() {
    let options = args(&data("bv510-mq"), &[]);
    let text = text(&explain(&options).unwrap(), &options.file);
    let (verdict, rest) = text.split_once("\n\n").unwrap();
    let verdict = verdict.replace('\n', " ");
    for part in [
        "12 times a task slept 10 s or more",
        "jbd2/mmcblk0-8 slept 10.88 s for a journal write",
        "126 other requests (63 MiB, one every 85.6 ms)",
        "The queue is to blame.",
        "echo bfq > /sys/dev/block/179:0/queue/scheduler",
    ] {
        assert!(verdict.contains(part), "{part}: {verdict}");
    }
    for part in
        ["Longest waits", "118 older, 8 younger", "Latency by class", "Queue depth over time (greatest 128)"]
    {
        assert!(rest.contains(part), "{part}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 140));
}

#[test]
fn the_busiest_device_is_chosen_unless_told() {
    let other = b"x-1 [000] .... 1.000001: block_rq_issue: 8,0 R 4096 () 64 + 8 [x]\n\
        x-1 [000] .... 1.000009: block_rq_complete: 8,0 R () 64 + 8 [0]\n";
    let both = [other.as_slice(), &plain("mv510-mq")].concat();
    let file = Temporary::new("two-devices", &both);
    let found = explain(&args(&file.0, &[])).unwrap();
    assert_eq!((found.dev, found.events), ((179, 0), 3588));
    assert!(
        found.notes.iter().any(|n| n.contains("179,0 with 3588 events") && n.contains("8,0 with 2 events"))
    );
    let found = explain(&args(&file.0, &["--dev", "8,0"])).unwrap();
    assert_eq!((found.dev, found.report.requests), ((8, 0), 1));
    let failure = explain(&args(&file.0, &["--dev", "9,9"])).unwrap_err();
    assert_eq!(failure.status(), 1);
    assert!(
        failure
            .to_string()
            .contains("no event of device 9,9; it has 179,0 with 3588 events; 8,0 with 2 events")
    );
}

/// A journal write of 270 ms, as a user has published it (kernel 4.9, `block:` and `mmc:` events), and a status behind it.
const AT_THE_CARD: &str = include_str!("data/mmc-events.ftrace.txt");

#[test]
fn the_kernels_mmc_events_say_how_long_each_command_took() {
    let explain = |text: &str| {
        let mut input = std::io::Cursor::new(text.as_bytes().to_vec());
        explain_input(&mut input, "trace.txt", Options::default(), false)
    };
    let found = explain(AT_THE_CARD).unwrap();
    let commands = found.commands.as_ref().unwrap();
    let of = |k: usize| {
        let c = &commands.commands[k];
        (c.index, c.stats.n, c.stats.max.unwrap() / 1000, c.failed, c.bytes, c.longest_argument)
    };
    assert_eq!(of(0), (25, 1, 269_629, 0, 4096, 0x47_fd98));
    assert_eq!(of(1), (13, 1, 100, 1, 0, 0x10000));
    assert_eq!((commands.host.as_str(), commands.unmatched, found.events), ("mmc0", 0, 4));
    let shown = text(&found, Path::new("trace.txt"));
    assert!(shown.contains("Commands at mmc0"), "{shown}");
    let line = shown.lines().find(|l| l.contains("CMD25")).unwrap();
    for part in ["WRITE_MULTIPLE_BLOCK", "269.6 ms", "474.223072", "4 KiB"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    // Without block events nobody knows who waited; how long the card took is told all the same.
    let only: String = AT_THE_CARD.split_inclusive('\n').filter(|l| !l.contains(": block_")).collect();
    let found = explain(&only).unwrap();
    let shown = text(&found, Path::new("trace.txt"));
    assert!(shown.contains("CMD13 SEND_STATUS") && shown.contains("holds no block event"), "{shown}");
    assert_eq!(found.commands.unwrap(), *commands);
    // A trace without them is told as before.
    let without: String = AT_THE_CARD.split_inclusive('\n').filter(|l| l.contains(": block_")).collect();
    assert_eq!(explain(&without).unwrap().commands, None);
}

#[test]
fn a_trace_of_no_use_is_refused_in_one_line() {
    let missing = explain(&args(Path::new("/no/such/trace"), &[])).unwrap_err();
    assert!(
        missing.status() == 1 && missing.to_string().starts_with("cannot read /no/such/trace: "),
        "{missing}"
    );
    let directory = explain(&args(Path::new(env!("CARGO_MANIFEST_DIR")), &[])).unwrap_err();
    assert!(directory.status() == 1 && directory.to_string().starts_with("cannot read "), "{directory}");
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let trace = std::fs::read(data("mv510-mq")).unwrap();
    for (name, content, says) in [
        ("empty", &b""[..], "is empty"),
        ("binary", &binary, "holds no block event"),
        (
            "foreign",
            b"# tracer: nop\nbash-1 [000] .... 1.0: tracing_mark_write: MARK\n",
            "holds no block event",
        ),
        ("gzip-head", &trace[..7], "cannot read"),
        ("gzip-no-line", &trace[..40], "cannot read"),
    ] {
        let failure = refused(name, content, &[]);
        assert_eq!(failure.status(), 1, "{name}");
        assert!(failure.to_string().contains(says), "{name}: {failure}");
    }
    let failure = refused("no-device", b"", &["--dev", "8,0"]);
    assert!(failure.status() == 1 && failure.to_string().contains("no block event"), "{failure}");
}

#[test]
fn wrong_usage_is_named_before_the_file_is_touched() {
    let nowhere = Path::new("/no/such/trace");
    for (options, says) in [
        (["--hung", "10"], "--hung: `10` is not a time: write a number and one of ns, us, ms, s"),
        (["--hung", "10parsec"], "`10parsec`"),
        (["--hung", "-1s"], "`-1s`"),
        (["--top", "-1"], "--top: `-1` is no count: write a whole number from 0 to 4294967295"),
        (["--top", "ten"], "`ten`"),
        (["--busy", "4294967296"], "--busy: `4294967296`"),
        (["--dev", "mmcblk0"], "--dev: `mmcblk0` is no device: write major,minor as in 179,0"),
        (["--dev", "179"], "`179`"),
        (["--dev", "179,-1"], "`179,-1`"),
    ] {
        let failure = explain(&args(nowhere, &options)).unwrap_err();
        assert_eq!(failure.status(), 2, "{options:?}");
        assert!(failure.to_string().contains(says), "{failure}");
    }
}

#[test]
fn a_cut_trace_is_read_as_far_as_it_goes() {
    // Cut in the middle of the queue that the journal write at 3932552 stands in.
    let whole = plain("bv510-mq");
    let at = whole.windows(12).position(|w| w.starts_with(b" 1090.0")).unwrap();
    let cut = Temporary::new("cut", &whole[..at + 30]);
    let found = explain(&args(&cut.0, &[])).unwrap();
    assert!(found.notes.iter().any(|note| note.contains("1 of ") && note.contains("were skipped")));
    assert!(found.report.unfinished > 50, "{}", found.report.unfinished);
    assert!(
        found
            .notes
            .iter()
            .any(|n| n.contains(&format!("{} requests were not done", found.report.unfinished)))
    );
    let options = args(&cut.0, &["--top", "1000"]);
    let found = explain(&options).unwrap();
    let victim = found.report.victims.iter().find(|v| v.sector == 3_932_552).unwrap();
    assert_eq!((victim.issued, victim.completed, victim.service), (None, None, 0));
    assert!(victim.wait > 5_000_000_000 && victim.ahead.requests > 50);
    assert!(text(&found, &options.file).contains(", not done"));

    let packed = std::fs::read(data("bv510-mq")).unwrap();
    let cut = Temporary::new("cut.gz", &packed[..packed.len() / 2]);
    let found = explain(&args(&cut.0, &[])).unwrap();
    assert!(
        found.events > 5_000 && found.notes[0].contains("cannot be read to its end"),
        "{:?}",
        found.notes
    );
}

#[test]
fn odd_lines_are_skipped_and_counted() {
    let mut lines: Vec<Vec<u8>> = plain("mv510-mq").split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
    let expected = explained("mv510-mq", &["--busy", "16"]).report.classes;
    for (i, odd) in
        [&b"garbage"[..], b"\x00\x01\xff\xfe", b"fio-99 [000] .... 302.115841: block_getrq: 179,0 RM 6"]
            .into_iter()
            .enumerate()
    {
        lines.insert(500 * (i + 1), odd.to_vec());
    }
    let file = Temporary::new("odd", &lines.join(&b'\n'));
    let found = explain(&args(&file.0, &["--busy", "16"])).unwrap();
    assert_eq!(found.report.classes, expected);
    assert!(
        found.notes[0].starts_with("3 of ") && found.notes[0].contains("the first is line 501"),
        "{:?}",
        found.notes
    );
}

#[test]
fn lost_events_make_nobody_a_victim() {
    let text = String::from_utf8(plain("mv510-mq")).unwrap();
    // The end of one early request is lost; nothing says so but the recorder's own line.
    let lost: Vec<_> = text
        .lines()
        .map(|line| {
            match line.contains("302.117087: block_rq_complete")
                || line.contains("block_rq_complete: 179,0 RM () 69896")
            {
                true => "CPU:0 [LOST 1 EVENTS]",
                false => line,
            }
        })
        .collect();
    let file = Temporary::new("lost", lost.join("\n").as_bytes());
    let found = explain(&args(&file.0, &["--top", "1"])).unwrap();
    assert_eq!((found.report.lost_track, found.report.unfinished), (1, 0));
    assert!(found.report.victims[0].wait < 15_000_000_000);
    assert!(found.notes.iter().any(|note| note.contains("lost 1 events; 1 requests")), "{:?}", found.notes);
}

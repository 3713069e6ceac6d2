//! `mmc-lab sched`: both protocols, step by step, and what is answered to nonsense.

use mmc_lab::sched_shell::Shell;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn lab(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .arg("sched")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // Wrong usage ends it before it reads.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("the program ends")
}

fn shell(name: &str) -> Shell {
    Shell::new(name, None, &[]).expect("built in")
}

/// Command and reply on each line, divided by `->`.
#[track_caller]
fn conversation(shell: &mut Shell, text: &str) {
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let (command, reply) = line.split_once("->").expect("a reply");
        let got = shell.line(command.trim()).expect("not the end");
        assert_eq!(got, reply.trim(), "{}", command.trim());
    }
}

/// A misuse is one line that begins with E and contains the words.
#[track_caller]
fn misuse(shell: &mut Shell, line: &str, words: &[&str]) {
    let got = shell.line(line).expect("not the end");
    assert!(got.starts_with("E ") && !got.contains('\n'), "{line}: {got}");
    for word in words {
        assert!(got.contains(word), "{line}: {got} does not name {word}");
    }
}

#[test]
fn mq_deadline_speaks_the_protocol_of_the_recorded_scenarios() {
    conversation(
        &mut shell("mq-deadline"),
        "reset 64 -> R
         q nomerges 0 -> K
         t 10 -> T
         i 1 w none 100 8 -> I 1 queued
         b 2 w none 108 8 -> I 2 merged 1 back
         b 3 w none 92 8 -> I 3 merged 1 front
         i 4 w none 124 8 -> I 4 queued
         b 5 w none 116 8 -> I 5 merged 1 back 4>1
         i 6 r rt0 5000 8 s -> I 6 queued
         w -> W 1
         d -> D 6 5000 8 6
         s -> S r 1 0 1 1 0 1 0 0
         d -> D -
         c 6 -> C
         d -> D 1 92 40 3 1 2 5 4
         rq 1 -> Q
         d -> D 1 92 40 3 1 2 5 4
         c 1 -> C
         w -> W 0
         set fifo_batch 0x20 -> V fifo_batch 0 32
         set fifo_batch 7x -> V fifo_batch -22 32
         set fifo_batch 99999999999 -> V fifo_batch -34 32
         get write_expire -> V write_expire 0 5000
         set async_depth 8 -> V async_depth 0 8
         a w -> A 8
         a r s -> A 0
         reset -> R
         get fifo_batch -> V fifo_batch 0 16",
    );
}

#[test]
fn other_policies_speak_the_protocol_of_streams() {
    let mut s = Shell::new("bfq", None, &[("slice_idle".into(), "0".into())]).expect("built in");
    conversation(
        &mut s,
        "t 1000 -> ok
         p 1 2 4 -> ok
         i 1 w 0 1 0 1024 -> ok
         i 2 w 0 1 1024 1024 -> ok
         d -> 1
         i 3 r 1 2 90000 8 1 -> ok
         d -> 3
         d -> 2
         d -> -
         n -> -
         c 3 -> ok
         set low_latency 1 -> ok
         set nr_requests 64 -> ok
         set rotational 0 -> ok",
    );
    let q = s.line("q").expect("text");
    assert!(q.contains("policy=bfq") && q.contains("at_device=2") && q.contains("slice_idle=0"), "{q}");
    let w = s.line("w 1 0").expect("text");
    assert!(w.contains("arrived=2 at_device=2 completed=0"), "{w}");
    assert!(s.line("w 2 1").expect("text").contains("completed=1 sectors=8"));
    assert!(s.line("w 2 0").expect("text").starts_with("E "));
}

#[test]
fn a_stream_that_may_go_on_is_waited_for_and_the_shell_says_until_when() {
    conversation(
        &mut shell("bfq"),
        // Of more weight than the other: without the wait it would lose its share.
        "p 1 2 0 -> ok
         i 1 r 1 1 0 8 -> ok
         i 2 r 1 2 90000 8 -> ok
         d -> 1
         t 1000000 -> ok
         c 1 -> ok
         d -> -
         n -> 9000000
         t 9000000 -> ok
         d -> 2",
    );
}

#[test]
fn a_part_of_a_request_is_shown_with_its_place_and_completed_by_the_same_id() {
    let mut s = shell("ftb");
    conversation(&mut s, "i 1 w 0 1 0 20000 -> ok\n i 2 r 1 2 90000 8 -> ok\n d -> 2\n c 2 -> ok");
    let mut at = 0;
    for turn in 1.. {
        let part = s.line("d").expect("text");
        let (from, sectors): (u32, u32) = match part.strip_prefix("1 @").and_then(|p| p.split_once('+')) {
            Some((from, sectors)) => (from.parse().expect("a number"), sectors.parse().expect("a number")),
            None => panic!("no part of 1 but {part}"),
        };
        assert_eq!(at, from, "one behind the other");
        at += sectors;
        conversation(&mut s, &format!("t {} -> ok\n c 1 -> ok", turn * 100_000_000_u64));
        if at == 20_000 {
            break;
        }
    }
    misuse(&mut s, "c 1", &["completed already"]);
}

#[test]
fn merging_is_off_until_it_is_asked_for() {
    conversation(
        &mut shell("none"),
        "i 1 w 0 1 0 8 -> ok
         i 2 w 0 1 8 8 -> ok
         d -> 1
         d -> 2
         set nomerges 0 -> ok
         i 3 w 0 1 100 8 -> ok
         i 4 w 0 1 108 8 -> merged 3
         i 5 w 0 1 92 8 -> merged 3
         d -> 5 3 4
         c 4 -> ok
         c 5 -> ok
         c 3 -> ok",
    );
}

#[test]
fn nonsense_is_named_in_one_line_and_changes_nothing() {
    let mut s = shell("mq-deadline");
    conversation(
        &mut s,
        "t 5 -> T\n i 1 w be4 0 8 -> I 1 queued\n i 2 w be4 64 8 -> I 2 queued\n d -> D 1 0 8 1",
    );
    let before = s.line("s");
    for (line, words) in [
        ("", &["empty"][..]),
        ("frobnicate 1", &["frobnicate", "reset"]),
        ("t", &["ms", "missing"]),
        ("t 4", &["4", "before 5"]),
        ("t -1", &["-1"]),
        ("t 99999999999999999999", &["99999999999999999999"]),
        ("i 1 w be4 0 8", &["1", "in use"]),
        ("i 3 w be4 0", &["sectors", "missing"]),
        ("i 3 w be4 0 8 s more", &["more"]),
        ("i 3 w be4 0 0", &["range", "empty"]),
        ("i 3 w be4 18446744073709551615 8", &["range", "wraps"]),
        ("i 3 w be4 0 4294967296", &["4294967296"]),
        ("i 3 x be4 0 8", &["\"x\"", "direction"]),
        ("i 3 w be8 0 8", &["be8", "0 to 7"]),
        ("i 3 w best 0 8", &["best", "idle"]),
        ("i 3 w be4 0 8 q", &["'q'", "flag"]),
        ("i x w be4 0 8", &["\"x\""]),
        ("c 2", &["2", "queued"]),
        ("c 7", &["7", "not known"]),
        ("rq 2", &["2", "queued"]),
        ("d 1", &["\"1\"", "too many"]),
        ("set fifo_batsh 1", &["fifo_batsh", "fifo_batch"]),
        ("set", &["missing"]),
        ("get slice_idle", &["slice_idle", "write_expire"]),
        ("q nomerges 3", &["nomerges 3"]),
        ("q max_segments 65536", &["max_segments", "65535"]),
        ("q max_sektors 1", &["max_sektors", "max_sectors"]),
        ("reset 0", &["0", "1"]),
        ("a x", &["\"x\""]),
        ("i \u{7}\u{fe0f} w be4 0 8", &["id"]),
    ] {
        misuse(&mut s, line, words);
        assert_eq!(s.line("s"), before, "{line}");
    }
    conversation(&mut s, "c 1 -> C");
    misuse(&mut s, "c 1", &["1", "completed already"]);
    conversation(&mut s, "b 8 w be4 72 8 -> I 8 merged 2 back");
    misuse(&mut s, "c 8", &["8", "merged"]);

    let mut s = shell("bfq");
    conversation(&mut s, "t 5 -> ok\n i 1 w 0 1 0 8 -> ok");
    for (line, words) in [
        ("t 4", &["4", "before 5"][..]),
        ("i 1 w 0 1 0 8", &["in use"]),
        ("i 2 d 0 1 0 8", &["\"d\"", "direction"]),
        ("i 2 w 2 1 0 8", &["SYNC", "0 to 1"]),
        ("i 2 w 0 1 0 0", &["empty"]),
        ("i 2 w 0 1 0 8 4", &["FLAGS"]),
        ("c 1", &["not at the device"]),
        ("c 2", &["not known"]),
        ("p 1 4 0", &["class", "1 to 3"]),
        ("p 1 1 8", &["level", "0 to 7"]),
        ("set slice_idel 8", &["slice_idel", "slice_idle"]),
        ("set slice_idle fast", &["fast", "not a number"]),
        ("set slice_idle 99999999999999999999", &["out of range"]),
        ("set nomerges 3", &["nomerges", "3"]),
        ("set nr_requests 0", &["nr_requests"]),
        ("set", &["missing"]),
        ("w 9", &["9"]),
        ("w 1 2", &["SYNC"]),
        ("rq 1", &["\"rq\"", "set"]),
    ] {
        misuse(&mut s, line, words);
    }
    conversation(&mut s, "d -> 1\n c 1 -> ok");
    misuse(&mut s, "c 1", &["1", "completed already"]);
}

#[test]
fn a_full_pool_is_said_and_goes_on() {
    let mut s = shell("none");
    for n in 0..mmc_lab::sched_shell::SLOTS {
        assert_eq!(s.line(&format!("i {n} w 0 1 {} 8", n * 100)).as_deref(), Some("ok"));
    }
    misuse(&mut s, "i 99999 w 0 1 0 8", &["full"]);
    conversation(&mut s, "d -> 0\n c 0 -> ok\n i 99999 w 0 1 0 8 -> ok");
}

#[test]
fn the_program_answers_line_by_line_until_x_or_the_end() {
    let out = lab(&["none"], b"i 1 r 1 1 0 8\r\nd\nnonsense\xff\nx\nd\n");
    assert_eq!(out.status.code(), Some(0));
    let text = String::from_utf8(out.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["ok", "1"]);
    assert!(lines[2].starts_with("E ") && lines.len() == 3, "{text}");
    // A line without an end does not fill the memory; the next one is a command again.
    let long = [&[b'i'; 10_000][..], b"\nd\n"].concat();
    let text = String::from_utf8(lab(&["none"], &long).stdout).expect("text");
    assert_eq!(text, "E the line is longer than 4096 bytes\n-\n");
}

#[test]
fn both_rule_sets_of_mq_deadline_and_tunables_from_the_command_line() {
    let rules = |args: &[&str]| {
        let args = [&["mq-deadline", "--set", "fifo_batch=3"], args].concat();
        String::from_utf8(lab(&args, b"reset\nget fifo_batch\nget prio_aging_expire\n").stdout).expect("text")
    };
    assert_eq!(rules(&[]), "R\nV fifo_batch 0 3\nV prio_aging_expire 0 10000\n");
    assert!(rules(&["--rules", "5.10"]).starts_with("R\nV fifo_batch 0 3\nE get prio_aging_expire: "));
}

#[test]
fn the_bounds_of_a_setting_are_printed_with_their_time_or_the_reason_why_there_is_none() {
    let bounds = |args: &[&str]| {
        let out = lab(&[args, &["--bound", "160ms"]].concat(), b"");
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    let text = bounds(&["mq-deadline"]);
    // 6143 others, two at the device and itself, 160 ms each.
    assert!(text.contains("a write behind all others: 6143 dispatches, 983.360 s"), "{text}");
    assert!(text.contains("two classes have requests: no bound: more than one class"), "{text}");
    assert!(!bounds(&["mq-deadline", "--rules", "5.10"]).contains("two classes"));
    let text = bounds(&["mq-deadline", "--set", "writes_starved=0"]);
    assert!(text.contains("a read, the oldest: no bound: writes_starved=0"), "{text}");
    assert!(bounds(&["bfq"]).contains("alone in its stream: no bound: slice_idle is not 0"));
    let text = bounds(&["bfq", "--set", "slice_idle=0", "--set", "max_budget=2048"]);
    assert!(text.contains("alone in its stream: 8193 sectors of its class, 1.760"), "{text}");
    assert!(bounds(&["kyber"]).contains("a read behind all others: 207 dispatches"));
    assert!(bounds(&["none"]).contains("any: 127 dispatches"));
    for name in mmc_sched::AnyPolicy::NAMES {
        let text = bounds(&[name]);
        assert!(text.starts_with("longest waits ") && text.lines().count() > 1, "{name}: {text}");
    }
}

#[test]
fn the_bounds_of_ftb_are_those_of_its_proof_and_follow_its_settings() {
    let bounds = |args: &[&str]| {
        let out = lab(&[&["ftb", "--bound", "160ms"], args].concat(), b"");
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    };
    let text = bounds(&["--set", "device_slots=2"]);
    // F3 with q = C = 160 ms, a slot of 400 ms and two slots in the device: 2 C + 2 (2q + 400 + C) + 4 C, and
    // 16 C + 16 (...) + 4 C.
    assert!(text.contains("one of two streams, alone in its stream: "), "{text}");
    assert!(text.contains("2.720 s charged to all before it goes, 2720 dispatches"), "{text}");
    assert!(text.contains("17.280 s charged to all before it goes"), "{text}");
    // 32 C + 2 (...) + 4 C for the last of sixteen.
    assert!(text.contains("7.520 s charged to all before it goes"), "{text}");
    assert!(text.contains("a flusher's, one of two beside a sync stream: "), "{text}");
    assert!(
        text.contains("requests come at the head: no bound: requests inserted at the head go first"),
        "{text}"
    );
    // A card that takes 32 has no write slots: 2 C + 2 (2q + C) + 34 C.
    let text = bounds(&["--set", "device_slots=32"]);
    assert!(text.contains("6.720 s charged to all before it goes, 6720 dispatches"), "{text}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_a_failure_and_a_reader_that_has_gone_is_none() {
    for args in [
        &["sched", "bfq", "--bound", "1s"][..],
        &["bench", "sched", "--sched", "none", "--depths", "1", "--runs", "1", "--requests", "1"],
        &["bench", "sched", "--sched", "none", "--depths", "1", "--runs", "1", "--requests", "1", "--table"],
    ] {
        let run = |to: Stdio| {
            let mut program = Command::new(env!("CARGO_BIN_EXE_mmc-lab"));
            program.args(args).stdout(to).output().expect("the program ends")
        };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let out = run(full.into());
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {error}");
        let begin = format!("mmc-lab {}: cannot write the output: ", args[0]);
        assert!(error.starts_with(&begin) && error.lines().count() == 1, "{args:?}: {error}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let out = run(writer.into());
        assert!(out.status.success() && out.stderr.is_empty(), "{args:?}: {out:?}");
    }
}

#[test]
fn wrong_usage_is_one_line_that_names_the_value_with_status_2() {
    for (args, named) in [
        (&["deadlin"][..], "deadlin"),
        (&["mq-deadline", "--rules", "6.1"], "6.1"),
        (&["mq-deadline/5.10", "--rules", "7.3"], "7.3"),
        (&["bfq", "--rules", "5.10"], "5.10"),
        (&["mq-deadline", "--set", "fifo_batsh=1"], "fifo_batsh"),
        (&["mq-deadline", "--set", "fifo_batch"], "fifo_batch"),
        (&["bfq", "--set", "slice_idle=x"], "slice_idle"),
        (&["none", "--set", "a=1"], "no tunables"),
        (&["none", "--bound", "soon"], "soon"),
        (&["none", "--bound", "0s"], "0s"),
    ] {
        let out = lab(args, b"");
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(named) && error.trim_end().lines().count() == 1, "{args:?}: {error}");
        assert!(error.starts_with("mmc-lab sched: "), "{error}");
        assert!(out.stdout.is_empty());
    }
}

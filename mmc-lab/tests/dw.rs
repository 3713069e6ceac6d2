//! `mmc-lab dw` and `mmc-lab bench dw`: what they answer, and what to nonsense.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn lab(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that does not read its input closes it.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child.wait_with_output().expect("the program ends")
}

fn said(args: &[&str], input: &str) -> String {
    let out = lab(args, input);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

fn json(args: &[&str], input: &str) -> Vec<serde_json::Value> {
    said(args, input).lines().map(|l| serde_json::from_str(l).expect("a JSON object a line")).collect()
}

#[test]
fn the_longest_timeout_at_four_clocks() {
    for (bus, div, ms) in [("50M", "0", 336), ("50M", "1", 672), ("50M", "63", 42_279), ("200M", "0", 84)] {
        let args = ["dw", "timeout", "--bus", bus, "--div", div, "--tmout", "0xffffffff"];
        let object = &json(&[&args[..], &["--json"]].concat(), "")[0];
        assert_eq!(object["data_ms"], ms, "{bus} {div}");
        assert_eq!((&object["data_clocks"], &object["response_clocks"]), (&0xff_ffff.into(), &255.into()));
        let text = said(&args, "");
        assert!(text.contains(&format!("{ms} ms")), "{text}");
        assert!(text.contains("does not fit 32 bits"), "the trap of 2018 is shown: {text}");
    }
    let text = said(&["dw", "timeout", "--bus", "400k", "--tmout", "0xff40"], "");
    assert!(text.contains("0.400 MHz") && !text.contains("beware"), "{text}");
}

#[test]
fn a_dump_is_decoded_in_any_notation() {
    let text = said(
        &["dw", "regs"],
        "# Linux: cat /sys/kernel/debug/mmc0/regs\n\
         STATUS:\t0x00000106\nRINTSTS:\t0x8a4\nCMD: a0003352\n\
         f000a04c: 20070008\n0x070 = 00c43081\nVERID: 5342270a\n",
    );
    for line in [
        "048 STATUS         00000106  at_or_below_tx_mark fifo_empty command_state=0 dat3_high response_index=0 fifo_words=0",
        "044 RINTSTS        000008a4  command_done rx_request data_crc fifo_run sdio=0",
        "04c FIFOTH         20070008  tx_mark=8 rx_mark=7 burst_code=2 (bursts of 8)",
        "06c VERID          5342270a  (version 2.70a, FIFO window at 0x200)",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
    }
    assert!(
        text.contains("index=18 response_expect check_crc data_expected auto_stop wait_prvdata"),
        "{text}"
    );
    assert!(text.contains("(32 bits of data, internal DMA)"), "{text}");
}

#[test]
fn words_alone_count_on_from_offset_0() {
    let objects =
        json(&["dw", "regs", "--json"], "02000010 00000001 0000003f\n00000000 00010001\n0x5c: 200\n");
    let names: Vec<&str> = objects.iter().map(|o| o["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["CTRL", "PWREN", "CLKDIV", "CLKSRC", "CLKENA", "TCBCNT"]);
    assert_eq!(objects[0]["fields"]["use_internal_dmac"], true);
    assert_eq!(objects[2]["remark"], "card clock is ciu / 126");
    assert_eq!(objects[5]["fields"]["bytes"], 512);
    assert_eq!(
        json(&["dw", "regs", "--json"], "0x0b4: 1")[0]["name"],
        serde_json::Value::Null,
        "no such register"
    );
}

/// What the driver promises of itself (`mmc-lab bench dw`), as targets of the project.
#[test]
fn a_transfer_costs_no_more_than_promised_and_the_bus_is_used() {
    let rows = json(&["bench", "dw", "--json"], "");
    assert_eq!(rows.len(), 11);
    let find = |what: &str| rows.iter().find(|r| r["transfer"] == what).expect(what);
    let read = find("4 KiB read, CMD23");
    assert!(read["register_accesses"].as_u64() <= Some(18), "{read}");
    assert_eq!(read["interrupts"], 2);
    assert_eq!(
        find("1 MiB read, CMD23")["register_accesses"],
        read["register_accesses"],
        "whatever the length"
    );
    let stopped = find("4 KiB read, auto-stop");
    assert!(stopped["register_accesses"].as_u64() <= Some(12), "{stopped}");
    assert_eq!(stopped["interrupts"], 1);
    let gap = &rows[8];
    assert_eq!(gap["prepared"]["descriptor_words"], 0, "{gap}");
    assert_eq!(gap["between_reads_of_64_kib"]["descriptor_words"], 64, "16 descriptors of 4 words: {gap}");
    for row in &rows[9..] {
        assert!(row["bus_share"].as_f64() >= Some(0.97) && row["bus_share"].as_f64() <= Some(1.0), "{row}");
    }
    assert!(said(&["dw", "bench"], "").starts_with("transfer "));
}

#[test]
fn nonsense_is_one_line_that_names_the_value() {
    for (args, input, status, named) in [
        (&["dw", "timeout", "--bus", "0"][..], "", 2, "'0'"),
        (&["dw", "timeout", "--bus", "5G"], "", 2, "'5G'"),
        (&["dw", "timeout", "--bus", "é"], "", 2, "'é'"),
        (&["dw", "timeout", "--bus", "50M", "--div", "256"], "", 2, "'256'"),
        (&["dw", "timeout", "--bus", "50M", "--tmout", "0x1ffffffff"], "", 2, "'0x1ffffffff'"),
        (&["dw", "regs"], "", 1, "no registers"),
        (&["dw", "regs"], "STATUS: 0\nSTATSU: 106\n", 1, "line 2: 'STATSU'"),
        (&["dw", "regs"], "STATUS: 1000000000", 1, "'1000000000'"),
        (&["dw", "regs"], "STATUS:", 1, "line 1: no value"),
        (&["dw", "regs"], "0x46: 0", 1, "'0x46'"),
        (&["dw", "regs"], "\u{0}\u{1}=\n", 1, "line 1"),
        (&["dw", "regs"], "\u{1b}[2J: 1\n", 1, r"'\u{1b}[2J' is not a register"),
        (&["dw", "regs"], "CMD: 1\u{7}\n", 1, r"'1\u{7}' is not a hexadecimal"),
    ] {
        let out = lab(args, input);
        let error = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {error}");
        assert!(error.contains(named) && error.trim_end().lines().count() == 1, "{args:?}: {error}");
        assert!(error.starts_with("mmc-lab dw: "), "{error}");
        assert!(!error.trim_end().contains(char::is_control), "{args:?}: {error:?}");
        assert!(out.stdout.is_empty());
    }
}

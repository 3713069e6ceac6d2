//! `mmc-lab decode`: every register of every card of the vectors, the ways to write bytes, and what is wrong with them.

use clap::Parser;
use mmc_lab::cli::decode::{Answer, answer};
use mmc_lab::cli::{Cli, Command};
use mmc_lab::decode::{Context, Kind, decode};
use mmc_proto::command::Dialect;
use mmc_proto::register::{MmcCsd, MmcCsdInfo};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The vectors are with the crate whose registers they are.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../mmc-proto/tests/data/cards")
}

fn load(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The command as the program runs it, without a process.
fn lab(args: &[&str], input: &str) -> Answer {
    let all = ["mmc-lab", "decode"].iter().chain(args);
    match Cli::try_parse_from(all).map(|cli| cli.command) {
        Ok(Command::Decode(args)) => answer(&args, &mut input.as_bytes()),
        Ok(other) => panic!("{other:?}"),
        Err(e) => Answer { out: String::new(), err: vec![e.to_string()], status: 2 },
    }
}

fn json_of(args: &[&str]) -> (Value, u8) {
    let got = lab(&[args, &["--json"]].concat(), "");
    assert!(
        got.out.ends_with("}\n") && got.out.lines().count() == 1,
        "one object, one line: {args:?} {got:?}"
    );
    (serde_json::from_str(&got.out).unwrap(), got.status)
}

fn same(have: &Value, want: &Value) -> bool {
    match (have.as_f64(), want.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-9,
        _ => have == want,
    }
}

#[test]
fn every_register_of_every_card_decodes_to_its_expected_values() {
    let (mut cards, mut registers) = (0, 0);
    for entry in std::fs::read_dir(vectors()).unwrap() {
        let path = entry.unwrap().path();
        let card = load(&path);
        let Some(of) = card["registers"].as_object() else { continue };
        cards += 1;
        let id = card["id"].as_str().unwrap();
        let flag = if card["kind"] == "sd" { "--sd" } else { "--mmc" };
        let rev = match (card["context"]["ext_csd_rev"].as_u64(), of.get("ext_csd")) {
            (Some(rev), _) => Some(rev.to_string()),
            (None, Some(whole)) => Some(format!("0x{}", &whole.as_str().unwrap()[384..386])),
            (None, None) => None,
        };
        for (register, text) in of {
            let kind = match register.as_str() {
                "ext_csd" => "ext-csd",
                "switch_status" => "switch",
                same => same,
            };
            let mut args = vec![kind, text.as_str().unwrap(), flag];
            if let Some(rev) = rev.as_deref() {
                args.extend(["--ext-csd-rev", rev]);
            }
            let (got, status) = json_of(&args);
            for (key, want) in card["expected"][register].as_object().unwrap() {
                let have = got.get(key).unwrap_or_else(|| panic!("{id} {register}: no field {key}"));
                assert!(same(have, want), "{id} {register} {key}: {have} is not {want}");
            }
            // A bad card is shown all the same, and it is said what is wrong with it.
            let kinds: &[&str] = match card["expect_error"].as_str() {
                None => &[],
                Some("crc") => &["crc"],
                Some("identity") => &["identity"],
                Some("crc_or_invalid") => &["crc", "field", "identity"],
                Some(other) => panic!("{id}: {other}"),
            };
            match got.get("error_kind") {
                None => assert!(kinds.is_empty() && status == 0, "{id} {register}: taken for a good one"),
                Some(kind) => {
                    assert!(kinds.contains(&kind.as_str().unwrap()), "{id} {register}: {got}");
                    assert_eq!(status, 1);
                }
            }
            registers += 1;
        }
    }
    assert!(cards >= 20 && registers >= 60, "only {registers} registers of {cards} cards");
}

#[test]
fn every_frame_says_its_name_and_every_malformed_one_its_fault() {
    let mut malformed = 0;
    for f in load(&vectors().join("frames.json")).as_array().unwrap() {
        let frame = f["frame"].as_str().unwrap_or_default();
        match f["type"].as_str().unwrap() {
            "command" => {
                let app = f["name"].as_str().unwrap().starts_with("ACMD");
                let dialect = match f["index"].as_u64().unwrap() {
                    1 => "--mmc",
                    58 => "--spi",
                    _ => "--sd",
                };
                let mut args = vec!["cmd", frame, dialect];
                args.extend(app.then_some("--app"));
                let (got, status) = json_of(&args);
                for key in ["type", "index", "arg", "frame", "crc7"] {
                    assert_eq!(got[key], f[key], "{got}");
                }
                assert!(
                    app || f["name"].as_str().unwrap().starts_with(got["name"].as_str().unwrap()),
                    "{got}"
                );
                assert!(status == 0 && got["text"].as_str().unwrap().ends_with(" ok"), "{got}");
            }
            "response48" => {
                let (got, status) = json_of(&["rsp", frame]);
                assert_eq!((&got["index"], &got["arg"], status), (&f["index"], &f["arg"], 0));
                assert_eq!((&got["type"], &got["crc7"]), (&json!("R1"), &f["stated_crc7"]));
            }
            "response136" => {
                let (got, status) = json_of(&["rsp", frame]);
                assert!(status == 0 && got["crc_state"] == "valid" && got["type"] == "R2", "{got}");
                assert!(got["register"].as_str().unwrap().starts_with(f["payload"].as_str().unwrap()));
            }
            "rpmb_frame" => {
                let (got, status) = json_of(&["rpmb", frame]);
                for key in ["request", "write_counter", "address", "block_count", "mac"] {
                    assert_eq!(got[key], f[key], "{key}");
                }
                assert!(status == 0 && got["data"] == "a5".repeat(256), "{got}");
            }
            "malformed" => {
                let (got, status) = json_of(&["cmd", frame]);
                assert_eq!((&got["error_kind"], status), (&f["expect_error"], 1), "{got}");
                malformed += 1;
            }
            _ => {}
        }
    }
    assert_eq!(malformed, 6);
}

const SCR: &str = "0235800300000000";

#[test]
fn bytes_are_taken_as_people_write_them() {
    let want = lab(&["scr", SCR], "");
    assert_eq!((want.status, want.err.len()), (0, 0), "{want:?}");
    for words in [
        vec!["02358003", "00000000"],
        vec!["0x02358003,", "0x00000000"],
        vec!["02 35 80 03 00 00 00 00"],
        vec!["0x2,0x35,0x80,0x3,0,0,0,0"],
        vec!["0x2358003", "0x0"],
    ] {
        assert_eq!(lab(&[&["scr"], &words[..]].concat(), ""), want, "{words:?}");
    }
    assert_eq!(lab(&["scr", "-"], "02358003 \n00000000\n"), want);
    assert_eq!(lab(&["r1", "0x900"], ""), lab(&["r1", "00000900"], ""));
}

#[test]
fn the_text_is_for_people() {
    let text = lab(&["cmd", "52 00 00 20 00 05"], "").out;
    assert!(text.starts_with("CMD18 READ_MULTIPLE_BLOCK arg=0x00002000 crc=0x02 ok\n"), "{text}");
    assert!(text.contains("taken for an SD card's"), "no silent default: {text}");
    let text = lab(&["csd", "--sd", "400e00325b5900003b377f800a40400d"], "").out;
    assert!(text.contains("capacity_bytes      7948206080 (7580 MiB)"), "{text}");
    let text = lab(&["r1", "0x04000900", "--sd"], "").out;
    assert!(text.starts_with("0x04000900 tran WP_VIOLATION READY_FOR_DATA\n"), "{text}");
    let text = lab(&["cid", "--mmc", "1501004d3847314743035eed272750ff"], "").out;
    assert!(text.contains("mdt_year       1997") && text.contains("--ext-csd-rev"), "{text}");
    let text =
        lab(&["switch", &("00c880018001800180018001800300000100".to_owned() + &"0".repeat(92))], "").out;
    assert!(text.contains("support            g1=8003"), "{text}");
}

#[test]
fn responses_are_read_by_their_command_and_dialect() {
    let (r3, _) = json_of(&["rsp", "3fc0ff8000ff"]);
    assert_eq!((&r3["type"], &r3["ccs"], &r3["min_mv"]), (&json!("R3"), &json!(1), &json!(2700)));
    let r6 = mmc_proto::frame::ResponseFrame { index: 3, word: 0xaaaa_0520 }.emit();
    let r6 = r6.map(|b| format!("{b:02x}")).concat();
    let (got, _) = json_of(&["rsp", &r6]);
    assert_eq!((&got["type"], &got["rca"], &got["state"]), (&json!("R6"), &json!(0xaaaa), &json!("ident")));
    let (got, _) = json_of(&["rsp", &r6, "--mmc"]);
    assert_eq!(got["type"], "R1", "an MMC is given its address");
    let (got, _) = json_of(&["rsp", "--spi", "01 00 00 01 aa"]);
    assert_eq!((&got["type"], &got["idle"], &got["arg"]), (&json!("R3/R7"), &json!(1), &json!("000001aa")));
    let (got, status) = json_of(&["r1", "--spi", "ff"]);
    assert!(status == 1 && got["error_field"] == "R1", "{got}");
    let (got, status) = json_of(&["rsp", "--spi", "00 01"]);
    assert!(status == 0 && got["r2_locked"] == 1, "{got}");
}

#[test]
fn sdio_tables_are_read() {
    let (got, status) =
        json_of(&["cis", "21 02 0c 00 22 04 00 00 02 32 20 04 df 02 29 91 15 05 01 00 4d 72 00 ff"]);
    assert_eq!(status, 0, "{got}");
    assert_eq!((&got["manfid_vendor"], &got["max_block_bytes"]), (&json!(0x2df), &json!(512)));
    assert_eq!((&got["vers_1"], &got["tuples"][0]), (&json!(["Mr"]), &json!("21:0c00")));
    let (got, status) = json_of(&["cis", "21 02 0c 00 20 04 df 02"]);
    assert!(status == 1 && got["error_field"] == "tuple 0x20" && got["funcid"] == 0x0c, "{got}");
    let cccr = format!("4300000000000002{}{}", "00001000", "0".repeat(22));
    let (got, status) = json_of(&["cccr", &cccr]);
    assert_eq!((&got["cis"], &got["lines"], status), (&json!(0x1000), &json!(4), 0), "{got}");
}

#[test]
fn what_is_wrong_is_said_and_the_rest_is_shown() {
    let csd = "400e00325b5900003b377f800a40400d";
    // One digit, one byte, half of it, all of it missing; too much; not hexadecimal.
    for (hex, kind, field, shown) in [
        (&csd[..31], "hex", "input", true),
        (&csd[..30], "length", "length", true),
        (&csd[..16], "length", "length", true),
        ("", "hex", "input", false),
        (&format!("{csd}00"), "length", "length", true),
        ("400e00325bxx00003b377f800a40400d", "hex", "input", true),
        ("zz", "hex", "input", false),
        ("400e00325b5900003b377f800a40400f", "crc", "CRC7", true),
        ("c00e00325b5900003b377f800a404000", "field", "CSD_STRUCTURE", true),
        ("400e00325b5800003b377f800a404000", "field", "READ_BL_LEN", true),
        ("400e00005b5900003b377f800a404000", "field", "TRAN_SPEED", true),
        ("400e00325b5900003b377f800b404000", "field", "WRITE_BL_LEN", true),
    ] {
        let (got, status) = json_of(&["csd", "--sd", hex]);
        assert_eq!((&got["error_kind"], &got["error_field"]), (&json!(kind), &json!(field)), "{hex}: {got}");
        assert_eq!(status, 1);
        assert_eq!(got.get("taac") == Some(&json!(14)), shown, "{hex}: {got}");
        let text = lab(&["csd", "--sd", hex], "");
        assert!(text.status == 1 && text.err[0].contains(field), "{text:?}");
    }
    // Without its last byte a register has all fields but the CRC; with half of it no size is made up.
    let (got, _) = json_of(&["csd", "--sd", &csd[..30]]);
    assert!(got["capacity_bytes"] == 7_948_206_080_u64 && got.get("crc7").is_none(), "{got}");
    let (got, _) = json_of(&["csd", "--sd", &csd[..16]]);
    assert!(got.get("capacity_bytes").is_none() && got["ccc"] == 0x5b5, "{got}");
    // Fields that contradict each other, and reserved codes, of other registers.
    for (args, field) in [
        (["scr", "0035800300000000", "--sd"], "SD_SPEC"),
        (["scr", "0235040000000000", "--sd"], "SD_SPEC3"),
        (["scr", "0235818300000000", "--sd"], "physical layer version"),
        (["ocr", "a0ff8080", "--mmc"], "access mode"),
        (["r1", "00001400", "--sd"], "CURRENT_STATE"),
    ] {
        let (got, status) = json_of(&args);
        assert!(status == 1 && got["error_field"] == field, "{args:?}: {got}");
    }
    let am62 = load(&vectors().join("emmc-am62x-51-cmdq-on.json"));
    let ext_csd = am62["registers"]["ext_csd"].as_str().unwrap();
    let mut queued = ext_csd.to_owned();
    queued.replace_range(2 * 308..2 * 309, "00");
    assert_eq!(json_of(&["ext-csd", &queued]).0["error_field"], "CMDQ_MODE_EN");
    let turned: String = (0..512).rev().map(|at| &ext_csd[2 * at..2 * at + 2]).collect::<Vec<_>>().concat();
    let (got, status) = json_of(&["ext-csd", &turned]);
    assert!(status == 1 && got["note"].as_str().unwrap().contains("byte 0 goes first"), "{got}");
}

#[test]
fn wrong_usage_is_refused_with_nothing_on_the_output() {
    for args in [
        &["cid"][..],
        &["what", "00"],
        &["scr", SCR, "--mmc"],
        &["ext-csd", "00", "--sd"],
        &["cid", "00", "--sd", "--mmc"],
        &["cid", "00", "--sd", "--ext-csd-rev", "8"],
        &["cid", "00", "--mmc", "--ext-csd-rev", "256"],
        &["cid", "00", "--app"],
        &[],
    ] {
        let got = lab(args, "");
        assert!(got.status == 2 && got.out.is_empty() && !got.err.is_empty(), "{args:?}: {got:?}");
    }
    for args in
        [&["/no/such/place"][..], &["cid", "/no/such/place"], &["cid", "Cargo.toml"], &["csd", "nofile"]]
    {
        let got = lab(args, "");
        assert!(got.status == 1 && got.out.is_empty(), "{args:?}: {got:?}");
    }
    assert_eq!(
        lab(&["cid", "-"], &"0".repeat(1 << 21)).status,
        1,
        "input without end is not read to its end"
    );
}

/// A directory that goes away with the value.
struct Folder(PathBuf);

impl Folder {
    fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("mmc-lab-decode-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Self(path)
    }
    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_card_directory_is_decoded_whole() {
    let (cid, csd) = ("1501004d3847314743035eed272750ff\n", "d02701320f5903fff6dbffef8e40400d\n");
    let emmc = Folder::with(
        "emmc",
        &[("type", "MMC\n"), ("rev", "0x6\n"), ("cid", cid), ("csd", csd), ("name", "x")],
    );
    let (got, status) = json_of(&[emmc.path()]);
    assert_eq!(status, 0, "{got}");
    assert_eq!((&got["cid"]["mdt_year"], &got["cid"]["pnm"]), (&json!(2013), &json!("M8G1GC")));
    assert_eq!(got["csd"]["capacity_from_ext_csd"], true);
    assert_eq!(got.as_object().unwrap().len(), 3, "two registers and `schema`");
    let (only, _) = json_of(&["cid", emmc.path()]);
    assert_eq!((&only["cid"], only.as_object().unwrap().len()), (&got["cid"], 2));

    // Without `type` the files tell; what is wrong with one register does not hide the others.
    let sd = Folder::with("sd", &[("scr", SCR), ("ocr", "0x00000000\n"), ("cid", "nonsense\n")]);
    let got = lab(&[sd.path()], "");
    assert_eq!(got.status, 1);
    assert!(got.out.contains("scr\n  structure") && got.out.contains("3.0X"), "{}", got.out);
    assert!(got.err.iter().any(|e| e.starts_with("ocr: OCR")), "{:?}", got.err);
    assert!(got.err.iter().any(|e| e.starts_with("cid: input: 'n'")), "{:?}", got.err);

    // The oldest MMCs say in their CSD that the CID is laid out otherwise.
    let csd = MmcCsdInfo { spec_vers: 1, ..MmcCsd::new([0x26; 16]).info() }.emit().emit();
    let csd: String = csd.iter().map(|b| format!("{b:02x}")).collect();
    let old =
        Folder::with("old", &[("type", "MMC"), ("cid", "0102034142434445464723 5eed0173 00"), ("csd", &csd)]);
    let (got, _) = json_of(&["cid", old.path()]);
    assert_eq!((&got["cid"]["layout"], &got["cid"]["pnm"]), (&json!("mmc_v1"), &json!("ABCDEFG")));
    assert_eq!((&got["cid"]["mdt_year"], &got["cid"]["hwrev"]), (&json!(2000), &json!(2)));

    let unknown = Folder::with("unknown", &[("cid", cid)]);
    assert!(lab(&[unknown.path()], "").err[0].contains("add --sd or --mmc"));
    assert_eq!(json_of(&[unknown.path(), "--mmc"]).0["cid"]["mdt_year"], 1997);
    let empty = Folder::with("empty", &[]);
    assert!(lab(&[empty.path()], "").err[0].contains("no register is there"));
    assert_eq!(lab(&[empty.path(), "00"], "").status, 2);
}

/// Whoever names a directory gets an answer, whatever lies in it.
#[test]
#[cfg(unix)]
fn a_directory_with_what_is_no_register_is_no_trap() {
    let long = "0".repeat((1 << 20) + 1);
    let cid = "1501004d3847314743035eed272750ff\n";
    let trap = Folder::with("trap", &[("elsewhere", cid), ("ssr", &long)]);
    let at = |name: &str| trap.0.join(name);
    for fifo in ["csd", "type"] {
        assert!(std::process::Command::new("mkfifo").arg(at(fifo)).status().unwrap().success());
    }
    std::os::unix::fs::symlink("/dev/zero", at("ocr")).unwrap();
    std::os::unix::fs::symlink("elsewhere", at("cid")).unwrap();
    std::fs::create_dir(at("scr")).unwrap();
    let got = lab(&[trap.path(), "--mmc"], "");
    assert_eq!(got.status, 1);
    assert!(got.out.contains("M8G1GC"), "a link to a file is followed: {}", got.out);
    for (name, why) in [("csd", "regular"), ("ocr", "regular"), ("scr", "regular"), ("ssr", "1 MiB")] {
        let line = got.err.iter().find(|e| e.starts_with(&format!("{name}: {name}: "))).expect(name);
        assert!(line.contains("cannot be read") && line.contains(why), "{line}");
    }
}

#[test]
fn the_program_prints_and_exits_as_it_says() {
    let run = |args: &[&str]| {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_mmc-lab")).arg("decode").args(args).output();
        let out = out.unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (status, out, err) = run(&["scr", SCR, "--json"]);
    assert!(status == Some(0) && out.contains("\"sd_spec3\":1") && err.is_empty(), "{out}{err}");
    let (status, out, err) = run(&["cid", "--sd", "0000000000000000000000375600ea00"]);
    assert!(status == Some(1) && out.contains("psn            14166"), "{out}");
    assert_eq!(
        err,
        "mmc-lab decode: cid: MID, PNM: the card has no identity: manufacturer 0 and an empty product name\n"
    );
    let (status, out, err) = run(&["nothing", "00"]);
    assert!(status == Some(2) && out.is_empty() && err.lines().count() == 1, "{out}{err}");
}

proptest! {
    /// Any bytes of any length as anything: an answer, and a fault wherever the length is not right.
    #[test]
    fn anything_can_be_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in 0_usize..20) {
        for kind in Kind::ALL {
            for dialect in [Dialect::Sd, Dialect::Mmc, Dialect::Spi] {
                let context = Context { dialect, app: cut % 2 == 1, ext_csd_rev: bytes.first().copied(), mmc_v1: cut % 3 == 0 };
                for part in [&bytes[..], &bytes[..cut.min(bytes.len())]] {
                    let d = decode(kind, part, &context);
                    let right = kind.len(dialect, part.len()).is_none_or(|len| len == part.len());
                    prop_assert!(right || d.faults[0].kind == "length");
                }
            }
        }
    }
}

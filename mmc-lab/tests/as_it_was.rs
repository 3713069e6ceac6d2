//! What commands print, their JSON and their pages are what they were when the files of `data/as_it_was` were written: a
//! digest for each paragraph, line or section. Real time and memory are left out.
//!
//! A change that is meant shows here as lines that differ. What a page must say, and whether people can use it, is looked
//! at in `report.rs` and in a browser (`ci/browser`). `MMC_LAB_WRITE_RUNS=1 cargo test -p mmc-lab --test as_it_was` writes
//! the files anew. Another processor or library of mathematics may round a logarithm otherwise.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

struct Record {
    name: &'static str,
    dir: PathBuf,
    text: String,
}

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |d, b| (d ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Without what is different each time.
fn steady(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["real_s", "resident_kib"] {
                map.remove(key);
            }
            map.values_mut().for_each(steady);
        }
        Value::Array(all) => all.iter_mut().for_each(steady),
        _ => {}
    }
}

/// A line without memory, the real time of a soak, or the program's version.
fn lasting(line: &&str) -> bool {
    ![
        "<footer>Written by mmc-lab ",
        "KiB resident",
        " virtual days, ",
        "<p class=\"soft\">mq-deadline on card soak, ",
    ]
    .iter()
    .any(|it| line.contains(it))
}

impl Record {
    /// In a directory of its own with copies of these files: what is said may name them.
    fn new(name: &'static str, files: &[&str]) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("as_it_was").join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a scratch directory");
        for file in files {
            std::fs::copy(data().join(file), dir.join(file)).expect("the file is there");
        }
        Self { name, dir, text: String::new() }
    }
    fn run(&self, args: &[&str], input: &str) -> (String, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mmc-lab"))
            .args(args)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        // It may end before it has read all.
        let _ = std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), input.as_bytes());
        let out = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (text(out.stdout), format!("{:?} {}", out.status.code(), text(out.stderr)))
    }
    /// One piece: where it is from, what it begins with, its digest.
    fn note(&mut self, from: &str, piece: &str) {
        let begins: String =
            piece.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(50).collect();
        writeln!(self.text, "{from}: {:016x} {begins}", digest(piece)).expect("a text takes anything");
    }
    /// The text of a command, paragraph by paragraph, and what it says beside it.
    fn says(&mut self, args: &[&str], input: &str) -> &mut Self {
        let (out, beside) = self.run(args, input);
        writeln!(self.text, "# {}", args.join(" ")).expect("a text takes anything");
        let out: Vec<&str> = out.lines().filter(lasting).collect();
        out.join("\n").split("\n\n").for_each(|piece| self.note("text", piece));
        self.note("beside", &beside);
        self
    }
    /// Its JSON, line by line, as well.
    fn and_json(&mut self, args: &[&str]) -> &mut Self {
        self.says(args, "");
        let (out, _) = self.run(&[args, &["--json"]].concat(), "");
        for line in out.lines() {
            let mut value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            steady(&mut value);
            self.note("json", &value.to_string());
        }
        self
    }
    /// And its page, section by section.
    fn and_page(&mut self, args: &[&str]) -> &mut Self {
        self.and_json(args);
        self.run(&[args, &["--out", "page.html"]].concat(), "");
        let page = std::fs::read_to_string(self.dir.join("page.html")).expect("the page");
        let page: Vec<&str> = page.lines().filter(lasting).collect();
        page.join("\n").split("<section").for_each(|piece| self.note("page", piece));
        self
    }
    fn is_as_it_was(&self) {
        let path = data().join(format!("as_it_was/{}.txt", self.name));
        if std::env::var_os("MMC_LAB_WRITE_RUNS").is_some() {
            std::fs::write(&path, &self.text).expect("tests/data can be written");
        }
        let was = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (number, (was, is)) in was.lines().zip(self.text.lines()).enumerate() {
            assert_eq!(was, is, "the first difference is in line {} of {}", number + 1, path.display());
        }
        assert_eq!(was.len(), self.text.len(), "more or less than in {}", path.display());
    }
}

#[test]
fn explain_is_as_it_was() {
    let [mq, bfq, log] = ["bv510-mq.ftrace.txt.gz", "bv510-bfq.ftrace.txt.gz", "bv510-mq.dmesg.txt.gz"];
    let [events, perf] = ["mmc-events.ftrace.txt", "loop618-mq.perf.txt.gz"];
    let [parsed, binary] = ["m612-mq.blkparse.txt.gz", "bv510-mq.blktrace.0.gz"];
    Record::new("explain", &[mq, bfq, log, events, perf, parsed, binary])
        .and_page(&["explain", mq, "--dmesg", log])
        .and_page(&["explain", bfq])
        .and_page(&["explain", events])
        .and_json(&["explain", perf])
        .and_json(&["explain", parsed])
        .and_json(&["explain", binary])
        .is_as_it_was();
}

#[test]
fn replay_is_as_it_was() {
    let [mv, b612, m510] = ["mv510-mq.ftrace.txt.gz", "b612-mq.ftrace.txt.gz", "m510-mq.ftrace.txt.gz"];
    Record::new("replay", &[mv, b612, m510])
        .and_page(&["replay", mv, "--sched", "mq-deadline,bfq,ftb"])
        .and_json(&["replay", m510])
        .and_page(&["replay", b612, "--verify-order", "--rules", "7.3"])
        .is_as_it_was();
}

#[test]
fn tune_is_as_it_was() {
    let mv = "mv510-mq.ftrace.txt.gz";
    Record::new("tune", &[mv])
        .and_page(&["tune", mv, "--class", "journal", "--sched", "mq-deadline:fifo_batch=1"])
        .is_as_it_was();
}

#[test]
fn csv_and_fit_are_as_they_were() {
    let [mq, bfq, log] = ["bv510-mq.bonnie.out", "bv510-bfq.bonnie.out", "bv510-mq.device.log.gz"];
    let [trace, fio] = ["mv510-mq.ftrace.txt.gz", "fio-3.33.json.gz"];
    Record::new("csv-fit", &[mq, bfq, log, trace, fio])
        .and_page(&["csv", mq, bfq])
        .and_page(&["card", "fit", log])
        .and_json(&["card", "fit", trace])
        .and_json(&["card", "fit", fio])
        .is_as_it_was();
}

#[test]
fn compare_is_as_it_was() {
    let small = "scenarios-small.json";
    Record::new("compare", &[small])
        .and_page(&["compare", "--scenarios", small, "--seeds", "1"])
        .is_as_it_was();
}

#[test]
fn simulate_and_the_zoo_are_as_they_were() {
    let mut record = Record::new("card", &[]);
    record
        .and_page(&["card", "simulate", "--blocks", "40000"])
        .and_page(&["card", "simulate", "--workload", "camera", "--rate", "20000000", "--blocks", "4000"])
        .and_json(&["card", "list"]);
    for card in ["slow2018", "a1", "fake-64gb", "soak", "soak-emmc", "aaru-emmc51-62gb", "sdio-wlan"] {
        record.and_json(&["card", "show", card]);
    }
    record.is_as_it_was();
}

#[test]
fn soak_is_as_it_was() {
    let little =
        ["soak", "--requests", "1000", "--faults", "40", "--cuts", "1", "--swaps", "1", "--days", "1"];
    let emmc = ["--card", "soak-emmc", "--sched", "bfq", "--seed", "7"];
    Record::new("soak", &[]).and_page(&little).and_json(&[&little[..], &emmc].concat()).is_as_it_was();
}

#[test]
fn bonnie_is_as_it_was() {
    let size = ["bonnie", "--size", "32M", "--ram", "128M"];
    let beside = ["--hung", "500ms", "--sched", "bfq,mq-deadline", "--beside", "typing,camera"];
    Record::new("bonnie", &[]).and_page(&[&size[..], &beside].concat()).is_as_it_was();
}

#[test]
fn verify_is_as_it_was() {
    let mut record = Record::new("verify", &[]);
    // A disk of 512 sectors: the upper half holds the lower one's, one word is wrong, one sector empty.
    std::fs::write(record.dir.join("disk.img"), [0; 0x4_0000]).expect("a disk");
    record.run(&["verify", "--write", "--seed", "7", "disk.img"], "");
    let mut disk = std::fs::read(record.dir.join("disk.img")).expect("a disk");
    disk.copy_within(..0x2_0000, 0x2_0000);
    disk[1000] ^= 1;
    disk[0x1_0000..0x1_0200].fill(0);
    std::fs::write(record.dir.join("disk.img"), disk).expect("a disk");
    record.and_page(&["verify", "disk.img"]).is_as_it_was();
}

#[test]
fn words_of_the_bench_are_as_they_were() {
    let csd = "400e00325b590000edc87f800a404055";
    let scr = "0235800100000000";
    Record::new("words", &[])
        .and_json(&["decode", "csd", csd])
        .and_json(&["decode", "scr", scr])
        .and_json(&["decode", "cid", "035344534331364780fa1b4c6b010a00"])
        .and_json(&["decode", "cmd", "510000000055"])
        .says(&["decode", "csd", "12"], "")
        .and_json(&["dw", "timeout", "--bus", "50000000"])
        .says(
            &["dw", "regs"],
            "STATUS: 106\nRINTSTS: 8a4\nCTRL: 2000010\nIDSTS: 102\nCMD: a0002352\n0x900: 1\n",
        )
        .and_json(&["decode", "rsp", "0d00000900db"])
        .says(&["sched", "mq-deadline", "--bound", "10ms"], "")
        .says(&["sched", "bfq", "--bound", "10ms"], "")
        .says(&["sched", "ftb", "--bound", "10ms"], "")
        .is_as_it_was();
}

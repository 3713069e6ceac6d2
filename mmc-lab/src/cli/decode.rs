//! `mmc-lab decode`: what registers, commands and responses say.

use crate::decode::{Context, Decoded, Kind, decode_text, sysfs};
use crate::units::format_size;
use mmc_proto::command::Dialect;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

/// The longest text that is read from the standard input.
const INPUT: u64 = 1 << 20;

/// What registers, commands and responses of a card say
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "KIND is one of
  cid csd ocr r1 cmd rsp         of an SD card, or with --mmc of an MMC or eMMC, or with --spi of one in SPI mode
  scr ssr switch                 SD: configuration, status, and the answer to CMD6
  ext-csd rpmb                   eMMC: EXT_CSD, byte 0 first; a frame of the protected partition
  cccr cis                       SDIO: control registers and tuples
or a directory as /sys/block/mmcblk0/device: everything in it is decoded.

HEX is one string or words, apart by spaces or commas, with or without 0x; - reads it from the standard input.

Examples:
  mmc-lab decode csd 400e00325b5900003b377f800a40400d
  mmc-lab decode cid --mmc --ext-csd-rev 6 1501004d3847314743035eed272750ff
  mmc-lab decode r1 0x900
  mmc-lab decode cmd 48 00 00 01 aa 87
  mmc-lab decode ext-csd --json - < /sys/kernel/debug/mmc0/mmc0:0001/ext_csd
  mmc-lab decode /sys/block/mmcblk0/device

With --json one flat object, with `error`, `error_kind`, `error_field` and `note` where there is something to say;
of a directory one object with such an object for each register.

Exit status: 0 done, 1 something is wrong with the bytes (which field and why goes to the standard error, the rest is
shown), 2 wrong usage.")]
pub struct Args {
    /// What the bytes are, or a card's directory in sysfs
    #[arg(value_name = "KIND")]
    pub what: String,
    /// The bytes in hexadecimal, - for the standard input, or a directory to take this register from
    #[arg(value_name = "HEX")]
    pub hex: Vec<String>,
    /// Of an SD card (what is taken if nothing else is said)
    #[arg(long, conflicts_with_all = ["mmc", "spi"])]
    pub sd: bool,
    /// Of an MMC or eMMC
    #[arg(long, conflicts_with = "spi")]
    pub mmc: bool,
    /// Of a card in SPI mode
    #[arg(long)]
    pub spi: bool,
    /// The command follows CMD55
    #[arg(long)]
    pub app: bool,
    /// Byte 192 of the EXT_CSD, for the year in the CID of an MMC
    #[arg(long, value_name = "N", value_parser = revision)]
    pub ext_csd_rev: Option<u8>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn revision(text: &str) -> Result<u8, String> {
    sysfs::number(text).ok_or_else(|| "a number from 0 to 255 is wanted".into())
}

/// What the command has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// For the standard output.
    pub out: String,
    /// For the standard error, a line each.
    pub err: Vec<String>,
    /// The exit status.
    pub status: u8,
}

impl Answer {
    fn usage(text: String) -> Self {
        Self { err: vec![format!("{text}; see --help")], status: 2, ..Self::default() }
    }
    fn bad(text: String) -> Self {
        Self { err: vec![text], status: 1, ..Self::default() }
    }
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let answer = answer(args, &mut std::io::stdin().lock());
    let mut status = ExitCode::SUCCESS;
    for line in &answer.err {
        status = crate::output::fail("decode", line, answer.status);
    }
    crate::output::print("decode", &answer.out, status)
}

/// The same without a process: `input` is the standard input.
#[must_use]
pub fn answer(args: &Args, input: &mut dyn Read) -> Answer {
    let dialect = match (args.sd, args.mmc, args.spi) {
        (_, true, _) => Some(Dialect::Mmc),
        (_, _, true) => Some(Dialect::Spi),
        (true, ..) => Some(Dialect::Sd),
        _ => None,
    };
    let Some(kind) = Kind::by_name(&args.what) else {
        let path = Path::new(&args.what);
        if path.is_dir() && args.hex.is_empty() {
            return directory(path, None, dialect, args);
        }
        if path.is_dir() {
            return Answer::usage(format!("nothing goes behind the directory '{}'", args.what));
        }
        if args.what.contains('/') {
            return Answer::bad(format!("'{}' is no directory", args.what));
        }
        let kinds = Kind::ALL.map(Kind::name).join(", ");
        return Answer::usage(format!("'{}' is neither a directory nor one of {kinds}", args.what));
    };
    // Only an MMC has an EXT_CSD.
    let implied = (args.ext_csd_rev.is_some() || !kind.exists_on(Dialect::Sd)).then_some(Dialect::Mmc);
    let context = Context {
        dialect: dialect.or(implied).unwrap_or_default(),
        app: args.app,
        ext_csd_rev: args.ext_csd_rev,
        mmc_v1: false,
    };
    if !kind.exists_on(context.dialect) {
        let whose = if context.dialect == Dialect::Mmc { "SD" } else { "MMC" };
        return Answer::usage(format!("only {whose} cards have {}", kind.name()));
    }
    if args.app && kind != Kind::Cmd {
        return Answer::usage("--app goes with cmd".into());
    }
    if args.ext_csd_rev.is_some() && context.dialect != Dialect::Mmc {
        return Answer::usage("--ext-csd-rev goes with an MMC: other cards have no EXT_CSD".into());
    }
    let text = match args.hex.as_slice() {
        [] => return Answer::usage(format!("no bytes: write them behind {}", kind.name())),
        [one] if one == "-" => match stdin(input) {
            Ok(text) => text,
            Err(e) => return Answer::bad(e),
        },
        [one] if Path::new(one).is_dir() => return directory(Path::new(one), Some(kind), dialect, args),
        [one] if Path::new(one).is_file() => {
            return Answer::bad(format!("'{one}' is a file: mmc-lab decode {} - < '{one}'", kind.name()));
        }
        [one] if one.contains('/') => {
            return Answer::bad(format!("'{one}' is neither hexadecimal nor a directory"));
        }
        words => words.join(" "),
    };
    let mut decoded = decode_text(kind, &text, &context);
    let matters = matches!(kind, Kind::Cid | Kind::Csd | Kind::Ocr | Kind::R1 | Kind::Cmd | Kind::Rsp);
    if matters && dialect.or(implied).is_none() {
        decoded.notes.push("taken for an SD card's; --mmc or --spi reads it otherwise".into());
    }
    let out = match (args.json, decoded.fields.is_empty()) {
        (true, _) => crate::output::json(decoded.to_json()),
        // A note on nothing is noise.
        (false, true) => String::new(),
        (false, false) => table(&decoded, ""),
    };
    let err: Vec<String> = decoded.faults.iter().map(|f| format!("{}: {f}", kind.name())).collect();
    Answer { out, status: u8::from(!err.is_empty()), err }
}

fn stdin(input: &mut dyn Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    input
        .take(INPUT + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| format!("cannot read the standard input: {e}"))?;
    if bytes.len() as u64 > INPUT {
        return Err(format!(
            "more than {} on the standard input: no register is that long",
            format_size(INPUT)
        ));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn directory(path: &Path, only: Option<Kind>, dialect: Option<Dialect>, args: &Args) -> Answer {
    if args.app {
        return Answer::usage("--app goes with cmd".into());
    }
    let registers = match sysfs::directory(path, only, dialect, args.ext_csd_rev) {
        Ok(registers) => registers,
        Err(e) => return Answer::bad(e),
    };
    let faults = |(name, decoded): &(&str, Decoded)| -> Vec<String> {
        decoded.faults.iter().map(|f| format!("{name}: {f}")).collect()
    };
    let err: Vec<String> = registers.iter().flat_map(faults).collect();
    let out = if args.json {
        let object: Map<String, Value> =
            registers.iter().map(|(name, decoded)| ((*name).into(), decoded.to_json())).collect();
        crate::output::json(Value::Object(object))
    } else {
        registers
            .iter()
            .fold(String::new(), |text, (name, decoded)| text + name + "\n" + &table(decoded, "  "))
    };
    Answer { out, status: u8::from(!err.is_empty()), err }
}

/// A line a field, each with `indent` in front.
fn table(decoded: &Decoded, indent: &str) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    if let Some(text) = decoded.fields.get("text").and_then(Value::as_str) {
        let _ = writeln!(out, "{indent}{text}");
    }
    let rows = decoded.fields.iter().filter(|(name, _)| *name != "text");
    let widest = rows.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        let _ = writeln!(out, "{indent}{name:<widest$}  {}", shown(name, value));
    }
    for note in &decoded.notes {
        let _ = writeln!(out, "{indent}# {note}");
    }
    out
}

fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(|v| shown(name, v)).collect::<Vec<_>>().join(" "),
        Value::Object(map) => {
            map.iter().map(|(k, v)| format!("{k}={}", shown(k, v))).collect::<Vec<_>>().join(" ")
        }
        Value::Number(n) => match n.as_u64() {
            Some(bytes) if name.ends_with("_bytes") && bytes >= 1024 => {
                format!("{bytes} ({})", format_size(bytes))
            }
            _ => n.to_string(),
        },
        Value::Bool(_) => value.to_string(),
    }
}

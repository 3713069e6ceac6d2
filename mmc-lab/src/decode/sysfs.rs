//! A card's directory in sysfs, such as `/sys/block/mmcblk0/device`.

use super::{Context, Decoded, Fault, Kind, decode_text, parse_hex};
use mmc_proto::command::Dialect;
use mmc_proto::register::{ExtCsd, MmcCsd, ext_csd};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Files that hold registers. An `ext_csd` is in debugfs on a real machine; copies of both are often kept together.
const FILES: [(&str, Kind); 6] = [
    ("cid", Kind::Cid),
    ("csd", Kind::Csd),
    ("scr", Kind::Scr),
    ("ssr", Kind::Ssr),
    ("ocr", Kind::Ocr),
    ("ext_csd", Kind::ExtCsd),
];

/// The longest file that is read; no register is as long.
const LONGEST: u64 = 1 << 20;

/// The text of a regular file, or of one that a symbolic link leads to; anything else may never end, or never begin.
fn text(path: &Path) -> io::Result<String> {
    // Looked at before it is opened: that alone waits for a writer of a FIFO.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other("it is longer than 1 MiB, as no register is"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Every register in the directory at `path`, or the one asked for, by the name of its file.
///
/// What the card is follows from `dialect`, else from the file `type`, else from which files there are. The
/// revision of the EXT_CSD follows from `ext_csd_rev`, else from the file `ext_csd`, else from `rev`; the
/// layout of an MMC's CID from its CSD.
///
/// # Errors
/// No register is there, or nothing says what the card is.
pub fn directory(
    path: &Path,
    only: Option<Kind>,
    dialect: Option<Dialect>,
    ext_csd_rev: Option<u8>,
) -> Result<Vec<(&'static str, Decoded)>, String> {
    let read = |name: &str| text(&path.join(name));
    let found: Vec<(&'static str, Kind, io::Result<String>)> = FILES
        .iter()
        .filter(|(_, kind)| only.is_none_or(|only| only == *kind))
        .map(|(name, kind)| (*name, *kind, read(name)))
        .filter(|(_, _, text)| !matches!(text, Err(e) if e.kind() == io::ErrorKind::NotFound))
        .collect();
    if found.is_empty() {
        let names = match only {
            Some(kind) => FILES.iter().filter(|f| f.1 == kind).map(|f| f.0).collect::<Vec<_>>().join(", "),
            None => FILES.map(|f| f.0).join(", "),
        };
        return Err(format!("{}: no register is there (looked for {names})", path.display()));
    }
    let dialect = match dialect.or_else(|| guess(path, &read)) {
        Some(dialect) => dialect,
        None => {
            return Err(format!("{}: nothing says what card it is: add --sd or --mmc", path.display()));
        }
    };
    let rev = ext_csd_rev.or_else(|| {
        let whole = read("ext_csd").ok().map(|text| parse_hex(Kind::ExtCsd, Dialect::Mmc, &text).0);
        match whole.map(|bytes| ExtCsd::parse(&bytes)) {
            Some(Ok(r)) => u8::try_from(r.get(ext_csd::EXT_CSD_REV)).ok(),
            _ => read("rev").ok().and_then(|text| number(&text)),
        }
    });
    let csd = read("csd").ok().map(|text| parse_hex(Kind::Csd, dialect, &text).0);
    let spec_vers = match csd.map(|bytes| MmcCsd::parse(&bytes)) {
        Some(Ok(csd)) if dialect == Dialect::Mmc => csd.spec_vers(),
        _ => 2,
    };
    let context = Context {
        dialect,
        app: false,
        ext_csd_rev: rev.filter(|_| dialect == Dialect::Mmc),
        mmc_v1: spec_vers < 2,
    };
    Ok(found
        .into_iter()
        .map(|(name, kind, text)| {
            let mut decoded = match text {
                Ok(text) => decode_text(kind, &text, &context),
                Err(e) => {
                    let why = format!("{} cannot be read: {e}", path.join(name).display());
                    let fault = Fault { kind: "read", field: name.into(), why };
                    Decoded { faults: vec![fault], ..Decoded::default() }
                }
            };
            if !kind.exists_on(dialect) {
                decoded.notes.push(format!("a card of this kind has no {}", kind.name()));
            }
            (name, decoded)
        })
        .collect())
}

fn guess(path: &Path, read: &dyn Fn(&str) -> io::Result<String>) -> Option<Dialect> {
    if let Ok(text) = read("type") {
        return match text.trim() {
            "MMC" => Some(Dialect::Mmc),
            t if t.starts_with("SD") => Some(Dialect::Sd),
            _ => None,
        };
    }
    let has = |name: &str| path.join(name).exists();
    if has("scr") || has("ssr") {
        return Some(Dialect::Sd);
    }
    (has("ext_csd") || has("rev")).then_some(Dialect::Mmc)
}

/// `0x8` or `8`.
pub(crate) fn number(text: &str) -> Option<u8> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

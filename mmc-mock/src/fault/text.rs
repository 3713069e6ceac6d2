//! The readable form of a script: one rule a line.
//!
//! What prints parses to the same script again; a line that cannot be read is named, with the field and what is
//! accepted there.

use super::names::{LEVEL, NUMBER, SIMPLE, number};
use super::script::{Action, BlockFault, Keep, Rule, Script, When};
use crate::dw::Fault;
use mmc_time::{Duration, Instant};
use std::fmt;
use std::str::FromStr;

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {field}: {problem}")]
pub struct ScriptError {
    /// Its number, from 1.
    pub line: usize,
    /// The part of it that is wrong: `line`, `trigger`, `action`, `seed` or `cache`.
    pub field: &'static str,
    /// What is wrong, and what is accepted.
    pub problem: String,
}

/// A field and its problem.
type Bad = (&'static str, String);

const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

struct Time(u64);

impl fmt::Display for Time {
    /// In the largest unit that says it exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, ns)| self.0.is_multiple_of(*ns));
        let (unit, ns) = exact.unwrap_or(&UNITS[3]);
        write!(f, "{}{unit}", self.0 / ns)
    }
}

struct Name {
    app: bool,
    index: u8,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}CMD{}", if self.app { "A" } else { "" }, self.index)
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Frame(n) => write!(f, "at frame {n}"),
            Self::Command { app, index, nth: 0 } => write!(f, "at {}", Name { app, index }),
            Self::Command { app, index, nth } => write!(f, "at {}#{nth}", Name { app, index }),
            Self::Every { app, index } => write!(f, "every {}", Name { app, index }),
            Self::Instant(at) => write!(f, "at {}", Time(at.as_nanos())),
            Self::Access(n) => write!(f, "at access {n}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(bits) => write!(f, "status {bits:#x}"),
            Self::Late(by) => write!(f, "late {}", Time(by.as_nanos())),
            Self::Busy(Duration::MAX) => f.write_str("busy forever"),
            Self::Busy(d) => write!(f, "busy {}", Time(d.as_nanos())),
            Self::Block(k, BlockFault::Crc) => write!(f, "block {k} crc"),
            Self::Block(k, BlockFault::Missing) => write!(f, "block {k} missing"),
            Self::Block(k, BlockFault::Flip { byte, bit }) => write!(f, "block {k} flip {byte}.{bit}"),
            Self::Swap(n) => write!(f, "swap {n}"),
            Self::PowerLoss(Keep::All) => f.write_str("power-loss all"),
            Self::PowerLoss(Keep::None) => f.write_str("power-loss none"),
            Self::PowerLoss(Keep::Random) => f.write_str("power-loss random"),
            Self::PowerLoss(Keep::List(list)) => {
                f.write_str("power-loss keep")?;
                list.iter().try_for_each(|n| write!(f, " {n}"))
            }
            Self::Rot { sector, byte, bit } => write!(f, "rot {sector} {byte}.{bit}"),
            Self::Host(fault) => write_host(f, *fault),
            plain => PLAIN.iter().filter(|(_, a)| a == plain).try_for_each(|(name, _)| f.write_str(name)),
        }
    }
}

/// Actions that are one word.
const PLAIN: [(&str, Action); 8] = [
    ("lost", Action::Lost),
    ("no-answer", Action::NoAnswer),
    ("command-crc", Action::CommandCrc),
    ("response-crc", Action::ResponseCrc),
    ("response-index", Action::ResponseIndex),
    ("response-end", Action::ResponseEnd),
    ("remove", Action::Remove),
    ("insert", Action::Insert),
];

fn write_host(f: &mut fmt::Formatter<'_>, fault: Fault) -> fmt::Result {
    f.write_str("host ")?;
    match fault {
        Fault::Busy(Duration::MAX) => return f.write_str("busy forever"),
        Fault::Busy(d) => return write!(f, "busy {}", Time(d.as_nanos())),
        Fault::Defer { bits, accesses } => return write!(f, "defer {bits:#x} {accesses}"),
        _ => {}
    }
    for (name, simple) in SIMPLE {
        if simple == fault {
            return f.write_str(name);
        }
    }
    for (name, make) in LEVEL {
        for (word, on) in [("on", true), ("off", false)] {
            if make(on) == fault {
                return write!(f, "{name} {word}");
            }
        }
    }
    let n = number(fault).unwrap_or_default();
    for (name, make) in NUMBER {
        if make(n) == fault {
            return if name == "spurious" { write!(f, "{name} {n:#x}") } else { write!(f, "{name} {n}") };
        }
    }
    // A fault that has no word yet: it will not parse, and says so.
    write!(f, "{fault:?}")
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.when, self.what)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        if self.cache > 0 {
            writeln!(f, "cache {}", self.cache)?;
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "{rule}"))
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    /// Reads one rule a line. `#` at the start of a word starts a comment; empty lines are nothing.
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let (mut seed, mut cache) = (false, false);
        for (i, whole) in text.lines().enumerate() {
            let text = match whole
                .char_indices()
                .find(|&(at, c)| c == '#' && whole[..at].chars().next_back().is_none_or(char::is_whitespace))
            {
                Some((at, _)) => &whole[..at],
                None => whole,
            };
            let wrong = |(field, problem): Bad| ScriptError { line: i + 1, field, problem };
            let words: Vec<&str> = text.split_whitespace().collect();
            match words[..] {
                [] => {}
                ["seed", _] if seed => return Err(wrong(("seed", "it was given before".into()))),
                ["seed", n] => {
                    script.seed = int(n).map_err(|p| wrong(("seed", p)))?;
                    seed = true;
                }
                ["cache", _] if cache => return Err(wrong(("cache", "it was given before".into()))),
                ["cache", n] => {
                    script.cache = int(n).map_err(|p| wrong(("cache", p)))?;
                    cache = true;
                }
                _ => script.rules.push(rule(text).map_err(wrong)?),
            }
        }
        Ok(script)
    }
}

impl FromStr for Rule {
    type Err = ScriptError;

    /// Reads one rule; an error says line 1.
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        rule(text).map_err(|(field, problem)| ScriptError { line: 1, field, problem })
    }
}

fn rule(text: &str) -> Result<Rule, Bad> {
    let Some((when, what)) = text.split_once(':') else {
        return Err((
            "line",
            format!(
                "`{}` has no `:`; write `at WHEN: WHAT`, `every CMDn: WHAT`, `seed N` or `cache N`",
                text.trim()
            ),
        ));
    };
    let when: Vec<&str> = when.split_whitespace().collect();
    let what: Vec<&str> = what.split_whitespace().collect();
    let rule = Rule {
        when: trigger(&when).map_err(|p| ("trigger", p))?,
        what: action(&what).map_err(|p| ("action", p))?,
    };
    match rule.problem() {
        Some(bad) => Err(bad),
        None => Ok(rule),
    }
}

fn trigger(words: &[&str]) -> Result<When, String> {
    match *words {
        ["at", "frame", n] => Ok(When::Frame(int(n)?)),
        ["at", "access", n] => Ok(When::Access(int(n)?)),
        ["every", name] => match command(name)? {
            (app, index, None) => Ok(When::Every { app, index }),
            _ => Err(format!("`{name}` counts, but `every` means all; leave `#` and the number out")),
        },
        ["at", name] if name.starts_with("CMD") || name.starts_with("ACMD") => {
            let (app, index, nth) = command(name)?;
            Ok(When::Command { app, index, nth: nth.unwrap_or(0) })
        }
        ["at", time] => Ok(When::Instant(Instant::from_nanos(duration(time)?.as_nanos()))),
        _ => Err(format!(
            "`{}` is no trigger; write `at frame N`, `at CMDn`, `at ACMDn#K`, `at 250ms`, `at access N` or `every CMDn`",
            words.join(" ")
        )),
    }
}

/// `CMD17#2`: whether it is an ACMD, its index and its count.
fn command(name: &str) -> Result<(bool, u8, Option<u32>), String> {
    let (app, rest) = match name.strip_prefix('A') {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let Some(rest) = rest.strip_prefix("CMD") else {
        return Err(format!("`{name}` is no command; write CMD0 to CMD63 or ACMD0 to ACMD63"));
    };
    let (index, nth) = match rest.split_once('#') {
        Some((index, nth)) => (index, Some(int(nth)?)),
        None => (rest, None),
    };
    Ok((app, int(index)?, nth))
}

fn action(words: &[&str]) -> Result<Action, String> {
    for (name, plain) in PLAIN {
        if *words == [name] {
            return Ok(plain);
        }
    }
    Ok(match *words {
        ["status", bits] => Action::Status(int(bits)?),
        ["late", by] => Action::Late(duration(by)?),
        ["busy", time] => Action::Busy(lasting(time)?),
        ["block", k, "crc"] => Action::Block(int(k)?, BlockFault::Crc),
        ["block", k, "missing"] => Action::Block(int(k)?, BlockFault::Missing),
        ["block", k, "flip", place] => {
            let (byte, bit) = place_of(place)?;
            Action::Block(int(k)?, BlockFault::Flip { byte, bit })
        }
        ["swap", n] => Action::Swap(int(n)?),
        ["power-loss", "all"] => Action::PowerLoss(Keep::All),
        ["power-loss", "none"] => Action::PowerLoss(Keep::None),
        ["power-loss", "random"] => Action::PowerLoss(Keep::Random),
        ["power-loss", "keep", ref list @ ..] => {
            Action::PowerLoss(Keep::List(list.iter().map(|n| int(n)).collect::<Result<_, _>>()?))
        }
        ["rot", sector, place] => {
            let (byte, bit) = place_of(place)?;
            Action::Rot { sector: int(sector)?, byte, bit }
        }
        ["host", ref fault @ ..] => Action::Host(host(fault)?),
        _ => {
            return Err(format!(
                "`{}` is no action; there are {}, status 0xBITS, late TIME, busy TIME, busy forever, block K crc, \
                 block K missing, block K flip BYTE.BIT, swap N, power-loss all, none, random or keep N…, \
                 rot SECTOR BYTE.BIT and host …",
                words.join(" "),
                PLAIN.map(|(name, _)| name).join(", ")
            ));
        }
    })
}

fn host(words: &[&str]) -> Result<Fault, String> {
    for (name, fault) in SIMPLE {
        if *words == [name] {
            return Ok(fault);
        }
    }
    if let [name, word] = *words {
        if let Some((_, make)) = NUMBER.iter().find(|(n, _)| *n == name) {
            return Ok(make(int(word)?));
        }
        if let Some((_, make)) = LEVEL.iter().find(|(n, _)| *n == name) {
            return match word {
                "on" => Ok(make(true)),
                "off" => Ok(make(false)),
                _ => Err(format!("`{word}` is no level; write on or off")),
            };
        }
    }
    match *words {
        ["busy", time] => Ok(Fault::Busy(lasting(time)?)),
        ["defer", bits, accesses] => Ok(Fault::Defer { bits: int(bits)?, accesses: int(accesses)? }),
        _ => Err(format!(
            "`{}` is no host fault; there are {}; with a number {}; with on or off {}; busy TIME; defer 0xBITS N",
            words.join(" "),
            SIMPLE.map(|(n, _)| n).join(", "),
            NUMBER.map(|(n, _)| n).join(", "),
            LEVEL.map(|(n, _)| n).join(", "),
        )),
    }
}

/// A whole number, decimal or with `0x`.
fn int<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    let n = match word.strip_prefix("0x") {
        // from_str_radix would take a sign.
        Some(hex) if hex.chars().all(|c| c.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        None if word.chars().all(|c| c.is_ascii_digit()) => word.parse().ok(),
        _ => None,
    };
    n.and_then(|n| T::try_from(n).ok()).ok_or_else(|| {
        let most = u64::MAX >> (64 - 8 * size_of::<T>().min(8));
        format!("`{word}` is no whole number from 0 to {most}")
    })
}

fn duration(word: &str) -> Result<Duration, String> {
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let (n, unit) = word.split_at(digits);
    let Some((_, ns)) = UNITS.iter().find(|(u, _)| *u == unit) else {
        return Err(format!("`{word}` is no time; write a whole number and s, ms, us or ns, as 250ms"));
    };
    match int::<u64>(n)?.checked_mul(*ns) {
        Some(ns) if ns < u64::MAX => Ok(Duration::from_nanos(ns)),
        _ => Err(format!("`{word}` is more than 584 years")),
    }
}

fn lasting(word: &str) -> Result<Duration, String> {
    if word == "forever" { Ok(Duration::MAX) } else { duration(word) }
}

/// `BYTE.BIT`.
fn place_of(word: &str) -> Result<(u16, u8), String> {
    let Some((byte, bit)) = word.split_once('.') else {
        return Err(format!("`{word}` names no bit; write BYTE.BIT, as 17.3"));
    };
    Ok((int(byte)?, int(bit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_docs_reads_as_it_says() {
        let text = "seed 7   # decides\n\n# a comment\nat CMD17: block 0 crc\nat CMD18#2: block 5 flip 17.3\n\
                    every ACMD41: status 0x80000\nat frame 40: no-answer\nat 250ms: power-loss random\n\
                    at 1s: host spurious 0x80\n";
        let script: Script = text.parse().unwrap();
        assert_eq!((script.seed, script.rules.len()), (7, 6));
        assert_eq!(
            script.rules[1],
            Rule {
                when: When::Command { app: false, index: 18, nth: 2 },
                what: Action::Block(5, BlockFault::Flip { byte: 17, bit: 3 })
            }
        );
        let plain: String = text
            .lines()
            .map(|l| if l.starts_with("# ") { "" } else { l })
            .map(|l| l.split("   #").next().unwrap())
            .filter(|l| !l.is_empty())
            .flat_map(|l| [l, "\n"])
            .collect();
        assert_eq!(script.to_string(), plain);
    }

    #[test]
    fn every_word_prints_and_parses() {
        let mut words: Vec<String> = PLAIN.iter().map(|(n, _)| (*n).into()).collect();
        for a in [
            "status 0xff000000",
            "late 3us",
            "busy 1001ns",
            "busy forever",
            "block 4294967295 missing",
            "swap 2",
            "power-loss all",
            "power-loss none",
            "power-loss keep",
            "power-loss keep 3 0 1",
            "rot 274877906943 511.7",
        ] {
            words.push(a.into());
        }
        for w in &words {
            let line = format!("at frame 1: {w}");
            assert_eq!(line.parse::<Rule>().map(|r| r.to_string()), Ok(line));
        }
        let hosts = SIMPLE.iter().map(|(n, _)| (*n).to_owned());
        let hosts = hosts
            .chain(NUMBER.iter().map(|(n, _)| format!("{n} {}", if *n == "spurious" { "0x9" } else { "9" })));
        let hosts = hosts.chain(LEVEL.iter().map(|(n, _)| format!("{n} off")));
        for h in hosts.chain(["busy 4ms", "busy forever", "defer 0x8 3"].map(String::from)) {
            let line = format!("at 1ms: host {h}");
            assert_eq!(line.parse::<Rule>().map(|r| r.to_string()), Ok(line));
        }
    }

    #[test]
    fn what_cannot_be_is_named_by_line_and_field() {
        for (text, line, field, says) in [
            ("seed 1\nnonsense", 2, "line", "has no `:`"),
            ("at CMD64: lost", 1, "trigger", "no CMD64"),
            ("at CMD300: lost", 1, "trigger", "0 to 255"),
            ("at CMD1x: lost", 1, "trigger", "no whole number"),
            ("at sometime: lost", 1, "trigger", "no time"),
            ("at 1.5s: lost", 1, "trigger", "whole number and s, ms"),
            ("at 99999999999999s: lost", 1, "trigger", "584 years"),
            ("when CMD0: lost", 1, "trigger", "no trigger"),
            ("every CMD17#2: lost", 1, "trigger", "`every` means all"),
            ("every DMC17: lost", 1, "trigger", "no command"),
            ("\n\nat CMD17: losst", 3, "action", "`losst` is no action; there are lost, no-answer"),
            ("at CMD17: status -1", 1, "action", "0 to 4294967295"),
            ("at CMD17: status 0x100000000", 1, "action", "0 to 4294967295"),
            ("at CMD17: block 0 flip 1", 1, "action", "BYTE.BIT"),
            ("at CMD17: block 0 flip 1.8", 1, "action", "bits 0 to 7"),
            ("at CMD17: rot 0 512.0", 1, "action", "bytes 0 to 511"),
            ("at frame 1: host explode", 1, "action", "no host fault"),
            ("at 1s: host pin up", 1, "action", "on or off"),
            ("at CMD17: host no-response", 1, "trigger", "by name"),
            ("at frame 3: host stuck-reset", 1, "trigger", "does not belong to a command"),
            ("at access 3: lost", 1, "trigger", "for host faults"),
            ("seed x", 1, "seed", "no whole number"),
            ("seed 1\nseed 2", 2, "seed", "before"),
            ("cache 1\ncache 1", 2, "cache", "before"),
            ("cache 4294967296", 1, "cache", "4294967295"),
        ] {
            let e = text.parse::<Script>().unwrap_err();
            assert_eq!((e.line, e.field), (line, field), "{text}: {e}");
            assert!(e.to_string().contains(says), "{text}: {e}");
        }
    }
}

//! Bytes out of the many ways people write them.

use super::{Fault, Kind};
use mmc_proto::command::Dialect;

/// The bytes of `text` and, if it is not all hexadecimal, what is wrong and where: the bytes are those before it.
///
/// Words are parted by white space, commas, colons or semicolons and may begin with `0x`. A word has two digits
/// a byte. Only where nothing can be mistaken leading zeros may be missing: in one `0x` number that is a whole
/// OCR or card status, in `0x` words of 32 bits, and in words of a byte each.
#[must_use]
pub fn parse_hex(kind: Kind, dialect: Dialect, text: &str) -> (Vec<u8>, Option<Fault>) {
    let fault = |why: String| Some(Fault { kind: "hex", field: "input".into(), why });
    let words: Vec<(bool, &str)> = text
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':'))
        .filter(|word| !word.is_empty())
        .map(|word| match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(digits) => (true, digits),
            None => (false, word),
        })
        .collect();
    if words.is_empty() {
        return (Vec::new(), fault("no bytes: give them in hexadecimal".into()));
    }
    let width = width(kind, dialect, &words);
    let mut bytes = Vec::new();
    for (n, (prefixed, digits)) in words.iter().enumerate() {
        let place = || if words.len() == 1 { String::new() } else { format!("word {}: ", n + 1) };
        if let Some((at, c)) = digits.char_indices().find(|(_, c)| !c.is_ascii_hexdigit()) {
            // What comes before it in a long string is worth a look.
            bytes.extend(pairs(&digits[..at / 2 * 2]));
            return (bytes, fault(format!("{}'{}' is not hexadecimal", place(), c.escape_default())));
        }
        let padded;
        let digits = match width {
            Some(width) => {
                padded = format!("{digits:0>width$}", width = 2 * width);
                padded.as_str()
            }
            None => digits,
        };
        bytes.extend(pairs(&digits[..digits.len() / 2 * 2]));
        if digits.len() % 2 == 1 {
            let hint = if *prefixed { "; write leading zeros" } else { "" };
            return (bytes, fault(format!("{}{} digits, half a byte too many{hint}", place(), digits.len())));
        }
        if digits.is_empty() {
            return (bytes, fault(format!("{}nothing after 0x", place())));
        }
    }
    (bytes, None)
}

/// Bytes of each word, where zeros in front may be missing.
fn width(kind: Kind, dialect: Dialect, words: &[(bool, &str)]) -> Option<usize> {
    let len = kind.len(dialect, words.len())?;
    let longest = words.iter().map(|(_, digits)| digits.len()).max()?;
    let numbers = words.iter().all(|(prefixed, digits)| *prefixed && !digits.is_empty());
    match words.len() {
        n if n == len && longest <= 2 => Some(1),
        1 if numbers && matches!(kind, Kind::Ocr | Kind::R1) && longest <= 2 * len => Some(len),
        // Words of 32 bits, not bytes of which most are missing.
        n if n > 1 && numbers && n.checked_mul(4) == Some(len) && (5..=8).contains(&longest) => Some(4),
        _ => None,
    }
}

fn pairs(digits: &str) -> impl Iterator<Item = u8> + '_ {
    digits.as_bytes().chunks_exact(2).map(|two| {
        two.iter().fold(0, |byte, digit| {
            (byte << 4) | (*digit as char).to_digit(16).and_then(|d| u8::try_from(d).ok()).unwrap_or(0)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: Kind, text: &str) -> Result<Vec<u8>, String> {
        match parse_hex(kind, Dialect::Sd, text) {
            (bytes, None) => Ok(bytes),
            (_, Some(fault)) => Err(fault.to_string()),
        }
    }

    #[test]
    fn the_many_ways_to_write_one_register() {
        let want = vec![0x02, 0x35, 0x80, 0x03, 0, 0, 0, 0x0b];
        for text in [
            "023580030000000b",
            "0x023580030000000B",
            "02 35 80 03 00 00 00 0b",
            "0x2, 0x35, 0x80, 0x3, 0x0, 0x0, 0x0, 0xb",
            "2 35 80 3 0 0 0 b",
            "0x2358003 0xb",
            "02358003 0000000b\n",
            "02:35:80:03:00:00:00:0b",
        ] {
            assert_eq!(bytes(Kind::Scr, text), Ok(want.clone()), "{text}");
        }
        assert_eq!(bytes(Kind::R1, "0x900"), Ok(vec![0, 0, 9, 0]));
    }

    #[test]
    fn zeros_are_not_made_up() {
        assert_eq!(bytes(Kind::Ocr, "ff8000"), Ok(vec![0xff, 0x80, 0]), "a byte is missing, not a zero");
        assert_eq!(bytes(Kind::Scr, "0x02 0x35").map(|b| b.len()), Ok(2), "two bytes, not two words");
        assert!(bytes(Kind::Scr, "235800300000000").unwrap_err().contains("15 digits"));
        assert!(bytes(Kind::Cid, "02 3 58").unwrap_err().contains("word 2: 1 digits"));
    }

    #[test]
    fn what_is_not_hexadecimal_is_named() {
        assert_eq!(bytes(Kind::Scr, "0235zz"), Err("input: 'z' is not hexadecimal".into()));
        assert_eq!(bytes(Kind::Scr, "02 q"), Err("input: word 2: 'q' is not hexadecimal".into()));
        assert!(bytes(Kind::Scr, " , ").unwrap_err().contains("no bytes"));
        assert!(bytes(Kind::Scr, "0x").unwrap_err().contains("nothing after 0x"));
        assert_eq!(parse_hex(Kind::Scr, Dialect::Sd, "0235é4").0, [2, 0x35]);
    }
}

//! Times and sizes as people write them on a command line, and back.

/// Reads a time such as `10s`, `1.5ms`, `250us`, `80ns`: a number and one of the units ns, us, ms, s, in nanoseconds;
/// 0 needs none.
///
/// # Errors
/// One line that names the value and what is accepted.
pub fn parse_time(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    scaled(text, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)]).ok_or_else(|| {
        let what = wrong(text, "not a time");
        format!("`{text}` is {what}: write a number and one of ns, us, ms, s, as in 10s or 1.5ms")
    })
}

/// Reads a size in bytes such as `512M`, `1GiB`, `64k`, `4096`: a number, alone or with K, M, G, T (powers of 1024; a
/// `B` or `iB` may follow, and case does not matter).
///
/// # Errors
/// One line that names the value and what is accepted.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const SUFFIXES: [(&str, u64); 5] =
        [("t", 1 << 40), ("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10), ("", 1)];
    let lower = text.trim().to_ascii_lowercase();
    let bare = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let is_plain_i = lower.ends_with("ib") && !bare.ends_with(['k', 'm', 'g', 't']);
    scaled(bare, &SUFFIXES).filter(|_| !is_plain_i).ok_or_else(|| {
        let what = wrong(text, "not a size");
        format!("`{text}` is {what}: write a number of bytes, or one with K, M, G or T, as in 512M or 1GiB")
    })
}

/// What is wrong with `text`: a sign says it better than `what`.
fn wrong<'a>(text: &str, what: &'a str) -> &'a str {
    if text.trim_start().starts_with('-') { "negative" } else { what }
}

/// A decimal number with one of `units` at its end, times the unit, rounded down to a whole; `None` if it is not one, is
/// negative, is a fraction below one or does not fit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = units.iter().find_map(|&(name, unit)| {
        let number = text.strip_suffix(name)?.trim_end();
        number.ends_with(|c: char| c.is_ascii_digit()).then_some((number, unit))
    })?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let scale = 10_u128.pow(fraction.len() as u32);
    let fraction = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
    // A fraction of the smallest unit is a slip of the pen.
    if !fraction.is_multiple_of(scale) && unit == 1 {
        return None;
    }
    whole.checked_add(u64::try_from(fraction / scale).ok()?)
}

/// A time for people, three digits or so: `10.75 s`, `84.6 ms`, `7 us`.
#[must_use]
pub fn format_time(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let value = ns as f64 / unit;
    let digits = if name == "s" || value < 10.0 { 2 } else { 1 };
    format!("{} {name}", trim(format!("{value:.digits$}")))
}

/// A size for people: `63.0 MiB`, `28 KiB`, `512 B`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..0x400 => return format!("{bytes} B"),
        0x400..0x10_0000 => (1024.0, "KiB"),
        0x10_0000..0x2_8000_0000 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    };
    format!("{} {name}", trim(format!("{:.1}", bytes as f64 / unit)))
}

/// Without the zeros that say nothing.
fn trim(number: String) -> String {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(parse_time("10s"), Ok(10_000_000_000));
        assert_eq!(parse_time(" 1.5 ms "), Ok(1_500_000));
        assert_eq!(parse_time("250us"), Ok(250_000));
        assert_eq!((parse_time("0ns"), parse_time(" 0")), (Ok(0), Ok(0)));
    }

    #[test]
    fn what_is_no_time_is_named() {
        for bad in [
            "",
            "10",
            "s",
            "-1s",
            "1e3s",
            "10 sec",
            "10m",
            "1.2.3s",
            ".5s",
            "5.s",
            "0.5ns",
            "99999999999999s",
            "1 s s",
        ] {
            let error = parse_time(bad).unwrap_err();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("ns, us, ms, s"), "{error}");
            assert_eq!(error.contains("is negative"), bad.starts_with('-'), "{error}");
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512M", 512 << 20),
            ("1GiB", 1 << 30),
            ("64k", 65536),
            ("1.5 KB", 1536),
            ("8b", 8),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named() {
        for bad in ["", "M", "-5M", "5X", "5iB", "1.5", "16777216T", "12MMB"] {
            let error = parse_size(bad).unwrap_err();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("512M"), "{error}");
        }
    }

    #[test]
    fn people_get_short_numbers() {
        assert_eq!(format_time(10_746_999_000), "10.75 s");
        assert_eq!(format_time(10_000_000_000), "10 s");
        assert_eq!(format_time(84_600_000), "84.6 ms");
        assert_eq!(format_time(7_000), "7 us");
        assert_eq!(format_time(12), "12 ns");
        assert_eq!(format_size(28 << 10), "28 KiB");
        assert_eq!(format_size(63 << 20), "63 MiB");
        assert_eq!(format_size(3 << 19), "1.5 MiB");
        assert_eq!(format_size(1090 << 20), "1090 MiB");
        assert_eq!(format_size(10 << 30), "10 GiB");
        assert_eq!(format_size(100), "100 B");
    }
}

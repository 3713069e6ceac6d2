//! How Linux reads the numbers written to its tunables.
//!
//! It is not a general number parser: signs, bases and the order of errors are the kernel's.

#[cfg(any(feature = "bfq", feature = "cfq"))]
use crate::scheduler::TunableInfo;
use crate::scheduler::TuneError;

/// One line of a table of tunables, kept in `S`.
#[cfg(any(feature = "bfq", feature = "cfq"))]
pub(crate) struct Row<S> {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) get: fn(&S) -> u64,
    pub(crate) set: fn(&mut S, u32),
}

/// Line `i` of a table, with the value in force.
#[cfg(any(feature = "bfq", feature = "cfq"))]
pub(crate) fn info<S>(rows: &[Row<S>], settings: &S, i: usize) -> Option<TunableInfo> {
    let row = rows.get(i)?;
    let (min, max) = (i64::from(row.min), i64::from(row.max));
    let value = i64::try_from((row.get)(settings)).unwrap_or(max).max(min).min(max);
    Some(TunableInfo { name: row.name, unit: row.unit, min, max, value })
}

/// Reads `text` as an `unsigned long` and clamps it into the range of the tunable. One that can only be 0 takes
/// nothing else.
#[cfg(any(feature = "bfq", feature = "cfq"))]
pub(crate) fn set<S>(rows: &[Row<S>], settings: &mut S, name: &str, text: &str) -> Result<(), TuneError> {
    let row = rows.iter().find(|row| row.name == name).ok_or(TuneError::Unknown)?;
    let (negative, value) = parse(text)?;
    if negative {
        return Err(TuneError::Invalid);
    }
    if row.max == 0 && value != 0 {
        return Err(TuneError::Range);
    }
    // Not `clamp`, which panics on a range the wrong way round.
    (row.set)(settings, u32::try_from(value).unwrap_or(u32::MAX).max(row.min).min(row.max));
    Ok(())
}

/// An integer in the base its prefix names (`0x` hexadecimal, a leading 0 octal, otherwise decimal), a sign, one
/// newline at the end. `(negative, magnitude)`.
pub(crate) fn parse(text: &str) -> Result<(bool, u64), TuneError> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = match hex {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (rest, 16),
        _ if digits.starts_with('0') => (digits, 8),
        _ => (digits, 10),
    };
    let mut value: Option<u64> = Some(0);
    let mut count = 0u32;
    let mut rest = digits.chars();
    let junk = loop {
        let Some(c) = rest.next() else { break false };
        let Some(d) = c.to_digit(radix) else { break true };
        value = value.and_then(|v| v.checked_mul(u64::from(radix))?.checked_add(u64::from(d)));
        count = count.saturating_add(1);
    };
    match value {
        None => Err(TuneError::Range),
        Some(_) if count == 0 || junk => Err(TuneError::Invalid),
        Some(v) => Ok((negative, v)),
    }
}

/// Read as an `int`: [`TuneError::Range`] outside of 32 bits.
#[cfg(any(feature = "mq-deadline", feature = "deadline"))]
pub(crate) fn int(text: &str) -> Result<i32, TuneError> {
    let (negative, magnitude) = parse(text)?;
    let v = i64::try_from(magnitude).map_err(|_| TuneError::Range)?;
    let v = if negative { v.saturating_neg() } else { v };
    i32::try_from(v).map_err(|_| TuneError::Range)
}

/// Read as an `unsigned int`: a minus sign or more than 32 bits is [`TuneError::Invalid`].
#[cfg(feature = "mq-deadline")]
pub(crate) fn unsigned(text: &str) -> Result<u32, TuneError> {
    let (negative, magnitude) = parse(text)?;
    if negative {
        return Err(TuneError::Invalid);
    }
    u32::try_from(magnitude).map_err(|_| TuneError::Invalid)
}

/// As kernels before 5.14 read it: decimal digits as far as they go, 0 when there are none; never an error.
#[cfg(feature = "mq-deadline")]
pub(crate) fn lenient(text: &str) -> i32 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut v = 0i64;
    for c in digits.chars() {
        let Some(d) = c.to_digit(10) else { break };
        v = v.saturating_mul(10).saturating_add(i64::from(d));
    }
    let v = if negative { v.saturating_neg() } else { v };
    i32::try_from(v).unwrap_or(if negative { i32::MIN } else { i32::MAX })
}

#[cfg(all(test, feature = "mq-deadline"))]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_the_kernel_reads_them() {
        let good = [("0", 0), ("010", 8), ("0x3e8", 1000), ("+7", 7), ("-2147483648", i32::MIN), ("5\n", 5)];
        for (text, value) in good {
            assert_eq!(int(text), Ok(value), "{text:?}");
        }
        for text in ["", "-", "+", "0x", "08", "7 ", " 7", "5ms", "5\n\n", "--1", "-+1", "0xg"] {
            assert_eq!(int(text), Err(TuneError::Invalid), "{text:?}");
        }
        for text in ["2147483648", "-2147483649", "99999999999999999999999", "99999999999999999999999x"] {
            assert_eq!(int(text), Err(TuneError::Range), "{text:?}");
        }
        assert_eq!(unsigned("-1"), Err(TuneError::Invalid));
        assert_eq!(unsigned("70000"), Ok(70_000));
    }

    #[test]
    fn the_kernels_of_2018_took_anything() {
        assert_eq!(
            [lenient("abc"), lenient("5ms"), lenient("-3"), lenient("0x10"), lenient("")],
            [0, 5, -3, 0, 0]
        );
    }
}

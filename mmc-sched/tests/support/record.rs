//! What the tests that keep a policy's behaviour as data have in common.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::path::Path;

/// The same numbers for ever (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// FNV-1a of a text that is too long to be kept.
pub(crate) fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |d, b| (d ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

/// Whether the records are to be written anew: `DECISIONS=write`.
pub(crate) fn writes() -> bool {
    std::env::var("DECISIONS").is_ok_and(|v| v == "write")
}

/// Compares with the record, a file of `tests/data`, or writes it.
pub(crate) fn compare(record: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(record);
    if writes() {
        std::fs::write(&path, text).expect("tests/data can be written");
    }
    let was = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for (number, (was, is)) in was.lines().zip(text.lines()).enumerate() {
        assert_eq!(was, is, "the first difference is in line {} of {}", number + 1, path.display());
    }
    assert_eq!(was.len(), text.len(), "more or less than in {}", path.display());
}

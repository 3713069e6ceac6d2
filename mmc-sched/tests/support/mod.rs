//! Shared by the tests of this crate.
#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod protocol;

/// Property cases: `n`, or what the environment variable PROPTEST_CASES says.
pub(crate) fn cases(n: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|v| v.parse().ok()).unwrap_or(n)
}

//! Shared by the tests of this crate.
#![allow(dead_code, reason = "not every test uses all of it")]

pub(crate) mod protocol;

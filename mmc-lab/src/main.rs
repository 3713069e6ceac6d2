//! `mmc-lab`: see `mmc-lab --help`.
fn main() {}

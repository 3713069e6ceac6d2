//! `cargo fuzz run tables --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmc_fuzz::tables(data));

//! `cargo fuzz run extension --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmc_fuzz::extension(data));

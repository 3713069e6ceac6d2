//! `cargo fuzz run machines --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmc_fuzz::machines(data));

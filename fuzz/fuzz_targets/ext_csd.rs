//! `cargo fuzz run ext_csd --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmc_fuzz::ext_csd(data));

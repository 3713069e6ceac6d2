//! `cargo fuzz run trace_binary --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmc_fuzz::trace_binary(data));

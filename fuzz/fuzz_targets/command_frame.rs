//! `cargo fuzz run command_frame --features libfuzzer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mmc_fuzz::command_frame(data));

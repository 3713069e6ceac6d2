//! Our engine on the model of an SD or MMC card on an SPI bus (`mmc_mock::spi`).
#![allow(unreachable_pub, reason = "modules of one test program")]

mod any_bytes;
mod as_it_was;
mod awaited;
mod bench;
mod data;
mod disk;
mod faults;
mod identify;
mod shared;
mod throughput;

//! What is said on an SD or eMMC bus: commands, responses, registers, and the conversations a host must hold
//! with a card, as machines without input or output of their own.
//!
//! It is not a driver: it touches no register, sleeps never and knows no operating system. Controllers
//! implement [`host::Host`]; `mmc-block` makes a disk of the two.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

pub mod bus;
pub mod command;
pub mod crc;
pub mod frame;
pub mod host;
pub mod machine;
pub mod register;
pub mod response;
pub mod status;

//! One SD or eMMC card as a block device: owns a card, a scheduler and a host; admission, ordering, completion.
//!
//! It is not a file system, a cache or a partition table, and holds no clock: `now` is an argument.
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

//! Driver for the Synopsys DesignWare mobile storage host (DW_mshc), on the ARC HSDK and its relatives.
//!
//! It is not for DWC_mshc (an SDHCI variant of the same vendor). Validated on: model (`mmc-mock::dw`); never on silicon.
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

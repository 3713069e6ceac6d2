//! Fuzz targets as plain functions over bytes: libFuzzer drives them behind a feature, `cargo test` runs the
//! checked-in corpora through them.

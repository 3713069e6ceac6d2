//! Schedulers against each other on the cards and workloads of a scenario file: no protocol, no disk, no controller.
//!
//! It is not the main job ([`crate::experiment`]): no kernel and no file system is simulated, and nothing merges. It
//! answers what a policy costs and gives by itself. The card is [`mmc_mock::scenario::Device`], the loads are in
//! [`load`], the file's format in [`mod@file`].

pub mod cell;
pub mod expect;
pub mod file;
pub mod guard;
pub mod load;
pub mod run;
pub mod table;

//! The workload side of a simulation: the block layer, page cache, journal and bonnie++ of a small kernel.

pub mod beside;
pub mod block;
pub mod bonnie;
pub mod cache;
pub mod journal;

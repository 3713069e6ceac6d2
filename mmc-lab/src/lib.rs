//! The engineer's command line: reproduce a stall of an SD card in virtual time, explain a real one from a trace.
//!
//! It is not a library to build on: the modules are public for the tests and may change with any version.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod blame;
pub mod board;
pub mod bonnie_csv;
pub mod cli;
pub mod compare;
pub mod csv;
pub mod decode;
pub mod dmesg;
pub mod experiment;
pub mod explain_bench;
pub mod fit;
pub mod output;
pub mod replay;
pub mod report;
pub mod sched_bench;
pub mod sched_shell;
pub mod serve;
pub mod sim;
pub mod simulate;
pub mod soak;
pub mod stack;
pub mod trace;
pub mod tune;
pub mod units;
pub mod verify;
pub mod watchdog;
pub mod workload;

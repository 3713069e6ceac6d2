//! `mmc-lab`: see `mmc-lab --help`.

use clap::Parser;

fn main() -> std::process::ExitCode {
    mmc_lab::cli::run(&mmc_lab::cli::Cli::parse())
}

//! `mmc-lab`: see `mmc-lab --help`.

use clap::Parser;
use clap::error::ErrorKind;
use mmc_lab::cli::{Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(e) if e.use_stderr() && e.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // One line: what is wrong, and where to read on.
            let text = e.to_string();
            let line = text.lines().next().unwrap_or_default();
            eprintln!("mmc-lab: {}; see --help", line.trim_start_matches("error: "));
            ExitCode::from(2)
        }
        Err(e) => e.exit(),
    }
}

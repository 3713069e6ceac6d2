//! `mmc-lab`: see `mmc-lab --help`.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use mmc_lab::cli::{Cli, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run(&cli),
        Err(e) if e.use_stderr() && e.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let words: Vec<String> =
                std::env::args_os().skip(1).map(|w| w.to_string_lossy().into_owned()).collect();
            let command = words.first().filter(|w| Cli::command().find_subcommand(w).is_some());
            let command = command.map_or_else(String::new, |name| format!(" {name}"));
            eprintln!("mmc-lab{command}: {}; see --help", complaint(&e, &words));
            ExitCode::from(2)
        }
        Err(e) => e.exit(),
    }
}

/// What is wrong with the command line, in one line.
fn complaint(e: &clap::Error, words: &[String]) -> String {
    let value = match e.kind() {
        ErrorKind::UnknownArgument => e.get(ContextKind::InvalidArg),
        _ => e.get(ContextKind::InvalidValue),
    };
    if let Some(ContextValue::String(value)) = value
        && value.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    {
        // Of `-1s` as a word of its own only `-1` is told.
        let word = words.iter().find(|w| w.starts_with(value.as_str())).unwrap_or(value);
        return format!("'{word}' is negative, as no number, size or time may be");
    }
    let text = e.to_string();
    let mut lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ");
    // What is missing, or accepted, stands in lines of its own.
    let more = lines.collect::<Vec<_>>().join(", ");
    format!("{first} {more}").trim_end().to_owned()
}

//! `mmc-lab completions` and `mmc-lab man`: what a shell and `man` need, made from the command line itself.

use crate::output;
use clap::CommandFactory;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prints the completions of a shell.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab completions bash > ~/.local/share/bash-completion/completions/mmc-lab
  mmc-lab completions zsh > ~/.zfunc/_mmc-lab            (with ~/.zfunc in fpath)
  mmc-lab completions fish > ~/.config/fish/completions/mmc-lab.fish")]
pub struct Args {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Writes a man page for the program and each of its commands.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  mmc-lab man ~/.local/share/man/man1; man mmc-lab-explain

Exit status: 0 done, 1 a file cannot be written, 2 wrong usage.")]
pub struct Man {
    /// A directory: mmc-lab.1, mmc-lab-bonnie.1 and so on go there
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Prints completions.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "mmc-lab", &mut script);
    output::print("completions", &String::from_utf8_lossy(&script), ExitCode::SUCCESS)
}

/// Writes the man pages.
#[must_use]
pub fn man(args: &Man) -> ExitCode {
    let shown = args.dir.display();
    if !args.dir.is_dir() {
        return output::fail("man", format_args!("{shown} is no directory: make it first"), 1);
    }
    match clap_mangen::generate_to(super::Cli::command(), &args.dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => output::fail("man", format_args!("cannot write a page to {shown}: {e}"), 1),
    }
}

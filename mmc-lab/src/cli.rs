//! The commands, one file each.

pub mod bench;
pub mod bonnie;
pub mod card;
pub mod compare;
pub mod completions;
pub mod csv;
pub mod decode;
pub mod dw;
pub mod explain;
pub mod replay;
pub mod sched;
pub mod serve;
pub mod soak;
pub mod tune;
pub mod verify;

/// Reproduce a stall of an SD card, cure it, and explain a real one.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "mmc-lab", version, about, propagate_version = true)]
pub struct Cli {
    /// Colour what is printed
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: crate::output::Colour,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// What the code costs the processor
    Bench(bench::Args),
    /// The main job: bonnie++ on a simulated board, policies side by side
    Bonnie(bonnie::Args),
    /// The cards of the zoo, and what a trace says of a card
    Card(card::Args),
    /// Policies alone, over the cards and workloads of a scenario file
    Compare(compare::Args),
    /// What a shell needs to complete the command line
    Completions(completions::Args),
    /// Rows of bonnie++, real and ours, side by side
    Csv(csv::Args),
    /// What registers, commands and responses of a card say
    Decode(decode::Args),
    /// For bringing up a board with the DesignWare host: timeouts, register dumps
    Dw(dw::Args),
    /// A real trace: who waited for whom, for how long, and why
    Explain(explain::Args),
    /// The manual as man pages
    Man(completions::Man),
    /// A real trace again: in whose order, or under another scheduler
    Replay(replay::Args),
    /// One policy by hand: a command a line, a reply line each
    Sched(sched::Args),
    /// A disk for others over NBD: the whole stack behind a socket
    Serve(serve::Args),
    /// The whole stack for weeks of virtual time, with faults, power cuts and card swaps
    Soak(soak::Args),
    /// Which scheduler and tunables would serve a real trace best
    Tune(tune::Args),
    /// Does a disk hold what was written to it, all of it
    Verify(verify::Args),
}

/// Runs the command line.
#[must_use]
pub fn run(cli: &Cli) -> std::process::ExitCode {
    crate::output::set_colour(cli.color);
    match &cli.command {
        Command::Bench(args) => bench::run(args),
        Command::Bonnie(args) => bonnie::run(args),
        Command::Card(args) => card::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Csv(args) => csv::run(args),
        Command::Decode(args) => decode::run(args),
        Command::Dw(args) => dw::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Man(args) => completions::man(args),
        Command::Replay(args) => replay::run(args),
        Command::Sched(args) => sched::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Soak(args) => soak::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Verify(args) => verify::run(args),
    }
}

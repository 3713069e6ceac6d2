//! `mmc-lab sched`: one policy by hand, over standard input.

use crate::output;
use crate::sched_shell::Shell;
use crate::sched_shell::bounds::table;
use crate::units::parse_time;
use mmc_time::Duration;
use std::io::{BufRead, Read, Write};
use std::process::ExitCode;

/// Drives one policy by hand: a command a line on standard input, a reply line each
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Commands of mq-deadline (those of Linux' recorded scenarios):
  reset [nr]            t MS       i|b ID r|w|d|z PRIO SECTOR N [hnsf]
  q nomerges|max_sectors|max_segments|max_discard_segments V
  d    c ID    rq ID    set NAME TEXT    get NAME    a DIR [s]    w    s    x (quits)
Commands of all other policies:
  t NS    p PID 1|2|3 LEVEL    i ID r|w SYNC PID SECTOR NSECT [META]
  d    c ID    n    set NAME VALUE    q    w PID [SYNC]    x (quits)
  d answers the id, of merged requests (set nomerges 0) all ids, of a part of one ID @OFFSET+SECTORS
A command that makes no sense is answered with one line, E and what is wrong, and changes nothing.

Examples:
  printf 'i 1 w be4 0 8\\ni 2 r be4 64 8\\nd\\nd\\n' | mmc-lab sched mq-deadline
  printf 'i 1 w 0 1 0 1024\\ni 2 r 1 2 9000 8\\nd\\nd\\nn\\n' | mmc-lab sched bfq --set slice_idle=0
  mmc-lab sched mq-deadline --set fifo_batch=1 --bound 160ms
  python3 replay.py 'mmc-lab sched mq-deadline' deadline/*.jsonl

Exit status: 0 done, 1 reading or writing failed, 2 wrong usage.")]
pub struct Args {
    /// The policy: none, mq-deadline, deadline, bfq, cfq, kyber or ftb
    policy: String,
    /// Whose decisions mq-deadline takes: 7.3 or 5.10 [default: 7.3]
    #[arg(long, value_name = "VERSION")]
    rules: Option<String>,
    /// Sets a tunable, now and at each reset
    #[arg(long = "set", value_name = "NAME=VALUE")]
    sets: Vec<String>,
    /// Prints how long requests may wait under these settings at a device that needs at most TIME for one, and exits
    #[arg(long, value_name = "TIME")]
    bound: Option<String>,
}

/// Longest command in bytes.
const LONGEST: u64 = 4096;

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let shell = settings(&args.sets).and_then(|sets| Shell::new(&args.policy, args.rules.as_deref(), &sets));
    let mut shell = match shell {
        Ok(shell) => shell,
        Err(e) => return output::fail("sched", e, 2),
    };
    if let Some(text) = &args.bound {
        let slowest = match parse_time(text) {
            Ok(ns) if ns > 0 => Duration::from_nanos(ns),
            Ok(_) => {
                let why = format!("--bound {text}: no device serves a request in no time");
                return output::fail("sched", why, 2);
            }
            Err(e) => return output::fail("sched", format_args!("--bound: {e}"), 2),
        };
        let text = table(&shell, slowest).join("\n") + "\n";
        return output::print("sched", &text, ExitCode::SUCCESS);
    }
    match converse(&mut shell, std::io::stdin().lock(), std::io::stdout().lock()) {
        // A closed pipe (`| head`) is the reader's wish.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            output::fail("sched", format_args!("the conversation broke off: {e}"), 1)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn settings(sets: &[String]) -> Result<Vec<(String, String)>, String> {
    let pair = |text: &String| {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("--set {text:?} is not a setting: write NAME=VALUE"))?;
        Ok((name.trim().to_owned(), value.to_owned()))
    };
    sets.iter().map(pair).collect()
}

/// Answers line after line until `x` or the end.
fn converse(shell: &mut Shell, mut input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return output.flush();
        }
        let reply = if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
            skip_line(&mut input)?;
            format!("E the line is longer than {LONGEST} bytes")
        } else {
            let text = String::from_utf8_lossy(&line);
            let text = text.strip_suffix('\n').unwrap_or(&text);
            match shell.line(text.strip_suffix('\r').unwrap_or(text)) {
                Some(reply) => reply,
                None => return output.flush(),
            }
        };
        writeln!(output, "{reply}")?;
        // Somebody may be waiting for this line before writing the next.
        output.flush()?;
    }
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let (used, over) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        input.consume(used);
        if over {
            return Ok(());
        }
    }
}

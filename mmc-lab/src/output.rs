//! Standard output: what a command prints, and what it says when it cannot.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Prints `text` and gives `status`; a reader that has gone (`| head`) is its own wish, any other failure is one
/// line on standard error and status 1.
#[must_use]
pub fn print(command: &str, text: &str, status: ExitCode) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            eprintln!("mmc-lab {command}: cannot write the output: {e}");
            ExitCode::from(1)
        }
        _ => status,
    }
}

//! Standard output and error: what a command prints, and what it says when it cannot.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// One line on standard error about what is wrong, as every command begins it; gives `status`.
#[must_use]
pub fn fail(command: &str, what: impl Display, status: u8) -> ExitCode {
    eprintln!("mmc-lab {command}: {what}");
    ExitCode::from(status)
}

/// Prints `text` and gives `status`; a reader that has gone (`| head`) is its own wish, any other failure is one
/// line on standard error and status 1.
#[must_use]
pub fn print(command: &str, text: &str, status: ExitCode) -> ExitCode {
    match piece(command, text) {
        Err(failed) if failed != ExitCode::SUCCESS => failed,
        _ => status,
    }
}

/// Prints a piece of what takes long to work out.
///
/// # Errors
/// There is no point in going on; the status to end with: 0 if the reader has gone, else 1, and it was said why.
pub fn piece(command: &str, text: &str) -> Result<(), ExitCode> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => fail(command, format_args!("cannot write the output: {e}"), 1),
    })
}

/// What a file is called in a message.
#[must_use]
pub fn named(file: &std::path::Path) -> String {
    if file == std::path::Path::new("-") { "the standard input".into() } else { file.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::named;
    use std::path::Path;

    #[test]
    fn a_dash_is_called_what_it_stands_for() {
        assert_eq!(named(Path::new("-")), "the standard input");
        assert_eq!(named(Path::new("./-")), "./-");
    }
}

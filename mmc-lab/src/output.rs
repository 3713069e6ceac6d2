//! Standard output and error: what a command prints, and what it says when it cannot.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The version of all JSON that is printed, the number `schema` of each object. It grows when a field goes or changes its
/// meaning; a new field leaves it (`docs/json.md`).
pub const SCHEMA: u64 = 1;

/// When to colour what is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Whether the standard output is coloured.
static COLOURED: AtomicBool = AtomicBool::new(false);
const BOLD: &str = "\u{1b}[1m";
const RED: &str = "\u{1b}[1;31m";
const PLAIN: &str = "\u{1b}[0m";

/// Decides for all that is printed from now on.
pub fn set_colour(wanted: Colour) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let on = match wanted {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => {
            std::io::stdout().is_terminal()
                && !is_set("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    };
    COLOURED.store(on, Ordering::Relaxed);
}

/// Text without what would steer a terminal: of a control character nothing is left but that it was there. Names of tasks
/// come out of traces, and may be anything.
fn tidy(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    match text.contains(steers) {
        true => text.replace(steers, "\u{fffd}").into(),
        false => text.into(),
    }
}

/// A report with its headings (lines before indented ones) and its bad news marked.
fn marked(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 256);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let heading = line.starts_with(|c: char| !c.is_whitespace() && c != '{' && c != '[')
            && lines.peek().is_some_and(|next| next.starts_with("  "));
        let bad = line.trim_start().starts_with("hung: ") || line.contains(" to blame.");
        let (begin, end) = match (heading, bad) {
            (_, true) => (RED, PLAIN),
            (true, _) => (BOLD, PLAIN),
            _ => ("", ""),
        };
        let _ = writeln!(out, "{begin}{line}{end}");
    }
    if !text.ends_with('\n') {
        out.pop();
    }
    out
}

/// A line of JSON: the object, or each of an array, with its version.
#[must_use]
pub fn json(mut value: serde_json::Value) -> String {
    let versioned = |object: &mut serde_json::Value| {
        if let Some(map) = object.as_object_mut() {
            map.insert("schema".into(), SCHEMA.into());
        }
    };
    match value.as_array_mut() {
        Some(all) => all.iter_mut().for_each(versioned),
        None => versioned(&mut value),
    }
    format!("{value}\n")
}

/// One line on standard error about what is wrong, as every command begins it; gives `status`.
#[must_use]
pub fn fail(command: &str, what: impl Display, status: u8) -> ExitCode {
    eprintln!("{}", tidy(&format!("mmc-lab {command}: {what}")));
    ExitCode::from(status)
}

/// One line on standard error that the reader should know of, though nothing is wrong.
pub fn note(what: impl Display) {
    eprintln!("{}", tidy(&format!("note: {what}")));
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
    let mut text = tidy(text);
    if COLOURED.load(Ordering::Relaxed) {
        text = marked(&text).into();
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => fail(command, format_args!("cannot write the output: {e}"), 1),
    })
}

/// What a file is called on a page: its name without the folders.
#[must_use]
pub fn short(file: &Path) -> String {
    match file.file_name() {
        Some(name) if file != Path::new("-") => name.to_string_lossy().into_owned(),
        _ => named(file),
    }
}

/// What a file is called in a message.
#[must_use]
pub fn named(file: &Path) -> String {
    if file == Path::new("-") { "the standard input".into() } else { file.display().to_string() }
}

/// Writes what `render` makes to `path`, if one is given.
///
/// # Errors
/// One line that names the file and why it cannot be written.
pub fn write(path: Option<&Path>, render: impl FnOnce() -> String) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, render()).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Whether a file can be put at `path`, if one is given, as far as can be told without doing it.
///
/// # Errors
/// One line that names the file and what is wrong.
pub fn may_write(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let dir = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    if !dir.is_dir() {
        return Err(format!("cannot write {}: {} is no directory", path.display(), dir.display()));
    }
    if path.is_dir() {
        return Err(format!("cannot write {}: it is a directory", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{marked, named, tidy};
    use std::path::Path;

    #[test]
    fn nothing_in_a_trace_steers_the_terminal() {
        assert_eq!(tidy("a\u{1b}]0;evil\u{7}b\tc\n"), "a\u{fffd}]0;evil\u{fffd}b\tc\n");
        assert_eq!(tidy("jbd2/mmcblk0-8 ▁█"), "jbd2/mmcblk0-8 ▁█");
    }

    #[test]
    fn headings_and_bad_news_are_marked_and_nothing_else_changes() {
        let text = "Verdict. The queue is to blame.\n\nLongest waits\n  10 s  x\n{\"a\":1}";
        let marked = marked(text);
        assert!(marked.contains("\u{1b}[1mLongest waits\u{1b}[0m") && marked.contains("\u{1b}[1;31mVerdict"));
        let plain =
            ["\u{1b}[1;31m", "\u{1b}[1m", "\u{1b}[0m"].iter().fold(marked, |t, code| t.replace(code, ""));
        assert_eq!(plain, text);
    }

    #[test]
    fn a_dash_is_called_what_it_stands_for() {
        assert_eq!(named(Path::new("-")), "the standard input");
        assert_eq!(named(Path::new("./-")), "./-");
    }
}

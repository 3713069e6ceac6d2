//! The reports, a page a command. Every number in them is one of those that the command prints.

pub mod bonnie;
pub mod compare;
pub mod csv;
pub mod explain;
pub mod fit;
pub mod replay;
pub mod serve;
pub mod simulate;
pub mod soak;
pub mod tune;
pub mod verify;

use super::html::{Page, Table};
use super::waits;
use crate::analysis::{Class, Report};

/// Latencies of all classes of some runs, a row a run and class.
fn latencies<'a>(caption: &str, runs: impl Iterator<Item = (&'a str, &'a Report)> + Clone) -> Table {
    let mut table = Table::new(caption, waits::heads("class"));
    for class in Class::ALL {
        if runs.clone().any(|(_, report)| report.classes.get(class).n > 0) {
            for (name, report) in runs.clone() {
                let head = if name.is_empty() {
                    class.noun().to_owned() + "s"
                } else {
                    format!("{}s, {name}", class.noun())
                };
                table.row(head, waits::cells(report.classes.get(class)));
            }
        }
    }
    table
}

/// A distribution of each class that has waits, a line a run.
fn distributions<'a>(page: &mut Page, runs: impl Iterator<Item = (&'a str, &'a Report)> + Clone) {
    let mut explained = false;
    for class in Class::ALL {
        let series = waits::by_policy(runs.clone(), class);
        if series.iter().any(|s| s.stats.n > 0) {
            let (picture, numbers) =
                waits::distribution(&format!("Waits of {}s", class.noun()), &series, explained);
            page.picture(&picture, &numbers);
            explained = true;
        }
    }
}

/// What the reader should know of the input.
fn notes(page: &mut Page, notes: &[String]) {
    if !notes.is_empty() {
        page.section("Notes");
        page.list(notes, notes.len());
    }
}

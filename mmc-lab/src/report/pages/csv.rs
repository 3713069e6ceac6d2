//! The report of rows of bonnie++ side by side.

use crate::report::chart::{Picture, colour};
use crate::report::html::{Page, Table, clip};

/// One line of the comparison: what, and its cell for each run; `bars` are the same as numbers, where they are numbers.
#[derive(Clone, Debug)]
pub struct Line {
    /// Phase and unit.
    pub name: String,
    /// As printed.
    pub cells: Vec<String>,
    /// As numbers.
    pub values: Vec<Option<f64>>,
}

/// The page: a column a run.
#[must_use]
pub fn render(
    names: &[String],
    facts: &[(String, Vec<String>)],
    rates: &[Line],
    latencies: &[Line],
) -> String {
    let finding = match names {
        [one] => format!("bonnie++: {one}"),
        [first, second] => format!("bonnie++: {second} against {first}"),
        [first, ..] => format!("bonnie++: {} runs against {first}", names.len() - 1),
        [] => String::new(),
    };
    let mut page = Page::new("csv", "Runs of bonnie++", &finding, "Changes are against the first run.");
    page.section("Rates");
    let heads = || ["phase".to_owned()].into_iter().chain(names.iter().cloned());
    let mut table = Table::new("Rates of each phase; more is better", heads());
    for (what, cells) in facts {
        table.row(what.clone(), cells.clone());
    }
    rates.iter().for_each(|l| table.row(l.name.clone(), l.cells.clone()));
    page.table(&table);
    page.drawing(&bars("Rates, each phase against its best run", names, rates));
    if !latencies.is_empty() {
        page.section("Longest times");
        let mut table = Table::new("The longest single operation of each phase; less is better", heads());
        latencies.iter().for_each(|l| table.row(l.name.clone(), l.cells.clone()));
        page.table(&table);
        page.drawing(&bars("Longest times, each phase against its worst run", names, latencies));
    }
    page.finish()
}

fn bars(title: &str, names: &[String], lines: &[Line]) -> Picture {
    Picture::new(
        title,
        "A full bar is the largest number of its line; the table has the numbers.",
        |canvas| {
            let left = if canvas.narrow { 0.0 } else { 190.0 };
            let right = canvas.width - 110.0;
            let mut y = 4.0;
            for (i, name) in names.iter().enumerate() {
                canvas.raw(&format!(
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"13\" height=\"13\" style=\"fill:{}\"/>",
                    colour(i)
                ));
                canvas.text(left + 18.0, y + 11.0, "", &clip(name, 40));
                y += 19.0;
            }
            y += 8.0;
            for line in lines {
                let most = line.values.iter().flatten().copied().fold(0.0, f64::max);
                if most <= 0.0 {
                    continue;
                }
                if canvas.narrow {
                    canvas.text(0.0, y + 10.0, "soft", &line.name);
                    y += 15.0;
                } else {
                    canvas.text(left - 8.0, y + 6.0 + 6.5 * line.values.len() as f64, "soft end", &line.name);
                }
                for (i, (value, cell)) in line.values.iter().zip(&line.cells).enumerate() {
                    let w = value.unwrap_or(0.0) / most * (right - left);
                    canvas.raw(&format!(
                    "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"11\" style=\"fill:{}\"/>",
                    colour(i)
                ));
                    canvas.text(left + w + 6.0, y + 10.0, "small", cell);
                    y += 14.0;
                }
                y += 8.0;
            }
            canvas.height = y;
        },
    )
}

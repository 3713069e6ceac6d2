//! The report of a card fitted to a trace.

use crate::report::chart::Picture;
use crate::report::html::{Page, Table};

/// One number of the fit, as printed, and the interval as a share of its value.
#[derive(Clone, Debug)]
pub struct Row {
    /// What.
    pub name: String,
    /// Value and unit, or that the trace does not tell.
    pub value: String,
    /// From and to, with the unit.
    pub interval: String,
    /// Lower and upper end, both over the value.
    pub around: Option<(f64, f64)>,
}

/// The page.
#[must_use]
pub fn render(name: &str, about: &str, rows: &[Row], notes: &[String]) -> String {
    let told = rows.iter().filter(|r| !r.interval.is_empty()).count();
    let finding = format!("The card below {name}: {told} of {} numbers told", rows.len());
    let mut page = Page::new("card fit", &format!("A card fitted to {name}"), &finding, about);
    page.section("What the trace tells of the card");
    let mut table = Table::new("Each number with its interval", ["number", "value", "interval"]);
    rows.iter().for_each(|r| table.row(r.name.clone(), [r.value.clone(), r.interval.clone()]));
    page.table(&table);
    let text = "The dot is the value, the line the interval: from half to double the value, logarithmic; what goes beyond is cut.";
    let picture = Picture::new("How sure each number is", text, |canvas| {
        let left = if canvas.narrow { 120.0 } else { 190.0 };
        let right = canvas.width - 20.0;
        let x = |share: f64| left + (share.clamp(0.5, 2.0).log2() + 1.0) / 2.0 * (right - left);
        let mut y = 8.0;
        for row in rows {
            let Some((low, high)) = row.around else { continue };
            canvas.text(left - 10.0, y + 12.0, "soft end", &row.name);
            canvas.raw(&format!(
                "<path d=\"M{:.1} {1:.1}H{2:.1}\" style=\"stroke:var(--p1)\" stroke-width=\"3\"/><circle cx=\"{3:.1}\" cy=\"{1:.1}\" r=\"5\" \
                 style=\"fill:var(--p0)\"/>",
                x(low),
                y + 8.0,
                x(high),
                x(1.0)
            ));
            y += 24.0;
        }
        for (share, word) in [(0.5, "half"), (1.0, "the value"), (2.0, "double")] {
            canvas.path("grid", &format!("M{:.1} 0V{y:.1}", x(share)));
            let class = if share > 1.5 { "soft end" } else { "soft mid" };
            canvas.text(if share > 1.5 { canvas.width } else { x(share) }, y + 16.0, class, word);
        }
        canvas.height = y + 22.0;
    });
    page.drawing(&picture);
    super::notes(&mut page, notes);
    page.finish()
}

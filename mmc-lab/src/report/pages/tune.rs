//! The report of a search for a better setting.

use crate::report::front::front;
use crate::report::html::{Key, Page};
use crate::tune::Candidate;
use crate::units::format_time;

/// The page: `words` say what is recommended and why, `lines` set it (none if it is set already); `all` begins with how
/// it is now.
#[must_use]
pub fn render(
    name: &str,
    words: &[String],
    lines: &str,
    (all, best): (&[Candidate], &Candidate),
    goal: &str,
    notes: &[String],
) -> String {
    let Some(now) = all.first() else { return String::new() };
    let fastest = all.iter().map(|c| c.rate).fold(0.0, f64::max).max(1.0);
    let label = best.setting.label(&now.setting);
    let finding = if std::ptr::eq(now, best) {
        format!("Leave it as it is: {label}")
    } else {
        format!(
            "{label}: p99 of the {goal} {} instead of {}",
            format_time(best.stall),
            format_time(now.stall)
        )
    };
    let about = format!(
        "{} settings tried on the workload of {name}, each as a replay: predictions, not measurements.",
        all.len()
    );
    let mut page = Page::new("tune", &format!("A setting for {name}"), &finding, &about);
    let key = |word: &str, c: &Candidate| {
        Key::new(
            format!("{word}: {}", c.setting.label(&now.setting)),
            format_time(c.stall),
            format!("p99; {:.2} MB/s, {:.1} % of the best", c.rate / 1e6, c.rate / fastest * 100.0),
        )
    };
    let mut keys = vec![key("now", now)];
    if !std::ptr::eq(now, best) {
        keys.push(key("recommended", best));
    }
    page.keys(&keys);
    page.section("Recommendation");
    words.iter().for_each(|w| page.text(w));
    if !lines.is_empty() {
        page.lines("The lines that set it", lines, false);
    }
    page.section("Stall against throughput");
    let (picture, [front, every]) = front(all, best, goal);
    page.drawing(&picture);
    page.table(&front);
    page.folded("All that was tried", &every);
    super::notes(&mut page, notes);
    page.finish()
}

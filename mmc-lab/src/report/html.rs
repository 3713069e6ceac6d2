//! placeholder
use crate::experiment::Outcome;
/// The report.
#[must_use]
pub fn render(_: &[Outcome]) -> String {
    String::new()
}

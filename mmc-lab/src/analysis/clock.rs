//! Judging the clock of a trace: how fine its stamps are, and whether they can order events.

use serde::Serialize;

use super::class::optional_seconds;
use crate::trace::order::WINDOW;

/// Coarser than this, and a request can be queued, sent and done within one step: the stamps cannot order events.
/// Below the service time of the fastest read of a card (about 0.2 ms).
const TOO_COARSE: u64 = 100_000;

/// How good the stamps of a trace are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// Its name, if the trace tells: `mono`, `local`, …
    pub name: Option<String>,
    /// Its step, nanoseconds (seconds in the JSON): what all steps between two stamps are multiples of, or for a coarse
    /// clock the smallest step. `None` if there is no step at all.
    #[serde(rename = "granularity_s", serialize_with = "optional_seconds")]
    pub granularity: Option<u64>,
    /// Whether stamps order events of different CPUs: fine enough, and none earlier than the one before.
    pub ordered: bool,
    /// Events whose stamp is earlier than that of the event before in the file. Not in the JSON.
    #[serde(skip)]
    pub backwards: u64,
    /// Events that came too late to be put in the order of their stamps. Not in the JSON.
    #[serde(skip)]
    pub late: u64,
    /// Completions with a stamp before their request's issue. Not in the JSON.
    #[serde(skip)]
    pub early: u64,
}

impl Clock {
    /// What is wrong with it and how to record a better trace, or `None`.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        const BETTER: &str = "record again with `echo mono > /sys/kernel/tracing/trace_clock` (ftrace) or \
            `perf record --clockid mono` (perf)";
        if self.backwards > 0 {
            let late = match self.late {
                0 => "they were put in the order of their stamps".to_owned(),
                n => format!(
                    "they were put in the order of their stamps, but for {n} that came more than {WINDOW} events too late"
                ),
            };
            Some(format!(
                "{} events have a stamp earlier than the event before them: the stamps of the CPUs do not agree, or \
                 the file is not in order; {late}; {BETTER}.",
                self.backwards
            ))
        } else if self.early > 0 {
            Some(format!(
                "{} completions have a stamp before the issue of their request: the clocks of the CPUs do not agree, and no \
                 service time below that means anything (such a request has none); {BETTER}.",
                self.early
            ))
        } else if !self.ordered {
            let step = crate::units::format_time(self.granularity.unwrap_or(0));
            Some(format!(
                "The clock of this trace steps by {step}: too coarse to order events across CPUs, and no time below \
                 that means anything (events of one request are put in their natural order); {BETTER}."
            ))
        } else {
            None
        }
    }
}

/// Watches stamps go by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    last: Option<u64>,
    least: Option<u64>,
    common: u64,
    ties: u64,
    backwards: u64,
}

impl Meter {
    pub(crate) fn push(&mut self, at: u64) {
        if let Some(last) = self.last {
            if at > last {
                let step = at - last;
                self.least = Some(self.least.map_or(step, |least| least.min(step)));
                if self.common != 1 {
                    self.common = common_divisor(self.common, step);
                }
            } else if at == last {
                self.ties += 1;
            } else {
                self.backwards += 1;
            }
        }
        self.last = Some(at);
    }

    /// A big smallest step alone proves nothing (events may be rare); stamps that tie as well do. Then the smallest step
    /// is the clock's, since ticks of 1/300 s are printed rounded and have no common divisor worth the name.
    pub(crate) fn judge(&self) -> Clock {
        let coarse = self.least.is_none_or(|least| least > TOO_COARSE) && self.ties > 0;
        let granularity = if coarse { self.least } else { self.least.map(|_| self.common) };
        let ordered = !coarse && self.backwards == 0;
        Clock { name: None, granularity, ordered, backwards: self.backwards, ..Clock::default() }
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(stamps: impl IntoIterator<Item = u64>) -> Clock {
        let mut meter = Meter::default();
        stamps.into_iter().for_each(|at| meter.push(at));
        meter.judge()
    }

    #[test]
    fn steps_of_ten_milliseconds_cannot_order() {
        let clock = judge((0..100).map(|i| i / 7 * 10_000_000));
        assert_eq!(clock.granularity, Some(10_000_000));
        assert!(!clock.ordered);
        assert!(clock.advice().unwrap().contains("steps by 10 ms"));
    }

    #[test]
    fn rare_events_are_no_proof_of_a_coarse_clock() {
        assert!(judge([0, 1_000_000_000, 3_000_000_000]).ordered);
        assert!(judge([5]).ordered);
        let fine = judge([0, 2_000, 2_000, 5_000, 90_000]);
        assert!(fine.ordered && fine.granularity == Some(1_000) && fine.advice().is_none());
    }

    #[test]
    fn ticks_that_were_rounded_are_seen() {
        let clock = judge((0..300).map(|i| i / 5 * 3_333_333 / 1_000 * 1_000));
        assert!(!clock.ordered && clock.granularity == Some(3_333_000));
    }

    #[test]
    fn stamps_that_go_back_are_counted() {
        let clock = judge([10_000, 5_000, 20_000]);
        assert_eq!((clock.backwards, clock.ordered), (1, false));
        assert!(clock.advice().unwrap().starts_with("1 events"));
    }
}

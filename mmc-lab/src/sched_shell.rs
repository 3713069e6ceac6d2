//! One policy driven by hand: a command a line, a reply line each.
//!
//! It is not a simulation: there is no device, and time moves only when told to.
//!
//! Two protocols, those of the recorded answers of real kernels: [`kernel`] for `mq-deadline` (what Linux itself
//! tells apart: requests, bios, its counters), [`streams`] for all others.

pub mod bounds;
pub mod kernel;
pub mod streams;

use mmc_sched::mq_deadline::Rules;
use mmc_sched::{AnyPolicy, MqDeadline, Policy, Scheduler, TuneError};
use std::fmt::Display;
use std::str::{FromStr, SplitWhitespace};

/// Requests that fit into a shell's pool, merged and dispatched ones included.
pub const SLOTS: usize = 16_384;

/// A policy that answers lines.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one")]
pub enum Shell {
    /// `mq-deadline`.
    Kernel(kernel::Shell),
    /// Any other.
    Streams(streams::Shell),
}

impl Shell {
    /// The policy `name` with the rules of a kernel (`mq-deadline` only) and these tunables, which are set again by
    /// `reset`.
    ///
    /// # Errors
    /// One line naming the value and what is accepted.
    pub fn new(name: &str, rules: Option<&str>, sets: &[(String, String)]) -> Result<Self, String> {
        let (plain, suffix) = name.split_once('/').map_or((name, None), |(n, r)| (n, Some(r)));
        if plain != "mq-deadline" {
            if let Some(rules) = rules {
                return Err(format!("--rules {rules}: only mq-deadline has rule sets, {name} has none"));
            }
            let policy = AnyPolicy::by_name(name).map_err(|e| format!("'{name}': {e}"))?;
            return streams::Shell::new(policy, sets).map(Self::Streams);
        }
        if let (Some(a), Some(b)) = (suffix, rules)
            && a != b
        {
            return Err(format!("{name} and --rules {b} contradict each other: give one of them"));
        }
        let rules = match suffix.or(rules) {
            None | Some("7.3") => Rules::V7_3,
            Some("5.10") => Rules::V5_10,
            Some(other) => {
                return Err(format!("'{other}' is no rule set of mq-deadline: accepted are 7.3, 5.10"));
            }
        };
        kernel::Shell::new(MqDeadline::with_rules(rules), sets).map(Self::Kernel)
    }

    /// The reply to one line, without its end; `None`: the line was `x`, the end.
    pub fn line(&mut self, line: &str) -> Option<String> {
        let word = line.split_whitespace().next();
        let reply = match word {
            None => Err("the line is empty".to_owned()),
            Some("x") => return None,
            Some(word) => {
                // What follows the word and one space, verbatim: values may end in spaces.
                let rest = line.trim_start().strip_prefix(word).unwrap_or_default();
                let rest = rest.strip_prefix(char::is_whitespace).unwrap_or(rest);
                match self {
                    Self::Kernel(s) => s.command(word, rest),
                    Self::Streams(s) => s.command(word, rest),
                }
            }
        };
        Some(reply.unwrap_or_else(|fault| format!("E {fault}")))
    }
}

/// Sets the tunables a user asked for.
fn apply<P: Policy>(policy: &mut P, sets: &[(String, String)]) -> Result<(), String> {
    for (name, text) in sets {
        if let Err(e) = policy.tune(name, text) {
            let known: Vec<_> = (0..).map_while(|i| policy.tunable(i)).map(|t| t.name).collect();
            return Err(refused("--set", policy.name(), name, text, e, &known));
        }
    }
    Ok(())
}

/// One line about a tunable that was not set.
fn refused(word: &str, policy: &str, name: &str, text: &str, why: TuneError, known: &[&str]) -> String {
    match why {
        TuneError::Unknown if known.is_empty() => {
            format!("{word} {name}: {policy} has no tunables")
        }
        TuneError::Unknown => {
            format!("{word} {name}: {policy} has no such tunable; it has {}", known.join(", "))
        }
        why => format!("{word} {name}: {text:?} is {why}"),
    }
}

/// Names of the tunables.
fn tunables(queue: &impl Scheduler) -> Vec<&'static str> {
    (0..).map_while(|i| queue.tunable(i)).map(|t| t.name).collect()
}

/// The fields behind a command's word.
struct Fields<'a> {
    word: &'a str,
    fields: SplitWhitespace<'a>,
}

impl<'a> Fields<'a> {
    fn new(word: &'a str, rest: &'a str) -> Self {
        Self { word, fields: rest.split_whitespace() }
    }
    /// The next field, if there is one.
    fn maybe(&mut self) -> Option<&'a str> {
        self.fields.next()
    }
    /// Whether there is another field.
    fn more(&self) -> bool {
        self.fields.clone().next().is_some()
    }
    /// The next field.
    fn text(&mut self, what: &str) -> Result<&'a str, String> {
        self.fields.next().ok_or_else(|| format!("{}: {what} is missing", self.word))
    }
    /// The next field as a number within limits.
    fn number<T>(&mut self, what: &str, min: T, max: T) -> Result<T, String>
    where
        T: FromStr + PartialOrd + Display,
    {
        let text = self.text(what)?;
        // No sign: "+5" and "-5" are not numbers here.
        let digits = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<T>().ok()).flatten();
        digits
            .filter(|v| *v >= min && *v <= max)
            .ok_or_else(|| format!("{}: {what} {text:?} is not a number from {min} to {max}", self.word))
    }
    /// No field is left.
    fn end(&mut self) -> Result<(), String> {
        match self.fields.next() {
            None => Ok(()),
            Some(more) => Err(format!("{}: one field too many, {more:?}", self.word)),
        }
    }
}

//! Scripts: what goes wrong, when, as plain data.

use crate::card::Card;
use crate::dw::{Dw, Fault};
use mmc_time::{Duration, Instant};
use std::fmt;

/// A list of rules, and what decides their random choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(::serde::Serialize, ::serde::Deserialize), serde(deny_unknown_fields))]
pub struct Script {
    /// Decides the survivors of `power-loss random`, nothing else.
    #[cfg_attr(feature = "serde", serde(default))]
    pub seed: u64,
    /// The card keeps the last so many written blocks of 512 bytes volatile: what [`Action::PowerLoss`] can take. 0: a
    /// block is durable once the card is no longer busy with it. A card with a cache of its own goes by that, where it is on,
    /// instead.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cache: u32,
    /// What goes wrong. Rules that are due at the same command strike in this order.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rules: Vec<Rule>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// When.
    pub when: When,
    /// What.
    pub what: Action,
}

/// When a rule strikes. All but [`When::Every`] strike once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// `at frame N`: at the N-th command frame (from 0), CMD55 included.
    Frame(u64),
    /// `at CMD17#2`, `at ACMD41`: at the third CMD17, at the first ACMD41. The command behind CMD55 is always an ACMD.
    Command {
        /// It follows CMD55.
        app: bool,
        /// 0..=63.
        index: u8,
        /// How many of it came before.
        nth: u32,
    },
    /// `every CMD24`: each time.
    Every {
        /// It follows CMD55.
        app: bool,
        /// 0..=63.
        index: u8,
    },
    /// `at 250ms`: at this instant. What strikes at a command strikes at the first one from then on.
    Instant(Instant),
    /// `at access N`: just before the N-th register access from the arming on (1: the next one). For faults of the host only.
    Access(u64),
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// `lost`: the command never reaches the card.
    Lost,
    /// `no-answer`: the card does what it was told, its response is lost; so is the data phase of a read, a write waits
    /// for its blocks.
    NoAnswer,
    /// `command-crc`: the card sees a wrong CRC7, does nothing, and says COM_CRC_ERROR in its next status (in SPI mode: at once).
    CommandCrc,
    /// `response-crc`: the CRC7 of the response is wrong (of R3, which has none: its end bit).
    ResponseCrc,
    /// `response-index`: the response carries another index, and the right CRC7.
    ResponseIndex,
    /// `response-end`: the end bit of the response is 0.
    ResponseEnd,
    /// `status 0x…`: these bits are set in the card status of this answer or, if it carries none, of the next that does.
    Status(u32),
    /// `late D`: the blocks of this read come later by D.
    Late(Duration),
    /// `busy D`: after this command and its data DAT0 is low for D at least; `busy forever`: until the supply is
    /// switched off.
    Busy(Duration),
    /// `block K …`: block K (from 0) of this data phase.
    Block(u32, BlockFault),
    /// `remove`: the card leaves the slot.
    Remove,
    /// `insert`: it is back, without state; the supply is as the host left it.
    Insert,
    /// `swap N`: another card is in the slot, the N-th (from 0) of those given to [`Faulty`](super::Faulty). The
    /// one that was there takes its number.
    Swap(usize),
    /// `power-loss …`: the supply fails and comes back at once, with the clocks of power-up. The card forgets its state, and of the
    /// blocks that were not durable only some were programmed.
    PowerLoss(Keep),
    /// `rot SECTOR BYTE.BIT`: this stored bit flips.
    Rot {
        /// Sector of 512 bytes.
        sector: u64,
        /// Byte of it.
        byte: u16,
        /// Bit of it, 0 the lowest.
        bit: u8,
    },
    /// `host …`: of the controller model ([`Script::arm`]). [`Faulty`](super::Faulty) leaves it alone.
    Host(Fault),
}

/// What can be wrong with a block on the data lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockFault {
    /// `crc`: a read block has a wrong CRC16, a written one gets the token for it and is not stored.
    Crc,
    /// `missing`: a read block and all after it do not come, a written one gets no token and is not stored.
    Missing,
    /// `flip BYTE.BIT`: this bit is wrong, and nothing tells so.
    Flip {
        /// Byte of the block; one behind its end is none.
        byte: u16,
        /// Bit of it, 0 the lowest.
        bit: u8,
    },
}

/// Which of the blocks that were not durable a loss of power leaves programmed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// `all`.
    All,
    /// `none`.
    None,
    /// `random`: a subset in an order that the seed of the script decides.
    Random,
    /// `3,0,1`: these (0: the oldest) in this order; numbers that are not there are ignored.
    List(Vec<u32>),
}

/// A rule that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule}, {field}: {problem}")]
pub struct Invalid {
    /// Its number, from 1.
    pub rule: usize,
    /// The part that is wrong: `trigger` or `action`.
    pub field: &'static str,
    /// What is wrong, and what is accepted.
    pub problem: String,
}

impl Rule {
    /// What is wrong with this rule by itself: the field and the problem.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        if let When::Command { index, .. } | When::Every { index, .. } = self.when
            && index > 63
        {
            return Some(("trigger", format!("there is no CMD{index}; commands are 0 to 63")));
        }
        match (self.when, &self.what) {
            (When::Instant(t), _) if t.is_never() => {
                Some(("trigger", "an instant that never comes; leave the rule out".into()))
            }
            (When::Command { .. } | When::Every { .. }, Action::Host(_)) => Some((
                "trigger",
                "a controller does not know commands by name; a host fault strikes `at frame N`, at an instant or \
                 `at access N`"
                    .into(),
            )),
            (When::Frame(_), Action::Host(f)) if !f.of_command() => Some((
                "trigger",
                "this host fault does not belong to a command; give an instant or `at access N`".into(),
            )),
            (When::Access(_), what) if !matches!(what, Action::Host(_)) => {
                Some(("trigger", "a card sees no register accesses; `at access N` is for host faults".into()))
            }
            (_, Action::Late(Duration::MAX)) => {
                Some(("action", "blocks that never come; write `block 0 missing`".into()))
            }
            (_, Action::Block(_, BlockFault::Flip { bit, .. }) | Action::Rot { bit, .. }) if *bit > 7 => {
                Some(("action", format!("a byte has bits 0 to 7, not {bit}")))
            }
            (_, Action::Rot { byte, .. }) if *byte > 511 => {
                Some(("action", format!("a sector has bytes 0 to 511, not {byte}")))
            }
            _ => None,
        }
    }
}

impl Script {
    /// Whether every rule can be.
    ///
    /// # Errors
    /// [`Invalid`] names the first that cannot.
    pub fn check(&self) -> Result<(), Invalid> {
        let problem = |(i, r): (usize, &Rule)| r.problem().map(|p| (i, p));
        match self.rules.iter().enumerate().find_map(problem) {
            Some((i, (field, problem))) => Err(Invalid { rule: i + 1, field, problem }),
            None => Ok(()),
        }
    }
    /// Gives the controller model its part: the rules whose action is [`Action::Host`]. `at frame N` and `at access N`
    /// count from now on. The rest is for a [`Faulty`](super::Faulty) card in its slot.
    ///
    /// # Errors
    /// [`Invalid`], and nothing is armed.
    pub fn arm<C: Card>(&self, dw: &Dw<C>) -> Result<(), Invalid> {
        self.check()?;
        for rule in &self.rules {
            let Action::Host(fault) = rule.what else { continue };
            match rule.when {
                When::Frame(n) => dw.inject_after(u32::try_from(n).unwrap_or(u32::MAX), fault),
                When::Instant(at) => dw.inject_at(at, fault),
                When::Access(n) => dw.inject_at_access(n, fault),
                When::Command { .. } | When::Every { .. } => {}
            }
        }
        Ok(())
    }
    /// Prints the script on standard error if the thread panics while this lives: what a failed test has to tell.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        OnFailure(self.to_string())
    }
}

/// See [`Script::on_failure`].
#[derive(Debug)]
pub struct OnFailure(String);

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the fault script was:\n{}", self.0);
        }
    }
}

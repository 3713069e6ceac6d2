//! What to do after an error, as a table of data: a decision without input or output (`spec/card.md` §18).
//!
//! The conversations have already stopped the card and waited for it ([`Recover`](super::Recover)); what is decided
//! here is what comes then. A caller with other wishes hands in a table of its own.

use super::transfer::TransferCause;
use super::{After, TalkError, TransferError};
use crate::host::{Cause, Phase};
use crate::status::CardStatus;
use mmc_hal::Dir;

/// What kind of trouble an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// The card has left the slot.
    Gone,
    /// The request, or the caller's order of things, was wrong; or it was aborted.
    Request,
    /// The card says no and will say it again: protected, locked, out of range.
    Denied,
    /// A command came to nothing: no answer, or a damaged one.
    Silent,
    /// Data were damaged on the way.
    DataCrc,
    /// Data, or some of them, did not come in time.
    DataLate,
    /// The card's electronics failed: its error correction, its controller.
    Electronics,
    /// A sequence was interrupted by a foreign command (erase).
    Sequence,
    /// The card refused a value of CMD6: that value will be refused again.
    Switch,
    /// The card is not ready within its limit, or silent.
    Stuck,
    /// The controller or its DMA failed.
    Controller,
    /// The switch to 1.8 V failed.
    Voltage,
}

impl Trouble {
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::Gone,
        Self::Request,
        Self::Denied,
        Self::Silent,
        Self::DataCrc,
        Self::DataLate,
        Self::Electronics,
        Self::Sequence,
        Self::Switch,
        Self::Stuck,
        Self::Controller,
        Self::Voltage,
    ];

    /// The kind of an error: what went wrong, what the card said, what it was afterwards.
    #[must_use]
    pub fn of(cause: &TransferCause, status: Option<CardStatus>, after: After) -> Self {
        let kind = match cause {
            TransferCause::Host(e) => match (e.cause, e.phase) {
                (Cause::NoCard, _) => Self::Gone,
                (Cause::VoltageSwitch, _) => Self::Voltage,
                (Cause::Unsupported(_) | Cause::Busy | Cause::Aborted, _) => Self::Request,
                (Cause::Dma | Cause::Controller, _) => Self::Controller,
                (Cause::Crc | Cause::Framing | Cause::NoCrcStatus, Phase::Data) => Self::DataCrc,
                (Cause::Timeout | Cause::Limit, Phase::Data) => Self::DataLate,
                (_, Phase::Busy) => Self::Stuck,
                _ => Self::Silent,
            },
            TransferCause::Short(_) => Self::DataLate,
            TransferCause::NotReady => Self::Stuck,
            TransferCause::Card => Self::said(status.unwrap_or_default()),
            TransferCause::Register(_) => Self::DataCrc,
            TransferCause::Password | TransferCause::Rpmb(_) => Self::Denied,
            _ => Self::Request,
        };
        match (kind, after) {
            (Self::Request | Self::Voltage, _) => kind,
            (_, After::Gone) => Self::Gone,
            (_, After::NotReady) => Self::Stuck,
            _ => kind,
        }
    }
    fn said(status: CardStatus) -> Self {
        let sequence = CardStatus::ERASE_RESET.union(CardStatus::ERASE_SEQ_ERROR);
        let denied = CardStatus::ERRORS.difference(CardStatus::TRANSIENT).difference(sequence);
        if status.contains(CardStatus::SWITCH_ERROR) {
            Self::Switch
        } else if status.intersects(denied.difference(CardStatus::ILLEGAL_COMMAND)) {
            Self::Denied
        } else if status.intersects(sequence) {
            Self::Sequence
        } else {
            Self::Electronics
        }
    }
}

impl From<&TransferError> for Trouble {
    fn from(e: &TransferError) -> Self {
        Self::of(&e.cause, e.status, e.after)
    }
}

impl From<&TalkError> for Trouble {
    fn from(e: &TalkError) -> Self {
        Self::of(&e.cause, e.status, e.after)
    }
}

/// One step of a cure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cure {
    /// Ask how many blocks of the write are stored (SD: ACMD22; eMMC: `CORRECTLY_PRG_SECTORS_NUM`) and go on behind
    /// them; if it cannot be known, from the start.
    CountStored,
    /// Find the sample point again.
    Retune,
    /// The next slower mode, without a power cycle where the signal level stays.
    Slower,
    /// A high priority interrupt.
    Interrupt,
    /// Identify the card anew, in the same mode; select the partition again.
    Reset,
    /// Switch the supply off and on, then identify anew.
    PowerCycle,
    /// The request again.
    Again,
    /// The request again, block by block (native sectors), each with its own result: what can be read is.
    SingleBlocks,
    /// Tell the caller.
    GiveUp,
}

bitflags::bitflags! {
    /// What card and host have; a cure that needs what is missing is left out.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Means: u8 {
        /// The card says how many blocks were stored.
        const COUNT = 1 << 0;
        /// The bus is in a mode that is tuned.
        const TUNED = 1 << 1;
        /// There is a slower mode than the present one.
        const SLOWER = 1 << 2;
        /// High priority interrupts are on.
        const INTERRUPT = 1 << 3;
        /// The supply can be switched.
        const POWER = 1 << 4;
    }
}

impl Cure {
    const fn needs(self) -> Means {
        match self {
            Self::CountStored => Means::COUNT,
            Self::Retune => Means::TUNED,
            Self::Slower => Means::SLOWER,
            Self::Interrupt => Means::INTERRUPT,
            Self::PowerCycle => Means::POWER,
            Self::Reset | Self::Again | Self::SingleBlocks | Self::GiveUp => Means::empty(),
        }
    }
}

/// One row: for this trouble, from this attempt on, these cures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The kind of trouble.
    pub trouble: Trouble,
    /// Of a read, of a write, or of anything.
    pub dir: Option<Dir>,
    /// From this attempt on; 0 is the first time the request failed.
    pub from: u8,
    /// In this order.
    pub cures: &'static [Cure],
}

const fn rule(trouble: Trouble, dir: Option<Dir>, from: u8, cures: &'static [Cure]) -> Rule {
    Rule { trouble, dir, from, cures }
}

/// The policy of `spec/card.md` §18: a command up to five times, data twice, then reads block by block; a reset once,
/// before the last attempt. What has no row is given up.
pub const POLICY: &[Rule] = {
    use Cure::{Again, CountStored, GiveUp, Interrupt, PowerCycle, Reset, Retune, SingleBlocks, Slower};
    use Trouble::{Controller, DataCrc, DataLate, Electronics, Sequence, Silent, Stuck, Voltage};
    const READ: Option<Dir> = Some(Dir::Read);
    const WRITE: Option<Dir> = Some(Dir::Write);
    &[
        rule(Silent, None, 0, &[Again]),
        rule(Silent, None, 5, &[Reset, Again]),
        rule(Silent, None, 6, &[GiveUp]),
        rule(DataCrc, READ, 0, &[Retune, Again]),
        rule(DataCrc, READ, 2, &[Slower, SingleBlocks]),
        rule(DataCrc, READ, 3, &[Reset, Slower, SingleBlocks]),
        rule(DataCrc, READ, 4, &[GiveUp]),
        rule(DataCrc, WRITE, 0, &[CountStored, Retune, Again]),
        rule(DataCrc, WRITE, 2, &[Reset, Slower, Again]),
        rule(DataCrc, WRITE, 3, &[GiveUp]),
        rule(DataLate, READ, 0, &[Again]),
        rule(DataLate, READ, 2, &[SingleBlocks]),
        rule(DataLate, READ, 3, &[Reset, SingleBlocks]),
        rule(DataLate, READ, 4, &[GiveUp]),
        rule(DataLate, WRITE, 0, &[CountStored, Again]),
        rule(DataLate, WRITE, 2, &[Reset, Again]),
        rule(DataLate, WRITE, 3, &[GiveUp]),
        rule(Electronics, READ, 0, &[Again]),
        rule(Electronics, READ, 2, &[SingleBlocks]),
        rule(Electronics, READ, 3, &[Reset, SingleBlocks]),
        rule(Electronics, READ, 4, &[GiveUp]),
        rule(Electronics, WRITE, 0, &[CountStored, Again]),
        rule(Electronics, WRITE, 2, &[Reset, Again]),
        rule(Electronics, WRITE, 3, &[GiveUp]),
        rule(Electronics, None, 0, &[Again]),
        rule(Electronics, None, 2, &[GiveUp]),
        rule(DataCrc, None, 0, &[Retune, Again]),
        rule(DataCrc, None, 2, &[Slower, Again]),
        rule(DataCrc, None, 3, &[GiveUp]),
        rule(DataLate, None, 0, &[Again]),
        rule(DataLate, None, 2, &[GiveUp]),
        rule(Sequence, None, 0, &[Again]),
        rule(Sequence, None, 2, &[GiveUp]),
        rule(Stuck, None, 0, &[Interrupt, Reset, Again]),
        rule(Stuck, None, 1, &[PowerCycle, Reset, Again]),
        rule(Stuck, None, 2, &[GiveUp]),
        rule(Controller, None, 0, &[Again]),
        rule(Controller, None, 2, &[Reset, Again]),
        rule(Controller, None, 3, &[GiveUp]),
        rule(Voltage, None, 0, &[PowerCycle, Again]),
        rule(Voltage, None, 1, &[GiveUp]),
    ]
};

/// What to do about `trouble` of a read, a write, or something else, which is the `attempt`-th failure of the request
/// (from 0), with these means. Of the rows of `policy` that fit, those of the direction itself come first, and of them
/// the one with the highest attempt that has been reached. Never empty; the last step is [`Cure::Again`],
/// [`Cure::SingleBlocks`] or [`Cure::GiveUp`] in [`POLICY`]. Where the supply cannot be switched nothing helps a failed
/// voltage switch: it is given up.
pub fn plan(
    policy: &'static [Rule],
    trouble: Trouble,
    dir: Option<Dir>,
    attempt: u8,
    means: Means,
) -> impl Iterator<Item = Cure> {
    let best = |dir: Option<Dir>| {
        let fits = policy.iter().filter(move |r| r.trouble == trouble && r.dir == dir && r.from <= attempt);
        fits.max_by_key(|r| r.from)
    };
    let found = dir.and_then(|_| best(dir)).or_else(|| best(None));
    let hopeless = matches!(trouble, Trouble::Voltage) && !means.contains(Means::POWER);
    let cures = match found {
        Some(rule) if !hopeless => rule.cures,
        _ => &[Cure::GiveUp],
    };
    cures.iter().copied().filter(move |cure| means.contains(cure.needs()))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::host::HostError;
    use std::vec::Vec;

    const DIRS: [Option<Dir>; 3] = [None, Some(Dir::Read), Some(Dir::Write)];

    fn cures(trouble: Trouble, dir: Option<Dir>, attempt: u8, means: Means) -> Vec<Cure> {
        plan(POLICY, trouble, dir, attempt, means).collect()
    }

    #[test]
    fn every_trouble_comes_to_an_end_whatever_the_means() {
        for trouble in Trouble::ALL {
            for dir in DIRS {
                for bits in 0..32 {
                    let means = Means::from_bits_truncate(bits);
                    let mut ended = false;
                    for attempt in 0..=u8::MAX {
                        let cures = cures(trouble, dir, attempt, means);
                        let last = cures.last().copied();
                        let at_end = last == Some(Cure::GiveUp);
                        assert!(
                            at_end || matches!(last, Some(Cure::Again | Cure::SingleBlocks)),
                            "{trouble:?} {dir:?} {attempt}: {cures:?}"
                        );
                        assert!(!ended || at_end, "{trouble:?} {dir:?}: goes on after giving up");
                        ended = at_end;
                        assert!(ended || attempt < 6, "{trouble:?} {dir:?} is tried for ever");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_help_is_not_tried() {
        for trouble in [Trouble::Gone, Trouble::Request, Trouble::Denied, Trouble::Switch] {
            for dir in DIRS {
                assert_eq!(cures(trouble, dir, 0, Means::all()), [Cure::GiveUp]);
            }
        }
        assert_eq!(cures(Trouble::Voltage, None, 0, Means::empty()), [Cure::GiveUp]);
        assert_eq!(cures(Trouble::Voltage, None, 0, Means::POWER), [Cure::PowerCycle, Cure::Again]);
    }

    #[test]
    fn the_way_of_the_specification() {
        use Cure::{Again, CountStored, GiveUp, Interrupt, PowerCycle, Reset, Retune, SingleBlocks, Slower};
        let read = |attempt| cures(Trouble::DataCrc, Some(Dir::Read), attempt, Means::all());
        assert_eq!([read(0), read(1)], [[Retune, Again], [Retune, Again]], "two full retries, tuned anew");
        assert_eq!(read(2), [Slower, SingleBlocks]);
        assert_eq!(read(3), [Reset, Slower, SingleBlocks], "a reset before the last");
        assert_eq!(read(4), [GiveUp]);
        let plain = cures(Trouble::DataCrc, Some(Dir::Read), 0, Means::empty());
        assert_eq!(plain, [Again], "a bus that is not tuned is not tuned anew");
        let write = |attempt| cures(Trouble::DataLate, Some(Dir::Write), attempt, Means::COUNT);
        assert_eq!(write(0), [CountStored, Again]);
        assert_eq!((write(2), write(3)), (std::vec![Reset, Again], std::vec![GiveUp]));
        let silent = |attempt| cures(Trouble::Silent, None, attempt, Means::empty());
        assert_eq!((silent(4), silent(5)), (std::vec![Again], std::vec![Reset, Again]));
        let stuck = |attempt| cures(Trouble::Stuck, Some(Dir::Write), attempt, Means::all());
        assert_eq!(
            (stuck(0), stuck(1)),
            (std::vec![Interrupt, Reset, Again], std::vec![PowerCycle, Reset, Again])
        );
    }

    #[test]
    fn errors_are_told_apart() {
        let host = |cause, phase| TransferCause::Host(HostError::new(cause, phase, 18));
        let of = |cause: TransferCause, after| Trouble::of(&cause, None, after);
        for (cause, phase, trouble) in [
            (Cause::Timeout, Phase::Command, Trouble::Silent),
            (Cause::Crc, Phase::Command, Trouble::Silent),
            (Cause::Crc, Phase::Data, Trouble::DataCrc),
            (Cause::NoCrcStatus, Phase::Data, Trouble::DataCrc),
            (Cause::Timeout, Phase::Data, Trouble::DataLate),
            (Cause::Limit, Phase::Busy, Trouble::Stuck),
            (Cause::Dma, Phase::Data, Trouble::Controller),
            (Cause::NoCard, Phase::Data, Trouble::Gone),
            (Cause::Aborted, Phase::Data, Trouble::Request),
            (Cause::VoltageSwitch, Phase::Bus, Trouble::Voltage),
        ] {
            assert_eq!(of(host(cause, phase), After::Ready), trouble, "{cause:?} {phase:?}");
        }
        let crc = host(Cause::Crc, Phase::Data);
        assert_eq!(of(crc, After::NotReady), Trouble::Stuck, "how the card is comes first");
        assert_eq!(of(crc, After::Gone), Trouble::Gone);
        assert_eq!(of(TransferCause::NoBlocks, After::Untouched), Trouble::Request);
        assert_eq!(of(TransferCause::Password, After::Ready), Trouble::Denied);
        let said = |s| Trouble::of(&TransferCause::Card, Some(s), After::Ready);
        assert_eq!(said(CardStatus::CARD_ECC_FAILED), Trouble::Electronics);
        assert_eq!(said(CardStatus::CARD_ECC_FAILED | CardStatus::WP_VIOLATION), Trouble::Denied);
        assert_eq!(said(CardStatus::ERASE_RESET), Trouble::Sequence);
        assert_eq!(said(CardStatus::SWITCH_ERROR), Trouble::Switch);
    }
}

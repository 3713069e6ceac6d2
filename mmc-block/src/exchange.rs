//! The conversation of one command of a disk, and what came of it.

use crate::error::BlockError;
use mmc_proto::command::Command;
use mmc_proto::host::{HostError, Reply};
use mmc_proto::machine::{Erase, Machine, Order, Step, Transfer};
use mmc_proto::status::CardStatus;
use mmc_time::Instant;

/// `CURRENT_STATE`, bits 12:9 of R1: of several answers only the last one's says anything.
const STATE: u32 = 0xf << 9;

/// How a command ended: what [`Core::finish`](crate::Core::finish) wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Blocks that were moved or emptied, or why not.
    pub result: Result<u32, BlockError>,
    /// What the card said: [`Done::status`](crate::Done::status).
    pub status: Option<CardStatus>,
}

impl From<Result<u32, BlockError>> for Answer {
    /// Of what was said nothing but what is in the error is known.
    fn from(result: Result<u32, BlockError>) -> Self {
        let status = match &result {
            Err(BlockError::Transfer(e) | BlockError::Quarantined(e)) => e.status,
            Err(BlockError::Erase(e)) => e.status,
            _ => None,
        };
        Self { result, status }
    }
}

/// All bits that were set in either, with the state that came last.
pub(crate) fn both(before: Option<CardStatus>, then: Option<CardStatus>) -> Option<CardStatus> {
    let (Some(before), Some(then)) = (before, then) else { return then.or(before) };
    Some(CardStatus::from_bits_retain(before.bits() & !STATE | then.bits()))
}

/// The conversation of one command, listened to. A [`Machine`]: drive it with a
/// [`Conductor`](mmc_proto::machine::Conductor), or with whatever drives machines over a foreign bus.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    talk: Talk,
    said: Option<CardStatus>,
}

#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and there is one of it")]
pub(crate) enum Talk {
    Transfer(Transfer),
    Erase(Erase),
    /// It is about so many sectors.
    Sanitize(Order, u32),
}

impl From<Talk> for Exchange {
    fn from(talk: Talk) -> Self {
        Self { talk, said: None }
    }
}

/// The status in what came of a command: all that these conversations send is answered by R1, or not at all.
fn said(last: &Result<Reply, HostError>) -> Option<CardStatus> {
    match last {
        Ok(reply) => {
            let [r1, stopped, ..] = reply.words.map(CardStatus::from_bits_retain);
            // What a host that stops by itself was told: the state in it is never 0.
            both(Some(r1), Some(stopped).filter(|s| !s.is_empty()))
        }
        Err(e) => e.r1.map(CardStatus::from_bits_retain),
    }
}

impl Machine for Exchange {
    type Output = Answer;

    fn first_data(&self) -> Option<Command> {
        match &self.talk {
            Talk::Transfer(m) => m.first_data(),
            Talk::Erase(_) | Talk::Sanitize(..) => None,
        }
    }
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Answer> {
        self.said = both(self.said, last.as_ref().and_then(said));
        let blocks = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let step = match &mut self.talk {
            Talk::Transfer(m) => map(m.next(last, scratch, now), |r| r.map_err(BlockError::Transfer)),
            Talk::Erase(m) => map(m.next(last, scratch, now), |r| r.map(blocks).map_err(BlockError::Erase)),
            Talk::Sanitize(m, all) => {
                let all = *all;
                map(m.next(last, scratch, now), |r| r.map(|_| all).map_err(BlockError::Erase))
            }
        };
        let status = self.said;
        map(step, |result| Answer { result, status })
    }
}

/// A step of an inner machine, its end translated.
pub(crate) fn map<T, U>(step: Step<T>, f: impl FnOnce(T) -> U) -> Step<U> {
    match step {
        Step::Do(action) => Step::Do(action),
        Step::Bus(bus) => Step::Bus(bus),
        Step::Power(power) => Step::Power(power),
        Step::Sleep(time) => Step::Sleep(time),
        Step::Done(out) => Step::Done(f(out)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_proto::host::{Cause, Phase};
    use mmc_proto::status::CardState;

    #[test]
    fn bits_of_all_answers_are_kept_and_the_state_of_the_last() {
        let bits = |b| Some(CardStatus::from_bits_retain(b));
        assert_eq!(both(None, None), None);
        assert_eq!(both(bits(0x900), None), bits(0x900));
        // CC_ERROR in `data`, nothing in `tran`.
        let all = both(bits(0x0010_0b00), bits(0x0000_0900)).unwrap();
        assert!(all.contains(CardStatus::CC_ERROR));
        assert_eq!((all.bits(), all.state()), (0x0010_0900, CardState::Tran));
        let stopped = Ok(Reply { words: [0x900, 0x8000_0b00, 0, 0], bytes: 0 });
        assert_eq!(said(&stopped), bits(0x8000_0b00));
        let e = HostError { r1: Some(0x900), ..HostError::new(Cause::Crc, Phase::Data, 17) };
        assert_eq!((said(&Err(e)), said(&Err(HostError { r1: None, ..e }))), (bits(0x900), None));
    }

    #[test]
    fn an_error_tells_what_the_card_said() {
        use mmc_proto::machine::{After, TalkError, TransferCause, TransferError, TransferPhase};
        let status = Some(CardStatus::from_bits_retain(0x0400_0900));
        let (cause, after) = (TransferCause::Card, After::Ready);
        let transfer = TransferError { cause, phase: TransferPhase::Data, status, done: 0, after };
        let erase = TalkError { cause, phase: None, status, after };
        for e in [BlockError::Transfer(transfer), BlockError::Quarantined(transfer), BlockError::Erase(erase)]
        {
            assert_eq!(Answer::from(Err(e)), Answer { result: Err(e), status });
        }
        assert_eq!(Answer::from(Ok(8)), Answer { result: Ok(8), status: None });
        assert_eq!(Answer::from(Err(BlockError::BadRun)).status, None);
    }
}

//! What a command of the SD bus becomes in SPI mode.

use crate::status::{RCA, ready_in};
use mmc_hal::Dir;
use mmc_proto::command::{Command, Response};
use mmc_proto::host::{Cause, Failure, Phase, Reply};
use mmc_proto::status::{CardState, CardStatus};

/// What the engine knows of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it has to hear CMD0.
    Nothing,
    /// It is in SPI mode and getting ready.
    Idle,
    /// It is ready.
    Ready,
}

/// A data phase of the card that the last operation did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    /// None.
    No,
    /// CMD18 waits for its CMD12.
    Read,
    /// CMD25 waits for its stop token.
    Write,
    /// Nobody knows: CMD12 comes before anything else.
    Unknown,
}

/// How an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Answered without a word to the card.
    Answer(Result<Reply, Failure>),
    /// CMD0 and CMD59; then the command itself, if it is another.
    Reset,
    /// ACMD41 or CMD1, then CMD58.
    OpCond,
    /// CMD9 or CMD10, whose block is the register.
    Register(u8),
    /// A command without data; its index on the wire.
    Plain(u8),
    Read,
    Write,
    /// The end of CMD18 or CMD25.
    Stop,
    /// A block was refused: CMD13 says why; then the operation fails.
    Why,
}

/// No answer: what a card does on the SD bus about a command it does not know.
pub(crate) fn silence() -> Failure {
    (Cause::Timeout, Phase::Command).into()
}

pub(crate) fn word(word: u32) -> Reply {
    Reply { words: [word, 0, 0, 0], bytes: 0 }
}

pub(crate) fn status(status: CardStatus) -> Reply {
    word(status.bits())
}

/// `app`: the card was told CMD55 just before.
pub(crate) fn translate(cmd: &Command, app: bool, known: Known, open: Open, mmc: bool) -> Task {
    let silent = Task::Answer(Err(silence()));
    let tran = Task::Answer(Ok(status(ready_in(CardState::Tran))));
    let by_data = || match cmd.data.map(|d| d.dir) {
        Some(Dir::Read) => Task::Read,
        Some(Dir::Write) => Task::Write,
        None => Task::Plain(cmd.index),
    };
    if app {
        return if cmd.index == 41 { Task::OpCond } else { by_data() };
    }
    match (cmd.index, cmd.data) {
        (0, _) => Task::Reset,
        // What asks a card that may be there gets it into SPI mode first, if CMD0 had no answer: it may have been cold.
        (8 | 55, None) if known == Known::Nothing => Task::Reset,
        _ if known == Known::Nothing => silent,
        (1, None) => Task::OpCond,
        (2 | 10, None) => Task::Register(10),
        (9, None) => Task::Register(9),
        (3, None) if mmc => tran,
        (3, None) => {
            let r6 = u32::from(RCA) << 16 | ready_in(CardState::Ident).bits();
            Task::Answer(Ok(word(r6)))
        }
        (4 | 15, None) => Task::Answer(Ok(Reply::default())),
        (7, None) if cmd.response == Response::None => Task::Answer(Ok(Reply::default())),
        (7, None) => Task::Plain(13),
        (12, None) if open == Open::No => silent,
        (12, None) => Task::Stop,
        // The engine stops by itself; a reliable write or a packed one it cannot say.
        (23, None) if mmc && cmd.arg >> 16 != 0 => silent,
        (23, None) => tran,
        // Not there in SPI mode, or, 58 and 59, something else there; 5, 52 and 53 are SDIO's.
        (5 | 11 | 14 | 19..=22 | 26 | 31 | 39..=41 | 43..=49 | 52..=54 | 57.., _) => silent,
        _ => by_data(),
    }
}

/// The argument on the wire: there are no addresses of cards.
pub(crate) fn argument(cmd: &Command, index: u8, app: bool) -> u32 {
    match (app, index) {
        (false, 13 | 55) | (true, 13) => 0,
        (true, 41) | (false, 1) => cmd.arg & 1 << 30,
        _ => cmd.arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_proto::command::Stop;

    fn of(cmd: Command) -> Task {
        translate(&cmd, false, Known::Ready, Open::No, false)
    }

    #[test]
    fn commands_that_spi_mode_has_not_got_are_met_with_silence() {
        let silent = Task::Answer(Err(silence()));
        for index in [5, 11, 14, 19, 20, 21, 22, 26, 31, 39, 40, 41, 43, 48, 49, 52, 53, 58, 59] {
            assert_eq!(of(Command::plain(index, 0, Response::Short)), silent, "CMD{index}");
            assert_eq!(of(Command::data(index, 0, Dir::Read, 512, 1, Stop::None)), silent, "CMD{index}");
        }
        assert_eq!(of(Command::stop_transmission()), silent, "nothing runs");
        assert_eq!(of(Command::send_status(1)), Task::Plain(13));
        let cold = |cmd: &Command| translate(cmd, false, Known::Nothing, Open::No, false);
        assert_eq!(cold(&Command::send_status(1)), silent);
        assert_eq!(cold(&Command::send_if_cond(0xaa)), Task::Reset);
    }

    #[test]
    fn an_mmc_sends_its_ext_csd_by_the_same_index_as_an_sd_card_its_voltage() {
        assert_eq!(of(Command::send_ext_csd()), Task::Read);
        assert_eq!(of(Command::send_if_cond(0xaa)), Task::Plain(8));
        let reliable = Command { arg: 1 << 31 | 8, ..Command::set_block_count(8) };
        assert_eq!(translate(&reliable, false, Known::Ready, Open::No, true), Task::Answer(Err(silence())));
    }
}

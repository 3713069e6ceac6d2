//! The command word, the response, and which of several errors is the one to report.

use crate::reg::{Events, RESPONSE0, RESPONSE3};
use mmc_hal::{Dir, Mmio};
use mmc_proto::command::{Command, Gate, Response, Stop};
use mmc_proto::host::{Cause, Phase};

/// Transfer mode: DMA.
const DMA: u32 = 1 << 0;
/// Transfer mode: the block count register counts.
const COUNT: u32 = 1 << 1;
/// Transfer mode: CMD12 by the controller.
const AUTO_CMD12: u32 = 1 << 2;
/// Transfer mode: CMD23 by the controller, with the argument in [`ARGUMENT_2`](crate::reg::ARGUMENT_2).
const AUTO_CMD23: u32 = 2 << 2;
/// Transfer mode: from the card.
const READ: u32 = 1 << 4;
/// Transfer mode: several blocks.
const MULTI: u32 = 1 << 5;
/// Command: data come with it.
const DATA: u32 = 1 << 21;
/// Command: it ends a data phase.
const ABORT: u32 = 3 << 22;

/// Transfer mode and command of `c` (§2.2.5, §2.2.6). `dma`: its data go by ADMA.
pub(crate) fn word(c: &Command, dma: bool) -> u32 {
    // Response type in bits 1:0, check of the CRC in 3, of the index in 4.
    let response = match (c.response, c.busy) {
        (Response::None, _) => 0,
        (Response::Long, _) => 0x09,
        (Response::ShortNoCrc, false) => 0x02,
        (Response::ShortNoCrc, true) => 0x03,
        (Response::Short, false) => 0x1a,
        (Response::Short, true) => 0x1b,
    };
    let mut word = u32::from(c.index & 0x3f) << 24 | response << 16;
    if let Some(data) = c.data {
        word |= DATA;
        if dma {
            word |= DMA;
        }
        if data.dir == Dir::Read {
            word |= READ;
        }
        if data.blocks > 1 || data.stop != Stop::None {
            word |= MULTI | COUNT;
        }
        match data.stop {
            Stop::Auto => word |= AUTO_CMD12,
            Stop::Count(_) => word |= AUTO_CMD23,
            Stop::None | Stop::Manual => {}
        }
    } else if c.gate == Gate::Now && c.busy {
        // What goes out in the middle of data and makes the card busy is what ends them.
        word |= ABORT;
    }
    word
}

/// The error to report: the response's first, then what stopped the data.
/// `auto`: [`HOST2`](crate::reg::HOST2), which knows more of an automatic command.
pub(crate) fn first_error(seen: Events, c: &Command, auto: impl FnOnce() -> u32) -> Option<(Cause, Phase)> {
    let has = |e| seen.contains(e);
    let write = c.data.is_some_and(|d| d.dir == Dir::Write);
    Some(if has(Events::CMD_TIMEOUT | Events::CMD_CRC) {
        (Cause::Framing, Phase::Command) // somebody else drives the line (§2.2.18)
    } else if has(Events::CMD_TIMEOUT) {
        (Cause::Timeout, Phase::Command)
    } else if has(Events::CMD_CRC) {
        (Cause::Crc, Phase::Command)
    } else if seen.intersects(Events::CMD_END | Events::CMD_INDEX) {
        (Cause::Framing, Phase::Command)
    } else if has(Events::ADMA) {
        (Cause::Dma, Phase::Data)
    } else if seen.intersects(Events::DATA_CRC | Events::TUNING) {
        (Cause::Crc, Phase::Data)
    } else if has(Events::DATA_END) {
        (if write { Cause::NoCrcStatus } else { Cause::Framing }, Phase::Data)
    } else if has(Events::DATA_TIMEOUT) && !has(Events::TRANSFER) {
        // The end of the transfer beats its timeout (§2.2.17).
        (Cause::Timeout, if c.data.is_some() { Phase::Data } else { Phase::Busy })
    } else if has(Events::AUTO) {
        // CMD23 comes before the command, CMD12 behind the data.
        let before = matches!(c.data.map(|d| d.stop), Some(Stop::Count(_)));
        let cause = match auto() & 0x1e {
            bits if bits & 1 << 1 != 0 => Cause::Timeout,
            bits if bits & 1 << 2 != 0 => Cause::Crc,
            0 => Cause::Timeout,
            _ => Cause::Framing,
        };
        (cause, if before { Phase::Command } else { Phase::Data })
    } else if has(Events::CURRENT) {
        (Cause::Controller, Phase::Bus)
    } else {
        return None;
    })
}

/// The response of `c` and, after an automatic CMD12, its response, as [`Reply`](mmc_proto::host::Reply) wants it.
pub(crate) fn response<M: Mmio>(regs: &M, c: &Command) -> [u32; 4] {
    match c.response {
        Response::None => [0; 4],
        Response::Short | Response::ShortNoCrc => {
            let stop = c.data.is_some_and(|d| d.stop == Stop::Auto);
            [regs.read32(RESPONSE0), if stop { regs.read32(RESPONSE3) } else { 0 }, 0, 0]
        }
        Response::Long => {
            // The registers leave the last byte (CRC and end bit) out.
            let [a, b, c, d] = [0, 4, 8, 12].map(|at: u32| regs.read32(RESPONSE0.saturating_add(at)));
            [d << 8 | c >> 24, c << 8 | b >> 24, b << 8 | a >> 24, a << 8]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_specification() {
        let w = |c: Command| word(&c, true);
        assert_eq!(w(Command::go_idle_state()), 0);
        assert_eq!(w(Command::send_if_cond(0xaa)), 0x081a_0000);
        assert_eq!(w(Command::all_send_cid()), 0x0209_0000);
        assert_eq!(w(Command::acmd_sd_send_op_cond(0)), 0x2902_0000, "R3 has neither CRC nor index");
        assert_eq!(w(Command::select_card(1)), 0x071b_0000);
        assert_eq!(w(Command::stop_transmission()), 0x0cdb_0000, "abort");
        assert_eq!(w(Command::read_single_block(5)), 0x113a_0011);
        assert_eq!(word(&Command::read_single_block(5), false), 0x113a_0010);
        assert_eq!(w(Command::read_multiple_block(5, 4, Stop::Auto)), 0x123a_0037);
        assert_eq!(w(Command::write_multiple_block(5, 4, Stop::Manual)), 0x193a_0023);
        assert_eq!(w(Command::write_multiple_block(5, 4, Stop::Count(4))), 0x193a_002b);
        assert_eq!(
            w(Command::write_multiple_block(5, 1, Stop::Manual)),
            0x193a_0023,
            "one block of an open end"
        );
    }

    #[test]
    fn the_first_error_is_the_cause_and_not_its_consequence() {
        let (read, write) = (Command::read_single_block(0), Command::write_block(0));
        let erase = Command::erase(0);
        let e = |seen, c: &Command| first_error(seen, c, || 0);
        assert_eq!(e(Events::COMMAND | Events::TRANSFER, &read), None);
        assert_eq!(e(Events::CMD_TIMEOUT, &read), Some((Cause::Timeout, Phase::Command)));
        assert_eq!(e(Events::CMD_CRC | Events::DATA_TIMEOUT, &read), Some((Cause::Crc, Phase::Command)));
        assert_eq!(e(Events::DATA_TIMEOUT | Events::TRANSFER, &read), None, "§2.2.17");
        assert_eq!(e(Events::DATA_END, &read), Some((Cause::Framing, Phase::Data)));
        assert_eq!(e(Events::DATA_END, &write), Some((Cause::NoCrcStatus, Phase::Data)));
        assert_eq!(e(Events::DATA_TIMEOUT, &erase), Some((Cause::Timeout, Phase::Busy)));
        for bit in Events::ERRORS.iter() {
            assert!(e(bit, &read).is_some(), "{bit:?} is an error and must be reported");
        }
    }
}

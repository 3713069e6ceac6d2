//! The CMD word, the response, and which of several errors is the one to report.

use crate::reg::{Cmd, DmaEvents, Events, RESP0, RESP1, RESP2, RESP3};
use mmc_hal::{Dir, Mmio};
use mmc_proto::command::{Command, Gate, Response, Stop};
use mmc_proto::host::{Cause, Phase};

/// The CMD word of `c`. `open`: a data phase that nobody has ended yet (no count, no stop) is on the bus, so a
/// command that goes out at once is the one that ends it and must say so with `STOP_ABORT`. `hold`: through the hold
/// register (`spec/dw-mshc.md` §1.2).
#[must_use]
pub fn word(c: &Command, open: bool, hold: bool) -> u32 {
    let mut cmd = Cmd::START;
    cmd.set(Cmd::USE_HOLD_REG, hold);
    match c.response {
        Response::None => {}
        Response::Short => cmd |= Cmd::RESPONSE_EXPECT | Cmd::CHECK_CRC,
        Response::ShortNoCrc => cmd |= Cmd::RESPONSE_EXPECT,
        Response::Long => cmd |= Cmd::RESPONSE_EXPECT | Cmd::RESPONSE_LONG | Cmd::CHECK_CRC,
    }
    if let Some(data) = c.data {
        cmd |= Cmd::DATA_EXPECTED;
        cmd.set(Cmd::WRITE, data.dir == Dir::Write);
        cmd.set(Cmd::AUTO_STOP, data.stop == Stop::Auto);
    }
    match c.gate {
        // Nothing may hold CMD11 back, nor what follows it while the card holds its lines low.
        _ if c.voltage_switch => cmd |= Cmd::VOLT_SWITCH,
        Gate::Idle => cmd |= Cmd::WAIT_PRVDATA,
        Gate::Now if open => cmd |= Cmd::STOP_ABORT,
        Gate::Now => {}
    }
    cmd.set(Cmd::SEND_INIT, c.init_clocks);
    cmd.bits() | u32::from(c.index & 0x3f)
}

/// The error to report: no response, its CRC, its form; then what stopped the data, then what was wrong with them.
#[must_use]
pub fn first_error(mut events: Events, dma: DmaEvents, c: &Command) -> Option<(Cause, Phase)> {
    if c.voltage_switch {
        events.remove(Events::HTO); // bit 10 is the switch itself (Q17)
    }
    // An automatic CMD12 is only sent once the command itself was answered: the silence is its own.
    let unstopped = events.contains(Events::ACD | Events::RTO);
    if unstopped {
        events.remove(Events::RTO);
    }
    let write = c.data.is_some_and(|d| d.dir == Dir::Write);
    let has = |e| events.contains(e);
    Some(if has(Events::HLE) {
        (Cause::Controller, Phase::Command)
    } else if has(Events::RTO) {
        (Cause::Timeout, Phase::Command)
    } else if has(Events::RCRC) {
        (Cause::Crc, Phase::Command)
    } else if has(Events::RE) {
        (Cause::Framing, Phase::Command)
    } else if dma.intersects(DmaEvents::FBE | DmaEvents::DU) {
        (Cause::Dma, Phase::Data)
    } else if has(Events::FRUN) {
        (Cause::Controller, Phase::Data)
    } else if has(Events::DCRC) {
        (Cause::Crc, Phase::Data)
    } else if has(Events::SBE) {
        (Cause::Framing, Phase::Data)
    } else if has(Events::EBE) {
        (if write { Cause::NoCrcStatus } else { Cause::Framing }, Phase::Data)
    } else if has(Events::DRTO) {
        (Cause::Timeout, Phase::Data)
    } else if has(Events::HTO) {
        (Cause::Controller, Phase::Data)
    } else if unstopped {
        (Cause::Timeout, Phase::Data)
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
            [regs.read32(RESP0), if stop { regs.read32(RESP1) } else { 0 }, 0, 0]
        }
        Response::Long => [regs.read32(RESP3), regs.read32(RESP2), regs.read32(RESP1), regs.read32(RESP0)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_traces_in_the_specification() {
        let w = |c: Command| word(&c, false, true);
        assert_eq!(w(Command { init_clocks: true, ..Command::go_idle_state() }), 0xa000_8000);
        assert_eq!(w(Command::send_if_cond(0xaa)), 0xa000_2148);
        assert_eq!(w(Command::app_cmd(0)), 0xa000_2177);
        assert_eq!(w(Command::acmd_sd_send_op_cond(0)), 0xa000_2069, "R3 has no CRC");
        assert_eq!(w(Command::all_send_cid()), 0xa000_21c2);
        assert_eq!(w(Command::send_csd(1)), 0xa000_21c9);
        assert_eq!(w(Command::read_single_block(5)), 0xa000_2351);
        assert_eq!(w(Command::read_multiple_block(5, 4, Stop::Manual)), 0xa000_2352);
        assert_eq!(w(Command::write_multiple_block(5, 3, Stop::Manual)), 0xa000_2759);
        assert_eq!(word(&Command::stop_transmission(), true, true), 0xa000_414c);
        assert_eq!(word(&Command::stop_transmission(), false, true), 0xa000_014c, "nothing to abort");
        assert_eq!(w(Command::read_multiple_block(5, 12, Stop::Auto)), 0xa000_3352);
        let cmd11 = Command { voltage_switch: true, ..Command::voltage_switch() };
        assert_eq!(w(cmd11), 0xb000_014b);
        assert_eq!(word(&Command::read_single_block(5), false, false), 0x8000_2351, "SDR104 without a hold");
    }

    #[test]
    fn the_first_error_is_the_cause_and_not_its_consequence() {
        let read = Command::read_single_block(0);
        let write = Command::write_block(0);
        let e = |events, c| first_error(events, DmaEvents::empty(), c);
        assert_eq!(e(Events::CDONE | Events::DTO, &read), None);
        assert_eq!(e(Events::RTO | Events::RCRC, &read), Some((Cause::Timeout, Phase::Command)));
        assert_eq!(e(Events::RCRC | Events::RE | Events::DCRC, &read), Some((Cause::Crc, Phase::Command)));
        assert_eq!(e(Events::DCRC | Events::DTO, &read), Some((Cause::Crc, Phase::Data)));
        assert_eq!(e(Events::EBE, &read), Some((Cause::Framing, Phase::Data)));
        assert_eq!(e(Events::EBE, &write), Some((Cause::NoCrcStatus, Phase::Data)));
        assert_eq!(e(Events::HLE | Events::RTO, &read), Some((Cause::Controller, Phase::Command)));
        // A starved FIFO is the consequence of the bus error.
        let both = first_error(Events::HTO, DmaEvents::FBE, &write);
        assert_eq!(both, Some((Cause::Dma, Phase::Data)));
        let cmd11 = Command { voltage_switch: true, ..Command::voltage_switch() };
        assert_eq!(e(Events::HTO, &cmd11), None, "bit 10 is its answer");
        assert_eq!(e(Events::HTO | Events::RTO, &cmd11), Some((Cause::Timeout, Phase::Command)));
        let unstopped = Events::CDONE | Events::ACD | Events::RTO;
        assert_eq!(
            e(unstopped | Events::DCRC, &read),
            Some((Cause::Crc, Phase::Data)),
            "the data's was first"
        );
        assert_eq!(e(unstopped, &read), Some((Cause::Timeout, Phase::Data)));
        for bit in Events::ERRORS.iter() {
            assert!(e(bit, &read).is_some(), "{bit:?} is an error and must be reported");
        }
    }
}

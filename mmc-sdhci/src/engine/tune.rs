//! Tuning by the controller (§2.2.25, §3.7.1), as a state: the same command again and again until it has seen enough.
//!
//! ```text
//!  execute tuning ─► CMD19 or CMD21 ─► buffer ready ─► still executing? ─ yes: again, 40 at most, 150 ms in all
//!                                                       └ no: sampling clock selected? ─► Idle, or back to the fixed one: Failed
//! ```
//! Nothing else is told while it runs: neither a response's errors nor the end of a command. The blocks stay in the controller.

use super::bus::Lines;
use super::{Op, SdhciEngine, State};
use crate::clock::Divider;
use crate::command::word;
use crate::reg::{ARGUMENT, BLOCK, COMMAND, EXECUTE_TUNING, Events, HOST2, PRESENT, Present, SAMPLING_CLOCK};
use crate::reset::look_again;
use mmc_hal::{Dma, Mmio, Payload};
use mmc_proto::bus::Timing;
use mmc_proto::command::{Command, DataShape};
use mmc_proto::host::{Cause, Failure, Phase, Reply, Why};
use mmc_time::{Duration, Instant};

/// Most blocks (§3.7.1).
const MOST: u8 = 40;
/// How long they may take together (§3.7.1).
const TUNING_LIMIT: Duration = Duration::from_millis(150);

/// A tuning that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    /// What is sent, and since when the last one has been on its way.
    op: Op,
    began: Instant,
    sent: u8,
    /// The last one is on its way.
    asked: bool,
}

impl Tuning {
    pub(super) fn waits(&self, polled: bool, now: Instant) -> (Why, Instant) {
        if self.asked && !polled {
            (Why::Interrupt, self.began + TUNING_LIMIT)
        } else {
            (Why::Timer, look_again(self.op.since, now))
        }
    }
}

/// A sample point the controller has found: for what, when, and what came since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuned {
    lines: Lines,
    clock: Option<Divider>,
    at: Instant,
    /// A command has been sent with it: a controller that asks without end does not stop everything else.
    used: bool,
    /// Its tuning circuit has failed since.
    wanes: bool,
}

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload> SdhciEngine<M, R, D, P> {
    /// Whether the present mode needs a tuned sampling clock; in the others a tuning command is a read.
    pub(super) fn tunes(&self) -> bool {
        self.lines.is_some_and(|l| match l.timing {
            Timing::Sdr104 | Timing::Hs200 => true,
            Timing::Sdr50 => self.caps.tuned_sdr50(),
            _ => false,
        })
    }

    /// The word of the lines, with the sample point while there is one.
    pub(super) fn host_control_2(&self, lines: Lines) -> u32 {
        lines.host_control_2() | if self.tuned.is_some() { SAMPLING_CLOCK } else { 0 }
    }

    /// A change of the bus: the point stays good where nothing but the clock stands, or comes back as it was.
    pub(super) fn keep_tuned(&mut self, lines: Lines, to: Option<Divider>) {
        self.tuned = self.tuned.filter(|t| t.lines == lines && (to.is_none() || t.clock == to));
    }

    pub(super) fn tuned_wanes(&mut self) {
        if let Some(tuned) = &mut self.tuned {
            tuned.wanes = true;
        }
    }
    pub(super) fn tuned_is_used(&mut self) {
        if let Some(tuned) = &mut self.tuned {
            tuned.used = true;
        }
    }

    /// The sample point is to be found again before the next command.
    pub(super) fn wants_tuning(&self, now: Instant) -> bool {
        self.tuned.is_some_and(|t| {
            let over = self.caps.retuning_time().is_some_and(|time| now.since(t.at) >= time);
            let asked = || self.regs.read32(PRESENT) & Present::RETUNE.bits() != 0;
            t.used && (t.wanes || over || asked())
        })
    }

    pub(super) fn begin_tuning(&mut self, cmd: &Command, now: Instant) {
        self.pio = None;
        self.enable(Events::READ_READY | Events::SLOT);
        self.forget();
        self.tuned = None;
        if let Some(lines) = self.lines {
            self.regs.write32(HOST2, lines.host_control_2() | EXECUTE_TUNING);
        }
        let op = Op { cmd: *cmd, bytes: cmd.data.map_or(0, |d| d.bytes()), since: now };
        self.state = State::Tune(Tuning { op, began: now, sent: 0, asked: false });
    }

    /// Looks at the controller, and sends the next block's command when it wants one.
    pub(super) fn tune(&mut self, mut tuning: Tuning, now: Instant) -> Option<Result<Reply, Failure>> {
        self.collect();
        if !self.card_present() {
            return Some(Err(self.untuned(&tuning.op, Cause::NoCard)));
        }
        if tuning.asked && self.seen.contains(Events::READ_READY) {
            self.seen = Events::empty();
            tuning.asked = false;
            let word = self.regs.read32(HOST2);
            if word & EXECUTE_TUNING == 0 {
                if word & SAMPLING_CLOCK == 0 {
                    return Some(Err(self.untuned(&tuning.op, Cause::Crc)));
                }
                if let Some(lines) = self.lines {
                    self.tuned = Some(Tuned { lines, clock: self.clock, at: now, used: false, wanes: false });
                }
                return self.succeed(&tuning.op);
            }
        }
        if now.since(tuning.began) >= TUNING_LIMIT || !tuning.asked && tuning.sent >= MOST {
            return Some(Err(self.untuned(&tuning.op, Cause::Crc)));
        }
        // The data circuit is the tuning's own: only the command circuit has to be free.
        if !tuning.asked && self.regs.read32(PRESENT) & Present::CMD_INHIBIT.bits() == 0 {
            let cmd = &tuning.op.cmd;
            self.regs.write32(BLOCK, 1 << 16 | u32::from(cmd.data.map_or(0, |d: DataShape| d.block_len)));
            self.regs.write32(ARGUMENT, cmd.arg);
            self.regs.write32(COMMAND, word(cmd, false));
            tuning.op.since = now;
            tuning.sent = tuning.sent.saturating_add(1);
            tuning.asked = true;
        }
        self.state = State::Tune(tuning);
        None
    }

    /// Back to the fixed sampling clock; the circuits are reset by what follows a failure.
    fn untuned(&mut self, op: &Op, cause: Cause) -> Failure {
        self.stop_tuning();
        self.seen = Events::empty();
        self.fail(op, cause, Phase::Data)
    }

    pub(super) fn stop_tuning(&mut self) {
        if let Some(lines) = self.lines {
            self.regs.write32(HOST2, lines.host_control_2());
        }
    }
}

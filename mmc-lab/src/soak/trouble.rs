//! What goes wrong, and when: faults of card and controller, losses of power, changes of the card.

use super::Soak;
use mmc_block::Media;
use mmc_mock::dw::Fault;
use mmc_mock::fault::{Action, BlockFault, Keep, Medium, Rule, When};
use mmc_time::Duration;

/// What was arranged and has not struck.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    faults: u64,
    cut: bool,
    /// The number, among the others, of the card that is to come.
    swap: Option<usize>,
}

/// Of a card: what a command or a block may suffer, each once.
const COMMAND: [Action; 8] = [
    Action::Lost,
    Action::NoAnswer,
    Action::CommandCrc,
    Action::ResponseCrc,
    Action::ResponseIndex,
    Action::ResponseEnd,
    // ERROR, and CC_ERROR.
    Action::Status(1 << 19),
    Action::Status(1 << 20),
];

/// Of the controller.
const HOST: [Fault; 19] = [
    Fault::CommandLost,
    Fault::NoResponse,
    Fault::ResponseCrc,
    Fault::ResponseIndex,
    Fault::ResponseEndBit,
    Fault::ResponseDelay(100),
    Fault::ReadCrc(0),
    Fault::ReadNothing(0),
    Fault::ReadStartBit(0),
    Fault::ReadEndBit(0),
    Fault::WriteCrc(0),
    Fault::WriteNothing(0),
    Fault::Busy(Duration::from_millis(3)),
    Fault::SwallowCommandDone,
    Fault::SwallowDataOver,
    Fault::StuckStart,
    Fault::LoseCommand,
    Fault::Spurious(0x80),
    Fault::Defer { bits: 0xc, accesses: 3 },
];

impl<C: Medium + 'static> Soak<'_, C> {
    /// Makes what is due after so many requests.
    pub(super) fn trouble(&mut self) -> Result<(), String> {
        // All of it comes in the first nineteen twentieths, so that the last of it strikes, too.
        let share = |n: u64| {
            let part = u128::from(n) * u128::from(self.sent) * 20 / (u128::from(self.plan.requests) * 19);
            u64::try_from(part).unwrap_or(n).min(n)
        };
        let (faults, cuts, swaps) = (share(self.plan.faults), share(self.plan.cuts), share(self.plan.swaps));
        let quiet = self.waiting.swap.is_none() && !self.waiting.cut && !self.out;
        let quiet = quiet && self.inside == self.served && self.bench.disk.media() == Media::Same;
        if self.report.faults + self.waiting.faults < faults {
            self.fault()?;
        }
        if quiet && self.report.cuts < cuts {
            self.cut()
        } else if quiet && self.report.swaps < swaps {
            self.swap()
        } else {
            Ok(())
        }
    }

    fn add(&mut self, when: When, what: Action) -> Result<(), String> {
        self.bench.card.with(|c| c.add(Rule { when, what })).map_err(|e| e.to_string())
    }
    /// One of the next so many frames.
    fn soon(&mut self, most: u64) -> When {
        When::Frame(self.bench.card.with(|c| c.frames()) + self.random.between(0, most))
    }

    fn fault(&mut self) -> Result<(), String> {
        let kind = self.random.between(0, 9);
        if kind < 4 {
            let fault = HOST[self.random.between(0, HOST.len() as u64 - 1) as usize];
            let after = self.random.between(0, 8) as u32;
            self.bench.model.inject_after(after, fault);
            self.report.faults += 1;
            return Ok(());
        }
        let what = match kind {
            4..=6 => COMMAND[self.random.between(0, COMMAND.len() as u64 - 1) as usize].clone(),
            7 => Action::Late(Duration::from_micros(self.random.between(0, 50_000))),
            8 if self.random.draw().is_multiple_of(10) => Action::Busy(Duration::MAX),
            8 => Action::Busy(Duration::from_micros(self.random.between(0, 200_000))),
            _ if self.random.draw().is_multiple_of(2) => {
                Action::Block(self.random.between(0, 7) as u32, BlockFault::Crc)
            }
            _ => Action::Block(self.random.between(0, 7) as u32, BlockFault::Missing),
        };
        let when = if kind == 9 || kind == 7 {
            let index = if self.random.draw().is_multiple_of(2) && kind == 9 { 25 } else { 18 };
            When::Command { app: false, index, nth: self.bench.card.with(|c| c.seen(false, index)) }
        } else {
            self.soon(24)
        };
        self.waiting.faults += 1;
        self.add(when, what)
    }

    fn cut(&mut self) -> Result<(), String> {
        let keep = match self.random.between(0, 4) {
            // The whole supply, as the controller sees it.
            0 => {
                self.bench.model.inject(Fault::PowerFail);
                self.report.cuts += 1;
                self.cells[self.inside].cut();
                return Ok(());
            }
            1 => Keep::None,
            2 => Keep::All,
            _ => Keep::Random,
        };
        // At a command, or while something is being programmed.
        let when = if self.random.draw().is_multiple_of(2) {
            self.soon(24)
        } else {
            When::Instant(self.bench.clock.now() + Duration::from_micros(self.random.between(0, 20_000)))
        };
        self.waiting.cut = true;
        self.add(when, Action::PowerLoss(keep))
    }

    fn swap(&mut self) -> Result<(), String> {
        if !self.random.draw().is_multiple_of(4) {
            // A hand takes it out; `mended` puts another one in.
            self.bench.act(&Action::Remove);
            self.cells[self.inside].cut();
            self.out = true;
            return Ok(());
        }
        // So fast that no pin tells.
        let n = self.random.between(0, self.others.len() as u64 - 1) as usize;
        self.waiting.swap = Some(n);
        let when = self.soon(24);
        self.add(when, Action::Swap(n))
    }

    /// Sees what has struck since the last look; whether the card in the slot lost its supply.
    pub(super) fn strikes(&mut self) -> bool {
        let before = self.waiting;
        if before.faults == 0 && !before.cut && before.swap.is_none() {
            return false;
        }
        let mut now = Waiting::default();
        self.bench.card.with(|c| {
            for rule in c.waiting() {
                match rule.what {
                    // The one that never comes.
                    Action::PowerLoss(_) if rule.when == When::Frame(u64::MAX) => {}
                    Action::PowerLoss(_) => now.cut = true,
                    Action::Swap(n) => now.swap = Some(n),
                    _ => now.faults += 1,
                }
            }
        });
        self.waiting = now;
        self.report.faults += before.faults - now.faults;
        let cut = before.cut && !now.cut;
        if cut {
            self.report.cuts += 1;
            self.cells[self.inside].cut();
        }
        if let (Some(n), None) = (before.swap, now.swap) {
            self.swapped(n);
        }
        cut
    }
}

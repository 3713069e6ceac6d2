//! MMC and eMMC: CMD1 to the EXT_CSD (`spec/card.md` §13.3).

use super::{Acmd, Family, Identify, IdentifyCause, Out, State, Then};
use crate::command::{Command, SwitchAccess};
use crate::host::Reply;
use crate::machine::Step;
use crate::machine::reply::{EXT_CSD_LIMIT, HARD_ERRORS, register};
use crate::machine::transfer::{COMMAND_LIMIT, status_of};
use crate::register::ext_csd::{ERASE_GROUP_DEF, PARTITION_SETTING_COMPLETED, SEC_COUNT};
use crate::register::{CrcPolicy, ExtCsd, MmcCsd, Ocr, RegisterError};
use crate::status::CardStatus;
use crate::timing;
use mmc_time::Instant;

/// The address an MMC gets.
pub(super) const RCA: u16 = 1;
/// CMD1: the host knows sector addresses.
const SECTOR_MODE: u32 = 2 << 29;
/// Blocks of 2 GiB: above, addresses cannot be bytes.
const BYTE_BLOCKS: u64 = 1 << 22;

impl Identify {
    /// One loop, without a question before: some parts get ready by the question and answer no more.
    pub(super) fn mmc_op_cond(&mut self) -> Step<Out> {
        if !self.mmc_tried {
            self.mmc_tried = true;
            (self.tries, self.polls, self.power_up_by) = (0, 0, None);
        }
        self.go(State::MmcOpCond, Command::send_op_cond(SECTOR_MODE | self.window()), COMMAND_LIMIT)
    }
    pub(super) fn mmc_op_cond_failed(&mut self, now: Instant) -> Step<Out> {
        if self.family != Family::Mmc && !self.try_again() {
            // No MMC either; a cold SD card may still come.
            (self.tries, self.polls, self.power_up_by) = (0, 0, None);
            return self.app(Acmd::OpCond);
        }
        self.mmc_again(now)
    }
    fn mmc_again(&mut self, now: Instant) -> Step<Out> {
        match self.poll_again(State::MmcPause, now) {
            Some(step) => step,
            None => self.never_ready(),
        }
    }
    pub(super) fn mmc_op_cond_done(&mut self, reply: &Reply, now: Instant) -> Step<Out> {
        let [word, ..] = reply.words;
        self.ocr = Ocr(word);
        (self.family, self.answered) = (Family::Mmc, true);
        if self.ocr.check().is_err() || !self.ocr.power_up() {
            return self.mmc_again(now);
        }
        if self.ocr.window() & self.window() == 0 {
            return self.no_voltage(self.ocr.window());
        }
        self.all_send_cid()
    }
    pub(super) fn mmc_addressed(&mut self, status: CardStatus) -> Step<Out> {
        if status.intersects(HARD_ERRORS) {
            return self.restart(IdentifyCause::Card, Some(status));
        }
        self.rca = RCA;
        self.tries = 0;
        self.send_csd()
    }
    pub(super) fn take_mmc_csd(&mut self, reply: &Reply) -> Result<(), IdentifyCause> {
        self.mmc_csd = MmcCsd::from_words(reply.words);
        self.mmc_csd.check(CrcPolicy::Host).map_err(IdentifyCause::Register)
    }

    /// The EXT_CSD, which cards before 4.0 have not got.
    pub(super) fn ext_csd(&mut self) -> Step<Out> {
        if self.mmc_csd.spec_vers() < 4 {
            return self.after_ext_csd();
        }
        self.go(State::ExtCsd, Command::send_ext_csd(), EXT_CSD_LIMIT)
    }
    pub(super) fn ext_csd_done(&mut self, reply: &Reply, scratch: &[u8]) -> Step<Out> {
        let found = register(reply, scratch).map(ExtCsd::new);
        let bad = status_of(reply).intersects(HARD_ERRORS);
        match found.filter(|found| !bad && found.check().is_ok()) {
            Some(found) => {
                self.ext_csd = Some(found);
                self.after_ext_csd()
            }
            None => {
                let again = self.try_again();
                self.settle(if again { Then::ExtCsd } else { Then::AfterExtCsd })
            }
        }
    }
    /// With or without the EXT_CSD.
    pub(super) fn after_ext_csd(&mut self) -> Step<Out> {
        self.tries = 0;
        if self.mmc_csd.spec_vers() >= 4 && self.ext_csd.is_none() && self.mmc_csd.capacity_from_ext_csd() {
            let (field, why) = ("EXT_CSD", "it could not be read, and the CSD does not hold the size");
            return self.end(IdentifyCause::Register(RegisterError::Field { field, value: 0, why }), None);
        }
        if self.mmc_byte_addressed() && self.mmc_blocks() > BYTE_BLOCKS {
            return self.end(IdentifyCause::Addressing, None);
        }
        let partitioned = self
            .ext_csd
            .is_some_and(|e| e.get(PARTITION_SETTING_COMPLETED) & 1 == 1 && e.get(ERASE_GROUP_DEF) & 1 == 0);
        match (self.ext_csd, partitioned) {
            // The units of erase and of the partitions; forgotten at each reset.
            (Some(e), true) => {
                let index = u8::try_from(ERASE_GROUP_DEF.offset).unwrap_or(0);
                let command = Command::mmc_switch(SwitchAccess::WriteByte, index, 1);
                self.go(State::EraseGroup, command, timing::switch_limit(&e))
            }
            _ => self.mmc_block_len(),
        }
    }
    pub(super) fn erase_group_done(&mut self, status: CardStatus) -> Step<Out> {
        if status.intersects(HARD_ERRORS) || !status.is_ready() {
            return self.restart(IdentifyCause::Card, Some(status));
        }
        // A card that refuses it keeps its old units.
        if let (false, Some(e)) = (status.contains(CardStatus::SWITCH_ERROR), &mut self.ext_csd) {
            e.set(ERASE_GROUP_DEF, 1);
        }
        self.mmc_block_len()
    }
    fn mmc_block_len(&mut self) -> Step<Out> {
        if self.mmc_byte_addressed() { self.block_len() } else { self.climb() }
    }

    /// The card's own word: the access mode it answered CMD1 with.
    pub(super) const fn mmc_byte_addressed(&self) -> bool {
        self.ocr.access_mode() != 2
    }
    /// `SEC_COUNT` where the card has one, else what the CSD says.
    pub(super) fn mmc_blocks(&self) -> u64 {
        match self.ext_csd.map_or(0, |e| e.get(SEC_COUNT)) {
            0 => self.mmc_csd.csd_capacity_bytes() / 512,
            count => count,
        }
    }
}

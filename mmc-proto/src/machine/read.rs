//! Conversations that read registers: one block into scratch, taken apart; and CSD or CID of a card that is in use.

use super::talk::{PLAIN, Say, Script, Talk, ready_limit};
use super::transfer::{CardTraits, TransferCause, status_of};
use crate::command::Command;
use crate::host::Reply;
use crate::register::{ExtCsd, RegisterError, Scr, Ssr};
use crate::response::R2;
use crate::status::CardStatus;
use mmc_time::{Duration, Instant};

/// The course of a [`Fetch`].
#[derive(Clone, Copy, Debug)]
pub struct FetchScript<T> {
    refused: Option<TransferCause>,
    /// CMD55 first, to this address.
    app: Option<u16>,
    command: Command,
    limit: Duration,
    parse: fn(&[u8]) -> Result<T, RegisterError>,
    at: At,
}

#[derive(Clone, Copy, Debug)]
enum At {
    Start,
    Announced,
    Read,
}

impl<T> Script for FetchScript<T> {
    type Output = T;

    fn scratch(&self) -> bool {
        true
    }
    fn limit(&self) -> Duration {
        PLAIN + self.limit
    }
    fn patience(&self) -> Duration {
        self.limit
    }
    fn next(
        &mut self,
        heard: Option<Reply>,
        scratch: &mut [u8],
        _: Instant,
    ) -> Result<Say<T>, TransferCause> {
        match (self.at, self.app) {
            (At::Start, _) if self.refused.is_some() => Err(self.refused.unwrap_or(TransferCause::OutOfTurn)),
            (At::Start, Some(rca)) => {
                self.at = At::Announced;
                Ok(Say::Do("Announce", Command::app_cmd(rca), PLAIN))
            }
            (At::Announced, _) if !announced(heard) => {
                Err(TransferCause::Unsupported("application commands: CMD55 is not taken as one"))
            }
            (At::Start | At::Announced, _) => {
                self.at = At::Read;
                Ok(Say::Do("Read", self.command, self.limit))
            }
            (At::Read, _) => {
                let len = self.command.data.map_or(0, |data| usize::from(data.block_len));
                let bytes = scratch.get(..len).ok_or(TransferCause::Scratch)?;
                (self.parse)(bytes).map(Say::Done).map_err(TransferCause::Register)
            }
        }
    }
}

fn announced(heard: Option<Reply>) -> bool {
    heard.is_some_and(|reply| status_of(&reply).contains(CardStatus::APP_CMD))
}

/// Reads one block of registers. `Ok` is what it holds.
///
/// The machine wants a scratch payload of 512 bytes.
pub type Fetch<T> = Talk<FetchScript<T>>;

impl<T> Fetch<T> {
    fn of(
        card: &CardTraits,
        app: bool,
        command: Command,
        parse: fn(&[u8]) -> Result<T, RegisterError>,
    ) -> Self {
        let app = app.then_some(card.rca);
        let (refused, limit, at) = (None, card.read_limit + PLAIN, At::Start);
        Self::follow(card.rca, FetchScript { refused, app, command, limit, parse, at })
    }
}

impl Fetch<ExtCsd> {
    /// CMD8 of MMC: the EXT_CSD, for its status (life time, background operations, what was stored).
    #[must_use]
    pub fn ext_csd(card: &CardTraits) -> Self {
        Self::of(card, false, Command::send_ext_csd(), |bytes| {
            let ext_csd = ExtCsd::parse(bytes)?;
            ext_csd.check()?;
            Ok(ext_csd)
        })
    }
}

impl Fetch<Ssr> {
    /// ACMD13: the SD status.
    #[must_use]
    pub fn sd_status(card: &CardTraits) -> Self {
        Self::of(card, true, Command::acmd_sd_status(), |bytes| {
            let ssr = Ssr::parse(bytes)?;
            ssr.check()?;
            Ok(ssr)
        })
    }
}

impl Fetch<Scr> {
    /// ACMD51: the SCR.
    #[must_use]
    pub fn scr(card: &CardTraits) -> Self {
        Self::of(card, true, Command::acmd_send_scr(), |bytes| {
            let scr = Scr::parse(bytes)?;
            scr.check()?;
            Ok(scr)
        })
    }
}

impl Fetch<u64> {
    /// ACMD22: how many blocks of the last write an SD card has stored; 8 bytes on SDUC, else 4.
    #[must_use]
    pub fn stored_blocks(card: &CardTraits) -> Self {
        let command = match card.addressing() {
            crate::command::Addressing::Extended => Command::acmd_send_num_wr_blocks_sduc(),
            _ => Command::acmd_send_num_wr_blocks(),
        };
        Self::of(card, true, command, |bytes| Ok(big_endian(bytes)))
    }
    /// CMD30: which of the 32 write-protect groups from the one of `lba` on are protected; bit 0 is the first.
    #[must_use]
    pub fn protected_groups(card: &CardTraits, lba: u64) -> Self {
        Self::group(card, lba, Command::send_write_prot)
    }
    /// CMD31 of MMC: how the 32 write-protect groups from the one of `lba` on are protected, two bits each: 0 not,
    /// 1 temporary, 2 until power-off, 3 for ever; bits 1:0 are the first.
    #[must_use]
    pub fn protection_types(card: &CardTraits, lba: u64) -> Self {
        Self::group(card, lba, Command::send_write_prot_type)
    }
    fn group(card: &CardTraits, lba: u64, command: fn(u32) -> Command) -> Self {
        let (arg, refused) = match card.range(lba, card.unit.max(1).into()) {
            Ok((first, _)) => (first.arg, None),
            Err(cause) => (0, Some(cause)),
        };
        let fetch = Self::of(card, false, command(arg), |bytes| Ok(big_endian(bytes)));
        Self::follow(card.rca, FetchScript { refused, ..*fetch.script() })
    }
}

impl Fetch<[u8; 512]> {
    /// CMD56 with bit 0 set: 512 bytes of the maker's own, as some SD cards report their wear; `arg` is the maker's.
    #[must_use]
    pub fn vendor(card: &CardTraits, arg: u32) -> Self {
        Self::of(card, false, Command::gen_cmd(arg | 1), |bytes| {
            <[u8; 512]>::try_from(bytes)
                .map_err(|_| RegisterError::Length { expected: 512, got: bytes.len() })
        })
    }
}

/// The course of a [`Reread`].
#[derive(Clone, Copy, Debug)]
pub struct RereadScript {
    rca: u16,
    command: Command,
    busy: Duration,
    at: Lookup,
    found: Reply,
}

#[derive(Clone, Copy, Debug)]
enum Lookup {
    Start,
    Deselect,
    Read,
    Select,
    Ready,
}

/// Reads the CSD or CID of a selected card again: it must be deselected for that. `Ok` is the long response.
///
/// A CSD changes: its TRAN_SPEED with the bus mode, its bits of write protection. After an error the card may be left
/// deselected; it must be identified anew.
pub type Reread = Talk<RereadScript>;

impl Reread {
    /// CMD9.
    #[must_use]
    pub fn csd(card: &CardTraits) -> Self {
        Self::of(card, Command::send_csd(card.rca))
    }
    /// CMD10.
    #[must_use]
    pub fn cid(card: &CardTraits) -> Self {
        Self::of(card, Command::send_cid(card.rca))
    }
    fn of(card: &CardTraits, command: Command) -> Self {
        let (busy, found) = (card.write_limit, Reply::default());
        Self::follow(card.rca, RereadScript { rca: card.rca, command, busy, at: Lookup::Start, found })
    }
}

impl Script for RereadScript {
    type Output = R2;

    fn limit(&self) -> Duration {
        PLAIN.saturating_mul(3) + ready_limit(self.busy)
    }
    fn patience(&self) -> Duration {
        self.busy
    }
    fn next(&mut self, heard: Option<Reply>, _: &mut [u8], _: Instant) -> Result<Say<R2>, TransferCause> {
        let (at, say) = match self.at {
            Lookup::Start => (Lookup::Deselect, Say::Do("Deselect", Command::deselect_cards(), PLAIN)),
            Lookup::Deselect => (Lookup::Read, Say::Do("Read", self.command, PLAIN)),
            Lookup::Read => {
                self.found = heard.unwrap_or_default();
                let select = Command { busy: false, ..Command::select_card(self.rca) };
                (Lookup::Select, Say::Do("Select", select, PLAIN))
            }
            Lookup::Select => (Lookup::Ready, Say::Ready(self.busy)),
            Lookup::Ready => (Lookup::Ready, Say::Done(R2::from(&self.found))),
        };
        self.at = at;
        Ok(say)
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

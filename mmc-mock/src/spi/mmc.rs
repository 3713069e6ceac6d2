//! An MMC card in SPI mode, on the command level.

use super::mode::{ILLEGAL_COMMAND, PREVIOUS, SpiMode, short};
use crate::card::{Answer, Bits, Card, MmcCard, MmcState, Phase, Sent, Token, crc7};
use crate::fault::Medium;
use crate::storage::Storage;
use mmc_time::Instant;

/// 2.7–3.6 V and 1.8 V, as MMC cards say.
const WINDOW: u32 = 0x00ff_8080;
/// The address this mode gives the card inside.
const RCA: u32 = 1 << 16;
/// Bits of the card status that are errors of the card's own.
const ERRORS: u32 = 0xfff9_a080 & !PREVIOUS;

/// An MMC card that was reset in SPI mode: CMD1 wakes it, CMD55 is illegal (which is how a host tells it from an SD card),
/// and CMD8 sends the EXT_CSD once it is awake (`spec/card.md` §16).
///
/// Answers are those of [`SpiSd`](super::SpiSd). CMD2, CMD3 and CMD7, which a native card needs to get to work, and CMD13,
/// which tells why a block was refused, are sent to the card inside; they are in its log. Newer eMMC devices have no SPI
/// mode at all: to leave them off this bus is the caller's business.
#[derive(Debug)]
pub struct SpiMmc {
    card: MmcCard,
    /// CID or CSD that waits to be sent, and since when.
    register: Option<([u8; 16], Instant)>,
    /// Error bits the card inside has told, and this one has not.
    untold: u32,
}

impl SpiMmc {
    /// Wraps a card.
    #[must_use]
    pub fn new(card: MmcCard) -> Self {
        Self { card, register: None, untold: 0 }
    }
    /// The native card inside.
    #[must_use]
    pub fn mmc(&self) -> &MmcCard {
        &self.card
    }
    /// The same, for a test's back door.
    pub fn mmc_mut(&mut self) -> &mut MmcCard {
        &mut self.card
    }

    fn r1(index: u8, bits: u32, state: MmcState) -> Bits {
        short(index, bits | (state as u32 & 15) << 9)
    }
    /// CMD1: only the sector bit of the argument counts.
    fn op_cond(&mut self, arg: u32, now: Instant) -> Answer {
        if self.card.state(now) == MmcState::Idle {
            self.card.command(1, arg & 1 << 30 | WINDOW, now);
            if self.card.state(now) == MmcState::Ready {
                for (index, arg) in [(2, 0), (3, RCA), (7, RCA)] {
                    self.card.command(index, arg, now);
                }
            }
        }
        Answer { response: Some(Self::r1(1, 0, self.card.state(now))), data: None }
    }
    /// A block was refused: what the card says about it.
    fn ask_why(&mut self, now: Instant) {
        if let Some(Bits::Short(b)) = self.card.command(13, RCA, now).response {
            self.untold |= u32::from_be_bytes([b[1], b[2], b[3], b[4]]) & ERRORS;
        }
    }
}

impl Card for SpiMmc {
    fn power(&mut self, on: bool, now: Instant) {
        (self.register, self.untold) = (None, 0);
        self.card.power(on, now);
    }
    fn bus(&mut self, hz: u32, _: u8, now: Instant) {
        self.card.bus(hz, 1, now);
    }
    fn idle_clocks(&mut self, n: u32) {
        self.card.idle_clocks(n);
    }
    fn command(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        let index = index & 63;
        self.register = None;
        if !self.card.present() {
            return Answer::default();
        }
        let state = self.card.state(now);
        let illegal = |state| Answer { response: Some(Self::r1(index, ILLEGAL_COMMAND, state)), data: None };
        match (index, state) {
            (1, _) => return self.op_cond(arg, now),
            (9 | 10, MmcState::Tran) => {
                let config = self.card.config();
                let mut register = if index == 9 { config.csd } else { config.cid };
                register[15] = crc7(&register[..15]) << 1 | 1;
                self.register = Some((register, now + config.profile.cmd));
                let data = Some(Phase { read: true, block_len: 16, blocks: Some(1) });
                return Answer { response: Some(Self::r1(index, 0, MmcState::Data)), data };
            }
            (58, _) => {
                let ready = state >= MmcState::Stby;
                let sectors = ready && self.card.config().sector_addressed();
                let [a, b, c, d] = (WINDOW | u32::from(ready) << 31 | u32::from(sectors) << 30).to_be_bytes();
                return Answer { response: Some(Bits::Short([0x3f, a, b, c, d, 0xff])), data: None };
            }
            // A host's way to find out what it is; no rule is broken.
            (8, MmcState::Idle) => return illegal(state),
            (0 | 6 | 8 | 12 | 13 | 16..=18 | 23..=25 | 27..=30 | 35 | 36 | 38 | 42 | 56, _) => {}
            _ => return illegal(state),
        }
        let arg = if index == 13 { RCA } else { arg };
        let mut answer = self.card.command(index, arg, now);
        let after = self.card.state(now);
        answer.response = match answer.response {
            Some(Bits::Short(b)) if b[0] == index => {
                let mut status = u32::from_be_bytes([b[1], b[2], b[3], b[4]]) & !(PREVIOUS | 0xf << 9);
                status |= std::mem::take(&mut self.untold);
                Some(Self::r1(index, status, after))
            }
            None if index == 0 => Some(Self::r1(0, 0, after)),
            None if after != MmcState::Ina => return illegal(after),
            other => other,
        };
        answer
    }
    fn ready(&self, k: u32) -> Instant {
        match self.register {
            Some((_, at)) if k == 0 => at,
            Some(_) => Instant::NEVER,
            None => self.card.ready(k),
        }
    }
    fn send(&mut self, block: &mut [u8], now: Instant) -> Sent {
        match self.register.take() {
            Some((register, _)) if block.len() == register.len() => {
                block.copy_from_slice(&register);
                Sent::Good
            }
            Some(_) => Sent::BadCrc,
            None => {
                let sent = self.card.send(block, now);
                if sent == Sent::Nothing {
                    self.ask_why(now);
                }
                sent
            }
        }
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        if self.register.is_some() { 0 } else { self.card.send_many(blocks, now) }
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        let token = self.card.take(block, crc_ok, now);
        if token == Token::Nothing {
            self.ask_why(now);
        }
        token
    }
    fn take_many(&mut self, blocks: &[u8], now: Instant) -> usize {
        self.card.take_many(blocks, now)
    }
    fn busy_until(&self, now: Instant) -> Instant {
        self.card.busy_until(now)
    }
    fn present(&self) -> bool {
        self.card.present()
    }
    fn violations(&self) -> Vec<String> {
        self.card.violations()
    }
}

impl SpiMode for SpiMmc {
    fn pending_status(&self) -> u32 {
        self.untold
    }
    fn blocks_to_last(&self, arg: u32) -> Option<u64> {
        let config = self.card.config();
        let unit = if config.sector_addressed() { 1 } else { 512 };
        (config.sectors() - 1).checked_sub(u64::from(arg) / unit)
    }
}

impl Medium for SpiMmc {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        self.card.with_storage(f);
    }
    fn expect_loss(&mut self, on: bool) {
        self.card.expect_loss(on);
    }
    fn settle(&mut self, keep: usize) {
        self.card.settle(keep);
    }
    fn volatile(&mut self) -> usize {
        self.card.volatile()
    }
    fn tells_status(&self, _: bool, index: u8) -> bool {
        index != 58
    }
    fn lose(&mut self, survivors: &[usize]) {
        self.card.lose(survivors);
    }
}

//! An SD card in SPI mode, on the command level.

use crate::card::{Answer, Bits, Capacity, Card, Phase, SdCard, Sent, State, Token, Version, crc7};
use crate::fault::Medium;
use crate::storage::Storage;
use mmc_time::Instant;

pub(super) const ILLEGAL_COMMAND: u32 = 1 << 22;
/// What the card of the SD bus says of an earlier frame: in SPI mode each is answered at once.
pub(super) const PREVIOUS: u32 = ILLEGAL_COMMAND | 1 << 23;
const WINDOW: u32 = 0x00ff_8000;

/// A card in SPI mode on the command level, as [`Link`](super::Link) needs it.
pub trait SpiMode: Medium {
    /// Error bits of the card status that no response has told yet.
    fn pending_status(&self) -> u32;
    /// How many blocks after the one that CMD18 with `arg` begins at the last of the card comes; `None`: `arg` is behind
    /// it.
    fn blocks_to_last(&self, arg: u32) -> Option<u64>;
}

/// An SD card that was reset in SPI mode: the same state machine without addresses. Commands of the SD bus that
/// are not there are illegal; every command is answered.
///
/// As a [`Card`] its answers are those of the SD bus: an R1 carries the card status *after* the command, the OCR of
/// CMD58 comes as an R3, CID and CSD as blocks of 16 bytes. What the wires make of them is [`Link`](super::Link)'s
/// business; CMD59 is, too. CMD2, CMD3 and CMD7, which a native card needs to get to work, are sent to
/// the card inside when it says that it is ready; they are in its log.
#[derive(Debug)]
pub struct SpiSd {
    card: SdCard,
    /// CMD55 came just before.
    app: bool,
    /// CID or CSD that waits to be sent, and since when.
    register: Option<([u8; 16], Instant)>,
}

impl SpiSd {
    /// Wraps a card.
    #[must_use]
    pub fn new(card: SdCard) -> Self {
        Self { card, app: false, register: None }
    }
    /// The card of the SD bus inside.
    #[must_use]
    pub fn sd(&self) -> &SdCard {
        &self.card
    }
    /// The same, for a test's back door.
    pub fn sd_mut(&mut self) -> &mut SdCard {
        &mut self.card
    }

    /// Whether SPI mode has the command at all.
    fn has(index: u8, app: bool) -> bool {
        if app {
            matches!(index, 13 | 22 | 23 | 41 | 42 | 51)
        } else {
            matches!(index, 0 | 1 | 6 | 8..=10 | 12 | 13 | 16..=18 | 24 | 25 | 27..=30 | 32..=38 | 42 | 50 | 55 | 56 | 58)
        }
    }
    fn r1(index: u8, bits: u32, state: State) -> Bits {
        short(index, bits | (state as u32 & 15) << 9)
    }
    /// The OCR as it stands.
    fn ocr(&self, now: Instant) -> u32 {
        let ready = self.card.state(now) >= State::Stby;
        let high = self.card.config().capacity() != Capacity::Standard;
        let low = u32::from(self.card.config().quirks.low_voltage) << 7;
        WINDOW | low | u32::from(ready) << 31 | u32::from(ready && high) << 30
    }
    /// ACMD41 and CMD1: only HCS of the argument counts.
    fn op_cond(&mut self, index: u8, arg: u32, now: Instant) -> Answer {
        if self.card.state(now) == State::Idle {
            self.card.command(55, 0, now);
            self.card.command(41, arg & 1 << 30 | WINDOW, now);
            if self.card.state(now) == State::Ready {
                self.card.command(2, 0, now);
                self.card.command(3, 0, now);
                self.card.command(7, u32::from(self.card.rca()) << 16, now);
            }
        }
        Answer { response: Some(Self::r1(index, 0, self.card.state(now))), data: None }
    }
    fn register(&mut self, index: u8, register: [u8; 16], now: Instant) -> Answer {
        self.register = Some((register, now + self.card.config().profile.cmd));
        let data = Some(Phase { read: true, block_len: 16, blocks: Some(1) });
        Answer { response: Some(Self::r1(index, 0, State::Data)), data }
    }
}

pub(super) fn short(index: u8, value: u32) -> Bits {
    let [a, b, c, d] = value.to_be_bytes();
    Bits::Short([index, a, b, c, d, crc7(&[index, a, b, c, d]) << 1 | 1])
}

impl Card for SpiSd {
    fn power(&mut self, on: bool, now: Instant) {
        (self.app, self.register) = (false, None);
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
        // SDUC cards have no SPI mode, and none has one at 1.8 V.
        let deaf = self.card.config().capacity() == Capacity::Ultra || self.card.is_1_8_v();
        if deaf || !self.card.present() {
            return Answer::default();
        }
        let app = std::mem::take(&mut self.app) && Self::has(index, true);
        let state = self.card.state(now);
        let illegal = |state| Answer { response: Some(Self::r1(index, ILLEGAL_COMMAND, state)), data: None };
        if !Self::has(index, app) {
            return illegal(state);
        }
        match (app, index, state) {
            (false, 1, _) | (true, 41, _) => return self.op_cond(index, arg, now),
            (false, 9 | 10, State::Tran) => {
                let config = self.card.config();
                let register = if index == 9 { self.card.csd() } else { config.cid() };
                return self.register(index, register, now);
            }
            (false, 9 | 10, _) => return illegal(state),
            (false, 58, _) => {
                let [a, b, c, d] = self.ocr(now).to_be_bytes();
                return Answer { response: Some(Bits::Short([0x3f, a, b, c, d, 0xff])), data: None };
            }
            (false, 55, State::Idle | State::Tran | State::Data | State::Rcv | State::Prg) => self.app = true,
            _ => {}
        }
        let rca = u32::from(self.card.rca()) << 16;
        if app {
            self.card.command(55, rca, now);
        }
        let arg = if matches!((app, index), (false, 13 | 55)) { rca } else { arg };
        if index == 55 {
            // Sent with the command it announces.
            return Answer { response: Some(Self::r1(55, 0, state)), data: None };
        }
        let mut answer = self.card.command(index, arg, now);
        let after = self.card.state(now);
        match &mut answer.response {
            Some(Bits::Short(b)) if b[0] == index && index != 8 => {
                let status = u32::from_be_bytes([b[1], b[2], b[3], b[4]]);
                let status = status & !(PREVIOUS | 0xf << 9);
                answer.response = Some(Self::r1(index, status, after));
                answer
            }
            // CMD0; a voltage that is not there.
            None if index == 0 => {
                answer.response = Some(Self::r1(0, 0, after));
                answer
            }
            None if index == 8 && self.card.config().version >= Version::V2 && after == State::Idle => {
                answer.response = Some(short(8, arg & 0xff));
                answer
            }
            None if after != State::Ina => illegal(after),
            _ => answer,
        }
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
            None => self.card.send(block, now),
        }
    }
    fn send_many(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        if self.register.is_some() { 0 } else { self.card.send_many(blocks, now) }
    }
    fn take(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        self.card.take(block, crc_ok, now)
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

impl SpiMode for SpiSd {
    fn pending_status(&self) -> u32 {
        self.card.pending_status()
    }
    fn blocks_to_last(&self, arg: u32) -> Option<u64> {
        let config = self.card.config();
        let unit = if config.capacity() == Capacity::Standard { 512 } else { 1 };
        (config.sectors - 1).checked_sub(u64::from(arg) / unit)
    }
}

impl Medium for SpiSd {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        self.card.with_storage(f);
    }
    fn volatile(&mut self) -> usize {
        self.card.volatile()
    }
    fn lose(&mut self, survivors: &[usize]) {
        self.card.lose(survivors);
    }
}

//! The wires of a card in SPI mode: bytes to commands and blocks, answers and blocks to bytes.

use super::{SpiConfig, SpiMode, SpiSd};
use crate::card::{Bits, Card, Sent, Token, crc7};
use crate::fault::Faulty;
use mmc_time::Instant;
use std::collections::VecDeque;

/// Bytes that a response and its delay have at most.
const RESPONSE: usize = 16;
const START: u8 = 0xfe;
const START_MULTI: u8 = 0xfc;
const STOP: u8 = 0xfd;

/// What the host's next bytes are.
#[derive(Debug)]
enum Input {
    /// FF, or a command.
    Command(Vec<u8>),
    /// The token of a block to write, or a command.
    Token,
    /// A block and its CRC16.
    Block(Vec<u8>),
}

/// The data phase that runs.
#[derive(Clone, Copy, Debug)]
struct Run {
    read: bool,
    len: usize,
    /// Blocks in all, where it ends by itself.
    blocks: Option<u32>,
    /// It is one of CMD25, which has a token of its own.
    multi: bool,
    k: u32,
}

/// A card behind its wires. Time goes with the bytes: an instant is the end of a byte.
#[derive(Debug)]
pub struct Link<C = SpiSd> {
    card: Faulty<C>,
    config: SpiConfig,
    selected: bool,
    /// CMD0 with chip select low has come.
    spi: bool,
    /// ACMD41 has not been answered with "ready".
    idle: bool,
    /// The last R1 said that a command was illegal.
    illegal: bool,
    crc: bool,
    input: Input,
    output: VecDeque<u8>,
    /// A response is in `output`; and its last byte was the one before this.
    responding: bool,
    responded: bool,
    run: Option<Run>,
    /// So many bytes of busy are due at least.
    busy: u8,
    /// The block of the running CMD18 that is the last of the card.
    end: Option<u64>,
    /// How often the card had lost its supply when this was last looked at.
    resets: u32,
    /// The command that was last begun.
    last: u8,
    violations: Vec<String>,
}

impl<C: SpiMode> Link<C> {
    /// Powers `card` at `now` and connects it.
    #[must_use]
    pub fn new(card: Faulty<C>, config: SpiConfig, now: Instant) -> Self {
        let mut card = card.in_spi_mode();
        card.power(true, now);
        Self {
            resets: card.resets(),
            card,
            config,
            selected: false,
            spi: false,
            idle: true,
            illegal: false,
            crc: config.always_crc,
            input: Input::Command(Vec::new()),
            output: VecDeque::new(),
            responding: false,
            responded: false,
            run: None,
            busy: 0,
            end: None,
            last: 0,
            violations: Vec::new(),
        }
    }
    /// The card.
    #[must_use]
    pub fn card(&self) -> &Faulty<C> {
        &self.card
    }
    /// The card, for a test's back door.
    pub fn card_mut(&mut self) -> &mut Faulty<C> {
        &mut self.card
    }
    /// What the host did wrong so far, on the wires first, then what the card says.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.violations.iter().cloned().chain(self.card.violations()).collect()
    }
    /// The clock of the bus.
    pub fn bus(&mut self, hz: u32, now: Instant) {
        self.card.bus(hz, 1, now);
    }
    /// Chip select: true is low.
    pub fn select(&mut self, on: bool, now: Instant) {
        self.selected = on;
        if on || !self.spi {
            return;
        }
        let in_command = match &self.input {
            Input::Command(bytes) => !bytes.is_empty(),
            // Between blocks the card is busy, and may be left alone.
            Input::Token => self.run.is_some_and(|r| r.k == 0),
            Input::Block(_) => true,
        };
        let reading = self.run.is_some_and(|r| r.read);
        if in_command || reading || !self.output.is_empty() {
            let last = self.last;
            self.violation(format!("chip select rose in the middle of CMD{last}"));
            if self.config.strict_select {
                if self.run.take().is_some() {
                    self.card.command(12, 0, now);
                }
                self.reset();
            }
        }
    }
    /// The card has lost its supply.
    fn start_over(&mut self) {
        self.resets = self.card.resets();
        (self.spi, self.idle, self.busy, self.crc) = (false, true, 0, self.config.always_crc);
        self.illegal = false;
        self.reset();
    }
    fn reset(&mut self) {
        self.input = Input::Command(Vec::new());
        self.output.clear();
        self.run = None;
    }
    fn violation(&mut self, text: String) {
        if self.violations.len() < 256 {
            self.violations.push(text);
        }
    }

    /// One byte each way, ending at `now`.
    pub fn exchange(&mut self, out: u8, now: Instant) -> u8 {
        if !self.selected {
            if out == 0xff {
                self.card.idle_clocks(8);
            }
            return 0xff;
        }
        if self.resets != self.card.resets() {
            self.start_over();
        }
        if !self.card.present() {
            return 0xff;
        }
        let deaf = std::mem::take(&mut self.responded) && self.config.deaf_after_response;
        let sent = self.next(now);
        if self.responding && self.output.is_empty() {
            (self.responding, self.responded) = (false, true);
        }
        if !deaf {
            self.byte(out, now);
        }
        sent
    }

    /// The byte the card sends.
    fn next(&mut self, now: Instant) -> u8 {
        if !self.spi {
            return if self.config.low_until_cmd0 { 0 } else { 0xff };
        }
        if let Some(byte) = self.output.pop_front() {
            return byte;
        }
        if self.is_busy(now) {
            self.busy = self.busy.saturating_sub(1);
            return 0;
        }
        if let Some(run) = self.run
            && run.read
            && self.card.ready(run.k) <= now
        {
            self.load(run, now);
        }
        self.output.pop_front().unwrap_or(0xff)
    }
    fn is_busy(&self, now: Instant) -> bool {
        self.busy > 0 || self.card.busy_until(now) > now
    }
    /// Puts the next block of a read in front of the wires.
    fn load(&mut self, mut run: Run, now: Instant) {
        let mut block = vec![0; run.len];
        let mut sent = self.card.send(&mut block, now);
        if self.end == Some(run.k.into()) && sent == Sent::Good {
            sent = Sent::BadCrc;
        }
        run.k += 1;
        self.run = (run.blocks != Some(run.k)).then_some(run);
        match sent {
            Sent::Good | Sent::BadCrc => {
                let crc = crc16(&block) ^ u16::from(sent == Sent::BadCrc);
                self.output.push_back(START);
                self.output.extend(&block);
                self.output.extend(crc.to_be_bytes());
            }
            Sent::Nothing => {
                self.run = None;
                // Why not: the bits tell it; none of them: the card fell silent.
                if let Some(token) = error_token(self.card.card().pending_status()) {
                    self.output.push_back(token);
                }
            }
        }
        if self.run.is_some() {
            // A byte between blocks.
            self.output.push_back(0xff);
        }
    }

    /// The byte the host sends.
    fn byte(&mut self, byte: u8, now: Instant) {
        match &mut self.input {
            Input::Command(bytes) => {
                if bytes.is_empty() && byte & 0xc0 != 0x40 {
                    return;
                }
                bytes.push(byte);
                if let [first, a, b, c, d, crc] = bytes[..] {
                    let frame = [first, a, b, c, d];
                    self.input = Input::Command(Vec::new());
                    self.frame(frame, crc, now);
                }
            }
            Input::Token => self.token(byte, now),
            Input::Block(bytes) => {
                bytes.push(byte);
                let len = self.run.map_or(0, |r| r.len);
                if bytes.len() == len + 2 {
                    let block = std::mem::take(bytes);
                    self.block(&block, len, now);
                }
            }
        }
    }
    /// A command frame is complete.
    fn frame(&mut self, frame: [u8; 5], crc: u8, now: Instant) {
        let (index, right) = (frame[0] & 63, crc7(&frame) << 1 | 1 == crc);
        self.last = index;
        if !self.spi {
            if index != 0 || !right {
                return self.violation(format!(
                    "CMD{index} before CMD0 with its CRC has brought the card into SPI mode"
                ));
            }
            self.spi = true;
        }
        let writing = self.run.is_some_and(|r| !r.read);
        if self.is_busy(now) && !matches!(index, 0 | 12) {
            return self.violation(format!("CMD{index} while the card is busy"));
        }
        if !right && (self.crc || matches!(index, 0 | 8)) {
            self.output.clear();
            return self.respond(&[0x08 | u8::from(self.idle)]);
        }
        let reading = self.run.is_some_and(|r| r.read) || self.output.len() > RESPONSE;
        if reading && !matches!(index, 0 | 12) {
            self.violation(format!("CMD{index} in the middle of a read"));
        }
        self.output.clear();
        self.run = None;
        if index == 12 && !writing {
            self.output.push_back(self.config.stuff);
        }
        self.execute(index, u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]]), now);
    }
    fn execute(&mut self, index: u8, arg: u32, now: Instant) {
        if index == 0 {
            (self.idle, self.crc) = (true, self.config.always_crc);
        }
        let answer = self.card.command(index, arg, now);
        let Some(Bits::Short(bits)) = answer.response else { return };
        let value = u32::from_be_bytes([bits[1], bits[2], bits[3], bits[4]]);
        let idle = u8::from(self.idle);
        match (index, bits[0]) {
            // R3 and R7.
            (58, 0x3f) | (8, 8)
                if index == 58 || (value & (ILLEGAL | COM_CRC) == 0 && answer.data.is_none()) =>
            {
                self.respond(&[idle, bits[1], bits[2], bits[3], bits[4]]);
            }
            _ if index == 59 && !self.config.no_crc_command && value & COM_CRC == 0 => {
                self.crc = arg & 1 == 1 || self.config.always_crc;
                self.respond(&[idle]);
            }
            _ => {
                self.idle &= value >> 9 & 15 == 0;
                let r1 = r1(value) | u8::from(self.idle);
                let again = std::mem::replace(&mut self.illegal, value & ILLEGAL != 0);
                let again = u8::from(again && self.config.illegal_again) << 2;
                if index == 13 && r1 & 0x0c == 0 {
                    self.respond(&[r1 & 0x07 | again, r2(value)]);
                } else {
                    self.respond(&[r1 | again]);
                }
            }
        }
        self.end = None;
        if index == 18 {
            let to_go = self.card.card().blocks_to_last(arg);
            self.end = to_go.filter(|_| self.config.last_by_single_only);
            if self.config.no_multi_read {
                return;
            }
        }
        if let Some(p) = answer.data {
            let (len, multi) = (usize::from(p.block_len), index == 25);
            self.run = Some(Run { read: p.read, len, blocks: p.blocks, multi, k: 0 });
            if !p.read {
                self.input = Input::Token;
            }
        } else if index == 12 || index == 38 {
            self.busy = 1;
        } else if index == 55 {
            self.busy = self.config.busy_after_app;
        }
    }
    /// Sends a response after N_CR.
    fn respond(&mut self, bytes: &[u8]) {
        let delay = self.config.response_delay.clamp(1, 8);
        self.output.extend(std::iter::repeat_n(0xff, delay.into()));
        self.output.extend(bytes);
        self.responding = true;
    }
    /// A byte between the blocks of a write.
    fn token(&mut self, byte: u8, now: Instant) {
        let multi = self.run.is_some_and(|r| r.multi);
        match byte {
            0xff => {}
            _ if byte & 0xc0 == 0x40 => {
                self.input = Input::Command(vec![byte]);
            }
            START_MULTI | STOP if multi && self.is_busy(now) => {
                self.violation(format!("token {byte:02X} while the card is busy"));
            }
            START if !multi => self.input = Input::Block(Vec::new()),
            START_MULTI if multi => self.input = Input::Block(Vec::new()),
            STOP if multi => {
                self.run = None;
                self.input = Input::Command(Vec::new());
                self.card.command(12, 0, now);
                self.output.push_back(0xff);
                self.busy = 1;
            }
            _ => self.violation(format!("byte {byte:02X} where a token of CMD{} was due", self.last)),
        }
    }
    /// A block to write is complete.
    fn block(&mut self, bytes: &[u8], len: usize, now: Instant) {
        let (block, crc) = bytes.split_at(len.min(bytes.len()));
        let right = !self.crc || crc == crc16(block).to_be_bytes();
        let token = self.card.take(block, right, now);
        let answer = match token {
            Token::Accepted => Some(0xe5),
            Token::CrcError => Some(0xeb),
            // Refused for a reason that CMD13 tells, or silence.
            Token::Nothing => (self.card.card().pending_status() != 0).then_some(0xed),
        };
        self.output.extend(answer);
        self.busy |= u8::from(answer.is_some());
        if let Some(run) = &mut self.run {
            run.k += 1;
        }
        let more = self.run.is_some_and(|r| r.multi);
        self.input = if more { Input::Token } else { Input::Command(Vec::new()) };
        if !more {
            self.run = None;
        }
    }
}

const ILLEGAL: u32 = 1 << 22;
const COM_CRC: u32 = 1 << 23;

/// The R1 of a card status, but for the idle bit.
fn r1(status: u32) -> u8 {
    let bit = |from: u32, to: u8| u8::from(status & from != 0) << to;
    bit(1 << 13, 1)
        | bit(ILLEGAL, 2)
        | bit(COM_CRC, 3)
        | bit(1 << 28, 4)
        | bit(1 << 30, 5)
        | bit(1 << 31 | 1 << 29, 6)
}

/// The second byte of R2.
fn r2(status: u32) -> u8 {
    let bit = |from: u32, to: u8| u8::from(status & from != 0) << to;
    bit(1 << 25, 0)
        | bit(1 << 15 | 1 << 24, 1)
        | bit(1 << 19, 2)
        | bit(1 << 20, 3)
        | bit(1 << 21, 4)
        | bit(1 << 26, 5)
        | bit(1 << 27, 6)
        | bit(1 << 31 | 1 << 16, 7)
}

/// The data error token of a card status; `None`: it says no error.
fn error_token(status: u32) -> Option<u8> {
    let bit = |from: u32, to: u8| u8::from(status & from != 0) << to;
    let token = bit(1 << 19, 0) | bit(1 << 20, 1) | bit(1 << 21, 2) | bit(1 << 31 | 1 << 30, 3);
    (token != 0).then_some(token)
}

/// CRC16 of data blocks (x¹⁶ + x¹² + x⁵ + 1, start 0).
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &b| {
        let mut x = (crc >> 8) as u8 ^ b;
        x ^= x >> 4;
        let x = u16::from(x);
        crc << 8 ^ x << 12 ^ x << 5 ^ x
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_of_a_block_of_ones_is_the_published_one() {
        assert_eq!(crc16(&[0xff; 512]), 0x7fa1);
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn bits_of_the_status_find_their_places() {
        assert_eq!(
            (r1(1 << 22), r1(1 << 23), r1(1 << 30), r1(1 << 31), r1(1 << 28)),
            (4, 8, 0x20, 0x40, 0x10)
        );
        assert_eq!(
            (r2(1 << 31), r2(1 << 19), r2(1 << 21), r2(1 << 26), r2(1 << 25)),
            (0x80, 4, 0x10, 0x20, 1)
        );
        assert_eq!(
            (error_token(1 << 31), error_token(1 << 21), error_token(1 << 8)),
            (Some(8), Some(4), None)
        );
    }
}

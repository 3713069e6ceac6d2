//! What is behind the addresses of an SDIO card: CCCR, FBR, CIS and the functions' own registers (`spec/card.md` §15).

use mmc_time::{Duration, Instant};

/// Bytes of a function's address space.
const SPACE: u32 = 1 << 17;
/// Where the CIS of function 0 is; that of function n is `0x100 * n` further on.
const CIS: u32 = 0x1000;

/// Bits of the flags of an R5.
pub(super) const COM_CRC: u8 = 1 << 7;
pub(super) const ILLEGAL: u8 = 1 << 6;
pub(super) const ERROR: u8 = 1 << 3;
pub(super) const FUNCTION_NUMBER: u8 = 1 << 1;
pub(super) const OUT_OF_RANGE: u8 = 1;

/// A function of an SDIO card.
///
/// Its register 0 is its interrupt register: bit 0 is set by [`raise`](super::SdioCard::raise), and cleared when a one is
/// written to it. All other addresses are memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoFunction {
    /// Code of the standard interface: 0 none, 7 WLAN …; 15 and above: 15 in the FBR, and the rest as extended code.
    pub interface: u8,
    /// The longest block it takes, 1..=2048.
    pub max_block: u16,
    /// From its bit in IOEx until its bit in IORx.
    pub wake_up: Duration,
}

/// The registers of all functions.
#[derive(Debug)]
pub(super) struct Io {
    functions: Vec<IoFunction>,
    /// Contents of functions 1 and up.
    memory: Vec<Vec<u8>>,
    cis: Vec<Vec<u8>>,
    high_speed: bool,
    /// Enabled since.
    enabled: [Option<Instant>; 8],
    interrupts: u8,
    pending: u8,
    /// Bus interface control: width in bits 1:0, bit 7.
    bus: u8,
    /// EHS.
    fast: bool,
    blocks: [u16; 8],
}

/// What a write asks of the card beside the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// RES: the I/O part starts anew.
    Reset,
    /// The abort of a function's data phase.
    Abort(u8),
}

impl Io {
    pub(super) fn new(functions: &[IoFunction], vendor: u16, device: u16, high_speed: bool) -> Self {
        let mut cis = vec![common_cis(vendor, device, high_speed)];
        cis.extend(functions.iter().map(function_cis));
        Self {
            memory: functions.iter().map(|_| vec![0; SPACE as usize]).collect(),
            functions: functions.to_vec(),
            cis,
            high_speed,
            enabled: [None; 8],
            interrupts: 0,
            pending: 0,
            bus: 0,
            fast: false,
            blocks: [0; 8],
        }
    }
    /// Back to what it is after power-up; memory stays.
    pub(super) fn reset(&mut self) {
        (self.enabled, self.interrupts, self.pending) = ([None; 8], 0, 0);
        (self.bus, self.fast, self.blocks) = (0, false, [0; 8]);
    }
    /// Number of functions beside function 0.
    pub(super) fn count(&self) -> u8 {
        self.functions.len() as u8
    }
    pub(super) fn lines(&self) -> u8 {
        if self.bus & 3 == 2 { 4 } else { 1 }
    }
    pub(super) fn is_fast(&self) -> bool {
        self.fast
    }
    /// Data lines may be wanted for an interrupt.
    pub(super) fn attention(&self) -> bool {
        self.interrupts & 1 == 1 && self.pending & self.interrupts & !1 != 0
    }
    pub(super) fn raise(&mut self, function: u8) {
        if (1..=self.count()).contains(&function) {
            self.pending |= 1 << function;
        }
    }
    fn ready(&self, now: Instant) -> u8 {
        let all = self.functions.iter().zip(&self.enabled[1..]).enumerate();
        all.fold(0, |bits, (i, (f, since))| {
            bits | u8::from(since.is_some_and(|t| now >= t + f.wake_up)) << (i + 1)
        })
    }
    /// Why `len` bytes at `address` of `function` cannot be reached now; 0: they can.
    pub(super) fn check(&self, function: u8, address: u32, len: u32, now: Instant) -> u8 {
        if function > self.count() {
            FUNCTION_NUMBER
        } else if address.saturating_add(len) > SPACE {
            OUT_OF_RANGE
        } else if function > 0 && self.ready(now) >> function & 1 == 0 {
            ERROR
        } else {
            0
        }
    }
    /// Block size set for a function, and the longest it takes.
    pub(super) fn block_size(&self, function: u8) -> (u16, u16) {
        let most = match function {
            0 => 512,
            n => self.functions.get(usize::from(n) - 1).map_or(0, |f| f.max_block),
        };
        (self.blocks[usize::from(function & 7)], most)
    }
    /// A byte, inside by [`check`](Self::check).
    pub(super) fn read(&self, function: u8, address: u32, now: Instant) -> u8 {
        match function {
            0 => self.read_common(address, now),
            n if address == 0 => self.pending >> n & 1,
            n => *self.cell(n, address).unwrap_or(&0),
        }
    }
    fn cell(&self, function: u8, address: u32) -> Option<&u8> {
        self.memory.get(usize::from(function).checked_sub(1)?)?.get(address as usize)
    }
    fn read_common(&self, address: u32, now: Instant) -> u8 {
        if address >= CIS {
            let (n, at) = ((address - CIS) / 0x100, (address % 0x100) as usize);
            return self.cis.get(n as usize).map_or(0, |cis| *cis.get(at).unwrap_or(&0xff));
        }
        let (n, at) = ((address / 0x100) as u8, address % 0x100);
        if n > 0 {
            let Some(f) = self.functions.get(usize::from(n) - 1) else { return 0 };
            return match at {
                0 => f.interface.min(15),
                1 if f.interface >= 15 => f.interface - 15,
                9..=11 => le(CIS + 0x100 * u32::from(n), at - 9),
                16 | 17 => le(self.blocks[usize::from(n)].into(), at - 16),
                _ => 0,
            };
        }
        let bits = |list: &[Option<Instant>]| {
            list.iter().enumerate().fold(0, |b, (i, on)| b | u8::from(on.is_some()) << i)
        };
        match at {
            0 => 0x32, // CCCR 2.00, SDIO 2.00
            1 => 2,
            2 => bits(&self.enabled),
            3 => self.ready(now),
            4 => self.interrupts,
            5 => self.pending & self.interrupts,
            7 => self.bus,
            8 => 0x03, // CMD52 during data, blocks
            9..=11 => le(CIS, at - 9),
            16 | 17 => le(self.blocks[0].into(), at - 16),
            19 => u8::from(self.high_speed) | u8::from(self.fast) << 1,
            _ => 0,
        }
    }
    /// Writes a byte; what cannot be written stays as it is.
    pub(super) fn write(&mut self, function: u8, address: u32, byte: u8, now: Instant) -> Effect {
        match function {
            0 => return self.write_common(address, byte, now),
            n if address == 0 => self.pending &= !((byte & 1) << n),
            n => {
                let space = self.memory.get_mut(usize::from(n) - 1);
                if let Some(cell) = space.and_then(|m| m.get_mut(address as usize)) {
                    *cell = byte;
                }
            }
        }
        Effect::None
    }
    fn write_common(&mut self, address: u32, byte: u8, now: Instant) -> Effect {
        // The functions there are.
        let mask = ((2_u16 << self.functions.len()) - 2) as u8;
        match address {
            2 => {
                for n in 1..8_usize {
                    let on = byte & mask & 1 << n != 0;
                    self.enabled[n] = if on { self.enabled[n].or(Some(now)) } else { None };
                }
            }
            4 => self.interrupts = byte & (mask | 1), // bit 0 is the master
            6 if byte & 8 != 0 => return Effect::Reset,
            6 => return Effect::Abort(byte & 7),
            7 => self.bus = byte & 0x83,
            19 => self.fast = self.high_speed && byte & 2 != 0,
            _ => {
                let (n, at) = ((address / 0x100) as usize, address % 0x100);
                if n <= self.functions.len() && (16..=17).contains(&at) {
                    let mut bytes = self.blocks[n].to_le_bytes();
                    bytes[at as usize - 16] = byte;
                    self.blocks[n] = u16::from_le_bytes(bytes) & 0xfff;
                }
            }
        }
        Effect::None
    }
    /// The memory of a function, for a test's back door.
    pub(super) fn memory_mut(&mut self, function: u8) -> Option<&mut [u8]> {
        let space = self.memory.get_mut(usize::from(function).checked_sub(1)?)?;
        Some(space)
    }
}

/// Byte `i` of a number, the lowest first.
fn le(value: u32, i: u32) -> u8 {
    (value >> (8 * i)) as u8
}

fn tuple(cis: &mut Vec<u8>, code: u8, body: &[u8]) {
    cis.extend([code, body.len() as u8]);
    cis.extend(body);
}

fn common_cis(vendor: u16, device: u16, high_speed: bool) -> Vec<u8> {
    let mut cis = Vec::new();
    let ([a, b], [c, d]) = (vendor.to_le_bytes(), device.to_le_bytes());
    tuple(&mut cis, 0x21, &[0x0c, 0]);
    tuple(&mut cis, 0x22, &[0, 0, 2, if high_speed { 0x5a } else { 0x32 }]);
    tuple(&mut cis, 0x20, &[a, b, c, d]);
    tuple(&mut cis, 0x15, b"\x01\x00mmc-mock\0I/O\0\xff");
    cis.push(0xff);
    cis
}

fn function_cis(function: &IoFunction) -> Vec<u8> {
    let mut cis = Vec::new();
    let mut extension = [0; 0x2a];
    extension[0] = 1;
    extension[0xc..0xe].copy_from_slice(&function.max_block.to_le_bytes());
    tuple(&mut cis, 0x21, &[0x0c, 0]);
    tuple(&mut cis, 0x22, &extension);
    cis.push(0xff);
    cis
}

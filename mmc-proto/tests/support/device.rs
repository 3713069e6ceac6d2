//! A card that answers everything the smaller conversations say, as an SD card and an eMMC in one, without any state
//! machine of its own: what it stores is what was said to it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use crate::support::{PRG, TRAN};
use mmc_proto::command::Command;
use mmc_proto::host::{Cause, HostError, Phase, Reply};
use mmc_proto::machine::CardTraits;
use mmc_proto::register::{ExtCsd, ScrInfo, SsrInfo, ext_csd as e};
use mmc_proto::rpmb::{Frame, Request, SoftwareHmac, seal};
use mmc_proto::status::CardStatus;
use mmc_time::Duration;

pub const CARD: CardTraits = CardTraits {
    rca: 0x1234,
    blocks: 1 << 24,
    byte_addressed: false,
    cmd23: true,
    read_limit: Duration::from_millis(100),
    write_limit: Duration::from_millis(250),
    block_time: Duration::from_micros(50),
    unit: 1,
};

pub const KEY: [u8; 32] = [0x4b; 32];

pub fn hmac(parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
    SoftwareHmac::new(&KEY).mac(parts)
}

/// An eMMC of 5.1 that offers everything.
pub fn ext_csd() -> ExtCsd {
    let mut ext = ExtCsd::new([0; 512]);
    for (field, value) in [
        (e::EXT_CSD_REV, 8),
        (e::DEVICE_TYPE, 0x57),
        (e::CACHE_SIZE, 512),
        (e::BARRIER_SUPPORT, 1),
        (e::HPI_FEATURES, 1),
        (e::BKOPS_SUPPORT, 1),
        (e::BKOPS_EN, 1),
        (e::SEC_FEATURE_SUPPORT, 0x55),
        (e::GENERIC_CMD6_TIME, 5),
        (e::OUT_OF_INTERRUPT_TIME, 10),
        (e::S_A_TIMEOUT, 0x12),
        (e::BOOT_SIZE_MULT, 32),
        (e::RPMB_SIZE_MULT, 32),
        (e::PARTITION_CONFIG, 0x48),
        (e::USER_WP, 0x10),
        (e::ERASE_GROUP_DEF, 1),
        (e::HC_ERASE_GRP_SIZE, 1),
        (e::ERASE_TIMEOUT_MULT, 1),
        (e::TRIM_MULT, 1),
        (e::SEC_TRIM_MULT, 2),
        (e::GP_SIZE_MULT_2, 3),
        (e::HC_WP_GRP_SIZE, 16),
        (e::DEVICE_LIFE_TIME_EST_TYP_A, 2),
        (e::SEC_COUNT, 1 << 24),
    ] {
        ext.set(field, value);
    }
    ext
}

#[derive(Clone, Debug)]
pub struct Device {
    pub log: Vec<String>,
    pub ext_csd: ExtCsd,
    /// CMD13 answers "programming" this often.
    pub programming: u32,
    /// Extension registers: general information, power, performance.
    pub pages: [[u8; 512]; 3],
    /// A flush or a notification shows as running this often.
    pub running: u32,
    pub password: Vec<u8>,
    pub locked: bool,
    pub failed: bool,
    pub block_len: u32,
    pub rpmb: [u8; 256],
    pub counter: u32,
    pub request: Option<Frame>,
    pub app: bool,
    /// The data the last writing command brought.
    pub written: Vec<u8>,
}

impl Device {
    pub fn new() -> Self {
        let mut general = [0; 512];
        (general[2], general[4]) = (112, 2);
        (general[16], general[16 + 40], general[16 + 42], general[16 + 46]) = (1, 64, 1, 4);
        (general[64], general[64 + 42], general[64 + 46]) = (2, 1, 8);
        let (mut power, mut performance) = ([0; 512], [0; 512]);
        power[1] = 0x10;
        performance[4] = 1;
        Self {
            log: Vec::new(),
            ext_csd: ext_csd(),
            programming: 0,
            pages: [general, power, performance],
            running: 2,
            password: Vec::new(),
            locked: false,
            failed: false,
            block_len: 512,
            rpmb: [0; 256],
            counter: 7,
            request: None,
            app: false,
            written: Vec::new(),
        }
    }

    fn lock(&mut self, block: &[u8]) {
        let mode = block[0];
        if mode == 8 {
            self.failed = !self.locked;
            if self.locked {
                (self.locked, self.password) = (false, Vec::new());
            }
            return;
        }
        let passwords = &block[2..2 + usize::from(block[1])];
        let Some(rest) = passwords.strip_prefix(&self.password[..]) else {
            self.failed = true;
            return;
        };
        match mode & 3 {
            1 => (self.password, self.locked) = (rest.to_vec(), mode & 4 != 0),
            2 => (self.password, self.locked) = (Vec::new(), false),
            _ => self.locked = mode & 4 != 0,
        }
    }

    fn answer_frame(&mut self) -> [u8; 512] {
        let Some(request) = self.request.take() else { return [0; 512] };
        let asked = Request::from_code(request.kind()).unwrap();
        let answer = Frame::new(asked)
            .with_kind(asked.answer())
            .with_nonce(request.nonce())
            .with_address(request.address())
            .with_write_counter(self.counter);
        let answer = match asked {
            Request::ReadData => answer.with_data(&self.rpmb),
            _ => answer,
        };
        let mut frames = [answer];
        seal(&mut frames, hmac);
        frames[0].emit()
    }

    fn read(&mut self, app: bool, command: &Command, to: &mut [u8]) {
        to.fill(0);
        match (app, command.index) {
            (false, 8) => to.copy_from_slice(&self.ext_csd.emit()),
            (true, 13) => {
                to.copy_from_slice(&SsrInfo { au_size_code: 9, ..SsrInfo::default() }.emit().emit());
            }
            (true, 51) => {
                to.copy_from_slice(
                    &ScrInfo { sd_spec: 2, bus_widths: 5, ..ScrInfo::default() }.emit().emit(),
                );
            }
            (true, 22) => *to.last_mut().unwrap() = 17,
            (false, 30 | 31) => *to.last_mut().unwrap() = 0x81,
            (false, 48) => {
                let (page, at) = (command.arg >> 27 & 15, (command.arg >> 9 & 0x1ff) as usize);
                let mut registers = self.pages[page as usize];
                if self.running > 0 && page > 0 {
                    self.running -= 1;
                } else {
                    self.pages[2][261] = 0;
                    registers[261] = 0;
                    registers[1] |= registers[2] & 1;
                }
                to[..512 - at].copy_from_slice(&registers[at..]);
            }
            (false, 18) if self.request.is_some() => to.copy_from_slice(&self.answer_frame()),
            _ => to.fill(0x5a),
        }
    }

    fn write(&mut self, command: &Command, from: &[u8]) {
        self.written = from.to_vec();
        match command.index {
            42 => self.lock(from),
            49 => {
                let (page, at) = (command.arg >> 27 & 15, (command.arg >> 9 & 0x1ff) as usize);
                self.pages[page as usize][at] = from[0];
            }
            25 if from.len() == 512 => {
                let frame = Frame::parse(from).unwrap();
                match Request::from_code(frame.kind()) {
                    Some(Request::WriteData) => {
                        self.rpmb.copy_from_slice(frame.data());
                        self.counter = self.counter.wrapping_add(1);
                        self.request = Some(frame);
                    }
                    // The answer is to the write before.
                    Some(Request::ReadResult) => {}
                    Some(_) => self.request = Some(frame),
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// The good answer.
    pub fn answer(&mut self, command: &Command, scratch: &mut [u8]) -> Result<Reply, HostError> {
        let app = std::mem::take(&mut self.app);
        let prefix = if app { "ACMD" } else { "CMD" };
        self.log.push(format!("{prefix}{}:{:x}", command.index, command.arg));
        let mut status = TRAN | if self.locked { CardStatus::CARD_IS_LOCKED.bits() } else { 0 };
        let mut bytes = 0;
        if let Some(data) = command.data {
            bytes = data.bytes();
            let len = usize::from(data.block_len) * data.blocks as usize;
            // Data beyond the scratch are the caller's own.
            if let Some(range) = scratch.get_mut(..len) {
                match data.dir {
                    mmc_hal::Dir::Read => self.read(app, command, range),
                    mmc_hal::Dir::Write => self.write(command, range),
                }
            }
        }
        match command.index {
            55 => {
                self.app = true;
                status |= CardStatus::APP_CMD.bits();
            }
            13 if self.programming > 0 => {
                self.programming -= 1;
                status = PRG;
            }
            13 if std::mem::take(&mut self.failed) => status |= CardStatus::LOCK_UNLOCK_FAILED.bits(),
            16 => self.block_len = command.arg,
            _ => {}
        }
        if command.response == mmc_proto::command::Response::None {
            status = 0;
        }
        Ok(Reply { words: [status, 0, 0, 0], bytes })
    }
}

/// No answer at all.
pub fn silent(index: u8) -> HostError {
    HostError { cause: Cause::Timeout, phase: Phase::Command, index, r1: None }
}

//! A table-driven card and a driver for machines, without any host.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use mmc_proto::command::Command;
use mmc_proto::host::{Cause, HostError, Phase, Reply};
use mmc_proto::machine::{Machine, Step};
use mmc_proto::register::{CsdInfo, ScrInfo, SsrInfo, SwitchInfo};
use mmc_time::{Duration, Instant};

pub const TRAN: u32 = 0x0900;
pub const PRG: u32 = 0x0e00;

/// A well-behaved SD card as a table of answers, with knobs for the oddities of real ones.
#[derive(Clone, Debug)]
pub struct Card {
    /// Answers CMD8, with this word.
    pub if_cond: Option<u32>,
    /// ACMD41 answers busy this often.
    pub busy: u32,
    /// The OCR when ready.
    pub ocr: u32,
    pub rca: u16,
    /// CMD3 answers 0 this often first.
    pub rca_zero: u32,
    pub csd: [u8; 16],
    pub scr: Option<[u8; 8]>,
    pub ssr: Option<[u8; 64]>,
    pub switch: Option<[u8; 64]>,
    /// CMD13 answers "programming" this often after a write.
    pub programming: u32,
    /// R1 of a data command, CMD12 and CMD13 besides the state.
    pub errors: u32,
    pub app: bool,
    pub log: Vec<String>,
}

pub fn csd_v2(blocks_kib: u32) -> [u8; 16] {
    // size_bits holds bits 75:47; C_SIZE starts at bit 48.
    let c_size = blocks_kib / 512 - 1;
    CsdInfo {
        structure: 1,
        taac: 0x0e,
        tran_speed: 0x32,
        ccc: 0x5b5,
        read_bl_len: 9,
        size_bits: c_size << 1,
        erase_blk_en: 1,
        sector_size: 0x7f,
        r2w_factor: 2,
        write_bl_len: 9,
        ..CsdInfo::default()
    }
    .emit()
    .emit()
}

/// 2 GB: READ_BL_LEN 10, C_SIZE 4095, C_SIZE_MULT 7.
pub fn csd_v1() -> [u8; 16] {
    CsdInfo {
        taac: 0x26,
        tran_speed: 0x32,
        ccc: 0x5b5,
        read_bl_len: 10,
        size_bits: 4095 << 15 | 7,
        erase_blk_en: 1,
        sector_size: 0x1f,
        r2w_factor: 2,
        write_bl_len: 10,
        ..CsdInfo::default()
    }
    .emit()
    .emit()
}

impl Card {
    pub fn sdhc() -> Self {
        let scr = ScrInfo { sd_spec: 2, sd_spec3: 1, bus_widths: 5, cmd_support: 2, ..ScrInfo::default() };
        let ssr =
            SsrInfo { dat_bus_width_code: 2, speed_class_code: 4, au_size_code: 9, ..SsrInfo::default() };
        let switch = SwitchInfo {
            max_current_ma: 200,
            support1: 0x8003,
            support2: 0x8001,
            selected1: 1,
            ..SwitchInfo::default()
        };
        Self {
            if_cond: Some(0x1aa),
            busy: 3,
            ocr: 0xc0ff_8000,
            rca: 0xaaaa,
            rca_zero: 0,
            csd: csd_v2(8 << 20),
            scr: Some(scr.emit().emit()),
            ssr: Some(ssr.emit().emit()),
            switch: Some(switch.emit().emit()),
            programming: 0,
            errors: 0,
            app: false,
            log: Vec::new(),
        }
    }

    pub fn sdsc_v1() -> Self {
        let scr = ScrInfo { sd_spec: 0, bus_widths: 5, ..ScrInfo::default() };
        Self {
            if_cond: None,
            ocr: 0x80ff_8000,
            csd: csd_v1(),
            scr: Some(scr.emit().emit()),
            switch: None,
            ..Self::sdhc()
        }
    }

    fn data<const N: usize>(data: Option<[u8; N]>, scratch: &mut [u8], cmd: u8) -> Result<Reply, HostError> {
        match data {
            None => Err(HostError { cause: Cause::Timeout, phase: Phase::Data, index: cmd, r1: None }),
            Some(data) => {
                scratch[..N].copy_from_slice(&data);
                Ok(Reply { words: [TRAN, 0, 0, 0], bytes: N as u64 })
            }
        }
    }

    /// The answer of a good card.
    pub fn answer(&mut self, command: &Command, scratch: &mut [u8]) -> Result<Reply, HostError> {
        let app = std::mem::take(&mut self.app);
        let prefix = if app { "ACMD" } else { "CMD" };
        self.log.push(format!("{prefix}{}:{:x}", command.index, command.arg));
        let word = |w: u32| Ok(Reply { words: [w, 0, 0, 0], bytes: 0 });
        let silent =
            Err(HostError { cause: Cause::Timeout, phase: Phase::Command, index: command.index, r1: None });
        match (app, command.index) {
            (_, 0) => word(0),
            (_, 8) => self.if_cond.map_or(silent, word),
            (_, 55) => {
                self.app = true;
                word(0x20 | if command.arg == 0 { 0x100 } else { TRAN })
            }
            (true, 41) => {
                if self.busy > 0 {
                    self.busy -= 1;
                    return word(self.ocr & 0x00ff_ffff);
                }
                // A card with sector addresses stays busy for ever for a host that does not know them.
                let hcs = command.arg & 1 << 30 != 0;
                word(if self.ocr & 1 << 30 != 0 && !hcs { self.ocr & 0x00ff_ffff } else { self.ocr })
            }
            (true, 51) => Self::data(self.scr, scratch, 51),
            (true, 13) => Self::data(self.ssr, scratch, 13),
            (true, _) => word(TRAN | 0x20),
            (_, 2) => Ok(Reply { words: [0x0353_4453, 0x4331_3647, 0x8012_3456, 0x7801_3500], bytes: 0 }),
            (_, 3) => {
                if self.rca_zero > 0 {
                    self.rca_zero -= 1;
                    return word(0x0500);
                }
                word(u32::from(self.rca) << 16 | 0x0500)
            }
            (_, 9) => {
                let mut words = [0; 4];
                for (word, chunk) in words.iter_mut().zip(self.csd.chunks(4)) {
                    *word = u32::from_be_bytes(chunk.try_into().unwrap());
                }
                Ok(Reply { words, bytes: 0 })
            }
            (_, 6) => Self::data(self.switch, scratch, 6),
            (_, 7) => word(0x0700),
            (_, 13) => {
                if self.programming > 0 {
                    self.programming -= 1;
                    return word(PRG);
                }
                word(TRAN | self.errors)
            }
            (_, 17 | 18 | 24 | 25) => {
                let bytes = command.data.unwrap().bytes();
                Ok(Reply { words: [TRAN | self.errors, 0, 0, 0], bytes })
            }
            (_, 12) => word(0x0b00 | self.errors),
            _ => word(TRAN),
        }
    }
}

/// What a drive came to.
#[derive(Debug)]
pub struct Run<T> {
    pub out: T,
    pub took: Duration,
    pub steps: u32,
}

/// Drives `machine` until it is done. `answer` gives the result of one step and how long it took; a step with
/// a limit never takes longer than that (a host sees to it).
///
/// # Panics
/// After 100,000 steps.
pub fn drive<M: Machine>(
    mut machine: M,
    mut answer: impl FnMut(&Step<M::Output>, &mut [u8]) -> (Result<Reply, HostError>, Duration),
) -> Run<M::Output> {
    let mut scratch = [0_u8; 512];
    let start = Instant::from_millis(5);
    let (mut now, mut last) = (start, None);
    for steps in 1..100_000 {
        let step = if machine.scratch() {
            machine.next(last.take(), &mut scratch, now)
        } else {
            machine.next(last.take(), &mut [], now)
        };
        match step {
            Step::Done(out) => {
                assert!(
                    matches!(machine.next(None, &mut scratch, now), Step::Done(_)),
                    "a finished machine stays finished"
                );
                return Run { out, took: now.since(start), steps };
            }
            Step::Sleep(time) => now += time,
            Step::Do(action) => {
                let (result, took) = answer(&step, &mut scratch);
                assert!(took <= action.limit, "the test's host overran its limit");
                now += took;
                last = Some(result);
            }
            Step::Bus(_) | Step::Power(_) => {
                let (result, took) = answer(&step, &mut scratch);
                now += took;
                last = Some(result);
            }
        }
    }
    panic!("the machine does not end");
}

/// A host error by number, for generated faults.
pub fn host_error(n: u8, index: u8) -> HostError {
    let causes = [
        Cause::Timeout,
        Cause::Limit,
        Cause::Crc,
        Cause::Framing,
        Cause::NoCrcStatus,
        Cause::Dma,
        Cause::Controller,
        Cause::Unsupported("by the test"),
        Cause::Busy,
        Cause::Aborted,
        Cause::NoCard,
    ];
    let phases = [Phase::Submit, Phase::Command, Phase::Data, Phase::Busy, Phase::Bus];
    HostError {
        cause: causes[usize::from(n) % causes.len()],
        phase: phases[usize::from(n) / causes.len() % phases.len()],
        index,
        r1: None,
    }
}

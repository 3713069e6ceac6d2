//! A small card of any family with the bus it hangs on: good by itself, with knobs for what can be wrong. It believes
//! its host, so that what a conversation says is all that is tested.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use crate::support::{csd_v1, csd_v2, host_error};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Timings, Width};
use mmc_proto::command::Command;
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{Machine, Step, TUNING_BLOCK_4, TUNING_BLOCK_8};
use mmc_proto::register::{ExtCsd, MmcCsdInfo, ScrInfo, SsrInfo, SwitchInfo, ext_csd as e};
use mmc_time::{Duration, Instant};

pub const TRAN: u32 = 0x0900;

/// A host that can do everything.
pub fn full() -> Capabilities {
    let mut caps = Capabilities::new();
    (caps.width, caps.max_hz, caps.v1_8, caps.sample_points) = (Width::Eight, 208_000_000, true, 16);
    let uhs = [Timing::Sdr12, Timing::Sdr25, Timing::Sdr50, Timing::Ddr50, Timing::Sdr104];
    let emmc = [Timing::Ddr52, Timing::Hs200, Timing::Hs400, Timing::Hs400Es];
    caps.timings = uhs.into_iter().chain(emmc).fold(Timings::new(), Timings::with);
    caps
}

#[derive(Clone, Debug)]
pub struct Toy {
    /// Answers CMD5: functions, and whether there is memory.
    pub io: Option<(u8, bool)>,
    /// Has an SD memory part; else an MMC, if it has any memory.
    pub sd: bool,
    pub mmc: bool,
    pub v2: bool,
    pub ocr: u32,
    pub mmc_ocr: u32,
    pub csd: [u8; 16],
    /// CMD5, ACMD41 and CMD1 answer busy this often, each.
    pub busy: u32,
    pub scr: [u8; 8],
    /// Functions of groups 1, 3 and 4.
    pub functions: [u16; 3],
    pub ext_csd: Option<ExtCsd>,
    pub cccr: [u8; 23],
    /// Sample points at which it is read right in a tuned mode.
    pub window: std::ops::Range<u16>,

    /// CMD11 goes unanswered.
    pub deaf_cmd11: bool,
    /// The lines stay low after it.
    pub stuck_low: bool,
    /// A switch to these is refused.
    pub refuses: Vec<Timing>,
    pub refuses_width: Vec<Width>,
    /// Answers nothing in these.
    pub deaf: Vec<Timing>,
    /// Data arrive garbled in these.
    pub garbled: Vec<Timing>,
    pub garbled_width: Vec<Width>,
    /// Cannot be tuned in these.
    pub untunable: Vec<Timing>,
    /// The host cannot switch the supply.
    pub fixed_supply: bool,

    pub bus: BusConfig,
    pub access: u8,
    pub app: bool,
    pub polls: u32,
    pub switch_error: bool,
    pub log: Vec<String>,
    /// Application commands that never reach it, each once: it has heard the CMD55 before.
    pub lost: Vec<u8>,
    /// It sends its SD status, which nobody asked for.
    pub sending: bool,
}

impl Toy {
    pub fn sdhc() -> Self {
        let scr = ScrInfo { sd_spec: 2, sd_spec3: 1, bus_widths: 5, cmd_support: 2, ..ScrInfo::default() };
        Self {
            io: None,
            sd: true,
            mmc: false,
            v2: true,
            ocr: 0xc0ff_8000,
            mmc_ocr: 0xc0ff_8080,
            csd: csd_v2(8 << 20),
            busy: 2,
            scr: scr.emit().emit(),
            functions: [3, 1, 1],
            ext_csd: None,
            cccr: [0; 23],
            window: 4..9,
            deaf_cmd11: false,
            stuck_low: false,
            refuses: Vec::new(),
            refuses_width: Vec::new(),
            deaf: Vec::new(),
            garbled: Vec::new(),
            garbled_width: Vec::new(),
            untunable: Vec::new(),
            fixed_supply: false,
            bus: BusConfig::default(),
            access: 0,
            app: false,
            polls: 0,
            switch_error: false,
            log: Vec::new(),
            lost: Vec::new(),
            sending: false,
        }
    }
    pub fn uhs() -> Self {
        Self { ocr: 0xc1ff_8000, functions: [0x1f, 0xf, 0xf], ..Self::sdhc() }
    }
    pub fn sdsc() -> Self {
        let scr = ScrInfo { bus_widths: 5, ..ScrInfo::default() };
        Self { v2: false, ocr: 0x80ff_8000, csd: csd_v1(), scr: scr.emit().emit(), ..Self::sdhc() }
    }
    /// An eMMC 5.1 of 8 GB with these bits of DEVICE_TYPE.
    pub fn emmc(device_type: u64) -> Self {
        let mut ext = ExtCsd::new([0; 512]);
        for (field, value) in [
            (e::EXT_CSD_REV, 8),
            (e::SEC_COUNT, 16_777_216),
            (e::DEVICE_TYPE, device_type),
            (e::STROBE_SUPPORT, u64::from(device_type & 0x100 != 0)),
            (e::GENERIC_CMD6_TIME, 10),
        ] {
            ext.set(field, value);
        }
        let csd = MmcCsdInfo {
            structure: 3,
            spec_vers: 4,
            tran_speed: 0x32,
            ccc: 0xf5,
            read_bl_len: 9,
            c_size: 0xfff,
            c_size_mult: 7,
            write_bl_len: 9,
            ..MmcCsdInfo::default()
        };
        Self { sd: false, mmc: true, csd: csd.emit().emit(), ext_csd: Some(ext), ..Self::sdhc() }
    }
    /// MMC 3.1 of 32 MB: no EXT_CSD, no CMD6, byte addresses.
    pub fn mmc3() -> Self {
        let csd = MmcCsdInfo {
            structure: 2,
            spec_vers: 3,
            tran_speed: 0x2a,
            ccc: 0xf5,
            read_bl_len: 9,
            c_size: 1959,
            c_size_mult: 3,
            write_bl_len: 9,
            ..MmcCsdInfo::default()
        };
        let csd = csd.emit().emit();
        Self { ext_csd: None, csd, mmc_ocr: 0x80ff_8000, ..Self::emmc(0) }
    }
    pub fn sdio() -> Self {
        let mut cccr = [0; 23];
        (cccr[0], cccr[8], cccr[10], cccr[0x13]) = (0x43, 0x02, 0x10, 0x01);
        Self { io: Some((2, false)), sd: false, cccr, ..Self::sdhc() }
    }
    pub fn combo() -> Self {
        Self { io: Some((1, true)), sd: true, ..Self::sdio() }
    }

    fn silent(&self, index: u8) -> Result<Reply, HostError> {
        Err(HostError::new(Cause::Timeout, Phase::Command, index))
    }
    fn data(&self, index: u8, data: &[u8], scratch: &mut [u8]) -> Result<Reply, HostError> {
        let tuned = matches!(self.bus.timing, Timing::Sdr104 | Timing::Hs200 | Timing::Hs400)
            || (self.bus.timing == Timing::Sdr50 && index == 19);
        let missed =
            tuned && (!self.window.contains(&self.bus.sample) || self.untunable.contains(&self.bus.timing));
        if missed || self.garbled.contains(&self.bus.timing) || self.garbled_width.contains(&self.bus.width) {
            return Err(HostError::new(Cause::Crc, Phase::Data, index));
        }
        scratch[..data.len()].copy_from_slice(data);
        Ok(Reply { words: [TRAN, 0, 0, 0], bytes: data.len() as u64 })
    }
    fn ready(&mut self) -> bool {
        self.polls += 1;
        self.polls > self.busy
    }
    fn sd_timing(&self, function: u8) -> Timing {
        match (function, self.bus.signal) {
            (0, Signal::V3_3) => Timing::Default,
            (0, Signal::V1_8) => Timing::Sdr12,
            (1, Signal::V3_3) => Timing::High,
            (1, Signal::V1_8) => Timing::Sdr25,
            (2, _) => Timing::Sdr50,
            (3, _) => Timing::Sdr104,
            _ => Timing::Ddr50,
        }
    }
    fn switch_function(&mut self, arg: u32) -> [u8; 64] {
        // At 3.3 V there are only two access modes.
        let modes = self.functions[0] & if self.bus.signal == Signal::V1_8 { 0x1f } else { 3 };
        let wanted = [arg & 15, arg >> 8 & 15, arg >> 12 & 15];
        let mut selected = [u32::from(self.access), 0, 0];
        for ((selected, wanted), offered) in
            selected.iter_mut().zip(wanted).zip([modes, self.functions[1], self.functions[2]])
        {
            if wanted != 15 {
                *selected = if offered >> wanted & 1 == 1 { wanted } else { 15 };
            }
        }
        if wanted[0] != 15 && arg >> 31 == 1 && self.refuses.contains(&self.sd_timing(wanted[0] as u8)) {
            selected[0] = 15;
        }
        if arg >> 31 == 1 && !selected.contains(&15) {
            self.access = selected[0] as u8;
        }
        let info = SwitchInfo {
            max_current_ma: 200,
            support1: modes,
            support2: 1,
            support3: self.functions[1],
            support4: self.functions[2],
            selected1: selected[0] as u8,
            selected3: selected[1] as u8,
            selected4: selected[2] as u8,
            ..SwitchInfo::default()
        };
        info.emit().emit()
    }
    fn mmc_switch(&mut self, index: u32, value: u32) {
        let Some(ext) = &mut self.ext_csd else { return };
        let timing = match (index, value) {
            (185, 1) => Some(Timing::High),
            (185, 2) => Some(Timing::Hs200),
            (185, 3) if ext.get(e::BUS_WIDTH) & 0x80 != 0 => Some(Timing::Hs400Es),
            (185, 3) => Some(Timing::Hs400),
            (183, 5 | 6) => Some(Timing::Ddr52),
            _ => None,
        };
        let width = match (index, value) {
            (183, 1) => Some(Width::Four),
            (183, 2) => Some(Width::Eight),
            _ => None,
        };
        self.switch_error = timing.is_some_and(|t| self.refuses.contains(&t))
            || width.is_some_and(|w| self.refuses_width.contains(&w));
        if !self.switch_error && index == 185 {
            ext.set(e::HS_TIMING, value.into());
        }
        if !self.switch_error && index == 183 {
            ext.set(e::BUS_WIDTH, value.into());
        }
    }
    fn forget(&mut self) {
        (self.access, self.app, self.polls, self.switch_error) = (0, false, 0, false);
        self.sending = false;
        if let Some(ext) = &mut self.ext_csd {
            ext.set(e::HS_TIMING, 0);
            ext.set(e::BUS_WIDTH, 0);
        }
    }

    /// What comes of one step.
    pub fn step<T>(&mut self, step: &Step<T>, scratch: &mut [u8]) -> Result<Reply, HostError> {
        match step {
            Step::Do(action) => self.answer(&action.command, scratch),
            Step::Bus(bus) => {
                let b = bus;
                self.log.push(format!(
                    "{:?} {:?} {} Hz x{} @{}",
                    b.signal,
                    b.timing,
                    b.hz,
                    b.width.lines(),
                    b.sample
                ));
                if bus.signal == Signal::V1_8 && self.bus.signal == Signal::V3_3 && self.stuck_low {
                    return Err(HostError::new(Cause::VoltageSwitch, Phase::Bus, 255));
                }
                self.bus = *bus;
                Ok(Reply::default())
            }
            Step::Power(power) => {
                self.log.push(format!("{power:?}"));
                if self.fixed_supply {
                    return Err(HostError::new(Cause::Unsupported("a fixed supply"), Phase::Submit, 255));
                }
                if *power == Power::Off {
                    self.forget();
                }
                Ok(Reply::default())
            }
            Step::Sleep(_) | Step::Done(_) => Ok(Reply::default()),
        }
    }

    fn answer(&mut self, c: &Command, scratch: &mut [u8]) -> Result<Reply, HostError> {
        if let Some(at) = self.lost.iter().position(|index| self.app && *index == c.index) {
            self.lost.remove(at);
            return self.silent(c.index);
        }
        let app = std::mem::take(&mut self.app);
        self.log.push(format!("{}CMD{}:{:x}", if app { "A" } else { "" }, c.index, c.arg));
        let word = |w: u32| Ok(Reply { words: [w, 0, 0, 0], bytes: 0 });
        let long = |bytes: &[u8; 16]| {
            let mut words = [0; 4];
            for (word, chunk) in words.iter_mut().zip(bytes.chunks(4)) {
                *word = u32::from_be_bytes(chunk.try_into().unwrap());
            }
            Ok(Reply { words, bytes: 0 })
        };
        if self.deaf.contains(&self.bus.timing) {
            return self.silent(c.index);
        }
        match (app, c.index) {
            (_, 12) if self.sending => {
                self.sending = false;
                word(0x0b00)
            }
            (_, 13) if self.sending => word(0x0b00),
            (_, index) if self.sending && index != 0 => self.silent(index),
            (true, 13) if c.data.is_none() => {
                self.sending = true;
                word(TRAN | 0x20)
            }
            (_, 0) => {
                self.forget();
                word(0)
            }
            (_, 1) if self.mmc => {
                let ocr = self.mmc_ocr;
                word(if self.ready() { ocr } else { ocr & 0x7fff_ffff })
            }
            (_, 2) if self.sd || self.mmc => long(b"\x03SDTOY1G\x10\x12\x34\x56\x78\x01\x35\x01"),
            (_, 3) if self.mmc => word(0x0500),
            (_, 3) => word(0xaaaa_0500),
            (_, 5) => match self.io {
                Some((functions, memory)) => {
                    let ready = c.arg != 0 && self.ready();
                    let r4 = u32::from(ready) << 31 | u32::from(functions) << 28 | u32::from(memory) << 27;
                    word(r4 | 0x00ff_8000)
                }
                None => self.silent(5),
            },
            (_, 6) if c.data.is_some() => {
                let status = self.switch_function(c.arg);
                self.data(6, &status, scratch)
            }
            (false, 6) => {
                self.mmc_switch(c.arg >> 16 & 0xff, c.arg >> 8 & 0xff);
                word(TRAN)
            }
            (_, 8) if c.data.is_some() => match self.ext_csd {
                Some(ext) => self.data(8, &ext.emit(), scratch),
                None => Err(HostError::new(Cause::Timeout, Phase::Data, 8)),
            },
            (_, 8) if self.v2 && self.sd => word(c.arg),
            (_, 9) => long(&self.csd),
            (_, 7) => word(0x0700),
            (_, 11) if self.deaf_cmd11 => self.silent(11),
            (_, 11) => word(0x0320),
            (true, 13) => {
                let ssr = SsrInfo { dat_bus_width_code: 2, au_size_code: 9, ..SsrInfo::default() };
                self.data(13, &ssr.emit().emit(), scratch)
            }
            (_, 13) => {
                let error = u32::from(std::mem::take(&mut self.switch_error)) << 7;
                word(TRAN | error)
            }
            (_, 19) => self.data(19, &TUNING_BLOCK_4, scratch),
            (_, 21) if self.bus.width == Width::Eight => self.data(21, &TUNING_BLOCK_8, scratch),
            (_, 21) => self.data(21, &TUNING_BLOCK_4, scratch),
            (true, 41) => {
                // A card of 1.8 V asks for the switch only where its host does, and once.
                let s18a =
                    if c.arg & 1 << 24 == 0 || self.bus.signal == Signal::V1_8 { !(1 << 24) } else { !0 };
                let ocr = self.ocr & s18a;
                word(if self.ready() { ocr } else { ocr & 0x7fff_ffff })
            }
            (true, 51) => {
                let scr = self.scr;
                self.data(51, &scr, scratch)
            }
            (_, 52) if self.io.is_some() && c.arg == 0x8000_0c08 => word(0x1000),
            (_, 52) if self.io.is_some() => {
                let at = (c.arg >> 9 & 0x1_ffff) as usize;
                let Some(byte) = self.cccr.get_mut(at) else { return word(0x1100) };
                if c.arg >> 31 == 1 && !(at == 0x13 && self.refuses.contains(&Timing::High)) {
                    *byte = *byte & 1 | c.arg as u8;
                } else if c.arg >> 31 == 1 {
                    return word(0x1800);
                }
                word(0x1000 | u32::from(*byte))
            }
            (_, 55) if self.sd => {
                self.app = true;
                word(TRAN | 0x20)
            }
            (true, _) | (_, 12 | 16) => word(TRAN),
            (_, index) => self.silent(index),
        }
    }
}

/// What a walk came to.
#[derive(Debug)]
pub struct Walk<T> {
    pub out: T,
    pub took: Duration,
    pub steps: u32,
    /// The phases, in their order.
    pub phases: Vec<String>,
}

/// Drives `machine` over `toy`; `fate` may change what comes of a step, and says how long it took.
///
/// # Panics
/// After 20,000 steps, and when a step with a limit takes longer.
pub fn walk<M: Machine>(
    mut machine: M,
    toy: &mut Toy,
    phase: impl Fn(&M) -> String,
    mut fate: impl FnMut(
        u32,
        &Step<M::Output>,
        Result<Reply, HostError>,
        &mut [u8],
    ) -> (Result<Reply, HostError>, Duration),
) -> Walk<M::Output> {
    let mut scratch = [0_u8; 512];
    let start = Instant::from_millis(7);
    let (mut now, mut last, mut n) = (start, None, 0);
    let mut phases = vec![phase(&machine)];
    for steps in 1..20_000 {
        let step = machine.next(last.take(), &mut scratch, now);
        phases.push(phase(&machine));
        match step {
            Step::Done(out) => {
                let again = machine.next(None, &mut scratch, now);
                assert!(matches!(again, Step::Done(_)), "a finished machine stays finished");
                return Walk { out, took: now.since(start), steps, phases };
            }
            Step::Sleep(time) => now += time,
            Step::Do(_) | Step::Bus(_) | Step::Power(_) => {
                let good = toy.step(&step, &mut scratch);
                let (result, took) = fate(n, &step, good, &mut scratch);
                n += 1;
                if let Step::Do(action) = &step {
                    assert!(took <= action.limit, "the test's host overran its limit");
                }
                now += took;
                last = Some(result);
            }
        }
    }
    panic!("the machine does not end: … {:?}", phases.iter().rev().take(12).collect::<Vec<_>>());
}

/// The same with all as the card answers.
pub fn run<M: Machine>(machine: M, toy: &mut Toy) -> M::Output {
    walk(machine, toy, |_| String::new(), |_, _, good, _| (good, Duration::from_micros(200))).out
}

/// What a bad host or card makes of one answer.
#[derive(Clone, Copy, Debug)]
pub enum Bad {
    Host(u8),
    Words(u32),
    Zeros,
    Flip(u8),
}

impl Bad {
    pub fn make(
        self,
        index: u8,
        good: Result<Reply, HostError>,
        scratch: &mut [u8],
    ) -> Result<Reply, HostError> {
        match self {
            Self::Host(n) => Err(host_error(n, index)),
            Self::Words(word) => Ok(Reply { words: [word; 4], bytes: good.map_or(0, |r| r.bytes) }),
            Self::Zeros => {
                scratch.fill(0);
                good.map(|r| Reply { words: [0; 4], ..r })
            }
            Self::Flip(bit) => good.map(|mut r| {
                r.words[0] ^= 1 << (bit & 31);
                r
            }),
        }
    }
}

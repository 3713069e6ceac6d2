//! Data phases of an MMC card: blocks in and out, the cache below them, and how they end.

use super::super::{Sent, Token};
use super::config::at;
use super::program::Sink;
use super::work::Kind;
use super::{ADDRESS_ERROR, BLOCK_LEN_ERROR, MmcCard, MmcState, OUT_OF_RANGE, Outcome, WP_VIOLATION};
use crate::timing::Timing;
use mmc_time::{Duration, Instant};
use std::collections::VecDeque;

/// The tuning block on four lines (the pattern of the standards).
pub(super) const TUNING_4: [u8; 64] = [
    0xff, 0x0f, 0xff, 0x00, 0xff, 0xcc, 0xc3, 0xcc, 0xc3, 0x3c, 0xcc, 0xff, 0xfe, 0xff, 0xfe, 0xef, 0xff,
    0xdf, 0xff, 0xdd, 0xff, 0xfb, 0xff, 0xfb, 0xbf, 0xff, 0x7f, 0xff, 0x77, 0xf7, 0xbd, 0xef, 0xff, 0xf0,
    0xff, 0xf0, 0x0f, 0xfc, 0xcc, 0x3c, 0xcc, 0x33, 0xcc, 0xcf, 0xff, 0xef, 0xff, 0xee, 0xff, 0xfd, 0xff,
    0xfd, 0xdf, 0xff, 0xbf, 0xff, 0xbb, 0xff, 0xf7, 0xff, 0xf7, 0x7f, 0x7b, 0xde,
];
/// The tuning block on eight lines: what four lines carry, on both halves.
pub(super) const TUNING_8: [u8; 128] = {
    let mut wide = [0; 128];
    let mut i = 0;
    while i < 64 {
        let (high, low) = (TUNING_4[i] >> 4, TUNING_4[i] & 15);
        wide[2 * i] = high << 4 | high;
        wide[2 * i + 1] = low << 4 | low;
        i += 1;
    }
    wide
};

/// The RPMB.
pub(super) const RPMB: usize = 3;

/// Where the blocks come from or go to.
#[derive(Debug)]
pub(super) enum Source {
    /// A register, a pattern, or the frames of the RPMB.
    Register(Vec<u8>),
    /// A register, with what came of it so far.
    Sink(Sink, Vec<u8>),
    /// The pattern of CMD19, which has no CRC.
    Pattern,
    /// From an area, from this byte on.
    Read(usize, u64),
    /// To an area, from this byte on; whether past the cache.
    Write(usize, u64, bool),
}

/// When the blocks of a read can be there; outlives the phase until the next command.
#[derive(Debug)]
pub(super) struct Pace {
    started: Instant,
    access: Duration,
    stream: u64,
    blocks: Option<u32>,
}

impl Pace {
    pub(super) fn ready(&self, k: u32, timing: &Timing) -> Instant {
        if self.blocks.is_some_and(|n| k >= n) {
            return Instant::NEVER;
        }
        self.started + self.access + timing.read_stream((u64::from(k) + 1) * self.stream)
    }
}

/// A data phase.
#[derive(Debug)]
pub(super) struct Run {
    source: Source,
    started: Instant,
    pub(super) block_len: u16,
    /// Blocks in all; `None`: until CMD12.
    pub(super) left: Option<u32>,
    single: bool,
    /// What it takes over the profile's time.
    access: Duration,
    k: u32,
    /// The command that opened it was not answered yet.
    pub(super) fresh: bool,
    /// Nothing more is sent or taken: the card waits for CMD12.
    dead: bool,
    /// The host drives as many lines as the card, on the same edges.
    pub(super) aligned: bool,
}

impl Run {
    pub(super) fn is_read(&self) -> bool {
        matches!(self.source, Source::Register(_) | Source::Read(..))
    }
}

impl MmcCard {
    pub(super) fn open_register(&mut self, bytes: Vec<u8>, now: Instant) -> Outcome {
        let (access, len) = (self.config.profile.cmd, bytes.len() as u16);
        self.open_run(Source::Register(bytes), now, access, len, (Some(1), true));
        Outcome::R1
    }
    /// A tuning block that no host took is over when its time is: the bits have passed, read or not.
    pub(super) fn let_tuning_end(&mut self, now: Instant) {
        let Some(run) = &self.run else { return };
        // 128 bytes on eight lines and 64 on four are as many clocks.
        let ns = ((56 + 128 + 18) * 1_000_000_000_u64).checked_div(self.hz.into()).unwrap_or(u64::MAX);
        let time = run.access + Duration::from_nanos(ns);
        let tuning = matches!(&run.source, Source::Register(b) if *b == TUNING_8 || *b == TUNING_4);
        if tuning && now >= run.started + time {
            self.end_run(now);
        }
    }
    pub(super) fn open_run(
        &mut self,
        source: Source,
        started: Instant,
        access: Duration,
        block_len: u16,
        (left, single): (Option<u32>, bool),
    ) {
        // A bus test is made to find out about the lines.
        let test = matches!(source, Source::Pattern) || self.state == MmcState::Btst;
        let (host, card) = (self.lines, self.width());
        let edges = self.host.is_none_or(|(_, timing)| timing.ddr() == self.double_rate());
        let aligned = test || (host == card && edges);
        if !test && host != card {
            self.violations.note(|| format!("data on {host} lines of the host, the card uses {card}"));
        } else if !aligned {
            let card = if self.double_rate() { "both edges" } else { "one edge" };
            self.violations.note(|| format!("data on {card} of the clock on the card's side alone"));
        }
        let stream = if matches!(source, Source::Read(..)) { block_len.into() } else { 0 };
        self.pace = Some(Pace { started, access, stream, blocks: left });
        let run =
            Run { source, started, block_len, left, single, access, k: 0, fresh: true, dead: false, aligned };
        self.state = if run.is_read() { MmcState::Data } else { MmcState::Rcv };
        self.run = Some(run);
    }
    /// CMD17, CMD18, CMD24, CMD25 and the tasks of the queue.
    pub(super) fn open_blocks(
        &mut self,
        read: bool,
        single: bool,
        arg: u32,
        count: Option<(u32, bool)>,
        now: Instant,
    ) -> Outcome {
        let blocks = if single { Some(1) } else { count.map(|c| c.0) };
        let (len, area) = (self.block_len, self.area());
        if area == RPMB {
            return self.open_frames(read, count, now);
        }
        let at = u64::from(arg) * self.unit();
        let extra = if single || count.is_none() { Duration::ZERO } else { self.config.quirks.count_delay };
        let native = self.native();
        if (!read && len != 512) || blocks.is_some_and(|n| !u64::from(n).is_multiple_of(native)) {
            self.errors |= BLOCK_LEN_ERROR;
        } else if !(at / 512).is_multiple_of(native) {
            self.errors |= ADDRESS_ERROR;
        } else if let Some(bit) = self.refuses(read, area, at, len) {
            self.errors |= bit;
        } else if read {
            let access = self.timing.read_access(at / 512) + self.config.quirks.read_delay + extra;
            self.open_run(Source::Read(area, at), now, access, len, (blocks, single));
        } else {
            self.ext[at::CORRECTLY_PRG..at::CORRECTLY_PRG + 4].fill(0);
            let through = count.is_some_and(|c| c.1) || self.ext[at::CACHE_CTRL] & 1 == 0;
            // A cache that is written out in order has a barrier behind each write.
            self.epoch += u32::from(self.ext[at::CACHE_FLUSH_POLICY] & 1);
            self.cached_writes += u32::from(!through);
            self.open_run(Source::Write(area, at, through), now, extra, len, (blocks, single));
        }
        Outcome::R1
    }
    /// CMD18 and CMD25 in the RPMB: frames, as many as CMD23 said.
    fn open_frames(&mut self, read: bool, count: Option<(u32, bool)>, now: Instant) -> Outcome {
        let Some((n, reliable)) = count else { return Outcome::Illegal };
        let (source, access) = if read {
            let frames = self.rpmb.answer(n as usize, &mut self.areas[RPMB]);
            (Source::Register(frames), self.config.profile.cmd)
        } else {
            (Source::Sink(Sink::Rpmb(reliable), Vec::new()), Duration::ZERO)
        };
        self.open_run(source, now, access, 512, (Some(n), false));
        Outcome::R1
    }
    fn refuses(&self, read: bool, area: usize, at: u64, len: u16) -> Option<u32> {
        let len = u64::from(len);
        if at + len > self.areas[area].bytes() {
            Some(OUT_OF_RANGE)
        } else if at % 512 + len > 512 || (!read && !at.is_multiple_of(512)) {
            Some(ADDRESS_ERROR)
        } else if !read && self.sector_protected(area, at / 512) {
            Some(WP_VIOLATION)
        } else {
            None
        }
    }
    /// Whether the next block of the phase has 512 bytes of an area and no reason to fail.
    pub(super) fn moves_512(&self, read: bool) -> bool {
        let area = |r: &Run| matches!(r.source, Source::Read(..) | Source::Write(..));
        self.run
            .as_ref()
            .is_some_and(|r| area(r) && r.is_read() == read && r.block_len == 512 && r.aligned && !r.dead)
    }
    /// The data phase is over, by itself or by a command.
    pub(super) fn end_run(&mut self, now: Instant) {
        let Some(mut run) = self.run.take() else { return };
        self.state = MmcState::Tran;
        let late = run.access;
        match run.source {
            Source::Pattern if run.k > 0 => self.state = MmcState::Btst,
            Source::Read(area, at) if run.k > 0 => {
                let bytes = u64::from(run.k) * u64::from(run.block_len);
                self.timing.read(at / 512, bytes.div_ceil(512));
                if run.left.is_none() && at + bytes == self.areas[area].bytes() {
                    self.errors |= OUT_OF_RANGE;
                }
            }
            Source::Write(_, at, _) if run.k > 0 => {
                let service = self.timing.write(at / 512, run.k.into());
                self.unkempt = self.unkempt.saturating_add(u64::from(run.k) * 512);
                let end = run.started + service.total + late;
                self.program(run.k, now, end.since(now));
            }
            Source::Sink(to, ref mut bytes) if run.left == Some(run.k) => {
                let took = self.sink(to, &std::mem::take(bytes));
                self.work(Kind::Fixed, now, took, VecDeque::new());
            }
            _ => {}
        }
    }
    pub(super) fn send_block(&mut self, block: &mut [u8], now: Instant) -> Sent {
        let Some(run) = self.run.as_ref().filter(|r| r.is_read() && !r.dead) else { return Sent::Nothing };
        let (k, len, aligned) = (run.k, run.block_len, run.aligned);
        let n = block.len().min(len.into());
        let mut refused = None;
        match &run.source {
            Source::Register(bytes) => {
                let from = k as usize * usize::from(len);
                block[..n].copy_from_slice(&bytes[from..from + n]);
            }
            Source::Read(area, start) => {
                let (area, at) = (*area, start + u64::from(k) * u64::from(len));
                refused = self.refuses(true, area, at, len);
                if refused.is_none() {
                    // Inside, by the check just made.
                    let _ = self.areas[area].read(at, &mut block[..n]);
                }
            }
            Source::Pattern | Source::Write(..) | Source::Sink(..) => {}
        }
        let Some(run) = &mut self.run else { return Sent::Nothing };
        if let Some(bit) = refused {
            run.dead = true;
            self.errors |= bit;
            return Sent::Nothing;
        }
        run.k += 1;
        if run.left == Some(run.k) {
            self.end_run(now);
        }
        if !aligned || block.len() != usize::from(len) { Sent::BadCrc } else { Sent::Good }
    }
    pub(super) fn take_block(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        let Some(run) = self.run.as_ref().filter(|r| !r.is_read() && !r.dead) else { return Token::Nothing };
        let (k, len) = (run.k, run.block_len);
        let right = crc_ok && run.aligned && block.len() == usize::from(len);
        let token = match run.source {
            Source::Sink(..) if right => {
                if let Some(Run { source: Source::Sink(_, bytes), .. }) = &mut self.run {
                    bytes.extend_from_slice(block);
                }
                Token::Accepted
            }
            Source::Sink(..) => Token::CrcError,
            Source::Write(area, start, through) => {
                let at = start + u64::from(k) * u64::from(len);
                match self.refuses(false, area, at, len) {
                    _ if !right => Token::CrcError,
                    Some(bit) => {
                        self.errors |= bit;
                        Token::Nothing
                    }
                    None => {
                        if !through
                            && self.config.quirks.cache_corrupts
                            && self.cached_writes.is_multiple_of(16)
                        {
                            let mut wrong = block.to_vec();
                            wrong[0] ^= 1;
                            self.store(area, at / 512, &wrong, through);
                        } else {
                            self.store(area, at / 512, block, through);
                        }
                        Token::Accepted
                    }
                }
            }
            _ => {
                for (to, from) in self.pattern.iter_mut().zip(block) {
                    *to = *from;
                }
                Token::Accepted
            }
        };
        let Some(run) = &mut self.run else { return Token::Nothing };
        if token == Token::Accepted {
            run.k += 1;
        } else {
            run.dead = true;
        }
        // A single block is over however it went; of several, the rest is ignored until CMD12.
        if run.left == Some(run.k) || run.single {
            self.end_run(now);
        }
        token
    }
}

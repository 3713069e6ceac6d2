//! Data phases of an SD card: blocks in and out, their time, and how they end.

use super::registers::Functions;
use super::sd::{SdCard, State, Volatile};
use super::status::OUT_OF_RANGE;
use super::uhs::TUNING;
use super::{Sent, Token};
use crate::fault::What;
use crate::timing::Timing;
use mmc_time::{Duration, Instant};

/// Where the blocks come from or go to.
#[derive(Debug)]
pub(super) enum Source {
    /// A register; then the functions that CMD6 selects.
    Register([u8; 64], Option<Functions>),
    /// Storage, from this byte on.
    Read(u64),
    /// To storage, from this byte on.
    Write(u64),
    /// A block of something else.
    Bytes(Vec<u8>),
    /// A block to something else.
    To(Target),
}

/// Where a block goes that is not stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The extension registers this argument names (CMD49).
    Extension(u32),
    /// CMD27.
    Csd,
    /// CMD42.
    Lock,
    /// CMD56.
    General,
}

impl Source {
    pub(super) fn register(bytes: &[u8], after: Option<Functions>) -> Self {
        let mut all = [0; 64];
        all[..bytes.len()].copy_from_slice(bytes);
        Self::Register(all, after)
    }
}

/// When the blocks of a data phase can be there; outlives the phase until the next command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Arrival of the command.
    started: Instant,
    /// From there to the first byte of a read.
    access: Duration,
    /// Bytes of a block, where they have to be streamed out of the card's memory.
    stream: u64,
    /// Blocks in all.
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
    /// Arrival of the command.
    started: Instant,
    pub(super) block_len: u16,
    /// Blocks in all; `None`: until CMD12.
    pub(super) left: Option<u32>,
    /// It is a single-block command, which never waits for CMD12.
    single: bool,
    /// Blocks moved.
    k: u32,
    /// The command that opened it was not answered yet.
    pub(super) fresh: bool,
    /// Nothing more is sent or taken: the card waits for CMD12.
    dead: bool,
    /// The host drives as many lines as the card.
    aligned: bool,
    faults: Vec<What>,
}

impl Run {
    pub(super) fn is_read(&self) -> bool {
        !matches!(self.source, Source::Write(_) | Source::To(_))
    }
    fn is_last(&self) -> bool {
        self.left == Some(self.k)
    }
    /// How many of `blocks` blocks can move at once from here: up to the end of the phase and to the next fault.
    fn at_once(&self, blocks: usize) -> u32 {
        let bulk = matches!(self.source, Source::Read(_) | Source::Write(_));
        if self.dead || !self.aligned || self.block_len != 512 || !bulk {
            return 0;
        }
        let mut n = u32::try_from(blocks).unwrap_or(u32::MAX);
        if let Some(all) = self.left {
            n = n.min(all - self.k);
        }
        for what in &self.faults {
            if let What::BlockCrc(k) | What::BlockMissing(k) = *what
                && k >= self.k
            {
                n = n.min(k - self.k);
            }
        }
        n
    }
}

impl SdCard {
    pub(super) fn open_run(
        &mut self,
        source: Source,
        started: Instant,
        access: Duration,
        block_len: u16,
        (left, single): (Option<u32>, bool),
        faults: &[What],
    ) {
        let aligned = self.check_width();
        let writes = matches!(source, Source::Write(_) | Source::To(_));
        self.v.state = if writes { State::Rcv } else { State::Data };
        let faults = faults.to_vec();
        let stream = if matches!(source, Source::Read(_)) { block_len.into() } else { 0 };
        self.v.pace = Some(Pace { started, access, stream, blocks: left });
        self.v.run = Some(Run {
            source,
            started,
            block_len,
            left,
            single,
            k: 0,
            fresh: true,
            dead: false,
            aligned,
            faults,
        });
    }

    /// Where in storage the next blocks of a run from byte `start` on are, and how many of `len` bytes' worth can move
    /// at once.
    fn bulk(&self, start: u64, len: usize) -> (u64, u32) {
        let Some(run) = &self.v.run else { return (0, 0) };
        let at = start + u64::from(run.k) * 512;
        let (place, room) = self.place(at);
        let room = room.min((self.config.sectors * 512).saturating_sub(at)) / 512;
        (place, u64::from(run.at_once(len / 512)).min(room) as u32)
    }

    /// A tuning block that no host took is over when its time is: the bits have passed, read or not.
    pub(super) fn let_tuning_end(&mut self, now: Instant) {
        let Some(run) = &self.v.run else { return };
        let clocks = 56 + 512 / u64::from(self.v.width) + 18;
        let time =
            Duration::from_nanos((clocks * 1_000_000_000).checked_div(self.hz.into()).unwrap_or(u64::MAX));
        let tuning = matches!(run.source, Source::Register(bytes, _) if bytes == TUNING);
        if tuning && now >= run.started + time {
            self.end_run(now);
        }
    }
    /// The data phase is over, by itself or by a command. A write programs what it has taken; the busy time of
    /// its whole service counts from its command.
    pub(super) fn end_run(&mut self, now: Instant) {
        let Volatile { run, state, busy, status, .. } = &mut self.v;
        let Some(run) = run.take() else { return };
        *state = State::Tran;
        match run.source {
            Source::Register(_, after) => {
                if let Some(after) = after
                    && run.is_last()
                {
                    self.v.functions = after;
                }
            }
            Source::Read(at) if run.k > 0 => {
                let bytes = u64::from(run.k) * u64::from(run.block_len);
                self.timing.read(at / 512, bytes.div_ceil(512));
                // An open-ended read that stopped at the end of the card: the card was already reading on.
                if run.left.is_none() && at + bytes == self.config.sectors * 512 {
                    status.raise(OUT_OF_RANGE);
                }
            }
            Source::Write(at) if run.k > 0 => {
                let service = self.timing.write(at / 512, run.k.into());
                *state = State::Prg;
                *busy = now.max(run.started + service.total) + self.config.quirks.busy_delay;
            }
            _ => {}
        }
        if run.faults.contains(&What::Stuck) {
            self.stuck = true;
        }
    }

    pub(super) fn send_block(&mut self, block: &mut [u8], now: Instant) -> Sent {
        let Some(run) = self.v.run.as_ref().filter(|r| r.is_read() && !r.dead) else { return Sent::Nothing };
        let (k, len, aligned) = (run.k, run.block_len, run.aligned);
        let bad = run.faults.contains(&What::BlockCrc(k));
        let mut refused = run.faults.contains(&What::BlockMissing(k));
        let n = block.len().min(len.into());
        match &run.source {
            Source::Register(bytes, _) => block[..n].copy_from_slice(&bytes[..n]),
            Source::Bytes(bytes) => block[..n].copy_from_slice(&bytes[..n]),
            Source::Read(start) => {
                let at = start + u64::from(k) * u64::from(len);
                if let Some(bit) = self.refuses(true, at, len) {
                    self.v.status.raise(bit);
                    refused = true;
                } else if !refused {
                    refused = self.storage.read(self.place(at).0, &mut block[..n]).is_err();
                }
            }
            Source::Write(_) | Source::To(_) => {}
        }
        let Some(run) = &mut self.v.run else { return Sent::Nothing };
        if refused {
            run.dead = true;
            return Sent::Nothing;
        }
        run.k += 1;
        if run.is_last() {
            self.end_run(now);
        }
        if bad || !aligned || block.len() != usize::from(len) { Sent::BadCrc } else { Sent::Good }
    }

    pub(super) fn send_blocks(&mut self, blocks: &mut [u8], now: Instant) -> usize {
        let Some(Run { source: Source::Read(start), .. }) = self.v.run else { return 0 };
        let (at, n) = self.bulk(start, blocks.len());
        let bytes = n as usize * 512;
        if n == 0 || self.storage.read(at, &mut blocks[..bytes]).is_err() {
            return 0;
        }
        let Some(run) = &mut self.v.run else { return 0 };
        run.k += n;
        if run.is_last() {
            self.end_run(now);
        }
        bytes
    }

    pub(super) fn take_block(&mut self, block: &[u8], crc_ok: bool, now: Instant) -> Token {
        let Some(run) = self.v.run.as_ref().filter(|r| !r.is_read() && !r.dead) else {
            return Token::Nothing;
        };
        let (k, len) = (run.k, run.block_len);
        let (start, target) = match run.source {
            Source::Write(start) => (start, None),
            Source::To(target) => (0, Some(target)),
            _ => return Token::Nothing,
        };
        let at = start + u64::from(k) * u64::from(len);
        let damaged = !crc_ok
            || !run.aligned
            || block.len() != usize::from(len)
            || run.faults.contains(&What::BlockCrc(k));
        let missing = run.faults.contains(&What::BlockMissing(k));
        let token = if missing {
            Token::Nothing
        } else if damaged {
            Token::CrcError
        } else if let Some(target) = target {
            self.end_run(now);
            match target {
                Target::Extension(arg) => self.write_extension(arg, block, now),
                Target::Csd => self.program_csd(block, now),
                Target::Lock => self.apply_lock(block, now),
                Target::General => {
                    self.general.copy_from_slice(block);
                    self.work(now);
                }
            }
            return Token::Accepted;
        } else if let Some(bit) = self.refuses(false, at, len) {
            self.v.status.raise(bit);
            Token::Nothing
        } else if !self.stores() {
            Token::Accepted
        } else {
            self.remember(self.place(at).0);
            match self.storage.write(self.place(at).0, block) {
                Ok(()) => Token::Accepted,
                Err(_) => Token::Nothing,
            }
        };
        let Some(run) = &mut self.v.run else { return Token::Nothing };
        if token == Token::Accepted {
            run.k += 1;
            self.v.well_written = run.k;
        } else {
            run.dead = true;
        }
        // A single block is over however it went; of several, the rest is ignored until CMD12.
        if run.is_last() || run.single {
            self.end_run(now);
        }
        token
    }

    pub(super) fn take_blocks(&mut self, blocks: &[u8], now: Instant) -> usize {
        let Some(Run { source: Source::Write(start), .. }) = self.v.run else { return 0 };
        // Each sector of the cache remembers what was below it.
        if self.v.extension.cache_on || !self.undo.is_empty() || self.by_the_block() {
            return 0;
        }
        let (at, n) = self.bulk(start, blocks.len());
        let bytes = n as usize * 512;
        if n == 0 || self.storage.write(at, &blocks[..bytes]).is_err() {
            return 0;
        }
        let Some(run) = &mut self.v.run else { return 0 };
        run.k += n;
        self.v.well_written = run.k;
        if run.is_last() {
            self.end_run(now);
        }
        bytes
    }
}

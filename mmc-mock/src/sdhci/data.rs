//! The data phase: by ADMA2 all at once when it ends, by the buffer port block by block.

use super::{ADMA, BLOCK, Core, HOST, int};
use crate::card::{Card, Phase, Sent, Token};
use crate::host::{DATA_TIMEOUT, check};
use crate::wire::Wire;
use mmc_proto::command::Response;
use mmc_proto::machine::{TUNING_BLOCK_4, TUNING_BLOCK_8};
use mmc_time::Instant;

/// Where a data phase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Blocks are on the wire: with DMA all of them, by hand the next one.
    Wire(Instant),
    /// A block is in the buffer, or there is room for one: the processor's turn.
    Port,
    /// Nothing comes: then these bits rise.
    Fails(Instant, u32),
    /// The controller's own CMD12 is over then; `Some`: in vain, and whether there was an answer.
    Stopped(Instant, Option<bool>),
    /// A block of a tuning has passed then; whether it may be right.
    Tap(Instant, bool),
}

/// A data phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) read: bool,
    dma: bool,
    auto_stop: bool,
    len: u16,
    blocks: u32,
    /// Blocks that have passed.
    k: u32,
    /// The end of the response.
    from: Instant,
    /// What the card has opened, if the directions agree.
    opened: bool,
    stage: Stage,
}

impl Data {
    pub(super) fn new<C: Card>(core: &Core<C>, word: u32, phase: Option<Phase>) -> Self {
        let read = word & 1 << 4 != 0;
        let block = core.word(BLOCK);
        Self {
            read,
            dma: word & 1 != 0,
            auto_stop: word & 1 << 2 != 0,
            len: (block & 0xfff) as u16,
            blocks: if word & 1 << 5 != 0 { block >> 16 } else { 1 },
            k: 0,
            from: core.t,
            opened: phase.is_some_and(|p| p.read == read),
            stage: Stage::Port,
        }
    }

    /// The block of a tuning command; `answered` right.
    pub(super) fn tuning<C: Card>(core: &Core<C>, phase: Option<Phase>, answered: bool) -> Self {
        let data = Self::new(core, 1 << 4, phase);
        let end = core.wire().read_end(core.t, 1, data.len, core.card.ready(0));
        let at = if data.opened && !end.is_never() { end } else { core.t + core.wire().clocks(1000) };
        Self { stage: Stage::Tap(at, answered && data.opened), ..data }
    }

    /// When it moves on by itself.
    pub(super) fn next(&self) -> Instant {
        match self.stage {
            Stage::Wire(at) | Stage::Fails(at, _) | Stage::Stopped(at, _) | Stage::Tap(at, _) => at,
            Stage::Port => Instant::NEVER,
        }
    }

    /// The processor may move a block.
    pub(super) fn port(&self) -> bool {
        self.stage == Stage::Port
    }
}

impl<C: Card> Core<C> {
    /// The phase begins.
    pub(super) fn open(&mut self) {
        let Some(mut data) = self.data else { return };
        if data.read || data.dma || !data.opened {
            data.stage = self.wired(&data);
            self.data = Some(data);
        } else {
            self.buffer = vec![0; data.len.into()];
            self.at = 0;
            self.raise(int::WRITE_READY);
        }
    }

    /// Blocks go on the wire: all of them with DMA, else the next one.
    fn wired(&self, data: &Data) -> Stage {
        let n = if data.dma { data.blocks } else { data.k + 1 };
        let ready = if data.opened { self.card.ready(n.saturating_sub(1)) } else { Instant::NEVER };
        let wire = self.wire();
        let end = match (data.read, ready.is_never()) {
            (true, false) => wire.read_end(data.from, n, data.len, ready),
            (false, false) => wire.write_end(data.from, n, data.len, ready),
            (true, true) => return Stage::Fails(self.t + DATA_TIMEOUT, int::DATA_TIMEOUT),
            (false, true) => {
                return Stage::Fails(wire.write_end(self.t, 1, data.len, self.t), int::DATA_END);
            }
        };
        Stage::Wire(end.max(self.t))
    }

    pub(super) fn data_step(&mut self) {
        let Some(data) = self.data else { return };
        match data.stage {
            Stage::Port => {}
            Stage::Fails(_, bits) => {
                self.data = None;
                self.raise(bits);
            }
            Stage::Stopped(_, failed) => {
                self.data = None;
                self.busy = failed.is_none();
                if let Some(answered) = failed {
                    self.auto_failed(answered);
                }
            }
            Stage::Tap(_, answered) => {
                let mut block = vec![0; data.len.into()];
                let sent = if data.opened { self.card.send(&mut block, self.t) } else { Sent::Nothing };
                let pattern = if block.len() == 128 { &TUNING_BLOCK_8[..] } else { &TUNING_BLOCK_4[..] };
                let sampled = self.tap().is_some_and(|phase| self.samples_right(phase));
                self.data = None;
                self.tapped(answered && sampled && sent == Sent::Good && block == pattern);
            }
            Stage::Wire(_) if data.dma => {
                let result = self.by_adma(&data);
                self.phase_over(data, result.err().unwrap_or(0));
            }
            Stage::Wire(_) if data.read => {
                let mut block = vec![0; data.len.into()];
                let error = self.receive(&mut block);
                if error != 0 {
                    self.phase_over(data, error);
                    return;
                }
                (self.buffer, self.at) = (block, 0);
                self.data = Some(Data { k: data.k + 1, stage: Stage::Port, ..data });
                self.raise(int::READ_READY);
            }
            Stage::Wire(_) => {
                let block = std::mem::take(&mut self.buffer);
                let error = self.deliver(&block);
                let k = data.k + 1;
                if error != 0 || k >= data.blocks {
                    self.phase_over(data, error);
                    return;
                }
                (self.buffer, self.at) = (vec![0; data.len.into()], 0);
                self.data = Some(Data { k, stage: Stage::Port, ..data });
                self.raise(int::WRITE_READY);
            }
        }
    }

    /// One block from the card; the error bits.
    fn receive(&mut self, block: &mut [u8]) -> u32 {
        let right = self.samples_right(self.sampled_at());
        match self.card.send(block, self.t) {
            Sent::Good if right => 0,
            Sent::Nothing => int::DATA_TIMEOUT,
            _ => {
                block.iter_mut().for_each(|b| *b = b.rotate_left(1));
                int::DATA_CRC
            }
        }
    }

    /// One block to the card; the error bits.
    fn deliver(&mut self, block: &[u8]) -> u32 {
        match self.card.take(block, true, self.t) {
            Token::Accepted => 0,
            Token::CrcError => int::DATA_CRC,
            Token::Nothing => int::DATA_END,
        }
    }

    /// All blocks have passed, or one has failed.
    fn phase_over(&mut self, data: Data, error: u32) {
        if error != 0 {
            self.data = None;
            self.raise(error);
        } else if data.auto_stop {
            let wire = self.wire();
            let arrived = self.t + wire.clocks(Wire::command_clocks(false));
            let answer = self.card.command(12, 0, arrived);
            let right = self.samples_right(self.sampled_at());
            let result = answer.response.filter(|_| right).map(|bits| check(Response::Short, 12, &bits));
            let answered = answer.response.is_some();
            let failed = match result {
                Some(Ok([word, ..])) => {
                    self.words[7] = word;
                    None
                }
                _ => Some(answered),
            };
            let clocks = Wire::response_clocks(Response::Short, answered);
            self.data = Some(Data { stage: Stage::Stopped(arrived + wire.clocks(clocks), failed), ..data });
        } else {
            self.data = None;
            // A written phase is over when the card has let DAT0 go; a read one at once.
            self.busy = !data.read;
            if data.read {
                self.raise(int::TRANSFER);
            }
        }
    }

    // --- ADMA2 ---

    /// Moves all blocks between the card and the memory the descriptors name.
    fn by_adma(&mut self, data: &Data) -> Result<(), u32> {
        let wide = self.word(HOST) >> 3 & 3 == 3;
        let mut at = u64::from(self.word(ADMA)) | if wide { u64::from(self.word(ADMA + 4)) << 32 } else { 0 };
        let (mut piece, mut end) = ((0_u64, 0_u32), false);
        let mut block = vec![0; data.len.into()];
        for _ in 0..data.blocks {
            if data.read {
                let error = self.receive(&mut block);
                if error != 0 {
                    return Err(error);
                }
            }
            let mut done = 0;
            while done < block.len() {
                if piece.1 == 0 {
                    if end {
                        return Err(int::ADMA);
                    }
                    let d = self.descriptor(at, wide).ok_or(int::ADMA)?;
                    at += if wide { 12 } else { 8 };
                    // Valid; the action is "transfer".
                    if d.0 & 0x31 != 0x21 {
                        return Err(int::ADMA);
                    }
                    end = d.0 & 2 != 0;
                    piece = (d.1, if d.0 >> 16 == 0 { 65_536 } else { d.0 >> 16 });
                }
                let n = (block.len() - done).min(piece.1 as usize);
                let part = &mut block[done..done + n];
                let moved = self.memory.with(piece.0, |ram| {
                    let ram = ram.get_mut(..n)?;
                    if data.read {
                        ram.copy_from_slice(part)
                    } else {
                        part.copy_from_slice(ram)
                    }
                    Some(())
                });
                moved.flatten().ok_or(int::ADMA)?;
                done += n;
                piece = (piece.0 + n as u64, piece.1 - n as u32);
            }
            if !data.read {
                let error = self.deliver(&block);
                if error != 0 {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn descriptor(&self, at: u64, wide: bool) -> Option<(u32, u64)> {
        self.memory.with(at, |ram| {
            let word = |i: usize| Some(u32::from_le_bytes(ram.get(4 * i..4 * i + 4)?.try_into().ok()?));
            let high = if wide { u64::from(word(2)?) << 32 } else { 0 };
            Some((word(0)?, u64::from(word(1)?) | high))
        })?
    }

    // --- the buffer port ---

    pub(super) fn port_read(&mut self) -> u32 {
        let Some(data) = self.data.filter(|d| d.read && d.port()) else { return 0 };
        let mut word = [0; 4];
        for byte in &mut word {
            *byte = self.buffer.get(self.at).copied().unwrap_or(0);
            self.at += 1;
        }
        if self.at >= self.buffer.len() {
            if data.k >= data.blocks {
                self.phase_over(data, 0);
            } else {
                let stage = self.wired(&data);
                self.data = Some(Data { stage, ..data });
            }
        }
        u32::from_le_bytes(word)
    }

    pub(super) fn port_write(&mut self, value: u32) {
        let Some(data) = self.data.filter(|d| !d.read && d.port()) else { return };
        for byte in value.to_le_bytes() {
            if let Some(place) = self.buffer.get_mut(self.at) {
                *place = byte;
            }
            self.at += 1;
        }
        if self.at >= self.buffer.len() {
            let stage = self.wired(&data);
            self.data = Some(Data { stage, ..data });
        }
    }
}

//! The data path: one phase at a time, as a function of the clock.
//!
//! With the IDMAC a block is moved whole when its last bit has crossed the wire, and as many at once as one
//! descriptor buffer holds. With PIO the bytes of the block on the wire trickle through the FIFO.

use super::core::Core;
use super::fault::Fault;
use super::idmac::State;
use super::reg::{cmd, ctrl, int};
use crate::card::{Card, Phase, Sent, Token};
use crate::wire::Wire;
use mmc_time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Running,
    /// No start bit: at `at` these bits rise and the phase ends.
    Failing {
        at: Instant,
        bits: u32,
    },
    /// Stays busy until it is stopped or reset.
    Hung,
    /// All bytes are through; the automatic CMD12 is due or on the wire.
    Stopping,
}

/// A data phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) read: bool,
    pub(super) dma: bool,
    pub(super) stage: Stage,
    pub(super) auto_stop: bool,
    /// The response of its command was bad.
    pub(super) bad_response: bool,
    /// The end bit of a stop command has passed: nothing moves any more.
    pub(super) frozen: bool,
    error: bool,
    /// What the card has opened, if the directions agree.
    card: Option<Phase>,
    block_len: u32,
    /// Bytes of the phase; `u64::MAX`: open-ended.
    pub(super) total: u64,
    blocks: u32,
    /// Of them, those of full length, and of that length for the card too: so many can move at once.
    whole_blocks: u32,
    /// End of the response, later by the time the card clock stood still.
    from: Instant,
    /// The block in progress.
    pub(super) k: u32,
    prev_end: Instant,
    /// Of the block in progress, when it is on the wire (PIO).
    planned: bool,
    start: Instant,
    end: Instant,
    loaded: Option<Sent>,
    /// Bytes of the block in progress that went between FIFO (or memory) and card.
    moved: usize,
    /// Since when the card clock stands still for want of room or bytes.
    stalled: Option<Instant>,
    starved: bool,
    /// Since when an SDIO card is told to wait (`read_wait`).
    held: Option<Instant>,
}

/// What came of running a phase up to an instant.
enum Run {
    /// It waits.
    Wait,
    /// It ended then; `true`: cut short.
    Over(Instant, bool),
}

impl Data {
    fn left(&self) -> u32 {
        self.blocks.saturating_sub(self.k)
    }
    fn bytes_done(&self) -> u64 {
        u64::from(self.k) * u64::from(self.block_len) + self.moved as u64
    }
    /// Length of the block in progress.
    fn len(&self) -> usize {
        self.len_of(self.k)
    }
    fn len_of(&self, k: u32) -> usize {
        let before = u64::from(k) * u64::from(self.block_len);
        usize::try_from(self.total.saturating_sub(before).min(self.block_len.into())).unwrap_or(0)
    }
    fn resume(&mut self, since: Instant, now: Instant) {
        let by = now - since;
        self.from += by;
        self.prev_end += by;
        self.start += by;
        self.end += by;
        self.stalled = None;
        self.starved = false;
    }
}

impl<C: Card> Core<C> {
    /// Opens the data phase of command `raw`, whose response ended now.
    pub(super) fn data_start(&mut self, raw: u32, phase: Option<Phase>, bad_response: bool) {
        let read = raw & cmd::WRITE == 0;
        let block_len = self.ciu.blksiz & 0xffff;
        let bytes = self.ciu.bytcnt;
        self.r.tcbcnt = 0;
        self.r.tbbcnt = 0;
        self.faults.data = self.faults.command.clone();
        if block_len == 0 {
            self.violation("a data command with BLKSIZ 0".into());
            self.data_over(self.t);
            return;
        }
        let total = if bytes == 0 { u64::MAX } else { bytes.into() };
        if !bytes.is_multiple_of(block_len) {
            self.violation(format!("BYTCNT {bytes} is not a multiple of BLKSIZ {block_len}"));
        }
        let dma = self.idmac_enabled();
        let card = phase.filter(|p| p.read == read);
        let card_blocks = card.and_then(|p| p.blocks).unwrap_or(u32::MAX);
        let alike = card.is_some_and(|p| u32::from(p.block_len) == block_len);
        self.data = Some(Data {
            read,
            dma,
            stage: Stage::Running,
            auto_stop: raw & cmd::AUTO_STOP != 0 && bytes != 0,
            bad_response,
            frozen: false,
            error: false,
            card,
            block_len,
            total,
            blocks: if bytes == 0 { u32::MAX } else { bytes.div_ceil(block_len) },
            whole_blocks: match bytes {
                _ if !alike => 0,
                0 => card_blocks,
                _ => card_blocks.min(bytes / block_len),
            },
            from: self.t,
            k: 0,
            prev_end: self.t,
            planned: false,
            start: self.t,
            end: self.t,
            loaded: None,
            moved: 0,
            stalled: None,
            starved: false,
            held: (read && self.r.ctrl & ctrl::READ_WAIT != 0).then_some(self.t),
        });
        if read && self.r.cardthr & 1 != 0 && self.cfg.has_extensions() {
            let fifo = self.cfg.depth() * self.cfg.data_width.bytes();
            let threshold = self.r.cardthr >> 16 & 0x1fff;
            if threshold != block_len || threshold > fifo {
                self.violation(format!(
                    "a card read threshold of {threshold} bytes for blocks of {block_len} and a FIFO of {fifo}"
                ));
            }
        }
        if dma {
            self.idmac_start(read, bad_response);
            if !self.fifoth_ok() {
                let th = self.r.fifoth;
                self.violation(format!("FIFOTH {th:#x} breaks the rules for a burst; the IDMAC may starve"));
            }
        } else {
            self.rx_fifo = read;
            if read && self.fifo.len() > 0 {
                let n = self.fifo.words(false);
                self.violation(format!("a read begins with {n} words in the FIFO"));
            }
        }
    }

    /// Whether MSIZE divides both distances and the watermarks are inside the FIFO.
    fn fifoth_ok(&self) -> bool {
        let depth = self.cfg.depth();
        let (tx, rx) = (self.r.fifoth & 0xfff, self.r.fifoth >> 16 & 0xfff);
        let burst = match self.r.fifoth >> 28 & 7 {
            0 => 1,
            n => 2 << n,
        };
        tx >= 1
            && tx < depth
            && rx + 2 <= depth
            && (rx + 1).is_multiple_of(burst)
            && (depth - tx).is_multiple_of(burst)
    }

    pub(super) fn idmac_enabled(&self) -> bool {
        self.r.ctrl & ctrl::INTERNAL_DMAC != 0 && self.r.bmod & super::reg::bmod::DE != 0
    }

    fn timeout(&self) -> Duration {
        self.wire().clocks(u64::from(self.ciu.tmout >> 8))
    }

    /// When block `k` starts and ends on the wire, nothing stopping the clock.
    fn plan(&self, d: &Data, k: u32) -> (Instant, Instant) {
        let wire: Wire = self.wire();
        let ready = if d.card.is_some() { self.card.ready(k) } else { Instant::ZERO };
        let n = k.saturating_add(1);
        let len = d.block_len;
        let bl = u16::try_from(len).unwrap_or(u16::MAX);
        let (one, end) = if d.read {
            (wire.clocks(wire.read_block_clocks(len)), wire.read_end(d.from, n, bl, ready))
        } else {
            (wire.clocks(wire.write_block_clocks(len)), wire.write_end(d.from, n, bl, ready))
        };
        let earliest = if d.dma { d.prev_end } else { d.prev_end + one };
        let end = end.max(earliest);
        let start = if end.is_never() { Instant::NEVER } else { (end - one).max(d.prev_end) };
        (start, end)
    }

    /// Runs the phase up to `limit`; whether it ended (at `self.t`).
    pub(super) fn data_run(&mut self, limit: Instant) -> bool {
        let Some(mut d) = self.data.take() else { return false };
        let mut run = self.data_stage(&mut d, limit);
        if matches!((&run, d.stage), (Run::Wait, Stage::Failing { at, .. }) if at <= limit) {
            run = self.data_stage(&mut d, limit);
        }
        self.data = Some(d);
        let Run::Over(t, cut) = run else { return false };
        self.at(t);
        self.data_end(cut);
        true
    }

    fn data_stage(&mut self, d: &mut Data, limit: Instant) -> Run {
        match d.stage {
            Stage::Failing { at, bits } if at <= limit && !d.frozen => {
                self.at(at);
                self.raise(bits);
                self.data_error(d);
                let over = if bits & int::DRTO != 0 {
                    self.cfg.timeout_then_over
                } else {
                    self.cfg.start_error_then_over
                };
                if over {
                    Run::Over(at, true)
                } else {
                    d.stage = Stage::Hung;
                    Run::Wait
                }
            }
            Stage::Running if !d.frozen && d.held.is_none() => {
                if d.dma {
                    self.dma_run(d, limit)
                } else {
                    self.pio_run(d, limit)
                }
            }
            _ => Run::Wait,
        }
    }

    /// CTRL bit 6 changed: a read that runs stands still, or goes on where it was.
    pub(super) fn read_wait(&mut self, on: bool) {
        let t = self.t;
        let Some(d) = self.data.as_mut().filter(|d| d.read) else { return };
        if on {
            d.held.get_or_insert(t);
        } else if let Some(since) = d.held.take() {
            let stalled = d.stalled;
            let starved = d.starved;
            d.resume(since, t);
            (d.stalled, d.starved) = (stalled, starved);
        }
    }

    fn data_error(&mut self, d: &mut Data) {
        d.error = true;
        if d.dma {
            self.idmac_error();
        }
    }

    /// No start bit: when the data timeout has passed since `since`, these bits rise.
    fn data_fails(&self, d: &mut Data, since: Instant, bits: u32) {
        d.stage = Stage::Failing { at: since + self.timeout(), bits };
    }

    /// All bytes are through, or none will follow.
    fn data_end(&mut self, cut: bool) {
        let Some(mut d) = self.data.take() else { return };
        if d.dma {
            self.idmac_end(cut);
        } else if !d.read {
            self.fifo.drop_padding(d.bytes_done());
        }
        if d.auto_stop && (!d.error || self.cfg.auto_stop_after_error) {
            d.stage = Stage::Stopping;
            self.data = Some(d);
            self.auto_due = true;
        } else {
            self.data_over(self.t);
        }
    }

    /// The data path is idle again.
    pub(super) fn data_over(&mut self, t: Instant) {
        self.data = None;
        if !self.faults.data.contains(&Fault::SwallowDataOver) {
            self.raise(int::DTO);
        }
        self.busy_fault_data(t);
        self.faults.data.clear();
    }

    /// A command with `stop_abort` has ended.
    pub(super) fn data_abort(&mut self) {
        let Some(d) = self.data else { return };
        if d.stage == Stage::Stopping {
            return;
        }
        if d.dma {
            self.idmac_end(true);
        }
        // Q40: stopped right after a bad response, the data path never says that it is done.
        let lost = d.bad_response && d.k == 0 && d.moved == 0;
        if lost {
            self.data = None;
            self.faults.data.clear();
        } else {
            self.data_over(self.t);
        }
    }

    /// The card clock stands still since `since`; says so after the data timeout, once.
    fn starve(&mut self, d: &mut Data, since: Instant, limit: Instant) {
        let at = since + self.timeout();
        if !d.starved && at <= limit {
            d.starved = true;
            self.at(at);
            self.raise(int::HTO);
        }
    }

    fn dma_run(&mut self, d: &mut Data, limit: Instant) -> Run {
        let blocked = self.cfg.strict_fifoth && !self.fifoth_ok();
        let timeout = self.timeout();
        loop {
            if d.left() == 0 {
                return Run::Over(d.prev_end, false);
            }
            if let Some(since) = d.stalled {
                if self.idmac_buffer().is_none() || blocked {
                    self.starve(d, since, limit);
                    return Run::Wait;
                }
                let now = self.t.max(since);
                d.resume(since, now);
                if !d.read {
                    // The whole block is still to cross the wire.
                    let one = self.wire().write_block_clocks(d.block_len);
                    d.from = d.from.max(now - self.wire().clocks(one.saturating_mul(d.k.into())));
                }
            }
            let (fault, next_fault) = self.faults.of_block(d.k);
            if !blocked && self.dma_many(d, limit, timeout, next_fault) {
                continue;
            }
            let (start, end) = self.plan(d, d.k);
            if d.read && d.loaded.is_none() {
                let has = |p: Phase| p.blocks.is_none_or(|n| d.k < n);
                let silent = !d.card.is_some_and(has) || !self.connected();
                if silent || matches!(fault, Some(Fault::ReadNothing(_))) || start - d.prev_end > timeout {
                    self.data_fails(d, d.prev_end, int::DRTO);
                    return Run::Wait;
                }
                if start <= limit && matches!(fault, Some(Fault::ReadStartBit(_))) {
                    self.at(start);
                    self.raise(int::SBE);
                    self.data_error(d);
                    self.data_fails(d, start, 0);
                    return Run::Wait;
                }
            }
            // A read stands still when its block has nowhere to go, a write before it begins.
            let stands = if d.read { end } else { start };
            if blocked || (!d.read && self.idmac_buffer().is_none()) {
                if stands > limit {
                    return Run::Wait;
                }
                d.stalled = Some(stands);
                continue;
            }
            if end > limit {
                return Run::Wait;
            }
            if self.idmac.state == State::Dead {
                d.stalled = Some(stands);
                continue;
            }
            if let Some(over) = self.dma_one(d, fault, stands, end) {
                return over;
            }
        }
    }

    /// Moves as many whole blocks as the current buffer holds, time allows and no fault forbids; false: none.
    fn dma_many(&mut self, d: &mut Data, limit: Instant, timeout: Duration, next_fault: Option<u32>) -> bool {
        let Some((at, room)) = self.idmac_buffer() else { return false };
        let len = d.block_len as usize;
        let full = d.whole_blocks.saturating_sub(d.k) as usize;
        let mut most = (room / len).min(full) as u32;
        if let Some(f) = next_fault {
            most = most.min(f.saturating_sub(d.k));
        }
        if d.read && self.idmac.posted > 0 {
            most = most.min(d.left().saturating_sub(1));
        }
        // When `n` blocks end, if that is in time, and no gap between them can have been too long.
        let fits = |n: u32| {
            let end = self.plan(d, d.k + n - 1).1;
            (end <= limit && (!d.read || end - d.prev_end <= timeout)).then_some(end)
        };
        if most == 0
            || d.moved > 0
            || d.loaded.is_some()
            || !self.connected()
            || (d.read && !self.samples_right())
        {
            return false;
        }
        let (n, end) = match fits(most) {
            Some(end) => (most, end),
            None => {
                let (mut yes, mut no) = ((0, Instant::ZERO), most);
                while no - yes.0 > 1 {
                    let mid = yes.0 + (no - yes.0) / 2;
                    match fits(mid) {
                        Some(end) => yes = (mid, end),
                        None => no = mid,
                    }
                }
                yes
            }
        };
        if n == 0 {
            return false;
        }
        let Self { memory, card, .. } = self;
        let moved = memory.with(at, |b| match b.get_mut(..n as usize * len) {
            Some(b) if d.read => Ok(card.send_many(b, end)),
            Some(b) => Ok(card.take_many(b, end)),
            None => Err((b.len() / len) as u32),
        });
        let moved = match moved {
            Some(Ok(moved)) => moved,
            // The memory ends inside of the buffer: whole blocks up to there, the rest one by one.
            Some(Err(whole)) if whole > 0 => return self.dma_many(d, limit, timeout, Some(d.k + whole)),
            _ => return false,
        };
        let done = (moved / len).min(n as usize) as u32;
        if done == 0 {
            return false;
        }
        d.prev_end = if done == n { end } else { self.plan(d, d.k + done - 1).1 };
        d.k += done;
        self.at(d.prev_end);
        self.r.tcbcnt = self.r.tcbcnt.wrapping_add(done * d.block_len);
        self.idmac_consume(done as usize * len);
        true
    }

    /// Moves one block through the scratch block; `Some`: the phase waits or is over.
    fn dma_one(&mut self, d: &mut Data, fault: Option<Fault>, stands: Instant, end: Instant) -> Option<Run> {
        let len = d.len();
        self.scratch.resize(len.max(self.scratch.len()), 0);
        if d.read && d.loaded.is_none() {
            let sent = self.load(d, fault, end);
            if sent == Sent::Nothing {
                self.data_fails(d, d.prev_end, int::DRTO);
                return Some(Run::Wait);
            }
            d.loaded = Some(sent);
        }
        self.at(end);
        while d.moved < len {
            let Some((at, room)) = self.idmac_buffer() else {
                d.stalled = Some(stands);
                return None;
            };
            let n = room.min(len - d.moved);
            let late = d.read && self.idmac.posted > 0 && d.left() == 1;
            let piece = &mut self.scratch[d.moved..d.moved + n];
            let read = d.read;
            let ok = self.memory.with(at, |b| {
                let b = b.get_mut(..n)?;
                match (read, late) {
                    (true, false) => b.copy_from_slice(piece),
                    (true, true) => {}
                    (false, _) => piece.copy_from_slice(b),
                }
                Some(())
            });
            if ok.flatten().is_none() {
                self.bus_error();
                continue;
            }
            if late {
                let bytes = piece.to_vec();
                self.post_data(at, bytes);
            }
            d.moved += n;
            self.idmac_consume(n);
        }
        self.block_done(d, fault, end)
    }

    /// Gets the block in progress from the card into the scratch block.
    fn load(&mut self, d: &Data, fault: Option<Fault>, t: Instant) -> Sent {
        let len = d.block_len as usize;
        self.scratch.resize(len.max(self.scratch.len()), 0);
        let phase = d.card.filter(|_| self.connected());
        let Some(phase) = phase else { return Sent::Nothing };
        let sent = if usize::from(phase.block_len) == len {
            self.card.send(&mut self.scratch[..len], t)
        } else {
            // The host takes another number of bits than the card sends.
            let mut other = vec![0; phase.block_len.into()];
            let sent = self.card.send(&mut other, t);
            self.scratch[..len].fill(0);
            for (to, from) in self.scratch.iter_mut().zip(other) {
                *to = from;
            }
            if sent == Sent::Nothing { sent } else { Sent::BadCrc }
        };
        match (sent, fault) {
            (Sent::Nothing, _) | (_, Some(Fault::ReadNothing(_))) => Sent::Nothing,
            (_, Some(Fault::ReadCrc(_))) => Sent::BadCrc,
            _ if !self.samples_right() => {
                self.scratch[..len].iter_mut().for_each(|b| *b = b.rotate_left(1));
                Sent::BadCrc
            }
            _ if d.len() < len => Sent::BadCrc,
            _ => sent,
        }
    }

    /// The last bit of the block (and of its CRC status) has passed.
    fn block_done(&mut self, d: &mut Data, fault: Option<Fault>, end: Instant) -> Option<Run> {
        let len = d.len();
        self.at(end);
        let mut cut = false;
        if d.read {
            if d.loaded == Some(Sent::BadCrc) {
                self.raise(int::DCRC);
                self.data_error(d);
            }
            if matches!(fault, Some(Fault::ReadEndBit(_))) {
                self.raise(int::EBE);
                self.data_error(d);
                cut = true;
            }
        } else {
            let crc_ok = !matches!(fault, Some(Fault::WriteCrc(_)));
            let silent = matches!(fault, Some(Fault::WriteNothing(_)));
            let phase = d.card.filter(|_| self.connected() && !silent);
            let token = match phase {
                None => Token::Nothing,
                Some(p) if usize::from(p.block_len) == len => {
                    self.card.take(&self.scratch[..len], crc_ok, end)
                }
                Some(p) => {
                    // Another length than the card takes: its CRC cannot match.
                    let other = vec![0; p.block_len.into()];
                    self.card.take(&other, false, end)
                }
            };
            match token {
                Token::Accepted if crc_ok => {}
                Token::Accepted | Token::CrcError => {
                    self.raise(int::DCRC);
                    self.data_error(d);
                }
                Token::Nothing => {
                    self.raise(int::EBE);
                    self.data_error(d);
                    cut = true;
                }
            }
        }
        if d.dma {
            self.r.tcbcnt = self.r.tcbcnt.wrapping_add(len as u32);
        }
        d.k = d.k.saturating_add(1);
        d.prev_end = end;
        d.moved = 0;
        d.planned = false;
        d.loaded = None;
        cut.then_some(Run::Over(end, true))
    }

    /// When `n` bytes of the block in progress have crossed the wire.
    fn byte_time(&self, d: &Data, n: usize) -> Instant {
        let w = self.wire();
        d.start + w.clocks(1 + (n as u64 * 8).div_ceil(w.lines.max(1).into()))
    }

    /// How many bytes of the block in progress have crossed the wire by `t`.
    fn wire_bytes(&self, d: &Data, t: Instant) -> usize {
        let w = self.wire();
        if t < d.start || w.hz == 0 {
            return 0;
        }
        let clocks = u128::from((t - d.start).as_nanos()) * u128::from(w.hz) / 1_000_000_000;
        let bytes = clocks.saturating_sub(1) * u128::from(w.lines) / 8;
        usize::try_from(bytes).unwrap_or(usize::MAX).min(d.len())
    }

    fn pio_run(&mut self, d: &mut Data, limit: Instant) -> Run {
        loop {
            if d.left() == 0 {
                return Run::Over(d.prev_end, false);
            }
            if let Some(since) = d.stalled {
                let goes = if d.read { self.fifo.space() } else { self.fifo.len() } > 0;
                if !goes {
                    self.starve(d, since, limit);
                    return Run::Wait;
                }
                d.resume(since, self.t.max(since));
            }
            if !d.planned {
                (d.start, d.end) = self.plan(d, d.k);
                d.planned = true;
            }
            let (fault, _) = self.faults.of_block(d.k);
            if d.read && d.loaded.is_none() {
                if d.start - d.prev_end > self.timeout() {
                    self.data_fails(d, d.prev_end, int::DRTO);
                    return Run::Wait;
                }
                if d.start > limit {
                    return Run::Wait;
                }
                self.at(d.start);
                if matches!(fault, Some(Fault::ReadStartBit(_))) {
                    self.raise(int::SBE);
                    self.data_error(d);
                    self.data_fails(d, d.start, 0);
                    return Run::Wait;
                }
                let sent = self.load(d, fault, d.start);
                if sent == Sent::Nothing {
                    self.data_fails(d, d.prev_end, int::DRTO);
                    return Run::Wait;
                }
                d.loaded = Some(sent);
            }
            if d.start > limit {
                return Run::Wait;
            }
            let want = self.wire_bytes(d, limit).saturating_sub(d.moved);
            let to = d.moved + want;
            let n = if d.read {
                let n = want.min(self.fifo.space());
                self.fifo.push(&self.scratch[d.moved..d.moved + n]);
                n
            } else {
                self.scratch.resize(to.max(self.scratch.len()).max(d.len()), 0);
                self.fifo.pop_into(&mut self.scratch[d.moved..to])
            };
            d.moved += n;
            self.r.tcbcnt = self.r.tcbcnt.wrapping_add(n as u32);
            if n < want {
                let since = self.byte_time(d, d.moved);
                self.at(since.min(limit));
                d.stalled = Some(since);
                continue;
            }
            if d.moved < d.len() || d.end > limit {
                return Run::Wait;
            }
            if let Some(over) = self.block_done(d, fault, d.end) {
                return over;
            }
        }
    }

    /// Whether the host has bytes to write into the FIFO for the running phase.
    pub(super) fn wants_words(&self) -> bool {
        self.data.as_ref().is_some_and(|d| {
            let have = d.bytes_done().saturating_add(self.fifo.len() as u64);
            !d.read && !d.dma && d.stage == Stage::Running && have < d.total
        })
    }

    /// Words in the FIFO as STATUS shows them.
    pub(super) fn fifo_words(&self) -> usize {
        match &self.data {
            Some(d) if d.read && d.dma && d.stalled.is_some() => {
                let width = self.cfg.data_width.bytes() as usize;
                (d.len() - d.moved.min(d.len())).div_ceil(width).min(self.cfg.depth() as usize)
            }
            Some(d) => self.fifo.words(d.read && !d.dma && d.stage == Stage::Running),
            None => self.fifo.words(false),
        }
    }

    /// Between two written blocks the card may hold DAT0 low.
    pub(super) fn data_busy(&self) -> bool {
        self.data.as_ref().is_some_and(|d| {
            let waits = !d.read && d.stage == Stage::Running && d.k > 0 && d.moved == 0;
            waits && d.stalled.is_none() && self.plan(d, d.k).0 > self.t
        })
    }

    /// When the phase can next raise a bit by itself, or a moment before that.
    pub(super) fn data_event(&mut self) -> Instant {
        let Some(d) = self.data else { return Instant::NEVER };
        match d.stage {
            _ if d.frozen || d.held.is_some() => Instant::NEVER,
            Stage::Failing { at, .. } => at,
            Stage::Hung | Stage::Stopping => Instant::NEVER,
            Stage::Running => match d.stalled {
                Some(_) if d.starved => Instant::NEVER,
                Some(since) => since + self.timeout(),
                None if d.dma => self.dma_event(&d),
                None => self.pio_event(&d),
            },
        }
    }

    fn dma_event(&mut self, d: &Data) -> Instant {
        let (start, end) = self.plan(d, d.k);
        let blocked = self.cfg.strict_fifoth && !self.fifoth_ok();
        if blocked || d.whole_blocks == 0 {
            // Every block of another length than the card's ends with an error.
            return if d.read || !blocked { end } else { start };
        }
        // The card may know of fewer blocks: it is silent afterwards.
        let last = match d.card.and_then(|p| p.blocks) {
            Some(n) if n < d.blocks => n.saturating_sub(u32::from(d.read)),
            _ => d.blocks.saturating_sub(1),
        };
        let last = self.plan(d, last.max(d.k)).1;
        let mut at = if d.read && last - d.prev_end > self.timeout() {
            if start - d.prev_end > self.timeout() { d.prev_end + self.timeout() } else { end }
        } else {
            last
        };
        if let (fault, Some(k)) = self.faults.of_block(d.k) {
            let (s, e) = self.plan(d, k);
            at = at.min(if fault.is_some() && s > self.t { s } else { e });
        }
        if let Some(bytes) = self.idmac_notice(d.bytes_done(), d.total) {
            let k = bytes.div_ceil(d.block_len.into()).saturating_sub(1);
            at = at.min(self.plan(d, u32::try_from(k).unwrap_or(u32::MAX)).1);
        } else if self.idmac_buffer().is_none() {
            at = at.min(if d.read { end } else { start });
        }
        at
    }

    fn pio_event(&self, d: &Data) -> Instant {
        let mut d = *d;
        if !d.planned {
            (d.start, d.end) = self.plan(&d, d.k);
        }
        if d.start > self.t {
            let fails = d.prev_end + self.timeout();
            return if d.read && fails > self.t { d.start.min(fails) } else { d.start };
        }
        let width = self.cfg.data_width.bytes() as usize;
        let have = self.fifo.len();
        // Bytes until the watermark is crossed, until one finds the FIFO full or empty.
        let mark = if d.read {
            ((self.r.fifoth >> 16 & 0xfff) as usize + 1) * width
        } else {
            (self.r.fifoth & 0xfff) as usize * width
        };
        let to_mark = if d.read { mark.saturating_sub(have) } else { have.saturating_sub(mark) };
        let to_stop = 1 + if d.read { self.fifo.space() } else { have };
        let mut at = d.end;
        for n in [to_mark, to_stop] {
            if n > 0 && d.moved + n <= d.len() {
                at = at.min(self.byte_time(&d, d.moved + n));
            }
        }
        at
    }
}

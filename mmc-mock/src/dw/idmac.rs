//! The internal DMA controller: descriptors, their owner bit, and its status (`spec/dw-mshc.md` §2).

use super::core::Core;
use super::fault::Fault;
use super::reg::{des0, idsts};
use crate::card::Card;
use mmc_time::{Duration, Instant};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Idle,
    /// Met a descriptor it does not own; waits for PLDMND.
    Suspended,
    /// Holds a descriptor with room (or bytes) left.
    Active,
    /// Bus error: nothing more until a reset.
    Dead,
}

/// The descriptor in use. It starts anew at DBADDR with each data phase.
#[derive(Debug, Default)]
pub(super) struct Idmac {
    pub(super) state: State,
    pub(super) read: bool,
    /// An error of the transfer, for DES0.30.
    pub(super) ces: bool,
    /// Register accesses by which the last data, or the owner bits, come late in this transfer.
    pub(super) posted: u32,
    late_own: u32,
    current: u64,
    control: u32,
    buffers: [(u64, u32); 2],
    which: usize,
    used: bool,
    next: u64,
    /// Where in the phase, in bytes, the next close that says TI/RI (or a missing descriptor) is; a cache.
    next_notice: Option<u64>,
}

impl Idmac {
    pub(super) fn descriptor_address(&self) -> u64 {
        self.current
    }
    pub(super) fn buffer_address(&self) -> u64 {
        self.buffers.get(self.which).map_or(0, |b| b.0)
    }
    pub(super) fn fsm(&self) -> u32 {
        match (self.state, self.read) {
            (State::Idle | State::Dead, _) => 0,
            (State::Suspended, _) => 1,
            (State::Active, false) => 6,
            (State::Active, true) => 7,
        }
    }
}

/// What the bus does later than the controller says (D18, Q34).
#[derive(Debug)]
pub(super) enum Action {
    Data(u64, Vec<u8>),
    Close(u64, u32),
    Notice(u32),
}

#[derive(Debug)]
pub(super) struct Posted {
    access: u64,
    pub(super) at: Instant,
    action: Action,
}

impl<C: Card> Core<C> {
    /// Raises bits of IDSTS with their summaries.
    pub(super) fn raise_id(&mut self, bits: u32) {
        let enabled = bits & self.r.idinten;
        let abnormal = idsts::FBE | idsts::DU | if self.cfg.ais_includes_ces { idsts::CES } else { 0 };
        self.idsts |= bits;
        if enabled & (idsts::TI | idsts::RI) != 0 {
            self.idsts |= idsts::NIS;
        }
        if enabled & abnormal != 0 {
            self.idsts |= idsts::AIS;
        }
    }

    /// A data command has begun its data phase: fetch from DBADDR.
    pub(super) fn idmac_start(&mut self, read: bool, ces: bool) {
        let (mut posted, mut late_own) = (self.cfg.posted, self.cfg.late_own);
        for f in &self.faults.data {
            match *f {
                Fault::LateData(n) => posted = n,
                Fault::LateOwner(n) => late_own = n,
                _ => {}
            }
        }
        self.idmac = Idmac { read, ces, posted, late_own, current: self.r.dbaddr, ..Idmac::default() };
        if ces {
            self.raise_id(idsts::CES);
        }
        if self
            .descriptor(self.r.dbaddr)
            .is_some_and(|d| d.0 & (des0::OWN | des0::FD) == des0::OWN | des0::FD)
        {
            self.fifo.clear();
        }
        self.idmac_fetch();
    }

    /// Marks an error of the card in IDSTS and, at its close, in the descriptor.
    pub(super) fn idmac_error(&mut self) {
        self.idmac.ces = true;
        self.raise_id(idsts::CES);
    }

    /// The four fields of the descriptor at `at`: control, sizes, buffer 1, buffer 2 or next.
    fn descriptor(&self, at: u64) -> Option<(u32, u32, u64, u64)> {
        let word = |b: &[u8], i: usize| {
            let w = b.get(i * 4..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*w))
        };
        let wide = self.cfg.addr64;
        self.memory.with(at, |b| {
            Some(if wide {
                let two = |i| Some(u64::from(word(b, i)?) | u64::from(word(b, i + 1)?) << 32);
                (word(b, 0)?, word(b, 2)?, two(4)?, two(6)?)
            } else {
                (word(b, 0)?, word(b, 1)?, word(b, 2)?.into(), word(b, 3)?.into())
            })
        })?
    }

    /// Whether the write that gives the descriptor at `at` back is still under way.
    fn close_is_posted(&self, at: u64) -> bool {
        self.posted.iter().any(|p| matches!(p.action, Action::Close(a, _) if a == at))
    }

    /// Fetches descriptors from the current address until one has a byte to move.
    pub(super) fn idmac_fetch(&mut self) {
        self.idmac.next_notice = None;
        loop {
            let at = self.idmac.current;
            let Some((control, sizes, one, two)) = self.descriptor(at) else {
                self.bus_error();
                return;
            };
            if control & des0::OWN == 0 || self.close_is_posted(at) {
                self.idmac.state = State::Suspended;
                self.raise_id(idsts::DU);
                return;
            }
            self.counters.descriptors += 1;
            let chained = control & des0::CH != 0;
            let bus = u64::from(self.cfg.data_width.bytes());
            let size = if self.cfg.addr64 { 32 } else { 16 };
            let (len1, len2) = (sizes & 0x1fff, if chained { 0 } else { sizes >> 13 & 0x1fff });
            if chained && sizes >> 13 != 0 {
                self.violation(format!("descriptor at {at:#x}: chained, with a size for buffer 2"));
            }
            for (a, n) in [(one, len1), (two, len2)] {
                if n != 0 && (a % bus != 0 || u64::from(n) % bus != 0) {
                    self.violation(format!(
                        "descriptor at {at:#x}: buffer {a:#x} of {n} bytes is not aligned to {bus}"
                    ));
                }
            }
            let m = &mut self.idmac;
            m.control = control;
            m.buffers = [(one - one % bus, len1), (two - two % bus, len2)];
            m.used = false;
            m.next = if chained {
                two - two % bus
            } else if control & des0::ER != 0 {
                self.r.dbaddr
            } else {
                at.wrapping_add(size + bus * u64::from(self.r.bmod >> 2 & 0x1f))
            };
            if !self.cfg.addr64 {
                m.next &= 0xffff_ffff;
            }
            m.which = m.buffers.iter().position(|b| b.1 != 0).unwrap_or(2);
            m.state = State::Active;
            if m.which < 2 || !self.idmac_close() {
                return;
            }
        }
    }

    /// The piece of memory the next bytes go to or come from.
    pub(super) fn idmac_buffer(&self) -> Option<(u64, usize)> {
        if self.idmac.state != State::Active {
            return None;
        }
        self.idmac.buffers.get(self.idmac.which).map(|b| (b.0, b.1 as usize))
    }

    /// `n` bytes of the current buffer are done.
    pub(super) fn idmac_consume(&mut self, n: usize) {
        self.counters.dma_bytes += n as u64;
        self.r.tbbcnt = self.r.tbbcnt.wrapping_add(n as u32);
        let m = &mut self.idmac;
        m.used = true;
        if let Some(b) = m.buffers.get_mut(m.which) {
            let n = (n as u32).min(b.1);
            b.0 += u64::from(n);
            b.1 -= n;
        }
        while m.buffers.get(m.which).is_some_and(|b| b.1 == 0) {
            m.which += 1;
        }
        if m.which >= 2 && self.idmac_close() {
            self.idmac_fetch();
        }
    }

    /// Gives the current descriptor back; whether there is a next one to fetch.
    fn idmac_close(&mut self) -> bool {
        self.idmac.next_notice = None;
        let (at, control) = (self.idmac.current, self.idmac.control);
        let back = control & !des0::OWN | if self.idmac.ces { des0::CES } else { 0 };
        let notice = if self.idmac.read { idsts::RI } else { idsts::TI };
        if self.idmac.late_own > 0 && self.idmac.posted == 0 {
            self.notice(control, notice);
            self.post(self.idmac.late_own, Action::Close(at, back));
        } else if self.posted.is_empty() {
            self.write_back(at, back);
            self.notice(control, notice);
        } else {
            self.post(self.idmac.posted, Action::Close(at, back));
            if control & des0::DIC == 0 {
                self.post(self.idmac.posted, Action::Notice(notice));
            }
        }
        if control & des0::LD != 0 {
            self.idmac.state = State::Idle;
            return false;
        }
        self.idmac.current = self.idmac.next;
        true
    }

    fn notice(&mut self, control: u32, bits: u32) {
        if control & des0::DIC == 0 {
            self.raise_id(bits);
        }
    }

    fn write_back(&mut self, at: u64, value: u32) {
        let seen = self.memory.with(at, |b| {
            let word = b.first_chunk_mut::<4>()?;
            let seen = u32::from_le_bytes(*word);
            *word = value.to_le_bytes();
            Some(seen)
        });
        match seen.flatten() {
            Some(seen) if (seen ^ value) & !(des0::OWN | des0::CES) == 0 && seen & des0::OWN != 0 => {}
            Some(seen) => {
                self.violation(format!("descriptor at {at:#x} became {seen:#x} while the device owned it"))
            }
            None => self.violation(format!("descriptor at {at:#x} vanished while the device owned it")),
        }
    }

    /// The data phase is over. The descriptor in use is closed; one that was only fetched is, too, when the
    /// phase was cut short.
    pub(super) fn idmac_end(&mut self, cut: bool) {
        if self.idmac.state == State::Active && (self.idmac.used || cut) {
            self.idmac_close();
        }
        if self.idmac.state != State::Dead {
            self.idmac.state = State::Idle;
        }
    }

    /// PLDMND was written.
    pub(super) fn idmac_poll_demand(&mut self) {
        if self.idmac.state == State::Suspended {
            self.idmac_fetch();
        }
    }

    /// A reset, or the end of DE or `use_internal_dmac`: what was still on its way is lost, but for the owner
    /// bits a working bus delivers late.
    pub(super) fn idmac_stop(&mut self) {
        let was = std::mem::take(&mut self.idmac);
        self.idmac.current = was.current;
        for p in std::mem::take(&mut self.posted) {
            if let (Action::Close(at, value), 0) = (p.action, was.posted) {
                self.write_back(at, value);
            }
        }
    }

    /// A bus error at the current descriptor or buffer.
    pub(super) fn bus_error(&mut self) {
        self.idmac.state = State::Dead;
        let code = if self.idmac.read { 2 } else { 1 };
        self.idsts = self.idsts & !(7 << 10) | code << 10;
        self.raise_id(idsts::FBE);
    }

    fn post(&mut self, accesses: u32, action: Action) {
        let access = self.counters.reads + self.counters.writes + u64::from(accesses);
        let at = self.t + Duration::from_micros(accesses.into());
        self.posted.push_back(Posted { access, at, action });
    }

    /// Puts the last block of a read on its way (D18).
    pub(super) fn post_data(&mut self, at: u64, bytes: Vec<u8>) {
        self.post(self.idmac.posted, Action::Data(at, bytes));
    }

    /// Lets what is due arrive in memory.
    pub(super) fn posted_run(&mut self) {
        let accesses = self.counters.reads + self.counters.writes;
        while self.posted.front().is_some_and(|p| p.access <= accesses || p.at <= self.t) {
            match self.posted.pop_front().map(|p| p.action) {
                Some(Action::Data(at, bytes)) => {
                    let put = self
                        .memory
                        .with(at, |b| b.get_mut(..bytes.len()).map(|b| b.copy_from_slice(&bytes)).is_some());
                    if put != Some(true) {
                        self.violation(format!("the buffer at {at:#x} vanished before its last bytes came"));
                    }
                }
                Some(Action::Close(at, value)) => self.write_back(at, value),
                Some(Action::Notice(bits)) => self.raise_id(bits),
                None => {}
            }
        }
    }

    /// Whether all of a buffer is memory.
    fn mapped(&self, at: u64, len: u32) -> bool {
        len == 0 || self.memory.with(at, |b| b.len()).is_some_and(|n| n >= len as usize)
    }

    /// Where in the phase, in bytes, the next thing happens that IDSTS shows or that stops the data: a close that
    /// raises TI or RI, the last descriptor, a missing one, a bus error; `None`: not before the end of the phase.
    /// `done`: bytes moved so far, `total`: of the phase.
    pub(super) fn idmac_notice(&mut self, done: u64, total: u64) -> Option<u64> {
        if self.idmac.state != State::Active {
            return None;
        }
        if let Some(n) = self.idmac.next_notice {
            return (n < total).then_some(n);
        }
        let m = &self.idmac;
        let (mut at, mut control) = (m.next, m.control);
        let mut sum = done;
        let mut sound = true;
        for (at, len) in m.buffers.iter().skip(m.which) {
            sound = sound && self.mapped(*at, *len);
            sum = sum.saturating_add(if sound { (*len).into() } else { 1 });
        }
        for _ in 0..1024 {
            if !sound || control & des0::DIC == 0 || control & des0::LD != 0 || sum >= total {
                break;
            }
            let Some((c, sizes, one, two)) = self.descriptor(at) else { break };
            if c & des0::OWN == 0 || c & des0::CH == 0 {
                break;
            }
            let len = sizes & 0x1fff;
            sound = self.mapped(one, len);
            sum = sum.saturating_add(if sound { len.into() } else { 1 });
            (at, control) = (two, c);
        }
        self.idmac.next_notice = Some(sum);
        (sum < total).then_some(sum)
    }
}

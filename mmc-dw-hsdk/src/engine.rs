//! The engine: one command, one data phase, one change of bus or supply at a time, as states.
//!
//! ```text
//!  Off ─ PowerUp ─ Ramp ─► Idle ─► (Prepare) Command ─► Closing (data: DMA and descriptors) ─► Idle
//!                           │         └─────► (Settle) Busy (R1b) ─────────────────► Idle
//!                           ├─► Clock ─► Idle                  any error ─► Failed ─ Recover ─► Idle
//!                           └─► PowerDown ─► Off                                └► Broken (a reset that sticks)
//! ```
//! A request is done when its command event, and with data also the data end *and* the DMA's end, have come
//! (`spec/dw-mshc.md` §7); an error ends it at once, and whatever the controller still does is ended by the reset that
//! follows. So no variant's missing "data over" after an error can hang it.

mod bus;
mod slot;

use self::bus::{BusChange, Lines, is_fast};
use self::slot::Pin;
use crate::clock::Divider;
use crate::command::{first_error, response, word};
use crate::idmac::{Idmac, Ring, fifoth};
use crate::irq::IrqHalf;
use crate::mailbox::Mailbox;
use crate::pio::{Pio, Window};
use crate::platform::{Board, Platform};
use crate::reg::{
    BLKSIZ, BMOD, BYTCNT, Bmod, CARDTHRCTL, CMD, CMDARG, CTRL, Cmd, Ctrl, DATA, DBADDR, DmaEvents, Events,
    FIFOTH, PLDMND, RESP0, RINTSTS, STATUS, Status, TCBCNT,
};
use crate::reset::{RESET_LIMIT, Reset};
use crate::timeout::{card_clocks, command_limit, data_limit};
use crate::wait::{look_again, settles};
use core::fmt;
use core::marker::PhantomData;
use mmc_hal::{Dir, Dma, Mmio, Payload};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing};
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Lease, Phase, Reply, Slot, Supervised, Why};
use mmc_time::{Duration, Instant};

/// How long the controller may take to stop after an error or a limit: [`reset::RESET_LIMIT`](crate::reset::RESET_LIMIT)
/// and a margin. An operation ends at its caller's limit plus this at the latest.
pub const GRACE: Duration = Duration::from_millis(250);

/// From the end of the data to the end of the DMA, and to the descriptor's way back to memory.
const CLOSE_LIMIT: Duration = Duration::from_millis(100);

/// The longest pause between two looks of the software timer at a command that is held back by a busy card.
const LONGEST_WATCH: Duration = Duration::from_secs(1);

/// So many data phases in a row that the internal DMA controller did not carry out (bus errors, no end): the processor
/// moves the data from then on, until the host is made anew.
const DMA_PATIENCE: u8 = 3;

/// Half of the time the interrupt of CMD11 may take; the manual says 2 ms, 130 ms were measured (Q15).
const SWITCH_WATCH: Duration = Duration::from_millis(250);

/// INTMASK while a command without data runs, and in between.
const WITHOUT_DATA: Events = Events::HANDLED.difference(Events::ACD);
/// INTMASK while data are expected (the end of the data says the command is done, too), and during clock updates.
const WITH_DATA: Events = WITHOUT_DATA.difference(Events::CDONE);
/// INTMASK when the end of the data has come before the end of the automatic CMD12, which is usually the first.
const WITH_STOP: Events = WITH_DATA.union(Events::ACD);

/// One operation with a command.
#[derive(Clone, Copy, Debug)]
struct Op {
    cmd: Command,
    bytes: u64,
    since: Instant,
}

/// The software timer of a command: catches a controller that says nothing at all.
#[derive(Clone, Copy, Debug)]
struct Watch {
    next: Instant,
    step: Duration,
    /// START was found clear: the command is no longer held back.
    accepted: bool,
    /// TCBCNT at the last look of a read.
    moved: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Off,
    Idle,
    /// The data path changes hands between DMA and processor.
    Prepare(Op),
    Command(Op, Watch),
    /// Command done has come; an error of the response may still follow until then.
    Settle(Op, Instant),
    Closing(Op, Instant),
    Busy(Op, Instant),
    Bus(BusChange),
    PowerUp(Reset, Instant),
    Ramp(Instant),
    PowerDown(Instant),
    /// An operation ended with an error and the controller may still be at it.
    Failed,
    Recover(Reset),
    /// A reset or the update after it did not end; whether memory is quiet.
    Broken(bool),
}

/// Registers as they were last written, so that what does not change is not written again.
#[derive(Clone, Copy, Debug, Default)]
struct Shadow {
    ctype: Option<u32>,
    blksiz: Option<u32>,
    bytcnt: Option<u32>,
    fifoth: Option<u32>,
    intmask: Option<u32>,
    threshold: Option<u32>,
    dbaddr: Option<u64>,
}

/// How many data phases were started which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Moved by the internal DMA controller.
    pub dma: u64,
    /// Moved by the processor, because DMA could not have the payload: see where it comes from if this grows.
    pub pio: u64,
    /// Of those by DMA, how many found their descriptors ready
    /// ([`Host::prepare`](mmc_proto::host::Host::prepare)).
    pub prepared: u64,
    /// Of those by DMA, how many it failed ([`Cause::Dma`]). After three in a row all go by the processor.
    pub dma_errors: u64,
}

/// Where events come from.
enum Post {
    /// Polled: this half acknowledges them itself.
    Own(Mailbox),
    /// The interrupt half does.
    Shared(&'static Mailbox),
}

/// One DesignWare controller with one slot. `M` its registers, `R` the window on its descriptors, `D` the DMA mapper,
/// `P` what data move in and out of.
///
/// It is reached through [`Supervised`]: the constructors give no bare engine, so that nobody can lie about when
/// the device has stopped. `B` is what the board does outside of the controller; most boards have nothing there.
pub struct DwEngine<M, R, D, P, B = ()> {
    regs: M,
    idmac: Idmac<R>,
    dma: D,
    platform: Platform,
    post: Post,
    state: State,
    seen: Events,
    seen_dma: DmaEvents,
    shadow: Shadow,
    /// `None`: the card clock is stopped, or nobody knows.
    clock: Option<Divider>,
    /// The clock may be running.
    running: bool,
    /// A data phase without a count has been started and not been stopped.
    open: bool,
    /// The FIFO, as it was found when the supply was switched on.
    fifo: Window,
    /// This build has an internal DMA controller.
    has_idmac: bool,
    /// Data phases in a row that it has failed.
    dma_failures: u8,
    /// The FIFO is the processor's now.
    by_hand: bool,
    /// The data phase that is moved by hand.
    pio: Option<Pio>,
    transfers: Transfers,
    /// TCBCNT tells the progress of a transfer on this build.
    counts: bool,
    board: B,
    /// The supply is on.
    powered: bool,
    /// What the signal lines are supplied with.
    signal: Signal,
    /// The lines as they are set; `None`: nobody knows.
    lines: Option<Lines>,
    /// CMD11 has been answered, and the switch is not over: no update of the clock without bit 28.
    switching: bool,
    pin: Pin,
    payload: PhantomData<fn(P)>,
}

impl<M, R, D, P, B> fmt::Debug for DwEngine<M, R, D, P, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DwEngine")
            .field("platform", &self.platform.name)
            .field("state", &self.state)
            .field("clock", &self.clock)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload> DwEngine<M, R, D, P> {
    /// A host that is polled: the interrupt line stays low, `poll` acknowledges events itself, by the code of the
    /// interrupt half. No register is written before `Power::On`.
    pub fn new(regs: M, ring: Ring<R>, dma: D, platform: Platform) -> Supervised<Self> {
        Self::new_on(regs, ring, dma, platform, ())
    }

    /// A host driven by interrupts, and its interrupt half. `irq_regs` is a second window on the same registers;
    /// the mailbox belongs to these two alone. Call `poll` after each [`Irq::Wake`](mmc_proto::host::Irq::Wake).
    pub fn split(
        regs: M,
        irq_regs: M,
        mailbox: &'static Mailbox,
        ring: Ring<R>,
        dma: D,
        platform: Platform,
    ) -> (Supervised<Self>, IrqHalf<M>) {
        Self::split_on(regs, irq_regs, mailbox, ring, dma, platform, ())
    }
}

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload, B: Board> DwEngine<M, R, D, P, B> {
    /// [`new`](DwEngine::new) on a board that can change the signal level or the sample phase.
    pub fn new_on(regs: M, ring: Ring<R>, dma: D, platform: Platform, board: B) -> Supervised<Self> {
        Supervised::new(Self::build(regs, ring, dma, platform, Post::Own(Mailbox::new()), board), GRACE)
    }

    /// [`split`](DwEngine::split) on a board that can change the signal level or the sample phase.
    pub fn split_on(
        regs: M,
        irq_regs: M,
        mailbox: &'static Mailbox,
        ring: Ring<R>,
        dma: D,
        platform: Platform,
        board: B,
    ) -> (Supervised<Self>, IrqHalf<M>) {
        let engine = Self::build(regs, ring, dma, platform, Post::Shared(mailbox), board);
        let half = IrqHalf::new(irq_regs, engine.idmac.map().idsts, engine.sdio_bit(), mailbox);
        (Supervised::new(engine, GRACE), half)
    }

    fn build(regs: M, ring: Ring<R>, dma: D, platform: Platform, post: Post, board: B) -> Self {
        Self {
            regs,
            idmac: Idmac::new(ring),
            dma,
            platform,
            post,
            state: State::Off,
            seen: Events::empty(),
            seen_dma: DmaEvents::empty(),
            shadow: Shadow::default(),
            clock: None,
            running: true,
            open: false,
            fifo: Window { at: DATA, width: 4, depth: 0 },
            has_idmac: true,
            dma_failures: 0,
            by_hand: false,
            pio: None,
            transfers: Transfers::default(),
            counts: true,
            board,
            powered: false,
            signal: Signal::V3_3,
            lines: None,
            switching: false,
            pin: Pin::default(),
            payload: PhantomData,
        }
    }

    /// The card clock in Hz; 0 is stopped.
    pub fn card_hz(&self) -> u32 {
        self.clock.map_or(0, |d| d.hz)
    }

    /// How many transfers went which way so far.
    pub const fn transfers(&self) -> Transfers {
        self.transfers
    }

    /// CTRL in between resets, the FIFO being the DMA controller's.
    fn ctrl(&self) -> Ctrl {
        let mut ctrl = Ctrl::USE_IDMAC | Ctrl::DMA_ENABLE;
        ctrl.set(Ctrl::INT_ENABLE, matches!(self.post, Post::Shared(_)));
        ctrl
    }

    fn recover(&mut self, now: Instant) {
        // The reset clears all events, and that of the slot must not be lost.
        self.collect();
        self.shadow = Shadow::default();
        self.open = false;
        self.by_hand = false;
        self.mask(WITH_DATA);
        let ctrl = self.ctrl();
        let reset = Reset::begin(&self.regs, self.uhs_reg_ext(), ctrl, false, self.switching, now);
        self.state = State::Recover(reset);
    }

    /// Goes on with a recovery; `true` when the device has stopped and touches no memory any more.
    fn recovered(&mut self, mut reset: Reset, now: Instant) -> bool {
        let ctrl = self.ctrl();
        match reset.advance(&self.regs, &mut self.idmac, &self.platform, ctrl, now) {
            None => {
                self.state = State::Recover(reset);
                false
            }
            Some(Ok(())) => {
                self.forget();
                self.shadow.dbaddr = Some(self.idmac.base());
                self.state = State::Idle;
                true
            }
            Some(Err(_)) => {
                self.state = State::Broken(reset.memory_quiet());
                reset.memory_quiet()
            }
        }
    }

    /// Before an operation: the controller is at rest, or is brought to rest now if it can be.
    fn ready(&mut self, now: Instant) -> Result<(), Cause> {
        if let State::Broken(_) | State::Failed = self.state {
            self.recover(now);
        }
        if let State::Recover(reset) = self.state {
            self.recovered(reset, now);
        }
        match self.state {
            State::Idle => Ok(()),
            State::Off => Err(Cause::Unsupported("the card's supply is off: Power::On first")),
            State::Recover(_) | State::Broken(_) => Err(Cause::Controller),
            _ => Err(Cause::Busy),
        }
    }

    fn set(regs: &M, shadow: &mut Option<u32>, at: u32, value: u32) {
        if *shadow != Some(value) {
            regs.write32(at, value);
            *shadow = Some(value);
        }
    }

    /// Starts `cmd`. `prepared`: its descriptors are there.
    fn begin(
        &mut self,
        cmd: &Command,
        data: Option<Lease<'_, P>>,
        prepared: bool,
        now: Instant,
    ) -> Result<(), Cause> {
        self.ready(now)?;
        if self.clock.is_none() {
            return Err(Cause::Unsupported("the card clock is stopped: set the bus first"));
        }
        if cmd.voltage_switch && !self.can().v1_8 {
            return Err(Cause::Unsupported("1.8 V signalling"));
        }
        let mut data = data;
        let bytes = self.load(cmd, data.as_mut(), prepared, now)?;
        self.hand_over(Op { cmd: *cmd, bytes, since: now }, now);
        Ok(())
    }

    /// There is an internal DMA controller, and it works.
    fn has_dma(&self) -> bool {
        self.has_idmac && self.dma_failures < DMA_PATIENCE
    }

    /// Whether a block is whole words of the FIFO.
    fn whole(&self, block_len: u16) -> bool {
        u32::from(block_len) & self.fifo.width.saturating_sub(1) == 0
    }

    /// The data registers and the descriptors of `cmd`; or what takes the place of the descriptors, if DMA cannot
    /// have the payload.
    fn load(
        &mut self,
        cmd: &Command,
        data: Option<&mut Lease<'_, P>>,
        prepared: bool,
        now: Instant,
    ) -> Result<u64, Cause> {
        self.pio = None;
        let Some(shape) = cmd.data else { return Ok(0) };
        let Some(lease) = data else { return Err(Cause::Unsupported("a data command without a payload")) };
        let (block, word) = (u32::from(shape.block_len), self.fifo.width);
        let whole = self.whole(shape.block_len);
        if !whole && shape.blocks > 1 {
            return Err(Cause::Unsupported(
                "several blocks of a length that is not a multiple of the FIFO's word",
            ));
        }
        let bytes = lease.bytes();
        let Ok(count) = u32::try_from(bytes) else {
            return Err(Cause::Unsupported("a data phase of 4 GiB or more"));
        };
        let payload = lease.get();
        let mapped = if prepared {
            self.idmac.flip();
            self.transfers.prepared = self.transfers.prepared.saturating_add(1);
            true
        } else {
            self.has_dma()
                && whole
                && self.idmac.load(false, payload, bytes, word, shape.dir, &mut self.dma).is_ok()
        };
        if !mapped {
            let has: u64 =
                (0..payload.segments()).filter_map(|i| payload.segment(i)).map(|s| s.len() as u64).sum();
            if has < bytes {
                return Err(Cause::Unsupported("a payload shorter than the data phase"));
            }
            if word == 2 && bytes & 3 != 0 {
                return Err(Cause::Unsupported(
                    "a data phase by hand that is not a multiple of 4 bytes, on a FIFO of 16 bits",
                ));
            }
            self.pio = Some(Pio::new(self.fifo, shape.dir, bytes, now));
        }
        let words = block.saturating_add(word.saturating_sub(1)).checked_div(word).unwrap_or(block);
        let (regs, shadow) = (&self.regs, &mut self.shadow);
        Self::set(regs, &mut shadow.fifoth, FIFOTH, fifoth(self.platform.fifo_depth, words));
        Self::set(regs, &mut shadow.blksiz, BLKSIZ, block);
        Self::set(regs, &mut shadow.bytcnt, BYTCNT, count);
        self.threshold(shape.dir, block);
        Ok(bytes)
    }

    /// The card read threshold: a read at a fast timing waits until the FIFO has room for a whole block, if it can hold
    /// one at all; off otherwise (`spec/dw-mshc.md` §3.12). Never touched on a platform without such timings: before
    /// version 2.40a the FIFO is at its place (Q36).
    fn threshold(&mut self, dir: Dir, block: u32) {
        if self.fifo.at != DATA || !self.platform.has_fast() {
            return;
        }
        let fast = self.lines.is_some_and(|l| is_fast(l.timing));
        let fits = self.fifo.depth.saturating_mul(self.fifo.width) >= block;
        let value = if fast && fits && dir == Dir::Read { block << 16 | 1 } else { 0 };
        Self::set(&self.regs, &mut self.shadow.threshold, CARDTHRCTL, value);
    }

    /// Whether commands go through the hold register.
    fn holds(&self) -> bool {
        let timing = self.lines.map_or(Timing::Default, |l| l.timing);
        self.platform.drive_phase || !(timing.ddr() || timing.max_hz() > 50_000_000)
    }

    /// The end of an operation by `cause`, or by the card's absence, which explains every other cause.
    fn fail(&mut self, op: &Op, cause: Cause, phase: Phase) -> Failure {
        // A command without data that the controller has finished leaves nothing to stop.
        let over = op.cmd.data.is_none()
            && self.seen.contains(Events::CDONE)
            && matches!(cause, Cause::Timeout | Cause::Crc | Cause::Framing);
        self.state = if over { State::Idle } else { State::Failed };
        // A card that says nothing may have begun all the same: the reset's update must be taken.
        self.switching |= op.cmd.voltage_switch && !over;
        // A card that refuses a data command answers, and no data come: the answer says why.
        let answered = op.cmd.response == Response::Short
            && self.seen.contains(Events::CDONE)
            && !self.seen.intersects(Events::RE | Events::RCRC)
            // Silence after an automatic CMD12 is not the command's.
            && (!self.seen.contains(Events::RTO) || self.seen.contains(Events::ACD));
        let r1 = answered.then(|| self.regs.read32(RESP0));
        let cause = if self.card_present() { cause } else { Cause::NoCard };
        if cause == Cause::Dma {
            self.dma_failures = self.dma_failures.saturating_add(1);
            self.transfers.dma_errors = self.transfers.dma_errors.saturating_add(1);
        }
        Failure { cause, phase, r1 }
    }

    fn succeed(&mut self, op: &Op) -> Reply {
        self.state = State::Idle;
        if op.cmd.data.is_some() && self.pio.is_none() {
            self.dma_failures = 0;
        }
        Reply { words: response(&self.regs, &op.cmd), bytes: op.bytes }
    }

    /// Hands the FIFO over, if the one who is to move the data is not the one who has it; then the doorbell.
    fn hand_over(&mut self, op: Op, now: Instant) {
        if op.cmd.data.is_none() || (self.pio.is_none() && !self.by_hand) {
            return self.ring(&op, now);
        }
        self.by_hand = true;
        let resets = if self.pio.is_some() {
            self.regs.write32(BMOD, 0);
            (self.ctrl() & Ctrl::INT_ENABLE) | Ctrl::FIFO_RESET
        } else {
            // What the DMA controller had fetched before is of no use any more (Q32).
            self.regs.write32(BMOD, Bmod::SWR.bits());
            self.ctrl() | Ctrl::FIFO_RESET | Ctrl::DMA_RESET
        };
        self.regs.write32(CTRL, resets.bits());
        self.state = State::Prepare(op);
        self.prepared(op, now);
    }

    /// Whether the FIFO has changed hands; then the doorbell.
    fn prepared(&mut self, op: Op, now: Instant) -> bool {
        let clear = |at, bits| settles(|| self.regs.read32(at) & bits == 0);
        if !clear(CTRL, Ctrl::RESETS.bits()) || !clear(BMOD, Bmod::SWR.bits()) {
            return false;
        }
        if self.pio.is_none() {
            self.regs.write32(BMOD, (Bmod::DE | Bmod::FB).bits());
            self.by_hand = false;
        }
        self.ring(&op, now);
        true
    }

    fn preparing(&mut self, op: Op, now: Instant) -> Option<Result<Reply, Failure>> {
        if !self.prepared(op, now) && now.since(op.since) >= RESET_LIMIT {
            return Some(Err(self.fail(&op, Cause::Controller, Phase::Submit)));
        }
        None
    }

    /// The doorbell.
    fn ring(&mut self, op: &Op, now: Instant) {
        let cmd = &op.cmd;
        let divider = self.clock.map_or(0, |d| d.value);
        let (mask, limit) = match cmd.data {
            None if cmd.voltage_switch => (WITHOUT_DATA, SWITCH_WATCH),
            None => (WITHOUT_DATA, command_limit(divider, self.platform.ciu_hz)),
            Some(_) => (WITH_DATA, data_limit(divider, self.platform.ciu_hz)),
        };
        self.mask(mask);
        let word = word(cmd, self.open, self.holds());
        self.open = match cmd.data {
            Some(d) => d.stop == Stop::Manual,
            None => self.open && word & Cmd::STOP_ABORT.bits() == 0,
        };
        self.forget();
        if cmd.data.is_some() {
            if self.pio.is_some() {
                self.transfers.pio = self.transfers.pio.saturating_add(1);
            } else {
                self.transfers.dma = self.transfers.dma.saturating_add(1);
                self.list_address();
                self.dma.publish();
                self.regs.write32(PLDMND, 1);
            }
        }
        self.regs.write32(CMDARG, cmd.arg);
        self.regs.write32(CMD, word);
        let watch = Watch { next: now + limit, step: limit, accepted: false, moved: None };
        self.state = State::Command(*op, watch);
    }

    /// Where the descriptors are; they change places only where transfers are prepared.
    fn list_address(&mut self) {
        let base = self.idmac.base();
        if self.shadow.dbaddr != Some(base) {
            self.regs.write32(DBADDR, base as u32);
            if let Some(high) = self.idmac.map().dbaddr_high {
                self.regs.write32(high, (base >> 32) as u32);
            }
        }
        self.shadow.dbaddr = Some(base);
    }

    /// Moves what can be moved by hand.
    fn pump(&mut self, data: Option<Lease<'_, P>>, now: Instant) {
        if let (Some(pio), Some(mut lease)) = (&mut self.pio, data) {
            pio.pump(&self.regs, lease.get(), now);
        }
    }

    fn command(
        &mut self,
        op: Op,
        watch: Watch,
        data: Option<Lease<'_, P>>,
        now: Instant,
    ) -> Option<Result<Reply, Failure>> {
        self.collect();
        if let Some((cause, phase)) = first_error(self.seen, self.seen_dma, &op.cmd) {
            return Some(Err(self.fail(&op, cause, phase)));
        }
        if self.seen.contains(Events::CARD_DETECT) {
            self.seen.remove(Events::CARD_DETECT);
            if !self.card_present() {
                let phase = if op.cmd.data.is_some() { Phase::Data } else { Phase::Command };
                return Some(Err(self.fail(&op, Cause::NoCard, phase)));
            }
        }
        let done = if op.cmd.voltage_switch { Events::HTO } else { Events::CDONE };
        if self.seen.contains(done) {
            if op.cmd.data.is_none() {
                self.switching |= op.cmd.voltage_switch;
                let clocks = u32::from(self.platform.late_response_errors);
                let divider = self.clock.map_or(0, |d| d.value);
                return self.settle(op, now + card_clocks(clocks, divider, self.platform.ciu_hz), now);
            }
            if self.seen.contains(Events::DTO) {
                if !stops_itself(&op.cmd) || self.seen.contains(Events::ACD) {
                    return self.closing(op, now, data, now);
                }
                self.mask(WITH_STOP);
            }
        }
        self.pump(data, now);
        if now < watch.next {
            return None;
        }
        match self.watch(&op, watch, now) {
            Ok(watch) => {
                self.state = State::Command(op, watch);
                None
            }
            Err((cause, phase)) => Some(Err(self.fail(&op, cause, phase))),
        }
    }

    /// The command is done; is its response as good as it looks?
    fn settle(&mut self, op: Op, until: Instant, now: Instant) -> Option<Result<Reply, Failure>> {
        if now < until {
            self.state = State::Settle(op, until);
            return None;
        }
        self.busy(op, now)
    }

    fn settled(&mut self, op: Op, until: Instant, now: Instant) -> Option<Result<Reply, Failure>> {
        self.collect();
        match first_error(self.seen, self.seen_dma, &op.cmd) {
            Some((cause, phase)) => Some(Err(self.fail(&op, cause, phase))),
            None => self.settle(op, until, now),
        }
    }

    /// The software timer has run out: is there a reason to go on waiting?
    fn watch(&self, op: &Op, mut w: Watch, now: Instant) -> Result<Watch, (Cause, Phase)> {
        let step = w.step;
        w.next = now + step;
        if self.regs.read32(CMD) & Cmd::START.bits() != 0 {
            // Held back until the card is no longer busy: the caller's limit counts, looks become rare.
            w.step = step.saturating_mul(2).min(LONGEST_WATCH);
            w.accepted = false;
            return Ok(w);
        }
        let pending = Events::from_bits_truncate(self.regs.read32(RINTSTS));
        if pending.intersects(WITH_DATA) {
            return Ok(w); // an interrupt is on its way
        }
        if !(self.seen | pending).contains(Events::CDONE) {
            if w.accepted {
                return Err((Cause::Timeout, Phase::Command));
            }
            w.accepted = true;
            return Ok(w);
        }
        match op.cmd.data {
            // An interrupt for a command without data is on its way.
            None => Ok(w),
            // The card may be busy between blocks for as long as the caller allows.
            Some(d) if d.dir == Dir::Write || !self.counts => Ok(w),
            Some(_) => {
                let moved = self.regs.read32(TCBCNT);
                if w.moved == Some(moved) {
                    return Err((Cause::Timeout, Phase::Data));
                }
                w.moved = Some(moved);
                Ok(w)
            }
        }
    }

    /// The data are over on the card's side; are they in memory?
    fn closing(
        &mut self,
        op: Op,
        since: Instant,
        data: Option<Lease<'_, P>>,
        now: Instant,
    ) -> Option<Result<Reply, Failure>> {
        self.state = State::Closing(op, since);
        if self.pio.is_some() {
            return self.draining(op, since, data, now);
        }
        if !self.seen_dma.intersects(DmaEvents::CLOSED) {
            // TI and RI raise no interrupt: look, and clear what is seen.
            let idsts = self.idmac.map().idsts;
            let dma = DmaEvents::from_bits_truncate(self.regs.read32(idsts));
            if dma.intersects(DmaEvents::CLOSED) {
                self.regs.write32(idsts, (dma & (DmaEvents::CLOSED | DmaEvents::NIS)).bits());
                self.seen_dma |= dma;
            }
        }
        if let Some((cause, phase)) = first_error(self.seen, self.seen_dma, &op.cmd) {
            return Some(Err(self.fail(&op, cause, phase)));
        }
        if self.seen_dma.intersects(DmaEvents::CLOSED) && self.idmac.closed() {
            return self.busy(op, now);
        }
        if now.since(since) >= CLOSE_LIMIT {
            return Some(Err(self.fail(&op, Cause::Dma, Phase::Data)));
        }
        None
    }

    /// The data are over on the card's side; the last words of a read are still in the FIFO (Q21).
    fn draining(
        &mut self,
        op: Op,
        since: Instant,
        data: Option<Lease<'_, P>>,
        now: Instant,
    ) -> Option<Result<Reply, Failure>> {
        self.pump(data, now);
        self.collect();
        if let Some((cause, phase)) = first_error(self.seen, self.seen_dma, &op.cmd) {
            return Some(Err(self.fail(&op, cause, phase)));
        }
        if self.pio.is_none_or(|pio| pio.done()) {
            return self.busy(op, now);
        }
        if now.since(since) >= CLOSE_LIMIT {
            return Some(Err(self.fail(&op, Cause::Controller, Phase::Data)));
        }
        None
    }

    /// The command is done; is the card, if it was told to hold DAT0 meanwhile (or stores what an automatic CMD12 has
    /// ended)?
    fn busy(&mut self, op: Op, since: Instant) -> Option<Result<Reply, Failure>> {
        let written = stops_itself(&op.cmd) && op.cmd.data.is_some_and(|d| d.dir == Dir::Write);
        if (op.cmd.busy || written) && self.regs.read32(STATUS) & Status::BUSY.bits() != 0 {
            self.state = State::Busy(op, since);
            self.collect();
            if self.seen.contains(Events::CARD_DETECT) && !self.card_present() {
                return Some(Err(self.fail(&op, Cause::NoCard, Phase::Busy)));
            }
            return None;
        }
        Some(Ok(self.succeed(&op)))
    }
}

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload, B: Board> Engine for DwEngine<M, R, D, P, B> {
    type Payload = P;

    fn capabilities(&self) -> Capabilities {
        self.can()
    }

    fn start(&mut self, cmd: &Command, data: Option<Lease<'_, P>>, now: Instant) -> Result<(), Cause> {
        self.begin(cmd, data, false, now)
    }

    fn prepare(&mut self, cmd: &Command, mut data: Lease<'_, P>) -> Result<(), Cause> {
        let Some(shape) = cmd.data else { return Err(Cause::Unsupported("a command without data")) };
        if !self.has_dma() || !self.whole(shape.block_len) {
            return Err(Cause::Unsupported("a data phase for the processor: it has nothing to prepare"));
        }
        let (bytes, word) = (data.bytes(), self.fifo.width);
        self.idmac.load(true, data.get(), bytes, word, shape.dir, &mut self.dma)
    }

    fn start_prepared(&mut self, cmd: &Command, data: Lease<'_, P>, now: Instant) -> Result<(), Cause> {
        self.begin(cmd, Some(data), true, now)
    }

    fn unprepare(&mut self, mut data: Lease<'_, P>) {
        self.idmac.unmap_all(true, data.get(), &mut self.dma);
    }

    fn set_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        self.change_bus(bus, now)
    }

    fn set_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        self.change_power(power, now)
    }

    fn advance(&mut self, data: Option<Lease<'_, P>>, now: Instant) -> Option<Result<Reply, Failure>> {
        match self.state {
            State::Prepare(op) => self.preparing(op, now),
            State::Command(op, watch) => self.command(op, watch, data, now),
            State::Settle(op, until) => self.settled(op, until, now),
            State::Closing(op, since) => self.closing(op, since, data, now),
            State::Busy(op, since) => self.busy(op, since),
            State::Bus(change) => self.changing(change, now),
            State::PowerUp(reset, stable) => self.powering_up(reset, stable, now),
            State::Ramp(stable) => self.ramp(stable, now),
            State::PowerDown(since) => self.powering_down(since, now),
            // Nothing runs: whoever asks is out of turn.
            State::Off | State::Idle | State::Failed | State::Recover(_) | State::Broken(_) => {
                Some(Err((Cause::Controller, Phase::Submit).into()))
            }
        }
    }

    fn waits(&self, now: Instant) -> (Why, Instant) {
        let look = |since| (Why::Timer, look_again(since, now));
        match &self.state {
            State::Prepare(op) => look(op.since),
            State::Command(op, watch) => match (&self.post, &self.pio) {
                (_, Some(pio)) => (Why::Timer, look_again(pio.moved, now).min(watch.next)),
                (Post::Own(_), None) => (Why::Timer, look_again(op.since, now).min(watch.next)),
                (Post::Shared(_), None) => (Why::Interrupt, watch.next),
            },
            State::Closing(_, since) | State::Busy(_, since) | State::PowerDown(since) => look(*since),
            State::Bus(change) => change.waits(now),
            State::PowerUp(reset, _) | State::Recover(reset) => (Why::Timer, reset.look_again(now)),
            State::Ramp(until) | State::Settle(_, until) => (Why::Timer, *until),
            State::Off | State::Idle | State::Failed | State::Broken(_) => look(now),
        }
    }

    fn halt(&mut self, now: Instant) {
        if !matches!(self.state, State::Off | State::Idle | State::Broken(_)) {
            self.recover(now);
        }
    }

    fn halted(&mut self, now: Instant) -> bool {
        if let State::Broken(false) = self.state {
            self.recover(now);
        }
        match self.state {
            State::Recover(reset) => self.recovered(reset, now),
            State::Off | State::Idle | State::Broken(true) => true,
            _ => false,
        }
    }

    fn finish(&mut self, mut data: Lease<'_, P>) {
        self.idmac.unmap_all(false, data.get(), &mut self.dma);
    }

    fn slot(&mut self, now: Instant) -> Slot {
        self.show_slot(now)
    }

    fn sdio_interrupt(&mut self, enable: bool) {
        if self.powered {
            self.arm_sdio(enable);
        }
    }
}

/// Whether the controller ends the data phase of `c` by a CMD12 of its own.
fn stops_itself(c: &Command) -> bool {
    c.data.is_some_and(|d| d.stop == Stop::Auto)
}

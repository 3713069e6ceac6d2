//! The engine: one command, one data phase, one change of bus or supply at a time, as states.
//!
//! ```text
//!  Off ─ PowerUp ─ Ramp ─► Idle ─► Gate (lines free?) ─► Command ─► Data ─► Idle
//!                           │                               └► Busy (R1b) ─► Idle
//!                           ├─► Tune ─► Idle
//!                           ├─► Bus ─► Idle                  any error ─► Failed ─ Recover ─► Idle
//!                           └─► Off                                   └► Broken (settings lost or a reset that sticks)
//! ```

mod bus;
mod tune;

use self::bus::{BusChange, Lines};
use self::tune::{Tuned, Tuning};
use crate::adma::{Adma, Table};
use crate::clock::Divider;
use crate::command::{first_error, response, word};
use crate::irq::{IrqHalf, Mailbox, acknowledge};
use crate::pio::Pio;
use crate::platform::Platform;
use crate::reg::{
    ADMA, ADMA_HIGH, ARGUMENT, ARGUMENT_2, BLOCK, CAPS, CAPS_HIGH, COMMAND, Caps, Events, HOST2, PRESENT,
    Present, RESPONSE0, SIGNAL_ENABLE, STATUS_ENABLE, VERSION,
};
use crate::reset::{End, Reset, look_again};
use core::fmt;
use core::marker::PhantomData;
use mmc_hal::{Dir, Dma, Mmio, Payload};
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Command, Gate, Response, Stop};
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Lease, Phase, Reply, Slot, Supervised, Why};
use mmc_time::{Duration, Instant};

/// How long the controller may take to stop after an error or a limit: the reset of the lines, the reset of everything,
/// and a margin. An operation ends at its caller's limit plus this at the latest.
pub const GRACE: Duration = Duration::from_millis(350);

/// How long the controller may say nothing about a command it has taken, or refuse the next one. A response takes
/// about 200 card clocks, 2 ms at 100 kHz.
pub const COMMAND_LIMIT: Duration = Duration::from_millis(500);

/// From the end of a transfer to the last block in the buffer port.
const DRAIN_LIMIT: Duration = Duration::from_millis(100);

/// The longest sleep of an operation that an interrupt will end.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// One operation with a command.
#[derive(Clone, Copy, Debug)]
struct Op {
    cmd: Command,
    bytes: u64,
    /// When its state began.
    since: Instant,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Off,
    Idle,
    /// The lines are not free yet, or it is before that instant.
    Gate(Op, Instant),
    Command(Op),
    Data(Op),
    /// The transfer is over; blocks of a read are still in the buffer.
    Drain(Op),
    Busy(Op),
    Tune(Tuning),
    Bus(BusChange),
    PowerUp(Reset),
    Ramp(Instant),
    /// An operation ended with an error and the controller may still be at it.
    Failed,
    Recover(Reset),
    /// A reset did not end, or everything had to be reset; whether memory is quiet. Only `Power` helps.
    Broken(bool),
}

/// How many data phases were started which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Moved by ADMA2.
    pub dma: u64,
    /// Moved by the processor, because DMA could not have the payload: see where it comes from if this grows.
    pub pio: u64,
}

/// Where events come from.
enum Post {
    /// Polled: this half acknowledges them itself.
    Own(Mailbox),
    /// The interrupt half does.
    Shared(&'static Mailbox),
}

/// One slot of a standard SD host controller. `M` its registers, `R` the window on its descriptors, `D` the DMA mapper,
/// `P` what data move in and out of.
///
/// It is reached through [`Supervised`]: the constructors give no bare engine, so that nobody can lie about when the
/// device has stopped.
pub struct SdhciEngine<M, R, D, P> {
    regs: M,
    adma: Adma<R>,
    dma: D,
    platform: Platform,
    caps: Caps,
    post: Post,
    state: State,
    seen: Events,
    /// The enable registers as they were last written; `None`: nobody knows.
    enabled: Option<u32>,
    /// `None`: the card clock is stopped, or nobody knows.
    clock: Option<Divider>,
    /// The lines as they are set; `None`: nobody knows.
    lines: Option<Lines>,
    /// The controller samples where it found that it is right.
    tuned: Option<Tuned>,
    /// The data phase that is moved by hand.
    pio: Option<Pio>,
    /// The last pump stopped before the buffer did.
    more: bool,
    /// When a block was last moved by hand.
    moved: Instant,
    transfers: Transfers,
    /// The last level of the card-detect pin that was seen, and how often it changed.
    present: Option<bool>,
    changes: u32,
    payload: PhantomData<fn(P)>,
}

impl<M, R, D, P> fmt::Debug for SdhciEngine<M, R, D, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SdhciEngine")
            .field("platform", &self.platform.name)
            .field("state", &self.state)
            .field("clock", &self.clock)
            .field("seen", &self.seen)
            .finish_non_exhaustive()
    }
}

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload> SdhciEngine<M, R, D, P> {
    /// A host that is polled: the interrupt line stays low, `poll` acknowledges events itself, by the code of the
    /// interrupt half. The capabilities are read; no register is written before `Power::On`.
    pub fn new(regs: M, table: Table<R>, dma: D, platform: Platform) -> Supervised<Self> {
        Supervised::new(Self::build(regs, table, dma, platform, Post::Own(Mailbox::new())), GRACE)
    }

    /// A host driven by interrupts, and its interrupt half. `irq_regs` is a second window on the same registers; the
    /// mailbox belongs to these two alone. Call `poll` after each [`Irq::Wake`](mmc_proto::host::Irq::Wake).
    pub fn split(
        regs: M,
        irq_regs: M,
        mailbox: &'static Mailbox,
        table: Table<R>,
        dma: D,
        platform: Platform,
    ) -> (Supervised<Self>, IrqHalf<M>) {
        let engine = Self::build(regs, table, dma, platform, Post::Shared(mailbox));
        (Supervised::new(engine, GRACE), IrqHalf::new(irq_regs, mailbox))
    }

    fn build(regs: M, table: Table<R>, dma: D, platform: Platform, post: Post) -> Self {
        let version = (regs.read32(VERSION) >> 16 & 0xff) as u8;
        let high = if version >= 2 { regs.read32(CAPS_HIGH) } else { 0 };
        let caps = Caps { low: regs.read32(CAPS), high, version };
        Self {
            regs,
            adma: Adma::new(table),
            dma,
            platform,
            caps,
            post,
            state: State::Off,
            seen: Events::empty(),
            enabled: None,
            clock: None,
            lines: None,
            tuned: None,
            pio: None,
            more: false,
            moved: Instant::ZERO,
            transfers: Transfers::default(),
            present: None,
            changes: 0,
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

    /// What the controller says of itself.
    pub const fn caps(&self) -> Caps {
        self.caps
    }

    /// Whether a card is in the slot, as the controller has debounced it; always `true` where nothing tells.
    pub fn card_present(&self) -> bool {
        !self.tells() || self.regs.read32(PRESENT) & Present::INSERTED.bits() != 0
    }

    /// Whether the controller can tell if a card is in the slot.
    const fn tells(&self) -> bool {
        self.platform.card_detect && !self.caps.embedded()
    }

    fn uses_dma(&self) -> bool {
        self.platform.dma && self.caps.adma2() && (self.caps.wide() || !self.adma.is_wide())
    }

    fn mailbox(&self) -> &Mailbox {
        match &self.post {
            Post::Own(mailbox) => mailbox,
            Post::Shared(mailbox) => mailbox,
        }
    }

    /// Which events are latched, and with an interrupt half also raised.
    fn enable(&mut self, events: Events) {
        if self.enabled == Some(events.bits()) {
            return;
        }
        self.enabled = Some(events.bits());
        self.regs.write32(STATUS_ENABLE, events.bits());
        let raised = match self.post {
            Post::Own(_) => 0,
            Post::Shared(_) => events.bits(),
        };
        self.regs.write32(SIGNAL_ENABLE, raised);
    }

    /// Fetches what has happened.
    fn collect(&mut self) {
        if let Post::Own(mailbox) = &self.post {
            acknowledge(&self.regs, mailbox);
        }
        let events = self.mailbox().take();
        if events.intersects(Events::SLOT) {
            self.look_at_pin(events.contains(Events::SLOT));
        }
        if events.intersects(Events::TUNING) {
            self.tuned_wanes();
        }
        self.seen |= events;
    }

    /// Forgets what has happened: before a command, so that a late event of one does not end the next.
    fn forget(&mut self) {
        self.collect();
        self.seen = Events::empty();
    }

    /// `both`: it went out and in, or in and out, since the last look.
    fn look_at_pin(&mut self, both: bool) {
        let level = self.card_present();
        let changes = match self.present.replace(level) {
            Some(was) if was != level => 1,
            Some(_) if both => 2,
            _ => 0,
        };
        self.changes = self.changes.wrapping_add(changes);
    }

    fn recover(&mut self, now: Instant) {
        self.collect();
        self.pio = None;
        if let State::Tune(_) = self.state {
            self.stop_tuning();
        }
        self.state = State::Recover(Reset::lines(&self.regs, now));
    }

    /// Goes on with a recovery; `true` when the device has stopped and touches no memory any more.
    fn recovered(&mut self, mut reset: Reset, now: Instant) -> bool {
        let end = reset.advance(&self.regs, now);
        self.state = match end {
            None => State::Recover(reset),
            Some(End::Lines) => State::Idle,
            Some(End::All | End::Stuck) => State::Broken(end == Some(End::All)),
        };
        match end {
            None => return false,
            Some(End::Lines) => self.forget(),
            Some(End::All | End::Stuck) => self.lose(),
        }
        end != Some(End::Stuck)
    }

    /// Everything was reset.
    fn lose(&mut self) {
        self.enabled = None;
        self.clock = None;
        self.lines = None;
        self.tuned = None;
        self.seen = Events::empty();
    }

    /// Before an operation: the controller is at rest, or is brought to rest now if it can be.
    fn ready(&mut self, now: Instant) -> Result<(), Cause> {
        if let State::Failed = self.state {
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

    /// The block register, and the descriptors of `cmd` or what takes their place if DMA cannot have the payload.
    fn load(&mut self, cmd: &Command, data: Option<Lease<'_, P>>) -> Result<u64, Cause> {
        self.pio = None;
        self.more = false;
        let Some(shape) = cmd.data else { return Ok(0) };
        let Some(mut lease) = data else {
            return Err(Cause::Unsupported("a data command without a payload"));
        };
        if shape.block_len > self.caps.max_block() {
            return Err(Cause::Unsupported("a block longer than the controller's buffer"));
        }
        if shape.blocks > 65_535 {
            return Err(Cause::Unsupported("more than 65,535 blocks in one data phase"));
        }
        let bytes = lease.bytes();
        let payload = lease.get();
        let mapped = self.uses_dma() && self.adma.load(payload, bytes, shape.dir, &mut self.dma).is_ok();
        if !mapped {
            if (payload.bytes() as u64) < bytes {
                return Err(Cause::Unsupported("a payload shorter than the data phase"));
            }
            self.pio = Some(Pio::new(shape.dir, shape.block_len, shape.blocks));
        }
        Ok(bytes)
    }

    /// Sends the command once its lines are free.
    fn gate(&mut self, op: Op, earliest: Instant, now: Instant) -> Option<Result<Reply, Failure>> {
        let present = Present::from_bits_truncate(self.regs.read32(PRESENT));
        let idle = !present.contains(Present::DAT_INHIBIT) && present.contains(Present::DAT0);
        let free = !present.contains(Present::CMD_INHIBIT) && (op.cmd.gate == Gate::Now || idle);
        if free && now >= earliest {
            self.send(op, now);
            return None;
        }
        self.state = State::Gate(op, earliest);
        if self.tells() && !present.contains(Present::INSERTED) {
            return Some(Err(self.fail(&op, Cause::NoCard, Phase::Submit)));
        }
        // A busy card may be busy for as long as the caller allows; a command circuit may not.
        let stuck = present.contains(Present::CMD_INHIBIT) && now.since(op.since) >= COMMAND_LIMIT;
        stuck.then(|| Err(self.fail(&op, Cause::Controller, Phase::Submit)))
    }

    fn send(&mut self, op: Op, now: Instant) {
        let cmd = &op.cmd;
        let mut events = Events::COMMAND | Events::TRANSFER | Events::SLOT | Events::ERRORS;
        // A busy may last longer than any data timeout (an erase: minutes), and written blocks are stored meanwhile: the
        // caller's limit counts.
        events.set(Events::DATA_TIMEOUT, cmd.data.is_some_and(|d| d.dir == Dir::Read));
        events.set(Events::READ_READY | Events::WRITE_READY, self.pio.is_some());
        // A bit of version 3, and of a controller that was tuned. That it wants to be tuned again is seen before the next
        // command ([`Present::RETUNE`]): its event would wake somebody who has nothing to send.
        events.set(Events::TUNING, self.tuned.is_some());
        self.enable(events);
        self.forget();
        self.tuned_is_used();
        if let Some(shape) = cmd.data {
            let block = shape.blocks << 16 | 7 << 12 | u32::from(shape.block_len & 0xfff);
            // The count counts down, so it is written each time.
            self.regs.write32(BLOCK, block);
            if let Stop::Count(argument) = shape.stop {
                self.regs.write32(ARGUMENT_2, argument);
            }
            if self.pio.is_some() {
                self.transfers.pio = self.transfers.pio.saturating_add(1);
            } else {
                self.transfers.dma = self.transfers.dma.saturating_add(1);
                self.dma.publish();
                let base = self.adma.base();
                self.regs.write32(ADMA, base as u32);
                if self.adma.is_wide() {
                    self.regs.write32(ADMA_HIGH, (base >> 32) as u32);
                }
            }
        }
        self.regs.write32(ARGUMENT, cmd.arg);
        self.regs.write32(COMMAND, word(cmd, cmd.data.is_some() && self.pio.is_none()));
        self.moved = now;
        self.state = State::Command(Op { since: now, ..op });
    }

    /// The end of an operation by `cause`, or by the card's absence, which explains every other cause.
    fn fail(&mut self, op: &Op, cause: Cause, phase: Phase) -> Failure {
        self.state = State::Failed;
        // A card that refuses a data command answers, and no data come: the answer says why.
        let answered = op.cmd.response == Response::Short
            && self.seen.contains(Events::COMMAND)
            && !self.seen.intersects(Events::RESPONSE_ERRORS);
        let r1 = answered.then(|| self.regs.read32(RESPONSE0));
        Failure { cause: if self.card_present() { cause } else { Cause::NoCard }, phase, r1 }
    }

    fn succeed(&mut self, op: &Op) -> Option<Result<Reply, Failure>> {
        self.state = State::Idle;
        Some(Ok(Reply { words: response(&self.regs, &op.cmd), bytes: op.bytes }))
    }

    /// What every look at a running operation begins with.
    fn trouble(&mut self, op: &Op, phase: Phase) -> Option<Failure> {
        self.collect();
        if let Some((cause, phase)) = first_error(self.seen, &op.cmd, || self.regs.read32(HOST2)) {
            return Some(self.fail(op, cause, phase));
        }
        if self.seen.intersects(Events::SLOT) {
            self.seen.remove(Events::SLOT);
            if !self.card_present() {
                return Some(self.fail(op, Cause::NoCard, phase));
            }
        }
        None
    }

    fn command(
        &mut self,
        op: Op,
        data: Option<Lease<'_, P>>,
        now: Instant,
    ) -> Option<Result<Reply, Failure>> {
        if let Some(failure) = self.trouble(&op, Phase::Command) {
            return Some(Err(failure));
        }
        if self.seen.contains(Events::COMMAND) {
            let op = Op { since: now, ..op };
            return match op.cmd.data {
                Some(_) => self.data(op, data, now),
                None if op.cmd.busy => self.busy(op),
                None => self.succeed(&op),
            };
        }
        (now.since(op.since) >= COMMAND_LIMIT).then(|| Err(self.fail(&op, Cause::Timeout, Phase::Command)))
    }

    fn pump(&mut self, data: Option<Lease<'_, P>>, now: Instant) {
        if let (Some(pio), Some(mut lease)) = (&mut self.pio, data) {
            let before = pio.blocks;
            self.more = pio.pump(&self.regs, lease.get());
            if pio.blocks != before {
                self.moved = now;
            }
        }
    }

    fn data(&mut self, op: Op, data: Option<Lease<'_, P>>, now: Instant) -> Option<Result<Reply, Failure>> {
        self.state = State::Data(op);
        if let Some(failure) = self.trouble(&op, Phase::Data) {
            return Some(Err(failure));
        }
        // Looked at after the events: a block that comes in between raises the next one.
        self.pump(data, now);
        if !self.seen.contains(Events::TRANSFER) {
            return None;
        }
        self.drained(Op { since: now, ..op }, now)
    }

    /// The transfer is over; is the buffer empty?
    fn drained(&mut self, op: Op, now: Instant) -> Option<Result<Reply, Failure>> {
        if self.pio.is_none_or(|pio| pio.done()) {
            return self.succeed(&op);
        }
        self.state = State::Drain(op);
        (now.since(op.since) >= DRAIN_LIMIT).then(|| Err(self.fail(&op, Cause::Controller, Phase::Data)))
    }

    fn busy(&mut self, op: Op) -> Option<Result<Reply, Failure>> {
        self.state = State::Busy(op);
        if let Some(failure) = self.trouble(&op, Phase::Busy) {
            return Some(Err(failure));
        }
        let present = Present::from_bits_truncate(self.regs.read32(PRESENT));
        let over = !present.contains(Present::DAT_INHIBIT) && present.contains(Present::DAT0);
        if over || self.seen.contains(Events::TRANSFER) {
            return self.succeed(&op);
        }
        None
    }
}

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload> Engine for SdhciEngine<M, R, D, P> {
    type Payload = P;

    fn capabilities(&self) -> Capabilities {
        self.can()
    }

    fn start(&mut self, cmd: &Command, data: Option<Lease<'_, P>>, now: Instant) -> Result<(), Cause> {
        self.ready(now)?;
        let Some(clock) = self.clock else {
            return Err(Cause::Unsupported("the card clock is stopped: set the bus first"));
        };
        if cmd.voltage_switch && !self.can().v1_8 {
            return Err(Cause::Unsupported("1.8 V signalling"));
        }
        if cmd.tuning && self.tunes() {
            self.begin_tuning(cmd, now);
            return Ok(());
        }
        if matches!(cmd.data.map(|d| d.stop), Some(Stop::Count(_))) && !self.can().auto_count {
            return Err(Cause::Unsupported("sending CMD23 by itself"));
        }
        let bytes = self.load(cmd, data)?;
        // The clock runs; 74 of them and a few more before the first command (§3.3).
        let init =
            if cmd.init_clocks { 80_000_000_000_u64.checked_div(clock.hz.into()).unwrap_or(0) } else { 0 };
        let op = Op { cmd: *cmd, bytes, since: now };
        self.state = State::Gate(op, now + Duration::from_nanos(init));
        Ok(())
    }

    fn set_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        self.change_bus(bus, now)
    }

    fn set_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        self.change_power(power, now)
    }

    fn advance(&mut self, data: Option<Lease<'_, P>>, now: Instant) -> Option<Result<Reply, Failure>> {
        match self.state {
            State::Gate(op, earliest) => self.gate(op, earliest, now),
            State::Command(op) => self.command(op, data, now),
            State::Data(op) => self.data(op, data, now),
            State::Drain(op) => {
                self.pump(data, now);
                self.drained(op, now)
            }
            State::Busy(op) => self.busy(op),
            State::Tune(tuning) => self.tune(tuning, now),
            State::Bus(change) => self.changing(change, now),
            State::PowerUp(reset) => self.powering_up(reset, now),
            State::Ramp(until) => self.ramp(until, now),
            // Nothing runs: whoever asks is out of turn.
            State::Off | State::Idle | State::Failed | State::Recover(_) | State::Broken(_) => {
                Some(Err((Cause::Controller, Phase::Submit).into()))
            }
        }
    }

    fn waits(&self, now: Instant) -> (Why, Instant) {
        let look = |since| (Why::Timer, look_again(since, now));
        let polled = matches!(self.post, Post::Own(_));
        match &self.state {
            State::Gate(op, earliest) => (Why::Timer, look_again(op.since, now).max(*earliest)),
            State::Data(_) if self.more => (Why::Timer, now),
            State::Data(_) if polled => look(self.moved),
            State::Command(op) if !polled => (Why::Interrupt, op.since + COMMAND_LIMIT),
            State::Data(_) | State::Busy(_) if !polled => (Why::Interrupt, now + LONGEST_SLEEP),
            State::Command(op) | State::Data(op) | State::Drain(op) | State::Busy(op) => look(op.since),
            State::Tune(tuning) => tuning.waits(polled, now),
            State::Bus(change) => change.waits(now),
            State::PowerUp(reset) | State::Recover(reset) => look(reset.since),
            State::Ramp(until) => (Why::Timer, *until),
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
        self.adma.unmap_all(data.get(), &mut self.dma);
    }

    fn slot(&mut self, now: Instant) -> Slot {
        if !matches!(self.state, State::Off) {
            self.collect();
        }
        self.look_at_pin(false);
        let wired = self.platform.write_protect && !self.caps.embedded();
        Slot {
            present: self.present.filter(|_| self.tells()),
            write_protected: wired.then(|| self.regs.read32(PRESENT) & Present::WRITABLE.bits() == 0),
            changes: self.changes,
            retune: self.wants_tuning(now),
            ..Slot::default()
        }
    }
}

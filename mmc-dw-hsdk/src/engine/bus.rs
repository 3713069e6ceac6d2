//! Changes of the bus and of the supply, as states.
//!
//! ```text
//!  set_bus ─ same lines ──────────────────────────────► Clock ─► Idle
//!     └──── other lines ─► Stop ─► (registers, board) ─┬──────► Run ─► Idle
//!                                    level changes: ► Settle ─► Run ─► Lines (DAT3:0 high?) ─► Idle
//! ```
//! Where the clock has changed, a platform with a `clock_settle` passes through Rest before Idle.

use super::{DwEngine, State, WITH_DATA};
use crate::clock::{ClockChange, Divider, taken, update};
use crate::pio::Window;
use crate::platform::{Board, Platform, SamplePlace, SignalSwitch};
use crate::reg::{
    CLKENA, CTYPE, DATA, DATA_OLD, EMMC_DDR_REG, Events, HCON, HCON_ADDRESS_64, HCON_AREA_OPTIMIZED,
    HCON_DMA, PWREN, STATUS, Status, UHS_REG, UHS_REG_EXT, VERID,
};
use crate::reset::Reset;
use crate::wait::look_again;
use mmc_hal::{Dma, Mmio, Payload};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::host::{Capabilities, Cause, Failure, Phase, Reply, Why};
use mmc_time::{Duration, Instant};

/// How long the supply-off sequence may wait for the clock to stop.
const POWER_DOWN_LIMIT: Duration = Duration::from_millis(100);

/// From the clock to the release of the lines by a card that has followed the switch (`spec/card.md` §13.2).
const RELEASE_LIMIT: Duration = Duration::from_millis(1);

/// What the lines are like, beside clock and width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    signal: Signal,
    pub(super) timing: Timing,
    sample: u16,
}

impl Lines {
    fn uhs_reg(self) -> u32 {
        u32::from(self.signal == Signal::V1_8) | u32::from(self.timing.ddr()) << 16
    }
    fn emmc_ddr_reg(self) -> u32 {
        let hs400 = matches!(self.timing, Timing::Hs400 | Timing::Hs400Es);
        u32::from(hs400 || self.timing == Timing::Ddr52) | u32::from(hs400) << 31
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Nothing but the clock changes; `None`: nothing at all.
    Clock(Option<ClockChange>),
    Stop(ClockChange),
    Settle(Instant),
    Run(ClockChange),
    Lines(Instant),
    Rest(Instant),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BusChange {
    step: Step,
    to: Option<Divider>,
    lines: Lines,
    /// The signal level changes.
    switches: bool,
}

impl BusChange {
    pub(super) fn waits(&self, now: Instant) -> (Why, Instant) {
        let at = match self.step {
            Step::Clock(None) => now,
            Step::Clock(Some(c)) | Step::Stop(c) | Step::Run(c) => c.look_again(now),
            Step::Settle(until) | Step::Rest(until) => until,
            Step::Lines(since) => look_again(since, now),
        };
        (Why::Timer, at)
    }
}

/// Whether a read at this timing needs the card read threshold: the round trip may be longer than half a clock
/// (`spec/dw-mshc.md` §3.12).
pub(super) const fn is_fast(timing: Timing) -> bool {
    matches!(timing, Timing::Sdr104 | Timing::Hs200 | Timing::Hs400 | Timing::Hs400Es)
}

type Outcome = Option<Result<Reply, Failure>>;

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload, B: Board> DwEngine<M, R, D, P, B> {
    pub(super) fn can(&self) -> Capabilities {
        let platform = &self.platform;
        let (blocks, segments) = self.idmac.limits();
        let mut caps = Capabilities::new();
        caps.max_blocks = blocks;
        caps.max_segments = segments;
        caps.min_hz = platform.ciu_hz.div_ceil(510);
        caps.max_hz = platform.max_hz.min(platform.ciu_hz);
        caps.width = platform.width;
        caps.align = 4;
        caps.ocr = platform.ocr;
        caps.auto_stop = true;
        caps.timings = platform.timings;
        caps.v1_8 = match platform.signal {
            SignalSwitch::Fixed => false,
            SignalSwitch::Register => true,
            SignalSwitch::Board => B::WIRED,
        };
        caps.sample_points = match platform.sample {
            Some(s) if B::WIRED || matches!(s.place, SamplePlace::Controller { .. }) => s.points,
            _ => 0,
        };
        let tuned = [Timing::Sdr50, Timing::Sdr104, Timing::Hs200, Timing::Hs400];
        let low = [Timing::Sdr12, Timing::Sdr25, Timing::Ddr50, Timing::Hs400Es];
        for timing in tuned.into_iter().chain(low.into_iter().filter(|_| !caps.v1_8)) {
            if !caps.v1_8 || caps.sample_points == 0 {
                caps.timings = caps.timings.without(timing);
            }
        }
        caps
    }

    /// UHS_REG_EXT, where the platform has it written.
    pub(super) fn uhs_reg_ext(&self) -> Option<u32> {
        let sample = match self.platform.sample.map(|s| s.place) {
            Some(SamplePlace::Controller { offset: UHS_REG_EXT, shift }) => {
                u32::from(self.lines.map_or(0, |l| l.sample)).wrapping_shl(shift.into())
            }
            _ => 0,
        };
        self.platform.uhs_reg_ext.map(|value| value | sample)
    }

    pub(super) fn change_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        self.ready(now)?;
        let (caps, platform) = (self.can(), self.platform);
        if bus.signal != Signal::V3_3 && !caps.v1_8 {
            return Err(Cause::Unsupported("1.8 V signalling"));
        }
        if !caps.timings.has(bus.timing) {
            return Err(Cause::Unsupported("a timing the board's wires are not made for"));
        }
        if bus.width > platform.width {
            return Err(Cause::Unsupported("more data lines than the board has"));
        }
        if bus.sample >= caps.sample_points.max(1) {
            return Err(Cause::Unsupported("a sample point beyond sample_points"));
        }
        let least = u8::from(bus.timing == Timing::Ddr52 && bus.width == Width::Eight);
        let to = if bus.hz == 0 {
            None
        } else {
            let divider = Divider::at_least(least, platform.ciu_hz, bus.hz.min(platform.max_hz));
            Some(divider.ok_or(Cause::Unsupported("a card clock below ciu / 510"))?)
        };
        let ctype = match bus.width {
            Width::One => 0,
            Width::Four => 1,
            Width::Eight => 1 << 16,
        };
        // The card side takes it with the next command.
        Self::set(&self.regs, &mut self.shadow.ctype, CTYPE, ctype);
        self.mask(WITH_DATA);
        let lines = Lines { signal: bus.signal, timing: bus.timing, sample: bus.sample };
        let same = platform.is_plain() || self.lines == Some(lines);
        let switches = self.signal != lines.signal;
        let change = BusChange { step: Step::Clock(None), to, lines, switches };
        let (was, running) = (self.clock, self.running);
        if same && was.is_some() && was == to {
            self.state = State::Bus(change);
            return Ok(());
        }
        // Should the change fail halfway, nobody knows what the clock is.
        self.clock = None;
        if same {
            self.running = true;
            let clock = ClockChange::begin(&self.regs, to.map(|d| d.value), running, self.switching, now);
            self.state = State::Bus(BusChange { step: Step::Clock(Some(clock)), ..change });
        } else if running {
            let clock = ClockChange::begin(&self.regs, None, true, self.switching, now);
            self.state = State::Bus(BusChange { step: Step::Stop(clock), ..change });
        } else if let Some(Err(failure)) = self.stopped(change, now) {
            return Err(failure.cause);
        }
        Ok(())
    }

    /// The clock stands still: the lines change.
    fn stopped(&mut self, change: BusChange, now: Instant) -> Outcome {
        self.running = false;
        if let Err(cause) = self.set_lines(change.lines) {
            return self.bus_over(Err(cause));
        }
        if change.switches {
            let until = now + self.platform.signal_settle;
            self.state = State::Bus(BusChange { step: Step::Settle(until), ..change });
            return None;
        }
        self.run_clock(change, now)
    }

    /// Writes what differs between the lines as they are and `to`.
    fn set_lines(&mut self, to: Lines) -> Result<(), Cause> {
        let (was, platform) = (self.lines.take(), self.platform);
        if platform.signal == SignalSwitch::Board && self.signal != to.signal {
            self.board.signal(to.signal)?;
        }
        self.signal = to.signal;
        if was.is_none_or(|l| l.uhs_reg() != to.uhs_reg()) {
            self.regs.write32(UHS_REG, to.uhs_reg());
        }
        if platform.has_emmc_ddr() && was.is_none_or(|l| l.emmc_ddr_reg() != to.emmc_ddr_reg()) {
            self.regs.write32(EMMC_DDR_REG, to.emmc_ddr_reg());
        }
        match platform.sample {
            Some(s) if was.is_none_or(|l| l.sample != to.sample) => match s.place {
                SamplePlace::Outside(_) if B::WIRED => self.board.sample(to.sample, s.points)?,
                SamplePlace::Outside(_) => {}
                SamplePlace::Controller { offset, shift } => {
                    let field = s.mask().wrapping_shl(shift.into());
                    let value = u32::from(to.sample).wrapping_shl(shift.into());
                    self.regs.write32(offset, self.regs.read32(offset) & !field | value & field);
                }
            },
            _ => {}
        }
        self.lines = Some(to);
        Ok(())
    }

    fn run_clock(&mut self, change: BusChange, now: Instant) -> Outcome {
        let Some(divider) = change.to else {
            self.clock = None;
            self.switching = false;
            return self.bus_over(Ok(()));
        };
        self.running = true;
        let clock = ClockChange::begin(&self.regs, Some(divider.value), false, self.switching, now);
        self.state = State::Bus(BusChange { step: Step::Run(clock), ..change });
        None
    }

    /// The clock runs as it shall: the card is left alone for as long as the board asks for.
    fn rest(&mut self, change: BusChange, now: Instant) -> Outcome {
        let settle = self.platform.clock_settle;
        if change.to.is_none() || settle == Duration::ZERO {
            return self.bus_over(Ok(()));
        }
        self.state = State::Bus(BusChange { step: Step::Rest(now + settle), ..change });
        None
    }

    fn bus_over(&mut self, result: Result<(), Cause>) -> Outcome {
        self.state = if result.is_ok() { State::Idle } else { State::Failed };
        Some(result.map(|()| Reply::default()).map_err(|cause| (cause, Phase::Bus).into()))
    }

    pub(super) fn changing(&mut self, mut change: BusChange, now: Instant) -> Outcome {
        match &mut change.step {
            Step::Clock(clock) => {
                let changed = clock.is_some();
                let end = clock.as_mut().map_or(Some(Ok(())), |c| c.advance(&self.regs, now));
                self.state = State::Bus(change);
                let end = end?;
                if end.is_ok() {
                    self.clock = change.to;
                    self.running = change.to.is_some();
                    self.lines = Some(change.lines);
                    self.signal = change.lines.signal;
                    if changed {
                        return self.rest(change, now);
                    }
                }
                self.bus_over(end)
            }
            Step::Stop(clock) => {
                let end = clock.advance(&self.regs, now);
                self.state = State::Bus(change);
                match end? {
                    Ok(()) => self.stopped(change, now),
                    Err(cause) => self.bus_over(Err(cause)),
                }
            }
            Step::Settle(until) => {
                if now < *until {
                    return None;
                }
                // Bit 10 of the first half of the switch is not to be taken for that of the second.
                self.forget();
                self.run_clock(change, now)
            }
            Step::Run(clock) => {
                let end = clock.advance(&self.regs, now);
                self.state = State::Bus(change);
                if let Err(cause) = end? {
                    return self.bus_over(Err(cause));
                }
                self.clock = change.to;
                if !change.switches {
                    return self.rest(change, now);
                }
                self.state = State::Bus(BusChange { step: Step::Lines(now), ..change });
                None
            }
            Step::Lines(since) => {
                self.collect();
                let late = now.since(*since) >= RELEASE_LIMIT;
                let high =
                    self.regs.read32(STATUS) & (Status::BUSY | Status::DAT3).bits() == Status::DAT3.bits();
                // Some builds say nothing, and after a switch without CMD11 none does.
                let said = !self.switching || self.seen.contains(Events::HTO) || late;
                if high && said {
                    self.switching = false;
                    return self.rest(change, now);
                }
                if late {
                    return self.bus_over(Err(Cause::VoltageSwitch));
                }
                None
            }
            Step::Rest(until) if now < *until => None,
            Step::Rest(_) => self.bus_over(Ok(())),
        }
    }

    fn power_pin(&self, on: bool) {
        self.regs.write32(PWREN, u32::from(on != self.platform.power_inverted));
    }

    pub(super) fn change_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        self.platform.check().map_err(Cause::Unsupported)?;
        let (was_on, switching) = (self.powered, self.switching);
        self.shadow = super::Shadow::default();
        self.open = false;
        self.clock = None;
        self.by_hand = false;
        match power {
            Power::On => {
                self.mask(Events::empty());
                if was_on {
                    // The controller is brought up anew under a card that keeps its supply (it may have lost its
                    // registers): the level stays, and the next change of the bus writes all of the lines.
                    self.lines = None;
                } else {
                    self.switching = false;
                    self.low_lines()?;
                    self.power_pin(true);
                }
                self.powered = true;
                let stable = if was_on { now } else { now + self.platform.power_up };
                let ctrl = self.ctrl();
                let reset =
                    Reset::begin(&self.regs, self.uhs_reg_ext(), ctrl, true, was_on && switching, now);
                self.state = State::PowerUp(reset, stable);
            }
            Power::Off => {
                self.mask_all_but_the_slot();
                self.regs.write32(CLKENA, 0);
                update(&self.regs, false, switching);
                self.power_pin(false);
                self.powered = false;
                self.switching = false;
                self.state = State::PowerDown(now);
            }
        }
        Ok(())
    }

    /// Before the supply comes: 3.3 V, single data rate, the default sample point.
    fn low_lines(&mut self) -> Result<(), Cause> {
        self.lines = None;
        if self.platform.is_plain() {
            self.lines = Some(Lines::default());
            return Ok(());
        }
        let level_unknown = self.platform.signal == SignalSwitch::Board && B::WIRED;
        if level_unknown {
            self.board.signal(Signal::V3_3)?;
        }
        self.signal = Signal::V3_3;
        self.set_lines(Lines::default())
    }

    pub(super) fn powering_up(&mut self, mut reset: Reset, stable: Instant, now: Instant) -> Outcome {
        let ctrl = self.ctrl();
        let end = reset.advance(&self.regs, &mut self.idmac, &self.platform, ctrl, now);
        self.state = State::PowerUp(reset, stable);
        if let Err(cause) = end? {
            self.state = State::Broken(reset.memory_quiet());
            return Some(Err((cause, Phase::Bus).into()));
        }
        self.forget();
        self.shadow.dbaddr = Some(self.idmac.base());
        self.running = false;
        let hcon = self.regs.read32(HCON);
        self.counts = hcon & HCON_AREA_OPTIMIZED == 0;
        self.has_idmac = hcon & HCON_DMA == 0;
        if self.has_idmac && (hcon & HCON_ADDRESS_64 != 0) != self.idmac.is_wide() {
            let cause = Cause::Unsupported(if self.idmac.is_wide() {
                "this controller has 32-bit addresses: make its ring with Ring::new"
            } else {
                "this controller has 64-bit addresses: make its ring with Ring::wide"
            });
            self.state = State::Broken(true);
            return Some(Err((cause, Phase::Bus).into()));
        }
        self.fifo = Window {
            at: if self.regs.read32(VERID) & 0xffff < 0x240a { DATA_OLD } else { DATA },
            width: match hcon >> 7 & 7 {
                0 => 2,
                2 => 8,
                _ => 4,
            },
            depth: self.platform.fifo_depth.into(),
        };
        self.ramp(stable, now)
    }

    pub(super) fn ramp(&mut self, stable: Instant, now: Instant) -> Outcome {
        if now < stable {
            self.state = State::Ramp(stable);
            return None;
        }
        self.state = State::Idle;
        Some(Ok(Reply::default()))
    }

    pub(super) fn powering_down(&mut self, since: Instant, now: Instant) -> Outcome {
        let stopped = taken(&self.regs);
        if !stopped && now.since(since) < POWER_DOWN_LIMIT {
            return None;
        }
        self.state = State::Off;
        // The supply is off either way; a controller that will not stop the clock is brought up anew next time.
        Some(if stopped { Ok(Reply::default()) } else { Err((Cause::Controller, Phase::Bus).into()) })
    }
}

impl Platform {
    /// Whether EMMC_DDR_REG is ever to be written.
    const fn has_emmc_ddr(&self) -> bool {
        let t = self.timings;
        t.has(Timing::Ddr52) || t.has(Timing::Hs400) || t.has(Timing::Hs400Es)
    }
}

//! Changes of the bus and of the supply, as states.
//!
//! ```text
//!  set_bus ─► card clock off, lines set ─┬──────────────────► Stable (internal clock) ─► card clock on ─► Idle
//!                        level changes: └► Settle (5 ms) ─► Stable ─► on ─► Released (DAT3:0 high?) ─► Idle
//! ```

use super::{SdhciEngine, State};
use crate::clock::{Divider, STABLE_LIMIT, data_timeout};
use crate::reg::{CLOCK, ClockControl, Events, HOST, HOST2, HostControl, PRESENT, Present, SIGNAL_1_8};
use crate::reset::{End, Reset, look_again};
use mmc_hal::{Dma, Mmio, Payload};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Timings, Width};
use mmc_proto::host::{Capabilities, Cause, Failure, Phase, Reply, Why};
use mmc_time::{Duration, Instant};

/// Between the change of the level and the card's clock (§3.6.1).
const SETTLE: Duration = Duration::from_millis(5);
/// From the clock to the release of the lines by a card that has followed the switch (§3.6.1).
const RELEASE_LIMIT: Duration = Duration::from_millis(1);

/// Longest data phase where the sample point may have to be found again behind it: 4 MiB (§3.7).
const MAX_BLOCKS_TUNED: u32 = 8192;

/// What the lines are like, beside the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    width: Width,
    pub(super) timing: Timing,
    signal: Signal,
}

impl Lines {
    /// After a reset of everything.
    const RESET: Self = Self { width: Width::One, timing: Timing::Default, signal: Signal::V3_3 };

    fn host_control(self) -> HostControl {
        let mut bits = match self.width {
            Width::One => HostControl::empty(),
            Width::Four => HostControl::WIDTH_4,
            Width::Eight => HostControl::WIDTH_8,
        };
        bits.set(HostControl::HIGH_SPEED, !matches!(self.timing, Timing::Default | Timing::Sdr12));
        bits
    }

    pub(super) fn host_control_2(self) -> u32 {
        let mode = match self.timing {
            Timing::Sdr25 => 1,
            Timing::Sdr50 => 2,
            Timing::Sdr104 | Timing::Hs200 => 3,
            Timing::Ddr50 => 4,
            _ => 0,
        };
        mode << 16 | if self.signal == Signal::V1_8 { SIGNAL_1_8 } else { 0 }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Nothing is left to do.
    Done,
    Settle(Instant),
    Stable(Instant),
    Released(Instant),
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
            Step::Done => now,
            Step::Settle(until) => until,
            Step::Stable(since) | Step::Released(since) => look_again(since, now),
        };
        (Why::Timer, at)
    }
}

type Outcome = Option<Result<Reply, Failure>>;

impl<M: Mmio, R: Mmio, D: Dma<P>, P: Payload> SdhciEngine<M, R, D, P> {
    fn base_hz(&self) -> u32 {
        if self.platform.base_hz == 0 { self.caps.base_hz() } else { self.platform.base_hz }
    }

    /// The supply it switches on, and the window of it as OCR bits.
    fn supply(&self) -> Option<(HostControl, u32)> {
        if self.caps.supply_3_3() {
            Some((HostControl::SUPPLY_3_3, 0x0030_0000))
        } else if self.caps.supply_3_0() {
            Some((HostControl::SUPPLY_3_0, 0x0006_0000))
        } else if self.caps.supply_1_8() && self.caps.embedded() {
            Some((HostControl::SUPPLY_1_8, 0x0000_0080))
        } else {
            None
        }
    }

    pub(super) fn can(&self) -> Capabilities {
        let (blocks, segments) = self.adma.limits();
        let base = self.base_hz();
        let mut caps = Capabilities::new();
        caps.max_blocks = blocks;
        caps.max_segments = segments;
        caps.min_hz = Divider::slowest(&self.caps, base);
        caps.max_hz = Divider::for_hz(&self.caps, base, self.platform.max_hz).map_or(0, |d| d.hz);
        caps.width = self.platform.width;
        if caps.width == Width::Eight && !self.caps.eight_lines() {
            caps.width = Width::Four;
        }
        caps.align = if self.uses_dma() { self.adma.align() as u16 } else { 1 };
        caps.ocr = self.supply().map_or(0, |s| s.1);
        caps.auto_stop = true;
        caps.auto_count = self.platform.auto_cmd23 && self.caps.v3();
        caps.v1_8 = self.platform.v1_8 && self.caps.v3() && self.caps.supply_1_8();
        caps.timings = if self.caps.high_speed() { Timings::new() } else { Timings::default_only() };
        if caps.v1_8 {
            caps.timings = caps.timings.with(Timing::Sdr12).with(Timing::Sdr25);
            for (has, timing) in [
                (self.caps.sdr50(), Timing::Sdr50),
                (self.caps.sdr104(), Timing::Sdr104),
                (self.caps.sdr104(), Timing::Hs200),
                (self.caps.ddr50(), Timing::Ddr50),
            ] {
                if has {
                    caps.timings = caps.timings.with(timing);
                }
            }
            caps.self_tuning = self.caps.sdr104() || self.caps.sdr50() && self.caps.tuned_sdr50();
        }
        if caps.self_tuning {
            caps.sample_points = 1;
            if !self.caps.follows() {
                caps.max_blocks = caps.max_blocks.min(MAX_BLOCKS_TUNED);
            }
        }
        caps
    }

    /// The host word without the lines: supply and kind of DMA.
    fn fixed(&self) -> HostControl {
        let dma = match (self.uses_dma(), self.adma.is_wide()) {
            (false, _) => HostControl::empty(),
            (true, false) => HostControl::ADMA_32,
            (true, true) => HostControl::ADMA_64,
        };
        self.supply().map_or(HostControl::empty(), |s| s.0) | HostControl::POWER | dma
    }

    fn card_clock_off(&mut self) {
        let word = self.regs.read32(CLOCK) & !(ClockControl::RESETS | ClockControl::CARD).bits();
        self.regs.write32(CLOCK, word);
        self.clock = None;
    }

    pub(super) fn change_bus(&mut self, bus: &BusConfig, now: Instant) -> Result<(), Cause> {
        self.ready(now)?;
        let caps = self.can();
        if bus.signal != Signal::V3_3 && !caps.v1_8 {
            return Err(Cause::Unsupported("1.8 V signalling"));
        }
        if !caps.timings.has(bus.timing) {
            return Err(Cause::Unsupported("a timing this controller or its board cannot do"));
        }
        if bus.width > caps.width {
            return Err(Cause::Unsupported("more data lines than the slot has"));
        }
        if bus.sample != 0 {
            return Err(Cause::Unsupported("a sample point beyond sample_points"));
        }
        let to = if bus.hz == 0 {
            None
        } else {
            let divider = Divider::for_hz(&self.caps, self.base_hz(), bus.hz.min(self.platform.max_hz));
            Some(
                divider
                    .ok_or(Cause::Unsupported("a card clock the dividers cannot make, or no base clock"))?,
            )
        };
        let lines = Lines { width: bus.width, timing: bus.timing, signal: bus.signal };
        let was = self.lines;
        let switches = was.is_some_and(|l| l.signal != lines.signal);
        let change = BusChange { step: Step::Done, to, lines, switches };
        if was == Some(lines) && self.clock == to && to.is_some() {
            self.state = State::Bus(change);
            return Ok(());
        }
        // Should the change fail halfway, nobody knows what the clock is.
        self.card_clock_off();
        self.lines = None;
        self.regs.write32(HOST, (self.fixed() | lines.host_control()).bits());
        self.keep_tuned(lines, to);
        self.regs.write32(HOST2, self.host_control_2(lines));
        let step = if switches {
            Step::Settle(now + SETTLE)
        } else {
            self.internal_clock(to);
            Step::Stable(now)
        };
        self.state = State::Bus(BusChange { step, ..change });
        Ok(())
    }

    /// Sets the frequency and lets the internal clock run; nothing if the clock is to stay off.
    fn internal_clock(&mut self, to: Option<Divider>) {
        if let Some(divider) = to {
            let timeout = data_timeout(self.caps.timeout_hz());
            self.regs.write32(CLOCK, timeout << 16 | divider.bits | ClockControl::INTERNAL.bits());
        }
    }

    fn bus_over(&mut self, change: &BusChange) -> Outcome {
        self.lines = Some(change.lines);
        self.clock = change.to;
        self.state = State::Idle;
        Some(Ok(Reply::default()))
    }

    fn bus_failed(&mut self, cause: Cause) -> Outcome {
        self.state = State::Failed;
        Some(Err((cause, Phase::Bus).into()))
    }

    pub(super) fn changing(&mut self, change: BusChange, now: Instant) -> Outcome {
        match change.step {
            Step::Done => self.bus_over(&change),
            Step::Settle(until) if now < until => None,
            Step::Settle(_) => {
                // The controller takes the level back where the supply of the signals did not follow (§3.6.1).
                let low = self.regs.read32(HOST2) & SIGNAL_1_8 != 0;
                if low != (change.lines.signal == Signal::V1_8) {
                    return self.bus_failed(Cause::VoltageSwitch);
                }
                self.internal_clock(change.to);
                self.state = State::Bus(BusChange { step: Step::Stable(now), ..change });
                None
            }
            Step::Stable(since) => self.stable(change, since, now),
            Step::Released(since) => {
                if self.regs.read32(PRESENT) & Present::DAT.bits() == Present::DAT.bits() {
                    return self.bus_over(&change);
                }
                if now.since(since) >= RELEASE_LIMIT { self.bus_failed(Cause::VoltageSwitch) } else { None }
            }
        }
    }

    fn stable(&mut self, change: BusChange, since: Instant, now: Instant) -> Outcome {
        let Some(divider) = change.to else { return self.bus_over(&change) };
        let word = self.regs.read32(CLOCK);
        if word & ClockControl::STABLE.bits() == 0 {
            let late = now.since(since) >= STABLE_LIMIT;
            return if late { self.bus_failed(Cause::Controller) } else { None };
        }
        let timeout = data_timeout(self.caps.timeout_hz());
        let on = ClockControl::INTERNAL | ClockControl::CARD;
        self.regs.write32(CLOCK, timeout << 16 | divider.bits | on.bits());
        if !change.switches {
            return self.bus_over(&change);
        }
        self.state = State::Bus(BusChange { step: Step::Released(now), ..change });
        None
    }

    pub(super) fn change_power(&mut self, power: Power, now: Instant) -> Result<(), Cause> {
        if self.base_hz() == 0 {
            return Err(Cause::Unsupported("the capabilities tell no base clock: set Platform::base_hz"));
        }
        if self.supply().is_none() {
            return Err(Cause::Unsupported("the capabilities tell no supply a card could have"));
        }
        if self.platform.dma && self.caps.adma2() && !self.uses_dma() {
            return Err(Cause::Unsupported(
                "this controller has 32-bit addresses: make its table with Table::new",
            ));
        }
        self.pio = None;
        match power {
            Power::On => {
                // A controller brought up anew under a card that has its supply already: the supply stays.
                let on = self.regs.read32(HOST) & HostControl::POWER.bits() != 0 && self.lines.is_some();
                let reset = if on { Reset::lines(&self.regs, now) } else { Reset::all(&self.regs, now) };
                self.state = State::PowerUp(reset);
            }
            Power::Off => {
                self.card_clock_off();
                self.lines = None;
                self.tuned = None;
                self.enabled = None;
                self.enable(Events::SLOT);
                self.regs.write32(HOST2, 0);
                self.regs.write32(HOST, 0);
                self.state = State::Ramp(now);
            }
        }
        Ok(())
    }

    pub(super) fn powering_up(&mut self, mut reset: Reset, now: Instant) -> Outcome {
        let end = reset.advance(&self.regs, now);
        self.state = State::PowerUp(reset);
        match end? {
            End::Lines => {
                self.card_clock_off();
                self.forget();
                self.ramp(now, now)
            }
            End::All => {
                self.lose();
                self.lines = Some(Lines::RESET);
                self.enable(Events::SLOT);
                // The voltage first, then the switch (§3.3).
                self.regs.write32(HOST, self.fixed().difference(HostControl::POWER).bits());
                self.regs.write32(HOST, self.fixed().bits());
                self.ramp(now + self.platform.power_up, now)
            }
            End::Stuck => {
                self.lose();
                self.state = State::Broken(false);
                Some(Err((Cause::Controller, Phase::Bus).into()))
            }
        }
    }

    /// The supply rises, or has been taken away: a supply that is off has no lines.
    pub(super) fn ramp(&mut self, until: Instant, now: Instant) -> Outcome {
        if now < until {
            self.state = State::Ramp(until);
            return None;
        }
        self.state = if self.lines.is_some() { State::Idle } else { State::Off };
        Some(Ok(Reply::default()))
    }
}

//! UHS-I of an SD card: the switch to 1.8 V, the access modes and their clocks, the tuning block, and when its bits can
//! be sampled (`spec/card.md` §13.2).
//!
//! Only what the card sends has an eye: what the host sends is always taken right.

use super::registers::Functions;
use super::sd::{SdCard, State};
use mmc_proto::bus::Signal;
use mmc_time::{Duration, Instant};

/// The clock stands for at least so long while the level changes.
const LEVEL_TIME: Duration = Duration::from_millis(5);
/// From the clock's return until DAT3:0 are high again; 1 ms by the standard.
const RELEASE_TIME: Duration = Duration::from_micros(100);
/// Above this clock a host at 3.3 V does not see the highs of a card at 1.8 V in time.
const WEAK_HZ: u32 = 400_000;

/// What CMD19 sends on four lines.
pub(super) const TUNING: [u8; 64] = [
    0xff, 0x0f, 0xff, 0x00, 0xff, 0xcc, 0xc3, 0xcc, 0xc3, 0x3c, 0xcc, 0xff, 0xfe, 0xff, 0xfe, 0xef, 0xff,
    0xdf, 0xff, 0xdd, 0xff, 0xfb, 0xff, 0xfb, 0xbf, 0xff, 0x7f, 0xff, 0x77, 0xf7, 0xbd, 0xef, 0xff, 0xf0,
    0xff, 0xf0, 0x0f, 0xfc, 0xcc, 0x3c, 0xcc, 0x33, 0xcc, 0xcf, 0xff, 0xef, 0xff, 0xee, 0xff, 0xfd, 0xff,
    0xfd, 0xdf, 0xff, 0xbf, 0xff, 0xbb, 0xff, 0xf7, 0xff, 0xf7, 0x7f, 0x7b, 0xde,
];

/// The level of the card's lines. Only a loss of power brings 3.3 V back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// It signals with 1.8 V.
    pub(super) v1_8: bool,
    /// CMD11 was answered: the lines are low until the host has done its part.
    switching: bool,
    /// When the host stopped the clock for it.
    stopped: Option<Instant>,
    /// The lines are low until then.
    low_until: Instant,
}

impl Level {
    pub(super) const fn new(v1_8: bool) -> Self {
        Self { v1_8, switching: false, stopped: None, low_until: Instant::ZERO }
    }
    /// CMD11 was answered.
    pub(super) fn begin(&mut self) {
        (self.switching, self.stopped) = (true, None);
    }
    /// CMD and DAT3:0 are low.
    pub(super) fn low(&self, now: Instant) -> bool {
        self.switching || now < self.low_until
    }
    /// Until when they are, as things stand.
    pub(super) fn low_until(&self) -> Instant {
        if self.switching { Instant::NEVER } else { self.low_until }
    }
    /// The host drives its clock with `hz` and its lines at `signal`. Answers for how long the clock stood, if that
    /// was too short.
    fn follow(&mut self, hz: u32, signal: Signal, hangs: bool, now: Instant) -> Option<Duration> {
        if !self.switching {
            return None;
        }
        if hz == 0 {
            self.stopped.get_or_insert(now);
            return None;
        }
        let stopped = self.stopped.filter(|_| signal == Signal::V1_8)?;
        self.switching = false;
        self.v1_8 = true;
        let stood = now.since(stopped);
        let short = stood < LEVEL_TIME;
        self.low_until = if short || hangs { Instant::NEVER } else { now + RELEASE_TIME };
        short.then_some(stood)
    }
}

impl SdCard {
    /// The host changed its clock or its level.
    pub(super) fn follow_level(&mut self, now: Instant) {
        let hangs = self.config.quirks.switch_hangs;
        if let Some(stood) = self.level.follow(self.hz, self.host.0, hangs, now) {
            self.violation(|| {
                format!("the clock stood for {stood:?} while the level changed, 5 ms are needed: no answer any more")
            });
        }
    }
    /// The fastest clock the card takes as it is, and the name of its mode.
    pub(super) fn fastest(&self) -> (u32, &'static str) {
        match (self.v.state, self.v.functions.access, self.level.v1_8) {
            (State::Idle | State::Ready | State::Ident, ..) => (400_000, "identification"),
            (_, 0, false) => (25_000_000, "default speed"),
            (_, 0, true) => (25_000_000, "SDR12"),
            (_, 1, false) => (50_000_000, "high speed"),
            (_, 1, true) => (50_000_000, "SDR25"),
            (_, 2, _) => (100_000_000, "SDR50"),
            (_, 3, _) => (208_000_000, "SDR104"),
            _ => (50_000_000, "DDR50"),
        }
    }
    /// Data travel on both edges of the clock.
    pub(super) fn is_ddr(&self) -> bool {
        self.v.functions.access == 4
    }
    /// The functions that CMD6 has selected.
    #[must_use]
    pub fn functions(&self) -> Functions {
        self.v.functions
    }
    /// Whether it signals with 1.8 V.
    #[must_use]
    pub fn is_1_8_v(&self) -> bool {
        self.level.v1_8
    }
    /// Whether a host that samples at `phase` reads the card right.
    pub(super) fn sampled_right(&self, phase: u16, now: Instant) -> bool {
        if self.level.v1_8 && self.host.0 == Signal::V3_3 && self.hz > WEAK_HZ {
            return false;
        }
        match (&self.config.uhs, self.v.functions.access) {
            (Some(uhs), 2 | 3) => uhs.eye.holds(self.hz, phase, now),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CRC16 of the bits that each line carries, from `spec/card.md` §1.4.
    #[test]
    fn the_tuning_block_has_the_published_crc_on_each_line() {
        for (line, want) in [0xe946, 0x8d06, 0xa2e5, 0xc59f].into_iter().enumerate() {
            let bits = TUNING.iter().flat_map(|b| [b >> 4, b & 15]).map(|nibble| nibble >> line & 1);
            let crc = bits.fold(0_u16, |crc, bit| {
                let out = (crc >> 15) as u8 ^ bit;
                (crc << 1) ^ if out == 1 { 0x1021 } else { 0 }
            });
            assert_eq!(crc, want, "DAT{line}");
        }
    }

    #[test]
    fn the_lines_are_low_until_the_host_has_done_its_part() {
        let ms = Instant::from_millis;
        let mut level = Level::new(false);
        level.begin();
        assert!(level.low(ms(1)) && level.low_until().is_never());
        assert_eq!(
            level.follow(400_000, Signal::V1_8, false, ms(1)),
            None,
            "without a stop it does not see it"
        );
        assert!(level.low(ms(2)));
        level.follow(0, Signal::V3_3, false, ms(3));
        assert_eq!(level.follow(400_000, Signal::V3_3, false, ms(9)), None, "the wrong level");
        assert!(level.low(ms(10)) && !level.v1_8);
        assert_eq!(level.follow(400_000, Signal::V1_8, false, ms(10)), None);
        assert!(level.low(ms(10)) && !level.low(ms(11)) && level.v1_8);

        level.begin();
        level.follow(0, Signal::V1_8, false, ms(20));
        assert_eq!(level.follow(400_000, Signal::V1_8, false, ms(24)), Some(Duration::from_millis(4)));
        assert!(level.low(Instant::from_secs(100)));
    }
}

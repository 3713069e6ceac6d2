//! How long things take on the lines between host and card: one place for `MockHost` and for
//! the register models, so that the same commands end at the same instants on each.

use mmc_proto::command::Response;
use mmc_time::{Duration, Instant};

/// A card clock and a number of data lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Card clock in Hz; 0 is stopped.
    pub hz: u32,
    /// Data lines in use: 1, 4 or 8; twice as many where data go on both edges of the clock.
    pub lines: u8,
}

impl Wire {
    /// Clocks between command and response (N_CR; 2..=64 by `spec/card.md` §1.2; this model's cards take 8).
    pub const N_CR: u64 = 8;
    /// Clocks after which a host gives up on a response.
    pub const RESPONSE_TIMEOUT: u64 = 64;

    /// The same wire with data on both edges of the clock, if so: each line carries two bits a clock. Its two CRCs
    /// interleave, so that a block still has 18 clocks around its data (`spec/card.md` §1.4).
    #[must_use]
    pub const fn with_ddr(self, ddr: bool) -> Self {
        let lines = if ddr { self.lines.saturating_mul(2) } else { self.lines };
        Self { lines, ..self }
    }
    /// `n` card clocks, rounded up to nanoseconds; `Duration::MAX` when the clock is stopped.
    #[must_use]
    pub fn clocks(&self, n: u64) -> Duration {
        if self.hz == 0 {
            return Duration::MAX;
        }
        let ns = (u128::from(n) * 1_000_000_000).div_ceil(u128::from(self.hz));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
    /// Clocks of a command frame alone, with 80 initialisation clocks before it if asked.
    #[must_use]
    pub fn command_clocks(init_clocks: bool) -> u64 {
        48 + if init_clocks { 80 } else { 0 }
    }
    /// Clocks from the end of the command to the end of the response; `answered` false: the host waits out its
    /// 64 clocks.
    #[must_use]
    pub fn response_clocks(response: Response, answered: bool) -> u64 {
        match (response, answered) {
            (Response::None, _) => 0,
            (_, false) => Self::RESPONSE_TIMEOUT,
            (Response::Long, true) => Self::N_CR + 136,
            (_, true) => Self::N_CR + 48,
        }
    }
    /// Clocks of one block read: start bit, data, CRC16, end bit (512 bytes on four lines: 1042).
    #[must_use]
    pub fn read_block_clocks(&self, block_len: u32) -> u64 {
        u64::from(block_len) * 8 / u64::from(self.lines.max(1)) + 18
    }
    /// Clocks of one block written: as read, then N_CRC 2, the CRC status token of 5 bits and 3 clocks of
    /// turn-around (512 bytes on four lines: 1052).
    #[must_use]
    pub fn write_block_clocks(&self, block_len: u32) -> u64 {
        self.read_block_clocks(block_len) + 10
    }
    /// When the last of `n` blocks of a read phase is in the host: the wire has carried all of them since the
    /// response ended at `from`, and the last one left the card not before it was `ready`.
    #[must_use]
    pub fn read_end(&self, from: Instant, n: u32, block_len: u16, ready: Instant) -> Instant {
        self.end(from, n, self.read_block_clocks(block_len.into()), ready)
    }
    /// When the CRC status of the last of `n` written blocks is in the host, likewise.
    #[must_use]
    pub fn write_end(&self, from: Instant, n: u32, block_len: u16, ready: Instant) -> Instant {
        self.end(from, n, self.write_block_clocks(block_len.into()), ready)
    }
    fn end(&self, from: Instant, n: u32, block: u64, ready: Instant) -> Instant {
        (from + self.clocks(u64::from(n) * block)).max(ready + self.clocks(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_on_four_lines_is_1042_clocks_read_and_1052_written() {
        let w = Wire { hz: 50_000_000, lines: 4 };
        assert_eq!(w.read_block_clocks(512), 1042);
        assert_eq!(w.write_block_clocks(512), 1052);
        assert_eq!(w.clocks(1042), Duration::from_nanos(20_840));
        assert_eq!(Wire { hz: 0, lines: 4 }.clocks(1), Duration::MAX);
        assert_eq!(w.with_ddr(true).read_block_clocks(512), 512 + 18);
        assert_eq!(w.with_ddr(false), w);
    }
}

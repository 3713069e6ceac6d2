//! A host that says what a test tells it to.

use mmc_mock::card::{Bits, Card, MmcCard, MmcConfig, MmcState, Sent, Token};
use mmc_mock::timing::Profile;
use mmc_time::{Duration, Instant};

pub(crate) const RCA: u32 = 1 << 16;
pub(crate) const SECTORS: u32 = 16_777_216;
pub(crate) const SWITCH_ERROR: u32 = 1 << 7;

/// A host of few words: commands in a row, time that passes when the card is busy.
pub(crate) struct Bench {
    pub(crate) card: MmcCard,
    pub(crate) now: Instant,
}

impl Bench {
    pub(crate) fn dark(config: MmcConfig) -> Self {
        let mut b = Self { card: MmcCard::new(config).unwrap(), now: Instant::ZERO };
        b.card.power(true, b.now);
        b.card.bus(400_000, 1, b.now);
        b.card.idle_clocks(74);
        b
    }
    /// Identified and selected, as §13.3 says: one loop of CMD1.
    pub(crate) fn new(config: MmcConfig) -> Self {
        let mut b = Self::dark(config);
        b.identify();
        b
    }
    pub(crate) fn identify(&mut self) {
        self.cmd(0, 0);
        let start = self.now;
        while self.short(1, 0x40ff_8080) >> 31 == 0 {
            self.now += Duration::from_millis(4);
            assert!(self.now.since(start) < Duration::from_secs(1), "never ready");
        }
        assert!(matches!(self.cmd(2, 0), Some(Bits::Long(_))));
        for (index, arg) in [(3, RCA), (7, RCA)] {
            self.short(index, arg);
        }
        self.card.bus(26_000_000, 1, self.now);
    }
    pub(crate) fn cmd(&mut self, index: u8, arg: u32) -> Option<Bits> {
        self.card.command(index, arg, self.now).response
    }
    pub(crate) fn short(&mut self, index: u8, arg: u32) -> u32 {
        match self.cmd(index, arg) {
            Some(Bits::Short(b)) => u32::from_be_bytes([b[1], b[2], b[3], b[4]]),
            other => panic!("CMD{index}: {other:?}"),
        }
    }
    pub(crate) fn wait(&mut self) {
        self.now = self.now.max(self.card.busy_until(self.now));
        assert!(!self.now.is_never(), "busy for ever");
    }
    /// CMD6 write byte; whether it worked, by CMD13 after busy.
    pub(crate) fn switch(&mut self, offset: u32, value: u32) -> bool {
        self.short(6, 3 << 24 | offset << 16 | value << 8 | 1);
        self.wait();
        self.short(13, RCA) & SWITCH_ERROR == 0
    }
    pub(crate) fn bus(&mut self, hz: u32, lines: u8) {
        self.card.bus(hz, lines, self.now);
    }
    pub(crate) fn ext_csd(&mut self) -> Vec<u8> {
        self.short(8, 0);
        let mut block = vec![0; 512];
        assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        block
    }
    pub(crate) fn write(&mut self, sector: u32, fill: u8) -> u32 {
        let status = self.short(24, sector);
        if self.card.state(self.now) == MmcState::Rcv {
            assert_eq!(self.card.take(&[fill; 512], true, self.now), Token::Accepted);
        }
        self.wait();
        status
    }
    pub(crate) fn read(&mut self, sector: u32) -> u8 {
        self.short(17, sector);
        let mut block = [0; 512];
        assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        block[0]
    }
    pub(crate) fn power_cycle(&mut self) {
        self.card.power(false, self.now);
        self.card.power(true, self.now);
        self.card.bus(400_000, 1, self.now);
        self.card.idle_clocks(74);
    }
    /// CMD23 and CMD25 with these blocks, until the card is ready; the R1 of CMD13 after it.
    pub(crate) fn write_counted(&mut self, sector: u32, count: u32, blocks: &[u8]) -> u32 {
        self.short(23, count);
        self.short(25, sector);
        for block in blocks.chunks(512) {
            assert_eq!(self.card.take(block, true, self.now), Token::Accepted);
        }
        self.wait();
        self.short(13, RCA)
    }
    /// CMD23 and CMD18.
    pub(crate) fn read_counted(&mut self, sector: u32, count: u32) -> Vec<u8> {
        self.short(23, count);
        self.short(18, sector);
        let mut all = vec![0; count as usize * 512];
        for block in all.chunks_mut(512) {
            assert_eq!(self.card.send(block, self.now), Sent::Good);
        }
        all
    }
    /// A command with one block for the card; the R1 of CMD13 after it.
    pub(crate) fn put(&mut self, index: u8, block: &[u8]) -> u32 {
        self.short(index, 0);
        assert_eq!(self.card.take(block, true, self.now), Token::Accepted);
        self.wait();
        self.short(13, RCA)
    }
    /// A command that the card answers with a block.
    pub(crate) fn get(&mut self, index: u8, arg: u32, len: usize) -> Vec<u8> {
        self.short(index, arg);
        let mut block = vec![0; len];
        assert_eq!(self.card.send(&mut block, self.now), Sent::Good);
        block
    }
    pub(crate) fn no_violations(&self) {
        assert_eq!(self.card.violations(), Vec::<String>::new());
    }
}

pub(crate) fn emmc(revision: u8) -> MmcConfig {
    MmcConfig::emmc(revision, SECTORS, Profile::a2(), 1)
}

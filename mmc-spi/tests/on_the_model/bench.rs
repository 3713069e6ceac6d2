//! A card, its bus, our host on it.

use mmc_hal::Batch;
use mmc_hal::Dir;
use mmc_mock::card::{Card, MmcCard, MmcConfig, SdCard, SdConfig};
use mmc_mock::drive::{Bound, Drive, Spent, drive_bounded};
use mmc_mock::spi::{Device, Select, Spi, SpiConfig, SpiMmc, SpiMode, SpiSd, Wires as Bus};
use mmc_mock::{Buf, BufBatch, Clock};
use mmc_proto::host::{Cause, Host, Supervised};
use mmc_proto::machine::{
    CardTraits, Conductor, Identified, Identify, IdentifyError, Machine, Transfer, TransferError,
    TransferOptions, Turn,
};
use mmc_spi::{Board, BusFault, Exclusive, Shared, SpiEngine, Wires};
use mmc_time::Duration;

/// A board with a switch for the supply (or without), and a card detect pin.
pub struct Slot<C> {
    pub spi: Spi<C>,
    pub switch: bool,
}

impl<C: SpiMode> Board for Slot<C> {
    fn set_clock(&mut self, hz: u32) {
        self.spi.set_hz(hz);
    }
    fn power(&mut self, on: bool) -> Result<(), Cause> {
        if !self.switch {
            return Err(Cause::Unsupported("the supply is always on"));
        }
        let now = self.spi.clock().now();
        self.spi.with(|c| c.power(on, now));
        Ok(())
    }
    fn present(&mut self) -> Option<bool> {
        Some(self.spi.with(|c| c.present()))
    }
}

pub type Alone<C> = Exclusive<Bus<C>, Select<C>>;
pub type StartUp = Box<dyn FnMut() -> Result<(), BusFault> + Send>;
pub type Among<C> = Shared<Device<C>, StartUp>;

pub struct Bench<C: SpiMode + Send + 'static, W: Wires> {
    pub spi: Spi<C>,
    pub host: Supervised<SpiEngine<W, Slot<C>, BufBatch>>,
}

/// What one conversation may take.
pub const BOUND: Bound = Bound { time: Duration::from_secs(60), steps: 400_000 };

pub fn sd_bus(config: SdConfig, script: &str, wires: SpiConfig) -> Spi {
    Spi::new(SdCard::new(config).unwrap(), script.parse().unwrap(), wires, Clock::new()).unwrap()
}

pub fn mmc_bus(config: MmcConfig, script: &str) -> Spi<SpiMmc> {
    let card = MmcCard::new(config).unwrap();
    Spi::mmc(card, script.parse().unwrap(), SpiConfig::default(), Clock::new()).unwrap()
}

impl<C: SpiMode + Send + 'static> Bench<C, Alone<C>> {
    pub fn alone(spi: Spi<C>) -> Self {
        Self::with(spi.clone(), Exclusive::new(spi.bus(), spi.chip_select()), true)
    }
}

impl<C: SpiMode + Send + 'static> Bench<C, Among<C>> {
    pub fn shared(spi: Spi<C>) -> Self {
        let clocks = spi.clone();
        let start_up: StartUp = Box::new(move || clocks.start_up().map_err(|_| BusFault));
        Self::with(spi.clone(), Shared::new(spi.device(), start_up), true)
    }
}

impl<C: SpiMode + Send + 'static, W: Wires> Bench<C, W> {
    pub fn with(spi: Spi<C>, wires: W, switch: bool) -> Self {
        let host = SpiEngine::host(wires, Slot { spi: spi.clone(), switch }, 25_000_000);
        Self { spi, host }
    }
    pub fn drive<M: Machine>(
        &mut self,
        machine: M,
        payload: Option<BufBatch>,
    ) -> ((M::Output, Option<BufBatch>), Spent) {
        let mut talk = Conductor::new(machine, payload);
        let host = &mut self.host;
        drive_bounded(&self.spi.clock(), BOUND, |now| match talk.poll(host, now) {
            Turn::Wait { until, .. } => Drive::Wait(until),
            Turn::Done(output, payload) => Drive::Done((output, payload)),
        })
        .unwrap()
    }
    pub fn try_identify(&mut self) -> Result<Identified, IdentifyError> {
        let machine = Identify::new(&self.host.capabilities());
        self.drive(machine, Some(batch(&[vec![0; 512]]))).0.0
    }
    pub fn identify(&mut self) -> Identified {
        self.try_identify().unwrap()
    }
    pub fn transfer(
        &mut self,
        card: &CardTraits,
        dir: Dir,
        lba: u64,
        parts: &[Vec<u8>],
        options: TransferOptions,
    ) -> (Result<u32, TransferError>, Vec<u8>) {
        let blocks = parts.iter().map(Vec::len).sum::<usize>() / 512;
        let machine = Transfer::new(card, dir, lba, blocks as u32, options);
        let ((result, payload), _) = self.drive(machine, Some(batch(parts)));
        (result, bytes(payload.expect("an SPI engine always stops")))
    }
    pub fn write(&mut self, card: &CardTraits, lba: u64, data: &[u8]) -> Result<u32, TransferError> {
        self.transfer(card, Dir::Write, lba, &[data.to_vec()], TransferOptions::default()).0
    }
    pub fn read(&mut self, card: &CardTraits, lba: u64, blocks: usize) -> Result<Vec<u8>, TransferError> {
        let empty = vec![0; blocks * 512];
        let (result, data) = self.transfer(card, Dir::Read, lba, &[empty], TransferOptions::default());
        result.map(|_| data)
    }
    /// What the card really holds.
    pub fn stored(&self, lba: u64, blocks: usize) -> Vec<u8> {
        let mut data = vec![0; blocks * 512];
        self.spi.with(|c| c.card_mut().with_storage(&mut |s| s.read(lba * 512, &mut data).unwrap()));
        data
    }
    pub fn store(&self, lba: u64, data: &[u8]) {
        self.spi.with(|c| c.card_mut().with_storage(&mut |s| s.write(lba * 512, data).unwrap()));
    }
    pub fn violations(&self) -> Vec<String> {
        self.spi.violations()
    }
}

pub fn batch(parts: &[Vec<u8>]) -> BufBatch {
    let mut batch = BufBatch::new(parts.len());
    for part in parts {
        batch.push(Buf(part.clone()), 0, part.len()).unwrap();
    }
    batch
}

pub fn bytes(mut batch: BufBatch) -> Vec<u8> {
    std::iter::from_fn(|| batch.pop()).flat_map(|b| b.0).collect()
}

pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i / 512 * 37) ^ i ^ (i >> 8) ^ (seed * 101)) as u8).collect()
}

pub type Sd = Bench<SpiSd, Alone<SpiSd>>;

pub fn sd(config: SdConfig, script: &str) -> Sd {
    Bench::alone(sd_bus(config, script, SpiConfig::default()))
}

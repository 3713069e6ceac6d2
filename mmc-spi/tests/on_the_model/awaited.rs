//! The same conversations over an async bus.

use crate::bench::{Slot, pattern, sd_bus};
use embedded_hal_async::{delay::DelayNs, spi::SpiBus};
use mmc_hal::Dir;
use mmc_mock::card::SdConfig;
use mmc_mock::fault::Medium;
use mmc_mock::spi::{BusError, Select, Spi, SpiConfig, SpiSd, Wires};
use mmc_mock::timing::Profile;
use mmc_proto::machine::{CardTraits, Identify, Transfer, TransferOptions};
use mmc_spi::{AsyncCard, drive};
use mmc_time::Duration;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// The model's bus; each call gives way once before it does something, as one with DMA would.
struct Slow(Wires<SpiSd>);

async fn give_way() {
    let mut first = true;
    poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

impl embedded_hal::spi::ErrorType for Slow {
    type Error = BusError;
}

impl SpiBus for Slow {
    async fn read(&mut self, words: &mut [u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::read(&mut self.0, words)
    }
    async fn write(&mut self, words: &[u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::write(&mut self.0, words)
    }
    async fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::transfer(&mut self.0, read, write)
    }
    async fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), BusError> {
        give_way().await;
        embedded_hal::spi::SpiBus::transfer_in_place(&mut self.0, words)
    }
    async fn flush(&mut self) -> Result<(), BusError> {
        Ok(())
    }
}

struct Timer(Spi);

impl DelayNs for Timer {
    async fn delay_ns(&mut self, ns: u32) {
        self.0.wait(Duration::from_nanos(ns.into()));
        give_way().await;
    }
}

type Card = AsyncCard<Slow, Select<SpiSd>, Slot<SpiSd>>;

/// Polls at most `polls` times.
fn run<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(t) => Some(t),
        Poll::Pending => None,
    })
}

fn card(spi: &Spi) -> (Card, CardTraits) {
    let slot = Slot { spi: spi.clone(), switch: true };
    let mut card = AsyncCard::new(Slow(spi.bus()), spi.chip_select(), slot, 25_000_000);
    let mut identify = Identify::new(&card.capabilities());
    let mut scratch = [0; 512];
    let now = || spi.clock().now();
    let id = run(drive(&mut identify, &mut card, &mut scratch, &mut Timer(spi.clone()), now), 100_000);
    (card, id.expect("it ends").unwrap().traits)
}

fn transfer(
    spi: &Spi,
    card: &mut Card,
    traits: &CardTraits,
    dir: Dir,
    lba: u64,
    data: &mut [u8],
    polls: usize,
) -> Option<Result<u32, mmc_proto::machine::TransferError>> {
    let mut machine = Transfer::new(traits, dir, lba, (data.len() / 512) as u32, TransferOptions::default());
    let mut payload = data;
    let now = || spi.clock().now();
    run(drive(&mut machine, card, &mut payload, &mut Timer(spi.clone()), now), polls)
}

#[test]
fn a_conversation_can_be_awaited_and_dropped_at_every_await() {
    let spi = sd_bus(SdConfig::new(Profile::slow2018(), 1), "", SpiConfig::default());
    let (mut card, traits) = card(&spi);
    let data = pattern(8 * 512, 3);
    let mut dropped = 0;
    for polls in 1.. {
        for dir in [Dir::Write, Dir::Read] {
            let mut some = pattern(4 * 512, 5);
            if transfer(&spi, &mut card, &traits, dir, 5000, &mut some, polls).is_none() {
                dropped += 1;
            }
            // Whatever was dropped: the next one works, and what it writes is stored.
            let written = transfer(&spi, &mut card, &traits, Dir::Write, 64, &mut data.clone(), 100_000);
            assert_eq!(written.unwrap(), Ok(8), "{dir:?} dropped after {polls}");
            let mut back = vec![0; data.len()];
            let read = transfer(&spi, &mut card, &traits, Dir::Read, 64, &mut back, 100_000);
            assert_eq!((read.unwrap(), back == data), (Ok(8), true), "{dir:?} dropped after {polls}");
        }
        if dropped < 2 * polls - 1 || polls > 60 {
            break;
        }
    }
    let mut stored = vec![0; data.len()];
    spi.with(|c| c.card_mut().with_storage(&mut |s| s.read(64 * 512, &mut stored).unwrap()));
    assert!(stored == data);
    assert_eq!(spi.violations(), Vec::<String>::new());
    assert!(dropped > 30, "{dropped}");
}

#[test]
fn limits_hold_and_errors_are_told_there_too() {
    let spi = sd_bus(SdConfig::new(Profile::a1(), 1), "at CMD24: busy forever", SpiConfig::default());
    let (mut card, traits) = card(&spi);
    let began = spi.clock().now();
    let e = transfer(&spi, &mut card, &traits, Dir::Write, 9, &mut pattern(512, 1), 1_000_000).unwrap();
    assert!(e.unwrap_err().needs_reset());
    assert!(spi.clock().now().since(began) < Duration::from_secs(8));
}

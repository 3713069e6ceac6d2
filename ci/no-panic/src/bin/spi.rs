//! `mmc-spi`: both kinds of wires and the async way, over a bus that may answer anything.
#![no_std]
#![no_main]
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Waker};
use embedded_hal::digital::{self, OutputPin};
use embedded_hal::spi::{ErrorKind, ErrorType, Operation as Op, SpiBus, SpiDevice};
use embedded_hal_async::delay::DelayNs;
use mmc_hal::Dir;
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Command, DataShape, Response, Stop};
use mmc_proto::host::{Host, Operation};
use mmc_proto::machine::Identify;
use mmc_spi::{AsyncCard, Board, BusFault, Exclusive, Shared, SpiEngine, drive};
use mmc_time::{Duration, Instant};
use no_panic::sink;

type Buffer = [u8; 4096];

struct Any;

impl ErrorType for Any {
    type Error = ErrorKind;
}
fn any(words: &mut [u8]) -> Result<(), ErrorKind> {
    for w in words {
        *w = sink(*w);
    }
    sink(Ok(()))
}
impl SpiBus for Any {
    fn read(&mut self, words: &mut [u8]) -> Result<(), ErrorKind> {
        any(words)
    }
    fn write(&mut self, words: &[u8]) -> Result<(), ErrorKind> {
        sink(words);
        sink(Ok(()))
    }
    fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), ErrorKind> {
        sink(write);
        any(read)
    }
    fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), ErrorKind> {
        any(words)
    }
    fn flush(&mut self) -> Result<(), ErrorKind> {
        sink(Ok(()))
    }
}
impl embedded_hal_async::spi::SpiBus for Any {
    async fn read(&mut self, words: &mut [u8]) -> Result<(), ErrorKind> {
        any(words)
    }
    async fn write(&mut self, words: &[u8]) -> Result<(), ErrorKind> {
        sink(words);
        sink(Ok(()))
    }
    async fn transfer(&mut self, read: &mut [u8], write: &[u8]) -> Result<(), ErrorKind> {
        sink(write);
        any(read)
    }
    async fn transfer_in_place(&mut self, words: &mut [u8]) -> Result<(), ErrorKind> {
        any(words)
    }
    async fn flush(&mut self) -> Result<(), ErrorKind> {
        sink(Ok(()))
    }
}
impl SpiDevice for Any {
    fn transaction(&mut self, operations: &mut [Op<'_, u8>]) -> Result<(), ErrorKind> {
        for op in operations {
            if let Op::TransferInPlace(words) = op {
                any(words)?;
            }
        }
        sink(Ok(()))
    }
}
impl digital::ErrorType for Any {
    type Error = digital::ErrorKind;
}
impl OutputPin for Any {
    fn set_low(&mut self) -> Result<(), digital::ErrorKind> {
        sink(Ok(()))
    }
    fn set_high(&mut self) -> Result<(), digital::ErrorKind> {
        sink(Ok(()))
    }
}
impl DelayNs for Any {
    async fn delay_ns(&mut self, ns: u32) {
        sink(ns);
    }
}
impl Board for Any {
    fn set_clock(&mut self, hz: u32) {
        sink(hz);
    }
    fn present(&mut self) -> Option<bool> {
        sink(None)
    }
}

fn operate(host: &mut impl Host<Payload = Buffer>) {
    sink(host.capabilities());
    let mut now = Instant::ZERO;
    for i in 0..sink(100_u8) {
        let mut c = Command::plain(sink(i), sink(0), sink(Response::Short));
        c.busy = sink(false);
        let shape = DataShape { dir: sink(Dir::Read), block_len: sink(512), blocks: sink(8), stop: sink(Stop::None) };
        let op = match sink(i) {
            0 => Operation::Power(sink(Power::On)),
            1 => Operation::Bus(sink(BusConfig::default())),
            2 => Operation::Command(c),
            _ => Operation::Transfer(Command { data: Some(shape), ..c }, [0; 4096]),
        };
        sink(host.submit(op, Instant::from_secs(sink(1)), now).is_ok());
        for _ in 0..sink(100) {
            now = Instant::from_nanos(sink(now.as_nanos()));
            sink(host.poll(now));
        }
        host.abort(now);
        sink(host.slot(now));
    }
}

fn main() {
    operate(&mut SpiEngine::host(Exclusive::new(Any, Any), Any, sink(25_000_000)));
    let start_up = || sink(Ok::<(), BusFault>(()));
    operate(&mut SpiEngine::host(Shared::new(Any, start_up), Any, sink(25_000_000)));
    let mut card = AsyncCard::new(Any, Any, Any, sink(25_000_000));
    let mut machine = Identify::new(&card.capabilities());
    let mut scratch = [0; 512];
    let now = || sink(Instant::ZERO) + sink(Duration::ZERO);
    let mut timer = Any;
    let future = pin!(drive(&mut machine, &mut card, &mut scratch, &mut timer, now));
    sink(future.poll(&mut Context::from_waker(Waker::noop())).is_ready());
}
no_panic::program!(main);

//! `mmc-dw-hsdk`: the supervised driver, polled and split, over registers that may read as anything.
#![no_std]
#![no_main]
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::Dir;
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Command, DataShape, Response, Stop};
use mmc_proto::host::{Host, IrqHandler, Operation, Supervised};
use mmc_time::Instant;
use no_panic::{AnyDma, AnyMmio, sink};

type Buffer = [u8; 4096];
static MAILBOX: Mailbox = Mailbox::new();

fn drive(host: &mut impl Host<Payload = Buffer>) {
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
    }
}

fn main() {
    let (Ok(a), Ok(b)) = (Ring::new(AnyMmio, sink(0x8000_0000), 8192), Ring::new(AnyMmio, sink(0x8000_0000), 8192)) else {
        return;
    };
    let mut polled: Supervised<DwEngine<_, _, _, Buffer>> = DwEngine::new(AnyMmio, a, AnyDma, HSDK);
    drive(&mut polled);
    sink((polled.engine().card_present(), polled.engine().card_hz()));
    let (mut split, mut irq) = DwEngine::<_, _, _, Buffer>::split(AnyMmio, AnyMmio, &MAILBOX, b, AnyDma, HSDK);
    drive(&mut split);
    sink(irq.handle());
}
no_panic::program!(main);

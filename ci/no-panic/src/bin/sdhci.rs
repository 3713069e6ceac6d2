//! `mmc-sdhci`: the supervised driver, polled and split, over registers that may read as anything.
#![no_std]
#![no_main]
use mmc_hal::Dir;
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Command, DataShape, Response, Stop};
use mmc_proto::host::{Host, IrqHandler, Operation, Supervised};
use mmc_sdhci::{Mailbox, Platform, SdhciEngine, Table};
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
        c.voltage_switch = sink(false);
        c.tuning = sink(false);
        sink(host.slot(now));
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
    let at = sink(0x8000_0000);
    let (Ok(narrow), Ok(wide)) = (Table::new(AnyMmio, at, sink(4096)), Table::wide(AnyMmio, at, sink(4096))) else {
        return;
    };
    let platform = sink(Platform { v1_8: true, ..Platform::STANDARD });
    let mut polled: Supervised<SdhciEngine<_, _, _, Buffer>> = SdhciEngine::new(AnyMmio, narrow, AnyDma, platform);
    drive(&mut polled);
    sink((polled.engine().card_present(), polled.engine().card_hz(), polled.engine().caps()));
    let (mut split, mut irq) =
        SdhciEngine::<_, _, _, Buffer>::split(AnyMmio, AnyMmio, &MAILBOX, wide, AnyDma, platform);
    drive(&mut split);
    sink(irq.handle());
}
no_panic::program!(main);

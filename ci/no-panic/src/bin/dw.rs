//! `mmc-dw-hsdk`: the supervised driver, polled and split, over registers that may read as anything.
#![no_std]
#![no_main]
use mmc_dw_hsdk::platform::{HSDK, Platform, Sample, SamplePlace, SignalSwitch};
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::Dir;
use mmc_proto::bus::{BusConfig, Power, Timing};
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
        c.voltage_switch = sink(false);
        sink(host.slot(now));
        host.sdio_interrupt(sink(true));
        let next = Command { data: Some(DataShape { dir: Dir::Read, block_len: 512, blocks: sink(8), stop: sink(Stop::Auto) }), ..c };
        sink(host.prepare(next, [0; 4096]).is_ok());
        sink(host.submit_prepared(Instant::from_secs(sink(1)), now).is_ok());
        sink(host.unprepare().is_some());
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
    // One that can do all there is; which, is not known when it is compiled.
    let place = SamplePlace::Controller { offset: sink(0x108), shift: sink(16) };
    let sample = Some(Sample { place, points: sink(32) });
    let timings = HSDK.timings.with(Timing::Ddr52).with(Timing::Sdr104);
    let fast = Platform { signal: sink(SignalSwitch::Register), sample, timings: sink(timings), ..HSDK };
    let mut polled: Supervised<DwEngine<_, _, _, Buffer>> = DwEngine::new(AnyMmio, a, AnyDma, fast);
    drive(&mut polled);
    sink((polled.engine().card_present(), polled.engine().card_hz()));
    let (mut split, mut irq) = DwEngine::<_, _, _, Buffer>::split(AnyMmio, AnyMmio, &MAILBOX, b, AnyDma, HSDK);
    drive(&mut split);
    sink(irq.handle());
}
no_panic::program!(main);

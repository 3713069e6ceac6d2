//! Which registers are touched, and how often: exact lists in steady state, and a table of counts.

mod bench;

use bench::{Bench, Mode, RING_BYTES, buffers};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::{Dir, Mmio};
use mmc_mock::card::{SdCard, SdConfig, Shared};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{BufBatch, Clock, Memory, MemoryDma, Wakes};
use mmc_proto::host::{Host, IrqHandler};
use mmc_proto::machine::{Conductor, Identify, Machine, Transfer, TransferOptions, Turn};
use std::sync::{Arc, Mutex};

/// The model, with a list of what is done to it.
#[derive(Clone)]
struct Recorder {
    dw: Dw<Shared<SdCard>>,
    list: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn note(&self, what: char, offset: u32, value: u32) {
        let name = match offset {
            0x01c => "BLKSIZ",
            0x020 => "BYTCNT",
            0x024 => "INTMASK",
            0x028 => "CMDARG",
            0x02c => "CMD",
            0x030 => "RESP0",
            0x044 => "RINTSTS",
            0x04c => "FIFOTH",
            0x084 => "PLDMND",
            0x08c => "IDSTS",
            _ => "",
        };
        let name = if name.is_empty() { format!("{offset:03x}") } else { name.into() };
        self.list.lock().unwrap().push(format!("{what} {name} {value:x}"));
    }
}

impl Mmio for Recorder {
    fn read32(&self, offset: u32) -> u32 {
        let value = self.dw.read32(offset);
        self.note('r', offset, value);
        value
    }
    fn write32(&self, offset: u32, value: u32) {
        self.note('W', offset, value);
        self.dw.write32(offset, value);
    }
}

#[test]
fn a_steady_4_kib_read_is_these_accesses() {
    let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
    let card = Shared::new(SdCard::new(SdConfig::new(Profile::ideal(), 1)).unwrap());
    let dw = Dw::new(card, clock.clone(), memory.clone(), Config::hsdk());
    let recorder = Recorder { dw: dw.clone(), list: Arc::default() };
    let at = memory.alloc(RING_BYTES as usize);
    let ring = Ring::new(memory.window(at, RING_BYTES), at, RING_BYTES).unwrap();
    let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
    let dma = MemoryDma::new(memory.clone(), u32::MAX.into());
    let (mut host, mut irq) = DwEngine::split(recorder.clone(), recorder.clone(), mailbox, ring, dma, HSDK);

    fn run<T: Machine>(
        machine: T,
        payload: BufBatch,
        host: &mut impl Host<Payload = BufBatch>,
        irq: &mut impl IrqHandler,
        dw: &Dw<Shared<SdCard>>,
        clock: &Clock,
    ) -> T::Output {
        let mut conductor = Conductor::new(machine, Some(payload));
        loop {
            match conductor.poll(host, clock.now()) {
                Turn::Done(out, _) => return out,
                Turn::Wait { until, .. } => loop {
                    dw.advance();
                    if dw.irq() {
                        irq.handle();
                        break;
                    }
                    if clock.now() >= until {
                        break;
                    }
                    clock.advance_to(dw.next_event().min(until));
                },
            }
        }
    }
    let identify = Identify::new(&host.capabilities());
    let card = run(identify, buffers(&[512]), &mut host, &mut irq, &dw, &clock).unwrap().traits;
    for _ in 0..2 {
        recorder.list.lock().unwrap().clear();
        let read = Transfer::new(&card, Dir::Read, 7, 8, TransferOptions::default());
        run(read, buffers(&[4096]), &mut host, &mut irq, &dw, &clock).unwrap();
    }
    let list = recorder.list.lock().unwrap().clone();
    let expected = [
        // CMD23, 8 blocks
        "W INTMASK bfcf",
        "W CMDARG 8",
        "W CMD a0002157",
        "r RINTSTS 4",
        "W RINTSTS 4",
        "r RESP0 900",
        // CMD18; FIFOTH, BLKSIZ, BYTCNT, DBADDR, BMOD and CTRL are as they were
        "W INTMASK bfcb",
        "W PLDMND 1",
        "W CMDARG 7",
        "W CMD a0002352",
        "r RINTSTS c",
        "r IDSTS 2",
        "W RINTSTS c",
        "W IDSTS 2",
        "r RESP0 900",
    ];
    assert_eq!(list, expected);
    assert_eq!(dw.violations(), Vec::<String>::new());
}

/// Register accesses and interrupts of a transfer in steady state, by interrupts.
#[test]
fn what_a_transfer_costs() {
    let cost = |dir: Dir, len: usize, open_ended: bool| {
        let (mut b, card) = Bench::identified(Mode::Interrupts);
        let mut last = (0, 0);
        for k in 0..3 {
            let (c, i) = (b.dw.counters(), b.interrupts);
            let payload = buffers(&vec![4096; len / 4096]);
            let (r, _) = b.transfer(&card, dir, 4096 * k, payload, TransferOptions { open_ended });
            r.unwrap();
            let d = b.dw.counters();
            last = (d.reads + d.writes - c.reads - c.writes, b.interrupts - i);
        }
        b.assert_clean();
        last
    };
    let table = [
        ("4 KiB read, CMD23", cost(Dir::Read, 4096, false), (15, 2)),
        ("4 KiB read, CMD12", cost(Dir::Read, 4096, true), (15, 2)),
        ("1 MiB read, CMD23", cost(Dir::Read, 1 << 20, false), (15, 2)),
        ("512 KiB write, CMD23, CMD13", cost(Dir::Write, 1 << 19, false), (20, 3)),
        ("512 KiB write, CMD12, CMD13", cost(Dir::Write, 1 << 19, true), (20, 3)),
    ];
    for (what, got, want) in table {
        println!("{what}: {} register accesses, {} interrupts", got.0, got.1);
        assert_eq!(got, want, "{what}");
    }
}

//! What the DesignWare driver costs: register accesses and interrupts of a transfer, and how much of the bus time it
//! uses. All of it counted in virtual time: the same on every machine.

use crate::experiment::HostKind;
use crate::stack::{build, scheduler};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::{Batch, Dir};
use mmc_mock::card::{SdCard, SdConfig};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes};
use mmc_proto::host::{Host, IrqHandler};
use mmc_proto::machine::{CardTraits, Conductor, Identify, Machine, Transfer, TransferOptions, Turn};
use mmc_sched::{AnyPolicy, Op, Request, StreamId};
use mmc_time::Duration;
use std::fmt::Write as _;
use std::process::ExitCode;

/// Register accesses and interrupts per transfer, and the share of bus time in use
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Counted in virtual time on the register model of the HSDK's controller with an ideal card:
the same on every machine. The bus share is that of sequential requests of 1 MiB, two in flight, through the
whole stack at 50 MHz on four lines, against 1042 card clocks a block read and 1052 a block written.

Exit status: 0 done, 1 the model got stuck."
)]
pub struct Args {
    /// JSON, an object a line, instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    super::print(report(args.json), 1)
}

fn report(json: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut bench = Bench::new()?;
    if !json {
        let _ = writeln!(out, "{:<28} {:>9} {:>10}", "transfer", "accesses", "interrupts");
    }
    for (what, dir, len, open_ended) in [
        ("4 KiB read, CMD23", Dir::Read, 4 << 10, false),
        ("4 KiB read, CMD12", Dir::Read, 4 << 10, true),
        ("512 KiB write, CMD23, CMD13", Dir::Write, 512 << 10, false),
        ("512 KiB write, CMD12, CMD13", Dir::Write, 512 << 10, true),
        ("1 MiB read, CMD23", Dir::Read, 1 << 20, false),
        ("1 MiB read, CMD12", Dir::Read, 1 << 20, true),
    ] {
        let (accesses, interrupts) = bench.cost(dir, len, open_ended)?;
        let _ = if json {
            let object = serde_json::json!({
                "transfer": what, "register_accesses": accesses, "interrupts": interrupts,
            });
            writeln!(out, "{object}")
        } else {
            writeln!(out, "{what:<28} {accesses:>9} {interrupts:>10}")
        };
    }
    for (what, op, clocks) in [("reads", Op::Read, 1042.0), ("writes", Op::Write, 1052.0)] {
        let (share, mb) = share(op, clocks)?;
        let _ = if json {
            let object = serde_json::json!({
                "sequential": what, "bus_share": (share * 1e4).round() / 1e4, "mb_per_s": (mb * 100.0).round() / 100.0,
            });
            writeln!(out, "{object}")
        } else {
            writeln!(out, "sequential 1 MiB {what:<7} {:>6.2} % of the bus, {mb:.2} MB/s", share * 100.0)
        };
    }
    Ok(out)
}

/// The driver on the model, without a scheduler above it.
struct Bench {
    clock: Clock,
    dw: Dw<SdCard>,
    host: Box<dyn Host<Payload = BufBatch>>,
    irq: Box<dyn IrqHandler>,
    interrupts: u64,
    card: Option<CardTraits>,
}

impl Bench {
    fn new() -> Result<Self, String> {
        let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
        let card = SdCard::new(SdConfig::new(Profile::ideal(), 1)).map_err(|e| e.to_string())?;
        let dw = Dw::new(card, clock.clone(), memory.clone(), Config::hsdk());
        let at = memory.alloc(8192);
        let ring = Ring::new(memory.window(at, 8192), at, 8192).map_err(|e| e.to_string())?;
        let dma = MemoryDma::new(memory, u32::MAX.into());
        // It lives for ever; a run of the program leaks one.
        let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
        let (host, irq) = DwEngine::split(dw.clone(), dw.clone(), mailbox, ring, dma, HSDK);
        let mut bench =
            Self { clock, dw, host: Box::new(host), irq: Box::new(irq), interrupts: 0, card: None };
        let identify = Identify::new(&bench.host.capabilities());
        let identified =
            bench.drive(identify, 512)?.map_err(|e| format!("the card was not identified: {e}"))?;
        bench.card = Some(identified.traits);
        Ok(bench)
    }

    fn drive<T: Machine>(&mut self, machine: T, len: usize) -> Result<T::Output, String> {
        let mut payload = BufBatch::new(256);
        for _ in 0..len.div_ceil(4096) {
            // As many as fit were asked for.
            let _ = payload.push(Buf(vec![0; len.min(4096)]), 0, len.min(4096));
        }
        let mut conductor = Conductor::new(machine, Some(payload));
        loop {
            let until = match conductor.poll(&mut *self.host, self.clock.now()) {
                Turn::Done(out, _) => return Ok(out),
                Turn::Wait { until, .. } => until,
            };
            loop {
                self.dw.advance();
                if self.dw.irq() {
                    self.interrupts += 1;
                    self.irq.handle();
                    break;
                }
                if self.clock.now() >= until {
                    break;
                }
                let next = self.dw.next_event().min(until);
                if next.is_never() {
                    return Err("nothing happens any more".into());
                }
                self.clock.advance_to(next);
            }
        }
    }

    /// Accesses and interrupts of the third of three such transfers: what does not change is not written again.
    fn cost(&mut self, dir: Dir, len: usize, open_ended: bool) -> Result<(u64, u64), String> {
        let Some(card) = self.card else { return Err("no card".into()) };
        let mut cost = (0, 0);
        for lba in [0, 4096, 8192] {
            let (before, interrupts) = (self.dw.counters(), self.interrupts);
            let blocks = (len / 512) as u32;
            let transfer = Transfer::new(&card, dir, lba, blocks, TransferOptions { open_ended });
            self.drive(transfer, len)?.map_err(|e| format!("a transfer failed: {e}"))?;
            let after = self.dw.counters();
            cost = (after.reads + after.writes - before.reads - before.writes, self.interrupts - interrupts);
        }
        Ok(cost)
    }
}

const REQUESTS: u64 = 64;
const SECTORS: u32 = 2048;

/// Share of the bus time that data use when nothing else is asked for than `REQUESTS` sequential requests of 1 MiB,
/// two in flight, a block taking `clocks` card clocks at 50 MHz; and the speed.
fn share(op: Op, clocks: f64) -> Result<(f64, f64), String> {
    let clock = Clock::new();
    let policy = AnyPolicy::by_name("none").map_err(|e| e.to_string())?;
    let sched = scheduler(policy, SECTORS, Duration::ZERO);
    let (mut disk, _) = build(HostKind::Dw, "ideal", 1, &clock, sched, 64)?;
    let began = clock.now();
    let (mut sent, mut done) = (0, 0);
    while done < REQUESTS {
        while sent < REQUESTS && sent < done + 2 {
            let request = Request::new(op, sent * u64::from(SECTORS), SECTORS, StreamId(1));
            disk.submit(request, Buf(vec![0; SECTORS as usize * 512]), clock.now())?;
            sent += 1;
        }
        let next = disk.poll(clock.now());
        while disk.note().is_some() {}
        let mut progress = false;
        while let Some(finished) = disk.finished() {
            if let Some(e) = finished.error {
                return Err(e);
            }
            done += 1;
            progress = true;
        }
        if !progress {
            if next.is_never() {
                return Err("the disk does nothing any more".into());
            }
            clock.advance_to(next.max(clock.now()));
        }
    }
    let took = clock.now().since(began).as_nanos() as f64;
    let blocks = (REQUESTS * u64::from(SECTORS)) as f64;
    Ok((blocks * clocks * 20.0 / took, blocks * 512.0 * 1000.0 / took))
}

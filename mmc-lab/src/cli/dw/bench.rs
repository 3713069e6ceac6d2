//! What the DesignWare driver costs: register accesses and interrupts of a transfer, and how much of the bus time it
//! uses. All of it counted in virtual time: the same on every machine.

use crate::experiment::HostKind;
use crate::stack::{build, scheduler};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{DwEngine, Mailbox, Ring};
use mmc_hal::{Batch, Dir, Mmio};
use mmc_mock::card::{SdCard, SdConfig};
use mmc_mock::dw::{Config, Dw};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes, Window};
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{Host, HostError, IrqHandler, Operation, Progress};
use mmc_proto::machine::{CardTraits, Conductor, Identify, Machine, Transfer, TransferOptions, Turn};
use mmc_sched::{AnyPolicy, Op, Request, StreamId};
use mmc_time::{Duration, Instant};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    for (what, dir, len, ends) in [
        ("4 KiB read, CMD23", Dir::Read, 4 << 10, Ends::Counted),
        ("4 KiB read, CMD12", Dir::Read, 4 << 10, Ends::Stopped),
        ("4 KiB read, auto-stop", Dir::Read, 4 << 10, Ends::StopsItself),
        ("512 KiB write, CMD23, CMD13", Dir::Write, 512 << 10, Ends::Counted),
        ("512 KiB write, CMD12, CMD13", Dir::Write, 512 << 10, Ends::Stopped),
        ("1 MiB read, CMD23", Dir::Read, 1 << 20, Ends::Counted),
        ("1 MiB read, CMD12", Dir::Read, 1 << 20, Ends::Stopped),
        ("1 MiB read, auto-stop", Dir::Read, 1 << 20, Ends::StopsItself),
    ] {
        let (accesses, interrupts) = bench.cost(dir, len, ends)?;
        let _ = if json {
            let object = serde_json::json!({
                "transfer": what, "register_accesses": accesses, "interrupts": interrupts,
            });
            write!(out, "{}", crate::output::json(object))
        } else {
            writeln!(out, "{what:<28} {accesses:>9} {interrupts:>10}")
        };
    }
    let [(told, words), (ready, none)] = [bench.gap(false)?, bench.gap(true)?];
    let _ = if json {
        let object = serde_json::json!({
            "between_reads_of_64_kib": { "register_accesses": told, "descriptor_words": words },
            "prepared": { "register_accesses": ready, "descriptor_words": none },
        });
        write!(out, "{}", crate::output::json(object))
    } else {
        writeln!(
            out,
            "from the end of a 64 KiB read to the next doorbell: {told} accesses and {words} words of descriptors; \
             prepared meanwhile: {ready} and {none}"
        )
    };
    for (what, op, clocks) in [("reads", Op::Read, 1042.0), ("writes", Op::Write, 1052.0)] {
        let (share, mb) = share(op, clocks)?;
        let _ = if json {
            let object = serde_json::json!({
                "sequential": what, "bus_share": (share * 1e4).round() / 1e4, "mb_per_s": (mb * 100.0).round() / 100.0,
            });
            write!(out, "{}", crate::output::json(object))
        } else {
            writeln!(out, "sequential 1 MiB {what:<7} {:>6.2} % of the bus, {mb:.2} MB/s", share * 100.0)
        };
    }
    Ok(out)
}

/// Who ends a data phase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The count of a CMD23.
    Counted,
    /// A CMD12 of the conversation.
    Stopped,
    /// A CMD12 of the controller.
    StopsItself,
}

/// The window on the descriptors, with a count of the words written.
struct Counted(Window, Arc<AtomicU64>);

impl Mmio for Counted {
    fn read32(&self, offset: u32) -> u32 {
        self.0.read32(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.write32(offset, value);
    }
}

/// Bytes of the ring: room for the next transfer, too.
const RING: u32 = 16 << 10;

/// The driver on the model, without a scheduler above it.
struct Bench {
    words: Arc<AtomicU64>,
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
        let at = memory.alloc(RING as usize);
        let words = Arc::default();
        let window = Counted(memory.window(at, RING), Arc::clone(&words));
        let ring = Ring::new(window, at, RING).map_err(|e| e.to_string())?;
        let dma = MemoryDma::new(memory, u32::MAX.into());
        // It lives for ever; a run of the program leaks one.
        let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
        let (host, irq) = DwEngine::split(dw.clone(), dw.clone(), mailbox, ring, dma, HSDK);
        let mut bench =
            Self { words, clock, dw, host: Box::new(host), irq: Box::new(irq), interrupts: 0, card: None };
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
            match conductor.poll(&mut *self.host, self.clock.now()) {
                Turn::Done(out, _) => return Ok(out),
                Turn::Wait { until, .. } => self.pass(until)?,
            }
        }
    }

    /// Lets time pass until `until` or an interrupt.
    fn pass(&mut self, until: Instant) -> Result<(), String> {
        loop {
            self.dw.advance();
            if self.dw.irq() {
                self.interrupts += 1;
                self.irq.handle();
                return Ok(());
            }
            if self.clock.now() >= until {
                return Ok(());
            }
            let next = self.dw.next_event().min(until);
            if next.is_never() {
                return Err("nothing happens any more".into());
            }
            self.clock.advance_to(next);
        }
    }

    /// Register accesses and words of descriptors from the end of one read of 64 KiB to the doorbell of the next, the
    /// most of 16; `ahead`: each is handed over while the one before it runs.
    fn gap(&mut self, ahead: bool) -> Result<(u64, u64), String> {
        let read = |k: u32| Command::read_multiple_block(k * 128, 128, Stop::Auto);
        let payload = || {
            let mut batch = BufBatch::new(16);
            for _ in 0..16 {
                // As many as there is room for.
                let _ = batch.push(Buf(vec![0; 4096]), 0, 4096);
            }
            batch
        };
        let limit = Duration::from_secs(1);
        let now = self.clock.now();
        let refused = |e: HostError| e.to_string();
        self.host
            .submit(Operation::Transfer(read(0), payload()), now + limit, now)
            .map_err(|e| refused(e.error))?;
        let mut most = (0, 0);
        for k in 1..=16 {
            if ahead && k < 16 {
                self.host.prepare(read(k), payload()).map_err(|e| refused(e.error))?;
            }
            loop {
                match self.host.poll(self.clock.now()) {
                    Progress::Waiting { until, .. } => self.pass(until)?,
                    Progress::Done(done) => {
                        done.result.map_err(refused)?;
                        break;
                    }
                    Progress::Idle => return Err("a read is lost".into()),
                }
            }
            if k == 16 {
                break;
            }
            let (before, words, now) =
                (self.dw.counters(), self.words.load(Ordering::Relaxed), self.clock.now());
            if ahead {
                self.host.submit_prepared(now + limit, now).map_err(refused)?;
            } else {
                let op = Operation::Transfer(read(k), payload());
                self.host.submit(op, now + limit, now).map_err(|e| refused(e.error))?;
            }
            let after = self.dw.counters();
            let accesses = after.reads + after.writes - before.reads - before.writes;
            most = most.max((accesses, self.words.load(Ordering::Relaxed) - words));
        }
        Ok(most)
    }

    /// Accesses and interrupts of the third of three such transfers: what does not change is not written again.
    fn cost(&mut self, dir: Dir, len: usize, ends: Ends) -> Result<(u64, u64), String> {
        let Some(card) = self.card else { return Err("no card".into()) };
        let options = TransferOptions { open_ended: ends != Ends::Counted };
        let mut cost = (0, 0);
        for lba in [0, 4096, 8192] {
            let (before, interrupts) = (self.dw.counters(), self.interrupts);
            let blocks = (len / 512) as u32;
            let mut transfer = Transfer::new(&card, dir, lba, blocks, options);
            if ends == Ends::StopsItself {
                transfer = transfer.auto_stop(&self.host.capabilities());
            }
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

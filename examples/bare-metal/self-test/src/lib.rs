//! The test that every bare-metal example runs on its host: identify the card, write, flush, read back, verify, and put
//! back what was there.
//!
//! It is not a benchmark: what QEMU calls a second says nothing of a card. Only the last sectors of the card are used.
#![no_std]
#![forbid(unsafe_code)]

pub mod spi;

use core::fmt::{self, Write};
use mmc_block::{Blocking, Care, Disk, Failed, Failure, Idle, Init, Settings, SetupError, Tag, identify};
use mmc_hal::{Batch, Payload};
use mmc_proto::host::Host;
use mmc_proto::machine::{IdentifyError, Registers};
use mmc_sched::{Ftb, Queue, Slot};

/// Requests the disk can hold: one at a time is all the test needs.
pub const SLOTS: usize = 4;
/// How often the sectors are written and read back, each time with other data.
const ROUNDS: u32 = 8;

/// Lends a static of its own for ever: `lend!(TYPE = VALUE)`, in `unsafe`, because the place where it stands must be reached
/// only once.
#[macro_export]
macro_rules! lend {
    ($type:ty = $value:expr) => {{
        static mut PLACE: $type = $value;
        &mut *(&raw mut PLACE)
    }};
}

type Buffer<H> = <<H as Host>::Payload as Batch>::Buffer;

/// Memory for a disk, lent for ever: nothing is allocated.
pub struct Parts<P: Batch + 'static> {
    /// The list of buffers of one command, empty.
    pub batch: P,
    /// 512 bytes, for the registers of the card.
    pub scratch: P::Buffer,
    /// What is written and read: whole sectors.
    pub work: P::Buffer,
    /// What was on the card: as long as `work`.
    pub keep: P::Buffer,
    /// Requests in the scheduler.
    pub slots: &'static mut [Slot],
    /// Requests in the disk: as many.
    pub tags: &'static mut [Tag<P::Buffer>],
}

/// Why the test did not pass.
#[derive(Debug)]
pub enum Error {
    /// The slot says that it is empty.
    NoCard,
    /// The slot says that the card is locked.
    WriteProtected,
    /// A buffer is too short, or their lengths differ.
    Buffers,
    /// No card, or one that cannot be used.
    Identify(IdentifyError),
    /// The disk could not be made.
    Setup(SetupError),
    /// The card is smaller than the buffers.
    TooSmall(u64),
    /// A request failed: which, at which sector, why.
    Request(&'static str, u64, Failure),
    /// The flush failed.
    Flush(Failure),
    /// A byte read back is not the one written: its sector, what was written, what was read.
    Verify(u64, u8, u8),
    /// The host kept a buffer: it could not stop its device.
    Kept,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCard => write!(f, "no card in the slot: put one in"),
            Self::WriteProtected => write!(f, "the card is write-protected: open its lock"),
            Self::Buffers => write!(f, "the example's buffers must be whole sectors of the same length"),
            Self::Identify(e) => write!(f, "no usable card: {e}"),
            Self::Setup(e) => write!(f, "no disk: {e}"),
            Self::TooSmall(blocks) => write!(f, "a card of {blocks} sectors is smaller than the test"),
            Self::Request(what, lba, e) => write!(f, "{what} at sector {lba}: {e}"),
            Self::Flush(e) => write!(f, "flush: {e}"),
            Self::Verify(lba, wrote, read) => {
                write!(f, "sector {lba} does not hold what was written: {read:#04x} instead of {wrote:#04x}")
            }
            Self::Kept => write!(f, "the host could not stop its device and keeps a buffer"),
        }
    }
}

impl From<Failure> for Error {
    fn from(e: Failure) -> Self {
        Self::Flush(e)
    }
}

/// Byte `i` of what round `round` writes: no two sectors and no two rounds are alike.
fn pattern(round: u32, i: usize) -> u8 {
    let n = (i as u32).wrapping_add(round.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
    (n >> 24) as u8
}

fn failed<B>(what: &'static str, lba: u64) -> impl FnOnce(Failed<B>) -> Error {
    move |e| Error::Request(what, lba, e.error)
}

/// Runs the test and says on `out` what it found. `idle` tells time and waits, for an interrupt where the machine has one.
///
/// # Errors
/// The first thing that went wrong. The card's last sectors then hold what was written last.
pub fn run<H: Host<Payload: Batch>>(
    mut host: H,
    mut idle: impl Idle,
    parts: Parts<H::Payload>,
    out: &mut impl Write,
) -> Result<(), Error> {
    let Parts { batch, scratch, mut work, mut keep, slots, tags } = parts;
    let len = work.bytes();
    if len == 0 || len % 512 != 0 || keep.bytes() != len {
        return Err(Error::Buffers);
    }

    // Whatever card is in the slot, at the fastest both can do.
    let caps = host.capabilities();
    let mut init = Init::new(&caps, batch, scratch).map_err(|_| Error::Buffers)?;
    let begun = idle.now();
    let (card, parts) = identify(&mut host, &mut init, &mut idle);
    let slot = host.slot(idle.now());
    let card = match card {
        Err(_) if slot.present == Some(false) => return Err(Error::NoCard),
        card => card.map_err(Error::Identify)?,
    };
    let (batch, scratch) = parts.ok_or(Error::Kept)?;
    if slot.write_protected == Some(true) {
        return Err(Error::WriteProtected);
    }
    let blocks = card.traits.blocks;
    let kind = match (&card.registers, card.traits.byte_addressed) {
        (Registers::Mmc(_), _) => "MMC",
        (_, true) => "SDSC",
        (_, false) => "SDHC or larger",
    };
    say(
        out,
        format_args!(
            "card: {kind}, {} MiB, {:?} line(s), {} kHz, identified in {} ms",
            blocks >> 11,
            card.bus.width,
            card.bus.hz / 1000,
            idle.now().since(begun).as_millis(),
        ),
    );
    let sectors = (len / 512) as u64;
    let lba = blocks.checked_sub(sectors).ok_or(Error::TooSmall(blocks))?;

    // A disk with the scheduler `ftb`, that cures errors and flushes the card's cache.
    let queue = Queue::new(slots, Ftb::<SLOTS, 2>::new());
    let disk = Disk::new(host, queue, card.traits, batch, tags, Settings::default(), ());
    let mut disk = disk.map_err(Error::Setup)?;
    disk.look_after(card, scratch, Care::new(&caps), idle.now()).map_err(|_| Error::Buffers)?;
    let mut disk = Blocking::new(disk, &mut idle);

    keep = disk.read(lba, keep).map_err(failed("read", lba))?;
    for round in 0..ROUNDS {
        fill(&mut work, |i| pattern(round, i));
        work = disk.write(lba, work).map_err(failed("write", lba))?;
        disk.flush()?;
        fill(&mut work, |_| 0);
        work = disk.read(lba, work).map_err(failed("read back", lba))?;
        verify::<H>(&work, lba, |i| pattern(round, i))?;
    }
    say(
        out,
        format_args!("wrote, flushed, read back and verified {} times {sectors} sectors at {lba}", ROUNDS),
    );

    // What was there before.
    keep = disk.write(lba, keep).map_err(failed("restore", lba))?;
    disk.flush()?;
    work = disk.read(lba, work).map_err(failed("read restored", lba))?;
    let before = keep.segment(0).unwrap_or(&[]);
    verify::<H>(&work, lba, |i| before.get(i).copied().unwrap_or(0))?;
    say(out, format_args!("the {sectors} sectors are as they were"));
    Ok(())
}

fn say(out: &mut impl Write, line: fmt::Arguments<'_>) {
    // A serial port that fails has nobody to tell.
    let _ = out.write_fmt(line);
    let _ = out.write_char('\n');
}

fn fill(buffer: &mut impl Payload, byte: impl Fn(usize) -> u8) {
    for (i, b) in buffer.segment_mut(0).unwrap_or(&mut []).iter_mut().enumerate() {
        *b = byte(i);
    }
}

fn verify<H: Host<Payload: Batch>>(
    buffer: &Buffer<H>,
    lba: u64,
    byte: impl Fn(usize) -> u8,
) -> Result<(), Error> {
    for (i, read) in buffer.segment(0).unwrap_or(&[]).iter().copied().enumerate() {
        if read != byte(i) {
            return Err(Error::Verify(lba + (i / 512) as u64, byte(i), read));
        }
    }
    Ok(())
}

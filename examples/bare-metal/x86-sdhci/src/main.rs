//! A PC without an operating system: finds the SD host controller on its PCI bus and tests its card, by interrupts.
//!
//! It is not a boot loader, and not for any PC: where the interrupt lines go is known of QEMU's `q35` only (an operating
//! system asks ACPI). Built with the stock toolchain for its own target, linked without a C library.
//!
//! ```text
//! cargo build --release -p x86-sdhci
//! qemu-system-x86_64 -M q35 -display none -serial stdio -device isa-debug-exit,iobase=0xf4,iosize=4 \
//!     -device sdhci-pci -drive if=none,id=card,format=raw,file=card.img -device sd-card,drive=card \
//!     -kernel target/release/x86-sdhci; echo $?     # 33: passed, 3: failed, 5: panic
//! ```
#![no_std]
#![no_main]

mod boot;
mod machine;
mod pci;

use core::fmt::Write;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use machine::{Clock, INTERRUPTS, Serial, exit, interrupts};
use mmc_block::Tag;
use mmc_hal::{DmaBuf, Lent, LentEntry, Linear, Volatile};
use mmc_sched::Slot;
use mmc_sdhci::{Mailbox, Platform, SdhciEngine, Table};
use pci::{Function, SD_HOST};
use self_test::{Parts, SLOTS, lend};

/// Memory the controller writes to.
#[repr(align(4096))]
struct Aligned<const N: usize>([u8; N]);

/// Bytes written and read at once.
const WORK: usize = 64 << 10;

static MAILBOX: Mailbox = Mailbox::new();

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    match run() {
        Ok(()) => {
            let _ = writeln!(
                Serial,
                "{} interrupts of the controller\nself-test passed",
                INTERRUPTS.load(Ordering::Relaxed)
            );
            exit(16)
        }
        Err(e) => {
            let _ = writeln!(Serial, "self-test failed: {e}");
            exit(1)
        }
    }
}

fn run() -> Result<(), Error> {
    let function =
        Function::find(SD_HOST).ok_or(Error::Pc("no SD host controller on the PCI bus (class 0805)"))?;
    let at = function
        .memory(0)
        .ok_or(Error::Pc("the firmware gave the controller no registers below 4 GiB (BAR 0)"))?;
    function.enable();
    let _ = writeln!(Serial, "SD host controller {:08x} at {at:#x}", function.read(0));

    // SAFETY: `main` runs once, so that each place is lent once.
    let (memory, scratch, work, keep) = unsafe {
        (
            lend!(Aligned<4096> = Aligned([0; 4096])),
            lend!(Aligned<512> = Aligned([0; 512])),
            lend!(Aligned<WORK> = Aligned([0; WORK])),
            lend!(Aligned<WORK> = Aligned([0; WORK])),
        )
    };
    let bus = (&raw const *memory).addr() as u64;
    // SAFETY: BAR 0 is the controller's registers, mapped for ever; the descriptors are this one driver's. The addresses
    // the controller is given are those of `Linear`: memory of this program, which is mapped as it is.
    let (registers, descriptors) =
        unsafe { (Volatile::new(pointer(at), 0x100), Volatile::new(NonNull::from(memory).cast(), 4096)) };
    // SAFETY: the interrupt half touches the interrupt status register only.
    let irq_registers = unsafe { registers.share() };
    let table = Table::new(descriptors, bus, 4096).map_err(|_| Error::Pc("no place for descriptors"))?;
    let dma = Linear { offset: 0, mask: u32::MAX.into(), align: 4 };
    let (host, half) = SdhciEngine::split(registers, irq_registers, &MAILBOX, table, dma, Platform::QEMU);

    // Pin A of a device on q35's first bus is input 20 to 23 of the I/O APIC, by the device's number.
    interrupts(20 + function.device() % 4, half);

    // SAFETY: as above.
    let (batch, slots, tags) = unsafe {
        (
            lend!([Option<LentEntry<DmaBuf>>; SLOTS] = [const { None }; SLOTS]),
            lend!([Slot; SLOTS] = [Slot::FREE; SLOTS]),
            lend!([Tag<DmaBuf>; SLOTS] = [const { Tag::new() }; SLOTS]),
        )
    };
    let parts = Parts {
        batch: Lent::new(batch),
        scratch: DmaBuf::from(&mut scratch.0[..]),
        work: DmaBuf::from(&mut work.0[..]),
        keep: DmaBuf::from(&mut keep.0[..]),
        slots,
        tags,
    };
    self_test::run(host, Clock::start(), parts, &mut Serial).map_err(Error::Test)
}

fn pointer(at: u64) -> NonNull<u8> {
    NonNull::new(at as *mut u8).expect("nothing is at address 0 here")
}

/// Why the card could not be tested, or failed.
#[derive(Debug)]
enum Error {
    Pc(&'static str),
    Test(self_test::Error),
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Pc(what) => f.write_str(what),
            Self::Test(e) => e.fmt(f),
        }
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Serial, "{info}");
    exit(2)
}

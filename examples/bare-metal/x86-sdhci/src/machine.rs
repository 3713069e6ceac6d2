//! The PC around the controller: ports, the serial line, the way out, time, and interrupts.

use core::arch::asm;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use mmc_block::Idle;
use mmc_hal::Volatile;
use mmc_proto::host::{Irq, IrqHandler};
use mmc_sdhci::IrqHalf;
use mmc_time::Instant;

fn outb(port: u16, value: u8) {
    // SAFETY: the ports used here are the serial line, the interrupt controllers and QEMU's exit.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value) }
}
fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value) }
    value
}
/// Writes a 32-bit port.
pub fn outl(port: u16, value: u32) {
    // SAFETY: used for PCI's configuration space.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value) }
}
/// Reads a 32-bit port.
pub fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: as above.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value) }
    value
}

/// The first serial line.
pub struct Serial;
impl fmt::Write for Serial {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for b in s.bytes() {
            while inb(0x3fd) & 0x20 == 0 {}
            outb(0x3f8, b);
        }
        Ok(())
    }
}

/// Ends QEMU (`-device isa-debug-exit,iobase=0xf4,iosize=4`), whose status is then `2 * code + 1`.
pub fn exit(code: u8) -> ! {
    outb(0xf4, code);
    loop {
        // SAFETY: nothing is left to do.
        unsafe { asm!("cli", "hlt") }
    }
}

/// Device memory: identity-mapped, and uncached by the firmware's MTRRs.
fn read(at: usize) -> u32 {
    // SAFETY: the registers of the HPET and the two APICs, at the addresses every PC has them.
    unsafe { (at as *const u32).read_volatile() }
}
fn write(at: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (at as *mut u32).write_volatile(value) }
}

const HPET: usize = 0xfed0_0000;
const IO_APIC: usize = 0xfec0_0000;
const LOCAL_APIC: usize = 0xfee0_0000;
/// The input of the I/O APIC that the timer is set to.
const TIMER_INPUT: u32 = 2;
const TIMER_VECTOR: u8 = 0x41;
const CARD_VECTOR: u8 = 0x40;

/// Time from the HPET; its first timer ends a wait that no interrupt of the controller ends before.
pub struct Clock {
    /// Femtoseconds of one tick.
    period: u64,
}

impl Clock {
    /// Starts it. Interrupts must have been set up ([`interrupts`]).
    pub fn start() -> Self {
        const ENABLE: u32 = 1;
        const TIMER_INTERRUPTS: u32 = 1 << 2;
        let period = u64::from(read(HPET + 4)).max(1);
        write(HPET + 0x10, ENABLE);
        write(HPET + 0x100, TIMER_INTERRUPTS | TIMER_INPUT << 9);
        Self { period }
    }
    fn ticks() -> u64 {
        loop {
            let (high, low) = (read(HPET + 0xf4), read(HPET + 0xf0));
            if read(HPET + 0xf4) == high {
                return u64::from(high) << 32 | u64::from(low);
            }
        }
    }
}

impl Idle for Clock {
    fn now(&mut self) -> Instant {
        Instant::from_nanos((u128::from(Self::ticks()) * u128::from(self.period) / 1_000_000) as u64)
    }
    fn wait(&mut self, until: Instant) {
        let at = (u128::from(until.as_nanos()) * 1_000_000).div_ceil(self.period.into()) as u64;
        write(HPET + 0x108, at as u32);
        write(HPET + 0x10c, (at >> 32) as u32);
        // The timer fires when the counter equals it, not when it is beyond.
        if Self::ticks() < at {
            // Interrupts are on from here to the end of this one statement, and nowhere else: the processor takes none
            // between `sti` and `hlt`, so one that came before is not slept through. What a handler may clobber is
            // declared, so that it needs to save nothing; a handler that may run anywhere saves all registers.
            // SAFETY: the table of interrupts is loaded.
            unsafe { asm!("sti", "hlt", "cli", clobber_abi("sysv64")) }
        }
    }
}

/// The driver's interrupt half. Its handler runs only while [`Clock::wait`] sleeps: nobody else touches it then.
static mut CARD: Option<IrqHalf<Volatile>> = None;
/// Interrupts of the controller that were handled.
pub static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

extern "C" fn card_interrupt() {
    let card = &raw mut CARD;
    // SAFETY: see `CARD`.
    if let Some(half) = unsafe { &mut *card } {
        // The line is a level: if it is still up, the interrupt comes again.
        if half.handle() == Irq::Wake {
            INTERRUPTS.fetch_add(1, Ordering::Relaxed);
        }
    }
    write(LOCAL_APIC + 0xb0, 0);
}
extern "C" fn timer_interrupt() {
    write(LOCAL_APIC + 0xb0, 0);
}
extern "C" fn fault() -> ! {
    panic!("an exception of the processor");
}

// The processor has aligned the stack to 16 and pushed five words.
core::arch::global_asm!(
    ".text",
    "on_card: sub rsp, 8",
    "call {card}",
    "add rsp, 8",
    "iretq",
    "on_timer: sub rsp, 8",
    "call {timer}",
    "add rsp, 8",
    "iretq",
    "on_fault: and rsp, -16",
    "call {fault}",
    "on_spurious: iretq",
    card = sym card_interrupt,
    timer = sym timer_interrupt,
    fault = sym fault,
);
unsafe extern "C" {
    fn on_card();
    fn on_timer();
    fn on_fault();
    fn on_spurious();
}

static mut TABLE: [[u64; 2]; 256] = [[0; 2]; 256];

/// Sets up the table of interrupts and both APICs: input `input` (a level) is the controller's, whose interrupt half is
/// `half`. Interrupts stay off but in [`Clock::wait`].
pub fn interrupts(input: u32, half: IrqHalf<Volatile>) {
    let table = &raw mut TABLE;
    // SAFETY: called once, interrupts are off.
    let table = unsafe {
        CARD = Some(half);
        &mut *table
    };
    for (vector, gate) in table.iter_mut().enumerate() {
        let to = match vector as u8 {
            0..32 => on_fault as *const (),
            CARD_VECTOR => on_card as *const (),
            TIMER_VECTOR => on_timer as *const (),
            _ => on_spurious as *const (),
        } as u64;
        // An interrupt gate of ring 0, code segment 8.
        *gate = [to & 0xffff | 8 << 16 | 0x8e00 << 32 | (to >> 16 & 0xffff) << 48, to >> 32];
    }
    let pointer = [(size_of_val(table) as u64 - 1) << 48, table.as_ptr() as u64];
    // SAFETY: the ten bytes from byte 6 on are limit and address of a table that lives for ever.
    unsafe { asm!("lidt [{}]", in(reg) pointer.as_ptr().byte_add(6)) }
    // The old interrupt controllers keep quiet.
    outb(0x21, 0xff);
    outb(0xa1, 0xff);
    // The local APIC is on; spurious interrupts go to vector 255.
    write(LOCAL_APIC + 0xf0, 0x1ff);
    const LOW_LEVEL: u32 = 1 << 13 | 1 << 15;
    for (input, entry) in [(input, LOW_LEVEL | u32::from(CARD_VECTOR)), (TIMER_INPUT, TIMER_VECTOR.into())] {
        for (register, value) in [(0x11, 0), (0x10, entry)] {
            write(IO_APIC, register + 2 * input);
            write(IO_APIC + 0x10, value);
        }
    }
}

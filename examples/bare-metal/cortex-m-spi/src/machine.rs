//! The board: vectors, clock, serial line, the way out, time, and the SPI bus with the card's chip select.

use core::arch::asm;
use core::convert::Infallible;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use embedded_hal::digital::{ErrorType, OutputPin};
use mmc_block::Idle;
use mmc_time::{Duration, Instant};
use self_test::spi::Fifo;

/// The processor's clock.
const HZ: u32 = 50_000_000;
/// SysTick interrupts a second.
const TICKS_HZ: u32 = 1000;

const SYSTEM: usize = 0x400f_e000;
const PORT_A: usize = 0x4000_4000;
const PORT_D: usize = 0x4000_7000;
const SSI: usize = 0x4000_8000;
const UART: usize = 0x4000_c000;
const SYSTICK: usize = 0xe000_e010;

fn read(at: usize) -> u32 {
    // SAFETY: the addresses above, of registers that every LM3S6965 has.
    unsafe { (at as *const u32).read_volatile() }
}
fn write(at: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (at as *mut u32).write_volatile(value) }
}
fn set(at: usize, bits: u32) {
    write(at, read(at) | bits);
}

core::arch::global_asm!(
    // Stack, reset, NMI and five faults, reserved ones, supervisor call, debug, reserved, pending call, SysTick.
    ".section .vectors,\"a\",%progbits",
    ".word stack_top, reset",
    ".word fault, fault, fault, fault, fault",
    ".word 0, 0, 0, 0",
    ".word fault, fault, 0, fault, tick",
    // Initialised data from flash, the rest zero.
    ".section .text.reset,\"ax\",%progbits",
    ".globl reset",
    ".thumb_func",
    "reset: ldr r0, =data_start",
    "ldr r1, =data_end",
    "ldr r2, =data_load",
    "1: cmp r0, r1",
    "beq 2f",
    "ldr r3, [r2], #4",
    "str r3, [r0], #4",
    "b 1b",
    "2: ldr r0, =bss_start",
    "ldr r1, =bss_end",
    "movs r2, #0",
    "3: cmp r0, r1",
    "beq 4f",
    "str r2, [r0], #4",
    "b 3b",
    // The stack is painted, so that `stack_used` sees how deep it was.
    "4: ldr r2, =0x5aa55aa5",
    "5: str r2, [r1], #4",
    "cmp r1, sp",
    "bcc 5b",
    "bl main",
    ".ltorg",
    ".text",
);

#[unsafe(no_mangle)]
extern "C" fn fault() -> ! {
    panic!("an exception of the processor");
}

static TICKS: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
extern "C" fn tick() {
    // The only writer.
    TICKS.store(TICKS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Clocks and pins: 50 MHz from the crystal of 8 MHz, power for what is used, SysTick.
pub fn start() {
    const BYPASS: u32 = 1 << 11;
    const OFF: u32 = 1 << 13;
    const CRYSTAL_8_MHZ: u32 = 14 << 6;
    const USE_DIVIDER: u32 = 1 << 22;
    const DIVIDE_BY_4: u32 = 3 << 23;
    let base = CRYSTAL_8_MHZ | USE_DIVIDER | DIVIDE_BY_4;
    write(SYSTEM + 0x60, base | BYPASS | OFF);
    write(SYSTEM + 0x60, base | BYPASS);
    // The loop has locked.
    while read(SYSTEM + 0x50) & 1 << 6 == 0 {}
    write(SYSTEM + 0x60, base);
    // SSI0 and UART0; ports A and D.
    set(SYSTEM + 0x104, 1 << 4 | 1);
    set(SYSTEM + 0x108, 1 << 3 | 1);
    // Port A: serial line on 0 and 1, SSI on 2, 4 and 5. Port D 0: chip select, an output, high.
    set(PORT_A + 0x420, 0b11_0111);
    set(PORT_A + 0x51c, 0b11_0111);
    set(PORT_D + 0x400, 1);
    set(PORT_D + 0x51c, 1);
    write(PORT_D + 4, 1);
    // 115,200 baud, eight bits, FIFO.
    write(UART + 0x24, 27);
    write(UART + 0x28, 8);
    write(UART + 0x2c, 0x70);
    write(UART + 0x30, 0x301);
    write(SYSTICK + 4, HZ / TICKS_HZ - 1);
    write(SYSTICK + 8, 0);
    write(SYSTICK, 7);
}

/// Bytes of the stack that were ever used, and how many there are.
pub fn stack_used() -> (usize, usize) {
    unsafe extern "C" {
        static bss_end: u32;
        static stack_top: u32;
    }
    let (from, to) = ((&raw const bss_end).addr(), (&raw const stack_top).addr());
    // SAFETY: memory of the stack, painted at reset.
    let paint = |at: &usize| unsafe { (*at as *const u32).read_volatile() } == 0x5aa5_5aa5;
    let free = (from..to).step_by(4).take_while(paint).count() * 4;
    (to - from - free, to - from)
}

/// The serial line.
pub struct Serial;
impl fmt::Write for Serial {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for b in s.bytes() {
            while read(UART + 0x18) & 1 << 5 != 0 {}
            write(UART, b.into());
        }
        Ok(())
    }
}

/// Ends QEMU with this status, by semihosting.
pub fn exit(code: u32) -> ! {
    let block = [0x2_0026_u32, code];
    loop {
        // SAFETY: SYS_EXIT_EXTENDED reads the two words. Without a debugger this is a fault, which ends here too.
        unsafe { asm!("bkpt 0xab", in("r0") 0x20, in("r1") block.as_ptr()) }
    }
}

/// Time from SysTick.
pub struct Clock;
impl Idle for Clock {
    fn now(&mut self) -> Instant {
        loop {
            let (ticks, left) = (TICKS.load(Ordering::Relaxed), read(SYSTICK + 8));
            // The timer counts down; no interrupt came in between.
            if TICKS.load(Ordering::Relaxed) == ticks {
                let part = u64::from(HZ / TICKS_HZ - 1 - left.min(HZ / TICKS_HZ - 1));
                let nanos = u64::from(1_000_000_000 / TICKS_HZ);
                return Instant::from_nanos(u64::from(ticks) * nanos + part * 1_000_000_000 / u64::from(HZ));
            }
        }
    }
    fn wait(&mut self, until: Instant) {
        // Shorter than a tick: look again at once.
        if until.since(self.now()) >= Duration::from_nanos((1_000_000_000 / TICKS_HZ).into()) {
            // SAFETY: sleeps until the next interrupt, at most one tick.
            unsafe { asm!("wfi") }
        }
    }
}

/// SSI0: eight bits, mode 0.
pub struct Ssi;
impl Ssi {
    /// Sets its clock to at most `hz`.
    pub fn set_hz(hz: u32) {
        write(SSI + 4, 0);
        write(SSI, 7);
        write(SSI + 0x10, HZ.div_ceil(hz).next_multiple_of(2).clamp(2, 254));
        write(SSI + 4, 2);
    }
}
impl Fifo for Ssi {
    const DEPTH: usize = 8;
    fn send(&mut self, byte: u8) {
        write(SSI + 8, byte.into());
    }
    fn receive(&mut self) -> u8 {
        while read(SSI + 0xc) & 1 << 2 == 0 {}
        read(SSI + 8) as u8
    }
}

/// The card's chip select.
pub struct Select;
impl ErrorType for Select {
    type Error = Infallible;
}
impl OutputPin for Select {
    fn set_low(&mut self) -> Result<(), Infallible> {
        write(PORT_D + 4, 0);
        Ok(())
    }
    fn set_high(&mut self) -> Result<(), Infallible> {
        write(PORT_D + 4, 1);
        Ok(())
    }
}

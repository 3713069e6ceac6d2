//! The board: start, serial line, the way out, time, and the SPI bus with the card's chip select.

use core::arch::asm;
use core::convert::Infallible;
use core::fmt;
use embedded_hal::digital::{ErrorType, OutputPin};
use mmc_block::Idle;
use mmc_time::Instant;
use self_test::spi::Fifo;

const UART: usize = 0x1001_0000;
/// The third SPI controller, where the card is.
const SPI: usize = 0x1005_0000;
const CLINT: usize = 0x0200_0000;
/// The clock of the peripherals, and ticks of `mtime` a second, as QEMU has them.
const PERIPHERAL_HZ: u32 = 500_000_000;
const TICK_NANOS: u64 = 1000;

fn read(at: usize) -> u32 {
    // SAFETY: the addresses above, of registers that the board has.
    unsafe { (at as *const u32).read_volatile() }
}
fn write(at: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (at as *mut u32).write_volatile(value) }
}

core::arch::global_asm!(
    ".section .init,\"ax\",%progbits",
    ".globl _start",
    // One processor works; the others sleep.
    "_start: csrr t0, mhartid",
    "1: beqz t0, 2f",
    "wfi",
    "j 1b",
    "2: la sp, stack_top",
    "la t0, 5f",
    "csrw mtvec, t0",
    "la t0, bss_start",
    "la t1, bss_end",
    "3: bgeu t0, t1, 4f",
    "sd zero, 0(t0)",
    "addi t0, t0, 8",
    "j 3b",
    "4: call main",
    ".balign 4",
    "5: call {fault}",
    ".text",
    fault = sym fault,
);

extern "C" fn fault() -> ! {
    panic!("an exception of the processor");
}

/// The serial line on; the card's clock stopped; timer interrupts wake the processor, and do no more.
pub fn start() {
    write(UART + 8, 1);
    // Eight bits, most significant first, both directions.
    write(SPI + 0x40, 8 << 16);
    // Chip select 0 is low when active.
    write(SPI + 0x14, 1);
    // SAFETY: machine timer interrupts pend, and are not taken: bit 3 of mstatus stays 0.
    unsafe { asm!("csrw mie, {}", in(reg) 1 << 7) }
}

/// The serial line.
pub struct Serial;
impl fmt::Write for Serial {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for b in s.bytes() {
            while read(UART) & 1 << 31 != 0 {}
            write(UART, b.into());
        }
        Ok(())
    }
}

/// Ends QEMU with this status, by semihosting.
pub fn exit(code: usize) -> ! {
    let block = [0x2_0026_usize, code];
    loop {
        // SAFETY: SYS_EXIT_EXTENDED reads the two words. Without a debugger this is a fault.
        unsafe {
            asm!(
                ".balign 16", ".option push", ".option norvc",
                "slli x0, x0, 0x1f", "ebreak", "srai x0, x0, 7",
                ".option pop", in("a0") 0x20, in("a1") block.as_ptr(),
            )
        }
    }
}

/// Time from `mtime`; a wait ends by the timer.
pub struct Clock;
impl Idle for Clock {
    fn now(&mut self) -> Instant {
        // SAFETY: aligned, and read at once.
        let ticks = unsafe { ((CLINT + 0xbff8) as *const u64).read_volatile() };
        Instant::from_nanos(ticks * TICK_NANOS)
    }
    fn wait(&mut self, until: Instant) {
        // SAFETY: processor 0's own comparator.
        unsafe { ((CLINT + 0x4000) as *mut u64).write_volatile(until.as_nanos().div_ceil(TICK_NANOS)) }
        // SAFETY: returns when the timer's interrupt pends, at once if it does already.
        unsafe { asm!("wfi") }
    }
}

/// The controller: FIFOs of eight bytes.
pub struct Controller;
impl Controller {
    /// Sets its clock to at most `hz`.
    pub fn set_hz(hz: u32) {
        write(SPI, (PERIPHERAL_HZ / 2).div_ceil(hz).saturating_sub(1).min(0xfff));
    }
}
impl Fifo for Controller {
    const DEPTH: usize = 8;
    fn send(&mut self, byte: u8) {
        write(SPI + 0x48, byte.into());
    }
    fn receive(&mut self) -> u8 {
        loop {
            // Bit 31: empty. Reading takes the byte out.
            let word = read(SPI + 0x4c);
            if word & 1 << 31 == 0 {
                return word as u8;
            }
        }
    }
}

/// The card's chip select: held low, or left to the controller, which lowers it during each byte only.
pub struct Select;
impl ErrorType for Select {
    type Error = Infallible;
}
impl OutputPin for Select {
    fn set_low(&mut self) -> Result<(), Infallible> {
        write(SPI + 0x18, 2);
        Ok(())
    }
    fn set_high(&mut self) -> Result<(), Infallible> {
        write(SPI + 0x18, 0);
        Ok(())
    }
}

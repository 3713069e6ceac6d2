//! A Cortex-M3 board (TI's LM3S6965 evaluation board) without an operating system: tests the card on its SPI bus.
//!
//! It is not interrupt-driven on the wires: the bus of `embedded-hal` waits for its bytes. Between them the processor
//! sleeps until SysTick. 64 KiB of memory are enough for all of it. Run in QEMU; never on the board.
//!
//! ```text
//! cargo build --release -Zbuild-std=core --target thumbv7m-none-eabi -p cortex-m-spi   # core is built: see ci/rust-src
//! qemu-system-arm -M lm3s6965evb -display none -serial stdio -semihosting-config enable=on,target=native \
//!     -drive if=sd,format=raw,file=card.img -kernel target/thumbv7m-none-eabi/release/cortex-m-spi
//! ```
#![no_std]
#![no_main]

mod machine;

use core::fmt::Write;
use machine::{Clock, Select, Serial, Ssi, exit, stack_used, start};
use mmc_block::Tag;
use mmc_hal::{DmaBuf, Gather};
use mmc_sched::Slot;
use mmc_spi::{Board, Exclusive, SpiEngine};
use self_test::spi::Bus;
use self_test::{Parts, SLOTS, lend};

/// Bytes written and read at once.
const WORK: usize = 4096;

struct Clocked;
impl Board for Clocked {
    fn set_clock(&mut self, hz: u32) {
        Ssi::set_hz(hz);
    }
}

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    start();
    let host = SpiEngine::host(Exclusive::new(Bus(Ssi), Select), Clocked, 25_000_000);
    // SAFETY: `main` runs once, so that each place is lent once.
    let parts = unsafe {
        Parts {
            batch: Gather::<_, 2>::new(),
            scratch: DmaBuf::from(&mut lend!([u8; 512] = [0; 512])[..]),
            work: DmaBuf::from(&mut lend!([u8; WORK] = [0; WORK])[..]),
            keep: DmaBuf::from(&mut lend!([u8; WORK] = [0; WORK])[..]),
            slots: lend!([Slot; SLOTS] = [Slot::FREE; SLOTS]),
            tags: lend!([Tag<DmaBuf>; SLOTS] = [const { Tag::new() }; SLOTS]),
        }
    };
    match self_test::run(host, Clock, parts, &mut Serial) {
        Ok(()) => {
            let (used, all) = stack_used();
            let _ = writeln!(Serial, "{used} of {all} bytes of stack used\nself-test passed");
            exit(0)
        }
        Err(e) => {
            let _ = writeln!(Serial, "self-test failed: {e}");
            exit(1)
        }
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Serial, "{info}");
    exit(2)
}

//! What every program that is weighed has: registers at fixed addresses, time, an SPI device, an entry.
//!
//! Linked and looked at, never run.
#![no_std]

use core::convert::Infallible;
use embedded_hal::delay::DelayNs;
use embedded_hal::spi::{ErrorType, Operation, SpiDevice};
use mmc_block::Idle;
use mmc_proto::host::Host;
use mmc_proto::machine::{Conductor, Machine, Turn};
use mmc_time::Instant;

/// Keeps `v` from being computed away.
pub fn sink<T>(v: T) -> T {
    core::hint::black_box(v)
}

fn read(at: usize) -> u32 {
    // SAFETY: never run.
    unsafe { (at as *const u32).read_volatile() }
}
fn write(at: usize, value: u32) {
    // SAFETY: never run.
    unsafe { (at as *mut u32).write_volatile(value) }
}

/// A card on a bus.
#[derive(Debug)]
pub struct Device;
impl ErrorType for Device {
    type Error = Infallible;
}
fn byte(value: u8) -> u8 {
    write(0x4000_8008, value.into());
    while read(0x4000_800c) & 4 == 0 {}
    read(0x4000_8008) as u8
}
impl SpiDevice for Device {
    fn transaction(&mut self, operations: &mut [Operation<'_, u8>]) -> Result<(), Infallible> {
        write(0x4000_7004, 0);
        for operation in operations {
            match operation {
                Operation::Read(words) => words.iter_mut().for_each(|w| *w = byte(0xff)),
                Operation::Write(words) => words.iter().for_each(|w| _ = byte(*w)),
                Operation::Transfer(to, from) => {
                    to.iter_mut().zip(from.iter()).for_each(|(t, f)| *t = byte(*f))
                }
                Operation::TransferInPlace(words) => words.iter_mut().for_each(|w| *w = byte(*w)),
                Operation::DelayNs(ns) => Timer.delay_ns(*ns),
            }
        }
        write(0x4000_7004, 1);
        Ok(())
    }
}

/// Time.
#[derive(Debug)]
pub struct Timer;
impl DelayNs for Timer {
    fn delay_ns(&mut self, ns: u32) {
        let from = read(0xe000_e018);
        while read(0xe000_e018).wrapping_sub(from) < ns {}
    }
}
impl Idle for Timer {
    fn now(&mut self) -> Instant {
        Instant::from_micros(read(0x4003_0048).into())
    }
    fn wait(&mut self, _: Instant) {}
}

/// Holds a conversation with the card behind `host`.
pub fn converse<H: Host, M: Machine>(
    host: &mut H,
    machine: M,
    payload: Option<H::Payload>,
) -> (M::Output, Option<H::Payload>) {
    let mut talk = Conductor::new(machine, payload);
    loop {
        if let Turn::Done(output, payload) = talk.poll(host, Timer.now()) {
            return (output, payload);
        }
    }
}

/// Defines the entry, which runs the function given, and the panic handler.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }
        #[unsafe(no_mangle)]
        extern "C" fn reset() -> ! {
            $main();
            loop {}
        }
    };
}

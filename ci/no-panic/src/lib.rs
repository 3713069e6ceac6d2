//! What every program here needs: an entry, a panic handler nobody should reach, and the four memory functions.
#![no_std]

/// Keeps `v` from being computed away.
pub fn sink<T>(v: T) -> T {
    core::hint::black_box(v)
}

/// Defines `_start`, which runs the function given, and the panic handler.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }
        /// The linker's entry.
        #[unsafe(no_mangle)]
        pub extern "C" fn _start() -> ! {
            $main();
            loop {}
        }
        /// C's `memcpy`.
        /// # Safety
        /// As C's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
            let mut i = 0;
            while i < n {
                unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
                i += 1;
            }
            to
        }
        /// C's `memmove`.
        /// # Safety
        /// As C's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
            let mut i = n;
            while i > 0 {
                i -= 1;
                unsafe { to.add(i).write_volatile(from.add(i).read_volatile()) };
            }
            to
        }
        /// C's `memset`.
        /// # Safety
        /// As C's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn memset(to: *mut u8, v: i32, n: usize) -> *mut u8 {
            let mut i = 0;
            while i < n {
                unsafe { to.add(i).write_volatile(v as u8) };
                i += 1;
            }
            to
        }
        /// C's `memcmp`.
        /// # Safety
        /// As C's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
            let mut i = 0;
            while i < n {
                let (x, y) = unsafe { (a.add(i).read_volatile(), b.add(i).read_volatile()) };
                if x != y {
                    return i32::from(x) - i32::from(y);
                }
                i += 1;
            }
            0
        }
        /// BSD's `bcmp`.
        /// # Safety
        /// As `memcmp`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
            unsafe { memcmp(a, b, n) }
        }
    };
}

use mmc_hal::{Dma, DmaError, Dir, Mmio, Payload};
use mmc_proto::command::Command;
use mmc_proto::host::{Capabilities, Cause, Engine, Failure, Lease, Reply, Why};
use mmc_time::Instant;

/// Registers that may read as anything.
#[derive(Debug)]
pub struct AnyMmio;
impl Mmio for AnyMmio {
    fn read32(&self, offset: u32) -> u32 {
        sink(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        sink((offset, value));
    }
}

/// DMA that may answer anything.
#[derive(Debug)]
pub struct AnyDma;
impl<P: Payload> Dma<P> for AnyDma {
    fn mask(&self) -> u64 {
        sink(0xffff_ffff)
    }
    fn map(&mut self, _: &mut P, i: usize, _: usize, _: Dir) -> Result<u64, DmaError> {
        sink(Err(DmaError::NoSegment(i)))
    }
    fn unmap(&mut self, _: &mut P, _: usize, _: usize, _: u64, _: Dir) {}
    fn publish(&self) {}
}

/// An engine that may do anything.
#[derive(Debug)]
pub struct AnyEngine<P>(pub core::marker::PhantomData<P>);
impl<P: Payload> Engine for AnyEngine<P> {
    type Payload = P;
    fn capabilities(&self) -> Capabilities {
        sink(Capabilities::new())
    }
    fn start(&mut self, _: &Command, _: Option<Lease<'_, P>>, _: Instant) -> Result<(), Cause> {
        sink(Ok(()))
    }
    fn set_bus(&mut self, _: &mmc_proto::bus::BusConfig, _: Instant) -> Result<(), Cause> {
        sink(Ok(()))
    }
    fn set_power(&mut self, _: mmc_proto::bus::Power, _: Instant) -> Result<(), Cause> {
        sink(Ok(()))
    }
    fn advance(&mut self, data: Option<Lease<'_, P>>, _: Instant) -> Option<Result<Reply, Failure>> {
        if let Some(mut lease) = data {
            if let Some(s) = lease.get().segment_mut(0) {
                s.fill(sink(0));
            }
        }
        sink(None)
    }
    fn waits(&self, now: Instant) -> (Why, Instant) {
        sink((Why::Timer, now))
    }
    fn halt(&mut self, _: Instant) {}
    fn halted(&mut self, _: Instant) -> bool {
        sink(true)
    }
}

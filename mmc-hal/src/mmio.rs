//! A window of 32-bit registers.

use core::ptr::NonNull;

/// A window of 32-bit registers, one instance per window, so that many fakes can run side by side.
///
/// `&self`: the task half and the interrupt half of a driver each hold a handle of their own.
/// Accesses are never merged, split, reordered or repeated by the implementation.
pub trait Mmio: Send {
    /// Reads the register at byte `offset`. Reading may have a side effect (a FIFO).
    fn read32(&self, offset: u32) -> u32;
    /// Writes the register at byte `offset`.
    fn write32(&self, offset: u32, value: u32);
}

impl<M: Mmio + Sync + ?Sized> Mmio for &M {
    fn read32(&self, offset: u32) -> u32 {
        (**self).read32(offset)
    }
    fn write32(&self, offset: u32, value: u32) {
        (**self).write32(offset, value);
    }
}

/// Real registers: volatile 32-bit accesses inside one window.
///
/// An access outside the window or not on a multiple of four reads 0 and writes nothing.
#[derive(Debug)]
pub struct Volatile {
    base: NonNull<u8>,
    len: u32,
}

// SAFETY: the contract of `new` makes the window valid from any thread; the accesses are volatile.
unsafe impl Send for Volatile {}

impl Volatile {
    /// The window of `len` bytes at `base`.
    ///
    /// # Safety
    /// * `base` is aligned to four and the window is mapped as device memory, valid for volatile 32-bit
    ///   accesses for as long as the value or a [`share`](Self::share) of it lives;
    /// * a bus master behind these registers can write anywhere. The code that is given this handle, with the
    ///   [`Dma`](crate::Dma) it is given beside it, is trusted to program only addresses it owns.
    #[must_use]
    pub const unsafe fn new(base: NonNull<u8>, len: u32) -> Self {
        Self { base, len }
    }

    /// A second handle on the same window, for the interrupt half.
    ///
    /// # Safety
    /// As for [`new`](Self::new); the two holders must agree on who writes which register.
    #[must_use]
    pub const unsafe fn share(&self) -> Self {
        Self { base: self.base, len: self.len }
    }

    fn at(&self, offset: u32) -> Option<*mut u32> {
        let end = offset.checked_add(4)?;
        if end > self.len || offset % 4 != 0 {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: offset + 4 <= len, inside the window promised to `new`.
        Some(unsafe { self.base.as_ptr().add(offset) }.cast::<u32>())
    }
}

impl Mmio for Volatile {
    fn read32(&self, offset: u32) -> u32 {
        match self.at(offset) {
            // SAFETY: aligned and inside the window promised to `new`.
            Some(p) => unsafe { p.read_volatile() },
            None => 0,
        }
    }
    fn write32(&self, offset: u32, value: u32) {
        if let Some(p) = self.at(offset) {
            // SAFETY: aligned and inside the window promised to `new`.
            unsafe { p.write_volatile(value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_outside_the_window_do_nothing() {
        let mut words = [1_u32, 2, 3, 4];
        let base = NonNull::new(words.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: the array outlives the handle and nobody else touches it.
        let regs = unsafe { Volatile::new(base, 12) };
        regs.write32(8, 30);
        for bad in [12, 2, u32::MAX, u32::MAX - 3] {
            regs.write32(bad, 99);
            assert_eq!(regs.read32(bad), 0);
        }
        assert_eq!(regs.read32(8), 30);
        assert_eq!(words, [1, 2, 30, 4]);
    }

    #[test]
    fn a_reference_is_a_handle_on_the_same_registers() {
        use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
        struct Two([AtomicU32; 2]);
        impl Mmio for Two {
            fn read32(&self, offset: u32) -> u32 {
                self.0[offset as usize / 4].load(Relaxed)
            }
            fn write32(&self, offset: u32, value: u32) {
                self.0[offset as usize / 4].store(value, Relaxed);
            }
        }
        fn adds(regs: impl Mmio) {
            regs.write32(4, regs.read32(0) + regs.read32(4));
        }
        let regs = Two([AtomicU32::new(30), AtomicU32::new(12)]);
        adds(&regs);
        assert_eq!((regs.read32(0), regs.read32(4)), (30, 42));
    }
}

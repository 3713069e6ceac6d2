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

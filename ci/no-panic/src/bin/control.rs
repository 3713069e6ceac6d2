//! The control: this one does panic, and the check must find it.
#![no_std]
#![no_main]

fn main() {
    let table = no_panic::sink([1_u32, 2, 3]);
    no_panic::sink(table[no_panic::sink(2_usize)]);
}
no_panic::program!(main);

//! The flash and the memory of the Cortex-M example.
fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-arg-bins=-T{here}/../cortex-m-spi/link.ld");
}

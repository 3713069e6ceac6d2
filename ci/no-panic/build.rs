//! No start files and no libc: the programs are linked, looked at, and never run.
fn main() {
    println!("cargo::rustc-link-arg-bins=-nostartfiles");
    println!("cargo::rustc-link-arg-bins=-nostdlib");
    println!("cargo::rustc-link-arg-bins=-static");
    println!("cargo::rustc-link-arg-bins=-Wl,--gc-sections");
}

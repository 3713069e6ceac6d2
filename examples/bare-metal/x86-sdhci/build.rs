//! No start files and no C library: `link.ld` says where everything is.
fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--gc-sections", "-Wl,--build-id=none"]
    {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    println!("cargo::rustc-link-arg-bins=-T{here}/link.ld");
    println!("cargo::rerun-if-changed=link.ld");
}

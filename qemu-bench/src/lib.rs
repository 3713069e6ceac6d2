//! QEMU's device models as a test bench: a client of its `qtest` protocol, and machines with a controller and a card.
//!
//! It is not an emulator and not a model of ours: what is here only drives a QEMU that is installed beside it. The point is
//! that QEMU's cards and controllers were written by other people. Where it is missing, [`qemu`] says so and the suites do
//! nothing; with `QEMU_BENCH=required` in the environment they fail instead. `QEMU_SYSTEM_X86_64` and `QEMU_SYSTEM_ARM` name other binaries.

pub mod memory;
pub mod orangepi;
pub mod pc;
pub mod qtest;
pub mod stellaris;
pub mod talk;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The card's image in a machine's directory.
pub const IMAGE: &str = "card.img";

/// The QEMU of an architecture (`x86_64`, `arm`), or `None` after a message that says what is skipped and how to get it.
///
/// # Panics
/// If there is none and `QEMU_BENCH=required`.
#[must_use]
pub fn qemu(architecture: &str) -> Option<PathBuf> {
    let variable = format!("QEMU_SYSTEM_{}", architecture.to_uppercase());
    let usual = PathBuf::from(format!("qemu-system-{architecture}"));
    let name = std::env::var_os(variable).map_or(usual, PathBuf::from);
    let runs = Command::new(&name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if runs.is_ok_and(|status| status.success()) {
        return Some(name);
    }
    let message = format!(
        "{} does not run: apt-get install --no-install-recommends qemu-system-x86 qemu-system-arm",
        name.display()
    );
    assert!(std::env::var_os("QEMU_BENCH").is_none_or(|v| v != "required"), "{message}");
    eprintln!("skipped, {message}");
    None
}

/// As [`qemu`], if it has a device of this name: some came late. A missing device is never an error.
#[must_use]
pub fn qemu_with(architecture: &str, device: &str) -> Option<PathBuf> {
    let qemu = qemu(architecture)?;
    // Not the list of all devices: for that it loads every module there is, and may meet those of another version.
    let help = Command::new(&qemu).args(["-device", &format!("{device},help")]).output().ok()?;
    let has = String::from_utf8_lossy(&help.stdout).contains(&format!("{device} options"));
    if !has {
        eprintln!("skipped, {} has no device {device}: ci/newer-qemu gets one that has", qemu.display());
    }
    has.then_some(qemu)
}

/// An empty file of `bytes` bytes.
pub(crate) fn empty(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path).expect("an image");
    file.set_len(bytes).expect("room for a sparse file");
}

//! What the models answer is what it was when `data/as_it_was.txt` was written: digests of all that a host can see of every
//! card of the zoo command by command, of the SD cards and every third MMC byte by byte on an SPI bus, and of the two controllers
//! register by register, in lives drawn at random.
//!
//! A change that is meant shows here as lines that differ; whether a model is right is the other tests' business.
//! `MMC_MOCK_WRITE_RUNS=1 cargo test -p mmc-mock --test as_it_was` writes the file anew.

#[path = "../dw_common/mod.rs"]
mod dw_common;
#[path = "../dw_common/ops.rs"]
mod ops;

mod cards;
mod dw;
mod sdhci;
mod spi;

use std::fmt::{self, Write};
use std::path::Path;

/// FNV-1a of all that is written to it, and how many pieces that were.
struct Digest(u64, u32);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325, 0)
    }
    fn say(&mut self, what: fmt::Arguments<'_>) {
        self.1 += 1;
        self.write_fmt(what).expect("a digest takes anything");
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

/// The same numbers for ever (xorshift64).
struct Random(u64);

impl Random {
    fn new(name: &str, life: u32) -> Self {
        let mut digest = Digest::new();
        digest.say(format_args!("{name} {life}"));
        Self(digest.0 | 1)
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn word(&mut self) -> u32 {
        self.next() as u32
    }
}

#[test]
fn every_model_is_as_it_was() {
    let mut text = String::new();
    for (part, lines) in [
        ("cards", cards::lives()),
        ("DesignWare", dw::lives()),
        ("SDHCI", sdhci::lives()),
        ("SPI", spi::lives()),
    ] {
        writeln!(text, "# {part}").expect("a text takes anything");
        lines.into_iter().for_each(|line| text.push_str(&(line + "\n")));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/as_it_was.txt");
    if std::env::var_os("MMC_MOCK_WRITE_RUNS").is_some() {
        std::fs::write(&path, &text).expect("tests/data can be written");
    }
    let was = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for (number, (was, is)) in was.lines().zip(text.lines()).enumerate() {
        assert_eq!(was, is, "the first difference is in line {} of {}", number + 1, path.display());
    }
    assert_eq!(was.len(), text.len(), "more or less than in {}", path.display());
}

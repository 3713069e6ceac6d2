//! The processor's cache and write buffer in front of a memory that is not coherent.

use std::collections::BTreeMap;

/// Bytes of a line.
const LINE: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Line {
    bytes: [u8; LINE as usize],
    /// Which bytes are in it.
    valid: u64,
    /// Which of them memory does not have.
    dirty: u64,
}

/// Lines and what was written past them.
#[derive(Debug, Default)]
pub(super) struct Cache {
    lines: BTreeMap<u64, Line>,
    /// Uncached words on their way to memory, in order.
    pub(super) buffered: Vec<(u64, u32)>,
    pub(super) violations: Vec<String>,
}

impl Cache {
    pub(super) fn violation(&mut self, text: String) {
        // A loop in a test must not fill the memory.
        if self.violations.len() < 1000 {
            self.violations.push(text);
        }
    }

    /// Keys of the lines that these bytes touch.
    fn span(at: u64, len: usize) -> std::ops::Range<u64> {
        at / LINE..(at + len as u64).div_ceil(LINE)
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            let empty = Line { bytes: [0; LINE as usize], valid: 0, dirty: 0 };
            let line = self.lines.entry(at / LINE).or_insert(empty);
            line.bytes[(at % LINE) as usize] = *byte;
            line.valid |= 1 << (at % LINE);
            line.dirty |= 1 << (at % LINE);
        }
    }

    /// Puts the bytes it has in the place of those from memory.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) {
        for (at, byte) in (at..).zip(bytes) {
            if let Some(line) = self.lines.get(&(at / LINE)).filter(|l| l.valid >> (at % LINE) & 1 != 0) {
                *byte = line.bytes[(at % LINE) as usize];
            }
        }
    }

    /// The dirty bytes of these lines, to be written to memory; they stay, clean.
    pub(super) fn clean(&mut self, at: u64, len: usize) -> Vec<(u64, u8)> {
        let mut out = Vec::new();
        for (key, line) in self.lines.range_mut(Self::span(at, len)) {
            let dirty = std::mem::take(&mut line.dirty);
            out.extend(
                (0..LINE).filter(|i| dirty >> i & 1 != 0).map(|i| (key * LINE + i, line.bytes[i as usize])),
            );
        }
        out
    }

    pub(super) fn invalidate(&mut self, at: u64, len: usize) {
        for key in Self::span(at, len) {
            self.lines.remove(&key);
        }
    }

    /// The device reads or writes from `at` on, `len` bytes at most.
    pub(super) fn device_looks(&mut self, at: u64, len: usize) {
        if let Some((key, _)) = self.lines.range(Self::span(at, len)).find(|(_, l)| l.dirty != 0) {
            self.violation(format!(
                "the device came to {at:#x}, and line {:#x} is dirty in the cache",
                key * LINE
            ));
        }
        let waits = |(a, _): &&(u64, u32)| (at..at + len as u64).contains(a);
        if let Some((a, _)) = self.buffered.iter().find(waits) {
            self.violation(format!("the device came to {at:#x}, and {a:#x} is still in the write buffer"));
        }
    }

    /// What came back of a buffer the device was only to read.
    pub(super) fn written_by_the_device(&mut self, at: u64, ram: &[u8]) {
        let mut ours = ram.to_vec();
        self.read(at, &mut ours);
        if ours != ram && self.lines.range(Self::span(at, ram.len())).all(|(_, l)| l.dirty == 0) {
            self.violation(format!("{at:#x} was mapped for the device to read, and it wrote there"));
        }
    }
}

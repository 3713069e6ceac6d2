//! Descriptors of the internal DMA controller: chained, with 32- or 64-bit addresses (`spec/dw-mshc.md` §2.1).

use bitflags::bitflags;

/// Bytes of one descriptor with 32-bit addresses; with 64-bit addresses it is twice that.
pub const SIZE: u32 = 16;

/// Most bytes one descriptor carries here. The size field would take 8191, of which only multiples of a word are
/// possible; every driver that is known to work uses a page.
pub const CHUNK: u32 = 4096;

bitflags! {
    /// The first word.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Control: u32 {
        /// No TI/RI for this one.
        const DIC = 1 << 1;
        /// The last of the transfer.
        const LAST = 1 << 2;
        /// The first of the transfer.
        const FIRST = 1 << 3;
        /// The second address is that of the next descriptor.
        const CHAINED = 1 << 4;
        /// It belongs to the controller.
        const OWN = 1 << 31;
    }
}

/// One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// First word.
    pub control: Control,
    /// Bytes, 4..=[`CHUNK`], a multiple of 4.
    pub bytes: u32,
    /// Bus address of the data, a multiple of 4.
    pub buffer: u64,
    /// Bus address of the next descriptor.
    pub next: u64,
}

impl Descriptor {
    /// The `k`-th descriptor of a transfer, given to the controller.
    #[must_use]
    pub fn chained(k: u32, bytes: u32, buffer: u64, next: u64, last: bool) -> Self {
        let mut control = Control::OWN | Control::CHAINED;
        control.set(Control::FIRST, k == 0);
        control.set(Control::LAST, last);
        control.set(Control::DIC, !last);
        Self { control, bytes, buffer, next }
    }

    /// As it lies in memory with 32-bit addresses, little-endian words. Bits 25:13 of the second word (a second buffer) stay 0.
    #[must_use]
    pub const fn words(&self) -> [u32; 4] {
        [self.control.bits(), self.bytes & 0x1fff, self.buffer as u32, self.next as u32]
    }

    /// The same with 64-bit addresses: the second and fourth words are reserved.
    #[must_use]
    pub const fn wide_words(&self) -> [u32; 8] {
        let [buffer, buffer_high] = [self.buffer as u32, (self.buffer >> 32) as u32];
        let [next, next_high] = [self.next as u32, (self.next >> 32) as u32];
        [self.control.bits(), 0, self.bytes & 0x1fff, 0, buffer, buffer_high, next, next_high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_descriptors_as_in_trace_c3() {
        let d = |k, next, last| Descriptor::chained(k, 0x800, 0x8000_2000, next, last).words();
        assert_eq!(d(0, 0x8000_1010, false), [0x8000_001a, 0x800, 0x8000_2000, 0x8000_1010]);
        assert_eq!(d(1, 0x8000_1020, false)[0], 0x8000_0012);
        assert_eq!(d(2, 0, true)[0], 0x8000_0014);
        assert_eq!(d(0, 0, true)[0], 0x8000_001c, "a single one is first and last");
    }

    #[test]
    fn wide_addresses_have_their_upper_halves() {
        let d = Descriptor::chained(0, 0x200, 0x1_2345_6780, 0x2_0000_0020, false);
        assert_eq!(d.wide_words(), [0x8000_001a, 0, 0x200, 0, 0x2345_6780, 1, 0x20, 2]);
    }
}

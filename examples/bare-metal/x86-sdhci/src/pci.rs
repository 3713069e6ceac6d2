//! As much of PCI as a driver of one device needs: find it by its class, read where its registers are, let it be bus master.

use crate::machine::{inl, outl};

/// SD host controller: base class 08, subclass 05.
pub const SD_HOST: u16 = 0x0805;

/// One function of one device.
#[derive(Clone, Copy)]
pub struct Function {
    /// Bus, device and function as the configuration address has them.
    at: u32,
}

impl Function {
    /// The first function of this class on any bus that the firmware has numbered.
    pub fn find(class: u16) -> Option<Self> {
        (0..0x1_0000_u32)
            .map(|n| Self { at: n << 8 })
            .find(|f| f.read(0) & 0xffff != 0xffff && f.read(8) >> 16 == class.into())
    }

    /// A register of its configuration space, by ports 0xcf8 and 0xcfc.
    pub fn read(self, register: u32) -> u32 {
        outl(0xcf8, 0x8000_0000 | self.at | register);
        inl(0xcfc)
    }

    /// The same, written.
    pub fn write(self, register: u32, value: u32) {
        outl(0xcf8, 0x8000_0000 | self.at | register);
        outl(0xcfc, value);
    }

    /// Its number on its bus.
    pub const fn device(self) -> u32 {
        self.at >> 11 & 31
    }

    /// Where the registers behind BAR `n` are; `None`: ports, nothing, or above 4 GiB, where nothing is mapped here.
    pub fn memory(self, n: u32) -> Option<u64> {
        let low = self.read(0x10 + 4 * n);
        let high = if low & 6 == 4 { self.read(0x14 + 4 * n) } else { 0 };
        (low & 1 == 0 && low & !15 != 0 && high == 0).then_some(u64::from(low & !15))
    }

    /// It answers to memory accesses, reads and writes memory, and may interrupt.
    pub fn enable(self) {
        const MEMORY: u32 = 1 << 1;
        const MASTER: u32 = 1 << 2;
        const NO_INTERRUPT: u32 = 1 << 10;
        // The upper half is status: writing zeros there clears nothing.
        let command = self.read(4) & 0xffff;
        self.write(4, (command | MEMORY | MASTER) & !NO_INTERRUPT);
    }
}

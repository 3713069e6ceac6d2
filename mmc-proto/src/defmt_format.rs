//! What goes over a debug probe: numbers as they are on the bus, little text. Plain types derive their format.

use crate::command::Command;
use crate::host::{HostError, Reply};
use crate::response::R1;
use crate::status::{CardState, CardStatus};
use defmt::{Debug2Format, Display2Format, Format, Formatter, write};

impl Format for Command {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "CMD{=u8} arg={=u32:#010x}", self.index, self.arg);
        if let Some(data) = self.data {
            write!(f, " {} {=u32}x{=u16}", Debug2Format(&data.dir), data.blocks, data.block_len);
        }
    }
}

impl Format for Reply {
    fn format(&self, f: Formatter<'_>) {
        let [a, b, c, d] = self.words;
        write!(f, "{=u32:08x} {=u32:08x} {=u32:08x} {=u32:08x} {=u64} bytes", a, b, c, d, self.bytes);
    }
}

impl Format for HostError {
    fn format(&self, f: Formatter<'_>) {
        let (cause, phase) = (Display2Format(&self.cause), Debug2Format(&self.phase));
        write!(f, "{} ({} phase of CMD{=u8}) R1 {:#010x}", cause, phase, self.index, self.r1);
    }
}

impl Format for CardStatus {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "{=u32:#010x} {}", self.bits(), self.state());
    }
}

impl Format for CardState {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "{}", Display2Format(self));
    }
}

impl Format for R1 {
    fn format(&self, f: Formatter<'_>) {
        self.0.format(f);
    }
}

//! The words for the faults of the controller model; one table for both directions.

use crate::dw::Fault;

/// Faults without a number.
pub(super) const SIMPLE: [(&str, Fault); 14] = [
    ("command-lost", Fault::CommandLost),
    ("no-response", Fault::NoResponse),
    ("response-crc", Fault::ResponseCrc),
    ("response-index", Fault::ResponseIndex),
    ("response-end-bit", Fault::ResponseEndBit),
    ("swallow-command-done", Fault::SwallowCommandDone),
    ("swallow-data-over", Fault::SwallowDataOver),
    ("stuck-start", Fault::StuckStart),
    ("lose-command", Fault::LoseCommand),
    ("stuck-reset", Fault::StuckReset),
    ("stuck-volt-switch", Fault::StuckVoltSwitch),
    ("remove", Fault::Remove),
    ("insert", Fault::Insert),
    ("power-fail", Fault::PowerFail),
];

/// A fault that takes an argument, by its name.
pub(super) type Named<T> = (&'static str, fn(T) -> Fault);

/// Faults with a block, a number of clocks or of accesses, or bits.
pub(super) const NUMBER: [Named<u32>; 10] = [
    ("response-delay", Fault::ResponseDelay),
    ("read-crc", Fault::ReadCrc),
    ("read-nothing", Fault::ReadNothing),
    ("read-start-bit", Fault::ReadStartBit),
    ("read-end-bit", Fault::ReadEndBit),
    ("write-crc", Fault::WriteCrc),
    ("write-nothing", Fault::WriteNothing),
    ("late-data", Fault::LateData),
    ("late-owner", Fault::LateOwner),
    ("spurious", Fault::Spurious),
];

/// Levels.
pub(super) const LEVEL: [Named<bool>; 3] =
    [("pin", Fault::Pin), ("write-protect", Fault::WriteProtect), ("sdio-interrupt", Fault::SdioInterrupt)];

/// The argument of a fault of [`NUMBER`].
pub(super) fn number(fault: Fault) -> Option<u32> {
    match fault {
        Fault::ResponseDelay(n)
        | Fault::ReadCrc(n)
        | Fault::ReadNothing(n)
        | Fault::ReadStartBit(n)
        | Fault::ReadEndBit(n)
        | Fault::WriteCrc(n)
        | Fault::WriteNothing(n)
        | Fault::LateData(n)
        | Fault::LateOwner(n)
        | Fault::Spurious(n) => Some(n),
        _ => None,
    }
}

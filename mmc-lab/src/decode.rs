//! What the bytes of registers, commands, responses and SDIO's tables mean, as names and values for people.
//!
//! Nothing is refused: whatever is wrong with the bytes is a [`Fault`] beside the fields that can still be read.

mod frame;
mod hex;
mod register;
pub mod sysfs;

pub use hex::parse_hex;

use mmc_proto::command::Dialect;
use mmc_proto::frame::FrameError;
use mmc_proto::register::sdio::Cccr;
use mmc_proto::register::{
    Cid, CrcPolicy, Csd, ExtCsd, MmcCid, MmcCidV1, MmcCsd, Ocr, RegisterError, Scr, Ssr, SwitchStatus,
};
use mmc_proto::rpmb;
use serde_json::{Map, Value};
use std::fmt;

/// What bytes are said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Card identification, 16 bytes.
    Cid,
    /// Card specific data, 16 bytes.
    Csd,
    /// SD configuration, 8 bytes.
    Scr,
    /// SD status, 64 bytes.
    Ssr,
    /// Operating conditions, 4 bytes.
    Ocr,
    /// Card status, 4 bytes; in SPI mode 1 byte.
    R1,
    /// Extended card specific data of eMMC, 512 bytes, byte 0 first.
    ExtCsd,
    /// Switch status of CMD6, 64 bytes.
    Switch,
    /// A command frame, 6 bytes.
    Cmd,
    /// A response frame, 6 or 17 bytes; in SPI mode 1, 2 or 5 bytes.
    Rsp,
    /// SDIO's card common control registers, 23 bytes.
    Cccr,
    /// The tuples of SDIO's card information structure, any length.
    Cis,
    /// A frame of the replay protected memory block, 512 bytes.
    Rpmb,
}

impl Kind {
    /// Every kind, as [`name`](Self::name) lists them.
    pub const ALL: [Self; 13] = [
        Self::Cid,
        Self::Csd,
        Self::Scr,
        Self::Ssr,
        Self::Ocr,
        Self::R1,
        Self::ExtCsd,
        Self::Switch,
        Self::Cmd,
        Self::Rsp,
        Self::Cccr,
        Self::Cis,
        Self::Rpmb,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cid => "cid",
            Self::Csd => "csd",
            Self::Scr => "scr",
            Self::Ssr => "ssr",
            Self::Ocr => "ocr",
            Self::R1 => "r1",
            Self::ExtCsd => "ext-csd",
            Self::Switch => "switch",
            Self::Cmd => "cmd",
            Self::Rsp => "rsp",
            Self::Cccr => "cccr",
            Self::Cis => "cis",
            Self::Rpmb => "rpmb",
        }
    }
    /// The kind of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
    /// Whether cards that speak `dialect` have such a thing.
    #[must_use]
    pub const fn exists_on(self, dialect: Dialect) -> bool {
        let mmc = matches!(dialect, Dialect::Mmc);
        match self {
            Self::Scr | Self::Ssr | Self::Switch | Self::Cccr | Self::Cis => !mmc,
            Self::ExtCsd | Self::Rpmb => mmc,
            _ => true,
        }
    }
    /// How many bytes there should be where `got` are; `None` if any number will do.
    #[must_use]
    pub const fn len(self, dialect: Dialect, got: usize) -> Option<usize> {
        let spi = matches!(dialect, Dialect::Spi);
        Some(match self {
            Self::Cid | Self::Csd => 16,
            Self::Scr => Scr::LEN,
            Self::Ssr => Ssr::LEN,
            Self::Switch => SwitchStatus::LEN,
            Self::R1 if spi => 1,
            Self::Ocr | Self::R1 => 4,
            Self::ExtCsd => ExtCsd::LEN,
            Self::Cmd => 6,
            Self::Rsp if spi => match got {
                0 | 1 => 1,
                2 => 2,
                _ => 5,
            },
            Self::Rsp if got <= 6 => 6,
            Self::Rsp => 17,
            Self::Cccr => Cccr::LEN,
            Self::Cis => return None,
            Self::Rpmb => rpmb::LEN,
        })
    }
}

/// What a decoder must be told besides the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Whose registers and commands they are.
    pub dialect: Dialect,
    /// The command follows CMD55.
    pub app: bool,
    /// Byte 192 of the EXT_CSD, on which the year of an MMC's CID depends.
    pub ext_csd_rev: Option<u8>,
    /// SPEC_VERS of the MMC's CSD is 0 or 1: its CID has another layout.
    pub mmc_v1: bool,
}

/// One thing that is wrong with the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A short name: `length`, `hex`, `crc`, `field`, `identity`, or what a frame lacks (`start_bit`, `direction`,
    /// `index`, `end_bit`).
    pub kind: &'static str,
    /// The field of the standard.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Fault {
    /// `CCC: is 0x0: a card without any command class`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

/// What was found in the bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Values by name, in the order of the standard. Names say the unit: `_bytes`, `_ns`, `_bps`, `_ma`, `_mv`.
    pub fields: Map<String, Value>,
    /// What is wrong; the first one found is the first.
    pub faults: Vec<Fault>,
    /// What is odd, or was taken for granted.
    pub notes: Vec<String>,
}

impl Decoded {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.into(), value.into());
    }
    fn flag(&mut self, name: &str, value: bool) {
        self.put(name, u8::from(value));
    }
    /// Takes what a register's own `fields` says.
    fn raw(&mut self) -> impl FnMut(&'static str, u64) + '_ {
        |name, value| self.put(name, value)
    }
    fn fault(&mut self, kind: &'static str, field: &str, why: String) {
        self.faults.push(Fault { kind, field: field.into(), why });
    }
    /// A field that holds `value`, which is wrong for the reason `why`.
    fn wrong(&mut self, field: &str, value: impl fmt::LowerHex, why: &str) {
        self.fault("field", field, format!("is {value:#x}: {why}"));
    }
    fn check(&mut self, verdict: Result<(), RegisterError>) {
        match verdict {
            Ok(()) => {}
            Err(RegisterError::Crc(state)) => self.fault("crc", "CRC7", state.to_string()),
            Err(RegisterError::Field { field, value, why }) => self.wrong(field, value, why),
            Err(e @ RegisterError::Identity) => self.fault("identity", "MID, PNM", e.to_string()),
            Err(e) => self.fault("length", "length", e.to_string()),
        }
    }
    fn check_frame(&mut self, error: &FrameError) {
        let field = match error.kind() {
            "start_bit" => "start bit",
            "direction" => "transmission bit",
            "end_bit" => "end bit",
            "crc" => "CRC7",
            other => other,
        };
        self.fault(error.kind(), field, error.to_string());
    }
    /// `fields` with `error`, `error_kind`, `error_field` (of the first fault; `error` has all of them) and `note`
    /// where there is something to say.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut object = self.fields.clone();
        if let Some(first) = self.faults.first() {
            let all: Vec<String> = self.faults.iter().map(Fault::to_string).collect();
            object.insert("error".into(), all.join("; ").into());
            object.insert("error_kind".into(), first.kind.into());
            object.insert("error_field".into(), first.field.clone().into());
        }
        if !self.notes.is_empty() {
            object.insert("note".into(), self.notes.join("; ").into());
        }
        Value::Object(object)
    }
}

/// What `bytes` say if they are of that `kind`. Of too many bytes the last ones are left out; of too few, what
/// depends on those that are missing.
#[must_use]
pub fn decode(kind: Kind, bytes: &[u8], context: &Context) -> Decoded {
    let got = bytes.len();
    let Some(len) = kind.len(context.dialect, got) else {
        return exact(kind, bytes, context);
    };
    if let Some((whole, rest)) = bytes.split_at_checked(len) {
        let mut d = exact(kind, whole, context);
        if !rest.is_empty() {
            let why = format!("{got} bytes where {len} are right: the last {} are left out", rest.len());
            d.faults.insert(0, Fault { kind: "length", field: "length".into(), why });
        }
        return d;
    }
    let mut d = Decoded::default();
    let left_out = "what depends on the missing ones is left out";
    d.fault("length", "length", format!("{got} bytes where {len} are right: {left_out}"));
    if got > 0 {
        // What the missing bytes have no say in comes out the same whatever they are.
        let [mut zeros, ones, mixed] = [0x00, 0xff, 0x5a].map(|filler| {
            let mut whole = bytes.to_vec();
            whole.resize(len, filler);
            exact(kind, &whole, context).fields
        });
        zeros.retain(|name, value| ones.get(name) == Some(value) && mixed.get(name) == Some(value));
        d.fields = zeros;
    }
    d
}

/// Bytes as hexadecimal text, as [`decode`] takes them.
#[must_use]
pub fn decode_text(kind: Kind, text: &str, context: &Context) -> Decoded {
    let (bytes, fault) = parse_hex(kind, context.dialect, text);
    let mut d = match (&fault, bytes.is_empty()) {
        (Some(_), true) => Decoded::default(),
        _ => decode(kind, &bytes, context),
    };
    d.faults.splice(0..0, fault);
    d
}

/// Bytes of the right length.
fn exact(kind: Kind, bytes: &[u8], context: &Context) -> Decoded {
    let mut d = Decoded::default();
    let mmc = context.dialect == Dialect::Mmc;
    let done = match kind {
        Kind::Cid if mmc && context.mmc_v1 => {
            MmcCidV1::parse(bytes).map(|r| register::mmc_cid_v1(&mut d, &r))
        }
        Kind::Cid if mmc => MmcCid::parse(bytes).map(|r| register::mmc_cid(&mut d, &r, context.ext_csd_rev)),
        Kind::Cid => Cid::parse(bytes).map(|r| register::cid(&mut d, &r)),
        Kind::Csd if mmc => MmcCsd::parse(bytes).map(|r| register::mmc_csd(&mut d, &r)),
        Kind::Csd => Csd::parse(bytes).map(|r| register::csd(&mut d, &r)),
        Kind::Scr => Scr::parse(bytes).map(|r| register::scr(&mut d, &r)),
        Kind::Ssr => Ssr::parse(bytes).map(|r| register::ssr(&mut d, &r)),
        Kind::Ocr => Ocr::parse(bytes).map(|r| register::ocr(&mut d, r, mmc)),
        Kind::ExtCsd => ExtCsd::parse(bytes).map(|r| register::ext_csd(&mut d, &r)),
        Kind::Switch => SwitchStatus::parse(bytes).map(|r| register::switch(&mut d, &r)),
        Kind::Cccr => Cccr::parse(bytes).map(|r| frame::cccr(&mut d, &r)),
        Kind::R1 => {
            frame::r1(&mut d, bytes, context.dialect);
            Ok(())
        }
        Kind::Cmd => {
            frame::command(&mut d, bytes, context);
            Ok(())
        }
        Kind::Rsp => {
            frame::response(&mut d, bytes, context.dialect);
            Ok(())
        }
        Kind::Cis => {
            frame::cis(&mut d, bytes);
            Ok(())
        }
        Kind::Rpmb => {
            frame::rpmb(&mut d, bytes);
            Ok(())
        }
    };
    d.check(done);
    d
}

/// The verdict on a register that is guarded by a CRC7: a wrong one does not hide what else is wrong.
fn check_sealed(d: &mut Decoded, check: impl Fn(CrcPolicy) -> Result<(), RegisterError>) {
    let verdict = check(CrcPolicy::Host);
    d.check(verdict);
    if matches!(verdict, Err(RegisterError::Crc(_))) {
        d.check(check(CrcPolicy::Ignore));
    }
}

/// Bytes as hexadecimal digits.
fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

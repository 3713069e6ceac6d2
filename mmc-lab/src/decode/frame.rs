//! What goes over the CMD line or SPI, SDIO's tables, and frames of the RPMB.

use super::{Context, Decoded, hex_of, register};
use mmc_proto::command::{Dialect, name};
use mmc_proto::frame::{CommandFrame, CommandText, LongFrame, ResponseFrame};
use mmc_proto::register::sdio::{Cccr, Tuples};
use mmc_proto::register::{CrcState, Ocr};
use mmc_proto::response::{R6, R7};
use mmc_proto::status::{CardState, CardStatus};
use mmc_proto::{rpmb as protected, spi};
use serde_json::Value;

/// The first four of `bytes` as a number.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

fn status(d: &mut Decoded, status: CardStatus, dialect: Dialect) {
    d.put("status", format!("{:08x}", status.bits()));
    d.put("current_state", status.state().code());
    d.put("state", status.state().to_string());
    let mut named = 0x1e00;
    for (name, flag) in CardStatus::all().iter_names() {
        named |= flag.bits();
        d.flag(&name.to_lowercase(), status.contains(flag));
    }
    if status.bits() & !named != 0 {
        d.notes.push(format!("bits {:#x} have no name in the standard", status.bits() & !named));
    }
    let reserved = match status.state() {
        CardState::Reserved(_) => true,
        CardState::Btst | CardState::Slp => dialect != Dialect::Mmc,
        CardState::Io => dialect == Dialect::Mmc,
        _ => false,
    };
    if reserved {
        d.wrong("CURRENT_STATE", status.state().code(), "a reserved code");
    }
}

/// Every bit of the byte by its name.
fn spi_r1(d: &mut Decoded, byte: u8) {
    let r1 = spi::R1::from_bits_retain(byte);
    d.put("r1", format!("{byte:02x}"));
    for (name, flag) in spi::R1::all().iter_names() {
        d.flag(&name.to_lowercase(), r1.contains(flag));
    }
    if spi::R1::from_byte(byte).is_none() {
        d.wrong("R1", byte, "bit 7 is 1: the card has not answered yet, or is out of step");
    }
}

pub(super) fn r1(d: &mut Decoded, bytes: &[u8], dialect: Dialect) {
    if dialect == Dialect::Spi {
        return spi_r1(d, bytes.first().copied().unwrap_or(0));
    }
    let bits = CardStatus::from_bits_retain(word(bytes));
    d.put("text", bits.to_string());
    status(d, bits, dialect);
}

pub(super) fn command(d: &mut Decoded, bytes: &[u8], context: &Context) {
    let (dialect, app) = (context.dialect, context.app);
    let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
    d.put("text", CommandText { bytes, dialect, app }.to_string());
    d.put("type", "command");
    d.put("index", first & 0x3f);
    d.put("name", name(first & 0x3f, dialect, app));
    d.put("arg", format!("{:08x}", word(&bytes[1..])));
    d.put("crc7", format!("{:02x}", last >> 1));
    d.put("frame", hex_of(bytes));
    if let Err(e) = CommandFrame::parse(bytes) {
        d.check_frame(&e);
    }
}

pub(super) fn response(d: &mut Decoded, bytes: &[u8], dialect: Dialect) {
    match (dialect, bytes) {
        (Dialect::Spi, [first, rest @ ..]) => spi_response(d, *first, rest),
        (_, bytes) if bytes.len() == 17 => long_response(d, bytes),
        (_, bytes) => short_response(d, bytes, dialect),
    }
}

fn spi_response(d: &mut Decoded, first: u8, rest: &[u8]) {
    d.put(
        "type",
        match rest.len() {
            0 => "R1",
            1 => "R2",
            _ => "R3/R7",
        },
    );
    spi_r1(d, first);
    match rest {
        [] => {}
        [second] => {
            d.put("r2", format!("{second:02x}"));
            let r2 = spi::R2::from_bits_retain(*second);
            // `error` is what a decoded object calls a fault.
            for (name, flag) in spi::R2::all().iter_names() {
                d.flag(&format!("r2_{}", name.to_lowercase()), r2.contains(flag));
            }
        }
        rest => {
            d.put("arg", format!("{:08x}", word(rest)));
            d.notes.push("the word is an OCR after CMD58 and an echo after CMD8".into());
        }
    }
}

fn long_response(d: &mut Decoded, bytes: &[u8]) {
    d.put("type", "R2");
    d.put("frame", hex_of(bytes));
    if let Ok(register) = <&[u8; 16]>::try_from(&bytes[1..]) {
        d.put("register", hex_of(register));
        d.put("crc_state", CrcState::of(register).name());
    }
    d.notes.push("the register is a CID or a CSD: only the command tells".into());
    if let Err(e) = LongFrame::parse(bytes) {
        d.check_frame(&e);
    }
}

fn short_response(d: &mut Decoded, bytes: &[u8], dialect: Dialect) {
    let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
    let (index, word) = (first & 0x3f, word(&bytes[1..]));
    let kind = match (dialect, index) {
        (_, 63) => "R3",
        (Dialect::Mmc, 39) => "R4",
        (Dialect::Mmc, 40) | (Dialect::Sd, 52 | 53) => "R5",
        (Dialect::Sd, 3) => "R6",
        (Dialect::Sd, 8) => "R7",
        _ => "R1",
    };
    d.put("type", kind);
    d.put("index", index);
    d.put("name", name(index, dialect, false));
    d.put("arg", format!("{word:08x}"));
    d.put("crc7", format!("{:02x}", last >> 1));
    d.put("frame", hex_of(bytes));
    let parsed = match kind {
        "R3" => ResponseFrame::parse_without_crc(bytes),
        _ => ResponseFrame::parse(bytes),
    };
    if let Err(e) = parsed {
        d.check_frame(&e);
    }
    match (kind, dialect) {
        ("R3", _) => register::ocr(d, Ocr(word), dialect == Dialect::Mmc),
        ("R6", _) => {
            d.put("rca", R6(word).rca());
            status(d, R6(word).status(), dialect);
        }
        ("R7", _) => {
            d.put("pattern", R7(word).pattern());
            d.put("voltage", R7(word).voltage());
            d.flag("pcie", R7(word).pcie());
            d.flag("pcie_1v2", R7(word).pcie_1v2());
        }
        ("R5", Dialect::Sd) => {
            let names = [(15, "com_crc_error"), (14, "illegal_command"), (11, "general_error")];
            for (bit, name) in names.into_iter().chain([(9, "function_number"), (8, "out_of_range")]) {
                d.put(name, (word >> bit) & 1);
            }
            d.put("io_state", (word >> 12) & 3);
            d.put("data", word & 0xff);
        }
        ("R1", _) => status(d, CardStatus::from_bits_retain(word), dialect),
        _ => {}
    }
}

pub(super) fn cccr(d: &mut Decoded, r: &Cccr) {
    let info = r.info();
    d.put("cccr_rev", info.cccr_rev);
    d.put("sdio_rev", info.sdio_rev);
    d.put("sd_rev", info.sd_rev);
    d.put("enabled", info.enabled);
    d.put("ready", info.ready);
    d.put("lines", info.lines);
    d.put("capabilities", info.capabilities);
    d.put("cis", info.cis);
    d.put("block_size", info.block_size);
    d.flag("high_speed", info.high_speed);
    d.put("uhs", info.uhs);
    d.check(r.check());
    if info.lines == 0 {
        d.wrong("bus width", r.at(7) & 3, "a reserved code");
    }
}

pub(super) fn cis(d: &mut Decoded, bytes: &[u8]) {
    let mut list = Vec::new();
    for tuple in Tuples::new(bytes) {
        let tuple = match tuple {
            Ok(tuple) => tuple,
            Err(e) => {
                d.fault("length", &format!("tuple {:#04x}", e.code), e.to_string());
                break;
            }
        };
        list.push(Value::from(format!("{:02x}:{}", tuple.code, hex_of(tuple.body))));
        if let Some((vendor, device)) = tuple.manfid() {
            d.put("manfid_vendor", vendor);
            d.put("manfid_device", device);
        }
        if let Some(code) = tuple.funcid() {
            d.put("funcid", code);
        }
        if let Some(bytes) = tuple.max_block_size() {
            d.put("max_block_bytes", bytes);
        }
        let texts: Vec<Value> = tuple.texts().map(|text| text.escape_ascii().to_string().into()).collect();
        if !texts.is_empty() {
            d.put("vers_1", texts);
        }
    }
    if list.is_empty() && d.faults.is_empty() {
        d.fault("field", "CIS", "no tuple before the end: all bits may be the same".into());
    }
    d.put("tuples", list);
}

pub(super) fn rpmb(d: &mut Decoded, bytes: &[u8]) {
    let frame = match protected::Frame::parse(bytes) {
        Ok(frame) => frame,
        Err(e) => return d.fault("length", "length", e.to_string()),
    };
    let kind = frame.kind();
    let (code, answer) = if kind > 0xff { (kind >> 8, true) } else { (kind, false) };
    let request = protected::Request::from_code(code).filter(|_| kind & 0xff == 0 || !answer);
    d.put("type", if answer { "answer" } else { "request" });
    d.put("request", code);
    d.put("request_name", request.map(|r| format!("{r:?}")));
    d.put("result", frame.result());
    d.put("result_text", frame.outcome().map_or_else(|e| e.to_string(), |()| "ok".into()));
    d.flag("counter_expired", frame.counter_expired());
    d.put("write_counter", frame.write_counter());
    d.put("address", frame.address());
    d.put("block_count", frame.block_count());
    d.put("nonce", format!("{:032x}", frame.nonce()));
    d.put("mac", hex_of(frame.mac()));
    d.put("data", hex_of(frame.data()));
    d.notes.push("the MAC was not checked: that takes the key".into());
    if request.is_none() {
        d.wrong("type", kind, "no request and no answer to one");
    }
    if let Err(e @ protected::Failure::Unknown(_)) = frame.outcome() {
        d.fault("field", "result", e.to_string());
    }
}

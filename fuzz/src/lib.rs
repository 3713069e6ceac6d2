//! Fuzz targets as plain functions over bytes: libFuzzer drives them behind a feature, `cargo test` runs the
//! checked-in corpora through them.
//!
//! It is not a test suite of its own: a target only asserts what must hold for any bytes whatever (no panic,
//! nothing lost on the way there and back, an end in bounded time).
//!
//! `ci/fuzz-smoke` runs every target on a stable toolchain; one of them for longer, with cargo-fuzz:
//!
//! ```text
//! cargo fuzz run --sanitizer none --features libfuzzer command_frame
//! ```

mod machines;
mod traces;

pub use machines::machines;
pub use traces::{tables, trace_binary, trace_text};

use mmc_proto::command::Dialect;
use mmc_proto::frame::{CommandFrame, CommandText, LongFrame, ResponseFrame};
use mmc_proto::host::Reply;
use mmc_proto::register::extension::{GeneralInfo, PerformanceSet, PowerSet};
use mmc_proto::register::sdio::{Cccr, Fbr, Tuples};
use mmc_proto::register::{
    Cid, CrcPolicy, CrcState, Csd, ExtCsd, MmcCid, MmcCsd, Ocr, Scr, Ssr, SwitchStatus, ext_csd as fields,
    mmc_year,
};
use mmc_proto::response::{R1, R2, R3, R6, R7};
use mmc_proto::rpmb;
use mmc_proto::spi::{self, DataResponse, ReadToken};
use std::hint::black_box;

/// A target: takes any bytes, panics only if a promise is broken.
pub type Target = fn(&[u8]);

/// Every target by name; the name is also that of its corpus folder and of its libFuzzer binary.
pub const TARGETS: &[(&str, Target)] = &[
    ("command_frame", command_frame),
    ("response", response),
    ("registers", registers),
    ("ext_csd", ext_csd),
    ("cis", cis),
    ("extension", extension),
    ("rpmb", rpmb),
    ("spi", spi),
    ("machines", machines),
    ("trace_text", trace_text),
    ("trace_binary", trace_binary),
    ("tables", tables),
];

/// The command parser: what parses is emitted as it was, and everything has a text.
///
/// # Panics
/// When a promise is broken.
pub fn command_frame(data: &[u8]) {
    match CommandFrame::parse(data) {
        Ok(frame) => assert_eq!(frame.emit(), data, "emit(parse(x)) is x"),
        Err(error) => assert!(!error.to_string().is_empty() && !error.kind().is_empty()),
    }
    for dialect in [Dialect::Sd, Dialect::Mmc, Dialect::Spi] {
        for app in [false, true] {
            let text = CommandText { bytes: data, dialect, app }.to_string();
            assert_eq!(text.ends_with(" ok"), CommandFrame::parse(data).is_ok(), "{text}");
        }
    }
}

/// Responses, as frames and as the words a host delivers.
///
/// # Panics
/// When a promise is broken.
pub fn response(data: &[u8]) {
    if let Ok(frame) = ResponseFrame::parse(data) {
        assert_eq!(frame.emit(), data);
    }
    if let Ok(frame) = ResponseFrame::parse_without_crc(data) {
        assert_eq!(ResponseFrame::parse_without_crc(&frame.emit_without_crc()), Ok(frame));
    }
    if let Ok(frame) = LongFrame::parse(data) {
        assert_eq!(frame.emit(), data);
    }
    let mut reply = Reply::default();
    for (word, chunk) in reply.words.iter_mut().zip(data.chunks_exact(4)) {
        *word = u32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    }
    let r1 = R1::from(&reply);
    assert_eq!(r1.0.bits(), reply.words[0], "R1 is kept verbatim");
    assert!(r1.0.to_string().contains(&r1.state().to_string()));
    let r6 = R6::from(&reply);
    assert_eq!(r6.status().bits() & 0x1fff, reply.words[0] & 0x1fff);
    let r7 = R7::from(&reply);
    black_box((
        r6.rca(),
        r7.pattern(),
        r7.voltage(),
        r7.pcie(),
        r7.pcie_1v2(),
        R3::from(&reply).0.to_string(),
    ));
    let r2 = R2::from(&reply);
    assert_eq!(r2.cid().emit(), r2.mmc_csd().emit());
    black_box((r2.csd().capacity_bytes(), r2.mmc_cid().pnm_text().to_string()));
}

/// Registers: total accessors, `emit(parse(x)) == x`, an `Info` that comes back, and no all-zero or all-one
/// register that passes its check.
///
/// # Panics
/// When a promise is broken.
pub fn registers(data: &[u8]) {
    let trap = data.iter().all(|b| *b == 0) || data.iter().all(|b| *b == 0xff);
    let mut sum = 0_u64;
    let mut see = |_: &'static str, value: u64| sum = sum.wrapping_add(value);
    if let Ok(r) = Csd::parse(data) {
        assert_eq!(r.emit(), data);
        r.fields(&mut see);
        assert_eq!(r.info().emit().info(), r.info());
        assert_eq!(r.info().emit().crc_state(), CrcState::Valid);
        let check = r.check(CrcPolicy::Host);
        assert!(!trap || check.is_err());
        if check.is_ok() {
            assert!(r.blocks() > 0, "a CSD that passes has a size");
        }
        let _ = black_box((r.check(CrcPolicy::Ignore), r.currents_ua(), r.tran_speed_bps(), r.taac_ps()));
        black_box((r.erase_sector_bytes(), r.has_class(data[0])));
    }
    if let Ok(r) = Cid::parse(data) {
        r.fields(&mut see);
        assert_eq!(r.info().emit().emit()[..15], data[..15]);
        assert!(!trap || r.check(CrcPolicy::Ignore).is_err());
        assert!(!r.pnm_text().to_string().is_empty() && !r.oid_text().to_string().is_empty());
    }
    if let Ok(r) = MmcCsd::parse(data) {
        r.fields(&mut see);
        assert_eq!(r.info().emit().info(), r.info());
        assert!(!trap || r.check(CrcPolicy::Ignore).is_err());
        black_box((r.csd_capacity_bytes(), r.erase_group_bytes(), r.tran_speed_hz(), r.taac_ps()));
    }
    if let Ok(r) = MmcCid::parse(data) {
        r.fields(&mut see);
        assert_eq!(r.info().emit().emit()[..15], data[..15]);
        assert!(!trap || r.check(CrcPolicy::Ignore).is_err());
        assert!((1997..=2038).contains(&mmc_year(r.mdt_year_code(), Some(data[0]))));
    }
    if let Ok(r) = Scr::parse(data) {
        r.fields(&mut see);
        assert_eq!(r.info().emit().info(), r.info());
        assert!(!trap || r.check().is_err());
        assert!(!r.version().to_string().is_empty());
    }
    if let Ok(r) = Ssr::parse(data) {
        r.fields(&mut see);
        assert_eq!(r.info().emit().info(), r.info());
        assert!(!trap || r.check().is_err());
        black_box((r.au_size_kib(), r.erase_ms_per_au(), r.cq_depth(), r.speed_class()));
    }
    if let Ok(r) = SwitchStatus::parse(data) {
        r.fields(&mut see);
        assert_eq!(r.info().emit().info(), r.info());
        assert!(!trap || r.check().is_err());
        black_box((r.can(data[0], data[1]), r.support(data[2]), r.selected(data[3])));
    }
    if let Ok(r) = Ocr::parse(data) {
        assert_eq!(r.emit(), data);
        assert!(!trap || r.check().is_err());
        assert!(!r.to_string().is_empty());
    }
    black_box(sum);
}

/// EXT_CSD, filled up with zeros: what is set is read again, and no all-zero or all-one register passes its check.
///
/// # Panics
/// When a promise is broken.
pub fn ext_csd(data: &[u8]) {
    let mut bytes = [0; 512];
    let n = data.len().min(512);
    bytes[..n].copy_from_slice(&data[..n]);
    let r = ExtCsd::new(bytes);
    assert_eq!(ExtCsd::parse(&r.emit()), Ok(r), "parse(emit(x)) is x");
    assert_eq!(ExtCsd::parse(data).is_ok(), data.len() == 512);
    let mut again = ExtCsd::new([0; 512]);
    for field in fields::ALL {
        again.set(*field, r.get(*field));
        assert_eq!(again.get(*field), r.get(*field), "{}", field.name);
    }
    let trap = bytes.iter().all(|b| *b == 0) || bytes.iter().all(|b| *b == 0xff);
    assert!(!trap || r.check().is_err());
    let info = r.info();
    assert_eq!(info.sectors.checked_mul(512), Some(r.capacity_bytes()));
    for n in 0..6 {
        black_box(r.gp_partition_bytes(n));
    }
    black_box((r.rev_name(), r.hc_wp_group_bytes(), r.sleep_awake_timeout_ns()));
    black_box((r.ini_timeout_ap_ms(), r.power_off_long_time_ms()));
}

/// SDIO's registers and the tuples of a CIS: every byte is looked at once at most, and an error is the last.
///
/// # Panics
/// When a promise is broken.
pub fn cis(data: &[u8]) {
    let (mut bytes, mut failed) = (0, false);
    for tuple in Tuples::new(data) {
        assert!(!failed, "something follows an error");
        match tuple {
            Ok(tuple) => {
                bytes += 2 + tuple.body.len();
                black_box((tuple.manfid(), tuple.funcid(), tuple.max_block_size()));
                assert!(tuple.texts().all(|text| !text.is_empty()));
            }
            Err(error) => {
                failed = true;
                assert!(error.len > error.left || error.left == 0, "{error}");
            }
        }
    }
    assert!(bytes <= data.len());
    if let Some(Ok(cccr)) = data.get(..Cccr::LEN).map(Cccr::parse) {
        assert_eq!(cccr.emit(), data[..Cccr::LEN]);
        black_box((cccr.info(), cccr.check().is_ok()));
    }
    if let Some(Ok(fbr)) = data.get(..Fbr::LEN).map(Fbr::parse) {
        black_box((fbr.interface(), fbr.cis(), fbr.block_size()));
    }
}

/// The general information page and the register sets: a bounded walk whatever the chain says.
///
/// # Panics
/// When a promise is broken.
pub fn extension(data: &[u8]) {
    black_box((PowerSet::parse(data), PerformanceSet::parse(data)));
    let mut page = [0; 512];
    let n = data.len().min(512);
    page[..n].copy_from_slice(&data[..n]);
    let info = GeneralInfo::parse(&page).expect("512 bytes");
    let mut found = 0;
    for extension in info.extensions() {
        found += 1;
        assert_eq!(extension.name.len(), 16);
        if let Some(address) = extension.address {
            assert!(address.offset() < 512 && address.function() < 16);
            black_box(address.read_arg());
        }
    }
    assert!(found <= usize::from(info.count()) && found <= 449, "{found}");
}

/// RPMB frames: what is parsed is emitted, and no answer is taken whose MAC is not right.
///
/// # Panics
/// When a promise is broken.
pub fn rpmb(data: &[u8]) {
    let mut frames = Vec::new();
    for chunk in data.chunks(rpmb::LEN) {
        match rpmb::Frame::parse(chunk) {
            Ok(frame) => {
                assert_eq!(frame.emit(), chunk);
                black_box((
                    frame.outcome().is_ok(),
                    frame.counter_expired(),
                    rpmb::Request::from_code(frame.kind()),
                ));
                frames.push(frame);
            }
            Err(error) => assert_eq!(error, rpmb::FrameError::Length(chunk.len())),
        }
    }
    // A MAC that cannot be in the last frame, whatever it holds.
    let other = |frames: &[rpmb::Frame]| {
        let mut mac = [1; 32];
        for (wrong, byte) in mac.iter_mut().zip(frames.last().map_or(&[][..], rpmb::Frame::mac)) {
            *wrong = !byte;
        }
        mac
    };
    for request in [rpmb::Request::ReadCounter, rpmb::Request::ReadData, rpmb::Request::ReadResult] {
        assert!(rpmb::verify(&frames, request, None, |_| other(&frames)).is_err());
    }
}

/// SPI tokens: each byte is one thing in each place.
///
/// # Panics
/// When a promise is broken.
pub fn spi(data: &[u8]) {
    for &byte in data {
        if let Some(r1) = spi::R1::from_byte(byte) {
            assert!(r1.bits() == byte && byte < 0x80);
            assert!(!r1.ends_here() || r1.is_error());
        }
        match ReadToken::from_byte(byte) {
            ReadToken::Error(error) => assert_eq!(error.bits(), byte),
            ReadToken::Unknown(same) => assert_eq!(same, byte),
            ReadToken::Wait => assert_eq!(byte, spi::IDLE),
            ReadToken::Start => assert_eq!(byte, spi::START_BLOCK),
        }
        assert!(DataResponse::from_byte(byte).is_none() || byte & 0x11 == 1);
        black_box((spi::tail(byte, byte & 1 == 1), spi::is_ready(byte), spi::R2::from_bits_retain(byte)));
    }
    black_box(spi::block_crc(data));
}

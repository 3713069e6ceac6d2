//! `mmc-proto`: frames, checksums, every register, the machines over a supervised host.
#![no_std]
#![no_main]
use core::marker::PhantomData;
use mmc_hal::Dir;
use mmc_proto::command::{Command, Response};
use mmc_proto::crc;
use mmc_proto::frame::{CommandFrame, LongFrame, ResponseFrame};
use mmc_proto::host::{Capabilities, Host, Supervised};
use mmc_proto::machine::{CardTraits, Conductor, Identify, Machine, Transfer, TransferOptions};
use mmc_proto::register::{Cid, CrcPolicy, Csd, ExtCsd, MmcCid, MmcCsd, Ocr, Scr, Ssr, SwitchStatus};
use mmc_time::{Duration, Instant};
use no_panic::{AnyEngine, sink};

type Buffer = [u8; 512];

fn drive<M: Machine>(machine: M, host: &mut impl Host<Payload = Buffer>) {
    let mut c = Conductor::new(machine, Some([0; 512]));
    for i in 0..sink(100_u64) {
        sink(c.poll(host, Instant::from_nanos(i)));
    }
}

macro_rules! registers {
    ($bytes:ident: $($ty:ident),*) => {$(
        if let Ok(r) = $ty::parse($bytes) {
            sink(r.info().emit());
        }
    )*};
}

fn main() {
    let block: Buffer = sink([0; 512]);
    let bytes = block.get(..sink(17)).unwrap_or(&[]);
    sink((crc::crc7(bytes), crc::crc7_byte(bytes), crc::crc16(&block), crc::crc16_lines4(&block), crc::crc16_lines8(&block)));
    if let Ok(f) = CommandFrame::parse(bytes) {
        sink(f.emit());
    }
    if let Ok(f) = ResponseFrame::parse(bytes) {
        sink((f.emit(), f.emit_without_crc()));
    }
    sink(ResponseFrame::parse_without_crc(bytes).is_ok());
    if let Ok(f) = LongFrame::parse(bytes) {
        sink(f.emit());
    }
    registers!(bytes: Cid, Csd, MmcCid, MmcCsd, Scr, Ssr, SwitchStatus);
    sink(Ocr::parse(bytes).is_ok());
    let words = sink([0_u32; 4]);
    sink(Cid::from_words(words).check(CrcPolicy::Wire).is_ok());
    let csd = Csd::from_words(words);
    sink((csd.check(CrcPolicy::Wire).is_ok(), csd.blocks(), csd.taac_ps(), csd.tran_speed_bps()));
    if let Ok(e) = ExtCsd::parse(&block) {
        sink((e.check().is_ok(), e.capacity_bytes(), e.sleep_awake_timeout_ns(), e.erase_timeout_ms()));
    }
    let mut host = Supervised::new(AnyEngine::<Buffer>(PhantomData), Duration::from_millis(1));
    drive(Identify::new(&Capabilities::new()), &mut host);
    let card: CardTraits = CardTraits {
        rca: sink(1),
        blocks: sink(1 << 20),
        byte_addressed: sink(false),
        cmd23: sink(true),
        read_limit: Duration::from_millis(sink(100)),
        write_limit: Duration::from_millis(sink(500)),
        block_time: Duration::from_micros(sink(40)),
    };
    for dir in [Dir::Read, Dir::Write] {
        drive(Transfer::new(&card, dir, sink(7), sink(1), TransferOptions::default()), &mut host);
    }
    host.abort(Instant::ZERO);
    sink(host.reclaim(Instant::ZERO).is_some());
    sink(Command::plain(sink(13), sink(0), Response::Short));
}
no_panic::program!(main);

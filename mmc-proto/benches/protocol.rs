//! What encoding and decoding cost: frames, registers and the CRC16 of a block.
//!
//! `cargo bench -p mmc-proto`; the CRC16 once more with `--features crc-large-table`.
#![allow(missing_docs, reason = "criterion's macros write functions")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use mmc_proto::crc::{crc16, crc16_lines4, crc16_lines8};
use mmc_proto::frame::{CommandFrame, LongFrame, ResponseFrame};
use mmc_proto::register::{CrcPolicy, Csd, ExtCsd};
use std::hint::black_box;

/// An SDHC card's CSD and an eMMC's EXT_CSD size and mode fields: decoding looks at every field whatever it holds.
const CSD: [u8; 16] =
    [0x40, 0x0e, 0x00, 0x32, 0x5b, 0x59, 0, 0, 0x3b, 0x37, 0x7f, 0x80, 0x0a, 0x40, 0x40, 0x0d];

fn frames(c: &mut Criterion) {
    let command = CommandFrame { index: 18, arg: 0x2000 };
    let response = ResponseFrame { index: 18, word: 0x900 }.emit();
    let long = LongFrame(CSD).emit();
    let mut group = c.benchmark_group("frame");
    group.bench_function("command emit", |b| b.iter(|| black_box(command).emit()));
    group.bench_function("command parse", |b| {
        let bytes = command.emit();
        b.iter(|| CommandFrame::parse(black_box(&bytes)))
    });
    group.bench_function("response parse", |b| b.iter(|| ResponseFrame::parse(black_box(&response))));
    group.bench_function("long response parse", |b| b.iter(|| LongFrame::parse(black_box(&long))));
    group.finish();
}

fn registers(c: &mut Criterion) {
    let mut group = c.benchmark_group("register");
    group.bench_function("CSD check and info", |b| {
        b.iter(|| {
            let csd = Csd::new(black_box(CSD));
            (csd.check(CrcPolicy::Wire), csd.info(), csd.capacity_bytes())
        })
    });
    let ext_csd = ExtCsd::new(core::array::from_fn(|at| at as u8));
    group.bench_function("EXT_CSD check and info", |b| {
        b.iter_batched_ref(|| ext_csd, |e| (e.check(), e.info()), BatchSize::SmallInput)
    });
    group.finish();
}

fn checksums(c: &mut Criterion) {
    let block: [u8; 512] = core::array::from_fn(|at| at as u8);
    let mut group = c.benchmark_group("CRC16 of 512 bytes");
    group.throughput(Throughput::Bytes(512));
    group.bench_function("one line or SPI", |b| b.iter(|| crc16(black_box(&block))));
    group.bench_function("four lines", |b| b.iter(|| crc16_lines4(black_box(&block))));
    group.bench_function("eight lines", |b| b.iter(|| crc16_lines8(black_box(&block))));
    group.finish();
}

criterion_group!(benches, frames, registers, checksums);
criterion_main!(benches);

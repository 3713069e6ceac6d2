//! What the suites say to a card, on any host.

use mmc_block::Idle;
use mmc_hal::{Batch, Dir, Payload};
use mmc_mock::{Buf, BufBatch};
use mmc_proto::host::Host;
use mmc_proto::machine::{CardTraits, Conductor, Machine, Transfer, TransferError, TransferOptions, Turn};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that repeat nowhere near.
#[must_use]
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let byte = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(byte).collect()
}

/// What is in an image.
///
/// # Panics
/// If it is not that long.
#[must_use]
pub fn stored(image: &Path, lba: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(image).expect("an image");
    file.read_exact_at(&mut bytes, lba * 512).expect("so many bytes");
    bytes
}

/// Buffers of these lengths with `data` in them.
///
/// # Panics
/// If `data` is shorter.
#[must_use]
pub fn cut(data: &[u8], lens: &[usize]) -> BufBatch {
    let (mut batch, mut at) = (BufBatch::new(lens.len()), 0);
    for &len in lens {
        batch.push(Buf(data[at..at + len].to_vec()), 0, len).expect("room for all");
        at += len;
    }
    batch
}

/// All bytes of the buffers.
#[must_use]
pub fn bytes(batch: &BufBatch) -> Vec<u8> {
    (0..batch.segments()).filter_map(|i| batch.segment(i)).flatten().copied().collect()
}

/// Holds a conversation.
pub fn converse<H: Host<Payload = BufBatch>, T: Machine>(
    host: &mut H,
    idle: &mut impl Idle,
    machine: T,
    payload: Option<BufBatch>,
) -> (T::Output, Option<BufBatch>) {
    let mut conductor = Conductor::new(machine, payload);
    loop {
        match conductor.poll(host, idle.now()) {
            Turn::Done(output, payload) => return (output, payload),
            Turn::Wait { until, .. } => idle.wait(until),
        }
    }
}

/// Moves whole blocks; how many, and what is in the buffers afterwards.
///
/// # Panics
/// If the buffers do not come back.
pub fn transfer<H: Host<Payload = BufBatch>>(
    host: &mut H,
    idle: &mut impl Idle,
    card: &CardTraits,
    dir: Dir,
    lba: u64,
    payload: BufBatch,
    open_ended: bool,
) -> (Result<u32, TransferError>, Vec<u8>) {
    let blocks = u32::try_from(payload.bytes() / 512).unwrap_or(u32::MAX);
    let machine = Transfer::new(card, dir, lba, blocks, TransferOptions { open_ended });
    let (result, payload) = converse(host, idle, machine, Some(payload));
    (result, bytes(&payload.expect("the buffers come back")))
}

//! The replay protected memory block, with frames and MACs of `mmc-proto`.

use crate::bench::{Bench, RCA, emmc};
use mmc_mock::card::Card;
use mmc_proto::rpmb::{Failure, Frame, FrameError, Request, SoftwareHmac, seal, verify};

const KEY: [u8; 32] = [0x5a; 32];
const RELIABLE: u32 = 1 << 31;

fn hmac(parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
    SoftwareHmac::new(&KEY).mac(parts)
}
fn bench() -> Bench {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(179, 3), "the RPMB");
    b
}
fn send(b: &mut Bench, frames: &[Frame], flags: u32) {
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::emit).collect();
    b.write_counted(0, frames.len() as u32 | flags, &bytes);
}
fn answer(b: &mut Bench, n: u32) -> Vec<Frame> {
    b.read_counted(0, n).chunks(512).map(|f| Frame::parse(f).unwrap()).collect()
}
/// The result of the last write, with its MAC checked where there is a key.
fn result(b: &mut Bench) -> Frame {
    send(b, &[Frame::new(Request::ReadResult)], 0);
    answer(b, 1)[0]
}
fn with_key() -> Bench {
    let mut b = bench();
    send(&mut b, &[Frame::new(Request::ProgramKey).with_mac(&KEY)], RELIABLE);
    let said = result(&mut b);
    assert_eq!((said.kind(), said.outcome()), (0x100, Ok(())));
    b
}
/// Data of `n` units from `address` on, sealed.
fn data(address: u16, n: u16, counter: u32, fill: u8) -> Vec<Frame> {
    let frame = Frame::new(Request::WriteData).with_address(address).with_block_count(n);
    let mut frames: Vec<Frame> =
        (0..n).map(|i| frame.with_write_counter(counter).with_data(&[fill + i as u8; 256])).collect();
    seal(&mut frames, hmac);
    frames
}
fn read(b: &mut Bench, address: u16, n: u32) -> Result<Vec<u8>, FrameError> {
    send(b, &[Frame::new(Request::ReadData).with_address(address).with_nonce(7)], 0);
    let frames = answer(b, n);
    verify(&frames, Request::ReadData, Some(7), hmac)?;
    Ok(frames.iter().map(|f| f.data()[0]).collect())
}

#[test]
fn without_a_key_nothing_works_and_it_is_programmed_once() {
    let mut b = bench();
    send(&mut b, &[Frame::new(Request::ReadCounter).with_nonce(1)], 0);
    assert_eq!(answer(&mut b, 1)[0].outcome(), Err(Failure::NoKey));
    send(&mut b, &data(0, 1, 0, 1), RELIABLE);
    assert_eq!(result(&mut b).outcome(), Err(Failure::NoKey));
    // The key has to come as a reliable write.
    send(&mut b, &[Frame::new(Request::ProgramKey).with_mac(&KEY)], 0);
    assert_eq!(result(&mut b).outcome(), Err(Failure::General));
    send(&mut b, &[Frame::new(Request::ProgramKey).with_mac(&KEY)], RELIABLE);
    assert_eq!(result(&mut b).outcome(), Ok(()));
    send(&mut b, &[Frame::new(Request::ProgramKey).with_mac(&[1; 32])], RELIABLE);
    assert_eq!(result(&mut b).outcome(), Err(Failure::Write), "once for ever");
    assert_eq!(*b.card.rpmb_key_mut(), Some(KEY));
    b.power_cycle();
    b.identify();
    assert!(b.switch(179, 3));
    send(&mut b, &[Frame::new(Request::ReadCounter).with_nonce(9)], 0);
    assert_eq!(verify(&answer(&mut b, 1), Request::ReadCounter, Some(9), hmac), Ok(()));
    b.no_violations();
}

#[test]
fn data_are_written_by_who_holds_the_key_and_each_write_counts() {
    let mut b = with_key();
    send(&mut b, &data(4, 2, 0, 0x10), RELIABLE);
    let said = result(&mut b);
    assert_eq!(verify(&[said], Request::WriteData, None, hmac), Ok(()));
    assert_eq!((said.write_counter(), said.address()), (1, 4));
    // Enhanced reliable writes: 32 units at once.
    send(&mut b, &data(8, 32, 1, 0x40), RELIABLE);
    assert_eq!(result(&mut b).outcome(), Ok(()));
    assert_eq!(read(&mut b, 4, 2), Ok(vec![0x10, 0x11]));
    assert_eq!(read(&mut b, 39, 2), Ok(vec![0x5f, 0]));
    send(&mut b, &[Frame::new(Request::ReadCounter).with_nonce(5)], 0);
    let counter = answer(&mut b, 1);
    assert_eq!(
        (verify(&counter, Request::ReadCounter, Some(5), hmac), counter[0].write_counter()),
        (Ok(()), 2)
    );
    assert_eq!(verify(&counter, Request::ReadCounter, Some(6), hmac), Err(FrameError::Nonce));
    b.no_violations();
}

#[test]
fn what_is_wrong_with_a_write_is_told_and_changes_nothing() {
    let mut b = with_key();
    let mut forged = data(0, 1, 0, 9);
    forged[0] = forged[0].with_data(&[8; 256]);
    let last = 512;
    let cases = [
        (forged, Failure::Authentication),
        (data(0, 1, 1, 9), Failure::Counter),
        (data(last, 1, 0, 9), Failure::Address),
        (data(last - 1, 2, 0, 9), Failure::Address),
        (data(0, 3, 0, 9), Failure::General),
    ];
    for (frames, failure) in cases {
        send(&mut b, &frames, RELIABLE);
        assert_eq!(result(&mut b).outcome(), Err(failure));
    }
    send(&mut b, &data(0, 1, 0, 9), 0);
    assert_eq!(result(&mut b).outcome(), Err(Failure::General), "not reliable");
    assert_eq!(read(&mut b, 0, 2), Ok(vec![0, 0]));
    assert_eq!(read(&mut b, last, 1), Err(FrameError::Failed(Failure::Address)));
    assert_eq!(*b.card.rpmb_counter_mut(), 0);
    // A replay of a write that was good once.
    let good = data(0, 1, 0, 9);
    send(&mut b, &good, RELIABLE);
    assert_eq!(result(&mut b).outcome(), Ok(()));
    send(&mut b, &good, RELIABLE);
    assert_eq!(result(&mut b).outcome(), Err(Failure::Counter));
}

#[test]
fn a_counter_that_has_run_out_ends_all_writing() {
    let mut b = with_key();
    *b.card.rpmb_counter_mut() = u32::MAX - 1;
    send(&mut b, &data(0, 1, u32::MAX - 1, 3), RELIABLE);
    let said = result(&mut b);
    assert_eq!((said.outcome(), said.counter_expired()), (Ok(()), true));
    send(&mut b, &data(0, 1, u32::MAX, 4), RELIABLE);
    let said = result(&mut b);
    assert_eq!((said.outcome(), said.counter_expired()), (Err(Failure::Write), true));
    assert_eq!(read(&mut b, 0, 1), Ok(vec![3]), "reading goes on");
}

#[test]
fn the_device_configuration_is_written_and_read_back() {
    let mut b = with_key();
    let mut config = [Frame::new(Request::WriteConfig).with_block_count(1).with_data(&[1; 256])];
    seal(&mut config, hmac);
    send(&mut b, &config, RELIABLE);
    assert_eq!(verify(&[result(&mut b)], Request::WriteConfig, None, hmac), Ok(()));
    send(&mut b, &[Frame::new(Request::ReadConfig).with_nonce(3)], 0);
    let back = answer(&mut b, 1);
    assert_eq!((verify(&back, Request::ReadConfig, Some(3), hmac), back[0].data()[0]), (Ok(()), 1));
    assert_eq!(b.ext_csd()[211], 3, "secure write protection is supported and enabled");
}

#[test]
fn only_its_own_commands_are_legal_there_and_each_needs_its_count() {
    let mut b = with_key();
    for (index, arg) in [(17, 0), (24, 0), (35, 0), (16, 512), (42, 0), (28, 0), (21, 0), (18, 0), (25, 0)] {
        assert!(b.cmd(index, arg).is_none(), "CMD{index}");
        assert_eq!(b.short(13, RCA) >> 22 & 1, 1, "CMD{index}");
    }
    // A read that nobody asked for, and a request that is none.
    assert_eq!(answer(&mut b, 1)[0].outcome(), Err(Failure::General));
    send(&mut b, &[Frame::new(Request::ReadCounter).with_kind(99)], 0);
    assert_eq!(answer(&mut b, 1)[0].outcome(), Err(Failure::General));
    assert!(b.switch(179, 0));
    assert_eq!(b.read(0), 0);
    // Cards before 4.4 have none.
    assert!(!Bench::new(emmc(3)).switch(179, 3));
    assert!(b.card.violations().len() >= 9);
}

//! RPMB frames: the vector with its MAC, and each way an answer can be wrong.

use mmc_proto::rpmb::{Failure, Frame, FrameError, Request, SoftwareHmac, seal, verify};
use proptest::prelude::*;

const KEY: [u8; 32] = {
    let mut key = [0; 32];
    let mut i = 0;
    while i < 32 {
        key[i] = i as u8;
        i += 1;
    }
    key
};

fn hmac(parts: &mut dyn Iterator<Item = &[u8]>) -> [u8; 32] {
    SoftwareHmac::new(&KEY).mac(parts)
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn the_vector_is_built_byte_by_byte_and_has_the_stated_mac() {
    let text = include_str!("data/cards/frames.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let v = all.as_array().unwrap().iter().find(|f| f["type"] == "rpmb_frame").unwrap();
    let frame = Frame::new(Request::WriteData)
        .with_write_counter(7)
        .with_address(2)
        .with_block_count(1)
        .with_data(&[0xa5; 256]);
    let mut frames = [frame];
    seal(&mut frames, hmac);
    assert_eq!(frames[0].emit().to_vec(), hex(v["frame"].as_str().unwrap()));
    assert_eq!(frames[0].mac(), hex(v["mac"].as_str().unwrap()));
    let parsed = Frame::parse(&frames[0].emit()).unwrap();
    assert_eq!((parsed.write_counter(), parsed.address(), parsed.block_count(), parsed.kind()), (7, 2, 1, 3));
}

/// The device's answer to a read of two units with this nonce.
fn answer(nonce: u128) -> [Frame; 2] {
    let frame = |fill| {
        Frame::new(Request::ReadData)
            .with_kind(Request::ReadData.answer())
            .with_nonce(nonce)
            .with_block_count(2)
            .with_data(&[fill; 256])
    };
    let mut frames = [frame(1), frame(2)];
    seal(&mut frames, hmac);
    frames
}

#[test]
fn a_mac_that_is_wrong_in_any_byte_is_refused_also_where_two_are_wrong_alike() {
    for (a, b) in (0..32).flat_map(|a| (0..=a).map(move |b| (a, b))) {
        let forged = answer(77).map(|frame| {
            let mut mac: [u8; 32] = frame.mac().try_into().unwrap();
            mac[a] ^= 0x40;
            if b < a {
                mac[b] ^= 0x40;
            }
            frame.with_mac(&mac)
        });
        assert_eq!(
            verify(&forged, Request::ReadData, Some(77), hmac),
            Err(FrameError::Mac),
            "bytes {a} and {b}"
        );
    }
}

#[test]
fn an_answer_is_taken_only_if_all_of_it_is_right() {
    let check = |frames: &[Frame], nonce| verify(frames, Request::ReadData, nonce, hmac);
    let good = answer(77);
    assert_eq!(check(&good, Some(77)), Ok(()));
    assert_eq!(check(&good, Some(78)), Err(FrameError::Nonce));
    assert_eq!(check(&[], None), Err(FrameError::Length(0)));
    assert_eq!(check(&good[1..], None), Err(FrameError::Mac), "a frame is missing");
    assert_eq!(check(&[good[0], good[1].with_data(&[3; 256])], None), Err(FrameError::Mac));
    assert_eq!(
        check(&[good[0], good[1].with_kind(0x300)], None),
        Err(FrameError::Type { expected: 0x400, got: 0x300 })
    );
    for (code, failure) in [
        (1, Failure::General),
        (2, Failure::Authentication),
        (3, Failure::Counter),
        (4, Failure::Address),
        (5, Failure::Write),
        (6, Failure::Read),
        (0x87, Failure::NoKey),
        (0x1234, Failure::Unknown(0x1234)),
    ] {
        let bad = [good[0].with_result(code), good[1]];
        assert_eq!(check(&bad, None), Err(FrameError::Failed(failure)));
    }
    assert!(good[0].with_result(0x80).counter_expired() && good[0].with_result(0x80).outcome().is_ok());
}

#[test]
fn requests_and_codes_belong_together() {
    for code in 0..=u16::MAX {
        match Request::from_code(code) {
            Some(request) => assert_eq!((request.code(), request.answer()), (code, code * 256)),
            None => assert!(code == 0 || code > 7),
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_frame_or_of_the_wrong_length(bytes in proptest::collection::vec(any::<u8>(), 500..520)) {
        match Frame::parse(&bytes) {
            Ok(frame) => {
                prop_assert_eq!(&frame.emit()[..], &bytes[..]);
                let again = frame
                    .with_kind(frame.kind()).with_result(frame.result()).with_address(frame.address())
                    .with_block_count(frame.block_count()).with_write_counter(frame.write_counter()).with_nonce(frame.nonce());
                prop_assert_eq!(again, frame);
                prop_assert!(verify(&[frame], Request::ReadCounter, None, hmac).is_err());
            }
            Err(e) => prop_assert_eq!(e, FrameError::Length(bytes.len())),
        }
    }

    #[test]
    fn one_flipped_bit_of_what_is_authenticated_is_noticed(bit in 0_usize..2 * 284 * 8) {
        let mut frames = answer(5).map(|f| f.emit());
        let (frame, bit) = (bit / (284 * 8), bit % (284 * 8));
        frames[frame][228 + bit / 8] ^= 1 << (bit % 8);
        let frames = frames.map(|bytes| Frame::parse(&bytes).unwrap());
        prop_assert!(verify(&frames, Request::ReadData, Some(5), hmac).is_err());
    }
}

//! Registers and frames of real cards: every file of `data/cards` decodes to its `expected` values.

use mmc_proto::command::{Dialect, name};
use mmc_proto::crc;
use mmc_proto::frame::{CommandFrame, LongFrame, ResponseFrame};
use mmc_proto::register::{
    Cid, CrcPolicy, CrcState, Csd, ExtCsd, MmcCid, MmcCsd, Ocr, RegisterError, Scr, Ssr, SwitchStatus,
    ext_csd, mmc_year,
};
use serde_json::{Map, Value};
use std::path::PathBuf;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/cards").join(name)
}

fn load(path: &PathBuf) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len() % 2 == 0, "{text}");
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn cards() -> Vec<(String, Value)> {
    let mut cards: Vec<_> = std::fs::read_dir(data(""))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap() != "frames.json")
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), load(&path)))
        .collect();
    cards.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(cards.len() >= 20, "{}", cards.len());
    cards
}

/// The fields of a register by name, as its own `fields` calls them.
type Fields = Map<String, Value>;

/// Parses, collects the fields, emits.
macro_rules! read {
    ($register:ty, $bytes:expr) => {{
        let r = <$register>::parse($bytes).unwrap();
        let mut fields = Fields::new();
        r.fields(&mut |name, value| {
            fields.insert(name.into(), value.into());
        });
        (r, fields, r.emit().to_vec())
    }};
}

/// Every bit field has its expected value; what is derived from several, and the texts, are compared by
/// `mmc-lab/tests/decode.rs`, whose command prints them, but for the sizes.
#[test]
fn every_register_of_every_card_decodes_to_its_expected_values() {
    let (mut registers, mut compared) = (0, 0);
    for (id, card) in cards() {
        let sd = card["kind"] == "sd";
        for (register, text) in card["registers"].as_object().unwrap() {
            let bytes = hex(text.as_str().unwrap());
            let expected = &card["expected"][register];
            // Not every layout has every one of them.
            let size = |name: &str, got: u64| {
                if let Some(want) = expected.get(name) {
                    assert_eq!(*want, got, "{id} {register} {name}");
                }
            };
            let (fields, back) = match (sd, register.as_str()) {
                (true, "cid") => {
                    let (r, fields, back) = read!(Cid, &bytes);
                    assert_eq!(expected["pnm"], r.pnm_text().to_string());
                    (fields, back)
                }
                (true, "csd") => {
                    let (r, fields, back) = read!(Csd, &bytes);
                    size("capacity_bytes", r.capacity_bytes());
                    size("erase_sector_bytes", r.erase_sector_bytes().into());
                    (fields, back)
                }
                (true, "scr") => {
                    let (r, fields, back) = read!(Scr, &bytes);
                    assert_eq!(expected["physical_layer_version"], r.version().to_string());
                    (fields, back)
                }
                (true, "ssr") => {
                    let (r, fields, back) = read!(Ssr, &bytes);
                    size("au_size_kib", r.au_size_kib().into());
                    (fields, back)
                }
                (true, "switch_status") => {
                    let (r, fields, back) = read!(SwitchStatus, &bytes);
                    for group in 1..=6 {
                        assert_eq!(expected["selected"][format!("g{group}")], r.selected(group));
                        assert_eq!(
                            expected["support"][format!("g{group}")],
                            format!("{:04x}", r.support(group))
                        );
                    }
                    (fields, back)
                }
                (_, "ocr") => {
                    let r = Ocr::parse(&bytes).unwrap();
                    let fields = Fields::from_iter([("power_up".into(), u8::from(r.power_up()).into())]);
                    (fields, r.emit().to_vec())
                }
                (false, "cid") => {
                    let (r, fields, back) = read!(MmcCid, &bytes);
                    let rev = card["context"]["ext_csd_rev"].as_u64().map(|rev| u8::try_from(rev).unwrap());
                    let rev = rev.or_else(|| Some(hex(card["registers"].get("ext_csd")?.as_str()?)[192]));
                    size("mdt_year", mmc_year(r.mdt_year_code(), rev).into());
                    (fields, back)
                }
                (false, "csd") => {
                    let (r, fields, back) = read!(MmcCsd, &bytes);
                    size("csd_capacity_bytes", r.csd_capacity_bytes());
                    size("erase_group_bytes", r.erase_group_bytes());
                    (fields, back)
                }
                (false, "ext_csd") => {
                    let r = ExtCsd::parse(&bytes).unwrap();
                    size("capacity_bytes", r.capacity_bytes());
                    size("hc_wp_group_bytes", r.hc_wp_group_bytes());
                    size("sleep_awake_timeout_ns", r.sleep_awake_timeout_ns());
                    size("cmdq_depth", r.cmdq_depth().into());
                    // The name of that field alone stands for something derived from it.
                    let all = ext_csd::ALL.iter().filter(|f| **f != ext_csd::CMDQ_DEPTH);
                    (all.map(|f| (f.name.to_lowercase(), r.get(*f).into())).collect(), r.emit().to_vec())
                }
                other => panic!("{id}: no decoder for {other:?}"),
            };
            for (name, have) in &fields {
                if let Some(want @ Value::Number(_)) = expected.get(name) {
                    assert_eq!(have, want, "{id} {register} {name}");
                    compared += 1;
                }
            }
            assert_eq!(back, bytes, "{id} {register}: emit(parse(x)) is x");
            registers += 1;
        }
    }
    assert!(registers >= 60 && compared >= 1000, "{compared} fields of {registers} registers were compared");
}

#[test]
fn good_cards_pass_the_checks_and_each_bad_one_fails_for_its_reason() {
    for (id, card) in cards() {
        let sd = card["kind"] == "sd";
        let get = |name: &str| card["registers"].get(name).map(|t| hex(t.as_str().unwrap()));
        let mut verdicts = Vec::new();
        if let Some(b) = get("cid") {
            verdicts.push(if sd {
                Cid::parse(&b).unwrap().check(CrcPolicy::Host)
            } else {
                MmcCid::parse(&b).unwrap().check(CrcPolicy::Host)
            });
        }
        if let Some(b) = get("csd") {
            verdicts.push(if sd {
                Csd::parse(&b).unwrap().check(CrcPolicy::Host)
            } else {
                MmcCsd::parse(&b).unwrap().check(CrcPolicy::Host)
            });
        }
        verdicts.extend(get("scr").map(|b| Scr::parse(&b).unwrap().check()));
        verdicts.extend(get("ssr").map(|b| Ssr::parse(&b).unwrap().check()));
        verdicts.extend(get("ocr").map(|b| Ocr::parse(&b).unwrap().check()));
        verdicts.extend(get("ext_csd").map(|b| ExtCsd::parse(&b).unwrap().check()));
        verdicts.extend(get("switch_status").map(|b| SwitchStatus::parse(&b).unwrap().check()));
        let expect = card["expect_error"].as_str();
        assert_eq!(card["malformed"] == true, expect.is_some());
        for verdict in verdicts {
            match (expect, verdict) {
                (None, Ok(()))
                | (Some("crc"), Err(RegisterError::Crc(CrcState::Bad)))
                | (Some("identity"), Err(RegisterError::Identity))
                | (Some("crc_or_invalid"), Err(RegisterError::Field { .. } | RegisterError::Identity)) => {}
                (expect, verdict) => panic!("{id}: {verdict:?} where {expect:?} is expected"),
            }
        }
    }
}

#[test]
fn every_frame_parses_or_fails_as_stated() {
    let frames = load(&data("frames.json"));
    let mut seen = std::collections::BTreeMap::new();
    for f in frames.as_array().unwrap() {
        let kind = f["type"].as_str().unwrap();
        *seen.entry(kind.to_owned()).or_insert(0) += 1;
        let text = |name: &str| f[name].as_str().unwrap().to_owned();
        let word = || u32::from_str_radix(&text("arg"), 16).unwrap();
        let index = || u8::try_from(f["index"].as_u64().unwrap()).unwrap();
        let repeat = || match text("data").split_once('*') {
            Some((byte, n)) => hex(byte).repeat(n.parse().unwrap()),
            None => hex(&text("data")),
        };
        match kind {
            "command" => {
                let frame = CommandFrame { index: index(), arg: word() };
                assert_eq!(frame.emit().to_vec(), hex(&text("frame")), "{f}");
                assert_eq!(CommandFrame::parse(&frame.emit()), Ok(frame));
                assert_eq!(format!("{:02x}", frame.emit()[5] >> 1), text("crc7"));
                let label = text("name");
                let known = [Dialect::Sd, Dialect::Mmc, Dialect::Spi].map(|d| name(index(), d, false));
                let app = label.starts_with("ACMD");
                assert!(
                    app || known.iter().flatten().any(|name| label.starts_with(name)),
                    "{label}: {known:?}"
                );
            }
            "response48" => {
                let frame = ResponseFrame { index: index(), word: word() };
                assert_eq!(frame.emit().to_vec(), hex(&text("frame")), "{f}");
                assert_eq!(ResponseFrame::parse(&frame.emit()), Ok(frame));
            }
            "response136" => {
                let frame = LongFrame::parse(&hex(&text("frame"))).unwrap();
                assert_eq!(frame.0[..15].to_vec(), hex(&text("payload")));
                assert_eq!(frame.emit().to_vec(), hex(&text("frame")));
            }
            "data_crc16" => {
                assert_eq!(format!("{:04x}", crc::crc16(&repeat())), text("crc16"));
            }
            "crc_check" => {
                let bytes = text("data").into_bytes();
                let got = if text("algo").starts_with("crc7") {
                    format!("{:02x}", crc::crc7(&bytes))
                } else {
                    format!("{:04x}", crc::crc16(&bytes))
                };
                assert_eq!(got, text("crc"));
            }
            "lanes4" => {
                let got = crc::crc16_lines4(&repeat()).map(|c| Value::from(format!("{c:04x}")));
                assert_eq!(Value::from(got.to_vec()), f["crc16_dat0_to_dat3"]);
            }
            "malformed" => {
                let error = CommandFrame::parse(&hex(&text("frame"))).unwrap_err();
                assert_eq!(error.kind(), text("expect_error"), "{f}");
            }
            // tests/rpmb.rs has this one.
            "rpmb_frame" => {}
            other => panic!("unknown kind {other}"),
        }
    }
    assert_eq!(seen["malformed"], 6);
    assert!(seen["command"] >= 10 && seen["response48"] >= 2);
}

mod round_trips {
    use super::*;
    use mmc_proto::register::{CidInfo, CsdInfo};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn raw_views_give_back_any_bytes_and_never_panic(b16: [u8; 16], b8: [u8; 8], word: u32, b64 in any::<[[u8; 32]; 2]>()) {
            let b64: [u8; 64] = b64.concat().try_into().unwrap();
            let mut sum = 0_u64;
            let mut add = |_: &'static str, v: u64| sum = sum.wrapping_add(v);
            let csd = Csd::new(b16);
            csd.fields(&mut add);
            let _ = (csd.check(CrcPolicy::Wire), csd.capacity_bytes(), csd.currents_ua(), csd.has_class(255), csd.erase_sector_bytes());
            let cid = Cid::new(b16);
            cid.fields(&mut add);
            let _ = (cid.check(CrcPolicy::Host), cid.oid_text().to_string(), cid.pnm_text().to_string());
            MmcCsd::new(b16).fields(&mut add);
            let _ = (MmcCsd::new(b16).csd_capacity_bytes(), MmcCsd::new(b16).erase_group_bytes());
            MmcCid::new(b16).fields(&mut add);
            let scr = Scr::new(b8);
            scr.fields(&mut add);
            let _ = (scr.version().to_string(), scr.check());
            let ssr = Ssr::new(b64);
            ssr.fields(&mut add);
            let _ = (ssr.check(), ssr.au_size_kib(), ssr.erase_ms_per_au(), ssr.cq_depth());
            let sw = SwitchStatus::new(b64);
            sw.fields(&mut add);
            let _ = (sw.check(), sw.can(3, 200), sw.selected(9));
            let _ = (Ocr(word).to_string(), Ocr(word).check(), Ocr(word).millivolts());
            prop_assert_eq!(csd.emit(), b16);
            prop_assert_eq!(ssr.emit(), b64);
        }

        /// Reserved bits are all an `Info` leaves out, and the CRC it makes right.
        #[test]
        fn an_info_emits_the_register_it_was_read_from(b16: [u8; 16], b8: [u8; 8], b64 in any::<[[u8; 32]; 2]>()) {
            let csd: CsdInfo = Csd::new(b16).info();
            prop_assert_eq!(csd.emit().info(), csd);
            prop_assert_eq!(csd.emit().crc_state(), CrcState::Valid);
            let cid: CidInfo = Cid::new(b16).info();
            prop_assert_eq!(cid.emit().info(), cid);
            prop_assert_eq!(&cid.emit().emit()[..15], &b16[..15], "a CID has no bits that mean nothing");
            prop_assert_eq!(MmcCsd::new(b16).info().emit().info(), MmcCsd::new(b16).info());
            prop_assert_eq!(&MmcCid::new(b16).info().emit().emit()[..15], &b16[..15]);
            let scr = Scr::new(b8).info();
            prop_assert_eq!(scr.emit().info(), scr);
            let b64: [u8; 64] = b64.concat().try_into().unwrap();
            prop_assert_eq!(Ssr::new(b64).info().emit().info(), Ssr::new(b64).info());
            prop_assert_eq!(SwitchStatus::new(b64).info().emit().info(), SwitchStatus::new(b64).info());
        }
    }
}

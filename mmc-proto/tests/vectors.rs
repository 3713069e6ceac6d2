//! Registers and frames of real cards: every file of `data/cards` decodes to its `expected` values.

use mmc_proto::command::{Dialect, name};
use mmc_proto::crc;
use mmc_proto::frame::{CommandFrame, LongFrame, ResponseFrame};
use mmc_proto::register::{
    Cid, CrcPolicy, CrcState, Csd, ExtCsd, MmcCid, MmcCsd, Ocr, RegisterError, Scr, Ssr, SwitchStatus,
    ext_csd, mmc_year,
};
use serde_json::{Map, Value, json};
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

/// Fields by name, as `expected` spells them.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }
    fn raw(&mut self) -> impl FnMut(&'static str, u64) + '_ {
        |name, value| {
            self.0.insert(name.into(), value.into());
        }
    }
}

/// Every key of `expected` must be there, with its value; numbers compare as numbers.
fn compare(card: &str, register: &str, got: &Fields, expected: &Value) {
    for (key, want) in expected.as_object().unwrap() {
        let have = got.0.get(key).unwrap_or_else(|| panic!("{card} {register}: no field {key}"));
        let same = match (have.as_f64(), want.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            _ => have == want,
        };
        assert!(same, "{card} {register} {key}: {have} is not {want}");
    }
}

fn sd_csd(csd: &Csd) -> Fields {
    let mut f = Fields::default();
    csd.fields(&mut f.raw());
    f.put("taac_ns", csd.taac_ps() as f64 / 1000.0);
    f.put("tran_speed_bps", csd.tran_speed_bps());
    f.put("crc7", csd.crc7());
    f.put("end_bit", csd.end_bit());
    f.put("crc_state", csd.crc_state().name());
    f.put("c_size", csd.c_size());
    f.put("capacity_bytes", csd.capacity_bytes());
    f.put("sectors_512", csd.blocks());
    f.put("addressing", if csd.byte_addressed() { "byte" } else { "sector" });
    f.put("erase_sector_bytes", csd.erase_sector_bytes());
    f.put("c_size_mult", csd.c_size_mult());
    if let Some(currents) = csd.currents_ua() {
        let names = ["vdd_r_curr_min_ma", "vdd_r_curr_max_ma", "vdd_w_curr_min_ma", "vdd_w_curr_max_ma"];
        for (name, ua) in names.into_iter().zip(currents) {
            f.put(name, f64::from(ua) / 1000.0);
        }
    }
    f
}

fn sd_cid(cid: &Cid) -> Fields {
    let mut f = Fields::default();
    cid.fields(&mut f.raw());
    f.put("oid", cid.oid_text().to_string());
    f.put("oid_hex", format!("{:04x}", cid.oid()));
    f.put("pnm", cid.pnm_text().to_string());
    f.put("mdt_year", cid.mdt_year());
    f.put("crc7", cid.crc7());
    f.put("end_bit", cid.end_bit());
    f.put("crc_state", cid.crc_state().name());
    f
}

fn sd_scr(scr: &Scr) -> Fields {
    let mut f = Fields::default();
    scr.fields(&mut f.raw());
    f.put("mfg", format!("{:08x}", scr.mfg()));
    f.put("physical_layer_version", scr.version().to_string());
    // The dumps' bits as they are; `has_cmd23` and the like count them only where SD_SPEC3 makes them valid.
    for (bit, name) in ["cmd20", "cmd23", "cmd48_49", "cmd58_59", "acmd53_54"].into_iter().enumerate() {
        f.put(name, (scr.cmd_support() >> bit) & 1);
    }
    f
}

fn sd_ssr(ssr: &Ssr) -> Fields {
    let mut f = Fields::default();
    ssr.fields(&mut f.raw());
    f.put("dat_bus_width", ssr.dat_bus_width());
    f.put("speed_class", ssr.speed_class());
    f.put("au_size_kib", ssr.au_size_kib());
    f.put("cq_depth", ssr.cq_depth());
    f.put("cache", u8::from(ssr.has_cache()));
    f.put("host_maint", u8::from(ssr.has_host_maintenance()));
    f.put("card_maint", u8::from(ssr.has_card_maintenance()));
    f.put("erase_ms_per_au", ssr.erase_ms_per_au());
    f
}

fn sd_ocr(ocr: Ocr) -> Fields {
    let mut f = Fields::default();
    f.put("power_up", u8::from(ocr.power_up()));
    f.put("ccs", u8::from(ocr.ccs()));
    f.put("uhs2", u8::from(ocr.uhs2()));
    f.put("co2t", u8::from(ocr.co2t()));
    f.put("s18a", u8::from(ocr.s18a()));
    f.put("low_voltage", u8::from(ocr.low_voltage()));
    f.put("vdd_window", format!("{:06x}", ocr.0 & 0x00ff_ff00));
    f.put("min_mv", ocr.millivolts().map(|(low, _)| low));
    f.put("max_mv", ocr.millivolts().map(|(_, high)| high));
    f
}

fn mmc_ocr(ocr: Ocr) -> Fields {
    let mut f = Fields::default();
    f.put("power_up", u8::from(ocr.power_up()));
    f.put("access_mode", if ocr.access_mode() == 2 { "sector" } else { "byte" });
    f.put("v170_195", u8::from(ocr.low_voltage()));
    f.put("v20_26", (ocr.0 >> 8) & 0x7f);
    f.put("v27_36", ocr.window() >> 15);
    f
}

fn switch(s: &SwitchStatus) -> Fields {
    let mut f = Fields::default();
    s.fields(&mut f.raw());
    let group = |of: &dyn Fn(u8) -> Value| {
        Value::Object((1..=6).map(|g| (format!("g{g}"), of(g))).collect::<Map<String, Value>>())
    };
    f.put("support", group(&|g| json!(format!("{:04x}", s.support(g)))));
    f.put("selected", group(&|g| json!(s.selected(g))));
    f
}

fn mmc_cid(cid: &MmcCid, rev: Option<u8>) -> Fields {
    let mut f = Fields::default();
    cid.fields(&mut f.raw());
    f.put("layout", "mmc_v2plus");
    f.put("oid16", cid.oid16());
    f.put("pnm", cid.pnm_text().to_string());
    f.put("prv_major", cid.prv() >> 4);
    f.put("prv_minor", cid.prv() & 0xf);
    f.put("mdt_year", mmc_year(cid.mdt_year_code(), rev));
    f.put("crc7", cid.crc7());
    f.put("end_bit", cid.end_bit());
    f.put("crc_state", cid.crc_state().name());
    f
}

fn mmc_csd(csd: &MmcCsd) -> Fields {
    let mut f = Fields::default();
    csd.fields(&mut f.raw());
    f.put("taac_ns", csd.taac_ps() as f64 / 1000.0);
    f.put("tran_speed_hz", csd.tran_speed_hz());
    f.put("csd_capacity_bytes", csd.csd_capacity_bytes());
    f.put("capacity_from_ext_csd", csd.capacity_from_ext_csd());
    f.put("erase_group_bytes", csd.erase_group_bytes());
    f.put("crc7", csd.crc7());
    f.put("end_bit", csd.end_bit());
    f.put("crc_state", csd.crc_state().name());
    f
}

fn mmc_ext_csd(e: &ExtCsd) -> Fields {
    let mut f = Fields::default();
    for field in ext_csd::ALL {
        f.put(&field.name.to_lowercase(), e.get(*field));
    }
    f.put("rev_name", e.rev_name());
    f.put("capacity_bytes", e.capacity_bytes());
    f.put("boot_partition_bytes", e.boot_partition_bytes());
    f.put("rpmb_bytes", e.rpmb_bytes());
    f.put("hc_erase_group_bytes", e.hc_erase_group_bytes());
    f.put("hc_wp_group_bytes", e.hc_wp_group_bytes());
    f.put("erase_timeout_ms", e.erase_timeout_ms());
    f.put("trim_timeout_ms", e.trim_timeout_ms());
    f.put("generic_cmd6_time_ms", e.generic_cmd6_time_ms());
    f.put("partition_switch_time_ms", e.partition_switch_time_ms());
    f.put("power_off_long_time_ms", e.power_off_long_time_ms());
    f.put("out_of_interrupt_time_ms", e.out_of_interrupt_time_ms());
    f.put("ini_timeout_ap_ms", e.ini_timeout_ap_ms());
    f.put("s_a_timeout_code", e.get(ext_csd::S_A_TIMEOUT));
    f.put("sleep_awake_timeout_ns", e.sleep_awake_timeout_ns());
    f.put("cache_size_raw", e.get(ext_csd::CACHE_SIZE));
    f.put("cmdq_depth", e.cmdq_depth());
    f.put("cmdq_depth_raw", e.get(ext_csd::CMDQ_DEPTH));
    f.put("life_time_a", e.get(ext_csd::DEVICE_LIFE_TIME_EST_TYP_A));
    f.put("life_time_b", e.get(ext_csd::DEVICE_LIFE_TIME_EST_TYP_B));
    let version = e.bytes(ext_csd::FIRMWARE_VERSION).iter().map(|b| format!("{b:02x}")).collect::<String>();
    f.put("firmware_version", version);
    let gp =
        [ext_csd::GP_SIZE_MULT_1, ext_csd::GP_SIZE_MULT_2, ext_csd::GP_SIZE_MULT_3, ext_csd::GP_SIZE_MULT_4];
    f.put("gp_size_mult", gp.map(|field| e.get(field)).to_vec());
    f
}

#[test]
fn every_register_of_every_card_decodes_to_its_expected_values() {
    let mut registers = 0;
    for (id, card) in cards() {
        let sd = card["kind"] == "sd";
        let ext_csd = card["registers"].get("ext_csd").map(|text| hex(text.as_str().unwrap()));
        let rev = match card["context"]["ext_csd_rev"].as_u64() {
            Some(rev) => Some(u8::try_from(rev).unwrap()),
            None => ext_csd.map(|bytes| bytes[192]),
        };
        for (register, text) in card["registers"].as_object().unwrap() {
            let bytes = hex(text.as_str().unwrap());
            let (fields, back) = match (sd, register.as_str()) {
                (true, "cid") => {
                    let r = Cid::parse(&bytes).unwrap();
                    (sd_cid(&r), r.emit().to_vec())
                }
                (true, "csd") => {
                    let r = Csd::parse(&bytes).unwrap();
                    (sd_csd(&r), r.emit().to_vec())
                }
                (true, "scr") => {
                    let r = Scr::parse(&bytes).unwrap();
                    (sd_scr(&r), r.emit().to_vec())
                }
                (true, "ssr") => {
                    let r = Ssr::parse(&bytes).unwrap();
                    (sd_ssr(&r), r.emit().to_vec())
                }
                (true, "switch_status") => {
                    let r = SwitchStatus::parse(&bytes).unwrap();
                    (switch(&r), r.emit().to_vec())
                }
                (true, "ocr") => {
                    let r = Ocr::parse(&bytes).unwrap();
                    (sd_ocr(r), r.emit().to_vec())
                }
                (false, "ocr") => {
                    let r = Ocr::parse(&bytes).unwrap();
                    (mmc_ocr(r), r.emit().to_vec())
                }
                (false, "cid") => {
                    let r = MmcCid::parse(&bytes).unwrap();
                    (mmc_cid(&r, rev), r.emit().to_vec())
                }
                (false, "csd") => {
                    let r = MmcCsd::parse(&bytes).unwrap();
                    (mmc_csd(&r), r.emit().to_vec())
                }
                (false, "ext_csd") => {
                    let r = ExtCsd::parse(&bytes).unwrap();
                    (mmc_ext_csd(&r), r.emit().to_vec())
                }
                other => panic!("{id}: no decoder for {other:?}"),
            };
            compare(&id, register, &fields, &card["expected"][register]);
            assert_eq!(back, bytes, "{id} {register}: emit(parse(x)) is x");
            registers += 1;
        }
    }
    assert!(registers >= 60, "only {registers} registers were compared");
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

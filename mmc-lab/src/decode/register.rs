//! Registers: the names and values of their fields, and what is wrong with them beyond their own `check`.

use super::{Decoded, check_sealed, hex_of};
use mmc_proto::register::{
    Cid, CrcState, Csd, ExtCsd, MmcCid, MmcCidV1, MmcCsd, Ocr, Scr, SpecVersion, Ssr, SwitchStatus,
    ext_csd as field, mmc_year,
};
use serde_json::{Map, Value, json};

const RESERVED: &str = "a reserved code";

fn seal(d: &mut Decoded, crc7: u8, end_bit: u8, state: CrcState) {
    d.put("crc7", crc7);
    d.put("end_bit", end_bit);
    d.put("crc_state", state.name());
}

fn month(d: &mut Decoded, month: u8) {
    if !(1..=12).contains(&month) {
        d.notes.push(format!("month {month} is none"));
    }
}

pub(super) fn cid(d: &mut Decoded, r: &Cid) {
    r.fields(&mut d.raw());
    d.put("oid", r.oid_text().to_string());
    d.put("oid_hex", format!("{:04x}", r.oid()));
    d.put("pnm", r.pnm_text().to_string());
    d.put("mdt_year", r.mdt_year());
    seal(d, r.crc7(), r.end_bit(), r.crc_state());
    month(d, r.mdt_month());
    check_sealed(d, |policy| r.check(policy));
}

pub(super) fn mmc_cid(d: &mut Decoded, r: &MmcCid, ext_csd_rev: Option<u8>) {
    r.fields(&mut d.raw());
    d.put("layout", "mmc_v2plus");
    d.put("oid16", r.oid16());
    d.put("pnm", r.pnm_text().to_string());
    d.put("prv_major", r.prv() >> 4);
    d.put("prv_minor", r.prv() & 0xf);
    d.put("mdt_year", mmc_year(r.mdt_year_code(), ext_csd_rev));
    seal(d, r.crc7(), r.end_bit(), r.crc_state());
    month(d, r.mdt_month());
    if ext_csd_rev.is_none() {
        d.notes.push(
            "mdt_year is counted from 1997; give --ext-csd-rev for a device that has an EXT_CSD".into(),
        );
    }
    check_sealed(d, |policy| r.check(policy));
}

pub(super) fn mmc_cid_v1(d: &mut Decoded, r: &MmcCidV1) {
    r.fields(&mut d.raw());
    d.put("layout", "mmc_v1");
    d.put("pnm", r.pnm_text().to_string());
    d.put("mdt_year", mmc_year(r.mdt_year_code(), None));
    seal(d, r.crc7(), r.end_bit(), r.crc_state());
    month(d, r.mdt_month());
    check_sealed(d, |policy| r.check(policy));
}

pub(super) fn csd(d: &mut Decoded, r: &Csd) {
    r.fields(&mut d.raw());
    // The bits that differ between structures have names of their own below.
    d.fields.shift_remove("size_bits");
    d.put("taac_ns", r.taac_ps() as f64 / 1000.0);
    d.put("tran_speed_bps", r.tran_speed_bps());
    d.put("c_size", r.c_size());
    d.put("c_size_mult", r.c_size_mult());
    let names = ["vdd_r_curr_min_ma", "vdd_r_curr_max_ma", "vdd_w_curr_min_ma", "vdd_w_curr_max_ma"];
    for (name, ua) in names.into_iter().zip(r.currents_ua().into_iter().flatten()) {
        d.put(name, f64::from(ua) / 1000.0);
    }
    d.put("capacity_bytes", r.capacity_bytes());
    d.put("sectors_512", r.blocks());
    d.put("addressing", if r.byte_addressed() { "byte" } else { "sector" });
    d.put("erase_sector_bytes", r.erase_sector_bytes());
    seal(d, r.crc7(), r.end_bit(), r.crc_state());
    check_sealed(d, |policy| r.check(policy));
    if r.write_bl_len() != r.read_bl_len() {
        d.wrong("WRITE_BL_LEN", r.write_bl_len(), "not READ_BL_LEN, as an SD card must have it");
    }
    speed(d, (r.taac(), r.taac_ps()), (r.tran_speed(), r.tran_speed_bps()));
}

fn speed(d: &mut Decoded, taac: (u8, u64), tran_speed: (u8, u32)) {
    if taac.1 == 0 {
        d.wrong("TAAC", taac.0, RESERVED);
    }
    if tran_speed.1 == 0 {
        d.wrong("TRAN_SPEED", tran_speed.0, RESERVED);
    }
}

pub(super) fn mmc_csd(d: &mut Decoded, r: &MmcCsd) {
    r.fields(&mut d.raw());
    d.put("taac_ns", r.taac_ps() as f64 / 1000.0);
    d.put("tran_speed_hz", r.tran_speed_hz());
    d.put("csd_capacity_bytes", r.csd_capacity_bytes());
    d.put("capacity_from_ext_csd", r.capacity_from_ext_csd());
    d.put("erase_group_bytes", r.erase_group_bytes());
    seal(d, r.crc7(), r.end_bit(), r.crc_state());
    if r.capacity_from_ext_csd() {
        d.notes.push("the capacity is in the EXT_CSD".into());
    }
    check_sealed(d, |policy| r.check(policy));
    speed(d, (r.taac(), r.taac_ps()), (r.tran_speed(), r.tran_speed_hz()));
}

pub(super) fn scr(d: &mut Decoded, r: &Scr) {
    r.fields(&mut d.raw());
    d.put("mfg", format!("{:08x}", r.mfg()));
    // The bits as they are; `has_cmd23` and the like count them only where SD_SPEC3 makes them valid.
    for (bit, name) in ["cmd20", "cmd23", "cmd48_49", "cmd58_59", "acmd53_54"].into_iter().enumerate() {
        d.put(name, (r.cmd_support() >> bit) & 1);
    }
    d.put("physical_layer_version", r.version().to_string());
    if r.sd_spec3() == 0 && r.cmd_support() != 0 {
        d.notes.push("CMD_SUPPORT counts only with SD_SPEC3".into());
    }
    d.check(r.check());
    if r.sd_spec3() == 1 && r.sd_spec() != 2 {
        d.wrong("SD_SPEC", r.sd_spec(), "SD_SPEC3 asks for 2");
    } else if r.sd_spec3() == 0 && (r.sd_spec4() == 1 || r.sd_specx() != 0) {
        d.wrong("SD_SPEC3", r.sd_spec3(), "SD_SPEC4 and SD_SPECX ask for 1");
    } else if r.version() == SpecVersion::Unknown {
        let codes = format!("SD_SPEC {:#x} and SD_SPECX {:#x}: {RESERVED}", r.sd_spec(), r.sd_specx());
        d.fault("field", "physical layer version", codes);
    }
}

pub(super) fn ssr(d: &mut Decoded, r: &Ssr) {
    r.fields(&mut d.raw());
    d.put("dat_bus_width", r.dat_bus_width());
    d.put("speed_class", r.speed_class());
    d.put("au_size_kib", r.au_size_kib());
    d.put("cq_depth", r.cq_depth());
    d.flag("cache", r.has_cache());
    d.flag("host_maint", r.has_host_maintenance());
    d.flag("card_maint", r.has_card_maintenance());
    d.put("erase_ms_per_au", r.erase_ms_per_au());
    if r.speed_class_code() > 4 {
        d.notes.push(format!("speed class code {} is not known; 10 at least", r.speed_class_code()));
    }
    d.check(r.check());
}

pub(super) fn ocr(d: &mut Decoded, r: Ocr, mmc: bool) {
    d.flag("power_up", r.power_up());
    if mmc {
        d.put("access_mode", if r.access_mode() == 2 { "sector" } else { "byte" });
        d.flag("v170_195", r.low_voltage());
        d.put("v20_26", (r.0 >> 8) & 0x7f);
        d.put("v27_36", r.window() >> 15);
    } else {
        d.flag("ccs", r.ccs());
        d.flag("uhs2", r.uhs2());
        d.flag("co2t", r.co2t());
        d.flag("s18a", r.s18a());
        d.put("vdd_window", format!("{:06x}", r.0 & 0x00ff_ff00));
        d.flag("low_voltage", r.low_voltage());
    }
    d.put("min_mv", r.millivolts().map(|(low, _)| low));
    d.put("max_mv", r.millivolts().map(|(_, high)| high));
    if !r.power_up() {
        d.notes.push("power-up is not over: how the card is addressed is not known yet".into());
    }
    d.check(r.check());
    if mmc && r.access_mode() & 1 == 1 {
        d.wrong("access mode", r.access_mode(), RESERVED);
    }
}

pub(super) fn switch(d: &mut Decoded, r: &SwitchStatus) {
    let groups = |of: &dyn Fn(u8) -> Value| {
        Value::Object((1..=6).map(|g| (format!("g{g}"), of(g))).collect::<Map<String, Value>>())
    };
    let busy = [r.busy1(), r.busy2(), r.busy3(), r.busy4(), r.busy5(), r.busy6()];
    d.put("max_current_ma", r.max_current_ma());
    d.put("support", groups(&|g| json!(format!("{:04x}", r.support(g)))));
    d.put("selected", groups(&|g| json!(r.selected(g))));
    d.put("structure_version", r.structure_version());
    d.put("busy", groups(&|g| json!(format!("{:04x}", busy[usize::from(g - 1)]))));
    for group in (1..=6).filter(|g| r.selected(*g) == 15) {
        d.notes.push(format!("the card cannot switch group {group} as it was asked to"));
    }
    d.check(r.check());
}

pub(super) fn ext_csd(d: &mut Decoded, r: &ExtCsd) {
    for f in field::ALL {
        let name = f.name.to_lowercase();
        // Longer ones, and the version of the firmware, are no numbers.
        if f.len > 8 || *f == field::FIRMWARE_VERSION {
            d.put(&name, hex_of(r.bytes(*f)));
        } else {
            d.put(&name, r.get(*f));
        }
    }
    d.put("rev_name", r.rev_name());
    d.put("capacity_bytes", r.capacity_bytes());
    d.put("boot_partition_bytes", r.boot_partition_bytes());
    d.put("rpmb_bytes", r.rpmb_bytes());
    d.put("hc_erase_group_bytes", r.hc_erase_group_bytes());
    d.put("hc_wp_group_bytes", r.hc_wp_group_bytes());
    let gp = [field::GP_SIZE_MULT_1, field::GP_SIZE_MULT_2, field::GP_SIZE_MULT_3, field::GP_SIZE_MULT_4];
    d.put("gp_size_mult", gp.map(|f| r.get(f)).to_vec());
    d.put("erase_timeout_ms", r.erase_timeout_ms());
    d.put("trim_timeout_ms", r.trim_timeout_ms());
    d.put("generic_cmd6_time_ms", r.generic_cmd6_time_ms());
    d.put("partition_switch_time_ms", r.partition_switch_time_ms());
    d.put("power_off_long_time_ms", r.power_off_long_time_ms());
    d.put("out_of_interrupt_time_ms", r.out_of_interrupt_time_ms());
    d.put("ini_timeout_ap_ms", r.ini_timeout_ap_ms());
    d.put("s_a_timeout_code", r.get(field::S_A_TIMEOUT));
    d.put("sleep_awake_timeout_ns", r.sleep_awake_timeout_ns());
    d.put("cache_size_raw", r.get(field::CACHE_SIZE));
    d.put("cmdq_depth", r.cmdq_depth());
    d.put("cmdq_depth_raw", r.get(field::CMDQ_DEPTH));
    d.put("life_time_a", r.get(field::DEVICE_LIFE_TIME_EST_TYP_A));
    d.put("life_time_b", r.get(field::DEVICE_LIFE_TIME_EST_TYP_B));
    if r.rev_name().is_none() {
        d.notes.push(format!("revision {} is newer than this program", r.get(field::EXT_CSD_REV)));
    }
    let verdict = r.check();
    d.check(verdict);
    let mut turned = r.emit();
    turned.reverse();
    let turned = ExtCsd::new(turned);
    if verdict.is_err() && turned.check().is_ok() && turned.rev_name().is_some() {
        d.notes.push("read from its end it is an EXT_CSD: byte 0 goes first".into());
    }
    for (set, needs) in [
        (field::CMDQ_MODE_EN, field::CMDQ_SUPPORT),
        (field::CACHE_CTRL, field::CACHE_SIZE),
        (field::DATA_SECTOR_SIZE, field::NATIVE_SECTOR_SIZE),
    ] {
        if r.get(set) != 0 && r.get(needs) == 0 {
            d.wrong(set.name, r.get(set), &format!("{} is 0", needs.name));
        }
    }
}

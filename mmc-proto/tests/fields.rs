//! Coded fields: every code of a table of the standards has its meaning, and each bit its own.
//!
//! SD: Physical Layer Simplified Specification, 4.3.10 (switch), 4.10.2 (SD status), 5.3 (CSD), 5.8 (extension sets). MMC: JESD84-B51, 7.3 and 7.4.

use mmc_proto::command::{Dialect, name};
use mmc_proto::crc::crc7;
use mmc_proto::frame::FrameError;
use mmc_proto::host::Reply;
use mmc_proto::register::{
    CrcState, CsdInfo, ExtCsd, MmcCsdInfo, ScrInfo, Ssr, SsrInfo, SwitchInfo, SwitchStatus, ext_csd,
    extension::{PerformanceSet, PowerSet},
};
use mmc_proto::response::{FastIo, Irq, QueueState, QueueStatus, R1};

fn ssr(change: impl FnOnce(&mut SsrInfo)) -> Ssr {
    let mut info = SsrInfo::default();
    change(&mut info);
    info.emit()
}

#[test]
fn the_sd_status_says_lines_class_and_unit() {
    let lines = [0, 1, 2, 3].map(|code| ssr(|s| s.dat_bus_width_code = code).dat_bus_width());
    assert_eq!(lines, [1, 0, 4, 0]);
    let classes = [0, 1, 2, 3, 4, 9].map(|code| ssr(|s| s.speed_class_code = code).speed_class());
    assert_eq!(classes, [0, 2, 4, 6, 10, 10]);
    let mut units = [0; 16];
    for (code, unit) in (0_u8..).zip(&mut units) {
        *unit = ssr(|s| s.au_size_code = code).au_size_kib();
    }
    let mb = 1024;
    let large = [8 * mb, 12 * mb, 16 * mb, 24 * mb, 32 * mb, 64 * mb];
    assert_eq!(units[..10], [0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]);
    assert_eq!(units[10..], large);
    let erase =
        |seconds, units| ssr(|s| (s.erase_timeout_s, s.erase_size) = (seconds, units)).erase_ms_per_au();
    assert_eq!((erase(5, 2), erase(1, 3), erase(9, 0)), (2500, 333, 0));
}

#[test]
fn the_performance_bits_of_the_sd_status_do_not_mix() {
    for (byte, depth, rest) in [
        (0, 0, [false; 3]),
        (1, 0, [false, false, true]),
        (2, 0, [false, true, false]),
        (4, 0, [true, false, false]),
        (0b0000_1000, 2, [false; 3]),
        (0b1111_1000, 32, [false; 3]),
        (0b1111_1111, 32, [true; 3]),
    ] {
        let s = ssr(|s| s.performance_enhance = byte);
        assert_eq!(s.cq_depth(), depth, "{byte:#b}");
        assert_eq!([s.has_cache(), s.has_host_maintenance(), s.has_card_maintenance()], rest, "{byte:#b}");
    }
    let info = SsrInfo { speed_class_code: 4, au_size_code: 9, uhs_speed_grade: 3, ..SsrInfo::default() };
    assert_eq!(info.emit().info(), info);
}

#[test]
fn access_time_and_speed_of_the_csd_have_a_mantissa_and_a_unit() {
    let tenths = [0, 10, 12, 13, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 70, 80];
    for (code, tenth) in (0_u8..).zip(tenths) {
        for unit in 0..8_u8 {
            let byte = code << 3 | unit;
            let csd = CsdInfo { taac: byte, tran_speed: byte, ..CsdInfo::default() }.emit();
            assert_eq!(csd.taac_ps(), tenth * 100 * 10_u64.pow(unit.into()), "{byte:#x}");
            let bps = if unit < 4 { tenth * 10_000 * 10_u64.pow(unit.into()) } else { 0 };
            assert_eq!(u64::from(csd.tran_speed_bps()), bps, "{byte:#x}");
            let mmc = MmcCsdInfo { taac: byte, ..MmcCsdInfo::default() }.emit();
            assert_eq!(mmc.taac_ps(), csd.taac_ps(), "{byte:#x}");
        }
    }
}

#[test]
fn the_switch_status_says_what_can_be_had_now() {
    let all = |version| {
        SwitchInfo {
            structure_version: version,
            support1: 0x8003,
            support2: 0x8005,
            support3: 0x8009,
            support4: 0x8011,
            support5: 0x8021,
            support6: 0x8041,
            busy1: 2,
            busy2: 4,
            busy3: 8,
            busy4: 16,
            busy5: 32,
            busy6: 64,
            ..SwitchInfo::default()
        }
        .emit()
    };
    for group in 1..=6_u8 {
        let (old, new) = (all(0), all(1));
        // Before version 1 there is no word on busy functions.
        assert!(old.can(group, group) && !new.can(group, group), "{group}");
        assert!(new.can(group, 0) && new.can(group, 15) && !new.can(group, 14), "{group}");
        assert!(!new.can(group, 16) && !new.can(0, group) && !new.can(7, group), "{group}");
        assert_eq!(new.support(group), 0x8001 | 1 << group);
    }
    all(1).check().unwrap();
    assert!(all(2).check().is_err() && SwitchInfo::default().emit().check().is_err());
    assert!(SwitchStatus::new([0xff; 64]).check().is_err());
    assert_eq!(all(1).info().emit(), all(1));
}

#[test]
fn the_revisions_of_the_extended_csd_have_the_names_of_their_standards() {
    let names = ["4.0", "4.1", "4.2", "4.3", "4.4", "4.41", "4.5", "5.0", "5.1", "5.1B"];
    let mut csd = ExtCsd::new([0; 512]);
    for (rev, name) in (0..).zip(names) {
        csd.set(ext_csd::EXT_CSD_REV, rev);
        assert_eq!(csd.rev_name(), Some(name));
    }
    csd.set(ext_csd::EXT_CSD_REV, 10);
    assert_eq!(csd.rev_name(), None);
    csd.set(ext_csd::BOOT_SIZE_MULT, 32);
    csd.set(ext_csd::RPMB_SIZE_MULT, 3);
    assert_eq!((csd.boot_partition_bytes(), csd.rpmb_bytes()), (4 << 20, 3 << 17));
}

#[test]
fn each_bit_of_the_extension_sets_is_its_own() {
    let set = |at: usize, byte: u8| {
        let mut set = [0; 512];
        set[at] = byte;
        set
    };
    let power = |byte| {
        let p = PowerSet::parse(&set(1, byte));
        [p.ready, p.off_notification, p.sustenance, p.down_mode]
    };
    assert_eq!(power(0x8e), [false; 4]);
    for (bit, nth) in [(0x01, 0), (0x10, 1), (0x20, 2), (0x40, 3)] {
        let mut expected = [false; 4];
        expected[nth] = true;
        assert_eq!(power(bit), expected);
        assert_eq!(power(!bit), expected.map(|b| !b));
    }
    assert_eq!(PowerSet::parse(&set(0, 0xf3)).revision, 3);

    let performance = |at, byte| {
        let p = PerformanceSet::parse(&set(at, byte));
        [p.fx_event, p.card_maintenance, p.host_maintenance, p.cache, p.cache_enabled, p.flushing]
    };
    for (nth, (at, bit)) in [(1, 1), (2, 1), (2, 2), (4, 1), (260, 1), (261, 1)].into_iter().enumerate() {
        let mut expected = [false; 6];
        expected[nth] = true;
        assert_eq!(performance(at, bit), expected, "byte {at}");
        let others = performance(at, !bit & !3 | if at == 2 { 3 ^ bit } else { 0 });
        assert!(!others[nth], "byte {at}");
    }
    assert_eq!(PerformanceSet::parse(&set(0, 0xf1)).revision, 1);
    let depth = |byte| PerformanceSet::parse(&set(6, byte)).queue_depth;
    assert_eq!([depth(0), depth(1), depth(0x1f), depth(0xe0)], [0, 2, 32, 0]);
}

#[test]
fn the_scr_tells_each_command_it_supports() {
    let offered = |bits: u8| {
        let scr = ScrInfo { cmd_support: bits, sd_spec3: 1, ..ScrInfo::default() }.emit();
        [scr.has_cmd20(), scr.has_cmd23(), scr.has_cmd48_49(), scr.has_cmd58_59(), scr.has_acmd53_54()]
    };
    for nth in 0..5 {
        let mut expected = [false; 5];
        expected[nth] = true;
        assert_eq!(offered(1 << nth), expected);
        assert_eq!(offered(31 ^ 1 << nth), expected.map(|b| !b));
    }
}

#[test]
fn commands_have_the_names_of_their_system() {
    for (dialect, index, text) in [
        (Dialect::Mmc, 1, "SEND_OP_COND"),
        (Dialect::Mmc, 11, "READ_DAT_UNTIL_STOP"),
        (Dialect::Mmc, 20, "WRITE_DAT_UNTIL_STOP"),
        (Dialect::Mmc, 21, "SEND_TUNING_BLOCK"),
        (Dialect::Mmc, 53, "PROTOCOL_RD"),
        (Dialect::Spi, 1, "SEND_OP_COND"),
        (Dialect::Spi, 58, "READ_OCR"),
        (Dialect::Spi, 59, "CRC_ON_OFF"),
        (Dialect::Sd, 11, "VOLTAGE_SWITCH"),
    ] {
        assert_eq!(name(index, dialect, false), Some(text), "CMD{index} of {dialect:?}");
    }
}

/// R4, R5 and the queue status (`spec/card.md` §3, §19) are the word of a short response.
#[test]
fn the_rarer_responses_of_an_emmc_are_read_from_the_word_of_a_reply() {
    let reply = |word| Reply { words: [word, 1, 2, 3], bytes: 4 };
    let fast = FastIo::from(&reply(0x1234_d5a7));
    assert_eq!((fast.rca(), fast.done(), fast.register(), fast.data()), (0x1234, true, 0x55, 0xa7));
    assert!(!FastIo::from(&reply(0x1234_55a7)).done());
    assert_eq!(Irq::from(&reply(0x4321_0000)).rca(), 0x4321);
    let queue = QueueStatus::from(&reply(0x8000_0100));
    assert_eq!([7, 8, 31, 32].map(|task| queue.ready(task)), [false, true, true, false]);
    assert_eq!((queue.first(), QueueStatus(0).first()), (Some(8), None));
}

/// `spec/card.md` §2.9: bits 12:9 of the status mean something else while the queue is on.
#[test]
fn a_card_whose_queue_is_on_has_states_of_its_own() {
    for code in 0..16 {
        let expected = match code {
            4 => QueueState::Tran,
            5 => QueueState::ReadTask,
            6 => QueueState::WriteTask,
            7 => QueueState::Busy,
            code => QueueState::Reserved(code),
        };
        assert_eq!(
            R1::from(&Reply { words: [u32::from(code) << 9, 0, 0, 0], bytes: 0 }).queue_state(),
            expected
        );
    }
}

#[test]
fn what_the_last_byte_of_a_register_says_has_a_name() {
    let mut register = [0; 16];
    register[0] = 0x12;
    let crc = crc7(&register[..15]) << 1;
    for (last, name) in [
        (crc | 1, "valid"),
        (crc, "crc_ok_end_bit_zero"),
        (0, "stripped_00"),
        (1, "stripped_01"),
        (crc ^ 0x40, "bad"),
    ] {
        register[15] = last;
        assert_eq!(CrcState::of(&register).name(), name, "{last:#04x}");
    }
}

#[test]
fn what_is_wrong_with_a_frame_has_a_short_name() {
    for (wrong, name) in [
        (FrameError::Length { expected: 6, got: 5 }, "length"),
        (FrameError::StartBit, "start_bit"),
        (FrameError::Direction(1), "direction"),
        (FrameError::Index(7), "index"),
        (FrameError::EndBit, "end_bit"),
        (FrameError::Crc { expected: 1, got: 2 }, "crc"),
    ] {
        assert_eq!(wrong.kind(), name);
    }
}

//! Commands with arguments of every kind, and what each bit of an answer or a register means by itself.

use super::Lines;
use mmc_hal::Dir;
use mmc_proto::bus::{Timing, Timings, Width};
use mmc_proto::command::{
    Command, CountFlags, Dialect, ExtPlace, ExtUnit, IoCount, SecurityProtocol, Stop, SwitchAccess, TaskOp,
    name,
};
use mmc_proto::frame::{CommandFrame, LongFrame, ResponseFrame};
use mmc_proto::quirk;
use mmc_proto::register::extension::{GeneralInfo, PerformanceSet, PowerSet, SetAddress};
use mmc_proto::register::sdio::{Cccr, Fbr};
use mmc_proto::register::{
    Cid, CrcPolicy, CrcState, Csd, ExtCsd, MmcCid, MmcCidInfo, MmcCidV1, MmcCsd, Ocr, Scr, Ssr, SwitchStatus,
    ext_csd, mmc_year,
};
use mmc_proto::response::{FastIo, Irq, QueueStatus, R1, R4, R5, R6, R7};
use mmc_proto::spi;
use mmc_proto::status::{CardState, CardStatus};
use std::fmt::Write;

/// Small, large, and with every other bit.
const NUMBERS: [u32; 7] = [0, 1, 0x0102_0304, 0x5555_5555, 0xaaaa_aaaa, 0x8000_0000, u32::MAX];

#[test]
fn commands() {
    let mut lines = Lines(Vec::new());
    let mut say = |what: &str, c: Command| {
        let Command { index, arg, response, busy, data, gate, init_clocks, voltage_switch, tuning } = c;
        let data = data.map(|d| format!("{:?} {}×{} {:?}", d.dir, d.blocks, d.block_len, d.stop));
        let flags = (busy, init_clocks, voltage_switch);
        let tuning = if tuning { " tuning" } else { "" };
        lines.say(format!("{what}: CMD{index} {arg:08x} {response:?} {gate:?} {flags:?} {data:?}{tuning}"));
    };
    for (what, c) in [
        ("go_idle_state", Command::go_idle_state()),
        ("go_pre_idle_state", Command::go_pre_idle_state()),
        ("boot_initiation", Command::boot_initiation()),
        ("all_send_cid", Command::all_send_cid()),
        ("send_relative_addr", Command::send_relative_addr()),
        ("deselect_cards", Command::deselect_cards()),
        ("voltage_switch", Command::voltage_switch()),
        ("stop_transmission", Command::stop_transmission()),
        ("send_tuning_block", Command::send_tuning_block()),
        ("program_csd", Command::program_csd()),
        ("program_cid", Command::program_cid()),
        ("set_time", Command::set_time()),
        ("go_irq_state", Command::go_irq_state()),
        ("send_ext_csd", Command::send_ext_csd()),
        ("acmd_sd_status", Command::acmd_sd_status()),
        ("acmd_send_num_wr_blocks", Command::acmd_send_num_wr_blocks()),
        ("acmd_send_num_wr_blocks_sduc", Command::acmd_send_num_wr_blocks_sduc()),
        ("acmd_send_scr", Command::acmd_send_scr()),
        ("q_management all", Command::q_management(TaskOp::All)),
        ("cmdq_task_mgmt all", Command::cmdq_task_mgmt(TaskOp::All)),
    ] {
        say(what, c);
    }
    for n in NUMBERS {
        let (half, byte) = (n as u16, n as u8);
        let set = n & 1 == 1;
        let place = ExtPlace { io: set, function: byte, address: n };
        let protocol = SecurityProtocol { protocol: byte, specific: half, feature: byte };
        let flags = CountFlags::from_bits_retain(n);
        let functions = [byte, byte.rotate_left(1), byte, byte.rotate_left(1), byte, byte.rotate_left(1)];
        for (what, c) in [
            ("set_dsr", Command::set_dsr(half)),
            ("select_card", Command::select_card(half)),
            ("send_if_cond", Command::send_if_cond(byte)),
            ("send_csd", Command::send_csd(half)),
            ("send_cid", Command::send_cid(half)),
            ("send_status", Command::send_status(half)),
            ("send_task_status", Command::send_task_status(half)),
            ("go_inactive_state", Command::go_inactive_state(half)),
            ("set_blocklen", Command::set_blocklen(n)),
            ("read_single_block", Command::read_single_block(n)),
            ("read_multiple_block", Command::read_multiple_block(n, n >> 3, Stop::Auto)),
            ("speed_class_control", Command::speed_class_control(byte)),
            ("address_extension", Command::address_extension(byte)),
            ("set_block_count", Command::set_block_count(n)),
            ("write_block", Command::write_block(n)),
            ("write_multiple_block", Command::write_multiple_block(n, n >> 3, Stop::Manual)),
            ("set_write_prot", Command::set_write_prot(n)),
            ("clr_write_prot", Command::clr_write_prot(n)),
            ("send_write_prot", Command::send_write_prot(n)),
            ("send_write_prot_type", Command::send_write_prot_type(n)),
            ("erase_wr_blk_start", Command::erase_wr_blk_start(n)),
            ("erase_wr_blk_end", Command::erase_wr_blk_end(n)),
            ("erase_group_start", Command::erase_group_start(n)),
            ("erase_group_end", Command::erase_group_end(n)),
            ("erase", Command::erase(n)),
            ("app_cmd", Command::app_cmd(half)),
            ("gen_cmd", Command::gen_cmd(n)),
            ("acmd_set_wr_blk_erase_count", Command::acmd_set_wr_blk_erase_count(n)),
            ("acmd_sd_send_op_cond", Command::acmd_sd_send_op_cond(n)),
            ("acmd_set_clr_card_detect", Command::acmd_set_clr_card_detect(set)),
            ("switch_function", Command::switch_function(set, byte, byte)),
            ("send_op_cond", Command::send_op_cond(n)),
            ("set_relative_addr", Command::set_relative_addr(half)),
            ("io_send_op_cond", Command::io_send_op_cond(n)),
            ("switch_functions", Command::switch_functions(set, functions)),
            ("io_read_direct", Command::io_read_direct(byte, n)),
            ("io_write_direct", Command::io_write_direct(byte, n, byte)),
            ("sleep_awake", Command::sleep_awake(half, set)),
            ("stop_transmission_hpi", Command::stop_transmission_hpi(half)),
            ("send_status_hpi", Command::send_status_hpi(half)),
            ("bustest_r", Command::bustest_r(half)),
            ("bustest_w", Command::bustest_w(half)),
            ("set_block_count_mmc", Command::set_block_count_mmc(half, flags, byte)),
            ("fast_io", Command::fast_io(half, byte, set.then_some(byte))),
            ("protocol_rd", Command::protocol_rd(byte, half, n)),
            ("protocol_wr", Command::protocol_wr(byte, half, n)),
            ("queued_task_params read", Command::queued_task_params(Dir::Read, byte, half, set, flags, byte)),
            (
                "queued_task_params write",
                Command::queued_task_params(Dir::Write, byte, half, !set, flags, byte),
            ),
            ("queued_task_address", Command::queued_task_address(n)),
            ("execute_read_task", Command::execute_read_task(byte, n)),
            ("execute_write_task", Command::execute_write_task(byte, n)),
            ("cmdq_task_mgmt", Command::cmdq_task_mgmt(TaskOp::One(byte))),
            ("lock_unlock", Command::lock_unlock(half)),
            ("q_management", Command::q_management(TaskOp::One(byte))),
            ("q_task_info_a read", Command::q_task_info_a(Dir::Read, byte, half, set, byte)),
            ("q_task_info_a write", Command::q_task_info_a(Dir::Write, byte, half, !set, byte)),
            ("q_task_info_b", Command::q_task_info_b(n)),
            ("q_rd_task", Command::q_rd_task(byte, n)),
            ("q_wr_task", Command::q_wr_task(byte, n)),
            ("read_extr_single", Command::read_extr_single(place, half)),
            ("write_extr_single", Command::write_extr_single(place, half)),
            ("write_extr_masked", Command::write_extr_masked(place, byte)),
            ("read_extr_multi", Command::read_extr_multi(place, ExtUnit::Block, half)),
            ("write_extr_multi", Command::write_extr_multi(place, ExtUnit::Large, half)),
            ("select_card_partition", Command::select_card_partition(byte)),
            ("acmd_secure_receive", Command::acmd_secure_receive(protocol, n)),
            ("acmd_secure_send", Command::acmd_secure_send(protocol, n)),
            ("io_rw_extended bytes", Command::io_rw_extended(Dir::Read, byte, n, set, IoCount::Bytes(half))),
            ("io_rw_extended blocks", {
                let count = IoCount::Blocks { len: half, blocks: half.rotate_left(3) };
                Command::io_rw_extended(Dir::Write, byte, n, !set, count)
            }),
        ] {
            say(what, c);
        }
        for access in [
            SwitchAccess::CommandSet,
            SwitchAccess::SetBits,
            SwitchAccess::ClearBits,
            SwitchAccess::WriteByte,
        ] {
            say("mmc_switch", Command::mmc_switch(access, byte, byte.rotate_left(2)));
        }
    }
    for width in [Width::One, Width::Four, Width::Eight] {
        say("acmd_set_bus_width", Command::acmd_set_bus_width(width));
        say("send_tuning_block_mmc", Command::send_tuning_block_mmc(width));
    }
    for dialect in [Dialect::Sd, Dialect::Mmc, Dialect::Spi] {
        for app in [false, true] {
            let names = (0..=64).filter_map(|i| Some(format!("{i} {}", name(i, dialect, app)?)));
            lines.say(format!("{dialect:?} {app}: {}", names.collect::<Vec<_>>().join(", ")));
        }
    }
    lines.compare("commands");
}

/// Words with one bit, with all but one, and none and all.
fn words() -> impl Iterator<Item = u32> {
    (0..32).flat_map(|bit| [1 << bit, !(1 << bit)]).chain([0, u32::MAX])
}

#[test]
fn answers() {
    let mut lines = Lines(Vec::new());
    for word in words() {
        let status = CardStatus::from_bits_retain(word);
        let r1 = R1(status);
        lines.say(format!(
            "{word:08x}: {:?} {:?} {}, {status}",
            r1.state(),
            r1.queue_state(),
            status.is_ready()
        ));
        let (r4, r5, r6, r7) = (R4(word), R5(word), R6(word), R7(word));
        let io = (r4.ready(), r4.functions(), r4.memory(), r4.accepts_v1_8(), r4.ocr());
        let direct = (r5.data(), r5.errors(), r5.io_state());
        let cond = (r7.pattern(), r7.voltage(), r7.pcie(), r7.pcie_1v2());
        lines.say(format!("  {io:?} {direct:?} {:x} {:x} {cond:?}", r6.rca(), r6.status().bits()));
        let (fast, queue) = (FastIo(word), QueueStatus(word));
        let fast = (fast.rca(), fast.done(), fast.register(), fast.data(), Irq(word).rca());
        let ready: Vec<_> = (0..=40).filter(|task| queue.ready(*task)).collect();
        lines.say(format!("  {fast:?} {:?} {ready:?}", queue.first()));
        let o = Ocr(word);
        let flags = [o.power_up(), o.ccs(), o.uhs2(), o.co2t(), o.s18a(), o.low_voltage()];
        let derived = (o.access_mode(), o.window(), o.millivolts(), o.check());
        lines.say(format!("  {flags:?} {derived:?} {:x?} {o}", o.emit()));
        let place = SetAddress(word);
        let place = (place.function(), place.page(), place.offset(), place.read_arg());
        lines.say(format!("  {place:x?}"));
    }
    for byte in 0..=255 {
        let r1 = spi::R1::from_byte(byte).map(|r| (r.bits(), r.is_error(), r.ends_here()));
        let kinds =
            (spi::DataResponse::from_byte(byte), spi::ReadToken::from_byte(byte), spi::is_ready(byte));
        let tails = (spi::has_stuff_byte(byte), spi::tail(byte, false), spi::tail(byte, true));
        let state = CardState::from_code(byte);
        lines.digest(format!("SPI {byte:02x}"), |out| {
            write!(out, "{r1:?} {kinds:?} {tails:?} {state} {state:?} {}", state.code()).unwrap();
        });
    }
    lines.compare("answers");
}

/// A register with one bit, with all but one, with bytes of ones, none and all.
fn registers<const N: usize>() -> impl Iterator<Item = [u8; N]> {
    let one = |bit: usize| {
        let mut bytes = [0; N];
        bytes[bit / 8] = 1 << (bit % 8);
        bytes
    };
    let byte = |at: usize| {
        let mut bytes = [0; N];
        bytes[at] = 0xff;
        bytes
    };
    let bits = (0..N * 8).flat_map(move |bit| [one(bit), one(bit).map(|b| !b)]);
    bits.chain((0..N).flat_map(move |at| [byte(at), byte(at).map(|b| !b)])).chain([[0; N], [0xff; N]])
}

#[test]
fn what_each_bit_of_a_register_means() {
    let mut lines = Lines(Vec::new());
    let policies = [CrcPolicy::Wire, CrcPolicy::Host, CrcPolicy::Ignore];
    for (n, bytes) in registers::<16>().enumerate() {
        lines.digest(format!("16 bytes, {n}"), |out| {
            let c = Csd::new(bytes);
            let derived = (c.c_size(), c.c_size_mult(), c.currents_ua(), c.taac_ps(), c.tran_speed_bps());
            let sizes = (c.capacity_bytes(), c.blocks(), c.erase_sector_bytes(), c.byte_addressed());
            let classes: Vec<_> = (0..20).filter(|class| c.has_class(*class)).collect();
            writeln!(out, "{derived:?} {sizes:?} {classes:?} {:?} {:?} {c:?}", c.info(), c.info().emit())
                .unwrap();
            let m = MmcCsd::new(bytes);
            let derived = (m.taac_ps(), m.tran_speed_hz(), m.csd_capacity_bytes(), m.capacity_from_ext_csd());
            writeln!(out, "{derived:?} {} {:?} {m:?}", m.erase_group_bytes(), m.info().emit()).unwrap();
            let (i, j, k) = (Cid::new(bytes), MmcCid::new(bytes), MmcCidV1::new(bytes));
            writeln!(out, "{} {} {} {:?}", i.oid_text(), i.pnm_text(), i.mdt_year(), i.info().emit())
                .unwrap();
            writeln!(out, "{} {} {:?}", j.oid16(), j.pnm_text(), j.info().emit()).unwrap();
            writeln!(out, "{} {:?} {:?}", k.pnm_text(), k.info(), k.info().emit()).unwrap();
            let state = CrcState::of(&bytes);
            writeln!(out, "{state} {} {} {}", state.name(), c.crc7(), c.end_bit()).unwrap();
            for policy in policies {
                let (i, j, k) = (i.check(policy), j.check(policy), k.check(policy));
                writeln!(out, "{:?} {:?} {i:?} {j:?} {k:?}", c.check(policy), m.check(policy)).unwrap();
            }
            let words = [0, 4, 8, 12].map(|at| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()));
            assert_eq!(Csd::from_words(words).emit(), bytes);
        });
    }
    // Sizes of each structure around what decides: all READ_BL_LEN, C_SIZE_MULT and structures.
    lines.digest("CSDs that could be", |out| {
        for (structure, read_bl_len, size, ccc) in (0..4_u8)
            .flat_map(|s| (0..16_u8).map(move |b| (s, b)))
            .flat_map(|(s, b)| [0, 1, 0x3ffff, 0x12345].map(|z| (s, b, z)))
            .flat_map(|(s, b, z)| [0, 1, 0x5b5].map(|c| (s, b, z, c)))
        {
            let info = mmc_proto::register::CsdInfo {
                structure,
                read_bl_len,
                size_bits: size << 5 | size & 7,
                ccc,
                write_bl_len: read_bl_len,
                sector_size: 31,
                ..Default::default()
            };
            let c = info.emit();
            writeln!(out, "{} {} {:?}", c.capacity_bytes(), c.erase_sector_bytes(), c.check(CrcPolicy::Wire))
                .unwrap();
            let info = mmc_proto::register::MmcCsdInfo {
                structure,
                read_bl_len,
                c_size: size as u16,
                c_size_mult: structure,
                ccc,
                write_bl_len: read_bl_len,
                spec_vers: structure + 1,
                ..Default::default()
            };
            let m = info.emit();
            writeln!(
                out,
                "{} {} {:?}",
                m.csd_capacity_bytes(),
                m.capacity_from_ext_csd(),
                m.check(CrcPolicy::Wire)
            )
            .unwrap();
        }
    });
    for (n, bytes) in registers::<8>().enumerate() {
        lines.digest(format!("SCR {n}"), |out| {
            for fixed in [0_u8, 0x80] {
                // SD_SPEC3 set, too, so that the commands count.
                let mut bytes = bytes;
                bytes[2] |= fixed;
                let s = Scr::new(bytes);
                let has = [
                    s.has_cmd20(),
                    s.has_cmd23(),
                    s.has_cmd48_49(),
                    s.has_cmd58_59(),
                    s.has_acmd53_54(),
                    s.four_lines(),
                ];
                writeln!(out, "{} {has:?} {:?} {:?} {:?}", s.version(), s.check(), s.info().emit(), s.info())
                    .unwrap();
            }
        });
    }
    for (n, bytes) in registers::<64>().enumerate() {
        let mut digest = |name: &str, f: &dyn Fn(&mut dyn Write)| {
            lines.digest(format!("{name} {n}"), |out| f(out));
        };
        if n % 16 < 2 || n < 280 {
            digest("64 bytes", &|out| {
                let s = Ssr::new(bytes);
                let derived =
                    (s.dat_bus_width(), s.speed_class(), s.au_size_kib(), s.cq_depth(), s.erase_ms_per_au());
                let has = [s.has_cache(), s.has_host_maintenance(), s.has_card_maintenance()];
                writeln!(out, "{derived:?} {has:?} {:?} {:?}", s.info().emit(), s.check()).unwrap();
                let s = SwitchStatus::new(bytes);
                writeln!(out, "{:?} {:?} {:?}", s.info(), s.info().emit(), s.check()).unwrap();
                for group in 0..8 {
                    let can: Vec<_> = (0..17).filter(|f| s.can(group, *f)).collect();
                    writeln!(out, "{} {} {can:?}", s.support(group), s.selected(group)).unwrap();
                }
            });
        }
    }
    for (n, bytes) in registers::<23>().enumerate() {
        lines.digest(format!("CCCR {n}"), |out| {
            for fixed in [0_u8, 0x43, 0x03] {
                let mut bytes = bytes;
                bytes[0] = if fixed == 0 { bytes[0] } else { fixed };
                let c = Cccr::parse(&bytes).unwrap();
                writeln!(
                    out,
                    "{:?} {:?} {:?} {:?} {}",
                    c,
                    c.info(),
                    c.check(),
                    c.emit(),
                    c.at((n % 30) as u8)
                )
                .unwrap();
            }
            let mut first = [0; 18];
            first.copy_from_slice(&bytes[..18]);
            let f = Fbr::parse(&first).unwrap();
            writeln!(
                out,
                "{f:?} {} {} {} {:?} {}",
                f.interface(),
                f.cis(),
                f.block_size(),
                f.emit(),
                f.at((n % 20) as u8)
            )
            .unwrap();
        });
    }
    lines.digest("lengths", |out| {
        for len in [0, 7, 8, 9, 15, 16, 17, 18, 22, 23, 24, 63, 64, 65, 511, 512, 513] {
            let bytes = vec![0x5a; len];
            writeln!(
                out,
                "{:?} {:?} {:?} {:?}",
                Csd::parse(&bytes),
                Scr::parse(&bytes),
                Ssr::parse(&bytes),
                Cccr::parse(&bytes)
            )
            .unwrap();
            writeln!(
                out,
                "{:?} {:?} {:?} {:?}",
                Fbr::parse(&bytes),
                ExtCsd::parse(&bytes),
                GeneralInfo::parse(&bytes),
                Ocr::parse(&bytes)
            )
            .unwrap();
        }
    });
    for field in ext_csd::ALL {
        lines.digest(field.name, |out| {
            for value in (0..=64).chain([127, 128, 255, 256, 0x1234_5678, u64::MAX]) {
                for rev in [0, 2, 3, 5, 6, 7, 8] {
                    let mut e = ExtCsd::new([0; 512]);
                    e.set(ext_csd::EXT_CSD_REV, rev);
                    e.set(ext_csd::HC_WP_GRP_SIZE, 2);
                    e.set(ext_csd::HC_ERASE_GRP_SIZE, 3);
                    e.set(*field, value);
                    let sizes = (
                        e.capacity_bytes(),
                        e.boot_partition_bytes(),
                        e.rpmb_bytes(),
                        e.hc_erase_group_bytes(),
                        e.hc_wp_group_bytes(),
                    );
                    let general = [0, 1, 2, 3, 4, 5].map(|n| e.gp_partition_bytes(n));
                    let times = (
                        e.erase_timeout_ms(),
                        e.trim_timeout_ms(),
                        e.generic_cmd6_time_ms(),
                        e.partition_switch_time_ms(),
                    );
                    let more = (
                        e.power_off_long_time_ms(),
                        e.out_of_interrupt_time_ms(),
                        e.ini_timeout_ap_ms(),
                        e.sleep_awake_timeout_ns(),
                    );
                    writeln!(out, "{:?} {sizes:?} {general:?} {times:?} {more:?}", e.rev_name()).unwrap();
                    writeln!(
                        out,
                        "{} {:?} {:?} {e:?} {:?}",
                        e.cmdq_depth(),
                        e.info(),
                        e.check(),
                        e.get(*field)
                    )
                    .unwrap();
                }
            }
        });
    }
    for at in (0..64).chain(256..264) {
        lines.digest(format!("extension page, byte {at}"), |out| {
            for byte in [0, 1, 2, 4, 0x10, 0x20, 0x30, 0x40, 0x80, 0xff] {
                let mut page = [0; 512];
                (page[2], page[4], page[16], page[56], page[58]) = (112, 2, 1, 64, 1);
                page[at] = byte;
                let g = GeneralInfo::parse(&page).unwrap();
                writeln!(out, "{g:?} {} {} {:?}", g.revision(), g.length(), g.check()).unwrap();
                for e in g.extensions() {
                    writeln!(out, "{e:?}").unwrap();
                }
                writeln!(
                    out,
                    "{:?} {:?} {:?}",
                    PowerSet::parse(&page),
                    PerformanceSet::parse(&page),
                    g.emit() == page
                )
                .unwrap();
            }
        });
    }
    lines.digest("years", |out| {
        for (code, rev) in (0..=255)
            .flat_map(|code| [None, Some(0), Some(4), Some(5), Some(8), Some(9)].map(|rev| (code, rev)))
        {
            writeln!(out, "{}", mmc_year(code, rev)).unwrap();
        }
    });
    lines.compare("registers");
}

#[test]
fn frames_and_quirks() {
    let mut lines = Lines(Vec::new());
    lines.digest("frames", |out| {
        let command = CommandFrame::from(&Command::read_single_block(0x1234_5678)).emit();
        let answer = ResponseFrame { index: 17, word: 0x900 }.emit();
        let bare = ResponseFrame { index: 63, word: 0xff_8000 }.emit_without_crc();
        let long = LongFrame(*b"\x03SDTOY1G\x10\x12\x34\x56\x78\x01\x35\x01").emit();
        for bit in 0..=136 {
            let flip = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                bytes
            };
            writeln!(
                out,
                "{:?} {:?}",
                CommandFrame::parse(&flip(&command)),
                ResponseFrame::parse(&flip(&answer))
            )
            .unwrap();
            let long = LongFrame::parse(&flip(&long));
            writeln!(out, "{:?} {long:?}", ResponseFrame::parse_without_crc(&flip(&bare))).unwrap();
        }
        for byte in 0..=255 {
            let first = |bytes: &[u8]| [&[byte], &bytes[1..]].concat();
            writeln!(
                out,
                "{:?} {:?}",
                CommandFrame::parse(&first(&command)),
                ResponseFrame::parse(&first(&answer))
            )
            .unwrap();
            let long = LongFrame::parse(&first(&long));
            writeln!(out, "{:?} {long:?}", ResponseFrame::parse_without_crc(&first(&bare))).unwrap();
        }
    });
    for (n, q) in quirk::SD.iter().enumerate() {
        lines.digest(format!("SD quirk {n}"), |out| {
            let months = [q.from, q.to]
                .into_iter()
                .flatten()
                .flat_map(|(y, m)| [(y, m), (y, m + 1), (y, m.saturating_sub(1)), (y + 1, m), (y - 1, m)]);
            for (year, month) in months.chain([(2000, 1), (2030, 6)]) {
                let name = q.name.unwrap_or(*b"other");
                let pnm = name.iter().fold(0, |pnm, byte| pnm << 8 | u64::from(*byte));
                let info = mmc_proto::register::CidInfo {
                    mid: q.mid.unwrap_or(1),
                    oid: q.oid.unwrap_or(1),
                    pnm,
                    mdt_year_code: (year - 2000) as u8,
                    mdt_month: month,
                    ..Default::default()
                };
                for wrong in 0..4 {
                    let mut info = info;
                    match wrong {
                        1 => info.mid ^= 1,
                        2 => info.oid ^= 1,
                        3 => info.pnm ^= 1,
                        _ => {}
                    }
                    writeln!(out, "{:?} {}", quirk::avoid(&info.emit(), quirk::SD), q.matches(&info.emit()))
                        .unwrap();
                }
            }
        });
    }
    for (n, q) in quirk::MMC.iter().enumerate() {
        lines.digest(format!("MMC quirk {n}"), |out| {
            let name = q.name.unwrap_or("other");
            let pnm = name
                .bytes()
                .chain(std::iter::repeat(b' '))
                .take(6)
                .fold(0, |pnm, byte| pnm << 8 | u64::from(byte));
            for rev in [None, Some(0), q.rev, q.rev.map(|r| r + 1)] {
                for wrong in 0..4 {
                    let oid = q.oid.unwrap_or(1);
                    let mut info = MmcCidInfo { mid: q.mid.unwrap_or(1), pnm, ..Default::default() };
                    info.oid8 = oid as u8;
                    info.reserved = (oid >> 10) as u8;
                    info.cbx = (oid >> 8) as u8 & 3;
                    match wrong {
                        1 => info.mid ^= 1,
                        2 => info.oid8 ^= 1,
                        3 => info.pnm ^= 1 << 40,
                        _ => {}
                    }
                    writeln!(
                        out,
                        "{:?} {}",
                        quirk::avoid_mmc(&info.emit(), rev, quirk::MMC),
                        q.matches(&info.emit(), rev)
                    )
                    .unwrap();
                }
            }
        });
    }
    for (n, &timing) in Timing::ALL.iter().enumerate() {
        let one = Timings::default_only().with(timing);
        let all = Timing::ALL.iter().copied().fold(Timings::new(), Timings::with);
        let has = |set: Timings| Timing::ALL.iter().map(|t| u8::from(set.has(*t))).collect::<Vec<_>>();
        lines.say(format!(
            "{n} {timing:?} {} {} {:?} {:?}",
            timing.max_hz(),
            timing.ddr(),
            has(one),
            has(all.without(timing))
        ));
        lines.say(format!(
            "{:?} {:?}",
            has(Timings::new().with(timing).with(timing)),
            has(Timings::new().without(timing))
        ));
    }
    lines.compare("rest");
}

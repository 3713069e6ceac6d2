//! Every command of `spec/card.md` §2, §3 and §15, as the specification has it, beside the constructor for it.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use mmc_hal::Dir;
use mmc_proto::bus::Width;
use mmc_proto::command::{
    Command, CountFlags, Dialect, ExtPlace, ExtUnit, IoCount, SecurityProtocol, Stop, SwitchAccess, TaskOp,
};

/// Whose command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    Sd,
    Mmc,
    Sdio,
}

impl Set {
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Sd | Self::Sdio => Dialect::Sd,
            Self::Mmc => Dialect::Mmc,
        }
    }
    pub fn title(self) -> &'static str {
        match self {
            Self::Sd => "SD",
            Self::Mmc => "MMC and eMMC",
            Self::Sdio => "SDIO",
        }
    }
}

pub struct Row {
    pub set: Set,
    pub app: bool,
    pub index: u8,
    /// The standard's name, as [`mmc_proto::command::name`] must have it.
    pub name: &'static str,
    /// `-`, R1, R1b, R2 …
    pub response: &'static str,
    /// `-`, `read 512`, `write 4 …`: bytes of a block.
    pub data: &'static str,
    /// As it is written in Rust.
    pub constructor: &'static str,
    /// What it makes; `None`: not implemented, and `constructor` says why.
    pub command: Option<Command>,
    /// The argument it must have.
    pub arg: u32,
}

macro_rules! rows {
    ($($set:ident $kind:ident $index:literal $name:literal $response:literal $data:literal $arg:literal $command:expr;)*) => {
        vec![$(Row {
            set: Set::$set,
            app: stringify!($kind) == "ACMD",
            index: $index,
            name: $name,
            response: $response,
            data: $data,
            constructor: stringify!($command),
            command: Some($command),
            arg: $arg,
        }),*]
    };
}

/// The extension register of the examples: function 2, page 0, byte 260.
const PLACE: ExtPlace = ExtPlace { io: false, function: 2, address: 260 };
const SPEAK: SecurityProtocol = SecurityProtocol { protocol: 0xee, specific: 0x1234, feature: 1 };
const NO_FLAGS: CountFlags = CountFlags::empty();

pub fn rows() -> Vec<Row> {
    let mut rows = rows! {
        Sd CMD 0 "GO_IDLE_STATE" "-" "-" 0 Command::go_idle_state();
        Sd CMD 2 "ALL_SEND_CID" "R2" "-" 0 Command::all_send_cid();
        Sd CMD 3 "SEND_RELATIVE_ADDR" "R6" "-" 0 Command::send_relative_addr();
        Sd CMD 4 "SET_DSR" "-" "-" 0x0404_0000 Command::set_dsr(0x404);
        Sd CMD 6 "SWITCH_FUNC" "R1" "read 64" 0x80ff_fff1 Command::switch_function(true, 1, 1);
        Sd CMD 7 "SELECT/DESELECT_CARD" "R1b" "-" 0x1234_0000 Command::select_card(0x1234);
        Sd CMD 7 "SELECT/DESELECT_CARD" "-" "-" 0 Command::deselect_cards();
        Sd CMD 8 "SEND_IF_COND" "R7" "-" 0x1aa Command::send_if_cond(0xaa);
        Sd CMD 9 "SEND_CSD" "R2" "-" 0x1234_0000 Command::send_csd(0x1234);
        Sd CMD 10 "SEND_CID" "R2" "-" 0x1234_0000 Command::send_cid(0x1234);
        Sd CMD 11 "VOLTAGE_SWITCH" "R1" "-" 0 Command::voltage_switch();
        Sd CMD 12 "STOP_TRANSMISSION" "R1b" "-" 0 Command::stop_transmission();
        Sd CMD 13 "SEND_STATUS" "R1" "-" 0x1234_0000 Command::send_status(0x1234);
        Sd CMD 13 "SEND_STATUS" "R1" "-" 0x1234_8000 Command::send_task_status(0x1234);
        Sd CMD 15 "GO_INACTIVE_STATE" "-" "-" 0x1234_0000 Command::go_inactive_state(0x1234);
        Sd CMD 16 "SET_BLOCKLEN" "R1" "-" 512 Command::set_blocklen(512);
        Sd CMD 17 "READ_SINGLE_BLOCK" "R1" "read 512" 7 Command::read_single_block(7);
        Sd CMD 18 "READ_MULTIPLE_BLOCK" "R1" "read 512 …" 7 Command::read_multiple_block(7, 3, Stop::Manual);
        Sd CMD 19 "SEND_TUNING_BLOCK" "R1" "read 64" 0 Command::send_tuning_block();
        Sd CMD 20 "SPEED_CLASS_CONTROL" "R1b" "-" 0x4000_0000 Command::speed_class_control(4);
        Sd CMD 22 "ADDRESS_EXTENSION" "R1" "-" 0x3f Command::address_extension(0x3f);
        Sd CMD 23 "SET_BLOCK_COUNT" "R1" "-" 3 Command::set_block_count(3);
        Sd CMD 24 "WRITE_BLOCK" "R1" "write 512" 7 Command::write_block(7);
        Sd CMD 25 "WRITE_MULTIPLE_BLOCK" "R1" "write 512 …" 7 Command::write_multiple_block(7, 3, Stop::None);
        Sd CMD 27 "PROGRAM_CSD" "R1" "write 16" 0 Command::program_csd();
        Sd CMD 28 "SET_WRITE_PROT" "R1b" "-" 7 Command::set_write_prot(7);
        Sd CMD 29 "CLR_WRITE_PROT" "R1b" "-" 7 Command::clr_write_prot(7);
        Sd CMD 30 "SEND_WRITE_PROT" "R1" "read 4" 7 Command::send_write_prot(7);
        Sd CMD 32 "ERASE_WR_BLK_START" "R1" "-" 7 Command::erase_wr_blk_start(7);
        Sd CMD 33 "ERASE_WR_BLK_END" "R1" "-" 7 Command::erase_wr_blk_end(7);
        Sd CMD 38 "ERASE" "R1b" "-" 2 Command::erase(2);
        Sd CMD 39 "SELECT_CARD_PARTITION" "R1b" "-" 0x0300_0000 Command::select_card_partition(3);
        Sd CMD 42 "LOCK_UNLOCK" "R1" "write 8" 0 Command::lock_unlock(8);
        Sd CMD 43 "Q_MANAGEMENT" "R1b" "-" 0x0005_0002 Command::q_management(TaskOp::One(5));
        Sd CMD 44 "Q_TASK_INFO_A" "R1" "-" 0x4185_0010 Command::q_task_info_a(Dir::Read, 5, 16, true, 1);
        Sd CMD 45 "Q_TASK_INFO_B" "R1" "-" 7 Command::q_task_info_b(7);
        Sd CMD 46 "Q_RD_TASK" "R1" "read 512 …" 0x0005_0000 Command::q_rd_task(5, 16);
        Sd CMD 47 "Q_WR_TASK" "R1" "write 512 …" 0x0005_0000 Command::q_wr_task(5, 16);
        Sd CMD 48 "READ_EXTR_SINGLE" "R1" "read 512" 0x1002_0800 Command::read_extr_single(PLACE, 1);
        Sd CMD 49 "WRITE_EXTR_SINGLE" "R1" "write 512" 0x1002_0800 Command::write_extr_single(PLACE, 1);
        Sd CMD 49 "WRITE_EXTR_SINGLE" "R1" "write 512" 0x1402_0801 Command::write_extr_masked(PLACE, 1);
        Sd CMD 55 "APP_CMD" "R1" "-" 0x1234_0000 Command::app_cmd(0x1234);
        Sd CMD 56 "GEN_CMD" "R1" "read 512" 1 Command::gen_cmd(1);
        Sd CMD 56 "GEN_CMD" "R1" "write 512" 2 Command::gen_cmd(2);
        Sd CMD 58 "READ_EXTR_MULTI" "R1" "read 512 …" 0x1002_0801 Command::read_extr_multi(PLACE, ExtUnit::Block, 2);
        Sd CMD 59 "WRITE_EXTR_MULTI" "R1" "write 512 …" 0x1402_0801 Command::write_extr_multi(PLACE, ExtUnit::Large, 2);
        Sd ACMD 6 "SET_BUS_WIDTH" "R1" "-" 2 Command::acmd_set_bus_width(Width::Four);
        Sd ACMD 13 "SD_STATUS" "R1" "read 64" 0 Command::acmd_sd_status();
        Sd ACMD 22 "SEND_NUM_WR_BLOCKS" "R1" "read 4" 0 Command::acmd_send_num_wr_blocks();
        Sd ACMD 22 "SEND_NUM_WR_BLOCKS" "R1" "read 8" 0 Command::acmd_send_num_wr_blocks_sduc();
        Sd ACMD 23 "SET_WR_BLK_ERASE_COUNT" "R1" "-" 0x007f_ffff Command::acmd_set_wr_blk_erase_count(u32::MAX);
        Sd ACMD 41 "SD_SEND_OP_COND" "R3" "-" 0x4030_0000 Command::acmd_sd_send_op_cond(0x4030_0000);
        Sd ACMD 42 "SET_CLR_CARD_DETECT" "R1" "-" 1 Command::acmd_set_clr_card_detect(true);
        Sd ACMD 51 "SEND_SCR" "R1" "read 8" 0 Command::acmd_send_scr();
        Sd ACMD 53 "SECURE_RECEIVE" "R1" "read 512 …" 0xee12_3401 Command::acmd_secure_receive(SPEAK, 2);
        Sd ACMD 54 "SECURE_SEND" "R1" "write 512 …" 0xee12_3401 Command::acmd_secure_send(SPEAK, 2);

        Mmc CMD 0 "GO_IDLE_STATE" "-" "-" 0 Command::go_idle_state();
        Mmc CMD 0 "GO_IDLE_STATE" "-" "-" 0xf0f0_f0f0 Command::go_pre_idle_state();
        Mmc CMD 0 "GO_IDLE_STATE" "-" "-" 0xffff_fffa Command::boot_initiation();
        Mmc CMD 1 "SEND_OP_COND" "R3" "-" 0x40ff_8080 Command::send_op_cond(0x40ff_8080);
        Mmc CMD 2 "ALL_SEND_CID" "R2" "-" 0 Command::all_send_cid();
        Mmc CMD 3 "SET_RELATIVE_ADDR" "R1" "-" 0x1_0000 Command::set_relative_addr(1);
        Mmc CMD 4 "SET_DSR" "-" "-" 0x0404_0000 Command::set_dsr(0x404);
        Mmc CMD 5 "SLEEP_AWAKE" "R1b" "-" 0x1_8000 Command::sleep_awake(1, true);
        Mmc CMD 6 "SWITCH" "R1b" "-" 0x03b9_0101 Command::mmc_switch(SwitchAccess::WriteByte, 185, 1);
        Mmc CMD 7 "SELECT/DESELECT_CARD" "R1b" "-" 0x1_0000 Command::select_card(1);
        Mmc CMD 7 "SELECT/DESELECT_CARD" "-" "-" 0 Command::deselect_cards();
        Mmc CMD 8 "SEND_EXT_CSD" "R1" "read 512" 0 Command::send_ext_csd();
        Mmc CMD 9 "SEND_CSD" "R2" "-" 0x1_0000 Command::send_csd(1);
        Mmc CMD 10 "SEND_CID" "R2" "-" 0x1_0000 Command::send_cid(1);
        Mmc CMD 12 "STOP_TRANSMISSION" "R1b" "-" 0 Command::stop_transmission();
        Mmc CMD 12 "STOP_TRANSMISSION" "R1b" "-" 0x1_0001 Command::stop_transmission_hpi(1);
        Mmc CMD 13 "SEND_STATUS" "R1" "-" 0x1_0000 Command::send_status(1);
        Mmc CMD 13 "SEND_STATUS" "R1" "-" 0x1_0001 Command::send_status_hpi(1);
        Mmc CMD 13 "SEND_STATUS" "R1" "-" 0x1_8000 Command::send_task_status(1);
        Mmc CMD 14 "BUSTEST_R" "R1" "read 8" 0 Command::bustest_r(8);
        Mmc CMD 15 "GO_INACTIVE_STATE" "-" "-" 0x1_0000 Command::go_inactive_state(1);
        Mmc CMD 16 "SET_BLOCKLEN" "R1" "-" 512 Command::set_blocklen(512);
        Mmc CMD 17 "READ_SINGLE_BLOCK" "R1" "read 512" 7 Command::read_single_block(7);
        Mmc CMD 18 "READ_MULTIPLE_BLOCK" "R1" "read 512 …" 7 Command::read_multiple_block(7, 3, Stop::None);
        Mmc CMD 19 "BUSTEST_W" "R1" "write 8" 0 Command::bustest_w(8);
        Mmc CMD 21 "SEND_TUNING_BLOCK" "R1" "read 128" 0 Command::send_tuning_block_mmc(Width::Eight);
        Mmc CMD 21 "SEND_TUNING_BLOCK" "R1" "read 64" 0 Command::send_tuning_block_mmc(Width::Four);
        Mmc CMD 23 "SET_BLOCK_COUNT" "R1" "-" 0x8600_ffff Command::set_block_count_mmc(0xffff, CountFlags::RELIABLE, 3);
        Mmc CMD 24 "WRITE_BLOCK" "R1" "write 512" 7 Command::write_block(7);
        Mmc CMD 25 "WRITE_MULTIPLE_BLOCK" "R1" "write 512 …" 7 Command::write_multiple_block(7, 3, Stop::None);
        Mmc CMD 26 "PROGRAM_CID" "R1" "write 16" 0 Command::program_cid();
        Mmc CMD 27 "PROGRAM_CSD" "R1" "write 16" 0 Command::program_csd();
        Mmc CMD 28 "SET_WRITE_PROT" "R1b" "-" 7 Command::set_write_prot(7);
        Mmc CMD 29 "CLR_WRITE_PROT" "R1b" "-" 7 Command::clr_write_prot(7);
        Mmc CMD 30 "SEND_WRITE_PROT" "R1" "read 4" 7 Command::send_write_prot(7);
        Mmc CMD 31 "SEND_WRITE_PROT_TYPE" "R1" "read 8" 7 Command::send_write_prot_type(7);
        Mmc CMD 35 "ERASE_GROUP_START" "R1" "-" 7 Command::erase_group_start(7);
        Mmc CMD 36 "ERASE_GROUP_END" "R1" "-" 7 Command::erase_group_end(7);
        Mmc CMD 38 "ERASE" "R1b" "-" 0x8000_8000 Command::erase(0x8000_8000);
        Mmc CMD 39 "FAST_IO" "R4" "-" 0x1_95a5 Command::fast_io(1, 0x15, Some(0xa5));
        Mmc CMD 40 "GO_IRQ_STATE" "R5" "-" 0 Command::go_irq_state();
        Mmc CMD 42 "LOCK_UNLOCK" "R1" "write 8" 0 Command::lock_unlock(8);
        Mmc CMD 44 "QUEUED_TASK_PARAMS" "R1" "-" 0x6085_0010 Command::queued_task_params(Dir::Read, 5, 16, true, CountFlags::TAG, 0);
        Mmc CMD 45 "QUEUED_TASK_ADDRESS" "R1" "-" 7 Command::queued_task_address(7);
        Mmc CMD 46 "EXECUTE_READ_TASK" "R1" "read 512 …" 0x0005_0000 Command::execute_read_task(5, 16);
        Mmc CMD 47 "EXECUTE_WRITE_TASK" "R1" "write 512 …" 0x0005_0000 Command::execute_write_task(5, 16);
        Mmc CMD 48 "CMDQ_TASK_MGMT" "R1b" "-" 1 Command::cmdq_task_mgmt(TaskOp::All);
        Mmc CMD 49 "SET_TIME" "R1" "write 512" 0 Command::set_time();
        Mmc CMD 53 "PROTOCOL_RD" "R1" "read 512 …" 0x1234_ee00 Command::protocol_rd(0xee, 0x1234, 2);
        Mmc CMD 54 "PROTOCOL_WR" "R1" "write 512 …" 0x1234_ee00 Command::protocol_wr(0xee, 0x1234, 2);
        Mmc CMD 55 "APP_CMD" "R1" "-" 0x1_0000 Command::app_cmd(1);
        Mmc CMD 56 "GEN_CMD" "R1" "read 512" 1 Command::gen_cmd(1);

        Sdio CMD 5 "IO_SEND_OP_COND" "R4" "-" 0x0130_0000 Command::io_send_op_cond(0x0130_0000);
        Sdio CMD 52 "IO_RW_DIRECT" "R5" "-" 0x1000_0c00 Command::io_read_direct(1, 6);
        Sdio CMD 52 "IO_RW_DIRECT" "R5" "-" 0x8000_0c08 Command::io_write_direct(0, 6, 8);
        Sdio CMD 53 "IO_RW_EXTENDED" "R5" "read 512" 0x1400_2000 Command::io_rw_extended(Dir::Read, 1, 16, true, IoCount::Bytes(512));
        Sdio CMD 53 "IO_RW_EXTENDED" "R5" "write 64 …" 0x9800_0002 Command::io_rw_extended(Dir::Write, 1, 0, false, IoCount::Blocks { len: 64, blocks: 2 });
    };
    let missing = |set, index, name, response, data, why| Row {
        set,
        app: false,
        index,
        name,
        response,
        data,
        constructor: why,
        command: None,
        arg: 0,
    };
    let stream = "a stream without blocks and CRC, gone since 4.2: no host here can move one";
    rows.push(missing(Set::Mmc, 11, "READ_DAT_UNTIL_STOP", "R1", "read", stream));
    rows.push(missing(Set::Mmc, 20, "WRITE_DAT_UNTIL_STOP", "R1", "write", stream));
    let dps = "its shape is in a specification that is not public (`Command::plain` and `data` can make it)";
    rows.push(missing(Set::Sd, 21, "DPS", "?", "?", dps));
    rows.push(missing(Set::Sd, 40, "DPS", "?", "?", dps));
    let function = "what it means depends on the function selected in group 2 (`Command::plain` and `data`)";
    for index in [34, 35, 36, 37, 50, 57] {
        rows.push(missing(Set::Sd, index, "(of a command system)", "?", "?", function));
    }
    let maker = "the maker's own (`Command::plain` and `data`)";
    for index in 60..64 {
        rows.push(missing(Set::Sd, index, "(of the maker)", "?", "?", maker));
    }
    rows.sort_by_key(|row| (row.set, row.app, row.index));
    rows
}

//! The standards' names of commands (`spec/card.md` §2, §3, §15, §16).

/// Which standard's command set an index belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// SD memory and SDIO cards on the SD bus.
    #[default]
    Sd,
    /// MMC and eMMC.
    Mmc,
    /// Either kind of card in SPI mode, where CMD58 and CMD59 are something else.
    Spi,
}

/// The name of command `index`, after a CMD55 if `app`; `None` if the standard names none.
#[must_use]
pub const fn name(index: u8, dialect: Dialect, app: bool) -> Option<&'static str> {
    if app {
        return match dialect {
            Dialect::Mmc => None,
            Dialect::Sd | Dialect::Spi => app_name(index),
        };
    }
    match dialect {
        Dialect::Sd => sd_name(index),
        Dialect::Mmc => mmc_name(index),
        Dialect::Spi => spi_name(index),
    }
}

const fn app_name(index: u8) -> Option<&'static str> {
    Some(match index {
        6 => "SET_BUS_WIDTH",
        13 => "SD_STATUS",
        22 => "SEND_NUM_WR_BLOCKS",
        23 => "SET_WR_BLK_ERASE_COUNT",
        41 => "SD_SEND_OP_COND",
        42 => "SET_CLR_CARD_DETECT",
        51 => "SEND_SCR",
        53 => "SECURE_RECEIVE",
        54 => "SECURE_SEND",
        _ => return None,
    })
}

/// What SD and MMC call the same.
const fn common_name(index: u8) -> Option<&'static str> {
    Some(match index {
        0 => "GO_IDLE_STATE",
        2 => "ALL_SEND_CID",
        4 => "SET_DSR",
        9 => "SEND_CSD",
        10 => "SEND_CID",
        12 => "STOP_TRANSMISSION",
        13 => "SEND_STATUS",
        15 => "GO_INACTIVE_STATE",
        16 => "SET_BLOCKLEN",
        17 => "READ_SINGLE_BLOCK",
        18 => "READ_MULTIPLE_BLOCK",
        23 => "SET_BLOCK_COUNT",
        24 => "WRITE_BLOCK",
        25 => "WRITE_MULTIPLE_BLOCK",
        27 => "PROGRAM_CSD",
        28 => "SET_WRITE_PROT",
        29 => "CLR_WRITE_PROT",
        30 => "SEND_WRITE_PROT",
        38 => "ERASE",
        42 => "LOCK_UNLOCK",
        55 => "APP_CMD",
        56 => "GEN_CMD",
        _ => return None,
    })
}

const fn sd_name(index: u8) -> Option<&'static str> {
    Some(match index {
        3 => "SEND_RELATIVE_ADDR",
        5 => "IO_SEND_OP_COND",
        6 => "SWITCH_FUNC",
        7 => "SELECT/DESELECT_CARD",
        8 => "SEND_IF_COND",
        11 => "VOLTAGE_SWITCH",
        19 => "SEND_TUNING_BLOCK",
        20 => "SPEED_CLASS_CONTROL",
        22 => "ADDRESS_EXTENSION",
        32 => "ERASE_WR_BLK_START",
        33 => "ERASE_WR_BLK_END",
        39 => "SELECT_CARD_PARTITION",
        43 => "Q_MANAGEMENT",
        44 => "Q_TASK_INFO_A",
        45 => "Q_TASK_INFO_B",
        46 => "Q_RD_TASK",
        47 => "Q_WR_TASK",
        48 => "READ_EXTR_SINGLE",
        49 => "WRITE_EXTR_SINGLE",
        52 => "IO_RW_DIRECT",
        53 => "IO_RW_EXTENDED",
        58 => "READ_EXTR_MULTI",
        59 => "WRITE_EXTR_MULTI",
        _ => return common_name(index),
    })
}

const fn mmc_name(index: u8) -> Option<&'static str> {
    Some(match index {
        1 => "SEND_OP_COND",
        3 => "SET_RELATIVE_ADDR",
        5 => "SLEEP_AWAKE",
        6 => "SWITCH",
        7 => "SELECT/DESELECT_CARD",
        8 => "SEND_EXT_CSD",
        11 => "READ_DAT_UNTIL_STOP",
        14 => "BUSTEST_R",
        19 => "BUSTEST_W",
        20 => "WRITE_DAT_UNTIL_STOP",
        21 => "SEND_TUNING_BLOCK",
        26 => "PROGRAM_CID",
        31 => "SEND_WRITE_PROT_TYPE",
        35 => "ERASE_GROUP_START",
        36 => "ERASE_GROUP_END",
        39 => "FAST_IO",
        40 => "GO_IRQ_STATE",
        44 => "QUEUED_TASK_PARAMS",
        45 => "QUEUED_TASK_ADDRESS",
        46 => "EXECUTE_READ_TASK",
        47 => "EXECUTE_WRITE_TASK",
        48 => "CMDQ_TASK_MGMT",
        49 => "SET_TIME",
        53 => "PROTOCOL_RD",
        54 => "PROTOCOL_WR",
        _ => return common_name(index),
    })
}

/// SPI mode leaves out what needs the CMD line to itself (addressing, queueing, inactive state).
const fn spi_name(index: u8) -> Option<&'static str> {
    Some(match index {
        1 => "SEND_OP_COND",
        58 => "READ_OCR",
        59 => "CRC_ON_OFF",
        2..=4 | 7 | 11 | 15 | 19 | 20 | 22 | 23 | 39 | 43..=49 => return None,
        _ => return sd_name(index),
    })
}

//! Every field of the EXT_CSD (`spec/card.md` §12).

/// One field of the EXT_CSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the standard.
    pub name: &'static str,
    /// First byte.
    pub offset: u16,
    /// Bytes, least significant first.
    pub len: u8,
    /// The `EXT_CSD_REV` that brought it (0 = 4.0 … 4 = 4.4, 5 = 4.41, 6 = 4.5, 7 = 5.0, 8 = 5.1).
    pub since: u8,
    /// Who may change it: `R` read only, `W` once, `/E` often, `/C_P` until power-down or reset, `/E_P` set
    /// anew after each.
    pub access: &'static str,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident [$offset:literal; $len:literal] $since:literal $access:literal;)*) => {
        $($(#[$doc])* pub const $name: Field = Field { name: stringify!($name), offset: $offset, len: $len, since: $since, access: $access };)*
        /// All of them, from the last byte to the first.
        pub static ALL: &[Field] = &[$($name),*];
    };
}

fields! {
    /// Ext security err: bit 0 SEC_INVALID_CMD_PARAM, bit 1 ACCESS_DENIED.
    EXT_SECURITY_ERR [505; 1] 6 "R";
    /// S cmd set: bit 0 standard, 1 secure, 2 content protection.
    S_CMD_SET [504; 1] 0 "R";
    /// High priority interrupt: bit 0 support, bit 1 1=CMD12 0=CMD13.
    HPI_FEATURES [503; 1] 5 "R";
    /// BKOPS support, bit 0.
    BKOPS_SUPPORT [502; 1] 5 "R";
    /// Most reads in one packed command.
    MAX_PACKED_READS [501; 1] 6 "R";
    /// Most writes in one packed command.
    MAX_PACKED_WRITES [500; 1] 6 "R";
    /// Data tag support, bit 0.
    DATA_TAG_SUPPORT [499; 1] 6 "R";
    /// Tag unit size: unit = 2ⁿ sectors.
    TAG_UNIT_SIZE [498; 1] 6 "R";
    /// Resources a data tag takes.
    TAG_RES_SIZE [497; 1] 6 "R";
    /// Context capabilities: bits 3:0 max ids, bits 6:4 large unit max mult.
    CONTEXT_CAPABILITIES [496; 1] 6 "R";
    /// Large unit size m1: (n+1) MiB.
    LARGE_UNIT_SIZE_M1 [495; 1] 6 "R";
    /// Ext support: bit 0 system code, bit 1 non-persistent attribute.
    EXT_SUPPORT [494; 1] 6 "R";
    /// Supported modes: bit 0 FFU, bit 1 vendor mode.
    SUPPORTED_MODES [493; 1] 7 "R";
    /// FFU features: bit 0 MODE_OPERATION_CODES supported.
    FFU_FEATURES [492; 1] 7 "R";
    /// Operation codes timeout: 100 us · 2ⁿ, n at most 23.
    OPERATION_CODES_TIMEOUT [491; 1] 7 "R";
    /// FFU arg: address argument for FFU writes.
    FFU_ARG [487; 4] 7 "R";
    /// Barrier support, bit 0.
    BARRIER_SUPPORT [486; 1] 8 "R";
    /// Command queue support, bit 0.
    CMDQ_SUPPORT [308; 1] 8 "R";
    /// Command queue depth: bits 4:0+1.
    CMDQ_DEPTH [307; 1] 8 "R";
    /// Sectors of new firmware stored so far.
    NUMBER_OF_FW_SECTORS_CORRECTLY_PROGRAMMED [302; 4] 7 "R";
    /// The maker's own health report.
    VENDOR_PROPRIETARY_HEALTH_REPORT [270; 32] 7 "R";
    /// Life used of type B memory: n for (n−1)·10…n·10 %, 11 exceeded.
    DEVICE_LIFE_TIME_EST_TYP_B [269; 1] 7 "R";
    /// Life used of type A memory: n for (n−1)·10…n·10 %, 11 exceeded.
    DEVICE_LIFE_TIME_EST_TYP_A [268; 1] 7 "R";
    /// Pre eol info: 1 normal, 2 warning 80 %, 3 urgent 90 %.
    PRE_EOL_INFO [267; 1] 7 "R";
    /// Optimal read size: n · 4 KiB.
    OPTIMAL_READ_SIZE [266; 1] 7 "R";
    /// Optimal write size: n · 4 KiB.
    OPTIMAL_WRITE_SIZE [265; 1] 7 "R";
    /// Optimal trim unit size: 2ⁿ⁻¹ · 4 KiB.
    OPTIMAL_TRIM_UNIT_SIZE [264; 1] 7 "R";
    /// Version of the device.
    DEVICE_VERSION [262; 2] 7 "R";
    /// Version of the firmware.
    FIRMWARE_VERSION [254; 8] 7 "R";
    /// Pwr cl ddr 200 360: bits 7:4 8-bit, bits 3:0 4-bit.
    PWR_CL_DDR_200_360 [253; 1] 7 "R";
    /// Size of the cache in kilobit (a comment in Linux says KB).
    CACHE_SIZE [249; 4] 6 "R";
    /// Generic cmd6 time: 10 ms.
    GENERIC_CMD6_TIME [248; 1] 6 "R";
    /// Power off long time: 10 ms.
    POWER_OFF_LONG_TIME [247; 1] 6 "R";
    /// BKOPS status: 0 none 1 non critical 2 performance 3 critical.
    BKOPS_STATUS [246; 1] 5 "R";
    /// Sectors stored before a write was interrupted by HPI.
    CORRECTLY_PRG_SECTORS_NUM [242; 4] 5 "R";
    /// Ini timeout ap: 100 ms, first init after partitioning.
    INI_TIMEOUT_AP [241; 1] 4 "R";
    /// Cache flush policy: bit 0 FIFO.
    CACHE_FLUSH_POLICY [240; 1] 8 "R";
    /// Power class of DDR at 52 MHz, 3.6 V.
    PWR_CL_DDR_52_360 [239; 1] 4 "R";
    /// Power class of DDR at 52 MHz, 1.95 V.
    PWR_CL_DDR_52_195 [238; 1] 4 "R";
    /// Power class at 200 MHz, VCCQ 1.95 V (Linux names the two bytes otherwise).
    PWR_CL_200_195 [237; 1] 6 "R";
    /// Power class at 200 MHz, VCCQ 1.3 V (Linux names the two bytes otherwise).
    PWR_CL_200_130 [236; 1] 6 "R";
    /// Least write performance, 8 lines, DDR at 52 MHz.
    MIN_PERF_DDR_W_8_52 [235; 1] 4 "R";
    /// Least read performance, 8 lines, DDR at 52 MHz.
    MIN_PERF_DDR_R_8_52 [234; 1] 4 "R";
    /// Trim mult: times 300 ms.
    TRIM_MULT [232; 1] 4 "R";
    /// Sec feature support: bit 0 SECURE_ER_EN, 2 SEC_BD_BLK_EN, 4 SEC_GB_CL_EN, 6 SEC_SANITIZE.
    SEC_FEATURE_SUPPORT [231; 1] 4 "R";
    /// Sec erase mult: x ERASE_TIMEOUT.
    SEC_ERASE_MULT [230; 1] 4 "R";
    /// Sec trim mult: x ERASE_TIMEOUT.
    SEC_TRIM_MULT [229; 1] 4 "R";
    /// Boot info: bit 0 alt boot, 1 DDR boot, 2 HS boot.
    BOOT_INFO [228; 1] 3 "R";
    /// Boot size mult: times 128 KiB each of 2.
    BOOT_SIZE_MULT [226; 1] 3 "R";
    /// Acc size: bits 3:0 superpage = 512 · 2ⁿ⁻¹.
    ACC_SIZE [225; 1] 3 "R";
    /// High-capacity erase group size: times 512 KiB.
    HC_ERASE_GRP_SIZE [224; 1] 3 "R";
    /// Erase timeout mult: times 300 ms per group.
    ERASE_TIMEOUT_MULT [223; 1] 3 "R";
    /// Rel wr sec c: 1 with enhanced reliable write.
    REL_WR_SEC_C [222; 1] 3 "R";
    /// High-capacity write protect group size: times high-capacity erase groups.
    HC_WP_GRP_SIZE [221; 1] 3 "R";
    /// Sleep current: sleep current 1 uA · 2ⁿ.
    S_C_VCC [220; 1] 3 "R";
    /// Sleep current: sleep current 1 uA · 2ⁿ.
    S_C_VCCQ [219; 1] 3 "R";
    /// Production state awareness timeout: 100 us · 2ⁿ.
    PRODUCTION_STATE_AWARENESS_TIMEOUT [218; 1] 7 "R";
    /// Longest sleep or awake: 100 ns · 2ⁿ, n 1..=23.
    S_A_TIMEOUT [217; 1] 3 "R";
    /// Sleep notification time: 10 us · 2ⁿ.
    SLEEP_NOTIFICATION_TIME [216; 1] 7 "R";
    /// Capacity in sectors of 512 bytes; 0: the CSD has it.
    SEC_COUNT [212; 4] 2 "R";
    /// Secure wp info: bit 0 supported, bit 1 enabled.
    SECURE_WP_INFO [211; 1] 8 "R";
    /// Least write performance, 8 lines at 52 MHz.
    MIN_PERF_W_8_52 [210; 1] 0 "R";
    /// Least read performance, 8 lines at 52 MHz.
    MIN_PERF_R_8_52 [209; 1] 0 "R";
    /// Least write performance, 8 lines at 26 or 4 at 52 MHz.
    MIN_PERF_W_8_26_4_52 [208; 1] 0 "R";
    /// Least read performance, 8 lines at 26 or 4 at 52 MHz.
    MIN_PERF_R_8_26_4_52 [207; 1] 0 "R";
    /// Least write performance, 4 lines at 26 MHz.
    MIN_PERF_W_4_26 [206; 1] 0 "R";
    /// Least read performance, 4 lines at 26 MHz.
    MIN_PERF_R_4_26 [205; 1] 0 "R";
    /// Power class at 26 MHz, 3.6 V.
    PWR_CL_26_360 [203; 1] 0 "R";
    /// Power class at 52 MHz, 3.6 V.
    PWR_CL_52_360 [202; 1] 0 "R";
    /// Power class at 26 MHz, 1.95 V.
    PWR_CL_26_195 [201; 1] 0 "R";
    /// Power class at 52 MHz, 1.95 V.
    PWR_CL_52_195 [200; 1] 0 "R";
    /// Partition switch time: 10 ms.
    PARTITION_SWITCH_TIME [199; 1] 4 "R";
    /// Out of interrupt time: 10 ms.
    OUT_OF_INTERRUPT_TIME [198; 1] 5 "R";
    /// Driver strength: bit n = type n.
    DRIVER_STRENGTH [197; 1] 6 "R";
    /// Speed modes: bits 0 HS 26, 1 HS 52, 2 DDR52 1.8/3 V, 3 DDR52 1.2 V, 4 HS200 1.8 V, 5 HS200 1.2 V, 6
    /// HS400 1.8 V, 7 HS400 1.2 V.
    DEVICE_TYPE [196; 1] 0 "R";
    /// Csd structure: 0..2 as CSD.
    CSD_STRUCTURE [194; 1] 0 "R";
    /// Revision of this register; unknown higher ones are to be accepted.
    EXT_CSD_REV [192; 1] 0 "R";
    /// Command set in force.
    CMD_SET [191; 1] 0 "R/W/E_P";
    /// Revision of the command set.
    CMD_SET_REV [189; 1] 0 "R";
    /// Power class in force.
    POWER_CLASS [187; 1] 0 "R/W/E_P";
    /// HS timing: bits 3:0 0 BC, 1 HS, 2 HS200, 3 HS400; bits 7:4 driver strength.
    HS_TIMING [185; 1] 0 "R/W/E_P";
    /// Strobe support, bit 0.
    STROBE_SUPPORT [184; 1] 8 "R";
    /// Bus width: 0, 1, 2 = 1/4/8 SDR; 5, 6 = 4/8 DDR; bit 7 enhanced strobe; not readable by rule (some
    /// return it).
    BUS_WIDTH [183; 1] 0 "W/E_P";
    /// Erased mem cont: 0 or 1.
    ERASED_MEM_CONT [181; 1] 0 "R";
    /// Partition config: bit 6 BOOT_ACK, bits 5:3 boot enable 0, 1, 2, 7 user, bits 2:0 access 0 user, 1
    /// boot1, 2 boot2, 3 RPMB, 4..7 GP1..4.
    PARTITION_CONFIG [179; 1] 3 "R/W/E & R/W/E_P";
    /// Boot config prot: bit 0 power-on, bit 4 permanent.
    BOOT_CONFIG_PROT [178; 1] 3 "R/W & R/W/C_P";
    /// Boot bus conditions: bits 1:0 width 1/4/8, bit 2 reset keep, bits 4:3 mode SDR BC, SDR HS, DDR.
    BOOT_BUS_CONDITIONS [177; 1] 3 "R/W/E";
    /// Erase group def: bit 0 use HC sizes; lost at reset.
    ERASE_GROUP_DEF [175; 1] 3 "R/W/E_P";
    /// Write protection of the boot partitions.
    BOOT_WP_STATUS [174; 1] 6 "R";
    /// Boot wp: bit 7 SEC_SEL, 6 PWR_WP_DIS, 4 PERM_WP_DIS, 3 PERM_SEC, 2 PERM_WP_EN, 1 PWR_SEC, 0 PWR_WP_EN.
    BOOT_WP [173; 1] 4 "R/W & R/W/C_P";
    /// User wp: bit 7 PERM_PSWD_DIS, 6 CD_PERM_WP_DIS, 4 US_PERM_WP_DIS, 3 US_PWR_WP_DIS, 2 US_PERM_WP_EN, 0
    /// US_PWR_WP_EN.
    USER_WP [171; 1] 4 "R/W & R/W/C_P & R/W/E_P";
    /// Firmware configuration: bit 0 updates disabled for ever.
    FW_CONFIG [169; 1] 4 "R/W";
    /// RPMB size mult: times 128 KiB.
    RPMB_SIZE_MULT [168; 1] 4 "R";
    /// Reliable write set: bits 0..4 user, GP1..4.
    WR_REL_SET [167; 1] 5 "R/W";
    /// Reliable write param: bit 0 HS_CTRL_REL, bit 2 EN_REL_WR, bit 4 EN_RPMB_REL_WR.
    WR_REL_PARAM [166; 1] 5 "R";
    /// Writing 1 starts a sanitize.
    SANITIZE_START [165; 1] 6 "W/E_P";
    /// Writing 1 starts background operations.
    BKOPS_START [164; 1] 5 "W/E_P";
    /// BKOPS en: bit 0 manual (one time), bit 1 auto (rev 8).
    BKOPS_EN [163; 1] 5 "R/W & R/W/E";
    /// RST_n function: 0 temp disabled, 1 enabled for ever, 2 disabled for ever.
    RST_N_FUNCTION [162; 1] 4 "R/W";
    /// HPI mgmt, bit 0.
    HPI_MGMT [161; 1] 5 "R/W/E_P";
    /// Partitioning support: bit 0 partitioning, 1 enhanced, 2 extended attribute.
    PARTITIONING_SUPPORT [160; 1] 4 "R";
    /// Max enh size mult: x WP group.
    MAX_ENH_SIZE_MULT [157; 3] 4 "R";
    /// Partitions attribute: bit 0 user, 1..4 GP.
    PARTITIONS_ATTRIBUTE [156; 1] 4 "R/W";
    /// Partition setting completed: bit 0, one time.
    PARTITION_SETTING_COMPLETED [155; 1] 4 "R/W";
    /// Gp size mult 4: x HC WP group.
    GP_SIZE_MULT_4 [152; 3] 4 "R/W";
    /// Gp size mult 3: x HC WP group.
    GP_SIZE_MULT_3 [149; 3] 4 "R/W";
    /// Gp size mult 2: x HC WP group.
    GP_SIZE_MULT_2 [146; 3] 4 "R/W";
    /// Gp size mult 1: x HC WP group.
    GP_SIZE_MULT_1 [143; 3] 4 "R/W";
    /// Size of the enhanced user area, units of high-capacity write protect groups.
    ENH_SIZE_MULT [140; 3] 4 "R/W";
    /// Enh start addr: byte or sector.
    ENH_START_ADDR [136; 4] 4 "R/W";
    /// Secure management of bad blocks.
    SEC_BAD_BLK_MGMNT [134; 1] 4 "R/W";
    /// Production state.
    PRODUCTION_STATE_AWARENESS [133; 1] 7 "R/W/E";
    /// Case temperature the host sees to.
    TCASE_SUPPORT [132; 1] 6 "W/E_P";
    /// How often the host wakes the device.
    PERIODIC_WAKEUP [131; 1] 6 "R/W/E";
    /// CMD26 and CMD27 work in DDR.
    PROGRAM_CID_CSD_DDR_SUPPORT [130; 1] 6 "R";
    /// The maker's own; iNAND takes byte 113 for CMD38's argument.
    VENDOR_SPECIFIC [64; 64] 0 "vendor";
    /// Native sector size: 0 512, 1 4 KiB.
    NATIVE_SECTOR_SIZE [63; 1] 6 "R";
    /// Writing 1 leaves the emulation of 512-byte sectors.
    USE_NATIVE_SECTOR [62; 1] 6 "R/W";
    /// Data sector size: 0 512, 1 4 KiB.
    DATA_SECTOR_SIZE [61; 1] 6 "R";
    /// Ini timeout emu: 100 ms.
    INI_TIMEOUT_EMU [60; 1] 6 "R";
    /// Class 6 ctrl: bit 0 CMD28.. as dynamic capacity.
    CLASS_6_CTRL [59; 1] 6 "R/W/E_P";
    /// How much capacity the device wants back.
    DYNCAP_NEEDED [58; 1] 6 "R";
    /// Exception events ctrl: bit 1 dyncap, 2 syspool, 3 packed, 4 ext security.
    EXCEPTION_EVENTS_CTRL [56; 2] 6 "R/W/E_P";
    /// Exception events status: bit 0 urgent BKOPS, 1, 2, 3, 4.
    EXCEPTION_EVENTS_STATUS [54; 2] 6 "R";
    /// Ext partitions attribute: 4 bits per GP.
    EXT_PARTITIONS_ATTRIBUTE [52; 2] 6 "R/W";
    /// Configuration of contexts 1 to 15.
    CONTEXT_CONF [37; 15] 6 "R/W/E_P";
    /// Packed command status: bit 0 error, bit 1 indexed.
    PACKED_COMMAND_STATUS [36; 1] 6 "R";
    /// Which entry of a packed command failed.
    PACKED_FAILURE_INDEX [35; 1] 6 "R";
    /// Power off notification: 0 none, 1 powered on, 2 off short, 3 off long, 4 sleep (rev 7).
    POWER_OFF_NOTIFICATION [34; 1] 6 "R/W/E_P";
    /// Cache ctrl: bit 0 on.
    CACHE_CTRL [33; 1] 6 "R/W/E_P";
    /// Flush cache: bit 0 flush, bit 1 barrier (rev 8).
    FLUSH_CACHE [32; 1] 6 "W/E_P";
    /// Barriers are in use.
    BARRIER_CTRL [31; 1] 8 "R/W";
    /// Mode config: 0 normal, 1 FFU, 0x10 vendor.
    MODE_CONFIG [30; 1] 7 "R/W/E_P";
    /// Mode operation codes: 1 install, 2 abort.
    MODE_OPERATION_CODES [29; 1] 7 "W/E_P";
    /// FFU status: 0 ok, 0x10 general, 0x11 install error, 0x12 download error.
    FFU_STATUS [26; 1] 7 "R";
    /// Sectors to be loaded before soldering.
    PRE_LOADING_DATA_SIZE [22; 4] 7 "R/W/E_P";
    /// Most sectors that can be loaded before soldering.
    MAX_PRE_LOADING_DATA_SIZE [18; 4] 7 "R";
    /// Production state awareness, supported and in use.
    PRODUCT_STATE_AWARENESS_ENABLEMENT [17; 1] 7 "R/W/E & R";
    /// Secure removal type: bits 3:0 supported, bits 5:4 selected.
    SECURE_REMOVAL_TYPE [16; 1] 7 "R/W & R";
    /// Command queue mode en, bit 0.
    CMDQ_MODE_EN [15; 1] 8 "R/W/E_P";
}

//! Decodes what somebody read from the registers of a DesignWare host (`spec/dw-mshc.md` §1).

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;

/// Decodes a register dump from the standard input
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Lines it understands, in any mixture; all values are hexadecimal, with or without 0x:
  STATUS: 0x00000106                              a name, as Linux' debugfs prints it
  0x044 = c                                       an offset
  f000a040: 00000000 0000000c 00000106 20070008   an address and words from there on
  02000010 00000001 00000000                      words alone: from offset 0, or where the last such line ended

Examples:
  mmc-lab dw regs < dump.txt
  echo 'RINTSTS: 8a4' | mmc-lab dw regs

Exit status: 0 done, 1 a line is not understood."
)]
pub struct Args {
    /// Print one JSON object a register
    #[arg(long)]
    json: bool,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    let mut bytes = Vec::new();
    let text = std::io::stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|e| format!("cannot read the standard input: {e}"))
        .and_then(|_| decode(&String::from_utf8_lossy(&bytes), args.json));
    super::print(text, 1)
}

/// A field: highest bit, lowest bit, name. One bit is a flag, more are a number.
type Field = (u8, u8, &'static str);

/// A register: offset, name, fields.
type Register = (u32, &'static str, &'static [Field]);

const EVENTS: &[Field] = &[
    (0, 0, "card_detect"),
    (1, 1, "response_error"),
    (2, 2, "command_done"),
    (3, 3, "data_over"),
    (4, 4, "tx_request"),
    (5, 5, "rx_request"),
    (6, 6, "response_crc"),
    (7, 7, "data_crc"),
    (8, 8, "response_timeout"),
    (9, 9, "data_timeout"),
    (10, 10, "host_starved_or_volt_switch"),
    (11, 11, "fifo_run"),
    (12, 12, "hardware_locked"),
    (13, 13, "start_bit_or_busy_clear"),
    (14, 14, "auto_command_done"),
    (15, 15, "end_bit_or_no_crc_status"),
    (31, 16, "sdio"),
];

const DMA_EVENTS: &[Field] = &[
    (0, 0, "transmitted"),
    (1, 1, "received"),
    (2, 2, "bus_error"),
    (4, 4, "descriptor_not_owned"),
    (5, 5, "card_error_summary"),
    (8, 8, "normal_summary"),
    (9, 9, "abnormal_summary"),
    (12, 10, "bus_error_code"),
    (16, 13, "state"),
];

const REGISTERS: &[Register] = &[
    (
        0x000,
        "CTRL",
        &[
            (0, 0, "controller_reset"),
            (1, 1, "fifo_reset"),
            (2, 2, "dma_reset"),
            (4, 4, "int_enable"),
            (5, 5, "dma_enable"),
            (6, 6, "read_wait"),
            (7, 7, "send_irq_response"),
            (8, 8, "abort_read_data"),
            (9, 9, "send_ccsd"),
            (10, 10, "send_auto_stop_ccsd"),
            (11, 11, "ceata_interrupts"),
            (19, 16, "voltage_a"),
            (23, 20, "voltage_b"),
            (24, 24, "open_drain_pullup"),
            (25, 25, "use_internal_dmac"),
        ],
    ),
    (0x004, "PWREN", &[(15, 0, "cards")]),
    (0x008, "CLKDIV", &[(7, 0, "divider0"), (15, 8, "divider1"), (23, 16, "divider2"), (31, 24, "divider3")]),
    (0x00c, "CLKSRC", &[(1, 0, "card0_divider")]),
    (0x010, "CLKENA", &[(15, 0, "cards"), (31, 16, "low_power")]),
    (0x014, "TMOUT", &[(7, 0, "response_clocks"), (31, 8, "data_clocks")]),
    (0x018, "CTYPE", &[(15, 0, "four_bit"), (31, 16, "eight_bit")]),
    (0x01c, "BLKSIZ", &[(15, 0, "bytes")]),
    (0x020, "BYTCNT", &[(31, 0, "bytes")]),
    (0x024, "INTMASK", EVENTS),
    (0x028, "CMDARG", &[]),
    (
        0x02c,
        "CMD",
        &[
            (5, 0, "index"),
            (6, 6, "response_expect"),
            (7, 7, "response_long"),
            (8, 8, "check_crc"),
            (9, 9, "data_expected"),
            (10, 10, "write"),
            (11, 11, "stream"),
            (12, 12, "auto_stop"),
            (13, 13, "wait_prvdata"),
            (14, 14, "stop_abort"),
            (15, 15, "send_init"),
            (20, 16, "card"),
            (21, 21, "update_clock"),
            (22, 22, "read_ceata"),
            (23, 23, "ccs_expected"),
            (24, 24, "enable_boot"),
            (25, 25, "expect_boot_ack"),
            (26, 26, "disable_boot"),
            (27, 27, "boot_mode"),
            (28, 28, "volt_switch"),
            (29, 29, "use_hold_reg"),
            (31, 31, "start"),
        ],
    ),
    (0x030, "RESP0", &[]),
    (0x034, "RESP1", &[]),
    (0x038, "RESP2", &[]),
    (0x03c, "RESP3", &[]),
    (0x040, "MINTSTS", EVENTS),
    (0x044, "RINTSTS", EVENTS),
    (
        0x048,
        "STATUS",
        &[
            (0, 0, "above_rx_mark"),
            (1, 1, "at_or_below_tx_mark"),
            (2, 2, "fifo_empty"),
            (3, 3, "fifo_full"),
            (7, 4, "command_state"),
            (8, 8, "dat3_high"),
            (9, 9, "busy"),
            (10, 10, "data_busy"),
            (16, 11, "response_index"),
            (29, 17, "fifo_words"),
            (30, 30, "dma_ack"),
            (31, 31, "dma_request"),
        ],
    ),
    (0x04c, "FIFOTH", &[(11, 0, "tx_mark"), (27, 16, "rx_mark"), (30, 28, "burst_code")]),
    (0x050, "CDETECT", &[(0, 0, "card0_absent")]),
    (0x054, "WRTPRT", &[(0, 0, "card0_protected")]),
    (0x058, "GPIO", &[(7, 0, "in"), (23, 8, "out")]),
    (0x05c, "TCBCNT", &[(31, 0, "bytes")]),
    (0x060, "TBBCNT", &[(31, 0, "bytes")]),
    (0x064, "DEBNCE", &[(23, 0, "biu_clocks")]),
    (0x068, "USRID", &[]),
    (0x06c, "VERID", &[]),
    (
        0x070,
        "HCON",
        &[
            (0, 0, "sd_mmc"),
            (5, 1, "cards_minus_1"),
            (6, 6, "ahb"),
            (9, 7, "data_width_code"),
            (15, 10, "address_width_minus_1"),
            (17, 16, "dma_interface"),
            (20, 18, "generic_dma_width_code"),
            (21, 21, "fifo_ram_inside"),
            (22, 22, "hold_register"),
            (23, 23, "false_path"),
            (25, 24, "dividers_minus_1"),
            (26, 26, "area_optimized"),
            (27, 27, "addresses_64"),
        ],
    ),
    (0x074, "UHS_REG", &[(15, 0, "volt_1v8"), (31, 16, "ddr")]),
    (0x078, "RST_N", &[(15, 0, "cards_released")]),
    (
        0x080,
        "BMOD",
        &[
            (0, 0, "software_reset"),
            (1, 1, "fixed_burst"),
            (6, 2, "skip"),
            (7, 7, "enable"),
            (10, 8, "burst_code"),
        ],
    ),
    (0x084, "PLDMND", &[]),
    (0x088, "DBADDR", &[]),
    (0x08c, "IDSTS", DMA_EVENTS),
    (0x090, "IDINTEN", DMA_EVENTS),
    (0x094, "DSCADDR", &[]),
    (0x098, "BUFADDR", &[]),
    (
        0x100,
        "CARDTHRCTL",
        &[
            (0, 0, "read_threshold"),
            (1, 1, "busy_clear"),
            (2, 2, "write_threshold"),
            (28, 16, "threshold_bytes"),
        ],
    ),
    (0x104, "BACK_END_POWER", &[(15, 0, "cards")]),
    (
        0x108,
        "UHS_REG_EXT",
        &[(15, 0, "volt_1v2"), (22, 16, "sample_phase"), (29, 23, "drive_phase"), (31, 30, "clock_mux")],
    ),
    (0x10c, "EMMC_DDR_REG", &[(15, 0, "half_start_bit"), (31, 31, "hs400")]),
    (0x110, "ENABLE_SHIFT", &[(1, 0, "card0")]),
];

/// What `value` of a register says, field by field: names of flags that are set, and numbers with their names.
fn fields(fields: &[Field], value: u32) -> impl Iterator<Item = (&'static str, Option<u32>)> {
    fields.iter().filter_map(move |&(high, low, name)| {
        let bits = (u64::from(value) >> low & ((1 << (high - low + 1)) - 1)) as u32;
        match high == low {
            true => (bits == 1).then_some((name, None)),
            false => Some((name, Some(bits))),
        }
    })
}

/// What the fields alone do not say.
fn remark(name: &str, value: u32) -> Option<String> {
    let by = |n: u32| if n == 0 { 1 } else { 2 * n };
    match name {
        "CLKDIV" => Some(format!("card clock is ciu / {}", by(value & 0xff))),
        "CMD" if value & 1 << 21 != 0 => Some("no command: takes the clock registers over".into()),
        "FIFOTH" | "BMOD" => {
            let code = if name == "BMOD" { value >> 8 & 7 } else { value >> 28 & 7 };
            Some(format!("bursts of {}", if code == 0 { 1 } else { 2 << code }))
        }
        "STATUS" if value & 1 << 9 != 0 => Some("DAT0 is low".into()),
        "VERID" => Some(format!(
            "version {:x}.{:02x}{:x}, FIFO window at {:#x}",
            value >> 12 & 0xf,
            value >> 4 & 0xff,
            value & 0xf,
            if value & 0xffff < 0x240a { 0x100 } else { 0x200 },
        )),
        "HCON" => {
            let width = ["16", "32", "64"].get((value >> 7 & 7) as usize).unwrap_or(&"?");
            let dma = if value >> 16 & 3 == 0 { "internal DMA" } else { "no internal DMA" };
            Some(format!("{width} bits of data, {dma}"))
        }
        _ => None,
    }
}

fn decode(text: &str, json: bool) -> Result<String, String> {
    let mut out = String::new();
    let mut next = 0;
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let at = |e: String| format!("line {}: {e}", i + 1);
        let (mut offset, words, alone) = match line.split_once([':', '=']) {
            Some((key, words)) => (place(key.trim()).map_err(at)?, words, false),
            None => (next, line, true),
        };
        let mut any = false;
        for word in words.split_whitespace() {
            let value = hex(word)
                .ok_or_else(|| at(format!("'{}' is not a hexadecimal word of 32 bits", shown(word))))?;
            show(&mut out, offset, value, json);
            offset = offset.wrapping_add(4) & OFFSETS;
            any = true;
        }
        if !any {
            return Err(at("no value after the name: write `STATUS: 0x106`".into()));
        }
        if alone {
            next = offset;
        }
    }
    if out.is_empty() {
        return Err("no registers on the standard input: paste lines such as `STATUS: 0x106`".into());
    }
    Ok(out)
}

/// Registers lie in 1 KiB, and windows on multiples of it.
const OFFSETS: u32 = 0x3ff;

/// The offset of a register by its name, its offset or its address.
fn place(key: &str) -> Result<u32, String> {
    if let Some(r) = REGISTERS.iter().find(|r| r.1.eq_ignore_ascii_case(key)) {
        return Ok(r.0);
    }
    let digits = key.strip_prefix("0x").unwrap_or(key);
    let key = shown(key);
    match u64::from_str_radix(digits, 16) {
        Ok(address) if address & 3 == 0 => Ok(address as u32 & OFFSETS),
        Ok(_) => Err(format!("'{key}' is not the address of a register: they are on multiples of 4")),
        Err(_) => Err(format!("'{key}' is not a register of this controller, nor an offset in hexadecimal")),
    }
}

/// What somebody wrote, without characters that do things to a terminal.
fn shown(text: &str) -> std::str::EscapeDebug<'_> {
    text.escape_debug()
}

fn hex(word: &str) -> Option<u32> {
    u32::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

fn show(out: &mut String, offset: u32, value: u32, json: bool) {
    let known = REGISTERS.iter().find(|r| r.0 == offset);
    let (name, list) = known.map_or(("-", &[][..]), |r| (r.1, r.2));
    let remark = remark(name, value);
    // Writing to a string does not fail.
    let _ = if json {
        let fields: serde_json::Map<_, _> = fields(list, value)
            .map(|(n, v)| (n.to_string(), v.map_or(serde_json::Value::Bool(true), Into::into)))
            .collect();
        let object = serde_json::json!({
            "offset": offset, "name": known.map(|r| r.1), "value": value, "fields": fields, "remark": remark,
        });
        write!(out, "{}", crate::output::json(object))
    } else {
        let mut said: Vec<String> = fields(list, value)
            .map(|(n, v)| v.map_or_else(|| n.to_string(), |v| format!("{n}={v}")))
            .collect();
        said.extend(remark.map(|r| format!("({r})")));
        writeln!(out, "{}", format!("{offset:03x} {name:<14} {value:08x}  {}", said.join(" ")).trim_end())
    };
}

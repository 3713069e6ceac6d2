//! Cards by name, SD ([`list`], [`card`]), MMC ([`mmc_list`], [`mmc()`]) and SDIO ([`io_list`], [`io()`]): real ones, as
//! their register dumps show them, and ones with a fault of character.
//!
//! A dump says what a card claims, not how fast it is: the timing profile is the caller's. Serial numbers are not the
//! real ones. A claim this crate's SD card cannot live up to (command queue, UHS-II) stays in the register;
//! the command itself is then illegal. Whether a card can signal with 1.8 V no dump here says.

mod io;
mod mmc;

pub use io::{IoPreset, io, io_list};
pub use mmc::{MmcPreset, mmc, mmc_list};

use crate::card::{ConfigError, Eye, Identity, Quirks, Registers, SdConfig, Uhs};
use crate::timing::Profile;
use mmc_time::Duration;

/// One preset.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// What [`card`] calls it.
    pub name: &'static str,
    /// What is special about it.
    pub what: &'static str,
    /// What a good host does about that.
    pub host: &'static str,
    /// Who published it.
    pub source: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// CID, CSD, SCR, and the first words of the SD status where it was dumped.
    Dump(u128, u128, u64, &'static [u64]),
    /// The card of [`SdConfig::new`], changed.
    Odd(fn(&mut SdConfig)),
}

/// No preset of the kind that was asked for has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no card is called `{name}`; there are {}", names())]
pub struct UnknownCard {
    /// What was asked for.
    pub name: String,
}

fn names() -> String {
    let sd = PRESETS.map(|p| p.name).join(", ");
    format!("the SD cards {sd}; the MMC cards {}; and the SDIO cards {}", mmc::names(), io::names())
}

/// All presets.
#[must_use]
pub fn list() -> &'static [Preset] {
    &PRESETS
}

/// The card called `name`, with the timing of `profile` and pauses drawn from `seed`.
///
/// # Errors
/// [`UnknownCard`], whose text lists the names there are.
pub fn card(name: &str, profile: Profile, seed: u64) -> Result<SdConfig, UnknownCard> {
    let unknown = || UnknownCard { name: name.to_owned() };
    let preset = PRESETS.iter().find(|p| p.name == name).ok_or_else(unknown)?;
    // Every preset is a card that can be; the tests build them all.
    preset.config(profile, seed).map_err(|_| unknown())
}

impl Preset {
    fn config(&self, profile: Profile, seed: u64) -> Result<SdConfig, ConfigError> {
        match self.kind {
            Kind::Dump(cid, csd, scr, status) => {
                let mut ssr = [0; 64];
                for (bytes, word) in ssr.chunks_exact_mut(8).zip(status) {
                    bytes.copy_from_slice(&word.to_be_bytes());
                }
                let registers = Registers {
                    cid: cid.to_be_bytes(),
                    csd: csd.to_be_bytes(),
                    scr: scr.to_be_bytes(),
                    ssr: (!status.is_empty()).then_some(ssr),
                };
                SdConfig::from_registers(registers, profile, seed)
            }
            Kind::Odd(change) => {
                let mut config = SdConfig::new(profile, seed);
                change(&mut config);
                config.check()?;
                Ok(config)
            }
        }
    }
}

const NOTHING: &str = "nothing special";

const PRESETS: [Preset; 36] = [
    Preset {
        name: "pqi-64mb",
        what: "SDSC of specification 1.01, 64 MB: neither CMD6 nor CMD8",
        host: "takes silence to CMD8 for version 1 and goes on",
        source: "Aaru.Tests, SecureDigital (github.com/aaru-dps/Aaru)",
        kind: Kind::Dump(
            0x0254_4d53_4430_3634_055e_ed1a_1a00_3401,
            0x002d_0032_1359_83c9_f6d9_cf80_1640_0001,
            0x00a5_0000_0807_0302,
            &[],
        ),
    },
    Preset {
        name: "atp-2gb",
        what: "SDSC 1.10 of 2 GB: READ_BL_LEN is 1024, blocks are still 512",
        host: "sends CMD16 512",
        source: "libmaple, Card library, sdcard-verification.md (github.com/betovar/libmaple)",
        kind: Kind::Dump(
            0x0941_5041_4620_5544_105e_ed1f_1f00_7bc6,
            0x002f_0032_5f5a_83cf_2db7_ffbf_9680_0068,
            0x0125_0000_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "qemu-2gb",
        what: "the emulated card of QEMU 10: SDSC of 2 GiB that calls itself version 3, without CMD23",
        host: "chooses addressing by the CSD, not by the version",
        source: "register formulas of QEMU 10.0 (gitlab.com/qemu-project/qemu), not a dump",
        kind: Kind::Dump(
            0xaa58_5951_454d_5521_01de_adbe_ef00_6219,
            0x0026_0032_5f5a_e3ff_ffff_dfff_92a0_00b7,
            0x0225_8000_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "adata-4gb",
        what: "byte-addressed card of 4 GB, READ_BL_LEN 2048: above the 2 GB the standard allows",
        host: "computes byte addresses in 32 bits without a sign",
        source: "Aaru.Tests, SecureDigital (github.com/aaru-dps/Aaru)",
        kind: Kind::Dump(
            0x1d41_4453_4420_2020_105e_ed17_1700_6701,
            0x005e_0032_575b_83d5_6db7_ffff_96c0_0001,
            0x0125_0000_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "napi-4gb",
        what: "SCR of version 2.00 with noise in the bits that mean CMD23 from version 3 on",
        host: "believes CMD_SUPPORT only where SD_SPEC3 is set",
        source: "published notes on the card of a NAPI board",
        kind: Kind::Dump(
            0xba23_4553_4134_4742_065e_ed35_3501_699f,
            0x400e_0032_5b59_0000_1cdf_7f80_0a40_00d7,
            0x0235_000e_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "transcend-4gb",
        what: "SDHC 3.0 with CMD20 but without CMD23",
        host: "ends multi-block transfers by CMD12",
        source: "libmaple, Card library, sdcard-verification.md (github.com/betovar/libmaple)",
        kind: Kind::Dump(
            0x0353_4453_5530_3447_805e_ed21_2100_c112,
            0x400e_0032_5b59_0000_1d8a_7f80_0a40_40b8,
            0x0235_8001_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "panasonic-8gb",
        what: "SDHC 3.0 without CMD23",
        host: "ends multi-block transfers by CMD12",
        source: "tests of github.com/jkristell/sdio-host",
        kind: Kind::Dump(
            0x0150_4159_3038_4147_135e_ed2c_2c01_251a,
            0x400e_0032_5b59_0000_39b3_7f80_0a40_00f8,
            0x0235_8000_0100_0000,
            &[0x8000_0000_0300_0000, 0x0202_9000_0807_0000],
        ),
    },
    Preset {
        name: "phison-16gb",
        what: "SDHC 3.0 with CMD23 and a maker's word in its SCR",
        host: NOTHING,
        source: "github.com/armbian/build, pull request 246",
        kind: Kind::Dump(
            0x2750_4853_4431_3647_305e_ed26_2600_fb13,
            0x400e_0032_5b59_0000_73a7_7f80_0a40_00eb,
            0x0235_8002_0100_0000,
            &[],
        ),
    },
    Preset {
        name: "sandisk-sa16g",
        what: "SDHC 5.x",
        host: NOTHING,
        source: "github.com/ironsheep/P2-uSD-FS, DOCs/cards",
        kind: Kind::Dump(
            0x0353_4453_4131_3647_805e_ed0c_0c01_9b41,
            0x400e_0032_5b59_0000_76b2_7f80_0a40_4013,
            0x0235_8443_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "sandisk-sc16g",
        what: "SDHC 5.x, with its SD status",
        host: NOTHING,
        source: "published benchmark notes of a pfSense box",
        kind: Kind::Dump(
            0x0353_4453_4331_3647_805e_ed2b_2b01_1a00,
            0x400e_0032_5b59_0000_76b2_7f80_0a40_4000,
            0x0235_8443_0000_0000,
            &[0x0000_0000_0400_0000, 0x0400_9000_0f05_0a00, 0x0000_0000_0001_0000],
        ),
    },
    Preset {
        name: "kingston-canvas-64gb",
        what: "SDXC 6.x with application class 2 in its SD status",
        host: "takes the cache it claims for what it is: on some of these the flush never ends",
        source: "linux-mmc, thread on the cache of Kingston Canvas Go! Plus, 2023",
        kind: Kind::Dump(
            0x9f54_4953_4436_3447_615e_ed28_2801_7400,
            0x400e_0032_5b59_0001_cf9f_7f80_0a40_0000,
            0x0205_8487_0100_6432,
            &[0x0000_0000_0800_0000, 0x0400_9000_011b_391e, 0x0008_0000_0002_ff00, 0x0300_0000_0000_0000],
        ),
    },
    Preset {
        name: "gigastone-64gb",
        what: "SDXC 6.x whose OEM field holds digits",
        host: "does not judge a card by its identity",
        source: "github.com/ironsheep/P2-uSD-FS, DOCs/cards",
        kind: Kind::Dump(
            0x1234_5641_5354_4300_205e_ed02_0201_7609,
            0x400e_0032_5b59_0001_d1eb_7f80_0a40_00a1,
            0x02c5_8483_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "samsung-128gb",
        what: "SDXC 3.0 of 128 GB",
        host: NOTHING,
        source: "github.com/ironsheep/P2-uSD-FS, DOCs/cards",
        kind: Kind::Dump(
            0x1b53_4d47_4434_5154_305e_ed09_0901_25dd,
            0x400e_0032_5b59_0003_b9ff_7f80_0a40_40ab,
            0x02c5_8003_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "samsung-512gb",
        what: "SDXC 6.x of 512 GB with command classes 1 and 11",
        host: "leaves alone what it does not know",
        source: "tests of github.com/linux-automation/usbsdmux",
        kind: Kind::Dump(
            0x1b53_4d47_4638_5335_305e_ed25_25a1_6700,
            0x400e_0032_db79_000e_ebff_7f80_0a40_0000,
            0x0205_8487_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "goldmomo-2gb",
        what: "SDSC of 2 GB, READ_BL_LEN 1024, without command class 10; its SCR was not published, here it is one of 1.10",
        host: "sends CMD16 512 and no CMD6",
        source: "goldmomo.org, sd_card_sequence.txt",
        kind: Kind::Dump(
            0x0150_4153_4d30_3247_895e_ed33_3300_8a8e,
            0x005d_0132_1b5a_83c0_b6db_ffff_1280_0054,
            0x0125_0000_0000_0000,
            &[],
        ),
    },
    Preset {
        name: "cmd23-hang",
        what: "says it has CMD23 and locks up at the transfer that uses it",
        host: "knows the card by its CID (MID 09, name `AF SD`) and ends transfers by CMD12",
        source: "quirk table of Linux 6.12 (ATP)",
        kind: Kind::Odd(|c| {
            c.identity = Identity { mid: 0x09, oid: *b"AP", name: *b"AF SD", ..c.identity };
            c.quirks.cmd23_hangs = true;
        }),
    },
    Preset {
        name: "slow-acmd41",
        what: "needs 1.9 s from the first ACMD41, the standard allows 1 s",
        host: "allows 2 s, as Linux does since 6.10",
        source: "github.com/westlicht/performer, issue 397; Linux 6.10",
        kind: Kind::Odd(|c| c.power_up = Duration::from_millis(1900)),
    },
    Preset {
        name: "late-read",
        what: "read data come 300 ms late, the standard allows 100 ms",
        host: "allows 500 ms",
        source: "github.com/espressif/esp-idf, issue 12968",
        kind: Kind::Odd(|c| c.quirks.read_delay = Duration::from_millis(300)),
    },
    Preset {
        name: "slow-busy",
        what: "stays busy for 2 s after each write, the standard allows 250 ms",
        host: "allows 3 s, as Linux does",
        source: "github.com/raspberrypi/linux, issue 412",
        kind: Kind::Odd(|c| c.quirks.busy_delay = Duration::from_secs(2)),
    },
    Preset {
        name: "low-voltage-bit",
        what: "sets bit 7 of the OCR (low voltage range) without having one",
        host: "clears the bit before it chooses a voltage",
        source: "linux-mmc, August 2019",
        kind: Kind::Odd(|c| c.quirks.low_voltage = true),
    },
    Preset {
        name: "kingston-flush",
        what: "offers a cache whose flush never ends",
        host: "knows the card by its CID (MID 9F, OEM `TI`, name `SD64G`, 2019-11) and leaves the cache off",
        source: "quirk table of Linux 6.12 (Kingston Canvas Go! Plus)",
        kind: Kind::Odd(|c| {
            c.identity =
                Identity { mid: 0x9f, oid: *b"TI", name: *b"SD64G", year: 2019, month: 11, ..c.identity };
            c.extension = true;
            c.quirks.flush_never_ends = true;
        }),
    },
    Preset {
        name: "gigastone-flush",
        what: "offers a cache and power-off notification; neither is ever done",
        host: "knows the card by its CID (MID 12, OEM `4V`, name `ASTC`, 2022-02), uses neither",
        source: "quirk table of Linux 6.12 (Gigastone Gaming Plus)",
        kind: Kind::Odd(|c| {
            c.identity =
                Identity { mid: 0x12, oid: *b"4V", name: *b"ASTC\0", year: 2022, month: 2, ..c.identity };
            c.extension = true;
            c.quirks.flush_never_ends = true;
        }),
    },
    Preset {
        name: "tran-speed-5a",
        what: "TRAN_SPEED says 50 MHz before anybody has switched to high speed",
        host: "goes above 25 MHz only after CMD6 has switched",
        source: "github.com/raspberrypi/firmware, issue 397 (Kingston SDC10G2/16GB)",
        kind: Kind::Odd(|c| {
            c.identity =
                Identity { mid: 0x41, oid: *b"42", name: *b"SD16G", year: 2016, month: 2, ..c.identity };
            c.quirks.tran_speed = Some(0x5a);
        }),
    },
    Preset {
        name: "fake-64gb",
        what: "says 64 GB, has 8 GB, and wraps around: late writes destroy early ones",
        host: "cannot know without writing it full; a test of the whole size finds it",
        source: "github.com/AltraMayor/f3, issues 15 and 180",
        kind: Kind::Odd(|c| {
            c.identity = Identity { mid: 0, oid: [0; 2], name: [0; 5], serial: 0, ..c.identity };
            c.quirks = Quirks { wraps_at: Some(c.sectors), ..c.quirks };
            c.sectors *= 8;
        }),
    },
    Preset {
        name: "uhs-64gb",
        what: "SDXC with all UHS-I modes; at 208 MHz nobody reads it without tuning",
        host: "switches to 1.8 V by CMD11, then CMD6, then tunes by CMD19",
        source: "spec/card.md §13.2 (SD Physical Layer 3.01 and later)",
        kind: Kind::Odd(|c| {
            c.sectors *= 8;
            c.speed_class = true;
            c.uhs = Some(Uhs::new(c.seed));
        }),
    },
    Preset {
        name: "sduc-4tb",
        what: "SDUC of 4 TiB: addresses of 38 bits",
        host: "sets HO2T in ACMD41 and sends CMD22 before each address; counts with 64 bits",
        source: "spec/card.md §2.2; linux-mmc, SDUC series of 2024",
        kind: Kind::Odd(|c| c.sectors = 1 << 33),
    },
    Preset {
        name: "uhs-drift",
        what: "UHS-I card whose eye drifts by a third of a period in ten seconds, and back",
        host: "tunes again when CRC errors come, or by a timer",
        source: "spec/card.md §13.3, §18; linux-mmc, retuning",
        kind: Kind::Odd(|c| {
            let eye = Eye { drift_ps: 1600, drift_period: Duration::from_secs(20), ..Eye::new(c.seed) };
            let eye = Eye { drift_start: Duration::ZERO, ..eye };
            c.uhs = Some(Uhs { eye, ..Uhs::new(c.seed) });
        }),
    },
    Preset {
        name: "ddr50-tuning-hang",
        what: "UHS-I card up to DDR50 that locks up at a CMD19 in DDR50",
        host: "knows the card by its CID (MID 5D, OEM `SB`, name `0016G`, 2019-01) and does not tune in DDR50",
        source: "quirk table of Linux 6.12 (Swissbit S46-u)",
        kind: Kind::Odd(|c| {
            c.identity =
                Identity { mid: 0x5d, oid: *b"SB", name: *b"0016G", year: 2019, month: 1, ..c.identity };
            c.uhs = Some(Uhs { sdr104: false, ..Uhs::new(c.seed) });
            c.quirks.ddr50_tuning_hangs = true;
        }),
    },
    Preset {
        name: "false-1v8",
        what: "agrees to 1.8 V and then holds its lines low for ever",
        host: "cuts the supply and begins again without asking for 1.8 V",
        source: "github.com/tianocore/edk2, issue 2413; github.com/nwert/hekate, issue 7",
        kind: Kind::Odd(|c| {
            c.uhs = Some(Uhs::new(c.seed));
            c.quirks.switch_hangs = true;
        }),
    },
    Preset {
        name: "left-at-1v8",
        what: "signals with 1.8 V from the start, as its host was reset without a power cycle",
        host: "cuts the supply before it begins, or says that this is needed",
        source: "wolfBoot, issue 853; armbian/build, issue 10409; raspberrypi/rpi-eeprom, issue 282",
        kind: Kind::Odd(|c| {
            c.uhs = Some(Uhs::new(c.seed));
            c.quirks.left_at_1_8 = true;
        }),
    },
    Preset {
        name: "answers-late",
        what: "gives no answer to its first five ACMD41",
        host: "keeps asking until its second is over",
        source: "github.com/carlk3/no-OS-FatFS-SD-SDIO-SPI-RPi-Pico, issue 107",
        kind: Kind::Odd(|c| c.quirks.deaf_acmd41 = 5),
    },
    Preset {
        name: "echo-only",
        what: "answers CMD8 with the pattern and no voltage",
        host: "looks at the pattern alone",
        source: "github.com/nwert/hekate, issue 7",
        kind: Kind::Odd(|c| c.quirks.echo_without_voltage = true),
    },
    Preset {
        name: "dies-read-only",
        what: "after 64 blocks each write is an error (WP_VIOLATION here; which one was not published); after the next \
               power cycle writes go well and store nothing",
        host: "reports the error, writes no more, and compares what it wrote",
        source: "github.com/raspberrypi/linux, issue 4190",
        kind: Kind::Odd(|c| c.quirks.dies_after = Some(64)),
    },
    Preset {
        name: "immutable",
        what: "takes every write and stores none",
        host: "cannot know without reading back past its caches",
        source: "dokucode.de, Immutable SD Cards, 2019-01-25",
        kind: Kind::Odd(|c| c.quirks.forgets_after = Some(0)),
    },
    Preset {
        name: "kingston-erase",
        what: "an erase corrupts data that are not its own (here: the sector behind them)",
        host: "knows the card by its CID (MID 41, OEM `42`, name `SD16G`, 2016-02) and never erases",
        source: "github.com/raspberrypi/linux, issue 2090; raspberrypi/firmware, issue 397 (Kingston SDC10G2/16GB)",
        kind: Kind::Odd(|c| {
            c.identity =
                Identity { mid: 0x41, oid: *b"42", name: *b"SD16G", year: 2016, month: 2, ..c.identity };
            c.quirks.erase_spills = true;
        }),
    },
    Preset {
        name: "sandisk-discard",
        what: "the SD status offers discard; CMD38 with its argument is an error",
        host: "knows the card by its CID (MID 03, OEM `SD`) and erases instead",
        source: "quirk table of Linux 6.12 (SanDisk)",
        kind: Kind::Odd(|c| {
            c.identity = Identity { mid: 0x03, oid: *b"SD", name: *b"SC16G", ..c.identity };
            c.discard = true;
            c.quirks.discard_fails = true;
        }),
    },
];

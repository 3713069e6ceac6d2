//! MMC and eMMC cards by name.

use super::UnknownCard;
use crate::card::{Eye, MmcConfig, MmcConfigError, MmcQuirks};
use crate::timing::Profile;
use mmc_time::Duration;

/// One preset.
#[derive(Clone, Copy, Debug)]
pub struct MmcPreset {
    /// What [`mmc`] calls it.
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
    /// CID, CSD, EXT_CSD in hexadecimal.
    Dump(u128, u128, Option<&'static str>),
    /// CID and CSD of [`MmcConfig::emmc`], EXT_CSD in hexadecimal.
    ExtCsd(&'static str),
    /// The card of [`MmcConfig::emmc`] of a revision and a size in sectors, changed.
    Odd(u8, u32, fn(&mut MmcConfig)),
}

/// All presets.
#[must_use]
pub fn mmc_list() -> &'static [MmcPreset] {
    &PRESETS
}

/// The card called `name`, with the timing of `profile` and pauses drawn from `seed`.
///
/// # Errors
/// [`UnknownCard`], whose text lists the names there are.
pub fn mmc(name: &str, profile: Profile, seed: u64) -> Result<MmcConfig, UnknownCard> {
    let unknown = || UnknownCard { name: name.to_owned() };
    let preset = PRESETS.iter().find(|p| p.name == name).ok_or_else(unknown)?;
    // Every preset is a card that can be; the tests build them all.
    preset.config(profile, seed).map_err(|_| unknown())
}

/// The names, for an error.
pub(super) fn names() -> String {
    PRESETS.map(|p| p.name).join(", ")
}

impl MmcPreset {
    fn config(&self, profile: Profile, seed: u64) -> Result<MmcConfig, MmcConfigError> {
        match self.kind {
            Kind::Dump(cid, csd, ext) => {
                let ext = ext.map(bytes);
                MmcConfig::from_registers(cid.to_be_bytes(), csd.to_be_bytes(), ext.as_deref(), profile, seed)
            }
            Kind::ExtCsd(ext) => {
                let base = MmcConfig::emmc(8, 16_777_216, profile.clone(), seed);
                MmcConfig::from_registers(base.cid, base.csd, Some(&bytes(ext)), profile, seed)
            }
            Kind::Odd(revision, sectors, change) => {
                let mut config = MmcConfig::emmc(revision, sectors, profile, seed);
                change(&mut config);
                config.check()?;
                Ok(config)
            }
        }
    }
}

/// 512 bytes from hexadecimal; the tests compare every dump with its source's figures.
fn bytes(hex: &str) -> Box<[u8; 512]> {
    let mut digits = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8);
    let mut all = Box::new([0; 512]);
    for byte in all.iter_mut() {
        *byte = digits.next().unwrap_or(0) << 4 | digits.next().unwrap_or(0);
    }
    all
}

/// MID, OID (with CBX in its upper half) and name of a CID.
fn identity(c: &mut MmcConfig, mid: u8, oid: u16, name: &[u8; 6]) {
    c.cid[0] = mid;
    c.cid[1..3].copy_from_slice(&oid.to_be_bytes());
    c.cid[3..9].copy_from_slice(name);
}

/// A byte of the EXT_CSD.
fn set(c: &mut MmcConfig, at: usize, value: u8) {
    if let Some(e) = &mut c.ext_csd {
        e[at] = value;
    }
}

const LINUX: &str = "quirk table of Linux 6.12";

const LIST: &str = "patches on the linux-mmc list";

const PRESETS: [MmcPreset; 31] = [
    MmcPreset {
        name: "mmc-6600-32mb",
        what: "MMC 3.1 of 32 MB: neither EXT_CSD nor CMD6, one line, 20 MHz",
        host: "asks for the EXT_CSD only where SPEC_VERS is 4",
        source: "Aaru.Tests, MultiMediaCard (github.com/aaru-dps/Aaru)",
        kind: Kind::Dump(
            0x1500_0030_3030_3030_3007_5eed_1b1b_9701,
            0x8c26_012a_0f59_01e9_f6d9_83e3_9240_4001,
            None,
        ),
    },
    MmcPreset {
        name: "samsung-bjnb4r",
        what: "eMMC 5.1 of 32 GB, with all its registers",
        host: "takes the size from SEC_COUNT: the CSD says 1 GiB",
        source: "bring-up log of a Sony Xperia XZs",
        kind: Kind::Dump(
            0x1501_0042_4a4e_4234_520f_5eed_3131_1400,
            0xd027_0132_0f59_03ff_f6db_ffef_8e40_4000,
            Some(include_str!("samsung-bjnb4r.hex")),
        ),
    },
    MmcPreset {
        name: "aaru-emmc51-62gb",
        what: "EXT_CSD of an eMMC 5.1 of 62 GB; CID and CSD are this crate's",
        host: "does not take settings of the last boot for those of this one",
        source: "Aaru.Tests, ExtendedCSD (github.com/aaru-dps/Aaru)",
        kind: Kind::ExtCsd(include_str!("aaru-51.hex")),
    },
    MmcPreset {
        name: "am62x-emmc51-4gb",
        what: "EXT_CSD of an eMMC 5.1 of 4 GB with SEC_ERASE_MULT 255; CID and CSD are this crate's",
        host: "bounds what it computes from the multipliers",
        source: "notes on a TI AM62x board",
        kind: Kind::ExtCsd(include_str!("am62x-51.hex")),
    },
    MmcPreset {
        name: "emmc-2gb-bytes",
        what: "eMMC 4.41 of 1.5 GiB: addresses are bytes although the host offers sectors",
        host: "goes by the size or by the access mode of the answer, not by what it offered",
        source: "github.com/stm32-rs/stm32f4xx-hal, issue 734",
        kind: Kind::Odd(5, 3_145_728, |_| {}),
    },
    MmcPreset {
        name: "emmc-rev9",
        what: "EXT_CSD_REV 9, newer than most hosts",
        host: "accepts any revision and goes by the bits of each feature",
        source: "github.com/TeamWin/Team-Win-Recovery-Project, issues 435 and 487; github.com/armbian/build, issue 865",
        kind: Kind::Odd(8, 16_777_216, |c| set(c, 192, 9)),
    },
    MmcPreset {
        name: "emmc-early-cmd0",
        what: "goes inactive when CMD0 comes between a CMD1 and the end of power-up",
        host: "after a query, repeats CMD1 until the card is ready",
        source: "Linux 6.12, drivers/mmc/core/mmc_ops.c",
        kind: Kind::Odd(6, 16_777_216, |c| {
            c.power_up = Duration::from_millis(300);
            c.quirks = MmcQuirks { early_cmd0_kills: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "emmc-slow-cmd1",
        what: "needs 900 ms from the first CMD1",
        host: "polls for a second of time, not a number of times",
        source: "github.com/ARM-software/arm-trusted-firmware, pull request 1724",
        kind: Kind::Odd(6, 16_777_216, |c| c.power_up = Duration::from_millis(900)),
    },
    MmcPreset {
        name: "hynix-hpi",
        what: "eMMC 4.41 that an interrupt (HPI) breaks",
        host: "knows the card by its CID (MID 90, OEM 014A) and revision 5, and uses no interrupt",
        source: LINUX,
        kind: Kind::Odd(5, 16_777_216, |c| {
            identity(c, 0x90, 0x014a, b"HBG4e\0");
            c.quirks = MmcQuirks { hpi_kills: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "kingston-trim",
        what: "offers trim; what was trimmed still reads as before",
        host: "knows the card by its CID (MID 70, name `M62704`) and writes zeros instead",
        source: LINUX,
        kind: Kind::Odd(8, 16_777_216, |c| {
            identity(c, 0x70, 0x0100, b"M62704");
            c.quirks = MmcQuirks { trim_does_nothing: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "micron-late-read",
        what: "read data come 400 ms late, the CSD promises 150 ms",
        host: "knows the maker (MID 13, OEM 0200) and allows 600 ms",
        source: LINUX,
        kind: Kind::Odd(6, 16_777_216, |c| {
            identity(c, 0x13, 0x0200, b"MOCKM1");
            c.quirks = MmcQuirks { read_delay: Duration::from_millis(400), ..c.quirks };
        }),
    },
    MmcPreset {
        name: "takems-256mb",
        what: "MMC 4 of 256 MB, before SEC_COUNT; the EXT_CSD, all zeros, is this crate's",
        host: "takes the size from the CSD where SEC_COUNT is 0",
        source: "Aaru.Tests, MultiMediaCard (github.com/aaru-dps/Aaru)",
        kind: Kind::Dump(
            0x2c00_0041_4620_484d_5010_5eed_1d1d_6801,
            0x905e_002a_1f59_83d3_edb6_83ff_9640_0001,
            Some(""),
        ),
    },
    MmcPreset {
        name: "samsung-m8g1gc",
        what: "CID and CSD of an eMMC 4.5 of 8 GB; the year of manufacture is 0, which is 2013; the EXT_CSD is this crate's",
        host: "adds 16 years where EXT_CSD_REV is above 4: not 1997",
        source: "github.com/armbian/build, pull request 246",
        kind: Kind::Odd(6, 15_269_888, |c| {
            c.cid = 0x1501_004d_3847_3147_4303_5eed_2727_50ff_u128.to_be_bytes();
            c.csd = 0xd027_0132_0f59_03ff_f6db_ffef_8e40_400d_u128.to_be_bytes();
        }),
    },
    MmcPreset {
        name: "sandisk-2026",
        what: "eMMC 5.1 made in 2026: year code 13, which means 2010 elsewhere",
        host: "takes codes 13 to 15 of MID 45 and revision 8 for 2026 to 2028",
        source: LIST,
        kind: Kind::Odd(8, 16_777_216, |c| {
            identity(c, 0x45, 0x0100, b"DG4064");
            c.cid[14] = 0x3d;
        }),
    },
    MmcPreset {
        name: "emmc-rev255",
        what: "EXT_CSD_REV 255",
        host: "accepts any revision and goes by the bits of each feature",
        source: "github.com/TeamWin/Team-Win-Recovery-Project, issues 435 and 487",
        kind: Kind::Odd(8, 16_777_216, |c| set(c, 192, 255)),
    },
    MmcPreset {
        name: "sandisk-inand",
        what: "eMMC 4.41 whose CMD38 ignores its argument and looks at byte 113 of the EXT_CSD",
        host: "knows the card (MID 02, OEM 0100, SEM…) and sets byte 113 with CMD6 before CMD38",
        source: LINUX,
        kind: Kind::Odd(5, 16_777_216, |c| {
            identity(c, 0x02, 0x0100, b"SEM08G");
            c.quirks = MmcQuirks { erase_by_byte_113: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "toshiba-cmd23",
        what: "transfers with a count (CMD23) take 20 ms longer; that it is slow is told, how slow is this crate's choice",
        host: "knows the card (MID 11, MMC08G) and ends transfers with CMD12",
        source: LINUX,
        kind: Kind::Odd(5, 16_777_216, |c| {
            identity(c, 0x11, 0x0100, b"MMC08G");
            c.quirks = MmcQuirks { count_delay: Duration::from_millis(20), ..c.quirks };
        }),
    },
    MmcPreset {
        name: "samsung-movinand",
        what: "a secure erase or trim can leave it silent for ever",
        host: "knows the card (MID 15, MAG4FA and others) and never erases securely",
        source: LINUX,
        kind: Kind::Odd(5, 16_777_216, |c| {
            identity(c, 0x15, 0x0100, b"MAG4FA");
            c.quirks = MmcQuirks { secure_kills: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "kingston-v10008",
        what: "trim takes sectors behind the range along",
        host: "knows the card (MID 70, V10008) and never trims",
        source: LINUX,
        kind: Kind::Odd(6, 16_777_216, |c| {
            identity(c, 0x70, 0x0100, b"V10008");
            c.quirks = MmcQuirks { trim_corrupts: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "kingston-secure-2s",
        what: "a secure erase or trim takes 2 s, whatever its range and the registers say",
        host: "knows the card (MID 70, IY2964) and allows more than 2 s",
        source: LINUX,
        kind: Kind::Odd(6, 16_777_216, |c| {
            identity(c, 0x70, 0x0100, b"IY2964");
            c.quirks = MmcQuirks { secure_time: Duration::from_secs(2), ..c.quirks };
        }),
    },
    MmcPreset {
        name: "micron-q2j54a",
        what: "trim does nothing; a flush hangs unless something was written",
        host: "knows the card (MID 13, OEM 014E, Q2J54A), writes zeros itself and flushes only behind a write",
        source: LINUX,
        kind: Kind::Odd(7, 16_777_216, |c| {
            identity(c, 0x13, 0x014e, b"Q2J54A");
            c.quirks = MmcQuirks { trim_does_nothing: true, empty_flush_hangs: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "micron-cache",
        what: "eMMC 5.0 that stores wrong bits, rarely, while its cache is on",
        host: "knows the card (MID 13, OEM 014E, revision 7) and leaves the cache off",
        source: LIST,
        kind: Kind::Odd(7, 16_777_216, |c| {
            identity(c, 0x13, 0x014e, b"MOCKM1");
            c.quirks = MmcQuirks { cache_corrupts: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "numonyx-hpi",
        what: "eMMC 4.5 that an interrupt (HPI) breaks",
        host: "knows the card by its CID (MID FE, OEM 014E) and revision 6, and uses no interrupt",
        source: LINUX,
        kind: Kind::Odd(6, 16_777_216, |c| {
            identity(c, 0xfe, 0x014e, b"MOCKM1");
            c.quirks = MmcQuirks { hpi_kills: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "samsung-m8g1wa",
        what: "DAT0 does not show that it is busy",
        host: "knows the card (MID 15, M8G1WA and others) and polls CMD13 until it is in state tran",
        source: LIST,
        kind: Kind::Odd(6, 15_269_888, |c| {
            identity(c, 0x15, 0x0100, b"M8G1WA");
            c.quirks = MmcQuirks { hides_busy: true, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "samsung-4ymd3r",
        what: "its first two EXT_CSD arrive with a wrong CRC; the CSD says 1 GiB",
        host: "reads the EXT_CSD again; never takes the size of the CSD where C_SIZE is FFF",
        source: "github.com/espressif/arduino-esp32, issue 4635",
        kind: Kind::Odd(7, 7_634_944, |c| {
            identity(c, 0x15, 0x0100, b"4YMD3R");
            c.quirks = MmcQuirks { garbled_ext_csd: 2, ..c.quirks };
        }),
    },
    MmcPreset {
        name: "emmc-endless-flush",
        what: "a flush of its cache never ends",
        host: "bounds the flush (30 s are usual) and ends it with an interrupt",
        source: "Linux 6.12, drivers/mmc/core/mmc.c",
        kind: Kind::Odd(8, 16_777_216, |c| c.quirks = MmcQuirks { flush_never_ends: true, ..c.quirks }),
    },
    MmcPreset {
        name: "emmc-slow-bkops",
        what: "background operations take half a minute for each step of their status",
        host: "allows them 120 s, or interrupts them when there is something to do",
        source: "Linux 6.12, drivers/mmc/core/mmc_ops.c",
        kind: Kind::Odd(8, 16_777_216, |c| {
            c.quirks = MmcQuirks { bkops_time: Duration::from_secs(30), ..c.quirks };
        }),
    },
    MmcPreset {
        name: "emmc-gp-6gb",
        what: "a partition for general purpose of 6 GiB: its bytes do not fit 32 bits",
        host: "counts bytes of partitions in 64 bits",
        source: "Linux, history of drivers/mmc/core/mmc.c (size overflow for mmc partitions)",
        kind: Kind::Odd(8, 16_777_216, |c| {
            set(c, 155, 1);
            set(c, 144, 3);
        }),
    },
    MmcPreset {
        name: "emmc-native-4k",
        what: "sectors of 4 KiB: addresses and counts are multiples of 8",
        host: "looks at DATA_SECTOR_SIZE and moves 8 sectors at least",
        source: "JESD84-B51, 6.6.37; Linux 6.12, drivers/mmc/core/mmc.c",
        kind: Kind::Odd(8, 16_777_216, |c| {
            for at in [61, 62, 63] {
                set(c, at, 1);
            }
        }),
    },
    MmcPreset {
        name: "emmc-restless",
        what: "starts its power-up again when CMD1 comes less than 3 ms after the last one",
        host: "leaves 4 ms at least between two CMD1",
        source: "Linux 6.12, drivers/mmc/core/mmc_ops.c (the interval was raised from 1 ms)",
        kind: Kind::Odd(7, 16_777_216, |c| {
            c.quirks = MmcQuirks { restless: Duration::from_millis(3), ..c.quirks };
        }),
    },
    MmcPreset {
        name: "emmc-drift",
        what: "its sampling window at 200 MHz moves by nine tenths of a period in ten seconds, and back",
        host: "tunes again when CRC errors come, and from time to time before",
        source: "Linux 6.12, drivers/mmc/core/host.c (tuning again)",
        kind: Kind::Odd(7, 16_777_216, |c| {
            c.eye = Eye { drift_ps: 4500, drift_period: Duration::from_secs(20), ..c.eye };
        }),
    },
];

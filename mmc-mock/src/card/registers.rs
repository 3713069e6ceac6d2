//! The registers an SD card shows, built from a plain description, and the frames its responses travel in.
//!
//! Bit numbers are the standard's: bit 0 is the last bit of the last byte (`spec/card.md` §6–§10).

use super::Bits;
use crate::storage::Storage;
use crate::timing::Profile;
use mmc_time::{Duration, Instant};

/// Which specification a card follows; decides SD_SPEC of the SCR and which commands exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.0x: no CMD6, no CMD8.
    V1_0,
    /// 1.10: CMD6.
    V1_1,
    /// 2.00: CMD8, high capacity.
    V2,
    /// 3.0x: CMD23, SDXC.
    V3,
}

/// How a card is addressed and how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Up to 2 GiB, byte addresses.
    Standard,
    /// Up to 32 GiB, sector addresses.
    High,
    /// Up to 2 TiB, sector addresses.
    Extended,
    /// SDUC, up to 128 TiB, sector addresses of 38 bits.
    Ultra,
}

/// What the CID says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Manufacturer.
    pub mid: u8,
    /// OEM, two characters.
    pub oid: [u8; 2],
    /// Product name, five characters.
    pub name: [u8; 5],
    /// Revision, two BCD digits.
    pub revision: u8,
    /// Serial number.
    pub serial: u32,
    /// Year of manufacture, 2000..=2255.
    pub year: u16,
    /// Month, 1..=12.
    pub month: u8,
}

/// A description of an SD card. Start from [`SdConfig::new`] and set the fields that differ.
#[derive(Clone, Debug, PartialEq)]
pub struct SdConfig {
    /// The specification it follows.
    pub version: Version,
    /// Size in sectors of 512 bytes; up to 4,194,304 it is an SDSC card, up to 67,108,863 SDHC, up to 4,294,705,152
    /// SDXC, above SDUC.
    pub sectors: u64,
    /// Its CID.
    pub identity: Identity,
    /// The relative address it publishes first, not 0.
    pub rca: u16,
    /// Whether CMD6 offers high speed.
    pub high_speed: bool,
    /// Whether it knows CMD23.
    pub cmd23: bool,
    /// Whether it has extension registers (CMD48, CMD49), with power-off notification and a cache.
    pub extension: bool,
    /// Whether it knows CMD20 (speed class control).
    pub speed_class: bool,
    /// Whether it has write protect groups (CMD28 to CMD30); SDSC only.
    pub protect_groups: bool,
    /// Whether CMD38 with argument 1 discards (leaves the old data where they are) instead of erasing.
    pub discard: bool,
    /// What it offers at 1.8 V; `None`: it is no UHS-I card.
    pub uhs: Option<Uhs>,
    /// From the first ACMD41 with a voltage window until it is ready; the standard allows 1 s.
    pub power_up: Duration,
    /// What commands cost.
    pub profile: Profile,
    /// Decides the pauses of `profile`, nothing else.
    pub seed: u64,
    /// Registers of a real card, shown instead of those built from the fields above.
    pub registers: Option<Registers>,
    /// Where it departs from the standard.
    pub quirks: Quirks,
}

/// What a card does that it should not. All off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// It locks up, deaf until power is cycled, at a read or write that uses a count set by CMD23.
    pub cmd23_hangs: bool,
    /// It really has this many sectors, at least 1; addresses above wrap around to the start.
    pub wraps_at: Option<u64>,
    /// The OCR claims the low voltage range (bit 7), which is not there.
    pub low_voltage: bool,
    /// Each read comes later by this, over what the profile says.
    pub read_delay: Duration,
    /// Each write stays busy longer by this.
    pub busy_delay: Duration,
    /// TRAN_SPEED of the CSD, whatever speed is in use.
    pub tran_speed: Option<u8>,
    /// A flush of the cache never ends, and nothing in it becomes safe.
    pub flush_never_ends: bool,
    /// It is under power and signals with 1.8 V when the test begins: its host was reset without a power cycle.
    pub left_at_1_8: bool,
    /// It holds its lines low for ever after CMD11.
    pub switch_hangs: bool,
    /// It locks up, deaf until power is cycled, at a CMD19 in DDR50.
    pub ddr50_tuning_hangs: bool,
    /// So many ACMD41 after power-up get no answer.
    pub deaf_acmd41: u8,
    /// The answer to CMD8 has the pattern, but no voltage.
    pub echo_without_voltage: bool,
    /// Once it has stored so many blocks, each write is a WP_VIOLATION; after the next power cycle writes go well and
    /// store nothing.
    pub dies_after: Option<u64>,
    /// Once it has stored so many blocks, writes go well and store nothing.
    pub forgets_after: Option<u64>,
    /// An erase takes the sector behind its range with it.
    pub erase_spills: bool,
    /// CMD38 with argument 1 (discard) is an error, whatever the SD status says.
    pub discard_fails: bool,
}

/// What a UHS-I card offers once it signals with 1.8 V, beside SDR12 and SDR25 (`spec/card.md` §2.7, §10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uhs {
    /// 100 MHz.
    pub sdr50: bool,
    /// 208 MHz.
    pub sdr104: bool,
    /// 50 MHz on both edges.
    pub ddr50: bool,
    /// Driver types: bit n for function n of group 3 (1 A, 2 C, 3 D); bit 0 (B) counts as set.
    pub drivers: u8,
    /// Current limits: bit n for function n of group 4 (1: 400 mA … ); bit 0 (200 mA) counts as set.
    pub limits: u8,
    /// Where its bits can be sampled.
    pub eye: Eye,
}

impl Uhs {
    /// All modes, all driver types, up to 800 mA, and an eye of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { sdr50: true, sdr104: true, ddr50: true, drivers: 0b1111, limits: 0b1111, eye: Eye::new(seed) }
    }
}

/// When, within the clock period, what the card sends can be sampled in SDR50 and SDR104; in the other modes a host
/// that samples by the book is always right.
///
/// The bits are good from `delay_ps` after the edge for the rest of a period, but for `blur_ps`. The delay grows by
/// `drift_ps` and shrinks again, over and over, as a card does that warms up and cools down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eye {
    /// Picoseconds from the clock edge to the first good instant, at the least.
    pub delay_ps: u32,
    /// Picoseconds of each period that are not good.
    pub blur_ps: u32,
    /// How far the delay drifts.
    pub drift_ps: u32,
    /// How long it takes there and back.
    pub drift_period: Duration,
    /// Where in the drift it is at instant 0.
    pub drift_start: Duration,
}

impl Eye {
    /// An eye of 0.58 periods at 208 MHz, at a place that `seed` decides; never where a host samples that does not
    /// tune. It drifts by 300 ps in half a minute: a good choice stays good.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let hash = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            delay_ps: 2500 + ((hash >> 32) % 1500) as u32,
            blur_ps: 2020,
            drift_ps: 300,
            drift_period: Duration::from_secs(60),
            drift_start: Duration::from_millis((hash >> 8) % 60_000),
        }
    }
    /// Whether a host that samples at `phase` degrees of a clock of `hz` is right.
    pub(super) fn holds(&self, hz: u32, phase: u16, now: Instant) -> bool {
        let period = 1_000_000_000_000 / u64::from(hz.max(1));
        let (drift, round) = (u64::from(self.drift_ps), self.drift_period.as_nanos().max(2));
        let at = (now.as_nanos() % round + self.drift_start.as_nanos()) % round;
        let half = round / 2;
        let there = if at < half { at } else { round - at };
        let moved = (u128::from(drift) * u128::from(there) / u128::from(half)) as u64;
        let delay = (u64::from(self.delay_ps) + moved) % period.max(1);
        let sampled = u64::from(phase % 360) * period / 360;
        (sampled + period - delay) % period.max(1) < period.saturating_sub(self.blur_ps.into())
    }
}

/// The functions CMD6 has selected; the groups that have any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// Group 1: 0 default speed or SDR12, 1 high speed or SDR25, 2 SDR50, 3 SDR104, 4 DDR50.
    pub access: u8,
    /// Group 3: 0 driver type B, 1 A, 2 C, 3 D.
    pub driver: u8,
    /// Group 4: 0 200 mA, 1 400 mA, 2 600 mA, 3 800 mA.
    pub limit: u8,
}

/// Registers of a real card, as dumped. CRC7 and end bit of CID and CSD are set anew when they are sent: dumps often
/// lack them, cards do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Bits 127:0, the first byte is the manufacturer.
    pub cid: [u8; 16],
    /// Bits 127:0, structure 0, 1 or 2.
    pub csd: [u8; 16],
    /// Bits 63:0.
    pub scr: [u8; 8],
    /// Bits 511:0; without them a status is built from the profile.
    pub ssr: Option<[u8; 64]>,
}

impl Registers {
    /// The size the CSD says, in sectors of 512 bytes; `None` for structure 3.
    #[must_use]
    pub fn sectors(&self) -> Option<u64> {
        let csd = |high, low| get(&self.csd, high, low);
        match csd(127, 126) {
            0 => Some(((csd(73, 62) + 1) << (csd(49, 47) + 2 + csd(83, 80))) / 512),
            1 => Some((csd(69, 48) + 1) * 1024),
            2 => Some((csd(75, 48) + 1) * 1024),
            _ => None,
        }
    }
    fn version(&self) -> Version {
        match (get(&self.scr, 59, 56), get(&self.scr, 47, 47)) {
            (0, _) => Version::V1_0,
            (1, _) => Version::V1_1,
            (_, 0) => Version::V2,
            _ => Version::V3,
        }
    }
}

/// A card that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No CSD can say this size.
    #[error("no SD card has {sectors} sectors: {rule}")]
    Sectors {
        /// What was asked for.
        sectors: u64,
        /// What is possible.
        rule: &'static str,
    },
    /// The version does not have the feature.
    #[error("{feature} needs a card of version {needs:?} or later, not {version:?}")]
    Version {
        /// What was asked for.
        feature: &'static str,
        /// The version that was given.
        version: Version,
        /// The first version that has it.
        needs: Version,
    },
    /// Not that many functions.
    #[error("an SDIO card has 1 to 7 functions, not {0}")]
    Functions(usize),
    /// Not such blocks.
    #[error("a block of an SDIO function has 1 to 2048 bytes, not {0}")]
    BlockSize(u16),
    /// An address that means "nobody".
    #[error("a card publishes an RCA of 1 to 65535, not 0")]
    Rca,
    /// The date does not fit the CID.
    #[error("a CID holds years 2000 to 2255 and months 1 to 12, not {year}-{month}")]
    Date {
        /// Year given.
        year: u16,
        /// Month given.
        month: u8,
    },
}

impl SdConfig {
    /// An SDHC card of 8 GiB, version 3, with high speed and CMD23, ready after 20 ms.
    #[must_use]
    pub const fn new(profile: Profile, seed: u64) -> Self {
        Self {
            version: Version::V3,
            sectors: 16_777_216,
            identity: Identity {
                mid: 0x7d,
                oid: *b"MK",
                name: *b"MOCK1",
                revision: 0x10,
                serial: 0x2018_0703,
                year: 2018,
                month: 7,
            },
            rca: 0xb368,
            high_speed: true,
            cmd23: true,
            extension: false,
            speed_class: false,
            protect_groups: false,
            discard: false,
            uhs: None,
            power_up: Duration::from_millis(20),
            profile,
            seed,
            registers: None,
            quirks: Quirks {
                cmd23_hangs: false,
                wraps_at: None,
                low_voltage: false,
                read_delay: Duration::ZERO,
                busy_delay: Duration::ZERO,
                tran_speed: None,
                flush_never_ends: false,
                left_at_1_8: false,
                switch_hangs: false,
                ddr50_tuning_hangs: false,
                deaf_acmd41: 0,
                echo_without_voltage: false,
                dies_after: None,
                forgets_after: None,
                erase_spills: false,
                discard_fails: false,
            },
        }
    }
    /// The card that showed `registers`. Version, size, CMD20, CMD23 and extension registers (which count only from
    /// version 3 on), high speed (command class 10), write protect groups and discard are what they say. UHS-I cannot be
    /// told from them: set [`uhs`](Self::uhs).
    ///
    /// # Errors
    /// [`ConfigError::Sectors`] when the CSD has no size this crate's card can have.
    pub fn from_registers(registers: Registers, profile: Profile, seed: u64) -> Result<Self, ConfigError> {
        let (cid, version) = (&registers.cid, registers.version());
        let config = Self {
            version,
            sectors: registers.sectors().unwrap_or(0),
            identity: Identity {
                mid: cid[0],
                oid: [cid[1], cid[2]],
                name: [cid[3], cid[4], cid[5], cid[6], cid[7]],
                revision: cid[8],
                serial: get(cid, 55, 24) as u32,
                year: 2000 + get(cid, 19, 12) as u16,
                month: get(cid, 11, 8) as u8,
            },
            high_speed: version >= Version::V1_1 && get(&registers.csd, 94, 94) == 1,
            cmd23: version >= Version::V3 && get(&registers.scr, 33, 33) == 1,
            extension: version >= Version::V3 && get(&registers.scr, 34, 34) == 1,
            speed_class: version >= Version::V3 && get(&registers.scr, 32, 32) == 1,
            protect_groups: get(&registers.csd, 127, 126) == 0
                && get(&registers.csd, 31, 31) == 1
                && get(&registers.csd, 90, 90) == 1,
            discard: registers.ssr.is_some_and(|ssr| get(&ssr, 313, 313) == 1),
            registers: Some(registers),
            ..Self::new(profile, seed)
        };
        config.check()?;
        Ok(config)
    }
    /// How it is addressed.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        match self.sectors {
            // Some cards of 4 GB call themselves standard, against the standard.
            _ if self.registers.is_some_and(|r| get(&r.csd, 127, 126) == 0) => Capacity::Standard,
            0..=4_194_304 => Capacity::Standard,
            4_194_305..=67_108_863 => Capacity::High,
            67_108_864..=4_294_705_152 => Capacity::Extended,
            _ => Capacity::Ultra,
        }
    }
    /// Whether such a card can be.
    ///
    /// # Errors
    /// [`ConfigError`] names the first field that is wrong and what it may be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let size = |rule| Err(ConfigError::Sectors { sectors: self.sectors, rule });
        let version = |feature, needs| Err(ConfigError::Version { feature, version: self.version, needs });
        match self.capacity() {
            _ if self.sectors == 0 => return size("there is at least one"),
            _ if self.quirks.wraps_at == Some(0) => return size("wraps_at is at least 1"),
            _ if self.registers.is_some_and(|r| r.sectors() != Some(self.sectors)) => {
                return size("its CSD says another size, or has structure 3");
            }
            // The last byte address is one that 32 bits can say.
            Capacity::Standard if self.sectors > 1 << 23 => return size("byte addresses end at 4 GiB"),
            Capacity::Standard if self.registers.is_none() && self.geometry().is_none() => {
                return size("SDSC sizes are 1 to 4096 times a power of two from 4 to 1024 sectors");
            }
            Capacity::Standard => {}
            _ if !self.sectors.is_multiple_of(1024) => {
                return size("sizes above 2 GiB are multiples of 1024 sectors");
            }
            // C_SIZE 0x1010 is the least a high capacity card may say, 0x3ffeff the most of an SDXC card.
            _ if self.sectors < 0x1011 * 1024 => return size("SDHC starts at 4,211,712 sectors"),
            // C_SIZE 0x400000 is the least an SDUC card may say, 0xfffffff the most.
            Capacity::Ultra if self.sectors < 0x40_0001 * 1024 => {
                return size("SDXC ends at 4,294,705,152 sectors, SDUC starts at 4,294,968,320");
            }
            Capacity::Ultra if self.sectors > Storage::MAX_SECTORS => {
                return size("SDUC ends at 274,877,906,944 sectors");
            }
            Capacity::Ultra if self.version < Version::V3 => return version("SDUC", Version::V3),
            Capacity::High if self.version < Version::V2 => return version("SDHC", Version::V2),
            Capacity::Extended if self.version < Version::V3 => return version("SDXC", Version::V3),
            _ => {}
        }
        if self.high_speed && self.version < Version::V1_1 {
            return version("high speed", Version::V1_1);
        }
        if self.cmd23 && self.version < Version::V3 {
            return version("CMD23", Version::V3);
        }
        if self.extension && self.version < Version::V3 {
            return version("extension registers", Version::V3);
        }
        if self.uhs.is_some() && self.version < Version::V3 {
            return version("UHS-I", Version::V3);
        }
        if self.speed_class && self.version < Version::V2 {
            return version("CMD20", Version::V2);
        }
        if self.protect_groups && self.capacity() != Capacity::Standard {
            return size("write protect groups are for SDSC cards");
        }
        if self.rca == 0 {
            return Err(ConfigError::Rca);
        }
        let Identity { year, month, .. } = self.identity;
        if self.registers.is_none() && !(2000..=2255).contains(&year) || !(1..=12).contains(&month) {
            return Err(ConfigError::Date { year, month });
        }
        Ok(())
    }
    /// C_SIZE, C_SIZE_MULT and READ_BL_LEN of an SDSC card of this size.
    fn geometry(&self) -> Option<(u64, u64, u64)> {
        for bl_len in [9, 10] {
            for mult in (0..8).rev() {
                let unit = 1 << (mult + 2 + bl_len - 9);
                let n = self.sectors / unit;
                if self.sectors.is_multiple_of(unit) && (1..=4096).contains(&n) {
                    return Some((n - 1, mult, bl_len));
                }
            }
        }
        None
    }

    /// The CID, CRC7 included.
    #[must_use]
    pub fn cid(&self) -> [u8; 16] {
        if let Some(r) = &self.registers {
            return seal(r.cid);
        }
        let (mut r, id) = ([0; 16], &self.identity);
        put(&mut r, 127, 120, id.mid.into());
        r[1..3].copy_from_slice(&id.oid);
        r[3..8].copy_from_slice(&id.name);
        put(&mut r, 63, 56, id.revision.into());
        put(&mut r, 55, 24, id.serial.into());
        put(&mut r, 19, 12, u64::from(id.year - 2000));
        put(&mut r, 11, 8, id.month.into());
        seal(r)
    }
    /// The CSD as it left the factory, CRC7 included; TRAN_SPEED follows the access mode (function of group 1) in use.
    #[must_use]
    pub fn csd(&self, access: u8) -> [u8; 16] {
        let mut r = self.registers.map_or([0; 16], |r| r.csd);
        let speed = match access {
            0 => 0x32,
            2 | 4 => 0x0b,
            3 => 0x2b,
            _ => 0x5a,
        };
        put(&mut r, 103, 96, self.quirks.tran_speed.unwrap_or(speed).into());
        if self.registers.is_some() {
            return seal(r);
        }
        // Classes 0, 2, 4, 5, 7 and 8; 6 with groups, 10 with CMD6, 11 with extension registers.
        put(&mut r, 95, 84, 0b1_1011_0101);
        put(&mut r, 90, 90, self.protect_groups.into());
        put(&mut r, 94, 94, u64::from(self.version >= Version::V1_1));
        put(&mut r, 95, 95, self.extension.into());
        put(&mut r, 46, 46, 1);
        put(&mut r, 45, 39, 0x7f);
        put(&mut r, 28, 26, 2);
        if let (Capacity::Standard, Some((c_size, mult, bl_len))) = (self.capacity(), self.geometry()) {
            put(&mut r, 119, 112, 0x26); // 1.5 ms
            put(&mut r, 83, 80, bl_len);
            put(&mut r, 79, 79, 1);
            put(&mut r, 73, 62, c_size);
            put(&mut r, 61, 50, 0b101_101_101_101);
            put(&mut r, 49, 47, mult);
            put(&mut r, 31, 31, self.protect_groups.into());
            put(&mut r, 25, 22, bl_len);
        } else {
            let ultra = self.capacity() == Capacity::Ultra;
            put(&mut r, 127, 126, if ultra { 2 } else { 1 });
            put(&mut r, 119, 112, 0x0e);
            put(&mut r, 83, 80, 9);
            put(&mut r, if ultra { 75 } else { 69 }, 48, self.sectors / 1024 - 1);
            put(&mut r, 25, 22, 9);
        }
        seal(r)
    }
    /// Sectors of a write protect group, as the CSD says: so many erase sectors.
    pub(super) fn group_sectors(&self) -> u64 {
        let csd = self.csd(0);
        ((get(&csd, 38, 32) + 1) * (get(&csd, 45, 39) + 1)) << (get(&csd, 25, 22).max(9) - 9)
    }
    /// The SCR.
    #[must_use]
    pub fn scr(&self) -> [u8; 8] {
        if let Some(r) = &self.registers {
            return r.scr;
        }
        let mut r = [0; 8];
        put(&mut r, 59, 56, (self.version as u64).min(2));
        put(&mut r, 51, 48, 0b0101);
        put(&mut r, 47, 47, u64::from(self.version >= Version::V3));
        put(&mut r, 32, 32, u64::from(self.speed_class));
        put(&mut r, 33, 33, u64::from(self.cmd23));
        // SDUC came with version 7.
        put(&mut r, 41, 38, if self.capacity() == Capacity::Ultra { 3 } else { 0 });
        put(&mut r, 34, 34, u64::from(self.extension));
        r
    }
    /// The SD status; speed class, allocation unit and erase times are those of the profile.
    #[must_use]
    pub fn ssr(&self, width: u8) -> [u8; 64] {
        let dump = self.registers.and_then(|r| r.ssr);
        let (mut r, p) = (dump.unwrap_or([0; 64]), &self.profile);
        put(&mut r, 511, 510, if width == 4 { 2 } else { 0 });
        if dump.is_some() {
            return r;
        }
        let class = match p.wr_bps {
            1..=1_999_999 => 0,
            2_000_000..=3_999_999 => 1,
            4_000_000..=5_999_999 => 2,
            6_000_000..=9_999_999 => 3,
            _ => 4,
        };
        put(&mut r, 447, 440, class);
        put(&mut r, 439, 432, if p.copy_bps == 0 { 0xff } else { (p.copy_bps / 1_000_000).min(0xfe) });
        // 16 KiB doubling up to 8 MiB, then 12, 16, 24, 32 and 64 MiB; 0: not defined.
        const AU: [u64; 15] =
            [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 24576, 32768, 49152, 65536, 131_072];
        put(&mut r, 431, 428, AU.iter().position(|&s| s == p.au).map_or(0, |i| i as u64 + 1));
        // So many units a second, and one second more.
        let units = 1_000_000_000_u64.checked_div(p.erase.as_nanos()).unwrap_or(0xffff).clamp(1, 0xffff);
        put(&mut r, 423, 408, units);
        put(&mut r, 407, 402, 1 + p.erase.as_millis() / 1000);
        put(&mut r, 401, 400, 1);
        put(&mut r, 330, 330, u64::from(self.extension));
        put(&mut r, 313, 313, u64::from(self.discard));
        put(
            &mut r,
            399,
            396,
            if self.uhs.is_some() { if p.wr_bps >= 30_000_000 { 3 } else { 1 } } else { 0 },
        );
        r
    }
    /// The functions of `group` (1..=6) as CMD6 lists them, bit n for function n, at 1.8 V or not. Function 15 is
    /// always there: it means no change.
    fn functions(&self, group: u32, v1_8: bool) -> u16 {
        let uhs = self.uhs.filter(|_| v1_8);
        0x8001
            | match (group, uhs) {
                (1, None) => u16::from(self.high_speed) << 1,
                (1, Some(u)) => {
                    2 | u16::from(u.sdr50) << 2 | u16::from(u.sdr104) << 3 | u16::from(u.ddr50) << 4
                }
                (3, Some(u)) => u16::from(u.drivers & 0xf),
                (4, Some(u)) => u16::from(u.limits & 0xf),
                _ => 0,
            }
    }
    /// The 64 bytes CMD6 sends for `arg` where `current` are in use, at 1.8 V or not, and the functions that are in use
    /// after them if they switch.
    #[must_use]
    pub fn switch_status(&self, arg: u32, current: Functions, v1_8: bool) -> ([u8; 64], Functions) {
        let mut r = [0; 64];
        let mut refused = false;
        let mut after = current;
        for group in 1..=6 {
            let low = 4 * (group - 1);
            let support = self.functions(group, v1_8);
            let mut none = 0;
            let in_use = match group {
                1 => &mut after.access,
                3 => &mut after.driver,
                4 => &mut after.limit,
                _ => &mut none,
            };
            let selected = match (arg >> low) & 15 {
                15 => *in_use,
                f if support >> f & 1 == 1 => f as u8,
                _ => {
                    refused = true;
                    15
                }
            };
            if selected != 15 {
                *in_use = selected;
            }
            put(&mut r, 415 + 16 * (group - 1), 400 + 16 * (group - 1), support.into());
            put(&mut r, 379 + low, 376 + low, selected.into());
        }
        let milliamps = match after.access {
            _ if refused => 0,
            2 | 4 => 200,
            3 => 200 * (u64::from(after.limit) + 1),
            _ => 100,
        };
        put(&mut r, 511, 496, milliamps);
        put(&mut r, 375, 368, 1);
        let switches = arg >> 31 == 1 && !refused;
        (r, if switches { after } else { current })
    }
}

/// Writes `value` into bits `high..=low` of a register.
pub(crate) fn put(register: &mut [u8], high: u32, low: u32, value: u64) {
    let last = register.len() - 1;
    for bit in low..=high {
        let (byte, mask) = (last - bit as usize / 8, 1 << (bit % 8));
        if (value >> (bit - low)) & 1 == 1 {
            register[byte] |= mask;
        } else {
            register[byte] &= !mask;
        }
    }
}

/// Bits `high..=low` of a register.
pub(crate) fn get(register: &[u8], high: u32, low: u32) -> u64 {
    let last = register.len() - 1;
    let bit = |i: u32| u64::from(register[last - i as usize / 8] >> (i % 8) & 1);
    (low..=high).rev().fold(0, |v, i| v << 1 | bit(i))
}

/// CRC7 (x⁷ + x³ + 1, start 0) of `bytes`.
pub(crate) fn crc7(bytes: &[u8]) -> u8 {
    let mut crc = 0_u8;
    for byte in bytes {
        crc ^= byte;
        for _ in 0..8 {
            crc = if crc & 0x80 != 0 { (crc << 1) ^ (0x09 << 1) } else { crc << 1 };
        }
    }
    crc >> 1
}

/// Sets CRC7 and end bit of a CID or CSD.
pub(crate) fn seal(mut register: [u8; 16]) -> [u8; 16] {
    register[15] = crc7(&register[..15]) << 1 | 1;
    register
}

/// A response of 48 bits with its CRC7.
pub(crate) fn short(index: u8, value: u32) -> Bits {
    let [a, b, c, d] = value.to_be_bytes();
    let frame = [index & 0x3f, a, b, c, d];
    Bits::Short([frame[0], a, b, c, d, crc7(&frame) << 1 | 1])
}

/// R3: an OCR, index and CRC all ones.
pub(crate) fn r3(ocr: u32) -> Bits {
    let [a, b, c, d] = ocr.to_be_bytes();
    Bits::Short([0x3f, a, b, c, d, 0xff])
}

/// R2: a register of 16 bytes that has its own CRC7.
pub(crate) fn r2(register: &[u8; 16]) -> Bits {
    let mut frame = [0x3f; 17];
    frame[1..].copy_from_slice(register);
    Bits::Long(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::SdCard;
    use proptest::prelude::*;

    fn config() -> SdConfig {
        SdConfig::new(Profile::slow2018(), 0)
    }

    #[test]
    fn crc7_has_the_published_values() {
        assert_eq!(crc7(b"123456789"), 0x75);
        assert_eq!(crc7(&[0x40, 0, 0, 0, 0]), 0x4a);
        assert_eq!(short(17, 0x900), Bits::Short([0x11, 0, 0, 9, 0, 0x67]));
        assert_eq!(r3(0x80ff_8000), Bits::Short([0x3f, 0x80, 0xff, 0x80, 0, 0xff]));
    }

    #[test]
    fn each_size_is_what_its_csd_says() {
        for sectors in [4, 4096, 31_360, 2_097_152, 4_194_304] {
            let c = SdConfig { sectors, version: Version::V1_1, cmd23: false, ..config() };
            c.check().unwrap();
            let r = c.csd(0);
            assert_eq!((get(&r, 127, 126), get(&r, 103, 96)), (0, 0x32));
            let blocks = (get(&r, 73, 62) + 1) << (get(&r, 49, 47) + 2);
            assert_eq!(blocks << (get(&r, 83, 80) - 9), sectors);
            assert!((9..=10).contains(&get(&r, 83, 80)));
        }
        for (sectors, capacity) in [
            (0x1011 * 1024, Capacity::High),
            (16_777_216, Capacity::High),
            (0xff60 * 1024, Capacity::High),
            (0x1_0000 * 1024, Capacity::Extended),
            (4_294_705_152, Capacity::Extended),
            (0x40_0001 * 1024, Capacity::Ultra),
            (1 << 38, Capacity::Ultra),
        ] {
            let c = SdConfig { sectors, ..config() };
            c.check().unwrap();
            let r = c.csd(1);
            let structure = if capacity == Capacity::Ultra { 2 } else { 1 };
            assert_eq!((c.capacity(), get(&r, 127, 126), get(&r, 103, 96)), (capacity, structure, 0x5a));
            assert_eq!((get(&r, 75, 48) + 1) * 1024, sectors);
        }
    }

    #[test]
    fn a_card_that_cannot_be_is_refused_by_name() {
        let text = |c: SdConfig| c.check().unwrap_err().to_string();
        assert!(text(SdConfig { sectors: 0, ..config() }).contains("0 sectors"));
        assert!(text(SdConfig { sectors: 4_190_001, ..config() }).contains("SDSC sizes"));
        assert!(text(SdConfig { sectors: 4_195_328, ..config() }).contains("SDHC starts"));
        assert!(text(SdConfig { sectors: 8_000_001, ..config() }).contains("multiples of 1024"));
        assert!(text(SdConfig { sectors: 1 << 32, ..config() }).contains("SDXC ends"));
        assert!(text(SdConfig { sectors: (1 << 38) + 1024, ..config() }).contains("SDUC ends"));
        assert!(text(SdConfig { protect_groups: true, ..config() }).contains("write protect groups"));
        assert!(text(SdConfig { version: Version::V1_1, cmd23: false, ..config() }).contains("SDHC needs"));
        assert!(text(SdConfig { version: Version::V2, ..config() }).contains("CMD23 needs"));
        assert!(text(SdConfig { rca: 0, ..config() }).contains("RCA"));
        let identity = Identity { month: 13, ..config().identity };
        assert!(text(SdConfig { identity, ..config() }).contains("2018-13"));
        let c = SdConfig { version: Version::V1_0, sectors: 4096, cmd23: false, ..config() };
        assert!(text(c).contains("high speed needs"));
    }

    proptest! {
        /// A dump from anywhere is a card, or an error that says why not; never a panic.
        #[test]
        fn any_registers_are_a_card_or_an_error(cid: [u8; 16], csd: [u8; 16], scr: [u8; 8], structure in 0..4_u8) {
            let csd = { let mut c = csd; c[0] = c[0] & 0x3f | structure << 6; c };
            let dump = Registers { cid, csd, scr, ssr: None };
            match SdConfig::from_registers(dump, Profile::ideal(), 0) {
                Ok(c) => {
                    prop_assert!(SdCard::new(c.clone()).is_ok());
                    prop_assert_eq!(Some(c.sectors), dump.sectors());
                    prop_assert_eq!((&c.cid()[..15], &c.csd(0)[4..15], c.scr()), (&cid[..15], &csd[4..15], scr));
                    prop_assert!(c.cid()[15] == crc7(&cid[..15]) << 1 | 1);
                }
                Err(e) => prop_assert!(!e.to_string().is_empty()),
            }
        }
        /// A size from anywhere, likewise; what passes is what the CSD then says.
        #[test]
        fn any_size_is_a_card_or_an_error(sectors in prop_oneof![0..10_000_000_u64, any::<u64>()], unit in 0..12_u32) {
            let sectors = sectors >> unit << unit;
            let c = SdConfig { sectors, ..config() };
            if c.check().is_ok() {
                let dump = Registers { cid: c.cid(), csd: c.csd(1), scr: c.scr(), ssr: None };
                prop_assert_eq!(dump.sectors(), Some(sectors));
                prop_assert!(SdCard::new(c).is_ok());
            }
        }
    }

    #[test]
    fn scr_ssr_and_cid_tell_what_the_card_is() {
        let c = config();
        let scr = c.scr();
        assert_eq!(
            (get(&scr, 59, 56), get(&scr, 47, 47), get(&scr, 51, 48), get(&scr, 33, 33)),
            (2, 1, 5, 1)
        );
        let ssr = c.ssr(4);
        assert_eq!((get(&ssr, 511, 510), get(&ssr, 447, 440), get(&ssr, 431, 428)), (2, 3, 9));
        // 200 units of 5 ms are one second.
        assert_eq!((get(&ssr, 423, 408), get(&ssr, 407, 402), get(&ssr, 401, 400)), (200, 1, 1));
        let cid = c.cid();
        assert_eq!(&cid[..8], b"\x7dMKMOCK1");
        assert_eq!((get(&cid, 55, 24), get(&cid, 19, 12), get(&cid, 11, 8)), (0x2018_0703, 18, 7));
        assert_eq!(cid[15], crc7(&cid[..15]) << 1 | 1);
    }

    #[test]
    fn cmd6_switches_only_when_every_group_can() {
        let c = config();
        let access = |access| Functions { access, ..Functions::default() };
        let cmd6 = |arg, now| {
            let (r, after) = c.switch_status(arg, access(now), false);
            (r, after.access)
        };
        let check = cmd6(0x00ff_fff1, 0);
        assert_eq!((check.0[13], check.0[16] & 15, check.1), (3, 1, 0), "mode 0 only looks");
        let set = cmd6(0x80ff_fff1, 0);
        assert_eq!((set.0[1], set.0[16] & 15, set.1), (100, 1, 1));
        let bad = cmd6(0x80ff_f1f1, 0);
        assert_eq!((bad.0[1], bad.0[15] & 15, bad.0[16] & 15, bad.1), (0, 15, 1, 0));
        let keep = cmd6(0x80ff_ffff, 1);
        assert_eq!((keep.0[16] & 15, keep.1), (1, 1));
    }

    #[test]
    fn the_uhs_modes_are_there_at_1_8_v_only() {
        let c = SdConfig { uhs: Some(Uhs { ddr50: false, limits: 0b11, ..Uhs::new(1) }), ..config() };
        let none = Functions::default();
        assert_eq!(c.switch_status(0x00ff_ffff, none, false).0[13], 0x03);
        let (r, _) = c.switch_status(0x00ff_ffff, none, true);
        assert_eq!((r[13], r[9], r[7]), (0x0f, 0x0f, 0x03), "access modes, drivers, limits");
        let (r, after) = c.switch_status(0x80ff_11f3, none, true);
        assert_eq!((after.access, after.driver, after.limit), (3, 1, 1));
        assert_eq!((r[0], r[1], r[16] & 15, r[15]), (1, 0x90, 3, 0x11), "400 mA");
        let (r, after) = c.switch_status(0x80ff_fff4, after, true);
        assert_eq!((r[16] & 15, after.access), (15, 3), "no DDR50: nothing switches");
        assert_eq!(c.csd(3)[3], 0x2b);
    }

    #[test]
    fn an_eye_is_open_for_its_share_of_the_period_and_drifts() {
        let eye = Eye { drift_ps: 1550, drift_period: Duration::from_secs(20), ..Eye::new(7) };
        let open = |hz, at| (0..360).filter(|&p| eye.holds(hz, p, at)).count();
        for s in 0..20 {
            let at = Instant::from_secs(s);
            assert!((200..=212).contains(&open(208_000_000, at)), "0.58 of the period");
            assert!(open(100_000_000, at) > 280 && open(400_000, at) >= 359);
        }
        for seed in 0..200 {
            let still = Eye::new(seed);
            assert!(!still.holds(208_000_000, 180, Instant::ZERO), "nobody is lucky without tuning");
            assert!(still.holds(100_000_000, 180, Instant::ZERO), "SDR50 goes without");
        }
        let good = |at: Instant| (0..360).map(|p| eye.holds(208_000_000, p, at)).collect::<Vec<_>>();
        assert_eq!(good(Instant::from_secs(3)), good(Instant::from_secs(23)), "and comes back");
        assert_ne!(good(Instant::from_secs(3)), good(Instant::from_secs(8)));
    }
}

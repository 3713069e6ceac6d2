//! Cards that are not what they say, as a table of data: how to know one, and what to avoid with it.
//!
//! The facts are those of `spec/card-quirks.md`. A caller adds its own by a table of its own: the union of
//! [`avoid`]'s answers holds, or of [`avoid_mmc`]'s.

use crate::register::{Cid, MmcCid};

bitflags::bitflags! {
    /// What must not be used with a card, although its registers offer it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Avoid: u16 {
        /// CMD23: the card locks up, or (MMC) is slow with it; end multi-block transfers by CMD12.
        const CMD23 = 1 << 0;
        /// CMD38 with the discard argument.
        const DISCARD = 1 << 1;
        /// Any CMD38: it corrupts data.
        const ERASE = 1 << 2;
        /// The card's cache: a flush never ends.
        const CACHE = 1 << 3;
        /// Power-off notification: the card never says that it is ready.
        const POWER_OFF_NOTIFICATION = 1 << 4;
        /// Tuning in DDR50.
        const DDR50_TUNING = 1 << 5;
        /// MMC: trim corrupts data, or erases whole groups, or leaves what it should not.
        const TRIM = 1 << 6;
        /// MMC: secure erase and secure trim.
        const SECURE_ERASE = 1 << 7;
        /// MMC: high priority interrupts.
        const INTERRUPT = 1 << 8;
        /// MMC: flushing a cache nothing was written to.
        const CLEAN_FLUSH = 1 << 9;
        /// MMC: the read time the CSD states; wait 600 ms.
        const CSD_READ_TIME = 1 << 10;
        /// MMC: the time of a secure erase by the registers; it is 2 s, however many groups.
        const SECURE_ERASE_TIME = 1 << 11;
        /// MMC: DAT0 as the sign of busy; ask by CMD13.
        const DAT0_BUSY = 1 << 12;
        /// MMC: sleep before a reboot; the card does not boot any more.
        const SLEEP = 1 << 13;
        /// MMC: tuning while the partition changes to RPMB.
        const RPMB_TUNING = 1 << 14;
    }
}

/// Year and month of making, in their order.
pub type Month = (u16, u8);

/// How to know a card, and what to avoid with it. `None` matches all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirk {
    /// Manufacturer.
    pub mid: Option<u8>,
    /// OEM.
    pub oid: Option<u16>,
    /// Product name.
    pub name: Option<[u8; 5]>,
    /// Made in this month or later.
    pub from: Option<Month>,
    /// Made in this month or earlier.
    pub to: Option<Month>,
    /// What to avoid.
    pub avoid: Avoid,
}

impl Quirk {
    const fn new(mid: u8, oid: u16, name: &[u8; 5], avoid: Avoid) -> Self {
        Self { mid: Some(mid), oid: Some(oid), name: Some(*name), from: None, to: None, avoid }
    }
    const fn made(self, from: Month, to: Month) -> Self {
        Self { from: Some(from), to: Some(to), ..self }
    }

    /// Whether `cid` is such a card's.
    #[must_use]
    pub fn matches(&self, cid: &Cid) -> bool {
        let made = (cid.mdt_year(), cid.mdt_month());
        self.mid.is_none_or(|mid| mid == cid.mid())
            && self.oid.is_none_or(|oid| oid == cid.oid())
            && self.name.is_none_or(|name| name == cid.pnm_text().0)
            && self.from.is_none_or(|from| from <= made)
            && self.to.is_none_or(|to| made <= to)
    }
}

/// The SD cards known to us.
pub const SD: &[Quirk] = &[
    // Kingston Canvas Go! Plus; those of 2023 are well.
    Quirk::new(0x9f, 0x5449, b"SD64G", Avoid::CACHE).made((2019, 11), (2021, 8)),
    // Gigastone Gaming Plus; those of 2024 are well.
    Quirk::new(0x12, 0x3456, b"ASTC\0", Avoid::CACHE.union(Avoid::POWER_OFF_NOTIFICATION))
        .made((2022, 2), (2022, 2)),
    // Swissbit S-46u.
    Quirk::new(0x5d, 0x5342, b"0016G", Avoid::DDR50_TUNING).made((2019, 1), (2019, 1)),
    // SanDisk, all: the SD status offers discard.
    Quirk { name: None, ..Quirk::new(0x03, 0x5344, b"     ", Avoid::DISCARD) },
    // ATP.
    Quirk { oid: None, ..Quirk::new(0x09, 0, b"AF SD", Avoid::CMD23) },
    // Apacer.
    Quirk::new(0x27, 0x5048, b"APUSD", Avoid::CMD23),
    // Kingston SDC10G2/16GB.
    Quirk::new(0x41, 0x3432, b"SD16G", Avoid::ERASE.union(Avoid::DISCARD)),
];

/// How to know an MMC or eMMC, and what to avoid with it. `None` matches all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MmcQuirk {
    /// Manufacturer.
    pub mid: Option<u8>,
    /// OEM, 16 bits as older cards have it.
    pub oid: Option<u16>,
    /// The first bytes of the product name, up to all six.
    pub name: Option<&'static str>,
    /// `EXT_CSD_REV`.
    pub rev: Option<u8>,
    /// What to avoid.
    pub avoid: Avoid,
}

impl MmcQuirk {
    const fn new(mid: u8, oid: Option<u16>, name: &'static str, avoid: Avoid) -> Self {
        Self { mid: Some(mid), oid, name: Some(name), rev: None, avoid }
    }
    const fn rev(mid: u8, oid: u16, rev: u8, avoid: Avoid) -> Self {
        Self { mid: Some(mid), oid: Some(oid), name: None, rev: Some(rev), avoid }
    }

    /// Whether this is such a card; `rev` is its `EXT_CSD_REV`, if it has an EXT_CSD.
    #[must_use]
    pub fn matches(&self, cid: &MmcCid, rev: Option<u8>) -> bool {
        self.mid.is_none_or(|mid| mid == cid.mid())
            && self.oid.is_none_or(|oid| oid == cid.oid16())
            && self.name.is_none_or(|name| cid.pnm_text().0.starts_with(name.as_bytes()))
            && self.rev.is_none_or(|own| rev == Some(own))
    }
}

/// The MMC and eMMC known to us.
pub const MMC: &[MmcQuirk] = &{
    // SanDisk iNAND: what CMD38 does is in EXT_CSD byte 113, whatever its argument; by default it erases whole groups.
    const INAND: Avoid = Avoid::TRIM.union(Avoid::DISCARD).union(Avoid::SECURE_ERASE);
    const fn inand(name: &'static str) -> MmcQuirk {
        MmcQuirk::new(0x02, Some(0x100), name, INAND)
    }
    // Samsung MoviNAND: secure erase can corrupt for ever.
    const fn movinand(name: &'static str) -> MmcQuirk {
        MmcQuirk::new(0x15, None, name, Avoid::SECURE_ERASE)
    }
    const fn samsung_busy(name: &'static str) -> MmcQuirk {
        MmcQuirk::new(0x15, None, name, Avoid::DAT0_BUSY)
    }
    [
        inand("SEM02G"),
        inand("SEM04G"),
        inand("SEM08G"),
        inand("SEM16G"),
        inand("SEM32G"),
        MmcQuirk::new(0x02, None, "SDMB-3", Avoid::CMD23),
        MmcQuirk::new(0x02, None, "SDM032", Avoid::CMD23),
        // Toshiba.
        MmcQuirk::new(0x11, None, "MMC08G", Avoid::CMD23),
        MmcQuirk::new(0x11, None, "MMC16G", Avoid::CMD23),
        MmcQuirk::new(0x11, None, "MMC32G", Avoid::CMD23),
        MmcQuirk::new(0x11, None, "008GE0", Avoid::CSD_READ_TIME),
        // Micron.
        MmcQuirk::new(0x13, Some(0x200), "", Avoid::CSD_READ_TIME),
        MmcQuirk::new(0x13, Some(0x14e), "Q2J54A", Avoid::TRIM.union(Avoid::CLEAN_FLUSH)),
        MmcQuirk::new(0x13, None, "R1J57L", Avoid::TRIM),
        MmcQuirk::rev(0x13, 0x14e, 7, Avoid::CACHE),
        MmcQuirk::new(0xfe, Some(0x14e), "", Avoid::SLEEP),
        MmcQuirk::rev(0xfe, 0x14e, 6, Avoid::INTERRUPT),
        movinand("M8G2FA"),
        movinand("MAG4FA"),
        movinand("MBG8FA"),
        movinand("MCGAFA"),
        movinand("VAL00M"),
        movinand("VYL00M"),
        movinand("KYL00M"),
        movinand("VZL00M"),
        samsung_busy("4YMD1R"),
        samsung_busy("M4G1YC"),
        samsung_busy("M8G1WA"),
        samsung_busy("MAG2WA"),
        samsung_busy("MBG4WA"),
        samsung_busy("MCG8WA"),
        // Kingston.
        MmcQuirk::new(0x70, None, "V10008", Avoid::TRIM),
        MmcQuirk::new(0x70, None, "V10016", Avoid::TRIM),
        MmcQuirk::new(0x70, Some(0x100), "M62704", Avoid::TRIM),
        MmcQuirk::new(0x70, Some(0x100), "IY2964", Avoid::SECURE_ERASE_TIME),
        MmcQuirk::new(0x70, Some(0x100), "IB2932", Avoid::SECURE_ERASE_TIME),
        // Hynix 4.41.
        MmcQuirk::rev(0x90, 0x14a, 5, Avoid::INTERRUPT),
        // SanDisk.
        MmcQuirk::new(0x45, Some(0x100), "DG4064", Avoid::RPMB_TUNING),
    ]
};

/// What to avoid with an MMC or eMMC: all that the matching rows of `table` say.
#[must_use]
pub fn avoid_mmc(cid: &MmcCid, rev: Option<u8>, table: &[MmcQuirk]) -> Avoid {
    let rows = table.iter().filter(|quirk| quirk.matches(cid, rev));
    rows.fold(Avoid::empty(), |all, quirk| all | quirk.avoid)
}

/// What to avoid with the card of this CID: all that the matching rows of `table` say.
#[must_use]
pub fn avoid(cid: &Cid, table: &[Quirk]) -> Avoid {
    table.iter().filter(|quirk| quirk.matches(cid)).fold(Avoid::empty(), |all, quirk| all | quirk.avoid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::register::CidInfo;

    fn card(mid: u8, oid: u16, name: &[u8; 5], year: u8, month: u8) -> Cid {
        let pnm = name.iter().fold(0, |n, b| n << 8 | u64::from(*b));
        let info = CidInfo { mid, oid, pnm, mdt_year_code: year, mdt_month: month, ..CidInfo::default() };
        info.emit()
    }

    #[test]
    fn a_quirk_needs_all_that_its_row_names() {
        assert_eq!(avoid(&card(0x09, 0x4150, b"AF SD", 12, 1), SD), Avoid::CMD23, "any OEM");
        assert_eq!(avoid(&card(0x09, 0x4150, b"AF UD", 12, 1), SD), Avoid::empty());
        assert_eq!(avoid(&card(0x27, 0x5048, b"APUSD", 12, 1), SD), Avoid::CMD23);
        assert_eq!(avoid(&card(0x27, 0x5049, b"APUSD", 12, 1), SD), Avoid::empty());
        assert_eq!(avoid(&card(0x03, 0x5344, b"SA16G", 17, 7), SD), Avoid::DISCARD, "any name");
    }

    #[test]
    fn rows_that_say_the_same_of_a_card_say_it_once_more() {
        let row = |avoid| Quirk::new(0x27, 0x5048, b"APUSD", avoid);
        let sd = [row(Avoid::CMD23), row(Avoid::CMD23.union(Avoid::ERASE)), row(Avoid::ERASE)];
        assert_eq!(avoid(&card(0x27, 0x5048, b"APUSD", 12, 1), &sd), Avoid::CMD23.union(Avoid::ERASE));
        let row = |avoid| MmcQuirk { mid: None, oid: None, name: None, rev: None, avoid };
        let mmc = [row(Avoid::TRIM), row(Avoid::TRIM.union(Avoid::ERASE)), row(Avoid::ERASE)];
        assert_eq!(avoid_mmc(&MmcCid::new([0; 16]), None, &mmc), Avoid::TRIM.union(Avoid::ERASE));
    }

    /// The tables are computed by the compiler; here a row is made while the test runs.
    #[test]
    fn a_row_holds_what_it_is_made_of() {
        let row = Quirk::new(0x41, 0x3432, b"SD16G", Avoid::CMD23);
        let (from, to) = (Some((2019, 2)), Some((2020, 3)));
        let whole = Quirk {
            mid: Some(0x41),
            oid: Some(0x3432),
            name: Some(*b"SD16G"),
            from,
            to,
            avoid: Avoid::CMD23,
        };
        assert_eq!(row, Quirk { from: None, to: None, ..whole });
        assert_eq!(row.made((2019, 2), (2020, 3)), whole);
    }

    #[test]
    fn dates_bound_a_quirk_on_both_sides() {
        for (year, month, found) in
            [(19, 10, false), (19, 11, true), (20, 1, true), (21, 8, true), (21, 9, false), (23, 5, false)]
        {
            let avoid = avoid(&card(0x9f, 0x5449, b"SD64G", year, month), SD);
            assert_eq!(avoid.contains(Avoid::CACHE), found, "20{year}-{month}");
        }
    }

    #[test]
    fn an_mmc_is_known_by_its_maker_name_and_revision() {
        use crate::register::MmcCidInfo;
        let cid = |mid, oid: u16, name: &[u8; 6]| {
            let pnm = name.iter().fold(0, |n, b| n << 8 | u64::from(*b));
            let [high, low] = oid.to_be_bytes();
            MmcCidInfo { mid, reserved: high >> 2, cbx: high & 3, oid8: low, pnm, ..MmcCidInfo::default() }
                .emit()
        };
        let avoid = |cid: &MmcCid, rev| avoid_mmc(cid, rev, MMC);
        let movinand = cid(0x15, 0x100, b"VYL00M");
        assert_eq!(avoid(&movinand, Some(5)), Avoid::SECURE_ERASE);
        assert_eq!(avoid(&cid(0x15, 0x100, b"VYL00X"), Some(5)), Avoid::empty());
        let hynix = cid(0x90, 0x14a, b"H8G2d\0");
        assert_eq!((avoid(&hynix, Some(5)), avoid(&hynix, Some(6))), (Avoid::INTERRUPT, Avoid::empty()));
        assert_eq!(avoid(&hynix, None), Avoid::empty(), "without an EXT_CSD no revision");
        let inand = cid(0x02, 0x100, b"SEM04G");
        assert!(avoid(&inand, Some(5)).contains(Avoid::TRIM | Avoid::DISCARD | Avoid::SECURE_ERASE));
        assert_eq!(avoid(&cid(0x02, 0, b"SEM04G"), Some(5)), Avoid::empty(), "another OEM");
        assert_eq!(avoid(&cid(0x13, 0x200, b"anyone"), None), Avoid::CSD_READ_TIME);
        assert_eq!(
            avoid(&cid(0x13, 0x14e, b"Q2J54A"), Some(7)),
            Avoid::TRIM | Avoid::CLEAN_FLUSH | Avoid::CACHE
        );
        let own = [MmcQuirk { mid: None, oid: None, name: None, rev: Some(8), avoid: Avoid::INTERRUPT }];
        assert_eq!(avoid_mmc(&inand, Some(8), &own), Avoid::INTERRUPT, "a table of the caller's own");
    }

    #[test]
    fn a_callers_table_counts_as_ours() {
        let own = [Quirk { mid: None, oid: None, name: None, from: None, to: None, avoid: Avoid::CMD23 }];
        let cid = card(0x03, 0x5344, b"SA16G", 17, 7);
        assert_eq!(avoid(&cid, &own) | avoid(&cid, SD), Avoid::CMD23 | Avoid::DISCARD);
    }
}

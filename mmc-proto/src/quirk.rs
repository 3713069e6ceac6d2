//! Cards that are not what they say, as a table of data: how to know one, and what to avoid with it.
//!
//! The facts are those of `spec/card-quirks.md`. A caller adds its own by a table of its own: the union of
//! [`avoid`]'s answers holds.

use crate::register::Cid;

bitflags::bitflags! {
    /// What must not be used with a card, although its registers offer it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Avoid: u16 {
        /// CMD23: the card locks up; end multi-block transfers by CMD12.
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
    fn dates_bound_a_quirk_on_both_sides() {
        for (year, month, found) in
            [(19, 10, false), (19, 11, true), (20, 1, true), (21, 8, true), (21, 9, false), (23, 5, false)]
        {
            let avoid = avoid(&card(0x9f, 0x5449, b"SD64G", year, month), SD);
            assert_eq!(avoid.contains(Avoid::CACHE), found, "20{year}-{month}");
        }
    }

    #[test]
    fn a_callers_table_counts_as_ours() {
        let own = [Quirk { mid: None, oid: None, name: None, from: None, to: None, avoid: Avoid::CMD23 }];
        let cid = card(0x03, 0x5344, b"SA16G", 17, 7);
        assert_eq!(avoid(&cid, &own) | avoid(&cid, SD), Avoid::CMD23 | Avoid::DISCARD);
    }
}

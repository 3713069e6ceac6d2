//! What a card says of its own health.
//!
//! An eMMC of 5.0 and later says it in its EXT_CSD (`spec/card.md` §12), read by [`Fetch::ext_csd`](super::Fetch). The
//! SD standard has no such register: makers answer CMD56, each in its own way ([`Fetch::vendor`](super::Fetch)).

use crate::register::ExtCsd;
use crate::register::ext_csd::{
    BKOPS_STATUS, DEVICE_LIFE_TIME_EST_TYP_A, DEVICE_LIFE_TIME_EST_TYP_B, EXCEPTION_EVENTS_STATUS,
    EXT_CSD_REV, PRE_EOL_INFO,
};

/// How much of the life of one kind of memory is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wear {
    /// 0: not stated.
    NotStated,
    /// 1..=10: between `of - 10` and `of` per cent.
    Percent(u8),
    /// 11: more than it was made for.
    Exceeded,
    /// Any other code: noise of the maker's.
    Noise(u8),
}

impl Wear {
    const fn of(code: u64) -> Self {
        match code {
            0 => Self::NotStated,
            1..=10 => Self::Percent((code as u8).saturating_mul(10)),
            11 => Self::Exceeded,
            _ => Self::Noise(code as u8),
        }
    }
}

/// How much of the spare blocks is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spare {
    /// 0 or a reserved code: not stated.
    NotStated,
    /// 1.
    Normal,
    /// 2: 80 %.
    Warning,
    /// 3: 90 %.
    Urgent,
}

/// How much the card needs background operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Background {
    /// 0.
    None,
    /// 1.
    NotCritical,
    /// 2: it becomes slow.
    Slow,
    /// 3.
    Critical,
}

/// The health of an eMMC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Life used of memory of type A (often: single-level cells).
    pub wear_a: Wear,
    /// Life used of memory of type B.
    pub wear_b: Wear,
    /// Spare blocks used.
    pub spare: Spare,
    /// Need of background operations.
    pub background: Background,
    /// Bits of `EXCEPTION_EVENTS_STATUS`: 0 urgent background operations, 1 dynamic capacity, 2 system pool, 3 packed
    /// command, 4 extended security.
    pub events: u16,
}

impl Health {
    /// Of the card with this EXT_CSD, freshly read. Fields a card of its revision does not have are not stated.
    #[must_use]
    pub fn of(ext_csd: &ExtCsd) -> Self {
        let rev = ext_csd.get(EXT_CSD_REV);
        let since = |rev_of: u64, field| if rev >= rev_of { ext_csd.get(field) } else { 0 };
        Self {
            wear_a: Wear::of(since(7, DEVICE_LIFE_TIME_EST_TYP_A)),
            wear_b: Wear::of(since(7, DEVICE_LIFE_TIME_EST_TYP_B)),
            spare: match since(7, PRE_EOL_INFO) {
                1 => Spare::Normal,
                2 => Spare::Warning,
                3 => Spare::Urgent,
                _ => Spare::NotStated,
            },
            background: match since(5, BKOPS_STATUS) & 3 {
                0 => Background::None,
                1 => Background::NotCritical,
                2 => Background::Slow,
                _ => Background::Critical,
            },
            events: u16::try_from(since(6, EXCEPTION_EVENTS_STATUS)).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_states_its_wear_and_noise_is_not_taken_for_it() {
        let mut e = ExtCsd::new([0; 512]);
        e.set(DEVICE_LIFE_TIME_EST_TYP_A, 3);
        assert_eq!(Health::of(&e).wear_a, Wear::NotStated, "before 5.0 the byte is reserved");
        for (field, value) in [
            (EXT_CSD_REV, 7),
            (DEVICE_LIFE_TIME_EST_TYP_B, 0xc0),
            (PRE_EOL_INFO, 2),
            (BKOPS_STATUS, 2),
            (EXCEPTION_EVENTS_STATUS, 1),
        ] {
            e.set(field, value);
        }
        let health = Health::of(&e);
        assert_eq!((health.wear_a, health.wear_b), (Wear::Percent(30), Wear::Noise(0xc0)));
        assert_eq!((health.spare, health.events), (Spare::Warning, 1));
        assert!(health.background > Background::NotCritical);
        e.set(DEVICE_LIFE_TIME_EST_TYP_A, 11);
        assert_eq!(Health::of(&e).wear_a, Wear::Exceeded);
    }
}

//! Which of two requests is nearer to the head of a disk: the choice of `bfq` and `cfq` within a stream.
//!
//! It does not search: a policy compares what it has at hand.

use crate::pool::Pool;
use crate::request::Flags;

/// How far back the next request may lie, and what going back costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BackSeek {
    /// Sectors.
    pub(crate) max: u64,
    /// A sector back counts as much as so many ahead.
    pub(crate) penalty: u64,
}

/// Whether the run's first request is of metadata; what merged with it does not change that.
pub(crate) fn is_meta(pool: &Pool<'_>, slot: u16) -> bool {
    pool.request(slot).flags.contains(Flags::META)
}

/// Of two requests the one that is better to serve from `position`: metadata first, then the shorter way; ways
/// back count `penalty` times, and what lies too far back comes last, lowest sector first.
#[inline]
pub(crate) fn better(
    pool: &Pool<'_>,
    a: Option<u16>,
    b: Option<u16>,
    position: u64,
    seek: BackSeek,
) -> Option<u16> {
    let (Some(x), Some(y)) = (a, b) else { return a.or(b) };
    let (meta_x, meta_y) = (is_meta(pool, x), is_meta(pool, y));
    let (at_x, at_y) = (pool.lba(x), pool.lba(y));
    // Too far back, and the way, or the sector of one too far back. No branch: nobody foresees where a request is.
    let way = |s: u64| {
        let back = position.saturating_sub(s);
        let far = back > seek.max;
        let near = if back == 0 { s.wrapping_sub(position) } else { back.saturating_mul(seek.penalty) };
        (far, if far { s } else { near })
    };
    let ((far_x, x), (far_y, y)) = (way(at_x), way(at_y));
    // As far ahead as back: ahead.
    let nearer = (x < y) | ((x == y) & (at_x >= at_y));
    let first = if meta_x == meta_y { if far_x == far_y { nearer } else { far_y } } else { meta_x };
    if first { a } else { b }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::pool::Slot;
    use crate::request::{Flags, Op, Request, StreamId};
    use proptest::prelude::*;

    const SEEK: BackSeek = BackSeek { max: 100, penalty: 2 };

    /// Which of the requests at two sectors goes first with the head at `position`.
    fn first(a: (u64, bool), b: (u64, bool), position: u64) -> u64 {
        let mut slots = [Slot::FREE; 2];
        for (slot, (lba, meta)) in slots.iter_mut().zip([a, b]) {
            slot.request = Request::new(Op::Read, lba, 8, StreamId(0));
            slot.request.flags.set(Flags::META, meta);
            slot.lba = lba;
        }
        let pool = Pool::new(&mut slots);
        pool.lba(better(&pool, Some(0), Some(1), position, SEEK).unwrap())
    }

    #[test]
    fn back_costs_double_and_far_back_comes_last() {
        let plain = |s| (s, false);
        assert_eq!(first(plain(1010), plain(1020), 1000), 1010);
        assert_eq!(first(plain(990), plain(1021), 1000), 990, "10 back is 20 ahead");
        assert_eq!(first(plain(990), plain(1020), 1000), 1020, "a tie goes ahead");
        assert_eq!(first(plain(900), plain(1_000_000), 1000), 900, "100 back is allowed");
        assert_eq!(first(plain(899), plain(1_000_000), 1000), 1_000_000, "101 back is not");
        assert_eq!(first(plain(800), plain(300), 1000), 300, "far back: from the lowest sector on");
        assert_eq!(first(plain(1001), (5, true), 1000), 5, "metadata first");
    }

    proptest! {
        /// The rule as a cost: too far back counts as behind everything, in sector order.
        #[test]
        fn the_cheaper_one_goes_first(a in 0u64..600, b in 0u64..600, ma: bool, mb: bool, position in 0u64..600) {
            let cost = |(s, meta): (u64, bool)| {
                let back = position.saturating_sub(s);
                let tie = i64::try_from(s).unwrap();
                match (s >= position, back <= SEEK.max) {
                    (true, _) => (!meta, 0, s - position, -tie),
                    (_, true) => (!meta, 0, back * SEEK.penalty, -tie),
                    _ => (!meta, 1, s, 0),
                }
            };
            let expected = [(a, ma), (b, mb)].into_iter().min_by_key(|r| cost(*r)).unwrap();
            prop_assert_eq!(first((a, ma), (b, mb), position), expected.0);
        }
    }
}

//! Requests by one sector of theirs: which begin (or end) exactly there, the latest first.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Mixes a sector or a process number so that all bits of the result depend on it. Not for keys that an enemy chooses: a
/// trace made to collide is only slow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// A map with this hash.
pub(super) type Hashed<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// No slot.
const NONE: u32 = u32::MAX;

/// Chains of slots by sector.
#[derive(Debug, Default)]
pub(super) struct Places {
    first: Hashed<u64, u32>,
    /// By slot: the one before and the one behind it in its chain.
    links: Vec<[u32; 2]>,
}

impl Places {
    /// `slot` (in no chain) goes to the front of the chain of `sector`.
    pub(super) fn insert(&mut self, sector: u64, slot: u32) {
        let next = self.first.insert(sector, slot).unwrap_or(NONE);
        let at = slot as usize;
        if self.links.len() <= at {
            self.links.resize(at + 1, [NONE; 2]);
        }
        self.links[at] = [NONE, next];
        if let Some(link) = self.links.get_mut(next as usize) {
            link[0] = slot;
        }
    }

    /// `slot` leaves the chain of `sector`, which it is in.
    pub(super) fn remove(&mut self, sector: u64, slot: u32) {
        let Some(&[before, next]) = self.links.get(slot as usize) else { return };
        match self.links.get_mut(before as usize) {
            Some(link) => link[1] = next,
            None if next == NONE => drop(self.first.remove(&sector)),
            None => drop(self.first.insert(sector, next)),
        }
        if let Some(link) = self.links.get_mut(next as usize) {
            link[0] = before;
        }
    }

    /// The slots of `sector`, the latest first.
    pub(super) fn at(&self, sector: u64) -> impl Iterator<Item = u32> + '_ {
        let next = |slot: u32| Some(self.links.get(slot as usize)?[1]).filter(|&next| next != NONE);
        std::iter::successors(self.first.get(&sector).copied(), move |&slot| next(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_kept_whatever_leaves_first() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut places = Places::default();
            (0..3).for_each(|slot| places.insert(64, slot));
            places.insert(65, 3);
            let mut left = vec![2, 1, 0];
            for slot in order {
                assert_eq!(places.at(64).collect::<Vec<_>>(), left);
                places.remove(64, slot);
                left.retain(|&s| s != slot);
            }
            assert_eq!((places.at(64).count(), places.at(65).count(), places.first.len()), (0, 1, 1));
        }
    }
}

//! Slots ordered by a number (their first sector): an AVL tree with its links in the slots.
//!
//! It does not own the slots: a slot is in at most one tree at a time. Equal keys keep the order of insertion.
//! Insertion, removal and look-up take O(log n) steps, whatever the order of arrivals: the height is below
//! 1.44·log2(n + 2), 23 for a full pool.

use crate::pool::{NIL, Pool};

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    root: u16,
}

impl Tree {
    /// An empty tree.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: NIL }
    }
    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root == NIL
    }
    /// The first slot in order.
    #[must_use]
    #[inline]
    pub fn first(&self, pool: &Pool<'_>) -> Option<u16> {
        some(leftmost(pool, self.root))
    }
    /// The first slot whose key is `key` or more.
    #[must_use]
    #[inline]
    pub fn at_or_after(&self, pool: &Pool<'_>, key: u64) -> Option<u16> {
        let (mut at, mut best) = (self.root, NIL);
        while let Some(s) = pool.get(at) {
            if s.key >= key {
                best = at;
                at = s.left;
            } else {
                at = s.right;
            }
        }
        some(best)
    }
    /// The last slot whose key is below `key`.
    #[must_use]
    pub fn before(&self, pool: &Pool<'_>, key: u64) -> Option<u16> {
        let (mut at, mut best) = (self.root, NIL);
        while let Some(s) = pool.get(at) {
            if s.key < key {
                best = at;
                at = s.right;
            } else {
                at = s.left;
            }
        }
        some(best)
    }
    /// The slot behind `slot` in order.
    #[must_use]
    #[inline]
    pub fn next(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let right = pool.at(slot).right;
        if right != NIL {
            return some(leftmost(pool, right));
        }
        let (mut child, mut up) = (slot, pool.at(slot).up);
        while up != NIL && pool.at(up).right == child {
            (child, up) = (up, pool.at(up).up);
        }
        some(up)
    }
    /// The slot in front of `slot` in order.
    #[must_use]
    #[inline]
    pub fn prev(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let mut at = pool.at(slot).left;
        if at != NIL {
            while pool.at(at).right != NIL {
                at = pool.at(at).right;
            }
            return some(at);
        }
        let (mut child, mut up) = (slot, pool.at(slot).up);
        while up != NIL && pool.at(up).left == child {
            (child, up) = (up, pool.at(up).up);
        }
        some(up)
    }
    /// Adds a slot that is in no tree, behind those with an equal key.
    #[inline]
    pub fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, key: u64) {
        let (mut up, mut at, mut left) = (NIL, self.root, false);
        while let Some(s) = pool.get(at) {
            up = at;
            left = key < s.key;
            at = if left { s.left } else { s.right };
        }
        pool.edit(slot, |s| {
            s.key = key;
            (s.left, s.right, s.up, s.tilt) = (NIL, NIL, up, 0);
        });
        match (up, left) {
            (NIL, _) => self.root = slot,
            (_, true) => pool.edit(up, |s| s.left = slot),
            (_, false) => pool.edit(up, |s| s.right = slot),
        }
        self.grew(pool, up, left);
    }
    /// Takes out a slot that is in this tree.
    #[inline]
    pub fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let s = pool.at(slot);
        let (left, right, up, tilt) = (s.left, s.right, s.up, s.tilt);
        if left == NIL || right == NIL {
            let child = if left == NIL { right } else { left };
            let was_left = self.replace_child(pool, up, slot, child);
            self.shrank(pool, up, was_left);
            return;
        }
        // The successor takes the place of `slot`.
        let heir = leftmost(pool, right);
        let (heir_up, heir_right) = (pool.at(heir).up, pool.at(heir).right);
        let fix = if heir_up == slot {
            heir
        } else {
            pool.edit(heir_up, |s| s.left = heir_right);
            pool.edit(heir_right, |s| s.up = heir_up);
            pool.edit(heir, |s| s.right = right);
            pool.edit(right, |s| s.up = heir);
            heir_up
        };
        pool.edit(heir, |s| (s.left, s.tilt) = (left, tilt));
        pool.edit(left, |s| s.up = heir);
        self.replace_child(pool, up, slot, heir);
        self.shrank(pool, fix, fix != heir);
    }
    /// Makes `new` (or nothing) the child of `up` where `old` was; whether that is left.
    #[inline]
    fn replace_child(&mut self, pool: &mut Pool<'_>, up: u16, old: u16, new: u16) -> bool {
        pool.edit(new, |s| s.up = up);
        let Some(s) = pool.get_mut(up) else {
            self.root = new;
            return false;
        };
        let left = s.left == old;
        *(if left { &mut s.left } else { &mut s.right }) = new;
        left
    }
    /// The left (or right) subtree of `at` became higher by one.
    #[inline]
    fn grew(&mut self, pool: &mut Pool<'_>, mut at: u16, mut left: bool) {
        while let Some(s) = pool.get_mut(at) {
            s.tilt = s.tilt.wrapping_add(if left { -1 } else { 1 });
            let (tilt, up) = (s.tilt, s.up);
            if tilt == 0 {
                return;
            }
            if tilt.unsigned_abs() > 1 {
                self.rotate(pool, at);
                return;
            }
            (at, left) = (up, pool.at(up).left == at);
        }
    }
    /// The left (or right) subtree of `at` became lower by one.
    #[inline]
    fn shrank(&mut self, pool: &mut Pool<'_>, mut at: u16, mut left: bool) {
        while let Some(s) = pool.get_mut(at) {
            s.tilt = s.tilt.wrapping_add(if left { 1 } else { -1 });
            let (tilt, up) = (s.tilt, s.up);
            if tilt.unsigned_abs() == 1 {
                return;
            }
            if tilt != 0 {
                at = self.rotate(pool, at);
                if pool.at(at).tilt != 0 {
                    return;
                }
            }
            (at, left) = (up, pool.at(up).left == at);
        }
    }
    /// Restores the balance of `at`, one of whose subtrees is higher by two; what stands there now, which is as high
    /// as `at` was before that if it is tilted.
    fn rotate(&mut self, pool: &mut Pool<'_>, at: u16) -> u16 {
        let left = pool.at(at).tilt < 0;
        let child = if left { pool.at(at).left } else { pool.at(at).right };
        let (down, tilt) = (if left { -1 } else { 1 }, pool.at(child).tilt);
        if tilt == down || tilt == 0 {
            self.lift(pool, child, left);
            let rest = if tilt == 0 { down } else { 0 };
            pool.edit(at, |s| s.tilt = rest);
            pool.edit(child, |s| s.tilt = rest.wrapping_neg());
            return child;
        }
        let inner = if left { pool.at(child).right } else { pool.at(child).left };
        let tilt = pool.at(inner).tilt;
        self.lift(pool, inner, !left);
        self.lift(pool, inner, left);
        pool.edit(at, |s| s.tilt = if tilt == down { tilt.wrapping_neg() } else { 0 });
        pool.edit(child, |s| s.tilt = if tilt == down || tilt == 0 { 0 } else { down });
        pool.edit(inner, |s| s.tilt = 0);
        inner
    }
    /// Rotates so that `child`, the left (or right) one of its parent, stands above it.
    fn lift(&mut self, pool: &mut Pool<'_>, child: u16, left: bool) {
        let c = pool.at(child);
        let (at, inner) = (c.up, if left { c.right } else { c.left });
        let up = pool.at(at).up;
        pool.edit(at, |s| {
            *(if left { &mut s.left } else { &mut s.right }) = inner;
            s.up = child;
        });
        pool.edit(inner, |s| s.up = at);
        pool.edit(child, |s| *(if left { &mut s.right } else { &mut s.left }) = at);
        self.replace_child(pool, up, at, child);
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn some(slot: u16) -> Option<u16> {
    (slot != NIL).then_some(slot)
}

#[inline]
fn leftmost(pool: &Pool<'_>, mut at: u16) -> u16 {
    while let Some(left) = pool.get(at).map(|s| s.left).filter(|&l| l != NIL) {
        at = left;
    }
    at
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::pool::Slot;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// Height by definition; panics where links, order or balance are broken.
    fn check(pool: &Pool<'_>, at: u16, up: u16) -> u8 {
        if at == NIL {
            return 0;
        }
        let s = pool.at(at);
        assert_eq!(s.up, up);
        let (l, r) = (check(pool, s.left, at), check(pool, s.right, at));
        assert!(l.abs_diff(r) <= 1, "unbalanced");
        assert_eq!(i32::from(s.tilt), i32::from(r) - i32::from(l));
        l.max(r) + 1
    }

    proptest! {
        #[test]
        fn it_answers_as_a_sorted_map_does(steps in prop::collection::vec((any::<bool>(), 0u16..64, 0u64..40), 1..400)) {
            let mut slots = [Slot::FREE; 64];
            let mut pool = Pool::new(&mut slots);
            let mut tree = Tree::new();
            let mut model: BTreeMap<(u64, usize), u16> = BTreeMap::new();
            for (n, (add, slot, key)) in steps.into_iter().enumerate() {
                let known = model.iter().find(|(_, s)| **s == slot).map(|(k, _)| *k);
                match (add, known) {
                    (true, None) => {
                        tree.insert(&mut pool, slot, key);
                        model.insert((key, n), slot);
                    }
                    (false, Some(k)) => {
                        tree.remove(&mut pool, slot);
                        model.remove(&k);
                    }
                    _ => {}
                }
                check(&pool, tree.root, NIL);
                let order: Vec<u16> = core::iter::successors(tree.first(&pool), |s| Tree::next(&pool, *s)).collect();
                let expected: Vec<u16> = model.values().copied().collect();
                prop_assert_eq!(&order, &expected);
                for pair in order.windows(2) {
                    prop_assert_eq!(Tree::prev(&pool, pair[1]), Some(pair[0]));
                }
                prop_assert_eq!(tree.at_or_after(&pool, key), model.range((key, 0)..).next().map(|(_, s)| *s));
                prop_assert_eq!(tree.before(&pool, key), model.range(..(key, 0)).next_back().map(|(_, s)| *s));
            }
        }
    }
}

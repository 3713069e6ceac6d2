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
        while at != NIL {
            let s = pool.at(at);
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
        while at != NIL {
            let s = pool.at(at);
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
        let (mut up, mut at, mut goes_left) = (NIL, self.root, false);
        while at != NIL {
            up = at;
            let s = pool.at(at);
            goes_left = key < s.key;
            at = if goes_left { s.left } else { s.right };
        }
        pool.edit(slot, |s| {
            s.key = key;
            (s.left, s.right, s.up) = (NIL, NIL, up);
            (s.left_height, s.right_height) = (0, 0);
        });
        match (up, goes_left) {
            (NIL, _) => self.root = slot,
            (_, true) => pool.edit(up, |s| s.left = slot),
            (_, false) => pool.edit(up, |s| s.right = slot),
        }
        self.balance_from(pool, up, goes_left, 1);
    }
    /// Takes out a slot that is in this tree.
    pub fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        let s = pool.at(slot);
        let (left, right, up, heights) = (s.left, s.right, s.up, (s.left_height, s.right_height));
        if left == NIL || right == NIL {
            let child = if left == NIL { right } else { left };
            let was_left = pool.at(up).left == slot;
            self.replace_child(pool, up, slot, child);
            self.balance_from(pool, up, was_left, heights.0.max(heights.1));
            return;
        }
        // The successor takes the place of `slot`.
        let heir = leftmost(pool, right);
        let h = pool.at(heir);
        let (heir_up, heir_right, height) = (h.up, h.right, h.right_height);
        let fix = if heir_up == slot {
            heir
        } else {
            pool.edit(heir_up, |s| s.left = heir_right);
            pool.edit(heir_right, |s| s.up = heir_up);
            pool.edit(heir, |s| s.right = right);
            pool.edit(right, |s| s.up = heir);
            heir_up
        };
        pool.edit(heir, |s| {
            s.left = left;
            (s.left_height, s.right_height) = heights;
        });
        pool.edit(left, |s| s.up = heir);
        self.replace_child(pool, up, slot, heir);
        self.balance_from(pool, fix, fix != heir, height);
    }
    /// Makes `new` (or nothing) the child of `up` where `old` was.
    fn replace_child(&mut self, pool: &mut Pool<'_>, up: u16, old: u16, new: u16) {
        if up == NIL {
            self.root = new;
        } else {
            pool.edit(up, |s| if s.left == old { s.left = new } else { s.right = new });
        }
        pool.edit(new, |s| s.up = up);
    }
    /// Restores heights and balance from `at` upwards, whose left (or right) subtree has another height now.
    fn balance_from(&mut self, pool: &mut Pool<'_>, mut at: u16, mut left: bool, mut height: u8) {
        while let Some(s) = pool.get_mut(at) {
            let (up, old) = (s.up, s.height());
            if left {
                s.left_height = height;
            } else {
                s.right_height = height;
            }
            let (l, r) = (s.left_height, s.right_height);
            if l.abs_diff(r) < 2 {
                height = s.height();
            } else {
                at = self.rotate(pool, at, l > r);
                height = pool.at(at).height();
            }
            if height == old {
                return;
            }
            (at, left) = (up, pool.at(up).left == at);
        }
    }
    /// Restores the balance of `at`, whose left (or right) subtree is too high; what stands there now.
    fn rotate(&mut self, pool: &mut Pool<'_>, at: u16, left: bool) -> u16 {
        if left {
            let child = pool.at(at).left;
            if pool.at(child).left_height < pool.at(child).right_height {
                self.lift_right(pool, child);
            }
            self.lift_left(pool, at)
        } else {
            let child = pool.at(at).right;
            if pool.at(child).right_height < pool.at(child).left_height {
                self.lift_left(pool, child);
            }
            self.lift_right(pool, at)
        }
    }
    /// Rotates so that the left child of `at` stands above it; that child.
    fn lift_left(&mut self, pool: &mut Pool<'_>, at: u16) -> u16 {
        let (up, lifted) = (pool.at(at).up, pool.at(at).left);
        let (inner, inner_height) = (pool.at(lifted).right, pool.at(lifted).right_height);
        pool.edit(at, |s| (s.left, s.left_height, s.up) = (inner, inner_height, lifted));
        pool.edit(inner, |s| s.up = at);
        let height = pool.at(at).height();
        pool.edit(lifted, |s| (s.right, s.right_height) = (at, height));
        self.replace_child(pool, up, at, lifted);
        lifted
    }
    /// Rotates so that the right child of `at` stands above it; that child.
    fn lift_right(&mut self, pool: &mut Pool<'_>, at: u16) -> u16 {
        let (up, lifted) = (pool.at(at).up, pool.at(at).right);
        let (inner, inner_height) = (pool.at(lifted).left, pool.at(lifted).left_height);
        pool.edit(at, |s| (s.right, s.right_height, s.up) = (inner, inner_height, lifted));
        pool.edit(inner, |s| s.up = at);
        let height = pool.at(at).height();
        pool.edit(lifted, |s| (s.left, s.left_height) = (at, height));
        self.replace_child(pool, up, at, lifted);
        lifted
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
    if at != NIL {
        while pool.at(at).left != NIL {
            at = pool.at(at).left;
        }
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
        assert_eq!((s.left_height, s.right_height), (l, r));
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

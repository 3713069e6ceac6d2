//! Slots ordered by a number (their first sector): a B+ tree whose nodes stand in the slots.
//!
//! It does not own the slots: a slot is in at most one tree at a time. Equal keys keep the order of insertion; the
//! largest two numbers count as equal. Insertion, removal and look-up take O(log n) steps, whatever the order of
//! arrivals: each node but the root has two to six entries, so that a full pool has at most 16 levels.
//!
//! A node keeps its entries where they were put and their order beside them, as a number with a digit for each. So
//! nothing in it moves when one comes or goes, and as the first key above a number is found by counting those that
//! are not, no branch hangs on a key: for random sectors no processor would foresee one.

use crate::pool::{NIL, Pool};
use crate::request::Request;

/// Most entries of a node.
const FAN: usize = 6;
/// Entries that each gets of a full node that is divided.
const HALF: usize = FAN / 2;
/// Fewest entries of a node that is not the root. A tree of n slots has at most n nodes then: two leaves or more
/// have two slots each, and there are fewer inner nodes than leaves.
const LEAST: usize = 2;
/// The largest key; a larger one counts as this.
const LAST: u64 = u64::MAX - 1;
/// More levels than a tree of 65,535 slots can have.
const LEVELS: usize = 17;

/// One in each digit of an [`Order`].
const ONES: u32 = 0x11_1111;

/// Where the entries of a node are, in order: a digit of four bits for each, the first one lowest. The digits behind
/// the last entry tell which places are free. Above them the number of entries and whether it is an inner node.
#[derive(Clone, Copy, Debug)]
struct Order(u32);

impl Order {
    const ONE: u32 = 1 << 24;
    const INNER: u32 = 1 << 31;

    /// The first `len` places, one after the other.
    const fn new(len: usize, inner: bool) -> Self {
        Self(0x54_3210 | (len as u32) << 24 | (inner as u32) << 31)
    }
    #[inline]
    fn len(self) -> usize {
        (self.0 >> 24 & 7) as usize
    }
    #[inline]
    fn is_inner(self) -> bool {
        self.0 & Self::INNER != 0
    }
    /// How far up the digit of the entry with this rank is.
    #[inline]
    fn at(rank: usize) -> u32 {
        (rank as u32).wrapping_mul(4)
    }
    /// All digits below that.
    #[inline]
    fn below(rank: usize) -> u32 {
        1_u32.wrapping_shl(Self::at(rank)).wrapping_sub(1)
    }
    /// Where the entry with this rank is, no place (`FAN` or more) for one behind a full node.
    #[inline]
    fn place(self, rank: usize) -> usize {
        (self.0.wrapping_shr(Self::at(rank)) & 7) as usize
    }
    /// The rank of the entry at a place.
    #[inline]
    fn rank(self, place: usize) -> usize {
        let zero_at = self.0 ^ (place as u32).wrapping_mul(ONES);
        // The lowest digit that is zero gets its highest bit, and no other below it.
        let found = zero_at.wrapping_sub(ONES) & !zero_at & (ONES << 3);
        (found.trailing_zeros() >> 2) as usize
    }
    /// Without the last `n`.
    #[inline]
    fn less(self, n: usize) -> Self {
        Self(self.0.wrapping_sub((n as u32).wrapping_mul(Self::ONE)))
    }
    /// One more entry, with this rank; its place. There is a free one.
    #[inline]
    fn insert(&mut self, rank: usize) -> usize {
        let len = self.len();
        let place = self.place(len);
        let (low, all) = (Self::below(rank), Self::below(len.wrapping_add(1)));
        let moved = (self.0 & !low) << 4 & all;
        let digit = (place as u32).wrapping_shl(Self::at(rank));
        self.0 = (self.0 & !all | moved | digit | self.0 & low).wrapping_add(Self::ONE);
        place
    }
    /// One entry less, that with this rank, which there is; its place.
    #[inline]
    fn remove(&mut self, rank: usize) -> usize {
        let place = self.place(rank);
        let len = self.len();
        let (low, all) = (Self::below(rank), Self::below(len));
        let moved = (self.0 & all) >> 4 & !low;
        let digit = (place as u32).wrapping_shl(Self::at(len.wrapping_sub(1)));
        self.0 = (self.0 & !all | moved | digit | self.0 & low).wrapping_sub(Self::ONE);
        place
    }
}

/// A node of a tree: one cache line. Each slot has room for one, which is used by whatever tree needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// `MAX` where there is no entry. In an inner node a bound: nothing of that child is below its key (of the first
    /// child it says nothing), nothing of the children before it above.
    keys: [u64; FAN],
    /// Slots in a leaf, nodes in an inner node; `NIL` where there is no entry.
    items: [u16; FAN],
    order: Order,
}

/// What a node is linked with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Links {
    /// The inner node this one is in. Of a node that is not used: how much farther than the one behind it the next such
    /// is.
    up: u16,
    /// Nodes of the same level side by side.
    prev: u16,
    next: u16,
    /// Of the first slot: the first node that is not used.
    unused: u16,
}

impl Links {
    /// Those of a node in no tree. A pool of such is a list of unused nodes.
    pub(crate) const FREE: Self = Self { up: 0, prev: NIL, next: NIL, unused: 0 };
}

impl Node {
    /// In no tree.
    pub(crate) const FREE: Self = Self::new(false);

    const fn new(inner: bool) -> Self {
        Self { keys: [u64::MAX; FAN], items: [NIL; FAN], order: Order::new(0, inner) }
    }
    /// The item at a place, `NIL` where there is none.
    #[inline]
    fn item(&self, place: usize) -> u16 {
        self.items.get(place).copied().unwrap_or(NIL)
    }
    /// The item with a rank, `NIL` behind the last.
    #[inline]
    fn ranked(&self, rank: usize) -> u16 {
        self.item(self.order.place(rank))
    }
    /// How many keys are `below`, which is true of the lower ones only and not of `MAX`.
    #[inline]
    fn rank(&self, below: impl Fn(u64) -> bool) -> usize {
        self.keys.iter().fold(0, |n: usize, &k| n.wrapping_add(below(k).into()))
    }
    /// The rank of an item.
    fn rank_of(&self, item: u16) -> usize {
        self.items.iter().position(|&i| i == item).map_or(FAN, |place| self.order.rank(place))
    }
    #[inline]
    fn set(&mut self, place: usize, entry: (u64, u16)) {
        if let (Some(k), Some(v)) = (self.keys.get_mut(place), self.items.get_mut(place)) {
            (*k, *v) = entry;
        }
    }
    /// The entry with a rank.
    #[inline]
    fn entry(&self, rank: usize) -> (u64, u16) {
        let place = self.order.place(rank);
        (self.keys.get(place).copied().unwrap_or(u64::MAX), self.item(place))
    }
    /// Gives the entry with a rank another key, which leaves the order as it is.
    fn set_key(&mut self, rank: usize, key: u64) {
        if let Some(k) = self.keys.get_mut(self.order.place(rank)) {
            *k = key;
        }
    }
    /// Puts in an entry that gets this rank; its place, or `None` if there is no room.
    #[inline]
    fn put(&mut self, rank: usize, entry: (u64, u16)) -> Option<usize> {
        if self.order.len() == FAN {
            return None;
        }
        let place = self.order.insert(rank);
        self.set(place, entry);
        Some(place)
    }
    /// Takes out the entry with this rank.
    #[inline]
    fn take(&mut self, rank: usize) -> (u64, u16) {
        let entry = self.entry(rank);
        let place = self.order.remove(rank);
        self.set(place, (u64::MAX, NIL));
        entry
    }
    /// Gives the upper half of a full node away, which stands in the first places then.
    #[inline]
    fn divide(&mut self) -> Self {
        let mut upper = Self::new(self.order.is_inner());
        for rank in 0..HALF {
            let place = self.order.place(rank.wrapping_add(HALF));
            upper.set(rank, (self.keys.get(place).copied().unwrap_or(u64::MAX), self.item(place)));
            self.set(place, (u64::MAX, NIL));
        }
        upper.order = Order::new(HALF, self.order.is_inner());
        self.order = self.order.less(HALF);
        upper
    }
}

/// Where in which tree an entry of a key would stand, as long as no tree changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    key: u64,
    root: u16,
    leaf: u16,
    rank: u16,
}

impl Gap {
    /// Nothing is known. No entry has this key.
    pub(crate) const UNKNOWN: Self = Self { key: u64::MAX, root: NIL, leaf: NIL, rank: 0 };
}

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
        let (leaf, _) = self.find(pool, |_| false);
        some(node(pool, leaf).ranked(0))
    }
    /// The first slot whose key is `key` or more.
    #[must_use]
    #[inline]
    pub fn at_or_after(&self, pool: &Pool<'_>, key: u64) -> Option<u16> {
        let key = key.min(LAST);
        let (leaf, rank) = self.find(pool, |k| k < key);
        at_or_behind(pool, leaf, rank)
    }
    /// The first slot whose key is the end of `request` or more, in a tree that is ordered by first sectors. Where
    /// `request` would stand is remembered: if it is inserted next, it is not searched for again.
    #[must_use]
    #[inline]
    pub fn behind(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        if self.is_empty() {
            return None;
        }
        let (key, end) = (request.lba.min(LAST), request.end());
        let (leaf, rank) = self.find(pool, |k| k <= key);
        pool.gap.set(Gap { key, root: self.root, leaf, rank: rank as u16 });
        let n = node(pool, leaf);
        let (mut next, mut slot) = n.entry(rank);
        if slot == NIL {
            (next, slot) = node(pool, pool.at(leaf).links.next).entry(0);
        }
        // One that begins within the request is rare.
        if next < end { self.at_or_after(pool, end) } else { some(slot) }
    }
    /// The last slot whose key is below `key`.
    #[must_use]
    pub fn before(&self, pool: &Pool<'_>, key: u64) -> Option<u16> {
        let key = key.min(LAST);
        let (leaf, rank) = self.find(pool, |k| k < key);
        in_front(pool, leaf, rank)
    }
    /// The slot behind `slot` in order.
    #[must_use]
    #[inline]
    pub fn next(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let s = pool.at(slot);
        let rank = node(pool, s.leaf).order.rank(s.place.into());
        at_or_behind(pool, s.leaf, rank.wrapping_add(1))
    }
    /// The slot in front of `slot` in order.
    #[must_use]
    #[inline]
    pub fn prev(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let s = pool.at(slot);
        in_front(pool, s.leaf, node(pool, s.leaf).order.rank(s.place.into()))
    }
    /// Adds a slot that is in no tree, behind those with an equal key.
    #[inline]
    pub fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, key: u64) {
        let key = key.min(LAST);
        let gap = pool.gap.replace(Gap::UNKNOWN);
        let (leaf, rank) = if (gap.key, gap.root) == (key, self.root) {
            (gap.leaf, gap.rank.into())
        } else {
            self.find(pool, |k| k <= key)
        };
        let Some(s) = pool.get_mut(leaf) else {
            let Some(root) = grow(pool, false) else { return };
            pool.edit(root, |s| {
                s.node.set(0, (key, slot));
                s.node.order = Order::new(1, false);
            });
            pool.edit(slot, |s| (s.leaf, s.place) = (root, 0));
            self.root = root;
            return;
        };
        match s.node.put(rank, (key, slot)) {
            Some(place) => pool.edit(slot, |s| (s.leaf, s.place) = (leaf, place as u8)),
            None => self.split(pool, leaf, rank, (key, slot)),
        }
    }
    /// Takes out a slot that is in this tree.
    #[inline]
    pub fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        pool.gap.set(Gap::UNKNOWN);
        let Some(s) = pool.get_mut(slot) else { return };
        let (leaf, place) = (core::mem::replace(&mut s.leaf, NIL), s.place);
        let Some(s) = pool.get_mut(leaf) else { return };
        let len = s.node.order.len();
        s.node.take(s.node.order.rank(place.into()));
        if len > LEAST {
            return;
        }
        if len == 1 {
            self.root = NIL;
            drop_node(pool, leaf);
        } else {
            self.mend(pool, leaf);
        }
    }

    /// Where the first entry stands whose key is not `below`, or would: its leaf and its rank there.
    #[inline]
    fn find(&self, pool: &Pool<'_>, below: impl Fn(u64) -> bool) -> (u16, usize) {
        let mut at = self.root;
        for _ in 0..LEVELS {
            let Some(s) = pool.get(at) else { break };
            let rank = s.node.rank(&below);
            if !s.node.order.is_inner() {
                return (at, rank);
            }
            at = s.node.ranked(rank.saturating_sub(1));
        }
        (NIL, 0)
    }

    /// The node `at` is full, and a new entry of this rank has no room.
    #[cold]
    fn split(&mut self, pool: &mut Pool<'_>, mut at: u16, mut rank: usize, mut new: (u64, u16)) {
        for _ in 0..LEVELS {
            let Some(s) = pool.get_mut(at) else { return };
            let upper = s.node.divide();
            let (up, next) = (s.links.up, s.links.next);
            // There is one: see `LEAST`.
            let Some(right) = grow(pool, upper.order.is_inner()) else { return };
            pool.edit(at, |s| s.links.next = right);
            pool.edit(right, |s| {
                (s.links.up, s.links.prev, s.links.next) = (up, at, next);
                s.node = upper;
            });
            pool.edit(next, |s| s.links.prev = right);
            for place in 0..HALF {
                adopt(pool, right, place, upper.item(place), upper.order.is_inner());
            }
            if rank <= HALF {
                put(pool, at, rank, new);
            } else {
                put(pool, right, rank.wrapping_sub(HALF), new);
            }
            // The new one is not the first of the right node.
            new = (upper.entry(0).0, right);
            let Some(parent) = pool.get_mut(up) else {
                let Some(root) = grow(pool, true) else { return };
                put(pool, root, 0, (0, at));
                put(pool, root, 1, new);
                self.root = root;
                return;
            };
            rank = parent.node.rank_of(at).wrapping_add(1);
            if parent.node.put(rank, new).is_some() {
                return;
            }
            at = up;
        }
    }

    /// The node `at` lost an entry and has one left.
    #[cold]
    fn mend(&mut self, pool: &mut Pool<'_>, mut at: u16) {
        for _ in 0..LEVELS {
            let s = pool.at(at);
            let (up, inner) = (s.links.up, s.node.order.is_inner());
            let Some(parent) = pool.get(up).map(|s| &s.node) else {
                // The root: it goes when it has one child.
                if inner && s.node.order.len() == 1 {
                    self.root = s.node.ranked(0);
                    pool.edit(self.root, |s| s.links.up = NIL);
                    pool.edit(at, |s| s.node = Node::FREE);
                    drop_node(pool, at);
                }
                return;
            };
            // It and the one behind it, or in front of it if it is the last one of its parent.
            let mut first = parent.rank_of(at);
            if parent.ranked(first.wrapping_add(1)) == NIL {
                first = first.wrapping_sub(1);
            }
            let second = first.wrapping_add(1);
            let ((start, left), (bound, right)) = (parent.entry(first), parent.entry(second));
            if inner {
                pool.edit(right, |s| s.node.set_key(0, bound));
            }
            let (ours, other) = (left == at, if left == at { right } else { left });
            let len = node(pool, other).order.len();
            if len == FAN {
                for n in [1_usize, 2] {
                    if ours {
                        shift(pool, (right, 0), (left, n));
                    } else {
                        shift(pool, (left, FAN.wrapping_sub(n)), (right, 0));
                    }
                }
                let bound = node(pool, right).entry(0).0;
                pool.edit(up, |s| s.node.set_key(second, bound));
                return;
            }
            shift(pool, (at, 0), (other, if ours { 0 } else { len }));
            let Links { prev, next, .. } = pool.at(at).links;
            pool.edit(prev, |s| s.links.next = next);
            pool.edit(next, |s| s.links.prev = prev);
            drop_node(pool, at);
            let Some(s) = pool.get_mut(up) else { return };
            if ours {
                s.node.set_key(second, start);
                s.node.take(first);
            } else {
                s.node.take(second);
            }
            if s.node.order.len() >= LEAST {
                return;
            }
            at = up;
        }
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
fn node<'a>(pool: &'a Pool<'_>, at: u16) -> &'a Node {
    &pool.at(at).node
}

/// The slot of a rank in a leaf, or the first of the next leaf.
#[inline]
fn at_or_behind(pool: &Pool<'_>, leaf: u16, rank: usize) -> Option<u16> {
    let n = node(pool, leaf);
    let slot = n.ranked(rank);
    some(if slot == NIL { node(pool, pool.at(leaf).links.next).ranked(0) } else { slot })
}

/// The slot in front of that of a rank in a leaf, or the last of the leaf in front.
#[inline]
fn in_front(pool: &Pool<'_>, leaf: u16, rank: usize) -> Option<u16> {
    let (mut n, mut behind) = (node(pool, leaf), rank);
    if rank == 0 {
        n = node(pool, pool.at(leaf).links.prev);
        behind = n.order.len();
    }
    if behind == 0 { None } else { some(n.ranked(behind.wrapping_sub(1))) }
}

/// A node that is not used, by itself, and from now on empty.
#[inline]
fn grow(pool: &mut Pool<'_>, inner: bool) -> Option<u16> {
    let at = pool.at(0).links.unused;
    let s = pool.get_mut(at)?;
    let unused = at.wrapping_add(1).wrapping_add(s.links.up);
    (s.links.up, s.links.prev, s.links.next) = (NIL, NIL, NIL);
    s.node.order = Order::new(0, inner);
    pool.edit(0, |s| s.links.unused = unused);
    Some(at)
}

/// Gives a node back from which all entries were taken.
#[inline]
fn drop_node(pool: &mut Pool<'_>, at: u16) {
    let unused = pool.at(0).links.unused;
    pool.edit(at, |s| s.links.up = unused.wrapping_sub(at).wrapping_sub(1));
    pool.edit(0, |s| s.links.unused = at);
}

/// Tells an item in which node it is, and where.
#[inline]
fn adopt(pool: &mut Pool<'_>, at: u16, place: usize, item: u16, inner: bool) {
    pool.edit(item, |s| {
        if inner {
            s.links.up = at;
        } else {
            (s.leaf, s.place) = (at, place as u8);
        }
    });
}

/// Puts an entry into the node `at`, and tells its item.
#[inline]
fn put(pool: &mut Pool<'_>, at: u16, rank: usize, entry: (u64, u16)) {
    let Some(s) = pool.get_mut(at) else { return };
    if let Some(place) = s.node.put(rank, entry) {
        let inner = s.node.order.is_inner();
        adopt(pool, at, place, entry.1, inner);
    }
}

/// Moves an entry from one node and rank to another.
fn shift(pool: &mut Pool<'_>, (from, rank): (u16, usize), (to, new): (u16, usize)) {
    let Some(s) = pool.get_mut(from) else { return };
    let entry = s.node.take(rank);
    put(pool, to, new, entry);
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::pool::Slot;
    use crate::{Op, StreamId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    /// Levels and slots below `at`, by definition; panics where links, order, bounds or fill are broken.
    fn check(pool: &Pool<'_>, at: u16, up: u16, bounds: (u64, u64), nodes: &mut usize) -> usize {
        let n = node(pool, at);
        *nodes += 1;
        assert_eq!(pool.at(at).links.up, up);
        let least = if up == NIL { 1 + usize::from(n.order.is_inner()) } else { LEAST };
        assert!(n.order.len() >= least, "{} entries", n.order.len());
        let used: Vec<(u64, u16)> = (0..n.order.len()).map(|rank| n.entry(rank)).collect();
        let mut places: Vec<usize> = (0..FAN).map(|r| n.order.place(r)).collect();
        let (full, free) = places.split_at(used.len());
        assert!(full.iter().all(|&p| n.items[p] != NIL));
        assert!(free.iter().all(|&p| (n.keys[p], n.items[p]) == (u64::MAX, NIL)));
        places.sort_unstable();
        assert!(places.into_iter().eq(0..FAN), "{n:?}");
        if !n.order.is_inner() {
            for (key, slot) in used {
                assert!((bounds.0..=bounds.1).contains(&key), "{key} not in {bounds:?}");
                assert_eq!((pool.at(slot).leaf, n.item(pool.at(slot).place.into())), (at, slot));
            }
            return 1;
        }
        let levels: Vec<usize> = (0..used.len())
            .map(|i| {
                let from = if i == 0 { bounds.0 } else { used[i].0 };
                let to = used.get(i + 1).map_or(bounds.1, |e| e.0);
                assert!(bounds.0 <= from && from <= to && to <= bounds.1);
                if let Some(next) = used.get(i + 1) {
                    assert_eq!(
                        (pool.at(used[i].1).links.next, pool.at(next.1).links.prev),
                        (next.1, used[i].1)
                    );
                }
                check(pool, used[i].1, at, (from, to), nodes)
            })
            .collect();
        assert!(levels.iter().all(|&l| l == levels[0]), "of one height");
        levels[0] + 1
    }

    fn unused(pool: &Pool<'_>) -> usize {
        let step = |&at: &u16| Some(at.wrapping_add(1).wrapping_add(pool.at(at).links.up));
        core::iter::successors(Some(pool.at(0).links.unused), step)
            .take_while(|&at| at < pool.capacity())
            .count()
    }

    proptest! {
        /// Two trees share the nodes: as many as there are slots are enough, and none gets lost.
        #[test]
        fn it_answers_as_a_sorted_map_does(
            steps in prop::collection::vec((0u8..8, 0u16..200, 0u64..120), 1..900),
        ) {
            let mut slots = [Slot::FREE; 200];
            let mut pool = Pool::new(&mut slots);
            let mut trees = [Tree::new(); 2];
            let mut models: [BTreeMap<(u64, usize), u16>; 2] = Default::default();
            let count = steps.len();
            for (n, (what, slot, key)) in steps.into_iter().enumerate() {
                let known = (0..2).find_map(|t| {
                    models[t].iter().find(|(_, s)| **s == slot).map(|(k, _)| (t, *k))
                });
                // It grows first and shrinks later.
                let adds = usize::from(what) < if n < count / 2 { 7 } else { 3 };
                let t = usize::from(slot < 12);
                match known {
                    None if adds => {
                        // A place that was found before, for this key or another, in this tree or the other.
                        let near = Request::new(Op::Read, key.saturating_sub(u64::from(what) & 2), 1, StreamId(0));
                        let _ = trees[usize::from(what & 1)].behind(&pool, &near);
                        trees[t].insert(&mut pool, slot, key);
                        models[t].insert((key, n), slot);
                    }
                    Some((t, k)) if !adds || what == 0 => {
                        trees[t].remove(&mut pool, slot);
                        models[t].remove(&k);
                    }
                    _ => {}
                }
                let mut nodes = 0;
                for (tree, model) in trees.iter().zip(&models) {
                    prop_assert_eq!(tree.is_empty(), model.is_empty());
                    if !tree.is_empty() {
                        check(&pool, tree.root, NIL, (0, u64::MAX), &mut nodes);
                    }
                    prop_assert_eq!(tree.at_or_after(&pool, key), model.range((key, 0)..).next().map(|(_, s)| *s));
                    let r = Request::new(Op::Read, key, 5, StreamId(0));
                    let behind = model.range((r.end(), 0)..).next().map(|(_, s)| *s);
                    prop_assert_eq!(tree.behind(&pool, &r), behind);
                    prop_assert_eq!(tree.before(&pool, key), model.range(..(key, 0)).next_back().map(|(_, s)| *s));
                }
                prop_assert!(nodes <= models[0].len() + models[1].len());
                prop_assert_eq!(nodes + unused(&pool), 200);
                if n % 16 != 0 {
                    continue;
                }
                for (tree, model) in trees.iter().zip(&models) {
                    let order: Vec<u16> = core::iter::successors(tree.first(&pool), |s| Tree::next(&pool, *s)).collect();
                    let expected: Vec<u16> = model.values().copied().collect();
                    prop_assert_eq!(&order, &expected);
                    for pair in order.windows(2) {
                        prop_assert_eq!(Tree::prev(&pool, pair[1]), Some(pair[0]));
                    }
                }
            }
        }
    }
}

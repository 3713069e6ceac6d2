//! Slots ordered by a number (their first sector): a B+ tree whose nodes stand in the slots.
//!
//! It does not own the slots: a slot is in at most one tree at a time. Equal keys keep the order of insertion; the
//! largest two numbers count as equal. Insertion, removal and look-up take O(log n) steps, whatever the order of
//! arrivals: each node but the root has three to twelve entries, so that a full pool has at most 10 levels.
//!
//! A node keeps its entries where they were put and their order beside them, as a number with a digit for each. So
//! nothing in it moves when one comes or goes, and as the first key above a number is found by counting those that
//! are not, no branch hangs on a key: for random sectors no processor would foresee one.

use crate::pool::{NIL, Pool, Slot};
use crate::request::Request;

/// Entries of a [`Half`].
const WIDTH: usize = 6;
/// Most entries of a node.
const FAN: usize = 2 * WIDTH;
/// Fewest entries of a node that is not the root. A slot that is alone in its tree needs no node; so a node for each
/// two slots is enough: a leaf that is the root has two slots or more, and of `l` leaves, which have three slots each,
/// there are at most `l / 2` inner nodes above.
const LEAST: usize = 3;
/// The largest key; a larger one counts as this.
const LAST: u64 = u64::MAX - 1;
/// More levels than a tree of 65,535 slots can have.
const LEVELS: usize = 11;

/// One in each digit of an [`Order`].
const ONES: u64 = 0x1111_1111_1111;

/// Where the entries of a node are, in order: a digit of four bits for each, the first one lowest. The digits behind
/// the last entry tell which places are free. Above them the number of entries and whether it is an inner node.
#[derive(Clone, Copy, Debug)]
struct Order(u64);

impl Order {
    const ONE: u64 = 1 << 48;
    const INNER: u64 = 1 << 52;

    /// The first `len` places, one after the other.
    const fn new(len: usize, inner: bool) -> Self {
        Self(0xba98_7654_3210 | (len as u64) << 48 | if inner { Self::INNER } else { 0 })
    }
    #[inline]
    fn of([low, high]: &Node) -> Self {
        Self(u64::from(low.half.order) | u64::from(high.half.order) << 32)
    }
    #[inline]
    fn keep(self, [low, high]: &mut Node) {
        (low.half.order, high.half.order) = (self.0 as u32, (self.0 >> 32) as u32);
    }
    #[inline]
    fn len(self) -> usize {
        (self.0 >> 48 & 15) as usize
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
    /// Where the entry with this rank is, no place (`FAN` or more) for one behind a full node.
    #[inline]
    fn place(self, rank: usize) -> usize {
        (self.0.wrapping_shr(Self::at(rank)) & 15) as usize
    }
    /// Where in an inner node the child is that a key belongs to, of so many keys in both halves that are lower: the
    /// one of the last of these. Not their sum is taken but two steps, which makes shorter and better code.
    #[inline]
    fn child(self, (low, high): (usize, usize)) -> usize {
        let of_last = self.0 << 4 | self.0 & 15;
        (of_last.wrapping_shr(Self::at(low)).wrapping_shr(Self::at(high)) & 15) as usize
    }
    /// The rank of the entry at a place.
    #[inline]
    fn rank(self, place: usize) -> usize {
        let zero_at = self.0 ^ (place as u64).wrapping_mul(ONES);
        // The lowest digit that is zero gets its highest bit, and no other below it.
        let found = zero_at.wrapping_sub(ONES) & !zero_at & (ONES << 3);
        (found.trailing_zeros() >> 2) as usize
    }
    /// Without the last `n`.
    #[inline]
    fn less(self, n: usize) -> Self {
        Self(self.0.wrapping_sub((n as u64).wrapping_mul(Self::ONE)))
    }
    /// The digits from `rank` on, up to those of `len` entries.
    #[inline]
    fn digits(self, rank: usize, len: usize) -> u64 {
        let all = self.0 & 1_u64.wrapping_shl(Self::at(len)).wrapping_sub(1);
        all.wrapping_shr(Self::at(rank)).wrapping_shl(Self::at(rank))
    }
    /// One more entry, with this rank; its place. There is a free one.
    #[inline]
    fn insert(&mut self, rank: usize) -> usize {
        let (len, moved) = (self.len(), self.digits(rank, self.len()));
        let place = self.place(len);
        let (from, to) =
            ((place as u64).wrapping_shl(Self::at(len)), (place as u64).wrapping_shl(Self::at(rank)));
        // Those moved go one up, where the place was, and it below them.
        let up = moved.wrapping_mul(15).wrapping_sub(from).wrapping_add(to);
        self.0 = self.0.wrapping_add(up).wrapping_add(Self::ONE);
        place
    }
    /// One entry less, that with this rank, which there is; its place.
    #[inline]
    fn remove(&mut self, rank: usize) -> usize {
        let (len, moved) = (self.len(), self.digits(rank.wrapping_add(1), self.len()));
        let place = self.place(rank);
        let last = len.wrapping_sub(1);
        let (from, to) =
            ((place as u64).wrapping_shl(Self::at(rank)), (place as u64).wrapping_shl(Self::at(last)));
        let down = moved.wrapping_sub(moved >> 4).wrapping_add(from).wrapping_sub(to);
        self.0 = self.0.wrapping_sub(down).wrapping_sub(Self::ONE);
        place
    }
}

/// Half a node: one cache line, also where a `u64` may stand at any multiple of four (i686). Each slot has room for one, which is
/// used by whatever tree needs it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Half {
    /// `MAX` where there is no entry. In an inner node a bound: nothing of that child is below its key (of the first
    /// child it says nothing), nothing of the children before it above.
    keys: [u64; WIDTH],
    /// Slots in a leaf, nodes in an inner node; `NIL` where there is no entry.
    items: [u16; WIDTH],
    /// Half of the node's [`Order`].
    order: u32,
}

impl Half {
    /// In no tree.
    pub(crate) const FREE: Self = Self { keys: [u64::MAX; WIDTH], items: [NIL; WIDTH], order: 0 };

    /// How many keys are `below`, which is true of the lower ones only and not of `MAX`.
    #[inline]
    fn rank(&self, below: impl Fn(u64) -> bool) -> usize {
        self.keys.iter().fold(0, |n: usize, &k| n.wrapping_add(below(k).into()))
    }
}

/// What a node is linked with: in the first of its slots.
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

/// A node: two slots side by side, the first of them with an even number, which is the node's. The places of one are
/// even, those of the other odd.
pub(crate) type Node = [Slot; 2];

/// No entry.
const EMPTY: (u64, u16) = (u64::MAX, NIL);

/// The entry at a place, `EMPTY` where there is none.
#[inline]
fn at_place(n: &Node, place: usize) -> (u64, u16) {
    let Some(half) = n.get(place & 1).map(|s| &s.half) else { return EMPTY };
    match (half.keys.get(place >> 1), half.items.get(place >> 1)) {
        (Some(&k), Some(&v)) => (k, v),
        _ => EMPTY,
    }
}

/// The entry with a rank, `EMPTY` behind the last.
#[inline]
fn entry(n: &Node, rank: usize) -> (u64, u16) {
    at_place(n, Order::of(n).place(rank))
}

/// The item of that.
#[inline]
fn ranked(n: &Node, rank: usize) -> u16 {
    entry(n, rank).1
}

/// The rank of an item.
fn rank_of(n: &Node, item: u16) -> usize {
    let order = Order::of(n);
    (0..order.len()).find(|&rank| at_place(n, order.place(rank)).1 == item).unwrap_or(FAN)
}

#[inline]
fn set(n: &mut Node, place: usize, entry: (u64, u16)) {
    let Some(half) = n.get_mut(place & 1).map(|s| &mut s.half) else { return };
    if let (Some(k), Some(v)) = (half.keys.get_mut(place >> 1), half.items.get_mut(place >> 1)) {
        (*k, *v) = entry;
    }
}

/// Gives the entry with a rank another key, which leaves the order as it is.
fn set_key(n: &mut Node, rank: usize, key: u64) {
    let item = ranked(n, rank);
    set(n, Order::of(n).place(rank), (key, item));
}

/// Puts in an entry that gets this rank; its place, or `None` if there is no room.
#[inline]
fn put(n: &mut Node, rank: usize, entry: (u64, u16)) -> Option<usize> {
    let mut order = Order::of(n);
    if order.len() == FAN {
        return None;
    }
    let place = order.insert(rank);
    set(n, place, entry);
    order.keep(n);
    Some(place)
}

/// Takes out the entry with this rank, which there is.
#[inline]
fn pull(n: &mut Node, rank: usize) -> (u64, u16) {
    let mut order = Order::of(n);
    let place = order.remove(rank);
    let entry = at_place(n, place);
    set(n, place, EMPTY);
    order.keep(n);
    entry
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
    /// The root node, `NIL` if there are fewer than two slots.
    root: u16,
    /// The only slot, if there is one, and its key; in halves, so that a tree of a stream is small.
    only: u16,
    key: [u32; 2],
}

impl Tree {
    /// An empty tree.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: NIL, only: NIL, key: [0; 2] }
    }
    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root == NIL && self.only == NIL
    }
    /// The first slot in order.
    #[must_use]
    #[inline]
    pub fn first(&self, pool: &Pool<'_>) -> Option<u16> {
        if self.root == NIL {
            return some(self.only);
        }
        let (leaf, _) = self.find(pool, |_| false);
        some(ranked(pool.node(leaf), 0))
    }
    /// The first slot whose key is `key` or more.
    #[must_use]
    #[inline]
    pub fn at_or_after(&self, pool: &Pool<'_>, key: u64) -> Option<u16> {
        let key = key.min(LAST);
        if self.root == NIL {
            return some(self.only).filter(|_| self.only_key() >= key);
        }
        let (leaf, rank) = self.find(pool, |k| k < key);
        at_or_behind(pool, leaf, rank)
    }
    /// The first slot whose key is the end of `request` or more, in a tree that is ordered by first sectors. Where
    /// `request` would stand is remembered: if it is inserted next, it is not searched for again.
    #[must_use]
    #[inline(always)]
    pub fn behind(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        if self.root == NIL {
            return self.at_or_after(pool, request.end());
        }
        let (key, end) = (request.lba.min(LAST), request.end());
        let (leaf, rank) = self.find(pool, |k| k <= key);
        pool.gap.set(Gap { key, root: self.root, leaf, rank: rank as u16 });
        let (mut next, mut slot) = entry(pool.node(leaf), rank);
        if slot == NIL {
            (next, slot) = entry(pool.node(pool.at(leaf).links.next), 0);
        }
        // One that begins within the request is rare.
        if next < end { self.at_or_after(pool, end) } else { some(slot) }
    }
    /// The last slot whose key is below `key`.
    #[must_use]
    pub fn before(&self, pool: &Pool<'_>, key: u64) -> Option<u16> {
        let key = key.min(LAST);
        if self.root == NIL {
            return some(self.only).filter(|_| self.only_key() < key);
        }
        let (leaf, rank) = self.find(pool, |k| k < key);
        in_front(pool, leaf, rank)
    }
    /// The slot behind `slot` in order.
    #[must_use]
    #[inline]
    pub fn next(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let s = pool.at(slot);
        if s.leaf == NIL {
            return None;
        }
        let rank = Order::of(pool.node(s.leaf)).rank(s.place.into());
        at_or_behind(pool, s.leaf, rank.wrapping_add(1))
    }
    /// The slot in front of `slot` in order.
    #[must_use]
    #[inline]
    pub fn prev(pool: &Pool<'_>, slot: u16) -> Option<u16> {
        let s = pool.at(slot);
        in_front(pool, s.leaf, Order::of(pool.node(s.leaf)).rank(s.place.into()))
    }
    /// Adds a slot that is in no tree, behind those with an equal key.
    pub fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, key: u64) {
        self.insert_here(pool, slot, key);
    }
    /// The same, for a place where a call costs too much.
    #[inline(always)]
    pub(crate) fn insert_here(&mut self, pool: &mut Pool<'_>, slot: u16, key: u64) {
        let key = key.min(LAST);
        let gap = pool.gap.replace(Gap::UNKNOWN);
        if self.root == NIL {
            self.begin(pool, (key, slot));
            return;
        }
        let (leaf, rank) = if (gap.key, gap.root) == (key, self.root) {
            (gap.leaf, gap.rank.into())
        } else {
            self.find_behind(pool, key)
        };
        match pool.node_mut(leaf).and_then(|n| put(n, rank, (key, slot))) {
            Some(place) => pool.edit(slot, |s| (s.leaf, s.place) = (leaf, place as u8)),
            None => self.split(pool, leaf, rank, (key, slot)),
        }
    }
    /// Takes out a slot that is in this tree.
    pub fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        self.take_here(pool, slot);
    }
    /// Takes out a slot that is in this tree: the one that was behind it, or `NIL`. For a place where a call costs too
    /// much.
    #[inline(always)]
    pub(crate) fn take_here(&mut self, pool: &mut Pool<'_>, slot: u16) -> u16 {
        pool.gap.set(Gap::UNKNOWN);
        let Some(s) = pool.get_mut(slot) else { return NIL };
        let (leaf, place) = (core::mem::replace(&mut s.leaf, NIL), s.place.into());
        let Some(n) = pool.node_mut(leaf) else {
            *self = Self::new();
            return NIL;
        };
        let mut order = Order::of(n);
        let rank = order.rank(place);
        let mut behind = at_place(n, order.place(rank.wrapping_add(1))).1;
        order.remove(rank);
        set(n, place, EMPTY);
        order.keep(n);
        let [Slot { links, .. }, _] = n;
        if behind == NIL {
            let next = links.next;
            behind = ranked(pool.node(next), 0);
        }
        if order.len() < LEAST {
            self.mend(pool, leaf);
        }
        behind
    }

    /// Where an entry with this key would stand.
    #[inline(never)]
    fn find_behind(&self, pool: &Pool<'_>, key: u64) -> (u16, usize) {
        self.find(pool, |k| k <= key)
    }
    /// Where the first entry stands whose key is not `below`, or would: its leaf and its rank there.
    #[inline(always)]
    fn find(&self, pool: &Pool<'_>, below: impl Fn(u64) -> bool) -> (u16, usize) {
        let mut at = self.root;
        for _ in 0..LEVELS {
            let Some(n) = pool.get_node(at) else { break };
            let (order, [low, high]) = (Order::of(n), n);
            let ranks = (low.half.rank(&below), high.half.rank(&below));
            if !order.is_inner() {
                return (at, ranks.0.wrapping_add(ranks.1));
            }
            at = at_place(n, order.child(ranks)).1;
        }
        (NIL, 0)
    }

    fn only_key(&self) -> u64 {
        let [low, high] = self.key;
        u64::from(low) | u64::from(high) << 32
    }
    fn set_only(&mut self, (key, slot): (u64, u16)) {
        (self.only, self.key) = (slot, [key as u32, (key >> 32) as u32]);
    }
    /// The first entry, or the second.
    fn begin(&mut self, pool: &mut Pool<'_>, new: (u64, u16)) {
        let old = (self.only_key(), self.only);
        if old.1 == NIL {
            self.set_only(new);
            return;
        }
        // There is one: see `LEAST`.
        let Some(leaf) = grow(pool, false) else { return };
        put_in(pool, leaf, 0, old);
        put_in(pool, leaf, usize::from(new.0 >= old.0), new);
        (self.root, self.only) = (leaf, NIL);
    }

    /// The node `at` is full, and a new entry of this rank has no room.
    #[cold]
    fn split(&mut self, pool: &mut Pool<'_>, mut at: u16, mut rank: usize, mut new: (u64, u16)) {
        for _ in 0..LEVELS {
            let Some(n) = pool.node_mut(at) else { return };
            let order = Order::of(n);
            // Half of it goes; if they arrive in order, no more than must.
            let stay = if rank == FAN { FAN.wrapping_sub(LEAST).wrapping_add(1) } else { FAN / 2 };
            let gone = FAN.wrapping_sub(stay);
            let mut upper = [EMPTY; FAN];
            for (i, e) in upper.iter_mut().take(gone).enumerate() {
                let place = order.place(stay.wrapping_add(i));
                *e = at_place(n, place);
                set(n, place, EMPTY);
            }
            order.less(gone).keep(n);
            let [Slot { links: Links { up, next, .. }, .. }, _] = *n;
            let inner = order.is_inner();
            // There is one: see `LEAST`.
            let Some(right) = grow(pool, inner) else { return };
            pool.edit(at, |s| s.links.next = right);
            pool.edit(next, |s| s.links.prev = right);
            pool.edit(right, |s| (s.links.up, s.links.prev, s.links.next) = (up, at, next));
            if let Some(n) = pool.node_mut(right) {
                upper.iter().take(gone).enumerate().for_each(|(place, &e)| set(n, place, e));
                Order::new(gone, inner).keep(n);
            }
            for (place, e) in upper.iter().take(gone).enumerate() {
                adopt(pool, right, place, e.1, inner);
            }
            if rank <= stay {
                put_in(pool, at, rank, new);
            } else {
                put_in(pool, right, rank.wrapping_sub(stay), new);
            }
            // The new one is not the first of the right node.
            new = (upper.first().map_or(0, |e| e.0), right);
            let Some(parent) = pool.node_mut(up) else {
                let Some(root) = grow(pool, true) else { return };
                put_in(pool, root, 0, (0, at));
                put_in(pool, root, 1, new);
                self.root = root;
                return;
            };
            rank = rank_of(parent, at).wrapping_add(1);
            if put(parent, rank, new).is_some() {
                return;
            }
            at = up;
        }
    }

    /// The node `at` lost an entry, and may have too few.
    #[inline(never)]
    fn mend(&mut self, pool: &mut Pool<'_>, mut at: u16) {
        for _ in 0..LEVELS {
            let (n, up) = (pool.node(at), pool.at(at).links.up);
            let (few, inner) = (Order::of(n).len(), Order::of(n).is_inner());
            let Some(parent) = pool.get_node(up) else {
                if few == 1 {
                    self.end(pool, at, inner);
                }
                return;
            };
            if few >= LEAST {
                return;
            }
            // It and the one behind it, or in front of it if it is the last one of its parent.
            let mut first = rank_of(parent, at);
            if ranked(parent, first.wrapping_add(1)) == NIL {
                first = first.wrapping_sub(1);
            }
            let second = first.wrapping_add(1);
            let ((start, left), (bound, right)) = (entry(parent, first), entry(parent, second));
            if inner {
                with_node(pool, right, |n| set_key(n, 0, bound));
            }
            let ours = left == at;
            let other = if ours { right } else { left };
            let len = Order::of(pool.node(other)).len();
            if len.wrapping_add(few) > FAN {
                for i in 0..len.saturating_sub(few) / 2 {
                    if ours {
                        shift(pool, (right, 0), (left, few.wrapping_add(i)));
                    } else {
                        shift(pool, (left, len.wrapping_sub(i).wrapping_sub(1)), (right, 0));
                    }
                }
                let bound = entry(pool.node(right), 0).0;
                with_node(pool, up, |n| set_key(n, second, bound));
                return;
            }
            for i in 0..few {
                if ours {
                    shift(pool, (at, few.wrapping_sub(i).wrapping_sub(1)), (other, 0));
                } else {
                    shift(pool, (at, 0), (other, len.wrapping_add(i)));
                }
            }
            let Links { prev, next, .. } = pool.at(at).links;
            pool.edit(prev, |s| s.links.next = next);
            pool.edit(next, |s| s.links.prev = prev);
            drop_node(pool, at);
            with_node(pool, up, |n| {
                if ours {
                    set_key(n, second, start);
                    pull(n, first);
                } else {
                    pull(n, second);
                }
            });
            at = up;
        }
    }

    /// The root has one entry left, which takes its place.
    fn end(&mut self, pool: &mut Pool<'_>, root: u16, inner: bool) {
        let Some(n) = pool.node_mut(root) else { return };
        let (key, item) = pull(n, 0);
        drop_node(pool, root);
        if inner {
            self.root = item;
        } else {
            self.root = NIL;
            self.set_only((key, item));
        }
        pool.edit(item, |s| if inner { s.links.up = NIL } else { s.leaf = NIL });
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

/// The slot of a rank in a leaf, or the first of the next leaf.
#[inline]
fn at_or_behind(pool: &Pool<'_>, leaf: u16, rank: usize) -> Option<u16> {
    let slot = ranked(pool.node(leaf), rank);
    some(if slot == NIL { ranked(pool.node(pool.at(leaf).links.next), 0) } else { slot })
}

/// The slot in front of that of a rank in a leaf, or the last of the leaf in front.
#[inline]
fn in_front(pool: &Pool<'_>, leaf: u16, rank: usize) -> Option<u16> {
    let (mut n, mut behind) = (pool.node(leaf), rank);
    if rank == 0 {
        n = pool.node(pool.at(leaf).links.prev);
        behind = Order::of(n).len();
    }
    if behind == 0 { None } else { some(ranked(n, behind.wrapping_sub(1))) }
}

fn with_node(pool: &mut Pool<'_>, at: u16, f: impl FnOnce(&mut Node)) {
    if let Some(n) = pool.node_mut(at) {
        f(n);
    }
}

/// A node that is not used, by itself, and from now on empty.
#[inline]
fn grow(pool: &mut Pool<'_>, inner: bool) -> Option<u16> {
    let at = pool.at(0).links.unused;
    let n = pool.node_mut(at)?;
    Order::new(0, inner).keep(n);
    let [Slot { links, .. }, _] = n;
    let unused = at.wrapping_add(2).wrapping_add(links.up);
    (links.up, links.prev, links.next) = (NIL, NIL, NIL);
    pool.edit(0, |s| s.links.unused = unused);
    Some(at)
}

/// Gives a node back from which all entries were taken.
#[inline]
fn drop_node(pool: &mut Pool<'_>, at: u16) {
    let unused = pool.at(0).links.unused;
    pool.edit(at, |s| s.links.up = unused.wrapping_sub(at).wrapping_sub(2));
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
fn put_in(pool: &mut Pool<'_>, at: u16, rank: usize, entry: (u64, u16)) {
    let Some(n) = pool.node_mut(at) else { return };
    if let Some(place) = put(n, rank, entry) {
        let inner = Order::of(n).is_inner();
        adopt(pool, at, place, entry.1, inner);
    }
}

/// Moves an entry from one node and rank to another.
fn shift(pool: &mut Pool<'_>, (from, rank): (u16, usize), (to, new): (u16, usize)) {
    let Some(n) = pool.node_mut(from) else { return };
    let entry = pull(n, rank);
    put_in(pool, to, new, entry);
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
        let (n, order) = (pool.node(at), Order::of(pool.node(at)));
        *nodes += 1;
        assert_eq!(pool.at(at).links.up, up);
        let least = if up == NIL { 2 } else { LEAST };
        assert!(order.len() >= least, "{} entries", order.len());
        let used: Vec<(u64, u16)> = (0..order.len()).map(|rank| entry(n, rank)).collect();
        let mut places: Vec<usize> = (0..FAN).map(|r| order.place(r)).collect();
        let (full, free) = places.split_at(used.len());
        assert!(full.iter().all(|&p| at_place(n, p).1 != NIL));
        assert!(free.iter().all(|&p| at_place(n, p) == EMPTY));
        places.sort_unstable();
        assert!(places.into_iter().eq(0..FAN), "{order:?}");
        if !order.is_inner() {
            for (key, slot) in used {
                assert!((bounds.0..=bounds.1).contains(&key), "{key} not in {bounds:?}");
                let s = pool.at(slot);
                assert_eq!((s.leaf, at_place(n, s.place.into()).1), (at, slot));
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
        let step = |&at: &u16| Some(at.wrapping_add(2).wrapping_add(pool.at(at).links.up));
        core::iter::successors(Some(pool.at(0).links.unused), step)
            .take_while(|&at| pool.get_node(at).is_some())
            .count()
    }

    proptest! {
        /// Two trees share the nodes: half as many as there are slots are enough, and none gets lost.
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
                        let behind = models[t].range(k..).nth(1).map(|(_, s)| *s);
                        prop_assert_eq!(trees[t].take_here(&mut pool, slot), behind.unwrap_or(NIL));
                        models[t].remove(&k);
                    }
                    _ => {}
                }
                let mut nodes = 0;
                for (tree, model) in trees.iter().zip(&models) {
                    prop_assert_eq!(tree.is_empty(), model.is_empty());
                    prop_assert_eq!((tree.root == NIL, tree.only == NIL), (model.len() < 2, model.len() != 1));
                    if model.len() > 1 {
                        check(&pool, tree.root, NIL, (0, u64::MAX), &mut nodes);
                    }
                    prop_assert_eq!(tree.at_or_after(&pool, key), model.range((key, 0)..).next().map(|(_, s)| *s));
                    let r = Request::new(Op::Read, key, 5, StreamId(0));
                    let behind = model.range((r.end(), 0)..).next().map(|(_, s)| *s);
                    prop_assert_eq!(tree.behind(&pool, &r), behind);
                    prop_assert_eq!(tree.before(&pool, key), model.range(..(key, 0)).next_back().map(|(_, s)| *s));
                }
                prop_assert!(nodes <= (models[0].len() + models[1].len()) / 2);
                prop_assert_eq!(nodes + unused(&pool), 100);
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

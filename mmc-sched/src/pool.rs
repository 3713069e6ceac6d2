//! The pool of requests: slots named by number, and what a policy may know and keep of each.
//!
//! It does not order anything: [`Tree`](crate::Tree) and [`Fifo`](crate::Fifo) keep their links in the slots, so
//! that a policy needs no memory of its own per request.

use crate::request::{Flags, Op, Request, RequestId};
use crate::tree::{Gap, Half, Links, Node};
use core::cell::Cell;
use mmc_time::Instant;

/// "No slot" in links. A pool therefore has at most 65,535 slots.
pub(crate) const NIL: u16 = u16::MAX;

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Stands for a run in the policy (a request that was not merged stands for itself).
    Queued,
    /// Belongs to a run another slot stands for.
    Merged,
    /// At the device.
    InFlight,
}

bitflags::bitflags! {
    /// Bits of a slot that only `Queue` touches.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Bits: u8 {
        /// Was given out once; never cleared, so that a requeued request does not merge.
        const STARTED = 1;
        /// A merge was refused for its size: never again.
        const NOMERGE = 1 << 1;
        /// In the merge index.
        const HASHED = 1 << 2;
        /// Inserted at the head.
        const AT_HEAD = 1 << 3;
        /// Handed out in parts.
        const DIVIDED = 1 << 4;
        /// A part of it failed.
        const FAILED = 1 << 5;
    }
}

/// Room for one request: 192 bytes. Filled and read only by [`Queue`](crate::Queue) and, through [`Pool`], by policies.
// Three cache lines: what is touched all the time, what is touched once in a while, half a node of some tree.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The run this slot stands for: first sector, sectors, members (the ends of their chain are below).
    pub(crate) lba: u64,
    /// The policy's own.
    pub(crate) deadline: Instant,
    pub(crate) blocks: u32,
    /// The policy's own.
    pub(crate) tag: u32,
    pub(crate) generation: u32,
    pub(crate) members: u16,
    /// List links; the free list uses `next`.
    pub(crate) prev: u16,
    pub(crate) next: u16,
    /// Merge index: chain of one bucket, stack of equal ends.
    pub(crate) chain: u16,
    pub(crate) newer: u16,
    pub(crate) older: u16,
    /// The node it stands in of the tree it is in, and where in it.
    pub(crate) leaf: u16,
    pub(crate) place: u8,
    pub(crate) state: State,
    pub(crate) bits: Bits,
    /// Flags of the run, or-ed.
    pub(crate) flags: Flags,
    /// The buckets of the merge index that are kept in this slot.
    pub(crate) buckets: [u16; 4],
    /// Those of the node.
    pub(crate) links: Links,

    pub(crate) request: Request,
    pub(crate) arrival: Instant,
    /// Order of insertion, while it is queued.
    pub(crate) seq: u64,
    pub(crate) sent: u32,
    pub(crate) done: u32,
    /// Sectors at the front that an earlier policy gave out in parts.
    pub(crate) foreign: u32,
    /// Chain of the members of one run, in sector order.
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) next_member: u16,
    pub(crate) prev_member: u16,
    pub(crate) epoch: u16,

    pub(crate) half: Half,
}

const _: () = assert!(core::mem::offset_of!(Slot, half) == 128, "half a node is one cache line");

impl Slot {
    /// A free slot; for `[Slot::FREE; N]`.
    pub const FREE: Self = Self {
        request: Request::new(Op::Read, 0, 0, crate::StreamId(0)),
        arrival: Instant::ZERO,
        deadline: Instant::ZERO,
        lba: 0,
        seq: 0,
        blocks: 0,
        sent: 0,
        done: 0,
        generation: 0,
        tag: 0,
        members: 0,
        first: NIL,
        last: NIL,
        next_member: NIL,
        prev_member: NIL,
        leaf: NIL,
        place: 0,
        prev: NIL,
        next: NIL,
        chain: NIL,
        newer: NIL,
        older: NIL,
        buckets: [NIL; 4],
        epoch: 0,
        foreign: 0,
        links: Links::FREE,
        half: Half::FREE,
        state: State::Free,
        bits: Bits::empty(),
        flags: Flags::empty(),
    };

    /// First sector behind the run.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        // No sector number wraps: `Queue` takes no such request.
        self.lba.wrapping_add(u64::from(self.blocks))
    }
    /// Whether a queued run may still grow or be absorbed.
    #[inline]
    pub(crate) fn mergeable(&self) -> bool {
        mergeable(&self.request)
            && !self.flags.intersects(Flags::NOMERGE | Flags::FUA | Flags::PREFLUSH)
            && !self.bits.intersects(Bits::STARTED | Bits::NOMERGE | Bits::DIVIDED)
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::FREE
    }
}

/// Whether a request may merge at all, whatever the neighbours.
#[inline]
pub(crate) fn mergeable(r: &Request) -> bool {
    matches!(r.op, Op::Read | Op::Write | Op::Discard)
        && !r.flags.intersects(Flags::NOMERGE | Flags::FUA | Flags::PREFLUSH)
}

/// The two slots of a node.
#[inline]
fn span(at: u16) -> core::ops::Range<usize> {
    usize::from(at)..usize::from(at).saturating_add(2)
}

/// What is answered for a slot number outside the pool.
static VOID: Slot = Slot::FREE;
static VOID_NODE: Node = [Slot::FREE; 2];

/// The slots, lent to a policy for one call. A slot number that is not in the pool reads as an empty slot, and
/// setting something there does nothing.
#[derive(Debug)]
pub struct Pool<'a> {
    slots: &'a mut [Slot],
    /// What was found on the way to what was asked.
    pub(crate) gap: Cell<Gap>,
}

impl<'a> Pool<'a> {
    #[inline]
    pub(crate) fn new(slots: &'a mut [Slot]) -> Self {
        let usable = slots.len().min(usize::from(NIL));
        let slots = slots.split_at_mut_checked(usable).map_or(&mut [][..], |(s, _)| s);
        Self { slots, gap: Cell::new(Gap::UNKNOWN) }
    }
    #[inline]
    pub(crate) fn at(&self, slot: u16) -> &Slot {
        self.slots.get(usize::from(slot)).unwrap_or(&VOID)
    }
    /// `None` for a number outside the pool, such as [`NIL`].
    #[inline]
    pub(crate) fn get(&self, slot: u16) -> Option<&Slot> {
        self.slots.get(usize::from(slot))
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot))
    }
    /// The two slots of a tree's node, `None` as above. A slot in front of the last has one behind it.
    #[inline]
    pub(crate) fn get_node(&self, at: u16) -> Option<&Node> {
        self.slots.get(span(at)).and_then(|n| n.try_into().ok())
    }
    #[inline]
    pub(crate) fn node(&self, at: u16) -> &Node {
        self.get_node(at).unwrap_or(&VOID_NODE)
    }
    #[inline]
    pub(crate) fn node_mut(&mut self, at: u16) -> Option<&mut Node> {
        self.slots.get_mut(span(at)).and_then(|n| n.try_into().ok())
    }
    #[inline]
    pub(crate) fn edit(&mut self, slot: u16, f: impl FnOnce(&mut Slot)) {
        if let Some(s) = self.get_mut(slot) {
            f(s);
        }
    }
    #[inline]
    pub(crate) fn id(&self, slot: u16) -> RequestId {
        RequestId { slot, generation: self.at(slot).generation }
    }
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
    /// Slots in the pool.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> u16 {
        u16::try_from(self.slots.len()).unwrap_or(NIL)
    }
    /// The request as it was inserted: stream, operation and priority of the run the slot stands for.
    #[must_use]
    #[inline]
    pub fn request(&self, slot: u16) -> &Request {
        &self.at(slot).request
    }
    /// First sector of the run that is still to be given out.
    #[must_use]
    #[inline]
    pub fn lba(&self, slot: u16) -> u64 {
        let s = self.at(slot);
        s.lba.wrapping_add(u64::from(s.sent))
    }
    /// Sectors of the run that are still to be given out.
    #[must_use]
    #[inline]
    pub fn blocks(&self, slot: u16) -> u32 {
        let s = self.at(slot);
        s.blocks.saturating_sub(s.sent)
    }
    /// First sector behind the run.
    #[must_use]
    pub fn end(&self, slot: u16) -> u64 {
        self.at(slot).end()
    }
    /// Requests in the run.
    #[must_use]
    pub fn members(&self, slot: u16) -> u16 {
        self.at(slot).members
    }
    /// Flags of all requests in the run, or-ed.
    #[must_use]
    #[inline]
    pub fn flags(&self, slot: u16) -> Flags {
        self.at(slot).flags
    }
    /// When the request was inserted.
    #[must_use]
    pub fn arrival(&self, slot: u16) -> Instant {
        self.at(slot).arrival
    }
    /// Whether it was given out before (and requeued).
    #[must_use]
    pub fn started(&self, slot: u16) -> bool {
        self.at(slot).bits.contains(Bits::STARTED)
    }
    /// An instant the policy keeps here.
    #[must_use]
    #[inline]
    pub fn deadline(&self, slot: u16) -> Instant {
        self.at(slot).deadline
    }
    /// Keeps an instant.
    #[inline]
    pub fn set_deadline(&mut self, slot: u16, deadline: Instant) {
        self.edit(slot, |s| s.deadline = deadline);
    }
    /// A number the policy keeps here; 0 after insertion.
    #[must_use]
    #[inline]
    pub fn tag(&self, slot: u16) -> u32 {
        self.at(slot).tag
    }
    /// Keeps a number.
    #[inline]
    pub fn set_tag(&mut self, slot: u16, tag: u32) {
        self.edit(slot, |s| s.tag = tag);
    }
}

//! The table of accepted requests: one [`Tag`] each, from `submit` to `take`.

use crate::core::Wipe;
use crate::error::BlockError;
use crate::overlap::Sectors;
use core::marker::PhantomData;
use mmc_proto::status::CardStatus;
use mmc_sched::{Kind, Request, RequestId};
use mmc_time::Instant;

const NIL: u32 = u32::MAX;

/// Names one accepted request, from `submit` until its [`Done`] is taken. A stale ticket is recognised for 2³²
/// reuses of its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// Its place in the table: below the number of [`Tag`]s, no two living tickets share one.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// When what happened to a request. A stamp is `None` until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// Submitted.
    pub queued: Instant,
    /// In the scheduler, on its own or merged into another; later than `queued` when it waited for a tag.
    pub inserted: Option<Instant>,
    /// Given out by the scheduler (the kernel's `block_rq_issue`); the first time, if it was sent again.
    pub issued: Option<Instant>,
    /// Its command went to the host; later than `issued` only when it was prepared while another ran.
    pub started: Option<Instant>,
    /// Over.
    pub completed: Option<Instant>,
}

/// A finished request.
pub struct Done<B> {
    /// What `submit` returned.
    pub ticket: Ticket,
    /// The request as it was submitted.
    pub request: Request,
    /// Its buffer; `None` when the host had to keep it (see [`BlockError::Quarantined`]).
    pub buffer: Option<B>,
    /// Whether all of its blocks were read or written.
    pub result: Result<(), BlockError>,
    /// When.
    pub stamps: Stamps,
    /// In how many commands it (or a part of it) was sent: 0 when it never reached the card.
    pub attempts: u16,
    /// Blocks from its start that are certain to be read or written: all of them, or, after an error, as many as one
    /// can know of.
    pub moved: u32,
    /// What the card said meanwhile: every bit that was set in the answer (R1) to any command that was sent for this
    /// request, in all attempts, with the state of the last answer. So a request that ended well after repetitions shows what
    /// was wrong before, and `EXCEPTION_EVENT` of an eMMC is here. Of requests in one command each gets all bits. `None`: the
    /// card said nothing, or nothing was sent (a flush is nobody's own).
    ///
    /// Harmless: `OUT_OF_RANGE` after an open-ended read up to the last sector. In SPI mode R1, R2 and data error tokens are
    /// told by the same bits.
    pub status: Option<CardStatus>,
    /// Which card served it: counts up with each change of the media.
    pub generation: u32,
}

impl<B> core::fmt::Debug for Done<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Done")
            .field("ticket", &self.ticket)
            .field("request", &self.request)
            .field("result", &self.result)
            .field("stamps", &self.stamps)
            .field("attempts", &self.attempts)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// What a request wants of the card's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Nothing (any more).
    Nothing,
    /// To be flushed before its data, and its own data flushed after if `fua`.
    Before { fua: bool },
    /// Its own data to be flushed.
    After,
    /// It is a flush.
    Only,
    /// It is a barrier.
    Barrier,
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Behind an earlier request that it overlaps.
    Held,
    /// Waits for a flush of the card's cache.
    Flush,
    /// Waits for a tag, outside the scheduler.
    Waiting,
    /// In the scheduler.
    Queued,
    /// To be sent (again) on its own.
    Again,
    /// In a command that is prepared or on the bus.
    Running,
    /// Over, not taken yet.
    Done,
}

pub(crate) struct Entry<B> {
    /// As submitted.
    pub given: Request,
    /// As the scheduler knows it.
    pub request: Request,
    pub buffer: Option<B>,
    pub state: State,
    pub id: Option<RequestId>,
    /// The kind whose tag it holds; heads of runs hold one.
    pub holds: Option<Kind>,
    /// Position in the order of submission.
    pub order: u64,
    pub stamps: Stamps,
    pub attempts: u16,
    /// When the last of them began.
    pub sent: Instant,
    /// Of them, how many for the part that was handed out last.
    pub tries: u16,
    /// The part that was handed out last: first block inside the request, blocks.
    pub part: (u32, u32),
    pub cache: Cache,
    /// It empties its sectors for good.
    pub wipe: Option<Wipe>,
    /// It goes in pieces of at most so many blocks until the end of the part that was too long, or failed: (that part,
    /// piece).
    pub single: Option<((u32, u32), u32)>,
    pub moved: u32,
    pub status: Option<CardStatus>,
    pub generation: u32,
    /// Nobody waits for it any more.
    pub orphan: bool,
    /// It was said that it found no tag.
    pub noted: bool,
    pub result: Result<(), BlockError>,
}

impl<B> Entry<B> {
    /// So many blocks from `from` on were read or written: it is told of those before which none is missing.
    pub(crate) fn has_moved(&mut self, from: u32, blocks: u32) {
        if from <= self.moved {
            self.moved = self.moved.max(from.saturating_add(blocks));
        }
    }
}

/// Storage for one accepted request. Make an array with `[const { Tag::new() }; N]`, or a `Vec` of
/// [`Tag::new`].
pub struct Tag<B> {
    generation: u32,
    /// Neighbours in the list of its state, and in the list of its stretch of sectors.
    links: [Links; 2],
    /// Not this request's: the index of the request that has *this place's number* as its slot in the
    /// scheduler.
    at_slot: u32,
    entry: Option<Entry<B>>,
}

impl<B> Tag<B> {
    /// A free place.
    #[must_use]
    pub const fn new() -> Self {
        Self { generation: 0, links: [Links::NONE; 2], at_slot: NIL, entry: None }
    }
}

impl<B> Default for Tag<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Tag<B> {
    pub(crate) const fn entry(&self) -> Option<&Entry<B>> {
        self.entry.as_ref()
    }
}

impl<B> core::fmt::Debug for Tag<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tag")
            .field("generation", &self.generation)
            .field("state", &self.entry.as_ref().map(|e| e.state))
            .finish_non_exhaustive()
    }
}

/// Neighbours in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    prev: u32,
    next: u32,
}

impl Links {
    const NONE: Self = Self { prev: NIL, next: NIL };
}

/// Which of a place's two pairs of links a list runs through.
#[derive(Clone, Copy, Debug)]
enum Through {
    State,
    Sectors,
}

/// A FIFO of places, linked through the table; a place is in at most one list of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    through: Through,
}

impl List {
    const EMPTY: Self = Self { head: NIL, tail: NIL, through: Through::State };
    pub(crate) const SECTORS: Self = Self { through: Through::Sectors, ..Self::EMPTY };

    pub(crate) const fn first(&self) -> Option<u32> {
        if self.head == NIL { None } else { Some(self.head) }
    }
    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    fn links<'a, B>(&self, tags: &'a mut [Tag<B>], i: u32) -> Option<&'a mut Links> {
        let [state, sectors] = &mut tags.get_mut(i as usize)?.links;
        Some(match self.through {
            Through::State => state,
            Through::Sectors => sectors,
        })
    }
    /// The place behind `i`.
    pub(crate) fn after<B>(&self, tags: &[Tag<B>], i: u32) -> Option<u32> {
        let [state, sectors] = &tags.get(i as usize)?.links;
        let next = match self.through {
            Through::State => state.next,
            Through::Sectors => sectors.next,
        };
        (next != NIL).then_some(next)
    }

    pub(crate) fn insert<B>(&mut self, tags: &mut [Tag<B>], i: u32, front: bool) {
        let (prev, next) = if front { (NIL, self.head) } else { (self.tail, NIL) };
        if let Some(l) = self.links(tags, i) {
            *l = Links { prev, next };
        }
        match self.links(tags, prev) {
            Some(l) => l.next = i,
            None => self.head = i,
        }
        match self.links(tags, next) {
            Some(l) => l.prev = i,
            None => self.tail = i,
        }
    }

    pub(crate) fn remove<B>(&mut self, tags: &mut [Tag<B>], i: u32) {
        let Some(l) = self.links(tags, i) else { return };
        let Links { prev, next } = core::mem::replace(l, Links::NONE);
        match self.links(tags, prev) {
            Some(l) => l.next = next,
            None => self.head = next,
        }
        match self.links(tags, next) {
            Some(l) => l.prev = prev,
            None => self.tail = prev,
        }
    }
}

/// Which list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Free,
    Again,
    Done,
    /// Waiting for an earlier request that they overlap.
    Held,
    /// Waiting for a flush that has not begun.
    Flush,
    /// Waiting for the flush that runs.
    Flushing,
    Waiting(Kind),
}

/// [`Tag`]s in the caller's storage, with the lists that run through them. Every call is O(1).
pub(crate) struct Table<T, B> {
    tags: T,
    free: List,
    again: List,
    done: List,
    held: List,
    flush: List,
    flushing: List,
    waiting: [List; 3],
    pub(crate) sectors: Sectors,
    buffers: PhantomData<fn() -> B>,
}

/// Position of a kind in an array of three.
pub(crate) const fn nth(kind: Kind) -> usize {
    match kind {
        Kind::Read => 0,
        Kind::SyncWrite => 1,
        Kind::Async => 2,
    }
}

impl<B, T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>> Table<T, B> {
    /// All places free; what they held is dropped.
    pub(crate) fn new(mut tags: T) -> Self {
        let mut free = List::EMPTY;
        let all = tags.as_mut();
        for i in 0..all.len() {
            if let (Some(t), Ok(i)) = (all.get_mut(i), u32::try_from(i)) {
                (t.entry, t.at_slot) = (None, NIL);
                free.insert(all, i, false);
            }
        }
        Self {
            tags,
            free,
            again: List::EMPTY,
            done: List::EMPTY,
            held: List::EMPTY,
            flush: List::EMPTY,
            flushing: List::EMPTY,
            waiting: [List::EMPTY; 3],
            sectors: Sectors::new(),
            buffers: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.as_ref().len()
    }
    pub(crate) fn get(&self, i: u32) -> Option<&Entry<B>> {
        self.tags.as_ref().get(i as usize)?.entry.as_ref()
    }
    pub(crate) fn get_mut(&mut self, i: u32) -> Option<&mut Entry<B>> {
        self.tags.as_mut().get_mut(i as usize)?.entry.as_mut()
    }
    pub(crate) fn ticket(&self, index: u32) -> Ticket {
        let generation = self.tags.as_ref().get(index as usize).map_or(0, |t| t.generation);
        Ticket { index, generation }
    }
    /// The place of a living ticket.
    pub(crate) fn find(&self, ticket: Ticket) -> Option<u32> {
        let t = self.tags.as_ref().get(ticket.index())?;
        (t.generation == ticket.generation && t.entry.is_some()).then_some(ticket.index)
    }

    /// Remembers that place `i` is the scheduler's `id`.
    pub(crate) fn bind(&mut self, i: u32, id: RequestId) {
        if let Some(t) = self.tags.as_mut().get_mut(id.slot()) {
            t.at_slot = i;
        }
        if let Some(e) = self.get_mut(i) {
            e.id = Some(id);
        }
    }
    /// The place of the scheduler's `id`; `None` for one that is not ours (any more).
    pub(crate) fn by_id(&self, id: RequestId) -> Option<u32> {
        let i = self.tags.as_ref().get(id.slot())?.at_slot;
        (self.get(i)?.id == Some(id)).then_some(i)
    }

    /// A free place, for [`fill`](Self::fill).
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        self.pop(Which::Free)
    }
    pub(crate) fn fill(&mut self, i: u32, entry: Entry<B>) {
        if let Some(t) = self.tags.as_mut().get_mut(i as usize) {
            t.entry = Some(entry);
        }
    }
    /// Frees a place; its tickets are stale from now on. The place is in no list.
    pub(crate) fn vacate(&mut self, i: u32) -> Option<Entry<B>> {
        let t = self.tags.as_mut().get_mut(i as usize)?;
        let entry = t.entry.take()?;
        t.generation = t.generation.wrapping_add(1);
        self.push(Which::Free, i);
        Some(entry)
    }

    fn list(&mut self, which: Which) -> (&mut List, &mut [Tag<B>]) {
        let [reads, syncs, asyncs] = &mut self.waiting;
        let list = match which {
            Which::Free => &mut self.free,
            Which::Again => &mut self.again,
            Which::Done => &mut self.done,
            Which::Held => &mut self.held,
            Which::Flush => &mut self.flush,
            Which::Flushing => &mut self.flushing,
            Which::Waiting(Kind::Read) => reads,
            Which::Waiting(Kind::SyncWrite) => syncs,
            Which::Waiting(Kind::Async) => asyncs,
        };
        (list, self.tags.as_mut())
    }
    pub(crate) fn push(&mut self, which: Which, i: u32) {
        let (list, tags) = self.list(which);
        list.insert(tags, i, false);
    }
    pub(crate) fn push_front(&mut self, which: Which, i: u32) {
        let (list, tags) = self.list(which);
        list.insert(tags, i, true);
    }
    pub(crate) fn remove(&mut self, which: Which, i: u32) {
        let (list, tags) = self.list(which);
        list.remove(tags, i);
    }
    pub(crate) fn pop(&mut self, which: Which) -> Option<u32> {
        let (list, tags) = self.list(which);
        let i = list.first()?;
        list.remove(tags, i);
        Some(i)
    }
    pub(crate) fn first_waiting(&self, kind: Kind) -> Option<u32> {
        self.waiting.get(nth(kind))?.first()
    }
    pub(crate) fn waiting_after(&self, kind: Kind, i: u32) -> Option<u32> {
        self.waiting.get(nth(kind))?.after(self.tags.as_ref(), i)
    }
    /// Whether the request is finished, or unknown (taken, abandoned, reaped).
    pub(crate) fn is_over(&self, ticket: Ticket) -> bool {
        self.find(ticket).and_then(|i| self.get(i)).is_none_or(|e| e.state == State::Done)
    }
    /// A request that finished before `before` and was not taken.
    pub(crate) fn forgotten(&self, before: Instant) -> Option<Ticket> {
        let old = |e: &Entry<B>| e.state == State::Done && e.stamps.completed.is_some_and(|at| at < before);
        let places = u32::try_from(self.len()).unwrap_or(u32::MAX);
        (0..places).find(|i| self.get(*i).is_some_and(old)).map(|i| self.ticket(i))
    }
    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }
    /// All that wait for the flush that begins want no more than a barrier.
    pub(crate) fn only_barriers(&self) -> bool {
        let mut next = self.flushing.first();
        for _ in 0..self.len() {
            let Some(i) = next else { return true };
            if self.get(i).is_some_and(|e| e.cache != Cache::Barrier) {
                return false;
            }
            next = self.flushing.after(self.tags(), i);
        }
        true
    }
    pub(crate) fn wants_flush(&self) -> bool {
        !self.flush.is_empty()
    }
    /// Those who wait for a flush wait for the one that begins now.
    pub(crate) fn begin_flush(&mut self) {
        self.flushing = core::mem::replace(&mut self.flush, List::EMPTY);
    }
    /// The flush that ran has to be repeated: those who waited for it go first.
    pub(crate) fn flush_again(&mut self) {
        while let Some(i) = self.last_flushing() {
            self.remove(Which::Flushing, i);
            self.push_front(Which::Flush, i);
        }
    }
    fn last_flushing(&self) -> Option<u32> {
        (self.flushing.tail != NIL).then_some(self.flushing.tail)
    }
    /// The first request that was held back, and the one behind `i`.
    pub(crate) fn first_held(&self) -> Option<u32> {
        self.held.first()
    }
    pub(crate) fn held_after(&self, i: u32) -> Option<u32> {
        self.held.after(self.tags.as_ref(), i)
    }
    pub(crate) fn split(&mut self) -> (&mut Sectors, &mut [Tag<B>]) {
        (&mut self.sectors, self.tags.as_mut())
    }
    pub(crate) fn tags(&self) -> &[Tag<B>] {
        self.tags.as_ref()
    }
}

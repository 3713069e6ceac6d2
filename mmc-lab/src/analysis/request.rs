//! From lines to requests: which queue, tag, merge, insert, issue and completion lines belong to one request.
//!
//! Lines carry no id, so requests are known by direction and sectors. Of several with the same ones the oldest is meant.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::Class;
use super::log::{Log, Sent};
use super::places::Places;
use crate::blame::Ahead;
use crate::trace::model::{Event, Kind};

/// Candidates looked at per line: more than one has the same place and direction only in broken traces, and those must
/// not take for ever.
const CANDIDATES: usize = 16;

/// Bios looked at per completion, for the same reason: 2 MiB of 4 KiB each.
const BIOS_PER_REQUEST: usize = 512;

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Its number, in the order of first events.
    id: u64,
    pub(crate) task: Arc<str>,
    /// The place of its task among all.
    pub(crate) owner: usize,
    pub(crate) rwbs: Arc<str>,
    direction: u8,
    pub(crate) class: Class,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    /// First event of all.
    pub(crate) first: u64,
    pub(crate) queued: Option<u64>,
    pub(crate) got_tag: Option<u64>,
    pub(crate) inserted: Option<u64>,
    pub(crate) issued: Option<u64>,
    is_flush: bool,
    /// The driver gave it back, so it may enter the scheduler once more.
    came_back: bool,
    /// Outstanding requests when it appeared.
    pub(crate) busy: u64,
    /// The sectors not yet completed.
    start: u64,
    end: u64,
    /// Place among all insertions.
    seq: u64,
    /// Entries of the issue log before its insertion, and its own entry.
    log_from: u64,
    log_at: Option<u64>,
}

impl Request {
    /// Counts in the queue depth: in the scheduler or at the device, and no flush.
    fn is_deep(&self) -> bool {
        !self.is_flush && (self.inserted.is_some() || self.issued.is_some())
    }
}

/// A bio of which some sectors have no request yet.
#[derive(Clone, Copy, Debug)]
struct Unplaced {
    at: u64,
    end: u64,
    left: u64,
    direction: u8,
}

/// What an event did.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing that ends a request.
    Nothing,
    /// The request in this slot is done: [`Tracker::take`] it.
    Done(u32),
    /// A completion of something never seen before.
    Unmatched,
}

/// All requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    /// A request keeps its slot as long as it is in flight.
    slots: Vec<Option<Request>>,
    free: Vec<u32>,
    starts: Places,
    ends: Places,
    /// By first sector and number, for the lines that name no request exactly.
    by_start: BTreeMap<(u64, u64), u32>,
    bios: BTreeMap<(u64, u64), Unplaced>,
    log: Log,
    next_id: u64,
    next_seq: u64,
    depth: u32,
    created: u64,
    merged: u64,
}

impl Tracker {
    /// Requests in the scheduler or at the device.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Requests ever seen, without those merged into others.
    pub(crate) fn count(&self) -> u64 {
        self.created.saturating_sub(self.merged)
    }

    /// Whether what must come before `event` has come. If not, and other events have the same stamp, it may be among those.
    pub(crate) fn is_ready(&self, event: &Event) -> bool {
        match event.kind {
            Kind::BioQueue | Kind::Requeue => true,
            Kind::RqMerge => {
                self.find(event, |r| r.issued.is_none()).is_some() && self.ending_at(event).is_some()
            }
            Kind::GetRq => self.bio_of(event).is_some(),
            Kind::BackMerge => self.ending_at(event).is_some(),
            Kind::FrontMerge => self.starting_after(event).is_some(),
            Kind::Insert => self.find(event, |r| r.inserted.is_none()).is_some(),
            Kind::Issue => self.find(event, |r| r.issued.is_none() && r.inserted.is_some()).is_some(),
            Kind::Complete => self.find(event, |r| r.issued.is_some()).is_some(),
        }
    }

    /// When the request that `issue` sent began.
    pub(crate) fn began(&self, issue: &Event) -> Option<u64> {
        let slot = self.find(issue, |r| r.issued.is_some())?;
        self.get(slot).map(|r| r.first)
    }

    /// Takes in one event of the task with place `owner`; `busy` is the number of requests outstanding before it.
    pub(crate) fn apply(&mut self, event: &Event, owner: usize, busy: u64) -> Step {
        match event.kind {
            Kind::BioQueue => self.queue_bio(event),
            Kind::GetRq => {
                let queued = self.claim(event);
                self.create(event, owner, queued, busy, |r, at| r.got_tag = Some(at));
            }
            Kind::BackMerge => {
                self.claim(event);
                if let Some(id) = self.ending_at(event) {
                    self.resize(id, |r| r.end = event.sector.saturating_add(u64::from(event.sectors)));
                }
            }
            Kind::FrontMerge => {
                self.claim(event);
                if let Some(id) = self.starting_after(event) {
                    self.resize(id, |r| r.start = event.sector);
                }
            }
            Kind::RqMerge => self.merge(event),
            Kind::Insert => self.insert(event, owner, busy),
            Kind::Issue => self.issue(event, owner, busy),
            Kind::Requeue => self.requeue(event),
            Kind::Complete => return self.complete(event),
        }
        Step::Nothing
    }

    /// The requests still in flight with their numbers, oldest first.
    pub(crate) fn unfinished(&self) -> Vec<(u64, &Request)> {
        let mut all: Vec<_> = self.slots.iter().flatten().map(|request| (request.id, request)).collect();
        all.sort_by_key(|&(id, _)| id);
        all
    }

    /// No request has a higher number yet.
    pub(crate) fn last_id(&self) -> u64 {
        self.next_id
    }

    /// The request in flight that holds `sector`; the oldest of several.
    pub(crate) fn holding(&self, sector: u64) -> Option<&Request> {
        let before = self.by_start.range(..=(sector, u64::MAX)).rev().take(CANDIDATES);
        before.filter_map(|(_, &slot)| self.get(slot)).filter(|r| r.end > sector).min_by_key(|r| r.id)
    }

    /// What was sent between the insertion of `request` and its issue (or now).
    pub(crate) fn ahead(&self, request: &Request) -> Ahead {
        self.log.between(request.log_from, request.log_at.unwrap_or(self.log.next()), request.seq)
    }

    /// A point in the order of insertions and issues.
    pub(crate) fn mark(&self) -> Mark {
        Mark { seq: self.next_seq, log: self.log.next() }
    }

    /// What was sent since `mark`; older is what was inserted before it.
    pub(crate) fn sent_since(&self, mark: Mark) -> Ahead {
        self.log.between(mark.log, self.log.next(), mark.seq)
    }

    fn get(&self, slot: u32) -> Option<&Request> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Request> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn queue_bio(&mut self, event: &Event) {
        if event.sectors > 0 {
            let end = event.sector.saturating_add(u64::from(event.sectors));
            let id = self.new_id();
            let direction = direction(&event.rwbs);
            let left = u64::from(event.sectors);
            self.bios.insert((event.sector, id), Unplaced { at: event.at, end, left, direction });
        }
    }

    /// The youngest waiting bio that holds the event's first sector.
    fn bio_of(&self, event: &Event) -> Option<(u64, u64)> {
        let direction = direction(&event.rwbs);
        let before = self.bios.range(..=(event.sector, u64::MAX)).rev().take(CANDIDATES);
        let holding = before.filter(|(_, bio)| bio.end > event.sector && bio.direction == direction);
        holding.map(|(&key, _)| key).max_by_key(|&(_, id)| id)
    }

    /// The sectors of `event` have a request now: when their bio was queued.
    fn claim(&mut self, event: &Event) -> Option<u64> {
        let key = self.bio_of(event)?;
        let bio = self.bios.get_mut(&key)?;
        let at = bio.at;
        bio.left = bio.left.saturating_sub(u64::from(event.sectors));
        if bio.left == 0 {
            self.bios.remove(&key);
        }
        Some(at)
    }

    fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn create(
        &mut self,
        event: &Event,
        owner: usize,
        queued: Option<u64>,
        busy: u64,
        stamp: impl FnOnce(&mut Request, u64),
    ) -> u32 {
        let id = self.new_id();
        let sectors = u64::from(event.sectors);
        // A flush carries a sector that means nothing.
        let start = if sectors == 0 { 0 } else { event.sector };
        let request = Request {
            id,
            task: event.task.clone(),
            owner,
            rwbs: event.rwbs.clone(),
            direction: direction(&event.rwbs),
            class: Class::of(&event.rwbs, &event.task),
            sector: start,
            sectors,
            first: queued.unwrap_or(event.at),
            queued,
            got_tag: None,
            inserted: None,
            issued: None,
            is_flush: sectors == 0,
            came_back: false,
            busy,
            start,
            end: start.saturating_add(sectors),
            seq: u64::MAX,
            log_from: self.log.next(),
            log_at: None,
        };
        let end = request.end;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        self.slots[slot as usize] = Some(request);
        self.place(slot, start, end, id);
        self.created += 1;
        self.change(slot, |r| stamp(r, event.at));
        slot
    }

    fn place(&mut self, slot: u32, start: u64, end: u64, id: u64) {
        self.starts.insert(start, slot);
        self.ends.insert(end, slot);
        self.by_start.insert((start, id), slot);
    }

    fn unplace(&mut self, slot: u32, start: u64, end: u64, id: u64) {
        self.starts.remove(start, slot);
        self.ends.remove(end, slot);
        self.by_start.remove(&(start, id));
    }

    /// Changes a request and keeps the depth right.
    fn change(&mut self, slot: u32, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.get_mut(slot) {
            let before = request.is_deep();
            change(request);
            match (before, request.is_deep()) {
                (false, true) => self.depth += 1,
                (true, false) => self.depth -= 1,
                _ => {}
            }
        }
    }

    /// Changes the sectors of a request and keeps the indices right.
    fn resize(&mut self, slot: u32, change: impl FnOnce(&mut Request)) {
        let Some(request) = self.get_mut(slot) else { return };
        let (start, end, id) = (request.start, request.end, request.id);
        change(request);
        request.end = request.end.max(request.start);
        if request.issued.is_none() {
            request.sector = request.start;
            request.sectors = request.end - request.start;
        }
        let (new_start, new_end) = (request.start, request.end);
        self.unplace(slot, start, end, id);
        self.place(slot, new_start, new_end, id);
    }

    /// The request leaves its slot.
    pub(crate) fn take(&mut self, slot: u32) -> Option<Request> {
        let request = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.unplace(slot, request.start, request.end, request.id);
        if request.is_deep() {
            self.depth -= 1;
        }
        Some(request)
    }

    /// The request that starts where the event says, runs in its direction and meets `wanted`: best with the same
    /// size (or, for flushes, the same letters), then the oldest.
    fn find(&self, event: &Event, wanted: impl Fn(&Request) -> bool) -> Option<u32> {
        let way = direction(&event.rwbs);
        let sectors = u64::from(event.sectors);
        let start = if sectors == 0 { 0 } else { event.sector };
        let fits = |r: &Request| {
            r.is_flush == (sectors == 0)
                && r.direction == way
                && (sectors > 0 || r.rwbs == event.rwbs)
                && wanted(r)
        };
        let here = self.starts.at(start).take(CANDIDATES);
        here.filter_map(|slot| self.get(slot).filter(|r| fits(r)).map(|r| (slot, r)))
            .min_by_key(|(_, r)| (r.end - r.start != sectors, r.id))
            .map(|(slot, _)| slot)
    }

    /// Where merges were missed, the line names more sectors than the request has: the oldest unsent one inside.
    fn find_inside(&self, event: &Event) -> Option<u32> {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let way = direction(&event.rwbs);
        let inside = self.by_start.range((event.sector, 0)..(end, 0)).take(CANDIDATES);
        self.oldest(inside.map(|(_, &slot)| slot), |r| {
            !r.is_flush && r.issued.is_none() && r.end <= end && r.direction == way
        })
    }

    /// Where merges of the same stamp came first, the line names fewer sectors than the request has: the oldest one
    /// around it that has not entered the scheduler.
    fn find_around(&self, event: &Event) -> Option<u32> {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let way = direction(&event.rwbs);
        let before = self.by_start.range(..=(event.sector, u64::MAX)).rev().take(CANDIDATES);
        self.oldest(before.map(|(_, &slot)| slot), |r| {
            !r.is_flush && r.inserted.is_none() && r.issued.is_none() && r.end >= end && r.direction == way
        })
    }

    /// The request that a bio at `event.sector` extends at its end.
    fn ending_at(&self, event: &Event) -> Option<u32> {
        self.mergeable(&self.ends, event.sector, event)
    }

    /// The request that a bio before it extends at its start.
    fn starting_after(&self, event: &Event) -> Option<u32> {
        self.mergeable(&self.starts, event.sector.saturating_add(u64::from(event.sectors)), event)
    }

    fn mergeable(&self, index: &Places, place: u64, event: &Event) -> Option<u32> {
        let way = direction(&event.rwbs);
        let unsent = |r: &Request| !r.is_flush && r.issued.is_none() && r.direction == way;
        self.oldest(index.at(place).take(CANDIDATES), unsent)
    }

    fn oldest(&self, slots: impl Iterator<Item = u32>, wanted: impl Fn(&Request) -> bool) -> Option<u32> {
        let found = slots.filter_map(|slot| self.get(slot).filter(|r| wanted(r)).map(|r| (r.id, slot)));
        found.min().map(|(_, slot)| slot)
    }

    /// The request of `event` goes to the end of the one before it; the merged one keeps the history of the older.
    fn merge(&mut self, event: &Event) {
        let Some(gone) = self.find(event, |r| r.issued.is_none()) else { return };
        let kept = self.ending_at(event).filter(|&kept| kept != gone);
        let Some(gone) = self.take(gone) else { return };
        self.merged += 1;
        let Some(kept) = kept else { return };
        self.resize(kept, |r| r.end = gone.end);
        self.change(kept, |r| {
            if gone.first < r.first && gone.inserted.is_some() == r.inserted.is_some() {
                let Request { id, start, end, sector, sectors, .. } = *r;
                *r = Request { id, start, end, sector, sectors, ..gone };
            }
        });
    }

    fn insert(&mut self, event: &Event, owner: usize, busy: u64) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let log_from = self.log.next();
        if let Some(id) = self.find(event, |r| r.issued.is_none() && r.came_back) {
            // It enters again: the first insertion counts.
            return self.change(id, |r| r.came_back = false);
        }
        let found = self.find(event, |r| r.inserted.is_none()).or_else(|| self.find_inside(event));
        let id = match found.or_else(|| self.find_around(event)) {
            Some(id) => id,
            None => {
                let queued = self.claim(event);
                self.create(event, owner, queued, busy, |_, _| {})
            }
        };
        self.change(id, |r| {
            r.inserted = Some(event.at);
            r.seq = seq;
            r.log_from = log_from;
        });
    }

    fn issue(&mut self, event: &Event, owner: usize, busy: u64) {
        let found = self
            .find(event, |r| r.issued.is_none() && r.inserted.is_some())
            .or_else(|| self.find(event, |r| r.issued.is_none()))
            .or_else(|| self.find_inside(event));
        let id = match found {
            Some(id) => id,
            None => {
                let queued = self.claim(event);
                self.create(event, owner, queued, busy, |_, _| {})
            }
        };
        self.take_size(id, event);
        self.change(id, |r| r.issued = Some(event.at));
        let place = self.log.next();
        if let Some(request) = self.get_mut(id) {
            request.log_at = Some(place);
            let sent = Sent { seq: request.seq, sectors: event.sectors, class: request.class };
            self.log.push(sent);
        }
    }

    /// The driver gives a request back, or it left the scheduler and never reached the driver.
    fn requeue(&mut self, event: &Event) {
        let Some(id) = self.find(event, |r| r.issued.is_some()).or_else(|| self.find(event, |_| true)) else {
            return;
        };
        self.change(id, |r| {
            r.issued = None;
            r.came_back = true;
        });
        if let Some(place) = self.get_mut(id).and_then(|r| r.log_at.take()) {
            self.log.forget(place);
        }
    }

    /// The line knows the size better than we do.
    fn take_size(&mut self, id: u32, event: &Event) {
        let end = event.sector.saturating_add(u64::from(event.sectors));
        let differs = self.get(id).is_some_and(|r| r.start != event.sector || r.end != end);
        if differs && event.sectors > 0 {
            self.resize(id, |r| {
                r.start = event.sector;
                r.end = end;
            });
        }
    }

    fn complete(&mut self, event: &Event) -> Step {
        let sectors = u64::from(event.sectors);
        let end = event.sector.saturating_add(sectors);
        if sectors > 0 {
            // Whatever part of these bios got no request of its own will not get one any more.
            let done: Vec<_> = self
                .bios
                .range((event.sector, 0)..(end, 0))
                .take(BIOS_PER_REQUEST)
                .filter(|(_, bio)| bio.end <= end && bio.at <= event.at)
                .map(|(&key, _)| key)
                .collect();
            for key in done {
                self.bios.remove(&key);
            }
        }
        // One that began since is another.
        let began = |r: &Request| r.first <= event.at;
        let found = self.find(event, |r| r.issued.is_some()).or_else(|| self.find(event, began));
        let Some(id) = found else {
            // A request that was flushed for completes twice, the second time with no sectors.
            return if sectors == 0 { Step::Nothing } else { Step::Unmatched };
        };
        if sectors > 0 && self.get(id).is_some_and(|r| end < r.end) {
            self.resize(id, |r| r.start = end);
            return Step::Nothing;
        }
        Step::Done(id)
    }
}

/// A point in the order of insertions and issues.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    seq: u64,
    log: u64,
}

/// Read, write, discard, flush…: the first letter that is not the mark of a flush before the data.
fn direction(rwbs: &str) -> u8 {
    rwbs.bytes().find(|&letter| letter != b'F').unwrap_or(b'F')
}

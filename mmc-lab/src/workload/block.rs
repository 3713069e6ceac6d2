//! The block layer of the simulated kernel: bios, splitting, a small plug, tags, and the events a kernel's
//! tracepoints would give. Below it is a real `mmc-block` disk.

use crate::analysis::Class;
use crate::blame::Ahead;
use crate::sim::{Machine, Signal, Sim};
use crate::trace::model::{Event, Kind};
use crate::watchdog::{WaitsFor, Watchdog};
use mmc_mock::Buf;
use mmc_sched::{Flags, Op, Request, StreamId};
use mmc_time::Instant;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a page and of a file system block.
pub const PAGE: usize = 4096;
/// Sectors of a page.
pub const PAGE_SECTORS: u32 = 8;

/// A task that submits I/O.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its name, as the kernel's.
    pub name: Arc<str>,
    /// Its stream for the scheduler.
    pub stream: StreamId,
}

impl Task {
    /// A task.
    #[must_use]
    pub fn new(name: &str, stream: u32) -> Self {
        Self { name: name.into(), stream: StreamId(stream) }
    }
}

/// Names a request inside the disk.
pub type Key = u64;

/// What the disk's observer saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The request has a tag and is in the scheduler, on its own.
    Inserted(Key),
    /// It was merged into another request: behind it (`back`) or before it.
    Merged {
        /// Which.
        key: Key,
        /// The request that holds the tag of the run it belongs to now.
        head: Key,
        /// At the end of the other one.
        back: bool,
        /// It had been a request of its own (a request merge).
        request: bool,
    },
    /// A run was issued that begins with this request.
    Issued {
        /// The head.
        key: Key,
        /// First sector of the run.
        lba: u64,
        /// Sectors of the run.
        blocks: u32,
    },
    /// The run that begins with this request completed.
    Completed {
        /// The head.
        key: Key,
        /// First sector of the run.
        lba: u64,
        /// Sectors of the run.
        blocks: u32,
    },
}

/// A finished request.
#[derive(Debug)]
pub struct Finished {
    /// Which.
    pub key: Key,
    /// Its buffer.
    pub buf: Buf,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// A disk, whatever host is below it.
pub trait Disk {
    /// Submits a request; it may have to wait for a tag inside.
    ///
    /// # Errors
    /// What the disk said.
    fn submit(&mut self, r: Request, buf: Buf, now: Instant) -> Result<Key, String>;
    /// Drives it; the instant of its next event.
    fn poll(&mut self, now: Instant) -> Instant;
    /// The next note of its observer.
    fn note(&mut self) -> Option<(Instant, Note)>;
    /// The next finished request.
    fn finished(&mut self) -> Option<Finished>;
}

/// One bio: a contiguous range that somebody submitted at once.
#[derive(Debug)]
pub struct Bio {
    sectors: u32,
    left: Cell<u32>,
    signal: Signal,
    on_done: RefCell<Option<OnDone>>,
    /// The request that carries its last piece so far: the one that ends a wait for the bio.
    pub last: RefCell<Option<Rc<Rq>>>,
}

/// What to do when a bio is done.
struct OnDone(Box<dyn FnOnce()>);

impl std::fmt::Debug for OnDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDone")
    }
}

impl Bio {
    /// Whether all of it has completed.
    #[must_use]
    pub fn done(&self) -> bool {
        self.left.get() == 0
    }
    /// Waits until all of it has completed.
    pub async fn wait(&self) {
        while !self.done() {
            self.signal.wait().await;
        }
    }
    fn piece_done(&self) {
        self.left.set(self.left.get() - 1);
        if self.done() {
            self.signal.notify();
            let f = self.on_done.borrow_mut().take();
            if let Some(f) = f {
                f.0();
            }
        }
    }
}

/// One request of the block layer.
#[derive(Debug)]
pub struct Rq {
    /// Who submitted it.
    pub task: Task,
    /// First sector as submitted.
    pub sector: u64,
    /// Sectors as submitted.
    pub sectors: u32,
    /// RWBS letters.
    pub rwbs: Arc<str>,
    inserted: Cell<bool>,
    tag: Signal,
    bios: RefCell<Vec<Rc<Bio>>>,
    /// The request it went into.
    merged: RefCell<Option<Rc<Rq>>>,
    /// Its number in the order of insertions, and how many had been issued then.
    order: Cell<(u64, usize)>,
    /// Its number in the order of issues.
    issued: Cell<Option<usize>>,
}

impl Rq {
    /// The request that was inserted and holds the tag of the run that this one is part of.
    fn holder(self: &Rc<Self>) -> Rc<Self> {
        let mut rq = self.clone();
        loop {
            let into = rq.merged.borrow().clone();
            match into {
                Some(holder) => rq = holder,
                None => return rq,
            }
        }
    }
}

/// One issued request, for blame.
#[derive(Clone, Copy, Debug)]
struct Issued {
    order: u64,
    sectors: u32,
    class: Class,
}

/// The request a task is still filling.
struct Open {
    op: Op,
    flags: Flags,
    sector: u64,
    bytes: Vec<u8>,
    bios: Vec<Rc<Bio>>,
}

/// A task's plug: contiguous bios become one request before the scheduler sees them.
#[derive(Default)]
pub struct Plug(Option<Open>);

impl std::fmt::Debug for Plug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plug({})", self.0.is_some())
    }
}

/// RWBS letters of a request, as the kernel prints them.
#[must_use]
pub fn rwbs(op: Op, flags: Flags) -> String {
    let mut s = String::new();
    if flags.contains(Flags::PREFLUSH) {
        s.push('F');
    }
    s.push(match op {
        Op::Read => 'R',
        Op::Discard => 'D',
        _ => 'W',
    });
    for (f, c) in [(Flags::FUA, 'F'), (Flags::RAHEAD, 'A'), (Flags::SYNC, 'S'), (Flags::META, 'M')] {
        if flags.contains(f) && !(c == 'S' && op == Op::Read) {
            s.push(c);
        }
    }
    s
}

/// Totals of what reached the card.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Bytes of completed writes.
    pub written: u64,
    /// Bytes of completed reads.
    pub read: u64,
}

/// Tags as Linux' sbitmap hands them out.
#[derive(Debug)]
struct LinuxTags {
    all: u32,
    /// So many are freed before somebody is woken.
    batch: u32,
    used: u32,
    freed: u32,
    sleepers: VecDeque<Rc<Sleeper>>,
}

/// A task that sleeps until it is woken.
#[derive(Debug)]
struct Sleeper {
    woken: Cell<bool>,
    signal: Signal,
}

impl LinuxTags {
    fn free(&mut self) {
        self.used = self.used.saturating_sub(1);
        if self.sleepers.is_empty() {
            return;
        }
        self.freed += 1;
        // Whoever is left when nothing is queued any more is woken at once: nothing else would.
        while (self.freed >= self.batch || self.used == 0)
            && let Some(sleeper) = self.sleepers.pop_front()
        {
            self.freed = 0;
            sleeper.woken.set(true);
            sleeper.signal.notify();
        }
    }
}

/// Looks at the bytes of a completed read: first sector, bytes.
type OnRead = dyn Fn(u64, &[u8]);

/// The block layer.
pub struct Block {
    sim: Sim,
    watch: Rc<Watchdog>,
    disk: RefCell<Box<dyn Disk>>,
    rqs: RefCell<HashMap<Key, Rc<Rq>>>,
    events: RefCell<Vec<Event>>,
    max_sectors: u32,
    spare: RefCell<Vec<Vec<u8>>>,
    on_read: RefCell<Option<Box<OnRead>>>,
    totals: Cell<Totals>,
    failed: RefCell<Option<String>>,
    names: RefCell<HashMap<String, Arc<str>>>,
    worker: Task,
    softirq: Task,
    inserted: Cell<u64>,
    issues: RefCell<Vec<Issued>>,
    linux: RefCell<Option<LinuxTags>>,
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} outstanding)", self.rqs.borrow().len())
    }
}

impl Block {
    /// A block layer over `disk` with requests up to `max_sectors`.
    #[must_use]
    pub fn new(sim: &Sim, watch: Rc<Watchdog>, disk: Box<dyn Disk>, max_sectors: u32) -> Self {
        Self {
            sim: sim.clone(),
            watch,
            disk: RefCell::new(disk),
            rqs: RefCell::default(),
            events: RefCell::default(),
            max_sectors,
            spare: RefCell::default(),
            on_read: RefCell::default(),
            totals: Cell::default(),
            failed: RefCell::default(),
            names: RefCell::default(),
            worker: Task::new("kworker/0:1H", 0),
            softirq: Task::new("ksoftirqd/0", 1),
            inserted: Cell::new(0),
            issues: RefCell::default(),
            linux: RefCell::default(),
        }
    }
    /// From now on `tags` are handed out as Linux does, and the queue is run at each insertion, as by its worker. Tasks that
    /// sleep for a tag are woken one at a time, when as many were freed as an eighth of all, at most eight: so a queue that is
    /// full for long holds some less than all, and who wakes takes several.
    pub fn behave_as_linux(&self, tags: u16) {
        let batch = u32::from(tags / 8).clamp(1, 8);
        let sleepers = VecDeque::new();
        *self.linux.borrow_mut() = Some(LinuxTags { all: tags.into(), batch, used: 0, freed: 0, sleepers });
    }
    /// Sets what looks at the bytes of each completed read: first sector, bytes.
    pub fn on_read(&self, f: impl Fn(u64, &[u8]) + 'static) {
        *self.on_read.borrow_mut() = Some(Box::new(f));
    }
    /// Totals so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals.get()
    }
    /// The first failure of the disk, if there was one.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.failed.borrow().clone()
    }
    /// Takes the events since the last call.
    #[must_use]
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.borrow_mut())
    }
    /// A buffer of `len` bytes with undefined (but deterministic) contents.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        let mut spare = self.spare.borrow_mut();
        match spare.iter().rposition(|v| v.capacity() >= len && v.capacity() <= len.saturating_mul(2)) {
            Some(i) => {
                let mut v = spare.swap_remove(i);
                v.resize(len, 0);
                v
            }
            None => vec![0; len],
        }
    }
    fn recycle(&self, v: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < 160 {
            spare.push(v);
        }
    }
    fn name(&self, s: &str) -> Arc<str> {
        self.names.borrow_mut().entry(s.to_owned()).or_insert_with(|| s.into()).clone()
    }
    fn event(&self, at: Instant, kind: Kind, by: &Task, rwbs: &Arc<str>, sector: u64, sectors: u32) {
        self.events.borrow_mut().push(Event {
            at: at.as_nanos(),
            kind,
            dev: (179, 0),
            task: by.name.clone(),
            pid: by.stream.0,
            rwbs: rwbs.clone(),
            sector,
            sectors,
        });
    }

    /// A bio of `sectors`, not submitted yet; `on_done` runs when all of it has completed.
    #[must_use]
    pub fn bio(&self, sectors: u32, on_done: Option<Box<dyn FnOnce()>>) -> Rc<Bio> {
        Rc::new(Bio {
            sectors,
            left: Cell::new(sectors.div_ceil(self.max_sectors)),
            signal: Signal::new(&self.sim),
            on_done: RefCell::new(on_done.map(OnDone)),
            last: RefCell::default(),
        })
    }

    /// Submits a bio: `fill` puts the bytes of a piece (its first byte's offset, the buffer) in place. Short ones
    /// go through `plug`. The caller sleeps while there is no tag.
    #[allow(clippy::too_many_arguments, reason = "one bio has that many properties")]
    pub async fn submit(
        &self,
        task: &Task,
        bio: &Rc<Bio>,
        op: Op,
        flags: Flags,
        sector: u64,
        plug: &mut Plug,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) {
        let sectors = bio.sectors;
        // As the kernel on a card without a cache: the trace shows the flags stripped.
        let letters = self.name(&rwbs(op, flags - Flags::PREFLUSH - Flags::FUA));
        self.event(self.sim.now(), Kind::BioQueue, task, &letters, sector, sectors);
        let mut at = 0;
        while at < sectors {
            let n = (sectors - at).min(self.max_sectors);
            let start = sector + u64::from(at);
            let bytes = n as usize * 512;
            if let Some(o) = &mut plug.0 {
                let fits = o.bytes.len() + bytes <= self.max_sectors as usize * 512;
                if o.op == op && o.flags == flags && o.sector + o.bytes.len() as u64 / 512 == start && fits {
                    let from = o.bytes.len();
                    o.bytes.resize(from + bytes, 0);
                    fill(at as usize * 512, &mut o.bytes[from..]);
                    o.bios.push(bio.clone());
                    self.event(self.sim.now(), Kind::BackMerge, task, &letters, start, n);
                    at += n;
                    continue;
                }
                self.unplug(task, plug).await;
            }
            let mut buf = self.buffer(bytes);
            fill(at as usize * 512, &mut buf);
            plug.0 = Some(Open { op, flags, sector: start, bytes: buf, bios: vec![bio.clone()] });
            if n >= 256 {
                self.unplug(task, plug).await;
            }
            at += n;
        }
    }

    /// Sends what the plug holds to the scheduler; sleeps while there is no tag for it.
    pub async fn unplug(&self, task: &Task, plug: &mut Plug) {
        let Some(o) = plug.0.take() else { return };
        let letters = self.name(&rwbs(o.op, o.flags - Flags::PREFLUSH - Flags::FUA));
        let sectors = u32::try_from(o.bytes.len() / 512).unwrap_or(u32::MAX);
        let rq = Rc::new(Rq {
            task: task.clone(),
            sector: o.sector,
            sectors,
            rwbs: letters,
            inserted: Cell::new(false),
            tag: Signal::new(&self.sim),
            bios: RefCell::new(o.bios),
            merged: RefCell::default(),
            order: Cell::default(),
            issued: Cell::default(),
        });
        for b in rq.bios.borrow().iter() {
            *b.last.borrow_mut() = Some(rq.clone());
        }
        self.wait_for_linux(task).await;
        let mut r = Request::new(o.op, o.sector, sectors, task.stream);
        r.flags = o.flags;
        let submitted = self.disk.borrow_mut().submit(r, Buf(o.bytes), self.sim.now());
        match submitted {
            Ok(key) => {
                self.rqs.borrow_mut().insert(key, rq.clone());
            }
            Err(e) => {
                self.failed.borrow_mut().get_or_insert(e);
                for b in rq.bios.borrow().iter() {
                    b.piece_done();
                }
                return;
            }
        }
        self.drain();
        if self.linux.borrow().is_some() {
            self.disk.borrow_mut().poll(self.sim.now());
            self.drain();
        }
        if !rq.inserted.get() {
            let tag = async {
                while !rq.inserted.get() {
                    rq.tag.wait().await;
                }
            };
            self.watch.sleep(task, WaitsFor::Tag, tag).await;
        }
    }

    /// Sleeps until there is a tag, if tags are handed out as Linux does.
    async fn wait_for_linux(&self, task: &Task) {
        loop {
            let sleeper = match &mut *self.linux.borrow_mut() {
                Some(tags) if tags.used >= tags.all => {
                    let sleeper =
                        Rc::new(Sleeper { woken: Cell::new(false), signal: Signal::new(&self.sim) });
                    tags.sleepers.push_back(sleeper.clone());
                    sleeper
                }
                _ => return,
            };
            let woken = async {
                while !sleeper.woken.get() {
                    sleeper.signal.wait().await;
                }
            };
            self.watch.sleep(task, WaitsFor::Tag, woken).await;
        }
    }

    /// A request got its tag, or gave it back.
    fn count_tag(&self, got: bool) {
        if let Some(tags) = &mut *self.linux.borrow_mut() {
            if got { tags.used += 1 } else { tags.free() }
        }
    }

    fn order(&self) -> (u64, usize) {
        self.inserted.set(self.inserted.get() + 1);
        (self.inserted.get(), self.issues.borrow().len())
    }

    /// What was issued between the insertion of `rq` (or of the run it went into) and its issue.
    #[must_use]
    pub fn ahead(&self, rq: &Rc<Rq>) -> Ahead {
        let rq = rq.holder();
        let issues = self.issues.borrow();
        let (order, from) = rq.order.get();
        let to = rq.issued.get().unwrap_or(issues.len());
        let mut ahead = Ahead::default();
        for i in issues.get(from..to).unwrap_or_default() {
            ahead.count(i.order < order, i.sectors.into(), i.class);
        }
        ahead
    }

    fn drain(&self) {
        loop {
            let note = self.disk.borrow_mut().note();
            let Some((at, note)) = note else { break };
            let rq = |key: Key| self.rqs.borrow().get(&key).cloned();
            match note {
                Note::Inserted(key) => {
                    let Some(rq) = rq(key) else { continue };
                    self.event(at, Kind::GetRq, &rq.task, &rq.rwbs, rq.sector, rq.sectors);
                    self.event(at, Kind::Insert, &rq.task, &rq.rwbs, rq.sector, rq.sectors);
                    rq.order.set(self.order());
                    self.count_tag(true);
                    rq.inserted.set(true);
                    rq.tag.notify();
                }
                Note::Merged { key, head, back, request } => {
                    let Some(rq) = rq(key) else { continue };
                    let kind = match (request, back) {
                        (true, _) => Kind::RqMerge,
                        (false, true) => Kind::BackMerge,
                        (false, false) => Kind::FrontMerge,
                    };
                    self.event(at, kind, &rq.task, &rq.rwbs, rq.sector, rq.sectors);
                    if request {
                        self.count_tag(false);
                    }
                    if head != key {
                        *rq.merged.borrow_mut() = self.rqs.borrow().get(&head).cloned();
                    }
                    rq.inserted.set(true);
                    rq.tag.notify();
                }
                Note::Issued { key, lba, blocks } => {
                    if let Some(rq) = rq(key) {
                        self.event(at, Kind::Issue, &self.worker, &rq.rwbs, lba, blocks);
                        // After a front merge the first member is not the one that was inserted.
                        let holder = rq.holder();
                        let mut issues = self.issues.borrow_mut();
                        holder.issued.set(Some(issues.len()));
                        let class = Class::of(&holder.rwbs, &holder.task.name);
                        issues.push(Issued { order: holder.order.get().0, sectors: blocks, class });
                    }
                }
                Note::Completed { key, lba, blocks } => {
                    if let Some(rq) = rq(key) {
                        self.event(at, Kind::Complete, &self.softirq, &rq.rwbs, lba, blocks);
                    }
                }
            }
        }
    }
}

impl Machine for Block {
    fn run(&self, now: Instant) -> Instant {
        let next = self.disk.borrow_mut().poll(now);
        self.drain();
        loop {
            let finished = self.disk.borrow_mut().finished();
            let Some(f) = finished else { break };
            let Some(rq) = self.rqs.borrow_mut().remove(&f.key) else { continue };
            if rq.merged.borrow().is_none() {
                self.count_tag(false);
            }
            if let Some(e) = f.error {
                self.failed.borrow_mut().get_or_insert(e);
            }
            let mut t = self.totals.get();
            if rq.rwbs.contains('R') {
                t.read += u64::from(rq.sectors) * 512;
                if let Some(look) = &*self.on_read.borrow() {
                    look(rq.sector, &f.buf.0);
                }
            } else {
                t.written += u64::from(rq.sectors) * 512;
            }
            self.totals.set(t);
            self.recycle(f.buf.0);
            for b in rq.bios.borrow_mut().drain(..) {
                b.piece_done();
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_mock::Clock;
    use mmc_time::Duration;

    /// A disk that answers with the notes of a script: those of `submit[i]` when request `i` is submitted.
    struct Scripted {
        submit: Vec<Vec<Note>>,
        notes: VecDeque<Note>,
        next: Key,
    }

    impl Disk for Scripted {
        fn submit(&mut self, _: Request, _: Buf, _: Instant) -> Result<Key, String> {
            self.notes.extend(self.submit[self.next as usize].drain(..));
            self.next += 1;
            Ok(self.next - 1)
        }
        fn poll(&mut self, _: Instant) -> Instant {
            Instant::NEVER
        }
        fn note(&mut self) -> Option<(Instant, Note)> {
            self.notes.pop_front().map(|n| (Instant::ZERO, n))
        }
        fn finished(&mut self) -> Option<Finished> {
            None
        }
    }

    #[test]
    fn sleepers_are_woken_one_at_a_time_when_a_batch_of_tags_is_free() {
        let sim = Sim::new(Clock::new());
        let sleepers: Vec<_> =
            (0..3).map(|_| Rc::new(Sleeper { woken: Cell::new(false), signal: Signal::new(&sim) })).collect();
        let woken = || sleepers.iter().map(|s| s.woken.get()).collect::<Vec<_>>();
        let mut tags =
            LinuxTags { all: 32, batch: 4, used: 32, freed: 0, sleepers: sleepers.iter().cloned().collect() };
        (0..3).for_each(|_| tags.free());
        assert_eq!(woken(), [false; 3]);
        tags.free();
        assert_eq!((woken(), tags.used), (vec![true, false, false], 28));
        (0..27).for_each(|_| tags.free());
        assert_eq!(woken(), [true; 3]);
        let last = Rc::new(Sleeper { woken: Cell::new(false), signal: Signal::new(&sim) });
        tags.sleepers.push_back(last.clone());
        tags.free();
        assert!(tags.used == 0 && last.woken.get(), "nothing is queued, so nothing would wake it later");
    }

    #[test]
    fn what_went_ahead_is_counted_for_the_request_that_was_inserted_even_after_a_front_merge() {
        let issued = |key, lba, blocks| Note::Issued { key, lba, blocks };
        // 0 is the victim, at sector 100. 1 comes later and is sent first; 2 joins the victim in front, so that the run
        // begins with 2; 3 comes later still and is sent before the run, too.
        let submit = vec![
            vec![Note::Inserted(0)],
            vec![Note::Inserted(1), issued(1, 500, 8)],
            vec![Note::Merged { key: 2, head: 0, back: false, request: false }],
            vec![Note::Inserted(3), issued(3, 900, 8), issued(2, 92, 16)],
            vec![Note::Inserted(4), issued(4, 700, 8)],
        ];
        let sim = Sim::new(Clock::new());
        let watch = Rc::new(Watchdog::new(&sim, Duration::from_secs(10)));
        let disk = Scripted { submit, notes: VecDeque::new(), next: 0 };
        let block = Rc::new(Block::new(&sim, watch, Box::new(disk), 1024));
        let (b, task) = (block.clone(), Task::new("jbd2/x-8", 1));
        let bios: Rc<RefCell<Vec<Rc<Bio>>>> = Rc::default();
        let kept = bios.clone();
        sim.spawn(async move {
            for sector in [100, 500, 92, 900, 700] {
                let (bio, mut plug) = (b.bio(8, None), Plug::default());
                b.submit(&task, &bio, Op::Write, Flags::SYNC, sector, &mut plug, |_, _| ()).await;
                b.unplug(&task, &mut plug).await;
                kept.borrow_mut().push(bio);
            }
        });
        sim.run(&*block, |_| ()).unwrap();
        let last = |i: usize| bios.borrow()[i].last.borrow().clone().unwrap();
        for victim in [0, 2] {
            let ahead = block.ahead(&last(victim));
            assert_eq!(
                (ahead.requests, ahead.older, ahead.younger, ahead.bytes),
                (2, 0, 2, 8192),
                "{victim}"
            );
        }
        assert_eq!(block.ahead(&last(4)).requests, 0);
    }
}

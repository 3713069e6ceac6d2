//! The page cache of one big file, its dirty limits, and the flusher: where background writes come from and what
//! holds a writer back (`spec/bonnie.md` §4).

use super::block::{Bio, Block, PAGE, PAGE_SECTORS, Plug, Task};
use super::journal::{Journal, Meta, OrderedData};
use crate::board::Board;
use crate::sim::{Signal, Sim};
use crate::watchdog::{WaitsFor, Watchdog};
use mmc_sched::{Flags, Op};
use mmc_time::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Pages of one ext4 extent at most, as writeback allocates them (8 MiB).
const EXTENT_PAGES: usize = 2048;
/// Sectors of a block group (128 MiB).
const GROUP: u64 = 262_144;
/// First sector of file data.
const DATA_START: u64 = 278_528;
/// Pages of the largest read-ahead window (128 KiB).
const READ_AHEAD: usize = 32;
/// The flusher looks for old pages this often (dirty_writeback_centisecs) …
const PERIOD: Duration = Duration::from_secs(5);
/// … and writes what is older than this (dirty_expire_centisecs).
const EXPIRE: Duration = Duration::from_secs(30);
/// Longest pause of a throttled writer.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// The file's inode block.
pub const INODE: Meta = 4232;
const BITMAPS: Meta = 4104;
const DESCRIPTORS: Meta = 8;
const EXTENT_LEAF: Meta = 266_264;
const SUPER: Meta = 0;

/// A run of pages under writeback.
#[derive(Debug)]
struct Writeback {
    bio: Rc<Bio>,
    pages: std::ops::Range<usize>,
    done: Cell<bool>,
    signal: Signal,
}

impl Writeback {
    async fn wait(&self) {
        while !self.done.get() {
            self.signal.wait().await;
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Page {
    cached: bool,
    dirty: bool,
    allocated: bool,
    /// Counts the changes.
    version: u32,
    /// The version on the card.
    stored: u32,
    writeback: Option<Rc<Writeback>>,
    reading: Option<Rc<Bio>>,
}

#[derive(Debug, Default)]
struct File {
    pages: Vec<Page>,
    start: u64,
    dirty: usize,
    dirtied: Option<Instant>,
    /// Where the flusher goes on.
    cursor: usize,
    stamped: Option<Instant>,
    read_ahead: usize,
}

/// Who is writing pages out, and how urgently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Background: pages already under writeback are left alone.
    None,
    /// Somebody waits: they are waited for and written again.
    All,
}

/// The page cache.
#[derive(Debug)]
pub struct Cache {
    sim: Sim,
    board: Board,
    watch: Rc<Watchdog>,
    journal: Rc<Journal>,
    block: Rc<Block>,
    file: RefCell<File>,
    dirty: Cell<usize>,
    /// Most pages that were dirty or under writeback.
    backlog: Cell<usize>,
    writeback: Cell<usize>,
    background: usize,
    limit: usize,
    capacity: usize,
    resident: RefCell<VecDeque<usize>>,
    kick: Signal,
    conversions: RefCell<VecDeque<Rc<Writeback>>>,
    convert: Signal,
    /// Estimated pages written per second.
    bandwidth: Cell<u64>,
    written: Cell<u64>,
    measured: Cell<(Instant, u64)>,
    corrupt: RefCell<Option<String>>,
    verified: Cell<u64>,
}

/// Bytes at the head of each sector that say which sector of which version it is.
pub const STAMP: usize = 16;

/// Stamps every sector of a page whose first is `sector`.
fn stamp(page: &mut [u8], sector: u64, version: u32) {
    for (at, block) in (sector..).zip(page.chunks_mut(512)) {
        if let Some(head) = block.first_chunk_mut::<STAMP>() {
            head[..8].copy_from_slice(&at.to_le_bytes());
            head[8..12].copy_from_slice(&version.to_le_bytes());
            head[12..].copy_from_slice(b"page");
        }
    }
}

/// Whether every sector of `page` bears the stamp of that version.
#[must_use]
pub fn is_stamped(page: &[u8], sector: u64, version: u32) -> bool {
    let mut wanted = [0; STAMP];
    (sector..).zip(page.chunks(512)).all(|(at, block)| {
        stamp(&mut wanted, at, version);
        block.starts_with(&wanted)
    })
}

/// Where page `i` of a file that starts at `start` lies: groups 1, 3, 5, 7, 9 begin with 8 MiB of metadata.
fn place(start: u64, i: usize) -> u64 {
    let mut at = start + i as u64 * u64::from(PAGE_SECTORS);
    let mut group = start / GROUP + 1;
    while group <= at / GROUP {
        if matches!(group, 1 | 3 | 5 | 7 | 9) {
            at += 16_384;
        }
        group += 1;
    }
    at
}

impl Cache {
    /// An empty cache for a file of `pages`.
    #[must_use]
    pub fn new(
        sim: &Sim,
        board: Board,
        watch: Rc<Watchdog>,
        journal: Rc<Journal>,
        block: Rc<Block>,
    ) -> Rc<Self> {
        let pages = |bytes: u64| usize::try_from(bytes / PAGE as u64).unwrap_or(usize::MAX);
        let dirtyable = pages(board.dirtyable());
        let [background, limit] = board.dirty_limits().map(pages);
        let cache = Rc::new(Self {
            sim: sim.clone(),
            board,
            watch,
            journal,
            block: block.clone(),
            file: RefCell::default(),
            dirty: Cell::new(0),
            backlog: Cell::new(0),
            writeback: Cell::new(0),
            background,
            limit,
            capacity: dirtyable,
            resident: RefCell::default(),
            kick: Signal::new(sim),
            conversions: RefCell::default(),
            convert: Signal::new(sim),
            bandwidth: Cell::new(25_600),
            written: Cell::new(0),
            measured: Cell::default(),
            corrupt: RefCell::default(),
            verified: Cell::new(0),
        });
        let look = Rc::downgrade(&cache);
        block.on_read(move |sector, bytes| {
            if let Some(c) = look.upgrade() {
                c.verify(sector, bytes);
            }
        });
        cache
    }

    /// Most bytes that were dirty or on their way to the card at one time.
    #[must_use]
    pub fn backlog(&self) -> u64 {
        (self.backlog.get() * PAGE) as u64
    }
    /// The first page that did not read back as written, if there was one.
    #[must_use]
    pub fn corrupt(&self) -> Option<String> {
        self.corrupt.borrow().clone()
    }
    /// Pages that were read back and compared.
    #[must_use]
    pub fn verified(&self) -> u64 {
        self.verified.get()
    }
    /// All pages of the file that were ever stored: first sector and version.
    #[must_use]
    pub fn expected(&self) -> Vec<(u64, u32)> {
        let f = self.file.borrow();
        let pages = f.pages.iter().enumerate().filter(|(_, p)| p.stored > 0);
        pages.map(|(i, p)| (place(f.start, i), p.stored)).collect()
    }
    fn verify(&self, sector: u64, bytes: &[u8]) {
        let f = self.file.borrow();
        for (k, page) in bytes.chunks(PAGE).enumerate() {
            let at = sector + k as u64 * u64::from(PAGE_SECTORS);
            let Some(i) = self.page_at(&f, at) else { continue };
            if f.pages[i].stored > 0 {
                if !is_stamped(page, at, f.pages[i].stored) {
                    self.corrupt
                        .borrow_mut()
                        .get_or_insert(format!("sector {at} did not read back as written"));
                }
                self.verified.set(self.verified.get() + 1);
            }
        }
    }
    fn page_at(&self, f: &File, sector: u64) -> Option<usize> {
        let guess = usize::try_from(sector.checked_sub(f.start)? / u64::from(PAGE_SECTORS)).ok()?;
        let (mut lo, mut hi) = (guess.saturating_sub(5 * EXTENT_PAGES), guess.min(f.pages.len()));
        while lo < hi {
            let mid = usize::midpoint(lo, hi);
            if place(f.start, mid) < sector { lo = mid + 1 } else { hi = mid }
        }
        (lo < f.pages.len() && place(f.start, lo) == sector).then_some(lo)
    }

    /// Replaces the file by a new, empty one of `pages` pages: dirty pages are dropped, pages under writeback
    /// are waited for, one by one.
    pub async fn recreate(&self, task: &Task, pages: usize) {
        let old: Vec<Rc<Writeback>> =
            self.file.borrow().pages.iter().filter_map(|p| p.writeback.clone()).collect();
        for w in old {
            if !w.done.get() {
                self.watch.sleep(task, WaitsFor::Page(w.bio.clone()), w.wait()).await;
            }
        }
        let mut f = self.file.borrow_mut();
        self.dirty.set(self.dirty.get() - f.dirty);
        let end = if f.pages.is_empty() { DATA_START } else { place(f.start, f.pages.len()) };
        let start = end.next_multiple_of(16_384);
        *f = File { pages: vec![Page::default(); pages], start, ..File::default() };
        self.resident.borrow_mut().clear();
    }

    /// Time stamp of the inode: once per tick a write changes it, which needs write access to the inode block.
    async fn touch(&self, task: &Task) {
        let now = self.sim.now();
        let fresh = self.file.borrow().stamped.is_some_and(|t| now.since(t) < self.board.tick);
        if !fresh {
            let h = self.journal.start(&self.watch, task).await;
            self.journal.write_access(&self.watch, task, INODE, "inode block").await;
            self.journal.stop(h);
            self.file.borrow_mut().stamped = Some(self.sim.now());
        }
    }

    fn insert(&self, f: &mut File, i: usize) {
        if f.pages[i].cached {
            return;
        }
        f.pages[i].cached = true;
        let mut resident = self.resident.borrow_mut();
        resident.push_back(i);
        // Reclaim: oldest clean pages first.
        let mut tries = resident.len().min(4096);
        while resident.len() > self.capacity && tries > 0 {
            tries -= 1;
            if let Some(old) = resident.pop_front() {
                let p = &mut f.pages[old];
                if p.dirty || p.writeback.is_some() || p.reading.is_some() || old == i {
                    resident.push_back(old);
                } else {
                    p.cached = false;
                }
            }
        }
    }

    /// Writes pages `from..to` into the cache (no processor time, no throttling).
    pub async fn write(&self, task: &Task, from: usize, to: usize) {
        self.touch(task).await;
        let mut f = self.file.borrow_mut();
        for i in from..to {
            self.insert(&mut f, i);
            let p = &mut f.pages[i];
            p.version += 1;
            if !p.dirty {
                p.dirty = true;
                f.dirty += 1;
                self.dirty.set(self.dirty.get() + 1);
            }
        }
        self.backlog.set(self.backlog.get().max(self.dirty.get() + self.writeback.get()));
        if f.dirtied.is_none() {
            f.dirtied = Some(self.sim.now());
        }
    }

    /// Holds a writer back that just dirtied `pages`, so that dirty pages stay below the limit
    /// (`balance_dirty_pages`).
    pub async fn balance(&self, pages: usize) {
        let free_run = usize::midpoint(self.background, self.limit);
        loop {
            if self.dirty.get() > self.background {
                self.kick.notify();
            }
            let dirty = self.dirty.get() + self.writeback.get();
            if dirty <= free_run {
                return;
            }
            if dirty >= self.limit {
                self.sim.sleep(MAX_PAUSE).await;
                continue;
            }
            let setpoint = usize::midpoint(free_run, self.limit) as i64;
            let span = (self.limit as i64 - setpoint).max(1);
            // 1 + ((setpoint - dirty) / (limit - setpoint))^3 in 1/1024.
            let x = (setpoint - dirty as i64) * 1024 / span;
            let ratio = (1024 + x * x / 1024 * x / 1024).clamp(16, 2048).unsigned_abs();
            let rate = (self.bandwidth.get() * ratio / 1024).max(1);
            let pause = Duration::from_nanos((pages as u64 * 1_000_000_000) / rate).min(MAX_PAUSE);
            self.sim.sleep(pause).await;
            return;
        }
    }

    /// Whether reading page `i` needs more than a look into memory.
    #[must_use]
    pub fn must_wait(&self, i: usize) -> bool {
        let ahead = self.file.borrow().read_ahead;
        !self.present(i) || (ahead >= i && ahead - i <= READ_AHEAD)
    }

    /// Whether page `i` is in memory.
    fn present(&self, i: usize) -> bool {
        let f = self.file.borrow();
        f.pages[i].cached && f.pages[i].reading.is_none()
    }

    /// Reads page `i`: out of the cache or with read-ahead from the card.
    pub async fn read(self: &Rc<Self>, task: &Task, i: usize, sequential: bool) {
        let total = self.file.borrow().pages.len();
        if sequential {
            // Keep one window in flight ahead of the reader.
            let ahead = self.file.borrow().read_ahead;
            if !self.present(i) && !(i..i + READ_AHEAD).contains(&ahead) {
                self.fetch(task, i, (i + READ_AHEAD).min(total), Flags::empty()).await;
                self.file.borrow_mut().read_ahead = i + READ_AHEAD;
            } else if ahead >= i && ahead < total && ahead - i <= READ_AHEAD / 2 && i > 0 {
                self.fetch(task, ahead, (ahead + READ_AHEAD).min(total), Flags::RAHEAD).await;
                self.file.borrow_mut().read_ahead = ahead + READ_AHEAD;
            }
        }
        if !self.file.borrow().pages[i].cached {
            self.fetch(task, i, (i + 1).min(total), Flags::empty()).await;
        }
        let reading = self.file.borrow().pages[i].reading.clone();
        if let Some(bio) = reading {
            self.watch.sleep(task, WaitsFor::Page(bio.clone()), bio.wait()).await;
        }
    }

    /// Submits reads for the pages of `from..to` that are not in memory.
    async fn fetch(self: &Rc<Self>, task: &Task, from: usize, to: usize, flags: Flags) {
        let (mut plug, mut at) = (Plug::default(), from);
        while let Some((bio, sector, end)) = self.next_missing(at, to) {
            self.block.submit(task, &bio, Op::Read, flags, sector, &mut plug, |_, _| ()).await;
            at = end;
        }
        self.block.unplug(task, &mut plug).await;
    }

    /// The next run of pages in `from..to` that must come from the card, marked as being read: its bio, its first
    /// sector and its end. Pages that were never written are in memory at once.
    fn next_missing(self: &Rc<Self>, from: usize, to: usize) -> Option<(Rc<Bio>, u64, usize)> {
        let mut f = self.file.borrow_mut();
        let mut first = from;
        while first < to && (f.pages[first].cached || !f.pages[first].allocated) {
            self.insert(&mut f, first);
            first += 1;
        }
        if first == to {
            return None;
        }
        let (sector, mut end) = (place(f.start, first), first);
        while end < to
            && !f.pages[end].cached
            && f.pages[end].allocated
            && place(f.start, end) == sector + (end - first) as u64 * u64::from(PAGE_SECTORS)
        {
            self.insert(&mut f, end);
            end += 1;
        }
        let me = Rc::downgrade(self);
        let arrived = move || {
            if let Some(c) = me.upgrade() {
                c.file.borrow_mut().pages[first..end].iter_mut().for_each(|p| p.reading = None);
            }
        };
        let bio = self.block.bio((end - first) as u32 * PAGE_SECTORS, Some(Box::new(arrived)));
        for p in &mut f.pages[first..end] {
            p.reading = Some(bio.clone());
        }
        Some((bio, sector, end))
    }
}

/// Writing pages out.
impl Cache {
    /// Takes the next run of dirty pages in `from..to` that lie together on the card: at most an extent if
    /// blocks must be allocated. `None`: there is none.
    fn next_run(&self, from: usize, to: usize, mode: Mode) -> Option<std::ops::Range<usize>> {
        let f = self.file.borrow();
        let to = to.min(f.pages.len());
        let wanted = |p: &Page| p.dirty && (mode == Mode::All || p.writeback.is_none());
        let first = (from..to).find(|&i| wanted(&f.pages[i]))?;
        let (allocated, at) = (f.pages[first].allocated, place(f.start, first));
        let longest = if allocated { 32 * EXTENT_PAGES } else { EXTENT_PAGES };
        let mut end = first;
        while end < to
            && end - first < longest
            && wanted(&f.pages[end])
            && f.pages[end].allocated == allocated
            && place(f.start, end) == at + (end - first) as u64 * u64::from(PAGE_SECTORS)
        {
            end += 1;
        }
        Some(first..end)
    }

    /// Writes out dirty pages of `from..to`, at most about `budget` of them; the number written.
    async fn write_range(
        self: &Rc<Self>,
        task: &Task,
        from: usize,
        to: usize,
        budget: usize,
        mode: Mode,
    ) -> usize {
        let mut plug = Plug::default();
        let (mut at, mut wrote) = (from, 0);
        while wrote < budget {
            let limit = to.min(at.saturating_add(budget - wrote).max(at + 1));
            let run = match self.next_run(at, limit, mode) {
                Some(run) => run,
                // Nothing dirty so near: look further on.
                None => match self.next_run(limit, to, mode) {
                    Some(run) => run.start..run.end.min(run.start + (budget - wrote)),
                    None => break,
                },
            };
            // Pages whose earlier contents are still on their way are waited for (only Mode::All finds such).
            let busy: Vec<_> =
                self.file.borrow().pages[run.clone()].iter().filter_map(|p| p.writeback.clone()).collect();
            for w in busy {
                if !w.done.get() {
                    self.watch.sleep(task, WaitsFor::Page(w.bio.clone()), w.wait()).await;
                }
            }
            let (allocated, sector) = {
                let f = self.file.borrow();
                (f.pages[run.start].allocated, place(f.start, run.start))
            };
            if !allocated {
                self.allocate(task, sector).await;
            }
            // What the run looks like now: the wait may have let others change it.
            let still = |p: &Page| p.dirty && p.writeback.is_none() && p.allocated == allocated;
            let len = self.file.borrow().pages[run.clone()].iter().take_while(|p| still(p)).count();
            let run = run.start..run.start + len;
            if run.is_empty() {
                at = run.start + 1;
                continue;
            }
            self.write_run(task, run.clone(), sector, !allocated, mode, &mut plug).await;
            wrote += run.len();
            at = run.end;
            if mode == Mode::None {
                self.file.borrow_mut().cursor = at;
            }
        }
        self.block.unplug(task, &mut plug).await;
        wrote
    }

    /// Allocates the blocks of one extent: bitmap, group descriptors, inode, extent leaf and super block change.
    async fn allocate(&self, task: &Task, sector: u64) {
        let h = self.journal.start(&self.watch, task).await;
        let bitmap = BITMAPS + sector / GROUP * u64::from(PAGE_SECTORS);
        for (block, what) in [
            (bitmap, "block bitmap"),
            (DESCRIPTORS, "group descriptors"),
            (INODE, "inode block"),
            (EXTENT_LEAF, "extent block"),
            (SUPER, "super block"),
        ] {
            self.journal.write_access(&self.watch, task, block, what).await;
        }
        self.journal.add_data();
        self.journal.stop(h);
    }

    async fn write_run(
        self: &Rc<Self>,
        task: &Task,
        run: std::ops::Range<usize>,
        sector: u64,
        fresh: bool,
        mode: Mode,
        plug: &mut Plug,
    ) {
        let n = run.len();
        let wb: Rc<RefCell<Option<Rc<Writeback>>>> = Rc::default();
        let versions = Rc::new(RefCell::new(vec![0_u32; n]));
        let convert = fresh && !self.board.ordered;
        let done = {
            let (me, wb, versions) = (Rc::downgrade(self), wb.clone(), versions.clone());
            move || {
                let (Some(c), Some(w)) = (me.upgrade(), wb.borrow().clone()) else { return };
                let start = w.pages.start;
                for (k, v) in versions.borrow().iter().enumerate() {
                    c.file.borrow_mut().pages[start + k].stored = *v;
                }
                c.written.set(c.written.get() + w.pages.len() as u64);
                if convert {
                    c.conversions.borrow_mut().push_back(w);
                    c.convert.notify();
                } else {
                    c.end_writeback(&w);
                }
            }
        };
        let bio = self.block.bio(n as u32 * PAGE_SECTORS, Some(Box::new(done)));
        let w = Rc::new(Writeback {
            bio: bio.clone(),
            pages: run.clone(),
            done: Cell::new(false),
            signal: Signal::new(&self.sim),
        });
        *wb.borrow_mut() = Some(w.clone());
        {
            let mut f = self.file.borrow_mut();
            for p in &mut f.pages[run.clone()] {
                p.dirty = false;
                p.allocated = true;
                p.writeback = Some(w.clone());
            }
            f.dirty -= n;
            if f.dirty == 0 {
                f.dirtied = None;
            }
        }
        self.dirty.set(self.dirty.get() - n);
        self.writeback.set(self.writeback.get() + n);
        let flags = if mode == Mode::All { Flags::SYNC } else { Flags::empty() };
        let fill = |offset: usize, buf: &mut [u8]| {
            let f = self.file.borrow();
            for (k, page) in buf.chunks_mut(PAGE).enumerate() {
                let i = offset / PAGE + k;
                let version = f.pages[run.start + i].version;
                versions.borrow_mut()[i] = version;
                stamp(page, sector + i as u64 * u64::from(PAGE_SECTORS), version);
            }
        };
        self.block.submit(task, &bio, Op::Write, flags, sector, plug, fill).await;
    }

    fn end_writeback(&self, w: &Rc<Writeback>) {
        let mut f = self.file.borrow_mut();
        for p in &mut f.pages[w.pages.clone()] {
            p.writeback = None;
        }
        self.writeback.set(self.writeback.get() - w.pages.len());
        w.done.set(true);
        w.signal.notify();
        // Bandwidth: an average over about 3 s, taken every 200 ms at the most.
        let (at, before) = self.measured.get();
        let (now, elapsed) = (self.sim.now(), self.sim.now().since(at).as_millis());
        if elapsed >= 200 {
            let pages = self.written.get() - before;
            let period = 3_000_u64.max(elapsed);
            let bw = (pages * 1000 + self.bandwidth.get() * (period - elapsed)) / period;
            self.bandwidth.set(bw.max(1));
            self.measured.set((now, self.written.get()));
        }
    }

    /// The worker that turns unwritten extents into written ones after their data are on the card; never ends.
    pub async fn converter(self: Rc<Self>, me: Task) {
        loop {
            let next = self.conversions.borrow_mut().pop_front();
            let Some(w) = next else {
                self.convert.wait().await;
                continue;
            };
            let h = self.journal.start(&self.watch, &me).await;
            self.journal.write_access(&self.watch, &me, INODE, "inode block").await;
            self.journal.write_access(&self.watch, &me, EXTENT_LEAF, "extent block").await;
            self.journal.stop(h);
            self.end_writeback(&w);
        }
    }

    /// The flusher; never ends.
    pub async fn flusher(self: Rc<Self>, me: Task) {
        let mut next_look = self.sim.now() + PERIOD;
        loop {
            let (now, expired) = (self.sim.now(), {
                let f = self.file.borrow();
                f.dirtied.is_some_and(|t| self.sim.now().since(t) >= EXPIRE)
            });
            let periodic = now >= next_look;
            if periodic {
                next_look = now + PERIOD;
                self.write_metadata(&me, EXPIRE, Flags::META, false).await;
            }
            if self.dirty.get() > self.background || (periodic && expired) {
                self.background(&me, expired).await;
                continue;
            }
            self.kick.wait_until(next_look).await;
        }
    }

    /// Writes chunks of the file until it is clean enough.
    async fn background(self: &Rc<Self>, me: &Task, all: bool) {
        let began = self.sim.now();
        loop {
            // MIN_WRITEBACK_PAGES is 4 MiB: half the bandwidth or an eighth of the limit, and 4 MiB, rounded down.
            let bandwidth = usize::try_from(self.bandwidth.get()).unwrap_or(usize::MAX);
            let chunk = ((bandwidth / 2).min(self.limit / 8) + 1024) / 1024 * 1024;
            let (cursor, len) = (self.file.borrow().cursor, self.file.borrow().pages.len());
            let mut wrote = self.write_range(me, cursor, len, chunk, Mode::None).await;
            if wrote < chunk {
                self.file.borrow_mut().cursor = 0;
                wrote += self.write_range(me, 0, cursor, chunk - wrote, Mode::None).await;
            }
            let dirty = self.dirty.get();
            let old = self.file.borrow().dirtied.is_some_and(|t| t <= began);
            if wrote == 0 || (dirty <= self.background && !(all && old && dirty > 0)) {
                if dirty > 0 && all {
                    self.file.borrow_mut().dirtied = Some(self.sim.now());
                }
                return;
            }
        }
    }

    /// Writes metadata in place that has been in the journal for at least `age`; waits for it if asked.
    pub async fn write_metadata(&self, task: &Task, age: Duration, flags: Flags, wait: bool) {
        let now = self.sim.now();
        let due: Vec<Meta> = {
            let mut c = self.journal.checkpoint.borrow_mut();
            let due: Vec<Meta> = c.iter().filter(|(_, t)| now.since(**t) >= age).map(|(b, _)| *b).collect();
            c.retain(|b, _| due.binary_search(b).is_err());
            due
        };
        let (mut plug, mut bios) = (Plug::default(), Vec::new());
        for b in due {
            let bio = self.block.bio(PAGE_SECTORS, None);
            let fill = move |_: usize, buf: &mut [u8]| buf.fill(b.to_le_bytes()[0]);
            self.block.submit(task, &bio, Op::Write, flags, b, &mut plug, fill).await;
            bios.push(bio);
        }
        self.block.unplug(task, &mut plug).await;
        if wait {
            for bio in bios {
                self.watch.sleep(task, WaitsFor::Page(bio.clone()), bio.wait()).await;
            }
        }
    }

    /// `fsync`: all dirty pages out, each waited for in file order, then the commit.
    pub async fn fsync(self: &Rc<Self>, task: &Task) {
        self.write_and_wait(task, task).await;
        self.journal.force(&self.watch, task).await;
    }

    /// `sync`: the flusher writes the file's data, the caller waits for the pages, the commit, and the metadata.
    pub async fn sync(self: &Rc<Self>, task: &Task, flusher: &Task) {
        self.write_and_wait(task, flusher).await;
        self.journal.force(&self.watch, task).await;
        self.write_metadata(task, Duration::ZERO, Flags::SYNC | Flags::META, true).await;
    }

    async fn write_and_wait(self: &Rc<Self>, task: &Task, writer: &Task) {
        let len = self.file.borrow().pages.len();
        self.write_range(writer, 0, len, usize::MAX, Mode::All).await;
        let mut i = 0;
        while i < len {
            let w = self.file.borrow().pages[i].writeback.clone();
            match w {
                Some(w) if !w.done.get() => {
                    self.watch.sleep(task, WaitsFor::Page(w.bio.clone()), w.wait()).await;
                }
                _ => i += 1,
            }
        }
    }
}

impl OrderedData for Cache {
    fn under_writeback(&self) -> Vec<Rc<Bio>> {
        let f = self.file.borrow();
        let mut out: Vec<Rc<Bio>> = Vec::new();
        for w in f.pages.iter().filter_map(|p| p.writeback.as_ref()) {
            if !out.last().is_some_and(|b| Rc::ptr_eq(b, &w.bio)) {
                out.push(w.bio.clone());
            }
        }
        out
    }
}

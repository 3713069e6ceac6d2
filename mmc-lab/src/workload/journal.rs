//! An ext4-like journal: a running transaction, a commit every 5 s or when somebody asks, and the rule that makes
//! a slow journal write everybody's problem — who must change a metadata buffer that a commit is writing waits for
//! that write.

use super::block::{Block, PAGE, PAGE_SECTORS, Plug, Task};
use crate::sim::{Signal, Sim};
use crate::watchdog::{WaitsFor, Watchdog};
use crate::workload::block::Bio;
use mmc_sched::{Flags, Op};
use mmc_time::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A metadata block of the file system, by its first sector.
pub type Meta = u64;

/// First sector of the journal: the middle of a 4 GiB card, as in the measured runs (`spec/stall-measured.md`).
pub const JOURNAL_START: u64 = 3_932_160;
/// Sectors of the journal (64 MiB).
pub const JOURNAL_SECTORS: u64 = 131_072;
/// Age of a transaction at which it is committed (JBD2_DEFAULT_MAX_COMMIT_AGE).
pub const COMMIT_AGE: Duration = Duration::from_secs(5);
/// Metadata blocks that one descriptor block describes (64-bit checksummed tags of 16 bytes).
const TAGS: usize = 254;

#[derive(Debug, Default)]
struct Transaction {
    blocks: BTreeSet<Meta>,
    /// When its first handle started.
    began: Option<Instant>,
    /// File data was newly allocated in it.
    data: bool,
}

/// One commit, for statistics.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// From the lock.
    pub from: Instant,
    /// To the commit block on the card.
    pub to: Instant,
}

/// What the journal asks of the page cache before it writes a transaction whose data are ordered.
pub trait OrderedData {
    /// Data bios that were submitted and have not completed, in file order.
    fn under_writeback(&self) -> Vec<Rc<Bio>>;
}

/// The journal.
#[derive(Debug)]
pub struct Journal {
    sim: Sim,
    running: RefCell<Transaction>,
    /// Number of the running transaction.
    tid: Cell<u64>,
    /// Highest committed one.
    committed: Cell<u64>,
    asked: Cell<u64>,
    locked: Cell<bool>,
    handles: Cell<u32>,
    /// Buffers being written by the commit.
    shadow: RefCell<BTreeMap<Meta, Rc<Bio>>>,
    current: RefCell<Option<Rc<Bio>>>,
    changed: Signal,
    head: Cell<u64>,
    ordered: bool,
    commits: RefCell<Vec<Commit>>,
    /// Metadata that is in the journal and must be written in place one day: since when.
    pub checkpoint: RefCell<BTreeMap<Meta, Instant>>,
}

/// An open handle; give it to [`Journal::stop`].
#[derive(Debug)]
#[must_use]
pub struct Handle(());

impl Journal {
    /// An empty journal; `ordered`: `data=ordered` waits for data before a commit.
    #[must_use]
    pub fn new(sim: &Sim, ordered: bool) -> Self {
        Self {
            sim: sim.clone(),
            running: RefCell::default(),
            tid: Cell::new(1),
            committed: Cell::new(0),
            asked: Cell::new(0),
            locked: Cell::new(false),
            handles: Cell::new(0),
            shadow: RefCell::default(),
            current: RefCell::default(),
            changed: Signal::new(sim),
            head: Cell::new(0),
            ordered,
            commits: RefCell::default(),
            checkpoint: RefCell::default(),
        }
    }
    /// The commits so far.
    #[must_use]
    pub fn commits(&self) -> Vec<Commit> {
        self.commits.borrow().clone()
    }
    /// Opens a handle in the running transaction; waits while that is locked.
    pub async fn start(&self, watch: &Watchdog, task: &Task) -> Handle {
        if self.locked.get() {
            let unlocked = async {
                while self.locked.get() {
                    self.changed.wait().await;
                }
            };
            watch.sleep(task, WaitsFor::Transaction, unlocked).await;
        }
        self.handles.set(self.handles.get() + 1);
        let mut t = self.running.borrow_mut();
        if t.began.is_none() {
            t.began = Some(self.sim.now());
            self.changed.notify();
        }
        Handle(())
    }
    /// Gets the right to change a metadata block and adds it to the running transaction; waits while the commit
    /// is writing that block.
    pub async fn write_access(&self, watch: &Watchdog, task: &Task, block: Meta, what: &'static str) {
        let busy = self.shadow.borrow().get(&block).cloned();
        if let Some(io) = busy {
            let free = async {
                while self.shadow.borrow().contains_key(&block) {
                    self.changed.wait().await;
                }
            };
            watch.sleep(task, WaitsFor::Buffer { what, io: Some(io) }, free).await;
        }
        self.running.borrow_mut().blocks.insert(block);
    }
    /// Says that the handle's transaction has file data that must be written first.
    pub fn add_data(&self) {
        self.running.borrow_mut().data = true;
    }
    /// Closes a handle.
    pub fn stop(&self, _: Handle) {
        self.handles.set(self.handles.get() - 1);
        if self.handles.get() == 0 {
            self.changed.notify();
        }
    }
    /// Whether the running transaction holds anything.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.running.borrow().began.is_some()
    }
    /// Whether a handle would have to wait.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked.get()
    }
    /// Asks for a commit of all that happened so far and waits for its end (`fsync`, `sync`).
    pub async fn force(&self, watch: &Watchdog, task: &Task) {
        let target = if self.is_dirty() { self.tid.get() } else { self.tid.get() - 1 };
        self.asked.set(self.asked.get().max(target));
        self.changed.notify();
        while self.committed.get() < target {
            // The commit writes one thing after another: each is a sleep of its own.
            let io = self.current.borrow().clone();
            let before = self.committed.get();
            let moved = async {
                while self.committed.get() == before
                    && self.committed.get() < target
                    && same(&self.current.borrow(), &io)
                {
                    self.changed.wait().await;
                }
            };
            watch.sleep(task, WaitsFor::Commit(io.clone()), moved).await;
        }
    }

    /// The journal thread; never ends.
    pub async fn thread(
        self: Rc<Self>,
        me: Task,
        watch: Rc<Watchdog>,
        block: Rc<Block>,
        data: Rc<dyn OrderedData>,
    ) {
        loop {
            loop {
                let began = self.running.borrow().began;
                let due = match began {
                    Some(_) if self.asked.get() >= self.tid.get() => Instant::ZERO,
                    Some(t) => t + COMMIT_AGE,
                    None => Instant::NEVER,
                };
                if self.sim.now() >= due {
                    break;
                }
                self.changed.wait_until(due).await;
            }
            self.commit(&me, &watch, &block, &*data).await;
        }
    }

    fn set_current(&self, io: Option<Rc<Bio>>) {
        *self.current.borrow_mut() = io;
        self.changed.notify();
    }

    async fn write_block(&self, me: &Task, block: &Block, plug: &mut Plug, tag: u64) -> Rc<Bio> {
        let sector = JOURNAL_START + self.head.get();
        self.head.set((self.head.get() + u64::from(PAGE_SECTORS)) % JOURNAL_SECTORS);
        let fill = move |_: usize, b: &mut [u8]| {
            b[..8].copy_from_slice(&tag.to_le_bytes());
            b[8..].fill(0);
        };
        debug_assert_eq!(PAGE, 512 * PAGE_SECTORS as usize);
        let bio = block.bio(PAGE_SECTORS, None);
        block.submit(me, &bio, Op::Write, Flags::SYNC, sector, plug, fill).await;
        bio
    }

    async fn commit(&self, me: &Task, watch: &Watchdog, block: &Block, data: &dyn OrderedData) {
        let from = self.sim.now();
        self.locked.set(true);
        while self.handles.get() > 0 {
            self.changed.wait().await;
        }
        let t = self.running.take();
        self.tid.set(self.tid.get() + 1);
        self.locked.set(false);
        self.changed.notify();
        if self.ordered && t.data {
            for bio in data.under_writeback() {
                watch.sleep(me, WaitsFor::Page(bio.clone()), bio.wait()).await;
            }
        }
        let mut plug = Plug::default();
        let mut written: Vec<(Option<Meta>, Rc<Bio>)> = Vec::new();
        for (i, &b) in t.blocks.iter().enumerate() {
            if i % TAGS == 0 {
                written.push((None, self.write_block(me, block, &mut plug, 0).await));
            }
            let bio = self.write_block(me, block, &mut plug, b).await;
            self.shadow.borrow_mut().insert(b, bio.clone());
            written.push((Some(b), bio));
        }
        block.unplug(me, &mut plug).await;
        for (meta, bio) in written {
            self.set_current(Some(bio.clone()));
            watch.sleep(me, WaitsFor::JournalWrite(bio.clone()), bio.wait()).await;
            if let Some(b) = meta {
                self.shadow.borrow_mut().remove(&b);
                self.checkpoint.borrow_mut().entry(b).or_insert(self.sim.now());
            }
        }
        self.changed.notify();
        // The commit block: PREFLUSH | FUA, which the disk strips on a card without a cache.
        let sector = JOURNAL_START + self.head.get();
        self.head.set((self.head.get() + u64::from(PAGE_SECTORS)) % JOURNAL_SECTORS);
        let flags = Flags::SYNC | Flags::PREFLUSH | Flags::FUA;
        let fill = |_: usize, b: &mut [u8]| b.fill(0xc0);
        let bio = block.bio(PAGE_SECTORS, None);
        block.submit(me, &bio, Op::Write, flags, sector, &mut plug, fill).await;
        block.unplug(me, &mut plug).await;
        self.set_current(Some(bio.clone()));
        watch.sleep(me, WaitsFor::JournalWrite(bio.clone()), bio.wait()).await;
        self.committed.set(self.tid.get() - 1);
        self.commits.borrow_mut().push(Commit { from, to: self.sim.now() });
        self.set_current(None);
    }
}

fn same(a: &Option<Rc<Bio>>, b: &Option<Rc<Bio>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Rc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

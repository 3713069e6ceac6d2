//! bonnie++'s twelve phases, with the file system behaviour behind them (`spec/bonnie.md` §2).

use super::block::{PAGE, Task};
use super::cache::{Cache, INODE};
use super::journal::{Journal, Meta};
use crate::board::{Board, Bonnie};
use crate::sim::{Signal, Sim};
use crate::watchdog::Watchdog;
use mmc_time::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const CHUNK: usize = 8192;
const CHUNK_PAGES: usize = CHUNK / PAGE;
/// Names of the phases, as they are keys in the JSON and fields in the CSV.
pub const PHASES: [&str; 12] = [
    "putc",
    "put_block",
    "rewrite",
    "getc",
    "get_block",
    "seeks",
    "seq_create",
    "seq_stat",
    "seq_del",
    "ran_create",
    "ran_stat",
    "ran_del",
];

/// What a phase measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Phase {
    /// Work done: KiB of the data phases, seeks, files.
    pub work: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Of that on the processor.
    pub cpu: Duration,
    /// Longest single operation.
    pub latency: Duration,
}

impl Phase {
    /// Work per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let s = self.elapsed.as_nanos() as f64 / 1e9;
        if s > 0.0 { self.work as f64 / s } else { 0.0 }
    }
}

/// Seek processes and how many seeks they do together.
#[must_use]
pub fn seekers(version: Bonnie) -> (u32, u64) {
    match version {
        Bonnie::V1_03 => (3, 8000),
        Bonnie::V2_00 => (5, 8192),
    }
}

/// A deterministic generator (splitmix64).
#[derive(Debug)]
pub struct Random(Cell<u64>);

impl Random {
    /// Seeded.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }
    /// The next number below `n` (`n` > 0).
    pub fn below(&self, n: u64) -> u64 {
        let s = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(s);
        let z = (s ^ (s >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(n)) >> 64) as u64
    }
}

/// The benchmark and all it runs on.
#[derive(Debug)]
pub struct Bench {
    /// The simulator.
    pub sim: Sim,
    /// The board.
    pub board: Board,
    /// The page cache.
    pub cache: Rc<Cache>,
    /// The journal.
    pub journal: Rc<Journal>,
    /// The watchdog.
    pub watch: Rc<Watchdog>,
    /// The flusher's identity (for `sync`).
    pub flusher: Task,
    /// Random numbers.
    pub random: Random,
    /// What was measured so far, in the order of [`PHASES`]; `None`: not run.
    pub phases: RefCell<[Option<Phase>; 12]>,
    /// Index of the phase that runs now, for a progress display.
    pub now: Cell<usize>,
}

/// Processor time that was spent but not yet slept.
struct Cpu<'a> {
    sim: &'a Sim,
    owed: Duration,
    spent: Duration,
}

impl Cpu<'_> {
    fn spend(&mut self, d: Duration) {
        self.owed += d;
        self.spent += d;
    }
    async fn settle(&mut self) {
        if self.owed > Duration::ZERO {
            self.sim.sleep(std::mem::take(&mut self.owed)).await;
        }
    }
    fn now(&self) -> Instant {
        self.sim.now() + self.owed
    }
}

/// What one pass over the file does with each piece.
#[derive(Clone, Copy)]
struct Pass {
    piece: usize,
    cost: Duration,
    read: bool,
    write: bool,
}

impl Bench {
    fn kib(&self) -> u64 {
        self.board.size / 1024
    }
    fn pages(&self) -> usize {
        usize::try_from(self.board.size / PAGE as u64).unwrap_or(usize::MAX)
    }
    fn record(&self, i: usize, phase: Phase) {
        self.phases.borrow_mut()[i] = Some(phase);
    }

    /// All phases, one after another.
    pub async fn run(self: Rc<Self>, me: Task) {
        let b = self.board;
        let block = |cost, read, write| Pass { piece: CHUNK_PAGES, cost, read, write };
        let bytes = Duration::from_nanos(b.cpu.byte.as_nanos().saturating_mul(PAGE as u64));
        if b.per_char {
            self.cache.recreate(&me, self.pages()).await;
            self.pass(&me, 0, Pass { piece: 1, cost: bytes, read: false, write: true }).await;
        }
        self.cache.recreate(&me, self.pages()).await;
        self.pass(&me, 1, block(b.cpu.write_chunk, false, true)).await;
        self.pass(&me, 2, block(b.cpu.write_chunk + b.cpu.read_chunk, true, true)).await;
        if b.per_char {
            self.pass(&me, 3, Pass { piece: 1, cost: bytes, read: true, write: false }).await;
        }
        self.pass(&me, 4, block(b.cpu.read_chunk, true, false)).await;
        self.seeks(&me).await;
        self.files(&me).await;
        self.now.set(PHASES.len());
        self.cache.sync(&me, &self.flusher).await;
    }

    /// One pass over the whole file.
    async fn pass(&self, me: &Task, index: usize, p: Pass) {
        self.now.set(index);
        let (from, pages) = (self.sim.now(), self.pages());
        let mut cpu = Cpu { sim: &self.sim, owed: Duration::ZERO, spent: Duration::ZERO };
        let (mut latency, mut ticked, mut since) = (Duration::ZERO, from, 0);
        for at in (0..pages).step_by(p.piece) {
            let (began, end) = (cpu.now(), (at + p.piece).min(pages));
            cpu.spend(p.cost);
            if p.read {
                for i in at..end {
                    if self.cache.must_wait(i) {
                        cpu.settle().await;
                    }
                    self.cache.read(me, i, true).await;
                }
            }
            if p.write {
                if cpu.now().since(ticked) >= self.board.tick || self.journal.is_locked() {
                    cpu.settle().await;
                    ticked = self.sim.now();
                }
                self.cache.write(me, at, end).await;
                since += end - at;
                if since >= 32 {
                    cpu.settle().await;
                    self.cache.balance(std::mem::take(&mut since)).await;
                }
            }
            latency = latency.max(cpu.now().since(began));
        }
        cpu.settle().await;
        if self.board.bonnie == Bonnie::V2_00 {
            self.cache.fsync(me).await;
        }
        let elapsed = self.sim.now().since(from);
        self.record(index, Phase { work: self.kib(), elapsed, cpu: cpu.spent, latency });
    }

    /// Random seeks by several processes; every tenth also writes.
    async fn seeks(self: &Rc<Self>, me: &Task) {
        self.now.set(5);
        let (seekers, tickets) = seekers(self.board.bonnie);
        if self.board.bonnie == Bonnie::V2_00 {
            self.sim.sleep(Duration::from_secs(3)).await;
        }
        let from = self.sim.now();
        let next = Rc::new(Cell::new(0_u64));
        let left = Rc::new(Cell::new(seekers));
        let (ended, worst) = (Signal::new(&self.sim), Rc::new(Cell::new(Duration::ZERO)));
        let chunks = (self.pages() / CHUNK_PAGES).max(1) as u64;
        for k in 0..seekers {
            let (b, next, left, ended, worst) =
                (self.clone(), next.clone(), left.clone(), ended.clone(), worst.clone());
            let task = Task::new("bonnie++", me.stream.0 + 1 + k);
            self.sim.spawn(async move {
                loop {
                    let ticket = next.get();
                    if ticket >= tickets {
                        break;
                    }
                    next.set(ticket + 1);
                    let began = b.sim.now();
                    let at = b.random.below(chunks) as usize * CHUNK_PAGES;
                    // The seekers share one processor.
                    b.sim.sleep(b.board.cpu.seek.saturating_mul(u64::from(seekers))).await;
                    for i in at..(at + CHUNK_PAGES).min(b.pages()) {
                        b.cache.read(&task, i, false).await;
                    }
                    if ticket % 10 == 0 {
                        b.cache.write(&task, at, (at + CHUNK_PAGES).min(b.pages())).await;
                        b.cache.balance(CHUNK_PAGES).await;
                    }
                    worst.set(worst.get().max(b.sim.now().since(began)));
                }
                if b.board.bonnie == Bonnie::V2_00 {
                    b.cache.fsync(&task).await;
                }
                left.set(left.get() - 1);
                ended.notify();
            });
        }
        while left.get() > 0 {
            ended.wait().await;
        }
        let cpu = self.board.cpu.seek.saturating_mul(tickets);
        self.record(
            5,
            Phase { work: tickets, elapsed: self.sim.now().since(from), cpu, latency: worst.get() },
        );
    }

    /// Create, stat and delete: sequential, then random names.
    async fn files(&self, me: &Task) {
        let n = u64::from(self.board.files_k) * 1024;
        if n == 0 {
            return;
        }
        for random in [false, true] {
            let first = if random { 9 } else { 6 };
            self.file_phase(me, first, n, random, self.board.cpu.create, true).await;
            self.file_phase(me, first + 1, n, random, self.board.cpu.stat, false).await;
            self.file_phase(me, first + 2, n, random, self.board.cpu.delete, true).await;
        }
    }

    async fn file_phase(&self, me: &Task, index: usize, n: u64, random: bool, cost: Duration, change: bool) {
        self.now.set(index);
        let from = self.sim.now();
        let mut cpu = Cpu { sim: &self.sim, owed: Duration::ZERO, spent: Duration::ZERO };
        let mut latency = Duration::ZERO;
        for i in 0..n {
            let began = cpu.now();
            cpu.spend(cost);
            if change {
                if i % 8 == 0 || self.journal.is_locked() {
                    cpu.settle().await;
                }
                // Directory entries are hashed over the directory's blocks whatever the order of the names.
                // 1,000,003 is prime and has no factor in common with n: each file once, in no order.
                let file = if random && index != 9 { i * 1_000_003 % n } else { i };
                self.change_file(me, file, n).await;
            }
            latency = latency.max(cpu.now().since(began));
        }
        cpu.settle().await;
        if change {
            self.cache.sync(me, &self.flusher).await;
        }
        self.record(index, Phase { work: n, elapsed: self.sim.now().since(from), cpu: cpu.spent, latency });
    }

    /// One file is created or deleted: its directory block, inode, inode bitmap and group descriptor change.
    async fn change_file(&self, me: &Task, file: u64, n: u64) {
        const DIRECTORY: Meta = 270_336;
        const INODES: Meta = INODE + 8;
        const INODE_BITMAP: Meta = 4224;
        let directory = (n / 80).max(1);
        let hashed = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let h = self.journal.start(&self.watch, me).await;
        for (block, what) in [
            (DIRECTORY + hashed % directory * 8, "directory block"),
            (INODES + file / 16 * 8, "inode table block"),
            (INODE_BITMAP, "inode bitmap"),
            (8, "group descriptors"),
            (INODE, "inode block"),
        ] {
            self.journal.write_access(&self.watch, me, block, what).await;
        }
        self.journal.stop(h);
    }
}

//! Tasks beside the benchmark that somebody watches: one who types, and a camera that records.
//!
//! They go around the page cache, to an area of the card of their own, so that they wait for the card and for who is before
//! them, and for nothing else.

use super::block::{Block, PAGE_SECTORS, Plug, Task};
use super::bonnie::Random;
use super::journal::{JOURNAL_SECTORS, JOURNAL_START};
use crate::analysis::ClassStats;
use crate::sim::{Signal, Sim};
use crate::stack::CARD_SECTORS;
use crate::watchdog::{WaitsFor, Watchdog};
use mmc_sched::{Flags, Op};
use mmc_time::{Duration, Instant};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Where their area begins: behind the file, the metadata and the journal.
const AREA: u64 = 5_000_000;
/// Sectors of it for each task: 512 MiB.
const ROOM: u64 = 1 << 20;
/// Their area is on the card, and nobody else's.
const _: () = assert!(AREA >= JOURNAL_START + JOURNAL_SECTORS && AREA + 2 * ROOM <= CARD_SECTORS);
/// Between the end of one read of who types and the next.
const THINK: Duration = Duration::from_millis(100);
/// Between two frames of the camera.
const FRAME: Duration = Duration::from_millis(40);
/// Sectors of a frame: 40 KiB, which makes 1 MB/s.
const FRAME_SECTORS: u32 = 80;
/// Frames that its memory holds: one second.
const RING: usize = 25;
/// Frames written at once.
const TOGETHER: usize = 12;

/// What runs beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Every 100 ms a page of a program that is not in memory any more is read, 4 KiB at a random place: who types waits for
    /// it.
    Typing,
    /// 25 frames of 40 KiB a second go into a ring of one second, from which they are written, up to 12 at once, each time
    /// waiting for the card. A frame that finds the ring full is lost.
    Camera,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Typing, Self::Camera];

    /// Its name on the command line, and of its task.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Typing => "typing",
            Self::Camera => "camera",
        }
    }

    /// The loads of a comma list.
    ///
    /// # Errors
    /// One line naming the value and what is accepted.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        for name in text.split(',').map(str::trim) {
            let load = Self::ALL.into_iter().find(|l| l.name() == name).ok_or_else(|| {
                format!("unknown load '{name}': accepted are {}", Self::ALL.map(Self::name).join(", "))
            })?;
            if all.contains(&load) {
                return Err(format!("'{name}' is there twice"));
            }
            all.push(load);
        }
        Ok(all)
    }
}

/// What a load met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// Which.
    pub load: Load,
    /// Of each read, or of each write, from its submission to its end.
    pub waits: ClassStats,
    /// Frames that were recorded, and how many of them were lost; 0 for who types.
    pub frames: (u64, u64),
}

/// One load that runs.
#[derive(Debug)]
pub struct Beside {
    load: Load,
    sim: Sim,
    block: Rc<Block>,
    watch: Rc<Watchdog>,
    task: Task,
    random: Random,
    waits: RefCell<Vec<u64>>,
    /// Frames in memory.
    ring: Cell<usize>,
    filled: Signal,
    frames: Cell<(u64, u64)>,
}

impl Beside {
    /// Starts `load`; it goes on until the simulation ends.
    pub fn start(load: Load, sim: &Sim, block: &Rc<Block>, watch: &Rc<Watchdog>, seed: u64) -> Rc<Self> {
        let beside = Rc::new(Self {
            load,
            sim: sim.clone(),
            block: block.clone(),
            watch: watch.clone(),
            task: Task::new(load.name(), 100 + load as u32),
            random: Random::new(seed ^ 0x00be_51de),
            waits: RefCell::default(),
            ring: Cell::default(),
            filled: Signal::new(sim),
            frames: Cell::default(),
        });
        match load {
            Load::Typing => sim.daemon(beside.clone().types()),
            Load::Camera => {
                sim.daemon(beside.clone().records());
                sim.daemon(beside.clone().writes());
            }
        }
        beside
    }

    /// What it has met so far.
    #[must_use]
    pub fn met(&self) -> Met {
        Met {
            load: self.load,
            waits: ClassStats::of(&mut self.waits.borrow().clone()),
            frames: self.frames.get(),
        }
    }

    /// One request, waited for.
    async fn one(&self, op: Op, flags: Flags, sector: u64, sectors: u32) {
        let from = self.sim.now();
        let (bio, mut plug) = (self.block.bio(sectors, None), Plug::default());
        let fill = |_: usize, buf: &mut [u8]| buf.fill(0xbe);
        self.block.submit(&self.task, &bio, op, flags, sector, &mut plug, fill).await;
        self.block.unplug(&self.task, &mut plug).await;
        self.watch.sleep(&self.task, WaitsFor::Page(bio.clone()), bio.wait()).await;
        self.waits.borrow_mut().push(self.sim.now().since(from).as_nanos());
    }

    async fn types(self: Rc<Self>) {
        loop {
            let page = self.random.below(ROOM / u64::from(PAGE_SECTORS));
            self.one(Op::Read, Flags::empty(), AREA + page * u64::from(PAGE_SECTORS), PAGE_SECTORS).await;
            self.sim.sleep(THINK).await;
        }
    }

    async fn records(self: Rc<Self>) {
        let mut next: Instant = self.sim.now();
        loop {
            let (recorded, lost) = self.frames.get();
            let full = self.ring.get() >= RING;
            self.frames.set((recorded + 1, lost + u64::from(full)));
            if !full {
                self.ring.set(self.ring.get() + 1);
                self.filled.notify();
            }
            next += FRAME;
            self.sim.sleep(next.since(self.sim.now())).await;
        }
    }

    async fn writes(self: Rc<Self>) {
        let mut at = 0;
        loop {
            let frames = self.ring.get().min(TOGETHER);
            if frames == 0 {
                self.filled.wait().await;
                continue;
            }
            let sectors = FRAME_SECTORS * frames as u32;
            if at + u64::from(sectors) > ROOM {
                at = 0;
            }
            self.one(Op::Write, Flags::SYNC, AREA + ROOM + at, sectors).await;
            at += u64::from(sectors);
            // Their memory is free when they are stored.
            self.ring.set(self.ring.get() - frames);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_loads_is_read_or_the_wrong_name_is_told() {
        assert_eq!(Load::list("camera, typing"), Ok(vec![Load::Camera, Load::Typing]));
        let e = Load::list("typing,game").unwrap_err();
        assert!(e.contains("'game'") && e.contains("typing, camera"), "{e}");
        assert!(Load::list("typing,typing").unwrap_err().contains("twice"));
        assert!(Load::list("").is_err());
    }
}

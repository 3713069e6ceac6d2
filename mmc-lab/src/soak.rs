//! An endurance run: millions of requests on a [`Disk`](mmc_block::Disk) over the DesignWare driver and its register model,
//! with faults, losses of power and changes of the card, spread over weeks of virtual time.
//!
//! What is checked, and ends the run: every request completes exactly once, with its own buffer; a read shows what was
//! written last, and after a loss of power only what no flush covered may be gone, which the next flush has to tell; nothing
//! that came behind a barrier is kept without what was before it; what was wiped is gone; nothing of a card shows after it
//! was changed; no bound of the scheduler is broken; conversations of the caller's own end, and an RPMB counts the writes
//! that it got; every tag, place, buffer and mapping comes back.

mod bench;
mod cells;
#[cfg(test)]
mod lies;
mod talk;
mod trouble;
mod waits;

use self::bench::{Bench, PLACES};
use self::cells::{Cells, SECTOR, ZEROS, fill};
use mmc_block::{Abandoned, BlockError, Done, Media, Next, Refusal, Ticket, Wipe};
use mmc_mock::Buf;
use mmc_mock::fault::{Action, Medium};
use mmc_mock::scenario::Random;
use mmc_sched::{Flags, Kind, Op, Request, StreamId, bound};
use mmc_time::{Duration, Instant};
use std::collections::BTreeMap;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Requests.
    pub requests: u64,
    /// Faults of card and controller.
    pub faults: u64,
    /// Losses of power.
    pub cuts: u64,
    /// Changes of the card.
    pub swaps: u64,
    /// Days of virtual time.
    pub days: u64,
    /// Decides all that is random.
    pub seed: u64,
    /// The policy.
    pub sched: String,
    /// `soak`, `soak-emmc`, or a card of the zoo.
    pub card: String,
}

/// How long requests of one class took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// How many.
    pub requests: u64,
    /// The longest from submission to the end, repetitions and identifications of the card included.
    pub worst: Duration,
    /// The longest in the scheduler.
    pub scheduler: Duration,
}

/// What a direction's waits were beside the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Most requests ahead of one that was due.
    pub ahead: u32,
    /// Dispatches that passed a due request, and the bound for as many ahead as it had, where they came closest.
    pub dispatches: (u64, u64),
    /// The bound in time for the most ahead, from insertion to issue, each command as slow as the slowest was.
    pub time: Duration,
}

/// What a run has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests completed, those withdrawn included.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Requests merged into others.
    pub merges: u64,
    /// Requests sent again.
    pub retries: u64,
    /// Sample points searched anew.
    pub retunes: u64,
    /// Identifications after the first.
    pub resets: u64,
    /// Flushes of the card's cache, and how many of them told that it was lost.
    pub flushes: (u64, u64),
    /// Faults that struck.
    pub faults: u64,
    /// Losses of power.
    pub cuts: u64,
    /// Changes of the card.
    pub swaps: u64,
    /// Media generations.
    pub generations: u64,
    /// Reads that were taken back before their end.
    pub withdrawn: u64,
    /// Nights with the card's supply off.
    pub nights: u64,
    /// Barriers that succeeded.
    pub barriers: u64,
    /// Ranges and cards wiped.
    pub wipes: u64,
    /// Conversations that succeeded.
    pub conversations: u64,
    /// Looks at the card itself, after losses of power and in the evening.
    pub looks: u64,
    /// Requests that failed, by the beginning of what they said.
    pub failed: BTreeMap<String, u64>,
    /// Reads, writes somebody waits for, the rest, flushes.
    pub classes: [Class; 4],
    /// Reads and the rest; `Err`: why there is nothing to count.
    pub beside: Option<[Beside; 2]>,
    /// Why there is nothing in `beside`.
    pub unbounded: Option<String>,
    /// The longest from one command to the next while there was something to do.
    pub slowest: Duration,
    /// Rules of the bus that were broken under faults, as the models saw it: each line once, and how often.
    pub violations: BTreeMap<String, u64>,
    /// Virtual time.
    pub time: Duration,
    /// Kilobytes of the process after a tenth of the requests, and at the end; 0 where that cannot be known, the first
    /// also in a run so short that its cards are not written over once.
    pub resident: (u64, u64),
}

/// Something is wrong, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("seed {seed}, request {request}, day {day:.3}: {what}")]
pub struct Failed {
    /// The plan's.
    pub seed: u64,
    /// Requests submitted so far.
    pub request: u64,
    /// Virtual days.
    pub day: f64,
    /// One line.
    pub what: String,
}

/// Sectors in use: so few that requests overlap, and a card is written over many times.
const REGION: u32 = 32_768;
/// Most sectors of a request.
const LONGEST: u32 = 256;
/// Most requests asked for and not over.
const DEPTH: u64 = 64;
/// A day.
const DAY: Duration = Duration::from_secs(86_400);
/// Where a count of milliseconds in 32 bits wraps.
const WRAP: Instant = Instant::from_millis(1 << 32);
/// After so many requests all cards were written over.
const SETTLED: u64 = 100_000;
/// What the process may grow after its first tenth, in kilobytes.
const GROWTH: u64 = 8 << 10;

/// Runs `plan`; `progress` is told how many requests were submitted, now and then.
///
/// # Errors
/// [`Failed`]: what is wrong, and at which step. With the same plan it comes again.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(u64)) -> Result<Report, Failed> {
    let at_start = |what| Failed { seed: plan.seed, request: 0, day: 0.0, what };
    if bench::is_mmc(&plan.card) {
        let cards = bench::mmc_cards(&plan.card, plan.seed).map_err(at_start)?;
        return Soak::new(plan, bench::hsdk(), cards).map_err(at_start)?.run(progress);
    }
    let cards = bench::sd_cards(&plan.card, plan.seed).map_err(at_start)?;
    Soak::new(plan, bench::uhs_board(), cards).map_err(at_start)?.run(progress)
}

/// A request that is not over.
struct Asked {
    ticket: Ticket,
    request: Request,
    stamp: u64,
    /// Completions before it was submitted: what a flush covers.
    after: u64,
    /// Of those, what barriers put before it.
    behind: u64,
    wipe: Option<Wipe>,
    /// The card it was meant for.
    card: usize,
    generation: u32,
}

struct Soak<'a, C: Medium + 'static> {
    plan: &'a Plan,
    bench: Bench<C>,
    random: Random,
    /// By card.
    cells: Vec<Cells>,
    /// The card the disk serves, the one in the slot, and those that are not.
    served: usize,
    inside: usize,
    others: Vec<usize>,
    /// The slot is empty until somebody puts a card in.
    out: bool,
    asked: Vec<Option<Asked>>,
    open: u64,
    sent: u64,
    /// Completions.
    over: u64,
    stamps: u64,
    /// Where the streams go on.
    streams: [u32; 4],
    pool: Vec<Vec<u8>>,
    /// Buffers that are out.
    lent: u64,
    /// Of one stream, at the beginning.
    tags: u64,
    resets: u64,
    waiting: trouble::Waiting,
    /// The host is lent.
    talking: Option<talk::Talk>,
    /// By card.
    counted: Vec<talk::Counted>,
    /// For a look at a card.
    seen: Vec<u8>,
    report: Report,
    /// What a disk that is not to be believed makes of a completion.
    #[cfg(test)]
    lie: fn(&mut Done<Buf>),
}

impl<'a, C: Medium + 'static> Soak<'a, C> {
    fn new(plan: &'a Plan, board: bench::Board, mut cards: Vec<C>) -> Result<Self, String> {
        if plan.requests == 0 || plan.days == 0 {
            return Err("a run needs at least one request and one day".into());
        }
        let n = cards.len();
        // Full from the beginning, each with a stamp of its own: a card shows whose it is, and memory does not grow later.
        let mut bytes = vec![0; REGION as usize * SECTOR];
        for (stamp, card) in (1..).zip(&mut cards) {
            for (lba, sector) in (0..).zip(bytes.chunks_exact_mut(SECTOR)) {
                fill(sector, lba, stamp);
            }
            let mut written = Ok(());
            card.with_storage(&mut |s| written = s.write(0, &bytes));
            written.map_err(|e| format!("the card {} is too small: {e}", plan.card))?;
        }
        Ok(Self {
            plan,
            bench: Bench::new(board, cards, &plan.sched)?,
            random: Random::new(plan.seed),
            cells: (1..=n as u64).map(|stamp| Cells::new(REGION, stamp)).collect(),
            served: 0,
            inside: 0,
            others: (1..n).collect(),
            out: false,
            asked: (0..PLACES).map(|_| None).collect(),
            open: 0,
            sent: 0,
            over: 0,
            stamps: n as u64,
            streams: [0; 4],
            pool: Vec::new(),
            lent: 0,
            tags: 0,
            resets: 0,
            waiting: trouble::Waiting::default(),
            talking: None,
            counted: vec![talk::Counted::default(); n],
            seen: bytes,
            report: Report { generations: 1, ..Report::default() },
            #[cfg(test)]
            lie: |_| {},
        })
    }

    fn run(mut self, progress: &mut dyn FnMut(u64)) -> Result<Report, Failed> {
        match self.days(progress).and_then(|()| self.end()) {
            Ok(()) => Ok(self.report),
            Err(what) => Err(Failed {
                seed: self.plan.seed,
                request: self.sent,
                day: self.bench.clock.now().as_nanos() as f64 / DAY.as_nanos() as f64,
                what,
            }),
        }
    }

    fn days(&mut self, progress: &mut dyn FnMut(u64)) -> Result<(), String> {
        let Plan { requests, days, .. } = *self.plan;
        self.rest()?;
        self.tags = self.free_tags()?;
        for day in 0..days {
            let start = Instant::ZERO + DAY.saturating_mul(day);
            // On the day of the wrap the requests go on across it.
            let start =
                if start < WRAP && start + DAY > WRAP { WRAP - Duration::from_secs(1) } else { start };
            self.bench.clock.advance_to(start);
            self.bench.disk.resume();
            self.rest()?;
            self.burst(u128::from(requests) * u128::from(day + 1) / u128::from(days))?;
            progress(self.sent);
            self.sleep()?;
            if self.report.resident.0 == 0 && self.sent >= SETTLED.max(requests / 10) {
                self.report.resident.0 = resident();
            }
        }
        let end = Instant::ZERO + DAY.saturating_mul(days);
        self.bench.clock.advance_to(end);
        self.bench.disk.resume();
        self.rest()
    }

    /// The evening: a flush, nothing is left over, and every third night the supply is off.
    fn sleep(&mut self) -> Result<(), String> {
        self.ask(flush())?;
        self.rest()?;
        let (core, mapped) = (self.bench.disk.core().outstanding(), self.bench.mapped());
        let watched = self.bench.disk.observer().len();
        if core + mapped + watched > 0 || self.lent > 0 {
            return Err(format!(
                "at rest {core} requests are not over, {mapped} mappings and {} buffers not back, {watched} in the scheduler",
                self.lent
            ));
        }
        self.look_in()?;
        if self.random.draw().is_multiple_of(3) {
            self.bench.disk.suspend();
            self.rest()?;
            if !self.bench.disk.is_suspended() {
                return Err("the disk does not go to sleep".into());
            }
            self.report.nights += 1;
        }
        Ok(())
    }

    /// Requests until so many were submitted, and all of them are over.
    fn burst(&mut self, until: u128) -> Result<(), String> {
        let mut depth = 1;
        let mut still = 0;
        loop {
            let serves = self.bench.disk.media() == Media::Same && !self.bench.disk.is_suspended();
            while serves && self.open < depth && u128::from(self.sent) < until {
                self.submit()?;
                self.trouble()?;
                if self.sent.is_multiple_of(64) {
                    depth = self.random.between(1, DEPTH);
                }
            }
            if self.turn(&mut still)? && u128::from(self.sent) >= until {
                return Ok(());
            }
        }
    }
    /// Until all that was asked for is over, and a card is served.
    fn rest(&mut self) -> Result<(), String> {
        let mut still = 0;
        while !self.turn(&mut still)? {}
        Ok(())
    }
    /// One step. True: nothing is left to do.
    fn turn(&mut self, still: &mut u32) -> Result<bool, String> {
        let now = self.bench.clock.now();
        let next = self.bench.poll();
        self.collect()?;
        match next {
            Next::Wait { until, why } => {
                if until.is_never() {
                    return Err(format!("a wait that nothing ends ({why:?})"));
                }
                *still = if until > now { 0 } else { *still + 1 };
                self.bench.clock.advance_to(until);
            }
            Next::Lent => {
                self.bench.disk.observer().rest();
                let until = self.talk()?.unwrap_or(now);
                *still = if until > now { 0 } else { *still + 1 };
                self.bench.clock.advance_to(until);
            }
            Next::Idle => {
                self.bench.disk.observer().rest();
                if self.open > 0 {
                    let lost: Vec<_> = self.asked.iter().flatten().map(|a| a.request).collect();
                    let stopped = self.bench.disk.core().stopped();
                    return Err(format!(
                        "the disk is idle ({stopped:?}), and {} requests are not over: {lost:?}",
                        self.open
                    ));
                }
                if self.bench.disk.is_suspended() || self.mended()? {
                    return Ok(true);
                }
                *still += 1;
            }
        }
        if *still > 10_000 {
            return Err(format!("time stands still, {} requests are not over", self.open));
        }
        Ok(false)
    }

    /// The disk is idle: puts a card in if there is none, and has the disk serve it. True: it did so already.
    fn mended(&mut self) -> Result<bool, String> {
        if self.out {
            // The pin needs its time to be noticed, a hand as well.
            self.bench.pass(Duration::from_millis(100));
            if self.bench.disk.media() != Media::Gone {
                return Ok(false);
            }
            self.out = false;
            let n = self.random.between(0, self.others.len() as u64 - 1) as usize;
            self.bench.act(&Action::Swap(n));
            self.swapped(n);
            let hand = Duration::from_millis(self.random.between(50, 5000));
            self.bench.pass(hand);
            self.bench.act(&Action::Insert);
            self.bench.pass(Duration::from_millis(100));
            return Ok(false);
        }
        match self.bench.disk.media() {
            Media::Same => Ok(true),
            Media::New => {
                if !self.bench.disk.accept_media() {
                    return Err("the new card cannot be accepted".into());
                }
                self.cells[self.served].cut();
                self.cells[self.served].told(self.over);
                self.served = self.inside;
                self.report.generations += 1;
                Ok(false)
            }
            Media::Gone => {
                self.bench.pass(Duration::from_secs(10));
                self.bench.disk.look_again();
                Ok(false)
            }
        }
    }
    /// The card with this number among the others is in the slot.
    fn swapped(&mut self, n: usize) {
        self.cells[self.inside].cut();
        std::mem::swap(&mut self.inside, &mut self.others[n]);
        self.report.swaps += 1;
    }

    /// A random request, and now and then one that is taken back.
    fn submit(&mut self) -> Result<(), String> {
        let what = self.random.between(0, 999);
        match what {
            0..15 => return self.ask(flush()).map(drop),
            15..18 => return self.ask(Request { flags: Flags::BARRIER, ..flush() }).map(drop),
            18 => return self.wipe(),
            19 => {
                self.bench.disk.ask_for_host();
                return Ok(());
            }
            _ => {}
        }
        let stream = self.random.between(0, 3) as usize;
        let most = match self.random.between(0, 99) {
            0..=7 => LONGEST,
            8..=19 => 64,
            20..=39 => 16,
            _ => 8,
        };
        let blocks = if most == 8 { 8 } else { self.random.between(1, most.into()) as u32 };
        let blocks = if what == 500 { 1 } else { blocks };
        if !self.random.draw().is_multiple_of(2) || self.streams[stream] + blocks > REGION {
            self.streams[stream] = self.random.between(0, u64::from(REGION - blocks)) as u32;
        }
        let lba = self.streams[stream];
        self.streams[stream] += blocks;
        let op = match what {
            20..24 if self.bench.disk.core().features().discard.is_some() => Op::Discard,
            20..480 => Op::Read,
            _ => Op::Write,
        };
        let flags = match what {
            _ if op != Op::Write => Flags::empty(),
            980.. => Flags::PREFLUSH | Flags::FUA,
            940..980 => Flags::FUA,
            800..940 => Flags::SYNC,
            _ => Flags::empty(),
        };
        let id = StreamId(stream as u32 + 1);
        let ticket = self.ask(Request { flags, ..Request::new(op, lba.into(), blocks, id) })?;
        if op == Op::Read && what.is_multiple_of(100) {
            self.withdraw(ticket)?;
        }
        Ok(())
    }

    /// Wipes some sectors, where the card can.
    fn wipe(&mut self) -> Result<(), String> {
        let f = *self.bench.disk.core().features();
        let (lba, how) = (self.random.between(0, u64::from(REGION) - 1), self.random.between(0, 2));
        let unit = u64::from(f.unit.max(1));
        let (lba, blocks, how) = match how {
            0 if f.secure_erase.is_some() && unit <= REGION.into() => {
                ((lba / unit * unit).min(u64::from(REGION) - unit), f.unit.max(1), Wipe::SecureErase)
            }
            1 if f.secure_trim.is_some() => (lba, (REGION - lba as u32).min(8), Wipe::SecureTrim),
            2 if f.sanitize => (0, 0, Wipe::Sanitize),
            _ => return Ok(()),
        };
        self.ask_for(Request::new(Op::Discard, lba, blocks, StreamId(1)), Some(how)).map(drop)
    }

    /// Submits.
    fn ask(&mut self, request: Request) -> Result<Ticket, String> {
        self.ask_for(request, None)
    }
    /// Submits; a discard may be carried out as a wipe.
    fn ask_for(&mut self, request: Request, wipe: Option<Wipe>) -> Result<Ticket, String> {
        let now = self.bench.clock.now();
        let disk = &mut self.bench.disk;
        let refused = |e: Refusal| format!("{request:?} is refused: {e}");
        self.stamps += 1;
        let stamp = if request.op == Op::Write { self.stamps } else { ZEROS };
        let generation = disk.core().generation();
        let ticket = if matches!(request.op, Op::Read | Op::Write) && request.blocks > 0 {
            let new = || Vec::with_capacity(LONGEST as usize * SECTOR);
            let mut bytes = self.pool.pop().unwrap_or_else(new);
            bytes.resize(request.blocks as usize * SECTOR, 0);
            for (lba, sector) in (request.lba..).zip(bytes.chunks_exact_mut(SECTOR)) {
                match request.op {
                    Op::Write => fill(sector, lba, stamp),
                    // What a read leaves alone is no stamp.
                    _ => sector[..8].fill(0xa5),
                }
            }
            self.lent += 1;
            disk.submit(request, Buf(bytes), now).map_err(|e| refused(e.error))?
        } else if let Some(how) = wipe {
            disk.submit_wipe(request, how, now).map_err(refused)?
        } else {
            disk.submit_bare(request, now).map_err(refused)?
        };
        let (after, card, behind) = (self.over, self.served, self.cells[self.served].ordered());
        let asked = Asked { ticket, request, stamp, after, behind, wipe, card, generation };
        let place = self.asked.get_mut(ticket.index()).ok_or("a ticket of no place")?;
        if let Some(other) = place.replace(asked) {
            return Err(format!("{request:?} has the place of {:?}, which is not over", other.request));
        }
        self.open += 1;
        self.sent += 1;
        Ok(ticket)
    }

    fn withdraw(&mut self, ticket: Ticket) -> Result<(), String> {
        let now = self.bench.clock.now();
        match self.bench.disk.abandon(ticket, now) {
            Abandoned::Withdrawn(buffer) => {
                self.pool.push(buffer.0);
                self.bench.disk.observer().forget(ticket);
            }
            // Its buffer goes with it.
            Abandoned::Orphaned => {}
            Abandoned::Done(done) => return self.done(done),
            Abandoned::Unknown => return Err("a request that is not over is unknown".into()),
        }
        self.asked[ticket.index()] = None;
        self.lent -= 1;
        self.open -= 1;
        self.report.withdrawn += 1;
        self.report.requests += 1;
        Ok(())
    }

    /// What has happened in the last step: first the results, then what happened to the card.
    fn collect(&mut self) -> Result<(), String> {
        while let Some(done) = self.bench.disk.take_done() {
            #[cfg(test)]
            let done = {
                let mut done = done;
                (self.lie)(&mut done);
                done
            };
            self.done(done)?;
        }
        if let Some(broken) = self.bench.disk.observer().broken.take() {
            return Err(broken);
        }
        let mut cut = self.strikes();
        let resets = self.bench.disk.statistics().resets;
        if std::mem::replace(&mut self.resets, resets) != resets {
            // It was without supply, or reset, whoever did that.
            self.cells[self.served].cut();
            cut = true;
        }
        if cut { self.look_in() } else { Ok(()) }
    }

    /// A look at what the card that is served holds, if it is in the slot; nobody notices.
    fn look_in(&mut self) -> Result<(), String> {
        if self.out || self.inside != self.served {
            return Ok(());
        }
        self.report.looks += 1;
        self.hold()?;
        let changes = |r: &Request| r.op != Op::Read && r.blocks > 0;
        let asked = self.asked.iter().flatten().filter(|a| changes(&a.request));
        let moving: Vec<_> = asked.map(|a| (a.request.lba, a.request.blocks)).collect();
        let cells = &mut self.cells[self.inside];
        cells.looked_at(&self.seen, self.over, &moving).map_err(|e| format!("card {}: {e}", self.inside))
    }
    /// Sees what the card in the slot holds.
    fn hold(&mut self) -> Result<(), String> {
        let (card, seen) = (&self.bench.card, &mut self.seen);
        let mut read = Ok(());
        card.with(|c| c.with_storage(&mut |s| read = s.read(0, seen)));
        read.map_err(|e| e.to_string())
    }

    fn done(&mut self, done: Done<Buf>) -> Result<(), String> {
        let asked = self.asked.get_mut(done.ticket.index()).and_then(Option::take);
        let Some(asked) = asked.filter(|a| a.ticket == done.ticket && a.request == done.request) else {
            return Err(format!("{:?} completed, and nobody has asked for it: twice?", done.request));
        };
        let Request { op, lba, blocks, flags, .. } = done.request;
        self.open -= 1;
        self.over += 1;
        self.report.requests += 1;
        if done.generation != asked.generation {
            let Done { request, generation, .. } = done;
            return Err(format!("{request:?} of card {} was served by card {generation}", asked.generation));
        }
        let cells = &mut self.cells[asked.card];
        let preflush = flags.contains(Flags::PREFLUSH);
        match (done.result, op) {
            (Ok(()), Op::Read) => {
                let shown = done.buffer.as_ref().map_or(&[][..], |b| &b.0);
                if shown.len() != blocks as usize * SECTOR {
                    return Err(format!("{} bytes of {:?} came back", shown.len(), done.request));
                }
                cells.shows(lba, shown, self.over).map_err(|e| format!("{:?}: {e}", done.request))?;
                self.report.bytes += shown.len() as u64;
            }
            (Ok(()), Op::Write) if blocks > 0 => {
                if preflush {
                    cells.covered(asked.after).map_err(|e| format!("{:?}: {e}", done.request))?;
                }
                if flags.contains(Flags::FUA) || !self.bench.disk.core().features().cache {
                    cells.stored(lba, blocks, asked.stamp, self.over);
                } else {
                    cells.wrote(lba, blocks, asked.stamp, self.over, asked.behind);
                }
                self.report.bytes += u64::from(blocks) * SECTOR as u64;
            }
            (Ok(()), Op::Write) if preflush => cells.covered(asked.after)?,
            (Ok(()), Op::Write) => {
                cells.barrier(asked.after);
                self.report.barriers += 1;
            }
            (Ok(()), Op::Discard) if asked.wipe.is_some() => {
                cells.stored(lba, blocks, ZEROS, self.over);
                self.report.wipes += 1;
            }
            (_, Op::Write | Op::Discard) if blocks > 0 => cells.may(lba, blocks, asked.stamp),
            _ => {}
        }
        if let Err(e) = done.result {
            if e == BlockError::CacheLost {
                self.cells[asked.card].told(self.over);
                self.report.flushes.1 += 1;
            }
            self.failed(&e.to_string());
        }
        if let Some(buffer) = done.buffer {
            self.pool.push(buffer.0);
            self.lent -= 1;
        } else if matches!(op, Op::Read | Op::Write) && blocks > 0 {
            return Err(format!("{:?} came back without its buffer: {:?}", done.request, done.result));
        }
        let class = match op {
            Op::Read => 0,
            Op::Write if blocks == 0 => 3,
            _ if done.request.kind() == Kind::SyncWrite || flags.contains(Flags::FUA) => 1,
            _ => 2,
        };
        let class = &mut self.report.classes[class];
        class.requests += 1;
        let stamps = done.stamps;
        class.worst = class.worst.max(stamps.completed.unwrap_or_default().since(stamps.queued));
        if let (Some(inserted), Some(issued)) = (stamps.inserted, stamps.issued) {
            class.scheduler = class.scheduler.max(issued.since(inserted));
        }
        Ok(())
    }

    /// Counts what failed, by the beginning of what it said.
    fn failed(&mut self, what: &str) {
        let short = what.split([':', '(']).next().unwrap_or_default().trim().to_owned();
        *self.report.failed.entry(short).or_default() += 1;
    }

    /// After the last day: everything is read, nothing has leaked, and the cards hold what they should.
    fn end(&mut self) -> Result<(), String> {
        for lba in (0..REGION).step_by(LONGEST as usize) {
            self.ask(Request::new(Op::Read, lba.into(), LONGEST, StreamId(1)))?;
            self.rest()?;
        }
        self.ask(flush())?;
        self.rest()?;
        let tags = self.free_tags()?;
        if tags != self.tags {
            return Err(format!("{tags} of {} tags are there, with nothing running", self.tags));
        }
        // Before the look, which takes much memory at once.
        self.report.resident.1 = resident();
        self.look()?;
        let statistics = *self.bench.disk.statistics();
        let report = &mut self.report;
        (report.retries, report.retunes, report.resets) =
            (statistics.retries, statistics.retunes, statistics.resets);
        report.flushes.0 = statistics.flushes;
        for line in self.bench.model.violations() {
            *report.violations.entry(line).or_default() += 1;
        }
        report.time = self.bench.clock.now().since(Instant::ZERO);
        let waits = self.bench.disk.observer();
        (report.slowest, report.merges) = (waits.slowest, waits.merges);
        report.unbounded = waits.nothing().map(str::to_owned);
        let beside = [true, false].map(|read| {
            let worst = waits.worst[usize::from(!read)];
            let bound = waits.bound(read, worst.ahead)?;
            let time = waits.expire(read) + bound::time(bound, waits.slowest, 2);
            Some(Beside { ahead: worst.ahead, dispatches: (worst.passed, worst.bound), time })
        });
        if let [Some(reads), Some(rest)] = beside {
            report.beside = Some([reads, rest]);
            for (k, class) in report.classes[..3].iter().enumerate() {
                let bound = if k == 0 { reads.time } else { rest.time };
                if class.scheduler > bound {
                    let what = ["a read", "a sync write", "a write"][k];
                    return Err(format!(
                        "{what} waited {} in the scheduler, the bound is {bound}",
                        class.scheduler
                    ));
                }
            }
        }
        let (early, late) = report.resident;
        if early > 0 && late > early + GROWTH {
            return Err(format!("the process has grown from {early} to {late} KiB: something leaks"));
        }
        let Plan { faults, cuts, swaps, .. } = *self.plan;
        if (faults, cuts, swaps) == (0, 0, 0) {
            // Nothing was done to the card: nothing may fail, and nobody may break a rule.
            let all = report.failed.iter().chain(&report.violations);
            if let Some((what, n)) = all.into_iter().next() {
                return Err(format!("{n} times, without any trouble: {what}"));
            }
        }
        if report.faults < faults || report.cuts < cuts || report.swaps < swaps {
            return Err(format!(
                "only {} of {faults} faults, {} of {cuts} cuts and {} of {swaps} swaps came about",
                report.faults, report.cuts, report.swaps
            ));
        }
        Ok(())
    }

    /// How many requests of one stream get a tag, with nothing running; all places of the table can be taken, and no more.
    fn free_tags(&mut self) -> Result<u64, String> {
        let waits = self.bench.disk.statistics().tag_waits;
        // Apart, so that none merges.
        let read = |k: usize| Request::new(Op::Read, k as u64 * 128, 1, StreamId(1));
        for k in 0..PLACES {
            self.ask(read(k)).map_err(|e| format!("place {k} of {PLACES} has leaked: {e}"))?;
        }
        let waited = self.bench.disk.statistics().tag_waits - waits;
        let (now, buffer) = (self.bench.clock.now(), Buf(vec![0; SECTOR]));
        match self.bench.disk.submit(read(PLACES), buffer, now) {
            Err(refused) if refused.error == Refusal::TableFull => self.rest()?,
            other => return Err(format!("one more than there are places: {other:?}")),
        }
        Ok((PLACES as u64).saturating_sub(waited))
    }

    /// A look at the cards themselves, without supply.
    fn look(&mut self) -> Result<(), String> {
        self.bench.act(&Action::Remove);
        self.cells[self.inside].cut();
        for n in 0..=self.others.len() {
            self.hold()?;
            let cells = &mut self.cells[self.inside];
            cells.shows(0, &self.seen, self.over).map_err(|e| format!("card {}: {e}", self.inside))?;
            if n < self.others.len() {
                self.bench.act(&Action::Swap(n));
                std::mem::swap(&mut self.inside, &mut self.others[n]);
            }
        }
        Ok(())
    }
}

fn flush() -> Request {
    Request { flags: Flags::PREFLUSH, ..Request::new(Op::Write, 0, 0, StreamId(0)) }
}

/// Kilobytes of memory the process has; 0: this system does not tell.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

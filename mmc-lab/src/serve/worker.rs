//! The one thread that has the stack: takes requests as they come, lets virtual time pass, answers.

use super::card::Stack;
use super::connection::{Incoming, Message, Reply};
use super::image::Image;
use super::wire::{Errno, Operation, flag};
use mmc_block::{BlockError, Done, Media, Next, Refusal, Statistics, Stopped, Ticket};
use mmc_mock::Buf;
use mmc_proto::status::CardStatus;
use mmc_sched::{Flags, Op, Request, StreamId};
use mmc_time::{Duration, Instant};
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};

/// Sectors of one write of zeroes where the card cannot be told to erase to zeroes.
const ZEROES: u64 = 2048;
/// Parts of one trim or write-zeroes that are in the disk at one time.
const WINDOW: usize = 4;
/// A request that is not over after this time is worth a word.
const LONG: Duration = Duration::from_secs(10);
/// How often somebody looks for one.
const LOOK: Duration = Duration::from_secs(1);
/// What the card may take for the last flush and its power-off notice.
const FAREWELL: Duration = Duration::from_secs(30);

/// How fast virtual time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// With the clock on the wall: the card takes as long as a card.
    Real,
    /// As fast as it can be computed.
    Fast,
}

/// What was served.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Clients that got as far as requests.
    pub clients: u64,
    /// Clients that broke the rules.
    pub broken: u64,
    /// Requests answered without an error, by [`Operation::ALL`], and their bytes.
    pub served: [(u64, u64); 5],
    /// Requests that were served and failed.
    pub failed: u64,
    /// Requests that made no sense.
    pub refused: u64,
    /// The disk's own counts.
    pub disk: Statistics,
    /// Virtual time from the first client's first request to the end.
    pub virtual_time: Duration,
    /// Rules of the fault script that never struck.
    pub unstruck: Vec<String>,
    /// What card and controller did not allow.
    pub violations: Vec<String>,
    /// All that was written is stored.
    pub stored: bool,
}

/// One request of a client.
#[derive(Debug)]
struct Active {
    client: u32,
    op: Operation,
    flags: Flags,
    first: u64,
    /// The next sector that the disk was not asked for, and the one behind the last.
    next: u64,
    end: u64,
    /// Parts in the disk.
    running: usize,
    /// Asked for: a flush of its own, once its parts are over.
    then_flush: bool,
    error: Option<Errno>,
    data: Vec<u8>,
    reply: Reply,
}

/// What became of an attempt to give a request to the disk.
enum Given {
    /// As much as there is room for.
    All,
    /// The disk is full: later again.
    Later,
    /// There is nothing (more) to wait for.
    Over,
}

/// The worker.
#[derive(Debug)]
pub struct Worker {
    stack: Stack,
    image: Option<Image>,
    pace: Pace,
    /// Ends when the last client has gone.
    once: bool,
    /// Wall and virtual time of the same moment.
    epoch: (std::time::Instant, Instant),
    active: HashMap<u64, Active>,
    number: u64,
    /// Whose part a ticket is.
    parts: HashMap<Ticket, u64>,
    /// Those that could not be given to the disk, in order.
    waiting: VecDeque<u64>,
    clients: u64,
    ending: bool,
    media: Media,
    /// When to look for a request that stands still, and since when the one stands that was told.
    look: Instant,
    told: Option<Instant>,
    report: Report,
}

impl Worker {
    /// A worker whose stack is at rest.
    #[must_use]
    pub fn new(stack: Stack, image: Option<Image>, pace: Pace, once: bool) -> Self {
        let epoch = (std::time::Instant::now(), stack.clock.now());
        Self {
            stack,
            image,
            pace,
            once,
            epoch,
            active: HashMap::new(),
            number: 0,
            parts: HashMap::new(),
            waiting: VecDeque::new(),
            clients: 0,
            ending: false,
            media: Media::Same,
            look: Instant::ZERO,
            told: None,
            report: Report::default(),
        }
    }

    /// Serves until it is told to stop, or the last client has gone; `say` hears what the operator should know.
    pub fn run(mut self, messages: &Receiver<Message>, say: &mut dyn FnMut(&str)) -> Report {
        let begin = self.stack.clock.now();
        let mut open = true;
        loop {
            loop {
                match messages.try_recv() {
                    Ok(message) => self.hear(message, say),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        open = false;
                        self.ending = true;
                        break;
                    }
                }
            }
            let now = self.tell_time();
            let next = self.stack.disk.poll(now);
            if self.collect(say) {
                // There may be room for what waited.
                self.give_waiting();
                continue;
            }
            self.watch(now, say);
            if self.media != self.stack.disk.media() {
                self.media = self.stack.disk.media();
                say(match self.media {
                    Media::Same => "the card is back",
                    Media::Gone => "the card is gone: requests fail with EIO",
                    Media::New => {
                        "a card was put in: requests fail with EIO, start the server anew to serve it"
                    }
                });
            }
            if self.active.is_empty() && self.ending {
                break;
            }
            let until = match next {
                Next::Wait { until, .. } => until,
                Next::Idle | Next::Lent => Instant::NEVER,
            };
            match self.pace {
                Pace::Fast if !until.is_never() => self.stack.clock.advance_to(until),
                _ if !open => break,
                _ => self.sleep(until, messages, say),
            }
        }
        self.farewell(say);
        self.report.virtual_time = self.stack.clock.now().since(begin);
        self.report.disk = *self.stack.disk.statistics();
        self.report.unstruck = (self.stack.unstruck)();
        self.report.violations = (self.stack.violations)();
        self.report
    }

    /// Says all that is known when a request is not over after a long time: once for each that is the oldest.
    fn watch(&mut self, now: Instant, say: &mut dyn FnMut(&str)) {
        if now < self.look {
            return;
        }
        self.look = now + LOOK;
        let disk = &self.stack.disk;
        let Some(since) = disk.core().oldest().filter(|&since| now.since(since) >= LONG) else { return };
        if self.told.replace(since) != Some(since) {
            say(&format!("a request is not over after {}\n{}", now.since(since), disk.dump(now)));
        }
    }

    /// What time it is for the stack.
    fn tell_time(&self) -> Instant {
        if self.pace == Pace::Real {
            let since = self.epoch.0.elapsed().as_nanos();
            let since = Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX));
            self.stack.clock.advance_to(self.epoch.1 + since);
        }
        self.stack.clock.now()
    }

    /// Waits for a message, or the instant.
    fn sleep(&mut self, until: Instant, messages: &Receiver<Message>, say: &mut dyn FnMut(&str)) {
        let message = if until.is_never() {
            messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            let left = until.since(self.tell_time()).as_nanos();
            messages.recv_timeout(std::time::Duration::from_nanos(left))
        };
        match message {
            Ok(message) => self.hear(message, say),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.ending = true,
        }
    }

    fn hear(&mut self, message: Message, say: &mut dyn FnMut(&str)) {
        match message {
            Message::Opened => {
                self.clients += 1;
                self.report.clients += 1;
            }
            Message::Closed => {
                self.clients -= 1;
                self.ending |= self.once && self.clients == 0;
            }
            Message::Broken(what) => {
                self.report.broken += 1;
                say(&what);
            }
            Message::Refused(_) => self.report.refused += 1,
            Message::Stop => self.ending = true,
            Message::Request(incoming) if self.ending => {
                self.report.failed += 1;
                incoming.reply.send(Some(Errno::Shutdown), Vec::new());
            }
            Message::Request(incoming) => self.take(incoming),
        }
    }

    /// A request has come.
    fn take(&mut self, incoming: Incoming) {
        // A batch that came together meets in the scheduler: `run` hears all before it polls.
        let Incoming { client, request, op, data, reply } = incoming;
        let fua = request.flags & flag::FUA != 0;
        let (first, sectors) = match op {
            Operation::Flush => (0, 0),
            _ => (request.offset / 512, u64::from(request.length) / 512),
        };
        let flags = if fua && op == Operation::Write { Flags::FUA } else { Flags::empty() };
        let then_flush = match op {
            Operation::Flush => true,
            Operation::Trim | Operation::WriteZeroes => fua,
            Operation::Read | Operation::Write => false,
        };
        let active = Active {
            client,
            op,
            flags,
            first,
            next: first,
            end: first + sectors,
            running: 0,
            then_flush,
            error: None,
            data,
            reply,
        };
        self.number += 1;
        self.active.insert(self.number, active);
        self.give(self.number);
    }

    /// Gives the disk what there is room for; what has no room waits in line, what is over is answered.
    fn give(&mut self, id: u64) {
        if !self.waiting.is_empty() {
            self.waiting.push_back(id);
            return;
        }
        match self.try_give(id) {
            Given::All => {}
            Given::Later => self.waiting.push_back(id),
            Given::Over => self.answer(id),
        }
    }

    fn give_waiting(&mut self) {
        while let Some(id) = self.waiting.pop_front() {
            match self.try_give(id) {
                Given::All => {}
                Given::Over => self.answer(id),
                Given::Later => {
                    self.waiting.push_front(id);
                    return;
                }
            }
        }
    }

    fn try_give(&mut self, id: u64) -> Given {
        let features = *self.stack.disk.core().features();
        let now = self.stack.clock.now();
        let Some(active) = self.active.get_mut(&id) else { return Given::All };
        let stream = StreamId(active.client);
        loop {
            if active.error.is_some() {
                // The first error wins: nothing more of it is sent.
                (active.next, active.then_flush) = (active.end, false);
            }
            if active.next == active.end {
                if active.running > 0 {
                    return Given::All;
                }
                if !active.then_flush {
                    return Given::Over;
                }
                let flush = Request { flags: Flags::PREFLUSH, ..Request::new(Op::Write, 0, 0, stream) };
                match self.stack.disk.submit_bare(flush, now) {
                    Ok(ticket) => {
                        (active.then_flush, active.running) = (false, 1);
                        self.parts.insert(ticket, id);
                        return Given::All;
                    }
                    Err(Refusal::TableFull) => return Given::Later,
                    Err(e) => active.error = Some(errno_of_refusal(&e)),
                }
                continue;
            }
            if active.running >= WINDOW {
                return Given::All;
            }
            let left = active.end - active.next;
            let (op, most) = match active.op {
                Operation::Read => (Op::Read, left),
                Operation::Write | Operation::Flush => (Op::Write, left),
                Operation::Trim => match features.discard {
                    Some(most) => (Op::Discard, most.into()),
                    None => {
                        // A hint that this card cannot take.
                        active.next = active.end;
                        continue;
                    }
                },
                Operation::WriteZeroes => match features.write_zeroes {
                    Some(most) => (Op::WriteZeroes, most.into()),
                    None => (Op::Write, ZEROES),
                },
            };
            let blocks = left.min(most).min(u64::from(u32::MAX)) as u32;
            let request = Request { flags: active.flags, ..Request::new(op, active.next, blocks, stream) };
            if let Some(image) = &mut self.image
                && image.load(active.next, blocks.into(), &mut self.stack.door).is_err()
            {
                active.error = Some(Errno::Io);
                continue;
            }
            let bytes = blocks as usize * 512;
            let given = match (active.op, op) {
                (_, Op::Discard | Op::WriteZeroes) => self.stack.disk.submit_bare(request, now),
                (Operation::Write, _) => {
                    let data = Buf(std::mem::take(&mut active.data));
                    self.stack.disk.submit(request, data, now).map_err(|refused| {
                        active.data = refused.buffer.0;
                        refused.error
                    })
                }
                _ => self.stack.disk.submit(request, Buf(vec![0; bytes]), now).map_err(|r| r.error),
            };
            match given {
                Ok(ticket) => {
                    active.next += u64::from(blocks);
                    active.running += 1;
                    self.parts.insert(ticket, id);
                }
                Err(Refusal::TableFull) => return Given::Later,
                Err(e) => active.error = Some(errno_of_refusal(&e)),
            }
        }
    }

    /// Takes what the disk has finished, puts what is durable into the image, answers. Whether there was anything.
    fn collect(&mut self, say: &mut dyn FnMut(&str)) -> bool {
        let cached = self.stack.disk.core().features().cache;
        let (mut touched, mut durable, mut synced) = (Vec::new(), false, false);
        while let Some(done) = self.stack.disk.take_done() {
            let Some(id) = self.parts.remove(&done.ticket) else { continue };
            let (writes, flushes) = self.part_over(id, done);
            synced |= flushes;
            durable |= flushes || writes && !cached;
            touched.push(id);
        }
        if durable && let Some(image) = &mut self.image {
            let stored = image.store(&mut self.stack.door);
            // A flush is worth what is below it.
            let stored = if synced { stored.and_then(|()| image.sync()) } else { stored };
            if let Err(e) = stored {
                say(&format!("the image cannot be written: {e}: requests fail with EIO"));
                for id in &touched {
                    if let Some(active) = self.active.get_mut(id).filter(|a| a.op != Operation::Read) {
                        active.error.get_or_insert(Errno::Io);
                    }
                }
            }
        }
        let any = !touched.is_empty();
        for id in touched {
            self.give(id);
        }
        any
    }

    /// A part is over: whether it wrote, and whether it made durable what came before.
    fn part_over(&mut self, id: u64, done: Done<Buf>) -> (bool, bool) {
        let Some(active) = self.active.get_mut(&id) else { return (false, false) };
        active.running -= 1;
        let ok = done.result.is_ok();
        if let Err(e) = &done.result {
            active.error.get_or_insert(errno(e));
        }
        let request = done.request;
        if request.op == Op::Read {
            active.data = done.buffer.map(|b| b.0).unwrap_or_default();
            return (false, false);
        }
        if let Some(image) = self.image.as_mut().filter(|_| request.blocks > 0) {
            // A write that failed may have stored a part.
            image.wrote(request.lba, request.blocks.into());
        }
        (request.blocks > 0, ok && request.flags.intersects(Flags::FUA | Flags::PREFLUSH))
    }

    fn answer(&mut self, id: u64) {
        let Some(active) = self.active.remove(&id) else { return };
        let Active { op, first, end, error, data, reply, .. } = active;
        match error {
            None => {
                let at = Operation::ALL.iter().position(|o| *o == op).unwrap_or_default();
                self.report.served[at].0 += 1;
                self.report.served[at].1 += (end - first) * 512;
            }
            Some(_) => self.report.failed += 1,
        }
        reply.send(error, if op == Operation::Read && error.is_none() { data } else { Vec::new() });
    }

    /// Everything was answered: what is in the card's cache is stored, and the card told that its supply goes.
    fn farewell(&mut self, say: &mut dyn FnMut(&str)) {
        let (clock, disk) = (&self.stack.clock, &mut self.stack.disk);
        let deadline = clock.now() + FAREWELL;
        disk.prepare_power_off(deadline, clock.now());
        let mut next = disk.poll(clock.now());
        while disk.power_may_go().is_none() {
            match next {
                Next::Wait { until, .. } if !until.is_never() => clock.advance_to(until),
                // It waits for nothing: what was not stored by now is not.
                _ => break,
            }
            next = disk.poll(clock.now());
        }
        self.report.stored = disk.power_may_go() == Some(true) && disk.media() == Media::Same;
        if !self.report.stored {
            say("the card did not store what was in its cache");
        }
        // If it did not, the image gets what was stored before.
        if self.report.stored
            && let Some(image) = &mut self.image
            && let Err(e) = image.store(&mut self.stack.door).and_then(|()| image.sync())
        {
            say(&format!("the image cannot be written: {e}"));
            self.report.stored = false;
        }
    }
}

fn errno_of_refusal(e: &Refusal) -> Errno {
    match e {
        Refusal::Stopped(Stopped::PowerOff | Stopped::Shutdown) => Errno::Shutdown,
        Refusal::Empty | Refusal::OutOfRange { .. } | Refusal::Unsupported(_) => Errno::Invalid,
        _ => Errno::Io,
    }
}

/// What a client is told of a failure.
fn errno(e: &BlockError) -> Errno {
    let status = match e {
        BlockError::Transfer(e) | BlockError::Quarantined(e) => e.status,
        BlockError::Erase(e) | BlockError::Flush(e) => e.status,
        BlockError::Stopped(Stopped::PowerOff | Stopped::Shutdown) => return Errno::Shutdown,
        _ => None,
    };
    let protected = CardStatus::WP_VIOLATION | CardStatus::WP_ERASE_SKIP;
    if status.is_some_and(|s| s.intersects(protected)) { Errno::Perm } else { Errno::Io }
}

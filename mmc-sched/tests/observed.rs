//! All that a caller sees of every policy in small worlds, as data: programs that wait for what they asked for and think
//! before they ask again, and a device that takes its time, so that idling, budgets, write slots, learned costs and limits
//! have something to go by. A change of an algorithm shows as a changed line of these files; one that should change nothing
//! (for speed, say) changes none. Whether what is kept is right is for the other tests; here nothing may be lost, answered
//! twice, or wait for an instant that is past.
//!
//! After a change that is meant, `DECISIONS=write cargo test -p mmc-sched --test observed` writes the files anew. To see what
//! differs: `OBSERVED=folder` writes all that was seen in each world there, before and after; compare the two.

#![cfg(all(
    feature = "mq-deadline",
    feature = "deadline",
    feature = "bfq",
    feature = "cfq",
    feature = "kyber",
    feature = "ftb"
))]

#[path = "support/record.rs"]
mod record;

use mmc_sched::{
    Bfq, Cfq, Class, Deadline, Dispatch, Flags, Ftb, Inserted, Kind, Kyber, Limits, Merges, MqDeadline,
    NoSched, Op, Outcome, Policy, Priority, Queue, Request, RequestId, Run, Scheduler, Slot, StreamId,
    bfq::Expiry, kyber::Domain, mq_deadline::Rules,
};
use mmc_time::{Duration, Instant};
use record::{Random, digest, writes};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WORLDS: u64 = 64;
const STEPS: u32 = 450;
const TAGS: usize = 24;

/// What else is drawn.
trait Draw {
    fn of<T: Copy>(&mut self, some: &[T]) -> T;
    fn micros(&mut self, below: u64) -> Duration;
}

impl Draw for Random {
    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }
    fn micros(&mut self, below: u64) -> Duration {
        Duration::from_micros(self.below(below + 1))
    }
}

/// A policy with what can be seen of it and set in it beside [`Policy`].
trait Observed: Policy {
    fn see(&self, _: &mut String) {}
    fn turn(&mut self, _: &mut Random) -> String {
        String::new()
    }
}

impl Observed for NoSched {}
impl Observed for MqDeadline {
    fn see(&self, out: &mut String) {
        write!(out, " {} {:?}", self.state(), self.tunables()).unwrap();
    }
    fn turn(&mut self, random: &mut Random) -> String {
        let tags = random.of(&[1, 4, 31, 1000]);
        self.set_nr_requests(tags);
        format!("{tags} tags, rules {:?}", self.rules())
    }
}
impl Observed for Deadline {
    fn see(&self, out: &mut String) {
        write!(out, " {:?}", self.tunables()).unwrap();
    }
}
impl Observed for Kyber {
    fn see(&self, out: &mut String) {
        write!(out, " {:?}", Domain::ALL.map(|domain| self.depth(domain))).unwrap();
    }
}
impl<const N: usize> Observed for Cfq<N> {
    fn turn(&mut self, random: &mut Random) -> String {
        let tick = Duration::from_millis(random.of(&[0, 1, 10, 100]));
        self.set_tick(tick);
        format!("tick {tick}")
    }
}
impl<const N: usize> Observed for Bfq<N> {
    fn see(&self, out: &mut String) {
        let whys =
            [Expiry::TooIdle, Expiry::TimedOut, Expiry::Exhausted, Expiry::NoMoreRequests, Expiry::Preempted];
        write!(out, " {} {:?}", self.slots(), whys.map(|why| self.expired(why))).unwrap();
    }
    fn turn(&mut self, random: &mut Random) -> String {
        if random.one_in(4) {
            let rate = random.of(&[0, 1, 9000, 40_000, 1 << 20]);
            self.set_rate(rate);
            return format!("rate {rate}");
        }
        let (id, weight) =
            (StreamId(random.below(7) as u32), random.of(&[None, Some(1), Some(300), Some(1001)]));
        format!("weight {id:?} {weight:?} {:?}", self.set_weight(id, weight))
    }
}
impl<const N: usize, const D: usize> Observed for Ftb<N, D> {
    fn see(&self, out: &mut String) {
        let sizes = [1, 64, 65, 199, 200, 4096].map(|blocks| self.expected_write(blocks));
        write!(out, " {:?} {} {sizes:?}", self.stats(), self.chunk()).unwrap();
        for id in 0..8 {
            for sync in [false, true] {
                write!(out, " {:?}", self.account(StreamId(id), sync)).unwrap();
            }
        }
    }
    fn turn(&mut self, random: &mut Random) -> String {
        let (a, b) = (StreamId(random.below(7) as u32), StreamId(random.below(7) as u32));
        if random.one_in(2) {
            return format!("cover {a:?} {b:?} {}", self.cover(a, b));
        }
        let weight = random.of(&[None, Some(1), Some(300), Some(1001)]);
        format!("weight {a:?} {weight:?} {:?}", self.set_weight(a, weight))
    }
}

/// One that asks, waits, thinks, and asks again.
struct Program {
    stream: StreamId,
    /// Drawn from, one each time.
    ops: &'static [Op],
    flags: Flags,
    priority: Priority,
    /// Sectors, at least and how many steps of 8 more.
    blocks: (u32, u64),
    step: Step,
    /// Requests on the way at most, and asked for at a time.
    most: u32,
    at_once: u64,
    think: (Duration, u64),
    next: Instant,
    out: u32,
    place: u64,
    asked: u64,
}

#[derive(Clone, Copy)]
enum Step {
    Behind,
    Before,
    Anywhere,
    /// One, the next but one, and the one between.
    Between,
}

impl Program {
    fn new(n: u64, random: &mut Random) -> Self {
        let us = Duration::from_micros;
        let (ops, flags, blocks, step, most, at_once, think): (&[Op], _, _, _, _, _, _) = match random
            .below(10)
        {
            0 => (&[Op::Read], Flags::empty(), (8, 8), Step::Behind, 1, 1, (us(0), 900)),
            1 => (&[Op::Read], Flags::RAHEAD, (64, 16), Step::Behind, 4, 2, (us(0), 300)),
            2 => (&[Op::Read], Flags::META, (8, 1), Step::Anywhere, 2, 1, (us(500), 4000)),
            3 => (&[Op::Write], Flags::SYNC, (8, 4), Step::Behind, 1, 1, (us(2000), 1)),
            4 => (&[Op::Write], Flags::empty(), (128, 200), Step::Behind, 16, 6, (us(0), 3000)),
            5 => (&[Op::Write], Flags::empty(), (8, 4), Step::Before, 12, 12, (us(520_000), 1)),
            6 => (
                &[Op::Write, Op::Discard, Op::Discard],
                Flags::empty(),
                (8, 4),
                Step::Behind,
                6,
                4,
                (us(100), 9000),
            ),
            9 => (&[Op::Write], Flags::empty(), (8, 1), Step::Between, 15, 9, (us(0), 9000)),
            10 => (&[Op::Read], Flags::empty(), (16, 1), Step::Between, 9, 6, (us(100), 2000)),
            7 => (&[Op::Read, Op::Write], Flags::SYNC, (8, 1), Step::Behind, 1, 1, (us(40_000), 1)),
            8 => (&[Op::Read], Flags::SYNC, (8, 4), Step::Anywhere, 1, 1, (us(2_100_000), 1)),
            _ => (&[Op::Write, Op::WriteZeroes], Flags::SYNC, (8, 40), Step::Anywhere, 5, 3, (us(0), 20_000)),
        };
        let class = random.of(&[
            Class::None,
            Class::None,
            Class::None,
            Class::BestEffort,
            Class::RealTime,
            Class::Idle,
        ]);
        let level = if class == Class::None { 0 } else { random.below(9) as u8 };
        let place = 1 << (10 + n);
        let priority = Priority { class, level };
        let stream = StreamId(if random.one_in(5) { random.below(3) } else { n } as u32);
        Self {
            stream,
            ops,
            flags,
            priority,
            blocks,
            step,
            most,
            at_once,
            think,
            next: Instant::ZERO,
            out: 0,
            place,
            asked: 0,
        }
    }

    fn ask(&mut self, random: &mut Random) -> Request {
        let blocks = self.blocks.0 + 8 * random.below(self.blocks.1) as u32;
        let lba = match self.step {
            Step::Behind if random.one_in(20) => 8 * random.below(1 << 14),
            Step::Behind => self.place,
            Step::Before => self.place.saturating_sub(u64::from(blocks)),
            Step::Anywhere => 8 * random.below(1 << 20),
            Step::Between => {
                // From the left, then from the right; three threes touch, then there is a hole.
                let order = [[0, 2, 1], [2, 0, 1]][self.asked as usize / 3 % 2];
                self.place + u64::from(blocks) * order[self.asked as usize % 3]
            }
        };
        self.asked += 1;
        match self.step {
            Step::Before => self.place = lba,
            Step::Between if self.asked % 3 > 0 => {}
            Step::Between => self.place += u64::from(blocks) * (3 + self.asked / 3 % 4 / 3),
            _ => self.place = lba + u64::from(blocks),
        }
        let mut flags = self.flags;
        for (flag, n) in [(Flags::PREFLUSH, 30), (Flags::FUA, 50), (Flags::BARRIER, 40), (Flags::NOMERGE, 40)]
        {
            if random.one_in(n) {
                flags |= flag;
            }
        }
        Request {
            flags,
            priority: self.priority,
            ..Request::new(random.of(self.ops), lba, blocks, self.stream)
        }
    }
}

/// A policy for each world, of one type for all of them: what is made of the queue for a type takes time to compile.
type Fresh = fn() -> &'static mut dyn Observed;

struct World {
    fresh: Fresh,
    random: Random,
    queue: Queue<Vec<Slot>, &'static mut dyn Observed>,
    programs: Vec<Program>,
    /// Runs there, when the first and the other members end, and whether they fail.
    device: Vec<(Instant, Run, bool)>,
    room: usize,
    /// Costs: of a command, of a sector, of a change of place.
    costs: [Duration; 3],
    position: u64,
    grain: u64,
    now: Instant,
    wake: Option<Instant>,
    /// Who asked for what is on its way.
    open: BTreeMap<RequestId, usize>,
    text: String,
}

impl World {
    fn new(number: u64, fresh: Fresh) -> Self {
        let mut random = Random(2018 + 7919 * (number + 1));
        let limits = Limits {
            max_sectors: random.of(&[256, 1024, 4096]),
            max_segments: random.of(&[1, 2, 6, 128]),
            max_discard_segments: random.of(&[0, 1, 3]),
            merges: random.of(&[Merges::All, Merges::All, Merges::All, Merges::LastOnly, Merges::None]),
        };
        let slots = random.of(&[1, 2, 23, 32, 50]);
        let mut queue = Queue::with_limits(vec![Slot::FREE; slots], fresh(), limits);
        let mut text = format!("{limits:?} {slots}\n");
        assert_eq!((queue.capacity(), queue.limits()), (slots, limits));
        // A third of the worlds has all as it comes.
        if number % 3 > 0 {
            for info in (0..).map_while(|i| queue.tunable(i)).collect::<Vec<_>>() {
                let few = info.min + random.below(20) as i64;
                let value = match info.max - info.min {
                    1 => random.below(2) as i64,
                    _ if random.one_in(3) => {
                        random.of(&[info.min, info.min + 1, info.value / 2, info.value * 2, few])
                    }
                    _ => continue,
                };
                writeln!(text, "{} {value} {:?}", info.name, queue.tune(info.name, &value.to_string()))
                    .unwrap();
            }
        }
        let programs = (0..1 + random.below(7)).map(|n| Program::new(n, &mut random)).collect();
        let costs = [random.micros(1000), random.micros(60), random.micros(1500)];
        let (room, grain) =
            (random.of(&[1, 1, 2, 2, 5, 32]), random.of(&[1, 1, 1000, 125_000, 1_000_000, 4_000_000]));
        Self {
            fresh,
            queue,
            programs,
            device: Vec::new(),
            room,
            costs,
            position: 0,
            grain,
            now: Instant::from_millis(3),
            wake: None,
            open: BTreeMap::new(),
            text,
            random,
        }
    }

    /// Instants coincide: what a policy does exactly at a deadline is as much its own as what it does before and after.
    fn later(&self, by: Duration) -> Instant {
        let nanos = self.now.since(Instant::ZERO).as_nanos() + by.as_nanos();
        Instant::ZERO + Duration::from_nanos(nanos.next_multiple_of(self.grain))
    }

    fn arrive(&mut self, who: usize) {
        for _ in 0..1 + self.random.below(self.programs[who].at_once) {
            let request = self.programs[who].ask(&mut self.random);
            let admitted = self.queue.admits_request(&request, TAGS);
            let direct = self.random.one_in(6);
            let reply = match if direct { None } else { self.queue.merge(&request, self.now) } {
                Some(merged) => Ok(merged),
                None if self.random.one_in(60) => self.queue.insert_at_head(request, self.now),
                None if !admitted && !direct => {
                    writeln!(self.text, "{:?} late {request:?}", self.now).unwrap();
                    continue;
                }
                None => self.queue.insert(request, self.now),
            };
            let joined = self.queue.joined();
            writeln!(self.text, "{:?} {admitted} {request:?} {reply:?} {joined:?}", self.now).unwrap();
            if let Ok((id, how)) = reply {
                assert_eq!(self.queue.request(id), Some(&request));
                assert!(self.open.insert(id, who).is_none(), "{id:?} is given twice");
                if let Inserted::Merged { into } = how {
                    assert!(self.open.contains_key(&into), "joined {into:?}, which is not there");
                }
                self.programs[who].out += 1;
            }
        }
        let (base, jitter) = self.programs[who].think;
        let jitter = self.random.micros(jitter);
        self.programs[who].next = self.later(base + jitter);
    }

    fn dispatch(&mut self) {
        self.wake = None;
        while self.device.len() < self.room {
            let answer = self.queue.dispatch(self.now);
            let wake = self.queue.wake_at();
            writeln!(self.text, "{:?} {answer:?} {wake:?} {}", self.now, self.queue.queued()).unwrap();
            match answer {
                Dispatch::Run(run) => {
                    let seek = if run.lba == self.position { Duration::ZERO } else { self.costs[2] };
                    let mut took = self.costs[0] + self.costs[1].saturating_mul(run.blocks.into()) + seek;
                    if self.random.one_in(70) {
                        took = took.saturating_mul(40);
                    }
                    self.position = run.lba + u64::from(run.blocks);
                    let last = self.device.last().map_or(self.now, |(at, ..)| *at);
                    let at = self.later(took + last.since(self.now));
                    let failed = self.random.one_in(60);
                    if self.random.one_in(40) {
                        self.queue.requeue(&run, self.now);
                        writeln!(self.text, "back {:?}", run.head).unwrap();
                    } else {
                        self.device.push((at, run, failed));
                    }
                }
                Dispatch::Wait { at, completion } => {
                    assert!(at.is_some() || completion, "it waits for nothing");
                    assert!(
                        !completion || !self.device.is_empty() || at.is_some(),
                        "it waits for nothing that comes"
                    );
                    assert!(at.is_none_or(|at| at >= self.now), "{at:?} is past at {:?}", self.now);
                    self.wake = at.filter(|&at| at > self.now);
                    break;
                }
                Dispatch::Empty => break,
            }
        }
    }

    fn complete(&mut self) {
        let deep = self.room > 2 && self.random.one_in(3);
        let i = if deep { self.random.below(self.device.len() as u64) as usize } else { 0 };
        let (_, run, failed) = self.device.remove(i);
        let all: Vec<_> = std::iter::successors(Some(run.head), |&id| self.queue.next_member(id)).collect();
        assert_eq!(all.len(), usize::from(run.count), "{run:?}");
        // Now and then one of them ends and the others come back.
        let one = (self.random.one_in(25) && run.count > 1).then(|| self.random.of(&all));
        let members = one.map_or(all.clone(), |id| vec![id]);
        let mut left = run.blocks;
        for &id in &members {
            let Some(&request) = self.queue.request(id) else { panic!("{id:?} of {run:?} is gone") };
            let blocks = request.blocks.min(left);
            left -= blocks;
            let done = self.queue.complete(id, Outcome { blocks, failed }, self.now);
            writeln!(self.text, "{:?} {id:?} {failed} {done:?}", self.now).unwrap();
            if done.expect("it is at the device").last {
                self.programs[self.open[&id]].out -= 1;
                let who = self.open.remove(&id).expect("known");
                let (base, jitter) = self.programs[who].think;
                let jitter = self.random.micros(jitter);
                self.programs[who].next = self.later(base + jitter).max(self.programs[who].next);
                // Its id is nobody's now.
                assert_eq!(self.queue.complete(id, Outcome { blocks, failed }, self.now), None);
                assert_eq!(self.queue.cancel(id), None);
                assert_eq!(self.queue.request(id), None);
            }
        }
        if let Some(head) = one.and_then(|one| all.iter().find(|&&id| id != one)) {
            self.queue.requeue(&Run { head: *head, ..run }, self.now);
            writeln!(self.text, "the rest back {head:?}").unwrap();
        }
    }

    /// Something that is not a part of the daily work.
    fn odd(&mut self, number: u64) {
        match self.random.below(40) {
            0 | 1 => {
                let ids: Vec<_> = self.open.keys().copied().collect();
                if !ids.is_empty() {
                    let id = self.random.of(&ids);
                    let gone = self.queue.cancel(id);
                    writeln!(self.text, "cancel {id:?} {gone:?}").unwrap();
                    if gone.is_some() {
                        let who = self.open.remove(&id).expect("known");
                        self.programs[who].out -= 1;
                    }
                }
            }
            2 | 3 => {
                let turned = self.queue.policy_mut().turn(&mut self.random);
                writeln!(self.text, "{turned}").unwrap();
            }
            4 if number % 4 == 1 => {
                let info: Vec<_> = (0..).map_while(|i| self.queue.tunable(i)).collect();
                if !info.is_empty() {
                    let info = self.random.of(&info);
                    let value = self.random.of(&[info.min, info.min + 1, info.value / 2, info.value]);
                    let set = self.queue.tune(info.name, &value.to_string());
                    writeln!(self.text, "{} {value} {set:?}", info.name).unwrap();
                }
            }
            5 if number % 8 == 3 => {
                self.queue.replace((self.fresh)(), self.now);
                self.text.push_str("replaced\n");
            }
            6 if number % 8 == 5 => {
                let merges = self.random.of(&[Merges::All, Merges::LastOnly, Merges::None]);
                self.queue.set_limits(Limits { merges, ..self.queue.limits() });
                writeln!(self.text, "{merges:?}").unwrap();
            }
            7 => self.dispatch(),
            _ => {}
        }
    }

    /// What comes next, at its instant: an end at the device, what the policy waits for, a program.
    fn step(&mut self, asking: bool) {
        let end = self.device.first().map(|(at, ..)| *at);
        let programs = self.programs.iter().enumerate().filter(|(_, p)| asking && p.out < p.most);
        let program = programs.map(|(n, p)| (p.next, n)).min();
        let next = [end, self.wake, program.map(|p| p.0)].into_iter().flatten().min();
        let before = self.now;
        self.now = self.now.max(next.unwrap_or(self.now + Duration::from_millis(1)));
        if self.wake == Some(self.now) {
            // A nanosecond early is not the same.
            let early = Instant::ZERO + Duration::from_nanos(self.now.since(Instant::ZERO).as_nanos() - 1);
            if early > before && self.random.one_in(2) {
                (self.now, self.wake) = (early, None);
            }
        } else if end == Some(self.now) {
            self.complete();
        } else if let Some((_, who)) = program.filter(|p| p.0 <= self.now) {
            self.arrive(who);
        }
        self.dispatch();
        if self.random.one_in(4) {
            self.see();
        }
    }

    fn see(&mut self) {
        let kinds = [Kind::Read, Kind::SyncWrite, Kind::Async];
        let admits = [TAGS, 7, 1].map(|tags| kinds.map(|kind| self.queue.admits(kind, tags)));
        assert_eq!(self.queue.len(), self.open.len(), "what is there is what was taken and is not over");
        write!(self.text, "{admits:?} {:?}", self.queue.wake_at()).unwrap();
        self.queue.policy().see(&mut self.text);
        self.text.push('\n');
    }

    fn run(mut self, number: u64) -> String {
        for _ in 0..STEPS {
            self.step(true);
            self.odd(number);
        }
        for _ in 0..20 * STEPS {
            if self.queue.is_empty() {
                break;
            }
            self.step(false);
        }
        assert!(self.queue.is_empty() && self.open.is_empty(), "{} are left", self.queue.len());
        assert_eq!(self.queue.dispatch(self.now), Dispatch::Empty, "nor does the policy remember any");
        assert_eq!(self.queue.queued(), 0);
        self.see();
        self.text
    }
}

fn record(name: &str, fresh: Fresh) {
    let path = format!("{}/tests/data/observed/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let write = writes();
    let was = if write { Ok(String::new()) } else { std::fs::read_to_string(&path) };
    let was = was.unwrap_or_else(|e| panic!("{path}: {e}"));
    let (mut lines, mut text) = (was.lines(), String::new());
    for number in 0..WORLDS {
        let seen = World::new(number, fresh).run(number);
        if let Ok(folder) = std::env::var("OBSERVED") {
            std::fs::write(format!("{folder}/{name}-{number}.txt"), &seen).expect("OBSERVED is a folder");
        }
        let is = format!("world {number}: {} lines, {:016x}", seen.lines().count(), digest(&seen));
        if !write {
            // At once, not at the end: the first difference is the one to look at.
            assert_eq!(
                lines.next(),
                Some(&*is),
                "{name} is not as in {path}; if that is meant: DECISIONS=write"
            );
        }
        writeln!(text, "{is}").unwrap();
    }
    assert_eq!(lines.next(), None, "more worlds than {WORLDS} in {path}");
    if write {
        std::fs::write(&path, &text).expect("tests/data can be written");
    }
}

#[test]
fn none() {
    record("none", || Box::leak(Box::new(NoSched::new())));
}

#[test]
fn mq_deadline() {
    record("mq-deadline", || Box::leak(Box::new(MqDeadline::new())));
    record("mq-deadline-5.10", || Box::leak(Box::new(MqDeadline::with_rules(Rules::V5_10))));
}

#[test]
fn deadline() {
    record("deadline", || Box::leak(Box::new(Deadline::new())));
}

#[test]
fn bfq() {
    record("bfq", || Box::leak(Box::new(Bfq::<64>::new())));
}

#[test]
fn bfq_with_room_for_few() {
    record("bfq-3", || Box::leak(Box::new(Bfq::<3>::new())));
    record("bfq-9", || Box::leak(Box::new(Bfq::<9>::new())));
}

#[test]
fn cfq() {
    record("cfq", || Box::leak(Box::new(Cfq::<64>::new())));
    record("cfq-2", || Box::leak(Box::new(Cfq::<2>::new())));
}

#[test]
fn kyber() {
    record("kyber", || Box::leak(Box::new(Kyber::new())));
}

#[test]
fn ftb() {
    record("ftb", || Box::leak(Box::new(Ftb::<64, 32>::new())));
}

#[test]
fn ftb_with_room_for_few() {
    record("ftb-4", || Box::leak(Box::new(Ftb::<4, 2>::new())));
    record("ftb-9", || Box::leak(Box::new(Ftb::<9, 5>::new())));
}

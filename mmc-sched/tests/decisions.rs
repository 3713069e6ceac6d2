//! Every decision of every policy on six fixed loads, as data: a change of an algorithm shows as a difference of these
//! files, and a change that should change nothing (for speed, say) shows none.
//!
//! It says *what* a policy does, not whether that is right: the other tests do. After a change that is meant,
//! `DECISIONS=write cargo test -p mmc-sched --test decisions` writes the files anew; read the difference.
//!
//! Behind them stand digests of more of the same loads in which instants coincide (all are multiples of a grain), because
//! what a policy does exactly at a deadline is as much its own as what it does before and after.

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
    AnyPolicy, Class, Dispatch, Flags, Inserted, Kind, Limits, Op, Outcome, Policy, Priority, Queue, Request,
    RequestId, Run, Scheduler, Slot, StreamId,
};
use mmc_time::{Duration, Instant};
use record::{Random, compare, digest};
use std::fmt::Write as _;

/// One after the other, with the same policy each time: it must not remember the one before, but for its tunables.
const LOADS: [&str; 6] = [
    "anything, in any class",
    "neighbours that merge",
    "readers beside writeback",
    "more streams than there is room for",
    "tunables change",
    "anything again, with the tunables of before",
];

struct Load {
    kind: usize,
    random: Random,
    ends: [u64; 8],
}

impl Load {
    fn request(&mut self) -> Request {
        let r = &mut self.random;
        let stream = r.below(match self.kind {
            0 | 5 => 12,
            3 => 90,
            _ => 5,
        });
        let op = match (self.kind, r.below(20)) {
            (2, _) => [Op::Read, Op::Write][usize::from(stream > 2)],
            (_, 0) => Op::Discard,
            (_, 1) => Op::WriteZeroes,
            (_, n) => [Op::Read, Op::Write][usize::from(n > 10)],
        };
        let blocks = if r.one_in(9) { 200 + r.below(2500) } else { 8 * (1 + r.below(4)) } as u32;
        let end = &mut self.ends[stream as usize % 8];
        let lba = match (self.kind, r.below(6)) {
            (0 | 5, 0..4) | (_, 0) => 8 * r.below(1 << 20),
            (1, 1) => end.saturating_sub(2 * u64::from(blocks) + 8 * r.below(3)),
            _ => *end,
        };
        *end = lba + u64::from(blocks);
        let mut flags =
            if r.one_in(3) || (self.kind == 2 && stream < 4) { Flags::SYNC } else { Flags::empty() };
        for (flag, n) in [
            (Flags::META, 9),
            (Flags::RAHEAD, 9),
            (Flags::NOMERGE, 30),
            (Flags::FUA, 30),
            (Flags::PREFLUSH, 40),
            (Flags::BARRIER, 60),
        ] {
            if r.one_in(n) {
                flags |= flag;
            }
        }
        let class = match (self.kind, r.below(8)) {
            (0 | 4 | 5, 0) => Class::RealTime,
            (0 | 4 | 5, 1) => Class::Idle,
            (0 | 5, 2) => Class::BestEffort,
            _ => Class::None,
        };
        let level = if class == Class::None { 0 } else { r.below(8) as u8 };
        Request {
            flags,
            priority: Priority { class, level },
            ..Request::new(op, lba, blocks, StreamId(stream as u32 + 1))
        }
    }
}

struct Words(String, usize);

impl Words {
    fn say(&mut self, word: &str) {
        if self.1 + word.len() > 110 {
            self.0.push('\n');
            self.1 = 0;
        }
        self.0.push_str(word);
        self.0.push(' ');
        self.1 += word.len() + 1;
    }
}

/// `+3` in slot 3, `+3m1` merged into 1, `+F` no room; `>3*2@80+16` run of two with head 3, 16 sectors at 80; `w12c` wait 12 ms or
/// for a completion; `-` nothing; `!3` done, `!3.` and over, `x3` failed; `~3` requeued; `#3` cancelled; `=name` tuned; `t90` 90 ms later;
/// `a8` writeback may hold 8 tags.
/// `more` is the number of a further run, in which instants coincide.
fn decisions(policy: &mut AnyPolicy, kind: usize, more: Option<u64>) -> String {
    let grain = more.map_or(1, |n| [1_000_000, 500_000, 4_000_000, 125_000][n as usize % 4]);
    let on_grain = |now: Instant| {
        Instant::ZERO + Duration::from_nanos(now.since(Instant::ZERO).as_nanos().next_multiple_of(grain))
    };
    let limits = Limits { max_sectors: 2560, max_segments: 12, ..Limits::default() };
    let mut queue = Queue::with_limits(vec![Slot::FREE; 40], policy, limits);
    let mut load = Load {
        kind,
        random: Random(2018 + kind as u64 + 1000 * more.map_or(0, |n| n + 1)),
        ends: [0, 4096, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24],
    };
    let (mut now, mut device, mut known) =
        (Instant::from_millis(5), Vec::<Run>::new(), Vec::<RequestId>::new());
    let (mut words, mut wake, mut admitted) = (Words(String::new(), 0), None, 40);
    for _ in 0..1200 {
        now = on_grain(now + Duration::from_micros(load.random.below(1500)));
        match load.random.below(100) {
            0..34 => {
                let request = load.request();
                let reply = match queue.merge(&request, now) {
                    Some(merged) => Ok(merged),
                    None if load.random.one_in(50) => {
                        queue.insert_at_head(request, now).map_err(|(_, why)| format!("{why:?}"))
                    }
                    None if queue.admits_request(&request, 40) => {
                        queue.insert(request, now).map_err(|(_, why)| format!("{why:?}"))
                    }
                    None => Err("late".to_string()),
                };
                match reply {
                    Ok((id, Inserted::Queued)) => words.say(&format!("+{}", id.slot())),
                    Ok((id, Inserted::Merged { into })) => {
                        words.say(&format!("+{}m{}", id.slot(), into.slot()))
                    }
                    Err(ref why) => words.say(&format!("+{}", &why[..1])),
                }
                known.extend(reply.ok().map(|(id, _)| id));
            }
            34..64 if device.len() < 4 => match queue.dispatch(now) {
                Dispatch::Run(run) => {
                    words.say(&format!(">{}*{}@{}+{}", run.head.slot(), run.count, run.lba, run.blocks));
                    if load.random.one_in(40) {
                        queue.requeue(&run, now);
                        words.say(&format!("~{}", run.head.slot()));
                    } else {
                        device.push(run);
                    }
                }
                Dispatch::Wait { at, completion } => {
                    wake = at;
                    let at = at.map_or(String::new(), |at| at.since(now).as_millis().to_string());
                    words.say(&format!("w{at}{}", if completion { "c" } else { "" }));
                }
                Dispatch::Empty => words.say("-"),
            },
            64..94 if !device.is_empty() => {
                let run = device.remove(load.random.below(device.len() as u64) as usize);
                now = on_grain(now + Duration::from_micros(300 + 40 * u64::from(run.blocks)));
                let failed = load.random.one_in(50);
                let (mut id, mut left) = (Some(run.head), run.blocks);
                for _ in 0..run.count {
                    let Some(this) = id else { break };
                    id = queue.next_member(this);
                    let blocks = queue.request(this).map_or(0, |r| r.blocks.min(left));
                    left -= blocks;
                    let done = queue.complete(this, Outcome { blocks, failed }, now);
                    let over = if done.is_some_and(|d| d.last) { "." } else { "" };
                    words.say(&format!("{}{}{over}", if failed { "x" } else { "!" }, this.slot()));
                }
            }
            94 if !known.is_empty() => {
                let id = known.remove(load.random.below(known.len() as u64) as usize);
                if queue.cancel(id).is_some() {
                    words.say(&format!("#{}", id.slot()));
                }
            }
            95..98 => {
                let later = wake.take().unwrap_or(now + Duration::from_millis(1 << load.random.below(13)));
                words.say(&format!("t{}", later.since(now).as_millis()));
                // A nanosecond early or late is not the same.
                let later = match (more, load.random.0 % 5) {
                    (Some(_), 0) => later + Duration::from_nanos(1),
                    (Some(_), 1) => {
                        Instant::ZERO + Duration::from_nanos(later.since(Instant::ZERO).as_nanos() - 1)
                    }
                    _ => later,
                };
                now = now.max(later);
            }
            98 if kind == 4 => {
                if let Some(info) = queue.tunable(load.random.below(40) as usize) {
                    let span = (info.max - info.min).clamp(0, 2000) as u64;
                    let value = if load.random.one_in(4) {
                        info.value
                    } else {
                        info.min + load.random.below(span + 1) as i64
                    };
                    words.say(&format!(
                        "={}={value}{}",
                        info.name,
                        if queue.tune(info.name, &value.to_string()).is_ok() { "" } else { "?" }
                    ));
                }
            }
            _ => {}
        }
        let now_admitted = queue.admits(Kind::Async, 40);
        if now_admitted != admitted {
            admitted = now_admitted;
            words.say(&format!("a{admitted}"));
        }
    }
    words.0
}

#[test]
fn every_decision_is_as_it_was() {
    for name in AnyPolicy::NAMES.iter().copied().chain(["mq-deadline/5.10"]) {
        let (mut text, mut policy) = (String::new(), AnyPolicy::by_name(name).expect("built in"));
        for (kind, load) in LOADS.iter().enumerate() {
            writeln!(text, "# {load}\n{}", decisions(&mut policy, kind, None)).expect("text");
        }
        for (kind, load) in LOADS.iter().enumerate() {
            for more in 0..10 {
                let words = decisions(&mut policy, kind, Some(more));
                let digest = digest(&words);
                writeln!(text, "# {load}, more {more}: {digest:016x}").expect("text");
            }
        }
        let text = text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
        compare(&format!("decisions/{}.txt", name.replace('/', "-")), &text);
    }
}

/// What goes when, under a load in which who waits for an answer asks again: `readers` that read on in sequence 300 us after each
/// answer, and so many random writes of two streams that there is always one; the device holds `depth` commands.
fn closed(policy: &mut AnyPolicy, readers: u32, writes: usize, depth: usize) -> String {
    let mut queue = Queue::new(vec![Slot::FREE; 128], policy);
    let (mut random, mut now, mut free) = (Random(7), Instant::from_millis(5), Instant::ZERO);
    let mut device: Vec<(Instant, Run)> = Vec::new();
    let mut asks: Vec<(Instant, Request)> = (0..readers)
        .map(|k| (now, Request::new(Op::Read, u64::from(k) << 24, 8, StreamId(10 + k))))
        .collect();
    let (mut words, mut wake, mut waiting) = (Words(String::new(), 0), None, 0);
    for _ in 0..6000 {
        while waiting < writes {
            let stream = random.below(2) as u32;
            let lba = (1 << 32) + 8 * random.below(1 << 20);
            let write = Request::new(Op::Write, lba, 8, StreamId(1 + stream));
            if queue.insert(write, now).is_err() {
                break;
            }
            waiting += 1;
        }
        asks.retain(|(at, read)| *at > now || queue.insert(*read, now).is_err());
        while device.len() < depth {
            match queue.dispatch(now) {
                Dispatch::Run(run) => {
                    words.say(&format!("{}@{}", run.lba, now.since(Instant::ZERO).as_millis()));
                    free = free.max(now) + Duration::from_micros(200 + 900 * u64::from(!run.op.is_read()));
                    device.push((free, run));
                }
                Dispatch::Wait { at, .. } => {
                    wake = at;
                    break;
                }
                Dispatch::Empty => break,
            }
        }
        let next = device.iter().map(|d| d.0).chain(wake.take()).chain(asks.iter().map(|a| a.0)).min();
        now = next.unwrap_or(now).max(now + Duration::from_micros(1));
        while let Some(k) = device.iter().position(|d| d.0 <= now) {
            let (_, run) = device.remove(k);
            let mut id = Some(run.head);
            for _ in 0..run.count {
                let Some(this) = id else { break };
                id = queue.next_member(this);
                let request = *queue.request(this).expect("it runs");
                queue.complete(this, Outcome { blocks: request.blocks, failed: false }, now);
                if request.op.is_read() {
                    asks.push((now + Duration::from_micros(300), Request { lba: request.end(), ..request }));
                } else {
                    waiting -= 1;
                }
            }
        }
    }
    words.0
}

/// Seen by another test alone: it takes more commands at the device than there are slots here
/// (`writes_are_throttled_when_reads_suffer`).
const ELSEWHERE: (&str, &str) = ("kyber", "read_lat_nsec");

/// A tunable that changes nothing that anybody can see is broken, or does not belong there: for each there is a value, and a
/// load, with which a decision (what goes, when, how long is waited, who merges, how much writeback is admitted) is another.
#[test]
fn every_tunable_changes_some_decision() {
    type Load = fn(&mut AnyPolicy, u64) -> String;
    let loads: [Load; 7] = [
        |policy, n| decisions(policy, 0, Some(n)),
        |policy, n| decisions(policy, 1, Some(n)),
        |policy, n| decisions(policy, 2, Some(n)),
        |policy, n| decisions(policy, 3, Some(n)),
        |policy, n| closed(policy, 0, 40 + n as usize, 2),
        |policy, n| closed(policy, 1, 24, 1 + n as usize),
        |policy, n| closed(policy, 8, 64, 40 + n as usize),
    ];
    let (mut seen, mut silent) = (0, Vec::new());
    for name in AnyPolicy::NAMES.iter().copied().chain(["mq-deadline/5.10"]) {
        let mut as_they_are: Vec<Option<String>> = vec![None; loads.len() * 40];
        for info in (0..).map_while(|i| AnyPolicy::by_name(name).ok()?.tunable(i)) {
            // What is there for the kernel's sake, and has one value (idling in cfq: a card has no arms).
            if info.min == info.max || ELSEWHERE == (name, info.name) {
                continue;
            }
            // What more than two commands at the device may come to.
            let deep = info.name == "window";
            let policy = || {
                let mut policy = AnyPolicy::by_name(name).expect("built in");
                assert!(!deep || policy.tune("device_slots", "8").is_ok());
                policy
            };
            let mut own = vec![None; if deep { as_they_are.len() } else { 0 }];
            let known = if deep { &mut own } else { &mut as_they_are };
            let v = info.value;
            let others = [info.min, info.max, v / 8, v / 2, v.saturating_mul(4), v - 1, v + 1, 1];
            let mut others = others.map(|v| v.clamp(info.min, info.max)).to_vec();
            others.retain(|other| *other != v);
            let changes = (0..40).any(|n| {
                loads.iter().enumerate().any(|(k, load)| {
                    let known = &mut known[k * 40 + n as usize];
                    let was = known.get_or_insert_with(|| load(&mut policy(), n));
                    others.iter().any(|other| {
                        let mut policy = policy();
                        policy.tune(info.name, &other.to_string()).is_ok() && load(&mut policy, n) != *was
                    })
                })
            });
            seen += 1;
            if !changes {
                silent.push(format!("{name} {}", info.name));
            }
        }
    }
    assert!(seen >= 50, "{seen}");
    assert_eq!(silent, Vec::<String>::new(), "of {seen}");
}

/// The depth limits count from the first request on, not only after the first change of a tunable.
#[test]
fn what_is_admitted_is_the_same_after_every_tunable_was_set_to_what_it_is() {
    for name in AnyPolicy::NAMES.iter().copied().chain(["mq-deadline/5.10"]) {
        let queue = || Queue::new(vec![Slot::FREE; 8], AnyPolicy::by_name(name).expect("built in"));
        let (fresh, mut set) = (queue(), queue());
        for info in (0..).map_while(|i| fresh.tunable(i)) {
            assert_eq!(set.tune(info.name, &info.value.to_string()), Ok(()), "{name} {}", info.name);
        }
        for tags in [1, 2, 3, 11, 32, 64, 128, 256, 1024] {
            for kind in [Kind::Read, Kind::SyncWrite, Kind::Async] {
                let admits = fresh.admits(kind, tags);
                assert!((1..=tags).contains(&admits), "{name}: {admits} of {tags} tags for {kind:?}");
                assert_eq!(admits, set.admits(kind, tags), "{name}, {kind:?}, {tags} tags");
            }
            let request = Request::new(Op::Write, 8, 8, StreamId(3));
            assert!(fresh.admits_request(&request, tags), "{name}: nothing is queued yet, {tags} tags");
        }
    }
}

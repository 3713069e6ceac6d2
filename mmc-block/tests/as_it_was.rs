//! What becomes of every request, every wait and every count of the disk are what they were when `data/as_it_was.txt` was
//! written: digests of random lives on cards that fail, vanish, are changed and lose their supply, looked after or not, with
//! every policy.
//!
//! A change that is meant, here or in the models of `mmc-mock`, shows as lines that differ; what the disk then does is to be
//! looked at in the other tests. `MMC_BLOCK_WRITE_RUNS=1 cargo test -p mmc-block --test as_it_was` writes the file anew.

mod common;
mod stack;

use common::{FakeHost, Fault};
use mmc_block::{Abandoned, Disk, Done, Media, Next, Settings, Tag, Ticket, Wipe};
use mmc_hal::Batch;
use mmc_mock::Buf;
use mmc_mock::card::Card;
use mmc_mock::fault::Medium;
use mmc_proto::bus::{Signal, Timing};
use mmc_proto::host::Host;
use mmc_sched::{AnyPolicy, Class, Flags, Op, Priority, Queue, Request, Slot, StreamId};
use mmc_time::{Duration, Instant};
use stack::{Backend, Bench, emmc_card, has_data, sd_card, sd_card_with_a_cache};
use std::fmt::{self, Write};

/// FNV-1a of all that is written to it.
struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

/// The same numbers for ever (xorshift64).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(1);
        random
    }
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % n
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

const KINDS: [&str; 22] = [
    "lost",
    "no-answer",
    "command-crc",
    "response-crc",
    "response-index",
    "response-end",
    "status 0x00080000",
    "status 0x00100000",
    "status 0x80000000",
    "status 0x04000000",
    "late 50us",
    "busy 300ms",
    "busy 5s",
    "busy forever",
    "block 0 crc",
    "block 0 missing",
    "block 3 crc",
    "block 7 missing",
    "power-loss all",
    "power-loss none",
    "power-loss random",
    "remove",
];

/// Requests near each other and at the ends, of all kinds.
fn request(random: &mut Random, sectors: u64) -> Request {
    let op = random.of(&[Op::Read, Op::Read, Op::Write, Op::Write, Op::Write, Op::Discard, Op::WriteZeroes]);
    let blocks = random.of(&[1, 1, 8, 8, 3, 16, 64, 200]);
    let lba = match random.below(12) {
        0 => sectors - u64::from(blocks),
        1 => sectors - u64::from(blocks) + random.below(3),
        2 => random.below(sectors),
        _ => 4096 + random.below(24) * 8,
    };
    let mut flags = Flags::empty();
    for (flag, one_in) in [
        (Flags::SYNC, 2),
        (Flags::FUA, 6),
        (Flags::PREFLUSH, 12),
        (Flags::META, 8),
        (Flags::NOMERGE, 8),
        (Flags::RAHEAD, 9),
    ] {
        flags.set(flag, random.below(one_in) == 0);
    }
    let class = random.of(&[Class::None, Class::None, Class::BestEffort, Class::RealTime, Class::Idle]);
    let level = random.below(8) as u8;
    let stream = StreamId(random.below(4) as u32);
    match random.below(14) {
        0 => Request { flags: Flags::PREFLUSH, ..Request::new(Op::Write, 0, 0, stream) },
        1 => Request { flags: Flags::BARRIER, ..Request::new(Op::Write, 0, 0, stream) },
        _ => Request { flags, priority: Priority { class, level }, ..Request::new(op, lba, blocks, stream) },
    }
}

type Subject<H> = Disk<H, Queue<Vec<Slot>, AnyPolicy>, Vec<Tag<Buf>>>;

/// What can be done with any disk, and what it says to it.
struct Life<'a> {
    random: Random,
    log: &'a mut Digest,
    tickets: Vec<Ticket>,
    sectors: u64,
    /// Now and then the caller is late.
    now: Instant,
}

impl Life<'_> {
    fn note(&mut self, what: fmt::Arguments<'_>) {
        self.log.write_fmt(what).unwrap();
        self.log.write_char('\n').unwrap();
    }
    fn done(&mut self, done: &Done<Buf>) {
        let bytes =
            done.buffer.as_ref().map(|b| b.0.iter().fold(7_u64, |s, b| s.wrapping_mul(31) + u64::from(*b)));
        let Done { ticket, request, result, stamps, attempts, moved, status, .. } = done;
        self.note(format_args!(
            "{ticket:?} {request:?} {bytes:?} {result:?} {stamps:?} {attempts} {moved} {status:?}"
        ));
    }
    fn step<H>(&mut self, disk: &mut Subject<H>)
    where
        H: Host,
        H::Payload: Batch<Buffer = Buf>,
    {
        let now = self.now;
        match self.random.below(24) {
            0..11 => {
                for _ in 0..self.random.of(&[1, 1, 4, 12]) {
                    let (r, byte) = (request(&mut self.random, self.sectors), self.random.below(256) as u8);
                    let odd = self.random.below(20) == 0;
                    let accepted = if has_data(&r) {
                        let len = r.blocks as usize * 512 - usize::from(odd);
                        disk.submit(r, Buf(vec![byte; len]), now).map_err(|e| e.error)
                    } else {
                        disk.submit_bare(r, now)
                    };
                    self.note(format_args!("{r:?} {accepted:?}"));
                    self.tickets.extend(accepted.ok());
                }
            }
            11 => {
                let lba = self.random.below(64) * 1024;
                let blocks = self.random.of(&[0, 8, 1024, 2048, 1000]);
                let how = self.random.of(&[Wipe::SecureErase, Wipe::SecureTrim, Wipe::Sanitize]);
                let asked = Request::new(Op::Discard, lba, blocks, StreamId(1));
                let accepted = disk.submit_wipe(asked, how, now);
                self.note(format_args!("{how:?} {accepted:?}"));
                self.tickets.extend(accepted.ok());
            }
            12..15 => {
                while let Some(done) = disk.take_done() {
                    self.done(&done);
                    if self.random.below(4) == 0 {
                        break;
                    }
                }
            }
            15 if !self.tickets.is_empty() => {
                let ticket = self.tickets[self.random.below(self.tickets.len() as u64) as usize];
                if let Some(done) = disk.take(ticket) {
                    self.done(&done);
                }
            }
            16 if !self.tickets.is_empty() => {
                let ticket = self.tickets[self.random.below(self.tickets.len() as u64) as usize];
                let what = match disk.abandon(ticket, now) {
                    Abandoned::Done(done) => format!("done {:?}", done.result),
                    Abandoned::Orphaned => "orphaned".into(),
                    Abandoned::Withdrawn(buffer) => format!("withdrawn {}", buffer.0.len()),
                    Abandoned::Unknown => "unknown".into(),
                };
                self.note(format_args!("abandons {ticket:?}: {what}"));
            }
            17 if !self.tickets.is_empty() => {
                let ticket = self.tickets[self.random.below(self.tickets.len() as u64) as usize];
                let class = self.random.of(&[Class::RealTime, Class::BestEffort, Class::Idle]);
                let raised = disk.raise(ticket, Priority { class, level: 2 }, now);
                self.note(format_args!("raises {ticket:?}: {raised}"));
            }
            18 => {
                disk.set_nr_requests(self.random.of(&[1, 4, 32, 200]), now);
            }
            19 if self.random.below(3) == 0 => {
                let name = self.random.of(AnyPolicy::NAMES);
                let _ = disk.replace_policy(AnyPolicy::by_name(name).unwrap(), now);
                self.note(format_args!("{name}"));
            }
            20 if self.random.below(4) == 0 => disk.suspend(),
            21 => disk.resume(),
            22 if self.random.below(2) == 0 => disk.ask_for_host(),
            23 if self.random.below(2) == 0 => {
                if self.random.below(3) == 0 {
                    disk.evict(now)
                } else {
                    disk.give_back()
                }
            }
            _ => {}
        }
        for _ in 0..self.random.of(&[1, 2, 3, 10, 60]) {
            let next = disk.poll(self.now);
            self.note(format_args!("{next:?}"));
            match next {
                Next::Idle | Next::Lent => break,
                Next::Wait { until, .. } if until.is_never() => break,
                Next::Wait { until, .. } => {
                    let late = Duration::from_nanos(self.random.of(&[0, 0, 0, 0, 1, 50_000, 700_000_000]));
                    self.now = self.now.max(until) + late;
                }
            }
        }
        let (core, lent) = (disk.core(), disk.is_suspended());
        let counts = (
            core.outstanding(),
            core.tags_in_use(),
            core.oldest(),
            core.stopped(),
            core.has_done(),
            core.generation(),
        );
        let text =
            format!("{counts:?} {lent} {:?} {:?} {:?}", disk.media(), disk.power_may_go(), disk.statistics());
        self.note(format_args!("{text}"));
    }
    /// The end: whatever is left comes to one.
    fn ends<H>(&mut self, disk: &mut Subject<H>)
    where
        H: Host,
        H::Payload: Batch<Buffer = Buf>,
    {
        disk.give_back();
        disk.resume();
        match self.random.below(3) {
            0 => disk.shutdown(self.now),
            1 => {
                let left = Duration::from_millis(self.random.of(&[0, 1, 200, 5_000]));
                disk.prepare_power_off(self.now + left, self.now);
            }
            _ => {}
        }
        for n in 0..5_000 {
            if n < 200 || disk.core().outstanding() > 0 {
                self.step_end(disk);
            }
        }
        while let Some(done) = disk.take_done() {
            self.done(&done);
        }
        assert_eq!(disk.core().outstanding(), 0, "{:?}", disk.dump(self.now));
        let text = format!("{:?} {:?}", disk.power_may_go(), disk.statistics());
        self.note(format_args!("{text}"));
    }
    fn step_end<H>(&mut self, disk: &mut Subject<H>)
    where
        H: Host,
        H::Payload: Batch<Buffer = Buf>,
    {
        let next = disk.poll(self.now);
        self.note(format_args!("{next:?}"));
        if let Next::Wait { until, .. } = next
            && !until.is_never()
        {
            self.now = self.now.max(until);
        }
    }
}

/// A disk that looks after a card that fails.
fn cared_for<C: Medium + Presence + 'static>(
    seed: u64,
    make: impl Fn(&str) -> mmc_mock::fault::Faulty<C>,
    log: &mut Digest,
) {
    let mut random = Random::new(seed);
    let mut faults = Vec::new();
    for _ in 0..random.of(&[0, 1, 2, 4, 8]) {
        let kind = random.of(&KINDS);
        faults.push(match random.below(6) {
            0 => format!("at CMD{}: {kind}", random.of(&[6, 12, 13, 18, 25, 38, 49])),
            _ => format!("at frame {}: {kind}", 20 + random.below(300)),
        });
    }
    let (cache, policy) = (random.below(2) == 0, random.of(AnyPolicy::NAMES));
    let Some(mut bench) = Bench::new(Backend::Mock, make(&faults.join("\n")), cache, policy) else {
        return writeln!(log, "no card").unwrap();
    };
    let sectors = bench.disk.core().card().blocks;
    let now = bench.clock.now();
    let mut life = Life { random, log, tickets: Vec::new(), sectors, now };
    for _ in 0..60 {
        match life.random.below(40) {
            0 => bench.card.with(|c| c.card_mut().with_presence(false)),
            1..4 => {
                bench.card.with(|c| c.card_mut().with_presence(true));
                let now = life.now;
                bench.card.with(|c| c.signal(Signal::V3_3, Timing::Default, now));
                bench.disk.look_again();
            }
            4 | 5 if bench.disk.media() == Media::New => {
                let accepted = bench.disk.accept_media();
                life.note(format_args!("accepts {accepted}"));
            }
            _ => {}
        }
        bench.clock.advance_to(life.now);
        life.step(&mut bench.disk);
        bench.clock.advance_to(life.now);
        let frames = bench.card.with(|c| c.frames());
        life.note(format_args!("{frames} frames"));
    }
    life.ends(&mut bench.disk);
    let frames = bench.card.with(|c| c.frames());
    life.note(format_args!("{frames} frames"));
}

/// A disk that only reads, writes, and sends again, over a host that is told what to fail.
fn alone(seed: u64, log: &mut Digest) {
    let mut random = Random::new(seed);
    let fake = FakeHost::new(random.of(&[1, 8, 64, 65_535]), random.of(&[1, 2, 64]));
    {
        let mut inside = fake.lock();
        for _ in 0..random.of(&[0, 2, 8, 20]) {
            let fault =
                random.of(&[Fault::Silent, Fault::Crc, Fault::Crc, Fault::CardError, Fault::CardError]);
            inside.faults.insert(random.below(120) as usize, fault);
        }
        if random.below(4) == 0 {
            inside.bad.insert(4096 + random.below(200), Fault::CardError);
        }
        if random.below(6) == 0 {
            inside.faults.insert(random.below(120) as usize, random.of(&[Fault::Gone, Fault::Quarantine]));
        }
    }
    let policy = AnyPolicy::by_name(random.of(AnyPolicy::NAMES)).unwrap();
    let queue = Queue::new(vec![Slot::FREE; 24], policy);
    let settings = Settings { nr_requests: random.of(&[1, 8, 24]), retries: random.of(&[0, 2]) };
    let (capacity, places) = (random.of(&[1, 3, 16]), random.of(&[24, 40]));
    let card = common::card();
    let mut disk = Disk::new(
        fake.host(),
        queue,
        card,
        mmc_mock::BufBatch::new(capacity),
        common::tags(places),
        settings,
        (),
    )
    .unwrap();
    if random.below(2) == 0 {
        disk.prepare_with(mmc_mock::BufBatch::new(capacity)).unwrap();
    }
    let mut life = Life { random, log, tickets: Vec::new(), sectors: common::SECTORS, now: Instant::ZERO };
    for _ in 0..60 {
        life.step(&mut disk);
        if life.random.below(12) == 0 {
            let mut given = Vec::new();
            let got = disk.reclaim(|host| host.reclaim(), |buffer: Buf| given.push(buffer.0.len()));
            life.note(format_args!("reclaims {got} {given:?}"));
        }
    }
    life.ends(&mut disk);
    let seen = fake.lock().seen.clone();
    life.note(format_args!("{seen:?}"));
}

trait Presence {
    fn with_presence(&mut self, present: bool);
}

impl Presence for mmc_mock::card::SdCard {
    fn with_presence(&mut self, present: bool) {
        self.set_present(present);
    }
}

/// It is soldered.
impl Presence for mmc_mock::card::MmcCard {
    fn with_presence(&mut self, _: bool) {}
}

#[test]
fn the_disk_does_what_it_did() {
    let mut text = String::new();
    let mut line = |name: &str, life: &dyn Fn(u64, &mut Digest)| {
        for group in 0..8_u64 {
            let mut log = Digest(0xcbf2_9ce4_8422_2325);
            for seed in 0..12 {
                life(1 + seed + 100 * group, &mut log);
            }
            writeln!(text, "{name} {group}: {:016x}", log.0).unwrap();
        }
    };
    line("alone", &alone);
    line("sd", &|seed, log| cared_for(seed, sd_card, log));
    line("sd with a cache", &|seed, log| cared_for(seed, sd_card_with_a_cache, log));
    line("emmc", &|seed, log| cared_for(seed, emmc_card, log));
    let path = format!("{}/tests/data/as_it_was.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("MMC_BLOCK_WRITE_RUNS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let was = std::fs::read_to_string(&path).unwrap();
    for (was, is) in was.lines().zip(text.lines()) {
        assert_eq!(was, is, "not as it was");
    }
    assert_eq!(was.len(), text.len());
}

//! A request whose data lie in several places of memory: over every host and through every front, however they are cut.

mod common;
mod stack;

use common::{card, settings, write};
use mmc_block::{
    Async, BlockError, Blocking, Core, Env, Failure, Features, Handle, Idle, Limits, Lock, Refusal, Tag,
    Ticket, Watch, Work,
};
use mmc_hal::{Payload, Scatter};
use mmc_mock::card::{SdCard, Shared};
use mmc_mock::fault::Medium;
use mmc_mock::spi::SpiSd;
use mmc_mock::{Buf, Clock, HeapBatch};
use mmc_sched::{AnyPolicy, Flags, MqDeadline, Op, Queue, Request, Slot};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use stack::{AnyHost, Backend, Bench, Door, req, sd_card, spi_card};
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Waker};

type List = Scatter<Buf, Vec<Buf>>;

const T0: Instant = Instant::ZERO;

/// `data` in segments that end at `cuts` (in bytes, in any order, 0 and the end are ignored).
fn list(data: &[u8], cuts: &[usize]) -> List {
    let mut ends: Vec<usize> = cuts.iter().copied().filter(|c| (1..data.len()).contains(c)).collect();
    ends.push(data.len());
    ends.sort_unstable();
    ends.dedup();
    let mut from = 0;
    let parts = ends.iter().map(|to| Buf(data[std::mem::replace(&mut from, *to)..*to].to_vec())).collect();
    Scatter::new(parts).unwrap()
}

fn flat(list: &List) -> Vec<u8> {
    list.buffers().iter().flat_map(|b| b.0.iter().copied()).collect()
}

fn lengths(list: &List) -> Vec<usize> {
    list.buffers().iter().map(|b| b.0.len()).collect()
}

/// What sector `lba` holds after write number `version`: no byte is like its neighbours.
fn sector(lba: u64, version: u32) -> [u8; 512] {
    let seed =
        lba.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(version).wrapping_mul(0xd1b5_4a32_d192_ed03);
    std::array::from_fn(|i| (seed.rotate_left(i as u32 % 61) >> 8) as u8 ^ i as u8)
}

fn sectors(lba: u64, blocks: u32, version: u32) -> Vec<u8> {
    (lba..lba + u64::from(blocks)).flat_map(|lba| sector(lba, version)).collect()
}

/// In how many segments the sector with the most lies.
fn crowded(list: &List, blocks: u32) -> usize {
    let mut ends = vec![];
    lengths(list).iter().fold(0, |at, n| {
        ends.push((at, at + n));
        at + n
    });
    let touches = |k: usize| ends.iter().filter(|(from, to)| *from < (k + 1) * 512 && *to > k * 512).count();
    (0..blocks as usize).map(touches).max().unwrap_or(0)
}

/// A disk of scatter lists over a host that takes `most` segments in one command.
fn sd(backend: Backend, script: &str, most: u16, policy: &str) -> Bench<SdCard, List> {
    let (card, clock) = (Shared::new(sd_card(script)), Clock::new());
    let mut host = AnyHost::new(backend, card.clone(), &clock);
    host.most = most;
    let door = Door::new(move |f| card.with(f));
    Bench::over(host, door, clock, false, policy, list(&[0; 512], &[]), |_| ()).unwrap()
}

/// The same at the end of SPI wires.
fn spi(script: &str, most: u16, policy: &str) -> Bench<SpiSd, List> {
    let spi = spi_card(script);
    let (mut host, clock) = (AnyHost::spi(&spi), spi.clock());
    host.most = most;
    let door = Door::new(move |f| spi.with(f));
    Bench::over(host, door, clock, false, policy, list(&[0; 512], &[]), |_| ()).unwrap()
}

const AREA: u64 = 96;

#[derive(Clone, Debug)]
enum Act {
    /// Where, how many, where it is cut.
    Put(Request, Vec<usize>),
    Run,
}

fn act() -> impl Strategy<Value = Act> {
    let cut = prop_oneof![2 => (0..64_usize).prop_map(|k| k * 512), 3 => 0..32 * 512_usize, 1 => (0..8192_usize).prop_map(|k| k * 4)];
    let cuts =
        prop_oneof![6 => prop::collection::vec(cut.clone(), 0..12), 1 => prop::collection::vec(cut, 40..80)];
    let put = (any::<bool>(), 0..AREA - 32, 1..32_u32, cuts, 0..3_u32).prop_map(
        |(read, lba, blocks, cuts, stream)| {
            let (op, flags) = if read { (Op::Read, Flags::empty()) } else { (Op::Write, Flags::SYNC) };
            Act::Put(req(op, lba, blocks, flags, stream), cuts)
        },
    );
    prop_oneof![5 => put, 1 => Just(Act::Run)]
}

fn faults() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec![
        "no-answer",
        "lost",
        "block 0 crc",
        "block 2 crc",
        "block 7 missing",
        "block 13 crc",
        "busy forever",
        "status 0x00080000",
        "status 0x04000000",
        "power-loss none",
    ]);
    prop::collection::vec((30..300_u32, kind), 0..4).prop_map(|faults| {
        faults.into_iter().map(|(frame, kind)| format!("at frame {frame}: {kind}\n")).collect()
    })
}

/// A request on its way: its version, its segments, what its sectors could hold before.
type Waiting = HashMap<Ticket, (Request, u32, Vec<usize>, Vec<Vec<u32>>)>;

/// Random requests in random segments, against an array of sectors; how many went in more than one command.
fn is_an_array<C: Medium + 'static>(
    b: &mut Bench<C, List>,
    most: u16,
    acts: Vec<Act>,
) -> Result<u64, TestCaseError> {
    // Which versions each sector may have; what each read must bring.
    let mut model: Vec<Vec<u32>> = vec![vec![0]; AREA as usize];
    let mut waiting = Waiting::new();
    let (mut version, mut divided) = (0, 0);
    for act in acts.into_iter().chain([Act::Run]) {
        match act {
            Act::Put(r, cuts) => {
                version += 1;
                let data = if r.op.is_read() {
                    vec![0xee; r.blocks as usize * 512]
                } else {
                    sectors(r.lba, r.blocks, version)
                };
                let buffer = list(&data, &cuts);
                let (parts, worst) = (lengths(&buffer), crowded(&buffer, r.blocks));
                let now = b.clock.now();
                let ticket = match b.disk.submit(r, buffer, now) {
                    Ok(ticket) => ticket,
                    Err(refused) => {
                        prop_assert!(worst > most.into(), "{:?} of {worst} in {most}", refused.error);
                        let of_segments = matches!(refused.error, Refusal::Segments { max, .. } if max == usize::from(most));
                        prop_assert!(of_segments, "{:?}", refused.error);
                        prop_assert!(flat(&refused.buffer) == data && lengths(&refused.buffer) == parts);
                        continue;
                    }
                };
                prop_assert!(worst <= most.into(), "accepted with {worst} segments in a sector");
                let range = r.lba as usize..r.end() as usize;
                let before = model[range.clone()].to_vec();
                if !r.op.is_read() {
                    model[range].iter_mut().for_each(|may| may.push(version));
                }
                waiting.insert(ticket, (r, version, parts, before));
            }
            Act::Run => {
                b.run();
                b.revive();
            }
        }
        while let Some(done) = b.disk.take_done() {
            let (r, version, parts, before) = waiting.remove(&done.ticket).expect("once");
            let buffer = done.buffer.expect("it comes back");
            prop_assert_eq!(lengths(&buffer), parts.clone(), "the same segments");
            divided += u64::from(parts.len() > most.into() && done.result.is_ok());
            prop_assert!(done.result.is_err() || done.moved == r.blocks);
            prop_assert!(parts.len() <= most.into() || done.result.is_err() || done.attempts > 1);
            // All of it, or after an error as much as is said to be moved.
            let data = flat(&buffer);
            for k in 0..done.moved as usize {
                let lba = r.lba + k as u64;
                if r.op.is_read() {
                    let got = &data[k * 512..][..512];
                    let right =
                        before[k].iter().any(|v| got == if *v == 0 { [0; 512] } else { sector(lba, *v) });
                    prop_assert!(right, "{r:?}, sector {k} of {:?}", before[k]);
                } else {
                    let may = &mut model[lba as usize];
                    let at = may.iter().rposition(|v| *v == version).unwrap_or(0);
                    may.drain(..at);
                }
            }
        }
    }
    prop_assert!(waiting.is_empty(), "{} never ended", waiting.len());
    for (lba, may) in model.iter().enumerate() {
        let mut held = [0; 512];
        let at = lba as u64 * 512;
        b.card.with(|c| c.card_mut().with_storage(&mut |s| s.read(at, &mut held).unwrap()));
        let right = may.iter().any(|v| held == if *v == 0 { [0; 512] } else { sector(lba as u64, *v) });
        prop_assert!(right, "{lba} is none of {may:?}");
    }
    Ok(divided)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_its_data_are_cut_a_disk_is_an_array(
        acts in prop::collection::vec(act(), 1..24),
        faults in faults(),
        most in prop::sample::select(vec![1_u16, 2, 3, 5, 16, 64]),
        policy in prop::sample::select(AnyPolicy::NAMES),
        backend in prop::sample::select(vec![Backend::Mock, Backend::Dw, Backend::Sdhci, Backend::Spi]),
    ) {
        match backend {
            Backend::Spi => is_an_array(&mut spi(&faults, most, policy), most, acts)?,
            _ => is_an_array(&mut sd(backend, &faults, most, policy), most, acts)?,
        };
    }
}

#[test]
fn more_segments_than_a_command_has_go_in_several_over_every_host() {
    // 24 sectors in 41 segments, none of which ends where a sector does, on a host of 5: at most 4 segments a sector.
    let cuts: Vec<usize> = (1..41).map(|k| k * 300).collect();
    let w = req(Op::Write, 10, 24, Flags::SYNC, 1);
    let go = |b: &mut dyn FnMut(Request, List) -> (List, u16)| {
        let (_, commands) = b(w, list(&sectors(10, 24, 7), &cuts));
        // 5 segments of 300 bytes are 2 whole sectors.
        assert!((9..=12).contains(&commands), "{commands}");
        let (back, _) = b(req(Op::Read, 10, 24, Flags::empty(), 1), list(&[0; 24 * 512], &cuts));
        assert!(flat(&back) == sectors(10, 24, 7));
        assert_eq!(lengths(&back).len(), 41);
    };
    macro_rules! with {
        ($bench:expr) => {{
            let mut b = $bench;
            go(&mut |r, data| {
                let ticket = b.disk.submit(r, data, b.clock.now()).unwrap();
                b.run();
                let done = b.disk.take(ticket).unwrap();
                assert_eq!((done.result, done.moved), (Ok(()), 24));
                (done.buffer.unwrap(), done.attempts)
            });
            assert_eq!(b.disk.statistics().retries, 0);
        }};
    }
    for backend in stack::BACKENDS {
        with!(sd(backend, "", 5, "mq-deadline"));
    }
    with!(spi("", 5, "mq-deadline"));
}

#[test]
fn what_was_moved_before_a_fault_in_the_middle_is_told_across_segments() {
    // Blocks of a read that stay bad: the disk reads block by block, each of which lies in two segments or three.
    let script = "every CMD18: block 1 crc\nat CMD17#9: block 0 crc\nat CMD17#10: block 0 crc\nat CMD17#11: block 0 crc";
    let cuts: Vec<usize> = (1..27).map(|k| k * 300 + 7).collect();
    let check = |done: mmc_block::Done<List>| {
        assert!(matches!(done.result, Err(BlockError::Transfer(_))), "{:?}", done.result);
        assert_eq!(done.moved, 9, "the blocks before the bad one");
        let buffer = done.buffer.unwrap();
        assert!(flat(&buffer)[..9 * 512] == sectors(10, 9, 3)[..], "and they are in the right segments");
        assert!(flat(&buffer)[10 * 512..] == [0xee; 6 * 512], "those behind it were not touched");
    };
    macro_rules! with {
        ($bench:expr) => {{
            let mut b = $bench;
            let w = req(Op::Write, 10, 16, Flags::SYNC, 1);
            for (r, data) in
                [(w, sectors(10, 16, 3)), (req(Op::Read, 10, 16, Flags::empty(), 1), vec![0xee; 16 * 512])]
            {
                let ticket = b.disk.submit(r, list(&data, &cuts), b.clock.now()).unwrap();
                b.run();
                let done = b.disk.take(ticket).unwrap();
                if r.op == Op::Write {
                    assert_eq!(done.result, Ok(()));
                } else {
                    check(done);
                }
            }
        }};
    }
    for most in [3, 64] {
        for backend in stack::BACKENDS {
            with!(sd(backend, script, most, "mq-deadline"));
        }
    }
    with!(spi(script, 64, "mq-deadline"));
}

/// A core without a host: at most 64 sectors and 8 segments a command.
fn core(unit: u32) -> Core<Queue<Vec<Slot>, MqDeadline>, Vec<Tag<List>>, List> {
    let limits = Limits { max_blocks: 64, max_segments: 8 };
    let queue = Queue::new(vec![Slot::FREE; 16], MqDeadline::new());
    let tags = (0..32).map(|_| Tag::new()).collect();
    let mut card = card();
    card.unit = unit;
    let mut core = Core::new(queue, card, limits, tags, settings(16), ()).unwrap();
    core.set_features(Features { unit: 16, ..Features::default() });
    core
}

/// Carries out everything; (first sector, sectors, requests, segments) of each command.
fn commands(
    core: &mut Core<Queue<Vec<Slot>, MqDeadline>, Vec<Tag<List>>, List>,
) -> Vec<(u64, u32, u16, usize)> {
    let (mut batch, mut seen) = (HeapBatch::new(16), vec![]);
    while let Work::Run(job) = core.next(&mut batch, T0) {
        let run = *job.run();
        assert_eq!(batch.bytes(), run.blocks as usize * 512);
        seen.push((run.lba, run.blocks, run.count, batch.segments()));
        let _ = core.start(&job, T0);
        core.finish(job, Ok(run.blocks), Some(&mut batch), T0);
    }
    seen
}

#[test]
fn pieces_end_between_sectors_and_between_native_units() {
    let every = |n: usize| (1..100).map(|k| k * n).collect::<Vec<_>>();
    for (unit, lba, blocks, cuts, expected) in [
        // A segment a sector, and three sectors a segment.
        (1, 3, 20, every(512), vec![(3, 8, 1, 8), (11, 8, 1, 8), (19, 4, 1, 4)]),
        (1, 0, 30, every(1536), vec![(0, 24, 1, 8), (24, 6, 1, 2)]),
        // Segments of 700 bytes: 8 of them are ten sectors and a bit, which goes again.
        (1, 0, 25, every(700), vec![(0, 10, 1, 8), (10, 10, 1, 8), (20, 5, 1, 5)]),
        // Units of 4 KiB stay whole.
        (8, 8, 32, every(1000), vec![(8, 8, 1, 5), (16, 8, 1, 5), (24, 8, 1, 5), (32, 8, 1, 5)]),
        // What the longest command and the allocation unit say holds as well.
        (1, 5, 150, vec![100, 200], vec![(5, 59, 1, 3), (64, 64, 1, 1), (128, 27, 1, 1)]),
    ] {
        let mut core = core(unit);
        let r = write(lba, blocks);
        let ticket = core.submit(r, list(&sectors(lba, blocks, 1), &cuts), T0).unwrap();
        let seen = commands(&mut core);
        assert_eq!(seen, expected, "{blocks} in {} cuts, units of {unit}", cuts.len());
        let done = core.take(ticket).unwrap();
        assert_eq!((done.result, done.moved, usize::from(done.attempts)), (Ok(()), blocks, expected.len()));
        assert!(flat(&done.buffer.unwrap()) == sectors(lba, blocks, 1));
        assert_eq!((core.outstanding(), core.tags_in_use()), (0, 0));
    }
}

#[test]
fn requests_that_merged_go_in_one_command_as_far_as_their_segments_fit() {
    let mut core = core(1);
    let cuts = |n: usize| (1..n).map(|k| k * 150).collect::<Vec<_>>();
    // Segments of each of seven requests of one sector; a command has 8.
    for (lba, n) in [3, 3, 2, 1, 1, 4, 4].into_iter().enumerate() {
        core.submit(write(lba as u64, 1), list(&sectors(lba as u64, 1, 1), &cuts(n)), T0).unwrap();
    }
    assert_eq!(core.statistics().merged, 6);
    assert_eq!(commands(&mut core), [(0, 3, 3, 8), (3, 3, 3, 6), (6, 1, 1, 4)]);
    let done: Vec<_> = std::iter::from_fn(|| core.take_done()).collect();
    assert_eq!(done.len(), 7);
    for (lba, done) in done.into_iter().enumerate() {
        assert_eq!((done.request.lba, done.result, done.attempts), (lba as u64, Ok(()), 1));
        assert!(flat(&done.buffer.unwrap()) == sectors(lba as u64, 1, 1));
    }
    assert_eq!((core.outstanding(), core.tags_in_use()), (0, 0));
}

#[test]
fn of_a_run_that_was_cut_the_rest_ends_with_a_disk_that_stops() {
    let mut core = core(1);
    let tickets =
        [0, 1, 2].map(|lba| core.submit(write(lba, 1), list(&[1; 512], &[100, 200, 300, 400]), T0).unwrap());
    let mut batch = HeapBatch::new(16);
    let Work::Run(job) = core.next(&mut batch, T0) else { panic!("no work") };
    assert_eq!((job.run().blocks, batch.segments()), (1, 5));
    let _ = core.start(&job, T0);
    core.stop(mmc_block::Stopped::Shutdown);
    core.finish(job, Ok(1), Some(&mut batch), T0);
    assert_eq!(core.next(&mut batch, T0), Work::Idle);
    let [first, rest @ ..] = tickets.map(|t| core.take(t).unwrap());
    assert_eq!(first.result, Ok(()));
    for done in rest {
        assert_eq!((done.result, done.attempts), (Err(BlockError::Stopped(mmc_block::Stopped::Shutdown)), 0));
        assert_eq!(done.buffer.map(|b| b.segments()), Some(5));
    }
    assert_eq!((core.outstanding(), core.tags_in_use()), (0, 0));
}

#[test]
fn what_cannot_be_sent_is_refused_with_all_its_segments() {
    let mut empty = list(&[1; 1024], &[256]);
    empty.buffers_mut()[1].0.clear();
    let mut inside = list(&[1; 1025], &[256, 257]);
    inside.buffers_mut()[1].0.clear();
    let crowd = list(&[1; 1024], &(1..10).map(|k| 512 + k * 8).collect::<Vec<_>>());
    for (r, data, why) in [
        (write(0, 2), list(&[1; 1000], &[512]), Refusal::BufferLength { bytes: 1000, needed: 1024 }),
        (write(0, 1), list(&[1; 1024], &[512]), Refusal::BufferLength { bytes: 1024, needed: 512 }),
        (write(0, 2), empty, Refusal::BufferLength { bytes: 256, needed: 1024 }),
        (write(0, 2), inside, Refusal::EmptySegment(1)),
        (write(0, 1), Scatter::new(vec![]).unwrap(), Refusal::BufferLength { bytes: 0, needed: 512 }),
        (write(0, 0), Scatter::new(vec![]).unwrap(), Refusal::Empty),
        // The second sector lies in ten pieces; at the ninth it is one too many.
        (write(7, 2), crowd, Refusal::Segments { lba: 8, segments: 9, max: 8 }),
        (
            write(u64::MAX, 2),
            list(&[1; 1024], &[512]),
            Refusal::OutOfRange { lba: u64::MAX, blocks: 2, capacity: common::SECTORS },
        ),
    ] {
        let mut core = core(1);
        let parts = (flat(&data), lengths(&data));
        let refused = core.submit(r, data, T0).unwrap_err();
        assert_eq!((refused.error, refused.request), (why, r));
        assert_eq!((flat(&refused.buffer), lengths(&refused.buffer)), parts);
        assert_eq!(core.outstanding(), 0);
    }
    // As a native unit of 4 KiB it has ten, one sector at a time would do.
    let data = list(&[1; 4096], &(1..10).map(|k| k * 400).collect::<Vec<_>>());
    let refused = core(8).submit(write(16, 8), data, T0).unwrap_err();
    assert_eq!(refused.error, Refusal::Segments { lba: 16, segments: 9, max: 8 });
}

/// Virtual time for a front that waits, and for one that is woken.
#[derive(Clone)]
struct Virtual(Clock);

impl Idle for Virtual {
    fn now(&mut self) -> Instant {
        self.0.now()
    }
    fn wait(&mut self, until: Instant) {
        self.0.advance_to(until);
    }
}

impl Env for Virtual {
    fn now(&self) -> Instant {
        self.0.now()
    }
    // Everybody is polled all the time here.
    fn arm(&self, _: &Waker, _: Instant) {}
}

struct Guarded(Mutex<Async<stack::TheDisk<List>, Vec<Watch>>>);

impl Lock for Guarded {
    type Disk = stack::TheDisk<List>;
    type Watches = Vec<Watch>;
    fn with<R>(&self, f: impl FnOnce(&mut Async<Self::Disk, Vec<Watch>>) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

#[test]
fn every_front_takes_them() {
    let cuts = [100, 512, 700, 1100];
    let Bench { disk, clock, .. } = sd(Backend::Mock, "", 3, "ftb");
    let mut disk = Blocking::new(disk, Virtual(clock.clone()));
    disk.write(50, list(&sectors(50, 3, 1), &cuts)).unwrap();
    let back = disk.read(50, list(&[0; 3 * 512], &cuts)).unwrap();
    assert!(flat(&back) == sectors(50, 3, 1));
    let failed = disk.read(50, list(&[0; 700], &cuts)).unwrap_err();
    assert_eq!(failed.error, Failure::Refused(Refusal::BufferLength { bytes: 700, needed: 1024 }));
    assert_eq!(failed.buffer.map(|b| lengths(&b)), Some(vec![100, 412, 188]));

    let (disk, env) = disk.into_parts();
    let watches = (0..64).map(|_| Watch::new()).collect();
    let lock = Guarded(Mutex::new(Async::new(disk, watches).unwrap()));
    let handle = Handle::new(&lock, &env);
    let mut tasks = pin!(async {
        handle.write(60, list(&sectors(60, 3, 2), &cuts)).await.unwrap();
        let back = handle.read(49, list(&[0; 20 * 512], &cuts)).await.unwrap();
        assert!(flat(&back)[512..][..3 * 512] == sectors(50, 3, 1)[..]);
        assert!(flat(&back)[11 * 512..][..3 * 512] == sectors(60, 3, 2)[..]);
    });
    let mut runner = pin!(handle.runner());
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if tasks.as_mut().poll(&mut cx).is_ready() {
            return;
        }
        assert!(runner.as_mut().poll(&mut cx).is_pending());
        clock.advance(Duration::from_micros(10));
    }
    panic!("never over");
}

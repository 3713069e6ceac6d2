//! G3 and G6 through the disk: every accepted request completes exactly once with its own result, and what
//! completed writes stored is what reads return; under random workloads, schedulers and faults.

mod common;

use common::*;
use mmc_block::{Abandoned, Disk, Settings, Stopped, Ticket};
use mmc_hal::Dir;
use mmc_mock::card::Card;
use mmc_mock::fault::What;
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch};
use mmc_proto::host::Host;
use mmc_proto::machine::{CardTraits, Transfer, TransferOptions};
use mmc_sched::{AnyPolicy, Class, Limits, Priority, Queue, Request, Scheduler, Slot};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use std::collections::HashMap;

/// Sectors of the region that is used; small, so that requests touch and merge.
const REGION: u64 = 192;

#[derive(Clone, Debug)]
enum Step {
    Submit(Request),
    /// Time passes, the disk is polled whenever it asks for it.
    Pass(Duration),
    /// Takes what is done.
    Take,
    /// Nobody waits any more for one of those outstanding.
    Abandon(usize),
    /// One of those outstanding becomes more or less urgent.
    Raise(usize, Class),
}

fn step() -> impl Strategy<Value = Step> {
    let request = (0..3, 0..REGION, 1..17_u32).prop_map(|(what, lba, blocks)| {
        let blocks = blocks.min((REGION - lba) as u32);
        Step::Submit(match what {
            0 => read(lba, blocks),
            1 => write(lba, blocks),
            _ => sync_write(lba, blocks),
        })
    });
    prop_oneof![
        8 => request,
        2 => (0..40_u64).prop_map(|ms| Step::Pass(Duration::from_millis(ms))),
        1 => Just(Step::Take),
        1 => any::<usize>().prop_map(Step::Abandon),
        2 => (any::<usize>(), 0..4_usize).prop_map(|(n, class)| {
            Step::Raise(n, [Class::None, Class::RealTime, Class::BestEffort, Class::Idle][class])
        }),
    ]
}

#[derive(Clone, Debug)]
struct Setup {
    policy: &'static str,
    prepare: bool,
    slots: usize,
    settings: Settings,
    max_members: u16,
}

fn setup() -> impl Strategy<Value = Setup> {
    let policy = prop_oneof![Just("none"), Just("mq-deadline"), Just("bfq")];
    (policy, any::<bool>(), 1..24_usize, 1..12_usize, 0..3_u16, 1..12_u16).prop_map(
        |(policy, prepare, slots, nr_requests, retries, max_members)| {
            let settings = Settings { nr_requests, retries };
            Setup { policy, prepare, slots, settings, max_members }
        },
    )
}

/// What a sector may hold: one value, or one of several after writes whose outcome nobody knows.
type Sector = Vec<u8>;

/// Commands that were issued and have not ended.
#[derive(Default)]
struct Out(usize);

impl mmc_block::Observer for Out {
    fn issued(&mut self, _: Ticket, _: &mmc_sched::Run, _: Instant) {
        self.0 += 1;
    }
    fn ended(&mut self, _: Ticket, _: &mmc_sched::Run, _: bool, _: Instant) {
        self.0 -= 1;
    }
}

struct Model<H: Host<Payload = BufBatch>> {
    disk: Disk<H, Queue<Vec<Slot>, AnyPolicy>, Tags, Out>,
    now: Instant,
    sectors: Vec<Sector>,
    out: HashMap<Ticket, Request>,
    /// Where orphans may still write.
    orphans: Vec<Request>,
    accepted: usize,
    ended: usize,
    withdrawn: usize,
    /// Buffers the host kept.
    kept: usize,
    fill: u8,
    retries: u16,
}

impl<H: Host<Payload = BufBatch>> Model<H> {
    fn new(host: H, card: CardTraits, setup: &Setup) -> Self {
        let limits = Limits { max_sectors: 64, max_segments: setup.max_members, ..Limits::default() };
        let policy = AnyPolicy::by_name(setup.policy).unwrap();
        let queue = Queue::with_limits(vec![Slot::FREE; setup.slots], policy, limits);
        let places = tags(setup.slots + 16);
        let mut disk =
            Disk::new(host, queue, card, BufBatch::new(8), places, setup.settings, Out::default()).unwrap();
        if setup.prepare {
            disk.prepare_with(BufBatch::new(8)).unwrap();
        }
        Self {
            disk,
            now: Instant::ZERO,
            sectors: vec![vec![0]; REGION as usize],
            out: HashMap::new(),
            orphans: vec![],
            accepted: 0,
            ended: 0,
            withdrawn: 0,
            kept: 0,
            fill: 0,
            retries: setup.settings.retries.max(1),
        }
    }

    fn range(&mut self, r: &Request) -> &mut [Sector] {
        &mut self.sectors[r.lba as usize..r.end() as usize]
    }

    fn submit(&mut self, r: Request) {
        // Nothing orders requests that overlap; whoever wants an order waits. Reads may overlap reads.
        let clash = |o: &Request| o.lba < r.end() && r.lba < o.end() && !(o.op.is_read() && r.op.is_read());
        if self.out.values().chain(&self.orphans).any(clash) {
            return;
        }
        self.fill = self.fill.wrapping_add(1);
        let b = if r.op.is_read() { buf(&r, 0xEE) } else { buf(&r, self.fill) };
        match self.disk.submit(r, b, self.now) {
            Ok(t) => {
                self.accepted += 1;
                assert!(self.out.insert(t, r).is_none(), "two living requests with one ticket");
            }
            Err(refused) => assert_eq!(refused.buffer.0.len(), r.blocks as usize * 512),
        }
    }

    fn take(&mut self) {
        while let Some(d) = self.disk.take_done() {
            let r = self.out.remove(&d.ticket).expect("completed once, and only if it was accepted");
            assert_eq!(r, d.request);
            assert!(d.attempts <= 1 + self.retries, "{} attempts", d.attempts);
            let stamps = d.stamps;
            assert!(stamps.queued <= stamps.completed.unwrap() && stamps.completed.unwrap() <= self.now);
            assert!(stamps.inserted <= stamps.issued || stamps.issued.is_none());
            assert!(stamps.issued <= stamps.started || stamps.started.is_none());
            self.ended += 1;
            let Some(Buf(bytes)) = d.buffer else {
                assert!(d.result.is_err());
                self.kept += 1;
                self.doubt(&r, None);
                continue;
            };
            assert_eq!(bytes.len(), r.blocks as usize * 512);
            match (r.op.is_read(), d.result) {
                (true, Ok(())) => self.compare(&r, &bytes),
                (false, Ok(())) => self.range(&r).iter_mut().for_each(|s| *s = vec![bytes[0]]),
                (false, Err(_)) => self.doubt(&r, Some(bytes[0])),
                (true, Err(_)) => {}
            }
        }
    }

    /// A write whose outcome nobody knows.
    fn doubt(&mut self, r: &Request, byte: Option<u8>) {
        if !r.op.is_read() {
            // Without its buffer the value is not known either: anything the tests write.
            self.range(r).iter_mut().for_each(|s| match byte {
                Some(b) => s.push(b),
                None => *s = (0..=255).collect(),
            });
        }
    }

    fn compare(&mut self, r: &Request, bytes: &[u8]) {
        for (sector, got) in self.range(r).iter().zip(bytes.chunks(512)) {
            assert!(got.iter().all(|b| *b == got[0]), "a torn sector");
            assert!(sector.contains(&got[0]), "read {} where {sector:?} was stored, in {r:?}", got[0]);
        }
    }

    fn abandon(&mut self, n: usize) {
        let mut tickets: Vec<_> = self.out.keys().copied().collect();
        tickets.sort();
        let Some(t) = tickets.get(n % tickets.len().max(1)).copied() else { return };
        match self.disk.abandon(t, self.now) {
            Abandoned::Withdrawn(b) => {
                let r = self.out.remove(&t).unwrap();
                assert_eq!(b.0.len(), r.blocks as usize * 512);
                self.withdrawn += 1;
            }
            Abandoned::Orphaned => {
                let r = self.out.remove(&t).unwrap();
                self.withdrawn += 1;
                self.doubt(&r, None);
                self.orphans.push(r);
            }
            Abandoned::Done(d) => {
                let r = self.out.remove(&t).unwrap();
                self.withdrawn += 1;
                if d.result.is_ok() && !r.op.is_read() {
                    let byte = d.buffer.unwrap().0[0];
                    self.range(&r).iter_mut().for_each(|s| *s = vec![byte]);
                } else {
                    self.doubt(&r, None);
                }
            }
            Abandoned::Unknown => panic!("{t:?} is living"),
        }
    }

    fn raise(&mut self, n: usize, class: Class) {
        let mut tickets: Vec<_> = self.out.keys().copied().collect();
        tickets.sort();
        let Some(t) = tickets.get(n % tickets.len().max(1)).copied() else { return };
        self.disk.raise(t, Priority { class, level: 4 }, self.now);
    }

    fn pass(&mut self, d: Duration) {
        let end = self.now + d;
        let mut polls = 0;
        while let mmc_block::Next::Wait { until, .. } = self.disk.poll(self.now) {
            polls += 1;
            assert!(polls < 10_000, "busy for ever");
            if until > end {
                break;
            }
            self.now = self.now.max(until);
        }
        self.now = end.max(self.now);
    }

    /// Until nothing is outstanding: G2 bounds how long that takes.
    fn drain(&mut self, reclaim: impl FnOnce(&mut H) -> Option<BufBatch>) {
        let (begin, commands) = (self.now, self.disk.statistics().commands);
        self.now = run(&mut self.disk, self.now);
        let commands = self.disk.statistics().commands - commands + 1;
        let longest =
            Transfer::new(self.disk.core().card(), Dir::Write, 0, 64, TransferOptions::default()).limit();
        // A scheduler may idle meanwhile.
        let limit = longest.saturating_mul(commands) + Duration::from_secs(1);
        assert!(self.now.since(begin) <= limit, "{commands} commands took {}", self.now.since(begin));
        self.take();
        assert!(self.out.is_empty(), "lost: {:?}", self.out);
        assert_eq!((self.disk.core().outstanding(), self.disk.core().tags_in_use()), (0, 0));
        assert!(self.disk.core().scheduler().is_empty());
        assert_eq!(self.ended + self.withdrawn, self.accepted);
        if self.disk.core().stopped() == Some(Stopped::Quarantine) {
            let mut back = 0;
            assert!(self.disk.reclaim(reclaim, |_| back += 1));
            assert!(back >= self.kept, "orphans' buffers come back as well");
            self.kept = 0;
        }
        self.orphans.clear();
    }

    fn go(&mut self, steps: &[Step]) {
        for s in steps {
            match s {
                Step::Submit(r) => self.submit(*r),
                Step::Pass(d) => self.pass(*d),
                Step::Take => self.take(),
                Step::Abandon(n) => self.abandon(*n),
                Step::Raise(n, class) => self.raise(*n, *class),
            }
        }
    }
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::Silent),
        4 => Just(Fault::Crc),
        4 => Just(Fault::CardError),
        1 => Just(Fault::Quarantine),
        1 => Just(Fault::Gone),
    ]
}

proptest! {
    #[test]
    fn no_request_is_lost_or_doubled_on_a_faulty_host(
        setup in setup(),
        first in prop::collection::vec(step(), 1..80),
        second in prop::collection::vec(step(), 1..40),
        faults in prop::collection::btree_map(0..30_usize, fault(), 0..6),
        bad in prop::collection::btree_map(0..REGION, Just(Fault::CardError), 0..2),
    ) {
        let fake = FakeHost::new(64, 8);
        fake.lock().faults = faults;
        fake.lock().bad = bad;
        let mut model = Model::new(fake.host(), card(), &setup);
        model.go(&first);
        model.drain(Plain::reclaim);
        model.go(&second);
        model.drain(Plain::reclaim);
        let shared = fake.lock();
        prop_assert_eq!(shared.overlaps, 0, "one operation at a time");
        let everything = Request { blocks: REGION as u32, ..read(0, 1) };
        let store = shared.store[..REGION as usize * 512].to_vec();
        model.compare(&everything, &store);
    }

    #[test]
    fn without_faults_every_sector_is_in_exactly_one_command(
        setup in setup(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let fake = FakeHost::new(64, 8);
        let mut model = Model::new(fake.host(), card(), &setup);
        let (mut asked, mut all) = (HashMap::new(), 0);
        for s in steps.iter().filter(|s| !matches!(s, Step::Abandon(_))) {
            let before = model.accepted;
            model.go(std::slice::from_ref(s));
            let (tags, out) = (model.disk.core().tags_in_use(), model.disk.observer().0);
            prop_assert!(tags <= setup.settings.nr_requests);
            if setup.max_members <= 8 {
                prop_assert_eq!(tags, model.disk.core().scheduler().queued() + out, "a tag for each run");
            }
            if let (Step::Submit(r), true) = (s, model.accepted > before) {
                for lba in r.lba..r.end() {
                    *asked.entry((r.op.is_read(), lba)).or_insert(0) += 1;
                }
                all += 1;
            }
        }
        model.drain(Plain::reclaim);
        let mut sent = HashMap::new();
        for c in &fake.lock().seen {
            for lba in c.lba..c.lba + u64::from(c.blocks) {
                *sent.entry((c.dir == Dir::Read, lba)).or_insert(0) += 1;
            }
        }
        prop_assert_eq!(asked, sent);
        let s = model.disk.statistics();
        prop_assert_eq!((s.accepted, s.completed, s.failed, s.retries), (all, all, 0, 0));
        if setup.max_members <= 8 {
            prop_assert_eq!(s.commands + s.merged, s.accepted, "a command carries what merged, and no more");
        }
    }

    #[test]
    fn no_request_is_lost_or_doubled_on_a_mock_card_with_faults(
        setup in setup(),
        first in prop::collection::vec(step(), 1..60),
        second in prop::collection::vec(step(), 1..30),
        faults in prop::collection::vec((0..200_u64, what()), 0..6),
    ) {
        let bench = MockBench::new(Profile::cheap());
        bench.card.with(|c| {
            let begin = c.log().count();
            for (n, what) in &faults {
                c.faults_mut().push(begin + n, *what);
            }
        });
        let none = faults.is_empty();
        let mut model = Model::new(bench.host, bench.identified.traits, &setup);
        model.now = bench.now;
        model.go(&first);
        model.drain(|host| host.reclaim(Instant::NEVER));
        model.go(&second);
        model.drain(|host| host.reclaim(Instant::NEVER));
        let mut store = vec![0; REGION as usize * 512];
        bench.card.with(|c| c.storage_mut().read(0, &mut store)).unwrap();
        model.compare(&Request { blocks: REGION as u32, ..read(0, 1) }, &store);
        let violations = bench.card.violations();
        prop_assert!(!none || violations.is_empty(), "{violations:?}");
    }
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => Just(What::NoAnswer),
        3 => Just(What::CommandCrc),
        3 => Just(What::ResponseCrc),
        3 => prop_oneof![Just(1 << 19), Just(1 << 20), Just(1 << 26), Just(1_u32 << 31)].prop_map(What::Status),
        3 => (0..20_u32).prop_map(What::BlockCrc),
        3 => (0..20_u32).prop_map(What::BlockMissing),
        1 => Just(What::Stuck),
        1 => Just(What::Removed),
    ]
}

//! Tuning on the register model of the standard host: as many blocks as the controller wants, no point at all, damaged
//! blocks, a point that is lost later, and the three ways in which a controller says so.

use mmc_block::{Blocking, Care, Disk, Idle, Init, Next, Settings, Tag, identify};
use mmc_hal::{Dir, Mmio};
use mmc_mock::card::{MmcCard, SdCard, SdConfig, Shared};
use mmc_mock::fault::{Faulty, Medium};
use mmc_mock::sdhci::{Config, Sdhci};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, BufBatch, Clock, Memory, MemoryDma, Wakes, Window, zoo};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{
    Cause, Completion, Host, HostError, IrqHandler, Operation, Phase, Progress, Supervised,
};
use mmc_proto::machine::{Fallback, Identified, Mode, Reason};
use mmc_sched::{Deadline, Queue, Slot};
use mmc_sdhci::reg::{EXECUTE_TUNING, HOST2, SAMPLING_CLOCK};
use mmc_sdhci::{IrqHalf, Mailbox, Platform, SdhciEngine, Table};
use mmc_time::{Duration, Instant};

const PLATFORM: Platform = Platform {
    name: "the model",
    max_hz: 200_000_000,
    width: Width::Eight,
    v1_8: true,
    power_up: Duration::from_millis(1),
    ..Platform::STANDARD
};
const LIMIT: Duration = Duration::from_millis(500);

type Model<C> = Sdhci<Shared<Faulty<C>>>;
type TheHost<C> = Supervised<SdhciEngine<Model<C>, Window, MemoryDma, BufBatch>>;
type TheDisk<C> = Disk<TheHost<C>, Queue<[Slot; 64], Deadline>, Vec<Tag<Buf>>>;

/// How data and events come.
#[derive(Clone, Copy, Debug)]
struct Way {
    dma: bool,
    interrupts: bool,
}
const WAYS: [Way; 3] = [
    Way { dma: true, interrupts: true },
    Way { dma: true, interrupts: false },
    Way { dma: false, interrupts: true },
];

/// Virtual time, and the interrupt line if there is one.
struct Board<C> {
    clock: Clock,
    model: Model<C>,
    irq: Option<IrqHalf<Model<C>>>,
}

impl<C: Medium> Idle for Board<C> {
    fn now(&mut self) -> Instant {
        self.clock.now()
    }
    fn wait(&mut self, until: Instant) {
        loop {
            if let Some(irq) = self.irq.as_mut().filter(|_| self.model.irq()) {
                irq.handle();
                return;
            }
            if self.clock.now() >= until {
                return;
            }
            self.clock.advance_to(self.model.next_event().min(until));
        }
    }
}

struct Bench<C: Medium> {
    board: Board<C>,
    host: TheHost<C>,
    card: Shared<Faulty<C>>,
}

impl<C: Medium + 'static> Bench<C> {
    fn new(way: Way, config: Config, card: C, script: &str) -> Self {
        let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
        let card = Shared::new(Faulty::new(card, script.parse().unwrap()).unwrap());
        let model = Sdhci::new(card.clone(), clock.clone(), memory.clone(), config);
        let at = memory.alloc(4096);
        let table = Table::wide(memory.window(at, 4096), at, 4096).unwrap();
        let dma = MemoryDma::new(memory, u64::MAX);
        let platform = Platform { dma: way.dma, ..PLATFORM };
        let (host, irq) = if way.interrupts {
            let mailbox: &'static Mailbox = Box::leak(Box::new(Mailbox::new()));
            let (host, irq) = SdhciEngine::split(model.clone(), model.clone(), mailbox, table, dma, platform);
            (host, Some(irq))
        } else {
            (SdhciEngine::new(model.clone(), table, dma, platform), None)
        };
        Self { board: Board { clock, model, irq }, host, card }
    }

    fn identify(&mut self) -> Identified {
        let mut init = Init::new(&self.host.capabilities(), BufBatch::new(4), Buf(vec![0; 512])).unwrap();
        identify(&mut self.host, &mut init, &mut self.board).0.unwrap()
    }

    /// A disk that looks after the card.
    fn disk(mut self) -> (Blocking<TheDisk<C>, Board<C>>, Model<C>, Clock) {
        let caps = self.host.capabilities();
        let card = self.identify();
        let (model, clock) = (self.board.model.clone(), self.board.clock.clone());
        let tags = (0..64).map(|_| Tag::new()).collect();
        let queue = Queue::new([Slot::FREE; 64], Deadline::new());
        let settings = Settings::default();
        let mut disk =
            Disk::new(self.host, queue, card.traits, BufBatch::new(4), tags, settings, ()).unwrap();
        disk.look_after(card, Buf(vec![0; 512]), Care::new(&caps), clock.now()).unwrap();
        (Blocking::new(disk, self.board), model, clock)
    }

    fn run(&mut self, op: Operation<BufBatch>, limit: Duration) -> Completion<BufBatch> {
        let now = self.board.now();
        self.host.submit(op, now + limit, now).unwrap_or_else(|e| panic!("{e:?}"));
        loop {
            match self.host.poll(self.board.now()) {
                Progress::Done(done) => return done,
                Progress::Waiting { until, .. } => self.board.wait(until),
                Progress::Idle => panic!("idle without a completion"),
            }
        }
    }
    fn tune(&mut self) -> Result<u64, HostError> {
        self.run(Operation::Transfer(Command::send_tuning_block(), filled(64)), LIMIT).result.map(|r| r.bytes)
    }
    fn read(&mut self) -> Result<u64, HostError> {
        let command = Command::read_multiple_block(0, 8, Stop::Auto);
        self.run(Operation::Transfer(command, filled(4096)), LIMIT).result.map(|r| r.bytes)
    }
    fn retune(&mut self) -> bool {
        self.host.slot(self.board.clock.now()).retune
    }
    fn sampling(&self) -> bool {
        self.board.model.read32(HOST2) & (SAMPLING_CLOCK | EXECUTE_TUNING) == SAMPLING_CLOCK
    }
    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(self.board.model.violations(), Vec::<String>::new());
    }
}

fn filled(len: usize) -> BufBatch {
    use mmc_hal::Batch;
    let mut batch = BufBatch::new(1);
    batch.push(Buf(vec![0xa5; len]), 0, len).unwrap();
    batch
}
fn uhs(name: &str) -> SdCard {
    SdCard::new(zoo::card(name, Profile::ideal(), 1).unwrap()).unwrap()
}
/// Its eye moves by half a period in ten seconds, and back.
fn drifting() -> SdCard {
    let mut card = zoo::card("uhs-drift", Profile::ideal(), 1).unwrap();
    card.uhs.as_mut().unwrap().eye.drift_ps = 2500;
    SdCard::new(card).unwrap()
}
fn emmc() -> MmcCard {
    MmcCard::new(zoo::mmc("aaru-emmc51-62gb", Profile::ideal(), 1).unwrap()).unwrap()
}
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}
fn fallbacks(id: &Identified) -> Vec<Fallback> {
    id.fallbacks.iter().collect()
}
const DMA: Way = WAYS[0];

#[test]
fn a_card_is_brought_to_its_fastest_mode_and_reads_what_it_wrote() {
    for way in WAYS {
        let mut b = Bench::new(way, Config::FAST, uhs("uhs-64gb"), "");
        let caps = b.host.capabilities();
        assert!(caps.self_tuning && caps.sample_points == 1 && caps.max_blocks <= 8192);
        let id = b.identify();
        let bus = (id.bus.timing, id.bus.hz, id.bus.width, id.bus.signal);
        assert_eq!(
            bus,
            (Timing::Sdr104, 200_000_000, Width::Four, Signal::V1_8),
            "{way:?} {:?}",
            fallbacks(&id)
        );
        assert!(b.sampling() && b.board.model.tunings() == 1, "{way:?}");
        assert_eq!(b.card.with(|c| c.seen(false, 19)), 16, "as many blocks as the controller wants");
        let (mut disk, model, _) = b.disk();
        for (lba, blocks) in [(0, 1), (64, 8), (4096, 256)] {
            let data = pattern(blocks * 512, blocks as u8);
            disk.write(lba, Buf(data.clone())).unwrap();
            let back = disk.read(lba, Buf(vec![0; data.len()])).unwrap();
            assert!(back.0 == data, "{way:?}");
        }
        let moved = disk.disk().host().engine().transfers();
        assert_eq!(way.dma, moved.dma > moved.pio, "{moved:?}");
        assert_eq!(model.violations(), Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn an_emmc_is_brought_to_hs200_on_eight_lines() {
    for way in WAYS {
        let mut b = Bench::new(way, Config::FAST, emmc(), "");
        let id = b.identify();
        let bus = (id.bus.timing, id.bus.hz, id.bus.width, id.bus.signal);
        assert_eq!(
            bus,
            (Timing::Hs200, 200_000_000, Width::Eight, Signal::V1_8),
            "{way:?} {:?}",
            fallbacks(&id)
        );
        assert!(b.sampling() && b.card.with(|c| c.seen(false, 21)) == 16, "{way:?}");
        assert_eq!(b.read(), Ok(4096));
        let violations = b.board.model.violations();
        // An identification asks for an SD card first.
        assert!(violations.iter().all(|v| v.contains("not legal in state Idle")), "{violations:?}");
    }
}

#[test]
fn as_many_blocks_as_it_wants_but_no_more_than_forty() {
    for (taps, found) in [(4, true), (8, true), (40, true), (41, false)] {
        let mut b = Bench::new(DMA, Config { taps, ..Config::FAST }, uhs("uhs-64gb"), "");
        let id = b.identify();
        assert_eq!(b.sampling(), found, "{taps}");
        if found {
            assert_eq!((id.bus.timing, fallbacks(&id).len()), (Timing::Sdr104, 0), "{taps}");
            assert_eq!(b.card.with(|c| c.seen(false, 19)), u32::from(taps));
        } else {
            let modes: Vec<_> = fallbacks(&id).iter().map(|f| (f.mode, f.reason)).collect();
            let tuning = |timing| (Mode::Timing(timing), Reason::Tuning);
            assert_eq!(modes, [tuning(Timing::Sdr104), tuning(Timing::Sdr50)], "the log says which and why");
            assert_eq!(id.bus.timing, Timing::Ddr50, "the fastest that needs no tuning");
        }
        assert_eq!(b.read(), Ok(4096), "{taps}");
        b.assert_clean();
    }
}

#[test]
fn a_controller_that_never_finds_a_point_leaves_a_slower_mode_that_works() {
    for way in WAYS {
        let never = Config { never_locks: true, ..Config::FAST };
        let mut b = Bench::new(way, never, uhs("uhs-64gb"), "");
        let id = b.identify();
        assert_eq!((id.bus.timing, fallbacks(&id).len()), (Timing::Ddr50, 2), "{way:?}");
        assert!(!b.sampling() && b.read() == Ok(4096), "{way:?}");
        b.assert_clean();
        let mut b = Bench::new(way, never, emmc(), "");
        let id = b.identify();
        let first = fallbacks(&id)[0];
        assert_eq!((first.mode, first.reason), (Mode::Timing(Timing::Hs200), Reason::Tuning), "{way:?}");
        assert_eq!((id.bus.timing, id.bus.width), (Timing::High, Width::Eight), "{way:?}");
        assert_eq!(b.read(), Ok(4096), "{way:?}");
    }
}

#[test]
fn sdr50_is_tuned_only_where_the_capabilities_say_so() {
    let [low, high] = Config::FAST.caps;
    // Without SDR104 and DDR50; bit 13: tuning for SDR50.
    for tuned in [true, false] {
        let high = high & !6 & !(1 << 13) | u32::from(tuned) << 13;
        let mut card = zoo::card("uhs-64gb", Profile::ideal(), 1).unwrap();
        if !tuned {
            // Such a controller is made for an eye that is open by the book.
            let uhs = card.uhs.as_mut().unwrap();
            (uhs.eye.delay_ps, uhs.eye.drift_ps) = (2500, 0);
        }
        let mut b =
            Bench::new(DMA, Config { caps: [low, high], ..Config::FAST }, SdCard::new(card).unwrap(), "");
        let caps = b.host.capabilities();
        assert_eq!((caps.self_tuning, caps.sample_points), (tuned, u16::from(tuned)));
        let id = b.identify();
        assert_eq!((id.bus.timing, fallbacks(&id).len()), (Timing::Sdr50, 0), "{tuned}");
        assert_eq!((b.sampling(), b.board.model.tunings()), (tuned, tuned.into()));
        assert_eq!(b.read(), Ok(4096));
        b.assert_clean();
    }
}

#[test]
fn damaged_blocks_make_bad_points_and_nothing_else() {
    for damage in
        ["block 0 crc", "block 0 missing", "block 0 flip 17.3", "no-answer", "response-crc", "late 2ms"]
    {
        let mut b = Bench::new(DMA, Config::FAST, uhs("uhs-64gb"), &format!("at CMD19#5: {damage}"));
        let id = b.identify();
        assert_eq!((id.bus.timing, b.sampling()), (Timing::Sdr104, true), "one {damage}");
        assert_eq!((b.board.model.tunings(), b.read()), (1, Ok(4096)), "one {damage}");
        if damage.starts_with("late") {
            continue;
        }
        let mut b = Bench::new(DMA, Config::FAST, uhs("uhs-64gb"), &format!("every CMD19: {damage}"));
        let id = b.identify();
        assert_eq!((id.bus.timing, fallbacks(&id).len()), (Timing::Ddr50, 2), "every {damage}");
        assert_eq!(b.read(), Ok(4096), "every {damage}");
        assert_eq!(b.board.model.violations(), Vec::<String>::new(), "every {damage}");
    }
}

#[test]
fn the_point_is_kept_while_clock_and_lines_are_and_only_then() {
    let mut b = Bench::new(DMA, Config::FAST, uhs("uhs-64gb"), "");
    let bus = b.identify().bus;
    let set = |b: &mut Bench<SdCard>, bus| b.run(Operation::Bus(bus), LIMIT).result.map(|_| b.sampling());
    assert_eq!(set(&mut b, BusConfig { hz: 0, ..bus }), Ok(true), "the clock stands");
    assert_eq!(set(&mut b, bus), Ok(true));
    assert_eq!(b.read(), Ok(4096));
    assert_eq!(set(&mut b, BusConfig { hz: 100_000_000, ..bus }), Ok(false), "another clock");
    assert_eq!(set(&mut b, bus), Ok(false));
    assert_eq!(b.tune(), Ok(64));
    assert!(b.sampling() && b.read() == Ok(4096));
    // A read of the tuning block where nothing is tuned is a read.
    assert_eq!(set(&mut b, BusConfig { hz: 25_000_000, timing: Timing::Sdr12, ..bus }), Ok(false));
    assert_eq!((b.tune(), b.board.model.tunings()), (Ok(64), 2));
    assert_eq!(b.run(Operation::Power(Power::Off), LIMIT).result.map(|_| b.sampling()), Ok(false));
}

#[test]
fn a_tuning_that_is_stopped_leaves_the_controller_at_rest() {
    for way in WAYS {
        let mut b = Bench::new(way, Config { taps: 200, ..Config::FAST }, uhs("uhs-64gb"), "");
        b.board.model.configure(|c| c.taps = 16);
        b.identify();
        b.board.model.configure(|c| c.taps = 200);
        // By the caller's limit, in the middle.
        let began = b.board.now();
        let tuning = |b: &mut Bench<SdCard>, limit| {
            let op = Operation::Transfer(Command::send_tuning_block(), filled(64));
            b.run(op, limit).result.map_err(|e| (e.cause, e.phase))
        };
        assert_eq!(tuning(&mut b, Duration::from_micros(30)), Err((Cause::Limit, Phase::Data)), "{way:?}");
        assert!(b.board.now().since(began) < Duration::from_millis(1), "{way:?}");
        assert_eq!(b.board.model.read32(HOST2) & (EXECUTE_TUNING | SAMPLING_CLOCK), 0, "{way:?}");
        // By itself, after forty.
        assert_eq!(tuning(&mut b, LIMIT), Err((Cause::Crc, Phase::Data)), "{way:?}");
        assert_eq!(b.board.model.read32(HOST2) & EXECUTE_TUNING, 0, "{way:?}");
        // And the next one works.
        b.board.model.configure(|c| c.taps = 16);
        assert_eq!((b.tune(), b.read()), (Ok(64), Ok(4096)), "{way:?}");
        // The card leaves in the middle of one.
        b.board.model.configure(|c| c.taps = 30);
        let now = b.board.now();
        let op = Operation::Transfer(Command::send_tuning_block(), filled(64));
        b.host.submit(op, now + LIMIT, now).unwrap();
        assert!(matches!(b.host.poll(now), Progress::Waiting { .. }));
        b.card.with(|c| c.act(&mmc_mock::fault::Action::Remove, now));
        let done = loop {
            match b.host.poll(b.board.now()) {
                Progress::Done(done) => break done,
                Progress::Waiting { until, .. } => b.board.wait(until),
                Progress::Idle => panic!("idle"),
            }
        };
        assert_eq!(done.result.unwrap_err().cause, Cause::NoCard, "{way:?}");
        assert_eq!(b.board.model.violations(), Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn the_timer_and_the_requests_of_the_controller_ask_once_for_another_tuning() {
    // Mode 1: the timer alone, 8 s.
    let mut b = Bench::new(DMA, Config::retuned(1, 4), uhs("uhs-64gb"), "");
    b.identify();
    assert!(!b.retune());
    b.board.clock.advance(Duration::from_secs(8));
    assert!(b.retune());
    assert_eq!(b.tune(), Ok(64));
    assert!(!b.retune());
    // Modes 2 and 3: the controller asks. Mode 3 has no limit of 4 MiB.
    for mode in [2, 3] {
        let mut b = Bench::new(DMA, Config::retuned(mode, 0), uhs("uhs-64gb"), "");
        assert_eq!(b.host.capabilities().max_blocks > 8192, mode == 3);
        b.identify();
        b.board.clock.advance(Duration::from_secs(10_000));
        assert!(!b.retune(), "no timer");
        b.board.model.ask_to_retune();
        assert!(!b.board.model.irq(), "nobody is woken who has nothing to send");
        assert!(b.retune(), "the level is enough");
        assert_eq!((b.read(), b.retune()), (Ok(4096), true), "what runs or is sent before is well");
        assert_eq!((b.tune(), b.retune()), (Ok(64), false));
        // One that asks again at once does not keep everything else from its turn.
        b.board.model.ask_to_retune();
        assert!(!b.retune());
        assert_eq!((b.read(), b.retune()), (Ok(4096), true));
    }
    // An error of the tuning circuit: the running command fails, and the point is to be found anew.
    let mut b = Bench::new(DMA, Config::FAST, uhs("uhs-64gb"), "");
    b.identify();
    let now = b.board.now();
    let read = Operation::Transfer(Command::read_multiple_block(0, 8, Stop::Auto), filled(4096));
    b.host.submit(read, now + LIMIT, now).unwrap();
    assert!(matches!(b.host.poll(now), Progress::Waiting { .. }));
    b.board.model.fail_tuning();
    let result = loop {
        match b.host.poll(b.board.now()) {
            Progress::Done(done) => break done.result,
            Progress::Waiting { until, .. } => b.board.wait(until),
            Progress::Idle => panic!("idle"),
        }
    };
    assert_eq!(result.map_err(|e| e.cause), Err(Cause::Crc));
    assert!(b.retune());
}

/// Reads with pauses for `seconds`, 10 a second, and compares.
fn read_for<C: Medium + 'static>(
    disk: &mut Blocking<TheDisk<C>, Board<C>>,
    clock: &Clock,
    seconds: u64,
    data: &[u8],
) {
    for round in 0..10 * seconds {
        clock.advance(Duration::from_millis(100));
        let back = disk.read(64, Buf(vec![0; data.len()])).unwrap_or_else(|e| panic!("{round}: {}", e.error));
        assert!(back.0 == data, "{round}");
    }
}

#[test]
fn a_point_that_is_lost_is_found_again_after_the_first_error() {
    for way in WAYS {
        let (mut disk, model, clock) = Bench::new(way, Config::FAST, drifting(), "").disk();
        let data = pattern(4096, 7);
        disk.write(64, Buf(data.clone())).unwrap();
        read_for(&mut disk, &clock, 60, &data);
        let s = *disk.disk().statistics();
        assert!(s.retunes >= 2 && s.resets == 0, "{way:?} {s:?}");
        assert_eq!(model.tunings(), 1 + s.retunes, "{way:?}");
        assert_eq!(disk.disk().card().unwrap().bus.timing, Timing::Sdr104, "{way:?}");
    }
    let card = MmcCard::new(zoo::mmc("emmc-drift", Profile::ideal(), 1).unwrap()).unwrap();
    let (mut disk, _, clock) = Bench::new(DMA, Config::FAST, card, "").disk();
    let data = pattern(4096, 7);
    disk.write(64, Buf(data.clone())).unwrap();
    read_for(&mut disk, &clock, 60, &data);
    assert!(disk.disk().statistics().retunes >= 2, "{:?}", disk.disk().statistics());
    assert_eq!(disk.disk().card().unwrap().bus.timing, Timing::Hs200);
}

#[test]
fn with_the_timer_the_point_is_found_again_before_it_is_lost() {
    // 2 s: in this time the eye moves by a tenth of a period.
    let (mut disk, model, clock) = Bench::new(DMA, Config::retuned(1, 2), drifting(), "").disk();
    let data = pattern(4096, 7);
    disk.write(64, Buf(data.clone())).unwrap();
    read_for(&mut disk, &clock, 60, &data);
    let s = *disk.disk().statistics();
    assert_eq!((s.retries, s.resets), (0, 0), "not one error: {s:?}");
    assert!((28..=31).contains(&s.retunes), "every two seconds: {s:?}");
    assert_eq!(model.violations(), Vec::<String>::new());
}

/// Until the supply may go: what came of it.
fn say_goodbye<C: Medium + 'static>(disk: &mut TheDisk<C>, board: &mut Board<C>) -> bool {
    let now = board.now();
    disk.prepare_power_off(now + Duration::from_secs(2), now);
    loop {
        let next = disk.poll(board.now());
        match (disk.power_may_go(), next) {
            (Some(well), _) => return well,
            (None, Next::Wait { until, .. }) => board.wait(until),
            (None, next) => panic!("{next:?}"),
        }
    }
}

/// The timer is over each time that somebody looks.
#[test]
fn a_disk_is_tuned_for_what_it_sends_and_for_nothing_else() {
    for way in WAYS {
        let (mut disk, model, clock) = Bench::new(way, Config::retuned(1, 4), uhs("uhs-64gb"), "").disk();
        disk.write(64, Buf(pattern(4096, 7))).unwrap();
        let (mut disk, board) = disk.into_parts();
        for _ in 0..3 {
            clock.advance(Duration::from_secs(20));
            assert_eq!((disk.poll(clock.now()), model.tunings()), (Next::Idle, 1), "{way:?}");
        }
        let mut disk = Blocking::new(disk, board);
        assert!(disk.read(64, Buf(vec![0; 4096])).unwrap().0 == pattern(4096, 7), "{way:?}");
        assert_eq!(model.tunings(), 2, "{way:?}: before the read");
        let (mut disk, mut board) = disk.into_parts();
        clock.advance(Duration::from_secs(20));
        disk.ask_for_host();
        while let Next::Wait { until, .. } = disk.poll(board.now()) {
            board.wait(until);
        }
        assert!(disk.lent().is_some() && model.tunings() == 3, "{way:?}: before somebody else's command");
        disk.give_back();
        // There is no cache to flush: the card is told nothing more.
        clock.advance(Duration::from_secs(20));
        assert!(say_goodbye(&mut disk, &mut board), "{way:?}");
        clock.advance(Duration::from_secs(20));
        let after = disk.poll(clock.now());
        assert_eq!((after, disk.power_may_go(), model.tunings()), (Next::Idle, Some(true), 3), "{way:?}");
        assert_eq!(board.model.violations(), Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn what_is_in_the_cache_is_stored_with_a_good_sample_point() {
    let mut b = Bench::new(DMA, Config::retuned(1, 4), emmc(), "");
    let (caps, card) = (b.host.capabilities(), b.identify());
    let Bench { mut board, host, card: medium } = b;
    let (model, clock) = (board.model.clone(), board.clock.clone());
    let tags = (0..64).map(|_| Tag::new()).collect();
    let queue = Queue::new([Slot::FREE; 64], Deadline::new());
    let mut disk =
        Disk::new(host, queue, card.traits, BufBatch::new(4), tags, Settings::default(), ()).unwrap();
    let care = Care { cache: true, ..Care::new(&caps) };
    disk.look_after(card, Buf(vec![0; 512]), care, clock.now()).unwrap();
    let mut blocking = Blocking::new(disk, board);
    blocking.write(64, Buf(pattern(4096, 7))).unwrap();
    (disk, board) = blocking.into_parts();
    assert!(disk.core().features().cache);
    clock.advance(Duration::from_secs(20));
    let before = medium.with(|c| c.seen(false, 6));
    assert!(say_goodbye(&mut disk, &mut board));
    assert_eq!(medium.with(|c| c.seen(false, 6)) - before, 2, "the flush and the notice");
    assert_eq!(model.tunings(), 2, "before the flush");
    clock.advance(Duration::from_secs(20));
    assert_eq!((disk.poll(clock.now()), model.tunings()), (Next::Idle, 2), "the card has been told goodbye");
}

#[test]
fn a_tuning_that_fails_later_leaves_the_mode() {
    let (mut disk, model, clock) = Bench::new(DMA, Config::FAST, drifting(), "").disk();
    let data = pattern(4096, 7);
    disk.write(64, Buf(data.clone())).unwrap();
    model.configure(|c| c.never_locks = true);
    read_for(&mut disk, &clock, 30, &data);
    let s = *disk.disk().statistics();
    assert!(s.retunes == 1 && s.resets == 1, "{s:?}");
    assert_eq!(disk.disk().card().unwrap().bus.timing, Timing::Ddr50);
    assert_eq!(disk.disk().media(), mmc_block::Media::Same);
}

/// The controller counts: no CMD23 of the driver's, the same commands on the wire; a count that is not answered is
/// an error like any other.
#[test]
fn a_controller_that_sends_cmd23_by_itself_is_told_the_count() {
    for way in WAYS {
        let b = Bench::new(way, Config::FAST, uhs("uhs-64gb"), "");
        assert!(b.host.capabilities().auto_count);
        let (card, before) = (b.card.clone(), b.card.with(|c| c.seen(false, 23)));
        let (mut disk, model, clock) = b.disk();
        let (data, began) = (pattern(65_536, 9), clock.now());
        disk.write(64, Buf(data.clone())).unwrap();
        assert!(disk.read(64, Buf(vec![0; data.len()])).unwrap().0 == data, "{way:?}");
        assert_eq!(card.with(|c| c.seen(false, 23)) - before, 2, "{way:?}: one for each");
        assert!(clock.now() > began);
        let nth = card.with(|c| c.seen(false, 23));
        for (i, fault) in ["no-answer", "lost", "response-crc"].into_iter().enumerate() {
            let script: mmc_mock::fault::Script =
                format!("at CMD23#{}: {fault}", nth + 2 * i as u32).parse().unwrap();
            card.with(|c| script.rules.into_iter().for_each(|rule| c.add(rule).unwrap()));
            assert!(disk.read(64, Buf(vec![0; data.len()])).unwrap().0 == data, "{way:?} {fault}");
            assert_eq!(disk.disk().statistics().retries, i as u64 + 1, "{way:?} {fault}");
        }
        assert_eq!(model.violations(), Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn cards_without_a_fast_mode_are_served_as_before() {
    for way in WAYS {
        let card = SdCard::new(SdConfig::new(Profile::ideal(), 3)).unwrap();
        let mut b = Bench::new(way, Config::FAST, card, "");
        let id = b.identify();
        assert_eq!((id.bus.timing, id.bus.hz, b.board.model.tunings()), (Timing::High, 50_000_000, 0));
        let write = Command::write_multiple_block(8, 8, Stop::Auto);
        assert_eq!(write.data.map(|d| d.dir), Some(Dir::Write));
        let done = b.run(Operation::Transfer(write, filled(4096)), LIMIT);
        assert_eq!((done.result.map(|r| r.bytes), b.read()), (Ok(4096), Ok(4096)), "{way:?}");
        b.assert_clean();
    }
}

//! A fault at every step: for each command of a workload (identification, 64 mixed transfers, a flush of the card's
//! cache) and each kind of fault, the operation ends within its stated time, with the right data or an error, and the
//! next one works.
//!
//! By default one case of many runs; `MMC_DW_FAULTS=all` runs all of them.

mod bench;

use bench::{Bench, MODES, Mode, buffers, bytes, filled, pattern};
use mmc_dw_hsdk::GRACE;
use mmc_dw_hsdk::platform::HSDK;
use mmc_hal::Dir;
use mmc_mock::card::{Card, SdConfig};
use mmc_mock::dw::{Config, Fault};
use mmc_mock::timing::Profile;
use mmc_proto::machine::{
    After, CardTraits, Extensions, FindExtensions, Identify, IdentifyStep, SdRegister, TransferOptions,
    TransferPhase,
};
use mmc_time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Step {
    dir: Dir,
    lba: u64,
    blocks: u32,
    open_ended: bool,
}

/// The step behind the transfers.
const FLUSH: usize = 64;

/// Reads and writes of 1 to 64 blocks, with the count given before and with a stop.
fn workload() -> [Step; 64] {
    core::array::from_fn(|i| Step {
        dir: if i % 3 == 0 { Dir::Write } else { Dir::Read },
        lba: 4096 + 128 * i as u64,
        blocks: [1, 8, 2, 64, 1, 16, 3][i % 7],
        open_ended: i % 4 == 1,
    })
}

/// What strikes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// The command itself.
    Command(Fault),
    /// The data of the command, in this direction.
    Data(Dir, Fault),
    /// At the moment of the command.
    Moment(Fault),
    /// Just before a register access; every access of the operation is a place.
    Access(Fault),
    /// The command gets no answer, and the reset that follows never ends.
    StuckReset,
    /// The card leaves at the moment of the command and is back before the next; in an identification it comes only at
    /// that moment.
    Replug,
}
use Kind::{Access, Command, Data, Moment, Replug, StuckReset};

impl Kind {
    /// The card is without supply, for a moment at least.
    fn cuts(self) -> bool {
        matches!(self, Moment(Fault::Remove | Fault::PowerFail) | Access(Fault::PowerFail) | Replug)
    }
    /// The card is in another state than the host can know: a command never came, an answer was lost, the supply failed.
    fn confuses(self) -> bool {
        self.cuts()
            || match self {
                Command(Fault::Busy(_)) | Data(..) => false,
                Command(_) | StuckReset => true,
                Moment(fault) => fault == Fault::LoseCommand,
                // A data error that was none: the host leaves a read that the card goes on with.
                Access(fault) => matches!(fault, Fault::LoseCommand | Fault::Spurious(_)),
                Replug => true,
            }
    }
    /// How many places there are in what costs so much.
    fn places(self, cost: &Cost) -> u64 {
        if matches!(self, Access(_)) { cost.accesses } else { cost.commands }
    }
}

const KINDS: [Kind; 34] = [
    Command(Fault::CommandLost),
    Command(Fault::NoResponse),
    Command(Fault::ResponseCrc),
    Command(Fault::ResponseIndex),
    Command(Fault::ResponseEndBit),
    Command(Fault::ResponseDelay(100)),
    Command(Fault::Busy(Duration::from_millis(3))),
    Command(Fault::Busy(Duration::MAX)),
    Command(Fault::SwallowCommandDone),
    Command(Fault::StuckStart),
    Data(Dir::Read, Fault::SwallowDataOver),
    Data(Dir::Write, Fault::SwallowDataOver),
    Data(Dir::Read, Fault::LateData(9)),
    Data(Dir::Read, Fault::LateOwner(9)),
    Data(Dir::Write, Fault::LateOwner(9)),
    Data(Dir::Read, Fault::ReadCrc(0)),
    Data(Dir::Read, Fault::ReadNothing(0)),
    Data(Dir::Read, Fault::ReadStartBit(0)),
    Data(Dir::Read, Fault::ReadEndBit(0)),
    Data(Dir::Write, Fault::WriteCrc(0)),
    Data(Dir::Write, Fault::WriteNothing(0)),
    Moment(Fault::LoseCommand),
    Moment(Fault::Spurious(0x80)),
    Moment(Fault::Spurious(0x1000)),
    Moment(Fault::Defer { bits: 0xc, accesses: 3 }),
    Moment(Fault::Pin(false)),
    Moment(Fault::Remove),
    Moment(Fault::PowerFail),
    Moment(Fault::WriteProtect(true)),
    Access(Fault::LoseCommand),
    Access(Fault::Spurious(0x80)),
    Access(Fault::PowerFail),
    StuckReset,
    Replug,
];

/// What an operation takes when nothing goes wrong.
#[derive(Clone, Copy)]
struct Cost {
    commands: u64,
    /// Register accesses.
    accesses: u64,
    time: Duration,
}

impl Cost {
    /// So far.
    fn now(b: &Bench) -> Self {
        let c = b.dw.counters();
        let time = b.clock.now().since(Instant::ZERO);
        Self { commands: c.commands, accesses: c.reads + c.writes, time }
    }
    fn since(b: &Bench, then: Self) -> Self {
        let now = Self::now(b);
        Self {
            commands: now.commands - then.commands,
            accesses: now.accesses - then.accesses,
            time: Duration::from_nanos(now.time.as_nanos() - then.time.as_nanos()),
        }
    }
}

struct Clean {
    identify: Cost,
    steps: Vec<Cost>,
}

fn run(b: &mut Bench, card: &CardTraits, s: &Step, data: &[u8]) -> Result<(), (After, String)> {
    let options = TransferOptions { open_ended: s.open_ended };
    let payload = if s.dir == Dir::Write { filled(data, &[data.len()]) } else { buffers(&[data.len()]) };
    let (r, p) = b.transfer(card, s.dir, s.lba, payload, options);
    match r {
        Ok(blocks) => {
            assert_eq!(blocks, s.blocks);
            let got = if s.dir == Dir::Write { b.stored(s.lba, blocks as usize) } else { bytes(p.unwrap()) };
            assert!(got == data, "{s:?}: wrong data without an error");
            Ok(())
        }
        Err(e) => {
            let text = e.to_string();
            let named = e.phase != TransferPhase::Check && text.ends_with(&format!("({})", e.phase));
            assert!(named, "{s:?}: an error names its phase: {text}");
            Err((e.after, text))
        }
    }
}

/// A card with a cache, which is off at first.
fn bench(mode: Mode) -> Bench {
    let card = SdConfig { extension: true, ..SdConfig::new(Profile::ideal(), 1) };
    Bench::with(mode, Config::hsdk(), HSDK, card)
}

/// Switches the cache on and writes something that stays in it.
fn fill_cache(b: &mut Bench, card: &CardTraits, data: &[u8]) -> Extensions {
    let has = b.run(FindExtensions::new(card), Some(buffers(&[512]))).0.unwrap();
    b.run(SdRegister::cache(card, &has, true), Some(buffers(&[512]))).0.unwrap();
    assert_eq!(b.write(card, 4096, data), Ok((data.len() / 512) as u32));
    has
}

/// Flushes; what a flush says it has stored outlives a loss of power.
fn flush(b: &mut Bench, card: &CardTraits, has: &Extensions, data: &[u8]) -> Result<(), (After, String)> {
    let (r, _) = b.run(SdRegister::flush(card, has), Some(buffers(&[512])));
    match r {
        Ok(()) => {
            let now = b.clock.now();
            b.card.with(|c| {
                c.power(false, now);
                c.power(true, now);
            });
            assert!(b.stored(4096, data.len() / 512) == data, "flushed, and lost");
            Ok(())
        }
        Err(e) => {
            let (phase, text) = (e.phase.expect("commands were sent"), e.to_string());
            assert!(text.contains(&format!("(phase: {phase})")), "an error names its phase: {text}");
            Err((e.after, text))
        }
    }
}

fn clean() -> Clean {
    let mut b = bench(Mode::Interrupts);
    let card = b.identify().traits;
    let identify = Cost::now(&b);
    let mut steps = Vec::new();
    for s in &workload() {
        let then = Cost::now(&b);
        let data = pattern(s.blocks as usize * 512, s.lba);
        b.store(s.lba, &data);
        run(&mut b, &card, s, &data).unwrap();
        steps.push(Cost::since(&b, then));
    }
    let data = pattern(8192, 77);
    let has = fill_cache(&mut b, &card, &data);
    let then = Cost::now(&b);
    flush(&mut b, &card, &has, &data).unwrap();
    steps.push(Cost::since(&b, then));
    Clean { identify, steps }
}

/// Arms `kind` for place `k` of an operation that costs `cost` and moves data in `dir` (`None`: identification, flush);
/// false if it cannot strike there.
fn arm(b: &Bench, kind: Kind, dir: Option<Dir>, k: u64, cost: Cost, identify: bool) -> bool {
    // In the middle of the command (0), at its end (1).
    let moment = |late: u64| {
        let part = cost.time.as_nanos() * (2 * k + 1 + late) / (2 * cost.commands);
        b.clock.now() + Duration::from_nanos(part)
    };
    match kind {
        Command(fault) => b.dw.inject_after(k as u32, fault),
        Data(d, fault) if dir.is_none_or(|dir| d == dir) => b.dw.inject_after(k as u32, fault),
        Data(..) => return false,
        Moment(fault) => b.dw.inject_at(moment(0), fault),
        Access(fault) => b.dw.inject_at_access(k + 1, fault),
        StuckReset if identify && k == 0 => b.dw.inject(Fault::StuckReset),
        StuckReset => {
            b.dw.inject_after(k as u32, Fault::NoResponse);
            b.dw.inject_at(moment(0), Fault::StuckReset);
        }
        Replug if identify => {
            b.dw.inject(Fault::Remove);
            b.dw.inject_at(moment(0), Fault::Insert);
        }
        Replug => {
            b.dw.inject_at(moment(0), Fault::Remove);
            b.dw.inject_at(moment(1), Fault::Insert);
        }
    }
    true
}

/// After the fault: what it left is put right, and a write and a read work.
fn recovers(b: &mut Bench, card: Option<CardTraits>, kind: Kind, what: &str) {
    b.dw.heal();
    b.dw.inject(Fault::WriteProtect(false));
    b.dw.inject(Fault::Insert);
    b.dw.inject(Fault::Pin(true));
    // A buffer that the controller would not let go of comes back once its reset has ended.
    for _ in 0..10 {
        drop(b.host.reclaim(b.clock.now()));
        let settle = b.clock.now() + Duration::from_millis(20);
        b.pass_all(settle);
    }
    let card = match card {
        Some(card) => card,
        None => b.try_identify().unwrap_or_else(|e| panic!("{what}: {e}")).traits,
    };
    let data = pattern(4096, 99);
    assert_eq!(b.write(&card, 8, &data), Ok(8), "{what}: the next write");
    assert!(b.read(&card, 8, &[4096]).unwrap() == data, "{what}: the next read");
    assert_eq!(b.memory.regions(), 1, "{what}");
    // A card whose answer was lost is in another state than the host can know, and one whose supply failed has never
    // heard of its clock: what it then calls wrong is how it is found out. Everything else is the driver's fault.
    let mut violations = b.dw.violations();
    let lost = |v: &String| {
        (kind.confuses() && v.contains("is not legal in state"))
            || (kind.cuts() && v.starts_with("card: "))
            // A lost update of the clock is noticed by the command behind it, which gets no answer.
            || (matches!(kind, Access(Fault::LoseCommand)) && v.contains("sent with the card clock off"))
    };
    violations.retain(|v| !lost(v));
    assert_eq!(violations, Vec::<String>::new(), "{what}");
}

/// One case: whether the operation ended with an error; `None` if there is no such case.
fn case(clean: &Clean, mode: Mode, kind: Kind, step: Option<usize>, k: u64) -> Option<bool> {
    let what = format!("{mode:?} {kind:?} step {step:?} command {k}");
    let mut b = bench(mode);
    let lasting = kind.cuts() || matches!(kind, Command(Fault::Busy(Duration::MAX)));
    // The last update of the clock may be the one that is lost: the next command finds out.
    let lasting = lasting || step.is_none() && matches!(kind, Access(Fault::LoseCommand));
    let Some(i) = step else {
        arm(&b, kind, None, k, clean.identify, true);
        let began = b.clock.now();
        let r = b.try_identify();
        let took = b.clock.now().since(began);
        assert!(took <= Identify::LIMIT + SECOND + GRACE, "{what} took {took}");
        let failed = r.is_err();
        if let Err(e) = &r {
            let started = !matches!(e.step, IdentifyStep::Start | IdentifyStep::Over);
            let named = started && e.to_string().ends_with(&format!("({})", e.step));
            assert!(named, "{what}: an error names its step: {e}");
        }
        recovers(&mut b, r.ok().filter(|_| !lasting).map(|i| i.traits), kind, &what);
        return Some(failed);
    };
    let card = b.identify().traits;
    if i == FLUSH {
        let data = pattern(8192, 77);
        let has = fill_cache(&mut b, &card, &data);
        if !arm(&b, kind, None, k, clean.steps[i], false) {
            return None;
        }
        let (began, limit) = (b.clock.now(), SdRegister::flush(&card, &has).limit());
        let r = flush(&mut b, &card, &has, &data);
        let took = b.clock.now().since(began);
        assert!(took <= limit + GRACE.saturating_mul(3) + SECOND, "{what} took {took}");
        // Its power was off, or it may have been: it is identified again.
        recovers(&mut b, None, kind, &what);
        return Some(r.is_err());
    }
    let s = workload()[i];
    let data = pattern(s.blocks as usize * 512, s.lba);
    if s.dir == Dir::Read {
        b.store(s.lba, &data);
    }
    if !arm(&b, kind, Some(s.dir), k, clean.steps[i], false) {
        return None;
    }
    let began = b.clock.now();
    let r = run(&mut b, &card, &s, &data);
    let took = b.clock.now().since(began);
    // The data command, the wait for the card before it or after it, and cleaning up.
    let stated = card.data_limit(s.dir, s.blocks)
        + card.write_limit.saturating_mul(2)
        + GRACE.saturating_mul(3)
        + SECOND;
    assert!(took <= stated, "{what} took {took}, stated {stated}");
    let ready = match &r {
        Ok(()) => true,
        Err((after, _)) => matches!(after, After::Ready | After::Untouched),
    };
    recovers(&mut b, Some(card).filter(|_| ready && !lasting), kind, &what);
    Some(r.is_err())
}

#[test]
fn every_operation_ends_and_the_next_one_works() {
    let clean = clean();
    let all = std::env::var("MMC_DW_FAULTS").is_ok_and(|v| v == "all");
    let commands = clean.identify.commands + clean.steps.iter().map(|s| s.commands).sum::<u64>();
    let (mut cases, mut errors, mut wrong, mut possible) = (0_u32, 0_u32, 0_u32, 0_u32);
    for mode in MODES {
        for kind in KINDS {
            let places = (0..kind.places(&clean.identify)).map(|k| (None, k));
            let steps = clean.steps.iter().enumerate();
            let steps = steps.flat_map(|(i, s)| (0..kind.places(s)).map(move |k| (Some(i), k)));
            for (step, k) in places.chain(steps) {
                possible += 1;
                // A prime, so that every kind meets every sort of command.
                if all || possible % 31 == 0 {
                    // All that are wrong are told, not only the first.
                    match std::panic::catch_unwind(|| case(&clean, mode, kind, step, k)) {
                        Ok(Some(failed)) => {
                            cases += 1;
                            errors += u32::from(failed);
                        }
                        Ok(None) => {}
                        Err(_) => wrong += 1,
                    }
                }
            }
        }
    }
    println!("{cases} faults at {commands} commands, {errors} of them reported as errors; {possible} places");
    assert_eq!(wrong, 0, "cases that went wrong; each has said how");
    assert!(errors > cases / 3, "the control: faults strike");
    assert!(cases >= if all { 3000 } else { 100 }, "{cases}");
}

//! What the conversations say, step by step with every limit, is what they said when `data/as_it_was` was written: in
//! full where all goes well, as a digest where answers go wrong at random, one at a time, or come from cards with one
//! oddity each. Decisions as data, likewise: what is worth trying again, what cures what, how long things may take.
//!
//! A change that is meant shows here as lines that differ: look at them, then
//! `MMC_PROTO_WRITE_RUNS=1 cargo test -p mmc-proto --test as_it_was` writes the file anew.

#[path = "support/conversations.rs"]
mod conversations;
#[path = "support/device.rs"]
mod device;
#[path = "as_it_was/hosts.rs"]
mod hosts;
#[path = "as_it_was/speeds.rs"]
mod speeds;
mod support;
#[path = "support/toy.rs"]
mod toy;
#[path = "as_it_was/wire.rs"]
mod wire;

use conversations::Conversation;
use device::{CARD, Device, ext_csd};
use mmc_hal::Dir;
use mmc_proto::bus::{Signal, Timing, Width};
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{
    After, BootFrom, CardTraits, Fallback, Fetch, Health, Identify, IdentifyCause, IdentifyError,
    IdentifyStep, Machine, Means, Mode, Order, POLICY, Partition, PowerNotice, Protection, Reason,
    SpeedCause, SpeedError, SpeedOptions, SpeedPhase, Step, TalkError, TransferCause, TransferError,
    TransferPhase, Trouble, Tune, TuneCause, TuneError, TunePhase, plan,
};
use mmc_proto::register::{CsdInfo, ExtCsd, MmcCsdInfo, Ocr, RegisterError, SsrInfo, ext_csd as e};
use mmc_proto::rpmb::FrameError;
use mmc_proto::status::CardStatus;
use mmc_proto::timing::{self, EraseKind, MmcEraseKind};
use mmc_time::{Duration, Instant};
use std::fmt::{self, Debug, Write};
use toy::{Toy, full};

/// FNV-1a of all that is written to it.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        Ok(())
    }
}

/// The lines of one part of the file.
struct Lines(Vec<String>);

impl Lines {
    fn say(&mut self, line: impl Into<String>) {
        self.0.push(line.into());
    }
    fn digest(&mut self, title: impl fmt::Display, of: impl FnOnce(&mut Digest)) {
        let mut digest = Digest::new();
        of(&mut digest);
        self.0.push(format!("{title}: {:016x}", digest.0));
    }
    /// The part of the file called `part` is these lines.
    fn compare(self, part: &str) {
        let path = format!("{}/tests/data/as_it_was/{part}.txt", env!("CARGO_MANIFEST_DIR"));
        let text = self.0.join("\n") + "\n";
        if std::env::var_os("MMC_PROTO_WRITE_RUNS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let there = std::fs::read_to_string(&path).unwrap();
        for (n, (is, was)) in text.lines().zip(there.lines()).enumerate() {
            assert_eq!(is, was, "{path} line {}", n + 1);
        }
        assert_eq!(text.lines().count(), there.lines().count(), "{path}");
    }
}

/// A small generator of numbers, always the same.
struct Random(u64);

impl Random {
    fn new(a: u64, b: u64) -> Self {
        let mut random = Self((a + 1) << 32 | ((b + 1) * 0x9e37_79b9));
        random.next();
        random
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn of_two(&mut self, a: u64, b: u64) -> u64 {
        if self.below(2) == 0 { a } else { b }
    }
}

/// A conversation of `conversations::all`, with its phases.
struct Boxed(Box<dyn Conversation>);

impl Machine for Boxed {
    type Output = Result<String, String>;
    fn scratch(&self) -> bool {
        self.0.scratch()
    }
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Self::Output> {
        self.0.next(last, scratch, now)
    }
}

/// What comes of a step, and how long it took.
type Fate = (Result<Reply, HostError>, Duration);

/// Drives `machine` to its end and writes each step to `out`, one a line.
fn tell<M>(mut machine: M, out: &mut dyn Write, mut answer: impl FnMut(&Step<M::Output>, &mut [u8]) -> Fate)
where
    M: Machine,
    M::Output: Debug,
{
    let mut scratch = [0_u8; 512];
    let (mut now, mut last) = (Instant::from_millis(3), None);
    writeln!(out, "scratch {}, first data {:?}", machine.scratch(), machine.first_data()).unwrap();
    for _ in 0..30_000 {
        let step = if machine.scratch() {
            machine.next(last.take(), &mut scratch, now)
        } else {
            machine.next(last.take(), &mut [], now)
        };
        match &step {
            Step::Do(a) => {
                let c = &a.command;
                write!(out, "CMD{} {:08x} {:?} {:?} ≤ {}", c.index, c.arg, c.response, c.gate, a.limit)
                    .unwrap();
                for (is, name) in [(c.busy, "busy"), (c.init_clocks, "clocks"), (c.voltage_switch, "voltage")]
                {
                    if is {
                        write!(out, " {name}").unwrap();
                    }
                }
                match c.data {
                    Some(d) => {
                        writeln!(out, " {:?} {}×{} {:?}", d.dir, d.blocks, d.block_len, d.stop).unwrap()
                    }
                    None => writeln!(out).unwrap(),
                }
            }
            Step::Sleep(time) => writeln!(out, "sleep {time}").unwrap(),
            step => writeln!(out, "{step:?}").unwrap(),
        }
        match step {
            Step::Done(_) => return,
            Step::Sleep(time) => now += time,
            Step::Do(_) | Step::Bus(_) | Step::Power(_) => {
                let (result, took) = answer(&step, &mut scratch);
                if let (Step::Do(a), Err(_)) = (&step, &result) {
                    // What a failed read leaves behind is nobody's data.
                    let _ = a.command.data.map(|d| (d.dir == Dir::Read).then(|| scratch.fill(0xee)));
                }
                now += took;
                last = Some(result);
            }
        }
    }
    panic!("the conversation does not end");
}

fn limit<T>(step: &Step<T>) -> Duration {
    match step {
        Step::Do(action) => action.limit,
        _ => Duration::from_millis(20),
    }
}
fn index<T>(step: &Step<T>) -> u8 {
    match step {
        Step::Do(action) => action.command.index,
        _ => 255,
    }
}

/// One way in which an answer goes wrong, by number.
fn bad(
    kind: u64,
    random: &mut Random,
    good: Result<Reply, HostError>,
    index: u8,
) -> Result<Reply, HostError> {
    match kind {
        0 => Err(HostError::new(Cause::Timeout, Phase::Command, index)),
        1 => Err(HostError::new(Cause::Crc, Phase::Data, index)),
        2 => Err(support::host_error(random.next() as u8, index)),
        3 => {
            let r1 = Some(0x0900 | 1 << random.below(32));
            Err(HostError { r1, ..HostError::new(Cause::Timeout, Phase::Data, index) })
        }
        4 => Ok(Reply {
            words: [random.next() as u32, 0, 0, 0],
            bytes: random.below(9) * random.of_two(64, 512),
        }),
        5 => Err(HostError::new(Cause::Unsupported("by the test"), Phase::Submit, index)),
        6 => good
            .map(|r| Reply { words: [r.words[0] & !0x1f00 | (random.below(16) as u32) << 9, 0, 0, 0], ..r }),
        8 => good,
        _ => good.map(|r| Reply { words: [r.words[0] ^ 1 << random.below(32), 0, 0, 0], ..r }),
    }
}

/// No time, a little, all there is, a nanosecond less.
fn time<T>(random: &mut Random, step: &Step<T>) -> Duration {
    let all = limit(step);
    match random.below(8) {
        0 | 1 => Duration::ZERO,
        2 => all,
        3 => Duration::from_nanos(all.as_nanos() - 1),
        _ => Duration::from_micros(10),
    }
}

#[test]
fn the_small_conversations() {
    let mut lines = Lines(Vec::new());
    for (n, way) in conversations::all().iter().enumerate() {
        lines.say(format!("# {} ({n})", way.title));
        let mut text = String::new();
        let mut device = Device { programming: 1, ..Device::new() };
        let made = (way.make)();
        writeln!(text, "at most {}", made.limit()).unwrap();
        tell(Boxed(made), &mut text, |step, scratch| match step {
            Step::Do(a) => (device.answer(&a.command, scratch), Duration::from_micros(10)),
            _ => unreachable!("{step:?}"),
        });
        text.lines().for_each(|line| lines.say(line));
        lines.digest("busy for ever, asked exactly when it wants to", |out| {
            let mut device = Device { programming: u32::MAX, running: u32::MAX, ..Device::new() };
            tell(Boxed((way.make)()), out, |step, scratch| match step {
                Step::Do(a) => (device.answer(&a.command, scratch), Duration::ZERO),
                _ => unreachable!("{step:?}"),
            });
        });
        lines.digest("bad answers at random", |out| {
            for run in 0..250 {
                let mut random = Random::new(n as u64, run);
                let (programming, running) = (random.below(4) as u32, random.below(3) as u32);
                let mut device = Device { programming, running, ..Device::new() };
                let wrong = 1 + random.below(5);
                tell(Boxed((way.make)()), out, |step, scratch| {
                    let Step::Do(a) = step else { unreachable!("{step:?}") };
                    let good = device.answer(&a.command, scratch);
                    let result = match random.below(16) < wrong {
                        true => bad(random.below(10), &mut random, good, a.command.index),
                        false => good,
                    };
                    (result, time(&mut random, step))
                });
            }
        });
    }
    lines.compare("small");
}

/// What an eMMC does not offer is refused, what it states is kept to: each field that decides, with other values.
#[test]
fn orders_by_what_the_card_offers() {
    type Make = Box<dyn Fn(&ExtCsd) -> Order>;
    fn order(make: impl Fn(&ExtCsd) -> Order + 'static) -> Make {
        Box::new(make)
    }
    let mut orders = vec![
        ("flush", order(|x| Order::flush(&CARD, x))),
        ("barrier", order(|x| Order::barrier(&CARD, x))),
        ("background", order(|x| Order::background(&CARD, x))),
        ("interrupt", order(|x| Order::interrupt(&CARD, x))),
        ("sanitize", order(|x| Order::sanitize(&CARD, x))),
        ("groups", order(|x| Order::high_capacity_groups(&CARD, x))),
        ("awake", order(|x| Order::awake(&CARD, x))),
    ];
    for on in [false, true] {
        orders.extend([
            ("cache", order(move |x| Order::cache(&CARD, x, on))),
            ("barriers", order(move |x| Order::barriers(&CARD, x, on))),
            ("auto background", order(move |x| Order::auto_background(&CARD, x, on))),
            ("interrupts", order(move |x| Order::interrupts(&CARD, x, on))),
            ("sleep", order(move |x| Order::sleep(&CARD, x, on))),
            ("protect boot", order(move |x| Order::protect_boot(&CARD, x, on))),
        ]);
    }
    for notice in [PowerNotice::On, PowerNotice::OffShort, PowerNotice::OffLong, PowerNotice::Sleep] {
        orders.push(("notice", order(move |x| Order::power_notice(&CARD, x, notice))));
    }
    for partition in [
        Partition::User,
        Partition::Boot1,
        Partition::Boot2,
        Partition::Rpmb,
        Partition::General(1),
        Partition::General(2),
        Partition::General(4),
        Partition::General(5),
    ] {
        orders.push(("partition", order(move |x| Order::partition(&CARD, x, partition))));
    }
    for from in [BootFrom::Nothing, BootFrom::Boot1, BootFrom::Boot2, BootFrom::User] {
        for (ack, conditions) in
            [(false, None), (true, Some(0)), (true, Some(2)), (false, Some(0x1f)), (false, Some(0xff))]
        {
            orders.push(("boot", order(move |x| Order::boot(&CARD, x, from, ack, conditions))));
        }
    }
    for protection in [Protection::Temporary, Protection::PowerOn, Protection::Permanent] {
        orders.push(("protection", order(move |x| Order::protection(&CARD, x, protection))));
    }
    for field in e::ALL {
        orders.push((
            "set",
            order(move |x| Order::set(&CARD, x, mmc_proto::command::SwitchAccess::SetBits, *field, 0x5a)),
        ));
    }
    let fields = [
        e::EXT_CSD_REV,
        e::CACHE_SIZE,
        e::BARRIER_SUPPORT,
        e::HPI_FEATURES,
        e::BKOPS_SUPPORT,
        e::BKOPS_EN,
        e::SEC_FEATURE_SUPPORT,
        e::GENERIC_CMD6_TIME,
        e::OUT_OF_INTERRUPT_TIME,
        e::S_A_TIMEOUT,
        e::BOOT_SIZE_MULT,
        e::RPMB_SIZE_MULT,
        e::PARTITION_CONFIG,
        e::USER_WP,
        e::BOOT_WP,
        e::PARTITION_SWITCH_TIME,
        e::POWER_OFF_LONG_TIME,
        e::SLEEP_NOTIFICATION_TIME,
        e::GP_SIZE_MULT_1,
        e::GP_SIZE_MULT_2,
        e::GP_SIZE_MULT_4,
        e::HC_WP_GRP_SIZE,
        e::BOOT_BUS_CONDITIONS,
    ];
    let mut lines = Lines(Vec::new());
    for field in fields {
        lines.digest(field.name, |out| {
            for value in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0x17, 0x18, 0x20, 0x40, 0x80, 0xff] {
                let mut ext = ext_csd();
                ext.set(field, value);
                for (name, make) in &orders {
                    let order = make(&ext);
                    write!(out, "{name} {} ", order.limit()).unwrap();
                    let mut device = Device::new();
                    tell(order, out, |step, scratch| match step {
                        Step::Do(a) => (device.answer(&a.command, scratch), Duration::from_micros(10)),
                        _ => unreachable!("{step:?}"),
                    });
                }
                for partition in [
                    Partition::User,
                    Partition::Boot1,
                    Partition::Rpmb,
                    Partition::General(1),
                    Partition::General(2),
                ] {
                    writeln!(
                        out,
                        "{partition:?} {:?}",
                        partition.traits(&CardTraits { blocks: 99, ..CARD }, &ext)
                    )
                    .unwrap();
                }
            }
        });
    }
    for field in [
        e::EXT_CSD_REV,
        e::DEVICE_LIFE_TIME_EST_TYP_A,
        e::DEVICE_LIFE_TIME_EST_TYP_B,
        e::PRE_EOL_INFO,
        e::BKOPS_STATUS,
        e::EXCEPTION_EVENTS_STATUS,
    ] {
        for value in 0..16 {
            let mut ext = ExtCsd::new([0; 512]);
            for (field, value) in [
                (e::EXT_CSD_REV, 8),
                (e::DEVICE_LIFE_TIME_EST_TYP_A, 3),
                (e::DEVICE_LIFE_TIME_EST_TYP_B, 4),
                (e::PRE_EOL_INFO, 1),
                (e::BKOPS_STATUS, 1),
                (e::EXCEPTION_EVENTS_STATUS, 5),
                (field, value),
            ] {
                ext.set(field, value);
            }
            lines.say(format!("{} {value}: {:?}", field.name, Health::of(&ext)));
        }
    }
    lines.compare("orders");
}

/// The good cards of every family.
fn cards() -> Vec<(&'static str, Toy)> {
    let mut partitioned = Toy::emmc(0x57);
    let mut small = Toy { mmc_ocr: 0x80ff_8080, ..Toy::emmc(0x03) };
    if let (Some(a), Some(b)) = (&mut partitioned.ext_csd, &mut small.ext_csd) {
        a.set(e::PARTITION_SETTING_COMPLETED, 1);
        b.set(e::SEC_COUNT, 3_145_728);
    }
    vec![
        ("SDHC", Toy::sdhc()),
        ("SDSC", Toy::sdsc()),
        ("UHS-I", Toy::uhs()),
        ("eMMC HS400 with strobe", Toy::emmc(0x157)),
        ("eMMC HS400, partitioned", partitioned),
        ("eMMC DDR52", Toy::emmc(0x07)),
        ("eMMC of 1.5 GiB", small),
        ("MMC 3", Toy::mmc3()),
        ("SDIO", Toy::sdio()),
        ("combo", Toy::combo()),
    ]
}

fn hosts() -> Vec<(&'static str, Capabilities, SpeedOptions)> {
    let with = |name, change: fn(&mut Capabilities, &mut SpeedOptions)| {
        let mut caps = full();
        let mut options = SpeedOptions::new(&caps);
        change(&mut caps, &mut options);
        (name, caps, options)
    };
    let new = Capabilities::new();
    vec![
        ("everything", full(), SpeedOptions::new(&full())),
        ("modest", new, SpeedOptions::new(&new)),
        with("no 1.8 V", |c, _| c.v1_8 = false),
        with("four lines", |c, _| c.width = Width::Four),
        with("four lines wanted", |_, o| o.width = Width::Four),
        with("one line", |c, _| c.width = Width::One),
        with("one line wanted", |_, o| o.width = Width::One),
        with("no sample points", |c, _| c.sample_points = 0),
        with("50 MHz", |c, _| c.max_hz = 50_000_000),
        with("49 MHz", |c, _| c.max_hz = 49_999_999),
        with("100 MHz", |c, _| c.max_hz = 100_000_000),
        with("slow start", |c, _| c.min_hz = 700_000),
        with("1.8 V supply alone", |c, _| c.ocr = 0x80),
        with("driver and current", |_, o| (o.driver, o.max_current_ma) = (1, 800)),
        with("other driver, less current", |_, o| (o.driver, o.max_current_ma) = (3, 599)),
        with("default speed wanted", |_, o| {
            o.timings = [Timing::High, Timing::Sdr25, Timing::Sdr50, Timing::Sdr104, Timing::Ddr50]
                .into_iter()
                .fold(o.timings, mmc_proto::bus::Timings::without);
        }),
    ]
}

type Change = (String, Box<dyn Fn(&mut Toy)>);

/// Cards with one oddity each.
fn oddities() -> Vec<Change> {
    fn change(name: impl Into<String>, change: impl Fn(&mut Toy) + 'static) -> Change {
        (name.into(), Box::new(change))
    }
    let mut all = vec![
        change("deaf to CMD11", |t| t.deaf_cmd11 = true),
        change("lines stuck low", |t| t.stuck_low = true),
        change("fixed supply", |t| t.fixed_supply = true),
        change("fixed supply, stuck low", |t| (t.fixed_supply, t.stuck_low) = (true, true)),
        change("old", |t| t.v2 = false),
        change("no registers of SDIO", |t| t.cccr = [0; 23]),
        change("all registers of SDIO", |t| t.cccr = [0xff; 23]),
        change("no EXT_CSD", |t| t.ext_csd = None),
        change("no SCR", |t| t.scr = [0; 8]),
        change("functions of SDIO alone", |t| t.io = Some((7, false))),
        change("functions of SDIO and memory", |t| t.io = Some((0, true))),
    ];
    for &timing in Timing::ALL {
        all.push(change(format!("refuses {timing:?}"), move |t| t.refuses.push(timing)));
        all.push(change(format!("deaf in {timing:?}"), move |t| t.deaf.push(timing)));
        all.push(change(format!("garbled in {timing:?}"), move |t| t.garbled.push(timing)));
        all.push(change(format!("untunable in {timing:?}"), move |t| t.untunable.push(timing)));
    }
    for width in [Width::One, Width::Four, Width::Eight] {
        all.push(change(format!("refuses {width:?}"), move |t| t.refuses_width.push(width)));
        all.push(change(format!("garbled on {width:?}"), move |t| t.garbled_width.push(width)));
    }
    for busy in [0, 1, 30, 10_000] {
        all.push(change(format!("busy {busy}"), move |t| t.busy = busy));
    }
    for ocr in [
        0,
        0x0010_0000,
        0x8000_0000,
        0x8010_0000,
        0x80ff_8000,
        0x80ff_8080,
        0xc0ff_8000,
        0xc000_0080,
        0xffff_ffff_u32,
    ] {
        all.push(change(format!("OCR {ocr:08x}"), move |t| (t.ocr, t.mmc_ocr) = (ocr, ocr)));
    }
    for window in [0..1, 0..16, 3..5, 15..16, 0..0] {
        all.push(change(format!("good at {window:?}"), move |t| t.window = window.clone()));
    }
    for index in [6, 13, 41, 42, 51] {
        for times in 1..4 {
            all.push(change(format!("{times} × ACMD{index} lost"), move |t| t.lost = vec![index; times]));
        }
    }
    for functions in
        [[0, 0, 0], [1, 1, 1], [3, 0xf, 0xf], [7, 2, 2], [0x1f, 8, 4], [0x17, 1, 8], [0x0b, 4, 1]]
    {
        all.push(change(format!("functions {functions:x?}"), move |t| t.functions = functions));
    }
    for byte in 0..16 {
        all.push(change(format!("CSD byte {byte} of ones"), move |t| t.csd[byte] = 0xff));
        all.push(change(format!("CSD byte {byte} of zeros"), move |t| t.csd[byte] = 0));
    }
    for byte in 0..8 {
        all.push(change(format!("SCR byte {byte} of ones"), move |t| t.scr[byte] = 0xff));
        all.push(change(format!("SCR byte {byte} of zeros"), move |t| t.scr[byte] = 0));
    }
    let fields = [
        (e::EXT_CSD_REV, vec![0, 2, 3, 5, 6, 9, 255]),
        (e::SEC_COUNT, vec![0, 1, 4_194_303, 4_194_304, 4_194_305, u64::from(u32::MAX)]),
        (e::DEVICE_TYPE, vec![0, 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0xff]),
        (e::STROBE_SUPPORT, vec![0, 1]),
        (e::GENERIC_CMD6_TIME, vec![0, 1, 255]),
        (e::PARTITION_SETTING_COMPLETED, vec![0, 1]),
        (e::DATA_SECTOR_SIZE, vec![0, 1]),
        (e::ERASE_GROUP_DEF, vec![0, 1]),
        (e::HC_ERASE_GRP_SIZE, vec![0, 1]),
        (e::CSD_STRUCTURE, vec![0, 2, 255]),
    ];
    for (field, values) in fields {
        for value in values {
            all.push(change(format!("{} {value}", field.name), move |t| {
                if let Some(ext) = &mut t.ext_csd {
                    ext.set(field, value);
                }
            }));
        }
    }
    all
}

#[test]
fn identification_of_good_cards() {
    let mut lines = Lines(Vec::new());
    for (host, caps, options) in hosts() {
        for (card, toy) in cards() {
            let identify = || Identify::with(&caps, options);
            let one = |toy: &mut Toy, out: &mut dyn Write| {
                tell(identify(), out, |step, scratch| (toy.step(step, scratch), Duration::from_micros(200)));
            };
            if host == "everything" {
                lines.say(format!("# {card}"));
                let mut text = String::new();
                one(&mut toy.clone(), &mut text);
                text.lines().for_each(|line| lines.say(line));
            } else {
                lines.digest(format!("{card}, {host}"), |out| one(&mut toy.clone(), out));
            }
        }
    }
    lines.compare("identify");
}

#[test]
fn identification_of_odd_cards() {
    let hosts: Vec<_> = hosts()
        .into_iter()
        .filter(|h| ["everything", "no 1.8 V", "no sample points"].contains(&h.0))
        .collect();
    let mut lines = Lines(Vec::new());
    for (name, change) in oddities() {
        lines.digest(name, |out| {
            for (n, (_, toy)) in cards().into_iter().enumerate() {
                // Most of them have nothing to do with the kind of host.
                for (_, caps, options) in hosts.iter().take(if n < 4 { 3 } else { 1 }) {
                    let mut toy = toy.clone();
                    change(&mut toy);
                    let identify = Identify::with(caps, *options);
                    tell(identify, out, |step, scratch| {
                        (toy.step(step, scratch), Duration::from_micros(200))
                    });
                }
            }
        });
    }
    lines.compare("odd");
}

#[test]
fn identification_with_answers_gone_wrong() {
    let mut lines = Lines(Vec::new());
    for (card, toy) in cards() {
        for kind in 0..9 {
            lines.digest(format!("{card}, one answer or two of kind {kind}"), |out| {
                // The first step whose answer is wrong, and how many.
                for run in 0..160 {
                    let (first, many) = (run / 2, if run % 2 == 0 { 1 } else { 4 });
                    let (mut n, mut toy, mut random) = (0, toy.clone(), Random::new(run, kind));
                    tell(Identify::new(&full()), out, |step, scratch| {
                        let good = toy.step(step, scratch);
                        n += 1;
                        let hit = (first..first + many).contains(&(n - 1));
                        if hit && kind == 8 {
                            // Data that are damaged, and no CRC has noticed.
                            scratch[192 + random.below(50) as usize] ^= 1 << random.below(8);
                        }
                        let result = if hit { bad(kind, &mut random, good, index(step)) } else { good };
                        (result, Duration::from_micros(200))
                    });
                    if n < first {
                        break;
                    }
                }
            });
        }
        lines.digest(format!("{card}, at random"), |out| {
            for run in 0..120 {
                let mut random = Random::new(run, 99);
                let wrong = 1 + random.below(4);
                let mut toy = toy.clone();
                tell(Identify::new(&full()), out, |step, scratch| {
                    let good = toy.step(step, scratch);
                    let result = match random.below(24) < wrong {
                        true => bad(random.below(10), &mut random, good, index(step)),
                        false => good,
                    };
                    (result, time(&mut random, step))
                });
            }
        });
    }
    lines.compare("wrong");
}

#[test]
fn tuning() {
    let mut lines = Lines(Vec::new());
    for points in [0, 1, 2, 3, 4, 5, 8, 16, 31, 32, 64, 255, 256, 400] {
        lines.digest(format!("{points} sample points"), |out| {
            for (from, len) in (0..18).flat_map(|from| [0, 1, 2, 3, 5, 9, 300].map(|len| (from, len))) {
                for mmc in [false, true] {
                    let mut toy = if mmc { Toy::emmc(0x57) } else { Toy::uhs() };
                    (toy.window, toy.bus.signal) = (from..from + len, Signal::V1_8);
                    toy.bus.timing = if mmc { Timing::Hs200 } else { Timing::Sdr104 };
                    toy.bus.width = Width::Four;
                    let mut caps = full();
                    caps.sample_points = points;
                    let tune = if mmc { Tune::mmc(&caps, toy.bus) } else { Tune::sd(&caps, toy.bus) };
                    tell(tune, out, |step, scratch| (toy.step(step, scratch), Duration::from_micros(200)));
                }
            }
        });
    }
    for kind in 0..8 {
        lines.digest(format!("answers of kind {kind}"), |out| {
            for run in 0..200 {
                let mut random = Random::new(run, kind);
                let mut toy = Toy::uhs();
                (toy.bus.signal, toy.bus.timing, toy.bus.width) = (Signal::V1_8, Timing::Sdr104, Width::Four);
                let often = [1, 4, 8, 16][(run % 4) as usize];
                tell(Tune::sd(&full(), toy.bus), out, |step, scratch| {
                    let good = toy.step(step, scratch);
                    let hit = random.below(16) < often;
                    let result = if hit { bad(kind, &mut random, good, index(step)) } else { good };
                    (result, time(&mut random, step))
                });
            }
        });
    }
    lines.compare("tuning");
}

fn host_errors() -> Vec<HostError> {
    let mut all: Vec<_> = (0..55).map(|n| support::host_error(n, 17)).collect();
    all.push(HostError::new(Cause::VoltageSwitch, Phase::Bus, 255));
    all
}

fn causes() -> Vec<TransferCause> {
    let others = [
        TransferCause::NoBlocks,
        TransferCause::OutOfRange { lba: 1, blocks: 1, capacity: 1 },
        TransferCause::Unaligned { lba: 1, blocks: 1, unit: 8 },
        TransferCause::Address(1),
        TransferCause::Unsupported("by the test"),
        TransferCause::Register(RegisterError::Identity),
        TransferCause::Password,
        TransferCause::Rpmb(FrameError::Mac),
        TransferCause::Scratch,
        TransferCause::Card,
        TransferCause::Short(3),
        TransferCause::NotReady,
        TransferCause::OutOfTurn,
    ];
    others.into_iter().chain(host_errors().into_iter().map(TransferCause::Host)).collect()
}

const AFTER: [After; 4] = [After::Untouched, After::Ready, After::NotReady, After::Gone];

/// What an error means for who meets it.
#[test]
fn judgements() {
    let mut lines = Lines(Vec::new());
    let statuses: Vec<_> = [None, Some(CardStatus::empty())]
        .into_iter()
        .chain((0..32).map(|bit| Some(CardStatus::from_bits_retain(1 << bit))))
        .collect();
    for cause in causes() {
        let talk = TalkError { cause, phase: None, status: None, after: After::Ready };
        let transfer =
            TransferError { cause, phase: TransferPhase::Data, status: None, done: 0, after: After::Ready };
        let troubles = AFTER.map(|after| Trouble::of(&cause, None, after));
        lines.say(format!(
            "{cause:?}: again {} {}, {troubles:?}",
            talk.is_retryable(),
            transfer.is_retryable()
        ));
    }
    for status in statuses {
        let of = |after| TransferError {
            cause: TransferCause::Card,
            phase: TransferPhase::Data,
            status,
            done: 0,
            after,
        };
        let talk = |after| TalkError { cause: TransferCause::Card, phase: Some("Data"), status, after };
        let troubles = AFTER.map(|after| (Trouble::from(&of(after)), Trouble::from(&talk(after))));
        let again = (talk(After::Ready).is_retryable(), of(After::Ready).is_retryable());
        lines.say(format!("{:?}: again {again:?}, {troubles:?}", status.map(|s| s.bits())));
    }
    for after in AFTER {
        let talk = TalkError { cause: TransferCause::Card, phase: None, status: None, after };
        let of = TransferError {
            cause: TransferCause::Card,
            phase: TransferPhase::Data,
            status: None,
            done: 0,
            after,
        };
        let both = [(talk.needs_reset(), talk.media_gone()), (of.needs_reset(), of.media_gone())];
        lines.say(format!("{after:?}: reset, gone {both:?}"));
    }
    let identify = [
        IdentifyCause::NoAnswer,
        IdentifyCause::NotSd("by the test"),
        IdentifyCause::Voltage { card: 1, host: 2 },
        IdentifyCause::PowerUp(Ocr(1)),
        IdentifyCause::Echo(1),
        IdentifyCause::Register(RegisterError::Identity),
        IdentifyCause::NoAddress,
        IdentifyCause::Card,
        IdentifyCause::Locked,
        IdentifyCause::Addressing,
        IdentifyCause::Scratch,
        IdentifyCause::Limit,
        IdentifyCause::OutOfTurn,
    ];
    for cause in identify.into_iter().chain(host_errors().into_iter().map(IdentifyCause::Host)) {
        let e = IdentifyError { cause, step: IdentifyStep::Csd, status: None };
        let flags = (e.is_retryable(), e.needs_reset(), e.media_gone());
        lines.say(format!("identification, {cause:?}: again, reset, gone {flags:?}"));
    }
    for cause in [SpeedCause::Scratch, SpeedCause::Limit, SpeedCause::OutOfTurn]
        .into_iter()
        .chain(host_errors().into_iter().map(SpeedCause::Host))
    {
        let fallbacks = mmc_proto::machine::Fallbacks::default();
        let e = SpeedError { cause, phase: SpeedPhase::Bus, host: None, status: None, fallbacks };
        lines.say(format!("speed, {cause:?}: gone {}", e.media_gone()));
    }
    for cause in host_errors() {
        let e = TuneError { cause: TuneCause::Host(cause), phase: TunePhase::Block };
        lines.say(format!("tuning, {cause:?}: gone {}, {e}", e.media_gone()));
    }
    for phase in [
        TunePhase::Start,
        TunePhase::Point,
        TunePhase::Block,
        TunePhase::Pause,
        TunePhase::Set,
        TunePhase::Over,
    ] {
        let e = TuneError { cause: TuneCause::NoPoints, phase };
        lines.say(format!("{e}: gone {}", e.media_gone()));
    }
    for trouble in Trouble::ALL {
        for dir in [None, Some(Dir::Read), Some(Dir::Write)] {
            for attempt in 0..8 {
                let cures = |means| plan(POLICY, trouble, dir, attempt, means).collect::<Vec<_>>();
                lines.say(format!("{trouble:?} {dir:?} {attempt}: {:?}", cures(Means::all())));
                lines.digest("with less", |out| {
                    for means in 0..32 {
                        writeln!(out, "{:?}", cures(Means::from_bits_truncate(means))).unwrap();
                    }
                });
            }
        }
    }
    let modes =
        [Mode::Signal, Mode::Width(Width::One), Mode::Width(Width::Eight), Mode::Timing(Timing::Ddr50)];
    for mode in modes {
        for reason in [Reason::Refused, Reason::NoAnswer, Reason::Data, Reason::Tuning, Reason::Host] {
            lines.say(format!("left, {}", Fallback { mode, reason }));
        }
    }
    lines.compare("judgements");
}

/// How long things may take, at and around every bound.
#[test]
fn limits() {
    let mut lines = Lines(Vec::new());
    let near = |n: u64| [n.saturating_sub(1), n, n + 1];
    let blocks: Vec<u64> = [1, 8, 256, 512, 1024, 8192, 16384, 1 << 20].into_iter().flat_map(near).collect();
    lines.digest("data", |out| {
        for (dir, n) in blocks.iter().flat_map(|n| [(Dir::Read, *n), (Dir::Write, *n)]) {
            let times = (Duration::from_millis(7), Duration::from_millis(13), Duration::from_micros(40));
            let card = CardTraits { read_limit: times.0, write_limit: times.1, block_time: times.2, ..CARD };
            writeln!(out, "{}", card.data_limit(dir, n as u32)).unwrap();
        }
    });
    for au_size_code in [0, 1, 9, 15] {
        for (erase_size, erase_timeout_s, erase_offset_s) in
            [(0, 1, 1), (1, 0, 1), (1, 1, 0), (15, 1, 1), (16, 63, 3)]
        {
            lines.digest(
                format!(
                    "SD erase, unit {au_size_code}, {erase_size} in {erase_timeout_s} + {erase_offset_s} s"
                ),
                |out| {
                    for offered in 0..4_u8 {
                        let ssr = SsrInfo {
                            au_size_code,
                            erase_size,
                            erase_timeout_s,
                            erase_offset_s,
                            discard_support: offered & 1,
                            fule_support: offered >> 1,
                            ..SsrInfo::default()
                        };
                        let ssr = ssr.emit();
                        for kind in [EraseKind::Erase, EraseKind::Discard, EraseKind::FullUserArea] {
                            for (lba, n) in [0, 1, 32, 8191, 8192, 8193]
                                .iter()
                                .flat_map(|lba| blocks.iter().map(move |n| (*lba, *n)))
                            {
                                writeln!(out, "{}", timing::erase_limit(Some(&ssr), kind, lba, n)).unwrap();
                            }
                        }
                    }
                },
            );
        }
    }
    let kinds = [
        MmcEraseKind::Erase,
        MmcEraseKind::SecureErase,
        MmcEraseKind::Trim,
        MmcEraseKind::SecureTrim,
        MmcEraseKind::Discard,
    ];
    for field in [
        e::ERASE_GROUP_DEF,
        e::HC_ERASE_GRP_SIZE,
        e::ERASE_TIMEOUT_MULT,
        e::TRIM_MULT,
        e::SEC_ERASE_MULT,
        e::SEC_TRIM_MULT,
        e::SEC_FEATURE_SUPPORT,
        e::EXT_CSD_REV,
    ] {
        lines.digest(format!("eMMC erase, {}", field.name), |out| {
            for value in [0, 1, 2, 3, 5, 6, 0x10, 0x11, 0x40, 0x51, 0xff] {
                let mut ext = ext_csd();
                ext.set(field, value);
                for csd in [
                    conversations::mmc_csd(),
                    MmcCsdInfo { taac: 0x0e, write_bl_len: 9, ..MmcCsdInfo::default() }.emit(),
                ] {
                    writeln!(out, "{}", timing::mmc_erase_group_bytes(&csd, Some(&ext))).unwrap();
                    for kind in kinds {
                        writeln!(out, "{} {} {}", kind.arg(), kind.whole_groups(), kind.offered(Some(&ext)))
                            .unwrap();
                        for (lba, n) in
                            [0, 1, 1023, 1024].iter().flat_map(|lba| blocks.iter().map(move |n| (*lba, *n)))
                        {
                            writeln!(out, "{}", timing::mmc_erase_limit(&csd, Some(&ext), kind, lba, n))
                                .unwrap();
                        }
                    }
                }
            }
        });
    }
    for structure in [0, 1] {
        lines.digest(format!("access, structure {structure}"), |out| {
            for (taac, nsac, r2w_factor) in
                [(0, 0, 0), (0x0e, 0, 2), (0x26, 1, 2), (0x7f, 255, 5), (0x0b, 10, 7), (0x2d, 2, 1)]
            {
                for hz in [0, 1, 99, 100, 101, 400_000, 25_000_000, u32::MAX] {
                    for size in [0, 0xffff, 0x1_0000, 0x1_ffff] {
                        let sd = CsdInfo {
                            structure,
                            taac,
                            nsac,
                            r2w_factor,
                            size_bits: size << 1,
                            read_bl_len: 9,
                            ..CsdInfo::default()
                        }
                        .emit();
                        writeln!(
                            out,
                            "{} {}",
                            timing::sd_read_limit(&sd, hz),
                            timing::sd_write_limit(&sd, hz)
                        )
                        .unwrap();
                    }
                    let mmc =
                        MmcCsdInfo { structure, taac, nsac, r2w_factor, ..MmcCsdInfo::default() }.emit();
                    writeln!(
                        out,
                        "{} {}",
                        timing::mmc_read_limit(&mmc, hz),
                        timing::mmc_write_limit(&mmc, hz)
                    )
                    .unwrap();
                }
            }
        });
    }
    for field in [
        e::GENERIC_CMD6_TIME,
        e::PARTITION_SWITCH_TIME,
        e::OUT_OF_INTERRUPT_TIME,
        e::S_A_TIMEOUT,
        e::SLEEP_NOTIFICATION_TIME,
        e::POWER_OFF_LONG_TIME,
    ] {
        for value in [0, 1, 15, 23, 24, 30, 31, 255] {
            let mut ext = ExtCsd::new([0; 512]);
            ext.set(field, value);
            let all = [
                timing::switch_limit(&ext),
                timing::partition_limit(&ext),
                timing::cache_limit(&ext),
                timing::interrupt_limit(&ext),
                timing::sleep_limit(&ext),
                timing::sleep_notification_limit(&ext),
                timing::power_off_limit(&ext, true),
            ];
            lines.say(format!("{} {value}: {}", field.name, all.map(|d| d.to_string()).join(", ")));
        }
    }
    let fetch = Fetch::ext_csd(&CARD);
    lines.say(format!("reading the EXT_CSD: {}", fetch.limit()));
    lines.compare("limits");
}

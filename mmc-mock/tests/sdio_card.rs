//! SDIO and combo cards: a host finds out what is there, moves bytes, and is asked for attention; and whatever a host
//! sends, the card stays sane.

use mmc_hal::Dir;
use mmc_mock::card::{
    Bits, Card, ConfigError, IoFunction, IoState, SdConfig, SdioCard, SdioConfig, Sent, Shared, Token,
};
use mmc_mock::timing::Profile;
use mmc_mock::{Buf, MockHost, zoo};
use mmc_proto::bus::{BusConfig, Power};
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{Capabilities, Completion, Host as _, Operation, Progress, Returned};
use mmc_proto::register::sdio::{Cccr, Fbr, Tuples};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

struct Host {
    card: SdioCard,
    now: Instant,
    rca: u32,
}

impl Host {
    fn new(config: SdioConfig) -> Self {
        let mut card = SdioCard::new(config).unwrap();
        let now = Instant::from_millis(1);
        card.power(true, now);
        card.bus(400_000, 1, now);
        card.idle_clocks(80);
        Self { card, now, rca: 0 }
    }
    fn zoo(name: &str) -> Self {
        Self::new(zoo::io(name, &Profile::ideal(), 1).unwrap())
    }
    fn ask(&mut self, index: u8, arg: u32) -> Option<u32> {
        match self.card.command(index, arg, self.now).response {
            Some(Bits::Short(b)) => Some(u32::from_be_bytes([b[1], b[2], b[3], b[4]])),
            Some(Bits::Long(_)) => Some(0),
            None => None,
        }
    }
    /// CMD5 until the card is ready.
    fn wake(&mut self) -> u32 {
        assert!(self.ask(5, 0).unwrap() >> 31 == 0, "a query starts nothing");
        for _ in 0..100 {
            let r4 = self.ask(5, 0x0020_0000).unwrap();
            if r4 >> 31 == 1 {
                return r4;
            }
            self.now += Duration::from_millis(1);
        }
        panic!("CMD5");
    }
    fn select(&mut self) {
        self.rca = self.ask(3, 0).unwrap() & 0xffff_0000;
        self.card.bus(25_000_000, 1, self.now);
        assert!(self.ask(7, self.rca).is_some());
    }
    fn selected(name: &str) -> Self {
        let mut h = Self::zoo(name);
        h.wake();
        h.select();
        h
    }
    /// CMD52: flags and data.
    fn direct(&mut self, write: Option<u8>, function: u32, address: u32) -> (u8, u8) {
        let arg =
            u32::from(write.is_some()) << 31 | function << 28 | address << 9 | u32::from(write.unwrap_or(0));
        let r5 = self.ask(52, arg).unwrap();
        ((r5 >> 8) as u8, r5 as u8)
    }
    fn get(&mut self, function: u32, address: u32) -> u8 {
        let (flags, byte) = self.direct(None, function, address);
        assert_eq!(flags & 0xcb, 0);
        byte
    }
    fn set(&mut self, function: u32, address: u32, byte: u8) {
        assert_eq!(self.direct(Some(byte), function, address).0 & 0xcb, 0);
    }
    fn bytes(&mut self, address: u32, n: u32) -> Vec<u8> {
        (address..address + n).map(|a| self.get(0, a)).collect()
    }
    /// Enables a function and waits for it.
    fn enable(&mut self, function: u32) {
        let enabled = self.get(0, 2);
        self.set(0, 2, enabled | 1 << function);
        while self.get(0, 3) >> function & 1 == 0 {
            self.now += Duration::from_millis(1);
        }
    }
    fn block_size(&mut self, function: u32, size: u16) {
        let [low, high] = size.to_le_bytes();
        self.set(0, 0x100 * function + 0x10, low);
        self.set(0, 0x100 * function + 0x11, high);
    }
}

/// The argument of CMD53.
fn extended(write: bool, function: u32, blocks: bool, moves: bool, address: u32, count: u32) -> u32 {
    u32::from(write) << 31
        | function << 28
        | u32::from(blocks) << 27
        | u32::from(moves) << 26
        | address << 9
        | count
}

#[test]
fn a_host_finds_out_what_is_there() {
    let mut h = Host::zoo("sdio-wlan");
    assert_eq!(h.ask(8, 0x1aa), None, "no memory, no CMD8");
    assert_eq!(h.ask(55, 0), None);
    let r4 = h.wake();
    assert_eq!((r4 >> 28 & 7, r4 >> 27 & 1, r4 & 0xff_ffff), (2, 0, 0xff_8000));
    h.select();
    assert_eq!(h.direct(None, 0, 0).0 & 0xcb, 0x40, "ILLEGAL_COMMAND: CMD8 and CMD55");
    let cccr = Cccr::parse(&h.bytes(0, 23)).unwrap();
    cccr.check().unwrap();
    let info = cccr.info();
    assert_eq!((info.cis, info.high_speed, info.lines), (0x1000, true, 1));
    let cis = h.bytes(info.cis, 64);
    let tuples: Vec<_> = Tuples::new(&cis).map(Result::unwrap).collect();
    assert_eq!(tuples.iter().find_map(|t| t.manfid()), Some((0x1234, 0x5678)));
    assert_eq!(tuples.iter().find_map(|t| t.max_block_size()), Some(512));
    for (function, interface, most) in [(1, 7, 512), (2, 2, 64)] {
        let fbr = Fbr::parse(&h.bytes(0x100 * function, 18)).unwrap();
        assert_eq!(fbr.interface(), interface);
        let cis = h.bytes(fbr.cis(), 64);
        let tuples: Vec<_> = Tuples::new(&cis).map(Result::unwrap).collect();
        assert_eq!(tuples.iter().find_map(|t| t.max_block_size()), Some(most));
    }
    assert_eq!(h.direct(None, 3, 0).0 & 0xcb, 2, "FUNCTION_NUMBER");
    assert_eq!(h.direct(None, 1, 5).0 & 0xcb, 8, "ERROR: not enabled");
    h.enable(1);
    h.set(1, 5, 0x77);
    assert_eq!(h.get(1, 5), 0x77);
    assert_eq!(h.card.violations(), Vec::<String>::new());
}

#[test]
fn bytes_move_in_byte_mode_and_in_blocks() {
    let mut h = Host::selected("sdio-wlan");
    h.enable(1);
    h.block_size(1, 256);
    let data: Vec<u8> = (0..512).map(|i| (i / 3) as u8).collect();
    let answer = h.card.command(53, extended(true, 1, true, true, 0x100, 2), h.now);
    assert_eq!(answer.data.map(|p| (p.read, p.block_len, p.blocks)), Some((false, 256, Some(2))));
    assert_eq!(h.card.io_state(), IoState::Transfer);
    for block in data.chunks(256) {
        assert_eq!(h.card.take(block, true, h.now), Token::Accepted);
    }
    assert_eq!(h.card.io_state(), IoState::Command, "the count is reached");
    assert_eq!(&h.card.function_mut(1).unwrap()[0x100..0x300], &data[..]);
    // Read back in byte mode, 0 for 512.
    h.card.command(53, extended(false, 1, false, true, 0x100, 0), h.now);
    let mut back = vec![0; 512];
    assert!(h.card.ready(0) > h.now && h.card.ready(1).is_never());
    assert_eq!((h.card.send(&mut back, h.now), &back), (Sent::Good, &data));
    // A fixed address is one register.
    h.card.command(53, extended(false, 1, false, false, 0x104, 8), h.now);
    let mut same = [0; 8];
    assert_eq!(h.card.send(&mut same, h.now), Sent::Good);
    assert_eq!(same, [data[4]; 8]);
    // Without an end, until it is aborted by the function's number.
    h.card.command(53, extended(false, 1, true, true, 0, 0), h.now);
    let mut block = [0; 256];
    for _ in 0..3 {
        assert_eq!(h.card.send(&mut block, h.now), Sent::Good);
    }
    h.set(0, 6, 1);
    assert_eq!((h.card.io_state(), h.card.send(&mut block, h.now)), (IoState::Command, Sent::Nothing));
    // What cannot be.
    for (arg, flag) in [
        (extended(false, 1, true, true, 0x1_ffff, 2), 1),
        (extended(false, 5, false, true, 0, 4), 2),
        (extended(false, 2, false, true, 0, 4), 8),
    ] {
        let answer = h.card.command(53, arg, h.now);
        let Some(Bits::Short(b)) = answer.response else { panic!() };
        assert_eq!((b[3] & 0xcb, answer.data), (flag, None));
    }
    // On as many lines as the card.
    h.card.bus(25_000_000, 4, h.now);
    h.card.command(53, extended(false, 1, false, true, 0, 8), h.now);
    assert_eq!(h.card.send(&mut same, h.now), Sent::BadCrc);
    h.set(0, 7, 2);
    h.card.command(53, extended(false, 1, false, true, 0, 8), h.now);
    assert_eq!(h.card.send(&mut same, h.now), Sent::Good);
    assert_eq!(h.card.violations(), ["data on 4 lines of the host, the I/O part uses 1"]);
}

#[test]
fn high_speed_is_asked_for_before_the_clock_goes_up() {
    let mut h = Host::selected("sdio-wlan");
    h.card.bus(50_000_000, 1, h.now);
    h.get(0, 0x13);
    assert_eq!(h.card.violations(), ["CMD52: 50000000 Hz, full speed allows at most 25000000"]);
    let mut h = Host::selected("sdio-wlan");
    h.set(0, 0x13, 2);
    assert_eq!(h.get(0, 0x13), 3, "SHS and EHS");
    h.card.bus(50_000_000, 1, h.now);
    h.get(0, 0x13);
    assert_eq!(h.card.violations(), Vec::<String>::new());
}

#[test]
fn an_interrupt_is_seen_where_it_is_enabled_and_goes_when_it_is_served() {
    let mut caps = Capabilities::new();
    caps.max_hz = 25_000_000;
    let card = Shared::new(SdioCard::new(SdioConfig::new()).unwrap());
    let mut host: mmc_proto::host::Supervised<MockHost<Buf, _>> = MockHost::new(card.clone(), caps);
    let mut now = Instant::ZERO;
    let mut run = |host: &mut mmc_proto::host::Supervised<MockHost<Buf, _>>, op| {
        host.submit(op, now + Duration::from_secs(1), now).unwrap();
        loop {
            match host.poll(now) {
                Progress::Done(Completion { result, payload }) => {
                    let bytes = if let Returned::Back(Buf(b)) = payload { b } else { Vec::new() };
                    return (result.unwrap().words[0], bytes, now);
                }
                Progress::Waiting { until, .. } => now = now.max(until),
                Progress::Idle => panic!("lost"),
            }
        }
    };
    let plain = |index, arg| Operation::Command(Command::plain(index, arg, Response::Short));
    let write = |address: u32, byte: u8| plain(52, 1 << 31 | address << 9 | u32::from(byte));
    run(&mut host, Operation::Power(Power::On));
    run(&mut host, Operation::Bus(BusConfig { hz: 400_000, ..BusConfig::default() }));
    let r4 = |init_clocks| {
        let command = Command::plain(5, 0x0020_0000, Response::ShortNoCrc);
        Operation::Command(Command { init_clocks, ..command })
    };
    while run(&mut host, r4(true)).0 >> 31 == 0 {}
    let rca = run(&mut host, plain(3, 0)).0 & 0xffff_0000;
    run(&mut host, plain(7, rca));
    run(&mut host, write(2, 2));
    while run(&mut host, plain(52, 3 << 9)).0 & 2 == 0 {}
    run(&mut host, write(0x110, 16));

    card.lock().raise(1);
    let (.., now) = run(&mut host, write(4, 3));
    assert!(!host.slot(now).sdio, "the host did not ask");
    host.sdio_interrupt(true);
    assert!(host.slot(now).sdio);
    assert_eq!(run(&mut host, plain(52, 5 << 9)).0 & 0xff, 2, "INTx");
    // Served by a block that is moved by the host itself: register 0 is the interrupt register.
    let block = Command::data(53, extended(true, 1, true, true, 0, 1), Dir::Write, 16, 1, Stop::None);
    let (.., now) = run(&mut host, Operation::Transfer(block, Buf(vec![1; 16])));
    assert!(host.slot(now).sdio, "it stays until it is armed again");
    host.sdio_interrupt(true);
    assert!(!host.slot(now).sdio);
    assert_eq!(card.lock().function_mut(1).unwrap()[1..16], [1; 15]);
    assert_eq!(card.violations(), Vec::<String>::new());
}

#[test]
fn a_reset_takes_the_io_part_back_and_cmd0_does_not() {
    let mut h = Host::selected("sdio-wlan");
    h.ask(0, 0);
    assert_eq!(h.card.io_state(), IoState::Command);
    h.set(0, 6, 8);
    assert_eq!((h.card.io_state(), h.card.rca()), (IoState::Off, 0));
    assert_eq!(h.ask(52, 0), None, "it has to be found again");
    h.card.bus(400_000, 1, h.now);
    h.wake();
    h.select();
    h.ask(15, h.rca);
    assert_eq!(h.ask(5, 0), None, "inactive");
    h.card.power(false, h.now);
    assert_eq!(h.card.io_state(), IoState::Off);
}

#[test]
fn byte_mode_of_512_is_broken_on_one_of_them() {
    let mut h = Host::selected("cw1200");
    h.enable(1);
    let mut block = [0; 512];
    h.card.command(53, extended(false, 1, false, true, 0, 0), h.now);
    assert_eq!(h.card.send(&mut block, h.now), Sent::BadCrc, "a naive host");
    let mut short = [0; 508];
    h.card.command(53, extended(false, 1, false, true, 0, 508), h.now);
    assert_eq!(h.card.send(&mut short, h.now), Sent::Good);
    h.block_size(1, 512);
    h.card.command(53, extended(false, 1, true, true, 0, 1), h.now);
    assert_eq!(h.card.send(&mut block, h.now), Sent::Good, "a good one");
    let cis = h.bytes(0x1000, 64);
    assert_eq!(
        Tuples::new(&cis).find_map(|t| t.unwrap().manfid()),
        Some((0x0020, 0x2280)),
        "knows it by this"
    );
}

#[test]
fn a_combo_card_is_both_at_one_address() {
    let mut h = Host::zoo("combo");
    assert_eq!(h.ask(0, 0), None);
    assert_eq!(h.ask(8, 0x1aa), Some(0x1aa));
    assert_eq!(h.wake() >> 27 & 1, 1, "memory present");
    loop {
        h.ask(55, 0).unwrap();
        if h.ask(41, 0x40ff_8000).unwrap() >> 31 == 1 {
            break;
        }
        h.now += Duration::from_millis(10);
    }
    h.ask(2, 0).unwrap();
    h.select();
    assert_eq!(u32::from(h.card.rca()), u32::from(h.card.memory().unwrap().rca()));
    h.enable(1);
    // One after the other, with CMD52 in the middle of the memory's data.
    assert!(h.card.command(18, 0, h.now).data.is_some());
    let mut block = [0; 512];
    assert_eq!(h.card.send(&mut block, h.now), Sent::Good);
    h.set(1, 9, 0x42);
    assert_eq!(h.card.send(&mut block, h.now), Sent::Good);
    h.ask(12, 0).unwrap();
    h.card.command(24, 7, h.now);
    assert_eq!(h.card.take(&[5; 512], true, h.now), Token::Accepted);
    h.card.command(53, extended(false, 1, false, true, 8, 2), h.now);
    let mut two = [0; 2];
    assert_eq!((h.card.send(&mut two, h.now), two), (Sent::Good, [0, 0x42]));
    let mut stored = [0; 512];
    h.card.memory_mut().unwrap().storage_mut().read(7 * 512, &mut stored).unwrap();
    assert_eq!(stored, [5; 512]);
    // CMD0 resets the memory alone.
    h.ask(0, 0);
    assert_eq!(h.get(1, 9), 0x42);
    assert_eq!(h.card.violations(), Vec::<String>::new());

    // A host that forgets ACMD41 has the I/O part, and no memory.
    let mut h = Host::selected("combo");
    h.enable(1);
    assert!(h.ask(17, 0).is_none());
}

#[test]
fn a_card_that_cannot_be_is_refused_by_name() {
    let base = SdioConfig::new();
    let none = SdioConfig { functions: Vec::new(), ..base.clone() };
    assert_eq!(SdioCard::new(none).unwrap_err(), ConfigError::Functions(0));
    let f = IoFunction { max_block: 4096, ..base.functions[0] };
    let large = SdioConfig { functions: vec![f], ..base.clone() };
    assert!(SdioCard::new(large).unwrap_err().to_string().contains("1 to 2048 bytes, not 4096"));
    assert_eq!(SdioCard::new(SdioConfig { rca: 0, ..base.clone() }).unwrap_err(), ConfigError::Rca);
    let memory = Some(SdConfig { sectors: 0, ..SdConfig::new(Profile::ideal(), 0) });
    assert!(SdioCard::new(SdioConfig { memory, ..base }).is_err());
    assert!(zoo::io("cw1201", &Profile::ideal(), 0).unwrap_err().to_string().contains("cw1200"));
}

#[derive(Clone, Debug)]
enum Do {
    Command(u8, u32),
    Mine(u8),
    /// CMD52 and CMD53 to a function and an address.
    Io(u8, u32, u32, u32),
    Send(usize),
    Take(usize, u8, bool),
    Wait(u64),
    Bus(u32, u8),
    Power(bool),
}

fn step() -> impl Strategy<Value = Do> {
    let sizes = prop::sample::select(vec![1_usize, 4, 16, 64, 512]);
    prop_oneof![
        3 => (any::<u8>(), any::<u32>()).prop_map(|(i, a)| Do::Command(i, a)),
        2 => prop::sample::select(vec![0_u8, 2, 3, 5, 7, 15, 24, 41, 55]).prop_map(Do::Mine),
        9 => (prop::sample::select(vec![52_u8, 53]), any::<u32>(), 0..4_u32, prop_oneof![0..32_u32, 0x100..0x320_u32])
            .prop_map(|(i, bits, f, a)| Do::Io(i, bits, f, a)),
        4 => sizes.clone().prop_map(Do::Send),
        4 => (sizes, any::<u8>(), prop::bool::weighted(0.9)).prop_map(|(n, b, ok)| Do::Take(n, b, ok)),
        2 => (0..5_000_000_u64).prop_map(Do::Wait),
        1 => (prop::sample::select(vec![0_u32, 400_000, 25_000_000]), prop::sample::select(vec![1_u8, 4]))
            .prop_map(|(hz, lines)| Do::Bus(hz, lines)),
        1 => prop::bool::weighted(0.9).prop_map(Do::Power),
    ]
}

proptest! {
    /// A function's memory changes only by a CMD52 that was answered without an error, or a block that was accepted;
    /// and only there.
    #[test]
    fn whatever_is_sent_the_card_stays_sane(
        combo in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut h = Host::selected(if combo { "combo" } else { "sdio-wlan" });
        h.enable(1);
        h.block_size(1, 16);
        let mut seen = vec![0_u8; 1 << 17];
        // Where the next written block goes, its length, and whether the address moves.
        let mut write: Option<(usize, usize, bool)> = None;
        for step in steps {
            let mut before = h.card.io_state();
            let frame = match step {
                Do::Command(i, arg) => Some((i & 63, arg)),
                Do::Mine(i) => Some((i, h.rca)),
                Do::Io(i, bits, f, address) => {
                    let (top, low) = (bits & 0x8c00_0000, bits & 0x1ff);
                    Some((i, top | f << 28 | address << 9 | if i == 53 { low & 0x1f } else { low & 0xff }))
                }
                _ => None,
            };
            if let Some((index, arg)) = frame {
                let answer = h.card.command(index, arg, h.now);
                let (function, address) = (arg >> 28 & 7, (arg >> 9 & 0x1_ffff) as usize);
                prop_assert!(answer.data.is_none() || answer.response.is_some());
                if let (52, Some(Bits::Short(b))) = (index, answer.response)
                    && arg >> 31 == 1 && function == 1 && address > 0 && b[3] & 0x0b == 0
                {
                    seen[address] = arg as u8;
                }
                if let (53, Some(p)) = (index, answer.data) {
                    prop_assert_eq!(h.card.io_state(), IoState::Transfer);
                    prop_assert_eq!(p.read, arg >> 31 == 0);
                    let here = !p.read && function == 1;
                    write = here.then_some((address, p.block_len.into(), arg & 1 << 26 != 0));
                }
                before = h.card.io_state();
            }
            match step {
                Do::Send(n) => {
                    let mut block = vec![0; n];
                    h.card.send(&mut block, h.now);
                }
                Do::Take(n, byte, ok) => {
                    let token = h.card.take(&vec![byte; n], ok, h.now);
                    if token == Token::Accepted && before == IoState::Transfer {
                        prop_assert!(ok);
                        if let Some((at, len, moves)) = &mut write {
                            prop_assert_eq!(*len, n);
                            for i in 0..n {
                                let cell = *at + if *moves { i } else { 0 };
                                if cell > 0 {
                                    seen[cell] = byte;
                                }
                            }
                            *at += if *moves { n } else { 0 };
                        }
                    }
                }
                Do::Wait(ns) => h.now += Duration::from_nanos(ns),
                Do::Bus(hz, lines) => h.card.bus(hz, lines, h.now),
                Do::Power(on) => h.card.power(on, h.now),
                _ => {}
            }
            prop_assert!(h.card.io_state() != IoState::Transfer || h.card.ready(0) != Instant::NEVER);
            prop_assert!(h.card.violations().len() <= 512);
            let now_there = h.card.function_mut(1).unwrap();
            prop_assert!(now_there == &seen[..], "after {:?}", step);
        }
    }
}

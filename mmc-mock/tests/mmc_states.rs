//! Each command of an eMMC card in each state, against the table in `tests/data/mmc_states.txt`; and any sequence of any
//! frames.

use mmc_mock::card::{Answer, Bits, Card, MmcCard, MmcConfig, MmcState, Sent, Token};
use mmc_mock::timing::Profile;
use mmc_mock::zoo;
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

const STATES: [(&str, MmcState); 11] = [
    ("idle", MmcState::Idle),
    ("ready", MmcState::Ready),
    ("ident", MmcState::Ident),
    ("stby", MmcState::Stby),
    ("tran", MmcState::Tran),
    ("data", MmcState::Data),
    ("rcv", MmcState::Rcv),
    ("prg", MmcState::Prg),
    ("dis", MmcState::Dis),
    ("btst", MmcState::Btst),
    ("slp", MmcState::Slp),
];
const NOW: Instant = Instant::from_millis(100);

/// A fresh card in `state`, by the shortest way there.
fn card_in(state: MmcState) -> MmcCard {
    let ms = Duration::from_millis;
    let profile = Profile { cmd: ms(1), wr_seq: ms(250), ..Profile::ideal() };
    let config = MmcConfig { power_up: Duration::ZERO, ..MmcConfig::emmc(8, 16_777_216, profile, 0) };
    let mut card = MmcCard::new(config).unwrap();
    card.power(true, Instant::ZERO);
    card.bus(400_000, 1, Instant::ZERO);
    card.idle_clocks(80);
    let mut block = [0x55; 512];
    let steps: &[(MmcState, u8, u32)] = &[
        (MmcState::Ready, 1, 0x40ff_8080),
        (MmcState::Ident, 2, 0),
        (MmcState::Stby, 3, 1 << 16),
        (MmcState::Tran, 7, 1 << 16),
    ];
    for &(to, index, arg) in steps {
        if state >= to && !(state == MmcState::Slp && to == MmcState::Tran) {
            assert!(card.command(index, arg, NOW).response.is_some());
        }
    }
    let mut run = |list: &[(u8, u32)], takes: bool| {
        for &(index, arg) in list {
            let answer = card.command(index, arg, NOW);
            if let Some(phase) = answer.data.filter(|_| takes) {
                let len = usize::from(phase.block_len);
                assert_eq!(card.take(&block[..len], true, NOW), Token::Accepted);
            }
        }
    };
    match state {
        MmcState::Data => run(&[(18, 0)], false),
        MmcState::Rcv => run(&[(25, 0)], true),
        MmcState::Prg => run(&[(25, 0), (12, 0)], true),
        MmcState::Dis => run(&[(25, 0), (12, 0), (7, 0)], true),
        MmcState::Btst => run(&[(19, 0)], true),
        MmcState::Slp => run(&[(5, 1 << 16 | 1 << 15)], false),
        _ => {}
    }
    if state == MmcState::Data {
        assert_eq!(card.send(&mut block, NOW), Sent::Good);
    }
    assert_eq!(card.state(NOW), state);
    assert_eq!(card.violations(), Vec::<String>::new());
    card
}

fn kind(answer: &Answer) -> &'static str {
    match answer.response {
        None => "none",
        Some(Bits::Long(_)) => "R2",
        Some(Bits::Short(b)) if b[0] == 0x3f => "R3",
        Some(Bits::Short(_)) => "R1",
    }
}
fn r1(answer: Answer) -> u32 {
    let Some(Bits::Short(b)) = answer.response else { panic!("no R1 but {answer:?}") };
    u32::from_be_bytes([b[1], b[2], b[3], b[4]])
}

#[test]
fn the_table_holds_in_every_cell() {
    let mut rows = include_str!("data/mmc_states.txt").lines().filter(|l| !l.starts_with('#'));
    let heads: Vec<&str> = rows.next().unwrap().split_whitespace().skip(2).collect();
    assert_eq!(heads, STATES.map(|s| s.0));
    let mut cells = 0;
    for row in rows {
        let f: Vec<&str> = row.split_whitespace().collect();
        let (name, response) = (f[0], f[1]);
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        let index: u8 = digits.parse().unwrap();
        let address = if name.ends_with("other") { 0x5a5a } else { 1 };
        let arg = match (index, name) {
            (0, "CMD0pre") => 0xf0f0_f0f0,
            (0, "CMD0boot") => 0xffff_fffa,
            (1, _) => 0x40ff_8080,
            (5, "CMD5") => 1 << 16 | 1 << 15,
            (3 | 5 | 7 | 9 | 10 | 13 | 15, _) => address << 16,
            (6, _) => 0x03b9_0100, // HS_TIMING 1
            (16, _) => 512,
            _ => 8,
        };
        for (i, (label, state)) in STATES.into_iter().enumerate() {
            let want = f[2 + i];
            cells += 1;
            let mut card = card_in(state);
            let answer = card.command(index, arg, NOW);
            let at = format!("{name} in {label}: {want}");
            let after = match want {
                "-" | "=" => state,
                "ina" => MmcState::Ina,
                name => STATES.iter().find(|s| s.0 == name).unwrap().1,
            };
            assert_eq!(kind(&answer), if matches!(want, "-" | "=") { "none" } else { response }, "{at}");
            assert_eq!(card.state(NOW), after, "{at}");
            if kind(&answer) == "R1" {
                let value = r1(answer);
                assert_eq!(value >> 9 & 15, state as u32, "{at}: R1 tells the state before");
                let ready = !matches!(state, MmcState::Prg | MmcState::Dis);
                assert_eq!(value >> 8 & 1 == 1, ready, "{at}: READY_FOR_DATA");
            }
            let broken = card.violations().len();
            assert_eq!(broken, usize::from(want == "-" && index != 12), "{at}: {:?}", card.violations());
            if state >= MmcState::Stby && state != MmcState::Slp && after != MmcState::Ina && index != 0 {
                let rca = if card.state(NOW) == MmcState::Slp { continue } else { 1 << 16 };
                assert_eq!(r1(card.command(13, rca, NOW)) >> 22 & 1 == 1, want == "-", "{at}");
            }
        }
    }
    assert_eq!(cells, 45 * 11);
}

#[test]
fn commands_that_the_card_does_not_have_are_illegal_and_no_violation() {
    // Streams, the register bus, security protocols, classes 8 and 9: the CSD does not have them.
    let unknown = [11, 20, 22, 32, 33, 34, 37, 39, 40, 41, 43, 50, 51, 52, 53, 54, 55, 56];
    for (_, state) in STATES {
        for index in unknown.into_iter().chain(57..64) {
            let mut card = card_in(state);
            assert_eq!(card.command(index, 0, NOW), Answer::default());
            assert_eq!((card.state(NOW), card.violations().len()), (state, 0));
        }
    }
}

#[test]
fn an_old_card_has_neither_cmd6_nor_cmd8() {
    // The dump of a card of 32 MB, version 3.1.
    let csd = 0x8c26_012a_0f59_01e9_f6d9_83e3_9240_4001_u128.to_be_bytes();
    let config = MmcConfig::from_registers([0x15; 16], csd, None, Profile::ideal(), 0).unwrap();
    assert_eq!((config.sectors(), config.sector_addressed()), (62_720, false));
    let mut card = MmcCard::new(MmcConfig { power_up: Duration::ZERO, ..config }).unwrap();
    card.power(true, NOW);
    card.bus(400_000, 1, NOW);
    card.idle_clocks(74);
    for (index, arg) in [(1, 0xff_8000), (2, 0), (3, 1 << 16), (7, 1 << 16)] {
        assert!(card.command(index, arg, NOW).response.is_some());
    }
    for index in [5, 6, 8, 14, 19, 21, 31, 44, 45, 46, 47, 48, 49, 53] {
        assert_eq!(card.command(index, 1 << 16, NOW), Answer::default(), "CMD{index}");
    }
    assert_eq!(r1(card.command(17, 512, NOW)) >> 22 & 1, 1, "told once, with the next answer");
}

#[derive(Clone, Debug)]
enum Do {
    Command(u8, u32),
    Send(usize),
    SendMany(usize),
    Take(usize, bool),
    TakeMany(usize),
    Wait(u64),
    Bus(u8),
    Power(bool),
}

fn step() -> impl Strategy<Value = Do> {
    let commands = prop::sample::select(vec![
        6_u8, 8, 12, 13, 17, 18, 19, 21, 23, 24, 25, 35, 36, 38, 14, 7, 26, 27, 28, 29, 30, 31, 42, 44, 45,
        46, 47, 48, 49,
    ]);
    let args = prop_oneof![
        3 => 0..300_u32,
        1 => Just(1 << 16), 1 => Just(1 << 16 | 1), 1 => Just(0x40ff_8080), 1 => any::<u32>(),
        3 => (prop::sample::select(vec![15_u32, 31, 32, 33, 34, 143, 155, 161, 164, 165, 171, 173, 175, 179, 183, 185]), 0..8_u32)
            .prop_map(|(at, v)| 3 << 24 | at << 16 | v << 8),
    ];
    prop_oneof![
        10 => (commands, args.clone()).prop_map(|(i, a)| Do::Command(i, a)),
        2 => (any::<u8>(), args).prop_map(|(i, a)| Do::Command(i, a)),
        2 => prop::sample::select(vec![512_usize, 0, 8, 64, 600]).prop_map(Do::Send),
        2 => (0..6000_usize).prop_map(Do::SendMany),
        4 => (prop::sample::select(vec![512_usize, 0, 511, 1]), prop::bool::weighted(0.9)).prop_map(|(n, ok)| Do::Take(n, ok)),
        3 => (0..6000_usize).prop_map(Do::TakeMany),
        4 => (0..300_000_000_u64).prop_map(Do::Wait),
        1 => prop::sample::select(vec![1_u8, 4, 8]).prop_map(Do::Bus),
        1 => prop::bool::weighted(0.7).prop_map(Do::Power),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 2))]
    /// Any frames leave the card legal in bounded time; contents change only where a write or an erase was accepted, or
    /// with the loss of power that takes the cache along.
    #[test]
    fn the_card_stays_sane(modern in any::<bool>(), steps in prop::collection::vec(step(), 1..100)) {
        let config = if modern {
            MmcConfig::emmc(8, 65536, Profile::cheap(), 3)
        } else {
            let csd = 0x8c26_012a_0f59_01e9_f6d9_83e3_9240_4001_u128.to_be_bytes();
            MmcConfig::from_registers([0x15; 16], csd, None, Profile::cheap(), 3).unwrap()
        };
        let mut card = MmcCard::new(MmcConfig { power_up: Duration::ZERO, ..config }).unwrap();
        let mut now = Instant::ZERO;
        card.power(true, now);
        card.bus(400_000, 1, now);
        for (index, arg) in [(1, 0x40ff_8080), (2, 0), (3, 1 << 16), (7, 1 << 16)] {
            card.command(index, arg, now);
        }
        let contents = |card: &mut MmcCard| -> Vec<Vec<u8>> {
            (0..8).map(|area| {
                let storage = card.area_mut(area);
                let mut all = vec![0; storage.bytes().min(160 * 1024) as usize];
                storage.read(0, &mut all).unwrap();
                all
            }).collect()
        };
        let mut before = contents(&mut card);
        for step in steps {
            let was = card.state(now);
            let mut may_change = false;
            match step {
                Do::Command(index, arg) => {
                    // An erase; an interrupt of a write that was under way.
                    may_change = index & 63 == 38 || card.dirty_sectors() > 0;
                    let answer = card.command(index, arg, now);
                    match answer.response {
                        Some(Bits::Short(b)) => prop_assert!(b[0] & 0xc0 == 0),
                        Some(Bits::Long(b)) => prop_assert_eq!(b[0], 0x3f),
                        None => prop_assert_eq!(answer.data, None),
                    }
                    if let Some(phase) = answer.data {
                        let state = if phase.read { MmcState::Data } else { MmcState::Rcv };
                        prop_assert_eq!(card.state(now), state);
                        prop_assert!(phase.block_len >= 1);
                    }
                }
                Do::Send(n) => {
                    let sent = card.send(&mut vec![0; n], now);
                    prop_assert!(was == MmcState::Data || sent == Sent::Nothing);
                }
                Do::SendMany(n) => {
                    let sent = card.send_many(&mut vec![0; n], now);
                    prop_assert!(sent <= n && (was == MmcState::Data || sent == 0));
                }
                Do::Take(n, ok) => {
                    let token = card.take(&vec![0x5a; n], ok, now);
                    may_change = token == Token::Accepted;
                    prop_assert!(!may_change || was == MmcState::Rcv);
                }
                Do::TakeMany(n) => {
                    let taken = card.take_many(&vec![0xa5; n], now);
                    may_change = taken > 0;
                    prop_assert!(taken <= n && (was == MmcState::Rcv || taken == 0));
                }
                Do::Wait(ns) => now += Duration::from_nanos(ns),
                Do::Bus(lines) => card.bus(400_000, lines, now),
                Do::Power(on) => {
                    // Partitions are made when power comes, and take all along.
                    may_change = card.dirty_sectors() > 0 || card.ext_csd(155) == 1;
                    card.power(on, now);
                }
            }
            let data = matches!(card.state(now), MmcState::Data | MmcState::Rcv);
            prop_assert!(!data || card.ready(0) != Instant::NEVER);
            prop_assert!(card.busy_until(now).since(now) < Duration::from_secs(9));
            prop_assert!(card.violations().len() <= 256);
            // The cache, and the blocks of one write past it: what the steps can have brought.
            prop_assert!(card.dirty_sectors() <= 1024 + 11 * 100);
            let after = contents(&mut card);
            prop_assert!(may_change || after == before, "changed by {:?}", step);
            before = after;
        }
    }

    /// No card of the zoo, whatever is odd about it, leaves the rules of the wire: responses have their form, phases their
    /// state, and only a card that never ends a flush is busy for ever.
    #[test]
    fn no_card_of_the_zoo_leaves_the_rules_of_the_wire(
        preset in prop::sample::select(zoo::mmc_list()),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let config = MmcConfig { power_up: Duration::ZERO, ..zoo::mmc(preset.name, Profile::a2(), 3).unwrap() };
        let endless = config.quirks.flush_never_ends || config.quirks.empty_flush_hangs;
        let slow = config.quirks.bkops_time > Duration::ZERO;
        let mut card = MmcCard::new(config).unwrap();
        let mut now = Instant::ZERO;
        card.power(true, now);
        card.bus(400_000, 1, now);
        for (index, arg) in [(1, 0x40ff_8080), (2, 0), (3, 1 << 16), (7, 1 << 16)] {
            card.command(index, arg, now);
        }
        for step in steps {
            match step {
                Do::Command(index, arg) => {
                    let answer = card.command(index, arg, now);
                    match answer.response {
                        Some(Bits::Short(b)) => prop_assert!(b[0] & 0xc0 == 0),
                        Some(Bits::Long(b)) => prop_assert_eq!(b[0], 0x3f),
                        None => prop_assert_eq!(answer.data, None),
                    }
                }
                Do::Send(n) => drop(card.send(&mut vec![0; n], now)),
                Do::SendMany(n) => drop(card.send_many(&mut vec![0; n], now)),
                Do::Take(n, ok) => drop(card.take(&vec![0x5a; n], ok, now)),
                Do::TakeMany(n) => drop(card.take_many(&vec![0xa5; n], now)),
                Do::Wait(ns) => now += Duration::from_nanos(ns),
                Do::Bus(lines) => card.bus(400_000, lines, now),
                Do::Power(on) => card.power(on, now),
            }
            let data = matches!(card.state(now), MmcState::Data | MmcState::Rcv);
            prop_assert!(!data || card.ready(0) != Instant::NEVER);
            let busy = card.busy_until(now);
            // A secure erase of a whole card takes as long as SEC_ERASE_MULT says: 255 times 3 ms for each unit.
            let most = if slow { 90 } else { 40_000_000 };
            prop_assert!((endless && busy.is_never()) || busy.since(now) < Duration::from_secs(most), "{}", preset.name);
        }
    }
}

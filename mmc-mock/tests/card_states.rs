//! Each command in each state, against the table in `tests/data/sd_states.txt`.

use mmc_mock::card::{Answer, Bits, Card, SdCard, SdConfig, Sent, State, Token, Uhs, Version};
use mmc_mock::timing::Profile;
use mmc_proto::bus::{Signal, Timing};
use mmc_time::{Duration, Instant};

const STATES: [(&str, State); 9] = [
    ("idle", State::Idle),
    ("ready", State::Ready),
    ("ident", State::Ident),
    ("stby", State::Stby),
    ("tran", State::Tran),
    ("data", State::Data),
    ("rcv", State::Rcv),
    ("prg", State::Prg),
    ("dis", State::Dis),
];
/// The table is asked at this instant; a write takes 250 ms more.
const NOW: Instant = Instant::from_millis(100);

/// A fresh card in `state`, by the shortest way there.
fn card_in(state: State) -> SdCard {
    card_of("", state)
}
fn card_of(kind: &str, state: State) -> SdCard {
    let (cmd, wr_seq) = (Duration::from_millis(1), Duration::from_millis(249));
    let profile = Profile { cmd, wr_seq, ..Profile::ideal() };
    let base = SdConfig { power_up: Duration::ZERO, ..SdConfig::new(profile, 0) };
    let config = match kind {
        "sdsc" => {
            SdConfig { sectors: 2_097_152, version: Version::V2, cmd23: false, protect_groups: true, ..base }
        }
        "sduc" => SdConfig { sectors: 1 << 33, ..base },
        _ => SdConfig { uhs: Some(Uhs::new(0)), speed_class: true, ..base },
    };
    let mut card = SdCard::new(config).unwrap();
    card.power(true, Instant::ZERO);
    card.bus(400_000, 1, Instant::ZERO);
    card.idle_clocks(80);
    let rca = u32::from(card.config().rca) << 16;
    let mut block = [0x55; 512];
    let steps: &[(State, u8, u32)] = &[
        (State::Idle, 8, 0x1aa),
        (State::Ready, 55, 0),
        (State::Ready, 41, 0x49ff_8000),
        (State::Ident, 2, 0),
        (State::Stby, 3, 0),
        (State::Tran, 7, rca),
    ];
    for &(to, index, arg) in steps {
        if state >= to {
            assert!(card.command(index, arg, NOW).response.is_some());
        }
        if index == 41 && state >= to && kind == "1.8V" {
            let at = |ms| Instant::from_millis(ms);
            assert!(card.command(11, 0, at(80)).response.is_some());
            card.bus(0, 1, at(80));
            card.bus(400_000, 1, at(90));
            card.signal(Signal::V1_8, Timing::Default, at(90));
        }
    }
    match state {
        State::Data => {
            card.command(18, 0, NOW);
            assert_eq!(card.send(&mut block, NOW), Sent::Good);
        }
        State::Rcv | State::Prg | State::Dis => {
            card.command(25, 0, NOW);
            assert_eq!(card.take(&block, true, NOW), Token::Accepted);
        }
        _ => {}
    }
    if state >= State::Prg {
        card.command(12, 0, NOW);
    }
    if state == State::Dis {
        card.command(7, 0, NOW);
    }
    assert_eq!(card.state(NOW), state);
    assert_eq!(card.violations(), Vec::<String>::new());
    card
}

/// The argument that makes a command a good one.
fn argument(index: u8, app: bool, rca: u16) -> u32 {
    match (app, index) {
        (false, 3 | 7 | 9 | 10 | 13 | 15 | 55) => u32::from(rca) << 16,
        (false, 8) => 0x1aa,
        (false, 6) => 0x00ff_ffff,
        (false, 16) => 512,
        (true, 6) => 2,
        (true, 41) => 0x48ff_8000,
        _ => 8,
    }
}

/// Whether the card reports ILLEGAL_COMMAND, where there is a command that would tell; `None` in `ready`, `ina`.
fn illegal(card: &mut SdCard) -> Option<bool> {
    let rca = u32::from(card.rca()) << 16;
    let (index, bit) = match card.state(NOW) {
        State::Ready | State::Ina => return None,
        State::Ident => (3, 14), // R6 has the bit elsewhere
        _ => (55, 22),
    };
    let Some(Bits::Short(b)) = card.command(index, rca, NOW).response else { panic!("CMD{index} is silent") };
    let value = u32::from_be_bytes([b[1], b[2], b[3], b[4]]);
    Some(value >> bit & 1 == 1)
}

fn kind(answer: &Answer) -> String {
    match answer.response {
        None => "none".into(),
        Some(Bits::Long(_)) => "R2".into(),
        Some(Bits::Short(b)) if b[0] == 0x3f => "R3".into(),
        Some(Bits::Short(b)) if b[0] == 3 => "R6".into(),
        Some(Bits::Short(b)) if b[0] == 8 => "R7".into(),
        Some(Bits::Short(_)) => "R1".into(),
    }
}

#[test]
fn the_table_holds_in_every_cell() {
    let mut rows = include_str!("data/sd_states.txt").lines().filter(|l| !l.starts_with('#'));
    let heads: Vec<&str> = rows.next().unwrap().split_whitespace().skip(2).collect();
    assert_eq!(heads, STATES.map(|s| s.0));
    let mut cells = 0;
    for row in rows {
        let f: Vec<&str> = row.split_whitespace().collect();
        let (name, response) = (f[0], f[1]);
        let app = name.starts_with('A');
        let other = name.ends_with("other");
        let (name, card_kind) = name.split_once('@').unwrap_or((name, ""));
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        let index: u8 = digits.parse().unwrap();
        for (i, (label, state)) in STATES.into_iter().enumerate() {
            let want = f[2 + i];
            if want == "x" {
                continue;
            }
            // There is no 1.8 V before ACMD41.
            let card_kind = if state == State::Idle && card_kind == "1.8V" { "" } else { card_kind };
            let mut card = card_of(card_kind, state);
            let rca = if other { card.rca() ^ 0x5a5a } else { card.rca() };
            let arg = argument(index, app, rca) | u32::from(name.ends_with("read"));
            if app {
                assert!(card.command(55, u32::from(card.rca()) << 16, NOW).response.is_some());
            }
            let answer = card.command(index, arg, NOW);
            let at = format!("{name}@{card_kind} in {label}: {want}");
            let after = match want {
                "-" | "=" => state,
                "ina" => State::Ina,
                name => STATES.iter().find(|s| s.0 == name).unwrap().1,
            };
            let silent = matches!(want, "-" | "=");
            assert_eq!(kind(&answer), if silent { "none" } else { response }, "{at}");
            assert_eq!(card.state(NOW), after, "{at}");
            assert_eq!(answer.data.is_some(), matches!(want, "data" | "rcv") && after != state, "{at}");
            if let Some(Bits::Short(b)) = answer.response
                && response == "R1"
            {
                assert_eq!(b[3] >> 1 & 15, state as u8, "{at}: R1 tells the state before");
                assert_eq!(b[3] & 1, u8::from(state < State::Prg), "{at}: READY_FOR_DATA");
                assert_eq!(b[4] >> 5 & 1, u8::from(app || index == 55), "{at}: APP_CMD");
            }
            let broken = card.violations().len();
            // CMD12 may come when the data are over, in recovery; all else in the wrong state is the host's fault.
            assert_eq!(broken, usize::from(want == "-" && index != 12), "{at}: {:?}", card.violations());
            if let Some(told) = illegal(&mut card) {
                assert_eq!(told, want == "-", "{at}");
            }
            cells += 1;
        }
    }
    assert_eq!(cells, 50 * 9 - 8 * 2);
}

#[test]
fn commands_that_the_card_does_not_have_are_illegal_everywhere_and_no_violation() {
    let known = [
        0, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 15, 16, 17, 18, 23, 24, 25, 32, 33, 38, 55, 11, 19, 20, 27, 42,
        56,
    ];
    for (_, state) in STATES {
        for index in (0..64).filter(|i| !known.contains(i)) {
            let mut card = card_in(state);
            assert_eq!(card.command(index, 0, NOW), Answer::default());
            assert_eq!(card.state(NOW), state);
            assert_eq!(card.violations(), Vec::<String>::new());
            assert_ne!(illegal(&mut card), Some(false), "CMD{index} in {state:?}");
        }
    }
}

#[test]
fn an_inactive_card_is_deaf_until_power_is_cycled() {
    let mut card = card_in(State::Tran);
    card.command(15, u32::from(card.rca()) << 16, NOW);
    for index in 0..64 {
        assert_eq!(card.command(index, u32::from(card.rca()) << 16, NOW), Answer::default());
    }
    assert_eq!(card.state(NOW), State::Ina);
    card.power(false, NOW);
    card.power(true, NOW);
    assert_eq!(card.state(NOW), State::Idle);
}

#[test]
fn old_cards_do_not_know_the_newer_commands() {
    let base =
        SdConfig { sectors: 31_360, cmd23: false, high_speed: false, ..SdConfig::new(Profile::ideal(), 0) };
    for (version, cmd8, cmd6) in
        [(Version::V1_0, false, false), (Version::V1_1, false, true), (Version::V2, true, true)]
    {
        let mut card = SdCard::new(SdConfig { version, power_up: Duration::ZERO, ..base.clone() }).unwrap();
        card.power(true, NOW);
        card.bus(400_000, 1, NOW);
        card.idle_clocks(74);
        card.command(0, 0, NOW);
        assert_eq!(card.command(8, 0x1aa, NOW).response.is_some(), cmd8);
        for (index, arg) in [(55, 0), (41, 0xff_8000), (2, 0), (3, 0), (7, u32::from(base.rca) << 16)] {
            assert!(card.command(index, arg, NOW).response.is_some(), "CMD{index}");
        }
        assert!(card.command(23, 4, NOW).response.is_none());
        assert_eq!(card.command(6, 0xff_ffff, NOW).data.is_some(), cmd6);
        assert_eq!(card.violations(), Vec::<String>::new());
    }
}

/// States that end by themselves: programming, and a read or write whose count is reached.
#[test]
fn states_end_by_themselves() {
    let later = NOW + Duration::from_millis(250);
    let card = card_in(State::Prg);
    assert_eq!(card.busy_until(NOW), later);
    assert_eq!((card.state(later), card.busy_until(later)), (State::Tran, Instant::ZERO));
    let mut card = card_in(State::Dis);
    assert_eq!(card.busy_until(NOW), Instant::ZERO, "a deselected card lets DAT0 go");
    assert_eq!(card.state(later), State::Stby);
    let rca = u32::from(card.rca()) << 16;
    card.command(7, rca, NOW);
    assert_eq!((card.state(NOW), card.busy_until(NOW)), (State::Prg, later), "and takes it back");

    let mut block = [0; 512];
    let mut card = card_in(State::Tran);
    card.command(17, 0, NOW);
    assert_eq!(card.send(&mut block, NOW), Sent::Good);
    assert_eq!((card.state(NOW), card.send(&mut block, NOW)), (State::Tran, Sent::Nothing));
    card.command(23, 2, NOW);
    card.command(25, 0, NOW);
    assert_eq!(card.take(&block, true, NOW), Token::Accepted);
    assert_eq!(card.state(NOW), State::Rcv);
    assert_eq!(card.take(&block, true, NOW), Token::Accepted);
    assert_eq!((card.state(NOW), card.take(&block, true, NOW)), (State::Prg, Token::Nothing));
}

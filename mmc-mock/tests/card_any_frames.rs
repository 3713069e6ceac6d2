//! Any sequence of any frames leaves the card in a legal state, in bounded time, and changes storage only where a
//! write or an erase was accepted.

use mmc_mock::card::{Bits, Card, Phase, SdCard, SdConfig, Sent, State, Token, Version};
use mmc_mock::fault::What;
use mmc_mock::timing::Profile;
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

/// Small, so that addresses at random meet the end and each other.
const SECTORS: u64 = 256;

#[derive(Clone, Debug)]
enum Do {
    Command(u8, u32),
    /// The argument with the card's own address in its upper half.
    Mine(u8),
    Send(usize),
    SendMany(usize),
    Take(usize, u8, bool),
    TakeMany(usize, u8),
    Wait(u64),
    Bus(u32, u8),
    Power(bool),
    Present(bool),
}

fn step() -> impl Strategy<Value = Do> {
    let data_commands = prop::sample::select(vec![6_u8, 12, 16, 17, 18, 23, 24, 25, 32, 33, 38, 41, 51]);
    let args = prop_oneof![
        3 => 0..300_u32,
        2 => (0..300_u32).prop_map(|s| s * 512),
        1 => prop::sample::select(vec![0x1aa, 0x40ff_8000, 0x80ff_fff1, u32::MAX]),
        1 => any::<u32>(),
    ];
    prop_oneof![
        8 => (data_commands, args.clone()).prop_map(|(i, a)| Do::Command(i, a)),
        2 => (any::<u8>(), args).prop_map(|(i, a)| Do::Command(i, a)),
        4 => prop::sample::select(vec![3_u8, 7, 9, 13, 55]).prop_map(Do::Mine),
        1 => (0..64_u8).prop_map(Do::Mine),
        2 => prop::sample::select(vec![512_usize, 0, 8, 64, 600]).prop_map(Do::Send),
        2 => (0..6000_usize).prop_map(Do::SendMany),
        4 => (prop::sample::select(vec![512_usize, 0, 511]), any::<u8>(), prop::bool::weighted(0.9))
            .prop_map(|(n, b, ok)| Do::Take(n, b, ok)),
        3 => (0..6000_usize, any::<u8>()).prop_map(|(n, b)| Do::TakeMany(n, b)),
        4 => (0..300_000_000_u64).prop_map(Do::Wait),
        1 => (prop::sample::select(vec![0_u32, 400_000, 25_000_000]), prop::sample::select(vec![1_u8, 4]))
            .prop_map(|(hz, lines)| Do::Bus(hz, lines)),
        1 => prop::bool::weighted(0.8).prop_map(Do::Power),
        1 => prop::bool::weighted(0.8).prop_map(Do::Present),
    ]
}

fn fault() -> impl Strategy<Value = (u64, What)> {
    let what = prop_oneof![
        Just(What::NoAnswer),
        Just(What::CommandCrc),
        Just(What::ResponseCrc),
        any::<u32>().prop_map(What::Status),
        (0..6_u32).prop_map(What::BlockCrc),
        (0..6_u32).prop_map(What::BlockMissing),
        Just(What::Stuck),
        Just(What::Removed),
    ];
    (0..80_u64, what)
}

/// What the storage must hold, as an observer on the bus would work it out.
struct Observer {
    contents: Vec<u8>,
    /// Where the next written block goes.
    write_at: Option<usize>,
    erase: (Option<u32>, Option<u32>),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases))]
    #[test]
    fn the_card_stays_sane(
        high in any::<bool>(),
        selected in prop::bool::weighted(0.8),
        steps in prop::collection::vec(step(), 1..120),
        faults in prop::collection::vec(fault(), 0..3),
    ) {
        // The least SDHC card is far larger: only its first sectors, and its last, are looked at.
        let base = SdConfig::new(Profile::cheap(), 3);
        let sectors = if high { 0x1011 * 1024 } else { SECTORS };
        let version = if high { Version::V3 } else { Version::V2 };
        let config = SdConfig { sectors, version, cmd23: high, power_up: Duration::ZERO, ..base };
        let mut card = SdCard::new(config).unwrap();
        let mut now = Instant::ZERO;
        card.power(true, now);
        card.bus(400_000, 1, now);
        if selected {
            let rca = u32::from(card.config().rca) << 16;
            for (index, arg) in [(0, 0), (8, 0x1aa), (55, 0), (41, 0x40ff_8000), (2, 0), (3, 0), (7, rca)] {
                card.command(index, arg, now);
            }
        }
        let first = card.log().count();
        for (at, what) in faults {
            card.faults_mut().push(first + at, what);
        }
        let mut seen = Observer { contents: vec![0; 300 * 512], write_at: None, erase: (None, None) };
        let limit = seen.contents.len().min(sectors as usize * 512);
        seen.contents.truncate(limit);
        let unit = if high { 512 } else { 1 };

        for step in steps {
            let before = card.state(now);
            let command = match step {
                Do::Mine(index) => Some((index, u32::from(card.rca()) << 16)),
                Do::Command(index, arg) => Some((index & 63, arg)),
                _ => None,
            };
            if let Some((index, arg)) = command {
                let answer = card.command(index, arg, now);
                let after = card.state(now);
                match answer.response {
                    Some(Bits::Short(b)) => prop_assert!(b[0] & 0xc0 == 0),
                    Some(Bits::Long(b)) => prop_assert_eq!(b[0], 0x3f),
                    None => prop_assert_eq!(answer.data, None),
                }
                match answer.data {
                    Some(Phase { read: true, .. }) => prop_assert_eq!((before, after), (State::Tran, State::Data)),
                    Some(p) => {
                        prop_assert_eq!((before, after, p.block_len), (State::Tran, State::Rcv, 512));
                        seen.write_at = Some(arg as usize * unit);
                    }
                    // A write whose answer was lost still takes blocks.
                    None if before == State::Tran && after == State::Rcv => {
                        seen.write_at = Some(arg as usize * unit);
                    }
                    None => {}
                }
                match (index, before, after) {
                    (32, State::Tran, _) => seen.erase.0 = Some(arg),
                    (33, State::Tran, _) => seen.erase.1 = Some(arg),
                    (38, State::Tran, State::Tran | State::Prg) => {
                        // An erase that ran made zeros; one that did not left all as it was. Which of the two
                        // is another test's business; here it may touch nothing but its range.
                        if let (Some(from), Some(to)) = seen.erase {
                            let (from, to) = (from as usize * unit / 512, to as usize * unit / 512 + 1);
                            let range = from * 512..(to * 512).min(limit);
                            if range.start < range.end {
                                let mut now_there = vec![0; range.len()];
                                card.storage_mut().read(range.start as u64, &mut now_there).unwrap();
                                if now_there.iter().all(|&b| b == 0) {
                                    seen.contents[range].fill(0);
                                }
                            }
                        }
                    }
                    _ => {}
                }
            }
            let mut store = |at: &mut Option<usize>, bytes: &[u8]| {
                if let Some(start) = *at {
                    let end = (start + bytes.len()).min(limit);
                    if start < end {
                        seen.contents[start..end].copy_from_slice(&bytes[..end - start]);
                    }
                    *at = Some(start + bytes.len());
                }
            };
            match step {
                Do::Command(..) | Do::Mine(_) => {}
                Do::Send(n) => {
                    let mut block = vec![0; n];
                    let sent = card.send(&mut block, now);
                    prop_assert!(before == State::Data || sent == Sent::Nothing);
                }
                Do::SendMany(n) => {
                    let mut blocks = vec![0; n];
                    let sent = card.send_many(&mut blocks, now);
                    prop_assert!(sent <= n && (before == State::Data || sent == 0));
                }
                Do::Take(n, byte, crc_ok) => {
                    let block = vec![byte; n];
                    let token = card.take(&block, crc_ok, now);
                    if token == Token::Accepted {
                        prop_assert!(before == State::Rcv && n == 512 && crc_ok);
                        store(&mut seen.write_at, &block);
                    }
                }
                Do::TakeMany(n, byte) => {
                    let blocks = vec![byte; n];
                    let taken = card.take_many(&blocks, now);
                    prop_assert!(taken <= n && (before == State::Rcv || taken == 0));
                    store(&mut seen.write_at, &blocks[..taken]);
                }
                Do::Wait(ns) => now += Duration::from_nanos(ns),
                Do::Bus(hz, lines) => card.bus(hz, lines, now),
                Do::Power(on) => card.power(on, now),
                Do::Present(present) => card.set_present(present),
            }

            // Legal: in the two states that have a data phase its first block has a time.
            let data = matches!(card.state(now), State::Data | State::Rcv);
            prop_assert!(!data || card.ready(0) != Instant::NEVER);
            // Bounded: busy ends by itself unless a fault holds it; the least writes 256 sectors in two units and a
            // pause, an erase of all 4 GiB-card units takes 5 ms each.
            let busy = card.busy_until(now);
            prop_assert!(busy.is_never() || busy.since(now) < Duration::from_secs(6));
            prop_assert!(card.violations().len() <= 256);
            let mut stored = vec![0; limit];
            card.storage_mut().read(0, &mut stored).unwrap();
            prop_assert!(stored == seen.contents, "after {:?}", step);
        }
    }
}

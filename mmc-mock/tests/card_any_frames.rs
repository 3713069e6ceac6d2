//! Any sequence of any frames leaves the card in a legal state, in bounded time, and changes storage only where a
//! write or an erase was accepted.

use mmc_mock::card::{Bits, Card, Phase, SdCard, SdConfig, Sent, State, Token, Uhs, Version};
use mmc_mock::fault::What;
use mmc_mock::timing::Profile;
use mmc_proto::bus::{Signal, Timing};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

/// Small, so that addresses at random meet the end and each other.
const SECTORS: u64 = 256;

/// Which card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SDSC with write protect groups of half its size.
    Small,
    High,
    /// UHS-I, where the host may have switched it to 1.8 V.
    Uhs,
    /// SDUC.
    Ultra,
}

impl Kind {
    fn config(self) -> SdConfig {
        let base = SdConfig { power_up: Duration::ZERO, ..SdConfig::new(Profile::cheap(), 3) };
        // The least cards of their kinds are far larger than what is looked at.
        let sectors = 0x1011 * 1024;
        match self {
            Self::Small => SdConfig {
                sectors: SECTORS,
                version: Version::V2,
                cmd23: false,
                protect_groups: true,
                ..base
            },
            Self::High => SdConfig { sectors, discard: true, extension: true, ..base },
            Self::Uhs => SdConfig { sectors, speed_class: true, uhs: Some(Uhs::new(5)), ..base },
            Self::Ultra => SdConfig { sectors: 0x40_0001 * 1024, ..base },
        }
    }
}

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
    Signal(Signal, Timing),
    Power(bool),
    Present(bool),
}

fn step() -> impl Strategy<Value = Do> {
    let data_commands = prop::sample::select(vec![
        6_u8, 11, 12, 16, 17, 18, 19, 20, 22, 23, 24, 25, 27, 28, 29, 30, 32, 33, 38, 41, 42, 48, 49, 51, 56,
    ]);
    let args = prop_oneof![
        3 => 0..300_u32,
        2 => (0..300_u32).prop_map(|s| s * 512),
        1 => prop::sample::select(vec![0x1aa, 0x49ff_8000, 0x80ff_fff1, 0x80ff_fff4, 0x8000, u32::MAX]),
        1 => any::<u32>(),
    ];
    let lens = prop::sample::select(vec![512_usize, 512, 512, 0, 1, 16, 511]);
    let timing = prop::sample::select(vec![Timing::Default, Timing::Sdr104, Timing::Ddr50]);
    let signal = prop::sample::select(vec![Signal::V3_3, Signal::V1_8]);
    prop_oneof![
        8 => (data_commands, args.clone()).prop_map(|(i, a)| Do::Command(i, a)),
        2 => (any::<u8>(), args).prop_map(|(i, a)| Do::Command(i, a)),
        4 => prop::sample::select(vec![3_u8, 7, 9, 13, 55]).prop_map(Do::Mine),
        1 => (0..64_u8).prop_map(Do::Mine),
        2 => prop::sample::select(vec![512_usize, 0, 8, 64, 600]).prop_map(Do::Send),
        2 => (0..6000_usize).prop_map(Do::SendMany),
        4 => (lens, prop_oneof![0..9_u8, any::<u8>()], prop::bool::weighted(0.9))
            .prop_map(|(n, b, ok)| Do::Take(n, b, ok)),
        3 => (0..6000_usize, any::<u8>()).prop_map(|(n, b)| Do::TakeMany(n, b)),
        4 => (0..300_000_000_u64).prop_map(Do::Wait),
        1 => (prop::sample::select(vec![0_u32, 400_000, 25_000_000]), prop::sample::select(vec![1_u8, 4]))
            .prop_map(|(hz, lines)| Do::Bus(hz, lines)),
        1 => (signal, timing).prop_map(|(s, t)| Do::Signal(s, t)),
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
    kind: Kind,
    contents: Vec<u8>,
    /// Where the next written block goes, if it is one of CMD24 or CMD25.
    write_at: Option<u64>,
    erase: (Option<u64>, Option<u64>),
    /// CMD55 was answered.
    app: bool,
    /// CMD22 of an SDUC card.
    upper: u64,
    /// The command that opened the last data phase.
    last: u8,
}

impl Observer {
    /// The byte that an argument names; forgets CMD22 as the card does.
    fn address(&mut self, index: u8, app: bool, arg: u32) -> u64 {
        let upper = if index == 13 && !app { self.upper } else { std::mem::take(&mut self.upper) };
        match self.kind {
            Kind::Small => arg.into(),
            Kind::Ultra => (upper << 32 | u64::from(arg)) * 512,
            _ => u64::from(arg) * 512,
        }
    }
    fn store(&mut self, bytes: &[u8]) {
        let Some(start) = self.write_at else { return };
        self.write_at = Some(start + bytes.len() as u64);
        let start = start.min(self.contents.len() as u64) as usize;
        let end = (start + bytes.len()).min(self.contents.len());
        self.contents[start..end].copy_from_slice(&bytes[..end - start]);
    }
    /// After an erase each sector of its range is as it was, or zeros; which, is another test's business.
    fn erased(&mut self, card: &mut SdCard) {
        let (Some(from), Some(to)) = self.erase else { return };
        let first = from / 512;
        let last = (to / 512).min(self.contents.len() as u64 / 512 - 1);
        for sector in first..=last {
            let mut now_there = [0; 512];
            card.storage_mut().read(sector * 512, &mut now_there).unwrap();
            if now_there == [0; 512] {
                self.contents[sector as usize * 512..][..512].fill(0);
            }
        }
    }
}

/// The host's part of the switch to 1.8 V.
fn to_1_8_v(card: &mut SdCard, now: &mut Instant) {
    card.command(11, 0, *now);
    card.bus(0, 1, *now);
    *now += Duration::from_millis(10);
    card.bus(400_000, 1, *now);
    card.signal(Signal::V1_8, Timing::Default, *now);
    *now += Duration::from_millis(1);
    assert!(card.is_1_8_v());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases))]
    #[test]
    fn the_card_stays_sane(
        kind in prop::sample::select(vec![Kind::Small, Kind::High, Kind::Uhs, Kind::Ultra]),
        selected in prop::bool::weighted(0.8),
        switched in any::<bool>(),
        steps in prop::collection::vec(step(), 1..120),
        faults in prop::collection::vec(fault(), 0..3),
    ) {
        let mut card = SdCard::new(kind.config()).unwrap();
        let mut now = Instant::ZERO;
        card.power(true, now);
        card.bus(400_000, 1, now);
        if selected {
            let rca = u32::from(card.config().rca) << 16;
            for (index, arg) in [(0, 0), (8, 0x1aa), (55, 0), (41, 0x49ff_8000), (2, 0), (3, 0), (7, rca)] {
                card.command(index, arg, now);
                if index == 41 && switched && kind == Kind::Uhs {
                    to_1_8_v(&mut card, &mut now);
                }
            }
        }
        let first = card.log().count();
        // A command that an SDUC card did not understand leaves its CMD22 in force: hard to tell from outside.
        for (at, what) in faults.into_iter().filter(|_| kind != Kind::Ultra) {
            card.faults_mut().push(first + at, what);
        }
        let limit = if kind == Kind::Small { SECTORS as usize * 512 } else { 300 * 512 };
        let mut seen = Observer {
            kind,
            contents: vec![0; limit],
            write_at: None,
            erase: (None, None),
            app: false,
            upper: 0,
            last: 0,
        };
        let mut powered = true;

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
                let app = std::mem::replace(&mut seen.app, index == 55 && answer.response.is_some())
                    && [6, 13, 22, 23, 41, 42, 51].contains(&index);
                let at = seen.address(index, app, arg);
                match answer.response {
                    Some(Bits::Short(b)) => prop_assert!(b[0] & 0xc0 == 0),
                    Some(Bits::Long(b)) => prop_assert_eq!(b[0], 0x3f),
                    None => prop_assert_eq!(answer.data, None),
                }
                let opened = matches!(after, State::Data | State::Rcv)
                    && (before == State::Tran || answer.data.is_some());
                // A tuning block ends by itself.
                let before = if seen.last == 19 && before == State::Data { State::Tran } else { before };
                let write = (!app && matches!(index, 24 | 25)).then_some(at);
                match answer.data {
                    Some(Phase { read: true, .. }) => prop_assert_eq!((before, after), (State::Tran, State::Data)),
                    Some(p) => {
                        prop_assert_eq!((before, after), (State::Tran, State::Rcv));
                        prop_assert!(write.is_none() || p.block_len == 512);
                        seen.write_at = write;
                    }
                    // A write whose answer was lost still takes blocks.
                    None if before == State::Tran && after == State::Rcv => {
                        seen.write_at = write;
                    }
                    None => {}
                }
                if opened {
                    seen.last = index;
                }
                let accepted = before == State::Tran && answer.response.is_some() && !app;
                match index {
                    22 if accepted && kind == Kind::Ultra => seen.upper = u64::from(arg & 0x3f),
                    32 if before == State::Tran => seen.erase.0 = Some(at),
                    33 if before == State::Tran => seen.erase.1 = Some(at),
                    38 if before == State::Tran => seen.erased(&mut card),
                    _ => {}
                }
            }
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
                    let locked = card.is_locked();
                    let token = card.take(&block, crc_ok, now);
                    if token == Token::Accepted {
                        prop_assert!(before == State::Rcv && crc_ok);
                        seen.store(&block);
                        // A forced erase of a locked card takes all of it.
                        if locked && seen.last == 42 && block == [8] {
                            seen.contents.fill(0);
                        }
                    }
                }
                Do::TakeMany(n, byte) => {
                    let blocks = vec![byte; n];
                    let taken = card.take_many(&blocks, now);
                    prop_assert!(taken <= n && (before == State::Rcv || taken == 0));
                    seen.store(&blocks[..taken]);
                }
                Do::Wait(ns) => now += Duration::from_nanos(ns),
                Do::Bus(hz, lines) => card.bus(hz, lines, now),
                Do::Signal(signal, timing) => card.signal(signal, timing, now),
                Do::Power(on) => {
                    card.power(on, now);
                    if on != std::mem::replace(&mut powered, on) {
                        (seen.upper, seen.app) = (0, false);
                    }
                }
                Do::Present(present) => {
                    card.set_present(present);
                    (seen.upper, seen.app) = (0, false);
                }
            }

            // Legal: in the two states that have a data phase its first block has a time.
            let data = matches!(card.state(now), State::Data | State::Rcv);
            prop_assert!(!data || card.ready(0) != Instant::NEVER);
            // Bounded: busy ends by itself unless a fault holds it; the least writes 256 sectors in two units and a
            // pause, an erase of all 4 GiB-card units takes 5 ms each, one of the SDUC card as long as it is large.
            let busy = card.busy_until(now);
            let most = if kind == Kind::Ultra { 4000 } else { 6 };
            prop_assert!(busy.is_never() || busy.since(now) < Duration::from_secs(most));
            prop_assert!(card.violations().len() <= 256);
            let mut stored = vec![0; limit];
            card.storage_mut().read(0, &mut stored).unwrap();
            prop_assert!(stored == seen.contents, "after {:?}", step);
        }
    }
}

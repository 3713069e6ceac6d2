//! G1 and G2 for the conversations: whatever a card and a host answer, right, wrong, late or not at all, each
//! machine ends within the time it states, after a bounded number of steps, with a result that says what
//! happened.

mod support;

use mmc_hal::Dir;
use mmc_proto::bus::Width;
use mmc_proto::host::{Capabilities, HostError, Reply};
use mmc_proto::machine::{
    CardTraits, Conductor, Identify, Machine, Step, Transfer, TransferCause, TransferOptions,
};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;
use support::{Card, drive, host_error};

/// What happens to one step.
#[derive(Clone, Debug)]
enum Fate {
    /// As a good card answers.
    Good,
    /// The host reports this.
    Host(u8),
    /// The card's words are these, and the scratch is filled with a byte.
    Noise([u32; 4], Option<u64>, u8),
    /// Single bits of the good answer are flipped.
    Flip(u32),
}

fn fate() -> impl Strategy<Value = (Fate, u8)> {
    let fate = prop_oneof![
        6 => Just(Fate::Good),
        2 => any::<u8>().prop_map(Fate::Host),
        1 => (any::<[u32; 4]>(), proptest::option::of(prop_oneof![Just(8_u64), Just(64), Just(512), any::<u64>()]), any::<u8>())
            .prop_map(|(w, b, f)| Fate::Noise(w, b, f)),
        2 => (0_u32..32).prop_map(Fate::Flip),
    ];
    // How late, in 1/255 of the limit.
    (fate, prop_oneof![3 => Just(0_u8), 1 => any::<u8>()])
}

fn apply(
    fate: &Fate,
    good: Result<Reply, HostError>,
    index: u8,
    scratch: &mut [u8],
) -> Result<Reply, HostError> {
    match *fate {
        Fate::Good => good,
        Fate::Host(n) => Err(host_error(n, index)),
        Fate::Noise(words, bytes, fill) => {
            scratch.fill(fill);
            Ok(Reply { words, bytes: bytes.unwrap_or(good.map_or(0, |r| r.bytes)) })
        }
        Fate::Flip(bit) => good.map(|mut r| {
            r.words[0] ^= 1 << bit;
            r
        }),
    }
}

fn part(limit: Duration, late: u8) -> Duration {
    Duration::from_nanos(limit.as_nanos() / 255 * u64::from(late))
}

/// The fates in order, over and over.
fn next_fate(fates: &[(Fate, u8)], n: &mut usize) -> (Fate, u8) {
    let fate = fates.get(*n % fates.len().max(1)).cloned().unwrap_or((Fate::Good, 0));
    *n += 1;
    fate
}

proptest! {
    #[test]
    fn identification_always_ends_in_time(
        fates in proptest::collection::vec(fate(), 1..60),
        rotate in 0_usize..60,
        v1 in any::<bool>(),
        fast in any::<bool>(),
        ocr in prop_oneof![3 => Just(0x0030_0000_u32), 1 => any::<u32>()],
    ) {
        let mut card = if v1 { Card::sdsc_v1() } else { Card::sdhc() };
        let mut caps = Capabilities::new();
        caps.ocr = ocr;
        if fast {
            caps.max_hz = 52_000_000;
            caps.width = Width::Eight;
        }
        let mut n = rotate;
        let run = drive(Identify::new(&caps), |step, scratch| {
            let (fate, late) = next_fate(&fates, &mut n);
            match step {
                Step::Do(a) => {
                    let good = card.answer(&a.command, scratch);
                    (apply(&fate, good, a.command.index, scratch), part(a.limit, late))
                }
                _ => {
                    let limit = Conductor::<Identify, [u8; 512]>::BUS_LIMIT;
                    (apply(&fate, Ok(Reply::default()), 255, scratch), part(limit, late))
                }
            }
        });
        prop_assert!(run.took <= Identify::LIMIT + Duration::from_secs(1), "took {}", run.took);
        prop_assert!(run.steps < 2_000, "{} steps", run.steps);
        match run.out {
            Ok(id) => {
                if let Some(sd) = id.sd() {
                    prop_assert!(sd.csd.check(mmc_proto::register::CrcPolicy::Host).is_ok());
                    prop_assert_eq!(id.traits.blocks, sd.csd.blocks());
                }
                prop_assert!(id.traits.rca != 0 && id.bus.hz <= caps.max_hz);
                prop_assert!(id.bus.width <= caps.width);
            }
            Err(e) => prop_assert!(!e.to_string().is_empty()),
        }
    }

    #[test]
    fn transfers_always_end_in_time_and_never_lie(
        fates in proptest::collection::vec(fate(), 1..12),
        write in any::<bool>(),
        cmd23 in any::<bool>(),
        blocks in prop_oneof![Just(1_u32), 2_u32..2048, any::<u32>()],
        lba in prop_oneof![0_u64..100_000, any::<u64>()],
        programming in 0_u32..20,
    ) {
        let traits = CardTraits {
            rca: 7,
            blocks: 1 << 24,
            byte_addressed: lba & 1 == 0,
            cmd23,
            read_limit: Duration::from_millis(100),
            write_limit: Duration::from_millis(250),
            block_time: Duration::from_micros(50),
            unit: 1,
        };
        let dir = if write { Dir::Write } else { Dir::Read };
        let mut card = Card { programming, ..Card::sdhc() };
        let t = Transfer::new(&traits, dir, lba, blocks, TransferOptions::default());
        let (mut n, mut moved, mut failed) = (0, None, false);
        let run = drive(t, |step, scratch| {
            let (fate, late) = next_fate(&fates, &mut n);
            let Step::Do(a) = step else { panic!("{step:?}") };
            let good = card.answer(&a.command, scratch);
            let result = apply(&fate, good, a.command.index, scratch);
            match &result {
                Ok(r) if a.command.data.is_some() => moved = Some(r.bytes),
                Ok(_) => {}
                Err(_) => failed = true,
            }
            (result, part(a.limit, late))
        });
        prop_assert!(run.took <= t.limit(), "took {} of {}", run.took, t.limit());
        prop_assert!(run.steps < 200, "{} steps", run.steps);
        match run.out {
            Ok(done) => {
                prop_assert_eq!(done, blocks);
                prop_assert_eq!(moved, Some(u64::from(blocks) * 512));
                prop_assert!(!failed, "an error was swallowed");
            }
            Err(e) => {
                prop_assert!(e.done <= blocks && !e.to_string().is_empty());
                prop_assert!(e.cause != TransferCause::OutOfTurn);
            }
        }
    }

    #[test]
    fn machines_driven_out_of_turn_end_with_an_error(
        calls in proptest::collection::vec((any::<bool>(), any::<u8>(), any::<[u32; 4]>(), any::<u32>(), 0_usize..600), 0..200),
    ) {
        let traits = CardTraits {
            rca: 7, blocks: 1 << 20, byte_addressed: false, cmd23: true,
            read_limit: Duration::MAX, write_limit: Duration::MAX, block_time: Duration::MAX, unit: 1,
        };
        let mut identify = Identify::new(&Capabilities::new());
        let mut transfer = Transfer::new(&traits, Dir::Write, 0, 9, TransferOptions::default());
        let mut scratch = [0x5a_u8; 600];
        let mut now = Instant::ZERO;
        for (some, n, words, ms, len) in calls {
            let last = some.then(|| if n & 1 == 0 { Err(host_error(n, n)) } else { Ok(Reply { words, bytes: n.into() }) });
            now += Duration::from_millis(ms.into());
            let _ = identify.next(last, &mut scratch[..len], now);
            let _ = transfer.next(last, &mut scratch[..len], now);
            let _ = transfer.limit();
        }
    }
}

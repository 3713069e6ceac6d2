//! Erasing: the sequence, its errors, its limit.

mod support;

use mmc_proto::host::{Cause, HostError, Phase, Reply};
use mmc_proto::machine::{After, CardTraits, Erase, Step, TalkError, TransferCause};
use mmc_proto::register::{Ssr, SsrInfo};
use mmc_proto::status::CardStatus;
use mmc_proto::timing::EraseKind;
use mmc_time::Duration;
use proptest::prelude::*;
use support::{Card, Run, TRAN, drive, host_error};

const CARD: CardTraits = CardTraits {
    rca: 0x1234,
    blocks: 1 << 24,
    byte_addressed: false,
    cmd23: true,
    read_limit: Duration::from_millis(100),
    write_limit: Duration::from_millis(250),
    block_time: Duration::from_micros(50),
    unit: 1,
};

fn ssr() -> Ssr {
    SsrInfo { au_size_code: 9, erase_size: 15, erase_timeout_s: 1, discard_support: 1, ..SsrInfo::default() }
        .emit()
}

fn run(
    erase: Erase,
    card: &mut Card,
    mut fault: impl FnMut(u8) -> Option<Result<Reply, HostError>>,
) -> Run<Result<u64, TalkError>> {
    drive(erase, |step, scratch| {
        let Step::Do(a) = step else { panic!("an erase only sends commands: {step:?}") };
        let good = card.answer(&a.command, scratch);
        (fault(a.command.index).unwrap_or(good), Duration::from_micros(100))
    })
}

#[test]
fn the_range_is_inclusive_and_in_the_cards_own_addresses() {
    let bytes = CardTraits { byte_addressed: true, blocks: 4_194_304, ..CARD };
    for (card, kind, expected) in [
        (CARD, EraseKind::Erase, "CMD32:8 CMD33:17 CMD38:0 CMD13:12340000"),
        (CARD, EraseKind::Discard, "CMD32:8 CMD33:17 CMD38:1 CMD13:12340000"),
        (bytes, EraseKind::Erase, "CMD32:1000 CMD33:2e00 CMD38:0 CMD13:12340000"),
    ] {
        let mut sd = Card::sdhc();
        assert_eq!(run(Erase::new(&card, Some(&ssr()), kind, 8, 16), &mut sd, |_| None).out, Ok(16));
        assert_eq!(sd.log.join(" "), expected);
    }
}

#[test]
fn bad_ranges_are_refused_before_anything_is_sent() {
    let bytes = CardTraits { byte_addressed: true, ..CARD };
    for (card, lba, blocks) in
        [(CARD, 0, 0), (CARD, 1 << 24, 1), (CARD, 1, 1 << 24), (CARD, u64::MAX, 2), (bytes, (1 << 23) - 1, 2)]
    {
        let mut sd = Card::sdhc();
        let error =
            run(Erase::new(&card, None, EraseKind::Erase, lba, blocks), &mut sd, |_| None).out.unwrap_err();
        assert!(sd.log.is_empty());
        assert_eq!((error.phase, error.after), (None, After::Untouched));
    }
}

#[test]
fn a_card_that_erases_is_asked_until_it_is_ready_or_its_time_is_up() {
    let mut sd = Card { programming: 9, ..Card::sdhc() };
    let erase = Erase::new(&CARD, Some(&ssr()), EraseKind::Erase, 0, 8192);
    assert_eq!(run(erase, &mut sd, |_| None).out, Ok(8192));
    let mut sd = Card { programming: u32::MAX, ..Card::sdhc() };
    let r = run(erase, &mut sd, |_| None);
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.phase), (TransferCause::NotReady, Some("Ready")));
    assert!(error.needs_reset() && r.took <= erase.limit(), "{}", r.took);
}

#[test]
fn what_the_card_says_of_the_erase_is_kept() {
    for (bit, at, phase, retry) in [
        (CardStatus::ERASE_PARAM, 33, "Range", false),
        (CardStatus::OUT_OF_RANGE, 38, "Erase", false),
        (CardStatus::ERASE_SEQ_ERROR, 38, "Erase", true),
        (CardStatus::WP_ERASE_SKIP, 13, "Ready", false),
        (CardStatus::ERASE_RESET, 13, "Ready", true),
    ] {
        let mut first = true;
        let erase = Erase::new(&CARD, Some(&ssr()), EraseKind::Erase, 0, 8);
        let error = run(erase, &mut Card::sdhc(), |index| {
            let hit = index == at && std::mem::take(&mut first);
            hit.then_some(Ok(Reply { words: [TRAN | bit.bits(), 0, 0, 0], bytes: 0 }))
        })
        .out
        .unwrap_err();
        assert_eq!((error.cause, error.phase, error.after), (TransferCause::Card, Some(phase), After::Ready));
        assert_eq!(error.status.unwrap().bits(), TRAN | bit.bits());
        assert_eq!(error.is_retryable(), retry, "{bit}");
    }
}

#[test]
fn the_first_error_stays_and_a_card_that_left_is_gone() {
    let crc = HostError { cause: Cause::Crc, phase: Phase::Command, index: 38, r1: None };
    let gone = HostError { cause: Cause::NoCard, phase: Phase::Command, index: 13, r1: None };
    let erase = Erase::new(&CARD, Some(&ssr()), EraseKind::Erase, 0, 8);
    let error = run(erase, &mut Card::sdhc(), |index| match index {
        38 => Some(Err(crc)),
        13 => Some(Err(gone)),
        _ => None,
    })
    .out
    .unwrap_err();
    assert_eq!(error.cause, TransferCause::Host(crc));
    assert!(error.media_gone());
}

proptest! {
    #[test]
    fn an_erase_always_ends_in_time_and_never_lies(
        fates in proptest::collection::vec((0_u8..4, any::<u8>(), any::<u32>(), any::<u8>()), 0..20),
        lba in prop_oneof![0_u64..10_000, any::<u64>()],
        blocks in prop_oneof![1_u64..100_000, any::<u64>()],
        stated: bool,
        programming in 0_u32..20,
    ) {
        let ssr = ssr();
        let erase = Erase::new(&CARD, stated.then_some(&ssr), EraseKind::Erase, lba, blocks);
        let mut card = Card { programming, ..Card::sdhc() };
        let (mut n, mut failed) = (0, false);
        let run = drive(erase, |step, scratch| {
            let Step::Do(a) = step else { panic!("{step:?}") };
            let good = card.answer(&a.command, scratch);
            let (fate, error, word, late) = fates.get(n).copied().unwrap_or((0, 0, 0, 0));
            n += 1;
            let result = match fate {
                0 | 1 => good,
                2 => Err(host_error(error, a.command.index)),
                _ => Ok(Reply { words: [word, 0, 0, 0], bytes: 0 }),
            };
            failed |= result.is_err();
            (result, Duration::from_nanos(a.limit.as_nanos() / 255 * u64::from(late)))
        });
        prop_assert!(run.took <= erase.limit(), "{} of {}", run.took, erase.limit());
        match run.out {
            Ok(done) => prop_assert!(done == blocks && !failed),
            Err(e) => prop_assert!(e.cause != TransferCause::OutOfTurn && !e.to_string().is_empty()),
        }
    }
}

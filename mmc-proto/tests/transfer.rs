//! Transfers: what goes over the bus, which error is reported, and what the card is found to be afterwards.

mod support;

use mmc_hal::Dir;
use mmc_proto::command::{Addressing, Gate, Stop};
use mmc_proto::host::{Capabilities, Cause, HostError, Phase, Reply};
use mmc_proto::machine::{
    After, CardTraits, Machine, Step, Transfer, TransferCause, TransferError, TransferOptions, TransferPhase,
};
use mmc_proto::status::CardStatus;
use mmc_time::{Duration, Instant};
use support::{Card, PRG, Run, TRAN, drive};

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

fn transfer(card: &CardTraits, dir: Dir, lba: u64, blocks: u32) -> Transfer {
    Transfer::new(card, dir, lba, blocks, TransferOptions::default())
}

/// Runs `t`; `fault` may answer instead of the card.
fn run(
    t: Transfer,
    card: &mut Card,
    mut fault: impl FnMut(u8) -> Option<Result<Reply, HostError>>,
) -> Run<Result<u32, TransferError>> {
    drive(t, |step, scratch| {
        let Step::Do(a) = step else { panic!("a transfer only sends commands") };
        let good = card.answer(&a.command, scratch);
        (fault(a.command.index).unwrap_or(good), Duration::from_micros(100).min(a.limit))
    })
}

fn host(cause: Cause, phase: Phase, index: u8) -> HostError {
    HostError { cause, phase, index, r1: None }
}

#[test]
fn the_commands_of_each_kind_of_transfer() {
    let manual = CardTraits { cmd23: false, ..CARD };
    let bytes = CardTraits { byte_addressed: true, blocks: 4_194_304, ..manual };
    let open = TransferOptions { open_ended: true };
    let auto = TransferOptions::default();
    for (card, dir, blocks, options, expected) in [
        (CARD, Dir::Read, 1, auto, "CMD17:8"),
        (CARD, Dir::Write, 1, auto, "CMD24:8 CMD13:12340000"),
        (CARD, Dir::Read, 4, auto, "CMD23:4 CMD18:8"),
        (CARD, Dir::Write, 4, auto, "CMD23:4 CMD25:8 CMD13:12340000"),
        (CARD, Dir::Write, 4, open, "CMD25:8 CMD12:0 CMD13:12340000"),
        (manual, Dir::Read, 4, auto, "CMD18:8 CMD12:0"),
        (bytes, Dir::Write, 4, auto, "CMD25:1000 CMD12:0 CMD13:12340000"),
    ] {
        let mut sd = Card::sdhc();
        let t = Transfer::new(&card, dir, 8, blocks, options);
        assert_eq!(run(t, &mut sd, |_| None).out, Ok(blocks));
        assert_eq!(sd.log.join(" "), expected);
    }
}

#[test]
fn the_shape_of_the_commands_is_what_a_host_needs() {
    let mut stops = Vec::new();
    drive(transfer(&CardTraits { cmd23: false, ..CARD }, Dir::Write, 0, 3), |step, scratch| {
        let Step::Do(a) = step else { panic!("{step:?}") };
        match a.command.index {
            12 => assert!(a.command.gate == Gate::Now && !a.command.busy),
            13 => assert!(a.command.gate == Gate::Idle, "the host holds it until DAT0 is free"),
            _ => stops.push(a.command.data.unwrap().stop),
        }
        (Card::sdhc().answer(&a.command, scratch), Duration::ZERO)
    })
    .out
    .unwrap();
    assert_eq!(stops, [Stop::Manual]);
}

#[test]
fn bad_arguments_are_refused_before_anything_is_sent() {
    let bytes = CardTraits { byte_addressed: true, blocks: 1 << 24, ..CARD };
    for (card, lba, blocks) in [
        (CARD, 0, 0),
        (CARD, 1 << 24, 1),
        (CARD, (1 << 24) - 3, 4),
        (CARD, u64::MAX, 2),
        (bytes, (1 << 23) - 1, 2),
        (CardTraits { blocks: u64::MAX, ..CARD }, 1 << 38, 1),
        (CardTraits { unit: 8, ..CARD }, 8, 7),
        (CardTraits { unit: 8, ..CARD }, 4, 8),
    ] {
        let mut sd = Card::sdhc();
        let error = run(transfer(&card, Dir::Read, lba, blocks), &mut sd, |_| None).out.unwrap_err();
        assert!(sd.log.is_empty(), "{:?}", sd.log);
        assert_eq!((error.phase, error.after, error.done), (TransferPhase::Check, After::Untouched, 0));
        assert!(!error.is_retryable() && !error.needs_reset());
    }
    let last = transfer(&bytes, Dir::Read, (1 << 23) - 1, 1);
    assert_eq!(run(last, &mut Card::sdhc(), |_| None).out, Ok(1), "the last sector a byte address can name");
}

#[test]
fn a_card_that_programs_is_asked_until_it_is_ready() {
    let mut sd = Card { programming: 9, ..Card::sdhc() };
    let r = run(transfer(&CARD, Dir::Write, 0, 2), &mut sd, |_| None);
    assert_eq!(r.out, Ok(2));
    assert_eq!(sd.log.len(), 2 + 10);
    assert!(r.took > Duration::from_millis(1 + 2 + 4 + 8 + 16 * 5), "the pauses grow: {}", r.took);
}

#[test]
fn a_card_that_never_gets_ready_ends_within_the_limit_and_needs_a_reset() {
    let mut sd = Card { programming: u32::MAX, ..Card::sdhc() };
    let t = transfer(&CARD, Dir::Write, 0, 2);
    let r = run(t, &mut sd, |_| None);
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.phase), (TransferCause::NotReady, TransferPhase::Ready));
    assert!(error.needs_reset() && !error.is_retryable());
    assert_eq!(error.status.unwrap().bits(), PRG);
    assert!(r.took <= t.limit(), "{} > {}", r.took, t.limit());
}

#[test]
fn an_error_in_the_data_is_cleaned_up_and_stays_the_first_error() {
    for cmd23 in [true, false] {
        let card = CardTraits { cmd23, ..CARD };
        for dir in [Dir::Read, Dir::Write] {
            let mut sd = Card { programming: 2, ..Card::sdhc() };
            let first = host(Cause::Crc, Phase::Data, 18);
            let r = run(transfer(&card, dir, 0, 8), &mut sd, |index| match index {
                18 | 25 => Some(Err(first)),
                // The cleaning up has troubles of its own.
                12 => Some(Err(host(Cause::Timeout, Phase::Command, 12))),
                _ => None,
            });
            let error = r.out.unwrap_err();
            assert_eq!(error.cause, TransferCause::Host(first));
            assert_eq!((error.phase, error.after), (TransferPhase::Data, After::Ready));
            assert!(error.is_retryable() && !error.needs_reset());
            let data = sd.log.iter().position(|l| l.starts_with("CMD18") || l.starts_with("CMD25")).unwrap();
            assert_eq!(sd.log[data + 1], "CMD12:0");
            assert!(sd.log[data + 2..].iter().all(|l| l == "CMD13:12340000"), "{:?}", sd.log);
        }
    }
}

#[test]
fn a_failed_stop_never_turns_into_a_success() {
    let card = CardTraits { cmd23: false, ..CARD };
    let first = host(Cause::Timeout, Phase::Command, 12);
    let r =
        run(transfer(&card, Dir::Read, 0, 8), &mut Card::sdhc(), |index| (index == 12).then_some(Err(first)));
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.phase), (TransferCause::Host(first), TransferPhase::Stop));
    assert_eq!(error.after, After::Ready);
}

#[test]
fn error_bits_of_the_card_are_kept_verbatim() {
    for (bit, retry) in [
        (CardStatus::WP_VIOLATION, false),
        (CardStatus::ADDRESS_ERROR, false),
        (CardStatus::BLOCK_LEN_ERROR, false),
        (CardStatus::CARD_ECC_FAILED, true),
        (CardStatus::CC_ERROR, true),
        (CardStatus::ERROR, true),
        (CardStatus::OUT_OF_RANGE, false),
    ] {
        let mut first = true;
        let r = run(transfer(&CARD, Dir::Write, 0, 8), &mut Card::sdhc(), |index| {
            let hit = index == 13 && std::mem::take(&mut first);
            hit.then_some(Ok(Reply { words: [TRAN | bit.bits(), 0, 0, 0], bytes: 0 }))
        });
        let error = r.out.unwrap_err();
        assert_eq!((error.cause, error.phase), (TransferCause::Card, TransferPhase::Ready), "{bit}");
        assert_eq!(error.status.unwrap().bits(), TRAN | bit.bits());
        assert_eq!(error.is_retryable(), retry, "{bit}");
        assert_eq!(error.after, After::Ready);
    }
}

#[test]
fn reading_ahead_over_the_end_is_an_error_only_with_a_count() {
    let out_of_range = |at: u8| {
        move |index: u8| {
            let word = TRAN | CardStatus::OUT_OF_RANGE.bits();
            let bytes = if index == 18 { 8 * 512 } else { 0 };
            (index == at).then_some(Ok(Reply { words: [word, 0, 0, 0], bytes }))
        }
    };
    let open = CardTraits { cmd23: false, ..CARD };
    let end = open.blocks - 8;
    let stop = run(transfer(&open, Dir::Read, end, 8), &mut Card::sdhc(), out_of_range(12));
    assert_eq!(stop.out, Ok(8), "CMD12 of an open-ended read");
    let counted = run(transfer(&CARD, Dir::Read, end, 8), &mut Card::sdhc(), out_of_range(18));
    assert_eq!(counted.out.unwrap_err().cause, TransferCause::Card);
    let write = run(transfer(&open, Dir::Write, end, 8), &mut Card::sdhc(), out_of_range(12));
    assert_eq!(write.out.unwrap_err().cause, TransferCause::Card);
}

#[test]
fn a_short_reply_is_no_success() {
    let short = Reply { words: [TRAN, 0, 0, 0], bytes: 3 * 512 + 17 };
    let r = run(transfer(&CARD, Dir::Read, 0, 8), &mut Card::sdhc(), |i| (i == 18).then_some(Ok(short)));
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.done), (TransferCause::Short(3 * 512 + 17), 3));
}

#[test]
fn a_card_that_left_is_gone_and_nothing_more_is_sent() {
    let mut sd = Card::sdhc();
    let gone = host(Cause::NoCard, Phase::Data, 25);
    let r = run(transfer(&CARD, Dir::Write, 0, 8), &mut sd, |i| (i == 25).then_some(Err(gone)));
    let error = r.out.unwrap_err();
    assert!(error.media_gone() && !error.needs_reset() && !error.is_retryable());
    assert_eq!(sd.log.len(), 2);
    // And one that leaves while we clean up after something else keeps the first error.
    let r = run(transfer(&CARD, Dir::Write, 0, 8), &mut Card::sdhc(), |i| match i {
        25 => Some(Err(host(Cause::Crc, Phase::Data, 25))),
        12 => Some(Err(host(Cause::NoCard, Phase::Submit, 12))),
        _ => None,
    });
    let error = r.out.unwrap_err();
    assert_eq!(error.cause, TransferCause::Host(host(Cause::Crc, Phase::Data, 25)));
    assert!(error.media_gone());
}

#[test]
fn a_card_still_sending_is_stopped() {
    // One block, its response was damaged: CMD13 finds the card in the data state.
    let mut states = vec![TRAN, 0x0b00].into_iter().rev();
    let mut sd = Card::sdhc();
    let r = run(transfer(&CARD, Dir::Read, 0, 1), &mut sd, |i| match i {
        17 => Some(Err(host(Cause::Crc, Phase::Command, 17))),
        13 => Some(Ok(Reply { words: [states.next().unwrap_or(TRAN), 0, 0, 0], bytes: 0 })),
        _ => None,
    });
    assert_eq!(r.out.unwrap_err().after, After::Ready);
    assert_eq!(sd.log.join(" "), "CMD17:0 CMD13:12340000 CMD12:0 CMD13:12340000");
}

#[test]
fn sduc_is_told_the_upper_address_bits_before_each_data_command() {
    let uc = CardTraits { blocks: 1 << 33, ..CARD };
    let manual = CardTraits { cmd23: false, ..uc };
    let far = (3 << 32) / 2 + 7;
    for (card, dir, lba, blocks, expected) in [
        (uc, Dir::Read, 7, 1, "CMD22:0 CMD17:7"),
        (uc, Dir::Write, far, 1, "CMD22:1 CMD24:80000007 CMD13:12340000"),
        (uc, Dir::Read, far, 4, "CMD23:4 CMD22:1 CMD18:80000007"),
        (manual, Dir::Write, far, 4, "CMD22:1 CMD25:80000007 CMD12:0 CMD13:12340000"),
    ] {
        let mut sd = Card::sdhc();
        assert_eq!(run(transfer(&card, dir, lba, blocks), &mut sd, |_| None).out, Ok(blocks));
        assert_eq!(sd.log.join(" "), expected);
    }
    // A sequence that breaks off is dropped by CMD12, which SDUC takes in the transfer state.
    let mut sd = Card::sdhc();
    let r = run(transfer(&uc, Dir::Read, far, 4), &mut sd, |i| {
        (i == 22).then_some(Err(host(Cause::Timeout, Phase::Command, 22)))
    });
    let error = r.out.unwrap_err();
    assert_eq!((error.phase, error.after), (TransferPhase::Address, After::Ready));
    assert_eq!(sd.log.join(" "), "CMD23:4 CMD22:1 CMD12:0 CMD13:12340000");
}

#[test]
fn a_host_that_stops_by_itself_is_let_to() {
    let mut caps = Capabilities::new();
    let open = CardTraits { cmd23: false, ..CARD };
    let stopped = |caps: &Capabilities, card: &CardTraits, r1: u32| {
        let mut sd = Card::sdhc();
        let t = transfer(card, Dir::Write, 8, 4).auto_stop(caps);
        let r =
            run(t, &mut sd, |i| (i == 25).then_some(Ok(Reply { words: [TRAN, r1, 0, 0], bytes: 4 * 512 })));
        (r.out, sd.log.join(" "))
    };
    let good = 0x0d00;
    assert_eq!(stopped(&caps, &open, good), (Ok(4), "CMD25:8 CMD12:0 CMD13:12340000".into()), "it cannot");
    caps.auto_stop = true;
    assert_eq!(stopped(&caps, &CARD, 0), (Ok(4), "CMD23:4 CMD25:8 CMD13:12340000".into()), "counted");
    assert_eq!(stopped(&caps, &open, good), (Ok(4), "CMD25:8 CMD13:12340000".into()));
    let (out, log) = stopped(&caps, &open, good | CardStatus::WP_VIOLATION.bits());
    let error = out.unwrap_err();
    assert_eq!((error.cause, error.phase), (TransferCause::Card, TransferPhase::Stop));
    assert!(error.status.unwrap().contains(CardStatus::WP_VIOLATION) && !error.is_retryable());
    assert_eq!(log, "CMD25:8 CMD13:12340000", "the data phase is over: nothing is left to stop");
    // After an error the host has not stopped: the conversation does.
    let mut sd = Card::sdhc();
    let r = run(transfer(&open, Dir::Read, 8, 4).auto_stop(&caps), &mut sd, |i| {
        (i == 18).then_some(Err(host(Cause::Crc, Phase::Data, 18)))
    });
    assert_eq!(
        (r.out.unwrap_err().after, sd.log.join(" ").as_str()),
        (After::Ready, "CMD18:8 CMD12:0 CMD13:12340000")
    );
}

#[test]
fn a_reliable_write_is_counted_and_flagged_even_for_one_block() {
    for (blocks, expected) in
        [(1, "CMD23:80000001 CMD25:8 CMD13:12340000"), (8, "CMD23:80000008 CMD25:8 CMD13:12340000")]
    {
        let mut sd = Card::sdhc();
        let t = transfer(&CARD, Dir::Write, 8, blocks).reliable();
        assert_eq!(run(t, &mut sd, |_| None).out, Ok(blocks));
        assert_eq!(sd.log.join(" "), expected);
    }
    // Its count is what makes it reliable: a caller's wish for an open end does not count.
    let mut sd = Card::sdhc();
    let open = Transfer::new(&CARD, Dir::Write, 8, 8, TransferOptions { open_ended: true }).reliable();
    assert_eq!(run(open, &mut sd, |_| None).out, Ok(8));
    assert_eq!(sd.log.join(" "), "CMD23:80000008 CMD25:8 CMD13:12340000");
    assert_eq!(
        run(transfer(&CARD, Dir::Write, 0, 65_535).reliable(), &mut sd, |_| None).out,
        Ok(65_535),
        "the most"
    );
    let old = CardTraits { cmd23: false, ..CARD };
    for t in [
        transfer(&CARD, Dir::Read, 8, 8).reliable(),
        transfer(&old, Dir::Write, 8, 8).reliable(),
        transfer(&CARD, Dir::Write, 0, 65_536).reliable(),
    ] {
        let mut sd = Card::sdhc();
        let error = run(t, &mut sd, |_| None).out.unwrap_err();
        assert!(sd.log.is_empty() && matches!(error.cause, TransferCause::Unsupported(_)), "{error}");
    }
}

#[test]
fn a_count_never_reaches_the_bits_that_are_flags_on_emmc() {
    for (blocks, expected) in [
        (65_535, "CMD23:ffff CMD18:0".to_string()),
        (65_536, "CMD18:0 CMD12:0".to_string()),
        (1 << 23, "CMD18:0 CMD12:0".to_string()),
    ] {
        let mut sd = Card::sdhc();
        assert_eq!(run(transfer(&CARD, Dir::Read, 0, blocks), &mut sd, |_| None).out, Ok(blocks));
        assert_eq!(sd.log.join(" "), expected);
    }
}

#[test]
fn native_sectors_of_4_kib_are_read_and_written_whole() {
    let native = CardTraits { unit: 8, ..CARD };
    let mut sd = Card::sdhc();
    assert_eq!(run(transfer(&native, Dir::Write, 16, 8), &mut sd, |_| None).out, Ok(8));
    assert_eq!(sd.log.join(" "), "CMD23:8 CMD25:10 CMD13:12340000");
    let error = run(transfer(&native, Dir::Read, 17, 8), &mut sd, |_| None).out.unwrap_err();
    assert_eq!(error.cause, TransferCause::Unaligned { lba: 17, blocks: 8, unit: 8 });
    assert_eq!(
        error.to_string(),
        "8 blocks at 17 are not whole units of 8 blocks (before the first command)"
    );
}

#[test]
fn a_card_that_refuses_a_data_command_is_heard() {
    let r1 = Some(TRAN | CardStatus::WP_VIOLATION.bits());
    let refused = HostError { cause: Cause::Timeout, phase: Phase::Data, index: 24, r1 };
    let r = run(transfer(&CARD, Dir::Write, 8, 1), &mut Card::sdhc(), |i| (i == 24).then_some(Err(refused)));
    let error = r.out.unwrap_err();
    assert_eq!((error.cause, error.phase), (TransferCause::Card, TransferPhase::Data));
    assert_eq!(error.status.map(|s| s.bits()), r1);
    assert!(!error.is_retryable(), "it will refuse it again");
}

#[test]
fn a_transfer_says_where_it_is() {
    let walk = |open_ended: bool, dir: Dir, bad: Option<u8>, card: &CardTraits| {
        let mut transfer = Transfer::new(card, dir, 0, 4, TransferOptions { open_ended });
        let (mut now, mut last, mut phases) = (Instant::ZERO, None, vec![transfer.phase()]);
        let mut busy = 1;
        loop {
            let step = transfer.next(last.take(), &mut [], now);
            phases.push(transfer.phase());
            match step {
                Step::Do(a) => {
                    let programming = a.command.index == 13 && dir == Dir::Write && busy > 0;
                    busy -= u32::from(programming);
                    let bytes = a.command.data.map_or(0, |d| d.bytes());
                    let reply = Reply { words: [if programming { 0x0e00 } else { 0x0900 }, 0, 0, 0], bytes };
                    let fails = bad == Some(a.command.index);
                    last = Some(if fails {
                        Err(host(Cause::Crc, Phase::Data, a.command.index))
                    } else {
                        Ok(reply)
                    });
                }
                Step::Sleep(time) => now += time,
                Step::Done(_) => break,
                _ => panic!("nothing else"),
            }
        }
        phases.dedup();
        phases
    };
    use TransferPhase::{Address, Data, Ready, Recover, SetCount, Stop};
    let around = |inside: &[TransferPhase]| {
        let inside = inside.iter().copied().map(Some);
        std::iter::once(None).chain(inside).chain([None]).collect::<Vec<_>>()
    };
    let sduc = CardTraits { blocks: 1 << 33, ..CARD };
    assert_eq!(walk(false, Dir::Read, None, &CARD), around(&[SetCount, Data]));
    assert_eq!(walk(true, Dir::Read, None, &CARD), around(&[Data, Stop]));
    assert_eq!(walk(true, Dir::Write, None, &CARD), around(&[Data, Stop, Ready]));
    assert_eq!(walk(false, Dir::Write, None, &sduc), around(&[SetCount, Address, Data, Ready]));
    assert_eq!(walk(false, Dir::Read, Some(18), &CARD), around(&[SetCount, Data, Recover]));
}

#[test]
fn only_what_32_bits_cannot_name_is_addressed_in_two_parts() {
    for (blocks, addressing) in [((1 << 32) - 1, false), (1 << 32, false), ((1 << 32) + 1, true)] {
        let extended = CardTraits { blocks, ..CARD }.addressing() == Addressing::Extended;
        assert_eq!(extended, addressing, "{blocks} blocks");
    }
}

#[test]
fn a_host_that_counts_by_itself_is_told_how_many_in_the_data_command() {
    let mut caps = Capabilities::new();
    caps.auto_count = true;
    for (t, count) in [
        (transfer(&CARD, Dir::Write, 8, 8), 8),
        (transfer(&CARD, Dir::Write, 8, 8).reliable(), 1 << 31 | 8),
        (transfer(&CARD, Dir::Write, 8, 1).reliable(), 1 << 31 | 1),
    ] {
        let t = t.auto_stop(&caps);
        let stop = |c: mmc_proto::command::Command| c.data.map(|d| d.stop);
        assert_eq!(t.first_data().and_then(stop), Some(Stop::Count(count)));
        let mut sd = Card::sdhc();
        assert!(run(t, &mut sd, |_| None).out.is_ok());
        assert_eq!(sd.log.join(" "), "CMD25:8 CMD13:12340000", "no CMD23 of its own");
    }
    let one = transfer(&CARD, Dir::Read, 8, 1).auto_stop(&caps);
    assert_eq!(one.first_data().map(|c| c.index), Some(17), "nothing to count");
}

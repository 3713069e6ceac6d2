//! Data over the wires: what is written is stored, damage is found, nothing waits for ever.

use crate::bench::{Bench, pattern, sd, sd_bus};
use mmc_hal::Dir;
use mmc_mock::card::{Card, SdConfig};
use mmc_mock::spi::{SpiConfig, SpiSd};
use mmc_mock::timing::Profile;
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{Cause, Completion, Host, Operation, Phase, Progress};
use mmc_proto::machine::{After, CardTraits, Erase, TransferCause, TransferOptions};
use mmc_proto::status::CardStatus;
use mmc_proto::timing::EraseKind;
use mmc_spi::Wires;
use mmc_time::Duration;

#[test]
fn blocks_in_any_number_and_any_segments_come_back() {
    for profile in [Profile::ideal(), Profile::slow2018()] {
        let mut b = sd(SdConfig::new(profile, 1), "");
        let card = b.identify().traits;
        for (i, blocks) in [1_usize, 2, 3, 8, 64].into_iter().enumerate() {
            for open_ended in [false, true] {
                let options = TransferOptions { open_ended };
                let lba = 1000 * (i as u64 + 1);
                let data = pattern(blocks * 512, lba + u64::from(open_ended));
                let cuts: Vec<Vec<u8>> = data.chunks(200).map(<[u8]>::to_vec).collect();
                let (written, _) = b.transfer(&card, Dir::Write, lba, &cuts, options);
                assert_eq!(written, Ok(blocks as u32));
                assert!(b.stored(lba, blocks) == data);
                let empty: Vec<Vec<u8>> = data.chunks(333).map(|c| vec![0; c.len()]).collect();
                let (read, back) = b.transfer(&card, Dir::Read, lba, &empty, options);
                assert_eq!(read, Ok(blocks as u32));
                assert!(back == data, "{blocks} blocks");
            }
        }
        assert_eq!(b.violations(), Vec::<String>::new());
    }
}

#[test]
fn an_erase_erases_and_waits_for_the_card() {
    let mut b = sd(SdConfig::new(Profile::slow2018(), 1), "");
    let id = b.identify();
    let card = id.traits;
    b.store(64, &pattern(32 * 512, 5));
    let erase = Erase::new(&card, None, EraseKind::Erase, 64, 32);
    let ((result, _), _) = b.drive(erase, None);
    assert!(result.is_ok(), "{result:?}");
    assert!(b.stored(64, 32).iter().all(|x| *x == b.stored(64, 1)[0]));
    assert!(b.read(&card, 64, 32).is_ok());
    assert_eq!(b.violations(), Vec::<String>::new());
}

#[test]
fn damage_is_found_in_both_directions_and_the_next_transfer_works() {
    let data = pattern(8 * 512, 9);
    for (script, dir, cause) in [
        ("at CMD18: block 3 crc", Dir::Read, Cause::Crc),
        ("at CMD18: block 3 flip 17.3", Dir::Read, Cause::Crc),
        ("at CMD25: block 3 crc", Dir::Write, Cause::Crc),
        ("at CMD18: command-crc", Dir::Read, Cause::Crc),
        ("at CMD25: lost", Dir::Write, Cause::Timeout),
        ("at CMD18: no-answer", Dir::Read, Cause::Timeout),
        ("at CMD25: no-answer", Dir::Write, Cause::Timeout),
        ("at CMD25: block 7 missing", Dir::Write, Cause::NoCrcStatus),
    ] {
        let mut b = sd(SdConfig::new(Profile::a1(), 1), script);
        let card = b.identify().traits;
        b.store(500, &data);
        let (r, _) = b.transfer(&card, dir, 500, std::slice::from_ref(&data), TransferOptions::default());
        if script.contains("flip") && r.is_ok() {
            continue; // The model flips the bit before it makes the CRC: nothing tells so.
        }
        let e = r.unwrap_err();
        assert!(matches!(e.cause, TransferCause::Host(h) if h.cause == cause), "{script}: {e}");
        assert_eq!(e.after, After::Ready, "{script}");
        assert_eq!(b.write(&card, 500, &data), Ok(8), "{script}");
        assert!(b.read(&card, 500, 8).unwrap() == data, "{script}");
        assert_eq!(b.violations(), Vec::<String>::new(), "{script}");
    }
}

#[test]
fn what_the_card_says_of_a_block_reaches_the_caller() {
    // Bits of the status: the card's error correction (21), a general error (19).
    for (script, dir, bit) in [
        ("at CMD17: status 0x80000000", Dir::Read, CardStatus::OUT_OF_RANGE),
        ("at CMD24: status 0x40000000", Dir::Write, CardStatus::ADDRESS_ERROR),
    ] {
        let mut b = sd(SdConfig::new(Profile::a1(), 1), script);
        let card = b.identify().traits;
        let (r, _) = b.transfer(&card, dir, 8, &[pattern(512, 1)], TransferOptions::default());
        let e = r.unwrap_err();
        assert_eq!(e.cause, TransferCause::Card, "{script}: {e}");
        assert!(e.status.unwrap().contains(bit), "{script}: {e:?}");
        assert!(b.read(&card, 8, 1).is_ok(), "{script}");
    }
}

#[test]
fn a_read_behind_the_end_is_told_by_the_cards_own_word() {
    let mut b = sd(SdConfig::new(Profile::a1(), 1), "");
    let mut card = b.identify().traits;
    let end = card.blocks;
    card.blocks += 100; // a liar
    let e = b.read(&card, end + 1, 1).unwrap_err();
    assert_eq!((e.cause, e.after), (TransferCause::Card, After::Ready));
    assert!(e.status.unwrap().intersects(CardStatus::OUT_OF_RANGE | CardStatus::ADDRESS_ERROR));
    assert!(b.read(&card, end - 1, 1).is_ok());
}

#[test]
fn a_card_that_stays_busy_ends_with_the_limit_and_no_poll_is_long() {
    let mut b = sd(SdConfig::new(Profile::a1(), 1), "at CMD24: busy forever");
    let card = b.identify().traits;
    let began = b.spi.clock().now();
    let e = b.write(&card, 8, &pattern(512, 1)).unwrap_err();
    assert_eq!(e.after, After::NotReady);
    assert!(matches!(e.cause, TransferCause::Host(h) if h.cause == Cause::Limit), "{e}");
    let took = b.spi.clock().now().since(began);
    assert!(took < Duration::from_secs(8), "{took}");
    // Only the supply helps.
    let again = b.try_identify();
    assert!(again.is_err() || b.read(&card, 8, 1).is_ok());
}

#[test]
fn each_poll_moves_a_block_at_most() {
    let mut b = sd(SdConfig::new(Profile::slow2018(), 1), "");
    let card = b.identify().traits;
    assert!(card.blocks > 0);
    let command = Command::read_multiple_block(0, 64, Stop::Auto);
    let now = b.spi.clock().now();
    let payload = crate::bench::batch(&[vec![0; 64 * 512]]);
    b.host.submit(Operation::Transfer(command, payload), now + Duration::from_secs(5), now).unwrap();
    let mut most = 0;
    let done = loop {
        let (bytes, now) = (b.spi.bytes(), b.spi.clock().now());
        let progress = b.host.poll(now);
        most = most.max(b.spi.bytes() - bytes);
        match progress {
            Progress::Waiting { until, .. } => b.spi.clock().advance_to(until),
            Progress::Done(done) => break done,
            Progress::Idle => panic!("lost"),
        }
    };
    let Completion { result, .. } = done;
    assert_eq!(result.unwrap().bytes, 64 * 512);
    assert!(most <= 512 + 515, "{most} bytes in one poll");
    println!("at most {most} bytes per poll");
}

#[test]
fn a_card_that_leaves_in_the_middle_is_gone_and_the_next_one_is_new() {
    let mut b = sd(SdConfig::new(Profile::slow2018(), 1), "at CMD25: remove");
    let card = b.identify().traits;
    let before = b.host.slot(b.spi.clock().now());
    let e = b.write(&card, 8, &pattern(4096, 1)).unwrap_err();
    assert!(e.media_gone(), "{e:?}");
    let now = b.spi.clock().now();
    let slot = b.host.slot(now);
    assert_eq!((slot.present, slot.changes), (Some(false), before.changes + 1));
    b.spi.with(|c| {
        c.power(false, now);
        c.power(true, now);
    });
    let refused =
        b.host.submit(Operation::Command(Command::send_status(1)), now + Duration::from_secs(1), now);
    assert_eq!(refused.unwrap_err().error.cause, Cause::NoCard);
}

#[test]
fn an_aborted_transfer_leaves_a_card_that_goes_on() {
    for command in [
        Command::read_multiple_block(64, 64, Stop::Auto),
        Command::write_multiple_block(64, 64, Stop::Manual),
        Command::read_single_block(64),
    ] {
        let mut b = sd(SdConfig::new(Profile::slow2018(), 1), "");
        let card = b.identify().traits;
        for polls in [1, 2, 5] {
            let now = b.spi.clock().now();
            let payload = crate::bench::batch(&[vec![1; 64 * 512]]);
            b.host.submit(Operation::Transfer(command, payload), now + Duration::from_secs(5), now).unwrap();
            for _ in 0..polls {
                let now = b.spi.clock().now();
                if let Progress::Waiting { until, .. } = b.host.poll(now) {
                    b.spi.clock().advance_to(until);
                }
            }
            b.host.abort(b.spi.clock().now());
            if let Progress::Done(done) = b.host.poll(b.spi.clock().now()) {
                let e = done.result.unwrap_err();
                assert_eq!((e.cause, e.phase), (Cause::Aborted, Phase::Data));
            }
            let data = pattern(2048, 4);
            assert_eq!(b.write(&card, 9000, &data), Ok(4), "{command:?} {polls}");
            assert!(b.read(&card, 9000, 4).unwrap() == data);
        }
        assert_eq!(b.violations(), Vec::<String>::new(), "{command:?}");
    }
}

#[test]
fn cards_whose_last_block_or_multi_reads_are_broken_can_be_read_block_by_block() {
    let last = SpiConfig { last_by_single_only: true, ..SpiConfig::default() };
    let none = SpiConfig { no_multi_read: true, ..SpiConfig::default() };
    for wires in [last, none] {
        let mut b = Bench::alone(sd_bus(SdConfig::new(Profile::a1(), 1), "", wires));
        let card = b.identify().traits;
        let lba = card.blocks - 4;
        let data = pattern(2048, 8);
        assert_eq!(b.write(&card, lba, &data), Ok(4));
        let e = b.read(&card, lba, 4).unwrap_err();
        assert_eq!(e.after, After::Ready, "{e:?}");
        for i in 0..4 {
            assert!(b.read(&card, lba + i, 1).unwrap() == data[i as usize * 512..][..512]);
        }
    }
}

/// As QEMU's card does: CMD12 is illegal where there is nothing to stop, the next R1 says so, too, and a command right behind
/// a response is not heard as it is.
#[test]
fn what_is_refused_spoils_nothing_that_comes_after_it() {
    for (illegal_again, deaf_after_response) in [(false, false), (true, false), (false, true), (true, true)] {
        let wires = SpiConfig { illegal_again, deaf_after_response, ..SpiConfig::default() };
        let spi = || sd_bus(SdConfig::new(Profile::ideal(), 1), "", wires);
        refused(Bench::alone(spi()));
        refused(Bench::shared(spi()));
    }
}

fn refused<W: Wires>(mut b: Bench<SpiSd, W>) {
    let card = b.identify().traits;
    let data = pattern(2 * 512, 3);
    // A driver that believes the card is larger.
    let wrong = CardTraits { blocks: card.blocks + 100, ..card };
    for blocks in [1, 2] {
        for dir in [Dir::Read, Dir::Write] {
            let some = [data[..blocks * 512].to_vec()];
            for next in [Dir::Write, Dir::Read] {
                let beyond = b.transfer(&wrong, dir, card.blocks + 8, &some, TransferOptions::default()).0;
                assert_eq!(beyond.unwrap_err().after, After::Ready, "{dir:?} of {blocks}");
                // At the first attempt.
                let (moved, back) = b.transfer(&card, next, 7, &some, TransferOptions::default());
                assert_eq!(moved, Ok(blocks as u32), "{next:?} after {dir:?} of {blocks}");
                assert!(back == some[0] && b.stored(7, blocks) == some[0]);
            }
        }
    }
    // What the card does not know is told to whoever asked, and to nobody else.
    let now = b.spi.clock().now();
    let unknown = Operation::Command(Command::plain(26, 0, Response::Short));
    b.host.submit(unknown, now + Duration::from_secs(1), now).unwrap();
    let done = loop {
        match b.host.poll(b.spi.clock().now()) {
            Progress::Done(done) => break done,
            Progress::Waiting { until, .. } => b.spi.clock().advance_to(until),
            Progress::Idle => panic!("idle without a completion"),
        }
    };
    assert_eq!(done.result.unwrap_err().cause, Cause::Timeout);
    assert!(b.read(&card, 7, 2).unwrap() == data);
}

//! The driver on the register model: identification, data of every size and cut, its economy, and what it does when
//! things go wrong.

mod bench;

use bench::{Bench, MODES, Mode, RING_BYTES, buffers, bytes, cases, filled, pattern};
use mmc_dw_hsdk::GRACE;
use mmc_dw_hsdk::platform::HSDK;
use mmc_hal::{Dir, Payload};
use mmc_mock::card::SdConfig;
use mmc_mock::dw::{Config, Fault};
use mmc_mock::timing::Profile;
use mmc_mock::{Memory, MemoryDma};
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{Cause, Host, Operation, Phase, Returned};
use mmc_proto::machine::{TransferCause, TransferOptions};
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_card_is_identified_and_runs_at_50_mhz_on_four_lines() {
    for mode in MODES {
        let mut b = Bench::new(mode);
        let card = b.identify();
        assert_eq!((card.traits.blocks, card.traits.cmd23), (16_777_216, true));
        assert_eq!(b.host.engine().card_hz(), 50_000_000, "{mode:?}");
        assert!(b.host.engine().card_present());
        assert_eq!(b.card.with(|c| (c.width(), c.is_high_speed())), (4, true));
        b.assert_clean();
    }
}

/// Sizes, and where they are cut into segments.
fn shapes() -> Vec<Vec<usize>> {
    vec![
        vec![512],
        vec![4, 504, 4],
        vec![4096],
        vec![4096; 2],
        vec![4092, 8, 4092],
        vec![512; 9],
        vec![8192 + 4, 4092],
        vec![65_536],
        vec![524_288],
        vec![4096; 256],
        vec![1 << 20],
        // 1 MiB in as many odd pieces as are allowed.
        (0..256).map(|i| if i % 2 == 0 { 4096 - 4 } else { 4096 + 4 }).collect(),
    ]
}

#[test]
fn bytes_go_where_they_belong_in_any_size_and_cut() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        for (i, lens) in shapes().iter().enumerate() {
            for open_ended in [false, true] {
                let len: usize = lens.iter().sum();
                let lba = 1000 + 5000 * i as u64;
                let data = pattern(len, i as u64);
                let options = TransferOptions { open_ended };
                let (r, p) = b.transfer(&card, Dir::Write, lba, filled(&data, lens), options);
                assert_eq!(r, Ok((len / 512) as u32), "{mode:?} {lens:?}");
                assert_eq!(bytes(p.unwrap()), data, "a write leaves the buffers as they were");
                assert!(b.stored(lba, len / 512) == data, "{mode:?} write {lens:?}");
                assert_eq!(b.stored(lba + (len / 512) as u64, 1), [0; 512], "not a byte more");
                let other = pattern(len, 77 + i as u64);
                b.store(lba, &other);
                let (r, p) = b.transfer(&card, Dir::Read, lba, buffers(lens), options);
                assert_eq!(r, Ok((len / 512) as u32));
                assert!(bytes(p.unwrap()) == other, "{mode:?} read {lens:?}");
                b.store(lba, &vec![0; len]);
            }
        }
        assert_eq!(b.memory.regions(), 1, "nothing but the descriptors stays mapped");
        b.assert_clean();
    }
}

#[test]
fn a_payload_longer_than_the_data_keeps_its_rest() {
    let (mut b, _) = Bench::identified(Mode::Interrupts);
    b.store(5, &pattern(512, 1));
    let mut data = vec![0xee; 1024];
    let done =
        b.operate(Operation::Transfer(Command::read_single_block(5), filled(&data, &[508, 516])), SECOND);
    data[..512].copy_from_slice(&pattern(512, 1));
    assert_eq!(done.result.map(|r| r.bytes), Ok(512));
    let Returned::Back(p) = done.payload else { panic!("no payload") };
    assert_eq!(bytes(p), data);
}

proptest! {
    #![proptest_config(cases(24))]
    #[test]
    fn random_cuts_and_places(
        pieces in prop::collection::vec(1_usize..3000, 1..60), lba in 0_u64..16_000_000, seed: u64, polled: bool,
    ) {
        let mode = if polled { Mode::Polled } else { Mode::Interrupts };
        let (mut b, card) = Bench::identified(mode);
        let mut lens: Vec<usize> = pieces.iter().map(|p| p * 4).collect();
        let rest = lens.iter().sum::<usize>() % 512;
        if rest > 0 {
            lens.push(512 - rest);
        }
        let data = pattern(lens.iter().sum(), seed);
        let (r, _) = b.transfer(&card, Dir::Write, lba, filled(&data, &lens), TransferOptions::default());
        prop_assert_eq!(r, Ok((data.len() / 512) as u32));
        lens.reverse();
        prop_assert!(b.read(&card, lba, &lens).unwrap() == data);
        b.assert_clean();
    }
}

#[test]
fn polled_and_interrupt_driven_say_the_same_to_the_card() {
    let mut seen = Vec::new();
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        for k in 0..20 {
            let data = pattern(512 << (k % 6), k);
            b.write(&card, 64 * k, &data).unwrap();
            assert!(b.read(&card, 64 * k, &[data.len()]).unwrap() == data);
        }
        b.assert_clean();
        let hash = b.card.with(|c| c.log().hash());
        seen.push((hash, b.stored(0, 2000)));
        assert_eq!(b.interrupts > 0, mode == Mode::Interrupts);
    }
    assert!(seen[0] == seen[1]);
}

/// What a fault may cost beyond the fault-free time and the limits that caught it.
#[derive(Clone, Copy, Debug)]
struct Expected {
    cause: Cause,
    phase: Phase,
    /// The fault is over by then, the card's cleaning up included.
    within: Duration,
}

fn expect(cause: Cause, phase: Phase, ms: u64) -> Expected {
    Expected { cause, phase, within: Duration::from_millis(ms) }
}

/// Runs a transfer with `fault` armed `skip` commands ahead; checks error and time; then that the next transfer works.
fn suffer(mode: Mode, dir: Dir, blocks: u32, skip: u32, fault: Fault, want: Expected) {
    let (mut b, card) = Bench::identified(mode);
    let data = pattern(blocks as usize * 512, 3);
    b.store(100, &data);
    b.dw.inject_after(skip, fault);
    let began = b.clock.now();
    let (r, p) = b.transfer(&card, dir, 100, filled(&data, &[data.len()]), TransferOptions::default());
    let took = b.clock.now().since(began);
    let what = format!("{mode:?} {dir:?} {blocks} {fault:?} took {took}");
    let e = r.expect_err(&what);
    let TransferCause::Host(host) = e.cause else { panic!("{what}: {e:?}") };
    assert_eq!((host.cause, host.phase), (want.cause, want.phase), "{what}");
    assert!(took <= want.within, "{what}");
    assert_eq!(p.map(|p| p.bytes()), Some(data.len()), "{what}: the buffer is back");
    let data = pattern(8192, 9);
    assert_eq!(b.write(&card, 100, &data), Ok(16), "{what}: the next write");
    assert!(b.read(&card, 100, &[8192]).unwrap() == data, "{what}: the next read");
    assert_eq!(b.memory.regions(), 1, "{what}");
    b.assert_clean();
}

#[test]
fn each_fault_ends_in_time_with_its_own_error_and_the_next_transfer_works() {
    use Dir::{Read, Write};
    for mode in MODES {
        // A single block: the first command is the one with the data.
        let cases = [
            (Read, 1, 0, Fault::CommandLost, expect(Cause::Timeout, Phase::Command, 1)),
            (Read, 1, 0, Fault::ResponseCrc, expect(Cause::Crc, Phase::Command, 1)),
            // Its CRC7 is no longer right either, and comes first.
            (Read, 1, 0, Fault::ResponseIndex, expect(Cause::Crc, Phase::Command, 1)),
            (Read, 1, 0, Fault::ResponseEndBit, expect(Cause::Framing, Phase::Command, 1)),
            (Read, 1, 0, Fault::ReadCrc(0), expect(Cause::Crc, Phase::Data, 1)),
            (Read, 1, 0, Fault::ReadNothing(0), expect(Cause::Timeout, Phase::Data, 350)),
            (Read, 1, 0, Fault::ReadEndBit(0), expect(Cause::Framing, Phase::Data, 1)),
            (Read, 1, 0, Fault::ReadStartBit(0), expect(Cause::Framing, Phase::Data, 350)),
            (Write, 1, 0, Fault::CommandLost, expect(Cause::Timeout, Phase::Command, 1)),
            (Write, 1, 0, Fault::WriteCrc(0), expect(Cause::Crc, Phase::Data, 1)),
            (Write, 1, 0, Fault::WriteNothing(0), expect(Cause::NoCrcStatus, Phase::Data, 1)),
            // Many blocks, after CMD23.
            (Read, 64, 1, Fault::ReadCrc(5), expect(Cause::Crc, Phase::Data, 3)),
            (Read, 64, 1, Fault::ReadNothing(63), expect(Cause::Timeout, Phase::Data, 350)),
            (Write, 64, 1, Fault::WriteCrc(5), expect(Cause::Crc, Phase::Data, 3)),
            (Write, 64, 1, Fault::WriteNothing(60), expect(Cause::NoCrcStatus, Phase::Data, 3)),
            // The CMD23 itself.
            (Read, 64, 0, Fault::CommandLost, expect(Cause::Timeout, Phase::Command, 1)),
            (Write, 64, 0, Fault::ResponseCrc, expect(Cause::Crc, Phase::Command, 1)),
            // A controller that drops the command, or says nothing.
            (Read, 1, 0, Fault::LoseCommand, expect(Cause::Controller, Phase::Command, 1)),
            (Write, 64, 0, Fault::LoseCommand, expect(Cause::Controller, Phase::Command, 1)),
        ];
        for (dir, blocks, skip, fault, want) in cases {
            suffer(mode, dir, blocks, skip, fault, want);
        }
    }
}

#[test]
fn an_open_ended_transfer_that_fails_is_stopped_and_the_next_works() {
    for mode in MODES {
        for (dir, fault) in [
            (Dir::Read, Fault::ReadCrc(5)),
            (Dir::Read, Fault::ReadNothing(5)),
            (Dir::Read, Fault::ResponseCrc),
            (Dir::Write, Fault::WriteCrc(5)),
            (Dir::Write, Fault::WriteNothing(5)),
            (Dir::Write, Fault::ResponseCrc),
        ] {
            let (mut b, card) = Bench::identified(mode);
            b.dw.inject(fault);
            let options = TransferOptions { open_ended: true };
            let (r, p) = b.transfer(&card, dir, 0, buffers(&[32_768]), options);
            assert!(r.is_err(), "{mode:?} {fault:?}");
            assert!(b.seen().contains(&12), "{mode:?} {fault:?}: the card is told to stop");
            let data = pattern(32_768, 2);
            let (r, _) = b.transfer(&card, Dir::Write, 0, filled(&data, &[32_768]), options);
            assert_eq!((r, p.is_some()), (Ok(64), true), "{mode:?} {fault:?}");
            let (r, p) = b.transfer(&card, Dir::Read, 0, buffers(&[32_768]), options);
            assert_eq!(r, Ok(64), "{mode:?} {fault:?}");
            assert!(bytes(p.unwrap()) == data);
            b.assert_clean();
        }
    }
}

#[test]
fn a_controller_that_says_nothing_is_caught_by_the_limit() {
    for mode in MODES {
        for (dir, fault) in [
            (Dir::Read, Fault::SwallowDataOver),
            (Dir::Write, Fault::SwallowDataOver),
            (Dir::Read, Fault::SwallowCommandDone),
            (Dir::Write, Fault::StuckStart),
        ] {
            let (mut b, card) = Bench::identified(mode);
            b.dw.inject(fault);
            let began = b.clock.now();
            let data = pattern(512, 4);
            let (r, p) = b.transfer(&card, dir, 9, filled(&data, &[512]), TransferOptions::default());
            let took = b.clock.now().since(began);
            let limit = card.data_limit(dir, 1) + GRACE + Duration::from_millis(40);
            assert!(took <= limit, "{mode:?} {fault:?} took {took}, limit {limit}");
            let TransferCause::Host(e) = r.unwrap_err().cause else { panic!("not the host's error") };
            assert!(matches!(e.cause, Cause::Limit | Cause::Timeout), "{mode:?} {fault:?} {e}");
            assert!(p.is_some());
            assert_eq!(b.write(&card, 9, &data), Ok(1), "{mode:?} after {fault:?}");
            assert!(b.read(&card, 9, &[512]).unwrap() == data);
            b.assert_clean();
        }
    }
}

#[test]
fn a_card_busy_for_ever_costs_the_limit_and_a_power_cycle_helps() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        b.dw.inject(Fault::Busy(Duration::MAX));
        let began = b.clock.now();
        let (r, _) = b.transfer(&card, Dir::Write, 0, buffers(&[512]), TransferOptions::default());
        let took = b.clock.now().since(began);
        assert!(r.is_err());
        let machine_limit = card.write_limit.saturating_mul(2) + GRACE + SECOND;
        assert!(took <= machine_limit, "{mode:?} took {took}");
        // The bus can still be stopped and started: the update after a reset does not wait for the card.
        let card = b.identify().traits;
        assert_eq!(b.write(&card, 0, &pattern(512, 1)), Ok(1));
        b.assert_clean();
    }
}

#[test]
fn a_held_command_needs_no_poll_while_the_card_is_busy() {
    let (mut b, card) = Bench::identified(Mode::Interrupts);
    b.write(&card, 0, &pattern(512, 1)).unwrap();
    let idle = b.dw.counters();
    b.write(&card, 0, &pattern(512, 1)).unwrap();
    let quick = b.dw.counters();
    b.dw.inject(Fault::Busy(Duration::from_millis(200)));
    let began = b.clock.now();
    b.write(&card, 0, &pattern(512, 2)).unwrap();
    assert!(b.clock.now().since(began) >= Duration::from_millis(200));
    let slow = b.dw.counters();
    let (quick, slow) = (
        quick.reads + quick.writes - idle.reads - idle.writes,
        slow.reads + slow.writes - quick.reads - quick.writes,
    );
    assert!(slow <= quick + 5, "{slow} accesses with 200 ms of busy, {quick} without");
}

#[test]
fn a_card_that_leaves_is_reported_as_gone_and_a_new_one_works() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        b.dw.inject_at(b.clock.now() + Duration::from_millis(2), Fault::Remove);
        let began = b.clock.now();
        let (r, p) = b.transfer(&card, Dir::Read, 0, buffers(&[524_288]), TransferOptions::default());
        let took = b.clock.now().since(began);
        let e = r.unwrap_err();
        assert!(e.media_gone(), "{mode:?} {e:?}");
        assert!(took <= Duration::from_millis(400), "{mode:?} took {took}");
        assert_eq!(p.map(|p| p.bytes()), Some(524_288));
        assert!(!b.host.engine().card_present());
        let e = b.try_identify().unwrap_err();
        assert!(e.media_gone(), "{mode:?} {e:?}");
        b.dw.inject(Fault::Insert);
        b.pass(b.clock.now() + HSDK.card_detect_delay);
        let card = b.identify().traits;
        b.store(7, &pattern(512, 8));
        assert!(b.read(&card, 7, &[512]).unwrap() == pattern(512, 8));
    }
}

#[test]
fn a_bouncing_pin_alone_is_not_a_removal() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        for k in 0..5 {
            let at = b.clock.now() + Duration::from_millis(1 + 2 * k);
            b.dw.inject_at(at, Fault::Pin(k % 2 == 1));
        }
        b.dw.inject_at(b.clock.now() + Duration::from_millis(12), Fault::Pin(true));
        let data = pattern(524_288, 1);
        b.store(0, &data);
        assert!(b.read(&card, 0, &[524_288]).unwrap() == data, "{mode:?}");
    }
}

#[test]
fn a_reset_that_sticks_keeps_the_buffer_until_the_controller_is_well_again() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        b.dw.inject(Fault::StuckReset);
        b.dw.inject(Fault::ReadNothing(0));
        let read = Operation::Transfer(Command::read_single_block(0), buffers(&[512]));
        let began = b.clock.now();
        let done = b.operate(read, Duration::from_millis(100));
        assert!(matches!(done.payload, Returned::Quarantined));
        assert_eq!(done.result.unwrap_err().cause, Cause::Limit, "the first error, not the reset's");
        assert!(b.clock.now().since(began) <= Duration::from_millis(100) + GRACE, "{mode:?}");
        assert!(b.host.reclaim(b.clock.now()).is_none(), "the device may still write");
        let refused = b.command(Command::send_status(card.rca), SECOND);
        assert_eq!(refused.unwrap_err().cause, Cause::Busy);
        b.dw.heal();
        let mut back = None;
        for _ in 0..4 {
            let later = b.clock.now() + Duration::from_millis(1);
            b.pass(later);
            back = back.or_else(|| b.host.reclaim(later));
        }
        assert_eq!(back.map(bytes).map(|b| b.len()), Some(512), "{mode:?}");
        assert_eq!(b.memory.regions(), 1);
        let card = b.identify().traits;
        assert_eq!(b.write(&card, 0, &pattern(512, 1)), Ok(1));
    }
}

#[test]
fn a_memory_that_is_written_late_is_waited_for() {
    for mode in MODES {
        for config in [
            Config { posted: 6, ..Config::hsdk() },
            Config { late_own: 9, ..Config::hsdk() },
            Config { posted: 3, late_own: 3, reset_reads: 5, swr_reads: 4, ..Config::hsdk() },
        ] {
            let mut b = Bench::with(mode, config.clone(), HSDK, SdConfig::new(Profile::ideal(), 1));
            let card = b.identify().traits;
            for k in 0..8 {
                let data = pattern(16_384, k);
                b.write(&card, k * 32, &data).unwrap();
                assert!(b.read(&card, k * 32, &[4096; 4]).unwrap() == data, "{mode:?} {config:?}");
            }
            b.assert_clean();
        }
    }
}

#[test]
fn an_event_that_appears_between_two_accesses_is_not_lost() {
    // The end appears so many accesses late: at every place of the handler and the driver.
    for accesses in 1..24 {
        let (mut b, card) = Bench::identified(Mode::Polled);
        let data = pattern(4096, 1);
        b.store(0, &data);
        b.dw.inject(Fault::Defer { bits: 0xc, accesses });
        assert!(b.read(&card, 0, &[4096]).unwrap() == data, "{accesses}");
        b.assert_clean();
    }
    // With interrupts nobody touches a register while nothing happens; here the looks of the software timer do.
    for accesses in 1..=3 {
        let (mut b, card) = Bench::identified(Mode::Interrupts);
        let data = pattern(512, 1);
        b.store(0, &data);
        b.dw.inject(Fault::Defer { bits: 8, accesses });
        let began = b.clock.now();
        assert!(b.read(&card, 0, &[512]).unwrap() == data, "{accesses}");
        assert!(b.clock.now().since(began) <= Duration::from_millis(350), "{accesses}");
        b.assert_clean();
    }
}

#[test]
fn after_an_abort_in_the_middle_the_next_transfer_still_goes_by_dma() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        let now = b.clock.now();
        let read =
            Operation::Transfer(Command::read_multiple_block(0, 128, Stop::Manual), buffers(&[4096; 16]));
        b.host.submit(read, now + SECOND, now).unwrap();
        b.pass(now + Duration::from_micros(700));
        b.host.abort(b.clock.now());
        let done = loop {
            match b.host.poll(b.clock.now()) {
                mmc_proto::host::Progress::Done(done) => break done,
                mmc_proto::host::Progress::Waiting { until, .. } => b.pass(until),
                mmc_proto::host::Progress::Idle => panic!("no completion"),
            }
        };
        assert_eq!(done.result.unwrap_err().cause, Cause::Aborted);
        let Returned::Back(p) = done.payload else { panic!("{mode:?}: the buffer is kept") };
        assert_eq!(p.bytes(), 65_536);
        b.command(Command { busy: false, ..Command::stop_transmission() }, SECOND).unwrap();
        let before = b.dw.counters().dma_bytes;
        let data = pattern(65_536, 3);
        b.store(0, &data);
        assert!(b.read(&card, 0, &[4096; 16]).unwrap() == data, "{mode:?}");
        assert_eq!(b.dw.counters().dma_bytes - before, 65_536);
        b.assert_clean();
    }
}

#[test]
fn a_bus_error_of_the_dma_is_reported_for_reads_and_writes() {
    for mode in MODES {
        for command in [Command::read_single_block(0), Command::write_block(0)] {
            let (mut b, card) = Bench::identified(mode);
            // A second mapper that hands out an address nobody backs.
            let now = b.clock.now();
            b.host.submit(Operation::Transfer(command, buffers(&[512])), now + SECOND, now).unwrap();
            let stray = b.memory.window(b.ring_bus + 8, 4);
            mmc_hal::Mmio::write32(&stray, 0, 0x4000);
            let done = loop {
                match b.host.poll(b.clock.now()) {
                    mmc_proto::host::Progress::Done(done) => break done,
                    mmc_proto::host::Progress::Waiting { until, .. } => b.pass(until),
                    mmc_proto::host::Progress::Idle => panic!("no completion"),
                }
            };
            let e = done.result.unwrap_err();
            assert_eq!((e.cause, e.phase), (Cause::Dma, Phase::Data), "{mode:?}");
            let took = b.clock.now().since(now);
            assert!(took <= Duration::from_millis(1), "{mode:?} {command:?} took {took}");
            let _ = b.command(Command::stop_transmission(), SECOND);
            assert_eq!(b.write(&card, 0, &pattern(512, 1)), Ok(1), "{mode:?}");
        }
    }
}

/// Q1, Q9, Q10, Q11: late but legal data succeed; silence ends by the software timers, long before a generous limit.
#[test]
fn late_data_succeed_and_silence_does_not_last() {
    for mode in MODES {
        let slow = Profile { rd_access: Duration::from_millis(300), rd_bps: 16_000, ..Profile::ideal() };
        let mut b = Bench::with(mode, Config::hsdk(), HSDK, SdConfig::new(slow, 1));
        b.identify();
        b.store(0, &pattern(65_536, 1));
        let hour = Duration::from_secs(3600);
        let began = b.clock.now();
        let read = Command::read_multiple_block(0, 128, Stop::Manual);
        let done = b.operate(Operation::Transfer(read, buffers(&[65_536])), hour);
        assert!(done.result.is_ok(), "{mode:?} {:?}", done.result);
        assert!(b.clock.now().since(began) > Duration::from_secs(4), "the control: it was slow");
        b.command(Command { busy: false, ..Command::stop_transmission() }, SECOND).unwrap();

        let mut b = Bench::identified(mode).0;
        for (fault, phase, ms) in [
            (Fault::SwallowDataOver, Phase::Data, 3 * 346),
            (Fault::SwallowCommandDone, Phase::Command, 2 * 346),
        ] {
            let began = b.clock.now();
            b.dw.inject(fault);
            let done = b.operate(Operation::Transfer(Command::read_single_block(0), buffers(&[512])), hour);
            let e = done.result.unwrap_err();
            let took = b.clock.now().since(began);
            assert_eq!((e.cause, e.phase), (Cause::Timeout, phase), "{mode:?} {fault:?}");
            assert!(took <= Duration::from_millis(ms + 2), "{mode:?} {fault:?} took {took}");
        }
        let began = b.clock.now();
        b.dw.inject(Fault::SwallowCommandDone);
        let e = b.command(Command::set_blocklen(512), hour).unwrap_err();
        assert_eq!((e.cause, e.phase), (Cause::Timeout, Phase::Command));
        assert!(b.clock.now().since(began) <= Duration::from_millis(22), "{mode:?}");
        b.assert_clean();
    }
}

#[test]
fn what_the_host_cannot_do_is_refused_by_name_and_nothing_starts() {
    let mut b = Bench::new(Mode::Interrupts);
    let status = Command::send_status(1);
    assert!(
        matches!(b.command(status, SECOND).unwrap_err().cause, Cause::Unsupported(m) if m.contains("supply"))
    );
    let on = b.operate(Operation::Power(Power::On), SECOND);
    assert!(on.result.is_ok());
    assert!(
        matches!(b.command(status, SECOND).unwrap_err().cause, Cause::Unsupported(m) if m.contains("clock"))
    );
    let good = BusConfig {
        hz: 400_000,
        width: Width::One,
        timing: Timing::Default,
        signal: Signal::V3_3,
        sample: 0,
    };
    for (bus, word) in [
        (BusConfig { width: Width::Eight, ..good }, "lines"),
        (BusConfig { signal: Signal::V1_8, ..good }, "1.8 V"),
        (BusConfig { hz: 1, ..good }, "ciu / 510"),
    ] {
        let e = b.operate(Operation::Bus(bus), SECOND).result.unwrap_err();
        assert!(matches!(e.cause, Cause::Unsupported(m) if m.contains(word)), "{bus:?} {e}");
        assert_eq!(e.phase, Phase::Submit);
    }
    assert!(b.operate(Operation::Bus(good), SECOND).result.is_ok());
    assert_eq!(b.host.engine().card_hz(), 396_825);
    for (command, len, word) in [
        (Command::data(18, 0, Dir::Read, 510, 2, Stop::Manual), 1020, "multiple of the FIFO's word"),
        (Command::data(18, 0, Dir::Read, 512, 2, Stop::Manual), 1020, "shorter"),
    ] {
        let done = b.operate(Operation::Transfer(command, buffers(&[len])), SECOND);
        let e = done.result.unwrap_err();
        assert!(matches!(e.cause, Cause::Unsupported(m) if m.contains(word)), "{e}");
        assert!(matches!(done.payload, Returned::Back(_)));
    }
    assert_eq!(b.seen(), [], "the card has heard of none of it");
    assert!(b.operate(Operation::Power(Power::Off), SECOND).result.is_ok());
    assert!(
        matches!(b.command(status, SECOND).unwrap_err().cause, Cause::Unsupported(m) if m.contains("supply"))
    );
    b.assert_clean();
}

#[test]
fn limits_follow_from_the_ring() {
    let b = Bench::new(Mode::Polled);
    let caps = b.host.capabilities();
    assert_eq!((RING_BYTES, caps.max_blocks, caps.max_segments), (8192, 2048, 256));
    assert_eq!((caps.max_hz, caps.width, caps.align), (50_000_000, Width::Four, 4));
    assert_eq!(caps.min_hz, 98_040);
}

#[test]
fn time_stands_still_for_nobody() {
    // A late poll (nobody called for a second) finds what has happened and loses nothing.
    let (mut b, _) = Bench::identified(Mode::Polled);
    b.store(3, &pattern(512, 3));
    let now = b.clock.now();
    let read = Operation::Transfer(Command::read_single_block(3), buffers(&[512]));
    b.host.submit(read, now + SECOND, now).unwrap();
    b.pass(Instant::from_nanos(now.as_nanos() + 2_000_000_000));
    let mmc_proto::host::Progress::Done(done) = b.host.poll(b.clock.now()) else { panic!("not done") };
    assert!(done.result.is_ok());
}

/// A card that refuses a data command says why in its answer and sends nothing: the answer is not lost.
#[test]
fn what_a_card_answered_before_no_data_came_is_in_the_error() {
    const OUT_OF_RANGE: u32 = 1 << 31;
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        let beyond = u32::try_from(card.blocks).unwrap() + 5;
        for stop in [Stop::Manual, Stop::Auto] {
            let read = Operation::Transfer(Command::read_multiple_block(beyond, 8, stop), buffers(&[4096]));
            let done = b.operate(read, SECOND);
            let e = done.result.unwrap_err();
            assert_eq!((e.cause, e.phase), (Cause::Timeout, Phase::Data), "{mode:?}");
            assert!(e.r1.is_some_and(|r1| r1 & OUT_OF_RANGE != 0), "{mode:?} {e:?}");
            assert!(matches!(done.payload, Returned::Back(_)));
        }
        // No answer at all: nothing is made up. A wrong one is not believed.
        for fault in [Fault::NoResponse, Fault::ResponseCrc] {
            b.dw.inject(fault);
            let read = Operation::Transfer(Command::read_single_block(1), buffers(&[512]));
            assert_eq!(b.operate(read, SECOND).result.unwrap_err().r1, None, "{mode:?} {fault:?}");
            if fault == Fault::NoResponse {
                // The card has heard it, and sends.
                b.command(Command { busy: false, ..Command::stop_transmission() }, SECOND).unwrap();
            }
        }
        b.assert_clean();
    }
}

/// A written phase that the controller stops by itself ends when the card has stored it.
#[test]
fn an_automatic_stop_waits_for_the_card_to_store() {
    for mode in MODES {
        let slow = SdConfig::new(Profile::slow2018(), 1);
        let mut b = Bench::with(mode, Config::hsdk(), HSDK, slow);
        b.identify();
        let data = pattern(65_536, 4);
        let write = Command::write_multiple_block(512, 128, Stop::Auto);
        let reply = b.operate(Operation::Transfer(write, filled(&data, &[65_536])), SECOND).result.unwrap();
        assert_eq!((reply.bytes, reply.words[1] >> 8 & 1), (65_536, 1), "R1 of CMD12 was: ready for data");
        let now = b.clock.now();
        assert!(
            b.card.with(|c| mmc_mock::card::Card::busy_until(c, now)) <= now,
            "{mode:?}: not busy any more"
        );
        assert!(b.stored(512, 128) == data);
        // The end of CMD12 after that of the data, as on other builds: one interrupt more, no hang.
        b.dw.inject(Fault::Defer { bits: 0x4000, accesses: 2 });
        let read =
            Operation::Transfer(Command::read_multiple_block(512, 128, Stop::Auto), buffers(&[65_536]));
        let done = b.operate(read, SECOND);
        let Returned::Back(p) = done.payload else { panic!("kept") };
        assert!(done.result.is_ok() && bytes(p) == data, "{mode:?}");
        b.assert_clean();
    }
}

/// Starts and ends of segments at every byte, every size class, with what DMA can and cannot have.
#[test]
fn segments_at_every_alignment_and_of_every_size_arrive_whole() {
    for mode in MODES {
        for skew in (0..16).chain([32, 60, 61, 63]) {
            let memory = Memory::new(0x8000_0000, 0xc000_0000);
            let dma = MemoryDma::new(memory.clone(), u32::MAX.into()).skewed(skew);
            let ideal = SdConfig::new(Profile::ideal(), 1);
            let mut b = Bench::build(mode, Config::hsdk(), HSDK, ideal, memory, dma, RING_BYTES);
            let card = b.identify().traits;
            let whole = b.host.engine().transfers();
            assert_eq!(whole.dma > 0, skew % 4 == 0, "DMA where it can, else by hand: {skew} {whole:?}");
            for lens in [
                &[512][..],
                &[4, 8, 500],
                &[1, 511],
                &[4096],
                &[4092, 4],
                &[4100, 8188],
                &[8192, 8191, 1],
                &[2, 4, 8, 16, 32, 64, 128, 256, 2],
                &[65_536, 512],
            ] {
                let data = pattern(lens.iter().sum(), skew);
                let payload = filled(&data, lens);
                let (r, _) = b.transfer(&card, Dir::Write, 64, payload, TransferOptions::default());
                assert_eq!(r, Ok((data.len() / 512) as u32), "{mode:?} {skew} {lens:?}");
                assert!(b.read(&card, 64, lens).unwrap() == data, "{mode:?} {skew} {lens:?}");
            }
            assert_eq!(b.memory.regions(), 1);
            b.assert_clean();
        }
    }
}

/// More segments than the driver maps, memory that ends at the mask, memory above it, 64-bit descriptors: all bytes
/// right, or a refusal that starts nothing.
#[test]
fn masks_and_long_lists_are_kept_or_refused() {
    let bench = |base: u64, top: u64, mask: u64, wide: bool| {
        let memory = Memory::new(base, top);
        let dma = MemoryDma::new(memory.clone(), mask);
        let ideal = SdConfig::new(Profile::ideal(), 1);
        let config = Config { addr64: wide, ..Config::hsdk() };
        let ring = if wide { 2 * RING_BYTES } else { RING_BYTES };
        Bench::build(Mode::Interrupts, config, HSDK, ideal, memory, dma, ring)
    };
    let check = |b: &mut Bench, lens: &[usize], by_dma: bool| {
        let card = b.identify().traits;
        let data = pattern(lens.iter().sum(), 7);
        let before = b.host.engine().transfers();
        let (r, _) = b.transfer(&card, Dir::Write, 64, filled(&data, lens), TransferOptions::default());
        assert_eq!(r, Ok((data.len() / 512) as u32));
        assert!(b.read(&card, 64, lens).unwrap() == data);
        let after = b.host.engine().transfers();
        assert_eq!((after.dma - before.dma, after.pio - before.pio), if by_dma { (2, 0) } else { (0, 2) });
        b.assert_clean();
    };
    // The last byte there is, and the mask one below it.
    check(&mut bench(0xffff_0000, 0x1_0000_0000, 0xffff_ffff, false), &[16_384, 8192], true);
    check(&mut bench(0xffff_c000, 0x1_0000_0000, 0x8000_0000, false), &[4096], false);
    // 64-bit descriptors, memory on both sides of 4 GiB.
    check(&mut bench(0xffff_0000, 0x1_0001_0000, u64::MAX, true), &[16_384, 16_384, 16_384], true);
    // 300 segments of four bytes and a rest: 256 are the most, and the host says so.
    let mut b = bench(0x8000_0000, 0xc000_0000, 0xffff_ffff, false);
    let card = b.identify().traits;
    let lens: Vec<usize> = (0..299).map(|_| 4).chain([340]).collect();
    assert_eq!((lens.len(), lens.iter().sum::<usize>()), (300, 1536));
    assert_eq!(b.host.capabilities().max_segments, 256);
    let read = Command::read_multiple_block(0, 3, Stop::Auto);
    let done = b.operate(Operation::Transfer(read, buffers(&lens)), SECOND);
    assert!(matches!(done.result.unwrap_err().cause, Cause::Unsupported("more segments than max_segments")));
    let Returned::Back(p) = done.payload else { panic!("kept") };
    assert_eq!((p.segments(), p.bytes(), b.memory.regions()), (300, 1536, 1));
    let data = pattern(256 * 8, 3);
    b.store(0, &data);
    assert!(b.read(&card, 0, &[8; 256]).unwrap() == data, "256 are carried");
    b.assert_clean();
}

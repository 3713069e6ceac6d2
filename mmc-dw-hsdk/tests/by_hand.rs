//! What DMA cannot take goes through the FIFO by the processor: every depth and width of it, any cut, any fault;
//! and DMA again afterwards. And descriptors with 64-bit addresses.

mod bench;

use bench::{Bench, MODES, Mode, RING_BYTES, buffers, bytes, cases, filled, pattern};
use mmc_dw_hsdk::platform::HSDK;
use mmc_dw_hsdk::{Platform, Transfers};
use mmc_hal::{Dir, Mmio, Payload};
use mmc_mock::card::SdConfig;
use mmc_mock::dw::{Config, DataWidth, Fault};
use mmc_mock::timing::Profile;
use mmc_proto::command::Command;
use mmc_proto::host::{Cause, Host, HostError, Operation, Progress, Reply};
use mmc_proto::machine::{TransferCause, TransferOptions};
use mmc_time::Duration;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn ideal() -> SdConfig {
    SdConfig::new(Profile::ideal(), 1)
}

/// A board whose DMA reaches no memory at all.
fn without_dma(mode: Mode, config: Config, platform: Platform) -> Bench {
    Bench::with_mask(mode, config, platform, ideal(), 0)
}

#[test]
fn a_board_whose_dma_reaches_no_memory_works_with_every_fifo() {
    let fifo = |fifo_depth, data_width, verid| {
        let config = Config { fifo_depth, data_width, verid, ..Config::hsdk() };
        // Before 2.40a there is no divider register: the board is fed with 50 MHz.
        let config = if verid < 0x5342_240a {
            Config { ciu_hz: 50_000_000, ext_div: [1; 4], ..config }
        } else {
            config
        };
        (
            config,
            Platform { fifo_depth, uhs_reg_ext: HSDK.uhs_reg_ext.filter(|_| verid >= 0x5342_240a), ..HSDK },
        )
    };
    let mut fifos: Vec<_> =
        [16, 32, 64, 128, 256, 1024].map(|d| fifo(d, DataWidth::W32, 0x5342_270a)).to_vec();
    fifos.push(fifo(64, DataWidth::W64, 0x5342_270a));
    fifos.push(fifo(32, DataWidth::W16, 0x5342_270a));
    fifos.push(fifo(32, DataWidth::W32, 0x5342_230a));
    for (config, platform) in fifos {
        for mode in MODES {
            let mut b = without_dma(mode, config.clone(), platform);
            let card = b.identify().traits;
            for (i, lens) in
                [&[512][..], &[4096], &[1, 510, 1], &[3, 0, 1021], &[16_384], &[130, 126, 256, 3, 4093, 512]]
                    .iter()
                    .enumerate()
            {
                for open_ended in [false, true] {
                    let what = format!("{mode:?} {lens:?} {config:?}");
                    let lba = 400 * i as u64;
                    let data = pattern(lens.iter().sum(), i as u64);
                    let options = TransferOptions { open_ended };
                    let (r, p) = b.transfer(&card, Dir::Write, lba, filled(&data, lens), options);
                    assert_eq!(r, Ok((data.len() / 512) as u32), "{what}");
                    assert!(bytes(p.unwrap()) == data, "{what}: a write leaves the buffers as they were");
                    assert!(b.stored(lba, data.len() / 512) == data, "{what}");
                    let other = pattern(data.len(), 77);
                    b.store(lba, &other);
                    let (r, p) = b.transfer(&card, Dir::Read, lba, buffers(lens), options);
                    assert!(r.is_ok() && bytes(p.unwrap()) == other, "{what}");
                }
            }
            // 24 transfers, and the SCR and the switch function of identification.
            let Transfers { dma, pio, .. } = b.host.engine().transfers();
            assert_eq!(dma, 0);
            assert!(pio > 24, "{pio}");
            assert_eq!(b.dw.counters().dma_bytes, 0);
            b.assert_clean();
        }
    }
}

/// Q2, Q32: one transfer by hand is not the end of DMA.
#[test]
fn dma_and_the_processor_take_turns() {
    for mode in MODES {
        for config in [
            Config::hsdk(),
            Config { reset_reads: 30, swr_reads: 20, ..Config::hsdk() },
            Config { posted: 5, late_own: 5, ..Config::hsdk() },
        ] {
            let mut b = Bench::with(mode, config.clone(), HSDK, ideal());
            let card = b.identify().traits;
            let before = b.host.engine().transfers();
            for k in 0..24 {
                // Every third is cut where no word ends.
                let lens = if k % 3 == 2 { vec![1023, 1025] } else { vec![1024, 1024] };
                let data = pattern(2048, k);
                let (r, _) =
                    b.transfer(&card, Dir::Write, 8 * k, filled(&data, &lens), TransferOptions::default());
                assert_eq!(r, Ok(4), "{mode:?} {k} {config:?}");
                assert!(b.read(&card, 8 * k, &lens).unwrap() == data, "{mode:?} {k} {config:?}");
            }
            let after = b.host.engine().transfers();
            assert_eq!((after.dma - before.dma, after.pio - before.pio), (32, 16), "{mode:?}");
            b.assert_clean();
        }
    }
}

/// A data phase whose first descriptor points where there is no memory.
fn stray(b: &mut Bench, command: Command) -> Result<Reply, HostError> {
    let now = b.clock.now();
    let by_dma = b.host.engine().transfers().dma;
    b.host.submit(Operation::Transfer(command, buffers(&[512])), now + SECOND, now).unwrap();
    if b.host.engine().transfers().dma > by_dma {
        b.memory.window(b.ring_bus + 8, 4).write32(0, 0x4000);
    }
    loop {
        match b.host.poll(b.clock.now()) {
            Progress::Done(done) => return done.result,
            Progress::Waiting { until, .. } => b.pass(until),
            Progress::Idle => panic!("no completion"),
        }
    }
}

/// A DMA that fails for good costs three errors, not the card: then the processor does it. One that works again in between
/// keeps its work.
#[test]
fn a_dma_that_fails_three_times_in_a_row_is_not_asked_any_more() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        let data = pattern(2048, 1);
        let fails = |b: &mut Bench, command| {
            assert_eq!(stray(b, command).unwrap_err().cause, Cause::Dma, "{mode:?}");
            let _ = b.command(Command::stop_transmission(), SECOND);
        };
        for _ in 0..2 {
            fails(&mut b, Command::read_single_block(0));
            fails(&mut b, Command::write_block(0));
            let before = b.host.engine().transfers();
            assert_eq!(b.write(&card, 0, &data), Ok(4), "{mode:?}");
            let after = b.host.engine().transfers();
            assert_eq!(
                (after.dma - before.dma, after.pio - before.pio),
                (1, 0),
                "two in a row are not three"
            );
        }
        for _ in 0..3 {
            fails(&mut b, Command::read_single_block(0));
        }
        // Its descriptors would be as wrong as before.
        assert!(stray(&mut b, Command::read_single_block(0)).is_ok(), "{mode:?}");
        let (before, moved) = (b.host.engine().transfers(), b.dw.counters().dma_bytes);
        assert_eq!(before.dma_errors, 7, "{mode:?}");
        for k in 0..4 {
            let data = pattern(8192, k);
            assert_eq!(b.write(&card, 16 * k, &data), Ok(16), "{mode:?}");
            assert!(b.read(&card, 16 * k, &[4096, 4096]).unwrap() == data, "{mode:?}");
        }
        // A new identification, supply off and on: it is remembered.
        let card = b.identify().traits;
        assert!(b.read(&card, 0, &[8192]).unwrap() == pattern(8192, 0), "{mode:?}");
        let after = b.host.engine().transfers();
        assert_eq!(after.dma, before.dma, "{mode:?}");
        assert!(after.pio >= before.pio + 9, "{mode:?}");
        assert_eq!(b.dw.counters().dma_bytes, moved, "{mode:?}");
        b.assert_clean();
    }
}

#[test]
fn a_build_without_internal_dma_is_driven_by_hand() {
    for mode in MODES {
        let mut b = Bench::with(mode, Config { hcon: 0x00c5_3001, ..Config::hsdk() }, HSDK, ideal());
        let card = b.identify().traits;
        let data = pattern(8192, 2);
        assert_eq!(b.write(&card, 0, &data), Ok(16));
        assert!(b.read(&card, 0, &[8192]).unwrap() == data);
        assert_eq!(b.host.engine().transfers().dma, 0);
        b.assert_clean();
    }
}

proptest! {
    #![proptest_config(cases(24))]
    #[test]
    fn any_cut_of_any_length(
        pieces in prop::collection::vec(0_usize..1500, 1..40), seed: u64, polled: bool, depth in 0_usize..6,
        mask in prop::sample::select(vec![0_u64, 0x8000_8000, u32::MAX.into()]),
    ) {
        let mode = if polled { Mode::Polled } else { Mode::Interrupts };
        let fifo_depth = [16, 32, 64, 128, 256, 1024][depth];
        let config = Config { fifo_depth, ..Config::hsdk() };
        let mut b = Bench::with_mask(mode, config, Platform { fifo_depth, ..HSDK }, ideal(), mask);
        let card = b.identify().traits;
        let mut lens = pieces;
        lens.push(512 - lens.iter().sum::<usize>() % 512);
        let data = pattern(lens.iter().sum(), seed);
        let (r, _) = b.transfer(&card, Dir::Write, 9, filled(&data, &lens), TransferOptions::default());
        prop_assert_eq!(r, Ok((data.len() / 512) as u32));
        lens.reverse();
        prop_assert!(b.read(&card, 9, &lens).unwrap() == data);
        prop_assert_eq!(b.memory.regions(), 1);
        b.assert_clean();
    }
}

/// Q26, Q28, Q37, Q47, Q55: whatever goes wrong while the processor moves the data, the next transfer works.
#[test]
fn a_fault_by_hand_ends_in_time_and_the_next_transfer_works() {
    let faults = [
        (Dir::Read, Fault::ReadCrc(0), Cause::Crc),
        (Dir::Read, Fault::ReadCrc(3), Cause::Crc),
        (Dir::Read, Fault::ReadNothing(3), Cause::Timeout),
        (Dir::Read, Fault::ReadStartBit(3), Cause::Framing),
        (Dir::Read, Fault::ReadEndBit(3), Cause::Framing),
        (Dir::Read, Fault::ResponseCrc, Cause::Crc),
        (Dir::Read, Fault::CommandLost, Cause::Timeout),
        (Dir::Read, Fault::SwallowDataOver, Cause::Limit),
        (Dir::Write, Fault::WriteCrc(3), Cause::Crc),
        (Dir::Write, Fault::WriteNothing(3), Cause::NoCrcStatus),
        (Dir::Write, Fault::ResponseCrc, Cause::Crc),
        (Dir::Write, Fault::CommandLost, Cause::Timeout),
    ];
    for mode in MODES {
        for over in [true, false] {
            let config = Config { timeout_then_over: over, start_error_then_over: over, ..Config::hsdk() };
            let mut b = without_dma(mode, config, HSDK);
            let card = b.identify().traits;
            let data = pattern(8192, 5);
            for (dir, fault, cause) in faults {
                let what = format!("{mode:?} {dir:?} {fault:?}");
                b.dw.inject_after(1, fault);
                let began = b.clock.now();
                let (r, p) = b.transfer(&card, dir, 8, filled(&data, &[8191, 1]), TransferOptions::default());
                let TransferCause::Host(e) = r.expect_err(&what).cause else { panic!("{what}") };
                assert_eq!(e.cause, cause, "{what}");
                assert!(b.clock.now().since(began) <= Duration::from_millis(1100), "{what}");
                assert_eq!(p.map(|p| p.bytes()), Some(8192), "{what}");
                assert_eq!(b.write(&card, 8, &data), Ok(16), "{what}");
                assert!(b.read(&card, 8, &[8192]).unwrap() == data, "{what}");
            }
            b.assert_clean();
        }
    }
}

/// D8: descriptors of 32 bytes, the registers one word further on, all memory above 4 GiB.
#[test]
fn a_controller_with_64_bit_addresses_reaches_memory_above_4_gib() {
    for mode in MODES {
        let config = Config { addr64: true, posted: 3, late_own: 3, ..Config::hsdk() };
        let mut b = Bench::with(mode, config, HSDK, ideal());
        let card = b.identify().traits;
        for lens in [vec![512], vec![4, 504, 4], vec![4096; 256], vec![1 << 20]] {
            let data = pattern(lens.iter().sum(), 1);
            let (r, _) = b.transfer(&card, Dir::Write, 8, filled(&data, &lens), TransferOptions::default());
            assert!(r.is_ok(), "{mode:?}");
            assert!(b.read(&card, 8, &lens).unwrap() == data, "{mode:?}");
        }
        // A reset in the middle takes the descriptors back, these too.
        b.dw.inject_after(1, Fault::ReadCrc(1));
        assert!(b.read(&card, 8, &[65_536]).is_err());
        let data = pattern(65_536, 4);
        assert_eq!(b.write(&card, 8, &data), Ok(128));
        assert!(b.read(&card, 8, &[4096; 16]).unwrap() == data);
        assert_eq!(b.host.engine().transfers().pio, 0, "{mode:?}");
        assert_eq!(b.memory.regions(), 1);
        b.assert_clean();
    }
}

#[test]
fn a_ring_of_the_wrong_kind_is_named() {
    use mmc_dw_hsdk::{DwEngine, Ring};
    use mmc_mock::card::SdCard;
    use mmc_mock::dw::Dw;
    use mmc_mock::{BufBatch, Clock, Memory, MemoryDma};
    use mmc_proto::bus::Power;
    use mmc_proto::host::{Host, Operation, Progress};
    for addr64 in [false, true] {
        let (clock, memory) = (Clock::new(), Memory::new(0x8000_0000, 0xc000_0000));
        let config = Config { addr64, ..Config::hsdk() };
        let dw = Dw::new(SdCard::new(ideal()).unwrap(), clock.clone(), memory.clone(), config);
        let at = memory.alloc(8192);
        let window = memory.window(at, 8192);
        let ring = if addr64 { Ring::new(window, at, 8192) } else { Ring::wide(window, at, 8192) }.unwrap();
        let mut host =
            DwEngine::<_, _, _, BufBatch>::new(dw, ring, MemoryDma::new(memory.clone(), u64::MAX), HSDK);
        host.submit(Operation::Power(Power::On), clock.now() + Duration::from_secs(1), clock.now()).unwrap();
        let e = loop {
            match host.poll(clock.now()) {
                Progress::Done(done) => break done.result.unwrap_err(),
                Progress::Waiting { until, .. } => clock.advance_to(until),
                Progress::Idle => panic!("idle"),
            }
        };
        let advice = if addr64 { "Ring::wide" } else { "Ring::new" };
        assert!(matches!(e.cause, Cause::Unsupported(m) if m.contains(advice)), "{e}");
    }
}

#[test]
fn more_segments_than_stated_are_refused_and_come_back() {
    let (mut b, card) = Bench::identified(Mode::Interrupts);
    let lens = [512; 300];
    let (r, p) = b.transfer(&card, Dir::Read, 0, buffers(&lens), TransferOptions::default());
    let TransferCause::Host(e) = r.unwrap_err().cause else { panic!("not the host's error") };
    assert!(matches!(e.cause, Cause::Unsupported(m) if m.contains("max_segments")), "{e}");
    assert_eq!(p.map(|p| (p.segments(), p.bytes())), Some((300, 300 * 512)));
    let data = pattern(256 * 512, 3);
    b.store(0, &data);
    assert!(b.read(&card, 0, &lens[..256]).unwrap() == data, "as many as are stated");
    b.assert_clean();
}

#[test]
fn a_fifo_that_is_never_handed_over_ends_by_the_drivers_own_limit() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        b.dw.inject(Fault::StuckReset);
        let since = b.clock.now();
        let data = pattern(2048, 5);
        let (r, _) =
            b.transfer(&card, Dir::Write, 0, filled(&data, &[1023, 1025]), TransferOptions::default());
        let TransferCause::Host(e) = r.unwrap_err().cause else { panic!("the host fails") };
        assert_eq!(e.cause, Cause::Controller, "{mode:?}");
        assert!(b.clock.now().since(since) >= Duration::from_millis(1), "{mode:?}: not at the first look");
    }
}

/// After an error the controller is reset, and what it had not reached of its list is not its own any more.
#[test]
fn no_descriptor_is_the_controllers_after_an_error() {
    for mode in MODES {
        let (mut b, card) = Bench::identified(mode);
        b.dw.inject(Fault::ReadNothing(0));
        let owned = |b: &Bench| {
            let ring = b.memory.window(b.ring_bus, RING_BYTES);
            (0..RING_BYTES / 16).filter(|k| ring.read32(k * 16) >> 31 == 1).count()
        };
        let (r, _) = b.transfer(&card, Dir::Read, 0, buffers(&[65_536]), TransferOptions::default());
        assert!(r.is_err(), "{mode:?}");
        assert_eq!(owned(&b), 0, "{mode:?}");
        assert!(b.read(&card, 0, &[65_536]).is_ok(), "{mode:?}");
    }
}

//! The fault hooks of `spec/dw-mshc-model.md` A6, each as a driver sees it.

mod dw_common;

use dw_common::{Bench, DATA, IDSTS, RINTSTS, STATUS};
use mmc_mock::dw::{Config, Fault};
use mmc_time::{Duration, Instant};

fn ready() -> Bench {
    let b = Bench::new(Config::generic());
    b.ready();
    b
}

/// Reads four blocks by IDMAC or PIO with a fault; all bits of RINTSTS that came, level bits aside.
fn read(b: &Bench, dma: bool) -> u32 {
    if dma {
        let buf = b.memory.alloc(2048);
        b.dma_on(b.chain(&[(buf, 2048)]));
    }
    b.sizes(512, 2048);
    b.w(0x2c, 0xa000_2352);
    loop {
        while b.r(STATUS) >> 17 & 0x1fff > 0 && !dma {
            b.r(DATA);
        }
        if !b.step() {
            return b.rint() & !0x30;
        }
    }
}

fn write(b: &Bench, dma: bool) -> u32 {
    if dma {
        let buf = b.memory.alloc(2048);
        b.dma_on(b.chain(&[(buf, 2048)]));
    }
    b.sizes(512, 2048);
    b.w(0x2c, 0xa000_2759);
    loop {
        if !dma && b.rint() & 0x10 != 0 {
            while b.r(STATUS) & 8 == 0 {
                b.w(DATA, 0);
            }
            b.w(RINTSTS, 0x10);
        }
        if !b.step() {
            return b.rint() & !0x30;
        }
    }
}

#[test]
fn faults_of_the_response() {
    let clocks = |n: u64| Duration::from_nanos(20 * n);
    for (fault, bits, took) in [
        (Fault::NoResponse, 0x104, 48 + 255),
        (Fault::CommandLost, 0x104, 48 + 255),
        (Fault::ResponseCrc, 0x44, 48 + 56),
        (Fault::ResponseIndex, 0x46, 48 + 56),
        (Fault::ResponseEndBit, 0x06, 48 + 56),
        (Fault::ResponseDelay(100), 0x04, 48 + 156),
        (Fault::ResponseDelay(250), 0x104, 48 + 255),
    ] {
        let b = ready();
        let before = b.dw.card(|c| c.log.len());
        b.dw.inject(fault);
        let t0 = b.clock.now();
        assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), bits, "{fault:?}");
        assert_eq!(b.clock.now() - t0, clocks(took), "{fault:?}");
        let got = b.dw.card(|c| c.log.len()) - before;
        assert_eq!(got, usize::from(fault != Fault::CommandLost), "{fault:?}");
        assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4, "once only");
    }
    // Without the CRC check of the host a wrong CRC is nothing.
    let b = ready();
    b.dw.inject(Fault::ResponseCrc);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_204d), 4);
    // A long response where a short one is expected.
    let b = Bench::new(Config::generic());
    b.power_up();
    b.cmd(0, 0xa000_a000);
    b.cmd(0x1aa, 0xa000_2148);
    for _ in 0..2 {
        b.cmd(0, 0xa000_2177);
        b.cmd(0x4030_0000, 0xa000_2069);
    }
    assert_eq!(b.cmd(0, 0xa000_2142) & 2, 2);
}

#[test]
fn faults_wait_for_the_command_they_are_for() {
    let b = ready();
    b.dw.inject_after(2, Fault::NoResponse);
    b.dw.inject(Fault::ReadCrc(0));
    let got: Vec<u32> = (0..4).map(|_| b.cmd(0xaaaa_0000, 0xa000_214d)).collect();
    assert_eq!(got, [4, 4, 0x104, 4]);
    b.w(0x28, 0);
    assert_eq!(read(&b, true), 0x8c);
    b.dw.inject(Fault::NoResponse);
    b.dw.heal();
    b.w(RINTSTS, 0xffff);
    assert_eq!(b.cmd(0, 0xa000_414c), 4);
}

#[test]
fn faults_of_blocks_read() {
    for dma in [true, false] {
        for (fault, bits, blocks) in [
            (Fault::ReadCrc(2), 0x8c, 4),
            (Fault::ReadNothing(2), 0x20c, 2),
            (Fault::ReadStartBit(2), 0x200c, 2),
            (Fault::ReadEndBit(2), 0x800c, 3),
        ] {
            let b = ready();
            b.w(0x14, 0x0010_00ff);
            b.dw.inject(fault);
            assert_eq!(read(&b, dma), bits, "{fault:?}, dma {dma}");
            assert_eq!((b.r(0x5c), b.r(0x60)), (blocks * 512, blocks * 512), "{fault:?}, dma {dma}");
            assert_eq!(b.r(STATUS) >> 10 & 1, 0);
            if dma {
                assert_eq!(b.r(IDSTS) & 0x20, 0x20);
            }
            b.w(RINTSTS, 0xffff);
            b.dma_off();
            assert_eq!(b.cmd(0, 0xa000_414c), 4);
            assert_eq!(read(&b, false), 0xc, "the next one is fine");
            b.no_violations();
        }
    }
}

#[test]
fn a_silent_card_times_out_after_the_data_timeout() {
    for dma in [true, false] {
        let b = ready();
        b.w(0x14, 0x0010_00ff);
        b.dw.inject(Fault::ReadNothing(0));
        let t0 = b.clock.now();
        read(&b, dma);
        assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * (48 + 56 + 0x1000)), "dma {dma}");
        // A late but legal answer is no error (Q1); one that never comes is.
        for (ms, bits) in [(200, 0xc), (400, 0x20c)] {
            let b = ready();
            b.dw.card(|c| c.first = Duration::from_millis(ms));
            assert_eq!(read(&b, dma), bits, "{ms} ms, dma {dma}");
        }
        let b = ready();
        b.dw.card(|c| c.never_ready = true);
        assert_eq!(read(&b, dma), 0x20c);
    }
}

#[test]
fn faults_of_blocks_written() {
    for dma in [true, false] {
        for (fault, bits, blocks) in [(Fault::WriteCrc(1), 0x8c, 4), (Fault::WriteNothing(1), 0x800c, 2)] {
            let b = ready();
            b.dw.inject(fault);
            assert_eq!(write(&b, dma), bits, "{fault:?}, dma {dma}");
            assert_eq!(b.r(0x5c), blocks * 512, "{fault:?}, dma {dma}");
            b.w(RINTSTS, 0xffff);
            b.w(0x00, 2);
            assert_eq!(b.cmd(0, 0xa000_414c), 4);
        }
    }
}

#[test]
fn a_card_that_stays_busy() {
    let b = ready();
    b.dw.inject(Fault::Busy(Duration::from_millis(3)));
    assert_eq!(read(&b, true), 0xc);
    let t0 = b.clock.now();
    b.w(RINTSTS, 0xffff);
    assert_eq!(b.r(STATUS) >> 9 & 1, 1);
    assert_eq!(b.cmd(0, 0xa000_414c), 4, "a stop does not wait");
    b.w(RINTSTS, 0xffff);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
    assert!(b.clock.now() - t0 > Duration::from_millis(3));
    // For ever: until the supply goes off.
    b.dw.inject(Fault::Busy(Duration::MAX));
    b.cmd(0xaaaa_0000, 0xa000_214d);
    b.clock.advance(Duration::from_secs(1000));
    assert_eq!(b.r(STATUS) >> 9 & 1, 1);
    b.w(0x04, 0);
    assert_eq!(b.r(STATUS) >> 9 & 1, 0);
}

#[test]
fn events_that_never_come() {
    let b = ready();
    b.dw.inject(Fault::SwallowCommandDone);
    b.w(0x2c, 0xa000_214d);
    b.drain();
    assert_eq!((b.rint(), b.r(0x2c) >> 31, b.r(0x30)), (0, 0, 0x900));
    b.dw.inject(Fault::SwallowDataOver);
    assert_eq!(read(&b, true), 4);
    assert_eq!((b.r(IDSTS), b.r(STATUS) >> 10 & 1), (0x102, 0));
    b.w(RINTSTS, 0xffff);
    b.cmd(0, 0xa000_414c);
    b.dw.inject(Fault::StuckStart);
    b.w(0x2c, 0xa000_014d);
    b.clock.advance(Duration::from_secs(1));
    assert_eq!((b.r(0x2c) >> 31, b.rint()), (1, 0));
    b.w(0x00, 1);
    b.clock_on(0);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
}

#[test]
fn a_command_lost_on_demand() {
    let b = ready();
    b.dw.inject(Fault::LoseCommand);
    b.w(0x2c, 0xa000_214d);
    b.drain();
    assert_eq!((b.rint(), b.r(0x2c)), (0x1000, 0x2000_214d));
    b.w(RINTSTS, 0x1000);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
}

#[test]
fn a_reset_that_never_ends() {
    let b = ready();
    b.dw.inject(Fault::StuckReset);
    b.w(0x00, 7);
    b.clock.advance(Duration::from_secs(1));
    assert_eq!((b.r(0x00), b.r(0x00)), (7, 7));
    b.dw.heal();
    assert_eq!(b.r(0x00), 0);
}

#[test]
fn interrupts_out_of_nothing_and_at_an_exact_access() {
    let b = ready();
    b.dw.inject(Fault::Spurious(0x80));
    assert_eq!(b.rint(), 0x80);
    b.w(RINTSTS, 0x80);
    b.dw.inject_at_access(3, Fault::Spurious(0x80));
    assert_eq!([b.rint(), b.rint(), b.rint()], [0, 0, 0x80]);
    b.w(RINTSTS, 0x80);
    b.dw.inject_at(b.clock.now() + Duration::from_micros(1), Fault::Spurious(0x80));
    assert_eq!(b.rint(), 0);
    assert!(b.step());
    assert_eq!(b.rint(), 0x80);
    b.w(RINTSTS, 0x80);
    // DTO comes between the read of RINTSTS and the write that clears what was read (Q20).
    b.dw.inject(Fault::Defer { bits: 8, accesses: 2 });
    let buf = b.memory.alloc(512);
    b.dma_on(b.chain(&[(buf, 512)]));
    b.sizes(512, 512);
    b.w(0x2c, 0xa000_2351);
    b.dw.advance();
    while b.step() {}
    assert_eq!(b.rint(), 4);
    b.w(RINTSTS, 4);
    assert_eq!(b.rint(), 8, "a driver that clears only what it saw still finds it");
}

#[test]
fn a_host_that_is_slow_starves_the_wire_and_nothing_is_lost() {
    let b = ready();
    b.w(0x14, 0x0001_00ff);
    b.sizes(512, 1024);
    b.w(0x28, 50);
    b.w(0x2c, 0xa000_2759);
    b.wait(4);
    // No word at all, then a few, then the rest: HTO each time after 256 clocks, and on it goes.
    let t0 = b.clock.now();
    assert_eq!(b.wait(0x400), 0x414);
    assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * (1 + 256)));
    b.w(RINTSTS, 0x414);
    for w in 0..10 {
        b.w(DATA, w);
    }
    assert_eq!(b.wait(0x400), 0x410);
    b.w(RINTSTS, 0x400);
    for w in 10..256 {
        while b.r(STATUS) & 8 != 0 {
            b.clock.advance(Duration::from_nanos(20 * 8));
        }
        b.w(DATA, w);
    }
    assert_eq!(b.wait(8) & !0x10, 8);
    let words: Vec<u8> = (0..256_u32).flat_map(u32::to_le_bytes).collect();
    assert!(b.card_bytes(50, 1024) == words);
    b.no_violations();
}

#[test]
fn memory_that_lags_behind() {
    let b = ready();
    b.dw.inject(Fault::LateData(50));
    assert_eq!(read(&b, true), 0xc, "comes by itself, a microsecond for an access");
    assert_eq!(b.r(IDSTS), 0x102);
    b.w(RINTSTS, 0xffff);
    b.cmd(0, 0xa000_414c);
    b.w(0x28, 9);
    let buf = b.memory.alloc(512);
    let ring = b.chain(&[(buf, 512)]);
    b.dma_on(ring);
    b.sizes(512, 512);
    b.dw.inject(Fault::LateData(50));
    b.w(0x2c, 0xa000_2351);
    b.wait(8);
    assert_eq!((b.r(IDSTS) & 0x1fff, b.word(ring) >> 31, b.bytes(buf, 512)), (0, 1, vec![0; 512]));
    b.drain();
    b.same(buf, 9, 512);
    b.w(RINTSTS, 0xffff);
    let ring = b.chain(&[(buf, 512)]);
    b.dma_on(ring);
    b.dw.inject(Fault::LateOwner(50));
    b.w(0x2c, 0xa000_2351);
    b.wait(8);
    assert_eq!((b.r(IDSTS), b.word(ring) >> 31), (0x102, 1));
    b.drain();
    assert_eq!(b.word(ring) >> 31, 0);
}

#[test]
fn a_supply_that_fails() {
    let b = ready();
    b.w(0x14, 0x0010_00ff);
    b.dw.inject_at(b.clock.now() + Duration::from_micros(40), Fault::PowerFail);
    assert_eq!(read(&b, true), 0x20c);
    assert_eq!(b.dw.card(|c| c.state), 0);
    b.w(RINTSTS, 0xffff);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_2147), 0x104);
}

#[test]
fn a_response_error_on_a_data_command_and_a_stop_too_early() {
    // The data phase runs all the same (Q26), and a stop right behind the bad response kills its DTO (Q40).
    for (stop, bits) in [(false, 0x4c), (true, 4)] {
        let b = ready();
        b.dw.card(|c| c.first = Duration::from_micros(50));
        b.dw.inject(Fault::ResponseCrc);
        b.sizes(512, 512);
        let buf = b.memory.alloc(512);
        b.dma_on(b.chain(&[(buf, 512)]));
        b.w(0x2c, 0xa000_2352);
        assert_eq!(b.wait(4), 0x44);
        assert_eq!(b.r(STATUS) >> 10 & 1, 1);
        if stop {
            b.w(RINTSTS, 0x44);
            b.w(0x2c, 0xa000_414c);
        }
        b.drain();
        assert_eq!((b.rint(), b.r(STATUS) >> 10 & 1), (bits, 0));
    }
}

#[test]
fn a_fault_far_away_does_not_move_the_next_event() {
    let b = ready();
    b.dw.inject_at(Instant::from_secs(1000), Fault::Spurious(0x80));
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
    assert!(b.clock.now() < Instant::from_secs(1));
}

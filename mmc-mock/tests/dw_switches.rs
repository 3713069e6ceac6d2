//! The switches of `spec/dw-mshc-model.md` part D that the other tests do not turn.

mod dw_common;

use dw_common::{Bench, DATA, IDSTS, RINTSTS, STATUS};
use mmc_mock::dw::{Config, Fault};
use mmc_time::Duration;

fn bench(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config::generic();
    change(&mut config);
    let b = Bench::new(config);
    b.ready();
    b.w(0x14, 0x0010_00ff);
    b
}

fn dma_read(b: &Bench, cmd: u32) {
    let buf = b.memory.alloc(1024);
    b.dma_on(b.chain(&[(buf, 1024)]));
    b.sizes(512, 1024);
    b.w(0x2c, cmd);
    b.drain();
}

#[test]
fn d1_a_clock_update_may_raise_command_done() {
    for on in [false, true] {
        let b = bench(|c| c.update_raises_done = on);
        b.w(0x2c, 0x8020_2000);
        assert_eq!(b.rint(), if on { 4 } else { 0 });
    }
}

#[test]
fn d2_a_data_timeout_may_not_be_followed_by_over() {
    for on in [true, false] {
        let b = bench(|c| c.timeout_then_over = on);
        b.dw.inject(Fault::ReadNothing(1));
        dma_read(&b, 0xa000_2352);
        assert_eq!((b.rint(), b.r(STATUS) >> 10 & 1), if on { (0x20c, 0) } else { (0x204, 1) });
        b.w(RINTSTS, 0xffff);
        assert_eq!(b.cmd(0, 0xa000_414c), if on { 4 } else { 0xc }, "a stop ends it");
    }
}

#[test]
fn d3_a_start_bit_error_may_not_be_followed_by_over() {
    for on in [true, false] {
        let b = bench(|c| c.start_error_then_over = on);
        b.dw.inject(Fault::ReadStartBit(0));
        dma_read(&b, 0xa000_2352);
        assert_eq!((b.rint(), b.r(STATUS) >> 10 & 1), if on { (0x200c, 0) } else { (0x2004, 1) });
    }
}

#[test]
fn d5_the_automatic_stop_after_an_error() {
    for on in [true, false] {
        let b = bench(|c| c.auto_stop_after_error = on);
        b.dw.inject(Fault::ReadCrc(0));
        dma_read(&b, 0xa000_3352);
        assert_eq!(b.rint(), if on { 0x408c } else { 0x8c });
        assert_eq!(b.dw.card(|c| c.state), if on { 4 } else { 5 });
    }
}

#[test]
fn d7_every_depth_and_odd_lengths_by_pio() {
    for depth in [16_u16, 32, 64, 128, 256, 1024] {
        let b = bench(|c| c.fifo_depth = depth);
        b.sizes(512, 8192);
        b.w(0x2c, 0xa000_2352);
        let mut got = Vec::new();
        loop {
            let bits = b.rint();
            let count = b.r(STATUS) >> 17 & 0x1fff;
            if bits & 0x28 != 0 {
                for _ in 0..count {
                    got.extend(b.r(DATA).to_le_bytes());
                }
                b.w(RINTSTS, 0x20);
            }
            if bits & 8 != 0 {
                break;
            }
            assert!(b.step());
        }
        assert!(got == b.card_bytes(0, 8192), "depth {depth}");
        b.no_violations();
    }
}

#[test]
fn d11_bit_13_may_say_that_the_card_is_no_longer_busy() {
    for on in [false, true] {
        let b = bench(|c| c.busy_clear = on);
        b.w(0x100, 2);
        b.dw.card(|c| c.program = Duration::from_millis(1));
        let buf = b.memory.alloc(512);
        b.dma_on(b.chain(&[(buf, 512)]));
        b.sizes(512, 512);
        b.w(0x2c, 0xa000_2758);
        b.wait(8);
        let t0 = b.clock.now();
        b.drain();
        assert_eq!(b.rint(), if on { 0x200c } else { 0xc });
        assert_eq!(b.clock.now() - t0, Duration::from_millis(u64::from(on)));
    }
}

#[test]
fn d12_the_abnormal_summary_and_card_errors() {
    for on in [true, false] {
        let b = bench(|c| c.ais_includes_ces = on);
        let buf = b.memory.alloc(512);
        b.dma_on(b.chain(&[(buf, 512)]));
        b.w(0x90, 0x337);
        b.sizes(512, 512);
        b.dw.inject(Fault::ReadCrc(0));
        b.w(0x2c, 0xa000_2351);
        b.drain();
        assert_eq!(b.r(IDSTS), if on { 0x322 } else { 0x122 });
    }
}

#[test]
fn d14_a_held_command_may_ignore_the_busy_card() {
    for on in [true, false] {
        let b = bench(|c| c.held_waits_for_busy = on);
        b.dw.inject(Fault::Busy(Duration::MAX));
        b.cmd(0xaaaa_0000, 0xa000_214d);
        b.w(0x2c, 0xa000_214d);
        assert_eq!(b.r(0x2c) >> 31, u32::from(on));
    }
}

#[test]
fn d17_a_bad_response_may_keep_the_data_away() {
    for on in [true, false] {
        let b = bench(|c| c.data_after_response_error = on);
        b.dw.inject(Fault::ResponseCrc);
        dma_read(&b, 0xa000_2352);
        assert_eq!(b.rint(), if on { 0x4c } else { 0x44 });
    }
}

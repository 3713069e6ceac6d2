//! Registers: reset values, what resets touch, the two copies, the FIFO window, the pins, the interrupt line.

mod dw_common;

use dw_common::{Bench, DATA, RINTSTS, STATUS};
use mmc_hal::Mmio;
use mmc_mock::Wakes;
use mmc_mock::dw::{Config, DataWidth, Fault};
use mmc_time::{Duration, Instant};

fn generic() -> Bench {
    Bench::new(Config::generic())
}

#[test]
fn values_out_of_reset() {
    let b = generic();
    let set = [
        (0x14, 0xffff_ff40),
        (0x1c, 0x200),
        (0x20, 0x200),
        (0x2c, 0x2000_0000),
        (0x48, 0x0000_0106),
        (0x4c, 0x000f_0000),
        (0x64, 0x00ff_ffff),
        (0x6c, 0x5342_270a),
        (0x70, 0x00c4_3081),
        (0x78, 1),
    ];
    for offset in (0..0x200).step_by(4) {
        let expected = set.iter().find(|(o, _)| *o == offset).map_or(0, |(_, v)| *v);
        assert_eq!(b.r(offset), expected, "{offset:#x}");
    }
    for depth in [16, 32, 64, 128, 256, 1024] {
        let b = Bench::new(Config { fifo_depth: depth, ..Config::generic() });
        assert_eq!(b.r(0x4c), (u32::from(depth) - 1) << 16);
    }
    let b = Bench::new(Config { fifoth: Some(0x2007_0008), ..Config::generic() });
    assert_eq!((b.r(0x4c), b.r(0x80)), (0x2007_0008, 0x200), "as a boot loader left it");
    // Nothing at odd offsets.
    b.w(0x15, 0);
    assert_eq!((b.r(0x14), b.r(0x15)), (0xffff_ff40, 0));
}

#[test]
fn resets_leave_registers_and_interrupts_alone() {
    let b = generic();
    b.ready();
    b.sizes(64, 128);
    b.w(0x24, 0xbffe);
    b.dw.inject(Fault::Spurious(0x80));
    let before: Vec<u32> = (0x04..0x7c).step_by(4).map(|o| b.r(o)).collect();
    b.w(0x00, 0x17);
    assert_eq!(b.r(0x00), 0x10);
    let after: Vec<u32> = (0x04..0x7c).step_by(4).map(|o| b.r(o)).collect();
    assert_eq!(before, after);
    assert_eq!((b.rint(), b.r(0x40), b.dw.irq()), (0x80, 0x80, true));
}

#[test]
fn reset_bits_may_show_for_some_reads() {
    let b = Bench::new(Config { reset_reads: 2, swr_reads: 1, ..Config::generic() });
    b.w(0x00, 7);
    assert_eq!([b.r(0), b.r(0), b.r(0)], [7, 7, 0]);
    b.w(0x80, 0x83);
    assert_eq!([b.r(0x80), b.r(0x80)], [0x83, 0x82]);
}

#[test]
fn a_controller_reset_forgets_the_card_clock_and_drops_the_held_command() {
    for forgets in [true, false] {
        let b = Bench::new(Config { reset_forgets_clock: forgets, ..Config::generic() });
        b.ready();
        b.dw.inject(Fault::Busy(Duration::MAX));
        b.cmd(0xaaaa_0000, 0xa000_214d);
        b.w(0x2c, 0xa000_214d);
        b.w(0x00, 1);
        assert_eq!(b.r(0x2c), 0x2000_214d, "START is cleared, the command never sent");
        // Card still busy: only a command that does not wait goes out, and only with a clock.
        b.w(0x2c, 0xa000_014d);
        b.clock.advance(Duration::from_secs(1));
        assert_eq!((b.r(0x2c) >> 31 == 1, b.rint()), (forgets, if forgets { 0 } else { 4 }));
        assert_eq!(b.dw.violations().len(), usize::from(forgets));
        b.w(0x00, 1);
        b.w(0x2c, 0x8020_2000);
        assert_eq!(b.r(0x2c) >> 31, 1, "an update that waits for the data line is stuck (Q30)");
        b.w(0x00, 1);
        b.w(0x2c, 0x8020_0000);
        assert_eq!(b.r(0x2c) >> 31, 0);
    }
}

#[test]
fn clock_registers_work_only_after_an_update() {
    let b = Bench::new(Config::hsdk());
    b.w(0x04, 1);
    let clock = |b: &Bench| b.dw.card(|c| c.bus.last().copied());
    b.w(0x10, 1);
    assert_eq!(clock(&b), Some((0, 1)));
    b.w(0x2c, 0x8020_2000);
    assert_eq!(clock(&b), Some((12_500_000, 1)), "the external divider is 8 at reset (Q3)");
    b.w(0x108, 0x8000_0000);
    assert_eq!(clock(&b), Some((50_000_000, 1)));
    b.w(0x08, 63);
    assert_eq!(clock(&b), Some((50_000_000, 1)));
    b.w(0x2c, 0x8020_2000);
    assert_eq!(clock(&b), Some((396_825, 1)));
    b.w(0x18, 1);
    b.w(0x2c, 0x8020_2000);
    assert_eq!(clock(&b), Some((396_825, 1)), "an update does not take the width");
    b.cmd(0, 0xa000_0000);
    assert_eq!(clock(&b), Some((396_825, 4)), "a command does");
    b.w(0x00, 7);
    assert_eq!(b.r(0x108), 0x8000_0000);
    b.no_violations();
    b.w(0x108, 0x4000_0000);
    assert!(b.dw.violations()[0].contains("external divider"));
}

#[test]
fn a_clock_above_the_maximum_and_a_command_without_clock_are_violations() {
    let b = Bench::new(Config { max_hz: 25_000_000, ..Config::generic() });
    b.w(0x04, 1);
    b.w(0x2c, 0xa000_0000);
    assert!(b.dw.violations()[0].contains("clock off"), "{:?}", b.dw.violations());
    b.w(0x00, 1);
    b.w(0x10, 1);
    b.w(0x2c, 0x8020_2000);
    assert!(b.dw.violations()[1].contains("above"), "{:?}", b.dw.violations());
}

#[test]
fn idle_clocks_before_the_first_command_are_counted() {
    let b = generic();
    b.power_up();
    b.clock.advance(Duration::from_micros(2));
    b.cmd(0, 0xa000_0000);
    assert_eq!(b.dw.card(|c| c.idle), 100, "2 us at 50 MHz");
}

#[test]
fn the_fifo_takes_what_fits_and_overruns_change_nothing() {
    for (width, per) in [(DataWidth::W16, 2), (DataWidth::W32, 1), (DataWidth::W64, 1)] {
        let b = Bench::new(Config { data_width: width, ..Config::generic() });
        let halves = if width == DataWidth::W64 { 2 } else { 1 };
        b.r(DATA);
        assert_eq!(b.rint(), 0x800, "empty");
        b.w(RINTSTS, 0x800);
        let n = 16 * halves / per;
        for i in 0..n {
            // The whole window is one FIFO.
            b.w(DATA + 8 * i + i % halves * 4, 0x1111_0000 + i);
        }
        assert_eq!((b.r(STATUS) >> 17 & 0x1fff, b.r(STATUS) & 0xc, b.rint()), (16, 8, 0), "{width:?}");
        b.w(DATA + 4, 99);
        assert_eq!(b.rint(), 0x800, "full");
        for i in 0..n {
            assert_eq!(b.r(0x3f0 + i % halves * 4), 0x1111_0000 + i, "{width:?}");
        }
        assert_eq!(b.r(STATUS) & 0xc, 4);
        b.w(DATA, 1);
        b.w(DATA + 4, 1);
        b.w(0x00, 2);
        assert_eq!(b.r(STATUS) & 0xc, 4);
    }
}

#[test]
fn old_versions_have_the_fifo_where_others_have_registers() {
    let b = Bench::new(Config { verid: 0x5342_230a, ..Config::generic() });
    b.w(0x100, 0x1234);
    assert_eq!((b.r(STATUS) >> 17, b.r(0x110)), (1, 0x1234));
}

#[test]
fn card_detect_is_debounced_on_both_edges() {
    let b = generic();
    b.w(0x64, 500_000);
    b.w(0x24, 1);
    b.w(0x00, 0x10);
    let at = |ms| Instant::from_millis(ms);
    // Three bounces, then it is out; 5 ms of debounce at 100 MHz.
    for (ms, fault) in [
        (1, Fault::Pin(false)),
        (2, Fault::Pin(true)),
        (3, Fault::Pin(false)),
        (4, Fault::Pin(true)),
        (6, Fault::Remove),
    ] {
        b.dw.inject_at(at(ms), fault);
    }
    b.clock.advance_to(at(3));
    assert_eq!((b.r(0x50), b.rint()), (1, 0), "the register is the pin");
    b.clock.advance_to(at(6));
    assert_eq!((b.dw.next_event(), b.dw.irq()), (at(11), false));
    b.clock.advance_to(at(11));
    assert_eq!((b.rint(), b.dw.irq()), (1, true));
    b.w(RINTSTS, 1);
    b.dw.inject_at(at(20), Fault::Insert);
    b.clock.advance_to(at(24));
    assert_eq!((b.r(0x50), b.rint()), (0, 0));
    b.clock.advance_to(at(25));
    assert_eq!(b.rint(), 1);
    // A bounce shorter than that is nothing.
    b.w(RINTSTS, 1);
    b.dw.inject_at(at(30), Fault::Pin(false));
    b.dw.inject_at(at(34), Fault::Pin(true));
    b.clock.advance_to(at(100));
    assert_eq!((b.rint(), b.dw.counters().irq_edges), (0, 2));
}

#[test]
fn write_protect_and_sdio_are_pins_and_levels() {
    for bit in [16, 24] {
        let b = Bench::new(Config { sdio_bit: bit, ..Config::generic() });
        b.power_up();
        assert_eq!(b.r(0x54), 0);
        b.dw.inject(Fault::WriteProtect(true));
        assert_eq!(b.r(0x54), 1);
        b.dw.inject(Fault::SdioInterrupt(true));
        assert_eq!(b.rint(), 1 << bit);
        b.w(RINTSTS, 1 << bit);
        assert_eq!(b.rint(), 1 << bit, "a level");
        // Low power stops the clock of an idle card: no interrupt is seen (Q18).
        b.w(0x10, 0x1_0001);
        b.w(0x2c, 0x8020_2000);
        b.w(RINTSTS, 1 << bit);
        assert_eq!(b.rint(), 0);
    }
}

#[test]
fn the_line_is_mask_and_enable_and_status() {
    let b = generic();
    b.ready();
    b.cmd(0xaaaa_0000, 0xa000_214d);
    b.w(0x2c, 0xa000_214d);
    b.wait(4);
    assert_eq!((b.r(0x40), b.dw.irq()), (0, false));
    b.w(0x24, 4);
    assert_eq!((b.r(0x40), b.dw.irq()), (4, false));
    b.w(0x00, 0x10);
    assert!(b.dw.irq());
    b.w(RINTSTS, 8);
    assert!(b.dw.irq(), "clearing a bit that is not set does nothing");
    b.w(RINTSTS, 4);
    assert!(!b.dw.irq());
    assert_eq!(b.dw.counters().irq_edges, 1);
}

#[test]
fn no_power_no_card() {
    for inverted in [false, true] {
        let b = Bench::new(Config { power_active_low: inverted, ..Config::generic() });
        assert_eq!(b.dw.card(|c| c.powered), inverted);
        b.power_up();
        assert_eq!(b.dw.card(|c| c.powered), !inverted);
        b.cmd(0, 0xa000_0000);
        assert_eq!(b.cmd(0x1aa, 0xa000_2148), if inverted { 0x104 } else { 4 });
    }
}

#[test]
fn two_handles_are_one_controller_and_accesses_may_cost_time() {
    let b = Bench::new(Config { access_ns: 10, ..Config::generic() });
    let other = b.dw.clone();
    other.write32(0x28, 5);
    assert_eq!((b.r(0x28), b.clock.now()), (5, Instant::from_nanos(20)));
    // A driver that polls by counts gets there.
    b.w(0x04, 1);
    b.w(0x10, 1);
    b.w(0x2c, 0x8020_2000);
    b.w(0x2c, 0xa000_0000);
    assert!((0..1000).any(|_| b.rint() & 4 != 0));
    assert_eq!((b.dw.counters().writes, b.dw.counters().commands), (5, 1));
}

const CTRL: u32 = 0x00;
const CMD: u32 = 0x2c;

#[test]
fn what_is_not_modelled_is_stored_and_recorded() {
    for (offset, value, named) in [
        (CMD, 0x0100_0000, "boot"),
        (CMD, 0x0080_0000, "CE-ATA"),
        (CMD, 0x800, "stream"),
        (CTRL, 0x200, "CE-ATA"),
    ] {
        let b = generic();
        b.power_up();
        b.clock_on(1);
        b.no_violations();
        b.w(offset, if offset == CMD { value | 0x8000_0000 } else { value });
        let v = b.dw.violations();
        assert!(v.len() == 1 && v[0].contains(named), "{v:?}");
    }
    // The registers beside them hold what is written.
    let b = generic();
    for (offset, value) in
        [(0x74, 0x1_0001), (0x100, 0x0200_0001), (0x104, 3), (0x10c, 0x8000_0001), (0x110, 1)]
    {
        b.w(offset, value);
        assert_eq!(b.r(offset), value, "{offset:#x}");
    }
}

#[test]
fn a_low_of_rst_n_resets_a_card_that_has_it_wired() {
    for (wired, ns, state, violations) in [(true, 1000, 0, 0), (true, 900, 4, 1), (false, 1000, 4, 0)] {
        let b = Bench::new(Config { rst_n: wired, ..Config::generic() });
        b.ready();
        b.dw.card(|c| assert_eq!(c.state, 4, "the transfer state"));
        b.w(0x78, 0);
        b.clock.advance(Duration::from_nanos(ns));
        b.w(0x78, 1);
        b.dw.card(|c| assert_eq!(c.state, state, "wired: {wired}, {ns} ns"));
        assert_eq!(b.dw.violations().len(), violations);
    }
}

/// CTRL bit 6 holds a read where it is, bit 8 ends it without a word.
#[test]
fn a_read_waits_and_can_be_dropped_without_an_event() {
    let b = generic();
    b.ready();
    b.sizes(512, 512);
    b.w(CTRL, 0x40);
    b.cmd(3, 0xa000_2351);
    b.clock.advance(Duration::from_secs(2));
    assert_eq!(b.rint() & 0x388, 0, "neither data nor their timeout");
    assert_eq!(b.r(STATUS) >> 17 & 0x1fff, 0);
    b.w(CTRL, 0);
    b.clock.advance(Duration::from_millis(1));
    assert!(b.r(STATUS) >> 17 & 0x1fff > 0, "it goes on");
    b.w(CTRL, 0x100);
    assert_eq!(b.r(CTRL) & 0x100, 0, "done at once");
    assert_eq!((b.r(STATUS) >> 10 & 1, b.rint() & 8), (0, 0), "idle, and no data transfer over");
    b.no_violations();
}

#[test]
fn a_read_threshold_is_a_block_that_fits_the_fifo_and_is_not_touched_meanwhile() {
    for (threshold, depth, sound) in [(512, 128, true), (512, 64, false), (64, 128, false)] {
        let b = Bench::new(Config { fifo_depth: depth, ..Config::generic() });
        b.ready();
        b.sizes(512, 512);
        b.w(0x100, threshold << 16 | 1);
        b.cmd(3, 0xa000_2351);
        assert_eq!(b.dw.violations().is_empty(), sound, "{threshold} of a depth of {depth}");
        b.w(0x100, 0);
        assert!(b.dw.violations().last().unwrap().contains("while data are moving"));
    }
}

#[test]
fn a_domain_that_was_off_has_reset_values_and_the_card_its_supply() {
    let b = generic();
    b.ready();
    b.w(0x18, 1);
    b.dw.inject(Fault::DomainLost);
    assert_eq!((b.r(0x04), b.r(0x18), b.r(0x14), b.r(0x10)), (1, 0, 0xffff_ff40, 0));
    b.dw.card(|c| assert_eq!((c.powered, c.state), (true, 4)));
}

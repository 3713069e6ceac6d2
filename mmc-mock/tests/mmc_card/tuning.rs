//! When a host that samples late or early is right.

use crate::bench::{Bench, RCA, emmc};
use mmc_mock::card::{Card, Eye, MmcConfig, Sent};
use mmc_proto::bus::{Signal, Timing};
use mmc_time::Duration;

/// At 200 MHz on eight lines in HS200.
fn hs200(config: MmcConfig) -> Bench {
    let mut b = Bench::new(config);
    assert!(b.switch(183, 2) && b.switch(185, 2));
    b.card.signal(Signal::V1_8, Timing::Hs200, b.now);
    b.bus(200_000_000, 8);
    b
}
/// The phases, in steps of 10 degrees, that are right.
fn right(b: &Bench) -> Vec<u16> {
    (0..36).map(|i| i * 10).filter(|&p| b.card.samples_right(p, b.now)).collect()
}

#[test]
fn slow_modes_need_no_tuning_and_hs200_has_one_window() {
    let mut b = Bench::new(emmc(8));
    assert_eq!(right(&b).len(), 36);
    assert!(b.switch(185, 1) && b.switch(183, 2));
    b.bus(52_000_000, 8);
    assert_eq!(right(&b).len(), 36);
    let b = hs200(emmc(8));
    let window = right(&b);
    assert!((18..=26).contains(&window.len()), "0.6 of a period: {window:?}");
    let borders = (0..36).filter(|i| window.contains(&(i * 10)) != window.contains(&((i * 10 + 10) % 360)));
    assert_eq!(borders.count(), 2, "one piece: {window:?}");
    assert!(!window.contains(&180), "the middle of the period is wrong");
    b.no_violations();
}

#[test]
fn a_window_that_drifts_leaves_a_choice_behind() {
    let eye = Eye { drift_ps: 2500, drift_period: Duration::from_secs(60), ..Eye::new(4) };
    let mut b = hs200(MmcConfig { eye, ..emmc(8) });
    let tuned = right(&b);
    let middle = tuned[tuned.len() / 2];
    let wrong = (0..600).any(|i| !b.card.samples_right(middle, b.now + Duration::from_millis(100 * i)));
    assert!(wrong, "half a period in half a minute");
    b.now += Duration::from_secs(30);
    assert!(!right(&b).is_empty(), "tuned again, it is right again");
}

#[test]
fn the_enhanced_strobe_needs_no_tuning_at_all() {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(183, 2) && b.switch(185, 1) && b.switch(183, 0x86) && b.switch(185, 3));
    b.card.signal(Signal::V1_8, Timing::Hs400Es, b.now);
    b.bus(200_000_000, 8);
    assert_eq!(right(&b).len(), 36);
    assert_eq!(b.ext_csd()[185], 3);
    b.no_violations();
    // A host without the strobe has to tune, and cards before 5.1 have none.
    b.card.signal(Signal::V1_8, Timing::Hs400, b.now);
    assert!(right(&b).len() < 30);
    let mut b = Bench::new(emmc(7));
    assert!(b.switch(183, 2) && b.switch(185, 1) && !b.switch(183, 0x86));
}

#[test]
fn a_host_on_other_edges_or_another_level_is_told() {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(183, 2) && b.switch(185, 1) && b.switch(183, 6));
    b.card.signal(Signal::V1_8, Timing::High, b.now);
    b.bus(52_000_000, 8);
    b.short(17, 0);
    assert_eq!(b.card.send(&mut [0; 512], b.now), Sent::BadCrc);
    assert!(b.card.violations()[0].contains("both edges"), "{:?}", b.card.violations());
    b.card.signal(Signal::V1_8, Timing::Ddr52, b.now);
    assert_eq!(b.read(0), 0);
    let mut b = hs200(emmc(8));
    b.card.signal(Signal::V3_3, Timing::Hs200, b.now);
    b.short(13, RCA);
    assert!(b.card.violations()[0].contains("3.3 V"), "{:?}", b.card.violations());
}

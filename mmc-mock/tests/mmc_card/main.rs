//! What an eMMC card does for a host that follows the standard (`spec/card.md` §3, §12, §13.3, §17, §19), and to one that does
//! not.

mod bench;
mod partitions;
mod queue;
mod registers;
mod rpmb;
mod tuning;
mod work;

use bench::{Bench, RCA, SECTORS, SWITCH_ERROR, emmc};
use mmc_mock::card::{Card, MmcConfig, MmcQuirks, MmcState, Sent, Token};
use mmc_mock::timing::Profile;
use mmc_time::{Duration, Instant};

#[test]
fn each_revision_comes_up_goes_fast_and_keeps_data() {
    for revision in [3, 4, 5, 6, 7, 8] {
        let mut b = Bench::new(emmc(revision));
        let ext = b.ext_csd();
        assert_eq!(ext[192], revision);
        assert_eq!(u32::from_le_bytes([ext[212], ext[213], ext[214], ext[215]]), SECTORS);
        assert_eq!(
            (ext[503] & 1 == 1, ext[250] != 0, ext[196] & 0x10 != 0),
            (revision >= 5, revision >= 6, revision >= 6)
        );
        assert!(b.switch(185, 1) && b.switch(183, 2));
        b.bus(52_000_000, 8);
        assert_eq!((b.ext_csd()[183], b.card.width()), (2, 8));
        b.write(7, 0x77);
        b.write(SECTORS - 1, 0x99);
        assert_eq!((b.read(7), b.read(SECTORS - 1), b.read(8)), (0x77, 0x99, 0));
        assert_eq!(b.short(17, SECTORS) >> 31, 1, "behind the end");
        b.no_violations();
    }
}

#[test]
fn hs200_wants_its_width_first_and_tunes_with_the_blocks_of_the_standard() {
    let mut b = Bench::new(emmc(8));
    assert!(!b.switch(185, 2), "on one line");
    assert!(b.cmd(21, 0).is_none(), "tuning is for HS200");
    b.short(13, RCA);
    assert!(b.switch(183, 1) && b.switch(185, 2));
    b.bus(200_000_000, 4);
    b.short(21, 0);
    let mut four = [0; 64];
    assert_eq!(b.card.send(&mut four, b.now), Sent::Good);
    assert!(b.switch(183, 2));
    b.bus(200_000_000, 8);
    b.short(21, 0);
    let mut eight = [0; 128];
    assert_eq!(b.card.send(&mut eight, b.now), Sent::Good);
    assert_eq!(
        (&four[..4], &eight[..8]),
        (&[0xff, 0x0f, 0xff, 0x00][..], &[0xff, 0xff, 0, 0xff, 0xff, 0xff, 0, 0][..])
    );
    // HS400: back to high speed, double data rate, then up.
    assert!(!b.switch(185, 3));
    b.bus(52_000_000, 8);
    assert!(b.switch(185, 1) && b.switch(183, 6) && b.switch(185, 3));
    // A host whose clock is too fast for the mode is told.
    assert!(b.switch(185, 1));
    b.bus(200_000_000, 8);
    b.short(13, RCA);
    assert!(b.card.violations().last().unwrap().contains("high speed allows at most 52000000"));
}

#[test]
fn a_bus_test_finds_the_lines_that_are_there() {
    let mut b = Bench::new(emmc(8));
    b.bus(26_000_000, 8);
    b.short(19, 0);
    assert_eq!(b.card.take(&[0x55, 0xaa, 0, 0, 0, 0, 0, 0], true, b.now), Token::Accepted);
    assert_eq!(b.card.state(b.now), MmcState::Btst);
    b.short(14, 0);
    let mut back = [1; 8];
    assert_eq!(b.card.send(&mut back, b.now), Sent::Good);
    assert_eq!((back[..2].to_vec(), b.card.state(b.now)), (vec![0xaa, 0x55], MmcState::Tran));
    b.no_violations();
}

#[test]
fn what_may_not_be_written_answers_switch_error_and_stays() {
    let mut b = Bench::new(emmc(8));
    // Read-only, unknown, permanent, too large, not there (general purpose).
    for (offset, value) in [(192, 1), (215, 1), (155, 1), (33, 2), (179, 4), (185, 9), (183, 7), (500, 0)] {
        let before = b.card.ext_csd(offset);
        let low = offset as u32 & 0xff;
        assert!(!b.switch(low, value), "byte {low}");
        assert_eq!(b.card.ext_csd(offset), before);
        assert_eq!(b.short(13, RCA) & SWITCH_ERROR, 0, "told once");
    }
    // Bits: set and clear.
    b.short(6, 1 << 24 | 175 << 16 | 1 << 8);
    b.wait();
    assert_eq!(b.ext_csd()[175], 1);
    b.short(6, 2 << 24 | 175 << 16 | 1 << 8);
    b.wait();
    assert_eq!(b.ext_csd()[175], 0);
}

#[test]
fn boot_partitions_are_apart_and_can_be_protected() {
    let mut b = Bench::new(emmc(8));
    b.write(0, 1);
    for area in 1..=2 {
        assert!(b.switch(179, area));
        assert_eq!(b.read(0), 0);
        b.write(0, 10 + area as u8);
        assert_eq!(b.short(17, 2048) >> 31, 1, "a boot partition has 1 MiB");
        b.short(13, RCA);
    }
    assert!(b.switch(173, 1), "protect until power goes");
    b.write(0, 99);
    assert_eq!(b.short(24, 0) >> 26 & 1, 1, "WP_VIOLATION");
    assert_eq!(b.read(0), 12);
    b.cmd(0, 0);
    b.card.bus(400_000, 1, b.now);
    b.identify();
    assert_eq!((b.ext_csd()[179] & 7, b.read(0)), (0, 1), "CMD0 selects the user area");
}

#[test]
fn a_loss_of_power_takes_what_was_only_in_the_cache() {
    let mut b = Bench::new(emmc(8));
    b.write(1, 1);
    assert!(b.switch(33, 1));
    b.write(1, 2);
    b.write(2, 2);
    assert_eq!((b.read(1), b.card.dirty_sectors()), (2, 2));
    // A reliable write goes past the cache.
    b.short(23, 1 << 31 | 1);
    b.short(25, 3);
    assert_eq!(b.card.take(&[3; 512], true, b.now), Token::Accepted);
    b.wait();
    assert!(b.switch(32, 1), "flush");
    assert_eq!(b.card.dirty_sectors(), 0);
    b.write(1, 4);
    b.write(2, 4);
    b.write(2, 5);
    b.power_cycle();
    b.identify();
    assert_eq!((b.read(1), b.read(2), b.read(3)), (2, 2, 3), "back to the last flush");
    assert!(!b.switch(32, 1), "no cache is on after power-up");
    // With power-off notification nothing is lost.
    assert!(b.switch(33, 1) && b.switch(34, 1));
    b.write(1, 6);
    assert!(b.switch(34, 2));
    b.power_cycle();
    b.identify();
    assert_eq!(b.read(1), 6);
    b.no_violations();
}

#[test]
fn a_flush_that_never_ends_is_ended_by_an_interrupt() {
    let quirks = MmcQuirks { flush_never_ends: true, ..MmcQuirks::default() };
    let mut b = Bench::new(MmcConfig { quirks, ..emmc(8) });
    assert!(b.switch(161, 1) && b.switch(33, 1));
    b.write(0, 1);
    b.short(6, 3 << 24 | 32 << 16 | 1 << 8);
    assert!(b.card.busy_until(b.now).is_never(), "a host without a limit waits for ever");
    b.now += Duration::from_secs(30);
    assert_eq!(b.short(13, RCA) >> 8 & 31, 7 << 1, "prg, not ready");
    b.short(12, RCA | 1);
    b.wait();
    assert_eq!(b.card.state(b.now), MmcState::Tran);
    assert_eq!(b.read(0), 1);
    // Where the interrupt itself kills the card, a host must not use it.
    let quirks = MmcQuirks { hpi_kills: true, flush_never_ends: true, ..MmcQuirks::default() };
    let mut b = Bench::new(MmcConfig { quirks, ..emmc(8) });
    assert!(b.switch(161, 1) && b.switch(33, 1));
    b.short(6, 3 << 24 | 32 << 16 | 1 << 8);
    assert!(b.cmd(12, RCA | 1).is_none() && b.cmd(13, RCA).is_none());
}

#[test]
fn some_cards_do_not_survive_cmd0_while_they_power_up() {
    let quirks = MmcQuirks { early_cmd0_kills: true, ..MmcQuirks::default() };
    let config = MmcConfig { quirks, power_up: Duration::from_millis(300), ..emmc(6) };
    // Naive: a query, CMD0, and from the start again.
    let mut b = Bench::dark(config.clone());
    assert_eq!(b.short(1, 0), 0x40ff_8080);
    b.cmd(0, 0);
    b.now += Duration::from_secs(1);
    assert!(b.cmd(1, 0x40ff_8080).is_none(), "inactive");
    b.power_cycle();
    b.identify();
    // Good: the same query, then CMD1 until ready.
    let mut b = Bench::dark(config);
    b.short(1, 0);
    while b.short(1, 0x40ff_8080) >> 31 == 0 {
        b.now += Duration::from_millis(10);
    }
    assert!(b.now < Instant::from_millis(320));
    assert!(b.cmd(1, 0x40ff_8080).is_none(), "a second CMD1 after that gets no answer");
}

#[test]
fn a_sleeping_card_hears_only_the_call_to_wake() {
    let mut b = Bench::new(emmc(8));
    b.cmd(7, 0);
    b.short(5, RCA | 1 << 15);
    b.wait();
    assert!(b.cmd(13, RCA).is_none() && b.cmd(7, RCA).is_none());
    b.short(5, RCA);
    let before = b.now;
    b.wait();
    assert_eq!(b.now.since(before), Duration::from_nanos(100 << 17));
    b.short(7, RCA);
    assert_eq!(b.card.state(b.now), MmcState::Tran);
}

#[test]
fn erase_rounds_to_groups_and_trim_does_not() {
    let mut b = Bench::new(emmc(8));
    let ask = |b: &mut Bench, arg: u32, def: u32| {
        assert!(b.switch(175, def));
        for s in [0, 1023, 1024, 2047, 2048] {
            b.write(s, 7);
        }
        b.short(35, 1030);
        b.short(36, 1040);
        b.short(38, arg);
        b.wait();
        assert_eq!(b.short(13, RCA) >> 13, 0, "no error");
        [0, 1023, 1024, 2047, 2048].map(|s| b.read(s))
    };
    assert_eq!(ask(&mut b, 0, 1), [7, 7, 0, 0, 7]);
    assert_eq!(ask(&mut b, 1, 1), [7; 5]);
    assert_eq!(ask(&mut b, 0, 0), [7, 7, 0, 0, 7], "32 × 32 blocks");
    assert_eq!(b.short(38, 0) >> 28 & 1, 1, "ERASE_SEQ_ERROR");
    b.short(35, 5);
    assert_eq!(b.short(16, 512) >> 13 & 1, 1, "ERASE_RESET");
    let last = [(35, 9), (36, 8), (38, 1)].map(|(index, arg)| b.short(index, arg))[2];
    assert_eq!(last >> 27 & 1, 1, "ERASE_PARAM");
    // 4.3 has no trim.
    let mut b = Bench::new(emmc(3));
    let last = [(35, 0), (36, 8), (38, 1)].map(|(index, arg)| b.short(index, arg))[2];
    assert_eq!(last >> 27 & 1, 1);
}

#[test]
fn background_operations_are_asked_for_and_done() {
    let mut b = Bench::new(emmc(8));
    let block = vec![1; 8 << 20];
    for i in 0..17 {
        b.short(25, i * 16384);
        assert_eq!(b.card.take_many(&block, b.now), block.len());
        b.short(12, RCA);
        b.wait();
    }
    assert_eq!((b.short(13, RCA) >> 6 & 1, b.ext_csd()[246]), (1, 2), "urgent");
    assert!(b.switch(164, 1));
    assert_eq!((b.short(13, RCA) >> 6 & 1, b.ext_csd()[246]), (0, 0));
}

#[test]
fn up_to_2_gib_addresses_are_bytes_whatever_the_host_offers() {
    let mut b = Bench::new(MmcConfig::emmc(5, 3_145_728, Profile::ideal(), 0));
    b.write(512, 5);
    assert_eq!((b.read(512), b.read(0)), (5, 0));
    assert_eq!(b.short(24, 1) >> 30 & 1, 1, "a host that counts sectors: ADDRESS_ERROR");
    let mut out = [0; 512];
    b.card.area_mut(0).read(512, &mut out).unwrap();
    assert_eq!(out, [5; 512]);
}

//! Commands beside memory, secure erasing, sectors of 4 KiB, and what a reset keeps.

use crate::bench::{Bench, RCA, emmc};
use mmc_mock::card::MmcConfig;
use mmc_mock::card::{Card, MmcQuirks, MmcState, Token};
use mmc_time::Duration;

#[test]
fn class_8_is_there_where_the_csd_says_so() {
    let mut b = Bench::new(emmc(8));
    for index in [55, 56, 20, 39, 40, 53] {
        assert!(b.cmd(index, RCA).is_none(), "CMD{index}");
        b.short(13, RCA);
    }
    let mut config = emmc(8);
    config.csd[4] |= 0x10;
    let mut b = Bench::new(config);
    assert_eq!(b.short(55, RCA) >> 5 & 1, 1, "APP_CMD");
    assert_eq!(b.put(56, &[7; 512]) & 0xffff_0000, 0);
    assert_eq!(b.get(56, 1, 512), [7; 512]);
    // What follows CMD55 is the plain command.
    b.short(55, RCA);
    assert_eq!(b.short(13, RCA) >> 9 & 15, 4);
    assert_eq!(b.put(49, &[0; 512]) & 0xffff_0000, 0, "SET_TIME");
    b.no_violations();
}

#[test]
fn packed_commands_are_refused() {
    let mut b = Bench::new(emmc(8));
    assert_eq!((b.ext_csd()[500], b.ext_csd()[501]), (0, 0));
    assert!(b.cmd(23, 1 << 30 | 3).is_none());
    assert_eq!(b.short(13, RCA) >> 22 & 1, 1);
}

#[test]
fn secure_trim_marks_first_and_erases_then() {
    let mut b = Bench::new(emmc(8));
    for s in 0..4 {
        b.write(s, 7);
    }
    let erase = |b: &mut Bench, from: u32, to: u32, arg: u32| {
        for (index, arg) in [(35, from), (36, to), (38, arg)] {
            b.short(index, arg);
        }
        let took = b.card.busy_until(b.now).since(b.now);
        b.wait();
        took
    };
    erase(&mut b, 0, 0, 0x8000_0001);
    erase(&mut b, 2, 2, 0x8000_0001);
    assert_eq!([0, 1, 2, 3].map(|s| b.read(s)), [7; 4], "marked only");
    let secure = erase(&mut b, 0, 0, 0x8000_8000);
    assert_eq!([0, 1, 2, 3].map(|s| b.read(s)), [0, 7, 0, 7]);
    let plain = erase(&mut b, 1, 1, 1);
    assert_eq!(secure, plain.saturating_mul(3), "SEC_TRIM_MULT");
    assert_eq!(b.read(1), 0);
    assert_eq!(b.short(13, RCA) >> 26, 0);
    let all = erase(&mut b, 0, 0, 0x8000_0000);
    assert_eq!((all, b.read(3)), (plain.saturating_mul(3), 0), "the whole group, SEC_ERASE_MULT");
    assert!(b.switch(165, 1), "sanitize");
    b.no_violations();
}

#[test]
fn sectors_of_4_kib_are_moved_eight_at_a_time() {
    let mut config = emmc(8);
    config.ext_csd.as_mut().unwrap()[63] = 1;
    let mut b = Bench::new(config);
    b.write(1, 1);
    assert!(b.switch(62, 1), "USE_NATIVE_SECTOR");
    assert_eq!(b.ext_csd()[61], 0, "from the next power-up on");
    b.power_cycle();
    b.identify();
    assert_eq!(b.ext_csd()[61], 1);
    assert_eq!(b.write_counted(8, 8, &[3; 4096]) & 0xffff_0000, 0);
    assert_eq!(b.read_counted(8, 8), [3; 4096]);
    for (index, count, sector, bit) in
        [(24, 0, 8, 29), (25, 7, 8, 29), (25, 8, 4, 30), (18, 8, 12, 30), (17, 0, 0, 29)]
    {
        b.short(23, count);
        assert_eq!(b.short(index, sector) >> bit & 1, 1, "CMD{index} {count} {sector}");
        assert_eq!(b.card.state(b.now), MmcState::Tran);
    }
    for (index, arg) in [(35, 8), (36, 15), (38, 1)] {
        b.short(index, arg);
    }
    b.wait();
    assert_eq!(b.read_counted(8, 8), [0; 4096]);
    b.no_violations();
}

#[test]
fn a_transfer_with_its_crc_wrong_reaches_no_register() {
    let mut b = Bench::new(emmc(8));
    b.short(27, 0);
    assert_eq!(b.card.take(&[0; 16], false, b.now), Token::CrcError);
    b.wait();
    assert_eq!((b.card.state(b.now), b.short(13, RCA) >> 16 & 1), (MmcState::Tran, 0));
}

#[test]
fn a_card_that_is_polled_too_fast_starts_again() {
    let quirks = MmcQuirks { restless: Duration::from_millis(3), ..MmcQuirks::default() };
    let mut b = Bench::dark(MmcConfig { quirks, ..emmc(6) });
    for _ in 0..2000 {
        assert_eq!(b.short(1, 0x40ff_8080) >> 31, 0);
        b.now += Duration::from_millis(1);
    }
    b.power_cycle();
    b.identify();
    b.no_violations();
}

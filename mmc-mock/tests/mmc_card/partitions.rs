//! Partitions for general purpose, boot partitions, write protection, and the password.

use crate::bench::{Bench, RCA, SECTORS, emmc};
use mmc_mock::card::{Card, MmcConfig, MmcState, Token};
use mmc_mock::timing::Profile;

/// WP_VIOLATION.
fn refused(status: u32) -> bool {
    status >> 26 & 1 == 1
}

/// A card with one partition of 8 MiB and one of 24 MiB.
fn partitioned() -> Bench {
    let mut b = Bench::new(emmc(8));
    b.write(5, 0x55);
    assert!(!b.switch(143, 1), "ERASE_GROUP_DEF comes first");
    assert!(b.switch(175, 1) && b.switch(143, 1) && b.switch(149, 3) && b.switch(156, 2));
    assert!(!b.switch(179, 4), "not there before it is completed");
    assert!(b.switch(155, 1));
    assert!(!b.switch(143, 2) && !b.switch(155, 0), "once");
    assert!(!b.switch(179, 4), "nor before power was off");
    b.power_cycle();
    b.identify();
    b
}

#[test]
fn partitions_for_general_purpose_are_made_once_and_take_from_the_user_area() {
    let mut b = partitioned();
    let ext = b.ext_csd();
    let user = u32::from_le_bytes(ext[212..216].try_into().unwrap());
    assert_eq!((user, ext[155]), (SECTORS - 4 * 16384, 1));
    assert_eq!(b.read(5), 0, "all that was there is gone");
    assert_eq!(b.short(17, user) >> 31, 1);
    b.short(13, RCA);
    for (area, sectors) in [(4, 16384), (6, 3 * 16384)] {
        assert!(b.switch(179, area));
        b.write(sectors - 1, area as u8);
        assert_eq!(b.short(17, sectors) >> 31, 1, "behind the end");
        b.short(13, RCA);
    }
    assert!(!b.switch(179, 5), "the second was not made");
    b.power_cycle();
    b.identify();
    assert!(b.switch(179, 4));
    assert_eq!(b.read(16383), 4);
    b.no_violations();
}

#[test]
fn more_than_there_is_cannot_be_partitioned() {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(175, 1) && b.switch(144, 4));
    assert!(!b.switch(155, 1), "1024 units of 8 MiB are all of 8 GiB");
    assert!(b.switch(143, 0xff) && b.switch(144, 3) && b.switch(155, 1));
    // A partition larger than 4 GiB: its size does not fit 32 bits of bytes.
    b.power_cycle();
    b.identify();
    assert!(b.switch(179, 4));
    b.write(1023 * 16384 - 1, 0x21);
    assert_eq!(b.read(1023 * 16384 - 1), 0x21);
}

#[test]
fn a_dump_with_partitions_is_a_card_with_them() {
    let mut config = emmc(8);
    let ext = config.ext_csd.as_mut().unwrap();
    (ext[155], ext[152]) = (1, 2);
    let mut b = Bench::new(config);
    assert!(b.switch(179, 7));
    b.write(32767, 3);
    assert_eq!(b.short(24, 32768) >> 31, 1);
}

#[test]
fn boot_partitions_are_protected_together_or_one_by_one() {
    let mut b = Bench::new(emmc(8));
    let write = |b: &mut Bench, area| {
        assert!(b.switch(179, area));
        refused(b.write(0, 1))
    };
    // SEC_SEL and PWR_SEC: the second alone, until power goes.
    assert!(b.switch(173, 0x83));
    assert_eq!((write(&mut b, 1), write(&mut b, 2)), (false, true));
    assert_eq!(b.ext_csd()[174], 0b0100);
    assert!(!b.switch(173, 0), "not before power was off");
    b.cmd(0, 0);
    b.card.bus(400_000, 1, b.now);
    b.identify();
    assert!(write(&mut b, 2), "CMD0 is no loss of power");
    b.power_cycle();
    b.identify();
    assert!(!write(&mut b, 2));
    // For ever, the first.
    assert!(b.switch(173, 0x84));
    b.power_cycle();
    b.identify();
    assert_eq!((write(&mut b, 1), write(&mut b, 2)), (true, false));
    assert_eq!(b.ext_csd()[174], 0b0010);
    assert!(!b.switch(173, 0));
    // Protection that is disabled cannot be had.
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(173, 0x50) && !b.switch(173, 0x55));
    assert!(!write(&mut b, 1));
    // BOOT_CONFIG_PROT: what boots stays.
    assert!(b.switch(179, 0x08) && b.switch(178, 1) && !b.switch(179, 0x10) && b.switch(179, 0x08));
    for index in [28, 42] {
        assert!(b.switch(179, 0x09));
        assert!(b.cmd(index, 0).is_none(), "CMD{index} is not for a boot partition");
        b.short(13, RCA);
        assert!(b.switch(179, 0x08));
    }
}

#[test]
fn groups_are_protected_for_a_while_a_power_cycle_or_ever() {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(175, 1));
    let group = 16 * 1024;
    b.short(28, 5);
    b.wait();
    assert!(b.switch(171, 1));
    b.short(28, group);
    b.wait();
    assert!(b.switch(171, 4));
    b.short(28, 3 * group + 7);
    b.wait();
    assert!(b.switch(171, 0));
    assert_eq!(b.get(30, 0, 4), [0, 0, 0, 0b1011]);
    assert_eq!(b.get(31, 0, 8), [0, 0, 0, 0, 0, 0, 0, 0b1100_1001]);
    assert_eq!(b.get(30, group, 4), [0, 0, 0, 0b101], "the addressed group is the last bit");
    assert!(refused(b.write(0, 1)) && refused(b.write(group - 1, 1)) && !refused(b.write(2 * group, 1)));
    // A transfer stops at the border.
    b.short(25, 3 * group - 1);
    assert_eq!(b.card.take(&[1; 512], true, b.now), Token::Accepted);
    assert_eq!(b.card.take(&[1; 512], true, b.now), Token::Nothing);
    assert!(refused(b.short(12, RCA)));
    b.wait();
    // CMD29 undoes only the first kind.
    for (sector, stays) in [(0, false), (group, true), (3 * group, true)] {
        assert_eq!(refused(b.short(29, sector)), stays, "sector {sector}");
        b.wait();
    }
    assert_eq!(b.get(31, 0, 8)[7], 0b1100_1000);
    b.power_cycle();
    b.identify();
    assert!(b.switch(175, 1));
    assert_eq!(b.get(31, 0, 8)[7], 0b1100_0000, "power-on protection went with power");
    assert_eq!(b.short(28, SECTORS) >> 31, 1);
    // Disabled kinds.
    assert!(b.switch(171, 0x18) && !b.switch(171, 0x1c) && !b.switch(171, 0x19) && !b.switch(171, 0x08));
    b.no_violations();
}

#[test]
fn an_erase_leaves_out_what_is_protected_and_says_so() {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(175, 1));
    let group = 16 * 1024;
    for i in 0..3 {
        b.write(i * group, 7);
    }
    b.short(28, group);
    b.wait();
    for (index, arg) in [(35, 0), (36, 3 * group - 1), (38, 0)] {
        b.short(index, arg);
    }
    b.wait();
    assert_eq!(b.short(13, RCA) >> 15 & 1, 1, "WP_ERASE_SKIP");
    assert_eq!([0, group, 2 * group].map(|s| b.read(s)), [0, 7, 0]);
}

#[test]
fn the_csd_protects_all_of_the_card_and_can_be_programmed() {
    let mut b = Bench::new(emmc(8));
    let csd = b.card.config().csd;
    let with = |bits: u8| {
        let mut new = csd;
        new[14] |= bits;
        new
    };
    assert_eq!(b.put(27, &with(0x10)) >> 16 & 1, 0);
    assert!(refused(b.write(0, 1)), "TMP_WRITE_PROTECT");
    assert_eq!(b.put(27, &csd) >> 16 & 1, 0);
    assert!(!refused(b.write(0, 1)));
    let mut other = csd;
    other[5] ^= 1;
    assert_eq!(b.put(27, &other) >> 16 & 1, 1, "CID_CSD_OVERWRITE: a part that is read only");
    // CD_PERM_WP_DIS: for ever is not allowed any more.
    assert!(b.switch(171, 0x40));
    assert_eq!(b.put(27, &with(0x20)) >> 16 & 1, 1);
    let mut b = Bench::new(emmc(8));
    assert_eq!(b.put(27, &with(0x20)) >> 16 & 1, 0);
    assert_eq!(b.put(27, &csd) >> 16 & 1, 1, "there is no way back");
    assert!(refused(b.write(0, 1)));
    // The CID was programmed by its maker.
    assert_eq!(b.put(26, &[0; 16]) >> 16 & 1, 1);
}

#[test]
fn a_password_locks_the_card() {
    let lock = |mode: u8, password: &[u8]| {
        let mut block = vec![0; 512];
        (block[0], block[1]) = (mode, password.len() as u8);
        block[2..2 + password.len()].copy_from_slice(password);
        block
    };
    let failed = |status: u32| status >> 24 & 1 == 1;
    // One byte, whose length CMD16 has said.
    let erase = |b: &mut Bench| {
        b.short(16, 1);
        let status = b.put(42, &[8]);
        b.short(16, 512);
        status
    };
    let mut b = Bench::new(emmc(8));
    b.write(3, 9);
    assert!(!failed(b.put(42, &lock(1, b"secret"))));
    b.power_cycle();
    b.identify();
    assert_eq!(b.short(13, RCA) >> 25 & 1, 1, "DEVICE_IS_LOCKED");
    assert!(b.switch(185, 0), "class 0 goes on");
    b.ext_csd();
    for index in [17, 18, 24, 25, 23, 35, 28, 30, 27] {
        assert!(b.cmd(index, 0).is_none(), "CMD{index}");
        b.short(13, RCA);
    }
    assert!(failed(b.put(42, &lock(0, b"guess"))));
    assert!(!failed(b.put(42, &lock(0, b"secret"))));
    assert_eq!((b.short(13, RCA) >> 25 & 1, b.read(3)), (0, 9));
    // Whoever lost the password loses the contents.
    assert!(!failed(b.put(42, &lock(4, b"secret"))));
    assert!(!failed(erase(&mut b)));
    assert_eq!((b.short(13, RCA) >> 25 & 1, b.read(3)), (0, 0));
    // Not with a group that is protected for ever; and no password where that is disabled.
    b.write(3, 9);
    assert!(b.switch(171, 4));
    b.short(28, 0);
    b.wait();
    assert!(!failed(b.put(42, &lock(5, b"again"))) && failed(erase(&mut b)));
    assert!(b.switch(171, 0x84) && failed(b.put(42, &lock(5, b"againother"))));
    assert_eq!(b.card.violations().len(), 9, "each command to the locked card");
    // A card that counts bytes: CMD16 says how long the block is.
    let mut b = Bench::new(MmcConfig::emmc(5, 3_145_728, Profile::ideal(), 0));
    b.short(16, 5);
    assert!(!failed(b.put(42, &[5, 3, 1, 2, 3])));
    b.short(16, 1);
    assert!(!failed(b.put(42, &[8])));
    assert_eq!(b.card.state(b.now), MmcState::Tran);
}

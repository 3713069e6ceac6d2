//! What an interrupt or a loss of power breaks off, and what a barrier keeps in order.

use crate::bench::{Bench, RCA, emmc};
use mmc_mock::card::{Card, MmcCard, MmcConfig, MmcState, Token};
use mmc_mock::fault::{Faulty, Medium};
use mmc_mock::timing::Profile;
use mmc_time::{Duration, Instant};

/// Eight sectors written without waiting; how long the card is busy.
fn eight(b: &mut Bench, fill: u8) -> Duration {
    b.short(23, 8);
    b.short(25, 0);
    assert_eq!(b.card.take_many(&[fill; 4096], b.now), 4096);
    b.card.busy_until(b.now).since(b.now)
}
fn stored(b: &mut Bench) -> Vec<u8> {
    let mut all = vec![0; 4096];
    b.card.area_mut(0).read(0, &mut all).unwrap();
    all.chunks(512).map(|s| s[0]).collect()
}
/// A card whose writes take long, and whose interrupts are quick.
fn slow() -> MmcConfig {
    let profile = Profile {
        wr_rand: Duration::from_millis(800),
        wr_seq: Duration::from_millis(800),
        ..Profile::ideal()
    };
    MmcConfig { profile, ..emmc(8) }
}

#[test]
fn an_interrupted_write_says_how_many_sectors_are_safe() {
    let mut b = Bench::new(slow());
    assert!(b.switch(161, 1));
    eight(&mut b, 1);
    b.wait();
    let busy = eight(&mut b, 2);
    assert_eq!(busy, Duration::from_millis(800));
    b.now += Duration::from_millis(400);
    b.short(12, RCA | 1);
    b.wait();
    assert_eq!(b.card.state(b.now), MmcState::Tran);
    let ext = b.ext_csd();
    assert_eq!(u32::from_le_bytes(ext[242..246].try_into().unwrap()), 4);
    assert_eq!(stored(&mut b), [2, 2, 2, 2, 1, 1, 1, 1]);
    // One that nobody interrupts is whole.
    eight(&mut b, 3);
    b.wait();
    assert_eq!((b.ext_csd()[242], stored(&mut b)), (8, vec![3; 8]));
    b.no_violations();
}

#[test]
fn what_cannot_be_interrupted_goes_on() {
    let mut b = Bench::new(emmc(8));
    assert!(b.switch(161, 1));
    b.short(6, 0x03b3_0100);
    let until = b.card.busy_until(b.now);
    b.short(12, RCA | 1);
    assert_eq!(b.card.busy_until(b.now), until, "a switch of partitions");
    b.wait();
    // Without HPI_MGMT an interrupt is no command.
    let mut b = Bench::new(slow());
    eight(&mut b, 1);
    assert!(b.cmd(12, RCA | 1).is_none());
}

#[test]
fn background_operations_can_be_interrupted_or_run_by_themselves() {
    let fill = |b: &mut Bench| {
        let block = vec![1; 8 << 20];
        for i in 0..25 {
            b.short(25, i * 16384);
            assert_eq!(b.card.take_many(&block, b.now), block.len());
            b.short(12, RCA);
            b.wait();
        }
    };
    let mut b = Bench::new(MmcConfig { profile: Profile::ideal(), ..emmc(8) });
    assert!(b.switch(161, 1));
    fill(&mut b);
    assert_eq!(b.ext_csd()[246], 3);
    b.short(6, 0x03a4_0100);
    b.now += Duration::from_millis(150);
    b.short(12, RCA | 1);
    b.wait();
    assert_eq!((b.ext_csd()[246], b.short(13, RCA) >> 6 & 1), (1, 0), "half of it done");
    // Automatic ones: nobody has to ask; BKOPS_EN bit 0 is for ever, so a host sets bit 1 alone.
    let mut b = Bench::new(MmcConfig { profile: Profile::ideal(), ..emmc(8) });
    fill(&mut b);
    assert!(b.switch(163, 2));
    b.now += Duration::from_secs(1);
    assert_eq!(b.ext_csd()[246], 0);
    assert!(b.switch(163, 3) && !b.switch(163, 2), "written once");
}

#[test]
fn a_loss_of_power_breaks_off_what_was_being_programmed() {
    let mut b = Bench::new(slow());
    eight(&mut b, 1);
    b.wait();
    eight(&mut b, 2);
    b.now += Duration::from_millis(300);
    assert_eq!(b.card.dirty_sectors(), 8);
    b.power_cycle();
    assert_eq!(stored(&mut b), [2, 2, 2, 1, 1, 1, 1, 1], "three eighths of the time");
    // By then it is over.
    b.identify();
    eight(&mut b, 3);
    b.wait();
    b.short(13, RCA);
    b.power_cycle();
    assert_eq!(stored(&mut b), [3; 8]);
}

#[test]
fn an_interrupted_flush_keeps_the_rest_in_the_cache() {
    let profile = Profile { wr_bps: 4096, ..Profile::ideal() };
    let mut b = Bench::new(MmcConfig { profile, ..emmc(8) });
    assert!(b.switch(161, 1) && b.switch(33, 1));
    eight(&mut b, 5);
    b.wait();
    b.short(6, 0x0320_0100);
    b.now += Duration::from_millis(500);
    b.short(12, RCA | 1);
    b.wait();
    assert_eq!(b.card.dirty_sectors(), 4, "half a second of one");
    b.power_cycle();
    assert_eq!(stored(&mut b), [5, 5, 5, 5, 0, 0, 0, 0]);
}

/// Three sectors in the cache, with a barrier behind the first if `barrier`; what a loss of power that programs `keep` leaves.
fn lost(ext: &[(usize, u8)], barrier: bool, keep: &str) -> Vec<u8> {
    let mut config = MmcConfig { profile: Profile::ideal(), power_up: Duration::ZERO, ..emmc(8) };
    for &(at, value) in ext {
        config.ext_csd.as_mut().unwrap()[at] = value;
    }
    let script = format!("at 5s: power-loss {keep}").parse().unwrap();
    let mut card = Faulty::new(MmcCard::new(config).unwrap(), script).unwrap();
    let mut now = Instant::ZERO;
    let mut command = |card: &mut Faulty<MmcCard>, index, arg| {
        now += Duration::from_millis(50);
        card.command(index, arg, now);
        now
    };
    card.power(true, Instant::ZERO);
    card.bus(400_000, 1, Instant::ZERO);
    card.idle_clocks(80);
    for (index, arg) in [(1, 0x40ff_8080), (2, 0), (3, RCA), (7, RCA), (6, 0x0321_0100), (6, 0x031f_0100)] {
        command(&mut card, index, arg);
    }
    for sector in 0..3 {
        let now = command(&mut card, 24, sector);
        assert_eq!(card.take(&[sector as u8 + 1; 512], true, now), Token::Accepted);
        if barrier && sector == 0 {
            command(&mut card, 6, 0x0320_0200);
        }
    }
    card.command(13, RCA, Instant::from_secs(5));
    let mut all = vec![0; 1536];
    card.with_storage(&mut |s| s.read(0, &mut all).unwrap());
    all.chunks(512).map(|s| s[0]).collect()
}

#[test]
fn nothing_behind_a_barrier_survives_without_all_before_it() {
    assert_eq!(lost(&[], false, "keep 2"), [0, 0, 3], "any order");
    assert_eq!(lost(&[], true, "keep 2"), [0, 0, 0]);
    assert_eq!(lost(&[], true, "keep 0 2"), [1, 0, 3], "behind the barrier any order");
    assert_eq!(lost(&[], true, "all"), [1, 2, 3]);
    // CACHE_FLUSH_POLICY: written out in order.
    assert_eq!(lost(&[(240, 1)], false, "keep 0 2"), [1, 0, 0]);
    assert_eq!(lost(&[(240, 1)], false, "keep 0 1"), [1, 2, 0]);
    // Barriers that are not supported are refused.
    let mut b = Bench::new(emmc(7));
    assert!(b.switch(33, 1) && !b.switch(31, 1) && !b.switch(32, 2));
    assert!(!Bench::new(emmc(8)).switch(32, 2), "the cache is off");
}

//! The command queue.

use crate::bench::{Bench, RCA, SWITCH_ERROR, emmc};
use mmc_mock::card::{Card, MmcState, Sent, Token};

const READ: u32 = 1 << 30;

fn queueing() -> Bench {
    let mut b = Bench::new(emmc(8));
    for index in 44..=48 {
        assert!(b.cmd(index, 1).is_none(), "CMD{index} with the queue off");
        b.short(13, RCA);
    }
    assert!(b.switch(15, 1));
    b
}
/// CMD44 and CMD45.
fn tell(b: &mut Bench, id: u32, flags: u32, sector: u32, blocks: u32) {
    b.short(44, flags | id << 16 | blocks);
    b.short(45, sector);
}

#[test]
fn tasks_run_in_the_order_they_are_called() {
    let mut b = queueing();
    tell(&mut b, 5, 0, 100, 2);
    tell(&mut b, 31, 0, 200, 1);
    assert_eq!(b.short(13, RCA | 1 << 15), 1 << 31 | 1 << 5, "both are ready");
    for (id, blocks) in [(31, 1), (5, 2)] {
        b.short(47, id << 16);
        for i in 0..blocks {
            assert_eq!(b.card.take(&[id as u8 + i; 512], true, b.now), Token::Accepted);
        }
        b.wait();
    }
    assert_eq!(b.short(13, RCA | 1 << 15), 0);
    tell(&mut b, 0, READ, 100, 2);
    b.short(46, 0);
    let mut back = [0; 1024];
    assert_eq!(b.card.send_many(&mut back, b.now), 1024);
    assert_eq!((back[0], back[512], b.card.state(b.now)), (5, 6, MmcState::Tran));
}

#[test]
fn what_cannot_be_queued_is_refused() {
    let mut b = queueing();
    let illegal = |b: &mut Bench, index, arg| {
        assert!(b.cmd(index, arg).is_none(), "CMD{index} {arg:#x}");
        assert_eq!(b.short(13, RCA) >> 22 & 1, 1);
    };
    for index in [17, 18, 24, 25] {
        illegal(&mut b, index, 0);
    }
    illegal(&mut b, 44, 0);
    illegal(&mut b, 45, 0);
    // Another command in between drops the first half.
    b.short(44, 1);
    b.short(13, RCA);
    illegal(&mut b, 45, 0);
    tell(&mut b, 1, READ, 0, 1);
    illegal(&mut b, 44, 1 << 16 | 1);
    illegal(&mut b, 47, 1 << 16);
    illegal(&mut b, 46, 2 << 16);
    assert!(!b.switch(15, 0), "not with a task in it");
    assert!(!b.switch(179, 3));
    b.short(48, 1 << 16 | 2);
    b.wait();
    assert_eq!(b.short(13, RCA | 1 << 15), 0);
    tell(&mut b, 1, READ, 0, 1);
    tell(&mut b, 2, READ, 0, 1);
    b.short(48, 1);
    b.wait();
    assert_eq!(b.short(13, RCA | 1 << 15), 0);
    // Behind the end: told when it runs.
    tell(&mut b, 1, READ, u32::MAX, 1);
    assert_eq!(b.short(46, 1 << 16) >> 31, 1);
    assert_eq!(b.card.send(&mut [0; 512], b.now), Sent::Nothing);
    assert!(b.switch(15, 0));
    assert_eq!(b.read(0), 0);
    b.short(6, 0x030f_0100);
    b.wait();
    assert_eq!(b.short(13, RCA) & SWITCH_ERROR, 0);
    b.cmd(0, 0);
    b.card.bus(400_000, 1, b.now);
    b.identify();
    assert_eq!(b.ext_csd()[15], 0, "off after a reset");
}

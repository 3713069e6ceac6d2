//! Which registers are touched, and how often: exact lists in steady state, and a table of counts.

mod bench;

use bench::recorder::Recorded;
use bench::{Bench, Mode, buffers};
use mmc_dw_hsdk::platform::HSDK;
use mmc_hal::Dir;
use mmc_mock::dw::Config;
use mmc_proto::machine::{Identify, Transfer, TransferOptions};

#[test]
fn a_steady_4_kib_read_is_these_accesses() {
    let mut b = Recorded::new(Config::hsdk(), HSDK, u32::MAX.into());
    let identify = Identify::new(&b.capabilities());
    let card = b.run(identify, buffers(&[512])).0.unwrap().traits;
    let mut list = Vec::new();
    for _ in 0..2 {
        b.list();
        let read = Transfer::new(&card, Dir::Read, 7, 8, TransferOptions::default());
        b.run(read, buffers(&[4096])).0.unwrap();
        list = b.list();
    }
    let expected = [
        // CMD23, 8 blocks
        "W INTMASK bfcf",
        "W CMDARG 8",
        "W CMD a0002157",
        "r RINTSTS 4",
        "W RINTSTS 4",
        "r RESP0 900",
        // CMD18; FIFOTH, BLKSIZ, BYTCNT, DBADDR, BMOD and CTRL are as they were
        "W INTMASK bfcb",
        "W PLDMND 1",
        "W CMDARG 7",
        "W CMD a0002352",
        "r RINTSTS c",
        "r IDSTS 2",
        "W RINTSTS c",
        "W IDSTS 2",
        "r RESP0 900",
    ];
    assert_eq!(list, expected);
    assert_eq!(b.dw.violations(), Vec::<String>::new());
}

/// Register accesses and interrupts of a transfer in steady state, by interrupts.
#[test]
fn what_a_transfer_costs() {
    let cost = |dir: Dir, len: usize, open_ended: bool| {
        let (mut b, card) = Bench::identified(Mode::Interrupts);
        let mut last = (0, 0);
        for k in 0..3 {
            let (c, i) = (b.dw.counters(), b.interrupts);
            let payload = buffers(&vec![4096; len / 4096]);
            let (r, _) = b.transfer(&card, dir, 4096 * k, payload, TransferOptions { open_ended });
            r.unwrap();
            let d = b.dw.counters();
            last = (d.reads + d.writes - c.reads - c.writes, b.interrupts - i);
        }
        b.assert_clean();
        last
    };
    let table = [
        ("4 KiB read, CMD23", cost(Dir::Read, 4096, false), (15, 2)),
        ("4 KiB read, CMD12", cost(Dir::Read, 4096, true), (15, 2)),
        ("1 MiB read, CMD23", cost(Dir::Read, 1 << 20, false), (15, 2)),
        ("512 KiB write, CMD23, CMD13", cost(Dir::Write, 1 << 19, false), (20, 3)),
        ("512 KiB write, CMD12, CMD13", cost(Dir::Write, 1 << 19, true), (20, 3)),
    ];
    for (what, got, want) in table {
        println!("{what}: {} register accesses, {} interrupts", got.0, got.1);
        assert_eq!(got, want, "{what}");
    }
}

//! Which registers are touched, and how often: exact lists in steady state, and a table of counts.

mod bench;

use bench::recorder::Recorded;
use bench::{Bench, Mode, buffers};
use mmc_dw_hsdk::platform::HSDK;
use mmc_hal::Dir;
use mmc_mock::dw::Config;
use mmc_proto::command::{Command, Stop};
use mmc_proto::host::{Host, Operation, Progress};
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
        ("4 KiB read, automatic stop", automatic(4096), (9, 1)),
        ("1 MiB read, automatic stop", automatic(1 << 20), (9, 1)),
    ];
    for (what, got, want) in table {
        println!("{what}: {} register accesses, {} interrupts", got.0, got.1);
        assert_eq!(got, want, "{what}");
    }
    // What the project has promised.
    assert!(table[0].1.0 <= 18 && table[0].1.1 == 2 && table[5].1.0 <= 12 && table[5].1.1 == 1);
}

/// The same of a read that the controller stops by itself.
fn automatic(len: usize) -> (u64, u64) {
    let (mut b, _) = Bench::identified(Mode::Interrupts);
    let mut last = (0, 0);
    for k in 0..3 {
        let (c, i) = (b.dw.counters(), b.interrupts);
        let read = Command::read_multiple_block(4096 * k, (len / 512) as u32, Stop::Auto);
        let op = Operation::Transfer(read, buffers(&vec![4096; len / 4096]));
        let reply = b.operate(op, mmc_time::Duration::from_secs(1)).result.unwrap();
        assert_eq!(reply.bytes, len as u64);
        let d = b.dw.counters();
        last = (d.reads + d.writes - c.reads - c.writes, b.interrupts - i);
    }
    assert_eq!(b.seen().iter().rev().take(2).collect::<Vec<_>>(), [&12, &18], "the card was stopped");
    b.assert_clean();
    last
}

/// The next read is handed over while the present one runs: between its end and the next doorbell nothing is left to
/// do but the doorbell.
#[test]
fn a_prepared_transfer_needs_its_doorbell_only() {
    for mode in [Mode::Interrupts, Mode::Polled] {
        let (mut b, _) = Bench::identified_with_ring(mode, 16_384);
        let limit = mmc_time::Duration::from_secs(1);
        let data = bench::pattern(64 * 65_536, 1);
        b.store(0, &data);
        let read = |k: u32| Command::read_multiple_block(k * 128, 128, Stop::Auto);
        let buffer = || buffers(&[4096; 16]);
        let now = b.clock.now();
        b.host.submit(Operation::Transfer(read(0), buffer()), now + limit, now).unwrap();
        let mut writes = (0, 0);
        for k in 0..64_u32 {
            if k < 63 {
                let before = b.descriptor_writes();
                b.host.prepare(read(k + 1), buffer()).map_err(|e| e.error).unwrap();
                writes.0 += b.descriptor_writes() - before;
                assert_eq!(
                    b.host.prepare(read(9), buffer()).unwrap_err().error.cause,
                    mmc_proto::host::Cause::Busy
                );
            }
            let payload = loop {
                match b.host.poll(b.clock.now()) {
                    Progress::Done(done) => break done,
                    Progress::Waiting { until, .. } => b.pass(until),
                    Progress::Idle => panic!("idle"),
                }
            };
            assert_eq!(payload.result.unwrap().bytes, 65_536);
            let mmc_proto::host::Returned::Back(p) = payload.payload else { panic!("kept") };
            assert!(bench::bytes(p) == data[k as usize * 65_536..][..65_536], "{k}");
            if k < 63 {
                let (before, c, now) = (b.descriptor_writes(), b.dw.counters(), b.clock.now());
                b.host.submit_prepared(now + limit, now).unwrap();
                writes.1 += b.descriptor_writes() - before;
                let d = b.dw.counters();
                if mode == Mode::Interrupts {
                    assert_eq!(d.reads + d.writes - c.reads - c.writes, 4, "DBADDR, PLDMND, CMDARG, CMD");
                }
            }
        }
        let t = b.host.engine().transfers();
        println!(
            "{mode:?}: {writes:?} words of descriptors while data move, and between two transfers; {t:?}"
        );
        assert_eq!(writes, (63 * 16 * 4, 0));
        assert_eq!(t.prepared, 63);
        assert_eq!(b.memory.regions(), 1);
        b.assert_clean();
    }
}

/// What is prepared survives a failure of the running transfer, and can be taken back.
#[test]
fn a_prepared_transfer_outlives_the_reset_before_it() {
    use mmc_mock::dw::Fault;
    let (mut b, _) = Bench::identified_with_ring(Mode::Interrupts, 16_384);
    let limit = mmc_time::Duration::from_secs(1);
    let data = bench::pattern(8192, 2);
    b.store(64, &data);
    let read = |lba: u32| Command::read_multiple_block(lba, 8, Stop::Auto);
    b.dw.inject(Fault::ReadCrc(2));
    let now = b.clock.now();
    b.host.submit(Operation::Transfer(read(64), buffers(&[2048, 2048])), now + limit, now).unwrap();
    b.host.prepare(read(72), buffers(&[4096])).map_err(|e| e.error).unwrap();
    let failed = loop {
        match b.host.poll(b.clock.now()) {
            Progress::Done(done) => break done.result,
            Progress::Waiting { until, .. } => b.pass(until),
            Progress::Idle => panic!("idle"),
        }
    };
    assert_eq!(failed.unwrap_err().cause, mmc_proto::host::Cause::Crc);
    b.command(Command { busy: false, ..Command::stop_transmission() }, limit).ok();
    let now = b.clock.now();
    b.host.submit_prepared(now + limit, now).unwrap();
    let done = loop {
        match b.host.poll(b.clock.now()) {
            Progress::Done(done) => break done,
            Progress::Waiting { until, .. } => b.pass(until),
            Progress::Idle => panic!("idle"),
        }
    };
    let mmc_proto::host::Returned::Back(p) = done.payload else { panic!("kept") };
    assert!(done.result.is_ok() && bench::bytes(p) == data[4096..]);
    b.host.prepare(read(64), buffers(&[4096])).map_err(|e| e.error).unwrap();
    assert_eq!(b.memory.regions(), 2, "mapped");
    let (cmd, p) = b.host.unprepare().unwrap();
    assert_eq!((cmd.arg, bench::bytes(p).len(), b.memory.regions()), (64, 4096, 1));
    // A ring for one transfer prepares nothing, and what DMA cannot have is not prepared either.
    let (mut small, _) = Bench::identified(Mode::Polled);
    assert!(small.host.prepare(read(64), buffers(&[4096])).is_err());
    assert!(b.host.prepare(read(64), buffers(&[4095, 1])).is_err());
    assert_eq!((b.memory.regions(), small.memory.regions()), (1, 1));
}

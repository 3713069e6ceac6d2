//! The internal DMA controller: whole transfers, descriptors of every kind, the owner bit, bus errors, aborts.

mod dw_common;

use dw_common::{Bench, IDSTS, RINTSTS, STATUS};
use mmc_hal::Mmio;
use mmc_mock::dw::{Config, DataWidth, Fault};
use mmc_mock::{Memory, Wire};
use mmc_time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn generic() -> Bench {
    Bench::new(Config::generic())
}

/// A read of `bytes` at block `lba` into the list at `ring`, manual stop, up to data transfer over.
fn read(b: &Bench, ring: u64, lba: u32, bytes: u32) -> u32 {
    b.dma_on(ring);
    b.sizes(512, bytes);
    b.w(0x28, lba);
    b.w(0x2c, 0xa000_2352);
    let bits = b.wait(8);
    b.w(RINTSTS, bits);
    bits
}

fn stop(b: &Bench) {
    assert_eq!(b.cmd(0, 0xa000_414c), 4);
}

#[test]
fn a_mebibyte_each_way_over_256_chained_descriptors() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(MIB);
    let parts: Vec<_> = (0..256).map(|i| (buf + i * 4096, 4096)).collect();
    let ring = b.chain(&parts);
    let wire = Wire { hz: 50_000_000, lines: 4 };
    b.dma_on(ring);
    b.sizes(512, MIB as u32);
    b.w(0x28, 64);
    b.w(0x2c, 0xa000_2352);
    assert_eq!(b.wait(4), 4);
    let t0 = b.clock.now();
    let mut steps = 0;
    while b.rint() & 8 == 0 {
        assert!(b.step());
        steps += 1;
    }
    assert!(steps <= 2, "nothing to see in between: {steps} steps");
    assert_eq!(b.clock.now(), wire.read_end(t0, 2048, 512, Instant::ZERO));
    assert_eq!((b.rint(), b.r(IDSTS), b.r(0x5c), b.r(0x60)), (0xc, 0x102, MIB as u32, MIB as u32));
    b.same(buf, 64, MIB);
    assert!(parts.iter().enumerate().all(|(i, _)| b.word(ring + i as u64 * 16) >> 31 == 0));
    b.w(RINTSTS, 0xc);
    stop(&b);

    let data: Vec<u8> = (0..MIB).map(|i| (i * 7 / 3) as u8).collect();
    b.memory.with(buf, |m| m[..MIB].copy_from_slice(&data)).unwrap();
    let ring = b.chain(&parts);
    b.dma_on(ring);
    b.w(0x28, 2048);
    b.w(0x2c, 0xa000_2759);
    b.wait(4);
    let t0 = b.clock.now();
    assert_eq!(b.wait(8), 0xc);
    assert_eq!(b.clock.now(), wire.write_end(t0, 2048, 512, Instant::ZERO));
    assert_eq!(b.r(IDSTS), 0x101);
    b.w(RINTSTS, 0xc);
    stop(&b);
    b.same(buf, 2048, MIB);
    assert!(b.bytes(buf, MIB) == data);
    assert_eq!((b.dw.counters().descriptors, b.dw.counters().dma_bytes), (512, 2 * MIB as u64));
    b.no_violations();
}

#[test]
fn a_slow_card_sets_the_pace() {
    let b = generic();
    b.ready();
    b.dw.card(|c| (c.first, c.each) = (Duration::from_millis(3), Duration::from_micros(90)));
    let buf = b.memory.alloc(8192);
    let ring = b.chain(&[(buf, 4096), (buf + 4096, 4096)]);
    b.dma_on(ring);
    b.sizes(512, 8192);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    let t0 = b.clock.now();
    // The card counts from the end of the command, 56 clocks before the end of the response.
    let ready = t0 - Duration::from_nanos(20 * 56) + Duration::from_micros(3000 + 15 * 90);
    b.wait(8);
    assert_eq!(b.clock.now(), ready + Duration::from_nanos(20 * 1042));
    b.same(buf, 0, 8192);
}

#[test]
fn each_descriptor_without_dic_says_so_in_time() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(4096);
    let ring = b.chain(&[(buf, 1024), (buf + 1024, 1024), (buf + 2048, 2048)]);
    b.words(ring + 16, &[0x8000_0010]);
    b.dma_on(ring);
    b.sizes(512, 4096);
    b.w(0x24, 0);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    let t0 = b.clock.now();
    assert!(!b.dw.irq());
    assert!(b.step());
    assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * 1042 * 4));
    assert_eq!((b.r(IDSTS) & 0x1fff, b.dw.irq()), (0x102, true));
    b.w(IDSTS, 0x102);
    assert!(!b.dw.irq());
    assert_eq!(b.wait(8), 0xc);
    assert_eq!((b.r(IDSTS), b.dw.irq()), (0x102, true));
    assert_eq!(b.dw.counters().irq_edges, 2);
}

#[test]
fn parts_of_any_size_and_a_block_that_spans_several() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(16384);
    let sizes = [4, 100, 512, 8, 1000, 36, 2436];
    let mut at = buf;
    let parts: Vec<_> = sizes
        .iter()
        .map(|n| {
            let p = (at, *n);
            at += u64::from(*n) + 32;
            p
        })
        .collect();
    assert_eq!(sizes.iter().sum::<u32>(), 4096);
    assert_eq!(read(&b, b.chain(&parts), 9, 4096), 0xc);
    stop(&b);
    let got: Vec<u8> = parts.iter().flat_map(|(at, n)| b.bytes(*at, *n as usize)).collect();
    assert_eq!(got, b.card_bytes(9, 4096));
    // And out again, elsewhere.
    b.dma_on(b.chain(&parts));
    b.w(0x28, 500);
    b.w(0x2c, 0xa000_2759);
    b.wait(8);
    b.w(RINTSTS, 0xffff);
    stop(&b);
    assert_eq!(b.card_bytes(500, 4096), got);
    b.no_violations();
}

#[test]
fn dual_buffers_in_a_ring_with_a_skip() {
    // However long it has to wait for the next descriptors: no data timeout counts while the clock stands still.
    for wait in [Duration::from_micros(150), Duration::from_millis(1), Duration::from_secs(3)] {
        ring_with_a_skip(wait);
    }
}

fn ring_with_a_skip(wait: Duration) {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(8192);
    let ring = b.memory.alloc(256);
    // Two descriptors 16 + 4*2 bytes apart; the second ends the ring. They serve twice.
    let list = |first: u32| {
        b.words(ring, &[0x8000_0002 | first, 512 | 1024 << 13, buf as u32, buf as u32 + 512]);
        b.words(ring + 24, &[0x8000_0022, 1024 << 13, 0, buf as u32 + 1536]);
    };
    list(8);
    b.dma_on(ring);
    b.w(0x80, 0x82 | 2 << 2);
    b.sizes(512, 5120);
    b.w(0x28, 3);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    b.clock.advance(wait);
    assert_eq!(b.r(IDSTS) & 0x1e01f, 1 << 13 | 0x10, "suspended: descriptor unavailable");
    b.same(buf, 3, 2560);
    assert_eq!(b.r(0x94), ring as u32);
    assert_eq!(b.r(STATUS) >> 17 & 0x1fff, 16, "the FIFO is full, the clock stands still");
    list(0);
    b.w(0x84, 1);
    b.w(IDSTS, 0x10);
    assert_eq!(b.wait(8) & !0x400, 0xc);
    b.same(buf, 8, 2560);
    b.no_violations();
}

#[test]
fn a_write_without_descriptors_waits_for_poll_demand() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(1024);
    let ring = b.chain(&[(buf, 1024)]);
    b.words(ring, &[0x0000_001c]);
    b.w(0x14, 0x0010_00ff);
    b.dma_on(ring);
    b.w(0x90, 0x337);
    b.sizes(512, 1024);
    b.w(0x2c, 0xa000_2759);
    assert_eq!(b.wait(4), 4);
    assert_eq!(b.r(IDSTS), 1 << 13 | 0x210, "DU and the abnormal summary");
    assert!(b.dw.irq());
    b.drain();
    assert_eq!(b.rint(), 0x404, "starved");
    b.words(ring, &[0x8000_001c]);
    let t = b.clock.now();
    b.w(0x84, 1);
    b.wait(8);
    assert_eq!(b.clock.now() - t, Duration::from_nanos(20 * 1052 * 2));
}

#[test]
fn zero_size_buffers_are_skipped_and_the_last_descriptor_ends_it() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(1024);
    // U-Boot's list once: the data, then an empty descriptor that is the last.
    let ring = b.chain(&[(buf, 0), (buf, 1024), (buf, 0)]);
    assert_eq!(read(&b, ring, 1, 1024), 0xc);
    assert_eq!((b.r(IDSTS), b.word(ring), b.word(ring + 32)), (0x102, 0x1a, 0x14));
    stop(&b);
    // An entry behind the last one is not touched.
    let ring = b.chain(&[(buf, 1024), (buf, 1024)]);
    b.words(ring, &[0x8000_001c]);
    assert_eq!(read(&b, ring, 1, 1024), 0xc);
    assert_eq!(b.word(ring + 16) >> 31, 1);
    b.no_violations();
}

#[test]
fn an_endless_ring_of_empty_descriptors_ends_at_its_own_owner_bit() {
    let b = generic();
    b.ready();
    let ring = b.memory.alloc(32);
    b.words(ring, &[0x8000_0010, 0, 0, ring as u32 + 16, 0x8000_0010, 0, 0, ring as u32]);
    b.dma_on(ring);
    b.sizes(512, 512);
    b.w(0x2c, 0xa000_2351);
    b.wait(4);
    assert_eq!(b.r(IDSTS) & 0x10, 0x10);
}

#[test]
fn each_transfer_begins_at_dbaddr_and_resets_keep_it() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(512);
    let ring = b.chain(&[(buf, 512)]);
    b.dma_on(ring);
    for (i, reset) in [0, 0x0200_0034, 0, 0].into_iter().enumerate() {
        // As FreeBSD and OpenBSD: DBADDR only once; as Linux: SWR and dma_reset before each.
        if reset != 0 {
            b.w(0x00, reset);
            b.w(0x80, 1);
            b.w(0x80, 0x82);
        }
        b.words(ring, &[0x8000_001c]);
        b.sizes(512, 512);
        b.w(0x28, i as u32);
        b.w(0x2c, 0xa000_2351);
        assert_eq!(b.wait(8), 0xc);
        b.same(buf, i, 512);
        b.w(RINTSTS, 0xc);
    }
    assert_eq!((b.r(0x88), b.r(0x90)), (ring as u32, 0x103));
    // CTRL.25 left set does nothing to a command without data.
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
}

#[test]
fn addresses_nothing_is_mapped_at_are_bus_errors() {
    // A missing descriptor, a missing buffer, a buffer that is too short; reading (2) and writing (1).
    for write in [false, true] {
        for case in 0..3 {
            let b = generic();
            b.ready();
            let small = b.memory.alloc(256);
            let ring = match case {
                0 => 0x9000_0000,
                1 => b.chain(&[(0x9000_0000, 512)]),
                _ => b.chain(&[(small, 512)]),
            };
            b.dma_on(ring);
            b.w(0x90, 0x337);
            b.sizes(512, 512);
            b.w(0x2c, if write { 0xa000_2758 } else { 0xa000_2351 });
            b.wait(4);
            b.drain();
            let code = if write { 1 } else { 2 };
            assert_eq!(b.r(IDSTS), code << 10 | 0x204, "case {case}, write {write}");
            assert_eq!((b.rint() & 8, b.r(STATUS) >> 10 & 1), (0, 1), "never over");
            b.w(IDSTS, 0x204);
            assert_eq!(b.r(IDSTS), 0);
            b.w(0x00, 0x0200_0037);
            assert_eq!(b.r(STATUS) >> 10 & 1, 0);
        }
    }
}

#[test]
fn an_abort_closes_only_the_descriptor_in_use() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(16384);
    let ring = b.chain(&[(buf, 4096), (buf + 4096, 4096), (buf + 8192, 4096), (buf + 12288, 4096)]);
    b.dma_on(ring);
    b.sizes(512, 16384);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    b.clock.advance(Duration::from_nanos(20 * 1042 * 10));
    b.w(RINTSTS, 4);
    b.w(0x28, 0);
    b.w(0x2c, 0xa000_414c);
    assert_eq!(b.wait(4), 0xc, "CMD12 is done, and so is the data");
    let owned: Vec<u32> = (0..4).map(|i| b.word(ring + i * 16) >> 31).collect();
    assert_eq!(owned, [0, 0, 1, 1]);
    b.same(buf, 0, 5120);
    assert_eq!(b.bytes(buf + 8192, 8192), vec![0; 8192]);
    assert_eq!(b.r(STATUS) >> 10 & 1, 0);
    // An abort with no transfer running is a command like any other.
    b.w(RINTSTS, 0xc);
    assert_eq!(b.cmd(0, 0xa000_414c) & 8, 0);
}

#[test]
fn open_ended_transfers_run_until_they_are_stopped() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(4096);
    b.dma_on(b.chain(&[(buf, 4096)]));
    b.sizes(512, 0);
    b.w(0x2c, 0xa000_3352);
    b.wait(4);
    b.clock.advance(Duration::from_millis(1));
    assert_eq!((b.rint() & !0x400, b.bytes(buf, 4096) == b.card_bytes(0, 4096)), (4, true));
    b.w(RINTSTS, 0xffff);
    b.w(0x2c, 0xa000_414c);
    assert_eq!(b.wait(8), 0xc, "no automatic stop, but ours");
}

#[test]
fn sixty_four_bit_layout() {
    let mut config = Config::generic();
    config.addr64 = true;
    let mut b = Bench::new(config.clone());
    b.memory = Memory::new(0x12_0000_0000, 0x13_0000_0000);
    b.dw = mmc_mock::dw::Dw::new(dw_common::Tiny::new(), b.clock.clone(), b.memory.clone(), config);
    b.ready();
    assert_eq!(b.r(0x70) >> 27 & 1, 1);
    let buf = b.memory.alloc(1024);
    let ring = b.memory.alloc(64);
    let (lo, hi) = (|a: u64| a as u32, |a: u64| (a >> 32) as u32);
    b.words(ring, &[0x8000_001a, 0, 512, 0, lo(buf), hi(buf), lo(ring + 32), hi(ring + 32)]);
    b.words(ring + 32, &[0x8000_0014, 0, 512, 0, lo(buf + 512), hi(buf + 512), 0, 0]);
    b.w(0x00, 0x0200_0006);
    b.w(0x88, lo(ring));
    b.w(0x8c, hi(ring));
    b.w(0x94, 0x103);
    b.w(0x00, 0x0200_0010);
    b.w(0x80, 0x82);
    b.sizes(512, 1024);
    b.w(0x2c, 0xa000_2352);
    b.wait(8);
    assert_eq!((b.r(0x90), b.dw.irq()), (0x102, true));
    assert_eq!((b.r(0x98), b.r(0x9c)), (lo(ring + 32), hi(ring)));
    assert_eq!((b.r(0xa0), b.r(0xa4)), (0, 0), "past the last buffer");
    b.w(0x90, 0x102);
    assert_eq!((b.r(0x90), b.r(0x94)), (0, 0x103));
    b.same(buf, 0, 1024);
    b.no_violations();
}

#[test]
fn the_last_data_may_come_after_data_transfer_over() {
    let b = Bench::new(Config { posted: 6, ..Config::generic() });
    b.ready();
    let buf = b.memory.alloc(1024);
    let ring = b.chain(&[(buf, 1024)]);
    assert_eq!(read(&b, ring, 4, 1024), 0xc);
    b.same(buf, 4, 512);
    assert_eq!((b.bytes(buf + 512, 512), b.word(ring) >> 31, b.r(IDSTS) & 3), (vec![0; 512], 1, 0));
    for _ in 0..6 {
        b.rint();
    }
    assert_eq!((b.bytes(buf, 1024), b.word(ring) >> 31), (b.card_bytes(4, 1024), 0));
    assert_eq!(b.r(IDSTS), 0x102);
    stop(&b);
    // It comes by itself, too, a microsecond for an access; and never once the DMA is switched off.
    let ring = b.chain(&[(buf, 1024)]);
    read(&b, ring, 100, 1024);
    assert!(b.step());
    b.same(buf, 100, 1024);
    stop(&b);
    let ring = b.chain(&[(buf, 1024)]);
    read(&b, ring, 200, 1024);
    b.dma_off();
    b.drain();
    b.same(buf + 512, 101, 512);
}

#[test]
fn the_owner_bit_may_come_back_late() {
    let b = Bench::new(Config { late_own: 4, ..Config::generic() });
    b.ready();
    let buf = b.memory.alloc(512);
    let ring = b.chain(&[(buf, 512)]);
    b.dma_on(ring);
    b.sizes(512, 512);
    b.w(0x2c, 0xa000_2351);
    b.wait(8);
    assert_eq!((b.r(IDSTS), b.word(ring) >> 31), (0x102, 1));
    for _ in 0..4 {
        b.rint();
    }
    assert_eq!(b.word(ring), 0x1c);
}

#[test]
fn what_the_driver_does_to_a_descriptor_it_does_not_own_is_seen() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(1024);
    let ring = b.chain(&[(buf, 1024)]);
    b.dma_on(ring);
    b.sizes(512, 1024);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    b.words(ring, &[0x0000_0010]);
    b.w(0x88, 0x8000_0000);
    b.wait(8);
    let v = b.dw.violations();
    assert!(v[0].contains("DBADDR written while"), "{v:?}");
    assert!(v[1].contains("while the device owned it"), "{v:?}");
}

#[test]
fn misaligned_buffers_and_sizes_are_violations() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(1024);
    read(&b, b.chain(&[(buf + 2, 512), (buf + 512, 514)]), 0, 1024);
    assert_eq!(b.dw.violations().len(), 2, "{:?}", b.dw.violations());
}

#[test]
fn watermarks_that_break_the_rules_may_starve_it() {
    for strict in [false, true] {
        let b = Bench::new(Config { strict_fifoth: strict, ..Config::generic() });
        b.ready();
        b.w(0x4c, 0x2005_0008);
        let buf = b.memory.alloc(512);
        b.dma_on(b.chain(&[(buf, 512)]));
        b.sizes(512, 512);
        b.w(0x2c, 0xa000_2351);
        b.wait(4);
        b.drain();
        assert_eq!(b.rint() & 0x408, if strict { 0x400 } else { 8 });
        assert!(b.dw.violations()[0].contains("FIFOTH"));
    }
}

#[test]
fn a_sixteen_bit_bus_has_its_own_alignment() {
    let b = Bench::new(Config { data_width: DataWidth::W16, ..Config::generic() });
    b.ready();
    let buf = b.memory.alloc(512);
    let ring = b.chain(&[(buf + 2, 512 - 2), (buf, 2)]);
    b.words(ring, &[0x8000_001a, 510]);
    assert_eq!(read(&b, ring, 0, 512), 0xc);
    b.no_violations();
    b.dw.write32(0x88, 0x8000_0003);
    assert_eq!(b.r(0x88), 0x8000_0002);
}

#[test]
fn faults_strike_in_the_middle_of_bulk_transfers() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(65536);
    let parts: Vec<_> = (0..16).map(|i| (buf + i * 4096, 4096)).collect();
    b.dw.inject(Fault::ReadCrc(77));
    let ring = b.chain(&parts);
    b.dma_on(ring);
    b.sizes(512, 65536);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    let t0 = b.clock.now();
    assert_eq!(b.wait(0x80), 0x84);
    assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * 1042 * 78));
    assert_eq!(b.wait(8), 0x8c);
    b.same(buf, 0, 65536);
    assert_eq!((b.word(ring + 8 * 16), b.word(ring + 9 * 16)), (0x12, 0x4000_0012));
}

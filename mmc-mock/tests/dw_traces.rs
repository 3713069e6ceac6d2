//! The traces C1–C9 of `spec/dw-mshc-model.md` part C, played by hand on the generic build (depth 16, 50 MHz).

mod dw_common;

use dw_common::{BASE, Bench, DATA, IDSTS, RINTSTS, STATUS};
use mmc_mock::Wakes;
use mmc_mock::dw::{Config, ErrorOrder, Fault};
use mmc_time::{Duration, Instant};

fn generic() -> Bench {
    Bench::new(Config::generic())
}

#[test]
fn c1_identification() {
    let b = generic();
    b.w(0x04, 1);
    b.w(0x00, 7);
    assert_eq!(b.r(0x00), 0);
    b.w(0x10, 0);
    b.w(0x2c, 0x8020_2000);
    assert_eq!((b.r(0x2c), b.rint()), (0x0020_2000, 0));
    b.w(0x08, 0x3f);
    b.w(0x0c, 0);
    b.w(0x2c, 0x8020_2000);
    b.w(0x10, 0x0001_0001);
    b.w(0x2c, 0x8020_2000);
    assert_eq!(b.dw.card(|c| *c.bus.last().unwrap()), (396_825, 1));
    b.w(RINTSTS, 0xffff_ffff);
    b.w(0x24, 0);
    b.w(0x14, 0xffff_ffff);
    b.w(0x80, 1);
    b.w(0x4c, 0x2007_0008);
    assert_eq!(b.r(0x80), 0x200);
    assert_eq!(b.r(0x70), 0x00c4_3081);
    b.w(0x90, 3);
    assert_eq!(b.cmd(0, 0xa000_a000), 4);
    assert_eq!(b.dw.card(|c| c.idle), 80);
    assert_eq!(b.r(0x30), 0, "CMD0 leaves the response alone");
    assert_eq!(b.cmd(0x1aa, 0xa000_2148), 4);
    assert_eq!((b.r(0x30), b.r(STATUS)), (0x1aa, 0x4106));
    let mut seen = Vec::new();
    for _ in 0..2 {
        assert_eq!(b.cmd(0, 0xa000_2177), 4);
        assert_eq!(b.r(0x30), 0x120);
        assert_eq!(b.cmd(0x4030_0000, 0xa000_2069), 4, "R3 has no CRC to be wrong");
        seen.push(b.r(0x30));
    }
    assert_eq!(seen, [0x00ff_8000, 0xc0ff_8000]);
    assert_eq!(b.cmd(0, 0xa000_21c2), 4);
    assert_eq!([b.r(0x3c), b.r(0x38), b.r(0x34)], [0x1011_1213, 0x1415_1617, 0x1819_1a1b]);
    assert_eq!(b.r(0x30) >> 8, 0x1c_1d1e);
    assert_eq!(b.cmd(0, 0xa000_2143), 4);
    assert_eq!(b.r(0x30), 0xaaaa_0500);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_21c9), 4);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_2147), 4);
    // The SCR by PIO: two words, no RXDR for them.
    b.cmd(0xaaaa_0000, 0xa000_2177);
    b.sizes(8, 8);
    b.w(0x28, 0);
    b.w(0x2c, 0xa000_2373);
    assert_eq!(b.wait(8), 0xc);
    assert_eq!([b.r(DATA), b.r(DATA)], [0x0080_3502, 0x0100_0000]);
    b.w(RINTSTS, 0xc);
    b.cmd(0xaaaa_0000, 0xa000_2177);
    assert_eq!(b.cmd(2, 0xa000_2146), 4);
    b.w(0x18, 1);
    b.w(0x08, 0);
    b.w(0x2c, 0x8020_2000);
    b.cmd(0xaaaa_0000, 0xa000_214d);
    assert_eq!(b.dw.card(|c| *c.bus.last().unwrap()), (50_000_000, 4));
    b.no_violations();
}

#[test]
fn c1_no_card_answers_nothing() {
    let b = generic();
    b.dw.inject(Fault::Remove);
    b.power_up();
    assert_eq!(b.cmd(0, 0xa000_a000), 4);
    assert_eq!(b.cmd(0x1aa, 0xa000_2148), 0x104);
    assert_eq!(b.r(0x50), 1);
}

#[test]
fn c2_single_block_one_line_pio() {
    let b = generic();
    b.ready();
    b.w(0x18, 0);
    b.sizes(0x200, 0x200);
    b.w(0x00, 2);
    assert_eq!(b.r(0x00), 0);
    b.w(RINTSTS, 0xffff);
    b.w(0x28, 7);
    b.w(0x2c, 0xa000_2351);
    assert_eq!(b.r(0x2c), 0x2000_2351);
    assert_eq!(b.wait(4), 4);
    assert_eq!((b.r(0x30), b.r(STATUS)), (0x900, 0x106 | 17 << 11 | 1 << 10));
    let mut got = Vec::new();
    let mut rounds = 0;
    loop {
        assert!(b.step());
        let bits = b.rint();
        if bits & 8 != 0 {
            break;
        }
        if bits & 0x20 == 0 {
            continue;
        }
        rounds += 1;
        let status = b.r(STATUS);
        let n = status >> 17 & 0x1fff;
        assert_eq!((n, status & 1), (8, 1));
        b.w(RINTSTS, 0x20);
        assert_eq!(b.rint() & 0x20, 0x20, "it comes back while the level is above the mark");
        for _ in 0..n {
            got.extend(b.r(DATA).to_le_bytes());
        }
        b.w(RINTSTS, 0x20);
        assert_eq!(b.rint() & 0x20, 0);
    }
    assert_eq!(rounds, 16);
    assert_eq!(b.rint() & !0x20, 0xc);
    let rest = b.r(STATUS) >> 17 & 0x1fff;
    for _ in 0..rest {
        got.extend(b.r(DATA).to_le_bytes());
    }
    assert_eq!(got, b.card_bytes(7, 512));
    assert_eq!((b.r(STATUS) & 0x3fff_0400, b.r(0x5c), b.r(0x60)), (0, 0x200, 0x200));
    b.no_violations();
}

#[test]
fn c2_words_arrive_at_the_pace_of_the_lines() {
    for (ctype, clocks) in [(0, 32), (1, 8)] {
        let b = generic();
        b.ready();
        b.w(0x18, ctype);
        b.sizes(0x200, 0x200);
        b.w(0x28, 7);
        b.w(0x2c, 0xa000_2351);
        b.wait(4);
        let t0 = b.clock.now();
        for n in 1..=16_u64 {
            // One clock for the start bit; 20 ns a clock.
            b.clock.advance_to(t0 + Duration::from_nanos(20 * (1 + n * clocks) - 1));
            assert_eq!(u64::from(b.r(STATUS) >> 17 & 0x1fff), n - 1);
            b.clock.advance_to(t0 + Duration::from_nanos(20 * (1 + n * clocks)));
            assert_eq!(u64::from(b.r(STATUS) >> 17 & 0x1fff), n);
        }
        // Full: the clock stands still, nothing is lost, and no data timeout counts.
        b.clock.advance(Duration::from_millis(100));
        assert_eq!(b.r(STATUS) & 8, 8);
        assert_eq!(b.rint() & !0x20, 4);
        let first = b.r(DATA).to_le_bytes();
        b.clock.advance(Duration::from_nanos(20 * clocks));
        assert_eq!(b.r(STATUS) >> 17 & 0x1fff, 16);
        assert_eq!(first[..], b.card_bytes(7, 4));
    }
}

#[test]
fn c2_single_block_idmac_in_uboots_order() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(512);
    let ring = b.chain(&[(buf, 512)]);
    b.w(0x90, 3);
    b.w(0x00, 2);
    assert_eq!(b.r(0x00), 0);
    b.w(IDSTS, 0xffff_ffff);
    b.w(0x88, ring as u32);
    b.w(0x00, 0x0200_0020);
    b.w(0x80, 0x282);
    b.sizes(0x200, 0x200);
    b.w(0x28, 5);
    b.w(0x2c, 0xa000_2351);
    assert_eq!(b.wait(4), 4);
    assert_eq!(b.r(0x30), 0x900);
    assert_eq!(b.wait(8), 0xc);
    b.w(RINTSTS, 0xc);
    assert_eq!(b.r(IDSTS), 0x102);
    b.w(IDSTS, 3);
    assert_eq!(b.r(IDSTS), 0x100, "the summary needs its own bit");
    assert_eq!((b.bytes(buf, 512), b.word(ring)), (b.card_bytes(5, 512), 0x1c));
    b.no_violations();
}

#[test]
fn c3_multi_block_read_with_auto_stop() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(6144);
    let ring = b.memory.alloc(48);
    b.words(ring, &[0x8000_001a, 0x800, buf as u32, ring as u32 + 16]);
    b.words(ring + 16, &[0x8000_0012, 0x800, buf as u32 + 0x800, ring as u32 + 32]);
    b.words(ring + 32, &[0x8000_0014, 0x800, buf as u32 + 0x1000, 0]);
    b.w(0x00, 0x0200_0022);
    assert_eq!(b.r(0x00), 0x0200_0020);
    b.w(0x80, 1);
    b.w(IDSTS, 0x337);
    b.w(0x90, 0x337);
    b.w(0x88, ring as u32);
    b.w(0x80, 0x82);
    b.w(0x84, 1);
    b.sizes(0x200, 0x1800);
    b.w(RINTSTS, 0xffff);
    b.w(0x28, 0x14);
    b.w(0x2c, 0xa000_3352);
    assert_eq!(b.r(0x2c), 0x2000_3352);
    assert_eq!(b.wait(4), 4);
    let t0 = b.clock.now();
    assert_eq!(b.r(0x94), ring as u32);
    // The fourth block has crossed the wire: the first descriptor is back, without RI.
    b.clock.advance_to(t0 + Duration::from_nanos(20 * 1042 * 4));
    assert_eq!((b.r(0x94), b.r(IDSTS) & 0x1fff), (ring as u32 + 16, 0));
    assert_eq!((b.word(ring), b.word(ring + 16)), (0x1a, 0x8000_0012));
    b.clock.advance_to(t0 + Duration::from_nanos(20 * 1042 * 12 - 1));
    assert_eq!((b.r(0x94), b.r(IDSTS) & 0x1fff, b.rint()), (ring as u32 + 32, 0, 4));
    b.clock.advance_to(t0 + Duration::from_nanos(20 * 1042 * 12));
    assert_eq!((b.r(IDSTS), b.rint()), (0x102, 4), "RI, but no DTO before CMD12 is through");
    assert_eq!(b.r(STATUS) >> 10 & 1, 1);
    assert_eq!(b.wait(8), 0x400c);
    assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * (1042 * 12 + 48 + 8 + 48)));
    assert_eq!((b.r(0x34), b.r(0x30), b.r(STATUS) >> 11 & 0x3f), (0xb00, 0x900, 12));
    assert_eq!((b.word(ring + 32), b.bytes(buf, 6144)), (0x14, b.card_bytes(0x14, 6144)));
    b.w(RINTSTS, 0x400c);
    b.w(IDSTS, 0x102);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
    assert_eq!(b.r(0x30), 0x900, "tran");
    b.no_violations();
}

#[test]
fn c3_manual_stop() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(6144);
    let ring = b.chain(&[(buf, 2048), (buf + 2048, 2048), (buf + 4096, 2048)]);
    b.dma_on(ring);
    b.sizes(0x200, 0x1800);
    b.w(0x28, 0x14);
    b.w(0x2c, 0xa000_2352);
    assert_eq!(b.wait(8), 0xc);
    assert_eq!(b.r(IDSTS), 0x102);
    b.w(RINTSTS, 0xc);
    assert_eq!(b.cmd(0, 0xa000_414c), 4);
    assert_eq!(b.r(0x30), 0xb00);
    b.no_violations();
}

#[test]
fn c4_write_by_pio_and_stop() {
    let b = generic();
    b.ready();
    b.dw.card(|c| {
        c.program = Duration::from_micros(300);
        c.each = Duration::from_micros(50);
    });
    let data: Vec<u8> = (0..1536_u32).map(|i| (i * 13) as u8).collect();
    let mut words = data.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap()));
    b.sizes(0x200, 0x600);
    b.w(0x00, 2);
    b.w(0x28, 100);
    b.w(0x2c, 0xa000_2759);
    assert_eq!(b.wait(4), 0x14, "command done, and room in the FIFO");
    let mut saw_busy = false;
    let done = loop {
        let bits = b.rint();
        if bits & 8 != 0 {
            break bits;
        }
        if bits & 0x10 != 0 {
            let count = b.r(STATUS) >> 17 & 0x1fff;
            for w in words.by_ref().take(16 - count as usize) {
                b.w(DATA, w);
            }
            b.w(RINTSTS, 0x10);
        }
        saw_busy |= b.r(STATUS) & 0x200 != 0;
        assert!(b.step(), "{bits:x}");
    };
    assert_eq!(done & !4, 8, "no TXDR when nothing more is wanted");
    assert!(saw_busy, "the card was busy between blocks");
    assert_eq!((words.next(), b.r(0x5c), b.r(0x60)), (None, 0x600, 0x600));
    b.w(RINTSTS, 0xffff_ffff);
    assert_eq!(b.cmd(0, 0xa000_414c), 4);
    assert_eq!((b.r(0x30), b.r(STATUS)), (0xd00, 0x6306));
    // A command that waits for the data line stays in START until the card is done.
    let t0 = b.clock.now();
    b.w(0x28, 0xaaaa_0000);
    b.w(0x2c, 0xa000_214d);
    assert_eq!(b.r(0x2c), 0xa000_214d);
    b.wait(4);
    let took = b.clock.now() - t0;
    assert!(took > Duration::from_micros(295) && took < Duration::from_micros(310), "{took}");
    assert_eq!(b.card_bytes(100, 1536), data);
    b.no_violations();
}

#[test]
fn c5_data_crc_error_by_idmac() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(2048);
    let ring = b.chain(&[(buf, 2048)]);
    b.dma_on(ring);
    b.sizes(0x200, 0x800);
    b.dw.inject(Fault::ReadCrc(0));
    b.w(0x28, 0x14);
    b.w(0x2c, 0xa000_2352);
    b.wait(4);
    let t0 = b.clock.now();
    assert_eq!(b.wait(0x80), 0x84);
    assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * 1042), "at the end of block 0");
    assert_eq!(b.r(IDSTS) & 0x1fff, 0x20);
    assert_eq!(b.wait(8), 0x8c);
    assert_eq!(b.r(IDSTS) & 0x1fff, 0x122);
    b.same(buf, 0x14, 2048);
    assert_eq!(b.word(ring), 0x4000_001c, "card error summary in the descriptor");
    b.w(0x00, 7);
    assert_eq!((b.r(0x00), b.rint()), (0, 0x8c), "a reset leaves RINTSTS");
    b.w(RINTSTS, 0xffff_ffff);
    assert_eq!(b.r(STATUS) >> 31, 0);
    b.w(0x00, 2);
    b.w(0x2c, 0x8020_0000);
    assert_eq!(b.cmd(0, 0xa000_414c), 4);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
    assert_eq!(b.r(0x30), 0x900);
    b.words(ring, &[0x8000_001c]);
    b.dma_on(ring);
    b.w(0x28, 0x14);
    b.w(0x2c, 0xa000_2352);
    assert_eq!(b.wait(8), 0xc, "the retry is fine");
    b.no_violations();
}

#[test]
fn c5_a_pio_reader_that_gives_up_leaves_the_data_path_busy() {
    let b = generic();
    b.ready();
    b.sizes(0x200, 0x800);
    b.dw.inject(Fault::ReadCrc(0));
    b.w(0x28, 0x14);
    b.w(0x2c, 0xa000_2352);
    // Reads until the error shows, and no more.
    while b.rint() & 0x80 == 0 {
        if b.rint() & 0x20 != 0 {
            for _ in 0..b.r(STATUS) >> 17 & 0x1fff {
                b.r(DATA);
            }
            b.w(RINTSTS, 0x20);
        }
        assert!(b.step());
    }
    b.drain();
    assert_eq!(b.rint() & 0x408, 0x400, "starved, never over");
    b.w(0x2c, 0xa000_214d);
    b.clock.advance(Duration::from_secs(5));
    assert_eq!((b.r(0x2c), b.r(STATUS) >> 10 & 1), (0xa000_214d, 1));
    b.w(0x00, 7);
    b.clock_on(0);
    b.w(RINTSTS, 0xffff_ffff);
    assert_eq!(b.cmd(0, 0xa000_414c), 4);
    assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 4);
}

#[test]
fn c6_response_timeout() {
    let b = generic();
    b.ready();
    b.dw.card(|c| c.silent = true);
    b.w(0x14, 0xffff_ff40);
    let t0 = b.clock.now();
    b.w(0x28, 0xaaaa_0000);
    b.w(0x2c, 0xa000_214d);
    assert_eq!(b.r(0x2c), 0x2000_214d, "START clears at once");
    assert_eq!(b.wait(4), 0x104);
    assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * (48 + 64)));
    b.w(RINTSTS, 0x104);
    // With data: nothing of the data ever happens, the descriptor stays the device's.
    let buf = b.memory.alloc(512);
    let ring = b.chain(&[(buf, 512)]);
    b.dma_on(ring);
    b.sizes(512, 512);
    b.w(0x28, 3);
    b.w(0x2c, 0xa000_2351);
    b.wait(4);
    b.drain();
    assert_eq!((b.rint(), b.r(STATUS) >> 10 & 1, b.word(ring)), (0x104, 0, 0x8000_001c));
    b.w(RINTSTS, 0x104);
    b.dw.card(|c| c.silent = false);
    b.dma_on(ring);
    b.w(0x28, 3);
    b.w(0x2c, 0xa000_2351);
    assert_eq!(b.wait(8), 0xc);
    b.no_violations();
}

#[test]
fn c6_the_error_bits_may_come_a_step_apart() {
    for (order, first) in [(ErrorOrder::Before, 0x100), (ErrorOrder::After, 4)] {
        let b = Bench::new(Config { error_order: order, ..Config::generic() });
        b.ready();
        b.dw.card(|c| c.silent = true);
        b.w(0x2c, 0xa000_214d);
        while b.rint() == 0 {
            assert!(b.step());
        }
        let t0 = b.clock.now();
        assert_eq!(b.rint(), first);
        assert_eq!(b.wait(0x104), 0x104);
        assert_eq!(b.clock.now() - t0, Duration::from_nanos(20 * 8));
    }
}

#[test]
fn c7_locked_registers_and_a_lost_command() {
    let b = generic();
    b.ready();
    b.dw.inject(Fault::Busy(Duration::from_millis(2)));
    b.cmd(0xaaaa_0000, 0xa000_214d);
    b.w(0x2c, 0xa000_214d);
    assert_eq!(b.r(0x2c), 0xa000_214d, "held");
    for offset in [0x2c, 0x28, 0x20, 0x1c, 0x08, 0x10, 0x0c, 0x14, 0x18] {
        let before = b.r(offset);
        b.w(offset, 0x40);
        assert_eq!((b.rint(), b.r(offset)), (0x1000, before), "{offset:#x}");
        b.w(RINTSTS, 0x1000);
    }
    assert_eq!(b.dw.violations().len(), 9);
    b.w(0x24, 0x55);
    b.w(0x4c, 0x2007_0008);
    assert_eq!((b.r(0x24), b.rint()), (0x55, 0), "not locked");
    b.w(0x1c, 0x40);
    assert_eq!(b.wait(4), 0x1004);
    assert_eq!(b.r(0x2c), 0x2000_214d, "the held command is none the worse");
}

#[test]
fn c7_the_third_command_in_a_row_is_lost() {
    let b = generic();
    b.ready();
    let before = b.dw.counters().commands;
    b.w(0x2c, 0xa000_014d);
    b.w(0x2c, 0xa000_014d);
    assert_eq!(b.rint(), 0);
    b.w(0x2c, 0xa000_014d);
    assert_eq!(b.rint(), 0x1000);
    b.drain();
    assert_eq!((b.dw.counters().commands - before, b.rint()), (2, 0x1004));
}

#[test]
fn c8_removal_in_the_middle_of_a_read() {
    for over in [true, false] {
        let b = Bench::new(Config { timeout_then_over: over, ..Config::generic() });
        b.ready();
        b.w(0x14, 0x1000_00ff);
        b.w(0x64, 1_000_000);
        let buf = b.memory.alloc(65536);
        let parts: Vec<_> = (0..16).map(|i| (buf + i * 4096, 4096)).collect();
        let ring = b.chain(&parts);
        b.dma_on(ring);
        b.sizes(512, 65536);
        b.w(0x28, 0);
        b.w(0x2c, 0xa000_2352);
        b.wait(4);
        let t0 = b.clock.now();
        b.dw.inject_at(t0 + Duration::from_micros(250), Fault::Remove);
        b.wait(1);
        let since = b.clock.now() - t0;
        assert_eq!(since, Duration::from_micros(10_250), "10 ms of debounce");
        assert_eq!((b.r(0x50), b.rint()), (1, 5));
        b.drain();
        assert_eq!(b.rint(), if over { 0x20d } else { 0x205 });
        assert_eq!(b.word(ring + 15 * 16) >> 31, 1, "descriptors that were not reached stay the device's");
        assert_eq!(b.word(ring) >> 31, 0);
        b.w(0x00, 7);
        b.w(RINTSTS, 0xffff_ffff);
        b.w(0x2c, 0x8020_2000);
        assert_eq!(b.r(0x2c), 0x0020_2000);
        assert_eq!(b.cmd(0xaaaa_0000, 0xa000_214d), 0x104);
        b.dw.inject(Fault::Insert);
        b.wait(1);
        assert_eq!(b.r(0x50), 0);
        b.w(RINTSTS, 1);
        b.dma_off();
        b.w(0x18, 0);
        b.ready();
    }
}

#[test]
fn c8_removal_in_the_middle_of_a_write() {
    let b = generic();
    b.ready();
    let buf = b.memory.alloc(4096);
    let ring = b.chain(&[(buf, 4096)]);
    b.dma_on(ring);
    b.sizes(512, 4096);
    b.w(0x2c, 0xa000_2759);
    b.wait(4);
    b.dw.inject_at(b.clock.now() + Duration::from_micros(50), Fault::Remove);
    assert_eq!(b.wait(8) & !1, 0x800c, "no CRC status, over");
}

#[test]
fn c9_voltage_switch() {
    let b = generic();
    b.power_up();
    b.cmd(0, 0xa000_a000);
    b.cmd(0x1aa, 0xa000_2148);
    for _ in 0..2 {
        b.cmd(0, 0xa000_2177);
        b.cmd(0x4130_0000, 0xa000_2069);
    }
    b.w(0x28, 0);
    b.w(0x2c, 0xb000_014b);
    assert_eq!(b.r(0x2c), 0x3000_014b);
    assert_eq!(b.wait(0x400), 0x400, "no command done");
    assert_eq!(b.r(0x30), 0x300);
    assert_eq!(b.r(STATUS) >> 8 & 3, 2, "DAT0 low, DAT3 low");
    b.w(RINTSTS, 0x400);
    b.w(0x10, 0);
    b.w(0x2c, 0x8020_2000);
    assert_eq!(b.r(0x2c), 0x8020_2000, "without bit 28 it wedges (Q16)");
    b.w(0x00, 1);
    b.w(0x2c, 0x9020_2000);
    assert_eq!(b.r(0x2c), 0x1020_2000);
    b.w(0x74, 1);
    b.clock.advance(Duration::from_millis(5));
    b.w(0x08, 0);
    b.w(0x10, 1);
    b.w(0x2c, 0x9020_2000);
    assert_eq!(b.wait(0x400), 0x400);
    assert_eq!(b.r(STATUS) >> 8 & 3, 1);
    b.w(RINTSTS, 0x400);
    assert_eq!(b.cmd(0, 0xa000_21c2), 4);
    b.no_violations();
}

#[test]
fn c9_failures_end_in_a_power_cycle() {
    // A clock that was off too short a time, for a strict and for a lenient card; and lines that stay low.
    for (strict, stuck, fails) in [(true, false, true), (false, false, false), (false, true, true)] {
        let b = Bench::new(Config { strict_volt_switch: strict, ..Config::generic() });
        b.power_up();
        b.cmd(0, 0xa000_a000);
        b.cmd(0x1aa, 0xa000_2148);
        for _ in 0..2 {
            b.cmd(0, 0xa000_2177);
            b.cmd(0x4130_0000, 0xa000_2069);
        }
        if stuck {
            b.dw.inject(Fault::StuckVoltSwitch);
        }
        b.w(0x2c, 0xb000_014b);
        b.wait(0x400);
        b.w(RINTSTS, 0x400);
        b.w(0x10, 0);
        b.w(0x2c, 0x9020_2000);
        b.clock.advance(Duration::from_millis(1));
        b.w(0x10, 1);
        b.w(0x2c, 0x9020_2000);
        b.drain();
        assert_eq!(b.rint(), if fails { 0 } else { 0x400 });
        b.w(0x2c, 0xa000_21c2);
        b.clock.advance(Duration::from_millis(10));
        assert_eq!(b.r(0x2c) >> 31, u32::from(fails));
        if fails {
            b.w(0x04, 0);
            b.w(0x00, 7);
            b.w(RINTSTS, 0xffff_ffff);
            b.ready();
        }
    }
}

#[test]
fn memory_starts_where_the_board_says() {
    let b = generic();
    assert_eq!(b.memory.alloc(4), BASE);
    assert_eq!(b.dw.next_event(), Instant::NEVER);
}

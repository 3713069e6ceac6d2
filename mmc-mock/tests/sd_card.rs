//! How the SD card behaves inside its states: errors and when they are told, counts, erases, speed, clocks, time.

use mmc_mock::card::{Answer, Bits, Card, Phase, SdCard, SdConfig, Sent, Shared, State, Token, Version};
use mmc_mock::fault::What;
use mmc_mock::timing::Profile;
use mmc_time::{Duration, Instant};

const OUT_OF_RANGE: u32 = 1 << 31;
const ADDRESS_ERROR: u32 = 1 << 30;
const BLOCK_LEN_ERROR: u32 = 1 << 29;
const ERASE_SEQ_ERROR: u32 = 1 << 28;
const ERASE_PARAM: u32 = 1 << 27;
const COM_CRC_ERROR: u32 = 1 << 23;
const ILLEGAL_COMMAND: u32 = 1 << 22;
const ERASE_RESET: u32 = 1 << 13;
const ERRORS: u32 = 0xfff8_0000 & !(1 << 25) | ERASE_RESET;

/// A card driven by hand, at an instant that the test moves.
struct Hand {
    card: SdCard,
    now: Instant,
}

impl Hand {
    fn new(config: SdConfig) -> Self {
        let mut card = SdCard::new(config).unwrap();
        card.power(true, Instant::ZERO);
        card.bus(400_000, 1, Instant::ZERO);
        card.idle_clocks(74);
        Self { card, now: Instant::ZERO }
    }
    /// In the transfer state, one line, 25 MHz.
    fn selected(config: SdConfig) -> Self {
        let mut h = Self::new(SdConfig { power_up: Duration::ZERO, ..config });
        h.send(0, 0);
        h.send(8, 0x1aa);
        h.acmd(41, 0x40ff_8000);
        h.send(2, 0);
        h.send(3, 0);
        h.card.bus(25_000_000, 1, h.now);
        h.r1(7, h.rca());
        assert_eq!(h.card.state(h.now), State::Tran);
        h
    }
    fn rca(&self) -> u32 {
        u32::from(self.card.rca()) << 16
    }
    fn send(&mut self, index: u8, arg: u32) -> Answer {
        self.card.command(index, arg, self.now)
    }
    fn acmd(&mut self, index: u8, arg: u32) -> Answer {
        let rca = self.rca();
        self.send(55, rca);
        self.send(index, arg)
    }
    fn value(answer: Answer) -> u32 {
        let Some(Bits::Short(b)) = answer.response else { panic!("{answer:?}") };
        u32::from_be_bytes([b[1], b[2], b[3], b[4]])
    }
    fn r1(&mut self, index: u8, arg: u32) -> u32 {
        Self::value(self.send(index, arg))
    }
    /// Error bits of a CMD13.
    fn errors(&mut self) -> u32 {
        let rca = self.rca();
        self.r1(13, rca) & ERRORS
    }
    fn read(&mut self) -> Option<[u8; 512]> {
        let mut b = [0; 512];
        (self.card.send(&mut b, self.now) == Sent::Good).then_some(b)
    }
    fn write(&mut self, byte: u8) -> Token {
        self.card.take(&[byte; 512], true, self.now)
    }
    /// A register of `N` bytes that the answer has opened a phase for.
    fn register<const N: usize>(&mut self, answer: Answer) -> [u8; N] {
        let phase = Phase { read: true, block_len: N as u16, blocks: Some(1) };
        assert_eq!(answer.data, Some(phase));
        let mut b = [0; N];
        assert_eq!(self.card.send(&mut b, self.now), Sent::Good);
        b
    }
    fn stored(&mut self, sector: u64) -> u8 {
        let mut b = [0; 512];
        self.card.storage_mut().read(sector * 512, &mut b).unwrap();
        assert_eq!(b, [b[0]; 512]);
        b[0]
    }
}

fn ideal() -> SdConfig {
    SdConfig::new(Profile::ideal(), 0)
}
fn sdsc() -> SdConfig {
    SdConfig { version: Version::V2, sectors: 31_360, cmd23: false, ..ideal() }
}

#[test]
fn a_bad_frame_shows_once_in_the_next_response() {
    let mut h = Hand::selected(ideal());
    assert_eq!(h.send(2, 0), Answer::default());
    assert_eq!(h.errors(), ILLEGAL_COMMAND);
    assert_eq!(h.errors(), 0);
    let n = h.card.log().count();
    h.card.faults_mut().push(n, What::CommandCrc);
    assert_eq!(h.send(17, 0), Answer::default());
    assert_eq!(h.card.state(h.now), State::Tran, "nothing was done");
    assert_eq!(h.errors(), COM_CRC_ERROR);
    assert_eq!(h.errors(), 0);
    // One command late, whether or not the valid one has a status to tell it in.
    h.send(2, 0);
    h.send(7, 0);
    let rca = h.rca();
    assert!(matches!(h.send(9, rca).response, Some(Bits::Long(_))));
    assert_eq!(h.errors(), 0);
}

#[test]
fn a_version_1_card_tells_of_cmd8_in_the_answer_to_cmd55() {
    let mut h = Hand::new(SdConfig { version: Version::V1_1, ..sdsc() });
    h.send(0, 0);
    assert_eq!(h.send(8, 0x1aa), Answer::default());
    assert_eq!(h.r1(55, 0), ILLEGAL_COMMAND | 1 << 8 | 1 << 5);
    assert_eq!(h.card.violations(), Vec::<String>::new());
}

#[test]
fn addresses_outside_the_card_open_no_data_phase() {
    let mut h = Hand::selected(ideal());
    let end = h.card.config().sectors as u32;
    for index in [17, 18, 24, 25] {
        let a = h.send(index, end);
        assert_eq!((a.data, Hand::value(a) & ERRORS), (None, OUT_OF_RANGE));
        assert_eq!((h.card.state(h.now), h.errors()), (State::Tran, 0), "told once");
    }
    let mut h = Hand::selected(sdsc());
    for (index, arg, want) in [
        (17, 31_360 * 512, OUT_OF_RANGE),
        (17, u32::MAX, OUT_OF_RANGE),
        (18, 100, ADDRESS_ERROR),
        (24, 256, ADDRESS_ERROR),
        (16, 0, BLOCK_LEN_ERROR),
        (16, 513, BLOCK_LEN_ERROR),
    ] {
        let a = h.send(index, arg);
        assert_eq!((a.data, Hand::value(a) & ERRORS), (None, want), "CMD{index} {arg}");
    }
}

#[test]
fn a_byte_addressed_card_reads_parts_of_blocks_and_writes_whole_ones() {
    let mut h = Hand::selected(sdsc());
    let mut block = [0; 512];
    for (i, b) in block.iter_mut().enumerate() {
        *b = i as u8;
    }
    h.r1(24, 512);
    assert_eq!(h.card.take(&block, true, h.now), Token::Accepted);
    h.r1(16, 16);
    let a = h.send(18, 512 + 240);
    assert_eq!(a.data, Some(Phase { read: true, block_len: 16, blocks: None }));
    for start in [240_u8, 0] {
        let mut part = [0; 16];
        assert_eq!(h.card.send(&mut part, h.now), Sent::Good);
        assert_eq!((part[0], part[15]), (start, start + 15));
    }
    h.r1(12, 0);
    assert_eq!(h.r1(24, 0) & ERRORS, BLOCK_LEN_ERROR, "no partial writes");
    // A high capacity card keeps its 512 bytes.
    let mut h = Hand::selected(ideal());
    assert_eq!(h.r1(16, 16) & ERRORS, 0);
    assert_eq!(h.send(17, 0).data.unwrap().block_len, 512);
}

#[test]
fn a_count_holds_for_the_next_command_only() {
    let mut h = Hand::selected(ideal());
    let rca = h.rca();
    for (between, arg) in [(13, rca), (16, 512), (55, rca), (2, 0), (23, 0)] {
        h.r1(23, 3);
        h.send(between, arg);
        assert_eq!(h.send(18, 0).data.unwrap().blocks, None, "after CMD{between}");
        h.r1(12, 0);
    }
    h.r1(23, 3);
    h.send(17, 0);
    h.read().unwrap();
    assert_eq!(h.send(18, 0).data.unwrap().blocks, None, "a single read uses it up");
    h.r1(12, 0);
    h.r1(23, 3);
    assert_eq!(h.send(25, 0).data.unwrap().blocks, Some(3));
    assert_eq!([h.write(1), h.write(2), h.write(3)], [Token::Accepted; 3]);
    assert_eq!(h.card.state(h.now), State::Tran);
    assert_eq!(h.send(12, 0), Answer::default(), "CMD12 after the last block comes too late");
}

#[test]
fn reads_that_reach_the_end_of_the_card() {
    let mut h = Hand::selected(ideal());
    let last = h.card.config().sectors as u32 - 1;
    // Open-ended and stopped exactly at the end: the bit is set and means nothing.
    h.send(18, last);
    h.read().unwrap();
    assert_eq!(h.r1(12, 0) & ERRORS, OUT_OF_RANGE);
    // With a count that is one too many the block does not come.
    h.r1(23, 2);
    h.send(18, last);
    h.read().unwrap();
    assert_eq!(h.read(), None);
    assert_eq!((h.card.state(h.now), h.r1(12, 0) & ERRORS), (State::Data, OUT_OF_RANGE));
    // With the right count there is nothing to tell.
    h.r1(23, 1);
    h.send(18, last);
    h.read().unwrap();
    assert_eq!(h.errors(), 0);
}

#[test]
fn a_write_past_the_end_and_one_with_a_bad_block_are_counted_by_acmd22() {
    let mut h = Hand::selected(ideal());
    let last = h.card.config().sectors as u32 - 1;
    h.send(25, last);
    assert_eq!((h.write(7), h.write(8), h.write(9)), (Token::Accepted, Token::Nothing, Token::Nothing));
    assert_eq!((h.card.state(h.now), h.r1(12, 0) & ERRORS), (State::Rcv, OUT_OF_RANGE));
    assert_eq!(h.stored(last.into()), 7);
    let a = h.acmd(22, 0);
    assert_eq!(h.register::<4>(a), [0, 0, 0, 1]);

    h.send(25, 100);
    h.write(1);
    h.write(2);
    assert_eq!(h.card.take(&[3; 512], false, h.now), Token::CrcError);
    assert_eq!(h.write(4), Token::Nothing, "ignored until CMD12");
    h.r1(12, 0);
    let a = h.acmd(22, 0);
    assert_eq!(h.register::<4>(a), [0, 0, 0, 2]);
    assert_eq!([100, 101, 102, 103].map(|s| h.stored(s)), [1, 2, 0, 0]);

    h.send(24, 100);
    assert_eq!(h.card.take(&[3; 512], false, h.now), Token::CrcError);
    assert_eq!((h.card.state(h.now), h.stored(100)), (State::Tran, 1), "a single write is over");
}

#[test]
fn power_up_takes_its_time_from_the_first_acmd41_with_a_window() {
    let mut h = Hand::new(SdConfig { power_up: Duration::from_millis(500), ..ideal() });
    h.send(0, 0);
    h.send(8, 0x1aa);
    let ocr = |h: &mut Hand, ms, arg| {
        h.now = Instant::from_millis(ms);
        Hand::value(h.acmd(41, arg))
    };
    assert_eq!(ocr(&mut h, 0, 0), 0x00ff_8000, "an inquiry starts nothing");
    assert_eq!(ocr(&mut h, 1000, 0x40ff_8000), 0x00ff_8000);
    assert_eq!(ocr(&mut h, 1499, 0x40ff_8000), 0x00ff_8000);
    assert_eq!(ocr(&mut h, 1500, 0x40ff_8000), 0xc0ff_8000);
    assert_eq!(h.card.state(h.now), State::Ready);
}

#[test]
fn a_high_capacity_card_waits_for_ever_for_a_host_that_does_not_know_it() {
    for (cmd8, arg) in [(true, 0x00ff_8000), (false, 0x40ff_8000)] {
        let mut h = Hand::new(ideal());
        h.send(0, 0);
        if cmd8 {
            h.send(8, 0x1aa);
        }
        for s in 0..100 {
            h.now = Instant::from_secs(s);
            assert_eq!(Hand::value(h.acmd(41, arg)), 0x00ff_8000);
        }
    }
    // A small one does not care.
    let mut h = Hand::new(SdConfig { power_up: Duration::ZERO, ..sdsc() });
    h.send(0, 0);
    assert_eq!(Hand::value(h.acmd(41, 0x00ff_8000)), 0x80ff_8000);
}

#[test]
fn wrong_voltages_get_no_answer() {
    let mut h = Hand::new(ideal());
    h.send(0, 0);
    assert_eq!(h.send(8, 0x2aa), Answer::default());
    assert_eq!(Hand::value(h.send(8, 0x155)), 0x155);
    assert_eq!(h.acmd(41, 0x4000_0080), Answer::default());
    assert_eq!(h.card.state(h.now), State::Ina);
}

#[test]
fn each_cmd3_gives_a_new_address_and_cmd0_takes_it_away() {
    let mut h = Hand::selected(SdConfig { rca: 0xffff, ..ideal() });
    let old = h.rca();
    h.send(7, 0);
    let r6 = Hand::value(h.send(3, 0));
    assert_eq!((r6 >> 16, r6 & 0xffff), (1, 0x0700), "0 is never an address; stby and ready in the low half");
    assert_eq!(h.send(7, old), Answer::default());
    assert_eq!(h.card.state(h.now), State::Stby);
    h.r1(7, 1 << 16);
    h.acmd(6, 2);
    h.send(0, 0);
    assert_eq!((h.card.rca(), h.card.width(), h.card.state(h.now)), (0, 1, State::Idle));
}

#[test]
fn erase_makes_zeros_in_its_range_and_only_in_order() {
    let mut h = Hand::selected(ideal());
    h.r1(23, 4);
    h.send(25, 10);
    for i in 1..=4 {
        h.write(i);
    }
    let rca = h.rca();
    let mut erase = |steps: &[(u8, u32)]| {
        let bits = steps.iter().map(|&(index, arg)| h.r1(index, arg) & ERRORS).collect::<Vec<_>>();
        (bits, [10, 11, 12, 13].map(|s| h.stored(s)))
    };
    let whole = [1, 2, 3, 4];
    assert_eq!(erase(&[(38, 0)]), (vec![ERASE_SEQ_ERROR], whole));
    assert_eq!(erase(&[(33, 11), (38, 0)]), (vec![ERASE_SEQ_ERROR, ERASE_SEQ_ERROR], whole));
    assert_eq!(erase(&[(32, 11), (38, 0)]), (vec![0, ERASE_SEQ_ERROR], whole));
    assert_eq!(erase(&[(32, 12), (33, 11), (38, 0)]), (vec![0, 0, ERASE_PARAM], whole));
    assert_eq!(erase(&[(32, 12), (33, u32::MAX), (38, 0)]), (vec![0, 0, OUT_OF_RANGE], whole));
    assert_eq!(erase(&[(32, 11), (16, 512), (38, 0)]), (vec![0, ERASE_RESET, ERASE_SEQ_ERROR], whole));
    assert_eq!(erase(&[(32, 11), (13, rca), (33, 12), (13, rca), (38, 0)]), (vec![0; 5], [1, 0, 0, 4]));
}

#[test]
fn erase_is_busy_as_long_as_the_sd_status_promises() {
    let mut h = Hand::selected(SdConfig::new(Profile::slow2018(), 0));
    h.r1(32, 0);
    h.r1(33, 200 * 8192 - 1);
    h.r1(38, 0);
    // 200 units a second; the status has one second of offset on top.
    assert_eq!(h.card.busy_until(h.now).since(h.now), Duration::from_micros(1_000_250));
}

#[test]
fn high_speed_begins_after_the_status_block() {
    let mut h = Hand::selected(ideal());
    let a = h.send(6, 0x80ff_fff1);
    assert!(!h.card.is_high_speed());
    let status: [u8; 64] = h.register(a);
    assert_eq!((status[16] & 15, h.card.is_high_speed()), (1, true));
    h.card.bus(50_000_000, 1, h.now);
    h.send(7, 0);
    let rca = h.rca();
    let Some(Bits::Long(csd)) = h.send(9, rca).response else { panic!("no CSD") };
    assert_eq!(csd[1 + 3], 0x5a, "TRAN_SPEED");
    assert_eq!(h.card.violations(), Vec::<String>::new());
    // Cut off before its end, the switch does not happen.
    let mut h = Hand::selected(ideal());
    h.send(6, 0x80ff_fff1);
    h.r1(12, 0);
    assert!(!h.card.is_high_speed());
}

#[test]
fn a_host_that_breaks_the_rules_is_noted() {
    let mut card = SdCard::new(ideal()).unwrap();
    let t = Instant::ZERO;
    card.command(0, 0, t);
    card.power(true, t);
    card.bus(400_000, 1, t);
    card.idle_clocks(73);
    card.command(0, 0, t);
    card.bus(400_001, 1, t);
    card.command(0, 0, t);
    card.bus(0, 1, t);
    card.command(0, 0, t);
    assert_eq!(
        card.violations(),
        [
            "CMD0: came without power",
            "CMD0: 73 clocks since power-up, at least 74 are needed",
            "CMD0: 400001 Hz, identification allows at most 400000",
            "CMD0: came without a clock",
        ]
    );
    let mut h = Hand::selected(ideal());
    h.card.bus(50_000_000, 4, h.now);
    h.send(17, 0);
    assert_eq!(
        h.card.violations(),
        [
            "CMD17: 50000000 Hz, default speed allows at most 25000000",
            "data on 4 lines of the host, the card uses 1"
        ]
    );
    let mut b = [0; 512];
    assert_eq!(h.card.send(&mut b, h.now), Sent::BadCrc, "and the data come to nothing");
    h.send(24, 5);
    assert_eq!((h.write(1), h.stored(5)), (Token::CrcError, 0));
    for _ in 0..1000 {
        h.send(17, 0);
        h.read();
    }
    assert_eq!(h.card.violations().len(), 256, "the list does not grow without end");
}

#[test]
fn width_and_status_go_together() {
    let mut h = Hand::selected(ideal());
    let a = h.acmd(13, 0);
    assert_eq!(h.register::<64>(a)[0] >> 6, 0);
    h.acmd(6, 2);
    h.card.bus(25_000_000, 4, h.now);
    let a = h.acmd(13, 0);
    assert_eq!(h.register::<64>(a)[0] >> 6, 2);
    let a = h.acmd(51, 0);
    assert_eq!(h.register::<8>(a), h.card.config().scr());
    h.acmd(6, 1);
    assert_eq!(h.card.width(), 4, "01 is reserved");
    assert_eq!(h.card.violations(), Vec::<String>::new());
}

#[test]
fn time_is_the_profiles() {
    let p = Profile { stall_p: 0.0, ..Profile::slow2018() };
    let mut h = Hand::selected(SdConfig::new(p, 0));
    h.now = Instant::from_secs(1);
    // A random read: 1 ms, then 512 bytes each 28.4 us.
    h.r1(23, 4);
    h.send(18, 1000);
    let at = |ns| Instant::from_secs(1) + Duration::from_nanos(ns);
    assert_eq!(h.card.ready(0), at(1_000_000 + 28_444));
    assert_eq!(h.card.ready(3), at(1_000_000 + 113_778));
    assert_eq!(h.card.ready(4), Instant::NEVER, "there is no fifth block");
    for _ in 0..4 {
        h.read().unwrap();
    }
    assert_eq!(h.card.ready(3), at(1_000_000 + 113_778), "still to be asked when all are sent");
    let rca = h.rca();
    h.send(13, rca);
    assert_eq!(h.card.ready(0), Instant::NEVER, "until the next command");
    h.send(17, 1004);
    assert_eq!(h.card.ready(0), at(500_000 + 28_444), "it continues the last one");
    h.read().unwrap();
    // Writes: blocks go in as they come; the service counts from the command, never shorter than the data.
    for (data_end, busy_end) in [(1_000_000, 1_407_538), (2_000_000, 2_000_000)] {
        let mut h = Hand::selected(SdConfig::new(Profile { stall_p: 0.0, ..Profile::slow2018() }, 0));
        h.now = at(0);
        h.send(25, 0);
        assert_eq!((h.card.ready(0), h.card.ready(1000)), (h.now, h.now));
        h.now = at(data_end);
        h.write(1);
        h.write(2);
        assert_eq!(h.card.busy_until(h.now), Instant::ZERO);
        h.r1(12, 0);
        let busy = h.card.busy_until(h.now);
        let until = if busy == Instant::ZERO { h.now } else { busy };
        assert_eq!(until, at(busy_end));
    }
}

#[test]
fn bulk_and_single_blocks_are_the_same_card() {
    let run = |bulk: bool| {
        let mut h = Hand::selected(SdConfig::new(Profile::slow2018(), 7));
        let data: Vec<u8> = (0..20 * 512).map(|i| (i / 300) as u8).collect();
        let (n, mut got) = (h.card.log().count(), vec![0; data.len()]);
        h.card.faults_mut().push(n + 3, What::BlockCrc(12));
        h.r1(23, 20);
        h.send(25, 8190);
        if bulk {
            assert_eq!(h.card.take_many(&data[..5 * 512], h.now), 5 * 512);
            assert_eq!(h.card.take_many(&data[5 * 512..], h.now), 15 * 512);
        } else {
            assert!(data.chunks(512).all(|b| h.card.take(b, true, h.now) == Token::Accepted));
        }
        let busy = h.card.busy_until(h.now);
        h.now = busy;
        h.r1(23, 20);
        h.send(18, 8190);
        let mut at = if bulk { h.card.send_many(&mut got, h.now) } else { 0 };
        assert_eq!(at, if bulk { 12 * 512 } else { 0 }, "up to the fault");
        let mut sent = Vec::new();
        while at < got.len() {
            sent.push(h.card.send(&mut got[at..at + 512], h.now));
            at += 512;
        }
        assert_eq!(sent.iter().filter(|&&s| s == Sent::BadCrc).count(), 1);
        assert!(got == data);
        (busy, h.card.state(h.now), h.card.stats())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_card_taken_out_forgets_everything_but_its_contents() {
    let mut h = Hand::selected(ideal());
    h.send(24, 3);
    h.write(9);
    let shared = Shared::new(h.card);
    let mut handle = shared.clone();
    shared.lock().set_present(false);
    assert!(!handle.present());
    assert_eq!(handle.command(13, 0, h.now), Answer::default());
    shared.lock().set_present(true);
    assert_eq!((shared.with(|c| c.state(h.now)), shared.with(|c| c.rca())), (State::Idle, 0));
    let mut b = [0; 512];
    shared.lock().storage_mut().read(3 * 512, &mut b).unwrap();
    assert_eq!(b, [9; 512]);
}

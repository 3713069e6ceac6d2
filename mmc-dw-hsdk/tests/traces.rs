//! The traces of `spec/dw-mshc-model.md` part C, from this driver on the model: which registers are written, with which
//! values. Reads and polls are left out; where the driver differs from the trace, the test says why.

mod bench;

use bench::recorder::Recorded;
use bench::{buffers, bytes, filled, pattern};
use mmc_dw_hsdk::Platform;
use mmc_dw_hsdk::platform::{HSDK, SignalSwitch};
use mmc_mock::card::{SdConfig, Uhs};
use mmc_mock::dw::{Config, Fault};
use mmc_mock::timing::Profile;
use mmc_proto::bus::{BusConfig, Power, Signal, Timing, Width};
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{Cause, Operation, Phase, Returned};
use mmc_proto::machine::{CardTraits, Identify};
use mmc_time::Duration;

/// The build of the traces: depth 16, 50 MHz without a divider in front.
const GENERIC: Platform = Platform { uhs_reg_ext: None, ..HSDK };
const ALL: u64 = 0xffff_ffff;

fn identified(mask: u64) -> (Recorded, CardTraits) {
    let mut b = Recorded::new(Config::generic(), GENERIC, mask);
    let identify = Identify::new(&b.capabilities());
    let card = b.run(identify, buffers(&[512])).0.unwrap().traits;
    // Whatever an identification ends with: the last data were 64 bytes, the last command had none.
    b.operate(Operation::Command(Command::app_cmd(card.rca))).result.unwrap();
    let status = Command::data(13, 0, mmc_hal::Dir::Read, 64, 1, Stop::None);
    b.operate(Operation::Transfer(status, buffers(&[64]))).result.unwrap();
    b.operate(Operation::Command(Command::send_status(card.rca))).result.unwrap();
    b.list();
    (b, card)
}

#[track_caller]
fn same(got: &[String], want: &[&str]) {
    assert!(got == want, "written:\n{}\nexpected:\n{}", got.join("\n"), want.join("\n"));
}

#[test]
fn c1_power_up_and_the_first_commands() {
    let mut b = Recorded::new(Config::generic(), GENERIC, ALL);
    b.operate(Operation::Power(Power::On)).result.unwrap();
    same(
        &b.writes(),
        &[
            "INTMASK 0",
            "PWREN 1",
            "CTRL 2000037",
            "RINTSTS ffffffff",
            // Another reset of the FIFO once no DMA request is left; then as U-Boot, but with the DMA's errors enabled.,
            "CTRL 2000032",
            "BMOD 1",
            "IDSTS ffffffff",
            "IDINTEN 214",
            "DBADDR 80000000",
            "BMOD 82",
            "TMOUT ffffffff",
            "DEBNCE 989680",
            "CLKENA 0",
            "CLKDIV 0",
            "CLKSRC 0",
            "CTRL 2000030",
            // One update for all of it, and not held back by a card that is busy for ever.,
            "CMD a0200000",
            "RINTSTS 4",
        ],
    );
    let slow = BusConfig {
        hz: 400_000,
        width: Width::One,
        timing: Timing::Default,
        signal: Signal::V3_3,
        sample: 0,
    };
    b.operate(Operation::Bus(slow)).result.unwrap();
    same(
        &b.writes(),
        &[
            // FIFOTH comes with the first data. No low-power gating (bit 16 of CLKENA): the clock is there when asked for.,
            "CTYPE 0",
            "INTMASK bfcb",
            "CLKDIV 3f",
            "CLKSRC 0",
            "CMD a0202000",
            "CLKENA 1",
            "CMD a0202000",
            "RINTSTS 4",
        ],
    );
    let reset = Command { init_clocks: true, ..Command::go_idle_state() };
    b.operate(Operation::Command(reset)).result.unwrap();
    b.operate(Operation::Command(Command::send_if_cond(0xaa))).result.unwrap();
    b.operate(Operation::Command(Command::app_cmd(0))).result.unwrap();
    same(
        &b.writes(),
        &[
            "INTMASK bfcf",
            "CMDARG 0",
            // Without bit 13: nothing holds a CMD0 back.
            "CMD a0008000",
            "RINTSTS 4",
            "CMDARG 1aa",
            "CMD a0002148",
            "RINTSTS 4",
            "CMDARG 0",
            "CMD a0002177",
            "RINTSTS 4",
        ],
    );
}

#[test]
fn c2_single_block_by_hand() {
    let (mut b, _) = identified(0);
    let data = pattern(512, 1);
    b.card.lock().storage_mut().write(7 * 512, &data).unwrap();
    let read = Operation::Transfer(Command::read_single_block(7), buffers(&[512]));
    let done = b.operate(read);
    let Returned::Back(p) = done.payload else { panic!("no payload") };
    assert!(done.result.is_ok() && bytes(p) == data);
    let list = b.list();
    assert_eq!(list.iter().filter(|l| l.starts_with("r DATA")).count(), 128);
    let writes: Vec<String> = list.iter().filter_map(|l| l.strip_prefix("W ")).map(str::to_string).collect();
    same(
        &writes,
        &[
            "BLKSIZ 200",
            "BYTCNT 200",
            // DMA off and the FIFO reset; no RXDR is ever acknowledged: the FIFO is looked after by time.,
            "BMOD 0",
            "CTRL 12",
            "INTMASK bfcb",
            "CMDARG 7",
            "CMD a0002351",
            "RINTSTS c",
        ],
    );
}

#[test]
fn c3_multi_block_read_by_dma_with_a_stop() {
    let (mut b, _) = identified(ALL);
    let read = Command::read_multiple_block(20, 12, Stop::Manual);
    b.operate(Operation::Transfer(read, buffers(&[2048; 3]))).result.unwrap();
    b.operate(Operation::Command(Command { busy: false, ..Command::stop_transmission() })).result.unwrap();
    same(
        &b.writes(),
        &[
            "BLKSIZ 200",
            "BYTCNT 1800",
            // DMA is on since the last reset and its list where it was: no CTRL, BMOD, IDINTEN or DBADDR.,
            "INTMASK bfcb",
            "PLDMND 1",
            "CMDARG 14",
            "CMD a0002352",
            "RINTSTS c",
            "IDSTS 2",
            "INTMASK bfcf",
            "CMDARG 0",
            "CMD a000414c",
            "RINTSTS 4",
        ],
    );
}

/// C3 as it is written: the controller stops the card by itself.
#[test]
fn c3_multi_block_read_by_dma_with_an_automatic_stop() {
    let (mut b, _) = identified(ALL);
    let read = Command::read_multiple_block(20, 12, Stop::Auto);
    let reply = b.operate(Operation::Transfer(read, buffers(&[2048; 3]))).result.unwrap();
    assert_eq!(reply.words[..2], [0x900, 0xb00], "R1 of CMD18, and of CMD12 from RESP1");
    same(
        &b.writes(),
        &[
            "BLKSIZ 200",
            "BYTCNT 1800",
            // As above: no CTRL, BMOD, IDINTEN or DBADDR.,
            "INTMASK bfcb",
            "PLDMND 1",
            "CMDARG 14",
            "CMD a0003352",
            // ACD is masked and picked up with DTO: one interrupt.,
            "RINTSTS 400c",
            "IDSTS 2",
        ],
    );
}

#[test]
fn c4_three_blocks_written_by_hand_and_a_stop() {
    let (mut b, _) = identified(0);
    let data = pattern(1536, 4);
    let write = Command::write_multiple_block(9, 3, Stop::Manual);
    b.operate(Operation::Transfer(write, filled(&data, &[1536]))).result.unwrap();
    b.operate(Operation::Command(Command::stop_transmission())).result.unwrap();
    let writes = b.writes();
    let words =
        writes.iter().filter_map(|w| w.strip_prefix("DATA ")).map(|w| u32::from_str_radix(w, 16).unwrap());
    assert!(words.flat_map(u32::to_le_bytes).eq(data), "every byte once, in order");
    let rest: Vec<String> = writes.iter().filter(|w| !w.starts_with("DATA")).cloned().collect();
    same(
        &rest,
        &[
            "BLKSIZ 200",
            "BYTCNT 600",
            "BMOD 0",
            "CTRL 12",
            "INTMASK bfcb",
            "CMDARG 9",
            "CMD a0002759",
            "RINTSTS c",
            "INTMASK bfcf",
            "CMDARG 0",
            "CMD a000414c",
            "RINTSTS 4",
        ],
    );
}

#[test]
fn c5_crc_error_in_the_first_of_four_blocks() {
    let (mut b, _) = identified(ALL);
    b.dw.inject(Fault::ReadCrc(0));
    let read = Command::read_multiple_block(20, 4, Stop::Manual);
    let e = b.operate(Operation::Transfer(read, buffers(&[2048]))).result.unwrap_err();
    assert_eq!((e.cause, e.phase), (Cause::Crc, Phase::Data), "not success, though all data came (Q27)");
    b.operate(Operation::Command(Command { busy: false, ..Command::stop_transmission() })).result.unwrap();
    same(
        &b.writes(),
        &[
            "BLKSIZ 200",
            "BYTCNT 800",
            "INTMASK bfcb",
            "PLDMND 1",
            "CMDARG 14",
            "CMD a0002352",
            "RINTSTS 84",
            "IDSTS 20",
            // The error ends it at once; nobody waits for the end of the data. The whole reset.,
            "INTMASK bfcb",
            "CTRL 2000037",
            "RINTSTS ffffffff",
            "CTRL 2000032",
            "BMOD 1",
            "IDSTS ffffffff",
            "IDINTEN 214",
            "DBADDR 80000000",
            "BMOD 82",
            "TMOUT ffffffff",
            "CTRL 2000030",
            "CMD a0200000",
            "RINTSTS 4",
            "INTMASK bfcf",
            "CMDARG 0",
            // Without bit 14: after the reset no transfer is in flight in the controller, only in the card.,
            "CMD a000014c",
            "RINTSTS 4",
        ],
    );
}

#[test]
fn c6_no_response_needs_no_reset() {
    let (mut b, card) = identified(ALL);
    b.dw.inject(Fault::CommandLost);
    let e = b.operate(Operation::Command(Command::send_status(card.rca))).result.unwrap_err();
    assert_eq!((e.cause, e.phase), (Cause::Timeout, Phase::Command));
    b.operate(Operation::Command(Command::send_status(card.rca))).result.unwrap();
    same(
        &b.writes(),
        &["CMDARG b3680000", "CMD a000214d", "RINTSTS 104", "CMDARG b3680000", "CMD a000214d", "RINTSTS 4"],
    );
}

#[test]
fn c7_a_command_that_a_busy_card_holds_back() {
    let (mut b, card) = identified(ALL);
    b.dw.inject(Fault::Busy(Duration::from_millis(2)));
    b.operate(Operation::Transfer(Command::write_block(9), buffers(&[512]))).result.unwrap();
    b.list();
    let held = Command { gate: mmc_proto::command::Gate::Idle, ..Command::send_status(card.rca) };
    b.operate(Operation::Command(held)).result.unwrap();
    same(&b.writes(), &["INTMASK bfcf", "CMDARG b3680000", "CMD a000214d", "RINTSTS 4"]);
    assert_eq!(b.dw.violations(), Vec::<String>::new(), "no locked register is written");
}

#[test]
fn c8_removal_in_the_middle_of_64_kib() {
    let (mut b, _) = identified(ALL);
    b.dw.inject_at(b.clock.now() + Duration::from_micros(500), Fault::Remove);
    let read = Command::read_multiple_block(20, 128, Stop::Manual);
    let e = b.operate(Operation::Transfer(read, buffers(&[65_536]))).result.unwrap_err();
    assert_eq!((e.cause, e.phase), (Cause::NoCard, Phase::Data));
    same(
        &b.writes(),
        &[
            "BLKSIZ 200",
            "BYTCNT 10000",
            "INTMASK bfcb",
            "PLDMND 1",
            "CMDARG 14",
            "CMD a0002352",
            // Card detect: the end, without a wait for the data timeout.,
            "RINTSTS 5",
            "INTMASK bfcb",
            "CTRL 2000037",
            "RINTSTS ffffffff",
            "CTRL 2000032",
            "BMOD 1",
            "IDSTS ffffffff",
            "IDINTEN 214",
            "DBADDR 80000000",
            "BMOD 82",
            "TMOUT ffffffff",
            "CTRL 2000030",
            "CMD a0200000",
            "RINTSTS 4",
        ],
    );
}

#[test]
fn c9_the_switch_to_1_8_v() {
    let card = SdConfig { uhs: Some(Uhs::new(1)), ..SdConfig::new(Profile::ideal(), 1) };
    let timings = GENERIC.timings.with(Timing::Sdr12);
    let platform = Platform { signal: SignalSwitch::Register, timings, ..GENERIC };
    let mut b = Recorded::with_card(Config::generic(), platform, ALL, card);
    b.operate(Operation::Power(Power::On)).result.unwrap();
    let slow = BusConfig { hz: 400_000, ..BusConfig::default() };
    b.operate(Operation::Bus(slow)).result.unwrap();
    let reset = Command { init_clocks: true, ..Command::go_idle_state() };
    b.operate(Operation::Command(reset)).result.unwrap();
    b.operate(Operation::Command(Command::send_if_cond(0xaa))).result.unwrap();
    for _ in 0..100 {
        b.operate(Operation::Command(Command::app_cmd(0))).result.unwrap();
        let ask = Command::plain(41, 0x4130_0000, Response::ShortNoCrc);
        if b.operate(Operation::Command(ask)).result.unwrap().words[0] >> 31 != 0 {
            break;
        }
    }
    b.list();
    let cmd11 = Command { voltage_switch: true, ..Command::voltage_switch() };
    b.operate(Operation::Command(cmd11)).result.unwrap();
    let began = b.clock.now();
    let low = BusConfig { signal: Signal::V1_8, timing: Timing::Sdr12, ..slow };
    b.operate(Operation::Bus(low)).result.unwrap();
    let took = b.clock.now().since(began);
    assert!(
        took >= platform.signal_settle && took < platform.signal_settle + Duration::from_millis(1),
        "{took}"
    );
    b.operate(Operation::Command(Command::all_send_cid())).result.unwrap();
    same(
        &b.writes(),
        &[
            "CMDARG 0",
            // As Linux, without bit 13. Bit 10 is the end of the command; INTMASK is as it was.,
            "CMD b000014b",
            "RINTSTS 400",
            "INTMASK bfcb",
            "CLKENA 0",
            // With the hold bit, which means nothing in an update.,
            "CMD b0202000",
            "RINTSTS 4",
            // Told to the controller, too, which U-Boot does not do.,
            "UHS_REG 1",
            // CLKDIV is written again with each start of the clock: an update more.,
            "CLKDIV 3f",
            "CLKSRC 0",
            "CMD b0202000",
            "CLKENA 1",
            "CMD b0202000",
            "RINTSTS 4",
            // The card has let its lines go.,
            "RINTSTS 400",
            "INTMASK bfcf",
            "CMDARG 0",
            "CMD a00021c2",
            "RINTSTS 4",
        ],
    );
    assert_eq!(b.dw.violations(), Vec::<String>::new());
}

//! Our SDHCI driver, from power-up to a disk, on QEMU's controller and QEMU's card.

#[path = "sdhci/emmc.rs"]
mod emmc;

use mmc_block::{Blocking, Disk, Idle, Init, Settings, Tag, identify};
use mmc_hal::Dir;
use mmc_mock::{Buf, BufBatch};
use mmc_proto::bus::{Signal, Timing, Width};
use mmc_proto::command::{Command, Response, Stop};
use mmc_proto::host::{Cause, Completion, Host, Operation, Phase, Progress, Returned};
use mmc_proto::machine::{CardTraits, Erase, Identified, Machine, TransferError};
use mmc_proto::status::CardStatus;
use mmc_proto::timing::EraseKind;
use mmc_sched::{Queue, Slot};
use mmc_sdhci::{Platform, Transfers};
use mmc_time::Duration;
use qemu_bench::IMAGE;
use qemu_bench::pc::{Options, Pc};
use qemu_bench::talk::{self, bytes, cut, pattern};
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const SDSC: u64 = 64 * MIB;
const SDHC: u64 = 4096 * MIB;

const PLAIN: Options = Options {
    card: "sd-card",
    card_bytes: SDHC,
    controller: "",
    wide: false,
    interrupts: false,
    platform: Platform::QEMU,
};
/// Bit 28 of the default capabilities: ADMA2 with 64-bit addresses.
const WIDE: Options = Options { controller: ",capareg=0x157834b4", wide: true, ..PLAIN };
/// Version 3 of the specification.
const V3: Options = Options { controller: ",sd-spec-version=3", ..PLAIN };
const BY_HAND: Options = Options { platform: Platform { dma: false, ..Platform::QEMU }, ..PLAIN };

fn start(o: &Options) -> Option<Pc> {
    Some(Pc::start(&qemu_bench::qemu("x86_64")?, o))
}

fn bring_up(pc: &mut Pc) -> Identified {
    let mut init = Init::new(&pc.host.capabilities(), BufBatch::new(16), Buf(vec![0; 512])).unwrap();
    let (card, parts) = identify(&mut pc.host, &mut init, &mut pc.clock);
    assert!(parts.is_some(), "the buffers come back");
    card.unwrap()
}

fn stored(pc: &Pc, image: &str, lba: u64, len: usize) -> Vec<u8> {
    talk::stored(&pc.qtest.file(image), lba, len)
}

fn converse<T: Machine>(pc: &mut Pc, machine: T, payload: Option<BufBatch>) -> (T::Output, Option<BufBatch>) {
    talk::converse(&mut pc.host, &mut pc.clock, machine, payload)
}

fn transfer(
    pc: &mut Pc,
    card: &CardTraits,
    dir: Dir,
    lba: u64,
    payload: BufBatch,
    open_ended: bool,
) -> (Result<u32, TransferError>, Vec<u8>) {
    talk::transfer(&mut pc.host, &mut pc.clock, card, dir, lba, payload, open_ended)
}

/// One operation straight on the host.
fn operate(pc: &mut Pc, op: Operation<BufBatch>, limit: Duration) -> Completion<BufBatch> {
    let now = pc.clock.now();
    pc.host.submit(op, now + limit, now).unwrap();
    loop {
        match pc.host.poll(pc.clock.now()) {
            Progress::Done(done) => return done,
            Progress::Waiting { until, .. } => pc.clock.wait(until),
            Progress::Idle => panic!("idle without a completion"),
        }
    }
}

/// Transfers of every shape at the beginning and the end of the card, compared with the image.
fn shapes(pc: &mut Pc, card: &CardTraits, by_dma: bool) {
    // By hand every word costs a conversation with QEMU.
    let whole: &[usize] = if by_dma { &[65_536, 4096, 512, 66_048] } else { &[4096, 512, 1536] };
    // No segment starts or ends where DMA needs it.
    let odd: &[usize] = &[1, 0, 510, 513, 1023, 1];
    for (i, (lens, open_ended)) in
        [(&[512][..], false), (&[512], true), (&[4096], false), (whole, true), (whole, false), (odd, true)]
            .into_iter()
            .enumerate()
    {
        let data = pattern(lens.iter().sum(), i as u64);
        for lba in [1000 * i as u64, card.blocks - (data.len() / 512) as u64] {
            let what = format!("{lens:?} at {lba}, open ended: {open_ended}");
            let (result, after) = transfer(pc, card, Dir::Write, lba, cut(&data, lens), open_ended);
            assert_eq!(result, Ok((data.len() / 512) as u32), "{what}");
            assert!(after == data, "{what}: a write leaves the buffers as they were");
            assert!(stored(pc, IMAGE, lba, data.len()) == data, "{what}: the image");
            let empty = vec![0; data.len()];
            let (result, back) = transfer(pc, card, Dir::Read, lba, cut(&empty, lens), open_ended);
            assert!(result.is_ok() && back == data, "{what}: {result:?}");
        }
    }
}

#[test]
fn any_controller_identifies_any_card_and_moves_its_data() {
    let interrupts = Options { interrupts: true, ..PLAIN };
    let by_hand_irq = Options { interrupts: true, card_bytes: SDSC, ..BY_HAND };
    let sdsc = Options { card_bytes: SDSC, ..PLAIN };
    for o in [PLAIN, interrupts, sdsc, WIDE, V3, BY_HAND, by_hand_irq] {
        let Some(mut pc) = start(&o) else { return };
        let card = bring_up(&mut pc);
        let what = format!("{o:?}: {card:?}");
        assert_eq!(card.traits.blocks, o.card_bytes / 512, "{what}");
        assert_eq!(card.traits.byte_addressed, o.card_bytes == SDSC, "{what}");
        assert_eq!((card.bus.width, card.bus.signal), (Width::Four, Signal::V3_3), "{what}");
        assert_eq!(card.bus.timing, Timing::High, "{what}");
        assert_eq!(pc.host.engine().card_hz(), 26_000_000, "{what}: a part of the base clock of 52 MHz");
        shapes(&mut pc, &card.traits, o.platform.dma);
        let Transfers { dma, pio } = pc.host.engine().transfers();
        if o.platform.dma {
            assert_eq!(pio, 4, "only what is cut at odd places goes by hand");
            assert!(dma >= 20, "{dma}");
        } else {
            assert_eq!(dma, 0);
        }
        assert_eq!(pc.clock.interrupts > 0, o.interrupts);
    }
}

#[test]
fn a_disk_on_it_reads_back_what_it_wrote() {
    for interrupts in [false, true] {
        let Some(mut pc) = start(&Options { interrupts, ..PLAIN }) else { return };
        let card = bring_up(&mut pc);
        let Pc { qtest, host, clock, .. } = pc;
        let queue = Queue::new([Slot::FREE; 64], mmc_sched::Deadline::new());
        let tags = [const { Tag::new() }; 64];
        let disk =
            Disk::new(host, queue, card.traits, BufBatch::new(16), tags, Settings::default(), ()).unwrap();
        let mut disk = Blocking::new(disk, clock);
        for (i, len) in [512, 4096, 65_536, 1 << 20].into_iter().enumerate() {
            let (lba, data) = (4096 * i as u64 + 3, pattern(len, i as u64));
            disk.write(lba, Buf(data.clone())).unwrap();
            assert!(disk.read(lba, Buf(vec![0; len])).unwrap().0 == data, "{len} bytes");
        }
        assert!(disk.read(card.traits.blocks, Buf(vec![0; 512])).is_err(), "behind the end");
        drop(qtest);
    }
}

#[test]
fn the_controllers_own_stop_leaves_the_card_ready() {
    let Some(mut pc) = start(&PLAIN) else { return };
    let card = bring_up(&mut pc).traits;
    let data = pattern(4096, 7);
    for (command, payload) in [
        (Command::write_multiple_block(8, 8, Stop::Auto), cut(&data, &[4096])),
        (Command::read_multiple_block(8, 8, Stop::Auto), cut(&[0; 4096], &[4096])),
    ] {
        let done = operate(&mut pc, Operation::Transfer(command, payload), Duration::from_secs(2));
        let reply = done.result.unwrap();
        assert_eq!(reply.bytes, 4096);
        assert_eq!(
            reply.words[1] & 0xfff9_e008,
            0,
            "CMD12 was answered without an error: {:#x}",
            reply.words[1]
        );
        let Returned::Back(payload) = done.payload else { panic!("the buffers come back") };
        assert!(bytes(&payload) == data);
        let status =
            operate(&mut pc, Operation::Command(Command::send_status(card.rca)), Duration::from_secs(1));
        assert_eq!(status.result.unwrap().words[0] >> 9 & 0xf, 4, "in the transfer state");
    }
}

#[test]
fn an_erase_leaves_its_neighbours_alone() {
    for card_bytes in [SDSC, SDHC] {
        let Some(mut pc) = start(&Options { card_bytes, ..PLAIN }) else { return };
        let card = bring_up(&mut pc);
        let data = pattern(8192, 1);
        transfer(&mut pc, &card.traits, Dir::Write, 64, cut(&data, &[8192]), true).0.unwrap();
        let sd = card.sd().unwrap();
        let erase = Erase::new(&card.traits, sd.ssr.as_ref(), EraseKind::Erase, 68, 8);
        assert_eq!(converse(&mut pc, erase, None).0, Ok(8));
        let now = stored(&pc, IMAGE, 64, 8192);
        assert!(now[..2048] == data[..2048] && now[6144..] == data[6144..], "the neighbours");
        let first = now[2048];
        assert!(first == 0 || first == 0xff, "{first:#x}");
        assert!(now[2048..6144].iter().all(|b| *b == first), "all of it is erased");
    }
}

#[test]
fn what_the_card_refuses_is_an_error_and_the_next_transfer_works() {
    for o in [PLAIN, BY_HAND] {
        let Some(mut pc) = start(&o) else { return };
        let card = bring_up(&mut pc).traits;
        // A driver that believes the card is twice as large.
        let wrong = CardTraits { blocks: 2 * card.blocks, ..card };
        let data = pattern(4096, 3);
        for dir in [Dir::Read, Dir::Write] {
            let (result, _) = transfer(&mut pc, &wrong, dir, card.blocks + 8, cut(&data, &[4096]), true);
            assert!(result.is_err(), "{dir:?} behind the end: {result:?}");
            assert_eq!(transfer(&mut pc, &card, Dir::Write, 0, cut(&data, &[4096]), true).0, Ok(8));
            let (result, back) = transfer(&mut pc, &card, Dir::Read, 0, cut(&[0; 4096], &[4096]), true);
            assert!(result == Ok(8) && back == data);
        }
    }
}

#[test]
fn a_write_to_protected_blocks_is_refused_and_changes_nothing() {
    let Some(mut pc) = start(&Options { card_bytes: SDSC, ..PLAIN }) else { return };
    let card = bring_up(&mut pc);
    let data = pattern(4096, 4);
    assert_eq!(transfer(&mut pc, &card.traits, Dir::Write, 16, cut(&data, &[4096]), true).0, Ok(8));
    // CMD28: the group of blocks at this (byte) address is protected.
    let protect = Command { busy: true, ..Command::plain(28, 16 * 512, Response::Short) };
    let done = operate(&mut pc, Operation::Command(protect), Duration::from_secs(1));
    assert_eq!(done.result.unwrap().words[0] & 0xfff9_e008, 0);
    let other = pattern(4096, 5);
    let (result, _) = transfer(&mut pc, &card.traits, Dir::Write, 16, cut(&other, &[4096]), true);
    let error = result.unwrap_err();
    assert!(error.status.is_some_and(|s| s.contains(CardStatus::WP_VIOLATION)), "{error:?}");
    assert!(stored(&pc, IMAGE, 16, 4096) == data, "nothing was written");
    let (result, back) = transfer(&mut pc, &card.traits, Dir::Read, 16, cut(&[0; 4096], &[4096]), true);
    assert!(result == Ok(8) && back == data);
}

#[test]
fn a_limit_ends_a_transfer_and_the_next_one_works() {
    let Some(mut pc) = start(&BY_HAND) else { return };
    let card = bring_up(&mut pc).traits;
    let data = pattern(65_536, 6);
    let write = Command::write_multiple_block(0, 128, Stop::Manual);
    let payload = cut(&data, &[65_536]);
    let done = operate(&mut pc, Operation::Transfer(write, payload), Duration::from_millis(3));
    assert_eq!(done.result.unwrap_err().cause, Cause::Limit);
    let Returned::Back(payload) = done.payload else { panic!("the buffers come back") };
    assert!(bytes(&payload) == data);
    let stop = operate(&mut pc, Operation::Command(Command::stop_transmission()), Duration::from_secs(1));
    assert!(stop.result.is_ok(), "{stop:?}");
    assert_eq!(transfer(&mut pc, &card, Dir::Write, 8, cut(&data, &[65_536]), true).0, Ok(128));
    assert!(stored(&pc, IMAGE, 8, 65_536) == data);
}

#[test]
fn a_command_nobody_answers_is_a_timeout() {
    let Some(mut pc) = start(&PLAIN) else { return };
    let card = bring_up(&mut pc).traits;
    let stranger = Command::send_status(card.rca ^ 0x5555);
    let done = operate(&mut pc, Operation::Command(stranger), Duration::from_secs(1));
    let error = done.result.unwrap_err();
    assert_eq!((error.cause, error.phase), (Cause::Timeout, Phase::Command));
    let status = operate(&mut pc, Operation::Command(Command::send_status(card.rca)), Duration::from_secs(1));
    assert_eq!(status.result.unwrap().words[0] >> 9 & 0xf, 4);
}

#[test]
fn a_bad_descriptor_is_a_dma_error_and_the_buffers_come_back() {
    for o in [PLAIN, WIDE, Options { interrupts: true, ..PLAIN }] {
        let Some(mut pc) = start(&o) else { return };
        let card = bring_up(&mut pc).traits;
        pc.spoil.store(true, Ordering::Relaxed);
        let read = Command::read_multiple_block(0, 8, Stop::Manual);
        let done =
            operate(&mut pc, Operation::Transfer(read, cut(&[0; 4096], &[4096])), Duration::from_secs(2));
        assert_eq!(done.result.unwrap_err().cause, Cause::Dma);
        assert!(matches!(done.payload, Returned::Back(_)));
        pc.spoil.store(false, Ordering::Relaxed);
        // The card is still sending; whoever began that stops it.
        let stop = operate(&mut pc, Operation::Command(Command::stop_transmission()), Duration::from_secs(1));
        assert!(stop.result.is_ok(), "{stop:?}");
        let data = pattern(4096, 9);
        assert_eq!(transfer(&mut pc, &card, Dir::Write, 8, cut(&data, &[4096]), true).0, Ok(8));
        assert!(stored(&pc, IMAGE, 8, 4096) == data);
    }
}

#[test]
fn a_card_that_leaves_is_told_and_another_is_identified() {
    let Some(mut pc) = start(&PLAIN) else { return };
    let card = bring_up(&mut pc).traits;
    let now = pc.clock.now();
    let slot = pc.host.slot(now);
    assert_eq!((slot.present, slot.write_protected), (Some(true), Some(false)));
    pc.eject();
    let (result, _) = transfer(&mut pc, &card, Dir::Read, 0, cut(&[0; 512], &[512]), true);
    let error = result.unwrap_err();
    assert!(matches!(error.cause, mmc_proto::machine::TransferCause::Host(e) if e.media_gone()), "{error:?}");
    let now = pc.clock.now();
    let gone = pc.host.slot(now);
    assert_eq!((gone.present, gone.changes), (Some(false), slot.changes + 1));
    pc.insert("other.img", SDSC);
    let begun = std::time::Instant::now();
    let back = loop {
        let now = pc.clock.now();
        let seen = pc.host.slot(now);
        if seen.present == Some(true) || begun.elapsed().as_secs() > 5 {
            break seen;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(
        (back.present, back.write_protected, back.changes),
        (Some(true), Some(false), gone.changes + 1)
    );
    let other = bring_up(&mut pc).traits;
    assert_eq!(other.blocks, SDSC / 512);
    let (result, _) = transfer(&mut pc, &other, Dir::Read, 0, cut(&[0; 4096], &[4096]), true);
    assert_eq!(result, Ok(8));
}

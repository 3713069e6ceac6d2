//! Our conversations and our disk on Allwinner's host and QEMU's card, by an engine of two hundred lines.

use mmc_block::{Blocking, Disk, Settings, Tag};
use mmc_hal::Dir;
use mmc_mock::{Buf, BufBatch};
use mmc_proto::bus::{Timing, Width};
use mmc_proto::host::Host;
use mmc_proto::machine::{CardTraits, Erase, Identified, Identify};
use mmc_proto::status::CardStatus;
use mmc_proto::timing::EraseKind;
use mmc_sched::{Queue, Slot};
use qemu_bench::IMAGE;
use qemu_bench::orangepi::OrangePi;
use qemu_bench::talk::{converse, cut, pattern, stored, transfer};

const MIB: u64 = 1 << 20;
const SIZES: [u64; 2] = [64 * MIB, 4096 * MIB];

fn bring_up(b: &mut OrangePi) -> Identified {
    let machine = Identify::new(&b.host.capabilities());
    converse(&mut b.host, &mut b.clock, machine, Some(cut(&[0; 512], &[512]))).0.unwrap()
}

#[test]
fn a_host_of_somebody_elses_identifies_and_moves_data() {
    for bytes in SIZES {
        let Some(qemu) = qemu_bench::qemu("arm") else { return };
        let mut b = OrangePi::start(&qemu, bytes);
        let card = bring_up(&mut b);
        assert_eq!(card.traits.blocks, bytes / 512);
        assert_eq!(card.traits.byte_addressed, bytes == 64 * MIB);
        assert_eq!((card.bus.width, card.bus.timing), (Width::Four, Timing::High));
        let image = b.qtest.file(IMAGE);
        for (i, lens) in [&[512][..], &[4096], &[1, 510, 1537], &[32_768, 32_768]].into_iter().enumerate() {
            let data = pattern(lens.iter().sum(), i as u64);
            for lba in [200 * i as u64, card.traits.blocks - (data.len() / 512) as u64] {
                for open_ended in [true, false] {
                    let mut go = |dir, batch| {
                        transfer(&mut b.host, &mut b.clock, &card.traits, dir, lba, batch, open_ended)
                    };
                    let (result, _) = go(Dir::Write, cut(&data, lens));
                    assert_eq!(result, Ok((data.len() / 512) as u32), "{lens:?} at {lba}");
                    assert!(stored(&image, lba, data.len()) == data, "{lens:?} at {lba}: the image");
                    let (result, back) = go(Dir::Read, cut(&vec![0; data.len()], lens));
                    assert!(result.is_ok() && back == data, "{lens:?} at {lba}: {result:?}");
                }
            }
        }
        let erase = Erase::new(&card.traits, None, EraseKind::Erase, 201, 2);
        assert_eq!(converse(&mut b.host, &mut b.clock, erase, None).0, Ok(2));
        assert!(stored(&image, 200, 512) == pattern(4096, 1)[..512], "the neighbour");
        assert!(stored(&image, 201, 1024) != pattern(4096, 1)[512..1536], "gone");
    }
}

#[test]
fn a_read_that_is_refused_sends_nothing_and_spoils_nothing() {
    for bytes in SIZES {
        let Some(qemu) = qemu_bench::qemu("arm") else { return };
        let mut b = OrangePi::start(&qemu, bytes);
        let card = bring_up(&mut b).traits;
        // A driver that believes the card is twice as large.
        let wrong = CardTraits { blocks: 2 * card.blocks, ..card };
        let (lba, data) = (card.blocks + 8, pattern(4096, 3));
        for dir in [Dir::Read, Dir::Write] {
            let (result, _) =
                transfer(&mut b.host, &mut b.clock, &wrong, dir, lba, cut(&data, &[4096]), true);
            let error = result.unwrap_err();
            assert!(error.status.is_some_and(|s| s.intersects(CardStatus::ERRORS)), "{dir:?}: {error:?}");
            let mut go = |dir, batch| transfer(&mut b.host, &mut b.clock, &card, dir, 0, batch, true);
            assert_eq!(go(Dir::Write, cut(&data, &[4096])).0, Ok(8), "after {dir:?}");
            let (result, back) = go(Dir::Read, cut(&[0; 4096], &[4096]));
            assert!(result == Ok(8) && back == data, "after {dir:?}");
        }
    }
}

#[test]
fn a_disk_on_it_reads_back_what_it_wrote() {
    let Some(qemu) = qemu_bench::qemu("arm") else { return };
    let mut b = OrangePi::start(&qemu, SIZES[1]);
    let card = bring_up(&mut b);
    let queue = Queue::new([Slot::FREE; 64], mmc_sched::Deadline::new());
    let tags = [const { Tag::new() }; 64];
    let disk = Disk::new(b.host, queue, card.traits, BufBatch::new(16), tags, Settings::default(), ());
    let mut disk = Blocking::new(disk.unwrap(), b.clock);
    for (i, len) in [512, 4096, 65_536].into_iter().enumerate() {
        let (lba, data) = (4096 * i as u64 + 3, pattern(len, i as u64));
        disk.write(lba, Buf(data.clone())).unwrap();
        assert!(disk.read(lba, Buf(vec![0; len])).unwrap().0 == data, "{len} bytes");
    }
}

//! Our SPI engine on QEMU's bus and QEMU's card in SPI mode.

use mmc_hal::Dir;
use mmc_mock::BufBatch;
use mmc_proto::host::Host;
use mmc_proto::machine::{CardTraits, Erase, Identified, Identify};
use mmc_proto::timing::EraseKind;
use qemu_bench::IMAGE;
use qemu_bench::stellaris::Stellaris;
use qemu_bench::talk::{converse, cut, pattern, stored, transfer};

const MIB: u64 = 1 << 20;

fn bring_up(b: &mut Stellaris) -> Identified {
    let machine = Identify::new(&b.host.capabilities());
    converse(&mut b.host, &mut b.clock, machine, Some(cut(&[0; 512], &[512]))).0.unwrap()
}

fn moved(b: &mut Stellaris, card: &CardTraits, dir: Dir, lba: u64, payload: BufBatch) -> Option<Vec<u8>> {
    let (result, data) = transfer(&mut b.host, &mut b.clock, card, dir, lba, payload, true);
    if let Err(e) = &result {
        eprintln!("{dir:?} at {lba}: {e}");
    }
    result.ok().map(|_| data)
}

#[test]
fn cards_are_identified_and_move_their_data_over_spi() {
    for bytes in [64 * MIB, 4096 * MIB] {
        let Some(qemu) = qemu_bench::qemu("arm") else { return };
        let mut b = Stellaris::start(&qemu, bytes);
        let card = bring_up(&mut b);
        assert_eq!(card.traits.blocks, bytes / 512);
        assert_eq!(card.traits.byte_addressed, bytes == 64 * MIB);
        let image = b.qtest.file(IMAGE);
        for (i, lens) in [&[512][..], &[4096], &[1, 510, 1537]].into_iter().enumerate() {
            let data = pattern(lens.iter().sum(), i as u64);
            for lba in [100 * i as u64, card.traits.blocks - (data.len() / 512) as u64] {
                assert!(
                    moved(&mut b, &card.traits, Dir::Write, lba, cut(&data, lens)).is_some(),
                    "{lens:?} at {lba}"
                );
                assert!(stored(&image, lba, data.len()) == data, "{lens:?} at {lba}: the image");
                let empty = cut(&vec![0; data.len()], lens);
                assert!(
                    moved(&mut b, &card.traits, Dir::Read, lba, empty) == Some(data.clone()),
                    "{lens:?} at {lba}"
                );
            }
        }
        let erase = Erase::new(&card.traits, None, EraseKind::Erase, 101, 2);
        assert_eq!(converse(&mut b.host, &mut b.clock, erase, None).0, Ok(2));
        assert!(stored(&image, 100, 512) == pattern(4096, 1)[..512], "the neighbour");
        assert!(stored(&image, 101, 1024) != pattern(4096, 1)[512..1536], "gone");
    }
}

#[test]
fn a_read_that_is_refused_spoils_nothing_after_it() {
    for bytes in [64 * MIB, 4096 * MIB] {
        let Some(qemu) = qemu_bench::qemu("arm") else { return };
        let mut b = Stellaris::start(&qemu, bytes);
        let card = bring_up(&mut b).traits;
        // A driver that believes the card is twice as large.
        let wrong = CardTraits { blocks: 2 * card.blocks, ..card };
        let data = pattern(1024, 3);
        for dir in [Dir::Read, Dir::Write] {
            for lens in [&[512][..], &[1024]] {
                let beyond = cut(&data, lens);
                assert!(moved(&mut b, &wrong, dir, card.blocks + 8, beyond).is_none(), "{dir:?} {lens:?}");
                // At the first attempt.
                let back = moved(&mut b, &card, Dir::Read, 0, cut(&[0; 1024], lens));
                assert!(back.is_some(), "a read after {dir:?} {lens:?}");
                assert!(moved(&mut b, &wrong, dir, card.blocks + 8, cut(&data, lens)).is_none());
                assert!(
                    moved(&mut b, &card, Dir::Write, 0, cut(&data, lens)).is_some(),
                    "a write after {dir:?}"
                );
                assert!(
                    moved(&mut b, &card, Dir::Read, 0, cut(&[0; 1024], lens))
                        == Some(data[..lens[0]].to_vec())
                );
            }
        }
    }
}

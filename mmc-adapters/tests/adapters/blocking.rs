//! `embedded-sdmmc` and `embedded-storage` over a blocking disk.

use crate::{Virtual, buffers, disk, new_card, pattern, stored};
use embedded_sdmmc_types::blockdevice::{Block, BlockCount, BlockDevice, BlockIdx};
use embedded_storage::{ReadStorage, Storage};
use mmc_adapters::{Bounce, ByteStorage, Error, FatDevice, NoSector, Sectors};
use mmc_block::{Blocking, Failure, Refusal};
use mmc_mock::Buf;
use mmc_mock::card::Card as _;
use proptest::prelude::*;

fn sectors(card: &crate::Card, lengths: &[usize]) -> Sectors<crate::MockDisk, Virtual, Vec<Option<Buf>>> {
    let env = Virtual::default();
    let disk = disk(card, &env);
    Sectors::new(Blocking::new(disk, env), Bounce::new(buffers(lengths)).unwrap())
}

fn blocks(bytes: &[u8]) -> Vec<Block> {
    bytes.chunks(512).map(|c| Block { contents: c.try_into().unwrap() }).collect()
}

#[test]
fn blocks_of_a_file_system_go_in_few_commands_and_come_back() {
    let card = new_card();
    let device = FatDevice::new(sectors(&card, &[32, 4, 1]));
    assert_eq!(device.num_blocks().unwrap(), BlockCount(16_777_216));
    let data = pattern(70 * 512, 3);
    device.write(&blocks(&data), BlockIdx(1000)).unwrap();
    assert_eq!(stored(&card, 512_000, data.len()), data);
    let mut back = blocks(&vec![0; data.len()]);
    device.read(&mut back, BlockIdx(1000)).unwrap();
    assert!(back.iter().zip(blocks(&data)).all(|(a, b)| a.contents == b.contents));
    device.read(&mut [], BlockIdx(u32::MAX)).unwrap();

    // Beyond the card: refused by the disk, and the buffers are all there afterwards.
    let end = device.read(&mut blocks(&[0; 2048]), BlockIdx(16_777_215)).unwrap_err();
    assert!(
        matches!(end, Error::Disk(Failure::Refused(Refusal::OutOfRange { lba: 16_777_215, .. }))),
        "{end}"
    );
    device.write(&blocks(&data), BlockIdx(0)).unwrap();
    let mut inner = device.into_inner();
    // 70 sectors: 32 + 32 + 4 + 1 + 1, three times.
    assert_eq!(inner.disk().disk().statistics().commands, 15);
    assert!(card.violations().is_empty());
}

#[test]
fn a_card_that_is_gone_is_an_error_each_time() {
    let card = new_card();
    let device = FatDevice::new(sectors(&card, &[8, 1]));
    card.lock().set_present(false);
    for _ in 0..3 {
        let e = device.read(&mut blocks(&[0; 4096]), BlockIdx(0)).unwrap_err();
        assert!(matches!(e, Error::Disk(_)), "{e}");
    }
}

#[test]
fn buffers_must_make_up_any_length() {
    for lengths in [&[][..], &[2], &[8, 4]] {
        assert_eq!(Bounce::new(buffers(lengths)).unwrap_err(), NoSector);
    }
    for length in [0, 511, 700] {
        let odd = vec![Some(Buf(vec![0; 512])), Some(Buf(vec![0; length]))];
        assert_eq!(Bounce::new(odd).unwrap_err(), NoSector);
    }
}

#[test]
fn whole_sectors_of_a_byte_range_go_in_few_commands() {
    let card = new_card();
    let mut storage = ByteStorage::new(sectors(&card, &[32, 4, 1]));
    let data = pattern(70 * 512, 3);
    storage.write(512_000, &data).unwrap();
    assert_eq!(stored(&card, 512_000, data.len()), data);
    let mut back = vec![0; data.len()];
    storage.read(512_000, &mut back).unwrap();
    assert!(back == data);
    // 32 + 32 + 4 + 1 + 1, twice.
    assert_eq!(storage.into_inner().disk().disk().statistics().commands, 10);
}

#[test]
fn bytes_beyond_the_first_4_gib_are_out_of_range() {
    let card = new_card();
    let mut storage = ByteStorage::new(sectors(&card, &[1]));
    // Where a `usize` ends before, that is all the trait can say.
    assert_eq!(storage.capacity(), usize::try_from(1_u64 << 32).unwrap_or(usize::MAX));
    storage.write(u32::MAX, &[7]).unwrap();
    assert_eq!(stored(&card, u64::from(u32::MAX), 1), [7]);
    let e = storage.write(u32::MAX, &[7, 7]).unwrap_err();
    assert_eq!(e, Error::OutOfRange { offset: u64::from(u32::MAX), len: 2 });
    assert!(storage.read(u32::MAX, &mut [0; 2]).is_err());
    assert_eq!(stored(&card, 1 << 32, 1), [0], "nothing was written");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Reads and writes of any bytes are those of a plain array, whatever buffers are in between.
    #[test]
    fn any_bytes_anywhere_as_in_an_array(
        ops in prop::collection::vec((any::<bool>(), 0_usize..9000, 0_usize..5000, any::<u8>()), 1..20),
        lengths in prop::sample::select(vec![vec![1], vec![1, 2], vec![8, 1], vec![3, 1, 1, 5]]),
    ) {
        let card = new_card();
        let mut storage = ByteStorage::new(sectors(&card, &lengths));
        let mut model = vec![0_u8; 16_384];
        for (write, offset, len, seed) in ops {
            if write {
                let data = pattern(len, seed.into());
                storage.write(offset as u32, &data).unwrap();
                model[offset..offset + len].copy_from_slice(&data);
            } else {
                let mut data = vec![0xee; len];
                storage.read(offset as u32, &mut data).unwrap();
                prop_assert_eq!(&data, &model[offset..offset + len]);
            }
        }
        prop_assert_eq!(stored(&card, 0, model.len()), model);
    }
}

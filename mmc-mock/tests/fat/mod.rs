//! A FAT16 volume of 32 MiB behind a master boot record, laid out by hand: enough for a foreign driver, and to look
//! at what it wrote without it.

use mmc_mock::storage::Storage;

/// First sector of the partition.
const START: u64 = 2048;
const SECTORS: u32 = 65_536;
const PER_CLUSTER: u64 = 8;
const FAT_SECTORS: u64 = 32;
const ROOT_ENTRIES: u64 = 512;
const ROOT: u64 = START + 1 + 2 * FAT_SECTORS;
const DATA: u64 = ROOT + ROOT_ENTRIES * 32 / 512;

/// What HELLO.TXT holds.
pub(crate) const HELLO: &[u8] = b"A card says hello.\n";

fn put(s: &mut Storage, sector: u64, bytes: &[u8]) {
    s.write(sector * 512, bytes).unwrap();
}

/// Writes the volume, with one file in it.
pub(crate) fn format(s: &mut Storage) {
    let mut mbr = [0; 512];
    mbr[446 + 4] = 0x06; // FAT16
    mbr[446 + 8..446 + 12].copy_from_slice(&(START as u32).to_le_bytes());
    mbr[446 + 12..446 + 16].copy_from_slice(&SECTORS.to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    put(s, 0, &mbr);

    let mut boot = [0; 512];
    boot[..11].copy_from_slice(b"\xeb\x3c\x90MOCKFAT ");
    boot[11..13].copy_from_slice(&512_u16.to_le_bytes());
    boot[13] = PER_CLUSTER as u8;
    boot[14] = 1; // reserved sectors
    boot[16] = 2; // FATs
    boot[17..19].copy_from_slice(&(ROOT_ENTRIES as u16).to_le_bytes());
    boot[21] = 0xf8;
    boot[22..24].copy_from_slice(&(FAT_SECTORS as u16).to_le_bytes());
    boot[28..32].copy_from_slice(&(START as u32).to_le_bytes());
    boot[32..36].copy_from_slice(&SECTORS.to_le_bytes());
    boot[36] = 0x80;
    boot[38] = 0x29;
    boot[43..62].copy_from_slice(b"MOCK       FAT16   ");
    boot[510..].copy_from_slice(&[0x55, 0xaa]);
    put(s, START, &boot);

    let mut fat = [0; 512];
    fat[..6].copy_from_slice(&[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff]); // cluster 2 is the end of a file
    put(s, START + 1, &fat);
    put(s, START + 1 + FAT_SECTORS, &fat);

    let mut root = [0; 512];
    root[..11].copy_from_slice(b"HELLO   TXT");
    root[11] = 0x20;
    root[26] = 2;
    root[28..32].copy_from_slice(&(HELLO.len() as u32).to_le_bytes());
    put(s, ROOT, &root);
    let mut data = [0; 512];
    data[..HELLO.len()].copy_from_slice(HELLO);
    put(s, DATA, &data);
}

/// Contents of a file of the root directory, by its name of 8 and 3 characters.
pub(crate) fn file(s: &mut Storage, name: &[u8; 11]) -> Option<Vec<u8>> {
    let word = |b: &[u8], at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    let mut root = vec![0; (DATA - ROOT) as usize * 512];
    s.read(ROOT * 512, &mut root).unwrap();
    let mut fat = vec![0; FAT_SECTORS as usize * 512];
    s.read((START + 1) * 512, &mut fat).unwrap();
    let entry = root.chunks(32).find(|e| &e[..11] == name)?;
    let size = u32::from_le_bytes([entry[28], entry[29], entry[30], entry[31]]) as usize;
    let (mut cluster, mut bytes) = (word(entry, 26), Vec::new());
    while (2..0xfff0).contains(&cluster) && bytes.len() < size {
        let mut block = vec![0; PER_CLUSTER as usize * 512];
        s.read((DATA + (u64::from(cluster) - 2) * PER_CLUSTER) * 512, &mut block).unwrap();
        bytes.extend(block);
        cluster = word(&fat, usize::from(cluster) * 2);
    }
    bytes.truncate(size);
    Some(bytes)
}

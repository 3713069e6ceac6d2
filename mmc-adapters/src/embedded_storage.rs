//! `ReadStorage` and `Storage` of `embedded-storage` over a blocking disk: any bytes anywhere.

use crate::sectors::{Error, Sectors};
use embedded_storage::{ReadStorage, Storage};
use mmc_block::{AnyDisk, Idle, SECTOR};

/// A card as a row of bytes.
///
/// Offsets are 32 bits in that trait: the first 4 GiB of a card. A sector that is written in part is read, changed and
/// written again; what its other bytes are when the supply fails meanwhile is the card's affair. There is no asynchronous
/// form: `embedded-storage-async` has traits for NOR flash only.
pub struct ByteStorage<D: AnyDisk, I, S> {
    sectors: Sectors<D, I, S>,
    bytes: u64,
}

impl<D: AnyDisk, I, S> core::fmt::Debug for ByteStorage<D, I, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ByteStorage").finish_non_exhaustive()
    }
}

/// What of a byte range is in one go: whole sectors, or a part of one.
struct Piece {
    lba: u64,
    /// First byte in that sector.
    at: usize,
    len: usize,
}

impl Piece {
    fn first(offset: u64, len: usize) -> Self {
        const BYTES: u64 = SECTOR as u64;
        let (lba, at) = (offset / BYTES, usize::try_from(offset % BYTES).unwrap_or(0));
        let whole = len / SECTOR;
        let len = match (at, whole) {
            (0, 1..) => whole.saturating_mul(SECTOR),
            _ => len.min(SECTOR.saturating_sub(at)),
        };
        Self { lba, at, len }
    }
    const fn is_whole(&self) -> bool {
        self.len >= SECTOR
    }
}

impl<D, I, S> ByteStorage<D, I, S>
where
    D: AnyDisk,
    I: Idle,
    S: AsMut<[Option<D::Buffer>]>,
{
    /// The bytes of a whole card, as far as 32 bits reach.
    pub fn new(mut sectors: Sectors<D, I, S>) -> Self {
        let bytes = sectors.blocks().saturating_mul(SECTOR as u64).min(1 << 32);
        Self { sectors, bytes }
    }
    /// The disk and its buffers.
    pub fn into_inner(self) -> Sectors<D, I, S> {
        self.sectors
    }

    fn check(&self, offset: u32, len: usize) -> Result<u64, Error> {
        let offset = u64::from(offset);
        let end = u64::try_from(len).ok().and_then(|len| offset.checked_add(len));
        if end.is_none_or(|end| end > self.bytes) {
            return Err(Error::OutOfRange { offset, len });
        }
        Ok(offset)
    }
}

impl<D, I, S> ReadStorage for ByteStorage<D, I, S>
where
    D: AnyDisk,
    I: Idle,
    S: AsMut<[Option<D::Buffer>]>,
{
    type Error = Error;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), Error> {
        let mut offset = self.check(offset, bytes.len())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = Piece::first(offset, rest.len());
            let Some((now, later)) = rest.split_at_mut_checked(piece.len) else { break };
            if piece.is_whole() {
                self.sectors.read(piece.lba, now.chunks_exact_mut(SECTOR))?;
            } else {
                let mut sector = [0; SECTOR];
                self.sectors.read(piece.lba, core::iter::once(sector.as_mut_slice()))?;
                now.iter_mut().zip(sector.iter().skip(piece.at)).for_each(|(to, from)| *to = *from);
            }
            offset = offset.saturating_add(piece.len as u64);
            rest = later;
        }
        Ok(())
    }
    fn capacity(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }
}

impl<D, I, S> Storage for ByteStorage<D, I, S>
where
    D: AnyDisk,
    I: Idle,
    S: AsMut<[Option<D::Buffer>]>,
{
    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let mut offset = self.check(offset, bytes.len())?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = Piece::first(offset, rest.len());
            let Some((now, later)) = rest.split_at_checked(piece.len) else { break };
            if piece.is_whole() {
                self.sectors.write(piece.lba, now.chunks_exact(SECTOR))?;
            } else {
                let mut sector = [0; SECTOR];
                self.sectors.read(piece.lba, core::iter::once(sector.as_mut_slice()))?;
                sector.iter_mut().skip(piece.at).zip(now).for_each(|(to, from)| *to = *from);
                self.sectors.write(piece.lba, core::iter::once(sector.as_slice()))?;
            }
            offset = offset.saturating_add(piece.len as u64);
            rest = later;
        }
        Ok(())
    }
}

//! `BlockDevice` of `embedded-sdmmc` over a blocking disk: a FAT file system on any of our hosts.

use crate::sectors::{Error, Sectors};
use core::cell::RefCell;
use embedded_sdmmc_types::blockdevice::{Block, BlockCount, BlockDevice, BlockIdx};
use mmc_block::{AnyDisk, Idle};

/// A disk for `embedded_sdmmc::VolumeManager`.
///
/// Its trait takes `&self`, so the disk is in a `RefCell`; its block numbers are 32 bits: a card of more than 2 TiB is seen
/// up to there.
pub struct FatDevice<D: AnyDisk, I, S>(RefCell<Sectors<D, I, S>>);

impl<D: AnyDisk, I, S> core::fmt::Debug for FatDevice<D, I, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FatDevice").finish_non_exhaustive()
    }
}

impl<D: AnyDisk, I, S> FatDevice<D, I, S> {
    /// A device over the sectors of a whole card.
    pub const fn new(sectors: Sectors<D, I, S>) -> Self {
        Self(RefCell::new(sectors))
    }
    /// The disk and its buffers.
    pub fn into_inner(self) -> Sectors<D, I, S> {
        self.0.into_inner()
    }
}

impl<D, I, S> BlockDevice for FatDevice<D, I, S>
where
    D: AnyDisk,
    I: Idle,
    S: AsMut<[Option<D::Buffer>]>,
{
    type Error = Error;

    fn read(&self, blocks: &mut [Block], start: BlockIdx) -> Result<(), Error> {
        let mut sectors = self.0.try_borrow_mut().map_err(|_| Error::InUse)?;
        sectors.read(start.0.into(), blocks.iter_mut().map(|b| b.contents.as_mut_slice()))
    }
    fn write(&self, blocks: &[Block], start: BlockIdx) -> Result<(), Error> {
        let mut sectors = self.0.try_borrow_mut().map_err(|_| Error::InUse)?;
        sectors.write(start.0.into(), blocks.iter().map(|b| b.contents.as_slice()))
    }
    fn num_blocks(&self) -> Result<BlockCount, Error> {
        let mut sectors = self.0.try_borrow_mut().map_err(|_| Error::InUse)?;
        Ok(BlockCount(u32::try_from(sectors.blocks()).unwrap_or(u32::MAX)))
    }
}

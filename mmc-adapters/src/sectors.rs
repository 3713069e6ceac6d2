//! Runs of sectors over a blocking disk, from and to slices that are only lent.

use crate::bounce::{Bounce, load, unload};
use mmc_block::{AnyDisk, Blocking, Failure, Idle, SECTOR};

/// Why an adapter's call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk refused or failed it.
    #[error(transparent)]
    Disk(Failure),
    /// All buffers of one sector are with the host (reclaim them), or with another call.
    #[error("no buffer of one sector is left")]
    NoBuffer,
    /// The device is used already, further up in the same call.
    #[error("the device is in use")]
    InUse,
    /// Bytes that are not on the device, or not within the 32 bits of the trait's addresses.
    #[error("bytes {offset}+{len} reach beyond the device")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: usize,
    },
}

/// A blocking disk with the buffers for requests that lend theirs; what the blocking adapters are built on.
pub struct Sectors<D: AnyDisk, I, S> {
    disk: Blocking<D, I>,
    bounce: Bounce<S, D::Buffer>,
}

impl<D: AnyDisk, I, S> core::fmt::Debug for Sectors<D, I, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sectors").finish_non_exhaustive()
    }
}

impl<D, I, S> Sectors<D, I, S>
where
    D: AnyDisk,
    I: Idle,
    S: AsMut<[Option<D::Buffer>]>,
{
    /// A disk and its buffers. Other users of the disk may go on beside it.
    pub const fn new(disk: Blocking<D, I>, bounce: Bounce<S, D::Buffer>) -> Self {
        Self { disk, bounce }
    }
    /// The disk.
    pub const fn disk(&mut self) -> &mut Blocking<D, I> {
        &mut self.disk
    }
    /// Sectors of the card.
    pub fn blocks(&mut self) -> u64 {
        self.disk.disk().blocks()
    }

    /// Reads sectors from `lba` on, one for each slice of `to` (512 bytes each).
    ///
    /// # Errors
    /// [`Error`]; what was read before it is in its place.
    pub fn read<'a>(
        &mut self,
        mut lba: u64,
        to: impl ExactSizeIterator<Item = &'a mut [u8]>,
    ) -> Result<(), Error> {
        let mut to = to;
        while to.len() > 0 {
            let loan = self.loan(to.len())?;
            let read = self.disk.read(lba, loan.buffer);
            self.back(loan.place, read, |buffer| {
                for n in 0..loan.sectors {
                    if let Some(bytes) = to.next() {
                        unload(buffer, n.saturating_mul(SECTOR), bytes);
                    }
                }
            })?;
            lba = lba.saturating_add(loan.sectors as u64);
        }
        Ok(())
    }

    /// Writes sectors from `lba` on, one from each slice of `from` (512 bytes each).
    ///
    /// # Errors
    /// [`Error`]; what was written before it is stored.
    pub fn write<'a>(
        &mut self,
        mut lba: u64,
        from: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<(), Error> {
        let mut from = from;
        while from.len() > 0 {
            let mut loan = self.loan(from.len())?;
            for n in 0..loan.sectors {
                if let Some(bytes) = from.next() {
                    load(&mut loan.buffer, n.saturating_mul(SECTOR), bytes);
                }
            }
            let written = self.disk.write(lba, loan.buffer);
            self.back(loan.place, written, |_| ())?;
            lba = lba.saturating_add(loan.sectors as u64);
        }
        Ok(())
    }

    fn loan(&mut self, sectors: usize) -> Result<crate::bounce::Loan<D::Buffer>, Error> {
        let max = u64::from(self.disk.disk().limits().max_blocks).min(sectors as u64);
        self.bounce.take(max).ok_or(Error::NoBuffer)
    }
    /// The buffer comes home, whatever happened.
    fn back(
        &mut self,
        place: usize,
        result: Result<D::Buffer, mmc_block::Failed<D::Buffer>>,
        good: impl FnOnce(&D::Buffer),
    ) -> Result<(), Error> {
        let (buffer, error) = match result {
            Ok(buffer) => {
                good(&buffer);
                (Some(buffer), None)
            }
            Err(failed) => (failed.buffer, Some(Error::Disk(failed.error))),
        };
        self.bounce.put(place, buffer);
        error.map_or(Ok(()), Err)
    }
}

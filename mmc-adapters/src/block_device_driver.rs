//! `BlockDevice<512>` of `block-device-driver` over an async disk, for file systems that await.

use crate::bounce::{Bounce, Loan, load, unload};
use crate::sectors::Error;
use aligned::{A4, Aligned};
use mmc_block::{AnyDisk, Env, Failure, Gone, Handle, InFlight, Lock, SECTOR};
use mmc_sched::{Flags, Op, Request, StreamId};

type Buffer<L> = <<L as Lock>::Disk as AnyDisk>::Buffer;

/// One client of an async disk: one request at a time, with its own buffers. Many may share a disk.
///
/// A call whose future is dropped costs nothing: its request goes on, and the next call waits for it first and has the
/// buffer back.
///
/// Its block numbers are 32 bits: a card of more than 2 TiB is reached up to there, though `size` tells all of it.
pub struct AsyncDevice<'d, L: Lock, E: Env, S> {
    disk: Handle<'d, L, E>,
    stream: StreamId,
    bounce: Bounce<S, Buffer<L>>,
    /// What is on its way, and the place of its buffer.
    going: Option<(InFlight<'d, L, E>, usize)>,
}

impl<L: Lock, E: Env, S> core::fmt::Debug for AsyncDevice<'_, L, E, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AsyncDevice").field("going", &self.going).finish_non_exhaustive()
    }
}

impl<'d, L, E, S> AsyncDevice<'d, L, E, S>
where
    L: Lock,
    E: Env,
    S: AsMut<[Option<Buffer<L>>]>,
{
    /// A client; `stream` is whose requests these are, for the scheduler. Its [`Runner`](mmc_block::Runner) is awaited
    /// elsewhere.
    pub const fn new(disk: Handle<'d, L, E>, stream: StreamId, bounce: Bounce<S, Buffer<L>>) -> Self {
        Self { disk, stream, bounce, going: None }
    }

    /// Waits for what is on its way and brings its buffer home; `good` looks at it before.
    async fn settle(&mut self, good: impl FnOnce(&Buffer<L>)) -> Result<(), Error> {
        let Some((flight, place)) = &mut self.going else { return Ok(()) };
        let place = *place;
        let done = flight.await;
        self.going = None;
        let done = done.map_err(|Gone| Error::Disk(Failure::Lost))?;
        if let (Ok(()), Some(buffer)) = (done.result, &done.buffer) {
            good(buffer);
        }
        self.bounce.put(place, done.buffer);
        done.result.map_err(|e| Error::Disk(Failure::Failed(e)))
    }

    /// A buffer for up to `sectors`, when nothing is on its way any more.
    async fn loan(&mut self, sectors: usize) -> Result<Loan<Buffer<L>>, Error> {
        // What became of a call that was dropped is nobody's business any more.
        let _ = self.settle(|_| ()).await;
        let limits = self.disk.with(|disk, _| disk.limits());
        self.bounce.take(u64::from(limits.max_blocks).min(sectors as u64)).ok_or(Error::NoBuffer)
    }

    fn start(&mut self, op: Op, lba: u64, loan: Loan<Buffer<L>>) -> Result<(), Error> {
        let blocks = u32::try_from(loan.sectors).unwrap_or(u32::MAX);
        let mut request = Request::new(op, lba, blocks, self.stream);
        if op == Op::Write {
            request.flags = Flags::SYNC;
        }
        match self.disk.submit(request, loan.buffer) {
            Ok(flight) => {
                self.going = Some((flight, loan.place));
                Ok(())
            }
            Err(refused) => {
                self.bounce.put(loan.place, Some(refused.buffer));
                Err(Error::Disk(Failure::Refused(refused.error)))
            }
        }
    }
}

impl<L, E, S> ::block_device_driver::BlockDevice<SECTOR> for AsyncDevice<'_, L, E, S>
where
    L: Lock,
    E: Env,
    S: AsMut<[Option<Buffer<L>>]>,
{
    type Error = Error;
    type Align = A4;

    async fn read(&mut self, block: u32, data: &mut [Aligned<A4, [u8; SECTOR]>]) -> Result<(), Error> {
        let (mut lba, mut rest) = (u64::from(block), data);
        while !rest.is_empty() {
            let loan = self.loan(rest.len()).await?;
            let n = loan.sectors;
            let Some((now, later)) = rest.split_at_mut_checked(n) else { return Err(Error::NoBuffer) };
            self.start(Op::Read, lba, loan)?;
            self.settle(|buffer| {
                for (i, sector) in now.iter_mut().enumerate() {
                    unload(buffer, i.saturating_mul(SECTOR), sector.as_mut_slice());
                }
            })
            .await?;
            (lba, rest) = (lba.saturating_add(n as u64), later);
        }
        Ok(())
    }

    async fn write(&mut self, block: u32, data: &[Aligned<A4, [u8; SECTOR]>]) -> Result<(), Error> {
        let (mut lba, mut rest) = (u64::from(block), data);
        while !rest.is_empty() {
            let mut loan = self.loan(rest.len()).await?;
            let n = loan.sectors;
            let Some((now, later)) = rest.split_at_checked(n) else { return Err(Error::NoBuffer) };
            for (i, sector) in now.iter().enumerate() {
                load(&mut loan.buffer, i.saturating_mul(SECTOR), sector.as_slice());
            }
            self.start(Op::Write, lba, loan)?;
            self.settle(|_| ()).await?;
            (lba, rest) = (lba.saturating_add(n as u64), later);
        }
        Ok(())
    }

    async fn size(&mut self) -> Result<u64, Error> {
        Ok(self.disk.with(|disk, _| disk.blocks()).saturating_mul(SECTOR as u64))
    }
}

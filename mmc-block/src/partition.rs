//! Another partition of an eMMC, between two commands of the disk, which serves the user area.

use crate::error::{BlockError, Refusal};
use crate::exchange::map;
use mmc_hal::Dir;
use mmc_proto::host::{HostError, Reply};
use mmc_proto::machine::{Identified, Machine, Order, Partition, Step, Transfer, TransferOptions};
use mmc_proto::register::ExtCsd;
use mmc_time::Instant;

/// What is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Select,
    Inner,
    Back,
}

/// A conversation that is held in another partition: selects it, holds the conversation, and selects the user area again
/// whatever came of it. Nothing is repeated. `Ok` is the inner conversation's own end.
///
/// [`Blocking::read_partition`](crate::Blocking::read_partition) and its kin hold it, or
/// [`Handle::in_partition`](crate::Handle::in_partition). Whoever holds it otherwise must not serve the user area after a
/// [`BlockError::Partition`] before the card was identified anew ([`Disk::evict`](crate::Disk::evict)): nobody knows which
/// partition is selected.
pub struct InPartition<M: Machine> {
    select: Order,
    inner: M,
    back: Order,
    at: At,
    result: Result<Option<M::Output>, BlockError>,
}

impl<M: Machine> core::fmt::Debug for InPartition<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("InPartition").field("at", &self.at).finish_non_exhaustive()
    }
}

impl InPartition<Transfer> {
    /// A read or write of `blocks` sectors from `lba` on of a boot or general purpose partition.
    ///
    /// # Errors
    /// [`Refusal::NoPartition`]: there is none such, or it is the user area (submit a request) or RPMB (whose conversation
    /// is an [`Rpmb`](mmc_proto::machine::Rpmb): [`InPartition::new`]); [`Refusal::Empty`]; [`Refusal::OutOfRange`] of the
    /// partition's sectors.
    pub fn transfer(
        card: &Identified,
        partition: Partition,
        dir: Dir,
        lba: u64,
        blocks: u32,
    ) -> Result<Self, Refusal> {
        if partition == Partition::Rpmb {
            return Err(Refusal::NoPartition(partition));
        }
        let traits = partition.traits(&card.traits, there(card, partition)?);
        if blocks == 0 {
            return Err(Refusal::Empty);
        }
        if lba.checked_add(blocks.into()).is_none_or(|end| end > traits.blocks) {
            return Err(Refusal::OutOfRange { lba, blocks, capacity: traits.blocks });
        }
        Self::new(card, partition, Transfer::new(&traits, dir, lba, blocks, TransferOptions::default()))
    }
}

impl<M: Machine> InPartition<M> {
    /// `inner` in `partition`, which is not the user area.
    ///
    /// # Errors
    /// [`Refusal::NoPartition`].
    pub fn new(card: &Identified, partition: Partition, inner: M) -> Result<Self, Refusal> {
        let ext_csd = there(card, partition)?;
        let order = |partition| Order::partition(&card.traits, ext_csd, partition);
        let (select, back) = (order(partition), order(Partition::User));
        Ok(Self { select, inner, back, at: At::Select, result: Ok(None) })
    }
}

/// The EXT_CSD of a card that has the partition beside its user area.
fn there(card: &Identified, partition: Partition) -> Result<&ExtCsd, Refusal> {
    let ext_csd = card.mmc().and_then(|m| m.ext_csd.as_ref());
    ext_csd
        .filter(|e| partition != Partition::User && partition.bytes(e) > 0)
        .ok_or(Refusal::NoPartition(partition))
}

impl<M: Machine> Machine for InPartition<M> {
    type Output = Result<M::Output, BlockError>;

    fn scratch(&self) -> bool {
        self.inner.scratch()
    }
    fn next(
        &mut self,
        last: Option<Result<Reply, HostError>>,
        scratch: &mut [u8],
        now: Instant,
    ) -> Step<Self::Output> {
        let mut last = last;
        loop {
            let over = match self.at {
                At::Select => map(self.select.next(last.take(), scratch, now), |r| {
                    r.map(|_| None).map_err(BlockError::Select)
                }),
                At::Inner => map(self.inner.next(last.take(), scratch, now), |output| Ok(Some(output))),
                At::Back => map(self.back.next(last.take(), scratch, now), |r| {
                    r.map(|_| None).map_err(BlockError::Partition)
                }),
            };
            // Each turn but the last ends one of the three conversations.
            let (at, result) = match over {
                Step::Done(result) => (self.at, result),
                Step::Do(action) => return Step::Do(action),
                Step::Bus(bus) => return Step::Bus(bus),
                Step::Power(power) => return Step::Power(power),
                Step::Sleep(time) => return Step::Sleep(time),
            };
            match (at, result) {
                (At::Select, Ok(_)) => self.at = At::Inner,
                (At::Select | At::Inner, result) => (self.at, self.result) = (At::Back, result),
                (At::Back, Err(lost)) => return Step::Done(Err(lost)),
                (At::Back, Ok(_)) => {
                    let result = core::mem::replace(&mut self.result, Err(BlockError::BadRun));
                    // What was selected has been talked to.
                    return Step::Done(result.and_then(|output| output.ok_or(BlockError::BadRun)));
                }
            }
        }
    }
}

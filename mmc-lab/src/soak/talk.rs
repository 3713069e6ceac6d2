//! Conversations of the caller's own between two commands of the disk: of an SD card its SCR, of an eMMC the write counter
//! of its RPMB, in a partition of its own.

use super::Soak;
use super::bench::KEY;
use mmc_block::{BlockError, InPartition};
use mmc_hal::Batch as _;
use mmc_mock::fault::Medium;
use mmc_mock::{Buf, BufBatch};
use mmc_proto::machine::{Conductor, Fetch, Partition, Rpmb, Turn};
use mmc_proto::register::Scr;
use mmc_proto::rpmb::SoftwareHmac;
use mmc_time::Instant;

/// How many writes an RPMB may have counted; one that failed may have been.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    least: u32,
    most: u32,
}

type Counter = Conductor<InPartition<Rpmb<SoftwareHmac>>, BufBatch>;

/// What is being talked about.
pub(super) enum Talk {
    /// And what the register said at the identification.
    Scr(Box<Conductor<Fetch<Scr>, BufBatch>>, Option<Scr>),
    /// A write that counts or a question for the counter, of the card of this number.
    Count(Box<Counter>, bool, usize),
}

impl<C: Medium + 'static> Soak<'_, C> {
    /// What there is to talk about with the card that is served; `None`: nothing, or there is no card.
    fn topic(&mut self) -> Result<Option<Talk>, String> {
        let Some(card) = self.bench.disk.card().copied() else { return Ok(None) };
        let mut scratch = BufBatch::new(1);
        scratch.push(Buf(vec![0; 512]), 0, 512).map_err(|_| "no place for a buffer of a conversation")?;
        if let Some(sd) = card.sd() {
            let talk = Conductor::new(Fetch::scr(&card.traits), Some(scratch));
            return Ok(Some(Talk::Scr(Box::new(talk), sd.scr)));
        }
        let Counted { least, most } = self.counted[self.served];
        let writes = least == most && self.random.draw().is_multiple_of(2);
        let hmac = SoftwareHmac::new(&KEY);
        let machine = if writes {
            Rpmb::write(&card.traits, 3, &[least as u8; 256], least, hmac)
        } else {
            Rpmb::read_counter(&card.traits, self.random.draw().into(), hmac)
        };
        let Ok(machine) = InPartition::new(&card, Partition::Rpmb, machine) else { return Ok(None) };
        Ok(Some(Talk::Count(Box::new(Conductor::new(machine, Some(scratch))), writes, self.served)))
    }

    /// The host is lent: goes on with the conversation, or begins one. The instant to go on at; `None`: it is over.
    pub(super) fn talk(&mut self) -> Result<Option<Instant>, String> {
        let begun = match self.talking.take() {
            Some(talk) => Some(talk),
            None => self.topic()?,
        };
        let Some(mut talk) = begun else {
            self.bench.disk.give_back();
            return Ok(None);
        };
        // Why it failed, and whether the card is as it was.
        let ended: Result<(), (String, bool)> = match &mut talk {
            Talk::Scr(conductor, before) => match self.bench.converse(conductor)? {
                Turn::Wait { until, .. } => {
                    self.talking = Some(talk);
                    return Ok(Some(until));
                }
                Turn::Done(Ok(scr), _) if before.is_some_and(|before| before != scr) => {
                    return Err(format!("the card's SCR is {scr:?}, it was {before:?}"));
                }
                Turn::Done(read, _) => read.map(drop).map_err(|e| (e.to_string(), true)),
            },
            Talk::Count(conductor, writes, card) => match self.bench.converse(conductor)? {
                Turn::Wait { until, .. } => {
                    self.talking = Some(talk);
                    return Ok(Some(until));
                }
                Turn::Done(Ok(Ok(frame)), _) => {
                    let counted = &mut self.counted[*card];
                    counted.is(frame.write_counter(), *writes).map_err(|e| format!("card {card}: {e}"))?;
                    Ok(())
                }
                Turn::Done(Ok(Err(e)), _) => {
                    self.counted[*card].most += u32::from(*writes);
                    Err((e.to_string(), true))
                }
                Turn::Done(Err(e), _) => {
                    self.counted[*card].most += u32::from(*writes);
                    // Nobody knows which partition is selected.
                    Err((e.to_string(), !matches!(e, BlockError::Partition(_))))
                }
            },
        };
        match ended {
            Ok(()) => self.report.conversations += 1,
            Err((what, well)) => {
                self.failed(&what);
                if !well {
                    let now = self.bench.clock.now();
                    self.bench.disk.evict(now);
                    return Ok(None);
                }
            }
        }
        self.bench.disk.give_back();
        Ok(None)
    }
}

impl Counted {
    /// The card counts `n`, after a write that succeeded or when it was asked.
    fn is(&mut self, n: u32, wrote: bool) -> Result<(), String> {
        let Self { least, most } = *self;
        let may = if wrote { most + 1..=most + 1 } else { least..=most };
        if !may.contains(&n) {
            return Err(format!("the RPMB counts {n} writes, not {} to {}", may.start(), may.end()));
        }
        *self = Self { least: n, most: n };
        Ok(())
    }
}

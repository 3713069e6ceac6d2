//! From a host with something in its slot to a card that a disk can be made of.

use mmc_hal::{Batch, Payload};
use mmc_proto::host::{Capabilities, Host, Why};
use mmc_proto::machine::{Conductor, Identified, Identify, IdentifyError, IdentifyStep, Turn};
use mmc_time::{Duration, Instant};

/// What bringing up a card has come to.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "no allocator, and the large one is returned once")]
pub enum Up<P: Batch> {
    /// Call `poll` again at `until` at the latest, and before if `why` is an interrupt and it came.
    Wait {
        /// What will end the wait.
        why: Why,
        /// When to look again at the latest.
        until: Instant,
    },
    /// Over.
    Done {
        /// The card: its `traits` are what [`Disk::new`](crate::Disk::new) asks for.
        card: Result<Identified, IdentifyError>,
        /// The batch, empty, for the disk, and the scratch buffer; `None` if the host had to keep them.
        parts: Option<(P, P::Buffer)>,
    },
}

/// Identifies the card in a host's slot without ever blocking, from power-up to the widest and fastest bus that
/// both can.
///
/// The registers of the card are read through the batch the disk will use afterwards, so that nothing needs a
/// data path of its own.
#[derive(Debug)]
pub struct Init<P> {
    conductor: Conductor<Identify, P>,
    times: StepTimes,
    seen: Option<Instant>,
}

/// How long each step of an identification took, repetitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    steps: [Option<(IdentifyStep, Duration)>; STEPS],
}

/// More than there are steps.
const STEPS: usize = 24;

impl StepTimes {
    /// The steps that took time, in the order in which they first took any.
    pub fn iter(&self) -> impl Iterator<Item = (IdentifyStep, Duration)> {
        self.steps.iter().copied().flatten()
    }
    fn add(&mut self, step: IdentifyStep, took: Duration) {
        let place = self.steps.iter_mut().find(|s| s.is_none_or(|(known, _)| known == step));
        if let Some(place) = place.filter(|_| took > Duration::ZERO) {
            *place = Some((step, place.map_or(took, |(_, so_far)| so_far + took)));
        }
    }
}

impl<P: Batch> Init<P> {
    /// `batch` is empty with room for at least one buffer; `scratch` is one segment of at least 512 bytes.
    ///
    /// # Errors
    /// Both come back when they are not that.
    pub fn new(caps: &Capabilities, mut batch: P, scratch: P::Buffer) -> Result<Self, (P, P::Buffer)> {
        let len = scratch.segment(0).map_or(0, <[u8]>::len);
        if !batch.is_empty() || len < crate::SECTOR {
            return Err((batch, scratch));
        }
        if let Err(scratch) = batch.push(scratch, 0, len) {
            return Err((batch, scratch));
        }
        let conductor = Conductor::new(Identify::new(caps), Some(batch));
        Ok(Self { conductor, times: StepTimes::default(), seen: None })
    }

    /// How long its steps took so far.
    pub const fn times(&self) -> &StepTimes {
        &self.times
    }

    /// Goes on as far as possible without waiting. The host is not used otherwise until [`Up::Done`], and
    /// this is not called after it.
    pub fn poll<H: Host<Payload = P> + ?Sized>(&mut self, host: &mut H, now: Instant) -> Up<P> {
        let since = now.since(self.seen.unwrap_or(now));
        self.times.add(self.conductor.machine().phase(), since);
        self.seen = Some(now);
        match self.conductor.poll(host, now) {
            Turn::Wait { why, until } => Up::Wait { why, until },
            Turn::Done(card, batch) => {
                let parts = batch.and_then(|mut batch| {
                    let scratch = batch.pop()?;
                    Some((batch, scratch))
                });
                Up::Done { card, parts }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_step_takes_is_added_up_and_one_that_took_nothing_yet_has_no_place() {
        let ms = Duration::from_millis;
        let mut times = StepTimes::default();
        for (step, took) in [
            (IdentifyStep::Reset, 2),
            (IdentifyStep::IfCond, 0),
            (IdentifyStep::Bus, 5),
            (IdentifyStep::Reset, 3),
            (IdentifyStep::IfCond, 1),
            (IdentifyStep::Bus, 7),
        ] {
            times.add(step, ms(took));
        }
        let all = [(IdentifyStep::Reset, ms(5)), (IdentifyStep::Bus, ms(12)), (IdentifyStep::IfCond, ms(1))];
        assert!(times.iter().eq(all), "{times:?}");
    }
}

//! Looking after a card between two commands, for whoever sends the commands: the slot, the chores that are due, and what
//! came of them.

use crate::care::{Agenda, Care, Chore, Ended, Keeper, Media, Task};
use crate::core::{Core, Job, SECTOR};
use crate::error::{BlockError, Stopped};
use crate::exchange::{Answer, Exchange, Talk};
use crate::observer::Observer;
use crate::tag::Tag;
use mmc_hal::{Batch, Payload};
use mmc_proto::host::{Capabilities, Slot};
use mmc_proto::machine::{Extensions, Identified, SlotEvent, SlotWatch};
use mmc_sched::{Op, Scheduler};
use mmc_time::Instant;

/// What a disk knows and does beside carrying out requests.
pub(crate) struct Minder<B> {
    /// `None`: it does not look after its card.
    keeper: Option<Keeper<B>>,
    pub(crate) media: Media,
    /// What the host said at the start.
    pub(crate) caps: Capabilities,
}

impl<B: Payload> Minder<B> {
    pub(crate) const fn new(caps: Capabilities) -> Self {
        Self { keeper: None, media: Media::Same, caps }
    }
    pub(crate) const fn cares(&self) -> bool {
        self.keeper.is_some()
    }
    pub(crate) fn card(&self) -> Option<&Identified> {
        self.keeper.as_ref().map(|k| &k.card)
    }
    pub(crate) fn keeper(&self) -> Option<&Keeper<B>> {
        self.keeper.as_ref()
    }
    pub(crate) fn agenda(&mut self) -> Option<&mut Agenda> {
        self.keeper.as_mut().map(|k| &mut k.agenda)
    }
    /// Nothing is to be done.
    pub(crate) fn idle(&self) -> bool {
        self.keeper.as_ref().is_none_or(|k| k.agenda.is_empty())
    }
    /// Where a scratch buffer is wanted: it came back, and somebody else's did not.
    pub(crate) fn keep(&mut self, buffer: B) -> Option<B> {
        match &mut self.keeper {
            Some(keeper) if keeper.scratch.is_none() => {
                keeper.scratch = Some(buffer);
                None
            }
            _ => Some(buffer),
        }
    }
    /// Its card may be there again.
    pub(crate) fn look_again(&mut self) {
        if self.media == Media::Gone {
            if let Some(agenda) = self.agenda() {
                agenda.add(Task::Reset);
            }
        }
    }

    /// To a batch that is empty, for a chore.
    pub(crate) fn lend_scratch<P: Batch<Buffer = B>>(&mut self, batch: &mut P) {
        let Some(keeper) = &mut self.keeper else { return };
        let Some(scratch) = keeper.scratch.take() else { return };
        let len = scratch.segment(0).map_or(0, <[u8]>::len);
        // An empty batch has room for one.
        keeper.scratch = batch.push(scratch, 0, len).err();
    }
    /// And back.
    pub(crate) fn take_scratch<P: Batch<Buffer = B>>(&mut self, batch: &mut P) {
        if let Some(keeper) = &mut self.keeper {
            keeper.scratch = batch.pop();
        }
    }
}

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// From now on `minder` looks after the card of this core.
    pub(crate) fn look_after(
        &mut self,
        minder: &mut Minder<B>,
        card: Identified,
        scratch: B,
        care: Care,
        slot: &Slot,
    ) -> Result<(), B> {
        if scratch.segment(0).map_or(0, <[u8]>::len) < SECTOR {
            return Err(scratch);
        }
        let mut keeper = Keeper {
            care,
            card,
            extensions: Extensions::default(),
            scratch: Some(scratch),
            agenda: Agenda::default(),
            watch: SlotWatch::new(slot),
            cache_on: false,
            cache_failed: false,
            caching: false,
            barriers_on: false,
        };
        keeper.settle();
        self.caching = keeper.caching;
        self.set_features(keeper.features());
        minder.keeper = Some(keeper);
        Ok(())
    }

    /// Serves the new card from now on. False: there is none.
    pub(crate) fn accept_media(&mut self, minder: &mut Minder<B>) -> bool {
        let Some(keeper) = minder.keeper.as_ref().filter(|_| minder.media == Media::New) else {
            return false;
        };
        self.card = keeper.card.traits;
        self.set_features(keeper.features());
        self.resume(Stopped::MediaChanged);
        minder.media = Media::Same;
        true
    }

    fn lose_media(&mut self, minder: &mut Minder<B>, now: Instant) {
        minder.media = Media::Gone;
        self.change_media(Stopped::NoMedia);
        if let Some(agenda) = minder.agenda() {
            agenda.clear();
        }
        // A flush that was on the agenda is not any more.
        self.finish_flush(Err(BlockError::Stopped(Stopped::NoMedia)), now);
    }

    /// Between two commands: what has happened in the slot?
    pub(crate) fn look_at_slot(&mut self, minder: &mut Minder<B>, slot: &Slot, now: Instant) {
        let Some(keeper) = &mut minder.keeper else { return };
        match keeper.watch.look(slot) {
            SlotEvent::Same => {}
            SlotEvent::Removed => self.lose_media(minder, now),
            SlotEvent::Inserted | SlotEvent::Swapped => {
                if minder.media != Media::Gone {
                    self.lose_media(minder, now);
                }
                minder.look_again();
            }
        }
    }

    /// The host wants its sample point found again: that comes before the next command, if one is due (a borrower's:
    /// `lends`). False: none is.
    pub(crate) fn tune_first(&self, minder: &mut Minder<B>, lends: bool) -> bool {
        let Some(keeper) = &mut minder.keeper else { return false };
        let flush = keeper.cache_on && keeper.agenda.has(Task::Flush);
        let due = flush || (lends || self.outstanding() > 0) && self.stopped().is_none();
        if due {
            keeper.agenda.add(Task::Tune);
        }
        due
    }

    /// The core wants a flush: it is the next thing on the bus.
    pub(crate) fn flush_next(&mut self, minder: &mut Minder<B>, now: Instant) {
        match minder.agenda() {
            Some(agenda) => agenda.add(Task::Flush),
            // Nobody has switched a cache on.
            None => self.finish_flush(Ok(()), now),
        }
    }

    /// The conversation of a job.
    pub(crate) fn exchange(&self, minder: &Minder<B>, job: &Job) -> Exchange {
        let run = job.run();
        match (&minder.keeper, run.op) {
            (Some(keeper), Op::Discard | Op::WriteZeroes) => keeper.wipe(run, self.wipe_of(run)),
            // A host that can stops the card by itself where it must be stopped.
            _ => Talk::Transfer(self.transfer(job).auto_stop(&minder.caps)),
        }
        .into()
    }

    /// A job has ended, and what its error asks for goes to the agenda.
    pub(crate) fn finish_minded<P: Batch<Buffer = B>>(
        &mut self,
        minder: &mut Minder<B>,
        job: Job,
        answer: Answer,
        batch: Option<&mut P>,
        now: Instant,
    ) {
        let gone = answer.result.is_err_and(|e| e.media_gone());
        let (failures, caps) = (self.failures(&job), minder.caps);
        let Some(keeper) = &mut minder.keeper else { return self.finish(job, answer, batch, now) };
        self.finish_with(job, answer, batch, now, |_, run, error| keeper.judge(error, run, failures, &caps));
        if gone && minder.media != Media::Gone {
            self.lose_media(minder, now);
        }
    }

    /// The first chore that is due; its scratch buffer is still here.
    pub(crate) fn next_chore(&mut self, minder: &mut Minder<B>, now: Instant) -> Option<(Task, Chore)> {
        let keeper = minder.keeper.as_mut()?;
        // A scratch buffer that the host keeps comes back by `reclaim`.
        while keeper.scratch.is_some() {
            let task = keeper.agenda.take()?;
            let barrier = self.flushing && self.barrier;
            match keeper.chore(task, &minder.caps, self.dirty, barrier) {
                Some(chore) => return Some((task, chore)),
                None if task == Task::Flush => self.finish_flush(Ok(()), now),
                None => {}
            }
        }
        None
    }

    /// A chore has ended; `slot` is what the slot shows. True: the same card was identified anew, and may have another
    /// address, other limits.
    pub(crate) fn finish_chore(
        &mut self,
        minder: &mut Minder<B>,
        task: Task,
        ended: &Ended,
        slot: impl FnOnce() -> Slot,
        now: Instant,
    ) -> bool {
        let Some(keeper) = &mut minder.keeper else { return false };
        match ended {
            Ended::Reset(Ok(found)) => {
                self.statistics.resets = self.statistics.resets.saturating_add(1);
                // What the slot shows now is the card that was just identified.
                keeper.watch = SlotWatch::new(&slot());
                let same = minder.media == Media::Same && keeper.is_same(found);
                keeper.card = *found;
                keeper.settle();
                self.caching = keeper.caching;
                if same {
                    self.lose_cache();
                    self.card = found.traits;
                    self.set_features(keeper.features());
                    return true;
                }
                if minder.media == Media::Same {
                    self.change_media(Stopped::MediaChanged);
                    // A flush that is due was for the card before.
                    keeper.agenda.remove(Task::Flush);
                    self.finish_flush(Err(BlockError::Stopped(Stopped::MediaChanged)), now);
                } else {
                    self.resume(Stopped::NoMedia);
                    self.stop(Stopped::MediaChanged);
                }
                minder.media = Media::New;
            }
            Ended::Reset(Err(_)) if minder.media != Media::Gone => self.lose_media(minder, now),
            Ended::Found(found) => {
                if let Ok(found) = found {
                    keeper.extensions = *found;
                }
                keeper.found();
                self.caching = keeper.caching;
            }
            Ended::Tuned(found) => {
                self.statistics.retunes = self.statistics.retunes.saturating_add(1);
                if !found {
                    keeper.slower();
                    keeper.agenda.add(Task::Reset);
                }
            }
            Ended::Done(result) => match task {
                Task::CacheOn => {
                    keeper.switched_cache(result.is_ok());
                    self.caching = keeper.caching;
                    self.set_features(keeper.features());
                }
                Task::Barriers => {
                    keeper.barriers_on = result.is_ok();
                    self.set_features(keeper.features());
                }
                Task::Flush => {
                    if result.is_err_and(|e| !e.media_gone() && e.needs_reset()) {
                        keeper.agenda.add(Task::Reset);
                    }
                    self.finish_flush(result.map_err(BlockError::Flush), now);
                    if result.is_err_and(|e| e.media_gone()) && minder.media != Media::Gone {
                        self.lose_media(minder, now);
                    }
                }
                _ => {}
            },
            Ended::Reset(Err(_)) | Ended::Off => {}
        }
        false
    }
}

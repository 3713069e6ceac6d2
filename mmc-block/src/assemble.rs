//! From a run of the scheduler to one command: the buffers of its requests, in order, in a batch.

use crate::core::{Core, Job, SECTOR, Wipe, Work};
use crate::error::{BlockError, Refusal};
use crate::observer::Observer;
use crate::tag::{State, Tag};
use mmc_hal::{Batch, Payload};
use mmc_sched::{Op, Request, RequestId, Run, Scheduler};
use mmc_time::Instant;

/// Whether a run can be one command.
enum Fit {
    Yes,
    /// As far as before this request: so many requests, so many blocks.
    Before(RequestId, u16, u32),
    /// The buffer is still out with an earlier part of the same request.
    BufferOut,
    /// It is none of our requests, or goes beyond them.
    Wrong,
}

impl<S, T, B, O> Core<S, T, B, O>
where
    S: Scheduler,
    T: AsRef<[Tag<B>]> + AsMut<[Tag<B>]>,
    B: Payload,
    O: Observer,
{
    /// The run of a request that goes out on its own: what of it was in the command that failed.
    pub(crate) fn alone(&self, i: u32) -> Option<Run> {
        let e = self.table.get(i)?;
        let (offset, blocks) = e.part;
        let (op, flags) = (e.request.op, e.request.flags);
        Some(Run {
            head: e.id?,
            count: 1,
            op,
            flags,
            lba: e.request.lba.saturating_add(offset.into()),
            blocks,
            offset,
        })
    }

    /// The longest command for what `run` does.
    fn longest(&self, run: &Run) -> Option<u32> {
        match (run.op, self.wipe_of(run)) {
            (_, Some(Wipe::SecureErase)) => self.features.secure_erase,
            (_, Some(Wipe::SecureTrim)) => self.features.secure_trim,
            (_, Some(Wipe::Sanitize)) => None,
            (Op::Discard, None) => self.features.discard,
            (Op::WriteZeroes, None) => self.features.write_zeroes,
            (_, None) => Some(self.limits.max_blocks),
        }
    }

    /// Of a request that is too long for one command, the piece that goes first; the others follow as each is over.
    fn first_piece(&mut self, run: &Run) -> Run {
        let max = self.longest(run).unwrap_or(u32::MAX).max(1);
        let Some(i) = self.table.by_id(run.head).filter(|_| run.count == 1) else { return *run };
        let blocks = self.next_piece(i, (run.offset, run.blocks), max);
        if blocks < run.blocks {
            if let Some(e) = self.table.get_mut(i) {
                e.single.get_or_insert(((run.offset, run.blocks), max));
            }
        }
        Run { blocks, ..*run }
    }

    /// Blocks of the next piece of the part (first block, blocks) of a request: at most `max`, and in no more segments than a
    /// command can have. A piece ends at a multiple of [`Features::unit`](crate::Features::unit), where it can.
    pub(crate) fn next_piece(&self, i: u32, (from, left): (u32, u32), max: u32) -> u32 {
        let Some(e) = self.table.get(i) else { return left };
        let lba = e.request.lba.saturating_add(from.into());
        let blocks = piece(lba, left, max, self.features.unit);
        let segments = self.limits.max_segments;
        let Some(buffer) = e.buffer.as_ref().filter(|b| b.segments() > segments) else { return blocks };
        let room = u32::try_from(reach(buffer, bytes(from), segments) / SECTOR).unwrap_or(u32::MAX);
        if room >= blocks {
            return blocks;
        }
        // The card's units stay whole; that one of them fits was seen at the door.
        let unit = self.card.unit.max(1);
        room.saturating_sub(room.checked_rem(unit).unwrap_or(0)).max(unit).min(blocks)
    }

    /// Whether the segments of a buffer are such as can be sent, if need be unit by unit.
    pub(crate) fn scattered(&self, r: &Request, buffer: &B) -> Result<(), Refusal> {
        let (count, max) = (buffer.segments(), self.limits.max_segments);
        let unit = bytes(self.card.unit.max(1));
        let nth = |at: usize| at.checked_div(unit).unwrap_or(0);
        // Where the next segment begins, and in how many the unit there lies so far.
        let (mut at, mut segments) = (0_usize, 0_usize);
        for i in 0..count {
            let len = buffer.segment(i).map_or(0, <[u8]>::len);
            if len == 0 {
                return Err(Refusal::EmptySegment(i));
            }
            segments = if at.checked_rem(unit) == Some(0) { 1 } else { segments.saturating_add(1) };
            if segments > max {
                let first = u64::from(self.card.unit.max(1)).saturating_mul(nth(at) as u64);
                return Err(Refusal::Segments { lba: r.lba.saturating_add(first), segments, max });
            }
            let end = at.saturating_add(len);
            if nth(end) > nth(at) {
                segments = 1;
            }
            at = end;
        }
        Ok(())
    }

    /// Looks at a run before anything is moved. The scheduler is not trusted with data: each request's sectors
    /// must be where the run says they are.
    fn fit(&self, run: &Run, capacity: usize) -> Fit {
        let mut id = Some(run.head);
        let (mut lba, mut blocks, mut segments) = (run.lba, 0_u32, 0_usize);
        let (max, mut cut) = (self.longest(run).unwrap_or(u32::MAX), None);
        for n in 0..run.count {
            let Some((member, e)) = id.and_then(|id| Some((id, self.table.get(self.table.by_id(id)?)?)))
            else {
                return Fit::Wrong;
            };
            if e.state == State::Running {
                return Fit::BufferOut;
            }
            let (offset, len) = if run.count == 1 { (run.offset, run.blocks) } else { (0, e.request.blocks) };
            let inside = offset.checked_add(len).is_some_and(|end| end <= e.request.blocks) && len > 0;
            let start = e.request.lba.saturating_add(offset.into());
            if !inside || start != lba || e.request.op != run.op {
                return Fit::Wrong;
            }
            let before = blocks;
            lba = lba.saturating_add(len.into());
            blocks = blocks.saturating_add(len);
            segments = segments.saturating_add(e.buffer.as_ref().map_or(0, Payload::segments));
            // The first goes in any case; of one that is too long alone, a piece.
            let fits = blocks <= max && segments <= self.limits.max_segments && usize::from(n) < capacity;
            if !fits && n > 0 {
                cut.get_or_insert(Fit::Before(member, n, before));
            }
            id = self.scheduler.next_member(member);
        }
        if blocks != run.blocks || run.count == 0 {
            return Fit::Wrong;
        }
        cut.unwrap_or(Fit::Yes)
    }

    /// Fills `batch` with the buffers of `run`. `None`: there is nothing to send of it now, take the next run.
    pub(crate) fn assemble<P: Batch<Buffer = B>>(
        &mut self,
        run: &Run,
        batch: &mut P,
        now: Instant,
    ) -> Option<Work> {
        let mut run = *run;
        match self.fit(&run, batch.capacity().saturating_sub(batch.len())) {
            Fit::Yes => {}
            Fit::Before(next, count, blocks) => {
                let rest = Run {
                    head: next,
                    count: run.count.saturating_sub(count),
                    lba: run.lba.saturating_add(blocks.into()),
                    blocks: run.blocks.saturating_sub(blocks),
                    ..run
                };
                // Nothing is there: a run is only asked for when nothing is pending.
                self.pending = Some(rest);
                (run.count, run.blocks) = (count, blocks);
            }
            Fit::BufferOut => {
                self.pending = Some(run);
                return Some(Work::Wait { at: None });
            }
            Fit::Wrong => {
                self.fail_members(&run, BlockError::BadRun, now);
                return None;
            }
        }
        let run = &self.first_piece(&run);
        let mut whole = true;
        self.for_members(run, |core, i| {
            let Some(e) = core.table.get_mut(i) else { return };
            if e.state != State::Again {
                e.tries = 0;
            }
            e.part = if run.count == 1 { (run.offset, run.blocks) } else { (0, e.request.blocks) };
            let (from, len) = (bytes(e.part.0), bytes(e.part.1));
            // `fit` has seen room for it, and the range inside it.
            let pushed = match e.buffer.take() {
                None => Ok(()),
                Some(buffer) => batch.push(buffer, from, len),
            };
            match pushed {
                Ok(()) => {
                    e.state = State::Running;
                    e.stamps.issued.get_or_insert(now);
                }
                Err(back) => {
                    e.buffer = Some(back);
                    whole = false;
                }
            }
        });
        if !whole {
            self.unload(run, batch);
            self.fail_members(run, BlockError::BadRun, now);
            return None;
        }
        if let Some(head) = self.table.by_id(run.head) {
            self.observer.issued(self.table.ticket(head), run, now);
        }
        Some(Work::Run(Job { run: *run }))
    }

    /// The buffers back to their requests, in the order in which they went in.
    pub(crate) fn unload<P: Batch<Buffer = B>>(&mut self, run: &Run, batch: &mut P) {
        self.for_members(run, |core, i| {
            if let Some(e) = core.table.get_mut(i) {
                if e.buffer.is_none() && matches!(run.op, Op::Read | Op::Write) {
                    e.buffer = batch.pop();
                }
            }
        });
    }
}

const fn bytes(blocks: u32) -> usize {
    (blocks as usize).saturating_mul(SECTOR)
}

/// How many bytes of `buffer` from `from` on lie in `max` segments.
fn reach<B: Payload>(buffer: &B, from: usize, max: usize) -> usize {
    let (mut skip, mut left, mut found) = (from, max, 0_usize);
    for i in 0..buffer.segments() {
        let len = buffer.segment(i).map_or(0, <[u8]>::len);
        if skip >= len {
            skip = skip.saturating_sub(len);
            continue;
        }
        if left == 0 {
            break;
        }
        left = left.saturating_sub(1);
        found = found.saturating_add(len.saturating_sub(skip));
        skip = 0;
    }
    found
}

/// Blocks of the next piece of `left` blocks at `lba`: at most `max`, and up to a multiple of `unit` if it is not the
/// last. A unit that no command can hold counts as the largest power of two that one can.
pub(crate) fn piece(lba: u64, left: u32, max: u32, unit: u32) -> u32 {
    if left <= max {
        return left;
    }
    let unit = if unit > max { 1 << max.max(1).ilog2() } else { unit.max(1) };
    let end = lba.saturating_add(max.into());
    let past = end.checked_rem(unit.into()).unwrap_or(0);
    let past = u32::try_from(past).unwrap_or(0);
    if past < max { max.saturating_sub(past) } else { max }
}

#[cfg(test)]
mod tests {
    use super::piece;

    #[test]
    fn pieces_end_at_units() {
        // From, blocks, longest command, unit: the pieces.
        for (lba, blocks, max, unit, expected) in [
            (0, 8, 64, 16, &[8][..]),
            (0, 200, 64, 0, &[64, 64, 64, 8]),
            (5, 200, 64, 16, &[59, 64, 64, 13]),
            (5, 200, 64, 8192, &[59, 64, 64, 13]),
            (100, 130, 60, 48, &[44, 48, 38]),
            (5, 200, 48, 48, &[43, 48, 48, 48, 13]),
            (7, 3, 1, 8, &[1, 1, 1]),
        ] {
            let (mut at, mut left) = (lba, blocks);
            for n in expected {
                assert_eq!(piece(at, left, max, unit), *n, "{blocks} at {lba}, {left} left");
                (at, left) = (at + u64::from(*n), left - n);
            }
            assert_eq!(left, 0, "{blocks} at {lba}");
        }
    }
}

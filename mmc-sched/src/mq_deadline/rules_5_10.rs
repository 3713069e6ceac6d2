//! The decision of Linux 5.10 (and back to 4.16).

use super::MqDeadline;
use crate::lane::{ByDir, Dir, Level};
use crate::policy::Pick;
use crate::pool::Pool;
use crate::tree::Tree;
use mmc_time::Instant;

impl MqDeadline {
    /// Continues the batch, or decides anew. There is one class; "nothing" is answered only when nothing waits.
    pub(super) fn pick_5_10(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        let fixed = self.next_run.write.or(self.next_run.read);
        let slot = match fixed {
            Some(slot) if self.batching < self.tunables.fifo_batch => slot,
            _ => {
                let lanes = &self.class(Level::BestEffort).lanes;
                let (reads, writes) = (lanes.read.fifo.front(), lanes.write.fifo.front());
                let (dir, oldest) = match (reads, writes) {
                    (None, None) => return Pick::Empty,
                    (_, Some(w)) if self.writes_turn(reads.is_some()) => {
                        self.starved = 0;
                        (Dir::Write, w)
                    }
                    (Some(r), _) => (Dir::Read, r),
                    (None, Some(w)) => (Dir::Write, w),
                };
                self.batching = 0;
                self.last_dir = dir;
                match *self.next_run.get(dir) {
                    Some(next) if now < pool.deadline(oldest) => next,
                    _ => oldest,
                }
            }
        };
        let place = self.place(pool.request(slot));
        let d = place.1;
        let behind = Tree::next(pool, slot);
        self.batching = self.batching.wrapping_add(1);
        self.unlink(pool, place, slot);
        self.next_run = ByDir::default();
        *self.next_run.get_mut(d) = behind;
        self.start(place.0);
        Pick::Run(slot)
    }
}

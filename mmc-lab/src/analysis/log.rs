//! What was sent to the card, in its order, as far back as any wait reaches.

use std::collections::VecDeque;

use super::class::Class;
use crate::blame::Ahead;

/// Issues remembered, 16 bytes each. What is further back is not counted as gone first: no card does so many in the time
/// that anybody waits.
const KEPT: usize = 1 << 20;

/// One issue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) seq: u64,
    pub(super) sectors: u32,
    pub(super) class: Class,
}

/// All issues; `None` for one whose request the driver gave back. Places count from the first issue ever.
#[derive(Debug, Default)]
pub(super) struct Log {
    gone: u64,
    kept: VecDeque<Option<Sent>>,
}

impl Log {
    /// The place of the next issue.
    pub(super) fn next(&self) -> u64 {
        self.gone + self.kept.len() as u64
    }

    pub(super) fn push(&mut self, sent: Sent) {
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
            self.gone += 1;
        }
        self.kept.push_back(Some(sent));
    }

    /// The driver gave it back.
    pub(super) fn forget(&mut self, place: u64) {
        if let Some(sent) = place.checked_sub(self.gone).and_then(|i| self.kept.get_mut(i as usize)) {
            *sent = None;
        }
    }

    /// What was sent from place `from` to before `to`; older is what was inserted before number `seq`.
    pub(super) fn between(&self, from: u64, to: u64, seq: u64) -> Ahead {
        let index = |place: u64| (place.saturating_sub(self.gone) as usize).min(self.kept.len());
        let (from, to) = (index(from), index(to));
        let mut ahead = Ahead::default();
        for sent in self.kept.range(from.min(to)..to).flatten() {
            ahead.count(sent.seq < seq, u64::from(sent.sectors), sent.class);
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_back_is_forgotten_and_places_stay() {
        let mut log = Log::default();
        for seq in 0..KEPT as u64 + 10 {
            log.push(Sent { seq, sectors: 8, class: Class::Reads });
        }
        let next = log.next();
        assert_eq!((next, log.kept.len()), (KEPT as u64 + 10, KEPT));
        assert_eq!(log.between(0, next, 20).older, 10, "the first ten are gone");
        log.forget(3);
        log.forget(next - 1);
        let last = log.between(next - 4, next, u64::MAX);
        assert_eq!((last.requests, last.bytes), (3, 3 * 8 * 512));
        assert_eq!(log.between(next, next - 4, 0).requests, 0);
    }
}

//! Waiting without an interrupt: a few looks at once, then again a little later, up to a limit.

use mmc_time::{Duration, Instant};

/// Looks at a register in one call: hardware clears a reset or takes a command within a few clocks.
const LOOKS: u8 = 8;
const SHORTEST: Duration = Duration::from_micros(2);
const LONGEST: Duration = Duration::from_millis(1);

/// Whether `done` says so within a few looks.
pub(crate) fn settles(mut done: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|_| done())
}

/// When to look again at something waited for since `since`: a quarter of the time waited, from 2 µs to 1 ms. So a
/// wait of any length ends at most a quarter (and 2 µs) late, and a long one costs few looks.
pub(crate) fn look_again(since: Instant, now: Instant) -> Instant {
    let quarter = now.since(since).as_nanos() >> 2;
    now + Duration::from_nanos(quarter).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_apart_but_stay_bounded() {
        let t = Instant::from_secs(1);
        assert_eq!(look_again(t, t), t + SHORTEST);
        let later = t + Duration::from_micros(400);
        assert_eq!(look_again(t, later), later + Duration::from_micros(100));
        let late = t + Duration::from_secs(5);
        assert_eq!(look_again(t, late), late + LONGEST);
        // A wait of half a second costs some hundred looks, not a hundred thousand.
        let (mut at, mut looks) = (t, 0);
        while at < t + Duration::from_millis(500) {
            at = look_again(t, at);
            looks += 1;
        }
        assert!(looks < 600, "{looks}");
    }

    #[test]
    fn a_register_that_never_settles_is_left_after_a_few_looks() {
        let mut n = 0;
        assert!(!settles(|| {
            n += 1;
            false
        }));
        assert_eq!(n, LOOKS);
    }
}

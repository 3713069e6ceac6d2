//! Lines that were written out of the order of their stamps (buffers of several CPUs printed one after the other, files
//! joined) are put back into it, as far as a window of so many events reaches.
//!
//! It does not correct stamps: clocks of CPUs that do not agree are the business of `analysis`.

use std::collections::VecDeque;

use super::model::Event;

/// Events held back to be put in order.
pub const WINDOW: usize = 128;
/// So many events one after the other that come too late begin a new order: another trace follows, or the clock was set back.
const ANEW: u32 = 8;

/// [`put`](Self::put) an event, then use and [`pop`](Self::pop) what is [`due`](Self::due) until nothing is; [`end`](Self::end)
/// lets all go.
#[derive(Debug, Default)]
pub struct Ordered {
    held: VecDeque<Event>,
    /// Taken at once, whatever is held.
    late: Option<Event>,
    /// Let all go.
    all: bool,
    /// Stamps of the latest event put, and of the latest taken in order.
    put: u64,
    taken: u64,
    late_in_a_row: u32,
    backwards: u64,
    too_late: u64,
}

impl Ordered {
    /// One more event, in the order of the file.
    pub fn put(&mut self, event: Event) {
        self.backwards += u64::from(event.at < self.put);
        self.put = event.at;
        if event.at < self.taken {
            self.too_late += 1;
            self.late_in_a_row += 1;
            if self.late_in_a_row < ANEW {
                self.late = Some(event);
                return;
            }
            // Those held go before it.
            self.all = true;
            self.held.push_back(event);
            return;
        }
        self.late_in_a_row = 0;
        // Nearly always it is the last.
        let place = match self.held.back() {
            Some(last) if last.at > event.at => self.held.partition_point(|e| e.at <= event.at),
            _ => self.held.len(),
        };
        if place == self.held.len() {
            self.held.push_back(event);
        } else {
            self.held.insert(place, event);
        }
    }

    /// The next event in order, if one has to go; [`pop`](Self::pop) it.
    #[must_use]
    pub fn due(&self) -> Option<&Event> {
        match &self.late {
            None if self.held.len() <= WINDOW && !self.all => None,
            None => self.held.front(),
            late => late.as_ref(),
        }
    }

    /// The event that is [`due`](Self::due) goes.
    pub fn pop(&mut self) {
        if self.late.is_some() {
            self.late = None;
            return;
        }
        if let Some(event) = self.held.pop_front() {
            self.taken = event.at;
        }
        self.all &= !self.held.is_empty();
    }

    /// Let all go that are held: the trace ends, or lost events here.
    pub fn end(&mut self) {
        self.all = !self.held.is_empty();
    }

    /// Events with a stamp earlier than that of the event before them in the file.
    #[must_use]
    pub fn backwards(&self) -> u64 {
        self.backwards
    }

    /// Events that came too late to be put in order.
    #[must_use]
    pub fn too_late(&self) -> u64 {
        self.too_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::model::Kind;
    use std::sync::Arc;

    fn event(at: u64, sector: u64) -> Event {
        let (task, rwbs): (Arc<str>, Arc<str>) = (Arc::from("a"), Arc::from("W"));
        Event { at, kind: Kind::Issue, dev: (8, 0), task, pid: 1, rwbs, sector, sectors: 8 }
    }

    /// What has to go.
    fn all(order: &mut Ordered) -> impl Iterator<Item = Event> + '_ {
        std::iter::from_fn(|| {
            let event = order.due().cloned()?;
            order.pop();
            Some(event)
        })
    }

    /// Stamps as they come out, and the counts.
    fn ordered(stamps: impl IntoIterator<Item = u64>) -> (Vec<u64>, u64, u64) {
        let (mut order, mut out) = (Ordered::default(), Vec::new());
        for at in stamps {
            order.put(event(at, 0));
            out.extend(all(&mut order).map(|e| e.at));
        }
        order.end();
        out.extend(all(&mut order).map(|e| e.at));
        (out, order.backwards(), order.too_late())
    }

    #[test]
    fn whatever_is_within_the_window_comes_out_in_order() {
        let reach = WINDOW as u64;
        // Blocks of 64, each written backwards; an event held until another came 100 later.
        let blocks = (0..1000).flat_map(|k| (0..64).rev().map(move |i| k * 64 + i));
        let (out, backwards, late) = ordered(blocks);
        assert!(out.is_sorted() && out.len() == 64_000 && backwards == 63_000 && late == 0);
        let one = (0..1000)
            .map(|i| if i == 500 + reach { 500 } else { i + u64::from((500..500 + reach).contains(&i)) });
        let (out, backwards, late) = ordered(one);
        assert!(out.is_sorted() && out.len() == 1000, "{backwards} {late}");
        assert_eq!((backwards, late), (1, 0));
    }

    #[test]
    fn what_comes_too_late_goes_on_at_once_and_is_counted() {
        let stamps = (1..1000).chain([5]).chain(1000..1010);
        let (out, backwards, late) = ordered(stamps);
        assert_eq!((out.len(), backwards, late), (1010, 1, 1));
        assert_eq!(out.iter().rposition(|&at| at == 5), Some(999 - WINDOW));
    }

    #[test]
    fn another_trace_behind_the_first_is_not_mixed_into_it() {
        let (out, backwards, late) = ordered((1000..2000).chain(0..1000));
        assert_eq!((out.len(), backwards), (2000, 1));
        // The first few are taken for stragglers; then the rest of the first trace goes, and the second one begins.
        assert_eq!(late, u64::from(ANEW));
        let second = out.iter().position(|&at| at == 1999).unwrap();
        assert_eq!(second, 999 + ANEW as usize - 1);
        assert!(out[second + 1..].is_sorted());
    }

    #[test]
    fn events_of_one_stamp_keep_the_order_of_the_file() {
        let (mut order, mut out) = (Ordered::default(), Vec::new());
        for (at, sector) in [(5, 1), (7, 2), (5, 3), (7, 4), (5, 5)] {
            order.put(event(at, sector));
        }
        order.end();
        out.extend(all(&mut order).map(|e| e.sector));
        assert_eq!(out, [1, 3, 5, 2, 4]);
    }
}

//! Cards that come and go.
//!
//! After a card has left, or another has come, every conversation with the old one is over: what the host runs is
//! aborted, what waits is failed with "no card", and a new [`Identify`](super::Identify) starts from power-off once
//! the slot shows a card. Nothing of the old card is kept, least of all its partition, its mode or its address.

use crate::host::Slot;

/// What happened in the slot since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotEvent {
    /// Nothing.
    Same,
    /// The card has left.
    Removed,
    /// A card has come.
    Inserted,
    /// A card is there, but it was out in between: it may be another one.
    Swapped,
}

/// Compares what a host's slot shows with what it showed before.
#[derive(Clone, Copy, Debug)]
pub struct SlotWatch {
    present: bool,
    changes: u32,
}

impl SlotWatch {
    /// From the slot as it is when the driver begins. A slot that cannot tell counts as one with a card.
    #[must_use]
    pub const fn new(slot: &Slot) -> Self {
        Self { present: !matches!(slot.present, Some(false)), changes: slot.changes }
    }
    /// Whether there was a card at the last look.
    #[must_use]
    pub const fn present(&self) -> bool {
        self.present
    }
    /// What happened since the last look.
    pub const fn look(&mut self, slot: &Slot) -> SlotEvent {
        let now = Self::new(slot);
        let event = match (self.present, now.present) {
            (true, false) => SlotEvent::Removed,
            (false, true) => SlotEvent::Inserted,
            (true, true) if now.changes != self.changes => SlotEvent::Swapped,
            _ => SlotEvent::Same,
        };
        *self = now;
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(present: Option<bool>, changes: u32) -> Slot {
        Slot { present, changes, ..Slot::default() }
    }

    #[test]
    fn a_card_that_was_out_between_two_looks_is_another() {
        let mut watch = SlotWatch::new(&slot(Some(true), u32::MAX));
        assert_eq!(watch.look(&slot(Some(true), u32::MAX)), SlotEvent::Same);
        assert_eq!(watch.look(&slot(Some(true), 1)), SlotEvent::Swapped, "the count wraps");
        assert_eq!(watch.look(&slot(Some(false), 2)), SlotEvent::Removed);
        assert!(!watch.present());
        assert_eq!(watch.look(&slot(Some(false), 4)), SlotEvent::Same, "in and out again");
        assert_eq!(watch.look(&slot(Some(true), 5)), SlotEvent::Inserted);
    }

    #[test]
    fn a_slot_that_cannot_tell_has_a_card() {
        let mut watch = SlotWatch::new(&slot(None, 0));
        assert!(watch.present());
        assert_eq!(watch.look(&slot(None, 0)), SlotEvent::Same);
    }
}

//! What the slot shows: card detect, write protect, the SDIO interrupt.

use super::{DwEngine, Post, State};
use crate::mailbox::{Mailbox, acknowledge};
use crate::platform::CardDetect;
use crate::reg::{CDETECT, DmaEvents, Events, RINTSTS, WRTPRT};
use mmc_hal::Mmio;
use mmc_proto::host::Slot;
use mmc_time::{Duration, Instant};

/// The card-detect pin, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pin {
    /// The last level that counts; `None`: nobody has looked.
    present: Option<bool>,
    /// Since when the pin has been seen at the other level.
    other: Option<Instant>,
    changes: u32,
    /// The card has asked for attention.
    sdio: bool,
}

impl Pin {
    /// The controller has debounced an edge, and the pin is at `level` now.
    fn edge(&mut self, level: bool) {
        self.other = None;
        let was = self.present.replace(level);
        // An edge to the level that is known already: it was away in between, perhaps with another card.
        let edges = if was == Some(level) { 2 } else { 1 };
        self.changes = self.changes.wrapping_add(edges);
    }

    /// Somebody looks; without an edge from the controller (its events are off with the supply) a new level counts once
    /// it has been seen for `debounce`.
    fn look(&mut self, level: bool, debounce: Duration, now: Instant) {
        match self.present {
            None => self.present = Some(level),
            Some(known) if known == level => self.other = None,
            Some(_) => {
                let since = *self.other.get_or_insert(now);
                if now.since(since) >= debounce {
                    self.edge(level);
                }
            }
        }
    }
}

impl<M: Mmio, R: Mmio, D, P, B> DwEngine<M, R, D, P, B> {
    /// Whether a card is in the slot, by the controller's own pin as it is now, not debounced; always `true` where the
    /// platform has none.
    pub fn card_present(&self) -> bool {
        self.platform.card_detect == CardDetect::Unknown || self.regs.read32(CDETECT) & 1 == 0
    }

    pub(super) fn mailbox(&self) -> &Mailbox {
        match &self.post {
            Post::Own(mailbox) => mailbox,
            Post::Shared(mailbox) => mailbox,
        }
    }

    pub(super) fn sdio_bit(&self) -> u32 {
        1_u32.wrapping_shl(self.platform.sdio_bit.into())
    }

    /// The events of INTMASK; the SDIO interrupt is apart.
    pub(super) fn mask(&mut self, events: Events) {
        if self.shadow.intmask != Some(events.bits()) {
            self.shadow.intmask = Some(events.bits());
            self.mailbox().set_mask(&self.regs, !self.sdio_bit(), events.bits());
        }
    }

    /// Fetches what has happened.
    pub(super) fn collect(&mut self) {
        if let Post::Own(mailbox) = &self.post {
            acknowledge(&self.regs, self.idmac.map().idsts, self.sdio_bit(), mailbox);
        }
        let (events, dma) = self.mailbox().take();
        if events.contains(Events::CARD_DETECT) {
            let level = self.card_present();
            self.pin.edge(level);
        }
        self.pin.sdio |= events.contains(Events::SDIO);
        self.seen |= events.difference(Events::SDIO);
        self.seen_dma |= dma;
    }

    /// Forgets what has happened: before a doorbell, so that a late event of one command does not end the next.
    pub(super) fn forget(&mut self) {
        self.collect();
        self.seen = Events::empty();
        self.seen_dma = DmaEvents::empty();
    }

    pub(super) fn show_slot(&mut self, now: Instant) -> Slot {
        if !matches!(self.state, State::Off) {
            self.collect();
        }
        let native = self.platform.card_detect == CardDetect::Native;
        if native {
            let level = self.card_present();
            self.pin.look(level, self.platform.debounce, now);
        }
        Slot {
            present: self.pin.present.filter(|_| native),
            write_protected: self.platform.write_protect.then(|| self.regs.read32(WRTPRT) & 1 != 0),
            changes: self.pin.changes,
            sdio: self.pin.sdio,
            ..Slot::default()
        }
    }

    pub(super) fn arm_sdio(&mut self, enable: bool) {
        self.pin.sdio = false;
        let bit = self.sdio_bit();
        if enable {
            // What was latched before is old; a card that still asks holds its line and is latched again.
            self.regs.write32(RINTSTS, bit);
        }
        self.mailbox().set_mask(&self.regs, bit, if enable { bit } else { 0 });
    }

    /// The supply goes off: only the slot may raise the line.
    pub(super) fn mask_all_but_the_slot(&mut self) {
        let events = match self.platform.card_detect {
            CardDetect::Native => Events::CARD_DETECT,
            CardDetect::Unknown => Events::empty(),
        };
        self.mailbox().set_mask(&self.regs, u32::MAX, events.bits());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_was_changed_between_two_looks_is_a_change() {
        let mut pin = Pin::default();
        let (t, debounce) = (Instant::from_secs(1), Duration::from_millis(25));
        pin.look(true, debounce, t);
        assert_eq!((pin.present, pin.changes), (Some(true), 0));
        pin.edge(true);
        assert_eq!((pin.present, pin.changes), (Some(true), 2), "out and in again");
        pin.edge(false);
        assert_eq!((pin.present, pin.changes), (Some(false), 3));
    }

    #[test]
    fn without_edges_a_level_counts_once_it_has_rested() {
        let mut pin = Pin::default();
        let (t, debounce) = (Instant::from_secs(1), Duration::from_millis(25));
        for (ms, level, changes) in [
            (0, true, 0),
            (1, false, 0),
            (20, true, 0),
            (30, false, 0),
            (54, false, 0),
            (55, false, 1),
            (90, true, 1),
            (115, true, 2),
        ] {
            pin.look(level, debounce, t + Duration::from_millis(ms));
            assert_eq!(pin.changes, changes, "after {ms} ms");
        }
    }
}

//! An eMMC card that follows a script: its own cache is what a loss of power takes.

use super::MmcCard;
use crate::fault::Medium;
use crate::storage::Storage;

impl Medium for MmcCard {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        f(&mut self.areas[0]);
    }
    /// It always remembers what is in its cache.
    fn expect_loss(&mut self, _: bool) {}
    /// What is in the cache stays there until it is told to flush.
    fn settle(&mut self, _: usize) {}
    fn volatile(&mut self) -> usize {
        self.undo.len()
    }
    fn lose(&mut self, survivors: &[usize]) {
        // Youngest first: what an entry brought is what is there once the younger ones are undone.
        let mut brought = Vec::new();
        while let Some((area, sector, old)) = self.undo.pop_back() {
            let mut new = [0; 512];
            // Inside, as the write was.
            let _ = self.areas[area].read(sector * 512, &mut new);
            brought.push((area, sector, new));
            let _ = self.areas[area].write(sector * 512, &old);
        }
        brought.reverse();
        for &i in survivors {
            if let Some((area, sector, new)) = brought.get(i) {
                let _ = self.areas[*area].write(sector * 512, new);
            }
        }
    }
}

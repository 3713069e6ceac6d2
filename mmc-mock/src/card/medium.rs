//! An SD card that follows a script: what a loss of power takes is what is in its cache, or else what it was busy with.

use super::sd::SdCard;
use crate::fault::Medium;
use crate::storage::Storage;

impl Medium for SdCard {
    fn with_storage(&mut self, f: &mut dyn FnMut(&mut Storage)) {
        f(&mut self.storage);
    }
    fn volatile(&mut self) -> usize {
        if self.undo.is_empty() { self.storage.volatile() } else { self.undo.len() }
    }
    fn lose(&mut self, survivors: &[usize]) {
        if self.undo.is_empty() {
            return self.storage.lose(survivors);
        }
        // Youngest first: what an entry brought is what is there once the younger ones are undone.
        let mut brought = Vec::new();
        while let Some((at, old)) = self.undo.pop_back() {
            let mut new = [0; 512];
            // Inside, as the write was.
            let _ = self.storage.read(at, &mut new);
            brought.push((at, new));
            let _ = self.storage.write(at, &old);
        }
        brought.reverse();
        for &i in survivors {
            if let Some((at, new)) = brought.get(i) {
                let _ = self.storage.write(*at, new);
            }
        }
        self.storage.settle(0);
    }
}

//! What a card was told, and what its host did wrong.

use mmc_time::Instant;

/// One command frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// 0..=63.
    pub index: u8,
    /// The argument.
    pub arg: u32,
    /// When its end bit arrived.
    pub at: Instant,
}

/// Commands counted and hashed always, kept when asked to.
#[derive(Clone, Debug)]
pub struct CommandLog {
    count: u64,
    hash: u64,
    kept: Option<Vec<Entry>>,
}

impl Default for CommandLog {
    fn default() -> Self {
        Self { count: 0, hash: 0xcbf2_9ce4_8422_2325, kept: None }
    }
}

impl CommandLog {
    /// How many commands arrived.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }
    /// FNV-1a (64 bits) of each command's index and argument (big-endian) in order: equal hashes, equal commands.
    /// Instants are not part of it.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }
    /// Keeps entries from now on, or forgets them.
    pub fn keep(&mut self, keep: bool) {
        self.kept = keep.then(|| self.kept.take().unwrap_or_default());
    }
    /// The entries kept.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        self.kept.as_deref().unwrap_or_default()
    }
    /// Notes a command; returns its number, from 0.
    pub(crate) fn note(&mut self, entry: Entry) -> u64 {
        let [a, b, c, d] = entry.arg.to_be_bytes();
        for byte in [entry.index, a, b, c, d] {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if let Some(kept) = &mut self.kept {
            kept.push(entry);
        }
        self.count += 1;
        self.count - 1
    }
}

/// Broken rules, the first [`Violations::KEPT`] of them with their text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations {
    kept: Vec<String>,
}

impl Violations {
    pub(crate) const KEPT: usize = 256;

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.kept.len() < Self::KEPT {
            self.kept.push(text());
        }
    }
    pub(crate) fn list(&self) -> &[String] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_knows_order_and_arguments_but_not_instants() {
        let hash = |list: &[(u8, u32, u64)]| {
            let mut log = CommandLog::default();
            for &(index, arg, at) in list {
                log.note(Entry { index, arg, at: Instant::from_secs(at) });
            }
            (log.count(), log.hash())
        };
        assert_eq!(hash(&[(0, 0, 1), (8, 0x1aa, 2)]), hash(&[(0, 0, 5), (8, 0x1aa, 9)]));
        assert_ne!(hash(&[(0, 0, 1), (8, 0x1aa, 2)]), hash(&[(8, 0x1aa, 1), (0, 0, 2)]));
        assert_ne!(hash(&[(17, 1, 0)]), hash(&[(17, 2, 0)]));
        // FNV-1a of five zero bytes, computed by hand from the published constants.
        assert_eq!(
            hash(&[(0, 0, 0)]).1,
            0xcbf2_9ce4_8422_2325_u64.wrapping_mul(0x100_0000_01b3_u64.wrapping_pow(5))
        );
    }

    #[test]
    fn entries_are_kept_only_on_request() {
        let mut log = CommandLog::default();
        let e = Entry { index: 13, arg: 7, at: Instant::ZERO };
        assert_eq!(log.note(e), 0);
        log.keep(true);
        assert_eq!(log.note(e), 1);
        assert_eq!(log.entries(), [e]);
        log.keep(false);
        assert!(log.entries().is_empty());
        assert_eq!(log.count(), 2);
    }
}

//! What goes wrong, and when: plain data that a card looks up at each command.
//!
//! Not yet a language; it says at which command, and at which block of it, and nothing of the controller.

/// Something that goes wrong at one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Number of the command, from 0, counting every frame that arrives (CMD55 too) since the card was made.
    pub at: u64,
    /// What happens.
    pub what: What,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// The card does what it was told, but its response is lost; so is the data phase of a read, a write waits
    /// for its blocks.
    NoAnswer,
    /// The card sees a CRC error in the command: it does nothing, and says COM_CRC_ERROR in its next response.
    CommandCrc,
    /// The response has a wrong CRC7 (of R3, which has none: a wrong end bit).
    ResponseCrc,
    /// These bits are set in the card status of this answer, or, if it carries none, of the next that does.
    Status(u32),
    /// Block `k` (from 0) of the data phase: a read block has a wrong CRC16, a written one gets the token for it
    /// and is not stored.
    BlockCrc(u32),
    /// Block `k`: a read block and all after it do not come, a written one gets no token and is not stored.
    BlockMissing(u32),
    /// DAT0 stays low for ever once this command (with its data) is over; only removing power helps.
    Stuck,
    /// The card leaves the slot before it answers.
    Removed,
}

/// A list of faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }
    /// One more.
    pub fn push(&mut self, at: u64, what: What) {
        self.0.push(Fault { at, what });
    }
    /// What goes wrong at command `n`.
    pub fn at(&self, n: u64) -> impl Iterator<Item = What> {
        self.0.iter().filter(move |f| f.at == n).map(|f| f.what)
    }
    /// The list.
    #[must_use]
    pub fn as_slice(&self) -> &[Fault] {
        &self.0
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(faults: I) -> Self {
        Self(faults.into_iter().collect())
    }
}

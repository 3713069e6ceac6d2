//! What goes wrong, and when: plain data.
//!
//! A [`Script`] is a list of [`Rule`]s with a readable form; [`Faulty`] makes any card follow one, [`Script::arm`] a
//! controller model. [`Faults`] is the short way for one SD card: a list by the number of the frame.
//!
//! ```text
//! seed 7                              # decides the random choices below
//! at CMD17: block 0 crc               # the first CMD17: its first block has a wrong CRC16
//! at CMD18#2: block 5 flip 17.3       # the third CMD18: bit 3 of byte 17 of block 5 is wrong, its CRC is not
//! every ACMD41: status 0x80000        # each one
//! at frame 40: no-answer              # the 41st command frame, whatever it is
//! at 250ms: power-loss random         # of the writes under way any subset survives, in any order
//! at 1s: host spurious 0x80           # of the controller model
//! ```

mod faulty;
mod names;
mod script;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "proptest")]
pub mod strategy;
mod text;

pub use faulty::{Faulty, Medium};
pub use script::{Action, BlockFault, Invalid, Keep, OnFailure, Rule, Script, When};
pub use text::ScriptError;

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

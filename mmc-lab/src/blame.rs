//! Who is to blame for a wait: the three places a request can lose time in, and what went ahead of it.

use serde::Serialize;

use crate::analysis::Class;

/// The part of a wait that was the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// No free tag: the request could not even enter the scheduler.
    Tags,
    /// It stood in the scheduler while others were sent.
    Queue,
    /// It was at the driver and the card.
    Card,
}

impl Blame {
    /// The largest of three parts, in nanoseconds; of equal ones the later stage.
    #[must_use]
    pub fn of(tag_wait: u64, sched_wait: u64, service: u64) -> Self {
        if service >= tag_wait && service >= sched_wait {
            Self::Card
        } else if sched_wait >= tag_wait {
            Self::Queue
        } else {
            Self::Tags
        }
    }

    /// The word used in the JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Queue => "queue",
            Self::Card => "card",
        }
    }
}

/// The requests that were sent to the card between the insertion of a victim and its own issue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ahead {
    /// How many; `older + younger`.
    pub requests: u64,
    /// Those that entered the scheduler before the victim.
    pub older: u64,
    /// Those that entered after it (or went to the driver without entering the scheduler) and still passed it.
    pub younger: u64,
    /// Bytes moved by all of them.
    pub bytes: u64,
    /// How many of them are of each class, indexed by [`Class::index`]. Not in the JSON.
    #[serde(skip)]
    pub by_class: [u64; 4],
}

impl Ahead {
    /// Counts one request of `sectors` sectors.
    pub fn count(&mut self, older: bool, sectors: u64, class: Class) {
        self.requests = self.requests.saturating_add(1);
        if older {
            self.older = self.older.saturating_add(1);
        } else {
            self.younger = self.younger.saturating_add(1);
        }
        self.bytes = self.bytes.saturating_add(sectors.saturating_mul(512));
        if let Some(n) = self.by_class.get_mut(class.index()) {
            *n = n.saturating_add(1);
        }
    }

    /// Background writes among them: nobody sleeps for those.
    #[must_use]
    pub fn background_writes(&self) -> u64 {
        self.by_class.get(Class::AsyncWrites.index()).copied().unwrap_or(0)
    }
}

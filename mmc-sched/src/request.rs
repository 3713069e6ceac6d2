//! What a scheduler knows of a request.

use bitflags::bitflags;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Read sectors.
    Read,
    /// Write sectors.
    Write,
    /// Tell the device that sectors are not needed any more; goes with the writes.
    Discard,
    /// Make sectors read as zero; goes with the writes, never merges.
    WriteZeroes,
}

impl Op {
    /// Only [`Op::Read`] is a read; all else has the direction of a write.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read)
    }
}

bitflags! {
    /// Properties of a request, as Linux names them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// Somebody waits for it. Reads always count as synchronous.
        const SYNC = 1;
        /// Metadata.
        const META = 1 << 1;
        /// Force unit access: on stable storage before it completes. Does not merge.
        const FUA = 1 << 2;
        /// The device's cache is flushed before it. Does not merge.
        const PREFLUSH = 1 << 3;
        /// Never merge it.
        const NOMERGE = 1 << 4;
        /// Read ahead: nobody waits yet.
        const RAHEAD = 1 << 5;
        /// No request of its stream goes to the device past it, in either direction. Only `ftb` keeps this order; for
        /// the other policies, as for Linux, order is the caller's: wait for a completion.
        const BARRIER = 1 << 6;
    }
}

/// The I/O class of Linux' `ioprio`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// No priority set; treated as best effort, but different from it when merging.
    #[default]
    None,
    /// Real time.
    RealTime,
    /// Best effort.
    BestEffort,
    /// Idle.
    Idle,
}

/// Class and level (0 highest … 7 lowest).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Priority {
    /// The class.
    pub class: Class,
    /// 0..=7.
    pub level: u8,
}

/// Whose request it is: a process, the journal, a flusher. The caller chooses the numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// One request: a range of sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// First sector.
    pub lba: u64,
    /// Sectors, at least 1.
    pub blocks: u32,
    /// Whose.
    pub stream: StreamId,
    /// What.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// Class and level.
    pub priority: Priority,
}

impl Request {
    /// A plain request without flags and priority.
    #[must_use]
    pub const fn new(op: Op, lba: u64, blocks: u32, stream: StreamId) -> Self {
        let priority = Priority { class: Class::None, level: 0 };
        Self { lba, blocks, stream, op, flags: Flags::empty(), priority }
    }
    /// First sector behind it; saturates.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.lba.saturating_add(self.blocks as u64)
    }
    /// Equality, but in three comparisons.
    #[inline]
    pub(crate) fn same(&self, other: &Self) -> bool {
        let word = |r: &Self| {
            let (class, level) = (r.priority.class as u32, u32::from(r.priority.level));
            u32::from(r.flags.bits()) | class << 8 | level << 16 | (r.op as u32) << 24
        };
        let (stream, blocks) = (self.stream.0 ^ other.stream.0, self.blocks ^ other.blocks);
        self.lba == other.lba && stream | blocks | (word(self) ^ word(other)) == 0
    }
    /// A read, or a write somebody waits for.
    #[must_use]
    pub const fn is_sync(&self) -> bool {
        // Both are looked at: which operation comes next nobody foresees.
        self.op.is_read() | self.flags.intersects(Flags::SYNC.union(Flags::FUA).union(Flags::PREFLUSH))
    }
    /// For admission.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match (self.op.is_read(), self.is_sync()) {
            (true, _) => Kind::Read,
            (false, true) => Kind::SyncWrite,
            (false, false) => Kind::Async,
        }
    }
}

/// The kinds admission tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Any read.
    Read,
    /// A write somebody waits for.
    SyncWrite,
    /// A write nobody waits for (writeback), a discard.
    Async,
}

/// Names one accepted request: `slot() < capacity`, so that the caller's own table can be indexed by it. A stale
/// id is recognised for 2³² reuses of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    pub(crate) slot: u16,
    pub(crate) generation: u32,
}

impl RequestId {
    /// The slot in the pool, below the scheduler's capacity.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn three_comparisons_find_every_difference() {
        let all = [Flags::SYNC, Flags::META, Flags::FUA, Flags::PREFLUSH, Flags::NOMERGE, Flags::BARRIER];
        let mut some = std::vec![];
        for op in [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes] {
            for (lba, blocks, stream) in
                [(0, 8, 0), (1, 8, 0), (0, 9, 0), (0, 8, 1), (u64::MAX, u32::MAX, u32::MAX)]
            {
                some.push(Request::new(op, lba, blocks, StreamId(stream)));
            }
            let plain = some[some.len() - 1];
            some.extend(all.map(|flags| Request { flags, ..plain }));
            for (class, level) in
                [(Class::Idle, 0), (Class::BestEffort, 0), (Class::RealTime, 7), (Class::None, 1)]
            {
                some.push(Request { priority: Priority { class, level }, ..plain });
            }
        }
        for a in &some {
            for b in &some {
                assert_eq!(a.same(b), a == b, "{a:?} {b:?}");
            }
        }
    }
}

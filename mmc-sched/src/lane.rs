//! Directions and classes as keys: what the deadline policies keep one of for each.

use crate::request::{Class, Request};

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dir {
    Read,
    Write,
}

impl Dir {
    #[inline]
    pub(crate) fn of(r: &Request) -> Self {
        if r.op.is_read() { Self::Read } else { Self::Write }
    }
}

/// One value for each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByDir<T> {
    pub(crate) read: T,
    pub(crate) write: T,
}

impl<T> ByDir<T> {
    #[inline]
    pub(crate) fn get(&self, d: Dir) -> &T {
        match d {
            Dir::Read => &self.read,
            Dir::Write => &self.write,
        }
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, d: Dir) -> &mut T {
        match d {
            Dir::Read => &mut self.read,
            Dir::Write => &mut self.write,
        }
    }
}

/// A class that is served by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    RealTime,
    BestEffort,
    Idle,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::RealTime, Self::BestEffort, Self::Idle];
    pub(crate) fn of(r: &Request) -> Self {
        match r.priority.class {
            Class::RealTime => Self::RealTime,
            Class::None | Class::BestEffort => Self::BestEffort,
            Class::Idle => Self::Idle,
        }
    }
}

/// One value for each class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByLevel<T> {
    pub(crate) real_time: T,
    pub(crate) best_effort: T,
    pub(crate) idle: T,
}

impl<T> ByLevel<T> {
    pub(crate) fn get(&self, level: Level) -> &T {
        match level {
            Level::RealTime => &self.real_time,
            Level::BestEffort => &self.best_effort,
            Level::Idle => &self.idle,
        }
    }
    pub(crate) fn get_mut(&mut self, level: Level) -> &mut T {
        match level {
            Level::RealTime => &mut self.real_time,
            Level::BestEffort => &mut self.best_effort,
            Level::Idle => &mut self.idle,
        }
    }
}

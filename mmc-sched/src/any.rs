//! One type for all policies that are built in, chosen by name.
//!
//! It is not needed where the policy is known: `Queue<S, MqDeadline>` is smaller.

use crate::none::NoSched;
use crate::policy::{Done, MergeScope, Pick, Policy};
use crate::pool::Pool;
use crate::request::{Kind, Request};
use crate::scheduler::{Rejected, TunableInfo, TuneError};
use mmc_time::Instant;

/// Any of the policies.
// With a tag of its own, not one that is to be found in a value of some policy: it is looked at ten times a request.
#[derive(Debug)]
#[repr(u8)]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "no allocator: the largest policy sets the size")]
pub enum AnyPolicy {
    /// `none`.
    None(NoSched),
    /// `mq-deadline`.
    #[cfg(feature = "mq-deadline")]
    MqDeadline(crate::MqDeadline),
    /// `deadline`.
    #[cfg(feature = "deadline")]
    Deadline(crate::Deadline),
    /// `bfq`, for 64 streams.
    #[cfg(feature = "bfq")]
    Bfq(crate::Bfq),
    /// `cfq`, for 64 streams.
    #[cfg(feature = "cfq")]
    Cfq(crate::Cfq),
    /// `kyber`.
    #[cfg(feature = "kyber")]
    Kyber(crate::Kyber),
    /// `ftb`, for 64 streams.
    #[cfg(feature = "ftb")]
    Ftb(crate::Ftb),
}

/// Why a name gave no policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPolicy {
    /// No policy has this name.
    #[error("no such scheduler; there are none, mq-deadline, deadline, bfq, cfq, kyber and ftb")]
    Unknown,
    /// The policy exists, but this build is without it.
    #[error("this build has no {0}: enable the feature `{0}` of mmc-sched")]
    NotBuilt(&'static str),
}

impl AnyPolicy {
    /// The names of the policies that are built in, `none` first; [`by_name`](Self::by_name) takes each of them.
    pub const NAMES: &'static [&'static str] = &[
        "none",
        #[cfg(feature = "mq-deadline")]
        "mq-deadline",
        #[cfg(feature = "deadline")]
        "deadline",
        #[cfg(feature = "bfq")]
        "bfq",
        #[cfg(feature = "cfq")]
        "cfq",
        #[cfg(feature = "kyber")]
        "kyber",
        #[cfg(feature = "ftb")]
        "ftb",
    ];

    /// The policy of this name with default tunables; the rules of a certain kernel are named behind a slash,
    /// `mq-deadline/5.10`.
    ///
    /// # Errors
    /// [`NoPolicy`].
    pub fn by_name(name: &str) -> Result<Self, NoPolicy> {
        match name {
            "none" => Ok(Self::None(NoSched::new())),
            #[cfg(feature = "mq-deadline")]
            "mq-deadline" | "mq-deadline/7.3" => Ok(Self::MqDeadline(crate::MqDeadline::new())),
            #[cfg(feature = "mq-deadline")]
            "mq-deadline/5.10" => {
                Ok(Self::MqDeadline(crate::MqDeadline::with_rules(crate::mq_deadline::Rules::V5_10)))
            }
            #[cfg(not(feature = "mq-deadline"))]
            "mq-deadline" | "mq-deadline/7.3" | "mq-deadline/5.10" => Err(NoPolicy::NotBuilt("mq-deadline")),
            #[cfg(feature = "deadline")]
            "deadline" => Ok(Self::Deadline(crate::Deadline::new())),
            #[cfg(not(feature = "deadline"))]
            "deadline" => Err(NoPolicy::NotBuilt("deadline")),
            #[cfg(feature = "bfq")]
            "bfq" => Ok(Self::Bfq(crate::Bfq::new())),
            #[cfg(not(feature = "bfq"))]
            "bfq" => Err(NoPolicy::NotBuilt("bfq")),
            #[cfg(feature = "cfq")]
            "cfq" => Ok(Self::Cfq(crate::Cfq::new())),
            #[cfg(not(feature = "cfq"))]
            "cfq" => Err(NoPolicy::NotBuilt("cfq")),
            #[cfg(feature = "kyber")]
            "kyber" => Ok(Self::Kyber(crate::Kyber::new())),
            #[cfg(not(feature = "kyber"))]
            "kyber" => Err(NoPolicy::NotBuilt("kyber")),
            #[cfg(feature = "ftb")]
            "ftb" => Ok(Self::Ftb(crate::Ftb::new())),
            #[cfg(not(feature = "ftb"))]
            "ftb" => Err(NoPolicy::NotBuilt("ftb")),
            _ => Err(NoPolicy::Unknown),
        }
    }
}

/// By itself, so that no policy pays for the registers another one needs.
#[inline(never)]
fn completed<P: Policy>(policy: &mut P, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
    policy.completed(pool, slot, done, now);
}

macro_rules! each {
    ($self:ident, $p:ident => $call:expr) => {
        match $self {
            Self::None($p) => $call,
            #[cfg(feature = "mq-deadline")]
            Self::MqDeadline($p) => $call,
            #[cfg(feature = "deadline")]
            Self::Deadline($p) => $call,
            #[cfg(feature = "bfq")]
            Self::Bfq($p) => $call,
            #[cfg(feature = "cfq")]
            Self::Cfq($p) => $call,
            #[cfg(feature = "kyber")]
            Self::Kyber($p) => $call,
            #[cfg(feature = "ftb")]
            Self::Ftb($p) => $call,
        }
    };
}

impl Policy for AnyPolicy {
    fn name(&self) -> &'static str {
        each!(self, p => p.name())
    }
    fn reset(&mut self, pool: &mut Pool<'_>, now: Instant) {
        each!(self, p => p.reset(pool, now));
    }
    #[inline]
    fn accept(&mut self, request: &Request) -> Result<(), Rejected> {
        each!(self, p => p.accept(request))
    }
    #[inline]
    fn insert(&mut self, pool: &mut Pool<'_>, slot: u16, now: Instant) {
        each!(self, p => p.insert(pool, slot, now));
    }
    fn insert_head(&mut self, pool: &mut Pool<'_>, slot: u16, fresh: bool, now: Instant) {
        each!(self, p => p.insert_head(pool, slot, fresh, now));
    }
    fn remove(&mut self, pool: &mut Pool<'_>, slot: u16) {
        each!(self, p => p.remove(pool, slot));
    }
    #[inline]
    fn merge_scope(&self) -> MergeScope {
        each!(self, p => p.merge_scope())
    }
    #[inline]
    fn merge_tries(&self) -> u8 {
        each!(self, p => p.merge_tries())
    }
    #[inline]
    fn may_merge(&self, pool: &Pool<'_>, into: u16, request: &Request) -> bool {
        each!(self, p => p.may_merge(pool, into, request))
    }
    #[inline]
    fn front_of(&self, pool: &Pool<'_>, request: &Request) -> Option<u16> {
        each!(self, p => p.front_of(pool, request))
    }
    #[inline]
    fn run_before(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        each!(self, p => p.run_before(pool, slot))
    }
    #[inline]
    fn run_behind(&self, pool: &Pool<'_>, slot: u16) -> Option<u16> {
        each!(self, p => p.run_behind(pool, slot))
    }
    #[inline]
    fn grown(&mut self, pool: &mut Pool<'_>, slot: u16, front: bool) {
        each!(self, p => p.grown(pool, slot, front));
    }
    fn absorbed(&mut self, pool: &mut Pool<'_>, into: u16, from: u16, queued: bool) {
        each!(self, p => p.absorbed(pool, into, from, queued));
    }
    #[inline]
    fn pick(&mut self, pool: &mut Pool<'_>, now: Instant) -> Pick {
        each!(self, p => p.pick(pool, now))
    }
    #[inline]
    fn completed(&mut self, pool: &mut Pool<'_>, slot: u16, done: Done, now: Instant) {
        each!(self, p => completed(p, pool, slot, done, now));
    }
    fn wake_at(&self) -> Option<Instant> {
        each!(self, p => p.wake_at())
    }
    fn admits(&self, kind: Kind, tags: usize) -> usize {
        each!(self, p => p.admits(kind, tags))
    }
    fn admits_request(&self, request: &Request, tags: usize) -> bool {
        each!(self, p => p.admits_request(request, tags))
    }
    fn tunable(&self, i: usize) -> Option<TunableInfo> {
        each!(self, p => p.tunable(i))
    }
    fn tune(&mut self, name: &str, text: &str) -> Result<(), TuneError> {
        each!(self, p => p.tune(name, text))
    }
}

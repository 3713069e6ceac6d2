//! Scripts for property tests (feature `proptest`): a failing one shrinks to few rules, and prints itself.

use super::names::{LEVEL, NUMBER, SIMPLE};
use super::script::{Action, BlockFault, Keep, Rule, Script, When};
use crate::dw::Fault;
use mmc_time::{Duration, Instant};
use proptest::prelude::*;

/// An index and whether it follows CMD55; data commands are the likeliest.
fn command() -> impl Strategy<Value = (bool, u8)> {
    prop_oneof![
        4 => prop::sample::select(vec![12_u8, 13, 17, 18, 23, 24, 25]).prop_map(|i| (false, i)),
        2 => prop::sample::select(vec![0_u8, 2, 3, 7, 8, 9, 55, 58, 59]).prop_map(|i| (false, i)),
        1 => prop::sample::select(vec![6_u8, 13, 22, 23, 41, 42, 51]).prop_map(|i| (true, i)),
        1 => (any::<bool>(), 0..64_u8),
    ]
}

/// A trigger a card understands.
pub fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        (0..200_u64).prop_map(When::Frame),
        (command(), 0..4_u32).prop_map(|((app, index), nth)| When::Command { app, index, nth }),
        command().prop_map(|(app, index)| When::Every { app, index }),
        (0..3_000_000_000_u64).prop_map(|ns| When::Instant(Instant::from_nanos(ns))),
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..2_000_000_000_u64).prop_map(Duration::from_nanos),
        (0..2_000_u64).prop_map(Duration::from_millis)
    ]
}

fn block() -> impl Strategy<Value = Action> {
    let what = prop_oneof![
        Just(BlockFault::Crc),
        Just(BlockFault::Missing),
        (0..512_u16, 0..8_u8).prop_map(|(byte, bit)| BlockFault::Flip { byte, bit }),
    ];
    (0..16_u32, what).prop_map(|(k, what)| Action::Block(k, what))
}

/// What a retry can mend: one command or one block is damaged, late, or lost, and the card knows it or the host can see
/// it. No data are changed behind anyone's back.
pub fn transient() -> impl Strategy<Value = Action> {
    prop_oneof![
        prop::sample::select(vec![
            Action::Lost,
            Action::NoAnswer,
            Action::CommandCrc,
            Action::ResponseCrc,
            Action::ResponseIndex,
            Action::ResponseEnd,
        ]),
        (0..50_u64).prop_map(|ms| Action::Late(Duration::from_millis(ms))),
        (0..200_u64).prop_map(|ms| Action::Busy(Duration::from_millis(ms))),
        (0..16_u32, any::<bool>())
            .prop_map(|(k, crc)| Action::Block(k, if crc { BlockFault::Crc } else { BlockFault::Missing })),
    ]
}

/// Anything that can go wrong with a card of at least 512 MiB, swaps apart.
pub fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => transient(),
        1 => any::<u32>().prop_map(Action::Status),
        1 => time().prop_map(Action::Late),
        1 => prop_oneof![time(), Just(Duration::MAX)].prop_map(Action::Busy),
        2 => block(),
        1 => prop::sample::select(vec![Action::Remove, Action::Insert]),
        1 => keep().prop_map(Action::PowerLoss),
        1 => (0..1_u64 << 20, 0..512_u16, 0..8_u8).prop_map(|(sector, byte, bit)| Action::Rot { sector, byte, bit }),
    ]
}

fn keep() -> impl Strategy<Value = Keep> {
    prop_oneof![
        prop::sample::select(vec![Keep::All, Keep::None, Keep::Random]),
        prop::collection::vec(0..32_u32, 0..8).prop_map(Keep::List),
    ]
}

/// A fault of the controller model.
pub fn host_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        prop::sample::select(SIMPLE.map(|(_, f)| f).to_vec()),
        (0..NUMBER.len(), 0..64_u32).prop_map(|(i, n)| NUMBER[i].1(n)),
        (0..LEVEL.len(), any::<bool>()).prop_map(|(i, on)| LEVEL[i].1(on)),
        prop_oneof![time(), Just(Duration::MAX)].prop_map(Fault::Busy),
        (any::<u32>(), 0..64_u32).prop_map(|(bits, accesses)| Fault::Defer { bits, accesses }),
    ]
}

/// A rule for a card.
pub fn rule() -> impl Strategy<Value = Rule> {
    (when(), action()).prop_map(|(when, what)| Rule { when, what })
}

/// A rule for the controller model.
pub fn host_rule() -> impl Strategy<Value = Rule> {
    (host_fault(), any::<bool>(), 0..2_000_u64).prop_map(|(fault, instant, n)| Rule {
        when: match instant {
            true => When::Instant(Instant::from_micros(n * 500)),
            false if fault.of_command() => When::Frame(n / 20),
            false => When::Access(n),
        },
        what: Action::Host(fault),
    })
}

fn made_of(rule: impl Strategy<Value = Rule>, most: usize) -> impl Strategy<Value = Script> {
    (any::<u64>(), prop_oneof![Just(0), 0..64_u32], prop::collection::vec(rule, 0..=most))
        .prop_map(|(seed, cache, rules)| Script { seed, cache, rules })
}

/// A script of at most `most` rules for a card: anything.
pub fn script(most: usize) -> impl Strategy<Value = Script> {
    made_of(rule(), most)
}

/// A script of at most `most` rules, each of which a retry can mend; none of them strikes more than once.
pub fn transient_script(most: usize) -> impl Strategy<Value = Script> {
    let when = when().prop_filter("once", |w| !matches!(w, When::Every { .. }));
    made_of((when, transient()).prop_map(|(when, what)| Rule { when, what }), most)
}

/// A script of at most `most` rules for the card and the controller model together.
pub fn full_script(most: usize) -> impl Strategy<Value = Script> {
    made_of(prop_oneof![rule(), host_rule()], most)
}

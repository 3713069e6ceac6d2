//! What every tunable takes and makes of it, and what every bound says, as data: at the ends of each range and one beyond,
//! and what is no number. The bounds themselves are proved against the policies elsewhere; here a changed formula shows.
//!
//! After a change that is meant, `DECISIONS=write cargo test -p mmc-sched --test settings` writes the file anew.

#![cfg(all(
    feature = "mq-deadline",
    feature = "deadline",
    feature = "bfq",
    feature = "cfq",
    feature = "kyber",
    feature = "ftb"
))]

#[path = "support/record.rs"]
mod record;

use mmc_sched::bound::{self, Share, Waiting};
use mmc_sched::ftb::bound::{Turn, dispatches, service, time};
use mmc_sched::{AnyPolicy, Bfq, Deadline, Ftb, MqDeadline, Op, Policy, Queue, Scheduler, Slot, TunableInfo};
use mmc_time::Duration;
use std::fmt::Write as _;

fn all(policy: &AnyPolicy) -> Vec<TunableInfo> {
    (0..).map_while(|i| policy.tunable(i)).collect()
}

fn tunables(out: &mut String) {
    for name in
        AnyPolicy::NAMES.iter().copied().chain(["mq-deadline/5.10", "mq-deadline/7.3", "cfq/4.20", "?"])
    {
        let Ok(fresh) = AnyPolicy::by_name(name) else {
            writeln!(out, "# {name}: no such policy").unwrap();
            continue;
        };
        writeln!(out, "# {name}: {}", fresh.name()).unwrap();
        for info in all(&fresh) {
            let TunableInfo { name: tunable, unit, min, max, value } = info;
            write!(out, "{tunable} ({unit}) {min}..={max} {value}:").unwrap();
            let numbers =
                [min - 1, min, min + 1, value - 1, value + 1, max / 2, max - 1, max, max.saturating_add(1)];
            let numbers = numbers.map(|n| n.to_string());
            let texts = [
                "",
                " ",
                "x",
                "1x",
                "-0",
                "+7",
                "0x10",
                "0X1f",
                "010",
                "08",
                "5\n",
                "5\n\n",
                " 5",
                "1e3",
                "4294967296",
                "18446744073709551615",
                "18446744073709551616",
                "-9223372036854775809",
                "--1",
                "0x",
                "async",
                "fixed",
            ];
            for text in numbers.iter().map(String::as_str).chain(texts) {
                let mut policy = AnyPolicy::by_name(name).unwrap();
                let result = policy.tune(tunable, text);
                let now = all(&policy);
                let changed: Vec<_> =
                    now.iter().zip(all(&fresh)).filter(|(a, b)| *a != b).map(|(a, _)| a).collect();
                write!(out, " {text:?}").unwrap();
                match (result, &changed[..]) {
                    (Ok(()), []) => write!(out, " as it was,").unwrap(),
                    (Ok(()), [one]) if one.name == tunable => write!(out, " {},", one.value).unwrap(),
                    (Ok(()), more) => {
                        write!(out, " {:?},", more.iter().map(|i| (i.name, i.value)).collect::<Vec<_>>())
                            .unwrap()
                    }
                    (Err(why), []) => write!(out, " {why:?},").unwrap(),
                    (Err(why), more) => panic!("{name} {tunable}: {why}, and {more:?} changed"),
                }
            }
            out.push('\n');
        }
        let mut policy = AnyPolicy::by_name(name).unwrap();
        writeln!(out, "another name: {:?}", policy.tune("front_merge", "1")).unwrap();
    }
}

const SOME: [u32; 9] = [0, 1, 2, 3, 15, 16, 17, 127, u32::MAX];

/// FNV-1a, for what would be too long to read.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |d, b| (d ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn bounds(out: &mut String) {
    let mut say = |title: &str, f: &dyn Fn(&mut String)| {
        let mut text = String::new();
        f(&mut text);
        writeln!(out, "{title}: {:016x}", digest(&text)).unwrap();
    };
    let waitings = || {
        SOME.into_iter().flat_map(|ahead| {
            (0..8).map(move |n| Waiting { read: n & 1 != 0, ahead, classes: n & 2 != 0, at_head: n & 4 != 0 })
        })
    };
    let batches = ["0", "1", "2", "16", "1000000", "1000001", "2147483647"];
    let starved = ["-1", "0", "1", "2", "1000"];
    say("mq-deadline", &|text| {
        for (batch, starved) in batches.iter().flat_map(|b| starved.map(|s| (b, s))) {
            let mut policy = MqDeadline::new();
            let set = (policy.tune("fifo_batch", batch), policy.tune("writes_starved", starved));
            writeln!(text, "{set:?}").unwrap();
            for waiting in waitings() {
                writeln!(text, "{:?}", bound::mq_deadline(policy.tunables(), waiting)).unwrap();
            }
        }
    });
    say("deadline", &|text| {
        for (batch, starved) in batches.iter().flat_map(|b| starved.map(|s| (b, s))) {
            let mut policy = Deadline::new();
            let set = (policy.tune("fifo_batch", batch), policy.tune("writes_starved", starved));
            writeln!(text, "{set:?}").unwrap();
            for waiting in waitings() {
                writeln!(text, "{:?}", bound::deadline(policy.tunables(), waiting)).unwrap();
            }
        }
    });
    say("bfq", &|text| {
        for (name, value) in [
            ("max_budget", "2048"),
            ("max_budget", "1"),
            ("low_latency", "1"),
            ("charge_time", "1"),
            ("max_budget", "0"),
            ("slice_idle", "8"),
        ] {
            let mut policy: Bfq = Bfq::new();
            for (name, value) in
                [("slice_idle", "0"), ("max_budget", "4096"), ("low_latency", "0"), (name, value)]
            {
                writeln!(text, "{:?}", policy.tune(name, value)).unwrap();
            }
            for (weight, blocks) in SOME.into_iter().flat_map(|w| SOME.map(|b| (w, b))) {
                for n in 0..16 {
                    let x = Share::new(weight, 80, blocks);
                    let x = Share { ahead: 3 * (n & 1), owes: n & 2 != 0, slow: 2 * (n as u32 & 4), ..x };
                    let x = Share { higher: n == 7, at_head: n & 8 != 0, ..x };
                    writeln!(text, "{:?}", bound::bfq(&policy, x)).unwrap();
                }
            }
        }
    });
    say("ftb", &|text| {
        let ms = Duration::from_millis;
        let policy: Ftb = Ftb::new();
        let settings: Vec<_> = (0..).map_while(|i| Policy::tunable(&policy, i)).collect();
        for (info, add) in settings.iter().flat_map(|info| [0, 1, 2, 5].map(|add| (info, add))) {
            let mut policy: Ftb = Ftb::new();
            writeln!(text, "{:?}", policy.tune(info.name, &(info.min + add).to_string())).unwrap();
            for n in 0..32_u32 {
                let x = Turn::new(100 * (n & 1) + 1, 300, n >> 1 & 3, ms(35));
                let owes = if n & 4 == 0 { ms(0) } else { ms(7) };
                let own = if n & 8 == 0 { ms(2) } else { ms(90) };
                let x = Turn {
                    own,
                    owes,
                    head_start: ms(u64::from(n & 16)),
                    flushers: n & 2 != 0,
                    at_head: n == 31,
                    ..x
                };
                writeln!(text, "{:?} {:?}", service(&policy, x), time(&policy, x)).unwrap();
                writeln!(text, "{:?} {:?}", dispatches(&policy, x, ms(1)), dispatches(&policy, x, ms(0)))
                    .unwrap();
            }
        }
    });
    say("kyber, none, cfq and times", &|text| {
        for n in SOME {
            for op in [Op::Read, Op::Write, Op::Discard, Op::WriteZeroes] {
                writeln!(text, "{:?} {:?}", bound::kyber(op, n, false), bound::kyber(op, n, true)).unwrap();
            }
            writeln!(text, "{:?}", bound::none(n)).unwrap();
            writeln!(text, "{}", bound::time(n.into(), Duration::from_micros(n.into()), n)).unwrap();
            for rate in SOME {
                writeln!(text, "{}", bound::time_of_sectors(n.into(), 256, n, rate.into())).unwrap();
            }
        }
        for (sync, higher) in [(false, false), (false, true), (true, false), (true, true)] {
            writeln!(text, "{:?}", bound::cfq(sync, higher)).unwrap();
        }
    });
}

#[test]
fn every_setting_and_every_bound_is_as_it_was() {
    let mut text = String::new();
    tunables(&mut text);
    bounds(&mut text);
    record::compare("settings.txt", &text);
}

/// A policy is reset when it is put in charge: of what it counts, not of what it was told.
#[test]
fn what_was_set_outlives_a_reset() {
    for name in AnyPolicy::NAMES {
        let mut policy = AnyPolicy::by_name(name).unwrap();
        for info in all(&policy) {
            let TunableInfo { name: tunable, min, max, value, .. } = info;
            let other = [value + 1, value - 1, value.saturating_mul(2), value / 2, max, min]
                .into_iter()
                .find(|other| {
                    let taken = policy.tune(tunable, &other.to_string());
                    taken.is_ok() && all(&policy).iter().any(|i| i.name == tunable && i.value != value)
                });
            assert!(other.is_some() || min == max, "{name}: {tunable} has but one value");
        }
        let told = all(&policy);
        let usual = all(&AnyPolicy::by_name(name).unwrap());
        // What has a name in microseconds, too, is that in whole milliseconds.
        let but_one = |i: &TunableInfo| {
            i.min == i.max || told.iter().any(|other| other.name.strip_suffix("_us") == Some(i.name))
        };
        let changed = told.iter().zip(&usual).filter(|(is, was)| is.value != was.value || but_one(is));
        assert_eq!(changed.count(), told.len(), "{name}: {told:?}");
        let queue = Queue::new([Slot::FREE; 4], policy);
        let kept: Vec<_> = (0..).map_while(|i| queue.tunable(i)).collect();
        assert_eq!(kept, told, "{name}");
    }
}

//! The cost model against the figures its specification draws from it, and against a log of the emulated card that
//! real kernels ran on.

use mmc_mock::timing::{Profile, Timing};
use mmc_time::Duration;

/// Without pauses, so that each figure stands alone.
fn calm(name: &str) -> Timing {
    Timing::new(Profile { stall_p: 0.0, ..Profile::named(name).unwrap() }, 0)
}

fn ms(d: Duration) -> f64 {
    d.as_nanos() as f64 / 1e6
}

#[track_caller]
fn near(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{got} is not {want} ± {tolerance}");
}

/// The cards of the table "Consequences": command of 512 KiB in ms, streams in MB/s, random 4 KiB reads and writes
/// inside open units in IOPS, a 4 KiB write that evicts an almost empty unit in ms.
const CONSEQUENCES: [(&str, f64, f64, f64, f64, f64, f64); 3] = [
    ("slow2018", 81.9, 6.3, 17.7, 815.0, 193.0, 177.0),
    ("cheap", 67.3, 7.6, 14.7, 636.0, 132.0, 221.0),
    ("a1", 29.6, 17.5, 44.3, 1919.0, 636.0, 74.0),
];

#[test]
fn a_write_command_of_512_kib_takes_what_the_table_says() {
    for (name, want, ..) in CONSEQUENCES {
        let mut t = calm(name);
        t.write(0, 1024);
        near(ms(t.write(1024, 1024).total), want, 0.06);
    }
}

/// The long-run cost of pauses per write, in ms: probability × mean of a log-uniform pause. The table's figures for
/// many writes hold it.
fn mean_stall(t: &Timing, name: &str) -> f64 {
    let (p, min, max) = (Profile::named(name).unwrap().stall_p, t.profile().stall_min, t.profile().stall_max);
    p * (ms(max) - ms(min)) / (ms(max) / ms(min)).ln()
}

#[test]
fn streams_run_at_the_rates_of_the_table() {
    for (name, _, write, read, ..) in CONSEQUENCES {
        let mut t = calm(name);
        let open = t.profile().open as u64;
        for i in 0..open {
            t.write(i * 8192, 8192);
        }
        // Steady state: each new unit closes a full one.
        let each: Vec<f64> = (0..16).map(|i| ms(t.write(open * 8192 + i * 1024, 1024).total)).collect();
        let spent: f64 = each.iter().sum::<f64>() + 16.0 * mean_stall(&t, name);
        near(16.0 * 524.288 / spent, write, 0.051);
        let spent: f64 = (0..16).map(|i| ms(t.read(i * 1024, 1024).total)).skip(1).sum();
        near(15.0 * 524.288 / spent, read, 0.051);
    }
}

#[test]
fn random_requests_run_at_the_iops_of_the_table() {
    for (name, _, _, _, read, write, evict) in CONSEQUENCES {
        let mut t = calm(name);
        t.write(0, 8);
        near(1000.0 / ms(t.read(5000, 8).total), read, 1.0);
        let inside = t.write(5000, 8);
        near(1000.0 / (ms(inside.total) + mean_stall(&t, name)), write, 0.6);
        assert_eq!(inside.merge, Duration::ZERO);

        // Fill the open set with units of one small write each; the next one evicts the first of them.
        let mut t = calm(name);
        let open = t.profile().open as u64;
        for i in 0..open {
            t.write(i * 8192 + 64, 8);
        }
        let s = t.write(open * 8192 + 64, 8);
        near(ms(s.total), evict, 0.6);
        assert_eq!(t.stats().merges, 1);
        assert_eq!(t.stats().merge_time, s.merge);
    }
}

#[test]
fn the_unit_written_longest_ago_is_evicted_and_a_full_one_costs_no_copy() {
    let mut t = Timing::new(Profile { open: 2, stall_p: 0.0, ..Profile::slow2018() }, 0);
    t.write(0, 8192); // unit 0, full
    t.write(8192, 8); // unit 1, eight sectors
    t.write(0, 8); // unit 0 again: unit 1 is now the oldest
    let s = t.write(2 * 8192, 8);
    assert_eq!(s.merge, Duration::from_nanos((8192 - 8) * 512 * 40) + Duration::from_millis(5));
    let s = t.write(8192, 8); // evicts unit 0, every sector of which was written
    assert_eq!(s.merge, Duration::from_millis(5));
}

#[test]
fn a_write_across_a_border_is_two_pieces() {
    let mut t = calm("slow2018");
    let whole = t.write(8192 - 8, 16).total;
    let cmd_rand_seq = Duration::from_micros(2 * 250 + 4000 + 1000);
    assert_eq!(whole, cmd_rand_seq + Duration::from_nanos(2 * 630_154));
}

#[test]
fn a_read_continues_only_the_read_just_before() {
    let mut t = calm("slow2018");
    t.read(100, 8);
    assert_eq!(t.read(108, 8).total, Duration::from_nanos(500_000 + 227_556));
    t.write(500, 8);
    assert_eq!(t.read(116, 8).total, Duration::from_nanos(1_000_000 + 227_556));
}

/// `tests/data/bv510-mq.device.txt`: `op sector sectors service_us merge_us stall_us` of all 2,972 data commands of
/// one bonnie++ run of a real kernel on the emulated card that `slow2018` describes.
#[test]
fn the_log_of_a_real_run_is_reproduced_command_by_command() {
    let mut t = calm("slow2018");
    let (mut commands, mut close) = (0, 0);
    for line in include_str!("data/bv510-mq.device.txt").lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split(' ').collect();
        let [sector, sectors, service, merge, stall] = [1, 2, 3, 4, 5].map(|i| f[i].parse::<u64>().unwrap());
        let s = if f[0] == "R" { t.read(sector, sectors) } else { t.write(sector, sectors) };
        let (want, got) = ((service - stall) as f64, s.total.as_nanos() as f64 / 1e3);
        commands += 1;
        let merge_fits = (s.merge.as_micros().abs_diff(merge)) <= 1;
        close += u32::from((got - want).abs() <= want * 0.01 && merge_fits);
    }
    assert_eq!((commands, close), (2972, 2972), "every command to within 1 %, every merge to within 1 µs");
}

#[test]
fn pauses_come_as_often_and_last_as_long_as_the_profile_says() {
    let p = Profile::slow2018();
    let (min, max) = (p.stall_min, p.stall_max);
    let mut t = Timing::new(p, 2018);
    let mut stalls = Vec::new();
    for i in 0..200_000_u64 {
        let s = t.write((i % 512) * 16, 16);
        if s.stall != Duration::ZERO {
            assert!(min <= s.stall && s.stall <= max, "{}", s.stall);
            stalls.push(s.stall);
        }
    }
    // 400 expected; five standard deviations are 100.
    assert!((300..=500).contains(&stalls.len()), "{} pauses", stalls.len());
    stalls.sort_unstable();
    // Log-uniform: the median is the geometric mean, 126.5 ms.
    near(ms(stalls[stalls.len() / 2]), 126.5, 25.0);
    assert_eq!(t.stats().stalls, stalls.len() as u64);
}

#[test]
fn the_same_seed_gives_the_same_card_and_another_seed_another() {
    let run = |seed| {
        let mut t = Timing::new(Profile::cheap(), seed);
        (0..5000).map(|i| t.write(i * 64, 64).total).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

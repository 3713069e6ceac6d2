//! `mmc-time`: all arithmetic.
#![no_std]
#![no_main]
use mmc_time::{Duration, Extend32, Instant};
use no_panic::sink;

fn main() {
    let (mut t, d) = (Instant::from_nanos(sink(1)), Duration::from_secs(sink(2)));
    t += d;
    sink((t + d, t - d, t - sink(Instant::NEVER), t.since(sink(t)), t.is_never()));
    sink((d + d, d - d, d.saturating_mul(sink(3)), d.as_micros(), d.as_millis()));
    sink((Instant::from_micros(sink(1)), Instant::from_millis(sink(1)), Instant::from_secs(sink(1))));
    sink(Extend32::new().ticks(sink(5)));
}
no_panic::program!(main);

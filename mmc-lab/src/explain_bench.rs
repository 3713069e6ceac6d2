//! How many events a second `explain` reads: text of ftrace, made on the way, read and analysed.
//!
//! It is not a comparison of machines: it prints the processor time of this one.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::analysis::Options;
use crate::cli::explain::explain_input;
use crate::report::pages::explain::render;

/// Text made at a time.
const CHUNK: usize = 1 << 20;
/// Requests in flight in the text: as many as a full queue of tags.
const DEPTH: u64 = 128;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Bytes of text.
    pub bytes: u64,
    /// Block events in it.
    pub events: u64,
    /// Time of the processor for reading and analysing, without making the text.
    pub busy: Duration,
    /// Time of the processor for the page, and its bytes, if one was made.
    pub page: Option<(Duration, usize)>,
    /// Most memory that the program had, where the system tells.
    pub memory: Option<u64>,
}

/// A trace that never was: a flusher's 512 KiB writes, a journal and a reader, [`DEPTH`] requests in flight, a request
/// completed every 10 ms.
#[derive(Debug)]
struct Made {
    text: Vec<u8>,
    at: usize,
    left: u64,
    next: u64,
    events: u64,
    making: Duration,
}

/// Processor time of this thread, or the clock where the system does not tell.
fn busy() -> Duration {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = told.and_then(|text| text.split(' ').next()?.parse().ok());
    ns.map_or_else(|| BEGAN.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

impl Made {
    /// The events of request number `n` that begins, and of the one that ends then.
    fn request(&mut self, out: &mut String, n: u64) {
        let place = |n: u64| match n % 8 {
            0 => ("jbd2/mmcblk0-8", 83, "WS", 3_932_160 + n % 4096 * 8, 8),
            1 => ("fio", 165, "R", n * 7919 % 60_000 * 64 + 4_000_000, 8),
            _ => ("kworker/u2:0", 7, "W", n % 3500 * 1024, 1024_u64),
        };
        let us = n * 10_000;
        let (s, us) = (us / 1_000_000, us % 1_000_000);
        let (task, pid, rwbs, sector, sectors) = place(n);
        let bytes = sectors * 512;
        let _ = writeln!(
            out,
            "{task:>16}-{pid:<7} [000] ....  {s:>5}.{us:06}: block_bio_queue: 179,0 {rwbs} {sector} + {sectors} [{task}]"
        );
        let _ = writeln!(
            out,
            "{task:>16}-{pid:<7} [000] ....  {s:>5}.{:06}: block_getrq: 179,0 {rwbs} {sector} + {sectors} [{task}]",
            us + 2
        );
        let _ = writeln!(
            out,
            "{task:>16}-{pid:<7} [000] ....  {s:>5}.{:06}: block_rq_insert: 179,0 {rwbs} {bytes} () {sector} + {sectors} be,0,4 [{task}]",
            us + 4
        );
        self.events += 3;
        if let Some(n) = n.checked_sub(DEPTH) {
            let (_, _, rwbs, sector, sectors) = place(n);
            let bytes = sectors * 512;
            let _ = writeln!(
                out,
                "    kworker/0:1H-45      [000] ....  {s:>5}.{:06}: block_rq_issue: 179,0 {rwbs} {bytes} () {sector} + {sectors} be,0,4 [kworker/0:1H]",
                us + 6
            );
            let _ = writeln!(
                out,
                "     ksoftirqd/0-11      [000] ..s.  {s:>5}.{:06}: block_rq_complete: 179,0 {rwbs} () {sector} + {sectors} be,0,4 [0]",
                us + 8
            );
            self.events += 2;
        }
    }

    fn make(&mut self) {
        let began = busy();
        let mut out = String::with_capacity(CHUNK + 4096);
        while out.len() < CHUNK && (out.len() as u64) < self.left {
            let n = self.next;
            self.request(&mut out, n);
            self.next += 1;
        }
        self.left = self.left.saturating_sub(out.len() as u64);
        (self.text, self.at) = (out.into_bytes(), 0);
        self.making += busy().saturating_sub(began);
    }
}

impl Read for Made {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let n = from.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..n), from.get(..n)) {
            to.copy_from_slice(from);
        }
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Made {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.text.len() && self.left > 0 {
            self.make();
        }
        Ok(self.text.get(self.at..).unwrap_or_default())
    }
    fn consume(&mut self, n: usize) {
        self.at += n;
    }
}

/// Explains `bytes` of text; with `page` makes the page, too (what its pictures need is then part of the analysis).
///
/// # Errors
/// One line, if the text is not taken for a trace: a defect.
pub fn measure(bytes: u64, page: bool) -> Result<Measured, String> {
    let mut made = Made { text: Vec::new(), at: 0, left: bytes, next: 0, events: 0, making: Duration::ZERO };
    let began = busy();
    let found = explain_input(&mut made, "the made trace", Options::default(), page);
    let found = found.map_err(|e| e.to_string())?;
    let busy = busy().saturating_sub(began).saturating_sub(made.making);
    if found.events != made.events || found.report.unmatched > 0 {
        return Err(format!("{} of {} made events were read", found.events, made.events));
    }
    let began = self::busy();
    let page = page.then(|| render(&found, Path::new("made.txt")).len());
    let page = page.map(|bytes| (self::busy().saturating_sub(began), bytes));
    Ok(Measured { bytes, events: made.events, busy, page, memory: memory() })
}

/// The high-water mark of this program's memory.
fn memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_that_is_made_is_explained() {
        let measured = measure(3 << 20, false).unwrap();
        assert!(measured.events > 25_000 && measured.busy > Duration::ZERO, "{measured:?}");
        assert!(measured.page.is_none());
    }

    #[test]
    fn a_page_does_not_grow_with_the_trace() {
        let page = |bytes| measure(bytes, true).unwrap().page.unwrap().1;
        let (small, large) = (page(2 << 20), page(8 << 20));
        assert!(small > 40_000 && large < 2 * small, "{small} {large}");
    }
}

//! Service times out of a log of the card itself, or out of a trace of the block layer.

use super::Op;
use crate::trace::ftrace::Parser;
use crate::trace::model::{Event, Kind, Line};
use crate::trace::order::Ordered;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Read};

/// Why there are no service times.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadLog {
    /// Reading failed.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// A line of a device log is not one.
    #[error(
        "line {line}, field {field}: `{text}` is no number that can be; a device log has `t_us R|W sector sectors service_us`"
    )]
    Field {
        /// From 1.
        line: u64,
        /// Its name.
        field: &'static str,
        /// What is there.
        text: String,
    },
    /// There are none in it.
    #[error(
        "no data command in it; a device log has lines `t_us R|W sector sectors service_us`, a trace of the block \
             layer has block_rq_issue and block_rq_complete"
    )]
    Empty,
}

/// Longest line in bytes.
const LONGEST: u64 = 1 << 16;
/// No host sends more sectors in a command (32 MiB); a number above is a slip, and would take for ever to be fitted.
const MOST_SECTORS: u32 = 1 << 16;

/// Reads a device log (`t_us R|W sector sectors service_us …`, `#` begins a comment) or the text of ftrace; which of
/// the two, its lines say.
///
/// In a trace, whose lines may be out of order as far as [`Ordered`] mends that, the service of a request runs from its issue, or the completion before it if that is later, to its
/// completion: the time of the wire and of the host is in it.
///
/// # Errors
/// [`BadLog`] for a line of a device log that is wrong, and when there is no data command.
pub fn read(input: &mut dyn BufRead) -> Result<Vec<Op>, BadLog> {
    let (mut ops, mut parser, mut trace) = (Vec::new(), Parser::default(), Trace::default());
    let mut order = Ordered::default();
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if input.take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        number += 1;
        let text = String::from_utf8_lossy(&line);
        let fields: Vec<&str> = text.split_whitespace().collect();
        if let [at, what @ ("R" | "W"), rest @ ..] = fields.as_slice()
            && at.bytes().all(|b| b.is_ascii_digit())
        {
            ops.extend(device_line(number, *what == "R", rest)?);
        } else if let Line::Event(event) = parser.line(&line) {
            order.put(event);
            trace.events(&mut order);
        }
    }
    order.end();
    trace.events(&mut order);
    if ops.is_empty() {
        ops = trace.busiest();
    }
    if ops.is_empty() { Err(BadLog::Empty) } else { Ok(ops) }
}

fn device_line(line: u64, read: bool, fields: &[&str]) -> Result<Option<Op>, BadLog> {
    let number = |i: usize, field| {
        let text = fields.get(i).copied().unwrap_or_default();
        text.parse::<u64>().map_err(|_| BadLog::Field { line, field, text: text.to_owned() })
    };
    let (sector, sectors, service) = (number(0, "sector")?, number(1, "sectors")?, number(2, "service_us")?);
    let too_many = || BadLog::Field { line, field: "sectors", text: sectors.to_string() };
    let sectors = u32::try_from(sectors).ok().filter(|&n| n <= MOST_SECTORS).ok_or_else(too_many)?;
    Ok((sectors > 0).then_some(Op { read, sector, sectors, service_us: service as f64 }))
}

/// Requests of one device.
#[derive(Debug, Default)]
struct Device {
    issued: HashMap<u64, (u64, bool, u32)>,
    last: u64,
    ops: Vec<Op>,
}

#[derive(Debug, Default)]
struct Trace(BTreeMap<(u32, u32), Device>);

impl Trace {
    fn events(&mut self, order: &mut Ordered) {
        while let Some(event) = order.due() {
            self.event(event);
            order.pop();
        }
    }
    fn event(&mut self, e: &Event) {
        let Some(read) = e.rwbs.chars().find_map(|c| match c {
            'R' => Some(true),
            'W' => Some(false),
            _ => None,
        }) else {
            return;
        };
        let device = self.0.entry(e.dev).or_default();
        match e.kind {
            Kind::Issue if e.sectors > 0 => {
                device.issued.insert(e.sector, (e.at, read, e.sectors));
            }
            Kind::Requeue => {
                device.issued.remove(&e.sector);
            }
            Kind::Complete => {
                if let Some((at, read, sectors)) = device.issued.remove(&e.sector)
                    && e.sectors == sectors
                    && sectors <= MOST_SECTORS
                {
                    let service_us = e.at.saturating_sub(at.max(device.last)) as f64 / 1e3;
                    device.ops.push(Op { read, sector: e.sector, sectors, service_us });
                }
                device.last = e.at;
            }
            _ => {}
        }
    }
    fn busiest(self) -> Vec<Op> {
        self.0.into_values().map(|d| d.ops).max_by_key(Vec::len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(text: &str) -> Vec<(bool, u64, u32, f64)> {
        let ops = read(&mut text.as_bytes()).unwrap();
        ops.into_iter().map(|op| (op.read, op.sector, op.sectors, op.service_us)).collect()
    }
    /// A line of ftrace: when in us, what, the rest.
    fn line(us: u64, what: &str, rest: &str) -> String {
        format!("  fio-228     [000] .....   1.{us:06}: block_rq_{what}: {rest}\n")
    }

    #[test]
    fn a_service_runs_from_the_issue_or_the_completion_before_it() {
        let text = line(100, "issue", "179,0 W 4096 () 8 + 8 be,0,4 [fio]")
            + &line(110, "issue", "179,0 R 4096 () 96 + 16 be,0,4 [fio]")
            + &line(150, "complete", "179,0 W () 8 + 8 be,0,4 [0]")
            + &line(175, "complete", "179,0 R () 96 + 16 be,0,4 [0]")
            + &line(200, "issue", "179,0 R 4096 () 112 + 8 be,0,4 [fio]")
            + &line(203, "complete", "179,0 R () 112 + 8 be,0,4 [0]");
        assert_eq!(ops(&text), [(false, 8, 8, 50.0), (true, 96, 16, 25.0), (true, 112, 8, 3.0)]);
    }

    #[test]
    fn what_was_given_back_is_counted_from_its_second_issue_and_what_never_came_back_not_at_all() {
        let issue = |us| line(us, "issue", "179,0 W 4096 () 8 + 8 be,0,4 [fio]");
        let complete = |us| line(us, "complete", "179,0 W () 8 + 8 be,0,4 [0]");
        let requeue = |us| line(us, "requeue", "179,0 W () 8 + 8 be,0,4 [0]");
        let other = line(1, "issue", "179,0 R 4096 () 96 + 16 be,0,4 [fio]")
            + &line(2, "complete", "179,0 R () 96 + 16 be,0,4 [0]");
        let is = |text: String, expected: &[(bool, u64, u32, f64)]| {
            let mut all = vec![(true, 96, 16, 1.0)];
            all.extend(expected);
            assert_eq!(ops(&(other.clone() + &text)), all, "{text}");
        };
        is(issue(100) + &requeue(120) + &issue(140) + &complete(150), &[(false, 8, 8, 10.0)]);
        // Nothing was out, or something else was.
        is(issue(100) + &requeue(120) + &complete(150), &[]);
        is(complete(150), &[]);
        is(issue(100) + &line(150, "complete", "179,0 W () 8 + 4 be,0,4 [0]"), &[]);
        // Neither a flush nor a discard moves data; a request longer than any command is a slip.
        is(
            line(100, "issue", "179,0 W 0 () 8 + 0 be,0,4 [fio]")
                + &line(150, "complete", "179,0 W () 8 + 0 be,0,4 [0]"),
            &[],
        );
        is(
            line(100, "issue", "179,0 D 4096 () 8 + 8 be,0,4 [fio]")
                + &line(150, "complete", "179,0 D () 8 + 8 be,0,4 [0]"),
            &[],
        );
        let long = |n: u32| {
            line(100, "issue", &format!("179,0 W 4096 () 8 + {n} be,0,4 [fio]"))
                + &line(150, "complete", &format!("179,0 W () 8 + {n} be,0,4 [0]"))
        };
        is(long(MOST_SECTORS), &[(false, 8, MOST_SECTORS, 50.0)]);
        is(long(MOST_SECTORS + 1), &[]);
    }

    #[test]
    fn of_several_devices_the_busiest_is_taken() {
        let one = line(100, "issue", "8,0 W 4096 () 8 + 8 be,0,4 [fio]")
            + &line(150, "complete", "8,0 W () 8 + 8 be,0,4 [0]");
        let two = |us| {
            line(us, "issue", "179,0 R 4096 () 8 + 8 be,0,4 [fio]")
                + &line(us + 7, "complete", "179,0 R () 8 + 8 be,0,4 [0]")
        };
        assert_eq!(ops(&(one + &two(200) + &two(300))), [(true, 8, 8, 7.0), (true, 8, 8, 7.0)]);
    }

    #[test]
    fn a_device_log_is_read_line_by_line_and_a_wrong_field_is_named() {
        assert_eq!(
            ops("# a comment\n10 R 1 2 3 more\n20 W 4 65536 6\n30 W 7 0 9\n"),
            [(true, 1, 2, 3.0), (false, 4, 65_536, 6.0)]
        );
        for (text, line, field) in [
            ("1 R x 8 3\n", 1, "sector"),
            ("1 R 1 8 3\n2 W 1 -8 3\n", 2, "sectors"),
            ("1 R 1 65537 3\n", 1, "sectors"),
            ("1 R 1 4294967304 3\n", 1, "sectors"),
            ("\n\n1 W 1 8 slow\n", 3, "service_us"),
            ("1 W 1 8\n", 1, "service_us"),
        ] {
            let error = read(&mut text.as_bytes()).unwrap_err();
            assert!(
                matches!(error, BadLog::Field { line: l, field: f, .. } if (l, f) == (line, field)),
                "{text}: {error}"
            );
        }
        for text in ["", "1 X 1 8 3\n", "now R 1 8 3\n", "1 R 1 0 3\n"] {
            assert!(matches!(read(&mut text.as_bytes()), Err(BadLog::Empty)), "{text}");
        }
    }
}

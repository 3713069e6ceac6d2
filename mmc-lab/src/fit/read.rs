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

//! Block-layer traces: the event model every reader fills and every analysis reads.

mod blkparse;
mod blktrace;
pub mod ftrace;
pub mod model;
pub mod order;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

use model::Line;

/// Bytes read at a time.
const CHUNK: usize = 1 << 16;
/// No machine that records a card has more.
const MOST_CPUS: u32 = 1024;

/// The first bytes of what gzip and zstd pack.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens a trace, plain, gzip or zstd (told apart by their first bytes, not by their name).
///
/// # Errors
/// What the system says when the file cannot be opened or read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    plain(BufReader::with_capacity(CHUNK, File::open(path)?))
}

/// What `input` holds, unpacked if it is gzip or zstd.
///
/// # Errors
/// What `input` says at its first read.
pub fn plain<R: BufRead + 'static>(mut input: R) -> io::Result<Box<dyn BufRead>> {
    let (magic, whole) =
        first_four(&mut input).map(|magic| (magic.clone(), io::Cursor::new(magic).chain(input)))?;
    Ok(if magic.starts_with(&GZIP) {
        Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(whole)))
    } else if magic.starts_with(&ZSTD) {
        let decoder = StreamingDecoder::new(whole).map_err(io::Error::other)?;
        Box::new(BufReader::with_capacity(CHUNK, decoder))
    } else {
        Box::new(whole)
    })
}

/// The first read of a pipe may bring a single byte, so the magic is read, to be put back in front.
fn first_four(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut magic = Vec::with_capacity(4);
    input.take(4).read_to_end(&mut magic)?;
    Ok(magic)
}

/// Reads a whole trace, whatever tool wrote it (ftrace, trace-cmd, perf, blkparse, blktrace), and gives `each` what its
/// lines or records hold, comments and empty lines too. Memory: one line, and the names of tasks.
///
/// # Errors
/// What the input says, at whatever point: all before it has been given.
pub fn read(input: &mut dyn BufRead, mut each: impl FnMut(Line)) -> io::Result<()> {
    let magic = first_four(input)?;
    let order = blktrace::order(&magic);
    let mut whole = io::Cursor::new(magic).chain(input);
    match order {
        None => ftrace::read(&mut whole, each),
        Some(order) => {
            let mut reader = blktrace::Reader::new(order);
            while let Some(line) = reader.next(&mut whole)? {
                each(line);
            }
            Ok(())
        }
    }
}

/// Reads the trace at `path`. Of a file `NAME.blktrace.N` (one CPU's) all of its siblings are read, in the order of their
/// stamps; their number is returned (1 for all others).
///
/// # Errors
/// What the system says; all before it has been given.
pub fn read_file(path: &Path, mut each: impl FnMut(Line)) -> io::Result<usize> {
    let files = siblings(path);
    if files.len() < 2 {
        read(&mut *open(path)?, each)?;
        return Ok(1);
    }
    let mut inputs = Vec::new();
    for file in &files {
        let mut input = open(file)?;
        let magic = first_four(&mut input)?;
        if let Some(order) = blktrace::order(&magic) {
            let whole = BufReader::with_capacity(CHUNK, io::Cursor::new(magic).chain(input));
            inputs.push((blktrace::Reader::new(order), whole));
        } else if !magic.is_empty() {
            each(Line::Odd);
        }
    }
    loop {
        let mut first: Option<(u64, usize)> = None;
        for (i, (reader, input)) in inputs.iter_mut().enumerate() {
            if let Some(at) = reader.peek(input)? {
                first = Some(first.map_or((at, i), |f| f.min((at, i))));
            }
        }
        let Some((reader, input)) = first.and_then(|(_, i)| inputs.get_mut(i)) else {
            return Ok(files.len());
        };
        if let Some(line) = reader.next(input)? {
            each(line);
        }
    }
}

/// `seconds.fraction` in nanoseconds.
pub(crate) fn stamp(text: &str) -> Option<u64> {
    ftrace::stamp(text.as_bytes())
}

/// The files of all CPUs of the trace that `path` is one CPU's file of, itself included.
fn siblings(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let Some((stem, cpu)) = name.rsplit_once(".blktrace.") else { return Vec::new() };
    let (cpu, end) = cpu.split_at(cpu.find('.').unwrap_or(cpu.len()));
    if cpu.is_empty() || !cpu.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    (0..MOST_CPUS)
        .map(|n| path.with_file_name(format!("{stem}.blktrace.{n}{end}")))
        .filter(|file| file.is_file())
        .collect()
}

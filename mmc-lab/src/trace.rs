//! Block-layer traces: the event model every reader fills and every analysis reads.

pub mod ftrace;
pub mod model;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

/// Bytes read at a time.
const CHUNK: usize = 1 << 16;

/// Opens a trace, plain or gzip (told apart by their first bytes, not by their name).
///
/// # Errors
/// What the system says when the file cannot be opened or read.
pub fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    plain(BufReader::with_capacity(CHUNK, File::open(path)?))
}

/// What `input` holds, unpacked if it is gzip.
///
/// # Errors
/// What `input` says at its first read.
pub fn plain<R: BufRead + 'static>(mut input: R) -> io::Result<Box<dyn BufRead>> {
    // The first read of a pipe may bring a single byte, so the magic is read and put back in front.
    let mut magic = Vec::with_capacity(2);
    input.by_ref().take(2).read_to_end(&mut magic)?;
    let is_gzip = magic == [0x1f, 0x8b];
    let whole = io::Cursor::new(magic).chain(input);
    Ok(if is_gzip {
        Box::new(BufReader::with_capacity(CHUNK, MultiGzDecoder::new(whole)))
    } else {
        Box::new(whole)
    })
}

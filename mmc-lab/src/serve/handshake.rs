//! The fixed newstyle handshake, the server's side of it.
//!
//! The protocol is `doc/proto.md` of github.com/NetworkBlockDevice/nbd ("Handshake phase"). There is one export; its name
//! is empty. No TLS, no structured replies, no contexts: asked for, they are refused and the client goes on without.

use super::wire::{Export, MAX_PAYLOAD};
use std::io::{self, Read, Write};

/// What client and server begin with.
pub const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// What an option begins with.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// What the reply to an option begins with.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Handshake flags, of server and client: fixed newstyle, and no 124 zeroes after [`EXPORT_NAME`].
pub const FIXED_NEWSTYLE: u16 = 1;
/// See [`FIXED_NEWSTYLE`].
pub const NO_ZEROES: u16 = 2;

/// Options.
pub const EXPORT_NAME: u32 = 1;
/// The client goes.
pub const ABORT: u32 = 2;
/// Which exports are there?
pub const LIST: u32 = 3;
/// What is this export like?
pub const INFO: u32 = 6;
/// The same, and begin.
pub const GO: u32 = 7;

/// Replies to options.
pub const ACK: u32 = 1;
/// An export of the list.
pub const SERVER: u32 = 2;
/// A piece of information.
pub const INFORMATION: u32 = 3;
/// Not known here.
pub const ERR_UNSUP: u32 = 1 << 31 | 1;
/// The option's data make no sense.
pub const ERR_INVALID: u32 = 1 << 31 | 3;
/// No such export.
pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
/// The option's data are too long.
pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;

/// Information: size and flags.
pub const INFO_EXPORT: u16 = 0;
/// Information: a line for people.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information: least, best and largest block.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// More options than this and the client only wants to keep us busy.
const MAX_OPTIONS: usize = 64;
/// Longest data of an option that is looked at: a name of 4096 bytes and what belongs to it.
const MAX_OPTION: u32 = 8192;
/// Longest data that are read over; behind that the client is cut off.
const MAX_SKIP: u32 = 1 << 20;

/// How a handshake ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Requests follow.
    Transmission,
    /// The client only looked.
    Gone,
}

/// How it did not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The client, or the line to it, is gone, or too slow.
    #[error("in the handshake: {0}")]
    Io(#[from] io::Error),
    /// It speaks something else.
    #[error("in the handshake: {0}")]
    Client(String),
}

fn client(what: impl Into<String>) -> Failure {
    Failure::Client(what.into())
}

/// Reads a number of `N` bytes.
fn number<const N: usize>(stream: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn answer(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut out = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    // Ours are short.
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
    stream.write_all(&out)
}

/// Says hello and answers options until the client begins, goes, or breaks the rules. Time limits are the stream's. `begins` is
/// called before the client hears that it may begin.
///
/// # Errors
/// [`Failure`]: close the connection; others are not concerned.
pub fn negotiate(
    stream: &mut (impl Read + Write),
    export: &Export,
    description: &str,
    mut begins: impl FnMut(),
) -> Result<Outcome, Failure> {
    let mut hello = NBD_MAGIC.to_be_bytes().to_vec();
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    stream.write_all(&hello)?;
    let flags = number::<4>(stream)?;
    if flags & !u64::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(client(format!("client flags {flags:#x}; known are 1 and 2")));
    }
    let fixed = flags & u64::from(FIXED_NEWSTYLE) != 0;
    for _ in 0..MAX_OPTIONS {
        let magic = number::<8>(stream)?;
        if magic != OPTION_MAGIC {
            return Err(client(format!("{magic:#018x} where an option begins with {OPTION_MAGIC:#018x}")));
        }
        // Four bytes each.
        let (option, length) = (number::<4>(stream)? as u32, number::<4>(stream)? as u32);
        if !fixed && option != EXPORT_NAME {
            return Err(client(format!("option {option} of a client that does not know the fixed newstyle")));
        }
        if length > MAX_SKIP {
            return Err(client(format!("option {option} with {length} bytes")));
        }
        if length > MAX_OPTION {
            if option == EXPORT_NAME {
                return Err(client(format!("an export name of {length} bytes")));
            }
            io::copy(&mut Read::take(&mut *stream, length.into()), &mut io::sink())?;
            answer(stream, option, ERR_TOO_BIG, b"too long")?;
            continue;
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match option {
            EXPORT_NAME => {
                if !data.is_empty() {
                    return Err(client(no_export(&data)));
                }
                let mut out = export.size.to_be_bytes().to_vec();
                out.extend(export.flags().to_be_bytes());
                if flags & u64::from(NO_ZEROES) == 0 {
                    out.extend([0; 124]);
                }
                begins();
                stream.write_all(&out)?;
                return Ok(Outcome::Transmission);
            }
            ABORT => {
                // It may have gone without waiting for this.
                let _ = answer(stream, option, ACK, &[]);
                return Ok(Outcome::Gone);
            }
            LIST if data.is_empty() => {
                answer(stream, option, SERVER, &0_u32.to_be_bytes())?;
                answer(stream, option, ACK, &[])?;
            }
            INFO | GO => match wanted(&data) {
                None => answer(stream, option, ERR_INVALID, b"name and requests do not fit the length")?,
                Some((name, _)) if !name.is_empty() => {
                    answer(stream, option, ERR_UNKNOWN, no_export(name).as_bytes())?;
                }
                Some((_, kinds)) => {
                    let mut told = INFO_EXPORT.to_be_bytes().to_vec();
                    told.extend(export.size.to_be_bytes());
                    told.extend(export.flags().to_be_bytes());
                    answer(stream, option, INFORMATION, &told)?;
                    if kinds.contains(&INFO_DESCRIPTION) {
                        let mut told = INFO_DESCRIPTION.to_be_bytes().to_vec();
                        told.extend(description.bytes().take(4096));
                        answer(stream, option, INFORMATION, &told)?;
                    }
                    // Also for those who did not ask: a client that does not know it passes over it.
                    let mut told = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                    for size in [export.min_block, export.min_block.max(4096), MAX_PAYLOAD] {
                        told.extend(size.to_be_bytes());
                    }
                    answer(stream, option, INFORMATION, &told)?;
                    if option == GO {
                        begins();
                    }
                    answer(stream, option, ACK, &[])?;
                    if option == GO {
                        return Ok(Outcome::Transmission);
                    }
                }
            },
            LIST => answer(stream, option, ERR_INVALID, b"LIST has no data")?,
            _ => answer(stream, option, ERR_UNSUP, &[])?,
        }
    }
    Err(client(format!("more than {MAX_OPTIONS} options and no beginning")))
}

fn no_export(name: &[u8]) -> String {
    let name: String = String::from_utf8_lossy(name).chars().take(64).collect();
    format!("no export is called {name:?}; there is one, and its name is empty")
}

/// Name and information requests of INFO and GO; `None`: they do not fit.
fn wanted(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let (kinds, odd) = rest.as_chunks::<2>();
    let fits = odd.is_empty() && kinds.len() == usize::from(u16::from_be_bytes(*count));
    fits.then(|| (name, kinds.iter().map(|k| u16::from_be_bytes(*k)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPORT: Export = Export { size: 1 << 30, min_block: 512, read_only: false };

    /// A client that has said all it will ever say.
    struct Script<'a> {
        says: &'a [u8],
        heard: Vec<u8>,
    }
    impl Read for Script<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.says.read(to)
        }
    }
    impl Write for Script<'_> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.heard.extend(from);
            Ok(from.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// How it ended, what was heard, and what was not read.
    fn meet(says: &[u8]) -> (Result<Outcome, String>, Vec<u8>, usize) {
        let (mut s, mut begun) = (Script { says, heard: Vec::new() }, 0);
        let ended = negotiate(&mut s, &EXPORT, "a card", || begun += 1).map_err(|e| e.to_string());
        assert_eq!(begun, u8::from(matches!(ended, Ok(Outcome::Transmission))), "{ended:?}");
        (ended, s.heard, s.says.len())
    }

    fn option(number: u32, data: &[u8]) -> Vec<u8> {
        let mut out = OPTION_MAGIC.to_be_bytes().to_vec();
        out.extend(number.to_be_bytes());
        out.extend((data.len() as u32).to_be_bytes());
        out.extend(data);
        out
    }

    /// The kinds of the replies to options.
    fn kinds(heard: &[u8]) -> Vec<u32> {
        let mut rest = &heard[18..];
        let mut kinds = Vec::new();
        while let Some((head, more)) = rest.split_first_chunk::<20>() {
            assert_eq!(head[..8], OPTION_REPLY_MAGIC.to_be_bytes());
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            kinds.push(word(12));
            rest = &more[word(16) as usize..];
        }
        kinds
    }

    const FIXED: [u8; 4] = [0, 0, 0, 3];

    #[test]
    fn a_client_asks_for_what_is_not_there_and_goes_on() {
        let go = option(GO, &[0, 0, 0, 0, 0, 1, 0, 3]);
        let says = [&FIXED[..], &option(8, &[]), &option(5, &[]), &option(LIST, &[]), &go, &[1, 2]].concat();
        let (ended, heard, left) = meet(&says);
        assert_eq!((ended, left), (Ok(Outcome::Transmission), 2), "what follows is not the handshake's");
        assert_eq!(kinds(&heard), [ERR_UNSUP, ERR_UNSUP, SERVER, ACK, INFORMATION, INFORMATION, ACK]);
        assert_eq!(heard[..8], NBD_MAGIC.to_be_bytes());
    }

    #[test]
    fn the_oldest_way_in_has_124_zeroes_unless_they_were_waived() {
        let (ended, heard, _) = meet(&[&[0; 4][..], &option(EXPORT_NAME, &[])].concat());
        assert_eq!((ended, heard.len()), (Ok(Outcome::Transmission), 18 + 10 + 124));
        let (_, heard, _) = meet(&[&FIXED[..], &option(EXPORT_NAME, &[])].concat());
        assert_eq!(heard.len(), 18 + 10);
        assert_eq!(heard[18..26], (1_u64 << 30).to_be_bytes());
    }

    #[test]
    fn clients_that_break_the_rules_are_told_or_cut_off() {
        for (says, why) in [
            (vec![0, 0, 0, 4], "client flags 0x4"),
            ([&FIXED[..], b"GET / HTTP/1.1\r\n"].concat(), "where an option begins"),
            ([&FIXED[..], &option(EXPORT_NAME, b"sda")].concat(), "no export is called \"sda\""),
            ([&[0; 4][..], &option(LIST, &[])].concat(), "fixed newstyle"),
            (
                [&FIXED[..], &OPTION_MAGIC.to_be_bytes(), &[0, 0, 0, 7, 255, 255, 255, 255]].concat(),
                "4294967295 bytes",
            ),
            (FIXED.to_vec(), "fill whole buffer"),
        ] {
            let (ended, _, _) = meet(&says);
            assert!(ended.as_ref().is_err_and(|e| e.contains(why)), "{why}: {ended:?}");
        }
        let says = [
            &FIXED[..],
            &option(GO, b"\0\0\0\x03sda\0\0"),
            &option(GO, b"\0\0\0\x09sda\0\0"),
            &option(77, &[7; 9000]),
            &option(ABORT, &[]),
        ]
        .concat();
        let (ended, heard, _) = meet(&says);
        assert_eq!(ended, Ok(Outcome::Gone));
        assert_eq!(kinds(&heard), [ERR_UNKNOWN, ERR_INVALID, ERR_TOO_BIG, ACK]);
        let flood = [&FIXED[..], &option(LIST, &[]).repeat(1000)].concat();
        let (ended, heard, _) = meet(&flood);
        assert!(ended.is_err_and(|e| e.contains("more than 64 options")) && heard.len() < 10_000);
    }

    fn options() -> impl Strategy<Value = Vec<u8>> {
        let data = prop::collection::vec(prop_oneof![Just(0_u8), 0..8_u8, any::<u8>()], 0..40);
        let honest = (0..12_u32, data.clone()).prop_map(|(number, data)| option(number, &data));
        let lying = (0..12_u32, data, any::<u16>()).prop_map(|(number, data, length)| {
            let mut out = option(number, &data);
            out[14..16].copy_from_slice(&length.to_be_bytes());
            out
        });
        prop::collection::vec(prop_oneof![4 => honest, 1 => lying], 0..10).prop_map(|all| all.concat())
    }

    proptest! {
        /// Whatever a client says: it ends, with replies that can be parsed, and no more of them than it has earned.
        #[test]
        fn any_client_is_answered_in_the_protocol(
            flags in prop_oneof![4 => Just(FIXED), 1 => any::<[u8; 4]>()],
            options in options(),
            noise in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let says = [&flags[..], &options, &noise].concat();
            let (ended, heard, _) = meet(&says);
            prop_assert!(heard.len() <= 18 + 134 + says.len() / 16 * 200);
            if ended.is_err() || ended == Ok(Outcome::Gone) {
                kinds(&heard);
            }
        }
    }
}

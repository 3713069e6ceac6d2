//! What is said over NBD after the handshake: requests, simple replies, error numbers; all numbers big-endian.
//!
//! The protocol is `doc/proto.md` of github.com/NetworkBlockDevice/nbd ("Transmission phase").

/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const REPLY_MAGIC: u32 = 0x6744_6698;
/// Most bytes of one read or write that is served: what a client may assume that asked for no limits.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Commands by number.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; its data follow.
    pub const WRITE: u16 = 1;
    /// The client goes.
    pub const DISC: u16 = 2;
    /// Store what was written.
    pub const FLUSH: u16 = 3;
    /// Not needed any more.
    pub const TRIM: u16 = 4;
    /// Make it read as zero.
    pub const WRITE_ZEROES: u16 = 6;
}

/// Flags of a request.
pub mod flag {
    /// Over only when it is on stable storage.
    pub const FUA: u16 = 1;
    /// Of [`WRITE_ZEROES`](super::command::WRITE_ZEROES): keep the place.
    pub const NO_HOLE: u16 = 2;
}

/// Transmission flags of an export.
pub mod export {
    /// The others mean something.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 2;
    /// Flushes are served.
    pub const SEND_FLUSH: u16 = 4;
    /// FUA is.
    pub const SEND_FUA: u16 = 8;
    /// TRIM is.
    pub const SEND_TRIM: u16 = 32;
    /// WRITE_ZEROES is.
    pub const SEND_WRITE_ZEROES: u16 = 64;
    /// A flush on one connection covers what was written on the others.
    pub const CAN_MULTI_CONN: u16 = 256;
}

/// Errors of a reply, with the numbers of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Errno {
    /// The disk is read-only, or the card write-protected.
    Perm = 1,
    /// The card, or what is around it, failed.
    Io = 5,
    /// The request makes no sense here.
    Invalid = 22,
    /// A write beyond the end.
    NoSpace = 28,
    /// The server ends.
    Shutdown = 108,
}

/// What a client is told of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Bytes.
    pub size: u64,
    /// Offsets and lengths are multiples of this: 512, or 4096 for a card with native sectors of 4 KiB.
    pub min_block: u32,
    /// Writes are refused.
    pub read_only: bool,
}

impl Export {
    /// Transmission flags.
    #[must_use]
    pub fn flags(&self) -> u16 {
        use export::{
            CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
        };
        let writes = if self.read_only { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES };
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | writes
    }
}

/// A request as it is on the wire; the data of a write follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Flags.
    pub flags: u16,
    /// Command.
    pub command: u16,
    /// The client's name for it, repeated in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// What a request asks for, once it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Store what was written.
    Flush,
    /// Discard.
    Trim,
    /// Make it read as zero.
    WriteZeroes,
}

impl Operation {
    /// All, in the order of a report.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Trim, Self::WriteZeroes];
    /// For people and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::WriteZeroes => "write_zeroes",
        }
    }
}

/// The next `N` bytes.
fn field<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

impl Request {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// Reads one; `None`: the magic is wrong.
    #[must_use]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut b = &bytes[..];
        (u32::from_be_bytes(field(&mut b)?) == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: u16::from_be_bytes(field(&mut b)?),
            command: u16::from_be_bytes(field(&mut b)?),
            cookie: u64::from_be_bytes(field(&mut b)?),
            offset: u64::from_be_bytes(field(&mut b)?),
            length: u32::from_be_bytes(field(&mut b)?),
        })
    }
    /// As it is sent.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = REQUEST_MAGIC.to_be_bytes().to_vec();
        out.extend(self.flags.to_be_bytes());
        out.extend(self.command.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        out.extend(self.length.to_be_bytes());
        out
    }
    /// Bytes of data that follow it.
    #[must_use]
    pub const fn payload(&self) -> u32 {
        if self.command == command::WRITE { self.length } else { 0 }
    }
    /// Bytes of data it moves in either direction.
    #[must_use]
    pub const fn moves(&self) -> u32 {
        if matches!(self.command, command::READ | command::WRITE) { self.length } else { 0 }
    }

    /// What it asks `export` for; not [`command::DISC`], which has no reply.
    ///
    /// # Errors
    /// The number to reply with; nothing is to be done.
    pub fn check(&self, export: &Export) -> Result<Operation, Errno> {
        let op = match self.command {
            command::READ => Operation::Read,
            command::WRITE => Operation::Write,
            command::FLUSH => Operation::Flush,
            command::TRIM => Operation::Trim,
            command::WRITE_ZEROES => Operation::WriteZeroes,
            _ => return Err(Errno::Invalid),
        };
        let known = if op == Operation::WriteZeroes { flag::FUA | flag::NO_HOLE } else { flag::FUA };
        if self.flags & !known != 0 {
            return Err(Errno::Invalid);
        }
        if op == Operation::Flush {
            return Ok(op);
        }
        if export.read_only && op != Operation::Read {
            return Err(Errno::Perm);
        }
        let end = self.offset.checked_add(self.length.into());
        if end.is_none_or(|end| end > export.size) {
            let full = matches!(op, Operation::Write | Operation::WriteZeroes);
            return Err(if full { Errno::NoSpace } else { Errno::Invalid });
        }
        let unit = u64::from(export.min_block.max(1));
        let whole = self.offset.is_multiple_of(unit) && u64::from(self.length).is_multiple_of(unit);
        if !whole || self.length == 0 || self.moves() > MAX_PAYLOAD {
            return Err(Errno::Invalid);
        }
        Ok(op)
    }
}

/// The head of a simple reply; the data of a read that went well follow.
#[must_use]
pub fn reply(cookie: u64, error: Option<Errno>) -> [u8; 16] {
    let mut out = [0; 16];
    out[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&error.map_or(0, |e| e as u32).to_be_bytes());
    out[8..].copy_from_slice(&cookie.to_be_bytes());
    out
}

/// Error number and cookie of a reply's head; `None`: the magic is wrong.
#[must_use]
pub fn parse_reply(bytes: &[u8; 16]) -> Option<(u32, u64)> {
    let mut b = &bytes[..];
    (u32::from_be_bytes(field(&mut b)?) == REPLY_MAGIC).then_some(())?;
    Some((u32::from_be_bytes(field(&mut b)?), u64::from_be_bytes(field(&mut b)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXPORT: Export = Export { size: 1 << 20, min_block: 512, read_only: false };

    fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
        Request { flags, command, cookie: 7, offset, length }
    }

    #[test]
    fn what_cannot_be_done_has_the_number_of_the_protocol() {
        let last = (1 << 20) - 512;
        for (command, flags, offset, length, said) in [
            (command::READ, 0, last, 512, Ok(Operation::Read)),
            (command::READ, 0, last, 1024, Err(Errno::Invalid)),
            (command::WRITE, 0, last, 1024, Err(Errno::NoSpace)),
            (command::WRITE_ZEROES, flag::NO_HOLE, u64::MAX, 512, Err(Errno::NoSpace)),
            (command::TRIM, 0, u64::MAX - 511, 512, Err(Errno::Invalid)),
            (command::READ, 0, 1, 512, Err(Errno::Invalid)),
            (command::READ, 0, 0, 0, Err(Errno::Invalid)),
            (command::WRITE, flag::NO_HOLE, 0, 512, Err(Errno::Invalid)),
            (command::WRITE_ZEROES, flag::NO_HOLE | flag::FUA, 0, 1 << 20, Ok(Operation::WriteZeroes)),
            (command::WRITE_ZEROES, 16, 0, 512, Err(Errno::Invalid)),
            (command::FLUSH, 0, 0, 0, Ok(Operation::Flush)),
            (command::DISC, 0, 0, 0, Err(Errno::Invalid)),
            (7, 0, 0, 512, Err(Errno::Invalid)),
        ] {
            assert_eq!(request(command, flags, offset, length).check(&EXPORT), said, "{command} {offset}");
        }
        let huge = Export { size: 1 << 40, ..EXPORT };
        assert_eq!(request(command::READ, 0, 0, MAX_PAYLOAD).check(&huge), Ok(Operation::Read));
        assert_eq!(request(command::READ, 0, 0, MAX_PAYLOAD + 512).check(&huge), Err(Errno::Invalid));
        let closed = Export { read_only: true, ..EXPORT };
        assert_eq!(request(command::TRIM, 0, 0, 512).check(&closed), Err(Errno::Perm));
        assert_eq!(closed.flags() & (export::READ_ONLY | export::SEND_TRIM), export::READ_ONLY);
    }

    proptest! {
        /// Any 28 bytes are refused or read as what they say, and what is let through lies on the disk in whole blocks.
        #[test]
        fn any_bytes_are_a_request_or_not(mut bytes in prop::array::uniform28(any::<u8>()), right in any::<bool>()) {
            if right {
                bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
            }
            let Some(r) = Request::parse(&bytes) else {
                prop_assert!(bytes[..4] != REQUEST_MAGIC.to_be_bytes());
                return Ok(());
            };
            prop_assert_eq!(r.bytes(), &bytes[..]);
            if let Ok(op) = r.check(&EXPORT) && op != Operation::Flush {
                prop_assert!(r.offset + u64::from(r.length) <= EXPORT.size && r.length > 0);
                prop_assert!(r.offset % 512 == 0 && r.length % 512 == 0);
            }
        }

        /// Requests that are nearly right, the common case of a broken client.
        #[test]
        fn what_is_let_through_lies_on_the_disk(
            command in 0..9_u16, flags in 0..20_u16, offset in 0..2200_u64, length in 0..2200_u32, step in 0..3_u32
        ) {
            let (unit, slip) = ([512, 512, 1][step as usize], [0, 1, 0][step as usize]);
            let r = request(command, flags, offset * unit + slip, length * unit as u32);
            match r.check(&EXPORT) {
                Ok(Operation::Flush) => {}
                Ok(_) => prop_assert!(r.offset + u64::from(r.length) <= EXPORT.size && r.offset.is_multiple_of(512)),
                Err(Errno::NoSpace) => prop_assert!(r.offset + u64::from(r.length) > EXPORT.size),
                Err(e) => prop_assert_eq!(e, Errno::Invalid),
            }
        }
    }
}

//! A small NBD client: one request after the other, or many sent before the first answer is read.

use super::handshake::{
    ACK, ERR_UNSUP, FIXED_NEWSTYLE, GO, INFO_BLOCK_SIZE, INFO_EXPORT, INFORMATION, NBD_MAGIC, NO_ZEROES,
    OPTION_MAGIC, OPTION_REPLY_MAGIC,
};
use super::socket::{Address, Stream};
use super::wire::{self, Request, command, flag};
use std::io::{self, Read, Write};

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    /// Bytes of the disk.
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Least block.
    pub min_block: u32,
    cookie: u64,
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn number<const N: usize>(stream: &mut Stream) -> io::Result<u64> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
}

impl Client {
    /// Connects and asks for the export without a name.
    ///
    /// # Errors
    /// The server is not there, or speaks something else.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let mut stream = address.connect()?;
        if number::<8>(&mut stream)? != NBD_MAGIC || number::<8>(&mut stream)? != OPTION_MAGIC {
            return Err(bad("this is no NBD server of the newstyle"));
        }
        let theirs = number::<2>(&mut stream)? as u16;
        if theirs & FIXED_NEWSTYLE == 0 {
            return Err(bad("the server knows no fixed newstyle"));
        }
        let mut say = u32::from(theirs & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes().to_vec();
        say.extend(OPTION_MAGIC.to_be_bytes());
        say.extend(GO.to_be_bytes());
        // No name, one request: the sizes of blocks.
        let ask = [0, 0, 0, 0, 0, 1, 0, INFO_BLOCK_SIZE as u8];
        say.extend((ask.len() as u32).to_be_bytes());
        say.extend(ask);
        stream.write_all(&say)?;
        let mut client = Self { stream, size: 0, flags: 0, min_block: 1, cookie: 0 };
        loop {
            let s = &mut client.stream;
            if number::<8>(s)? != OPTION_REPLY_MAGIC || number::<4>(s)? != u64::from(GO) {
                return Err(bad("the server answers in another protocol"));
            }
            let (kind, length) = (number::<4>(s)? as u32, number::<4>(s)?);
            if length > 65536 {
                return Err(bad(format!("the server answers with {length} bytes")));
            }
            let mut data = vec![0; length as usize];
            s.read_exact(&mut data)?;
            let field = |from: usize, n: usize| {
                let bytes =
                    data.get(from..from + n).ok_or_else(|| bad("a reply of the server is too short"))?;
                Ok::<u64, io::Error>(bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
            };
            match kind {
                ACK => return Ok(client),
                INFORMATION if field(0, 2)? == u64::from(INFO_EXPORT) => {
                    (client.size, client.flags) = (field(2, 8)?, field(10, 2)? as u16);
                }
                INFORMATION if field(0, 2)? == u64::from(INFO_BLOCK_SIZE) => {
                    client.min_block = (field(2, 4)? as u32).max(1);
                }
                INFORMATION => {}
                ERR_UNSUP => return Err(bad("the server does not know GO; it is too old")),
                other => {
                    let text = String::from_utf8_lossy(&data).into_owned();
                    return Err(bad(format!("the server refuses: {text} ({other:#x})")));
                }
            }
        }
    }

    /// Sends a request and returns its cookie; `data` of a write.
    ///
    /// # Errors
    /// The server is gone.
    pub fn send(
        &mut self,
        command: u16,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<u64> {
        self.cookie += 1;
        let head = Request { flags, command, cookie: self.cookie, offset, length }.bytes();
        self.stream.write_all(&head)?;
        self.stream.write_all(data)?;
        Ok(self.cookie)
    }
    /// The next answer: its cookie and error number. The data of a read follow: see [`data`](Self::data).
    ///
    /// # Errors
    /// The server is gone, or speaks something else.
    pub fn answer(&mut self) -> io::Result<(u64, u32)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        let (error, cookie) = wire::parse_reply(&head).ok_or_else(|| bad("a reply with a wrong magic"))?;
        Ok((cookie, error))
    }
    /// The data behind an answer to a read.
    ///
    /// # Errors
    /// The server is gone.
    pub fn data(&mut self, to: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(to)
    }
    fn alone(&mut self, command: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<()> {
        let cookie = self.send(command, flags, offset, length, data)?;
        match self.answer()? {
            (c, _) if c != cookie => Err(bad("an answer to something else")),
            (_, 0) => Ok(()),
            (_, error) => Err(io::Error::from_raw_os_error(error as i32)),
        }
    }
    /// Reads.
    ///
    /// # Errors
    /// As the server says.
    pub fn read(&mut self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.alone(command::READ, 0, offset, to.len() as u32, &[])?;
        self.data(to)
    }
    /// Writes.
    ///
    /// # Errors
    /// As the server says.
    pub fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> io::Result<()> {
        self.alone(command::WRITE, if fua { flag::FUA } else { 0 }, offset, data.len() as u32, data)
    }
    /// Has all that was written stored.
    ///
    /// # Errors
    /// As the server says.
    pub fn flush(&mut self) -> io::Result<()> {
        self.alone(command::FLUSH, 0, 0, 0, &[])
    }
    /// Says goodbye.
    pub fn disconnect(mut self) {
        // One that is gone needs no goodbye.
        let _ = self.send(command::DISC, 0, 0, 0, &[]);
    }
}

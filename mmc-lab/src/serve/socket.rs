//! Sockets of both kinds: loopback TCP and Unix.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Loopback only: the protocol has no password.
    Tcp(SocketAddr),
    /// A socket file.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(at) => at.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Reads `unix:PATH` or `HOST:PORT`, where the host is this machine.
    ///
    /// # Errors
    /// One line with what is accepted.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            // The length of `sun_path`.
            return match path.len() {
                0 => Err(format!("'{text}' names no file: write unix:PATH")),
                1..108 => Ok(Self::Unix(path.into())),
                n => Err(format!("a socket's path may have 107 bytes, this one has {n}: '{path}'")),
            };
        }
        let mut all = text.to_socket_addrs().map_err(|_| {
            format!("'{text}' is no address: write unix:PATH or HOST:PORT as in 127.0.0.1:10809")
        })?;
        let local = all.find(|a| a.ip().is_loopback());
        local.map(Self::Tcp).ok_or_else(|| {
            format!("'{text}' is not loopback: NBD has no password here, so only 127.0.0.1, ::1 and unix:PATH are served")
        })
    }
    /// Connects.
    ///
    /// # Errors
    /// As the system says.
    pub fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(at) => TcpStream::connect(at).and_then(Stream::tcp),
            Self::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        }
    }
    /// Listens. A socket file that nobody listens to any more is replaced.
    ///
    /// # Errors
    /// As the system says; a file that is no dead socket is left alone.
    pub fn listen(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp(at) => TcpListener::bind(at).map(Listener::Tcp),
            Self::Unix(path) => {
                let socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
                let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
                if socket && UnixStream::connect(path).is_err_and(refused) {
                    std::fs::remove_file(path)?;
                }
                UnixListener::bind(path).map(Listener::Unix)
            }
        }
    }
}

/// What clients connect to.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix.
    Unix(UnixListener),
}

impl Listener {
    /// The next client.
    ///
    /// # Errors
    /// As the system says.
    pub fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(l) => l.accept().and_then(|(s, _)| Stream::tcp(s)),
            Self::Unix(l) => l.accept().map(|(s, _)| Stream::Unix(s)),
        }
    }
    /// Where it listens: port 0 has become a real one.
    #[must_use]
    pub fn address(&self, asked: &Address) -> Address {
        match self {
            Self::Tcp(l) => l.local_addr().map_or_else(|_| asked.clone(), Address::Tcp),
            Self::Unix(_) => asked.clone(),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// Unix.
    Unix(UnixStream),
}

impl Stream {
    fn tcp(stream: TcpStream) -> io::Result<Self> {
        // A reply is written in one piece: nothing is won by waiting for more.
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }
    /// A second handle.
    ///
    /// # Errors
    /// As the system says.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(s) => s.try_clone().map(Self::Tcp),
            Self::Unix(s) => s.try_clone().map(Self::Unix),
        }
    }
    /// Longest wait of one read; `None`: for ever.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_read_timeout(limit),
            Self::Unix(s) => s.set_read_timeout(limit),
        }
    }
    /// Longest wait of one write; `None`: for ever.
    ///
    /// # Errors
    /// As the system says.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_write_timeout(limit),
            Self::Unix(s) => s.set_write_timeout(limit),
        }
    }
    /// Ends both directions, for all handles.
    pub fn close(&self) {
        // One that is gone is closed.
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
            Self::Unix(s) => s.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(to),
            Self::Unix(s) => s.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(from),
            Self::Unix(s) => s.write(from),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection whose reads are over at an instant, however slowly the bytes come.
#[derive(Debug)]
pub struct Timed {
    stream: Stream,
    until: Option<Instant>,
}

impl Timed {
    /// No limit yet.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self { stream, until: None }
    }
    /// All reads from now on together take no longer than `limit`.
    pub fn limit(&mut self, limit: Option<Duration>) {
        self.until = limit.map(|l| Instant::now() + l);
    }
}

impl Read for Timed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let slow = || io::Error::new(io::ErrorKind::TimedOut, "the rest of a message did not come in time");
        let left = match self.until.map(|u| u.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Err(slow()),
            left => left,
        };
        self.stream.set_read_timeout(left)?;
        self.stream.read(to).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => slow(),
            _ => e,
        })
    }
}

impl Write for Timed {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.write(from)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_listened_to() {
        assert_eq!(Address::parse("unix:/tmp/x").unwrap().to_string(), "unix:/tmp/x");
        assert_eq!(Address::parse("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        for (bad, why) in [
            ("0.0.0.0:10809", "not loopback"),
            ("192.0.2.1:1", "not loopback"),
            ("nowhere", "no address"),
            ("unix:", "names no file"),
        ] {
            assert!(Address::parse(bad).unwrap_err().contains(why), "{bad}");
        }
        assert!(Address::parse(&format!("unix:/{}", "x".repeat(200))).unwrap_err().contains("107 bytes"));
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_has_one_limit() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let mut timed = Timed::new(Stream::Unix(a));
        timed.limit(Some(Duration::from_millis(60)));
        let drip = std::thread::spawn(move || {
            while b.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let e = timed.read_exact(&mut [0; 10_000]).unwrap_err();
        assert!(e.to_string().contains("did not come in time"), "{e}");
        drop(timed);
        drip.join().unwrap();
    }
}

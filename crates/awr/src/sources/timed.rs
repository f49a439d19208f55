//! A socket that is waited for until an instant and no longer, however slowly its bytes come or its
//! other side listens.
//!
//! For protocols that are read here, with blocking calls; PostgreSQL's client has a stream of its
//! own (`postgres/wire.rs`).
//!
//! [`Timed::encrypt`] makes it an encrypted one; the limits stay.
//!
//! Deliberately absent: a limit for the lookup of a host's name, which is the system's.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use rustls::ClientConnection;

use super::tls::Connector;

/// The longest time that a connection may take.
const CONNECTING: Duration = Duration::from_secs(10);

/// A socket of either kind.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection whose reads and writes end at an instant.
pub(super) struct Timed {
    bare: Bare,
    /// What encrypts, if it is encrypted.
    tls: Option<Box<ClientConnection>>,
}

/// What goes over the network as it is.
struct Bare {
    socket: Socket,
    deadline: Instant,
}

impl Timed {
    /// Connects to a socket, if the host is a path, or to a port of a host.
    ///
    /// # Errors
    /// If nobody listens, or does not let anybody in until the deadline.
    pub(super) fn open(host: &str, port: u16, deadline: Instant) -> io::Result<Timed> {
        let limit = left(deadline)?.min(CONNECTING);
        let socket = if host.starts_with('/') {
            Socket::Unix(unix(host, limit)?)
        } else {
            let mut stream = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
            for address in (host, port).to_socket_addrs()? {
                stream = TcpStream::connect_timeout(&address, left(deadline)?.min(CONNECTING));
                if stream.is_ok() {
                    break;
                }
            }
            let stream = stream?;
            stream.set_nodelay(true)?;
            Socket::Tcp(stream)
        };
        Ok(Timed { bare: Bare { socket, deadline }, tls: None })
    }

    /// Allows time until another instant.
    pub(super) fn wait_until(&mut self, deadline: Instant) {
        self.bare.deadline = deadline;
    }

    /// Encrypts what follows. Whoever read from here before must have read everything that came.
    ///
    /// # Errors
    /// A refusal with its reason, or what ended the connection.
    pub(super) fn encrypt(&mut self, connector: &Connector) -> io::Result<()> {
        self.tls = Some(Box::new(connector.handshake(&mut self.bare)?));
        Ok(())
    }

    /// Whether it was made an encrypted one.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
}

/// A socket whose listener has a full queue lets connections wait without an end of their own, so
/// an end is given.
fn unix(path: &str, limit: Duration) -> io::Result<UnixStream> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
        .map_err(|error| passed(error.into()))?;
    Ok(UnixStream::from(socket))
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    Some(left).filter(|left| !left.is_zero()).ok_or_else(late)
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "there was no whole answer in time")
}

/// The system says "try again" of a time that has passed.
fn passed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { late() } else { error }
}

impl Read for Bare {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        let read = match &mut self.socket {
            Socket::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(into)),
            Socket::Unix(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(into)),
        };
        read.map_err(passed)
    }
}

impl Write for Bare {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        let written = match &mut self.socket {
            Socket::Tcp(stream) => {
                stream.set_write_timeout(left).and_then(|()| stream.write(bytes))
            }
            Socket::Unix(stream) => {
                stream.set_write_timeout(left).and_then(|()| stream.write(bytes))
            }
        };
        written.map_err(passed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.bare).read(into),
            None => self.bare.read(into),
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.bare).write(bytes),
            None => self.bare.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(&mut **tls, &mut self.bare).flush(),
            None => self.bare.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_that_lets_nobody_in_is_an_error_in_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let listener = UnixListener::bind(&path).expect("bound");
        rustix::net::listen(&listener, 0).expect("a queue of one");
        let _first = UnixStream::connect(&path).expect("the one");
        let deadline = Instant::now() + Duration::from_millis(200);
        let error = Timed::open(path.to_str().expect("UTF-8"), 0, deadline)
            .err()
            .expect("nobody lets it in");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }
}

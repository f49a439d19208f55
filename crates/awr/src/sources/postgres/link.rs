//! Connecting to PostgreSQL: the socket, whether it is encrypted, and the login, for a source and
//! for a repository.
//!
//! | `sslmode` | tried first | then, if that is refused |
//! |---|---|---|
//! | `disable`, any on a socket | in clear | - |
//! | `allow` | in clear | encrypted, if the server refuses the login without |
//! | `prefer` | encrypted; goes on in clear if the server has no encryption | in clear, if the handshake fails or the login is refused as it is |
//! | `require` and more | encrypted | - |
//!
//! Going on in clear after a failure is a warning in the log, before anything is said. It does not
//! go on after a file of this side that cannot be used, nor after an answer that is not
//! PostgreSQL's. A wrong password is not tried a second time in another way. What a server sends
//! before a handshake is one byte; more of it would be part of the handshake, so nobody can slip in
//! what would seem to come from the server.
//!
//! What the server asks for at the login is looked at first (`login.rs`).
//!
//! The client library is given the stream as it is after the handshake, and what its login is bound
//! to (SCRAM-SHA-256-PLUS).
//!
//! Deliberately absent: several hosts, GSSAPI.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::{self, Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_postgres::{Client, Config};

use super::login::Watched;
use crate::sources::address::is_remote;
use crate::sources::tls::{self, Binding, Encryption, Need, Refusal};

/// The wish to go on encrypted: a message of eight bytes with a number for a version (1234, 5679).
const ENCRYPT: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// What the protocol is called inside of TLS.
const PROTOCOL: &[u8] = b"postgresql";
/// The login is not allowed as it is made: from this address, by this user, in clear or encrypted.
const NOT_ALLOWED: &str = "28000";
/// The server's function that finds the user, which it names beside an error. Not translated, as
/// the text is.
pub(super) const LOOKS_UP_USER: &str = "InitializeSessionUserId";

/// Bytes both ways.
pub(crate) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server refuses, or the connection broke.
    Client(tokio_postgres::Error),
    /// The server cannot be reached.
    Network(io::Error),
    /// It is not encrypted as it should be.
    Refused(Refusal),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Network(error)
    }
}

impl Fault {
    /// The same, if it is one of this side's.
    fn copied(&self) -> Option<Fault> {
        match self {
            Fault::Refused(refusal) => Some(Fault::Refused(refusal.clone())),
            Fault::Client(_) | Fault::Network(_) => None,
        }
    }

    /// Why `prefer` goes on in clear, if it does.
    fn lets_go_on(&self) -> Option<String> {
        match self {
            Fault::Refused(refusal) => refusal.goes_on.then(|| refusal.to_string()),
            Fault::Client(_) => self
                .is_of_the_way()
                .then(|| "the server does not let the user in encrypted".to_owned()),
            Fault::Network(_) => None,
        }
    }

    /// Whether the server refuses the login as it is made, and may let the same user in another
    /// way. It answers with the same code where there is no such user, or one that may not log in:
    /// then another way is no help, and encryption not the reason.
    fn is_of_the_way(&self) -> bool {
        let Fault::Client(error) = self else { return false };
        let routine = error.as_db_error().and_then(|error| error.routine());
        self.code() == Some(NOT_ALLOWED) && routine != Some(LOOKS_UP_USER)
    }

    fn code(&self) -> Option<&str> {
        match self {
            Fault::Client(error) => error.code().map(|code| code.code()),
            Fault::Network(_) | Fault::Refused(_) => None,
        }
    }
}

/// Where a server is, who asks, and how the connection is encrypted.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) config: Config,
    pub(crate) encryption: Encryption,
}

impl Place {
    /// Logs in. The connection runs as a task of its own. `guard` is put between the server's plain
    /// messages and the client library.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses, or is not encrypted as it should be.
    pub(crate) async fn client(
        &self,
        patience: Duration,
        guard: &(dyn Fn(Box<dyn Bytes>) -> Box<dyn Bytes> + Sync),
    ) -> Result<Client, Fault> {
        let need = match self.config.get_hosts().first() {
            Some(Host::Tcp(_)) => self.encryption.need,
            _ => Need::Never,
        };
        let attempt = async |encrypted| self.attempt(encrypted, patience, guard).await;
        match need {
            Need::Never => attempt(false).await,
            Need::Always => attempt(true).await,
            Need::IfDemanded => match attempt(false).await {
                Err(plain) if plain.is_of_the_way() => {
                    attempt(true).await.map_err(|encrypted| match encrypted {
                        Fault::Refused(refusal) if !refusal.offered => plain,
                        encrypted => encrypted,
                    })
                }
                done => done,
            },
            Need::IfOffered => match attempt(true).await {
                Err(encrypted) => {
                    let Some(reason) = encrypted.lets_go_on() else { return Err(encrypted) };
                    // Before anything is said in clear: what follows may fail, and the password has
                    // been sent then.
                    let reason =
                        format!("{reason} (sslmode is prefer; require would be an error here)");
                    tls::in_clear(&self.host(), &reason);
                    attempt(false).await.map_err(|plain| match plain.code() {
                        // The server told something else than that it must be encrypted.
                        Some(_) if !plain.is_of_the_way() => plain,
                        _ => encrypted.copied().unwrap_or(plain),
                    })
                }
                done => done,
            },
        }
    }

    fn host(&self) -> String {
        match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            _ => String::new(),
        }
    }

    async fn attempt(
        &self,
        encrypted: bool,
        patience: Duration,
        guard: &(dyn Fn(Box<dyn Bytes>) -> Box<dyn Bytes> + Sync),
    ) -> Result<Client, Fault> {
        let mut config = self.config.clone();
        config.channel_binding(match self.encryption.binding {
            Binding::Never => config::ChannelBinding::Disable,
            Binding::IfOffered => config::ChannelBinding::Prefer,
            Binding::Always => config::ChannelBinding::Require,
        });
        // The library is given a stream that is encrypted already: it only has to take it for one.
        config.ssl_mode(SslMode::Disable).ssl_negotiation(SslNegotiation::Direct);
        let (mut stream, mut binding, mut in_tls) = (self.stream(patience).await?, None, false);
        if encrypted && (self.encryption.direct || self.is_offered(&mut stream).await?) {
            let connector = self.encryption.connector(&self.host(), &[PROTOCOL]);
            let connector = connector.map_err(|refusal| Fault::Refused(refusal.that_ends_it()))?;
            let done = connector.handshake_later(stream).await.map_err(|error| {
                match Refusal::behind(&error, self.encryption.words) {
                    // As a server does that takes it for a startup of the usual kind.
                    Some(refusal) if self.encryption.direct && refusal.may_pass => {
                        let remedy = tls::no_protocol().remedy;
                        Fault::Refused(Refusal { remedy, may_pass: false, ..refusal })
                    }
                    Some(refusal) => Fault::Refused(refusal),
                    None => Fault::Network(error),
                }
            })?;
            let (_, agreed) = done.get_ref();
            if self.encryption.direct && agreed.alpn_protocol() != Some(PROTOCOL) {
                return Err(Fault::Refused(tls::no_protocol()));
            }
            binding = tls::binding(agreed.peer_certificates());
            stream = Box::new(done);
            in_tls = true;
            config.ssl_mode(SslMode::Require);
        }
        let stream = Box::new(Watched::new(stream, &self.encryption, self.host(), in_tls));
        let connected = config.connect_raw(guard(stream), Handed(binding)).await;
        let (client, connection) = connected.map_err(Fault::Client)?;
        // Its end is seen by the client, which is told that the connection is closed.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Asks the server to go on encrypted; false if it does not and need not.
    async fn is_offered(&self, stream: &mut Box<dyn Bytes>) -> Result<bool, Fault> {
        stream.write_all(&ENCRYPT).await?;
        let mut answer = [0];
        stream.read_exact(&mut answer).await?;
        match answer {
            [b'S'] => Ok(true),
            [b'N'] if self.encryption.need == Need::IfOffered => {
                if is_remote(&self.host()) {
                    tls::in_clear(
                        &self.host(),
                        "the server does not offer it, and sslmode is prefer",
                    );
                }
                Ok(false)
            }
            [b'N'] => Err(Fault::Refused(tls::not_offered(self.encryption.words))),
            [b'E'] => Err(Fault::Refused(tls::error_before())),
            _ => Err(Fault::Refused(tls::not_spoken())),
        }
    }

    async fn stream(&self, patience: Duration) -> io::Result<Box<dyn Bytes>> {
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let nowhere = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        match self.config.get_hosts().first().ok_or_else(nowhere)? {
            Host::Unix(directory) => Ok(Box::new(unix(directory, port).await?)),
            Host::Tcp(name) => {
                let addresses: Vec<_> = lookup_host((name.as_str(), port)).await?.collect();
                // The whole time is the caller's limit; one address that swallows everything leaves
                // some of it to the next.
                let each = patience / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
                let mut stream = Err(nowhere());
                for address in addresses {
                    stream = match tokio::time::timeout(each, TcpStream::connect(address)).await {
                        Ok(connected) => connected,
                        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
                    };
                    if stream.is_ok() {
                        break;
                    }
                }
                let stream = stream?;
                stream.set_nodelay(true)?;
                if let Some(limit) = self.config.get_tcp_user_timeout() {
                    let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
                    sockopt::set_tcp_user_timeout(&stream, limit_ms)?;
                    sockopt::set_socket_keepalive(&stream, true)?;
                    sockopt::set_tcp_keepidle(&stream, self.config.get_keepalives_idle())?;
                }
                Ok(Box::new(stream))
            }
        }
    }
}

/// What a connection runs in: this thread, while it waits for an answer. Its end waits for nobody:
/// the system's look-up of a host's name goes on in a thread of its own after everybody has given
/// it up, and the limit of a call is to hold all the same.
pub(crate) struct OneThread(Option<Runtime>);

impl OneThread {
    pub(crate) fn new() -> io::Result<OneThread> {
        Ok(OneThread(Some(Builder::new_current_thread().enable_all().build()?)))
    }

    /// Waits for an answer.
    pub(crate) fn block_on<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("BUG: it is there until the drop").block_on(answer)
    }
}

impl Drop for OneThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn unix(directory: &Path, port: u16) -> io::Result<UnixStream> {
    UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await
}

/// What a login is bound to, on its way to the client library.
struct Handed(Option<Vec<u8>>);

impl TlsConnect<Box<dyn Bytes>> for Handed {
    type Stream = Agreed;
    type Error = Infallible;
    type Future = Ready<Result<Agreed, Infallible>>;

    fn connect(self, stream: Box<dyn Bytes>) -> Self::Future {
        ready(Ok(Agreed { stream, binding: self.0 }))
    }
}

/// A stream that was encrypted before the library got it.
struct Agreed {
    stream: Box<dyn Bytes>,
    binding: Option<Vec<u8>>,
}

impl TlsStream for Agreed {
    fn channel_binding(&self) -> ChannelBinding {
        self.binding.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for Agreed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Agreed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_does_not_wait_for_a_name_that_is_looked_up() {
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        let (says, ended) = std::sync::mpsc::channel();
        let thread = OneThread::new().expect("a runtime");
        thread.block_on(async {
            // As the system's resolver: in a thread that nobody can end.
            tokio::task::spawn_blocking(move || {
                says.send(waits.recv_timeout(Duration::from_secs(120)).is_ok())
            });
        });
        drop(thread);
        goes_on.send(()).expect("it still waits");
        assert_eq!(ended.recv(), Ok(true));
    }
}

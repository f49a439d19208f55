//! What a server asks for at the login, seen before the client library answers it.
//!
//! The library gives a password in whatever way the server asks for. So the server's messages are
//! looked at on their way to it, up to the one that lets the user in, and a way that is not allowed
//! ends the connection: the library never sees the demand.
//!
//! Written after PostgreSQL's documentation (Message Formats: the letter `R` and a number).
//!
//! Deliberately absent: which ways are allowed (`tls/password.rs`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::link::Bytes;
use crate::sources::tls::{Encryption, Refusal, Way};

/// The letter of messages about the login.
const ABOUT_LOGIN: u8 = b'R';

/// A connection whose login is watched.
pub(super) struct Watched {
    inner: Box<dyn Bytes>,
    login: Login,
}

impl Watched {
    pub(super) fn new(
        inner: Box<dyn Bytes>,
        encryption: &Encryption,
        host: String,
        encrypted: bool,
    ) -> Self {
        let login = Login {
            encryption: encryption.clone(),
            on_socket: host.is_empty(),
            host,
            encrypted,
            head: Vec::new(),
            left: 0,
            asked: false,
            over: false,
        };
        Watched { inner, login }
    }
}

struct Login {
    encryption: Encryption,
    /// Empty on a socket.
    host: String,
    on_socket: bool,
    encrypted: bool,
    /// The beginning of a message: letter, length, and a number if it is about the login.
    head: Vec<u8>,
    /// Bytes of the message that are still to come.
    left: usize,
    /// Whether the server asked for something.
    asked: bool,
    /// Whether the user is in.
    over: bool,
}

impl Login {
    #[allow(clippy::big_endian_bytes, reason = "the order of PostgreSQL's protocol")]
    fn look(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !self.over && !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.head.push(bytes[0]);
            bytes = &bytes[1..];
            let number = |at: usize| {
                let four = self.head.get(at..)?.first_chunk::<4>()?;
                Some(u32::from_be_bytes(*four))
            };
            let Some(length) = number(1) else { continue };
            let is_about_login = self.head.first() == Some(&ABOUT_LOGIN);
            // The length counts itself.
            let counted = if is_about_login { 8 } else { 4 };
            if length < counted {
                let reason = "what answers at the login is not PostgreSQL's: a message is shorter \
                              than its length";
                return Err(Refusal::new(reason, "Check that the address is that of a PostgreSQL"));
            }
            if is_about_login {
                let Some(kind) = number(5) else { continue };
                self.allow(kind)?;
            }
            self.left = (length - counted) as usize;
            self.head.clear();
        }
        Ok(())
    }

    /// What a message about the login says.
    fn allow(&mut self, kind: u32) -> Result<(), Refusal> {
        let way = match kind {
            0 => {
                self.over = true;
                Some(Way::None).filter(|_| !self.asked)
            }
            3 => Some(Way::Password),
            5 => Some(Way::Md5),
            7 => Some(Way::Gss),
            9 => Some(Way::Sspi),
            // The library knows no other mechanism of SASL.
            10 => Some(Way::Scram),
            // Of a way that was asked for before, or unknown to the library.
            _ => None,
        };
        self.asked |= kind != 0;
        match way {
            Some(way) => self.encryption.allows(way, &self.host, self.on_socket, self.encrypted),
            None => Ok(()),
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, into))?;
        Poll::Ready(self.login.look(&into.filled()[before..]).map_err(io::Error::from))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

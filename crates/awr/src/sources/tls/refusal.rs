//! Why a connection is not encrypted as it should be: the reason, which certificate, and what to
//! do.
//!
//! Deliberately absent: deciding (`verifier.rs`).
//!
//! Invariant: what a server said or put into a certificate is shown without control characters and
//! cut.

use std::error::Error;
use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError};

use super::Words;

/// A connection that is refused by this side, or a handshake that failed. `Display` is the reason.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) remedy: String,
    /// Whether it may pass by itself: a server that is being started anew, for instance.
    pub(crate) may_pass: bool,
    /// Whether the server offered encryption.
    pub(crate) offered: bool,
    /// Whether `prefer` goes on in clear after it: not after a file of this side that cannot be
    /// used, or an answer that is no PostgreSQL's.
    pub(crate) goes_on: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, refusal)
    }
}

impl Refusal {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Refusal {
        Refusal {
            reason: reason.into(),
            remedy: remedy.into(),
            may_pass: false,
            offered: true,
            goes_on: true,
        }
    }

    /// The same, after which nothing else is tried.
    pub(crate) fn that_ends_it(self) -> Refusal {
        Refusal { goes_on: false, ..self }
    }

    /// The one behind an error, however deep: of a handshake, or of what a server says about ours
    /// after it.
    pub(crate) fn behind(error: &(dyn Error + 'static), words: &Words) -> Option<Refusal> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(refusal) = error.downcast_ref::<Refusal>() {
                return Some(refusal.clone());
            }
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(explained(error, words));
            }
            // An error of input and output does not give what it is made of as its source, but the
            // source of that.
            next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inside) => Some(inside),
                None => error.source(),
            };
        }
        None
    }

    /// The error of a handshake.
    pub(super) fn of_handshake(error: &io::Error, words: &Words) -> Option<Refusal> {
        if let Some(refusal) = Refusal::behind(error, words) {
            return Some(refusal);
        }
        let ended = [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ];
        ended.contains(&error.kind()).then(|| Refusal {
            may_pass: true,
            ..Refusal::new(
                "the server closed the connection while encryption was being agreed upon",
                format!("Check that it speaks TLS 1.2 or later at this address; {}", words.plain),
            )
        })
    }
}

fn explained(error: &rustls::Error, words: &Words) -> Refusal {
    use rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(CertificateError::Other(other)) => {
            let refusal = other.0.downcast_ref::<Refusal>().cloned();
            refusal.unwrap_or_else(|| Refusal::new("its certificate is not accepted", words.root))
        }
        Tls::InvalidCertificate(CertificateError::BadSignature) => Refusal::new(
            "the server does not prove that its certificate is its own, or by a key that is not \
             accepted (RSA of less than 2048 bits)",
            "Give the server a certificate of a key that is its own and strong enough",
        ),
        Tls::InvalidCertificate(other) => {
            Refusal::new(format!("its certificate is not accepted: {other}"), words.root)
        }
        Tls::AlertReceived(alert) => of_server(*alert, words),
        Tls::PeerIncompatible(_) => no_common(words),
        Tls::NoApplicationProtocol => Refusal::new(
            "the server does not agree on a protocol inside of TLS",
            "Check that the address is that of the database, and not of a web server or a proxy",
        ),
        _ => Refusal::new(
            format!(
                "what the server sends is not TLS as it should be ({})",
                crate::figure::visible(&error.to_string())
            ),
            format!("Check the port, and that the server speaks TLS there; {}", words.plain),
        ),
    }
}

/// What a server says when it ends a handshake.
fn of_server(alert: AlertDescription, words: &Words) -> Refusal {
    match alert {
        AlertDescription::CertificateRequired => Refusal::new(
            "the server demands a certificate of this client and was given none",
            words.own,
        ),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => Refusal::new(
            format!("the server does not accept the certificate of this client ({alert:?})"),
            format!("Give one that an authority of the server's signed: {}", words.own),
        ),
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => {
            no_common(words)
        }
        // Said of a version, of ciphers, and of a certificate of the client that is missing in TLS
        // 1.2.
        AlertDescription::HandshakeFailure => Refusal::new(
            "the server ended the handshake (HandshakeFailure): it has no TLS version or cipher in \
             common with this client, or demands a \
             certificate of it",
            format!("Let the server speak TLS 1.2 or later. {}", words.own),
        ),
        _ => Refusal::new(
            format!("the server ended the handshake ({alert:?})"),
            "Look into the server's log for the reason",
        ),
    }
}

fn no_common(words: &Words) -> Refusal {
    Refusal::new(
        "the server has no TLS version or cipher in common with this client, which speaks TLS 1.2 \
         and 1.3 without ciphers that are broken",
        format!("Let the server speak TLS 1.2 or later; {}", words.plain),
    )
}

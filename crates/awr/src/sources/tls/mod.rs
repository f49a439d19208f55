//! Encrypted connections: whether one is to be encrypted, whom it trusts, and the handshake (TLS
//! 1.2 and 1.3).
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | what was decided, and a handshake by it |
//! | `settings.rs` | the words of URLs, environment and files of PostgreSQL and Redis |
//! | `mysql.rs` | those of MariaDB and MySQL |
//! | `password.rs` | what a server may make of a password |
//! | `files.rs` | certificates and keys from files |
//! | `verifier.rs` | whether a server's certificate is trusted |
//! | `certificate.rs` | a certificate taken apart |
//! | `refusal.rs` | why not, and what to do |
//!
//! Deliberately absent: when a connection becomes encrypted, which each protocol does in its own
//! way; keeping sessions to begin the next one faster, since a connection lasts as long as a
//! recording.
//!
//! Invariants: what was asked for is had or refused; a connection that is not encrypted although it
//! could have been is said to be so in the log. No key and no password is in a message.

mod certificate;
mod files;
mod mysql;
mod password;
mod refusal;
mod settings;
mod verifier;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, InconsistentKeys};

use self::certificate::Certificate;
pub(super) use self::mysql::of_mysql;
pub(crate) use self::password::{RequireAuth, ServerKey, Way, no_key_of_server};
pub(crate) use self::refusal::Refusal;
pub(super) use self::settings::{of_postgres, of_redis};
use self::verifier::Verifier;

/// Whether a connection is to be encrypted: the later, the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It is not.
    Never,
    /// If the server does not let us in otherwise.
    IfDemanded,
    /// If the server offers it.
    IfOffered,
    /// It is, or there is none.
    Always,
}

/// What of a server's certificate counts: the later, the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verify {
    /// Nothing: whoever can change what is sent can be the server.
    Nothing,
    /// That an authority signed it.
    Chain,
    /// That, and that it is for the host.
    Name,
}

/// Who is trusted to sign certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    Nobody,
    File(PathBuf),
    /// Whom the system trusts, or these files of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    System(Vec<PathBuf>),
}

/// Whether a login is bound to the connection that it is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    Never,
    IfOffered,
    Always,
}

/// What each database's own programs call things, for what a message tells to do.
#[derive(Debug)]
pub(crate) struct Words {
    /// How to trust an authority.
    pub(crate) root: &'static str,
    /// What to do about a name.
    pub(crate) name: &'static str,
    /// How to do without encryption.
    pub(crate) plain: &'static str,
    /// How to give a certificate of this client.
    pub(crate) own: &'static str,
}

/// What was decided about a connection.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    pub(crate) need: Need,
    pub(crate) verify: Verify,
    pub(crate) roots: Roots,
    /// Certificate and key of this client.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
    /// TLS from the first byte on, where a protocol also has another way.
    pub(crate) direct: bool,
    pub(crate) binding: Binding,
    /// Whether TLS 1.2 is not enough.
    pub(crate) newest_only: bool,
    /// How a PostgreSQL may let the user in.
    pub(crate) require_auth: RequireAuth,
    /// For which key a password of MySQL's is sealed.
    pub(crate) server_key: ServerKey,
    pub(crate) words: &'static Words,
}

impl Encryption {
    /// Makes ready for a handshake with a host. Files are read now, so that renewed ones are seen
    /// by the next connection.
    ///
    /// # Errors
    /// If a file cannot be read, is none of certificates, or the host has no name that could be in
    /// one.
    pub(crate) fn connector(&self, host: &str, protocols: &[&[u8]]) -> Result<Connector, Refusal> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let ways = provider.signature_verification_algorithms;
        let keys = provider.key_provider;
        let authorities = match self.verify {
            Verify::Nothing => None,
            Verify::Chain | Verify::Name => Some(files::authorities(&self.roots, self.words)?),
        };
        let verifier = Verifier {
            verify: self.verify,
            authorities,
            host: host.to_owned(),
            ways,
            words: self.words,
        };
        let versions: &[&rustls::SupportedProtocolVersion] = match self.newest_only {
            true => &[&rustls::version::TLS13],
            false => &[&rustls::version::TLS13, &rustls::version::TLS12],
        };
        let wrong = |error: rustls::Error| Refusal::new(error.to_string(), self.words.own);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &self.own {
            Some((certificate, key)) => {
                let (chain, key) = files::own(certificate, key, self.words)?;
                let unfit = |reason: &str| {
                    let reason =
                        format!("the certificate in {} {reason}", files::shown(certificate));
                    Refusal::new(reason, self.words.own)
                };
                let key = keys
                    .load_private_key(key)
                    .map_err(|_| unfit("has a key of a kind that is not known"))?;
                let certified = CertifiedKey::new(chain, key);
                // The library does not read every certificate; whether the server takes it is the
                // server's.
                if let Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) =
                    certified.keys_match()
                {
                    return Err(unfit("is of another key than the one that is given"));
                }
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let bare = host.strip_suffix('.').unwrap_or(host);
        let name = match ServerName::try_from(bare.to_owned()) {
            Ok(name) => name,
            // The name is only told to the server then, which need not know.
            Err(_) => {
                config.enable_sni = false;
                ServerName::from(std::net::IpAddr::from([0, 0, 0, 0]))
            }
        };
        Ok(Connector { config: Arc::new(config), name, words: self.words })
    }
}

/// Ready for a handshake.
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    words: &'static Words,
}

impl Connector {
    /// A handshake with blocking calls; the stream's own limits end it.
    ///
    /// # Errors
    /// A [`Refusal`], or what ended the connection.
    pub(crate) fn handshake<S: Read + Write>(
        &self,
        stream: &mut S,
    ) -> io::Result<ClientConnection> {
        let wrong = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut connection =
            ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(wrong)?;
        while connection.is_handshaking() {
            connection.complete_io(stream).map_err(|error| self.explained(error))?;
        }
        Ok(connection)
    }

    /// A handshake that is waited for as a future.
    ///
    /// # Errors
    /// A [`Refusal`], or what ended the connection.
    pub(crate) async fn handshake_later<S>(
        &self,
        stream: S,
    ) -> io::Result<tokio_rustls::client::TlsStream<S>>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.config));
        connector.connect(self.name.clone(), stream).await.map_err(|error| self.explained(error))
    }

    fn explained(&self, error: io::Error) -> io::Error {
        Refusal::of_handshake(&error, self.words).map_or(error, io::Error::from)
    }
}

/// What a login is bound to, of the certificates that a server showed.
pub(crate) fn binding(shown: Option<&[CertificateDer<'_>]>) -> Option<Vec<u8>> {
    Certificate::of(shown?.first()?)?.binding()
}

/// A server that is to be encrypted and offers no way to.
pub(crate) fn not_offered(words: &Words) -> Refusal {
    Refusal {
        offered: false,
        ..Refusal::new(
            "the server does not offer encryption, and the connection must have it",
            format!("Turn TLS on in the server; {}", words.plain),
        )
    }
}

/// A PostgreSQL that answers the wish for encryption with an error.
pub(crate) fn error_before() -> Refusal {
    Refusal {
        may_pass: true,
        ..Refusal::new(
            "the server answers with an error before the connection is encrypted; it is not shown, \
             because anybody on the way could have written it",
            "Look into the server's log for the reason",
        )
    }
}

/// A MySQL that gives an error, by this number, instead of a greeting. Its words are not shown, and
/// none of them is advice to anybody.
pub(crate) fn error_for_greeting(code: u16) -> Refusal {
    let (what, remedy) = match code {
        1040 => (
            "it has no connection to spare",
            "Give the server more connections (max_connections), or wait",
        ),
        1129 => (
            "this machine is blocked after failed connections",
            "FLUSH HOSTS on the server, and look into its log",
        ),
        1130 => (
            "nobody may connect from this machine",
            "Give the user a host that this machine is: CREATE USER name@'host'",
        ),
        _ => (
            "its words are not shown, because anybody on the way could have written them",
            "Look into the server's log for the reason",
        ),
    };
    let reason = format!(
        "the server answers with error {code} before the connection is encrypted: {what}, if it is \
         the server's own answer"
    );
    Refusal { may_pass: true, ..Refusal::new(reason, remedy) }
}

/// What answers the wish for encryption is no PostgreSQL.
pub(crate) fn not_spoken() -> Refusal {
    Refusal::new(
        "what answers does not know PostgreSQL's wish for encryption",
        "Check that the address is that of a PostgreSQL",
    )
    .that_ends_it()
}

/// A handshake of `sslnegotiation=direct` with something that may be another protocol's server.
pub(crate) fn no_protocol() -> Refusal {
    Refusal::new(
        "the server does not say that it speaks PostgreSQL inside of TLS",
        "Say sslnegotiation=postgres; direct needs PostgreSQL 17 or later",
    )
}

/// Of MySQL, for errors that come from a place that knows no connection.
pub(super) fn words_of_mysql() -> &'static Words {
    &mysql::MYSQL
}

/// Asks a certificate everything that is asked of one; false if the bytes are none. For tests and
/// fuzz targets.
#[cfg(any(test, feature = "testing"))]
pub(super) fn take_apart(bytes: &[u8]) -> bool {
    let Some(one) = Certificate::of(bytes) else { return false };
    let texts = [one.described(), one.names(), one.from.to_string(), one.until.to_string()];
    assert!(texts.iter().all(|text| text.len() < 4_000 && !text.chars().any(char::is_control)));
    let _ = (one.may_sign(), one.constrains_names(), one.is_by_itself(), one.binding());
    let _ = (one.is_for("a.b.example", true), one.is_for("192.0.2.7", false), one.is_for("", true));
    let ways = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let _ = (one.is_signed_by(&one, ways), one.is_valid_at(one.from.unix_s), one.is(bytes));
    true
}

/// Says that a connection is in clear that need not have been.
pub(crate) fn in_clear(place: &str, reason: &str) {
    log::warn!("the connection to {} is not encrypted: {reason}", crate::figure::visible(place));
}

#[cfg(test)]
mod tests;

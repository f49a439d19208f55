//! Connections over TLS, by rustls: certificates from files, and one connection's two directions.
//!
//! What a peer may take without having shown anything is bounded: a handshake message has a size
//! (rustls's own limit), a handshake a time, and what waits to be encrypted is in the client's
//! buffer, where its limits count it. Nothing is read as a request before the handshake is done.
//!
//! Deliberately absent: keys with a password, TLS to a primary.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, SendFlags};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::client::Io;
use crate::command::Configuration;
use crate::error::Error;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that are decrypted at one go.
const READ_MAX: usize = 256 << 10;
/// Bytes that are encrypted and wait for the socket.
const SEALED_MAX: usize = 64 << 10;
/// The largest file with certificates or a key.
const FILE_MAX: u64 = 8 << 20;

fn wrong(setting: &str, path: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Configuration(format!(
        "`{setting}` names {path}, which cannot be used: {why}; name a file in PEM form that this \
         account can \
         read"
    ))
}

fn read(setting: &str, path: &str) -> Result<Vec<u8>, Error> {
    if path.is_empty() {
        return Err(Error::Configuration(format!("`tls-port` needs `{setting}` as well")));
    }
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > FILE_MAX {
            true => Err(io::Error::other("it is larger than 8 MiB")),
            false => Ok(bytes),
        }
    };
    read().map_err(|error: io::Error| wrong(setting, path, &error))
}

fn certificates(setting: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bytes = read(setting, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(wrong(setting, path, &"there is no certificate in it"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(setting, path, &error)),
    }
}

/// What the configuration says of TLS.
pub(super) fn settings(configuration: &Configuration) -> Result<Arc<ServerConfig>, Error> {
    let text = |name| configuration.text(name);
    let chain = certificates("tls-cert-file", text("tls-cert-file"))?;
    let path = text("tls-key-file");
    let key = PrivateKeyDer::from_pem_slice(&read("tls-key-file", path)?)
        .map_err(|_| wrong("tls-key-file", path, &"there is no private key in it"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed =
        |error: &dyn std::fmt::Display| Error::Configuration(format!("TLS cannot begin: {error}"));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?;
    let builder = match text("tls-auth-clients") {
        "no" => builder.with_no_client_auth(),
        how => {
            let path = text("tls-ca-cert-file");
            let mut roots = RootCertStore::empty();
            for certificate in certificates("tls-ca-cert-file", path)? {
                roots.add(certificate).map_err(|error| wrong("tls-ca-cert-file", path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier =
                if how == "optional" { verifier.allow_unauthenticated() } else { verifier };
            builder.with_client_cert_verifier(
                verifier.build().map_err(|error| wrong("tls-ca-cert-file", path, &error))?,
            )
        }
    };
    let config = builder
        .with_single_cert(chain, key)
        .map_err(|error| wrong("tls-key-file", text("tls-key-file"), &error))?;
    Ok(Arc::new(config))
}

/// A socket that does not wait.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::net::recv(self.0, into, RecvFlags::empty())?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One connection.
pub(super) struct Secured {
    tls: ServerConnection,
    since: Instant,
}

impl Secured {
    /// Begins a connection.
    pub(super) fn begin(config: &Arc<ServerConfig>) -> Option<Secured> {
        let mut tls = ServerConnection::new(Arc::clone(config)).ok()?;
        tls.set_buffer_limit(Some(SEALED_MAX));
        Some(Secured { tls, since: Instant::now() })
    }

    /// Whether its handshake takes too long.
    pub(super) fn is_late(&self) -> bool {
        self.tls.is_handshaking() && self.since.elapsed() > HANDSHAKE
    }

    /// Whether something is encrypted that the socket did not take.
    pub(super) fn is_waiting(&self) -> bool {
        self.tls.wants_write()
    }

    /// Sends what is encrypted; whether all of it went.
    fn pass_on(&mut self, socket: &OwnedFd) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads what has come, and decrypts all of it: nothing tells of what is left inside.
    pub(super) fn receive(&mut self, socket: &OwnedFd, into: &mut Vec<u8>) -> Io {
        let (mut raw, mut all) = (0, 0);
        let end = |all: usize| if all > 0 { Io::Some(all) } else { Io::Gone };
        while raw < READ_MAX {
            match self.tls.read_tls(&mut Socket(socket)) {
                Ok(0) => return end(all),
                Ok(got) => raw += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Io::Gone,
            }
            let Ok(state) = self.tls.process_new_packets() else {
                // Best effort: the alert says why.
                let _ = self.pass_on(socket);
                return Io::Gone;
            };
            let before = into.len();
            into.resize(before + state.plaintext_bytes_to_read(), 0);
            if self.tls.reader().read_exact(&mut into[before..]).is_err() {
                return Io::Gone;
            }
            all += into.len() - before;
            if state.peer_has_closed() {
                return end(all);
            }
        }
        match self.pass_on(socket) {
            Err(_) => Io::Gone,
            Ok(_) if all > 0 => Io::Some(all),
            Ok(_) => Io::Later,
        }
    }

    /// Encrypts and sends bytes; how many were taken, or nothing if the other side is gone.
    pub(super) fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Option<usize> {
        let mut taken = 0;
        loop {
            let more = self.tls.writer().write(&bytes[taken..]).ok()?;
            taken += more;
            let all_went = self.pass_on(socket).ok()?;
            if taken == bytes.len() || !all_went || more == 0 {
                return Some(taken);
            }
        }
    }

    /// Says that nothing follows.
    pub(super) fn say_goodbye(&mut self, socket: &OwnedFd) {
        self.tls.send_close_notify();
        // Best effort: the connection ends in any case.
        let _ = self.pass_on(socket);
    }
}

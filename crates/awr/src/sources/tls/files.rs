//! Certificates and keys from files (PEM), those of the system's authorities among them.
//!
//! Deliberately absent: keys with a password, files in other forms, hardware.
//!
//! Invariant: a key that others may read is refused, as libpq does; nothing of a key is in a
//! message.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use super::certificate::Certificate;
use super::refusal::Refusal;
use super::verifier::Authorities;
use super::{Roots, Words};

/// The largest file that is read: those of systems have a quarter of a MiB.
const MOST_BYTES: u64 = 8 << 20;
/// The most files of a directory of authorities.
const MOST_FILES: usize = 2_000;

/// Where systems keep the authorities that they trust.
const OF_SYSTEMS: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
];

/// A path as a message shows it.
pub(super) fn shown(path: &Path) -> String {
    crate::figure::visible(&path.display().to_string())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        return Err(io::Error::other("it is no file, or larger than 8 MiB"));
    }
    fs::read(path)
}

fn certificates(path: &Path, words: &Words) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let wrong = |reason: String| {
        Refusal::new(
            format!("{} cannot be read as certificates: {reason}", shown(path)),
            words.root,
        )
    };
    let bytes = read(path).map_err(|error| wrong(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong("there is none in it".to_owned())),
        Ok(found) => Ok(found),
        Err(_) => Err(wrong("it is damaged".to_owned())),
    }
}

/// Who is trusted. One whose days are over signs for nobody any more.
pub(super) fn authorities(roots: &Roots, words: &Words) -> Result<Authorities, Refusal> {
    let (named, from) = match roots {
        Roots::Nobody => (Vec::new(), "no file".to_owned()),
        Roots::File(path) => (certificates(path, words)?, shown(path)),
        Roots::System(paths) => return of_system(paths, words),
    };
    Ok(trusted(named, from, UnixTime::now().as_secs()))
}

/// Those of a file that a user named, at an instant.
pub(super) fn trusted(
    named: Vec<CertificateDer<'static>>,
    from: String,
    now_s: u64,
) -> Authorities {
    let all = named.len();
    let valid =
        |one: &CertificateDer<'_>| Certificate::of(one).is_some_and(|one| one.is_valid_at(now_s));
    let named: Vec<_> = named.into_iter().filter(valid).collect();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(named.iter().filter(|one| is_authority(one)).cloned());
    let from = match all - named.len() {
        0 => from,
        over => format!("{from} ({over} left out: expired, not valid yet, or not readable)"),
    };
    Authorities { store, named, from }
}

fn of_system(paths: &[PathBuf], words: &Words) -> Result<Authorities, Refusal> {
    let mut store = RootCertStore::empty();
    let usual = OF_SYSTEMS.map(PathBuf::from);
    let given = !paths.is_empty();
    let mut from = Vec::new();
    for path in if given { paths } else { &usual } {
        let files = match fs::read_dir(path) {
            Ok(inside) => inside.flatten().take(MOST_FILES).map(|file| file.path()).collect(),
            Err(_) => vec![path.clone()],
        };
        // A directory holds other files as well.
        let found: Vec<_> =
            files.iter().filter_map(|file| certificates(file, words).ok()).flatten().collect();
        let (added, _) = store.add_parsable_certificates(authorities_of(found));
        if added > 0 {
            from.push(shown(path));
            if !given {
                break;
            }
        }
    }
    if store.is_empty() {
        let places = if given { paths } else { &usual[..] };
        let places: Vec<String> = places.iter().map(|path| shown(path)).collect();
        return Err(Refusal::new(
            format!("there are no authorities of the system in {}", places.join(", ")),
            format!("Install ca-certificates, or name a file by SSL_CERT_FILE. {}", words.root),
        ));
    }
    Ok(Authorities { store, named: Vec::new(), from: from.join(", ") })
}

/// Whether it may sign for others: a server's own certificate, wherever it lies, must not.
fn is_authority(one: &CertificateDer<'_>) -> bool {
    Certificate::of(one).is_some_and(|one| one.may_sign())
}

/// Those of the system's files that may sign today.
fn authorities_of(found: Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>> {
    let now_s = UnixTime::now().as_secs();
    let valid =
        |one: &CertificateDer<'_>| Certificate::of(one).is_some_and(|one| one.is_valid_at(now_s));
    found.into_iter().filter(|one| is_authority(one) && valid(one)).collect()
}

/// The certificate of this client and its key.
pub(super) fn own(
    certificate: &Path,
    key: &Path,
    words: &Words,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Refusal> {
    let chain = certificates(certificate, words)
        .map_err(|refusal| Refusal::new(refusal.reason, words.own))?;
    let wrong = |reason: &str, remedy: &str| {
        Refusal::new(format!("the key {} cannot be used: {reason}", shown(key)), remedy)
    };
    let metadata = fs::metadata(key).map_err(|error| wrong(&error.to_string(), words.own))?;
    // Root's own may be read by a group, as distributions hand keys of the system to services.
    let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.permissions().mode() & others != 0 {
        return Err(wrong("others may read it", "Take that away with chmod 0600"));
    }
    let bytes = read(key).map_err(|error| wrong(&error.to_string(), words.own))?;
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        wrong(
            "it is no key in PEM without a password",
            "Give one without a password: openssl pkey -in OLD -out NEW",
        )
    })?;
    Ok((chain, key))
}

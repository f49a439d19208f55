//! How a connection to MariaDB or MySQL is to be encrypted: the words of the URL, and of `[client]`
//! in `~/.my.cnf`.
//!
//! | what is said | what counts |
//! |---|---|
//! | `ssl-mode` in the URL | that, with `ssl-verify-server-cert` and `ssl-ca` of the URL; the file gives files only |
//! | `ssl-verify-server-cert` or `ssl-ca` in the URL | they, or what the file says if that is stronger |
//! | none of them in the URL | what the file says; nothing at all is `PREFERRED` |
//!
//! Of several words in one place the strongest counts. Words of one place that contradict each
//! other are refused: not to encrypt, and how to.
//!
//! Written after the manuals of MySQL (Command Options for Encrypted Connections) and MariaDB
//! (Securing Connections for Client and Server). Differences: lists of revoked certificates,
//! fingerprints and other words that begin with `ssl` or `tls` and are not known here are refused,
//! not passed over; where MySQL wants `ssl-ca` for verifying, the system's authorities do without
//! one.
//!
//! Deliberately absent: reading the file (`secret.rs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::address::Address;
use super::super::secret::{INCLUDES, Surroundings};
use super::settings::{pair, plain, refused, system};
use super::{Encryption, Need, Roots, ServerKey, Verify, Words};
use crate::{Error, Result};

pub(super) static MYSQL: Words = Words {
    root: "Give the certificate of its authority by ssl-ca=FILE in the URL or in [client] of \
           ~/.my.cnf",
    name: "Connect by a name that is in the certificate, or say ssl-mode=VERIFY_CA if its \
           authority gives certificates to nobody else",
    plain: "ssl-mode=DISABLED in the URL does without encryption, where nobody can listen on the \
            way",
    own: "Give certificate and key by ssl-cert=FILE and ssl-key=FILE in the URL or in [client] of \
          ~/.my.cnf",
};

/// How well a connection is encrypted: the larger, the better.
type Level = (Need, Verify);

/// Words that are read here, or demand nothing.
const KNOWN: [&str; 9] = [
    "ssl",
    "ssl-mode",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-verify-server-cert",
    "tls-version",
    "ssl-session-data",
    "ssl-session-data-continue-on-failed-reuse",
];

/// What is wrong with the words of a place, and what to do.
type Wrong = (String, &'static str);

const CONTRADICTS: &str = "Take one of them away";

/// An option alone is one that is on.
fn is_on(value: &str) -> bool {
    !matches!(value.to_lowercase().as_str(), "0" | "off" | "false" | "no")
}

/// The name of an option without what turns it on or off.
fn bare(key: &str) -> &str {
    ["skip-", "disable-", "enable-"]
        .iter()
        .find_map(|before| key.strip_prefix(before))
        .unwrap_or(key)
}

/// Whether an option is on, if that is said; the error says that it is said to be both.
fn switched(
    words: &BTreeMap<String, String>,
    name: &str,
) -> std::result::Result<Option<bool>, Wrong> {
    let mut said = None;
    for (key, value) in words.iter().filter(|(key, _)| bare(key) == name) {
        let reversed = key.starts_with("skip-") || key.starts_with("disable-");
        let on = is_on(value) != reversed;
        if said.is_some_and(|said| said != on) {
            return Err((format!("says both that {name} is on and that it is off"), CONTRADICTS));
        }
        said = Some(on);
    }
    Ok(said)
}

/// How well a connection is to be encrypted, as one place says; the error says what is wrong with
/// that place.
fn level(words: &BTreeMap<String, String>) -> std::result::Result<Option<Level>, Wrong> {
    let mode = match words.get("ssl-mode") {
        Some(word) => Some(match word.to_uppercase().as_str() {
            "DISABLED" => (Need::Never, Verify::Nothing),
            "PREFERRED" => (Need::IfOffered, Verify::Nothing),
            "REQUIRED" => (Need::Always, Verify::Nothing),
            "VERIFY_CA" => (Need::Always, Verify::Chain),
            "VERIFY_IDENTITY" => (Need::Always, Verify::Name),
            _ => {
                let known = "DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY";
                return Err((
                    format!("has the ssl-mode `{word}`, which is not one of {known}"),
                    "Give one of these",
                ));
            }
        }),
        None => None,
    };
    let (encrypted, verified) =
        (switched(words, "ssl")?, switched(words, "ssl-verify-server-cert")?);
    let stricter = words.iter().find(|(key, value)| demands(key, value)).map(|(key, _)| key);
    let never = mode.is_some_and(|(need, _)| need == Need::Never) || encrypted == Some(false);
    let how = if verified == Some(true) {
        Some("ssl-verify-server-cert")
    } else if words.contains_key("ssl-ca") {
        Some("ssl-ca")
    } else if encrypted == Some(true) {
        Some("ssl")
    } else if mode.is_some_and(|(need, _)| need != Need::Never) {
        Some("ssl-mode")
    } else {
        stricter.map(String::as_str)
    };
    if let Some(how) = how.filter(|_| never) {
        return Err((
            format!("says that the connection is not encrypted, and by {how} how it is"),
            CONTRADICTS,
        ));
    }
    if verified == Some(false) && mode.is_some_and(|(_, verify)| verify == Verify::Name) {
        return Err((
            "says ssl-mode=VERIFY_IDENTITY, and that ssl-verify-server-cert is off".to_owned(),
            CONTRADICTS,
        ));
    }
    let all = [
        mode,
        encrypted.map(|on| (if on { Need::Always } else { Need::Never }, Verify::Nothing)),
        verified.filter(|on| *on).map(|_| (Need::Always, Verify::Name)),
        Some((Need::Always, Verify::Chain))
            .filter(|_| mode.is_none() && words.contains_key("ssl-ca")),
    ];
    Ok(all.into_iter().max().flatten())
}

/// Whether a word may demand what is not done here; one that is turned off demands nothing.
fn demands(key: &str, value: &str) -> bool {
    let name = bare(key);
    let off = name != key || (name == "ssl-fips-mode" && !is_on(value));
    (name.starts_with("ssl") || name.starts_with("tls")) && !KNOWN.contains(&name) && !off
}

/// For MariaDB and MySQL, as their clients read it; `file` are the options of `[client]`, with `-`
/// in their names.
///
/// # Errors
/// If a word is not known, or words contradict each other.
pub(in super::super) fn of_mysql(
    address: &Address,
    file: &BTreeMap<String, String>,
    surroundings: &Surroundings,
    host: &str,
) -> Result<Encryption> {
    let places = Places { address, url: &address.encryption, file };
    let url = places.url;
    let of_url = level(url)
        .map_err(|(reason, remedy)| refused(address, format!("the URL {reason}"), remedy))?;
    let is_socket = host.starts_with('/');
    let decided_by_url = url.contains_key("ssl-mode");
    if !decided_by_url && !is_socket && file.contains_key(INCLUDES) {
        return Err(refused(
            address,
            "~/.my.cnf includes other files, which are not read here and may say how the \
             connection is encrypted"
                .to_owned(),
            "Say that by ssl-mode in the URL",
        ));
    }
    let (need, verify) = match of_url {
        Some(level) if decided_by_url => level,
        of_url => of_url.max(places.of_file()?).unwrap_or((Need::IfOffered, Verify::Nothing)),
    };
    let mut decided = plain(&MYSQL);
    decided.server_key = places.server_key(is_socket)?;
    // Nobody else reads a socket: encrypted only if that is demanded.
    if need == Need::Never || (is_socket && need == Need::IfOffered) {
        return Ok(decided);
    }
    if let Some(error) = refused_word(address, url, file) {
        return Err(error);
    }
    let root = places.given("ssl-ca");
    if let Some(root) = root.as_ref().filter(|_| verify == Verify::Nothing) {
        log::warn!(
            "nothing is verified by ssl-ca={}, because ssl-mode says so",
            crate::figure::visible(root)
        );
    }
    decided.need = need;
    decided.verify = verify;
    decided.newest_only = places.newest_only()?;
    decided.roots = match root {
        Some(file) if !Path::new(&file).is_file() => {
            return Err(refused(
                address,
                format!("ssl-ca names {file}, which is not a file"),
                MYSQL.root,
            ));
        }
        Some(file) => Roots::File(PathBuf::from(file)),
        None => system(surroundings),
    };
    decided.own = pair(address, places.given("ssl-cert"), places.given("ssl-key"), &MYSQL)?;
    Ok(decided)
}

/// Where words are looked for, the first place first.
struct Places<'a> {
    address: &'a Address,
    url: &'a BTreeMap<String, String>,
    file: &'a BTreeMap<String, String>,
}

impl Places<'_> {
    fn given(&self, key: &str) -> Option<String> {
        self.url.get(key).or_else(|| self.file.get(key)).cloned()
    }

    /// How well the file says that the connection is to be encrypted.
    fn of_file(&self) -> Result<Option<Level>> {
        // The same word in the URL counts instead.
        let replaced = |key: &str| {
            ["ssl-verify-server-cert", "ssl-ca"]
                .iter()
                .any(|name| bare(key) == *name && self.url.contains_key(*name))
        };
        let left = self.file.iter().filter(|(key, _)| !replaced(key));
        level(&left.map(|(key, value)| (key.clone(), value.clone())).collect()).map_err(
            |(reason, remedy)| {
                let remedy = format!("{remedy}, or say by ssl-mode in the URL what counts");
                refused(self.address, format!("[client] of ~/.my.cnf {reason}"), &remedy)
            },
        )
    }

    /// The server's key, for a password on a connection in clear; on a socket no file is needed.
    fn server_key(&self, is_socket: bool) -> Result<ServerKey> {
        const NAME: &str = "get-server-public-key";
        match self.given("server-public-key-path").filter(|_| !is_socket) {
            Some(file) if !Path::new(&file).is_file() => Err(refused(
                self.address,
                format!("server-public-key-path names {file}, which is not a file"),
                "Copy public_key.pem from the server's data directory",
            )),
            Some(file) => Ok(ServerKey::File(PathBuf::from(file))),
            None => {
                let asked = switched(self.url, NAME)
                    .and_then(|of_url| Ok(of_url.or(switched(self.file, NAME)?)))
                    .map_err(|(reason, remedy)| {
                        let reason = format!("[client] of ~/.my.cnf {reason}");
                        refused(self.address, reason, remedy)
                    })?;
                Ok(if asked == Some(true) { ServerKey::Asked } else { ServerKey::Unknown })
            }
        }
    }

    /// Whether `tls-version` leaves the newest version only.
    fn newest_only(&self) -> Result<bool> {
        let Some(versions) = self.given("tls-version") else { return Ok(false) };
        let versions: Vec<String> =
            versions.split(',').map(|version| version.trim().to_lowercase()).collect();
        let known = ["tlsv1", "tlsv1.1", "tlsv1.2", "tlsv1.3"];
        if versions.iter().any(|version| !known.contains(&version.as_str())) {
            let reason = format!(
                "tls-version is `{}`, and not some of TLSv1.2 and TLSv1.3",
                versions.join(",")
            );
            return Err(refused(self.address, reason, "Give one or both of these"));
        }
        Ok(versions.iter().all(|version| version == "tlsv1.3"))
    }
}

/// The first word that demands what is not done here.
fn refused_word(
    address: &Address,
    url: &BTreeMap<String, String>,
    file: &BTreeMap<String, String>,
) -> Option<Error> {
    let (key, _) = url.iter().chain(file).find(|(key, value)| demands(key, value))?;
    let (reason, remedy) = match key.as_str() {
        "ssl-crl" | "ssl-crlpath" => (
            "a list of revoked certificates is given, and such lists are not read here".to_owned(),
            "Take ssl-crl and ssl-crlpath away, or go through a tunnel that reads them".to_owned(),
        ),
        "ssl-capath" => (
            "ssl-capath is given, and a directory is not read here".to_owned(),
            MYSQL.root.to_owned(),
        ),
        key => {
            let key = crate::figure::visible(key);
            (
                format!("{key} is given, and what that demands is not done here"),
                format!(
                    "Take {key} away, and say ssl-mode=VERIFY_IDENTITY to be sure of the server"
                ),
            )
        }
    };
    Some(refused(address, reason, &remedy))
}

//! What a server that has proved nothing may make of a password: which ways to log in are allowed.
//!
//! | the server asks for | goes to it |
//! |---|---|
//! | PostgreSQL: the password as it is | on a socket, in TLS, if `require_auth` names `password` |
//! | MySQL: the password, sealed for a key | on a socket or in TLS, unsealed; else for the key of |
//! | | `server-public-key-path`, or for the server's with `get-server-public-key` |
//!
//! A loopback address counts as any other: whoever may run a program here can listen on a port that
//! the server does not hold just now, but only the server's account makes its socket.
//!
//! Written after libpq's documentation (`require_auth`) and MySQL's manual (Caching SHA-2 Pluggable
//! Authentication). Differences: libpq gives a password in clear to whoever asks for it; a file of
//! `server-public-key-path` that cannot be read is an error here.
//!
//! Deliberately absent: seeing what the server asks for (`postgres/login.rs`, `mysql/wire.rs`).

use std::path::PathBuf;

use super::{Encryption, Refusal, Verify};

/// How a server of PostgreSQL's lets somebody in, by libpq's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Password,
    Md5,
    Gss,
    Sspi,
    Scram,
    OAuth,
    /// Without asking for anything.
    None,
}

const WAYS: [(&str, Way, &str); 7] = [
    ("password", Way::Password, "asks for the password in clear"),
    ("md5", Way::Md5, "asks for an MD5 hash of the password"),
    ("gss", Way::Gss, "asks for GSSAPI"),
    ("sspi", Way::Sspi, "asks for SSPI"),
    ("scram-sha-256", Way::Scram, "asks for SCRAM-SHA-256"),
    ("oauth", Way::OAuth, "asks for a token"),
    ("none", Way::None, "lets the user in without asking for anything"),
];

/// `require_auth`: the ways to log in that are allowed, or with `!` those that are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequireAuth {
    text: String,
    named: Vec<Way>,
    negated: bool,
}

impl RequireAuth {
    /// Reads it; the error says what is wrong with it.
    pub(super) fn of(text: &str) -> Result<RequireAuth, String> {
        let mut required = RequireAuth { text: text.to_owned(), ..RequireAuth::default() };
        for (at, word) in text.split(',').map(str::trim).enumerate() {
            let (negated, name) = word.strip_prefix('!').map_or((false, word), |name| (true, name));
            if at > 0 && negated != required.negated {
                return Err(
                    "which names ways that are allowed and, with !, ways that are not".to_owned()
                );
            }
            required.negated = negated;
            let known = WAYS.iter().find(|(known, ..)| *known == name);
            let Some((_, way, _)) = known else {
                let names: Vec<&str> = WAYS.iter().map(|(name, ..)| *name).collect();
                return Err(format!("which is not a list of {}", names.join(", ")));
            };
            if required.named.contains(way) {
                return Err(format!("which names {name} twice"));
            }
            required.named.push(*way);
        }
        Ok(required)
    }

    fn allows(&self, way: Way) -> bool {
        self.named.is_empty() || self.named.contains(&way) != self.negated
    }

    fn names(&self, way: Way) -> bool {
        !self.negated && self.named.contains(&way)
    }
}

/// Where a MySQL server's key comes from, for which a password is sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServerKey {
    /// There is none: the password is not sealed for anybody.
    #[default]
    Unknown,
    /// From whoever answers (`get-server-public-key`).
    Asked,
    /// A file (`server-public-key-path`).
    File(PathBuf),
}

impl Encryption {
    /// Whether a PostgreSQL at `host` may let the user in this way.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn allows(
        &self,
        way: Way,
        host: &str,
        on_socket: bool,
        encrypted: bool,
    ) -> Result<(), Refusal> {
        let required = &self.require_auth;
        if !required.allows(way) {
            let does =
                WAYS.iter().find(|(_, known, _)| *known == way).map_or("", |(_, _, does)| does);
            let reason = format!("require_auth is `{}`, and the server {does}", required.text);
            let remedy = "Check that it is the server that is meant, and its pg_hba.conf; or \
                          change \
                          require_auth (PGREQUIREAUTH)";
            return Err(Refusal::new(crate::figure::visible(&reason), remedy));
        }
        if way != Way::Password || on_socket {
            return Ok(());
        }
        if encrypted {
            self.warn_of_stranger(host);
        } else if required.names(Way::Password) {
            log::warn!(
                "the password goes in clear to {}: the server asks for it, and require_auth names \
                 it",
                crate::figure::visible(host)
            );
        } else {
            let remedy = "Let the server use scram-sha-256 in pg_hba.conf, or say \
                          sslmode=verify-full; \
                          require_auth=password in the URL gives it in clear all the same";
            let reason = "the server asks for the password in clear, and the connection is not \
                          encrypted: whoever listens on the way, or answers in the server's place, \
                          would have it";
            return Err(Refusal::new(reason, remedy));
        }
        Ok(())
    }

    /// Says that a password goes to a server that is encrypted and may be anybody's.
    pub(crate) fn warn_of_stranger(&self, host: &str) {
        if self.verify == Verify::Nothing && super::super::address::is_remote(host) {
            log::warn!(
                "the password itself goes to {}, encrypted, but nothing proves whose server it is: \
                 {}",
                crate::figure::visible(host),
                self.words.root
            );
        }
    }
}

/// A MySQL that wants the password for a key, where nothing proves that the key is its own.
pub(crate) fn no_key_of_server() -> Refusal {
    Refusal::new(
        "the server asks for the password itself, sealed for a key that it sends, and the \
         connection \
         is not encrypted: whoever answers in the server's place would send a key of their own and \
         read the password",
        "Say ssl-mode=VERIFY_IDENTITY, or server-public-key-path=FILE with the server's \
         public_key.pem; get-server-public-key=1 in the URL takes whatever key is sent",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn require_auth_means_what_it_means_to_libpq() {
        let all = WAYS.map(|(_, way, _)| way);
        let allowed = |text: &str| {
            let required = RequireAuth::of(text).expect(text);
            all.into_iter().filter(|way| required.allows(*way)).collect::<Vec<_>>()
        };
        assert_eq!(allowed("scram-sha-256"), [Way::Scram]);
        assert_eq!(allowed("scram-sha-256, md5"), [Way::Md5, Way::Scram]);
        assert_eq!(allowed("none"), [Way::None]);
        assert_eq!(allowed("!none").len(), all.len() - 1);
        assert!(
            !allowed("!password,!md5").contains(&Way::Md5)
                && allowed("!password").contains(&Way::None)
        );
        assert!(
            RequireAuth::default().allows(Way::Password)
                && !RequireAuth::default().names(Way::Password)
        );
        assert!(!RequireAuth::of("!md5").expect("a list").names(Way::Password));
        for (text, word) in [
            ("scram-sha-256,!md5", "that are not"),
            ("!md5,password", "that are not"),
            ("md5,md5", "twice"),
            ("SCRAM-SHA-256", "not a list of"),
            ("md5,", "not a list of"),
            ("!", "not a list of"),
        ] {
            let error = RequireAuth::of(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}

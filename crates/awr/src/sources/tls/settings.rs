//! How a connection is to be encrypted, in the words of each database's own programs. Those of
//! MariaDB and MySQL are read in `mysql.rs`.
//!
//! | database | in the URL | else |
//! |---|---|---|
//! | PostgreSQL | `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `sslnegotiation`, `channel_binding`, `ssl_min_protocol_version`, `require_auth` | the service file, `PGSSLMODE` and the others, `~/.postgresql/` |
//! | MariaDB, MySQL | `ssl-mode`, `ssl-ca`, `ssl-cert`, `ssl-key`, `ssl-verify-server-cert`, `get-server-public-key`, `server-public-key-path` | the `[client]` part of `~/.my.cnf` |
//! | Redis, Valkey | `rediss://` and `cacert`, `cert`, `key`, `verify` | `SSL_CERT_FILE` |
//!
//! Written after libpq's documentation (SSL Support; Database Connection Control Functions).
//! Differences: a file of authorities that is named and not there is an error also where nothing
//! would be verified by it; lists of revoked certificates are refused, not passed over; words that
//! demand what this program cannot do ([`DEMANDS`]) are refused wherever they stand; an environment
//! variable that is empty counts as none.
//!
//! Deliberately absent: connecting.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::address::Address;
use super::super::secret::Surroundings;
use super::{Binding, Encryption, Need, RequireAuth, Roots, ServerKey, Verify, Words};
use crate::{Error, Result};

static POSTGRES: Words = Words {
    root: "Give the certificate of its authority by sslrootcert=FILE in the URL or PGSSLROOTCERT \
           (sslrootcert=system for those that this machine trusts)",
    name: "Connect by a name that is in the certificate, or say sslmode=verify-ca if its authority \
           gives certificates to nobody else",
    plain: "sslmode=disable in the URL does without encryption, where nobody can listen on the way",
    own: "Give certificate and key by sslcert=FILE and sslkey=FILE in the URL, PGSSLCERT and \
          PGSSLKEY, or ~/.postgresql/postgresql.crt and .key",
};

static REDIS: Words = Words {
    root: "Give the certificate of its authority by ?cacert=FILE in the URL, or SSL_CERT_FILE",
    name: "Connect by a name that is in the certificate, or say ?verify=ca if its authority gives \
           certificates to nobody else",
    plain: "redis:// does without encryption, where nobody can listen on the way",
    own: "Give certificate and key by ?cert=FILE&key=FILE in the URL",
};

pub(super) fn refused(address: &Address, reason: String, remedy: &str) -> Error {
    Error::Source {
        action: "connect to",
        place: address.shown(),
        reason: crate::figure::visible(&reason),
        remedy: remedy.to_owned(),
    }
}

pub(super) fn plain(words: &'static Words) -> Encryption {
    Encryption {
        need: Need::Never,
        verify: Verify::Nothing,
        roots: Roots::Nobody,
        own: None,
        direct: false,
        binding: Binding::IfOffered,
        newest_only: false,
        require_auth: RequireAuth::default(),
        server_key: ServerKey::default(),
        words,
    }
}

/// The system's authorities, or those that the environment names.
pub(super) fn system(surroundings: &Surroundings) -> Roots {
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
        .map(|name| surroundings.variable(name).map(PathBuf::from));
    Roots::System(named.into_iter().flatten().collect())
}

/// Certificate and key of this client: both or none.
pub(super) fn pair(
    address: &Address,
    certificate: Option<String>,
    key: Option<String>,
    words: &Words,
) -> Result<Option<(PathBuf, PathBuf)>> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Ok(Some((PathBuf::from(certificate), PathBuf::from(key))))
        }
        (None, None) => Ok(None),
        _ => Err(refused(
            address,
            "of a certificate of this client and its key only one is given".to_owned(),
            words.own,
        )),
    }
}

/// Where a word of libpq's counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    OnSockets,
    OverNetworks,
    InTls,
}

/// Words of service files and the environment that may demand more than is done here: which values
/// do not, and where they count.
const DEMANDS: [(&str, &str, &[&str], Where); 4] = [
    ("requirepeer", "PGREQUIREPEER", &[], Where::OnSockets),
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"], Where::OverNetworks),
    ("sslcertmode", "PGSSLCERTMODE", &["disable", "allow"], Where::InTls),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", &["TLSv1.3"], Where::InTls),
];

/// Where libpq's words are looked for, the first place first.
struct Places<'a> {
    address: &'a Address,
    service: &'a BTreeMap<String, String>,
    surroundings: &'a Surroundings,
}

/// For PostgreSQL, as libpq reads it.
///
/// # Errors
/// If a word is not known, or words contradict each other.
pub(in super::super) fn of_postgres(
    address: &Address,
    service: &BTreeMap<String, String>,
    surroundings: &Surroundings,
    is_socket: bool,
) -> Result<Encryption> {
    let places = Places { address, service, surroundings };
    let mut decided = plain(&POSTGRES);
    decided.binding = places.binding()?;
    decided.require_auth = places.require_auth()?;
    let root = places.given("sslrootcert", "PGSSLROOTCERT");
    let of_system = root.as_deref() == Some("system");
    let mode = places.mode(of_system);
    let (need, asked) = places.level(&mode, of_system)?;
    decided.direct = places.direct(&mode, need == Need::Always || is_socket)?;
    decided.newest_only = places.newest_only()?;
    places.refuse_demands(|place| match place {
        Where::OnSockets => is_socket,
        Where::OverNetworks => !is_socket,
        Where::InTls => !is_socket && need != Need::Never,
    })?;
    // libpq passes over all of this on a socket, which nobody else reads.
    if is_socket || need == Need::Never {
        return Ok(Encryption { direct: false, ..decided });
    }
    decided.need = need;
    places.refuse_revocations()?;
    decided.roots = places.roots(root)?;
    decided.verify = places.verify(&mode, asked, &decided.roots)?;
    decided.own = places.own()?;
    Ok(decided)
}

impl Places<'_> {
    /// The value of a word. One that is there and empty is a mistake, and not the weakest word: it
    /// is found not to be known. An environment variable that is empty counts as none, as
    /// everywhere here.
    fn given(&self, key: &str, variable: &str) -> Option<String> {
        let found = self.address.encryption.get(key).or_else(|| self.service.get(key)).cloned();
        found.or_else(|| self.surroundings.variable(variable).map(str::to_owned))
    }

    /// Where libpq looks for a file that nobody names.
    fn in_home(&self, name: &str) -> Option<PathBuf> {
        Some(Path::new(self.surroundings.variable("HOME")?).join(".postgresql").join(name))
    }

    fn refused(&self, reason: String, remedy: &str) -> Error {
        refused(self.address, reason, remedy)
    }

    fn unknown(&self, key: &str, value: &str, known: &str) -> Error {
        let reason = format!("its {key} is `{value}`, which is not one of {known}");
        self.refused(reason, "Give one of these")
    }

    fn binding(&self) -> Result<Binding> {
        match self.given("channel_binding", "PGCHANNELBINDING").as_deref() {
            None | Some("prefer") => Ok(Binding::IfOffered),
            Some("disable") => Ok(Binding::Never),
            Some("require") => Ok(Binding::Always),
            Some(other) => Err(self.unknown("channel_binding", other, "disable, prefer, require")),
        }
    }

    fn require_auth(&self) -> Result<RequireAuth> {
        // Empty is none given, as libpq has it.
        let text = self.given("require_auth", "PGREQUIREAUTH").filter(|text| !text.is_empty());
        let Some(text) = text else { return Ok(RequireAuth::default()) };
        RequireAuth::of(&text).map_err(|wrong| {
            self.refused(
                format!("its require_auth is `{text}`, {wrong}"),
                "Name some of them, or with ! those that are not allowed",
            )
        })
    }

    /// The word of `sslmode`, or what counts where it is not said.
    fn mode(&self, of_system: bool) -> String {
        let old = self
            .service
            .get("requiressl")
            .map(String::as_str)
            .or_else(|| self.surroundings.variable("PGREQUIRESSL"));
        let old = old.is_some_and(|value| value.starts_with('1'));
        self.given("sslmode", "PGSSLMODE").unwrap_or_else(|| {
            let usual = if of_system { "verify-full" } else { "prefer" };
            (if old && !of_system { "require" } else { usual }).to_owned()
        })
    }

    /// What a mode asks for: whether to encrypt, and what to verify.
    fn level(&self, mode: &str, of_system: bool) -> Result<(Need, Verify)> {
        let (need, asked) = match mode {
            "disable" => (Need::Never, Verify::Nothing),
            "allow" => (Need::IfDemanded, Verify::Nothing),
            "prefer" => (Need::IfOffered, Verify::Nothing),
            "require" => (Need::Always, Verify::Nothing),
            "verify-ca" => (Need::Always, Verify::Chain),
            "verify-full" => (Need::Always, Verify::Name),
            other => {
                let known = "disable, allow, prefer, require, verify-ca, verify-full";
                return Err(self.unknown("sslmode", other, known));
            }
        };
        if of_system && asked != Verify::Name {
            return Err(self.refused(
                format!(
                    "sslmode={mode} is too weak for sslrootcert=system: everybody gets a \
                     certificate of some authority"
                ),
                "Say sslmode=verify-full, or name a file by sslrootcert",
            ));
        }
        Ok((need, asked))
    }

    /// Whether TLS begins without asking first, which takes a mode that is strong enough.
    fn direct(&self, mode: &str, strong: bool) -> Result<bool> {
        match self.given("sslnegotiation", "PGSSLNEGOTIATION").as_deref() {
            None | Some("postgres") => Ok(false),
            Some("direct") if strong => Ok(true),
            Some("direct") => Err(self.refused(
                format!("sslmode={mode} is too weak for sslnegotiation=direct"),
                "Say sslmode=require or more",
            )),
            Some(other) => Err(self.unknown("sslnegotiation", other, "postgres, direct")),
        }
    }

    fn newest_only(&self) -> Result<bool> {
        const KEY: &str = "ssl_min_protocol_version";
        match self.given(KEY, "PGSSLMINPROTOCOLVERSION").as_deref() {
            None | Some("TLSv1" | "TLSv1.1" | "TLSv1.2") => Ok(false),
            Some("TLSv1.3") => Ok(true),
            Some(other) => Err(self.unknown(KEY, other, "TLSv1, TLSv1.1, TLSv1.2, TLSv1.3")),
        }
    }

    /// Refuses a word of [`DEMANDS`] that demands something in a place that counts.
    fn refuse_demands(&self, counts: impl Fn(Where) -> bool) -> Result<()> {
        for (key, variable, harmless, place) in DEMANDS {
            let demand =
                self.given(key, variable).filter(|value| counts(place) && !value.is_empty());
            if let Some(value) = demand.filter(|value| !harmless.contains(&value.as_str())) {
                return Err(self.refused(
                    format!("{key} is `{value}`, and what that demands is not done here"),
                    &format!("Take {key} and {variable} away, or go through a tunnel that does it"),
                ));
            }
        }
        Ok(())
    }

    /// Refuses a list of revoked certificates that is named, and warns of the usual one.
    fn refuse_revocations(&self) -> Result<()> {
        let named =
            self.given("sslcrl", "PGSSLCRL").or_else(|| self.given("sslcrldir", "PGSSLCRLDIR"));
        if named.is_some() {
            return Err(self.refused(
                "a list of revoked certificates is given, and such lists are not read here"
                    .to_owned(),
                "Take sslcrl, sslcrldir, PGSSLCRL and PGSSLCRLDIR away, or go through a tunnel \
                 that reads them",
            ));
        }
        if self.in_home("root.crl").is_some_and(|path| path.exists()) {
            log::warn!("~/.postgresql/root.crl is not read: revoked certificates are accepted");
        }
        Ok(())
    }

    fn roots(&self, named: Option<String>) -> Result<Roots> {
        match named {
            Some(word) if word == "system" => Ok(system(self.surroundings)),
            Some(file) if !Path::new(&file).is_file() => {
                let reason = format!("sslrootcert names {file}, which is not a file");
                Err(self.refused(reason, POSTGRES.root))
            }
            Some(file) => Ok(Roots::File(PathBuf::from(file))),
            None => {
                let usual = self.in_home("root.crt").filter(|path| path.is_file());
                Ok(usual.map_or(Roots::Nobody, Roots::File))
            }
        }
    }

    /// What is verified: what the mode asks for, or more where there are authorities.
    fn verify(&self, mode: &str, asked: Verify, roots: &Roots) -> Result<Verify> {
        match (roots, asked) {
            (Roots::Nobody, Verify::Chain | Verify::Name) => {
                let usual = self
                    .in_home("root.crt")
                    .map_or("~/.postgresql/root.crt".to_owned(), |path| path.display().to_string());
                let reason = format!(
                    "sslmode={mode} needs the certificate of an authority, and {usual} is not there"
                );
                Err(self.refused(reason, POSTGRES.root))
            }
            // A file of authorities that is there counts for every mode.
            (Roots::File(_), Verify::Nothing) => Ok(Verify::Chain),
            (_, asked) => Ok(asked),
        }
    }

    /// Certificate and key of this client.
    fn own(&self) -> Result<Option<(PathBuf, PathBuf)>> {
        let of_home = |name: &str| {
            self.in_home(name)
                .filter(|path| path.is_file())
                .and_then(|path| path.to_str().map(str::to_owned))
        };
        let certificate = self.given("sslcert", "PGSSLCERT").or_else(|| of_home("postgresql.crt"));
        let key = self
            .given("sslkey", "PGSSLKEY")
            .or_else(|| of_home("postgresql.key").filter(|_| certificate.is_some()));
        match self.given("sslcertmode", "PGSSLCERTMODE").as_deref() {
            Some("disable") => Ok(None),
            _ => pair(self.address, certificate, key, &POSTGRES),
        }
    }
}

/// For Redis and Valkey: by the scheme of the URL.
///
/// # Errors
/// If a word is not known, or there are words and the scheme is not that of encrypted connections.
pub(in super::super) fn of_redis(
    address: &Address,
    surroundings: &Surroundings,
) -> Result<Encryption> {
    let given = |key: &str| address.encryption.get(key).filter(|value| !value.is_empty()).cloned();
    let mut decided = plain(&REDIS);
    if !address.encrypted {
        return match address.encryption.is_empty() {
            true => Ok(decided),
            false => {
                let reason =
                    "it says how a connection is verified and not that it is encrypted".to_owned();
                Err(refused(address, reason, "Write rediss:// (or valkeys://)"))
            }
        };
    }
    decided.need = Need::Always;
    decided.verify = match given("verify").as_deref() {
        None | Some("full") => Verify::Name,
        Some("ca") => Verify::Chain,
        Some("none") => Verify::Nothing,
        Some(other) => {
            return Err(refused(
                address,
                format!("its verify is `{other}`, which is not one of full, ca, none"),
                "Give one of these",
            ));
        }
    };
    decided.roots = match given("cacert") {
        Some(file) if !Path::new(&file).is_file() => {
            return Err(refused(
                address,
                format!("cacert names {file}, which is not a file"),
                REDIS.root,
            ));
        }
        Some(file) => Roots::File(PathBuf::from(file)),
        None => system(surroundings),
    };
    decided.own = pair(address, given("cert"), given("key"), &REDIS)?;
    Ok(decided)
}

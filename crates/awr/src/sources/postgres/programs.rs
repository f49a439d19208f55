//! What PostgreSQL's own programs are told, so that they connect to the same database as the same
//! user as a source does.
//!
//! Deliberately absent: running them.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::parameters;
use crate::Result;
use crate::sources::{Address, Surroundings};

/// How a connection is encrypted, in the words of an address.
const ENCRYPTION: [&str; 10] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "sslcrldir",
    "sslnegotiation",
    "channel_binding",
    "ssl_min_protocol_version",
    "require_auth",
];

/// Variables for such a program. The password is among them, if one is found.
///
/// # Errors
/// The service that is named is not there, or a word about encryption is not known.
pub(in crate::sources) fn environment(
    address: &Address,
    surroundings: &Surroundings,
) -> Result<Vec<(String, String)>> {
    let config: Config = parameters(address, surroundings)?.config;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let host = config.get_hosts().first().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    });
    let known = [
        ("PGHOST", host),
        ("PGPORT", config.get_ports().first().map(ToString::to_string)),
        ("PGUSER", config.get_user().map(str::to_owned)),
        ("PGDATABASE", config.get_dbname().map(str::to_owned)),
        ("PGPASSWORD", config.get_password().map(text)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let service = address.service.as_deref().or_else(|| surroundings.variable("PGSERVICE"));
    let service = service.and_then(|name| surroundings.service(name)).unwrap_or_default();
    let encryption = ENCRYPTION.iter().filter_map(|key| {
        let variable = format!("PG{}", key.replace('_', "").to_uppercase());
        let given = address.encryption.get(*key).or_else(|| service.get(*key)).cloned();
        let value = given.or_else(|| surroundings.variable(&variable).map(str::to_owned))?;
        Some((variable, value))
    });
    Ok(known.chain(encryption).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_told_what_a_source_would_use() {
        let around = Surroundings::of([
            ("PGPASSWORD", "se'cret"),
            ("PGPORT", "5433"),
            ("PGSSLMODE", "require"),
            ("PGSSLROOTCERT", "system"),
        ]);
        let url = "postgresql://copier@/shop?host=/run/pg&sslmode=verify-full";
        let told = environment(&Address::parse(url).unwrap(), &around).unwrap();
        let of = |name: &str| told.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        for (name, value) in [
            ("PGHOST", "/run/pg"),
            ("PGPORT", "5433"),
            ("PGUSER", "copier"),
            ("PGDATABASE", "shop"),
            ("PGPASSWORD", "se'cret"),
            ("PGSSLMODE", "verify-full"),
            ("PGSSLROOTCERT", "system"),
        ] {
            assert_eq!(of(name), Some(value), "{name}");
        }
        assert_eq!(of("PGSSLMINPROTOCOLVERSION"), None);
    }
}

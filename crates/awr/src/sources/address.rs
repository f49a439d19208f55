//! Addresses of sources: URLs as the databases' own programs take them, without passwords.
//!
//! | form | what |
//! |---|---|
//! | `postgresql://USER@HOST:PORT/DB?host=/socket/dir&service=NAME` | PostgreSQL; every part may be left out |
//! | `mysql://USER@HOST:PORT/?socket=/path` or `mariadb://...` | MariaDB or MySQL |
//! | `redis://USER@HOST:PORT` or `unix:///path` or `redis+unix:///path` | Redis or Valkey |
//! | `rediss://USER@HOST:PORT?cacert=FILE` | the same, encrypted |
//! | `host` | the machine |
//!
//! The words of each database for encryption (`sslmode`, `ssl-mode`, ...) are kept as they are;
//! `tls/settings.rs` reads them.
//!
//! A URL with a password is refused: everybody on the machine can read the arguments of a program,
//! and history files keep them.
//!
//! Invariant: no error repeats what stood where a password could be.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};

use crate::{Error, Result};

/// What kind of database an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// PostgreSQL.
    PostgreSql,
    /// MariaDB or MySQL.
    MySql,
    /// Redis or Valkey.
    Redis,
    /// No database: the machine.
    Machine,
}

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What it is.
    pub product: Product,
    /// The user's name, if given.
    pub user: Option<String>,
    /// A host name, an address, or a directory or path of a socket; if given.
    pub host: Option<String>,
    /// The port, if given.
    pub port: Option<u16>,
    /// The database, if given.
    pub database: Option<String>,
    /// PostgreSQL's service name, if given.
    pub service: Option<String>,
    /// Whether the scheme says that the connection is encrypted.
    pub encrypted: bool,
    /// How it is encrypted, in the words of the database's own programs. No part of what a source
    /// is called.
    pub encryption: BTreeMap<String, String>,
}

/// What each database's own programs call how a connection is encrypted.
const ENCRYPTION: [(Product, &[&str]); 3] = [
    (
        Product::PostgreSql,
        &[
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
        ],
    ),
    (
        Product::MySql,
        &[
            "ssl-mode",
            "ssl-ca",
            "ssl-cert",
            "ssl-key",
            "ssl-verify-server-cert",
            "ssl-crl",
            "ssl-capath",
            "get-server-public-key",
            "server-public-key-path",
        ],
    ),
    (Product::Redis, &["cacert", "cert", "key", "verify"]),
];

impl Address {
    /// Whether `text` has the form of an address, right or wrong; else it is the path of a
    /// directory or file.
    pub fn is_one(text: &str) -> bool {
        text == "host" || text.contains("://")
    }

    /// Reads an address.
    ///
    /// # Errors
    /// If it is none, or has a password in it.
    pub fn parse(text: &str) -> Result<Address> {
        let mut address = Address {
            product: Product::Machine,
            user: None,
            host: None,
            port: None,
            database: None,
            service: None,
            encrypted: false,
            encryption: BTreeMap::new(),
        };
        if text == "host" {
            return Ok(address);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(refused(
                "this argument",
                "it is not a URL",
                "Give for instance postgresql:///postgres",
            ));
        };
        address.product = product_of(scheme)?;
        address.encrypted = matches!(scheme, "rediss" | "valkeys");
        // A password may hold / or ?, which end the part that it stands in: what follows has the @
        // then.
        let authority_ends = rest.find(['/', '?']).unwrap_or(rest.len());
        if rest[authority_ends..].contains('@') {
            return Err(refused(
                "this URL",
                "it has an @ behind its host, so that a part of it may be a password",
                "Leave a password out (PGPASSWORD, MYSQL_PWD, REDISCLI_AUTH or a password file \
                 gives it), and write %40 for an @ in a name",
            ));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let place = match authority.rsplit_once('@') {
            Some((user, place)) => {
                if user.contains(':') {
                    return Err(password_in_url());
                }
                address.user = Some(user_of(user)?).filter(|user| !user.is_empty());
                place
            }
            None => authority,
        };
        address.place(place)?;
        let path = decoded(path)?;
        if matches!(scheme, "redis+unix" | "unix") {
            address.host = Some(format!("/{path}"));
        } else if !path.is_empty() && address.product != Product::Redis {
            address.database = Some(path);
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value)?;
            address.set(name, value)?;
        }
        Ok(address)
    }

    /// Takes a parameter of the URL.
    fn set(&mut self, name: &str, value: String) -> Result<()> {
        match (self.product, name) {
            (_, "password" | "pass" | "sslpassword" | "passfile") => {
                return Err(password_in_url());
            }
            (Product::PostgreSql, "host") | (_, "socket") => self.host = Some(value),
            (Product::PostgreSql, "port") => self.port = Some(port(&value)?),
            (Product::PostgreSql, "user") if value.contains(':') => {
                return Err(password_in_url());
            }
            (Product::PostgreSql, "user") => self.user = Some(value),
            (Product::PostgreSql, "dbname") => self.database = Some(value),
            (Product::PostgreSql, "service") => self.service = Some(value),
            (product, name) if is_of_encryption(product, name) => {
                self.encryption.insert(of_encryption(product, name), value);
            }
            _ => {
                return Err(refused(
                    "this URL",
                    &format!(
                        "it has the parameter `{}`, which is not known",
                        crate::figure::visible(name)
                    ),
                    "Leave it out; host, port, user, dbname, service and socket are known, \
                     sslmode and sslrootcert for PostgreSQL, \
                     ssl-mode and ssl-ca for MariaDB and MySQL, cacert and verify for rediss",
                ));
            }
        }
        Ok(())
    }

    fn place(&mut self, place: &str) -> Result<()> {
        let (host, number) = match place.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']').ok_or_else(|| {
                    refused(
                        "this URL",
                        "its address begins with [ and has no ]",
                        "Write [ADDRESS]:PORT",
                    )
                })?;
                (host, rest.strip_prefix(':'))
            }
            None => match place.split_once(':') {
                Some((host, number)) => (host, Some(number)),
                None => (place, None),
            },
        };
        if let Some(number) = number.filter(|number| !number.is_empty()) {
            self.port = Some(port(number)?);
        }
        if !host.is_empty() {
            self.host = Some(decoded(host)?);
        }
        Ok(())
    }

    /// The address as messages and snapshots show it, without control characters.
    pub fn shown(&self) -> String {
        let scheme = match self.product {
            Product::PostgreSql => "postgresql",
            Product::MySql => "mysql",
            Product::Redis if self.encrypted => "rediss",
            Product::Redis => "redis",
            Product::Machine => return "host".to_owned(),
        };
        let user = self.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let host = self.host.as_deref().unwrap_or_default();
        let port = self.port.map_or(String::new(), |port| format!(":{port}"));
        let database = self.database.as_ref().map_or(String::new(), |name| format!("/{name}"));
        // What stood behind percent signs is no command to a terminal.
        crate::figure::visible(&match host.starts_with('/') {
            true => format!("{scheme}://{user}{port}{database} at {host}"),
            false => format!("{scheme}://{user}{host}{port}{database}"),
        })
    }
}

/// Whether a host that was connected to is another machine: not a socket, a loopback address, or a
/// name or an address of this machine. A name is not looked up, so another name of this machine
/// counts as another machine, and a tunnel that begins here as this one.
pub(super) fn is_remote(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    if host.is_empty() || host.starts_with(['/', '@']) {
        return false;
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        // An address that a socket can be bound to is one of this machine's.
        return !address.to_canonical().is_loopback() && UdpSocket::bind((address, 0)).is_err();
    }
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let own = own.trim();
    // A short name on one side stands for the same machine; two whole names must be alike.
    let short = !host.contains('.') || !own.contains('.');
    let same = host.eq_ignore_ascii_case(own) || (short && first(host) == first(own));
    !(same || first(host) == "localhost" || host.to_lowercase().ends_with(".localhost"))
}

fn product_of(scheme: &str) -> Result<Product> {
    match scheme {
        "postgres" | "postgresql" => Ok(Product::PostgreSql),
        "mysql" | "mariadb" => Ok(Product::MySql),
        "redis" | "valkey" | "rediss" | "valkeys" | "redis+unix" | "unix" => Ok(Product::Redis),
        _ => Err(refused(
            "this URL",
            "its scheme is not one of postgresql, mysql, mariadb, redis, rediss, valkey, valkeys, \
             unix",
            "Give for instance postgresql:///postgres, \
             mysql:///?socket=/run/mysqld/mysqld.sock or redis://localhost",
        )),
    }
}

/// The name as it is kept: MySQL's programs take `-` and `_` for one letter.
fn of_encryption(product: Product, name: &str) -> String {
    if product == Product::MySql { name.replace('_', "-").to_lowercase() } else { name.to_owned() }
}

fn is_of_encryption(product: Product, name: &str) -> bool {
    let name = of_encryption(product, name);
    ENCRYPTION.iter().any(|(of, names)| *of == product && names.contains(&name.as_str()))
}

fn refused(place: &str, reason: &str, remedy: &str) -> Error {
    Error::Source {
        action: "use",
        place: place.to_owned(),
        reason: reason.to_owned(),
        remedy: remedy.to_owned(),
    }
}

fn password_in_url() -> Error {
    refused(
        "this URL",
        "it has a password in it, and everybody on this machine can read the arguments of a \
         program",
        "Leave the password out; give it by PGPASSWORD, MYSQL_PWD or REDISCLI_AUTH, by ~/.pgpass \
         or a service file, or by ~/.my.cnf",
    )
}

/// A user's name, which has no password behind it, however that is written.
fn user_of(text: &str) -> Result<String> {
    let user = decoded(text)?;
    if user.contains(':') { Err(password_in_url()) } else { Ok(user) }
}

/// For a name in front of a host of Redis, where its own programs take a password.
pub(super) fn perhaps_a_password() -> Error {
    refused(
        "this URL",
        "it has a name before its host and REDISCLI_AUTH is not set: redis-cli would take the name \
         for a password",
        "Give the password by REDISCLI_AUTH; the name before the host is that of the user",
    )
}

fn port(text: &str) -> Result<u16> {
    text.parse().map_err(|_| {
        refused("this URL", "its port is not a number from 0 to 65535", "Write HOST:PORT")
    })
}

/// Takes the percent signs out.
fn decoded(text: &str) -> Result<String> {
    let wrong = || {
        refused(
            "this URL",
            "a % in it is not followed by two hexadecimal digits",
            "Write %25 for a %",
        )
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let [high, low, tail @ ..] = tail else { return Err(wrong()) };
            let digit = |byte: &u8| (*byte as char).to_digit(16).ok_or_else(wrong);
            bytes.push(u8::try_from(digit(high)? * 16 + digit(low)?).map_err(|_| wrong())?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| refused("this URL", "it is not UTF-8", "Give it in UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_the_table_are_read() {
        let address = Address::parse("postgresql://monitor@db1:5433/shop").expect("a URL");
        assert_eq!(
            (
                address.user.as_deref(),
                address.host.as_deref(),
                address.port,
                address.database.as_deref()
            ),
            (Some("monitor"), Some("db1"), Some(5433), Some("shop"))
        );
        let address =
            Address::parse("postgresql:///postgres?host=%2Frun%2Fpg&service=prod").expect("a URL");
        assert_eq!(
            (address.host.as_deref(), address.service.as_deref()),
            (Some("/run/pg"), Some("prod"))
        );
        let address = Address::parse("mariadb://root@/?socket=/run/my.sock").expect("a URL");
        assert_eq!(
            (address.product, address.host.as_deref()),
            (Product::MySql, Some("/run/my.sock"))
        );
        let address = Address::parse("unix:///run/redis.sock").expect("a URL");
        assert_eq!(
            (address.product, address.host.as_deref()),
            (Product::Redis, Some("/run/redis.sock"))
        );
        let address = Address::parse("redis://[::1]:7000").expect("a URL");
        assert_eq!((address.host.as_deref(), address.port), (Some("::1"), Some(7000)));
        let address = Address::parse("rediss://h?cacert=%2Fetc%2Fca.pem").expect("a URL");
        assert_eq!((address.encrypted, address.shown().as_str()), (true, "rediss://h"));
        assert_eq!(address.encryption["cacert"], "/etc/ca.pem");
        let address = Address::parse("mysql://h/?ssl_mode=REQUIRED").expect("a URL");
        assert_eq!(address.encryption["ssl-mode"], "REQUIRED");
        let address = Address::parse("postgresql://h/d?sslmode=verify-full").expect("a URL");
        assert_eq!(
            (address.encryption["sslmode"].as_str(), address.shown().as_str()),
            ("verify-full", "postgresql://h/d")
        );
        assert!(
            Address::parse("postgresql://h/d?ssl-mode=REQUIRED").is_err(),
            "a word of another database"
        );
        assert_eq!(Address::parse("host").expect("the machine").product, Product::Machine);
        let address = Address::parse("postgresql://h/%1b[2J").expect("a URL");
        assert!(!address.shown().contains('\u{1b}'), "{}", address.shown());
    }

    #[test]
    fn a_password_is_refused_wherever_it_stands_and_never_repeated() {
        for url in [
            "postgresql://u:hunter2@h/d",
            "postgresql:///d?password=hunter2",
            "mysql://u:hunter2@h/",
            "redis://:hunter2@h",
            "postgresql://u%3Ahunter2@h",
            "postgresql://h/d?user=u:hunter2",
            "mysql://u%3ahunter2@h",
            "postgresql://h/d?sslpassword=hunter2",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains("password") && !error.contains("hunter2"), "{error}");
            assert!(error.contains("PGPASSWORD"), "{error}");
        }
    }

    #[test]
    fn a_socket_and_this_machine_are_not_remote_and_others_are() {
        let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        for host in [
            "",
            "/run/pg",
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            own.trim(),
        ] {
            assert!(!is_remote(host), "{host}");
        }
        assert!(is_remote("tiersmith-no-such-host.example.com"));
        // Addresses for documents, which no machine has; some let sockets be bound to any address.
        for host in ["192.0.2.7", "2001:db8::7"] {
            let any_is_bound = std::net::UdpSocket::bind((host, 0)).is_ok();
            assert!(any_is_bound || is_remote(host), "{host}");
        }
    }

    #[test]
    fn a_password_that_ends_the_host_early_is_not_taken_for_a_host_or_a_database() {
        for url in [
            "redis://hunter/2@h",
            "mysql://u:123/hunter2@h/",
            "postgresql://u:hunter?2@h/d",
            "postgresql://h/d?host=hunter2@h",
            "postgresql://u:hun@ter2@h/d",
        ] {
            let error = Address::parse(url).expect_err(url).to_string();
            assert!(error.contains("password") && !error.contains("hun"), "{error}");
        }
        let address = Address::parse("postgresql://me%40work@h/d%40e").expect("a URL");
        assert_eq!(
            (address.user.as_deref(), address.database.as_deref()),
            (Some("me@work"), Some("d@e"))
        );
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut rng = fastrand::Rng::with_seed(11);
        let parts = [
            "postgresql",
            "://",
            "mysql",
            "@",
            ":",
            "/",
            "?",
            "host=",
            "%",
            "%4",
            "%zz",
            "[",
            "]",
            "é",
            "1",
            "&",
        ];
        for _ in 0..20_000 {
            let text: String =
                (0..rng.usize(0..9)).map(|_| parts[rng.usize(0..parts.len())]).collect();
            if let Err(error) = Address::parse(&text) {
                assert!(!error.to_string().is_empty());
            }
        }
    }
}

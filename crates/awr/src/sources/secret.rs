//! Where passwords and defaults of connections come from: the environment, and the files the databases' own programs read.
//!
//! | database | in this order |
//! |---|---|
//! | PostgreSQL | `PGPASSWORD`; the service file (`PGSERVICEFILE`, `~/.pg_service.conf`); the password file (`PGPASSFILE`, `~/.pgpass`) |
//! | MariaDB, MySQL | `MYSQL_PWD`; the `[client]` part of `~/.my.cnf` |
//! | Redis, Valkey | `REDISCLI_AUTH` |
//!
//! A password file that others may read is passed over with a warning, as libpq does; `~/.my.cnf` is read all the same, as its own
//! client does.
//!
//! Invariant: a secret is handed to the connection and to nobody else; [`Surroundings`] prints without it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The largest password or options file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Environment and home directory. Tests make their own.
#[derive(Clone, Default)]
pub struct Surroundings {
    variables: BTreeMap<String, String>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.variables.keys()).finish()
    }
}

/// The variables that are looked at.
const NAMES: [&str; 25] = [
    "HOME",
    "USER",
    "PGHOST",
    "PGPORT",
    "PGUSER",
    "PGDATABASE",
    "PGPASSWORD",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLMODE",
    "PGREQUIRESSL",
    "PGSSLROOTCERT",
    "PGSSLCERT",
    "PGSSLKEY",
    "PGSSLCRL",
    "PGSSLCRLDIR",
    "PGSSLNEGOTIATION",
    "PGSSLMINPROTOCOLVERSION",
    "PGCHANNELBINDING",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "MYSQL_PWD",
    "MYSQL_UNIX_PORT",
    "REDISCLI_AUTH",
];

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        let variables = NAMES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        Surroundings { variables: variables.collect() }
    }

    /// Surroundings that hold these variables only.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Surroundings {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Surroundings { variables: variables.collect() }
    }

    /// A variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn file(&self, variable: &str, at_home: &str) -> Option<PathBuf> {
        self.variable(variable)
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(self.variable("HOME")?).join(at_home)))
    }

    /// The settings of a PostgreSQL service.
    pub(super) fn service(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let text = read(&self.file("PGSERVICEFILE", ".pg_service.conf")?, false)?;
        section(&text, name)
    }

    /// The `[client]` settings of the options file of MariaDB and MySQL.
    pub(super) fn my_cnf(&self) -> BTreeMap<String, String> {
        let path = self.variable("HOME").map(|home| Path::new(home).join(".my.cnf"));
        path.and_then(|path| read(&path, true)).and_then(|text| section(&text, "client")).unwrap_or_default()
    }

    /// The password that PostgreSQL's password file has for this connection.
    pub(super) fn pgpass(&self, host: &str, port: u16, database: &str, user: &str) -> Option<String> {
        let text = read(&self.file("PGPASSFILE", ".pgpass")?, true)?;
        let host = if host.starts_with('/') { "localhost" } else { host };
        let wanted = [host, &port.to_string(), database, user];
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields = fields(line);
            if let [a, b, c, d, password] = fields.as_slice()
                && [a, b, c, d].iter().zip(wanted).all(|(field, wanted)| *field == "*" || *field == wanted)
            {
                return Some(password.clone());
            }
        }
        None
    }
}

/// The text of a file; nothing, with a warning, if it holds passwords and others may read it.
fn read(path: &Path, secret: bool) -> Option<String> {
    let metadata = fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= MOST_BYTES)?;
    if secret
        && metadata.permissions().mode() & 0o077 != 0
        && path.file_name().is_some_and(|name| name != ".my.cnf")
    {
        log::warn!("{} is passed over: others may read it. Take that away with chmod 0600", path.display());
        return None;
    }
    fs::read_to_string(path).ok()
}

/// Fields between colons; a backslash makes the next character a plain one.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => fields.last_mut().into_iter().for_each(|field| field.extend(chars.next())),
            ':' if fields.len() < 5 => fields.push(String::new()),
            _ => fields.last_mut().into_iter().for_each(|field| field.push(c)),
        }
    }
    fields
}

/// The settings below `[name]`; quotes around a value are taken off.
fn section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = title == name;
            if inside {
                found.get_or_insert_default();
            }
        } else if inside
            && !line.starts_with(['#', ';'])
            && !line.is_empty()
            && let Some(settings) = &mut found
        {
            // A name alone turns something on.
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            let value = value.trim();
            let bare = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
            settings.insert(key.trim().to_owned(), bare.unwrap_or(value).to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_file_is_read_as_libpq_reads_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join(".pgpass");
        fs::write(&file, "# note\ndb1:5432:*:monitor:se\\:cret\nlocalhost:*:*:*:local\n").expect("written");
        let home = dir.path().to_str().expect("UTF-8");
        let surroundings = Surroundings::of([("HOME", home)]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
        assert_eq!(surroundings.pgpass("db1", 5432, "shop", "monitor"), None, "others may read it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
        assert_eq!(surroundings.pgpass("db1", 5432, "shop", "monitor").as_deref(), Some("se:cret"));
        assert_eq!(surroundings.pgpass("/run/pg", 1, "d", "u").as_deref(), Some("local"));
        assert_eq!(surroundings.pgpass("db1", 5432, "shop", "other"), None);
        assert!(!format!("{:?}", Surroundings::of([("PGPASSWORD", "hunter2")])).contains("hunter2"));
    }

    #[test]
    fn services_and_options_are_sections() {
        let text = "[a]\nhost=one\n[b]\n# c\n\nhost = \"two\"\nskip-ssl\npassword='x=y'\n";
        let found = section(text, "b").expect("there");
        assert_eq!((found["host"].as_str(), found["password"].as_str()), ("two", "x=y"));
        assert_eq!((found["skip-ssl"].as_str(), found.len()), ("", 3));
        assert_eq!(section(text, "c"), None);
    }
}

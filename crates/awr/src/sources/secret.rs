//! Where passwords and defaults of connections come from: the environment, and the files the
//! databases' own programs read.
//!
//! | database | in this order |
//! |---|---|
//! | PostgreSQL | `PGPASSWORD`; the service file (`PGSERVICEFILE`, `~/.pg_service.conf`); the password file (`PGPASSFILE`, `~/.pgpass`) |
//! | MariaDB, MySQL | `MYSQL_PWD`; the `[client]` part of `~/.my.cnf` |
//! | Redis, Valkey | `REDISCLI_AUTH` |
//!
//! A password file that others may read is passed over with a warning, as libpq does; `~/.my.cnf`
//! is read all the same, as its own client does.
//!
//! Invariant: a secret is handed to the connection and to nobody else; [`Surroundings`] prints
//! without it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The largest password or options file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// The beginning of the lines of an options file that include others.
pub(super) const INCLUDES: &str = "!include";

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
const NAMES: [&str; 30] = [
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
    "PGSSLMAXPROTOCOLVERSION",
    "PGSSLCERTMODE",
    "PGCHANNELBINDING",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGGSSENCMODE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "MYSQL_PWD",
    "MYSQL_UNIX_PORT",
    "REDISCLI_AUTH",
];

impl Surroundings {
    /// Those of this process.
    pub fn of_process() -> Surroundings {
        // What is not UTF-8 must not count as not set: it is no word that is known, and no file
        // that is there.
        let value = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
        let variables = NAMES.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?)));
        Surroundings { variables: variables.collect() }
    }

    /// Surroundings that hold these variables only.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Surroundings {
        let variables =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
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
        Some(section(&text, name)?.into_iter().collect())
    }

    /// The `[client]` settings of the options file of MariaDB and MySQL, their names with `-` for
    /// `_`; none if there is no file. Of the same name twice the last counts. [`INCLUDES`] is among
    /// them if the file includes others, which are not read.
    ///
    /// # Errors
    /// If there is a file that cannot be read: it may say that connections are encrypted.
    pub(super) fn my_cnf(&self) -> io::Result<BTreeMap<String, String>> {
        let Some(path) = self.variable("HOME").map(|home| Path::new(home).join(".my.cnf")) else {
            return Ok(BTreeMap::new());
        };
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(BTreeMap::new());
            }
            Err(error) => return Err(error),
        };
        if !metadata.is_file() || metadata.len() > MOST_BYTES {
            return Err(io::Error::other("it is no file, or larger than 1 MiB"));
        }
        // A comment may be in another encoding.
        let bytes = fs::read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        let name = |key: String| {
            let key = key.replace('_', "-").to_lowercase();
            key.strip_prefix("loose-").map_or(key.clone(), str::to_owned)
        };
        let settings = section(&text, "client").unwrap_or_default();
        let mut settings: BTreeMap<_, _> =
            settings.into_iter().map(|(key, value)| (name(key), value)).collect();
        if text.lines().any(|line| line.trim_start().starts_with(INCLUDES)) {
            settings.insert(INCLUDES.to_owned(), String::new());
        }
        Ok(settings)
    }

    /// The password that PostgreSQL's password file has for this connection.
    pub(super) fn pgpass(
        &self,
        host: &str,
        port: u16,
        database: &str,
        user: &str,
    ) -> Option<String> {
        let text = read(&self.file("PGPASSFILE", ".pgpass")?, true)?;
        let host = if host.starts_with('/') { "localhost" } else { host };
        let wanted = [host, &port.to_string(), database, user];
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields = fields(line);
            if let [a, b, c, d, password] = fields.as_slice()
                && [a, b, c, d]
                    .iter()
                    .zip(wanted)
                    .all(|(field, wanted)| *field == "*" || *field == wanted)
            {
                return Some(password.clone());
            }
        }
        None
    }
}

/// The text of a file; nothing, with a warning, if it holds passwords and others may read it.
fn read(path: &Path, secret: bool) -> Option<String> {
    let metadata =
        fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= MOST_BYTES)?;
    if secret && metadata.permissions().mode() & 0o077 != 0 {
        log::warn!(
            "{} is passed over: others may read it. Take that away with chmod 0600",
            path.display()
        );
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

/// The settings below `[name]`, in their order; quotes around a value are taken off.
fn section(text: &str, name: &str) -> Option<Vec<(String, String)>> {
    let mut found: Option<Vec<(String, String)>> = None;
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        // What follows the bracket is a comment.
        if let Some((title, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            inside = title.trim() == name;
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
            let bare = ['"', '\'']
                .iter()
                .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
            settings.push((key.trim().to_owned(), bare.unwrap_or(value).to_owned()));
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
        fs::write(&file, "# note\ndb1:5432:*:monitor:se\\:cret\nlocalhost:*:*:*:local\n")
            .expect("written");
        let home = dir.path().to_str().expect("UTF-8");
        let surroundings = Surroundings::of([("HOME", home)]);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
        assert_eq!(surroundings.pgpass("db1", 5432, "shop", "monitor"), None, "others may read it");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("changed");
        assert_eq!(surroundings.pgpass("db1", 5432, "shop", "monitor").as_deref(), Some("se:cret"));
        assert_eq!(surroundings.pgpass("/run/pg", 1, "d", "u").as_deref(), Some("local"));
        assert_eq!(surroundings.pgpass("db1", 5432, "shop", "other"), None);
        assert!(
            !format!("{:?}", Surroundings::of([("PGPASSWORD", "hunter2")])).contains("hunter2")
        );
    }

    #[test]
    fn services_and_options_are_sections() {
        let text = "[a]\nhost=one\n[b]\n# c\n\nhost = \"two\"\nskip-ssl\npassword='x=y'\n";
        let found: BTreeMap<_, _> = section(text, "b").expect("there").into_iter().collect();
        assert_eq!((found["host"].as_str(), found["password"].as_str()), ("two", "x=y"));
        assert_eq!((found["skip-ssl"].as_str(), found.len()), ("", 3));
        assert_eq!(section(text, "c"), None);
        let titled = section("[ b ] # the other\nhost=x\n", "b").expect("there");
        assert_eq!(titled, [("host".to_owned(), "x".to_owned())]);
    }

    #[test]
    fn an_options_file_that_is_there_is_read_whole_or_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().to_str().expect("UTF-8");
        let surroundings = Surroundings::of([("HOME", home)]);
        assert!(surroundings.my_cnf().expect("no file").is_empty());
        let file = dir.path().join(".my.cnf");
        // A comment in another encoding, two spellings of one name, of which the last counts.
        fs::write(
            &file,
            b"[client]\n# \
                           \xe4\nssl_mode=DISABLED\nloose-SSL-Mode=VERIFY_CA\n\
                            ssl-mode=VERIFY_IDENTITY\nssl_ca=/x\n",
        )
        .expect("written");
        let found = surroundings.my_cnf().expect("read");
        assert_eq!(
            (found["ssl-mode"].as_str(), found["ssl-ca"].as_str()),
            ("VERIFY_IDENTITY", "/x")
        );
        assert_eq!(found.len(), 2);
        fs::write(
            &file,
            "!includedir /etc/x\n[client]\nssl-mode=VERIFY_IDENTITY\nssl_mode=DISABLED\n",
        )
        .expect("written");
        let found = surroundings.my_cnf().expect("read");
        assert!(found["ssl-mode"] == "DISABLED" && found.contains_key(INCLUDES), "{found:?}");
        fs::write(&file, vec![b'#'; (MOST_BYTES + 1) as usize]).expect("written");
        surroundings.my_cnf().expect_err("too large to be read");
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("made");
        surroundings.my_cnf().expect_err("no file");
        // The words of a link that leads nowhere are not known; its own client reads none either.
        fs::remove_dir(&file).expect("removed");
        std::os::unix::fs::symlink("/no/such/file", &file).expect("a link");
        assert!(surroundings.my_cnf().expect("nothing there").is_empty());
    }
}

//! A copy of a database, for a trial that leaves the database alone: where it is, how it is made,
//! and how it goes.
//!
//! ```text
//! DIR/tiersmith-copy      whose it is: the word in the trial's journal
//! DIR/data                the copy, which is attached as any home is
//! DIR/run                 its server's socket and messages
//! ```
//!
//! The database makes the copy itself, online (`pg_basebackup`), and a server of its own runs on
//! it. For the steps that follow it is a database like any other, with a server that PostgreSQL's
//! own program stops and starts.
//!
//! Invariants: the original is asked and read, and told nothing; an unprivileged account makes the
//! copy and serves it, because both follow what the original sends; nothing is removed that the
//! trial did not make, or that is mounted.
//! Deliberately absent: other databases than PostgreSQL, and tablespaces.
//!
//! Read next: `look.rs` (before anything is made), `settings.rs` (what the copy is told).

mod look;
mod settings;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tiersmith_awr::sources::Address;
use tiersmith_dir::{Dir, Owner, PathText};

pub(super) use look::look;

use super::plan::{Plan, Service, ask};
use crate::account::Account;
use crate::error::{During, Error, Result};
use crate::process::{command_with_group, log_end};

/// Says whose a copy is.
const MARK: &str = "tiersmith-copy";
/// The copy itself, in its directory.
const DATA: &str = "data";
/// Where an attach that was killed has moved it.
const DATA_ASIDE: &str = "data.tiersmith-home";
/// What its server makes: the socket and its messages.
const RUN: &str = "run";
/// The server's messages.
const LOG: &str = "log";
/// What is mounted.
const MOUNTS: &str = "/proc/self/mountinfo";
/// Bytes of a mark, and of the end of the messages that an error shows.
const SMALL: u64 = 64 << 10;
/// Names in a directory that should be empty.
const NAMES_MAX: usize = 10_000;
/// How often a directory is removed to which something is written still.
const TRIES: usize = 50;
/// How long is waited between two of these.
const BETWEEN: Duration = Duration::from_millis(100);
/// What would let a server on the copy wait for others or follow them.
const SIGNALS: [&str; 3] = ["standby.signal", "recovery.signal", "recovery.conf"];
/// What decides for clients where a database is and how it is reached, besides what a load is told.
const OF_ORIGINAL: [&str; 14] = [
    "PGCHANNELBINDING",
    "PGGSSENCMODE",
    "PGHOSTADDR",
    "PGLOADBALANCEHOSTS",
    "PGPASSFILE",
    "PGPASSWORD",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGREQUIRESSL",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLMODE",
    "PGSSLNEGOTIATION",
    "PGTARGETSESSIONATTRS",
];

/// A copy, and what it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnCopy {
    /// The address of the database that is copied.
    pub of: String,
    /// The directory that everything of the copy is in.
    pub dir: PathText,
    /// Whether that is made for the copy, and goes with it.
    pub is_made: bool,
    /// Tells it from other trials' copies.
    pub mark: String,
    /// The program that makes the copy.
    pub program: PathText,
    /// Who the trial is, to the database.
    pub user: String,
    /// The database that the trial was given.
    pub database: String,
    /// Bytes that stay free where the copy is: the original may need them.
    #[serde(default)]
    pub reserve: u64,
}

impl OnCopy {
    /// The directory that is attached.
    fn data(&self) -> PathBuf {
        self.dir.0.join(DATA)
    }

    /// The directory that its server's socket is in.
    fn run(&self) -> PathBuf {
        self.dir.0.join(RUN)
    }

    /// Its address.
    fn url(&self) -> String {
        let run = self.run().display().to_string();
        let of = [&self.user, &self.database, &run].map(|text| encoded(text));
        format!("postgresql://{}@/{}?host={}&port=5432", of[0], of[1], of[2])
    }

    /// Tells a load where the copy is, in the words of PostgreSQL's own programs, and takes out of
    /// its environment what would lead it to the original.
    pub(super) fn tell(&self, load: &mut Command) {
        for name in OF_ORIGINAL {
            load.env_remove(name);
        }
        load.env("PGHOST", self.run()).env("PGPORT", "5432");
        load.env("PGUSER", &self.user).env("PGDATABASE", &self.database);
        load.env("TIERSMITH_URL", self.url());
    }

    /// Makes the directories, empty, for the account of the server.
    ///
    /// # Errors
    /// Something else is in them, or the system refuses.
    ///
    /// # Durability
    /// Whose they are is durable before anything is in them.
    pub(super) fn prepare(&self, plan: &Plan) -> Result<()> {
        let path = &self.dir.0;
        let owner = owner_of(plan);
        if self.is_made {
            let (above, name) = Dir::holding(path).during("open the directory above", path)?;
            // The account of the server has to pass it.
            let mode = if owner.is_some() { 0o711 } else { 0o700 };
            match above.make_dir(&name, mode, None) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => drop(made.during("make", path)?),
            }
            above.sync().during("sync", above.path())?;
        }
        let dir = Dir::open(path).during("open", path)?;
        judge(&dir)?;
        let marked = dir.replace(MARK, self.mark.as_bytes(), 0o600, None);
        marked.during("write", dir.path_of(MARK))?;
        for name in [DATA, RUN] {
            dir.make_dir(name, 0o700, owner).during("make", dir.path_of(name))?;
        }
        dir.sync().during("sync", path)
    }

    /// The command that makes the copy. It runs as the account that the server will run as, and
    /// ends with who started it, and with it the process that receives WAL, so that a killed trial
    /// asks nothing more of the original. Without a slot that process never says what it has: the
    /// original must not wait for it as for a synchronous standby.
    ///
    /// # Errors
    /// A program of the system is missing.
    pub(super) fn making(&self, plan: &Plan) -> Result<Command> {
        let mut words: Vec<OsString> = vec!["--pgdata".into(), self.data().into()];
        words.extend(["--dbname", &self.of, "--username", &self.user].map(OsString::from));
        words.extend(
            [
                "--format=plain",
                "--wal-method=stream",
                "--no-slot",
                "--checkpoint=spread",
                "--no-password",
            ]
            .map(OsString::from),
        );
        let account = account_of(plan);
        let mut making = command_with_group(&self.program.0, &words, account.as_ref())?;
        // How the original is reached, and its password, are in the environment.
        let own = account.is_none();
        let of_client = std::env::vars_os().filter(|(name, _)| {
            name.to_str().is_some_and(|name| name.starts_with("PG") || (own && name == "HOME"))
        });
        making.envs(of_client).env("PGAPPNAME", "tiersmith trial copy");
        Ok(making)
    }

    /// Makes a database of its own of what was copied: configured as the original, and without what
    /// would let it act on anything but itself.
    ///
    /// # Errors
    /// The original does not answer, or the system refuses.
    pub(super) fn make_its_own(&self, plan: &Plan) -> Result<()> {
        let address = Address::parse(&self.of)?;
        let rows = ask(&address, &[settings::QUESTION])?.into_iter().next().unwrap_or_default();
        let configuration = settings::configuration(&rows);
        let owner = owner_of(plan);
        let path = self.data();
        let data = Dir::open(&self.dir.0).and_then(|dir| dir.sub(DATA)).during("open", &path)?;
        for name in SIGNALS {
            if data.look(name).during("look at", data.path_of(name))?.is_some() {
                data.remove(name).during("remove", data.path_of(name))?;
            }
        }
        for (name, text) in [
            // What ALTER SYSTEM wrote is among the settings already.
            ("postgresql.auto.conf", ""),
            ("postgresql.conf", &configuration),
            ("pg_hba.conf", settings::HBA),
            ("pg_ident.conf", ""),
        ] {
            data.replace(name, text.as_bytes(), 0o600, owner)
                .during("write", data.path_of(name))?;
        }
        Ok(())
    }

    /// Whether the directory is this trial's by now.
    ///
    /// # Errors
    /// It cannot be looked at, and may be.
    pub(super) fn is_there(&self) -> Result<bool> {
        let path = &self.dir.0;
        match Dir::open(path).and_then(|dir| dir.read(MARK, SMALL)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            mark => Ok(mark.during("look for the copy in", path)? == self.mark.as_bytes()),
        }
    }

    /// Whether so much is free where the copy is that nobody else runs out of space for it.
    ///
    /// # Errors
    /// There is less, and the copy has to end.
    pub(super) fn has_room(&self) -> Result<()> {
        let path = &self.dir.0;
        let Ok(room) = rustix::fs::statvfs(path) else { return Ok(()) };
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        if free >= self.reserve {
            return Ok(());
        }
        let reason = format!(
            "{} are free, and {} are left to others; the trial ends with its copy. Give a \
             directory with more room",
            tiersmith_awr::figure::bytes(free as f64),
            tiersmith_awr::figure::bytes(self.reserve as f64)
        );
        Err(place(path, reason))
    }

    /// Removes the copy, whose server does not run and which is not attached. What others put
    /// beside it stays, and the directory with it.
    ///
    /// # Errors
    /// Something is mounted there; the system refuses. The same again goes on.
    pub(super) fn remove(&self) -> Result<()> {
        let path = &self.dir.0;
        if self.is_there()? {
            let mounts = fs::read_to_string(MOUNTS).during("read", MOUNTS)?;
            let mut at = mounts.lines().filter_map(|line| line.split(' ').nth(4));
            // A name with an odd letter in it is escaped there; such a directory is refused.
            let within = |at: &&str| Path::new(at) != path && Path::new(at).starts_with(path);
            if let Some(at) = at.find(within) {
                let reason = format!("{at} is mounted still, and what is in it would go too");
                return Err(place(path, reason));
            }
            let dir = Dir::open(path).during("open", path)?;
            for name in [DATA, DATA_ASIDE, RUN] {
                remove_tree(&dir, name).during("remove", dir.path_of(name))?;
            }
            for name in half_marks(&dir)? {
                dir.remove(&name).during("remove", dir.path_of(&name))?;
            }
            dir.remove(MARK).during("remove", dir.path_of(MARK))?;
            dir.sync().during("sync", path)?;
        }
        if self.is_made {
            // One that is not empty is not only ours; one that is not there is what is wanted.
            let _ = Dir::holding(path).and_then(|(above, name)| above.remove_dir(name));
        }
        Ok(())
    }

    /// The end of what the server on the copy printed.
    pub(super) fn log_end(&self) -> String {
        let log =
            Dir::open(&self.dir.0).and_then(|dir| dir.sub(RUN)).and_then(|run| run.open_file(LOG));
        let mut bytes = Vec::new();
        let read = log.and_then(|log| {
            let skip = log.metadata()?.len().saturating_sub(SMALL);
            let mut log = log;
            io::Seek::seek(&mut log, io::SeekFrom::Start(skip))?;
            log.take(SMALL).read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => log_end(&String::from_utf8_lossy(&bytes)),
            Err(_) => "nothing".into(),
        }
    }
}

/// Marks that a power cut or a kill has left half written.
fn half_marks(dir: &Dir) -> Result<Vec<OsString>> {
    let mut names = dir.names(NAMES_MAX).during("list", dir.path())?;
    let begins = format!("{MARK}.");
    names.retain(|name| name.to_str().is_some_and(|name| name.starts_with(&begins)));
    Ok(names)
}

/// Removes a directory with all that is in it; links are not followed there. What wrote to it may
/// not have ended yet with the process that was killed for it.
fn remove_tree(dir: &Dir, name: &str) -> io::Result<()> {
    let mut tries = 0;
    while dir.look(name)?.is_some() {
        match fs::remove_dir_all(dir.through(name)) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty && tries < TRIES => {
                tries += 1;
                std::thread::sleep(BETWEEN);
            }
            removed => removed?,
        }
    }
    Ok(())
}

/// Nobody else has a say in the directory, and nothing is in it.
fn judge(dir: &Dir) -> Result<()> {
    let path = dir.path();
    let found = dir.found().during("look at", path)?;
    if found.user != rustix::process::geteuid().as_raw() || found.mode & 0o022 != 0 {
        return Err(place(
            path,
            format!(
                "it belongs to user {} and has mode {:04o}, so that others can change what is in \
                 it; give a directory of your own that only you can write to, or one that is not \
                 there yet",
                found.user, found.mode
            ),
        ));
    }
    let names = dir.names(NAMES_MAX).during("list", path)?;
    let half = half_marks(dir)?;
    if let Some(name) = names.iter().find(|name| !half.contains(*name)) {
        return Err(place(
            path,
            format!(
                "it is not empty ({} is in it), and the copy goes with all that is in its \
                 directory; give an empty one, or one that is not there yet",
                tiersmith_awr::figure::visible(&name.to_string_lossy())
            ),
        ));
    }
    Ok(())
}

/// The error of a directory that cannot have a copy.
fn place(path: &Path, reason: String) -> Error {
    Error::Place { what: "copy", path: path.to_path_buf(), reason }
}

/// The account of the server, where it is another than the caller's.
fn account_of(plan: &Plan) -> Option<Account> {
    let Service::PgCtl { uid, gid, .. } = plan.service else { return None };
    let other = rustix::process::geteuid().as_raw() != uid;
    other.then(|| Account { name: uid.to_string(), uid, gid })
}

fn owner_of(plan: &Plan) -> Option<Owner> {
    account_of(plan).map(|account| Owner { user: account.uid, group: account.gid })
}

/// A part of a URL, with percent signs for what would end it.
fn encoded(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let one = |byte: u8| match plain(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(dir: &Path) -> OnCopy {
        OnCopy {
            of: "postgresql:///shop".into(),
            dir: dir.into(),
            is_made: true,
            mark: "mine".into(),
            program: Path::new("/usr/bin/pg_basebackup").into(),
            user: "me@work".into(),
            database: "the/shop".into(),
            reserve: 0,
        }
    }

    #[test]
    fn the_address_of_a_copy_is_read_back_whatever_the_names_are() {
        let address = Address::parse(&copy(Path::new("/srv/copy")).url()).unwrap();
        assert_eq!(address.user.as_deref(), Some("me@work"));
        assert_eq!(address.database.as_deref(), Some("the/shop"));
        assert_eq!((address.host.as_deref(), address.port), (Some("/srv/copy/run"), Some(5432)));
    }

    #[test]
    fn a_load_is_told_of_the_copy_and_no_longer_of_the_original() {
        let mut load = Command::new("true");
        copy(Path::new("/srv/copy")).tell(&mut load);
        let told: std::collections::BTreeMap<_, _> = load.get_envs().collect();
        let value = |name: &str| told[std::ffi::OsStr::new(name)].map(|v| v.to_str().unwrap());
        assert_eq!(value("PGHOST"), Some("/srv/copy/run"));
        assert_eq!(value("PGDATABASE"), Some("the/shop"));
        assert!(value("TIERSMITH_URL").unwrap().starts_with("postgresql://me%40work@/"));
        for gone in ["PGHOSTADDR", "PGSERVICE", "PGPASSWORD", "PGREQUIREAUTH"] {
            assert_eq!(value(gone), None, "{gone}");
        }
    }

    #[test]
    fn only_what_a_trial_made_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("copy");
        let copy = copy(&path);
        // Another trial's, and one that nobody marked.
        fs::create_dir_all(path.join("data/base")).unwrap();
        copy.remove().unwrap();
        fs::write(path.join(MARK), "another").unwrap();
        copy.remove().unwrap();
        assert!(path.join("data/base").exists());
        // Its own, with something that the user put there.
        fs::write(path.join(MARK), "mine").unwrap();
        fs::write(path.join("mine"), "x").unwrap();
        copy.remove().unwrap();
        assert!(!path.join("data").exists() && path.join("mine").exists());
        fs::remove_file(path.join("mine")).unwrap();
        copy.remove().unwrap();
        assert!(!path.exists());
        copy.remove().unwrap();
    }
}

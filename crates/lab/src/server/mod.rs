//! Database servers the lab can find, make and start: PostgreSQL, MariaDB, Redis, `tiersmith kv`.
//!
//! A server runs in a directory that is made for it, on a unix socket in a directory of its own, as
//! an unprivileged account when the caller is root. Nothing of an installed cluster is touched: not
//! its directory, not its socket, not its port.
//!
//! To add a product, copy `redis.rs`: a [`Product`] that says how a data directory is made and the
//! server is called, and a [`Client`] that speaks its protocol. Finding, accounts, starting,
//! waiting, stopping and killing are written once, in the other files.
//!
//! **Invariants**: a [`Server`] that is dropped leaves no process and no socket; what has to be
//! waited for is asked for again and again, never slept for.
//! **Deliberately absent**: loads (`target/server/`), tiers and mounts (`mounted.rs`).

pub mod account;
pub mod client;
pub mod find;
mod kv;
mod mariadb;
mod postgres;
mod redis;
mod running;
mod sql;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tiersmith_awr::Snapshot;

use crate::error::{Error, Result};
use crate::place::Leftovers;
use crate::sql::Sql;

pub use crate::account::{Account, give};
pub use account::{account, make_reachable};
pub use client::{Client, Deadlock, Range};
pub use find::{Programs, find, find_in};
pub use kv::program_is;
pub(crate) use kv::this_program;
pub use running::{Server, create};
pub(crate) use sql::REDO_SYNC;

/// Where a server keeps its things, and what it is told.
#[derive(Clone, Debug)]
pub struct Site {
    /// The data directory: PGDATA, datadir, dir.
    pub data: PathBuf,
    /// What the server prints goes to the end of this file.
    pub log: PathBuf,
    /// The directory the redo was moved to; nothing if it is where it was made.
    pub redo: Option<PathBuf>,
    /// The tier of a server that maps one itself.
    pub tier: Option<MappedTier>,
    /// Settings by name, in the product's own words.
    pub settings: Vec<(String, String)>,
    /// Who takes the server and its socket away when the program is interrupted.
    pub leftovers: Leftovers,
}

/// A tier that a server maps itself.
#[derive(Clone, Debug)]
pub struct MappedTier {
    /// Its file.
    pub path: PathBuf,
    /// Its bytes, when it is made.
    pub bytes: u64,
    /// The file only stands for persistent memory.
    pub emulated: bool,
}

impl Site {
    /// With nothing moved and nothing set.
    pub fn new(data: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Site {
        Site {
            data: data.into(),
            log: log.into(),
            redo: None,
            tier: None,
            settings: Vec::new(),
            leftovers: Leftovers::default(),
        }
    }
}

/// A kind of server.
pub trait Product: Sync + std::fmt::Debug {
    /// As in `--target`, and in case files.
    fn name(&self) -> &'static str;

    /// The profile of the store for it.
    fn profile(&self) -> &'static str {
        self.name()
    }

    /// For people.
    fn title(&self) -> &'static str;

    /// Programs without which there is no server; the first is the server itself, asked for its
    /// version.
    fn needed(&self) -> &'static [&'static str];

    /// Programs that are used when they are there.
    fn useful(&self) -> &'static [&'static str];

    /// What a fork calls these programs: the product's name, the fork's. They are looked for when
    /// the product's own are not there.
    fn fork(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whether only the fork's programs will do.
    fn is_fork(&self) -> bool {
        false
    }

    /// The server's program, if it is not looked for among those that are installed; or why it is
    /// not there.
    fn own_program(&self) -> Option<std::result::Result<PathBuf, String>> {
        None
    }

    /// Directories beside PATH; `*` stands for any one name, of several the greatest is taken.
    fn places(&self) -> &'static [&'static str];

    /// The Debian packages that have them.
    fn packages(&self) -> &'static str;

    /// The account a packaged server runs as.
    fn account_name(&self) -> &'static str;

    /// Name of the database's own superuser, for clients.
    fn user(&self) -> &'static str;

    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// The command that makes an empty data directory; nothing: an empty directory is one.
    fn creation(&self, programs: &Programs, data: &Path) -> Option<Vec<OsString>>;

    /// The arguments of the server.
    fn arguments(&self, site: &Site, socket_dir: &Path) -> Vec<OsString>;

    /// The socket's file within its directory.
    fn socket_name(&self) -> &'static str;

    /// What a signal for an orderly end is called.
    fn stop_signal(&self) -> rustix::process::Signal;

    /// A connection.
    ///
    /// # Errors
    /// What the server says.
    fn connect(&self, socket: &Path) -> Result<Box<dyn Client>>;

    /// Whether it speaks SQL.
    fn speaks_sql(&self) -> bool {
        false
    }

    /// A connection for loads with statements of their own.
    ///
    /// # Errors
    /// What the server says; it does not speak SQL.
    fn sql(&self, socket: &Path) -> Result<Box<dyn Sql>> {
        Err(refused("connecting", socket)(format!("{} does not speak SQL", self.title())))
    }

    /// Whether it speaks the protocol of Redis.
    fn speaks_redis(&self) -> bool {
        false
    }

    /// The file in the data directory that the server maps as its tier, if it is made for that.
    fn tier_file(&self) -> Option<&'static str> {
        None
    }

    /// The setting with which nothing waits for a disk while a database is loaded, and its value;
    /// nothing if there is none.
    fn unsynced(&self) -> Option<(&'static str, &'static str)>;

    /// Where the redo is within the data directory. A directory can be moved and leaves a symbolic
    /// link; a file is found by a setting.
    fn redo_within(&self) -> &'static str;

    /// The setting that holds on to whole pages twice against torn ones, and its value when it does
    /// not; nothing if there is none.
    fn torn_page_protection(&self) -> Option<(&'static str, &'static str)>;

    /// Settings for so many bytes of page cache.
    fn cache_settings(&self, bytes: u64) -> Vec<(String, String)>;

    /// The store's profile with which only the redo is on the tier.
    fn redo_profile(&self) -> &'static str;

    /// Whether a change is durable with the statement that makes it, so that there is no COMMIT to
    /// time.
    fn commits_with_each_statement(&self) -> bool {
        false
    }

    /// What the server's log says about the way it uses its redo; nothing if nothing remarkable.
    fn remark(&self, log: &str) -> Option<String> {
        let _ = log;
        None
    }

    /// Waits until what [`Product::figures`] tells is no longer moved by connections that have
    /// ended. This one is the only one left.
    ///
    /// # Errors
    /// What the server says; somebody is connected still, after a long while.
    fn settle(&self, client: &mut dyn Client) -> Result<()> {
        let _ = client;
        Ok(())
    }

    /// Adds what the server counts and waits for.
    ///
    /// # Errors
    /// What the server says.
    fn figures(&self, client: &mut dyn Client, snapshot: &mut Snapshot) -> Result<()>;
}

/// Every product that is a target, in the order of help texts.
pub fn products() -> &'static [&'static dyn Product] {
    &[&postgres::Postgres, &mariadb::Mariadb, &redis::REDIS, &kv::Kv]
}

/// Products that cases name beside their target.
const BESIDE: [&dyn Product; 1] = [&redis::VALKEY];

/// The product of this name.
///
/// # Errors
/// There is none; those there are.
pub fn product(name: &str) -> Result<&'static dyn Product> {
    let mut all = products().iter().chain(&BESIDE);
    all.find(|p| p.name() == name).copied().ok_or_else(|| Error::Setting {
        setting: "target",
        value: name.to_owned(),
        reason: format!(
            "give one of {}",
            products().iter().map(|p| p.name()).collect::<Vec<_>>().join(", ")
        ),
    })
}

/// An error of a server that names what was done.
pub(crate) fn refused(what: &str, at: &Path) -> impl FnOnce(String) -> Error + use<> {
    let (what, database) = (what.to_owned(), at.to_path_buf());
    move |reason| Error::Target { what, database, reason }
}

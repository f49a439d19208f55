//! Targets: databases under test.
//!
//! A target carries out the operations of a workload and says what it waited for. [`kinds`] lists
//! them: SQLite, which is a library, and every server of [`crate::server`], which share one
//! implementation. To add a server, see there; to add another library, copy `sqlite/`: a [`Kind`]
//! that loads and opens databases, a [`Target`] that opens sessions and takes snapshots, and
//! [`Session`]s, each used by one thread.
//!
//! **Invariant**: a session counts and times in [`Work`] what it did, nothing else does; so the
//! figures of two targets mean the same.
//! **Deliberately absent**: the order of a study: `study/`.

mod clients;
pub mod loads;
mod oltp;
pub mod recovery;
pub mod room;
pub mod server;
pub mod sqlite;
mod tier;
mod tpcb;
pub mod tpcc;
pub mod transactions;
mod ycsb;

use std::path::Path;

use crate::case::{self, Case};
use crate::error::Result;
use crate::place::Places;
use crate::run::{self, Measured, Plans};
use crate::server::Server;
use crate::workload::slob;

pub use crate::session::{
    CALLS, CLIENT_WAITS, COMMIT, COMMITS, COUNTERS, DATABASE_LOCK, EXECUTES, RESPONSE, RESPONSES,
    ROWS, SCAN, SELECT, STATEMENTS, Session, Target, UPDATE, Work, db_time_ns, thread_cpu_ns,
};

/// What one run is made from, and where.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    /// The experiment.
    pub case: &'a Case,
    /// The load of this run.
    pub slob: &'a slob::Settings,
    /// Home's storage, and the medium.
    pub places: &'a Places,
    /// The latency profile laid over the home's storage; nothing: as it is.
    pub home_model: Option<&'a str>,
    /// Told the share done of a long step; whether to go on.
    pub progress: &'a dyn Fn(f64) -> bool,
}

/// A kind of database that can be tested.
pub trait Kind: Sync {
    /// As in `--target`.
    fn name(&self) -> &'static str;

    /// For people.
    fn title(&self) -> &'static str;

    /// Its version.
    ///
    /// # Errors
    /// It is not installed; what to install.
    fn version(&self) -> Result<String>;

    /// Title and version of what a case is run on, which may be another server than the target's.
    ///
    /// # Errors
    /// It is not installed; what to install.
    fn run_on(&self, case: &Case) -> Result<(&'static str, String)>;

    /// What a case needs that is not here, so that it is left out; nothing: it runs.
    fn cannot(&self, ground: &Ground<'_>) -> Option<String>;

    /// What loaded databases differ by, beside the target.
    fn template_key(&self, ground: &Ground<'_>) -> String;

    /// Makes loaded databases in the empty directory `dir`, durable.
    ///
    /// # Errors
    /// What the database says; [`crate::Error::Interrupted`].
    fn load(&self, ground: &Ground<'_>, dir: &Path) -> Result<()>;

    /// Copies loaded databases into `dir`, which does not exist, attaches what the case attaches,
    /// and opens them.
    ///
    /// # Errors
    /// What the database, the tier or the mount says. Nothing runs then.
    fn open<'a>(
        &self,
        ground: &Ground<'a>,
        template: &Path,
        dir: &Path,
    ) -> Result<Box<dyn Opened + 'a>>;
}

/// The databases of one run. Dropping them closes them at once.
pub trait Opened {
    /// What sessions and snapshots are of.
    fn target(&self) -> &dyn Target;

    /// Reads every table once, so that a run does not begin with cold caches.
    ///
    /// # Errors
    /// What the database says.
    fn warm(&self) -> Result<()>;

    /// Runs the load.
    ///
    /// # Errors
    /// What the database says; [`crate::Error::Interrupted`].
    fn measure(&self, plans: &Plans<'_>) -> Result<Measured> {
        run::run(self.target(), plans)
    }

    /// The server, if the target is one.
    fn server(&self) -> Option<&Server> {
        None
    }

    /// What a reader of this run's figures has to know: code and sentence.
    fn remarks(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Kills the database under load and starts it again, where the load can tell what must be
    /// there then; a sentence on what was found.
    ///
    /// # Errors
    /// [`crate::Error::Unsound`]: something acknowledged is gone, or what is there contradicts
    /// itself.
    fn kill(&mut self) -> Result<Option<String>> {
        Ok(None)
    }

    /// Runs the load, kills the database under it, starts it again, and watches how long it takes;
    /// nothing if there is nothing to kill.
    ///
    /// # Errors
    /// What the database says; [`crate::Error::Interrupted`].
    fn recover(&mut self, watch: &recovery::Watch<'_>) -> Result<Option<recovery::Recovered>> {
        let _ = watch;
        Ok(None)
    }

    /// Closes everything in order, and frees the tier. The directory is the caller's to remove.
    ///
    /// # Errors
    /// What did not end well.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Every kind of database.
pub fn kinds() -> &'static [&'static dyn Kind] {
    const SERVERS: [server::ServerKind; 4] = [
        server::ServerKind("postgres"),
        server::ServerKind("mariadb"),
        server::ServerKind("redis"),
        server::ServerKind("kv"),
    ];
    &[&sqlite::SqliteKind, &SERVERS[0], &SERVERS[1], &SERVERS[2], &SERVERS[3]]
}

/// Their names.
pub fn names() -> Vec<&'static str> {
    case::targets()
}

/// The kind of this name.
///
/// # Errors
/// There is none; those there are.
pub fn kind(name: &str) -> Result<&'static dyn Kind> {
    kinds().iter().find(|kind| kind.name() == name).copied().ok_or_else(|| case::no_target(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_may_name_exactly_the_kinds_that_there_are() {
        let kinds: Vec<&str> = kinds().iter().map(|kind| kind.name()).collect();
        assert_eq!(kinds, names());
    }
}

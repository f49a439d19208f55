//! The databases that are measured: where they lie, how they are opened, the one table they have.
//!
//! Deliberately absent: anything that is timed.
//!
//! Invariant: a mode that SQLite did not take is an error, never a row with a wrong name.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tiersmith_sqlite::place::Place;
use tiersmith_store::Stats;

use crate::Failed;
use crate::scratch::Scratch;

/// Bytes of the column that is only there to give a row its length.
const PAD: usize = 100;
/// The table of every database.
const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER NOT NULL, pad TEXT NOT NULL)";

/// Where a database lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// The stock VFS on an ordinary disk.
    Disk,
    /// The stock VFS on memory.
    Tmpfs,
    /// Attached: home on the disk, tier on memory, standing for persistent memory.
    Tier,
}

impl Medium {
    /// How a row begins that is measured there.
    pub(crate) fn label(self, scratch: &Scratch) -> &'static str {
        match self {
            Medium::Disk if scratch.disk_is_tmpfs => "stock, build folder (tmpfs)",
            Medium::Disk => "stock, disk",
            Medium::Tmpfs if scratch.fast_is_tmpfs => "stock, tmpfs",
            Medium::Tmpfs => "stock, build folder",
            Medium::Tier => "tiersmith, EMULATED tier",
        }
    }
}

/// How a database is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// As in `PRAGMA journal_mode`.
    pub(crate) journal: &'static str,
    /// As in `PRAGMA synchronous`.
    pub(crate) synchronous: &'static str,
    /// `PRAGMA locking_mode=EXCLUSIVE`.
    pub(crate) exclusive: bool,
}

impl Mode {
    pub(crate) const WAL_FULL: Mode =
        Mode { journal: "wal", synchronous: "FULL", exclusive: false };
    pub(crate) const WAL_NORMAL: Mode =
        Mode { journal: "wal", synchronous: "NORMAL", exclusive: false };
    /// On a tier: batch-atomic writes, without a journal.
    pub(crate) const ROLLBACK: Mode =
        Mode { journal: "delete", synchronous: "FULL", exclusive: false };
    /// Not durable, not atomic: what SQLite itself costs.
    pub(crate) const NOTHING: Mode = Mode { journal: "off", synchronous: "OFF", exclusive: false };

    pub(crate) const fn exclusive(self) -> Mode {
        Mode { exclusive: true, ..self }
    }
}

/// A database that may not be there yet. Its files go with the [`Scratch`].
pub(crate) struct Database {
    pub(crate) medium: Medium,
    path: PathBuf,
    tier: PathBuf,
    tier_bytes: u64,
}

impl Database {
    /// `tier_bytes` has a meaning on a tier only.
    pub(crate) fn new(scratch: &Scratch, name: &str, medium: Medium, tier_bytes: u64) -> Database {
        let file = format!("{name}.db");
        let path = if medium == Medium::Tmpfs { scratch.fast(&file) } else { scratch.disk(&file) };
        Database { medium, path, tier: scratch.fast(&format!("{name}.tier")), tier_bytes }
    }

    /// The file as its user names it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that holds what is not on the tier.
    pub(crate) fn home_file(&self) -> PathBuf {
        match self.medium {
            Medium::Tier => {
                let mut folder = self.path.clone().into_os_string();
                folder.push("-tiersmith");
                PathBuf::from(folder).join("db")
            }
            Medium::Disk | Medium::Tmpfs => self.path.clone(),
        }
    }

    /// Bytes of the WAL, 0 without one. Of a database with the stock VFS.
    pub(crate) fn wal_bytes(&self) -> u64 {
        let mut wal = self.path.clone().into_os_string();
        wal.push("-wal");
        std::fs::metadata(wal).map_or(0, |found| found.len())
    }

    /// Opens it; makes and attaches it if that was not done.
    pub(crate) fn connect(&self, mode: Mode) -> Result<Connection, Failed> {
        let connection = match self.medium {
            Medium::Disk | Medium::Tmpfs => Connection::open(&self.path)?,
            Medium::Tier => Connection::open(format!(
                "file:{}?vfs=tiersmith&fast={}&size={}&emulate=1",
                self.path.display(),
                self.tier.display(),
                self.tier_bytes
            ))?,
        };
        // Before the first look at a WAL: then its index is in the heap, as with every VFS.
        let locking = if mode.exclusive { "exclusive" } else { "normal" };
        set(&connection, "locking_mode", locking)?;
        set(&connection, "journal_mode", mode.journal)?;
        connection.pragma_update(None, "synchronous", mode.synchronous)?;
        Ok(connection)
    }

    /// Takes it off the tier, or removes it, so that the next one can be made under the same name.
    /// The tier's file stays.
    pub(crate) fn remove(&self) -> Result<(), Failed> {
        if self.medium == Medium::Tier {
            tiersmith_sqlite::detach(&self.path)?;
        }
        Ok(std::fs::remove_file(&self.path)?)
    }

    /// Figures of the attachment, while a connection is open.
    pub(crate) fn stats(&self) -> Result<Stats, Failed> {
        let place = Place::find(&self.path);
        Ok(place
            .ok_or("BUG: figures of a database that is not attached, or not open")?
            .home()
            .stats())
    }
}

/// Sets a pragma that answers with what it is set to.
fn set(connection: &Connection, pragma: &str, value: &str) -> Result<(), Failed> {
    let answer: String =
        connection.query_row(&format!("PRAGMA {pragma}={value}"), [], |row| row.get(0))?;
    if answer != value {
        return Err(format!("PRAGMA {pragma}={value}: SQLite stays with {answer}").into());
    }
    Ok(())
}

/// Makes the table.
pub(crate) fn make_table(connection: &Connection) -> Result<(), Failed> {
    Ok(connection.execute_batch(TABLE)?)
}

/// Inserts rows 1 to `rows` with a prepared statement in one transaction.
pub(crate) fn load(connection: &Connection, rows: u64) -> Result<(), Failed> {
    let pad = "x".repeat(PAD);
    connection.execute_batch("BEGIN")?;
    let mut insert = connection.prepare("INSERT INTO t VALUES (?1, 0, ?2)")?;
    for id in 1..=rows {
        insert.execute((id as i64, &pad))?;
    }
    drop(insert);
    Ok(connection.execute_batch("COMMIT")?)
}

/// A number that a statement gives.
pub(crate) fn number(connection: &Connection, sql: &str) -> Result<u64, Failed> {
    Ok(connection.query_row(sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
}

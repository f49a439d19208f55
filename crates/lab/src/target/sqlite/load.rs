//! Filling a database as SLOB does: a table with one row per block, its keys in random order of
//! place; an index; a scan table.
//!
//! A row is made to fill more than half of a page, so that a second one does not fit and no row
//! needs an overflow page. Oracle does it by leaving 99 % of the block free (PCTFREE 99), which
//! SQLite cannot.
//!
//! Loading is not measured: it goes through the stock VFS, without a journal, and the file is
//! synced at the end.

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, params_from_iter};

use super::failed;
use crate::error::{During, Error, Result};
use crate::sql::SqliteSql;
use crate::target::transactions::Transactional;
use crate::workload::slob;

/// Rows between two looks at the progress.
const STEP: u64 = 1024;

/// Bytes of each of the columns c2 to c20: SLOB's 128 at pages of 4 KiB, in proportion at larger
/// ones. Nineteen of them fill 59 % of a page.
pub fn column_bytes(page_size: u32) -> usize {
    page_size as usize / 32
}

/// Makes the database of one schema at `path`, which must not exist, and syncs it.
///
/// `progress` is told the share done and says whether to go on.
///
/// # Errors
/// What SQLite or the file system says; [`Error::Interrupted`] if `progress` said no.
///
/// # Durability
/// The file is durable when the call returns; the directory entry is not.
pub fn load(
    path: &Path,
    page_size: u32,
    slob: &slob::Settings,
    schema: u32,
    progress: &dyn Fn(f64) -> bool,
) -> Result<()> {
    let connection = Connection::open(path).map_err(failed("making the database", path))?;
    fill(&connection, path, page_size, slob, schema, progress)?;
    connection.close().map_err(|(_, e)| failed("closing the database", path)(e))?;
    File::open(path).and_then(|file| file.sync_all()).during("sync", path)
}

/// Makes the database of a load with tables of its own at `path`, which must not exist, and syncs
/// it.
///
/// `progress` is told the share done and says whether to go on.
///
/// # Errors
/// As [`load`].
///
/// # Durability
/// As [`load`].
pub fn load_tables(
    path: &Path,
    page_size: u32,
    load: &dyn Transactional,
    seed: u64,
    progress: &dyn Fn(f64) -> bool,
) -> Result<()> {
    let connection = Connection::open(path).map_err(failed("making the database", path))?;
    let setup = format!(
        "PRAGMA page_size = {page_size}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -65536;"
    );
    connection.execute_batch(&setup).map_err(failed("setting up the database", path))?;
    let mut sql = SqliteSql::new(connection, path.to_path_buf());
    load.fill(&mut sql, seed, progress)?;
    sql.into_connection().close().map_err(|(_, e)| failed("closing the database", path)(e))?;
    File::open(path).and_then(|file| file.sync_all()).during("sync", path)
}

fn fill(
    connection: &Connection,
    path: &Path,
    page_size: u32,
    slob: &slob::Settings,
    schema: u32,
    progress: &dyn Fn(f64) -> bool,
) -> Result<()> {
    let columns: Vec<String> = (2..=20).map(|n| format!("c{n} TEXT")).collect();
    let columns = columns.join(", ");
    let setup = format!(
        "PRAGMA page_size = {page_size}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; \
         PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA cache_size = -65536; BEGIN;
         CREATE TABLE cf1 (custid INTEGER NOT NULL, {columns}); CREATE TABLE cf2 (custid INTEGER \
         NOT NULL, {columns});"
    );
    connection.execute_batch(&setup).map_err(failed("making the tables", path))?;
    let page = u64::from(page_size);
    // Far from the seeds of the sessions.
    let mut random = fastrand::Rng::with_seed(slob.seed ^ 0x0051_0b00 ^ u64::from(schema) << 40);
    let mut keys: Vec<i64> = (1..=slob.blocks(page) as i64).collect();
    random.shuffle(&mut keys);
    let scan_keys: Vec<i64> = (1..=slob.scan_blocks(page) as i64).collect();
    let all = (keys.len() + scan_keys.len()) as f64;
    let mut done = 0u64;
    for (table, keys) in [("cf1", &keys), ("cf2", &scan_keys)] {
        let places: Vec<String> = (1..=20).map(|n| format!("?{n}")).collect();
        let sql = format!("INSERT INTO {table} VALUES ({})", places.join(", "));
        let mut insert = connection.prepare(&sql).map_err(failed("loading", path))?;
        let width = column_bytes(page_size);
        for key in keys {
            let letters: String = (0..width).map(|_| random.lowercase()).collect();
            let values = std::iter::once(rusqlite::types::Value::from(*key))
                .chain((2..=20).map(|_| rusqlite::types::Value::from(letters.clone())));
            insert.execute(params_from_iter(values)).map_err(failed("loading", path))?;
            done += 1;
            if done.is_multiple_of(STEP) && !progress(done as f64 / all) {
                return Err(Error::Interrupted);
            }
        }
    }
    connection
        .execute_batch("CREATE INDEX i_cf1 ON cf1 (custid); COMMIT;")
        .map_err(failed("making the index", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::ByteSize;

    #[test]
    fn one_row_fills_one_page_at_every_page_size_and_keys_lie_scattered() {
        let dir = tempfile::tempdir().unwrap();
        for page_size in [4096, 8192, 16384, 32768] {
            let page = u64::from(page_size);
            let slob = slob::Settings {
                scale: ByteSize(300 * page),
                scan_table: ByteSize(5 * page),
                ..slob::Settings::default()
            };
            let path = dir.path().join(format!("{page_size}.db"));
            load(&path, page_size, &slob, 0, &|_| true).unwrap();
            let db = Connection::open(&path).unwrap();
            let ask = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(ask("SELECT COUNT(DISTINCT custid) FROM cf1"), 300);
            assert_eq!(
                (ask("SELECT MIN(custid) FROM cf1"), ask("SELECT MAX(custid) FROM cf1")),
                (1, 300)
            );
            for (table, rows) in [("cf1", 300), ("cf2", 5)] {
                let leaves = format!("FROM dbstat WHERE name = '{table}' AND pagetype = 'leaf'");
                assert_eq!(ask(&format!("SELECT COUNT(*) {leaves}")), rows, "{page_size}");
                assert_eq!(ask(&format!("SELECT MAX(ncell) {leaves}")), 1);
                let overflow = format!(
                    "SELECT COUNT(*) FROM dbstat WHERE name = '{table}' AND pagetype = 'overflow'"
                );
                assert_eq!(ask(&overflow), 0);
            }
            // Of neighbouring keys hardly any lie in neighbouring rows.
            let close = "SELECT COUNT(*) FROM cf1 a JOIN cf1 b ON b.custid = a.custid + 1 WHERE \
                         abs(b.rowid - a.rowid) = 1";
            assert!(ask(close) < 15);
        }
    }

    #[test]
    fn the_same_seed_loads_the_same_bytes_and_schemas_differ() {
        let dir = tempfile::tempdir().unwrap();
        let slob = slob::Settings { scale: ByteSize(1 << 20), ..slob::Settings::default() };
        let bytes = |name: &str, schema| {
            let path = dir.path().join(name);
            load(&path, 4096, &slob, schema, &|_| true).unwrap();
            std::fs::read(path).unwrap()
        };
        assert!(bytes("a", 0) == bytes("b", 0));
        assert!(bytes("c", 0) != bytes("d", 1));
    }

    #[test]
    fn a_load_that_is_told_to_stop_stops() {
        let dir = tempfile::tempdir().unwrap();
        let slob = slob::Settings { scale: ByteSize(16 << 20), ..slob::Settings::default() };
        let error = load(&dir.path().join("x.db"), 4096, &slob, 0, &|_| false).unwrap_err();
        assert!(matches!(error, Error::Interrupted));
    }
}

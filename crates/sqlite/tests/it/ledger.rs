//! A workload whose every transaction proves itself: what the tests of killed processes and power
//! cuts write and check.
//!
//! Transaction `n` inserts some rows with contents drawn from `n`, and one row of table `done` with
//! their number and checksum; it removes the rows of transaction `n - KEPT`, so the database stays
//! small and pages are freed and used again. Each transaction also adds `n` to a running total. So
//! from the tables alone it follows which transactions are there, and that each is there as a
//! whole.

use rusqlite::{Connection, params};

/// Transactions whose rows are kept.
pub(crate) const KEPT: i64 = 24;

/// Makes the tables, if they are not there.
pub(crate) fn prepare(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS entry(id INTEGER PRIMARY KEY, n INT, contents BLOB);
         CREATE INDEX IF NOT EXISTS entry_n ON entry(n);
         CREATE TABLE IF NOT EXISTS done(n INTEGER PRIMARY KEY, entries INT, sum INT);
         CREATE TABLE IF NOT EXISTS total(sum INT);
         INSERT INTO total SELECT 0 WHERE NOT EXISTS (SELECT * FROM total)",
    )
}

/// What transaction `n` inserts: mostly less than a page, sometimes several pages.
fn contents(n: i64, most: usize) -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(n as u64);
    let entries = 1 + rng.usize(..4);
    let make = |_| {
        let len = if rng.usize(..8) == 0 { rng.usize(..=most) } else { rng.usize(..600) };
        let mut bytes = vec![0; len];
        rng.fill(&mut bytes);
        bytes
    };
    (0..entries).map(make).collect()
}

fn checksum(entries: impl Iterator<Item = impl AsRef<[u8]>>) -> i64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for entry in entries {
        for byte in entry.as_ref().iter().chain(b"|") {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    sum as i64
}

/// Transaction `n`; it is acknowledged when this returns. `most`: bytes of the largest row.
pub(crate) fn commit(db: &Connection, n: i64, most: usize) -> rusqlite::Result<()> {
    db.execute_batch("BEGIN IMMEDIATE")?;
    let entries = contents(n, most);
    let mut insert = db.prepare_cached("INSERT INTO entry(n, contents) VALUES (?, ?)")?;
    for entry in &entries {
        insert.execute(params![n, entry])?;
    }
    drop(insert);
    let done = params![n, entries.len() as i64, checksum(entries.iter())];
    db.prepare_cached("INSERT INTO done VALUES (?, ?, ?)")?.execute(done)?;
    db.prepare_cached("DELETE FROM entry WHERE n = ?")?.execute([n - KEPT])?;
    db.prepare_cached("UPDATE total SET sum = sum + ?")?.execute([n])?;
    db.execute_batch("COMMIT")
}

/// The newest transaction there, 0 if there is none.
///
/// # Errors
/// What is wrong: integrity, a transaction missing, or there by half.
pub(crate) fn check(db: &Connection) -> Result<i64, String> {
    let said = |e: rusqlite::Error| e.to_string();
    let sound: String =
        db.query_row("PRAGMA integrity_check(3)", [], |r| r.get(0)).map_err(said)?;
    if sound != "ok" {
        return Err(format!("integrity_check: {sound}"));
    }
    let tables: i64 = db
        .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |r| r.get(0))
        .map_err(said)?;
    if tables == 0 {
        return Ok(0);
    }
    let (last, count): (i64, i64) = db
        .query_row("SELECT ifnull(max(n), 0), count(*) FROM done", [], |r| {
            Ok((r.get(0)?, r.get(1)?))
        })
        .map_err(said)?;
    if count != last {
        return Err(format!("the newest transaction is {last}, and {count} are there"));
    }
    let total: i64 = db.query_row("SELECT sum FROM total", [], |r| r.get(0)).map_err(said)?;
    if total != last * (last + 1) / 2 {
        return Err(format!("the total {total} is not that of {last} transactions"));
    }
    let mut entries =
        db.prepare("SELECT contents FROM entry WHERE n = ? ORDER BY id").map_err(said)?;
    let mut all = 0;
    for n in (last - KEPT + 1).max(1)..=last {
        let found: Vec<Vec<u8>> = entries
            .query_map([n], |r| r.get(0))
            .and_then(Iterator::collect::<rusqlite::Result<_>>)
            .map_err(said)?;
        let (wanted, sum): (i64, i64) = db
            .query_row("SELECT entries, sum FROM done WHERE n = ?", [n], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })
            .map_err(said)?;
        if found.len() as i64 != wanted || checksum(found.iter()) != sum {
            return Err(format!(
                "transaction {n} is there by half: {} of {wanted} rows",
                found.len()
            ));
        }
        all += wanted;
    }
    let there: i64 = db.query_row("SELECT count(*) FROM entry", [], |r| r.get(0)).map_err(said)?;
    if there != all {
        return Err(format!("{there} rows are there, {all} belong to the transactions kept"));
    }
    Ok(last)
}

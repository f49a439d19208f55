//! A process that ends without a word, `synchronous = OFF`: as with the stock VFS, what had been acknowledged is there, because it had been written.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod support;

use support::{Bench, again, connect};

/// Ends the process as a kill does, after five transactions; does nothing when it is run as a test.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os("TIERSMITH_WRITER_DIR") else { return };
    let dir = std::path::PathBuf::from(dir);
    let (database, tier) = (dir.join("app.db"), dir.join("tier"));
    let uri = format!("file:{}?vfs=tiersmith&fast={}&emulate=1&size=8M", database.display(), tier.display());
    let db = connect(&uri).unwrap();
    db.execute_batch(&std::env::var("TIERSMITH_WRITER_PRAGMAS").unwrap()).unwrap();
    // A cache of one page spills, so that the journal is a file and not a batch.
    db.execute_batch(
        "PRAGMA cache_size = 1; CREATE TABLE t (n, b); INSERT INTO t VALUES (0, zeroblob(30000))",
    )
    .unwrap();
    for n in 1..=5 {
        db.execute_batch(&format!(
            "BEGIN; UPDATE t SET n = {n}, b = randomblob(30000); INSERT INTO t VALUES ({n}, randomblob(20000)); COMMIT"
        ))
        .unwrap();
    }
    std::process::abort();
}

#[test]
fn a_transaction_ended_by_zeros_over_the_journal_is_not_taken_back() {
    for pragmas in [
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = PERSIST",
        "PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE",
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE",
        "PRAGMA synchronous = NORMAL; PRAGMA journal_mode = PERSIST",
    ] {
        let bench = Bench::in_memory();
        let mut writer = again("writer", ("TIERSMITH_WRITER_DIR", bench.path().to_str().unwrap()));
        let ended = writer.env("TIERSMITH_WRITER_PRAGMAS", pragmas).output().unwrap();
        assert!(!ended.status.success());
        let db = connect(&format!("file:{}?vfs=tiersmith", bench.database().display())).unwrap();
        let newest: i64 = db.query_row("SELECT max(n) FROM t", [], |row| row.get(0)).unwrap();
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!((newest, sound.as_str()), (5, "ok"), "{pragmas}");
    }
}

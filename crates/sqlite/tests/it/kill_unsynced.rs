//! A process that ends without a word, `synchronous = OFF`: as with the stock VFS, what had been
//! acknowledged is there, because it had been written.

use crate::support::{Bench, again, connect};

/// Ends the process as a kill does, after five transactions; does nothing when it is run as a test.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os("TIERSMITH_WRITER_DIR") else { return };
    let dir = std::path::PathBuf::from(dir);
    let (database, tier) = (dir.join("app.db"), dir.join("tier"));
    let emulate = std::env::var("TIERSMITH_WRITER_EMULATE").unwrap();
    let (database, tier) = (database.display(), tier.display());
    let uri = format!("file:{database}?vfs=tiersmith&fast={tier}&size=8M&emulate={emulate}");
    let db = connect(&uri).unwrap();
    db.execute_batch(&std::env::var("TIERSMITH_WRITER_PRAGMAS").unwrap()).unwrap();
    // A cache of one page spills, so that the journal is a file and not a batch.
    db.execute_batch(
        "PRAGMA cache_size = 1; CREATE TABLE t (n, b); INSERT INTO t VALUES (0, zeroblob(30000))",
    )
    .unwrap();
    for n in 1..=5 {
        db.execute_batch(&format!(
            "BEGIN; UPDATE t SET n = {n}, b = randomblob(30000); INSERT INTO t VALUES ({n}, \
             randomblob(20000)); COMMIT"
        ))
        .unwrap();
    }
    // One that is under way, and has been written as far as it came.
    db.execute_batch("BEGIN; UPDATE t SET n = -1, b = randomblob(30000)").unwrap();
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
        assert_nothing_is_taken_back(&Bench::in_memory(), "1", pragmas);
    }
}

/// There, what was written and not synced is in the memory of the process.
#[test]
fn a_transaction_on_flash_outlives_its_process_whatever_synchronous_says() {
    for pragmas in [
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 4",
        "PRAGMA synchronous = NORMAL; PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = PERSIST",
        "PRAGMA synchronous = OFF; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE",
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = DELETE",
    ] {
        let Some(bench) = Bench::on_flash() else { return };
        assert_nothing_is_taken_back(&bench, "0", pragmas);
    }
}

fn assert_nothing_is_taken_back(bench: &Bench, emulate: &str, pragmas: &str) {
    let mut writer =
        again(&full_name!("writer"), ("TIERSMITH_WRITER_DIR", bench.path().to_str().unwrap()));
    let ended = writer
        .env("TIERSMITH_WRITER_PRAGMAS", pragmas)
        .env("TIERSMITH_WRITER_EMULATE", emulate)
        .output()
        .unwrap();
    assert!(!ended.status.success());
    let db = connect(&format!("file:{}?vfs=tiersmith", bench.database().display())).unwrap();
    let newest: i64 = db.query_row("SELECT max(n) FROM t", [], |row| row.get(0)).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!((newest, sound.as_str()), (5, "ok"), "{pragmas}");
}

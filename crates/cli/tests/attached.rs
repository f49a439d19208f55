//! `status`, `check`, `awr snapshot` and `detach` of an attached database and of an attached directory.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::path::Path;
use std::process::{Command, Output};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tiersmith_store::{Medium, OpenMode, Options, TierSpec, attach};

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tiersmith")).args(arguments).current_dir(dir).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

fn rows(path: &Path) -> rusqlite::Result<i64> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?.query_row(
        "SELECT COUNT(*) FROM t",
        [],
        |row| row.get(0),
    )
}

/// A database of a thousand rows, attached and closed.
fn attached_database(dir: &Path) {
    tiersmith_sqlite::register().unwrap();
    let uri = format!(
        "file:{}?vfs=tiersmith&fast={}&size=16M&emulate=1",
        dir.join("app.db").display(),
        dir.join("app.tier").display()
    );
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); BEGIN").unwrap();
    for n in 0..1000 {
        connection.execute("INSERT INTO t VALUES (zeroblob(?1))", [n]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_database_whose_stub_was_removed_is_brought_back_by_detach() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    attached_database(dir);
    std::fs::remove_file(dir.join("app.db")).unwrap();
    let status = json(&tiersmith(dir, &["status", "app.db", "--json"]));
    assert_ne!(status["standing"], "plain", "{status}");
    let detached = tiersmith(dir, &["detach", "app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(rows(&dir.join("app.db")).unwrap(), 1000);
    let nothing = tiersmith(dir, &["detach", "no.db"]);
    assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing));
}

#[test]
fn an_attached_database_is_reported_checked_counted_and_detached() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    attached_database(dir);
    assert!(rows(&dir.join("app.db")).is_err(), "a stock SQLite opens an attached database");

    let status = tiersmith(dir, &["status", "app.db", "--json"]);
    assert!(status.status.success(), "{}", text(&status));
    let status = json(&status);
    assert_eq!(
        (&status["standing"], &status["tier"]["emulated"]),
        (&Value::from("attached"), &Value::from(true))
    );
    assert!(status["blocks"]["tier_bytes"].as_u64().unwrap() > 0);
    let printed = tiersmith(dir, &["status", "app.db"]);
    assert!(text(&printed).contains("EMULATED"), "{}", text(&printed));

    let check = tiersmith(dir, &["check", "app.db"]);
    assert!(check.status.success(), "{}", text(&check));
    assert_eq!(json(&tiersmith(dir, &["check", "app.db", "--json"]))["summary"]["home_compared"], true);

    let taken = tiersmith(dir, &["awr", "snapshot", "app.db", "--to", "repository", "--json"]);
    assert!(taken.status.success(), "{}", text(&taken));
    let list = json(&tiersmith(dir, &["awr", "list", "repository", "--json"]));
    assert_eq!(list["snapshots"][0]["database"], "app.db");

    let detached = tiersmith(dir, &["detach", "app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(rows(&dir.join("app.db")).unwrap(), 1000);
    let again = tiersmith(dir, &["detach", "app.db", "--json"]);
    assert_eq!(json(&again)["was_attached"], false);
    assert_eq!(json(&tiersmith(dir, &["status", "app.db", "--json"]))["standing"], "plain");
    let check = tiersmith(dir, &["check", "app.db"]);
    assert_eq!(check.status.code(), Some(2));
    assert!(text(&check).contains("is not attached"), "{}", text(&check));
}

#[test]
fn a_tier_that_vanished_is_something_to_mend_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    attached_database(dir);
    std::fs::rename(dir.join("app.tier"), dir.join("elsewhere")).unwrap();
    let status = tiersmith(dir, &["status", "app.db", "--json"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(json(&status)["trouble"].as_str().unwrap().contains("app.tier"), "{}", text(&status));
    let detach = tiersmith(dir, &["detach", "app.db"]);
    assert_eq!(detach.status.code(), Some(2), "{}", text(&detach));
    assert_eq!(
        text(&detach).trim().lines().filter(|line| line.starts_with("tiersmith: ")).count(),
        text(&detach).trim().lines().count()
    );
    std::fs::rename(dir.join("elsewhere"), dir.join("app.tier")).unwrap();
    assert!(tiersmith(dir, &["detach", "app.db"]).status.success());
    assert_eq!(rows(&dir.join("app.db")).unwrap(), 1000);
}

#[test]
fn an_attached_directory_is_reported_checked_and_detached() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let home = dir.join("data");
    std::fs::create_dir(&home).unwrap();
    let spec = TierSpec::new("fast", dir.join("data.tier"), Medium::Emulated, 16 << 20);
    let attached = attach(&home, &[spec], Options::default()).unwrap();
    let file = attached.open("app.db", OpenMode::CREATE).unwrap();
    file.write(0, &[7; 8192]).unwrap();
    drop((file, attached));

    // By the home's note, and by its tier: attached, and nobody serves it.
    let status = tiersmith(dir, &["status", "data", "--json"]);
    assert_eq!((status.status.code(), json(&status)["emulated"].as_bool()), (Some(1), Some(true)));
    let status = tiersmith(dir, &["status", "data", "--fast", "data.tier", "--json"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    let status = json(&status);
    assert_eq!((&status["state"], &status["blocks_dirty"]), (&Value::from("attached"), &Value::from(2)));
    let check = tiersmith(dir, &["check", "data", "--fast", "data.tier", "--cold"]);
    assert!(check.status.success(), "{}", text(&check));

    let detached = tiersmith(dir, &["detach", "data"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert!(dir.join("data.tier").exists(), "a tier that `attach` had not made was removed");
    assert_eq!(std::fs::read(home.join("app.db")).unwrap(), [7; 8192]);
}

#[test]
fn a_damaged_tier_is_a_finding_with_what_it_means_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    attached_database(dir);
    // The first of the two superblock copies: the tier can be opened still.
    let tier = std::fs::OpenOptions::new().write(true).open(dir.join("app.tier")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&tier, &[0xee; 64], 128).unwrap();
    let cold = ["check", "app.db-tiersmith", "--fast", "app.tier", "--cold"];
    let check = tiersmith(dir, &cold);
    let said = text(&check);
    assert!(said.contains("1 Note") && said.contains("remedy") && said.contains("means"), "{said}");
    assert!(check.status.success(), "the tier can be opened with the other copy: {said}");
    // A home that somebody wrote to is more than a note.
    let home = std::fs::OpenOptions::new().append(true).open(dir.join("app.db-tiersmith/db")).unwrap();
    std::io::Write::write_all(&mut &home, b"more").unwrap();
    let check = tiersmith(dir, &cold);
    assert_eq!(check.status.code(), Some(1), "{}", text(&check));
    let hot = tiersmith(dir, &["check", "app.db", "--cold"]);
    assert!(text(&hot).contains("app.db-tiersmith --fast"), "{}", text(&hot));
}

//! `status`, `check`, `awr snapshot` and `detach` of an attached database and of an attached
//! directory.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tiersmith_store::{Medium, OpenMode, Options, TierSpec, attach};

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
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
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); BEGIN").unwrap();
    for n in 0..1000 {
        connection.execute("INSERT INTO t VALUES (zeroblob(?1))", [n]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
}

/// Somebody who is not root.
const USER: u32 = 65534;

/// A database of [`USER`] in a directory of that user, and a directory of root's for its tier;
/// `None`: without root nobody can attach for somebody else.
fn database_of_a_user(dir: &Path) -> Option<()> {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root attaches for another user");
        return None;
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["theirs", "fast"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let db = dir.join("theirs/app.db");
    Connection::open(&db)
        .unwrap()
        .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    for path in [dir.join("theirs"), db] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    Some(())
}

const FOR_A_USER: [&str; 7] =
    ["attach", "theirs/app.db", "--fast", "fast", "--size", "16M", "--emulate"];

#[test]
fn what_root_attaches_for_a_user_is_the_users() {
    use std::os::unix::fs::MetadataExt;
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let Some(()) = database_of_a_user(dir) else { return };
    let attached = tiersmith(dir, &FOR_A_USER);
    assert!(attached.status.success(), "{}", text(&attached));
    let inside = std::fs::read_dir(dir.join("theirs/app.db-tiersmith")).unwrap();
    let mut paths: Vec<_> = inside.map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= 5, "{paths:?}");
    paths.extend(std::fs::read_dir(dir.join("fast")).unwrap().map(|entry| entry.unwrap().path()));
    paths.extend([dir.join("theirs/app.db"), dir.join("theirs/app.db-tiersmith")]);
    for path in paths {
        assert_eq!(path.symlink_metadata().unwrap().uid(), USER, "{}", path.display());
    }
    let again = tiersmith(dir, &["attach", "theirs/app.db"]);
    assert!(again.status.success(), "{}", text(&again));
    let detached = tiersmith(dir, &["detach", "theirs/app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(rows(&dir.join("theirs/app.db")).unwrap(), 1);
}

#[test]
fn attaching_for_a_user_follows_no_name_of_theirs_as_root() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let Some(()) = database_of_a_user(dir) else { return };
    assert!(tiersmith(dir, &FOR_A_USER).status.success());
    let (roots, inside) = (dir.join("roots"), dir.join("theirs/app.db-tiersmith"));
    std::fs::write(&roots, "root's").unwrap();
    // An attachment file that cannot be read is written again, beside it first.
    std::fs::write(inside.join("attachment"), "junk").unwrap();
    std::os::unix::fs::symlink(&roots, inside.join("attachment.new")).unwrap();
    let attached = tiersmith(dir, &FOR_A_USER);
    assert!(attached.status.success(), "{}", text(&attached));
    assert_eq!(std::fs::read_to_string(&roots).unwrap(), "root's");
    let written = inside.join("attachment").symlink_metadata().unwrap();
    assert!(written.is_file() && !inside.join("attachment.new").exists());
}

#[test]
fn an_option_of_a_mount_is_refused_for_a_database_file() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    Connection::open(dir.join("app.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    for option in
        [["--passthrough-max", "1G"], ["--threads", "2"], ["--lend", "no"], ["--cache", "keep=*"]]
    {
        let arguments = ["attach", "app.db", "--fast", ".", "--size", "16M", "--emulate"];
        let refused = tiersmith(dir, &[&arguments[..], &option].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains(option[0]), "{}", text(&refused));
    }
}

#[test]
fn a_database_file_is_attached_to_a_disk_and_what_was_committed_is_durable_there() {
    /// `statfs(2)`, as on x86-64 and aarch64.
    const TMPFS: i64 = 0x0102_1994;
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    if rustix::fs::statfs(dir).unwrap().f_type == TMPFS {
        println!(
            "skipped: a tier on flash, because directories for temporary files are in memory here"
        );
        return;
    }
    Connection::open(dir.join("app.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let attached =
        json(&tiersmith(dir, &["attach", "app.db", "--fast", ".", "--size", "16M", "--json"]));
    assert_eq!(
        (&attached["flash"], &attached["emulated"]),
        (&true.into(), &false.into()),
        "{attached}"
    );
    tiersmith_sqlite::register().unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?vfs=tiersmith", dir.join("app.db").display());
    let through = Connection::open_with_flags(uri, flags).unwrap();
    through.execute_batch("PRAGMA journal_mode = WAL; INSERT INTO t VALUES (7)").unwrap();
    let stats: String = through.query_row("PRAGMA tiersmith_stats", [], |row| row.get(0)).unwrap();
    assert!(stats.contains("flash: durable at each sync"), "{stats}");
    drop(through);
    let status = text(&tiersmith(dir, &["status", "app.db"]));
    assert!(status.contains(": flash, ") && !status.contains("EMULATED"), "{status}");
    // Again: the attachment file says what it is.
    assert!(tiersmith(dir, &["attach", "app.db", "--fast", "."]).status.success());
    let checked = tiersmith(dir, &["check", "app.db"]);
    assert!(checked.status.success(), "{}", text(&checked));
    let detached = tiersmith(dir, &["detach", "app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(rows(&dir.join("app.db")).unwrap(), 1);
}

#[test]
fn a_database_whose_stub_was_removed_is_brought_back_by_detach() {
    let _alone = crate::alone();
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
fn a_database_file_is_attached_without_a_mount_and_given_back() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let tiers = dir.join("fast");
    std::fs::create_dir(&tiers).unwrap();
    let stock = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        Connection::open_with_flags_and_vfs(dir.join("app.db"), flags, c"unix").unwrap()
    };
    stock().execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1), (2)").unwrap();
    let wrong = [
        (&["attach", "app.db"][..], "--fast"),
        (
            &["attach", "app.db", "--fast", "fast", "--emulate", "--threads", "2"],
            "--threads is for a directory",
        ),
        (
            &["attach", "app.db", "--fast", "fast", "--emulate", "--passthrough-max", "2G"],
            "--passthrough-max is for a directory",
        ),
        (&["attach", "app.db", "--fast", "nowhere/tier", "--emulate"], "nowhere/tier"),
        (&["attach", "app.db", "--fast", "fast", "--size", "64K", "--emulate"], "size"),
    ];
    for (arguments, words) in wrong {
        let refused = tiersmith(dir, arguments);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        assert!(text(&refused).contains(words), "{words}: {}", text(&refused));
    }
    assert_eq!(std::fs::read_dir(&tiers).unwrap().count(), 0, "a refused attach leaves no tier");
    let name = dir.canonicalize().unwrap().join("app.db").to_str().unwrap()[1..].replace('/', "-");
    let others = tiers.join(format!("{name}.tier"));
    std::fs::write(&others, "").unwrap();
    std::fs::set_permissions(&others, std::fs::Permissions::from_mode(0o666)).unwrap();
    let refused =
        tiersmith(dir, &["attach", "app.db", "--fast", "fast", "--emulate", "--size", "16M"]);
    assert!(text(&refused).contains("others may open it"), "{}", text(&refused));
    assert!(others.exists(), "what was not made here is not removed");
    std::fs::remove_file(&others).unwrap();
    std::fs::write(dir.join("list.txt"), "shopping list").unwrap();
    let refused =
        tiersmith(dir, &["attach", "list.txt", "--fast", "fast", "--emulate", "--size", "16M"]);
    assert!(text(&refused).contains("is not an SQLite database"), "{}", text(&refused));
    let arguments = ["attach", "app.db", "--fast", "fast", "--size", "16M", "--emulate", "--json"];
    let attached = tiersmith(dir, &arguments);
    assert!(attached.status.success(), "{}", text(&attached));
    let attached = json(&attached);
    assert_eq!(
        (&attached["was_attached"], &attached["emulated"]),
        (&Value::from(false), &Value::from(true))
    );
    let member = std::fs::read_dir(&tiers).unwrap().next().unwrap().unwrap().path();
    assert!(member.to_str().unwrap().ends_with("-app.db.tier"), "{}", member.display());
    assert!(rows(&dir.join("app.db")).is_err(), "a stock SQLite opens an attached database");
    // Again: nothing to do. The program opens it without naming the tier.
    let again = tiersmith(dir, &["attach", "app.db"]);
    assert!(again.status.success() && text(&again).contains("vfs=tiersmith"), "{}", text(&again));
    tiersmith_sqlite::register().unwrap();
    let uri = format!("file:{}?vfs=tiersmith", dir.join("app.db").display());
    Connection::open(uri).unwrap().execute_batch("INSERT INTO t VALUES (3)").unwrap();
    let detached = tiersmith(dir, &["detach", "app.db"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(rows(&dir.join("app.db")).unwrap(), 3);
}

#[test]
fn an_attached_database_is_reported_checked_counted_and_detached() {
    let _alone = crate::alone();
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
    assert_eq!(
        json(&tiersmith(dir, &["check", "app.db", "--json"]))["summary"]["home_compared"],
        true
    );

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
    let _alone = crate::alone();
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
    let _alone = crate::alone();
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
    assert_eq!(
        (&status["state"], &status["blocks_dirty"]),
        (&Value::from("attached"), &Value::from(2))
    );
    let check = tiersmith(dir, &["check", "data", "--fast", "data.tier", "--cold"]);
    assert!(check.status.success(), "{}", text(&check));

    let detached = tiersmith(dir, &["detach", "data"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert!(dir.join("data.tier").exists(), "a tier that `attach` had not made was removed");
    assert_eq!(std::fs::read(home.join("app.db")).unwrap(), [7; 8192]);
}

#[test]
fn a_damaged_tier_is_a_finding_with_what_it_means_and_what_to_do() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    attached_database(dir);
    // The first of the two superblock copies: the tier can be opened still.
    let tier = std::fs::OpenOptions::new().write(true).open(dir.join("app.tier")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&tier, &[0xee; 64], 128).unwrap();
    let cold = ["check", "app.db", "--cold"];
    let check = tiersmith(dir, &cold);
    let said = text(&check);
    assert!(said.contains("1 Note") && said.contains("remedy") && said.contains("means"), "{said}");
    assert!(check.status.success(), "the tier can be opened with the other copy: {said}");
    // A home that somebody wrote to is more than a note.
    let home =
        std::fs::OpenOptions::new().append(true).open(dir.join("app.db-tiersmith/db")).unwrap();
    std::io::Write::write_all(&mut &home, b"more").unwrap();
    let check = tiersmith(dir, &cold);
    assert_eq!(check.status.code(), Some(1), "{}", text(&check));
    // By the directory and its tier it is the same.
    let named = tiersmith(dir, &["check", "app.db-tiersmith", "--fast", "app.tier", "--cold"]);
    assert_eq!((named.status.code(), text(&named)), (Some(1), text(&check)));
}

/// Every file of the directory, with its bytes.
fn contents(dir: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.push((path.clone(), std::fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_cold_check_of_a_database_looks_at_what_a_crash_left_and_changes_nothing() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    attached_database(dir);
    let before = contents(dir);
    for path in ["app.db", "./app.db"] {
        let check = tiersmith(dir, &["check", path, "--cold", "--json"]);
        assert!(check.status.success(), "{}", text(&check));
        let summary = &json(&check)["summary"];
        assert_eq!(summary["home_compared"], true, "{summary}");
        // An open would have brought them home.
        assert!(summary["blocks_dirty"].as_u64().unwrap() > 0, "{summary}");
    }
    // Also when only the directory knows of it.
    std::fs::rename(dir.join("app.db"), dir.join("stub")).unwrap();
    assert!(tiersmith(dir, &["check", "app.db", "--cold"]).status.success());
    std::fs::rename(dir.join("stub"), dir.join("app.db")).unwrap();
    assert!(contents(dir) == before, "a cold check changed something");
    for (path, said) in [("app.tier", "is not attached"), ("none.db", "there is no none.db")] {
        let check = tiersmith(dir, &["check", path, "--cold"]);
        assert_eq!(check.status.code(), Some(2), "{}", text(&check));
        assert!(text(&check).contains(said), "{}", text(&check));
    }
}

/// An attached database of `rows` rows of 1000 bytes at home and one more in its WAL, in a tier of
/// `size`; its file was then written past Tiersmith.
fn written_past(dir: &Path, size: &str, rows: u64, write: fn(&Path)) {
    tiersmith_sqlite::register().unwrap();
    let (database, tier) = (dir.join("app.db"), dir.join("app.tier"));
    let uri = format!(
        "file:{}?vfs=tiersmith&fast={}&size={size}&emulate=1",
        database.display(),
        tier.display()
    );
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).unwrap();
    // As a process that ended left it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    connection
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); CREATE TABLE u (x); BEGIN")
        .unwrap();
    for _ in 0..rows {
        connection.execute("INSERT INTO t VALUES (zeroblob(1000))", []).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    for pragma in ["PRAGMA wal_checkpoint(TRUNCATE)", "PRAGMA tiersmith_flush"] {
        connection.query_row(pragma, [], |_| Ok(())).unwrap();
    }
    connection.execute_batch("INSERT INTO t VALUES ('the newest')").unwrap();
    // What is read enters the tier, as long as there is room.
    connection.query_row("SELECT sum(length(x)) FROM t", [], |_| Ok(())).unwrap();
    drop(connection);
    for bar in ["db-wal", "db-journal"] {
        std::fs::remove_dir(dir.join("app.db-tiersmith").join(bar)).unwrap();
    }
    let db = dir.join("app.db-tiersmith/db");
    write(&db);
    // A file system may keep times by 10 ms: a minute ahead is another time on each.
    let file = std::fs::OpenOptions::new().write(true).open(db).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(60)).unwrap();
}

fn newest(path: &Path, sql: &str) -> String {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok", "{}", path.display());
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_database_written_past_tiersmith_is_explained_and_both_versions_are_kept() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    written_past(dir, "16M", 100, |db| {
        let past = Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
        past.execute_batch("INSERT INTO u VALUES ('theirs')").unwrap();
    });
    let before = contents(dir);
    let status = tiersmith(dir, &["status", "app.db", "--json"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(
        json(&status)["trouble"].as_str().unwrap().contains("--keep-both"),
        "{}",
        text(&status)
    );
    let detach = tiersmith(dir, &["detach", "app.db"]);
    assert_eq!(detach.status.code(), Some(2), "{}", text(&detach));
    assert!(text(&detach).contains("tiersmith detach --keep-both"), "{}", text(&detach));
    let wrong = tiersmith(dir, &["detach", "--keep-both", "--force-without-tier", "app.db"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    let wrong = tiersmith(dir, &["detach", "--keep-both", "."]);
    assert!(text(&wrong).contains("is for one SQLite file"), "{}", text(&wrong));
    let but_the_tier = |files: Vec<(std::path::PathBuf, Vec<u8>)>| {
        files.into_iter().filter(|(path, _)| !path.ends_with("app.tier")).collect::<Vec<_>>()
    };
    assert!(
        but_the_tier(contents(dir)) == but_the_tier(before),
        "what was refused changed something"
    );

    let kept = tiersmith(dir, &["detach", "--keep-both", "app.db", "--json"]);
    assert!(kept.status.success(), "{}", text(&kept));
    let kept = json(&kept);
    assert!(kept["changed"].as_str().unwrap().ends_with("app.db-changed"), "{kept}");
    assert_eq!(
        (&kept["attached"], &kept["blocks_from_home"]),
        (&Value::from(false), &Value::from(0)),
        "{kept}"
    );
    assert!(kept["blocks"].as_u64().unwrap() > 20, "{kept}");
    assert_eq!(newest(&dir.join("app.db"), "SELECT x FROM t ORDER BY rowid DESC"), "the newest");
    assert_eq!(newest(&dir.join("app.db"), "SELECT 'no ' || count(*) FROM u"), "no 0");
    assert_eq!(newest(&dir.join("app.db-changed"), "SELECT x FROM u"), "theirs");
    assert_eq!(rows(&dir.join("app.db-changed")).unwrap(), 100);
    assert!(!dir.join("app.db-tiersmith").exists());
    // It is plain: there is nothing to keep, and that is said.
    let again = tiersmith(dir, &["detach", "--keep-both", "app.db"]);
    assert!(text(&again).contains("is not attached"), "{}", text(&again));
}

/// The tier has a part of the file only, and could not have all of it: the rest is as it was found,
/// and how much that is is said.
#[test]
fn both_versions_are_kept_when_the_tier_is_smaller_than_the_file() {
    let _alone = crate::alone();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    written_past(dir, "8M", 20_000, |db| {
        let file = std::fs::OpenOptions::new().write(true).open(db).unwrap();
        // The number of the SQLite that wrote last: read by nobody.
        std::os::unix::fs::FileExt::write_all_at(&file, &[1, 2, 3, 4], 96).unwrap();
    });
    let changed = std::fs::read(dir.join("app.db-tiersmith/db")).unwrap();
    // How much of it is in use depends on how far the store's own thread came; that it cannot hold
    // the file does not.
    let cold = json(&tiersmith(dir, &["check", "app.db", "--cold", "--json"]));
    let frames = |name: &str| cold["summary"][name].as_u64().unwrap();
    println!(
        "{} of {} frames of the tier are used (EMULATED)",
        frames("frames_used"),
        frames("frames_total")
    );
    assert!(
        frames("frames_used") > 0 && frames("frames_total") * 2 < changed.len() as u64 / 4096,
        "{cold}"
    );
    let kept = tiersmith(dir, &["detach", "--keep-both", "app.db"]);
    assert!(kept.status.success(), "{}", text(&kept));
    let said = text(&kept);
    assert!(
        said.contains("what Tiersmith had") && said.contains("app.db-changed: what was written"),
        "{said}"
    );
    assert!(
        said.contains("blocks were at home only") && said.contains("integrity_check"),
        "{said}"
    );
    assert_eq!(newest(&dir.join("app.db"), "SELECT x FROM t ORDER BY rowid DESC"), "the newest");
    assert_eq!(rows(&dir.join("app.db")).unwrap(), 20_001);
    assert!(std::fs::read(dir.join("app.db-changed")).unwrap() == changed);
}

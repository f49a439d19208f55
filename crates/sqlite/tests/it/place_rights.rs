//! A process of root's that opens, attaches and detaches another account's database: it does what
//! that account could do, and no more. (The commands:
//! `crates/cli/tests/alone/attached_attacks.rs`.)

use crate::support;

use crate::support::{Bench, again, connect, fold};
use rusqlite::Connection;
use rustix::process::{getegid, geteuid, getgroups};
use std::ffi::c_int;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use tiersmith_sqlite::place::{Place, Want, status};

/// An account that nobody needs to have.
const MALLORY: u32 = 54_321;
const SECRET: &str = "kept by root\n";

/// A database of Mallory's in a directory of hers, and a file of root's beside it; `None` without
/// root.
fn hers(test: &str) -> Option<(Bench, PathBuf)> {
    if !geteuid().is_root() {
        println!("skipped: {test}, because only root can act for another account");
        return None;
    }
    let bench = Bench::new();
    bench.fill(10);
    for path in [bench.path(), &bench.database()] {
        chown(path, Some(MALLORY), Some(MALLORY)).unwrap();
    }
    let secret = bench.path().with_extension("secret");
    fs::write(&secret, SECRET).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    Some((bench, secret))
}

/// It is removed, too.
fn assert_untouched(secret: &Path, how: &str) {
    let found = secret.symlink_metadata().unwrap();
    let bytes = fs::read_to_string(secret).unwrap();
    fs::remove_file(secret).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (0, 0, 0o600), "{how}");
    assert_eq!(bytes, SECRET, "{how}");
}

fn all_below(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_below(&path, found);
        }
        found.push(path);
    }
}

#[test]
fn what_a_process_of_roots_makes_for_an_account_is_the_accounts() {
    let Some((bench, secret)) =
        hers("what_a_process_of_roots_makes_for_an_account_is_the_accounts")
    else {
        return;
    };
    tiersmith_sqlite::register().unwrap();
    let before = (geteuid(), getegid(), getgroups().unwrap());
    for journal in ["WAL", "DELETE"] {
        let db = Connection::open(bench.uri()).unwrap();
        db.execute_batch(&format!("PRAGMA journal_mode = {journal}; INSERT INTO t VALUES (1)"))
            .unwrap();
        let mut made = Vec::new();
        all_below(bench.path(), &mut made);
        assert!(made.len() >= 6, "{made:?}");
        for path in made {
            assert_eq!(
                path.symlink_metadata().unwrap().uid(),
                MALLORY,
                "{journal}: {}",
                path.display()
            );
        }
    }
    Place::detach(&bench.database(), &fold).unwrap();
    assert_eq!(bench.database().metadata().unwrap().uid(), MALLORY);
    assert_eq!(
        (geteuid(), getegid(), getgroups().unwrap()),
        before,
        "the thread has its own rights again"
    );
    assert_untouched(&secret, "nothing planted");
}

/// Whose group the directory took from the one above it, as below a directory with the bit for
/// set-group-ID: the account is no member of it.
#[test]
fn an_account_that_the_system_does_not_know_has_no_group_by_its_files() {
    let Some((bench, secret)) =
        hers("an_account_that_the_system_does_not_know_has_no_group_by_its_files")
    else {
        return;
    };
    for path in [bench.path(), &bench.database()] {
        chown(path, None, Some(0)).unwrap();
    }
    drop(bench.attach().unwrap().unwrap());
    let mut made = Vec::new();
    all_below(&bench.home(), &mut made);
    // Her database is there by its second name.
    made.retain(|path| !path.ends_with("db"));
    assert!(made.len() >= 3, "{made:?}");
    for path in made {
        let found = path.symlink_metadata().unwrap();
        assert_eq!(found.uid(), MALLORY, "{}", path.display());
        assert_ne!(found.gid(), 0, "root made it with a group of its own: {}", path.display());
    }
    Place::detach(&bench.database(), &fold).unwrap();
    assert_untouched(&secret, "nothing planted");
}

#[test]
fn what_keeps_a_database_from_being_written_is_told_to_root_as_it_is() {
    let Some((bench, secret)) =
        hers("what_keeps_a_database_from_being_written_is_told_to_root_as_it_is")
    else {
        return;
    };
    fs::set_permissions(bench.database(), fs::Permissions::from_mode(0o444)).unwrap();
    let refused = bench.attach_at_once().unwrap_err().to_string();
    assert!(refused.contains("Its owner needs the right to write"), "{refused}");
    assert!(!refused.contains("Run as its owner"), "{refused}");
    assert_untouched(&secret, "nothing planted");
}

/// Opens a database. A child that another test of this process starts has all open files until it
/// has become another program, and the database is in use as long.
fn open_at_last(uri: &str) -> Connection {
    for _ in 0..200 {
        match Connection::open(uri) {
            Err(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("{uri} is in use for ever");
}

#[test]
fn a_file_of_roots_under_a_name_of_an_attached_database_is_not_opened() {
    let test = "a_file_of_roots_under_a_name_of_an_attached_database_is_not_opened";
    tiersmith_sqlite::register().unwrap();
    for name in
        ["db", "wal", "journal", "attachment.new", "stub.new", "statistics.new", "statistics"]
    {
        for by_hard_link in [true, false] {
            let Some((bench, secret)) = hers(test) else { return };
            drop(open_at_last(&bench.uri()).execute_batch("INSERT INTO t VALUES (1)"));
            let path = bench.home().join(name);
            let _ = fs::remove_file(&path);
            if by_hard_link {
                fs::hard_link(&secret, &path).unwrap();
            } else {
                symlink(&secret, &path).unwrap();
            }
            for journal in ["WAL", "DELETE"] {
                let Ok(db) = Connection::open(bench.uri()) else { continue };
                drop(db.execute_batch(&format!(
                    "PRAGMA journal_mode = {journal}; INSERT INTO t SELECT n FROM t; PRAGMA \
                     wal_checkpoint"
                )));
            }
            let how = format!("{name}, {}", if by_hard_link { "a hard link" } else { "a link" });
            assert_untouched(&secret, &how);
        }
    }
}

#[test]
fn detach_writes_a_missing_stub_through_no_link() {
    for by_hard_link in [true, false] {
        let Some((bench, secret)) = hers("detach_writes_a_missing_stub_through_no_link") else {
            return;
        };
        drop(bench.attach().unwrap().unwrap());
        fs::remove_file(bench.database()).unwrap();
        let stub = bench.home().join("stub.new");
        if by_hard_link {
            fs::hard_link(&secret, &stub).unwrap();
        } else {
            symlink(&secret, &stub).unwrap();
        }
        let _ = status(&bench.database());
        let _ = Place::detach_keeping_both(&bench.database(), &fold);
        let _ = Place::detach(&bench.database(), &fold);
        assert_untouched(&secret, "stub.new");
    }
}

#[test]
fn what_lies_at_a_name_of_stock_sqlite_is_no_pipe_to_wait_for() {
    for ending in ["-wal", "-journal", "-shm"] {
        let bench = Bench::new();
        bench.fill(10);
        let pipe = bench.file(&format!("app.db{ending}"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = bench.attach_at_once().unwrap_err().to_string();
        assert!(refused.contains(ending) && refused.contains("no ordinary file"), "{refused}");
    }
}

#[test]
fn two_owners_are_refused_and_a_plain_database_is_nobodys_business() {
    let Some((bench, secret)) =
        hers("two_owners_are_refused_and_a_plain_database_is_nobodys_business")
    else {
        return;
    };
    chown(bench.database(), Some(0), Some(0)).unwrap();
    assert!(bench.open().unwrap().is_none(), "a plain one is for SQLite");
    let want = Want { fast: Some(bench.fast()), create: true, read_only: false };
    let refused = Place::open(&bench.database(), &want, &fold).unwrap_err().to_string();
    assert!(refused.contains("54321") && refused.contains("chown"), "{refused}");
    assert!(!bench.home().exists() && !bench.tier().exists());
    assert_untouched(&secret, "two owners");
}

// Those of the C library, which change every thread; it ends a process whose threads do not agree.
unsafe extern "C" {
    fn setgroups(count: usize, groups: *const u32) -> c_int;
    fn setgid(group: u32) -> c_int;
    fn setuid(user: u32) -> c_int;
}

/// As a server does that is started by root and works as another account.
fn become_mallory() {
    let groups = [MALLORY];
    // SAFETY: the pointer is to as many groups as are counted; no other memory is involved.
    assert_eq!(unsafe { setgroups(groups.len(), groups.as_ptr()) }, 0);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { setgid(MALLORY) }, 0);
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { setuid(MALLORY) }, 0);
}

#[test]
fn a_program_of_roots_may_give_its_rights_up_while_it_has_an_accounts_database_open() {
    const TEST: &str =
        "a_program_of_roots_may_give_its_rights_up_while_it_has_an_accounts_database_open";
    const URI: &str = "TIERSMITH_TEST_GIVES_RIGHTS_UP";
    if let Ok(uri) = std::env::var(URI) {
        let db = connect(&uri).unwrap();
        db.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        become_mallory();
        for journal in ["WAL", "DELETE"] {
            db.execute_batch(&format!("PRAGMA journal_mode = {journal}; INSERT INTO t VALUES (2)"))
                .unwrap();
        }
        return;
    }
    let Some((bench, secret)) = hers(TEST) else { return };
    let ended = again(&full_name!(TEST), (URI, &bench.uri())).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    Place::detach(&bench.database(), &fold).unwrap();
    assert_eq!(support::rows(&bench.database()).unwrap(), 13);
    assert_untouched(&secret, "nothing planted");
}

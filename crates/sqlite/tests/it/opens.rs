//! A program that works on other accounts' databases (`open_only_files`), in a process of its own:
//! what somebody puts beside a database is not waited for, and not taken for a file.

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// An account that nobody needs to have. Root may open for writing what it likes, so that SQLite
/// would not try again to read only, which is what waits.
const MALLORY: u32 = 54_321;
const IN_TIME: Duration = Duration::from_secs(10);

/// What SQLite says after `work` on a connection of Mallory's: in time, or the test fails.
fn said(
    database: &Path,
    about: &str,
    work: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
) -> String {
    let (path, (answer, heard)) = (database.to_path_buf(), channel());
    std::thread::spawn(move || {
        if geteuid().is_root() {
            let (user, group) = (Uid::from_raw(MALLORY), Gid::from_raw(MALLORY));
            set_thread_groups(&[group]).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let done =
            Connection::open_with_flags_and_vfs(path, flags, "unix").and_then(|db| work(&db));
        answer.send(done.map_or_else(|e| e.to_string(), |()| "good".to_owned())).unwrap();
    });
    match heard.recv_timeout(IN_TIME) {
        Ok(said) => said,
        Err(RecvTimeoutError::Timeout) => panic!("SQLite waits for {about}"),
        Err(RecvTimeoutError::Disconnected) => panic!("SQLite panicked beside {about}"),
    }
}

fn read(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("SELECT count(*) FROM t", [], |_| Ok(()))
}

#[test]
fn sqlite_waits_for_no_pipe_that_is_put_beside_a_database() {
    tiersmith_sqlite::open_only_files().unwrap();
    tiersmith_sqlite::open_only_files().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let write =
        "PRAGMA synchronous = EXTRA; CREATE TABLE t (x); INSERT INTO t VALUES (randomblob(9))";
    for (mode, endings) in
        [("DELETE", &["", "-journal"][..]), ("WAL", &["", "-journal", "-wal", "-shm"][..])]
    {
        let database = dir.path().join(mode);
        let begin = format!("PRAGMA journal_mode = {mode}; {write}");
        // Directories are opened to be synced, and /dev/urandom for random numbers.
        assert_eq!(
            said(&database, "nothing", move |db| db.execute_batch(&begin)),
            "good",
            "{mode}"
        );
        assert_eq!(said(&database, "nothing", read), "good", "{mode}");
        for ending in endings {
            let name = dir.path().join(format!("{mode}{ending}"));
            let aside = dir.path().join("aside");
            let moved = fs::rename(&name, &aside).is_ok();
            // Readable only, so that what is opened for writing is opened again to be read.
            mknodat(CWD, &name, FileType::Fifo, 0o444.into(), 0).unwrap();
            fs::set_permissions(&name, fs::Permissions::from_mode(0o444)).unwrap();
            let about = format!("a pipe at {}", name.display());
            let refused = said(&database, &about, read);
            assert!(refused.contains("unable to open database file"), "{about}: {refused}");
            assert!(
                name.symlink_metadata().unwrap().file_type().is_fifo(),
                "{about} is there no more"
            );
            // One that can be opened for writing: that does not wait, and must not count as a file.
            fs::set_permissions(&name, fs::Permissions::from_mode(0o666)).unwrap();
            let refused = said(&database, &about, read);
            assert!(refused.contains("unable to open database file"), "{about}: {refused}");
            fs::remove_file(&name).unwrap();
            if moved {
                fs::rename(&aside, &name).unwrap();
            }
            assert_eq!(said(&database, "nothing", read), "good", "{mode}");
        }
    }
    assert!(
        said(Path::new("/dev/zero"), "a device", read).contains("unable to open database file")
    );
}

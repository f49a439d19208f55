//! A trial of a SQLite file: the load runs on the plain file and with its directory attached,
//! whole, killed, and refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;

use crate::daemon::{self, Site, can_mount, is_mounted, output, text};
use crate::trial_target::stands_on_disk;

/// The file that the load writes.
const DATABASE: &str = "TIERSMITH_TEST_TRIAL_DATABASE";
/// Rows of one run of the load, each committed.
const ROWS: i64 = 50;

/// The user's program: not a test but for who sets the variable.
#[test]
fn the_load() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let mut connection = Connection::open(path).unwrap();
    connection.busy_timeout(daemon::LIMIT).unwrap();
    for _ in 0..ROWS {
        let transaction = connection.transaction().unwrap();
        transaction.execute("INSERT INTO t VALUES (NULL, randomblob(2000))", []).unwrap();
        transaction.commit().unwrap();
    }
}

struct Files {
    site: Site,
}

impl Files {
    fn new() -> Option<Files> {
        if !can_mount("a trial of SQLite") {
            return None;
        }
        let site = Site::new();
        if !stands_on_disk(site.path()) {
            eprintln!("skipped: a trial of SQLite, because temporary files are in memory here");
            return None;
        }
        let files = Files { site };
        let made = Connection::open(files.database()).unwrap();
        made.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
            .unwrap();
        Some(files)
    }

    fn database(&self) -> PathBuf {
        self.site.home.join("app.db")
    }

    fn state(&self) -> PathBuf {
        self.site.path().join("state")
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = daemon::command(&["trial"]);
        command.arg(self.database()).arg("--fast").arg(&self.site.fast);
        command.args(["--size", "64M", "--state"]).arg(self.state()).args(more);
        command.env(DATABASE, self.database());
        command
    }

    fn trial(&self, more: &[&str]) -> Command {
        let mut command = self.command(more);
        command.arg("--").arg(std::env::current_exe().unwrap());
        command.args(["--exact", &full_name!("the_load"), "--nocapture"]);
        command
    }

    fn way(&self, way: &str) -> Command {
        let mut command = daemon::command(&["trial", way, "--state"]);
        command.arg(self.state()).env(DATABASE, self.database());
        command
    }

    /// The directory is plain, and the database whole; its rows.
    fn rows(&self) -> i64 {
        assert!(!is_mounted(&self.site.home));
        let beside = self.site.beside();
        assert!(beside.iter().all(|name| name == "state"), "left beside the home: {beside:?}");
        assert_eq!(fs::read_dir(&self.site.fast).unwrap().count(), 0, "a tier was left");
        let connection = Connection::open(self.database()).unwrap();
        let check: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn a_trial_of_a_sqlite_file_runs_its_load_twice_and_ends_with_a_page_and_the_plain_file() {
    let Some(files) = Files::new() else { return };
    let checked = output(files.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).contains("No server is stopped"), "{}", text(&checked));
    assert!(!files.state().exists());
    let done = output(files.trial(&[]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("Run time of the load") && said.contains("Waits in the Mount"), "{said}");
    assert!(said.contains("the database is plain again\n"), "{said}");
    // The commits of the second run waited in the mount.
    let waits = said.split("Waits in the Mount").nth(1).unwrap();
    assert!(waits.contains("write") || waits.contains("sync"), "{said}");
    assert_eq!(files.rows(), 2 * ROWS);
}

#[test]
fn a_trial_of_a_sqlite_file_killed_at_any_step_is_brought_to_its_end_or_back() {
    let Some(files) = Files::new() else { return };
    let kills = [
        ("attach:begun", "--undo"),
        ("attach:acted", "--resume"),
        ("measure:begun", "--undo"),
        ("detach:begun", "--resume"),
        ("detach:acted", "--undo"),
    ];
    for (kill, way) in kills {
        let mut killed = files.trial(&[]);
        let killed = output(killed.env("TIERSMITH_TRIAL_KILL", kill).spawn().unwrap(), &[kill]);
        assert_eq!(killed.status.code(), Some(1), "{kill}: {}", text(&killed));
        let back = output(files.way(way).spawn().unwrap(), &["trial", way]);
        let said = text(&back);
        assert_eq!(back.status.code(), Some(0), "{kill} {way}: {said}");
        assert!(said.contains("plain") && !said.contains("and runs"), "{kill} {way}: {said}");
        assert!(files.rows() >= ROWS, "{kill}");
    }
}

#[test]
fn what_speaks_against_a_trial_of_a_sqlite_file_is_said_with_what_to_do() {
    let Some(files) = Files::new() else { return };
    let said_of = |command: &mut Command, code: i32| {
        let output = output(command.spawn().unwrap(), &["trial"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        text(&output)
    };
    let said = said_of(&mut files.command(&[]), 2);
    assert!(said.contains("give the command that uses the database"), "{said}");
    let said = said_of(&mut files.trial(&["--stop", "true", "--start", "true"]), 2);
    assert!(said.contains("there is no server to stop"), "{said}");
    let open = Connection::open(files.database()).unwrap();
    open.execute_batch("INSERT INTO t VALUES (NULL, 1)").unwrap();
    let said = said_of(&mut files.trial(&["--check"]), 1);
    let me = std::process::id().to_string();
    assert!(said.contains("it is in use") && said.contains(&me), "{said}");
    drop(open);
    let of = |path: &Path| {
        let mut command = daemon::command(&["trial"]);
        command.arg(path).arg("--fast").arg(&files.site.fast).arg("--state").arg(files.state());
        command.args(["--", "true"]);
        said_of(&mut command, 2)
    };
    assert!(of(&files.site.home).contains("it is a directory; give the SQLite database file"));
    assert!(of(Path::new("/nowhere/app.db")).contains("give the path of a SQLite database file"));
    let other = files.site.home.join("other");
    fs::write(&other, "not a database").unwrap();
    assert!(of(&other).contains("does not begin as a SQLite database does"));
    fs::remove_file(&other).unwrap();
    // Attached through the VFS.
    let database = files.database();
    let (database, fast) = (database.to_str().unwrap(), files.site.fast_str());
    daemon::good(&["attach", database, "--fast", fast, "--size", "16M"]);
    let said = of(&files.database());
    assert!(said.contains("attached through the VFS") && said.contains("tiersmith detach"));
    daemon::good(&["detach", database]);
    // Fast storage inside the directory, which is moved aside.
    let inside = files.site.home.join("fast");
    fs::create_dir(&inside).unwrap();
    let mut command = daemon::command(&["trial", database, "--check", "--fast"]);
    command.arg(&inside).arg("--state").arg(files.state()).args(["--", "true"]);
    assert!(said_of(&mut command, 1).contains("is inside the database's directory"));
    assert!(!files.state().exists());
}

//! A trial on a copy of a PostgreSQL: whole, checked, refused, kept, and killed at each of its
//! steps. The original goes on as if nothing were, and no copy is left.
//!
//! `TIERSMITH_TRIAL_KILLS=all` kills at every step both before and after it acted; without it at
//! some.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tiersmith_lab::server;
use tiersmith_lab::trial::service;

use crate::daemon::{self, output, text, wait_until};
use crate::trial_target::{Target, stands_on_disk};

/// Where the load notes what it found.
const NOTES: &str = "TIERSMITH_TEST_COPY_NOTES";
/// Transactions of one run of the load.
const ROWS: usize = 300;
/// What the original is told: to make its checkpoints at once, and to do what a copy must not.
const TOLD: [(&str, &str); 4] = [
    ("checkpoint_completion_target", "0"),
    ("archive_mode", "on"),
    ("archive_command", "true"),
    ("shared_buffers", "24MB"),
];
/// The steps that a trial can be killed at.
const KILLS: [(&str, &str); 10] = [
    ("copy:running", "--undo"),
    ("measure:begun", "--undo"),
    ("remove:begun", "--resume"),
    ("copy:begun", "--undo"),
    ("copy:running", "--resume"),
    ("copy:acted", "--undo"),
    ("start:begun", "--undo"),
    ("attach:acted", "--undo"),
    ("detach:begun", "--undo"),
    ("remove:acted", "--undo"),
];

fn kills() -> &'static [(&'static str, &'static str)] {
    match std::env::var("TIERSMITH_TRIAL_KILLS").is_ok_and(|which| which == "all") {
        true => &KILLS,
        false => &KILLS[..3],
    }
}

/// The user's program: not a test but for who sets the variable.
#[test]
fn the_load() {
    let Some(notes) = std::env::var_os(NOTES) else { return };
    let product = server::product("postgres").unwrap();
    let at = PathBuf::from(std::env::var_os("PGHOST").unwrap());
    let mut client = product.connect(&at.join(product.socket_name())).unwrap();
    let names = [
        "data_directory",
        "archive_mode",
        "listen_addresses",
        "max_logical_replication_workers",
        "shared_buffers",
    ];
    let told = names.map(|name| client.table(&format!("SHOW {name}")).unwrap()[0][0].clone());
    let url = std::env::var("TIERSMITH_URL").unwrap();
    let mut file = fs::OpenOptions::new().append(true).create(true).open(notes).unwrap();
    writeln!(file, "{} {url}", told.join("|")).unwrap();
    for _ in 0..ROWS {
        client.batch("INSERT INTO shop.acked SELECT max(id) + 1 FROM shop.acked").unwrap();
    }
}

/// What must be as it was afterwards.
#[derive(Debug, PartialEq)]
struct Marks {
    server: i32,
    rows: String,
    relations: String,
    files: [Vec<u8>; 3],
}

/// A database with rows, and the place for its copy.
struct Original {
    target: Target,
    copy: PathBuf,
    notes: tempfile::TempDir,
    marks: Marks,
}

impl Original {
    fn new() -> Option<Original> {
        let target = Target::postgres_told(&TOLD)?;
        target.tell("INSERT INTO shop.acked SELECT generate_series(1, 1000)");
        // The copy would have it from its own file otherwise.
        target.tell("ALTER SYSTEM SET listen_addresses = '*'");
        let copy = target.site_path().join("copy");
        let marks = marks(&target);
        Some(Original { target, copy, notes: tempfile::tempdir().unwrap(), marks })
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = daemon::command(&["trial", self.target.url(), "--size", "64M"]);
        command.arg("--fast").arg(self.target.home().with_file_name("fast"));
        command.arg("--on-copy").arg(&self.copy).arg("--state").arg(self.target.state());
        command.args(more);
        command
    }

    fn trial(&self, more: &[&str]) -> Command {
        let mut command = self.command(more);
        command.arg("--").arg(std::env::current_exe().unwrap());
        command.args(["--exact", &full_name!("the_load"), "--nocapture"]);
        command.env(NOTES, self.notes());
        command
    }

    fn way(&self, way: &str) -> Command {
        let mut command = self.target.way(way);
        command.env(NOTES, self.notes());
        command
    }

    fn notes(&self) -> PathBuf {
        self.notes.path().join("notes")
    }

    /// What the load noted, a line a run.
    fn noted(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.notes()).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    /// The original is as it was, and nothing of a copy is left.
    fn assert_untouched(&self, when: &str) {
        assert!(!self.copy.exists(), "{when}: a copy is left");
        let copy = self.copy.display().to_string();
        let left = processes_that_name(&copy);
        assert!(left.is_empty(), "{when}: {left:?} run still");
        assert_eq!(marks(&self.target), self.marks, "{when}");
        // Whoever was killed is noticed by the server a moment later.
        wait_until("nobody copies the original", || {
            let gone = |what: &str| self.target.ask(&format!("SELECT count(*) FROM {what}")) == "0";
            gone("pg_replication_slots") && gone("pg_stat_replication")
        });
        self.target.assert_plain_and_running();
    }
}

impl Drop for Original {
    /// What a test that failed left.
    fn drop(&mut self) {
        if self.copy.exists() {
            let undone = self.way("--undo").spawn().map(|child| output(child, &["--undo"]));
            if let Some(running) = service::running_in(&self.copy.join("data")) {
                running.process.end_if_postgres();
                running.process.kill_tree();
            }
            let home = self.copy.join("data");
            let detached = daemon::tiersmith(&["detach", home.to_str().unwrap()]);
            eprintln!("{undone:?} {detached:?}");
        }
    }
}

fn marks(target: &Target) -> Marks {
    let file = |name: &str| fs::read(target.home().join(name)).unwrap_or_default();
    Marks {
        server: service::running_in(target.home()).unwrap().process.pid,
        rows: target.ask(
            "SELECT count(*) || ' ' || md5(string_agg(id::text, ',' ORDER BY id)) FROM shop.acked",
        ),
        relations: target.ask("SELECT count(*) FROM pg_class"),
        files: ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf"].map(file),
    }
}

/// The command lines that have this text in them.
fn processes_that_name(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(text))
        .collect()
}

#[test]
fn a_trial_on_a_copy_measures_the_copy_and_leaves_the_original_alone() {
    let Some(original) = Original::new() else { return };
    let done = output(original.trial(&["--emulate"]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let page = fs::read_to_string(original.target.trials()[0].join("trial.html")).unwrap();
    for expected in ["Transactions per second", "Both periods are of a copy of", ", EMULATED; "] {
        assert!(page.contains(expected), "no `{expected}`: {said}");
    }
    assert!(said.contains("the copy is removed, and the database was not touched"), "{said}");
    original.assert_untouched("a whole trial");
    // It ran twice on the copy, which was told what the original is told, but for what would reach
    // beyond it.
    let noted = original.noted();
    assert_eq!(noted.len(), 2, "{noted:?}");
    let copy = original.copy.display();
    for line in noted {
        assert!(line.starts_with(&format!("{copy}/data|off||0|24MB ")), "{line}");
        assert!(line.contains(" postgresql://postgres@/postgres?host="), "{line}");
    }
}

#[test]
fn a_trial_on_a_copy_killed_at_any_step_is_brought_to_its_end_or_leaves_nothing() {
    let Some(original) = Original::new() else { return };
    for (kill, way) in kills() {
        let mut killed = original.trial(&[]);
        killed.env("TIERSMITH_TRIAL_KILL", kill);
        let killed = output(killed.spawn().unwrap(), &["trial", kill]);
        let said = text(&killed);
        assert_eq!(killed.status.code(), Some(1), "{kill}: {said}");
        assert!(said.contains("`tiersmith trial --undo` removes the copy"), "{kill}: {said}");
        let back = output(original.way(way).spawn().unwrap(), &["trial", way]);
        let said = text(&back);
        assert_eq!(back.status.code(), Some(0), "{kill} {way}: {said}");
        assert!(said.contains("the database was not touched"), "{kill} {way}: {said}");
        original.assert_untouched(kill);
    }
}

#[test]
fn a_check_of_a_trial_on_a_copy_says_what_it_takes_and_makes_nothing() {
    let Some(original) = Original::new() else { return };
    let checked = output(original.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    let said = text(&checked);
    assert_eq!(checked.status.code(), Some(0), "{said}");
    for expected in ["is not stopped", "is read once", "WAL senders", "The load runs twice"] {
        assert!(said.contains(expected), "no `{expected}`: {said}");
    }
    assert!(!original.target.state().exists(), "a check left something");
    original.assert_untouched("a check");
    // Too little room is said before anything is made.
    let checked =
        output(original.trial(&["--check", "--size", "900T"]).spawn().unwrap(), &["trial --check"]);
    assert_ne!(checked.status.code(), Some(0), "{}", text(&checked));
}

#[test]
fn a_copy_that_is_kept_is_ended_as_the_page_says() {
    let Some(original) = Original::new() else { return };
    let done = output(original.trial(&["--keep"]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let home = original.copy.join("data");
    assert!(said.contains("The copy stays, attached, and its server runs"), "{said}");
    assert!(said.replace('\n', " ").contains("kill -INT $(head -n 1"), "{said}");
    let pid = fs::read_to_string(home.join("postmaster.pid")).unwrap();
    let pid = pid.lines().next().unwrap();
    assert!(Command::new("kill").args(["-INT", pid]).status().unwrap().success());
    wait_until("the copy's server ends", || service::processes_in(&home).is_empty());
    wait_until("the copy is detached", || {
        daemon::tiersmith(&["detach", home.to_str().unwrap()]).status.success()
    });
    fs::remove_dir_all(&original.copy).unwrap();
    original.assert_untouched("a kept copy");
}

#[test]
fn what_speaks_against_a_copy_is_said_with_what_to_do() {
    let Some(original) = Original::new() else { return };
    let said_of = |command: &mut Command, code: i32| {
        let output = output(command.spawn().unwrap(), &["trial"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        text(&output)
    };
    let said = said_of(&mut original.command(&["--for", "1s"]), 2);
    assert!(said.contains("users do not reach a copy") && said.contains("-- LOAD"), "{said}");
    let said = said_of(&mut original.trial(&["--stop", "true", "--start", "true"]), 2);
    assert!(said.contains("the original is not stopped"), "{said}");
    let said =
        said_of(original.command(&["--check"]).args(["--", "psql", original.target.url()]), 1);
    assert!(said.contains("the load names the original's address"), "{said}");
    // What is there already is not taken for a copy.
    fs::create_dir(&original.copy).unwrap();
    fs::write(original.copy.join("mine"), "x").unwrap();
    let said = said_of(&mut original.trial(&[]), 2);
    assert!(said.contains("it is not empty (mine is in it)"), "{said}");
    fs::remove_dir_all(&original.copy).unwrap();
    // A copy inside what is copied.
    let inside = original.target.home().join("copy");
    let mut command =
        daemon::command(&["trial", original.target.url(), "--check", "--fast", "/tmp"]);
    command.arg("--on-copy").arg(&inside).args(["--", "true"]);
    assert!(said_of(&mut command, 2).contains("a PostgreSQL's data directory"));
    // Who may not copy.
    original.target.tell("CREATE ROLE reader LOGIN");
    let url = original.target.url().replace("postgres@", "reader@");
    let mut command = daemon::command(&["trial", &url, "--check", "--fast"]);
    command.arg(original.target.home().with_file_name("fast"));
    command.arg("--on-copy").arg(&original.copy).args(["--", "true"]);
    let said = said_of(&mut command, 1);
    assert!(said.contains("ALTER ROLE ... REPLICATION") && said.contains("pg_read_all_"), "{said}");
    original.target.tell("DROP ROLE reader");
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm")
        && !stands_on_disk(memory.path())
    {
        let mut command = daemon::command(&["trial", original.target.url(), "--check", "--fast"]);
        command.arg(memory.path()).args(["--size", "16M", "--on-copy"]).arg(&original.copy);
        let said = said_of(command.args(["--", "true"]), 1);
        assert!(said.contains("is in memory") && said.contains("--emulate"), "{said}");
    }
    original.assert_untouched("refusals");
}

#[test]
fn a_copy_of_another_database_and_a_tier_in_memory_without_a_copy_are_refused() {
    let on_copy = ["--fast", "/tmp", "--on-copy", "/tmp/no-such-copy", "--", "true"];
    for (url, why) in [
        ("redis://localhost", "makes copies of PostgreSQL only yet"),
        ("mariadb:///", "makes copies of PostgreSQL only yet"),
        ("app.db", "no copy of a SQLite file yet"),
    ] {
        let said = daemon::refused(&[&["trial", url][..], &on_copy].concat());
        assert!(said.contains(why), "{said}");
    }
    for option in ["--emulate", "--volatile"] {
        let said =
            daemon::refused(&["trial", "postgresql:///nowhere", "--fast", "/dev/shm", option]);
        assert!(said.contains("add --on-copy DIR") && said.contains(option), "{said}");
    }
    assert!(!Path::new("/tmp/no-such-copy").exists());
}

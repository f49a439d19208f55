//! A trial on a copy of a real PostgreSQL: the database itself is only read, whatever becomes of
//! the trial, and nothing of the copy is left.
//!
//! `TIERSMITH_TRIAL_KILLS=all` kills at every step; without it at some.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tiersmith_lab::trial::service;

use crate::daemon::{Site, is_mounted, is_root, mounts_below, output, text, wait_until};
use crate::trial_target::Target;
use crate::volume::Volume;

/// Counts what the copy has, and writes to it.
const LOAD: &str = "set -e; psql -qAt -d \"$1\" -c 'SELECT count(*) FROM shop.before' >&2; \
                    test \"$1\" = \"$TIERSMITH_TRIAL_URL\"; \
                    for i in 1 2 3 4 5 6 7 8; do psql -q -d \"$1\" -c \
                    'CREATE TABLE IF NOT EXISTS copied (x int); INSERT INTO copied VALUES (1)'; \
                    psql -qAt -c 'SELECT count(*) FROM copied' >/dev/null; done";

/// Tells how the copy's server is set up, and what root keeps for it.
const ASKING: &str = "set -e; for name in archive_mode archive_command primary_conninfo \
                      restore_command listen_addresses shared_preload_libraries search_path \
                      max_wal_senders max_replication_slots wal_level autovacuum; do \
                      printf '%s is <%s>\\n' $name \
                      \"$(psql -qAt -d \"$1\" -c \"SHOW $name\")\" >&2; done; \
                      psql -qAt -d \"$1\" -c \"SELECT 'launchers: ' || count(*) FROM \
                      pg_stat_activity WHERE backend_type LIKE 'logical%'\" >&2; \
                      cat \"$PGHOST/../postgresql.conf\" >&2; ls \"$PGHOST/../data\" >&2; \
                      server=$(head -1 \"$PGHOST/../data/postmaster.pid\"); \
                      test $(readlink /proc/$server/ns/net) = $(readlink /proc/self/ns/net) || \
                      echo 'the server has no network of ours' >&2";

/// Where a trial on a copy can be killed, with the way on from there.
const KILLS: [(&str, &str); 17] = [
    ("copy:running", "--resume"),
    ("attach:acted", "--undo"),
    ("measure:begun", "--resume"),
    ("discard:acted", "--undo"),
    ("copy:begun", "--undo"),
    ("copy:acted", "--resume"),
    ("baseline:begun", "--undo"),
    ("baseline:acted", "--resume"),
    ("stop:begun", "--undo"),
    ("stop:acted", "--resume"),
    ("attach:begun", "--resume"),
    ("start:begun", "--resume"),
    ("start:acted", "--undo"),
    ("measure:acted", "--undo"),
    ("discard:begun", "--resume"),
    ("report:begun", "--resume"),
    ("copy:running", "--undo"),
];

struct Copied {
    target: Target,
    /// Where copies are made: short, for their sockets.
    dir: tempfile::TempDir,
    server: i32,
}

impl Copied {
    fn new() -> Option<Copied> {
        // What nobody changes stays as it is.
        Copied::with(&[("autovacuum", "off")])
    }

    fn with(settings: &[(&str, &str)]) -> Option<Copied> {
        let target = Target::postgres_with(settings)?;
        target.tell("CREATE TABLE shop.before AS SELECT generate_series(1, 1000) AS id");
        let dir = tempfile::Builder::new().prefix("tc").tempdir_in("/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let server = service::running_in(target.home()).unwrap().process.pid;
        Some(Copied { target, dir, server })
    }

    fn trial(&self, more: &[&str]) -> Command {
        self.trial_of(LOAD, more)
    }

    fn trial_of(&self, load: &str, more: &[&str]) -> Command {
        let dir = self.dir.path().to_str().unwrap();
        let load = ["--", "sh", "-c", load, "load", "{url}"];
        let on_copy = ["--on-copy", dir, "--emulate"];
        self.target.trial(&[&["--for", "10s"], &on_copy[..], more, &load].concat())
    }

    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The log of the newest trial.
    fn log(&self) -> String {
        let mut trials = self.target.trials();
        trials.sort();
        let log = trials.last().map(|trial| trial.join("log"));
        log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default()
    }

    /// The files of the database's tables, byte for byte.
    fn tables(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        let mut left = vec![self.target.home().join("base"), self.target.home().join("global")];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    left.push(path);
                } else if !path.ends_with("pg_control") && !path.ends_with("pg_internal.init") {
                    all.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        all
    }

    /// The database was never stopped, and has none of the load; nothing of the copy is left.
    fn assert_untouched(&self) {
        self.target.assert_plain_and_running();
        let running = service::running_in(self.target.home()).unwrap();
        assert_eq!(running.process.pid, self.server, "the database was stopped");
        assert_eq!(self.left(), Vec::<PathBuf>::new());
        assert_eq!(mounts_below(self.dir.path()), Vec::<PathBuf>::new());
        let copy = self.dir.path().join("tiersmith-trial-copy/data");
        assert!(service::processes_in(&copy).is_empty() && !is_mounted(&copy));
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let copy = self.dir.path().join("tiersmith-trial-copy/data");
        if let Some(running) = service::running_in(&copy) {
            running.process.end_if_postgres();
            running.process.kill_tree();
        }
        for at in mounts_below(self.dir.path()) {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}

#[test]
fn a_trial_on_a_copy_of_postgresql_measures_it_and_touches_nothing_else() {
    let Some(copied) = Copied::new() else { return };
    copied.target.tell("VACUUM FREEZE");
    // What the look itself reads is read once before.
    for _ in 0..2 {
        let checked = output(copied.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
        let said = text(&checked);
        assert_eq!(checked.status.code(), Some(0), "{said}");
        assert!(said.contains("is read once, by pg_basebackup"), "{said}");
    }
    copied.assert_untouched();
    copied.target.tell("CHECKPOINT");
    let before = copied.tables();
    let done = output(copied.trial(&[]).spawn().unwrap(), &["trial"]);
    let (said, log) = (text(&done), copied.log());
    assert_eq!(done.status.code(), Some(0), "{said}\n{log}");
    assert!(said.contains("Transactions per second"), "{said}");
    assert!(said.contains("EMULATED: the fast storage only stood for"), "{said}");
    assert!(said.contains("the copy is removed, and the database was only read"), "{said}");
    // Both runs saw the rows of the database.
    assert_eq!(log.lines().filter(|line| *line == "1000").count(), 2, "{log}");
    let page = fs::read_to_string(copied.target.trials()[0].join("trial.html")).unwrap();
    assert!(page.contains("COMPARE PERIODS (EMULATED)") && page.contains("Measured on a copy of"));
    copied.assert_untouched();
    copied.target.tell("CHECKPOINT");
    let after = copied.tables();
    let same = |(path, was): &(&PathBuf, &Vec<u8>)| after.get(*path) == Some(*was);
    let changed: Vec<_> = before.iter().filter(|pair| !same(pair)).map(|(path, _)| path).collect();
    assert!(changed.is_empty() && before.len() == after.len(), "changed: {changed:?}");
}

#[test]
fn a_trial_on_a_copy_killed_at_any_step_leaves_nothing_of_it_and_the_database_works_on() {
    let Some(copied) = Copied::new() else { return };
    let all = std::env::var("TIERSMITH_TRIAL_KILLS").is_ok_and(|which| which == "all");
    let load = copied.target.load();
    for (kill, way) in &KILLS[..if all { KILLS.len() } else { 4 }] {
        let mut killed = copied.trial(&[]);
        let killed = output(killed.env("TIERSMITH_TRIAL_KILL", kill).spawn().unwrap(), &[kill]);
        assert_eq!(killed.status.code(), Some(1), "{kill}: {}", text(&killed));
        let back = output(copied.target.way(way).spawn().unwrap(), &["trial", way]);
        let said = text(&back);
        assert_eq!(back.status.code(), Some(0), "{kill} {way}: {said}\n{}", copied.log());
        assert!(said.contains("the copy is removed"), "{kill} {way}: {said}");
        copied.assert_untouched();
    }
    // Nobody who used the database met an error meanwhile.
    let (acknowledged, failed) = load.end_counted();
    assert_eq!(failed, 0, "commands of the database's own load failed");
    copied.target.assert_plain_with(&acknowledged);
}

#[test]
fn a_copy_acts_on_nobody_and_keeps_no_secret_of_the_settings() {
    let Some(copied) = Copied::with(&[
        ("shared_preload_libraries", "auto_explain,dblink"),
        ("archive_mode", "on"),
        ("archive_command", "echo Secr3t1"),
        ("restore_command", "echo Secr3t2"),
        ("primary_conninfo", "host=h password=Secr3t3"),
        ("ssl_passphrase_command", "echo Secr3t4"),
    ]) else {
        return;
    };
    for statement in [
        "ALTER SYSTEM SET search_path = 'public', 'a\\b''c'",
        "CREATE SUBSCRIPTION follows CONNECTION 'host=h' PUBLICATION p WITH (connect = false)",
        "SELECT pg_create_physical_replication_slot('kept', true)",
        "SELECT pg_reload_conf()",
    ] {
        copied.target.tell(statement);
    }
    wait_until("the settings are read", || copied.target.answer("SHOW search_path").contains('\\'));
    let checked = output(copied.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    let said = text(&checked);
    assert!(said.contains("does not load dblink, which might act on others"), "{said}");
    assert!(said.contains("ssl_passphrase_command") && !said.contains("Secr3t"), "{said}");
    let done = output(copied.trial_of(ASKING, &[]).spawn().unwrap(), &["trial"]);
    let log = copied.log();
    assert_eq!(done.status.code(), Some(0), "{}\n{log}", text(&done));
    for told in [
        "archive_mode is <off>",
        "archive_command is <(disabled)>",
        "primary_conninfo is <>",
        "restore_command is <>",
        "listen_addresses is <>",
        "shared_preload_libraries is <auto_explain>",
        "max_wal_senders is <0>",
        "max_replication_slots is <0>",
        "launchers: 0",
        // Quotes and backslashes arrive as they were.
        "search_path is <public, \"a\\b'c\">",
        "search_path = 'public, \"a\\\\b''c\"'",
    ] {
        assert_eq!(log.matches(told).count(), 2, "{told}: {log}");
    }
    if is_root() {
        assert_eq!(log.matches("the server has no network of ours").count(), 2, "{log}");
    }
    let journal = fs::read_to_string(copied.target.trials()[0].join("trial.toml")).unwrap();
    for kept in [&log, &journal] {
        assert!(!kept.contains("Secr3t"), "a secret is kept: {kept}");
    }
    assert!(!log.lines().any(|line| line == "postgresql.auto.conf"), "{log}");
    copied.assert_untouched();
}

#[test]
fn a_copy_that_fills_its_disk_is_removed_before_others_have_no_room() {
    let Some(copied) = Copied::with(&[("max_wal_size", "32MB")]) else { return };
    let site = Site::new();
    for dir in [site.path(), &site.home] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let Some(volume) = Volume::of(&site, 1400) else { return };
    let fill = "fallocate -l 900M \"$PGHOST/../../filled\" && sleep 600";
    let dir = site.home.to_str().unwrap();
    let load = ["--emulate", "--on-copy", dir, "--for", "300s", "--", "sh", "-c", fill];
    let began = Instant::now();
    let done = output(copied.target.trial(&load).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("must not fill it") && said.contains("only read"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    assert!(site.home.join("filled").exists() && !site.home.join("tiersmith-trial-copy").exists());
    copied.assert_untouched();
    drop(site);
    drop(volume);
}

#[test]
fn what_speaks_against_a_trial_on_a_copy_is_said_with_what_to_do() {
    let Some(copied) = Copied::new() else { return };
    let dir = copied.dir.path().to_str().unwrap();
    let said_of = |command: &mut Command, code: i32| {
        let output = output(command.spawn().unwrap(), &["trial"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output));
        text(&output)
    };
    let said = said_of(&mut copied.target.trial(&["--on-copy", dir]), 2);
    assert!(said.contains("nobody else uses a copy") && said.contains("{url}"), "{said}");
    for vanishing in ["--emulate", "--volatile"] {
        let said = said_of(&mut copied.target.trial(&[vanishing]), 2);
        assert!(said.contains(vanishing) && said.contains("--on-copy"), "{said}");
    }
    // Somebody else could exchange what is made, here or above.
    let named = copied.dir.path().join("above/named");
    fs::create_dir_all(&named).unwrap();
    let above = named.parent().unwrap();
    let check_in = |dir: &Path| {
        let dir = dir.to_str().unwrap();
        copied.target.trial(&["--on-copy", dir, "--check", "--", "true"])
    };
    for (open, mode) in [(named.as_path(), 0o777), (above, 0o777), (above, 0o775)] {
        fs::set_permissions(open, fs::Permissions::from_mode(mode)).unwrap();
        let said = said_of(&mut check_in(&named), 2);
        assert!(said.contains("could exchange what is made"), "{said}");
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    if is_root() {
        chown(above, Some(3_999_999), None).unwrap();
        let said = said_of(&mut check_in(&named), 2);
        assert!(said.contains("belongs to user 3999999"), "{said}");
    }
    fs::remove_dir_all(above).unwrap();
    // No room on the disk, for what the copy's server may write either; none in memory.
    if let Some(small) = Site::on_small_disk(64) {
        fs::set_permissions(small.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let said = said_of(&mut check_in(small.path()), 1);
        assert!(said.contains("is in memory, which a copy would fill"), "{said}");
        assert!(said.contains("and the copy takes") && said.contains("make room"), "{said}");
    }
    copied.target.tell("ALTER SYSTEM SET max_wal_size = '900TB'");
    copied.target.tell("SELECT pg_reload_conf()");
    wait_until("the setting is read", || {
        let said = output(copied.trial(&["--check"]).spawn().unwrap(), &["trial"]);
        text(&said).contains("twice max_wal_size (900")
    });
    copied.target.tell("ALTER SYSTEM RESET max_wal_size");
    copied.target.tell("SELECT pg_reload_conf()");
    wait_until("the setting is read", || {
        let said = output(copied.trial(&["--check"]).spawn().unwrap(), &["trial"]);
        said.status.success()
    });
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let more = ["--size", "900G", "--on-copy", dir, "--emulate", "--check", "--", "true"];
        let said = said_of(&mut copied.target.command(memory.path(), &more), 1);
        assert!(said.contains("of this machine's memory") && said.contains("shared_buffers"));
    }
    let there = Path::new(dir).join("tiersmith-trial-copy");
    fs::create_dir(&there).unwrap();
    let said = said_of(&mut copied.trial(&["--check"]), 1);
    assert!(said.contains("tiersmith-trial-copy already"), "{said}");
    let refused = said_of(&mut copied.trial(&[]), 2);
    assert!(refused.contains("Nothing was changed"), "{refused}");
    fs::remove_dir(&there).unwrap();
    let said = said_of(&mut copied.target.trial(&["--on-copy", dir, "--", "false"]), 1);
    assert!(said.contains("not measured") && said.contains("only read"), "{said}");
    let mut other = crate::daemon::command(&["trial", "redis://localhost", "--on-copy", dir]);
    let said = said_of(other.args(["--fast", dir, "--", "true"]), 2);
    assert!(said.contains("a trial on a copy is of PostgreSQL"), "{said}");
    copied.assert_untouched();
}

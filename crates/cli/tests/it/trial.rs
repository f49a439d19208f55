//! A trial of a real PostgreSQL, MariaDB and Redis: whole, refused, and killed at each of its steps
//! under load. Afterwards the database is plain and runs, and has every row that it acknowledged.
//!
//! `TIERSMITH_TRIAL_KILLS=all` kills at every step both before and after it acted; without it at
//! some.

use crate::daemon;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::daemon::{is_root, output, refused, text};
use crate::trial_target::{Target, stands_on_disk};

/// The steps that a trial can be killed at, with what is begun only or acted already.
const KILLS: [&str; 16] = [
    "attach:acted",
    "stop:begun",
    "detach:acted",
    "start:begun",
    "stop:acted",
    "stop-again:acted",
    "attach:begun",
    "start-again:acted",
    "baseline:begun",
    "baseline:acted",
    "start:acted",
    "measure:begun",
    "measure:acted",
    "stop-again:begun",
    "detach:begun",
    "start-again:begun",
];

fn kills() -> &'static [&'static str] {
    match std::env::var("TIERSMITH_TRIAL_KILLS").is_ok_and(|which| which == "all") {
        true => &KILLS,
        false => &KILLS[..2],
    }
}

fn whole_trial(target: Option<Target>) {
    let Some(target) = target else { return };
    let load = target.load();
    let checked = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    let said = text(&checked);
    assert!(checked.status.success(), "{said}");
    assert!(said.contains("stopped twice") && said.contains("power cut"), "{said}");
    assert!(target.trials().is_empty(), "a check left something");
    let done = output(target.trial(&["--for", "1500ms"]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(0), "{said}");
    let rate = ["Transactions per second", "Commands per second"];
    assert!(rate.iter().any(|rate| said.contains(rate)), "{said}");
    assert!(said.contains("Nothing was kept"), "{said}");
    let page = fs::read_to_string(target.trials()[0].join("trial.html")).unwrap();
    assert!(page.contains("The Trial") && page.contains("On the tier at the end"), "no page");
    target.assert_plain_with(&load.end());
}

fn killed_trials(target: Option<Target>) {
    let Some(target) = target else { return };
    let load = target.load();
    for (number, kill) in kills().iter().enumerate() {
        let mut killed = target.trial(&[]);
        killed.env("TIERSMITH_TRIAL_KILL", kill);
        let killed = output(killed.spawn().unwrap(), &["trial", kill]);
        let said = text(&killed);
        assert_eq!(killed.status.code(), Some(1), "{kill}: {said}");
        assert!(said.contains("--resume") && said.contains("--undo"), "{kill}: {said}");
        assert!(refused_second(&target).contains("is not over"), "{kill}");
        let way = if number % 2 == 0 { "--resume" } else { "--undo" };
        let back = output(target.way(way).spawn().unwrap(), &["trial", way]);
        let said = text(&back);
        assert_eq!(back.status.code(), Some(0), "{kill} {way}: {said}");
        assert!(said.contains("plain"), "{kill} {way}: {said}");
        target.assert_plain_and_running();
    }
    target.assert_plain_with(&load.end());
}

fn refused_second(target: &Target) -> String {
    let second = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    assert_eq!(second.status.code(), Some(2), "{}", text(&second));
    text(&second)
}

#[test]
fn a_trial_of_postgresql_ends_with_a_page_and_the_plain_database() {
    whole_trial(Target::postgres());
}

#[test]
fn a_trial_of_mariadb_ends_with_a_page_and_the_plain_database() {
    whole_trial(Target::mariadb());
}

#[test]
fn a_trial_of_postgresql_killed_at_any_step_is_brought_to_its_end_or_back() {
    killed_trials(Target::postgres());
}

#[test]
fn a_trial_of_mariadb_killed_at_any_step_is_brought_to_its_end_or_back() {
    killed_trials(Target::mariadb());
}

#[test]
fn a_trial_of_redis_ends_with_a_page_and_the_plain_database() {
    whole_trial(Target::redis(&[]));
}

#[test]
fn a_trial_of_redis_killed_at_any_step_is_brought_to_its_end_or_back() {
    killed_trials(Target::redis(&[]));
}

#[test]
fn a_redis_loses_nothing_even_if_its_stop_command_kills_it() {
    let Some(mut target) = Target::redis(&[]) else { return };
    target.with_stop(|stop| stop.replace("-TERM", "-KILL"));
    let load = target.load();
    let done = output(target.trial(&[]).spawn().unwrap(), &["trial"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done));
    target.assert_plain_with(&load.end());
}

#[test]
fn a_redis_that_starts_without_its_append_only_file_is_named_and_the_file_is_whole() {
    let Some(mut target) = Target::redis(&[]) else { return };
    target.with_start(|start| start.replace("'--appendonly' 'yes'", "'--appendonly' 'no'"));
    target.tell("SET acknowledged x");
    let done = output(target.trial(&[]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("without its append-only file") && said.contains("NOSAVE"), "{said}");
    let kept = fs::read_dir(target.home().join("appendonlydir")).unwrap().flatten();
    let kept: Vec<u8> = kept.flat_map(|file| fs::read(file.path()).unwrap()).collect();
    assert!(
        kept.windows(12).any(|bytes| bytes == b"acknowledged"),
        "what was acknowledged is gone"
    );
}

#[test]
fn what_speaks_against_a_trial_of_redis_is_said_before_anything_is_touched() {
    let Some(target) = Target::redis(&[("appendonly", "no")]) else { return };
    let refused = |why: &str| {
        let checked = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
        assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
        assert!(text(&checked).contains(why), "{}", text(&checked));
    };
    refused("the append-only file is off");
    let passes =
        || output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]).status.success();
    target.tell("CONFIG SET appendonly yes");
    daemon::wait_until("the file is written", passes);
    target.tell("CONFIG SET rdb-key-save-delay 100000");
    target.tell("MSET a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10 k 11 l 12 m 13 n 14 o 15 p 16");
    target.tell("BGSAVE");
    refused("a snapshot (BGSAVE)");
    target.tell("CONFIG SET rdb-key-save-delay 0");
    daemon::wait_until("the snapshot is written", passes);
    target.tell("CONFIG SET appendonly no");
    refused("the append-only file is off");
    assert!(target.trials().is_empty());
    target.assert_plain_and_running();
}

#[test]
fn a_redis_that_does_not_tell_its_directory_or_wants_a_password_is_refused_with_the_remedy() {
    let Some(target) = Target::redis(&[]) else { return };
    target.tell("ACL SETUSER default -config");
    let refused = || {
        let refused = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
        text(&refused)
    };
    let said = refused();
    assert!(said.contains("NOPERM") && said.contains("+config|get"), "{said}");
    target.tell("ACL SETUSER default resetpass >secret");
    let said = refused();
    assert!(said.contains("NOAUTH") && said.contains("REDISCLI_AUTH"), "{said}");
}

#[test]
fn a_trial_of_an_attached_home_is_refused_with_the_two_ways_to_try_it() {
    let Some(target) = Target::mariadb() else { return };
    let kept = output(target.trial(&["--keep"]).spawn().unwrap(), &["trial --keep"]);
    let said = text(&kept);
    assert_eq!(kept.status.code(), Some(0), "{said}");
    assert!(said.contains("the tier stays attached, and the database runs"), "{said}");
    let again = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    let said = text(&again);
    assert_eq!(again.status.code(), Some(1), "{said}");
    let detach = format!("tiersmith detach {}", target.home().display());
    assert!(said.contains("is attached already") && said.contains(&detach), "{said}");
    assert!(said.contains("tiersmith awr compare"), "{said}");
}

#[test]
fn a_journal_that_cannot_be_read_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("trials");
    let old = state.join("20251123-221500");
    for made in [&state, &old] {
        fs::create_dir(made).unwrap();
        fs::set_permissions(made, fs::Permissions::from_mode(0o700)).unwrap();
    }
    fs::write(old.join("trial.toml"), "version = 99\n").unwrap();
    let state = state.to_str().unwrap();
    for arguments in [
        vec!["trial", "--resume", "--state", state],
        vec!["trial", "--undo", "--state", state],
        vec!["trial", "postgresql:///postgres", "--fast", "/nowhere", "--check", "--state", state],
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_tiersmith")).args(&arguments).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("20251123-221500"), "{arguments:?}: {said}");
        assert!(
            said.contains("journal cannot be read") && said.contains("move this directory"),
            "{said}"
        );
    }
}

#[test]
fn what_speaks_against_a_trial_is_said_before_anything_is_touched() {
    let Some(target) = Target::postgres() else { return };
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    // In memory, and too small.
    let mut command = target.command(memory.path(), &["--size", "900G"]);
    let said = output(command.spawn().unwrap(), &["trial"]);
    assert_eq!(said.status.code(), Some(2), "{}", text(&said));
    let said = text(&said);
    if !stands_on_disk(memory.path()) {
        assert!(said.contains("is in memory"), "{said}");
    }
    assert!(said.contains("the tier takes 900G") && said.contains("Nothing was changed"), "{said}");
    // A database that names a directory of another account's.
    if is_root() {
        let owner = fs::metadata(target.home()).unwrap().uid();
        chown(target.home(), Some(owner + 1), None).unwrap();
        // So that the server can still answer.
        fs::set_permissions(target.home(), fs::Permissions::from_mode(0o777)).unwrap();
        let lied = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
        fs::set_permissions(target.home(), fs::Permissions::from_mode(0o700)).unwrap();
        chown(target.home(), Some(owner), None).unwrap();
        assert_eq!(lied.status.code(), Some(2), "{}", text(&lied));
        assert!(text(&lied).contains("and the server there runs as user"), "{}", text(&lied));
    }
    // A backup that runs, as far as its name tells.
    let sleep = target.site_path().join("pg_basebackup");
    fs::copy("/bin/sleep", &sleep).unwrap();
    let mut backup = Command::new(&sleep).arg("60").spawn().unwrap();
    let checked = output(target.trial(&["--check"]).spawn().unwrap(), &["trial --check"]);
    backup.kill().unwrap();
    backup.wait().unwrap();
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked));
    assert!(text(&checked).contains("a backup is running (pg_basebackup)"), "{}", text(&checked));
    assert!(target.trials().is_empty());
    target.assert_plain_and_running();
}

#[test]
fn a_command_that_does_not_stop_the_server_is_told_soon() {
    let Some(mut target) = Target::mariadb() else { return };
    target.with_stop(|_| "exit 3".into());
    let began = Instant::now();
    let done = output(target.trial(&[]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("exit status: 3") && said.contains("is plain and runs"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    target.assert_plain_and_running();
}

#[test]
fn a_stop_command_that_hangs_is_ended_and_the_server_runs_as_before() {
    let Some(mut target) = Target::mariadb() else { return };
    let gone = target.state().join("stopped-late");
    // It would stop the server when nobody expects it any more.
    target.with_stop(|stop| format!("sleep 15; touch {}; {stop}", gone.display()));
    let began = Instant::now();
    let done = output(target.trial(&["--patience", "2s"]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("the command to stop it: did not end in 2.00s"), "{said}");
    assert!(said.contains("is plain and runs"), "{said}");
    std::thread::sleep(Duration::from_secs(16).saturating_sub(began.elapsed()));
    assert!(!gone.exists(), "the command went on");
    target.assert_plain_and_running();
}

#[test]
fn a_start_command_that_hangs_is_ended_and_the_state_is_told_with_the_way_back() {
    let Some(mut target) = Target::mariadb() else { return };
    let works = target.state().join("works");
    target.with_start(|start| format!("test -e {} || sleep 600; {start}", works.display()));
    let done = output(target.trial(&["--patience", "2s"]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("the command to start it: did not end in 2.00s"), "{said}");
    assert!(said.contains("is plain, and no server runs in it"), "{said}");
    assert!(said.contains("tiersmith trial --undo"), "{said}");
    fs::write(&works, "").unwrap();
    let back = output(target.way("--undo").spawn().unwrap(), &["trial", "--undo"]);
    assert_eq!(back.status.code(), Some(0), "{}", text(&back));
    target.assert_plain_and_running();
}

#[test]
fn two_trials_with_two_state_directories_do_not_work_on_one_database() {
    let Some(target) = Target::mariadb() else { return };
    let first = target.trial(&["--for", "4s"]).spawn().unwrap();
    daemon::wait_until("the first trial records", || {
        let journals = target.trials().into_iter().map(|dir| dir.join("trial.toml"));
        journals.filter_map(|file| fs::read_to_string(file).ok()).any(|t| t.contains("baseline"))
    });
    let other = target.state().join("other");
    let fast = target.home().with_file_name("fast");
    let mut second = target.command_with(&fast, &other, &["--size", "64M", "--check"]);
    let second = output(second.spawn().unwrap(), &["trial"]);
    assert_eq!(second.status.code(), Some(1), "{}", text(&second));
    assert!(text(&second).contains("another trial of it takes its steps"), "{}", text(&second));
    let first = output(first, &["trial"]);
    assert_eq!(first.status.code(), Some(0), "{}", text(&first));
    target.assert_plain_and_running();
}

#[test]
fn a_journal_that_cannot_be_written_does_not_leave_the_server_stopped() {
    let Some(mut target) = Target::mariadb() else { return };
    // As on a full disk: from here on nothing takes the journal's place.
    let state = target.state().display().to_string();
    target.with_stop(|stop| {
        let journal = format!("{state}/*/trial.toml");
        format!("sleep 1; for j in {journal}; do mv $j $j.old && mkdir $j; done; {stop}")
    });
    let done = output(target.trial(&[]).spawn().unwrap(), &["trial"]);
    assert_ne!(done.status.code(), Some(0), "{}", text(&done));
    daemon::wait_until("the server runs", || {
        let log = fs::read_to_string(target.trials()[0].join("log")).unwrap_or_default();
        log.contains("goes on without it") && target.answers()
    });
    target.assert_plain_and_running();
}

#[test]
fn a_trial_refuses_passwords_and_options_that_make_no_sense() {
    let said = refused(&["trial", "postgresql://a:secret@localhost/db", "--fast", "/tmp"]);
    assert!(
        said.contains("~/.pgpass") && said.contains("~/.my.cnf") && !said.contains("secret"),
        "{said}"
    );
    let said = refused(&["trial", "redis://a:secret@localhost", "--fast", "/tmp"]);
    assert!(said.contains("REDISCLI_AUTH") && !said.contains("secret"), "{said}");
    let said = refused(&["trial", "host", "--fast", "/tmp"]);
    assert!(said.contains("a trial is of PostgreSQL, MariaDB, MySQL, Redis"), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let said =
        refused(&["trial", "--resume", "--state", dir.path().join("none").to_str().unwrap()]);
    assert!(said.contains("there is no trial in"), "{said}");
    for wrong in [
        &["trial"][..],
        &["trial", "postgresql:///db"],
        &["trial", "postgresql:///db", "--fast", "/tmp", "--for", "0s"],
        &["trial", "postgresql:///db", "--fast", "/tmp", "--stop", "true"],
        &["trial", "postgresql:///db", "--fast", "/tmp", "--size", "much"],
        &["trial", "postgresql:///db", "--fast", "/tmp", "--resume"],
        &["trial", "--resume", "--undo"],
        &["trial", "--undo", "--keep"],
        &["trial", "--undo", "--fast", "/tmp"],
        &["trial", "--resume", "--stop", "true", "--start", "true"],
    ] {
        let output = daemon::tiersmith(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", text(&output));
    }
}

//! `tiersmith awr`: recording around a command, reports in every form, baselines, retention, files,
//! and Oracle's reports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    // Where these are set they would be tried.
    for name in ["PGHOST", "PGUSER", "PGPASSWORD", "PGSERVICE", "MYSQL_PWD", "REDISCLI_AUTH"] {
        command.env_remove(name);
    }
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

fn good(dir: &Path, arguments: &[&str]) -> String {
    let output = tiersmith(dir, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(dir: &Path, arguments: &[&str], expected: &str) -> String {
    let output = tiersmith(dir, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(error.contains(expected), "{arguments:?}: {error}");
    error
}

#[test]
fn a_recording_around_a_command_is_reported_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["before", "after"] {
        let said = good(dir, &["awr", "record", "--source", "host", "--name", name, "--", "true"]);
        assert!(said.contains("host: 2 snapshots"), "{said}");
    }
    let list = good(dir, &["awr", "list"]);
    assert!(
        list.contains("baseline before: 1 to 2") && list.contains("baseline after: 3 to 4"),
        "{list}"
    );
    reported_in_every_form(dir);
    let compared = good(dir, &["awr", "compare", "--baseline", "before", "--baseline", "after"]);
    assert!(compared.contains("COMPARE PERIOD REPORT"), "{compared}");
    assert!(good(dir, &["awr", "compare", "1", "2", "3", "4"]).contains("COMPARE PERIOD"));
    refused(dir, &["awr", "compare", "1", "2"], "needs two intervals");
    refused(dir, &["awr", "report", "--baseline", "none"], "no baseline `none`");
    let again = ["awr", "record", "--source", "host", "--name", "before", "--", "true"];
    refused(dir, &again, "there is a baseline `before`");
    files_hold_what_was_recorded(dir, &compared);
    refused(
        dir,
        &["awr", "record", "--source", "host", "--source", "host", "--for", "1s"],
        "given twice",
    );
    assert!(
        good(dir, &["awr", "report", "--in", "other.db"]).contains("WORKLOAD REPOSITORY report")
    );
    assert!(
        good(dir, &["awr", "purge", "--older", "0"]).contains("0 snapshots removed"),
        "baselines stay"
    );
    good(dir, &["awr", "baseline", "drop", "before"]);
    assert!(good(dir, &["awr", "purge", "--older", "0"]).contains("2 snapshots removed"));
}

fn reported_in_every_form(dir: &Path) {
    let report = good(dir, &["awr", "report"]);
    assert!(report.contains("WORKLOAD REPOSITORY report"), "{report}");
    assert!(
        good(dir, &["awr", "report", "--baseline", "before", "--csv"])
            .starts_with("section,table,row,column,unit,value")
    );
    assert!(good(dir, &["awr", "report", "1", "2", "--markdown"]).starts_with("# WORKLOAD"));
    let json = good(dir, &["awr", "report", "--in", "tiersmith-awr.db", "1", "2", "--json"]);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["kind"],
        "tiersmith report"
    );
    good(dir, &["awr", "report", "1", "2", "--html", "page.html"]);
    assert!(fs::read_to_string(dir.join("page.html")).unwrap().starts_with("<!DOCTYPE html>"));
}

/// Exported and loaded again, two baselines compare as they did before.
fn files_hold_what_was_recorded(dir: &Path, compared: &str) {
    good(dir, &["awr", "export", "--to", "files"]);
    let loaded = good(dir, &["awr", "load", "files", "--to", "other.db"]);
    assert!(loaded.contains("4 snapshots, 2 baselines, 0 gaps in other.db"), "{loaded}");
    let same = good(
        dir,
        &["awr", "compare", "--in", "other.db", "--baseline", "before", "--baseline", "after"],
    );
    assert_eq!(same, compared, "the names came with their snapshots");
    // The directory itself is read with what lies beside its snapshots.
    assert!(good(dir, &["awr", "list", "files"]).contains("baseline after: 3 to 4"));
    let same = good(
        dir,
        &["awr", "compare", "--in", "files", "--baseline", "before", "--baseline", "after"],
    );
    assert_eq!(same, compared);
    refused(dir, &["awr", "load", "files", "files/", "--to", "twice.db"], "was given before");
    assert!(!dir.join("twice.db").exists());
    for name in ["", " "] {
        assert_eq!(
            tiersmith(dir, &["awr", "baseline", "add", name, "1", "2"]).status.code(),
            Some(2)
        );
    }
    // Snapshots without what lies beside them: that is said, and no good end.
    let files =
        ["awr", "load", "files/snap-000001.json", "files/snap-000002.json", "--to", "some.db"];
    let output = tiersmith(dir, &files);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("2 snapshots, 0 baselines") && said.contains("name the directory"),
        "{said}"
    );
}

/// The snapshots that a recording says it took: from, to.
fn recorded(said: &str) -> (u64, u64) {
    let ends = said.lines().find_map(|line| line.split_once(" snapshots, ")).unwrap().1;
    let (first, last) = ends.split_once(" to ").unwrap();
    (first.parse().unwrap(), last.parse().unwrap())
}

#[test]
fn a_report_without_numbers_is_of_the_whole_last_recording_and_never_of_a_remainder() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let record = ["awr", "record", "--source", "host", "--every", "200ms", "--for", "1100ms"];
    for more in [&[][..], &["--sample", "0"], &["--name", "third"]] {
        let (first, last) = recorded(&good(dir, &[&record[..], more].concat()));
        assert!(last > first + 2, "more than two snapshots: {first} to {last}");
        let report = good(dir, &["awr", "report"]);
        assert!(
            report.contains(&format!("Snaps: {first}-{last}\n")),
            "{first} to {last}: {report}"
        );
        assert_eq!(report.contains("third"), more.contains(&"--name"), "its name: {report}");
    }
    // A snapshot by hand, whose recorder is nobody: what happened since the one before.
    good(dir, &["awr", "snapshot", "--source", "host", "--to", "tiersmith-awr.db"]);
    let taken = tiersmith_awr::AnyRepository::existing(&dir.join("tiersmith-awr.db")).unwrap();
    let last = taken.list().unwrap().entries.len();
    assert!(good(dir, &["awr", "report"]).contains(&format!("Snaps: {}-{last}\n", last - 1)));

    fs::create_dir(dir.join("one")).unwrap();
    good(dir, &["awr", "snapshot", "--source", "host", "--to", "one"]);
    refused(dir, &["awr", "report", "--in", "one"], "has one snapshot so far");
}

#[test]
fn an_interval_that_is_too_short_is_said_before_anything_else() {
    let dir = tempfile::tempdir().unwrap();
    good(dir.path(), &["awr", "record", "--source", "host", "--", "true"]);
    let report = good(dir.path(), &["awr", "report"]);
    let banner = report.find("* TOO SHORT: this interval is ").expect(&report);
    assert!(report[..banner].lines().count() <= 5, "{report}");
    good(dir.path(), &["awr", "report", "--html", "page.html"]);
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.find("TOO SHORT").unwrap() < page.find("<h2").unwrap());
}

#[test]
fn list_and_report_find_a_repository_by_the_same_words() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for command in ["list", "report"] {
        refused(dir, &["awr", command], "there is no repository tiersmith-awr.db");
        refused(dir, &["awr", command, "--in", "none.db"], "there is no repository none.db");
    }
    good(dir, &["awr", "record", "--source", "host", "--to", "load.db", "--", "true"]);
    good(dir, &["awr", "export", "--in", "load.db", "--to", "files"]);
    let listed = good(dir, &["awr", "list", "load.db"]);
    assert_eq!(good(dir, &["awr", "list", "--in", "load.db"]), listed);
    refused(dir, &["awr", "list", "load.db", "--in", "load.db"], "cannot be used with");
    // In a directory of snapshots neither needs to be told.
    let files = dir.join("files");
    assert_eq!(good(&files, &["awr", "list"]), good(dir, &["awr", "list", "--in", "files"]));
    assert!(good(&files, &["awr", "report"]).contains("Snaps: 1-2\n"));
}

#[test]
fn a_time_that_is_none_or_negative_is_refused_with_what_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let record = ["awr", "record", "--source", "host"];
    for option in ["--every", "--for", "--sample", "--keep"] {
        let error =
            refused(dir, &[&record[..], &[option, "-5s"]].concat(), "a time is not negative");
        assert!(!error.contains("tip:"), "{error}");
    }
    for command in [&record[..], &["top", "host"], &["awr", "serve", "--source", "host"]] {
        refused(dir, &[command, &["--for", "0s"]].concat(), "nothing happens in no time");
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "nothing was begun");
}

#[test]
fn a_page_that_does_not_fit_leaves_what_was_there_and_no_torso() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    good(dir, &["awr", "record", "--source", "host", "--to", "load.db", "--", "true"]);
    good(dir, &["awr", "export", "--in", "load.db", "--to", "files"]);
    let files = |dir: &Path| {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let before = files(dir);
    // As a full disk: no file may become larger than 4 KiB, and the signal that says so is ignored.
    let on_a_full_disk = |page: &str| {
        let arguments = "awr report files/snap-000001.json files/snap-000002.json --html";
        let script = format!(
            "ulimit -f 8; trap '' XFSZ; exec '{}' {arguments} {page}",
            env!("CARGO_BIN_EXE_tiersmith")
        );
        let output = Command::new("sh").args(["-c", &script]).current_dir(dir).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("cannot write") && error.contains(page), "{error}");
    };
    on_a_full_disk("page.html");
    assert_eq!(files(dir), before, "nothing is left of it");
    fs::write(dir.join("page.html"), "an older page").unwrap();
    on_a_full_disk("page.html");
    assert_eq!(fs::read_to_string(dir.join("page.html")).unwrap(), "an older page");
    // A link stays a link, and what is no file is written as it is.
    std::os::unix::fs::symlink("page.html", dir.join("link.html")).unwrap();
    good(dir, &["awr", "report", "--in", "load.db", "--html", "link.html"]);
    assert!(fs::symlink_metadata(dir.join("link.html")).unwrap().is_symlink());
    assert!(fs::read_to_string(dir.join("page.html")).unwrap().starts_with("<!DOCTYPE html>"));
    assert!(
        good(dir, &["awr", "report", "--in", "load.db", "--html", "/dev/stdout"])
            .contains("<!DOCTYPE html>")
    );
}

/// The permission bits of a file.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_holds_statements_is_its_owners_alone_and_a_file_that_everybody_reads_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let record = ["awr", "record", "--source", "host", "--to", "load.db", "--", "true"];
    good(dir, &record);
    good(dir, &["awr", "snapshot", "--source", "host", "--to", "snaps"]);
    good(dir, &["awr", "baseline", "add", "b", "1", "2", "--in", "load.db"]);
    good(dir, &["awr", "export", "--in", "load.db", "--to", "files"]);
    good(dir, &["awr", "report", "--in", "load.db", "--html", "page.html"]);
    let beside = "files/baselines-and-gaps.json";
    let new = ["load.db", "snaps/snap-000001.json", "files/snap-000001.json", beside, "page.html"];
    for file in new {
        assert_eq!(mode(&dir.join(file)), 0o600, "{file}");
    }
    // What is there keeps its mode, and is said where more is written to it.
    for file in ["load.db", "snaps/snap-000001.json", "page.html"] {
        fs::set_permissions(dir.join(file), fs::Permissions::from_mode(0o644)).unwrap();
    }
    good(dir, &["awr", "report", "--in", "load.db", "--html", "page.html"]);
    let snapshot = ["awr", "snapshot", "--source", "host", "--to", "snaps"];
    for (arguments, file) in [(&record[..], "load.db"), (&snapshot, "snap-000001.json")] {
        let error = String::from_utf8(tiersmith(dir, arguments).stderr).unwrap();
        assert!(error.contains(file) && error.contains("every account can read it"), "{error}");
    }
    assert_eq!((mode(&dir.join("load.db")), mode(&dir.join("page.html"))), (0o644, 0o644));
}

#[test]
fn root_writes_no_page_and_no_recording_through_what_another_account_put_there() {
    const STRANGER: u32 = 3_999_999;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files to another account");
        return;
    }
    good(dir, &["awr", "record", "--source", "host", "--to", "load.db", "--", "true"]);
    let victim = dir.join("victim");
    fs::write(&victim, "").unwrap();
    // Once in a directory of the stranger's, once in one that everybody may write to, as /tmp is.
    for (name, owner, bits) in [("theirs", STRANGER, 0o755), ("all", 0, 0o1777)] {
        let place = dir.join(name);
        fs::create_dir(&place).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(bits)).unwrap();
        std::os::unix::fs::chown(&place, Some(owner), None).unwrap();
        for link in ["page.html", "to.db"] {
            std::os::unix::fs::symlink(&victim, place.join(link)).unwrap();
            std::os::unix::fs::lchown(place.join(link), Some(STRANGER), None).unwrap();
        }
        let (page, to) = (format!("{name}/page.html"), format!("{name}/to.db"));
        let error =
            refused(dir, &["awr", "report", "--in", "load.db", "--html", &page], "is a link");
        assert!(error.contains("user 3999999"), "{error}");
        let record = ["awr", "record", "--source", "host", "--to", &to, "--", "true"];
        refused(dir, &record, "is a link of user 3999999");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "");
        // A pipe would hand the page to whoever waits at its other end.
        let pipe = place.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0)
            .unwrap();
        std::os::unix::fs::chown(&pipe, Some(STRANGER), None).unwrap();
        let pipe = format!("{name}/pipe");
        refused(dir, &["awr", "report", "--in", "load.db", "--html", &pipe], "not a regular file");
    }
    // A recording that the stranger made in advance, to read what is added.
    let waiting = dir.join("all/waiting.db");
    fs::copy(dir.join("load.db"), &waiting).unwrap();
    std::os::unix::fs::chown(&waiting, Some(STRANGER), None).unwrap();
    let record = ["awr", "record", "--source", "host", "--to", "all/waiting.db", "--", "true"];
    refused(dir, &record, "is a file of user 3999999");
    // A page of theirs is replaced by one that they cannot read.
    let page = dir.join("all/old.html");
    fs::write(&page, "old").unwrap();
    fs::set_permissions(&page, fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::chown(&page, Some(STRANGER), None).unwrap();
    good(dir, &["awr", "report", "--in", "load.db", "--html", "all/old.html"]);
    assert_eq!(mode(&page), 0o600);
}

#[test]
fn a_baseline_over_a_restart_keeps_its_snapshots_and_says_that_there_is_no_report() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let source = |instance: &str| tiersmith_awr::Source {
        instance: instance.to_owned(),
        database: "shop".to_owned(),
        ..tiersmith_awr::Source::default()
    };
    for (number, instance) in [(1, "first"), (2, "second"), (3, "second")] {
        let snapshot = tiersmith_awr::Snapshot::at(source(instance), number, number);
        fs::write(dir.join(format!("{number}.json")), snapshot.to_json()).unwrap();
    }
    good(dir, &["awr", "load", "1.json", "2.json", "3.json", "--to", "x.db"]);
    let output = tiersmith(dir, &["awr", "baseline", "add", "over", "1", "2", "--in", "x.db"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("there is no report") && said.contains("was restarted"), "{said}");
    refused(
        dir,
        &["awr", "report", "--in", "x.db", "--baseline", "over"],
        "baseline `over` is no interval",
    );
    // With a second snapshot after the restart there is something to count.
    good(dir, &["awr", "baseline", "add", "counted", "1", "3", "--in", "x.db"]);
    for of in [&["--baseline", "counted"][..], &["1", "3"]] {
        let said = good(dir, &[&["awr", "report", "--in", "x.db"], of].concat());
        assert!(said.contains("INCOMPLETE: restarted between snapshots 1"), "{said}");
    }
    good(dir, &["awr", "baseline", "drop", "counted", "--in", "x.db"]);
    let said = good(dir, &["awr", "baseline", "add", "whole", "2", "3", "--in", "x.db", "--json"]);
    assert!(
        serde_json::from_str::<serde_json::Value>(&said).unwrap()["no_report"].is_null(),
        "{said}"
    );
    assert!(
        good(dir, &["awr", "purge", "--older", "0", "--in", "x.db"])
            .contains("0 snapshots removed")
    );
    let dropped = good(dir, &["awr", "baseline", "drop", "over", "--in", "x.db", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&dropped).unwrap()["dropped"], "over");
    // All of them or none: the second is no snapshot.
    fs::write(dir.join("bad.json"), "{}").unwrap();
    refused(dir, &["awr", "load", "1.json", "bad.json", "--to", "y.db"], "bad.json");
    assert!(!dir.join("y.db").exists());
}

#[test]
fn a_recording_that_is_stopped_takes_the_last_snapshot_and_gives_the_source_back() {
    let dir = tempfile::tempdir().unwrap();
    for (signal, around) in [("INT", false), ("TERM", false), ("TERM", true)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
        command.args(["awr", "record", "--source", "host", "--every", "1h", "--to", "r.db"]);
        if around {
            // It ends by the signal that is handed on to it, or not at all in this test's time.
            command.args(["--", "sleep", "1000"]);
        }
        command
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let there = || {
            let archive = tiersmith_awr::archive::Archive::existing(dir.path().join("r.db"));
            archive.and_then(|archive| archive.list()).map_or(0, |list| list.entries.len())
        };
        let before = there();
        let mut child = Ended(command.spawn().unwrap());
        let began = std::time::Instant::now();
        while there() == before {
            assert!(began.elapsed().as_secs() < 150, "a first snapshot");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let kill = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", child.0.id())])
            .stdin(Stdio::null())
            .status();
        assert!(kill.unwrap().success());
        // That its command failed is said by the exit code.
        assert_eq!(child.0.wait().unwrap().code(), Some(i32::from(around)), "{signal}");
        assert_eq!(there(), before + 2, "{signal}: the first snapshot and the last");
    }
}

/// A program that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_repository_on_a_server_is_named_where_a_path_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let nowhere = "postgresql:///d?host=/nowhere/at/all";
    for command in [
        &["awr", "list", nowhere][..],
        &["awr", "report", "--in", nowhere, "1", "2"],
        &["awr", "record", "--source", "host", "--for", "1s", "--to", nowhere],
        &["awr", "purge", "--older", "1d", "--in", nowhere],
        &["awr", "baseline", "drop", "x", "--in", nowhere],
    ] {
        refused(dir, command, "the server runs");
    }
    let error = refused(dir, &["awr", "list", "postgresql://u:hunter2@h/d"], "password in it");
    assert!(!error.contains("hunter2"), "{error}");
    refused(dir, &["awr", "list", "mysql://h/d"], "postgresql://USER@HOST/DB");
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "no directory of that name was made");
}

#[test]
fn a_command_that_fails_is_exit_code_1_and_what_was_recorded_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let output =
        tiersmith(dir.path(), &["awr", "record", "--source", "host", "--json", "--", "false"]);
    assert_eq!(output.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["recorded"][0]["snapshots"].as_array().unwrap().len(), 2);
    assert!(said["command_failed"].as_str().unwrap().contains("false"));
    refused(
        dir.path(),
        &["awr", "record", "--source", "host", "--", "no-such-program"],
        "no-such-program",
    );
}

#[test]
fn what_cannot_be_recorded_is_refused_with_what_to_do_and_without_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for url in [
        "postgresql://u:hunter2@localhost/d",
        "mysql://u:hunter2@localhost/",
        "redis://:hunter2@localhost",
    ] {
        for command in [
            &["awr", "record", "--source", url][..],
            &["awr", "snapshot", "--source", url, "--to", "x.db"],
        ] {
            let error = refused(dir, command, "password in it");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
    let nowhere = format!("unix://{}", dir.join("none.sock").display());
    refused(dir, &["awr", "record", "--source", &nowhere], "cannot connect to");
    refused(dir, &["awr", "record", "--source", "ftp://x"], "its scheme is not one of");
    fs::create_dir(dir.join("plain")).unwrap();
    refused(
        dir,
        &["awr", "record", "--source", "plain"],
        "neither a mounted home nor an attached SQLite database",
    );
    refused(dir, &["awr", "record", "--source", "host", "--to", "plain"], "in one file");
    refused(dir, &["awr", "record", "--source", "host", "--every", "1ms"], "ten times a second");
    let spaces = [
        "awr", "record", "--source", "host", "--to", "n.db", "--name", " ", "--", "touch",
        "was-run",
    ];
    refused(dir, &spaces, "its name is empty");
    assert!(!dir.join("was-run").exists() && !dir.join("n.db").exists(), "nothing was begun");
    refused(dir, &["awr", "record", "--source", "host", "--every", "soon"], "write a number with");
    refused(dir, &["awr", "snapshot", "--to", "x.db"], "give a path, or --source");
    let taken = good(dir, &["awr", "snapshot", "--source", "host", "--to", "x.db"]);
    assert!(taken.contains("snapshot 1 in x.db"), "{taken}");
}

/// A report of Oracle's in which nothing was measured, and its wait events.
const ORACLE: &str = "<h1>WORKLOAD REPOSITORY report for</h1><table><tr><th>DB Name</th><th>DB \
    Id</th><th>Instance</th></tr><tr><td>SHOP</td><td>7</td><td>s1</td></tr></table>\
    <table><tr><th></th><th>Snap Id</th><th>Snap Time</th></tr><tr><td>Begin Snap:</td>\
    <td>24703</td><td>24-Aug-26 10:00:00</td></tr><tr><td>End Snap:</td><td>24704</td>\
    <td>24-Aug-26 10:10:00</td></tr></table>\
    <table><tr><th>Statistic Name</th><th>Time (s)</th></tr><tr><td>DB time</td><td>60</td></tr>\
    </table><h3>Undo Segment Summary</h3><table><tr><th>x</th></tr><tr><td>1</td></tr></table>";
const ORACLE_EVENTS: &str = "<h3>Foreground Wait Events</h3><table><tr><th>Event</th>\
    <th>Waits</th><th>Total Wait Time (s)</th></tr><tr><td>log file sync</td><td>1,000</td>\
    <td>9</td></tr></table>";

/// A directory with a report that is whole.
fn with_oracle_report() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let whole = format!("{ORACLE}{ORACLE_EVENTS}End of Report");
    fs::write(dir.path().join("awr.html"), whole).unwrap();
    dir
}

#[test]
fn an_oracle_report_becomes_two_snapshots_and_a_file_that_is_none_imports_nothing() {
    let dir = with_oracle_report();
    let dir = dir.path();
    fs::write(dir.join("other.html"), "<p>no report").unwrap();
    refused(dir, &["awr", "import", "awr.html", "other.html", "--to", "oracle.db"], "other.html");
    assert!(!dir.join("oracle.db").exists());
    let said = good(dir, &["awr", "import", "awr.html", "--to", "oracle.db"]);
    assert!(
        said.contains("of SHOP, snapshots 1 and 2 in oracle.db, in the report 24703 and 24704")
            && said.contains("2 sections read, 1 not read (--verbose lists them)"),
        "{said}"
    );
    let text = good(dir, &["awr", "report", "--in", "oracle.db", "1", "2"]);
    assert!(text.contains("SHOP") && text.contains("2026-08-24 10:10:00"), "{text}");
    // Its numbers are those that Oracle printed, and the repository's stand beside them.
    assert!(
        text.contains("Snaps: 24703-24704\n")
            && text.contains("24703  2026-08-24 10:00:00           1\n"),
        "{text}"
    );
    // Its times are as it prints them, and nobody knows their zone.
    let list = good(dir, &["awr", "list", "--in", "oracle.db"]);
    assert!(list.contains("2026-08-24 10:10:00") && !list.contains("UTC"), "{list}");
    assert!(list.contains("as printed, without a zone"), "{list}");
    let line = list.lines().nth(1).unwrap().split_whitespace().take(2).collect::<Vec<_>>();
    assert_eq!(line, ["1", "24703"], "{list}");
    let json = good(dir, &["awr", "list", "--in", "oracle.db", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["snapshots"][1]["printed_number"], 24_704, "{json}");
}

#[test]
fn a_duplicate_report_is_kept_once_and_a_truncated_one_is_said_to_be_that() {
    let dir = with_oracle_report();
    let dir = dir.path();
    good(dir, &["awr", "import", "awr.html", "--to", "oracle.db"]);
    // The same interval is kept once, whether it is given again or twice at once.
    let again = good(dir, &["awr", "import", "awr.html", "--to", "oracle.db"]);
    assert!(
        again.contains("not kept again") && again.contains("snapshot 2 in oracle.db"),
        "{again}"
    );
    let twice =
        good(dir, &["awr", "import", "awr.html", "awr.html", "--to", "other.db", "--verbose"]);
    assert!(twice.contains("same interval as awr.html"), "{twice}");
    assert!(
        twice.contains("read: Foreground Wait Events")
            && twice.contains("not read: Undo Segment Summary"),
        "{twice}"
    );
    let list = good(dir, &["awr", "list", "--in", "other.db"]);
    assert_eq!(list.matches("SHOP").count(), 2, "{list}");
    // A report that was torn does not stand in the way of the whole one.
    fs::write(dir.join("torn.html"), format!("{ORACLE}{ORACLE_EVENTS}")).unwrap();
    let torn = good(dir, &["awr", "import", "torn.html", "--to", "torn.db"]);
    assert!(torn.contains("TRUNCATED: the file ends before the report does"), "{torn}");
    fs::write(dir.join("less.html"), ORACLE).unwrap();
    tiersmith(dir, &["awr", "import", "less.html", "--to", "less.db"]);
    let whole = good(dir, &["awr", "import", "awr.html", "--to", "less.db"]);
    assert!(whole.contains("snapshots 3 and 4 in less.db"), "{whole}");
}

#[test]
fn a_report_without_wait_events_is_no_good_end_and_says_so_loudly() {
    let dir = with_oracle_report();
    let dir = dir.path();
    fs::write(dir.join("without.html"), format!("{ORACLE}End of Report")).unwrap();
    let output = tiersmith(dir, &["awr", "import", "without.html", "--to", "without.db"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("NO WAIT EVENTS"), "{said}");
    good(dir, &["awr", "import", "awr.html", "--to", "with.db"]);
    let report = ["awr", "report", "--in", "without.db", "1", "2"];
    let compare = ["awr", "compare", "--in", "without.db", "1", "2", "1", "2"];
    for arguments in [
        &report[..],
        &[&report[..], &["--json"]].concat(),
        &[&report[..], &["--csv"]].concat(),
        &[&report[..], &["--html", "page.html"]].concat(),
        &compare,
    ] {
        let output = tiersmith(dir, arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("NO WAIT EVENTS could be read"), "{arguments:?}: {error}");
    }
    let text = String::from_utf8(tiersmith(dir, &report).stdout).unwrap();
    assert!(text.find("NO WAIT EVENTS").unwrap() < text.find("Report Summary").unwrap(), "{text}");
    good(dir, &["awr", "report", "--in", "with.db", "1", "2"]);
}

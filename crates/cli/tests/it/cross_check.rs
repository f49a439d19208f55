//! `--cross-check` as a user meets it: programs that fail, that are missing, that nobody has.
//!
//! The programs that fail here are scripts with the names of the real ones, first on PATH.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::study::{SMALL, nothing_left};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A place that a server's account can enter.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in [".", "home", "fast", "bin"] {
        let path = dir.path().join(name);
        let _ = std::fs::create_dir(&path);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    dir
}

/// A program of this name on PATH. Written by another process: a program that this one has open for
/// writing when it starts another cannot be started.
fn script(dir: &Path, name: &str, body: &str) {
    let path = dir.join("bin").join(name);
    let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
    let wrote = Command::new("sh").args(["-c", write, "sh"]).arg(path).arg(body).status();
    assert!(wrote.unwrap().success());
}

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let bin = std::iter::once(dir.join("bin")).chain(std::env::split_paths(&path));
    Command::new(env!("CARGO_BIN_EXE_tiersmith"))
        .args(arguments)
        .env("PATH", std::env::join_paths(bin).unwrap())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

const MIXED: [&str; 19] = [
    "study",
    "server-on-home",
    "--target",
    "redis",
    "--load",
    "mixed",
    "--cross-check",
    "--emulate",
    "--home",
    "home",
    "--fast",
    "fast",
    "--scale",
    "4M",
    "--seconds",
    "0.2",
    "--no-html",
    "--json",
    "result.json",
];

#[test]
fn an_outside_program_that_fails_is_told_and_the_figures_of_the_study_are_kept() {
    let is_there = |name: &str| {
        ["/usr/bin", "/usr/local/bin"].iter().any(|d| Path::new(d).join(name).exists())
    };
    if !is_there("redis-server") || is_there("memtier_benchmark") {
        eprintln!(
            "skipped: a memtier_benchmark that fails, because redis-server is not installed or a \
             real memtier_benchmark is"
        );
        return;
    }
    for (body, expected) in [
        ("echo 'FATAL: the last words'; exit 3", "FATAL: the last words"),
        // It ends well and writes half of its output.
        (
            "for word in \"$@\"; do case \"$word\" in --json-out-file=*) printf '{\"ALL STATS\": \
             {\"Sets\"' > \"${word#*=}\";; esac; done",
            "a figure is missing; its last lines: {\"ALL STATS\": {\"Sets\"",
        ),
        ("true", "No such file"),
        // What is in the directory of its account is not root's to follow.
        (
            "for word in \"$@\"; do case \"$word\" in --json-out-file=*) ln -s /etc/passwd \
             \"${word#*=}\";; esac; done",
            "memtier.json is not a regular file",
        ),
    ] {
        let dir = place();
        script(dir.path(), "memtier_benchmark", body);
        let output = tiersmith(dir.path(), &MIXED);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{printed}{}", text(&output.stderr));
        let in_one_line = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(in_one_line.contains(expected), "{printed}");
        assert!(in_one_line.contains("by memtier_benchmark failed"), "{printed}");
        let json = std::fs::read_to_string(dir.path().join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(result["runs"].as_array().unwrap().len(), 1);
        assert!(result["runs"][0]["measured"]["executes"].as_u64().unwrap() > 0);
        let rows = result["cross_check"]["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["program"] == "memtier_benchmark").unwrap();
        assert!(row["failed"].is_string() && row["ratio"].is_null(), "{row}");
        assert!(row["tiersmith"]["per_s"].as_f64().unwrap() > 0.0, "{row}");
        let again = tiersmith(dir.path(), &["study", "--read", "result.json", "--no-html"]);
        assert_eq!((text(&again.stdout), again.status.code()), (printed, Some(1)));
        nothing_left(dir.path());
    }
}

#[test]
fn a_cross_check_of_what_is_no_case_is_refused() {
    let dir = place();
    for name in ["all", "recovery"] {
        let output = tiersmith(dir.path(), &["study", name, "--cross-check", "--no-html"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(&format!("--cross-check is for cases, and `{name}` is none")));
    }
}

#[test]
fn a_load_without_a_counterpart_says_so_and_the_study_runs() {
    let dir = place();
    let arguments = [&SMALL[..], &["--cross-check", "--seconds", "0.1", "--no-html"]].concat();
    let output = tiersmith(dir.path(), &arguments);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let note = "There is no cross-check: nothing outside runs the load slob.";
    assert!(printed.contains(note), "{printed}");
    nothing_left(dir.path());
}

#[test]
fn fio_runs_beside_a_probe_and_one_that_fails_leaves_the_figures_of_the_probe() {
    let dir = place();
    let arguments = ["probe", "home", "--seconds", "0.02", "--cross-check"];
    let output = tiersmith(dir.path(), &arguments);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    if printed.contains("because fio is not installed; sudo apt-get install fio") {
        eprintln!("skipped: fio beside a probe, because fio is not installed");
    } else if printed.contains("measured mapped") {
        eprintln!("skipped: fio beside a probe, because the directory is in memory here");
        return;
    } else {
        assert!(printed.contains("by fio ") && printed.contains("fio /s"), "{printed}");
        assert!(printed.contains("O_DSYNC"), "{printed}");
    }
    nothing_left(dir.path());
    script(dir.path(), "fio", "echo 'fio: the last words'; exit 1");
    let output = tiersmith(dir.path(), &arguments);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("fio: the last words"), "{printed}");
    assert!(printed.contains("the probe's own figures stand"), "{printed}");
    let output = tiersmith(dir.path(), &[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let probe: Value = serde_json::from_slice(&output.stdout).unwrap();
    let place = &probe["measured"][0];
    assert_eq!(place["measurements"].as_array().unwrap().len(), 9);
    assert!(place["cross_check"]["failed"].is_string(), "{place}");
    nothing_left(dir.path());
}

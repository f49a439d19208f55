//! A tier that is truncated beneath an open database: without `sigbus=1` the program's signals are
//! its own, with it the program hears what it was about before it ends.

use crate::vfs_support::{Bench, text};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

const ROLE: &str = "TIERSMITH_TEST_SIGBUS";
const NAME: &str = "a_truncated_tier_is_explained_in_a_program_that_asks_for_it_and_only_there";

/// Runs this test in a process of its own, which reads from the tier after it was truncated.
fn child(parameter: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &full_name!(NAME), "--nocapture", "--test-threads=1"]);
    command.env(ROLE, parameter).output().unwrap()
}

fn read_what_is_gone(parameter: &str) {
    let bench = Bench::with("&size=16M");
    let connection = bench.open();
    connection.execute_batch("PRAGMA journal_mode=wal; CREATE TABLE t(body BLOB)").unwrap();
    for _ in 0..300 {
        connection.execute("INSERT INTO t VALUES (randomblob(8000))", []).unwrap();
    }
    drop(connection);
    // Asked for without `fast=`, of a database that is attached already.
    let uri = format!("file:{}?vfs=tiersmith{parameter}", bench.database().display());
    let connection = rusqlite::Connection::open(uri).unwrap();
    println!("; {}", bench.dir.path().display());
    let tier = std::fs::OpenOptions::new().write(true).open(bench.tier()).unwrap();
    tier.set_len(1 << 20).unwrap();
    text(&connection, "SELECT sum(length(body)) FROM t");
    unreachable!();
}

#[test]
fn a_truncated_tier_is_explained_in_a_program_that_asks_for_it_and_only_there() {
    if let Ok(parameter) = std::env::var(ROLE) {
        return read_what_is_gone(&parameter);
    }
    for (parameter, asked) in [("&sigbus=1", true), ("&sigbus=0", false), ("", false)] {
        let ended = child(parameter);
        let (said, out) =
            (String::from_utf8_lossy(&ended.stderr), String::from_utf8_lossy(&ended.stdout));
        let left = out.lines().find_map(|line| Some(line.split_once("; ")?.1));
        // A program that ends like this takes nothing away.
        std::fs::remove_dir_all(left.unwrap_or_else(|| panic!("{said} {out}"))).unwrap();
        assert_eq!(ended.status.signal(), Some(7), "{parameter}: {said}");
        assert_eq!(said.contains("tiersmith: SIGBUS at byte "), asked, "{parameter}: {said}");
        assert_eq!(said.contains("/app.tier: it is in block "), asked, "{parameter}: {said}");
        assert_eq!(said.contains(" of db ("), asked, "{parameter}: {said}");
    }
}

#[test]
fn another_value_than_one_or_zero_is_refused() {
    let bench = Bench::with("&size=16M&sigbus=yes");
    assert!(rusqlite::Connection::open(bench.uri()).is_err());
    let plain = rusqlite::Connection::open("file::memory:?vfs=tiersmith").unwrap();
    let why = text(&plain, "SELECT tiersmith_last_error()");
    assert!(why.contains("sigbus=yes cannot be used: give 1 or 0"), "{why}");
}

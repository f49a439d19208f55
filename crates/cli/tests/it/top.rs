//! `tiersmith top`: on a terminal of its own (a pseudoterminal), as text and as JSON, with a server
//! that goes away and comes back.

use std::process::{Command, Stdio};

use crate::redis::Redis;
use crate::screen::{Screen, until};
use rustix::process::Signal;
use serde_json::Value;

fn tiersmith(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).stdin(Stdio::null()).env_remove("COLUMNS").env_remove("REDISCLI_AUTH");
    command
}

#[test]
fn a_terminal_is_drawn_on_resized_and_given_back() {
    let what = "a_terminal_is_drawn_on_resized_and_given_back";
    let Some(screen) = Screen::start(what, &["top", "host", "--every", "500ms"]) else { return };
    screen.shows("Events]");
    screen.shows("intervals");
    assert!(!screen.is_cooked(), "keys come one by one");
    assert!(screen.written().contains("\u{1b}[?1049h"), "it has a screen of its own");
    screen.resize(100, 40);
    // The last row, which was not there before.
    screen.shows("\u{1b}[40;");
    screen.key("5");
    screen.shows("Host]");
    screen.key("?");
    screen.shows("Letters");
    // The first ends the help, the second the program.
    screen.key("q");
    screen.shows("Host]");
    screen.key("q");
    let (code, written) = screen.ended();
    assert_eq!(code, Some(0));
    assert!(
        written.contains("\u{1b}[?1049l") && written.contains("\u{1b}[?25h"),
        "the screen and the cursor are back"
    );
}

#[test]
fn a_signal_ends_it_and_a_stop_gives_the_terminal_back_meanwhile() {
    let what = "a_signal_ends_it_and_a_stop_gives_the_terminal_back_meanwhile";
    let Some(mut screen) = Screen::start(what, &["top", "host", "--every", "500ms"]) else {
        return;
    };
    screen.shows("Events]");
    screen.signal(Signal::TSTP);
    screen.stopped();
    assert!(screen.is_cooked(), "a stopped program leaves the terminal to the shell");
    screen.forget();
    screen.signal(Signal::CONT);
    screen.shows("Events]");
    until("the modes to be set again", || !screen.is_cooked());
    screen.signal(Signal::TERM);
    let (code, written) = screen.ended();
    assert_eq!(code, Some(128 + 15));
    assert!(written.contains("\u{1b}[?1049l"), "{written:?}");
}

#[test]
fn a_server_that_goes_away_is_said_and_asked_until_it_is_back() {
    let what = "a_server_that_goes_away_is_said_and_asked_until_it_is_back";
    let Some(mut server) = Redis::start(what) else { return };
    let url = server.url();
    let Some(screen) = Screen::start(what, &["top", &url, "--every", "500ms"]) else { return };
    screen.shows("measured");
    screen.key("2");
    // Statements that were run: the questions of this program itself.
    screen.shows("INFO");
    server.stop();
    screen.shows("trying");
    screen.forget();
    server.start_again();
    screen.shows("calls");
    screen.key("q");
    assert_eq!(screen.ended().0, Some(0));
}

#[test]
fn intervals_and_gaps_are_lines_of_json() {
    let what = "intervals_and_gaps_are_lines_of_json";
    let Some(mut server) = Redis::start(what) else { return };
    let url = server.url();
    let mut top = tiersmith(&["top", &url, "--json", "--every", "200ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(top.stdout.take().unwrap()));
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(
        (&first["kind"], &first["format"]),
        (&Value::from("tiersmith top"), &Value::from(1))
    );
    assert_eq!(first["product"], "Redis");
    assert_eq!(first["activity"]["basis"], "measured");
    assert!(first["elapsed_s"].as_f64().unwrap() > 0.0);
    server.stop();
    while next()["kind"] != "tiersmith top gap" {}
    server.start_again();
    // The counters of the new server begin at zero: nothing from before is subtracted.
    let after = loop {
        let line = next();
        if line["kind"] == "tiersmith top" {
            break line;
        }
    };
    for event in after["statements"].as_array().unwrap() {
        assert!(event["calls_per_s"].as_f64().unwrap() >= 0.0, "{event}");
    }
    top.kill().unwrap();
    top.wait().unwrap();
}

#[test]
fn without_a_terminal_it_prints_text_without_escapes() {
    for arguments in [
        &["top", "host", "--once", "--every", "200ms"][..],
        &["top", "host", "--every", "200ms", "--for", "300ms"],
    ] {
        let output = tiersmith(arguments).env("COLUMNS", "80").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.starts_with("tiersmith top  "), "{text}");
        assert!(
            text.contains("Processors at work on this machine")
                && text.contains("Disks of this machine"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80 && !line.contains('\u{1b}')),
            "{text}"
        );
    }
    // A reader that has enough ends it.
    let mut top = tiersmith(&["top", "host", "--json", "--every", "100ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(top.stdout.take());
    assert!(top.wait().unwrap().success());
}

#[test]
fn what_cannot_be_looked_at_is_refused_with_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().to_str().unwrap();
    let nowhere = format!("unix://{plain}/none.sock");
    let refused: [(&[&str], &str); 5] = [
        (&["top", plain], "neither a mounted home nor an attached SQLite database"),
        (&["top", &nowhere, "--once"], "cannot connect to"),
        (&["top", "redis://:hunter2@localhost"], "password in it"),
        (&["top", "host", "--every", "1ms"], "ten times a second"),
        (&["top", "host", "--once", "--for", "1s"], "cannot be used with"),
    ];
    for (arguments, expected) in refused {
        let output = tiersmith(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected) && !error.contains("hunter2"), "{arguments:?}: {error}");
    }
    let help = String::from_utf8(tiersmith(&["top", "--help"]).output().unwrap().stdout).unwrap();
    assert!(
        help.contains("Examples:") && help.contains("--json") && help.contains("Exit codes:"),
        "{help}"
    );
}

//! Every command explains itself, and refuses what makes no sense with one sentence and exit code 2.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::process::{Command, Output};

fn tiersmith(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tiersmith")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_command_has_help_with_examples_or_exit_codes() {
    let commands: [&[&str]; 18] = [
        &["probe"],
        &["study"],
        &["awr"],
        &["awr", "snapshot"],
        &["awr", "list"],
        &["awr", "report"],
        &["awr", "compare"],
        &["awr", "serve"],
        &["top"],
        &["status"],
        &["check"],
        &["detach"],
        &["attach"],
        &["flush"],
        &["pin"],
        &["unpin"],
        &["move"],
        &["unmount"],
    ];
    for command in commands {
        let mut arguments = command.to_vec();
        arguments.push("--help");
        let output = tiersmith(&arguments);
        let help = text(&output.stdout);
        assert!(output.status.success(), "{command:?}");
        assert!(help.contains("Usage: tiersmith"), "{help}");
        assert!(help.contains("Examples:") || help.contains("Exit codes:"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 140), "{help}");
        // Of the commands that do something, each can print for programs.
        assert!(command == ["awr"] || help.contains("--json"), "{help}");
    }
    let help = text(&tiersmith(&["--help"]).stdout);
    assert!(help.contains("Exit codes: 0 good; 1 findings or differences; 2 error"), "{help}");
}

#[test]
fn what_makes_no_sense_is_refused_with_exit_code_2_and_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    let here = dir.path().to_str().unwrap();
    let refused: [(&[&str], &str); 14] = [
        (&["study", "--nonsense"], "unexpected argument"),
        (&["study", "no-such-case", "--no-html"], "there is no case `no-such-case`"),
        (&["study", "--show", "no-such-case"], "there is no case `no-such-case`"),
        (&["study", "--no-html", "--home", missing], "not a directory"),
        (&["study", "--no-html", "--seconds", "0"], "the setting seconds"),
        (&["study", "--no-html", "--size", "big"], "is not a size"),
        (&["study", "--html", "/nowhere/page.html"], "cannot write /nowhere/page.html"),
        (&["probe", missing], "not a directory"),
        (&["probe", "--seconds", "0"], "--seconds 0"),
        (&["status", missing], "there is no"),
        (&["check", here], "is not attached"),
        (&["check", here, "--fast", missing], "there is no tier member"),
        (&["awr", "list", missing], "is no directory"),
        (&["awr", "report", "--in", missing, "1", "2"], "no snapshot 1"),
    ];
    for (arguments, expected) in refused {
        let output = Command::new(env!("CARGO_BIN_EXE_tiersmith"))
            .args(arguments)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was made");
}

#[test]
fn the_list_of_cases_names_what_each_is_compared_with() {
    let output = tiersmith(&["study", "--list"]);
    let list = text(&output.stdout);
    assert!(output.status.success());
    assert!(list.contains("redo-on-tier") && list.contains("Compared with redo-on-home."), "{list}");
    let json = text(&tiersmith(&["study", "--list", "--json"]).stdout);
    let cases: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(cases[0]["id"], "redo-on-home");
    assert_eq!(cases[0]["update_pcts"], serde_json::json!([100, 25]));
}

#[test]
fn a_case_that_is_shown_can_be_run_as_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let shown = tiersmith(&["study", "--show", "redo-on-home"]);
    assert!(shown.status.success());
    let file = dir.path().join("mine.toml");
    let mine = text(&shown.stdout).replace("id = \"redo-on-home\"", "id = \"mine\"");
    std::fs::write(&file, mine).unwrap();
    let home = dir.path().to_str().unwrap();
    let arguments = [
        "study",
        file.to_str().unwrap(),
        "--no-html",
        "--seconds",
        "0.1",
        "--scale",
        "2M",
        "--home",
        home,
        "--fast",
        home,
    ];
    let output = tiersmith(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("mine (?)"));
}

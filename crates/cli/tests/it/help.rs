//! Every command explains itself, and refuses what makes no sense with one sentence and exit code
//! 2.

use std::process::{Command, Output};

fn tiersmith(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tiersmith")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The commands below one, as its help lists them.
fn below(command: &[String]) -> Vec<Vec<String>> {
    let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
    let output = tiersmith(&arguments);
    assert!(output.status.success(), "{command:?}");
    let help = text(&output.stdout);
    let listed = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, after)| after.split("\n\n").next().unwrap());
    // Two spaces, the name; a line that is indented further goes on with the sentence of the one
    // before.
    let name = |line: &str| {
        line.strip_prefix("  ")?
            .split(' ')
            .next()
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
    };
    let names = listed.lines().filter_map(name).filter(|name| name != "help");
    names.map(|name| [command, &[name]].concat()).collect()
}

#[test]
fn every_command_has_help_with_examples_exit_codes_and_json() {
    let mut left = below(&[]);
    assert!(left.len() >= 13, "{left:?}");
    let mut looked_at = 0;
    while let Some(command) = left.pop() {
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = text(&tiersmith(&arguments).stdout);
        assert!(help.contains("Usage: tiersmith"), "{help}");
        assert!(help.contains("Examples:"), "no examples: {help}");
        assert!(help.contains("Exit codes: 0 "), "no exit codes: {help}");
        assert!(help.lines().all(|line| line.chars().count() <= 140), "{help}");
        let deeper = below(&command);
        // Of the commands that do something, each can print for programs.
        assert!(!deeper.is_empty() || help.contains("--json"), "no --json: {help}");
        left.extend(deeper);
        looked_at += 1;
    }
    assert!(looked_at >= 26, "{looked_at} commands");
    let help = text(&tiersmith(&["--help"]).stdout);
    assert!(help.contains("Exit codes: 0 good; 1 findings or differences; 2 error"), "{help}");
}

#[test]
fn what_makes_no_sense_is_refused_with_exit_code_2_and_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();
    let here = dir.path().to_str().unwrap();
    let refused: [(&[&str], &str); 18] = [
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
        (&["awr", "list", missing], "there is no repository"),
        (&["awr", "report"], "there is no repository tiersmith-awr.db"),
        // No repository is left where nothing was recorded.
        (&["awr", "record", "--source", missing, "--for", "1s"], "cannot record"),
        (&["attach", missing, "--fast", here, "--emulate"], "there is no directory"),
        (&["flush", here], "is not mounted"),
        (&["awr", "report", "--in", missing, "1", "2"], "there is no repository"),
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
    assert!(
        list.contains("redo-on-tier") && list.contains("Compared with redo-on-home."),
        "{list}"
    );
    assert!(list.contains("(default; UPDATE_PCT 100 and 25)"), "{list}");
    assert!(list.contains("tpcc-on-home") && list.contains("(--full; load tpcc)"), "{list}");
    let json = text(&tiersmith(&["study", "--list", "--json"]).stdout);
    let cases: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(cases[0]["id"], "redo-on-home");
    assert_eq!(cases[0]["update_pcts"], serde_json::json!([100, 25]));
}

#[test]
fn every_published_experiment_is_listed_with_what_stands_for_it_or_why_nothing_does() {
    let output = tiersmith(&["study", "--list", "--all"]);
    let list = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(list.starts_with("42 published experiments: "), "{list}");
    for expected in [
        "Accelerating Oracle Transactional Databases with SanDisk Flash Storage (SanDisk, 2015)",
        "(figures 7 and 8, approach 2)",
        "Here: tpcc-redo-on-tier on postgres, mariadb, sqlite, load tpcc",
        "Here: server-redo-on-disk on postgres, mariadb, load slob; needs root",
        "load client-copy",
        "63 %",
        "57 %",
    ] {
        assert!(list.contains(expected), "no `{expected}` in {list}");
    }
    assert!(list.lines().all(|line| line.chars().count() <= 110), "{list}");
    let json = text(&tiersmith(&["study", "--list", "--all", "--json"]).stdout);
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 42);
    assert_eq!(all[1]["here"]["case"]["case"], "server-redo-on-disk");
    // Without --list it makes no sense.
    let refused = tiersmith(&["study", "--all"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
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
